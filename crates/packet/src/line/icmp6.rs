//! ICMPv6 (RFC 4443), neighbour discovery (RFC 4861) and multicast listeners (RFC 2710, RFC 3810).

use super::text::{Line, Printed, array, be16, be32, put};
use super::upper::{self, Layer};

const PROTOCOL: u8 = 58;

/// Prints `ICMP6, echo request, id 1, seq 2, length 64`.
pub(super) fn message(line: &mut Line<'_>, layer: &Layer, data: &[u8], wire: usize) -> Printed {
    if wire == 0 {
        line.text("ICMP6, length 0 (invalid)");
        return Some(());
    }
    let [kind, code] = array::<2>(data, 0)?;
    if line.is_verbose()
        && !layer.is_fragment
        && let Some(bytes) = data.get(..wire)
    {
        let (found, sum) = (be16(data, 2)?, layer.ends.checksum(PROTOCOL, bytes, wire));
        match sum {
            0 => line.text("[icmp6 sum ok] "),
            _ => {
                let right = upper::should_be(found, sum);
                put!(line, "[bad icmp6 cksum 0x{found:04x} -> 0x{right:04x}!] ");
            }
        }
    }
    line.text("ICMP6, ");
    match name(kind) {
        Some(name) => line.text(name),
        None => put!(line, "unknown icmp6 type ({kind})"),
    }
    if kind == 1 && !matches!(code, 0..=4) {
        put!(line, ", unknown unreach code ({code})");
        line.dump_hex(data);
        return Some(());
    }
    body(line, kind, code, data, wire)?;
    line.length(wire);
    if name(kind).is_none() {
        line.dump_hex(data);
    }
    Some(())
}

fn name(kind: u8) -> Option<&'static str> {
    Some(match kind {
        1 => "destination unreachable",
        2 => "packet too big",
        3 => "time exceeded in-transit",
        4 => "parameter problem",
        128 => "echo request",
        129 => "echo reply",
        130 => "multicast listener query",
        131 => "multicast listener report",
        132 => "multicast listener done",
        133 => "router solicitation",
        134 => "router advertisement",
        135 => "neighbor solicitation",
        136 => "neighbor advertisement",
        137 => "redirect",
        138 => "router renumbering",
        139 => "who-are-you request",
        140 => "who-are-you reply",
        141 => "inverse neighbor solicitation",
        142 => "inverse neighbor advertisement",
        143 => "multicast listener report v2",
        144 => "ha discovery request",
        145 => "ha discovery reply",
        146 => "mobile router solicitation",
        147 => "mobile router advertisement",
        155 => "RPL",
        200 => "mtrace response",
        201 => "mtrace message",
        _ => return None,
    })
}

/// Prints what follows the name of the message; `None` if the captured bytes end.
fn body(line: &mut Line<'_>, kind: u8, code: u8, data: &[u8], wire: usize) -> Printed {
    match kind {
        1 => unreachable(line, code, data)?,
        2 => put!(line, ", mtu {}", be32(data, 4)?),
        3 => match code {
            0 => about(line, " for ", array(data, 8 + 24)?),
            1 => line.text(" (reassembly)"),
            other => put!(line, ", unknown code ({other})"),
        },
        4 => parameter_problem(line, code, data)?,
        128 | 129 => {
            let (id, seq) = (be16(data, 4)?, be16(data, 6)?);
            put!(line, ", id {id}, seq {seq}");
        }
        130 => match wire {
            24 => listener(line, data)?,
            28.. => listener_query(line, data, wire)?,
            _ => put!(line, " unknown-version (len {wire}) "),
        },
        131 | 132 => listener(line, data)?,
        135 => about(line, ", who has ", array(data, 8)?),
        136 => about(line, ", tgt is ", array(data, 8)?),
        137 => {
            about(line, ", ", array(data, 24)?);
            about(line, " to ", array(data, 8)?);
        }
        143 => {
            let groups = be16(data, 6)?;
            put!(line, ", {groups} group record(s)");
        }
        144 | 146 => put!(line, ", id 0x{:04x}", be16(data, 4)?),
        _ => {}
    }
    Some(())
}

fn about(line: &mut Line<'_>, words: &str, address: [u8; 16]) {
    line.text(words);
    line.ipv6(address);
}

/// A message of the first version of multicast listeners (RFC 2710).
fn listener(line: &mut Line<'_>, data: &[u8]) -> Printed {
    let (delay, address) = (be16(data, 4)?, array(data, 8)?);
    put!(line, "max resp delay: {delay} ");
    about(line, "addr: ", address);
    Some(())
}

/// A query of the second version (RFC 3810, 5.1).
fn listener_query(line: &mut Line<'_>, data: &[u8], wire: usize) -> Printed {
    let (code, group, sources) = (be16(data, 4)?, array(data, 8)?, be16(data, 26)?);
    line.text(" v2");
    if line.is_verbose() {
        let delay = match u32::from(code) {
            code @ 0..0x8000 => code,
            code => (code & 0x0fff | 0x1000) << ((code >> 12 & 7) + 3),
        };
        put!(line, " [max resp delay={delay}]");
    }
    about(line, " [gaddr ", group);
    if sources > 0 {
        match wire < 28 + 16 * usize::from(sources) {
            true => line.text(" [invalid number of sources]"),
            false => put!(line, ", {sources} source(s)"),
        }
    }
    line.text("]");
    Some(())
}

fn parameter_problem(line: &mut Line<'_>, code: u8, data: &[u8]) -> Printed {
    let (octet, _) = (be32(data, 4)?, array::<16>(data, 8 + 24)?);
    match code {
        0 => put!(line, ", erroneous - octet {octet}"),
        1 => put!(line, ", next header - octet {octet}"),
        2 => put!(line, ", option - octet {octet}"),
        other => put!(line, ", code-#{other}"),
    }
    Some(())
}

/// Prints the destination that was not reached, from the packet quoted after the first eight bytes.
fn unreachable(line: &mut Line<'_>, code: u8, data: &[u8]) -> Printed {
    line.text(match code {
        0 => ", unreachable route",
        1 => ", unreachable prohibited",
        2 => ", beyond scope",
        3 => ", unreachable address",
        _ => ", unreachable port",
    });
    if code == 4 {
        let (protocol, port) = (*data.get(8 + 6)?, be16(data, 8 + 40 + 2)?);
        about(line, ", ", array(data, 8 + 24)?);
        match protocol {
            6 => put!(line, " tcp port {port}"),
            17 => put!(line, " udp port {port}"),
            other => put!(line, " protocol {other} port {port} unreachable"),
        }
        return Some(());
    }
    about(line, " ", array(data, 8 + 24)?);
    if code == 2 {
        about(line, ", source address ", array(data, 8 + 8)?);
    }
    Some(())
}
