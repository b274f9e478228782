//! Plays a row with a target under test.

use super::keys::Offer;
use super::parse::{Alternative, Await, Play, Row, Step, Wanted, What};
use super::{bytes, described};
use crate::frame::{DigestWish, Frame, Received};
use crate::login::{text_of, value_of};
use crate::script::{fail, skip};
use crate::session::{Sent, Watch};
use crate::target::bundle::Bundle;
use crate::target::talk::{Taken, Talk};
use crate::target::{Ctx, RowResult, RowSession};
use crate::{Command, LoginScript, PeerError, Stop};
use iscsi_wire::{Bhs, Cid, CmdSn, Itt, LineError, Names, Pdu, PduLine, Usual, keys};
use std::collections::BTreeMap;

/// Plays all cases of a row.
pub(crate) fn play_with_target(row: &Row, ctx: &Ctx) -> RowResult {
    let (mut parts, mut left_out) = (0, Vec::new());
    for Play { case, steps } in &row.plays {
        let mut stage = Stage::new(ctx);
        parts += steps.iter().filter(|step| step.what.begins()).count();
        for Step { line, on, what } in steps {
            stage.on = usize::from(*on);
            stage.step(what).map_err(|stop| match stop {
                Stop::Fail(why) if case.is_empty() => Stop::Fail(format!("{}:{line}: {why}", row.file)),
                Stop::Fail(why) => Stop::Fail(format!("{}:{line}: {case}: {why}", row.file)),
                other => other,
            })?;
        }
        left_out.extend(stage.left_out);
    }
    // If nothing applies, the row does not.
    if left_out.len() == parts
        && let Some(why) = left_out.pop()
    {
        return Err(Stop::NotApplicable(why));
    }
    match ctx.finding_of(&row.id) {
        Some(words) => fail!("{words}"),
        None => Ok(()),
    }
}

/// A command of the row.
struct Task {
    sent: Sent,
    /// Checks its PDUs, as long as the row leaves them to the rules.
    watch: Option<Watch>,
    /// Where its data is in the scratch area, bytes.
    at: usize,
    /// The command whose data it must read.
    holds: Option<String>,
    /// Bytes that were read.
    received: usize,
}

struct Stage<'a> {
    ctx: &'a Ctx,
    session: Option<Bundle>,
    /// The connection that the step is for: 0 is the first.
    on: usize,
    /// A login, in place of a session.
    login: Option<Login>,
    names: Names,
    tasks: BTreeMap<String, Task>,
    /// What came on a connection before a line awaited it: ends of commands and of functions, and asynchronous messages.
    kept: Vec<(usize, Received)>,
    /// Pings that wait for their answer, and their data.
    pings: Vec<(Itt, Vec<u8>)>,
    /// Task management functions that wait for their answer.
    functions: Vec<Itt>,
    /// What the row has sent.
    headers: Vec<Bhs>,
    /// The session has ended as it may, or was not granted: what follows up to the next one does not apply.
    over: bool,
    /// What the session needs may be missing.
    optional: bool,
    /// Why sessions were left out.
    left_out: Vec<String>,
}

/// A login that is under way.
struct Login {
    talk: Talk,
    /// What the target has made of the last request, until a step awaits it.
    taken: Option<Taken>,
}

impl From<LineError> for Stop {
    fn from(error: LineError) -> Self {
        Stop::Fail(error.to_string())
    }
}

impl<'a> Stage<'a> {
    fn new(ctx: &'a Ctx) -> Self {
        Stage {
            ctx,
            session: None,
            on: 0,
            login: None,
            names: Names::default(),
            tasks: BTreeMap::new(),
            kept: Vec::new(),
            pings: Vec::new(),
            functions: Vec::new(),
            headers: Vec::new(),
            over: false,
            optional: false,
            left_out: Vec::new(),
        }
    }

    fn step(&mut self, what: &What) -> RowResult {
        if let What::Session { .. } | What::Login { .. } = what {
            // The session and the login before end first.
            (self.session, self.login) = (None, None);
            self.over = false;
            // A target that is known to grant it must do so.
            self.optional = matches!(what, What::Session { optional: true, .. }) && !self.ctx.only_usual();
        }
        match self.take(what) {
            Err(Stop::NotApplicable(why)) if self.optional => {
                (self.session, self.over) = (None, true);
                self.left_out.push(why);
                Ok(())
            }
            other => other,
        }
    }

