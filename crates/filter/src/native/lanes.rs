//! A decision graph evaluated for four packets at once, one in each 32-bit lane of a vector.
//!
//! Fields are fetched in *windows* of four bytes: fields close to each other share one. A window at
//! a fixed place costs a load and an insertion per packet; a window after a header of variable
//! length also costs an extraction of its place. Tests then cost a quarter of an instruction per
//! packet.
//!
//! A load must never leave its packet, although all loads are made unconditionally. So:
//!
//! 1. If a packet is shorter than the *floor*, zeroes are read in its stead, and it is reported as unsure. The floor is the
//!    furthest byte that the program reads at a fixed place, but at most [`MAX_FLOOR`], so that ordinary short packets are not
//!    too short.
//! 2. A window that ends at or below the floor needs no check.
//! 3. Any other window is read at its place if all of it was captured, and at the packet's start if not.
//! 4. A packet may end within such a window, so that it has some of the window's fields but not all. Then it is unsure too, if
//!    the program reads one of these fields.
//!
//! Every address depends on the lengths through data and not through branches. So loads may be moved freely (Cranelift's
//! `can_move`), to the instructions that need them.

use std::collections::HashMap;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{Endianness, InstBuilder, MemFlagsData, Value, types};
use cranelift_frontend::FunctionBuilder;

use super::batch::Group;
use super::decision::{Decision, NodeId, Place, Term, ValueId};
use super::emit;
use crate::graph::Node;
use crate::program::{Address, Alu, Relation};

/// Packets per vector.
pub(super) const LANES: i64 = 4;

/// Largest floor, bytes: an Ethernet, IPv4 and TCP header.
const MAX_FLOOR: u64 = 54;

/// Bytes in a window.
const WINDOW: u64 = 4;

/// Bytes that are read in place of a packet below the floor.
static ZEROES: [u8; 64] = [0; 64];

/// Bits 0 to 3 for the four packets, in 64 bits.
pub(super) struct Judged {
    pub(super) matched: Value,
    /// Packets whose bit in `matched` has no meaning.
    pub(super) unsure: Option<Value>,
}

/// Vectors that the code reads, in the order of their first use.
///
/// As ordinary constants they would be moved out of the loop, exceed the registers, and be reloaded
/// from the stack one by one. So they are words of a table whose address the loop reads again each
/// time, and serve as operands of the instructions that need them. The table's first 16 bytes are
/// that address's offset, zero.
#[derive(Default)]
pub(super) struct Constants {
    table: Vec<[u8; 16]>,
    index: HashMap<[u8; 16], usize>,
}

impl Constants {
    /// The table's bytes.
    pub(super) fn bytes(self) -> Vec<u8> {
        [[0; 16]].into_iter().chain(self.table).flatten().collect()
    }

    /// Offset of a vector in the table.
    fn offset(&mut self, vector: [u8; 16]) -> i32 {
        let index = *self.index.entry(vector).or_insert_with(|| {
            self.table.push(vector);
            self.table.len()
        });
        (16 * index) as i32
    }
}

/// Emits the evaluation of four packets; `table` is the address of `constants`.
pub(super) fn judge(
    decision: &Decision,
    group: Group,
    constants: &mut Constants,
    table: Value,
    builder: &mut FunctionBuilder<'_>,
) -> Judged {
    let places = decision.places();
    let floor = floor(&places);
    let windows = windows(&places, floor);
    let (network, fetched, captured) = Default::default();
    let outcomes = vec![None; decision.nodes().len()];
    let unknown_zero = builder
        .ins()
        .load(types::I64, MemFlagsData::trusted(), table, 0);
    let table = builder.ins().iadd(table, unknown_zero);
    let len = group.lens(builder);
    let data = std::array::from_fn(|lane| group.data(builder, lane));
    let mut lanes = Lanes {
        decision,
        builder,
        group,
        constants,
        table,
        data,
        len,
        floor,
        windows,
        network,
        fetched,
        captured,
        outcomes,
    };
    let long_enough = lanes.guard();
    let outcome = lanes.root();
    let matched = lanes.bits(outcome.matched);
    let long_enough = long_enough.map_or(Truth::Yes, Truth::Where);
    let unsure = match lanes.and(long_enough, outcome.torn.not()) {
        Truth::Yes => None,
        sure => {
            let sure = lanes.bits(sure);
            Some(lanes.builder.ins().bxor_imm_u(sure, (1 << LANES) - 1))
        }
    };
    Judged { matched, unsure }
}

