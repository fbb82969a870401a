//! Keys of several fields, packed into the place of a flow key.

use super::Prefix;
use core::fmt;
use weir_packet::flow::{Facts, FlowKey};
use weir_packet::savefile::Direction;
use zerocopy::transmute;

/// A field of a key: part of the flow key, or one of the [facts](Facts) of the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Field {
    /// Source address.
    Src,
    /// Destination address.
    Dst,
    /// Source port; its protocol belongs to it.
    Sport,
    /// Destination port; its protocol belongs to it.
    Dport,
    /// IP protocol.
    Proto,
    /// Source MAC address.
    Smac,
    /// Destination MAC address.
    Dmac,
    /// Identifier of the outermost VLAN tag.
    Vlan,
    /// Outermost MPLS label.
    Mpls,
    /// Network identifier of VXLAN, GENEVE or NVGRE.
    Vni,
    /// EtherType after all tags.
    Ethertype,
    /// Differentiated services code point.
    Dscp,
    /// Time to live, or hop limit.
    Ttl,
    /// TCP flags.
    TcpFlags,
    /// Size class of the wire length.
    Size,
    /// Interface of the capture.
    Interface,
    /// Direction at that interface.
    Direction,
}

impl Field {
    /// All fields with their names and the bytes that they take in a key, in the order of keys.
    const ALL: [(Self, &'static str, usize); 17] = [
        (Self::Src, "src", 16),
        (Self::Dst, "dst", 16),
        (Self::Sport, "sport", 2),
        (Self::Dport, "dport", 2),
        (Self::Proto, "proto", 1),
        (Self::Smac, "smac", 6),
        (Self::Dmac, "dmac", 6),
        (Self::Vlan, "vlan", 2),
        (Self::Mpls, "mpls", 3),
        (Self::Vni, "vni", 3),
        (Self::Ethertype, "ethertype", 2),
        (Self::Dscp, "dscp", 1),
        (Self::Ttl, "ttl", 1),
        (Self::TcpFlags, "tcpflags", 2),
        (Self::Size, "size", 1),
        (Self::Interface, "interface", 16),
        (Self::Direction, "direction", 1),
    ];

    const fn bit(self) -> u32 {
        1 << self as u32
    }

    /// Returns the field of this name.
    pub(super) fn named(name: &str) -> Option<Self> {
        let known = Self::ALL.iter().find(|(_, known, _)| *known == name);
        known.map(|(field, ..)| *field)
    }

    /// Name of the field.
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}

/// Fields of the flow key that are its own; all others are [facts](Facts) or the length.
const OF_FLOWS: u32 = Field::Src.bit()
    | Field::Dst.bit()
    | Field::Sport.bit()
    | Field::Dport.bit()
    | Field::Proto.bit();
/// Fields that only packets of IP have.
const OF_IP: u32 = OF_FLOWS | Field::Dscp.bit() | Field::Ttl.bit() | Field::TcpFlags.bit();

/// A set of fields that are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fields {
    set: u32,
    src: Prefix,
    dst: Prefix,
}

/// Fields of a packet, as a key of these [`Fields`] has them. What the key lacks is zero.
#[derive(Clone, Copy, Debug)]
pub struct Unpacked {
    /// Addresses, ports and protocol.
    pub flow: FlowKey,
    /// Facts of the frame.
    pub facts: Facts,
    /// Size class of the wire length.
    pub size: u8,
}

/// Bytes of a key for fields; one further byte is the mark.
const ROOM: usize = size_of::<FlowKey>() - 1;
/// Place of the mark: the family of a flow key.
const MARK: usize = 37;
/// Bit of the mark in every packed key. It makes the family none of IP, so that all bytes of the key are hashed.
const PACKED: u8 = 8;
/// First of the four bits of the mark that say which fields the packet has.
const HAS: u32 = 4;
const HAS_PORTS: u8 = 1;
const HAS_SMAC: u8 = 1 << 1;
const HAS_DMAC: u8 = 1 << 2;
const HAS_VNI: u8 = 1 << 3;
/// Bit of a packed tag and of packed TCP flags, and of a packed label: the packet has one.
const IS_THERE: u16 = 1 << 15;
const HAS_LABEL: u32 = 1 << 23;

impl Fields {
    /// No field.
    pub(super) const NONE: Self = Self {
        set: 0,
        src: Prefix::ALL,
        dst: Prefix::ALL,
    };

