//! Configuration files, valid and broken: the values read, and the exact text of the problems.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use blockstore::StoreSpec;
use iscsi_core::chap::{ChapAlgorithm, Secret};
use iscsi_core::names::IscsiName;
use iscsi_core::params::{Bounds, DigestPolicy};
use iscsi_core::target::login::NoSecret;
use server::config::{Config, ControlSocket, Overrides, Problem};
use target::config::{Auth, Limits, default_bounds};

const NAME: &str = "name = \"iqn.2004-10.com.example:a\"\n";

fn load(text: &str) -> Result<Config, Vec<Problem>> {
    Config::from_toml(text, Path::new("intact.toml"))
}

/// The problems of a text, each as `line:column what`.
fn problems(text: &str) -> Vec<String> {
    match Config::load(text, Path::new("intact.toml"), &Overrides::default()) {
        Ok(loaded) => loaded.warnings,
        Err(problems) => problems,
    }
    .iter()
    .map(|p| format!("{}:{} {}", p.line, p.column, p.what))
    .collect()
}

/// A text with one target that has one logical unit, and `more` below the target's name.
fn with_target(more: &str) -> String {
    format!("[[target]]\n{NAME}{more}\n[[target.lun]]\nstore = \"ram:1M\"\n")
}

#[test]
fn the_example_can_be_used_and_shows_every_default() {
    let text = include_str!("../../../examples/intact.toml");
    let config = load(text).unwrap();
    assert_eq!(config.target.limits, Limits::default());
    assert_eq!(config.target.targets[0].bounds, default_bounds());
    assert_eq!(config.target.portals[0].address, "127.0.0.1:3260".parse().unwrap());

    // The commented-out lines are valid too: when they are uncommented, the file means the same or can at least be
    // read.
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("secrets")).unwrap();
    for name in ["discovery", "alice", "target"] {
        let file = directory.path().join("secrets").join(name);
        std::fs::write(&file, format!("the secret of {name}\n")).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    }
    let is_key = |line: &str| {
        let text = line.trim_start_matches("# ");
        line.starts_with("# ")
            && (text.starts_with('[')
                || text.split_once(" = ").is_some_and(|(key, _)| {
                    key.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
                }))
    };
    let whole: String = text
        .lines()
        .map(|line| if is_key(line) { line.trim_start_matches("# ") } else { line })
        .map(|line| {
            format!("{line}\n").replace("secret_env = \"INTACT_SECRET_BOB\"", "secret_env = \"PATH\"")
        })
        .collect();
    let path = directory.path().join("intact.toml");
    let loaded = Config::load(&whole, &path, &Overrides::default()).unwrap_or_else(|problems| {
        panic!("{}", problems.iter().map(|p| format!("{p}\n\n")).collect::<String>())
    });
    let config = loaded.config;
    assert_eq!(config.target.limits, Limits::default());
    assert_eq!(config.control_socket, ControlSocket::At("/run/intact/control.sock".into()));
    assert_eq!(config.target.state_dir, Some("/var/lib/intact".into()));
    let target = &config.target.targets[0];
    assert_eq!(target.luns.len(), 2);
    assert_eq!(target.luns[1].number, 1);
    let StoreSpec::File { path, .. } = &target.luns[1].store else { panic!("not a file") };
    assert_eq!(path, &directory.path().join("scratch.img"));
    let expected = Bounds {
        header_digest: DigestPolicy::Required,
        data_digest: DigestPolicy::Required,
        ..default_bounds()
    };
    assert_eq!(target.bounds, expected);
    let alice = IscsiName::parse("iqn.2004-10.com.example:alice1").unwrap();
    let carol = IscsiName::parse("iqn.2004-10.com.example:carol").unwrap();
    assert_eq!(target.auth.secret_of(&alice, "alice"), Ok(&Secret::new("the secret of alice")));
    assert_eq!(target.auth.secret_of(&carol, "alice"), Err(NoSecret::OtherInitiator));
    assert_eq!(target.auth.secret_of(&alice, "nobody"), Err(NoSecret::UnknownName));
    assert!(matches!(config.target.discovery_auth, Auth::Chap { mutual: None, .. }));
}

