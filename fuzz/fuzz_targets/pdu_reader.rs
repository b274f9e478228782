//! A peer's bytes into [`PduReader`]: the splits between receives change nothing, announced lengths are never exceeded,
//! and what [`PduWriter`] makes of the PDUs is read back unchanged.

#![no_main]

use bytes::{Bytes, BytesMut};
use iscsi_core::digest::DigestScope;
use iscsi_core::pdu_reader::{FramingError, PduReader, RxPdu};
use iscsi_core::pdu_writer::{PduWriter, TxPdu};
use libfuzzer_sys::fuzz_target;

/// PDUs up to the first error, or to the end of `pieces`.
fn read(digests: DigestScope, max: usize, pieces: &[&[u8]]) -> (Vec<RxPdu>, Option<FramingError>) {
    let mut reader = PduReader::new(max);
    reader.set_digests(digests);
    let (mut buffer, mut pdus) = (BytesMut::new(), Vec::new());
    for piece in pieces {
        buffer.extend_from_slice(piece);
        loop {
            match reader.next(&mut buffer) {
                Ok(Some(pdu)) => {
                    assert!(pdu.data.len() <= max);
                    assert_eq!(pdu.data.len(), pdu.bhs.data_segment_length());
                    assert_eq!(pdu.ahs.len(), pdu.bhs.total_ahs_length());
                    pdus.push(pdu);
                }
                Ok(None) => break,
                Err(error) => return (pdus, Some(error)),
            }
        }
        assert!(reader.missing(&buffer) > 0, "it asks for more, so it must say how much");
    }
    (pdus, None)
}

fn same(a: &[RxPdu], b: &[RxPdu]) -> bool {
    a.len() == b.len()
        && a.iter().zip(b).all(|(a, b)| {
            a.bhs == b.bhs && a.ahs == b.ahs && a.data == b.data && a.data_digest_ok == b.data_digest_ok
        })
}

fuzz_target!(|input: &[u8]| {
    let [choice, cut, bytes @ ..] = input else { return };
    let digests = DigestScope { header: choice & 1 != 0, data: choice & 2 != 0 };
    let max = [0, 512, 8192, 1 << 20][usize::from(choice >> 2 & 3)];
    let whole = read(digests, max, &[bytes]);
    let (pdus, error) = &whole;
    let pieces: Vec<&[u8]> = bytes.chunks(usize::from(*cut).max(1)).collect();
    let (cut_pdus, cut_error) = read(digests, max, &pieces);
    assert!(same(pdus, &cut_pdus) && *error == cut_error);

    for digests in [
        DigestScope::NONE,
        DigestScope { header: true, data: false },
        DigestScope { header: true, data: true },
    ] {
        let mut writer = PduWriter::new();
        writer.set_digests(digests);
        for pdu in pdus {
            writer.push(TxPdu { bhs: pdu.bhs, ahs: pdu.ahs.clone(), data: pdu.data.clone().into() });
        }
        let mut segments: Vec<Bytes> = Vec::new();
        writer.take(usize::MAX, &mut segments);
        assert_eq!(writer.queued_bytes(), 0);
        let pieces: Vec<&[u8]> = segments.iter().map(|segment| &segment[..]).collect();
        let (back, error) = read(digests, max, &pieces);
        assert_eq!(error, None);
        assert!(back.iter().all(|pdu| pdu.data_digest_ok));
        assert!(back.len() == pdus.len());
        for (a, b) in back.iter().zip(pdus) {
            assert!(a.bhs == b.bhs && a.ahs == b.ahs && a.data == b.data);
        }
    }
});
