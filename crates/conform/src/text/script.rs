//! The target's side of a row for initiators. An evil target does what a good one does, until the steps of the row say otherwise.
//!
//! The script follows the first connection that reaches full feature phase. A command that carries out a call, and that the row awaits,
//! is the script's from then on: the row says what is sent for it. Everything with which an initiator comes up and goes, and all that
//! comes after the last step, is left to the good target.

use super::caller::{Call, DISK};
use super::parse::{Alternative, Await, Step, Wanted, What};
use super::{bytes, described};
use crate::evil::disk::{Access, sense};
use crate::evil::task::{Range, Rules, Task};
use crate::evil::{Act, Incoming, Scene, counts};
use crate::frame::{DigestWish, Frame, Received};
use crate::initiator::ping;
use crate::ledger::Finding;
use crate::login::value_of;
use iscsi_wire::{
    Itt, LineError, Names, Pdu, PduLine, ResponseNumbers, ScsiCommand, Ttt, Usual, keys, parse_number,
};
use std::collections::BTreeMap;

/// The first tag that a script gives, for an R2T or a ping.
const FIRST_TTT: u32 = 0x0bad_0000;
/// The tag of the ping that shows that nothing else comes.
const LAST_PING: u32 = 0x0bad_ffff;

/// How a script ended before its last step.
pub(super) enum End {
    /// As it may: what would follow does not apply.
    Over,
    /// The initiator broke the row's rule, in the step of this line.
    Failed(usize, String),
    /// The row does not apply.
    NotApplicable(String),
}

pub(super) struct Script {
    steps: Vec<Step>,
    next: usize,
    calls: Vec<Call>,
    needs: Vec<Wanted>,
    /// Pairs of the target's login responses.
    answers: Vec<(String, String)>,
    /// The target's own limit for a data segment, in bytes.
    max_recv: u32,
    /// The connection that it follows.
    connection: Option<u32>,
    names: Names,
    next_ttt: u32,
    /// What the script has taken over, by the name of its call.
    taken: BTreeMap<String, Taken>,
    findings: Vec<Finding>,
    end: Option<End>,
    accepts_nothing_else: bool,
}

/// A command of the initiator.
struct Taken {
    itt: Itt,
    at: usize,
    /// Of a write: what has arrived.
    write: Option<Task>,
}

impl Script {
    pub(super) fn new(
        steps: Vec<Step>,
        calls: Vec<Call>,
        needs: Vec<Wanted>,
        max_recv: u32,
        accepts_nothing_else: bool,
    ) -> Self {
        Script {
            steps,
            next: 0,
            calls,
            needs,
            answers: Vec::new(),
            max_recv,
            connection: None,
            names: Names::default(),
            next_ttt: FIRST_TTT,
            taken: BTreeMap::new(),
            findings: Vec::new(),
            end: None,
            accepts_nothing_else,
        }
    }

    /// The target is about to send this in a login.
    pub(super) fn logs_in(&mut self, pairs: Vec<(String, String)>) {
        if self.connection.is_none() {
            self.answers.extend(pairs);
        }
    }

    /// The connection that it followed, if there was one.
    pub(super) fn connection(&self) -> Option<u32> {
        self.connection
    }

    /// Rules of data transfer that the initiator broke in commands that the script took.
    pub(super) fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// All is over. `dropped`: the initiator ended the connection without a logout.
    pub(super) fn finish(&mut self, dropped: bool) -> Option<End> {
        let end = self.end.take();
        let Some(Step { line, what: What::Await(wanted), .. }) = self.steps.get(self.next) else {
            return end;
        };
        if end.is_some() {
            return end;
        }
        let accepted = self.accepted(wanted);
        if dropped && accepted.iter().any(|one| matches!(one, Alternative::Close)) {
            return Some(End::Over);
        }
        let came = if dropped { "the initiator ended the connection" } else { "nothing came" };
        Some(End::Failed(*line, format!("expected {}, {came}", words(accepted))))
    }

