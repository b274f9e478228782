//! What a reader needs to judge a figure: processor, kernel, compiler, commit.

use std::fs;

use serde::Serialize;

/// Instructions that checksums use, as `/proc/cpuinfo` calls them.
const FEATURES: &[&str] = &[
    "sse4_2",
    "pclmulqdq",
    "avx2",
    "avx512f",
    "avx512bw",
    "avx512vl",
    "vpclmulqdq",
    "gfni",
    "crc32",
    "pmull",
    "sve2",
];

/// The machine and the program.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// The name of the processor.
    pub cpu: String,
    /// Processors that the program may use.
    pub cpus: usize,
    /// Under a hypervisor, as far as the processor says.
    pub virtual_machine: bool,
    /// Of those that checksums use.
    pub features: Vec<String>,
    /// Operating system and its release.
    pub kernel: String,
    /// What `rustc --version` said.
    pub compiler: &'static str,
    /// The level of optimisation of the build: `0` to `3`, `s`, `z`.
    pub opt_level: &'static str,
    /// The version of the program.
    pub version: &'static str,
    /// The commit that it was built from; `unknown` without git.
    pub commit: &'static str,
}

impl Machine {
    /// Asks the kernel, and the build.
    pub fn this() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let flags = flags(&cpuinfo);
        Self {
            cpu: cpu(&cpuinfo),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            virtual_machine: flags.contains(&"hypervisor"),
            features: FEATURES.iter().filter(|f| flags.contains(f)).map(|&f| f.to_owned()).collect(),
            kernel: format!("Linux {}", release.trim()),
            compiler: env!("INTACT_COMPILER"),
            opt_level: env!("INTACT_OPT_LEVEL"),
            version: env!("CARGO_PKG_VERSION"),
            commit: env!("INTACT_COMMIT"),
        }
    }

    /// Whether the program was built to be fast.
    pub fn optimised(&self) -> bool {
        matches!(self.opt_level, "2" | "3")
    }

    /// Names and values, for people.
    pub fn facts(&self) -> Vec<(&'static str, String)> {
        let guest = if self.virtual_machine { ", virtual" } else { "" };
        vec![
            ("processor", format!("{}, {} usable{guest}", self.cpu, self.cpus)),
            ("instructions", self.features.join(" ")),
            ("kernel", self.kernel.clone()),
            ("compiler", format!("{}, opt-level {}", self.compiler, self.opt_level)),
            ("intact", format!("{}, commit {}", self.version, self.commit)),
        ]
    }
}

fn field<'a>(cpuinfo: &'a str, name: &str) -> Option<&'a str> {
    cpuinfo
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| key.trim() == name)
        .map(|(_, v)| v.trim())
}

/// x86 names its models; ARM gives numbers.
fn cpu(cpuinfo: &str) -> String {
    let part = || Some(format!("CPU part {}", field(cpuinfo, "CPU part")?));
    field(cpuinfo, "model name").map(str::to_owned).or_else(part).unwrap_or_else(|| "unknown".to_owned())
}

fn flags(cpuinfo: &str) -> Vec<&str> {
    field(cpuinfo, "flags")
        .or_else(|| field(cpuinfo, "Features"))
        .unwrap_or_default()
        .split_whitespace()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_cpuinfo_are_understood() {
        let intel = "processor\t: 0\nmodel name\t: Some CPU @ 1GHz\nflags\t\t: fpu sse4_2 hypervisor\n";
        assert_eq!(
            (cpu(intel), flags(intel)),
            ("Some CPU @ 1GHz".to_owned(), vec!["fpu", "sse4_2", "hypervisor"])
        );
        let arm = "processor\t: 0\nFeatures\t: fp crc32 pmull\nCPU part\t: 0xd03\n";
        assert_eq!((cpu(arm), flags(arm)), ("CPU part 0xd03".to_owned(), vec!["fp", "crc32", "pmull"]));
        assert_eq!((cpu(""), flags("").len()), ("unknown".to_owned(), 0));
    }

    #[test]
    fn the_build_says_who_made_it() {
        let machine = Machine::this();
        assert!(machine.compiler.starts_with("rustc "), "{}", machine.compiler);
        assert!(machine.facts().iter().all(|(name, _)| !name.is_empty()));
    }
}
