//! Lower limit of a measurement: the walk over the records, flow key, hash and one `heavy` table, by themselves.

use crate::clock::{Samples, range, time};
use crate::inputs::Input;
use crate::report::Report;
use crate::rivals::{Rival, median, once};
use anyhow::{Context, ensure};
use std::fs;
use weir_memory::Request;
use weir_packet::flow::{FlowKey, Hasher, Parser};
use weir_packet::savefile::Layout;
use weir_packet::savefile::walk::{Cursor, Visit, walk};
use weir_packet::{Frame, LinkType};
use weir_sketch::{Heavy, Item, Weigh};

/// Required limit on `weir measure` as a multiple of these parts, and the desired limit.
const MUST: f64 = 1.4;
const GOAL: f64 = 1.1;

/// The parts, run one after the other on each run of frames.
struct Parts {
    parser: Parser,
    hasher: Hasher,
    heavy: Heavy<FlowKey>,
    items: Vec<Item<FlowKey>>,
    packets: u64,
}

impl Visit for Parts {
    fn frames(&mut self, _: usize, _: &[u32], frames: &[Frame<'_>]) -> bool {
        let Self {
            parser,
            hasher,
            heavy,
            items,
            packets,
        } = self;
        items.clear();
        let usual = parser.usual();
        for frame in frames {
            let mut item = Item {
                hash: 0,
                bytes: frame.wire_len,
                key: FlowKey::NONE,
            };
            let hash =
                usual.and_then(|usual| usual.key_and_hash(frame.data, hasher, &mut item.key));
            let hash = hash.map(|(hash, _)| hash);
            let hash = hash.or_else(|| parser.key_and_hash(frame.data, hasher, &mut item.key).ok());
            if let Some(hash) = hash {
                item.hash = hash;
                items.push(item);
            }
        }
        heavy.update(items);
        *packets += frames.len() as u64;
        true
    }
}

/// Compares `weir measure` of a file with its parts on the same bytes, in turn within each round. `memory` is the size of
/// the table in bytes.
pub fn run(
    weir: &Rival,
    memory: usize,
    input: &Input,
    rounds: usize,
    report: &mut Report,
) -> anyhow::Result<()> {
    report.heading("Walk, flow key, hash and heavy by themselves, and the whole");
    let bytes = fs::read(&input.path)?;
    let (layout, begin) = Layout::read(&bytes, true)
        .ok()
        .context("the file has no header")?;
    let (mut parts, mut whole) = (Samples::default(), Vec::new());
    for round in 0..=rounds {
        let heavy = Heavy::new(memory, Weigh::Packets, 1, &Request::default())?;
        let parser = Parser::new(LinkType::ETHERNET, false).context("Ethernet has flow keys")?;
        let mut all = Parts {
            parser,
            hasher: Hasher::new(1),
            heavy,
            items: Vec::new(),
            packets: 0,
        };
        let mut cursor = [Cursor::new(begin, bytes.len())];
        let ((), elapsed) = time(|| walk(&layout, &bytes, true, &mut cursor, &mut all));
        ensure!(
            all.packets == input.packets,
            "the walk found {} packets",
            all.packets
        );
        let (cost, answer) = once(weir)?;
        ensure!(
            answer == Some(input.packets),
            "{} measured {answer:?} packets",
            weir.name
        );
        // The first round warms up.
        if round == 0 {
            continue;
        }
        parts.add(elapsed, input.packets as usize);
        whole.push(cost.cpu.as_secs_f64() * 1e9 / input.packets as f64);
        for (what, ns) in [
            ("parts", parts.cpu[round - 1]),
            ("weir measure", whole[round - 1]),
        ] {
            report.raw(&[
                "parts",
                &input.title,
                what,
                &round.to_string(),
                "cpu",
                &format!("{ns:.3}"),
                "ns",
            ]);
        }
    }
    let ratios: Vec<f64> = whole
        .iter()
        .zip(&parts.cpu)
        .map(|(whole, parts)| whole / parts)
        .collect();
    let row = |name: &str, values: &[f64]| {
        let (low, high) = range(values);
        vec![
            name.to_owned(),
            format!("{:.1} ns", median(values.iter().copied())),
            format!("{low:.1} - {high:.1}"),
        ]
    };
    let rows = [
        row("walk, key, hash and heavy, in memory", &parts.cpu),
        row(&weir.name, &whole),
    ];
    report.table(&["what", "cpu a packet", "min - max"], &rows);
    let (ratio, (low, high)) = (median(ratios.iter().copied()), range(&ratios));
    let found = format!("{ratio:.2}x ({low:.2} - {high:.2})");
    let what = "measure, heavy, one worker, 60-byte frames, against its parts";
    report.bar(
        what,
        &format!("{MUST}x (goal {GOAL}x)"),
        &found,
        ratio <= MUST,
    );
    Ok(())
}
