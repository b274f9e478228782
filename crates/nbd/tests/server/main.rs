//! The server over sockets, by a client that can break every rule.

mod lab;

mod handshake;
mod requests;
mod trouble;
