//! Comparing the printer with tcpdump, field by field, packet by packet.

use std::collections::BTreeMap;

use super::fields::{self, Fields, between};
use super::{Packet, texts};
use weir_packet::LinkType;
use weir_packet::line::{Hex, Style};

/// Counts of compared packets, and the differences found.
#[derive(Default)]
pub struct Tally {
    pub packets: usize,
    pub fields: BTreeMap<&'static str, usize>,
    pub intended: BTreeMap<&'static str, usize>,
    pub differences: Vec<String>,
}

impl Tally {
    pub fn total(&self) -> usize {
        self.fields.values().sum()
    }

    fn count(&mut self, field: &'static str) {
        *self.fields.entry(field).or_default() += 1;
    }
}

/// Intended differences: the reason, and a test of whether a field of a pair of lines (ours, tcpdump's) shows it.
type Intended = (&'static str, fn(&str, &str, &str) -> bool);

const INTENDED: &[Intended] = &[
    ("Marvell DSA frames have no printer", |_, _, theirs| {
        theirs.starts_with("DSA ") || theirs.contains("Marvell DSA")
    }),
    (
        "tcpdump decodes DNS and does not look at UDP's length",
        |field, ours, theirs| {
            field == "udp length" && ours.contains("UDP, bad length") && !theirs.contains("UDP")
        },
    ),
    (
        "tcpdump dumps ARP operations that it does not know",
        |field, _, theirs| field == "arp" && !theirs.contains(", length"),
    ),
    (
        "ports stand beside the addresses behind extension headers too",
        |field, ours, theirs| {
            let extended = ["frag (", "HBH", "DSTOPT", "srcrt", "AH("]
                .iter()
                .any(|header| theirs.contains(header));
            let (our_value, their_value) = (fields::get(ours, field), fields::get(theirs, field));
            matches!(field, "src" | "dst")
                && extended
                && our_value.starts_with(&format!("{their_value}."))
        },
    ),
    (
        "ICMP router advertisements and time stamps without their lists",
        |field, ours, _| {
            field == "icmp"
                && (ours.contains("router advertisement") || ours.contains("time stamp reply"))
        },
    ),
    (
        "TCP options are not read, so their end is not missed",
        |field, _, theirs| field == "cut" && theirs.contains(", options ["),
    ),
    (
        "the end of ICMP's lists and quoted packets is not missed where they are not read",
        |field, ours, theirs| {
            let unread = [
                "node information",
                "router advertisement",
                "time stamp reply",
                "time exceeded",
                "parameter problem",
            ];
            field == "cut"
                && theirs.contains("[|icmp")
                && unread.iter().any(|word| ours.contains(word))
        },
    ),
    (
        "ICMP's header is cut also where its last four bytes are not printed",
        |field, ours, theirs| {
            let marked = ours.ends_with("[|icmp]") || ours.ends_with("[|icmp6]");
            marked && !theirs.contains("[|") && matches!(field, "icmp" | "icmp6" | "cut")
        },
    ),
    (
        "the length is shown behind an ICMPv6 code that tcpdump does not know",
        |field, _, theirs| {
            field == "icmp6"
                && theirs.contains("unknown unreach code")
                && !theirs.contains("length")
        },
    ),
    ("AF_INET6 of Linux and Windows is known", |_, ours, _| {
        ours.contains("AF IPv6 (10)") || ours.contains("AF IPv6 (23)")
    }),
    (
        "tcpdump names interfaces after those of the machine it runs on",
        |field, _, theirs| field == "link header" && theirs.contains("ifindex"),
    ),
    (
        "802.11 frames show their kind and the two ends only",
        |field, ours, _| field == "link header" && ours.contains("802.11 "),
    ),
    ("UDP-Lite is known", |_, ours, _| ours.contains("UDP-Lite")),
    (
        "the upper header of a first fragment is marked too",
        |field, _, theirs| field == "cut" && theirs.contains(": frag ("),
    ),
    ("router renumbering without its commands", |_, ours, _| {
        ours.contains("router renumbering")
    }),
    (
        "tcpdump decodes the DNS of a first fragment",
        |field, ours, _| field == "udp length" && ours.contains("fragment ("),
    ),
    (
        "a total length of 0 is a segment not yet cut to size",
        |_, _, theirs| theirs.contains("bad-len 0"),
    ),
    (
        "a UDP length of 0 is a jumbogram's under IPv6",
        |_, _, theirs| theirs.contains("truncated-udplength 0"),
    ),
    ("multilink PPP is only named", |_, ours, _| {
        ours.contains("MLPPP")
    }),
    (
        "IP without a link header has none to show",
        |field, _, theirs| field == "link header" && theirs.starts_with("ip: "),
    ),
    (
        "LLC shows no flags, which are not TCP's",
        |field, ours, _| field == "tcp flags" && ours.contains("LLC, "),
    ),
    ("RPL is only named", |_, ours, _| {
        ours.contains("RPL, length")
    }),
    (
        "tcpdump reads hardware addresses of ARP over frame relay as a DLCI",
        |field, _, theirs| field == "arp" && theirs.contains("DLCI"),
    ),
    (
        "multicast listeners without delay, node information without names",
        |field, ours, _| {
            field == "icmp6"
                && (ours.contains("multicast listener") || ours.contains("node information"))
        },
    ),
    (
        "frame relay without the flags and names of its header",
        |field, ours, _| field == "link header" && ours.starts_with("Q.922"),
    ),
];

/// Compares every packet of one link type in every style of the printer.
pub fn all(tally: &mut Tally, name: &str, link: LinkType, packets: &[Packet]) {
    let plain = texts(&[], link, packets);
    let headers = texts(&["-e"], link, packets);
    let verbose = texts(&["-v"], link, packets);
    for (i, packet) in packets.iter().enumerate() {
        let ours = packet.line(link, &Style::default());
        let with_header = packet.line(
            link,
            &Style {
                link_header: true,
                hex: Hex::None,
            },
        );
        let what = format!("{name} packet {}", i + 1);
        let before = tally.total();
        one(tally, &what, &strip(&ours), &plain[i]);
        link_headers(tally, &what, &strip(&with_header), &headers[i]);
        fragments(tally, &what, &ours, &verbose[i]);
        tally.packets += usize::from(tally.total() > before);
    }
}

/// The line without the note about captured bytes, which tcpdump does not have.
fn strip(ours: &str) -> String {
    match ours.rfind(" [") {
        Some(at) if ours.ends_with(" bytes captured]") => {
            ours[..at].trim_end_matches([':', ',', ' ']).to_owned()
        }
        _ => ours.to_owned(),
    }
}

/// Compares one pair of lines: every field of tcpdump's line must be in ours, with the same value.
fn one(tally: &mut Tally, what: &str, ours: &str, theirs: &str) {
    let (our_fields, their_fields) = (fields::read(ours), fields::read(theirs));
    for (field, value) in &their_fields {
        check(
            tally,
            what,
            field,
            find(&our_fields, field),
            value,
            ours,
            theirs,
        );
    }
    if let (false, Some(mark)) = (theirs.contains("[|"), find(&our_fields, "cut")) {
        check(tally, what, "cut", Some(mark), "nothing", ours, theirs);
    }
}

fn find<'a>(fields: &'a Fields, name: &str) -> Option<&'a str> {
    fields
        .iter()
        .find(|field| field.0 == name)
        .map(|field| field.1.as_str())
}

