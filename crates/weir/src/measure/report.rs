//! Output of `weir measure`: tables for people, JSON objects for programs.

mod chosen;
mod health;
mod spread;

use crate::numbers::{bit_rate, bytes, duration, grouped, packets, percent, rate};
use crate::table::{Column, Narrow, grid};
use crate::terminal::{self, output_width, printable, wrapped};
use crate::times::between;
use serde_json::Value;
use std::fmt::Write as _;
use std::time::Duration;
use weir_engine::name::Name;
use weir_engine::zone::Zone;
use weir_measure::names::Names;
use weir_measure::owners;
use weir_measure::{
    Arrivals, Bound, BoundKind, Change, Counts, Estimate, KeyKind, Keys, Missing, Row, Sides,
    Table, Tally, Weigh, Window, bits_per_second, per_second,
};
use weir_messages::measured::columns::{Separated, is_exact, usual};
use weir_messages::measured::diff::loss_words;
use weir_messages::measured::{
    Answers, Beside, Ways, address, further_parts, keyless_reasons, port_of, proto_name, size_label,
};
use weir_messages::rows::Form;
use weir_packet::flow::FlowKey;
use weir_packet::time::{Digits, Shape, Stamp};
use weir_view::{Finding, State};

/// Note in place of a number of dropped packets, if all packets of the sources were delivered and measured.
const NO_LOSS: &str = weir_messages::measured::diff::NO_LOSS;

/// Writer of windows and of the summary.
pub struct Report {
    sources: Vec<Name>,
    /// Contents of the answers.
    pub answers: Answers,
    form: Form,
    /// Rows of separated values.
    separated: Separated,
    zone: Zone,
    /// Number of windows given out so far; `begun` tells whether any result was.
    windows: u64,
    begun: bool,
}

impl Report {
    pub fn new(
        sources: &[Name],
        answers: Answers,
        form: Form,
        (has_windows, zone): (bool, Zone),
    ) -> Self {
        let columns = match &answers.columns {
            Some(columns) => columns.clone(),
            None => usual(&answers, has_windows),
        };
        Self {
            sources: sources.to_vec(),
            answers,
            form,
            separated: Separated::new(form, &columns),
            zone,
            windows: 0,
            begun: false,
        }
    }

    /// Text of a complete window.
    pub fn window(&mut self, window: &Window<'_>) -> String {
        if self.form.is_separated() {
            return self.rows(window);
        }
        let apart = self.begun;
        self.begun = true;
        self.windows += u64::from(window.revision == 0 && window.span.is_some());
        let text = if self.form == Form::Json {
            terminal::json("window", &self.answers.window(window))
        } else {
            let (from, to) = window.span.unwrap_or_default();
            let again = match window.revision {
                0 => String::new(),
                n => format!(" (revision {n}: adds to it)"),
            };
            let (from, to) = (
                self.clock(from, Shape::DateClock),
                self.clock(to, Shape::DateClock),
            );
            let title = match (window.span, window.change) {
                (None, Some(change)) => format!("all until change {change}"),
                _ => format!("{}{again}", between(&from, &to)),
            };
            // An empty line separates the window from the one before. A window without packets is a line.
            let apart = if apart && !is_silent(window) {
                "\n"
            } else {
                ""
            };
            // What a file or a record lacks is known at its end, for all of it.
            let otherwise = if self.answers.place.is_some() {
                NO_LOSS
            } else {
                ""
            };
            format!("{apart}{}", self.text(&title, window, otherwise))
        };
        self.fitted(&text)
    }

    /// Text of findings that began or ended, a line or an object each.
    pub fn findings(&mut self, findings: &[Finding]) -> String {
        let mut out = String::new();
        for finding in findings {
            let text = match self.form == Form::Json {
                true => terminal::json("finding", &weir_messages::view::finding(finding)),
                false => self.finding(finding),
            };
            out.push_str(&self.fitted(&text));
        }
        out
    }

    fn finding(&mut self, finding: &Finding) -> String {
        let kind = finding.kind.name().replace('_', " ");
        let host = finding
            .host
            .map_or(String::new(), |host| format!(" {host}"));
        let begin = self.clock(finding.begin_ns, Shape::DateClock);
        let last = self.clock(finding.last_ns, Shape::DateClock);
        let time = between(&begin, &last);
        let text = match finding.state {
            State::Begun => format!("{begin} {kind}{host} begins: {}", finding.row),
            State::Ended => format!("{time} {kind}{host} ended; at most: {}", finding.row),
            State::Open => format!("{time} {kind}{host} goes on; at most: {}", finding.row),
        };
        format!("! {text}\n")
    }