    /// Adds a field. Returns `false` if it was there.
    pub(super) fn add(&mut self, field: Field) -> bool {
        let before = self.set;
        self.set |= field.bit();
        if matches!(field, Field::Sport | Field::Dport) {
            self.set |= Field::Proto.bit();
        }
        before & field.bit() == 0
    }

    /// Adds the source or the destination address, cut to a prefix.
    pub(super) fn add_prefix(&mut self, field: Field, prefix: Prefix) -> bool {
        match field {
            Field::Src => self.src = prefix,
            _ => self.dst = prefix,
        }
        self.add(field)
    }

    /// Returns whether the field is in the set.
    #[inline]
    pub fn has(self, field: Field) -> bool {
        self.set & field.bit() != 0
    }

    /// Returns whether the set consists of these fields.
    pub(super) fn is(self, fields: &[Field]) -> bool {
        self.set == fields.iter().fold(0, |set, field| set | field.bit())
    }

    /// Returns the fields, in the order of keys. A protocol that belongs to a port is not among them.
    pub fn iter(self) -> impl Iterator<Item = Field> {
        let has_port = self.has(Field::Sport) || self.has(Field::Dport);
        let all = Field::ALL.into_iter().map(|(field, ..)| field);
        all.filter(move |field| self.has(*field) && !(has_port && *field == Field::Proto))
    }

    /// Prefixes of the source and the destination address.
    pub fn prefixes(self) -> (Prefix, Prefix) {
        (self.src, self.dst)
    }

    /// Bytes that the fields take in a key.
    fn bytes(self) -> usize {
        let all = Field::ALL.into_iter();
        all.filter(|(field, ..)| self.has(*field))
            .map(|(.., bytes)| bytes)
            .sum()
    }

    /// Returns the number of bytes that are too many for a key.
    pub(super) fn too_many(self) -> usize {
        self.bytes().saturating_sub(ROOM)
    }

    /// Returns whether a field is not in the flow key.
    pub fn needs_facts(self) -> bool {
        self.set & !OF_FLOWS != 0
    }

    /// Returns whether frames without a flow key also have such keys.
    pub fn is_of_frames(self) -> bool {
        self.set & OF_IP == 0
    }

    /// Returns the key of a packet of `bytes` wire bytes.
    pub(super) fn pack(self, flow: &FlowKey, facts: &Facts, bytes: u32) -> FlowKey {
        let mut room = Room::default();
        let mut has = 0;
        let mut family = 0;
        for (field, prefix, address) in [
            (Field::Src, self.src, flow.src),
            (Field::Dst, self.dst, flow.dst),
        ] {
            if self.has(field) {
                room.put(prefix.cut(address, flow.family));
                family = flow.family;
            }
        }
        for (field, port) in [(Field::Sport, flow.sport), (Field::Dport, flow.dport)] {
            if self.has(field) {
                room.put(port.to_be_bytes());
                has |= flow.flags & FlowKey::HAS_PORTS;
            }
        }
        if self.has(Field::Proto) {
            room.put([flow.proto]);
        }
        if self.has(Field::Smac) {
            room.put(facts.smac().unwrap_or_default());
            has |= facts.smac().map_or(0, |_| HAS_SMAC);
        }
        if self.has(Field::Dmac) {
            room.put(facts.dmac().unwrap_or_default());
            has |= facts.dmac().map_or(0, |_| HAS_DMAC);
        }
        if self.has(Field::Vlan) {
            room.put(facts.vlan().map_or(0, |tag| tag | IS_THERE).to_be_bytes());
        }
        if self.has(Field::Mpls) {
            let [_, label @ ..] = facts.mpls().map_or(0, |it| it | HAS_LABEL).to_be_bytes();
            room.put(label);
        }
        if self.has(Field::Vni) {
            let [_, vni @ ..] = facts.vni().unwrap_or(0).to_be_bytes();
            room.put(vni);
            has |= facts.vni().map_or(0, |_| HAS_VNI);
        }
        if self.has(Field::Ethertype) {
            room.put(facts.ethertype().unwrap_or(0).to_be_bytes());
        }
        if self.has(Field::Dscp) {
            room.put([facts.dscp().unwrap_or(0)]);
        }
        if self.has(Field::Ttl) {
            room.put([facts.ttl().unwrap_or(0)]);
        }
        if self.has(Field::TcpFlags) {
            room.put(
                facts
                    .tcp_flags()
                    .map_or(0, |flags| flags | IS_THERE)
                    .to_be_bytes(),
            );
        }
        if self.has(Field::Size) {
            room.put([crate::size_class(bytes) as u8]);
        }
        if self.has(Field::Interface) {
            room.put(facts.interface);
        }
        if self.has(Field::Direction) {
            room.put([match facts.direction() {
                Some(Direction::In) => 1,
                Some(Direction::Out) => 2,
                None => 0,
            }]);
        }
        room.key(PACKED | family | has << HAS)
    }

