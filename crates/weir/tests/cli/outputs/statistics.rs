//! Interface statistics of a source, in its copy.

use super::*;

/// An interface statistics block with these options, for interface 0.
fn statistics(counts: &[(u16, u64)]) -> Vec<u8> {
    statistics_of(0, counts)
}

/// An interface statistics block with these options, for interface `id`.
fn statistics_of(id: u32, counts: &[(u16, u64)]) -> Vec<u8> {
    let ticks = 1_700_000_009_000_000u64;
    let mut body: Vec<u8> = [id, (ticks >> 32) as u32, ticks as u32]
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect();
    for (code, count) in counts {
        body.extend([code.to_le_bytes(), 8u16.to_le_bytes()].concat());
        body.extend(count.to_le_bytes());
    }
    body.extend([0; 4]);
    block(5, &body)
}

#[test]
fn what_a_source_says_of_its_losses_is_in_the_copy() {
    let temp = Temp::new();
    let packets: Vec<u8> = (1..=5)
        .flat_map(|i| pcapng_packet(i, &udp(i as u16, 4)))
        .collect();
    let early = statistics(&[(4, 2), (5, 1), (7, 1), (8, 2)]);
    let last = statistics(&[(4, 100), (5, 20), (7, 75), (8, 5)]);
    let bytes = [pcapng_start(1), early, packets.clone(), last.clone()].concat();
    let file = temp.file("in.pcapng", &bytes);
    let (copy, split) = (temp.at("copy.pcapng"), temp.at("split.pcapng"));
    let split_option = format!("{split}=udp dst port 3");
    let holds = |path: &str, block: &[u8]| {
        let copy = fs::read(path).unwrap();
        let kinds = copy
            .windows(8)
            .filter(|words| words[..4] == 5u32.to_le_bytes() && words[4..] == block[4..8])
            .count();
        kinds == 1 && copy.ends_with(block)
    };
    for more in [&[][..], &["--merge"], &["--workers", "3"], &["-C", "100M"]] {
        weir(
            [
                &[
                    "filter",
                    "udp",
                    &file,
                    "-w",
                    &copy,
                    "--split",
                    &split_option,
                ],
                more,
            ]
            .concat(),
        )
        .ok();
        assert!(holds(&copy, &last) && holds(&split, &last), "{more:?}");
        assert_eq!((records(&copy).len(), records(&split).len()), (5, 1));
    }
    let piped = weir_fed(["filter", "", "-", "-w", "-"], &bytes).ok().out;
    assert!(piped.ends_with(&last));
    // Both sources have the same interface, so that the copy has the sum of both losses. The same holds for several
    // sections of a file.
    let twice = statistics(&[(4, 200), (5, 40), (7, 150), (8, 10)]);
    for sources in [
        vec![&file, &file],
        vec![&temp.file("sections.pcapng", &bytes.repeat(2))],
    ] {
        for more in [&[][..], &["--merge"]] {
            let sources: Vec<&str> = sources.iter().map(|source| source.as_str()).collect();
            weir([&["filter", "", "-w", &copy], &sources[..], more].concat()).ok();
            assert!(holds(&copy, &twice), "{sources:?} {more:?}");
        }
    }
    let about: serde_json::Value =
        serde_json::from_slice(&weir(["info", "--json", &copy]).ok().out).unwrap();
    assert_eq!(about["interfaces"][0]["dropped"], 190);
    // A source without statistics gives a copy without them. A copy without packets still has the statistics.
    let none = temp.file("none.pcapng", &[pcapng_start(1), packets].concat());
    weir(["filter", "", &none, "-w", &copy]).ok();
    assert!(!holds(&copy, &last) && !holds(&copy, &twice));
    weir(["filter", "tcp", &file, "-w", &copy]).ok();
    assert!(holds(&copy, &last) && records(&copy).is_empty());
    if have(
        "what_a_source_says_of_its_losses_is_in_the_copy",
        &["capinfos"],
    ) {
        let entries = |path: &str| {
            let text = tool("capinfos", ["-I", path]).ok().text();
            text.lines()
                .find(|line| line.contains("Number of stat entries"))
                .map(str::to_owned)
        };
        assert!(entries(&copy).is_some_and(|line| line.ends_with(" = 1")));
    }
}

#[test]
fn losses_of_interfaces_that_are_alike_add_up() {
    let temp = Temp::new();
    let start = pcapng_start(1);
    let interface = &start[start.len() - 20..];
    let blocks = [
        &start[..],
        interface,
        &pcapng_packet(1, &udp(1, 4)),
        &statistics_of(0, &[(7, 5)]),
    ];
    let file = temp.file(
        "alike.pcapng",
        &[&blocks.concat()[..], &statistics_of(1, &[(7, 7)])].concat(),
    );
    let copy = temp.at("copy.pcapng");
    weir(["filter", "", &file, "-w", &copy]).ok();
    for path in [&file, &copy] {
        let about: serde_json::Value =
            serde_json::from_slice(&weir(["info", "--json", path]).ok().out).unwrap();
        let dropped = about["interfaces"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|one| one["dropped"].as_u64());
        assert_eq!(dropped.sum::<u64>(), 12, "{path}: {about}");
    }
}
