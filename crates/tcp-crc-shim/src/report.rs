//! Publishes a shim's counters to other programs: a JSON document on a socket of its own.

use std::fs;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tcp_crc::{Counters, Method, Plain, State};

use crate::path::Seen;
use crate::shim::PacketCounters;

/// Directory of the sockets, one for each shim; accessible to root only.
pub const DIRECTORY: &str = "/run/intact-tcp-crc";
/// Longest report accepted. 65,536 connections take a third of it.
const REPORT_BYTES_MAX: u64 = 64 << 20;
/// Longest wait for a report.
const PATIENCE: Duration = Duration::from_secs(5);

/// The counters and connections of a shim.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// Its device. Shims in different network namespaces may have the same one.
    pub name: String,
    /// Its process; 0 if it is of a version that did not say.
    #[serde(default)]
    pub pid: u32,
    /// All connections since it started.
    pub total: Counters,
    /// Packets without a connection.
    pub packets: PacketCounters,
    /// Packets that a device did not accept.
    pub lost: u64,
    /// SYNs that found the table full: their connections stay plain.
    pub refused: u64,
    /// Each connection.
    pub connections: Vec<Connection>,
    /// The devices of a whole host; empty for an enclosure.
    #[serde(default)]
    pub devices: Vec<String>,
    /// Connections of a whole host that were open before; they are plain and not in the table.
    #[serde(default)]
    pub left_alone: u64,
}

/// A connection of a shim.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Connection {
    /// Our address and port.
    pub local: SocketAddr,
    /// The peer's.
    pub remote: SocketAddr,
    /// `opening`, `protected`, `plain` or `refused`.
    pub state: String,
    /// The value of its method, if protected.
    pub method: Option<u8>,
    /// Why it is plain, or would have been.
    pub why: Option<String>,
    /// Its counters.
    #[serde(flatten)]
    pub counters: Counters,
}

impl Report {
    /// The report of this process's shim with the device `name`.
    pub fn of(name: &str, seen: Seen) -> Report {
        let mut connections: Vec<_> = seen
            .connections
            .into_iter()
            .map(|(key, state, counters)| Connection {
                local: key.local.into(),
                remote: key.remote.into(),
                state: word(state).to_owned(),
                method: if let State::Protected(method) = state { Some(Method::value(method)) } else { None },
                why: match state {
                    State::Plain(why) | State::Refused(why) => Some(reason(why).to_owned()),
                    State::Opening | State::Protected(_) => None,
                },
                counters,
            })
            .collect();
        connections.sort_by_key(|connection| (connection.local, connection.remote));
        Report {
            name: name.to_owned(),
            pid: std::process::id(),
            total: seen.total,
            packets: seen.packets,
            lost: seen.lost,
            refused: seen.refused,
            connections,
            devices: Vec::new(),
            left_alone: 0,
        }
    }

    /// The report of a shim that has ended.
    pub fn empty(name: &str) -> Report {
        Report::of(name, Seen::default())
    }

    /// The number of connections in `state`.
    pub fn count(&self, state: &str) -> usize {
        self.connections.iter().filter(|connection| connection.state == state).count()
    }
}

fn word(state: State) -> &'static str {
    match state {
        State::Opening => "opening",
        State::Protected(_) => "protected",
        State::Plain(_) => "plain",
        State::Refused(_) => "refused",
    }
}

fn reason(why: Plain) -> &'static str {
    match why {
        Plain::NotOffered => "nothing is asked for",
        Plain::PeerSilent => "the peer, or something on the way, does not answer the request",
        Plain::NoCommonMethod => "no value in common",
        Plain::RequestsLost => "two SYNs with the request were lost",
        Plain::AnswerStripped => "the answer was taken out on the way",
        Plain::Signed => "TCP-MD5 or TCP-AO forbids changes",
        Plain::NoRoom => "no room in the SYN",
    }
}

/// Sends a report to every program that connects; its socket is removed when this is dropped.
pub struct Publisher {
    path: PathBuf,
}

