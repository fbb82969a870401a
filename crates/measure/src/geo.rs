//! Networks, autonomous systems and countries of addresses, from files in the MaxMind DB format.
//!
//! ```text
//! at the start each file is verified whole, and each of its records is read once
//! a look-up walks the tree of a file to the number of a record: nothing is decoded and nothing is allocated
//! each worker keeps the last look-ups in a table of fixed size
//! ```
//!
//! **Source**: MaxMind DB File Format Specification 2.0, the fields of GeoLite2-ASN, GeoLite2-Country and GeoLite2-City, and the flat
//! records of IPinfo.

use crate::KeyKind;
use crate::key::RECEIVES;
use core::net::IpAddr;
use maxminddb::{LookupResult, MaxMindDbError, PathElement, Reader, WithinOptions, path};
use std::collections::HashMap;
use std::sync::Arc;
use weir_packet::fields;
use weir_packet::flow::FlowKey;

/// Bytes of the name of a system in a key; longer names are cut.
const NAME: usize = 28;

/// Databases that tell where addresses belong.
pub struct Geo {
    files: Vec<Database>,
    /// Autonomous systems; the first stands for none.
    systems: Vec<System>,
}

struct Database {
    reader: Reader<Vec<u8>>,
    /// Records by their place in the file.
    records: HashMap<usize, Record>,
}

/// System and country of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Record {
    /// Index of the autonomous system; 0: none.
    system: u32,
    /// Two letters of ISO 3166-1; zeros: none.
    country: [u8; 2],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct System {
    number: u32,
    /// The same name for all networks of the system, padded with zeros.
    name: [u8; NAME],
}

/// Place of an address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Place {
    record: Record,
    /// Bits of the network that a database holds; `None` if none holds the address.
    bits: Option<u8>,
}

/// Reason for which a file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GeoError {
    /// The file is damaged, or not of this format.
    #[error("{0}")]
    Damaged(MaxMindDbError),
    /// No record tells an AS number or a country.
    #[error("none of its records has an AS number or a country")]
    Empty,
}

impl core::fmt::Debug for Geo {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Geo")
            .field("files", &self.files.len())
            .field("systems", &self.systems.len())
            .finish_non_exhaustive()
    }
}

impl Default for Geo {
    fn default() -> Self {
        let none = System {
            number: 0,
            name: [0; NAME],
        };
        Self {
            files: Vec::new(),
            systems: vec![none],
        }
    }
}

impl Geo {
    /// Adds a database. If several tell the same of an address, the first counts.
    ///
    /// **Cost**: verifies the whole file and reads each record once: some tenths of a second for 10 MB. **Errors**: a damaged file;
    /// a file without AS numbers and countries.
    pub fn add(&mut self, bytes: Vec<u8>) -> Result<(), GeoError> {
        let reader = Reader::from_source(described(bytes)).map_err(GeoError::Damaged)?;
        reader.verify().map_err(GeoError::Damaged)?;
        let mut known: HashMap<u32, u32> = (0..)
            .zip(&self.systems)
            .map(|(i, it)| (it.number, i))
            .collect();
        let mut records = HashMap::new();
        let networks = reader.networks(WithinOptions::default());
        for network in networks.map_err(GeoError::Damaged)? {
            let found = network.map_err(GeoError::Damaged)?;
            let Some(offset) = found.offset() else {
                continue;
            };
            if records.contains_key(&offset) {
                continue;
            }
            let number = number_of(&found);
            let name = name_of(&found);
            let system = number.filter(|number| *number != 0).map_or(0, |number| {
                *known.entry(number).or_insert_with(|| {
                    let name = cut(name.unwrap_or_default());
                    self.systems.push(System { number, name });
                    (self.systems.len() - 1) as u32
                })
            });
            let country = country_code(&found).unwrap_or_default();
            records.insert(offset, Record { system, country });
        }
        if records.values().all(|record| *record == Record::default()) {
            return Err(GeoError::Empty);
        }
        self.files.push(Database { reader, records });
        Ok(())
    }

    /// Returns whether a database tells keys of this kind.
    pub fn has(&self, kind: KeyKind) -> bool {
        let mut records = self.files.iter().flat_map(|file| file.records.values());
        match kind {
            KeyKind::Asn => self.systems.len() > 1,
            KeyKind::Country => records.any(|record| record.country != [0; 2]),
            _ => !self.files.is_empty(),
        }
    }

    /// Returns the key of an address, of a kind whose keys come from a database. **Cost**: a look-up in each file.
    pub fn key(&self, kind: KeyKind, address: IpAddr) -> FlowKey {
        let (bytes, family) = match address {
            IpAddr::V4(v4) => {
                let mut bytes = [0; 16];
                bytes[..4].copy_from_slice(&v4.octets());
                (bytes, 4)
            }
            IpAddr::V6(v6) => (v6.octets(), 6),
        };
        self.key_of(kind, &self.find(address), bytes, family)
    }

