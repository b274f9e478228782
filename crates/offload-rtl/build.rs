//! Translates the circuits by Verilator and links the models, if the feature `verilator` is on.
#![forbid(unsafe_code)]

fn main() {
    #[cfg(feature = "verilator")]
    models::build();
}

#[cfg(feature = "verilator")]
mod models {
    use std::path::{Path, PathBuf};
    use std::process::Command;

    /// Files below `rtl`.
    type Files = &'static [&'static [&'static str]];
    /// A model: its name, its top module, its parameters, its files.
    type Row = (&'static str, &'static str, &'static [&'static str], Files);

    struct Model {
        prefix: &'static str,
        top: &'static str,
        parameters: Vec<String>,
        files: Files,
    }

    const PACKAGES: &[&str] = &["common/engine_pkg", "tx/tx_pkg"];
    const NARROW: &[&str] = &["crc/crc_pkg", "crc/crc_unit", "crc/crc_loader"];
    const WIDE: &[&str] = &["crc/crc_wide"];
    const CREDIT: &[&str] = &["common/credit_fifo", "common/front_fifo", "common/credit_sender"];
    const RX: &[&str] = &["rx/rx_pkg", "rx/rx_scout", "rx/rx_poly", "rx/rx_check", "rx/rx_packet"];

    const BUFFER: &[&str] = &["rx/rx_buffer", "rx/rx_checked"];

    /// What `RX` and `TX` share.
    const SHARED: &[&str] = &["common/to_lanes", "common/stream_window", "crc/beat_crc", "crc/crc_pair"];

    const TX: &[&str] = &[
        "common/engine_pkg",
        "tx/tx_pkg",
        "common/sweep_queue",
        "tx/tx_pack",
        "tx/tx_segment",
        "tx/tx_buffer",
        "tx/tx_fetch",
        "tx/tx_generator",
        "tx/tx",
    ];

    const SNACK: &[&str] = &["snack/snack_pkg", "snack/snack_table"];

    const PLACEMENT: &[&str] = &[
        "rx/rx_feed",
        "rx/rx_move",
        "rx/rx_walk",
        "rx/task_table",
        "rx/task_store",
        "rx/rx_route",
        "rx/rx_recover",
        "rx/rx_engine",
    ];

    const ENGINE: &[&str] =
        &["engine/engine_control", "engine/raw_store", "engine/mem_share", "engine/engine_tx"];

    const WHOLE: Files =
        &[NARROW, WIDE, CREDIT, SHARED, RX, BUFFER, TX, SNACK, PLACEMENT, ENGINE, &["engine/engine"]];

