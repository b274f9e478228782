//! The initiator's end of a login (RFC 7143 6.3, 11.12): single steps for scripts that break rules, and a whole
//! login that keeps them.

use crate::chap;
use crate::frame::{Digests, Frame, Received};
use crate::{Params, PeerError, RawPeer};
use iscsi_wire::{
    Cid, CmdSn, Isid, Itt, LoginRequest, LoginResponse, LoginStage, Opcode, TextBuilder, Tsih, encode_hex,
    keys, parse_binary,
};

/// Login exchanges before a script gives up.
const MAX_EXCHANGES: usize = 40;

/// CHAP from the initiator's side.
#[derive(Clone, Debug)]
pub struct ChapScript {
    /// CHAP_N.
    pub user: String,
    /// The secret that answers the target's challenge.
    pub secret: String,
    /// CHAP_A, in order of preference; `5` unless changed.
    pub algorithms: String,
    /// The name and secret with which the target must answer our challenge, for mutual CHAP.
    pub target: Option<(String, String)>,
}

/// The contents of a login. [`LoginScript::new`] makes one that any target should accept.
#[derive(Clone, Debug)]
pub struct LoginScript {
    /// InitiatorName.
    pub initiator_name: String,
    /// TargetName; `None` leaves it out.
    pub target_name: Option<String>,
    /// SessionType=Discovery.
    pub discovery: bool,
    /// ISID; every new script chooses its own.
    pub isid: Isid,
    /// TSIH: 0 for a new session.
    pub tsih: Tsih,
    /// CID.
    pub cid: Cid,
    /// The first CmdSN.
    pub cmd_sn: CmdSn,
    /// Operational keys to offer, in order.
    pub keys: Vec<(String, String)>,
    /// CHAP, if used.
    pub chap: Option<ChapScript>,
}

impl LoginScript {
    /// A login with modest offers. Digests are offered as `None,CRC32C`.
    pub fn new(initiator_name: &str, target_name: Option<&str>) -> Self {
        let r = chap::random_bytes::<5>();
        let offers = [
            (keys::HEADER_DIGEST, "None,CRC32C"),
            (keys::DATA_DIGEST, "None,CRC32C"),
            (keys::MAX_RECV_DATA_SEGMENT_LENGTH, "65536"),
            (keys::DEFAULT_TIME2WAIT, "0"),
            (keys::DEFAULT_TIME2RETAIN, "0"),
            (keys::ERROR_RECOVERY_LEVEL, "0"),
        ];
        let normal = [
            (keys::INITIAL_R2T, "Yes"),
            (keys::IMMEDIATE_DATA, "Yes"),
            (keys::MAX_BURST_LENGTH, "262144"),
            (keys::FIRST_BURST_LENGTH, "65536"),
            (keys::MAX_OUTSTANDING_R2T, "1"),
            (keys::MAX_CONNECTIONS, "1"),
            (keys::DATA_PDU_IN_ORDER, "Yes"),
            (keys::DATA_SEQUENCE_IN_ORDER, "Yes"),
        ];
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        let discovery = target_name.is_none();
        let mut keys: Vec<_> = offers.iter().map(owned).collect();
        if !discovery {
            keys.extend(normal.iter().map(owned));
        }
        LoginScript {
            initiator_name: initiator_name.to_owned(),
            target_name: target_name.map(str::to_owned),
            discovery,
            isid: Isid::random([r[0], r[1], r[2]], u16::from_be_bytes([r[3], r[4]])),
            tsih: Tsih(0),
            cid: Cid(1),
            cmd_sn: CmdSn(1),
            keys,
            chap: None,
        }
    }

    /// With this offer, replacing an earlier one for the same key.
    pub fn key(mut self, key: &str, value: &str) -> Self {
        match self.keys.iter_mut().find(|(name, _)| name == key) {
            Some((_, old)) => value.clone_into(old),
            None => self.keys.push((key.to_owned(), value.to_owned())),
        }
        self
    }

    /// Without an offer of this key.
    pub fn without(mut self, key: &str) -> Self {
        self.keys.retain(|(name, _)| name != key);
        self
    }

    /// Without any operational offer: the defaults of the standard apply.
    pub fn bare(mut self) -> Self {
        self.keys.clear();
        self
    }

    /// For another connection of the session `tsih`, or its reinstatement: without the keys that only the
    /// leading connection may negotiate.
    pub fn joining(mut self, tsih: Tsih, cid: Cid) -> Self {
        (self.tsih, self.cid) = (tsih, cid);
        let own = [keys::HEADER_DIGEST, keys::DATA_DIGEST, keys::MAX_RECV_DATA_SEGMENT_LENGTH];
        self.keys.retain(|(key, _)| own.contains(&key.as_str()));
        self
    }

    /// With this first CmdSN.
    pub fn cmd_sn(mut self, cmd_sn: u32) -> Self {
        self.cmd_sn = CmdSn(cmd_sn);
        self
    }