    /// Rows of a window as separated values, after the heading if they are the first.
    fn rows(&mut self, window: &Window<'_>) -> String {
        let heading = match std::mem::replace(&mut self.begun, true) {
            false => self.separated.heading(),
            true => String::new(),
        };
        // A sum of windows would repeat their packets.
        if window.span.is_none() && self.windows > 0 {
            return heading;
        }
        self.windows += u64::from(window.span.is_some());
        heading + &self.separated.window(&self.answers, window)
    }

    /// Text of the summary.
    pub fn summary(&mut self, total: &Window<'_>, beside: &Beside<'_>) -> String {
        if self.form.is_separated() {
            return self.rows(total);
        }
        let text = if self.form == Form::Json {
            terminal::json("summary", &self.answers.summary(total, beside))
        } else {
            let title = match self.sources.as_slice() {
                [one] => printable(&one.as_source()).into_owned(),
                many => format!("{} sources", many.len()),
            };
            // All delivered packets were measured, but not all packets were delivered.
            let loss = loss_words(beside.fault.is_some(), beside.ledger);
            let before = match beside.counted_before {
                0 => String::new(),
                n => format!(
                    "  after the last change; before it {} were counted\n",
                    packets(n)
                ),
            };
            let text = match self.windows {
                0 => self.text(&title, total, &loss),
                1 => format!(
                    "\n{}",
                    self.text(&format!("the only window of {title}"), total, &loss)
                ),
                n => format!(
                    "\n{}",
                    self.text(
                        &format!("all {} windows of {title}", grouped(n)),
                        total,
                        &loss
                    )
                ),
            };
            text + &before
        };
        self.fitted(&text)
    }

    /// A JSON object in one line, or text wrapped to the width of the terminal.
    fn fitted(&self, text: &str) -> String {
        if self.form == Form::Json {
            format!("{text}\n")
        } else {
            wrapped(text, output_width(), 2)
        }
    }

    /// A time with as many digits as it needs.
    fn clock(&mut self, ns: i64, shape: Shape) -> String {
        let text = self.stamp(ns, shape);
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    }

    /// A time to the microsecond.
    fn stamp(&mut self, ns: i64, shape: Shape) -> String {
        let east = self.zone.east_s(ns);
        let mut text = String::new();
        Stamp(ns).write(&mut text, shape, Digits::Micro, east);
        text.trim_end().to_owned()
    }

    /// Heading and tables. If nothing was dropped, the heading has `otherwise` in place of the loss.
    fn text(&mut self, title: &str, window: &Window<'_>, otherwise: &str) -> String {
        let tally = window
            .state
            .map_or(Tally::default(), |state| *state.tally());
        let keys = self.answers.keys_of(window);
        let mut out = String::new();
        let _ = write!(
            out,
            "{title}  {}  {}",
            packets(tally.passed),
            bytes(tally.bytes)
        );
        let time_ns = window.time_ns();
        if let Some(time_ns) = time_ns {
            let _ = write!(out, "  {}", duration(Duration::from_nanos(time_ns)));
        }
        let loss = loss(&window.arrivals, self.answers.place, otherwise);
        if !loss.is_empty() {
            let _ = write!(out, "  {loss}");
        }
        let Some(state) = window.state else {
            out.push('\n');
            if is_silent(window) && self.answers.changers == 0 {
                return out;
            }
            out.push_str("  no packet was measured\n");
            out.push_str(&aside(window));
            out.extend((0..keys.len()).map(|i| self.changes(window, i, keys[i])));
            return out;
        };
        let _ = writeln!(out, "        {}", how_many(&state.flows(), "flow"));
        let time_ns = time_ns.unwrap_or(0);
        if let (Some(packets), Some(bits)) = (
            per_second(tally.passed, time_ns),
            bits_per_second(tally.bytes, time_ns),
        ) {
            let _ = writeln!(
                out,
                "  {} packets/s, {} (frames without FCS)",
                rate(packets),
                bit_rate(bits)
            );
        }
        out.push_str(&self.ways(window));
        let (sources, destinations) = (state.sources(), state.destinations());
        let _ = writeln!(
            out,
            "  {}, {}",
            how_many(&sources, "source"),
            how_many(&destinations, "destination")
        );
        let _ = writeln!(out, "  sizes {}", sizes(&tally));
        out.push_str(&groups(&window.arrivals, &tally));
        out.push_str(&aside(window));
        if tally.keyless.sum() > 0 {
            let _ = writeln!(out, "  {}", keyless(&tally, &keys));
        }
        for (i, &kind) in keys.iter().enumerate() {
            out.push('\n');
            if keys.len() > 1 {
                let _ = writeln!(out, "  {kind}, by {}", self.answers.by);
            }
            let table = if let Some(columns) = self.answers.columns.clone() {
                self.chosen(window, i, &columns)
            } else if self.answers.by.is_distinct() {
                self.spread(kind, &state.spread(i, self.answers.rows))
            } else {
                let table = self.answers.table(window, i);
                let outside = self.outside(&table);
                (!table.rows.is_empty() || !outside.is_empty()).then(|| {
                    let columns = self.columns((kind, window.names), &table, &tally, time_ns);
                    grid(&columns, output_width()) + &outside
                })
            };
            out.push_str(&table.unwrap_or_else(|| no_row(kind, &tally)));
            out.push_str(&self.changes(window, i, kind));
        }
        out.extend(window.names.map(names_line));
        let owners = window.state.and_then(weir_measure::State::owners);
        out.extend(owners.map(|owners| owners_line(owners.counts())));
        out.extend(window.health.map(health::text));
        out
    }