    fn key_of(&self, kind: KeyKind, place: &Place, address: [u8; 16], family: u8) -> FlowKey {
        match kind {
            KeyKind::Asn => system_key(&self.systems[place.record.system as usize]),
            KeyKind::Country => country_key(place.record.country),
            _ => network_key(address, family, place.bits),
        }
    }

    fn told(&self, place: &Place, address: [u8; 16], family: u8) -> fields::Place<'_> {
        let system = &self.systems[place.record.system as usize];
        let name = core::str::from_utf8(&system.name).unwrap_or_default();
        let name = Some(name.trim_end_matches('\0')).filter(|name| !name.is_empty());
        let country = place.record.country;
        fields::Place {
            asn: (system.number != 0).then_some(system.number),
            as_name: name,
            country: (country != [0; 2]).then_some(country),
            network: network_of(&network_key(address, family, place.bits)),
        }
    }

    fn find(&self, address: IpAddr) -> Place {
        let mut place = Place::default();
        for file in &self.files {
            // A file of IPv4 refuses addresses of IPv6. The search of a verified file does not fail.
            let Ok(found) = file.reader.lookup(address) else {
                continue;
            };
            let record = found.offset().and_then(|offset| file.records.get(&offset));
            let Some(record) = record else { continue };
            if place.record.system == 0 {
                place.record.system = record.system;
            }
            if place.record.country == [0; 2] {
                place.record.country = record.country;
            }
            let network = found.network().ok();
            let bits = network
                .filter(|network| network.is_ipv4() == address.is_ipv4())
                .map(|network| network.prefix());
            place.bits = place.bits.max(bits);
        }
        place
    }
}

/// A text of a record; `None` for values of other types.
fn text<'a>(found: &LookupResult<'a, Vec<u8>>, path: &[PathElement<'_>]) -> Option<&'a str> {
    // The file is verified: values of other types are the only errors.
    found.decode_path::<&str>(path).ok().flatten()
}

/// The number of the autonomous system of a network. Writers choose its width; a flat record has `AS64500`.
fn number_of(found: &LookupResult<'_, Vec<u8>>) -> Option<u32> {
    let path = path!["autonomous_system_number"];
    let narrow = found.decode_path::<u16>(&path).ok().flatten();
    let number = || found.decode_path::<u32>(&path).ok().flatten();
    let flat = || text(found, &path!["asn"])?.strip_prefix("AS")?.parse().ok();
    narrow.map(u32::from).or_else(number).or_else(flat)
}

fn name_of<'a>(found: &LookupResult<'a, Vec<u8>>) -> Option<&'a str> {
    text(found, &path!["autonomous_system_organization"])
        .or_else(|| text(found, &path!["as_name"]))
        .or_else(|| text(found, &path!["name"]))
}

/// The letters of a country. Of flat records some have the code in `country_code`, and its name in `country`.
fn country_code(found: &LookupResult<'_, Vec<u8>>) -> Option<[u8; 2]> {
    let code = |text: &str| {
        let code = <[u8; 2]>::try_from(text.as_bytes()).ok();
        code.filter(|code| code.iter().all(u8::is_ascii_alphanumeric))
    };
    [
        &path!["country", "iso_code"][..],
        &path!["country_code"],
        &path!["country"],
    ]
    .into_iter()
    .find_map(|path| text(found, path).and_then(code))
}

/// Gives a file that describes itself in no language a description: the library verifies no file without one, which readers do not need.
fn described(mut bytes: Vec<u8>) -> Vec<u8> {
    /// Begin of the metadata, at most 128 KiB before the end of the file.
    const MARKER: &[u8] = b"\xab\xcd\xefMaxMind.com";
    const MOST: usize = 128 << 10;
    /// The name of the descriptions, and a map without any; a map with one.
    const NONE: &[u8] = b"\x4bdescription\xe0";
    const ONE: &[u8] = b"\x4bdescription\xe1\x42en\x41-";
    let from = bytes.len().saturating_sub(MOST);
    let find = |of: &[u8], what: &[u8]| of.windows(what.len()).rposition(|part| part == what);
    let metadata = find(&bytes[from..], MARKER).map(|at| from + at);
    let place = metadata.and_then(|at| Some(at + find(&bytes[at..], NONE)?));
    if let Some(at) = place {
        bytes.splice(at..at + NONE.len(), ONE.iter().copied());
    }
    bytes
}

