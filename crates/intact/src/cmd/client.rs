//! What the client commands share: the URL with its secrets, and sizes and times as people write them.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use initiator::{ConnectError, IscsiUrl, Options};

use super::{FAILED, MISUSED, fail};

/// Arguments that every client command has.
#[derive(Clone, Debug, clap::Args)]
pub struct ClientArgs {
    /// Take the CHAP password from the first line of this file.
    #[arg(long, value_name = "FILE")]
    pub password_file: Option<PathBuf>,
    /// Log in with this initiator name.
    #[arg(long, value_name = "IQN")]
    pub initiator: Option<String>,
    /// Connections of the session, as far as the target allows.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub connections: Option<u16>,
    /// A further portal of the target, for the other connections of the session; may be repeated. `all` asks the target.
    #[arg(long, value_name = "HOST[:PORT]")]
    pub portal: Vec<String>,
    /// An address of this machine for connections to come from; may be repeated.
    #[arg(long, value_name = "ADDRESS")]
    pub local: Vec<std::net::IpAddr>,
    /// Highest ErrorRecoveryLevel to offer: 0, 1 or 2. Without it 0, or 2 with several connections.
    #[arg(long, value_name = "LEVEL", value_parser = clap::value_parser!(u8).range(0..=2))]
    pub erl: Option<u8>,
    /// Seconds that a command may take before it is aborted.
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = parse_time)]
    pub timeout: Duration,
}

impl ClientArgs {
    /// Takes `text` apart and completes it with what the arguments and the environment say.
    pub fn url(&self, text: &str) -> Result<IscsiUrl, ExitCode> {
        let refused = |error: &dyn std::fmt::Display| fail(MISUSED, error);
        let mut url = IscsiUrl::parse(text).map_err(|error| refused(&error))?.with_environment();
        if let Some(path) = &self.password_file {
            url = url.with_password_file(path).map_err(|error| refused(&error))?;
        }
        if let Some(name) = &self.initiator {
            url.initiator = Some(iscsi_core::names::IscsiName::parse(name).map_err(|error| refused(&error))?);
        }
        if !self.portal.is_empty() {
            url.take_option("portals", &self.portal.join(",")).map_err(|error| refused(&error))?;
        }
        if !self.local.is_empty() {
            url.local_addresses.clone_from(&self.local);
        }
        url.connections = self.connections.or(url.connections);
        url.error_recovery_level = self.erl.or(url.error_recovery_level);
        Ok(url)
    }

    /// The options that `url` means for who only asks what there is: whether protection information is made makes no difference.
    pub fn asking_options(&self, url: &IscsiUrl) -> Result<Options, ExitCode> {
        Ok(Options { protection: None, ..self.options(url)? })
    }

    /// The options that `url` means.
    pub fn options(&self, url: &IscsiUrl) -> Result<Options, ExitCode> {
        let mut options = url.options().map_err(|error| fail(MISUSED, error))?;
        options.command_timeout = self.timeout;
        options.ports = initiator::default_port_directory();
        Ok(options)
    }
}

/// Says why there is no session, and what to do about it.
pub fn refused(error: &ConnectError) -> ExitCode {
    fail(FAILED, format_args!("{error}\n  remedy: {}", error.remedy()))
}

/// A size: `4096`, `4k`, `1M`, `2G`, `1T`; with or without `iB` or `B`.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let lower = text.trim().to_ascii_lowercase();
    let bare = lower.strip_suffix("ib").or_else(|| lower.strip_suffix('b')).unwrap_or(&lower);
    let (digits, shift) = match bare.char_indices().last() {
        Some((at, 'k')) => (&bare[..at], 10),
        Some((at, 'm')) => (&bare[..at], 20),
        Some((at, 'g')) => (&bare[..at], 30),
        Some((at, 't')) => (&bare[..at], 40),
        _ => (bare, 0),
    };
    let number: u64 = digits.parse().map_err(|_| format!("`{text}` is no size; write 4096, 4k, 1M or 2G"))?;
    number.checked_mul(1 << shift).ok_or_else(|| format!("`{text}` is too large"))
}

/// A time: `10`, `0.5`, `10s`, `500ms`, `2m`.
pub fn parse_time(text: &str) -> Result<Duration, String> {
    let lower = text.trim().to_ascii_lowercase();
    let (digits, unit) = if let Some(digits) = lower.strip_suffix("ms") {
        (digits, 0.001)
    } else if let Some(digits) = lower.strip_suffix('s') {
        (digits, 1.0)
    } else if let Some(digits) = lower.strip_suffix('m') {
        (digits, 60.0)
    } else {
        (lower.as_str(), 1.0)
    };
    let wrong = || format!("`{text}` is no time; write 10, 0.5, 10s, 500ms or 2m");
    let seconds: f64 = digits.parse::<f64>().map_err(|_| wrong())? * unit;
    Duration::try_from_secs_f64(seconds).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_as_people_write_them() {
        assert_eq!(parse_size("4k"), Ok(4096));
        assert_eq!(parse_size("1MiB"), Ok(1 << 20));
        assert_eq!(parse_size("512"), Ok(512));
        assert_eq!(parse_size("2gb"), Ok(2 << 30));
        for bad in ["", "k", "4x", "-1", "99999999999T", "1.5k"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
        assert_eq!(parse_time("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_time("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(parse_time("2m"), Ok(Duration::from_secs(120)));
        for bad in ["", "s", "-1", "nan", "inf", "1e300"] {
            assert!(parse_time(bad).is_err(), "{bad}");
        }
    }
}