/// Number of captured bytes that a packet needs; 0 if the program reads none.
fn floor(places: &[Place]) -> u64 {
    let fixed = |place: &Place| {
        if place.base.is_none() && place.end() <= MAX_FLOOR {
            place.end()
        } else {
            0
        }
    };
    places
        .iter()
        .map(|place| fixed(place).max(WINDOW))
        .max()
        .unwrap_or(0)
}

/// A window: four bytes at `base + k`, and the smallest end of a field in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Window {
    base: Option<ValueId>,
    k: u32,
    least_end: u64,
}

impl Window {
    fn end(self) -> u64 {
        u64::from(self.k) + WINDOW
    }
}

/// The window of each place: from the leftmost field on, each window takes in all fields that fit. No cover has fewer windows.
///
/// A window ends at the end of its last field, if possible, so that it exceeds a packet only if a field does. Fields below
/// the floor, which need no check, never share a window with other fields.
fn windows(places: &[Place], floor: u64) -> HashMap<Place, Window> {
    let promised = |place: &Place| place.base.is_none() && place.end() <= floor;
    let mut places = places.to_vec();
    places.sort_unstable_by_key(|place| (place.base, promised(place), place.k));
    let mut windows = HashMap::new();
    let mut rest = &places[..];
    while let Some(first) = rest.first() {
        let limit = u64::from(first.k) + WINDOW;
        let together = |place: &&Place| {
            place.base == first.base && promised(place) == promised(first) && place.end() <= limit
        };
        // A field that does not fit is left for a later window, with all fields after it.
        let count = rest.iter().take_while(together).count();
        let (fields, others) = rest.split_at(count);
        let ends = || fields.iter().map(|place| place.end());
        let end = ends().max().unwrap_or(limit).max(WINDOW);
        let least_end = ends().min().unwrap_or(limit);
        let window = Window {
            base: first.base,
            k: (end - WINDOW) as u32,
            least_end,
        };
        windows.extend(fields.iter().map(|place| (*place, window)));
        rest = others;
    }
    windows
}

/// The result of a node for each packet.
#[derive(Clone, Copy)]
enum Truth {
    No,
    Yes,
    /// All ones in the lanes where the result is true.
    Where(Value),
    /// All ones in the lanes where the result is false.
    WhereNot(Value),
}

impl Truth {
    fn not(self) -> Self {
        match self {
            Self::No => Self::Yes,
            Self::Yes => Self::No,
            Self::Where(mask) => Self::WhereNot(mask),
            Self::WhereNot(mask) => Self::Where(mask),
        }
    }
}

/// The outcome of a node.
#[derive(Clone, Copy)]
struct Outcome {
    matched: Truth,
    /// Lanes in which `matched` is unsure.
    torn: Truth,
}

struct Lanes<'a, 'b> {
    decision: &'a Decision,
    builder: &'a mut FunctionBuilder<'b>,
    group: Group,
    constants: &'a mut Constants,
    /// Address of the constants.
    table: Value,
    /// Address of each packet's first byte.
    data: [Value; 4],
    /// Captured lengths, at least the floor.
    len: Value,
    floor: u64,
    windows: HashMap<Place, Window>,
    network: HashMap<ValueId, Value>,
    fetched: HashMap<Window, Value>,
    captured: HashMap<(Option<ValueId>, u64), Value>,
    outcomes: Vec<Option<Outcome>>,
}

impl Lanes<'_, '_> {
    /// Point 1 of the module's list. Returns the lanes whose packets are long enough.
    fn guard(&mut self) -> Option<Value> {
        if self.floor == 0 {
            return None;
        }
        let floor = self.constant(self.floor as u32);
        let len = self.len;
        self.len = self.builder.ins().umax(len, floor);
        let zeroes = self
            .builder
            .ins()
            .iconst(types::I64, ZEROES.as_ptr() as i64);
        for lane in 0..4 {
            let len = self.group.len(self.builder, lane);
            let enough = emit::has_bytes(self.builder, len, self.floor);
            self.data[lane] = self.builder.ins().select(enough, self.data[lane], zeroes);
        }
        Some(self.builder.ins().icmp(IntCC::Equal, self.len, len))
    }

