//! `intact ls iscsi://host[:port][/target]`: what a portal offers, and why something cannot be listed.

use std::process::ExitCode;

use initiator::{DiscoveryError, Disk, IscsiUrl, Portal, Session, TargetRecord, discovery};
use iscsi_core::wire::Lun;
use serde::Serialize;

use super::FAILED;
use super::client::{ClientArgs, failed, refused};
use crate::output::{self, Table};

/// One target of the portal.
#[derive(Debug, Serialize)]
struct TargetLine {
    target: String,
    addresses: Vec<String>,
    luns: Vec<LunLine>,
    /// Why its LUNs are not known.
    error: Option<String>,
    remedy: Option<String>,
}

/// One logical unit.
#[derive(Debug, Serialize)]
struct LunLine {
    lun: String,
    bytes: Option<u64>,
    block_bytes: Option<u32>,
    device: String,
    url: String,
    error: Option<String>,
}

/// Runs the command.
pub fn run(text: &str, client: &ClientArgs, json: bool) -> ExitCode {
    match list(text, client) {
        Ok(targets) => {
            let code = output::show(json, &targets, || table(&targets));
            match targets.iter().any(|target| target.error.is_some()) {
                true => ExitCode::from(FAILED),
                false => code,
            }
        }
        Err(code) => code,
    }
}

fn list(text: &str, client: &ClientArgs) -> Result<Vec<TargetLine>, ExitCode> {
    let url = client.url(text)?;
    let records = match &url.target {
        Some(name) => vec![TargetRecord { name: name.clone(), addresses: Vec::new() }],
        None => discovery::send_targets(&client.asking_options(&url)?).map_err(|error| match error {
            DiscoveryError::Connect(error) => refused(&error),
            DiscoveryError::Io(error) => failed(&error),
        })?,
    };
    Ok(records.iter().map(|record| target_line(&url, record, client)).collect())
}

fn target_line(url: &IscsiUrl, record: &TargetRecord, client: &ClientArgs) -> TargetLine {
    let mut line = TargetLine {
        target: record.name.to_string(),
        addresses: record.addresses.iter().map(ToString::to_string).collect(),
        luns: Vec::new(),
        error: None,
        remedy: None,
    };
    let mut at = url.clone();
    at.target = Some(record.name.clone());
    // The current address is known to be reachable; others may not be, from here.
    let portals: Vec<Portal> = record.addresses.iter().map(Portal::from).collect();
    if let Some(first) = portals.first().filter(|_| !portals.contains(&url.portal)) {
        at.portal = first.clone();
    }
    let Ok(options) = client.asking_options(&at) else {
        line.error = Some("the URL's credentials are incomplete".to_owned());
        return line;
    };
    let session = match Session::connect(options) {
        Ok(session) => session,
        Err(error) => {
            line.remedy = Some(error.remedy());
            line.error = Some(error.to_string());
            return line;
        }
    };
    match discovery::report_luns(&session) {
        Ok(luns) => line.luns = luns.into_iter().map(|lun| lun_line(&session, &at, lun)).collect(),
        Err(error) => {
            line.remedy = error.remedy().map(str::to_owned);
            line.error = Some(error.to_string());
        }
    }
    line
}

fn lun_line(session: &Session, url: &IscsiUrl, lun: Lun) -> LunLine {
    let mut named = url.clone();
    named.lun = lun.to_index();
    let mut line = LunLine {
        lun: lun.to_string(),
        bytes: None,
        block_bytes: None,
        device: String::new(),
        url: named.to_string(),
        error: None,
    };
    match Disk::open(session, lun) {
        Ok(disk) => {
            line.bytes = Some(disk.capacity().bytes());
            line.block_bytes = Some(disk.capacity().block_bytes);
            line.device = format!("{} {}", disk.info().vendor, disk.info().product);
        }
        Err(error) => line.error = Some(error.to_string()),
    }
    line
}

fn table(targets: &[TargetLine]) -> String {
    if targets.is_empty() {
        return "The portal shows no targets to this initiator.\n".to_owned();
    }
    let mut table = Table::new(&["TARGET", "LUN", "SIZE", "BLOCK", "DEVICE", "URL"]);
    let mut problems = String::new();
    for target in targets {
        for lun in &target.luns {
            let size = match (lun.bytes, &lun.error) {
                (Some(bytes), _) => output::bytes(bytes),
                (None, error) => error.clone().unwrap_or_default(),
            };
            let block = lun.block_bytes.map(|bytes| bytes.to_string()).unwrap_or_default();
            table.row(vec![
                target.target.clone(),
                lun.lun.clone(),
                size,
                block,
                lun.device.clone(),
                lun.url.clone(),
            ]);
        }
        if target.luns.is_empty() {
            table.row(vec![target.target.clone(), "-".to_owned()]);
        }
        if let Some(error) = &target.error {
            problems.push_str(&format!("{}: {}\n", target.target, output::plain(error)));
            if let Some(remedy) = &target.remedy {
                problems.push_str(&format!("  remedy: {}\n", output::plain(remedy)));
            }
        }
    }
    table.text() + &problems
}
