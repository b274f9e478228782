//! The initiator's receive path with TCP taken away: a session of the product in the state that it is in after TCP has put segments in order.
//!
//! ```text
//!   segments ──► SocketQueue ──┬─ as built:     receive buffer ─► PduReader (digests) ─► session ─► copy to the SCSI buffer
//!    (per connection)          ├─ layered:      header ─► copy to the SCSI buffer ─► CRC over it ─► session
//!                              └─ interleaved:  header ─► copy and CRC in one pass ─► session
//! ```
//! The SCSI buffers begin at pages and are filled in before anything is measured. Every page of them is an element of the list that a pass
//! scatters to. Nobody looks at a buffer before its command has completed, and a PDU whose digest fails completes none.
//!
//! What is not here: R2T and Data-Out, and the system calls.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use engine::SlabRing;
use integrity::SegmentMut;
use iscsi_core::Time;
use iscsi_core::digest::{DIGEST_BYTES, DigestScope};
use iscsi_core::initiator::command::{Command, Ending};
use iscsi_core::initiator::login::{FirstNumbers, LoggedIn};
use iscsi_core::initiator::session::{Action, InitiatorSession, SessionConfig};
use iscsi_core::params::{Bursts, DataOrder, Params};
use iscsi_core::pdu_reader::{PduReader, RxPdu};
use iscsi_core::pdu_writer::{PduWriter, TxPdu};
use iscsi_core::wire::{
    Bhs, Cid, CmdSn, DataIn, DataSn, Isid, Itt, Lun, Pdu, ResidualCount, ResponseNumbers, StatSn, Tsih, Ttt,
};
use published::flush_tables;
use serde::Serialize;

use super::caches::{Purge, Regime, touch};
use super::contenders::Contender;
use super::markers::{MARKER_BYTES, Markers};
use super::marks::{Marks, Part, Whole};
use super::queue::SocketQueue;
use harness::content::random;

const PAGE_BYTES: usize = 4096;
/// Pages that one PDU can touch: 64 KiB and a page that it begins in.
const MAX_ELEMENTS: usize = 17;
/// Room for all markers of a PDU, bytes: also of the longest one, with a marker every 2048 bytes.
const SCRATCH_BYTES: usize = 512;
/// Bytes of a receive buffer, as a busy connection of the product has it.
const RECEIVE_BUFFER_BYTES: usize = 256 * 1024;
/// The time of everything: nothing times out here.
pub(super) const NOW: Time = Duration::from_secs(1000);
const READ_16: u8 = 0x88;
/// Stands for the data of a PDU that was placed before the session sees it. The session looks at its length only.
static PLACED: [u8; MAX_PDU_BYTES] = [0; MAX_PDU_BYTES];

/// The longest data segment, bytes.
pub(super) const MAX_PDU_BYTES: usize = 64 * 1024;

/// How the bytes get from TCP's segments to the SCSI buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Way {
    /// As the product does it: everything into a receive buffer, verified there, then copied to the SCSI buffer.
    AsBuilt,
    /// The paper's first interface: data copied to the SCSI buffer, then a pass over it for the CRC.
    Layered,
    /// The paper's second: one pass that copies and digests.
    Interleaved,
}

impl Way {
    pub(crate) const ALL: [Self; 3] = [Self::AsBuilt, Self::Layered, Self::Interleaved];

    /// For people.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::AsBuilt => "as built",
            Self::Layered => "layered",
            Self::Interleaved => "interleaved",
        }
    }
}

/// What is outstanding when the PDUs arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Shape {
    pub connections: u16,
    /// Commands outstanding, in turn over the connections.
    pub commands: usize,
    /// Data-In PDUs of each command; the last carries the status.
    pub pdus: usize,
    /// Data of each PDU, a multiple of four.
    pub pdu_bytes: usize,
    /// Payload of a TCP segment.
    pub segment_bytes: usize,
    /// DataPDUInOrder and DataSequenceInOrder. Otherwise every second PDU of a command comes first, then those between.
    pub in_order: bool,
    /// Bytes of PDUs between two markers, if there are any. The product refuses markers: not for [`Way::AsBuilt`].
    pub markers: Option<usize>,
}