    fn root(&mut self) -> Outcome {
        let decision = self.decision;
        let needed = decision.reachable();
        for (index, node) in decision.nodes().iter().enumerate() {
            if needed[index] {
                self.outcomes[index] = Some(self.evaluate(*node));
            }
        }
        self.outcome(decision.root())
    }

    fn outcome(&self, id: NodeId) -> Outcome {
        self.outcomes[id.0 as usize].expect("successors come first")
    }

    fn evaluate(&mut self, node: Node) -> Outcome {
        match node {
            Node::Return(0) => Outcome {
                matched: Truth::No,
                torn: Truth::No,
            },
            Node::Return(_) => Outcome {
                matched: Truth::Yes,
                torn: Truth::No,
            },
            Node::ReturnValue(value) => {
                let zero = self.constant(0);
                let value = self.network(value);
                let is_zero = self.builder.ins().icmp(IntCC::Equal, value, zero);
                Outcome {
                    matched: Truth::WhereNot(is_zero),
                    torn: Truth::No,
                }
            }
            Node::InSet { yes, no, .. } => self.in_set(node, yes, no),
            Node::Test {
                relation,
                a,
                b,
                yes,
                no,
            } => {
                let holds = self.test(relation, a, b);
                self.branch(holds, yes, no)
            }
            Node::Captured { place, next } => {
                let next = self.outcome(next);
                let Some(captured) = self.captured(place.base, place.end()) else {
                    return next;
                };
                let torn = self.torn(self.windows[&place]);
                Outcome {
                    matched: self.and(Truth::Where(captured), next.matched),
                    torn: self.or(torn, next.torn),
                }
            }
        }
    }

    /// The outcome of a node with two successors.
    fn branch(&mut self, holds: Truth, yes: NodeId, no: NodeId) -> Outcome {
        let (yes, no) = (self.outcome(yes), self.outcome(no));
        let torn = match (yes.torn, no.torn) {
            (Truth::No, Truth::No) => Truth::No,
            (yes, no) => self.choose(holds, yes, no),
        };
        Outcome {
            matched: self.choose(holds, yes.matched, no.matched),
            torn,
        }
    }

    /// The outcome of a test of a set. The code for one packet judges what was not looked up, and what ends within an IPv6 address.
    fn in_set(&mut self, node: Node, yes: NodeId, no: NodeId) -> Outcome {
        let Some((number, lookup)) = self.decision.lookup(&node) else {
            return Outcome {
                matched: Truth::No,
                torn: Truth::Yes,
            };
        };
        let holds = self.is_member(number);
        let mut outcome = self.branch(holds, yes, no);
        if lookup.address == Address::V6
            && let Some(captured) = self.captured(None, lookup.end())
        {
            outcome.torn = self.or(outcome.torn, Truth::WhereNot(captured));
        }
        outcome
    }

    /// The lanes whose address is in the set of a lookup.
    fn is_member(&mut self, lookup: usize) -> Truth {
        let mut bit_of_lane = [0; 16];
        for (lane, bit) in bit_of_lane.chunks_exact_mut(4).enumerate() {
            bit.copy_from_slice(&(1u32 << lane).to_ne_bytes());
        }
        let members = self.group.members(self.builder, lookup);
        let members = self.builder.ins().splat(types::I32X4, members);
        let bits = self.vector(bit_of_lane);
        let here = self.builder.ins().band(members, bits);
        Truth::Where(self.builder.ins().icmp(IntCC::Equal, here, bits))
    }

    /// Point 4 of the module's list: the lanes whose packet ends within a window, after its first
    /// field.
    fn torn(&mut self, window: Window) -> Truth {
        if window.least_end >= window.end() {
            return Truth::No;
        }
        match (
            self.captured(window.base, window.least_end),
            self.captured(window.base, window.end()),
        ) {
            (Some(least), Some(all)) => self.and(Truth::Where(least), Truth::WhereNot(all)),
            _ => Truth::No,
        }
    }

    fn choose(&mut self, condition: Truth, yes: Truth, no: Truth) -> Truth {
        match (yes, no) {
            (Truth::Yes, _) => self.or(condition, no),
            (_, Truth::No) => self.and(condition, yes),
            (Truth::No, _) => self.and(condition.not(), no),
            (_, Truth::Yes) => self.or(condition.not(), yes),
            _ => match condition {
                Truth::Yes => yes,
                Truth::No => no,
                Truth::Where(mask) => self.blend(mask, yes, no),
                Truth::WhereNot(mask) => self.blend(mask, no, yes),
            },
        }
    }

