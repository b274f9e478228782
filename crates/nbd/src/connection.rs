//! A connection: the handshake, TLS if requested, and then requests and replies.
//!
//! A write is executed once all of its data has arrived, and not at all if the connection ends before that. A connection has a
//! bounded number of outstanding requests and a bounded share of the memory for data; when either is used up, nothing more is read
//! from it.

use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, BufWriter};
use tokio::net::TcpStream;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::counters::{Counters, Refusal};
use crate::export::{Attached, Brought, Facts, Failed, Peer, Work};
use crate::negotiation::{ALLOCATION_ID, Agreed, Negotiation, Next, Tls};
use crate::shared::{PAGE_BYTES, Shared};
use crate::wire::{self, Errno, ReplyForm, Request, command, command_flag};

/// Time limit of a handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(15);
/// Time limit for the data of a write to arrive, and for a reply to be taken: others may be waiting for the memory.
const DATA_TIMEOUT: Duration = Duration::from_secs(60);
/// Most outstanding requests of a connection.
const REQUESTS_MAX: usize = 64;
/// How often a connection checks whether its unit is still served.
const CURRENT_SCAN: Duration = Duration::from_secs(1);
/// A request longer than this that transfers no data runs on a worker: it may write all of its range.
const INLINE_BYTES_MAX: u32 = 1 << 20;
/// Buffers for headers and short data, bytes.
const READ_BUFFER_BYTES: usize = 32 << 10;
const WRITE_BUFFER_BYTES: usize = 32 << 10;
/// Unwanted data is skipped in pieces of this many bytes.
const SCRATCH_BYTES: usize = 4 << 10;

trait Io: AsyncRead + AsyncWrite + Send {}
impl<T: AsyncRead + AsyncWrite + Send> Io for T {}
type Stream = Pin<Box<dyn Io>>;

/// Serves a connection until it ends.
pub(crate) async fn serve(
    shared: Arc<Shared>,
    stream: TcpStream,
    address: SocketAddr,
    _slot: OwnedSemaphorePermit,
) {
    let in_time = timeout(HANDSHAKE_TIMEOUT, handshake(&shared, stream, address)).await;
    let agreed = in_time.unwrap_or_else(|_| Err(broken("the handshake took too long")));
    let (stream, tls, agreed) = match agreed {
        Ok(Some(agreed)) => agreed,
        Ok(None) => return,
        Err(error) => {
            shared.counters.refuse(Refusal::Handshake);
            return tracing::debug!(peer = %address, %error, "an NBD handshake failed");
        }
    };
    let _served = shared.counters.serve(tls);
    let name = agreed.export.name();
    tracing::debug!(peer = %address, export = name, "an NBD client is served");
    if let Err(error) = transmit(&shared, stream, agreed, address).await {
        tracing::debug!(peer = %address, export = name, %error, "an NBD connection ended");
    }
}

fn broken(rule: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, rule.to_owned())
}

/// The stream, whether it is encrypted, and the result of the negotiation. `None`: the client has left in an orderly way.
async fn handshake(
    shared: &Shared,
    stream: TcpStream,
    address: SocketAddr,
) -> io::Result<Option<(Stream, bool, Agreed)>> {
    let tls = match (&shared.tls, shared.tls_required) {
        (None, _) => Tls::Off,
        (Some(_), false) => Tls::Offered,
        (Some(_), true) => Tls::Required,
    };
    let mut peer = Peer { address, proven: false };
    let mut plain = stream;
    plain.write_all(&wire::greeting()).await?;
    let flags = plain.read_u32().await?;
    let Some(mut negotiation) =
        Negotiation::new(flags, tls, shared.request_bytes_max, Arc::clone(&shared.seats))
    else {
        return Err(broken("the client does not speak the fixed newstyle handshake"));
    };
    // Exactly the expected bytes are read, so no unencrypted bytes are left over when TLS starts.
    if let Some(stop) = options(&mut plain, &mut negotiation, shared, &peer).await? {
        return Ok(stop.map(|agreed| (Box::pin(plain) as Stream, false, agreed)));
    }
    let Some(acceptor) = &shared.tls else { return Err(broken("TLS without a certificate")) };
    let mut secret = acceptor.accept(plain).await?;
    peer.proven = shared.client_certificates && secret.get_ref().1.peer_certificates().is_some();
    negotiation.secured();
    match options(&mut secret, &mut negotiation, shared, &peer).await? {
        Some(stop) => Ok(stop.map(|agreed| (Box::pin(secret) as Stream, true, agreed))),
        None => Err(broken("TLS within TLS")),
    }
}

