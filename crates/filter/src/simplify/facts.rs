//! Facts about a packet that hold whenever a node of the graph is reached.

use crate::graph::{Place, Term, ValueId, Values};
use crate::program::{Alu, Relation};

/// Values of which something is known, besides what their form tells. The oldest are forgotten first.
const MAX_VALUES: usize = 24;
/// Comparisons that are remembered although they tell no numbers.
const MAX_TESTS: usize = 8;
/// Bases after which bytes are known to be captured.
const MAX_BASES: usize = 8;
/// Depth to which the form of a value is checked.
const MAX_FORM: u32 = 4;

/// A few numbers, in no order.
#[derive(Clone, Copy, Debug)]
struct Few {
    count: u8,
    numbers: [u32; 8],
}

impl Few {
    const NONE: Self = Self {
        count: 0,
        numbers: [0; 8],
    };

    fn as_slice(&self) -> &[u32] {
        &self.numbers[..usize::from(self.count)]
    }

    fn has(&self, number: u32) -> bool {
        self.as_slice().contains(&number)
    }

    /// Adds a number; `false` if there is no room.
    fn add(&mut self, number: u32) -> bool {
        if self.has(number) {
            return true;
        }
        let Some(place) = self.numbers.get_mut(usize::from(self.count)) else {
            return false;
        };
        *place = number;
        self.count += 1;
        true
    }

    fn filtered(&self, keep: impl Fn(u32) -> bool) -> Self {
        let mut kept = Self::NONE;
        for &number in self.as_slice() {
            if keep(number) {
                kept.add(number);
            }
        }
        kept
    }
}

/// Possible numbers of a value. Each part holds by itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Domain {
    least: u32,
    greatest: u32,
    /// Bits that are 0, and bits that are 1.
    clear: u32,
    set: u32,
    /// The only possible numbers if `listed`, else numbers that are impossible.
    few: Few,
    listed: bool,
}

impl Domain {
    const ANY: Self = Self {
        least: 0,
        greatest: u32::MAX,
        clear: 0,
        set: 0,
        few: Few::NONE,
        listed: false,
    };

    fn only(number: u32) -> Self {
        let mut few = Few::NONE;
        few.add(number);
        Self {
            least: number,
            greatest: number,
            clear: !number,
            set: number,
            few,
            listed: true,
        }
    }

    fn up_to(greatest: u32) -> Self {
        let used = u32::MAX.checked_shr(greatest.leading_zeros()).unwrap_or(0);
        Self {
            greatest,
            clear: !used,
            ..Self::ANY
        }
    }

    /// The number that the value is, if only one is possible.
    fn single(&self) -> Option<u32> {
        match self.few.as_slice() {
            [number] if self.listed => Some(*number),
            _ => (self.least == self.greatest).then_some(self.least),
        }
    }

    fn may_be(&self, number: u32) -> bool {
        number >= self.least
            && number <= self.greatest
            && number & self.clear == 0
            && !number & self.set == 0
            && self.few.has(number) == self.listed
    }

    /// Numbers that are possible under both; nothing consistent if the two contradict each other.
    fn and(self, other: Self) -> Self {
        let mut both = Self {
            least: self.least.max(other.least),
            greatest: self.greatest.min(other.greatest),
            clear: self.clear | other.clear,
            set: self.set | other.set,
            ..self
        };
        match (self.listed, other.listed) {
            (true, _) => both.few = self.few.filtered(|number| other.may_be(number)),
            (false, true) => {
                both.few = other.few.filtered(|number| self.may_be(number));
                both.listed = true;
            }
            (false, false) => {
                for &number in other.few.as_slice() {
                    // An impossible number that finds no room is forgotten.
                    let _ = both.few.add(number);
                }
            }
        }
        both.tidy();
        both
    }

    /// Numbers that are possible under one or the other.
    fn or(self, other: Self) -> Self {
        let mut either = Self {
            least: self.least.min(other.least),
            greatest: self.greatest.max(other.greatest),
            clear: self.clear & other.clear,
            set: self.set & other.set,
            few: Few::NONE,
            listed: false,
        };
        if self.listed && other.listed {
            let mut few = self.few;
            if other.few.as_slice().iter().all(|&number| few.add(number)) {
                either.few = few;
                either.listed = true;
            }
            return either;
        }
        // Numbers that are impossible under both.
        for (one, another) in [(self, other), (other, self)] {
            if !one.listed {
                for &number in one.few.as_slice() {
                    if !another.may_be(number) {
                        let _ = either.few.add(number);
                    }
                }
            }
        }
        either
    }

    /// Draws simple conclusions between the parts.
    fn tidy(&mut self) {
        self.least = self.least.max(self.set);
        self.greatest = self.greatest.min(!self.clear);
        if self.listed {
            let all = *self;
            self.few = self.few.filtered(|number| all.may_be(number));
            if let (Some(&least), Some(&greatest)) = (
                self.few.as_slice().iter().min(),
                self.few.as_slice().iter().max(),
            ) {
                self.least = self.least.max(least);
                self.greatest = self.greatest.min(greatest);
            }
        } else {
            while self.least < self.greatest && self.few.has(self.least) {
                self.least += 1;
            }
            while self.greatest > self.least && self.few.has(self.greatest) {
                self.greatest -= 1;
            }
        }
    }

