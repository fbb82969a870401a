//! Counters for findings: packets of hosts in both directions, and contacts of sources. They are independent of the tables.

use crate::answer::{SpreadTable, Table};
use crate::counter::{Counter, Sketch};
use crate::part::Stored;
use crate::spread::Spread;
use crate::{By, Config, Error, KeyKind, Observation};
use std::sync::Arc;
use weir_memory::Request;
use weir_packet::flow::{FlowKey, Hasher};
use weir_sketch::Weigh;

#[derive(Debug)]
pub(crate) struct Watch {
    /// Packets of hosts, unless a table of the same form counts them anyway.
    hosts: Option<Counter>,
    contacts: Spread,
}

impl Watch {
    /// Whether a table of hosts, if the settings have one, counts just what the table here does.
    pub fn shares_hosts(config: &Config) -> bool {
        config.by == By::Packets && config.sketch == Sketch::Heavy && config.shared.is_none()
    }

    /// Creates the counters. A heavy table counts the packets of hosts, whatever the other tables count; `has_hosts`: one of them is such
    /// a table.
    pub fn new(config: &Config, has_hosts: bool) -> Result<Self, Error> {
        let of_hosts = Config {
            keys: Vec::new(),
            by: By::Packets,
            sketch: Sketch::Heavy,
            memory: config.memory,
            request: Request { ..config.request },
            seed: config.seed,
            local: config.local.as_ref().map(Arc::clone),
            ..Config::default()
        };
        Ok(Self {
            hosts: match has_hosts {
                true => None,
                false => Some(Counter::new(&of_hosts, KeyKind::HOST, None)?),
            },
            contacts: Spread::new(config, KeyKind::SRC, By::Contacts)?,
        })
    }

    /// Counts packets with a flow key. Only packets in the mask `fresh` may be new contacts. `parts` is a buffer.
    pub fn update(
        &mut self,
        packets: &[Observation],
        fresh: u64,
        hasher: &Hasher,
        parts: &mut Vec<Stored>,
    ) {
        if let Some(hosts) = &mut self.hosts {
            hosts.update_part(KeyKind::HOST, packets, hasher, parts);
        }
        self.contacts.update(packets, fresh, hasher);
    }

    pub fn merge(&mut self, other: &Self, hasher: &Hasher) -> Result<(), Error> {
        if let (Some(mine), Some(theirs)) = (&mut self.hosts, &other.hosts) {
            mine.merge(theirs, |key| hasher.plain(key))?;
        }
        self.contacts.merge(&other.contacts)
    }

    pub fn clear(&mut self) -> bool {
        self.contacts.clear();
        self.hosts.as_mut().is_none_or(Counter::clear)
    }

    /// The hosts with the most packets. `others` is the table that counts hosts if none does here.
    pub fn hosts(&self, others: Option<&Counter>, rows: usize, hasher: &Hasher) -> Option<Table> {
        let hash = |key: &FlowKey| hasher.plain(key);
        let hosts = self.hosts.as_ref().or(others)?;
        let table = hosts.folded((KeyKind::HOST, None), Weigh::Packets, rows, hash);
        Some(table)
    }

    pub fn contacts(&self, rows: usize) -> SpreadTable {
        self.contacts.table(rows, None)
    }
}
