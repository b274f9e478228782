//! CmdSN and the window in which the target takes commands (RFC 7143 4.2.2.1).

use iscsi_wire::CmdSn;

/// The numbers of a connection's commands.
#[derive(Debug)]
pub(super) struct Window {
    next: CmdSn,
    exp: CmdSn,
    max: CmdSn,
}

impl Window {
    pub(super) fn new(next: CmdSn, max: CmdSn) -> Self {
        Self { next, exp: next, max }
    }

    /// The number of the next command; an immediate command carries it and does not take it.
    //= rfc7143 4.2.2.1 NUM-01
    pub(super) fn next(&self) -> CmdSn {
        self.next
    }

    pub(super) fn exp(&self) -> CmdSn {
        self.exp
    }

    pub(super) fn max(&self) -> CmdSn {
        self.max
    }

    //= rfc7143 4.2.2.1 NUM-06
    pub(super) fn is_open(&self) -> bool {
        self.next.le(self.max)
    }

    /// Takes the next number. The caller has seen that the window is open.
    pub(super) fn take(&mut self) -> CmdSn {
        let taken = self.next;
        self.next = taken.next();
        taken
    }

    /// Takes the pair of a received PDU. A pair that contradicts itself counts for nothing, and an older pair takes nothing back.
    //= rfc7143 4.2.2.1 NUM-05
    pub(super) fn update(&mut self, exp: CmdSn, max: CmdSn) {
        if max.lt(CmdSn(exp.0.wrapping_sub(1))) {
            return;
        }
        if exp.gt(self.exp) && exp.le(self.next) {
            self.exp = exp;
        }
        if max.gt(self.max) {
            self.max = max;
        }
    }
}