fn check(
    tally: &mut Tally,
    what: &str,
    field: &'static str,
    our_value: Option<&str>,
    value: &str,
    ours: &str,
    theirs: &str,
) {
    if our_value == Some(value) {
        return tally.count(field);
    }
    if let Some((name, _)) = INTENDED
        .iter()
        .find(|(_, shows)| shows(field, ours, theirs))
    {
        *tally.intended.entry(name).or_default() += 1;
        return;
    }
    let theirs = theirs.lines().next().unwrap_or("");
    tally.differences.push(format!(
        "{what}, {field}: {our_value:?}, not {value:?}\n  ours   {ours}\n  theirs {theirs}"
    ));
}

/// Texts that mark a line of `-e` as one with a link header.
const LINK_HEADERS: [&str; 4] = ["ethertype ", "802.3, ", "AF ", "IP6 (0x"];

/// Compares addresses, types and lengths of the link header, and VLAN tags.
fn link_headers(tally: &mut Tally, what: &str, ours: &str, theirs: &str) {
    let (our_tags, their_tags) = (fields::vlans(ours), fields::vlans(theirs));
    if !their_tags.is_empty() {
        check(
            tally,
            what,
            "vlan",
            Some(&our_tags.join("; ")),
            &their_tags.join("; "),
            ours,
            theirs,
        );
    }
    if let Some(header) = fields::link_header(theirs)
        .filter(|header| LINK_HEADERS.iter().any(|mark| header.contains(mark)))
    {
        let our_header = fields::link_header(ours);
        check(
            tally,
            what,
            "link header",
            our_header.as_deref(),
            &header,
            ours,
            theirs,
        );
    }
}

