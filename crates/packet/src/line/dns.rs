//! DNS (RFC 1035) and multicast DNS (RFC 6762): a message on one line, questions and answers.
//!
//! Names are read here as tcpdump reads them, and not by [`crate::dns`], because malformed names are printed as far as they go.

use super::text::{Line, Printed, array, be16, put};
use crate::dns::{HEADER, Header};

/// Operations, with a space in front of each name.
const OPERATIONS: [&str; 16] = [
    "",
    " inv_q",
    " stat",
    " op3",
    " notify",
    " update",
    " op6",
    " op7",
    " op8",
    " updateA",
    " updateD",
    " updateDA",
    " updateM",
    " updateMA",
    " zoneInit",
    " zoneRef",
];

/// Results, with a space in front of each name.
const RESULTS: [&str; 16] = [
    "",
    " FormErr",
    " ServFail",
    " NXDomain",
    " NotImp",
    " Refused",
    " YXDomain",
    " YXRRSet",
    " NXRRSet",
    " NotAuth",
    " NotZone",
    " Resp11",
    " Resp12",
    " Resp13",
    " Resp14",
    " NoChange",
];

/// Names of record types 1 to 48; `kind_name` has the higher ones.
const KINDS: [&str; 48] = [
    "A", "NS", "MD", "MF", "CNAME", "SOA", "MB", "MG", "MR", "NULL", "WKS", "PTR", "HINFO",
    "MINFO", "MX", "TXT", "RP", "AFSDB", "X25", "ISDN", "RT", "NSAP", "NSAP_PTR", "SIG", "KEY",
    "PX", "GPOS", "AAAA", "LOC", "NXT", "EID", "NIMLOC", "SRV", "ATMA", "NAPTR", "KX", "CERT",
    "A6", "DNAME", "SINK", "OPT", "APL", "DS", "SSHFP", "IPSECKEY", "RRSIG", "NSEC", "DNSKEY",
];

fn kind_name(kind: u16) -> Option<&'static str> {
    Some(match kind {
        1..=48 => KINDS[usize::from(kind) - 1],
        99 => "SPF",
        100 => "UINFO",
        101 => "UID",
        102 => "GID",
        103 => "UNSPEC",
        104 => "UNSPECA",
        249 => "TKEY",
        250 => "TSIG",
        251 => "IXFR",
        252 => "AXFR",
        253 => "MAILB",
        254 => "MAILA",
        255 => "ANY",
        256 => "URI",
        _ => return None,
    })
}

fn write_kind(line: &mut Line<'_>, kind: u16) {
    match kind_name(kind) {
        Some(name) => line.text(name),
        None => put!(line, "Type{kind}"),
    }
}

/// Appends a class unless it is the Internet's, with a space in front.
fn write_class(line: &mut Line<'_>, class: u16) {
    match class {
        1 => {}
        3 => line.text(" CHAOS"),
        4 => line.text(" HS"),
        255 => line.text(" ANY"),
        other => put!(line, " (Class {other})"),
    }
}

/// A message over TCP, after its length in two bytes.
pub(super) fn over_tcp(line: &mut Line<'_>, data: &[u8], length: usize) -> Printed {
    if length < 2 {
        put!(line, " [DNS over TCP: length {length} < 2] (invalid)");
        return Some(());
    }
    let (claimed, length) = (usize::from(be16(data, 0)?), length - 2);
    if length >= HEADER && claimed != length {
        put!(
            line,
            " [prefix length({claimed}) != length({length})] (invalid)"
        );
        return Some(());
    }
    line.text(" ");
    message(line, data.get(2..)?, length, false)
}

/// Prints `4660+ A? example.com. (29)`, or `4660 1/0/0 A 192.0.2.1 (45)`. `data` ends with the message.
pub(super) fn message(line: &mut Line<'_>, data: &[u8], length: usize, multicast: bool) -> Printed {
    if length < HEADER {
        put!(line, "domain [length {length} < {HEADER}] (invalid)");
        return Some(());
    }
    let start = line.place();
    let header = Header::read(data)?;
    let mut reader = Reader {
        data,
        at: HEADER,
        multicast,
    };
    let printed = match header.is_response() {
        true => answer(line, header, &mut reader),
        false => query(line, header, &mut reader),
    };
    debug_assert!(line.place() >= start, "nothing is taken back");
    printed?;
    put!(line, " ({length})");
    Some(())
}

