//! TCP (RFC 9293).

use super::app;
use super::conversations::Starts;
use super::options;
use super::text::{Line, Printed, be16, be32, put};
use super::upper::{self, Layer, ports};

const PROTOCOL: u8 = 6;
const HEADER: usize = 20;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;
const URG: u8 = 0x20;
const SYN_FIN_RST: u8 = 0x07;

/// Flag bits and their letters, in the order in which tcpdump prints them.
const FLAGS: [(u8, &str); 8] = [
    (0x01, "F"),
    (SYN, "S"),
    (RST, "R"),
    (0x08, "P"),
    (ACK, "."),
    (URG, "U"),
    (0x40, "E"),
    (0x80, "W"),
];

/// Prints `Flags [P.], seq 1:101, ack 7, win 512, options [nop,nop,TS val 1 ecr 2], length 100: HTTP: GET / HTTP/1.1`.
pub(super) fn segment(line: &mut Line<'_>, layer: &Layer, data: &[u8], wire: usize) -> Printed {
    let Some((src, dst)) = ports(data) else {
        layer.ends.write_without_space(line);
        return None;
    };
    layer.write_with_ports(line, PROTOCOL, src, dst);
    data.get(HEADER - 1)?;
    let (mut seq, mut ack) = (be32(data, 4)?, be32(data, 8)?);
    let header = usize::from(data[12] >> 4) * 4;
    let flags = data[13];
    if header < HEADER {
        // tcpdump's number is of 32 bits, and a length below the header's becomes a large number.
        let rest = (wire as u32).wrapping_sub(header as u32);
        put!(
            line,
            " tcp {rest} [bad hdr length {header} - too short, < {HEADER}]"
        );
        return Some(());
    }
    if line.is_quiet() {
        put!(line, "tcp {}", (wire as u32).wrapping_sub(header as u32));
        if header > wire {
            put!(line, " [bad hdr length {header} - too long, > {wire}]");
        }
        return Some(());
    }
    write_flags(line, flags);
    let mut starts = Starts::default();
    if flags & ACK != 0
        && let Some(conversations) = line.conversations()
    {
        let ends = [layer.ends.src, layer.ends.dst];
        starts = conversations.starts(ends, [src, dst], [seq, ack], flags & SYN != 0);
        seq = seq.wrapping_sub(starts.seq);
        ack = ack.wrapping_sub(starts.ack);
    }
    if header > wire {
        put!(line, " [bad hdr length {header} - too long, > {wire}]");
        return Some(());
    }
    if line.is_verbose() && !layer.is_fragment {
        checksum(line, layer, data, wire)?;
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
    line.dec(u32::from(be16(data, 14)?));
    if flags & URG != 0 {
        put!(line, ", urg {}", be16(data, 18)?);
    }
    if header > HEADER {
        let bytes = &data[HEADER..data.len().min(header)];
        if !options::tcp(line, bytes, header - HEADER, starts.sack) {
            return Some(());
        }
    }
    line.length(length);
    if length == 0 {
        return Some(());
    }
    if flags & RST != 0 && line.is_verbose() {
        return reset_text(line, data.get(header..)?);
    }
    app::over_tcp(line, [src, dst], data.get(header..).unwrap_or(&[]), length)
}

/// Prints the text that some stacks put into a segment with RST (RFC 1122, 4.2.2.12).
fn reset_text(line: &mut Line<'_>, data: &[u8]) -> Printed {
    const MOST: usize = 30;
    line.text(if data.len() > MOST {
        " [RST+ "
    } else {
        " [RST "
    });
    for byte in data.iter().take(MOST) {
        line.bytes(&[*byte]);
    }
    line.text("]");
    Some(())
}

fn checksum(line: &mut Line<'_>, layer: &Layer, data: &[u8], wire: usize) -> Printed {
    let Some(bytes) = data.get(..wire) else {
        return Some(());
    };
    let found = be16(data, 16)?;
    let sum = layer.ends.checksum(PROTOCOL, bytes, wire);
    put!(line, ", cksum 0x{found:04x}");
    match sum {
        0 => line.text(" (correct)"),
        _ => put!(
            line,
            " (incorrect -> 0x{:04x})",
            upper::should_be(found, sum)
        ),
    }
    Some(())
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
