//! Properties of the flow key of any bytes: the body of the fuzz target, which the tests run too.
//!
//! The body lives here and not in the crate, because its oracle, etherparse, is no dependency of the shipped crates.

#[path = "fields.rs"]
pub mod fields;

use core::net::IpAddr;

use etherparse::err::ipv6_exts::HeaderError;
use etherparse::err::packet::SliceError;
use etherparse::{LaxLinkExtSlice, LaxNetSlice, LaxSlicedPacket};
use weir_packet::LinkType;
use weir_packet::flow::{FlowKey, Group, Hasher, Keep, NoKey, Parser};

/// Link types that have keys.
pub const LINKS: [u16; 26] = [
    1, 1, 1, 101, 228, 229, 113, 276, 0, 108, 9, 50, 51, 166, 104, 219, 10, 107, 239, 242, 226,
    105, 127, 119, 163, 192,
];

/// Result of the comparison of a packet's key with etherparse's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// The whole key is the same, or neither library finds a key.
    Same,
    /// An intended difference, and its reason.
    Intended(&'static str),
    /// etherparse does not know the link type.
    NotCompared,
}

/// Checks any bytes: the first chooses the link type, the second the size of a cut, the others are the frame.
pub fn flow(bytes: &[u8]) {
    let [link, cut, data @ ..] = bytes else {
        return;
    };
    let link = LinkType(LINKS[usize::from(*link) % LINKS.len()]);
    compare(link, data);
    fields::compare(link, data);
    properties(link, data, usize::from(*cut));
    reframed(link, data);
}

/// Checks that the innermost packet of a frame has the key that is found in place, and that nothing is around it any more.
pub fn reframed(link: LinkType, data: &[u8]) {
    let parser = Parser::new(link, true).expect("a link type with keys");
    let Some(packet) = parser.reframed(data, Keep::default()) else {
        return;
    };
    let bare = packet.pieces().concat();
    assert_eq!(bare.len(), packet.len());
    assert!(bare.len() <= data.len() && packet.contiguous().is_none_or(|one| one == bare));
    let alone = Parser::new(packet.link.of(link), false).expect("a link type with keys");
    let show = || format!("{packet:?} of {data:02x?}");
    let (found, expected) = (alone.key(&bare).ok(), parser.key(data).ok());
    // A walk that ends at an extension header would go on behind it.
    let is_at_an_end = expected.is_some_and(|key| [0, 43, 44, 51, 60].contains(&key.proto));
    assert!(
        found == expected || is_at_an_end,
        "{found:?}, {expected:?}: {}",
        show()
    );
    // Only tunnels are left to enter: those that hold no packet.
    let again = Parser::new(packet.link.of(link), true).expect("a link type with keys");
    if let Some(more) = again.reframed(&bare, Keep::default()) {
        // A chain of more extension headers or tunnels than are walked.
        assert!(
            more.around.extensions || more.around.tunnel || more.around.tags > 0,
            "{more:?} in {}",
            show()
        );
    }
}

/// Compares the key of a frame with etherparse's.
pub fn compare(link: LinkType, data: &[u8]) -> Verdict {
    let found = Parser::new(link, false)
        .expect("a link type with keys")
        .key(data);
    let theirs = match link {
        LinkType::ETHERNET => match LaxSlicedPacket::from_ethernet(data) {
            Ok(theirs) => theirs,
            Err(_) => {
                assert_eq!(
                    found,
                    Err(NoKey::Truncated),
                    "shorter than an Ethernet header"
                );
                return Verdict::Same;
            }
        },
        LinkType::RAW => match LaxSlicedPacket::from_ip(data) {
            Ok(theirs) => theirs,
            Err(_) => {
                assert!(
                    found.is_err(),
                    "{found:?}, etherparse finds no IP in {data:02x?}"
                );
                return Verdict::Same;
            }
        },
        _ => return Verdict::NotCompared,
    };
    compare_facts(link, data, &theirs);
    judge(link, data, found, &theirs)
}

