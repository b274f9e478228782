//! Text of a peer into the parser of pairs, the values, and a negotiation in either role: whatever the text, the
//! parameters stay within the ranges of the standard and within our bounds.

#![no_main]

use iscsi_core::chap::{ChapAlgorithm, PeerChallenge, binary, choose_algorithm};
use iscsi_core::names::IscsiName;
use iscsi_core::negotiation::{Negotiator, Phase, Received, Role, processing_order};
use iscsi_core::params::{DataOrder, Bursts, Bounds, DigestPolicy, Params};
use iscsi_core::text_exchange::{TextAssembler, TextSplitter};
use iscsi_core::wire::{TextBuilder, TextPairs};
use libfuzzer_sys::fuzz_target;

fn check(params: &Params, bounds: &Bounds, offered: bool) {
    assert!((512..1 << 24).contains(&params.max_send_data_segment_length));
    assert!((512..1 << 24).contains(&params.bursts.max_burst_length));
    assert!((512..1 << 24).contains(&params.bursts.first_burst_length));
    assert!(params.bursts.max_outstanding_r2t >= 1 && params.max_connections >= 1);
    assert!(params.default_time2wait_s <= 3600 && params.default_time2retain_s <= 3600);
    assert!(params.error_recovery_level == 0 && params.protocol_level <= 1);
    // Our Yes is enough, and No is nothing that a peer can impose.
    assert!(params.data_in_order.pdus || !bounds.data_in_order.pdus);
    assert!(params.data_in_order.sequences || !bounds.data_in_order.sequences);
    // The standard's default applies where neither side named a value.
    let default = Params::default();
    assert!(params.bursts.max_burst_length <= bounds.bursts.max_burst_length.max(default.bursts.max_burst_length));
    assert!(params.bursts.first_burst_length <= bounds.bursts.first_burst_length.max(default.bursts.first_burst_length));
    assert!(params.bursts.max_outstanding_r2t <= bounds.bursts.max_outstanding_r2t.max(1));
    if bounds.header_digest == DigestPolicy::Off {
        assert!(!params.digests.header);
    }
    if bounds.bursts.initial_r2t && offered {
        assert!(params.bursts.initial_r2t);
    }
}

fuzz_target!(|input: &[u8]| {
    let [choice, bytes @ ..] = input else { return };
    let mut assembler = TextAssembler::default();
    for piece in bytes.chunks(usize::from(*choice).max(1)) {
        if assembler.add(piece).is_err() {
            return;
        }
    }
    let text = assembler.take();
    assert_eq!(text, bytes);
    let Ok(pairs) = TextPairs::parse(&text) else { return };

    // Parsed pairs can be built again, and split into pieces that join again.
    let mut builder = TextBuilder::new();
    for (key, value) in &pairs {
        builder.push(key, value);
        let _ = IscsiName::parse(value).map(|name| assert_eq!(IscsiName::parse(name.as_str()), Ok(name)));
        let _ = binary(key, value);
        let _ = PeerChallenge::parse("7", value);
        let _ = choose_algorithm(value, &ChapAlgorithm::ALL);
    }
    let built = builder.finish();
    assert_eq!(built, text);
    let mut splitter = TextSplitter::default();
    splitter.extend(&built);
    let mut joined = Vec::new();
    loop {
        let (piece, more) = splitter.next_piece(usize::from(*choice).max(1));
        joined.extend_from_slice(&piece);
        if !more {
            break;
        }
    }
    assert_eq!(joined, text);

    let bounds = Bounds {
        header_digest: [DigestPolicy::Off, DigestPolicy::Offered, DigestPolicy::Required]
            [usize::from(choice % 3)],bursts: Bursts { max_burst_length: 65536 << (choice & 3), initial_r2t: choice & 4 != 0, immediate_data: choice & 8 != 0, ..Bounds::default().bursts },data_in_order: DataOrder { pdus: choice & 64 != 0, sequences: choice & 128 != 0 },
        ..Bounds::default()
    };
    for role in [Role::Target, Role::Initiator] {
        for phase in [Phase::Operational, Phase::Security, Phase::FullFeature] {
            let mut negotiator = Negotiator::new(role, bounds.clone(), Params::default());
            if choice & 16 != 0 {
                negotiator.set_discovery();
            }
            if choice & 32 != 0 {
                negotiator.set_joining();
            }
            let offered = role == Role::Initiator;
            if offered {
                negotiator.offer_all();
            }
            let mut ordered = pairs.clone();
            ordered.sort_by_key(|(name, _)| processing_order(name));
            for (name, value) in ordered {
                match negotiator.receive(phase, name, value) {
                    Ok(Received::Answer(answer)) => assert!(!answer.is_empty() && !answer.contains('\0')),
                    Ok(_) => {}
                    Err(violation) => {
                        assert!(!violation.to_string().is_empty());
                        return;
                    }
                }
                check(negotiator.params(), &bounds, offered && choice & 16 == 0);
            }
            negotiator.own_proposals();
            if negotiator.check().is_ok()
                && choice & 16 == 0
                && negotiator.params().unsolicited_data_possible()
            {
                assert!(negotiator.params().bursts.first_burst_length <= negotiator.params().bursts.max_burst_length);
            }
        }
    }
});