impl Shape {
    /// Which part of the command's data the PDU `n` carries.
    fn part(&self, n: usize) -> usize {
        let first = self.pdus.div_ceil(2);
        match (self.in_order, n < first) {
            (true, _) => n,
            (false, true) => 2 * n,
            (false, false) => 2 * (n - first) + 1,
        }
    }

    /// Bytes that one command reads.
    pub(crate) fn command_bytes(&self) -> usize {
        self.pdus * self.pdu_bytes
    }
}

/// What is done with a PDU, and what is left out to see what it costs. What is left out keeps its place in the control flow.
#[derive(Clone, Copy)]
pub(super) struct Work<'a> {
    pub way: Way,
    pub contender: &'a Contender,
    /// Digests are computed; else those received are taken for right.
    pub crc: bool,
    /// Data is copied to the SCSI buffer.
    pub copy: bool,
}

/// One connection.
struct Connection {
    queue: SocketQueue,
    /// Markers in what is still in the queue.
    markers: Markers,
    /// Markers in what comes next into it.
    markers_to_come: Markers,
    stat_sn: StatSn,
    reader: PduReader,
    buffer: BytesMut,
}

impl Connection {
    /// Puts bytes of PDUs, and the markers among them, into the queue.
    fn arrive(&mut self, mut bytes: &[u8], segment_bytes: usize) {
        let mut left = self.markers_to_come.stream_bytes(bytes.len());
        while left > 0 {
            let piece = self.markers_to_come.next(left);
            left -= piece.bytes;
            match piece.is_marker {
                true => self.queue.put(&[0xff; MARKER_BYTES][..piece.bytes], segment_bytes),
                false => {
                    let (now, later) = bytes.split_at(piece.bytes);
                    self.queue.put(now, segment_bytes);
                    bytes = later;
                }
            }
        }
    }

    /// Fills `to` with the next bytes of a PDU.
    #[inline]
    fn copy_to(&mut self, mut to: &mut [u8]) {
        let markers = &mut self.markers;
        self.queue.take(markers.stream_bytes(to.len()), |mut run| {
            while !run.is_empty() {
                let piece = markers.next(run.len());
                let (now, later) = run.split_at(piece.bytes);
                if !piece.is_marker {
                    let (filled, rest) = std::mem::take(&mut to).split_at_mut(now.len());
                    filled.copy_from_slice(now);
                    to = rest;
                }
                run = later;
            }
        });
    }

    /// Copies the next bytes of a PDU to `place`, page by page, and markers to `scratch`.
    fn copied(&mut self, place: &mut [u8], scratch: &mut [u8], copy: bool) {
        let (mut at, markers) = (0, &mut self.markers);
        self.queue.take(markers.stream_bytes(place.len()), |mut run| {
            while !run.is_empty() {
                let page = PAGE_BYTES - place[at..].as_ptr().addr() % PAGE_BYTES;
                let piece = markers.next(run.len().min(page));
                let (now, later) = run.split_at(piece.bytes);
                let to =
                    if piece.is_marker { &mut scratch[..now.len()] } else { &mut place[at..at + now.len()] };
                if copy {
                    to.copy_from_slice(now);
                }
                at += if piece.is_marker { 0 } else { now.len() };
                run = later;
            }
        });
    }

