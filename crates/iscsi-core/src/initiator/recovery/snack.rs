//! The SNACK controller: requests missing data, R2Ts and statuses, late enough that one request covers a run (RFC 7143 7.8, 7.9,
//! 11.16; delaying and merging requests is taken from the offload engine of 2013).
//!
//! What is missing is in [`Holes`]; nothing is passed up out of order.

use iscsi_wire::{Cid, DataIn, Itt, Lun, R2t, SnackRequest, SnackType, StatSn, Ttt};

use super::super::actions::{CloseReason, violation};
use super::super::command::Ending;
use super::super::outcome::Outcome;
use super::super::session::InitiatorSession;
use super::super::task::Task;
use super::asking::{Asking, TooOften};
use super::holes::{Holes, Waiting};
use crate::limits::MAX_HELD_PDUS;
use crate::params;
use crate::pdu_reader::RxPdu;

impl InitiatorSession {
    /// Handles a Data-In that is not simply the next one: damaged, out of sequence, or of a task with holes.
    //= rfc7143 7.9 ERL-03 ERL-10 DIG-11
    pub(in super::super) fn recover_data_in(
        &mut self,
        cid: Cid,
        pdu: &DataIn,
        rx: RxPdu,
    ) -> Result<(), CloseReason> {
        let soon = self.now + self.config.snack_delay;
        let now = self.now;
        let Some(task) = self.tasks.command(pdu.itt) else { return Ok(()) };
        if task.is_decided() {
            return self.data_in_given_up(cid, pdu);
        }
        if task.holes.as_ref().is_some_and(|holes| holes.anew.is_some()) {
            return self.take_anew(cid, pdu, &rx);
        }
        let (n, next) = (pdu.data_sn.0, task.next_data_sn);
        if u64::from(pdu.buffer_offset) + rx.data.len() as u64 > u64::from(task.command.read_length) {
            return Err(violation("RFC 7143 11.7.6", "Data-In beyond what the command expects"));
        }
        if n < next || task.holes.as_ref().is_some_and(|holes| holes.waiting.contains_key(&n)) {
            return Ok(());
        }
        if n == next && rx.data_digest_ok {
            self.accept_data_in(cid, pdu, rx)?;
            return self.resume(cid, pdu.itt);
        }
        // No target sends that many behind a missing one: the data of the command bounds the number of its PDUs.
        if n == u32::MAX {
            return Err(violation("RFC 7143 11.7.5", "a DataSN that no sequence reaches"));
        }
        let holes = task.holes.get_or_insert_default();
        holes.known = holes.known.max(n + 1);
        if rx.data_digest_ok && holes.waiting.len() < MAX_HELD_PDUS && holes.has_place_for(pdu, rx.data.len())
        {
            holes.waiting.insert(n, Waiting::DataIn(Box::new((*pdu, rx))));
        }
        // At the end of a burst no more PDUs will join the run.
        holes.asking.wish(if pdu.final_bit { now } else { soon });
        self.remember_holes(pdu.itt);
        //= rfc7143 7.9 SNK-09
        if pdu.status_bit && self.see_stat_sn(cid, pdu.numbers.stat_sn)? {
            self.hold_status(cid, pdu.numbers.stat_sn);
        }
        Ok(())
    }

    /// Handles an R2T that is not simply the next one. Returns true when it waits, or has been seen before.
    //= rfc7143 7.9 ERL-03
    pub(in super::super) fn recover_r2t(&mut self, pdu: &R2t) -> Result<bool, CloseReason> {
        let soon = self.now + self.config.snack_delay;
        let Some(task) = self.tasks.command(pdu.itt) else { return Ok(true) };
        let (n, next) = (pdu.r2t_sn.0, task.next_data_sn);
        if task.route.reassigned {
            // On the new connection the target chooses where the numbers continue.
            (task.route.reassigned, task.next_data_sn) = (false, n);
            return Ok(false);
        }
        if n <= next {
            return Ok(n < next);
        }
        if n == u32::MAX {
            return Err(violation("RFC 7143 11.8.3", "an R2TSN that no sequence reaches"));
        }
        let holes = task.holes.get_or_insert_default();
        holes.known = holes.known.max(n + 1);
        if holes.waiting.len() < MAX_HELD_PDUS {
            holes.waiting.insert(n, Waiting::R2t(Box::new(*pdu)));
        }
        holes.asking.wish(soon);
        self.remember_holes(pdu.itt);
        Ok(true)
    }

    /// Keeps a response for which data is missing. Returns false when none is.
    //= rfc7143 11.4.8 ERL-03 SNK-09
    pub(in super::super) fn response_waits(
        &mut self,
        cid: Cid,
        itt: Itt,
        exp_data_sn: u32,
        stat_sn: StatSn,
        outcome: &Outcome,
    ) -> bool {
        let now = self.now;
        let Some(task) = self.tasks.command(itt) else { return false };
        if task.is_decided() || task.command.read_length == 0 {
            return false;
        }
        let missing = exp_data_sn > task.next_data_sn || task.holes.is_some();
        if !missing {
            return false;
        }
        let holes = task.holes.get_or_insert_default();
        holes.known = holes.known.max(exp_data_sn);
        holes.response = Some((stat_sn, outcome.clone()));
        if !holes.asking.covers(holes.known) {
            holes.asking.wish(now);
        }
        self.remember_holes(itt);
        self.hold_status(cid, stat_sn);
        true
    }

