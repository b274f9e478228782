//! Plays a row with an initiator under test.

use super::bytes;
use super::caller::{Call, DISK, Ending, MEDIUM};
use super::keys::{Answer, Demand};
use super::parse::{Play, Row, Step, Wanted, What};
use super::script::{End, Script};
use crate::Stop;
use crate::evil::{Act, Behaviour, EvilConfig, EvilTexts};
use crate::initiator::{OpResult, Played, Stage, pairs_of, reworded};
use crate::initiator::{Play as Setting, RowResult};
use crate::login::value_of;
use crate::script::{fail, section, skip};
use iscsi_wire::{Opcode, keys};
use std::sync::{Arc, Mutex, PoisonError};

/// Keys of which an initiator can be asked what it offers, and the word for it in a play's URL.
const ASKED: &[(&str, &str)] = &[
    (keys::INITIAL_R2T, "initial_r2t"),
    (keys::IMMEDIATE_DATA, "immediate_data"),
    (keys::MAX_BURST_LENGTH, "max_burst_length"),
    (keys::FIRST_BURST_LENGTH, "first_burst_length"),
    (keys::MAX_OUTSTANDING_R2T, "max_outstanding_r2t"),
    (keys::DATA_PDU_IN_ORDER, "data_pdu_in_order"),
    (keys::DATA_SEQUENCE_IN_ORDER, "data_sequence_in_order"),
    (keys::MAX_CONNECTIONS, "connections"),
    (keys::ERROR_RECOVERY_LEVEL, "erl"),
    (keys::TASK_REPORTING, "task_reporting"),
];

/// A value as a play's URL has it: `FastAbort` is `fast_abort` there.
fn setting_of(value: &str) -> String {
    let mut words = String::new();
    for c in value.chars() {
        if c.is_ascii_uppercase() && !words.is_empty() {
            words.push('_');
        }
        words.push(c.to_ascii_lowercase());
    }
    words
}

/// Plays all cases of a row.
pub(crate) fn play_with_initiator(row: &Row, stage: &Stage<'_>) -> RowResult {
    let (mut applies, mut left_out) = (false, None);
    for Play { case, steps } in &row.plays {
        let mut rest = &steps[..];
        while let [Step { what: What::Session { values, optional, .. }, line, .. }, after @ ..] = rest {
            let is_session = |step: &Step| matches!(step.what, What::Session { .. });
            let (part, others) = after.split_at(after.iter().position(is_session).unwrap_or(after.len()));
            rest = others;
            let optional = *optional && !stage.accepts_nothing_else();
            match Part::new(*line, values, part).play(row, stage) {
                Err(why @ Stop::NotApplicable(_)) if optional => left_out = Some(why),
                Err(Stop::Fail(why)) if !case.is_empty() => fail!("{case}: {why}"),
                other => {
                    other?;
                    applies = true;
                }
            }
        }
    }
    // If nothing applies, the row does not.
    left_out.filter(|_| !applies).map_or(Ok(()), Err)
}

/// The steps of one session.
struct Part<'a> {
    line: usize,
    values: &'a [Wanted],
    calls: Vec<Call>,
    /// Which call may end how, and the line that says so.
    returned: Vec<(usize, &'a str, &'a [Ending])>,
    login: Login<'a>,
    steps: Vec<Step>,
}

/// What the row says about the login.
#[derive(Default)]
struct Login<'a> {
    answers: Vec<&'a Answer>,
    proposals: Vec<(String, String)>,
    /// What the initiator must say, and the lines of that.
    said: Vec<(usize, &'a Demand)>,
    /// The line that says that the initiator does not accept what the target says.
    refuses: Option<usize>,
}

impl<'a> Part<'a> {
    fn new(line: usize, values: &'a [Wanted], part: &'a [Step]) -> Self {
        let (mut calls, mut returned, mut steps) = (Vec::new(), Vec::new(), Vec::new());
        let mut login = Login::default();
        for step in part {
            match &step.what {
                What::Answer(answer) => login.answers.push(answer),
                What::Propose(pairs) => login.proposals.extend(pairs.iter().cloned()),
                What::Said(demand) => login.said.push((step.line, demand)),
                What::Refuses => login.refuses = Some(step.line),
                What::Call(call) => calls.push(call.clone()),
                What::Returned { name, ends } => returned.push((step.line, name.as_str(), &ends[..])),
                _ => steps.push(step.clone()),
            }
        }
        Part { line, values, calls, returned, login, steps }
    }

