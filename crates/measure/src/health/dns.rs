//! Health of DNS: how long servers take to answer, what they answer, and what stays without an answer.
//!
//! The rules are Wireshark's (4.0). A transaction is a query and its answer, with the same ends and identification:
//!
//! 1. A query is **retransmitted** if an earlier query with the same ends and identification has waited less than 5 s for an answer.
//! 2. Any other query begins a transaction; an earlier one of the same ends and identification stays without an answer.
//! 3. The first answer ends the transaction. Its **time** is that from the first query (`dns.time`). Later answers are **repeated**.
//! 4. An answer without a query is **unasked**.
//! 5. A query is **unanswered** in the window in which 5 s have passed without an answer; in the sum of all packets, if there never was
//!    an answer.
//!
//! Messages are read on port 53, over UDP, and over TCP if a message is whole in a segment. Names are taken from the first question,
//! without regard to case; a transaction without a readable question has no name.

mod figures;

pub use figures::{Figures, Times};

use super::sets::{Placed, Sets};
use core::net::IpAddr;
use std::collections::BTreeMap;
use weir_packet::dns::{Entries, Header, Name};
use weir_packet::flow::{FlowKey, Hasher};
use weir_packet::transport::{TCP, Transport, UDP};

const PORT: u16 = 53;

/// Time after which a query is given up, ns.
const GIVEN_UP_NS: i64 = 5_000_000_000;
/// Time between two looks for such queries, ns.
const LOOK_NS: i64 = 1_000_000_000;

/// Figures of a name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NameRow {
    /// The name, in small letters. It is text of the packets: hostile, and escaped when it is written.
    pub name: Name,
    /// Figures of the transactions about it.
    pub figures: Figures,
}

/// Figures of a server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ServerRow {
    /// Address of the server.
    pub server: IpAddr,
    /// Figures of its transactions.
    pub figures: Figures,
}

/// Health of the DNS transactions of a time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Figures of all transactions.
    pub sum: Figures,
    /// Servers with the most queries.
    pub servers: Vec<ServerRow>,
    /// Names with the longest times.
    pub slow: Vec<NameRow>,
    /// Names with the most answers of failure.
    pub failing: Vec<NameRow>,
    /// Names with the most queries without an answer.
    pub unanswered: Vec<NameRow>,
    /// Names that the table holds at most, and names that lost their place in it.
    pub capacity: u64,
    /// Names that lost their place in the table to others.
    pub evicted_names: u64,
    /// Servers that lost their place.
    pub evicted_servers: u64,
    /// Queries that lost their place before an answer came.
    pub evicted_queries: u64,
    /// Messages that could not be read: cut in their headers, or over TCP and not whole in a segment.
    pub unread: u64,
}

impl Report {
    /// Adds the report of another worker.
    pub(super) fn merge(&mut self, other: Self, rows: usize) {
        self.sum += &other.sum;
        self.capacity += other.capacity;
        self.evicted_names += other.evicted_names;
        self.evicted_servers += other.evicted_servers;
        self.evicted_queries += other.evicted_queries;
        self.unread += other.unread;
        let mut servers = BTreeMap::new();
        for row in self.servers.drain(..).chain(other.servers) {
            *servers.entry(row.server).or_insert_with(Figures::default) += &row.figures;
        }
        let servers = servers.into_iter();
        self.servers = servers
            .map(|(server, figures)| ServerRow { server, figures })
            .collect();
        let join = |mine: &mut Vec<NameRow>, theirs: Vec<NameRow>| {
            for row in theirs {
                match mine.iter_mut().find(|known| known.name == row.name) {
                    Some(known) => known.figures += &row.figures,
                    None => mine.push(row),
                }
            }
        };
        join(&mut self.slow, other.slow);
        join(&mut self.failing, other.failing);
        join(&mut self.unanswered, other.unanswered);
        self.rank(rows);
    }

    fn rank(&mut self, rows: usize) {
        self.servers
            .sort_by_key(|row| (u64::MAX - row.figures.queries, row.server));
        self.servers.truncate(rows);
        rank(&mut self.slow, rows, |figures| {
            figures.times.max_ns.unsigned_abs()
        });
        rank(&mut self.failing, rows, |figures| figures.failed());
        rank(&mut self.unanswered, rows, |figures| figures.unanswered);
    }
}

