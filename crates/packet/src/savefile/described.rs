//! Options of interfaces in a pcapng file that are neither texts nor read: copies keep them.
//!
//! **Source**: pcapng draft, section 4.2: if_IPv4addr 4, if_IPv6addr 5, if_MACaddr 6, if_EUIaddr 7,
//! if_speed 8, if_tzone 10, if_filter 11, if_os 12, if_fcslen 13, if_hardware 15, if_txspeed 16,
//! if_rxspeed 17, if_iana_tzname 18; section 3.5.1: custom options 2988 and 2989, and options that
//! must not be copied, 19372 and 19373.

/// Largest number of such options kept of an interface.
pub(super) const MOST: usize = 64;

const FILTER: u16 = 11;
const OS: u16 = 12;
const HARDWARE: u16 = 15;
const NOT_COPIED: [u16; 2] = [19_372, 19_373];

/// Option of an interface.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct InterfaceOption {
    /// Code of the option.
    pub code: u16,
    /// Value, with its numbers in little-endian order.
    pub value: Vec<u8>,
}

impl InterfaceOption {
    /// Takes an option whose value has this byte order. `None` if it must not be copied, or if its numbers are big-endian and at
    /// unknown places.
    pub(super) fn new(code: u16, value: &[u8], big_endian: bool) -> Option<Self> {
        if NOT_COPIED.contains(&code) {
            return None;
        }
        let mut value = value.to_vec();
        // Part of the value that is one number.
        let number = match (code, value.as_slice()) {
            _ if !big_endian => 0..0,
            (4..=7 | OS | 13 | HARDWARE | 18, _) => 0..0,
            (8 | 16 | 17, [_, _, _, _, _, _, _, _]) => 0..8,
            (10, [_, _, _, _]) => 0..4,
            (2988, [_, _, _, _, ..]) => 0..4,
            _ => return None,
        };
        value[number].reverse();
        Some(Self { code, value })
    }

    /// Name and text of an option that is text: operating system, hardware.
    pub fn text(&self) -> Option<(&'static str, String)> {
        let name = match self.code {
            OS => "os",
            HARDWARE => "hardware",
            _ => return None,
        };
        Some((name, crate::text::from_bytes(&self.value)))
    }

    /// Speed of the interface, bit/s.
    pub fn speed(&self) -> Option<u64> {
        let value: [u8; 8] = self.value.as_slice().try_into().ok()?;
        (self.code == 8).then(|| u64::from_le_bytes(value))
    }

    /// Length of the program of a filter that is not a text: `if_filter` of another kind than 0.
    pub fn program(&self) -> Option<usize> {
        (self.code == FILTER).then(|| self.value.len().saturating_sub(1))
    }
}
