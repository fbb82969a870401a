//! Building an index while the segment is written.

use super::super::keys::{self, Keys, Kind, Link};
use super::{BLOCK, CHECKSUM, Entry, HEADER, MAGIC, PAGE, VERSION};
use roaring::RoaringBitmap;
use std::collections::BTreeMap;
use weir_memory::prefetch;
use weir_packet::LinkType;

/// Slots of the table of IPv4 addresses; three quarters of them are used.
const SLOTS_V4: usize = 1 << 18;
/// Slots of the table of IPv6 addresses.
const SLOTS_V6: usize = 1 << 16;
/// Slots that are tried for an address. An address without a slot leaves its block unindexed.
const PROBES: usize = 24;
/// Addresses between the fetch of a slot and its use.
const AHEAD: usize = 8;
/// Bytes of a page; one entry may make it longer.
const PAGE_BYTES: usize = 8 << 10;

fn hash_v4(address: u32) -> u64 {
    u64::from(address).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40
}

/// A table from addresses to slots with linear probing. A slot holds the address, and 1 + the last block that has it (0: free).
#[derive(Debug)]
struct Addresses<K> {
    slots: Box<[(K, u32)]>,
    used: usize,
}

impl<K: Copy + PartialEq + Default> Addresses<K> {
    fn new(slots: usize) -> Self {
        Self {
            slots: vec![(K::default(), 0); slots].into(),
            used: 0,
        }
    }

    /// The slot of `key` if this is its first packet in `block`, `Err` if there is no room.
    #[inline]
    fn first_in(&mut self, key: K, hash: u64, block: u32) -> Result<Option<u32>, ()> {
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        for _ in 0..PROBES {
            let slot = &mut self.slots[at];
            if slot.1 == 0 {
                if self.used > mask / 4 * 3 {
                    return Err(());
                }
                self.used += 1;
                *slot = (key, block + 1);
                return Ok(Some(at as u32));
            }
            if slot.0 == key {
                let first = slot.1 != block + 1;
                slot.1 = block + 1;
                return Ok(first.then_some(at as u32));
            }
            at = (at + 1) & mask;
        }
        Err(())
    }

    /// Starts to fetch the first slot of a key.
    #[inline]
    fn fetch(&self, hash: u64) {
        prefetch(&self.slots, hash as usize & (self.slots.len() - 1));
    }

    fn clear(&mut self) {
        if self.used > 0 {
            self.slots.fill((K::default(), 0));
            self.used = 0;
        }
    }
}

/// The index of a segment that is being written.
///
/// **Cost** of a packet: one lookup for each of its five to seven keys, in tables of 4 MiB; no allocation. The tables are bounded:
/// if an address or a block finds no room, the block is marked as unindexed, and every query reads it.
#[derive(Debug)]
pub(in super::super) struct Builder {
    links: Vec<Option<Link>>,
    /// Keys of few values that the current block has: a bit for each value, as in `postings`.
    seen: Box<[u64]>,
    v4: Addresses<u32>,
    /// IPv4 addresses of the current block, which are looked up together: the table does not fit the caches near the core.
    waiting: Vec<u32>,
    v6: Addresses<u128>,
    /// Keys of all blocks, one block after the other: value or slot, after those of the kinds
    /// before ([`base`]).
    postings: Vec<u32>,
    most_postings: usize,
    /// End of each block in `postings`.
    ends: Vec<u32>,
    blocks: Vec<Entry>,
    unindexed: RoaringBitmap,
    /// Section header and interfaces of the segment, as pcapng blocks.
    head: Vec<u8>,
    /// First and last statistics of each interface of the segment, as pcapng blocks.
    statistics: BTreeMap<u32, [Vec<u8>; 2]>,
    /// Whether a key of the current block found no room.
    incomplete: bool,
}

/// Number of values or slots of a kind.
const fn slots(kind: Kind) -> usize {
    match kind {
        Kind::Type | Kind::Port => 1 << 16,
        Kind::Vlan => 1 << 12,
        Kind::Protocol => 1 << 8,
        Kind::V4 => SLOTS_V4,
        Kind::V6 => SLOTS_V6,
    }
}

/// Number of values and slots of the kinds before this one.
const fn base(kind: Kind) -> usize {
    let (mut at, mut sum) = (0, 0);
    while Kind::ALL[at] as u8 != kind as u8 {
        sum += slots(Kind::ALL[at]);
        at += 1;
    }
    sum
}

