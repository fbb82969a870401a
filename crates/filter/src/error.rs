//! Errors of expressions and programs.

use std::ops::Range;

/// Errors before the first packet; afterwards there are only verdicts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The expression holds a zero byte, which would end it early for libpcap.
    #[error("the expression has a NUL byte at offset {offset}")]
    Nul {
        /// Byte offset within the expression.
        offset: usize,
    },
    /// The expression is too long for libpcap's recursive compiler.
    #[error("the expression has {length} bytes, at most {limit} are accepted")]
    TooLong {
        /// Bytes given.
        length: usize,
        /// Bytes accepted.
        limit: usize,
    },
    /// A name would be sent to a resolver, although that is not allowed.
    #[error(
        "\"{name}\" is a {what} name and would be looked up over the network: write its address, or allow it with --resolve"
    )]
    Name {
        /// The name as written.
        name: String,
        /// Kind of the name in the grammar: `host`, `network`, ...
        what: &'static str,
        /// Place of the name, in bytes of the expression.
        span: Range<usize>,
    },
    /// A set of addresses that nobody defined.
    #[error("there is no set \"@{name}\": {}", defined(known))]
    UnknownSet {
        /// The name, without the `@`.
        name: String,
        /// Names of the sets that there are.
        known: Vec<String>,
        /// Place of the word, in bytes of the expression.
        span: Range<usize>,
    },
    /// A set of addresses at a place where none can be.
    #[error("\"@{name}\" {reason}")]
    SetPlace {
        /// The name, without the `@`.
        name: String,
        /// Reason.
        reason: &'static str,
        /// Place of the word, in bytes of the expression.
        span: Range<usize>,
    },
    /// libpcap refused the expression; the message is its own.
    #[error("{message}{}", hint(message, word.as_deref()))]
    Refused {
        /// `pcap_geterr`'s text.
        message: String,
        /// The first word that is not a keyword, at a place where no name is allowed.
        word: Option<String>,
    },
    /// Only the kernel could evaluate the expression: it needs more than a packet's bytes and direction.
    #[error(
        "it asks for what only the kernel knows of a packet, as ifindex does: \
        capture from the interface itself, or from all interfaces (any), whose packets say which one it was"
    )]
    Ancillary,
    /// The program might fail, or run without end, on some packet.
    #[error("instruction {index}: {reason}")]
    Program {
        /// Index of the instruction, from 0.
        index: usize,
        /// Reason for the refusal.
        reason: &'static str,
    },
    /// Native code cannot be generated here; the interpreter still runs the program.
    #[error("no native code: {reason}")]
    Native {
        /// The code generator's message.
        reason: String,
    },
}

fn defined(known: &[String]) -> String {
    /// Number of names that are listed.
    const MOST: usize = 20;
    if known.is_empty() {
        return "no set is defined; --set NAME=FILE defines one, and in rules a line set NAME"
            .to_owned();
    }
    let names: Vec<_> = known
        .iter()
        .take(MOST)
        .map(|name| format!("@{name}"))
        .collect();
    let more = if known.len() > MOST {
        " and others"
    } else {
        ""
    };
    format!("those given are {}{more}", names.join(", "))
}

/// Words after which tcpdump's language wants another one.
pub(crate) const UNFINISHED: [&str; 8] = [
    "host",
    "net",
    "port",
    "src",
    "dst",
    "proto",
    "portrange",
    "ether",
];

/// Words of nftables and of rules, which an expression does not have.
pub(crate) const ACTIONS: [&str; 4] = ["accept", "drop", "reject", "counter"];

/// Services that newcomers name as if they were protocols of the language, and their expressions.
const SERVICES: [(&str, &str); 12] = [
    ("http", "tcp port 80"),
    ("https", "tcp port 443"),
    ("tls", "tcp port 443"),
    ("quic", "udp port 443"),
    ("dns", "port 53"),
    ("dhcp", "udp port 67 or 68"),
    ("ntp", "udp port 123"),
    ("ssh", "tcp port 22"),
    ("smtp", "tcp port 25"),
    ("vxlan", "udp port 4789; --inner judges the packet inside"),
    ("gre", "ip proto 47; --inner judges the packet inside"),
    ("gtp", "udp port 2152; --inner judges the packet inside"),
];

/// Reasons of libpcap that do not say what is right, and what is.
const REMEDIES: [(&str, &str); 3] = [
    (
        "illegal link layer address",
        "ether takes an address such as 00:11:22:33:44:55, and host 10.0.0.1 is for IP",
    ),
    (
        "non-network bits set",
        "behind the prefix all bits are 0, as in net 10.0.0.0/8",
    ),
    (
        "invalid IPv4 address",
        "four numbers up to 255, as in 10.0.0.1",
    ),
];

fn hint(message: &str, word: Option<&str>) -> String {
    let Some(word) = word else {
        let known = REMEDIES.iter().find(|(why, _)| message.contains(why));
        return known.map_or_else(String::new, |(_, right)| format!(" ({right})"));
    };
    if let Some((_, right)) = SERVICES.iter().find(|(service, _)| *service == word) {
        return format!(" (\"{word}\" is not a keyword; in tcpdump's language: {right})");
    }
    let field = word.split_once('.').map(|(protocol, _)| protocol);
    match field {
        Some("ip" | "ipv6" | "tcp" | "udp" | "eth" | "frame" | "dns" | "http" | "tls") => format!(
            " (\"{word}\" is a field of Wireshark; in tcpdump's language: host 10.0.0.1, tcp port 443)"
        ),
        _ if UNFINISHED.contains(&word) => {
            format!(" (it ends too early: a number or a name follows \"{word}\")")
        }
        _ => format!(
            " (\"{word}\" is not a keyword; a name needs host, net, port or the like before it)"
        ),
    }
}
