//! The cost of commands, logins and the housekeeping of a shard does not depend on the number of sessions. The test counts how
//! many are examined. Half a second passes with each command.

use conform::Command;

use crate::lab::Lab;

#[test]
fn commands_logins_and_reinstatements_do_not_look_at_the_sessions_of_others() {
    const MANY: u32 = 256;
    const TIMES: u32 = 100;
    let lab = Lab::start();
    let (logins, idle) = lab.looks(|| (0..MANY).map(|n| lab.log_in(n)).collect::<Vec<_>>());
    // If each login examined the earlier sessions, there would be 32 thousand.
    assert!(logins < 16 * u64::from(MANY), "{logins} sessions were looked at for {MANY} logins");

    let mut active = lab.log_in(MANY);
    active.clear_unit_attentions().unwrap();
    let (commands, ()) = lab.looks(|| {
        for _ in 0..TIMES {
            lab.pass_a_while();
            active.run_good(&Command::read_16(0, 1, 512)).unwrap();
        }
    });
    // Each is checked half a second later, and no other session is.
    let expected = u64::from(TIMES / 2)..=u64::from(4 * TIMES);
    assert!(expected.contains(&commands), "{commands} sessions were looked at for {TIMES} commands");

    let (again, _idle) = lab.looks(|| {
        let replaced: Vec<_> = (0..TIMES).map(|n| lab.log_in(n)).collect();
        (replaced, idle)
    });
    assert!(again < u64::from(16 * TIMES), "{again} sessions were looked at for {TIMES} reinstatements");
}