#[test]
fn everything_is_read() {
    let config = load(
        "allow_open_access = true\n\
         [[portal]]\naddress = \"[::]:860\"\ngroup_tag = 7\n[[portal]]\naddress = \"192.0.2.1\"\n\
         [control]\nsocket = false\n[metrics]\nlisten = \"127.0.0.1:1\"\n\
         [limits]\nlogin_timeout_s = 3\nbuffer_bytes_max = \"32M\"\nmax_connections = 5\npoll_us = 7\n\
         [negotiation]\nmax_burst_length = 0x10000\nfirst_burst_length = \"64K\"\ndata_digest = \"off\"\n\
         [[target]]\nname = \"IQN.2004-10.com.Example:A\"\nportal_groups = [7]\nqueue_depth = 4096\n\
         hosts_set_access_states = true\nmanagement_url = \"https://a/\"\n\
         [target.negotiation]\nheader_digest = \"required\"\n\
         [[target.port_group]]\ntag = 7\naccess_state = \"active-non-optimized\"\n\
         [[target.lun]]\nnumber = 3\nstore = \"file:/a,ro\"\n[[target.lun]]\nstore = \"ram:1M\"\nread_only = true\n\
         [[target]]\nname = \"eui.02004567a425678d\"\nredirect = [\"[2001:db8::1]:3260\"]\n",
    )
    .unwrap();
    assert_eq!(config.target.portals[0].group_tag, 7);
    assert_eq!(config.target.portals[1].address, "192.0.2.1:3260".parse().unwrap());
    assert_eq!(config.control_socket, ControlSocket::Off);
    assert_eq!(config.metrics, Some("127.0.0.1:1".parse().unwrap()));
    assert_eq!(config.target.limits.login_timeout, Duration::from_secs(3));
    assert_eq!(config.target.limits.buffer_bytes_max, 32 << 20);
    assert_eq!(config.target.limits.poll_time, Duration::from_micros(7));
    // There cannot be more logins than connections.
    assert_eq!(config.target.limits.max_logins_in_progress, 5);
    let target = &config.target.targets[0];
    assert_eq!(target.name.as_str(), "iqn.2004-10.com.example:a");
    assert!(target.is_served_on(7) && !target.is_served_on(1));
    assert_eq!(target.access_state(7), scsi::AccessState::ActiveNonOptimized);
    assert_eq!(target.access_state(8), scsi::AccessState::ActiveOptimized);
    assert!(target.hosts_set_access_states && !config.target.targets[1].hosts_set_access_states);
    assert_eq!(target.management_url.as_deref(), Some("https://a/"));
    assert_eq!(target.bounds.bursts.max_burst_length, 65536);
    assert_eq!(target.bounds.data_digest, DigestPolicy::Off);
    assert_eq!(target.bounds.header_digest, DigestPolicy::Required);
    assert_eq!(config.target.targets[1].bounds.header_digest, DigestPolicy::Offered);
    assert_eq!(
        target.luns.iter().map(|lun| (lun.number, lun.read_only)).collect::<Vec<_>>(),
        [(3, true), (4, true)]
    );
    assert_eq!(config.target.targets[1].redirect.as_deref(), Some(&["[2001:db8::1]:3260".to_owned()][..]));
}

#[test]
fn all_problems_are_told_at_once_with_their_places() {
    let text = "lisen = [\"127.0.0.1\"]\n\
                [limits]\nmax_sessions = 0\nlogin_timeout_s = \"3\"\n\
                [negotiation]\nmax_burst_length = 511\nheader_digest = \"maybe\"\n\
                [[target]]\nname = \"disk\"\nqueue_depth = -1\n\
                [[target.lun]]\nstore = \"ram:lots\"\n[[target.lun]]\nnumber = 16384\n";
    assert_eq!(
        problems(text),
        [
            "1:1 `lisen` is no key of the file",
            "3:16 `max_sessions` is out of range",
            "4:19 `login_timeout_s` is a text",
            "6:20 `max_burst_length` is out of range",
            "7:17 `header_digest` has a value that means nothing",
            "9:8 the iSCSI name \"disk\" is none of iqn.YYYY-MM.naming.authority[:label], eui.<16 hex>, naa.<16 or 32 hex>",
            "10:15 `queue_depth` is out of range",
            "12:9 `lots` is not a size: write a whole number with K, M, G, T or P, for example 10G",
            "13:1 [target.lun] has no `store`",
            "14:10 `number` is out of range",
        ]
    );
}

