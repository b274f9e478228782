//! The control plane: one thread with a small `tokio` runtime that serves the control socket and `/metrics`. The data path
//! does not wait for it and does not depend on it.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use axum::http::{HeaderMap, header};
use axum::routing::get;
use scsi::AccessState;
use target::observe::{Observe, ServerView};
use target::supervise;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::sync::oneshot;

use crate::clients::{Placed, Places};
use crate::config::ControlSocket;
use crate::control::{Answer, MAX_REQUEST_BYTES, Reply, Request};
use crate::metrics::{self, MoreFamilies};

/// Maximum number of requests answered at a time, of both kinds together.
const MAX_ANSWERS: usize = 16;
/// The content type of OpenMetrics.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// The content type of Prometheus' format before OpenMetrics.
const PLAIN_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Reads and applies the configuration again; returns the changes, or the errors.
pub type Reload = Box<dyn Fn() -> Result<Vec<String>, String> + Send + Sync>;

/// The sources of the control plane's answers.
struct Shared {
    observe: Arc<Observe>,
    view: Arc<dyn ServerView>,
    reload: Reload,
    more: Vec<Arc<dyn MoreFamilies>>,
}

/// The running control plane. Dropping it stops the thread and removes the socket.
pub struct ControlPlane {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    control: Option<PathBuf>,
    metrics: Option<SocketAddr>,
    notice: Option<String>,
}

