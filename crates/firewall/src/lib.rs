//! Verdicts on packets: rule lists over header fields, in which the first match decides, and
//! permissions that change while packets flow.
//!
//! A text becomes a [`RuleList`](rules::RuleList) ([`rules`]), and the list a [`Classifier`] that finds the first rule for a packet
//! without a look at each. [`Fields`] holds what rules can name of a frame. [`permissions`] is the table of the multithreaded packet filter, and [`control`] has the packets that change it; [`kept`] is the text
//! from which bans come back after a restart. This crate knows no files, clocks or threads; a condition
//! that is a tcpdump expression is judged by a [`Matcher`](weir_packet::Matcher) of its caller.
#![forbid(unsafe_code)]

mod address;
mod classes;
mod classifier;
mod connections;
pub mod control;
mod counters;
mod fields;
pub mod kept;
mod neighbors;
pub mod nft;
mod options;
pub mod permissions;
mod policy;
mod rates;
pub mod replicas;
mod rows;
pub mod rules;
mod tree;
mod unreachable;

pub use address::Address;
pub use classifier::{Around, Classifier, Conditions, Found, TooLarge};
pub use connections::{CONNECTIONS, Connections, Seen, State, States};
pub use counters::{ControlCounts, Count, Counters, RuleCount};
pub use fields::{Content, Fields, TcpFlags};
pub use policy::{Policy, PolicyChange, Rules};
pub use rates::Rates;
pub use unreachable::Unreachable;
pub use weir_packet::addresses::Addresses;

/// Fate of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The packet goes on.
    Pass,
    /// The packet is discarded.
    Drop,
    /// The packet is discarded, and its sender gets an answer.
    Reject,
}

/// Part of a rule list that decided about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DecidedBy {
    /// The permission table: the source is *persona non grata*.
    PersonaNonGrata,
    /// The permission table: the destination does not accept the source.
    NotAccepted,
    /// The rule of this number, from 0 on.
    Rule(u32),
    /// The `default` line: an IP packet for which no rule decides.
    Default,
    /// The `neighbors` line: a message of IPv6 neighbor discovery.
    Neighbors,
    /// The `non-ip` line: a frame that does not carry IP, such as ARP.
    NonIp,
    /// The `malformed` line: a frame whose IP header is cut or contradicts itself, or whose link type is unknown.
    Malformed,
}