    /// A line on the directions; empty if they are not known.
    fn ways(&self, window: &Window<'_>) -> String {
        let Some(ways) = Ways::of(window) else {
            return String::new();
        };
        let speed = self.answers.link_bits_per_s;
        let plain = |counts: &Counts| match ways.rate(counts) {
            None => bytes(counts.bytes),
            Some(rate) => bit_rate(rate),
        };
        let one = |counts: &Counts| match (ways.rate(counts), speed) {
            (Some(rate), Some(speed)) => {
                format!("{} ({:.1} %)", bit_rate(rate), rate * 100.0 / speed)
            }
            _ => plain(counts),
        };
        let link = speed.map_or(String::new(), |speed| {
            format!(", of {} each", bit_rate(speed))
        });
        let mut others = String::new();
        for (word, counts) in [("local", ways.local), ("neither", ways.neither)] {
            if counts.packets > 0 {
                let _ = write!(others, ", {word} {}", plain(&counts));
            }
        }
        format!(
            "  in {}, out {}{link}{others}\n",
            one(&ways.rx),
            one(&ways.tx)
        )
    }

    /// Weight by which tables of packets and bytes are ranked.
    fn weigh(&self) -> Weigh {
        self.answers.by.weigh().unwrap_or_default()
    }

    /// A line on the keys and the traffic outside the rows of a table; empty if there are none.
    fn outside(&self, table: &Table) -> String {
        let Missing {
            at_most,
            kind,
            keys,
            counts,
        } = table.missing;
        if at_most == 0 && kind != BoundKind::None {
            return String::new();
        }
        let keys = match keys {
            Keys::About(keys) => how_many(&keys, "key"),
            Keys::AtLeast(keys) => format!("{} or more", how_many(&Estimate::exact(keys), "key")),
        };
        let most = match self.weigh() {
            Weigh::Packets => packets(at_most),
            Weigh::Bytes => format!("{} bytes", grouped(at_most)),
        };
        // Whether a key outside may weigh more than some key of the list.
        let may_be_larger = table.rows.iter().any(|row| row.bound.lower < at_most);
        let largest = match kind {
            BoundKind::None => "how large the largest is, is not known".to_owned(),
            _ if may_be_larger => format!("a key of up to {most} may be missing here"),
            _ => format!("none has more than {most}"),
        };
        let mut out = format!(
            "  outside: {keys}, {} ({}); {largest}\n",
            packets(counts.packets),
            bytes(counts.bytes)
        );
        if table.untracked.packets > 0 {
            let doubtful = table
                .rows
                .iter()
                .any(|row| row.bound.kind != BoundKind::Exact);
            let _ = writeln!(
                out,
                "  the table is full: {} ({}) of {} are not in it; raise --memory, or use --sketch heavy",
                packets(table.untracked.packets),
                bytes(table.untracked.bytes),
                if doubtful {
                    "other keys, and of these up to their bounds,"
                } else {
                    "other keys"
                },
            );
        }
        if table.ipv6.packets > 0 {
            let _ = writeln!(
                out,
                "  IPv6: {} ({}) are in no row, because --sketch rs counts IPv4 addresses; use --sketch heavy",
                packets(table.ipv6.packets),
                bytes(table.ipv6.bytes),
            );
        }
        if table.overflowed > 0 {
            let _ = writeln!(
                out,
                "  full sets: {} entries have left values out, so large flows may be in no row; use more --memory, or --sketch heavy",
                grouped(table.overflowed),
            );
        }
        if table.evicted.packets > 0 {
            let _ = writeln!(
                out,
                "  collisions: {} ({}) are in no row, because newer keys took their slots; raise --memory, or use \
                 --sketch heavy",
                packets(table.evicted.packets),
                bytes(table.evicted.bytes),
            );
        }
        out
    }

