use super::super::testing::{at, blocks, packets, read, small, sparse};
use super::super::{Reader, Recorder, Settings};
use super::*;
use crate::disk::testing::Faulty;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use weir_filter::Filter;
use weir_packet::Frame;
use weir_packet::savefile::walk::{Cursor, Visit, walk};
use weir_packet::savefile::{Interface, Layout, Record, Resolution, Stop};
use weir_testkit::{Random, Scratch, captures};

/// A packet with its link type and its length on the wire.
#[derive(Clone, Debug, PartialEq)]
struct Sample {
    link: LinkType,
    data: Vec<u8>,
    wire_len: u32,
}

impl Sample {
    fn matches(&self, filters: &HashMap<LinkType, Option<Filter>>) -> bool {
        let frame = Frame {
            data: &self.data,
            wire_len: self.wire_len,
            interface: 0,
        };
        filters[&self.link]
            .as_ref()
            .is_some_and(|filter| filter.matches(&[frame]) == 1)
    }
}

struct Collect<'a>(&'a Layout, &'a mut Vec<Sample>);

impl Visit for Collect<'_> {
    fn frames(&mut self, _: usize, _: &[u32], frames: &[Frame<'_>]) -> bool {
        self.1.extend(frames.iter().map(|frame| Sample {
            link: self.0.interfaces[frame.interface as usize].link,
            data: frame.data.to_vec(),
            wire_len: frame.wire_len,
        }));
        true
    }
}

/// The packets of a capture, as far as it can be read.
fn samples(path: &Path) -> Vec<Sample> {
    let bytes = fs::read(path).unwrap();
    let mut found = Vec::new();
    let Ok((mut layout, mut at)) = Layout::read(&bytes, true) else {
        return found;
    };
    loop {
        let mut cursor = [Cursor::new(at, bytes.len())];
        walk(
            &layout,
            &bytes,
            true,
            &mut cursor,
            &mut Collect(&layout, &mut found),
        );
        let [
            Cursor {
                pos,
                stop: Some(Stop::Layout),
                ..
            },
        ] = cursor
        else {
            return found;
        };
        let Ok(next) = layout.apply(&bytes, pos, true) else {
            return found;
        };
        at = next;
    }
}

/// The packets of the segments of a directory that are in blocks that may match.
fn selected(dir: &Path, expression: &str) -> (Vec<Sample>, u64) {
    let selection = Selection {
        expression: expression.to_owned(),
        ..Selection::default()
    };
    let mut reader = Reader::open(dir, selection, None).unwrap();
    let mut bytes = Vec::new();
    while let Some(more) = reader.next_bytes().unwrap() {
        bytes.extend_from_slice(more);
    }
    let (mut links, mut found) = (Vec::new(), Vec::new());
    for (kind, body) in blocks(&bytes) {
        let word = |at: usize| u32::from_le_bytes(body[at..at + 4].try_into().unwrap());
        match kind {
            1 => links.push(LinkType(word(0) as u16)),
            6 => found.push(Sample {
                link: links[word(0) as usize],
                data: body[20..20 + word(12) as usize].to_vec(),
                wire_len: word(16),
            }),
            _ => {}
        }
    }
    (found, reader.counts().blocks)
}

/// Records samples, few in each block.
fn record(dir: &Path, samples: &[Sample], block_bytes: usize) {
    let settings = Settings {
        block_bytes,
        ..small()
    };
    let (mut recorder, _) =
        Recorder::open(Arc::new(Faulty::new(0, 0)), dir, settings, at(0)).unwrap();
    for (
        number,
        Sample {
            link,
            data,
            wire_len,
        },
    ) in samples.iter().enumerate()
    {
        let id = recorder.interface(&Interface::plain(*link, 0, Resolution::NANOSECOND));
        let frame = Frame {
            data,
            wire_len: *wire_len,
            interface: 0,
        };
        recorder
            .packet(
                id,
                number as u64,
                &Record {
                    time_ns: Some(number as i64),
                    frame,
                    options: Default::default(),
                },
            )
            .unwrap();
    }
    recorder.close().unwrap();
}