/// Answers options. `None`: TLS starts. `Some(None)`: the client has left.
async fn options<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    negotiation: &mut Negotiation,
    shared: &Shared,
    peer: &Peer,
) -> io::Result<Option<Option<Agreed>>> {
    loop {
        let mut header = [0; wire::OPTION_HEADER_BYTES];
        stream.read_exact(&mut header).await?;
        let Some((option, length)) = wire::option_header(&header) else {
            return Err(broken("this is no option"));
        };
        let data = match length as usize {
            length if length <= wire::OPTION_BYTES_MAX => {
                let mut data = vec![0; length];
                stream.read_exact(&mut data).await?;
                Some(data)
            }
            _ => {
                skip(stream, length.into()).await?;
                None
            }
        };
        match negotiation.option(option, data.as_deref(), &*shared.exports, peer) {
            Next::Reply(reply) => send(stream, &reply).await?,
            Next::StartTls(reply) => {
                send(stream, &reply).await?;
                return Ok(None);
            }
            Next::Transmit(reply, agreed) => {
                send(stream, &reply).await?;
                return Ok(Some(Some(agreed)));
            }
            Next::End(reply) => {
                send(stream, &reply).await?;
                return Ok(Some(None));
            }
        }
    }
}

async fn send<S: AsyncWrite + Unpin>(stream: &mut S, bytes: &[u8]) -> io::Result<()> {
    stream.write_all(bytes).await?;
    stream.flush().await
}

/// Reads and drops unwanted data.
async fn skip<S: AsyncRead + Unpin>(stream: &mut S, mut bytes: u64) -> io::Result<()> {
    let mut scratch = [0; SCRATCH_BYTES];
    while bytes > 0 {
        let n = bytes.min(SCRATCH_BYTES as u64) as usize;
        stream.read_exact(&mut scratch[..n]).await?;
        bytes -= n as u64;
    }
    Ok(())
}

/// A request's share of the bounded resources, held until its reply has been sent.
type Held = [Option<OwnedSemaphorePermit>; 3];

/// A queued reply.
struct Reply {
    head: Vec<u8>,
    data: Bytes,
    _held: Held,
}

async fn transmit(shared: &Arc<Shared>, stream: Stream, agreed: Agreed, peer: SocketAddr) -> io::Result<()> {
    let attached =
        Arc::new(Attached::new(Arc::clone(&agreed.export), &format!("nbd:{peer}"), shared.slabs.clone()));
    let (reader, writer) = tokio::io::split(stream);
    let (replies, queue) = unbounded_channel();
    let mut writing = tokio::spawn(write_replies(writer, queue));
    let requests = Requests {
        shared,
        attached: Arc::clone(&attached),
        form: agreed.form,
        allocation: agreed.allocation,
        replies,
        slots: Arc::new(Semaphore::new(REQUESTS_MAX)),
        share: Arc::new(Semaphore::new(shared.share_pages)),
    };
    let ended = tokio::select! {
        ended = requests.read(BufReader::with_capacity(READ_BUFFER_BYTES, reader)) => ended,
        written = &mut writing => {
            attached.cancel();
            return written.unwrap_or_else(|_| Err(broken("the writer ended")));
        }
        () = no_longer(shared, &attached) => Ok(()),
    };
    if ended.is_err() {
        attached.cancel();
    }
    // Outstanding requests have their own senders: the last reply is sent before the writer ends.
    drop(requests);
    drop(attached);
    let written = writing.await.unwrap_or_else(|_| Err(broken("the writer ended")));
    ended.and(written)
}

/// Waits until the server shuts down or the unit is no longer served.
async fn no_longer(shared: &Shared, attached: &Attached) {
    let mut ending = shared.ending.clone();
    while attached.export().is_current() {
        tokio::select! {
            _ = ending.wait_for(|ending| *ending) => return,
            () = tokio::time::sleep(CURRENT_SCAN) => {}
        }
    }
}

