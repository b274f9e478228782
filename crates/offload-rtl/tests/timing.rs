//! The timing diagrams of docs/offload.md: one read and one write by the circuit at 512 bit, cycle by cycle, drawn from the model. The
//! circuit is deterministic, so the drawings must be equal. `make rtl-cycles` writes them.
#![forbid(unsafe_code)]

use std::fmt::Write;
use std::path::Path;

use offload_rtl::{Phase, Ports, RtlEngine, Scene, Width};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/offload");

fn engine() -> RtlEngine {
    RtlEngine::new(Width::Bits512, 1)
}

/// A port's name and its value in a cycle.
type Row = (&'static str, fn(&Ports) -> bool);
const ROWS: [Row; 7] = [
    ("descriptor", |ports| ports.descriptor),
    ("read of host memory", |ports| ports.read),
    ("its data", |ports| ports.read_data),
    ("stream to the peer", |ports| ports.send),
    ("stream from the peer", |ports| ports.receive),
    ("write to host memory", |ports| ports.write),
    ("completion", |ports| ports.completion),
];
const LEFT: usize = 150;
const TOP: usize = 44;
const ROW: usize = 24;
const CYCLE: usize = 6;
const STYLE: &str = "text{font:12px system-ui,sans-serif;fill:#1c2430}.axis,.phase{stroke:#8d97a5}.on{fill:#0b62c4}\
                     .bg{fill:#fff}@media(prefers-color-scheme:dark){.bg{fill:#12161c}text{fill:#e6eaf0}.on{fill:#62adff}}";

/// A row for each port; a bar where something is handed over, with the cycles in its title.
fn draw(phases: &[Phase]) -> String {
    let cycles: Vec<Ports> = phases.iter().flat_map(|phase| &phase.ports).copied().collect();
    let (width, bottom) = (LEFT + CYCLE * (cycles.len() + 4), TOP + ROW * ROWS.len());
    let height = bottom + 30;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\">\n\
         <style>{STYLE}</style>\n<rect class=\"bg\" width=\"{width}\" height=\"{height}\"/>\n"
    );
    let mut put = |line: String| writeln!(svg, "{line}").expect("a string takes all");
    let mut at = 0;
    for Phase { name, ports } in phases {
        let x = LEFT + CYCLE * at;
        put(format!("<path class=\"phase\" stroke-dasharray=\"3\" d=\"M{x} 28V{bottom}\"/>"));
        put(format!("<text x=\"{}\" y=\"20\">{name}</text>", x + 2));
        at += ports.len();
    }
    for (row, (name, is)) in ROWS.iter().enumerate() {
        let base = TOP + ROW * (row + 1) - 6;
        put(format!("<text x=\"6\" y=\"{base}\">{name}</text>"));
        put(format!("<path class=\"axis\" d=\"M{LEFT} {base}H{}\"/>", LEFT + CYCLE * cycles.len()));
        let mut at = 0;
        for run in cycles.chunk_by(|a, b| is(a) == is(b)) {
            if is(&run[0]) {
                let (x, y, width) = (LEFT + CYCLE * at, base - 12, CYCLE * run.len());
                let title = format!("cycles {} to {}", at + 1, at + run.len());
                put(format!(
                    "<rect class=\"on\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"12\"><title>{title}</title></rect>"
                ));
            }
            at += run.len();
        }
    }
    for cycle in (0..=cycles.len()).step_by(20) {
        put(format!("<text x=\"{}\" y=\"{}\">{cycle}</text>", LEFT + CYCLE * cycle, bottom + 18));
    }
    svg + "</svg>\n"
}

#[test]
fn the_diagrams_are_those_of_the_circuit() {
    for (name, scene) in [("read.svg", Scene::Read), ("write.svg", Scene::Write)] {
        let drawn = draw(&scene.play(engine()));
        let path = Path::new(FOLDER).join(name);
        if std::env::var_os("WRITE_CYCLES").is_some() {
            std::fs::write(&path, &drawn).expect("docs/offload is writable");
        }
        let kept = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(drawn == kept, "{name}: the circuit has changed: make rtl-cycles draws it again");
    }
}

/// The waveform has all signals of the circuit, of which some are in every engine, and as many changes as a read takes cycles.
#[test]
fn a_waveform_has_the_signals_of_the_circuit() {
    let folder = std::env::temp_dir().join(format!("intact-waveform-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    for scene in [Scene::Read, Scene::Write] {
        let path = folder.join("waveform.fst");
        let mut traced = engine();
        traced.trace(&path).expect("a file that can be written");
        let cycles = scene.play(traced).iter().map(|phase| phase.ports.len()).sum::<usize>();
        let bytes = std::fs::read(&path).expect("a waveform");
        // The header block, its length, start and end of time, and the number of signals (the format of GTKWave).
        let number = |at: usize| u64::from_be_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        assert_eq!((bytes[0], number(1)), (0, 329));
        let (end, signals) = (number(17), number(49));
        assert!(signals > 5000, "{signals} signals: those of the modules too");
        assert!(end >= 10 * cycles as u64, "{end} ticks for {cycles} cycles");
    }
    let why = engine().trace(&folder.join("nowhere/waveform.fst")).expect_err("no folder");
    assert!(why.to_string().contains("cannot write"), "{why}");
    std::fs::remove_dir_all(&folder).expect("it is ours");
}
