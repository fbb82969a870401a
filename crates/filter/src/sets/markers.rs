//! Markers: addresses that stand for sets while libpcap compiles, and are found again in its program.
//!
//! ```text
//! src @a            ->  src (240.165.0.0 or f1a5:0:f2a5:0:f3a5:0:f4a5:0)
//! ip host @a or @b  ->  ip host 240.165.0.0 or 240.165.0.1
//! ```
//!
//! A constant of the user's own text may equal a marker by chance. So the text is compiled twice, with different markers: the
//! programs differ in markers only. That needs libpcap's programs as they are without its optimizer, which reasons about constants, and knows
//! nothing of sets.
//!
//! An IPv4 address is one comparison, after the load of the address. An IPv6 address is four of
//! them:
//!
//! ```text
//!     ld [22]                              ld [22]
//!     jeq #f1a50000      jf F              in_v6 @a at 22   jf F
//!     ld [26]                              ja T
//!     jeq #f2a50000      jf F
//!     ld [30]
//!     jeq #f3a50000      jf F
//!     ld [34]
//!     jeq #f4a50000      jt T  jf F
//! ```

use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use super::{AddressSet, Sets};
use crate::Error;
use crate::names::{self, Protocol, Qualifier, SetWord};
use crate::program::{
    IN_V4, IN_V6, IN_V6_X, Insn, JUMP, Op, Operand, Program, Relation, SetTest, successors,
    without_dead_code,
};

/// Codes of loads of a word at a fixed offset, and at one after X.
const LOAD_WORD: u16 = 0x20;
const LOAD_WORD_X: u16 = 0x40;

/// Words of an IPv6 address.
const WORDS: usize = 4;

/// Upper halves of the markers in each of two texts: of the IPv4 address, and of the words of the IPv6 address. All of them are in class E,
/// which no host has. The lower half is the number of the set.
const UPPER: [[u16; 1 + WORDS]; 2] = [
    [0xf0a5, 0xf1a5, 0xf2a5, 0xf3a5, 0xf4a5],
    [0xf85a, 0xf95a, 0xfa5a, 0xfb5a, 0xfc5a],
];

/// Largest number of sets in one expression.
const MOST_SETS: usize = 1 << 16;

/// An expression with markers in the place of its sets.
#[derive(Debug)]
pub(crate) struct Marked {
    /// The expression with the first markers, and with the second ones.
    pub(crate) texts: [String; 2],
    /// The sets, by the numbers in their markers.
    sets: Vec<Arc<AddressSet>>,
}

impl Marked {
    /// Puts markers into an expression; `None` if it does not name any set.
    ///
    /// **Errors**: a set is unknown, or is where none can be.
    pub(crate) fn new(expression: &str, sets: &Sets) -> Result<Option<Self>, Error> {
        let words = names::sets(expression);
        if words.is_empty() {
            return Ok(None);
        }
        let mut marked = Self {
            texts: Default::default(),
            sets: Vec::new(),
        };
        let mut at = 0;
        for word in words {
            let set = check(&word, sets)?;
            let number = marked
                .number(set)
                .ok_or_else(|| refused(&word, "is one set too many: 65536 can be named"))?;
            for (text, upper) in marked.texts.iter_mut().zip(&UPPER) {
                text.push_str(&expression[at..word.span.start]);
                put_markers(text, &word, set, upper, number);
            }
            at = word.span.end;
        }
        marked
            .texts
            .iter_mut()
            .for_each(|text| text.push_str(&expression[at..]));
        Ok(Some(marked))
    }

    /// The number of a set in the markers; `None` if there are too many.
    fn number(&mut self, set: &Arc<AddressSet>) -> Option<u16> {
        let known = self.sets.iter().position(|known| Arc::ptr_eq(known, set));
        let number = known.unwrap_or_else(|| {
            self.sets.push(Arc::clone(set));
            self.sets.len() - 1
        });
        (number < MOST_SETS).then_some(number as u16)
    }

