//! The rows that only a whole server can show: sockets, shards, workers, limits, configuration changes, and shutdown.

mod connections;
mod contention;
mod discovery;
mod groups;
mod hooked;
mod logins;
mod management;
mod memory;
mod observing;
mod protected_units;
mod protection;
mod reload;
mod resize;
mod sessions;
mod shutdown;
mod stores;
mod support;
mod traffic;
mod whole;
