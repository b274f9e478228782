//! A server's life with raw peers: it ends and reloads as it should, and a full disk, a vanished file and hostile peers hurt
//! only who has to do with them.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command as Program;

use crate::common::{PATIENCE, Serve, Signal, intact};
use crate::support::{IQN, left_out, serve, target, write_config};
use conform::{Command, Frame, LoginScript, PeerError, RawPeer, Session, Transcript, Unsolicited};
use iscsi_core::wire::{LoginStage, Lun, Opcode, Pdu};

const OTHER: &str = "iqn.2004-10.com.example:other";
const INITIATOR: &str = "iqn.2004-10.com.example:tester";
const BLOCK: u32 = 512;

fn connect(portal: SocketAddr) -> RawPeer {
    RawPeer::connect(portal, PATIENCE, &Transcript::new()).unwrap()
}

/// A raw session with LUN 0 of a target, its unit attentions taken.
fn session(portal: SocketAddr, target: &str) -> Session {
    let script = LoginScript::new(INITIATOR, Some(target));
    let mut session = Session::log_in(connect(portal), script, Lun::from_index(0)).unwrap();
    session.clear_unit_attentions().unwrap();
    session
}

/// Writes a block and reads it back.
#[track_caller]
fn works(session: &mut Session) {
    let data = vec![0x5a; BLOCK as usize];
    session.run_good(&Command::write_16(8, data.clone(), BLOCK)).unwrap();
    assert_eq!(session.run_good(&Command::read_16(8, 1, BLOCK)).unwrap().data, data);
}

// covers: ASY-01
#[test]
fn sigterm_asks_for_a_logout_and_waits_for_it() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = serve(directory.path(), 1, &target(IQN, "", &["ram:1M"]));
    let mut session = session(server.portal(), IQN);
    works(&mut session);
    server.signal(Signal::TERM);
    let asked = session.next().unwrap();
    let Ok(Pdu::AsyncMessage(message)) = asked.pdu() else { panic!("{}", asked.line()) };
    assert_eq!(asked.bhs.as_bytes()[36], 1, "event 1: the target asks for a logout: {}", asked.line());
    assert!(message.parameter3 > 0, "the time that is left: {}", asked.line());
    // What was begun may still be ended.
    works(&mut session);
    session.log_out().unwrap();
    assert_eq!(server.wait().code(), Some(0));
    server.log_line("ending");
}

// covers: ASY-04
#[test]
fn a_reload_leaves_sessions_that_it_does_not_concern() {
    let directory = tempfile::tempdir().unwrap();
    let both = target(IQN, "", &["ram:1M"]) + &target(OTHER, "", &["ram:1M"]);
    let server = serve(directory.path(), 1, &both);
    let listen = [SocketAddr::from(([127, 0, 0, 1], 0))];
    let mut stays = session(server.portal(), IQN);
    let mut goes = session(server.portal(), OTHER);
    works(&mut goes);
    let waiting = stays.start(&Command::write_16(0, vec![0x77; 2 * BLOCK as usize], BLOCK)).unwrap();
    let r2t = stays.expect_r2t(&waiting).unwrap();

    // Another unit for the first, the second target goes, a third comes.
    let third = "iqn.2004-10.com.example:third";
    let config = target(IQN, "", &["ram:1M", "ram:2M"]) + &target(third, "", &["ram:1M"]);
    write_config(directory.path(), &listen, &config);
    server.signal(Signal::HUP);
    server.log_line("third");
    // Who used what is gone is told, and its connection ends.
    match goes.peer.until_closed() {
        Ok(before) => {
            assert!(before.iter().all(|pdu| pdu.bhs.opcode() == Opcode::AsyncMessage.code()), "{before:?}");
        }
        Err(error) => panic!("{error}"),
    }
    let gone = Session::log_in(
        connect(server.portal()),
        LoginScript::new(INITIATOR, Some(OTHER)),
        Lun::from_index(0),
    );
    assert!(matches!(gone, Err(PeerError::Login(_))), "a target that is gone takes no login");
    // The command that waited for its data goes on as if nothing had been.
    stays.serve(&waiting, &r2t).unwrap();
    assert!(stays.finish(&waiting).unwrap().is_good());
    let read = stays.run(&Command::read_16(0, 2, BLOCK)).unwrap();
    let read =
        if read.is_unit_attention() { stays.run_good(&Command::read_16(0, 2, BLOCK)).unwrap() } else { read };
    assert_eq!(read.data, vec![0x77; 2 * BLOCK as usize]);
    works(&mut stays);
    // It was also told by an asynchronous event, with sense data: UNIT ATTENTION, REPORTED LUNS DATA HAS CHANGED.
    let event = stays.stashed_of(Opcode::AsyncMessage).expect("event 0");
    assert_eq!(event.bhs.as_bytes()[36], 0, "{}", event.line());
    let (length, sense) = event.data.split_at(2);
    assert_eq!(length, (sense.len() as u16).to_be_bytes(), "{}", event.line());
    assert_eq!((sense[2] & 0xf, sense[12], sense[13]), (6, 0x3f, 0x0e), "{}", event.line());
    works(&mut session(server.portal(), third));
}