/// Expects that the filter finds the same packets in the selected blocks as in all; returns the number of blocks read.
fn finds_all(dir: &Path, samples: &[Sample], expression: &str) -> u64 {
    let mut filters = HashMap::new();
    for sample in samples {
        filters
            .entry(sample.link)
            .or_insert_with(|| Filter::compile(expression, sample.link, false).ok());
    }
    let expected = samples.iter().filter(|sample| sample.matches(&filters));
    let (found, read) = selected(dir, expression);
    let found = found.iter().filter(|sample| sample.matches(&filters));
    assert!(expected.eq(found), "{expression}");
    read
}

#[test]
fn selected_blocks_hold_every_packet_of_a_capture_that_matches() {
    const EXPRESSIONS: &str = include_str!("../../../../filter/tests/expressions.txt");
    let mut all = Vec::new();
    for path in captures("selected_blocks_hold_every_packet_of_a_capture_that_matches") {
        all.extend(samples(&path).into_iter().take(400 / sparse(8)));
    }
    let scratch = Scratch::new();
    record(scratch.path(), &all, 1);
    let accepted = EXPRESSIONS
        .split("\n[accepted]\n")
        .nth(1)
        .unwrap()
        .split("\n[refused]\n")
        .next()
        .unwrap();
    let expressions: Vec<_> = accepted
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect();
    assert!(expressions.len() > 250);
    let mut skipping = 0;
    for expression in expressions {
        skipping += u64::from(finds_all(scratch.path(), &all, expression) < all.len() as u64);
    }
    assert!(
        all.is_empty() || skipping > 100,
        "{skipping} expressions leave out blocks"
    );
}

/// Frames of few addresses, ports and tags; some are cut, some are damaged.
fn random_frame(random: &mut Random) -> Vec<u8> {
    let mut frame = vec![2; 12];
    let half = |frame: &mut Vec<u8>, value: u16| frame.extend_from_slice(&value.to_be_bytes());
    for _ in 0..[0, 0, 0, 1, 1, 2, 3, 4, 5][random.below(9)] {
        half(
            &mut frame,
            [0x8100, 0x8100, 0x88a8, 0x9100][random.below(4)],
        );
        half(&mut frame, random.below(8) as u16 | 0xe000);
    }
    let port = |random: &mut Random| [53, 80, 443, 1000, 1001, 6081, 40000][random.below(7)] as u16;
    let v4 = |random: &mut Random| [10, [0, 1][random.below(2)], 0, random.below(6) as u8];
    match random.below(10) {
        0 => {
            half(&mut frame, [0x0806, 0x8035][random.below(2)]);
            frame.extend([0, 1, 8, 0, 6, 4, 0, 1, 2, 2, 2, 2, 2, 2]);
            frame.extend(v4(random));
            frame.extend([3; 6]);
            frame.extend(v4(random));
        }
        1..4 => {
            half(&mut frame, 0x86dd);
            frame.extend([
                0x60,
                0,
                0,
                0,
                0,
                20,
                [6, 17, 132, 58, 0, 44][random.below(6)],
                64,
            ]);
            for _ in 0..2 {
                frame.extend([0x20, 1, 0xd, 0xb8, 0, random.below(2) as u8, 0, 0]);
                frame.extend([0, 0, 0, 0, 0, 0, 0, random.below(4) as u8]);
            }
            half(&mut frame, port(random));
            half(&mut frame, port(random));
        }
        4 => {
            half(&mut frame, [0x8847, 0x8864, 0x0800, 40][random.below(4)]);
            frame.extend(random.bytes(40));
        }
        _ => {
            half(&mut frame, 0x0800);
            let options = random.below(3);
            frame.push(
                [0x45 + options as u8, random.next() as u8][usize::from(random.below(9) == 0)],
            );
            frame.extend([0, 0, 60, 0, 0]);
            half(&mut frame, [0, 0, 0, 0x4000, 0x2000, 100][random.below(6)]);
            frame.extend([64, [6, 17, 132, 1, 47][random.below(5)], 0, 0]);
            frame.extend(v4(random));
            frame.extend(v4(random));
            frame.extend(vec![0; options * 4]);
            half(&mut frame, port(random));
            half(&mut frame, port(random));
        }
    }
    frame.extend(random.bytes(20));
    if random.below(6) == 0 {
        frame.truncate(random.below(frame.len()));
    }
    frame
}