    /// Returns the fields of a key that `pack` made.
    pub fn unpack(self, key: &FlowKey) -> Unpacked {
        let (mut room, mark) = Room::of(key);
        let mut flow = FlowKey::NONE;
        let mut facts = Facts::NONE;
        let has = mark >> HAS;
        let mut size = 0;
        if self.has(Field::Src) {
            flow.src = room.take();
        }
        if self.has(Field::Dst) {
            flow.dst = room.take();
        }
        if self.has(Field::Src) || self.has(Field::Dst) {
            flow.family = mark & (PACKED - 1);
        }
        if self.has(Field::Sport) {
            flow.sport = u16::from_be_bytes(room.take());
        }
        if self.has(Field::Dport) {
            flow.dport = u16::from_be_bytes(room.take());
        }
        flow.flags = if has & HAS_PORTS != 0 {
            FlowKey::HAS_PORTS
        } else {
            0
        };
        if self.has(Field::Proto) {
            [flow.proto] = room.take();
        }
        if self.has(Field::Smac) {
            let address = room.take();
            if has & HAS_SMAC != 0 {
                facts.set_smac(address);
            }
        }
        if self.has(Field::Dmac) {
            let address = room.take();
            if has & HAS_DMAC != 0 {
                facts.set_dmac(address);
            }
        }
        if self.has(Field::Vlan) {
            let tag = u16::from_be_bytes(room.take());
            if tag & IS_THERE != 0 {
                facts.set_vlan(tag & !IS_THERE);
            }
        }
        if self.has(Field::Mpls) {
            let [a, b, c] = room.take();
            let label = u32::from_be_bytes([0, a, b, c]);
            if label & HAS_LABEL != 0 {
                facts.set_mpls(label & !HAS_LABEL);
            }
        }
        if self.has(Field::Vni) {
            let [a, b, c] = room.take();
            if has & HAS_VNI != 0 {
                facts.set_vni(u32::from_be_bytes([0, a, b, c]));
            }
        }
        if self.has(Field::Ethertype) {
            facts.set_ethertype(u16::from_be_bytes(room.take()));
        }
        let [dscp] = if self.has(Field::Dscp) {
            room.take()
        } else {
            [0]
        };
        let [ttl] = if self.has(Field::Ttl) {
            room.take()
        } else {
            [0]
        };
        facts.set_ip(dscp, ttl);
        if self.has(Field::TcpFlags) {
            let flags = u16::from_be_bytes(room.take());
            if flags & IS_THERE != 0 {
                facts.set_tcp_flags(flags & !IS_THERE);
            }
        }
        if self.has(Field::Size) {
            [size] = room.take();
        }
        if self.has(Field::Interface) {
            facts.interface = room.take();
        }
        if self.has(Field::Direction) {
            match room.take() {
                [1] => facts.set_direction(Direction::In),
                [2] => facts.set_direction(Direction::Out),
                _ => {}
            }
        }
        Unpacked { flow, facts, size }
    }
}

impl fmt::Display for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for field in self.iter() {
            f.write_str(separator)?;
            separator = ",";
            match field {
                Field::Src => self.src.write("src", f)?,
                Field::Dst => self.dst.write("dst", f)?,
                other => f.write_str(other.name())?,
            }
        }
        Ok(())
    }
}

/// Bytes of a packed key without its mark.
struct Room {
    bytes: [u8; ROOM],
    at: usize,
}

impl Default for Room {
    fn default() -> Self {
        Self {
            bytes: [0; ROOM],
            at: 0,
        }
    }
}

impl Room {
    /// Returns the bytes and the mark of a key.
    fn of(key: &FlowKey) -> (Self, u8) {
        let all: [u8; ROOM + 1] = transmute!(*key);
        let mut room = Self::default();
        room.bytes[..MARK].copy_from_slice(&all[..MARK]);
        room.bytes[MARK..].copy_from_slice(&all[MARK + 1..]);
        (room, all[MARK])
    }

    /// Appends bytes. A set of fields that has no room is refused before: see [`Fields::too_many`].
    fn put<const N: usize>(&mut self, bytes: [u8; N]) {
        if let Some(place) = self.bytes.get_mut(self.at..self.at + N) {
            place.copy_from_slice(&bytes);
        }
        self.at += N;
    }

