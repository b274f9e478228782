//! The commands that ask the server on this machine to change: what they do, and the forms of what they print.

use std::fs;

use crate::common::run;
use crate::support::{IQN, serve, target, write_config};
use serde_json::json;

// covers: ALU-01
#[test]
fn access_states_are_shown_and_changed() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve(directory.path(), 1, &target(IQN, "", &["ram:1M", "ram:1M"]));
    let states = |state: &str| json!([0, 1].map(|lun| json!({ "lun": lun, "group": 1, "state": state })));
    assert_eq!(server.json(&["group", IQN]), states("active-optimized"));
    let (code, said) = server.ask(&["group", IQN]);
    assert_eq!((code, said.lines().next()), (Some(0), Some("LUN  GROUP  STATE")), "{said}");
    assert_eq!(server.json(&["group", IQN, "1", "standby"]).as_array().unwrap().len(), 2);
    assert_eq!(server.json(&["group", IQN]), states("standby"));
    assert_eq!(server.json(&["group", IQN, "1", "standby"]), json!([]), "it was so before");
    for (wrong, code, words) in [
        (&["group", IQN, "7", "standby"][..], 1, "group"),
        (&["group", IQN, "1", "asleep"], 2, "active-non-optimized"),
        (&["group", "iqn.2004-10.com.example:none"], 1, "none"),
        (&["group", IQN, "1"], 2, "STATE"),
    ] {
        let (ended, said) = server.ask(wrong);
        assert_eq!(ended, Some(code), "{wrong:?}: {said}");
        assert!(said.contains(words), "{wrong:?}: {said}");
    }
    assert_eq!(server.json(&["group", IQN]), states("standby"), "what was refused changed nothing");
}

#[test]
fn changes_are_told_as_lines_and_as_a_list() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve(directory.path(), 1, &target(IQN, "", &["ram:1M"]));
    assert_eq!(server.json(&["reload"]), json!([]));
    assert_eq!(server.ask(&["reload"]), (Some(0), "nothing changed\n".to_owned()));
    assert_eq!(
        server.json(&["lun", "resize", IQN, "0", "2M"]),
        json!([format!("LUN 0 of {IQN} has 2097152 bytes now")])
    );
    write_config(directory.path(), &[server.portal()], &target(IQN, "", &["ram:4M"]));
    assert_eq!(server.json(&["reload"]).as_array().unwrap().len(), 1);
    // A broken file changes nothing, and says where it is broken.
    fs::write(directory.path().join("intact.toml"), "listen = 7").unwrap();
    let (code, said) = server.ask(&["reload", "--json"]);
    assert!(
        code == Some(1) && said.contains("the old configuration stays") && said.contains("listen"),
        "{said}"
    );
    assert_eq!(server.ls("luns")[0]["size_bytes"], 4 << 20);
}

#[test]
fn nobody_who_answers_is_told_with_the_remedy() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("none").display().to_string();
    for command in [&["reload"][..], &["group", IQN], &["lun", "protect", IQN, "0"], &["ls", "luns"]] {
        let output = run(&[command, &["--control", &socket]].concat());
        assert_eq!(output.status.code(), Some(1));
        let said = crate::common::text(&output);
        assert!(said.contains("is `intact serve` running") && said.contains(&socket), "{said}");
    }
}