fn answer(line: &mut Line<'_>, header: Header, reader: &mut Reader<'_>) -> Printed {
    let [questions, answers, authorities, additional] = header.counts;
    let flag = |bit: u16, name: &'static str| if header.flags & bit != 0 { name } else { "" };
    line.dec(u32::from(header.id));
    line.text(OPERATIONS[usize::from(header.opcode())]);
    line.text(RESULTS[usize::from(header.rcode())]);
    line.text(flag(0x0400, "*"));
    line.text(if header.flags & 0x0080 == 0 { "-" } else { "" });
    line.text(flag(0x0200, "|"));
    line.text(flag(0x0020, "$"));
    if questions != 1 {
        put!(line, " [{questions}q]");
    }
    for index in 0..questions {
        line.text(if index > 0 { "," } else { "" });
        reader.skip_name()?;
        reader.at += 4;
        if reader.at >= reader.data.len()
            && (index + 1 < questions || reader.at > reader.data.len())
        {
            return None;
        }
    }
    put!(line, " {answers}/{authorities}/{additional}");
    for index in 0..answers {
        if index > 0 {
            if reader.at >= reader.data.len() {
                return None;
            }
            line.text(",");
        }
        record(line, reader)?;
    }
    Some(())
}

fn query(line: &mut Line<'_>, header: Header, reader: &mut Reader<'_>) -> Printed {
    let [questions, answers, authorities, additional] = header.counts;
    line.dec(u32::from(header.id));
    line.text(OPERATIONS[usize::from(header.opcode())]);
    line.text(if header.flags & 0x0100 != 0 { "+" } else { "" });
    line.text(if header.flags & 0x0010 != 0 { "%" } else { "" });
    if header.flags & 0x06cf != 0 {
        put!(line, " [b2&3=0x{:x}]", header.flags);
    }
    if header.opcode() == 1 {
        if questions != 0 {
            put!(line, " [{questions}q]");
        }
        if answers != 1 {
            put!(line, " [{answers}a]");
        }
    } else {
        if answers != 0 {
            put!(line, " [{answers}a]");
        }
        if questions != 1 {
            put!(line, " [{questions}q]");
        }
    }
    if authorities != 0 {
        put!(line, " [{authorities}n]");
    }
    if additional != 0 {
        put!(line, " [{additional}au]");
    }
    for index in 0..questions {
        if index > 0 && reader.at >= reader.data.len() {
            return None;
        }
        question(line, reader)?;
    }
    Some(())
}

/// Place in a message.
struct Reader<'a> {
    data: &'a [u8],
    at: usize,
    multicast: bool,
}

impl Reader<'_> {
    /// Skips a name without printing it.
    fn skip_name(&mut self) -> Printed {
        loop {
            let length = *self.data.get(self.at)?;
            self.at += 1;
            match length {
                0 => return Some(()),
                0xc0.. => {
                    self.at += 1;
                    return Some(());
                }
                // The only extended label was a string of bits.
                0x41 => {
                    let bits = match *self.data.get(self.at)? {
                        0 => 256,
                        bits => usize::from(bits),
                    };
                    self.at += 1 + bits.div_ceil(8);
                }
                0x40..=0x7f => return None,
                length => self.at += usize::from(length),
            }
            self.data.get(self.at)?;
        }
    }

    fn word(&mut self) -> Option<u16> {
        let word = be16(self.data, self.at)?;
        self.at += 2;
        Some(word)
    }
}

/// Most characters printed of the names of a message: pointers make a small message large.
const NAMES_MAX: usize = 3000;

/// Reads the length of the label at `at`; `None` if it is cut, or of a kind that is not in use, which is printed.
fn label(line: &mut Line<'_>, data: &[u8], at: usize) -> Option<u8> {
    let length = *data.get(at)?;
    match length >> 6 {
        1 => put!(line, "<ELT {}>", length & 0x3f),
        2 => line.text("<BAD LABEL TYPE>"),
        _ => return Some(length),
    }
    None
}

