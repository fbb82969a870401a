//! Names of addresses, as the packets tell them.
//!
//! An answer of DNS gives its addresses the name of its question, whatever aliases (CNAME) are between them; other addresses in the
//! message get the name of their record. The first message of a TLS connection gives the server the name that the client
//! asks for. An address has its latest name.
//!
//! Anybody can send such messages: names are claims. Their text is printable ASCII, with escapes for all other bytes, and never looks
//! like an address.

use crate::RECEIVES;
use core::fmt::Write as _;
use core::net::IpAddr;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use weir_packet::dns::{self, Entries, Header, Name, kinds};
use weir_packet::flow::FlowKey;
use weir_packet::tls::Hello;
use weir_packet::transport::{TCP, Transport, UDP};

/// Memory for names, bytes, if nobody says how much: about 30 000 addresses with names of their own, of 30 characters.
pub const MEMORY: usize = 8 << 20;

/// Bytes of an address in the table, and of a name without its text: entries of hash tables with their free places.
const ADDRESS: usize = 96;
const NAME: usize = 160;

/// Most aliases that lead to an address; further ones are not followed.
const ALIASES: usize = 16;

const DNS: u16 = 53;
const MULTICAST_DNS: u16 = 5353;

/// Addresses with names, in a bounded memory. If it is full, the addresses that got their names first lose them.
#[derive(Clone, Debug, Default)]
pub struct Names {
    memory: usize,
    /// Memory in use, bytes.
    used: usize,
    addresses: HashMap<IpAddr, Held>,
    /// Addresses in the order of their first names.
    order: VecDeque<IpAddr>,
    numbers: HashMap<Arc<str>, u64>,
    texts: HashMap<u64, Text>,
    next: u64,
    /// Buffer for the text of a name.
    text: String,
    reader: Reader,
    lost: u64,
    /// Number of addresses that had several names.
    several: usize,
}

/// Reader of the names that packets give to addresses.
#[derive(Clone, Debug, Default)]
pub struct Reader {
    /// Buffer for the asked name of a message, and the aliases that lead on from it.
    chain: Vec<Name>,
    unread: u64,
}

/// Protocol that gives an address a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Teller {
    /// A record in an answer of DNS.
    Dns,
    /// The server name that a client of TLS asks for.
    Tls,
}

/// Receiver of a name of an address.
pub type Learn<'a> = dyn FnMut(Teller, IpAddr, &Name) + 'a;