    /// Table of the largest changes since the window before, if it was requested, or why there is none.
    fn changes(&self, window: &Window<'_>, i: usize, kind: KeyKind) -> String {
        if self.answers.changers == 0 {
            return String::new();
        }
        match window.changers(i, self.answers.changers) {
            Some(changes) if changes.is_empty() => {
                "  no key changed since the window before\n".to_owned()
            }
            Some(changes) => {
                let columns = self.change_columns((kind, window.names), &changes);
                let table = grid(&columns, output_width());
                format!("  changed most since the window before\n{table}")
            }
            None if window.span.is_some() => {
                "  changes are unknown: this window is the first, or the sources cover only a part \
                 of it or of the one before\n"
                    .to_owned()
            }
            None => String::new(),
        }
    }

    fn columns(
        &self,
        (kind, names): (KeyKind, Option<&Names>),
        table: &Table,
        tally: &Tally,
        time_ns: u64,
    ) -> Vec<Column> {
        let rows = &table.rows;
        let column = |title, narrow, cell: &dyn Fn(&Row) -> String| Column {
            title,
            cells: rows.iter().map(cell).collect(),
            right: true,
            narrow,
        };
        let numbers = (1..=rows.len()).map(|n| n.to_string()).collect();
        let mut columns = vec![Column {
            title: "#",
            cells: numbers,
            right: true,
            narrow: Narrow::Stays,
        }];
        columns.extend(key_columns((kind, names), rows.iter().map(|row| &row.key)));
        let (whole, of): (u64, fn(&Row) -> u64) = match self.weigh() {
            Weigh::Packets => (tally.passed, |row| row.counts.packets),
            Weigh::Bytes => (tally.bytes, |row| row.counts.bytes),
        };
        let by = self.weigh();
        let figure = |row: &Row, of: Weigh, text: fn(u64) -> String| match of == by {
            true => text(row.counts.by(of)),
            false => companion_text(row.counts.by(of), &row.companion, text),
        };
        // If there is too little room, the column that does not rank is left out first, then the share.
        let narrow = |of| {
            if of == by {
                Narrow::Stays
            } else {
                Narrow::Leaves(1)
            }
        };
        columns.push(column("packets", narrow(Weigh::Packets), &|row| {
            figure(row, Weigh::Packets, grouped)
        }));
        columns.push(column("share", Narrow::Leaves(2), &|row| {
            percent(of(row), whole)
        }));
        if self.answers.by_rate {
            columns.push(column("rate", Narrow::Stays, &|row| {
                bits_per_second(row.counts.bytes, time_ns).map_or("-".to_owned(), bit_rate)
            }));
        }
        if kind.has_sides() {
            let text = match by {
                Weigh::Packets => grouped,
                Weigh::Bytes => bytes,
            };
            let side = |row: &Row, side: fn(&Sides) -> Counts| {
                row.sides
                    .map_or(String::new(), |sides| text(side(&sides).by(by)))
            };
            columns.push(column("tx", Narrow::Leaves(3), &|row| {
                side(row, |it| it.tx)
            }));
            columns.push(column("rx", Narrow::Leaves(3), &|row| {
                side(row, |it| it.rx)
            }));
        }
        columns.push(column("bytes", narrow(Weigh::Bytes), &|row| {
            figure(row, Weigh::Bytes, bytes)
        }));
        columns.push(column("bound", Narrow::Stays, &|row| {
            bound_text(of(row), &row.bound)
        }));
        columns
    }