    fn hold_status(&mut self, cid: Cid, stat_sn: StatSn) {
        if let Some(connection) = self.connection(cid) {
            connection.statuses.hold(stat_sn);
        }
    }

    fn remember_holes(&mut self, itt: Itt) {
        self.missing.remember(itt);
    }

    /// Continues with the waiting PDUs up to the next hole; if there is none, with the response.
    pub(in super::super) fn resume(&mut self, cid: Cid, itt: Itt) -> Result<(), CloseReason> {
        while let Some(task) = self.tasks.command(itt) {
            let next = task.next_data_sn;
            let Some(holes) = &mut task.holes else { return Ok(()) };
            holes.asking.progress();
            match holes.waiting.remove(&next) {
                Some(Waiting::DataIn(both)) => self.accept_data_in(cid, &both.0, both.1)?,
                Some(Waiting::R2t(pdu)) => self.answer_r2t(cid, &pdu)?,
                None if next < holes.known => return Ok(()),
                None => {
                    let response = task.holes.take().and_then(|holes| holes.response);
                    self.missing.forget(itt);
                    if let Some((stat_sn, outcome)) = response {
                        self.end_held(itt, stat_sn, outcome)?;
                    }
                    return Ok(());
                }
            }
        }
        // The last Data-In carried the status.
        self.missing.forget(itt);
        Ok(())
    }

    /// Completes a task with the response that waited for its data.
    pub(super) fn end_held(
        &mut self,
        itt: Itt,
        stat_sn: StatSn,
        outcome: Outcome,
    ) -> Result<(), CloseReason> {
        let Some(task) = self.tasks.command(itt) else { return Ok(()) };
        let cid = task.route.home;
        self.take_stat_sn(cid, stat_sn)?;
        self.end_with(itt, outcome);
        Ok(())
    }

    /// Data for a task whose data is given up: only its status is used.
    fn data_in_given_up(&mut self, cid: Cid, pdu: &DataIn) -> Result<(), CloseReason> {
        if pdu.status_bit && self.take_stat_sn(cid, pdu.numbers.stat_sn)? {
            self.complete(pdu.itt, Ending::DataDigest);
        }
        Ok(())
    }

    /// Sends the SNACKs that are due.
    //= rfc7143 11.16 SNK-02 SNK-04 ERL-02
    pub(in super::super) fn send_snacks(&mut self) {
        let (now, again_after) = (self.now, self.config.recovery_timeout);
        let mut lost = Vec::new();
        let mut requests: Vec<(Cid, SnackRequest)> = Vec::new();
        for connection in self.connections.iter_mut().filter(|c| c.state.serves() && c.asking.due().is_some())
        {
            let holes = connection.statuses.holes();
            let Some(&(last, length)) = holes.last() else {
                connection.asking = Asking::default();
                continue;
            };
            let first = connection.statuses.expected().0;
            match connection.asking.fire(now, first, last.add(length).0, again_after) {
                None => {}
                Some(Err(TooOften)) => lost.push(connection.cid),
                Some(Ok(from)) => {
                    for (beg, length) in holes.into_iter().filter(|(beg, _)| StatSn(from).le(*beg)) {
                        requests.push((connection.cid, status_snack(beg, length)));
                    }
                }
            }
        }
        let mut given_up = Vec::new();
        let mut anew = Vec::new();
        for itt in self.missing.iter() {
            let Some(task) = self.tasks.command(itt).filter(|task| !task.route.orphan) else { continue };
            let (next, cid, lun, segment_bytes) =
                (task.next_data_sn, task.route.home, task.command.lun, task.segment_bytes);
            let Some(holes) = &mut task.holes else { continue };
            match holes.asking.fire(now, next, holes.known, again_after) {
                None => {}
                Some(Err(TooOften)) => given_up.push(itt),
                Some(Ok(from)) => {
                    let max_recv = self.connections.iter().find(|c| c.cid == cid).map(|c| c.max_recv);
                    if holes.anew.is_some() || max_recv.is_some_and(|max_recv| max_recv < segment_bytes) {
                        anew.push(itt);
                        continue;
                    }
                    for (beg, length) in holes.runs(next, from) {
                        requests.push((cid, data_snack(lun, itt, beg, length)));
                    }
                }
            }
        }
        for (cid, request) in requests {
            self.send_snack(cid, request);
        }
        for itt in anew {
            self.ask_anew(itt);
        }
        for itt in given_up {
            self.give_up_data(itt);
        }
        for cid in lost {
            self.fail_connection(cid, CloseReason::NotRecovered, None);
        }
    }

