//! `intact tcp-crc`. A test program of its own: its shims carry all TCP connections of a host.
#![forbid(unsafe_code)]

mod background;
mod command;
mod host;
mod programs;

#[path = "../program/common/mod.rs"]
mod common;
#[path = "../program/support/mod.rs"]
mod support;