    const MODELS: &[Row] = &[
        ("Vcrc64", "crc64", &[], &[NARROW, &["crc/crc64"]]),
        ("Vcrc64_of_5", "crc64", &["Index=5"], &[NARROW, &["crc/crc64"]]),
        ("Vcrc_wide_crc32c", "crc_wide", &["Poly=32'h82f63b78"], &[&["crc/crc_pkg"], WIDE]),
        ("Vcrc_wide_crc32", "crc_wide", &["Poly=32'hedb88320"], &[&["crc/crc_pkg"], WIDE]),
        ("Vcrc_wide_koopman", "crc_wide", &["Poly=32'heb31d82e"], &[&["crc/crc_pkg"], WIDE]),
        ("Vcrc_wide_of_4", "crc_wide", &["Sum=4"], &[&["crc/crc_pkg"], WIDE]),
        ("Vcrc_wide_1024", "crc_wide", &["Sum=4", "Bits=1024"], &[&["crc/crc_pkg"], WIDE]),
        ("Vcrc_wide_2048", "crc_wide", &["Sum=4", "Bits=2048"], &[&["crc/crc_pkg"], WIDE]),
        ("Vcredit_link", "credit_link", &[], &[CREDIT, &["common/credit_link"]]),
        ("Vguard64", "guard", &["Bytes=8"], &[&["crc/crc_pkg", "crc/guard"]]),
        ("Vguard512", "guard", &["Bytes=64"], &[&["crc/crc_pkg", "crc/guard"]]),
        ("Vtask_table", "task_table", &["Entries=16"], &[&["rx/task_table"]]),
        ("Vrx_packet64", "rx_packet", &["Bytes=8"], &[NARROW, WIDE, CREDIT, SHARED, RX]),
        ("Vrx_packet512", "rx_packet", &["Bytes=64"], &[NARROW, WIDE, CREDIT, SHARED, RX]),
        (
            "Vrx_checked64",
            "rx_checked",
            &["Bytes=8", "BufferBytes=4096"],
            &[NARROW, WIDE, CREDIT, SHARED, RX, BUFFER],
        ),
        (
            "Vrx_checked512",
            "rx_checked",
            &["Bytes=64", "BufferBytes=65536"],
            &[NARROW, WIDE, CREDIT, SHARED, RX, BUFFER],
        ),
        ("Vsnack_table", "snack_table", &["Entries=256"], &[&["common/sweep_queue"], SNACK]),
        ("Vengine64", "engine", &["Bytes=8", "BufferBytes=4096", "Elements=65536"], WHOLE),
        ("Vengine512", "engine", &["Bytes=64", "BufferBytes=65536", "Elements=65536"], WHOLE),
        (
            "Vengine_tx64",
            "engine_tx",
            &["Bytes=8", "BufferBytes=4096"],
            &[NARROW, WIDE, CREDIT, SHARED, TX, ENGINE],
        ),
        (
            "Vengine_tx512",
            "engine_tx",
            &["Bytes=64", "BufferBytes=65536"],
            &[NARROW, WIDE, CREDIT, SHARED, TX, ENGINE],
        ),
        ("Vtx64", "tx", &["Bytes=8", "BufferBytes=4096", "R2ts=512"], &[NARROW, WIDE, CREDIT, SHARED, TX]),
        ("Vtx512", "tx", &["Bytes=64", "BufferBytes=65536", "R2ts=512"], &[NARROW, WIDE, CREDIT, SHARED, TX]),
        (
            "Vrx_engine64",
            "rx_engine",
            &["Bytes=8", "BufferBytes=4096", "Elements=1024"],
            &[PACKAGES, NARROW, WIDE, CREDIT, SHARED, RX, BUFFER, &["common/sweep_queue"], SNACK, PLACEMENT],
        ),
        (
            "Vrx_engine512",
            "rx_engine",
            &["Bytes=64", "BufferBytes=65536", "Elements=65536"],
            &[PACKAGES, NARROW, WIDE, CREDIT, SHARED, RX, BUFFER, &["common/sweep_queue"], SNACK, PLACEMENT],
        ),
    ];

    /// The engines as they are synthesised: a model, and its parameters in `rtl/ecp5.json`.
    const SYNTHESISED: [(&str, &str); 2] =
        [("Vengine64_ecp5", "engine_64"), ("Vengine512_ecp5", "engine_512")];

    /// Set where the code is only checked: then nothing is translated, so no tool is needed, and nothing can be linked.
    const UNLINKED: &str = "OFFLOAD_RTL_UNLINKED";

    pub fn build() {
        println!("cargo::rerun-if-env-changed={UNLINKED}");
        if std::env::var_os(UNLINKED).is_some() {
            return;
        }
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        assert!(
            root.join("rtl/engine").is_dir(),
            "the feature verilator needs a clone of the project, with rtl/"
        );
        let verilator = find_verilator(&root);
        let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
        println!("cargo::rerun-if-changed=shim");
        for folder in ["crc", "common", "engine", "rx", "snack", "tx"] {
            println!("cargo::rerun-if-changed={}", root.join("rtl").join(folder).display());
        }
        for file in ["requirements.txt", "ecp5.json"] {
            println!("cargo::rerun-if-changed={}", root.join("rtl").join(file).display());
        }
        let models = models(&root);
        for model in &models {
            build_model(&root, &verilator, &out.join(model.prefix), model);
        }
        let mut library = compiler(&verilator);
        library.includes(models.iter().map(|model| out.join(model.prefix)));
        for file in ["verilated.cpp", "verilated_threads.cpp", "verilated_fst_c.cpp"] {
            library.file(verilator.join("include").join(file));
        }
        library.file("shim/shim.cpp").compile("offload_rtl_models");
        // A waveform is packed by them.
        println!("cargo::rustc-link-lib=lz4\ncargo::rustc-link-lib=z");
    }

