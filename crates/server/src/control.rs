//! The control socket: a Unix socket of mode 0600. A request is one line of JSON, and so is the reply.
//!
//! ```text
//! {"ask":"sessions"}                      ->  {"ok":{"sessions":[...]}}
//! {"ask":"reload"}                        ->  {"ok":{"reload":["target iqn...: LUN 1 added"]}}
//! {"ask":"change_lun","target":"iqn...",
//!  "lun":1,"change":{"size":null}}       ->  {"ok":{"changed":["LUN 1 of iqn... has 2097152 bytes now"]}}
//! {"ask":"nonsense"}                      ->  {"error":"..."}
//! ```
//!
//! This file has the messages and the client, which blocks; [`crate::ControlPlane`] is the server. Requests are at
//! most [`MAX_REQUEST_BYTES`], replies at most [`MAX_REPLY_BYTES`].

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use target::observe::{AccessStateInfo, LoginEvent, LunChange, LunInfo, SessionInfo, TargetInfo};

/// Longest request, bytes.
pub const MAX_REQUEST_BYTES: usize = 4096;
/// Longest reply that the client accepts, bytes.
pub const MAX_REPLY_BYTES: u64 = 64 << 20;
/// How long the client waits for a reply: a reload may open files.
const REPLY_TIMEOUT: Duration = Duration::from_secs(30);

/// A request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub enum Request {
    /// The sessions.
    Sessions,
    /// The logical units.
    Luns,
    /// The targets.
    Targets,
    /// The last logins.
    Logins,
    /// The version of the server.
    Version,
    /// Read the configuration again and apply it.
    Reload,
    /// Change a logical unit in use, until the configuration is read again.
    ChangeLun {
        /// TargetName.
        target: String,
        /// LUN.
        lun: u16,
        /// The change.
        change: LunChange,
    },
    /// The access states of the target port groups of a target.
    AccessStates {
        /// TargetName.
        target: String,
    },
    /// Change the state of a target port group, for all units of a target.
    SetAccessState {
        /// TargetName.
        target: String,
        /// Its number, which is a target portal group tag.
        group: u16,
        /// [`scsi::AccessState::name`].
        state: String,
    },
}

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// The answer.
    Ok(Answer),
    /// Why the request failed, with the remedy.
    Error(String),
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The sessions.
    Sessions(Vec<SessionInfo>),
    /// The logical units.
    Luns(Vec<LunInfo>),
    /// The targets.
    Targets(Vec<TargetInfo>),
    /// The logins kept, oldest first.
    Logins(Vec<LoginEvent>),
    /// The version of the server.
    Version(String),
    /// The changes made by the new configuration.
    Reload(Vec<String>),
    /// The changes made.
    Changed(Vec<String>),
    /// The access states, by unit and group.
    AccessStates(Vec<AccessStateInfo>),
}

/// The default places of the control socket, most private first: `$XDG_RUNTIME_DIR/intact`, `/run/intact`
/// for the superuser, and a directory of the user below the directory for temporary files.
pub fn default_paths() -> Vec<PathBuf> {
    let uid = rustix::process::geteuid();
    let mut directories = Vec::new();
    if let Some(runtime) = std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| Path::new(dir).is_absolute()) {
        directories.push(PathBuf::from(runtime).join("intact"));
    }
    if uid.is_root() {
        directories.push(PathBuf::from("/run/intact"));
    }
    directories.push(std::env::temp_dir().join(format!("intact-{}", uid.as_raw())));
    directories.into_iter().map(|directory| directory.join("control.sock")).collect()
}

/// Why there is no reply.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// No server listens there.
    #[error("no server answers on {}: {source}; is `intact serve` running? --control PATH names another socket", path.display())]
    Connect {
        /// The socket.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The server did not answer.
    #[error("the server on {} did not answer: {source}; ask again, or look at the server's log", path.display())]
    Io {
        /// The socket.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// This program does not understand the reply.
    #[error("the server's answer is not understood: {0}; use the `intact` of the same version as the server")]
    Unknown(String),
    /// The server rejected the request.
    #[error("{0}")]
    Refused(String),
}

/// Sends the request to the server on `path`, or to the first one that answers on one of [`default_paths`].
///
/// # Errors
/// [`AskError`], with the remedy.
pub fn ask(path: Option<&Path>, request: &Request) -> Result<Answer, AskError> {
    let paths = path.map_or_else(default_paths, |path| vec![path.to_owned()]);
    let mut failure = None;
    for path in paths {
        match UnixStream::connect(&path) {
            Ok(stream) => return ask_on(stream, path, request),
            // A server would usually be in the first place; only a more specific error replaces that one.
            Err(source) => {
                let better = source.kind() != std::io::ErrorKind::NotFound;
                if failure.is_none() || better {
                    failure = Some(AskError::Connect { path, source });
                }
            }
        }
    }
    Err(failure.unwrap_or_else(|| AskError::Unknown("there is no place to ask".to_owned())))
}

fn ask_on(mut stream: UnixStream, path: PathBuf, request: &Request) -> Result<Answer, AskError> {
    let mut exchange = || -> std::io::Result<String> {
        stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
        stream.set_write_timeout(Some(REPLY_TIMEOUT))?;
        let mut line = serde_json::to_string(request).map_err(std::io::Error::other)?;
        line.push('\n');
        stream.write_all(line.as_bytes())?;
        let mut reply = String::new();
        BufReader::new((&stream).take(MAX_REPLY_BYTES)).read_line(&mut reply)?;
        if reply.ends_with('\n') { Ok(reply) } else { Err(std::io::ErrorKind::UnexpectedEof.into()) }
    };
    let reply = exchange().map_err(|source| AskError::Io { path, source })?;
    match serde_json::from_str(&reply) {
        Ok(Reply::Ok(answer)) => Ok(answer),
        Ok(Reply::Error(why)) => Err(AskError::Refused(why)),
        Err(error) => Err(AskError::Unknown(error.to_string())),
    }
}
