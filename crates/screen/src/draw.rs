//! Drawing: a buffer from a scene.
//!
//! ```text
//! head       sources, speed of the link, clock, losses
//! in, out    graphs that share an axis, rates
//! findings   one to three lines
//! mix        the largest services, and what TCP sent again
//! tabs       with the order and the time that is shown
//! table      titles, and rows in columns
//! state      what is typed, a message, or the state of the sources
//! keys
//! ```

use crate::columns::{Placed, placed};
use crate::rows::Row;
use crate::scene::{Scene, Status};
use crate::text::{begin, cells, clean, packet_rate, shortened};
use crate::ui::{Asked, Tab, current};
use crate::{detail, graph, help};
use core::cmp::Reverse;
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::Style;
use std::borrow::Cow;
use weir_measure::{KeyKind, bits_per_second, per_second};
use weir_messages::measured::name;
use weir_messages::numbers::{bit_rate, grouped, percent};
use weir_packet::time::{Digits, Shape, Stamp};
use weir_view::{Finding, Kind, Point, State};

/// Least width and height of a terminal.
pub const LEAST: (u16, u16) = (56, 12);

/// Least height of a terminal whose graphs have two lines, and its findings three.
const HIGH: u16 = 36;

/// Characters before a graph, and after it.
const BEFORE_GRAPH: u16 = 5;
const AFTER_GRAPH: u16 = 49;
const AFTER_SHORT_GRAPH: u16 = 25;

/// Least width of a terminal that shows shares and peaks.
const WIDE: u16 = 76;

/// Places of the parts of a screen.
struct Places {
    width: u16,
    height: u16,
    graph: u16,
    findings: u16,
    mix: u16,
}

impl Places {
    fn of(area: Rect) -> Self {
        let (graph, findings, mix) = match area.height {
            HIGH.. => (2, 3, 1),
            22.. => (1, 2, 1),
            _ => (1, 1, 0),
        };
        Self {
            width: area.width,
            height: area.height,
            graph,
            findings,
            mix,
        }
    }

    fn tabs(&self) -> u16 {
        1 + 2 * self.graph + self.findings + self.mix
    }

    fn rows(&self) -> u16 {
        self.tabs() + 2
    }

    fn state(&self) -> u16 {
        self.height - 2
    }

    fn room(&self) -> usize {
        self.state().saturating_sub(self.rows()).into()
    }

    fn graph_width(&self) -> u16 {
        let after = match self.width {
            WIDE.. => AFTER_GRAPH,
            _ => AFTER_SHORT_GRAPH,
        };
        self.width - BEFORE_GRAPH - after
    }
}

/// Rows of a table that fit into a terminal, and the points of its graph.
pub fn points(area: Rect) -> (usize, usize) {
    let places = Places::of(area);
    match is_too_small(area) {
        true => (1, 1),
        false => (places.room(), usize::from(places.graph_width()) * 2),
    }
}

fn is_too_small(area: Rect) -> bool {
    area.width < LEAST.0 || area.height < LEAST.1
}

/// Draws a scene. [`Ui::arrange`](crate::Ui::arrange) has ordered its rows. **Cost**: of the cells and of the points of the graph.
pub fn draw(scene: &Scene<'_>, area: Rect) -> Buffer {
    let mut buffer = Buffer::empty(area);
    let mut canvas = Canvas {
        scene,
        places: Places::of(area),
        buffer: &mut buffer,
    };
    if is_too_small(area) {
        let words = format!("weir needs {} x {} characters", LEAST.0, LEAST.1);
        canvas.put(0, 0, &words, Style::new());
        return buffer;
    }
    if let Some(page) = scene.ui.help {
        help::draw(&mut canvas, page);
    } else {
        canvas.head();
        canvas.graphs();
        canvas.findings();
        canvas.mix();
        canvas.tabs();
        match scene.ui.opened() {
            Some(chosen) => detail::draw(&mut canvas, chosen),
            None => canvas.table(),
        }
    }
    canvas.state();
    canvas.keys();
    buffer
}

/// A buffer that is drawn.
pub(crate) struct Canvas<'a> {
    pub scene: &'a Scene<'a>,
    places: Places,
    buffer: &'a mut Buffer,
}

