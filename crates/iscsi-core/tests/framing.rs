//! [`PduWriter`] and [`PduReader`] back to back: any PDU, any digests, cut anywhere; and what happens when bytes change on the
//! way.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::{Bytes, BytesMut};
use iscsi_core::digest::DigestScope;
use iscsi_core::pdu_reader::{FramingError, PduReader, RxPdu};
use iscsi_core::pdu_writer::{Assemble, PduWriter, TxData, TxPdu, TxSegment};
use iscsi_core::wire::{Bhs, MAX_DATA_SEGMENT_LENGTH, Opcode};
use proptest::prelude::*;

const ALL_DIGESTS: [DigestScope; 4] = [
    DigestScope { header: false, data: false },
    DigestScope { header: true, data: false },
    DigestScope { header: false, data: true },
    DigestScope { header: true, data: true },
];

fn digests() -> impl Strategy<Value = DigestScope> {
    prop::sample::select(ALL_DIGESTS.to_vec())
}

/// Data that is assembled when it is sent; counts how much was.
#[derive(Debug, Default)]
struct Later {
    data: Bytes,
    made: AtomicUsize,
}

impl Later {
    fn all(data: impl Into<Bytes>) -> (Arc<Self>, TxSegment) {
        let later = Arc::new(Self { data: data.into(), ..Self::default() });
        (Arc::clone(&later), TxSegment::Later(Arc::clone(&later) as Arc<dyn Assemble>, 0..later.data.len()))
    }
}

impl Assemble for Later {
    fn total_bytes(&self) -> usize {
        self.data.len()
    }

    fn part(&self, range: Range<usize>) -> TxData {
        self.made.fetch_add(range.len(), Ordering::Relaxed);
        self.data.slice(range).into()
    }
}

prop_compose! {
    /// A PDU with arbitrary header, AHS and data; sometimes with the checksum computed in advance, or with data yet to be
    /// assembled.
    fn any_pdu()(
        header in prop::collection::vec(any::<u8>(), 48),
        ahs_words in prop_oneof![3 => 0usize..1, 1 => 0usize..256],
        data in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..10),
            prop::collection::vec(any::<u8>(), 500..530),
            prop::collection::vec(any::<u8>(), 0..5000),
        ],
        (computed, later) in any::<(bool, bool)>(),
    ) -> TxPdu {
        let bhs = Bhs::from_bytes(header.try_into().unwrap());
        let bytes = Bytes::from(data);
        let crc32c = computed.then(|| integrity::crc32c(&bytes));
        let data = if later { Later::all(bytes).1 } else { TxData { bytes, crc32c }.into() };
        TxPdu { bhs, ahs: Bytes::from(vec![0x5a; ahs_words * 4]), data }
    }
}

fn write(digests: DigestScope, pdus: &[TxPdu]) -> Vec<u8> {
    let mut writer = PduWriter::new();
    writer.set_digests(digests);
    for pdu in pdus {
        writer.push(pdu.clone());
    }
    let mut segments = Vec::new();
    let queued = writer.queued_bytes();
    while writer.queued_bytes() > 0 {
        writer.take(usize::MAX, &mut segments);
    }
    let bytes: Vec<u8> = segments.iter().flatten().copied().collect();
    assert_eq!(bytes.len(), queued);
    assert_eq!(writer.queued_bytes(), 0);
    bytes
}

fn reader(digests: DigestScope) -> PduReader {
    let mut reader = PduReader::new(MAX_DATA_SEGMENT_LENGTH);
    reader.set_digests(digests);
    reader
}

