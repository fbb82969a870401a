//! Copies of pcapng files: secrets, names, comments, custom blocks and options of packets, against bytes made by hand.

use crate::support::*;
use std::fs;

/// Builder of pcapng bytes in either byte order.
#[derive(Clone, Copy)]
struct Made {
    big_endian: bool,
}

impl Made {
    fn word(self, value: u32) -> Vec<u8> {
        if self.big_endian {
            value.to_be_bytes().into()
        } else {
            value.to_le_bytes().into()
        }
    }

    fn half(self, value: u16) -> Vec<u8> {
        if self.big_endian {
            value.to_be_bytes().into()
        } else {
            value.to_le_bytes().into()
        }
    }

    fn block(self, kind: u32, parts: &[Vec<u8>]) -> Vec<u8> {
        let mut body = parts.concat();
        body.resize(body.len().next_multiple_of(4), 0);
        let total = self.word(body.len() as u32 + 12);
        [self.word(kind), total.clone(), body, total].concat()
    }

    fn option(self, code: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = [self.half(code), self.half(value.len() as u16), value.into()].concat();
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn start(self) -> Vec<u8> {
        let section = [
            self.word(0x1a2b_3c4d),
            self.half(1),
            self.half(0),
            vec![0xff; 8],
        ]
        .concat();
        let interface = [self.half(1), self.half(0), self.word(0)].concat();
        [
            self.block(
                0x0a0d_0d0a,
                &[section, self.option(1, b"about the section"), self.word(0)],
            ),
            self.block(
                1,
                &[
                    interface,
                    self.option(1, b"about the interface"),
                    self.word(0),
                ],
            ),
        ]
        .concat()
    }

    fn secrets(self) -> Vec<u8> {
        self.block(
            10,
            &[
                self.word(0x544c_534b),
                self.word(7),
                b"a key\0\n\0".to_vec(),
                self.option(1, b"x"),
                self.word(0),
            ],
        )
    }

    fn names(self) -> Vec<u8> {
        self.block(
            4,
            &[
                self.option(1, b"\x0a\0\0\x01one\0"),
                self.option(0, b""),
                self.option(2, b"dns"),
                self.word(0),
            ],
        )
    }

    fn custom(self, kind: u32) -> Vec<u8> {
        self.block(kind, &[self.word(0x7ed9), b"any bytes".to_vec()])
    }

    /// Options of a packet: comment, flags, hash, dropped packets, and number of the packet.
    fn options(self) -> Vec<u8> {
        let double = |value: u64| {
            if self.big_endian {
                value.to_be_bytes()
            } else {
                value.to_le_bytes()
            }
        };
        [
            self.option(1, b"look here"),
            self.option(2, &self.word(0x0201)),
            self.option(3, b"\x02abcd"),
            self.option(4, &double(3)),
            self.option(5, &double(77)),
            self.word(0),
        ]
        .concat()
    }

    /// A packet to this port.
    fn packet(self, port: u16, options: &[u8]) -> Vec<u8> {
        let frame = udp(port, 3);
        let (high, low) = ((u64::from(port) >> 32) as u32, u32::from(port) * 1000);
        let mut data = frame.clone();
        data.resize(data.len().next_multiple_of(4), 0);
        let fields =
            [0, high, low, frame.len() as u32, frame.len() as u32].map(|value| self.word(value));
        self.block(6, &[fields.concat(), data, options.into()])
    }

    fn file(self) -> Vec<u8> {
        [
            self.start(),
            self.secrets(),
            self.packet(1, &[]),
            self.names(),
            self.custom(0x0bad),
            self.custom(0x4000_0bad),
            self.block(0x55, &[b"a journal".to_vec()]),
            self.packet(2, &self.options()),
            self.packet(3, &[]),
        ]
        .concat()
    }
}

const LITTLE: Made = Made { big_endian: false };

/// Place of some bytes in a file.
#[track_caller]
fn place(file: &[u8], part: &[u8]) -> usize {
    file.windows(part.len())
        .position(|window| window == part)
        .unwrap_or_else(|| panic!("{part:02x?} is missing"))
}

fn has(file: &[u8], part: &[u8]) -> bool {
    file.windows(part.len()).any(|window| window == part)
}

/// Block of a packet in the order and with the options of a copy, behind its times.
fn tail(port: u16, options: &[u8]) -> Vec<u8> {
    LITTLE.packet(port, options)[20..].to_vec()
}

#[test]
fn a_copy_keeps_secrets_names_custom_blocks_and_options() {
    for big_endian in [false, true] {
        let temp = Temp::new();
        let (file, out) = (
            temp.file("in.pcapng", &Made { big_endian }.file()),
            temp.at("out.pcapng"),
        );
        for more in [&[][..], &["--sort"], &["--merge"], &["--workers", "3"]] {
            let done = weir([&["filter", "", &file, "-w", &out], more].concat()).ok();
            let copy = fs::read(&out).unwrap();
            let first = place(&copy, &tail(1, &[]));
            assert!(
                place(&copy, &LITTLE.secrets()) < first,
                "{more:?}: secrets come before the packets"
            );
            place(&copy, &LITTLE.names());
            place(&copy, &tail(2, &LITTLE.options()));
            place(&copy, &tail(3, &[]));
            place(&copy, b"about the section");
            place(&copy, b"about the interface");
            assert_eq!(
                has(&copy, &LITTLE.custom(0x0bad)),
                !big_endian,
                "only its vendor knows its byte order"
            );
            assert!(!has(&copy, b"a journal") && !has(&copy, &LITTLE.custom(0x4000_0bad)));
            let custom = if big_endian { "1 custom block, " } else { "" };
            let line = format!(
                "{custom}1 custom block that must not be copied, 1 block of an unknown type are left out of copies"
            );
            assert!(done.err.contains(&line), "{more:?} {line}: {}", done.err);
            assert!(
                done.err
                    .contains("in.pcapng: 3 packets were dropped when it was captured"),
                "{}",
                done.err
            );
        }
        // Only the options of packets that are kept; a cut packet has no hash of the whole one.
        weir(["filter", "udp port 3", &file, "-w", &out]).ok();
        let copy = fs::read(&out).unwrap();
        assert!(
            place(&copy, &LITTLE.secrets()) < place(&copy, &tail(3, &[]))
                && !has(&copy, b"look here")
        );
        weir(["filter", "udp port 2", &file, "-s", "20", "-w", &out]).ok();
        let copy = fs::read(&out).unwrap();
        assert!(has(&copy, b"look here") && !has(&copy, b"abcd"));
        // Each file of a rotation is whole in itself.
        let parts = Temp::new();
        weir([
            "filter",
            "",
            &file,
            "-G",
            "1",
            "-w",
            &parts.at("p-%s.pcapng"),
        ])
        .ok();
        assert!(!parts.names().is_empty());
        for name in parts.names() {
            assert!(
                has(&fs::read(parts.at(&name)).unwrap(), &LITTLE.secrets()),
                "{name}"
            );
        }
    }
}

#[test]
fn what_has_no_place_in_a_pcap_file_is_counted() {
    let temp = Temp::new();
    let (file, out) = (temp.file("in.pcapng", &LITTLE.file()), temp.at("out.pcap"));
    let done = weir(["filter", "", &file, "-w", &out]).ok();
    let line = "1 block of decryption secrets, 1 block of names of addresses, 1 custom block, \
                2 comments of sections and interfaces, 1 comment of a packet, 1 count of lost packets are left out, because the file \
                has no place for them";
    assert!(
        done.err.contains(&format!("out.pcap: {line}")),
        "{}",
        done.err
    );
    assert_eq!(records(&out).len(), 3);
    // A plain count says nothing about copies.
    let done = weir(["filter", "", &file, "--count"]).ok();
    assert!(!done.err.contains("left out"), "{}", done.err);
}

/// Other readers find the comment and the secrets of a copy.
#[test]
fn other_readers_find_what_a_copy_keeps() {
    let test = "other_readers_find_what_a_copy_keeps";
    if !have(test, &["tshark"]) {
        return;
    }
    let temp = Temp::new();
    let (file, out) = (
        temp.file("in.pcapng", &LITTLE.file()),
        temp.at("out.pcapng"),
    );
    weir(["filter", "", &file, "-w", &out]).ok();
    let ask = |path: &str| {
        tool(
            "tshark",
            [
                "-n",
                "-r",
                path,
                "-T",
                "fields",
                "-e",
                "frame.comment",
                "-e",
                "frame.len",
            ],
        )
        .ok()
        .text()
    };
    // It shows custom blocks as packets of 12 bytes, of which one must not be copied.
    let packets = |text: String| {
        text.lines()
            .filter(|line| line.ends_with("\t45"))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(packets(ask(&out)), packets(ask(&file)));
    assert_eq!(packets(ask(&out)).len(), 3);
    assert!(ask(&out).contains("look here"));
}
