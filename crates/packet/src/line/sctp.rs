//! SCTP (RFC 9260): ports and chunks.

use super::text::{Line, Printed, be16, be32, put};
use super::upper::{Layer, ports};

const HEADER: usize = 12;
/// Largest number of chunks that are printed; the rest is left out.
const CHUNKS_MAX: usize = 32;
const KINDS: [&str; 15] = [
    "DATA",
    "INIT",
    "INIT ACK",
    "SACK",
    "HB REQ",
    "HB ACK",
    "ABORT",
    "SHUTDOWN",
    "SHUTDOWN ACK",
    "OP ERR",
    "COOKIE ECHO",
    "COOKIE ACK",
    "ECN ECHO",
    "CWR",
    "SHUTDOWN COMPLETE",
];

/// Prints `sctp (1) [DATA] (B)(E) [TSN: 1] [SID: 0] [SSEQ 1] [PPID 0x0] `.
pub(super) fn packet(line: &mut Line<'_>, layer: &Layer, data: &[u8], wire: usize) -> Printed {
    if wire < HEADER {
        layer.ends.write(line);
        put!(line, "sctp [length {wire} < {HEADER}] (invalid)");
        return Some(());
    }
    data.get(HEADER - 1)?;
    let (src, dst) = ports(data)?;
    layer.write_with_ports(line, 132, src, dst);
    line.text("sctp");
    let (mut at, mut number) = (HEADER, 0);
    while at < wire {
        number += 1;
        if number > CHUNKS_MAX {
            line.text(" ...");
            return Some(());
        }
        let separator = if line.is_verbose() { "\n\t" } else { " " };
        let kind = *data.get(at)?;
        let length = usize::from(be16(data, at + 2)?);
        if length < 4 {
            put!(
                line,
                "{separator}({number}) [Bad chunk length {length}, < size of chunk descriptor]"
            );
            return Some(());
        }
        if length > wire - at {
            put!(
                line,
                "{separator}({number}) [Bad chunk length {length}, > remaining data in packet]"
            );
            return Some(());
        }
        data.get(at..at + length)?;
        put!(line, "{separator}({number}) ");
        match KINDS.get(usize::from(kind)) {
            Some(name) => put!(line, "[{name}] "),
            None => put!(line, "[Unknown chunk type: 0x{kind:x}] "),
        }
        chunk(line, kind, data, at)?;
        // Chunks are padded to four bytes.
        at += length.next_multiple_of(4);
    }
    Some(())
}

/// Prints the fields of the chunk at `at`.
fn chunk(line: &mut Line<'_>, kind: u8, data: &[u8], at: usize) -> Printed {
    match kind {
        0 => {
            let flags = *data.get(at + 1)?;
            for (bit, name) in [(4, "(U)"), (2, "(B)"), (1, "(E)")] {
                line.text(if flags & bit != 0 { name } else { "" });
            }
            line.text(if flags & 7 != 0 { " " } else { "" });
            put!(line, "[TSN: {}] ", be32(data, at + 4)?);
            put!(line, "[SID: {}] ", be16(data, at + 8)?);
            put!(line, "[SSEQ {}] ", be16(data, at + 10)?);
            payload(line, be32(data, at + 12)?);
        }
        1 | 2 => {
            put!(line, "[init tag: {}] ", be32(data, at + 4)?);
            put!(line, "[rwnd: {}] ", be32(data, at + 8)?);
            put!(line, "[OS: {}] ", be16(data, at + 12)?);
            put!(line, "[MIS: {}] ", be16(data, at + 14)?);
            put!(line, "[init TSN: {}] ", be32(data, at + 16)?);
        }
        3 => {
            put!(line, "[cum ack {}] ", be32(data, at + 4)?);
            put!(line, "[a_rwnd {}] ", be32(data, at + 8)?);
            put!(line, "[#gap acks {}] ", be16(data, at + 12)?);
            put!(line, "[#dup tsns {}] ", be16(data, at + 14)?);
        }
        _ => {}
    }
    Some(())
}

/// Prints the protocol of the data, by its number in the registry of IANA.
fn payload(line: &mut Line<'_>, protocol: u32) {
    const NAMES: [&str; 15] = [
        "unspecified",
        "IUA",
        "M2UA",
        "M3UA",
        "SUA",
        "M2PA",
        "V5UA",
        "H.248",
        "BICC/Q.2150.3",
        "TALI",
        "DUA",
        "ASAP",
        "ENRP",
        "H.323",
        "Q.IPC/Q.2150.3",
    ];
    match NAMES.get(protocol as usize).filter(|_| protocol > 0) {
        Some(name) => put!(line, "[PPID {name}] "),
        None => put!(line, "[PPID 0x{protocol:x}] "),
    }
}
