//! A tolerant reader of tcpdump's lines, which resemble the printer's lines enough to be read by the same code.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Fields found in a line: name of the field and its text.
pub type Fields = Vec<(&'static str, String)>;

/// The outermost addresses of a line, each with its port if it has one, and the offset of the text behind them.
pub fn addresses(line: &str) -> Option<(String, String, usize)> {
    for (at, _) in line.match_indices(" > ") {
        let before = line[..at].rsplit(' ').next().unwrap_or("");
        let behind = line[at + 3..].split([' ', '\n']).next().unwrap_or("");
        let Some(dst) = behind.strip_suffix(':') else {
            continue;
        };
        if is_address(before) && is_address(dst) {
            return Some((
                before.to_owned(),
                dst.to_owned(),
                (at + 3 + behind.len() + 1).min(line.len()),
            ));
        }
    }
    None
}

fn is_address(text: &str) -> bool {
    let bare = |text: &str| text.parse::<Ipv4Addr>().is_ok() || text.parse::<Ipv6Addr>().is_ok();
    let with_port = text
        .rsplit_once('.')
        .is_some_and(|(address, port)| bare(address) && port.parse::<u16>().is_ok());
    bare(text) || with_port
}

/// The text between two marks; up to the end if the second mark is absent.
pub fn between<'a>(text: &'a str, start: &str, end: &[char]) -> Option<&'a str> {
    let rest = &text[text.find(start)? + start.len()..];
    Some(rest.split(end).next().unwrap_or(rest))
}

/// Every field of a line. `-e` and plain lines are both understood.
pub fn read(line: &str) -> Fields {
    let mut found = Fields::new();
    let first = line.lines().next().unwrap_or("");
    match addresses(first) {
        Some((src, dst, at)) => {
            let domain = [&src, &dst]
                .iter()
                .any(|end| end.ends_with(".53") || end.ends_with(".5353"));
            found.push(("src", src));
            found.push(("dst", dst));
            transport(&first[at..], domain, &mut found);
        }
        None => {
            if let Some(rest) = first
                .split_once("ARP, ")
                .map(|(_, rest)| rest)
                .filter(|rest| !rest.contains("[|"))
            {
                found.push(("arp", rest.trim_end().to_owned()));
            }
        }
    }
    found
}

fn transport(rest: &str, domain: bool, found: &mut Fields) {
    if let Some(flags) = between(rest, "Flags [", &[']']) {
        found.push(("tcp flags", flags.to_owned()));
        let behind = &rest[rest.find("Flags [").unwrap_or(0)..];
        // Options are printed between the window and the length and may contain any text.
        let head = behind.split(", options [").next().unwrap_or(behind);
        for (name, mark) in [
            ("tcp seq", ", seq "),
            ("tcp ack", ", ack "),
            ("tcp win", ", win "),
            ("tcp urg", ", urg "),
        ] {
            if let Some(value) = between(head, mark, &[',', ' ']) {
                found.push((name, value.to_owned()));
            }
        }
        if let Some(value) = between(
            behind.split(", win ").nth(1).unwrap_or(""),
            ", length ",
            &[':', ',', ' '],
        ) {
            found.push(("tcp length", value.to_owned()));
        }
    } else if let Some(length) = between(rest, "UDP, length ", &[',', ' ']) {
        found.push(("udp length", length.to_owned()));
    } else if let Some(length) = between(rest, "UDP, bad length ", &[',', '[']) {
        found.push(("udp bad length", length.trim_end().to_owned()));
    } else if let Some((_, length)) = rest
        .strip_suffix(')')
        .and_then(|rest| rest.rsplit_once('('))
        .filter(|(_, length)| domain && length.bytes().all(|byte| byte.is_ascii_digit()))
        && !rest.contains("[|")
    {
        found.push(("udp length", length.to_owned()));
    }
    for (name, mark) in [("icmp", "ICMP "), ("icmp6", "ICMP6, ")] {
        if let Some(at) = rest.find(mark) {
            let text = rest[at + mark.len()..]
                .split(", fragment (")
                .next()
                .unwrap_or("")
                .trim_end();
            // If the captured bytes end, the printers stop at different points; the mark of that is compared below.
            if !text.contains("[|") {
                found.push((name, text.replace("  ", " ")));
            }
        }
    }
    for mark in ["[|tcp]", "[|udp]", "[|icmp]", "[|icmp6]"] {
        if rest.contains(mark) {
            found.push(("cut", mark.to_owned()));
        }
    }
}

/// The VLAN tags of a `-e` line.
pub fn vlans(line: &str) -> Vec<String> {
    let first = line.lines().next().unwrap_or("");
    let tags = first.match_indices("vlan ").map(|(at, _)| {
        let mut parts = first[at..].split(", ");
        let mut tag = format!(
            "{}, {}",
            parts.next().unwrap_or(""),
            parts.next().unwrap_or("")
        );
        if parts.next() == Some("DEI") {
            tag.push_str(", DEI");
        }
        tag
    });
    tags.collect()
}

/// The link header of a `-e` line, up to and with its length.
pub fn link_header(line: &str) -> Option<String> {
    let first = line.lines().next().unwrap_or("");
    let at = first.find(", length ")?;
    let end = first[at + 9..]
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(first.len() - at - 9);
    Some(first[..at + 9 + end].to_owned())
}

/// A field of a line; empty if the line does not hold the field.
pub fn get(line: &str, name: &str) -> String {
    read(line)
        .into_iter()
        .find(|field| field.0 == name)
        .map(|field| field.1)
        .unwrap_or_default()
}

/// The number of the protocol whose name is printed behind the outermost addresses.
pub fn protocol(ours: &str) -> Option<String> {
    const WORDS: &[(&str, u8)] = &[
        ("Flags [", 6),
        ("tcp ", 6),
        ("[|tcp]", 6),
        ("UDP-Lite", 136),
        ("UDP", 17),
        ("truncated-udp", 17),
        ("[|udp]", 17),
        ("ICMP ", 1),
        ("[ICMP6 ", 58),
        ("igmp", 2),
        ("GREv", 47),
        ("[|gre]", 47),
        ("sctp", 132),
        ("DCCP", 33),
        ("[|dccp]", 33),
        ("IP6 ", 41),
        ("IP ", 4),
        ("ESP(", 50),
        ("AH(", 51),
        ("EIGRP", 88),
        ("OSPFv", 89),
        ("PIMv", 103),
        ("VRRPv", 112),
        ("IPComp(", 108),
        ("RSVP", 46),
        ("L2TPv3", 115),
        ("etherip", 97),
        ("MPLS", 137),
        ("[|icmp]", 1),
        ("[|igmp]", 2),
        ("[|sctp]", 132),
        ("[|esp]", 50),
        ("[|ah]", 51),
        ("bad-ah", 51),
        ("[|udplite]", 136),
        ("Ethernet, ", 143),
        ("[|eigrp]", 88),
        ("[|ospf]", 89),
        ("[|pim]", 103),
        ("[|vrrp]", 112),
        ("[|etherip]", 97),
        ("[|ipcomp]", 108),
    ];
    let (_, _, at) = addresses(ours)?;
    let rest = ours[at..].trim_start();
    if let Some(number) = rest.strip_prefix("ip-proto-") {
        return Some(number.split([' ', ',']).next()?.to_owned());
    }
    let word = WORDS.iter().find(|(word, _)| rest.starts_with(word))?;
    Some(word.1.to_string())
}
