//! An outstanding command, awaited by a thread or by a future: what its completion means, and how often it is repeated.

use std::time::Duration;

use bytes::Bytes;
use iscsi_core::initiator::command::{Command, Completion, Ending};
use iscsi_core::initiator::session::ManagementAnswer;
use iscsi_core::wire::TmfFunction;
use smallvec::SmallVec;

use crate::cdb;
use crate::error::{BUSY, CHECK_CONDITION, GOOD, IoError, TASK_ABORTED, TASK_SET_FULL};
use crate::event_loop::{Ended, Handle};
use crate::protection::PiFailure;
use crate::reply::Awaited;
use crate::sense::Sense;
use crate::session::Session;

/// How often a command is repeated after a transient failure.
const MAX_REPEATS: u32 = 8;
/// First pause when the device is busy; it doubles.
const BUSY_PAUSE: Duration = Duration::from_millis(10);

/// A command's answer.
#[derive(Debug)]
pub struct Response {
    pub(crate) pieces: SmallVec<[Bytes; 4]>,
    /// Bytes of valid data.
    pub len: usize,
}

impl Response {
    /// True without data.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Checks that it has as many bytes as were requested.
    //= rfc7143 11.4.5 RES-04
    pub(crate) fn holds(&self, expected: usize) -> Result<(), IoError> {
        let arrived: usize = self.pieces.iter().map(Bytes::len).sum();
        match self.len.min(arrived) {
            got if got == expected && arrived == expected => Ok(()),
            got => Err(IoError::Short { got, expected }),
        }
    }

    /// The data in one piece.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut all = vec![0; self.len];
        self.copy_to(&mut all);
        all
    }

    /// Copies the data to the front of `to`, as much as fits; returns the number of bytes.
    pub fn copy_to(&self, to: &mut [u8]) -> usize {
        let mut at = 0;
        let end = self.len.min(to.len());
        for piece in &self.pieces {
            let n = piece.len().min(end - at);
            to[at..at + n].copy_from_slice(&piece[..n]);
            at += n;
        }
        at
    }
}

/// An outstanding command; see [`Disk::submit`](crate::Disk::submit).
#[derive(Debug)]
pub struct Ticket {
    session: Session,
    handle: Handle,
    awaited: Awaited<Result<Ended, IoError>>,
    /// It was asked to be aborted, and will not be repeated.
    aborted: bool,
}

impl Session {
    /// Requests ABORT TASK or QUERY TASK for one command, on the connection that carries it; `None` if there was no answer. An
    /// aborted command ends with [`IoError::Aborted`] and is not repeated. For a command that has already ended no request is
    /// sent. The result is what the target would answer: [`TmfResponse::TaskDoesNotExist`] to an abort and
    /// [`TmfResponse::FunctionComplete`] to a query.
    ///
    /// [`TmfResponse::TaskDoesNotExist`]: iscsi_core::wire::TmfResponse::TaskDoesNotExist
    /// [`TmfResponse::FunctionComplete`]: iscsi_core::wire::TmfResponse::FunctionComplete
    //= rfc7143 11.5.1 TMF-01 TMF-04
    pub fn manage_task(&self, function: TmfFunction, ticket: &mut Ticket) -> Option<ManagementAnswer> {
        ticket.aborted |= function == TmfFunction::AbortTask;
        self.manage_command(function, ticket.handle)
    }
}

impl Ticket {
    /// Hands `command` to `session`.
    pub(crate) fn new(session: &Session, command: Command) -> Self {
        let (handle, awaited) = session.submit(command);
        Self { session: session.clone(), handle, awaited, aborted: false }
    }

    /// Waits for the command to end. It is repeated after a transient failure.
    ///
    /// # Errors
    /// Why it returned no data.
    pub fn wait(self) -> Result<Response, IoError> {
        let Ticket { session, mut awaited, aborted, .. } = self;
        let mut repeats = Repeats::new(aborted);
        loop {
            let ended = awaited.wait().unwrap_or_else(|| Err(IoError::loop_ended()))?;
            match repeats.judge(&session, ended) {
                Verdict::Over(result) => return result,
                Verdict::Again(command, pause) => {
                    std::thread::sleep(pause);
                    (_, awaited) = session.submit(*command);
                }
            }
        }
    }

