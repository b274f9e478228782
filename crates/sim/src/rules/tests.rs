//! Tests of the rules themselves.

use iscsi_wire::Bhs;

use super::*;

/// The rules with one session: MaxCmdSN is 200, the first command has CmdSN 100.
struct Court {
    rules: Rules,
    verdict: Verdict,
    itt: u32,
}

impl Court {
    fn new(max_connections: u32) -> Self {
        let verdict = Verdict::default();
        let mut court = Self { rules: Rules::new(verdict.clone()), verdict, itt: 0 };
        court.login(max_connections, 0, 100);
        court
    }

    fn pdu(&mut self, opcode: u8, at_1: u8, cmd_sn: u32) -> Pdu {
        let mut bytes = [0; Bhs::SIZE];
        self.itt += 1;
        (bytes[0], bytes[1]) = (opcode, at_1);
        bytes[16..20].copy_from_slice(&self.itt.to_be_bytes());
        bytes[20..24].copy_from_slice(&[0xff; 4]);
        bytes[24..28].copy_from_slice(&cmd_sn.to_be_bytes());
        Pdu::parse(&Bhs::from_bytes(bytes)).expect("of the right form")
    }

    /// Connection `conn` logs in; connection 0 opens a new session.
    fn login(&mut self, max_connections: u32, conn: usize, cmd_sn: u32) {
        let text = format!(
            "MaxConnections={max_connections}\0ErrorRecoveryLevel=2\0TaskReporting=FastAbort\0InitialR2T=No\0InitialR2T=No\0"
        );
        let agreed = Agreed::from_text(text.as_bytes());
        let Pdu::LoginRequest(mut request) = self.pdu(0x43, 0x87, cmd_sn) else { unreachable!() };
        request.tsih = Tsih(u16::from(conn > 0));
        let Pdu::LoginResponse(mut response) = self.pdu(0x23, 0x87, 0) else { unreachable!() };
        (response.tsih, response.numbers.max_cmd_sn) = (Tsih(1), CmdSn(200));
        self.rules.login_request(conn, &request);
        assert_eq!(self.rules.established(conn, 1, &response, &agreed), Some(0));
    }

    fn send(&mut self, conn: usize, pdu: &Pdu) {
        self.rules.sent_by_initiator(0, conn, pdu, 0);
    }

    fn commands(&mut self, conn: usize, numbers: impl IntoIterator<Item = u32>) {
        for cmd_sn in numbers {
            let command = self.pdu(0x01, 0x80, cmd_sn);
            self.send(conn, &command);
        }
    }

    fn ping(&mut self, conn: usize, cmd_sn: u32) {
        let ping = self.pdu(0x40, 0x80, cmd_sn);
        self.send(conn, &ping);
    }

    fn log_out(&mut self, conn: usize, cmd_sn: u32) {
        let logout = self.pdu(0x46, 0x80, cmd_sn);
        self.send(conn, &logout);
    }

    #[track_caller]
    fn holds(&self) {
        assert_eq!(self.verdict.first(), None);
    }

    #[track_caller]
    fn finds(&self, what: &str) {
        let first = self.verdict.first().unwrap_or_default();
        assert!(first.contains(what), "expected {what:?}, found {first:?}");
    }
}

// covers: NUM-01
#[test]
fn an_immediate_request_may_be_ahead_by_what_was_lost_with_a_connection() {
    let lost = || {
        let mut court = Court::new(1);
        court.commands(0, 100..103);
        court.rules.closed(0, true);
        court.login(1, 1, 105);
        court.ping(1, 105);
        court
    };
    let mut court = lost();
    court.commands(1, [105, 104, 103, 106]);
    court.ping(1, 107);
    court.log_out(1, 107);
    court.holds();
    // Not ahead by more than that,
    let mut court = lost();
    court.ping(1, 106);
    court.finds("CmdSN 106 where 105 is next");
    // not for ever,
    let mut court = lost();
    court.commands(1, [104]);
    court.log_out(1, 105);
    court.finds("CmdSN 103 was given and nothing has come with it");
    // and not without a loss.
    let mut court = Court::new(1);
    court.commands(0, 100..103);
    court.ping(0, 105);
    court.finds("CmdSN 105 where 103 is next");
}