/// Keeps the first `most` of the rows with a figure, in order.
fn rank(rows: &mut Vec<NameRow>, most: usize, by: fn(&Figures) -> u64) {
    rows.retain(|row| by(&row.figures) > 0);
    rows.sort_by(|a, b| {
        by(&b.figures)
            .cmp(&by(&a.figures))
            .then_with(|| a.name.as_wire().cmp(b.name.as_wire()))
    });
    rows.truncate(most);
}

/// A query, and whether it was answered.
#[derive(Clone, Copy, Debug)]
struct Query {
    /// Ends of the query, with the server as the destination.
    key: FlowKey,
    id: u16,
    is_answered: bool,
    is_given_up: bool,
    time_ns: i64,
    /// Hash of the name, if the query has a readable name.
    name: Option<u64>,
    server: u64,
}

/// An entry of a table, with the whole hash of its key.
#[derive(Debug)]
struct Entry<K> {
    hash: u64,
    key: K,
    figures: Figures,
}

/// A table of figures by key.
#[derive(Debug)]
struct Table<K> {
    sets: Sets,
    entries: Vec<Entry<K>>,
    evicted: u64,
}

impl<K> Table<K> {
    fn new(most: usize) -> Self {
        Self {
            sets: Sets::new(most),
            entries: Vec::new(),
            evicted: 0,
        }
    }

    fn clear(&mut self) {
        self.sets.clear();
        self.entries.clear();
        self.evicted = 0;
    }

    /// Returns the figures of a key that has a place.
    fn figures(&mut self, hash: u64) -> Option<&mut Figures> {
        let entries = &mut self.entries;
        let (_, number) = self
            .sets
            .find(hash, |number| entries[number].hash == hash)?;
        Some(&mut entries[number].figures)
    }

    /// Makes a place for a key, unless it has one. `clock` counts up: keys in trouble, and those used last, stay longest.
    fn keep(&mut self, hash: u64, key: impl FnOnce() -> K, clock: u32) {
        let entries = &mut self.entries;
        let found = self.sets.find(hash, |number| entries[number].hash == hash);
        let (place, number) = found.unwrap_or_else(|| {
            let Placed {
                place,
                number,
                evicts,
            } = self.sets.put(hash);
            let number = number as usize;
            let entry = Entry {
                hash,
                key: key(),
                figures: Figures::default(),
            };
            match entries.get_mut(number) {
                Some(old) => *old = entry,
                None => entries.push(entry),
            }
            self.evicted += u64::from(evicts);
            (place, number)
        });
        let class = u32::from(entries[number].figures.is_in_trouble()) << 31;
        self.sets.rank(place, class | clock >> 1);
    }
}

/// Figures of a time.
#[derive(Debug)]
struct Tables {
    sum: Figures,
    names: Table<Name>,
    servers: Table<IpAddr>,
    evicted_queries: u64,
    unread: u64,
    clock: u32,
}

impl Tables {
    fn new(most: usize) -> Self {
        Self {
            sum: Figures::default(),
            names: Table::new(most),
            servers: Table::new(most / 8),
            evicted_queries: 0,
            unread: 0,
            clock: 0,
        }
    }

    fn clear(&mut self) {
        self.sum = Figures::default();
        self.names.clear();
        self.servers.clear();
        (self.evicted_queries, self.unread) = (0, 0);
    }

    /// Adds to the sum, and to the figures of name and server if they have places.
    fn add(&mut self, query: &Query, add: impl Fn(&mut Figures)) {
        add(&mut self.sum);
        query
            .name
            .and_then(|name| self.names.figures(name))
            .map(&add);
        self.servers.figures(query.server).map(&add);
    }

    fn report(&self, rows: usize) -> Report {
        let named = |by: fn(&Figures) -> u64| {
            let entries = self
                .names
                .entries
                .iter()
                .filter(|entry| by(&entry.figures) > 0);
            entries
                .map(|entry| NameRow {
                    name: entry.key,
                    figures: entry.figures,
                })
                .collect()
        };
        let servers = self.servers.entries.iter();
        let servers = servers.map(|entry| ServerRow {
            server: entry.key,
            figures: entry.figures,
        });
        let mut report = Report {
            sum: self.sum,
            servers: servers.collect(),
            slow: named(|figures| figures.times.count),
            failing: named(Figures::failed),
            unanswered: named(|figures| figures.unanswered),
            capacity: self.names.sets.places() as u64,
            evicted_names: self.names.evicted,
            evicted_servers: self.servers.evicted,
            evicted_queries: self.evicted_queries,
            unread: self.unread,
        };
        report.rank(rows);
        report
    }
}

