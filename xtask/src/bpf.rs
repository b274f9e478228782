//! `cargo xtask bpf`: rebuilds the object of the BPF programs in `crates/tcp-crc-shim/bpf`. It is kept in the repository, so that clang
//! is only needed to change the programs.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

const FOLDER: &str = "crates/tcp-crc-shim/bpf";
/// In the order in which a test reads them.
const SOURCES: [&str; 4] = ["state.h", "segment.h", "flow.h", "tcp_crc.bpf.c"];
const OBJECT: &str = "tcp_crc.bpf.o";

/// Builds the object.
pub fn run(root: &Path) -> Result<bool> {
    let folder = root.join(FOLDER);
    let mut crc = 0;
    for name in SOURCES {
        let text = std::fs::read(folder.join(name)).with_context(|| format!("{FOLDER}/{name}"))?;
        crc = crc32c::crc32c_append(crc, &text);
    }
    let missing = "`clang` and `llvm-strip` are needed; on Debian: apt-get install clang llvm libbpf-dev";
    let compiled = Command::new("clang")
        .args(["-g", "-O2", "-target", "bpf", "-mcpu=v3", "-Wall", "-Wextra", "-Werror"])
        // Debian keeps <asm/types.h> in an architecture-specific folder.
        .arg(format!("-I/usr/include/{}-linux-gnu", std::env::consts::ARCH))
        // Keeps paths of this machine out of the object.
        .args(["-fdebug-compilation-dir=.", "-c", SOURCES[3], "-o", OBJECT])
        .arg(format!("-DSOURCE_CRC32C=\"{crc:08x}\""))
        .current_dir(&folder)
        .status()
        .context(missing)?;
    ensure!(compiled.success(), "clang refused; {missing}");
    // The verifier needs BTF; DWARF is not needed.
    let stripped = Command::new("llvm-strip").args(["-g", OBJECT]).current_dir(&folder).status();
    ensure!(stripped.context(missing)?.success(), "llvm-strip refused");
    println!("{FOLDER}/{OBJECT} is of the source with CRC32C {crc:08x}");
    Ok(true)
}
