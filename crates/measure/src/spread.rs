//! Numbers of distinct elements of keys: peers, ports, or contacts.
//!
//! A table is a sample of the distinct pairs of key and element. Each packet is offered to it twice: as a contact of its sender,
//! and, turned round, as an answer to a contact of its receiver. [`Spreaders`](weir_sketch::Spreaders) has the algorithm and its bounds.

mod sample;

use crate::answer::{self, difference, largest_changes};
use crate::answer::{Bound, BoundKind, Change, Estimate, Keys, SpreadTable, Spreader};
use crate::compare::{Contrast, Half};
use crate::counter::TOGETHER;
use crate::state::each;
use crate::{By, Config, Error, Field, KeyKind, Observation, Prefix};
use sample::Sample;
use std::collections::{HashMap, HashSet};
use weir_packet::flow::{FlowKey, Hasher, ShortHasher};
use weir_sketch::{Contact, Counts, Marks};

/// Probability that the bound of a figure holds, unless the figure is exact.
const CONFIDENCE: f64 = 0.95;

/// Fields of a flow key that tell one pair of key and element from others.
#[derive(Clone, Copy, Debug)]
pub struct PairFields {
    /// Leading bits of the source address, and of the destination address; none if the address is not a field.
    src: Prefix,
    dst: Prefix,
    sport: bool,
    dport: bool,
    proto: bool,
}

/// No bits of an address.
const NOTHING: Prefix = Prefix::of(0);

/// Returns the longer of two prefixes, one of which is nothing.
fn longer(a: Prefix, b: Prefix) -> Prefix {
    if a == NOTHING { b } else { a }
}

impl PairFields {
    /// Returns the fields of a key together with its elements, for a key that [has any](By::check).
    pub fn of(kind: KeyKind, by: By) -> Self {
        let key = Self::of_key(kind);
        let element = Self::of_element(kind, by);
        Self {
            src: longer(key.src, element.src),
            dst: longer(key.dst, element.dst),
            sport: key.sport | element.sport,
            dport: key.dport | element.dport,
            proto: key.proto | element.proto,
        }
    }

    const NONE: Self = Self {
        src: NOTHING,
        dst: NOTHING,
        sport: false,
        dport: false,
        proto: false,
    };

    fn of_key(kind: KeyKind) -> Self {
        let none = Self::NONE;
        match kind {
            KeyKind::FiveTuple | KeyKind::Conversation => Self {
                src: Prefix::ALL,
                dst: Prefix::ALL,
                sport: true,
                dport: true,
                proto: true,
            },
            KeyKind::Pair => Self {
                src: Prefix::ALL,
                dst: Prefix::ALL,
                ..none
            },
            KeyKind::Src(src) => Self { src, ..none },
            KeyKind::Dst(dst) => Self { dst, ..none },
            KeyKind::Sport => Self {
                sport: true,
                proto: true,
                ..none
            },
            KeyKind::Dport => Self {
                dport: true,
                proto: true,
                ..none
            },
            KeyKind::Proto => Self {
                proto: true,
                ..none
            },
            KeyKind::Fields(fields) => {
                let (src, dst) = fields.prefixes();
                let address = |field, prefix| if fields.has(field) { prefix } else { NOTHING };
                Self {
                    src: address(Field::Src, src),
                    dst: address(Field::Dst, dst),
                    sport: fields.has(Field::Sport),
                    dport: fields.has(Field::Dport),
                    proto: fields.has(Field::Proto),
                }
            }
            // `By::check` refuses them.
            KeyKind::Hosts
            | KeyKind::Host(_)
            | KeyKind::Service
            | KeyKind::App
            | KeyKind::Mac
            | KeyKind::Name
            | KeyKind::Process
            | KeyKind::Container
            | KeyKind::Asn
            | KeyKind::Country
            | KeyKind::Network => none,
        }
    }

    fn of_element(kind: KeyKind, by: By) -> Self {
        let is_peer = matches!(by, By::Peers | By::Contacts);
        let is_port = matches!(by, By::Ports | By::Contacts);
        let peer = |is_wanted| {
            if is_peer && is_wanted {
                Prefix::ALL
            } else {
                NOTHING
            }
        };
        let is_source = kind.peers_are_sources();
        Self {
            src: peer(is_source),
            dst: peer(!is_source),
            sport: false,
            dport: is_port,
            proto: is_port,
        }
    }

    fn has_address(&self) -> bool {
        self.src != NOTHING || self.dst != NOTHING
    }

