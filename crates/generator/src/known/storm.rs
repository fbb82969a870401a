//! Frames to all stations, one after another.

use super::wire::{End, UDP, write_udp};
use super::{Known, Storm, StormKind};
use crate::FRAME_MAX;
use crate::frame::{FRAME_MIN, write_arp};

/// Bytes of a broadcast datagram's payload.
const PAYLOAD: usize = 32;
/// Port of broadcast datagrams: discard (RFC 863).
const PORT: u16 = 9;

/// A storm that has not ended.
#[derive(Debug)]
pub(super) struct Storming {
    storm: Storm,
    number: u8,
    begin: i64,
    made: u32,
}

impl Storming {
    pub(super) fn new(storm: &Storm, start_ns: i64, number: u8) -> Self {
        Self {
            storm: *storm,
            number,
            begin: start_ns + storm.begin_ns,
            made: 0,
        }
    }

    pub(super) fn due(&self) -> Option<i64> {
        let due = self.begin + i64::from(self.made) * self.storm.gap_ns;
        (self.made < self.storm.frames).then_some(due)
    }

    pub(super) fn write(&mut self, buf: &mut [u8; FRAME_MAX], known: &mut Known) -> usize {
        let sender = [10, 148, 0, self.number];
        let [_, _, b, c] = self.made.to_be_bytes();
        self.made += 1;
        match self.storm.kind {
            StormKind::Arp => {
                known.arp += 1;
                write_arp(buf, sender, [10, 149, b, c], false);
                FRAME_MIN
            }
            StormKind::Broadcast => {
                known.broadcasts += 1;
                buf[UDP..UDP + PAYLOAD].fill(0);
                let end = |address| End {
                    address,
                    port: PORT,
                };
                write_udp(buf, (end(sender), end([255; 4])), PAYLOAD)
            }
        }
    }
}