fn random_expression(random: &mut Random, depth: usize) -> String {
    let side = ["", "src ", "dst ", "src and dst ", "src or dst "][random.below(5)];
    let n = random.below(6);
    if depth > 0 && random.below(3) > 0 {
        let [a, b] = [0, 1].map(|_| random_expression(random, depth - 1));
        return match random.below(6) {
            0 | 1 => format!("({a}) and ({b})"),
            2 => format!("({a}) or ({b})"),
            3 => format!("not ({a})"),
            4 => format!("{a} and {b}"),
            _ => format!("{a} or not {b}"),
        };
    }
    match random.below(16) {
        0 | 1 => format!("{side}host 10.{}.0.{n}", random.below(2)),
        2 => format!(
            "{side}net 10.{}.0.0/{}",
            random.below(2),
            [16, 24][random.below(2)]
        ),
        3 => format!("{side}port {}", [53, 80, 6081, 7][random.below(4)]),
        4 => format!(
            "{side}portrange {}-{}",
            [50, 1000][random.below(2)],
            [60, 1001, 9000][random.below(3)]
        )
        .replace("1000-60", "1-60"),
        5 => format!(
            "{side}host 2001:db8:0:{}::{}",
            random.below(2),
            random.below(4)
        ),
        6 => format!(
            "{side}net 2001:db8:0:{}::/{}",
            random.below(2),
            [64, 127][random.below(2)]
        ),
        7 => [
            "tcp", "udp", "sctp", "icmp", "icmp6", "arp", "rarp", "ip", "ip6",
        ][random.below(9)]
        .to_owned(),
        8 => "vlan".to_owned(),
        9 => format!("vlan {n}"),
        10 => ["mpls", "pppoes", "geneve"][random.below(3)].to_owned(),
        11 => format!("ip[8] > {}", [5, 64][random.below(2)]),
        12 => format!("ip proto {}", [6, 17, 47][random.below(3)]),
        13 => format!(
            "ether proto {}",
            [0x800, 0x806, 0x86dd, 0x8100, 0x8847][random.below(5)]
        ),
        14 => format!("udp dst port {}", [53, 1000][random.below(2)]),
        _ => format!("ip[16:4] = 0x0a00000{n}"),
    }
}

#[test]
fn selected_blocks_hold_every_random_packet_that_matches() {
    let mut random = Random(20);
    let mut all = Vec::new();
    for number in 0..1000 {
        let data = random_frame(&mut random);
        let (link, data) = match number % 10 {
            // The same packets behind the headers of Linux cooked captures.
            0 if data.len() > 12 => (LinkType::LINUX_SLL, [&[0; 14], &data[12..]].concat()),
            1 if data.len() > 14 => (
                LinkType::LINUX_SLL2,
                [&data[12..14], &[0; 18], &data[14..]].concat(),
            ),
            _ => (LinkType::ETHERNET, data),
        };
        all.push(Sample {
            link,
            wire_len: data.len() as u32,
            data,
        });
    }
    let scratch = Scratch::new();
    record(scratch.path(), &all, 1);
    let (mut read, mut tried) = (0, 0);
    let rounds = 700 / sparse(5);
    for _ in 0..rounds {
        let expression = random_expression(&mut random, 3);
        // A shift may make an expression one that libpcap refuses.
        if libpcap::compile(&expression, LinkType::ETHERNET, false).is_ok() {
            read += finds_all(scratch.path(), &all, &expression);
            tried += 1;
        }
    }
    assert!(tried > rounds as u64 / 2, "{tried}");
    assert!(
        read < tried * all.len() as u64 * 3 / 4,
        "{read} of {}",
        tried * all.len() as u64
    );
}

