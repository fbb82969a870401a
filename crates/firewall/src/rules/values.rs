//! Values of conditions: ports, flags, rates, times.

use super::parse::{PROTOCOLS, Why};
use super::{Rate, Unit, Vlan};
use crate::{Addresses, State, States};
use core::net::IpAddr;
use core::ops::RangeInclusive;
use std::time::Duration;
use weir_packet::addresses::{self, AddressError};

const HIGHEST_VLAN: u16 = 4094;

/// Flags of TCP by letter, from the lowest bit on.
const FLAGS: &str = "FSRPAUEW";

/// Returns the elements of a list with commas.
pub(super) fn elements(list: &str) -> Result<impl Iterator<Item = &str>, Why> {
    if list.split(',').any(str::is_empty) {
        Err(Why::EmptyElement)
    } else {
        Ok(list.split(','))
    }
}

/// Reads addresses, prefixes and ranges, with commas between them.
pub(crate) fn addresses_in(list: &str) -> Result<Addresses, Why> {
    let ranges: Vec<_> = elements(list)?.map(range).collect::<Result<_, _>>()?;
    Ok(Addresses::new(ranges))
}

/// Reads an address, a prefix, or a range of addresses.
pub(super) fn range(text: &str) -> Result<(IpAddr, IpAddr), Why> {
    addresses::range(text).map_err(|error| match error {
        AddressError::NoAddress(text) => Why::NoAddress(text),
        error => Why::Address(error),
    })
}

/// Reads numbers and ranges of numbers.
pub(super) fn numbers(
    list: &str,
    valid: RangeInclusive<u16>,
    no: fn(String) -> Why,
) -> Result<Vec<(u16, u16)>, Why> {
    let mut ranges = Vec::new();
    for element in elements(list)? {
        let number = |part: &str| {
            let is_number = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
            let number = part
                .parse()
                .ok()
                .filter(|number| is_number && valid.contains(number));
            number.ok_or_else(|| no(element.to_owned()))
        };
        let (first, last) = element.split_once('-').unwrap_or((element, element));
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return Err(Why::Reversed(element.to_owned()));
        }
        ranges.push((first, last));
    }
    Ok(ranges)
}

pub(super) fn ports(list: &str) -> Result<Vec<(u16, u16)>, Why> {
    numbers(list, 0..=u16::MAX, Why::NoPort)
}

/// Reads types of ICMP messages, each with its codes or with all: ranges of the type above the code.
pub(super) fn types(list: &str) -> Result<Vec<(u16, u16)>, Why> {
    let mut ranges = Vec::new();
    for element in elements(list)? {
        let no = |_| Why::NoType(element.to_owned());
        let one = |text: &str| {
            numbers(text, 0..=255, Why::NoType)
                .map_err(no)
                .map(|ranges| ranges[0])
        };
        let (types, codes) = element.split_once('/').unwrap_or((element, "0-255"));
        let ((first, last), (first_code, last_code)) = (one(types)?, one(codes)?);
        match (first_code, last_code) {
            (0, 255) => ranges.push((first << 8, last << 8 | 255)),
            codes => {
                ranges.extend((first..=last).map(|kind| (kind << 8 | codes.0, kind << 8 | codes.1)))
            }
        }
    }
    Ok(ranges)
}

pub(super) fn segment_sizes(list: &str) -> Result<Vec<(u16, u16)>, Why> {
    numbers(list, 0..=u16::MAX, Why::NoSegmentSize)
}

pub(super) fn routing_types(list: &str) -> Result<Vec<(u16, u16)>, Why> {
    numbers(list, 0..=255, Why::NoRoutingType)
}

/// Reads times of day as ranges of seconds since midnight, both ends inclusive. A range that ends
/// before it begins goes on after midnight.
pub(super) fn hours(list: &str) -> Result<Vec<(u32, u32)>, Why> {
    let mut ranges = Vec::new();
    for element in elements(list)? {
        let no = || Why::NoHour(element.to_owned());
        let (first, last) = element.split_once('-').ok_or_else(no)?;
        let (first, last) = second_of_day(first)
            .zip(second_of_day(last))
            .ok_or_else(no)?;
        match first <= last {
            true => ranges.push((first, last)),
            false => ranges.extend([(0, last), (first, DAY_S - 1)]),
        }
    }
    Ok(ranges)
}

/// Seconds of a day.
pub(crate) const DAY_S: u32 = 86_400;

/// Reads an hour and a minute, and perhaps a second, as seconds since midnight.
pub(crate) fn second_of_day(text: &str) -> Option<u32> {
    let parts: Vec<&str> = text.split(':').collect();
    let is_number = |part: &&str| {
        (1..=2).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit())
    };
    if !(2..=3).contains(&parts.len()) || !parts.iter().all(is_number) {
        return None;
    }
    let part = |place: usize| {
        parts
            .get(place)
            .map_or(Some(0), |part| part.parse::<u32>().ok())
    };
    let (hour, minute, second) = (part(0)?, part(1)?, part(2)?);
    (hour < 24 && minute < 60 && second < 60).then_some(hour * 3600 + minute * 60 + second)
}

