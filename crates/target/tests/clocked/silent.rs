//! A silent initiator.

use iscsi_core::wire::Opcode;
use std::time::Duration;

use crate::lab::{Lab, PING_INTERVAL, PING_TIMEOUT};

#[test]
fn a_silent_initiator_is_pinged_and_its_connection_ends_when_the_limits_say() {
    let lab = Lab::start();
    let mut session = lab.log_in(1);
    session.clear_unit_attentions().unwrap();
    lab.until_acknowledged();
    lab.pass(PING_INTERVAL + Duration::from_secs(1));
    session.peer.expect(Opcode::NopIn).unwrap();
    // During half of the timeout nothing happens: an initiator that sends something now is
    // answered.
    lab.pass(PING_TIMEOUT / 2);
    session.ping().unwrap();
    lab.until_acknowledged();
    lab.pass(PING_INTERVAL + Duration::from_secs(1));
    session.peer.expect(Opcode::NopIn).unwrap();
    lab.until_acknowledged();
    lab.pass(PING_TIMEOUT + Duration::from_secs(1));
    session.peer.until_closed().unwrap();
}
