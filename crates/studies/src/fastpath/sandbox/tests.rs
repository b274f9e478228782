//! Every way delivers every byte, and a damaged byte in any place is found.

use super::super::contenders;
use super::*;

const SMALL: Shape = Shape {
    connections: 3,
    commands: 7,
    pdus: 3,
    pdu_bytes: 5120,
    segment_bytes: 1448,
    in_order: true,
    markers: None,
};

fn receive(sandbox: &mut Sandbox, work: &Work<'_>) -> Result<Whole, String> {
    let mut whole = Whole::default();
    let purge = Purge::of(0);
    sandbox.receive_all(work, Regime::Warm, &purge, &mut whole)?;
    Ok(whole)
}

#[test]
fn every_way_and_contender_delivers_what_was_sent() {
    for contender in &contenders::all() {
        for (way, in_order) in Way::ALL.into_iter().flat_map(|way| [(way, true), (way, false)]) {
            let mut sandbox = Sandbox::new(Shape { in_order, ..SMALL }, true);
            for _ in 0..3 {
                sandbox.load();
                let work = Work { way, contender, crc: true, copy: true };
                let whole = receive(&mut sandbox, &work).unwrap();
                assert_eq!(whole.pdus, 21);
            }
        }
    }
}

#[test]
fn what_is_left_out_is_left_out_and_nothing_else() {
    let all = contenders::all();
    let contender = all.last().unwrap();
    for way in Way::ALL {
        let mut sandbox = Sandbox::new(SMALL, way != Way::AsBuilt);
        sandbox.load();
        receive(&mut sandbox, &Work { way, contender, crc: false, copy: false }).unwrap();
        let bytes = SMALL.command_bytes();
        assert!((0..7).all(|command| sandbox.buffers.of(command, bytes).iter().all(|byte| *byte == 0xee)));
    }
}

/// A flipped bit in a segment fails that PDU, wherever it is, and its command does not complete.
#[test]
fn a_flipped_bit_fails_its_pdu() {
    let shape = Shape { connections: 1, commands: 1, pdus: 1, pdu_bytes: 512, segment_bytes: 100, ..SMALL };
    let contenders = contenders::all();
    for way in Way::ALL {
        for (n, at) in (0..48 + 4 + 512 + 4).enumerate() {
            let contender = &contenders[n % contenders.len()];
            let mut sandbox = Sandbox::new(shape, true);
            sandbox.load();
            sandbox.connections[0].queue.flip(at);
            let work = Work { way, contender, crc: true, copy: true };
            let result = receive(&mut sandbox, &work);
            assert!(result.is_err(), "{} with {}: byte {at}", way.title(), contender.name);
            assert_eq!(sandbox.completed, 0);
        }
    }
}

/// The bytes of markers reach no buffer and no digest, wherever they are: in a header, in the data, in a digest, or cut by segments.
#[test]
fn markers_are_left_out_of_data_and_digests() {
    let contenders = contenders::all();
    for (n, interval) in [512, 1000, 1447, 1448, 2048].into_iter().enumerate() {
        for way in [Way::Layered, Way::Interleaved] {
            for (segment_bytes, in_order) in [(100, true), (1448, true), (65536, false)] {
                let shape = Shape { segment_bytes, in_order, markers: Some(interval), ..SMALL };
                let mut sandbox = Sandbox::new(shape, true);
                let contender = &contenders[n % contenders.len()];
                for _ in 0..3 {
                    sandbox.load();
                    let whole =
                        receive(&mut sandbox, &Work { way, contender, crc: true, copy: true }).unwrap();
                    assert_eq!(whole.pdus, 21);
                }
            }
        }
    }
}

/// A flipped bit of a marker harms nobody; one of a byte next to it is found.
#[test]
fn a_flipped_bit_counts_unless_it_is_in_a_marker() {
    let shape = Shape { connections: 1, commands: 1, pdus: 1, markers: Some(100), pdu_bytes: 512, ..SMALL };
    let contenders = contenders::all();
    let contender = contenders.last().unwrap();
    let bytes = Markers::new(shape.markers).stream_bytes(48 + 4 + 512 + 4);
    for (way, at) in
        [Way::Layered, Way::Interleaved].into_iter().flat_map(|way| (0..bytes).map(move |at| (way, at)))
    {
        let mut sandbox = Sandbox::new(shape, true);
        sandbox.load();
        sandbox.connections[0].queue.flip(at);
        let result = receive(&mut sandbox, &Work { way, contender, crc: true, copy: true });
        assert_eq!(result.is_ok(), at % 108 >= 100, "{}: byte {at}", way.title());
    }
}