    fn models(root: &Path) -> Vec<Model> {
        let text = std::fs::read_to_string(root.join("rtl/ecp5.json")).expect("rtl/ecp5.json is readable");
        let engines: serde_json::Value = serde_json::from_str(&text).expect("rtl/ecp5.json is JSON");
        let synthesised = SYNTHESISED.into_iter().map(|(prefix, name)| {
            let parameters = engines[name].as_object().expect("an engine of rtl/ecp5.json");
            let parameters = parameters.iter().map(|(name, value)| format!("{name}={value}")).collect();
            Model { prefix, top: "engine", parameters, files: WHOLE }
        });
        let plain = MODELS.iter().map(|&(prefix, top, parameters, files)| Model {
            prefix,
            top,
            parameters: parameters.iter().map(ToString::to_string).collect(),
            files,
        });
        plain.chain(synthesised).collect()
    }

    fn compiler(verilator: &Path) -> cc::Build {
        let mut library = cc::Build::new();
        // Nobody steps through a translated circuit. What a debugger wants made the build half as long again, and the models three times as large.
        library.cpp(true).std("c++17").opt_level(1).warnings(false).debug(false);
        library.include(verilator.join("include")).include(verilator.join("include/vltstd"));
        library.define("VL_TIME_CONTEXT", None).define("VM_TRACE", "1").define("VM_TRACE_FST", "1");
        library
    }

    /// Makes the library of a model in `folder`, unless it is there and was made from the same things.
    fn build_model(root: &Path, verilator: &Path, folder: &Path, model: &Model) {
        let sources: Vec<PathBuf> =
            model.files.iter().copied().flatten().map(|file| root.join(format!("rtl/{file}.sv"))).collect();
        let translation = translation(verilator, folder, model, &sources);
        let mut library = compiler(verilator);
        let read = |path: &PathBuf| std::fs::read_to_string(path).expect("a source of rtl/ is readable");
        // Without the environment: it differs from run to run, and does not belong into a file.
        let with = library.get_compiler();
        let mut made_from = format!("{translation:?}\n{:?} {:?}\n", with.path(), with.args());
        made_from.extend(sources.iter().map(read));
        made_from += &read(&root.join("rtl/requirements.txt"));
        let stamp = folder.join("made-from");
        if !std::fs::read_to_string(&stamp).is_ok_and(|before| before == made_from) {
            translate(translation, folder);
            library.include(folder).files(generated(folder)).out_dir(folder).cargo_metadata(false);
            library.compile(model.prefix);
            std::fs::write(stamp, made_from).expect("the folder of the model is writable");
        }
        println!("cargo::rustc-link-search=native={}", folder.display());
        println!("cargo::rustc-link-lib=static={}", model.prefix);
    }

    /// The folder of the package: it has `bin` and `include`.
    fn find_verilator(root: &Path) -> PathBuf {
        println!("cargo::rerun-if-env-changed=VERILATOR_ROOT");
        if let Some(folder) = std::env::var_os("VERILATOR_ROOT") {
            return folder.into();
        }
        let versions = std::fs::read_dir(root.join("target/rtl-tools/lib")).into_iter().flatten().flatten();
        let mut folders = versions.map(|python| python.path().join("site-packages/verilator"));
        folders
            .find(|folder| folder.join("bin/verilator_bin").exists())
            .expect("there is no Verilator: run scripts/setup.sh rtl, or set VERILATOR_ROOT")
    }

    fn translation(verilator: &Path, folder: &Path, model: &Model, sources: &[PathBuf]) -> Command {
        let mut command = Command::new(verilator.join("bin/verilator_bin"));
        command.env("VERILATOR_ROOT", verilator);
        command.args(["--cc", "-Wall", "-O3", "--assert", "--x-assign", "unique", "--x-initial", "unique"]);
        command.args(["--prefix", model.prefix, "--top-module", model.top]).arg("--Mdir").arg(folder);
        // An engine can write a waveform.
        if model.top == "engine" {
            command.args(["--trace-fst", "--trace-structs"]);
        }
        command.args(model.parameters.iter().map(|parameter| format!("-G{parameter}"))).args(sources);
        command
    }

    fn translate(mut translation: Command, folder: &Path) {
        // A source of an earlier translation would be linked too.
        let _ = std::fs::remove_dir_all(folder);
        let status = translation.status().expect("Verilator starts");
        assert!(status.success(), "Verilator refuses {}: its words are above", folder.display());
    }

    fn generated(folder: &Path) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folder).expect("Verilator made the folder");
        let paths = entries.flatten().map(|entry| entry.path());
        let mut sources: Vec<_> =
            paths.filter(|path| path.extension().is_some_and(|end| end == "cpp")).collect();
        sources.sort();
        sources
    }
}
