//! A database on our target: PostgreSQL with data checksums on ext4, over the Linux kernel's initiator (`conform/linux-guest`).
//! The target is killed under load and started again; at last the guest is killed too, with the target and alone.
//!
//! pgbench runs on the host, outside of everything that is killed, and knows what was committed. Each of its transactions writes
//! its cycle, client and number into pgbench_history. So the test can tell which transaction is missing, and not only that one is.
//!
//! `INTACT_DATABASE_CYCLES`, `_CUTS`, `_SCALE` and `_TRANSACTIONS` (per client and cycle) make it longer: `cargo xtask database`
//! sets them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::common::Serve;
use crate::support::guest::{Hooks, POWER_CUT, cache, guest, scenarios};
use crate::support::{DIGESTS_REQUIRED, finish, free_port, kill, left_out, postgresql, program, report};
use crate::support::{serve, serve_at, target};

const IQN: &str = "iqn.2004-10.com.example:database";
/// Clients of pgbench.
const CLIENTS: u64 = 4;
/// Accounts in the database, times the scale.
const ACCOUNTS: u64 = 100_000;
/// How long the database may take for one statement of ours, the recovery of the session included.
const PATIENCE: Duration = Duration::from_secs(240);

/// TPC-B as pgbench has it, and who did it in the column that pgbench leaves empty.
const TRANSACTION: &str = "\
\\set n :n + 1
\\set aid random(1, 100000 * :scale)
\\set bid random(1, 1 * :scale)
\\set tid random(1, 10 * :scale)
\\set delta random(-5000, 5000)
BEGIN;
UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;
SELECT abalance FROM pgbench_accounts WHERE aid = :aid;
UPDATE pgbench_tellers SET tbalance = tbalance + :delta WHERE tid = :tid;
UPDATE pgbench_branches SET bbalance = bbalance + :delta WHERE bid = :bid;
INSERT INTO pgbench_history (tid, bid, aid, delta, mtime, filler)
  VALUES (:tid, :bid, :aid, :delta, CURRENT_TIMESTAMP, concat(:cycle, '.', :client_id, '.', :n));
END;
";

/// How long the test is.
struct Plan {
    /// How often the target is killed.
    cycles: u64,
    /// How often the guest is.
    cuts: u64,
    scale: u64,
    /// Of each client in each cycle.
    transactions: u64,
}

impl Plan {
    fn from_environment() -> Self {
        let number = |name: &str, usual: u64| {
            std::env::var(name).map_or(usual, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text}")))
        };
        Self {
            cycles: number("INTACT_DATABASE_CYCLES", 1),
            cuts: number("INTACT_DATABASE_CUTS", 1),
            scale: number("INTACT_DATABASE_SCALE", 1),
            transactions: number("INTACT_DATABASE_TRANSACTIONS", 75),
        }
    }

    /// Bytes of the unit: the data, its log, and room.
    fn unit_bytes(&self) -> u64 {
        (512 + 40 * self.scale) << 20
    }

    /// After how many transactions of a cycle something is killed: after a fifth of them, and before four fifths.
    fn kill_after(&self) -> u64 {
        let all = self.transactions * CLIENTS;
        all / 5 + RandomState::new().build_hasher().finish() % (all * 3 / 5).max(1)
    }
}

/// The database in the guest, as the host reaches it.
struct Database {
    directory: PathBuf,
    port: u16,
    scale: u64,
}

impl Database {
    /// A program of PostgreSQL that talks with the database.
    fn program(&self, name: &str, limit: Duration) -> Command {
        let mut command = program(&postgresql(name).unwrap(), limit);
        command.args(["-h", "127.0.0.1", "-U", "postgres", "-p", &self.port.to_string()]);
        command.current_dir(&self.directory);
        command
    }