fn assert_same(tx: &TxPdu, rx: &RxPdu) {
    let mut bhs = tx.bhs;
    bhs.set_total_ahs_length(tx.ahs.len());
    bhs.set_data_segment_length(tx.data.len());
    assert_eq!(rx.bhs, bhs);
    assert_eq!(rx.ahs, tx.ahs);
    assert_eq!(rx.data, tx.data.bytes());
    assert!(rx.data_digest_ok);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    // covers: PDU-01, PDU-09, DIG-01, DIG-03, DIG-14, AHS-03
    #[test]
    fn pdu_01_any_pdu_survives_any_cut(
        pdus in prop::collection::vec(any_pdu(), 1..6),
        digests in digests(),
        cuts in prop::collection::vec(1usize..700, 1..40),
    ) {
        let bytes = write(digests, &pdus);
        let mut reader = reader(digests);
        let (mut buffer, mut rest, mut cuts, mut received) =
            (BytesMut::new(), &bytes[..], cuts.iter().cycle(), Vec::new());
        while !rest.is_empty() {
            let (piece, after) = rest.split_at((*cuts.next().unwrap()).min(rest.len()));
            rest = after;
            buffer.extend_from_slice(piece);
            while let Some(pdu) = reader.next(&mut buffer).unwrap() {
                received.push(pdu);
            }
            let missing = reader.missing(&buffer);
            prop_assert!(missing > 0);
            // Nothing can be complete before that many bytes have arrived.
            let mut probe = buffer.clone();
            probe.extend_from_slice(&rest[..rest.len().min(missing - 1)]);
            let mut copy = PduReader::new(MAX_DATA_SEGMENT_LENGTH);
            copy.set_digests(digests);
            prop_assert!(copy.next(&mut probe).unwrap().is_none());
        }
        prop_assert!(reader.at_boundary(&buffer));
        prop_assert_eq!(received.len(), pdus.len());
        for (tx, rx) in pdus.iter().zip(&received) {
            assert_same(tx, rx);
        }
    }

    /// A gathering send that takes as much as it can, and the queue that is left.
    // covers: PDU-01
    #[test]
    fn pdu_01_partial_sends_lose_nothing(
        pdus in prop::collection::vec(any_pdu(), 1..6),
        digests in digests(),
        sends in prop::collection::vec(1usize..3000, 1..20),
    ) {
        let whole = write(digests, &pdus);
        let mut writer = PduWriter::new();
        writer.set_digests(digests);
        let (mut sent, mut sends, mut next) = (Vec::new(), sends.iter().cycle(), pdus.iter());
        loop {
            if let Some(pdu) = next.next() {
                writer.push(pdu.clone());
            } else if writer.queued_bytes() == 0 {
                break;
            }
            let mut slices = [std::io::IoSlice::new(&[]); 3];
            let count = writer.gather(&mut slices);
            let gathered: Vec<u8> = slices[..count].iter().flat_map(|s| s.iter().copied()).collect();
            let taken = (*sends.next().unwrap()).min(gathered.len());
            sent.extend_from_slice(&gathered[..taken]);
            writer.advance(taken);
        }
        prop_assert_eq!(sent, whole);
    }

    /// One bit that changes on the way is noticed wherever a digest covers it, and none of the data is accepted as good.
    // covers: DIG-03, DIG-07, DIG-14
    #[test]
    fn dig_14_a_flipped_bit_is_noticed(pdu in any_pdu(), at in any::<prop::sample::Index>(), bit in 0u8..8) {
        let digests = DigestScope { header: true, data: true };
        let mut bytes = write(digests, std::slice::from_ref(&pdu));
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        let header_end = 48 + pdu.ahs.len() + 4;
        let mut buffer = BytesMut::from(&bytes[..]);
        // A longer length may make the reader wait for bytes that never arrive: provide more than any length requires.
        buffer.resize(bytes.len() + MAX_DATA_SEGMENT_LENGTH.min(70_000), 0);
        match reader(digests).next(&mut buffer) {
            Err(error) => {
                prop_assert_eq!(error, FramingError::HeaderDigest);
                prop_assert!(at < header_end);
            }
            Ok(Some(rx)) => {
                prop_assert!(at >= header_end, "a header bit passed");
                prop_assert!(!rx.data_digest_ok);
            }
            Ok(None) => prop_assert!(false, "nobody waits for the data of a header in doubt"),
        }
    }
}