    /// Possible numbers if a comparison with `k` has an outcome.
    fn compared(mut self, relation: Relation, k: u32, holds: bool) -> Self {
        match (relation, holds) {
            (Relation::Equal, true) => return self.and(Self::only(k)),
            (Relation::Equal, false) if self.listed => {
                self.few = self.few.filtered(|number| number != k)
            }
            (Relation::Equal, false) => {
                if !self.few.add(k) {
                    // The oldest is forgotten.
                    self.few.numbers.rotate_left(1);
                    self.few.numbers[usize::from(self.few.count) - 1] = k;
                }
            }
            (Relation::Greater, true) => self.least = self.least.max(k.saturating_add(1)),
            (Relation::Greater, false) => self.greatest = self.greatest.min(k),
            (Relation::GreaterEqual, true) => self.least = self.least.max(k),
            (Relation::GreaterEqual, false) => {
                self.greatest = self.greatest.min(k.saturating_sub(1))
            }
            (Relation::AnyBit, true) if k.is_power_of_two() => self.set |= k,
            (Relation::AnyBit, true) => return self.compared(Relation::Equal, 0, false),
            (Relation::AnyBit, false) => self.clear |= k,
        }
        self.tidy();
        self
    }

    /// The outcome of a comparison with another value, if it is certain.
    fn decide(&self, relation: Relation, other: &Self) -> Option<bool> {
        if self.listed && other.listed {
            let pairs = || {
                self.few
                    .as_slice()
                    .iter()
                    .flat_map(|a| other.few.as_slice().iter().map(move |b| (*a, *b)))
            };
            let mut outcomes = pairs().map(|(a, b)| relation.holds(a, b));
            let first = outcomes.next()?;
            return outcomes.all(|outcome| outcome == first).then_some(first);
        }
        match relation {
            Relation::Equal => {
                let apart = self.least > other.greatest
                    || other.least > self.greatest
                    || self.set & other.clear != 0
                    || self.clear & other.set != 0
                    || other.single().is_some_and(|k| !self.may_be(k))
                    || self.single().is_some_and(|k| !other.may_be(k));
                apart.then_some(false)
            }
            Relation::Greater if self.least > other.greatest => Some(true),
            Relation::Greater if self.greatest <= other.least => Some(false),
            Relation::GreaterEqual if self.least >= other.greatest => Some(true),
            Relation::GreaterEqual if self.greatest < other.least => Some(false),
            Relation::Greater | Relation::GreaterEqual => None,
            Relation::AnyBit if self.set & other.set != 0 => Some(true),
            Relation::AnyBit if !self.clear & !other.clear == 0 => Some(false),
            Relation::AnyBit => None,
        }
    }
}

/// Facts that hold on every path to a node.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    /// Captured bytes, at least.
    captured: u64,
    /// Captured bytes after a value, at least.
    behind: Vec<(ValueId, u64)>,
    domains: Vec<(ValueId, Domain)>,
    tests: Vec<(Relation, ValueId, ValueId, bool)>,
    /// Outcomes of tests whether a set has an IPv4 address.
    members: Vec<(u32, ValueId, bool)>,
}

impl Facts {
    /// Learns that a field is captured.
    pub(super) fn learn_captured(&mut self, place: Place, values: &Values) {
        if place.is_ancillary() {
            return;
        }
        let Some(base) = place.base else {
            self.captured = self.captured.max(place.end());
            return;
        };
        let least = self.domain(base, values).least;
        self.captured = self.captured.max(u64::from(least) + place.end());
        match self.behind.iter_mut().find(|(known, _)| *known == base) {
            Some((_, end)) => *end = (*end).max(place.end()),
            None => {
                if self.behind.len() == MAX_BASES {
                    self.behind.remove(0);
                }
                self.behind.push((base, place.end()));
            }
        }
    }

    /// Whether a field is known to be captured.
    pub(super) fn is_captured(&self, place: Place, values: &Values) -> bool {
        if place.is_ancillary() {
            return false;
        }
        let Some(base) = place.base else {
            return place.end() <= self.captured;
        };
        self.behind
            .iter()
            .any(|&(known, end)| known == base && place.end() <= end)
            || u64::from(self.domain(base, values).greatest) + place.end() <= self.captured
    }

    /// Learns the outcome of a test.
    pub(super) fn learn(
        &mut self,
        relation: Relation,
        a: ValueId,
        b: ValueId,
        holds: bool,
        values: &Values,
    ) {
        if let Some(k) = self.domain(b, values).single() {
            let domain = self.domain(a, values).compared(relation, k, holds);
            self.domains.retain(|(known, _)| *known != a);
            if self.domains.len() == MAX_VALUES {
                self.domains.remove(0);
            }
            self.domains.push((a, domain));
        }
        // What the possible numbers do not tell is remembered as it is: an order of two values, or that some of several bits are set.
        if values.constant(b).is_none() || self.decide(relation, a, b, values) != Some(holds) {
            if self.tests.len() == MAX_TESTS {
                self.tests.remove(0);
            }
            self.tests.push((relation, a, b, holds));
        }
    }

