//! TCP (RFC 9293).

use super::text::{Line, be16, be32, put};
use super::upper::{Ends, ports};

const HEADER: usize = 20;
const ACK: u8 = 0x10;
const URG: u8 = 0x20;
const SYN_FIN_RST: u8 = 0x07;

/// Flag bits and their letters, in the order in which tcpdump prints them.
const FLAGS: [(u8, &str); 8] = [
    (0x01, "F"),
    (0x02, "S"),
    (0x04, "R"),
    (0x08, "P"),
    (ACK, "."),
    (URG, "U"),
    (0x40, "E"),
    (0x80, "W"),
];

/// Prints `Flags [P.], seq 1:101, ack 7, win 512, length 100`. Sequence numbers are absolute, as in the packet.
pub(super) fn segment(line: &mut Line<'_>, ends: &Ends, data: &[u8], wire: usize) {
    let Some((src, dst)) = ports(data) else {
        ends.write(line);
        return line.cut("tcp");
    };
    ends.write_with_ports(line, src, dst);
    let (Some(seq), Some(ack), Some(&offset)) = (be32(data, 4), be32(data, 8), data.get(12)) else {
        return line.cut("tcp");
    };
    let header = usize::from(offset >> 4) * 4;
    if header < HEADER {
        let rest = wire.saturating_sub(header);
        put!(
            line,
            "tcp {rest} [bad hdr length {header} - too short, < {HEADER}]"
        );
        return mark(line, data, HEADER);
    }
    let (Some(&flags), Some(window)) = (data.get(13), be16(data, 14)) else {
        return line.cut("tcp");
    };
    write_flags(line, flags);
    if header > wire {
        put!(line, " [bad hdr length {header} - too long, > {wire}]");
        return mark(line, data, HEADER);
    }
    let length = wire - header;
    if length > 0 || flags & SYN_FIN_RST != 0 {
        line.text(", seq ");
        line.dec(seq);
        if length > 0 {
            line.text(":");
            line.dec(seq.wrapping_add(length as u32));
        }
    }
    if flags & ACK != 0 {
        line.text(", ack ");
        line.dec(ack);
    }
    line.text(", win ");
    line.dec(u32::from(window));
    if flags & URG != 0 {
        match be16(data, 18) {
            Some(urgent) => put!(line, ", urg {urgent}"),
            None => return line.cut("tcp"),
        }
    }
    line.length(length);
    mark(line, data, header);
}

/// Marks a header that was not captured in full, although all printed fields of it were.
fn mark(line: &mut Line<'_>, data: &[u8], header: usize) {
    if data.len() < header {
        line.cut("tcp");
    }
}

fn write_flags(line: &mut Line<'_>, flags: u8) {
    line.text("Flags [");
    letters(flags).for_each(|name| line.text(name));
    line.text("]");
}

/// Letters of the flags that are set, or the word `none`.
fn letters(flags: u8) -> impl Iterator<Item = &'static str> {
    let set = FLAGS.into_iter().filter(move |(bit, _)| flags & bit != 0);
    let none = (flags == 0).then_some("none");
    set.map(|(_, name)| name).chain(none)
}

/// Appends the letters of TCP flags as a line has them: `S.`, `P.`, `none`.
pub fn flag_letters(out: &mut String, flags: u8) {
    out.extend(letters(flags));
}