    /// The program with tests of sets in the place of comparisons with markers. `programs` are those of both texts.
    ///
    /// **Errors**: the programs differ elsewhere, because names had other addresses the second time; libpcap compares addresses in
    /// another way than described above.
    pub(crate) fn program(&self, programs: [Vec<Insn>; 2]) -> Result<Program, Error> {
        let unknown = |reason: &str| Error::Refused {
            message: format!("the sets were not found again: {reason}"),
            word: None,
        };
        let found =
            find(&programs).ok_or_else(|| unknown("names have other addresses each time"))?;
        let [mut insns, _] = programs;
        let mut incoming = vec![0u32; insns.len()];
        (0..insns.len())
            .flat_map(|at| successors(&insns, at))
            .for_each(|next| incoming[next] += 1);
        let mut tests: Vec<SetTest> = Vec::new();
        let mut test = |number: u16, offset: u32| {
            let test = SetTest {
                set: Arc::clone(&self.sets[usize::from(number)]),
                offset,
            };
            let known = tests.iter().position(|known| *known == test);
            known.unwrap_or_else(|| {
                tests.push(test);
                tests.len() - 1
            }) as u32
        };
        for &(at, Marker { part, number }) in &found {
            // The first word shows the way to the others.
            if part > 1 {
                continue;
            }
            let load = at.checked_sub(1).map(|before| insns[before]);
            let load = load.filter(|load| [LOAD_WORD, LOAD_WORD_X].contains(&load.code));
            let load = load.ok_or_else(|| unknown("an address is compared in an unknown way"))?;
            if part == 0 {
                insns[at] = Insn {
                    code: IN_V4,
                    k: test(number, 0),
                    ..insns[at]
                };
                continue;
            }
            let words = Words {
                insns: &insns,
                incoming: &incoming,
                found: &found,
            };
            let chain = words.of_address(at, load, number);
            let (second, target) =
                chain.ok_or_else(|| unknown("an IPv6 address is compared in an unknown way"))?;
            let code = if load.code == LOAD_WORD {
                IN_V6
            } else {
                IN_V6_X
            };
            insns[at] = Insn {
                code,
                k: test(number, load.k),
                ..insns[at]
            };
            insns[second] = Insn::statement(JUMP, (target - second - 1) as u32);
        }
        // The other words of IPv6 addresses must be unreachable now. Nothing takes this code.
        found
            .iter()
            .filter(|(_, marker)| marker.part > 1)
            .for_each(|&(at, _)| insns[at].code = u16::MAX);
        let insns = without_dead_code(&insns);
        Program::with_sets(insns, tests)
            .map_err(|_| unknown("an IPv6 address is compared in several ways"))
    }
}

/// Returns the set of a word, if it may be there.
fn check<'a>(word: &SetWord<'_>, sets: &'a Sets) -> Result<&'a Arc<AddressSet>, Error> {
    let place = match word.qualifier {
        _ if word.name.is_empty() => {
            Err("is not a set: a name follows the @ without a blank, as in src @banned")
        }
        Qualifier::Name("host" | "network") => Ok(()),
        Qualifier::Name(_) => {
            Err("stands for IP addresses, and this is a place for one of the link layer")
        }
        Qualifier::Local => {
            Err("stands for addresses, and this is a place for a port or a protocol")
        }
        Qualifier::None => Err("needs src, dst, host or net before it"),
    };
    let place = if word.has_mask {
        Err("takes no prefix length and no mask: those are in its file")
    } else {
        place
    };
    place.map_err(|reason| refused(word, reason))?;
    sets.get(word.name).ok_or_else(|| Error::UnknownSet {
        name: word.name.to_owned(),
        known: sets.names().map(str::to_owned).collect(),
        span: word.span.clone(),
    })
}

fn refused(word: &SetWord<'_>, reason: &'static str) -> Error {
    Error::SetPlace {
        name: word.name.to_owned(),
        reason,
        span: word.span.clone(),
    }
}

/// The marker with this upper half in the program: a constant.
fn constant(upper: &[u16; 1 + WORDS], part: usize, number: u16) -> u32 {
    u32::from(upper[part]) << 16 | u32::from(number)
}