    fn take(&mut self, what: &What) -> RowResult {
        match what {
            What::Session { values, first_cmd_sn, .. } => self.begin(values, *first_cmd_sn),
            What::Login { discovery } => self.log_in(*discovery),
            _ if self.over => Ok(()),
            What::Offer(offer) => self.offer(offer),
            What::Await(wanted) if self.login.is_some() => self.await_keys(wanted),
            What::Send(line) => {
                self.windows()?;
                self.send(line.clone())
            }
            What::Await(wanted) => {
                self.windows()?;
                self.await_one(wanted)
            }
            What::Break => {
                self.gone().into_iter().for_each(RowSession::reset);
                Ok(())
            }
            What::Join => self.join(),
            What::Gap(name) => {
                let cmd_sn = self.session()?.take_cmd_sn(false);
                self.names.set(name, cmd_sn.0);
                Ok(())
            }
            What::Call(_)
            | What::Returned { .. }
            | What::Answer(_)
            | What::Propose(_)
            | What::Said(_)
            | What::Refuses => fail!("the step is for an initiator"),
        }
    }

    /// The connection that the step is for.
    fn session(&mut self) -> Result<&mut RowSession, Stop> {
        connection(&mut self.session, self.on)
    }

    /// The connection of the step is over. After the last one what follows up to the next session does not apply.
    fn gone(&mut self) -> Option<RowSession> {
        let session = self.session.as_mut()?;
        let gone = session.take(self.on);
        if session.is_empty() {
            self.session = None;
        }
        gone
    }

    /// Another connection of the session logs in. Its CID is its number.
    fn join(&mut self) -> RowResult {
        let cid = Cid(u16::try_from(self.on + 1).unwrap_or(u16::MAX));
        let Some(session) = &mut self.session else { fail!("the session is gone: begin another one") };
        session.join_at(self.ctx, self.on, cid)
    }

    /// Begins a session. If the target does not grant what the row needs, the row does not apply.
    fn begin(&mut self, values: &[Wanted], first_cmd_sn: Option<u32>) -> RowResult {
        self.tasks.clear();
        self.pings.clear();
        self.functions.clear();
        self.headers.clear();
        self.kept.clear();
        self.names = Names::default();
        let session = self.ctx.session_with(|script| {
            let script = first_cmd_sn.into_iter().fold(script, LoginScript::cmd_sn);
            values.iter().fold(script, |script, wanted| script.key(&wanted.key, &wanted.value))
        })?;
        for Wanted { key, value, at_most } in values {
            if *at_most || key == keys::MAX_RECV_DATA_SEGMENT_LENGTH {
                continue;
            }
            match value_of(&session.logged_in.pairs, key) {
                Some(granted) if granted == value => {}
                Some(granted) => skip!("the target negotiates {key}={granted}, the row needs {value}"),
                None => skip!("the target does not answer {key}, the row needs {value}"),
            }
        }
        let params = &session.params;
        let most = params.max_send_data_segment_length.min(params.max_recv_data_segment_length);
        self.names.bind("most", most);
        self.names.bind("first", params.writes.first_burst_length);
        self.session = Some(Bundle::of(session));
        Ok(())
    }

    fn log_in(&mut self, discovery: bool) -> RowResult {
        let script = if discovery { self.ctx.discovery_script() } else { self.ctx.script() };
        self.login = Some(Login { talk: Talk::with(self.ctx, script)?, taken: None });
        Ok(())
    }

    fn offer(&mut self, offer: &Offer) -> RowResult {
        let Some(login) = &mut self.login else { fail!("the login is over: begin another one") };
        login.taken = Some(login.talk.raw(&text_of(&offer.pairs), offer.transit)?);
        Ok(())
    }

    /// The answer to a login request.
    fn await_keys(&mut self, wanted: &Await) -> RowResult {
        let alternatives = self.usable(wanted);
        let taken = self.login.as_mut().and_then(|login| login.taken.take());
        let Some(taken) = taken else { fail!("nothing was sent that the target could answer") };
        let Some(found) = alternatives.iter().position(|one| taken.is(one)) else {
            fail!("expected {}, got {}", words(alternatives), taken.words());
        };
        if found >= wanted.ends_from || !matches!(taken, Taken::On(_)) {
            (self.login, self.over) = (None, true);
        }
        Ok(())
    }