const ALL_SLOTS: usize = base(Kind::V6) + slots(Kind::V6);

impl Builder {
    /// A builder with room for `most_postings` pairs of a key and a block, four bytes each.
    pub(in super::super) fn new(most_postings: usize) -> Self {
        Self {
            links: Vec::new(),
            seen: vec![0; base(Kind::V4).div_ceil(64)].into(),
            v4: Addresses::new(slots(Kind::V4)),
            waiting: Vec::new(),
            v6: Addresses::new(slots(Kind::V6)),
            postings: Vec::with_capacity(most_postings),
            most_postings,
            ends: Vec::new(),
            blocks: Vec::new(),
            unindexed: RoaringBitmap::new(),
            head: Vec::new(),
            statistics: BTreeMap::new(),
            incomplete: false,
        }
    }

    /// Announces the link type of interface `id`.
    pub(in super::super) fn interface(&mut self, id: u32, link: LinkType) {
        self.links
            .resize(self.links.len().max(id as usize + 1), None);
        self.links[id as usize] = Link::of(link);
    }

    /// Announces the interfaces that another builder knows.
    pub(in super::super) fn share_interfaces(&mut self, other: &Self) {
        self.links.clone_from(&other.links);
    }

    /// Takes a section header or an interface of the segment, as pcapng blocks.
    pub(in super::super) fn head(&mut self, blocks: &[u8]) {
        self.head.extend_from_slice(blocks);
    }

    /// Takes the statistics of interface `id`, as a pcapng block.
    pub(in super::super) fn statistics(&mut self, id: u32, block: &[u8]) {
        let [first, last] = self.statistics.entry(id).or_default();
        if first.is_empty() {
            first.extend_from_slice(block);
        }
        last.clear();
        last.extend_from_slice(block);
    }

    pub(in super::super) fn head_bytes(&self) -> &[u8] {
        &self.head
    }

    /// Takes the keys of a packet of interface `id`. A frame of a link type without keys leaves its block unindexed.
    #[inline]
    pub(in super::super) fn packet(&mut self, id: u32, data: &[u8]) {
        match self.links.get(id as usize) {
            Some(Some(link)) => keys::of(*link, data, self),
            _ => self.incomplete = true,
        }
    }

    /// Ends a block.
    pub(in super::super) fn block(&mut self, entry: Entry) {
        self.look_up();
        if std::mem::take(&mut self.incomplete) {
            self.unindexed.insert(self.blocks.len() as u32);
        }
        self.forget_values();
        self.blocks.push(entry);
        self.ends.push(self.postings.len() as u32);
    }

    /// Forgets the keys of few values that the current block has.
    fn forget_values(&mut self) {
        if self.postings.len() == self.most_postings {
            // Some have no posting.
            self.seen.fill(0);
            return;
        }
        let start = self.ends.last().map_or(0, |&end| end as usize);
        for &posting in &self.postings[start..] {
            if let Some(word) = self.seen.get_mut(posting as usize / 64) {
                *word = 0;
            }
        }
    }

    /// Looks up the addresses that wait.
    fn look_up(&mut self) {
        let waiting = std::mem::take(&mut self.waiting);
        let number = self.number();
        for (at, &address) in waiting.iter().enumerate() {
            if let Some(&ahead) = waiting.get(at + AHEAD) {
                self.v4.fetch(hash_v4(ahead));
            }
            match self.v4.first_in(address, hash_v4(address), number) {
                Ok(None) => {}
                Ok(Some(slot)) => self.post(Kind::V4, slot),
                Err(()) => self.incomplete = true,
            }
        }
        self.waiting = waiting;
        self.waiting.clear();
    }

    /// Number of the current block.
    #[inline]
    fn number(&self) -> u32 {
        self.blocks.len() as u32
    }

    /// Forgets the segment.
    pub(in super::super) fn clear(&mut self) {
        self.seen.fill(0);
        self.v4.clear();
        self.waiting.clear();
        self.v6.clear();
        self.postings.clear();
        self.ends.clear();
        self.blocks.clear();
        self.unindexed.clear();
        self.head.clear();
        self.statistics.clear();
        self.incomplete = false;
    }

