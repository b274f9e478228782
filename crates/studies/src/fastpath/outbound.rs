//! The other direction: the Data-Out of a write, from the session to the bytes for a send (section 2.3 of the paper, which says that its
//! protocol costs less than that of a read, its CRC the same, and that at most one copy is made).
//!
//! A command writes eight PDUs of 8 KiB, all unsolicited or all for one R2T, warm. What is timed is everything from handing the command, or
//! the R2T, to the session until the bytes of its Data-Out are ready to be sent.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use engine::cycles;
use iscsi_core::digest::DigestScope;
use iscsi_core::initiator::command::{Command, WriteData};
use iscsi_core::initiator::session::{Action, InitiatorSession, SessionConfig};
use iscsi_core::params::{Bursts, Params};
use iscsi_core::pdu_reader::RxPdu;
use iscsi_core::pdu_writer::PduWriter;
use iscsi_core::wire::{
    Bhs, Cid, CmdSn, DataSn, Itt, Lun, Pdu, R2t, R2tSn, ResidualCount, ResponseNumbers, ScsiResponse, StatSn,
    Ttt,
};
use serde::Serialize;

use super::sandbox::{NOW, login};
use super::turns::LARGE_PDU_BYTES;
use crate::clock::Frequency;
use harness::content::random;
use harness::statistics::median;

const PDUS: usize = 8;
const COMMAND_BYTES: usize = PDUS * LARGE_PDU_BYTES;
/// Commands in one turn.
const COMMANDS: usize = 8;
const WRITE_16: u8 = 0x8a;
const CID: Cid = Cid(0);

/// Who requested the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Asked {
    /// Nobody: it is the first burst.
    Unsolicited,
    /// The target, by an R2T.
    Solicited,
}

/// Where the data of the command was before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum From {
    /// In memory that the session shares: no copy.
    Shared,
    /// In memory of the caller: one copy, interleaved with the CRC.
    Copied,
}

/// One measured case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Subject {
    pub asked: Asked,
    pub from: From,
    pub digests: bool,
}

impl Subject {
    /// All of them.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        let pairs = [Asked::Unsolicited, Asked::Solicited]
            .into_iter()
            .flat_map(|asked| [From::Shared, From::Copied].map(|from| (asked, from)));
        pairs.flat_map(|(asked, from)| [true, false].map(|digests| Self { asked, from, digests }))
    }
}

/// What one Data-Out PDU costs.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Sent {
    pub asked: Asked,
    pub from: From,
    pub digests: bool,
    /// Cycles: the median of the rounds.
    pub cycles: f64,
}

/// Ticks of a PDU in each round, for each subject.
pub(super) type Rounds = Vec<(Subject, Vec<f64>)>;

/// Measures all subjects, in turn in each round; one round before the first is not counted.
///
/// # Errors
/// When the session does not send what was written.
pub(super) fn run(rounds: u32) -> Result<Rounds, String> {
    let mut all: Vec<(Subject, Vec<f64>, Sender)> =
        Subject::all().map(|subject| (subject, Vec::new(), Sender::new(subject))).collect();
    for round in 0..=rounds {
        for (_, samples, sender) in &mut all {
            let mut ticks = 0;
            for _ in 0..COMMANDS {
                ticks += sender.command()?;
            }
            if round > 0 {
                samples.push(ticks as f64 / (COMMANDS * PDUS) as f64);
            }
        }
    }
    Ok(all.into_iter().map(|(subject, samples, _)| (subject, samples)).collect())
}

/// The result of the rounds.
pub(super) fn summary(rounds: &Rounds, frequency: &Frequency) -> Vec<Sent> {
    let sent = |(subject, ticks): &(Subject, Vec<f64>)| Sent {
        asked: subject.asked,
        from: subject.from,
        digests: subject.digests,
        cycles: median(ticks) * frequency.cycles_per_tick() - frequency.empty_sample_cycles / PDUS as f64,
    };
    rounds.iter().map(sent).collect()
}

/// A session that writes.
struct Sender {
    subject: Subject,
    session: InitiatorSession,
    writer: PduWriter,
    content: Bytes,
    run_bytes: Option<u32>,
    cmd_sn: CmdSn,
    stat_sn: StatSn,
}

impl Sender {
    fn new(subject: Subject) -> Self {
        let digests = DigestScope { header: subject.digests, data: subject.digests };
        let params = Params {
            digests,
            max_send_data_segment_length: LARGE_PDU_BYTES as u32,
            bursts: Bursts {
                max_burst_length: COMMAND_BYTES as u32,
                first_burst_length: COMMAND_BYTES as u32,
                initial_r2t: subject.asked == Asked::Solicited,
                immediate_data: false,
                ..Params::default().bursts
            },
            ..Params::default()
        };
        let config = SessionConfig { ping_interval: Duration::ZERO, ..SessionConfig::default() };
        let session = InitiatorSession::new(&login(&params, CID, CmdSn(1)), config, NOW);
        let mut writer = PduWriter::new();
        writer.set_digests(digests);
        let mut state = 0x2545_f491_4f6c_dd1d;
        Self {
            subject,
            run_bytes: subject.digests.then(|| params.write_run_bytes()),
            session,
            writer,
            content: random(COMMAND_BYTES, &mut state).into(),
            cmd_sn: CmdSn(1),
            stat_sn: StatSn(1),
        }
    }

