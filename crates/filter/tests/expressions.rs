//! The language, expression by expression: interpreter and native code give libpcap's verdict on every packet, and
//! expressions are refused for the stated reason.

mod bodies;
mod support;

use std::collections::HashSet;

use support::Sample;
use weir_filter::program::{PACKET_TYPE, SNAPLEN};
use weir_filter::{Filter, MAX_BATCH, Names, Native, libpcap};
use weir_packet::{Frame, LinkType};

/// Link types that the expressions test, beside those of the captures (<https://www.tcpdump.org/linktypes.html>).
const LINKS: [u16; 24] = [
    0, 1, 6, 8, 9, 10, 50, 51, 100, 101, 104, 105, 107, 108, 113, 117, 119, 123, 127, 139, 140,
    228, 229, 276,
];

fn section(name: &str) -> impl Iterator<Item = &'static str> {
    let text = include_str!("expressions.txt");
    let heading = format!("\n{name}\n");
    let start = text.find(&heading).expect("the section exists") + heading.len();
    let rest = &text[start..];
    let end = rest.find("\n[").unwrap_or(rest.len());
    rest[..end]
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// Compares all engines on the packets of one link type, and with the program that libpcap made before it was simplified.
fn compare(expression: &str, link: LinkType, program: &weir_filter::Program, frames: &[Frame<'_>]) {
    let unoptimized =
        libpcap::compile_unoptimised(expression, link).expect("the simplified one exists");
    for frame in frames {
        let expected = libpcap::bpf_filter(&unoptimized, frame.data, frame.wire_len);
        let got = libpcap::bpf_filter(program, frame.data, frame.wire_len);
        assert_eq!(
            got, expected,
            "{expression:?} for link type {}, {frame:02x?}",
            link.0
        );
    }
    let native = Native::compile(program).expect("this machine has native code");
    for batch in frames.chunks(MAX_BATCH) {
        let agreed = std::panic::catch_unwind(|| bodies::agree(program, &native, batch));
        assert!(agreed.is_ok(), "{expression:?} for link type {}", link.0);
    }
}

/// Every packet complete, made-up ones, and the first and every hundredth captured one cut to many lengths.
fn frames<'a>(link: LinkType, captured: &'a [Sample], made_up: &'a [Vec<u8>]) -> Vec<Frame<'a>> {
    let own: Vec<_> = captured
        .iter()
        .filter(|sample| sample.link == link)
        .map(Sample::frame)
        .collect();
    let cut_from = own
        .iter()
        .enumerate()
        .filter(|(index, _)| *index < 24 || index % 100 == 0)
        .map(|(_, frame)| *frame);
    let cut = cut_from.flat_map(|frame| {
        (0..frame.data.len().min(120)).map(move |len| Frame {
            data: &frame.data[..len],
            ..frame
        })
    });
    let made_up = made_up.iter().zip(0u32..).map(|(data, number)| Frame {
        data,
        wire_len: number * 7 % 1600,
        interface: 0,
    });
    own.iter().copied().chain(cut).chain(made_up).collect()
}

/// Every `step`th accepted expression, from `first` on.
fn agree(first: usize, step: usize) {
    let captured = support::captured();
    let made_up = support::made_up(2000);
    let mut links: Vec<u16> = captured
        .iter()
        .map(|sample| sample.link.0)
        .chain(LINKS)
        .collect();
    links.sort_unstable();
    links.dedup();
    let samples: Vec<_> = links
        .iter()
        .map(|&link| (LinkType(link), frames(LinkType(link), &captured, &made_up)))
        .collect();
    let mut seen = HashSet::new();
    let mut nowhere = Vec::new();
    for expression in section("[accepted]").skip(first).step_by(step) {
        let mut compiled = 0;
        for (link, frames) in &samples {
            let Ok(program) = libpcap::compile(expression, *link, false) else {
                continue;
            };
            compiled += 1;
            let known = format!("{link:?} {:?}", program.insns());
            if seen.insert(known) {
                // The made-up packets are Ethernet frames; for other links, a few hundred of them are enough as noise.
                let few = if *link == LinkType::ETHERNET {
                    frames.len()
                } else {
                    frames.len() - 1700
                };
                compare(expression, *link, &program, &frames[..few]);
            }
        }
        if compiled == 0 {
            nowhere.push(expression);
        }
    }
    assert!(nowhere.is_empty(), "compile for no link type: {nowhere:#?}");
}

#[test]
fn engines_agree_on_even_expressions() {
    agree(0, 2);
}

#[test]
fn engines_agree_on_odd_expressions() {
    agree(1, 2);
}

#[test]
fn the_language_is_covered() {
    assert!(
        section("[accepted]").count() >= 160,
        "{} expressions",
        section("[accepted]").count()
    );
}

#[test]
fn refusals_name_their_reason() {
    let wrong: Vec<_> = section("[refused]")
        .filter_map(|line| {
            let (expression, reason) = line.split_once(" => ").expect("a refusal has a reason");
            match Filter::compile(expression, LinkType::ETHERNET, false) {
                Ok(_) => Some(format!("{expression:?} was accepted")),
                Err(error) if error.to_string().contains(reason) => None,
                Err(error) => Some(format!(
                    "{expression:?}: {error:?} says nothing of {reason:?}"
                )),
            }
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn nul_and_overlong_expressions_are_refused() {
    let refused = |expression: &str| {
        Filter::compile(expression, LinkType::ETHERNET, false)
            .unwrap_err()
            .to_string()
    };
    assert!(refused("ip\0 or tcp").contains("NUL byte at offset 2"));
    assert!(refused(&"not ".repeat(100_000)).contains("at most"));
}

#[test]
fn an_empty_expression_matches_everything() {
    for expression in ["", " ", "\t\n"] {
        let filter =
            Filter::compile(expression, LinkType::ETHERNET, false).expect("empty is valid");
        let frame = Frame {
            data: &[],
            wire_len: 0,
            interface: 0,
        };
        assert_eq!(filter.matches(&[frame; 3]), 0b111);
        filter.make_native();
        assert_eq!(filter.matches(&[frame; 64]), u64::MAX);
        assert_eq!(filter.program().insns().len(), 1);
    }
}

/// The program that `tcpdump -d -i eth0 inbound` shows: ldh [type], jeq #4, ret.
#[test]
fn live_programs_ask_the_kernel_for_the_way() {
    use weir_packet::savefile::Direction::{In, Out};
    let program = libpcap::compile_live("inbound", LinkType::ETHERNET, &Names::default()).unwrap();
    let listed: Vec<_> = program
        .insns()
        .iter()
        .map(|insn| (insn.code, insn.jt, insn.jf, insn.k))
        .collect();
    assert_eq!(
        listed,
        [
            (0x28, 0, 0, PACKET_TYPE),
            (0x15, 0, 1, 4),
            (0x06, 0, 0, 0),
            (0x06, 0, 0, SNAPLEN)
        ]
    );
    assert_eq!(PACKET_TYPE, 0xffff_f004);
    let verdict = |expression: &str, link, direction| {
        let program = libpcap::compile_live(expression, link, &Names::default()).unwrap();
        let filter = Filter::from_program(program.of_direction(direction));
        let frame = Frame {
            data: &[0; 64],
            wire_len: 64,
            interface: 0,
        };
        let interpreted = filter.matches(&[frame]);
        filter.make_native();
        assert_eq!(filter.matches(&[frame]), interpreted);
        interpreted == 1
    };
    for link in [LinkType::ETHERNET, LinkType::RAW] {
        for (expression, way, expected) in [
            ("inbound", In, true),
            ("inbound", Out, false),
            ("outbound", In, false),
            ("outbound", Out, true),
            ("outbound or less 64", In, true),
        ] {
            assert_eq!(
                verdict(expression, link, way),
                expected,
                "{expression} {way:?}"
            );
        }
    }
    // If a file allows the expression too, the program reads the packet alone.
    for expression in ["udp port 53", "vlan 7", "ip6"] {
        let [live, file] = [libpcap::compile_live, libpcap::compile_with]
            .map(|compile| compile(expression, LinkType::ETHERNET, &Names::default()).unwrap());
        assert_eq!(live, file, "{expression}");
    }
}

/// The messages of `tcpdump -i lo`, which differ from those of `tcpdump -r` if `inbound` comes first.
#[test]
fn live_expressions_are_refused_in_the_words_for_live_captures() {
    for expression in ["udp prot", "inbound and udp prot", "outbound and"] {
        let refused = libpcap::compile_live(expression, LinkType::ETHERNET, &Names::default())
            .unwrap_err()
            .to_string();
        assert!(refused.contains("syntax error"), "{expression}: {refused}");
    }
}

/// `tcpdump -d -i lo 'ifindex 1'` shows a load of the interface's index, which is not in the packet.
#[test]
fn live_expressions_that_only_the_kernel_could_answer_are_refused() {
    for link in [LinkType::ETHERNET, LinkType::RAW] {
        for expression in [
            "ifindex 1",
            "not ifindex 1",
            "inbound and ifindex 7",
            "udp or ifindex 2",
        ] {
            let refused = libpcap::compile_live(expression, link, &Names::default()).unwrap_err();
            assert_eq!(refused, weir_filter::Error::Ancillary, "{expression}");
            assert!(refused.to_string().contains("ifindex"), "{refused}");
        }
    }
    // In the frames of all interfaces, the index is a field of the link header.
    let any = LinkType::LINUX_SLL2;
    assert_eq!(
        libpcap::compile_live("ifindex 1", any, &Names::default()),
        libpcap::compile("ifindex 1", any, false)
    );
}
