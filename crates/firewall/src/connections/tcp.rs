//! Segments of TCP: what each does to its connection, as Linux' connection tracking has it.
//!
//! **Source**: the table of states and the treatment of ignored segments of `net/netfilter/nf_conntrack_proto_tcp.c`, Linux 6.18, with
//! `nf_conntrack_tcp_loose` off. Random conversations are compared with that kernel (`tests/nftables.rs`). **Absent**: whatever depends on
//! sequence numbers and windows. Where the kernel asks whether the answer to an ignored SYN acknowledges it, it does here.

use super::phase::{COUNT, Phase};

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 0x10;
const URG: u8 = 0x20;

/// Kind of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Segment {
    Syn,
    SynAck,
    Fin,
    Ack,
    Rst,
}

const SEGMENTS: [Segment; 5] = [
    Segment::Syn,
    Segment::SynAck,
    Segment::Fin,
    Segment::Ack,
    Segment::Rst,
];

impl Segment {
    /// The kind of a segment with these flags; `None` for flags that no TCP sends together: none at all, FIN without ACK, SYN with FIN or
    /// RST, and others. PSH, ECE and CWR do not count.
    #[inline]
    pub(super) fn of(flags: u8) -> Option<Self> {
        KINDS[usize::from(flags & (FIN | SYN | RST | ACK | URG))]
    }
}

/// Kinds of segments by their flags, without PSH, ECE and CWR.
const KINDS: [Option<Segment>; 64] = {
    let mut kinds = [None; 64];
    let mut flags = 0;
    while flags < 64 {
        kinds[flags] = match flags {
            0x02 | 0x22 => Some(Segment::Syn),
            0x12 => Some(Segment::SynAck),
            0x11 | 0x31 => Some(Segment::Fin),
            0x10 | 0x30 => Some(Segment::Ack),
            0x04 | 0x14 => Some(Segment::Rst),
            _ => None,
        };
        flags += 1;
    }
    kinds
};

/// Effect of a segment on its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// The segment cannot be one of this connection, which stays as it is.
    Invalid,
    /// The connection comes to this phase, and lasts on.
    Goes(Phase),
    /// The segment may belong to another connection with the same ports: the connection and its
    /// time-out continue.
    Ignored(Phase),
    /// The connection is over, and its place free.
    Over,
    /// The segment opens another connection.
    Anew,
}

/// Effects of segments, by phase, direction (of the opener first) and kind.
const EFFECTS: [[[Effect; 5]; 2]; COUNT] = {
    let mut effects = [[[Effect::Invalid; 5]; 2]; COUNT];
    let mut phase = 0;
    while phase < COUNT {
        let mut kind = 0;
        while kind < 5 {
            effects[phase][0][kind] = of_opener(Phase::ALL[phase], SEGMENTS[kind]);
            effects[phase][1][kind] = of_other(Phase::ALL[phase], SEGMENTS[kind]);
            kind += 1;
        }
        phase += 1;
    }
    effects
};

/// Returns the effect of a segment on a connection of this phase.
#[inline]
pub(super) fn effect(phase: Phase, is_of_opener: bool, segment: Segment) -> Effect {
    EFFECTS[phase as usize][usize::from(!is_of_opener)][segment as usize]
}

/// Effect of a segment of the end that opened the connection.
const fn of_opener(phase: Phase, segment: Segment) -> Effect {
    use Effect::{Anew, Goes, Ignored, Invalid, Over};
    use Phase::*;
    match (segment, phase) {
        (Segment::Rst, SynSent) => Over,
        (Segment::Rst, phase) if is_behind_fin(phase) => Goes(ResetBehindFin),
        (Segment::Rst, phase) if is_of_tcp(phase) => Goes(ResetByOpener),
        (Segment::Syn, SynSent | SynSentAnswered | SynSentByBoth) => Goes(phase),
        (Segment::Syn, SynReceived | SynReceivedAgain | SynReceivedByBoth) => {
            Ignored(SynReceivedAgain)
        }
        (Segment::Syn, Established | EstablishedAgain) => Ignored(EstablishedAgain),
        (Segment::Syn, FinWait | FinWaitAgain) => Ignored(FinWaitAgain),
        (Segment::Syn, CloseWait | CloseWaitAgain) => Ignored(CloseWaitAgain),
        (Segment::Syn, LastAck | LastAckAgain | LastAckChallenged) => Ignored(LastAckAgain),
        (Segment::Syn, TimeWait | ResetByOpener | ResetBehindFin) => Anew,
        (Segment::Syn, Reset | ResetAgain) => Ignored(ResetAgain),
        (Segment::SynAck, SynReceived | SynReceivedAgain) => Goes(SynReceived),
        (Segment::SynAck, SynSentByBoth | SynReceivedByBoth) => Goes(SynReceivedByBoth),
        (Segment::Ack, SynReceived | SynReceivedAgain | SynReceivedByBoth) => Goes(Established),
        (Segment::Fin | Segment::Ack, phase) => of_both(phase, segment),
        _ => Invalid,
    }
}

