//! Addresses of portals. A host given as an address needs no lookup. A name is resolved on a thread of the platform, because the
//! answer can take as long as the name server likes, and an established session must continue meanwhile.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};

use engine::{Lane, Platform, Sender};

use super::messages::{Addresses, Question, Request};
use crate::error::ConnectError;
use crate::options::Portal;

/// Questions that may be unanswered at the same time. A further question fails.
const MAX_QUESTIONS: usize = 4;

/// Starts lookups, and counts the unanswered ones.
pub(super) struct Resolver {
    lane: Lane,
    answers_to: Sender<Request>,
    asked: u64,
    waiting: usize,
}

impl Resolver {
    /// Answers arrive as [`Request::Resolved`].
    pub(super) fn new(answers_to: Sender<Request>) -> Self {
        Self { lane: Lane::new(MAX_QUESTIONS), answers_to, asked: 0, waiting: 0 }
    }

    /// The addresses of `portals` if no lookup is needed; otherwise the question that will be answered.
    pub(super) fn resolve(
        &mut self,
        platform: &impl Platform,
        portals: Vec<Portal>,
    ) -> Result<Addresses, Question> {
        if let Some(addresses) = portals.iter().map(address).collect::<Option<Vec<_>>>() {
            return Ok(addresses.into_iter().map(|address| Ok(vec![address])).collect());
        }
        if self.waiting >= MAX_QUESTIONS {
            let refused = |portal: &Portal| no_address(portal, ErrorKind::TimedOut.into());
            return Ok(portals.iter().map(refused).collect());
        }
        self.asked += 1;
        self.waiting += 1;
        let (question, answers_to, resolve) =
            (Question(self.asked), self.answers_to.clone(), platform.resolver());
        let ask = move || {
            let addresses = portals.iter().map(|portal| {
                let found = match address(portal) {
                    Some(address) => Ok(vec![address]),
                    None => resolve(&portal.host, portal.port),
                };
                found.or_else(|error| no_address(portal, error))
            });
            answers_to.send(Request::Resolved(question, addresses.collect()));
        };
        platform.offload(&self.lane, Box::new(ask));
        Err(question)
    }

    /// A question has been answered.
    pub(super) fn answered(&mut self) {
        self.waiting = self.waiting.saturating_sub(1);
    }
}

fn no_address(portal: &Portal, error: io::Error) -> Result<Vec<SocketAddr>, ConnectError> {
    Err(ConnectError::Resolve { host: portal.host.clone(), error })
}

fn address(portal: &Portal) -> Option<SocketAddr> {
    portal.host.parse().ok().map(|ip: IpAddr| SocketAddr::new(ip, portal.port))
}

/// All addresses in reverse order of use (the first to try is last), and why the others could not be resolved. `answers` are those
/// of the portals, also in reverse order.
pub(super) fn gather(
    answers: impl IntoIterator<Item = Result<Vec<SocketAddr>, ConnectError>>,
) -> (Vec<SocketAddr>, Option<ConnectError>) {
    let (mut all, mut failure) = (Vec::new(), None);
    for answer in answers {
        match answer {
            Ok(addresses) => all.extend(addresses.into_iter().rev()),
            Err(error) => failure = Some(error),
        }
    }
    (all, failure)
}
