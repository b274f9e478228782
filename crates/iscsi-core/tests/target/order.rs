//! Data in any order: DataPDUInOrder and DataSequenceInOrder, as negotiated and as received.

use iscsi_core::negotiation::{Negotiator, Phase, Received, Role};
use iscsi_core::params::{Bounds, DataOrder, Params};
use iscsi_core::send_order::SendOrder;
use iscsi_core::wire::keys;

use crate::play::Peer;

/// Sessions without unsolicited data, with bursts of 1 KiB.
const SOLICITED: &str = "InitialR2T=Yes ImmediateData=No MaxBurstLength=1024 FirstBurstLength=512";

/// A session in which both ends want this order.
fn session(pdus: &str, sequences: &str, keys: &str) -> Peer {
    session_with(pdus, sequences, keys, |_| {})
}

fn session_with(pdus: &str, sequences: &str, keys: &str, set: impl FnOnce(&mut Peer)) -> Peer {
    Peer::logged_in_with(&format!("DataPDUInOrder={pdus} DataSequenceInOrder={sequences} {keys}"), |peer| {
        let bounds = &mut peer.policy.bounds;
        (bounds.data_in_order.pdus, bounds.data_in_order.sequences) = (pdus == "Yes", sequences == "Yes");
        bounds.bursts.max_outstanding_r2t = 8;
        set(peer);
    })
}

/// A multiplicative generator; no statistics are needed.
fn draw(random: &mut u64, bound: usize) -> usize {
    *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*random >> 33) as usize % bound
}

/// The result is Yes unless both ends say No, whoever offers; a No of ours is Yes where recovery of PDUs is wanted.
// covers: KEY-17, KEY-18
#[test]
fn key_17_and_key_18_are_no_only_if_both_say_no() {
    for (ours, theirs, level) in [(true, true, 0), (true, false, 0), (false, true, 0), (false, false, 0)]
        .into_iter()
        .chain([(false, false, 1), (false, false, 2)])
    {
        for key in [keys::DATA_PDU_IN_ORDER, keys::DATA_SEQUENCE_IN_ORDER] {
            let bounds = Bounds {
                data_in_order: DataOrder { pdus: ours, sequences: ours },
                error_recovery_level: level,
                ..Bounds::default()
            };
            let (yes, word) = (ours || theirs || level > 0, |yes| if yes { "Yes" } else { "No" });
            let agreed = |params: &Params| match key {
                keys::DATA_PDU_IN_ORDER => params.data_in_order.pdus,
                _ => params.data_in_order.sequences,
            };
            let mut responder = Negotiator::new(Role::Target, bounds.clone(), Params::default());
            let answer = responder.receive(Phase::Operational, key, word(theirs));
            assert_eq!(answer, Ok(Received::Answer(word(yes).to_owned())), "{key}");
            assert_eq!(agreed(responder.params()), yes, "{key}");

            let mut originator = Negotiator::new(Role::Initiator, bounds, Params::default());
            let offers = originator.offer_all();
            let offer = offers.iter().find(|(name, _)| *name == key).expect("it is offered");
            assert_eq!(offer.1, word(ours || level > 0), "{key}");
            let answer = originator.receive(Phase::Operational, key, word(yes));
            assert_eq!((answer, agreed(originator.params())), (Ok(Received::Done), yes), "{key}");
        }
    }
    // No is no admissible answer to Yes.
    let mut originator = Negotiator::new(Role::Initiator, Bounds::default(), Params::default());
    originator.offer_all();
    assert!(originator.receive(Phase::Operational, keys::DATA_PDU_IN_ORDER, "No").is_err());
}

