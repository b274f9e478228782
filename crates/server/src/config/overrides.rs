//! Settings of the command line, and addresses as they are written there and in the file.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// Settings of the command line; they take precedence over the file.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// Addresses to listen on instead of the file's.
    pub listen: Vec<SocketAddr>,
    /// The control socket.
    pub control_socket: Option<PathBuf>,
    /// Where persistent reservations are kept.
    pub state_dir: Option<PathBuf>,
    /// Where `/metrics` is served.
    pub metrics: Option<SocketAddr>,
    /// Addresses on which to export the units by NBD, instead of the file's.
    pub nbd: Vec<SocketAddr>,
    /// Allow targets without CHAP and without access rules beyond loopback.
    pub allow_open_access: bool,
    /// Serve nothing unless every store can be opened.
    pub require_every_store: bool,
}

pub(super) fn parse_address(text: &str, default_port: u16) -> Option<SocketAddr> {
    let with_port = || text.parse().ok();
    let bare = || {
        let text = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
        text.parse::<IpAddr>().ok().map(|address| SocketAddr::new(address, default_port))
    };
    with_port().or_else(bare)
}
