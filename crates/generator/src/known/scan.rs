//! Connection requests that nobody wants: scans and floods.

use super::wire::{ACK, End, RST, SYN, Segment, write_tcp};
use super::{Flood, Flooded, Scan, Scanner};
use crate::FRAME_MAX;
use crate::frame::Noise;
use crate::random::{hash, permute};

/// Bits of the number of a random source.
const SOURCE_BITS: u32 = 19;
/// Port that floods ask for.
const FLOODED: u16 = 80;
const WINDOW: u16 = 1024;

/// Answer of a contact.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Answer {
    Accepts,
    Refuses,
    None,
}

/// Frames of one contact.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    Request,
    Answer,
    /// The scanner ends what it had begun.
    End,
}

/// A scan that has not ended.
#[derive(Debug)]
pub(super) struct Scanning {
    scan: Scan,
    /// Number of the first source among all scanners.
    first: usize,
    begin: i64,
    /// Number of the contact: peers change first, then ports.
    contact: u64,
    step: Step,
}

impl Scanning {
    /// **Panics**: a number of the scan is outside its range.
    pub(super) fn new(scan: &Scan, start_ns: i64, scanners: &mut Vec<Scanner>) -> Self {
        let Scan {
            sources,
            peers,
            ports,
            gap_ns,
            ..
        } = *scan;
        assert!((1..=1 << 15).contains(&peers) && (1..=0xffff).contains(&ports));
        assert!((1..=peers.min(256)).contains(&sources) && gap_ns >= 4);
        let first = scanners.len();
        assert!(
            first + sources as usize <= 1 << 16,
            "at most 65 536 sources"
        );
        scanners.extend((first..first + sources as usize).map(|number| Scanner {
            source: [10, 146, (number >> 8) as u8, number as u8],
            peers: 0,
            ports: 0,
            contacts: 0,
            accepted: 0,
            refused: 0,
        }));
        Self {
            scan: *scan,
            first,
            begin: start_ns + scan.begin_ns,
            contact: 0,
            step: Step::Request,
        }
    }

    /// Time of the next frame. Request, answer and end are a quarter of the gap apart.
    pub(super) fn due(&self) -> Option<i64> {
        let Scan {
            peers,
            ports,
            gap_ns,
            ..
        } = self.scan;
        let is_left = self.contact < u64::from(peers) * u64::from(ports);
        let quarters = self.step as i64;
        is_left.then(|| self.begin + self.contact as i64 * gap_ns + quarters * (gap_ns / 4))
    }

    pub(super) fn write(
        &mut self,
        buf: &mut [u8; FRAME_MAX],
        noise: &Noise,
        scanners: &mut [Scanner],
    ) -> usize {
        let Scan {
            sources,
            peers,
            accepting,
            refusing,
            ..
        } = self.scan;
        let (peer, port) = (
            self.contact % u64::from(peers),
            self.contact / u64::from(peers),
        );
        let source = (peer % u64::from(sources)) as usize;
        let scanner = &mut scanners[self.first + source];
        let seed = hash(self.first as u64, peer, port);
        let answer = match (seed % 1000) as u32 {
            draw if draw < accepting => Answer::Accepts,
            draw if draw < accepting + refusing => Answer::Refuses,
            _ => Answer::None,
        };
        let from = End {
            address: scanner.source,
            port: 1024 + (self.contact % 60_000) as u16,
        };
        let to = End {
            address: [198, 19, 128 + (peer >> 8) as u8, peer as u8],
            port: 1 + port as u16,
        };
        let (sequence, theirs) = (seed as u32, (seed >> 32) as u32);
        let (ends, flags, sequence, acknowledged) = match (self.step, answer) {
            (Step::Request, _) => {
                scanner.contacts += 1;
                // Peers come round once for each port.
                scanner.peers += u64::from(port == 0);
                scanner.ports += u64::from(peer == source as u64);
                ((from, to), SYN, sequence, 0)
            }
            (Step::Answer, Answer::Accepts) => {
                scanner.accepted += 1;
                ((to, from), SYN | ACK, theirs, sequence.wrapping_add(1))
            }
            (Step::Answer, _) => {
                scanner.refused += 1;
                ((to, from), RST | ACK, 0, sequence.wrapping_add(1))
            }
            (Step::End, _) => ((from, to), RST, sequence.wrapping_add(1), 0),
        };
        self.step = match (self.step, answer) {
            (Step::Request, Answer::Accepts | Answer::Refuses) => Step::Answer,
            (Step::Answer, Answer::Accepts) => Step::End,
            _ => Step::Request,
        };
        self.contact += u64::from(self.step == Step::Request);
        let window = if flags & RST == 0 { WINDOW } else { 0 };
        let segment = Segment {
            sequence,
            acknowledged,
            flags,
            window,
            len: 0,
        };
        write_tcp(buf, ends, &segment, noise)
    }
}

/// A flood that has not ended.
#[derive(Debug)]
pub(super) struct Flooding {
    flood: Flood,
    number: usize,
    begin: i64,
    made: u32,
    seed: u64,
}

impl Flooding {
    /// **Panics**: a number of the flood is outside its range.
    pub(super) fn new(flood: &Flood, start_ns: i64, seed: u64, floods: &mut Vec<Flooded>) -> Self {
        assert!(
            (1..=1 << SOURCE_BITS).contains(&flood.sources),
            "1 to 524 288 sources"
        );
        let number = floods.len();
        assert!(number < 250, "at most 250 floods");
        floods.push(Flooded {
            target: [198, 19, 2, 1 + number as u8],
            port: FLOODED,
            frames: 0,
            sources: 0,
        });
        Self {
            flood: *flood,
            number,
            begin: start_ns + flood.begin_ns,
            made: 0,
            seed,
        }
    }

    pub(super) fn due(&self) -> Option<i64> {
        let due = self.begin + i64::from(self.made) * self.flood.gap_ns;
        (self.made < self.flood.frames).then_some(due)
    }

    pub(super) fn write(
        &mut self,
        buf: &mut [u8; FRAME_MAX],
        noise: &Noise,
        floods: &mut [Flooded],
    ) -> usize {
        let facts = &mut floods[self.number];
        let round = self.made / self.flood.sources;
        facts.frames += 1;
        facts.sources += u64::from(round == 0);
        // A single source has an address that no random one has.
        let address = match self.flood.sources {
            1 => [10, 147, 0, 1 + self.number as u8],
            sources => {
                let [_, a, b, c] =
                    permute(self.made % sources, SOURCE_BITS, self.seed).to_be_bytes();
                [10, 152 + a, b, c]
            }
        };
        let seed = hash(self.seed, 0, self.made.into());
        let from = End {
            address,
            port: 1024 + (round % 64_000) as u16,
        };
        let to = End {
            address: facts.target,
            port: facts.port,
        };
        self.made += 1;
        let segment = Segment {
            sequence: seed as u32,
            acknowledged: 0,
            flags: SYN,
            window: WINDOW,
            len: 0,
        };
        write_tcp(buf, (from, to), &segment, noise)
    }
}