/// Both PDUs and sequences, in every order that was agreed on: the medium gets the bytes in their places.
// covers: DAT-05, KEY-17, KEY-18
#[test]
fn dat_05_a_hundred_orders_give_the_same_bytes() {
    for seed in 1..=100u64 {
        let mut random = seed;
        let (pdus, sequences) = [("No", "No"), ("No", "Yes"), ("Yes", "No")][seed as usize % 3];
        let (bursts, piece) = (1 + draw(&mut random, 4), [128, 200, 512][draw(&mut random, 3)]);
        let bytes = bursts * 1024;
        let mut peer = session(pdus, sequences, &format!("{SOLICITED} MaxOutstandingR2T=8"));
        peer.play(&format!(
            "I> ScsiCommand itt=1 F W edtl={bytes}
             D< Start itt=1"
        ));
        let requests = peer.outcome_of(&format!("D> need itt=1 bytes={bytes}"));
        assert_eq!(requests.len(), bursts);
        // The places of each burst's PDUs, in the order in which they are sent.
        let mut owed: Vec<(usize, Vec<usize>, usize)> = (0..bursts)
            .map(|burst| {
                let mut places: Vec<usize> = (burst * 1024..burst * 1024 + 1024).step_by(piece).collect();
                if pdus == "No" {
                    (1..places.len()).rev().for_each(|i| places.swap(i, draw(&mut random, i + 1)));
                }
                (burst, places, 0)
            })
            .collect();
        let mut outcome = Vec::new();
        while !owed.is_empty() {
            assert_eq!(outcome, Vec::<String>::new(), "seed {seed}");
            let which = if sequences == "No" { draw(&mut random, owed.len()) } else { 0 };
            let (ttt, places, sent) = &mut owed[which];
            let (at, end) = (places[*sent], (*ttt + 1) * 1024);
            let (length, last) = (piece.min(end - at), if *sent + 1 == places.len() { "F" } else { "" });
            let line = format!("I> DataOut itt=1 ttt={ttt} data_sn={sent} offset={at} data={length} {last}");
            outcome = peer.outcome_of(&line);
            *sent += 1;
            if *sent == places.len() {
                owed.remove(which);
            }
        }
        assert_eq!(outcome, [format!("D< DataOut itt=1 bytes={bytes}")], "seed {seed}");
    }
}

/// Unsolicited data has no order either, and what is behind a gap waits until the gap is closed.
// covers: DAT-05, UNS-03
#[test]
fn dat_05_unsolicited_data_in_any_order() {
    let keys = "InitialR2T=No ImmediateData=Yes MaxBurstLength=2048 FirstBurstLength=2048";
    let mut peer = session("No", "No", keys);
    peer.play(
        "I> ScsiCommand itt=1 W edtl=2048 data=512
         D< Start itt=1
         I> DataOut itt=1 data_sn=0 offset=1536 data=512
         I> DataOut itt=1 data_sn=1 offset=512 data=512
         D> need itt=1 bytes=2048",
    );
    assert_eq!(peer.session().holdings().data_out.kept_bytes, 1536);
    peer.play(
        "I> DataOut itt=1 data_sn=2 offset=1024 data=512 F
         D< DataOut itt=1 bytes=2048
         D> complete itt=1 transfer=2048
         T< ScsiResponse itt=1 status=0x00",
    );
}

/// Where order was agreed on, the same PDUs fail the task, and nothing of it reaches the medium.
// covers: DAT-03
#[test]
fn dat_03_an_order_that_was_not_agreed_on_fails_the_task() {
    let start = "I> ScsiCommand itt=1 F W edtl=2048
                 D< Start itt=1
                 D> need itt=1 bytes=2048
                 T< R2t itt=1 ttt=0 offset=0 len=1024
                 T< R2t itt=1 ttt=1 offset=1024 len=1024";
    for (pdus, sequences, wrong) in [
        ("Yes", "No", "ttt=0 data_sn=0 offset=512 data=512"),
        ("No", "Yes", "ttt=1 data_sn=0 offset=1024 data=512"),
        ("Yes", "Yes", "ttt=1 data_sn=0 offset=1024 data=512"),
        // An agreement on the order of data says nothing of DataSN.
        ("No", "No", "ttt=0 data_sn=1 offset=0 data=512"),
    ] {
        let mut peer = session(pdus, sequences, &format!("{SOLICITED} MaxOutstandingR2T=2"));
        peer.play(start);
        peer.play(&format!(
            "I> DataOut itt=1 {wrong}
             T< Reject reason=InvalidPduField of_opcode=0x05 of_itt=1
             D< Abandon itt=1
             D> gone itt=1
             I> DataOut itt=1 ttt=0 data_sn=1 F
             I> DataOut itt=1 ttt=1 data_sn=1 offset=1024 F
             T< ScsiResponse itt=1 status=0x02 sense=b/0c/0d underflow=2048"
        ));
    }
}

