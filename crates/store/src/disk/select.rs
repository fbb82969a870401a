//! From a tcpdump expression to the blocks that may hold its packets.
//!
//! The expression is not parsed: the program that libpcap makes of it is followed along all its
//! paths, without a packet. On the way facts are collected: the EtherType of the frame, then the
//! protocol after it, that the packet is not a later fragment. If a comparison with a constant
//! reads a field that the index knows ([`keys`]) under the facts that tell where it lies, then its
//! `true` branch needs a packet with that key. All other comparisons may go either way. The result
//! is a [`Formula`] over keys that holds for each packet that matches: a block without packets for
//! which it holds is not read.
//!
//! No packet is missed, because each key is demanded only where [`keys::of`] has put it. In particular:
//!
//! 1. The negation of a term demands nothing: `false` branches pass everything.
//! 2. `vlan` shifts what follows it, in packets without a tag too (`vlan or ip`); a field at a shifted offset counts only if
//!    the path has seen the tag.
//! 3. Fields of all other layers (MPLS, PPPoE, GENEVE, 802.2), computed offsets and scratch memory demand nothing.
//! 4. A packet for which a key was not indexed is in an unindexed block, which is always read.
//!
//! Paths that meet at the same instruction with the same facts share a result, so the work is near linear; a program that needs
//! more than [`MOST_STATES`] selects all blocks.

use super::index::{Index, IndexDamage};
use super::keys::{self, ARP, IPV4, IPV6, Kind, Link, MOST_TAGS, RARP};
use roaring::RoaringBitmap;
use std::collections::HashMap;
use weir_filter::{Insn, Names, Program, Sets, libpcap};
use weir_packet::LinkType;

/// Largest number of pairs of an instruction and facts.
const MOST_STATES: usize = 20_000;
/// Largest number of jumps on a path.
const MOST_JUMPS: usize = 1000;
/// Largest number of ports in a range that is looked up.
const MOST_PORTS: u16 = 4096;
/// Shortest prefix of an address that is looked up, bits.
const SHORTEST: u32 = 8;

/// Range of time and expression of a query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Least time, ns since 1970.
    pub from_ns: Option<i64>,
    /// Greatest time.
    pub to_ns: Option<i64>,
    /// Expression of tcpdump that will judge the packets; without `--inner`. Blocks without a packet that matches may be left
    /// out. Empty: all packets.
    pub expression: String,
    /// Whether the packets are judged after VLAN tags too; see [`weir_filter::for_link`].
    pub behind_tags: bool,
    /// Sets of addresses in the expression. The index is of no use for them, but for what else a packet needs.
    pub sets: Sets,
}

impl Selection {
    /// Whether a packet of this time may be wanted.
    #[inline]
    pub(super) fn wants(&self, time_ns: i64) -> bool {
        self.overlaps(time_ns, time_ns)
    }

    /// Whether any packet with times in this range may be wanted.
    #[inline]
    pub(super) fn overlaps(&self, least: i64, greatest: i64) -> bool {
        self.from_ns.is_none_or(|from| greatest >= from) && self.to_ns.is_none_or(|to| least <= to)
    }
}

/// Condition on the keys of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Node {
    All,
    None,
    /// A key of this kind in this range, which includes its ends.
    Key(Kind, u128, u128),
    And(u32, u32),
    Or(u32, u32),
}

const ALL: u32 = 0;
const NONE: u32 = 1;

/// Conditions that share parts; the last is the formula itself.
#[derive(Clone, Debug)]
pub(super) struct Formula {
    nodes: Vec<Node>,
    root: u32,
}

