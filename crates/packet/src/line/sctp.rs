//! SCTP (RFC 9260): ports and the names of the chunks.

use super::text::{Line, array, put};
use super::upper::{Ends, ports};

const HEADER: usize = 12;
/// Largest number of chunks that are named; the rest is left out.
const CHUNKS_MAX: usize = 8;
const KINDS: [&str; 16] = [
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
    "AUTH CHUNK",
];

/// Prints `sctp [DATA] [SACK], length 64`.
pub(super) fn packet(line: &mut Line<'_>, ends: &Ends, data: &[u8], wire: usize) {
    let Some((src, dst)) = ports(data) else {
        ends.write(line);
        return line.cut("sctp");
    };
    ends.write_with_ports(line, src, dst);
    line.text("sctp");
    let mut rest = data.get(HEADER..).unwrap_or(&[]);
    for _ in 0..CHUNKS_MAX {
        let Some([kind, _, hi, lo]) = array::<4>(rest, 0) else {
            break;
        };
        match KINDS.get(usize::from(kind)) {
            Some(name) => put!(line, " [{name}]"),
            None => put!(line, " [type {kind}]"),
        }
        // Chunks are padded to four bytes. A length below four gives no next chunk.
        let length = usize::from(u16::from_be_bytes([hi, lo]));
        if length < 4 {
            break;
        }
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or(&[]);
    }
    line.length(wire.saturating_sub(HEADER));
}
