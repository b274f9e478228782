//! The I_T nexuses attached to a logical unit, and the unit attention conditions that each of them has pending.
//!
//! A command on a nexus with nothing pending takes no lock because of other nexuses, and its cost does not grow with their
//! number: the nexus itself carries a [`PendingFlag`], which each unit that it is attached to keeps up to date.

use std::collections::HashMap;
use std::sync::Arc;

use crate::nexus::{Nexus, NexusId};
use crate::pending::PendingFlag;
use crate::sense::Asc;
use crate::unit_attention::{UaScope, UnitAttentionQueue};

/// An attached nexus.
#[derive(Debug)]
struct Attached {
    initiator_port: Arc<str>,
    account: Option<Arc<str>>,
    attentions: UnitAttentionQueue,
    flag: PendingFlag,
}

impl Attached {
    fn is_pending(&self) -> bool {
        !self.attentions.is_empty()
    }

    /// The nexus has the same id as the attached one but may be another value. From now on commands come with the new value,
    /// so its flag is the one to maintain.
    fn follow(&mut self, flag: &PendingFlag) {
        if self.flag.is_same(flag) {
            return;
        }
        if self.is_pending() {
            flag.raise();
            self.flag.lower();
        }
        self.flag.lose();
        self.flag = flag.clone();
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        if self.is_pending() {
            self.flag.lower();
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct AttachedNexuses {
    by_id: HashMap<NexusId, Attached>,
    /// How many of them have a unit attention pending.
    pending: usize,
}

impl AttachedNexuses {
    /// Attaches a nexus. If it is attached already, it gets one more condition.
    pub(crate) fn attach(&mut self, nexus: &Nexus, asc: Asc) {
        let flag = nexus.pending_flag();
        let attached = self.by_id.entry(nexus.id).or_insert_with(|| Attached {
            initiator_port: nexus.initiator_port.clone(),
            account: nexus.account.clone(),
            attentions: UnitAttentionQueue::default(),
            flag: flag.clone(),
        });
        attached.follow(flag);
        self.change(nexus.id, |attentions| attentions.push(asc));
        flag.maintain();
    }

    pub(crate) fn detach(&mut self, nexus: NexusId) {
        let gone = self.by_id.remove(&nexus);
        self.pending -= usize::from(gone.is_some_and(|attached| attached.is_pending()));
    }

    pub(crate) fn contains(&self, nexus: NexusId) -> bool {
        self.by_id.contains_key(&nexus)
    }

    /// Whether any nexus has a unit attention pending.
    pub(crate) fn any_pending(&self) -> bool {
        self.pending > 0
    }

    pub(crate) fn establish(&mut self, to: UaScope, asc: Asc) {
        if let UaScope::One(nexus) = to {
            self.change(nexus, |attentions| attentions.push(asc));
            return;
        }
        let all: Vec<NexusId> = self.by_id.keys().copied().filter(|nexus| to.covers(*nexus)).collect();
        for nexus in all {
            self.change(nexus, |attentions| attentions.push(asc));
        }
    }

    pub(crate) fn take(&mut self, nexus: NexusId) -> Option<Asc> {
        self.change(nexus, UnitAttentionQueue::pop)?
    }

    /// The most urgent condition of a nexus, and how many it has pending.
    pub(crate) fn first(&self, nexus: NexusId) -> Option<(Asc, usize)> {
        self.by_id.get(&nexus)?.attentions.first()
    }

    /// Whether this condition is pending for a nexus.
    pub(crate) fn is_pending(&self, nexus: NexusId, asc: Asc) -> bool {
        self.by_id.get(&nexus).is_some_and(|attached| attached.attentions.contains(asc))
    }

    pub(crate) fn withdraw(&mut self, nexus: NexusId, asc: Asc) {
        self.change(nexus, |attentions| attentions.remove(asc));
    }

    /// The account of an attached initiator port, if it authenticated.
    pub(crate) fn account_of(&self, initiator_port: &str) -> Option<&Arc<str>> {
        let of_port = self.by_id.values().filter(|attached| *attached.initiator_port == *initiator_port);
        of_port.filter_map(|attached| attached.account.as_ref()).next()
    }

    /// Names of the attached initiator ports.
    pub(crate) fn initiator_ports(&self) -> impl Iterator<Item = &Arc<str>> {
        self.by_id.values().map(|attached| &attached.initiator_port)
    }

    /// Changes the conditions pending for a nexus, and updates the count and the flag.
    fn change<R>(&mut self, nexus: NexusId, f: impl FnOnce(&mut UnitAttentionQueue) -> R) -> Option<R> {
        let attached = self.by_id.get_mut(&nexus)?;
        let before = attached.is_pending();
        let result = f(&mut attached.attentions);
        match (before, attached.is_pending()) {
            (false, true) => {
                self.pending += 1;
                attached.flag.raise();
            }
            (true, false) => {
                self.pending -= 1;
                attached.flag.lower();
            }
            _ => {}
        }
        Some(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nexus(name: &str) -> Nexus {
        Nexus::new(name, 1, 1)
    }

    fn is_raised(nexus: &Nexus) -> bool {
        nexus.pending_flag().is_raised()
    }

    #[test]
    fn the_flag_of_a_nexus_tells_of_every_unit_that_it_is_attached_to() {
        let (a, b) = (nexus("a"), nexus("b"));
        let (mut one, mut other) = (AttachedNexuses::default(), AttachedNexuses::default());
        assert!(is_raised(&a), "no unit knows it");
        for unit in [&mut one, &mut other] {
            unit.attach(&a, Asc::POWER_ON_OR_RESET);
            unit.attach(&b, Asc::POWER_ON_OR_RESET);
        }
        assert_eq!(one.take(a.id), Some(Asc::POWER_ON_OR_RESET));
        assert!(is_raised(&a), "it has one at the other unit");
        other.withdraw(a.id, Asc::POWER_ON_OR_RESET);
        assert!(!is_raised(&a));
        assert!(is_raised(&b) && one.any_pending() && other.any_pending());
        one.establish(UaScope::AllExcept(b.id), Asc::MODE_PARAMETERS_CHANGED);
        assert!(is_raised(&a.clone()));
        one.detach(a.id);
        assert!(!is_raised(&a), "nothing is left of what was pending");
        drop(other);
        assert!(is_raised(&b));
        drop(one);
        assert!(!is_raised(&b));
    }

    #[test]
    fn a_unit_counts_the_nexuses_that_have_something_pending() {
        let nexuses: Vec<Nexus> = ["a", "b", "c"].map(nexus).into();
        let mut unit = AttachedNexuses::default();
        assert!(!unit.any_pending());
        nexuses.iter().for_each(|nexus| unit.attach(nexus, Asc::POWER_ON_OR_RESET));
        unit.establish(UaScope::All, Asc::MODE_PARAMETERS_CHANGED);
        unit.detach(nexuses[0].id);
        unit.detach(nexuses[0].id);
        for nexus in &nexuses[1..] {
            assert!(unit.any_pending());
            assert_eq!(unit.take(nexus.id), Some(Asc::POWER_ON_OR_RESET));
            unit.withdraw(nexus.id, Asc::MODE_PARAMETERS_CHANGED);
            unit.withdraw(nexus.id, Asc::MODE_PARAMETERS_CHANGED);
            assert_eq!(unit.take(nexus.id), None);
        }
        assert!(!unit.any_pending());
    }

    #[test]
    fn another_value_of_the_same_name_is_the_same_nexus() {
        let (first, second) = (nexus("a"), nexus("a"));
        let mut unit = AttachedNexuses::default();
        unit.attach(&first, Asc::POWER_ON_OR_RESET);
        unit.take(first.id);
        assert!(!is_raised(&first));
        assert!(is_raised(&second), "it was not attached: it has to ask");
        unit.attach(&second, Asc::I_T_NEXUS_LOSS);
        assert!(is_raised(&second));
        assert!(is_raised(&first), "nobody keeps its flag up to date any more");
        assert_eq!(unit.take(first.id), Some(Asc::I_T_NEXUS_LOSS));
        assert!(!is_raised(&second));
    }
}
