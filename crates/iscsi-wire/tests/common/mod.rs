//! A second description of the headers of RFC 7143 section 11, as a table of bits, to check the first one.
#![allow(dead_code, reason = "each test binary uses a part")]

use iscsi_wire::{Bhs, Opcode};

/// Which bits of a header have which meaning.
#[derive(Debug)]
pub struct Layout {
    pub opcode: Opcode,
    /// Bits that carry a field of the PDU struct: (offset, mask) per byte, byte 0 for the I bit.
    defined: &'static [(usize, usize, u8)],
    /// Bits that are always sent as 1.
    fixed: &'static [(usize, u8)],
    /// Fields with reserved codes: (offset, shift, width in bits, allowed values).
    pub codes: &'static [(usize, u32, u32, &'static [u8])],
}

/// (first byte, last byte, mask of each).
const ITT: (usize, usize, u8) = (16, 19, 0xff);
const LUN: (usize, usize, u8) = (8, 15, 0xff);
const TAG: (usize, usize, u8) = (20, 23, 0xff);
const REQUEST: (usize, usize, u8) = (24, 31, 0xff);
const RESPONSE: (usize, usize, u8) = (24, 35, 0xff);
const I: (usize, usize, u8) = (0, 0, 0x40);
const STAGES: &[u8] = &[0, 1, 3];

pub const LAYOUTS: &[Layout] = &[
    Layout { opcode: Opcode::NopOut, defined: &[I, LUN, ITT, TAG, REQUEST], fixed: &[(1, 0x80)], codes: &[] },
    Layout {
        opcode: Opcode::ScsiCommand,
        defined: &[I, (1, 1, 0xe7), (2, 2, 0xf0), LUN, ITT, TAG, REQUEST, (32, 47, 0xff)],
        fixed: &[],
        codes: &[(1, 0, 3, &[0, 1, 2, 3, 4])],
    },
    Layout {
        opcode: Opcode::TaskManagementRequest,
        defined: &[I, (1, 1, 0x7f), LUN, ITT, TAG, REQUEST, (32, 39, 0xff)],
        fixed: &[(1, 0x80)],
        codes: &[(1, 0, 7, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12])],
    },
    Layout {
        opcode: Opcode::LoginRequest,
        defined: &[(1, 1, 0xcf), (2, 3, 0xff), (8, 15, 0xff), ITT, (20, 21, 0xff), REQUEST],
        fixed: &[(0, 0x40)],
        codes: &[(1, 2, 2, STAGES), (1, 0, 2, STAGES)],
    },
    Layout {
        opcode: Opcode::TextRequest,
        defined: &[I, (1, 1, 0xc0), LUN, ITT, TAG, REQUEST],
        fixed: &[],
        codes: &[],
    },
    Layout {
        opcode: Opcode::DataOut,
        defined: &[(1, 1, 0x80), LUN, ITT, TAG, (28, 31, 0xff), (36, 43, 0xff)],
        fixed: &[],
        codes: &[],
    },
    Layout {
        opcode: Opcode::LogoutRequest,
        defined: &[I, (1, 1, 0x7f), ITT, (20, 21, 0xff), REQUEST],
        fixed: &[(1, 0x80)],
        codes: &[(1, 0, 7, &[0, 1, 2])],
    },
    Layout {
        opcode: Opcode::SnackRequest,
        defined: &[(1, 1, 0x0f), LUN, ITT, TAG, (28, 31, 0xff), (40, 47, 0xff)],
        fixed: &[(1, 0x80)],
        codes: &[(1, 0, 4, &[0, 1, 2, 3])],
    },
    Layout { opcode: Opcode::NopIn, defined: &[LUN, ITT, TAG, RESPONSE], fixed: &[(1, 0x80)], codes: &[] },
    Layout {
        opcode: Opcode::ScsiResponse,
        defined: &[(1, 1, 0x1e), (2, 3, 0xff), ITT, TAG, (24, 47, 0xff)],
        fixed: &[(1, 0x80)],
        codes: &[(2, 0, 8, &SCSI_RESPONSES)],
    },
    Layout {
        opcode: Opcode::TaskManagementResponse,
        defined: &[(2, 2, 0xff), (8, 10, 0xff), ITT, RESPONSE],
        fixed: &[(1, 0x80)],
        codes: &[(2, 0, 8, &[0, 1, 2, 3, 4, 5, 6, 7, 255])],
    },
    Layout {
        opcode: Opcode::LoginResponse,
        defined: &[(1, 1, 0xcf), (2, 3, 0xff), (8, 15, 0xff), ITT, RESPONSE, (36, 37, 0xff)],
        fixed: &[],
        codes: &[(1, 2, 2, STAGES), (1, 0, 2, STAGES)],
    },
    Layout {
        opcode: Opcode::TextResponse,
        defined: &[(1, 1, 0xc0), LUN, ITT, TAG, RESPONSE],
        fixed: &[],
        codes: &[],
    },
    Layout {
        opcode: Opcode::DataIn,
        defined: &[(1, 1, 0xc7), (3, 3, 0xff), LUN, ITT, TAG, (24, 47, 0xff)],
        fixed: &[],
        codes: &[],
    },
    Layout {
        opcode: Opcode::LogoutResponse,
        defined: &[(2, 2, 0xff), ITT, RESPONSE, (40, 43, 0xff)],
        fixed: &[(1, 0x80)],
        codes: &[(2, 0, 8, &[0, 1, 2, 3])],
    },
    Layout {
        opcode: Opcode::R2t,
        defined: &[LUN, ITT, TAG, (24, 47, 0xff)],
        fixed: &[(1, 0x80)],
        codes: &[],
    },
    Layout {
        opcode: Opcode::AsyncMessage,
        defined: &[LUN, RESPONSE, (36, 43, 0xff)],
        fixed: &[(1, 0x80), (16, 0xff), (17, 0xff), (18, 0xff), (19, 0xff)],
        codes: &[(36, 0, 8, &[0, 1, 2, 3, 4, 5, 248, 249, 250, 251, 252, 253, 254, 255])],
    },
    Layout {
        opcode: Opcode::Reject,
        defined: &[(2, 2, 0xff), (24, 39, 0xff)],
        fixed: &[(1, 0x80), (16, 0xff), (17, 0xff), (18, 0xff), (19, 0xff)],
        codes: &[(2, 0, 8, &[2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12])],
    },
];

