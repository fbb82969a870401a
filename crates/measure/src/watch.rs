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
    hosts: Counter,
    contacts: Spread,
}

impl Watch {
    /// Creates the counters. A heavy table counts the packets of hosts, whatever the other tables count.
    pub fn new(config: &Config) -> Result<Self, Error> {
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
            hosts: Counter::new(&of_hosts, KeyKind::HOST, None)?,
            contacts: Spread::new(config, KeyKind::SRC, By::Contacts)?,
        })
    }

    /// Counts packets with a flow key; `parts` is a buffer.
    pub fn update(&mut self, packets: &[Observation], hasher: &Hasher, parts: &mut Vec<Stored>) {
        self.hosts
            .update_part(KeyKind::HOST, packets, hasher, parts);
        self.contacts.update(packets, hasher);
    }

    pub fn merge(&mut self, other: &Self, hasher: &Hasher) -> Result<(), Error> {
        self.hosts.merge(&other.hosts, |key| hasher.plain(key))?;
        self.contacts.merge(&other.contacts)
    }

    pub fn clear(&mut self) -> bool {
        self.contacts.clear();
        self.hosts.clear()
    }

    pub fn hosts(&self, rows: usize, hasher: &Hasher) -> Table {
        let hash = |key: &FlowKey| hasher.plain(key);
        self.hosts
            .folded((KeyKind::HOST, None), Weigh::Packets, rows, hash)
    }

    pub fn contacts(&self, rows: usize) -> SpreadTable {
        self.contacts.table(rows, None)
    }
}
