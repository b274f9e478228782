//! What hosts send when they find a disk (rows HST): the sequences of Linux, Windows, ESXi and a boot firmware, as public
//! sources and traces show them, with the answers that each host needs to continue.

use super::digested;
use super::scsi::{reserve_in, reserve_out, vpd};
use crate::Stop;
use crate::script::{ensure, fail, skip};
use crate::session::{Command, Session};
use crate::target::{Ctx, Row, RowResult};

pub(super) const ROWS: &[Row] = &[
    Row::new("HST-01", "ESXi: probing, RESERVE (6), and the commands of VAAI", hst_01),
    Row::new("HST-02", "Windows cluster: arbitration of two nodes by persistent reservations", hst_02),
    Row::new("HST-03", "Windows: offloaded copy and trim", hst_03),
    Row::new("HST-04", "Windows: logins with every choice of digests, and a load on each", hst_04),
    Row::new("HST-05", "Linux: what sd, multipath and LVM ask", hst_05),
    Row::new("HST-06", "boot firmware: a login with nothing but names, small reads", hst_06),
];

/// What a host needs as an answer.
#[derive(Clone, Copy)]
enum Needs {
    /// It continues only with GOOD.
    Good,
    /// GOOD, or ILLEGAL REQUEST: the command is a probe.
    Probe,
}

/// Sends the commands in order.
fn play(s: &mut Session, steps: &[(&str, Needs, Command)]) -> RowResult {
    for (name, needs, command) in steps {
        s.note(name);
        let outcome = s.run(command)?;
        let refused = matches!(outcome.sense_code(), Some((5, _, _)));
        let fine = outcome.is_good() || matches!(needs, Needs::Probe) && refused;
        ensure!(fine, "{name} ended with {}", outcome.words());
    }
    Ok(())
}

fn read(cdb: &[u8], edtl: u32) -> Command {
    Command::read(cdb, edtl)
}

fn page(code: u8, length: u8) -> Command {
    read(&[0x12, 1, code, 0, length, 0], length.into())
}

/// A 16-byte CDB of this operation code with LBA and number of blocks.
fn sixteen(opcode: u8, flags: u8, lba: u64, blocks: u32) -> [u8; 16] {
    let mut cdb = [0; 16];
    (cdb[0], cdb[1]) = (opcode, flags);
    cdb[2..10].copy_from_slice(&lba.to_be_bytes());
    cdb[10..14].copy_from_slice(&blocks.to_be_bytes());
    cdb
}

/// UNMAP of one range.
fn unmap(lba: u64, blocks: u32) -> Command {
    let mut list = vec![0, 22, 0, 16, 0, 0, 0, 0];
    list.extend(lba.to_be_bytes());
    list.extend(blocks.to_be_bytes());
    list.extend([0; 4]);
    Command::write([0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0], list)
}

// covers: HST-01
fn hst_01(ctx: &mut Ctx) -> RowResult {
    use Needs::{Good, Probe};
    let scratch = ctx.scratch();
    let (lba, size) = (scratch.lba, scratch.block_size);
    let mut s = ctx.session()?;
    let zero = vec![0; size as usize];
    let lock = vec![0x10; size as usize];
    let test_and_set = |old: &[u8], new: &[u8]| Command::write(sixteen(0x89, 0, lba, 1), [old, new].concat());
    let steps = [
        ("REPORT LUNS of LUN 0", Good, Command::report_luns(0x408, 0x408)),
        ("INQUIRY", Good, Command::inquiry(36, 36)),
        ("list of pages", Good, page(0, 252)),
        ("serial number", Good, page(0x80, 252)),
        ("names of the unit", Good, page(0x83, 252)),
        ("TEST UNIT READY", Good, Command::test_unit_ready()),
        ("READ CAPACITY (10)", Good, read(&[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], 8)),
        ("READ CAPACITY (16)", Good, Command::read_capacity_16()),
        ("caching page", Good, read(&[0x1a, 0, 0x08, 0, 255, 0], 255)),
        ("block limits", Probe, page(0xb0, 252)),
        ("provisioning", Probe, page(0xb2, 252)),
        ("copy: operating parameters", Probe, read(&sixteen(0x84, 3, 0, 0x400), 0x400)),
        ("RESERVE (6)", Probe, Command::none([0x16, 0, 0, 0, 0, 0])),
        ("the lock by a write", Good, Command::write_16(lba, zero.clone(), size)),
        ("RELEASE (6)", Probe, Command::none([0x17, 0, 0, 0, 0, 0])),
    ];
    play(&mut s, &steps)?;
    // ATS: take the lock; byte 13 holds the number of blocks.
    s.note("test and set");
    let taken = s.run(&test_and_set(&zero, &lock))?;
    if taken.is_check(5, 0x20, 0) {
        skip!("no COMPARE AND WRITE: such a host locks by RESERVE (6)");
    }
    ensure!(taken.is_good(), "taking a free lock ended with {}", taken.words());
    let lost = s.run(&test_and_set(&zero, &lock))?;
    ensure!(lost.is_check(0xe, 0x1d, 0), "taking a lock that is taken ended with {}", lost.words());
    let steps = [
        ("WRITE SAME of zeros", Probe, Command::write(sixteen(0x93, 0, lba, 8), zero.clone())),
        ("WRITE SAME with UNMAP", Probe, Command::write(sixteen(0x93, 8, lba, 8), zero.clone())),
        ("UNMAP", Probe, unmap(lba, 8)),
    ];
    play(&mut s, &steps)?;
    let after = s.run_good(&Command::read_16(lba, 1, size))?;
    ensure!(after.data == zero || after.data == lock, "blocks that were given back read as something else");
    Ok(())
}

