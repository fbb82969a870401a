//! Flow keys of frames made by hand, complete and cut at any length.

mod flow_support;
mod line_support;

use flow_support::{cases, oracle};
use weir_packet::LinkType;
use weir_packet::flow::{FlowKey, NoKey, Parser};

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

/// The bytes inside a tunnel make a frame with the same key.
#[test]
fn the_innermost_packet_is_the_one_that_has_the_key() {
    let mut entered = 0;
    for case in cases::all() {
        let [outer, inner] =
            [false, true].map(|inner| Parser::new(case.link, inner).expect("it has keys"));
        assert_eq!(
            outer.innermost(&case.data),
            None,
            "{}: nobody looks into tunnels",
            case.name
        );
        match inner.innermost(&case.data) {
            None => assert_eq!(case.inner, case.outer, "{}", case.name),
            Some((link, data)) => {
                entered += 1;
                let alone =
                    Parser::new(link, false).expect("what is inside has a link type with keys");
                assert_eq!(alone.key(data), case.inner, "{}", case.name);
                assert!(
                    data.len() < case.data.len()
                        && case.data.as_ptr_range().contains(&data.as_ptr())
                );
            }
        }
    }
    assert!(entered > 20, "{entered}");
}

/// One field at a time, at its offset in RFC 791, RFC 8200 and RFC 768.
#[test]
fn every_field_is_read_where_it_is() {
    let frame = line_support::build::hex(
        "00005e005302 00005e005301 0800
         45 00 0020 0001 4000 40 11 0000 01020304 05060708
         090a 0b0c 000c 0000 00000000",
    );
    let key = Parser::new(LinkType::ETHERNET, false)
        .expect("it has keys")
        .key(&frame)
        .expect("a key");
    assert_eq!(
        (key.src[..4].to_vec(), key.dst[..4].to_vec()),
        (vec![1, 2, 3, 4], vec![5, 6, 7, 8])
    );
    assert_eq!(
        (key.sport, key.dport, key.proto, key.family),
        (0x090a, 0x0b0c, 17, 4)
    );
    assert_eq!(
        (key.flags, key.ports()),
        (FlowKey::HAS_PORTS, Some((0x090a, 0x0b0c)))
    );
    let address = |last| {
        std::net::IpAddr::from(if last == 4 {
            [1, 2, 3, 4]
        } else {
            [5, 6, 7, 8]
        })
    };
    assert_eq!(
        (key.source(), key.destination()),
        (Some(address(4)), Some(address(8)))
    );
}

#[test]
fn steps_are_bounded() {
    let parser = Parser::new(LinkType::ETHERNET, true).expect("it has keys");
    let mut tags = line_support::build::hex("00005e005302 00005e005301");
    (0..10_000).for_each(|_| tags.extend([0x81, 0, 0, 1]));
    assert_eq!(parser.key(&tags), Err(NoKey::Malformed));
    let labels = line_support::build::ether(0x8847, &[0; 40_000]);
    assert_eq!(parser.key(&labels), Err(NoKey::Malformed));
    let key = |parser: &Parser, head: &[u8], shims: &[u8], last: &[u8]| {
        let datagram = line_support::build::ip4(17, &line_support::build::udp(4));
        parser.key(&[head, shims, last, &datagram].concat())
    };
    let addresses = &tags[..12];
    let [ethernet, mpls] =
        [LinkType::ETHERNET, LinkType::MPLS].map(|link| Parser::new(link, false).expect("keys"));
    for shims in [0, 1, 2, 29, 30, 31, 32, 33] {
        let expected = if shims <= 32 {
            Ok(cases::ports(cases::four(17), 5300, 40_000))
        } else {
            Err(NoKey::Malformed)
        };
        let tagged = key(
            &ethernet,
            addresses,
            &[0x81, 0, 0, 1].repeat(shims),
            &[8, 0],
        );
        assert_eq!(tagged, expected, "{shims} tags");
        let Some(more) = shims.checked_sub(1) else {
            continue;
        };
        let labels = [&[0, 0, 0x10, 64].repeat(more)[..], &[0, 0, 0x11, 64]].concat();
        assert_eq!(
            key(
                &ethernet,
                &[addresses, &[0x88, 0x47]].concat(),
                &labels,
                &[]
            ),
            expected,
            "{shims} labels"
        );
        assert_eq!(
            key(&mpls, &[], &labels, &[]),
            expected,
            "{shims} labels and no link header"
        );
    }
    // Sixteen extension headers are walked; the number of the seventeenth is the protocol.
    let chain = |headers: usize| {
        let mut payload = [60u8, 0, 0, 0, 0, 0, 0, 0].repeat(headers - 1);
        payload.extend([17, 0, 0, 0, 0, 0, 0, 0]);
        payload.extend(line_support::build::udp(4));
        parser.key(&line_support::build::ether(
            0x86dd,
            &line_support::build::ip6(60, &payload),
        ))
    };
    assert_eq!(chain(16), Ok(cases::ports(cases::six(17), 5300, 40_000)));
    assert_eq!(chain(17), Ok(cases::six(60)));
}

#[test]
fn other_link_types_have_no_keys() {
    for link in [8, 147, 247, 9999] {
        assert!(
            Parser::new(LinkType(link), false).is_none(),
            "link type {link}"
        );
    }
}
