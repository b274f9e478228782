//! Cuts received bytes into PDUs and verifies their digests (RFC 7143 11.2, 7.8).
//!
//! The caller owns the buffer and appends received bytes; [`PduReader::next`] takes whole PDUs off its front without copying. A
//! length is trusted only after the header digest that covers it was verified, and a data segment only up to the limit that we
//! declared: a peer's length field alone never causes an allocation. A PDU whose data digest fails is returned with a mark, so
//! that the session can answer as the RFC prescribes; its data must not be used.

use bytes::{Bytes, BytesMut};
use iscsi_wire::{Bhs, Opcode};

use crate::digest::{self, DigestScope, PduLayout};

/// One received PDU; its parts share the receive buffer.
#[derive(Clone, Debug)]
pub struct RxPdu {
    /// The basic header segment.
    pub bhs: Bhs,
    /// All additional header segments, padded; empty for most PDUs.
    pub ahs: Bytes,
    /// The data segment without padding. Not to be used when `data_digest_ok` is false.
    pub data: Bytes,
    /// False when a data digest was due and did not match.
    pub data_digest_ok: bool,
}

/// Why the byte stream cannot be parsed any further: the connection must be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FramingError {
    /// There is no way to find the next PDU once a header is in doubt.
    #[error(
        "the header digest of a PDU does not match (RFC 7143 7.8): the connection is closed, nothing of the PDU was used"
    )]
    HeaderDigest,
    /// The peer's first bytes are not iSCSI, or not the start of a login.
    #[error("the first byte is {first:02x}h, which begins no Login Request (RFC 7143 4.2.4)")]
    NotALogin {
        /// The first byte.
        first: u8,
    },
    /// The peer ignored the limit that we declared.
    #[error(
        "a PDU announces {announced} bytes of data, more than the declared MaxRecvDataSegmentLength of {limit} (RFC 7143 13.12)"
    )]
    DataTooLong {
        /// DataSegmentLength of the PDU, bytes.
        announced: usize,
        /// Limit at this time, bytes.
        limit: usize,
    },
}

/// Counts of digests checked, for the metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DigestCounts {
    /// Header digests that matched.
    pub header_verified: u64,
    /// Header digests that did not.
    pub header_failed: u64,
    /// Data digests that matched.
    pub data_verified: u64,
    /// Data digests that did not.
    pub data_failed: u64,
}

/// The receiving half of a connection's framing.
#[derive(Debug)]
pub struct PduReader {
    digests: DigestScope,
    max_data_bytes: usize,
    /// True until the first PDU is complete: it must be a Login Request, and its first byte already shows that.
    expects_login: bool,
    /// Header of the PDU at the front of the buffer, once complete and verified.
    current: Option<(Bhs, PduLayout)>,
    counts: DigestCounts,
}

impl PduReader {
    /// A reader for the login phase: no digests, data segments up to `max_data_bytes`.
    pub fn new(max_data_bytes: usize) -> Self {
        Self {
            digests: DigestScope::NONE,
            max_data_bytes,
            expects_login: false,
            current: None,
            counts: DigestCounts::default(),
        }
    }

    /// Refuses a stream that does not begin with a Login Request as soon as its first byte has arrived, without waiting for a
    /// stray client to send more.
    //= rfc7143 4.2.4 LGN-01
    pub fn expect_login(mut self) -> Self {
        self.expects_login = true;
        self
    }

    /// Puts negotiated digests into effect for the PDUs that follow (RFC 7143 13.1: from the first full-feature PDU).
    //= rfc7143 13.1 DIG-04
    pub fn set_digests(&mut self, digests: DigestScope) {
        self.digests = digests;
    }

    /// Sets the largest data segment accepted from now on, in bytes: our declared MaxRecvDataSegmentLength.
    pub fn set_max_data_bytes(&mut self, bytes: usize) {
        self.max_data_bytes = bytes;
    }

    /// Digests checked so far.
    pub fn digest_counts(&self) -> DigestCounts {
        self.counts
    }

    /// Takes the next whole PDU off the front of `buffer`; `None` means that more bytes are needed.
    ///
    /// # Errors
    /// After an error the stream cannot be parsed any further: the connection must be closed.
    pub fn next(&mut self, buffer: &mut BytesMut) -> Result<Option<RxPdu>, FramingError> {
        let (bhs, layout) = match self.current {
            Some(current) => current,
            None => match self.header(buffer)? {
                Some(current) => *self.current.insert(current),
                None => return Ok(None),
            },
        };
        if buffer.len() < layout.total {
            return Ok(None);
        }
        self.current = None;
        self.expects_login = false;
        let whole = buffer.split_to(layout.total).freeze();
        let data_digest_ok = layout.covered_end == layout.total || {
            //= rfc7143 11.2.3 DIG-03 DIG-14
            let ok =
                digest::verify(&whole[layout.data_start..layout.covered_end], &whole[layout.covered_end..]);
            *if ok { &mut self.counts.data_verified } else { &mut self.counts.data_failed } += 1;
            ok
        };
        let ahs = if layout.header_end > Bhs::SIZE {
            whole.slice(Bhs::SIZE..layout.header_end)
        } else {
            Bytes::new()
        };
        let data = match layout.data_len {
            0 => Bytes::new(),
            n => whole.slice(layout.data_start..layout.data_start + n),
        };
        Ok(Some(RxPdu { bhs, ahs, data, data_digest_ok }))
    }

    /// Bytes that are still missing from the PDU, or header, that `buffer` begins with: the next receive should make room for at
    /// least these.
    pub fn missing(&self, buffer: &BytesMut) -> usize {
        let want = match (&self.current, buffer.first_chunk()) {
            (Some((_, layout)), _) => layout.total,
            // The BHS says how long the rest of the header is.
            (None, Some(bhs)) => self.digests.layout(&Bhs::from_bytes(*bhs)).data_start,
            (None, None) => Bhs::SIZE,
        };
        want.saturating_sub(buffer.len())
    }

    /// True between two PDUs.
    pub fn at_boundary(&self, buffer: &BytesMut) -> bool {
        self.current.is_none() && buffer.is_empty()
    }

    fn header(&mut self, buffer: &[u8]) -> Result<Option<(Bhs, PduLayout)>, FramingError> {
        if self.expects_login
            && let Some(&first) = buffer.first()
            && first & 0x3f != Opcode::LoginRequest.code()
        {
            return Err(FramingError::NotALogin { first });
        }
        let Some(first) = buffer.first_chunk::<{ Bhs::SIZE }>() else { return Ok(None) };
        let bhs = Bhs::from_bytes(*first);
        let layout = self.digests.layout(&bhs);
        if buffer.len() < layout.data_start {
            return Ok(None);
        }
        if self.digests.header {
            //= rfc7143 7.8 DIG-07
            let ok =
                digest::verify(&buffer[..layout.header_end], &buffer[layout.header_end..layout.data_start]);
            *if ok { &mut self.counts.header_verified } else { &mut self.counts.header_failed } += 1;
            if !ok {
                return Err(FramingError::HeaderDigest);
            }
        }
        //= rfc7143 13.12 PDU-07
        if layout.data_len > self.max_data_bytes {
            return Err(FramingError::DataTooLong { announced: layout.data_len, limit: self.max_data_bytes });
        }
        Ok(Some((bhs, layout)))
    }
}