/// Effect of a segment of the other end.
const fn of_other(phase: Phase, segment: Segment) -> Effect {
    use Effect::{Anew, Goes, Ignored, Invalid, Over};
    use Phase::*;
    match (segment, phase) {
        (Segment::Rst, SynSent) => Over,
        (Segment::Rst, phase) if is_behind_fin(phase) => Goes(ResetBehindFin),
        (Segment::Rst, phase) if is_of_tcp(phase) => Goes(Reset),
        (Segment::Syn, SynSent | SynSentAnswered | SynSentByBoth) => Goes(SynSentByBoth),
        (Segment::Syn, TimeWait) => Anew,
        (Segment::SynAck, SynSent | SynSentAnswered) => Goes(SynReceived),
        (Segment::SynAck, SynSentByBoth) => Goes(SynReceivedByBoth),
        // The answer to a first segment that was ignored: both ends know of a new connection.
        (
            Segment::SynAck,
            SynReceivedAgain | EstablishedAgain | FinWaitAgain | CloseWaitAgain | LastAckAgain
            | LastAckChallenged | ResetAgain,
        ) => Goes(SynReceived),
        (Segment::SynAck, ResetByOpener) => Ignored(Reset),
        (
            Segment::SynAck,
            SynReceived | SynReceivedByBoth | Established | FinWait | CloseWait | LastAck
            | TimeWait | Reset | ResetBehindFin,
        ) => Ignored(phase),
        (Segment::Ack, SynSent | SynSentAnswered) => Ignored(SynSentAnswered),
        (Segment::Ack, SynSentByBoth) => Ignored(SynSentByBoth),
        (Segment::Ack, SynReceived | SynReceivedAgain) => Goes(SynReceived),
        (Segment::Ack, SynReceivedByBoth) => Goes(Established),
        (Segment::Ack, LastAckAgain) => Ignored(LastAckChallenged),
        (Segment::Fin | Segment::Ack, phase) => of_both(phase, segment),
        _ => Invalid,
    }
}

/// Effect of FIN and of other segments with ACK, where it is the same for both ends.
const fn of_both(phase: Phase, segment: Segment) -> Effect {
    use Effect::{Goes, Invalid};
    use Phase::*;
    match (segment, phase) {
        (
            Segment::Fin,
            SynReceived | SynReceivedAgain | SynReceivedByBoth | Established | EstablishedAgain,
        ) => Goes(FinWait),
        (Segment::Fin, FinWait | FinWaitAgain | CloseWait | CloseWaitAgain) => Goes(LastAck),
        (Segment::Fin, LastAck | LastAckAgain | LastAckChallenged) => Goes(LastAck),
        (Segment::Ack, Established | EstablishedAgain) => Goes(Established),
        (Segment::Ack, FinWait | FinWaitAgain | CloseWait | CloseWaitAgain) => Goes(CloseWait),
        (Segment::Ack, LastAck | LastAckAgain | LastAckChallenged) => Goes(TimeWait),
        (_, TimeWait) => Goes(TimeWait),
        (_, Reset | ResetAgain | ResetByOpener) => Goes(Reset),
        (_, ResetBehindFin) => Goes(ResetBehindFin),
        _ => Invalid,
    }
}

/// Whether an end has sent its last segment before.
const fn is_behind_fin(phase: Phase) -> bool {
    use Phase::*;
    matches!(
        phase,
        FinWait
            | FinWaitAgain
            | CloseWait
            | CloseWaitAgain
            | LastAck
            | LastAckAgain
            | LastAckChallenged
            | TimeWait
            | ResetBehindFin
    )
}

const fn is_of_tcp(phase: Phase) -> bool {
    Phase::SynSent as u8 <= phase as u8 && phase as u8 <= Phase::ResetBehindFin as u8
}
