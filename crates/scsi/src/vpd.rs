//! Vital product data pages (SPC-4 7.8, SBC-3 6.6).

use crate::config::LuConfig;
use crate::config::TargetPort;
use crate::execution::Request;
use crate::logical_unit::LogicalUnit;
use crate::{target_port_groups, third_party};

type Page = fn(&Request<'_>) -> Vec<u8>;

/// Pages in ascending order of code; page 00h lists exactly these.
// Referrals (B3h) are absent, and R_SUP of page 86h says so: every port reaches every block.
//= spc4 7.8.2 VPD-00
//= sbc3 6.6.8 VPD-B3
static PAGES: &[(u8, Page)] = &[
    (0x00, supported_pages),
    (0x80, unit_serial_number),
    (0x83, device_identification),
    (0x85, management_network_addresses),
    (0x86, extended_inquiry),
    (0x87, mode_page_policy),
    (0x88, scsi_ports),
    (0x8f, third_party::vpd::third_party_copy),
    (0xb0, block_limits),
    (0xb1, block_device_characteristics),
    (0xb2, logical_block_provisioning),
    (0xb7, block_limits_extension),
];

/// ASCII, cut or padded with spaces; other characters become `?`, because hosts print these fields.
pub(crate) fn ascii(text: &str, len: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> =
        text.chars().take(len).map(|c| if (' '..='~').contains(&c) { c as u8 } else { b'?' }).collect();
    bytes.resize(len, b' ');
    bytes
}

fn supported(code: u8, lu: &LogicalUnit) -> bool {
    code != 0x85 || lu.with_paths(|paths| paths.management_url.is_some())
}

/// The page with its header, or `None` when it is not supported.
pub(crate) fn page(request: &Request<'_>, code: u8) -> Option<Vec<u8>> {
    let (_, build) = PAGES.iter().find(|(page, _)| *page == code && supported(code, request.lu))?;
    let body = build(request);
    let length = u16::try_from(body.len()).unwrap_or(u16::MAX);
    let [hi, lo] = length.to_be_bytes();
    let mut data = vec![0, code, hi, lo];
    data.extend(body);
    Some(data)
}

fn supported_pages(request: &Request<'_>) -> Vec<u8> {
    PAGES.iter().map(|(code, _)| *code).filter(|code| supported(*code, request.lu)).collect()
}

/// Longest serial number sent; page 80h allows more, but hosts keep far less.
const MAX_SERIAL_BYTES: usize = 251;

//= spc4 7.8.18 VPD-80
fn unit_serial_number(request: &Request<'_>) -> Vec<u8> {
    let serial = &request.lu.config().identity.serial;
    ascii(serial, serial.chars().count().clamp(1, MAX_SERIAL_BYTES))
}

/// CODE SET.
const BINARY: u8 = 1;
const ASCII: u8 = 2;
const UTF8: u8 = 3;
/// ASSOCIATION.
const UNIT: u8 = 0;
const PORT: u8 = 1;
const DEVICE: u8 = 2;
/// PROTOCOL IDENTIFIER of iSCSI (SPC-4 table 447).
const ISCSI: u8 = 5;

fn designator(code_set: u8, association: u8, kind: u8, value: &[u8]) -> Vec<u8> {
    let value = &value[..value.len().min(255)];
    // PIV and PROTOCOL IDENTIFIER are meaningful for ports and devices only.
    let (protocol, piv) = if association == UNIT { (0, 0) } else { (ISCSI << 4, 0x80) };
    let mut designator =
        vec![protocol | code_set, piv | association << 4 | kind, 0, u8::try_from(value.len()).unwrap_or(255)];
    designator.extend(value);
    designator
}

/// A SCSI name string: UTF-8, null-terminated and padded with nulls to a multiple of four (SPC-4 7.8.6.11).
fn scsi_name(name: &str) -> Vec<u8> {
    let mut value = name.as_bytes().to_vec();
    value.truncate(251);
    value.push(0);
    value.resize(value.len().next_multiple_of(4), 0);
    value
}

/// T10 VENDOR IDENTIFICATION and the serial number: the vendor-specific name of the unit (SPC-4 7.8.6.4).
pub(crate) fn vendor_identifier(config: &LuConfig) -> Vec<u8> {
    let mut id = ascii(&config.identity.vendor, 8);
    id.extend(ascii(&config.identity.serial, config.identity.serial.chars().count().clamp(1, 200)));
    id
}

/// The UUID designator: UUID TYPE 1h, RFC 4122 (SPC-5 7.7.6.11).
pub(crate) fn uuid_identifier(uuid: &[u8; 16]) -> [u8; 18] {
    let mut value = [0; 18];
    value[0] = 0x10;
    value[2..].copy_from_slice(uuid);
    value
}

//= spc4 7.8.6 VPD-83
fn device_identification(request: &Request<'_>) -> Vec<u8> {
    let config = request.lu.config();
    let port = TargetPort {
        relative_port: request.nexus.relative_target_port,
        group: request.nexus.target_port_group,
    };
    let [relative_hi, relative_lo] = port.relative_port.to_be_bytes();
    let [group_hi, group_lo] = port.group.to_be_bytes();
    let port_name = format!("{},t,0x{:04x}", config.identity.target_name, port.group);
    let uuid = config.identity.uuid.map(|uuid| designator(BINARY, UNIT, 0xa, &uuid_identifier(&uuid)));
    [
        designator(BINARY, UNIT, 0x3, &config.identity.naa.to_bytes()),
        designator(ASCII, UNIT, 0x1, &vendor_identifier(config)),
        uuid.unwrap_or_default(),
        designator(BINARY, PORT, 0x4, &[0, 0, relative_hi, relative_lo]),
        designator(BINARY, PORT, 0x5, &[0, 0, group_hi, group_lo]),
        designator(UTF8, PORT, 0x8, &scsi_name(&port_name)),
        designator(UTF8, DEVICE, 0x8, &scsi_name(&config.identity.target_name)),
    ]
    .concat()
}

/// Longest URL sent.
const MAX_URL_BYTES: usize = 255;

/// One descriptor: ASSOCIATION target device, SERVICE TYPE status; the URL, null-terminated and padded to four bytes.
//= spc4 7.8.8 VPD-85
fn management_network_addresses(request: &Request<'_>) -> Vec<u8> {
    let url = request.lu.paths().management_url.unwrap_or_default();
    let mut address = ascii(&url, url.chars().count().min(MAX_URL_BYTES));
    address.push(0);
    address.resize(address.len().next_multiple_of(4), 0);
    let [hi, lo] = (address.len() as u16).to_be_bytes();
    let mut descriptor = vec![DEVICE << 5 | 0x03, 0, hi, lo];
    descriptor.extend(address);
    descriptor
}

//= spc4 7.8.7 VPD-86
fn extended_inquiry(request: &Request<'_>) -> Vec<u8> {
    let mut body = vec![0; 60];
    //= spc4 7.8.7 PI-01
    if request.lu.config().medium.protectable {
        body[0] = 0x38 | 0x04 | 0x02 | 0x01; // SPT 111b: types 1 to 3; GRD_CHK, APP_CHK, REF_CHK
    }
    body[1] = 0x07; // HEADSUP, ORDSUP, SIMPSUP
    body[2] = 0x08 | 0x01; // WU_SUP: WRITE LONG marks blocks; V_SUP: a volatile cache may be present
    body
}

/// All mode pages and subpages are shared by all nexuses (SPC-4 7.8.10).
//= spc4 7.8.10 VPD-87
fn mode_page_policy(_request: &Request<'_>) -> Vec<u8> {
    vec![0x3f, 0xff, 0x00, 0]
}

//= spc4 7.8.15 VPD-88
fn scsi_ports(request: &Request<'_>) -> Vec<u8> {
    let mut body = Vec::new();
    for port in target_port_groups::ports(request) {
        let name = format!("{},t,0x{:04x}", request.lu.config().identity.target_name, port.group);
        let descriptor = designator(UTF8, PORT, 0x8, &scsi_name(&name));
        let [relative_hi, relative_lo] = port.relative_port.to_be_bytes();
        // No initiator port transport id; then the designators of the target port.
        body.extend([0, 0, relative_hi, relative_lo, 0, 0, 0, 0, 0, 0]);
        body.extend(u16::try_from(descriptor.len()).unwrap_or(u16::MAX).to_be_bytes());
        body.extend(descriptor);
    }
    body.truncate(usize::from(u16::MAX));
    body
}

//= sbc3 6.6.4 VPD-B0
fn block_limits(request: &Request<'_>) -> Vec<u8> {
    let config = request.lu.config();
    let limits = &config.limits;
    let mut body = vec![0; 60];
    let mut put = |at: usize, value: &[u8]| body[at - 4..at - 4 + value.len()].copy_from_slice(value);
    put(5, &[limits.max_compare_and_write_blocks]);
    put(6, &limits.optimal_granularity_blocks.to_be_bytes());
    put(8, &limits.max_transfer_blocks.to_be_bytes());
    put(12, &limits.optimal_transfer_blocks.to_be_bytes());
    put(16, &limits.max_prefetch_blocks.to_be_bytes());
    if request.lu.thin() {
        put(20, &limits.max_unmap_blocks.to_be_bytes());
        put(24, &limits.max_unmap_descriptors.to_be_bytes());
        put(28, &limits.unmap_granularity_blocks.to_be_bytes());
        put(32, &0x8000_0000u32.to_be_bytes()); // UGAVALID, alignment 0
    }
    put(36, &limits.max_write_same_blocks.to_be_bytes());
    if limits.max_atomic_blocks > 0 {
        put(44, &limits.max_atomic_blocks.to_be_bytes());
        put(48, &1u32.to_be_bytes());
        put(52, &1u32.to_be_bytes());
    }
    body
}

/// No streams and no scattered writes: every limit is 0, which means not reported.
//= sbc4 6.6.5 VPD-B7
fn block_limits_extension(_request: &Request<'_>) -> Vec<u8> {
    vec![0; 60]
}

//= sbc3 6.6.3 VPD-B1
fn block_device_characteristics(request: &Request<'_>) -> Vec<u8> {
    let mut body = vec![0; 60];
    let rate: u16 = if request.lu.config().medium.rotational { 7200 } else { 1 };
    body[0..2].copy_from_slice(&rate.to_be_bytes());
    if request.lu.config().medium.sanitize {
        body[3] = 0x40; // WABEREQ 01b: reads succeed after a block erase
    }
    body
}

//= sbc3 6.6.5 VPD-B2
fn logical_block_provisioning(request: &Request<'_>) -> Vec<u8> {
    if request.lu.thin() {
        // LBPU, LBPWS, LBPWS10, LBPRZ 001b; provisioning type 2, thin.
        vec![0, 0x80 | 0x40 | 0x20 | 0x04, 0x02, 0]
    } else {
        vec![0, 0, 0, 0]
    }
}
