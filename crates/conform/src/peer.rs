//! One end of a connection that sends correct and incorrect PDUs, in either role.

use crate::frame::{Digests, Frame, Received};
use crate::link::{Link, connect, prepare};
use crate::transcript::{Side, Transcript, What};
use crate::{Ledger, PeerError};
use iscsi_wire::{Bhs, Opcode, padding_length};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// Bytes requested from the kernel in one read.
const READ_SIZE: usize = 64 * 1024;

/// A raw peer. It sends exactly the bytes that it is told to send, and receives PDUs with their digests
/// verified.
pub struct RawPeer {
    link: Box<dyn Link>,
    side: Side,
    connection: u32,
    transcript: Transcript,
    rx: Vec<u8>,
    timeout: Duration,
    closed_seen: bool,
    reset: bool,
    /// Digests in use; a login sets them, and a script may too.
    pub digests: Digests,
    /// Sequence numbers as seen from this end.
    pub ledger: Ledger,
}

impl RawPeer {
    /// Connects to a target, as an initiator. `timeout` bounds every later step too.
    pub fn connect(
        address: impl ToSocketAddrs,
        timeout: Duration,
        transcript: &Transcript,
    ) -> Result<Self, PeerError> {
        let stream = connect(address, timeout)?;
        prepare(&stream, timeout)?;
        Ok(Self::over(Box::new(stream), Side::Initiator, timeout, transcript))
    }

    /// Takes an accepted connection, as a target.
    pub fn accept(stream: TcpStream, timeout: Duration, transcript: &Transcript) -> Result<Self, PeerError> {
        prepare(&stream, timeout)?;
        Ok(Self::over(Box::new(stream), Side::Target, timeout, transcript))
    }

    /// One end of a connection that exists, as `side`.
    pub fn over(link: Box<dyn Link>, side: Side, timeout: Duration, transcript: &Transcript) -> Self {
        let connection = transcript.open();
        transcript.push(connection, Side::Initiator, What::Opened);
        RawPeer {
            link,
            side,
            connection,
            transcript: transcript.clone(),
            rx: Vec::new(),
            timeout,
            closed_seen: false,
            reset: false,
            digests: Digests::default(),
            ledger: Ledger::default(),
        }
    }

    /// How long a step may take.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// The number of this connection in the transcript, from 1.
    pub fn connection(&self) -> u32 {
        self.connection
    }

    /// The transcript that this connection writes into.
    pub fn transcript(&self) -> &Transcript {
        &self.transcript
    }

