//! A server whose clock the test controls: nothing here waits for real time to pass.

mod bursts;
mod lab;
mod log;
mod scale;
mod silent;
mod stalled;
