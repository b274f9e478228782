//! The depth of a session's calls does not depend on what its peer sends: the longest queues that a peer can build are processed
//! on a small stack.

use iscsi_core::wire::CmdSn;

use crate::play::{Peer, SOLICITED};

/// 64 bytes for each request that is queued.
const STACK_BYTES: usize = 256 << 10;
const QUEUE_DEPTH: u32 = 4096;

fn on_a_small_stack(play: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(play).expect("a thread");
    thread.join().expect("the stack is large enough");
}

fn deep_session(connections: u16, keys: &str) -> Peer {
    let mut peer =
        Peer::logged_in_with(&format!("MaxConnections={connections} {SOLICITED} {keys}"), |peer| {
            peer.config.queue_depth = QUEUE_DEPTH;
            let bounds = &mut peer.policy.bounds;
            (bounds.max_connections, bounds.error_recovery_level) = (8, 2);
            bounds.task_reporting = iscsi_core::params::TaskReporting::FastAbort;
        });
    (2..=connections).for_each(|cid| peer.join(cid, ""));
    peer
}

/// The request that all of `scripts` have waited for arrives; returns the lines that follow from it.
fn run_held(peer: &mut Peer, hold: impl Fn(u32) -> String) -> Vec<String> {
    for cmd_sn in 2..=QUEUE_DEPTH {
        peer.play(&hold(cmd_sn));
    }
    peer.cmd_sn = CmdSn(1);
    peer.outcome_of("I> NopOut itt=9000 cmd_sn=1")
}

/// Each of them ends the command behind it and so fills the hole in front of the next one. Their answers keep their order.
// covers: TMF-01, NUM-02
#[test]
fn aborts_that_wait_for_their_turn_are_carried_out_one_after_the_other() {
    on_a_small_stack(|| {
        let mut peer = deep_session(1, "");
        let lines = run_held(&mut peer, |cmd_sn| match cmd_sn % 2 {
            0 => {
                let next = cmd_sn + 1;
                format!(
                    "I> TaskManagementRequest itt={cmd_sn} cmd_sn={cmd_sn} function=AbortTask \
                     referenced_task_tag={next} ref_cmd_sn={next}"
                )
            }
            _ => format!("I> ScsiCommand itt={cmd_sn} cmd_sn={cmd_sn} F R edtl=8"),
        });
        assert!(lines[0].starts_with("T< NopIn"), "{}", lines[0]);
        let answers: Vec<&str> = lines[1..].iter().map(String::as_str).collect();
        assert_eq!(answers.len() as u32, QUEUE_DEPTH / 2);
        for (answer, itt) in answers.iter().zip((2..).step_by(2)) {
            let words: Vec<&str> = answer.split_whitespace().collect();
            assert_eq!(words[1], "TaskManagementResponse", "{answer}");
            assert!(words.contains(&format!("itt={itt}").as_str()), "{answer}: not that of {itt}");
            // The last one has nothing behind it.
            let ended = if itt == QUEUE_DEPTH { "TaskDoesNotExist" } else { "FunctionComplete" };
            assert!(words.contains(&format!("response={ended}").as_str()), "{answer}");
        }
        assert_eq!(peer.session().holdings(), Default::default());
    });
}

/// Requests of every kind whose turn comes at one time, among them the logout that ends everything.
// covers: NUM-02, LGO-01
#[test]
fn whatever_waits_for_its_turn_gets_it() {
    on_a_small_stack(|| {
        let mut peer = deep_session(2, "ErrorRecoveryLevel=2");
        let last = QUEUE_DEPTH;
        let lines = run_held(&mut peer, |cmd_sn| {
            let from = if cmd_sn % 2 == 0 { "I" } else { "I2" };
            let request = match cmd_sn {
                _ if cmd_sn == last => "LogoutRequest reason=CloseSession",
                _ if cmd_sn == last - 1 => "LogoutRequest reason=CloseConnection cid=2",
                _ if cmd_sn % 4 < 2 => "NopOut",
                _ if cmd_sn % 4 == 2 => "TaskManagementRequest function=AbortTask referenced_task_tag=9001",
                _ => "ScsiCommand F R edtl=8",
            };
            let (name, fields) = request.split_once(' ').unwrap_or((request, ""));
            format!("{from}> {name} itt={cmd_sn} cmd_sn={cmd_sn} {fields}")
        });
        let count = |word: &str| lines.iter().filter(|line| line.contains(word)).count();
        let kinds = [" Start ", " Abandon ", " TaskManagementResponse ", " LogoutResponse ", " NopIn "];
        assert_eq!(kinds.map(count), [1023, 1023, 1024, 0, 2047]);
        // The logouts wait for the device server.
        let gone = |itt| peer.outcome_of(&format!("D> gone itt={itt}"));
        let lines: Vec<String> = (3..last - 1).step_by(4).flat_map(gone).collect();
        let answers = lines.iter().filter(|line| line.contains(" LogoutResponse "));
        assert_eq!(answers.count(), 2, "{lines:#?}");
        assert_eq!(lines.last().map(String::as_str), Some("D< Ended"));
    });
}

/// A fence is removed in front of as many responses as there may be commands.
// covers: FAB-04
#[test]
fn what_waits_behind_a_fence_goes_out() {
    on_a_small_stack(|| {
        let mut peer = deep_session(2, "TaskReporting=FastAbort");
        for itt in 100..QUEUE_DEPTH {
            peer.play(&format!("I2> ScsiCommand itt={itt} F R edtl=8\nD< Start itt={itt}"));
        }
        peer.answer_with_fence();
        for itt in 100..QUEUE_DEPTH {
            peer.play(&format!("D> complete itt={itt}"));
        }
        assert_eq!(peer.session().holdings().held_back as u32, QUEUE_DEPTH - 100);
        assert_eq!(peer.outcome_of("I> NopOut I").len() as u32, QUEUE_DEPTH - 100);
    });
}

/// As many writes as there may be commands wait for the first of them, whose connection breaks: they die, or are orphans until
/// their time is up.
// covers: ERL-08, SES-04
#[test]
fn what_is_lost_with_a_connection_goes_with_it() {
    for level in [0, 2] {
        on_a_small_stack(move || {
            let mut peer = deep_session(2, &format!("ErrorRecoveryLevel={level} TaskReporting=RFC3720"));
            for itt in 1..QUEUE_DEPTH {
                peer.play(&format!("I2> ScsiCommand itt={itt} F W edtl=67108864\nD< Start itt={itt}"));
                peer.outcome_of(&format!("D> need itt={itt} bytes=67108864"));
            }
            assert_eq!(peer.session().holdings().unsolicited as u32, QUEUE_DEPTH - 2);
            let mut abandoned = |line: &str| {
                peer.outcome_of(line).iter().filter(|line| line.contains(" Abandon ")).count() as u32
            };
            let (at_once, later) = (abandoned("X2"), abandoned("@ 30s"));
            let all = QUEUE_DEPTH - 1;
            assert_eq!((at_once, later), if level == 0 { (all, 0) } else { (0, all) });
        });
    }
}
