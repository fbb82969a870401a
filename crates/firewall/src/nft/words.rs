//! Words of rules for sets of values.

use super::conditions::{MOST_ETHER, listed, range_text};
use super::ranges::Ranges;
use weir_packet::flow::extensions as kinds;

/// Bits of all kinds of extension headers.
pub(super) const ALL_EXTENSIONS: u128 = 31;

/// Most addresses of Ethernet in an expression.
const MOST_ETHERS: usize = 32;

/// Types of messages, each with its codes.
pub(super) fn messages(numbers: &Ranges) -> String {
    let codes_of = |kind: u128| numbers.and(&Ranges::new(vec![(kind << 8, kind << 8 | 255)]));
    let within = |kind: u128| -> Vec<(u128, u128)> {
        codes_of(kind)
            .iter()
            .map(|(first, last)| (first & 255, last & 255))
            .collect()
    };
    let mut words = Vec::new();
    let mut kind = 0;
    while kind < 256 {
        let codes = within(kind);
        // Types with the same codes are one range.
        let last = (kind + 1..256)
            .take_while(|next| within(*next) == codes)
            .last()
            .unwrap_or(kind);
        let types = range_text((kind, last));
        words.extend(codes.into_iter().map(|range| match range {
            (0, 255) => types.clone(),
            range => format!("{types}/{}", range_text(range)),
        }));
        kind = last + 1;
    }
    listed(words.into_iter())
}

/// A range of seconds of the day.
pub(super) fn hours((first, last): (u128, u128)) -> String {
    let text = |second: u128| match (second / 3600, second / 60 % 60, second % 60) {
        (hour, minute, 0) => format!("{hour}:{minute:02}"),
        (hour, minute, second) => format!("{hour}:{minute:02}:{second:02}"),
    };
    format!("{}-{}", text(first), text(last))
}

/// Words for bits of kinds of extension headers; `None` if any bits will do. **Errors**: the reason for which there are none.
pub(super) fn extensions(bits: &Ranges, is_deny: bool) -> Result<Option<String>, String> {
    const NAMES: [(u8, &str); 5] = [
        (kinds::HOP_BY_HOP, "hop"),
        (kinds::ROUTING, "routing"),
        (kinds::FRAGMENT, "fragment"),
        (kinds::AUTHENTICATION, "ah"),
        (kinds::DESTINATION, "destination"),
    ];
    let all = Ranges::new(vec![(0, ALL_EXTENSIONS)]);
    if all.and(bits) == all {
        return Ok(None);
    }
    let one_of =
        |mask: u8| Ranges::of_bytes(|byte| u128::from(byte) <= ALL_EXTENSIONS && byte & mask != 0);
    let mask = (1..=ALL_EXTENSIONS as u8).find(|mask| one_of(*mask) == all.and(bits));
    let mask = mask.ok_or(
        "exthdr: weir has no condition for headers that are missing, or that are there together",
    )?;
    if !is_deny {
        // Weir takes a header for there whose number is in front of it, although it is cut.
        return Err("exthdr: what passes by it would be more here than in the kernel".to_owned());
    }
    let names = NAMES
        .iter()
        .filter(|(bit, _)| mask & bit != 0)
        .map(|(_, name)| (*name).to_owned());
    Ok(Some(format!("extension {}", listed(names))))
}

/// An expression for addresses of Ethernet. **Errors**: the reason for which there is none.
pub(super) fn ethers(end: &str, addresses: &Ranges) -> Result<String, String> {
    let single = |ranges: &Ranges| -> Option<Vec<String>> {
        let is_few = ranges.iter().count() <= MOST_ETHERS
            && ranges.iter().all(|(first, last)| first == last);
        let text = |number: u128| {
            number.to_be_bytes()[10..]
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect::<Vec<_>>()
                .join(":")
        };
        is_few.then(|| {
            ranges
                .iter()
                .map(|(number, _)| format!("ether {end} {}", text(number)))
                .collect()
        })
    };
    let others = addresses.others(MOST_ETHER);
    match (single(addresses), single(&others)) {
        (Some(all), _) => Ok(all.join(" or ")),
        (None, Some(all)) => Ok(format!("not ({})", all.join(" or "))),
        _ => Err(format!(
            "ether {end}: ranges of addresses, or more than {MOST_ETHERS}"
        )),
    }
}
