//! The device server, the owner of the sessions, the network and the clock of a run.

use super::*;

impl Run<'_> {
    pub(super) fn device_step(&mut self) {
        let mut ids: Vec<TaskId> = self.device.keys().copied().collect();
        ids.sort();
        if ids.is_empty() {
            return;
        }
        let id = self.dice.pick(&ids);
        let early = self.dice.one_in(8);
        let task = self.device.get_mut(&id).expect("picked from the map");
        if task.abandoned && !early {
            self.device.remove(&id);
            return self.session.task_gone(id);
        }
        match task.stage {
            Stage::Offered if task.write_length > 0 && !early => {
                task.stage = Stage::Collecting;
                task.wanted = u64::from(self.dice.below(2)) * 10_000 + u64::from(self.dice.below(2000));
                let wanted = task.wanted;
                self.session.need_data_out(id, wanted);
            }
            Stage::Collecting if !early => {}
            _ => self.complete(id),
        }
    }

    pub(super) fn complete(&mut self, id: TaskId) {
        let Some(task) = self.device.remove(&id) else { return };
        if self.trace {
            eprintln!("   completes {task:?}");
        }
        let status = self.dice.pick(&[0u8, 0, 0, 2, 8, 0x18]);
        let data = if status == 0 && task.read_length > 0 { self.dice.below(3000) } else { 0 };
        let completion = Completion {
            status,
            sense: if status == 2 { Bytes::from_static(&[0x70, 0, 5, 0, 0, 0, 0, 0]) } else { Bytes::new() },
            data_in: Payload { bytes: pattern_bytes(task.itt, 0, data), ..Payload::default() },
            transfer_bytes: u64::from(data),
            ..Completion::default()
        };
        self.session.complete(id, completion);
    }

    pub(super) fn manage_step(&mut self) {
        if let Some(request) = self.managing.pop() {
            let lun = match request.function {
                TmfFunction::TargetWarmReset | TmfFunction::TargetColdReset => None,
                _ => Some(request.lun),
            };
            let scope = AbortScope { lun, request: Some(request.id), task_aborted_status: false };
            self.abort(scope, Some(request.id));
        }
    }

    pub(super) fn third_party_abort(&mut self) {
        let lun = if self.dice.one_in(2) { None } else { Some(Lun::from_index(self.dice.below(2) as u16)) };
        let scope = AbortScope { lun, request: None, task_aborted_status: self.dice.one_in(2) };
        for sent in self.sent.values_mut() {
            sent.tainted = true;
        }
        self.abort(scope, None);
    }

    pub(super) fn abort(&mut self, scope: AbortScope, request: Option<ManagementId>) {
        let token = self.next_token;
        self.next_token += 1;
        self.tokens.insert(token, request);
        self.session.abort_tasks(scope, token);
    }

    pub(super) fn pass_time(&mut self) {
        self.now += Duration::from_secs(self.dice.pick(&[1, 2, 3, 30]));
        self.session.handle_timeout(self.now);
    }

    pub(super) fn lose_connection(&mut self) {
        self.session.handle_connection_lost(self.now, CID);
        self.forget_connection();
    }

    pub(super) fn forget_connection(&mut self) {
        self.up = false;
        self.sent.clear();
        self.unanswered.clear();
        self.unanswered_tmf.clear();
        self.managing.clear();
        self.running.clear();
        self.send_targets = 0;
    }
}