#[test]
fn a_query_for_a_host_reads_the_blocks_of_the_host_alone() {
    let scratch = Scratch::new();
    let packets = packets(5000, 30);
    let all: Vec<_> = packets
        .iter()
        .map(|(_, data)| Sample {
            link: LinkType::ETHERNET,
            data: data.clone(),
            wire_len: data.len() as u32,
        })
        .collect();
    record(scratch.path(), &all, 1);
    let count =
        |test: &dyn Fn(&[u8]) -> bool| packets.iter().filter(|(_, data)| test(data)).count() as u64;
    let host = |data: &[u8]| data[30..34] == [10, 1, 7, 9] || data[26..30] == [10, 1, 7, 9];
    for (expression, expected) in [
        ("host 10.1.7.9", count(&host)),
        ("udp port 53 and host 10.1.7.9", count(&host)),
        (
            "src host 10.0.0.3 and (port 1003 or port 1004)",
            count(&|data| data[29] == 3 && matches!(data[35], 0xeb | 0xec) && data[34] == 3),
        ),
        ("dst net 10.1.7.0/24", count(&|data| data[32] == 7)),
        ("tcp", 0),
        ("ip6 or arp", 0),
        ("host 10.9.9.9", 0),
        (
            "src portrange 1003-1004",
            count(&|data| matches!(data[35], 0xeb | 0xec) && data[34] == 3),
        ),
        ("not host 10.1.7.9", 5000),
        ("greater 1", 5000),
    ] {
        assert_eq!(
            finds_all(scratch.path(), &all, expression),
            expected,
            "{expression}"
        );
    }
}

#[test]
fn long_expressions_find_all() {
    let scratch = Scratch::new();
    let packets = packets(1000, 32);
    let sample = |data: &Vec<u8>| Sample {
        link: LinkType::ETHERNET,
        data: data.clone(),
        wire_len: data.len() as u32,
    };
    let all: Vec<_> = packets.iter().map(|(_, data)| sample(data)).collect();
    record(scratch.path(), &all, 1);
    for count in [10, 100] {
        let hosts: Vec<_> = (0..count)
            .map(|n| format!("host 10.1.{}.{}", n / 250 + 3, n % 250))
            .collect();
        finds_all(scratch.path(), &all, &hosts.join(" or "));
        let nets: Vec<_> = (0..count)
            .map(|n| format!("src net 2001:db8:{n:x}::/48"))
            .collect();
        finds_all(scratch.path(), &all, &nets.join(" or "));
    }
}

#[test]
fn a_range_of_time_is_exact_to_the_packet() {
    let scratch = Scratch::new();
    let packets = packets(2000, 31);
    let (mut recorder, _) = super::super::testing::recorder(scratch.path(), small());
    super::super::testing::write(&mut recorder, &packets, 0);
    recorder.close().unwrap();
    let mut random = Random(1);
    for _ in 0..100 {
        let [a, b] = [0, 0].map(|_: u8| random.below(packets.len()));
        let (from, to) = (a.min(b), a.max(b));
        let range = Selection {
            from_ns: Some(packets[from].0),
            to_ns: Some(packets[to].0),
            ..Selection::default()
        };
        let (found, counts) = read(scratch.path(), range, None);
        assert!(found == packets[from..=to]);
        assert!(counts.packets < counts.passed + 100, "{counts:?}");
    }
}
