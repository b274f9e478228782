//! Mode pages (SPC-4 7.5, SBC-3 6.5): what each holds, and which bits a host may change.

use crate::config::LuConfig;
use crate::protection::PiModes;

/// The parameters that a host can change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ModePages {
    write_cache: bool,
    descriptor_sense: bool,
    software_write_protect: bool,
    task_aborted_status: bool,
    unit_attention_interlock: u8,
    pi: PiModes,
}

/// PAGE CONTROL without the saved values, which are not supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageControl {
    Current,
    Changeable,
    Default,
}

/// Page and subpage codes in the order in which MODE SENSE returns them.
pub(crate) const PAGES: &[(u8, u8)] = &[
    (0x01, 0x00),
    (0x02, 0x00),
    (0x08, 0x00),
    (0x0a, 0x00),
    (0x0a, 0x01),
    (0x1a, 0x00),
    (0x1c, 0x00),
    (0x1c, 0x02),
];

/// WCE in byte 2 of the caching page.
const WCE: u8 = 0x04;
/// D_SENSE in byte 2 of the control page.
const D_SENSE: u8 = 0x04;
/// SWP in byte 4 of the control page.
const SWP: u8 = 0x08;
/// UA_INTLCK in byte 4 of the control page.
const UA_INTLCK: u8 = 0x30;
/// DPICZ in byte 2 of the control page.
const DPICZ: u8 = 0x08;
/// ATO in byte 5 of the control page.
const ATO: u8 = 0x80;
/// RWWP in byte 5 of the control page.
const RWWP: u8 = 0x10;
/// TAS in byte 5 of the control page.
const TAS: u8 = 0x40;

impl ModePages {
    /// The defaults of a unit.
    pub(crate) fn new(config: &LuConfig) -> Self {
        Self {
            write_cache: config.medium.write_cache,
            descriptor_sense: false,
            software_write_protect: false,
            task_aborted_status: false,
            unit_attention_interlock: 0,
            pi: PiModes { app_tag_owner: config.medium.protectable, ..PiModes::default() },
        }
    }

    /// The same with WCE 0.
    pub(crate) fn without_write_cache(self) -> Self {
        Self { write_cache: false, ..self }
    }

    pub(crate) fn write_cache(&self) -> bool {
        self.write_cache
    }

    pub(crate) fn descriptor_sense(&self) -> bool {
        self.descriptor_sense
    }

    pub(crate) fn software_write_protect(&self) -> bool {
        self.software_write_protect
    }

    /// TAS: tasks that another initiator aborts complete with TASK ABORTED.
    pub(crate) fn task_aborted_status(&self) -> bool {
        self.task_aborted_status
    }

    /// UA_INTLCK. 0: a unit attention is cleared when it is reported. 2: only REQUEST SENSE clears it. 3: in
    /// addition, a status that carries no sense data leaves a unit attention behind.
    pub(crate) fn unit_attention_interlock(&self) -> u8 {
        self.unit_attention_interlock
    }

    pub(crate) fn pi_modes(&self) -> PiModes {
        self.pi
    }

    /// The page with its header, PS 0, or `None` when there is no such page.
    //= spc4 7.5 MOD-01
    pub(crate) fn page(&self, config: &LuConfig, code: (u8, u8), control: PageControl) -> Option<Vec<u8>> {
        let values = match control {
            PageControl::Current => *self,
            PageControl::Default => Self::new(config),
            PageControl::Changeable => return Self::changeable(config, code),
        };
        let mut page = empty(code)?;
        match code {
            (0x01, 0) => page[2] = 0xc0, // AWRE, ARRE: the store relocates by itself
            (0x08, 0) => page[2] = if values.write_cache { WCE } else { 0 },
            // QERR 0 is fixed: a command that ends with CHECK CONDITION does not affect the others.
            //= spc4 7.5.8 MOD-04 TSK-02
            (0x0a, 0) => {
                page[2] = 0x02 | if values.descriptor_sense { D_SENSE } else { 0 }; // GLTSD
                page[3] = 0x10; // unrestricted reordering, QERR 0
                page[4] = values.unit_attention_interlock << 4;
                page[4] |= if values.software_write_protect { SWP } else { 0 };
                page[5] = if values.task_aborted_status { TAS } else { 0 };
                let flag = |set: bool, mask: u8| if set { mask } else { 0 };
                page[2] |= flag(values.pi.no_check_when_zero, DPICZ);
                page[5] |= flag(values.pi.app_tag_owner, ATO) | flag(values.pi.reject_unprotected, RWWP);
                page[8..10].copy_from_slice(&[0xff, 0xff]); // BUSY TIMEOUT PERIOD: unlimited
            }
            (0x1c, 0) => page[2] = 0x08, // DEXCPT: no exceptions to report
            _ => {}
        }
        Some(page)
    }

    fn changeable(config: &LuConfig, code: (u8, u8)) -> Option<Vec<u8>> {
        let mut page = empty(code)?;
        match code {
            (0x08, 0) => page[2] = WCE,
            (0x0a, 0) => {
                page[2] = D_SENSE;
                page[4] = SWP | UA_INTLCK;
                page[5] = TAS;
                if config.medium.protectable {
                    page[2] |= DPICZ;
                    page[5] |= ATO | RWWP;
                }
            }
            _ => {}
        }
        Some(page)
    }

    /// Takes over the changeable bits of a page that has already been compared with its mask.
    pub(crate) fn apply(&mut self, code: (u8, u8), page: &[u8]) {
        let bit = |at: usize, mask: u8| page.get(at).is_some_and(|byte| byte & mask != 0);
        match code {
            (0x08, 0) => self.write_cache = bit(2, WCE),
            (0x0a, 0) => {
                self.descriptor_sense = bit(2, D_SENSE);
                self.software_write_protect = bit(4, SWP);
                self.task_aborted_status = bit(5, TAS);
                self.unit_attention_interlock = page.get(4).map_or(0, |byte| (byte & UA_INTLCK) >> 4);
                self.pi = PiModes {
                    no_check_when_zero: bit(2, DPICZ),
                    app_tag_owner: bit(5, ATO),
                    reject_unprotected: bit(5, RWWP),
                };
            }
            _ => {}
        }
    }
}

/// The byte and bit of a field with a reserved value, although each of its bits may be changed.
pub(crate) fn reserved_value(code: (u8, u8), page: &[u8]) -> Option<(usize, u8)> {
    (code == (0x0a, 0) && page.get(4).is_some_and(|byte| byte & UA_INTLCK == 0x10)).then_some((4, 5))
}

/// Bytes of a page with its header, or `None` when there is no such page.
pub(crate) fn page_bytes(code: (u8, u8)) -> Option<usize> {
    empty(code).map(|page| page.len())
}

/// A page of zeros with its header.
fn empty(code: (u8, u8)) -> Option<Vec<u8>> {
    let body = match code {
        (0x01, 0) => 10,
        (0x02, 0) => 14,
        (0x08, 0) => 18,
        (0x0a, 0) => 10,
        (0x0a, 1) => 28,
        (0x1a, 0) => 38,
        (0x1c, 0) => 10,
        (0x1c, 2) => 12,
        _ => return None,
    };
    let mut page = if code.1 == 0 { vec![code.0, body] } else { vec![code.0 | 0x40, code.1, 0, body] };
    page.resize(page.len() + usize::from(body), 0);
    Some(page)
}