    /// The pairs that the first request must carry: the names of both ends and the session type.
    pub fn names(&self) -> Vec<(String, String)> {
        let mut pairs = vec![(keys::INITIATOR_NAME.to_owned(), self.initiator_name.clone())];
        if let Some(name) = &self.target_name {
            pairs.push((keys::TARGET_NAME.to_owned(), name.clone()));
        }
        // SessionType belongs to the leading connection (RFC 7143 13.21).
        if self.tsih == Tsih(0) {
            let kind = if self.discovery { "Discovery" } else { "Normal" };
            pairs.push((keys::SESSION_TYPE.to_owned(), kind.to_owned()));
        }
        pairs
    }

    /// A request with this script's identity.
    pub fn request(&self, csg: LoginStage, nsg: Option<LoginStage>) -> LoginRequest {
        LoginRequest {
            transit: nsg.is_some(),
            continue_bit: false,
            csg,
            nsg,
            version_max: 0,
            version_min: 0,
            isid: self.isid,
            tsih: self.tsih,
            itt: Itt(1),
            cid: self.cid,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: Default::default(),
        }
    }
}

/// The text bytes of pairs.
pub fn text_of<K: AsRef<str>, V: AsRef<str>>(pairs: &[(K, V)]) -> Vec<u8> {
    let mut text = TextBuilder::new();
    for (key, value) in pairs {
        text.push(key.as_ref(), value.as_ref());
    }
    text.finish()
}

/// The target's answer to one login step.
#[derive(Clone, Debug)]
pub struct LoginReply {
    /// The (last) response.
    pub response: LoginResponse,
    /// All pairs of the step.
    pub pairs: Vec<(String, String)>,
}

impl LoginReply {
    /// The first value of `key`.
    pub fn get(&self, key: &str) -> Option<&str> {
        value_of(&self.pairs, key)
    }

    /// The response as an error, if its status is one.
    pub fn accepted(self) -> Result<Self, PeerError> {
        match self.response.status {
            status if status.is_success() => Ok(self),
            status => Err(PeerError::Login(status)),
        }
    }
}

/// The first value of `key` in `pairs`.
pub(crate) fn value_of<'a>(pairs: &'a [(String, String)], key: &str) -> Option<&'a str> {
    pairs.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
}

/// A login that reached full feature phase.
#[derive(Clone, Debug)]
pub struct LoggedIn {
    /// Parameters in effect.
    pub params: Params,
    /// The session's handle.
    pub tsih: Tsih,
    /// Every pair that the target sent.
    pub pairs: Vec<(String, String)>,
    /// The final response.
    pub last: LoginResponse,
}

impl RawPeer {
    /// Sends one login request with text, and receives the answer. ExpStatSN is filled in.
    pub fn login_step<K: AsRef<str>, V: AsRef<str>>(
        &mut self,
        mut request: LoginRequest,
        pairs: &[(K, V)],
    ) -> Result<LoginReply, PeerError> {
        request.exp_stat_sn = self.ledger.exp_stat_sn();
        self.send(&Frame::of(request).data(text_of(pairs)))?;
        self.login_reply(request)
    }

    /// Receives the answer to `request`; requests all parts of an answer in several PDUs.
    pub fn login_reply(&mut self, request: LoginRequest) -> Result<LoginReply, PeerError> {
        let mut text = Vec::new();
        for _ in 0..MAX_EXCHANGES {
            let rx = self.expect(Opcode::LoginResponse)?;
            text.extend_from_slice(&rx.data);
            let response = LoginResponse::parse(&rx.bhs)?;
            if response.continue_bit && response.status.is_success() {
                let mut empty = request;
                (empty.transit, empty.nsg, empty.continue_bit) = (false, None, false);
                empty.exp_stat_sn = self.ledger.exp_stat_sn();
                self.send(&Frame::of(empty))?;
                continue;
            }
            let pairs = Received { data: text, ..rx }.text();
            return Ok(LoginReply { response, pairs });
        }
        Err(PeerError::LoginRule("the answer never ended".to_owned()))
    }

    /// A complete login that keeps the rules. Digests and the ledger are set for full feature phase.
    pub fn login(&mut self, script: &LoginScript) -> Result<LoggedIn, PeerError> {
        use LoginStage::{FullFeature, Operational};
        let mut seen = Vec::new();
        let mut pairs = script.names();
        if let Some(chap) = &script.chap {
            seen.extend(self.login_chap(script, chap)?);
            pairs.clear();
        }
        pairs.extend(script.keys.iter().cloned());
        let mut accepted: Vec<(String, String)> = Vec::new();
        for _ in 0..MAX_EXCHANGES {
            let request = script.request(Operational, Some(FullFeature));
            let reply = self.login_step(request, &pairs)?.accepted()?;
            seen.extend(reply.pairs.iter().cloned());
            if reply.response.transit && reply.response.nsg == Some(FullFeature) {
                let params = Params::of(script, &seen, &accepted);
                self.digests = Digests { header: params.header_digest, data: params.data_digest };
                self.ledger.max_recv_data_segment_length = params.max_recv_data_segment_length as usize;
                self.ledger.error_recovery_level = params.error_recovery_level;
                let (tsih, last) = (reply.response.tsih, reply.response);
                return Ok(LoggedIn { params, tsih, pairs: seen, last });
            }
            pairs = answers(script, &reply.pairs, &accepted);
            accepted.extend(pairs.iter().cloned());
        }
        Err(PeerError::LoginRule(format!("not in full feature phase after {MAX_EXCHANGES} exchanges")))
    }

