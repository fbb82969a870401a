//! Flow keys of frames made by hand, complete and cut at any length.

mod flow_support;
mod line_support;

use flow_support::{cases, oracle};
use line_support::build::{cat, ether, hex, ip4, ip6, udp};
use weir_packet::flow::{Around, InnerLink, Keep, MOST_VXLAN_PORTS, Parser, Tunnels, headers_len};
use weir_packet::{Frame, LinkType};

#[test]
fn every_header_and_tunnel_has_its_key() {
    for case in cases::all() {
        for (inner, expected) in [(false, case.outer), (true, case.inner)] {
            let parser = Parser::new(case.link, inner).expect("the case's link type has keys");
            assert_eq!(
                parser.key(&case.data),
                expected,
                "{}, inner {inner}",
                case.name
            );
        }
        // The comparison with etherparse checks its own part, on the same frames.
        oracle::compare(case.link, &case.data);
    }
}

#[test]
fn frames_cut_anywhere_have_the_key_so_far_or_none() {
    for case in cases::all() {
        println!("{}", case.name);
        let [outer, inner] =
            [false, true].map(|inner| Parser::new(case.link, inner).expect("it has keys"));
        let mut keys_inside = Vec::new();
        for cut in 0..=case.data.len() {
            oracle::properties(case.link, &case.data, cut);
            oracle::compare(case.link, &case.data[..cut]);
            let data = &case.data[..cut];
            oracle::fewer_bytes(case.outer, outer.key(data));
            headers_alone(case.link, data, &outer);
            keys_inside.push(inner.key(data).ok());
        }
        // With more captured bytes, the key only moves inwards. The last key of all is that of the whole frame.
        assert_eq!(keys_inside.last(), Some(&case.inner.ok()));
        let steps = keys_inside
            .windows(2)
            .filter(|pair| pair[0].is_some() && pair[1].is_none())
            .count();
        assert_eq!(steps, 0, "{}", case.name);
    }
}

/// The headers of a frame have its key, and no byte of its payload.
fn headers_alone(link: LinkType, data: &[u8], parser: &Parser) {
    let len = headers_len(link, data);
    let offsets = parser.offsets(data);
    match usize::try_from(offsets.payload) {
        Ok(payload) => assert_eq!(len, payload),
        Err(_) => assert!(len <= data.len()),
    }
    if offsets.transport >= 0 {
        assert_eq!(parser.key(&data[..len]), parser.key(data));
    }
}

/// The innermost packet alone has the same key, and nothing between its headers.
#[test]
fn the_innermost_packet_is_the_one_that_has_the_key() {
    let mut entered = 0;
    for case in cases::all() {
        let [outer, inner] =
            [false, true].map(|inner| Parser::new(case.link, inner).expect("it has keys"));
        let nothing = outer.reframed(&case.data, Keep::default());
        assert!(nothing.is_none(), "{}: nobody looks inside", case.name);
        oracle::reframed(case.link, &case.data);
        if inner.reframed(&case.data, Keep::default()).is_some() {
            entered += 1;
        } else {
            assert_eq!(case.inner, case.outer, "{}", case.name);
        }
    }
    assert!(entered > 50, "{entered}");
}

/// Tags, and what an expression about them is told.
#[test]
fn headers_that_are_left_out_are_named() {
    let [tagged, twice, labelled, pppoe] = [
        "8100 0064 0800",
        "88a8 0064 8100 0001 86dd",
        "8847 00010040 00020140",
        "8864 1100 0001 0000 0021",
    ];
    let expected = |tags, labels, pppoe| Around {
        tags,
        labels,
        pppoe,
        ..Around::default()
    };
    let (four, six) = (ip4(17, &udp(4)), ip6(17, &udp(4)));
    let macs = hex("00005e005302 00005e005301");
    for (head, packet, around) in [
        (tagged, &four, expected(1, 0, false)),
        (twice, &six, expected(2, 0, false)),
        (labelled, &four, expected(0, 2, false)),
        (pppoe, &four, expected(0, 0, true)),
    ] {
        let frame = cat(&[&macs, &hex(head), packet]);
        let parser = Parser::new(LinkType::ETHERNET, true).expect("it has keys");
        let bare = parser
            .reframed(&frame, Keep::default())
            .expect("there is something around");
        let kind = if packet[0] >> 4 == 4 { "0800" } else { "86dd" };
        assert_eq!(
            bare.pieces().concat(),
            cat(&[&macs, &hex(kind), packet]),
            "{head}"
        );
        assert_eq!((bare.link, bare.around), (InnerLink::Own, around), "{head}");
        let whole = Frame {
            data: &frame,
            wire_len: frame.len() as u32 + 100,
            interface: 0,
        };
        assert_eq!(bare.wire_len(&whole), 14 + packet.len() as u32 + 100);
        let keep = Keep {
            tags: true,
            extensions: false,
        };
        assert!(parser.reframed(&frame, keep).is_none(), "{head}");
    }
}

