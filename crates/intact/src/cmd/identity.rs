//! `intact lun identity`: shows the identity by which hosts know a volume, or gives a copy a new one.

use std::process::ExitCode;

use blockstore::{StoreError, StoreSpec, VolumeId};
use serde_json::json;
use target::identity::{UnitIdentity, random};

use super::{FAILED, fail};
use crate::output::print;

/// Arguments of `intact lun identity`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "A file keeps its identity in PATH.intact beside it. Who copies both has two volumes that hosts take for one \
    disk: a server refuses to serve them together.\n\n\
    Example: cp disk.img copy.img && intact lun identity --new copy.img\n\n\
    Exit codes: 0 shown or given; 1 it cannot be, for example while it is served; 2 wrong usage."
)]
pub struct Args {
    /// The file of a volume that no server is serving: PATH or file:PATH.
    #[arg(value_name = "FILE", value_parser = file)]
    file: StoreSpec,
    /// Give it a new identity: hosts will see another disk.
    #[arg(long)]
    new: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

fn file(text: &str) -> Result<StoreSpec, String> {
    let text =
        if text.starts_with("file:") { text.to_owned() } else { format!("file:{}", text.replace(',', ",,")) };
    match text.parse::<StoreSpec>() {
        Ok(store) => match store.path().filter(|path| !path.is_file()) {
            Some(path) => {
                Err(format!("{} is no file; a device has its identity in state_dir", path.display()))
            }
            None => Ok(store),
        },
        Err(error) => Err(error.to_string()),
    }
}

/// Runs the command.
pub fn run(args: Args) -> ExitCode {
    let found = match args.new {
        true => renewed(&args.file).map(Some),
        false => current(&args.file),
    };
    let volume = match found {
        Ok(Some(volume)) => volume,
        Ok(None) => {
            let why = "it has no identity yet; the server that serves it first gives it one, or `--new` does";
            return fail(FAILED, format_args!("{}: {why}", args.file));
        }
        Err(error) => return fail(FAILED, format_args!("{}: {error}", args.file)),
    };
    let identity = UnitIdentity::new(volume, None);
    let naa: String = identity.naa.to_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    print(&match args.json {
        true => format!("{}\n", json!({ "serial": identity.serial, "naa": naa })),
        false => format!("serial {}\nNAA    {naa}\n", identity.serial),
    })
}

/// The identity from the label, which is only read.
fn current(file: &StoreSpec) -> Result<Option<VolumeId>, StoreError> {
    let mut reading = file.clone();
    reading.set_read_only(true);
    Ok(reading.open()?.label().and_then(|label| label.identity()))
}

fn renewed(file: &StoreSpec) -> Result<VolumeId, StoreError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| StoreError::Unusable(error.to_string()))?;
    let volume = random(bytes);
    // Opened for writing: a server that serves it holds the lock.
    let store = file.open()?;
    let label = store.label().ok_or_else(|| StoreError::Unusable("it has no label".to_owned()))?;
    label.set_identity(Some(volume))?;
    Ok(volume)
}
