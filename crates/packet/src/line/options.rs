//! Options of TCP (RFC 9293, RFC 7323, RFC 2018 and the registry of IANA) and of IPv4 (RFC 791).

use super::text::{Line, Printed, be16, be32, put};

const EOL: u8 = 0;
const NOP: u8 = 1;

/// Prints the options of a TCP header of which `length` bytes are claimed. `sack` is what selective acknowledgments count from.
///
/// Returns whether they are well-formed and were captured in full.
pub(super) fn tcp(line: &mut Line<'_>, data: &[u8], length: usize, sack: u32) -> bool {
    line.text(", options [");
    let mut at = 0;
    let Some(is_good) = tcp_options(line, data, length, sack, &mut at) else {
        line.cut("tcp");
        line.text(if at > 0 { ">" } else { "" });
        return false;
    };
    line.text(if is_good { "" } else { "[bad opt]" });
    // tcpdump leaves the bracket open if the first option is bad.
    line.text(if is_good || at > 0 { "]" } else { "" });
    is_good
}

fn tcp_options(
    line: &mut Line<'_>,
    data: &[u8],
    length: usize,
    sack: u32,
    place: &mut usize,
) -> Option<bool> {
    while *place < length {
        let at = *place;
        if at > 0 {
            line.text(",");
        }
        // tcpdump marks the end of a list after its value was cut, and not after its kind was.
        *place = 0;
        let kind = *data.get(at)?;
        *place = at;
        if matches!(kind, EOL | NOP) {
            line.text(if kind == EOL { "eol" } else { "nop" });
            *place += 1;
            if kind == EOL {
                break;
            }
            continue;
        }
        *place = 0;
        let claimed = usize::from(*data.get(at + 1)?);
        *place = at;
        if claimed < 2 || claimed > length - at {
            return Some(false);
        }
        let (left, value) = (length - at - 2, data.get(at + 2..)?);
        // The kind of an option tells where the next begins, and not its length.
        let Some(used) = known(line, kind, value, claimed - 2, left, sack)? else {
            return Some(false);
        };
        if used + 2 != claimed {
            put!(line, "[len {claimed}]");
        }
        *place += used + 2;
    }
    Some(true)
}

/// Prints an option with `length` bytes of value; `value` are the captured bytes of all options from there on, of which there are
/// `left` in the header. Returns the length that its kind has; `Some(None)` if the header ends before.
fn known(
    line: &mut Line<'_>,
    kind: u8,
    value: &[u8],
    length: usize,
    left: usize,
    sack: u32,
) -> Option<Option<usize>> {
    let (name, used) = match kind {
        2 => ("mss", 2),
        3 => ("wscale", 1),
        4 => ("sackOK", 0),
        5 => ("sack", length),
        6 => ("echo", 4),
        7 => ("echoreply", 4),
        8 => ("TS", 8),
        11 => ("cc", 4),
        12 => ("ccnew", 4),
        13 => ("ccecho", 4),
        19 => ("md5", 16),
        20 => ("scps", 2),
        28 => ("uto", 2),
        29 => ("tcp-ao", length),
        30 => ("mptcp", length),
        34 => ("tfo", length),
        254 => ("exp", length),
        _ => ("", length),
    };
    match name {
        "" => put!(line, "unknown-{kind}"),
        name => line.text(name),
    }
    if used > left {
        return Some(None);
    }
    if !matches!(kind, 5 | 29 | 30) && !name.is_empty() {
        value.get(..used)?;
    }
    match kind {
        2 => put!(line, " {}", be16(value, 0)?),
        3 => put!(line, " {}", value.first()?),
        4 => {}
        5 => return blocks(line, value, length, sack).map(Some),
        6 | 7 | 11..=13 => put!(line, " {}", be32(value, 0)?),
        8 => {
            line.text(" val ");
            line.dec(be32(value, 0)?);
            line.text(" ecr ");
            line.dec(be32(value, 4)?);
        }
        19 => {
            line.text(" can't check - ");
            value[..16].iter().for_each(|byte| line.hex_byte(*byte));
        }
        20 => put!(line, " cap {:02x} id {}", value.first()?, value.get(1)?),
        28 => user_timeout(line, be16(value, 0)?),
        29 => authentication(line, value, length)?,
        34 => {
            line.text(" tfo ");
            fast_open(line, &value[..length], false);
        }
        254 => {
            let Some((magic, cookie)) = value[..length].split_at_checked(2) else {
                return Some(None);
            };
            match magic {
                [0xf9, 0x89] => {
                    line.text("-");
                    fast_open(line, cookie, true);
                }
                [a, b] => put!(line, "-{a:02x}{b:02x}"),
                _ => {}
            }
        }
        _ => {
            for index in 0..length {
                let byte = *value.get(index)?;
                line.text(if index == 0 { " 0x" } else { "" });
                line.hex_byte(byte);
            }
        }
    }
    Some(Some(used))
}