impl Formula {
    /// The formula for an expression over frames of a link type; it holds for each packet that matches and is indexed. An
    /// expression that libpcap refuses matches no packet.
    pub(super) fn of(expression: &str, link: LinkType, sets: &Sets) -> Self {
        let constant = |root| Self {
            nodes: vec![Node::All, Node::None],
            root,
        };
        if expression.trim().is_empty() {
            return constant(ALL);
        }
        let names = Names {
            sets: sets.clone(),
            ..Names::NONE
        };
        match (
            libpcap::compile_with(expression, link, &names),
            Link::of(link),
        ) {
            (Err(_), _) => constant(NONE),
            // Without sets: the index knows single addresses. A program may then match more, and so may the formula.
            (Ok(program), Some(link)) => {
                Self::of_program(&program.without_sets(), link).unwrap_or_else(|| constant(ALL))
            }
            // All packets of such a link type are in unindexed blocks.
            (Ok(_), None) => constant(NONE),
        }
    }

    fn of_program(program: &Program, link: Link) -> Option<Self> {
        let mut paths = Paths {
            insns: program.insns(),
            link,
            nodes: vec![Node::All, Node::None],
            places: HashMap::new(),
            known: HashMap::new(),
        };
        let root = paths.from(State::default(), 0)?;
        Some(Self {
            nodes: paths.nodes,
            root,
        })
    }

    /// Whether the formula holds for all packets.
    pub(super) fn is_all(&self) -> bool {
        self.root == ALL
    }

    /// Blocks that may hold a packet for which the formula holds.
    pub(super) fn blocks(&self, index: &mut Index) -> Result<RoaringBitmap, IndexDamage> {
        let mut done = vec![None; self.nodes.len()];
        self.evaluate(self.root, index, &mut done)
    }

    fn evaluate(
        &self,
        node: u32,
        index: &mut Index,
        done: &mut [Option<RoaringBitmap>],
    ) -> Result<RoaringBitmap, IndexDamage> {
        if let Some(found) = &done[node as usize] {
            return Ok(found.clone());
        }
        let found = match self.nodes[node as usize] {
            Node::All => (0..index.blocks.len() as u32).collect(),
            Node::None => RoaringBitmap::new(),
            Node::Key(kind, from, to) => index.blocks_of(kind, from..=to)?,
            Node::And(a, b) => {
                let a = self.evaluate(a, index, done)?;
                // Most right sides are not needed.
                if a.is_empty() {
                    a
                } else {
                    a & self.evaluate(b, index, done)?
                }
            }
            Node::Or(a, b) => self.evaluate(a, index, done)? | self.evaluate(b, index, done)?,
        };
        done[node as usize] = Some(found.clone());
        Ok(found)
    }
}

/// Contents of a register.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Value {
    #[default]
    Unknown,
    /// Bytes of the packet at a fixed offset, masked.
    Field { at: u32, size: u8, mask: u32 },
    /// Bytes of the packet at `at` after the IPv4 header length that the packet claims at `header`.
    Behind { header: u32, at: u32, size: u8 },
    /// Four times the lower half of the byte at an offset.
    HeaderLength(u32),
}

/// Facts about a packet on a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Facts {
    /// EtherTypes: of the frame, after its first tag, and so on.
    types: [Option<u16>; MOST_TAGS + 1],
    protocol: Option<u8>,
    /// Whether the packet is whole or a first fragment.
    first_fragment: bool,
    /// Words of the IPv6 addresses, source and destination.
    words: [[Option<u32>; 4]; 2],
    /// Ranges of source and destination port.
    ports: [(u16, u16); 2],
}

impl Default for Facts {
    fn default() -> Self {
        let ports = [(0, u16::MAX); 2];
        Self {
            types: [None; MOST_TAGS + 1],
            protocol: None,
            first_fragment: false,
            words: [[None; 4]; 2],
            ports,
        }
    }
}