    #[inline]
    fn post(&mut self, kind: Kind, value: u32) {
        if self.postings.len() < self.most_postings {
            self.postings.push(base(kind) as u32 + value);
        } else {
            self.incomplete = true;
        }
    }

    /// The bytes of the index file of a segment of `bytes` bytes.
    pub(in super::super) fn finish(&self, generation: u64, start_ns: i64, bytes: u64) -> Vec<u8> {
        let mut pages = Pages::default();
        let sorted = self.sorted();
        for kind in Kind::ALL {
            for (key, from, to) in self.keys(kind, &sorted.starts) {
                pages.add(kind, key, &sorted.blocks[from as usize..to as usize]);
            }
            pages.end();
        }
        let mut unindexed = Vec::new();
        set(&mut unindexed, &self.unindexed.iter().collect::<Vec<_>>());
        let statistics = [0, 1]
            .into_iter()
            .flat_map(|which| self.statistics.values().map(move |both| &both[which][..]));
        let head = [&self.head[..]]
            .into_iter()
            .chain(statistics)
            .collect::<Vec<_>>()
            .concat();
        let tables = HEADER
            + self.blocks.len() * BLOCK
            + pages.table.len() * PAGE
            + unindexed.len()
            + head.len();
        let mut out = Vec::with_capacity(tables + pages.bytes.len());
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&(tables as u32).to_le_bytes());
        out.extend_from_slice(&generation.to_le_bytes());
        out.extend_from_slice(&start_ns.to_le_bytes());
        out.extend_from_slice(&bytes.to_le_bytes());
        out.extend_from_slice(&(self.blocks.len() as u32).to_le_bytes());
        out.extend_from_slice(&(pages.table.len() as u32).to_le_bytes());
        let least = self
            .blocks
            .iter()
            .map(|entry| entry.block.min_ns)
            .min()
            .unwrap_or(i64::MAX);
        let greatest = self
            .blocks
            .iter()
            .map(|entry| entry.block.max_ns)
            .max()
            .unwrap_or(i64::MIN);
        out.extend_from_slice(&least.to_le_bytes());
        out.extend_from_slice(&greatest.to_le_bytes());
        out.extend_from_slice(&(unindexed.len() as u32).to_le_bytes());
        out.extend_from_slice(&(head.len() as u32).to_le_bytes());
        out.extend_from_slice(&crc32fast::hash(&out).to_le_bytes());
        out.resize(HEADER, 0);
        for entry in &self.blocks {
            out.extend_from_slice(&entry.offset.to_le_bytes());
            out.extend_from_slice(&entry.block.bytes.to_le_bytes());
            out.extend_from_slice(&entry.block.packets.to_le_bytes());
            out.extend_from_slice(&entry.block.first.to_le_bytes());
            out.extend_from_slice(&entry.block.min_ns.to_le_bytes());
            out.extend_from_slice(&entry.block.max_ns.to_le_bytes());
            out.extend_from_slice(&entry.interfaces.to_le_bytes());
            out.extend_from_slice(&entry.mark.to_le_bytes());
        }
        for (kind, key, at, len) in &pages.table {
            out.extend_from_slice(&[*kind as u8, 0, 0, 0]);
            out.extend_from_slice(&(*len as u32).to_le_bytes());
            out.extend_from_slice(&((tables + at) as u64).to_le_bytes());
            out.extend_from_slice(&key.to_be_bytes());
        }
        out.extend_from_slice(&unindexed);
        out.extend_from_slice(&head);
        let checksum = crc32fast::hash(&out);
        out[CHECKSUM..HEADER].copy_from_slice(&checksum.to_le_bytes());
        out.extend_from_slice(&pages.bytes);
        out
    }

    /// The blocks of each value and slot, sorted by counting.
    fn sorted(&self) -> Sorted {
        let mut starts = vec![0u32; ALL_SLOTS + 1];
        for &posting in &self.postings {
            starts[posting as usize + 1] += 1;
        }
        let mut sum = 0;
        for start in &mut starts {
            sum += *start;
            *start = sum;
        }
        let (mut blocks, mut next) = (vec![0u32; self.postings.len()], starts.clone());
        let mut at = 0;
        for (block, &end) in self.ends.iter().enumerate() {
            for &posting in &self.postings[at..end as usize] {
                let place = &mut next[posting as usize];
                blocks[*place as usize] = block as u32;
                *place += 1;
            }
            at = end as usize;
        }
        Sorted { starts, blocks }
    }

    /// The keys of a kind in order, each with the range of its blocks.
    fn keys(&self, kind: Kind, starts: &[u32]) -> Vec<(u128, u32, u32)> {
        let starts = &starts[base(kind)..=base(kind) + slots(kind)];
        let key = |slot: usize| match kind {
            Kind::V4 => self.v4.slots[slot].0.into(),
            Kind::V6 => self.v6.slots[slot].0,
            _ => slot as u128,
        };
        let ranges = starts
            .windows(2)
            .enumerate()
            .filter(|(_, range)| range[0] < range[1]);
        let mut keys: Vec<_> = ranges
            .map(|(slot, range)| (key(slot), range[0], range[1]))
            .collect();
        if matches!(kind, Kind::V4 | Kind::V6) {
            keys.sort_unstable();
        }
        keys
    }
}