    /// The rows that a query yields, as numbers.
    #[track_caller]
    fn numbers(&self, query: &str) -> Vec<Vec<i64>> {
        let mut command = self.program("psql", PATIENCE);
        command.args(["-X", "-A", "-t", "-F", " ", "-v", "ON_ERROR_STOP=1", "-c", query, "postgres"]);
        let text = finish(command).well();
        text.lines().map(|line| line.split(' ').map(|number| number.parse().unwrap()).collect()).collect()
    }

    /// How many transactions of a cycle it holds.
    fn committed(&self, cycle: u64) -> u64 {
        let count =
            self.numbers(&format!("SELECT count(*) FROM pgbench_history WHERE filler LIKE '{cycle}.%'"));
        u64::try_from(count[0][0]).unwrap()
    }

    /// What was added to accounts, tellers and branches is what the history says, for each of them.
    fn balances(&self) {
        for (table, key, balance) in [
            ("pgbench_accounts", "aid", "abalance"),
            ("pgbench_tellers", "tid", "tbalance"),
            ("pgbench_branches", "bid", "bbalance"),
        ] {
            let wrong = self.numbers(&format!(
                "SELECT count(*) FROM {table} FULL JOIN (SELECT {key}, sum(delta) FROM pgbench_history GROUP BY {key}) h \
                 USING ({key}) WHERE {balance} IS DISTINCT FROM coalesce(sum, 0)"
            ));
            assert_eq!(wrong, [[0]], "{table} whose {balance} is not the sum of its history");
        }
        let sums = self.numbers(
            "SELECT (SELECT coalesce(sum(delta), 0) FROM pgbench_history), (SELECT sum(abalance) FROM pgbench_accounts), \
             (SELECT sum(tbalance) FROM pgbench_tellers), (SELECT sum(bbalance) FROM pgbench_branches), \
             (SELECT count(*) FROM pgbench_accounts)",
        );
        let [history, accounts, tellers, branches, count] = sums[0][..] else { panic!("{sums:?}") };
        assert_eq!([history; 3], [accounts, tellers, branches]);
        assert_eq!(count.cast_unsigned(), ACCOUNTS * self.scale);
    }
}

/// One run of pgbench.
struct Load {
    child: Child,
    cycle: u64,
    log: String,
}

impl Load {
    /// Starts it: every client makes so many transactions.
    fn start(database: &Database, cycle: u64, transactions: u64) -> Self {
        let log = format!("pgbench-{cycle}");
        fs::write(database.directory.join("transaction.sql"), TRANSACTION).unwrap();
        let mut command = database.program("pgbench", PATIENCE + Duration::from_secs(transactions));
        command.args(["-n", "-f", "transaction.sql", "-l", "--log-prefix", &log, "-D", "n=0"]);
        command.args(["-D", &format!("cycle={cycle}"), "-s", &database.scale.to_string()]);
        command.args(["-c", &CLIENTS.to_string(), "-t", &transactions.to_string(), "postgres"]);
        let child =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        Self { child, cycle, log }
    }

    /// Waits until the database holds so many transactions of it; more are to come.
    fn wait_for(&mut self, database: &Database, transactions: u64) {
        while database.committed(self.cycle) < transactions {
            assert!(
                self.child.try_wait().unwrap().is_none(),
                "pgbench ended before {transactions} transactions"
            );
            std::thread::sleep(Duration::from_millis(250));
        }
    }

    /// Waits for its end and says what it saw.
    fn end(mut self, database: &Database) -> Seen {
        let mut errors = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        let well = self.child.wait().unwrap().success();
        let mut seen =
            Seen { cycle: self.cycle, well, errors, committed: BTreeMap::new(), longest: Duration::ZERO };
        for entry in fs::read_dir(&database.directory).unwrap() {
            let path = entry.unwrap().path();
            // The log of a cycle; that of cycle 1 is not that of cycle 10.
            if path.file_stem().is_some_and(|name| *name == *self.log) {
                fs::read_to_string(path).unwrap().lines().for_each(|line| seen.line(line));
            }
        }
        seen
    }
}