    /// Our own address.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.link.local_addr()
    }

    /// Sends a PDU.
    pub fn send(&mut self, frame: &Frame) -> Result<(), PeerError> {
        self.send_pieces(frame, usize::MAX)
    }

    /// Sends a PDU in writes of at most `piece` bytes each, so that it may arrive in as many segments.
    pub fn send_pieces(&mut self, frame: &Frame, piece: usize) -> Result<(), PeerError> {
        self.record(frame);
        let bytes = frame.encode(self.digests);
        bytes.chunks(piece.max(1)).try_for_each(|chunk| self.write_all(chunk))
    }

    /// Sends several PDUs in one write.
    pub fn send_together(&mut self, frames: &[Frame]) -> Result<(), PeerError> {
        let mut bytes = Vec::new();
        for frame in frames {
            self.record(frame);
            bytes.extend_from_slice(&frame.encode(self.digests));
        }
        self.write_all(&bytes)
    }

    /// Sends only the first `length` bytes of a PDU.
    pub fn send_part(&mut self, frame: &Frame, length: usize) -> Result<(), PeerError> {
        let bytes = frame.encode(self.digests);
        self.send_bytes(&bytes[..length.min(bytes.len())])
    }

    /// Sends bytes that need not be a PDU.
    pub fn send_bytes(&mut self, bytes: &[u8]) -> Result<(), PeerError> {
        self.transcript.push(self.connection, self.side, What::Raw(bytes.len()));
        self.write_all(bytes)
    }

    /// Adds words to the transcript.
    pub fn note(&self, words: impl Into<String>) {
        self.transcript.note(self.connection, self.side, words);
    }

    /// Closes our direction; PDUs that the other end still sends can be received.
    pub fn close_write(&mut self) {
        if self.reset {
            return;
        }
        self.link.close_write();
        self.transcript.push(self.connection, self.side, What::Closed);
    }

    /// Closes the connection with a RST instead of a FIN.
    pub fn reset(mut self) {
        self.linger_zero();
    }

    /// Makes this peer end with a RST.
    pub(crate) fn linger_zero(&mut self) {
        self.reset = true;
        self.link.reset();
        self.transcript.push(self.connection, self.side, What::Reset);
    }

    /// The next PDU, within the timeout.
    pub fn recv(&mut self) -> Result<Received, PeerError> {
        self.recv_within(self.timeout)
    }

    /// The next PDU, within `timeout`. Digests are verified according to [`RawPeer::digests`].
    pub fn recv_within(&mut self, timeout: Duration) -> Result<Received, PeerError> {
        let result = self.recv_inner(timeout);
        let sender = self.side.other();
        match &result {
            Ok(pdu) => {
                if self.side == Side::Initiator {
                    self.ledger.received(pdu);
                }
                let (bhs, ahs, data) = (pdu.bhs, pdu.ahs.clone(), pdu.data.clone());
                let remark = String::new();
                self.transcript.push(self.connection, sender, What::Pdu { bhs, ahs, data, remark });
            }
            Err(error) if error.is_closed() => self.record_end(error),
            Err(PeerError::HeaderDigest { .. } | PeerError::DataDigest { .. }) => {
                self.transcript.push(self.connection, sender, What::Note("sent a wrong digest".to_owned()));
            }
            Err(_) => {}
        }
        result
    }

    fn recv_inner(&mut self, timeout: Duration) -> Result<Received, PeerError> {
        let deadline = Instant::now() + timeout;
        self.fill(Bhs::SIZE, deadline, timeout)?;
        let mut bytes = [0; Bhs::SIZE];
        bytes.copy_from_slice(&self.rx[..Bhs::SIZE]);
        let bhs = Bhs::from_bytes(bytes);
        let header_end = Bhs::SIZE + bhs.total_ahs_length();
        let data_start = header_end + if self.digests.header { 4 } else { 0 };
        self.fill(data_start, deadline, timeout)?;
        if self.digests.header {
            let computed = integrity::crc32c(&self.rx[..header_end]);
            let received = le32(&self.rx[header_end..]);
            if computed != received {
                return Err(PeerError::HeaderDigest { computed, received });
            }
        }
        let length = bhs.data_segment_length();
        let data_end = data_start + length + padding_length(length);
        let with_digest = self.digests.data && length > 0;
        let end = data_end + if with_digest { 4 } else { 0 };
        self.fill(end, deadline, timeout)?;
        let (mut data_digest, mut verified) = (None, Ok(()));
        if with_digest {
            let computed = integrity::crc32c(&self.rx[data_start..data_end]);
            let received = le32(&self.rx[data_end..]);
            data_digest = Some(received.to_le_bytes());
            if computed != received {
                verified = Err(PeerError::DataDigest { computed, received });
            }
        }
        let pdu = Received {
            bhs,
            ahs: self.rx[Bhs::SIZE..header_end].to_vec(),
            data: self.rx[data_start..data_start + length].to_vec(),
            padding: self.rx[data_start + length..data_end].to_vec(),
            data_digest,
        };
        self.rx.drain(..end);
        verified.map(|()| pdu)
    }

    /// Reads until `needed` bytes have arrived. Memory grows with what arrives, not with what was announced.
    fn fill(&mut self, needed: usize, deadline: Instant, timeout: Duration) -> Result<(), PeerError> {
        let mut chunk = [0; READ_SIZE];
        while self.rx.len() < needed {
            let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
            match self.link.receive(&mut chunk, left) {
                Ok(0) if self.rx.is_empty() => return Err(PeerError::Closed),
                Ok(0) => return Err(PeerError::ClosedInsidePdu { got: self.rx.len() }),
                Ok(n) => self.rx.extend_from_slice(&chunk[..n]),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(PeerError::from_io(&error, timeout)),
            }
        }
        Ok(())
    }

    /// The next PDU, which must have this opcode.
    pub fn expect(&mut self, opcode: Opcode) -> Result<Received, PeerError> {
        let pdu = self.recv()?;
        if pdu.bhs.opcode() == opcode.code() {
            Ok(pdu)
        } else {
            Err(PeerError::Unexpected { wanted: opcode.name().to_owned(), got: pdu.line() })
        }
    }

    /// Reads PDUs until the other end closes, and returns those received before. An error if it does not close
    /// in time, or sends something other than a PDU.
    pub fn until_closed(&mut self) -> Result<Vec<Received>, PeerError> {
        let mut before = Vec::new();
        let deadline = Instant::now() + self.timeout;
        loop {
            match self.recv_within(deadline.saturating_duration_since(Instant::now())) {
                Ok(pdu) => before.push(pdu),
                Err(error) if error.is_closed() => return Ok(before),
                Err(error) => return Err(error),
            }
        }
    }

    fn record(&self, frame: &Frame) {
        let what = What::Pdu {
            bhs: frame.bhs(),
            ahs: frame.ahs_bytes().to_vec(),
            data: frame.data_bytes().to_vec(),
            remark: frame.remarks().to_owned(),
        };
        self.transcript.push(self.connection, self.side, what);
    }

    /// Records that the other end has closed the connection: what is read or written says so first, whichever comes first.
    fn record_end(&mut self, error: &PeerError) {
        if !std::mem::replace(&mut self.closed_seen, true) {
            let what = if *error == PeerError::Reset { What::Reset } else { What::Closed };
            self.transcript.push(self.connection, self.side.other(), what);
        }
    }

    fn write_all(&mut self, bytes: &[u8]) -> Result<(), PeerError> {
        let written = self.link.send(bytes).map_err(|error| PeerError::from_io(&error, self.timeout));
        if let Err(error) = &written
            && error.is_closed()
        {
            self.record_end(error);
        }
        written
    }
}

fn le32(bytes: &[u8]) -> u32 {
    bytes.first_chunk::<4>().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn an_end_that_is_noticed_by_a_send_is_the_other_end_s() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let other = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let transcript = Transcript::new();
        let (stream, _) = listener.accept().unwrap();
        let mut peer = RawPeer::accept(stream, Duration::from_secs(10), &transcript).unwrap();
        socket2::SockRef::from(&other).set_linger(Some(Duration::ZERO)).unwrap();
        drop(other);
        let end = std::iter::repeat_with(|| peer.send_bytes(&[0; 48])).find_map(Result::err);
        assert_eq!(end, Some(PeerError::Reset));
        drop(peer);
        let ends =
            transcript.entries().into_iter().filter(|entry| matches!(entry.what, What::Reset | What::Closed));
        let sides: Vec<Side> = ends.map(|entry| entry.side).collect();
        assert_eq!(sides.first(), Some(&Side::Initiator), "{sides:?}");
    }
}
