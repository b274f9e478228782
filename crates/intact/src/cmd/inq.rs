//! `intact inq URL`: what a logical unit reports about itself.

use std::fmt::Write as _;
use std::process::ExitCode;

use initiator::{Disk, Session};
use serde::Serialize;

use super::client::{ClientArgs, failed, refused};
use super::{MISUSED, fail};
use crate::output;

/// Arguments of `intact inq`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  intact inq iscsi://127.0.0.1/iqn.2026-01.io.intact:disk/0\n\n\
    Exit codes: 0 answered; 1 it failed; 2 wrong usage.")]
pub struct Args {
    /// iscsi://[user[%password]@]host[:port]/target/lun
    url: String,
    /// Print this vital product data page as bytes, such as 83 or b0.
    #[arg(long, value_name = "HEX", value_parser = page_number)]
    page: Option<u8>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    client: ClientArgs,
}

fn page_number(text: &str) -> Result<u8, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    u8::from_str_radix(digits, 16).map_err(|_| "write two hexadecimal digits, such as 83 or b0".to_owned())
}

#[derive(Debug, Serialize)]
struct Inquiry {
    url: String,
    device_type: u8,
    vendor: String,
    product: String,
    revision: String,
    serial: Option<String>,
    designators: Vec<String>,
    pages: Vec<String>,
    bytes: u64,
    blocks: u64,
    block_bytes: u32,
    thin: bool,
    unmapped_reads_zero: bool,
    max_transfer_bytes: Option<u64>,
    max_compare_and_write_blocks: u8,
    max_unmap_blocks: u32,
    /// Type of the protection information, 0 to 3.
    protection: u8,
    /// Types with which it can be formatted.
    protection_types: Vec<u8>,
    rotation_rate: Option<u16>,
}

/// Runs the command.
pub fn run(args: Args) -> ExitCode {
    inquire(&args).unwrap_or_else(|code| code)
}

fn inquire(args: &Args) -> Result<ExitCode, ExitCode> {
    let url = args.client.url(&args.url)?;
    let (_, lun) = url.unit().map_err(|error| fail(MISUSED, error))?;
    let session = Session::connect(args.client.asking_options(&url)?).map_err(|error| refused(&error))?;
    let disk = Disk::open(&session, lun).map_err(|error| failed(&error))?;
    if let Some(page) = args.page {
        let data = disk.inquiry(Some(page)).map_err(|error| failed(&error))?;
        return Ok(output::show(args.json, &data, || hex_dump(&data)));
    }
    let page = |number: u8| match disk.info().pages.contains(&number) {
        true => disk.inquiry(Some(number)).ok(),
        false => None,
    };
    let (info, capacity) = (disk.info(), disk.capacity());
    let inquiry = Inquiry {
        url: url.to_string(),
        device_type: info.device_type,
        vendor: info.vendor.clone(),
        product: info.product.clone(),
        revision: info.revision.clone(),
        serial: info.serial.clone(),
        designators: page(0x83).map(|data| designators(&data)).unwrap_or_default(),
        pages: info.pages.iter().map(|page| format!("{page:02x}")).collect(),
        bytes: capacity.bytes(),
        blocks: capacity.blocks,
        block_bytes: capacity.block_bytes,
        thin: capacity.thin,
        unmapped_reads_zero: capacity.unmapped_reads_zero,
        max_transfer_bytes: info.max_transfer_blocks.map(|n| u64::from(n) * u64::from(capacity.block_bytes)),
        max_compare_and_write_blocks: info.max_compare_and_write_blocks,
        max_unmap_blocks: info.max_unmap_blocks,
        protection: info.protection.kind.number(),
        protection_types: (1..=3).filter(|kind| info.protection.supported >> kind & 1 != 0).collect(),
        rotation_rate: page(0xb1).and_then(|data| Some(u16::from_be_bytes([*data.get(4)?, *data.get(5)?]))),
    };
    Ok(output::show(args.json, &inquiry, || inquiry.text()))
}

