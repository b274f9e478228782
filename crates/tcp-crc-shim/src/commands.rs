//! Sets addresses, routes, rules and switches of the calling thread's network namespace, by `ip`, `nft` and `/proc/sys`.

use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use engine::netns::NetNs;

/// What could not be set, and why.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// A program is missing.
    #[error("`{program}` cannot be run ({source}); on Debian: apt-get install {package}")]
    Missing {
        /// Its name.
        program: &'static str,
        /// The Debian package that contains it.
        package: &'static str,
        /// The error of the system.
        source: io::Error,
    },
    /// A program refused.
    #[error("`{program}` refused: {said}")]
    Refused {
        /// Its name.
        program: &'static str,
        /// Its input and its messages.
        said: String,
    },
    /// A switch of the kernel.
    #[error("{path} cannot be set to {value}: {source}")]
    Switch {
        /// The file below `/proc/sys`.
        path: String,
        /// The value it should have got.
        value: String,
        /// The error of the system.
        source: io::Error,
    },
    /// BPF programs.
    #[error(
        "{what}: {source}; BPF takes root (CAP_BPF, CAP_NET_ADMIN, CAP_SYS_ADMIN), cgroup2, and Linux 6.6 with CONFIG_BPF_SYSCALL, \
        CONFIG_CGROUP_BPF and CONFIG_NET_XGRESS; `--backend tun` takes none of them but root"
    )]
    Bpf {
        /// What could not be done.
        what: &'static str,
        /// The error of the system.
        source: io::Error,
    },
    /// Namespaces, devices and threads.
    #[error("{what}: {source}; it takes root (CAP_SYS_ADMIN and CAP_NET_ADMIN) and /dev/net/tun")]
    System {
        /// What could not be done.
        what: &'static str,
        /// The error of the system.
        source: io::Error,
    },
}

impl SetupError {
    /// For `map_err`.
    pub(crate) fn system(what: &'static str) -> impl Fn(io::Error) -> SetupError {
        move |source| SetupError::System { what, source }
    }
}

/// Feeds `lines` to `ip -batch`, each without the leading `ip`. Lines for IPv6 begin with `-6` and run after all others.
pub(crate) fn ip(lines: &[String]) -> Result<(), SetupError> {
    let (v6, others): (Vec<&str>, Vec<&str>) =
        lines.iter().map(String::as_str).partition(|line| line.starts_with("-6 "));
    feed("ip", "iproute2", &["-batch", "-"], &others.join("\n"))?;
    if v6.is_empty() {
        return Ok(());
    }
    let v6: Vec<&str> = v6.iter().map(|line| line.trim_start_matches("-6 ")).collect();
    feed("ip", "iproute2", &["-6", "-batch", "-"], &v6.join("\n")).map(drop)
}

/// How long a device may take until it can be used.
const LINK_LIMIT: Duration = Duration::from_secs(10);
/// The time between two looks at a device.
const LINK_LOOK: Duration = Duration::from_millis(5);

/// Waits until a device of the calling thread's namespace can be used. The kernel notices up to a second late that the other end of a veth
/// pair is there, and until then it sends nothing by IPv6: the first SYNs would be lost, and the connection would be plain.
pub(crate) fn wait_for_link(device: &str) -> Result<(), SetupError> {
    let arguments = ["-json", "link", "show", "dev", device];
    let deadline = Instant::now() + LINK_LIMIT;
    loop {
        let text = feed("ip", "iproute2", &arguments, "")?;
        let links: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
        if links[0]["operstate"] == "UP" {
            return Ok(());
        }
        if Instant::now() > deadline {
            let said = format!("{device} is not up after {} s: {text}", LINK_LIMIT.as_secs());
            return Err(SetupError::Refused { program: "ip", said });
        }
        std::thread::sleep(LINK_LOOK);
    }
}

/// The devices of the calling thread's namespace, as `ip` describes them.
pub(crate) fn links() -> Result<serde_json::Value, SetupError> {
    ip_list(&["-json", "-details", "link", "show"])
}

/// The devices of the calling thread's namespace with their addresses.
pub(crate) fn addresses() -> Result<serde_json::Value, SetupError> {
    ip_list(&["-json", "address", "show"])
}

fn ip_list(arguments: &[&str]) -> Result<serde_json::Value, SetupError> {
    let text = feed("ip", "iproute2", arguments, "")?;
    serde_json::from_str(&text)
        .map_err(|error| SetupError::Refused { program: "ip", said: format!("its list is no JSON: {error}") })
}

/// Feeds `rules` to `nft`.
pub(crate) fn nft(rules: &str) -> Result<(), SetupError> {
    feed("nft", "nftables", &["-f", "-"], rules).map(drop)
}

/// The objects of one kind that `nft` lists.
pub(crate) fn nft_list(kind: &str) -> Result<serde_json::Value, SetupError> {
    let text = feed("nft", "nftables", &["--json", "list", kind], "")?;
    serde_json::from_str(&text).map_err(|error| SetupError::Refused {
        program: "nft",
        said: format!("its list is no JSON: {error}"),
    })
}

fn feed(
    program: &'static str,
    package: &'static str,
    arguments: &[&str],
    text: &str,
) -> Result<String, SetupError> {
    let missing = |source| SetupError::Missing { program, package, source };
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let mut child = Command::new(program)
        .args(arguments)
        .env("PATH", path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(missing)?;
    // A program that exits early gives the reason on its standard error.
    if let Some(mut stdin) = child.stdin.take() {
        let _ = stdin.write_all(text.as_bytes()).and_then(|()| stdin.write_all(b"\n"));
    }
    let output = child.wait_with_output().map_err(missing)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(SetupError::Refused { program, said: format!("{}\n{text}", said.trim()) })
}

/// Reads a switch below `/proc/sys/net`, if there is one.
pub(crate) fn switch(name: &str) -> Option<String> {
    let value = std::fs::read_to_string(Path::new("/proc/sys/net").join(name)).ok()?;
    Some(value.trim().to_owned())
}

/// Sets a switch below `/proc/sys/net`.
pub(crate) fn set_switch(name: &str, value: &str) -> Result<(), SetupError> {
    let path = Path::new("/proc/sys/net").join(name);
    std::fs::write(&path, value).map_err(|source| SetupError::Switch {
        path: path.display().to_string(),
        value: value.to_owned(),
        source,
    })
}

/// Runs `work` in a namespace.
pub(crate) fn within<T: Send>(
    namespace: &NetNs,
    work: impl FnOnce() -> Result<T, SetupError> + Send,
) -> Result<T, SetupError> {
    namespace.within(work).map_err(SetupError::system("a network namespace cannot be entered"))?
}
