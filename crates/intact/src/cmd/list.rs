//! `intact ls sessions|luns|targets|logins`: what the server on this machine reports on its control socket.

use std::process::ExitCode;

use server::control::{Answer, Request};
use target::observe::{LoginEvent, LunInfo, Place, SessionInfo, TargetInfo};

use super::server::{ServerArgs, unexpected};
use crate::output::{self, Table, bytes, plain};

/// What can be listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// The sessions.
    Sessions,
    /// The logical units.
    Luns,
    /// The targets.
    Targets,
    /// The last logins.
    Logins,
}

impl What {
    /// Reads the word of the command line.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "sessions" => Some(Self::Sessions),
            "luns" => Some(Self::Luns),
            "targets" => Some(Self::Targets),
            "logins" => Some(Self::Logins),
            _ => None,
        }
    }
}

/// Asks the server and prints the answer.
pub fn run(what: What, server: &ServerArgs) -> ExitCode {
    let request = match what {
        What::Sessions => Request::Sessions,
        What::Luns => Request::Luns,
        What::Targets => Request::Targets,
        What::Logins => Request::Logins,
    };
    match server.ask(&request) {
        Ok(Answer::Sessions(list)) => output::show(server.json, &list, || sessions(&list)),
        Ok(Answer::Luns(list)) => output::show(server.json, &list, || luns(&list)),
        Ok(Answer::Targets(list)) => output::show(server.json, &list, || targets(&list)),
        Ok(Answer::Logins(list)) => output::show(server.json, &list, || logins(&list)),
        Ok(_) => unexpected(),
        Err(code) => code,
    }
}

fn or_dash(text: Option<&str>) -> String {
    text.unwrap_or("-").to_owned()
}

fn sessions(list: &[SessionInfo]) -> String {
    let mut table = Table::new(&[
        "TSIH",
        "TARGET",
        "INITIATOR",
        "PEER",
        "CONNECTIONS",
        "SHARD",
        "RUNS ON",
        "ARRIVES ON",
        "DIGESTS",
        "QUEUE",
        "COMMANDS",
        "RX",
        "TX",
        "FAILED DIGESTS",
        "RECOVERIES",
        "SINCE",
    ]);
    for session in list {
        let of = |count: fn(&target::observe::ConnectionInfo) -> u64| -> u64 {
            session.connections.iter().map(count).sum()
        };
        let peers: Vec<String> = session.connections.iter().map(|c| c.peer.to_string()).collect();
        let places = session.connections.iter().map(|c| c.place);
        let unknown = || "-".to_owned();
        let arrives_on: Vec<String> = places
            .clone()
            .map(|place| place.and_then(|place| place.arrives_on))
            .map(|cpu| cpu.map_or_else(unknown, |cpu| cpu.to_string()))
            .collect();
        let of_shard = |number: fn(Place) -> usize| {
            places.clone().next().flatten().map_or_else(unknown, |place| number(place).to_string())
        };
        let digests = match session.connections.first() {
            Some(connection) => match (connection.header_digest, connection.data_digest) {
                (true, true) => "header,data",
                (true, false) => "header",
                (false, true) => "data",
                (false, false) => "none",
            },
            None => "-",
        };
        table.row(vec![
            session.names.tsih.to_string(),
            session.names.target.clone().unwrap_or_else(|| "(discovery)".to_owned()),
            session.names.initiator.clone(),
            if peers.is_empty() { "-".to_owned() } else { peers.join(",") },
            format!("{}/{}", session.connections.len(), session.max_connections()),
            of_shard(|place| place.shard),
            of_shard(|place| place.runs_on),
            if arrives_on.is_empty() { "-".to_owned() } else { arrives_on.join(",") },
            digests.to_owned(),
            format!("{}/{}", session.outstanding, session.queue_depth),
            session.commands.to_string(),
            bytes(of(|c| c.rx_bytes)),
            bytes(of(|c| c.tx_bytes)),
            of(|c| c.digests_failed).to_string(),
            recoveries(&session.recovery).to_string(),
            humantime::format_rfc3339_seconds(session.since).to_string(),
        ]);
    }
    table.text()
}

