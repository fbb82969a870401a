//! Names of sources: their checks, and messages about them.

use crate::captures::{check_queue, interface};
use crate::errors::io_words;
use crate::{Refusal, refusal, refuse};
use std::io;
use std::path::Path;
use weir_engine::capture::is_interface;
use weir_engine::generated;
use weir_engine::name::Name;
use weir_io::sys::packet_socket::ANY;
use weir_packet::savefile::Format;
use weir_packet::suggestions::{did_you_mean, nearest};
use weir_pipeline::AccessMode;

/// Message on a file that cannot be opened. If access is denied, `advice` follows.
pub fn failed_line(name: &Name, error: &io::Error, advice: &str) -> String {
    let text = name.text();
    let bare = !text.is_empty() && !text.contains('/');
    let words = match error.kind() {
        io::ErrorKind::NotFound if bare => missing_words(name),
        io::ErrorKind::PermissionDenied => {
            format!("{}{advice}", io_words(error))
        }
        _ => io_words(error),
    };
    format!("{}: {words}", name.as_source())
}

/// Whether a text begins with a keyword of expressions.
pub(crate) fn looks_like_expression(text: &str) -> bool {
    const IN_EXPRESSIONS: [&str; 16] = [
        "and", "or", "not", "host", "net", "port", "src", "dst", "proto", "ip", "ip6", "tcp",
        "udp", "icmp", "arp", "vlan",
    ];
    let first = text.split([' ', '[', '(']).find(|word| !word.is_empty());
    first.is_some_and(|word| IN_EXPRESSIONS.contains(&word))
}

/// Message on a missing file with a name of one word, which may be meant for an interface or an expression.
pub(crate) fn missing_words(name: &Name) -> String {
    if interface(name).is_some_and(is_interface) {
        "is a network interface, and no such file: weir filter and weir measure capture from interfaces".to_owned()
    } else if looks_like_expression(name.utf8()) {
        "no such file: an expression is one argument, in quotes: 'udp port 53'".to_owned()
    } else if interface(name).is_some() || !name.text().contains('.') {
        let known = interface_names();
        let near = did_you_mean(name.utf8(), known.iter().map(String::as_str));
        format!(
            "no such file, and no network interface of this name{near}: weir filter -D lists them"
        )
    } else {
        io_words(&io::Error::from(io::ErrorKind::NotFound))
    }
}

/// Names of the interfaces of this process's network namespace: `/proc/net/dev`, proc(5). `/sys` may be another namespace's.
pub fn interface_names() -> Vec<String> {
    let text = std::fs::read_to_string("/proc/net/dev").unwrap_or_default();
    let names = text.lines().skip(2).filter_map(|line| line.split_once(':'));
    names.map(|(name, _)| name.trim().to_owned()).collect()
}

/// Way in which the bytes of a source got into memory, for `--stats`.
pub fn access_mode_words(way: AccessMode) -> &'static str {
    match way {
        AccessMode::Mapped => "mapped",
        AccessMode::Read => "read in pieces",
        AccessMode::Stream => "read as a stream",
        AccessMode::Live => "captured, in the kernel's ring",
    }
}

/// Refuses sources without a name; schemes without an interface, like `af_packet:`; `af_packet:eth0:1`; and profiles that are wrong.
pub fn check_names(sources: &[Name]) -> Result<(), Refusal> {
    if sources.iter().any(|source| source.text().is_empty()) {
        refuse!("the name of a source is empty: name a capture file, or - for standard input");
    }
    for name in sources {
        if let Some(text) = generated::wanted(name) {
            generated::of_source(text).map_err(|why| refusal!("{name}: {why}"))?;
        }
    }
    match sources.iter().find(|source| interface(source) == Some("")) {
        Some(name) => refuse!("{name} names no interface: weir filter -D lists those there are"),
        None => sources.iter().try_for_each(check_queue),
    }
}

/// Refuses sources with an unknown scheme, like `af_paket:eth0`, unless there is a file of that name.
pub fn check_schemes(sources: &[Name]) -> Result<(), Refusal> {
    let unknown = |source: &&Name| {
        scheme(source).is_some()
            && interface(source).is_none()
            && generated::wanted(source).is_none()
    };
    match sources
        .iter()
        .find(|source| unknown(source) && !Path::new(source).exists())
    {
        Some(name) => refuse!(
            "{name}: unknown capture method{}: af_packet:eth0, af_xdp:eth0 or dpdk:DEVICE (a file of this name: ./{name})",
            near_scheme(name, &["af_packet", "af_xdp", "dpdk", "generate"])
        ),
        None => Ok(()),
    }
}

