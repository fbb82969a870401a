//! Values of a field: what they are, and how texts describe them.
//!
//! ```text
//! 198.18.0.7                 constant
//! 198.18.0.0/24              all with this prefix, counted
//! 198.18.0.0/24:random       all with this prefix, drawn
//! 10.0.0.9/255.0.255.255     masked: the bits that are not in the mask vary
//! 1024-65535                 a range
//! 53,123,443:random          a list
//! 0-255:random:packet        for each packet, though the stream has flows
//! ```

use std::net::{Ipv4Addr, Ipv6Addr};

/// Most values of a list.
const LIST_MAX: usize = 65_536;

/// Kind of a field, by which its values are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A number of so many bits, decimal or with `0x`.
    Number(u32),
    /// Flags of TCP: letters of `FSRPAUEC`, or a number.
    Flags,
    /// A link address of six bytes.
    Mac,
    /// An IPv4 address.
    Ipv4,
    /// An IPv6 address.
    Ipv6,
}

/// Order in which values follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// One after another, from the first on.
    Count,
    /// Drawn with equal chances.
    Random,
}

/// A set of values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Set {
    /// One value.
    Constant(u128),
    /// All values from the first to the last; they differ in the last 32 bits only.
    Range(u128, u128),
    /// The bits of the first number; the bits of the second number vary.
    Masked(u128, u128),
    /// These values.
    List(Vec<u128>),
}

/// Values of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Values {
    /// Their set.
    pub set: Set,
    /// Their order.
    pub order: Order,
    /// Whether they change with each packet, though the stream has flows.
    pub each: bool,
}

impl Kind {
    /// Number of bits of a value.
    pub fn bits(self) -> u32 {
        match self {
            Kind::Number(bits) => bits,
            Kind::Flags => 8,
            Kind::Mac => 48,
            Kind::Ipv4 => 32,
            Kind::Ipv6 => 128,
        }
    }

    /// Words for what would be right.
    fn wanted(self) -> String {
        match self {
            Kind::Number(bits) => format!("a number from 0 to {}", ones(bits)),
            Kind::Flags => "letters of FSRPAUEC, or a number from 0 to 255".to_owned(),
            Kind::Mac => "a MAC address as 02:00:00:00:00:01".to_owned(),
            Kind::Ipv4 => "an IPv4 address as 198.18.0.1".to_owned(),
            Kind::Ipv6 => "an IPv6 address as 2001:db8::1".to_owned(),
        }
    }

    fn read(self, text: &str) -> Result<u128, String> {
        let text = text.trim();
        let value = match self {
            Kind::Number(_) => number(text),
            Kind::Flags => flags(text).or_else(|| number(text)),
            Kind::Mac => mac(text),
            Kind::Ipv4 => text
                .parse::<Ipv4Addr>()
                .ok()
                .map(|address| address.to_bits().into()),
            Kind::Ipv6 => text.parse::<Ipv6Addr>().ok().map(Ipv6Addr::to_bits),
        };
        match value {
            Some(value) if value <= ones(self.bits()) => Ok(value),
            _ => Err(format!("{text:?}: want {}", self.wanted())),
        }
    }
}

impl Values {
    /// Reads the values of a field of this kind. **Errors**: what is wrong, and what would be right.
    pub fn read(text: &str, kind: Kind) -> Result<Self, String> {
        let (mut rest, mut order, mut each) = (text.trim(), None, false);
        loop {
            let last = |word: &str| rest.strip_suffix(word);
            let is_again;
            if let Some(less) = last(":packet") {
                (rest, is_again) = (less, std::mem::replace(&mut each, true));
            } else if let Some(less) = last(":random") {
                (rest, is_again) = (less, order.replace(Order::Random).is_some());
            } else if let Some(less) = last(":count") {
                (rest, is_again) = (less, order.replace(Order::Count).is_some());
            } else {
                break;
            }
            if is_again {
                return Err(format!(
                    "{text:?}: want :random or :count once, and :packet once"
                ));
            }
        }
        let set = set(rest, kind)?;
        if matches!(set, Set::Constant(_)) && (each || order.is_some()) {
            return Err(format!(
                "{text:?}: one value is neither drawn nor counted: write {rest}, or a range or a list"
            ));
        }
        if order != Some(Order::Random) && matches!(set, Set::Masked(_, _)) {
            return Err(format!(
                "{text:?}: values under a mask are drawn: write {rest}:random"
            ));
        }
        Ok(Self {
            set,
            order: order.unwrap_or(Order::Count),
            each,
        })
    }
}

fn set(text: &str, kind: Kind) -> Result<Set, String> {
    if text.contains(',') {
        let values: Result<Vec<u128>, String> =
            text.split(',').map(|value| kind.read(value)).collect();
        let values = values?;
        return match values.len() {
            0..=LIST_MAX => Ok(Set::List(values)),
            count => Err(format!("{count} values: a list has at most {LIST_MAX}")),
        };
    }
    if let Some((value, mask)) = text.split_once('/') {
        return masked(kind.read(value)?, mask, kind);
    }
    let Some((first, last)) = text.split_once('-') else {
        return Ok(Set::Constant(kind.read(text)?));
    };
    let (first, last) = (kind.read(first)?, kind.read(last)?);
    if last < first {
        return Err(format!("{text:?}: the first value is above the last"));
    }
    if first >> 32 != last >> 32 {
        return Err(format!(
            "{text:?}: the values of a range may differ in the last 32 bits only"
        ));
    }
    Ok(Set::Range(first, last))
}