impl Publisher {
    /// Opens the socket of `name` in `directory` and answers on a thread until the program ends.
    ///
    /// # Errors
    /// The directory or the socket cannot be made.
    pub fn start(
        directory: &Path,
        name: &str,
        report: Arc<dyn Fn() -> Report + Send + Sync>,
    ) -> io::Result<Publisher> {
        make(directory)?;
        remove_those_of_nobody(directory)?;
        let path = directory.join(format!("{name}-{}.sock", std::process::id()));
        let listener = UnixListener::bind(&path)?;
        std::thread::Builder::new().name("tcp-crc-status".into()).spawn(move || {
            for stream in listener.incoming().flatten() {
                // A program that does not read gets no report.
                let _ = stream.set_write_timeout(Some(PATIENCE));
                let _ = serde_json::to_vec(&report()).map(|text| (&stream).write_all(&text));
            }
        })?;
        Ok(Publisher { path })
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Makes the directory of the sockets, accessible to its owner only.
pub(crate) fn make(directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    fs::set_permissions(directory, std::os::unix::fs::PermissionsExt::from_mode(0o700))
}

/// Removes the sockets left behind by programs that were killed.
fn remove_those_of_nobody(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "sock") {
            continue;
        }
        if UnixStream::connect(&path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
            let _ = fs::remove_file(&path);
        }
    }
    Ok(())
}

/// The reports of all shims that have a socket in `directory`, by name and process. Sockets without a program are
/// skipped, and so are those of programs that end before they have reported.
///
/// # Errors
/// The directory cannot be read, or a report cannot be parsed.
pub fn reports(directory: &Path) -> io::Result<Vec<Report>> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut reports = Vec::new();
    for entry in entries {
        let Ok(stream) = UnixStream::connect(entry?.path()) else { continue };
        reports.extend(report_of(stream)?);
    }
    reports.sort_by(|a: &Report, b| (&a.name, a.pid).cmp(&(&b.name, b.pid)));
    Ok(reports)
}

/// The report that comes on `stream`; nothing if its program ends before it is whole.
fn report_of(stream: UnixStream) -> io::Result<Option<Report>> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut text = Vec::new();
    match stream.take(REPORT_BYTES_MAX).read_to_end(&mut text) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
        read => read?,
    };
    match serde_json::from_slice(&text) {
        Err(error) if error.is_eof() => Ok(None),
        report => Ok(Some(report?)),
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;

    /// Asks for the reports in a directory with one socket, whose program does `end` once somebody has connected.
    fn asked(end: impl FnOnce(UnixListener)) -> io::Result<Vec<Report>> {
        let directory = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(directory.path().join("a.sock")).unwrap();
        std::thread::scope(|scope| {
            let asks = scope.spawn(|| reports(directory.path()));
            let mut ready = [PollFd::new(&listener, PollFlags::IN)];
            poll(&mut ready, None).unwrap();
            end(listener);
            asks.join().unwrap()
        })
    }

    #[test]
    fn a_program_that_ends_while_it_is_asked_is_skipped() {
        let ended = asked(drop).expect("it was never accepted");
        assert!(ended.is_empty());
        let cut = asked(|listener| listener.accept().unwrap().0.write_all(b"{\"name\": \"a").unwrap());
        assert!(cut.expect("its report is cut").is_empty());
    }

    /// A shim may have been started before an upgrade.
    #[test]
    fn a_report_of_an_earlier_version_is_read() {
        let mut report = serde_json::to_value(Report::empty("crc0")).unwrap();
        for later in ["pid", "devices", "left_alone"] {
            report.as_object_mut().unwrap().remove(later).unwrap();
        }
        let text = report.to_string();
        let read = asked(|listener| listener.accept().unwrap().0.write_all(text.as_bytes()).unwrap());
        assert_eq!(read.unwrap().pop().map(|report| (report.name, report.pid)), Some(("crc0".to_owned(), 0)));
    }

    #[test]
    fn what_is_no_report_is_an_error() {
        let other = asked(|listener| listener.accept().unwrap().0.write_all(b"[1]").unwrap());
        assert!(other.is_err());
    }
}
