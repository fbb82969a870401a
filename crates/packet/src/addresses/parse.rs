//! From text to addresses: an address, a prefix, or a range of addresses.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Reason for which a text is not an address, prefix or range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// No address, prefix or range.
    #[error("{0:?} is not an address, prefix or range of addresses")]
    NoAddress(String),
    /// A prefix longer than the address.
    #[error("{0}: a prefix of {1} has 0 to {2} bits")]
    PrefixLength(String, &'static str, u8),
    /// A prefix whose address has bits after it.
    #[error(
        "{text} has bits behind its prefix: the network is {network}/{bits}, the address alone {address}"
    )]
    HostBits {
        /// Prefix as written.
        text: String,
        /// Its network.
        network: IpAddr,
        /// Length of the prefix, bits.
        bits: u8,
        /// Its address.
        address: IpAddr,
    },
    /// The first end of a range is above the second.
    #[error("the range {0} is reversed")]
    Reversed(String),
    /// Ends of different families.
    #[error("the range {0} begins with one family of addresses and ends with the other")]
    MixedFamilies(String),
}

/// A line of a list that is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct LineError {
    /// Number of the line, from 1 on.
    pub line: usize,
    /// Reason.
    pub why: AddressError,
}

/// Reads the lines of a list. The result is not in order.
pub(super) fn lines(text: &str) -> Result<Vec<(IpAddr, IpAddr)>, LineError> {
    let mut ranges = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if !line.is_empty() {
            ranges.push(range(line).map_err(|why| LineError {
                line: number + 1,
                why,
            })?);
        }
    }
    Ok(ranges)
}

/// Reads an address, a prefix, or a range of addresses: its first address and its last.
///
/// **Errors**: [`AddressError`]; a prefix with bits after it is refused too, because its author may
/// mean the network or the address.
pub fn range(text: &str) -> Result<(IpAddr, IpAddr), AddressError> {
    let address = |part: &str| {
        part.parse::<IpAddr>()
            .map_err(|_| AddressError::NoAddress(text.to_owned()))
    };
    if let Some((part, bits)) = text.split_once('/') {
        return prefix(text, address(part)?, bits);
    }
    let Some((first, last)) = text.split_once('-') else {
        let address = address(text)?;
        return Ok((address, address));
    };
    let (first, last) = (address(first)?, address(last)?);
    match first.is_ipv4() == last.is_ipv4() {
        false => Err(AddressError::MixedFamilies(text.to_owned())),
        true if first > last => Err(AddressError::Reversed(text.to_owned())),
        true => Ok((first, last)),
    }
}

/// Returns the first and the last address of a prefix of this length; `text` is all of it.
fn prefix(text: &str, address: IpAddr, bits: &str) -> Result<(IpAddr, IpAddr), AddressError> {
    let (family, width) = if address.is_ipv4() {
        ("IPv4", 32)
    } else {
        ("IPv6", 128)
    };
    let length = || AddressError::PrefixLength(text.to_owned(), family, width);
    let is_number = !bits.is_empty() && bits.bytes().all(|byte| byte.is_ascii_digit());
    let bits: u8 = bits
        .parse()
        .ok()
        .filter(|bits| is_number && *bits <= width)
        .ok_or_else(length)?;
    let (network, last): (IpAddr, IpAddr) = match address {
        IpAddr::V4(address) => {
            let behind = u32::MAX.checked_shr(bits.into()).unwrap_or(0);
            let network = address.to_bits() & !behind;
            (
                Ipv4Addr::from_bits(network).into(),
                Ipv4Addr::from_bits(network | behind).into(),
            )
        }
        IpAddr::V6(address) => {
            let behind = u128::MAX.checked_shr(bits.into()).unwrap_or(0);
            let network = address.to_bits() & !behind;
            (
                Ipv6Addr::from_bits(network).into(),
                Ipv6Addr::from_bits(network | behind).into(),
            )
        }
    };
    if network != address {
        return Err(AddressError::HostBits {
            text: text.to_owned(),
            network,
            bits,
            address,
        });
    }
    Ok((network, last))
}

#[cfg(test)]
mod tests {
    use crate::addresses::Addresses;

    #[test]
    fn lines_are_addresses_prefixes_and_ranges() {
        let text = "# office\n10.0.0.0/8   # all of it\n\n192.0.2.1\r\n192.0.2.7-192.0.2.9\n2001:db8::/32\n::1";
        let set = Addresses::parse(text).unwrap();
        let [ten, test] = [0x0a00_0000, 0xc000_0200];
        assert_eq!(
            set.v4(),
            [
                (ten, ten + 0xff_ffff),
                (test + 1, test + 1),
                (test + 7, test + 9)
            ]
        );
        let documentation = 0x2001_0db8_u128 << 96;
        assert_eq!(
            set.v6(),
            [(1, 1), (documentation, documentation | u128::MAX >> 32)]
        );
        assert!(Addresses::parse("\n# nothing\n").unwrap().is_empty());
    }

    #[test]
    fn a_bad_line_is_named() {
        for (text, why) in [
            (
                "10.0.0.1\nhost.example",
                "line 2: \"host.example\" is not an address, prefix or range of addresses",
            ),
            (
                "10.0.0.0/33",
                "line 1: 10.0.0.0/33: a prefix of IPv4 has 0 to 32 bits",
            ),
            ("::/+8", "line 1: ::/+8: a prefix of IPv6 has 0 to 128 bits"),
            (
                "\n\n10.0.0.1/8",
                "line 3: 10.0.0.1/8 has bits behind its prefix: the network is 10.0.0.0/8, the address alone 10.0.0.1",
            ),
            (
                "10.0.0.9-10.0.0.1",
                "line 1: the range 10.0.0.9-10.0.0.1 is reversed",
            ),
            (
                "10.0.0.9-::1",
                "line 1: the range 10.0.0.9-::1 begins with one family of addresses and ends with the other",
            ),
            (
                "10.0.0.1 10.0.0.2",
                "line 1: \"10.0.0.1 10.0.0.2\" is not an address, prefix or range of addresses",
            ),
            (
                "\u{feff}10.0.0.1",
                "line 1: \"\\u{feff}10.0.0.1\" is not an address, prefix or range of addresses",
            ),
        ] {
            assert_eq!(Addresses::parse(text).unwrap_err().to_string(), why);
        }
    }
}