    /// Writes with one command; returns the ticks until its data was ready to be sent.
    fn command(&mut self) -> Result<u64, String> {
        let mut cdb = [0; 16];
        cdb[0] = WRITE_16;
        let space = BytesMut::zeroed(COMMAND_BYTES);
        let began = cycles::now();
        let write = match self.subject.from {
            From::Shared => WriteData::from(self.content.clone()),
            From::Copied => WriteData::copy_from(&self.content, space, self.run_bytes),
        };
        let command =
            Command { write, timeout: Duration::ZERO, idempotent: true, ..Command::new(Lun(0), &cdb) };
        let refused = self.session.submit(NOW, command).is_err();
        let mut ticks = cycles::now().wrapping_sub(began);
        self.cmd_sn = self.cmd_sn.next();
        if self.subject.asked == Asked::Unsolicited {
            let began = cycles::now();
            let (itt, sent) = self.send();
            ticks += cycles::now().wrapping_sub(began);
            self.check(&sent, refused)?;
            return self.respond(itt).map(|()| ticks);
        }
        let (itt, _) = self.send();
        let r2t = self.r2t(itt);
        let began = cycles::now();
        self.receive(r2t);
        let (_, sent) = self.send();
        ticks += cycles::now().wrapping_sub(began);
        self.check(&sent, refused)?;
        self.respond(itt).map(|()| ticks)
    }

    /// Encodes everything that the session wants to send; returns the tag of its last command or Data-Out, and the bytes.
    fn send(&mut self) -> (Itt, Vec<Bytes>) {
        let (mut itt, mut bytes) = (Itt::RESERVED, Vec::with_capacity(3 * PDUS));
        while let Some(action) = self.session.poll_action() {
            if let Action::Send { pdu, .. } = action {
                itt = pdu.bhs.itt();
                self.writer.push(pdu);
            }
        }
        while self.writer.queued_bytes() > 0 {
            self.writer.take(usize::MAX, &mut bytes);
        }
        (itt, bytes)
    }

    /// All data was sent, and as it is.
    fn check(&self, sent: &[Bytes], refused: bool) -> Result<(), String> {
        let data: Vec<u8> = sent
            .iter()
            .filter(|piece| piece.len() == LARGE_PDU_BYTES)
            .flat_map(|piece| piece.to_vec())
            .collect();
        match !refused && data == self.content {
            true => Ok(()),
            false => Err(format!("{:?}: the data that was sent is not what was written", self.subject)),
        }
    }

    fn receive(&mut self, bhs: Bhs) {
        let rx = RxPdu { bhs, ahs: Bytes::new(), data: Bytes::new(), data_digest_ok: true };
        self.session.handle_pdu(NOW, CID, rx);
    }

    fn numbers(&self) -> ResponseNumbers {
        ResponseNumbers { stat_sn: self.stat_sn, exp_cmd_sn: self.cmd_sn, max_cmd_sn: self.cmd_sn.add(1024) }
    }

    fn r2t(&self, itt: Itt) -> Bhs {
        let r2t = R2t {
            lun: Lun(0),
            itt,
            ttt: Ttt(7),
            numbers: self.numbers(),
            r2t_sn: R2tSn(0),
            buffer_offset: 0,
            desired_data_transfer_length: COMMAND_BYTES as u32,
        };
        r2t.to_bhs()
    }

    /// The target's response, which ends the command.
    fn respond(&mut self, itt: Itt) -> Result<(), String> {
        let response = ScsiResponse {
            response: ScsiResponse::COMPLETED_AT_TARGET,
            status: 0,
            itt,
            snack_tag: 0,
            numbers: self.numbers(),
            exp_data_sn: DataSn(0),
            bidi_residual_count: ResidualCount::default(),
            residual_count: ResidualCount::default(),
        };
        self.stat_sn = self.stat_sn.next();
        self.receive(Pdu::from(response).to_bhs());
        let mut completed = false;
        while let Some(action) = self.session.poll_action() {
            completed |= matches!(action, Action::Completed(_));
        }
        if completed { Ok(()) } else { Err("a write did not complete".to_owned()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_write_sends_its_data() {
        let rounds = run(2).unwrap();
        assert_eq!(rounds.len(), 8);
        assert!(rounds.iter().all(|(_, ticks)| ticks.len() == 2 && ticks.iter().all(|ticks| *ticks > 0.0)));
    }
}
