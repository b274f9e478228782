//! `cargo xtask mutants`: plants faults in the crates of the data path, and reports those that no test notices.
//!
//! cargo-mutants lists the faults. All of them are compiled at once, each behind a switch (`rewrite`), so that a fault costs a run of
//! the tests and no build. The tests of the crate in which it stands are run first, and those of the crates above on what passes.
//! Faults that cannot be written so are tried as cargo-mutants does, with a build each (`rest`).
//!
//! A campaign of hours, which goes on where it was; it is no step of the gate. Known survivors are listed in
//! `conformance/mutants.toml`, each with the reason why no test can or need notice it.

mod blame;
mod known;
mod list;
mod record;
mod rest;
mod rewrite;
mod tree;
mod trial;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use crate::workspace::{package_named, short};
use known::Known;
use list::Fault;
use record::{Entry, Record, Score, Verdict, share};
use tree::{Planted, TestProgram, Tree};
use trial::{Ended, Limits};

/// The crates that carry data from the wire to the medium.
const CRATES: [&str; 7] = ["iscsi-core", "scsi", "blockstore", "engine", "payload", "lun", "target"];
/// Their tests run complete sessions through all the other crates: on sockets, in the simulator, and by the rows of the standard.
const ABOVE: [&str; 4] = ["target", "initiator", "sim", "conform"];
/// A fault counts as noticed when it keeps tests busy for longer than this, and besides for ten times the time that they take without
/// one, or four times as much of the processors.
const LIMIT: Limits = Limits { clock: Duration::from_secs(60), processor: Duration::from_secs(10) };
/// For the tests without a fault.
const AMPLE: Limits = Limits { clock: Duration::from_secs(1800), processor: Duration::from_secs(1800) };

#[derive(clap::Args)]
pub struct Args {
    /// Crates to plant faults in; by default all of the data path
    pub crates: Vec<String>,
    /// Number of faults to try, chosen at random; by default all
    #[arg(long, value_name = "NUMBER")]
    pub sample: Option<usize>,
    /// Decides which faults are chosen, and in which order they are tried
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Number of faults tried at a time
    #[arg(long, default_value_t = 2)]
    pub jobs: usize,
    /// Leave out the tests of the crates above
    #[arg(long)]
    pub own: bool,
    /// Try also the faults that need a build each
    #[arg(long)]
    pub rest: bool,
    /// Try nothing: count what was found out so far
    #[arg(long)]
    pub score: bool,
}

/// Runs a campaign; `false` when a fault survived that is not known.
pub fn run(root: &Path, args: &Args) -> Result<bool> {
    let crates = crates_of(&args.crates)?;
    list::installed()?;
    let known = Known::read(&root.join(known::FILE))?;
    let folder = root.join("target/mutants");
    std::fs::create_dir_all(&folder)?;
    let tree = Tree::new(folder.join("tree"), folder.join("build"));
    let commit = tree.check_out(root)?;
    // Always all of them: their numbers are the positions in the list.
    let faults = list::all(root, &CRATES)?;
    let planted = tree.plant(&faults, &folder.join("planted.json"))?;
    let of_crates: BTreeSet<String> = crates.iter().map(|name| package_named(name)).collect();
    let wanted = (1..).zip(&faults).filter(|(_, fault)| of_crates.contains(&fault.package));
    let sample = list::sample(wanted, args.sample, args.seed);
    let record = Mutex::new(Record::open(&folder.join("results.jsonl"))?);
    let campaign =
        Campaign { faults: &faults, planted: &planted, sample, record, commit, jobs: args.jobs.max(1) };
    if !args.score {
        campaign.switched(&tree, &known, args.own)?;
        if args.rest {
            campaign.rest(root, &folder, args.own)?;
        }
    }
    Ok(campaign.report(&known))
}