#[test]
fn a_problem_reads_like_this() {
    let all =
        load(&format!("lisen = [\"127.0.0.1\"] # where\n{}", with_target("queue_dept = 1"))).unwrap_err();
    let text: Vec<String> = all.iter().map(Problem::to_string).collect();
    assert_eq!(
        text[0],
        "error: `lisen` is no key of the file\n --> intact.toml:1:1\n  |\n\
         1 | lisen = [\"127.0.0.1\"] # where\n  | ^^^^^\n  \
         = remedy: did you mean `listen`? Otherwise remove it"
    );
    assert_eq!(
        text[1],
        "error: `queue_dept` is no key of [target]\n --> intact.toml:4:1\n  |\n\
         4 | queue_dept = 1\n  | ^^^^^^^^^^\n  \
         = remedy: did you mean `queue_depth`? Otherwise remove it"
    );
    let bounds = "[target.negotiation]\nmax_burst_length = \"16M\"";
    let all = load(&with_target(bounds)).unwrap_err();
    assert_eq!(
        all[0].to_string(),
        "error: `max_burst_length` is out of range\n --> intact.toml:4:20\n  |\n\
         4 | max_burst_length = \"16M\"\n  |                    ^^^^^\n  \
         = remedy: write a number from 512 to 16777215\n  = rule: RFC 7143 13.13"
    );
}

