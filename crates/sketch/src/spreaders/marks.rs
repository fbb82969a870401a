//! Marks of pairs: whether they were sent, answered and accepted.

use core::ops::BitOr;
use zerocopy::FromZeros;

/// Facts about a pair (key, element) that a packet tells.
///
/// A packet from A to B is a [contact](Self::CONTACT) of A with B. It is also an [answer](Self::ANSWER) to a contact of B with A, if
/// there is one, or a [refusal](Self::REFUSAL) if it is a TCP reset or an ICMP error. Marks of several packets are joined with `|`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marks(u8);

/// Bits of [`Marks`].
const SENT: u8 = 1;
const ANSWERED: u8 = 2;
const ACCEPTED: u8 = 4;

impl Marks {
    /// No mark: the packet is not counted.
    pub const NONE: Self = Self(0);
    /// The key has sent to the element.
    pub const CONTACT: Self = Self(SENT);
    /// The element has sent to the key.
    pub const ANSWER: Self = Self(ANSWERED | ACCEPTED);
    /// The element has sent a refusal to the key.
    pub const REFUSAL: Self = Self(ANSWERED);

    /// Whether all of these marks are among these.
    #[inline(always)]
    pub(super) fn contains(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }

    /// The bits of an image: *sent* is written the other way round, so that pairs that are sent and nothing else have zeros.
    pub(crate) fn written(self) -> u32 {
        u32::from(self.0 ^ SENT)
    }

    /// Reads the bits of an image; `None` if no packets give these marks.
    pub(super) fn read(written: u32) -> Option<Self> {
        let marks = Self(written as u8 ^ SENT);
        let packets = [Self::CONTACT, Self::REFUSAL, Self::ANSWER];
        let given = packets.into_iter().filter(|packet| marks.contains(*packet));
        let given = given.fold(Self::NONE, |all, packet| all | packet);
        (given == marks && marks != Self::NONE).then_some(marks)
    }
}

impl BitOr for Marks {
    type Output = Self;

    #[inline(always)]
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Marks of the slots of a bucket, four bits for each.
#[derive(Clone, Copy, FromZeros)]
pub(super) struct All(u32);

impl All {
    const BITS: usize = 4;
    const EACH: u32 = (1 << Self::BITS) - 1;

    #[inline(always)]
    pub fn of(self, slot: usize) -> Marks {
        Marks((self.0 >> (slot * Self::BITS) & Self::EACH) as u8)
    }

    /// Replaces the marks of a slot.
    #[inline(always)]
    pub fn set(&mut self, slot: usize, marks: Marks) {
        let at = slot * Self::BITS;
        self.0 = self.0 & !(Self::EACH << at) | u32::from(marks.0) << at;
    }

    /// Adds marks to a slot. Marks that are there are not written again, because a changed line must go back to memory.
    #[inline(always)]
    pub fn add(&mut self, slot: usize, marks: Marks) {
        let given = u32::from(marks.0) << (slot * Self::BITS);
        if self.0 & given != given {
            self.0 |= given;
        }
    }
}
