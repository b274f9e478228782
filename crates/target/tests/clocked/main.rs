//! A server whose clock is the test's: nothing here waits for time to pass.

mod lab;
mod log;
mod scale;
mod silent;
