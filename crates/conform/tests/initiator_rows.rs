//! The rows for initiators, tried on a strict little initiator and on a trusting one.

mod reference;

use reference::Reference;

#[test]
#[ignore = "shows the table; the tests below judge it"]
fn show_all() {
    let report = conform::initiator::run(&Reference { strict: true }, &[]);
    println!("{report}");
}