    /// The outcome of a test, if it is certain.
    pub(super) fn decide(
        &self,
        relation: Relation,
        a: ValueId,
        b: ValueId,
        values: &Values,
    ) -> Option<bool> {
        let known = self
            .tests
            .iter()
            .find(|(known, left, right, _)| (*known, *left, *right) == (relation, a, b));
        if let Some((.., holds)) = known {
            return Some(*holds);
        }
        self.domain(a, values)
            .decide(relation, &self.domain(b, values))
    }

    /// Learns whether the set of a test has an IPv4 address.
    pub(super) fn learn_member(&mut self, test: u32, of: ValueId, holds: bool) {
        if self.members.len() == MAX_TESTS {
            self.members.remove(0);
        }
        self.members.push((test, of, holds));
    }

    /// Whether the set of a test has an IPv4 address, if that is certain.
    pub(super) fn is_member(&self, test: u32, of: ValueId) -> Option<bool> {
        self.members
            .iter()
            .find(|known| (known.0, known.1) == (test, of))
            .map(|known| known.2)
    }

    /// Keeps the facts that hold on both of two ways to a node.
    pub(super) fn meet(&mut self, other: &Self, values: &Values) {
        self.captured = self.captured.min(other.captured);
        self.behind.retain_mut(|(base, end)| {
            let known = other.behind.iter().find(|(known, _)| known == base);
            known.is_some_and(|(_, known)| {
                *end = (*end).min(*known);
                true
            })
        });
        self.tests.retain(|test| other.tests.contains(test));
        self.members.retain(|member| other.members.contains(member));
        let either =
            |&(value, domain): &(ValueId, Domain)| (value, domain.or(other.domain(value, values)));
        self.domains = self
            .domains
            .iter()
            .filter(|(value, _)| other.knows(*value))
            .map(either)
            .collect();
    }

    fn knows(&self, value: ValueId) -> bool {
        self.domains.iter().any(|(known, _)| *known == value)
    }

    fn domain(&self, value: ValueId, values: &Values) -> Domain {
        self.domain_to(value, values, MAX_FORM)
    }

    /// Possible numbers of a value, by its form and by the facts.
    fn domain_to(&self, value: ValueId, values: &Values, depth: u32) -> Domain {
        let form = match values.term(value) {
            Term::Constant(number) => return Domain::only(number),
            Term::WireLength => Domain::ANY,
            Term::Load(place) => Domain::up_to(u32::MAX >> (32 - 8 * u32::from(place.size))),
            Term::Alu(..) if depth == 0 => Domain::ANY,
            Term::Alu(alu, a, b) => {
                let (a, b) = (
                    self.domain_to(a, values, depth - 1),
                    self.domain_to(b, values, depth - 1),
                );
                result(alu, a, b)
            }
        };
        match self.domains.iter().find(|(known, _)| *known == value) {
            Some((_, domain)) => form.and(*domain),
            None => form,
        }
    }
}

/// Possible results of an operation.
fn result(alu: Alu, a: Domain, b: Domain) -> Domain {
    let Some(k) = b.single() else {
        return Domain::ANY;
    };
    if a.listed {
        let mut few = Few::NONE;
        // A division by zero has no result: the program has ended before.
        let mut results = a
            .few
            .as_slice()
            .iter()
            .filter_map(|&number| alu.apply(number, k));
        if results.all(|number| few.add(number)) && few.count > 0 {
            let mut domain = Domain {
                few,
                listed: true,
                ..Domain::ANY
            };
            domain.tidy();
            return domain;
        }
        return Domain::ANY;
    }
    let mut domain = match alu {
        Alu::And => Domain {
            clear: a.clear | !k,
            set: a.set & k,
            greatest: k.min(a.greatest),
            ..Domain::ANY
        },
        Alu::Or => Domain {
            clear: a.clear & !k,
            set: a.set | k,
            ..Domain::ANY
        },
        Alu::Shl if k < 32 => Domain {
            clear: a.clear << k | !(u32::MAX << k),
            set: a.set << k,
            ..Domain::ANY
        },
        Alu::Shr if k < 32 => Domain {
            least: a.least >> k,
            greatest: a.greatest >> k,
            ..Domain::ANY
        },
        Alu::Div if k > 0 => Domain {
            least: a.least / k,
            greatest: a.greatest / k,
            ..Domain::ANY
        },
        Alu::Mod if k > 0 => Domain {
            greatest: k - 1,
            ..Domain::ANY
        },
        Alu::Add => match (a.least.checked_add(k), a.greatest.checked_add(k)) {
            (Some(least), Some(greatest)) => Domain {
                least,
                greatest,
                ..Domain::ANY
            },
            _ => Domain::ANY,
        },
        _ => Domain::ANY,
    };
    domain.tidy();
    domain
}