    /// Returns a flow key that has these fields only.
    pub fn project(&self, flow: &FlowKey) -> FlowKey {
        let has_port = self.sport | self.dport;
        FlowKey {
            src: self.src.cut(flow.src, flow.family),
            dst: self.dst.cut(flow.dst, flow.family),
            sport: if self.sport { flow.sport } else { 0 },
            dport: if self.dport { flow.dport } else { 0 },
            proto: if self.proto { flow.proto } else { 0 },
            family: if self.has_address() { flow.family } else { 0 },
            flags: flow.flags & if has_port { FlowKey::HAS_PORTS } else { 0 },
            reserved: 0,
        }
    }
}

/// Masks of the words of an IPv4 flow key, for [`ShortHasher::hash`].
#[derive(Clone, Copy, Debug)]
struct Masks {
    src: u32,
    dst: u32,
    ports: u32,
    meta: u32,
}

impl Masks {
    fn of(fields: &PairFields) -> Self {
        let address = |bits: Prefix| {
            let kept = u32::MAX.checked_shr(bits.v4.into()).unwrap_or(0);
            u32::from_le_bytes((!kept).to_be_bytes())
        };
        let all = |is_kept: bool, mask: u32| if is_kept { mask } else { 0 };
        let flags = all(
            fields.sport | fields.dport,
            u32::from(FlowKey::HAS_PORTS) << 16,
        );
        Self {
            src: address(fields.src),
            dst: address(fields.dst),
            ports: all(fields.sport, 0xffff) | all(fields.dport, 0xffff_0000),
            meta: all(fields.proto, 0xff) | all(fields.has_address(), 0xff00) | flags,
        }
    }
}

/// Table of one kind of key.
#[derive(Debug)]
pub(crate) struct Spread {
    rule: Rule,
    sample: Sample,
}

/// Rule that makes pairs of packets.
#[derive(Clone, Copy, Debug)]
struct Rule {
    kind: KeyKind,
    /// Whether the key has the source port, which packets that are quoted do not tell.
    kind_has_sport: bool,
    by: By,
    fields: PairFields,
    masks: Masks,
}

/// One side of a packet: contact of its sender, or answer to a contact of its receiver.
#[derive(Clone, Copy)]
struct Side<'a> {
    packet: &'a Observation,
    is_answer: bool,
    rule: &'a Rule,
    hasher: &'a Hasher,
    short: ShortHasher,
}

impl Side<'_> {
    /// Returns the protocol and the destination port that the side is about, if another packet is quoted in this one.
    #[inline(always)]
    fn quoted(&self) -> Option<(u8, u16)> {
        self.packet.quoted().filter(|_| self.is_answer)
    }

    /// Returns the flow key of the contact: of this packet, or of packets to its sender.
    #[inline]
    fn flow(&self) -> FlowKey {
        let flow = &self.packet.flow;
        let flow = if self.is_answer { flow.turned() } else { *flow };
        match self.quoted() {
            None => flow,
            Some((proto, dport)) => FlowKey {
                sport: 0,
                dport,
                proto,
                flags: flow.flags | FlowKey::HAS_PORTS,
                ..flow
            },
        }
    }

    /// Returns the words of [`flow`](Self::flow) of IPv4: source, destination, ports, and meta.
    #[inline(always)]
    fn words(&self) -> [u32; 4] {
        let FlowKey {
            src,
            dst,
            sport,
            dport,
            proto,
            family,
            flags,
            ..
        } = self.packet.flow;
        let first = |[a, b, c, d, ..]: [u8; 16]| u32::from_le_bytes([a, b, c, d]);
        let ports = u32::from(sport) | u32::from(dport) << 16;
        let meta = u32::from_le_bytes([proto, family, flags, 0]);
        match (self.is_answer, self.quoted()) {
            (false, _) => [first(src), first(dst), ports, meta],
            (true, None) => [first(dst), first(src), ports.rotate_left(16), meta],
            (true, Some((proto, dport))) => {
                let flags = flags | FlowKey::HAS_PORTS;
                let meta = u32::from_le_bytes([proto, family, flags, 0]);
                [first(dst), first(src), u32::from(dport) << 16, meta]
            }
        }
    }

    /// Returns whether the packet says something about a pair.
    #[inline(always)]
    fn counts(&self) -> bool {
        let has_ports = self.packet.flow.flags & FlowKey::HAS_PORTS != 0;
        match self.rule.by {
            By::Ports | By::Contacts => has_ports | self.quoted().is_some(),
            // Source ports of quoted packets are not known.
            _ => !self.rule.kind_has_sport || self.quoted().is_none(),
        }
    }
}

