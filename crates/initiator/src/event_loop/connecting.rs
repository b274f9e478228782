//! From an address to a session: connect, log in, follow redirections (RFC 7143 6.3, 11.13.5).
//!
//! Drives one attempt. The event loop feeds it completions and the time, and gets an established session or the reason for the
//! failure.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use engine::{Driver, Link, Platform, SlabRing, Token};
use iscsi_core::Time;
use iscsi_core::chap::ChapAlgorithm;
use iscsi_core::initiator::login::{InitiatorLogin, Join, LoggedIn, LoginConfig, LoginFailure, Progress};
use iscsi_core::limits::{LOGIN_DATA_SEGMENT_BYTES, MAX_REDIRECTS};
use iscsi_core::pdu_reader::PduReader;
use iscsi_core::pdu_writer::PduWriter;
use iscsi_core::wire::{Cid, CmdSn, Isid, LoginStage, LoginStatus};

use super::messages::{self, Question};
use super::resolving::gather;
use crate::error::ConnectError;
use crate::options::{Options, Portal};
use crate::support::ProcessSupport;

/// An established connection, ready for full feature phase.
pub(super) struct Established {
    pub link: Link,
    pub login: LoggedIn,
    pub address: SocketAddr,
    /// Time that the TCP connection took to be established.
    pub connect_time: Duration,
    /// Addresses that were tried before without success.
    pub failed: Vec<SocketAddr>,
}

/// ```text
///   Connecting ──connected──► LoggingIn ──complete──► (established)
///     ▲  └──refused, silent──┐   │
///     └──the next address────┴───┴── closed, silent, redirected; refused by the target: (failed)
/// ```
enum Step {
    /// Redirected to hosts that have names.
    Resolving(Question),
    Connecting {
        token: Token,
        began: Time,
    },
    LoggingIn {
        link: Box<Link>,
        login: Box<InitiatorLogin>,
        connect_time: Duration,
    },
}

/// Which connection of which session an attempt is for.
pub(super) struct Place {
    pub cid: Cid,
    /// The session that it joins; `None` opens a new one.
    pub join: Option<Join>,
    /// Attempts before this one.
    pub tries: u32,
    /// Where to connect, in reverse order: the first address to try is last.
    pub candidates: Vec<SocketAddr>,
}

/// One attempt to open a session, or to add a connection to one.
pub(super) struct Attempt {
    place: Place,
    options: Options,
    isid: Isid,
    slabs: SlabRing,
    addresses: Addresses,
    address: SocketAddr,
    redirects: u32,
    step: Step,
    deadline: Time,
}

/// The addresses that an attempt may use.
#[derive(Default)]
struct Addresses {
    /// Those still to be tried, in reverse order: the next one is last.
    left: Vec<SocketAddr>,
    /// Those that failed.
    failed: Vec<SocketAddr>,
}

/// The result of feeding an attempt.
pub(super) enum Outcome {
    Pending(Box<Attempt>),
    /// The target is elsewhere, at these portals in their order; see [`Attempt::on_resolved`].
    Redirected(Box<Attempt>, Vec<Portal>),
    Established(Box<Established>),
    Failed(ConnectError),
}

impl Attempt {
    /// Starts with the first candidate to which a connection can be started.
    pub(super) fn begin(
        options: &Options,
        isid: Isid,
        slabs: &SlabRing,
        driver: &mut impl Driver,
        now: Time,
        mut place: Place,
    ) -> Result<Self, ConnectError> {
        let mut addresses = Addresses { left: std::mem::take(&mut place.candidates), failed: Vec::new() };
        let (address, step) = addresses.connect_next(options, &place, driver, now, None)?;
        let deadline = now + options.timeouts.connect;
        let (options, slabs) = (options.clone(), slabs.clone());
        Ok(Self { place, options, isid, slabs, addresses, address, redirects: 0, step, deadline })
    }

    /// Continues with the next address; `failure` is the result if there is none.
    fn continue_with(
        mut self: Box<Self>,
        driver: &mut impl Driver,
        now: Time,
        failure: Option<ConnectError>,
    ) -> Outcome {
        match self.addresses.connect_next(&self.options, &self.place, driver, now, failure) {
            Ok((address, step)) => {
                (self.address, self.step, self.deadline) =
                    (address, step, now + self.options.timeouts.connect);
                Outcome::Pending(self)
            }
            Err(error) => Outcome::Failed(error),
        }
    }

    /// Whether `conn` is the current connection of this attempt.
    pub(super) fn owns(&self, conn: Token) -> bool {
        self.token() == Some(conn)
    }

    fn token(&self) -> Option<Token> {
        match &self.step {
            Step::Resolving(_) => None,
            Step::Connecting { token, .. } => Some(*token),
            Step::LoggingIn { link, .. } => Some(link.token()),
        }
    }

