//! `intact tcp-crc`: CRC32C in TCP for unmodified programs (docs/tcp-crc.md).

mod bench;
mod demo;
mod run;
mod status;
mod up;

use std::process::ExitCode;

use clap::{Subcommand, ValueEnum};
use tcp_crc::{Codepoints, Config, Method, Offer, OnMissing};

/// Arguments of `intact tcp-crc`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Both ends of a connection need it; with any other peer the connection is plain TCP. docs/tcp-crc.md has the protocol.\n\n\
    Examples:\n  intact tcp-crc run -- curl -O http://192.0.2.1/image\n  intact tcp-crc up --dev eth0\n  intact tcp-crc status\n  intact tcp-crc demo\n\n\
    Exit codes: 0 done; 1 it failed, or wrong bytes arrived with a CRC; 2 wrong usage; `run` ends as its program does."
)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Run a program in a network namespace of its own, whose TCP carries the CRC.
    Run(run::Args),
    /// Enable the CRC on this host, or in this network namespace, for the TCP of all programs.
    Up(up::Args),
    /// Disable it again.
    Down(up::DownArgs),
    /// Show what the shims on this machine have negotiated, stamped, verified and discarded.
    Status(status::Args),
    /// Damage a transfer in ways that TCP's sum does not detect: without a CRC, and with one.
    Demo(demo::Args),
    /// Count the errors that each checksum misses, and measure what the CRC costs in the kernel.
    Bench(bench::Args),
}

/// Runs the command.
pub fn run(args: Args) -> ExitCode {
    match args.what {
        What::Run(args) => run::run(args),
        What::Up(args) => up::run(&args),
        What::Down(args) => up::down(&args),
        What::Status(args) => status::run(&args),
        What::Demo(args) => demo::run(&args),
        What::Bench(args) => bench::run(&args),
    }
}

/// What carries the CRC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Backend {
    /// TUN devices if there is /dev/net/tun, else BPF.
    Auto,
    /// A shim on TUN devices.
    Tun,
    /// Programs in the kernel.
    Bpf,
}

impl Backend {
    fn choose(self) -> tcp_crc_shim::Backend {
        match self {
            Backend::Tun => tcp_crc_shim::Backend::Tun,
            Backend::Bpf => tcp_crc_shim::Backend::Bpf,
            Backend::Auto if std::path::Path::new("/dev/net/tun").exists() => tcp_crc_shim::Backend::Tun,
            Backend::Auto => tcp_crc_shim::Backend::Bpf,
        }
    }
}

/// What a shim requests, and how it treats the answer.
#[derive(Debug, clap::Args)]
struct Protocol {
    /// Values to request: at most one of 3, 4 and 5, and 6. Default: 4 and 6, which pass address translation (NAT).
    #[arg(long, value_name = "VALUE", value_delimiter = ',', value_parser = method)]
    values: Vec<Method>,
    /// Allow no plain connection: one whose peer agrees on no CRC is reset while it opens. Includes --strict.
    #[arg(long)]
    require: bool,
    #[command(flatten)]
    manner: Manner,
}

/// The part that also applies to a whole host.
#[derive(Debug, clap::Args)]
struct Manner {
    /// Reset a connection whose CRCs vanish on the way, and discard fragments; default: only count them.
    #[arg(long)]
    strict: bool,
    /// Numbers of the options; the same at both ends.
    #[arg(long, value_enum, default_value_t = Kinds::Historic)]
    kinds: Kinds,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kinds {
    /// 14 and 15, as in RFC 1146.
    Historic,
    /// 254 with an experiment identifier, as in RFC 6994.
    Experimental,
}

impl Protocol {
    fn config(&self) -> Result<Config, String> {
        let values: &[Method] =
            if self.values.is_empty() { &[Method::Data, Method::Placed] } else { &self.values };
        let config = self.manner.config(offer(values)?);
        Ok(if self.require { Config { on_missing: OnMissing::Required, ..config } } else { config })
    }
}

impl Manner {
    fn config(&self, offer: Offer) -> Config {
        Config {
            offer,
            codepoints: match self.kinds {
                Kinds::Historic => Codepoints::Historic,
                Kinds::Experimental => Codepoints::Experimental,
            },
            on_missing: if self.strict { OnMissing::Strict } else { OnMissing::Lenient },
            mtu_bytes: None,
        }
    }
}

fn offer(values: &[Method]) -> Result<Offer, String> {
    if values.iter().filter(|method| **method != Method::Placed).count() > 1 {
        return Err(
            "--values takes at most one of 3, 4 and 5: both ends come to one of them by Table 7.2".to_owned()
        );
    }
    Ok(Offer::of(values))
}

fn method(text: &str) -> Result<Method, String> {
    let value = text.parse().ok().and_then(Method::from_value);
    value.ok_or_else(|| format!("`{text}` is none of 3, 4, 5 and 6"))
}