async fn write_replies(
    writer: tokio::io::WriteHalf<Stream>,
    mut queue: UnboundedReceiver<Reply>,
) -> io::Result<()> {
    let mut writer = BufWriter::with_capacity(WRITE_BUFFER_BYTES, writer);
    while let Some(mut reply) = queue.recv().await {
        loop {
            let sent = async {
                writer.write_all(&reply.head).await?;
                writer.write_all(&reply.data).await
            };
            in_time(sent).await?;
            match queue.try_recv() {
                Ok(next) => reply = next,
                Err(_) => break,
            }
        }
        in_time(writer.flush()).await?;
    }
    in_time(writer.shutdown()).await
}

async fn in_time<T>(done: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(DATA_TIMEOUT, done).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// Shared state of the requests of a connection.
struct Requests<'a> {
    shared: &'a Arc<Shared>,
    attached: Arc<Attached>,
    form: ReplyForm,
    allocation: bool,
    replies: UnboundedSender<Reply>,
    slots: Arc<Semaphore>,
    /// Pages of the memory for data that the connection may use.
    share: Arc<Semaphore>,
}

impl Requests<'_> {
    /// Reads requests until the client disconnects.
    async fn read<S: AsyncRead + Unpin>(&self, mut stream: S) -> io::Result<()> {
        loop {
            let mut bytes = [0; wire::REQUEST_BYTES];
            stream.read_exact(&mut bytes).await?;
            let Some(request) = Request::parse(&bytes) else { return Err(broken("this is no request")) };
            if request.command == command::DISC {
                return Ok(());
            }
            self.shared.counters.request(request.command);
            let facts = Facts::of(self.attached.export(), self.shared.request_bytes_max);
            let fits = request.length <= facts.request_bytes_max;
            if request.command == command::WRITE && !fits {
                return Err(broken("a write is longer than the export says it may be"));
            }
            let moves = matches!(request.command, command::READ | command::WRITE) && fits;
            let held = self.room(if moves { request.length } else { 0 }).await?;
            let data = match request.command {
                command::WRITE => {
                    let mut data = self.attached.slabs().take(request.length as usize);
                    in_time(stream.read_exact(&mut data)).await?;
                    self.shared.counters.receive(data.len() as u64);
                    data.freeze()
                }
                _ => Bytes::new(),
            };
            match self.work(&request, &facts, data) {
                Ok(work) => self.begin(&request, work, held),
                Err(failed) => self.fail(&request, &failed, held),
            }
        }
    }

    /// Waits for a request slot and for memory for the data.
    async fn room(&self, bytes: u32) -> io::Result<Held> {
        let pages = u64::from(bytes).div_ceil(PAGE_BYTES) as u32;
        let closed = |_| broken("the server ends");
        let slot = Arc::clone(&self.slots).acquire_owned().await.map_err(closed)?;
        if pages == 0 {
            return Ok([Some(slot), None, None]);
        }
        // A request that waits for its connection's share holds none of the memory that others wait for.
        let share = Arc::clone(&self.share).acquire_many_owned(pages).await.map_err(closed)?;
        let memory = Arc::clone(&self.shared.memory).acquire_many_owned(pages).await.map_err(closed)?;
        Ok([Some(slot), Some(share), Some(memory)])
    }

    /// The work of a request, if the request is allowed.
    fn work(&self, request: &Request, facts: &Facts, data: Bytes) -> Result<Work, Failed> {
        let Request { flags, command, offset, length, .. } = *request;
        let invalid = |text: &str| Err(Failed::new(Errno::Inval, text));
        // proto.md: FUA is not an error on commands for which it has no meaning.
        let known = command_flag::FUA
            | match command {
                command::READ if self.form == ReplyForm::Structured => command_flag::DF,
                command::WRITE_ZEROES => command_flag::NO_HOLE,
                command::BLOCK_STATUS => command_flag::REQ_ONE,
                _ => 0,
            };
        if flags & !known != 0 {
            return invalid("the request has a flag that was not offered for it");
        }
        let fua = flags & command_flag::FUA != 0;
        let work = match command {
            command::FLUSH => return Ok(Work::Flush),
            command::READ if length > facts.request_bytes_max => {
                return invalid("a read is longer than the export says it may be");
            }
            command::READ => Work::Read(offset, length),
            command::WRITE => Work::Write(offset, data, fua),
            command::TRIM => Work::Trim(offset, length, fua),
            command::CACHE => Work::Cache(offset, length),
            command::WRITE_ZEROES => Work::Zero(offset, length, fua, flags & command_flag::NO_HOLE == 0),
            command::BLOCK_STATUS if !self.allocation || length == 0 => {
                return invalid("block status needs a range, and base:allocation negotiated before");
            }
            command::BLOCK_STATUS => Work::Status(offset, length, flags & command_flag::REQ_ONE != 0),
            _ => return invalid("the server does not know the command"),
        };
        let block = u64::from(facts.block_bytes);
        if !offset.is_multiple_of(block) || !u64::from(length).is_multiple_of(block) {
            return invalid(&format!("offset and length have to be multiples of {block}"));
        }
        let writes = matches!(command, command::WRITE | command::WRITE_ZEROES | command::TRIM);
        match offset.checked_add(length.into()) {
            Some(end) if end <= facts.size_bytes => Ok(work),
            _ if writes => Err(Failed::new(Errno::Nospc, "the range goes beyond the end of the export")),
            _ => invalid("the range goes beyond the end of the export"),
        }
    }

    fn fail(&self, request: &Request, failed: &Failed, held: Held) {
        self.shared.counters.fail(failed.errno);
        let head = self.form.error(request.cookie, failed.errno, &failed.text);
        // A client that has left needs no reply.
        let _ = self.replies.send(Reply { head, data: Bytes::new(), _held: held });
    }

    /// Starts a request: runs it here if the store never blocks and the work is short (see [`INLINE_BYTES_MAX`]), otherwise on a worker.
    fn begin(&self, request: &Request, work: Work, held: Held) {
        let answer = Answer {
            cookie: request.cookie,
            offset: request.offset,
            form: self.form,
            replies: self.replies.clone(),
            counters: Arc::clone(&self.shared.counters),
            held: Some(held),
        };
        let attached = Arc::clone(&self.attached);
        let unit = attached.export().unit();
        let moves = matches!(work, Work::Read(..) | Work::Write(..) | Work::Flush);
        if !unit.offload && (moves || work.length() <= INLINE_BYTES_MAX) {
            return carry_out(&attached, &work, answer);
        }
        let lane = unit.lane.clone();
        (self.shared.offload)(&lane, Box::new(move || carry_out(&attached, &work, answer)));
    }
}

