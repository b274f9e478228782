//! What to test, and how.

use std::time::Duration;

/// A CHAP name and its secret. `Debug` does not show the secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// CHAP_N.
    pub name: String,
    /// The secret.
    pub secret: String,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("name", &self.name).finish_non_exhaustive()
    }
}

/// What to test, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// Host name or address; IPv6 without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// TargetName; `None` uses the first one that discovery returns.
    pub target: Option<String>,
    /// Index of the logical unit; `None` uses the first disk.
    pub lun: Option<u16>,
    /// Our InitiatorName.
    pub initiator_name: String,
    /// The credentials that we prove to the target.
    pub chap: Option<Credentials>,
    /// The credentials that the target must prove to us (mutual CHAP).
    pub target_chap: Option<Credentials>,
    /// Row ids (`NUM-03`) and sections (`NUM`); empty for all.
    pub filter: Vec<String>,
    /// Write to the whole logical unit, not only to its last MiB.
    pub destructive: bool,
    /// Request both digests in every session, unless the row sets them itself.
    pub digests: bool,
    /// How long one step may take.
    pub timeout: Duration,
    /// Show the transcripts of failed rows, and of a failed preparation.
    pub verbose_transcripts: bool,
}

impl Options {
    /// Our default name.
    pub const INITIATOR_NAME: &'static str = "iqn.2026-01.org.example:conform";

    /// For a host and port, with the defaults: discover the target, last MiB only, 2 seconds per step.
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Options {
            host: host.into(),
            port,
            target: None,
            lun: None,
            initiator_name: Self::INITIATOR_NAME.to_owned(),
            chap: None,
            target_chap: None,
            filter: Vec::new(),
            destructive: false,
            digests: false,
            timeout: Duration::from_secs(2),
            verbose_transcripts: false,
        }
    }

    /// Parses `iscsi://[user[%password]@]host[:port][/target[/lun]]`. An error says what is wrong with the URL.
    ///
    /// Deliberately separate from the parser `initiator::IscsiUrl`: this crate uses only the wire format and the checksum of the
    /// product, and a peer that breaks rules must accept target names that `IscsiUrl` rejects. Here the rows decide what is
    /// negotiated, not the part of the URL after a question mark.
    pub fn from_url(url: &str) -> Result<Self, String> {
        let rest = url.strip_prefix("iscsi://").ok_or("the URL does not begin with iscsi://")?;
        if let Some((url, _)) = url.split_once('?') {
            return Err(format!("what is negotiated is for the rows to say: leave out what follows {url}"));
        }
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, address) = match authority.rsplit_once('@') {
            Some((user, address)) => (Some(user), address),
            None => (None, authority),
        };
        let (host, port) = split_port(address)?;
        let mut options = Options::new(host, port);
        if let Some(user) = user {
            let (name, secret) = user.split_once('%').unwrap_or((user, ""));
            options.chap = Some(Credentials { name: name.to_owned(), secret: secret.to_owned() });
        }
        let (target, lun) = match path.rsplit_once('/') {
            Some((target, lun)) => (target, Some(lun)),
            None => (path, None),
        };
        if !target.is_empty() {
            options.target = Some(target.to_owned());
        }
        if let Some(lun) = lun.filter(|lun| !lun.is_empty()) {
            options.lun = Some(lun.parse().map_err(|_| format!("{lun:?} is not a LUN (0 to 65535)"))?);
        }
        Ok(options)
    }

    pub(crate) fn wants(&self, id: &str) -> bool {
        let section = crate::script::section(id);
        self.filter.is_empty()
            || self
                .filter
                .iter()
                .any(|want| want.eq_ignore_ascii_case(id) || want.eq_ignore_ascii_case(section))
    }
}

fn split_port(address: &str) -> Result<(String, u16), String> {
    let (host, port) = match address.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, "")) => (host, None),
        Some((host, after)) => match after.strip_prefix(':') {
            Some(port) => (host, Some(port)),
            None => return Err(format!("{after:?} behind the address is no port: write [{host}]:PORT")),
        },
        None => match address.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (address, None),
        },
    };
    if host.is_empty() {
        return Err("the URL names no host".to_owned());
    }
    let port = match port {
        Some(port) => port.parse().map_err(|_| format!("{port:?} is not a port (1 to 65535)"))?,
        None => 3260,
    };
    Ok((host.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        let options = Options::from_url("iscsi://u%p@[::1]:3261/iqn.2026-01.org.example:x/7").unwrap();
        assert_eq!((options.host.as_str(), options.port, options.lun), ("::1", 3261, Some(7)));
        assert_eq!(options.target.as_deref(), Some("iqn.2026-01.org.example:x"));
        assert_eq!(options.chap.unwrap(), Credentials { name: "u".into(), secret: "p".into() });
        let options = Options::from_url("iscsi://host").unwrap();
        assert_eq!((options.host.as_str(), options.port, options.target), ("host", 3260, None));
        for wrong in [
            "host",
            "iscsi://",
            "iscsi://h:99999/x",
            "iscsi://h/x/y",
            "iscsi://[::1]3261",
            "iscsi://h/x?erl=2",
        ] {
            assert!(Options::from_url(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_secret_is_not_shown() {
        let shown = format!("{:?}", Credentials { name: "n".into(), secret: "topsecret".into() });
        assert!(!shown.contains("topsecret"));
    }
}
