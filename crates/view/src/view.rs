//! The view: takes windows, keeps steps, hands out snapshots.

use crate::findings::{self, Findings};
use crate::packed;
use crate::past_health::{self, PastHealth};
use crate::seen::Sightings;
use crate::snapshot::{self, Ask, Snapshot};
use crate::step::Step;
use crate::tier::{Span, Tier};
use std::sync::Arc;
use weir_measure::{Counts, KeyKind, Weigh, Window, health};
use weir_packet::addresses::Addresses;

/// Limits of a view.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Most rows of a table.
    pub rows: usize,
    /// Most kinds of key. A measurement may change its keys; the tables of further kinds are left out.
    pub kinds: usize,
    /// Networks whose new hosts are findings; `None`: private and link-local networks.
    pub local: Option<Arc<Addresses>>,
}

impl Default for Settings {
    /// 200 rows, 8 kinds.
    fn default() -> Self {
        Self {
            rows: 200,
            kinds: 8,
            local: None,
        }
    }
}

/// Recent windows of a measurement.
///
/// **Threads**: one owner, which adds and asks. **Cost** of a window: its largest rows, some hundred ns each; nothing for a packet.
#[derive(Debug)]
pub struct View {
    settings: Settings,
    tiers: [Tier; 3],
    /// Kinds of key of the last window with packets, and the keys seen of each.
    kinds: Vec<((KeyKind, Weigh), Sightings)>,
    /// Number of times that the clock went back, and the begins of the first and the last window since.
    era: u64,
    begins: Option<(i64, i64)>,
    /// Latest end of a window since.
    end_ns: Option<i64>,
    /// Windows so far.
    windows: u64,
    /// Packets of windows without a time.
    untimed: Counts,
    health: Option<health::Report>,
    past_health: PastHealth,
    findings: Findings,
}

impl View {
    /// Creates an empty view.
    pub fn new(settings: Settings) -> Self {
        let limits = (settings.rows, settings.kinds);
        Self {
            findings: Findings::new(settings.local.clone()),
            tiers: Span::ALL.map(|span| Tier::new(span, limits)),
            settings,
            kinds: Vec::new(),
            era: 0,
            begins: None,
            end_ns: None,
            windows: 0,
            untimed: Counts::default(),
            health: None,
            past_health: PastHealth::default(),
        }
    }

    /// Adds a window. Windows are added in the order of their delivery. Further results of a window
    /// ([`Window::revision`]) are added to its step while the step is kept. A sum over all windows is left out.
    pub fn add(&mut self, window: &Window<'_>) {
        let Some(span) = window.span else {
            return;
        };
        if span.0 == weir_measure::Observation::NO_TIME {
            let tally = window.state.map(weir_measure::State::tally);
            self.untimed.packets += tally.map_or(0, |tally| tally.passed);
            self.untimed.bytes += tally.map_or(0, |tally| tally.bytes);
            return;
        }
        self.findings.add(window);
        self.note_kinds(window);
        let era = self.era;
        self.note_time(span.0);
        // Windows without packets are not made of files. Those that were left out had packets.
        let follows = self.era == era && window.revision == 0 && window.left_out == 0;
        let silent_ns = self.end_ns.filter(|end| follows && *end <= span.0);
        self.end_ns = match self.end_ns.filter(|_| self.era == era) {
            Some(end) => Some(end.max(span.1)),
            None => Some(span.1),
        };
        let kinds: Vec<_> = self.kinds.iter().map(|(kind, _)| *kind).collect();
        let step = Step::of(window, self.settings.rows, &kinds);
        for ((_, sightings), table) in self.kinds.iter_mut().zip(&step.tables) {
            for row in &table.rows {
                sightings.see(&row.key, span, row.peak_bits_per_s, self.windows);
            }
        }
        for tier in &mut self.tiers {
            tier.add(self.era, &step, silent_ns);
        }
        if let Some(report) = window.health {
            // Front ends ask for names apart.
            self.health = Some(health::Report {
                most: report.most,
                tcp: report.tcp.clone(),
                dns: report.dns.clone(),
                path: report.path.clone(),
                names: None,
            });
            self.past_health.add(span.0, report);
        }
        self.windows += 1;
    }

