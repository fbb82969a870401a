//! Descriptions of interfaces and of statistics: filters, options, comments.

use super::*;

/// An interface description block with these options, padded, in one byte order.
fn described(big: bool, options: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let mut body = bytes(big, &[H(1), H(0), W(96)]);
    for (code, value) in options {
        body.extend(bytes(big, &[H(*code), H(value.len() as u16), B(value)]));
        body.resize(body.len().next_multiple_of(4), 0);
    }
    body.extend([0; 4]);
    let total = body.len() as u32 + 12;
    bytes(big, &[W(1), W(total), B(&body), W(total)])
}

#[test]
fn filters_and_options_of_interfaces_are_read_in_both_orders_and_written_in_one() {
    let number = |big: bool, value: u64| {
        if big {
            value.to_be_bytes().to_vec()
        } else {
            value.to_le_bytes().to_vec()
        }
    };
    let given = |big: bool| {
        vec![
            (9, vec![9]),
            (11, b"\0tcp port 443".to_vec()),
            (4, vec![10, 0, 0, 1, 255, 255, 255, 0]),
            (6, vec![2, 0, 0, 0, 0, 1]),
            (8, number(big, 0x0102_0304_0506_0708)),
            (12, b"Linux".to_vec()),
            (13, vec![4]),
            (15, b"card".to_vec()),
            (16, number(big, 3)),
        ]
    };
    for big in [false, true] {
        let section = bytes(
            big,
            &[
                W(0x0a0d_0d0a),
                W(28),
                W(0x1a2b_3c4d),
                H(1),
                H(0),
                D(u64::MAX),
                W(28),
            ],
        );
        // One that must not be copied, and, in big-endian order, one that nobody else can turn round.
        let more = [
            (19_373, b"\0\0\0\x01mine".to_vec()),
            (4000, vec![1, 2, 3, 4]),
        ];
        let options = [&given(big)[..], &more].concat();
        let (_, layout, fault) = read(&[section, described(big, &options)].concat());
        let layout = layout.unwrap();
        assert_eq!(fault, None);
        let interface = &layout.interfaces[0];
        assert_eq!(interface.filter.as_deref(), Some("tcp port 443"));
        assert_eq!(
            layout.blocks_left_out.interface_options,
            if big { 2 } else { 1 }
        );
        assert_eq!(
            interface.holds_only(true),
            ["tcp port 443", "96 bytes of each packet"]
        );
        let texts: Vec<_> = interface
            .options
            .iter()
            .filter_map(|option| option.text())
            .collect();
        assert_eq!(
            texts,
            [("os", "Linux".to_owned()), ("hardware", "card".to_owned())]
        );
        let speeds: Vec<_> = interface
            .options
            .iter()
            .filter_map(|option| option.speed())
            .collect();
        assert_eq!(speeds, [0x0102_0304_0506_0708]);
        let mut encoder = Encoder::new(Format::Pcapng, 0);
        encoder.interface(interface).unwrap();
        let mut out = Vec::new();
        encoder.begin(&mut out);
        let kept = if big { &more[..0] } else { &more[1..] };
        let expected = described(false, &[&given(false)[..], kept].concat());
        assert_eq!(
            out[out.len() - expected.len()..],
            expected,
            "big-endian: {big}"
        );
    }
    // A filter of another kind than an expression stays as it is.
    let section = bytes(
        false,
        &[
            W(0x0a0d_0d0a),
            W(28),
            W(0x1a2b_3c4d),
            H(1),
            H(0),
            D(u64::MAX),
            W(28),
        ],
    );
    let program = (11, vec![1, 6, 0, 0, 0, 0, 0, 4, 0]);
    let layout = read(&[section, described(false, &[program])].concat())
        .1
        .unwrap();
    assert_eq!(
        (
            &layout.interfaces[0].filter,
            layout.interfaces[0].options[0].program()
        ),
        (&None, Some(8))
    );
}

#[test]
fn comments_of_statistics_are_read() {
    for big in [false, true] {
        let section = bytes(
            big,
            &[
                W(0x0a0d_0d0a),
                W(28),
                W(0x1a2b_3c4d),
                H(1),
                H(0),
                D(u64::MAX),
                W(28),
            ],
        );
        let interface = described(big, &[]);
        let statistics = bytes(
            big,
            &[
                W(5),
                W(44),
                W(0),
                W(0),
                W(7),
                H(1),
                H(5),
                B(b"lost!\0\0\0"),
                H(1),
                H(2),
                B(b"hi\0\0"),
                W(44),
            ],
        );
        let file = [section, interface, statistics].concat();
        let layout = read(&file).1.unwrap();
        let at = file.len() - 44;
        assert_eq!(layout.statistics_comments(&file, at), ["lost!", "hi"]);
        assert_eq!(
            layout
                .interface_stats(&file, at)
                .map(|stats| stats.counts.time_ns),
            Some(7000)
        );
        assert_eq!(layout.statistics_comments(&file, 28), [""; 0]);
    }
}
