//! Values that a packet determines, each with one number, and the rules by which equal values become one.
//!
//! Each rule is an equation over 32-bit words. `scripts/rules.py` shows each by an SMT solver; random programs compare the
//! outcome with the interpreter.

use std::collections::HashMap;
use std::hash::Hash;

use crate::program::{ANCILLARY, Alu, Relation};

/// Largest depth of a term. Terms are walked by recursion.
const MAX_DEPTH: u16 = 200;

/// Index into [`Values`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ValueId(pub(crate) u32);

/// The constant 0 of every list.
pub(crate) const ZERO: ValueId = ValueId(0);

/// A 32-bit value that the packet determines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Term {
    Constant(u32),
    /// Length on the wire.
    WireLength,
    /// Bytes in network order.
    Load(Place),
    Alu(Alu, ValueId, ValueId),
}

/// A field of the packet: `size` bytes at `base + k`, where the sum does not wrap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub(crate) base: Option<ValueId>,
    pub(crate) k: u32,
    pub(crate) size: u8,
}

impl Place {
    /// Offset after the last byte, without the base.
    pub(crate) fn end(self) -> u64 {
        u64::from(self.k) + u64::from(self.size)
    }

    /// Whether the kernel gives a fact in place of bytes, so that the load tells nothing of the packet's length.
    pub(crate) fn is_ancillary(self) -> bool {
        self.base.is_none() && self.k >= ANCILLARY
    }

    /// Whether a packet that has this field also has the other.
    pub(crate) fn covers(self, other: Self) -> bool {
        self == other
            || self.base == other.base
                && self.end() >= other.end()
                && !self.is_ancillary()
                && !other.is_ancillary()
    }
}

/// A comparison in its simplest form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decided {
    Known(bool),
    /// The opposite of the test's outcome if `negated`.
    Test {
        relation: Relation,
        a: ValueId,
        b: ValueId,
        negated: bool,
    },
}

/// A list without equal elements.
#[derive(Clone, Debug)]
pub(super) struct Interner<T> {
    pub(super) list: Vec<T>,
    index: HashMap<T, u32>,
}

impl<T> Default for Interner<T> {
    fn default() -> Self {
        Self {
            list: Vec::new(),
            index: HashMap::new(),
        }
    }
}

impl<T: Copy + Eq + Hash> Interner<T> {
    pub(super) fn intern(&mut self, item: T) -> u32 {
        *self.index.entry(item).or_insert_with(|| {
            self.list.push(item);
            (self.list.len() - 1) as u32
        })
    }
}

/// All values of a graph.
#[derive(Clone, Debug)]
pub(crate) struct Values {
    terms: Interner<Term>,
    depths: Vec<u16>,
}

impl Default for Values {
    fn default() -> Self {
        let mut values = Self {
            terms: Interner::default(),
            depths: Vec::new(),
        };
        values.number(0);
        values
    }
}

impl Values {
    pub(crate) fn term(&self, id: ValueId) -> Term {
        self.terms.list[id.0 as usize]
    }

    pub(crate) fn constant(&self, id: ValueId) -> Option<u32> {
        match self.term(id) {
            Term::Constant(value) => Some(value),
            _ => None,
        }
    }

    /// Every place that is loaded.
    pub(crate) fn places(&self) -> impl Iterator<Item = Place> {
        let place = |term: &Term| {
            if let Term::Load(place) = term {
                Some(*place)
            } else {
                None
            }
        };
        self.terms.list.iter().filter_map(place)
    }

    /// The value of a term that is in the list.
    pub(crate) fn find(&self, term: Term) -> Option<ValueId> {
        self.terms.index.get(&term).map(|&id| ValueId(id))
    }

    /// The value of a term; `None` if it is too deep.
    pub(crate) fn intern(&mut self, term: Term) -> Option<ValueId> {
        let depth = |id: ValueId| self.depths[id.0 as usize];
        let depth = match term {
            Term::Constant(_) | Term::WireLength | Term::Load(Place { base: None, .. }) => 0,
            Term::Load(Place {
                base: Some(base), ..
            }) => depth(base) + 1,
            Term::Alu(_, a, b) => depth(a).max(depth(b)) + 1,
        };
        if depth > MAX_DEPTH {
            return None;
        }
        Some(self.add(term, depth))
    }

