//! Asymmetric access states of target port groups (SPC-4 5.15): what a unit carries out for whom.
//!
//! ```text
//!                 SET TARGET PORT GROUPS, or the device itself
//!   ActiveOptimized <──> ActiveNonOptimized <──> Standby <──> Unavailable
//!          └──────────── Transitioning: the device itself ─────────┘
//! ```
//! Every state may follow every other one, at once. Left out: offline and logical block dependent.

use std::collections::BTreeMap;

use crate::sense::{Asc, SenseData, SenseKey};

/// ASYMMETRIC ACCESS STATE (SPC-4 table 306).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum AccessState {
    /// Everything is carried out, as fast as it can be.
    #[default]
    ActiveOptimized = 0x0,
    /// Everything is carried out; another group is faster.
    ActiveNonOptimized = 0x1,
    /// Only what does not touch the medium; else 2/04/0B.
    Standby = 0x2,
    /// Only what tells of the unit and its states; else 2/04/0C.
    Unavailable = 0x3,
    /// On the way to another state: 2/04/0A meanwhile.
    Transitioning = 0xf,
}

/// In which states of its target port group a command is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// In the active states alone.
    Active,
    /// Also in standby.
    Standby,
    /// In all.
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

    /// The standard's name in lower case with hyphens, for configurations and people.
    pub fn name(self) -> &'static str {
        match self {
            Self::ActiveOptimized => "active-optimized",
            Self::ActiveNonOptimized => "active-non-optimized",
            Self::Standby => "standby",
            Self::Unavailable => "unavailable",
            Self::Transitioning => "transitioning",
        }
    }

    /// The state of that [`Self::name`].
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }

    /// The state that SET TARGET PORT GROUPS asks for; transitions are the device's own.
    pub(crate) fn requested(code: u8) -> Option<Self> {
        match code {
            0x0 => Some(Self::ActiveOptimized),
            0x1 => Some(Self::ActiveNonOptimized),
            0x2 => Some(Self::Standby),
            0x3 => Some(Self::Unavailable),
            _ => None,
        }
    }

    /// What keeps a command from being carried out in this state.
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

/// Most target port groups whose states a unit remembers; a target has as many as portal groups.
const MAX_GROUPS: usize = 256;

/// States of the groups that are not, or were not always, active/optimized.
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

    /// Whether any group has a state in which not everything is carried out.
    pub(crate) fn restrict(&self) -> bool {
        self.groups.values().any(|(state, _)| state.refusal(Reach::Active).is_some())
    }
}