    /// Returns the next bytes.
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let bytes = self
            .bytes
            .get(self.at..)
            .and_then(|rest| rest.first_chunk());
        self.at += N;
        bytes.copied().unwrap_or([0; N])
    }

    fn key(&self, mark: u8) -> FlowKey {
        let mut all = [0; ROOM + 1];
        all[..MARK].copy_from_slice(&self.bytes[..MARK]);
        all[MARK] = mark;
        all[MARK + 1..].copy_from_slice(&self.bytes[MARK..]);
        transmute!(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_fields() -> (FlowKey, Facts) {
        let flow = FlowKey {
            src: [7; 16],
            dst: [9; 16],
            sport: 0x1234,
            dport: 443,
            proto: 6,
            family: 6,
            flags: FlowKey::HAS_PORTS,
            reserved: 0,
        };
        let mut facts = Facts::NONE;
        facts.set_smac([1, 2, 3, 4, 5, 6]);
        facts.set_dmac([6, 5, 4, 3, 2, 1]);
        facts.set_vlan(0);
        facts.set_mpls(0xf_ffff);
        facts.set_vni(0xff_fffe);
        facts.set_ethertype(0x86dd);
        facts.set_ip(46, 255);
        facts.set_tcp_flags(0x1ff);
        facts.set_direction(Direction::Out);
        facts.interface = *b"a-name-of-16-by!";
        (flow, facts)
    }

    /// Each set of up to three fields that fits comes back as it was, both for a packet that has all fields and for a packet that
    /// has none.
    #[test]
    fn packed_fields_come_back() {
        let (flow, facts) = all_fields();
        let fields = Field::ALL.map(|(field, ..)| field);
        let mut fitting = 0;
        for a in fields {
            for b in fields {
                for c in fields {
                    let mut set = Fields::NONE;
                    for field in [a, b, c] {
                        set.add(field);
                    }
                    if set.too_many() > 0 {
                        continue;
                    }
                    fitting += 1;
                    let key = set.pack(&flow, &facts, 1500);
                    assert!(![4, 6].contains(&key.family), "{set}");
                    check(set, &set.unpack(&key), &flow, &facts);
                    let none = set.unpack(&set.pack(&FlowKey::NONE, &Facts::NONE, 64));
                    check(set, &none, &FlowKey::NONE, &Facts::NONE);
                }
            }
        }
        assert!(fitting > 4500, "{fitting}");
    }

    fn check(set: Fields, found: &Unpacked, flow: &FlowKey, facts: &Facts) {
        let is =
            |field, equal: bool| assert!(equal || !set.has(field), "{set}: {field:?} of {found:?}");
        let (packed, other) = (&found.facts, facts);
        is(Field::Src, found.flow.source() == flow.source());
        is(Field::Dst, found.flow.destination() == flow.destination());
        is(
            Field::Sport,
            found.flow.ports().map(|it| it.0) == flow.ports().map(|it| it.0),
        );
        is(
            Field::Dport,
            found.flow.ports().map(|it| it.1) == flow.ports().map(|it| it.1),
        );
        is(Field::Proto, found.flow.proto == flow.proto);
        is(Field::Smac, packed.smac() == other.smac());
        is(Field::Dmac, packed.dmac() == other.dmac());
        is(Field::Vlan, packed.vlan() == other.vlan());
        is(Field::Mpls, packed.mpls() == other.mpls());
        is(Field::Vni, packed.vni() == other.vni());
        is(Field::Ethertype, packed.ethertype() == other.ethertype());
        is(
            Field::Dscp,
            packed.dscp() == Some(other.dscp().unwrap_or(0)),
        );
        is(Field::Ttl, packed.ttl() == Some(other.ttl().unwrap_or(0)));
        is(Field::TcpFlags, packed.tcp_flags() == other.tcp_flags());
        is(Field::Interface, packed.interface == other.interface);
        is(Field::Direction, packed.direction() == other.direction());
    }

    #[test]
    fn a_flow_has_room_for_a_tag_and_for_no_address() {
        let mut set = Fields::NONE;
        for field in [
            Field::Src,
            Field::Dst,
            Field::Sport,
            Field::Dport,
            Field::Vlan,
        ] {
            assert!(set.add(field));
        }
        assert_eq!(set.too_many(), 0);
        assert!(!set.add(Field::Vlan));
        set.add(Field::Smac);
        // Proto comes with the ports.
        assert_eq!(set.too_many(), 16 + 16 + 2 + 2 + 1 + 2 + 6 - 39);
        assert_eq!(set.to_string(), "src,dst,sport,dport,smac,vlan");
    }
}