impl Inquiry {
    fn text(&self) -> String {
        let mut text = String::new();
        let mut line = |name: &str, value: String| {
            let _ = writeln!(text, "{name:<26}{}", output::plain(&value));
        };
        line("URL", self.url.clone());
        line("Vendor, product, revision", format!("{} {} {}", self.vendor, self.product, self.revision));
        line("Device type", format!("{:02x}h", self.device_type));
        line("Serial number", self.serial.clone().unwrap_or_else(|| "-".to_owned()));
        for designator in &self.designators {
            line("Designator", designator.clone());
        }
        line("VPD pages", self.pages.join(" "));
        let size =
            format!("{} ({} blocks of {} bytes)", output::bytes(self.bytes), self.blocks, self.block_bytes);
        line("Size", size);
        let thin = match (self.thin, self.unmapped_reads_zero) {
            (false, _) => "no",
            (true, false) => "yes",
            (true, true) => "yes, unmapped blocks read as zeros",
        };
        line("Thin provisioning", thin.to_owned());
        if let Some(bytes) = self.max_transfer_bytes {
            line("Longest transfer", output::bytes(bytes));
        }
        let types: Vec<String> = self.protection_types.iter().map(u8::to_string).collect();
        let protection = match (self.protection, types.is_empty()) {
            (0, true) => "none".to_owned(),
            (0, false) => format!("none; types {} by FORMAT UNIT", types.join(", ")),
            (kind, _) => format!("type {kind}"),
        };
        line("Protection information", protection);
        line("COMPARE AND WRITE up to", format!("{} blocks", self.max_compare_and_write_blocks));
        line("UNMAP up to", format!("{} blocks", self.max_unmap_blocks));
        match self.rotation_rate {
            Some(1) => line("Medium", "does not rotate".to_owned()),
            Some(rate @ 0x401..=0xfffe) => line("Medium", format!("{rate} rpm")),
            _ => {}
        }
        text
    }
}

/// The designators of VPD page 83h in words (SPC-4 7.8.6).
fn designators(page: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = page.get(4..).unwrap_or(&[]);
    while let [code, kind, _, length, after @ ..] = rest {
        let length = usize::from(*length);
        let Some(value) = after.get(..length) else { break };
        rest = &after[length..];
        let name = match kind & 0xf {
            0 => "vendor specific",
            1 => "T10",
            2 => "EUI-64",
            3 => "NAA",
            4 => "relative target port",
            5 => "target port group",
            6 => "logical unit group",
            8 => "SCSI name",
            10 => "UUID",
            _ => "other",
        };
        let of = match kind >> 4 & 3 {
            0 => "unit",
            1 => "port",
            _ => "target",
        };
        let shown = match code & 0xf {
            1 => value.iter().map(|byte| format!("{byte:02x}")).collect(),
            _ => String::from_utf8_lossy(value).trim_end_matches(['\0', ' ']).to_owned(),
        };
        found.push(format!("{name} of the {of}: {shown}"));
    }
    found
}

fn hex_dump(data: &[u8]) -> String {
    let mut text = String::new();
    for (n, row) in data.chunks(16).enumerate() {
        let hex: Vec<String> = row.iter().map(|byte| format!("{byte:02x}")).collect();
        let ascii: String =
            row.iter().map(|&b| if (0x20..0x7f).contains(&b) { b as char } else { '.' }).collect();
        let _ = writeln!(text, "{:04x}  {:<47}  {ascii}", n * 16, hex.join(" "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn designators_are_read_whatever_their_length_claims() {
        let page = [0, 0x83, 0, 12, 1, 3, 0, 8, 0x60, 1, 2, 3, 4, 5, 6, 7];
        assert_eq!(designators(&page), ["NAA of the unit: 6001020304050607"]);
        for n in 0..page.len() {
            assert!(designators(&page[..n]).is_empty());
        }
    }
}