// covers: HST-02
fn hst_02(ctx: &mut Ctx) -> RowResult {
    const KEYS: [u64; 2] = [0x0001_6b65_7931, 0x0002_6b65_7932];
    const CONFLICT: u8 = 0x18;
    let scratch = ctx.scratch();
    let size = scratch.block_size;
    let write = Command::write_16(scratch.lba, vec![0x42; size as usize], size);
    let mut one = ctx.session()?;
    if one.run(&reserve_in(0))?.is_check(5, 0x20, 0) {
        skip!("the target has no persistent reservations");
    }
    let mut two = ctx.session()?;
    let names = vpd(&mut one, 0x83)?.data;
    ensure!(names.len() >= 8, "page 83h has {} bytes", names.len());
    ensure!(vpd(&mut two, 0x83)?.data == names, "the nodes see different disks");
    let holder = |s: &mut Session| -> Result<Option<(u64, u8)>, Stop> {
        let data = s.run_good(&reserve_in(1))?.data;
        let key = data.get(8..16).and_then(|bytes| bytes.first_chunk::<8>());
        Ok(key.map(|key| (u64::from_be_bytes(*key), data.get(21).map_or(0, |byte| byte & 0x0f))))
    };
    one.run_good(&reserve_out(3, 0, 0, 0)).ok(); // CLEAR without a registration: it may conflict
    for kind in [5u8, 1] {
        one.run_good(&reserve_out(6, 0, 0, KEYS[0]))?;
        one.run_good(&reserve_out(1, kind, KEYS[0], 0))?;
        ensure!(
            holder(&mut one)? == Some((KEYS[0], kind)),
            "READ RESERVATION after RESERVE: {:?}",
            holder(&mut one)?
        );
        let outcome = two.run(&write)?;
        ensure!(outcome.status == CONFLICT, "a write of the other node ended with {}", outcome.words());
        two.run_good(&reserve_out(6, 0, 0, KEYS[1]))?;
        let outcome = two.run(&reserve_out(1, kind, KEYS[1], 0))?;
        ensure!(outcome.status == CONFLICT, "RESERVE of the other node ended with {}", outcome.words());
        // The holder is gone: the other node takes over.
        two.run_good(&reserve_out(4, kind, KEYS[1], KEYS[0]))?;
        ensure!(
            holder(&mut two)? == Some((KEYS[1], kind)),
            "READ RESERVATION after PREEMPT: {:?}",
            holder(&mut two)?
        );
        two.run_good(&write)?;
        // The loser is notified, and may no longer write.
        one.clear_unit_attentions()?;
        let outcome = one.run(&write)?;
        ensure!(outcome.status == CONFLICT, "a write of the loser ended with {}", outcome.words());
        two.run_good(&reserve_out(2, kind, KEYS[1], 0))?;
        ensure!(holder(&mut two)?.is_none(), "a reservation after RELEASE");
        two.run_good(&reserve_out(0, 0, KEYS[1], 0))?;
        one.clear_unit_attentions()?;
        one.run_good(&write)?;
    }
    Ok(())
}

