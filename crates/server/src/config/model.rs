//! The configuration of a server with its control plane, as the file and the command line give it.

use std::net::SocketAddr;
use std::path::PathBuf;

use target::read_at_start;

/// The whole configuration: what is served by iSCSI, and what goes with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Targets, portals, limits.
    pub target: target::config::Config,
    /// Unix socket for `intact ls`.
    pub control_socket: ControlSocket,
    /// Where `/metrics` is served; `None`: nowhere.
    pub metrics: Option<SocketAddr>,
    /// Where and how the units are exported by NBD; `None`: nowhere.
    pub nbd: Option<NbdConfig>,
    /// Whether targets without CHAP and without access rules may be reached from other machines.
    pub allow_open_access: bool,
}

impl Config {
    /// A line for each setting of the control plane that differs from `running`: a server takes it at its start only.
    pub fn waits_for_start(&self, running: &Self) -> Vec<String> {
        let changed = [
            ("control.socket", self.control_socket != running.control_socket),
            ("nbd", self.nbd != running.nbd),
            ("metrics.listen", self.metrics != running.metrics),
        ];
        changed.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| read_at_start(name)).collect()
    }
}

/// The export of the units by NBD.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NbdConfig {
    /// Where to listen; at least one.
    pub listen: Vec<SocketAddr>,
    /// Certificates; `None`: no TLS.
    pub tls: Option<NbdTls>,
}

/// TLS of the export by NBD: files in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NbdTls {
    /// The certificate of the server, and the intermediate ones up to its authority.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// Authorities of clients, which must then present a certificate; `None`: no client certificate is requested.
    pub client_ca: Option<PathBuf>,
    /// Do not serve clients without TLS. True by default.
    pub required: bool,
}

impl NbdConfig {
    /// Whether every client must present a certificate that the server trusts.
    pub fn proves_clients(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.required && tls.client_ca.is_some())
    }
}

/// Where the control socket is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ControlSocket {
    /// In the first usable default place; see [`crate::control::default_paths`].
    #[default]
    Default,
    /// Only here.
    At(PathBuf),
    /// No control socket.
    Off,
}

#[cfg(test)]
mod tests {
    use crate::config::{ControlSocket, NbdConfig, Overrides};

    use super::Config;

    #[test]
    fn what_waits_for_the_next_start_is_named() {
        let running = Config::quick(None, Vec::new(), &Overrides::default()).unwrap();
        assert!(running.waits_for_start(&running).is_empty());
        let mut next = running.clone();
        next.metrics = Some("127.0.0.1:0".parse().unwrap());
        next.control_socket = ControlSocket::At("/nowhere".into());
        next.nbd = Some(NbdConfig::default());
        let lines = next.waits_for_start(&running);
        for (line, name) in lines.iter().zip(["control.socket", "nbd", "metrics.listen"]) {
            assert!(line.starts_with(&format!("{name} is read at the start only")), "{line}");
        }
        assert_eq!(lines.len(), 3);
    }
}
