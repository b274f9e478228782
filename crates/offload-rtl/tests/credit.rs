//! The FIFO with credits against a queue of the standard library, and its asserts against a fault.
#![forbid(unsafe_code)]

use std::collections::VecDeque;

use offload_rtl::CreditLink;

/// Slots of the link's FIFO.
const SLOTS: usize = 5;

#[test]
fn words_arrive_in_order_and_no_slot_is_used_twice() {
    let mut random = fastrand::Rng::with_seed(1);
    for (send, pop) in [(100, 100), (100, 20), (20, 100), (60, 60), (100, 0)] {
        let mut link = CreditLink::new(1);
        let mut under_way = VecDeque::new();
        let mut next = 0;
        for _ in 0..20_000 {
            let word = (random.u32(..100) < send).then_some(next);
            let said = link.cycle(word, random.u32(..100) < pop);
            if let Some(popped) = said.popped {
                assert_eq!(Some(popped), under_way.pop_front());
            }
            if said.sent {
                under_way.push_back(next);
                next = next.wrapping_add(0x0101_0107);
            }
            assert!(under_way.len() <= SLOTS, "more words than slots");
            assert_eq!(said.failed, 0, "an assert of the circuit has failed");
        }
        if pop == 0 {
            assert_eq!(under_way.len(), SLOTS, "a sender that never gets a credit back fills every slot");
        }
    }
}

/// The way of a word is two cycles, the entry one, the credit one, and its register one: five slots hide all of them.
#[test]
fn five_slots_hide_the_way_of_a_credit() {
    let mut link = CreditLink::new(2);
    let sent = (0..1000).filter(|_| link.cycle(Some(7), true).sent).count();
    assert_eq!(sent, 1000);
}

#[test]
fn a_push_without_a_credit_fails_an_assert() {
    let mut link = CreditLink::new(3);
    for word in 0..20 {
        assert_eq!(link.cycle(Some(word), false).failed, 0);
    }
    assert!(link.push_without_credit() > 0);
}