/// Compares fields beside the key with etherparse's: MAC addresses, the outermost tag, and the fields of a plain IP header.
fn compare_facts(link: LinkType, data: &[u8], theirs: &LaxSlicedPacket<'_>) {
    let parser = Parser::new(link, false).expect("a link type with keys");
    let facts = parser.facts(data);
    if link == LinkType::ETHERNET {
        assert_eq!(
            facts.dmac().as_ref().map(|it| &it[..]),
            data.get(..6),
            "{data:02x?}"
        );
        assert_eq!(
            facts.smac().as_ref().map(|it| &it[..]),
            data.get(6..12),
            "{data:02x?}"
        );
        let tag = theirs.link_exts.first().and_then(|ext| match ext {
            LaxLinkExtSlice::Vlan(tag) => Some(tag.vlan_identifier().value()),
            LaxLinkExtSlice::Macsec(_) => None,
        });
        // etherparse reads no tag whose EtherType is cut off.
        let is_cut = data.len() < 18;
        assert!(
            facts.vlan() == tag || is_cut,
            "{facts:?} {tag:?} {data:02x?}"
        );
    }
    if parser.key(data).is_err() {
        return;
    }
    match &theirs.net {
        Some(LaxNetSlice::Ipv4(ip)) => {
            let header = ip.header();
            let fields = (Some(header.dcp().value()), Some(header.ttl()));
            assert_eq!((facts.dscp(), facts.ttl()), fields, "{data:02x?}");
        }
        Some(LaxNetSlice::Ipv6(ip)) => {
            let header = ip.header();
            let fields = (Some(header.dscp().value()), Some(header.hop_limit()));
            assert_eq!((facts.dscp(), facts.ttl()), fields, "{data:02x?}");
        }
        _ => {}
    }
}