/// Bytes that come twice, bytes that are not of the sequence, and bytes that are missing at its end.
// covers: DAT-03, DAT-05, R2T-04
#[test]
fn dat_05_overlap_and_missing_data_fail_the_task() {
    let start = "I> ScsiCommand itt=1 F W edtl=2048
                 D< Start itt=1
                 D> need itt=1 bytes=2048
                 T< R2t itt=1 ttt=0 offset=0 len=1024
                 T< R2t itt=1 ttt=1 offset=1024 len=1024
                 I> DataOut itt=1 ttt=0 data_sn=0 offset=512 data=256";
    for wrong in [
        "offset=512 data=256",
        "offset=500 data=20",
        "offset=767 data=2",
        "offset=400 data=400",
        "offset=600 data=1",
        // Of the other sequence, and partly of it.
        "offset=1024 data=512",
        "offset=900 data=200",
        "offset=0xfffffff0 data=100",
    ] {
        let mut peer = session("No", "No", &format!("{SOLICITED} MaxOutstandingR2T=2"));
        peer.play(start);
        peer.play(&format!(
            "I> DataOut itt=1 ttt=0 data_sn=1 {wrong}
             T< Reject reason=InvalidPduField of_opcode=0x05 of_itt=1
             D< Abandon itt=1"
        ));
        assert_eq!(peer.session().holdings().data_out.kept_bytes, 0, "nothing is kept for it");
        peer.play(
            "D> gone itt=1
             I> DataOut itt=1 ttt=0 data_sn=2 F
             I> DataOut itt=1 ttt=1 offset=1024 F
             T< ScsiResponse itt=1 status=0x02 sense=b/0c/0d underflow=2048",
        );
    }
    // F before all bytes have come, although the last of them has.
    let mut peer = session("No", "No", &format!("{SOLICITED} MaxOutstandingR2T=2"));
    peer.play(start);
    peer.play(
        "I> DataOut itt=1 ttt=0 data_sn=1 offset=768 data=256 F
         D< Abandon itt=1
         D> gone itt=1
         I> DataOut itt=1 ttt=1 offset=1024 data=1024 F
         T< ScsiResponse itt=1 status=0x02 sense=b/0c/0d underflow=2048",
    );
}

/// An initiator that leaves a hole behind every byte is stopped, and has made the target keep no more than it sent.
// covers: DAT-05
#[test]
fn dat_05_the_holes_of_a_task_are_bounded() {
    let keys = "InitialR2T=Yes ImmediateData=No MaxBurstLength=65536 FirstBurstLength=512";
    let mut peer = session("No", "No", keys);
    peer.play(
        "I> ScsiCommand itt=1 F W edtl=65536
         D< Start itt=1
         D> need itt=1 bytes=65536
         T< R2t itt=1 ttt=0 offset=0 len=65536",
    );
    for n in 0..1024 {
        peer.play(&format!("I> DataOut itt=1 ttt=0 data_sn={n} offset={} data=1", 2 * n + 1));
    }
    assert_eq!(peer.session().holdings().data_out.kept_bytes, 1024);
    peer.play(
        "I> DataOut itt=1 ttt=0 data_sn=1024 offset=60000 data=1
         T< Reject reason=InvalidPduField of_opcode=0x05 of_itt=1
         D< Abandon itt=1
         D> gone itt=1
         I> DataOut itt=1 ttt=0 data_sn=1025 F
         T< ScsiResponse itt=1 status=0x02 sense=b/0c/0d",
    );
}