    fn add(&mut self, term: Term, depth: u16) -> ValueId {
        let id = self.terms.intern(term);
        if id as usize == self.depths.len() {
            self.depths.push(depth);
        }
        ValueId(id)
    }

    pub(crate) fn number(&mut self, value: u32) -> ValueId {
        self.add(Term::Constant(value), 0)
    }

    /// Four times the lower half of a byte.
    pub(crate) fn header_length(&mut self, byte: ValueId) -> Option<ValueId> {
        let (mask, two) = (self.number(0xf), self.number(2));
        let low = self.alu(Alu::And, byte, mask)?;
        self.alu(Alu::Shl, low, two)
    }

    /// The byte of a header length.
    pub(crate) fn as_header_length(&self, id: ValueId) -> Option<Place> {
        let Term::Alu(Alu::Shl, low, two) = self.term(id) else {
            return None;
        };
        let Term::Alu(Alu::And, byte, mask) = self.term(low) else {
            return None;
        };
        match (self.constant(two), self.constant(mask), self.term(byte)) {
            (
                Some(2),
                Some(0xf),
                Term::Load(
                    place @ Place {
                        base: None,
                        size: 1,
                        ..
                    },
                ),
            ) => Some(place),
            _ => None,
        }
    }

    /// The base and offset of the place `base + k` with as much as possible in the offset: (v + m) + k = v + (m + k) if v + m does
    /// not wrap.
    pub(crate) fn shifted(&self, base: ValueId, k: u32) -> (ValueId, u32) {
        if let Term::Alu(Alu::Add, inner, offset) = self.term(base)
            && let Some(offset) = self.constant(offset)
            && let Some(sum) = offset.checked_add(k)
            && self.greatest(inner, 8).checked_add(offset).is_some()
        {
            return self.shifted(inner, sum);
        }
        (base, k)
    }

    /// Bound of a value by its form.
    fn greatest(&self, id: ValueId, depth: u32) -> u32 {
        match self.term(id) {
            Term::Constant(k) => k,
            Term::WireLength => u32::MAX,
            Term::Load(place) => u32::MAX >> (32 - 8 * u32::from(place.size)),
            Term::Alu(..) if depth == 0 => u32::MAX,
            Term::Alu(alu, a, b) => {
                let a = self.greatest(a, depth - 1);
                match (alu, self.constant(b)) {
                    (Alu::And, Some(k)) => a.min(k),
                    (Alu::Add, Some(k)) => a.saturating_add(k),
                    (Alu::Shl, Some(k)) if k < 32 && a << k >> k == a => a << k,
                    (Alu::Shr, Some(k)) => a.checked_shr(k).unwrap_or(0),
                    _ => u32::MAX,
                }
            }
        }
    }

    /// The result of an operation; its divisor is not zero. `None` if it is too deep.
    pub(crate) fn alu(&mut self, alu: Alu, a: ValueId, b: ValueId) -> Option<ValueId> {
        let (known_a, known_b) = (self.constant(a), self.constant(b));
        if let (Some(a), Some(b)) = (known_a, known_b)
            && let Some(value) = alu.apply(a, b)
        {
            return Some(self.number(value));
        }
        // Constants stand on the right: a + b = b + a.
        let commutes = matches!(alu, Alu::Add | Alu::Mul | Alu::Or | Alu::And | Alu::Xor);
        if commutes && known_a.is_some() {
            return self.alu(alu, b, a);
        }
        let Some(k) = known_b else {
            return self.intern(Term::Alu(alu, a, b));
        };
        let neutral = match alu {
            Alu::Add | Alu::Sub | Alu::Or | Alu::Xor | Alu::Shl | Alu::Shr => Some(0),
            Alu::Mul | Alu::Div => Some(1),
            Alu::And => Some(u32::MAX),
            Alu::Mod => None,
        };
        if neutral == Some(k) {
            return Some(a);
        }
        // a * 0 = a & 0 = 0, a % 1 = 0, and a shift by 32 or more leaves 0.
        let nothing = match alu {
            Alu::Mul | Alu::And => k == 0,
            Alu::Mod => k == 1,
            Alu::Shl | Alu::Shr => k >= 32,
            Alu::Add | Alu::Sub | Alu::Or | Alu::Xor | Alu::Div => false,
        };
        if nothing {
            return Some(ZERO);
        }
        // (v & m) & k = v & (m & k)
        if alu == Alu::And
            && let Term::Alu(Alu::And, inner, mask) = self.term(a)
            && let Some(mask) = self.constant(mask)
        {
            let both = self.number(mask & k);
            return self.alu(Alu::And, inner, both);
        }
        self.intern(Term::Alu(alu, a, b))
    }