// covers: DIG-02
#[test]
fn dig_02_digests_on_the_wire_are_those_of_the_standard() {
    // RFC 7143 A.4, as the words appear on the wire.
    let read_10: [u8; 48] = [
        0x01, 0xc0, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x14,
        0x00, 0x00, 0x00, 0x00, 0x00, 0x04, 0x00, 0x00, 0x00, 0x00, 0x14, 0x00, 0x00, 0x00, 0x18, 0x28, 0x00,
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    ];
    let header = DigestScope { header: true, data: false };
    let bytes = write(header, &[TxPdu::header_only(Bhs::from_bytes(read_10))]);
    assert_eq!(bytes[48..], [0x56, 0x3a, 0x96, 0xd9]);
    let up: Vec<u8> = (0..32).collect();
    let down: Vec<u8> = (0..32).rev().collect();
    for (data, digest) in [
        (vec![0; 32], [0xaa, 0x36, 0x91, 0x8a]),
        (vec![0xff; 32], [0x43, 0xab, 0xa8, 0x62]),
        (up, [0x4e, 0x79, 0xdd, 0x46]),
        (down, [0x5c, 0xdb, 0x3f, 0x11]),
    ] {
        let data_digest = DigestScope { header: false, data: true };
        let pdu = TxPdu::with_data(Bhs::from_bytes([0; 48]), Bytes::from(data));
        assert_eq!(write(data_digest, &[pdu])[80..], digest);
    }
}

// covers: DIG-03
#[test]
fn dig_03_an_empty_segment_has_no_digest_and_padding_is_covered() {
    for digests in ALL_DIGESTS {
        let header = if digests.header { 4 } else { 0 };
        assert_eq!(write(digests, &[TxPdu::header_only(Bhs::from_bytes([5; 48]))]).len(), 48 + header);
        for len in 1..=9usize {
            let pdu = TxPdu::with_data(Bhs::from_bytes([0; 48]), Bytes::from(vec![0xee; len]));
            let bytes = write(digests, &[pdu]);
            let digest = if digests.data { 4 } else { 0 };
            assert_eq!(bytes.len(), 48 + header + len.next_multiple_of(4) + digest);
            // PDU-10: the padding never discloses a byte of memory.
            assert!(bytes[48 + header + len..bytes.len() - digest].iter().all(|byte| *byte == 0));
        }
    }
}

/// A sender may pad with any bytes; the digest covers them.
// covers: DIG-03, PDU-02
#[test]
fn dig_03_nonzero_padding_of_a_peer_verifies() {
    let digests = DigestScope { header: false, data: true };
    let mut bhs = Bhs::from_bytes([0; 48]);
    bhs.set_data_segment_length(5);
    let mut buffer = BytesMut::from(&bhs.as_bytes()[..]);
    buffer.extend_from_slice(b"hello\xa1\xa2\xa3");
    let digest = integrity::crc32c(b"hello\xa1\xa2\xa3").to_le_bytes();
    buffer.extend_from_slice(&digest);
    let pdu = reader(digests).next(&mut buffer).unwrap().unwrap();
    assert!(pdu.data_digest_ok);
    assert_eq!(pdu.data, b"hello"[..]);
}

// covers: PDU-07
#[test]
fn pdu_07_data_above_the_declared_limit_is_refused_before_it_comes() {
    for digests in ALL_DIGESTS {
        let mut reader = PduReader::new(8192);
        reader.set_digests(digests);
        let bytes = write(digests, &[TxPdu::with_data(Bhs::from_bytes([0; 48]), Bytes::from(vec![0; 8193]))]);
        let header = if digests.header { 52 } else { 48 };
        let mut buffer = BytesMut::from(&bytes[..header]);
        let capacity = buffer.capacity();
        assert_eq!(
            reader.next(&mut buffer).unwrap_err(),
            FramingError::DataTooLong { announced: 8193, limit: 8192 }
        );
        assert_eq!(buffer.capacity(), capacity);
        let bytes = write(digests, &[TxPdu::with_data(Bhs::from_bytes([0; 48]), Bytes::from(vec![0; 8192]))]);
        let mut reader = PduReader::new(8192);
        reader.set_digests(digests);
        assert!(reader.next(&mut BytesMut::from(&bytes[..])).unwrap().is_some());
    }
}

// covers: PDU-01
#[test]
fn pdu_01_the_longest_pdu() {
    let digests = DigestScope { header: true, data: true };
    let data = Bytes::from(vec![0x77; MAX_DATA_SEGMENT_LENGTH]);
    let pdu = TxPdu { bhs: Bhs::from_bytes([9; 48]), ahs: Bytes::from(vec![1; 1020]), data: data.into() };
    let bytes = write(digests, std::slice::from_ref(&pdu));
    assert_eq!(bytes.len(), 48 + 1020 + 4 + (1 << 24) + 4);
    assert_same(&pdu, &reader(digests).next(&mut BytesMut::from(&bytes[..])).unwrap().unwrap());
}