/// A parameter list with one range descriptor, in the format of POPULATE TOKEN and WRITE USING TOKEN after `head`.
fn with_range(head: Vec<u8>, lba: u64, blocks: u32) -> Vec<u8> {
    let mut list = head;
    let at = list.len() - 2;
    list[at..].copy_from_slice(&16u16.to_be_bytes());
    list.extend(lba.to_be_bytes());
    list.extend(blocks.to_be_bytes());
    list.extend([0; 4]);
    let length = (list.len() - 2) as u16;
    list[..2].copy_from_slice(&length.to_be_bytes());
    list
}

/// A third-party copy command with LIST IDENTIFIER 1 and this PARAMETER LIST LENGTH.
fn copy_cdb(action: u8, length: u32) -> [u8; 16] {
    let mut cdb = [0; 16];
    (cdb[0], cdb[1]) = (0x83, action);
    cdb[6..10].copy_from_slice(&1u32.to_be_bytes());
    cdb[10..14].copy_from_slice(&length.to_be_bytes());
    cdb
}

// covers: HST-03
fn hst_03(ctx: &mut Ctx) -> RowResult {
    const TOKEN_BYTES: usize = 512;
    const BLOCKS: u32 = 8;
    let scratch = ctx.scratch();
    let (lba, size) = (scratch.lba, scratch.block_size);
    let mut s = ctx.session()?;
    let steps =
        [("block limits", Needs::Good, page(0xb0, 64)), ("provisioning", Needs::Probe, page(0xb2, 64))];
    play(&mut s, &steps)?;
    if !vpd(&mut s, 0x8f)?.is_good() {
        skip!("no page 8Fh: the host copies by itself");
    }
    let data: Vec<u8> = (0..BLOCKS * size).map(|n| (n % 249) as u8).collect();
    s.run_good(&Command::write_16(lba, data.clone(), size))?;
    let list = with_range(vec![0; 16], lba, BLOCKS);
    let populated = s.run(&Command::write(copy_cdb(0x10, list.len() as u32), list))?;
    if matches!(populated.sense_code(), Some((5, 0x20 | 0x24, 0))) {
        skip!("no copies by token");
    }
    ensure!(populated.is_good(), "POPULATE TOKEN ended with {}", populated.words());
    let mut cdb = [0; 16];
    (cdb[0], cdb[1], cdb[5]) = (0x84, 0x07, 1);
    cdb[10..14].copy_from_slice(&1024u32.to_be_bytes());
    let information = s.run_good(&read(&cdb, 1024))?.data;
    let length = information.first_chunk::<4>().map_or(0, |bytes| u32::from_be_bytes(*bytes)) as usize;
    let Some(token) = information.get((4 + length).saturating_sub(TOKEN_BYTES)..4 + length) else {
        fail!("RECEIVE ROD TOKEN INFORMATION says {length} bytes and sends {}", information.len())
    };
    let mut head = vec![0; 16];
    head.extend(token);
    head.extend([0; 8]);
    let list = with_range(head, lba + u64::from(BLOCKS), BLOCKS);
    let written = s.run(&Command::write(copy_cdb(0x11, list.len() as u32), list))?;
    ensure!(written.is_good(), "WRITE USING TOKEN ended with {}", written.words());
    let copied = s.run_good(&Command::read_16(lba + u64::from(BLOCKS), BLOCKS, size))?;
    ensure!(copied.data == data, "the copy is not what was copied");
    play(&mut s, &[("trim", Needs::Probe, unmap(lba, BLOCKS))])
}

// covers: HST-04
fn hst_04(ctx: &mut Ctx) -> RowResult {
    let scratch = ctx.scratch();
    let size = scratch.block_size;
    let blocks = (65_536 / size).max(1).min(scratch.blocks);
    let mut tried = 0;
    for (header, data) in [(false, false), (true, false), (false, true), (true, true)] {
        let Some(mut s) = digested(ctx, header, data)? else { continue };
        tried += 1;
        for round in 0..8u32 {
            let bytes: Vec<u8> = (0..blocks * size).map(|n| (n.wrapping_mul(31) ^ round) as u8).collect();
            s.run_good(&Command::write_16(scratch.lba, bytes.clone(), size))?;
            let back = s.run_good(&Command::read_16(scratch.lba, blocks, size))?;
            ensure!(back.data == bytes, "round {round}, digests {header} {data}: other data came back");
        }
        s.log_out()?;
    }
    ensure!(tried > 0, "no choice of digests was agreed on");
    Ok(())
}