impl Canvas<'_> {
    /// Puts text from a place on; what does not fit is left out. Returns the place after it.
    pub fn put(&mut self, x: u16, y: u16, text: &str, style: Style) -> u16 {
        let area = self.buffer.area;
        if x >= area.width || y >= area.height {
            return x;
        }
        let room = usize::from(area.width - x);
        self.buffer.set_stringn(x, y, text, room, style).0
    }

    /// First and last line for the rows of a table.
    pub fn lines(&self) -> (u16, u16) {
        (self.places.rows() - 1, self.places.state())
    }

    /// Width and height.
    pub fn size(&self) -> (u16, u16) {
        (self.places.width, self.places.height)
    }

    /// Time of day.
    pub fn clock(&self, ns: i64) -> String {
        clock(ns, self.scene.about.east_s)
    }

    fn put_right(&mut self, y: u16, text: &str, style: Style) {
        let length = u16::try_from(cells(text)).unwrap_or(u16::MAX);
        let x = self.places.width.saturating_sub(length + 1);
        self.put(x, y, text, style);
    }

    fn head(&mut self) {
        let (about, look) = (self.scene.about, self.scene.look);
        let losses: Vec<_> = about
            .losses
            .iter()
            .filter(|(_, count)| *count > 0)
            .collect();
        let (loss, style) = match &losses[..] {
            [] if about.is_loss_unknown => ("loss unknown".to_owned(), look.alarm()),
            [] if about.holds_only.is_some() => ("holds a part".to_owned(), look.warning()),
            [] if about.is_loss_to_come => ("loss not read yet".to_owned(), look.plain()),
            [] if about.lacks_loss_counter => ("loss not recorded".to_owned(), look.plain()),
            [] => ("no loss".to_owned(), look.plain()),
            some => {
                let sum = some.iter().map(|(_, count)| count).sum();
                let causes: Vec<&str> = some.iter().map(|(cause, _)| cause.as_str()).collect();
                let words = format!("lost {}: {}", grouped(sum), causes.join(", "));
                (words, look.alarm())
            }
        };
        let loss = shortened(&clean(&loss, look.ascii), 30);
        self.put_right(0, &loss, style);
        let mut right = self.places.width - 1 - cells(&loss) as u16;
        let up = about.up_s.map(|up| {
            let (hours, minutes) = (up / 3600, up / 60 % 60);
            format!("up {hours:02}:{minutes:02}:{:02}", up % 60)
        });
        let now = Some(clock(about.now_ns, about.east_s));
        let speed = about.link_bits_per_s.map(bit_rate);
        let left = 6;
        // The more important come first.
        let name = clean(&about.sources, look.ascii);
        let speed_room = speed.as_ref().map_or(0, |speed| speed.len() as u16 + 2);
        let least = left + (cells(&name) as u16).min(12) + 2 + speed_room;
        for words in [up.filter(|_| self.places.width >= 72), now]
            .into_iter()
            .flatten()
        {
            let length = words.chars().count() as u16 + 2;
            if right >= least + length {
                right -= length;
                self.put(right, 0, &words, look.plain());
            }
        }
        self.put(1, 0, "weir", look.accent());
        let room = right.saturating_sub(left + 1 + speed_room);
        let x = self.put(left, 0, &shortened(&name, room.into()), look.chosen());
        if let Some(speed) = speed.filter(|speed| x + 2 + (speed.len() as u16) < right) {
            self.put(x + 2, 0, &speed, look.plain());
        }
    }

    fn graphs(&mut self) {
        let about = self.scene.about;
        let points = self
            .scene
            .snapshot
            .map_or(&[][..], |snapshot| &snapshot.points);
        // Of a moment alone, there is no rate.
        let bits = |part: fn(&Point) -> u64| -> Vec<Option<f64>> {
            let rate = |point: &Point| bits_per_second(part(point), point.totals.covered_ns);
            points.iter().map(rate).collect()
        };
        let packets = |part: fn(&Point) -> u64| -> Vec<Option<f64>> {
            let rate = |point: &Point| per_second(part(point), point.totals.covered_ns);
            points.iter().map(rate).collect()
        };
        let (upper, lower, names) = if about.has_sides {
            let rx = (
                bits(|it| it.totals.arrivals.rx.bytes),
                packets(|it| it.totals.arrivals.rx.packets),
            );
            let tx = (
                bits(|it| it.totals.arrivals.tx.bytes),
                packets(|it| it.totals.arrivals.tx.packets),
            );
            (rx, tx, ["in", "out"])
        } else {
            let all = (
                bits(|it| it.totals.measured.bytes),
                packets(|it| it.totals.measured.packets),
            );
            let none = (Vec::new(), Vec::new());
            (all, none, ["all", ""])
        };
        let known = upper.0.iter().chain(&lower.0).flatten();
        let largest = known.fold(0.0, |a: f64, b| a.max(*b));
        let height = self.places.graph;
        for (hangs, (bits, packets)) in [(false, &upper), (true, &lower)] {
            let from = if hangs { 1 + height } else { 1 };
            let size = (self.places.graph_width().into(), height.into());
            let drawn: Vec<f64> = bits.iter().map(|rate| rate.unwrap_or(0.0)).collect();
            let lines = graph::lines(&drawn, largest, size, (hangs, self.scene.look.ascii));
            for (line, y) in lines.iter().zip(from..) {
                self.put(BEFORE_GRAPH, y, line, self.scene.look.plain());
            }
            // The words are beside the axis.
            let y = if hangs { from } else { from + height - 1 };
            let name = names[usize::from(hangs)];
            self.put(1, y, name, self.scene.look.accent());
            if !name.is_empty() {
                self.rates(y, bits, packets);
            }
        }
        self.local();
    }

    /// The rate of packets between local hosts, which are in neither graph, above the words on the upper one.
    fn local(&mut self) {
        let points = self.scene.snapshot.map(|snapshot| &snapshot.points[..]);
        let now = points.and_then(|points| points.last());
        let Some(totals) = now.map(|point| &point.totals) else {
            return;
        };
        let local = totals.arrivals.local;
        if local.packets == 0 || self.places.graph < 2 {
            return;
        }
        let x = BEFORE_GRAPH + self.places.graph_width() + 1;
        let rate = bits_per_second(local.bytes, totals.covered_ns);
        let rate = rate.map_or("-".to_owned(), bit_rate);
        let text = format!("{rate:>11} local");
        self.put(x, self.places.graph - 1, &text, self.scene.look.plain());
    }

    fn rates(&mut self, y: u16, bits: &[Option<f64>], packets: &[Option<f64>]) {
        let (about, look) = (self.scene.about, self.scene.look);
        let x = BEFORE_GRAPH + self.places.graph_width() + 1;
        let now = bits.last().copied().flatten();
        let text = now.map_or("-".to_owned(), bit_rate);
        self.put(x, y, &format!("{text:>11}"), look.chosen());
        let pace = packets.last().copied().flatten();
        let pace = pace.map_or("-".to_owned(), packet_rate);
        if self.places.width < WIDE {
            self.put(x + 12, y, &format!("{pace:>10}"), look.plain());
            return;
        }
        if let (Some(now), Some(speed)) = (now, about.link_bits_per_s) {
            let share = now / speed;
            let text = format!("{:.0} %", share * 100.0);
            self.put(x + 12, y, &format!("{text:>6}"), look.fullness(share));
        }
        self.put(x + 19, y, &format!("{pace:>10}"), look.plain());
        let peak = bits.iter().flatten().fold(0.0, |a: f64, b| a.max(*b));
        let text = format!("peak {:>11}", bit_rate(peak));
        self.put(x + 31, y, &text, look.faint());
    }

    fn findings(&mut self) {
        let look = self.scene.look;
        let from = 1 + 2 * self.places.graph;
        let findings: Vec<&Finding> = current(self.scene.snapshot).collect();
        let room = usize::from(self.places.findings);
        if findings.is_empty() {
            let words = match self.scene.snapshot {
                Some(_) if self.scene.about.lacks.findings => {
                    "findings are not looked for (--findings)"
                }
                Some(_) => "no findings",
                None => "",
            };
            self.put(1, from, words, look.faint());
            return;
        }
        // If one is chosen, it is in sight.
        let chosen = self.scene.ui.finding;
        let place = findings.iter().position(|it| Some(it.number) == chosen);
        let first = place.map_or(0, |place| (place + 1).saturating_sub(room));
        for (line, finding) in findings.iter().skip(first).take(room).enumerate() {
            let is_last = line + 1 == room;
            let more = findings.len().saturating_sub(first + line + 1);
            let more = match more {
                0 => String::new(),
                more => format!("  +{more}"),
            };
            let more = if is_last { more.as_str() } else { "" };
            let room = usize::from(self.places.width) - 4 - more.len();
            let words = clean(&finding_words(finding, self.scene.about.east_s), look.ascii);
            let mark = if chosen == Some(finding.number) {
                ">"
            } else {
                " "
            };
            let style = match finding.state {
                State::Begun => look.warning(),
                _ => look.faint(),
            };
            let text = format!("{mark}! {}{more}", cut(&words, room));
            self.put(0, from + line as u16, &text, style);
        }
    }

    /// The largest services, and what TCP sent again: whichever tab is open, they answer the next questions.
    fn mix(&mut self) {
        let look = self.scene.look;
        let shown = self.scene.snapshot.filter(|_| self.places.mix > 0);
        let Some(snapshot) = shown else { return };
        let y = self.places.tabs() - self.places.mix;
        let tcp = snapshot.health.as_ref().and_then(|it| it.tcp.as_ref());
        let mut room = usize::from(self.places.width) - 2;
        if let Some(sum) = tcp.map(|it| it.sum).filter(|sum| sum.packets > 0) {
            let again = sum.retransmitted;
            let share = percent(again, sum.packets);
            let words = format!("tcp: {} sent again, {share}", grouped(again));
            let style = match again {
                0 => look.faint(),
                _ => look.warning(),
            };
            self.put_right(y, &words, style);
            room -= cells(&words) + 2;
        }
        let mut tables = snapshot.tables.iter();
        let Some(table) = tables.find(|table| table.kind == KeyKind::Service) else {
            return;
        };
        let mut services: Vec<_> = table.rows.iter().map(|row| &row.listed).collect();
        services.sort_by_key(|listed| Reverse(listed.counts.bytes));
        let mut x = self.put(1, y, "services", look.accent());
        for listed in services {
            let all = snapshot.totals.measured.bytes;
            if listed.counts.bytes < all / 1000 {
                break;
            }
            let share = percent(listed.counts.bytes, all);
            let title = clean(&name(table.kind, &listed.key), look.ascii);
            let words = format!("{title} {share}");
            if usize::from(x) + 2 + cells(&words) > room {
                break;
            }
            x = self.put(x + 2, y, &words, look.plain());
        }
    }

    fn tabs(&mut self) {
        let (look, ui) = (self.scene.look, self.scene.ui);
        let y = self.places.tabs();
        let key = ui.further();
        let narrow = self.places.width < if key.is_some() { 100 } else { 76 };
        let mut x = 1;
        for (place, tab) in Tab::ALL.into_iter().enumerate() {
            if tab == Tab::Key && key.is_none() {
                continue;
            }
            let title = match (tab, key) {
                (Tab::Key, Some(kind)) => shortened(&kind.to_string(), 10),
                (Tab::Conversations, _) if narrow => "conv".to_owned(),
                _ => tab.title().to_owned(),
            };
            let style = match ui.tab == tab {
                true => look.accent(),
                false => look.faint(),
            };
            let text = match ui.tab == tab {
                true => format!("[{} {title}]", place + 1),
                false => format!(" {} {title} ", place + 1),
            };
            x = self.put(x - 1, y, &text, style) + 1;
        }
        let words = self.time_words();
        let order = format!("by {}  {words}", ui.order_name());
        let room = usize::from(self.places.width.saturating_sub(x + 1));
        let text = [order, words]
            .into_iter()
            .find(|text| text.chars().count() <= room);
        if let Some(text) = text {
            self.put_right(y, &text, look.plain());
        }
    }

    /// The time that is shown.
    fn time_words(&self) -> String {
        let Some(snapshot) = self.scene.snapshot else {
            return String::new();
        };
        let has_steps = !matches!(self.scene.ui.tab, Tab::Dns | Tab::Tcp);
        let length = match snapshot.span.seconds() {
            60 if has_steps => "1 min".to_owned(),
            seconds if has_steps => format!("{seconds} s"),
            // Health is kept by seconds.
            _ => "1 s".to_owned(),
        };
        match self.scene.ui.is_past() {
            true => format!("at {}, {length}", self.clock(snapshot.from_ns)),
            false => format!("last {length}"),
        }
    }

    fn table(&mut self) {
        let (look, ui) = (self.scene.look, self.scene.ui);
        let columns = placed(ui.tab, self.places.width);
        let y = self.places.rows() - 1;
        for column in &columns {
            self.cell(y, column, column.title, look.accent());
        }
        let first = self.places.rows();
        if ui.rows().is_empty() {
            let words = self.empty_words();
            self.put(3, first, &words, look.faint());
        }
        let room = self.places.room();
        let shown = ui.rows().iter().enumerate().skip(ui.top).take(room);
        for ((place, row), y) in shown.zip(first..) {
            let is_chosen = ui.chosen.as_ref().is_some_and(|it| it.place == place);
            self.row(y, &columns, row, is_chosen);
        }
    }

    fn row(&mut self, y: u16, columns: &[Placed], row: &Row, is_chosen: bool) {
        let look = self.scene.look;
        let style = match is_chosen {
            true => look.chosen(),
            false => look.plain(),
        };
        if is_chosen {
            self.put(1, y, ">", look.accent());
        }
        for column in columns {
            let title = (column.index == 0).then(|| row.title_in(column.width.into()));
            let cell = row.cells.get(column.index);
            let text = title.as_ref().or(cell).map_or("", String::as_str);
            let style = match column.title {
                // Segments sent again are losses.
                "again" if text != "0" && text != "-" => look.warning(),
                _ => style,
            };
            self.cell(y, column, text, style);
        }
    }

    fn cell(&mut self, y: u16, column: &Placed, text: &str, style: Style) {
        let width = usize::from(column.width);
        let text = shortened(text, width);
        let text = match column.left {
            true => text,
            false => format!("{text:>width$}"),
        };
        self.put(column.x, y, &text, style);
    }

    fn empty_words(&self) -> Cow<'static, str> {
        let ui = self.scene.ui;
        let (snapshot, lacks) = (self.scene.snapshot, &self.scene.about.lacks);
        let without = |part| format!("not measured: the run looks at no {part} (--health)").into();
        match (ui.tab, ui.kind(), snapshot) {
            (Tab::Tcp, ..) if lacks.tcp => return without("tcp"),
            (Tab::Dns, ..) if lacks.dns => return without("dns"),
            (_, Some(kind), Some(snapshot)) => {
                let kinds = snapshot.tables.iter().map(|table| table.kind);
                let kinds: Vec<String> = kinds.map(|kind| kind.to_string()).collect();
                if !kinds.is_empty() && !kinds.contains(&kind.to_string()) {
                    let kinds = kinds.join(", ");
                    return format!("not measured: the run counts {kinds}, and no {kind} (--key)")
                        .into();
                }
            }
            _ => {}
        }
        self.usual_empty_words().into()
    }

    fn usual_empty_words(&self) -> &'static str {
        let ui = self.scene.ui;
        let snapshot = self.scene.snapshot;
        let has_health = snapshot.is_some_and(|it| it.health.is_some());
        let has_packets = snapshot.is_some_and(|it| it.totals.measured.packets > 0);
        match ui.tab {
            _ if self.scene.snapshot.is_none() => match self.scene.about.status {
                Status::Ended => "no packets in this time",
                _ => "",
            },
            _ if !ui.only_rows.is_empty() => "no row has this text: / changes it, Esc removes it",
            Tab::Tcp | Tab::Dns if !has_health && has_packets => {
                "not kept for this time: steps of 1 s (t) have it for 10 minutes"
            }
            Tab::Tcp => "no TCP conversation in this second",
            Tab::Dns => "no DNS in this second",
            _ if self.leaves_rows_out() => "its rows are not among the largest of all",
            _ => "no packets in this time",
        }
    }

    /// Whether a row is open, and the table below it is chosen from the largest rows alone.
    fn leaves_rows_out(&self) -> bool {
        let ui = self.scene.ui;
        let tables = self.scene.snapshot.map(|it| it.tables.iter());
        let table = tables.and_then(|mut it| it.find(|table| Some(table.kind) == ui.kind()));
        let is_open = ui.crumbs.last().is_some_and(|crumb| crumb.only.is_some());
        is_open && !ui.has_detail && table.is_some_and(|table| table.rest.counts.packets > 0)
    }

    /// The line above the keys.
    fn state(&mut self) {
        let (about, ui, look) = (self.scene.about, self.scene.ui, self.scene.look);
        let y = self.places.state();
        let room = usize::from(self.places.width) - 2;
        if let Some(input) = &ui.input {
            let title = match input.asked {
                Asked::Rows => "rows /",
                Asked::Capture => "capture: ",
                Asked::Key => "key: ",
            };
            let cursor = if look.ascii { "_" } else { "█" };
            let typed = clean(&input.text, look.ascii);
            let kept = room.saturating_sub(title.len() + 1);
            // The end of a long line is in sight.
            let tail: Vec<char> = typed.chars().collect();
            let tail: String = tail[tail.len().saturating_sub(kept)..].iter().collect();
            let x = self.put(1, y, title, look.accent());
            let x = self.put(x, y, &format!("{tail}{cursor}"), look.plain());
            if let Some(problem) = &input.problem {
                self.words(x + 2, &clean(problem, look.ascii), look.warning());
            }
            return;
        }
        if let Some(question) = &ui.question {
            let blank = " ".repeat(self.places.width.into());
            self.put(0, y - 1, &blank, look.plain());
            for (words, y) in question.words.iter().zip(y - 1..) {
                self.put(1, y, &shortened(words, room), look.accent());
            }
            return;
        }
        let status = || match (&about.status, &about.holds_only, self.scene.snapshot) {
            (Status::Ended, Some(part), _) => Some(format!("holds only: {part}")),
            (Status::Running, _, Some(snapshot)) if ui.is_past() && about.is_live => {
                let time = self.clock(snapshot.from_ns);
                Some(format!("paused at {time}, packets are measured: p goes on"))
            }
            (status, ..) => status.words(),
        };
        let is_alarm = about.status.is_alarm();
        // An answer to a key does not hide that nothing is captured any more.
        let words = match (&ui.note, status()) {
            (Some(note), Some(status)) if is_alarm && *note != status => {
                Some(format!("{status}; {note}"))
            }
            (note, status) => note.clone().or(status),
        };
        let words = words.or_else(|| about.message.clone());
        let of_largest = "rows are of the largest of all alone";
        let words = words.or_else(|| self.leaves_rows_out().then(|| of_largest.to_owned()));
        let style = if is_alarm { look.alarm() } else { look.plain() };
        let mut parts: Vec<String> = Vec::new();
        if !ui.crumbs.is_empty() {
            let crumbs = ui.crumbs.iter().map(|crumb| crumb.words.as_str());
            let all: Vec<&str> = std::iter::once("all").chain(crumbs).collect();
            parts.push(all.join(" > "));
        }
        if !ui.only_rows.is_empty() {
            parts.push(format!("rows /{}", clean(&ui.only_rows, look.ascii)));
        }
        if !about.filter.is_empty() {
            parts.push(format!("capture: {}", clean(&about.filter, look.ascii)));
        }
        let mut x = 1;
        let left = parts.join("  ");
        if !left.is_empty() {
            x = self.put(1, y, &shortened(&left, room), look.accent()) + 2;
        }
        let room = usize::from(self.places.width.saturating_sub(x + 1));
        match words {
            Some(words) => self.words(x, &clean(&words, look.ascii), style),
            None => self.whole_name(x, y, room),
        }
    }

    /// A message from `x` on in the line of state. What has no room there follows above it, in the last lines of the table.
    fn words(&mut self, x: u16, text: &str, style: Style) {
        let y = self.places.state();
        let width = usize::from(self.places.width);
        if text.chars().count() <= width.saturating_sub(usize::from(x) + 1) {
            self.put(x, y, text, style);
            return;
        }
        let lines = wrapped(text, width - 2);
        let most = self.places.room().min(6);
        let shown = &lines[..lines.len().min(most)];
        let first = y - shown.len() as u16;
        let blank = " ".repeat(width);
        for (line, y) in shown.iter().zip(first..) {
            self.put(0, y, &blank, Style::new());
            self.put(1, y, line, style);
        }
    }

    /// The name of the chosen row, if it has no room in its column.
    fn whole_name(&mut self, x: u16, y: u16, room: usize) {
        let ui = self.scene.ui;
        let first = placed(ui.tab, self.places.width)
            .first()
            .map_or(0, |it| it.width);
        let chosen = ui.chosen.as_ref().map(|chosen| chosen.name.as_str());
        if let Some(name) = chosen.filter(|name| cells(name) > first.into()) {
            let name = shortened(name, room);
            self.put(x, y, &name, self.scene.look.faint());
        }
    }

    fn keys(&mut self) {
        let ui = self.scene.ui;
        let offered = ui.question.as_ref();
        let offered = offered.map(|it| ["Enter writes", it.save.option(), "Esc leaves it"]);
        let keys: &[&str] = match &offered {
            Some(keys) => keys,
            None => self.usual_keys(),
        };
        let y = self.places.height - 1;
        let mut x = 1;
        for key in keys {
            let length = key.chars().count() as u16;
            if x + length + 1 > self.places.width {
                break;
            }
            let (name, does) = match key.split_once(' ') {
                Some(both) if offered.is_some() => both,
                _ => key.rsplit_once(' ').unwrap_or((key, "")),
            };
            let (name, does) = match key.strip_prefix("Tab ") {
                Some(tabs) => ("Tab", tabs),
                None => (name, does),
            };
            let next = self.put(x, y, name, self.scene.look.accent());
            self.put(next + 1, y, does, self.scene.look.faint());
            x += length + 2;
        }
    }

    fn usual_keys(&self) -> &'static [&'static str] {
        let ui = self.scene.ui;
        match () {
            () if ui.input.is_some() => &["Enter takes it", "Esc leaves it", "^U empties it"],
            () if ui.has_more_help() => &["? more", "any other key goes back", "q quit"],
            () if ui.help.is_some() => &["any key goes back", "q quit"],
            () if ui.has_detail => &["Esc back", "p pause", "< > time", "? help", "q quit"],
            () => &[
                "q quit",
                "? help",
                "Enter open",
                "Esc back",
                "/ rows",
                "f filter",
                "s order",
                "p pause",
                "< > time",
                "t step",
                "k key",
                "Tab 1-6",
                "w packets",
                "B bundle",
            ],
        }
    }
}