    /// Copies the next bytes of a PDU to `place`, by a list with an element for each page, and returns their CRC32C. Markers are elements
    /// that do not count, in `scratch`.
    fn interleaved(&mut self, place: &mut [u8], scratch: &mut [u8], work: &Work<'_>) -> u32 {
        let (mut crc, mut place, mut scratch, markers) = (0, place, scratch, &mut self.markers);
        self.queue.take(markers.stream_bytes(place.len()), |run| {
            let mut list: smallvec::SmallVec<[SegmentMut<'_>; MAX_ELEMENTS]> = smallvec::SmallVec::new();
            let mut left = run.len();
            while left > 0 {
                let page = PAGE_BYTES - place.as_ptr().addr() % PAGE_BYTES;
                let piece = markers.next(left.min(page));
                let from = if piece.is_marker { &mut scratch } else { &mut place };
                let (bytes, rest) = std::mem::take(from).split_at_mut(piece.bytes);
                *from = rest;
                list.push(SegmentMut { bytes, counts: !piece.is_marker });
                left -= piece.bytes;
            }
            if work.crc {
                crc = work.contender.scatter(crc, &mut list, run).expect("the list is as long as the run");
            }
        });
        crc
    }
}

/// A PDU of the batch, in the order of arrival.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    connection: usize,
    command: usize,
    wire_bytes: usize,
    first_of_command: bool,
}

/// A session, and the PDUs that have arrived for it.
pub(super) struct Sandbox {
    shape: Shape,
    digests: DigestScope,
    session: InitiatorSession,
    connections: Vec<Connection>,
    slabs: SlabRing,
    next_cmd_sn: CmdSn,
    arrivals: Vec<Arrival>,
    /// What the commands read, one after the other.
    content: Vec<u8>,
    buffers: Buffers,
    /// Where markers go.
    scratch: Vec<u8>,
    completed: usize,
    failed: usize,
    /// Receives a PDU after the caches were emptied, so that they hold the code.
    decoy: Option<Box<Sandbox>>,
}

/// The SCSI buffers: one region that begins at a page.
struct Buffers {
    memory: Vec<u8>,
    begin: usize,
    stride: usize,
}

impl Buffers {
    fn new(commands: usize, command_bytes: usize) -> Self {
        let stride = command_bytes.next_multiple_of(PAGE_BYTES);
        let memory = vec![1; commands * stride + PAGE_BYTES];
        let begin = memory.as_ptr().align_offset(PAGE_BYTES);
        Self { memory, begin, stride }
    }

    fn of(&self, command: usize, bytes: usize) -> &[u8] {
        &self.memory[self.begin + command * self.stride..][..bytes]
    }

    fn place(&mut self, command: usize, offset: usize, bytes: usize) -> &mut [u8] {
        &mut self.memory[self.begin + command * self.stride + offset..][..bytes]
    }
}

/// The end of a login that agreed on `params`.
pub(super) fn login(params: &Params, cid: Cid, cmd_sn: CmdSn) -> LoggedIn {
    LoggedIn {
        discovery: false,
        params: params.clone(),
        tsih: Tsih(1),
        isid: Isid([0x80, 1, 2, 3, 0, 0]),
        cid,
        numbers: FirstNumbers {
            cmd_sn,
            exp_stat_sn: StatSn(1),
            exp_cmd_sn: cmd_sn,
            max_cmd_sn: cmd_sn.add(1024),
        },
        portal_group_tag: Some(1),
        target_alias: None,
        chap: None,
        keys: Vec::new(),
    }
}

impl Sandbox {
    /// A session that is logged in, with nothing outstanding. Without `digests` none are negotiated.
    pub(super) fn new(shape: Shape, digests: bool) -> Self {
        let digests = DigestScope { header: digests, data: digests };
        let params = Params {
            digests,
            max_recv_data_segment_length: shape.pdu_bytes as u32,
            bursts: Bursts { max_burst_length: 256 * 1024, ..Params::default().bursts },
            max_connections: shape.connections,
            data_in_order: DataOrder { pdus: shape.in_order, sequences: shape.in_order },
            ..Params::default()
        };
        let first = CmdSn(1);
        let config = SessionConfig { ping_interval: Duration::ZERO, ..SessionConfig::default() };
        let mut session = InitiatorSession::new(&login(&params, Cid(0), first), config, NOW);
        for cid in 1..shape.connections {
            session.join(NOW, &login(&params, Cid(cid), first)).expect("a session takes its connections");
        }
        let connection = |_| {
            let mut reader = PduReader::new(shape.pdu_bytes);
            reader.set_digests(digests);
            let markers = Markers::new(shape.markers);
            Connection {
                queue: SocketQueue::default(),
                markers,
                markers_to_come: markers,
                stat_sn: StatSn(1),
                reader,
                buffer: BytesMut::new(),
            }
        };
        let mut state = 0x9e37_79b9_7f4a_7c15;
        Self {
            shape,
            digests,
            session,
            connections: (0..shape.connections).map(connection).collect(),
            slabs: SlabRing::new(RECEIVE_BUFFER_BYTES, 64),
            next_cmd_sn: first,
            arrivals: Vec::new(),
            content: random(shape.commands * shape.command_bytes(), &mut state),
            buffers: Buffers::new(shape.commands, shape.command_bytes()),
            scratch: vec![0; SCRATCH_BYTES],
            completed: 0,
            failed: 0,
            decoy: None,
        }
        .with_receive_buffers()
    }