/// What pgbench saw of a cycle.
struct Seen {
    cycle: u64,
    /// Whether all transactions were committed.
    well: bool,
    errors: String,
    /// Transactions that were committed, by client.
    committed: BTreeMap<i64, i64>,
    /// The longest that one took.
    longest: Duration,
}

impl Seen {
    /// A line of its log: client, transaction, microseconds, and more.
    fn line(&mut self, line: &str) {
        let mut fields =
            line.split(' ').map(|field| field.parse::<i64>().unwrap_or_else(|_| panic!("{line}")));
        let [Some(client), Some(_), Some(us)] = [fields.next(), fields.next(), fields.next()] else {
            panic!("{line}")
        };
        *self.committed.entry(client).or_default() += 1;
        self.longest = self.longest.max(Duration::from_micros(us.unsigned_abs()));
    }

    fn total(&self) -> i64 {
        self.committed.values().sum()
    }

    /// The database holds these transactions, without a gap. Of a client that was cut off it may hold the one more that was under
    /// way.
    fn is_in(&self, database: &Database) {
        let found = database.numbers(&format!(
            "SELECT client, count(*), count(DISTINCT n), max(n) FROM (SELECT split_part(filler, '.', 2)::int AS client, \
             rtrim(split_part(filler, '.', 3))::int AS n FROM pgbench_history WHERE filler LIKE '{}.%') t GROUP BY client",
            self.cycle
        ));
        let found: BTreeMap<i64, i64> = found
            .iter()
            .map(|row| {
                let [client, count, distinct, last] = row[..] else { panic!("{row:?}") };
                assert_eq!(
                    [count; 2],
                    [distinct, last],
                    "cycle {}, client {client}: a gap or a double",
                    self.cycle
                );
                (client, count)
            })
            .collect();
        for client in 0..CLIENTS.cast_signed() {
            let (seen, found) = (self.committed.get(&client).copied(), found.get(&client).copied());
            let (seen, found) = (seen.unwrap_or(0), found.unwrap_or(0));
            let most = seen + i64::from(!self.well);
            assert!(
                (seen..=most).contains(&found),
                "cycle {}, client {client}: {seen} seen, {found} found",
                self.cycle
            );
        }
    }
}

/// The target, what runs against it, and what is known.
struct Bench {
    plan: Plan,
    database: Database,
    server: Option<Serve>,
    portal: SocketAddr,
    config: String,
    /// The load when the guest's power was cut.
    cut: Option<Load>,
    seen: Vec<Seen>,
    /// The guest's runs so far.
    runs: u64,
    summary: String,
}

impl Bench {
    fn new(directory: &Path, plan: Plan) -> Self {
        let disk = directory.join("disk.img");
        let store = format!("file:{},size={}", disk.display(), plan.unit_bytes());
        let config = target(IQN, DIGESTS_REQUIRED, &[&store]);
        let server = serve(directory, 1, &config);
        let database = Database { directory: directory.to_owned(), port: free_port(), scale: plan.scale };
        Self {
            plan,
            database,
            portal: server.portal(),
            server: Some(server),
            config,
            cut: None,
            seen: Vec::new(),
            runs: 0,
            summary: String::new(),
        }
    }

    fn restart_target(&mut self) {
        kill(&mut self.server);
        self.server = Some(serve_at(&self.database.directory, &[self.portal], &self.config));
    }

    /// Starts the load of the next cycle and waits for the moment to kill something.
    fn load(&self, transactions: u64) -> Load {
        let cycle = self.seen.len() as u64 + 1;
        let mut load = Load::start(&self.database, cycle, transactions);
        load.wait_for(&self.database, self.plan.kill_after());
        load
    }

    /// Whether the target goes with the guest: in every other run.
    fn cut_with_target(&self) -> bool {
        self.runs % 2 == 1
    }

