//! Packets that do not fit: fragments, and messages of routers that a packet is too big.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::ops::AddAssign;
use weir_packet::flow::FlowKey;
use weir_packet::transport::{ICMP, ICMP6, Transport};

/// Most rows of each kind that are kept. Further ones are counted without a row.
pub const MOST: usize = 128;

/// Fragments from one address to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragments {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// Protocol number of the fragmented packets.
    pub proto: u8,
    /// Fragments.
    pub fragments: u64,
    /// First fragments: packets that were fragmented, as far as their first fragment was seen.
    pub packets: u64,
    /// Bytes of the fragments from their IP headers on.
    pub bytes: u64,
}

/// Messages of a router that packets to a destination are too big: ICMP 3/4 (RFC 1191), ICMPv6 2 (RFC 4443, section 3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooBig {
    /// Sender of the messages.
    pub router: IpAddr,
    /// Destination of the packet that was too big; `None` if the message does not quote it.
    pub destination: Option<IpAddr>,
    /// Largest packet that fits, bytes; `None` if the message does not say.
    pub mtu: Option<u32>,
    /// Messages.
    pub messages: u64,
}

/// Fragments and messages of a time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Fragments by their ends, most fragments first.
    pub fragments: Vec<Fragments>,
    /// Number of all fragments, with or without a row.
    pub all_fragments: u64,
    /// Messages by router, destination and size, most messages first.
    pub too_big: Vec<TooBig>,
    /// Number of all messages, with or without a row.
    pub all_too_big: u64,
}

impl Report {
    /// Takes a packet.
    #[inline]
    pub(super) fn take(&mut self, transport: &Transport<'_>) {
        if transport.fragment.is_some() {
            self.fragment(transport);
        }
        if matches!(
            (transport.key.family, transport.key.proto),
            (4, ICMP) | (6, ICMP6)
        ) {
            self.message(transport);
        }
    }

    #[cold]
    fn fragment(&mut self, transport: &Transport<'_>) {
        let FlowKey { proto, .. } = transport.key;
        let ends = (transport.key.source(), transport.key.destination());
        let (Some(source), Some(destination)) = ends else {
            return;
        };
        let is_first = transport
            .fragment
            .is_some_and(|fragment| fragment.offset == 0);
        self.all_fragments += 1;
        self.add_fragments(Fragments {
            source,
            destination,
            proto,
            fragments: 1,
            packets: is_first.into(),
            bytes: transport.packet_len.into(),
        });
    }

    #[cold]
    fn message(&mut self, transport: &Transport<'_>) {
        let (bytes, is_v4) = (transport.captured, transport.key.family == 4);
        let (Some(router), Some(head)) = (transport.key.source(), bytes.first_chunk::<8>()) else {
            return;
        };
        let mtu = match (is_v4, head[0], head[1]) {
            (true, 3, 4) => u32::from(u16::from_be_bytes([head[6], head[7]])),
            (false, 2, _) => u32::from_be_bytes([head[4], head[5], head[6], head[7]]),
            _ => return,
        };
        self.all_too_big += 1;
        self.add_too_big(TooBig {
            router,
            destination: quoted(&bytes[8..], is_v4),
            // Routers that are older than RFC 1191 say 0.
            mtu: Some(mtu).filter(|mtu| *mtu != 0),
            messages: 1,
        });
    }

    fn add_fragments(&mut self, more: Fragments) {
        let ends = |row: &Fragments| (row.source, row.destination, row.proto);
        let has_room = self.fragments.len() < MOST;
        match self
            .fragments
            .iter_mut()
            .find(|row| ends(row) == ends(&more))
        {
            Some(row) => {
                row.fragments += more.fragments;
                row.packets += more.packets;
                row.bytes += more.bytes;
            }
            None if has_room => self.fragments.push(more),
            None => {}
        }
    }

    fn add_too_big(&mut self, more: TooBig) {
        let what = |row: &TooBig| (row.router, row.destination, row.mtu);
        let has_room = self.too_big.len() < MOST;
        match self.too_big.iter_mut().find(|row| what(row) == what(&more)) {
            Some(row) => row.messages += more.messages,
            None if has_room => self.too_big.push(more),
            None => {}
        }
    }

    /// Returns the report with its first `rows` rows in order.
    pub(super) fn ranked(mut self, rows: usize) -> Self {
        self.fragments.sort_by_key(|row| {
            (
                u64::MAX - row.fragments,
                row.source,
                row.destination,
                row.proto,
            )
        });
        self.too_big.sort_by_key(|row| {
            (
                u64::MAX - row.messages,
                row.router,
                row.destination,
                row.mtu,
            )
        });
        self.fragments.truncate(rows);
        self.too_big.truncate(rows);
        self
    }
}

impl AddAssign<&Report> for Report {
    fn add_assign(&mut self, other: &Self) {
        self.all_fragments += other.all_fragments;
        self.all_too_big += other.all_too_big;
        other
            .fragments
            .iter()
            .for_each(|row| self.add_fragments(*row));
        other.too_big.iter().for_each(|row| self.add_too_big(*row));
    }
}

/// Destination address of the packet that an ICMP message quotes.
fn quoted(packet: &[u8], is_v4: bool) -> Option<IpAddr> {
    if is_v4 {
        let bytes: [u8; 4] = packet.get(16..)?.first_chunk().copied()?;
        return (packet[0] >> 4 == 4).then(|| Ipv4Addr::from(bytes).into());
    }
    let bytes: [u8; 16] = packet.get(24..)?.first_chunk().copied()?;
    (packet[0] >> 4 == 6).then(|| Ipv6Addr::from(bytes).into())
}
