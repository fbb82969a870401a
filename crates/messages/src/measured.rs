//! Answers of a measurement as JSON objects, the same in every front end.

pub mod columns;
pub mod diff;
pub mod times;

pub use weir_engine::keys::{address, further_parts, name, port_of, proto_name, size_label};

use crate::health;
use crate::numbers::{grouped, packets};
use columns::{Chosen, Figures, RowOf};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use weir_engine::firewall::remote::fates;
pub(crate) use weir_engine::keys::key_json;
use weir_engine::ledger::Ledger;
use weir_engine::name::Name;
use weir_io::{Input, Kind};
use weir_measure::names::Names;
use weir_measure::{
    Arrivals, Bound, BoundKind, By, Change, Counts, Estimate, Geo, KeyKind, Keyless, Keys, Missing,
    Row, SpreadTable, State, Table, Tally, Weigh, Window, bits_per_second,
};
use weir_packet::time::{Digits, Shape, Stamp};
use weir_pipeline::measuring::Finished;
use weir_pipeline::reader::Uncounted;

/// Most windows that wait to be taken. So many may be open at once, and all of them may end at once.
pub const MOST_WAITING: usize = crate::measurement::MOST_OPEN as usize;

/// Words on packets whose timestamps are outside the range of 64-bit nanoseconds.
pub const BEYOND: &str = "before 1677 or after 2262: the nearest of these is shown";

/// Contents of the answers: tables, and facts about the sources.
#[derive(Clone, Debug)]
pub struct Answers {
    /// Kinds of key, a table each; at least one.
    pub keys: Vec<KeyKind>,
    /// Figure that ranks the rows.
    pub by: By,
    /// Most rows of a table.
    pub rows: usize,
    /// Most rows of a table of changes.
    pub changers: usize,
    /// Least share of a row in the figure that ranks, from 0 to 1: rows with less are left out.
    pub above: Option<f64>,
    /// Speed of the link in each direction, bit/s, if it is known.
    pub link_bits_per_s: Option<f64>,
    /// Whether rates are shown, because keys are ranked by their bits per second.
    pub by_rate: bool,
    /// Columns of the rows; `None`: the usual ones.
    pub columns: Option<Vec<Chosen>>,
    /// Databases of columns about addresses.
    pub geo: Option<Arc<Geo>>,
    /// Place that drops packets for lack of room, if the sources are interfaces.
    pub place: Option<&'static str>,
    /// Whether packets rejected in the kernel are not counted.
    pub uncounted: bool,
}

/// Facts of the summary next to the measured state.
pub struct Beside<'a> {
    /// Message on the first error.
    pub fault: Option<&'a str>,
    /// Counts of the run, with what its sources lack.
    pub ledger: &'a Ledger,
    /// Parts of the choice of the packets of record directories, in words.
    pub holds_only: &'a [String],
    /// Whether a signal ended the run.
    pub interrupted: bool,
    /// Splits, and the number of packets that matched each.
    pub splits: Vec<(&'a Name, u64)>,
    /// Packets that were counted before the last change of the counters, and given out with it.
    pub counted_before: u64,
}

impl Answers {
    /// Notes the facts about captures that are open.
    pub fn captures(&mut self, inputs: &[Input]) {
        for input in inputs {
            if let Kind::Live(live) = &input.kind {
                self.place = Some(live.backend().place());
                self.uncounted |= live.backend().counts().filtered.is_none();
            }
        }
    }

    /// Returns the object of a complete window.
    pub fn window(&self, window: &Window<'_>) -> Value {
        self.object(window).into()
    }

    /// Returns the object of the summary.
    pub fn summary(&self, total: &Window<'_>, beside: &Beside<'_>) -> Value {
        let &Beside {
            fault,
            ledger,
            holds_only,
            interrupted,
            ref splits,
            counted_before,
        } = beside;
        let mut object = self.object(total);
        object.extend(lacks(ledger, holds_only));
        object.extend(fates(ledger));
        if counted_before > 0 {
            let since = total.state.map_or(0, |state| state.tally().passed);
            object.insert("passed".to_owned(), (counted_before + since).into());
            object.insert("counted_before".to_owned(), counted_before.into());
        }
        object.insert("fault".to_owned(), fault.into());
        if interrupted {
            object.insert("interrupted".to_owned(), true.into());
        }
        if !splits.is_empty() {
            let splits = splits
                .iter()
                .map(|(name, packets)| (name.text(), Value::from(*packets)));
            object.insert("splits".to_owned(), splits.collect());
        }
        object.into()
    }

