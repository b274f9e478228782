//! What the client commands share: the URL and its secrets, errors with remedies, and the sizes that people write.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use harness::text::parse_time;
use initiator::{ConnectError, EngineKind, IoError, IscsiUrl, OpenError, Options};

use super::{FAILED, MISUSED, complain, fail};

/// Arguments that every client command has.
#[derive(Clone, Debug, clap::Args)]
pub struct ClientArgs {
    /// Take the CHAP password from the first line of this file. Without it and without one in the URL, name and password come
    /// from LIBISCSI_CHAP_USERNAME and LIBISCSI_CHAP_PASSWORD.
    #[arg(long, value_name = "FILE")]
    pub password_file: Option<PathBuf>,
    /// Log in with this initiator name.
    #[arg(long, value_name = "IQN")]
    pub initiator: Option<String>,
    /// Connections in the session, 1 to 64, if the target allows so many; `auto`: as many as bring something, at most 8.
    #[arg(long, value_name = "N")]
    pub connections: Option<String>,
    /// A further portal of the target, for the other connections of the session; may be repeated. `all` asks the target.
    #[arg(long, value_name = "HOST[:PORT]")]
    pub portal: Vec<String>,
    /// A local address to connect from; may be repeated.
    #[arg(long, value_name = "ADDRESS")]
    pub local: Vec<std::net::IpAddr>,
    /// Highest ErrorRecoveryLevel to offer: 0, 1 or 2. Without it 0, or 2 with several connections.
    #[arg(long, value_name = "LEVEL", value_parser = clap::value_parser!(u8).range(0..=2))]
    pub erl: Option<u8>,
    /// What carries out the commands of the session: `none`; `software`, an offload engine in software
    /// (docs/engine-interface.md); `rtl`, the simulated circuit, if it was built in. An engine has one connection and no
    /// protection information.
    #[arg(long, value_name = "ENGINE", value_parser = EngineKind::ALL.map(EngineKind::name))]
    pub engine: Option<String>,
    /// Seconds that a command may take before it is aborted.
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = parse_time)]
    pub timeout: Duration,
}

impl ClientArgs {
    /// Parses the URL `text` and adds what the arguments and the environment say.
    pub fn url(&self, text: &str) -> Result<IscsiUrl, ExitCode> {
        let refused = |error: &dyn std::fmt::Display| fail(MISUSED, error);
        let url = IscsiUrl::parse(text).map_err(|error| refused(&error))?;
        warn_of_secrets(&url);
        let mut url = url.with_environment();
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
            url.paths.local_addresses.clone_from(&self.local);
        }
        if let Some(name) = &self.engine {
            url.take_option("engine", name).map_err(|error| refused(&error))?;
        }
        if let Some(connections) = &self.connections {
            url.take_option("connections", connections).map_err(|error| refused(&error))?;
        }
        url.error_recovery_level = self.erl.or(url.error_recovery_level);
        Ok(url)
    }

    /// The options of `url` for a command that only asks: whether it would make protection information does not matter.
    pub fn asking_options(&self, url: &IscsiUrl) -> Result<Options, ExitCode> {
        let mut options = self.options(url)?;
        options.protection = None;
        Ok(options)
    }

    /// The options of `url`.
    pub fn options(&self, url: &IscsiUrl) -> Result<Options, ExitCode> {
        let mut options = url.options().map_err(|error| fail(MISUSED, error))?;
        options.timeouts.command = self.timeout;
        options.port.ports = initiator::default_port_directory();
        #[cfg(feature = "rtl")]
        options.set_circuit(circuit());
        Ok(options)
    }
}

/// The circuit in its form of 512 bit. Its registers start with other contents in every login, as after power-up.
#[cfg(feature = "rtl")]
fn circuit() -> initiator::Circuit {
    use offload_rtl::{RtlEngine, Width};
    initiator::Circuit::new(|| RtlEngine::new(Width::Bits512, fastrand::u16(..)))
}

/// Reports what happens to the session, for example that it is lost and is back. RUST_LOG requests more.
pub fn log_to_stderr() {
    let usual = "initiator=warn".parse().expect("a constant of the right form");
    let filter = tracing_subscriber::EnvFilter::builder().with_default_directive(usual).from_env_lossy();
    let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(colours)
        .with_target(false)
        .without_time();
    // A closed standard error is no reason to end.
    log.with_writer(std::io::stderr).log_internal_errors(false).init();
}

/// Every user of this machine can read the command line.
fn warn_of_secrets(url: &IscsiUrl) {
    for (secret, variable) in url.secrets() {
        let file =
            if variable == "LIBISCSI_CHAP_PASSWORD" { "in a file by --password-file, or " } else { "" };
        complain(format_args!(
            "warning: {secret} stands in the command line, where every user of this machine can read it; give it {file}in the \
             environment by {variable}"
        ));
    }
}

/// Reports why there is no session, with the remedy.
pub fn refused(error: &ConnectError) -> ExitCode {
    fail(FAILED, format_args!("{error}\n  remedy: {}", error.remedy()))
}

/// Reports why a command failed, with the remedy.
pub fn failed(error: &IoError) -> ExitCode {
    fail(FAILED, told(error))
}

/// Reports why a unit cannot be used, with the remedy.
pub fn not_opened(error: &OpenError) -> ExitCode {
    match error {
        OpenError::Unit(error) => failed(error),
        OpenError::Session(error) => refused(error),
        error => fail(FAILED, error),
    }
}

/// `error` with its remedy.
pub fn told(error: &IoError) -> String {
    match error.remedy() {
        Some(remedy) => format!("{error}\n  remedy: {remedy}"),
        None => error.to_string(),
    }
}
