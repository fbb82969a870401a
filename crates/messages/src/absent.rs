//! Names on a command line that lead to no source: told before a run begins, because nothing was read yet and the cause is
//! most likely a typing error.

use crate::errors::quoted;
use crate::sources::{looks_like_expression, missing_words};
use crate::{Refusal, refuse};
use std::io::ErrorKind;
use std::net::IpAddr;
use std::path::Path;
use weir_engine::capture::Live;
use weir_engine::generated;
use weir_engine::name::Name;
use weir_engine::records::{self, CheckError};
use weir_packet::suggestions::nearest;

/// Place of the expression on the command line of a command.
#[derive(Clone, Copy, Debug)]
pub enum Takes<'a> {
    /// Before the sources, as `weir filter EXPR SOURCE` has it, with the expression that was given.
    First(&'a str),
    /// In the flag `--filter`, with its value; the directory of a recorder comes last.
    Flag(&'a str, Option<&'a Name>),
    /// In a file of `--filter-file`, or nowhere.
    Elsewhere,
}

/// Most files of a directory that are compared with a missing name.
const LOOKED_AT: usize = 10_000;

/// Returns the line about the first source of `command` that does not exist, or that is a directory without a record; `None` if
/// all are there. Interfaces, standard input, pipes and files that this process may not read are left to the run.
///
/// **Errors**: an expression in the place of a source, with the right command line.
pub fn absent(
    command: &str,
    sources: &[Name],
    takes: Takes<'_>,
) -> Result<Option<String>, Refusal> {
    let units = [
        "us", "ms", "s", "m", "min", "h", "d", "k", "M", "G", "MB", "GB",
    ];
    let is_unit = |name: &&Name| is_missing(name) && units.contains(&name.utf8());
    if let Some(unit) = sources.iter().find(is_unit) {
        refuse!(
            "{unit} is not a source: a time or a size is one word, as in --window 10s or --memory 64M"
        );
    }
    refuse_expressions(command, sources, takes)?;
    Ok(sources.iter().find_map(absent_line))
}

/// Whether no file, interface or pipe has this name.
fn is_missing(name: &Name) -> bool {
    let is_named = Live::of(name).is_some()
        || generated::wanted(name).is_some()
        || name.is_dash()
        || name.text().is_empty();
    !is_named
        && std::fs::metadata(name).is_err_and(|error| {
            matches!(
                error.kind(),
                ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::InvalidFilename
            )
        })
}

/// Refuses expressions in the place of sources.
fn refuse_expressions(command: &str, sources: &[Name], takes: Takes<'_>) -> Result<(), Refusal> {
    let given = match takes {
        Takes::First(given) | Takes::Flag(given, _) => given.trim(),
        Takes::Elsewhere => "",
    };
    let missing = || sources.iter().filter(|name| is_missing(name));
    let is_option = |name: &&Name| name.utf8().len() > 1 && name.utf8().starts_with('-');
    if let Some(option) = missing().find(is_option) {
        refuse!("{option} stands after --, where each word is a source: put options before --");
    }
    let begins = missing().any(|name| is_expression(name.utf8()));
    let is_part = |name: &Name| {
        let text = name.utf8();
        is_missing(name) && (is_expression(text) || is_operand(text))
    };
    let parts: Vec<&str> = sources
        .iter()
        .filter(|name| is_part(name))
        .map(Name::utf8)
        .collect();
    if !begins && (given.is_empty() || parts.is_empty()) {
        return Ok(());
    }
    let rest = sources.iter().filter(|name| !is_part(name));
    let rest: Vec<String> = rest.map(|name| quoted(&name.text())).collect();
    let rest = match rest.is_empty() {
        true => "trace.pcap".to_owned(),
        false => rest.join(" "),
    };
    let first = parts[0];
    let whole = [&[given], &parts[..]].concat().join(" ");
    let whole = whole.trim();
    match takes {
        Takes::First(_) => refuse!(
            "'{first}' is a part of an expression, which is one argument, in quotes: {command} '{whole}' {rest}"
        ),
        Takes::Flag(_, last) => {
            let last = last.map_or_else(String::new, |name| format!(" {}", quoted(&name.text())));
            refuse!(
                "'{first}' is an expression where a source should be: {command} {rest}{last} --filter '{whole}'"
            )
        }
        Takes::Elsewhere => {
            refuse!("'{first}' is an expression where a source should be: {command} -h")
        }
    }
}

/// Whether a text begins as an expression of tcpdump or of Wireshark does.
fn is_expression(text: &str) -> bool {
    looks_like_expression(text) || text.contains("==")
}

/// Whether a text may follow a keyword of an expression: a number, an address, a network, an operator.
fn is_operand(text: &str) -> bool {
    let (address, prefix) = text.split_once('/').unwrap_or((text, "0"));
    let is_network = address.parse::<IpAddr>().is_ok() && prefix.parse::<u8>().is_ok();
    is_network || text.parse::<u32>().is_ok() || ["&&", "||", "!"].contains(&text)
}