    /// Returns the kinds of key of a window, which requests may have changed.
    pub fn keys_of(&self, window: &Window<'_>) -> Vec<KeyKind> {
        let counted = window.state.map(|state| state.keys().collect());
        counted.unwrap_or_else(|| self.keys.clone())
    }

    /// Returns the rows of table `i` of packets or bytes that the answer shows, and what is outside.
    pub fn table(&self, window: &Window<'_>, i: usize) -> Table {
        let Some(state) = window.state else {
            return Table::default();
        };
        let table = state.table_with(i, self.rows, window.names);
        let Some(share) = self.above else {
            return table;
        };
        let weigh = self.by.weigh().unwrap_or_default();
        let whole = match weigh {
            Weigh::Packets => state.tally().passed,
            Weigh::Bytes => state.tally().bytes,
        };
        let least = share * whole as f64;
        let is_enough = |row: &&Row| row.counts.by(weigh) as f64 >= least;
        match table.rows.iter().take_while(is_enough).count() {
            rows if rows == table.rows.len() => table,
            rows => state.table_with(i, rows, window.names),
        }
    }

    fn object(&self, window: &Window<'_>) -> Map<String, Value> {
        let tally = window
            .state
            .map_or(Tally::default(), |state| *state.tally());
        let span = window.span.or(tally.times());
        let mut object = Map::new();
        let mut put = |key: &str, value: Value| drop(object.insert(key.to_owned(), value));
        put("start", span.map(|(from, _)| stamp(from)).into());
        put("end", span.map(|(_, to)| stamp(to)).into());
        put(
            "window",
            window
                .span
                .map(|(from, to)| (to - from) as f64 / 1e9)
                .into(),
        );
        if window.revision > 0 {
            put("revision", window.revision.into());
        }
        if let Some(change) = window.change {
            // The sum of the packets before a change is told apart from the windows, which it holds.
            let is_sum = window.span.is_none();
            put(if is_sum { "change" } else { "cut" }, change.into());
        }
        put("received", window.arrivals.received.into());
        put("passed", tally.passed.into());
        put(
            "filtered",
            if self.uncounted {
                Value::Null
            } else {
                window.arrivals.filtered.into()
            },
        );
        put("denied", window.arrivals.denied.into());
        put("dropped", dropped(&window.arrivals, self.place));
        if window.left_out > 0 {
            put("left_out", window.left_out.into());
        }
        if window.arrivals.jumped > 0 {
            put("jumped", window.arrivals.jumped.into());
        }
        if window.arrivals.beyond > 0 {
            put("times_beyond", window.arrivals.beyond.into());
        }
        put("bytes", tally.bytes.into());
        if let Some(ways) = Ways::of(window) {
            put("rx", counts_json(&ways.rx));
            put("tx", counts_json(&ways.tx));
            if ways.local.packets > 0 {
                put("local", counts_json(&ways.local));
            }
            if let Some(speed) = self.link_bits_per_s {
                put(
                    "link",
                    json!({
                        "bits_per_s": speed,
                        "rx_share": ways.share(&ways.rx, speed),
                        "tx_share": ways.share(&ways.tx, speed),
                    }),
                );
            }
        }
        put("broadcast", window.arrivals.broadcast.into());
        put("multicast", window.arrivals.multicast.into());
        let none = Estimate {
            value: 0,
            plus_minus: 0,
            confidence: 1.0,
        };
        let estimate = |of: fn(&State) -> Estimate| estimate_json(&window.state.map_or(none, of));
        put("flows", estimate(State::flows));
        let keys = self.keys_of(window);
        let tables: Vec<Shown> = (0..keys.len())
            .map(|i| self.shown(window, i, keys[i]))
            .collect();
        let by_key = |value: &dyn Fn(&Shown) -> &Value| {
            let each = keys.iter().zip(&tables);
            each.map(|(kind, table)| (kind.to_string(), value(table).clone()))
                .collect::<Map<_, _>>()
                .into()
        };
        put("top", tables[0].top.clone());
        put("missing", tables[0].missing.clone());
        if tables.len() > 1 {
            put("tops", by_key(&|table| &table.top));
            put("missing_by_key", by_key(&|table| &table.missing));
        }
        put("sources", estimate(State::sources));
        put("destinations", estimate(State::destinations));
        let mut sizes = Map::new();
        for (i, &packets) in tally.sizes.iter().enumerate() {
            sizes.insert(size_label(i), packets.into());
        }
        put("sizes", sizes.into());
        put("keyless", keyless_json(&tally.keyless));
        if let [only] = tables.as_slice()
            && only.untracked > 0
        {
            put("untracked", only.untracked.into());
        }
        if self.changers > 0 {
            let table = |(i, &kind): (usize, &KeyKind)| {
                let changes = window.changers(i, self.changers)?;
                Some((
                    kind.to_string(),
                    changes
                        .iter()
                        .map(|change| change_json(kind, change, window.names))
                        .collect::<Value>(),
                ))
            };
            let tables: Option<Map<_, _>> = keys.iter().enumerate().map(table).collect();
            put("changers", tables.into());
        }
        if let Some(owners) = window.state.and_then(State::owners) {
            let counts = owners.counts();
            put(
                "processes",
                json!({"sockets": counts.sockets, "lost": counts.lost, "hidden": counts.hidden}),
            );
        }
        if let Some(names) = window.names {
            put("names", names_json(names));
        }
        if let Some(report) = window.health {
            put("health", health::json(report));
        }
        object
    }

