//! The login of one connection, seen from the target (RFC 7143 6.3, 11.12, 11.13).
//!
//! [`TargetLogin`] takes PDUs one by one and answers each with exactly one [`LoginReply`]. The [`LoginPolicy`] decides who may log in
//! where; numbers and stages are decided here. A session has a TSIH only when its login is complete. So the caller creates the session
//! then, and sends the final response that [`Established::response`] builds.
//!
//! ```text
//!            ┌─────────────── T, NSG=3 (nothing required) ──────────────┐
//!  first PDU │  Security ───── T, NSG=1 ─────► Operational ── T, NSG=3 ─┴─► complete
//!    CSG=0 ──┘     CSG=1 (no authentication needed) ──┘
//! ```
//!
//! Each state is a type, and the request that ends a state consumes it:
//!
//! | state | it knows | it ends with |
//! |---|---|---|
//! | `Names` | nothing yet | the last part of the first request: its names, and the policy's terms |
//! | `Admitted` | names, terms, and the keys so far | the last piece of the answer that grants NSG=3 |
//! | `Over` | - | never: the login is complete or refused |

mod admitted;
mod head;
mod policy;
mod reply;
mod security;

use iscsi_wire::{LoginRequest, LoginStage, LoginStatus, Opcode, StatSn, TextPairs};

pub use self::policy::{Admission, AuthPolicy, LoginNames, LoginPolicy, NoSecret, Refusal};
pub use self::reply::{Established, LoginReply};

use self::admitted::{Admitted, Answered};
use self::head::Head;
use self::reply::{refusal_pdu, success};
use crate::error::ProtocolViolation;
use crate::limits::MAX_LOGIN_EXCHANGES;
use crate::pdu_reader::RxPdu;
use crate::text_exchange::TextAssembler;

/// Where a login is; see the module.
#[derive(Debug)]
enum State {
    Names,
    Admitted(Box<Admitted>),
    Over,
}

/// The login of one connection.
#[derive(Debug)]
pub struct TargetLogin {
    /// Set by the first PDU.
    head: Option<Head>,
    state: State,
    /// Names from the first request, once read. For the log.
    asked: Option<LoginNames>,
    /// Text of a request that comes in several PDUs.
    received: TextAssembler,
    stat_sn: StatSn,
    exchanges: u32,
}

impl TargetLogin {
    /// A login that starts its StatSN at `stat_sn`.
    //= rfc7143 11.13.4 LGN-13
    pub fn new(stat_sn: StatSn) -> Self {
        Self {
            head: None,
            state: State::Names,
            asked: None,
            received: TextAssembler::default(),
            stat_sn,
            exchanges: 0,
        }
    }

    /// Stage that the login is in, for the log.
    pub fn stage(&self) -> LoginStage {
        self.head.map_or(LoginStage::Security, |head| head.stage)
    }

    /// Names as far as they are known, for the log.
    pub fn names(&self) -> Option<&LoginNames> {
        self.asked.as_ref()
    }

    /// Takes one PDU.
    pub fn handle_pdu(&mut self, pdu: &RxPdu, policy: &mut dyn LoginPolicy) -> LoginReply {
        //= rfc7143 4.2.4 LGN-01 LGN-02 LGN-21
        if pdu.bhs.opcode() != Opcode::LoginRequest as u8 {
            let what =
                format!("a PDU with opcode {:02x}h came before the login was complete", pdu.bhs.opcode());
            let refusal =
                Refusal::new(LoginStatus::InvalidDuringLogin, "RFC 7143 4.2.4", what, "log in first");
            let response = self.head.map(|head| refusal_pdu(&head, self.next_stat_sn(), &refusal));
            return LoginReply::Refuse { response, refusal };
        }
        self.handle_request(pdu, policy).unwrap_or_else(|refusal| {
            let head = *self.head.get_or_insert_with(|| Head::of_any(&pdu.bhs));
            let response = Some(refusal_pdu(&head, self.next_stat_sn(), &refusal));
            LoginReply::Refuse { response, refusal }
        })
    }

    fn handle_request(&mut self, pdu: &RxPdu, policy: &mut dyn LoginPolicy) -> Result<LoginReply, Refusal> {
        let request = LoginRequest::parse(&pdu.bhs).map_err(ProtocolViolation::from)?;
        check_version(&request)?;
        let head = *self.head.get_or_insert_with(|| Head::new(&request));
        head.check(&request)?;
        self.exchanges += 1;
        //= rfc7143 6.2 TXT-16
        if self.exchanges > MAX_LOGIN_EXCHANGES {
            let what = format!("more than {MAX_LOGIN_EXCHANGES} exchanges");
            return Err(Refusal::initiator_error("RFC 7143 6.2", what, "negotiate in fewer steps"));
        }
        if request.continue_bit && request.transit {
            //= rfc7143 6.2 TXT-06
            return Err(ProtocolViolation::new("RFC 7143 6.2", "a login request has both C and T set").into());
        }
        // A refusal ends the login in whatever state it is.
        let state = std::mem::replace(&mut self.state, State::Over);
        let state = match state {
            State::Admitted(admitted) if admitted.owes_text() => {
                //= rfc7143 6.2 TXT-05 TXT-07
                if !pdu.data.is_empty() || request.continue_bit {
                    let what = "new text while our answer was not yet complete";
                    return Err(ProtocolViolation::new("RFC 7143 6.2", what).into());
                }
                return Ok(self.answered(head, admitted.continue_with(&request)));
            }
            state => state,
        };
        self.received.add(&pdu.data)?;
        if request.continue_bit {
            self.state = state;
            return Ok(LoginReply::Send(success(&head, self.next_stat_sn(), None, &[], false)));
        }
        let text = self.received.take();
        let pairs = TextPairs::parse(&text).map_err(ProtocolViolation::from)?;
        let admitted = match state {
            State::Names => {
                let names = LoginNames::read(&request, &pairs)?;
                self.asked = Some(names.clone());
                let admission = policy.admit(&names)?;
                Box::new(Admitted::new(names, admission, head.stage)?)
            }
            State::Admitted(admitted) => {
                admitted.check_names(&pairs)?;
                admitted
            }
            State::Over => {
                return Err(ProtocolViolation::new("RFC 7143 6.3", "the login is over already").into());
            }
        };
        let answered = admitted.take(head.stage, &request, &pairs, policy)?;
        Ok(self.answered(head, answered))
    }

    /// Sends a piece of an answer. With its last piece the stage moves.
    fn answered(&mut self, head: Head, answered: Answered) -> LoginReply {
        let stat_sn = self.next_stat_sn();
        let Answered { admitted, text, more, transit } = answered;
        if transit == Some(LoginStage::FullFeature) {
            return LoginReply::Complete(Box::new(admitted.established(head, stat_sn, text)));
        }
        self.state = State::Admitted(admitted);
        self.head = Some(Head { stage: transit.unwrap_or(head.stage), ..head });
        LoginReply::Send(success(&head, stat_sn, transit, &text, more))
    }

    fn next_stat_sn(&mut self) -> StatSn {
        let current = self.stat_sn;
        self.stat_sn = current.next();
        current
    }
}

//= rfc7143 11.12 LGN-11
fn check_version(request: &LoginRequest) -> Result<(), Refusal> {
    if request.version_min == 0 {
        return Ok(());
    }
    Err(Refusal::new(
        LoginStatus::UnsupportedVersion,
        "RFC 7143 11.12.3",
        format!("the initiator asks for protocol version {} or later", request.version_min),
        "this target speaks version 0, the only one there is",
    ))
}
