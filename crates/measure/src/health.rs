//! Health of the traffic: reasons why it may be slow.
//!
//! [`Health`] takes packets in the order of their source, because its rules compare a segment with the ones before it: all packets
//! of a conversation must come to the same `Health`. Its tables have a fixed size, and it allocates nothing for a packet.

pub mod dns;
pub mod path;
mod sets;
pub mod tcp;

use crate::names::Names;
use dns::Dialogues;
use tcp::Conversations;
use weir_packet::flow::{FlowKey, Hasher};
use weir_packet::transport::{TCP, Transport};

/// Parts of the health to examine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    /// TCP conversations.
    pub tcp: bool,
    /// DNS transactions.
    pub dns: bool,
    /// Fragments, and messages about packets that are too big.
    pub path: bool,
}

/// Settings of the health.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// Parts to look at.
    pub parts: Parts,
    /// Memory for the names of addresses, bytes; `None`: the packets are not searched for names.
    pub names: Option<usize>,
    /// Memory of each table, bytes.
    pub memory: usize,
    /// Most rows of a list.
    pub rows: usize,
    /// Whether the time is divided into windows.
    pub windows: bool,
    /// Seed of the hash functions.
    pub seed: u64,
}

/// Memory of a table, bytes, if nobody says how much: 32 768 conversations, and as many queries and names.
pub const MEMORY: usize = 32 << 20;

/// Health of the packets of a time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Most rows of a list.
    pub most: usize,
    /// TCP conversations, if the settings ask for them.
    pub tcp: Option<tcp::Report>,
    /// DNS transactions, if the settings ask for them.
    pub dns: Option<dns::Report>,
    /// Fragments and packets that are too big, if the settings ask for them.
    pub path: Option<path::Report>,
    /// Names that were seen, if the settings ask for them. They are in the reports of windows only.
    pub names: Option<Names>,
}

impl Report {
    /// Whether the report has a part of the health.
    pub fn has_parts(&self) -> bool {
        self.tcp.is_some() || self.dns.is_some() || self.path.is_some()
    }

    /// Adds the report of another worker, about the same time and other conversations.
    pub fn merge(&mut self, other: Self) {
        let rows = self.most;
        match (&mut self.tcp, other.tcp) {
            (Some(mine), Some(theirs)) => mine.merge(theirs, rows),
            (mine, theirs) => *mine = mine.take().or(theirs),
        }
        match (&mut self.dns, other.dns) {
            (Some(mine), Some(theirs)) => mine.merge(theirs, rows),
            (mine, theirs) => *mine = mine.take().or(theirs),
        }
        match (&mut self.path, other.path) {
            (Some(mine), Some(theirs)) => {
                *mine += &theirs;
                *mine = std::mem::take(mine).ranked(rows);
            }
            (mine, theirs) => *mine = mine.take().or(theirs),
        }
        match (&mut self.names, other.names) {
            (Some(mine), Some(theirs)) => mine.merge(&theirs),
            (mine, theirs) => *mine = mine.take().or(theirs),
        }
    }
}

/// Looks at packets.
#[derive(Debug)]
pub struct Health {
    rows: usize,
    tcp: Option<Conversations>,
    dns: Option<Dialogues>,
    path: Option<[path::Report; 2]>,
    names: Option<Names>,
}

impl Health {
    /// Makes the tables of the settings.
    pub fn new(config: &Config) -> Self {
        let &Config {
            parts,
            names,
            memory,
            rows,
            windows,
            seed,
        } = config;
        let hasher = || Hasher::new(seed);
        Self {
            rows,
            tcp: parts
                .tcp
                .then(|| Conversations::new(memory, hasher(), windows)),
            dns: parts.dns.then(|| Dialogues::new(memory, hasher(), windows)),
            path: parts.path.then(Default::default),
            names: names.map(Names::new),
        }
    }

    /// Prefetches what [`Self::take`] reads first, and returns a hash for it.
    #[inline]
    pub fn prefetch(&self, key: &FlowKey) -> u64 {
        match &self.tcp {
            Some(tcp) if key.proto == TCP => tcp.prefetch(key),
            _ => 0,
        }
    }

    /// Prefetches what [`Self::take`] reads then. `hash` comes from [`Self::prefetch`].
    #[inline]
    pub fn prefetch_more(&self, key: &FlowKey, hash: u64) {
        if let Some(tcp) = &self.tcp
            && key.proto == TCP
        {
            tcp.prefetch_conversation(hash);
        }
    }

    /// Takes the next packet. `hash` comes from [`Self::prefetch`].
    #[inline]
    pub fn take(&mut self, transport: &Transport<'_>, hash: u64, time_ns: i64) {
        if let Some(tcp) = &mut self.tcp
            && transport.key.proto == TCP
        {
            tcp.take(transport, hash, time_ns);
        }
        if let Some(dns) = &mut self.dns {
            dns.take(transport, time_ns);
        }
        if let Some([now, _]) = &mut self.path {
            now.take(transport);
        }
        if let Some(names) = &mut self.names {
            names.see(transport);
        }
    }

    /// Returns the names that were seen since the last call, or since the last window ended.
    pub fn take_names(&mut self) -> Option<Names> {
        self.names.as_mut().map(Names::take)
    }

    /// Ends the current window. Returns the health of its packets.
    pub fn end_window(&mut self) -> Report {
        let rows = self.rows;
        Report {
            most: rows,
            tcp: self.tcp.as_mut().map(|tcp| tcp.end_window(rows)),
            dns: self.dns.as_mut().map(|dns| dns.end_window(rows)),
            path: self.path.as_mut().map(|[now, all]| {
                *all += &*now;
                std::mem::take(now).ranked(rows)
            }),
            names: self.take_names(),
        }
    }

    /// Returns the health of all packets.
    pub fn total(self) -> Report {
        let rows = self.rows;
        Report {
            most: rows,
            tcp: self.tcp.map(|tcp| tcp.total(rows)),
            dns: self.dns.map(|dns| dns.total(rows)),
            path: self.path.map(|[now, mut all]| {
                all += &now;
                all.ranked(rows)
            }),
            names: None,
        }
    }
}