/// Frames without IP lose their tags too.
#[test]
fn a_tagged_frame_without_ip_is_itself_without_tags() {
    let arp = ether(0x0806, &[7; 28]);
    let tagged = cat(&[&arp[..12], &hex("88a8 0001 8100 0002"), &arp[12..]]);
    let cooked = |kind: &str, tags: &str| {
        cat(&[
            &hex("0000 0001 0006 00005e005301 0000"),
            &hex(kind),
            &hex(tags),
            &[7; 28],
        ])
    };
    let cooked2 = |kind: &str, tags: &str| {
        cat(&[
            &hex(kind),
            &hex("0000 00000003 0001 04 06 00005e005301 0000"),
            &hex(tags),
            &[7; 28],
        ])
    };
    for (link, frame, expected) in [
        (LinkType::ETHERNET, tagged, arp),
        (
            LinkType::LINUX_SLL,
            cooked("8100", "0001 0806"),
            cooked("0806", ""),
        ),
        (
            LinkType::LINUX_SLL2,
            cooked2("8100", "0001 0806"),
            cooked2("0806", ""),
        ),
    ] {
        let parser = Parser::new(link, true).expect("it has keys");
        let bare = parser
            .reframed(&frame, Keep::default())
            .expect("it has tags");
        assert_eq!(bare.pieces().concat(), expected, "{link:?}");
    }
}

/// A later fragment keeps the header that says so; a first one has its ports in their place.
#[test]
fn headers_before_the_transport_are_left_out() {
    let options = hex("2c 00 01 04 00000000");
    let fragment = |offset: &str| cat(&[&hex("11 00"), &hex(offset), &hex("00000001")]);
    for (offset, expected) in [
        ("0001", ip6(17, &udp(4))),
        ("0009", ip6(44, &cat(&[&fragment("0009"), &udp(4)]))),
    ] {
        let packet = ip6(0, &cat(&[&options, &fragment(offset), &udp(4)]));
        let parser = Parser::new(LinkType::RAW, true).expect("it has keys");
        let bare = parser
            .reframed(&packet, Keep::default())
            .expect("it has extension headers");
        assert_eq!(bare.pieces().concat(), expected, "{offset}");
        assert!(bare.around.extensions && !bare.around.tunnel);
    }
}

/// Other ports carry VXLAN if that is said, and the identifier of the network comes with the headers.
#[test]
fn vxlan_on_other_ports() {
    let case = cases::all()
        .into_iter()
        .find(|case| case.name == "VXLAN")
        .expect("there is such a case");
    let mut data = case.data.clone();
    data[36..38].copy_from_slice(&5000u16.to_be_bytes());
    let plain = Parser::new(case.link, true).expect("it has keys");
    assert_ne!(plain.key(&data), case.inner);
    let tunnels = Tunnels::with_vxlan(&[7, 5000]).expect("two ports");
    let told = Parser::inside(case.link, Some(tunnels)).expect("it has keys");
    for (parser, data) in [(told, &data), (told, &case.data), (plain, &case.data)] {
        assert_eq!(parser.key(data), case.inner);
        let headers = parser.headers(data).expect("it has a key");
        assert_eq!(headers.vni, Some(1));
    }
    assert_eq!(Tunnels::with_vxlan(&[0]), None);
    assert_eq!(Tunnels::with_vxlan(&[1; MOST_VXLAN_PORTS + 1]), None);
}