impl Side<'_> {
    /// Returns whether the packet goes from an address and port to itself. It would answer itself, and shows no other direction.
    #[inline(always)]
    fn is_own(&self) -> bool {
        let FlowKey {
            src,
            dst,
            sport,
            dport,
            ..
        } = &self.packet.flow;
        (src == dst) & (sport == dport) & self.quoted().is_none()
    }
}

impl Contact<FlowKey> for Side<'_> {
    /// Returns the [plain](Hasher::plain) hash of the fields of the pair.
    #[inline(always)]
    fn pair(&self) -> u64 {
        let Self {
            rule: Rule { fields, masks, .. },
            hasher,
            short,
            ..
        } = self;
        if self.packet.flow.family == 4 {
            let [src, dst, ports, meta] = self.words();
            return short.hash(
                src & masks.src,
                dst & masks.dst,
                ports & masks.ports,
                meta & masks.meta,
            );
        }
        hasher.plain(&fields.project(&self.flow()))
    }

    #[inline(always)]
    fn key(&self) -> FlowKey {
        self.rule.kind.project(&self.flow())
    }

    #[inline(always)]
    fn marks(&self) -> Marks {
        match (self.counts(), self.is_answer) {
            (false, _) => Marks::NONE,
            (true, false) => Marks::CONTACT,
            (true, true) if self.is_own() => Marks::NONE,
            (true, true) if self.packet.refuses() => Marks::REFUSAL,
            (true, true) => Marks::ANSWER,
        }
    }
}

impl Spread {
    /// Creates an empty table.
    pub fn new(config: &Config, kind: KeyKind, by: By) -> Result<Self, Error> {
        let fields = PairFields::of(kind, by);
        Ok(Self {
            rule: Rule {
                kind,
                kind_has_sport: PairFields::of_key(kind).sport,
                by,
                fields,
                masks: Masks::of(&fields),
            },
            sample: Sample::new(config, kind)?,
        })
    }

    /// Counts packets, at most [`TOGETHER`]. Those outside the mask `fresh` repeat others, and change nothing.
    pub fn update(&mut self, packets: &[Observation], fresh: u64, hasher: &Hasher) {
        if fresh == 0 {
            return;
        }
        let Self { rule, sample } = self;
        let short = hasher.short();
        // All contacts come before all answers, so that the processor foresees the kind of nearly every side.
        let mut sides = [(0u8, false); 2 * TOGETHER];
        let mut count = 0;
        for is_answer in [false, true] {
            each(fresh, |index| {
                sides[count] = (index as u8, is_answer);
                count += 1;
            });
        }
        sample.update(&sides[..count], |(index, is_answer)| Side {
            packet: &packets[usize::from(*index)],
            is_answer: *is_answer,
            rule,
            hasher,
            short,
        });
    }

    /// Returns the kind of key.
    pub fn kind(&self) -> KeyKind {
        self.rule.kind
    }

    /// Returns the figure that ranks.
    pub fn by(&self) -> By {
        self.rule.by
    }

    /// Adds the pairs of another table; the order of packets and of tables does not matter.
    pub fn merge(&mut self, other: &Self) -> Result<(), Error> {
        self.sample.merge(&other.sample)
    }

    /// Clears the table and keeps its memory.
    pub fn clear(&mut self) {
        self.sample.clear();
    }

    fn bound_kind(&self) -> BoundKind {
        match (self.sample.is_exact(), self.sample.is_saturated()) {
            (true, _) => BoundKind::Exact,
            (false, false) => BoundKind::Probabilistic {
                confidence: CONFIDENCE,
            },
            (false, true) => BoundKind::None,
        }
    }

    /// Returns the `rows` keys with the most elements. `keys` is an estimate of the number of all keys, if the caller has one.
    pub fn table(&self, rows: usize, keys: Option<Estimate>) -> SpreadTable {
        let kind = self.bound_kind();
        let (listed, at_most) = self.sample.ranking(rows);
        let row = |listed: weir_sketch::Spreader<FlowKey>| Spreader {
            key: listed.key,
            elements: listed.estimate,
            bound: Bound {
                kind,
                lower: listed.lower,
                upper: listed.upper,
            },
            unanswered: listed.unanswered,
            refused: listed.refused,
        };
        let rows: Vec<Spreader> = listed.into_iter().map(row).collect();
        let (all, shown) = (self.sample.distinct(), rows.len() as u64);
        let seen = self.sample.sampled_keys() as u64 - shown;
        let keys = match (kind, keys) {
            (BoundKind::Exact, _) => Keys::About(Estimate::exact(seen)),
            (_, Some(keys)) => Keys::About(Estimate {
                value: keys.value.saturating_sub(shown).max(seen),
                ..keys
            }),
            (_, None) => Keys::AtLeast(seen),
        };
        let listed: u64 = rows.iter().map(|row| row.elements).sum();
        SpreadTable {
            rows,
            at_most,
            kind,
            keys,
            elements: all.saturating_sub(listed),
            sample: answer::Sample {
                share: self.sample.share(),
                is_exact: self.sample.is_exact(),
                is_saturated: self.sample.is_saturated(),
                memory_for_most: self.memory_for_most(),
            },
        }
    }

