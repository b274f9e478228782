//! Target port groups of a whole server: their states set by configuration, by the control socket and by
//! hosts.

use conform::{Command, Session};
use scsi::AccessState;
use target::observe::ServerView;

use crate::support::*;

const ACCESS_CHANGED: (u8, u8, u8) = (6, 0x2a, 6);
const STANDBY: (u8, u8, u8) = (2, 4, 0x0b);

/// Two portals, each in its own group; the second group is in standby.
fn two_groups() -> target::config::Config {
    let mut config = config();
    config.portals = vec![portal(1), portal(2)];
    config.targets[0].access_states = vec![(2, AccessState::Standby)];
    config.targets[0].hosts_set_access_states = true;
    config.targets[0].management_url = Some("https://example.com/disks".to_owned());
    config
}

/// A session through the portal of a group.
fn by_group(lab: &Lab, group: usize) -> Session {
    let peer = lab.connect_to(lab.server.portals()[group - 1]);
    let mut session = Session::log_in(peer, lab.script("host"), iscsi_core::wire::Lun(0)).unwrap();
    session.clear_unit_attentions().unwrap();
    session
}

/// The states of groups 1 and 2 by REPORT TARGET PORT GROUPS.
fn reported(session: &mut Session) -> [u8; 2] {
    let data =
        session.run_good(&Command::read([0xa3, 0x0a, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0], 256)).unwrap().data;
    assert_eq!(data.len(), 4 + 2 * 12);
    [data[4] & 0x0f, data[16] & 0x0f]
}

// covers: ALU-01 ALU-03 ALU-04
#[test]
fn states_come_of_the_configuration_and_change_with_it() {
    let lab = Lab::start(two_groups());
    let (mut first, mut second) = (by_group(&lab, 1), by_group(&lab, 2));
    assert_eq!(reported(&mut second), [0, 2]);
    assert_eq!(sense(&second.run(&read(0)).unwrap()), Some(STANDBY));
    first.run_good(&read(0)).unwrap();

    let mut changed = two_groups();
    changed.portals = lab
        .server
        .portals()
        .iter()
        .zip([1, 2])
        .map(|(address, group)| target::config::PortalConfig { address: *address, group_tag: group })
        .collect();
    changed.targets[0].access_states =
        vec![(1, AccessState::Unavailable), (2, AccessState::ActiveNonOptimized)];
    let lines = lab.server.apply(changed.clone()).unwrap();
    assert!(
        lines.iter().any(|line| line.contains("group 1") && line.ends_with("unavailable now")),
        "{lines:?}"
    );
    assert_eq!(sense(&test_unit_ready(&mut second)), Some(ACCESS_CHANGED));
    second.run_good(&read(0)).unwrap();
    assert_eq!(sense(&test_unit_ready(&mut first)), Some(ACCESS_CHANGED));
    assert_eq!(sense(&first.run(&read(0)).unwrap()), Some((2, 4, 0x0c)));

    // A state that was changed in between stays when other settings of the configuration change.
    lab.server.set_access_state(TARGET, 1, AccessState::ActiveOptimized).unwrap();
    assert_eq!(sense(&test_unit_ready(&mut second)), Some(ACCESS_CHANGED));
    changed.targets[0].alias = Some("another".to_owned());
    lab.server.apply(changed.clone()).unwrap();
    assert_eq!(reported(&mut second), [0, 1]);

    // The same holds for the right of hosts to change them, and for the URL; units that stay get both.
    first.clear_unit_attentions().unwrap();
    changed.targets[0].hosts_set_access_states = false;
    changed.targets[0].management_url = Some("https://example.com/elsewhere".to_owned());
    lab.server.apply(changed).unwrap();
    for session in [&mut first, &mut second] {
        assert_eq!(sense(&test_unit_ready(session)), Some((6, 0x3f, 0x03)));
        assert_eq!(session.run_good(&Command::inquiry(96, 96)).unwrap().data[5] >> 4 & 3, 1);
        let page = session.run_good(&Command::read([0x12, 1, 0x85, 0, 255, 0], 255)).unwrap().data;
        assert!(String::from_utf8_lossy(&page).contains("https://example.com/elsewhere"));
    }
}

