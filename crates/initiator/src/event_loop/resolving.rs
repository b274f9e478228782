//! Addresses of portals. A host that is an address needs no question; a name is asked for on a thread of the platform, because
//! the answer can take as long as a name server likes, and a session that stands goes on meanwhile.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};

use engine::{Lane, Platform, Sender};

use super::Request;
use crate::error::ConnectError;
use crate::options::Portal;

/// Questions that may wait for their answers at the same time. One that comes when there are as many has none.
const MAX_QUESTIONS: usize = 4;

/// For each portal, in their order, its addresses or why there are none.
pub(crate) type Addresses = Vec<Result<Vec<SocketAddr>, ConnectError>>;

/// A question that was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Question(u64);

/// Asks, and counts what is not answered.
pub(super) struct Resolver {
    lane: Lane,
    answers_to: Sender<Request>,
    asked: u64,
    waiting: usize,
}

impl Resolver {
    /// Answers come as [`Request::Resolved`].
    pub(super) fn new(answers_to: Sender<Request>) -> Self {
        Self { lane: Lane::new(MAX_QUESTIONS), answers_to, asked: 0, waiting: 0 }
    }

    /// The addresses of `portals` when nobody has to be asked for them; otherwise the question that will be answered.
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

    /// A question was answered.
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

/// All addresses in the order in which they are tried, the one to try first last, and why others have none. `answers` are those of
/// the portals in the same order.
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