/// Prints the blocks of a selective acknowledgment: `sack 1 {1:16}`. Returns the length that was read.
fn blocks(line: &mut Line<'_>, value: &[u8], length: usize, base: u32) -> Option<usize> {
    if !length.is_multiple_of(8) {
        line.text(" invalid sack");
        return Some(length);
    }
    put!(line, " {} ", length / 8);
    for at in (0..length).step_by(8) {
        let (left, right) = (be32(value, at)?, be32(value, at + 4)?);
        put!(
            line,
            "{{{}:{}}}",
            left.wrapping_sub(base),
            right.wrapping_sub(base)
        );
    }
    Some(length)
}

/// Prints a user timeout (RFC 5482): its bits, and the seconds.
fn user_timeout(line: &mut Line<'_>, value: u16) {
    let seconds = u32::from(value >> 1) * if value & 1 == 1 { 60 } else { 1 };
    put!(line, " 0x{value:x} {seconds}");
}

/// Prints the authentication option (RFC 5925).
fn authentication(line: &mut Line<'_>, value: &[u8], length: usize) -> Printed {
    if length < 2 {
        line.text(" (invalid)");
        return Some(());
    }
    put!(
        line,
        " keyid {} rnextkeyid {}",
        value.first()?,
        value.get(1)?
    );
    for index in 2..length {
        line.text(if index == 2 { " mac 0x" } else { "" });
        line.hex_byte(*value.get(index)?);
    }
    Some(())
}

/// Prints a fast open cookie (RFC 7413).
fn fast_open(line: &mut Line<'_>, cookie: &[u8], experimental: bool) {
    if experimental {
        line.text("tfo");
    }
    match cookie.len() {
        0 => line.text(if experimental {
            " cookiereq"
        } else {
            "cookiereq"
        }),
        length if length % 2 != 0 || !(4..=16).contains(&length) => line.text(" len!"),
        _ => {
            line.text(if experimental { " cookie " } else { "cookie " });
            cookie.iter().for_each(|byte| line.hex_byte(*byte));
        }
    }
}

/// Prints the names of the options of an IPv4 header of which `length` bytes are claimed.
pub(super) fn ip(line: &mut Line<'_>, data: &[u8], length: usize) -> Printed {
    let mut at = 0;
    while at < length {
        if at > 0 {
            line.text(",");
        }
        let kind = *data.get(at)?;
        match kind {
            0 => line.text("EOL"),
            1 => line.text("NOP"),
            7 => line.text("RR"),
            68 => line.text("timestamp"),
            82 => line.text("traceroute"),
            130 => line.text("security"),
            131 => line.text("LSRR"),
            137 => line.text("SSRR"),
            148 => line.text("RA"),
            other => put!(line, "unknown {other}"),
        }
        if kind == 0 {
            break;
        }
        at += match kind {
            1 => 1,
            _ => usize::from(*data.get(at + 1)?).max(2),
        };
    }
    Some(())
}