    /// Like [`Ticket::wait`], for asynchronous programs on any runtime.
    ///
    /// # Errors
    /// Those of [`Ticket::wait`].
    pub async fn ended(self) -> Result<Response, IoError> {
        let Ticket { session, mut awaited, aborted, .. } = self;
        let mut repeats = Repeats::new(aborted);
        loop {
            let ended = awaited.await.unwrap_or_else(|| Err(IoError::loop_ended()))?;
            match repeats.judge(&session, ended) {
                Verdict::Over(result) => return result,
                Verdict::Again(command, pause) => {
                    session.pause(pause).await;
                    (_, awaited) = session.submit(*command);
                }
            }
        }
    }
}

/// What to do after the end of a command.
enum Verdict {
    Over(Result<Response, IoError>),
    /// Send it again, after a pause.
    Again(Box<Command>, Duration),
}

/// How often a command was repeated, and the next pause.
struct Repeats {
    count: u32,
    pause: Duration,
    /// Its abort was requested.
    aborted: bool,
}

impl Repeats {
    fn new(aborted: bool) -> Self {
        Self { count: 0, pause: BUSY_PAUSE, aborted }
    }

    fn judge(&mut self, session: &Session, ended: Ended) -> Verdict {
        let Ended { completion, data } = ended;
        let Completion { command, ending } = completion;
        let (error, waits) = match meaning(session, &command, ending, data) {
            Meaning::Passes(error, waits) => (error, waits),
            Meaning::Over(result) => return Verdict::Over(result),
        };
        // After CHECK CONDITION the command was not executed; after anything else it may have been.
        let once = !cdb::is_idempotent(&command.cdb)
            && !matches!(error, IoError::CheckCondition(_) | IoError::Status(_));
        if self.count == MAX_REPEATS || once || self.aborted {
            return Verdict::Over(Err(error));
        }
        self.count += 1;
        let pause = if waits { self.pause } else { Duration::ZERO };
        self.pause *= if waits { 2 } else { 1 };
        Verdict::Again(Box::new(command), pause)
    }
}

/// The meaning of a command's end, without regard to repeats.
enum Meaning {
    Over(Result<Response, IoError>),
    /// A transient error, and whether to pause before the repeat.
    Passes(IoError, bool),
}

fn meaning(session: &Session, command: &Command, ending: Ending, data: SmallVec<[Bytes; 4]>) -> Meaning {
    let error = match ending {
        Ending::Status { status: GOOD, data_in_bytes, .. } => {
            return Meaning::Over(Ok(Response { pieces: data, len: data_in_bytes as usize }));
        }
        Ending::Status { status: CHECK_CONDITION, sense, .. } => {
            let sense = Sense::parse(&sense);
            if sense.is_miscompare() {
                return Meaning::Over(Err(IoError::Miscompare { offset: sense.information.unwrap_or(0) }));
            }
            if let Some(failure) = PiFailure::told(&sense, !command.write.is_empty()) {
                session.protection_errors().count(failure.field);
                return Meaning::Over(Err(IoError::Protection(failure)));
            }
            // It may have been executed in part. The reason for the abort is transient, for example a bit flipped on the
            // way.
            let aborted = sense.is_aborted_command() && cdb::is_idempotent(&command.cdb);
            let told = sense.is_unit_attention() || sense.deferred;
            let error = IoError::CheckCondition(sense);
            return if told || aborted { Meaning::Passes(error, !told) } else { Meaning::Over(Err(error)) };
        }
        Ending::Status { status: status @ (BUSY | TASK_SET_FULL), .. } => {
            return Meaning::Passes(IoError::Status(status), true);
        }
        Ending::Status { status: TASK_ABORTED, .. } => IoError::Aborted,
        Ending::Status { status, .. } => return Meaning::Over(Err(IoError::Status(status))),
        Ending::DataDigest => IoError::DataDigest,
        Ending::Rejected(reason) => IoError::Rejected(reason),
        Ending::Aborted => IoError::Aborted,
        // The right volume may be back by now.
        Ending::OtherVolume => match session.why_refused(command.lun) {
            Some(why) => return Meaning::Over(Err(why)),
            None => IoError::Aborted,
        },
        Ending::OutcomeUnknown => return Meaning::Over(Err(IoError::OutcomeUnknown)),
        Ending::TimedOut => return Meaning::Over(Err(IoError::TimedOut)),
        Ending::TargetFailure { response } => return Meaning::Over(Err(IoError::TargetFailure(response))),
        Ending::Unsendable(violation) => return Meaning::Over(Err(IoError::Request(violation.to_string()))),
    };
    Meaning::Passes(error, false)
}