/// Completed, target failure, and the vendor half.
const SCSI_RESPONSES: [u8; 130] = {
    let mut codes = [0; 130];
    let mut i = 0;
    while i < 130 {
        codes[i] = if i < 2 { i as u8 } else { (i + 126) as u8 };
        i += 1;
    }
    codes
};

impl Layout {
    /// The bits of `header` that carry fields: those of NSG do so only while T is set.
    pub fn defined(&self, header: &[u8; 48]) -> [u8; 48] {
        let mut mask = [0; 48];
        for &(first, last, bits) in self.defined {
            mask[first..=last].iter_mut().for_each(|byte| *byte |= bits);
        }
        if self.is_login() && header[1] & 0x80 == 0 {
            mask[1] &= !0x03;
        }
        mask
    }

    pub fn fixed(&self) -> [u8; 48] {
        let mut bits = [0; 48];
        self.fixed.iter().for_each(|&(offset, mask)| bits[offset] |= mask);
        bits
    }

    pub fn is_login(&self) -> bool {
        matches!(self.opcode, Opcode::LoginRequest | Opcode::LoginResponse)
    }

    /// `noise` with the opcode of this PDU and codes that are allowed, picked by `picks`.
    pub fn header(&self, noise: [u8; 48], picks: [u8; 2]) -> [u8; 48] {
        let mut header = noise;
        header[0] = header[0] & 0xc0 | self.opcode.code();
        for (&(offset, shift, width, allowed), pick) in self.codes.iter().zip(picks) {
            let code = allowed[usize::from(pick) % allowed.len()];
            set_code(&mut header, offset, shift, width, code);
        }
        header
    }

    /// What `to_bhs` must make of `header`: fields kept, fixed bits set, the rest zero.
    pub fn canonical(&self, header: &[u8; 48]) -> Bhs {
        let (defined, fixed) = (self.defined(header), self.fixed());
        let mut bytes: [u8; 48] = std::array::from_fn(|i| header[i] & defined[i] | fixed[i]);
        bytes[0] |= self.opcode.code();
        Bhs::from_bytes(bytes)
    }
}

/// Writes `code` into `width` bits of a byte.
pub fn set_code(header: &mut [u8; 48], offset: usize, shift: u32, width: u32, code: u8) {
    let mask = ((1u16 << width) - 1) as u8;
    header[offset] = header[offset] & !(mask << shift) | (code & mask) << shift;
}
