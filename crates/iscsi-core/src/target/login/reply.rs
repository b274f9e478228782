//! What a login answers: responses, refusals, and the login that is complete.

use bytes::Bytes;
use iscsi_wire::{
    CmdSn, LoginResponse, LoginStage, LoginStatus, ResponseNumbers, StatSn, TextBuilder, Tsih, keys,
};

use super::head::Head;
use super::policy::{LoginNames, Refusal};
use crate::params::Params;
use crate::pdu_writer::TxPdu;

/// Answer to one PDU.
#[derive(Debug)]
pub enum LoginReply {
    /// Send this and wait for the next request.
    Send(TxPdu),
    /// Create the session, then send [`Established::response`].
    Complete(Box<Established>),
    /// Send the response if there is one, then close the connection.
    Refuse {
        /// Absent when nothing may be answered.
        response: Option<TxPdu>,
        /// For the log.
        refusal: Refusal,
    },
}

/// A login that reached full feature phase.
#[derive(Debug)]
pub struct Established {
    /// Who logged in where.
    pub names: LoginNames,
    /// The negotiated parameters.
    pub params: Params,
    /// The first CmdSN to expect.
    pub exp_cmd_sn: CmdSn,
    /// StatSN of the final response.
    pub stat_sn: StatSn,
    /// Tag of the portal group.
    pub portal_group_tag: u16,
    /// CHAP name that proved itself.
    pub authenticated_as: Option<String>,
    pub(super) head: Head,
    /// What the final response still says.
    pub(super) text: Vec<u8>,
}

impl Established {
    /// The final login response: T=1, NSG=3, the session's TSIH, and its command window.
    //= rfc7143 11.13.3 LGN-10
    pub fn response(&self, tsih: Tsih, exp_cmd_sn: CmdSn, max_cmd_sn: CmdSn) -> TxPdu {
        let response = LoginResponse {
            transit: true,
            continue_bit: false,
            csg: self.head.stage,
            nsg: Some(LoginStage::FullFeature),
            version_max: 0,
            version_active: 0,
            isid: self.names.isid,
            tsih,
            itt: self.head.itt,
            numbers: ResponseNumbers { stat_sn: self.stat_sn, exp_cmd_sn, max_cmd_sn },
            status: LoginStatus::Success,
        };
        TxPdu::with_data(response.to_bhs(), Bytes::copy_from_slice(&self.text))
    }

    /// A refusal in place of the final response, when the session cannot be had after all.
    pub fn refuse(&self, refusal: &Refusal) -> TxPdu {
        refusal_pdu(&self.head, self.stat_sn, refusal)
    }
}

/// A login response with status Success that does not complete the login.
pub(super) fn success(
    head: &Head,
    stat_sn: StatSn,
    nsg: Option<LoginStage>,
    text: &[u8],
    continue_bit: bool,
) -> TxPdu {
    let response = LoginResponse {
        transit: nsg.is_some(),
        continue_bit,
        csg: head.stage,
        nsg,
        version_max: 0,
        version_active: 0,
        isid: head.isid,
        tsih: head.tsih,
        itt: head.itt,
        //= rfc7143 11.12.8 LGN-12
        numbers: ResponseNumbers { stat_sn, exp_cmd_sn: head.cmd_sn, max_cmd_sn: head.cmd_sn },
        status: LoginStatus::Success,
    };
    TxPdu::with_data(response.to_bhs(), Bytes::copy_from_slice(text))
}

/// The response that ends a login.
//= rfc7143 11.13.5 LGN-14 LGN-15
pub(super) fn refusal_pdu(head: &Head, stat_sn: StatSn, refusal: &Refusal) -> TxPdu {
    let response = LoginResponse {
        transit: false,
        continue_bit: false,
        csg: head.stage,
        nsg: None,
        version_max: 0,
        version_active: 0,
        isid: head.isid,
        tsih: Tsih(0),
        itt: head.itt,
        numbers: ResponseNumbers { stat_sn, exp_cmd_sn: head.cmd_sn, max_cmd_sn: head.cmd_sn },
        status: refusal.status,
    };
    let mut text = TextBuilder::new();
    for address in &refusal.redirect {
        text.push(keys::TARGET_ADDRESS, address);
    }
    TxPdu::with_data(response.to_bhs(), Bytes::from(text.finish()))
}