    fn blend(&mut self, mask: Value, yes: Truth, no: Truth) -> Truth {
        if let (Truth::WhereNot(yes), Truth::WhereNot(no)) = (yes, no) {
            return Truth::WhereNot(self.builder.ins().bitselect(mask, yes, no));
        }
        let (yes, no) = (self.mask(yes), self.mask(no));
        Truth::Where(self.builder.ins().bitselect(mask, yes, no))
    }

    fn and(&mut self, a: Truth, b: Truth) -> Truth {
        match (a, b) {
            (Truth::No, _) | (_, Truth::No) => Truth::No,
            (Truth::Yes, other) | (other, Truth::Yes) => other,
            (Truth::Where(a), Truth::Where(b)) => Truth::Where(self.builder.ins().band(a, b)),
            (Truth::Where(yes), Truth::WhereNot(no)) | (Truth::WhereNot(no), Truth::Where(yes)) => {
                Truth::Where(self.builder.ins().band_not(yes, no))
            }
            (Truth::WhereNot(a), Truth::WhereNot(b)) => {
                Truth::WhereNot(self.builder.ins().bor(a, b))
            }
        }
    }

    fn or(&mut self, a: Truth, b: Truth) -> Truth {
        self.and(a.not(), b.not()).not()
    }

    fn mask(&mut self, truth: Truth) -> Value {
        match truth {
            Truth::No => self.constant(0),
            Truth::Yes => self.constant(u32::MAX),
            Truth::Where(mask) => mask,
            Truth::WhereNot(mask) => self.builder.ins().bnot(mask),
        }
    }

    /// Converts a result to one bit per lane.
    fn bits(&mut self, truth: Truth) -> Value {
        let mask = self.mask(truth);
        let bits = self.builder.ins().vhigh_bits(types::I32, mask);
        self.builder.ins().uextend(types::I64, bits)
    }

    /// Emits a test. Against a constant, the bytes are compared as they lie in their window, and the constant is moved instead.
    fn test(&mut self, relation: Relation, a: ValueId, b: ValueId) -> Truth {
        if let Some(b) = self.decision.constant(b)
            && let Some((place, mask)) = self.masked_load(a)
            && let Some(truth) = self.test_in_window(relation, place, mask, b)
        {
            return truth;
        }
        let (a, b) = (self.network(a), self.network(b));
        let code = match relation {
            Relation::Equal => IntCC::Equal,
            Relation::Greater => IntCC::UnsignedGreaterThan,
            Relation::GreaterEqual => IntCC::UnsignedGreaterThanOrEqual,
            Relation::AnyBit => {
                let both = self.builder.ins().band(a, b);
                let zero = self.constant(0);
                return Truth::WhereNot(self.builder.ins().icmp(IntCC::Equal, both, zero));
            }
        };
        Truth::Where(self.builder.ins().icmp(code, a, b))
    }