    fn change_columns(&self, kind: (KeyKind, Option<&Names>), changes: &[Change]) -> Vec<Column> {
        let column = |title, narrow, cell: &dyn Fn(&Change) -> String| Column {
            title,
            cells: changes.iter().map(cell).collect(),
            right: true,
            narrow,
        };
        let mut columns = vec![column("", Narrow::Stays, &|_| String::new())];
        columns.extend(key_columns(kind, changes.iter().map(|change| &change.key)));
        let figure = |figure: u64, word: &str| match figure {
            0 => word.to_owned(),
            figure => grouped(figure),
        };
        columns.push(column("before", Narrow::Leaves(1), &|change| {
            figure(change.before, "new")
        }));
        columns.push(column("after", Narrow::Leaves(2), &|change| {
            figure(change.after, "gone")
        }));
        columns.push(column("change", Narrow::Stays, &|change| {
            signed(change.delta())
        }));
        columns.push(column("between", Narrow::Stays, &|change| {
            format!("{} ..\n{}", signed(change.lower), signed(change.upper))
        }));
        columns
    }
}

/// A line on the names of addresses.
fn names_line(names: &Names) -> String {
    let addresses = match names.len() {
        1 => "1 address has one".to_owned(),
        n => format!("{} addresses have one", grouped(n as u64)),
    };
    let further = |n: u64, words: &str| match n {
        0 => String::new(),
        n => format!(", {} {words}", grouped(n)),
    };
    format!(
        "  names: {addresses}{}{}{}\n",
        further(names.several() as u64, "had another before"),
        further(names.lost(), "lost theirs (raise --memory)"),
        further(names.unread(), "messages with names could not be read"),
    )
}

/// A line on the sockets whose processes are known.
fn owners_line(known: owners::Counts) -> String {
    let further = |n: u64, words: &str| match n {
        0 => String::new(),
        n => format!(", {} {words}", grouped(n)),
    };
    format!(
        "  sockets: {} known{}{}\n",
        grouped(known.sockets),
        further(known.lost, "forgotten"),
        further(known.hidden, "of all processes do not show theirs"),
    )
}

/// Whether nothing arrived in a window.
fn is_silent(window: &Window<'_>) -> bool {
    let nothing = window.arrivals.received == 0 && window.arrivals.dropped == 0;
    nothing && window.span.is_some() && window.left_out == 0
}

/// Lines on windows that were left out and on packets that jumped; empty if there are none.
fn aside(window: &Window<'_>) -> String {
    let mut lines = String::new();
    if window.left_out > 0 && window.span.is_some() {
        let windows = if window.left_out == 1 {
            "window"
        } else {
            "windows"
        };
        let _ = writeln!(
            lines,
            "  left out before it: {} {windows}",
            grouped(window.left_out)
        );
    }
    if window.arrivals.jumped > 0 {
        let _ = writeln!(
            lines,
            "  {} with a time stamp far from the others (jumped)",
            packets(window.arrivals.jumped)
        );
    }
    lines
}

/// Number and cause of dropped packets; `otherwise` if none was dropped.
fn loss(arrivals: &Arrivals, place: Option<&str>, otherwise: &str) -> String {
    let place = place.unwrap_or("source");
    match (arrivals.late, arrivals.dropped) {
        (0, 0) => otherwise.to_owned(),
        (late, 0) => format!("{} dropped: late", grouped(late)),
        (0, lost) => format!("{} dropped: {place}", grouped(lost)),
        (late, lost) => format!(
            "{} dropped: {} late, {} {place}",
            grouped(late + lost),
            grouped(late),
            grouped(lost)
        ),
    }
}

/// Estimated number with its relative error: `562 511 flows (+- 1.6 %)`.
fn how_many(estimate: &Estimate, what: &str) -> String {
    let plural = if estimate.value == 1 { "" } else { "s" };
    let count = format!("{} {what}{plural}", grouped(estimate.value));
    if estimate.plus_minus == 0 || estimate.value == 0 {
        return count;
    }
    format!(
        "{count} (+- {:.1} %)",
        estimate.plus_minus as f64 * 100.0 / estimate.value as f64
    )
}

fn sizes(tally: &Tally) -> String {
    let class = |(i, &packets): (usize, &u64)| {
        (packets > 0).then(|| format!("{} {}", size_label(i), percent(packets, tally.passed)))
    };
    tally
        .sizes
        .iter()
        .enumerate()
        .filter_map(class)
        .collect::<Vec<_>>()
        .join(", ")
}

