//! PDUs of an initiator, built from words.

use bytes::Bytes;
use iscsi_core::wire::{
    Bhs, Cid, CmdSn, DataOut, DataSn, Itt, LoginRequest, LoginStage, LogoutReason, LogoutRequest, Lun,
    NopOut, Opcode, Pdu, ScsiCommand, SnackRequest, SnackType, StatSn, TaskAttribute, TaskManagementRequest,
    TextRequest, TmfFunction, Tsih, Ttt, write_bidi_read_length, write_extended_cdb,
};

use crate::play::Peer;

/// `Name flag key=value ...`
pub struct Fields {
    pub name: String,
    words: Vec<(String, Option<String>)>,
}

impl Fields {
    pub fn parse(line: &str) -> Self {
        let mut words = line.split_whitespace();
        let name = words.next().expect("a name").to_owned();
        let words = words
            .map(|word| match word.split_once('=') {
                Some((key, value)) => (key.to_owned(), Some(value.to_owned())),
                None => (word.to_owned(), None),
            })
            .collect();
        Self { name, words }
    }

    pub fn flag(&self, name: &str) -> bool {
        self.words.iter().any(|(word, value)| word == name && value.is_none())
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        self.words.iter().find(|(word, _)| word == name).and_then(|(_, value)| value.as_deref())
    }

    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.words.iter().filter_map(|(word, value)| Some((word.as_str(), value.as_deref()?)))
    }

    pub fn number(&self, name: &str) -> Option<u32> {
        let text = self.text(name)?;
        let parsed = match text.strip_prefix("0x") {
            Some(hex) => u32::from_str_radix(hex, 16),
            None => text.parse(),
        };
        Some(parsed.unwrap_or_else(|_| panic!("{name}={text} is no number")))
    }

    fn itt(&self) -> Itt {
        self.number("itt").map_or(Itt::RESERVED, Itt)
    }

    fn ttt(&self) -> Ttt {
        self.number("ttt").map_or(Ttt::RESERVED, Ttt)
    }

    fn lun(&self) -> Lun {
        Lun::from_index(self.number("lun").unwrap_or(0) as u16)
    }

    fn one_of<T: Copy + std::fmt::Debug>(&self, name: &str, all: &[T]) -> Option<T> {
        let text = self.text(name)?;
        Some(
            *all.iter()
                .find(|code| format!("{code:?}") == text)
                .unwrap_or_else(|| panic!("no {name} {text}")),
        )
    }
}

fn stage(code: u32) -> LoginStage {
    LoginStage::try_from(code as u8).expect("a stage")
}

