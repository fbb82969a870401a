//! ICMPv6 (RFC 4443), neighbour discovery (RFC 4861) and multicast listeners (RFC 2710, RFC 3810).

use super::text::{Line, array, be16, be32, put};

/// Bytes of the header: type, code, checksum and four bytes whose meaning depends on the type.
const HEADER: usize = 8;

/// Prints `ICMP6, echo request, id 1, seq 2, length 64`.
pub(super) fn message(line: &mut Line<'_>, data: &[u8], wire: usize) {
    line.text("ICMP6, ");
    if wire == 0 {
        return line.text("length 0 (invalid)");
    }
    if kind(line, data).is_none() {
        return line.cut("icmp6");
    }
    line.length(wire);
    if data.len() < wire.min(HEADER) {
        line.cut("icmp6");
    }
}

/// Prints the message without its length; `None` if the captured bytes end.
fn kind(line: &mut Line<'_>, data: &[u8]) -> Option<()> {
    let [kind, code] = array::<2>(data, 0)?;
    match kind {
        1 => unreachable(line, code, data)?,
        2 => put!(line, "packet too big, mtu {}", be32(data, 4)?),
        3 => match code {
            0 => about(line, "time exceeded in-transit for ", array(data, 8 + 24)?),
            1 => line.text("ip reassembly time exceeded"),
            other => put!(line, "time exceeded, unknown code #{other}"),
        },
        4 => parameter_problem(line, code, be32(data, 4)?),
        128 => echo(line, "echo request", data)?,
        129 => echo(line, "echo reply", data)?,
        130 => line.text("multicast listener query"),
        131 => about(line, "multicast listener report addr: ", array(data, 8)?),
        132 => about(line, "multicast listener done addr: ", array(data, 8)?),
        133 => line.text("router solicitation"),
        134 => line.text("router advertisement"),
        135 => about(line, "neighbor solicitation, who has ", array(data, 8)?),
        136 => about(line, "neighbor advertisement, tgt is ", array(data, 8)?),
        137 => redirect(line, array(data, 8)?, array(data, 24)?),
        138 => line.text("router renumbering"),
        139 => line.text("node information query"),
        140 => line.text("node information reply"),
        143 => put!(
            line,
            "multicast listener report v2, {} group record(s)",
            be16(data, 6)?
        ),
        141 => line.text("inverse neighbor solicitation"),
        142 => line.text("inverse neighbor advertisement"),
        144 => put!(line, "ha discovery request, id 0x{:04x}", be16(data, 4)?),
        145 => line.text("ha discovery reply"),
        146 => put!(
            line,
            "mobile router solicitation, id 0x{:04x}",
            be16(data, 4)?
        ),
        147 => line.text("mobile router advertisement"),
        200 => line.text("mtrace response"),
        201 => line.text("mtrace message"),
        155 => line.text("RPL"),
        other => put!(line, "unknown icmp6 type ({other})"),
    }
    Some(())
}

fn about(line: &mut Line<'_>, words: &str, address: [u8; 16]) {
    line.text(words);
    line.ipv6(address);
}

fn echo(line: &mut Line<'_>, name: &str, data: &[u8]) -> Option<()> {
    line.text(name);
    put!(line, ", id {}, seq {}", be16(data, 4)?, be16(data, 6)?);
    Some(())
}

fn redirect(line: &mut Line<'_>, target: [u8; 16], destination: [u8; 16]) {
    about(line, "redirect, ", destination);
    about(line, " to ", target);
}

fn parameter_problem(line: &mut Line<'_>, code: u8, octet: u32) {
    match code {
        0 => put!(line, "parameter problem, erroneous - octet {octet}"),
        1 => put!(line, "parameter problem, next header - octet {octet}"),
        2 => put!(line, "parameter problem, option - octet {octet}"),
        other => put!(line, "parameter problem, code-#{other}"),
    }
}

/// Prints the destination that was not reached, from the packet quoted after the first eight bytes.
fn unreachable(line: &mut Line<'_>, code: u8, data: &[u8]) -> Option<()> {
    let target = array(data, 8 + 24)?;
    line.text("destination unreachable, ");
    match code {
        0 => about(line, "unreachable route ", target),
        1 => about(line, "unreachable prohibited ", target),
        2 => {
            about(line, "beyond scope ", target);
            about(line, ", source address ", array(data, 8 + 8)?);
        }
        3 => about(line, "unreachable address ", target),
        4 => {
            about(line, "unreachable port, ", target);
            let (protocol, port) = (*data.get(8 + 6)?, be16(data, 8 + 40 + 2)?);
            match protocol {
                6 => put!(line, " tcp port {port}"),
                17 => put!(line, " udp port {port}"),
                other => put!(line, " protocol {other} port {port}"),
            }
        }
        other => put!(line, "unknown unreach code ({other})"),
    }
    Some(())
}
