//! The text of bans, read once more by a naive twin: a regular grammar over characters, and a list of single addresses.
//!
//! The SHA-256 is the one that is written out in the tests of control packets.

use super::control::{Constants, constants, sha256};
use std::net::IpAddr;
use weir_firewall::kept::{BootId, End, Kept, MOST, Moment, Origin};
use weir_testkit::Input;

/// A ban of one address: address, program, time left and in all.
pub type One = (IpAddr, String, Option<(u64, u64)>);

/// First eight bytes of the sum, in hexadecimal.
fn sum(of: &Constants, bytes: &[u8]) -> String {
    sha256(of, bytes)[..8]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// A number as weir writes it.
fn number(text: &str) -> Option<u128> {
    let is_number =
        text == "0" || text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    text.parse().ok().filter(|_| is_number)
}

fn next(address: IpAddr) -> Option<IpAddr> {
    match address {
        IpAddr::V4(v4) => v4
            .to_bits()
            .checked_add(1)
            .map(|bits| IpAddr::V4(bits.into())),
        IpAddr::V6(v6) => v6
            .to_bits()
            .checked_add(1)
            .map(|bits| IpAddr::V6(bits.into())),
    }
}

/// Bans of a text, address by address; `None` if weir cannot have written it.
pub fn naive(of: &Constants, bytes: &[u8]) -> Option<Vec<One>> {
    let text = std::str::from_utf8(bytes).ok()?;
    // The text of the lines up to the last one, which ends with the text.
    let body = &text[..text.strip_suffix('\n')?.rfind('\n')? + 1];
    let mut lines: Vec<&str> = body.split_terminator('\n').collect();
    let is_line = |line: &&str| !line.is_empty() && line.len() < 256;
    let of_bans: Vec<&str> = lines.drain(2.min(lines.len())..).collect();
    let last = format!("end {} {}\n", of_bans.len(), sum(of, body.as_bytes()));
    if lines.len() != 2
        || lines[0] != "weir bans 1"
        || text[body.len()..] != last
        || !of_bans.iter().all(is_line)
    {
        return None;
    }
    let head: Vec<&str> = lines[1].split(' ').collect();
    let wall = number(head.get(1)?).filter(|wall| *wall <= u64::MAX.into())?;
    let is_head = match head[..] {
        ["at", _, "boot", "-"] => true,
        ["at", _, "boot", id, ns] => {
            id.len() == 36
                && id.chars().all(|c| "0123456789abcdef-".contains(c))
                && number(ns).is_some_and(|ns| ns <= u64::MAX.into())
        }
        _ => false,
    };
    let (mut all, mut before): (Vec<One>, Option<One>) = (Vec::new(), None);
    for line in of_bans {
        let words: Vec<&str> = line.split(' ').collect();
        let end = match words[..] {
            [_, "by", _] => None,
            [_, "by", _, "until", until, "of", lasts] => {
                let (left, lasts) = (number(until)?.checked_sub(wall)?, number(lasts)?);
                if left == 0 || left > lasts || lasts > u64::MAX.into() {
                    return None;
                }
                Some((left as u64, lasts as u64))
            }
            _ => return None,
        };
        let is_name = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if words[2].is_empty() || words[2].len() > 32 || !words[2].chars().all(is_name) {
            return None;
        }
        let ends: Vec<&str> = words[0].split('-').collect();
        let addresses: Vec<IpAddr> = ends.iter().filter_map(|text| text.parse().ok()).collect();
        let is_written = addresses
            .iter()
            .map(IpAddr::to_string)
            .eq(ends.iter().map(|text| text.to_string()));
        let (first, last) = match addresses[..] {
            [only] => (only, only),
            [first, last] if first.is_ipv4() == last.is_ipv4() && first < last => (first, last),
            _ => return None,
        };
        let joins = |(address, by, of): &One| {
            next(*address) == Some(first) && *by == words[2] && *of == end
        };
        if !is_written
            || before
                .as_ref()
                .is_some_and(|before| before.0 >= first || joins(before))
        {
            return None;
        }
        let mut address = Some(first);
        while let Some(now) = address.filter(|now| *now <= last) {
            all.push((now, words[2].to_owned(), end));
            if all.len() > MOST {
                return None;
            }
            address = next(now);
        }
        before = all.last().cloned();
    }
    is_head.then_some(all)
}

/// Single bans of a text that was read.
pub fn ones(kept: &Kept) -> Vec<One> {
    let of = |bans: &weir_firewall::kept::Bans| {
        let (by, end) = (
            bans.by.name().to_owned(),
            bans.end
                .map(|End { left_ns, lasts_ns }| (left_ns, lasts_ns)),
        );
        bans.addresses()
            .map(move |address| (address, by.clone(), end))
            .collect::<Vec<_>>()
    };
    kept.bans.iter().flat_map(of).collect()
}

/// Makes bans from choices, in the order of their addresses.
fn some(choices: &mut Input<'_>) -> (Moment, Vec<One>) {
    let wall_ns = match choices.below(4) {
        0 => choices.number(8) as u64,
        _ => 1_700_000_000_000_000_000,
    };
    let id = BootId::new("01234567-89ab-cdef-0123-456789abcdef").unwrap();
    let boot = (choices.below(2) == 0).then(|| (id, choices.number(5) as u64));
    let mut all = std::collections::BTreeMap::new();
    for _ in 0..choices.below(30) {
        let address: IpAddr = match choices.below(4) {
            0 => IpAddr::V6((0x2001_0db8_u128 << 96 | choices.below(8) as u128).into()),
            1 => IpAddr::V4(u32::MAX.wrapping_add(choices.below(2) as u32).into()),
            _ => IpAddr::V4((0x0a00_0000 + choices.below(16) as u32).into()),
        };
        let by = ["ctl", "key-7", "program", "a.b_c"][choices.below(4)].to_owned();
        let end = (choices.below(2) == 0).then(|| {
            let left = 1 + choices.number(2) as u64;
            (left, left + choices.below(2) as u64)
        });
        all.insert(address, (by, end));
    }
    (
        Moment { wall_ns, boot },
        all.into_iter()
            .map(|(address, (by, end))| (address, by, end))
            .collect(),
    )
}

/// Any choices: bans come back from their text, and a text that is damaged, or written by somebody else, is read as by the naive twin.
/// Returns how many of the texts that were not written by weir were read.
pub fn judge(data: &[u8]) -> usize {
    let (mut choices, of) = (Input(data), constants());
    let (at, bans) = some(&mut choices);
    let of_bans = bans.iter().map(|(address, by, end)| {
        let end = end.map(|(left_ns, lasts_ns)| End { left_ns, lasts_ns });
        (*address, Origin::new(by).unwrap(), end)
    });
    let text = Kept::gather(at.clone(), of_bans).text();
    let kept = Kept::parse(text.as_bytes()).unwrap_or_else(|why| panic!("{why}: {text}"));
    assert_eq!((&kept.at, ones(&kept)), (&at, bans.clone()), "{text}");
    assert_eq!(naive(&of, text.as_bytes()), Some(bans), "{text}");
    let mut read = 0;
    let mut other = |bytes: &[u8]| {
        let (ours, expected) = (Kept::parse(bytes), naive(&of, bytes));
        let ours = ours.as_ref().map(ones).map_err(|damaged| damaged.line);
        assert_eq!(
            ours.clone().ok(),
            expected,
            "{ours:?}: {}",
            String::from_utf8_lossy(bytes)
        );
        read += usize::from(ours.is_ok());
    };
    // Damage that the sum shows.
    let mut damaged = text.clone().into_bytes();
    let place = choices.number(2) % damaged.len();
    match choices.below(4) {
        0 => damaged[place] ^= 1 << choices.below(8),
        1 => damaged.truncate(place),
        2 => drop(damaged.remove(place)),
        _ => damaged.insert(place, choices.byte()),
    }
    other(&damaged);
    other(choices.0);
    // Somebody who knows the sum: lines that look like those of weir.
    let mut body = text[..text.trim_end().rfind('\n').unwrap() + 1].to_owned();
    let words = [
        "10.0.0.9",
        "10.0.0.9-10.0.0.12",
        "2001:DB8::9",
        "::ffff",
        " by ",
        "ctl",
        "\n",
        " until ",
        "01",
        " of ",
        "5",
        "-",
    ];
    for _ in 0..choices.below(2) * choices.below(12) {
        body.push_str(words[choices.below(words.len())]);
    }
    let place = choices.number(2) % (body.len() + 1);
    if body.is_char_boundary(place) && choices.below(2) == 0 {
        body.insert_str(place, words[choices.below(words.len())]);
    }
    if !body.ends_with('\n') {
        body.push('\n');
    }
    let count = body.split_terminator('\n').count().saturating_sub(2);
    other(format!("{body}end {count} {}\n", sum(&of, body.as_bytes())).as_bytes());
    read
}
