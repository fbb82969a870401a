//! Names of interfaces as numbers, so that a beginning of names is a range, and sets of names are added and subtracted as all others.

use super::ranges::Ranges;

/// Largest number of bytes of a name: `IFNAMSIZ` of include/uapi/linux/if.h without the byte 0 at the end.
const LONGEST: usize = 15;

/// Largest number of a name.
pub(super) const MOST: u128 = (1 << (8 * LONGEST)) - 1;

/// Most elements of a list of names that is written.
const MOST_ELEMENTS: usize = 64;

/// The numbers of a name, or of all names with a beginning if a `*` is after it; `None` for a name
/// that no line can hold.
pub(super) fn numbers(text: &str) -> Option<(u128, u128)> {
    let (name, is_prefix) = text
        .strip_suffix('*')
        .map_or((text, false), |name| (name, true));
    let is_plain = name
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"._-@:".contains(&byte));
    if !is_plain || name.len() > LONGEST || name.is_empty() && !is_prefix {
        return None;
    }
    let first = name
        .bytes()
        .chain(std::iter::repeat(0))
        .take(LONGEST)
        .fold(0, |bits, byte| bits << 8 | u128::from(byte));
    let behind = if is_prefix { below(name.len()) } else { 0 };
    Some((first, first | behind))
}

/// The bits of all bytes after the prefix.
fn below(bytes: usize) -> u128 {
    (1 << (8 * (LONGEST - bytes))) - 1
}

/// A value of `on` and `to` for these names; `None` if there is none.
pub(super) fn words(names: &Ranges) -> Option<String> {
    let others = names.others(MOST);
    if others.is_empty() {
        return Some("*".to_owned());
    }
    if let Some(included) = elements(names) {
        return Some(included.join(","));
    }
    if let Some(excluded) = elements(&others) {
        return Some(format!("!{}", excluded.join(",!")));
    }
    // All with a common beginning, but for some.
    let (first, _) = names.iter().next()?;
    let (_, last) = names.iter().last()?;
    let len = (0..LONGEST)
        .rev()
        .find(|len| (first ^ last) & !below(*len) == 0)?;
    let start = first & !below(len);
    let beginning = Ranges::new(vec![(start, start | below(len))]);
    let excluded = elements(&beginning.and(&others))?;
    Some(format!("{}*,!{}", text(start, len)?, excluded.join(",!")))
}

/// Names and beginnings that together are these numbers; `None` if they are too many, or no line can hold one.
fn elements(names: &Ranges) -> Option<Vec<String>> {
    let mut all = Vec::new();
    for (mut first, last) in names.iter() {
        loop {
            // The shortest beginning whose names are all in the range and start with the next one.
            let fits = |len: &usize| first & below(*len) == 0 && first | below(*len) <= last;
            let element = match (0..LONGEST).find(fits) {
                Some(len) if text(first, len).is_some() => {
                    (format!("{}*", text(first, len)?), first | below(len))
                }
                _ => (text(first, LONGEST)?, first),
            };
            all.push(element.0);
            if all.len() > MOST_ELEMENTS {
                return None;
            }
            if element.1 >= last {
                break;
            }
            first = element.1 + 1;
        }
    }
    Some(all)
}

/// The first bytes of a number as a name; `None` if they are none.
fn text(number: u128, len: usize) -> Option<String> {
    let bytes = &number.to_be_bytes()[16 - LONGEST..][..len];
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(len);
    let is_whole = bytes[end..].iter().all(|byte| *byte == 0) && (end == len || len == LONGEST);
    let name = std::str::from_utf8(&bytes[..end])
        .ok()
        .filter(|_| is_whole)?;
    let is_plain = name
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"._-@:".contains(&byte));
    (is_plain && (len < LONGEST || end > 0)).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::{RuleList, Side};
    use weir_testkit::Random;

    const NAMES: [&str; 9] = [
        "e",
        "eth",
        "eth0",
        "eth00",
        "eth1",
        "wan0",
        "w",
        "lo",
        "abcdefghijklmno",
    ];

    /// The twin: for each name, whether it is in the set, by comparisons of texts. The words are read as a rule.
    #[test]
    fn words_hold_for_the_names_of_the_set_and_for_no_others() {
        const PATTERNS: [&str; 8] = [
            "eth0",
            "eth*",
            "e*",
            "wan0",
            "lo",
            "w*",
            "eth0*",
            "abcdefghijklmno",
        ];
        let mut random = Random(5);
        let (mut written, mut refused) = (0, 0);
        for _ in 0..5000 {
            let mut set = Ranges::new(vec![(0, MOST)]);
            let mut is_in = [true; NAMES.len()];
            for _ in 0..1 + random.below(4) {
                let (pattern, is_other) =
                    (PATTERNS[random.below(PATTERNS.len())], random.below(2) == 0);
                let numbers = Ranges::new(vec![super::numbers(pattern).unwrap()]);
                set = set.and(&if is_other {
                    numbers.others(MOST)
                } else {
                    numbers
                });
                for (is_in, name) in is_in.iter_mut().zip(NAMES) {
                    let matches = pattern
                        .strip_suffix('*')
                        .map_or(name == pattern, |start| name.starts_with(start));
                    *is_in &= matches != is_other;
                }
            }
            if set.is_empty() {
                assert!(!is_in.contains(&true));
                continue;
            }
            let Some(words) = words(&set) else {
                refused += 1;
                continue;
            };
            let list =
                RuleList::parse(&format!("drop to {words}"), &mut |_| unreachable!()).unwrap();
            assert_eq!(list.interfaces[0].side, Side::Departure);
            let found = NAMES.map(|name| list.interfaces[0].holds(name));
            assert_eq!(found, is_in, "{words}: {set:?}");
            written += 1;
        }
        assert!(
            written > 3000 && refused < written / 4,
            "{written} {refused}"
        );
    }

    #[test]
    fn names_that_no_line_can_hold_have_no_number() {
        for name in [
            "",
            "a b",
            "a,b",
            "!a",
            "a'b",
            "abcdefghijklmnop",
            "e*h",
            "a\\*",
            "\u{e4}",
        ] {
            assert_eq!(numbers(name), None, "{name}");
        }
        assert_eq!(numbers("*"), Some((0, MOST)));
    }
}