#[test]
fn each_broken_file_has_its_words() {
    for (text, expected) in [
        // Form.
        ("a = ", "1:5 string values must be quoted, expected literal string"),
        ("[target]\nname = 1\n", "1:1 `target` is a table"),
        ("target = 3", "1:10 `target` is a number"),
        ("target = [3]", "1:11 `target` holds a number"),
        ("listen = [1.5]", "1:11 `listen` holds a number with a fraction"),
        ("limits = []", "1:10 `limits` is a list"),
        ("allow_open_access = \"yes\"", "1:21 `allow_open_access` is a text"),
        ("[control]\nsocket = true", "2:10 `socket` is true or false"),
        ("[limits]\nshards = 2026-01-01", "2:10 `shards` is a date"),
        ("[limits]\nshards = 99999999999999999999", "2:10 `shards` is out of range"),
        (
            "[limits]\nbuffer_bytes_max = \"1GB\"",
            "2:20 `1GB` is not a size: say whether 1000 or 1024 is meant: G and GiB are 1024, bytes are plain",
        ),
        // Portals.
        ("listen = [\"localhost:3260\"]", "1:11 \"localhost:3260\" is no address to listen on"),
        (
            "listen = [\"127.0.0.1\", \"127.0.0.1:3260\"]",
            "1:24 127.0.0.1:3260 is already covered by 127.0.0.1:3260",
        ),
        ("listen = [\"127.0.0.1:1\", \"0.0.0.0:1\"]", "1:26 0.0.0.0:1 is already covered by 127.0.0.1:1"),
        ("[[portal]]\ngroup_tag = 65536", "1:1 [portal] has no `address`"),
        ("[metrics]", "1:1 [metrics] has no `listen`"),
        ("[metrics]\nlisten = \"9260\"", "2:10 this is no address for metrics"),
        // Targets.
        ("[[target]]", "1:1 [target] has no `name`"),
        (
            &format!("{}{}", with_target(""), with_target("")),
            "6:1 the target iqn.2004-10.com.example:a is given twice",
        ),
        (
            &with_target("portal_groups = [2]"),
            "1:1 no portal has the group tag 2, on which iqn.2004-10.com.example:a is to be served",
        ),
        (&with_target("portal_groups = []"), "1:1 `portal_groups` of [target] is an empty list"),
        (
            &with_target("[[target.port_group]]\ntag = 2"),
            "1:1 no portal has the group tag 2, whose state iqn.2004-10.com.example:a gives",
        ),
        (&with_target("redirect = [\"2001:db8::1\"]"), "3:13 this is no address for initiators"),
        (&with_target("alias = \"a\\u0000\""), "3:9 the alias cannot be sent"),
        (&with_target("management_url = \"a b\""), "3:18 `management_url` cannot be told by INQUIRY"),
        (
            &with_target("[[target.port_group]]\ntag = 1\naccess_state = \"transitioning\""),
            "5:16 `transitioning` is no state of a target port group",
        ),
        (&with_target("[[target.port_group]]\n"), "3:1 [target.port_group] has no `tag`"),
        (
            &with_target("[[target.port_group]]\ntag = 1\n[[target.port_group]]\ntag = 1"),
            "5:1 the target port group 1 is given twice",
        ),
        (
            &with_target("[[target.lun]]\nnumber = 0\nstore = \"ram:1M\"\nserial = \"é\""),
            "6:10 `serial` cannot be told by INQUIRY",
        ),
        (
            &with_target(
                "[[target.lun]]\nnumber = 1\nstore = \"file:/x\"\n[[target.lun]]\nstore = \"file:/x\"",
            ),
            "1:1 /x is the store of LUN 1 of iqn.2004-10.com.example:a and of LUN 2 of iqn.2004-10.com.example:a",
        ),
        (
            &with_target(
                "[[target.lun]]\nstore = \"ram:1M\"\nserial = \"S\"\n[[target.lun]]\nstore = \"ram:1M\"\nserial = \"S\"",
            ),
            "1:1 LUN 0 of iqn.2004-10.com.example:a and LUN 1 of iqn.2004-10.com.example:a have the serial number S",
        ),
        (
            &format!("{}[[target.lun]]\nnumber = 0\nstore = \"ram:1M\"\n", with_target("")),
            "6:1 LUN 0 is given twice",
        ),
        (
            &with_target("[target.negotiation]\nfirst_burst_length = \"2M\""),
            "3:1 first_burst_length (2097152) is more than max_burst_length (1048576)",
        ),
        (
            &with_target("[target.negotiation]\ndata_sequence_in_order = false"),
            "3:1 `data_sequence_in_order = false` means nothing with error_recovery_level = 2",
        ),
        (
            &with_target("[target.negotiation]\ndata_pdu_in_order = false\nerror_recovery_level = 1"),
            "3:1 `data_pdu_in_order = false` means nothing with error_recovery_level = 1",
        ),
        // Access.
        (&with_target("[[target.access]]"), "3:1 the rule allows everyone"),
        (
            &with_target("[[target.access]]\nnetworks = [\"192.0.2.1/24\"]"),
            "4:13 `192.0.2.1/24` has bits beyond its prefix",
        ),
        (
            &with_target("[[target.access]]\nnetworks = [\"192.0.2.0/33\"]"),
            "4:13 `192.0.2.0/33` is no network",
        ),
        (
            &with_target("[[target.access]]\ninitiators = [\"host1\"]"),
            "4:15 the iSCSI name \"host1\" is none of iqn.YYYY-MM.naming.authority[:label], eui.<16 hex>, naa.<16 or 32 hex>",
        ),
        (
            &format!("listen = [\"0.0.0.0\"]\n{}", with_target("")),
            "2:1 anybody who reaches 0.0.0.0:3260 could use iqn.2004-10.com.example:a",
        ),
        // CHAP.
        (&with_target("[target.chap]"), "3:1 [target.chap] has no `account`"),
        (
            &with_target("[target.chap]\nalgorithms = [\"MD4\"]\n[[target.chap.account]]"),
            "4:15 \"MD4\" is no hash for CHAP",
        ),
        (
            &with_target("[[target.chap.account]]\nname = \"\"\nsecret_file = \"/nowhere\""),
            "4:8 the CHAP name cannot be sent",
        ),
        (
            &with_target("[[target.chap.account]]\nname = \"a\"\nsecret_file = \"/nowhere\""),
            "5:15 the secret file /nowhere cannot be read: No such file or directory (os error 2)",
        ),
        (
            &with_target("[[target.chap.account]]\nname = \"a\"\nsecret_file = \"/\""),
            "5:15 the secret file / cannot be read: it is not a regular file",
        ),
        (
            &with_target("[[target.chap.account]]\nname = \"a\"\nsecret_env = \"a=b\""),
            "5:14 the variable that `secret_env` names is not in the environment",
        ),
        (
            &with_target("[[target.chap.account]]\nname = \"a\""),
            "3:1 [target.chap.account] has no `secret_file`",
        ),
        (
            &with_target("[[target.chap.account]]\nname = \"a\"\nsecret = \"hunter2hunter2\""),
            "5:1 `secret` stands in the configuration",
        ),
    ] {
        let found = problems(text);
        assert!(found.iter().any(|p| p == expected), "{text}\nexpected {expected}\nfound    {found:#?}");
        let Err(all) = load(text) else { panic!("usable:\n{text}") };
        for problem in all.iter().filter(|p| p.is_error()) {
            assert!(!problem.remedy.is_empty(), "no remedy: {problem}");
            assert!(problem.line > 0, "no line: {problem}");
        }
    }
}

