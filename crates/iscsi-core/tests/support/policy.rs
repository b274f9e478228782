//! A login policy with fixed answers, and logins through it.

use bytes::Bytes;
use iscsi_core::chap::Secret;
use iscsi_core::params::{Bounds, Params};
use iscsi_core::pdu_reader::RxPdu;
use iscsi_core::target::login::{
    Admission, AuthPolicy, Established, LoginNames, LoginPolicy, LoginReply, NoSecret, Refusal, TargetLogin,
};
use iscsi_core::wire::{Cid, CmdSn, Isid, Itt, LoginRequest, LoginStage, StatSn, TextBuilder, Tsih};

pub const INITIATOR: &str = "iqn.2025-01.org.example:host";
pub const TARGET: &str = "iqn.2025-01.org.example:disk";

/// Answers every question of a login from its fields.
pub struct Policy {
    pub auth: AuthPolicy,
    pub bounds: Bounds,
    pub portal_group_tag: u16,
    pub target_alias: Option<String>,
    pub joins: Option<Params>,
    pub refusal: Option<Refusal>,
    /// CHAP names and their secrets.
    pub secrets: Vec<(String, Secret)>,
    /// Challenges in flight, on this connection and others.
    pub issued: Vec<Vec<u8>>,
    /// State of a random generator that is not strong at all.
    pub random: u64,
    /// The names that it was asked about.
    pub admitted: Vec<LoginNames>,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            auth: AuthPolicy::None,
            bounds: Bounds::default(),
            portal_group_tag: 1,
            target_alias: None,
            joins: None,
            refusal: None,
            secrets: Vec::new(),
            issued: Vec::new(),
            random: 1,
            admitted: Vec::new(),
        }
    }
}

impl LoginPolicy for Policy {
    fn admit(&mut self, names: &LoginNames) -> Result<Admission, Refusal> {
        self.admitted.push(names.clone());
        match &self.refusal {
            Some(refusal) => Err(refusal.clone()),
            None => Ok(Admission {
                auth: self.auth.clone(),
                bounds: self.bounds.clone(),
                portal_group_tag: self.portal_group_tag,
                target_alias: self.target_alias.clone(),
                joins: self.joins.clone(),
            }),
        }
    }

    fn secret_of(&mut self, _names: &LoginNames, chap_name: &str) -> Result<Secret, NoSecret> {
        let known = self.secrets.iter().find(|(name, _)| name == chap_name);
        known.map(|(_, secret)| secret.clone()).ok_or(NoSecret::UnknownName)
    }

    fn challenge_issued(&mut self, challenge: &[u8]) {
        self.issued.push(challenge.to_vec());
    }

    fn was_issued(&mut self, challenge: &[u8]) -> bool {
        self.issued.iter().any(|ours| ours == challenge)
    }

    fn fill_random(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            self.random = self.random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            *byte = (self.random >> 33) as u8;
        }
    }
}

/// A login request without data: leading, CSG=1, NSG=3, T=1.
pub fn login_request() -> LoginRequest {
    LoginRequest {
        transit: true,
        continue_bit: false,
        csg: LoginStage::Operational,
        nsg: Some(LoginStage::FullFeature),
        version_max: 0,
        version_min: 0,
        isid: Isid([0x80, 1, 2, 3, 4, 5]),
        tsih: Tsih(0),
        itt: Itt(0),
        cid: Cid(1),
        cmd_sn: CmdSn(1),
        exp_stat_sn: StatSn(0),
    }
}

/// A received PDU with `data`, and with the lengths in its header set.
pub fn rx(mut bhs: iscsi_core::wire::Bhs, data: impl Into<Bytes>) -> RxPdu {
    let data = data.into();
    bhs.set_data_segment_length(data.len());
    RxPdu { bhs, ahs: Bytes::new(), data, data_digest_ok: true }
}

/// Logs in with one request that names both ends and carries `keys`.
pub fn establish(policy: &mut Policy, request: LoginRequest, keys: &[(&str, &str)]) -> Established {
    let mut login = TargetLogin::new(StatSn(0x100));
    let mut text = TextBuilder::new();
    text.push("InitiatorName", INITIATOR).push("TargetName", TARGET);
    for (key, value) in keys {
        text.push(key, value);
    }
    match login.handle_pdu(&rx(request.to_bhs(), text.finish()), policy) {
        LoginReply::Complete(established) => *established,
        other => panic!("the login did not complete at once: {other:?}"),
    }
}
