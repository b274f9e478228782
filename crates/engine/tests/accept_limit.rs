//! A listener without descriptors to accept with. It has a process of its own, because it uses up the descriptors of the
//! process.

mod support;

use std::net::TcpStream;
use std::time::{Duration, Instant};

use engine::{Completion, Driver, EpollDriver};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use support::{listener, next};

#[test]
fn without_descriptors_a_listener_pauses_and_goes_on_by_itself() {
    let mut driver = EpollDriver::new().unwrap();
    let (listener, addr) = listener();
    let listening = driver.listen(listener).unwrap();
    let _client = TcpStream::connect(addr).unwrap();
    let before = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(0), maximum: before.maximum }).unwrap();
    match next(&mut driver) {
        Completion::AcceptFailed { listener, error } => {
            assert_eq!(listener, listening);
            assert_eq!(error.raw_os_error(), Some(libc::EMFILE));
        }
        other => panic!("{other:?}"),
    }
    // It does not spin: however often wait is called, it tries to accept ten times a second.
    let (start, mut failures, mut out) = (Instant::now(), 0, Vec::new());
    for _ in 0..1000 {
        driver.wait(Some(Duration::ZERO), &mut out).unwrap();
        failures += out.drain(..).filter(|c| matches!(c, Completion::AcceptFailed { .. })).count();
    }
    assert!(failures as u128 <= start.elapsed().as_millis() / 100, "{failures} failures");
    setrlimit(Resource::Nofile, before).unwrap();
    while !out.iter().any(|c| matches!(c, Completion::Accepted { .. })) {
        driver.wait(Some(Duration::from_secs(60)), &mut out).unwrap();
    }
}
