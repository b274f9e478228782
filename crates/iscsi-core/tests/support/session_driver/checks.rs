//! The output of the session, and the rules that it must keep.

use super::*;

impl Run<'_> {
    pub(super) fn drain(&mut self) {
        while let Some(action) = self.session.poll_action() {
            assert!(!self.ended, "an action after the end: {action:?}");
            if self.trace {
                match &action {
                    Action::Send { pdu, .. } => eprintln!("T< {}", one_line(&pdu.bhs, &pdu.ahs)),
                    other => eprintln!("   {other:?}"),
                }
            }
            match action {
                Action::Send { cid, pdu } => {
                    assert!(self.up && cid == CID, "a PDU for a connection that is gone: {pdu:?}");
                    self.check_sent(pdu);
                }
                Action::Start(command) => self.check_start(command),
                Action::DataOut { task, data } => {
                    let known = self.device.get_mut(&task).expect("data for a task that was never started");
                    assert!(known.stage == Stage::Collecting && !known.abandoned, "data nobody asked for");
                    known.stage = Stage::Executing;
                    let whole: Vec<u8> = data.iter().flatten().copied().collect();
                    let due = known.wanted.min(u64::from(known.write_length));
                    assert_eq!(whole.len() as u64, due, "length of the data of {known:?}");
                    for (offset, byte) in whole.iter().enumerate() {
                        assert_eq!(*byte, pattern(known.itt, offset as u32), "byte {offset} of {known:?}");
                    }
                }
                Action::Abandon { task } => {
                    let known = self.device.get_mut(&task).expect("abandons what the device server holds");
                    assert!(!known.abandoned, "abandoned twice: {known:?}");
                    known.abandoned = true;
                }
                Action::Refused { .. } => {}
                Action::Manage(request) => self.managing.push(request),
                Action::TasksGone { token } => {
                    let request = self.tokens.remove(&token).expect("one TasksGone for each call");
                    if let Some(id) = request {
                        self.session.management_done(id, TmfResponse::FunctionComplete);
                    }
                }
                Action::SendTargets { .. } => self.send_targets += 1,
                Action::Close { cid, reason } => {
                    assert!(self.up && cid == CID, "closes a connection twice: {reason:?}");
                    self.forget_connection();
                }
                Action::Ended => {
                    self.ended = true;
                    assert!(!self.up, "ended with a connection");
                    assert_eq!(self.session.holdings(), Holdings::default());
                    assert!(self.device.is_empty(), "the device server still holds {:?}", self.device);
                    assert!(self.tokens.is_empty(), "never heard of {:?}", self.tokens);
                }
            }
        }
    }

    pub(super) fn check_start(&mut self, command: Command) {
        assert!(self.started.insert(command.task), "started twice: {command:?}");
        let itt = Itt(u32::from_be_bytes(command.cdb[2..6].try_into().expect("four bytes")));
        if self.up {
            self.running.insert(itt, command.task);
        }
        self.device.insert(
            command.task,
            DeviceTask {
                itt,
                stage: Stage::Offered,
                abandoned: false,
                read_length: command.read_length,
                write_length: command.write_length,
                wanted: 0,
            },
        );
    }

    pub(super) fn check_sent(&mut self, pdu: TxPdu) {
        let mut bhs = pdu.bhs;
        assert_eq!((bhs.data_segment_length(), bhs.total_ahs_length()), (0, 0), "set by the writer");
        let parsed = Pdu::parse(&bhs).expect("we send what parses");
        assert_eq!(parsed.to_bhs(), bhs, "no reserved bit is set");
        bhs.set_data_segment_length(pdu.data.len());
        assert!(pdu.ahs.is_empty());
        let data = &pdu.data.bytes();
        let (ResponseNumbers { stat_sn, exp_cmd_sn: exp, max_cmd_sn: max }, counts) = match parsed {
            Pdu::LoginResponse(p) => {
                self.stat_sn = Some(p.numbers.stat_sn);
                (p.numbers, true)
            }
            Pdu::NopIn(p) => (p.numbers, !p.itt.is_reserved()),
            Pdu::ScsiResponse(p) => {
                assert_eq!(p.status == 2, !data.is_empty(), "sense with CHECK CONDITION only: {p:?}");
                self.check_end(p.itt);
                (p.numbers, true)
            }
            Pdu::TaskManagementResponse(p) => {
                let open = self.unanswered_tmf.get_mut(&p.itt).and_then(VecDeque::pop_front);
                let (of, asked_at) = open.expect("answers one request once");
                // The tag of an aborted command is free again, unless another command has taken it in the meantime.
                if let Some(tag) = of.filter(|_| p.response == TmfResponse::FunctionComplete)
                    && self.commanded_at.get(&tag).is_none_or(|at| *at < asked_at)
                {
                    self.sent.remove(&tag);
                    self.running.remove(&tag);
                    let open = self.unanswered.entry(tag).or_default();
                    *open = open.saturating_sub(1);
                }
                (p.numbers, true)
            }
            Pdu::TextResponse(p) => {
                assert!(!(p.final_bit && p.continue_bit));
                assert_eq!(p.final_bit, p.ttt.is_reserved());
                assert!(data.len() <= 512);
                (p.numbers, true)
            }
            Pdu::DataIn(p) => {
                assert!(!data.is_empty() && data.len() <= 512);
                assert!(p.final_bit || !p.status_bit);
                let max_burst = self.session.params().bursts.max_burst_length;
                if let Some(sent) = self.sent.get_mut(&p.itt).filter(|sent| !sent.tainted) {
                    assert_eq!((p.buffer_offset, p.data_sn.0), (sent.data_in, sent.data_sn));
                    sent.data_in += data.len() as u32;
                    sent.data_sn += 1;
                    sent.since_final += data.len() as u32;
                    assert!(sent.data_in <= sent.edtl, "more data than expected");
                    assert!(sent.since_final <= max_burst, "a sequence longer than MaxBurstLength");
                    if p.final_bit {
                        sent.since_final = 0;
                    }
                }
                for (i, byte) in data.iter().enumerate() {
                    assert_eq!(*byte, pattern(p.itt, p.buffer_offset + i as u32));
                }
                if p.status_bit {
                    self.check_end(p.itt);
                }
                let stat_sn = if p.status_bit { p.numbers.stat_sn } else { self.stat_sn.unwrap_or_default() };
                (ResponseNumbers { stat_sn, ..p.numbers }, p.status_bit)
            }
            Pdu::LogoutResponse(p) => (p.numbers, true),
            Pdu::R2t(p) => {
                self.check_r2t(&p);
                (p.numbers, false)
            }
            Pdu::AsyncMessage(p) => (p.numbers, true),
            Pdu::Reject(p) => {
                let header: &[u8; 48] = data.as_ref().try_into().expect("the rejected header");
                assert!(self.headers.contains(header), "rejects what was never sent");
                (p.numbers, true)
            }
            initiator => panic!("a target does not send {initiator:?}"),
        };
        assert_eq!(Some(stat_sn), self.stat_sn, "StatSN of {parsed:?}");
        if counts {
            self.stat_sn = Some(stat_sn.next());
        }
        assert!(exp.ge(self.exp), "ExpCmdSN goes back: {parsed:?}");
        assert!(max.ge(self.max), "MaxCmdSN goes back: {parsed:?}");
        assert!(max.next().ge(exp), "MaxCmdSN below ExpCmdSN - 1: {parsed:?}");
        (self.exp, self.max) = (exp, max);
    }

    pub(super) fn check_end(&mut self, itt: Itt) {
        let open = self.unanswered.entry(itt).or_default();
        assert!(*open > 0, "a status that no command asked for: {itt:?}");
        *open -= 1;
        self.sent.remove(&itt);
        if let Some(task) = self.running.remove(&itt) {
            assert!(!self.device.contains_key(&task), "status before the device server let go of {itt:?}");
        }
    }

    pub(super) fn check_r2t(&mut self, p: &iscsi_core::wire::R2t) {
        let params = self.session.params();
        assert!(!p.ttt.is_reserved());
        assert!((1..=params.bursts.max_burst_length).contains(&p.desired_data_transfer_length), "{p:?}");
        let ttt_in_use = self.sent.values().flat_map(|s| &s.owed).any(|owed| owed.ttt == p.ttt);
        assert!(!ttt_in_use, "a TTT that is in use: {p:?}");
        let end = p.buffer_offset.checked_add(p.desired_data_transfer_length).expect("ends below 2^32");
        let Some(sent) = self.sent.get_mut(&p.itt) else { return };
        if !sent.tainted {
            assert_eq!(p.lun, sent.lun);
            assert!(end <= sent.edtl, "beyond the expected length: {p:?}");
            assert!(sent.next_r2t.is_none_or(|next| next == p.buffer_offset), "not contiguous: {p:?}");
            let outstanding = sent.owed.iter().filter(|owed| !owed.ttt.is_reserved()).count();
            assert!(outstanding < usize::from(params.bursts.max_outstanding_r2t), "too many R2Ts: {p:?}");
        }
        sent.next_r2t = Some(end);
        sent.data_sn += 1;
        sent.owed.push_back(Owed { ttt: p.ttt, next: p.buffer_offset, end, data_sn: 0 });
    }

    pub(super) fn check_bounds(&self) {
        let held = self.session.holdings();
        let most = self.queue_depth + 32;
        assert!(held.tasks <= most, "{held:?}");
        assert!(held.leaving <= 2 * most, "{held:?}");
        assert!(held.unsolicited <= held.tasks, "{held:?}");
        assert!(held.drains <= 1024, "{held:?}");
        if held.tasks == 0 {
            assert_eq!(held.data_out.solicited_bytes, 0, "{held:?}");
        }
    }
}