impl Facts {
    /// EtherType of the network layer and number of tags in front of it.
    fn network(&self) -> Option<(u16, usize)> {
        let tags = self
            .types
            .iter()
            .take_while(|ethertype| ethertype.is_some_and(keys::is_tag))
            .count();
        Some((self.types.get(tags).copied()??, tags))
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct State {
    at: usize,
    a: Value,
    x: Value,
    facts: Facts,
}

/// A branch that can be taken: the facts after it, and the condition for it.
type Branch = Option<(Facts, Node)>;

/// Paths through a program.
struct Paths<'a> {
    insns: &'a [Insn],
    link: Link,
    nodes: Vec<Node>,
    places: HashMap<Node, u32>,
    known: HashMap<State, u32>,
}

/// Field of the packet in a comparison.
enum Field {
    /// The EtherType after this number of tags.
    Type(usize),
    /// The identifier in a tag.
    Vlan,
    Protocol,
    /// Offset and flags of an IPv4 fragment.
    Fragment,
    /// An IPv4 address under this mask.
    V4(u32),
    /// A word of an IPv6 address under this mask: side, number of the word.
    V6(usize, usize, u32),
    Port(usize),
}

// Classic BPF (linux/bpf_common.h): classes, modes, operations.
const LD: u16 = 0;
const LDX: u16 = 1;
const ALU: u16 = 4;
const JMP: u16 = 5;
const RET: u16 = 6;
const MISC: u16 = 7;
const STORES: [u16; 2] = [2, 3];
const ABSOLUTE: u16 = 0x20;
const INDIRECT: u16 = 0x40;
const HEADER_LENGTH: u16 = 0xa0;
const AND_K: u16 = 0x54;
const ALWAYS: u16 = 0;
const EQUAL: u16 = 0x10;
const GREATER: u16 = 0x20;
const GREATER_EQUAL: u16 = 0x30;
const ANY_BIT: u16 = 0x40;

impl Paths<'_> {
    /// Place of a condition among the nodes, simplified.
    fn place(&mut self, node: Node) -> u32 {
        let node = match node {
            Node::All | Node::And(ALL, ALL) => return ALL,
            Node::None | Node::And(NONE, _) | Node::And(_, NONE) => return NONE,
            Node::Or(ALL, _) | Node::Or(_, ALL) => return ALL,
            Node::And(ALL, one)
            | Node::And(one, ALL)
            | Node::Or(NONE, one)
            | Node::Or(one, NONE) => return one,
            Node::And(a, b) | Node::Or(a, b) if a == b => return a,
            node => node,
        };
        let next = self.nodes.len() as u32;
        let place = *self.places.entry(node).or_insert(next);
        if place == next {
            self.nodes.push(node);
        }
        place
    }

    /// The condition for a match from a state on; `None` if the program is too large.
    fn from(&mut self, mut state: State, jumps: usize) -> Option<u32> {
        loop {
            let insn = *self.insns.get(state.at)?;
            let Insn { code, k, .. } = insn;
            match code & 7 {
                RET => {
                    return Some(if code & 0x18 == 0 && k == 0 {
                        NONE
                    } else {
                        ALL
                    });
                }
                JMP if code & 0xf0 == ALWAYS => {
                    // A jump back is a loop over a chain of headers.
                    let forward = usize::try_from(k as i32).ok()?;
                    state.at += forward;
                }
                JMP => return self.jump(state, insn, jumps),
                LD => state.a = load(code, k, state.x),
                LDX => {
                    let length = code & 0xe0 == HEADER_LENGTH;
                    state.x = if length {
                        Value::HeaderLength(k)
                    } else {
                        Value::Unknown
                    };
                }
                ALU => {
                    state.a = match (state.a, code) {
                        (Value::Field { at, size, mask }, AND_K) => Value::Field {
                            at,
                            size,
                            mask: mask & k,
                        },
                        _ => Value::Unknown,
                    }
                }
                MISC if code & 0xf8 == 0 => state.x = state.a,
                MISC => state.a = state.x,
                class if STORES.contains(&class) => {}
                _ => return None,
            }
            state.at += 1;
        }
    }