    /// With a decoy, which cold caches need.
    pub(super) fn with_decoy(self) -> Self {
        let shape = Shape { connections: 1, commands: 1, pdus: 1, ..self.shape };
        Self { decoy: Some(Box::new(Self::new(shape, self.digests.header))), ..self }
    }

    /// Receive buffers that a connection that has been busy for a while finds: their pages exist.
    fn with_receive_buffers(self) -> Self {
        let buffers = (0..2 * self.connections.len()).map(|_| self.slabs.rx_buffer(RECEIVE_BUFFER_BYTES));
        let filled = |mut buffer: BytesMut| {
            buffer.resize(buffer.capacity(), 1);
            buffer
        };
        drop(buffers.map(filled).collect::<Vec<_>>());
        self
    }

    /// Submits the commands, and puts their Data-In into the queues as a target would send it.
    pub(super) fn load(&mut self) {
        let Shape { commands, pdus, pdu_bytes, segment_bytes, .. } = self.shape;
        for user in 0..commands {
            let mut cdb = [0; 16];
            cdb[0] = READ_16;
            let command = Command {
                user: user as u64,
                read_length: self.shape.command_bytes() as u32,
                timeout: Duration::ZERO,
                idempotent: true,
                ..Command::new(Lun(0), &cdb)
            };
            self.session.submit(NOW, command).expect("the session takes so many commands");
            self.buffers.place(user, 0, self.shape.command_bytes()).fill(0xee);
        }
        let sent = self.sent_commands();
        assert_eq!(sent.len(), commands, "the window is wide enough for all commands");
        self.next_cmd_sn = self.next_cmd_sn.add(commands as u32);
        let mut writers: Vec<PduWriter> = self.connections.iter().map(|_| PduWriter::new()).collect();
        writers.iter_mut().for_each(|writer| writer.set_digests(self.digests));
        for (command, &(connection, itt)) in sent.iter().enumerate() {
            for n in 0..pdus {
                let (pdu, data) = self.data_in(connection, command, itt, n);
                let wire_bytes = self.digests.layout(&sized(pdu.to_bhs(), pdu_bytes)).total;
                writers[connection].push(TxPdu::with_data(pdu.to_bhs(), data));
                self.arrivals.push(Arrival { connection, command, wire_bytes, first_of_command: n == 0 });
            }
        }
        for (connection, mut writer) in self.connections.iter_mut().zip(writers) {
            let mut pieces = Vec::new();
            while writer.queued_bytes() > 0 {
                writer.take(usize::MAX, &mut pieces);
            }
            pieces.iter().for_each(|piece| connection.arrive(piece, segment_bytes));
        }
        self.completed = 0;
        self.failed = 0;
    }

    /// Connection and tag of the commands that the session sends, in order.
    fn sent_commands(&mut self) -> Vec<(usize, Itt)> {
        let mut sent = Vec::new();
        while let Some(action) = self.session.poll_action() {
            if let Action::Send { cid, pdu } = action
                && let Ok(Pdu::ScsiCommand(command)) = Pdu::parse(&pdu.bhs)
            {
                sent.push((usize::from(cid.0), command.itt));
            }
        }
        sent
    }