/// Queries, and the figures of the window and of all time.
#[derive(Debug)]
pub(super) struct Dialogues {
    hasher: Hasher,
    open: Sets,
    queries: Vec<Query>,
    all: Tables,
    now: Option<Tables>,
    latest_ns: i64,
    looked_ns: i64,
}

/// Bytes of a query and of a name, each with its places.
const BYTES: usize = size_of::<Query>() + size_of::<Entry<Name>>() + 2 * Sets::PLACE;

impl Dialogues {
    /// Makes tables of about `memory` bytes, half of it for the windows if there are any.
    pub fn new(memory: usize, hasher: Hasher, windows: bool) -> Self {
        let most = memory / BYTES / (1 + usize::from(windows));
        let open = Sets::new(most);
        Self {
            hasher,
            queries: Vec::with_capacity(open.places()),
            open,
            all: Tables::new(most),
            now: windows.then(|| Tables::new(most)),
            latest_ns: i64::MIN,
            looked_ns: i64::MIN,
        }
    }

    /// Takes a packet, if it carries DNS messages.
    #[inline]
    pub fn take(&mut self, transport: &Transport<'_>, time_ns: i64) {
        let key = &transport.key;
        let is_dns = key.sport == PORT || key.dport == PORT;
        if !is_dns || key.flags & FlowKey::HAS_PORTS == 0 {
            return;
        }
        match key.proto {
            UDP => self.message(transport, transport.captured.get(8..), time_ns),
            TCP => self.segment(transport, time_ns),
            _ => {}
        }
    }

    /// Takes the messages of a segment, each after two bytes of length (RFC 1035, section 4.2.2).
    fn segment(&mut self, transport: &Transport<'_>, time_ns: i64) {
        let header = transport
            .captured
            .get(12)
            .map_or(0, |byte| usize::from(byte >> 4) * 4);
        let mut rest = match transport.captured.get(header..) {
            Some(payload) if header >= 20 => payload,
            _ => return,
        };
        while let &[high, low, ref behind @ ..] = rest {
            let len = usize::from(high) << 8 | usize::from(low);
            let Some((message, others)) = behind.split_at_checked(len).filter(|_| len > 0) else {
                return self.unread();
            };
            self.message(transport, Some(message), time_ns);
            rest = others;
        }
    }

    fn message(&mut self, transport: &Transport<'_>, message: Option<&[u8]>, time_ns: i64) {
        self.latest_ns = self.latest_ns.max(time_ns);
        let header = message.and_then(Header::read);
        let (Some(message), Some(header)) = (message, header) else {
            return self.unread();
        };
        if header.is_response() {
            self.answer(&transport.key.turned(), header, time_ns);
        } else {
            self.query(&transport.key, header, message, time_ns);
        }
    }

    fn unread(&mut self) {
        self.tables().for_each(|tables| tables.unread += 1);
    }

    fn tables(&mut self) -> impl Iterator<Item = &mut Tables> {
        [Some(&mut self.all), self.now.as_mut()]
            .into_iter()
            .flatten()
    }

    /// Hash of a query: of its ends and identification.
    fn hash(&self, key: &FlowKey, id: u16) -> u64 {
        let ends = FlowKey {
            flags: 0,
            reserved: 0,
            ..*key
        };
        let id = FlowKey {
            sport: id,
            ..FlowKey::NONE
        };
        self.hasher.plain(&ends) ^ self.hasher.plain(&id)
    }

    /// Returns place and number of the latest query with these ends and identification.
    fn find(&self, hash: u64, key: &FlowKey, id: u16) -> Option<(usize, usize)> {
        let is = |number: usize| self.queries[number].id == id && self.queries[number].key == *key;
        self.open.find(hash, is)
    }

