//! A host that sends arbitrary data: logins with forbidden keys and values, truncated PDUs, noise. The target owes it nothing but an end.
//! Any harm to other hosts would show in their loads.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use engine::{Completion, Driver, Platform, Token};
use fastrand::Rng;

use crate::driver::SimDriver;
use crate::world::{DriverId, Process, SimPlatform};

const KEYS: &[&str] = &[
    "InitiatorName=iqn.2026-01.io.intact:i1",
    "InitiatorName=",
    "InitiatorName=iqn.2026-01.io.intact:intruder",
    "TargetName=iqn.2026-01.io.intact:sim",
    "TargetName=iqn.2026-01.io.intact:other",
    "SessionType=Normal",
    "SessionType=Discovery",
    "SessionType=Sideways",
    "HeaderDigest=CRC32C,None",
    "HeaderDigest=CRC64",
    "DataDigest=,",
    "MaxConnections=0",
    "MaxConnections=65536",
    "MaxRecvDataSegmentLength=511",
    "MaxRecvDataSegmentLength=16777216",
    "MaxBurstLength=99999999999999999999",
    "FirstBurstLength=-1",
    "InitialR2T=Perhaps",
    "ImmediateData=Yes",
    "ErrorRecoveryLevel=3",
    "AuthMethod=None",
    "AuthMethod=CHAP,KRB5",
    "CHAP_A=5",
    "DefaultTime2Wait=0",
    "X-io.example.unknown=1",
    "NoEquals",
    "=NoKey",
];

/// See the module.
pub(crate) struct Intruder {
    driver: SimDriver,
    id: DriverId,
    rng: Rng,
    open: Vec<(Token, u32)>,
}

impl Intruder {
    pub(crate) fn new(platform: &Arc<SimPlatform>, rng: Rng) -> io::Result<Self> {
        let driver = Process(Arc::clone(platform)).driver()?;
        let id = platform.drivers().last().copied().unwrap_or(0);
        Ok(Self { driver, id, rng, open: Vec::new() })
    }

    pub(crate) fn driver(&self) -> DriverId {
        self.id
    }

    pub(crate) fn connect(&mut self, to: SocketAddr) {
        if let Ok(token) = self.driver.connect(to, None) {
            let words = self.rng.u32(1..6);
            self.open.push((token, words));
        }
    }

    pub(crate) fn turn(&mut self) {
        let mut done = Vec::new();
        if self.driver.wait(None, &mut done).is_err() {
            return;
        }
        for completion in done {
            match completion {
                Completion::Connected { conn, result: Ok(()) } => {
                    self.driver.recv(conn, BytesMut::with_capacity(4096));
                    self.say(conn);
                }
                Completion::Connected { conn, .. } => self.leave(conn),
                Completion::Received { conn, mut buffer, result } => match result {
                    Ok(n) if n > 0 => {
                        buffer.clear();
                        self.driver.recv(conn, buffer);
                        self.say(conn);
                    }
                    _ => self.leave(conn),
                },
                Completion::Sent { conn, result: Err(_), .. } => self.leave(conn),
                _ => {}
            }
        }
    }

    fn leave(&mut self, conn: Token) {
        self.driver.close(conn);
        self.open.retain(|(token, _)| *token != conn);
    }

    fn say(&mut self, conn: Token) {
        let Some((_, words)) = self.open.iter_mut().find(|(token, _)| *token == conn) else { return };
        if *words == 0 {
            // Some stay silent until the target closes the connection.
            if self.rng.bool() {
                self.leave(conn);
            }
            return;
        }
        *words -= 1;
        let bytes = match self.rng.u8(0..8) {
            0 => (0..self.rng.usize(1..200)).map(|_| self.rng.u8(..)).collect(),
            1 => {
                let mut pdu = self.login();
                pdu.truncate(self.rng.usize(1..pdu.len()));
                pdu
            }
            2 => {
                let mut pdu = self.login();
                let at = self.rng.usize(0..48);
                pdu[at] ^= self.rng.u8(1..);
                pdu
            }
            _ => self.login(),
        };
        self.driver.send(conn, vec![Bytes::from(bytes)]);
    }

    fn login(&mut self) -> Vec<u8> {
        let mut text = Vec::new();
        for _ in 0..self.rng.usize(0..8) {
            text.extend_from_slice(KEYS[self.rng.usize(0..KEYS.len())].as_bytes());
            text.push(0);
        }
        let mut pdu = vec![0; 48];
        pdu[0] = 0x43;
        pdu[1] = *self.rng.choice(&[0x87, 0x83, 0x81, 0x04, 0x00, 0x8f, 0x40]).unwrap_or(&0x87);
        pdu[5..8].copy_from_slice(&(text.len() as u32).to_be_bytes()[1..]);
        pdu[8..14].copy_from_slice(&[0x80, 0x51, 0x3d, self.rng.u8(1..4), 0, 1]);
        if self.rng.u8(..) < 64 {
            pdu[15] = self.rng.u8(..);
        }
        pdu[19] = self.rng.u8(..);
        pdu[27] = 1;
        text.resize(text.len().next_multiple_of(4), 0);
        pdu.extend_from_slice(&text);
        pdu
    }
}