    /// The address being tried.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// When [`Attempt::on_time`] is due.
    pub(super) fn deadline(&self) -> Time {
        self.deadline
    }

    pub(super) fn on_time(self: Box<Self>, driver: &mut impl Driver, now: Time) -> Outcome {
        if now < self.deadline {
            return Outcome::Pending(self);
        }
        let error = match self.step {
            Step::Resolving(_) | Step::Connecting { .. } => {
                let error = std::io::ErrorKind::TimedOut.into();
                ConnectError::Connect { address: self.address, error }
            }
            Step::LoggingIn { .. } => ConnectError::LoginTimeout { address: self.address },
        };
        self.failed(driver, now, error)
    }

    pub(super) fn on_connected<P: Platform>(
        mut self: Box<Self>,
        platform: &P,
        driver: &mut P::Driver,
        now: Time,
        conn: Token,
        result: std::io::Result<()>,
    ) -> Outcome {
        let Step::Connecting { token, began } = self.step else { return Outcome::Pending(self) };
        if token != conn {
            return Outcome::Pending(self);
        }
        if let Err(error) = result {
            let error = ConnectError::Connect { address: self.address, error };
            return self.failed(driver, now, error);
        }
        let reader = PduReader::new(LOGIN_DATA_SEGMENT_BYTES);
        let mut link = Box::new(Link::new(token, reader, PduWriter::new(), self.slabs.clone()));
        let mut cmd_sn = [0; 4];
        platform.fill_random(&mut cmd_sn);
        let mut login = Box::new(InitiatorLogin::new(LoginConfig {
            initiator: self.options.initiator.clone(),
            initiator_alias: self.options.port.alias.clone(),
            target: self.options.target.clone(),
            discovery: self.options.target.is_none(),
            isid: self.isid,
            cid: self.place.cid,
            cmd_sn: CmdSn(u32::from_be_bytes(cmd_sn)),
            chap: self.options.chap.clone(),
            bounds: self.options.login_bounds(),
            node_architecture: self.options.port.node_architecture.clone(),
            join: self.place.join.clone(),
        }));
        link.push(login.start());
        link.flush(driver);
        self.deadline = now + self.options.timeouts.login;
        self.step = Step::LoggingIn { link, login, connect_time: now.saturating_sub(began) };
        Outcome::Pending(self)
    }

    pub(super) fn on_sent(
        mut self: Box<Self>,
        driver: &mut impl Driver,
        now: Time,
        conn: Token,
        segments: Vec<Bytes>,
        result: std::io::Result<()>,
    ) -> Outcome {
        match &mut self.step {
            Step::LoggingIn { link, .. } if link.token() == conn => {
                if result.is_err() {
                    let error = ConnectError::Closed { address: self.address };
                    return self.failed(driver, now, error);
                }
                link.on_sent(segments);
                link.flush(driver);
                Outcome::Pending(self)
            }
            _ => Outcome::Pending(self),
        }
    }

    pub(super) fn on_received<P: Platform>(
        mut self: Box<Self>,
        platform: &P,
        driver: &mut P::Driver,
        now: Time,
        conn: Token,
        buffer: BytesMut,
        result: std::io::Result<usize>,
    ) -> Outcome {
        let Step::LoggingIn { link, login, .. } = &mut self.step else { return Outcome::Pending(self) };
        if link.token() != conn {
            return Outcome::Pending(self);
        }
        link.on_received(buffer, result.unwrap_or(0));
        loop {
            let pdu = match link.next_pdu() {
                Ok(Some(pdu)) => pdu,
                Ok(None) => break,
                Err(error) => {
                    let error = ConnectError::Framing { address: self.address, error };
                    return self.failed(driver, now, error);
                }
            };
            match login.handle_pdu(&pdu, &mut ProcessSupport(platform)) {
                Ok(Progress::Send(request)) => link.push(request),
                Ok(Progress::Complete(logged_in)) => return self.complete(*logged_in),
                Err(LoginFailure::Redirected { addresses, .. }) => {
                    let portals = addresses.iter().map(Portal::from).collect();
                    return self.redirect(driver, portals);
                }
                Err(failure) if misnumbers_sha1(&failure, login) => {
                    tracing::info!(address = %self.address, "refused with CHAP algorithm 7: trying without it");
                    return self.without_sha256(driver, now);
                }
                Err(failure) => {
                    let keys = login.keys().to_vec();
                    let error = ConnectError::Login { address: self.address, failure, keys };
                    return self.failed(driver, now, error);
                }
            }
        }
        if link.peer_closed() {
            let error = ConnectError::Closed { address: self.address };
            return self.failed(driver, now, error);
        }
        link.flush(driver);
        Outcome::Pending(self)
    }