/// A server whose store is on a file system of 8 MiB, which is its own and ends with it. `None` where the tester may not mount.
fn on_a_small_disk(directory: &Path) -> Option<Serve> {
    let disk = directory.join("disk");
    fs::create_dir(&disk).unwrap();
    let stores = [&format!("file:{},size=64M,block=512", disk.join("a.img").display()), "ram:1M"];
    let file = write_config(directory, &[([127, 0, 0, 1], 0).into()], &target(IQN, "", &stores));
    let mount = format!("mount -t tmpfs -o size=8m none {}", disk.display());
    // Root in a mount namespace of its own, or in a user namespace where there are any.
    let namespace = ["-m", "-rm"].into_iter().find(|kind| {
        Program::new("unshare")
            .args([kind, "sh", "-c", &mount])
            .output()
            .is_ok_and(|done| done.status.success())
    });
    let Some(namespace) = namespace else {
        left_out("a small file system cannot be mounted here");
        return None;
    };
    let mut command = Program::new("unshare");
    let serve = intact();
    command.args([namespace, "sh", "-c", &format!("{mount} && exec \"$0\" \"$@\"")]).arg(serve.get_program());
    command.args(["serve", "--json", "-c"]).arg(file).env_remove("RUST_LOG");
    Some(Serve::spawn(command, directory.join("control.sock")))
}

#[test]
fn a_full_disk_is_told_and_survived() {
    let directory = tempfile::tempdir().unwrap();
    let Some(mut server) = on_a_small_disk(directory.path()) else { return };
    let mut session = session(server.portal(), IQN);
    const MIB: u32 = 1 << 20;
    let blocks = MIB / BLOCK;
    let lba = |mib: u64| mib * u64::from(blocks);
    let data = |byte: u8| vec![byte; MIB as usize];
    let mut full = None;
    for mib in 0..16 {
        let outcome = session.run(&Command::write_16(lba(mib), data(mib as u8 + 1), BLOCK)).unwrap();
        if !outcome.is_good() {
            // DATA PROTECT, SPACE ALLOCATION FAILED WRITE PROTECT (SBC-3 4.7.3.6).
            assert!(outcome.is_check(0x07, 0x27, 0x07), "{}", outcome.words());
            full = Some(mib);
            break;
        }
    }
    let full = full.expect("8 MiB hold no 16");
    assert!(full >= 6, "full after {full} MiB");
    let told = server.log_line("a store fails");
    assert!(told.contains("no space left") && told.contains("lun=0"), "{told}");
    // What was written is there, the next attempt fails alike, the other unit and other sessions do not care.
    for mib in 0..full {
        let read = session.run_good(&Command::read_16(lba(mib), blocks, BLOCK)).unwrap();
        assert!(read.data == data(mib as u8 + 1), "MiB {mib}");
    }
    let again = session.run(&Command::write_16(lba(40), data(9), BLOCK)).unwrap();
    assert!(again.is_check(0x07, 0x27, 0x07), "{}", again.words());
    let flush = session.run(&Command::none([0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0])).unwrap();
    assert!(flush.is_good(), "{}", flush.words());
    session.lun = Lun::from_index(1);
    session.clear_unit_attentions().unwrap();
    works(&mut session);
    session.lun = Lun::from_index(0);
    // UNMAP gives space back, and then there is room.
    let mut list = vec![0, 22, 0, 16, 0, 0, 0, 0];
    list.extend([0; 8]);
    list.extend((4 * blocks).to_be_bytes());
    list.extend([0; 4]);
    session.run_good(&Command::write([0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0], list)).unwrap();
    session.run_good(&Command::write_16(lba(40), data(9), BLOCK)).unwrap();
    assert!(session.run_good(&Command::read_16(lba(40), blocks, BLOCK)).unwrap().data == data(9));
    session.log_out().unwrap();
    server.signal(Signal::TERM);
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn a_file_that_shrinks_or_vanishes_hurts_only_its_unit() {
    let directory = tempfile::tempdir().unwrap();
    let files = ["shrinks.img", "vanishes.img"].map(|name| directory.path().join(name));
    let stores = [0, 1].map(|n| format!("file:{},size=1M,block=512", files[n].display()));
    let server = serve(directory.path(), 1, &target(IQN, "", &[&stores[0], &stores[1], "ram:1M"]));
    let mut session = session(server.portal(), IQN);
    works(&mut session);
    fs::File::options().write(true).open(&files[0]).unwrap().set_len(4096).unwrap();
    fs::remove_file(&files[1]).unwrap();
    for command in [Command::read_16(1024, 8, BLOCK), Command::write_16(1024, vec![1; 4096], BLOCK)] {
        let outcome = session.run(&command).unwrap();
        // NOT READY, MEDIUM NOT PRESENT: not bytes that nobody wrote.
        assert!(outcome.is_check(0x02, 0x3a, 0x00), "{}", outcome.words());
        assert!(outcome.data.is_empty(), "{}", outcome.words());
    }
    // A file without a name is still the file that was opened.
    for lun in [1, 2] {
        session.lun = Lun::from_index(lun);
        session.clear_unit_attentions().unwrap();
        works(&mut session);
    }
    session.ping().unwrap();
    assert_eq!(server.ls("luns").as_array().unwrap().len(), 3);
}

/// The most memory that a process ever held, in bytes.
fn peak_bytes(server: &Serve) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", server.ready["pid"])).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() << 10
}