/// The scheme that was meant, with the name as it would be.
pub(crate) fn near_scheme(name: &Name, known: &[&str]) -> String {
    let (scheme, rest) = name.utf8().split_once(':').unwrap_or(("", ""));
    match nearest(scheme, known.iter().copied()) {
        Some(near) => format!(" (did you mean {near}:{rest}?)"),
        None => String::new(),
    }
}

/// Text before the first colon, if it looks like a scheme rather than a part of a file name.
pub fn scheme(name: &Name) -> Option<&str> {
    let (scheme, _) = name.utf8().split_once(':')?;
    let looks = scheme.len() > 1
        && scheme.starts_with(|c: char| c.is_ascii_lowercase())
        && scheme
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    looks.then_some(scheme)
}

/// Refuses contradictory lists of sources.
pub fn check(sources: &[Name], follow: bool) -> Result<(), Refusal> {
    check_names(sources)?;
    if follow && sources.len() > 1 {
        refuse!("--follow never comes to the end of the first source: name only one");
    }
    if let Some(name) = sources.iter().find(|source| interface(source).is_some()) {
        if follow {
            refuse!(
                "{name} is an interface, which is captured until interrupted: leave --follow out"
            );
        }
        if let Some(file) = sources.iter().find(|source| interface(source).is_none()) {
            if !file.is_dash()
                && let Err(error) = std::fs::metadata(file)
            {
                return Err(Refusal(failed_line(file, &error, "")));
            }
            refuse!("{name} is an interface and {file} a file: read them in two runs");
        }
        let twice = |i: usize| {
            sources[..i]
                .iter()
                .any(|other| interface(other) == interface(&sources[i]))
        };
        if let Some(i) = (1..sources.len()).find(|&i| twice(i)) {
            refuse!(
                "{} is named twice, and its packets would come twice",
                sources[i]
            );
        }
        if sources.len() > 1 && sources.iter().any(|source| interface(source) == Some(ANY)) {
            refuse!("{ANY} stands for all interfaces: name no other one beside it");
        }
    }
    if sources.iter().filter(|source| source.is_dash()).count() > 1 {
        refuse!("standard input is named twice, and can be read once");
    }
    Ok(())
}

/// Refuses to sort an interface, whose capture has no end.
pub fn check_sort(sources: &[Name], sort: bool) -> Result<(), Refusal> {
    match sources.iter().find(|source| interface(source).is_some()) {
        Some(name) if sort => {
            refuse!(
                "--sort needs the end of each source, and {name} is an interface, whose capture has none"
            )
        }
        _ => Ok(()),
    }
}

/// Binds this thread to each processor of the list, in the end to the first. **Errors**: a
/// processor of the list that cannot be obtained.
pub fn check_cpus(cpus: &[usize]) -> Result<(), Refusal> {
    let pin = |cpu: usize| {
        weir_io::sys::pin(cpu)
            .map_err(|error| refusal!("--cpus: processor {cpu}: {}", io_words(&error)))
    };
    cpus.iter().rev().try_for_each(|&cpu| pin(cpu))
}

/// File format for the extension of a name. **Errors**: extensions of compressed files.
pub fn format_for(name: &Name) -> Result<Format, Refusal> {
    let extension = Path::new(name)
        .extension()
        .and_then(|extension| extension.to_str())
        .unwrap_or("");
    match extension.to_ascii_lowercase().as_str() {
        "pcap" | "cap" | "dmp" => Ok(Format::Pcap),
        "gz" | "zst" | "lz4" | "xz" | "bz2" => {
            refuse!(
                "{name}: captures are written uncompressed: write to - and pipe it, for instance `-w - | zstd >{name}`"
            )
        }
        _ => Ok(Format::Pcapng),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemes_are_told_from_file_names() {
        for name in ["af_paket:ux0", "generate:mwn", "xdp2:a:b", "file:"] {
            assert!(scheme(&Name::from(name)).is_some(), "{name}");
        }
        for name in [
            "./a_b:c",
            "dir/ab:c",
            "2026-11-22T10:00:00.pcap",
            "12:30.pcap",
            "c:dump",
            "Dump:1",
            "plain",
            "-",
            "",
        ] {
            assert!(scheme(&Name::from(name)).is_none(), "{name}");
        }
    }
}