// covers: PDU-09
#[test]
fn pdu_09_one_byte_at_a_time_and_many_pdus_at_once() {
    let digests = DigestScope { header: true, data: true };
    let pdus: Vec<TxPdu> = (0..50u8)
        .map(|n| TxPdu::with_data(Bhs::from_bytes([n; 48]), Bytes::from(vec![n; usize::from(n)])))
        .collect();
    let bytes = write(digests, &pdus);
    let (mut slow, mut buffer, mut count) = (reader(digests), BytesMut::new(), 0);
    for byte in &bytes {
        buffer.extend_from_slice(&[*byte]);
        while let Some(pdu) = slow.next(&mut buffer).unwrap() {
            assert_same(&pdus[count], &pdu);
            count += 1;
        }
    }
    assert_eq!(count, 50);
    let (mut fast, mut buffer, mut count) = (reader(digests), BytesMut::from(&bytes[..]), 0);
    while let Some(pdu) = fast.next(&mut buffer).unwrap() {
        assert_same(&pdus[count], &pdu);
        count += 1;
    }
    assert_eq!(count, 50);
    let counts = fast.digest_counts();
    assert_eq!((counts.header_verified, counts.data_verified), (50, 49));
    assert_eq!((counts.header_failed, counts.data_failed), (0, 0));
}

// covers: DIG-07
#[test]
fn dig_07_each_byte_of_the_header_and_its_digest_is_watched() {
    let digests = DigestScope { header: true, data: false };
    let pdu =
        TxPdu { bhs: Bhs::from_bytes([0; 48]), ahs: Bytes::from(vec![2; 8]), data: TxData::default().into() };
    let bytes = write(digests, &[pdu]);
    assert_eq!(bytes.len(), 60);
    for at in 0..60 {
        let mut bad = bytes.clone();
        bad[at] ^= 0x10;
        bad.resize(4096, 0);
        let mut reader = reader(digests);
        assert_eq!(
            reader.next(&mut BytesMut::from(&bad[..])).unwrap_err(),
            FramingError::HeaderDigest,
            "byte {at}"
        );
        assert_eq!(reader.digest_counts().header_failed, 1);
    }
}

// covers: PDU-01
#[test]
fn pdu_01_data_are_made_a_few_pdus_ahead_of_the_driver() {
    const PDU_BYTES: usize = 100_000;
    for digests in ALL_DIGESTS {
        let mut writer = PduWriter::new();
        writer.set_digests(digests);
        let (first, data) = Later::all(vec![1; PDU_BYTES]);
        writer.push(TxPdu::with_data(Bhs::from_bytes([1; 48]), data));
        let rest: Vec<_> = (2..9)
            .map(|n| {
                let (later, data) = Later::all(vec![n; PDU_BYTES]);
                writer.push(TxPdu::with_data(Bhs::from_bytes([n; 48]), data));
                // A PDU whose data exists keeps its place behind those whose data does not.
                writer.push(TxPdu::header_only(Bhs::from_bytes([n; 48])));
                later
            })
            .collect();
        // PDUs pushed before are digested as was in effect then.
        writer.set_digests(DigestScope::NONE);
        let made =
            || [&first].into_iter().chain(&rest).map(|of| of.made.load(Ordering::Relaxed)).sum::<usize>();
        assert_eq!(made(), 0);
        let (mut reader, mut buffer, mut ahead) = (reader(digests), BytesMut::new(), Vec::new());
        let mut sent = Vec::new();
        while writer.queued_bytes() > 0 {
            let (before, mut segments) = (made(), Vec::new());
            writer.take(usize::MAX, &mut segments);
            ahead.push(made() - before);
            segments.iter().for_each(|segment| buffer.extend_from_slice(segment));
        }
        while let Some(pdu) = reader.next(&mut buffer).unwrap() {
            assert!(pdu.data_digest_ok && pdu.data.iter().all(|&byte| byte == pdu.bhs.as_bytes()[1]));
            sent.push((pdu.bhs.as_bytes()[1], pdu.data.len()));
        }
        let due = (2..9).flat_map(|n| [(n, PDU_BYTES), (n, 0)]);
        assert!(sent.into_iter().eq([(1, PDU_BYTES)].into_iter().chain(due)));
        assert_eq!(ahead, [3 * PDU_BYTES, 3 * PDU_BYTES, 2 * PDU_BYTES]);
    }
}