/// Peers announce much and send little, ask for much and read nothing, and leave writes without their data. Memory grows by
/// what the configuration allows for data in flight, whatever they say; and who behaves is served meanwhile.
#[test]
fn hostile_peers_cannot_make_it_grow() {
    const PEERS: usize = 48;
    const COMMANDS: usize = 100;
    const MIB: u64 = 1 << 20;
    let directory = tempfile::tempdir().unwrap();
    // 64 MiB of data in flight; the volume is sparse, and what is read from it takes memory only on the way.
    let config = "[limits]\nbuffer_bytes_max = \"64M\"\n".to_owned() + &target(IQN, "", &["ram:1G"]);
    let server = serve(directory.path(), 1, &config);
    let portal = server.portal();
    let mut good = session(portal, IQN);
    works(&mut good);
    let before = peak_bytes(&server);

    // Logins that announce 16 MiB of text and send a little of it.
    let mut peers: Vec<RawPeer> = (0..PEERS).map(|_| connect(portal)).collect();
    for peer in &mut peers {
        let script = LoginScript::new(INITIATOR, Some(IQN));
        let request = script.request(LoginStage::Operational, Some(LoginStage::FullFeature));
        let frame = Frame::of(request).data(vec![b'x'; 4096]).claim_data_length(0xff_ffff);
        // It may be refused at once; then the rest cannot be sent.
        let _ = peer.send_part(&frame, 1024);
    }
    works(&mut good);

    // Sessions that ask for 100 MiB each and read nothing of it.
    let mut deaf: Vec<Session> = (0..PEERS).map(|_| session(portal, IQN)).collect();
    for session in &mut deaf {
        for n in 0..COMMANDS as u64 {
            let read = Command::read_16(n * 2048, (MIB / 512) as u32, BLOCK);
            session.start(&read).unwrap();
        }
    }
    works(&mut good);

    // Sessions that begin writes of 1 MiB each, and never send what they are asked for.
    let mut silent: Vec<Session> = (0..PEERS).map(|_| session(portal, IQN)).collect();
    for session in &mut silent {
        for n in 0..COMMANDS as u64 {
            let mut write =
                Command::write_16(n * 2048, vec![0; 512], BLOCK).unsolicited(Unsolicited::Immediate(512));
            write.cdb[10..14].copy_from_slice(&((MIB / 512) as u32).to_be_bytes());
            write.edtl = MIB as u32;
            session.start(&write).unwrap();
        }
    }
    works(&mut good);

    // A PDU in full feature phase that announces more than was agreed on.
    let mut liar = session(portal, IQN);
    let nop = liar.nop(iscsi_core::wire::Itt(77), true);
    let _ = liar.peer.send_part(&Frame::of(nop).data(vec![0; 4096]).claim_data_length(0xff_ffff), 2048);
    works(&mut good);

    let grown = peak_bytes(&server) - before;
    println!("{} sessions, {} MiB more", 2 * PEERS + 2, grown / MIB);
    // The buffers, and room for what each connection needs by itself.
    assert!(grown < 64 * MIB + 3 * PEERS as u64 * MIB / 2, "{} MiB more", grown / MIB);
    drop((peers, deaf, silent, liar));
    works(&mut good);
    good.log_out().unwrap();
}