    fn accepted<'a>(&self, wanted: &'a Await) -> &'a [Alternative] {
        let count = if self.accepts_nothing_else { wanted.ends_from } else { wanted.alternatives.len() };
        &wanted.alternatives[..count]
    }

    /// Says what the target does about a PDU that arrived.
    pub(super) fn incoming(&mut self, scene: &Scene, rx: &Received) -> Incoming {
        if !scene.full_feature || self.end.is_some() {
            return Incoming::Serve;
        }
        if self.connection.is_none() {
            self.begin(scene);
        }
        if self.connection != Some(scene.connection) || self.end.is_some() {
            return Incoming::Serve;
        }
        self.meet(scene, rx).unwrap_or_else(|end| {
            self.end = Some(end);
            Incoming::Serve
        })
    }

    /// Full feature phase has begun.
    fn begin(&mut self, scene: &Scene) {
        self.connection = Some(scene.connection);
        let granted = |key: &str| value_of(&self.answers, key);
        for Wanted { key, value, at_most } in &self.needs {
            if *at_most || key == keys::MAX_RECV_DATA_SEGMENT_LENGTH {
                continue;
            }
            // What nobody names has its default (RFC 7143 13.10, 13.11).
            let default = [keys::INITIAL_R2T, keys::IMMEDIATE_DATA].contains(&key.as_str()).then_some("Yes");
            match granted(key).or(default) {
                Some(result) if result == value => {}
                Some(result) => {
                    let why = format!("the initiator negotiates {key}={result}, the row needs {value}");
                    self.end = Some(End::NotApplicable(why));
                }
                None => {
                    let why = format!("the initiator does not offer {key}, the row needs {value}");
                    self.end = Some(End::NotApplicable(why));
                }
            }
        }
        let number = |key: &str, default: u32| {
            let value = granted(key).and_then(|value| parse_number(value).ok());
            value.and_then(|value| u32::try_from(value).ok()).unwrap_or(default)
        };
        let first = number(keys::FIRST_BURST_LENGTH, 65_536).min(number(keys::MAX_BURST_LENGTH, 262_144));
        let most = u32::try_from(scene.initiator_max_recv).unwrap_or(u32::MAX).min(self.max_recv);
        // Until its command comes the name of a call fits no tag.
        for call in &self.calls {
            self.names.set(&call.name, Itt::RESERVED.0);
        }
        self.names.set("first", first);
        self.names.set("most", most);
    }

    /// The line of the next step.
    fn line(&self) -> usize {
        self.steps.get(self.next).map_or(0, |step| step.line)
    }

    fn fails<T>(&self, why: String) -> Result<T, End> {
        Err(End::Failed(self.line(), why))
    }

    fn meet(&mut self, scene: &Scene, rx: &Received) -> Result<Incoming, End> {
        let Some(Step { what: What::Await(wanted), .. }) = self.steps.get(self.next) else {
            return Ok(Incoming::Serve);
        };
        let wanted = wanted.clone();
        let Ok(pdu) = rx.pdu() else { return Ok(Incoming::Serve) };
        if let Pdu::ScsiCommand(command) = &pdu {
            match self.call_of(command) {
                Some(call) => {
                    let name = call.name.clone();
                    self.names.set(&name, command.itt.0);
                }
                // An initiator that comes up looks around.
                None => return Ok(Incoming::Serve),
            }
        }
        let got = described(rx);
        let accepted = self.accepted(&wanted);
        let names = &mut self.names;
        let found = accepted.iter().position(|one| match (one, &pdu) {
            (Alternative::Pdu(line), _) => line.differs(&got, names).is_none(),
            (Alternative::Nothing(_), Pdu::NopOut(nop)) => nop.ttt == Ttt(LAST_PING),
            _ => false,
        });
        match found {
            Some(at) if at >= wanted.ends_from => Err(End::Over),
            Some(_) => {
                self.take(&pdu, rx)?;
                self.next += 1;
                let acts = self.send_all(scene, rx)?;
                // What the row does not answer itself, a good target does.
                let answered = match &pdu {
                    Pdu::ScsiCommand(_) | Pdu::DataOut(_) => true,
                    _ => !acts.is_empty(),
                };
                Ok(if answered { Incoming::Instead(acts) } else { Incoming::Serve })
            }
            None if wanted.after_all => match &pdu {
                Pdu::DataOut(data) if self.taken.values().any(|taken| taken.itt == data.itt) => {
                    self.take(&pdu, rx)?;
                    Ok(Incoming::Instead(Vec::new()))
                }
                _ => Ok(Incoming::Serve),
            },
            None => self.fails(format!("expected {}, received {got}", words(accepted))),
        }
    }

    /// What the command carries out.
    fn call_of(&self, command: &ScsiCommand) -> Option<&Call> {
        let access = Access::of(&command.cdb).filter(|_| command.lun.to_index() == Some(0))?;
        self.calls.iter().find(|call| {
            call.area().is_some_and(|area| (area.at, area.length) == (access.offset, access.length))
                && call.writes() == access.write
        })
    }

    /// A PDU that was awaited, or belongs to a command of the script.
    fn take(&mut self, pdu: &Pdu, rx: &Received) -> Result<(), End> {
        match pdu {
            Pdu::ScsiCommand(command) => {
                let Some((name, area)) =
                    self.call_of(command).and_then(|call| Some((call.name.clone(), call.area()?)))
                else {
                    return Ok(());
                };
                self.check_data(&name, area.at, &rx.data)?;
                let first_burst = self.names.value("first").unwrap_or_default() as usize;
                let write =
                    command.write.then(|| Task::new(command, area.at, area.length, &rx.data, first_burst));
                self.taken.insert(name, Taken { itt: command.itt, at: area.at, write });
                Ok(())
            }
            Pdu::DataOut(data) => {
                let Some(name) =
                    self.taken.iter().find(|(_, taken)| taken.itt == data.itt).map(|(name, _)| name.clone())
                else {
                    return Ok(());
                };
                let Some(Taken { at, write: Some(write), .. }) = self.taken.get_mut(&name) else {
                    return Ok(());
                };
                let at = *at;
                let rules = Rules { recovers: false, in_order: true };
                let findings = &mut self.findings;
                write.take(data, rx, rules, |row, words| findings.push(Finding { row, words }));
                self.check_data(&name, at.saturating_add(data.buffer_offset as usize), &rx.data)
            }
            _ => Ok(()),
        }
    }

    /// Data of a write must be what its call writes.
    fn check_data(&self, name: &str, at: usize, data: &[u8]) -> Result<(), End> {
        if at > DISK || bytes(name, at, data.len()) != data {
            return self.fails(format!("{} bytes at {at} are not those that `{name}` writes", data.len()));
        }
        Ok(())
    }

    /// What the target sends before it awaits the next PDU.
    fn send_all(&mut self, scene: &Scene, rx: &Received) -> Result<Vec<Act>, End> {
        let counted = u32::from(counts(rx));
        let mut usual = Usual {
            numbers: ResponseNumbers {
                stat_sn: scene.numbers.stat_sn,
                exp_cmd_sn: scene.numbers.exp_cmd_sn.add(counted),
                max_cmd_sn: scene.numbers.max_cmd_sn.add(counted),
            },
            ..Usual::default()
        };
        let mut acts = Vec::new();
        while let Some(step) = self.steps.get(self.next) {
            match &step.what {
                What::Send(line) => {
                    let line = line.clone();
                    self.send(line, &mut usual, scene, rx, &mut acts)?;
                }
                What::Break => acts.push(Act::Reset),
                What::Await(wanted) => {
                    if wanted.alternatives.iter().any(|one| matches!(one, Alternative::Nothing(_))) {
                        acts.push(Act::Tell(ping(Itt::RESERVED.0, LAST_PING)));
                    }
                    break;
                }
                // They are for targets only, or belong to the login.
                What::Session { .. }
                | What::Call(_)
                | What::Returned { .. }
                | What::Login { .. }
                | What::Offer(_)
                | What::Join
                | What::Gap(_)
                | What::Answer(_)
                | What::Propose(_)
                | What::Said(_)
                | What::Refuses => {}
            }
            self.next += 1;
        }
        Ok(acts)
    }

    /// Makes the PDU of a line. What the row leaves out has its sensible value.
    fn send(
        &mut self,
        mut line: PduLine,
        usual: &mut Usual,
        scene: &Scene,
        rx: &Received,
        acts: &mut Vec<Act>,
    ) -> Result<(), End> {
        let (of, code) = (line.take("of"), line.take("sense"));
        if let Some(name) = line.text("ttt")
            && self.names.bind(name, self.next_ttt)
        {
            self.next_ttt += 1;
        }
        let numbered_by_row = match line.text("stat_sn") {
            // The first use of a name stands for the number that is due.
            Some(name) => !self.names.bind(name, usual.numbers.stat_sn.0),
            None => ["exp_cmd_sn", "max_cmd_sn"].iter().any(|field| line.text(field).is_some()),
        };
        let wrong = |error: LineError| End::Failed(self.line(), error.to_string());
        let (pdu, ahs) = line.pdu(usual, &self.names).map_err(wrong)?;
        let length = line.number("data", &self.names).map_err(wrong)?;
        let length = length.unwrap_or(0) as usize;
        if length > scene.initiator_max_recv {
            let most = scene.initiator_max_recv;
            let why = format!(
                "the initiator declares MaxRecvDataSegmentLength={most}, the row sends {length} bytes"
            );
            return Err(End::NotApplicable(why));
        }
        // `a+1` is about `a` too.
        let name =
            line.text("itt").and_then(|name| name.split(['+', '-']).next()).unwrap_or_default().to_owned();
        let data = match &pdu {
            Pdu::DataIn(data) => self.data_in(&name, of.as_deref(), data.buffer_offset, length),
            Pdu::ScsiResponse(_) | Pdu::AsyncMessage(_) => {
                code.map_or(Ok(Vec::new()), |code| self.sense(&code))?
            }
            Pdu::Reject(_) => rx.bhs.as_bytes().to_vec(),
            _ => bytes("", 0, length),
        };
        acts.extend(self.about_to_send(&name, &pdu));
        let mut frame = Frame::of(pdu).ahs(ahs).data(data);
        if line.flag("bad_digest") {
            frame = frame.data_digest(DigestWish::Flip(0x40));
        }
        if is_response(&pdu) && !numbered_by_row {
            usual.numbers.stat_sn = usual.numbers.stat_sn.next();
            acts.push(Act::Answer(frame));
        } else {
            acts.push(Act::Send(frame));
        }
        Ok(())
    }

    /// Bytes that the call must read, or those that `other` writes there.
    fn data_in(&self, name: &str, other: Option<&str>, offset: u32, length: usize) -> Vec<u8> {
        let call = self.calls.iter().find(|call| call.name == name);
        let at = call.and_then(Call::area).map_or(0, |area| area.at);
        let source = other.or(call.map(Call::source)).unwrap_or_default();
        bytes(source, at.wrapping_add(offset as usize), length)
    }

    /// What the target is about to send for a write: an R2T is remembered; before GOOD the data go to the disk.
    fn about_to_send(&mut self, name: &str, pdu: &Pdu) -> Option<Act> {
        let taken = self.taken.get_mut(name)?;
        let write = taken.write.as_mut()?;
        match pdu {
            Pdu::R2t(r2t) if r2t.itt == taken.itt => {
                let offset = r2t.buffer_offset as usize;
                let end = offset.saturating_add(r2t.desired_data_transfer_length as usize);
                let _ = write.requested(r2t.ttt.0, &Range { offset, end, place: usize::MAX });
                None
            }
            Pdu::ScsiResponse(response) if (response.response, response.status) == (0, 0) => {
                Some(Act::Store(taken.at, write.data().to_vec()))
            }
            _ => None,
        }
    }

    /// `b/0c/0d` as sense data.
    fn sense(&self, code: &str) -> Result<Vec<u8>, End> {
        let mut parts = code.split('/').map(|part| u8::from_str_radix(part, 16).ok());
        match (parts.next().flatten(), parts.next().flatten(), parts.next().flatten(), parts.next()) {
            (Some(key), Some(asc), Some(ascq), None) => Ok(sense(key, asc, ascq)),
            _ => {
                self.fails(format!("`sense={code}`: write key, ASC and ASCQ in hexadecimal, like `b/0c/0d`"))
            }
        }
    }
}

/// Does it have a StatSN of its own (RFC 7143 4.2.2.2)?
fn is_response(pdu: &Pdu) -> bool {
    match pdu {
        Pdu::NopIn(nop) => !nop.itt.is_reserved(),
        Pdu::DataIn(data) => data.status_bit,
        Pdu::R2t(_) => false,
        _ => true,
    }
}

fn words(alternatives: &[Alternative]) -> String {
    alternatives.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ")
}