    /// Applies what was negotiated, before the next PDU is parsed.
    //= rfc7143 13.1 DIG-04 DIG-13
    fn complete(self: Box<Self>, login: LoggedIn) -> Outcome {
        let Step::LoggingIn { mut link, connect_time, .. } = self.step else {
            unreachable!("a login completes while logging in")
        };
        link.set_rx_digests(login.params.digests);
        link.set_tx_digests(login.params.digests);
        link.set_max_data_bytes(login.params.max_recv_data_segment_length as usize);
        Outcome::Established(Box::new(Established {
            link: *link,
            login,
            address: self.address,
            connect_time,
            failed: self.addresses.failed,
        }))
    }

    /// The target redirects us.
    //= rfc7143 11.13.5 LGN-15
    fn redirect(mut self: Box<Self>, driver: &mut impl Driver, portals: Vec<Portal>) -> Outcome {
        self.close(driver);
        self.redirects += 1;
        if self.redirects > MAX_REDIRECTS {
            return Outcome::Failed(ConnectError::TooManyRedirects(self.redirects));
        }
        tracing::info!(from = %self.address, to = ?portals, "redirected");
        Outcome::Redirected(self, portals)
    }

    /// Waits for the addresses of the hosts to which it was redirected.
    pub(super) fn until_resolved(mut self: Box<Self>, question: Question, now: Time) -> Box<Self> {
        self.step = Step::Resolving(question);
        self.deadline = now + self.options.timeouts.connect;
        self
    }

    /// Whether it is waiting for `question`.
    pub(super) fn awaits(&self, question: Question) -> bool {
        matches!(self.step, Step::Resolving(awaited) if awaited == question)
    }

    /// Continues at `addresses`, those of the portals in turn, in reverse order: the first to try is last.
    pub(super) fn on_resolved(
        mut self: Box<Self>,
        driver: &mut impl Driver,
        now: Time,
        addresses: messages::Addresses,
    ) -> Outcome {
        let (left, failure) = gather(addresses);
        self.addresses.left = left;
        self.continue_with(driver, now, failure)
    }

    /// Starts again at the same address, with one CHAP algorithm less.
    fn without_sha256(mut self: Box<Self>, driver: &mut impl Driver, now: Time) -> Outcome {
        self.close(driver);
        if let Some(chap) = &mut self.options.chap {
            chap.algorithms.retain(|algorithm| *algorithm != ChapAlgorithm::Sha256);
        }
        self.addresses.left.push(self.address);
        self.continue_with(driver, now, None)
    }

    /// Tries the next address, if there is one.
    fn failed(mut self: Box<Self>, driver: &mut impl Driver, now: Time, error: ConnectError) -> Outcome {
        self.close(driver);
        // A refusal by the target is an answer. Only silence and network errors make the next address worth trying.
        if matches!(error, ConnectError::Login { .. }) {
            return Outcome::Failed(error);
        }
        self.addresses.failed.push(self.address);
        self.continue_with(driver, now, Some(error))
    }

    pub(super) fn close(&self, driver: &mut impl Driver) {
        if let Some(token) = self.token() {
            driver.close(token);
        }
    }
}

impl Addresses {
    /// Starts to connect to the next address for which that is possible.
    fn connect_next(
        &mut self,
        options: &Options,
        place: &Place,
        driver: &mut impl Driver,
        now: Time,
        mut failure: Option<ConnectError>,
    ) -> Result<(SocketAddr, Step), ConnectError> {
        while let Some(address) = self.left.pop() {
            tracing::debug!(%address, cid = place.cid.0, "connecting");
            let local = options.local_address(place.cid, place.tries, address);
            match driver.connect(address, local) {
                Ok(token) => return Ok((address, Step::Connecting { token, began: now })),
                Err(error) => {
                    self.failed.push(address);
                    failure = Some(ConnectError::Connect { address, error });
                }
            }
        }
        Err(failure.unwrap_or_else(|| ConnectError::Local(std::io::ErrorKind::AddrNotAvailable.into())))
    }
}

/// Whether the target may be one of those that used 7 for SHA-1 (tgt up to 1.0.85 does), the number that IANA assigned to
/// SHA-256. Such targets find our response too long and call that an initiator error. A target that supports SHA-256 calls a
/// wrong secret an authentication failure.
fn misnumbers_sha1(failure: &LoginFailure, login: &InitiatorLogin) -> bool {
    let refused = LoginFailure::Refused { status: LoginStatus::InitiatorError, stage: LoginStage::Security };
    *failure == refused && login.chap_algorithm() == Some(ChapAlgorithm::Sha256)
}
