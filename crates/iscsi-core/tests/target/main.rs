//! The target's side of the protocol, played against transcripts; one module for each section of the list of rules.

mod audit;
mod memory;
mod pdus;
mod play;
#[path = "../support/policy.rs"]
#[allow(dead_code, reason = "shared with the random sessions")]
mod policy;

mod dat;
mod dig;
mod dsc;
mod ending;
mod erl;
mod fab;
mod key;
mod lgn;
mod mcs;
mod num;
mod order;
mod p2;
mod pdu;
mod res;
mod rows;
mod sec;
mod ses;
mod snk;
mod stack;
mod tmf;
mod txt;
