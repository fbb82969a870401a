//! Packets made by hand, layer by layer, for lines with a known text.

/// Bytes from hex digits; spaces are ignored.
pub fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .bytes()
        .filter(|byte| !byte.is_ascii_whitespace())
        .collect();
    let pairs = digits
        .chunks(2)
        .map(|pair| std::str::from_utf8(pair).expect("hex is ASCII"));
    pairs
        .map(|pair| u8::from_str_radix(pair, 16).expect("two hex digits"))
        .collect()
}

/// Concatenates layers, outermost first.
pub fn cat(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

/// An Ethernet frame from 00:00:5e:00:53:01 to 00:00:5e:00:53:02.
pub fn ether(kind: u16, payload: &[u8]) -> Vec<u8> {
    cat(&[
        &hex("00005e005302 00005e005301"),
        &kind.to_be_bytes(),
        payload,
    ])
}

/// An IPv4 packet from 10.0.0.1 to 10.0.0.2, neither fragmented nor padded.
pub fn ip4(protocol: u8, payload: &[u8]) -> Vec<u8> {
    ip4_fragment(protocol, 0x4000, payload)
}

/// An IPv4 packet as [`ip4`] makes it, with these flags and fragment offset, and identification 7.
pub fn ip4_fragment(protocol: u8, offset: u16, payload: &[u8]) -> Vec<u8> {
    let total = (20 + payload.len()) as u16;
    let [hi, lo] = offset.to_be_bytes();
    let head = [
        &[0x45, 0][..],
        &total.to_be_bytes(),
        &[0, 7, hi, lo, 64, protocol, 0, 0],
        &hex("0a000001 0a000002"),
    ];
    cat(&[&head.concat(), payload])
}

/// An IPv6 packet from 2001:db8::1 to 2001:db8::2.
pub fn ip6(next: u8, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u16).to_be_bytes();
    let addresses = hex("20010db8 00000000 00000000 00000001 20010db8 00000000 00000000 00000002");
    cat(&[&[0x60, 0, 0, 0], &length, &[next, 64], &addresses, payload])
}

/// A UDP datagram from port 5300 to 40000.
pub fn udp(payload: usize) -> Vec<u8> {
    let length = ((8 + payload) as u16).to_be_bytes();
    cat(&[
        &[0x14, 0xb4, 0x9c, 0x40],
        &length,
        &[0, 0],
        &vec![0xaa; payload],
    ])
}

/// A TCP segment from port 443 to 40000: sequence number 1000, acknowledgment 7, window 512.
pub fn tcp(flags: u8, payload: usize) -> Vec<u8> {
    let head = hex("01bb 9c40 000003e8 00000007");
    cat(&[
        &head,
        &[0x50, flags, 2, 0, 0, 0, 0, 9],
        &vec![0xaa; payload],
    ])
}