    /// Returns table `i` of a window.
    fn shown(&self, window: &Window<'_>, i: usize, kind: KeyKind) -> Shown {
        if self.by.is_distinct() {
            let table = window.state.map(|state| state.spread(i, self.rows));
            let table = table.unwrap_or_default();
            return Shown {
                top: self.top(window, kind, table.rows.iter().map(Figures::Spread)),
                missing: self.missing_spreaders(&table),
                untracked: 0,
            };
        }
        let table = self.table(window, i);
        Shown {
            top: self.top(window, kind, table.rows.iter().map(Figures::Weighed)),
            missing: missing_json(&table, self.late(&table)),
            untracked: table.untracked.packets,
        }
    }

    fn top<'a>(
        &self,
        window: &Window<'_>,
        kind: KeyKind,
        rows: impl Iterator<Item = Figures<'a>>,
    ) -> Value {
        let row = |figures| {
            self.row_json(&RowOf {
                answers: self,
                window,
                kind,
                figures,
            })
        };
        rows.map(row).collect()
    }

    fn missing_spreaders(&self, table: &SpreadTable) -> Value {
        let at_most = (table.kind != BoundKind::None).then_some(table.at_most);
        let mut object = json!({
            "at_most": at_most,
            "kind": kind_name(table.kind),
            "keys": keys_json(&table.keys),
            "share": table.sample.share,
        });
        object[self.by.to_string()] = table.elements.into();
        object
    }
}

/// Measured packets by their direction.
#[derive(Clone, Copy, Debug)]
pub struct Ways {
    /// Incoming packets.
    pub rx: Counts,
    /// Outgoing packets.
    pub tx: Counts,
    /// Packets between two local hosts.
    pub local: Counts,
    /// All others: between two other hosts, without an address, or of a source that does not tell the direction.
    pub neither: Counts,
    /// Covered time, ns; 0 if it is not known.
    time_ns: u64,
}

impl Ways {
    /// The directions of the packets of a window; `None` if no packet has one.
    pub fn of(window: &Window<'_>) -> Option<Self> {
        let Arrivals { rx, tx, local, .. } = window.arrivals;
        let time_ns = window.time_ns().unwrap_or(0);
        let tally = window
            .state
            .map_or(Tally::default(), |state| *state.tally());
        let known = |of: fn(&Counts) -> u64| of(&rx) + of(&tx) + of(&local);
        let [packets, bytes] = [known(|it| it.packets), known(|it| it.bytes)];
        let neither = Counts {
            packets: tally.passed.saturating_sub(packets),
            bytes: tally.bytes.saturating_sub(bytes),
        };
        (packets > 0).then_some(Self {
            rx,
            tx,
            local,
            neither,
            time_ns,
        })
    }

    /// Bits per second of the frames without FCS, if the time is known.
    pub fn rate(&self, of: &Counts) -> Option<f64> {
        bits_per_second(of.bytes, self.time_ns)
    }

    /// Share of a link of `speed` bit/s, from 0 to 1.
    pub fn share(&self, of: &Counts, speed: f64) -> Option<f64> {
        self.rate(of).map(|rate| rate / speed)
    }
}

pub(crate) fn counts_json(counts: &Counts) -> Value {
    json!({ "packets": counts.packets, "bytes": counts.bytes })
}

/// A table as JSON.
struct Shown {
    top: Value,
    missing: Value,
    /// Packets for which an exact table had no room.
    untracked: u64,
}

