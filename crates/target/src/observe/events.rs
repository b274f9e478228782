//! Events of sessions and commands, as log lines for human readers. Events that a peer can cause at will are logged a limited
//! number of times per second, and only counted beyond that: no peer can fill a disk with our log.

use std::time::Duration;

use parking_lot::Mutex;

/// The kinds of event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// A login was accepted.
    LoginAccepted,
    /// A login was refused or abandoned.
    LoginRefused,
    /// A connection was refused.
    ConnectionRefused,
    /// A connection of a session ended.
    ConnectionEnded,
    /// A session ended.
    SessionEnded,
    /// Tasks were aborted, or a unit was reset.
    TasksAborted,
    /// A digest did not match.
    DigestFailed,
    /// A command was slow.
    SlowCommand,
}

impl EventKind {
    /// All of them.
    const ALL: [Self; 8] = [
        Self::LoginAccepted,
        Self::LoginRefused,
        Self::ConnectionRefused,
        Self::ConnectionEnded,
        Self::SessionEnded,
        Self::TasksAborted,
        Self::DigestFailed,
        Self::SlowCommand,
    ];

    /// Maximum number of lines per second.
    fn lines_per_second(self) -> u32 {
        match self {
            Self::LoginAccepted | Self::SessionEnded | Self::ConnectionEnded => 50,
            Self::LoginRefused | Self::TasksAborted | Self::DigestFailed => 10,
            Self::ConnectionRefused | Self::SlowCommand => 5,
        }
    }

    /// The message about events that were not logged.
    fn more(self) -> &'static str {
        match self {
            Self::LoginAccepted => "more logins were accepted; `intact ls logins` shows the last of them",
            Self::LoginRefused => "more logins were refused; `intact ls logins` shows the last of them",
            Self::ConnectionRefused => "more connections were refused",
            Self::ConnectionEnded => "more connections ended",
            Self::SessionEnded => "more sessions ended",
            Self::TasksAborted => "more task management requests were carried out",
            Self::DigestFailed => "more connections had digests that do not match",
            Self::SlowCommand => "more commands were slow",
        }
    }
}

/// The use of one kind's quota.
#[derive(Debug, Default)]
struct Quota {
    /// The second to which `lines` applies, on the callers' clock.
    second: u64,
    lines: u32,
    /// Events that were neither logged nor reported as a number yet.
    held_back: u64,
}

impl Quota {
    fn begin(&mut self, now: Duration) {
        if now.as_secs() != self.second {
            (self.second, self.lines) = (now.as_secs(), 0);
        }
    }
}

/// Decides which events are logged.
#[derive(Debug, Default)]
pub struct Events([Mutex<Quota>; EventKind::ALL.len()]);

impl Events {
    /// Whether an event of this kind is logged. Before it, the number of those that were not is logged.
    pub fn admits(&self, kind: EventKind, now: Duration) -> bool {
        let mut quota = self.0[kind as usize].lock();
        quota.begin(now);
        if quota.lines == kind.lines_per_second() {
            quota.held_back += 1;
            return false;
        }
        quota.lines += 1;
        tell(kind, std::mem::take(&mut quota.held_back));
        true
    }

    /// Logs how many events were withheld in seconds that have passed; true while there are some left from the current second.
    pub fn log_held_back(&self, now: Duration) -> bool {
        let mut left = false;
        for (kind, quota) in EventKind::ALL.into_iter().zip(&self.0) {
            let mut quota = quota.lock();
            quota.begin(now);
            match quota.lines {
                0 => tell(kind, std::mem::take(&mut quota.held_back)),
                _ => left |= quota.held_back > 0,
            }
        }
        left
    }
}

fn tell(kind: EventKind, held_back: u64) {
    if held_back > 0 {
        tracing::warn!("{held_back} {}", kind.more());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: EventKind = EventKind::LoginRefused;

    fn held_back(events: &Events) -> u64 {
        events.0[KIND as usize].lock().held_back
    }

    #[test]
    fn a_flood_has_so_many_lines_a_second_and_is_counted() {
        let events = Events::default();
        let at = |millis: u64| Duration::from_millis(millis);
        let told = (0..1000).filter(|n| events.admits(KIND, at(5000 + n / 2))).count();
        assert_eq!((told, held_back(&events)), (10, 990));
        assert!(events.admits(EventKind::SessionEnded, at(5100)), "other kinds have lines of their own");
        assert!(events.log_held_back(at(5999)), "the second is not over");
        assert_eq!(held_back(&events), 990);
        assert!(!events.log_held_back(at(6000)));
        assert_eq!(held_back(&events), 0, "it was said");
        assert!(events.admits(KIND, at(6000)));
    }

    #[test]
    fn the_next_line_tells_of_those_before_it() {
        let events = Events::default();
        assert_eq!((0..15).filter(|_| events.admits(KIND, Duration::from_secs(1))).count(), 10);
        assert_eq!(held_back(&events), 5);
        assert!(events.admits(KIND, Duration::from_secs(2)));
        assert_eq!(held_back(&events), 0);
    }

    #[test]
    fn all_holds_each_at_its_place() {
        assert!(EventKind::ALL.iter().enumerate().all(|(at, kind)| *kind as usize == at));
    }
}
