//! Descriptors of an open connection.

use iscsi_wire::{Bhs, Itt, TaskAttribute};

use super::Host;
use super::connection::Connection;
use super::sgl::Sgl;
use super::task::Task;
use super::tx::Control;
use crate::encoding::{Descriptor, PostTask, SendRaw, TaskResult, raw_flags, task_flags};
use crate::limits::{MAX_COMMANDS, MAX_RAW_QUEUED};

/// The largest PRI.
const MAX_PRIORITY: u8 = 15;
const TASK_FLAGS: u8 = task_flags::READ | task_flags::WRITE | task_flags::IMMEDIATE;

impl Connection {
    /// Executes a descriptor. `None`: its TASK_DONE comes later.
    pub(super) fn execute(&mut self, host: &mut Host, descriptor: &Descriptor) -> Option<TaskResult> {
        Some(match descriptor {
            Descriptor::OpenConn(_) => TaskResult::NO_CONNECTION,
            Descriptor::SetParams(set) => self.set_params(set),
            Descriptor::PostTask(post) => match self.post_task(host, post) {
                Ok(()) => return None,
                Err(result) => result,
            },
            Descriptor::Abort(abort) => self.abort(host, Itt(abort.itt)),
            Descriptor::SendRaw(send) => self.send_raw(host, send).err().unwrap_or(TaskResult::GOOD),
            Descriptor::SetPoly(set) => self.set_poly(set),
            Descriptor::Resync(resync) => self.resync(resync),
        })
    }

    fn post_task(&mut self, host: &mut Host, post: &PostTask) -> Result<(), TaskResult> {
        let moves_data = post.flags & (task_flags::READ | task_flags::WRITE);
        let bidirectional = moves_data == task_flags::READ | task_flags::WRITE;
        if post.flags & !TASK_FLAGS != 0
            || bidirectional
            || moves_data == 0 && post.edtl != 0
            || Itt(post.itt).is_reserved()
            || TaskAttribute::try_from(post.attr).is_err()
            || post.priority > MAX_PRIORITY
        {
            return Err(TaskResult::INVALID);
        }
        //= rfc7143 11.2.1.8 RSP-04
        if self.tasks.contains_key(&post.itt) {
            return Err(TaskResult::ITT_IN_USE);
        }
        if self.tasks.len() == MAX_COMMANDS {
            return Err(TaskResult::TABLE_FULL);
        }
        let sgl = Sgl::fetch(host.memory, post.sgl_addr, post.sgl_elements, post.edtl)?;
        self.tasks.insert(post.itt, Task::new(*post, sgl));
        self.control.push_back(Control::Command(post.itt));
        Ok(())
    }

    /// Fetches a PDU that software has made; from then on its memory is software's again.
    fn send_raw(&mut self, host: &mut Host, send: &SendRaw) -> Result<(), TaskResult> {
        let queued = self.control.iter().filter(|control| matches!(control, Control::Raw { .. })).count();
        if queued == MAX_RAW_QUEUED {
            return Err(TaskResult::TABLE_FULL);
        }
        let mut first = [0; Bhs::SIZE];
        if send.flags & !raw_flags::CMD_SN != 0 || (send.length as usize) < Bhs::SIZE {
            return Err(TaskResult::INVALID);
        }
        host.memory.read(send.addr, &mut first).map_err(|_| TaskResult::MEMORY)?;
        let bhs = Bhs::from_bytes(first);
        let header_end = Bhs::SIZE + bhs.total_ahs_length();
        let data_bytes = bhs.data_segment_length();
        if send.length as usize != header_end + data_bytes || data_bytes > self.max_send() as usize {
            return Err(TaskResult::INVALID);
        }
        let mut bytes = vec![0; header_end + data_bytes];
        host.memory.read(send.addr, &mut bytes).map_err(|_| TaskResult::MEMORY)?;
        // The lengths that were checked, whatever the memory says by now.
        bytes[..Bhs::SIZE].copy_from_slice(&first);
        self.control.push_back(Control::Raw { bytes, counts: send.flags & raw_flags::CMD_SN != 0 });
        Ok(())
    }
}
