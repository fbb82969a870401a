//! The format of a file, by its first bytes.

use super::Resolution;

/// Largest number of bytes that [`recognise`] needs.
pub const MAX_MAGIC: usize = 16;

/// Format announced by the first bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Magic {
    /// Classic pcap.
    Pcap {
        /// Byte order of the writer.
        big_endian: bool,
        /// Unit of the fraction field.
        resolution: Resolution,
    },
    /// pcapng: the type of a Section Header Block reads the same in both byte orders.
    Pcapng,
    /// A format that is known by name but not read.
    Known(&'static str),
    /// Any other bytes.
    Unknown,
}

/// Compressed containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// gzip (RFC 1952).
    Gzip,
    /// zstd (RFC 8878).
    Zstd,
    /// LZ4 frame format.
    Lz4,
}

/// Recognises a compressed container by its first bytes (a zstd or lz4 stream may begin with a skippable frame).
pub fn compression(head: &[u8]) -> Option<Compression> {
    let skippable = matches!(head, [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..]);
    match head {
        [0x1f, 0x8b, ..] => Some(Compression::Gzip),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Compression::Zstd),
        [0x04, 0x22, 0x4d, 0x18, ..] => Some(Compression::Lz4),
        _ if skippable => Some(Compression::Zstd),
        _ => None,
    }
}

/// Recognises a capture format by its first four bytes (`head`) and the first bytes of the file (`start`).
pub fn recognise(head: &[u8; 4], start: &[u8]) -> Magic {
    let pcap = |big_endian, resolution| Magic::Pcap {
        big_endian,
        resolution,
    };
    match *head {
        [0xd4, 0xc3, 0xb2, 0xa1] => pcap(false, Resolution::MICROSECOND),
        [0xa1, 0xb2, 0xc3, 0xd4] => pcap(true, Resolution::MICROSECOND),
        [0x4d, 0x3c, 0xb2, 0xa1] => pcap(false, Resolution::NANOSECOND),
        [0xa1, 0xb2, 0x3c, 0x4d] => pcap(true, Resolution::NANOSECOND),
        [0x0a, 0x0d, 0x0d, 0x0a] => Magic::Pcapng,
        _ => known(head, start),
    }
}

/// Recognises formats that are refused by name. Each name comes with a remedy for the user.
fn known(head: &[u8; 4], start: &[u8]) -> Magic {
    let be = u32::from_be_bytes(*head);
    let name = match (be, be.swap_bytes()) {
        (0xa1b2_cd34, _) | (_, 0xa1b2_cd34) => {
            "modified pcap (Kuznetzov's patched libpcap), which is not read: convert it with `editcap -F pcapng`"
        }
        (0xa1b2_34cd, _) | (_, 0xa1b2_34cd) => {
            "pcap in Nokia's variant, which is not read: convert it with `editcap -F pcapng`"
        }
        (0xa1e2_cb12, _) | (_, 0xa1e2_cb12) => {
            "pcap in Navtel's variant, which is not read: convert it with `editcap -F pcapng`"
        }
        (0x1c00_01ac | 0x1c00_01ab, _) | (_, 0x1c00_01ac | 0x1c00_01ab) => {
            "a capture of IXIA's lcap format, which is not read: convert it with `editcap -F pcapng`"
        }
        (0x5254_5353 | 0x474d_4255, _) => {
            "a Microsoft Network Monitor capture, which is not read: convert it with `editcap -F pcapng`"
        }
        (0x5843_5000, _) => {
            "a NetXRay capture, which is not read: convert it with `editcap -F pcapng`"
        }
        _ => match start {
            [b's', b'n', b'o', b'o', b'p', 0, 0, 0, ..] => {
                "a snoop capture, which is not read: convert it with `editcap -F pcapng`"
            }
            [b'b', b't', b's', b'n', b'o', b'o', b'p', 0, ..] => {
                "a btsnoop capture, which is not read: convert it with `editcap -F pcapng`"
            }
            [b'T', b'R', b'S', b'N', b'I', b'F', b'F', b' ', ..] => {
                "a Sniffer capture, which is not read: convert it with `editcap -F pcapng`"
            }
            [b'i', b'p', b't', b'r', b'a', b'c', b'e', b' ', ..] => {
                "an AIX iptrace capture, which is not read: convert it with `editcap -F pcapng`"
            }
            [b'B', b'Z', b'h', b'1'..=b'9', ..] => {
                "bzip2 compressed: pipe it through `bzip2 -dc FILE |` and read `-`"
            }
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => {
                "xz compressed: pipe it through `xz -dc FILE |` and read `-`"
            }
            [b'P', b'K', 3, 4, ..] => "a zip archive: unpack it first",
            _ => return Magic::Unknown,
        },
    };
    Magic::Known(name)
}