/// Part of a packet that may name addresses.
#[derive(Clone, Copy, Debug)]
enum Part<'a> {
    /// A message of DNS.
    Message(&'a [u8]),
    /// Messages of DNS over TCP.
    Messages(&'a [u8]),
    /// The begin of a TLS connection.
    Hello(Hello<'a>),
}

/// Name of an address.
#[derive(Clone, Copy, Debug)]
struct Held {
    /// Number of the name.
    number: u64,
    /// Whether the address had another name before.
    had_another: bool,
}

#[derive(Clone, Debug)]
struct Text {
    text: Arc<str>,
    /// Number of addresses with the name.
    holders: usize,
}

/// Flag of a key that stands for a name; its address holds the number of the name.
const NAMED: u8 = 1 << 4;

impl Names {
    /// Creates an empty table of about `memory` bytes: 96 for an address, 160 for a name and its text.
    pub fn new(memory: usize) -> Self {
        Self {
            memory,
            ..Self::default()
        }
    }

    /// Number of addresses that have a name.
    pub fn len(&self) -> usize {
        self.addresses.len()
    }

    /// Whether no address has a name.
    pub fn is_empty(&self) -> bool {
        self.addresses.is_empty()
    }

    /// Number of addresses that lost their names for lack of memory; an address may do so again and again.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Number of addresses with a name that had another name before.
    pub fn several(&self) -> usize {
        self.several
    }

    /// Number of messages that may have named addresses, and could not be read: cut, broken, or in several segments.
    pub fn unread(&self) -> u64 {
        self.reader.unread
    }

    /// Name of an address.
    pub fn of(&self, address: IpAddr) -> Option<&str> {
        let held = self.addresses.get(&address)?;
        self.texts.get(&held.number).map(|text| &*text.text)
    }

    /// Addresses with their names, in the order of their first names.
    pub fn iter(&self) -> impl Iterator<Item = (IpAddr, &str)> {
        self.order
            .iter()
            .filter_map(|address| Some((*address, self.of(*address)?)))
    }

    /// Text of a key that stands for a name.
    pub fn text(&self, key: &FlowKey) -> Option<&str> {
        let [number @ .., _, _, _, _, _, _, _, _] = key.src;
        let is_name = key.flags & NAMED != 0;
        let text = is_name.then(|| self.texts.get(&u64::from_be_bytes(number)))?;
        text.map(|text| &*text.text)
    }

    /// Key of the name of a host; `None` if the host has none.
    pub(crate) fn label(&self, host: &FlowKey) -> Option<FlowKey> {
        let Held { number, .. } = *self.addresses.get(&host.source()?)?;
        let mut key = FlowKey {
            flags: NAMED,
            ..FlowKey::NONE
        };
        key.src[..8].copy_from_slice(&number.to_be_bytes());
        Some(key)
    }

    /// Keys of all hosts that have a name.
    pub(crate) fn hosts(&self) -> impl Iterator<Item = FlowKey> {
        self.order.iter().map(|address| host(*address))
    }

    /// Gives an address its name. **Cost**: allocates for a new address or name.
    pub fn learn(&mut self, address: IpAddr, name: &Name) {
        let mut text = core::mem::take(&mut self.text);
        if write_name(&mut text, name) {
            self.learn_text(address, &text);
        }
        self.text = text;
    }

    fn learn_text(&mut self, address: IpAddr, text: &str) {
        // No address is the address of all that is blocked.
        if address.is_unspecified() {
            return;
        }
        let number = self.number(text);
        let before = self.addresses.get(&address).copied();
        let had_another = before.is_some_and(|held| held.had_another || held.number != number);
        self.addresses.insert(
            address,
            Held {
                number,
                had_another,
            },
        );
        if let Some(text) = self.texts.get_mut(&number) {
            text.holders += 1;
        }
        match before {
            Some(before) => {
                self.several += usize::from(had_another) - usize::from(before.had_another);
                self.release(before.number);
            }
            None => {
                self.order.push_back(address);
                self.used += ADDRESS;
            }
        }
        while self.used > self.memory
            && let Some(oldest) = self.order.pop_front()
        {
            self.lost += 1;
            self.used -= ADDRESS;
            if let Some(held) = self.addresses.remove(&oldest) {
                self.several -= usize::from(held.had_another);
                self.release(held.number);
            }
        }
    }

    /// Number of a name, which it gets if it has none.
    fn number(&mut self, text: &str) -> u64 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let number = self.next;
        self.next += 1;
        self.used += NAME + text.len();
        let text: Arc<str> = text.into();
        self.numbers.insert(Arc::clone(&text), number);
        self.texts.insert(number, Text { text, holders: 0 });
        number
    }

    /// Takes a name from one of its addresses.
    fn release(&mut self, number: u64) {
        let Some(text) = self.texts.get_mut(&number) else {
            return;
        };
        text.holders -= 1;
        if text.holders == 0
            && let Some(Text { text, .. }) = self.texts.remove(&number)
        {
            self.used -= NAME + text.len();
            self.numbers.remove(&text);
        }
    }

    /// Adds names that were seen later.
    pub fn merge(&mut self, later: &Self) {
        for (address, text) in later.iter() {
            self.learn_text(address, text);
            if later.addresses[&address].had_another
                && let Some(held) = self.addresses.get_mut(&address)
                && !core::mem::replace(&mut held.had_another, true)
            {
                self.several += 1;
            }
        }
        self.lost += later.lost;
        self.reader.unread += later.reader.unread;
    }

    /// Takes the names that were seen, and begins again.
    pub fn take(&mut self) -> Self {
        let memory = self.memory;
        core::mem::replace(self, Self::new(memory))
    }

    /// Looks for names in a packet. **Cost**: two comparisons, unless the packet is of DNS or begins a TLS connection.
    #[inline]
    pub fn see(&mut self, packet: &Transport<'_>) {
        if let Some(part) = Part::of(packet) {
            let mut reader = core::mem::take(&mut self.reader);
            reader.hear(&packet.key, part, &mut |_, address, name| {
                self.learn(address, name);
            });
            self.reader = reader;
        }
    }
}

/// Writes a name in small letters to an empty `text`. Returns whether it is one: text that looks like an address would be taken for one.
pub fn write_name(text: &mut String, name: &Name) -> bool {
    text.clear();
    let _ = write!(text, "{name}");
    text.make_ascii_lowercase();
    text != "." && text.parse::<IpAddr>().is_err()
}

impl<'a> Part<'a> {
    #[inline]
    fn of(packet: &Transport<'a>) -> Option<Self> {
        let key = &packet.key;
        if key.flags & FlowKey::HAS_PORTS == 0 {
            return None;
        }
        match key.proto {
            UDP if matches!(key.sport, DNS | MULTICAST_DNS) => {
                let message = packet.captured.get(8..);
                Some(Self::Message(message.unwrap_or_default()))
            }
            TCP => {
                let header = packet.captured.get(12);
                let header = header.map_or(0, |byte| usize::from(byte >> 4) * 4);
                let payload = packet.captured.get(header..).filter(|_| header >= 20)?;
                if key.sport == DNS {
                    return Some(Self::Messages(payload));
                }
                match Hello::read(payload) {
                    Hello::Other | Hello::Unnamed => None,
                    hello => Some(Self::Hello(hello)),
                }
            }
            _ => None,
        }
    }
}

impl Reader {
    /// Number of messages that may have named addresses, and could not be read: cut, broken, or in several segments.
    pub fn unread(&self) -> u64 {
        self.unread
    }

    /// Calls `learn` with each name that a packet gives an address.
    pub fn see(&mut self, packet: &Transport<'_>, learn: &mut Learn<'_>) {
        if let Some(part) = Part::of(packet) {
            self.hear(&packet.key, part, learn);
        }
    }

    fn hear(&mut self, key: &FlowKey, part: Part<'_>, learn: &mut Learn<'_>) {
        match part {
            Part::Message(message) => self.message(message, learn),
            Part::Messages(payload) => self.messages(payload, learn),
            Part::Hello(Hello::Named(name)) => match (key.destination(), Name::of_text(name)) {
                (Some(server), Ok(name)) => learn(Teller::Tls, server, &name),
                _ => self.unread += 1,
            },
            Part::Hello(_) => self.unread += 1,
        }
    }

    /// Takes the messages of a segment, each after two bytes of length (RFC 1035, section 4.2.2).
    fn messages(&mut self, mut rest: &[u8], learn: &mut Learn<'_>) {
        while let &[high, low, ref behind @ ..] = rest {
            let len = usize::from(u16::from_be_bytes([high, low]));
            let Some((message, others)) = behind.split_at_checked(len).filter(|_| len > 0) else {
                self.unread += 1;
                return;
            };
            self.message(message, learn);
            rest = others;
        }
    }

    /// Takes a message of DNS.
    fn message(&mut self, message: &[u8], learn: &mut Learn<'_>) {
        let Some(header) = Header::read(message) else {
            self.unread += 1;
            return;
        };
        if header.is_response() && header.opcode() == 0 && header.rcode() == 0 {
            let read = records(message, header, &mut self.chain, learn);
            self.unread += u64::from(read.is_err());
        }
    }
}

/// Takes the records of a message. `chain` has room for the asked name and the aliases that lead on from it.
fn records(
    message: &[u8],
    header: Header,
    chain: &mut Vec<Name>,
    learn: &mut Learn<'_>,
) -> Result<(), dns::Malformed> {
    chain.clear();
    let mut entries = Entries::new(message, header);
    chain.extend(entries.question().transpose()?.map(|it| small(it.name)));
    while let Some(record) = entries.record() {
        let record = record?;
        let owner = small(record.name);
        let is_asked = record.section == 1 && chain.contains(&owner);
        let address = match (record.kind, record.data) {
            (kinds::CNAME, _) if is_asked && chain.len() <= ALIASES => {
                chain.push(small(Name::read(message, record.data_at)?.0));
                continue;
            }
            (kinds::A, &[a, b, c, d]) => IpAddr::from([a, b, c, d]),
            (kinds::AAAA, data) => match <[u8; 16]>::try_from(data) {
                Ok(bytes) => IpAddr::from(bytes),
                Err(_) => continue,
            },
            _ => continue,
        };
        // The highest bit is a flag of multicast DNS (RFC 6762, 10.2).
        if record.class & 0x7fff != 1 {
            continue;
        }
        let asked = chain.first().filter(|_| is_asked);
        learn(Teller::Dns, address, asked.unwrap_or(&owner));
    }
    Ok(())
}

/// Names are the same if they have the same addresses with the same names.
impl PartialEq for Names {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

fn small(mut name: Name) -> Name {
    name.make_lowercase();
    name
}

/// Key of a host.
fn host(address: IpAddr) -> FlowKey {
    let mut key = FlowKey::NONE;
    match address {
        IpAddr::V4(address) => {
            key.src[..4].copy_from_slice(&address.octets());
            key.family = 4;
        }
        IpAddr::V6(address) => {
            key.src = address.octets();
            key.family = 6;
        }
    }
    key
}

const _: () = assert!(NAMED & (RECEIVES | FlowKey::HAS_PORTS) == 0);
