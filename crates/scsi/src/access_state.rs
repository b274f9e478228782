//! Asymmetric access states of target port groups (SPC-4 5.15): which commands a unit executes for
//! which group.
//!
//! ```text
//!                 SET TARGET PORT GROUPS, or the device itself
//!   ActiveOptimized <──> ActiveNonOptimized <──> Standby <──> Unavailable
//!          └──────────── Transitioning: the device itself ─────────┘
//! ```
//! Any state may follow any other directly. Not supported: offline and logical block dependent.

use std::collections::BTreeMap;

use crate::sense::{Asc, SenseData, SenseKey};

/// ASYMMETRIC ACCESS STATE (SPC-4 table 306).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum AccessState {
    /// All commands are executed, at full speed.
    #[default]
    ActiveOptimized = 0x0,
    /// All commands are executed; another group is faster.
    ActiveNonOptimized = 0x1,
    /// Only commands that do not touch the medium; others get 2/04/0B.
    Standby = 0x2,
    /// Only commands that report on the unit and its states; others get 2/04/0C.
    Unavailable = 0x3,
    /// Changing to another state; 2/04/0A meanwhile.
    Transitioning = 0xf,
}

/// The states of its target port group in which a command is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Only in the active states.
    Active,
    /// Also in standby.
    Standby,
    /// In all states.
    All,
}

impl AccessState {
    /// Every state.
    pub const ALL: [Self; 5] = [
        Self::ActiveOptimized,
        Self::ActiveNonOptimized,
        Self::Standby,
        Self::Unavailable,
        Self::Transitioning,
    ];

    /// The standard's name in lower case with hyphens, for configurations and human readers.
    pub fn name(self) -> &'static str {
        match self {
            Self::ActiveOptimized => "active-optimized",
            Self::ActiveNonOptimized => "active-non-optimized",
            Self::Standby => "standby",
            Self::Unavailable => "unavailable",
            Self::Transitioning => "transitioning",
        }
    }

    /// The state with this [`Self::name`].
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }

    /// The state that SET TARGET PORT GROUPS requests; only the device itself sets `Transitioning`.
    pub(crate) fn requested(code: u8) -> Option<Self> {
        match code {
            0x0 => Some(Self::ActiveOptimized),
            0x1 => Some(Self::ActiveNonOptimized),
            0x2 => Some(Self::Standby),
            0x3 => Some(Self::Unavailable),
            _ => None,
        }
    }

    /// The sense data if this state does not allow the command.
    pub(crate) fn refusal(self, reach: Reach) -> Option<SenseData> {
        let asc = match (self, reach) {
            (_, Reach::All) | (Self::ActiveOptimized | Self::ActiveNonOptimized, _) => return None,
            (Self::Standby, Reach::Standby) => return None,
            (Self::Standby, Reach::Active) => Asc::TARGET_PORT_IN_STANDBY,
            (Self::Unavailable, _) => Asc::TARGET_PORT_UNAVAILABLE,
            (Self::Transitioning, _) => Asc::ACCESS_STATE_TRANSITION,
        };
        Some(SenseData::new(SenseKey::NotReady, asc))
    }
}

/// Maximum number of target port groups whose states a unit remembers; a target has one per portal
/// group.
const MAX_GROUPS: usize = 256;

/// States of the groups that are not, or have not always been, active/optimized.
#[derive(Debug, Default)]
pub(crate) struct AccessStates {
    groups: BTreeMap<u16, (AccessState, u8)>,
}

impl AccessStates {
    pub(crate) fn of(&self, group: u16) -> AccessState {
        self.groups.get(&group).map_or(AccessState::ActiveOptimized, |(state, _)| *state)
    }

    /// STATUS CODE: 0 none, 1 altered by SET TARGET PORT GROUPS, 2 altered by the device.
    pub(crate) fn status_code(&self, group: u16) -> u8 {
        self.groups.get(&group).map_or(0, |(_, code)| *code)
    }

    /// False when there is no room for another group.
    pub(crate) fn set(&mut self, group: u16, state: AccessState, explicit: bool) -> bool {
        let room = self.groups.len() < MAX_GROUPS || self.groups.contains_key(&group);
        if room && self.of(group) != state {
            self.groups.insert(group, (state, if explicit { 1 } else { 2 }));
        }
        room
    }

    /// Whether any group has a state in which some commands are not executed.
    pub(crate) fn restrict(&self) -> bool {
        self.groups.values().any(|(state, _)| state.refusal(Reach::Active).is_some())
    }
}