#[test]
fn warnings_do_not_refuse() {
    for (text, expected) in [
        ("", "1:1 there is no target"),
        (&*format!("[[target]]\n{NAME}"), "1:1 the target has no logical unit"),
        (
            &with_target("[[target.lun]]\nnumber = 1\nstore = \"ram:1M\""),
            "1:1 the target has no LUN 0, where many initiators look first",
        ),
        (
            "[metrics]\nlisten = \"0.0.0.0:9260\"",
            "2:10 metrics are served to other machines, without proof of who asks",
        ),
    ] {
        let found = problems(text);
        assert!(found.iter().any(|p| p == expected), "{text}\n{found:#?}");
        assert!(load(text).is_ok(), "{text}");
    }
}

#[test]
fn open_access_beyond_loopback_must_be_wanted() {
    let text = |more: &str| format!("listen = [\"192.0.2.1\"]\n{}", with_target(more));
    assert!(load(&text("")).is_err());
    assert!(load(&text("[[target.access]]\nnetworks = [\"192.0.2.0/24\"]")).is_ok());
    assert!(load(&format!("allow_open_access = true\n{}", text(""))).is_ok());
    let flag = Overrides { allow_open_access: true, ..Overrides::default() };
    assert!(Config::load(&text(""), Path::new("a"), &flag).is_ok());
    // The flag of the command line counts, and so do its addresses.
    let loopback = Overrides { listen: vec!["[::1]:3260".parse().unwrap()], ..Overrides::default() };
    assert!(Config::load(&text(""), Path::new("a"), &loopback).is_ok());
    let mapped =
        Overrides { listen: vec!["[::ffff:127.0.0.1]:3260".parse().unwrap()], ..Overrides::default() };
    assert!(Config::load(&text(""), Path::new("a"), &mapped).is_ok());
    let open = Overrides { listen: vec!["0.0.0.0:3260".parse().unwrap()], ..Overrides::default() };
    assert!(Config::quick(None, Vec::new(), &open).is_err());
    assert!(Config::quick(None, Vec::new(), &Overrides { allow_open_access: true, ..open }).is_ok());
}

#[test]
fn without_arguments_there_is_a_ram_disk_on_loopback() {
    let config = Config::quick(None, Vec::new(), &Overrides::default()).unwrap();
    assert_eq!(config.target.portals[0].address, "127.0.0.1:3260".parse().unwrap());
    assert_eq!(config.target.targets[0].luns[0].store.to_string(), "ram:1G");
    let stores = vec!["file:a".parse().unwrap(), "file:a".parse().unwrap()];
    let problems = Config::quick(Some("disk"), stores, &Overrides::default()).unwrap_err();
    assert_eq!(problems.len(), 2);
    let two = vec!["ram:1M".parse().unwrap(), "file:b,ro".parse().unwrap()];
    let config = Config::quick(Some("iqn.2004-10.com.example:b"), two, &Overrides::default()).unwrap();
    let luns: Vec<_> = config.target.targets[0].luns.iter().map(|lun| (lun.number, lun.read_only)).collect();
    assert_eq!(luns, [(0, false), (1, true)]);
}

/// A directory with secret files, and a configuration that uses them.
struct Secrets(tempfile::TempDir);

