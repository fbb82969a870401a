//! The language of rule lists: one rule a line, the first that matches decides.
//!
//! ```text
//! default drop                       # IP packets for which no rule decides; pass unless given
//! set trusted 10.0.0.0/8 2001:db8::/32
//! set banned file banned.txt         # one address, prefix or range a line
//!
//! drop src $banned                   # a comment belongs to its rule
//! pass src $trusted tcp dport 22,80-89 flags S/SA
//! count udp dport 53
//! reject expr 'udp and len > 1400'
//! ```
//!
//! | condition | the packet |
//! |---|---|
//! | `src A`, `dst A` | address, prefix `10.0.0.0/8`, range `10.0.0.1-10.0.0.9`, `$SET` or `@SET`, `any`, or several with commas |
//! | `proto P`, or `tcp` `udp` `icmp` `icmp6` `sctp` ... | protocol by name or number, after IPv6 extension headers |
//! | `sport N`, `dport N` | ports and ranges `80,8000-8080`; without a protocol TCP, UDP, DCCP, SCTP and UDP-Lite |
//! | `flags S/SA` | TCP flags: of those after the stroke, the ones before it are set; `flags S`: S is set |
//! | `icmp type 8,0`, `icmp6 type 128-129,1/0-3` | type of an ICMP message, and after a stroke its codes |
//! | `mss 1-535` | TCP option with the largest segment size, and its value: the first one that the header has |
//! | `fragment` | a fragment other than the first |
//! | `extension ah,hop` | an extension header of one of these kinds is in front of the transport: `hop`, `routing`, `fragment`, `ah`, `destination`, `any` |
//! | `routing 0` | an IPv6 routing header of this type: the first one in front of the transport |
//! | `vlan 7`, `vlan 7-9,12`, `vlan none` | identifier of the outermost tag |
//! | `on eth0`, `on eth*,wan0`, `on !eth0` | interface where it arrived: names, beginnings with `*`, and after `!` those that it is not |
//! | `to eth0` | interface where it leaves if it passes, in the same words |
//! | `expr 'EXPRESSION'` | tcpdump expression; it may name sets of the list, as in `expr 'src @banned'` |
//! | `limit 100/s` | all other conditions hold, and no more packets than these came so far; `over 100/s`: more came |
//! | `state new,established` | `new`, `established`, `related`, `invalid` or `untracked`: see [`Connections`](crate::Connections) |
//! | `hour 8:00-17:59:59` | time of day in UTC, both ends inclusive; `22:00-5:59:59` goes on after midnight |
//! | `for 10m` | the rule is in the list for less than this time |
//!
//! `reject` answers TCP with a reset and all else with an ICMP message that the port is unreachable; `reject with ANSWER` answers with the named ICMP
//! message ([`Answer`]).
//!
//! **Rates** are packets in a second (`/s`), minute (`/m`) or hour (`/h`), or bytes on the wire
//! (`64kB/s`); `k`, `M` and `G` are binary, so that `64kB/s` are 65 536 bytes in a second. As many
//! as the number says may come at once after a pause; `burst 20` after the rate says another
//! number. A frame with more bytes than may come at once is always beyond the rate. With `per src`
//! each source address has a rate of its own. Times of rates are the packets' timestamps.
//!
//! All conditions of a rule must hold. A rule without any is for all IP packets. Rules judge IP packets; a rule whose conditions are only
//! `expr`, `vlan`, `on` and `to`, with an `expr` among them, judges all frames. `pass`, `drop` and `reject` decide, `count` counts and goes on.
//!
//! **Absent fields.** If a packet lacks a field that a rule names (ports in a later fragment, flags
//! in a cut header) and all other conditions hold, `drop` and `reject` apply, and `pass` and
//! `count` do not. So no packet passes for lack of a field. What a tcpdump expression says of such
//! packets is libpcap's affair.
//!
//! **Lines for the rest**: `default pass|drop|reject` for IP packets, `non-ip pass|drop` for all other frames, `neighbors pass|rules` for
//! valid messages of IPv6 neighbor discovery, which pass before all rules, `malformed drop|pass` for frames whose IP header is cut or
//! contradicts itself, or whose link type weir does not read.