    /// The alternatives that count.
    fn usable<'w>(&self, wanted: &'w Await) -> &'w [Alternative] {
        let count = if self.ctx.only_usual() { wanted.ends_from } else { wanted.alternatives.len() };
        &wanted.alternatives[..count]
    }

    fn send(&mut self, mut line: PduLine) -> RowResult {
        let area = self.area(&mut line)?;
        let (holds, of) = (line.take("holds"), line.take("of"));
        let itt = line.text("itt").map(str::to_owned);
        let cmd_sn = self.tags(&mut line)?;
        let session = connection(&mut self.session, self.on)?;
        let (lun, cid, exp_stat_sn) = (session.lun, session.script.cid, session.peer.ledger.exp_stat_sn());
        let usual = Usual { cmd_sn, exp_stat_sn, lun, cid, ..Usual::default() };
        let (pdu, ahs) = line.pdu(&usual, &self.names)?;
        let data = self.data(&line, &pdu, itt.as_deref(), of.as_deref(), area)?;
        let mut frame = Frame::of(pdu).ahs(ahs).data(data);
        if line.flag("bad_digest") {
            frame = frame.data_digest(DigestWish::Flip(0x40));
        }
        self.headers.push(frame.bhs());
        match self.session()?.peer.send(&frame) {
            Ok(()) => {}
            // A later step sees it.
            Err(error) if error.is_closed() => {}
            Err(error) => return Err(error.into()),
        }
        match (pdu, itt) {
            (Pdu::ScsiCommand(command), Some(name)) => {
                let read = command.expected_data_transfer_length;
                let (at, length) = area.unwrap_or_default();
                // EDTL may be more than what the CDB transfers, and more than there is.
                let length = length.max(read as usize).min(self.ctx.scratch().bytes());
                let described = match command.write {
                    true => Command::write(command.cdb, bytes(&name, at, length)).edtl(read),
                    false => Command::read(command.cdb, read),
                };
                let sent = Sent::new(command.itt, command.cmd_sn, described.lun(command.lun));
                let watch = Some(Watch::new(&sent, self.session()?));
                // A second command with the same tag must leave the first one as it is.
                self.tasks.entry(name).or_insert(Task { sent, watch, at, holds, received: 0 });
            }
            (Pdu::NopOut(ping), _) => self.pings.push((ping.itt, frame.data_bytes().to_vec())),
            (Pdu::TaskManagementRequest(request), _) => self.functions.push(request.itt),
            // From here on the row says what happens to the command.
            (_, name) => {
                let task = name.and_then(|name| self.tasks.get_mut(&name));
                task.into_iter().for_each(|task| task.watch = None);
            }
        }
        Ok(())
    }

    /// `read=BYTES` and `write=BYTES` stand for READ (16) and WRITE (16) of the scratch area, from `at=BYTES` on; `at=end` is the
    /// end of the unit. Returns where they begin in the scratch area, and their length.
    fn area(&self, line: &mut PduLine) -> Result<Option<(usize, usize)>, Stop> {
        let scratch = self.ctx.scratch();
        let block = u64::from(scratch.block_size);
        let number = |text: &str| {
            text.parse::<u32>()
                .map_err(|_| Stop::Fail(format!("`{text}` is no number of bytes: write it in decimal")))
        };
        let (opcode, length) = match (line.take("read"), line.take("write")) {
            (Some(length), None) => (0x88u8, length),
            (None, Some(length)) => (0x8a, length),
            (None, None) => return Ok(None),
            _ => fail!("a command has `read=` or `write=`"),
        };
        let (length, at) = (number(&length)?, line.take("at").unwrap_or_else(|| "0".to_owned()));
        let end = self.ctx.capacity_blocks().saturating_mul(block);
        let begin = match at.strip_prefix("end") {
            Some("") => end,
            Some(less) => end.saturating_sub(number(less.strip_prefix('-').unwrap_or(less))?.into()),
            None => scratch.lba * block + u64::from(number(&at)?),
        };
        if begin % block != 0 || u64::from(length) % block != 0 {
            skip!("a block has {block} bytes, the row needs {length} bytes at {at}");
        }
        let area = scratch.lba * block;
        if length as usize > scratch.bytes() || begin < area {
            fail!("a row has {} bytes to read and write, the line names {length} at {at}", scratch.bytes());
        }
        let lba = begin / block;
        line.with_flag(if opcode == 0x88 { "R" } else { "W" });
        line.with("edtl", length);
        line.with("cdb", format!("{opcode:02x}00{lba:016x}{:08x}0000", u64::from(length) / block));
        Ok(Some(((begin - area) as usize, length as usize)))
    }

    /// `next` is the session's next CmdSN, and `max` the MaxCmdSN that the target has announced.
    fn windows(&mut self) -> RowResult {
        let session = connection(&mut self.session, self.on)?;
        self.names.set("next", session.cmd_sn.0);
        if let Some(max) = session.peer.ledger.max_cmd_sn {
            self.names.set("max", max.0);
        }
        Ok(())
    }

    /// Gives the PDU its tag and its CmdSN, if the line does not; binds the names that stand for them.
    fn tags(&mut self, line: &mut PduLine) -> Result<CmdSn, Stop> {
        let names = &mut self.names;
        let session = connection(&mut self.session, self.on)?;
        let of_task = matches!(line.name(), "DataOut" | "SnackRequest");
        if !of_task {
            match line.text("itt") {
                Some(name) if names.value(name).is_none() => {
                    let _ = names.bind(name, session.itt().0);
                }
                None if line.name() != "NopOut" => line.with("itt", session.itt().0),
                _ => {}
            }
        }
        let counted = !of_task && !line.flag("I");
        match line.text("cmd_sn") {
            Some(name) if names.value(name).is_none() => {
                let cmd_sn = session.take_cmd_sn(!counted);
                let _ = names.bind(name, cmd_sn.0);
                Ok(cmd_sn)
            }
            Some(_) => Ok(session.cmd_sn),
            None => Ok(session.take_cmd_sn(!counted)),
        }
    }

    /// The data segment: `data=BYTES` of what the command writes, from the PDU's offset on.
    fn data(
        &mut self,
        line: &PduLine,
        pdu: &Pdu,
        itt: Option<&str>,
        other: Option<&str>,
        area: Option<(usize, usize)>,
    ) -> Result<Vec<u8>, Stop> {
        let Some(length) = line.number("data", &self.names)? else { return Ok(Vec::new()) };
        let most = self.session()?.params.max_send_data_segment_length;
        if length > most {
            skip!(
                "the target declares MaxRecvDataSegmentLength={most}, the row sends {length} bytes in a PDU"
            );
        }
        let (offset, of) = match pdu {
            Pdu::DataOut(data) => {
                (data.buffer_offset as usize, itt.and_then(|itt| self.tasks.get(itt)).map(|task| task.at))
            }
            _ => (0, area.map(|(at, _)| at)),
        };
        let at = of.unwrap_or(0).wrapping_add(offset);
        Ok(bytes(other.or(itt).unwrap_or_default(), at, length as usize))
    }

    fn await_one(&mut self, wanted: &Await) -> RowResult {
        let alternatives = self.usable(wanted);
        let words = || words(alternatives);
        let quiet = alternatives.iter().find_map(Alternative::nothing_for);
        let about = match quiet.flatten().map(|name| (name, self.names.value(name))) {
            Some((name, None)) => fail!("`itt={name}`: no line before has that name"),
            Some((_, Some(tag))) => Some(Itt(tag)),
            None => None,
        };
        let may_close = alternatives.iter().any(|one| matches!(one, Alternative::Close));
        loop {
            if wanted.after_all && self.take_kept(&wanted.alternatives[..wanted.ends_from]) {
                return Ok(());
            }
            let session = self.session()?;
            let next = match quiet {
                Some(_) => after_pings(session, about),
                None => session.next().map(Some),
            };
            let came = match next {
                Ok(Some(rx)) => Came::Pdu(described(&rx), rx),
                Err(error) if error.is_closed() => Came::Close,
                Err(PeerError::Timeout(_)) if quiet.is_some() && !may_close => {
                    fail!("expected {}: two pings were not answered", words())
                }
                // Where the connection may end the pings may go unanswered, too.
                Ok(None) | Err(PeerError::Timeout(_)) => Came::Nothing,
                Err(error) => fail!("expected {}: {error}", words()),
            };
            let found = alternatives.iter().position(|one| came.is(one, &mut self.names));
            if found.is_some_and(|at| at >= wanted.ends_from) {
                (self.session, self.over) = (None, true);
                return Ok(());
            }
            if found.is_some() && matches!(came, Came::Close) {
                self.gone().into_iter().for_each(RowSession::abandon);
                self.over = self.session.is_none();
                return Ok(());
            }
            let (got, rx) = match came {
                Came::Pdu(got, rx) => (got, rx),
                Came::Nothing if found.is_some() => return Ok(()),
                Came::Nothing => fail!("expected {}, nothing came", words()),
                Came::Close => fail!("expected {}, the target closed the connection", words()),
            };
            if let Some(Alternative::Pdu(line)) = found.and_then(|at| alternatives.get(at)) {
                if line.text("of_itt").is_some()
                    && !self.headers.iter().any(|sent| rx.data.starts_with(sent.as_bytes()))
                {
                    fail!("{got} returns a header that was not sent");
                }
                return self.goes_on(&rx, false).map(|_| ());
            }
            let told = matches!(rx.pdu(), Ok(Pdu::AsyncMessage(_)));
            if wanted.after_all && (told || (!self.ends(&rx, alternatives) && self.goes_on(&rx, true)?)) {
                self.kept.extend((told || is_end(&rx)).then_some((self.on, rx)));
                continue;
            }
            // A target that is about to close the connection may announce it first.
            if told && !self.ctx.only_usual() {
                continue;
            }
            let size_only = |one: &Alternative| matches!(one, Alternative::Pdu(line) if differs_in_size(line, &got, &self.names));
            if wanted.needed && alternatives.iter().any(size_only) {
                skip!("the target sends {got}, the row needs {}", words());
            }
            fail!("expected {}, received {got}", words());
        }
    }

    /// Has one of these come on the connection before?
    fn take_kept(&mut self, alternatives: &[Alternative]) -> bool {
        let (on, names) = (self.on, &mut self.names);
        let found = self.kept.iter().position(|(came_on, rx)| {
            let got = described(rx);
            let is = |one: &Alternative| matches!(one, Alternative::Pdu(line) if line.differs(&got, names).is_none());
            *came_on == on && alternatives.iter().any(is)
        });
        found.map(|at| self.kept.remove(at)).is_some()
    }

    /// Does it end the command whose end is awaited?
    fn ends(&self, rx: &Received, alternatives: &[Alternative]) -> bool {
        let tag = Some(rx.bhs.itt().0);
        let of_it = |one: &Alternative| match one {
            Alternative::Pdu(line) => line.text("itt").is_some_and(|name| self.names.value(name) == tag),
            _ => false,
        };
        is_end(rx) && alternatives.iter().any(of_it)
    }

    /// A PDU of the target is taken as the rules have it; R2Ts are answered if `serve`. False if it belongs to no command of the
    /// row, or ends one in another way than with GOOD.
    fn goes_on(&mut self, rx: &Received, serve: bool) -> Result<bool, Stop> {
        let itt = rx.bhs.itt();
        if let Ok(Pdu::TaskManagementResponse(_)) = rx.pdu() {
            // One for each function.
            let asked = self.functions.iter().position(|function| *function == itt);
            return Ok(asked.map(|at| self.functions.swap_remove(at)).is_some());
        }
        if let Some(at) = self.pings.iter().position(|(ping, _)| *ping == itt && !itt.is_reserved()) {
            let (_, mut data) = self.pings.swap_remove(at);
            data.truncate(self.session()?.params.max_recv_data_segment_length as usize);
            if data != rx.data {
                fail!("the answer to a ping has other data");
            }
            return Ok(true);
        }
        let Some(task) = self.tasks.values_mut().find(|task| task.sent.itt == itt) else { return Ok(false) };
        let session = connection(&mut self.session, self.on)?;
        let pdu = rx.pdu()?;
        if let Pdu::DataIn(data) = pdu {
            task.take(data.buffer_offset as usize, &rx.data)?;
        }
        let ended = match (&pdu, &mut task.watch) {
            (Pdu::R2t(_) | Pdu::DataIn(_) | Pdu::ScsiResponse(_), Some(watch)) => {
                watch.follow(&task.sent, rx, session, serve)?.map(|outcome| outcome.is_good())
            }
            (Pdu::R2t(r2t), None) if serve => {
                session.serve(&task.sent, r2t)?;
                None
            }
            (Pdu::DataIn(data), None) if data.status_bit => Some(data.status == 0),
            (Pdu::ScsiResponse(response), None) => Some(response.response == 0 && response.status == 0),
            (Pdu::R2t(_) | Pdu::DataIn(_), None) => None,
            _ => return Ok(false),
        };
        let Some(good) = ended else { return Ok(true) };
        if good
            && let (Some(holds), due) = (&task.holds, task.sent.edtl())
            && task.received < due
        {
            fail!("GOOD after {} of the {due} bytes that `{holds}` wrote", task.received);
        }
        Ok(good)
    }
}

