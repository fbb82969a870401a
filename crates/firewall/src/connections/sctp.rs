//! Chunks of SCTP: which packets open an association, belong to one, or end it, as Linux' connection tracking has it.
//!
//! **Source**: RFC 9260, sections 3 and 8.5.1, and `net/netfilter/nf_conntrack_proto_sctp.c`, Linux 6.18, with which packets are compared
//! (`tests/nftables.rs`). **Absent**: verification tags, but that of INIT, which is 0.

use super::phase::Phase;

const INIT: u8 = 1;
const INIT_ACK: u8 = 2;
const HEARTBEAT: u8 = 4;
const HEARTBEAT_ACK: u8 = 5;
const ABORT: u8 = 6;
const SHUTDOWN: u8 = 7;
const SHUTDOWN_ACK: u8 = 8;
const ERROR: u8 = 9;
const COOKIE_ECHO: u8 = 10;
const COOKIE_ACK: u8 = 11;
const SHUTDOWN_COMPLETE: u8 = 14;

/// Chunks that say something about the association.
const CONTROLS: u16 = {
    let all = [
        INIT,
        INIT_ACK,
        HEARTBEAT,
        HEARTBEAT_ACK,
        ABORT,
        SHUTDOWN,
        SHUTDOWN_ACK,
        ERROR,
        COOKIE_ECHO,
        COOKIE_ACK,
        SHUTDOWN_COMPLETE,
    ];
    let (mut bits, mut i) = (0, 0);
    while i < all.len() {
        bits |= 1 << all[i];
        i += 1;
    }
    bits
};

/// Bytes of the common header.
const HEADER: usize = 12;

/// Largest number of chunks that are checked: a packet of 1500 bytes has fewer.
const MOST: usize = 512;

/// Chunks of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chunks {
    /// Types below 16 that the packet has, a bit each.
    types: u16,
    /// Whether the packet can be the first of an association.
    opens: bool,
}

/// Reason for a packet without chunks to judge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoChunks {
    /// The captured bytes end within them.
    Cut,
    /// No association sends them so.
    Invalid,
}

impl Chunks {
    /// Reads the chunks of a packet from its common header on. `length` is that which the IP header claims.
    pub(super) fn of(bytes: &[u8], length: usize) -> Result<Self, NoChunks> {
        let [_, _, _, _, a, b, c, d, _, _, _, _, ..] = *bytes else {
            return Err(if length < HEADER {
                NoChunks::Invalid
            } else {
                NoChunks::Cut
            });
        };
        let tag = u32::from_be_bytes([a, b, c, d]);
        let (mut types, mut are_all_first, mut is_alone) = (0u16, true, false);
        let (mut at, mut count) = (HEADER, 0);
        while at < length && count < MOST {
            let Some(&[kind, _, high, low]) = bytes.get(at..).and_then(<[u8]>::first_chunk) else {
                // Less than a header after the last chunk is none.
                if length - at < 4 {
                    break;
                }
                return Err(NoChunks::Cut);
            };
            let len = usize::from(u16::from_be_bytes([high, low]));
            is_alone |= matches!(kind, INIT | INIT_ACK | SHUTDOWN_COMPLETE);
            let is_misplaced = count > 0 && (is_alone || matches!(kind, COOKIE_ECHO | COOKIE_ACK));
            if is_misplaced || len == 0 {
                return Err(NoChunks::Invalid);
            }
            types |= if kind < 16 { 1 << kind } else { 0 };
            let is_first = |kind| {
                matches!(
                    kind,
                    INIT | INIT_ACK
                        | HEARTBEAT
                        | HEARTBEAT_ACK
                        | SHUTDOWN
                        | SHUTDOWN_ACK
                        | ERROR
                        | COOKIE_ECHO
                )
            };
            are_all_first &= is_first(kind);
            (at, count) = (at + len.next_multiple_of(4), count + 1);
        }
        let has = |kind: u8| types >> kind & 1 == 1;
        if count == 0 || has(INIT) && tag != 0 {
            return Err(NoChunks::Invalid);
        }
        // Only these may come with a tag of an association that is over, or not known.
        let is_strange = has(HEARTBEAT) || has(HEARTBEAT_ACK) || has(SHUTDOWN_ACK);
        let opens = are_all_first && (tag == 0 || is_strange && !has(COOKIE_ECHO));
        Ok(Self { types, opens })
    }

    fn has(self, kind: u8) -> bool {
        self.types >> kind & 1 == 1
    }

    /// Whether the first of an association has these chunks.
    pub(super) fn first_phase(self) -> Option<Phase> {
        match self.opens {
            false => None,
            true if self.has(HEARTBEAT) || self.has(HEARTBEAT_ACK) => Some(Phase::HeartbeatSent),
            true if self.has(INIT) => Some(Phase::InitSent),
            true => Some(Phase::Stray),
        }
    }

    /// Whether chunks say something about the association, in addition to heartbeats and those of
    /// `but`.
    fn has_controls_but(self, but: &[u8]) -> bool {
        let others = but.iter().fold(CONTROLS, |bits, kind| bits & !(1 << kind));
        self.types & others & !(1 << HEARTBEAT | 1 << HEARTBEAT_ACK) != 0
    }

    /// Whether the association is over after this packet.
    pub(super) fn ends(self) -> bool {
        self.has(ABORT) || self.has(SHUTDOWN_COMPLETE)
    }

    /// Phase of an association after this packet; `None` if the association cannot have it.
    pub(super) fn next_phase(self, phase: Phase, is_of_opener: bool) -> Option<Phase> {
        let has_heartbeat = self.has(HEARTBEAT) || self.has(HEARTBEAT_ACK);
        match (phase, is_of_opener) {
            (Phase::Stray, true) => self.opens.then_some(phase),
            (Phase::Stray, false) => self.ends().then_some(Phase::Ended),
            // Without the tag of the other end there is little to send.
            (Phase::InitSent | Phase::InitAnswered, true) => {
                let is_without_tag = self.has(INIT) || self.has(SHUTDOWN_ACK) || has_heartbeat;
                (is_without_tag && !self.has_controls_but(&[INIT, SHUTDOWN_ACK])).then_some(phase)
            }
            (Phase::InitSent | Phase::InitAnswered, false) => Some(if self.has(INIT_ACK) {
                Phase::Associated
            } else {
                Phase::InitAnswered
            }),
            (Phase::HeartbeatSent, true) => Some(phase),
            // The other end is not known before it answers a heartbeat, or sends one.
            (Phase::HeartbeatSent, false) if !has_heartbeat || self.has_controls_but(&[]) => None,
            (Phase::HeartbeatSent, false) if self.has(HEARTBEAT_ACK) => Some(Phase::Associated),
            (Phase::HeartbeatSent, false) => Some(Phase::HeartbeatAnswered),
            (Phase::HeartbeatAnswered, false) if self.has_controls_but(&[]) => None,
            (Phase::Ended, _) if !self.has(INIT_ACK) => Some(Phase::Ended),
            _ if self.ends() => Some(Phase::Ended),
            (Phase::HeartbeatAnswered, _)
                if !self.has(HEARTBEAT_ACK) && !self.has_controls_but(&[]) =>
            {
                Some(phase)
            }
            _ => Some(Phase::Associated),
        }
    }
}
