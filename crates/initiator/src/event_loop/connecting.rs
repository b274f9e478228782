//! From an address to a session: connect, log in, follow redirections (RFC 7143 6.3, 11.13.5).
//!
//! Drives one attempt. The event loop feeds completions and the time, and gets an established session or the reason why not.

use std::net::{SocketAddr, ToSocketAddrs};
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

use crate::error::ConnectError;
use crate::options::{Options, Portal};
use crate::support::ProcessSupport;

/// An established connection, ready for full feature phase.
pub(super) struct Established {
    pub link: Link,
    pub login: LoggedIn,
    pub address: SocketAddr,
    /// Time that the TCP connection took to stand.
    pub connect_time: Duration,
}

enum Step {
    Connecting { token: Token, began: Time },
    LoggingIn { link: Box<Link>, login: Box<InitiatorLogin>, connect_time: Duration },
}

/// Which connection of which session an attempt is for.
pub(super) struct Place {
    pub cid: Cid,
    /// The session that it joins; `None` opens one.
    pub join: Option<Join>,
    /// Where the session is; `None`: at the portal of the options.
    pub address: Option<SocketAddr>,
}

impl Place {
    /// The first connection of a session.
    pub(super) const LEADING: Self = Self { cid: Cid(0), join: None, address: None };
}

/// One attempt to open a session, or to bring a connection to one.
pub(super) struct Attempt {
    place: Place,
    options: Options,
    isid: Isid,
    slabs: SlabRing,
    /// Addresses still to be tried, the next one last.
    candidates: Vec<SocketAddr>,
    address: SocketAddr,
    redirects: u32,
    step: Step,
    deadline: Time,
}

/// What came of feeding an attempt.
pub(super) enum Outcome {
    Pending(Box<Attempt>),
    Established(Box<Established>),
    Failed(ConnectError),
}

impl Attempt {
    /// Begins at the place of the session, or at the portal of the options.
    pub(super) fn begin(
        options: &Options,
        isid: Isid,
        slabs: &SlabRing,
        driver: &mut impl Driver,
        now: Time,
        place: Place,
    ) -> Result<Self, ConnectError> {
        let candidates = match place.address {
            Some(address) => vec![address],
            None => resolve(&options.portal)?,
        };
        Self::next_address(options.clone(), place, isid, slabs.clone(), candidates, 0, driver, now, None)
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of an attempt that outlive one address")]
    fn next_address(
        options: Options,
        place: Place,
        isid: Isid,
        slabs: SlabRing,
        mut candidates: Vec<SocketAddr>,
        redirects: u32,
        driver: &mut impl Driver,
        now: Time,
        failed: Option<ConnectError>,
    ) -> Result<Self, ConnectError> {
        let Some(address) = candidates.pop() else {
            return Err(failed.expect("an attempt begins with an address"));
        };
        tracing::debug!(%address, cid = place.cid.0, "connecting");
        let local = options.local_address(place.cid);
        let token =
            driver.connect(address, local).map_err(|error| ConnectError::Connect { address, error })?;
        let deadline = now + options.connect_timeout;
        let step = Step::Connecting { token, began: now };
        Ok(Self { place, options, isid, slabs, candidates, address, redirects, step, deadline })
    }

    /// The connection of the moment.
    pub(super) fn token(&self) -> Token {
        match &self.step {
            Step::Connecting { token, .. } => *token,
            Step::LoggingIn { link, .. } => link.token(),
        }
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
            Step::Connecting { .. } => {
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
            initiator_alias: self.options.initiator_alias.clone(),
            target: self.options.target.clone(),
            discovery: self.options.target.is_none(),
            isid: self.isid,
            cid: self.place.cid,
            cmd_sn: CmdSn(u32::from_be_bytes(cmd_sn)),
            chap: self.options.chap.clone(),
            bounds: self.options.login_bounds(),
            node_architecture: self.options.node_architecture.clone(),
            join: self.place.join.clone(),
        }));
        link.push(login.start());
        link.flush(driver);
        self.deadline = now + self.options.login_timeout;
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
                    return self.redirect(driver, now, portals);
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