    pub(super) fn send_snack(&mut self, cid: Cid, request: SnackRequest) {
        let request = SnackRequest { exp_stat_sn: self.exp_stat_sn(cid), ..request };
        self.counters.snacks_sent += u64::from(request.snack_type != SnackType::DataAck);
        self.send(cid, request.to_bhs());
    }

    /// Acknowledges all data up to here, so that the target can release it.
    //= rfc7143 11.16.2 SNK-03
    pub(in super::super) fn acknowledge_data(&mut self, cid: Cid, pdu: &DataIn) {
        self.send_snack(
            cid,
            SnackRequest {
                snack_type: SnackType::DataAck,
                lun: pdu.lun,
                itt: Itt::RESERVED,
                ttt: pdu.ttt,
                exp_stat_sn: StatSn(0),
                beg_run: pdu.data_sn.next().0,
                run_length: 0,
            },
        );
    }

    /// Requests whatever a silent task may have been sent: an R2T or the last Data-In may be lost without a trace.
    //= rfc7143 7.9 ERL-03
    pub(in super::super) fn probe(&mut self, itt: Itt) {
        // PDUs known to be missing are requested already. In asymmetric use the connection to send this on is unknown until a PDU
        // has arrived.
        let asymmetric = self.is_asymmetric();
        let has_home = |task: &Task| !asymmetric || params::carries_data(task.route.home);
        let quiet = |task: &&mut Task| task.holes.is_none() && !task.is_decided() && has_home(task);
        let Some(task) = self.tasks.command(itt).filter(quiet) else { return };
        let (cid, lun, next) = (task.route.home, task.command.lun, task.next_data_sn);
        self.send_snack(cid, data_snack(lun, itt, next, 0));
    }

    /// The data of a task cannot be recovered: the task fails as soon as the target ends it, or now if it has.
    pub(in super::super) fn give_up_data(&mut self, itt: Itt) {
        self.missing.forget(itt);
        let Some(task) = self.tasks.command(itt) else { return };
        task.decide(Ending::DataDigest);
        let (cid, cmd_sn, lun) = (task.route.home, task.cmd_sn, task.command.lun);
        let held = task.holes.take();
        let Some(holes) = held else { return };
        let in_data = holes.waiting.into_values().find_map(|waiting| match waiting {
            Waiting::DataIn(both) if both.0.status_bit => Some(both.0.numbers.stat_sn),
            _ => None,
        });
        match holes.response.map(|(stat_sn, _)| stat_sn).or(in_data) {
            Some(stat_sn) => {
                if let Some(connection) = self.connection(cid) {
                    connection.statuses.settle(stat_sn);
                }
                self.complete(itt, Ending::DataDigest);
            }
            // The status may have been in a lost PDU.
            None => {
                if let Some(cmd_sn) = cmd_sn {
                    self.abort(itt, lun, cmd_sn);
                }
            }
        }
    }

    /// The target rejects a request for missing PDUs.
    //= rfc7143 7.8 SNK-06
    pub(in super::super) fn snack_refused(
        &mut self,
        cid: Cid,
        request: &SnackRequest,
    ) -> Result<(), CloseReason> {
        match request.snack_type {
            SnackType::DataAck => Ok(()),
            SnackType::Status => {
                // It may have arrived meanwhile.
                let missing = self.connection(cid).is_some_and(|c| {
                    c.statuses.holes().iter().any(|(beg, length)| {
                        let (mine, theirs) = (beg.0.wrapping_sub(request.beg_run), request.run_length);
                        mine < theirs.max(1) || request.beg_run.wrapping_sub(beg.0) < *length
                    })
                });
                if missing { Err(CloseReason::NotRecovered) } else { Ok(()) }
            }
            SnackType::DataOrR2t | SnackType::RData => {
                let itt = request.itt;
                let waits = |holes: &Holes| holes.known > request.beg_run || holes.anew.is_some();
                // A probe for which there is nothing is rejected too.
                if self.tasks.command(itt).is_some_and(|task| task.holes.as_deref().is_some_and(waits)) {
                    self.give_up_data(itt);
                }
                Ok(())
            }
        }
    }
}

fn status_snack(beg: StatSn, length: u32) -> SnackRequest {
    SnackRequest {
        snack_type: SnackType::Status,
        lun: Lun(0),
        itt: Itt::RESERVED,
        ttt: Ttt::RESERVED,
        exp_stat_sn: StatSn(0),
        beg_run: beg.0,
        run_length: length,
    }
}

fn data_snack(lun: Lun, itt: Itt, beg_run: u32, run_length: u32) -> SnackRequest {
    let (snack_type, ttt, exp_stat_sn) = (SnackType::DataOrR2t, Ttt::RESERVED, StatSn(0));
    SnackRequest { snack_type, lun, itt, ttt, exp_stat_sn, beg_run, run_length }
}