/// Compares protocol number, and identity, offset and flags of IPv4 fragments, with the header that `-v` prints.
fn fragments(tally: &mut Tally, what: &str, ours: &str, theirs: &str) {
    let Some(at) = theirs.find("IP (tos ") else {
        return fragments6(tally, what, ours, theirs);
    };
    if ours.contains("IP ") || ours.contains("GREv") || theirs[..at].contains(" > ") {
        return; // a tunnel: either header may be printed first
    }
    let head = &theirs[at..];
    let (Some(id), Some(offset), Some(flags)) = (
        between(head, ", id ", &[',']),
        between(head, ", offset ", &[',']),
        between(head, ", flags [", &[']']),
    ) else {
        return;
    };
    let more = flags.contains('+');
    let their_text = (more || offset != "0").then(|| {
        format!(
            "id {id}, offset {offset}{}",
            if more { ", more" } else { "" }
        )
    });
    let our_text =
        our_fragment(ours).map(|(id, offset, _, more)| format!("id {id}, offset {offset}{more}"));
    let their_text = their_text.unwrap_or_else(|| "none".to_owned());
    if let Some(number) = between(head, ", proto ", &[','])
        .and_then(|proto| proto.strip_suffix(')')?.rsplit('(').next())
    {
        check(
            tally,
            what,
            "protocol",
            fields::protocol(ours).as_deref(),
            number,
            ours,
            theirs,
        );
    }
    check(
        tally,
        what,
        "fragment",
        Some(our_text.as_deref().unwrap_or("none")),
        &their_text,
        ours,
        theirs,
    );
}

/// Compares identity, offset and length of IPv6 fragments: `frag (0x00000001:0|456)`.
fn fragments6(tally: &mut Tally, what: &str, ours: &str, theirs: &str) {
    let Some(text) = between(theirs, "frag (", &[')']) else {
        return;
    };
    let our_text =
        our_fragment(ours).map(|(id, offset, length, _)| format!("{id}:{offset}|{length}"));
    check(
        tally,
        what,
        "fragment6",
        our_text.as_deref(),
        text,
        ours,
        theirs,
    );
}

/// `(id, offset, length, ", more" or nothing)` of `fragment (id 7, offset 0, length 8, more)`.
fn our_fragment(ours: &str) -> Option<(&str, &str, &str, &str)> {
    let text = between(ours, "fragment (", &[')'])?;
    let more = if text.ends_with(", more") {
        ", more"
    } else {
        ""
    };
    Some((
        between(text, "id ", &[','])?,
        between(text, "offset ", &[','])?,
        between(text, "length ", &[','])?,
        more,
    ))
}

/// tcpdump 4.99 counts five bytes of PPP header although there are four, so its dump begins inside the IP header.
const PPP_DUMP: &str = "tcpdump's dump of a PPP packet begins too late";

/// Compares the hex dumps of all packets, in all four forms.
pub fn dumps(tally: &mut Tally, name: &str, link: LinkType, packets: &[Packet]) {
    for (flag, hex) in [
        ("-x", Hex::Hex),
        ("-X", Hex::HexAscii),
        ("-xx", Hex::FrameHex),
        ("-XX", Hex::FrameHexAscii),
    ] {
        let theirs = texts(&[flag], link, packets);
        for (i, packet) in packets.iter().enumerate() {
            // If tcpdump cannot print a packet, it dumps the packet unasked; if the headers were cut, it dumps from the
            // first byte of the frame. So only packets that tcpdump calls IP are compared, on captures with complete
            // packets.
            if !theirs[i].starts_with("IP") {
                continue;
            }
            let ours = packet.line(
                link,
                &Style {
                    link_header: false,
                    hex,
                },
            );
            let (ours, theirs) = (dump_lines(&ours), dump_lines(&theirs[i]));
            if ours == theirs {
                tally.count(flag);
            } else if link == LinkType::PPP && flag.len() == 2 {
                *tally.intended.entry(PPP_DUMP).or_default() += 1;
            } else {
                tally.differences.push(format!(
                    "{name} packet {} {flag}:\n{ours}\nnot\n{theirs}",
                    i + 1
                ));
            }
        }
    }
}

fn dump_lines(text: &str) -> String {
    text.lines()
        .filter(|line| line.starts_with("\t0x"))
        .collect::<Vec<_>>()
        .join("\n")
}
