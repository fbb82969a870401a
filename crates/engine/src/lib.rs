//! One engine under every front end: sources, stages and outputs of a run, and its ledger.
//!
//! A front end sets a run up in plain values ([`run::Setup`]), and receives events ([`event::Event`]). Texts for people, flags and
//! signals belong to the front end; this crate has none of them. Several engines can run in one process.
#![forbid(unsafe_code)]

pub mod batches;
pub mod capture;
pub mod claims;
pub mod clock;
pub mod columns;
pub mod control;
mod cut;
pub mod dedup;
pub mod event;
pub mod file;
pub mod firewall;
pub mod generated;
pub mod guard;
pub mod handle;
pub mod keys;
pub mod ledger;
pub mod name;
pub mod output_changes;
pub mod outputs;
pub mod pairing;
pub mod port;
pub mod provenance;
pub mod record;
pub mod records;
pub mod reflection;
pub mod replay;
pub mod rewrite;
pub mod run;
pub mod search;
pub mod session;
pub mod sink;
pub mod socket;
pub mod sockets;
pub mod sorting;
pub mod split_by;
mod stage_mark;
pub mod steering;
pub mod zone;