    /// The security stage of a login with CHAP, up to the transition. Returns the pairs received.
    pub fn login_chap(
        &mut self,
        script: &LoginScript,
        chap: &ChapScript,
    ) -> Result<Vec<(String, String)>, PeerError> {
        use LoginStage::{Operational, Security};
        let missing = |key: &str| PeerError::LoginRule(format!("the target did not send {key}"));
        let mut seen = Vec::new();
        let mut pairs = script.names();
        pairs.push((keys::AUTH_METHOD.to_owned(), "CHAP,None".to_owned()));
        let reply = self.login_step(script.request(Security, None), &pairs)?.accepted()?;
        seen.extend(reply.pairs.iter().cloned());
        match reply.get(keys::AUTH_METHOD) {
            Some("CHAP") => {}
            Some("None") => {
                let done = script.request(Security, Some(Operational));
                self.login_step::<&str, &str>(done, &[])?.accepted()?;
                return Ok(seen);
            }
            other => return Err(PeerError::LoginRule(format!("AuthMethod answered with {other:?}"))),
        }
        let algorithms = [(keys::CHAP_A, chap.algorithms.as_str())];
        let reply = self.login_step(script.request(Security, None), &algorithms)?.accepted()?;
        seen.extend(reply.pairs.iter().cloned());
        let mut answer = answer_challenge(&reply, chap)?;
        let number = reply.get(keys::CHAP_A).unwrap_or_default().to_owned();
        let ours = chap::random_bytes::<17>();
        if chap.target.is_some() {
            answer.push((keys::CHAP_I.to_owned(), ours[16].to_string()));
            answer.push((keys::CHAP_C.to_owned(), encode_hex(&ours[..16])));
        }
        let done = script.request(Security, Some(Operational));
        let reply = self.login_step(done, &answer)?.accepted()?;
        seen.extend(reply.pairs.iter().cloned());
        if let Some((name, secret)) = &chap.target {
            let got = reply.get(keys::CHAP_R).ok_or_else(|| missing(keys::CHAP_R))?;
            let wanted =
                chap::response(number.parse().unwrap_or(0), ours[16], secret.as_bytes(), &ours[..16]);
            if reply.get(keys::CHAP_N) != Some(name) || parse_binary(got, 1024).ok() != wanted {
                return Err(PeerError::LoginRule("the target's CHAP response is wrong".to_owned()));
            }
        }
        if reply.response.nsg != Some(Operational) {
            return Err(PeerError::LoginRule("no transition after a correct CHAP response".to_owned()));
        }
        Ok(seen)
    }
}

/// CHAP_N and CHAP_R for the challenge in `reply`.
pub(crate) fn answer_challenge(
    reply: &LoginReply,
    chap: &ChapScript,
) -> Result<Vec<(String, String)>, PeerError> {
    let get = |key: &str| {
        reply.get(key).ok_or_else(|| PeerError::LoginRule(format!("the target did not send {key}")))
    };
    let number = get(keys::CHAP_A)?.parse().unwrap_or(0);
    let identifier = iscsi_wire::parse_number(get(keys::CHAP_I)?)? as u8;
    let challenge = parse_binary(get(keys::CHAP_C)?, 1024)?;
    let response = chap::response(number, identifier, chap.secret.as_bytes(), &challenge)
        .ok_or_else(|| PeerError::LoginRule(format!("the target chose CHAP_A={number}")))?;
    Ok(vec![(keys::CHAP_N.to_owned(), chap.user.clone()), (keys::CHAP_R.to_owned(), encode_hex(&response))])
}

/// Answers to keys that the target proposed itself: agreement, or NotUnderstood.
fn answers(
    script: &LoginScript,
    theirs: &[(String, String)],
    accepted: &[(String, String)],
) -> Vec<(String, String)> {
    let declared = [
        keys::TARGET_PORTAL_GROUP_TAG,
        keys::TARGET_ALIAS,
        keys::TARGET_ADDRESS,
        keys::MAX_RECV_DATA_SEGMENT_LENGTH,
    ];
    let mut pairs = Vec::new();
    for (key, value) in theirs {
        let ours = value_of(&script.keys, key).is_some() || value_of(accepted, key).is_some();
        if ours || declared.contains(&key.as_str()) {
            continue;
        }
        let answer = if key.starts_with("X-") || !keys::ALL.contains(&key.as_str()) {
            keys::NOT_UNDERSTOOD
        } else {
            value.split(',').next().unwrap_or_default()
        };
        pairs.push((key.clone(), answer.to_owned()));
    }
    pairs
}