mod answer;
mod interfaces;
mod parse;
mod values;
mod whole;

use crate::{Addresses, States, Verdict};
use std::io;
use std::sync::Arc;
use std::time::Duration;

pub use answer::Answer;
pub use interfaces::{Interfaces, Side};
pub use parse::{MOST_RULES, Why};
pub(crate) use values::{DAY_S, addresses_in, second_of_day};

/// Effect of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// The packet gets this verdict.
    Decide(Verdict),
    /// The packet is counted, and the rules after are asked.
    Count,
}

impl Action {
    /// Whether the rule applies to a packet that lacks a field which the rule names.
    pub(crate) fn applies_without_a_field(self) -> bool {
        matches!(self, Self::Decide(Verdict::Drop | Verdict::Reject))
    }
}

/// Unit of a [`Rate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Packets.
    Packets,
    /// Bytes on the wire.
    Bytes,
}

/// Rate of packets up to which, or beyond which, a rule applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Number of packets or bytes in a period.
    pub count: u64,
    /// Unit of `count` and `burst`.
    pub unit: Unit,
    /// Length of the period, ns.
    pub period_ns: u64,
    /// Packets or bytes that may come at once after a pause.
    pub burst: u64,
    /// Whether each source address has a rate of its own.
    pub is_per_source: bool,
    /// Whether the rule applies to packets beyond the rate, not to those within it.
    pub is_beyond: bool,
}

/// Identifiers of the outermost VLAN tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Vlan {
    /// The frame has no tag.
    None,
    /// One of these ranges, both ends inclusive.
    Identifiers(Vec<(u16, u16)>),
}

/// A rule. Conditions that are `None` always hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Number of its line, from 1 on.
    pub line: usize,
    /// Text without the comment.
    pub text: String,
    /// Text of the comment; empty without one.
    pub comment: String,
    /// Effect on a packet for which all conditions hold.
    pub action: Action,
    /// Answer to a packet that the rule rejects.
    pub answer: Answer,
    /// Source addresses.
    pub src: Option<Arc<Addresses>>,
    /// Destination addresses.
    pub dst: Option<Arc<Addresses>>,
    /// Protocols as a set of 256 bits. Also set if the rule names ports or flags.
    pub proto: Option<[u64; 4]>,
    /// Ranges of source ports, both ends inclusive.
    pub sport: Option<Vec<(u16, u16)>>,
    /// Ranges of destination ports, both ends inclusive.
    pub dport: Option<Vec<(u16, u16)>>,
    /// TCP flags: the set flags of the mask, and the mask.
    pub flags: Option<(u8, u8)>,
    /// Ranges of types above codes of ICMP and ICMPv6 messages, both ends inclusive;
    /// [`Self::proto`] does not name any other protocol then.
    pub types: Option<Vec<(u16, u16)>>,
    /// Ranges of the largest segment size of TCP, bytes, both ends inclusive; [`Self::proto`] is TCP then.
    pub mss: Option<Vec<(u16, u16)>>,
    /// Whether the packet must be a fragment other than the first.
    pub fragment: bool,
    /// Kinds of extension headers of which one must be in front of the transport: bits of
    /// [`extensions`](weir_packet::flow::extensions).
    pub extensions: Option<u8>,
    /// Ranges of types of IPv6 routing headers, both ends inclusive.
    pub routing: Option<Vec<(u16, u16)>>,
    /// The outermost VLAN tag.
    pub vlan: Option<Vlan>,
    /// Number of the condition in [`RuleList::interfaces`] on where the packet arrives.
    pub on: Option<usize>,
    /// Number of the condition in [`RuleList::interfaces`] on where the packet leaves.
    pub to: Option<usize>,
    /// Number of the expression in [`RuleList::expressions`].
    pub expression: Option<usize>,
    /// Rate up to which, or beyond which, the rule applies.
    pub rate: Option<Rate>,
    /// States of the packet in relation to connections.
    pub states: Option<States>,
    /// Ranges of the time of day, s since midnight UTC, both ends inclusive.
    pub hours: Option<Vec<(u32, u32)>>,
    /// Time after which the rule is in the list no longer.
    pub lasts: Option<Duration>,
}