    /// Answers a hook of the guest.
    fn hook(&mut self, name: &str) -> u8 {
        match name {
            "load" => {
                let load = self.load(self.plan.transactions);
                self.restart_target();
                let seen = load.end(&self.database);
                assert!(seen.well, "pgbench failed: {}", seen.errors);
                assert_eq!(seen.total().cast_unsigned(), self.plan.transactions * CLIENTS);
                self.note(seen, "the target was killed");
            }
            "cut" => {
                self.cut = Some(self.load(self.plan.transactions * 1000));
                if self.cut_with_target() {
                    kill(&mut self.server);
                }
                return POWER_CUT;
            }
            "verify" => {
                self.database.balances();
                for seen in &self.seen {
                    seen.is_in(&self.database);
                }
            }
            other => panic!("no hook {other}"),
        }
        0
    }

    fn note(&mut self, seen: Seen, what: &str) {
        let longest = seen.longest.as_secs_f64();
        let line = format!(
            "cycle {}: {what}; pgbench saw {} committed, the longest took {longest:.1} s\n",
            seen.cycle,
            seen.total()
        );
        eprint!("{line}");
        self.summary += &line;
        self.seen.push(seen);
    }

    /// One guest, which makes the database or repairs it, and ends in order or by a power cut.
    fn guest(&mut self, cycles: u64, cut: bool) {
        self.runs += 1;
        let directory = tempfile::tempdir().unwrap();
        let hooks = Hooks::new(directory.path());
        let new = self.runs == 1;
        let knobs = [
            format!("RIG_DB_NEW={}", u8::from(new)),
            format!("RIG_DB_SCALE={}", self.plan.scale),
            format!("RIG_DB_CYCLES={cycles}"),
            "RIG_REPL=180".to_owned(),
        ];
        let mut arguments = vec!["--database".to_owned(), "--target".to_owned(), self.portal.to_string()];
        arguments.extend(["--iqn", IQN, "--hostfwd"].map(str::to_owned));
        arguments.push(format!("{}:5432", self.database.port));
        arguments.extend(knobs.map(|knob| format!("--env={knob}")));
        arguments.extend(["load", "verify"].map(|name| hooks.option(name)));
        if cut {
            arguments.push(hooks.option("cut"));
        }
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let limit =
            Duration::from_secs(240 + self.plan.scale * 30 + cycles * (60 + self.plan.transactions / 5));
        let title = format!("database-{}", self.runs);
        let text =
            hooks.answer(|name| self.hook(name), || scenarios(&title, limit, &arguments, "database", &[]));
        assert_eq!(text.contains("the hook cut has cut the guest's power"), cut, "{text}");
    }

    /// What pgbench saw until the guest was cut off.
    fn after_cut(&mut self) {
        let seen = self.cut.take().expect("the guest was cut off under load").end(&self.database);
        assert!(!seen.well, "pgbench was to be cut off");
        if self.cut_with_target() {
            self.restart_target();
            self.note(seen, "guest and target were killed");
        } else {
            self.note(seen, "the guest was killed");
        }
    }
}

#[test]
fn a_database_keeps_what_it_has_committed() {
    if !guest() {
        return;
    }
    if postgresql("pgbench").is_none() {
        left_out("PostgreSQL is not installed (Debian: apt-get install postgresql)");
        return;
    }
    if !(cache().join("database.stamp").exists() || rustix::process::geteuid().is_root()) {
        left_out(
            "the guest's disk with PostgreSQL is not built (as root: conform/linux-guest/build-database)",
        );
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let plan = Plan::from_environment();
    let (mut cycles, cuts) = (plan.cycles, plan.cuts);
    let mut bench = Bench::new(directory.path(), plan);
    for _ in 0..cuts {
        bench.guest(std::mem::take(&mut cycles), true);
        bench.after_cut();
    }
    bench.guest(cycles, false);
    let Bench { mut summary, seen, .. } = bench;
    let total: i64 = seen.iter().map(Seen::total).sum();
    let _ = writeln!(summary, "all {total} transactions that pgbench saw committed are there");
    report("database.txt", &summary);
}