    fn query(&mut self, key: &FlowKey, header: Header, message: &[u8], time_ns: i64) {
        let hash = self.hash(key, header.id);
        let known = self.find(hash, key, header.id);
        let before = known.map(|(_, number)| self.queries[number]);
        if let Some(query) = before.filter(|query| !query.is_answered)
            && time_ns.saturating_sub(query.time_ns) < GIVEN_UP_NS
        {
            self.tables()
                .for_each(|tables| tables.add(&query, |figures| figures.retransmitted += 1));
            return;
        }
        let question = Entries::new(message, header).question();
        let name = question.and_then(Result::ok).map(|mut question| {
            question.name.make_lowercase();
            question.name
        });
        let query = Query {
            key: *key,
            id: header.id,
            is_answered: false,
            is_given_up: false,
            time_ns,
            name: name.map(|name| hash_of(&self.hasher, &name)),
            server: self.hasher.address(key.family, &key.dst),
        };
        let (place, number) = known.unwrap_or_else(|| self.place(hash));
        if let Some(old) = self.queries.get(number).copied() {
            self.give_up(&old);
            if known.is_none() && !old.is_answered && !old.is_given_up {
                self.tables().for_each(|tables| tables.evicted_queries += 1);
            }
            self.queries[number] = query;
        } else {
            self.queries.push(query);
        }
        // The oldest query of a set goes first.
        self.open.rank(place, (time_ns >> 20) as u32);
        let server = key.destination();
        for tables in self.tables() {
            tables.clock = tables.clock.wrapping_add(1);
            if let Some((hash, name)) = query.name.zip(name) {
                tables.names.keep(hash, || name, tables.clock);
            }
            if let Some(server) = server {
                tables.servers.keep(query.server, || server, tables.clock);
            }
            tables.add(&query, |figures| figures.queries += 1);
        }
    }

    fn place(&mut self, hash: u64) -> (usize, usize) {
        let Placed { place, number, .. } = self.open.put(hash);
        (place, number as usize)
    }

    /// Counts a query that gets no answer any more.
    fn give_up(&mut self, query: &Query) {
        if query.is_answered {
            return;
        }
        self.all.add(query, |figures| figures.unanswered += 1);
        if let Some(now) = self.now.as_mut().filter(|_| !query.is_given_up) {
            now.add(query, |figures| figures.unanswered += 1);
        }
    }

    fn answer(&mut self, key: &FlowKey, header: Header, time_ns: i64) {
        let hash = self.hash(key, header.id);
        let Some((_, number)) = self.find(hash, key, header.id) else {
            self.tables().for_each(|tables| tables.sum.unasked += 1);
            return;
        };
        let query = self.queries[number];
        self.queries[number].is_answered = true;
        let time_ns = time_ns.saturating_sub(query.time_ns);
        for tables in self.tables() {
            tables.add(&query, |figures| {
                if query.is_answered {
                    figures.repeated += 1;
                } else {
                    figures.codes[usize::from(header.rcode())] += 1;
                    figures.times.add(time_ns);
                }
            });
        }
    }

    /// Ends the current window, and returns its report of at most `rows` rows in a list.
    pub fn end_window(&mut self, rows: usize) -> Report {
        let Some(now) = &mut self.now else {
            return self.all.report(rows);
        };
        if self.latest_ns.saturating_sub(self.looked_ns) >= LOOK_NS {
            self.looked_ns = self.latest_ns;
            for query in &mut self.queries {
                let is_old = self.latest_ns.saturating_sub(query.time_ns) >= GIVEN_UP_NS;
                if is_old && !query.is_answered && !query.is_given_up {
                    query.is_given_up = true;
                    now.add(query, |figures| figures.unanswered += 1);
                }
            }
        }
        let report = now.report(rows);
        now.clear();
        report
    }

    /// Returns the report of all time.
    pub fn total(mut self, rows: usize) -> Report {
        let open: Vec<Query> = self
            .queries
            .iter()
            .filter(|query| !query.is_answered)
            .copied()
            .collect();
        for query in open {
            self.all.add(&query, |figures| figures.unanswered += 1);
        }
        self.all.report(rows)
    }
}

/// Hash of a name: of pieces of 32 bytes, each with its place.
fn hash_of(hasher: &Hasher, name: &Name) -> u64 {
    const PIECE: usize = 32;
    let mut hash = 0;
    for (i, piece) in name.as_wire().chunks(PIECE).enumerate() {
        let mut bytes = [0; PIECE];
        bytes[..piece.len()].copy_from_slice(piece);
        let mut key = FlowKey {
            sport: i as u16,
            family: 6,
            ..FlowKey::NONE
        };
        key.src.copy_from_slice(&bytes[..PIECE / 2]);
        key.dst.copy_from_slice(&bytes[PIECE / 2..]);
        hash ^= hasher.plain(&key);
    }
    hash
}
