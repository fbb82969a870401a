//! Answers to packets that rules reject.

/// Answer to a packet that a rule rejects. **Source**: codes of ICMP destination unreachable messages of RFC 792, RFC 1122 (section 3.2.2.1),
/// RFC 1812 (section 5.2.7.1) and RFC 4443 (section 3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Answer {
    /// A reset to TCP, and to all else that the port is unreachable.
    #[default]
    Usual,
    /// No route leads to the destination.
    NoRoute,
    /// The host is unreachable.
    HostUnreachable,
    /// The protocol is unreachable; in IPv6 as [`Self::AdminProhibited`].
    ProtocolUnreachable,
    /// The port is unreachable, also for TCP.
    PortUnreachable,
    /// The network is prohibited; in IPv6 as [`Self::AdminProhibited`].
    NetProhibited,
    /// The host is prohibited; in IPv6 as [`Self::AdminProhibited`].
    HostProhibited,
    /// A firewall forbids it.
    AdminProhibited,
}

/// Answers that rules name after `with`.
const NAMES: [(&str, Answer); 7] = [
    ("no-route", Answer::NoRoute),
    ("host-unreachable", Answer::HostUnreachable),
    ("protocol-unreachable", Answer::ProtocolUnreachable),
    ("port-unreachable", Answer::PortUnreachable),
    ("net-prohibited", Answer::NetProhibited),
    ("host-prohibited", Answer::HostProhibited),
    ("admin-prohibited", Answer::AdminProhibited),
];

impl Answer {
    /// Names of answers, for a message.
    pub(super) const WORDS: &str = "no-route, host-unreachable, protocol-unreachable, port-unreachable, net-prohibited, host-prohibited or admin-prohibited";

    /// The answer of this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        NAMES
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, answer)| *answer)
    }

    /// The name of the answer; `None` for the usual one.
    pub fn name(self) -> Option<&'static str> {
        NAMES
            .iter()
            .find(|(_, answer)| *answer == self)
            .map(|(name, _)| *name)
    }

    /// Type and code of the ICMP message.
    pub fn icmp(self, is_v6: bool) -> (u8, u8) {
        let code = match (self, is_v6) {
            (Self::NoRoute, _) => 0,
            (Self::HostUnreachable, false) => 1,
            (Self::HostUnreachable, true) => 3,
            (Self::ProtocolUnreachable, false) => 2,
            (Self::Usual | Self::PortUnreachable, false) => 3,
            (Self::Usual | Self::PortUnreachable, true) => 4,
            (Self::NetProhibited, false) => 9,
            (Self::HostProhibited, false) => 10,
            (Self::AdminProhibited, false) => 13,
            (
                Self::ProtocolUnreachable
                | Self::NetProhibited
                | Self::HostProhibited
                | Self::AdminProhibited,
                true,
            ) => 1,
        };
        (if is_v6 { 1 } else { 3 }, code)
    }
}
