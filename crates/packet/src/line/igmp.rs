//! IGMP (RFC 1112, RFC 2236, RFC 3376).

use super::text::{Line, Printed, array, be16, put};
use super::upper;

/// Prints `igmp v3 report, 1 group record(s)`.
pub(super) fn message(line: &mut Line<'_>, data: &[u8], wire: usize) -> Printed {
    if line.is_quiet() {
        line.text("igmp");
        return Some(());
    }
    let [kind, response] = array::<2>(data, 0)?;
    match kind {
        0x11 => query(line, response, data, wire)?,
        0x12 => {
            about(line, "igmp v1 report ", array(data, 4)?);
            odd_length(line, wire);
        }
        0x16 => about(line, "igmp v2 report ", array(data, 4)?),
        0x17 => about(line, "igmp leave ", array(data, 4)?),
        0x22 => report(line, data, wire)?,
        0x13 => {
            line.text("igmp dvmrp");
            if wire < 8 {
                put!(line, " [len {wire}]");
            }
        }
        0x14 => line.text("igmp pimv1"),
        other => put!(line, "igmp-{other}"),
    }
    if line.is_verbose()
        && let Some(bytes) = data.get(..wire)
        && upper::checksum(&[bytes]) != 0
    {
        put!(line, " bad igmp cksum {:x}!", be16(data, 2)?);
    }
    Some(())
}

fn odd_length(line: &mut Line<'_>, wire: usize) {
    if wire != 8 {
        put!(line, " [len {wire}]");
    }
}

fn about(line: &mut Line<'_>, words: &str, group: [u8; 4]) {
    line.text(words);
    line.ipv4(group);
}

fn report(line: &mut Line<'_>, data: &[u8], wire: usize) -> Printed {
    line.text("igmp v3 report");
    if wire < 16 || !wire.is_multiple_of(4) {
        put!(line, " [invalid len {wire}]");
        return Some(());
    }
    put!(line, ", {} group record(s)", be16(data, 6)?);
    Some(())
}

/// Prints a query. Its version follows from the length and the response time (RFC 3376, 7.1).
fn query(line: &mut Line<'_>, response: u8, data: &[u8], wire: usize) -> Printed {
    if wire >= 12 {
        return query3(line, response, data, wire);
    }
    if response == 0 {
        line.text("igmp query v1");
        return Some(());
    }
    line.text("igmp query v2");
    if response != 100 {
        tenths(line, u32::from(response));
    }
    let group: [u8; 4] = array(data, 4)?;
    if group != [0; 4] {
        about(line, " [gaddr ", group);
        line.text("]");
    }
    odd_length(line, wire);
    Some(())
}

fn tenths(line: &mut Line<'_>, time: u32) {
    match time % 10 {
        0 => put!(line, " [max resp time {}]", time / 10),
        rest => put!(line, " [max resp time {}.{rest}]", time / 10),
    }
}

fn query3(line: &mut Line<'_>, response: u8, data: &[u8], wire: usize) -> Printed {
    line.text("igmp query v3");
    let time = match u32::from(response) {
        time @ 0..128 => time,
        code => (code & 15 | 16) << ((code >> 4 & 7) + 3),
    };
    if time != 100 {
        line.text(" [max resp time ");
        if time < 600 {
            put!(line, "{}.{}s]", time / 10, time % 10);
        } else {
            relative(line, time / 10);
            if time % 10 != 0 {
                put!(line, ".{}s", time % 10);
            }
            line.text("]");
        }
    }
    let group: [u8; 4] = array(data, 4)?;
    if group == [0; 4] {
        return Some(());
    }
    let sources = be16(data, 10)?;
    about(line, " [gaddr ", group);
    if sources > 0 {
        match wire < 12 + 4 * usize::from(sources) {
            true => line.text(" [invalid number of sources]"),
            false => put!(line, ", {sources} source(s)"),
        }
    }
    line.text("]");
    Some(())
}

/// Prints seconds as `1h2m3s`.
fn relative(line: &mut Line<'_>, seconds: u32) {
    let units = [
        (7 * 86_400, "w"),
        (86_400, "d"),
        (3600, "h"),
        (60, "m"),
        (1, "s"),
    ];
    let mut rest = seconds;
    for (size, unit) in units {
        if rest >= size {
            put!(line, "{}{unit}", rest / size);
            rest %= size;
        }
    }
}
