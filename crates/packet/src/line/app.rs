//! Application protocols: by their ports, since lines keep no state of them.

use super::dns;
use super::ether;
use super::text::{Line, Printed, after, array, be32, put};

/// Methods of HTTP and its extensions.
const HTTP: &[&str] = &[
    "GET",
    "PUT",
    "COPY",
    "HEAD",
    "LOCK",
    "MOVE",
    "POLL",
    "POST",
    "BCOPY",
    "BMOVE",
    "MKCOL",
    "TRACE",
    "LABEL",
    "MERGE",
    "DELETE",
    "SEARCH",
    "UNLOCK",
    "REPORT",
    "UPDATE",
    "NOTIFY",
    "BDELETE",
    "CONNECT",
    "OPTIONS",
    "CHECKIN",
    "PROPFIND",
    "CHECKOUT",
    "CCM_POST",
    "SUBSCRIBE",
    "PROPPATCH",
    "BPROPFIND",
    "BPROPPATCH",
    "UNCHECKOUT",
    "MKACTIVITY",
    "MKWORKSPACE",
    "UNSUBSCRIBE",
    "RPC_CONNECT",
    "VERSION-CONTROL",
    "BASELINE-CONTROL",
];

/// Methods of RTSP (RFC 2326).
const RTSP: &[&str] = &[
    "OPTIONS",
    "DESCRIBE",
    "ANNOUNCE",
    "SETUP",
    "PLAY",
    "PAUSE",
    "TEARDOWN",
    "GET_PARAMETER",
    "SET_PARAMETER",
    "REDIRECT",
    "RECORD",
];

/// Methods of SIP (RFC 3261 and its extensions).
const SIP: &[&str] = &[
    "ACK",
    "BYE",
    "CANCEL",
    "DO",
    "INFO",
    "INVITE",
    "MESSAGE",
    "NOTIFY",
    "OPTIONS",
    "PRACK",
    "QAUTH",
    "REFER",
    "REGISTER",
    "SPRACK",
    "SUBSCRIBE",
    "UPDATE",
    "PUBLISH",
];

/// Prints what follows the length of a TCP segment, if its ports tell a protocol.
pub(super) fn over_tcp(
    line: &mut Line<'_>,
    ports: [u16; 2],
    data: &[u8],
    length: usize,
) -> Printed {
    let is = |port: u16| ports.contains(&port);
    if is(25) {
        line.text(": ");
        text(line, ("SMTP", "smtp"), data, length, None)
    } else if is(21) {
        line.text(": ");
        text(line, ("FTP", "ftp"), data, length, None)
    } else if is(80) || is(8080) {
        line.text(": ");
        text(line, ("HTTP", "http"), data, length, Some(HTTP))
    } else if is(554) || is(8554) {
        line.text(": ");
        text(line, ("RTSP", "rtsp"), data, length, Some(RTSP))
    } else if is(53) {
        let printed = dns::over_tcp(line, data, length);
        line.unless_cut(printed, "domain");
        Some(())
    } else {
        Some(())
    }
}

/// Prints the application protocol of a UDP datagram; `None` if its ports tell none that has a printer.
pub(super) fn over_udp(
    line: &mut Line<'_>,
    ports: [u16; 2],
    data: &[u8],
    length: usize,
) -> Option<Printed> {
    let is = |port: u16| ports.contains(&port);
    let (printed, name) = if is(53) {
        (dns::message(line, data, length, false), "domain")
    } else if is(67) || is(68) {
        (dhcp(line, data, length), "bootp")
    } else if is(5060) {
        (text(line, ("SIP", "sip"), data, length, Some(SIP)), "sip")
    } else if is(123) {
        (ntp(line, data, length), "ntp")
    } else if is(5353) {
        (dns::message(line, data, length, true), "domain")
    } else if is(8472) {
        (overlay(line, "OTV", data, length), "otv")
    } else if is(4789) {
        (overlay(line, "VXLAN", data, length), "vxlan")
    } else if is(520) {
        (rip(line, data, length), "rip")
    } else if is(546) || is(547) {
        (dhcp6(line, data), "dhcp6")
    } else {
        return None;
    };
    line.unless_cut(printed, name);
    Some(Some(()))
}

/// Prints the name of a protocol of text lines, and the first line if it is the first of a request or an answer. With a list of
/// methods, it is if it begins with one of them, or has a code of three digits as its second word.
fn text(
    line: &mut Line<'_>,
    (name, mark): (&str, &str),
    data: &[u8],
    length: usize,
    methods: Option<&[&str]>,
) -> Printed {
    line.text(name);
    let data = data.get(..length).unwrap_or(data);
    let begins = methods.is_none_or(|methods| is_first_line(data, methods));
    if !begins {
        return Some(());
    }
    if !line.is_verbose() {
        text_line(line, ": ", data, length, mark);
        return Some(());
    }
    put!(line, ", length: {length}");
    let mut rest = data;
    while !rest.is_empty() {
        let left = length - (data.len() - rest.len());
        let Some(next) = text_line(line, "\n\t", rest, left, mark) else {
            break;
        };
        rest = &rest[next..];
    }
    Some(())
}

fn is_first_line(data: &[u8], methods: &[&str]) -> bool {
    let Some((first, behind)) = token(data) else {
        return false;
    };
    if methods
        .iter()
        .any(|method| method.as_bytes().eq_ignore_ascii_case(first))
    {
        return true;
    }
    let code = token(behind).map(|(code, _)| code);
    code.is_some_and(|code| code.len() == 3 && code.iter().all(u8::is_ascii_digit))
}

