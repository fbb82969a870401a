//! Encapsulated and encrypted packets: GRE, EtherIP, ESP, IPComp.

use super::text::{Line, Printed, after, be16, be32, put};
use super::{ether, ppp};

/// GRE (RFC 2784, RFC 2890) and its version 1 for PPTP (RFC 2637).
pub(super) fn gre(line: &mut Line<'_>, data: &[u8], wire: usize) -> Printed {
    let flags = be16(data, 0)?;
    put!(line, "GREv{}", flags & 7);
    match flags & 7 {
        0 => version0(line, flags, data, wire),
        1 => version1(line, flags, data, wire),
        _ => {
            line.text(" (unknown)");
            Some(())
        }
    }
}

/// Prints GRE version 0. Its optional fields have this order: checksum with offset, key, sequence number.
fn version0(line: &mut Line<'_>, flags: u16, data: &[u8], wire: usize) -> Printed {
    let protocol = be16(data, 2)?;
    let mut at = 4;
    if flags & 0xc000 != 0 {
        be32(data, at)?;
        at += 4;
    }
    if flags & 0x2000 != 0 {
        put!(line, ", key=0x{:x}", be32(data, at)?);
        at += 4;
    }
    if flags & 0x1000 != 0 {
        put!(line, ", seq {}", be32(data, at)?);
        at += 4;
    }
    announced(line, protocol);
    line.length(wire);
    let (rest, rest_wire) = after(data, wire, at);
    inside(line, protocol, rest, rest_wire);
    Some(())
}

fn version1(line: &mut Line<'_>, flags: u16, data: &[u8], wire: usize) -> Printed {
    let protocol = be16(data, 2)?;
    let mut at = 4;
    if flags & 0x2000 != 0 {
        put!(line, ", call {}", be16(data, at + 2)?);
        at += 4;
    }
    if flags & 0x1000 != 0 {
        put!(line, ", seq {}", be32(data, at)?);
        at += 4;
    }
    if flags & 0x0080 != 0 {
        put!(line, ", ack {}", be32(data, at)?);
        at += 4;
    }
    if flags & 0x1000 == 0 {
        line.text(", no-payload");
    }
    announced(line, protocol);
    line.length(wire);
    if flags & 0x1000 != 0 {
        let (rest, rest_wire) = after(data, wire, at);
        inside(line, protocol, rest, rest_wire);
    }
    Some(())
}

/// With `-e`, prints the type of the payload.
fn announced(line: &mut Line<'_>, protocol: u16) {
    if line.link_header {
        let name = match ether::type_name(protocol) {
            "Unknown" => "unknown",
            name => name,
        };
        put!(line, ", proto {name} (0x{protocol:04x})");
    }
}

/// Prints the payload that an EtherType in GRE announces.
fn inside(line: &mut Line<'_>, protocol: u16, data: &[u8], wire: usize) {
    line.text(": ");
    line.nested(|line| {
        match protocol {
            0x880b => _ = ppp::frame(line, data, wire),
            0x6558 => _ = ether::frame(line, data, wire),
            0x0800 | 0x86dd | 0x8847 | 0x8848 => _ = ether::payload(line, protocol, data, wire),
            _ => put!(line, "gre-proto-0x{protocol:x}"),
        }
        Some(())
    });
}

/// EtherIP (RFC 3378): two bytes of version, then a frame.
pub(super) fn ether_in_ip(line: &mut Line<'_>, data: &[u8], wire: usize) -> Printed {
    let first = *data.first()?;
    put!(line, "etherip {}, length {wire}: ", first >> 4);
    let (rest, rest_wire) = after(data, wire, 2);
    line.nested(|line| {
        ether::frame(line, rest, rest_wire);
        Some(())
    })
}

/// ESP (RFC 4303).
pub(super) fn esp(line: &mut Line<'_>, data: &[u8], wire: usize) -> Printed {
    let (spi, seq) = (be32(data, 0)?, be32(data, 4)?);
    put!(line, "ESP(spi=0x{spi:08x},seq=0x{seq:x}), length {wire}");
    Some(())
}

/// IPComp (RFC 3173).
pub(super) fn ipcomp(line: &mut Line<'_>, data: &[u8]) -> Printed {
    let cpi = be16(data, 2)?;
    put!(line, "IPComp(cpi=0x{cpi:04x})");
    Some(())
}
