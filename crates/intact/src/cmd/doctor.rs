//! `intact doctor URL`: checks step by step, from the name to the bytes; a step that fails shows the rule and the remedy.

use std::fmt::Write as _;
use std::net::ToSocketAddrs;
use std::process::ExitCode;
use std::time::Instant;

use bytes::Bytes;
use initiator::{
    ConnectError, DiscoveryError, Disk, IoError, IscsiName, IscsiUrl, KeyLine, PiTags, ProtectionType,
    Session, SessionInfo, discovery,
};
use serde::Serialize;

use super::FAILED;
use super::client::ClientArgs;
use crate::output;

/// Maximum number of bytes that are read twice.
const READ_BYTES: u64 = 1024 * 1024;
/// Number of pings that measure the round trip time.
const PINGS: usize = 8;

/// Arguments of `intact doctor`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  intact doctor iscsi://127.0.0.1/iqn.2026-01.io.intact:disk/0\n\n\
    Nothing is written to the LUN. Exit codes: 0 healthy; 1 something is wrong; 2 wrong usage.")]
pub struct Args {
    /// iscsi://[user[%password]@]host[:port][/target[/lun]]
    url: String,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    client: ClientArgs,
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Ok,
    Note,
    Failed,
}

#[derive(Debug, Serialize)]
struct Step {
    step: &'static str,
    verdict: Verdict,
    what: String,
    rule: Option<String>,
    remedy: Option<String>,
    /// Details, one per line.
    details: Vec<String>,
    /// Counts of mismatches by kind, if the step counts them.
    #[serde(skip_serializing_if = "Option::is_none")]
    failures: Option<Failures>,
}

/// Mismatches in the session, by the place where they were found.
#[derive(Clone, Copy, Debug, Serialize)]
struct Failures {
    header_digests: u64,
    data_digests: u64,
    guards: u64,
    application_tags: u64,
    reference_tags: u64,
}

impl Failures {
    fn of(info: &SessionInfo) -> Self {
        Self {
            header_digests: info.link.digests.header_failed,
            data_digests: info.link.digests.data_failed,
            guards: info.protection.guard,
            application_tags: info.protection.app_tag,
            reference_tags: info.protection.ref_tag,
        }
    }

    fn digests(&self) -> u64 {
        self.header_digests + self.data_digests
    }

    fn protection(&self) -> u64 {
        self.guards + self.application_tags + self.reference_tags
    }

    fn text(&self) -> String {
        format!(
            "failed: {} header digests, {} data digests, {} guards, {} application tags, {} reference tags",
            self.header_digests, self.data_digests, self.guards, self.application_tags, self.reference_tags
        )
    }
}

#[derive(Debug, Default, Serialize)]
struct Examination {
    steps: Vec<Step>,
}

impl Examination {
    fn say(&mut self, step: &'static str, verdict: Verdict, what: impl Into<String>) -> &mut Step {
        self.steps.push(Step {
            step,
            verdict,
            what: what.into(),
            rule: None,
            remedy: None,
            details: Vec::new(),
            failures: None,
        });
        self.steps.last_mut().expect("just pushed")
    }

    fn connect_failed(&mut self, step: &'static str, error: &ConnectError) {
        let line = self.say(step, Verdict::Failed, error.to_string());
        line.rule = error.rule().map(str::to_owned);
        line.remedy = Some(error.remedy());
        line.details = error.keys().iter().map(KeyLine::to_string).collect();
    }

    fn io_failed(&mut self, step: &'static str, error: &IoError) {
        let line = self.say(step, Verdict::Failed, error.to_string());
        line.remedy = error.remedy().map(str::to_owned);
        if let IoError::Protection(failure) = error {
            line.rule = Some("SBC-3 4.22.4".to_owned());
            line.remedy = Some(failure.remedy().to_owned());
        }
    }
}

/// Runs the command.
pub fn run(args: Args) -> ExitCode {
    let url = match args.client.url(&args.url) {
        Ok(url) => url,
        Err(code) => return code,
    };
    let mut examination = Examination::default();
    if let Err(code) = examine(&args, &url, &mut examination) {
        return code;
    }
    let code = output::show(args.json, &examination.steps, || examination.text());
    match examination.steps.iter().any(|step| step.verdict == Verdict::Failed) {
        true => ExitCode::from(FAILED),
        false => code,
    }
}

/// `Err` only for wrong usage; everything else is a result.
fn examine(args: &Args, url: &IscsiUrl, out: &mut Examination) -> Result<(), ExitCode> {
    if !resolve(url, out) {
        return Ok(());
    }
    let mut options = args.client.options(url)?;
    options.timeouts.reconnect = std::time::Duration::ZERO;
    // A missing unit is a result; the examination continues.
    let tags = options.protection.take();
    let Some(target) = &url.target else {
        discover(&options, out);
        return Ok(());
    };
    let session = match Session::connect(options) {
        Ok(session) => session,
        Err(error) => {
            out.connect_failed("login", &error);
            return Ok(());
        }
    };
    opened(&session, target, out);
    parameters(&session, out);
    pings(&session, out);
    if let Some(lun) = url.lun {
        unit(&session, iscsi_core::wire::Lun::from_index(lun), tags, out);
    } else {
        match discovery::report_luns(&session) {
            Ok(luns) => {
                let luns: Vec<String> = luns.iter().map(ToString::to_string).collect();
                out.say("LUNs", Verdict::Ok, luns.join(", "));
            }
            Err(error) => out.io_failed("LUNs", &error),
        }
    }
    counted(&session, out);
    Ok(())
}

