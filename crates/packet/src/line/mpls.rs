//! MPLS label stacks (RFC 3032).

use super::linkhdr;
use super::text::{Line, after, be32, put};

/// Largest number of labels printed; a deeper stack is called too deep.
const LABELS_MAX: usize = 16;

/// Prints the stack and, if its first nibble reveals one, the IP packet below it.
pub(super) fn labels(line: &mut Line<'_>, data: &[u8], wire: usize) {
    line.text("MPLS");
    let mut at = 0;
    for _ in 0..LABELS_MAX {
        let Some(entry) = be32(data, at) else {
            return line.cut("mpls");
        };
        at += 4;
        let bottom = entry & 0x100 != 0;
        let mark = if bottom { ", [S]" } else { "" };
        put!(
            line,
            " (label {}, tc {}{mark}, ttl {})",
            entry >> 12,
            entry >> 9 & 7,
            entry & 0xff
        );
        if bottom {
            return below(line, data, wire, at);
        }
    }
    line.text(" ...");
}

/// Prints the payload below the labels. No label names it, but an IP version nibble does; a pseudowire control word has
/// neither 4 nor 6 there.
fn below(line: &mut Line<'_>, data: &[u8], wire: usize, at: usize) {
    let (rest, rest_wire) = after(data, wire, at);
    match rest.first().map(|byte| byte >> 4) {
        Some(4 | 6) => {
            line.text(" ");
            line.nested(|line| {
                linkhdr::by_version(line, rest, rest_wire);
                Some(())
            });
        }
        _ => line.length(rest_wire),
    }
}
