//! ICMP (RFC 792, RFC 950, RFC 1256).

use super::names;
use super::text::{Line, array, be16, be32, put};

/// Bytes of the header: type, code, checksum and four bytes whose meaning depends on the type.
const HEADER: usize = 8;

/// Prints `ICMP echo request, id 1, seq 2, length 64`.
pub(super) fn message(line: &mut Line<'_>, data: &[u8], wire: usize) {
    line.text("ICMP ");
    if kind(line, data).is_none() {
        return line.cut("icmp");
    }
    line.length(wire);
    if data.len() < wire.min(HEADER) {
        line.cut("icmp");
    }
}

/// Prints the message without its length; `None` if the captured bytes end.
fn kind(line: &mut Line<'_>, data: &[u8]) -> Option<()> {
    let [kind, code] = array::<2>(data, 0)?;
    match kind {
        0 => echo(line, "echo reply", data)?,
        8 => echo(line, "echo request", data)?,
        3 => unreachable(line, code, data)?,
        4 => line.text("source quench"),
        5 => redirect(line, code, data)?,
        9 => put!(line, "router advertisement lifetime {}", be16(data, 6)?),
        10 => line.text("router solicitation"),
        11 => match code {
            0 => line.text("time exceeded in-transit"),
            1 => line.text("ip reassembly time exceeded"),
            other => put!(line, "time exceeded-#{other}"),
        },
        12 => match code {
            0 => put!(line, "parameter problem - octet {}", data.get(4)?),
            other => put!(line, "parameter problem - code {other}"),
        },
        13 => put!(
            line,
            "time stamp query id {} seq {}",
            be16(data, 4)?,
            be16(data, 6)?
        ),
        14 => put!(
            line,
            "time stamp reply id {} seq {}",
            be16(data, 4)?,
            be16(data, 6)?
        ),
        15 => line.text("information request"),
        16 => line.text("information reply"),
        17 => line.text("address mask request"),
        18 => put!(line, "address mask is 0x{:08x}", be32(data, 8)?),
        other => put!(line, "type-#{other}"),
    }
    Some(())
}

fn echo(line: &mut Line<'_>, name: &str, data: &[u8]) -> Option<()> {
    line.text(name);
    put!(line, ", id {}, seq {}", be16(data, 4)?, be16(data, 6)?);
    Some(())
}

fn redirect(line: &mut Line<'_>, code: u8, data: &[u8]) -> Option<()> {
    let (gateway, target) = (array(data, 4)?, array(data, 8 + 16)?);
    match code {
        0 | 1 => line.text("redirect "),
        2 | 3 => line.text("redirect-tos "),
        other => put!(line, "redirect-#{other} "),
    }
    line.ipv4(target);
    line.text(match code {
        0 | 2 => " to net ",
        1 | 3 => " to host ",
        _ => " to ",
    });
    line.ipv4(gateway);
    Some(())
}

/// Prints the host, protocol or port that was not reached, from the packet quoted after the first
/// eight bytes.
fn unreachable(line: &mut Line<'_>, code: u8, data: &[u8]) -> Option<()> {
    let quoted = data.get(8..)?;
    let target = array(quoted, 16)?;
    match code {
        2 => {
            line.ipv4(target);
            put!(line, " protocol {} unreachable", quoted.get(9)?);
        }
        3 => port_unreachable(line, target, quoted)?,
        4 => {
            line.ipv4(target);
            line.text(" unreachable - need to frag");
            if let Some(mtu) = be16(data, 6).filter(|&mtu| mtu != 0) {
                put!(line, " (mtu {mtu})");
            }
        }
        _ => match names::unreachable(code) {
            Some((before, behind)) => {
                line.text(before);
                line.ipv4(target);
                put!(line, " unreachable{behind}");
            }
            None => {
                line.ipv4(target);
                put!(line, " unreachable - #{code}");
            }
        },
    }
    Some(())
}

fn port_unreachable(line: &mut Line<'_>, target: [u8; 4], quoted: &[u8]) -> Option<()> {
    let header = usize::from(quoted.first()? & 15) * 4;
    let protocol = *quoted.get(9)?;
    let port = be16(quoted, header + 2)?;
    line.ipv4(target);
    match protocol {
        6 => put!(line, " tcp port {port} unreachable"),
        17 => put!(line, " udp port {port} unreachable"),
        other => put!(line, " protocol {other} port {port} unreachable"),
    }
    Some(())
}