/// Blocks by value or slot: those of slot s are at `starts[s]..starts[s + 1]`.
struct Sorted {
    starts: Vec<u32>,
    blocks: Vec<u32>,
}

impl Keys for Builder {
    #[inline]
    fn small(&mut self, kind: Kind, value: u16) {
        let at = base(kind) + usize::from(value);
        let (word, bit) = (&mut self.seen[at / 64], 1 << (at % 64));
        if *word & bit == 0 {
            *word |= bit;
            self.post(kind, value.into());
        }
    }

    fn unknown(&mut self) {
        self.incomplete = true;
    }

    #[inline]
    fn v4(&mut self, address: u32) {
        self.waiting.push(address);
    }

    #[inline]
    fn v6(&mut self, address: u128) {
        let folded = (address >> 64) as u64 ^ (address as u64).rotate_left(23);
        let hash = folded.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        let number = self.number();
        match self.v6.first_in(address, hash, number) {
            Ok(None) => {}
            Ok(Some(slot)) => self.post(Kind::V6, slot),
            Err(()) => self.incomplete = true,
        }
    }
}

/// Pages being made.
#[derive(Default)]
struct Pages {
    bytes: Vec<u8>,
    /// Kind, first key, offset in `bytes` and length of each page.
    table: Vec<(Kind, u128, usize, usize)>,
    /// Offset of the open page.
    open: Option<usize>,
}

impl Pages {
    fn add(&mut self, kind: Kind, key: u128, blocks: &[u32]) {
        if self
            .open
            .is_some_and(|start| self.bytes.len() - start >= PAGE_BYTES)
        {
            self.end();
        }
        if self.open.is_none() {
            self.open = Some(self.bytes.len());
            self.table.push((kind, key, self.bytes.len(), 0));
        }
        self.bytes
            .extend_from_slice(&key.to_be_bytes()[16 - kind.len()..]);
        set(&mut self.bytes, blocks);
    }

    fn end(&mut self) {
        let Some(start) = self.open.take() else {
            return;
        };
        let checksum = crc32fast::hash(&self.bytes[start..]);
        self.bytes.extend_from_slice(&checksum.to_le_bytes());
        let len = self.bytes.len() - start;
        self.table.last_mut().expect("the page is in the table").3 = len;
    }
}

fn varint(out: &mut Vec<u8>, mut value: u32) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a set of blocks, which are sorted, in its shorter form.
fn set(out: &mut Vec<u8>, blocks: &[u32]) {
    let start = out.len();
    varint(out, (blocks.len() as u32) << 1);
    let (mut before, mut runs) = (0, 1);
    for &block in blocks {
        varint(out, block - before);
        runs += usize::from(block > before + 1);
        before = block;
    }
    // A bitmap is shorter if most blocks follow each other: a run takes 4 bytes.
    if 4 * runs + 16 >= out.len() - start {
        return;
    }
    let mut bitmap =
        RoaringBitmap::from_sorted_iter(blocks.iter().copied()).expect("the blocks are sorted");
    bitmap.optimize();
    if bitmap.serialized_size() + 5 < out.len() - start {
        out.truncate(start);
        varint(out, (bitmap.serialized_size() as u32) << 1 | 1);
        bitmap.serialize_into(out).expect("memory takes all bytes");
    }
}