impl Secrets {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn write(&self, name: &str, bytes: &[u8], mode: u32) {
        let path = self.0.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    fn load(&self, text: &str) -> (Option<Config>, Vec<Problem>) {
        match Config::load(text, &self.0.path().join("intact.toml"), &Overrides::default()) {
            Ok(loaded) => (Some(loaded.config), loaded.warnings),
            Err(problems) => (None, problems),
        }
    }
}

const ONE_ACCOUNT: &str = "[[target.chap.account]]\nname = \"a\"\nsecret_file = \"s\"";

// covers: SEC-10
#[test]
fn sec_10_secrets_have_96_bits() {
    let secrets = Secrets::new();
    for (bytes, usable) in [
        (&b"elevenbytes"[..], false),
        (b"elevenbytes\n", false),
        (b"elevenbytes\r\n", false),
        (b"twelve bytes", true),
        (b"twelve bytes\n", true),
        (&[b'x'; 1024], true),
        (&[b'x'; 1025], false),
        (&[b'x'; 5000], false),
        (b"", false),
    ] {
        secrets.write("s", bytes, 0o600);
        let (config, problems) = secrets.load(&with_target(ONE_ACCOUNT));
        assert_eq!(config.is_some(), usable, "{bytes:?} {problems:?}");
    }
    secrets.write("s", b"twelve bytes\r\n", 0o600);
    let (config, _) = secrets.load(&with_target(ONE_ACCOUNT));
    let Auth::Chap { accounts, algorithms, .. } = &config.unwrap().target.targets[0].auth else {
        panic!("no CHAP")
    };
    assert_eq!(accounts[0].secret, Secret::new("twelve bytes"));
    assert_eq!(algorithms, &ChapAlgorithm::ALL);
}

// covers: SEC-14
#[test]
fn accounts_that_may_say_any_name_and_discovery_for_anybody_are_warned_of() {
    let secrets = Secrets::new();
    secrets.write("s", b"a secret of alice", 0o600);
    secrets.write("t", b"a secret of bob..", 0o600);
    let account = |name: &str, file: &str, more: &str| {
        format!("[[target.chap.account]]\nname = \"{name}\"\nsecret_file = \"{file}\"\n{more}\n")
    };
    let warned = |text: &str| {
        let (config, problems) = secrets.load(text);
        assert!(config.is_some(), "{problems:?}");
        let names = problems.iter().any(|p| p.what.contains("may log in as any initiator"));
        (names, problems.iter().any(|p| p.what.starts_with("discovery tells anybody")))
    };
    let initiators = "initiators = [\"iqn.2004-10.com.example:a\"]";
    let one = account("alice", "s", "");
    let two = one.clone() + &account("bob", "t", "");
    let named = account("alice", "s", initiators) + &account("bob", "t", initiators);
    let half = account("alice", "s", initiators) + &account("bob", "t", "");
    assert_eq!(warned(&with_target(&one)), (false, true));
    assert_eq!(warned(&with_target(&two)), (true, true));
    assert_eq!(warned(&with_target(&half)), (true, true));
    assert_eq!(warned(&with_target(&named)), (false, true));
    let wanted = format!("[discovery]\nopen = true\n{}", with_target(&one));
    assert_eq!(warned(&wanted), (false, false));
    let asked = "[[discovery.chap.account]]\nname = \"d\"\nsecret_file = \"t\"\n";
    assert_eq!(warned(&format!("{asked}{}", with_target(&one))), (false, false));
    assert_eq!(warned(&with_target("")), (false, false), "nothing is guarded");
}

// covers: SEC-08
#[test]
fn sec_08_one_secret_for_both_directions_is_refused() {
    let secrets = Secrets::new();
    secrets.write("s", b"the same secret", 0o600);
    secrets.write("t", b"the same secret\n", 0o600);
    let mutual = format!("{ONE_ACCOUNT}\n[target.chap.mutual]\nname = \"t\"\nsecret_file = \"t\"");
    let (config, problems) = secrets.load(&with_target(&mutual));
    assert!(config.is_none());
    let error = problems.iter().find(|problem| problem.is_error()).unwrap();
    assert_eq!(error.what, "the secret of `mutual` is also that of an account");
    assert_eq!((error.line, error.column), (8, 15));
    // Also when the account is for discovery: the initiator is the same.
    let discovery = "[[discovery.chap.account]]\nname = \"a\"\nsecret_file = \"s\"\n";
    let target = mutual.replace("secret_file = \"s\"", "secret_file = \"u\"");
    secrets.write("u", b"another secret", 0o600);
    assert!(secrets.load(&format!("{discovery}{}", with_target(&target))).0.is_none());
    assert!(secrets.load(&with_target(&target)).0.is_some());
}

#[test]
fn a_secret_that_others_can_read_is_a_warning() {
    let secrets = Secrets::new();
    for (mode, warned) in [(0o600, false), (0o640, true), (0o604, true), (0o620, true), (0o700, false)] {
        secrets.write("s", b"twelve bytes", mode);
        let (config, problems) = secrets.load(&with_target(ONE_ACCOUNT));
        assert!(config.is_some());
        assert_eq!(problems.iter().any(|p| p.what.starts_with("others can read")), warned, "{mode:o}");
    }
}

// covers: SEC-15
#[test]
fn sec_15_secrets_are_in_no_text() {
    const SECRET: &str = "hunter2hunter2";
    let secrets = Secrets::new();
    secrets.write("s", SECRET.as_bytes(), 0o600);
    let (config, _) = secrets.load(&with_target(ONE_ACCOUNT));
    assert!(!format!("{:?}", config.unwrap()).contains("hunter2"));
    // If a secret is written into the file, in any place and together with any other mistake, it is not repeated.
    for text in [
        with_target(&format!("[[target.chap.account]]\nname = \"a\"\nsecret = \"{SECRET}\"")),
        with_target(&format!("chap = {{ account = [{{ name = 3, secret = \"{SECRET}\" }}] }}")),
        with_target(&format!("[[target.chap.account]]\nname = \"a\"\npassword = \"{SECRET}\nqueue = 3")),
        with_target(&format!("[[target.chap.account]]\nchap_secret = [\"{SECRET}\"]")),
        with_target(&format!("[[target.chap.account]]\nname = \"a\"\nsecret_env = \"{SECRET}\"")),
        with_target(&format!("[[target.chap.account]]\nname = \"a\"\nsecret = '''\n{SECRET}")),
    ] {
        let problems = load(&text).unwrap_err();
        let shown = format!("{}{problems:?}", problems.iter().map(Problem::to_string).collect::<String>());
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}

#[test]
fn hostile_files_end_in_problems() {
    let deep = format!("a = {}", "[".repeat(100_000));
    let many = "[[target]]\n".repeat(5000);
    for text in
        [&*deep, &*many, "\u{feff}listen = []", "\0", "listen = [\"\u{1b}[31m\"]", "é = \"", "'''", "[[[["]
    {
        if let Err(problems) = load(text) {
            let shown: String = problems.iter().map(Problem::to_string).collect();
            assert!(!shown.contains('\u{1b}') && !shown.contains('\0'));
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a");
    for (bytes, what) in [(vec![0xff; 10], "UTF-8"), (vec![b' '; (4 << 20) + 1], "larger")] {
        std::fs::write(&path, bytes).unwrap();
        let problems = Config::load_file(&path, &Overrides::default()).unwrap_err();
        assert!(problems[0].what.contains(what), "{}", problems[0]);
    }
    let missing = Config::load_file(&directory.path().join("b"), &Overrides::default()).unwrap_err();
    assert!(missing[0].to_string().contains("cannot be read"), "{}", missing[0]);
}

#[test]
fn half_of_a_certificate_for_nbd_is_an_error() {
    let of = |section: &str| problems(&format!("{}[nbd]\n{section}\n", with_target("")));
    let listen = "listen = [\"127.0.0.1\"]\n";
    assert_eq!(of(listen), <[String; 0]>::default());
    assert_eq!(of(""), ["6:1 [nbd] has no `listen`"]);
    assert_eq!(of("listen = [\"nowhere:1\"]"), ["7:11 this is no address to listen on"]);
    for (keys, missing) in [
        ("certificate = \"c.pem\"", "key"),
        ("key = \"k.pem\"", "certificate"),
        ("client_ca = \"ca.pem\"", "certificate"),
        ("tls_required = true", "certificate"),
    ] {
        assert_eq!(of(&format!("{listen}{keys}")), [format!("6:1 [nbd] has no `{missing}`")], "{keys}");
    }
    assert_eq!(of(&format!("{listen}tls_required = false")), <[String; 0]>::default());
    assert_eq!(of(&format!("{listen}ca = \"ca.pem\"")).len(), 1, "a key that does not exist");
}