/// Looks for the addresses of the portal; false when there are none.
fn resolve(url: &IscsiUrl, out: &mut Examination) -> bool {
    match (url.portal.host.as_str(), url.portal.port).to_socket_addrs() {
        Ok(addresses) => {
            let addresses: Vec<String> = addresses.map(|address| address.to_string()).collect();
            out.say("resolve", Verdict::Ok, addresses.join(", "));
            true
        }
        Err(error) => {
            let host = url.portal.host.clone();
            out.connect_failed("resolve", &ConnectError::Resolve { host, error });
            false
        }
    }
}

/// How long connecting took, and what the login led to.
fn opened(session: &Session, target: &IscsiName, out: &mut Examination) {
    let opening = session.opening();
    let address = opening.login.address.map(|address| address.to_string()).unwrap_or_default();
    out.say(
        "connect",
        Verdict::Ok,
        format!("{address} in {:.0} us", opening.login.connect_time.as_secs_f64() * 1e6),
    );
    let chap = opening
        .login
        .chap
        .map_or("without CHAP".to_owned(), |algorithm| format!("by CHAP with {algorithm:?}"));
    let tag = opening.login.portal_group_tag.map_or(String::new(), |tag| format!(", portal group {tag}"));
    let login = out.say("login", Verdict::Ok, format!("{target}, {chap}{tag}"));
    login.details = opening.login.keys.iter().map(KeyLine::to_string).collect();
}

/// What the session has counted: digests that were verified, and what was damaged or lost.
fn counted(session: &Session, out: &mut Examination) {
    let Some(info) = session.info() else { return };
    let digests = info.link.digests;
    let failures = Failures::of(&info);
    let verified = digests.header_verified + digests.data_verified;
    let on_the_way = failures.digests() > 0 || info.losses > 0;
    let verdict = if on_the_way || failures.protection() > 0 { Verdict::Failed } else { Verdict::Ok };
    let what = format!("{verified} digests verified, session lost {} times", info.losses);
    let line = out.say("session", verdict, what);
    line.details = vec![failures.text()];
    line.failures = Some(failures);
    if on_the_way {
        line.rule = Some("RFC 7143 7.8".to_owned());
        line.remedy =
            Some("something between here and there damages data: check cables, cards, memory".to_owned());
        line.details.extend(info.last_loss.iter().map(ToString::to_string));
    } else if failures.protection() > 0 {
        line.rule = Some("SBC-3 4.22.4".to_owned());
        line.remedy = Some("see the step that failed; `intact scrub` lists all bad blocks".to_owned());
    }
}

fn discover(options: &initiator::Options, out: &mut Examination) {
    let began = Instant::now();
    match discovery::send_targets(options) {
        Ok(records) => {
            let targets = output::count(records.len(), "target");
            let what = format!("{targets} in {:.0} ms", began.elapsed().as_secs_f64() * 1e3);
            let line =
                out.say("discovery", if records.is_empty() { Verdict::Note } else { Verdict::Ok }, what);
            for record in &records {
                let addresses: Vec<String> = record.addresses.iter().map(ToString::to_string).collect();
                line.details.push(format!("{} at {}", record.name, addresses.join(", ")));
            }
            if records.is_empty() {
                line.remedy = Some("allow this initiator on the target, or add a target".to_owned());
            }
        }
        Err(DiscoveryError::Connect(error)) => out.connect_failed("discovery", &error),
        Err(DiscoveryError::Io(error)) => out.io_failed("discovery", &error),
    }
}

fn parameters(session: &Session, out: &mut Examination) {
    let params = &session.opening().login.params;
    let digest = |on: bool| if on { "CRC32C" } else { "none" };
    let both = params.digests.header && params.digests.data;
    let what = format!("header {}, data {}", digest(params.digests.header), digest(params.digests.data));
    let line = out.say("digests", if both { Verdict::Ok } else { Verdict::Note }, what);
    if !both {
        line.rule = Some("RFC 7143 13.1".to_owned());
        line.remedy = Some(
            "allow HeaderDigest and DataDigest CRC32C on the target: TCP's checksum misses errors".to_owned(),
        );
    }
    let any_order = match (params.data_in_order.pdus, params.data_in_order.sequences) {
        (true, true) => "",
        (false, true) => ", DataPDUInOrder=No",
        (true, false) => ", DataSequenceInOrder=No",
        (false, false) => ", DataPDUInOrder=No, DataSequenceInOrder=No",
    };
    out.say(
        "parameters",
        Verdict::Ok,
        format!(
            "up to {} a PDU there, {} here; bursts of {}, {} unasked; InitialR2T={}, ImmediateData={}, {} R2Ts{any_order}",
            output::bytes(params.max_send_data_segment_length.into()),
            output::bytes(params.max_recv_data_segment_length.into()),
            output::bytes(params.bursts.max_burst_length.into()),
            output::bytes(params.effective_first_burst().into()),
            if params.bursts.initial_r2t { "Yes" } else { "No" },
            if params.bursts.immediate_data { "Yes" } else { "No" },
            params.bursts.max_outstanding_r2t,
        ),
    );
}

