//! A small initiator built on the raw peer, strict enough to keep most rows, on which the rows for initiators are
//! tried here. With `strict` off it trusts whatever the target sends, and must be caught.

use conform::initiator::{DriveUrl, InitiatorUnderTest, Op, OpResult};
use conform::{
    ChapScript, Command, Dial, Frame, LoginScript, RawPeer, Session, Side, Transcript, Unsolicited, text_of,
};
use iscsi_wire::{Isid, Lun, TextRequest, TextResponse, Ttt, keys};
use std::time::{Duration, Instant};

#[derive(Default)]
pub struct Reference {
    pub strict: bool,
    /// Offers the requested ErrorRecoveryLevel, although it supports none.
    pub pretends: bool,
    pub flaw: Option<Flaw>,
    /// Is known to do what rows in text have before `else`.
    pub known: bool,
}

/// What else it may do wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// Sends so many bytes unsolicited, more than FirstBurstLength.
    TooMuch,
    /// Ends unsolicited data a block early.
    TooLittle,
    /// Takes every status for GOOD.
    IgnoresStatus,
    /// Hands up a whole buffer, whatever was read.
    IgnoresResidual,
}

impl Reference {
    fn script(&self, url: &DriveUrl) -> LoginScript {
        let mut script = LoginScript::new("iqn.2026-01.org.example:reference", url.target.as_deref());
        script.isid = Isid([0x80, 1, 2, 3, 0, 1]);
        for (setting, key) in [("header_digest", keys::HEADER_DIGEST), ("data_digest", keys::DATA_DIGEST)] {
            let value = match url.setting(setting) {
                Some("off") => "None",
                Some("required") => "CRC32C",
                _ => "CRC32C,None",
            };
            script = script.key(key, value);
        }
        for (setting, key) in [
            ("max_recv_data_segment_length", keys::MAX_RECV_DATA_SEGMENT_LENGTH),
            ("max_burst_length", keys::MAX_BURST_LENGTH),
            ("first_burst_length", keys::FIRST_BURST_LENGTH),
            ("max_outstanding_r2t", keys::MAX_OUTSTANDING_R2T),
        ] {
            if let Some(value) = url.setting(setting) {
                script = script.key(key, value);
            }
        }
        if self.pretends
            && let Some(level) = url.setting("erl")
        {
            script = script.key(keys::ERROR_RECOVERY_LEVEL, level);
        }
        for (setting, key) in [
            ("initial_r2t", keys::INITIAL_R2T),
            ("immediate_data", keys::IMMEDIATE_DATA),
            ("data_pdu_in_order", keys::DATA_PDU_IN_ORDER),
            ("data_sequence_in_order", keys::DATA_SEQUENCE_IN_ORDER),
        ] {
            match url.setting(setting) {
                Some("yes") => script = script.key(key, "Yes"),
                Some("no") => script = script.key(key, "No"),
                _ => {}
            }
        }
        script.chap = url.chap.as_ref().map(|(user, secret)| ChapScript {
            user: user.clone(),
            secret: secret.clone(),
            algorithms: "7,6,5".to_owned(),
            target: url.target_chap.clone(),
        });
        script
    }

    fn log_in(&self, dial: &dyn Dial, url: &DriveUrl) -> Result<Session, String> {
        let link = dial.dial(url.timeout()).map_err(|error| error.to_string())?;
        let peer = RawPeer::over(link, Side::Initiator, url.timeout(), &Transcript::new());
        let session =
            Session::log_in(peer, self.script(url), Lun::from_index(url.lun)).map_err(|e| e.to_string())?;
        self.check(&session)?;
        if self.strict {
            self.check_answers(&session)?;
        }
        Ok(session)
    }

    /// A finding of the ledger ends the session.
    fn check(&self, session: &Session) -> Result<(), String> {
        match session
            .peer
            .ledger
            .findings
            .iter()
            .find(|finding| finding.row != "PDU-02" && finding.row != "PDU-01")
        {
            Some(finding) if self.strict && finding.row != "NUM-05" => Err(finding.words.clone()),
            _ => Ok(()),
        }
    }

    fn check_answers(&self, session: &Session) -> Result<(), String> {
        let mut seen = Vec::new();
        for (key, value) in &session.logged_in.pairs {
            if seen.contains(&key) {
                return Err(format!("{key} twice"));
            }
            seen.push(key);
            let Some((_, offer)) = session.script.keys.iter().find(|(name, _)| name == key) else { continue };
            let fine = match key.as_str() {
                keys::HEADER_DIGEST | keys::DATA_DIGEST => offer.split(',').any(|item| item == value),
                keys::IMMEDIATE_DATA => value == "Yes" && offer == "Yes" || value == "No",
                keys::INITIAL_R2T | keys::DATA_PDU_IN_ORDER | keys::DATA_SEQUENCE_IN_ORDER => {
                    value == "No" && offer == "No" || value == "Yes"
                }
                _ => true,
            };
            if !fine {
                return Err(format!("{key}={offer} was answered with {value}"));
            }
        }
        Ok(())
    }