/// Prints the name at `at`, with a dot after each label.
fn name(line: &mut Line<'_>, data: &[u8], at: usize) -> Printed {
    let mut length = label(line, data, at)?;
    let mut at = at + 1;
    // Pointers lead in front of this offset.
    let mut before = at;
    if length == 0 {
        line.text(".");
    }
    while length != 0 && at < data.len() {
        if length >= 0xc0 {
            let target = usize::from(length & 0x3f) << 8 | usize::from(data[at]);
            if target >= before {
                line.text("<BAD PTR>");
                return None;
            }
            before = target;
            length = label(line, data, target)?;
            at = target + 1;
            continue;
        }
        let end = at + usize::from(length);
        line.bytes(&data[at..end.min(data.len())]);
        data.get(at..end)?;
        // The next length is looked at before the dot is printed, so that a name that is cut ends without one.
        data.get(end)?;
        line.text(".");
        if line.length_so_far() > NAMES_MAX {
            line.text("...");
            return None;
        }
        length = label(line, data, end)?;
        at = end + 1;
    }
    Some(())
}

fn question(line: &mut Line<'_>, reader: &mut Reader<'_>) -> Printed {
    let start = reader.at;
    reader.skip_name()?;
    array::<4>(reader.data, reader.at)?;
    let (kind, class) = (reader.word()?, reader.word()?);
    line.text(" ");
    write_kind(line, kind);
    if reader.multicast {
        write_class(line, class & 0x7fff);
        line.text(if class & 0x8000 != 0 {
            " (QU)"
        } else {
            " (QM)"
        });
    } else {
        write_class(line, class);
    }
    line.text("? ");
    name(line, reader.data, start)
}

fn record(line: &mut Line<'_>, reader: &mut Reader<'_>) -> Printed {
    if line.is_verbose() {
        line.text(" ");
        name(line, reader.data, reader.at)?;
    }
    let (data, multicast) = (reader.data, reader.multicast);
    if reader.skip_name().is_none() || reader.data.get(reader.at..reader.at + 10).is_none() {
        // tcpdump takes the message to be at its end.
        reader.at = data.len();
        return Some(());
    }
    let (kind, class) = (reader.word()?, reader.word()?);
    if kind != 41 {
        write_class(line, if multicast { class & 0x7fff } else { class });
    }
    if multicast && class & 0x8000 != 0 {
        line.text(" (Cache flush)");
    }
    let flags = be16(data, reader.at + 2)?;
    reader.at += 4;
    let length = usize::from(reader.word()?);
    line.text(" ");
    write_kind(line, kind);
    let at = reader.at;
    let value = data.get(at..at + length)?;
    reader.at += length;
    match kind {
        1 => {
            line.text(" ");
            line.ipv4(array(data, at)?);
        }
        2 | 5 | 12 | 39 => {
            line.text(" ");
            name(line, data, at)?;
        }
        6 if line.is_verbose() => {
            start_of_authority(line, data, at)?;
        }
        15 => {
            line.text(" ");
            let preference = be16(data, at)?;
            name(line, data, at + 2)?;
            put!(line, " {preference}");
        }
        16 | 99 => strings(line, data, at, at + length)?,
        28 => {
            let address = array(data, at)?;
            line.text(" ");
            line.ipv6(address);
        }
        33 => {
            line.text(" ");
            let priority = be16(data, at)?;
            name(line, data, at + 6)?;
            put!(
                line,
                ":{} {priority} {}",
                be16(data, at + 4)?,
                be16(data, at + 2)?
            );
        }
        41 => {
            put!(line, " UDPsize={class}");
            line.text(if flags & 0x8000 != 0 { " DO" } else { "" });
        }
        104 => line.bytes(value),
        256 => {
            put!(line, " {} {} ", be16(data, at)?, be16(data, at + 2)?);
            line.bytes(value.get(4..)?);
        }
        _ => {}
    }
    Some(())
}

fn start_of_authority(line: &mut Line<'_>, data: &[u8], at: usize) -> Printed {
    let mut reader = Reader {
        data,
        at,
        multicast: false,
    };
    for _ in 0..2 {
        line.text(" ");
        name(line, data, reader.at)?;
        reader.skip_name()?;
    }
    for _ in 0..5 {
        let number = super::text::be32(data, reader.at)?;
        put!(line, " {number}");
        reader.at += 4;
    }
    Some(())
}

/// Prints strings, each after a byte with its length.
fn strings(line: &mut Line<'_>, data: &[u8], mut at: usize, end: usize) -> Printed {
    while at < end {
        line.text(" \"");
        let length = usize::from(*data.get(at)?);
        let behind = at + 1 + length;
        line.bytes(data.get(at + 1..behind.min(data.len()))?);
        data.get(..behind)?;
        line.text("\"");
        at = behind;
    }
    Some(())
}