/// Why the control plane cannot start.
#[derive(Debug, thiserror::Error)]
pub enum PlaneError {
    /// The control socket cannot be opened.
    #[error("the control socket {} cannot be opened: {source}; --control PATH names another place", path.display())]
    Control {
        /// Its path.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The address for metrics cannot be used.
    #[error("metrics cannot be served on {address}: {source}; --metrics ADDR:PORT names another address")]
    Metrics {
        /// The address.
        address: SocketAddr,
        /// The cause.
        source: io::Error,
    },
    /// The thread cannot be started.
    #[error("the control thread cannot be started: {0}; the system lacks threads or memory")]
    Thread(io::Error),
}

impl ControlPlane {
    /// Opens the control socket and the metrics address, and serves them. If another server uses the default control
    /// socket, this one has none: see [`ControlPlane::notice`]. `more` are counters of other parts of the program, for `/metrics`.
    ///
    /// # Errors
    /// A place that was explicitly requested cannot be used.
    pub fn start(
        control: &ControlSocket,
        metrics: Option<SocketAddr>,
        observe: Arc<Observe>,
        view: Arc<dyn ServerView>,
        reload: Reload,
        more: Vec<Arc<dyn MoreFamilies>>,
    ) -> Result<Self, PlaneError> {
        let mut notice = None;
        let control = match control {
            ControlSocket::Off => None,
            ControlSocket::At(path) => {
                let path = path.clone();
                match open_control(&path) {
                    Ok(listener) => Some((path, listener)),
                    Err(source) => return Err(PlaneError::Control { path, source }),
                }
            }
            ControlSocket::Default => open_default(&mut notice),
        };
        let metrics = metrics
            .map(|address| {
                let open = || {
                    let listener = TcpListener::bind(address)?;
                    listener.set_nonblocking(true)?;
                    Ok((listener.local_addr()?, listener))
                };
                open().map_err(|source| PlaneError::Metrics { address, source })
            })
            .transpose()?;
        let (control_path, control) = control.unzip();
        let (metrics_address, metrics) = metrics.unzip();
        let shared = Arc::new(Shared { observe, view, reload, more });
        let (stop, stopped) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(MAX_ANSWERS)
            .build()
            .map_err(PlaneError::Thread)?;
        let observe = Arc::clone(&shared.observe);
        let serve = move || {
            let ended = runtime.block_on(async {
                tokio::select! {
                    () = serve_control(control, Arc::clone(&shared)) => Err("the control socket is served no more"),
                    () = serve_metrics(metrics, shared) => Err("metrics are served no more"),
                    _ = stopped => Ok(()),
                }
            });
            // A view that waits for a shard must not delay the end of the process.
            runtime.shutdown_background();
            ended.map_err(str::to_owned)
        };
        let thread = supervise::spawn("control", observe, serve).map_err(PlaneError::Thread)?;
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread),
            control: control_path,
            metrics: metrics_address,
            notice,
        })
    }

    /// The control socket, if there is one.
    pub fn control_socket(&self) -> Option<&Path> {
        self.control.as_deref()
    }

    /// The address of `/metrics`, if it is served.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics
    }

    /// Why there is no control socket although one was wanted, and the remedy.
    pub fn notice(&self) -> Option<&str> {
        self.notice.as_deref()
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        if let Some(path) = &self.control {
            let _ = fs::remove_file(path);
        }
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn open_default(notice: &mut Option<String>) -> Option<(PathBuf, UnixListener)> {
    for path in crate::control::default_paths() {
        match open_control(&path) {
            Ok(listener) => return Some((path, listener)),
            Err(error) => {
                notice.get_or_insert_with(|| {
                    format!(
                        "no control socket for `intact ls`: {}: {error}; --control PATH names another place",
                        path.display()
                    )
                });
                // The other server there answers `intact ls`; a second socket elsewhere would only confuse.
                if error.kind() == io::ErrorKind::AddrInUse {
                    return None;
                }
            }
        }
    }
    None
}

/// Binds the socket: a new directory gets mode 0700, the socket 0600. A socket without a server is replaced.
fn open_control(path: &Path) -> io::Result<UnixListener> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    if let Err(error) = fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)
        && error.kind() != io::ErrorKind::AlreadyExists
    {
        return Err(error);
    }
    check_directory(directory)?;
    if let Ok(found) = fs::symlink_metadata(path) {
        use std::os::unix::fs::FileTypeExt;
        if !found.file_type().is_socket() {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "something that is no socket is there"));
        }
        match UnixStream::connect(path) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path)?,
            _ => return Err(io::Error::new(io::ErrorKind::AddrInUse, "another server uses it")),
        }
    }
    // Bound under another name and moved when its mode is right, so that others can never connect in between.
    let mut private = path.as_os_str().to_owned();
    private.push(format!(".{}", std::process::id()));
    let private = PathBuf::from(private);
    let _ = fs::remove_file(&private);
    let listener = UnixListener::bind(&private)?;
    let publish = || {
        fs::set_permissions(&private, fs::Permissions::from_mode(0o600))?;
        fs::rename(&private, path)?;
        listener.set_nonblocking(true)
    };
    if let Err(error) = publish() {
        let _ = fs::remove_file(&private);
        return Err(error);
    }
    Ok(listener)
}

/// Rejects a directory in which another user could replace the socket.
fn check_directory(directory: &Path) -> io::Result<()> {
    let found = fs::metadata(directory)?;
    let me = rustix::process::geteuid().as_raw();
    let others_write = found.mode() & 0o022 != 0 && found.mode() & 0o1000 == 0;
    if (found.uid() != me && found.uid() != 0) || others_write {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("others may write in {}", directory.display()),
        ));
    }
    Ok(())
}