/// The first word, and the rest of the line after the blanks.
fn token(data: &[u8]) -> Option<(&[u8], &[u8])> {
    const MOST: usize = 127;
    let is_blank = |byte: &u8| matches!(byte, b'\t'..=b'\r' | b' ');
    let length = data.iter().position(is_blank).unwrap_or(data.len());
    let (word, rest) = data.split_at(length);
    let is_word = (1..=MOST).contains(&length) && word.iter().all(u8::is_ascii_graphic);
    // Of the blanks, only the space is printable: the others end the search for the next word.
    let blanks = rest
        .iter()
        .position(|byte| *byte != b' ')
        .unwrap_or(rest.len());
    is_word.then_some((word, &rest[blanks..]))
}

/// Prints a line of text that ends in LF or CR LF; returns the offset of the next line. Prints nothing if a byte that is not text
/// comes first, or if the end of the line was not captured; a line without an end is marked.
fn text_line(
    line: &mut Line<'_>,
    prefix: &str,
    data: &[u8],
    length: usize,
    mark: &str,
) -> Option<usize> {
    let end = data
        .iter()
        .position(|byte| !matches!(byte, b' '..=b'~' | b'\t'));
    let next = match end.map(|end| (end, &data[end..])) {
        Some((end, [b'\n', ..])) => end + 1,
        Some((end, [b'\r', b'\n', ..])) => end + 2,
        Some((end, [b'\r'])) if end + 1 < length => {
            line.cut(mark);
            return None;
        }
        Some(_) => return None,
        None if data.len() < length => {
            line.cut(mark);
            return None;
        }
        None => {
            line.text(prefix);
            line.ascii(data);
            line.cut(mark);
            return None;
        }
    };
    line.text(prefix);
    line.ascii(&data[..end.unwrap_or(0)]);
    Some(next)
}

/// DHCP and BOOTP (RFC 2131, RFC 951): who asks.
fn dhcp(line: &mut Line<'_>, data: &[u8], length: usize) -> Printed {
    let kind = *data.first()?;
    line.text("BOOTP/DHCP, ");
    match kind {
        1 => line.text("Request"),
        2 => line.text("Reply"),
        other => put!(line, "unknown (0x{other:02x})"),
    }
    let [hard, hard_len] = array::<2>(data, 1)?;
    if (hard, hard_len, kind) == (1, 6, 1) {
        let client: [u8; 6] = array(data, 28)?;
        line.text(" from ");
        line.mac(&client);
    }
    line.length(length);
    Some(())
}

/// NTP (RFC 5905): version and mode.
fn ntp(line: &mut Line<'_>, data: &[u8], length: usize) -> Printed {
    const MODES: [&str; 8] = [
        "unspecified",
        "symmetric active",
        "symmetric passive",
        "Client",
        "Server",
        "Broadcast",
        "Control Message",
        "Reserved",
    ];
    let status = *data.first()?;
    let mode = MODES[usize::from(status & 7)];
    put!(line, "NTPv{}, {mode}, length {length}", status >> 3 & 7);
    Some(())
}

/// VXLAN (RFC 7348), or OTV, which has the same header; the frame follows on a line of its own.
fn overlay(line: &mut Line<'_>, name: &str, data: &[u8], length: usize) -> Printed {
    let flags = *data.first()?;
    let is_set = if flags & 8 != 0 { "I" } else { "." };
    put!(line, "{name}, flags [{is_set}] (0x{flags:02x}), ");
    let (overlay, instance) = (be32(data, 0)? & 0x00ff_ffff, be32(data, 4)? >> 8);
    match name {
        "OTV" => put!(line, "overlay {overlay}, instance {instance}"),
        _ => put!(line, "vni {instance}"),
    }
    let (inner, wire) = after(data, length, 8);
    line.nested(|line| {
        line.text("\n");
        ether::frame(line, inner, wire);
        Some(())
    })
}

/// RIP (RFC 2453): version and command.
fn rip(line: &mut Line<'_>, data: &[u8], length: usize) -> Printed {
    let [command, version] = array::<2>(data, 0)?;
    put!(line, "RIPv{version}, ");
    match command {
        1 => line.text("Request"),
        2 => line.text("Response"),
        3 => line.text("Trace on"),
        4 => line.text("Trace off"),
        5 => line.text("Poll"),
        6 => line.text("Poll Entry"),
        _ => put!(line, "unknown command ({command})"),
    }
    put!(line, ", length: {length}");
    Some(())
}

/// DHCPv6 (RFC 8415): the kind of message.
fn dhcp6(line: &mut Line<'_>, data: &[u8]) -> Printed {
    const KINDS: [&str; 15] = [
        "solicit",
        "advertise",
        "request",
        "confirm",
        "renew",
        "rebind",
        "reply",
        "release",
        "decline",
        "reconfigure",
        "inf-req",
        "relay-fwd",
        "relay-reply",
        "leasequery",
        "leasequery-reply",
    ];
    line.text("dhcp6");
    let kind = usize::from(*data.first()?);
    match kind.checked_sub(1).and_then(|kind| KINDS.get(kind)) {
        Some(name) => put!(line, " {name}"),
        None => put!(line, " msgtype-{kind}"),
    }
    Some(())
}