    /// Puts in force what was negotiated, before the next PDU is looked at.
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
        }))
    }

    /// Goes on where the target says that it is.
    //= rfc7143 11.13.5 LGN-15
    fn redirect(self: Box<Self>, driver: &mut impl Driver, now: Time, portals: Vec<Portal>) -> Outcome {
        self.close(driver);
        let redirects = self.redirects + 1;
        if redirects > MAX_REDIRECTS {
            return Outcome::Failed(ConnectError::TooManyRedirects(redirects));
        }
        let (mut candidates, mut failure) = (Vec::new(), None);
        for portal in portals.iter().rev() {
            match resolve(portal) {
                Ok(addresses) => candidates.extend(addresses),
                Err(error) => failure = Some(error),
            }
        }
        tracing::info!(from = %self.address, to = ?portals, "redirected");
        let (options, place, isid, slabs) = (self.options, self.place, self.isid, self.slabs);
        match Self::next_address(options, place, isid, slabs, candidates, redirects, driver, now, failure) {
            Ok(attempt) => Outcome::Pending(Box::new(attempt)),
            Err(error) => Outcome::Failed(error),
        }
    }

    /// Begins again at the same address, with one CHAP algorithm less.
    fn without_sha256(mut self: Box<Self>, driver: &mut impl Driver, now: Time) -> Outcome {
        self.close(driver);
        if let Some(chap) = &mut self.options.chap {
            chap.algorithms.retain(|algorithm| *algorithm != ChapAlgorithm::Sha256);
        }
        self.candidates.push(self.address);
        let (options, place, isid, slabs) = (self.options, self.place, self.isid, self.slabs);
        let (candidates, redirects) = (self.candidates, self.redirects);
        match Self::next_address(options, place, isid, slabs, candidates, redirects, driver, now, None) {
            Ok(attempt) => Outcome::Pending(Box::new(attempt)),
            Err(error) => Outcome::Failed(error),
        }
    }

    /// Tries the next address, if there is one.
    fn failed(mut self: Box<Self>, driver: &mut impl Driver, now: Time, error: ConnectError) -> Outcome {
        self.close(driver);
        let candidates = std::mem::take(&mut self.candidates);
        // A target's refusal is an answer; only silence and errors of the way make the next address worth a try.
        if candidates.is_empty() || matches!(error, ConnectError::Login { .. }) {
            return Outcome::Failed(error);
        }
        let (options, place, isid, slabs) = (self.options, self.place, self.isid, self.slabs);
        let redirects = self.redirects;
        let failed = Some(error);
        match Self::next_address(options, place, isid, slabs, candidates, redirects, driver, now, failed) {
            Ok(attempt) => Outcome::Pending(Box::new(attempt)),
            Err(error) => Outcome::Failed(error),
        }
    }

    pub(super) fn close(&self, driver: &mut impl Driver) {
        driver.close(self.token());
    }
}

/// Whether the target may be one of those that took 7, which IANA gave to SHA-256, for SHA-1 (tgt up to 1.0.85 does). To them our
/// answer is too long, which they call an initiator error; a target that has SHA-256 calls a wrong secret an authentication
/// failure.
fn misnumbers_sha1(failure: &LoginFailure, login: &InitiatorLogin) -> bool {
    let refused = LoginFailure::Refused { status: LoginStatus::InitiatorError, stage: LoginStage::Security };
    *failure == refused && login.chap_algorithm() == Some(ChapAlgorithm::Sha256)
}

/// The addresses of a portal, the one to try first last.
fn resolve(portal: &Portal) -> Result<Vec<SocketAddr>, ConnectError> {
    let failed = |error| ConnectError::Resolve { host: portal.host.clone(), error };
    let mut addresses: Vec<SocketAddr> =
        (portal.host.as_str(), portal.port).to_socket_addrs().map_err(failed)?.collect();
    addresses.reverse();
    match addresses.is_empty() {
        true => Err(failed(std::io::ErrorKind::NotFound.into())),
        false => Ok(addresses),
    }
}
