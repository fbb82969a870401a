//! Other addresses for addresses, by a key.
//!
//! **Source**: J. Fan, J. Xu, M. Ammar, S. Moon: Prefix-preserving IP address anonymization, Computer Networks 46 (2004), for IPv4
//! and IPv6, as Crypto-PAn and yacryptopan compute it.

use aes::cipher::{BlockCipherEncrypt, KeyInit};
use aes::{Aes128, Block};

/// Length of a key, bytes.
pub const KEY: usize = 32;

/// Entries of each table of recent addresses.
const IPV4_KNOWN: usize = 1 << 12;
const IPV6_KNOWN: usize = 1 << 10;
const MAC_KNOWN: usize = 1 << 10;

/// Bytes that make the key of link-layer addresses from the key of IP addresses.
const MAC_LABEL: [u8; 16] = *b"weir MAC address";

/// Bits that are encrypted in one call of the cipher.
const TOGETHER: usize = 32;

/// Key of other addresses, with the recent addresses.
///
/// Two IP addresses that agree in their first n bits have other addresses that agree in exactly their first n bits; no two
/// addresses have the same other address. Link-layer addresses have no prefixes: the group bit stays, and the others are
/// marked as local; two may have the same other address, with a probability of n²/2^47 for n addresses. The addresses 0 and
/// ff:ff:ff:ff:ff:ff stay.
///
/// **Cost**: 32 blocks of AES for an IPv4 address, 128 for an IPv6 address, one for a link-layer address; a comparison for a
/// recent address. 160 KiB of memory.
#[derive(Clone)]
pub struct Addresses {
    cipher: Aes128,
    pad: u128,
    of_macs: Aes128,
    ipv4: Known<u32>,
    ipv6: Known<u128>,
    macs: Known<u64>,
}

impl core::fmt::Debug for Addresses {
    /// The key is not shown.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Addresses").finish_non_exhaustive()
    }
}

/// Other addresses by address, each at one place, where a later one takes the place of an earlier one.
#[derive(Clone)]
struct Known<T>(Vec<Option<(T, T)>>);

impl<T: Copy + PartialEq> Known<T> {
    fn new(places: usize) -> Self {
        Self(vec![None; places])
    }

    #[inline]
    fn get(&mut self, hash: u64, address: T, other: impl FnOnce() -> T) -> T {
        let place = hash as usize % self.0.len();
        match self.0[place] {
            Some((known, other)) if known == address => other,
            _ => {
                let other = other();
                self.0[place] = Some((address, other));
                other
            }
        }
    }
}

/// Spreads addresses over places.
#[inline]
fn mixed(address: u64) -> u64 {
    address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40
}

impl Addresses {
    /// Takes a key: the key of the cipher, and the bytes of which it makes the padding.
    pub fn new(key: &[u8; KEY]) -> Self {
        let (first, second) = key.split_at(KEY / 2);
        let block = |bytes: &[u8]| -> [u8; 16] {
            let mut block = [0; 16];
            block.copy_from_slice(bytes);
            block
        };
        let cipher = Aes128::new(&block(first).into());
        let pad = u128::from_be_bytes(encrypted(&cipher, block(second)));
        let of_macs = Aes128::new(&encrypted(&cipher, MAC_LABEL).into());
        Self {
            cipher,
            pad,
            of_macs,
            ipv4: Known::new(IPV4_KNOWN),
            ipv6: Known::new(IPV6_KNOWN),
            macs: Known::new(MAC_KNOWN),
        }
    }

    /// Returns the other address of an IPv4 address.
    #[inline]
    pub fn ipv4(&mut self, address: [u8; 4]) -> [u8; 4] {
        let (cipher, pad) = (&self.cipher, self.pad);
        let address = u32::from_be_bytes(address);
        let other = self.ipv4.get(mixed(address.into()), address, || {
            address ^ (flips::<32>(cipher, pad, u128::from(address) << 96) >> 96) as u32
        });
        other.to_be_bytes()
    }

    /// Returns the other address of an IPv6 address.
    #[inline]
    pub fn ipv6(&mut self, address: [u8; 16]) -> [u8; 16] {
        let (cipher, pad) = (&self.cipher, self.pad);
        let address = u128::from_be_bytes(address);
        let hash = mixed(address as u64 ^ (address >> 64) as u64);
        let other = self.ipv6.get(hash, address, || {
            address ^ flips::<128>(cipher, pad, address)
        });
        other.to_be_bytes()
    }

