//! The timing diagrams of docs/offload.md: one read and one write by the circuit at 512 bit, cycle by cycle, drawn from the model. The
//! circuit is deterministic, so the drawings must be equal. `make rtl-cycles` writes them.
#![forbid(unsafe_code)]

#[path = "../../offload/tests/common/mod.rs"]
mod common;
#[path = "rx_engine/peer.rs"]
#[allow(dead_code, reason = "the random target is for other tests")]
mod peer;

use std::fmt::Write;
use std::path::Path;

use common::{BOTH_DIGESTS, Bench, open_conn, pattern, task_done};
use offload::Engine;
use offload::encoding::{OpenConn, TaskResult, conn_flags, task_flags};
use offload_rtl::{Ports, RtlEngine, Width};
use peer::{DATA_IN, FINAL, Header, R2T, RESPONSE, STATUS};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/offload");
const ITT: u32 = 1;
/// Data of a PDU, bytes.
const PIECE: u32 = 512;

/// A conversation in phases, each with its name: what the host or the peer does, and all that follows from it.
struct Play {
    bench: Bench<RtlEngine>,
    open: OpenConn,
    phases: Vec<(&'static str, Vec<Ports>)>,
}

impl Play {
    fn new() -> Self {
        let flags = BOTH_DIGESTS | conn_flags::IMMEDIATE_DATA | conn_flags::INITIAL_R2T;
        let open = OpenConn { max_send_data_segment_length: PIECE, ..open_conn(flags, 0) };
        let bench = Bench::with(RtlEngine::new(Width::Bits512, 1), open);
        Self { bench, open, phases: Vec::new() }
    }

    fn post(&mut self, flags: u8, edtl: u32) {
        let post = self.bench.task(ITT, flags, edtl);
        let ports = self.bench.engine.run_free(&mut self.bench.memory, &[post.emit()], &[]);
        self.phases.push(("POST_TASK", ports));
    }

    fn arrives(&mut self, what: &'static str, pdus: &[(Header, &[u8])]) {
        let bytes: Vec<u8> =
            pdus.iter().flat_map(|(header, data)| header.pdu(&self.open, &[], data)).collect();
        let ports = self.bench.engine.run_free(&mut self.bench.memory, &[], &bytes);
        self.phases.push((what, ports));
    }

    fn of(&self, opcode: u8) -> Header {
        Header { itt: ITT, ..Header::of(&self.bench.engine.session(0).expect("it is open"), opcode) }
    }

    fn end(mut self) -> String {
        let done = task_done(&self.bench.completions());
        assert_eq!((done.len(), done[0].result, done[0].status), (1, TaskResult::GOOD, 0));
        draw(&self.phases)
    }
}

fn read() -> String {
    let mut play = Play::new();
    let data = pattern(3, 2 * PIECE as usize);
    let (first, second) = data.split_at(PIECE as usize);
    play.post(task_flags::READ, 2 * PIECE);
    let header = Header { flags: 0, ..play.of(DATA_IN) };
    let last = Header { flags: FINAL | STATUS, sn: 1, offset: PIECE, ..header };
    play.arrives("two Data-In, status with the second", &[(header, first), (last, second)]);
    assert_eq!(play.bench.data_of(ITT, data.len()), data);
    play.end()
}

fn write() -> String {
    let mut play = Play::new();
    play.post(task_flags::WRITE, 2 * PIECE);
    let r2t = Header { ttt: 9, offset: PIECE, last_word: PIECE, ..play.of(R2T) };
    play.arrives("R2T", &[(r2t, &[])]);
    play.arrives("SCSI Response", &[(Header { sn: 1, ..play.of(RESPONSE) }, &[])]);
    play.end()
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
fn draw(phases: &[(&'static str, Vec<Ports>)]) -> String {
    let cycles: Vec<Ports> = phases.iter().flat_map(|(_, ports)| ports).copied().collect();
    let (width, bottom) = (LEFT + CYCLE * (cycles.len() + 4), TOP + ROW * ROWS.len());
    let height = bottom + 30;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\">\n\
         <style>{STYLE}</style>\n<rect class=\"bg\" width=\"{width}\" height=\"{height}\"/>\n"
    );
    let mut put = |line: String| writeln!(svg, "{line}").expect("a string takes all");
    let mut at = 0;
    for (name, ports) in phases {
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
    for (name, drawn) in [("read.svg", read()), ("write.svg", write())] {
        let path = Path::new(FOLDER).join(name);
        if std::env::var_os("WRITE_CYCLES").is_some() {
            std::fs::write(&path, &drawn).expect("docs/offload is writable");
        }
        let kept = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(drawn == kept, "{name}: the circuit has changed: make rtl-cycles draws it again");
    }
}