fn crates_of(names: &[String]) -> Result<Vec<&'static str>> {
    if let Some(unknown) = names.iter().find(|name| !CRATES.contains(&name.as_str())) {
        bail!("no faults are planted in `{unknown}`; in: {}", CRATES.join(", "));
    }
    let wanted = |name: &&str| names.is_empty() || names.iter().any(|wanted| wanted == name);
    Ok(CRATES.into_iter().filter(wanted).collect())
}

/// The tests of a build, those of the fault's own crate if none are named, and what their answers mean.
struct By<'a> {
    tests_of: &'a [String],
    noticed: Verdict,
    passed: Verdict,
}

struct Campaign<'a> {
    faults: &'a [Fault],
    planted: &'a Planted,
    /// The numbers of the faults to try, in this order.
    sample: Vec<u32>,
    record: Mutex<Record>,
    commit: String,
    jobs: usize,
}

/// A program of tests, with the time after which it is ended.
struct Tests {
    program: TestProgram,
    limits: Limits,
}

impl Campaign<'_> {
    fn fault(&self, number: u32) -> &Fault {
        &self.faults[number as usize - 1]
    }

    fn record(&self) -> std::sync::MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, fault: &str, verdict: Verdict, by: String) -> Result<()> {
        let mut record = self.record();
        // It survived more than these tests; that it did is not forgotten.
        if verdict == Verdict::PassedOwn && record.verdict(fault) == Some(Verdict::Survived) {
            return Ok(());
        }
        record.add(Entry { fault: fault.to_owned(), verdict, by, commit: self.commit.clone() })
    }

    /// The numbers of the sample's faults for which this is true.
    fn those(&self, wanted: impl Fn(u32, &Fault) -> bool) -> Vec<u32> {
        self.sample.iter().copied().filter(|&number| wanted(number, self.fault(number))).collect()
    }

    /// Tries the faults that have a switch.
    fn switched(&self, tree: &Tree, known: &Known, own_alone: bool) -> Result<()> {
        let switched = |number: u32| self.planted.switched.contains(&number);
        let own = self
            .those(|number, fault| switched(number) && self.record().wants_own(&fault.name, &self.commit));
        let packages: BTreeSet<&str> =
            own.iter().map(|&number| self.fault(number).package.as_str()).collect();
        let tests = self.tests(tree, packages)?;
        self.each(&own, |number| {
            let fault = self.fault(number);
            let (verdict, by) = try_fault(number, tests.get(&fault.package).into_iter().flatten())?
                .unwrap_or((Verdict::PassedOwn, String::new()));
            self.add(&fault.name, verdict, by)
        })?;
        if own_alone {
            return Ok(());
        }
        let (known, above): (Vec<u32>, Vec<u32>) = self
            .those(|number, fault| switched(number) && self.record().wants_above(&fault.name, &self.commit))
            .into_iter()
            .partition(|&number| known.contains(&self.fault(number).name));
        // That no test notices them is written down: the time is better spent on others.
        for number in known {
            self.add(&self.fault(number).name, Verdict::Survived, String::new())?;
        }
        if above.is_empty() {
            return Ok(());
        }
        let packages: Vec<String> = ABOVE.into_iter().map(package_named).collect();
        let tests = self.tests(tree, packages.iter().map(String::as_str).collect())?;
        self.each(&above, |number| {
            let fault = self.fault(number);
            let others = tests.iter().filter(|(package, _)| **package != fault.package);
            let mut others: Vec<&Tests> = others.flat_map(|(_, tests)| tests).collect();
            others.sort_by_key(|tests| tests.limits);
            match try_fault(number, others)? {
                Some((Verdict::Caught, by)) => self.add(&fault.name, Verdict::CaughtAbove, by),
                Some((verdict, by)) => self.add(&fault.name, verdict, by),
                None => self.add(&fault.name, Verdict::Survived, String::new()),
            }
        })
    }

    /// The tests of packages, the quick ones first. They pass without a fault.
    fn tests(&self, tree: &Tree, packages: BTreeSet<&str>) -> Result<BTreeMap<String, Vec<Tests>>> {
        if packages.is_empty() {
            return Ok(BTreeMap::new());
        }
        let mut tests: BTreeMap<String, Vec<Tests>> = BTreeMap::new();
        for program in tree.tests(packages)? {
            let started = Instant::now();
            let ended = trial::run(&program, 0, AMPLE)?;
            ensure!(
                ended == Ended::Passed,
                "{} of {} without a fault: {ended:?}",
                program.name,
                program.package
            );
            let taken = started.elapsed();
            let limits = Limits { clock: LIMIT.clock + taken * 10, processor: LIMIT.processor + taken * 4 };
            tests.entry(program.package.clone()).or_default().push(Tests { program, limits });
        }
        for tests in tests.values_mut() {
            tests.sort_by_key(|tests| tests.limits);
        }
        Ok(tests)
    }

    /// Does something for every fault, some at a time.
    fn each(&self, numbers: &[u32], f: impl Fn(u32) -> Result<()> + Sync) -> Result<()> {
        let next = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            let work = || -> Result<()> {
                while let Some(&number) = numbers.get(next.fetch_add(1, Ordering::Relaxed)) {
                    // After an error the others need not go on for hours.
                    f(number).inspect_err(|_| next.store(numbers.len(), Ordering::Relaxed))?;
                }
                Ok(())
            };
            let threads: Vec<_> = (0..self.jobs).map(|_| scope.spawn(work)).collect();
            threads.into_iter().try_for_each(|thread| thread.join().expect("no panic is caught here"))
        })
    }

    /// Tries the faults that need a build each.
    fn rest(&self, root: &Path, folder: &Path, own_alone: bool) -> Result<()> {
        let output = |what: &str| folder.join(format!("rest-{what}-{}", self.commit));
        let wanted = |wants: fn(&Record, &str, &str) -> bool| {
            self.those(|number, fault| {
                !self.planted.switched.contains(&number)
                    && !self.planted.no_program.contains(&number)
                    && wants(&self.record(), &fault.name, &self.commit)
            })
        };
        let own = By { tests_of: &[], noticed: Verdict::Caught, passed: Verdict::PassedOwn };
        self.by_builds(root, &output("own"), own, || wanted(Record::wants_own))?;
        if own_alone {
            return Ok(());
        }
        let packages = ABOVE.map(package_named);
        let above = By { tests_of: &packages, noticed: Verdict::CaughtAbove, passed: Verdict::Survived };
        self.by_builds(root, &output("above"), above, || wanted(Record::wants_above))
    }

    fn by_builds(&self, root: &Path, output: &Path, by: By<'_>, wanted: impl Fn() -> Vec<u32>) -> Result<()> {
        let take = || -> Result<()> {
            let open: BTreeSet<&str> =
                wanted().into_iter().map(|number| self.fault(number).name.as_str()).collect();
            for (fault, verdict) in rest::results(output, by.noticed, by.passed)? {
                if open.contains(fault.as_str()) {
                    self.add(&fault, verdict, "cargo mutants".to_owned())?;
                }
            }
            Ok(())
        };
        // What an interrupted run has left.
        take()?;
        let faults: Vec<&Fault> = wanted().into_iter().map(|number| self.fault(number)).collect();
        rest::plant(root, output, &faults, by.tests_of)?;
        take()
    }

    /// Reports the results; `false` when a fault survived that is not known.
    fn report(&self, known: &Known) -> bool {
        let mut score = Score::default();
        let mut rest = Score::default();
        for &number in &self.sample {
            let name = &self.fault(number).name;
            let verdict = self.record().verdict(name);
            if self.planted.no_program.contains(&number) {
                score.count(name, Some(Verdict::NoProgram));
            } else if self.planted.switched.contains(&number) {
                score.count(name, verdict);
            } else {
                rest.count(name, verdict);
            }
        }
        let mut all_known = true;
        for fault in score.survived.iter().chain(&rest.survived).filter(|fault| !known.contains(fault)) {
            println!("survived: {fault}");
            all_known = false;
        }
        println!("mutants: {} of {} faults at {}", self.sample.len(), self.faults.len(), &self.commit[..7]);
        println!("with a switch: {}", words(&score, known));
        println!("with a build each: {}", words(&rest, known));
        if !all_known {
            println!(
                "mutants: write a test that fails with each, or enter it in {} with the reason",
                known::FILE
            );
        }
        all_known
    }
}

