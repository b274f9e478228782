//! The program as its users run it, next to the clients and targets that they know. One test program, because each would link half of
//! the workspace again.
#![forbid(unsafe_code)]

mod accounts;
mod bench_checksum;
mod bench_fastpath;
mod bench_guard;
mod bench_profile;
mod bench_table_2;
mod client;
mod conform_target;
mod connections;
mod control;
mod cp_backup;
mod cp_changed;
mod cp_restart;
mod cp_resume;
mod database;
mod durability;
mod floods;
mod identity;
mod istgt;
mod libiscsi;
mod lifecycle;
mod linux_guest;
mod missing;
mod nbd;
mod promtool;
mod qemu;
mod reopen;
mod reservations;
mod resize;
mod scale;
mod serve;
mod sg3;
mod sg3_protection;
mod supervision;
mod tshark;
mod wireless_run;

// What they share.
mod bench;
mod common;
mod flood;
mod proxy;
mod support;
#[path = "../../../initiator/tests/support/mod.rs"]
mod tgt;