/// Writes the markers of a set in the place of its word. A family of which the set has no address, or which the qualifiers exclude, has none.
fn put_markers(
    text: &mut String,
    word: &SetWord<'_>,
    set: &AddressSet,
    upper: &[u16; 1 + WORDS],
    number: u16,
) {
    let v4 = Ipv4Addr::from_bits(constant(upper, 0, number));
    let v6 = (1..=WORDS).fold(0u128, |bits, part| {
        bits << 32 | u128::from(constant(upper, part, number))
    });
    let v6 = Ipv6Addr::from_bits(v6);
    let (has_v4, has_v6) = (
        !set.addresses().v4().is_empty(),
        !set.addresses().v6().is_empty(),
    );
    let written = match word.protocol {
        Some(Protocol::V4) => write!(text, "{v4}"),
        Some(Protocol::V6) => write!(text, "{v6}"),
        _ if has_v4 == has_v6 && word.begins_parenthesis => write!(text, "{v4} or {v6}"),
        _ if has_v4 == has_v6 => write!(text, "({v4} or {v6})"),
        _ if has_v4 => write!(text, "{v4}"),
        _ => write!(text, "{v6}"),
    };
    written.expect("a string takes any text");
}

/// A marker in a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Marker {
    /// 0 for an IPv4 address, otherwise the number of the word of an IPv6 address, from 1 on.
    part: usize,
    /// Number of the set.
    number: u16,
}

/// The comparisons with markers in two programs of one expression, in order; `None` if the programs differ elsewhere.
fn find(programs: &[Vec<Insn>; 2]) -> Option<Vec<(usize, Marker)>> {
    let [first, second] = programs;
    let mut found = Vec::new();
    for (at, (a, b)) in first
        .iter()
        .zip(second)
        .enumerate()
        .filter(|(_, (a, b))| a != b)
    {
        let part = UPPER[0]
            .iter()
            .position(|&upper| u32::from(upper) == a.k >> 16)?;
        let number = a.k as u16;
        let is_marker = b.k == constant(&UPPER[1], part, number) && Insn { k: b.k, ..*a } == *b;
        let is_comparison = a.op() == Some(Op::Branch(Relation::Equal, Operand::K));
        if !is_marker || !is_comparison {
            return None;
        }
        found.push((at, Marker { part, number }));
    }
    (first.len() == second.len()).then_some(found)
}

/// A program, number of jumps and steps to each instruction, and the markers in it.
struct Words<'a> {
    insns: &'a [Insn],
    incoming: &'a [u32],
    found: &'a [(usize, Marker)],
}

impl Words<'_> {
    /// Follows the comparisons of the four words of an IPv6 address, of which the first is at
    /// `first`, after `load`. Returns the place of the instruction after the first comparison if
    /// that is true, and the target after all four; `None` if it is not such a chain.
    fn of_address(&self, first: usize, load: Insn, number: u16) -> Option<(usize, usize)> {
        let miss = self.landing(first, self.insns[first].jf);
        let second = self.landing(first, self.insns[first].jt);
        let mut at = second;
        for part in 2..=WORDS {
            // Nothing else may come here: this code goes away.
            if self.incoming[at] != 1 {
                return None;
            }
            let branch = (at..self.insns.len())
                .find(|&at| matches!(self.insns[at].op(), Some(Op::Branch(..))))?;
            let is_plain = |at: usize| {
                !matches!(
                    self.insns[at].op(),
                    Some(Op::Jump | Op::ReturnA | Op::ReturnK) | None
                )
            };
            let wanted = Insn {
                k: load.k.checked_add(4 * (part as u32 - 1))?,
                ..load
            };
            let place = self
                .found
                .binary_search_by_key(&branch, |(at, _)| *at)
                .ok()?;
            let is_word = self.found[place].1 == Marker { part, number };
            if !is_word || !(at..branch).all(is_plain) || self.insns[branch - 1] != wanted {
                return None;
            }
            let insn = self.insns[branch];
            if self.landing(branch, insn.jf) != miss {
                return None;
            }
            if part == WORDS {
                return Some((second, branch + 1 + usize::from(insn.jt)));
            }
            at = self.landing(branch, insn.jt);
        }
        None
    }

    /// Target of a branch, after the unconditional jumps that libpcap adds for distances above 255.
    fn landing(&self, branch: usize, skip: u8) -> usize {
        let mut at = branch + 1 + usize::from(skip);
        while self.insns[at].op() == Some(Op::Jump) && self.insns[at].k as i32 >= 0 {
            at += 1 + self.insns[at].k as usize;
        }
        at
    }
}
