//! The target's end of a login, and its side of every negotiation.

use super::connection::{Connection, End};
use super::lock;
use crate::chap;
use crate::frame::{Digests, Frame, Received};
use crate::login::{text_of, value_of};
use iscsi_wire::{
    LoginRequest, LoginResponse, LoginStage, LoginStatus, Tsih, encode_hex, keys, parse_binary, parse_list,
    parse_number,
};
use std::sync::atomic::Ordering;

/// Login exchanges before the target gives up.
const MAX_EXCHANGES: usize = 64;
/// Maximum length of the text of a login.
const MAX_TEXT: usize = 1 << 16;

/// Keys that only the leading connection may negotiate (RFC 7143 13).
const LEADING_ONLY: &[&str] = &[
    keys::MAX_CONNECTIONS,
    keys::INITIAL_R2T,
    keys::IMMEDIATE_DATA,
    keys::MAX_BURST_LENGTH,
    keys::FIRST_BURST_LENGTH,
    keys::DEFAULT_TIME2WAIT,
    keys::DEFAULT_TIME2RETAIN,
    keys::MAX_OUTSTANDING_R2T,
    keys::DATA_PDU_IN_ORDER,
    keys::DATA_SEQUENCE_IN_ORDER,
    keys::ERROR_RECOVERY_LEVEL,
    keys::SESSION_TYPE,
    keys::TASK_REPORTING,
    keys::ISCSI_PROTOCOL_LEVEL,
];

type Pairs = Vec<(String, String)>;

/// The state of a login so far.
#[derive(Default)]
struct Login {
    first: Option<LoginRequest>,
    seen: Vec<String>,
    text: Vec<u8>,
    authenticated: bool,
    algorithm: u64,
    identifier: u8,
    challenge: Vec<u8>,
    tag_sent: bool,
    declared: bool,
    held: usize,
    pending: Vec<String>,
}

