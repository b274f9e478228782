//! Sessions that make no progress, while others wait for the memory that they occupy.

use std::time::Duration;

use blockstore::{Op, OpSet};
use conform::{Command, Digests, Frame, LoginScript, Sent, Session};
use iscsi_core::wire::{DataOut, R2t, Tsih};

use crate::lab::{Lab, until};

const ENDED: &str = "the session is ended: others wait for its memory";

/// More than the sockets take, and all of it ready to be sent.
fn ask_for_too_much(session: &mut Session) {
    let read = Command::read_16(0, 2048, 512);
    let reads: Vec<Frame> = (0..24).map(|_| session.command_frame(&read).1).collect();
    session.peer.send_together(&reads).unwrap();
}

/// Takes half of what one command has asked for.
fn take_a_little(session: &mut Session) {
    let mut taken = 0;
    while taken < 512 << 10 {
        taken += session.next().unwrap().data.len();
    }
}

#[test]
fn who_takes_nothing_for_five_seconds_is_ended_and_who_takes_a_little_is_not() {
    for takes in [true, false] {
        let lab = Lab::start_with(|limits| limits.buffer_bytes_max = 32 << 20);
        let mut all: Vec<Session> = (0..5).map(|number| lab.log_in(number)).collect();
        all.iter_mut().for_each(|session| session.clear_unit_attentions().unwrap());
        let mut waits = all.pop().unwrap();
        all.iter_mut().for_each(ask_for_too_much);
        waits.ping().unwrap();
        let sent = waits.start(&Command::read_16(0, 2048, 512)).unwrap();
        for second in 0..12 {
            // So no command is done within five seconds.
            if takes && second % 4 == 0 {
                all.iter_mut().for_each(take_a_little);
            }
            // The clock moves, and a ping makes the shard look at it.
            lab.pass(Duration::from_secs(1));
            waits.ping().unwrap();
        }
        lab.log_in(9).log_out().unwrap();
        let lines = lab.log_until("a session ended: logout");
        assert_eq!(lines.iter().any(|line| line.contains(ENDED)), !takes, "{lines:?}");
        drop(all);
        assert!(waits.finish(&sent).unwrap().is_good());
    }
}

/// What a closed connection has still to send is in memory, and counts until it is sent.
#[test]
fn memory_of_a_closed_connection_counts_until_it_is_gone() {
    // A unit in memory, whose data are ready at once.
    let lab = Lab::start_with(|limits| limits.buffer_bytes_max = 64 << 20);
    let mut old = lab.log_in_narrowly(0);
    old.clear_unit_attentions().unwrap();
    ask_for_too_much(&mut old);
    until("commands wait", || lab.memory().waiting_commands > 0);
    // A newer login replaces the session.
    let mut newer = lab.log_in_by(LoginScript { tsih: Tsih(0), ..old.same_identity() });
    for _ in 0..10 {
        newer.ping().unwrap();
        assert!(lab.memory().commands_bytes > 0);
    }
    old.peer.reset();
    until("all memory is back", || lab.memory().commands_bytes == 0);
    newer.ping().unwrap();
}

/// SAM-5 5.3.1.
const BUSY: u8 = 0x08;

/// The memory of [`scarce`] suffices for two commands of this many bytes.
const LONGEST: usize = 512 << 10;

fn scarce(limits: &mut target::config::Limits) {
    limits.buffer_bytes_max = 2 << 20;
}

/// Two sessions with a command each that holds half of the memory, and one whose command waits for it.
fn two_and_one_that_waits(
    lab: &Lab,
    command: impl Fn(u64) -> Command,
) -> ([(Session, Sent); 2], (Session, Sent)) {
    let start = |number: u32| {
        let mut session = lab.log_in(number);
        session.clear_unit_attentions().unwrap();
        let sent = session.start(&command(2048 * u64::from(number))).unwrap();
        session.ping().unwrap();
        (session, sent)
    };
    let both = [start(0), start(1)];
    // So both have made no progress when the third one begins to wait.
    lab.pass(Duration::from_secs(1));
    let third = start(2);
    assert_eq!(lab.memory().waiting_commands, 1);
    (both, third)
}

/// A slow disk is no fault of the initiator.
#[test]
fn who_waits_for_its_disk_is_not_ended() {
    let (lab, gate) = Lab::gated(scarce);
    gate.close(OpSet::of(&[Op::Read]));
    let (slow, mut waits) = two_and_one_that_waits(&lab, |lba| Command::read_16(lba, 1024, 512));
    for _ in 0..12 {
        lab.pass(Duration::from_secs(1));
        waits.0.ping().unwrap();
    }
    gate.open();
    for (mut session, sent) in slow.into_iter().chain([waits]) {
        assert!(session.finish(&sent).unwrap().is_good());
    }
}

/// A slow link may take seconds for a PDU, and its bytes count before it is complete.
#[test]
fn a_write_gives_way_when_its_data_stop_and_not_while_they_come() {
    const PARTS: usize = 8;
    for come in [true, false] {
        let lab = Lab::gated(scarce).0;
        let (mut both, mut waits) =
            two_and_one_that_waits(&lab, |lba| Command::write_16(lba, vec![1; LONGEST], 512));
        let r2ts = both.each_mut().map(|(session, sent)| session.expect_r2t(sent).unwrap());
        // What is requested, as one PDU.
        let pdu = |(session, sent): &(Session, Sent), r2t: &R2t| {
            let length = r2t.desired_data_transfer_length;
            assert!(length <= session.params.max_send_data_segment_length);
            let data = DataOut { final_bit: true, ..session.data_out(sent, r2t.ttt, 0) };
            Frame::of(data).data(vec![1; length as usize]).encode(Digests::default())
        };
        let pdus = [pdu(&both[0], &r2ts[0]), pdu(&both[1], &r2ts[1])];
        for part in 0..PARTS {
            for ((session, _), bytes) in both.iter_mut().zip(&pdus).filter(|_| come) {
                let bytes = bytes.chunks(bytes.len().div_ceil(PARTS)).nth(part).unwrap();
                session.peer.send_bytes(bytes).unwrap();
            }
            lab.pass(Duration::from_millis(500));
            waits.0.ping().unwrap();
        }
        for ((session, sent), r2t) in both.iter_mut().zip(&r2ts) {
            if !come {
                session.serve(sent, r2t).unwrap();
            }
            let status = session.finish(sent).unwrap().status;
            assert_eq!(status, if come { 0x00 } else { BUSY });
        }
        assert!(waits.0.finish(&waits.1).unwrap().is_good());
    }
}