// covers: NUM-01, MCS-02
#[test]
fn what_waits_in_the_queue_of_another_connection_may_come_later_in_order() {
    let two = || {
        let mut court = Court::new(2);
        court.login(2, 1, 100);
        court.commands(1, [103, 104]);
        court.ping(1, 105);
        court
    };
    let mut court = two();
    court.commands(0, 100..103);
    court.log_out(1, 105);
    court.holds();
    let mut court = two();
    court.commands(0, [100, 102, 101]);
    court.finds("CmdSN 101 where 103 is next");
    let mut court = two();
    court.ping(1, 104);
    court.finds("CmdSN 104 after 104 was given");
    let mut court = two();
    court.ping(1, 202);
    court.finds("CmdSN 202 where 105 is next");
}

/// PDUs built from their 32-bit fields.
impl Court {
    fn raw(&mut self, opcode: u8, at_1: u8, words: &[(usize, u32)]) -> Pdu {
        let mut bytes = [0; Bhs::SIZE];
        (bytes[0], bytes[1]) = (opcode, at_1);
        for (at, word) in words {
            bytes[*at..at + 4].copy_from_slice(&word.to_be_bytes());
        }
        Pdu::parse(&Bhs::from_bytes(bytes)).expect("of the right form")
    }

    /// Sends the task management function `function` for the task `of`, with tag `itt`.
    fn manage(&mut self, conn: usize, function: u8, itt: u32, of: (u32, u32)) {
        let current = self.rules.sessions[0].current.0;
        let words = [(16, itt), (20, of.0), (24, current), (32, of.1)];
        let request = self.raw(0x42, 0x80 | function, &words);
        self.send(conn, &request);
    }

    /// A PDU of the target with these words in addition to StatSN and the window.
    fn target(&mut self, conn: usize, opcode: u8, stat_sn: u32, words: &[(usize, u32)]) {
        let next = self.rules.sessions[0].next.0;
        let mut all = vec![(24, stat_sn), (28, next), (32, 200)];
        all.extend_from_slice(words);
        let pdu = self.raw(opcode, 0x80, &all);
        self.rules.sent_by_target(0, conn, &pdu, 0);
    }

    fn answer(&mut self, conn: usize, itt: u32, stat_sn: u32) {
        self.target(conn, 0x22, stat_sn, &[(16, itt)]);
    }

    fn status(&mut self, conn: usize, itt: u32, stat_sn: u32) {
        self.target(conn, 0x21, stat_sn, &[(16, itt)]);
    }

    /// A NOP-Out that requests no answer and acknowledges everything before `exp_stat_sn`.
    fn acknowledge(&mut self, conn: usize, exp_stat_sn: u32) {
        let current = self.rules.sessions[0].current.0;
        let words = [(16, u32::MAX), (20, u32::MAX), (24, current), (28, exp_stat_sn)];
        let nop = self.raw(0x40, 0x80, &words);
        self.send(conn, &nop);
    }

    /// Two connections with one command each, CmdSN 100 and 101; returns their tags.
    fn busy() -> (Self, [u32; 2]) {
        let mut court = Self::new(2);
        court.login(2, 1, 100);
        court.commands(0, [100]);
        let first = court.itt;
        court.commands(1, [101]);
        let tags = [first, court.itt];
        (court, tags)
    }
}

const ABORT_TASK: u8 = 1;
const LU_RESET: u8 = 5;
const TARGET_WARM_RESET: u8 = 6;
const NEXUS_RESET: u8 = 11;

// covers: TMF-01, TMF-04
#[test]
fn what_was_aborted_says_nothing_more_and_only_its_own_connection_may_abort_it() {
    let (mut court, [tag, _]) = Court::busy();
    court.manage(0, ABORT_TASK, 90, (tag, 100));
    court.answer(0, 90, 1);
    court.holds();
    court.status(0, tag, 2);
    court.finds("a status for ITT");
    for (conn, of, what) in [(1, 100, "is allegiant to connection 0"), (0, 101, "with RefCmdSN 101, not 100")]
    {
        let (mut court, [tag, _]) = Court::busy();
        court.manage(conn, ABORT_TASK, 90, (tag, of));
        court.finds(what);
    }
    let (mut court, _) = Court::busy();
    court.manage(0, ABORT_TASK, 90, (77, 100));
    court.finds("which is no task");
    // If its connection is gone, any other may.
    let (mut court, [tag, _]) = Court::busy();
    court.rules.closed(0, true);
    court.manage(1, ABORT_TASK, 90, (tag, 100));
    court.holds();
}

