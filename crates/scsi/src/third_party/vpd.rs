//! VPD page 8Fh, third-party copy (SPC-4 7.8.17): what hosts read before they copy by token.

use super::{
    MAX_CONCURRENT, MAX_CSCDS, MAX_LIST_BYTES, MAX_RANGES, MAX_SEGMENT_BYTES, MAX_SEGMENTS, MAX_TOKEN_BYTES,
    cscd, extended_copy, token,
};
use crate::command_table;
use crate::execution::Request;

/// Descriptor types.
const BLOCK_DEVICE_ROD_LIMITS: u16 = 0x0000;
const SUPPORTED_COMMANDS: u16 = 0x0001;
const PARAMETER_DATA: u16 = 0x0004;
const SUPPORTED_DESCRIPTORS: u16 = 0x0008;
const ROD_TOKEN_FEATURES: u16 = 0x0106;
const SUPPORTED_ROD_TYPES: u16 = 0x0108;
const GENERAL_COPY_OPERATIONS: u16 = 0x8001;

/// Bytes of a ROD type descriptor.
const ROD_TYPE_BYTES: usize = 64;

/// A descriptor, its value padded so that the next one is at a multiple of four.
fn descriptor(kind: u16, mut value: Vec<u8>) -> Vec<u8> {
    value.resize((value.len() + 4).next_multiple_of(4) - 4, 0);
    let length = u16::try_from(value.len()).unwrap_or(u16::MAX);
    [kind.to_be_bytes().to_vec(), length.to_be_bytes().to_vec(), value].concat()
}

//= spc4 7.8.17 VPD-8F
//= windows odx HST-03
pub(crate) fn third_party_copy(request: &Request<'_>) -> Vec<u8> {
    let config = request.lu.config();
    let mut page = Vec::new();
    if config.token_secret.is_some() {
        let mut limits = vec![0; 32];
        limits[6..8].copy_from_slice(&MAX_RANGES.to_be_bytes());
        limits[8..12].copy_from_slice(&token::MAX_TIMEOUT_S.to_be_bytes());
        limits[12..16].copy_from_slice(&token::DEFAULT_TIMEOUT_S.to_be_bytes());
        let blocks = MAX_TOKEN_BYTES / u64::from(config.medium.block_bytes);
        limits[16..24].copy_from_slice(&blocks.to_be_bytes());
        limits[24..32].copy_from_slice(&blocks.to_be_bytes());
        page.extend(descriptor(BLOCK_DEVICE_ROD_LIMITS, limits));
    }

    let mut commands = vec![0];
    for opcode in [0x83, 0x84] {
        let actions: Vec<u8> = command_table::entries(opcode)
            .filter(|command| command.supported(request.lu))
            .filter_map(|command| u8::try_from(command.service_action?).ok())
            .collect();
        commands.extend([opcode, actions.len() as u8]);
        commands.extend(actions);
    }
    commands[0] = (commands.len() - 1) as u8;
    page.extend(descriptor(SUPPORTED_COMMANDS, commands));

    let mut parameters = vec![0; 28];
    parameters[4..6].copy_from_slice(&MAX_CSCDS.to_be_bytes());
    parameters[6..8].copy_from_slice(&MAX_SEGMENTS.to_be_bytes());
    parameters[8..12].copy_from_slice(&MAX_LIST_BYTES.to_be_bytes());
    page.extend(descriptor(PARAMETER_DATA, parameters));

    page.extend(descriptor(
        SUPPORTED_DESCRIPTORS,
        vec![2, extended_copy::BLOCK_TO_BLOCK, cscd::IDENTIFICATION],
    ));

    if config.token_secret.is_some() {
        // REMOTE TOKENS 0: only tokens of this target are accepted. Lifetimes in seconds.
        let mut features = vec![0; 44];
        features[12..16].copy_from_slice(&token::DEFAULT_TIMEOUT_S.to_be_bytes());
        features[16..20].copy_from_slice(&token::MAX_TIMEOUT_S.to_be_bytes());
        features[20..24].copy_from_slice(&token::MAX_TIMEOUT_S.to_be_bytes());
        page.extend(descriptor(ROD_TOKEN_FEATURES, features));

        let mut types = vec![0; 4];
        for (kind, flags) in [(token::CHANGE_VULNERABLE, 0x03), (token::ZEROS, 0x02)] {
            let mut one = vec![0; ROD_TYPE_BYTES];
            one[..4].copy_from_slice(&kind.to_be_bytes());
            one[4] = flags; // TOKEN_IN, and TOKEN_OUT for those that are made
            types.extend(one);
        }
        let length = (types.len() - 4) as u16;
        types[2..4].copy_from_slice(&length.to_be_bytes());
        page.extend(descriptor(SUPPORTED_ROD_TYPES, types));
    }

    let mut general = vec![0; 32];
    general[..4].copy_from_slice(&u32::from(MAX_CONCURRENT).to_be_bytes());
    general[4..8].copy_from_slice(&u32::from(MAX_CONCURRENT).to_be_bytes());
    general[8..12].copy_from_slice(&MAX_SEGMENT_BYTES.to_be_bytes());
    general[12] = config.medium.block_bytes.trailing_zeros() as u8;
    page.extend(descriptor(GENERAL_COPY_OPERATIONS, general));
    page
}