    /// The target, and what the initiator is asked to offer.
    fn setting(&self) -> Setting {
        let proposals = self.login.proposals.clone();
        let mut config = EvilConfig::saying(EvilTexts { proposals, ..EvilTexts::default() });
        let mut setting = Setting::new();
        config.disk_bytes = DISK;
        for Wanted { key, value, .. } in self.values {
            if let Some(key) = keys::ALL.iter().find(|one| *one == key) {
                config = config.key(key, value);
            }
            if let Some((_, word)) = ASKED.iter().find(|(one, _)| one == key) {
                setting = setting.set(word, &setting_of(value));
            }
        }
        setting.config(config)
    }

    fn play(&self, row: &Row, stage: &Stage<'_>) -> RowResult {
        let setting = self.setting();
        let declared = setting.config.keys.get(keys::MAX_RECV_DATA_SEGMENT_LENGTH);
        let max_recv = declared.and_then(|value| value.parse().ok()).unwrap_or(8192);
        let script = Script::new(
            self.steps.clone(),
            self.calls.clone(),
            self.values.to_vec(),
            max_recv,
            stage.accepts_nothing_else(),
        );
        let script = Arc::new(Mutex::new(script));
        let (sending, receiving) = (script.clone(), script.clone());
        let answers: Vec<Answer> = self.login.answers.iter().copied().cloned().collect();
        let behaviour = Behaviour::good()
            .every(Opcode::LoginResponse, move |_, frame| {
                let frame = reworded(frame, |pairs| answers.iter().for_each(|answer| answer.apply(pairs)));
                let mut script = sending.lock().unwrap_or_else(PoisonError::into_inner);
                script.logs_in(pairs_of(frame.data_bytes()));
                vec![Act::Send(frame)]
            })
            .incoming(move |scene, rx| {
                receiving.lock().unwrap_or_else(PoisonError::into_inner).incoming(scene, rx)
            });
        let target = stage.target(&setting, behaviour)?;
        target.fill(0, &bytes(MEDIUM, 0, DISK));
        let ops: Vec<_> = self.calls.iter().map(Call::op).collect();
        let played = stage.play_on(&setting, &target, &ops);
        self.said(row, &played)?;
        if let Some(line) = self.login.refuses {
            return played.refused(&format!("{}:{line}", row.file));
        }
        let mut script = script.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(connection) = script.connection() else {
            fail!("{}:{}: the initiator did not come: {}", row.file, self.line, played.words())
        };
        let over = match script.finish(played.dropped(connection)) {
            Some(End::NotApplicable(why)) => return Err(Stop::NotApplicable(why)),
            Some(End::Failed(line, why)) => fail!("{}:{line}: {why}", row.file),
            Some(End::Over) => true,
            None => false,
        };
        if let Some(found) = script.findings().first() {
            fail!("{}:{}: {}: {}", row.file, self.line, found.row, found.words);
        }
        if let Some(found) = played.findings.iter().find(|found| section(found.row) == section(&row.id)) {
            fail!("{}:{}: {}: {}", row.file, self.line, found.row, found.words);
        }
        let results = played.results.as_deref().unwrap_or_default();
        self.calls_ended(row, results, &played.medium, over)
    }

    /// What the initiator says in its login.
    fn said(&self, row: &Row, played: &Played) -> RowResult {
        let said = played.offered(1);
        let offers = |key: &str| said.iter().any(|(name, _)| name == key);
        let answered: Vec<&str> = self.login.answers.iter().flat_map(|answer| answer.keys()).collect();
        if let (Some(key), false) = (answered.first(), answered.iter().any(|key| offers(key))) {
            skip!("the initiator does not offer {key}");
        }
        // An answer is wrong only after the offer that the row asks for.
        let asked = self.values.iter().filter(|wanted| self.login.refuses.is_some() && !wanted.at_most);
        for Wanted { key, value, .. } in asked {
            if let Some(offer) = value_of(&said, key).filter(|offer| offer != value) {
                skip!("the initiator offers {key}={offer}, the row needs {value}");
            }
        }
        for (line, demand) in &self.login.said {
            if !demand.is_met(&said, false) {
                fail!("{}:{line}: expected {demand}, the initiator says {said:?}", row.file);
            }
        }
        Ok(())
    }

    /// A call ends well unless the row says otherwise, or was left out in part; and never with wrong bytes.
    fn calls_ended(&self, row: &Row, results: &[OpResult], medium: &[u8], over: bool) -> RowResult {
        for (at, call) in self.calls.iter().enumerate() {
            let (line, ends) = self
                .returned
                .iter()
                .find(|(_, name, _)| *name == call.name)
                .map_or((self.line, &[Ending::Done][..]), |(line, _, ends)| (*line, *ends));
            let ended = call
                .ended(results.get(at), medium)
                .map_err(|why| Stop::Fail(format!("{}:{line}: {why}", row.file)))?;
            if !over && !ends.contains(&ended) {
                fail!("{}:{line}: `{}` ended with {ended:?}, the row has {ends:?}", row.file, call.name);
            }
        }
        Ok(())
    }
}
