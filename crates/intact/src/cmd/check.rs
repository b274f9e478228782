//! `intact check FILE`: every problem of a configuration file at once.

use std::path::PathBuf;
use std::process::ExitCode;

use blockstore::StoreSpec;
use serde_json::json;
use server::config::{Config, Overrides, Problem};

use super::{FAILED, MISUSED};
use crate::output::print;

/// Arguments of `intact check`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: intact check /etc/intact.toml\n\n\
    Exit codes: 0 the file can be used (warnings may remain); 1 a store cannot be opened (--open); 2 it cannot be used.")]
pub struct Args {
    /// The configuration file.
    file: PathBuf,
    /// Also open every store for reading: report those that are missing, or whose side files make no sense.
    #[arg(long)]
    open: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: Args) -> ExitCode {
    let mut closed = Vec::new();
    let (problems, summary) = match Config::load_file(&args.file, &Overrides::default()) {
        Ok(loaded) => {
            if args.open {
                closed = cannot_be_opened(&loaded.config.target);
            }
            (loaded.warnings, Some(summary(&loaded.config.target)))
        }
        Err(problems) => (problems, None),
    };
    let usable = summary.is_some();
    let text = if args.json {
        let list: Vec<_> = problems.iter().map(as_json).collect();
        format!("{}\n", json!({ "usable": usable, "problems": list, "cannot_be_opened": closed }))
    } else {
        let mut text = String::new();
        for problem in &problems {
            text.push_str(&format!("{problem}\n\n"));
        }
        for line in &closed {
            text.push_str(&format!("{line}\n\n"));
        }
        let file = args.file.display();
        let errors = problems.iter().filter(|problem| problem.is_error()).count();
        let warnings = problems.len() - errors;
        match summary {
            Some(summary) if warnings == 0 => text.push_str(&format!("{file} can be used: {summary}\n")),
            Some(summary) => {
                text.push_str(&format!("{file} can be used, with {warnings} warning(s): {summary}\n"));
            }
            None => {
                text.push_str(&format!("{file} cannot be used: {errors} error(s), {warnings} warning(s)\n"));
            }
        }
        text
    };
    let printed = print(&text);
    match usable {
        true if closed.is_empty() => printed,
        true => ExitCode::from(FAILED),
        false => ExitCode::from(MISUSED),
    }
}

/// The stores that cannot be opened, one line each. A file that the server would create is not among them.
fn cannot_be_opened(config: &target::config::Config) -> Vec<String> {
    let mut lines = Vec::new();
    for target in &config.targets {
        for lun in &target.luns {
            let mut store = lun.store.clone();
            if let StoreSpec::File { path, options, .. } = &mut store {
                if options.size_bytes.is_some() && !options.read_only && !path.exists() {
                    continue;
                }
                (options.read_only, options.size_bytes) = (true, None);
            }
            if let Err(error) = store.open_in(config.state_dir.as_deref()) {
                lines.push(format!("error: LUN {} of {}: {error}", lun.number, target.name));
            }
        }
    }
    lines
}

fn summary(config: &target::config::Config) -> String {
    let portals: Vec<String> = config.portals.iter().map(|portal| portal.address.to_string()).collect();
    let luns: usize = config.targets.iter().map(|target| target.luns.len()).sum();
    format!("{} target(s) with {luns} logical unit(s) on {}", config.targets.len(), portals.join(", "))
}

fn as_json(problem: &Problem) -> serde_json::Value {
    json!({
        "severity": if problem.is_error() { "error" } else { "warning" },
        "line": problem.line,
        "column": problem.column,
        "what": problem.what,
        "rule": problem.rule,
        "remedy": problem.remedy,
    })
}