fn judge(
    link: LinkType,
    data: &[u8],
    found: Result<FlowKey, NoKey>,
    theirs: &LaxSlicedPacket<'_>,
) -> Verdict {
    let show = || format!("{found:?}, etherparse: {theirs:?}, frame {data:02x?}");
    if theirs
        .link_exts
        .iter()
        .any(|ext| matches!(ext, LaxLinkExtSlice::Macsec(_)))
    {
        assert_eq!(found, Err(NoKey::NotIp), "{}", show());
        return Verdict::Intended("MACsec, even if only signed, is not opened");
    }
    let version = match theirs.net {
        Some(LaxNetSlice::Ipv4(_)) => 4,
        Some(LaxNetSlice::Ipv6(_)) => 6,
        _ => return without_ip(data, found, theirs),
    };
    if link == LinkType::ETHERNET {
        let announced = theirs.ether_payload().map(|payload| payload.ether_type.0);
        if announced != Some(if version == 4 { 0x0800 } else { 0x86dd }) {
            assert_eq!(found, Err(NoKey::Malformed), "{}", show());
            return Verdict::Intended(
                "etherparse believes the version's nibble, not the EtherType",
            );
        }
    }
    if let Some(LaxNetSlice::Ipv4(ip)) = &theirs.net
        && (1..ip.header().slice().len()).contains(&usize::from(ip.header().total_len()))
    {
        assert_eq!(found, Err(NoKey::Malformed), "{}", show());
        return Verdict::Intended("a total length below the header's contradicts it");
    }
    let Ok(found) = found else {
        panic!("{}", show())
    };
    let (src, dst, payload, later, first_proto) = match theirs.net.as_ref() {
        Some(LaxNetSlice::Ipv4(ip)) => {
            let header = ip.header();
            let later = header.fragments_offset().value() > 0;
            let (src, dst) = (
                IpAddr::V4(header.source_addr()),
                IpAddr::V4(header.destination_addr()),
            );
            (src, dst, ip.payload(), later, header.protocol().0)
        }
        Some(LaxNetSlice::Ipv6(ip)) => {
            let header = ip.header();
            let later = found.flags & FlowKey::LATER_FRAGMENT != 0;
            let (src, dst) = (
                IpAddr::V6(header.source_addr()),
                IpAddr::V6(header.destination_addr()),
            );
            (src, dst, ip.payload(), later, header.next_header().0)
        }
        _ => unreachable!("seen above"),
    };
    assert_eq!(
        (found.source(), found.destination()),
        (Some(src), Some(dst)),
        "{}",
        show()
    );
    assert_eq!((found.family, found.reserved), (version, 0), "{}", show());
    if let Some((SliceError::Ipv6Exts(HeaderError::HopByHopNotAtStart), _)) = theirs.stop_err {
        return Verdict::Intended("hop-by-hop options are walked wherever they are");
    }
    assert_eq!(
        found.flags & FlowKey::LATER_FRAGMENT != 0,
        later,
        "{}",
        show()
    );
    assert!(!later || payload.fragmented, "{}", show());
    let theirs_proto = payload.ip_number.0;
    if later {
        assert_eq!(
            (found.ports(), found.sport, found.dport),
            (None, 0, 0),
            "{}",
            show()
        );
        if version == 4 {
            assert_eq!(found.proto, first_proto, "{}", show());
            return Verdict::Same;
        }
        // etherparse walks on as if the following bytes were headers.
        if [0, 43, 44, 51, 60].contains(&found.proto) {
            return Verdict::Intended("the rest of a later fragment is no header");
        }
        assert_eq!(found.proto, theirs_proto, "{}", show());
        return Verdict::Same;
    }
    if version == 4 && first_proto == 51 && theirs_proto == 51 {
        return Verdict::Intended("authentication headers are walked, however many");
    }
    if found.proto != theirs_proto && [0, 43, 44, 51, 60].contains(&found.proto) {
        let headers = match &theirs.net {
            Some(LaxNetSlice::Ipv6(ip)) => ip.extensions().clone().into_iter().count(),
            _ => 0,
        };
        assert!(headers >= 16, "{}", show());
        return Verdict::Intended("more than sixteen extension headers");
    }
    assert_eq!(found.proto, theirs_proto, "{}", show());
    let ports = match payload.payload {
        [a, b, c, d, ..] if [6, 17, 33, 132, 136].contains(&theirs_proto) => {
            Some((u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d])))
        }
        _ => None,
    };
    assert_eq!(found.ports(), ports, "{}", show());
    assert_eq!(
        (found.sport, found.dport),
        ports.unwrap_or((0, 0)),
        "{}",
        show()
    );
    Verdict::Same
}

/// etherparse found no IP. Then the parser finds none either, unless IP is behind a header that etherparse does not know.
fn without_ip(data: &[u8], found: Result<FlowKey, NoKey>, theirs: &LaxSlicedPacket<'_>) -> Verdict {
    if found.is_err() {
        return Verdict::Same;
    }
    let unknown = theirs.ether_payload().map(|payload| payload.ether_type.0);
    match unknown {
        Some(0x8847 | 0x8848) => Verdict::Intended("MPLS"),
        Some(0x8864) => Verdict::Intended("PPPoE"),
        Some(0x8903) => Verdict::Intended("FabricPath"),
        Some(0..=0x05ff) => Verdict::Intended("802.2 SNAP"),
        Some(0x8100 | 0x88a8 | 0x9100) if theirs.link_exts.is_full() => {
            Verdict::Intended("more than three tags")
        }
        _ => panic!("{found:?} of {data:02x?}, etherparse: {theirs:?}"),
    }
}