    fn jump(&mut self, state: State, insn: Insn, jumps: usize) -> Option<u32> {
        if let Some(&known) = self.known.get(&state) {
            return Some(known);
        }
        if self.known.len() >= MOST_STATES || jumps >= MOST_JUMPS {
            return None;
        }
        let mut either = NONE;
        for (branch, skip) in self
            .branches(&state, insn)
            .into_iter()
            .zip([insn.jt, insn.jf])
        {
            let Some((facts, condition)) = branch else {
                continue;
            };
            let behind = self.from(
                State {
                    at: state.at + 1 + usize::from(skip),
                    facts,
                    ..state
                },
                jumps + 1,
            )?;
            let condition = self.place(condition);
            let both = self.place(Node::And(condition, behind));
            either = self.place(Node::Or(either, both));
        }
        self.known.insert(state, either);
        Some(either)
    }

    /// The `true` and the `false` branch of a comparison.
    fn branches(&self, state: &State, insn: Insn) -> [Branch; 2] {
        let facts = state.facts;
        let open = Some((facts, Node::All));
        let (relation, k) = (insn.code & 0xf0, insn.k);
        let with_x = insn.code & 8 != 0;
        let Some(field) = self.field(state.a, &facts).filter(|_| !with_x) else {
            return [open, open];
        };
        let mut then = facts;
        let key = |kind: Kind, key: u128| Node::Key(kind, key, key);
        let decided = |known: bool| if known { [open, None] } else { [None, open] };
        match (field, relation) {
            (Field::Type(tags), EQUAL) => {
                if let Some(known) = facts.types[tags] {
                    return decided(u32::from(known) == k);
                }
                then.types[tags] = Some(k as u16);
                [
                    (k <= 0xffff).then(|| (then, key(Kind::Type, k.into()))),
                    open,
                ]
            }
            (Field::Vlan, EQUAL) => [Some((facts, key(Kind::Vlan, k.into()))), open],
            (Field::Protocol, EQUAL) => {
                if let Some(known) = facts.protocol {
                    return decided(u32::from(known) == k);
                }
                then.protocol = Some(k as u8);
                [
                    (k <= 0xff).then(|| (then, key(Kind::Protocol, k.into()))),
                    open,
                ]
            }
            (Field::Fragment, ANY_BIT) if k == 0x1fff => {
                then.first_fragment = true;
                [open, Some((then, Node::All))]
            }
            (Field::V4(mask), EQUAL) => [
                Some((facts, prefix(Kind::V4, k.into(), mask.into(), 32))),
                open,
            ],
            (Field::V6(side, number, mask), EQUAL) => {
                let words = &mut then.words[side];
                if let Some(known) = words[number] {
                    return decided(known & mask == k);
                }
                // The leading words that are known, this one too.
                words[number] = Some(k);
                let (mut value, mut known, mut bits) = (0u128, 0u128, 128);
                for (at, word) in words.iter().enumerate() {
                    let Some(word) = word else { break };
                    bits -= 32;
                    let word_mask = if at == number { mask } else { u32::MAX };
                    value |= u128::from(*word) << bits;
                    known |= u128::from(word_mask) << bits;
                    if word_mask != u32::MAX {
                        break;
                    }
                }
                if mask != u32::MAX {
                    words[number] = None;
                }
                [Some((then, prefix(Kind::V6, value, known, 128))), open]
            }
            (Field::Port(side), EQUAL | GREATER | GREATER_EQUAL) => {
                let below = |k: u32| (0, k.min(0xffff) as u16);
                let from = |k: u32| (k.min(0xffff) as u16, u16::MAX);
                let (when, unless) = match relation {
                    EQUAL => (
                        (k <= 0xffff).then_some((k as u16, k as u16)),
                        Some((0, u16::MAX)),
                    ),
                    GREATER => ((k < 0xffff).then(|| from(k + 1)), Some(below(k))),
                    _ => ((k <= 0xffff).then(|| from(k)), k.checked_sub(1).map(below)),
                };
                let narrowed = |range: Option<(u16, u16)>| {
                    let (from, to) = range?;
                    let mut facts = facts;
                    let known = &mut facts.ports[side];
                    *known = (from.max(known.0), to.min(known.1));
                    let (from, to) = *known;
                    if from > to {
                        return None;
                    }
                    let few = to - from < MOST_PORTS;
                    Some((
                        facts,
                        if few {
                            Node::Key(Kind::Port, from.into(), to.into())
                        } else {
                            Node::All
                        },
                    ))
                };
                [narrowed(when), narrowed(unless)]
            }
            _ => [open, open],
        }
    }

