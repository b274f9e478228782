//! INQUIRY (SPC-4 6.6): standard data; VPD pages are in `vpd`.

use crate::cdb::Cdb;
use crate::config::{LuConfig, Paths};
use crate::execution::{Execution, Request};
use crate::outcome::Outcome;
use crate::sense::SenseData;
use crate::vpd::{self, ascii};

/// Length of the standard INQUIRY data.
const STANDARD_BYTES: usize = 96;
/// Peripheral qualifier 3, device type 1Fh: no logical unit here.
const ABSENT: u8 = 0x7f;

/// SAM-5, SPC-4, SBC-3 and iSCSI, without claiming a revision (SPC-4 table 150). The iSCSI one is incremented by the
/// iSCSIProtocolLevel.
const VERSION_DESCRIPTORS: [u16; 4] = [0x00a0, 0x0460, 0x04c0, ISCSI];
const ISCSI: u16 = 0x0960;

pub(crate) fn inquiry(request: &Request<'_>) -> Execution {
    let cdb = request.cdb;
    let allocation_length = u64::from(cdb.u16(3));
    let outcome = match (cdb.bit(1, 0), cdb.u8(2)) {
        //= spc4 6.6.1 VPD-00
        (true, page) => match vpd::page(request, page) {
            Some(data) => Outcome::data_in(data, allocation_length),
            None => Outcome::check(SenseData::cdb_field(2, None)),
        },
        (false, 0) => {
            let level = request.nexus.protocol_level;
            let data = request.lu.with_paths(|paths| standard(request.lu.config(), paths, level));
            Outcome::data_in(data, allocation_length)
        }
        (false, _) => Outcome::check(SenseData::cdb_field(2, None)),
    };
    Execution::done(outcome)
}

//= spc4 6.6.2 INQ-01 INQ-02
//= rfc7144 4.2 P2-07
fn standard(config: &LuConfig, paths: &Paths, protocol_level: u8) -> Vec<u8> {
    let mut data = vec![0; STANDARD_BYTES];
    data[2] = 0x06; // VERSION: SPC-4
    data[3] = 0x12; // HISUP, RESPONSE DATA FORMAT 2
    data[4] = (STANDARD_BYTES - 5) as u8;
    //= spc4 6.6.2 ALU-02
    data[5] = if paths.explicit_access_states { 0x38 } else { 0x18 }; // TPGS: implicit, or both; 3PC

    //= spc4 6.6.2 PI-01
    if config.medium.protectable {
        data[5] |= 0x01; // PROTECT
    }
    if paths.target_ports.len() > 1 {
        data[6] = 0x10; // MULTIP
    }
    data[7] = 0x02; // CMDQUE
    data[8..16].copy_from_slice(&ascii(&config.identity.vendor, 8));
    data[16..32].copy_from_slice(&ascii(&config.identity.product, 16));
    data[32..36].copy_from_slice(&ascii(&config.identity.revision, 4));
    for (i, descriptor) in VERSION_DESCRIPTORS.iter().enumerate() {
        let level = if *descriptor == ISCSI { u16::from(protocol_level) } else { 0 };
        data[58 + 2 * i..60 + 2 * i].copy_from_slice(&(descriptor + level).to_be_bytes());
    }
    data
}

/// INQUIRY of a LUN without a logical unit.
pub(crate) fn absent(cdb: &Cdb) -> Outcome {
    let allocation_length = u64::from(cdb.u16(3));
    match (cdb.bit(1, 0), cdb.u8(2)) {
        (false, 0) => {
            let mut data = standard(&LuConfig::default(), &Paths::default(), 0);
            data[0] = ABSENT;
            data[5] = 0;
            data[7] = 0;
            Outcome::data_in(data, allocation_length)
        }
        (true, 0) => Outcome::data_in(vec![ABSENT, 0, 0, 1, 0], allocation_length),
        _ => Outcome::check(SenseData::cdb_field(2, None)),
    }
}
