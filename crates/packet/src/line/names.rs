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

/// Tags of PPPoE discovery (RFC 2516, appendix A; RFC 4937).
pub(super) fn pppoe_tag(kind: u16) -> Option<&'static str> {
    Some(match kind {
        0x0000 => "EOL",
        0x0101 => "Service-Name",
        0x0102 => "AC-Name",
        0x0103 => "Host-Uniq",
        0x0104 => "AC-Cookie",
        0x0105 => "Vendor-Specific",
        0x0110 => "Relay-Session-ID",
        0x0120 => "PPP-Max-Payload",
        0x0201 => "Service-Name-Error",
        0x0202 => "AC-System-Error",
        0x0203 => "Generic-Error",
        _ => return None,
    })
}

/// Names of IP protocols in the fields of an IP header (`-v`).
pub(super) fn ip_protocol(protocol: u8) -> &'static str {
    match protocol {
        0 => "Options",
        1 => "ICMP",
        2 => "IGMP",
        4 => "IPIP",
        6 => "TCP",
        8 => "EGP",
        9 => "IGRP",
        17 => "UDP",
        33 => "DCCP",
        41 => "IPv6",
        43 => "Routing",
        44 => "Fragment",
        46 => "RSVP",
        47 => "GRE",
        50 => "ESP",
        51 => "AH",
        55 => "Mobile IP",
        58 => "ICMPv6",
        62 => "Mobile IP (old)",
        88 => "EIGRP",
        89 => "OSPF",
        103 => "PIM",
        108 => "Compressed IP",
        112 => "VRRP",
        113 => "PGM",
        132 => "SCTP",
        135 => "Mobility",
        143 => "Ethernet",
        _ => "unknown",
    }
}
