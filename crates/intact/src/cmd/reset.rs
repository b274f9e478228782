//! `intact reset URL`: a task management function (RFC 7143 11.5, RFC 7144 6), and the target's response.

use std::process::ExitCode;

use initiator::{IscsiUrl, Session};
use iscsi_core::wire::{Lun, TmfFunction, TmfResponse};
use serde::Serialize;

use super::client::{ClientArgs, refused};
use super::{FAILED, MISUSED, fail};
use crate::output;

/// Arguments of `intact reset`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Without an option the LUN is reset: its commands end, those of other initiators too.\n\n\
    Example:\n  intact reset iscsi://127.0.0.1/iqn.2026-01.io.intact:disk/0\n\n\
    Exit codes: 0 the target has done it; 1 it has not; 2 wrong usage."
)]
pub struct Args {
    /// iscsi://[user[%password]@]host[:port]/target/lun; resets of the target need no LUN
    url: String,
    #[command(flatten)]
    what: What,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    client: ClientArgs,
}

#[derive(Debug, clap::Args)]
#[group(multiple = false)]
struct What {
    /// CLEAR TASK SET: abort the commands of all initiators, without a reset.
    #[arg(long)]
    clear_task_set: bool,
    /// TARGET WARM RESET: reset all LUNs of the target.
    #[arg(long)]
    target_warm: bool,
    /// TARGET COLD RESET: reset all LUNs, and end all sessions.
    #[arg(long)]
    target_cold: bool,
    /// QUERY ASYNCHRONOUS EVENT: report the pending unit attention, without a change (protocol level 2).
    #[arg(long)]
    query: bool,
}

impl What {
    fn function(&self) -> TmfFunction {
        match self {
            Self { clear_task_set: true, .. } => TmfFunction::ClearTaskSet,
            Self { target_warm: true, .. } => TmfFunction::TargetWarmReset,
            Self { target_cold: true, .. } => TmfFunction::TargetColdReset,
            Self { query: true, .. } => TmfFunction::QueryAsyncEvent,
            _ => TmfFunction::LogicalUnitReset,
        }
    }
}

#[derive(Debug, Serialize)]
struct Answer {
    url: String,
    function: String,
    response: Option<u8>,
    meaning: String,
    /// Sense key, ASC and ASCQ of the pending unit attention.
    pending: Option<[u8; 3]>,
}

/// Runs the command.
pub fn run(args: Args) -> ExitCode {
    match ask(&args) {
        Ok(answer) => {
            let printed = output::show(args.json, &answer, || answer.text());
            match answer.response {
                Some(response) if done(response) => printed,
                _ => ExitCode::from(FAILED),
            }
        }
        Err(code) => code,
    }
}

/// Whether the response means success: "complete", or "succeeded" for queries.
fn done(response: u8) -> bool {
    [TmfResponse::FunctionComplete, TmfResponse::FunctionSucceeded].iter().any(|good| good.code() == response)
}

fn ask(args: &Args) -> Result<Answer, ExitCode> {
    let function = args.what.function();
    let url = args.client.url(&args.url)?;
    let lun = unit(&url, function).map_err(|error| fail(MISUSED, error))?;
    let mut options = args.client.options(&url)?;
    if function.is_level_2() {
        options.bounds.protocol_level = 2;
    }
    options.session.management_timeout = args.client.timeout;
    let session = Session::connect(options).map_err(|error| refused(&error))?;
    if function.is_level_2() && session.opening().login.params.protocol_level < 2 {
        let why = "the target does not know iSCSIProtocolLevel 2 (RFC 7144), where this function is";
        return Err(fail(FAILED, why));
    }
    let answer = session.manage(function, lun);
    let response = answer.map(|answer| answer.response);
    let pending = answer.filter(|answer| answer.response == TmfResponse::FunctionSucceeded);
    Ok(Answer {
        url: url.to_string(),
        function: function.to_string(),
        response: response.map(TmfResponse::code),
        meaning: response.map_or_else(|| "no answer".to_owned(), |response| response.to_string()),
        pending: pending.map(|answer| sense_of(answer.additional)),
    })
}

/// Sense key, ASC and ASCQ from QUERY ASYNCHRONOUS EVENT; the bits above the key are the number of unit attentions (SAM-5 7.9).
fn sense_of([key, asc, ascq]: [u8; 3]) -> [u8; 3] {
    [key & 0x0f, asc, ascq]
}

/// The LUN, if the function uses one.
fn unit(url: &IscsiUrl, function: TmfFunction) -> Result<Lun, initiator::UrlError> {
    match function {
        TmfFunction::TargetWarmReset | TmfFunction::TargetColdReset if url.target.is_some() => {
            Ok(Lun::from_index(url.lun.unwrap_or(0)))
        }
        _ => url.unit().map(|(_, lun)| lun),
    }
}

impl Answer {
    fn text(&self) -> String {
        let pending = self.pending.map_or_else(String::new, |[key, asc, ascq]| {
            format!("; pending: sense key {key:x}h, {asc:02x}h/{ascq:02x}h")
        });
        format!("{}: {}{pending}\n", self.function, self.meaning)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lun_is_needed_where_the_function_looks_at_one() {
        let url = |text: &str| IscsiUrl::parse(text).unwrap();
        let (unit_url, target, portal) = (
            url("iscsi://h/iqn.2001-04.com.example:d/3"),
            url("iscsi://h/iqn.2001-04.com.example:d"),
            url("iscsi://h"),
        );
        assert_eq!(unit(&unit_url, TmfFunction::LogicalUnitReset).unwrap(), Lun::from_index(3));
        assert!(unit(&target, TmfFunction::LogicalUnitReset).is_err());
        assert!(unit(&target, TmfFunction::TargetWarmReset).is_ok());
        assert!(unit(&portal, TmfFunction::TargetColdReset).is_err());
    }

    #[test]
    fn the_number_of_unit_attentions_is_no_part_of_the_sense_key() {
        for told in [[0x16, 0x29, 0x07], [0x26, 0x29, 0x07]] {
            assert_eq!(sense_of(told), [0x06, 0x29, 0x07]);
        }
    }
}