async fn serve_control(listener: Option<UnixListener>, shared: Arc<Shared>) {
    let listener = match listener.map(tokio::net::UnixListener::from_std) {
        Some(Ok(listener)) => listener,
        Some(Err(error)) => {
            tracing::error!("the control socket cannot be served: {error}");
            return std::future::pending().await;
        }
        None => return std::future::pending().await,
    };
    let mut places = Places::default();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let (shared, mut place) = (Arc::clone(&shared), places.take());
                tokio::spawn(async move {
                    tokio::select! {
                        _ = serve_client(stream, shared) => {}
                        () = place.over() => {}
                    }
                });
            }
            Err(error) => {
                tracing::warn!("the control socket does not accept: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Answers lines until the client disconnects.
async fn serve_client(stream: tokio::net::UnixStream, shared: Arc<Shared>) -> io::Result<()> {
    let (rx, mut tx) = stream.into_split();
    let mut rx = BufReader::new(rx);
    loop {
        let mut line = Vec::new();
        (&mut rx).take(MAX_REQUEST_BYTES as u64).read_until(b'\n', &mut line).await?;
        if line.is_empty() {
            return Ok(());
        }
        let complete = line.ends_with(b"\n");
        let reply = match serde_json::from_slice::<Request>(&line) {
            Ok(request) if complete => {
                let shared = Arc::clone(&shared);
                // The view may wait for a shard, and a reload for files.
                tokio::task::spawn_blocking(move || shared.answer(&request))
                    .await
                    .unwrap_or_else(|_| Reply::Error("the server failed to answer; see its log".to_owned()))
            }
            Ok(_) => Reply::Error(format!("a request is one line of at most {MAX_REQUEST_BYTES} bytes")),
            Err(error) => Reply::Error(format!("the request is not understood: {error}")),
        };
        let mut text = serde_json::to_string(&reply).map_err(io::Error::other)?;
        text.push('\n');
        tx.write_all(text.as_bytes()).await?;
        if !complete {
            return Ok(());
        }
    }
}

impl Shared {
    fn answer(&self, request: &Request) -> Reply {
        Reply::Ok(match request {
            Request::Sessions => Answer::Sessions(self.view.sessions()),
            Request::Luns => Answer::Luns(self.view.luns()),
            Request::Targets => Answer::Targets(self.view.targets()),
            Request::Logins => Answer::Logins(self.observe.logins.recent()),
            Request::Version => Answer::Version(env!("CARGO_PKG_VERSION").to_owned()),
            Request::Reload => match (self.reload)() {
                Ok(lines) => Answer::Reload(lines),
                Err(why) => return Reply::Error(why),
            },
            Request::ChangeLun { target, lun, change } => match self.view.change_lun(target, *lun, *change) {
                Ok(lines) => Answer::Changed(lines),
                Err(why) => return Reply::Error(why),
            },
            Request::AccessStates { target } => match self.view.access_states(target) {
                Ok(states) => Answer::AccessStates(states),
                Err(why) => return Reply::Error(why),
            },
            Request::SetAccessState { target, group, state } => {
                let Some(state) = AccessState::by_name(state) else {
                    let names = AccessState::ALL.map(AccessState::name).join(", ");
                    return Reply::Error(format!("the states of a target port group are {names}"));
                };
                match self.view.set_access_state(target, *group, state) {
                    Ok(lines) => Answer::Changed(lines),
                    Err(why) => return Reply::Error(why),
                }
            }
        })
    }
}

async fn serve_metrics(listener: Option<TcpListener>, shared: Arc<Shared>) {
    let listener = match listener.map(tokio::net::TcpListener::from_std) {
        Some(Ok(listener)) => listener,
        Some(Err(error)) => {
            tracing::error!("metrics cannot be served: {error}");
            return std::future::pending().await;
        }
        None => return std::future::pending().await,
    };
    let answer = get(move |headers: HeaderMap| async move {
        let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
        let open = accept.contains("application/openmetrics-text");
        let text = tokio::task::spawn_blocking(move || match open {
            true => metrics::openmetrics_with(&shared.observe, &shared.more),
            false => metrics::plain_text(&shared.observe, &shared.more),
        });
        let kind = if open { OPENMETRICS } else { PLAIN_TEXT };
        ([(header::CONTENT_TYPE, kind)], text.await.unwrap_or_default())
    });
    let listener = Placed { listener, places: Places::default() };
    if let Err(error) = axum::serve(listener, Router::new().route("/metrics", answer)).await {
        tracing::error!("metrics are no longer served: {error}");
    }
}
