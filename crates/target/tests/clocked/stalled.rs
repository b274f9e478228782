//! Sessions that take nothing of what they are sent, while others wait for the memory that it occupies.

use std::time::Duration;

use conform::{Command, Frame, Session};

use crate::lab::Lab;

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
