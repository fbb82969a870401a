//! True answers found another way: a slow reader, another parser, a hash map.

use crate::by_etherparse::lax;
use anyhow::{Context, ensure};
use serde_json::Value;
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufReader, Read};
use std::net::IpAddr;
use std::path::Path;
use weir_packet::flow::FlowKey;

/// Share of the packets that makes a flow heavy.
pub const HEAVY: f64 = 1e-4;

/// Packets and bytes of a flow.
pub type Counts = [u64; 2];

/// Contents of a capture file.
#[derive(Debug, Default)]
pub struct Truth {
    /// Packets and bytes of each flow.
    pub flows: HashMap<FlowKey, Counts>,
    /// Number of packets, with or without a flow key.
    pub packets: u64,
}

impl Truth {
    /// Reads a little-endian pcap file of Ethernet frames, record by record.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let mut reader = BufReader::with_capacity(1 << 20, File::open(path)?);
        let mut header = [0; 24];
        reader.read_exact(&mut header)?;
        ensure!(
            header[..4] == [0xd4, 0xc3, 0xb2, 0xa1],
            "{} is not a file of this bench",
            path.display()
        );
        let (mut truth, mut record, mut frame) = (Self::default(), [0; 16], Vec::new());
        while reader.read_exact(&mut record).is_ok() {
            let word = |at: usize| {
                u32::from_le_bytes([record[at], record[at + 1], record[at + 2], record[at + 3]])
            };
            frame.resize(word(8) as usize, 0);
            reader
                .read_exact(&mut frame)
                .context("a record that is cut off")?;
            truth.packets += 1;
            if let Some(key) = lax(&frame) {
                let counts = truth.flows.entry(key).or_default();
                counts[0] += 1;
                counts[1] += u64::from(word(12));
            }
        }
        Ok(truth)
    }

    /// The `n` largest counts of flows, by packets (0) or bytes (1).
    fn largest(&self, by: usize, n: usize) -> Vec<u64> {
        let mut all: Vec<u64> = self.flows.values().map(|counts| counts[by]).collect();
        all.sort_unstable_by(|a, b| b.cmp(a));
        all.truncate(n);
        all
    }
}

/// Result of comparing an answer of `weir measure --json` with the truth.
#[derive(Clone, Debug)]
pub struct Judged {
    /// Rows of the table.
    pub rows: usize,
    /// Rows whose true count is outside a bound that always holds, or above the upper bound of Count-Min.
    pub broken: usize,
    /// Rows of Count-Min whose true count is below the lower bound, which may happen to few rows.
    pub below: usize,
    /// Confidence of the lower bounds of Count-Min.
    pub confidence: f64,
    /// Whether the hundred largest counts are the true ones, in order, each with its flow.
    pub top_identical: bool,
    /// Harmonic mean of precision and recall of the heavy flows.
    pub f1: f64,
    /// First error in the answer.
    pub fault: Option<String>,
}

/// Compares an answer with the truth by packets (0) or bytes (1).
pub fn judge(answer: &Value, truth: &Truth, by: usize) -> anyhow::Result<Judged> {
    let rows = answer["top"].as_array().context("a table")?;
    let all: u64 = truth.flows.values().map(|counts| counts[by]).sum();
    let threshold = (all as f64 * HEAVY).ceil() as u64;
    let mut judged = Judged {
        rows: rows.len(),
        broken: 0,
        below: 0,
        confidence: 1.0,
        top_identical: true,
        f1: 0.0,
        fault: None,
    };
    if answer["passed"].as_u64() != Some(truth.packets) {
        judged.fault = Some(format!(
            "{} packets measured of {}",
            answer["passed"], truth.packets
        ));
    }
    let heavy = truth
        .flows
        .values()
        .filter(|counts| counts[by] >= threshold)
        .count();
    let largest = truth.largest(by, 100);
    let (mut called, mut right) = (0, 0);
    for (place, row) in rows.iter().enumerate() {
        let key = key_of(row).with_context(|| format!("no flow: {row}"))?;
        let real = truth.flows.get(&key).map_or(0, |counts| counts[by]);
        let bound = &row["bound"];
        let number = |name: &str| {
            bound[name]
                .as_u64()
                .with_context(|| format!("{name} of {row}"))
        };
        let (lower, upper) = (number("lower")?, number("upper")?);
        let probable = bound["kind"] == "probabilistic";
        judged.broken += usize::from(real > upper || real < lower && !probable);
        judged.below += usize::from(real < lower && probable);
        if let Some(confidence) = bound["confidence"].as_f64() {
            judged.confidence = confidence;
        }
        let shown = row[["packets", "bytes"][by]].as_u64().context("a figure")?;
        judged.top_identical &=
            place >= 100 || (shown == real && largest.get(place) == Some(&real));
        called += usize::from(shown >= threshold);
        right += usize::from(shown >= threshold && real >= threshold);
    }
    judged.top_identical &= rows.len() >= largest.len();
    judged.f1 = 2.0 * right as f64 / (called + heavy).max(1) as f64;
    if heavy == 0 {
        judged.fault = judged.fault.or(Some("no flow is heavy".to_owned()));
    }
    if judged.broken > 0 {
        judged.fault = judged
            .fault
            .or(Some(format!("{} bounds do not hold", judged.broken)));
    }
    // Six standard deviations above the number that the confidence allows.
    let allowed = (1.0 - judged.confidence) * judged.rows as f64;
    if judged.below as f64 > allowed + 6.0 * allowed.sqrt() {
        judged.fault = judged.fault.or(Some(format!(
            "{} of {} bounds do not hold",
            judged.below, judged.rows
        )));
    }
    Ok(judged)
}

