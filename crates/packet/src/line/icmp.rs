//! ICMP (RFC 792, RFC 950, RFC 1256).

use super::text::{Line, Printed, array, be16, be32, put};
use super::upper;
use super::{ip, names};

/// Prints `ICMP echo request, id 1, seq 2, length 64`.
pub(super) fn message(line: &mut Line<'_>, data: &[u8], wire: usize, is_fragment: bool) -> Printed {
    let place = line.place();
    line.text("ICMP ");
    if kind(line, data).is_none() {
        line.back_to(place);
        return None;
    }
    line.length(wire);
    if !line.is_verbose() {
        return Some(());
    }
    if let Some(bytes) = data.get(..wire).filter(|_| !is_fragment) {
        let (sum, found) = (upper::checksum(&[bytes]), be16(data, 2)?);
        if sum != 0 {
            let right = upper::should_be(found, sum);
            put!(line, " (wrong icmp cksum {found:x} (->{right:x})!)");
        }
    }
    if matches!(data[0], 3..=5 | 11 | 12) {
        // The packet that the message is about.
        line.text("\n\t");
        let quoted = data.get(8..)?;
        let length = usize::from(be16(quoted, 2)?);
        return line.nested(|line| ip::packet(line, quoted, length));
    }
    Some(())
}

/// Prints the message without its length; `None` if the captured bytes end.
fn kind(line: &mut Line<'_>, data: &[u8]) -> Printed {
    let [kind, code] = array::<2>(data, 0)?;
    match kind {
        0 => echo(line, "echo reply", data)?,
        8 => echo(line, "echo request", data)?,
        3 => unreachable(line, code, data)?,
        4 => line.text("source quench"),
        5 => redirect(line, code, data)?,
        9 => router_advertisement(line, data)?,
        10 => line.text("router solicitation"),
        11 if data.len() < 28 => return None,
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
        14 => time_stamps(line, data)?,
        15 => line.text("information request"),
        16 => line.text("information reply"),
        17 => line.text("address mask request"),
        18 => put!(line, "address mask is 0x{:08x}", be32(data, 8)?),
        other => put!(line, "type-#{other}"),
    }
    Some(())
}

fn echo(line: &mut Line<'_>, name: &str, data: &[u8]) -> Printed {
    let (id, seq) = (be16(data, 4)?, be16(data, 6)?);
    line.text(name);
    line.text(", id ");
    line.dec(u32::from(id));
    line.text(", seq ");
    line.dec(u32::from(seq));
    Some(())
}

fn redirect(line: &mut Line<'_>, code: u8, data: &[u8]) -> Printed {
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

/// Prints the lifetime, and each router with its preference (RFC 1256).
fn router_advertisement(line: &mut Line<'_>, data: &[u8]) -> Printed {
    let ([routers, size], lifetime) = (array::<2>(data, 4)?, be16(data, 6)?);
    let (hours, minutes, seconds) = (lifetime / 3600, lifetime / 60 % 60, lifetime % 60);
    line.text("router advertisement lifetime ");
    match lifetime {
        0..60 => put!(line, "{seconds}"),
        60..3600 => put!(line, "{minutes}:{seconds:02}"),
        3600.. => put!(line, "{hours}:{minutes:02}:{seconds:02}"),
    }
    put!(line, " {routers}:");
    if size != 2 {
        put!(line, " [size {size}]");
        return Some(());
    }
    for index in 0..usize::from(routers) {
        let (address, preference) = (array(data, 8 + 8 * index)?, be32(data, 12 + 8 * index)?);
        line.text(" {");
        line.ipv4(address);
        put!(line, " {preference}}}");
    }
    Some(())
}

/// Prints the three times of a reply, each in milliseconds since midnight.
fn time_stamps(line: &mut Line<'_>, data: &[u8]) -> Printed {
    let (id, seq) = (be16(data, 4)?, be16(data, 6)?);
    put!(line, "time stamp reply id {id} seq {seq}: ");
    for (index, name) in ["org", ", recv", ", xmit"].into_iter().enumerate() {
        let ms = be32(data, 8 + 4 * index)?;
        let (seconds, ms) = (ms / 1000, ms % 1000);
        let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        put!(line, "{name} {hours:02}:{minutes:02}:{seconds:02}.{ms:03}");
    }
    Some(())
}

/// Prints the host, protocol or port that was not reached, from the packet quoted after the first
/// eight bytes.
fn unreachable(line: &mut Line<'_>, code: u8, data: &[u8]) -> Printed {
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

fn port_unreachable(line: &mut Line<'_>, target: [u8; 4], quoted: &[u8]) -> Printed {
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