    fn data_in(&mut self, connection: usize, command: usize, itt: Itt, n: usize) -> (DataIn, Bytes) {
        let (last, offset) = (n + 1 == self.shape.pdus, self.shape.part(n) * self.shape.pdu_bytes);
        let stat_sn = &mut self.connections[connection].stat_sn;
        let pdu = DataIn {
            final_bit: last,
            acknowledge: false,
            status_bit: last,
            status: 0,
            lun: Lun(0),
            itt,
            ttt: Ttt::RESERVED,
            numbers: ResponseNumbers {
                stat_sn: if last { *stat_sn } else { StatSn(0) },
                exp_cmd_sn: self.next_cmd_sn,
                max_cmd_sn: self.next_cmd_sn.add(1024),
            },
            data_sn: DataSn(n as u32),
            buffer_offset: offset as u32,
            residual_count: ResidualCount::default(),
        };
        if last {
            *stat_sn = stat_sn.next();
        }
        let from = command * self.shape.command_bytes() + offset;
        (pdu, Bytes::copy_from_slice(&self.content[from..][..self.shape.pdu_bytes]))
    }

    /// Receives everything that has arrived, and calls `each` for each PDU with the function that receives it. Before each command the
    /// caches are brought into the state of `regime`.
    ///
    /// # Errors
    /// A command did not complete, or bytes are wrong.
    pub(super) fn receive_all<M: Marks>(
        &mut self,
        work: &Work<'_>,
        regime: Regime,
        purge: &Purge,
        marks: &mut M,
    ) -> Result<(), String> {
        let arrivals = std::mem::take(&mut self.arrivals);
        for arrival in &arrivals {
            if arrival.first_of_command {
                self.prepare(arrival, work, regime, purge)?;
            }
            self.receive_one(arrival, work, marks);
        }
        self.verify(work)
    }

    /// Receives one PDU. A profiler counts what happens between entering and leaving this function.
    #[inline(never)]
    fn receive_one<M: Marks>(&mut self, arrival: &Arrival, work: &Work<'_>, marks: &mut M) {
        marks.begin();
        match work.way {
            Way::AsBuilt => self.receive_as_built(arrival, work, marks),
            Way::Layered | Way::Interleaved => self.receive_placed(arrival.connection, work, marks),
        }
        marks.end();
    }

    /// Brings the caches into the state of `regime`.
    fn prepare(
        &mut self,
        arrival: &Arrival,
        work: &Work<'_>,
        regime: Regime,
        purge: &Purge,
    ) -> Result<(), String> {
        if regime == Regime::Warm {
            return Ok(());
        }
        purge.all();
        if let Some(decoy) = &mut self.decoy {
            decoy.load();
            decoy.receive_all(work, Regime::Warm, purge, &mut Whole::default())?;
        }
        flush_tables();
        let bytes = arrival.wire_bytes * self.shape.pdus;
        let connection = &self.connections[arrival.connection];
        connection.queue.heads(connection.markers.stream_bytes(bytes)).for_each(touch);
        if regime == Regime::BufferWarm {
            touch(self.buffers.of(arrival.command, self.shape.command_bytes()));
        }
        Ok(())
    }