/// Pings with data of odd lengths: the reply must have the same data.
fn pings(session: &Session, out: &mut Examination) {
    let most = session.opening().login.params.max_send_data_segment_length.min(64 * 1024) as usize;
    for length in [1, 2, 3, 4, 5, 511, 4096, most] {
        let data: Vec<u8> = (0..length).map(|n| (n * 7 + length) as u8).collect();
        match session.ping(Bytes::from(data)) {
            Some(pong) if pong.intact => {}
            Some(_) => {
                let line =
                    out.say("ping", Verdict::Failed, format!("a ping of {length} bytes came back changed"));
                line.rule = Some("RFC 7143 11.19".to_owned());
                line.remedy = Some(
                    "the target, or the way to it, changes data: turn digests on and check both".to_owned(),
                );
                return;
            }
            None => {
                let what = format!("a ping of {length} bytes ended the session");
                let line = out.say("ping", Verdict::Failed, what);
                line.rule = Some("RFC 7143 11.18".to_owned());
                line.details =
                    session.info().and_then(|i| i.last_loss).iter().map(ToString::to_string).collect();
                line.remedy = Some("report it to the target's maker".to_owned());
                return;
            }
        }
    }
    let mut times: Vec<f64> = (0..PINGS)
        .filter_map(|_| session.ping(Bytes::new()))
        .map(|pong| pong.round_trip.as_secs_f64() * 1e6)
        .collect();
    times.sort_by(f64::total_cmp);
    if let (Some(least), Some(middle)) = (times.first(), times.get(times.len() / 2)) {
        let what =
            format!("data of all lengths intact; round trip {least:.0} us at best, {middle:.0} us typically");
        out.say("ping", Verdict::Ok, what);
    }
}

fn unit(session: &Session, lun: iscsi_core::wire::Lun, tags: Option<PiTags>, out: &mut Examination) {
    let mut disk = match Disk::open(session, lun) {
        Ok(disk) => disk,
        Err(error) => {
            return out.io_failed("LUN", &error);
        }
    };
    let (info, capacity) = (disk.info(), disk.capacity());
    let size = output::bytes(capacity.bytes());
    out.say(
        "LUN",
        Verdict::Ok,
        format!("{} {}, {size}, blocks of {}", info.vendor, info.product, capacity.block_bytes),
    );
    let kind = disk.info().protection.kind;
    match (kind, tags) {
        (_, Some(tags)) => match disk.protected(tags) {
            Ok(protected) => {
                out.say("protection", Verdict::Ok, format!("type {}, checked here", kind.number()));
                disk = protected;
            }
            Err(error) => {
                out.say("protection", Verdict::Failed, error.to_string()).rule =
                    Some("SBC-3 4.22".to_owned());
            }
        },
        (ProtectionType::None, None) => drop(out.say("protection", Verdict::Ok, "none")),
        (_, None) => {
            let what = format!("type {}, checked by the target only", kind.number());
            out.say("protection", Verdict::Note, what).remedy =
                Some("add ?pi=1 to the URL: then blocks are checked in this process too".to_owned());
        }
    }
    let capacity = disk.capacity();
    let length = READ_BYTES.min(capacity.bytes()) as usize;
    let (mut once, mut twice) = (vec![0; length], vec![0xff; length]);
    match disk.read(0, &mut once).and_then(|()| disk.read(0, &mut twice)) {
        Ok(()) if once == twice => {
            out.say(
                "read",
                Verdict::Ok,
                format!("{} twice, the same both times", output::bytes(length as u64)),
            );
        }
        Ok(()) => {
            let what = "the same blocks read twice differ; somebody writes to them now, or data are damaged";
            out.say("read", Verdict::Note, what).remedy =
                Some("try again while the LUN is not in use".to_owned());
        }
        Err(error) => {
            out.io_failed("read", &error);
        }
    }
}

impl Examination {
    fn text(&self) -> String {
        let mut text = String::new();
        for step in &self.steps {
            let mark = match step.verdict {
                Verdict::Ok => "ok",
                Verdict::Note => "note",
                Verdict::Failed => "FAILED",
            };
            let _ = writeln!(text, "{mark:<7}{:<11}{}", step.step, output::plain(&step.what));
            for detail in &step.details {
                let _ = writeln!(text, "                    {}", output::plain(detail));
            }
            if let Some(rule) = &step.rule {
                let _ = writeln!(text, "                  rule: {rule}");
            }
            if let Some(remedy) = &step.remedy {
                let _ = writeln!(text, "                  remedy: {remedy}");
            }
        }
        text
    }
}