/// Data that fails its digest fails the task, wherever it belongs; further data of it is discarded.
// covers: DIG-09
#[test]
fn dig_09_damage_in_any_order() {
    let mut peer = session("No", "No", &format!("{SOLICITED} DataDigest=CRC32C MaxOutstandingR2T=2"));
    peer.play(
        "I> ScsiCommand itt=1 F W edtl=2048
         D< Start itt=1
         D> need itt=1 bytes=2048
         T< R2t itt=1 ttt=0 offset=0 len=1024
         T< R2t itt=1 ttt=1 offset=1024 len=1024
         I> DataOut itt=1 ttt=1 data_sn=0 offset=1536 data=512 bad_digest
         T< Reject reason=DataDigestError of_opcode=0x05 of_itt=1
         D< Abandon itt=1
         D> gone itt=1
         I> DataOut itt=1 ttt=1 data_sn=1 offset=1024 data=512 F
         I> DataOut itt=1 ttt=0 data_sn=0 offset=0 data=1024 F
         T< ScsiResponse itt=1 status=0x02 sense=b/47/05",
    );
}

/// The order that tests let a target draw: every byte once, F on the last PDU of each sequence, the status on the last of all.
// covers: DAT-01, DAT-05
#[test]
fn a_drawn_order_of_data_in_and_of_r2ts() {
    let drawn = |peer: &mut Peer| peer.config.send_order = SendOrder::Drawn(4);
    let number = |line: &str, name: &str| -> u32 {
        let word = line.split_whitespace().find_map(|word| word.strip_prefix(name)).expect(name);
        word.parse().expect("a number")
    };
    let keys = format!("{SOLICITED} MaxOutstandingR2T=8 MaxRecvDataSegmentLength=512");
    for (pdus, sequences) in [("No", "No"), ("Yes", "No"), ("No", "Yes"), ("Yes", "Yes")] {
        let mut peer = session_with(pdus, sequences, &keys, drawn);
        peer.play("I> ScsiCommand itt=1 F R edtl=8000\nD< Start itt=1");
        let sent = peer.outcome_of("D> complete itt=1 data=8000");
        let offsets: Vec<u32> = sent.iter().map(|line| number(line, "offset=")).collect();
        let mut sorted = offsets.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..16).map(|n| n * 512).collect::<Vec<_>>());
        assert_eq!(offsets == sorted, pdus == "Yes" && sequences == "Yes", "{offsets:?}");
        let finals = |line: &&String| line.split_whitespace().any(|word| word == "F");
        assert_eq!(sent.iter().filter(finals).count(), 8);
        for (n, pair) in sent.chunks(2).enumerate() {
            let burst = number(&pair[0], "offset=") / 1024;
            assert_eq!(number(&pair[1], "offset=") / 1024, burst, "one sequence after another");
            assert!(finals(&&pair[1]) && !finals(&&pair[0]));
            assert!(sequences == "No" || burst == n as u32);
            let in_place = number(&pair[0], "offset=") < number(&pair[1], "offset=");
            assert!(pdus == "No" || in_place);
        }
        let status = |line: &&String| line.contains("status=0x00");
        assert!(sent.iter().filter(status).count() == 1 && sent.last().is_some_and(|line| status(&line)));

        peer.play("I> ScsiCommand itt=2 F W edtl=8000\nD< Start itt=2");
        let asked = peer.outcome_of("D> need itt=2 bytes=8000");
        let offsets: Vec<u32> = asked.iter().map(|line| number(line, "offset=")).collect();
        let mut sorted = offsets.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..8).map(|n| n * 1024).collect::<Vec<_>>());
        assert_eq!(offsets == sorted, sequences == "Yes", "{offsets:?}");
        let mut outcome = Vec::new();
        for line in &asked {
            let (ttt, at, length) = (number(line, "ttt="), number(line, "offset="), number(line, "len="));
            outcome = peer.outcome_of(&format!("I> DataOut itt=2 ttt={ttt} F offset={at} data={length}"));
        }
        assert_eq!(outcome, ["D< DataOut itt=2 bytes=8000"]);
    }
}