    /// The paper's two interfaces: the data goes to its place while, or before, it is digested.
    fn receive_placed<M: Marks>(&mut self, number: usize, work: &Work<'_>, marks: &mut M) {
        let mut header = [0; Bhs::SIZE + DIGEST_BYTES];
        let header_bytes = Bhs::SIZE + if self.digests.header { DIGEST_BYTES } else { 0 };
        let connection = &mut self.connections[number];
        connection.copy_to(&mut header[..header_bytes]);
        let (bhs, digest) = header.split_first_chunk().expect("a header is that long");
        marks.at(Part::Protocol);
        let header_is_right =
            !self.digests.header || !work.crc || work.contender.digest(bhs).to_le_bytes() == *digest;
        marks.at(Part::Crc);
        let bhs = Bhs::from_bytes(*bhs);
        let layout = self.digests.layout(&bhs);
        let bytes = layout.data_len;
        let place = DataIn::parse(&bhs).ok().zip(self.session.user_of(bhs.itt()));
        let (true, Some((pdu, user))) = (header_is_right, place) else {
            self.failed += 1;
            return;
        };
        let place = self.buffers.place(user as usize, pdu.buffer_offset as usize, bytes);
        marks.at(Part::Protocol);
        let crc = match work.way {
            Way::Interleaved => {
                let crc = connection.interleaved(place, &mut self.scratch, work);
                marks.at(Part::CopyAndCrc);
                crc
            }
            Way::AsBuilt | Way::Layered => {
                connection.copied(place, &mut self.scratch, work.copy);
                marks.at(Part::Copy);
                let crc = if work.crc && self.digests.data { work.contender.digest(place) } else { 0 };
                marks.at(Part::Crc);
                crc
            }
        };
        let mut digest = [0; DIGEST_BYTES];
        if self.digests.data {
            connection.copy_to(&mut digest);
        }
        let data_digest_ok = !self.digests.data || !work.crc || crc.to_le_bytes() == digest;
        let data = Bytes::from_static(&PLACED[..bytes]);
        let rx = RxPdu { bhs, ahs: Bytes::new(), data, data_digest_ok };
        self.session.handle_pdu(NOW, Cid(number as u16), rx);
        self.carry_out(|_, _, _| {});
        marks.at(Part::Protocol);
    }

    /// The product's way: a receive buffer, the reader of PDUs, the session, and the copy for the caller.
    fn receive_as_built<M: Marks>(&mut self, arrival: &Arrival, work: &Work<'_>, marks: &mut M) {
        let connection = &mut self.connections[arrival.connection];
        if connection.buffer.capacity() < arrival.wire_bytes {
            connection.buffer = self.slabs.rx_buffer(RECEIVE_BUFFER_BYTES);
        }
        let buffer = &mut connection.buffer;
        connection.queue.take(arrival.wire_bytes, |run| buffer.extend_from_slice(run));
        marks.at(Part::Receive);
        let Ok(Some(rx)) = connection.reader.next(&mut connection.buffer) else {
            self.failed += 1;
            return;
        };
        marks.at(Part::FramingAndCrc);
        self.session.handle_pdu(NOW, Cid(arrival.connection as u16), rx);
        let (copy, mut delivered) = (work.copy, None);
        self.carry_out(|user, offset, data| delivered = Some((user, offset, data)));
        marks.at(Part::Protocol);
        if let Some((user, offset, data)) = delivered.filter(|_| copy) {
            self.buffers.place(user, offset, data.len()).copy_from_slice(&data);
        }
        marks.at(Part::Copy);
    }

    /// Does what the session asks for.
    #[inline]
    fn carry_out(&mut self, mut data_in: impl FnMut(usize, usize, Bytes)) {
        while let Some(action) = self.session.poll_action() {
            match action {
                Action::DataIn { user, offset, data } => data_in(user as usize, offset as usize, data),
                Action::Completed(completion) => match completion.ending {
                    Ending::Status { status: 0, .. } => self.completed += 1,
                    _ => self.failed += 1,
                },
                _ => {}
            }
        }
    }

    /// Every command has completed, and each buffer holds what it should.
    fn verify(&mut self, work: &Work<'_>) -> Result<(), String> {
        let (commands, bytes) = (self.shape.commands, self.shape.command_bytes());
        if self.failed > 0 || self.completed != commands {
            return Err(format!(
                "{} of {commands} commands completed and {} PDUs failed",
                self.completed, self.failed
            ));
        }
        if !self.connections.iter().all(|connection| connection.queue.is_empty()) {
            return Err("bytes are left over".to_owned());
        }
        let is_wrong =
            |command: &usize| self.buffers.of(*command, bytes) != &self.content[command * bytes..][..bytes];
        match (0..commands).filter(|_| work.copy).find(is_wrong) {
            Some(command) => Err(format!("the data of command {command} is wrong")),
            None => Ok(()),
        }
    }
}

/// `bhs` with the length of its data.
fn sized(mut bhs: Bhs, data_bytes: usize) -> Bhs {
    bhs.set_data_segment_length(data_bytes);
    bhs
}

#[cfg(test)]
mod tests;