/// The values with a prefix, or whose bits in a mask are given.
fn masked(value: u128, mask: &str, kind: Kind) -> Result<Set, String> {
    let all = ones(kind.bits());
    let mask = match mask.trim().parse::<u32>() {
        Ok(prefix) if prefix <= kind.bits() => all ^ ones(kind.bits() - prefix),
        Ok(prefix) => {
            return Err(format!(
                "/{prefix}: want a prefix of 0 to {} bits",
                kind.bits()
            ));
        }
        Err(_) => kind.read(mask)?,
    };
    let free = all & !mask;
    // Up to 32 free bits at the end are a range, and can be counted.
    Ok(
        match free.trailing_ones() == free.count_ones() && free.count_ones() <= 32 {
            true if free == 0 => Set::Constant(value),
            true => Set::Range(value & mask, value & mask | free),
            false => Set::Masked(value & mask, free),
        },
    )
}

/// A number whose lowest `bits` bits are set.
pub(crate) fn ones(bits: u32) -> u128 {
    u128::MAX.checked_shr(128 - bits).unwrap_or(0)
}

pub(crate) fn number(text: &str) -> Option<u128> {
    match text.strip_prefix("0x") {
        Some(hex) => u128::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

fn flags(text: &str) -> Option<u128> {
    // From the lowest bit on: RFC 9293 section 3.1.
    const LETTERS: &str = "FSRPAUEC";
    let mut bits = text
        .chars()
        .map(|letter| LETTERS.find(letter).map(|bit| 1 << bit));
    let sum = bits.try_fold(0, |sum, bit| bit.map(|bit: u128| sum | bit));
    sum.filter(|_| !text.is_empty())
}

fn mac(text: &str) -> Option<u128> {
    let mut parts = text.split(':');
    let mut address = 0;
    for _ in 0..6 {
        let part = parts.next().filter(|part| (1..=2).contains(&part.len()))?;
        address = address << 8 | u128::from(u8::from_str_radix(part, 16).ok()?);
    }
    parts.next().is_none().then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, kind: Kind) -> Values {
        Values::read(text, kind).unwrap()
    }

    #[test]
    fn texts_are_sets_in_an_order() {
        let range = |first, last| Set::Range(first, last);
        for (text, kind, set, order, each) in [
            ("7", Kind::Number(16), Set::Constant(7), Order::Count, false),
            (
                "0x1f",
                Kind::Number(8),
                Set::Constant(31),
                Order::Count,
                false,
            ),
            ("SA", Kind::Flags, Set::Constant(0x12), Order::Count, false),
            (
                "1-9:random",
                Kind::Number(16),
                range(1, 9),
                Order::Random,
                false,
            ),
            (
                "1-9:random:packet",
                Kind::Number(16),
                range(1, 9),
                Order::Random,
                true,
            ),
            (
                "198.18.3.1/24",
                Kind::Ipv4,
                range(0xc612_0300, 0xc612_03ff),
                Order::Count,
                false,
            ),
            (
                "10.0.0.9/255.0.255.255:random",
                Kind::Ipv4,
                Set::Masked(0x0a00_0009, 0x00ff_0000),
                Order::Random,
                false,
            ),
            (
                "2001:db8::/32:random",
                Kind::Ipv6,
                Set::Masked(0x2001_0db8 << 96, ones(96)),
                Order::Random,
                false,
            ),
            (
                "2:0:0:0:0:ff",
                Kind::Mac,
                Set::Constant(0x0200_0000_00ff),
                Order::Count,
                false,
            ),
            (
                "53,123",
                Kind::Number(16),
                Set::List(vec![53, 123]),
                Order::Count,
                false,
            ),
            (
                "5/8",
                Kind::Number(8),
                Set::Constant(5),
                Order::Count,
                false,
            ),
        ] {
            assert_eq!(read(text, kind), Values { set, order, each }, "{text}");
        }
    }

    #[test]
    fn errors_say_what_would_be_right() {
        for (text, kind, part) in [
            ("300", Kind::Number(8), "0 to 255"),
            ("", Kind::Number(8), "0 to 255"),
            ("10.0.0.256", Kind::Ipv4, "198.18.0.1"),
            ("10.0.0.0/33", Kind::Ipv4, "0 to 32 bits"),
            ("SX", Kind::Flags, "FSRPAUEC"),
            ("9-1", Kind::Number(8), "above the last"),
            ("2:0:0:0:0", Kind::Mac, "02:00"),
            ("2001::-2002::", Kind::Ipv6, "last 32 bits"),
            ("10.0.0.9/255.0.255.255", Kind::Ipv4, ":random"),
            ("1,2,x", Kind::Number(8), "0 to 255"),
        ] {
            let error = Values::read(text, kind).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
