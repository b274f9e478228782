//! Many initiators in one thread, the client of `cargo xtask bench sessions`.
//!
//! It reads orders from standard input, one per line, and answers each with a line of JSON. Between them its sessions answer the
//! target's pings. They are the protocol core and the links of the product's initiator, without its threads: ten thousand fit into
//! one process. Blocks carry their numbers, so every read is checked.

mod answer;
mod floor;
mod peers;

use std::io::BufRead;
use std::net::SocketAddr;
use std::time::Duration;

use engine::{EpollDriver, Mailbox, Sender};
use initiator::IscsiName;

pub use self::answer::Answer;
use self::floor::Asking;
use self::peers::Crowd;
pub use self::peers::Done;

/// Where the target is, and what the crowd may use.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Where the target listens
    #[arg(required_unless_present = "answer")]
    portal: Option<SocketAddr>,
    /// TargetName; without it, requests without a protocol are sent
    #[arg(value_parser = |name: &str| IscsiName::parse(name).map_err(|error| error.to_string()))]
    target: Option<IscsiName>,
    /// Answer requests without a protocol
    #[arg(long)]
    answer: bool,
    /// Number of the first host; no two crowds may have a host in common
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Blocks of 4 KiB that are written and read, from the start of LUN 0
    #[arg(long, default_value_t = 16_384)]
    blocks: u64,
}

/// An order on standard input.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Order {
    /// Log in until this many sessions exist, with this many logins at a time.
    Open { sessions: usize, at_once: usize },
    /// Write its number into each block.
    Fill,
    /// Read random blocks with this many commands outstanding in total, spread over the first sessions.
    Read { sessions: usize, depth: usize, time: Duration },
    /// Log in and out, with this many logins at a time.
    Churn { at_once: usize, time: Duration },
    /// Print how many pings were answered.
    Pings,
}

impl Order {
    fn parse(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let count = |at: usize| words.get(at)?.parse::<usize>().ok().filter(|count| *count > 0);
        let time = |at: usize| Duration::try_from_secs_f64(words.get(at)?.parse::<f64>().ok()?).ok();
        Some(match *words.first()? {
            "open" => Self::Open { sessions: count(1)?, at_once: count(2)? },
            "fill" => Self::Fill,
            "read" => Self::Read { sessions: count(1)?, depth: count(2)?, time: time(3)? },
            "churn" => Self::Churn { at_once: count(1)?, time: time(2)? },
            "pings" => Self::Pings,
            _ => return None,
        })
    }
}

/// Passes the lines of standard input on; `None` at its end.
fn listen(orders: &Sender<Option<String>>) {
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        orders.send(Some(line));
    }
    orders.send(None);
}

/// Executes orders until standard input ends; `answer` gets the result of each.
///
/// # Errors
/// An order is none, or could not be carried out.
pub fn obey(options: &Options, answer: impl Fn(&Answer)) -> Result<(), String> {
    raise_file_limit();
    let driver = EpollDriver::new().map_err(|error| format!("no epoll: {error}"))?;
    let Some(portal) = options.portal.filter(|_| !options.answer) else {
        return floor::answer(driver, answer);
    };
    match &options.target {
        Some(target) => {
            let crowd = Crowd::new(driver, portal, target.clone(), options.blocks);
            obey_with(&mut crowd.starting_with(options.first), answer)
        }
        None => obey_without_protocol(&mut Asking::new(driver, portal), answer),
    }
}

/// Executes the orders, and answers pings between them.
fn obey_with(crowd: &mut Crowd, answer: impl Fn(&Answer)) -> Result<(), String> {
    let orders: Mailbox<Option<String>> = Mailbox::new(crowd.waker());
    let sender = orders.sender();
    std::thread::spawn(move || listen(&sender));
    let mut lines = Vec::new();
    loop {
        crowd.turn()?;
        orders.drain(&mut lines);
        for line in lines.drain(..) {
            let Some(line) = line else { return Ok(()) };
            answer(&Answer::Done(carry_out(crowd, understand(&line)?)?));
        }
    }
}

/// There are no pings, and nothing to write.
fn obey_without_protocol(asking: &mut Asking, answer: impl Fn(&Answer)) -> Result<(), String> {
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        let done = match understand(&line)? {
            Order::Open { sessions, .. } => asking.open(sessions)?,
            Order::Read { sessions, depth, time } => asking.read(sessions, depth, time)?,
            other => return Err(format!("only a target can do this: {other:?}")),
        };
        answer(&Answer::Done(done));
    }
    Ok(())
}

fn understand(line: &str) -> Result<Order, String> {
    Order::parse(line).ok_or_else(|| format!("no such order: {line}"))
}

fn carry_out(crowd: &mut Crowd, order: Order) -> Result<Done, String> {
    match order {
        Order::Open { sessions, at_once } => crowd.open(sessions, at_once),
        Order::Fill => crowd.fill(),
        Order::Read { sessions, depth, time } => crowd.read(sessions, depth, time),
        Order::Churn { at_once, time } => crowd.churn(at_once, time),
        Order::Pings => Ok(crowd.pings()),
    }
}

/// Each session is an open file.
fn raise_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_words_and_what_is_incomplete_is_none() {
        let time = Duration::from_millis(500);
        for (line, order) in [
            ("open 10 4", Some(Order::Open { sessions: 10, at_once: 4 })),
            ("read 2 32 0.5", Some(Order::Read { sessions: 2, depth: 32, time })),
            ("churn 8 0.5", Some(Order::Churn { at_once: 8, time })),
            ("fill", Some(Order::Fill)),
            ("pings", Some(Order::Pings)),
            ("open 10", None),
            ("read 0 32 0.5", None),
            ("churn 8 -1", None),
            ("", None),
        ] {
            assert_eq!(Order::parse(line), order, "{line}");
        }
    }
}
