//! Whether a unit executes commands that access its medium.

use std::sync::Weak;

use bytes::Bytes;

use crate::sense::{Asc, SenseData, SenseKey, SenseSpecific};

/// The kind of command that erases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EraseKind {
    Format,
    Sanitize,
}

impl EraseKind {
    /// Sense while the operation runs.
    //= sbc3 4.16 SNS-04 FMT-01
    pub(crate) fn in_progress(self, progress: u16) -> SenseData {
        let asc = match self {
            Self::Format => Asc::FORMAT_IN_PROGRESS,
            Self::Sanitize => Asc::SANITIZE_IN_PROGRESS,
        };
        SenseData { specific: SenseSpecific::Progress(progress), ..SenseData::new(SenseKey::NotReady, asc) }
    }

    /// Sense after the operation ended early.
    //= sbc3 5.3.1 FMT-02 SAN-01
    pub(crate) fn failed(self) -> SenseData {
        let asc = match self {
            Self::Format => Asc::MEDIUM_FORMAT_CORRUPTED,
            Self::Sanitize => Asc::SANITIZE_COMMAND_FAILED,
        };
        SenseData::new(SenseKey::MediumError, asc)
    }
}

/// An operation during which the unit is not ready: FORMAT UNIT or SANITIZE.
#[derive(Debug)]
pub(crate) struct Operation {
    pub(crate) kind: EraseKind,
    /// Dead when the command's execution was dropped before it completed.
    pub(crate) alive: Weak<()>,
    /// 65536ths.
    pub(crate) progress: u16,
    /// One block of the pattern that SANITIZE writes; empty for zeros.
    pub(crate) pattern: Bytes,
    /// AUSE of SANITIZE.
    pub(crate) may_exit: bool,
}

/// See the module.
///
/// ```text
///   ready ──begin──► operation ──end──► ready
///     ▲                  └──ended early──► failed ──begin──► operation
///     └──────────leave_failed_sanitize───────┘
/// ```
/// In any of these states the medium may be missing, or the unit may be stopped.
#[derive(Debug, Default)]
pub(crate) struct Readiness {
    stopped: bool,
    /// There is no medium.
    missing: bool,
    /// FORMAT UNIT or SANITIZE in progress.
    operation: Option<Operation>,
    /// FORMAT UNIT or SANITIZE ended early.
    failed: Option<EraseKind>,
    /// The SANITIZE that failed allowed unrestricted exit (AUSE).
    may_exit: bool,
}

impl Readiness {
    /// Of a unit whose medium may be missing, and on which a FORMAT UNIT may have been interrupted.
    pub(crate) fn new(missing: bool, format_interrupted: bool) -> Self {
        Self { missing, failed: format_interrupted.then_some(EraseKind::Format), ..Self::default() }
    }

    /// Whether nothing is in the way.
    pub(crate) fn is_ready(&self) -> bool {
        !(self.missing || self.stopped || self.operation.is_some() || self.failed.is_some())
    }

    /// START STOP UNIT stops the unit.
    pub(crate) fn stop(&mut self) {
        self.stopped = true;
    }

    /// START STOP UNIT, or a reset, starts it.
    pub(crate) fn start(&mut self) {
        self.stopped = false;
    }

    /// Why the medium cannot be accessed, and the kind of erasure that must be repeated to cure it.
    pub(crate) fn obstacle(&mut self) -> Option<(SenseData, Option<EraseKind>)> {
        if self.missing {
            return Some((SenseData::new(SenseKey::NotReady, Asc::MANUAL_INTERVENTION_REQUIRED), None));
        }
        if let Some(operation) = &self.operation {
            if operation.alive.strong_count() > 0 {
                return Some((operation.kind.in_progress(operation.progress), None));
            }
            self.ended_early();
        }
        if self.stopped {
            return Some((SenseData::new(SenseKey::NotReady, Asc::INITIALIZING_COMMAND_REQUIRED), None));
        }
        self.failed.map(|kind| (kind.failed(), Some(kind)))
    }

    /// The sense if an operation prevents even START STOP UNIT.
    pub(crate) fn operation_in_progress(&mut self) -> Option<SenseData> {
        self.obstacle().filter(|_| self.operation.is_some()).map(|(sense, _)| sense)
    }

    /// A SANITIZE that did not allow unrestricted exit has failed.
    pub(crate) fn is_restricted(&self) -> bool {
        self.failed == Some(EraseKind::Sanitize) && !self.may_exit
    }

    /// Leaves the state of a failed SANITIZE, if that allowed it; false when it did not.
    pub(crate) fn leave_failed_sanitize(&mut self) -> bool {
        let leaves = !self.is_restricted();
        if leaves && self.failed == Some(EraseKind::Sanitize) {
            self.failed = None;
        }
        leaves
    }

    /// An operation begins; a failure before it does not matter any more.
    pub(crate) fn begin(&mut self, operation: Operation) {
        debug_assert!(self.operation.is_none(), "one operation at a time");
        (self.operation, self.failed) = (Some(operation), None);
    }

    /// The operation has come as far as `progress`, in 65536ths. Returns the block of its pattern.
    pub(crate) fn advance(&mut self, progress: u16) -> Bytes {
        match &mut self.operation {
            Some(operation) => {
                operation.progress = progress;
                operation.pattern.clone()
            }
            None => Bytes::new(),
        }
    }

    /// The operation is complete.
    pub(crate) fn end(&mut self) {
        self.operation = None;
    }

    /// The operation failed or was abandoned.
    pub(crate) fn ended_early(&mut self) {
        if let Some(operation) = self.operation.take() {
            self.failed = Some(operation.kind);
            self.may_exit = operation.may_exit;
        }
    }

    /// The operation that another unit would have to repeat on this medium.
    pub(crate) fn unfinished(&self) -> Option<EraseKind> {
        self.operation.as_ref().map(|operation| operation.kind).or(self.failed)
    }

    /// Takes over what is unfinished on the medium.
    pub(crate) fn inherit(&mut self, unfinished: Option<EraseKind>) {
        self.failed = self.failed.or(unfinished);
    }
}