/// Shares of the packets to all and to some stations, from 1 % on; empty if there are none.
fn groups(arrivals: &Arrivals, tally: &Tally) -> String {
    let share = |(name, packets): (&str, u64)| {
        // After a change of keys, arrivals also have packets from before it.
        let is_shown = (tally.passed.div_ceil(100).max(1)..=tally.passed).contains(&packets);
        is_shown.then(|| format!("{name} {}", percent(packets, tally.passed)))
    };
    let shares = [
        ("broadcast", arrivals.broadcast),
        ("multicast", arrivals.multicast),
    ];
    let shares: Vec<String> = shares.into_iter().filter_map(share).collect();
    match shares.is_empty() {
        true => String::new(),
        false => format!("  {}\n", shares.join(", ")),
    }
}

/// The line in place of a table without a row, with a key that has rows, if there is one.
fn no_row(kind: KeyKind, tally: &Tally) -> String {
    let advice = match kind.is_of_frames() {
        true if tally.passed > tally.keyless.sum() => "; --key host ranks them",
        true if tally.keyless.not_ip > 0 => "; --key ethertype ranks them",
        // The line on packets without a flow key says it.
        _ => "",
    };
    format!("  no packet has this key: {kind}{advice}\n")
}

/// Packets without a flow key, and the tables that have them. If most packets are not IP and in no table, names keys for them.
fn keyless(tally: &Tally, keys: &[KeyKind]) -> String {
    let reasons = keyless_reasons(&tally.keyless)
        .into_iter()
        .filter(|(_, packets)| *packets > 0);
    let reasons: Vec<String> = reasons
        .map(|(why, packets)| format!("{} {why}", grouped(packets)))
        .collect();
    let (having, lacking): (Vec<&KeyKind>, Vec<&KeyKind>) =
        keys.iter().partition(|kind| kind.is_of_frames());
    let names = |kinds: Vec<&KeyKind>| {
        let names: Vec<String> = kinds.into_iter().map(ToString::to_string).collect();
        names.join(" and ")
    };
    let has_none = having.is_empty();
    let tables = match (has_none, lacking.is_empty()) {
        (true, _) => ", in no table".to_owned(),
        (false, true) => String::new(),
        (false, false) => format!(", only in the table by {}", names(having)),
    };
    let is_most = tally.keyless.not_ip > tally.passed / 2;
    let advice = match is_most && has_none {
        true => "; --key ethertype ranks them",
        false => "",
    };
    format!("without flow key{tables}: {}{advice}", reasons.join(", "))
}

fn signed(n: i64) -> String {
    let sign = if n < 0 { '-' } else { '+' };
    format!("{sign}{}", grouped(n.unsigned_abs()))
}

/// `exact`, or the distance from the figure to the lower and upper bound of the truth. Line feeds mark the places to break.
fn bound_text(figure: u64, bound: &Bound) -> String {
    let [below, above] = [
        figure.saturating_sub(bound.lower),
        bound.upper.saturating_sub(figure),
    ]
    .map(grouped);
    match bound.kind {
        _ if is_exact(bound) => "exact".to_owned(),
        BoundKind::Exact => "exact".to_owned(),
        BoundKind::Deterministic => format!("-{below}\n+{above}"),
        BoundKind::Probabilistic { confidence } => {
            // Rounded down, because a probable bound is never certain.
            format!("-{below}\n+{above}\n({} %)", (confidence * 100.0).floor())
        }
        BoundKind::None => "-".to_owned(),
    }
}

/// The range of a change, with its kind. Line feeds mark the places to break.
pub fn bound_of_change(kind: BoundKind, [lower, upper]: [String; 2]) -> String {
    match kind {
        BoundKind::None => "-".to_owned(),
        BoundKind::Probabilistic { confidence } => {
            format!("{lower} ..\n{upper}\n({} %)", (confidence * 100.0).floor())
        }
        BoundKind::Exact | BoundKind::Deterministic => format!("{lower} ..\n{upper}"),
    }
}

/// A figure that does not rank, and the distance to the upper bound of the truth. A line feed marks the place to break.
fn companion_text(figure: u64, bound: &Bound, text: fn(u64) -> String) -> String {
    match bound.upper.saturating_sub(figure) {
        _ if bound.kind == BoundKind::None => text(figure),
        0 => text(figure),
        above => format!("{}\n+{}", text(figure), text(above)),
    }
}