    /// Returns memory that holds nearly all pairs, in bytes: of buckets that are a quarter full on average, one in a thousand has
    /// too many pairs.
    fn memory_for_most(&self) -> u64 {
        let each = self.sample.memory_bytes() as u64 / self.sample.capacity() as u64;
        self.sample.sampled_from().saturating_mul(4 * each)
    }

    /// Returns the keys whose numbers of elements changed most; a window without a table had no packets.
    pub fn changes(before: Option<&Self>, after: Option<&Self>, rows: usize) -> Vec<Change> {
        let before = before.map_or_else(Figures::default, Self::figures);
        let after = after.map_or_else(Figures::default, Self::figures);
        let keys = before.of.keys().chain(after.of.keys()).copied();
        let keys: HashSet<FlowKey> = keys.collect();
        let kind = match before.kind {
            BoundKind::Exact => after.kind,
            other => other,
        };
        let change = |key: FlowKey| {
            let (then, now) = (before.of(&key), after.of(&key));
            Change {
                key,
                before: then.value,
                after: now.value,
                lower: difference(now.lower, then.upper),
                upper: difference(now.upper, then.lower),
                kind,
            }
        };
        largest_changes(keys.into_iter().map(change).collect(), rows)
    }

    /// Calls `each` with the numbers of elements of each key of two windows. Returns the largest possible number of a key that
    /// has none in a window, and the kind of these bounds.
    pub fn contrasts(
        before: Option<&Self>,
        after: Option<&Self>,
        each: &mut dyn FnMut(Contrast),
    ) -> ([u64; 2], BoundKind) {
        let [before, after] =
            [before, after].map(|spread| spread.map_or_else(Figures::default, Self::figures));
        let half = |figures: &Figures, key: &FlowKey| {
            let Figure {
                value,
                lower,
                upper,
            } = figures.of(key);
            Half {
                figure: value,
                bound: Bound {
                    kind: figures.kind,
                    lower,
                    upper,
                },
                counts: Counts::default(),
            }
        };
        let keys = before.of.keys().chain(after.of.keys());
        let keys: HashSet<&FlowKey> = keys.collect();
        for key in keys {
            each(Contrast {
                key: *key,
                before: half(&before, key),
                after: half(&after, key),
            });
        }
        let kind = match before.kind {
            BoundKind::Exact => after.kind,
            other => other,
        };
        ([before.absent, after.absent], kind)
    }

    /// Returns the figures of all keys.
    fn figures(&self) -> Figures {
        let all = self.sample.ranking(usize::MAX).0.into_iter();
        let figure = |listed: weir_sketch::Spreader<FlowKey>| {
            let figure = Figure {
                value: listed.estimate,
                lower: listed.lower,
                upper: listed.upper,
            };
            (listed.key, figure)
        };
        Figures {
            of: all.map(figure).collect(),
            absent: self.sample.absent_upper(),
            kind: self.bound_kind(),
        }
    }

    /// Describes the table in one line, and its memory in another.
    pub fn describe(&self) -> [String; 2] {
        let Self { rule, sample } = self;
        let held = match sample.is_exact() {
            true => "all pairs are in it".to_owned(),
            false => format!("it has {:.2} % of all pairs", sample.share() * 100.0),
        };
        [
            format!(
                "{}, sample with room for {} pairs; {held}",
                rule.by,
                sample.capacity()
            ),
            sample.obtained().to_string(),
        ]
    }
}

/// Number of elements of a key, with its bounds.
#[derive(Clone, Copy, Default)]
struct Figure {
    value: u64,
    lower: u64,
    upper: u64,
}

/// Numbers of elements of all keys of a window.
struct Figures {
    of: HashMap<FlowKey, Figure>,
    /// Upper bound for all other keys.
    absent: u64,
    kind: BoundKind,
}

impl Default for Figures {
    fn default() -> Self {
        Self {
            of: HashMap::new(),
            absent: 0,
            kind: BoundKind::Exact,
        }
    }
}

impl Figures {
    fn of(&self, key: &FlowKey) -> Figure {
        let absent = Figure {
            upper: self.absent,
            ..Figure::default()
        };
        self.of.get(key).copied().unwrap_or(absent)
    }
}