    /// Returns the other address of a link-layer address.
    #[inline]
    pub fn mac(&mut self, address: [u8; 6]) -> [u8; 6] {
        const GROUP: u8 = 1;
        const LOCAL: u8 = 2;
        let stays = address == [0; 6] || address == [0xff; 6];
        if stays {
            return address;
        }
        let [a, b, c, d, e, f] = address;
        let number = u64::from_be_bytes([0, 0, a, b, c, d, e, f]);
        let of_macs = &self.of_macs;
        let other = self.macs.get(mixed(number), number, || {
            let mut block = [0; 16];
            block[..6].copy_from_slice(&address);
            let [x, y, z, u, v, w, ..] = encrypted(of_macs, block);
            let first = x & !(GROUP | LOCAL) | LOCAL | a & GROUP;
            u64::from_be_bytes([0, 0, first, y, z, u, v, w])
        });
        let [_, _, other @ ..] = other.to_be_bytes();
        other
    }
}

fn encrypted(cipher: &Aes128, block: [u8; 16]) -> [u8; 16] {
    let mut block = Block::from(block);
    cipher.encrypt_block(&mut block);
    block.into()
}

/// Returns the bits of an address to flip, from its first of `BITS` bits on. Bit n depends on the n bits before it: it is the first
/// bit of the encrypted block of these n bits and the rest of the padding.
fn flips<const BITS: usize>(cipher: &Aes128, pad: u128, address: u128) -> u128 {
    let mut flips = 0;
    for begin in (0..BITS).step_by(TOGETHER) {
        let mut blocks = [Block::default(); TOGETHER];
        for (i, block) in blocks.iter_mut().enumerate() {
            let rest = u128::MAX >> (begin + i);
            *block = Block::from((address & !rest | pad & rest).to_be_bytes());
        }
        cipher.encrypt_blocks(&mut blocks);
        for (i, block) in blocks.iter().enumerate() {
            flips |= u128::from(block[0] >> 7) << (127 - begin - i);
        }
    }
    flips
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::{Ipv4Addr, Ipv6Addr};

    /// Key of the examples of Crypto-PAn.
    const EXAMPLE: [u8; KEY] = [
        21, 34, 23, 141, 51, 164, 207, 128, 19, 10, 91, 22, 73, 144, 125, 16, 216, 152, 143, 131,
        121, 121, 101, 39, 98, 87, 76, 45, 42, 132, 34, 2,
    ];

    /// The examples of Crypto-PAn, and what yacryptopan answers for IPv6.
    #[test]
    fn addresses_are_those_of_the_examples() {
        let mut addresses = Addresses::new(&EXAMPLE);
        for _ in 0..2 {
            for (address, other) in [
                ("128.11.68.132", "135.242.180.132"),
                ("129.118.74.4", "134.136.186.123"),
                ("130.132.252.244", "133.68.164.234"),
                ("141.223.7.43", "141.167.8.160"),
                ("141.233.145.108", "141.129.237.235"),
            ] {
                let (address, other): (Ipv4Addr, Ipv4Addr) =
                    (address.parse().unwrap(), other.parse().unwrap());
                assert_eq!(Ipv4Addr::from(addresses.ipv4(address.octets())), other);
            }
            for (address, other) in [
                ("::1", "78ff:f001:9fc0:20df:8380:b1f1:704:ed"),
                ("::2", "78ff:f001:9fc0:20df:8380:b1f1:704:ef"),
                ("2001:db8::1", "4401:2bc:603f:d91d:27f:ff8e:e6f1:dc1e"),
            ] {
                let (address, other): (Ipv6Addr, Ipv6Addr) =
                    (address.parse().unwrap(), other.parse().unwrap());
                assert_eq!(Ipv6Addr::from(addresses.ipv6(address.octets())), other);
            }
        }
    }

    #[test]
    fn prefixes_stay_as_long_as_they_are() {
        let mut addresses = Addresses::new(&[7; KEY]);
        let address = 0x0a01_0203u32;
        let other = |addresses: &mut Addresses, of: u32| {
            u32::from_be_bytes(addresses.ipv4(of.to_be_bytes()))
        };
        let first = other(&mut addresses, address);
        for bit in 0..32 {
            let second = other(&mut addresses, address ^ 1 << (31 - bit));
            assert_eq!((first ^ second).leading_zeros(), bit);
        }
    }

    #[test]
    fn link_layer_addresses_keep_the_group_bit() {
        let mut addresses = Addresses::new(&[7; KEY]);
        for stays in [[0; 6], [0xff; 6]] {
            assert_eq!(addresses.mac(stays), stays);
        }
        for (address, bits) in [([0, 1, 2, 3, 4, 5], 2), ([0x33, 0x33, 0, 0, 0, 1], 3)] {
            let other = addresses.mac(address);
            assert_eq!(other[0] & 3, bits);
            assert_ne!(other, address);
            assert_eq!(addresses.mac(address), other);
        }
        let mut others = Addresses::new(&[8; KEY]);
        assert_ne!(
            others.mac([0, 1, 2, 3, 4, 5]),
            addresses.mac([0, 1, 2, 3, 4, 5])
        );
    }
}
