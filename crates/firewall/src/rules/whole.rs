//! Texts of lists with the addresses of their sets, in place of names of files.

use super::parse::{Words, set_of_file};
use super::{ReadSet, RuleError};
use crate::Addresses;
use core::fmt::{Display, Write};
use core::net::{Ipv4Addr, Ipv6Addr};

/// Puts the addresses of each file of a set in the place of its name. Lines keep their numbers.
pub(super) fn with_sets(text: &str, read: &mut ReadSet<'_>) -> Result<String, RuleError> {
    let mut whole = String::with_capacity(text.len());
    for (number, line) in text.lines().enumerate() {
        match file_of_set(line) {
            Some((name, file)) => {
                let addresses = set_of_file(file, number + 1, read)?;
                whole.push_str("set ");
                whole.push_str(name);
                write_addresses(&mut whole, &addresses);
            }
            None => whole.push_str(line),
        }
        whole.push('\n');
    }
    Ok(whole)
}

/// Name and file of a line `set NAME file PATH`.
fn file_of_set(line: &str) -> Option<(&str, &str)> {
    let words: Vec<&str> = Words::of(line).ok()?.words.collect();
    match words[..] {
        ["set", name, "file", file] => Some((name, file.trim_start_matches(['\'', '"']))),
        _ => None,
    }
}

fn write_addresses(text: &mut String, addresses: &Addresses) {
    if addresses.is_empty() {
        // A list of nothing.
        text.push_str(" ,");
    }
    for &(first, last) in addresses.v4() {
        write_range(text, Ipv4Addr::from(first), Ipv4Addr::from(last));
    }
    for &(first, last) in addresses.v6() {
        write_range(text, Ipv6Addr::from(first), Ipv6Addr::from(last));
    }
}

fn write_range<A: Display + PartialEq>(text: &mut String, first: A, last: A) {
    let written = match first == last {
        true => write!(text, " {first}"),
        false => write!(text, " {first}-{last}"),
    };
    written.expect("a text takes all");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::RuleList;
    use std::io;

    /// The list with files is the oracle: both are the same but for the names of files.
    #[test]
    fn a_list_with_its_sets_is_that_with_files() {
        let files = [
            ("a.txt", "10.0.0.1\n# none\n10.1.0.0/16\n2001:db8::/33\n"),
            ("b.txt", ""),
            ("c d.txt", "192.0.2.4-192.0.2.9\n::1\n"),
        ];
        let mut read = |name: &str| {
            let found = files.iter().find(|(known, _)| *known == name);
            let text = found.map(|(_, text)| (*text).to_owned());
            text.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
        };
        let text = "# sets\nset a file a.txt # of a file\nset a 10.9.9.9\n  set b file b.txt\nset $c file 'c d.txt'\n\
                    drop src $a,$c\npass dst $c comment\n";
        let text = text.replace(" comment", " # file x");
        let whole = with_sets(&text, &mut read).unwrap();
        let expected = RuleList::parse(&text, &mut read).unwrap();
        let mut list = RuleList::parse(&whole, &mut |_| panic!("no file is named")).unwrap();
        assert_eq!((list.files.len(), expected.files.len()), (0, 3));
        list.files = expected.files.clone();
        assert_eq!(list, expected);
        assert_eq!(with_sets(&whole, &mut read).unwrap(), whole);

        for (text, words) in [
            ("\nset x file none.txt\n", "line 2: none.txt"),
            ("set x file bad.txt\n", "bad.txt: line 2"),
        ] {
            let mut read = |name: &str| match name {
                "bad.txt" => Ok("10.0.0.1\n10.0.0.300\n".to_owned()),
                _ => Err(io::Error::from(io::ErrorKind::NotFound)),
            };
            let why = with_sets(text, &mut read).unwrap_err().to_string();
            let mut list = |name: &str| read(name);
            let expected = RuleList::parse(text, &mut list).unwrap_err().to_string();
            assert_eq!(why, expected);
            assert!(why.contains(words), "{why}");
        }
        // What is wrong in a line is for the reader of the list.
        assert_eq!(with_sets("drop 'x\n", &mut read).unwrap(), "drop 'x\n");
    }
}
