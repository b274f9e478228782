//! What the first request of a login says in its header.

use iscsi_wire::{Bhs, Cid, CmdSn, Isid, Itt, LoginRequest, LoginStage, Tsih};

use crate::error::ProtocolViolation;

/// What the first request says of the login in its header, and the stage that the login has reached since.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub isid: Isid,
    pub tsih: Tsih,
    pub cid: Cid,
    pub itt: Itt,
    pub cmd_sn: CmdSn,
    pub stage: LoginStage,
}

impl Head {
    pub(crate) fn new(request: &LoginRequest) -> Self {
        let LoginRequest { isid, tsih, cid, itt, cmd_sn, csg: stage, .. } = *request;
        Self { isid, tsih, cid, itt, cmd_sn, stage }
    }

    /// Of a header that is no login request: enough for an answer that the initiator can match.
    pub(crate) fn of_any(bhs: &Bhs) -> Self {
        let mut isid = [0; 6];
        isid.copy_from_slice(&bhs.as_bytes()[8..14]);
        let (itt, cmd_sn, stage) = (bhs.itt(), bhs.cmd_sn(), LoginStage::Security);
        Self { isid: Isid(isid), tsih: Tsih(0), cid: Cid(0), itt, cmd_sn, stage }
    }

    /// Checks what must not change from request to request.
    //= rfc7143 11.12 LGN-07 LGN-08 LGN-11
    pub(crate) fn check(&self, request: &LoginRequest) -> Result<(), ProtocolViolation> {
        let same = self.isid == request.isid
            && self.tsih == request.tsih
            && self.cid == request.cid
            && self.itt == request.itt;
        if !same {
            let what = "ISID, TSIH, CID or task tag changed within a login";
            return Err(ProtocolViolation::new("RFC 7143 11.12", what));
        }
        if request.csg != self.stage || request.csg == LoginStage::FullFeature {
            let what = format!("a request for stage {:?} while in {:?}", request.csg, self.stage);
            return Err(ProtocolViolation::new("RFC 7143 6.3", what));
        }
        if let Some(next) = request.nsg.filter(|_| request.transit)
            && next as u8 <= request.csg as u8
        {
            let what = format!("no move leads from stage {:?} to {next:?}", request.csg);
            return Err(ProtocolViolation::new("RFC 7143 6.3", what));
        }
        Ok(())
    }
}