    /// Splits a value into `load & mask`, if it has that form.
    fn masked_load(&self, id: ValueId) -> Option<(Place, u32)> {
        match self.decision.term(id) {
            Term::Load(place) => Some((place, u32::MAX)),
            Term::Alu(Alu::And, load, mask) => {
                match (self.decision.term(load), self.decision.constant(mask)) {
                    (Term::Load(place), Some(mask)) => Some((place, mask)),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    fn test_in_window(
        &mut self,
        relation: Relation,
        place: Place,
        mask: u32,
        b: u32,
    ) -> Option<Truth> {
        let width = u32::MAX >> (32 - 8 * u32::from(place.size));
        let (mask, value, truth): (u32, u32, fn(Value) -> Truth) = match relation {
            Relation::Equal if b & !(mask & width) != 0 => return Some(Truth::No),
            Relation::Equal => (mask & width, b, Truth::Where),
            Relation::AnyBit => (mask & width & b, 0, Truth::WhereNot),
            _ => return None,
        };
        let window = self.windows[&place];
        let mut bytes = self.fetch(window);
        let mask = in_window(place, window, mask);
        if mask != u32::MAX {
            let mask = self.constant(mask);
            bytes = self.builder.ins().band(bytes, mask);
        }
        let value = self.constant(in_window(place, window, value));
        Some(truth(self.builder.ins().icmp(IntCC::Equal, bytes, value)))
    }

    /// A value in the byte order of the program.
    fn network(&mut self, id: ValueId) -> Value {
        if let Some(&value) = self.network.get(&id) {
            return value;
        }
        let value = match self.decision.term(id) {
            Term::Constant(value) => self.constant(value),
            Term::WireLength => self.group.wire_lens(self.builder),
            Term::Load(place) => self.field(place),
            Term::Alu(alu, a, b) => self.alu(alu, a, b),
        };
        self.network.insert(id, value);
        value
    }

    /// A field, moved from its window to the low bytes and into the machine's byte order by one shuffle.
    fn field(&mut self, place: Place) -> Value {
        let window = self.windows[&place];
        let bytes = self.fetch(window);
        let first = (place.k - window.k) as u8;
        let mut order = [0x80u8; 16];
        for lane in 0..4 {
            for byte in 0..place.size {
                // Network order: the last byte of the field is the least significant.
                order[usize::from(4 * lane + byte)] = 4 * lane + first + place.size - 1 - byte;
            }
        }
        let order = self.vector(order);
        let order = self
            .builder
            .ins()
            .bitcast(types::I8X16, lane_order(), order);
        let bytes = self
            .builder
            .ins()
            .bitcast(types::I8X16, lane_order(), bytes);
        let moved = if cfg!(target_arch = "x86_64") {
            self.builder.ins().x86_pshufb(bytes, order)
        } else {
            self.builder.ins().swizzle(bytes, order)
        };
        self.builder
            .ins()
            .bitcast(types::I32X4, lane_order(), moved)
    }

    fn alu(&mut self, alu: Alu, a: ValueId, b: ValueId) -> Value {
        let known_b = self.decision.constant(b);
        let a = self.network(a);
        if let (Alu::Shl | Alu::Shr, Some(count @ 0..32)) = (alu, known_b) {
            let count = self.builder.ins().iconst(types::I32, i64::from(count));
            return match alu {
                Alu::Shl => self.builder.ins().ishl(a, count),
                _ => self.builder.ins().ushr(a, count),
            };
        }
        let b = self.network(b);
        match alu {
            Alu::Add | Alu::Sub | Alu::Mul | Alu::Or | Alu::And | Alu::Xor => {
                emit::alu(self.builder, alu, a, b, None)
            }
            Alu::Div | Alu::Mod | Alu::Shl | Alu::Shr => self.lane_by_lane(alu, a, b),
        }
    }

    /// Operations that vectors have no instruction for. Zero divisors become one, because such a packet does not match anyway.
    fn lane_by_lane(&mut self, alu: Alu, a: Value, b: Value) -> Value {
        let results: [Value; 4] = std::array::from_fn(|lane| {
            let a = self.builder.ins().extractlane(a, lane as u8);
            let mut b = self.builder.ins().extractlane(b, lane as u8);
            if matches!(alu, Alu::Div | Alu::Mod) {
                let one = self.builder.ins().iconst(types::I32, 1);
                b = self.builder.ins().umax(b, one);
            }
            emit::alu(self.builder, alu, a, b, None)
        });
        let [first, others @ ..] = results;
        let mut vector = self.builder.ins().scalar_to_vector(types::I32X4, first);
        for (lane, result) in (1..).zip(others) {
            vector = self.builder.ins().insertlane(vector, result, lane);
        }
        vector
    }

    /// Lanes whose packet has `end` captured bytes from `base` on; `None` if the floor guarantees this in all lanes.
    fn captured(&mut self, base: Option<ValueId>, end: u64) -> Option<Value> {
        if base.is_none() && end <= self.floor {
            return None;
        }
        if let Some(&mask) = self.captured.get(&(base, end)) {
            return Some(mask);
        }
        // A place beyond 32 bits is beyond any packet; `end` itself stays representable so that nothing wraps.
        let within = u32::try_from(end).unwrap_or(u32::MAX);
        let end_lanes = self.constant(within);
        let reaches =
            self.builder
                .ins()
                .icmp(IntCC::UnsignedGreaterThanOrEqual, self.len, end_lanes);
        let mask = match base {
            None => reaches,
            Some(base) => {
                let base = self.network(base);
                let room = self.builder.ins().isub(self.len, end_lanes);
                let fits = self
                    .builder
                    .ins()
                    .icmp(IntCC::UnsignedLessThanOrEqual, base, room);
                if end <= self.floor {
                    fits
                } else {
                    self.builder.ins().band(fits, reaches)
                }
            }
        };
        self.captured.insert((base, end), mask);
        Some(mask)
    }

    /// The bytes of a window of each packet.
    fn fetch(&mut self, window: Window) -> Value {
        if let Some(&bytes) = self.fetched.get(&window) {
            return bytes;
        }
        let places = match self.captured(window.base, window.end()) {
            None => self.data.map(|data| (data, window.k as i32)),
            Some(captured) => self.guarded(window, captured),
        };
        let flags = emit::packet_flags().with_can_move();
        let bytes = gather(self.builder, flags, places);
        self.fetched.insert(window, bytes);
        bytes
    }

    /// Point 3 of the module's list: the address of a window in each packet, or the packet's start.
    fn guarded(&mut self, window: Window, captured: Value) -> [(Value, i32); 4] {
        let (mut at, mut offset) = (self.constant(0), 0);
        if let Some(base) = window.base {
            at = self.network(base);
        }
        if window.end() <= self.floor {
            offset = window.k as i32;
        } else {
            let k = self.constant(window.k);
            at = self.builder.ins().iadd(at, k);
        }
        let at = self.builder.ins().band(at, captured);
        let at = self.extract(at);
        std::array::from_fn(|lane| (self.builder.ins().iadd(self.data[lane], at[lane]), offset))
    }

    /// The lanes as 64-bit numbers, extracted in pairs because that takes fewer instructions.
    fn extract(&mut self, vector: Value) -> [Value; 4] {
        let pairs = self
            .builder
            .ins()
            .bitcast(types::I64X2, lane_order(), vector);
        let mut lanes = [pairs; 4];
        for half in 0..2 {
            let pair = self.builder.ins().extractlane(pairs, half as u8);
            let low = self.builder.ins().ireduce(types::I32, pair);
            lanes[2 * half] = self.builder.ins().uextend(types::I64, low);
            lanes[2 * half + 1] = self.builder.ins().ushr_imm_u(pair, 32);
        }
        lanes
    }

    /// The same number in each lane.
    fn constant(&mut self, value: u32) -> Value {
        let lane = value.to_ne_bytes();
        self.vector(std::array::from_fn(|index| lane[index % 4]))
    }

    fn vector(&mut self, bytes: [u8; 16]) -> Value {
        let flags = MemFlagsData::trusted().with_readonly().with_can_move();
        let offset = self.constants.offset(bytes);
        self.builder
            .ins()
            .load(types::I32X4, flags, self.table, offset)
    }
}

/// Four 32-bit words from memory as a vector. All but the first are loaded as floats, because only floats go from memory into
/// a lane in one instruction; their bits stay unchanged.
pub(super) fn gather(
    builder: &mut FunctionBuilder<'_>,
    flags: MemFlagsData,
    places: [(Value, i32); 4],
) -> Value {
    let [first, others @ ..] = places;
    let word = builder.ins().load(types::I32, flags, first.0, first.1);
    let vector = builder.ins().scalar_to_vector(types::I32X4, word);
    let mut vector = builder.ins().bitcast(types::F32X4, lane_order(), vector);
    for (lane, (address, offset)) in (1..).zip(others) {
        let word = builder.ins().load(types::F32, flags, address, offset);
        vector = builder.ins().insertlane(vector, word, lane);
    }
    builder.ins().bitcast(types::I32X4, lane_order(), vector)
}

/// Order of lanes and bytes when a vector is reinterpreted as another type.
fn lane_order() -> MemFlagsData {
    MemFlagsData::new().with_endianness(Endianness::Little)
}

/// A number of a field, moved to the place of the field's bytes in its window when that is loaded as a little-endian word.
fn in_window(place: Place, window: Window, value: u32) -> u32 {
    let bytes = value.to_be_bytes();
    let field = &bytes[4 - usize::from(place.size)..];
    let first = (place.k - window.k) as usize;
    let mut word = [0; 4];
    word[first..first + field.len()].copy_from_slice(field);
    u32::from_le_bytes(word)
}