// covers: ALU-02
#[test]
fn units_that_stay_learn_of_ports_that_come_and_go() {
    let one = config();
    let lab = Lab::start(one.clone());
    let mut session = lab.session("a");
    let groups = |session: &mut Session| {
        let report = Command::read([0xa3, 0x0a, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0], 256);
        (session.run_good(&report).unwrap().data.len() - 4) / 12
    };
    assert_eq!(groups(&mut session), 1);
    let mut two = one.clone();
    two.portals.push(portal(2));
    for (config, count) in [(two, 2), (one, 1)] {
        let lines = lab.server.apply(config).unwrap();
        assert!(lines.iter().any(|line| line.contains("LUN 0") && line.contains("other ports")), "{lines:?}");
        assert_eq!(sense(&test_unit_ready(&mut session)), Some((6, 0x3f, 0x03)));
        assert_eq!(groups(&mut session), count);
        assert_eq!(session.run_good(&Command::inquiry(96, 96)).unwrap().data[6] & 0x10 != 0, count > 1);
    }
}

// covers: ALU-03 ALU-02 VPD-85
#[test]
fn they_change_by_the_control_socket_and_by_hosts() {
    let lab = Lab::start(two_groups());
    let (mut first, mut second) = (by_group(&lab, 1), by_group(&lab, 2));
    let shown = |lab: &Lab| -> Vec<(u16, u16, String)> {
        let states = lab.server.access_states(TARGET).unwrap();
        states.into_iter().map(|info| (info.lun, info.group, info.state)).collect()
    };
    assert_eq!(shown(&lab), [(0, 1, "active-optimized".to_owned()), (0, 2, "standby".to_owned())]);
    let lines = lab.server.set_access_state(TARGET, 2, AccessState::Transitioning).unwrap();
    assert!(lines[0].contains("transitioning for LUN 0"), "{lines:?}");
    assert_eq!(sense(&test_unit_ready(&mut first)), Some(ACCESS_CHANGED));
    assert_eq!(sense(&test_unit_ready(&mut second)), Some(ACCESS_CHANGED));
    assert_eq!(sense(&test_unit_ready(&mut second)), Some((2, 4, 0x0a)));
    assert_eq!(lab.server.set_access_state(TARGET, 2, AccessState::Transitioning).unwrap(), [""; 0]);
    assert!(lab.server.set_access_state(TARGET, 3, AccessState::Standby).unwrap_err().contains("no portal"));
    assert!(
        lab.server.set_access_state("iqn.none", 1, AccessState::Standby).unwrap_err().contains("intact ls")
    );
    assert!(lab.server.access_states("iqn.none").is_err());

    // SET TARGET PORT GROUPS, which INQUIRY offers.
    assert_eq!(first.run_good(&Command::inquiry(96, 96)).unwrap().data[5] >> 4 & 3, 3);
    let set = |states: [u8; 2]| {
        let list = [0, 0, 0, 0, states[0], 0, 0, 1, states[1], 0, 0, 2];
        Command::write([0xa4, 0x0a, 0, 0, 0, 0, 0, 0, 0, 12, 0, 0], list)
    };
    first.run_good(&set([2, 0])).unwrap();
    assert_eq!(sense(&test_unit_ready(&mut second)), Some(ACCESS_CHANGED));
    second.run_good(&read(0)).unwrap();
    assert_eq!(sense(&first.run(&read(0)).unwrap()), Some(STANDBY));
    assert_eq!(shown(&lab)[0].2, "standby");

    let page = second.run_good(&Command::read([0x12, 1, 0x85, 0, 255, 0], 255)).unwrap().data;
    assert!(String::from_utf8_lossy(&page).contains("https://example.com/disks"));
}

// covers: ALU-03
#[test]
fn hosts_do_not_change_them_unless_they_may() {
    let mut config = two_groups();
    config.targets[0].hosts_set_access_states = false;
    config.targets[0].portals = Some(vec![1]);
    let lab = Lab::start(config);
    let mut session = by_group(&lab, 1);
    assert_eq!(session.run_good(&Command::inquiry(96, 96)).unwrap().data[5] >> 4 & 3, 1);
    let set = Command::write([0xa4, 0x0a, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0], [0, 0, 0, 0, 2, 0, 0, 1]);
    assert_eq!(sense(&session.run(&set).unwrap()), Some((5, 0x24, 0)));
    // Units do not report a group that does not serve the target.
    let data =
        session.run_good(&Command::read([0xa3, 0x0a, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0], 256)).unwrap().data;
    assert_eq!(data.len(), 4 + 12);
    assert!(lab.server.set_access_state(TARGET, 2, AccessState::Standby).is_err());
}
