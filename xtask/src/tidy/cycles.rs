//! Files that import each other, directly or over others: whoever reads one of them must read all. How many files of a crate are in
//! such cycles is in `xtask/ratchets.toml`, and may only fall. A file that only re-exports what another one has does not depend on it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::Finding;
use crate::rust_source::{SourceFile, join_paths};

/// A module of a crate, by its path in it; the root is empty.
type Module = Vec<String>;

/// Which modules a module imports from.
type Graph = BTreeMap<Module, BTreeSet<Module>>;

/// How many files of each crate are in cycles, with a description of these.
pub fn files_in_cycles(sources: &[SourceFile]) -> BTreeMap<String, (usize, String)> {
    let mut crates: BTreeMap<String, Vec<&SourceFile>> = BTreeMap::new();
    for file in sources {
        if let Some((name, _)) = module_of(&file.path) {
            crates.entry(name).or_default().push(file);
        }
    }
    let mut found = BTreeMap::new();
    for (name, files) in crates {
        let cycles = cycles(&graph(&files));
        if !cycles.is_empty() {
            let words: Vec<String> = cycles.iter().map(|cycle| describe(cycle)).collect();
            found.insert(name, (cycles.iter().map(Vec::len).sum(), words.join("; ")));
        }
    }
    found
}

/// Compares with the committed figures.
pub fn check(file: &Path, ceilings: &BTreeMap<String, usize>, sources: &[SourceFile]) -> Vec<Finding> {
    let found = files_in_cycles(sources);
    let mut findings = Vec::new();
    let mut say = |name: &str, text: String| findings.push(Finding::error(Path::new(name), 0, text));
    for (name, (count, words)) in &found {
        let most = ceilings.get(name).copied().unwrap_or(0);
        match count.cmp(&most) {
            std::cmp::Ordering::Greater => {
                say(
                    name,
                    format!(
                        "{count} files import each other, at most {most}: move what they share into a file of its own ({words})"
                    ),
                );
            }
            std::cmp::Ordering::Less => {
                say(
                    name,
                    format!(
                        "{count} files import each other, fewer than before: lower it in {}",
                        file.display()
                    ),
                );
            }
            std::cmp::Ordering::Equal => {}
        }
    }
    for name in ceilings.keys().filter(|name| !found.contains_key(*name)) {
        say(name, format!("no files import each other any more: take it out of {}", file.display()));
    }
    findings
}

fn describe(cycle: &[Module]) -> String {
    let name = |module: &Module| if module.is_empty() { "lib".to_owned() } else { module.join("::") };
    cycle.iter().map(name).collect::<Vec<_>>().join(", ")
}

/// The crate and the module of a product file.
fn module_of(path: &Path) -> Option<(String, Module)> {
    let mut words: Vec<String> =
        path.with_extension("").iter().map(|word| word.to_string_lossy().into_owned()).collect();
    if words.len() < 4 || words[0] != "crates" || words[2] != "src" {
        return None;
    }
    let mut module = words.split_off(3);
    if matches!(module.last().map(String::as_str), Some("mod" | "lib" | "main")) {
        module.pop();
    }
    Some((words[..2].join("/"), module))
}

fn graph(files: &[&SourceFile]) -> Graph {
    let modules: BTreeSet<Module> = files.iter().filter_map(|file| Some(module_of(&file.path)?.1)).collect();
    let mut graph = Graph::new();
    for file in files.iter().filter(|file| file.source.lines.iter().any(|line| !line.test)) {
        let Some((_, module)) = module_of(&file.path) else { continue };
        let paths = paths_in(file);
        let targets = paths.iter().filter_map(|path| resolve(&modules, &module, path));
        graph.insert(module.clone(), targets.filter(|target| *target != module).collect());
    }
    graph
}

/// The paths into the file's own crate that product code of the file names, but for re-exports.
fn paths_in(file: &SourceFile) -> BTreeSet<String> {
    let lines = &file.source.lines;
    let is_code = |number: usize| !lines[number].test && !lines[number].code.trim_start().starts_with("pub");
    let imports = file.source.imports().into_iter().filter(|(number, _)| is_code(*number));
    let mut paths: BTreeSet<String> = imports.map(|(_, path)| path).collect();
    for line in lines.iter().filter(|line| !line.test && !line.code.contains("use ")) {
        let code = join_paths(&line.code);
        let words = code.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'));
        paths.extend(words.filter(|word| word.contains("::")).map(str::to_owned));
    }
    paths
}