    fn command(&self, session: &Session, op: &Op) -> Command {
        match op {
            Op::Read { lba, blocks } => Command::read_16(*lba, *blocks, 512),
            Op::Write { lba, data } => {
                let params = &session.params;
                let first = match self.flaw {
                    Some(Flaw::TooMuch) => params.writes.first_burst_length + 512,
                    Some(Flaw::TooLittle) => params.writes.first_burst_length - 512,
                    _ => params.writes.first_burst_length.min(params.writes.max_burst_length),
                };
                let first = (first as usize).min(data.len());
                let immediate = first.min(params.max_send_data_segment_length as usize);
                let write = Command::write_16(*lba, data.clone(), 512);
                match (params.writes.initial_r2t, params.writes.immediate_data) {
                    (true, true) => write.unsolicited(Unsolicited::Immediate(immediate)),
                    (true, false) => write,
                    (false, true) => write.unsolicited(Unsolicited::Burst { immediate, total: first }),
                    (false, false) => write.unsolicited(Unsolicited::Burst { immediate: 0, total: first }),
                }
            }
            Op::Flush => Command::none([0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
            _ => Command::read_capacity_16(),
        }
    }

    fn do_op(&self, session: &mut Session, op: &Op) -> Result<OpResult, String> {
        match op {
            Op::Manage { .. } | Op::Declare(_) => {
                Ok(OpResult::Failed("the initiator has no such operation".to_owned()))
            }
            Op::Wait(time) => {
                let end = Instant::now() + *time;
                while let Some(left) = end.checked_duration_since(Instant::now()) {
                    match session.next_within(left) {
                        // The session has answered what must be answered; nothing else waits for it.
                        Ok(_) => {}
                        Err(conform::PeerError::Timeout(_)) => break,
                        Err(error) => return Err(error.to_string()),
                    }
                }
                self.check(session)?;
                Ok(OpResult::Done)
            }
            Op::Discover => self.discover(session),
            Op::Together(ops) | Op::InTurn(ops) => {
                let results: Result<Vec<_>, _> = ops.iter().map(|op| self.do_op(session, op)).collect();
                results.map(OpResult::Together)
            }
            _ => {
                let command = self.command(session, op);
                let outcome = session.run(&command).map_err(|error| error.to_string())?;
                self.check(session)?;
                if !outcome.is_good() && self.flaw != Some(Flaw::IgnoresStatus) {
                    return Ok(OpResult::Failed(outcome.words()));
                }
                Ok(match op {
                    Op::Read { blocks, .. } if self.flaw == Some(Flaw::IgnoresResidual) => {
                        let mut data = outcome.data;
                        data.resize(*blocks as usize * 512, 0);
                        OpResult::Data(data)
                    }
                    Op::Read { .. } => OpResult::Data(outcome.data),
                    Op::Capacity => OpResult::Capacity(0, 512),
                    _ => OpResult::Done,
                })
            }
        }
    }

    fn discover(&self, session: &mut Session) -> Result<OpResult, String> {
        let mut request = TextRequest {
            immediate: true,
            final_bit: true,
            continue_bit: false,
            lun: Lun(0),
            itt: session.itt(),
            ttt: Ttt::RESERVED,
            cmd_sn: session.cmd_sn,
            exp_stat_sn: session.peer.ledger.exp_stat_sn(),
        };
        let mut text = text_of(&[(keys::SEND_TARGETS, "All")]);
        let mut answer = Vec::new();
        loop {
            session
                .peer
                .send(&Frame::of(request).data(std::mem::take(&mut text)))
                .map_err(|e| e.to_string())?;
            let rx = session.next_for(request.itt).map_err(|error| error.to_string())?;
            self.check(session)?;
            let response = TextResponse::parse(&rx.bhs).map_err(|error| error.to_string())?;
            answer.extend_from_slice(&rx.data);
            if response.final_bit {
                break;
            }
            (request.ttt, request.lun) = (response.ttt, response.lun);
            request.exp_stat_sn = session.peer.ledger.exp_stat_sn();
        }
        let mut targets: Vec<(String, Vec<String>)> = Vec::new();
        for item in answer.split(|byte| *byte == 0).filter(|item| !item.is_empty()) {
            let item = String::from_utf8_lossy(item);
            match (item.split_once('='), targets.last_mut()) {
                (Some((keys::TARGET_NAME, name)), _) => targets.push((name.to_owned(), Vec::new())),
                (Some((keys::TARGET_ADDRESS, address)), Some((_, all))) => all.push(address.to_owned()),
                _ => return Err(format!("{item} in an answer to SendTargets")),
            }
        }
        Ok(OpResult::Targets(targets))
    }
}

impl InitiatorUnderTest for Reference {
    fn connect_and(&self, _url: &str, _ops: &[Op]) -> Result<Vec<OpResult>, String> {
        Err("the links of the reference are given to it".to_owned())
    }

    fn accepts_nothing_else(&self) -> bool {
        self.known
    }

    fn connect_over(&self, dial: &dyn Dial, url: &str, ops: &[Op]) -> Result<Vec<OpResult>, String> {
        let url = DriveUrl::parse(url)?;
        let mut session = Some(self.log_in(dial, &url)?);
        let mut results = Vec::new();
        for op in ops {
            let mut result = Err("no session".to_owned());
            for _ in 0..2 {
                if session.is_none() {
                    std::thread::sleep(Duration::from_millis(10));
                    session = self.log_in(dial, &url).ok();
                }
                let Some(open) = &mut session else { break };
                result = self.do_op(open, op);
                if result.is_ok() {
                    break;
                }
                session = None;
            }
            results.push(result.unwrap_or_else(OpResult::Failed));
        }
        if let Some(session) = session {
            let _ = session.log_out();
        }
        Ok(results)
    }
}