// covers: HST-05
fn hst_05(ctx: &mut Ctx) -> RowResult {
    use Needs::{Good, Probe};
    let scratch = ctx.scratch();
    let size = scratch.block_size;
    let mut s = ctx.session()?;
    let support = |opcode: u8, action: u8| read(&[0xa3, 0x0c, 3, opcode, 0, action, 0, 0, 2, 0, 0, 0], 512);
    let steps = [
        ("INQUIRY, short", Good, Command::inquiry(36, 36)),
        ("INQUIRY, whole", Good, Command::inquiry(96, 96)),
        ("list of pages", Good, page(0, 4)),
        ("list of pages, whole", Good, page(0, 255)),
        ("serial number", Good, page(0x80, 255)),
        ("names", Good, page(0x83, 255)),
        ("REPORT LUNS", Good, Command::report_luns(4096, 4096)),
        ("TEST UNIT READY", Good, Command::test_unit_ready()),
        ("READ CAPACITY (16)", Good, Command::read_capacity_16()),
        ("READ CAPACITY (10)", Good, read(&[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], 8)),
        ("all pages, header", Good, read(&[0x1a, 0, 0x3f, 0, 4, 0], 4)),
        ("caching page, header", Good, read(&[0x1a, 0, 0x08, 0, 4, 0], 4)),
        ("caching page", Good, read(&[0x1a, 0, 0x08, 0, 32, 0], 32)),
        ("control page", Good, read(&[0x5a, 0, 0x0a, 0, 0, 0, 0, 0, 36, 0], 36)),
        ("block limits", Probe, page(0xb0, 64)),
        ("characteristics", Probe, page(0xb1, 64)),
        ("provisioning", Probe, page(0xb2, 8)),
        ("extended INQUIRY", Probe, page(0x86, 64)),
        ("is there INQUIRY", Probe, support(0x12, 0)),
        ("is there WRITE SAME (16)", Probe, support(0x93, 0)),
        ("is there SYNCHRONIZE CACHE (10)", Probe, support(0x35, 0)),
        ("target port groups, long header", Probe, read(&[0xa3, 0x2a, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0], 1024)),
        ("target port groups", Probe, read(&[0xa3, 0x0a, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0], 1024)),
        ("keys", Probe, reserve_in(0)),
        ("reservation", Probe, reserve_in(1)),
        ("first block", Good, Command::read_16(0, 1, size)),
        ("last block", Good, Command::read_16(ctx.capacity_blocks() - 1, 1, size)),
        ("SYNCHRONIZE CACHE (10)", Good, Command::none([0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0])),
    ];
    play(&mut s, &steps)?;
    // A write with FUA, which sd sends for a journal commit when DPOFUA is set.
    let header = s.run_good(&read(&[0x1a, 0, 0x3f, 0, 4, 0], 4))?.data;
    if header.get(2).is_some_and(|byte| byte & 0x10 != 0) {
        let commit = Command::write(sixteen(0x8a, 0x08, scratch.lba, 1), vec![0x5d; size as usize]);
        play(&mut s, &[("write with FUA", Good, commit)])?;
    }
    Ok(())
}

// covers: HST-06
fn hst_06(ctx: &mut Ctx) -> RowResult {
    use Needs::Good;
    let mut script = ctx.script();
    script.keys.retain(|(key, _)| key.ends_with("Name") || key == "SessionType");
    let script = script.key("MaxBurstLength", "8192").key("FirstBurstLength", "8192");
    let mut s = match ctx.session_of(script) {
        Ok(session) => session,
        Err(Stop::Fail(why)) if why.starts_with("login refused") => skip!("the target wants digests: {why}"),
        Err(other) => return Err(other),
    };
    s.clear_unit_attentions()?;
    let size = ctx.scratch().block_size;
    let steps = [
        ("TEST UNIT READY", Good, Command::test_unit_ready()),
        ("INQUIRY", Good, Command::inquiry(36, 36)),
        ("READ CAPACITY (10)", Good, read(&[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], 8)),
        ("READ CAPACITY (16)", Good, Command::read_capacity_16()),
    ];
    play(&mut s, &steps)?;
    for lba in [0u8, 1, 2, 0] {
        let ten = s.run_good(&read(&[0x28, 0, 0, 0, 0, lba, 0, 0, 32, 0], 32 * size))?;
        let sixteen = s.run_good(&Command::read_16(lba.into(), 32, size))?;
        ensure!(
            ten.data.len() as u32 == 32 * size && ten.data == sixteen.data,
            "READ (10) and READ (16) differ"
        );
    }
    Ok(())
}