/// The module of the crate that `path` leads to, as seen from `from`.
fn resolve(modules: &BTreeSet<Module>, from: &Module, path: &str) -> Option<Module> {
    let mut words = path.split("::").peekable();
    let mut module = match words.peek()? {
        &"crate" => Vec::new(),
        &"self" | &"super" => from.clone(),
        _ => return None,
    };
    while let Some(word) = words.next_if(|word| matches!(*word, "crate" | "self" | "super")) {
        if word == "super" {
            module.pop();
        }
    }
    module.extend(words.map(str::to_owned));
    while !modules.contains(&module) {
        module.pop()?;
    }
    Some(module)
}

/// The groups of modules of which each leads to all others, in order.
fn cycles(graph: &Graph) -> Vec<Vec<Module>> {
    let reach: BTreeMap<&Module, BTreeSet<&Module>> =
        graph.keys().map(|module| (module, reachable(graph, module))).collect();
    let mut cycles: Vec<Vec<Module>> = Vec::new();
    for module in graph.keys().filter(|module| reach[module].contains(module)) {
        if cycles.iter().any(|cycle| cycle.contains(module)) {
            continue;
        }
        let back = |other: &&&Module| reach.get(**other).is_some_and(|reach| reach.contains(module));
        cycles.push(reach[module].iter().filter(back).map(|other| (*other).clone()).collect());
    }
    cycles
}

fn reachable<'a>(graph: &'a Graph, from: &Module) -> BTreeSet<&'a Module> {
    let mut seen = BTreeSet::new();
    let mut next: Vec<&Module> = graph[from].iter().collect();
    while let Some(module) = next.pop() {
        if seen.insert(module) {
            next.extend(graph.get(module).into_iter().flatten());
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::rust_source::RustSource;

    fn file(path: &str, text: &str) -> SourceFile {
        SourceFile { path: PathBuf::from(path), source: RustSource::parse(text, false) }
    }

    /// Two files that name each other, over a third one; what tests name, and what a parent re-exports, does not count.
    #[test]
    fn a_cycle_is_found_over_other_files_and_not_by_reexports_or_tests() {
        let files = [
            file("crates/a/src/lib.rs", "mod b;\nmod c;\npub use b::B;\nuse c::d::D;\n"),
            file("crates/a/src/b.rs", "use super::c::{\n    C, d::D,\n};\npub struct B;\n"),
            file(
                "crates/a/src/c/mod.rs",
                "mod d;\npub struct C;\n#[cfg(test)]\nmod tests {\n    use crate::b::B;\n}\n",
            ),
            file("crates/a/src/c/d.rs", "fn d() -> crate::e::E {\n    todo()\n}\n"),
            file("crates/a/src/e.rs", "use crate::b::B;\n"),
            file("crates/z/src/b.rs", "use crate::e::E;\n"),
        ];
        let found = files_in_cycles(&files);
        assert_eq!(found.keys().collect::<Vec<_>>(), ["crates/a"]);
        assert_eq!(found["crates/a"], (3, "b, c::d, e".to_owned()));
    }

    #[test]
    fn a_figure_may_fall_and_not_rise() {
        let files = [
            file("crates/a/src/b.rs", "use crate::c::C;\n"),
            file("crates/a/src/c.rs", "use crate::b::B;\n"),
        ];
        let say = |ceiling: Option<usize>, files: &[SourceFile]| {
            let ceilings = ceiling.map(|ceiling| ("crates/a".to_owned(), ceiling)).into_iter().collect();
            check(Path::new("x.toml"), &ceilings, files).pop().map(|finding| finding.text)
        };
        assert_eq!(say(Some(2), &files), None);
        assert!(say(None, &files).is_some_and(|text| text.contains("at most 0")));
        assert!(say(Some(3), &files).is_some_and(|text| text.contains("lower it")));
        assert!(say(Some(2), &files[..1]).is_some_and(|text| text.contains("take it out")));
        assert_eq!(say(None, &files[..1]), None);
    }
}