impl Rule {
    /// Whether the rule judges frames of any content: its only conditions are `expr`, `vlan`, `on` and `to`, with an `expr`
    /// among them.
    pub fn is_for_all_frames(&self) -> bool {
        let names_addresses = self.src.is_some() || self.dst.is_some();
        let names_headers = self.proto.is_some()
            || self.fragment
            || self.extensions.is_some()
            || self.routing.is_some();
        let names_time = self.rate.is_some()
            || self.states.is_some()
            || self.hours.is_some()
            || self.lasts.is_some();
        self.expression.is_some() && !names_addresses && !names_headers && !names_time
    }
}

/// A rule list: the text of a rules file as plain data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleList {
    /// The rules, in the order of the text.
    pub rules: Vec<Rule>,
    /// Verdict on IP packets for which no rule decides.
    pub default: Verdict,
    /// Verdict on frames without IP.
    pub non_ip: Verdict,
    /// Whether the rules judge neighbor discovery; otherwise it passes before them.
    pub neighbors_by_rules: bool,
    /// Verdict on frames whose IP header is cut or contradicts itself, and on frames of unknown
    /// link types.
    pub malformed: Verdict,
    /// Conditions of rules on interfaces.
    pub interfaces: Vec<Interfaces>,
    /// tcpdump expressions of the rules.
    pub expressions: Vec<String>,
    /// Sets by name. Expressions may name them as in `src @banned`.
    pub sets: Vec<(String, Arc<Addresses>)>,
    /// Names of the files of sets, as they are in the text.
    pub files: Vec<String>,
}

/// An empty list: everything passes but malformed packets.
impl Default for RuleList {
    fn default() -> Self {
        Self {
            rules: Vec::new(),
            default: Verdict::Pass,
            non_ip: Verdict::Pass,
            neighbors_by_rules: false,
            malformed: Verdict::Drop,
            interfaces: Vec::new(),
            expressions: Vec::new(),
            sets: Vec::new(),
            files: Vec::new(),
        }
    }
}

/// A line that is refused.
#[derive(Debug, thiserror::Error)]
#[error("{}line {line}: {why}", .file.as_ref().map_or(String::new(), |file| format!("{file}: ")))]
pub struct RuleError {
    /// Name of the file of a set, as it is in the rule list; `None` for the rule list itself.
    pub file: Option<String>,
    /// Number of the line, from 1 on.
    pub line: usize,
    /// Reason.
    pub why: Why,
}

/// Function that reads the file of a set by the name in the rule list.
pub type ReadSet<'a> = dyn FnMut(&str) -> io::Result<String> + 'a;

impl RuleList {
    /// Reads a rule list. `read` is called for each line `set NAME file PATH`.
    ///
    /// **Errors**: the first line that is refused.
    pub fn parse(text: &str, read: &mut ReadSet<'_>) -> Result<Self, RuleError> {
        parse::list(text, read)
    }

    /// Returns the text of the same list with the addresses of its sets in it: `read` is called for each line `set NAME file PATH`, which
    /// gets them in the place of the file's name. Lines keep their numbers.
    ///
    /// **Errors**: the first file that cannot be read, or has a line without an address. Other lines are not checked.
    pub fn with_sets(text: &str, read: &mut ReadSet<'_>) -> Result<String, RuleError> {
        whole::with_sets(text, read)
    }

    /// Returns which of the conditions on interfaces hold for packets that arrive at one interface and leave at another one; none on an interface
    /// without a name.
    pub fn holding(&self, arrival: Option<&str>, departure: Option<&str>) -> Box<[bool]> {
        let holds = |interfaces: &Interfaces| {
            let name = match interfaces.side {
                Side::Arrival => arrival,
                Side::Departure => departure,
            };
            name.is_some_and(|name| interfaces.holds(name))
        };
        self.interfaces.iter().map(holds).collect()
    }

    /// Whether a rule names interfaces of this side.
    pub fn names_side(&self, side: Side) -> bool {
        self.interfaces
            .iter()
            .any(|interfaces| interfaces.side == side)
    }

    /// Whether a rule asks for the state of packets in relation to connections.
    pub fn names_states(&self) -> bool {
        self.rules.iter().any(|rule| rule.states.is_some())
    }
}