pub(super) fn vlan(list: &str) -> Result<Vlan, Why> {
    if list == "none" {
        Ok(Vlan::None)
    } else {
        numbers(list, 0..=HIGHEST_VLAN, Why::NoVlan).map(Vlan::Identifiers)
    }
}

pub(super) fn protocols(list: &str) -> Result<[u64; 4], Why> {
    let mut set = [0; 4];
    for element in elements(list)? {
        let named = PROTOCOLS
            .iter()
            .find(|(name, _)| *name == element)
            .map(|(_, number)| *number);
        let number: u8 = match named {
            Some(number) => number,
            None => numbers(element, 0..=255, Why::NoProtocol)
                .ok()
                .and_then(|ranges| {
                    if ranges[0].0 == ranges[0].1 {
                        u8::try_from(ranges[0].0).ok()
                    } else {
                        None
                    }
                })
                .ok_or_else(|| Why::NoProtocol(element.to_owned()))?,
        };
        set[usize::from(number / 64)] |= 1 << (number % 64);
    }
    Ok(set)
}

pub(super) fn flags(text: &str) -> Result<(u8, u8), Why> {
    let no = || Why::NoFlags(text.to_owned());
    let bits = |letters: &str| {
        letters
            .chars()
            .try_fold(0, |bits, letter| {
                FLAGS.find(letter).map(|at| bits | 1 << at)
            })
            .ok_or_else(no)
    };
    let (set, mask) = text.split_once('/').unwrap_or((text, text));
    let (set, mask): (u8, u8) = (bits(set)?, bits(mask)?);
    match mask {
        0 => Err(no()),
        _ if set & !mask != 0 => Err(Why::FlagsOutsideMask(text.to_owned())),
        _ => Ok((set, mask)),
    }
}

pub(super) fn states(text: &str) -> Result<States, Why> {
    let mut states = States::default();
    for element in elements(text)? {
        states.add(match element {
            "new" => State::New,
            "established" => State::Established,
            "related" => State::Related,
            "invalid" => State::Invalid,
            "untracked" => State::Untracked,
            _ => return Err(Why::NoState(element.to_owned())),
        });
    }
    Ok(states)
}

/// Largest number of packets or bytes of a rate.
const HIGHEST_RATE: u64 = 1 << 40;

/// Reads a number with k, M or G (binary) after it.
pub(super) fn number(text: &str) -> Option<u64> {
    let (digits, factor) = match text.as_bytes().last()? {
        b'k' => (&text[..text.len() - 1], 1 << 10),
        b'M' => (&text[..text.len() - 1], 1 << 20),
        b'G' => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1),
    };
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number = digits
        .parse::<u64>()
        .ok()
        .filter(|_| is_number)?
        .checked_mul(factor)?;
    (1..=HIGHEST_RATE).contains(&number).then_some(number)
}

pub(super) fn rate(text: &str, is_beyond: bool) -> Result<Rate, Why> {
    let no = || Why::NoRate(text.to_owned());
    let (count, period) = text.split_once('/').ok_or_else(no)?;
    let seconds = match period {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return Err(no()),
    };
    let (digits, unit) = count
        .strip_suffix('B')
        .map_or((count, Unit::Packets), |digits| (digits, Unit::Bytes));
    let count = number(digits).ok_or_else(no)?;
    Ok(Rate {
        count,
        unit,
        period_ns: seconds * 1_000_000_000,
        burst: count,
        is_per_source: false,
        is_beyond,
    })
}

pub(super) fn burst(text: &str, unit: Unit) -> Result<u64, Why> {
    let digits = if unit == Unit::Bytes {
        text.strip_suffix('B').unwrap_or(text)
    } else {
        text
    };
    number(digits).ok_or_else(|| Why::NoBurst(text.to_owned()))
}

/// Reads a time of up to ten years.
pub(super) fn time(text: &str) -> Result<Duration, Why> {
    let no = || Why::NoTime(text.to_owned());
    let units = [
        ("ms", 1),
        ("s", 1000),
        ("m", 60_000),
        ("h", 3_600_000),
        ("d", 86_400_000),
    ];
    let (digits, unit) = units
        .iter()
        .find_map(|(name, ms)| Some((text.strip_suffix(name)?, *ms)))
        .ok_or_else(no)?;
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let ms = digits
        .parse::<u64>()
        .ok()
        .filter(|_| is_number)
        .and_then(|number| number.checked_mul(unit));
    let ms = ms.filter(|ms| (1..=3650 * 86_400_000).contains(ms));
    ms.map(Duration::from_millis).ok_or_else(no)
}
