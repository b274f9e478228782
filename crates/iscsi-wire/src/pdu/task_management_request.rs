use super::{FINAL, put_request_numbers};
use crate::{Bhs, CmdSn, DataSn, Itt, Lun, Opcode, StatSn, TmfFunction, WireError};

/// Task Management Function Request (RFC 7143 11.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskManagementRequest {
    /// I: does not advance CmdSN.
    pub immediate: bool,
    /// The function requested.
    pub function: TmfFunction,
    /// Logical unit.
    pub lun: Lun,
    /// Initiator Task Tag.
    pub itt: Itt,
    /// The task to which ABORT TASK, TASK REASSIGN or QUERY TASK refers, else reserved.
    pub referenced_task_tag: Itt,
    /// CmdSN.
    pub cmd_sn: CmdSn,
    /// ExpStatSN.
    pub exp_stat_sn: StatSn,
    /// CmdSN of the referenced task.
    pub ref_cmd_sn: CmdSn,
    /// TASK REASSIGN: the next DataSN or R2TSN expected, 0 for all.
    pub exp_data_sn: DataSn,
}

impl TaskManagementRequest {
    /// Reads the header.
    pub fn parse(bhs: &Bhs) -> Result<Self, WireError> {
        bhs.expect(Opcode::TaskManagementRequest)?;
        Ok(TaskManagementRequest {
            immediate: bhs.immediate(),
            function: TmfFunction::try_from(bhs.u8_at(1) & 0x7f)?,
            lun: bhs.lun(),
            itt: bhs.itt(),
            referenced_task_tag: Itt(bhs.u32_at(20)),
            cmd_sn: bhs.cmd_sn(),
            exp_stat_sn: bhs.exp_stat_sn(),
            ref_cmd_sn: CmdSn(bhs.u32_at(32)),
            exp_data_sn: DataSn(bhs.u32_at(36)),
        })
    }

    /// Writes the header.
    pub fn to_bhs(&self) -> Bhs {
        let mut bhs = Bhs::new(Opcode::TaskManagementRequest, self.immediate);
        bhs.put_flag(FINAL, true);
        bhs.put_flag(self.function.code(), true);
        bhs.put_lun(self.lun);
        bhs.put_u32(16, self.itt.0);
        bhs.put_u32(20, self.referenced_task_tag.0);
        put_request_numbers(&mut bhs, self.cmd_sn, self.exp_stat_sn);
        bhs.put_u32(32, self.ref_cmd_sn.0);
        bhs.put_u32(36, self.exp_data_sn.0);
        bhs
    }
}
