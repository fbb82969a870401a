//! Rule lists as DPDK's classifiers judge them: `rte_acl` for rules, `rte_lpm` for a set of prefixes.

use super::lists::{Answer, FRAME, Rival};
use anyhow::{Context, bail};
use weir_dpdk::bench::classify::{Acl, AclRule, Count, Key, Lpm};
use weir_firewall::Verdict;
use weir_firewall::rules::{Action, Rule, RuleList};

/// Memory of the tables up to which `rte_acl` trades it for speed, bytes: it was fastest so.
const MOST_BYTES: usize = 256 << 20;

/// Sum of the frames of each verdict, dropped ones first.
type Sums = [Count; 2];

/// `rte_acl`, once for keys and once for frames, where it reads the fields itself.
pub struct ByAcl {
    of_keys: Acl,
    of_frames: Acl,
    keys: Vec<Key>,
    results: Vec<u32>,
    passes: Vec<bool>,
    counts: Vec<Count>,
}

impl ByAcl {
    /// Builds both contexts, and the keys of the frames.
    pub fn new(list: &RuleList, bytes: &[u8]) -> anyhow::Result<Self> {
        let rules: Vec<AclRule> = list.rules.iter().map(rule).collect::<anyhow::Result<_>>()?;
        let verdicts = list
            .rules
            .iter()
            .map(|rule| rule.action == Action::Decide(Verdict::Pass));
        let passes: Vec<bool> = [list.default == Verdict::Pass]
            .into_iter()
            .chain(verdicts)
            .collect();
        let keys: Vec<Key> = bytes.chunks_exact(FRAME).map(key).collect();
        Ok(Self {
            of_keys: Acl::new(&rules, false, MOST_BYTES)?,
            of_frames: Acl::new(&rules, true, MOST_BYTES)?,
            results: vec![0; keys.len()],
            keys,
            counts: vec![Count::default(); passes.len()],
            passes,
        })
    }
}

impl Rival for ByAcl {
    fn name(&self) -> &'static str {
        "rte_acl"
    }

    fn verdicts(&mut self, frames: usize) -> Vec<Verdict> {
        self.rules_alone(32);
        let verdict = |&result: &u32| {
            if self.passes[result as usize] {
                Verdict::Pass
            } else {
                Verdict::Drop
            }
        };
        self.results[..frames].iter().map(verdict).collect()
    }

    fn rules_alone(&mut self, batch: usize) {
        self.of_keys.keys(&self.keys, batch, &mut self.results);
    }

    fn judge(&mut self, bytes: &[u8], batch: usize) -> Answer {
        self.counts.fill(Count::default());
        let mut all = Sums::default();
        let others = self.of_frames.frames(
            (bytes, FRAME),
            batch,
            &self.passes,
            &mut self.counts,
            &mut all,
        );
        assert_eq!(others, 0, "all frames are plain");
        Answer {
            denied: all[0].packets,
            by_rule: self.counts[1..].iter().map(|count| count.packets).collect(),
        }
    }
}

/// A rule of prefixes, one protocol and one range of ports at each end.
fn rule(rule: &Rule) -> anyhow::Result<AclRule> {
    let prefix = |set: &Option<std::sync::Arc<weir_firewall::Addresses>>| match set
        .as_ref()
        .map(|set| set.v4())
    {
        None => Ok((0, 0)),
        Some([(first, last)]) => Ok((*first, (first ^ last).leading_zeros() as u8)),
        Some(_) => bail!("rte_acl takes one prefix: {}", rule.text),
    };
    let ports = |ranges: &Option<Vec<(u16, u16)>>| match ranges.as_deref() {
        None => Ok([0, u16::MAX]),
        Some([(first, last)]) => Ok([*first, *last]),
        Some(_) => bail!("rte_acl takes one range: {}", rule.text),
    };
    let proto = rule
        .proto
        .and_then(|set| (0..=255u8).find(|&n| set[usize::from(n / 64)] >> (n % 64) & 1 == 1));
    let ((src, src_bits), (dst, dst_bits)) = (prefix(&rule.src)?, prefix(&rule.dst)?);
    let proto = proto.with_context(|| format!("rules name a protocol: {}", rule.text))?;
    let (sport, dport) = (ports(&rule.sport)?, ports(&rule.dport)?);
    Ok(AclRule {
        src,
        dst,
        src_bits,
        dst_bits,
        proto,
        unused: 0,
        sport,
        dport,
    })
}

fn key(frame: &[u8]) -> Key {
    let four = |at: usize| [frame[at], frame[at + 1], frame[at + 2], frame[at + 3]];
    Key {
        proto: frame[23],
        unused: [0; 3],
        src: four(26),
        dst: four(30),
        ports: four(34),
    }
}

/// `rte_lpm`, with the protocol checked after it.
pub struct ByLpm {
    table: Lpm,
    sources: Vec<u32>,
    bytes: Vec<u8>,
}

impl ByLpm {
    /// Builds the table of these prefixes and their lengths.
    pub fn new(prefixes: &[(u32, u32)], bytes: &[u8]) -> anyhow::Result<Self> {
        let (networks, bits): (Vec<u32>, Vec<u8>) = prefixes
            .iter()
            .map(|&(one, bits)| (one, bits as u8))
            .unzip();
        let longer: std::collections::HashSet<u32> = prefixes
            .iter()
            .filter(|(_, bits)| *bits > 24)
            .map(|(one, _)| one >> 8)
            .collect();
        let table = Lpm::new(&networks, &bits, longer.len() + 1)?;
        let source =
            |frame: &[u8]| u32::from_be_bytes([frame[26], frame[27], frame[28], frame[29]]);
        Ok(Self {
            table,
            sources: bytes.chunks_exact(FRAME).map(source).collect(),
            bytes: bytes.to_vec(),
        })
    }
}

impl Rival for ByLpm {
    fn name(&self) -> &'static str {
        "rte_lpm"
    }

    fn verdicts(&mut self, frames: usize) -> Vec<Verdict> {
        let verdict = |frame: &[u8]| {
            let mut all = Sums::default();
            self.table.frames((frame, FRAME), 1, &mut all);
            if all[1].packets == 1 {
                Verdict::Pass
            } else {
                Verdict::Drop
            }
        };
        self.bytes
            .chunks_exact(FRAME)
            .take(frames)
            .map(verdict)
            .collect()
    }

    fn rules_alone(&mut self, batch: usize) {
        std::hint::black_box(self.table.addresses(&self.sources, batch));
    }

    fn judge(&mut self, bytes: &[u8], batch: usize) -> Answer {
        let mut all = Sums::default();
        let others = self.table.frames((bytes, FRAME), batch, &mut all);
        assert_eq!(others, 0, "all frames are plain");
        Answer {
            denied: all[0].packets,
            by_rule: vec![all[0].packets],
        }
    }
}