/// Port of one end as text; `-` if there is none.
fn port(key: &FlowKey, source: bool) -> String {
    port_of(key, source).map_or("-".to_owned(), |port| port.to_string())
}

/// Address and port of one end: `10.1.2.3:443`, `[2001:db8::1]:443`, or the address alone.
fn endpoint(key: &FlowKey, source: bool) -> String {
    let text = address(KeyKind::FiveTuple, key, source);
    let Some(port) = port_of(key, source) else {
        return text;
    };
    if key.family == 6 {
        format!("[{text}]:{port}")
    } else {
        format!("{text}:{port}")
    }
}

/// Text of the protocol column for a flow; later fragments are marked.
fn flow_proto(key: &FlowKey) -> String {
    let fragment = if key.flags & FlowKey::LATER_FRAGMENT != 0 {
        " frag"
    } else {
        ""
    };
    format!("{}{fragment}", proto_name(key.proto))
}

/// Columns with the parts of keys; `names` has the texts of names.
pub fn key_columns<'a>(
    (kind, names): (KeyKind, Option<&Names>),
    keys: impl Iterator<Item = &'a FlowKey>,
) -> Vec<Column> {
    use Narrow::{Behind, Below, Stays};
    let keys: Vec<&FlowKey> = keys.collect();
    let column = |title, narrow, cell: &dyn Fn(&FlowKey) -> String| Column {
        title,
        cells: keys.iter().map(|key| cell(key)).collect(),
        right: false,
        narrow,
    };
    let proto = |key: &FlowKey| proto_name(key.proto);
    match kind {
        KeyKind::FiveTuple => vec![
            column("source", Stays, &|key| endpoint(key, true)),
            column("destination", Below, &|key| endpoint(key, false)),
            column("proto", Behind, &flow_proto),
        ],
        KeyKind::Conversation => vec![
            column("one end", Stays, &|key| endpoint(key, true)),
            column("other end", Below, &|key| endpoint(key, false)),
            column("proto", Behind, &flow_proto),
        ],
        KeyKind::Hosts => vec![
            column("one end", Stays, &|key| address(kind, key, true)),
            column("other end", Below, &|key| address(kind, key, false)),
        ],
        KeyKind::Host(_) => vec![column("host", Stays, &|key| address(kind, key, true))],
        KeyKind::Pair => vec![
            column("source", Stays, &|key| address(kind, key, true)),
            column("destination", Below, &|key| address(kind, key, false)),
        ],
        KeyKind::Src(_) => vec![column("source", Stays, &|key| address(kind, key, true))],
        KeyKind::Dst(_) => vec![column("destination", Stays, &|key| {
            address(kind, key, false)
        })],
        KeyKind::Sport => {
            vec![
                column("source port", Stays, &|key| port(key, true)),
                column("proto", Behind, &proto),
            ]
        }
        KeyKind::Dport => {
            vec![
                column("destination port", Stays, &|key| port(key, false)),
                column("proto", Behind, &proto),
            ]
        }
        KeyKind::Proto => vec![column("proto", Stays, &proto)],
        _ => further_columns((kind, names), &keys),
    }
}

/// Columns of keys whose tables show the values of JSON.
fn further_columns((kind, names): (KeyKind, Option<&Names>), keys: &[&FlowKey]) -> Vec<Column> {
    let titles = further_parts(kind, &FlowKey::NONE, None)
        .into_iter()
        .map(|(name, _)| name);
    let rows: Vec<_> = keys
        .iter()
        .map(|key| further_parts(kind, key, names))
        .collect();
    let column = |(i, name): (usize, &'static str)| {
        let cell = |parts: &Vec<(&str, Value)>| match &parts[i].1 {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let title = match name {
            "src" => "source",
            "dst" => "destination",
            "sport" => "source port",
            "dport" => "dest. port",
            other => other,
        };
        let narrow = match (i, name) {
            (0, _) => Narrow::Stays,
            (_, "dst") => Narrow::Below,
            _ => Narrow::Behind,
        };
        Column {
            title,
            cells: rows.iter().map(cell).collect(),
            right: false,
            narrow,
        }
    };
    titles.enumerate().map(column).collect()
}
