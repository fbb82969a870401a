//! Rule lists in the language of weir and of nftables: the same conditions in the same order.

use std::fmt::Write;
use std::net::Ipv4Addr;

/// A rule list for both. The last rule passes the sender's frames, and no rule before it matches one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum List {
    /// Rule that passes, alone: forwarding without a list.
    One,
    /// Rules by prefixes of the source.
    Sources,
    /// Rules by ports of the destination.
    Ports,
    /// Rules by prefixes of source and destination, which match, and by ports.
    Both,
    /// One rule by a set of the sources of [`Self::Sources`].
    Set,
}

impl List {
    /// Name of the list.
    pub fn name(self) -> &'static str {
        match self {
            Self::One => "one rule",
            Self::Sources => "by sources",
            Self::Ports => "by ports",
            Self::Both => "by prefixes and ports",
            Self::Set => "a set of sources",
        }
    }

    /// Text for weir, with `count` rules or members.
    pub fn weir(self, count: u32) -> String {
        let mut text = "default drop\n".to_owned();
        if self == Self::Set {
            text += "set sources";
            (0..count).for_each(|i| write!(text, " {}", prefix(i)).expect("a text has room"));
            text += "\ndrop src $sources\n";
        }
        for i in 0..count {
            let line = match self {
                Self::One | Self::Set => break,
                Self::Sources => format!("drop src {}", prefix(i)),
                Self::Ports => format!("drop udp dport {}", port(i)),
                Self::Both => format!("drop src 10.1.0.0/16 dst 10.2.0.0/16 udp dport {}", port(i)),
            };
            text += &line;
            text.push('\n');
        }
        text + "pass src 10.1.0.0/16\n"
    }

    /// Text for `nft -f`, in a table of this family and its chain at the hook forward.
    pub fn nft(self, count: u32, family: &str) -> String {
        let mut text =
            format!("table {family} filter {{\ncounter passed {{ }}\ncounter denied {{ }}\n");
        if self == Self::Set {
            let members: Vec<String> = (0..count).map(|i| prefix(i).to_string()).collect();
            let _ = writeln!(
                text,
                "set sources {{ type ipv4_addr; flags interval; elements = {{ {} }}; }}",
                members.join(", ")
            );
        }
        text += "chain forward {\ntype filter hook forward priority 0; policy accept;\n";
        if self == Self::Set {
            text += "ip saddr @sources drop\n";
        }
        for i in 0..count {
            let line = match self {
                Self::One | Self::Set => break,
                Self::Sources => format!("ip saddr {} drop", prefix(i)),
                Self::Ports => format!("udp dport {} drop", port(i)),
                Self::Both => {
                    format!(
                        "ip saddr 10.1.0.0/16 ip daddr 10.2.0.0/16 udp dport {} drop",
                        port(i)
                    )
                }
            };
            text += &line;
            text.push('\n');
        }
        text + "ip saddr 10.1.0.0/16 counter name passed accept\ncounter name denied drop\n}\n}\n"
    }
}

/// A prefix of 24 bits from which no frame comes.
fn prefix(number: u32) -> Prefix {
    // No two are neighbors, which would be one member of a set.
    Prefix((172 << 24 | 16 << 16) + (number << 9))
}

/// A port to which no frame goes.
fn port(number: u32) -> u32 {
    10_000 + number
}

struct Prefix(u32);

impl std::fmt::Display for Prefix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/24", Ipv4Addr::from(self.0))
    }
}
