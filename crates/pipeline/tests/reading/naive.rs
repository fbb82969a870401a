//! The plainest possible reader of capture files, as an oracle: no code is shared with weir.

use std::ops::Range;

/// A packet, and the position of its bytes in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// `None` for a simple packet block.
    pub time_ns: Option<i128>,
    pub wire_len: u32,
    pub data: Range<usize>,
    pub interface: Interface,
    /// Offset of the end of its record.
    pub end: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interface {
    pub link: u16,
    pub snaplen: u32,
    /// `if_tsresol`.
    pub unit: u8,
    pub offset_s: i64,
}

/// Contents of a file, and the offset of the end of reading if that is not the end of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    pub packets: Vec<Packet>,
    pub fault: Option<usize>,
}

struct Bytes<'a> {
    file: &'a [u8],
    big: bool,
}

impl Bytes<'_> {
    fn word(&self, at: usize) -> Option<u32> {
        let four = self.file.get(at..at + 4)?.try_into().ok()?;
        Some(if self.big {
            u32::from_be_bytes(four)
        } else {
            u32::from_le_bytes(four)
        })
    }

    fn half(&self, at: usize) -> Option<u16> {
        let two = self.file.get(at..at + 2)?.try_into().ok()?;
        Some(if self.big {
            u16::from_be_bytes(two)
        } else {
            u16::from_le_bytes(two)
        })
    }
}

fn time(unit: u8, ticks: u64, offset_s: i64) -> i128 {
    let ticks = i128::from(ticks) * 1_000_000_000;
    let ns = if unit < 128 {
        ticks / 10i128.pow(unit.into())
    } else {
        ticks >> (unit - 128)
    };
    ns + i128::from(offset_s) * 1_000_000_000
}

pub fn read(file: &[u8]) -> Contents {
    let mut found = Contents::default();
    let end = match file.get(..4) {
        Some([0x0a, 0x0d, 0x0d, 0x0a]) => pcapng(file, &mut found.packets),
        _ => pcap(file, &mut found.packets),
    };
    found.fault = (end < file.len() || end == 0).then_some(end);
    found
}

/// Returns where it could read no further.
fn pcap(file: &[u8], packets: &mut Vec<Packet>) -> usize {
    let (big, unit) = match file.get(..4) {
        Some([0xd4, 0xc3, 0xb2, 0xa1]) => (false, 6),
        Some([0xa1, 0xb2, 0xc3, 0xd4]) => (true, 6),
        Some([0x4d, 0x3c, 0xb2, 0xa1]) => (false, 9),
        Some([0xa1, 0xb2, 0x3c, 0x4d]) => (true, 9),
        _ => return 0,
    };
    let bytes = Bytes { file, big };
    let (Some(snaplen), Some(link)) = (bytes.word(16), bytes.word(20)) else {
        return 0;
    };
    let interface = Interface {
        link: link as u16,
        snaplen,
        unit,
        offset_s: 0,
    };
    let most = if matches!(link, 231 | 249) {
        128 << 20
    } else {
        snaplen.max(262_144)
    };
    let mut at = 24;
    while let (Some(seconds), Some(fraction), Some(captured), Some(wire_len)) = (
        bytes.word(at),
        bytes.word(at + 4),
        bytes.word(at + 8),
        bytes.word(at + 12),
    ) {
        let data = at + 16..at + 16 + captured as usize;
        if captured > most || data.end > file.len() {
            break;
        }
        let time_ns = Some(time(unit, fraction.into(), seconds.into()));
        at = data.end;
        packets.push(Packet {
            time_ns,
            wire_len,
            data,
            interface,
            end: at,
        });
    }
    at
}

/// Returns where it could read no further.
fn pcapng(file: &[u8], packets: &mut Vec<Packet>) -> usize {
    let mut at = 0;
    let mut bytes = Bytes { file, big: false };
    let mut interfaces: Vec<Interface> = Vec::new();
    while let Some(next) = block(&mut bytes, at, &mut interfaces, packets) {
        at = next;
    }
    at
}

/// Reads the block at `at`; returns the place behind it.
fn block(
    bytes: &mut Bytes<'_>,
    at: usize,
    interfaces: &mut Vec<Interface>,
    packets: &mut Vec<Packet>,
) -> Option<usize> {
    let file = bytes.file;
    if file.get(at..at + 4)? == [0x0a, 0x0d, 0x0d, 0x0a] {
        bytes.big = match file.get(at + 8..at + 12)? {
            [0x1a, 0x2b, 0x3c, 0x4d] => true,
            [0x4d, 0x3c, 0x2b, 0x1a] => false,
            _ => return None,
        };
    }
    let (kind, total) = (bytes.word(at)?, bytes.word(at + 4)? as usize);
    let next = at + total;
    if total < 12 || total % 4 != 0 || bytes.word(next - 4)? != total as u32 {
        return None;
    }
    let body = at + 8..next - 4;
    match kind {
        0x0a0d_0d0a => {
            let version = (bytes.half(at + 12)?, bytes.half(at + 14)?);
            if total < 28 || !matches!(version, (1, 0 | 2)) {
                return None;
            }
            interfaces.clear();
        }
        1 if body.len() < 8 => return None,
        1 => {
            let (link, snaplen) = (bytes.half(body.start)?, bytes.word(body.start + 4)?);
            let mut found = Interface {
                link,
                snaplen,
                unit: 6,
                offset_s: 0,
            };
            let mut option = body.start + 8;
            while option + 4 <= body.end {
                let (code, len) = (bytes.half(option)?, usize::from(bytes.half(option + 2)?));
                let value = option + 4..option + 4 + len;
                if code == 0 || value.end > body.end {
                    break;
                }
                if code == 9 && len > 0 {
                    found.unit = file[value.start];
                }
                if code == 14 && len >= 8 {
                    let eight = file[value.start..value.start + 8].try_into().ok()?;
                    found.offset_s = if bytes.big {
                        i64::from_be_bytes(eight)
                    } else {
                        i64::from_le_bytes(eight)
                    };
                }
                option = value.start + len.next_multiple_of(4);
            }
            interfaces.push(found);
        }
        3 => {
            let interface = *interfaces.first()?;
            let wire_len = bytes.word(body.start).filter(|_| body.len() >= 4)?;
            let captured = if interface.snaplen == 0 {
                wire_len
            } else {
                wire_len.min(interface.snaplen)
            } as usize;
            let data = body.start + 4..body.start + 4 + captured;
            if data.end > body.end {
                return None;
            }
            packets.push(Packet {
                time_ns: None,
                wire_len,
                data,
                interface,
                end: next,
            });
        }
        2 | 6 => {
            if body.len() < 20 {
                return None;
            }
            let id = if kind == 6 {
                bytes.word(body.start)?
            } else {
                bytes.half(body.start)?.into()
            };
            let interface = *interfaces.get(id as usize)?;
            let ticks = u64::from(bytes.word(body.start + 4)?) << 32
                | u64::from(bytes.word(body.start + 8)?);
            let (captured, wire_len) = (bytes.word(body.start + 12)?, bytes.word(body.start + 16)?);
            let data = body.start + 20..body.start + 20 + captured as usize;
            if data.end > body.end {
                return None;
            }
            let time_ns = Some(time(interface.unit, ticks, interface.offset_s));
            packets.push(Packet {
                time_ns,
                wire_len,
                data,
                interface,
                end: next,
            });
        }
        _ => {}
    }
    Some(next)
}