    /// The simplest form of a comparison.
    pub(crate) fn test(&mut self, relation: Relation, a: ValueId, b: ValueId) -> Decided {
        use Relation::{AnyBit, Equal, Greater, GreaterEqual};
        if let (Some(a), Some(b)) = (self.constant(a), self.constant(b)) {
            return Decided::Known(relation.holds(a, b));
        }
        if a == b && relation != AnyBit {
            return Decided::Known(relation != Greater);
        }
        let test = |relation, a, b, negated| Decided::Test {
            relation,
            a,
            b,
            negated,
        };
        match (relation, self.constant(a), self.constant(b)) {
            // Constants stand on the right: k > b is not b >= k, and k >= b is not b > k.
            (Equal | AnyBit, Some(_), _) => self.test(relation, b, a),
            (Greater, Some(_), _) => test(GreaterEqual, b, a, true),
            (GreaterEqual, Some(_), _) => test(Greater, b, a, true),
            (Equal, _, Some(k)) => self.equal(a, b, k),
            (AnyBit, _, Some(k)) => self.any_bit(a, k),
            _ => test(relation, a, b, false),
        }
    }

    /// `a = k`, where `k` is the constant `b`.
    fn equal(&mut self, a: ValueId, b: ValueId, k: u32) -> Decided {
        let as_it_is = Decided::Test {
            relation: Relation::Equal,
            a,
            b,
            negated: false,
        };
        let Term::Alu(alu, left, right) = self.term(a) else {
            return as_it_is;
        };
        match (alu, self.constant(left), self.constant(right)) {
            // v - w = 0 if v = w.
            (Alu::Sub, _, None) if k == 0 => self.test(Relation::Equal, left, right),
            // v + m = k if v = k - m, and so on: both sides wrap.
            (Alu::Add | Alu::Sub | Alu::Xor, _, Some(m)) => {
                let value = match alu {
                    Alu::Add => k.wrapping_sub(m),
                    Alu::Sub => k.wrapping_add(m),
                    _ => k ^ m,
                };
                let value = self.number(value);
                self.test(Relation::Equal, left, value)
            }
            // v & m = k never holds if k has a bit outside of m.
            (Alu::And, _, Some(m)) if k & !m != 0 => Decided::Known(false),
            // v & m = 0 if no bit of m is set in v; v & m = m if it is, and m is one bit.
            (Alu::And, _, Some(m)) if k == 0 || k == m && m.is_power_of_two() => {
                match self.any_bit(left, m) {
                    Decided::Known(any) => Decided::Known(any == (k != 0)),
                    Decided::Test {
                        relation,
                        a,
                        b,
                        negated,
                    } => Decided::Test {
                        relation,
                        a,
                        b,
                        negated: negated == (k != 0),
                    },
                }
            }
            _ => as_it_is,
        }
    }

    /// Whether `a` has a bit of `k`.
    fn any_bit(&mut self, a: ValueId, k: u32) -> Decided {
        if k == 0 {
            return Decided::Known(false);
        }
        // (v & m) & k = v & (m & k)
        if let Term::Alu(Alu::And, inner, mask) = self.term(a)
            && let Some(mask) = self.constant(mask)
        {
            return self.any_bit(inner, mask & k);
        }
        let b = self.number(k);
        Decided::Test {
            relation: Relation::AnyBit,
            a,
            b,
            negated: false,
        }
    }
}