/// Flow key of a row.
fn key_of(row: &Value) -> Option<FlowKey> {
    let mut key = FlowKey::NONE;
    for (field, place) in [("src", &mut key.src), ("dst", &mut key.dst)] {
        match row[field].as_str()?.parse().ok()? {
            IpAddr::V4(address) => {
                key.family = 4;
                place[..4].copy_from_slice(&address.octets());
            }
            IpAddr::V6(address) => {
                key.family = 6;
                *place = address.octets();
            }
        }
    }
    key.proto = match row["proto"].as_str()? {
        "icmp" => 1,
        "tcp" => 6,
        "udp" => 17,
        "icmp6" => 58,
        number => number.parse().ok()?,
    };
    if let (Some(sport), Some(dport)) = (row["sport"].as_u64(), row["dport"].as_u64()) {
        (key.sport, key.dport) = (sport.try_into().ok()?, dport.try_into().ok()?);
        key.flags = FlowKey::HAS_PORTS;
    }
    if row["fragment"] == true {
        key.flags = FlowKey::LATER_FRAGMENT;
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn row(src: &str, packets: u64, lower: u64, upper: u64, kind: &str) -> Value {
        json!({ "src": src, "dst": "10.0.0.9", "sport": 1, "dport": 2, "proto": "tcp", "packets": packets,
                "bytes": 60 * packets, "bound": { "kind": kind, "lower": lower, "upper": upper } })
    }

    fn truth() -> Truth {
        let rows = [("10.0.0.1", 70u64), ("10.0.0.2", 30)];
        let flows = rows.map(|(src, packets)| {
            (
                key_of(&row(src, 0, 0, 0, "")).expect("a key"),
                [packets, 60 * packets],
            )
        });
        Truth {
            flows: flows.into(),
            packets: 100,
        }
    }

    #[test]
    fn right_and_wrong_answers_are_told_apart() {
        let judge = |first: Value, second: Value| {
            judge(
                &json!({ "passed": 100, "top": [first, second] }),
                &truth(),
                0,
            )
            .expect("an answer")
        };
        let exact = |src, packets| row(src, packets, packets, packets, "exact");
        let good = judge(exact("10.0.0.1", 70), exact("10.0.0.2", 30));
        assert!(
            good.fault.is_none() && good.top_identical && good.f1 == 1.0,
            "{good:?}"
        );
        let swapped = judge(exact("10.0.0.2", 30), exact("10.0.0.1", 70));
        assert!(swapped.fault.is_none() && !swapped.top_identical);
        let low = judge(
            row("10.0.0.1", 69, 69, 70, "deterministic"),
            exact("10.0.0.2", 30),
        );
        assert!(low.fault.is_none() && !low.top_identical && low.f1 == 1.0);
        let wrong = judge(
            row("10.0.0.1", 69, 68, 69, "deterministic"),
            exact("10.0.0.2", 30),
        );
        assert!(wrong.broken == 1 && wrong.fault.is_some());
        let stranger = judge(exact("10.0.0.3", 70), exact("10.0.0.2", 30));
        assert!(stranger.broken == 1 && stranger.f1 == 0.5, "{stranger:?}");
        let below = judge(
            row("10.0.0.1", 80, 75, 90, "probabilistic"),
            exact("10.0.0.2", 30),
        );
        assert!(below.below == 1 && below.broken == 0);
    }

    #[test]
    fn the_slow_reader_counts_what_is_there() {
        let path =
            std::env::temp_dir().join(format!("weir-bench-truth-{}.pcap", std::process::id()));
        let mut bytes = vec![0xd4, 0xc3, 0xb2, 0xa1];
        bytes.resize(24, 0);
        let mut frame = vec![2; 12];
        frame.extend([
            8, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 9, 0, 1, 0, 2,
        ]);
        frame.extend([0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0, 0, 0, 0, 0, 0, 0]);
        for wire_len in [60u32, 1000] {
            bytes.extend([0; 8]);
            bytes.extend((frame.len() as u32).to_le_bytes());
            bytes.extend(wire_len.to_le_bytes());
            bytes.extend(&frame);
        }
        std::fs::write(&path, bytes).expect("a temporary file can be written");
        let truth = Truth::read(&path).expect("it is whole");
        std::fs::remove_file(&path).expect("it is there");
        let key = key_of(&row("10.0.0.1", 0, 0, 0, "")).expect("a key");
        assert_eq!(
            (truth.packets, truth.flows.len(), truth.flows.get(&key)),
            (2, 1, Some(&[2, 1060]))
        );
    }
}