/// A name, cut to the room of a key between two characters; control characters are replaced.
fn cut(name: &str) -> [u8; NAME] {
    let mut out = [0; NAME];
    let mut at = 0;
    for letter in name.chars() {
        let letter = if letter.is_control() { '?' } else { letter };
        let Some(room) = out.get_mut(at..at + letter.len_utf8()) else {
            break;
        };
        letter.encode_utf8(room);
        at += letter.len_utf8();
    }
    out
}

/// Slots of the table of the last look-ups.
const SLOTS: usize = 1 << 13;

/// Places of addresses, as one worker or output finds them.
///
/// **Memory**: 320 KiB for the last look-ups.
#[derive(Debug)]
pub struct Places {
    geo: Arc<Geo>,
    /// The last look-up of each slot.
    last: Box<[Slot]>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    address: [u8; 16],
    /// 0: the slot is empty.
    family: u8,
    place: Place,
}

impl Places {
    /// No address is looked up yet.
    pub fn new(geo: Arc<Geo>) -> Self {
        Self {
            geo,
            last: vec![Slot::default(); SLOTS].into(),
        }
    }

    /// Returns the places of the source and of the destination of a packet. **Cost**: two loads, or look-ups in each file; no allocation.
    pub fn ends(&mut self, flow: &FlowKey) -> [fields::Place<'_>; 2] {
        let ends = [flow.src, flow.dst];
        let found = ends.map(|address| self.of(address, flow.family));
        [0, 1].map(|end| self.geo.told(&found[end], ends[end], flow.family))
    }

    /// Returns the key of the source of a packet, or of its destination as the receiving side.
    pub(crate) fn key(&mut self, kind: KeyKind, flow: &FlowKey, receives: bool) -> FlowKey {
        let address = if receives { flow.dst } else { flow.src };
        let place = self.of(address, flow.family);
        let mut key = self.geo.key_of(kind, &place, address, flow.family);
        key.flags = if receives { RECEIVES } else { 0 };
        key
    }

    fn of(&mut self, address: [u8; 16], family: u8) -> Place {
        // Multiplication spreads the bits that addresses of one network share (Knuth, TAOCP 3, 6.4).
        let [a, b] = [&address[..8], &address[8..]]
            .map(|half| u64::from_le_bytes(half.try_into().expect("eight bytes")));
        let mixed = (a ^ b.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let slot = &mut self.last[(mixed >> 51) as usize % SLOTS];
        if (slot.family, slot.address) != (family, address) {
            let ip = match family {
                4 => Some(IpAddr::from([
                    address[0], address[1], address[2], address[3],
                ])),
                6 => Some(IpAddr::from(address)),
                _ => None,
            };
            *slot = Slot {
                address,
                family,
                place: ip.map_or(Place::default(), |ip| self.geo.find(ip)),
            };
        }
        slot.place
    }
}

fn system_key(system: &System) -> FlowKey {
    let mut key = FlowKey::NONE;
    let (first, rest) = system.name.split_at(12);
    key.src[..4].copy_from_slice(&system.number.to_be_bytes());
    key.src[4..].copy_from_slice(first);
    key.dst.copy_from_slice(rest);
    key
}

fn country_key(code: [u8; 2]) -> FlowKey {
    let mut key = FlowKey::NONE;
    key.src[..2].copy_from_slice(&code);
    key
}

fn network_key(address: [u8; 16], family: u8, bits: Option<u8>) -> FlowKey {
    let Some(bits) = bits else {
        return FlowKey::NONE;
    };
    let mut key = FlowKey {
        src: crate::Prefix::of(bits).cut(address, family),
        family,
        ..FlowKey::NONE
    };
    key.dst[0] = bits;
    key
}

/// Returns number and name of the autonomous system of a key of [`KeyKind::Asn`]; `None`: no database has the address.
pub fn system_of(key: &FlowKey) -> Option<(u32, String)> {
    let [a, b, c, d, ..] = key.src;
    let number = u32::from_be_bytes([a, b, c, d]);
    let name = [&key.src[4..], &key.dst[..]].concat();
    let name = String::from_utf8_lossy(&name);
    (number != 0).then(|| (number, name.trim_end_matches('\0').to_owned()))
}

/// Returns the two letters of the country of a key of [`KeyKind::Country`]; `None`: no database has the address.
pub fn country_of(key: &FlowKey) -> Option<String> {
    let [a, b, ..] = key.src;
    (a != 0).then(|| [a, b].map(char::from).iter().collect())
}

/// Returns the network of a key of [`KeyKind::Network`] and its bits; `None`: no database has the address.
pub fn network_of(key: &FlowKey) -> Option<(IpAddr, u8)> {
    Some((key.source()?, key.dst[0]))
}