    /// The field that a value is, given the facts.
    fn field(&self, value: Value, facts: &Facts) -> Option<Field> {
        let Link { ethertype, network } = self.link;
        let (at, size, mask) = match value {
            Value::Field { at, size, mask } => (at as usize, size, mask),
            Value::Behind {
                header,
                at,
                size: 2,
            } => {
                let (IPV4, tags) = facts.network()? else {
                    return None;
                };
                let has_ports = facts.first_fragment && facts.protocol.is_some_and(keys::has_ports);
                let ours = header as usize == network + 4 * tags && has_ports;
                let side = (at as usize).checked_sub(header as usize)?;
                return (ours && matches!(side, 0 | 2)).then_some(Field::Port(side / 2));
            }
            _ => return None,
        };
        // EtherTypes and tags.
        let most = if self.link.has_tags() { MOST_TAGS } else { 0 };
        for tags in 0..=most {
            if size == 2 && mask == 0xffff && at == ethertype + 4 * tags {
                return Some(Field::Type(tags));
            }
            if tags == most || !facts.types[tags].is_some_and(keys::is_tag) {
                break;
            }
            if size == 2 && mask == 0xfff && at == ethertype + 4 * tags + 2 {
                return Some(Field::Vlan);
            }
        }
        let (kind, tags) = facts.network()?;
        let at = at.checked_sub(network + 4 * tags)?;
        let full = mask == [0xff, 0xffff, 0, u32::MAX][usize::from(size) - 1];
        match (kind, at, size) {
            (IPV4, 9, 1) | (IPV6, 6, 1) if full => Some(Field::Protocol),
            (IPV4, 6, 2) if full => Some(Field::Fragment),
            (IPV4, 12 | 16, 4) | (ARP | RARP, 14 | 24, 4) => Some(Field::V4(mask)),
            (IPV6, 8..40, 4) if at % 4 == 0 => {
                Some(Field::V6((at - 8) / 16, (at - 8) % 16 / 4, mask))
            }
            (IPV6, 40 | 42, 2) if full && facts.protocol.is_some_and(keys::has_ports) => {
                Some(Field::Port((at - 40) / 2))
            }
            _ => None,
        }
    }
}

/// Contents of A after a load.
fn load(code: u16, k: u32, x: Value) -> Value {
    let size = match code & 0x18 {
        0 => 4,
        8 => 2,
        _ => 1,
    };
    match (code & 0xe0, x) {
        (ABSOLUTE, _) => {
            let mask = if size == 4 {
                u32::MAX
            } else {
                (1 << (8 * u32::from(size))) - 1
            };
            Value::Field { at: k, size, mask }
        }
        (INDIRECT, Value::HeaderLength(header)) => Value::Behind {
            header,
            at: k,
            size,
        },
        _ => Value::Unknown,
    }
}

/// The condition that a key of `bits` bits under a mask has this value.
fn prefix(kind: Kind, value: u128, mask: u128, bits: u32) -> Node {
    let whole = if bits == 128 {
        u128::MAX
    } else {
        (1 << bits) - 1
    };
    let rest = whole & !mask;
    if value & rest != 0 {
        return Node::None;
    }
    // A prefix: no bit of the mask after the first one that is clear.
    let contiguous = rest & rest.wrapping_add(1) == 0;
    let long = mask.count_ones() >= SHORTEST;
    if contiguous && long {
        Node::Key(kind, value, value | rest)
    } else {
        Node::All
    }
}

#[cfg(test)]
mod tests;
