//! The program that uses an initiator under test: what it asks for, and how that may end.

use crate::evil::BLOCK_SIZE;
use crate::initiator::{Op, OpResult};
use iscsi_wire::PduLine;
use std::time::Duration;

/// Bytes of the disk of a row.
pub(super) const DISK: usize = 4 << 20;
/// The longest that a row waits.
const MAX_WAIT: Duration = Duration::from_secs(5);

/// One thing that the program asks for.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(super) name: String,
    pub(super) ask: Ask,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    /// Bytes from the area; they must be those that the call with this name writes, or those of the disk as it was.
    Read { area: Area, holds: Option<String> },
    /// Bytes into the area, those of the call's name.
    Write(Area),
    /// SYNCHRONIZE CACHE.
    Flush,
    /// Nothing, for so long.
    Wait(Duration),
}

/// A part of the disk, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Area {
    pub(super) at: usize,
    pub(super) length: usize,
}

/// How a call may end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// As it should.
    Done,
    /// With an error.
    Failed,
    /// With so many bytes, less than were asked for.
    Short(usize),
}

impl Call {
    /// `NAME read=BYTES`, `NAME write=BYTES`, both with `at=BYTES`, `NAME flush` or `NAME wait=MILLISECONDS`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        const FORM: &str = "a call has a name and what is asked for: `C> a read=4096 at=8192`, `C> a write=512`, `C> a flush` or `C> a wait=300` (ms)";
        let mut line = PduLine::parse(text).map_err(|_| FORM.to_owned())?;
        let number = |text: &str| text.parse::<usize>().map_err(|_| format!("`{text}` is no decimal number"));
        let (read, write) = (line.take("read"), line.take("write"));
        let (flush, wait) = (line.take("flush"), line.take("wait"));
        let at = line.take("at").map_or(Ok(0), |at| number(&at))?;
        let area = |length: &str| {
            let area = Area { at, length: number(length)? };
            area.check().map(|()| area)
        };
        let ask = match (read, write, flush, wait) {
            (Some(length), None, None, None) => Ask::Read { area: area(&length)?, holds: line.take("holds") },
            (None, Some(length), None, None) => Ask::Write(area(&length)?),
            (None, None, Some(_), None) => Ask::Flush,
            (None, None, None, Some(time)) => {
                let time = Duration::from_millis(number(&time)? as u64);
                if time > MAX_WAIT {
                    return Err(format!("a row waits for {} ms at most", MAX_WAIT.as_millis()));
                }
                Ask::Wait(time)
            }
            _ => return Err(FORM.to_owned()),
        };
        let name = line.name().to_owned();
        if !name.starts_with(|c: char| c.is_ascii_lowercase()) {
            return Err(FORM.to_owned());
        }
        match line.to_string().strip_prefix(&name).map(str::trim) {
            Some("") => Ok(Call { name, ask }),
            rest => Err(format!("`{}` is nothing that can be asked for: {FORM}", rest.unwrap_or_default())),
        }
    }

    /// The part of the disk that it reads or writes.
    pub(super) fn area(&self) -> Option<Area> {
        match &self.ask {
            Ask::Read { area, .. } | Ask::Write(area) => Some(*area),
            Ask::Flush | Ask::Wait(_) => None,
        }
    }

    /// Do both read, or write, the same bytes?
    pub(super) fn is_like(&self, other: &Call) -> bool {
        self.area().is_some() && (self.area(), self.writes()) == (other.area(), other.writes())
    }

    pub(super) fn writes(&self) -> bool {
        matches!(self.ask, Ask::Write(_))
    }

    /// Whose bytes it moves.
    pub(super) fn source(&self) -> &str {
        match &self.ask {
            Ask::Read { holds, .. } => holds.as_deref().unwrap_or(MEDIUM),
            _ => &self.name,
        }
    }

    /// For the driver of the initiator.
    pub(super) fn op(&self) -> Op {
        let block = BLOCK_SIZE;
        match &self.ask {
            Ask::Read { area, .. } => {
                Op::Read { lba: (area.at / block) as u64, blocks: (area.length / block) as u32 }
            }
            Ask::Write(area) => Op::Write {
                lba: (area.at / block) as u64,
                data: super::bytes(&self.name, area.at, area.length),
            },
            Ask::Flush => Op::Flush,
            Ask::Wait(time) => Op::Wait(*time),
        }
    }

    /// How it ended. An error if the bytes are wrong, of a read or of a write that is called done.
    pub(super) fn ended(&self, result: Option<&OpResult>, medium: &[u8]) -> Result<Ending, String> {
        match (&self.ask, result) {
            (_, None | Some(OpResult::Failed(_))) => Ok(Ending::Failed),
            (Ask::Read { area, .. }, Some(OpResult::Data(data))) => {
                let due = super::bytes(self.source(), area.at, area.length);
                match due.starts_with(data) {
                    false => Err(format!("wrong bytes were handed up by `{}`", self.name)),
                    true if data.len() == due.len() => Ok(Ending::Done),
                    true => Ok(Ending::Short(data.len())),
                }
            }
            (Ask::Write(area), Some(OpResult::Done)) => {
                let due = super::bytes(&self.name, area.at, area.length);
                match medium.get(area.at..).is_some_and(|medium| medium.starts_with(&due)) {
                    true => Ok(Ending::Done),
                    false => {
                        Err(format!("`{}` is called done, and its bytes are not on the medium", self.name))
                    }
                }
            }
            (Ask::Flush | Ask::Wait(_), Some(OpResult::Done)) => Ok(Ending::Done),
            (_, Some(other)) => Err(format!("`{}` ended with {other:?}", self.name)),
        }
    }
}

/// The bytes of the disk as it was are those that a call of this name would write. No call has it: it is no name.
pub(super) const MEDIUM: &str = "(medium)";

impl Area {
    fn check(self) -> Result<(), String> {
        if !self.at.is_multiple_of(BLOCK_SIZE) || !self.length.is_multiple_of(BLOCK_SIZE) || self.length == 0
        {
            return Err(format!("reads and writes are of whole blocks of {BLOCK_SIZE} bytes"));
        }
        match self.at.checked_add(self.length) {
            Some(end) if end <= DISK => Ok(()),
            _ => Err(format!("the disk has {DISK} bytes")),
        }
    }
}

/// `NAME done`, `NAME failed`, `NAME read=BYTES`; several with `or`.
pub(super) fn returned(text: &str) -> Result<(String, Vec<Ending>), String> {
    let form = "a call is named with how it may end: `C< a failed`, `C< a done or failed`, or `C< a read=512` if it yields less";
    let (name, ends) = text.split_once(char::is_whitespace).ok_or(form)?;
    let ends = ends.split(" or ").map(|end| match end.trim() {
        "done" => Ok(Ending::Done),
        "failed" => Ok(Ending::Failed),
        other => other
            .strip_prefix("read=")
            .and_then(|length| length.parse().ok())
            .map(Ending::Short)
            .ok_or_else(|| format!("`{other}`: {form}")),
    });
    Ok((name.to_owned(), ends.collect::<Result<_, _>>()?))
}