/// The PDU and its AHS. Fields that are not given follow from the state of `peer`.
pub fn build(fields: &Fields, peer: &mut Peer) -> (Pdu, Bytes) {
    let immediate = fields.flag("I");
    let exp_stat_sn = fields.number("exp_stat_sn").map_or(peer.exp_stat_sn(), StatSn);
    let numbered = !immediate && !matches!(fields.name.as_str(), "LoginRequest" | "DataOut" | "SnackRequest");
    let cmd_sn = match fields.number("cmd_sn") {
        Some(cmd_sn) => CmdSn(cmd_sn),
        None => {
            let cmd_sn = peer.cmd_sn;
            if numbered {
                peer.cmd_sn = cmd_sn.next();
            }
            cmd_sn
        }
    };
    let final_bit = fields.flag("F");
    let mut ahs = Vec::new();
    let pdu: Pdu = match fields.name.as_str() {
        "NopOut" => {
            NopOut { immediate, lun: fields.lun(), itt: fields.itt(), ttt: fields.ttt(), cmd_sn, exp_stat_sn }
                .into()
        }
        "ScsiCommand" => {
            let mut cdb = [0; 16];
            match fields.text("cdb") {
                Some(hex) => {
                    for (i, byte) in cdb.iter_mut().enumerate().take(hex.len() / 2) {
                        *byte = u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).expect("hex");
                    }
                }
                None => cdb[2..6].copy_from_slice(&fields.itt().0.to_be_bytes()),
            }
            if let Some(length) = fields.number("bidi") {
                write_bidi_read_length(&mut ahs, length);
            }
            if let Some(length) = fields.number("extended_cdb") {
                write_extended_cdb(&mut ahs, &vec![0xcd; length as usize]).expect("fits");
            }
            ScsiCommand {
                immediate,
                final_bit,
                read: fields.flag("R"),
                write: fields.flag("W"),
                attr: fields.one_of("attr", TaskAttribute::ALL).unwrap_or(TaskAttribute::Simple),
                priority: fields.number("priority").unwrap_or(0) as u8,
                lun: fields.lun(),
                itt: fields.itt(),
                expected_data_transfer_length: fields.number("edtl").unwrap_or(0),
                cmd_sn,
                exp_stat_sn,
                cdb,
            }
            .into()
        }
        "TaskManagementRequest" => TaskManagementRequest {
            immediate,
            function: fields.one_of("function", TmfFunction::ALL).expect("a function"),
            lun: fields.lun(),
            itt: fields.itt(),
            referenced_task_tag: fields.number("referenced_task_tag").map_or(Itt::RESERVED, Itt),
            cmd_sn,
            exp_stat_sn,
            ref_cmd_sn: CmdSn(fields.number("ref_cmd_sn").unwrap_or(0)),
            exp_data_sn: DataSn(fields.number("exp_data_sn").unwrap_or(0)),
        }
        .into(),
        "LoginRequest" => {
            let transit = fields.flag("T");
            LoginRequest {
                transit,
                continue_bit: fields.flag("C"),
                csg: stage(fields.number("csg").unwrap_or(1)),
                nsg: transit.then(|| stage(fields.number("nsg").unwrap_or(3))),
                version_max: fields.number("version_max").unwrap_or(0) as u8,
                version_min: fields.number("version_min").unwrap_or(0) as u8,
                isid: fields.number("isid").map_or(peer.isid, |n| {
                    let [a, b, c, d] = n.to_be_bytes();
                    iscsi_core::wire::Isid([0x80, 0, a, b, c, d])
                }),
                tsih: fields.number("tsih").map_or(peer.tsih, |tsih| Tsih(tsih as u16)),
                itt: Itt(fields.number("itt").unwrap_or(0)),
                cid: fields.number("cid").map_or(peer.at, |cid| Cid(cid as u16)),
                cmd_sn,
                exp_stat_sn,
            }
            .into()
        }
        "TextRequest" => TextRequest {
            immediate,
            final_bit,
            continue_bit: fields.flag("C"),
            lun: fields.lun(),
            itt: fields.itt(),
            ttt: fields.ttt(),
            cmd_sn,
            exp_stat_sn,
        }
        .into(),
        "DataOut" => DataOut {
            final_bit,
            lun: fields.lun(),
            itt: fields.itt(),
            ttt: fields.ttt(),
            exp_stat_sn,
            data_sn: DataSn(fields.number("data_sn").unwrap_or(0)),
            buffer_offset: fields.number("offset").unwrap_or(0),
        }
        .into(),
        "LogoutRequest" => LogoutRequest {
            immediate,
            reason: fields.one_of("reason", LogoutReason::ALL).unwrap_or(LogoutReason::CloseSession),
            itt: fields.itt(),
            cid: fields.number("cid").map_or(peer.at, |cid| Cid(cid as u16)),
            cmd_sn,
            exp_stat_sn,
        }
        .into(),
        "SnackRequest" => SnackRequest {
            snack_type: fields.one_of("type", SnackType::ALL).expect("a type"),
            lun: fields.lun(),
            itt: fields.itt(),
            ttt: fields.ttt(),
            exp_stat_sn,
            beg_run: fields.number("beg_run").unwrap_or(0),
            run_length: fields.number("run_length").unwrap_or(0),
        }
        .into(),
        other => panic!("an initiator does not send {other}"),
    };
    (pdu, ahs.into())
}

/// A header of any opcode, empty but for tags and CmdSN.
pub fn bare_header(opcode: u8, immediate: bool, itt: u32, cmd_sn: CmdSn) -> Bhs {
    let mut header = [0u8; 48];
    header[0] = opcode | if immediate { 0x40 } else { 0 };
    header[1] = 0x80;
    header[16..20].copy_from_slice(&itt.to_be_bytes());
    header[24..28].copy_from_slice(&cmd_sn.0.to_be_bytes());
    Bhs::from_bytes(header)
}

/// `bhs` with one byte changed by `xor`.
pub fn mutated(bhs: Bhs, at: usize, xor: u8) -> Bhs {
    let mut header = *bhs.as_bytes();
    header[at] ^= xor;
    Bhs::from_bytes(header)
}

/// Opcodes of the two sides, for scans.
pub fn opcodes(of_initiator: bool) -> impl Iterator<Item = u8> {
    Opcode::ALL.iter().filter(move |o| o.is_initiator() == of_initiator).map(|o| o.code())
}