/// The connection `on` of a session.
fn connection(session: &mut Option<Bundle>, on: usize) -> Result<&mut RowSession, Stop> {
    session
        .as_mut()
        .and_then(|session| session.get(on))
        .ok_or_else(|| Stop::Fail("the connection is gone: begin another session".to_owned()))
}

/// What has come when two pings are answered, if anything; `about` is the tag that it must have.
fn after_pings(session: &mut RowSession, about: Option<Itt>) -> Result<Option<Received>, PeerError> {
    let answered = session.ping().and_then(|()| session.ping());
    match about {
        Some(itt) if session.stashed(itt).is_some() => session.next_for(itt).map(Some),
        None if session.any_stashed().is_some() => session.next().map(Some),
        // What came before the end of the connection counts first.
        _ => answered.map(|()| None),
    }
}

/// Does it end a command, or a task management function?
fn is_end(rx: &Received) -> bool {
    match rx.pdu() {
        Ok(Pdu::ScsiResponse(_) | Pdu::TaskManagementResponse(_)) => true,
        Ok(Pdu::DataIn(data)) => data.status_bit,
        _ => false,
    }
}

fn words(alternatives: &[Alternative]) -> String {
    alternatives.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ")
}

impl Taken {
    /// Is it as described?
    fn is(&self, one: &Alternative) -> bool {
        match (self, one) {
            (Taken::On(reply), Alternative::Keys(demand)) => {
                demand.is_met(&reply.pairs, reply.response.transit)
            }
            (Taken::Refused(status), Alternative::Refused(wanted)) => {
                wanted.is_empty() || wanted.contains(&status.code())
            }
            (Taken::Closed, Alternative::Close) | (Taken::Nothing, Alternative::Nothing(None)) => true,
            _ => false,
        }
    }
}

impl Task {
    /// Data of a read must be what the other command wrote.
    fn take(&mut self, offset: usize, data: &[u8]) -> RowResult {
        self.received = self.received.saturating_add(data.len());
        let Some(holds) = &self.holds else { return Ok(()) };
        if bytes(holds, self.at.saturating_add(offset), data.len()) != data {
            fail!("the {} bytes read at {offset} are not those that `{holds}` wrote", data.len());
        }
        Ok(())
    }
}

/// Is it what was awaited, but for how much it requests?
fn differs_in_size(line: &PduLine, got: &str, names: &Names) -> bool {
    let mut line = line.clone();
    line.take("len").is_some() && line.differs(got, &mut names.clone()).is_none()
}

/// What came from the target.
enum Came {
    Pdu(String, Received),
    Close,
    Nothing,
}

impl Came {
    /// Is it as described? If so, names are bound.
    fn is(&self, one: &Alternative, names: &mut Names) -> bool {
        match (self, one) {
            (Came::Pdu(got, _), Alternative::Pdu(line)) => line.differs(got, names).is_none(),
            (Came::Close, Alternative::Close) | (Came::Nothing, Alternative::Nothing(_)) => true,
            _ => false,
        }
    }
}
