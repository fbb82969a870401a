//! Comparing the printer's lines with tcpdump's, byte for byte, by protocol.

use std::collections::BTreeMap;

use super::{Packet, lines, texts};
use weir_packet::LinkType;
use weir_packet::line::{Detail, Hex, Style};

/// Counts of compared packets, and the differences found.
#[derive(Default)]
pub struct Tally {
    /// Equal lines and all lines of each protocol.
    pub kinds: BTreeMap<&'static str, [usize; 2]>,
    pub differences: Vec<String>,
}

/// The protocols whose lines have to equal tcpdump's.
pub const EQUAL: [&str; 13] = [
    "TCP", "UDP", "DNS", "ARP", "IP", "ICMP", "ICMPv6", "Ethernet", "SIP", "PPPoE", "SCTP", "DHCP",
    "STP",
];

/// Protocol of a line of tcpdump: the innermost one that it names.
pub fn kind(line: &str) -> &'static str {
    let has = |words: &[&str]| words.iter().any(|word| line.contains(word));
    // Application protocols that are tcpdump's.
    if has(&[
        "RESP", "BGP", "isakmp", "babel", "mptcp", "DSA ", "LLDP", "CDPv", "GREv", "mobility",
        "802.11", "SLARP",
    ]) {
        "other"
    } else if line.starts_with("STP") {
        "STP"
    } else if has(&["Flags [", "[bad hdr length", "[|tcp]"]) {
        "TCP"
    } else if has(&["ARP, ", "[|arp]"]) {
        "ARP"
    } else if has(&["ICMP6"]) {
        "ICMPv6"
    } else if has(&["ICMP "]) {
        "ICMP"
    } else if has(&["SIP"]) {
        "SIP"
    } else if has(&["[|domain]", "domain [", ".53: ", ".53 > ", ".5353"]) {
        "DNS"
    } else if has(&["BOOTP"]) {
        "DHCP"
    } else if has(&["sctp"]) {
        "SCTP"
    } else if has(&["PPPoE"]) {
        "PPPoE"
    } else if has(&["UDP, ", "truncated-udp"]) {
        "UDP"
    } else if has(&["ethertype Unknown"]) {
        "Ethernet"
    } else if has(&[
        "ip-proto-",
        "frag (",
        "bad-hlen",
        "bad-len",
        "truncated-ip",
        "(invalid)",
    ]) {
        "IP"
    } else {
        "other"
    }
}

impl Tally {
    /// Compares two texts, and counts them for the protocol that tcpdump's names.
    pub fn compare(&mut self, what: &str, ours: &str, theirs: &str) {
        let counts = self.kinds.entry(kind(theirs)).or_default();
        counts[1] += 1;
        if ours == theirs {
            counts[0] += 1;
        } else if self.differences.len() < 2000 {
            let difference = format!("{what}\n  ours   {ours}\n  theirs {theirs}");
            // Those that fail a test stand first.
            match EQUAL.contains(&kind(theirs)) {
                true => self.differences.insert(0, difference),
                false => self.differences.push(difference),
            }
        }
    }

    /// Equal lines and all lines.
    pub fn total(&self) -> [usize; 2] {
        self.kinds.values().fold([0, 0], |sum, counts| {
            [sum[0] + counts[0], sum[1] + counts[1]]
        })
    }

    /// Prints the counts, and fails if of a protocol of [`EQUAL`] fewer lines are equal than `least` in a hundred.
    pub fn report(&self, least: f64) {
        for (kind, [equal, all]) in &self.kinds {
            println!("{kind:<9} {equal:>6} of {all:>6} lines equal");
        }
        let [equal, all] = self.total();
        println!("{equal} of {all} lines equal; some that are not:");
        self.differences
            .iter()
            .take(40)
            .for_each(|difference| println!("{difference}"));
        for kind in EQUAL {
            let [equal, all] = self.kinds.get(kind).copied().unwrap_or_default();
            let share = 100.0 * equal as f64 / all.max(1) as f64;
            assert!(
                share >= least || all == 0,
                "{kind}: {share:.2} % of {all} lines"
            );
        }
    }
}

/// Flags of tcpdump, and the style that they are.
pub fn styles() -> Vec<(&'static [&'static str], Style)> {
    let style = Style::default();
    vec![
        (&[], style),
        (
            &["-e"],
            Style {
                link_header: true,
                ..style
            },
        ),
        (
            &["-S"],
            Style {
                absolute: true,
                ..style
            },
        ),
        (
            &["-q"],
            Style {
                detail: Detail::Quiet,
                ..style
            },
        ),
    ]
}

/// Compares every packet in every style.
pub fn all(tally: &mut Tally, name: &str, link: LinkType, packets: &[Packet]) {
    for (flags, style) in styles() {
        let theirs = texts(flags, link, packets);
        let ours = lines(link, packets, &style);
        for (number, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
            tally.compare(
                &format!("{name} {flags:?} packet {}", number + 1),
                ours,
                theirs,
            );
        }
    }
}

/// Captures where `-x` and `-X` begin elsewhere: tcpdump counts LLC and DSA tags as link layer.
fn begins_elsewhere(theirs: &str) -> bool {
    [
        "LLDP", "CDPv", "STP", "DSA ", "IS-IS", "ES-IS", "SNAP", "802.11", "MLPPP", "CHDLC", "[|",
        "frag",
    ]
    .iter()
    .any(|word| theirs.contains(word))
}

/// Compares the hex dumps of every packet, byte for byte.
pub fn dumps(tally: &mut Tally, name: &str, link: LinkType, packets: &[Packet]) {
    for (flag, hex) in [
        ("-x", Hex::Hex),
        ("-X", Hex::HexAscii),
        ("-xx", Hex::FrameHex),
        ("-XX", Hex::FrameHexAscii),
        ("-A", Hex::Ascii),
        ("-AA", Hex::FrameAscii),
    ] {
        let whole = flag.len() == 3;
        let theirs = texts(&[flag], link, packets);
        let style = Style {
            hex,
            ..Style::default()
        };
        let ours = lines(link, packets, &style);
        for (number, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
            let (first, dump) = theirs.split_once('\n').unwrap_or((theirs, ""));
            if kind(first) == "other" || !whole && begins_elsewhere(first) {
                continue;
            }
            let own = ours.split_once('\n').map_or("", |(_, dump)| dump);
            tally.compare(&format!("{name} {flag} packet {}", number + 1), own, dump);
        }
    }
}
