//! What a shard gives to worker threads.

use conform::{Command, Frame, Sent};

use crate::lab::Lab;

#[test]
fn the_commands_of_one_receive_are_handed_over_together() {
    let (lab, _gate) = Lab::gated(|_| {});
    let mut session = lab.log_in(0);
    session.clear_unit_attentions().unwrap();
    let before = lab.handed_over().len();
    let read = Command::read_16(0, 1, 512);
    let (sent, frames): (Vec<Sent>, Vec<Frame>) = (0..8).map(|_| session.command_frame(&read)).unzip();
    // One call and one segment: the server receives all of it or nothing.
    session.peer.send_together(&frames).unwrap();
    for sent in &sent {
        assert!(session.finish(sent).unwrap().is_good());
    }
    assert_eq!(lab.handed_over()[before..], [8]);
}