// covers: FAB-04, MCS-06
#[test]
fn nothing_passes_the_fence_of_an_answer() {
    let reset = |acknowledged: bool, harmed: bool| {
        let (mut court, [_, tag]) = Court::busy();
        court.status(1, tag, 5);
        if acknowledged {
            court.acknowledge(1, 6);
        }
        if harmed {
            court.rules.harmed(1);
        }
        court.manage(0, LU_RESET, 90, (u32::MAX, 0));
        court.answer(0, 90, 1);
        court
    };
    reset(false, false).finds("overtakes StatSN 5 of connection 1");
    reset(false, true).holds();
    let mut court = reset(true, false);
    court.holds();
    court.commands(1, [102]);
    let tag = court.itt;
    court.status(1, tag, 6);
    court.finds("StatSN 6 passes the fence of connection 0");
    let mut court = reset(true, false);
    court.commands(1, [102]);
    let tag = court.itt;
    court.acknowledge(0, 2);
    court.status(1, tag, 6);
    court.holds();
}

// covers: P2-05, FAB-04
#[test]
fn a_nexus_that_is_being_reset_has_its_fences_and_ends_with_the_answer() {
    let asked = || {
        let (mut court, [_, tag]) = Court::busy();
        court.status(1, tag, 5);
        court.manage(0, LU_RESET, 90, (u32::MAX, 0));
        court.manage(0, NEXUS_RESET, 91, (u32::MAX, 0));
        court
    };
    let mut court = asked();
    court.answer(0, 90, 1);
    court.finds("overtakes StatSN 5 of connection 1");
    let mut court = asked();
    court.answer(0, 91, 1);
    court.holds();
    court.answer(0, 90, 2);
    court.finds("follows the answer to I_T NEXUS RESET");
}

// covers: FAB-01
#[test]
fn who_has_said_that_it_stopped_sending_has_stopped() {
    let sends = |says: bool| {
        let (mut court, [_, tag]) = Court::busy();
        court.target(1, 0x31, 5, &[(16, tag), (20, 7), (44, 512)]);
        court.target(1, 0x32, 5, &[(16, u32::MAX), (36, 5 << 24)]);
        if says {
            court.acknowledge(1, 6);
        }
        let data = court.raw(0x05, 0x00, &[(16, tag), (20, 7)]);
        court.send(1, &data);
        court
    };
    sends(false).holds();
    sends(true).finds("after the word that it was stopped");
}

// covers: MCS-02
#[test]
fn data_go_where_they_were_asked_for() {
    let (mut court, [_, tag]) = Court::busy();
    court.target(1, 0x31, 5, &[(16, tag), (20, 7), (44, 512)]);
    let data = court.raw(0x05, 0x00, &[(16, tag), (20, 7)]);
    court.send(0, &data);
    court.finds("which connection 1 asked for");
}

/// Command 101 is on a connection that no longer delivers anything; a target reset goes past it.
// covers: TMF-05, NUM-01
#[test]
fn a_reset_of_the_target_takes_what_is_missing_before_it_for_received() {
    let missing = || {
        let mut court = Court::new(3);
        court.login(3, 1, 100);
        court.commands(0, [100]);
        court.commands(1, [102]);
        court
    };
    let told = |court: &mut Court, exp: u32| {
        let ping = court.raw(0x20, 0x80, &[(16, u32::MAX), (20, 7), (24, 1), (28, exp), (32, 200)]);
        court.rules.sent_by_target(0, 0, &ping, 0);
    };
    let mut court = missing();
    told(&mut court, 103);
    court.finds("ExpCmdSN 103 acknowledges what was not sent: 101 is next");
    let mut court = missing();
    court.manage(0, LU_RESET, 90, (u32::MAX, 0));
    told(&mut court, 103);
    court.finds("ExpCmdSN 103 acknowledges what was not sent: 101 is next");
    let mut court = missing();
    court.manage(0, TARGET_WARM_RESET, 90, (u32::MAX, 0));
    told(&mut court, 101);
    told(&mut court, 103);
    // It arrives after all, once.
    court.commands(1, [101, 103]);
    court.holds();
    told(&mut court, 105);
    court.finds("ExpCmdSN 105 acknowledges what was not sent: 104 is next");
}