impl Connection<'_> {
    /// Runs the login up to full feature phase; an error ends the connection.
    pub(super) fn login(&mut self) -> Result<(), End> {
        let mut login = Login::default();
        for _ in 0..MAX_EXCHANGES {
            let rx = self.next()?;
            let Ok(request) = LoginRequest::parse(&rx.bhs) else {
                if login.first.is_some() {
                    self.refuse(
                        &LoginRequest::parse(&rx.bhs).unwrap_or_else(|_| empty_request()),
                        LoginStatus::InvalidDuringLogin,
                    )?;
                }
                return Err(End);
            };
            self.watch.login(login.first.as_ref(), &request, &rx);
            if login.first.is_none() {
                self.initiator_cid = request.cid;
                if request.tsih == Tsih(0) {
                    self.session.begin(request.cmd_sn);
                } else if let Some(session) = self.shared.session_of(request.tsih, request.isid) {
                    self.session = session;
                    self.results = self.session.results();
                } else {
                    return self.refuse(&request, LoginStatus::SessionDoesNotExist);
                }
            }
            let first = *login.first.get_or_insert(request);
            let same = (first.isid, first.tsih, first.cid, first.itt)
                == (request.isid, request.tsih, request.cid, request.itt);
            if !same {
                return self.refuse(&request, LoginStatus::InitiatorError);
            }
            if self.served_by_hook(&rx)? {
                continue;
            }
            login.text.extend_from_slice(&rx.data);
            if login.text.len() > MAX_TEXT {
                return self.refuse(&request, LoginStatus::InitiatorError);
            }
            if request.continue_bit {
                if request.transit {
                    return self.refuse(&request, LoginStatus::InitiatorError);
                }
                self.respond(&request, false, Tsih(0), vec![Vec::new()])?;
                continue;
            }
            let text = std::mem::take(&mut login.text);
            let pairs = Received { data: text, ..rx }.text();
            if self.exchange(&mut login, &request, &pairs)? {
                return Ok(());
            }
        }
        Err(End)
    }

    /// The answer to what the initiator says, or the status of a refusal.
    fn answer(
        &mut self,
        login: &mut Login,
        request: &LoginRequest,
        pairs: &Pairs,
    ) -> Result<Pairs, LoginStatus> {
        for (key, _) in pairs {
            if login.seen.contains(key) {
                return Err(LoginStatus::InitiatorError);
            }
            login.seen.push(key.clone());
        }
        let mut answer = Pairs::new();
        if !std::mem::replace(&mut login.tag_sent, true) {
            self.take_names(request, pairs)?;
            let tag = self.shared.config.portal_group_tag.to_string();
            answer.push((keys::TARGET_PORTAL_GROUP_TAG.to_owned(), tag));
        }
        match request.csg {
            LoginStage::Security => self.security(login, pairs, &mut answer)?,
            _ if self.shared.config.chap.initiator.is_some() && !login.authenticated => {
                return Err(LoginStatus::AuthenticationFailure);
            }
            _ => self.operational(login, pairs, &mut answer),
        }
        Ok(answer)
    }

    /// Takes the names of the first request: they must be those of the session, if it joins one.
    fn take_names(&mut self, request: &LoginRequest, pairs: &Pairs) -> Result<(), LoginStatus> {
        self.discovery = value_of(pairs, keys::SESSION_TYPE) == Some("Discovery");
        let name = value_of(pairs, keys::INITIATOR_NAME).ok_or(LoginStatus::MissingParameter)?;
        self.watch.initiator_name(name);
        if request.tsih == Tsih(0) {
            *lock(&self.session.identity) = (name.to_owned(), request.isid);
        } else if lock(&self.session.identity).0 != name {
            return Err(LoginStatus::SessionDoesNotExist);
        }
        match value_of(pairs, keys::TARGET_NAME) {
            Some(name) if *name == self.shared.config.target_name => Ok(()),
            None if self.discovery => Ok(()),
            None => Err(LoginStatus::MissingParameter),
            Some(_) => Err(LoginStatus::NotFound),
        }
    }

    /// One exchange; true when full feature phase is reached.
    fn exchange(&mut self, login: &mut Login, request: &LoginRequest, pairs: &Pairs) -> Result<bool, End> {
        let answer = match self.answer(login, request, pairs) {
            Ok(answer) => answer,
            Err(status) => return self.refuse(request, status).map(|()| false),
        };
        let waits = request.csg == LoginStage::Operational && {
            login.held += 1;
            !login.pending.is_empty() || login.held <= self.shared.config.texts.hold_exchanges
        };
        // The last part answers an empty request without T, so it cannot grant the transition.
        let parts = self.parts(request, text_of(&answer));
        let may = !waits
            && parts.len() == 1
            && (request.csg == LoginStage::Operational
                || login.authenticated
                || self.shared.config.chap.initiator.is_none());
        let done = may && request.transit && request.nsg == Some(LoginStage::FullFeature);
        if done && !self.session.enter(self.initiator_cid, self.peer.connection()) {
            return self.refuse(request, LoginStatus::TooManyConnections).map(|()| false);
        }
        if done && request.tsih == Tsih(0) {
            let tsih = Tsih(self.shared.next_tsih.fetch_add(1, Ordering::Relaxed) as u16);
            self.session.establish(tsih, &self.results);
            self.shared.register(&self.session);
        }
        // An additional connection has the TSIH from its first request on.
        let tsih = if done { self.session.tsih() } else { request.tsih };
        self.respond(request, may && request.transit, tsih, parts)?;
        if done {
            self.level = self.session.level();
            self.peer.digests = Digests {
                header: self.results.get(keys::HEADER_DIGEST).is_some_and(|value| value == keys::CRC32C),
                data: self.results.get(keys::DATA_DIGEST).is_some_and(|value| value == keys::CRC32C),
            };
        }
        Ok(done)
    }

    fn security(&mut self, login: &mut Login, pairs: &Pairs, answer: &mut Pairs) -> Result<(), LoginStatus> {
        let config = self.shared.config.clone();
        let mut say = |key: &str, value: String| answer.push((key.to_owned(), value));
        if let Some(offer) = value_of(pairs, keys::AUTH_METHOD) {
            let methods = parse_list(offer).unwrap_or_default();
            let wanted = if config.chap.initiator.is_some() { "CHAP" } else { "None" };
            if !methods.contains(&wanted) {
                return Err(LoginStatus::AuthenticationFailure);
            }
            say(keys::AUTH_METHOD, wanted.to_owned());
        }
        if let Some(list) = value_of(pairs, keys::CHAP_A) {
            let chosen = parse_list(list).unwrap_or_default().into_iter().find_map(|item| {
                parse_number(item).ok().filter(|number| config.chap.algorithms.contains(number))
            });
            login.algorithm = chosen.ok_or(LoginStatus::AuthenticationFailure)?;
            login.challenge = chap::random_bytes::<1025>()[..config.chap.challenge_length.min(1025)].to_vec();
            login.identifier = chap::random_bytes::<1>()[0];
            say(keys::CHAP_A, login.algorithm.to_string());
            say(keys::CHAP_I, login.identifier.to_string());
            say(keys::CHAP_C, encode_hex(&login.challenge));
        }
        let Some(response) = value_of(pairs, keys::CHAP_R) else { return Ok(()) };
        let fail = LoginStatus::AuthenticationFailure;
        let own = config.chap.initiator.as_ref().ok_or(fail)?;
        let due = chap::response(login.algorithm, login.identifier, own.secret.as_bytes(), &login.challenge);
        let right = !login.challenge.is_empty() && parse_binary(response, 1024).ok() == due;
        if !right || value_of(pairs, keys::CHAP_N) != Some(&own.name) {
            return Err(fail);
        }
        login.authenticated = true;
        if let (Some(identifier), Some(challenge)) =
            (value_of(pairs, keys::CHAP_I), value_of(pairs, keys::CHAP_C))
        {
            let theirs = config.chap.target.as_ref().ok_or(fail)?;
            let identifier = parse_number(identifier).map_err(|_| fail)? as u8;
            let challenge = parse_binary(challenge, 1024).map_err(|_| fail)?;
            let response = chap::response(login.algorithm, identifier, theirs.secret.as_bytes(), &challenge);
            say(keys::CHAP_N, theirs.name.clone());
            say(keys::CHAP_R, encode_hex(&response.ok_or(fail)?));
        }
        Ok(())
    }

    fn operational(&mut self, login: &mut Login, pairs: &Pairs, answer: &mut Pairs) {
        let joins = login.first.is_some_and(|first| first.tsih != Tsih(0));
        for (key, value) in pairs {
            if joins && LEADING_ONLY.contains(&key.as_str()) {
                self.watch.find("MCS-01", format!("{key}={value} in the login of a further connection"));
            }
            if let Some(at) = login.pending.iter().position(|name| name == key) {
                login.pending.remove(at);
                continue;
            }
            if let Some(result) = self.negotiate(key, value) {
                answer.push((key.clone(), result));
            }
        }
        if !login.declared {
            login.declared = true;
            let ours = self.shared.config.keys.get(keys::MAX_RECV_DATA_SEGMENT_LENGTH);
            let ours = ours.cloned().unwrap_or_else(|| "8192".to_owned());
            answer.push((keys::MAX_RECV_DATA_SEGMENT_LENGTH.to_owned(), ours));
            for (key, value) in &self.shared.config.texts.proposals {
                if !login.seen.contains(key) {
                    login.pending.push(key.clone());
                    answer.push((key.clone(), value.clone()));
                }
            }
        }
    }

    /// Our answer to an offer; also records the result. `None` for a declaration.
    pub(super) fn negotiate(&mut self, key: &str, value: &str) -> Option<String> {
        let config = &self.shared.config;
        let declared = [
            keys::INITIATOR_NAME,
            keys::TARGET_NAME,
            keys::SESSION_TYPE,
            keys::INITIATOR_ALIAS,
            keys::TARGET_ADDRESS,
        ];
        if declared.contains(&key) {
            return None;
        }
        if key == keys::MAX_RECV_DATA_SEGMENT_LENGTH {
            self.initiator_max_recv = parse_number(value).map_or(8192, |n| n.clamp(512, 0xff_ffff) as usize);
            return None;
        }
        let list = |ours: &[&str]| {
            let offered = parse_list(value).unwrap_or_default();
            offered.into_iter().find(|item| ours.contains(item)).unwrap_or(keys::REJECT).to_owned()
        };
        let ours = config.keys.get(key).map(String::as_str);
        let result = match key {
            keys::HEADER_DIGEST => list(&config.header_digest),
            keys::DATA_DIGEST => list(&config.data_digest),
            keys::TASK_REPORTING => list(&config.task_reporting),
            keys::IF_MARKER | keys::OF_MARKER => keys::NO.to_owned(),
            keys::IF_MARK_INT | keys::OF_MARK_INT => keys::REJECT.to_owned(),
            keys::IMMEDIATE_DATA => (if value == "Yes" { ours.unwrap_or("Yes") } else { "No" }).to_owned(),
            keys::INITIAL_R2T | keys::DATA_PDU_IN_ORDER | keys::DATA_SEQUENCE_IN_ORDER => {
                (if value == "No" { ours.unwrap_or("Yes") } else { "Yes" }).to_owned()
            }
            _ => match (ours.and_then(|ours| parse_number(ours).ok()), parse_number(value)) {
                (Some(ours), Ok(theirs)) if key == keys::DEFAULT_TIME2WAIT => ours.max(theirs).to_string(),
                (Some(ours), Ok(theirs)) => ours.min(theirs).to_string(),
                (Some(_), Err(_)) => keys::REJECT.to_owned(),
                (None, _) => keys::NOT_UNDERSTOOD.to_owned(),
            },
        };
        self.results.insert(key.to_owned(), result.clone());
        Some(result)
    }

    /// The text of a response, split into the parts in which it is sent.
    fn parts(&self, request: &LoginRequest, mut text: Vec<u8>) -> Vec<Vec<u8>> {
        let mut parts = Vec::new();
        if request.csg == LoginStage::Operational {
            for cut in self.shared.config.texts.login_cuts.iter().copied() {
                if cut == 0 || cut >= text.len() {
                    break;
                }
                let rest = text.split_off(cut);
                parts.push(std::mem::replace(&mut text, rest));
            }
        }
        parts.push(text);
        parts
    }

    fn respond(
        &mut self,
        request: &LoginRequest,
        transit: bool,
        tsih: Tsih,
        mut parts: Vec<Vec<u8>>,
    ) -> Result<(), End> {
        let last = parts.pop().unwrap_or_default();
        for part in parts {
            self.respond_part(request, None, Tsih(0), part)?;
            let rx = self.next()?;
            let next = LoginRequest::parse(&rx.bhs).map_err(|_| End)?;
            self.watch.login(Some(request), &next, &rx);
            if !rx.data.is_empty() || next.transit || next.continue_bit {
                self.watch.find("TXT-05", format!("C=1 was answered by {}", rx.line()));
            }
        }
        self.respond_part(request, Some(transit), tsih, last)
    }

    /// One Login Response; if `transit` is `None`, it has C=1.
    fn respond_part(
        &mut self,
        request: &LoginRequest,
        transit: Option<bool>,
        tsih: Tsih,
        text: Vec<u8>,
    ) -> Result<(), End> {
        let response = LoginResponse {
            transit: transit == Some(true),
            continue_bit: transit.is_none(),
            csg: request.csg,
            nsg: if transit == Some(true) { request.nsg } else { None },
            version_max: 0,
            version_active: 0,
            isid: request.isid,
            tsih,
            itt: request.itt,
            numbers: self.take_numbers(),
            status: LoginStatus::Success,
        };
        self.emit(Frame::of(response).data(text))
    }

    fn refuse(&mut self, request: &LoginRequest, status: LoginStatus) -> Result<(), End> {
        let response = LoginResponse {
            transit: false,
            continue_bit: false,
            csg: request.csg,
            nsg: None,
            version_max: 0,
            version_active: 0,
            isid: request.isid,
            tsih: Tsih(0),
            itt: request.itt,
            numbers: self.take_numbers(),
            status,
        };
        self.emit(Frame::of(response))?;
        Err(End)
    }
}

/// What a refusal echoes when the offending PDU was not a Login Request.
fn empty_request() -> LoginRequest {
    LoginRequest {
        transit: false,
        continue_bit: false,
        csg: LoginStage::Security,
        nsg: None,
        version_max: 0,
        version_min: 0,
        isid: iscsi_wire::Isid([0; 6]),
        tsih: Tsih(0),
        itt: iscsi_wire::Itt(0),
        cid: iscsi_wire::Cid(0),
        cmd_sn: Default::default(),
        exp_stat_sn: Default::default(),
    }
}
