//! Tables of names that several printers share.

/// ARP operations.
pub(super) fn arp(op: u16) -> Option<&'static str> {
    Some(match op {
        1 => "Request",
        2 => "Reply",
        3 => "Reverse Request",
        4 => "Reverse Reply",
        8 => "Inverse Request",
        9 => "Inverse Reply",
        10 => "NACK Reply",
        _ => return None,
    })
}

/// ARP hardware types.
pub(super) fn hardware(hard: u16) -> Option<&'static str> {
    Some(match hard {
        1 => "Ethernet",
        6 => "TokenRing",
        7 => "ArcNet",
        15 => "FrameRelay",
        23 => "Strip",
        24 => "IEEE 1394",
        32 => "InfiniBand",
        _ => return None,
    })
}

/// ICMP unreachable codes: the words before the address and after `unreachable`.
pub(super) fn unreachable(code: u8) -> Option<(&'static str, &'static str)> {
    Some(match code {
        0 => ("net ", ""),
        1 => ("host ", ""),
        5 => ("", " - source route failed"),
        6 => ("net ", " - unknown"),
        7 => ("host ", " - unknown"),
        8 => ("", " - source host isolated"),
        9 => ("net ", " - admin prohibited"),
        10 => ("host ", " - admin prohibited"),
        11 => ("net ", " - tos prohibited"),
        12 => ("host ", " - tos prohibited"),
        13 => ("host ", " - admin prohibited filter"),
        14 => ("host ", " - host precedence violation"),
        15 => ("host ", " - precedence cutoff"),
        _ => return None,
    })
}

/// PPP protocols that are only named.
pub(super) fn ppp(protocol: u16) -> Option<&'static str> {
    Some(match protocol {
        0x0023 => "OSI",
        0x002b => "IPX",
        0x002d => "VJC",
        0x002f => "VJNC",
        0x003d => "MLPPP",
        0x00fd => "COMP",
        0x8021 => "IPCP",
        0x8023 => "OSICP",
        0x8057 => "IP6CP",
        0x80fd => "CCP",
        0x8281 => "MPLSCP",
        0xc021 => "LCP",
        0xc023 => "PAP",
        0xc025 => "LQR",
        0xc223 => "CHAP",
        0xc227 => "EAP",
        _ => return None,
    })
}

/// Codes of the PPP control protocols (RFC 1661, section 5).
pub(super) fn ppp_code(code: u8) -> Option<&'static str> {
    Some(match code {
        1 => "Conf-Request",
        2 => "Conf-Ack",
        3 => "Conf-Nack",
        4 => "Conf-Reject",
        5 => "Term-Request",
        6 => "Term-Ack",
        7 => "Code-Reject",
        8 => "Prot-Reject",
        9 => "Echo-Request",
        10 => "Echo-Reply",
        11 => "Disc-Req",
        12 => "Ident",
        13 => "Time-Remaining",
        _ => return None,
    })
}