/// Checks the properties of every key, whatever the link type.
pub fn properties(link: LinkType, data: &[u8], cut: usize) {
    let [outer, inner] =
        [false, true].map(|inner| Parser::new(link, inner).expect("a link type with keys"));
    let (key, inside) = (outer.key(data), inner.key(data));
    assert_eq!(
        key.is_err(),
        inside.is_err(),
        "a packet inside never takes the key away"
    );
    if let (Err(why), Err(why_inside)) = (key, inside) {
        assert_eq!(why, why_inside);
    }
    if let Ok(key) = key {
        well_formed(&key);
        hashes(&key);
    }
    if let Ok(key) = inside {
        well_formed(&key);
    }
    for (parser, key) in [(outer, key), (inner, inside)] {
        let (hasher, mut into) = (Hasher::new(2), FlowKey::NONE);
        let hash = parser.key_and_hash(data, &hasher, &mut into);
        assert_eq!(hash, key.map(|key| hasher.plain(&key)));
        assert!(hash.is_err() || Ok(into) == key, "{into:?}, {key:?}");
        if let Some((usual, is_for_group)) = parser
            .usual()
            .and_then(|usual| usual.key_and_hash(data, &hasher, &mut into))
        {
            assert_eq!((Ok(usual), Ok(into)), (hash, key));
            assert_eq!(is_for_group, parser.group(data) != Group::One);
        }
    }
    let shorter = &data[..cut.min(data.len())];
    fewer_bytes(key, outer.key(shorter));
    if let Ok(key) = inner.key(shorter) {
        well_formed(&key);
        assert!(inside.is_ok(), "bytes added took the key away");
    }
    same_behind_cooked(link, data, key);
}

fn well_formed(key: &FlowKey) {
    assert!(key.family == 4 || key.family == 6, "{key:?}");
    assert!(
        key.family == 6 || (key.src[4..] == [0; 12] && key.dst[4..] == [0; 12]),
        "{key:?}"
    );
    assert_eq!(key.reserved, 0);
    assert!(
        [0, FlowKey::HAS_PORTS, FlowKey::LATER_FRAGMENT].contains(&key.flags),
        "{key:?}"
    );
    assert!(
        key.ports().is_some() || (key.sport, key.dport) == (0, 0),
        "{key:?}"
    );
}

fn hashes(key: &FlowKey) {
    let hasher = Hasher::new(1);
    let (there, back) = (hasher.flow(key), hasher.flow(&key.turned()));
    assert_eq!(there.symmetric, back.symmetric);
    assert_eq!(there.symmetric, hasher.plain(&key.canonical()));
    assert_eq!(there.directed != back.directed, *key != key.turned());
}

/// Checks the key of a cut frame: the same key, the key as far as it was captured, or none because bytes are missing.
pub fn fewer_bytes(whole: Result<FlowKey, NoKey>, cut: Result<FlowKey, NoKey>) {
    match (whole, cut) {
        (_, Err(NoKey::Truncated)) => {}
        (Err(whole), Err(cut)) => assert_eq!(whole, cut),
        // An IPv4 header without all its options.
        (Ok(whole), Err(NoKey::Malformed)) => assert_eq!(whole.family, 4),
        (Ok(whole), Ok(cut)) if cut.ports().is_some() => assert_eq!(whole, cut),
        (Ok(whole), Ok(cut)) => {
            assert_eq!(
                (whole.src, whole.dst, whole.family),
                (cut.src, cut.dst, cut.family)
            );
            // If the chain of extension headers is cut, the protocol is that of the last header read.
            let chain = [0, 43, 44, 51, 60];
            assert!(
                whole.proto == cut.proto || chain.contains(&cut.proto),
                "{whole:?} {cut:?}"
            );
        }
        _ => panic!("{whole:?} of all, {cut:?} of fewer bytes"),
    }
}

/// Compares the fast path with the walk: the same packet in a cooked capture, which has no fast path.
fn same_behind_cooked(link: LinkType, data: &[u8], key: Result<FlowKey, NoKey>) {
    if link != LinkType::ETHERNET || data.len() < 14 || data[12] < 6 {
        return;
    }
    let cooked = [&[0, 0, 0, 1, 0, 6, 0, 0, 0, 0, 0, 0, 0, 0], &data[12..]].concat();
    assert_eq!(
        key,
        Parser::new(LinkType::LINUX_SLL, false)
            .expect("it has keys")
            .key(&cooked)
    );
}
