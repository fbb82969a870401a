//! Encapsulated and encrypted packets: GRE, EtherIP, ESP, IPComp.

use super::text::{Line, after, be16, be32, put};
use super::{ether, ppp};

/// GRE (RFC 2784, RFC 2890) and its version 1 for PPTP (RFC 2637).
pub(super) fn gre(line: &mut Line<'_>, data: &[u8], wire: usize) {
    let Some(flags) = be16(data, 0) else {
        return line.cut("gre");
    };
    put!(line, "GREv{}", flags & 7);
    let done = match flags & 7 {
        0 => version0(line, flags, data, wire),
        1 => version1(line, flags, data, wire),
        _ => {
            line.length(wire);
            Some(())
        }
    };
    if done.is_none() {
        line.cut("gre");
    }
}

/// Prints GRE version 0. Its optional fields have this order: checksum with offset, key, sequence number.
fn version0(line: &mut Line<'_>, flags: u16, data: &[u8], wire: usize) -> Option<()> {
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
    line.length(wire);
    let (rest, rest_wire) = after(data, wire, at);
    inside(line, protocol, rest, rest_wire);
    Some(())
}

fn version1(line: &mut Line<'_>, flags: u16, data: &[u8], wire: usize) -> Option<()> {
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
    line.length(wire);
    if flags & 0x1000 != 0 {
        let (rest, rest_wire) = after(data, wire, at);
        inside(line, protocol, rest, rest_wire);
    }
    Some(())
}

/// Prints the payload that an EtherType in GRE announces.
fn inside(line: &mut Line<'_>, protocol: u16, data: &[u8], wire: usize) {
    line.text(": ");
    line.nested(|line| match protocol {
        0x880b => {
            ppp::frame(line, data, wire);
        }
        0x6558 => {
            ether::frame(line, data, wire);
        }
        _ => {
            line.text(match protocol {
                0x0800 => "IP ",
                0x86dd => "IP6 ",
                _ => "",
            });
            ether::payload(line, protocol, data, wire);
        }
    });
}

/// EtherIP (RFC 3378): two bytes of version, then a frame.
pub(super) fn ether_in_ip(line: &mut Line<'_>, data: &[u8], wire: usize) {
    let Some(&first) = data.first() else {
        return line.cut("etherip");
    };
    put!(line, "etherip {}, length {wire}: ", first >> 4);
    let (rest, rest_wire) = after(data, wire, 2);
    line.nested(|line| {
        ether::frame(line, rest, rest_wire);
    });
}

/// ESP (RFC 4303).
pub(super) fn esp(line: &mut Line<'_>, data: &[u8], wire: usize) {
    let (Some(spi), Some(seq)) = (be32(data, 0), be32(data, 4)) else {
        return line.cut("esp");
    };
    put!(line, "ESP(spi=0x{spi:08x},seq=0x{seq:x}), length {wire}");
}

/// IPComp (RFC 3173).
pub(super) fn ipcomp(line: &mut Line<'_>, data: &[u8], wire: usize) {
    let Some(cpi) = be16(data, 2) else {
        return line.cut("ipcomp");
    };
    put!(line, "IPComp(cpi=0x{cpi:04x}), length {wire}");
}
