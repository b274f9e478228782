//! The initiator of a run: PDUs that keep the rules, and PDUs that do not.

use super::*;

impl Run<'_> {
    pub(super) fn legal_command(&mut self) {
        let is_free = |itt: &Itt| {
            !self.sent.contains_key(itt) && self.unanswered.get(itt).is_none_or(|open| *open == 0)
        };
        // Tags of ignored commands stay in doubt, so there are more of them than are used elsewhere.
        let Some(itt) = (1..=8 * TAGS).map(Itt).find(is_free) else { return };
        let immediate = self.dice.one_in(6);
        if !immediate && !CmdSn(self.cmd_sn).le(self.max) {
            return;
        }
        let cmd_sn = if immediate { CmdSn(self.cmd_sn) } else { self.next_cmd_sn() };
        self.command_with(itt, cmd_sn, immediate);
    }

    pub(super) fn command_with(&mut self, itt: Itt, cmd_sn: CmdSn, immediate: bool) {
        let write = !self.dice.one_in(3);
        let edtl = self.dice.below(3000);
        let params = self.session.params().clone();
        let first_burst = params.effective_first_burst().min(edtl);
        let limit = first_burst.min(params.max_recv_data_segment_length);
        let with_data = write && params.bursts.immediate_data && self.dice.one_in(2);
        let immediate_data = if with_data { self.dice.below(limit + 1) } else { 0 };
        let more = write && !params.bursts.initial_r2t && immediate_data < first_burst && self.dice.one_in(2);
        let lun = Lun::from_index(self.dice.below(2) as u16);
        let mut cdb = [0; 16];
        cdb[2..6].copy_from_slice(&itt.0.to_be_bytes());
        let command = ScsiCommand {
            immediate,
            final_bit: !more,
            read: !write,
            write,
            attr: TaskAttribute::Simple,
            priority: 0,
            lun,
            itt,
            expected_data_transfer_length: edtl,
            cmd_sn,
            exp_stat_sn: StatSn(0),
            cdb,
        };
        let mut owed = VecDeque::new();
        if more {
            owed.push_back(Owed { ttt: Ttt::RESERVED, next: immediate_data, end: first_burst, data_sn: 0 });
        }
        let fresh =
            Sent { lun, edtl, owed, next_r2t: None, data_in: 0, data_sn: 0, since_final: 0, tainted: false };
        if let Some(old) = self.sent.get_mut(&itt) {
            old.tainted = true;
        } else {
            self.sent.insert(itt, fresh);
        }
        let mut pdu = rx(command.to_bhs(), pattern_bytes(itt, 0, immediate_data));
        if immediate_data > 0 && self.dice.one_in(16) {
            pdu.data_digest_ok = false;
            self.skipped.push(cmd_sn.0);
            self.sent.remove(&itt);
        }
        self.feed(pdu);
    }

    pub(super) fn legal_data(&mut self) {
        let mut tags: Vec<Itt> =
            self.sent.iter().filter(|(_, s)| !s.owed.is_empty()).map(|(itt, _)| *itt).collect();
        tags.sort_by_key(|itt| itt.0);
        if tags.is_empty() {
            return self.device_step();
        }
        let itt = self.dice.pick(&tags);
        let early_end = self.dice.one_in(24);
        let bad_digest = self.dice.one_in(24);
        let wanted = self.dice.pick(&[512, 100, 0, 1]);
        let sent = self.sent.get_mut(&itt).expect("picked from the map");
        let owed = sent.owed.front_mut().expect("filtered");
        let len = wanted.min(owed.end - owed.next);
        let final_bit = early_end || owed.next + len == owed.end;
        let pdu = DataOut {
            final_bit,
            lun: sent.lun,
            itt,
            ttt: owed.ttt,
            exp_stat_sn: StatSn(0),
            data_sn: DataSn(owed.data_sn),
            buffer_offset: owed.next,
        };
        let data = pattern_bytes(itt, owed.next, len);
        owed.next += len;
        owed.data_sn += 1;
        if final_bit {
            sent.owed.pop_front();
        }
        let mut pdu = rx(pdu.to_bhs(), data);
        pdu.data_digest_ok = !bad_digest;
        self.feed(pdu);
    }

    pub(super) fn next_tmf_tag(&mut self) -> Itt {
        self.tmf_tag += 1;
        Itt(self.tmf_tag)
    }

    pub(super) fn fill_hole(&mut self) {
        let Some(cmd_sn) = self.skipped.pop() else { return };
        if self.dice.one_in(2) {
            let itt = Itt(100 + self.dice.below(4));
            return self.command_with(itt, CmdSn(cmd_sn), false);
        }
        self.abort_missing(CmdSn(cmd_sn));
    }

    /// Declares that the command with `cmd_sn` will not arrive.
    pub(super) fn abort_missing(&mut self, cmd_sn: CmdSn) {
        let request = TaskManagementRequest {
            immediate: true,
            function: TmfFunction::AbortTask,
            lun: Lun(0),
            itt: self.next_tmf_tag(),
            referenced_task_tag: Itt(3000),
            cmd_sn: self.max.next(),
            exp_stat_sn: StatSn(0),
            ref_cmd_sn: cmd_sn,
            exp_data_sn: DataSn(0),
        };
        self.feed(rx(request.to_bhs(), Bytes::new()));
    }

    pub(super) fn duplicate_or_far_command(&mut self) {
        let far = self.dice.pick(&[0, 1, 2, 1 << 31, 0x7fff_ffff, 0xffff_ffff, 64]);
        let itt = Itt(1 + self.dice.below(TAGS));
        let cmd_sn = self.exp.add(far);
        // Data for it may reach a command that the driver does not know of.
        if cmd_sn.0.wrapping_sub(self.cmd_sn) < 1 << 16 {
            self.cmd_sn = cmd_sn.0.wrapping_add(1);
        }
        self.command_with(itt, cmd_sn, false);
        self.taint(itt);
    }

    pub(super) fn task_management(&mut self) {
        let function = self.dice.pick(TmfFunction::ALL);
        let immediate = !self.dice.one_in(3);
        let cmd_sn = if immediate { CmdSn(self.cmd_sn) } else { self.next_cmd_sn() };
        let referenced_task_tag = Itt(1 + self.dice.below(TAGS));
        let request = TaskManagementRequest {
            immediate,
            function,
            lun: Lun::from_index(self.dice.below(2) as u16),
            itt: self.next_tmf_tag(),
            referenced_task_tag,
            cmd_sn,
            exp_stat_sn: StatSn(0),
            ref_cmd_sn: self.exp.add(self.dice.below(4)),
            exp_data_sn: DataSn(0),
        };
        self.feed(rx(request.to_bhs(), Bytes::new()));
        // The target may send nothing more for the tasks that it affects, or anything, if it was ignored.
        for sent in self.sent.values_mut() {
            sent.tainted = true;
        }
    }

    pub(super) fn nop_out(&mut self) {
        let immediate = self.dice.one_in(2);
        let answer = self.dice.one_in(4);
        let cmd_sn = if immediate || answer { CmdSn(self.cmd_sn) } else { self.next_cmd_sn() };
        let nop = NopOut {
            immediate: immediate || answer,
            lun: Lun(0),
            itt: if answer { Itt::RESERVED } else { Itt(400) },
            ttt: if answer { Ttt(self.dice.below(16)) } else { Ttt::RESERVED },
            cmd_sn,
            exp_stat_sn: StatSn(0),
        };
        let len = self.dice.below(700);
        self.feed(rx(nop.to_bhs(), pattern_bytes(Itt(400), 0, len)));
    }

    pub(super) fn text(&mut self) {
        let final_bit = !self.dice.one_in(3);
        let immediate = self.dice.one_in(2);
        let cmd_sn = if immediate { CmdSn(self.cmd_sn) } else { self.next_cmd_sn() };
        let request = TextRequest {
            immediate,
            final_bit,
            continue_bit: self.dice.one_in(4),
            lun: Lun(0),
            itt: Itt(500 + self.dice.below(2)),
            ttt: if self.dice.one_in(2) { Ttt(self.dice.below(32)) } else { Ttt::RESERVED },
            cmd_sn,
            exp_stat_sn: StatSn(0),
        };
        let text: &[u8] = self.dice.pick(&[
            b"SendTargets=\0".as_slice(),
            b"SendTargets=All\0",
            b"SendTargets=iqn.2025-01.org.example:a\0",
            b"MaxRecvDataSegmentLength=512\0",
            b"X-a=b\0X-c=d\0",
            b"MaxBurstLength=512\0",
            b"SendTar",
            b"",
        ]);
        self.feed(rx(request.to_bhs(), Bytes::from_static(text)));
    }

    pub(super) fn logout(&mut self) {
        let request = LogoutRequest {
            immediate: true,
            reason: self.dice.pick(LogoutReason::ALL),
            itt: Itt(600),
            cid: Cid(self.dice.below(3) as u16),
            cmd_sn: CmdSn(self.cmd_sn),
            exp_stat_sn: StatSn(0),
        };
        self.feed(rx(request.to_bhs(), Bytes::new()));
    }

    /// A random header, close enough to a valid one to get past the first check now and then.
    pub(super) fn garbage(&mut self) {
        let mut header = [0u8; 48];
        header[0] = self.dice.pick(&[0, 1, 2, 3, 4, 5, 5, 5, 6, 0x10, 0x1f, 0x20, 0x21, 0x25, 0x31, 0x3f])
            | self.dice.pick(&[0, 0x40, 0x80]);
        header[1] = self.dice.byte();
        if header[0] & 0x3f == 6 && self.dice.one_in(2) {
            header[0] ^= 6;
        }
        header[9] = self.dice.below(2) as u8;
        let itt = Itt(1 + self.dice.below(TAGS));
        header[16..20].copy_from_slice(&itt.0.to_be_bytes());
        let ttt = if self.dice.one_in(2) { self.dice.below(32) } else { u32::MAX };
        header[20..24].copy_from_slice(&ttt.to_be_bytes());
        header[24..28].copy_from_slice(&self.cmd_sn.to_be_bytes());
        header[36..40].copy_from_slice(&self.dice.below(3).to_be_bytes());
        header[40..44].copy_from_slice(&self.dice.pick(&[0u32, 512, 1024, 0xffff_ffff]).to_be_bytes());
        for _ in 0..self.dice.below(3) {
            let at = self.dice.below(48) as usize;
            header[at] = self.dice.byte();
        }
        // Garbage must not look like a command whose tag differs from the one in its CDB.
        let tag: [u8; 4] = header[16..20].try_into().expect("four bytes");
        if header[0] & 0x3f == 1 {
            header[34..38].copy_from_slice(&tag);
        }
        let itt = Itt(u32::from_be_bytes(tag));
        let offset = u32::from_be_bytes(header[40..44].try_into().expect("four bytes"));
        let (len, start) = (self.dice.pick(&[0, 0, 512, 3]), if header[0] & 0x3f == 5 { offset } else { 0 });
        let mut bhs = Bhs::from_bytes(header);
        let ahs: &'static [u8] = self.dice.pick(&[
            b"".as_slice(),
            b"",
            &[0, 5, 2, 0, 0, 0, 4, 0],
            &[0, 1, 1, 0],
            &[0, 9, 0x3e, 0, 1, 2, 3, 4],
        ]);
        bhs.set_total_ahs_length(ahs.len());
        let mut pdu = rx(bhs, pattern_bytes(itt, start, len));
        pdu.ahs = Bytes::from_static(ahs);
        pdu.data_digest_ok = !self.dice.one_in(8);
        self.taint(itt);
        self.feed(pdu);
        // It may have consumed a number.
        if CmdSn(self.cmd_sn).lt(self.exp) {
            self.cmd_sn = self.exp.0;
        }
    }

    pub(super) fn taint(&mut self, itt: Itt) {
        if let Some(sent) = self.sent.get_mut(&itt) {
            sent.tainted = true;
        }
    }

    pub(super) fn feed(&mut self, mut pdu: RxPdu) {
        pdu.bhs.set_total_ahs_length(pdu.ahs.len());
        self.pdus += 1;
        match Pdu::parse(&pdu.bhs) {
            Ok(Pdu::ScsiCommand(command)) => {
                *self.unanswered.entry(command.itt).or_default() += 1;
                self.commanded_at.insert(command.itt, self.pdus);
                // The one before may have vanished: other requests can abort it without an answer.
                if self
                    .running
                    .get(&command.itt)
                    .is_some_and(|id| self.device.get(id).is_none_or(|t| t.abandoned))
                {
                    self.running.remove(&command.itt);
                }
            }
            Ok(Pdu::TaskManagementRequest(request)) => {
                let of = (request.function == TmfFunction::AbortTask).then_some(request.referenced_task_tag);
                self.unanswered_tmf.entry(request.itt).or_default().push_back((of, self.pdus));
            }
            _ => {}
        }
        self.headers.insert(*pdu.bhs.as_bytes());
        if self.trace {
            eprintln!("I> {} digest_ok={}", one_line(&pdu.bhs, &pdu.ahs), pdu.data_digest_ok);
        }
        self.session.handle_pdu(self.now, CID, &pdu);
    }
}
