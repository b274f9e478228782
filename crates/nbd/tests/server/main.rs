//! The server over sockets, tested by a client that can break every rule.

mod lab;

mod handshake;
mod requests;
mod trouble;
