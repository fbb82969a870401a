//! Phases of connections.

/// Phase of a connection.
///
/// The phases of TCP are the states of Linux' connection tracking, each with the further facts on
/// which its answer to later segments depends: whether the last packet was a first segment of the
/// opener that was ignored (`...Again`), and how the connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Phase {
    /// The place is being written.
    Busy,
    /// Nothing has come back yet.
    Opened,
    /// Something has come back.
    Open,
    SynSent,
    /// The other end has answered with something else than SYN: RFC 5961, section 4.
    SynSentAnswered,
    /// Both ends have sent SYN.
    SynSentByBoth,
    SynReceived,
    SynReceivedAgain,
    /// The same after [`Self::SynSentByBoth`].
    SynReceivedByBoth,
    Established,
    EstablishedAgain,
    /// An end has sent its last segment.
    FinWait,
    FinWaitAgain,
    CloseWait,
    CloseWaitAgain,
    /// Both ends have sent their last segments.
    LastAck,
    LastAckAgain,
    /// An acknowledgement has answered the ignored segment.
    LastAckChallenged,
    TimeWait,
    /// A reset has arrived.
    Reset,
    ResetAgain,
    /// The last packet was a reset of the opener, whose next SYN opens another connection.
    ResetByOpener,
    /// A reset has arrived after an end had sent its last segment: the next SYN opens another
    /// connection.
    ResetBehindFin,
    /// SCTP: INIT has opened the association, and nothing has come back.
    InitSent,
    /// SCTP: something has come back, but not INIT ACK, so that the opener knows no tag to send by.
    InitAnswered,
    /// SCTP: INIT ACK, or the answer to a heartbeat, has come back.
    Associated,
    /// SCTP: HEARTBEAT has opened the connection, and nothing has come back.
    HeartbeatSent,
    /// SCTP: HEARTBEAT has come back.
    HeartbeatAnswered,
    /// SCTP: a packet of an unknown association has arrived, and the answer to it ends the
    /// association.
    Stray,
    /// SCTP: the association has ended.
    Ended,
}

/// Number of phases.
pub(super) const COUNT: usize = Phase::Ended as usize + 1;

impl Phase {
    /// All phases, by their numbers.
    pub(super) const ALL: [Self; COUNT] = [
        Self::Busy,
        Self::Opened,
        Self::Open,
        Self::SynSent,
        Self::SynSentAnswered,
        Self::SynSentByBoth,
        Self::SynReceived,
        Self::SynReceivedAgain,
        Self::SynReceivedByBoth,
        Self::Established,
        Self::EstablishedAgain,
        Self::FinWait,
        Self::FinWaitAgain,
        Self::CloseWait,
        Self::CloseWaitAgain,
        Self::LastAck,
        Self::LastAckAgain,
        Self::LastAckChallenged,
        Self::TimeWait,
        Self::Reset,
        Self::ResetAgain,
        Self::ResetByOpener,
        Self::ResetBehindFin,
        Self::InitSent,
        Self::InitAnswered,
        Self::Associated,
        Self::HeartbeatSent,
        Self::HeartbeatAnswered,
        Self::Stray,
        Self::Ended,
    ];

    /// Whether the place may be given away before the time-out: the connection is not fully open, or over.
    pub(super) fn is_weak(self) -> bool {
        use Phase::*;
        !matches!(
            self,
            Busy | Open
                | Established
                | EstablishedAgain
                | FinWait
                | FinWaitAgain
                | CloseWait
                | CloseWaitAgain
                | Associated
                | HeartbeatAnswered
        )
    }
}