fn carry_out(attached: &Attached, work: &Work, answer: Answer) {
    // A fault of a store ends only its own request.
    match catch_unwind(AssertUnwindSafe(|| attached.run(work))) {
        Ok(result) => answer.send(result),
        Err(_) => {
            tracing::error!(export = attached.export().name(), "a store panicked; its NBD request fails");
            drop(answer);
        }
    }
}

/// Answers a request, even if its job is dropped or panics.
struct Answer {
    cookie: u64,
    offset: u64,
    form: ReplyForm,
    replies: UnboundedSender<Reply>,
    counters: Arc<Counters>,
    held: Option<Held>,
}

impl Answer {
    fn send(mut self, result: Result<Brought, Failed>) {
        let (head, data) = match result {
            Ok(Brought::Nothing) => (self.form.done(self.cookie), Bytes::new()),
            Ok(Brought::Data(data)) => {
                self.counters.send(data.len() as u64);
                (self.form.data(self.cookie, self.offset, data.len() as u32), data)
            }
            Ok(Brought::Extents(extents)) => {
                (wire::block_status(self.cookie, ALLOCATION_ID, &extents), Bytes::new())
            }
            Err(failed) => {
                self.counters.fail(failed.errno);
                (self.form.error(self.cookie, failed.errno, &failed.text), Bytes::new())
            }
        };
        self.reply(head, data);
    }

    fn reply(&mut self, head: Vec<u8>, data: Bytes) {
        if let Some(held) = self.held.take() {
            let _ = self.replies.send(Reply { head, data, _held: held });
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if self.held.is_some() {
            self.counters.fail(Errno::Io);
            let head = self.form.error(self.cookie, Errno::Io, "the store failed in a way that no store may");
            self.reply(head, Bytes::new());
        }
    }
}