/// Lines of at most `width` characters, cut between words as far as they have blanks.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    let mut length = 0;
    for word in text.split(' ') {
        let mut word: Vec<char> = word.chars().collect();
        if length > 0 && length + 1 + word.len() > width {
            lines.push(std::mem::take(&mut line));
            length = 0;
        }
        if length > 0 {
            line.push(' ');
            length += 1;
        }
        while word.len() > width {
            lines.push(word.drain(..width).collect());
        }
        length += word.len();
        line.extend(word);
    }
    lines.push(line);
    lines
}

/// The first characters of a text that has no room.
fn cut(text: &str, room: usize) -> String {
    match cells(text) > room {
        true => format!("{}..", begin(text, room.saturating_sub(2))),
        false => text.to_owned(),
    }
}

fn clock(ns: i64, east_s: i32) -> String {
    let mut text = String::new();
    Stamp(ns).write(&mut text, Shape::Clock, Digits::Micro, east_s);
    text.truncate("00:00:00".len());
    text
}

/// A finding in a line.
fn finding_words(finding: &Finding, east_s: i32) -> String {
    let kind = finding.kind.name().replace('_', " ");
    let host = finding
        .host
        .map_or(String::new(), |host| format!(" {host}"));
    let time = clock(finding.begin_ns, east_s);
    let end = match finding.state {
        State::Begun => "",
        _ => " (ended)",
    };
    let of = match finding.kind {
        Kind::Scan | Kind::Flood | Kind::Storm => "in 1 s ",
        Kind::SlowDns | Kind::Loss | Kind::NewHost => "",
    };
    format!("{kind}{host}{end} since {time}: {of}{}", finding.row)
}

/// Whether the sources have ended or failed.
impl Status {
    /// Whether the last packet was read.
    pub fn is_over(&self) -> bool {
        matches!(self, Self::Ended | Self::Gone(_) | Self::Damaged(_))
    }
}