/// Runs tests with a fault until some notice it.
fn try_fault<'a>(
    number: u32,
    tests: impl IntoIterator<Item = &'a Tests>,
) -> Result<Option<(Verdict, String)>> {
    for Tests { program, limits } in tests {
        let by =
            |test: &str| format!("{} {} {test}", short(&program.package), program.name).trim_end().to_owned();
        match trial::run(program, number, *limits)? {
            Ended::Passed => {}
            Ended::Failed(test) => return Ok(Some((Verdict::Caught, by(&test)))),
            Ended::OutOfTime => return Ok(Some((Verdict::OutOfTime, by("")))),
        }
    }
    Ok(None)
}

fn words(score: &Score, known: &Known) -> String {
    let (percent, low, high) = share(score.noticed(), score.viable());
    let known = score.survived.iter().filter(|fault| known.contains(fault)).count();
    format!(
        "{} caught, {} caught by the crates above, {} out of time, {} survived ({known} of them known), {} passed the tests of their \
         crate alone, {} do not compile, {} not tried; noticed {} of {}: {percent:.1} % (95 %: {low:.1} to {high:.1})",
        score.caught,
        score.caught_above,
        score.out_of_time,
        score.survived.len(),
        score.half_tried,
        score.no_program,
        score.untried,
        score.noticed(),
        score.viable()
    )
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use list::{Genre, Place, Span};

    /// A crate with one function for each kind of fault, and its tests.
    const SOURCE: &str = r#"//! Toys.
pub fn larger(a: u32, b: u32) -> u32 {
    if a > b { a } else { b }
}
pub fn sum_to(n: u32) -> u32 {
    let (mut i, mut sum) = (0, 0);
    while i < n {
        i += 1;
        sum += i;
    }
    sum
}
pub fn is_even(n: u32) -> bool {
    !(n % 2 == 1)
}
pub fn both(a: bool, b: bool) -> bool {
    a && b
}
pub fn class(n: u32) -> u32 {
    match n {
        0 => 10,
        n if n > 5 => 20,
        _ => 30,
    }
}
#[derive(Default)]
pub struct Pair {
    pub a: u32,
    pub b: u32,
}
pub fn pair() -> Pair {
    Pair { a: 1, ..Default::default() }
}
pub fn opaque() -> Opaque {
    Opaque
}
pub struct Opaque;
pub const fn next(n: u32) -> u32 {
    n + 1
}
#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn numbers() {
        assert_eq!((larger(1, 2), larger(2, 1), sum_to(3)), (2, 2, 6));
        assert!(is_even(2) && !is_even(3));
        assert!(both(true, true) && !both(true, false));
    }
    #[test]
    fn values() {
        assert_eq!([class(0), class(6), class(1)], [10, 20, 30]);
        assert_eq!((pair().a, next(1)), (1, 2));
    }
}
"#;

    /// The fault where `text` is in the source, `at` bytes from its beginning.
    fn fault(genre: Genre, text: &str, at: usize, replacement: &str) -> Fault {
        let before = &SOURCE[..SOURCE.find(text).expect("in the source") + at];
        let line = before.matches('\n').count() + 1;
        let column = before.len() - before.rfind('\n').expect("a line before");
        Fault {
            name: format!("crates/toy/src/lib.rs:{line}:{column}: {genre:?} {replacement}"),
            package: "intact-toy".to_owned(),
            file: "crates/toy/src/lib.rs".into(),
            genre,
            replacement: replacement.to_owned(),
            span: Span { start: Place { line, column } },
        }
    }

    fn toy(folder: &Path) -> Tree {
        let write = |name: &str, text: &str| {
            let path = folder.join(name);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            std::fs::write(path, text).expect("written");
        };
        write("Cargo.toml", "[workspace]\nresolver = \"3\"\nmembers = [\"crates/*\"]\n");
        write(
            "crates/toy/Cargo.toml",
            "[package]\nname = \"intact-toy\"\nversion = \"0.1.0\"\nedition = \"2024\"\n",
        );
        write("crates/toy/src/lib.rs", SOURCE);
        write(".gitignore", "/build\n");
        for args in [
            &["init", "--quiet"][..],
            &["add", "."],
            &["-c", "user.name=t", "-c", "user.email=t@localhost", "commit", "--quiet", "--message", "toys"],
        ] {
            assert!(Command::new("git").args(args).current_dir(folder).status().expect("git").success());
        }
        Tree::new(folder.to_path_buf(), folder.join("build"))
    }

    #[test]
    fn a_fault_is_noticed_or_not_as_the_tests_say() {
        let folder = tempfile::tempdir().expect("a folder");
        let tree = toy(folder.path());
        let caught = [
            fault(Genre::BinaryOperator, "a > b", 2, "<"),
            fault(Genre::FnValue, "if a > b", 0, "7"),
            fault(Genre::UnaryOperator, "!(n % 2", 0, ""),
            fault(Genre::BinaryOperator, "n % 2", 2, "/"),
            fault(Genre::BinaryOperator, "a && b", 2, "||"),
            fault(Genre::MatchArm, "0 => 10", 0, ""),
            fault(Genre::MatchArm, "n if n > 5", 0, ""),
            fault(Genre::MatchArmGuard, "n > 5", 0, "true"),
            fault(Genre::MatchArmGuard, "n > 5", 0, "false"),
            fault(Genre::StructField, "a: 1", 0, ""),
        ];
        let survivor = fault(Genre::BinaryOperator, "a > b", 2, ">=");
        let endless = fault(Genre::BinaryOperator, "i += 1", 2, "*=");
        let no_program = fault(Genre::FnValue, "Opaque\n}", 0, "Default::default()");
        let no_switch = fault(Genre::BinaryOperator, "n + 1", 2, "-");
        let noticed = caught.len() as u32;
        let faults = [&caught[..], &[survivor, endless, no_program, no_switch]].concat();
        let record = folder.path().join("build.json");
        let planted = tree.plant(&faults, &record).expect("it compiles at last");
        assert_eq!(planted.switched, (1..=noticed + 2).collect());
        assert_eq!(planted.no_program, [noticed + 3].into());
        // The second time it is known what does not compile.
        let again = tree.plant(&faults, &record).expect("it compiles");
        assert_eq!((again.switched, again.no_program), (planted.switched, planted.no_program));

        let tests = tree.tests(["intact-toy"].into()).expect("built");
        assert_eq!(tests.len(), 1, "{tests:?}");
        let run = |number: u32, limits: Limits| trial::run(&tests[0], number, limits).expect("ran");
        assert_eq!(run(0, AMPLE), Ended::Passed);
        for number in 1..=noticed {
            assert!(matches!(run(number, AMPLE), Ended::Failed(_)), "{}", faults[number as usize - 1].name);
        }
        assert_eq!(run(noticed + 1, AMPLE), Ended::Passed);
        let second = Duration::from_secs(1);
        assert_eq!(run(noticed + 2, Limits { processor: second, ..AMPLE }), Ended::OutOfTime);
        assert_eq!(run(noticed + 2, Limits { clock: second, ..AMPLE }), Ended::OutOfTime);
    }

    #[test]
    fn faults_are_planted_in_the_crates_of_the_data_path_alone() {
        let of = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        assert_eq!(crates_of(&of(&["lun", "scsi"])).expect("both"), ["scsi", "lun"]);
        assert_eq!(crates_of(&[]).expect("all"), CRATES);
        assert!(crates_of(&of(&["intact"])).is_err());
    }
}