/// Returns the line about a source that does not exist, or that is a directory without a record; `None` for all others.
pub fn absent_line(name: &Name) -> Option<String> {
    let (path, text) = (Path::new(name), name.text());
    if is_missing(name) {
        return Some(format!("{text}: {}", no_file_words(name)));
    }
    let is_directory = !name.is_dash() && path.is_dir();
    let holds_none = is_directory && matches!(records::check(path), Err(CheckError::Record(_)));
    let shown = match text.trim_end_matches('/') {
        "" => String::new(),
        shown => quoted(shown),
    };
    holds_none.then(|| {
        format!("{text}: is a directory: name the capture files in it, for instance {shown}/*.pcap")
    })
}

/// Words on a file that is not there, with a file or a command that helps.
fn no_file_words(name: &Name) -> String {
    let path = Path::new(name);
    let directory = directory_of(path);
    let shown = quoted(&Name::from(directory).text());
    if !directory.is_dir() {
        return format!("no such file, and no directory {shown}");
    }
    let file = path.file_name().and_then(|file| file.to_str());
    if let Some(near) = file.and_then(|file| near_file(directory, file)) {
        let meant = Name::from(&path.with_file_name(near)).text();
        return format!("no such file (did you mean {meant}?)");
    }
    let words = match path.components().count() {
        1 => missing_words(name),
        _ => "no such file".to_owned(),
    };
    match words.as_str() {
        "no such file" => format!("no such file: ls {shown} shows what is there"),
        _ => words,
    }
}

/// The directory of a file.
pub fn directory_of(path: &Path) -> &Path {
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

/// Name of the file in a directory that was most likely meant.
fn near_file(directory: &Path, file: &str) -> Option<String> {
    let entries = std::fs::read_dir(directory).ok()?;
    // A word of one or two letters is near to too many names, and so is one with other first letters.
    let first = |name: &str| name.chars().next().map(|c| c.to_lowercase().to_string());
    let mut names: Vec<String> = entries
        .take(LOOKED_AT)
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.len() > 2 && first(name) == first(file))
        .collect();
    names.sort_unstable();
    nearest(file, names.iter().map(String::as_str)).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(words: &[&str]) -> Vec<Name> {
        words.iter().copied().map(Name::from).collect()
    }

    #[test]
    fn an_expression_in_the_place_of_a_source_is_put_where_it_belongs() {
        for (takes, sources, right) in [
            (
                Takes::First("udp"),
                &["port", "53", "/dev/null"][..],
                "weir x 'udp port 53' /dev/null",
            ),
            (
                Takes::First("host"),
                &["10.1.2.3", "/dev/null"],
                "weir x 'host 10.1.2.3' /dev/null",
            ),
            (
                Takes::First(""),
                &["/dev/null", "net 10.0.0.0/8"],
                "weir x 'net 10.0.0.0/8' /dev/null",
            ),
            (
                Takes::First("tcp"),
                &["and", "udp"],
                "weir x 'tcp and udp' trace.pcap",
            ),
            (
                Takes::Flag("", None),
                &["/dev/null", "tcp port 443"],
                "weir x /dev/null --filter 'tcp port 443'",
            ),
            (
                Takes::Flag("", None),
                &["ip.addr == 10.0.0.1"],
                "weir x trace.pcap --filter 'ip.addr == 10.0.0.1'",
            ),
            (
                Takes::Flag("udp", Some(&Name::from("out"))),
                &["/dev/null", "port", "53"],
                "weir x /dev/null out --filter 'udp port 53'",
            ),
            (
                Takes::Flag("", None),
                &["/dev/null", "--key", "src"],
                "--key stands after --, where each word is a source: put options before --",
            ),
            (
                Takes::Flag("", None),
                &["/dev/null", "ms"],
                "as in --window 10s or --memory 64M",
            ),
        ] {
            let refusal = absent("weir x", &names(sources), takes).expect_err(right);
            assert!(refusal.0.ends_with(right), "{refusal}");
        }
    }

    #[test]
    fn sources_that_exist_are_left_to_the_run_and_others_are_told() {
        for there in ["/dev/null", "-", "lo", "af_packet:nosuch0", "/dev/fd/0"] {
            assert_eq!(
                absent("weir x", &names(&[there]), Takes::Flag("", None)).unwrap(),
                None,
                "{there}"
            );
        }
        let line = |name| {
            absent(
                "weir x",
                &names(&["/dev/null", name]),
                Takes::Flag("", None),
            )
            .unwrap()
        };
        for (name, says) in [
            (
                "/nosuch/a.pcap",
                "/nosuch/a.pcap: no such file, and no directory /nosuch",
            ),
            (
                "/dev/nul",
                "/dev/nul: no such file (did you mean /dev/null?)",
            ),
            (
                "/dev/nosuch.pcap",
                "/dev/nosuch.pcap: no such file: ls /dev shows what is there",
            ),
            (
                "/dev/null/x",
                "/dev/null/x: no such file, and no directory /dev/null",
            ),
            (
                "/",
                "/: is a directory: name the capture files in it, for instance /*.pcap",
            ),
        ] {
            assert_eq!(line(name).as_deref(), Some(says));
        }
        // A number is an operand only behind an expression.
        assert!(absent("weir x", &names(&["53"]), Takes::Flag("", None)).is_ok());
        assert!(absent("weir x", &names(&["53"]), Takes::First("")).is_ok());
    }
}