    /// Takes the kinds of key of a window. Of a kind that is not counted any more, the keys seen are forgotten.
    fn note_kinds(&mut self, window: &Window<'_>) {
        let Some(state) = window.state else {
            return;
        };
        let by = state.weigh();
        let counted: Vec<_> = state.weighed().take(self.settings.kinds).collect();
        let known = self.kinds.iter().map(|(kind, _)| *kind);
        if known.eq(counted.iter().map(|kind| (*kind, by))) {
            return;
        }
        let mut before = std::mem::take(&mut self.kinds);
        self.kinds = counted
            .into_iter()
            .map(|kind| {
                let known = before.iter_mut().find(|(other, _)| *other == (kind, by));
                let seen = known.map(|(_, seen)| std::mem::take(seen));
                ((kind, by), seen.unwrap_or_default())
            })
            .collect();
    }

    /// Notes the begin of a window. If the clock went back to before all windows since it did so last, a new era begins; a smaller
    /// step back leads to steps that are still there.
    fn note_time(&mut self, begin: i64) {
        self.begins = Some(match self.begins {
            Some((first, last)) if begin >= first => (first, last.max(begin)),
            Some(_) => {
                self.era += 1;
                (begin, begin)
            }
            None => (begin, begin),
        });
    }

    /// Returns the findings of the windows so far.
    pub fn findings(&mut self) -> &mut Findings {
        &mut self.findings
    }

    /// Memory in use, bytes.
    pub fn memory(&self) -> usize {
        let tiers: usize = self.tiers.iter().map(Tier::memory).sum();
        let seen = self.kinds.iter().map(|(_, seen)| seen.memory());
        let past = self.past_health.memory() + self.findings.memory();
        size_of::<Self>() + tiers + seen.sum::<usize>() + past
    }

    /// Largest memory with these settings, bytes:
    ///
    /// ```text
    /// steps * (step + kinds * (table + rows * row)) + kinds * (open steps + keys seen)
    /// ```
    ///
    /// with 2760 steps, and rows of at most [`View::ROW`] bytes. A row usually takes 20 to 60 bytes, as most of its numbers are small.
    /// The [health](Snapshot::health) of the last window has a limit of its own.
    pub fn most_memory(settings: &Settings) -> usize {
        let limits = (settings.rows, settings.kinds);
        let tiers = Span::ALL.map(|span| Tier::most_memory(span, limits));
        let seen = settings.kinds * (Sightings::most_memory() + size_of::<Sightings>());
        let past = past_health::MOST_MEMORY + findings::MOST_MEMORY;
        size_of::<Self>() + tiers.iter().sum::<usize>() + seen + past
    }

    /// Most bytes of a row in a complete step.
    pub const ROW: usize = packed::ROW;

    /// Answers a question; `None` if there is no window yet.
    pub fn snapshot(&self, ask: &Ask) -> Option<Snapshot> {
        let tier = &self.tiers[ask.span as usize];
        let place = tier.place_of(ask.at)?;
        let step = tier.step(place)?;
        let before = tier.before(place).and_then(|place| tier.step(place));
        let earlier = tier.last(place, ask.history);
        let is_last = tier.place_of(None) == Some(place);
        let health = match (is_last, ask.span) {
            (true, _) => self.health.clone(),
            (false, Span::Second) => self.past_health.at(step.span.0),
            _ => None,
        };
        let tables = step.tables.iter().map(|table| {
            let kind = (table.kind, table.by);
            let seen = self.kinds.iter().find(|(other, _)| *other == kind);
            let seen = seen.map(|(_, seen)| seen);
            let before = before.as_ref();
            let before = before.and_then(|step| step.table(table.kind, table.by));
            snapshot::table(table, before, (seen, &earlier), ask)
        });
        Some(Snapshot {
            span: ask.span,
            from_ns: step.span.0,
            to_ns: step.span.1,
            is_last,
            neighbours: tier.neighbours(place),
            restarts: self.era,
            windows: self.windows,
            untimed: self.untimed,
            tables: tables.collect(),
            points: tier.points(place, ask.points),
            health,
            findings: self.findings.current(),
            totals: step.totals,
        })
    }
}