/// Number of recoveries of all kinds; the JSON has each kind.
fn recoveries(info: &target::observe::RecoveryInfo) -> u64 {
    info.snacks_answered + info.r2ts_recovered + info.tasks_reassigned + info.connections_lost
}

fn luns(list: &[LunInfo]) -> String {
    let mut table = Table::new(&[
        "TARGET", "LUN", "SIZE", "BLOCK", "STORE", "SERIAL", "MODE", "READS", "READ", "WRITES", "WRITTEN",
        "ERRORS",
    ]);
    for lun in list {
        let mode = match (&lun.failed_flush, lun.face.read_only, lun.face.write_cache) {
            _ if lun.missing.is_some() => "missing",
            (Some(_), ..) => "failed",
            (None, true, _) => "read-only",
            (None, false, true) => "write-back",
            (None, false, false) => "write-through",
        };
        table.row(vec![
            lun.target.clone(),
            lun.lun.to_string(),
            bytes(lun.face.size_bytes),
            lun.face.logical_block_bytes.to_string(),
            lun.store.clone(),
            lun.face.serial.clone(),
            mode.to_owned(),
            lun.counts.reads.to_string(),
            bytes(lun.counts.read_bytes),
            lun.counts.writes.to_string(),
            bytes(lun.counts.written_bytes),
            lun.counts.errors.to_string(),
        ]);
    }
    let mut text = table.text();
    for lun in list {
        if let Some(why) = &lun.failed_flush {
            text.push_str(&format!(
                "\nLUN {1} of {0}: a flush failed ({why}); acknowledged writes may be lost, and writes are refused.\n  remedy: check \
                 the disk and the data, then `intact lun reopen {0} {1}`\n",
                plain(&lun.target),
                lun.lun
            ));
        }
        if let Some(why) = &lun.missing {
            text.push_str(&format!(
                "\nLUN {} of {} is not ready: {}\n",
                lun.lun,
                plain(&lun.target),
                plain(why)
            ));
        }
    }
    text
}

fn targets(list: &[TargetInfo]) -> String {
    let mut table = Table::new(&["TARGET", "ALIAS", "LUNS", "SESSIONS", "AUTH", "ACCESS", "PORTALS"]);
    for target in list {
        let access = match target.access_rules {
            0 => "everyone".to_owned(),
            1 => "1 rule".to_owned(),
            n => format!("{n} rules"),
        };
        let portals = match &target.redirect {
            Some(addresses) => format!("redirected to {}", addresses.join(",")),
            None => target.portals.join(" "),
        };
        table.row(vec![
            target.name.clone(),
            or_dash(target.alias.as_deref()),
            target.luns.to_string(),
            target.sessions.to_string(),
            target.auth.clone(),
            access,
            portals,
        ]);
    }
    table.text()
}

fn logins(list: &[LoginEvent]) -> String {
    let mut table =
        Table::new(&["TIME", "RESULT", "PEER", "INITIATOR", "ACCOUNT", "TARGET", "STAGE", "STATUS"]);
    for event in list {
        table.row(vec![
            humantime::format_rfc3339_seconds(event.time).to_string(),
            match event.end.accepted {
                true => "accepted",
                false if event.is_redirection() => "redirected",
                false => "refused",
            }
            .to_owned(),
            event.peer.to_string(),
            or_dash(event.initiator.as_deref()),
            or_dash(event.account.as_deref()),
            or_dash(event.target.as_deref()),
            event.end.stage.to_string(),
            format!("{:04x} {}", event.end.code, event.end.status),
        ]);
    }
    let mut text = table.text();
    // The last refusal in full: this is what people look for.
    if let Some(event) = list.iter().rev().find(|event| !event.end.accepted && !event.is_redirection()) {
        text.push_str(&format!(
            "\nThe last refusal: {}\n  rule:   {}\n  remedy: {}\nAll of them in full: --json\n",
            plain(&event.end.what),
            plain(&event.end.rule),
            plain(&event.end.remedy)
        ));
    }
    text
}