/// The bytes of PDUs other than Data-In are counted exactly, even where both share a buffer, until they are taken or sent.
#[test]
fn answers_are_counted_apart_from_data_of_reads() {
    for digests in ALL_DIGESTS {
        let fill = || {
            let mut writer = PduWriter::new();
            writer.set_digests(digests);
            let (mut answers, mut all) = (0, 0);
            for (n, length) in [0, 4, 513, 500, 9000, 1, 600, 0].into_iter().cycle().take(60).enumerate() {
                let opcode = if n % 3 == 0 { Opcode::NopIn } else { Opcode::DataIn };
                let data = vec![n as u8; length];
                let segment = if n % 7 == 6 { Later::all(data).1 } else { Bytes::from(data).into() };
                let mut bhs = [0; Bhs::SIZE];
                bhs[0] = opcode.code();
                writer.push(TxPdu::with_data(Bhs::from_bytes(bhs), segment));
                answers += if n % 3 == 0 { writer.queued_bytes() - all } else { 0 };
                all = writer.queued_bytes();
                assert_eq!(writer.answer_bytes(), answers, "{digests:?} after {n}");
            }
            writer
        };
        let (mut writer, mut out) = (fill(), Vec::new());
        while writer.queued_bytes() > 0 {
            writer.take(1, &mut out);
            assert!(writer.answer_bytes() <= writer.queued_bytes());
        }
        assert_eq!(writer.answer_bytes(), 0);
        let (mut writer, whole) = (fill(), out.concat());
        out.clear();
        while writer.queued_bytes() > 0 {
            let (before, queued) = (out.len(), writer.queued_bytes());
            writer.take_bytes(3, 333, &mut out);
            let taken: usize = out[before..].iter().map(Bytes::len).sum();
            assert!(taken > 0 && taken <= 333 && out.len() <= before + 3);
            assert_eq!(writer.queued_bytes(), queued - taken);
            assert!(writer.answer_bytes() <= writer.queued_bytes());
        }
        assert_eq!(writer.answer_bytes(), 0);
        assert!(out.concat() == whole, "cut anywhere, the bytes are the same");
        let mut writer = fill();
        while writer.queued_bytes() > 0 {
            let mut slices = [std::io::IoSlice::new(&[]); 8];
            let count = writer.gather(&mut slices);
            let gathered: usize = slices[..count].iter().map(|slice| slice.len()).sum();
            writer.advance(gathered.min(333));
            assert!(writer.answer_bytes() <= writer.queued_bytes());
        }
        assert_eq!(writer.answer_bytes(), 0);
    }
}

// covers: LGN-01
#[test]
fn a_stream_that_begins_with_anything_but_a_login_is_refused_at_its_first_byte() {
    for first in 0..=u8::MAX {
        let mut buffer = BytesMut::from(&[first][..]);
        // The two bits above the opcode are not part of it.
        match (PduReader::new(8192).expect_login().next(&mut buffer), first & 0x3f) {
            (Ok(None), 0x03) => {}
            (Err(FramingError::NotALogin { first: refused }), opcode) if opcode != 0x03 => {
                assert_eq!(refused, first);
            }
            (result, _) => panic!("{first:02x}: {result:?}"),
        }
        assert!(matches!(PduReader::new(8192).next(&mut buffer), Ok(None)), "{first:02x}");
    }
    // Only the first PDU has to be one.
    let mut reader = PduReader::new(8192).expect_login();
    let pdu = |opcode: u8| {
        let mut bhs = [0; Bhs::SIZE];
        bhs[0] = opcode;
        bhs
    };
    let mut buffer = BytesMut::from(&[pdu(0x43), pdu(0x01)].concat()[..]);
    for opcode in [0x43, 0x01] {
        let got = reader.next(&mut buffer).unwrap().unwrap();
        assert_eq!(got.bhs.as_bytes()[0], opcode);
    }
}
