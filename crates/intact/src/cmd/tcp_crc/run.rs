//! `intact tcp-crc run`: a program whose TCP carries the CRC.

use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::Arc;

use tcp_crc_shim::report::{DIRECTORY, Publisher, Report};
use tcp_crc_shim::{Enclosure, Options, forwarding};

use super::status::turned_away;
use super::{Backend, Protocol};
use crate::cmd::guest::{Kept, exit_code};
use crate::cmd::{FAILED, MISUSED, complain, fail};
use crate::output::count;

/// Arguments of `intact tcp-crc run`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The program has a network of its own, behind a translator of addresses (nft). It reaches everything that this machine \
    reaches over IPv4, and over IPv6 if net.ipv6.conf.all.forwarding is on; 127.0.0.1 is its own. It takes root (CAP_NET_ADMIN and \
    CAP_SYS_ADMIN), ip, nft, and /dev/net/tun or BPF with cgroup2. While it runs, net.ipv4.ip_forward is on.\n\n\
    Examples:\n  intact tcp-crc run -- iperf3 -c 192.0.2.1\n  intact tcp-crc run --publish 3260 -- intact serve\n  \
    intact tcp-crc run --require -- curl -O http://192.0.2.1/image     fails where the peer has no CRC\n\n\
    Exit codes: as the program; 1 it could not be run; 2 wrong usage."
)]
pub struct Args {
    #[command(flatten)]
    protocol: Protocol,
    /// What adds the CRC: a shim on TUN devices, programs in the kernel (values 4, 5 and 6), or the first of these that this machine has.
    #[arg(long, value_enum, default_value_t = Backend::Auto)]
    backend: Backend,
    /// A port of this machine that is forwarded to the program, or HERE:THERE for another port inside. May be repeated.
    #[arg(long, value_name = "PORT", value_parser = port)]
    publish: Vec<(u16, u16)>,
    /// MTU of the path to the peers, in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 1500, value_parser = clap::value_parser!(u16).range(1280..))]
    mtu: u16,
    /// Maximum number of protected connections at a time; others are plain TCP.
    #[arg(long, value_name = "N", default_value_t = 65_536, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    connections: u32,
    /// Report at the end what was stamped, verified and discarded.
    #[arg(long)]
    summary: bool,
    /// The program and its arguments.
    #[arg(required = true, last = true, value_name = "PROGRAM")]
    program: Vec<String>,
}

fn port(text: &str) -> Result<(u16, u16), String> {
    let (here, there) = text.split_once(':').unwrap_or((text, text));
    let read = |text: &str| text.parse().ok().filter(|port| *port != 0);
    read(here).zip(read(there)).ok_or_else(|| format!("`{text}` is no PORT and no HERE:THERE"))
}

/// Runs the command.
pub fn run(args: Args) -> ExitCode {
    let config = match args.protocol.config() {
        Ok(config) => config,
        Err(error) => return fail(MISUSED, error),
    };
    let options = Options {
        config,
        backend: args.backend.choose(),
        connections_max: args.connections as usize,
        mtu_bytes: args.mtu,
        publish: args.publish.clone(),
        on_end: |reason| {
            complain(format_args!("intact: the shim has ended, so nothing is carried any more: {reason}"))
        },
    };
    match Enclosure::build(&options) {
        Ok(enclosure) => {
            let name = enclosure.name();
            for chain in forwarding::chains_that_drop() {
                complain(format_args!(
                    "intact: this machine's firewall discards what no rule of it accepts; if nothing arrives: \
                    nft insert rule {chain} iifname {name} accept; nft insert rule {chain} oifname {name} accept"
                ));
            }
            inside(&args, Arc::new(enclosure))
        }
        Err(error) => fail(FAILED, error),
    }
}

fn inside(args: &Args, enclosure: Arc<Enclosure>) -> ExitCode {
    let signals = match Kept::new() {
        Ok(signals) => signals,
        Err(error) => return fail(FAILED, format_args!("signals cannot be received: {error}")),
    };
    let observed = Arc::downgrade(&enclosure);
    let name = enclosure.name().to_owned();
    let report = Arc::new(move || match observed.upgrade() {
        Some(enclosure) => enclosure.report(),
        None => Report::empty(&name),
    });
    let publisher = Publisher::start(Path::new(DIRECTORY), enclosure.name(), report);
    if let Err(error) = &publisher {
        complain(format_args!("intact: `intact tcp-crc status` will not see this: {DIRECTORY}: {error}"));
    }
    let (program, arguments) = args.program.split_first().expect("clap has asked for one");
    let started = enclosure.namespace().within(|| Command::new(program).args(arguments).spawn());
    let mut child = match started.and_then(|started| started) {
        Ok(child) => child,
        Err(error) => return fail(FAILED, format_args!("`{program}` cannot be run: {error}")),
    };
    let ended = signals.wait(&mut child);
    if args.summary {
        complain(summary(&enclosure.report()));
    }
    match ended {
        Ok(status) => exit_code(status),
        Err(error) => fail(FAILED, format_args!("`{program}` cannot be waited for: {error}")),
    }
}

fn summary(report: &Report) -> String {
    let total = &report.total;
    let mut text = format!(
        "{}: {}, {} protected, {} plain; segments: {} stamped, {} verified, {} discarded, {} without CRC",
        report.name,
        count(report.connections.len(), "connection"),
        report.count("protected"),
        report.count("plain"),
        total.stamped,
        total.verified,
        total.bad_crc + total.bad_sum,
        total.bare_sent + total.bare_received + total.missing,
    );
    if let Some(refused) = turned_away(report) {
        text += &format!("; {refused}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::port;

    #[test]
    fn ports_are_one_or_two() {
        assert_eq!(port("3260"), Ok((3260, 3260)));
        assert_eq!(port("80:8080"), Ok((80, 8080)));
        for wrong in ["", "0", "80:", "80:0", "70000", "80:1:2", "x"] {
            assert!(port(wrong).is_err(), "{wrong}");
        }
    }
}
