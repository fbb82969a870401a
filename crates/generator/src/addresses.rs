//! Networks of the addresses that generated frames have.

/// Whether an address, of IPv4 or IPv6, is of the networks between which generated frames go: 10.0.0.0/8 (RFC 1918), 100.64.0.0/10 (RFC
/// 6598), 198.18.0.0/15 (RFC 2544), 2001:2::/48 (RFC 5180) and 2001:db8::/32 (RFC 3849).
pub fn is_of_tests(address: &[u8]) -> bool {
    match address {
        [10, ..] | [198, 18..=19, ..] => address.len() == 4,
        [100, 64..=127, ..] => address.len() == 4,
        [0x20, 1, 0, 2, 0, 0, ..] | [0x20, 1, 0x0d, 0xb8, ..] => address.len() == 16,
        _ => false,
    }
}
