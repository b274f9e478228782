//! The waveform of one read or one write by the circuit.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use offload_rtl::{Phase, RtlEngine, Scene, Width};
use serde::Serialize;

use super::Traced;
use crate::cmd::{FAILED, fail};
use crate::output;

/// Ticks of a waveform for a cycle.
const TICKS: usize = 10;

/// What was written.
#[derive(Serialize)]
struct Written {
    file: PathBuf,
    ticks_per_cycle: usize,
    phases: Vec<Part>,
}

/// What the host or the peer does, and how many cycles all that follows from it takes.
#[derive(Serialize)]
struct Part {
    name: &'static str,
    cycles: usize,
}

/// Writes the waveform, and prints where in it the phases begin.
pub fn write(path: &Path, traced: Traced, json: bool) -> ExitCode {
    let mut engine = RtlEngine::new(Width::Bits512, 1);
    if let Err(why) = engine.trace(path) {
        return fail(FAILED, why);
    }
    let scene = match traced {
        Traced::Read => Scene::Read,
        Traced::Write => Scene::Write,
    };
    let part = |phase: &Phase| Part { name: phase.name, cycles: phase.ports.len() };
    let phases = scene.play(engine).iter().map(part).collect();
    let written = Written { file: path.to_owned(), ticks_per_cycle: TICKS, phases };
    output::show(json, &written, || text(&written))
}

fn text(written: &Written) -> String {
    let phases = written.phases.iter().map(|part| format!("  {:>4} cycles  {}\n", part.cycles, part.name));
    let all: String = phases.collect();
    format!(
        "{}: {TICKS} ticks a cycle; after its reset the engine opens its connection, then\n{all}\
         GTKWave and Surfer show it; `engine` is the circuit of rtl/engine/engine.sv.\n",
        written.file.display()
    )
}