/// Windows left out because too many others waited to be taken.
#[derive(Clone, Copy, Debug, Default)]
pub struct LeftOut {
    /// Number of these windows.
    pub all: u64,
    /// Windows left out since the last admitted window, including windows that the workers left
    /// out.
    since: u64,
}

impl LeftOut {
    /// Returns the window for the answer, with the windows left out before it; `None` if there is
    /// no room, and it is also left out.
    pub fn admit<'a>(&mut self, window: Window<'a>, has_room: bool) -> Option<Window<'a>> {
        if !has_room {
            self.all += 1;
            self.since += 1 + window.left_out;
            return None;
        }
        Some(match std::mem::take(&mut self.since) {
            0 => window,
            // The previous window was not taken, and is not a basis for comparison.
            since => Window {
                left_out: window.left_out + since,
                before: None,
                ..window
            },
        })
    }
}

/// Returns all that was measured, as a window without a span. `left_out` windows were not taken.
pub fn total(finished: &Finished, left_out: LeftOut) -> Window<'_> {
    Window {
        span: None,
        covered: finished.covered,
        revision: 0,
        left_out: finished.left_out + left_out.all,
        arrivals: finished.arrivals,
        state: finished.state.as_ref(),
        change: None,
        before: None,
        health: finished.health.as_ref(),
        names: finished.names.as_ref(),
    }
}

/// Line about findings that were left out.
pub fn too_many_findings(left_out: u64) -> String {
    format!(
        "findings left out because there were too many at once: {}",
        grouped(left_out)
    )
}

/// Lines about packets whose timestamps do not fit. `windows`: the answer has windows; `advice`
/// follows the line about further results.
pub fn time_lines(
    total: &Window<'_>,
    finished: &Finished,
    windows: bool,
    advice: &str,
) -> Vec<String> {
    let (arrivals, further) = (total.arrivals, &finished.further);
    let mut lines = Vec::new();
    if arrivals.late > 0 {
        lines.push(format!(
            "late by more than --late allows, and dropped: {}; their windows were given out before they came",
            packets(arrivals.late)
        ));
    }
    if further.results > 0 {
        let plural = if further.results == 1 { "" } else { "s" };
        lines.push(format!(
            "late by more than --late allows: {}, in {} further result{plural} of their windows (revision){advice}",
            packets(further.packets),
            grouped(further.results)
        ));
    }
    let tally = finished.state.as_ref().map(State::tally);
    if windows && tally.is_some_and(|tally| tally.passed > 0 && tally.times().is_none()) {
        lines.push(
            "no packet has a time stamp, so that there is no window: the summary has all packets"
                .to_owned(),
        );
    }
    if total.left_out > 0 {
        lines.push(format!(
            "windows left out because they ended faster than their results were taken: {}; the summary has their packets",
            grouped(total.left_out)
        ));
    }
    if arrivals.jumped > 0 {
        lines.push(format!(
            "time stamps far from those around them are not believed: {} (jumped), counted where they came",
            packets(arrivals.jumped)
        ));
    }
    if arrivals.beyond > 0 {
        lines.push(format!("{} with a time {BEYOND}", packets(arrivals.beyond)));
    }
    lines
}

/// The keys and the traffic outside the rows of a table, as JSON.
pub(crate) fn stamp(ns: i64) -> String {
    let mut text = String::new();
    Stamp(ns).write(&mut text, Shape::Rfc3339, Digits::Nano, 0);
    text
}

/// Members of a summary on what its sources lack or have twice, and what their packets were chosen by: those that there are.
pub fn lacks(
    ledger: &Ledger,
    holds_only: &[String],
) -> impl Iterator<Item = (String, Value)> + use<> {
    let (before, unknown) = (ledger.lost_before, &ledger.loss_unknown);
    let lost = (before > 0).then(|| ("lost_before", before.into()));
    let silent = (ledger.without_counter > 0).then(|| ("loss_not_recorded", true.into()));
    let twice = (ledger.duplicates > 0).then(|| ("duplicates", ledger.duplicates.into()));
    let unknown = (!unknown.is_empty()).then(|| ("loss_unknown", loss_unknown_value(unknown)));
    let chosen = (!holds_only.is_empty()).then(|| ("holds_only", holds_only.into()));
    let members = [lost, silent, twice, unknown, chosen].into_iter().flatten();
    members.map(|(name, value)| (name.to_owned(), value))
}

/// Times for which sources do not tell what was lost: `[{"from":TIME,"to":TIME}]`, where `to` is null if nothing followed.
pub fn loss_unknown_value(uncounted: &[Uncounted]) -> Value {
    uncounted
        .iter()
        .map(|one| json!({ "from": stamp(one.from_ns), "to": one.to_ns.map(stamp) }))
        .collect()
}

