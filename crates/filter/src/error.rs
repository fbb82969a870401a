//! Why an expression or a program was refused.

use std::ops::Range;

/// Everything that can go wrong before the first packet; afterwards there are only verdicts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The expression holds a zero byte, which would end it early for libpcap.
    #[error("the expression has a NUL byte at offset {offset}")]
    Nul {
        /// Byte offset within the expression.
        offset: usize,
    },
    /// The expression is longer than libpcap's recursive compiler can be trusted with.
    #[error("the expression has {length} bytes, at most {limit} are accepted")]
    TooLong {
        /// Bytes given.
        length: usize,
        /// Bytes accepted.
        limit: usize,
    },
    /// A name would be sent to a resolver, and that was not allowed.
    #[error(
        "\"{name}\" is a {what} name and would be looked up over the network: write its address, or allow it with --resolve"
    )]
    Name {
        /// The name as written.
        name: String,
        /// What the grammar takes it for: `host`, `network`, ...
        what: &'static str,
        /// Where it stands, in bytes of the expression.
        span: Range<usize>,
    },
    /// libpcap refused the expression; the words are its own.
    #[error("{message}{}", hint(word.as_deref()))]
    Refused {
        /// `pcap_geterr`'s text.
        message: String,
        /// The first word that is no keyword and stands where no name can, if there is one.
        word: Option<String>,
    },
    /// Only the kernel could answer the expression: it asks for more than a packet's bytes and direction.
    #[error(
        "it asks for what only the kernel knows of a packet, as ifindex does: \
        capture from the interface itself, or from all interfaces (any), whose packets say which one it was"
    )]
    Ancillary,
    /// A program is not one that can be run on any packet and come to an end.
    #[error("instruction {index}: {reason}")]
    Program {
        /// Index of the instruction, from 0.
        index: usize,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The code generator could not make native code here; the interpreter still runs the program.
    #[error("no native code: {reason}")]
    Native {
        /// The generator's words.
        reason: String,
    },
}

fn hint(word: Option<&str>) -> String {
    word.map(|word| format!(" (\"{word}\" is no keyword; a name needs host, net, port or the like before it)"))
        .unwrap_or_default()
}