/// `late` is the number of packets that are in no peak.
fn missing_json(table: &Table, late: u64) -> Value {
    let Missing {
        at_most,
        kind,
        keys,
        counts,
    } = table.missing;
    let keys = keys_json(&keys);
    let at_most = (kind != BoundKind::None).then_some(at_most);
    let mut object = json!({
        "at_most": at_most, "kind": kind_name(kind), "keys": keys, "packets": counts.packets, "bytes": counts.bytes,
    });
    if table.untracked.packets > 0 {
        object["untracked"] =
            json!({ "packets": table.untracked.packets, "bytes": table.untracked.bytes });
    }
    if table.ipv6.packets > 0 {
        object["ipv6"] = json!({ "packets": table.ipv6.packets, "bytes": table.ipv6.bytes });
    }
    if table.overflowed > 0 {
        object["overflowed"] = json!(table.overflowed);
    }
    if late > 0 {
        object["late"] = late.into();
    }
    if table.evicted.packets > 0 {
        object["evicted"] =
            json!({ "packets": table.evicted.packets, "bytes": table.evicted.bytes });
    }
    object
}

fn keys_json(keys: &Keys) -> Value {
    match keys {
        Keys::About(keys) => estimate_json(keys),
        Keys::AtLeast(keys) => {
            json!({ "estimate": keys, "bound": { "kind": "none", "lower": keys } })
        }
    }
}

pub(crate) fn dropped(arrivals: &Arrivals, place: Option<&str>) -> Value {
    let mut causes = Map::new();
    if arrivals.late > 0 {
        causes.insert("late".to_owned(), arrivals.late.into());
    }
    if let Some(place) = place {
        causes.insert(place.to_owned(), arrivals.dropped.into());
    }
    Value::Object(causes)
}

fn estimate_json(estimate: &Estimate) -> Value {
    let bound = if estimate.confidence == 1.0 {
        json!({ "kind": "exact" })
    } else {
        json!({ "kind": "probabilistic", "plus_minus": estimate.plus_minus, "confidence": estimate.confidence })
    };
    json!({ "estimate": estimate.value, "bound": bound })
}

/// Reasons for which packets have no flow key, with their numbers of packets.
pub fn keyless_reasons(keyless: &Keyless) -> [(&'static str, u64); 4] {
    [
        ("not IP", keyless.not_ip),
        ("cut before the addresses", keyless.truncated),
        ("with broken headers", keyless.malformed),
        ("of a link type without flow key", keyless.link_type),
    ]
}

pub(crate) fn keyless_json(keyless: &Keyless) -> Value {
    let names = ["not_ip", "truncated", "malformed", "link_type"];
    let counts = keyless_reasons(keyless).map(|(_, packets)| packets);
    let some = names.iter().zip(counts).filter(|(_, packets)| *packets > 0);
    Value::Object(
        some.map(|(name, packets)| ((*name).to_owned(), packets.into()))
            .collect(),
    )
}

pub(crate) fn kind_name(kind: BoundKind) -> &'static str {
    match kind {
        BoundKind::Exact => "exact",
        BoundKind::Deterministic => "deterministic",
        BoundKind::Probabilistic { .. } => "probabilistic",
        BoundKind::None => "none",
    }
}

pub(crate) fn bound_json(bound: &Bound) -> Value {
    let mut object =
        json!({ "kind": kind_name(bound.kind), "lower": bound.lower, "upper": bound.upper });
    if let BoundKind::Probabilistic { confidence } = bound.kind {
        object["confidence"] = confidence.into();
    }
    object
}

/// Counts of the names of addresses.
fn names_json(names: &Names) -> Value {
    json!({
        "addresses": names.len(),
        "several": names.several(),
        "lost": names.lost(),
        "unread": names.unread(),
    })
}

pub(crate) fn change_json(kind: KeyKind, change: &Change, names: Option<&Names>) -> Value {
    let mut object = key_json(kind, &change.key, names);
    object.insert("before".to_owned(), change.before.into());
    object.insert("after".to_owned(), change.after.into());
    object.insert("change".to_owned(), change.delta().into());
    object.insert("status".to_owned(), change.status().word().into());
    let bound =
        json!({ "kind": kind_name(change.kind), "lower": change.lower, "upper": change.upper });
    object.insert("bound".to_owned(), bound);
    Value::Object(object)
}
