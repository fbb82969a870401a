//! The screen of a sender: what `weir generate --watch` and `weir replay --watch` draw, and what their keys ask for.
//!
//! ```text
//! head      port, traffic, whether it sends, for how long
//! asked     the wanted rate
//! reached   packets and bits in the last second, and a graph of the time before
//! sent      packets and bytes so far
//! missed    refused packets, and how late the last packet was
//! arrived   packets at the other end, if they are received there
//! ports     packets of each, if there are two
//! streams   packets of each
//! state     what is typed, or the answer to it
//! keys
//! ```

use crate::graph;
use crate::keys::Key;
use crate::look::Look;
use crate::text::{begin, clean, shortened};
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::Style;
use weir_messages::numbers::{bit_rate, bytes, grouped, latency, percent, rate};

/// Least width and height of a terminal for a sender.
const LEAST: (u16, u16) = (56, 12);

/// Place of the figures, after their names.
const FIGURES: u16 = 10;

/// Least time between the two moments of a rate, s.
const SECOND_S: f64 = 0.9;

/// Step of the rate for a key.
const STEP: f64 = 1.1;

/// Most characters that are typed.
const LONGEST: usize = 200;

/// Counts at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Moment {
    /// Time since the sender began, s.
    pub at_s: f64,
    /// Packets that left.
    pub sent: u64,
    /// Bytes of these frames, without FCS.
    pub bytes: u64,
}

/// Packets that arrived at the other end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrived {
    /// Packets, each counted once.
    pub received: u64,
    /// Arrivals of packets that had arrived before.
    pub duplicated: u64,
    /// Packets after a later one.
    pub reordered: u64,
    /// Packets that left after the packet of the latest arrival.
    pub after_the_last: u64,
    /// Whether the interface that receives has no link.
    pub is_down: bool,
}

/// State of one of two ports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortState {
    /// Name of the port.
    pub name: String,
    /// Packets that left by it.
    pub sent: u64,
    /// Packets that it refused.
    pub refused: u64,
    /// Lateness of its last packet, ns.
    pub late_ns: u64,
    /// Whether an order stopped it alone.
    pub is_stopped: bool,
    /// Packets that were left out while it was stopped.
    pub left_out: u64,
}

/// State of a sender.
#[derive(Clone, Debug, Default)]
pub struct Sending {
    /// Name of the port.
    pub port: String,
    /// Name of the traffic.
    pub traffic: String,
    /// Whether it sends a capture.
    pub is_replay: bool,
    /// Wanted rate, as requests name it; `None`: times of the traffic's own.
    pub rate: Option<String>,
    /// Packets that the port refused.
    pub refused: u64,
    /// Lateness of the last packet, ns.
    pub late_ns: u64,
    /// Whether it was stopped by an order.
    pub is_stopped: bool,
    /// Packets at the other end, if they are received there.
    pub arrived: Option<Arrived>,
    /// The ports, if there are two.
    pub ports: Vec<PortState>,
    /// Names of the streams, and packets of each.
    pub streams: Vec<(String, u64)>,
    /// Counts each half second, the latest at the end.
    pub past: Vec<Moment>,
}

impl Sending {
    /// Packets and bits a second in the second before a moment.
    fn rates_at(&self, end: usize) -> Option<(f64, f64)> {
        let last = self.past.get(end)?;
        let mut before = self.past[..end].iter().rev();
        let first = before.find(|it| last.at_s - it.at_s >= SECOND_S)?;
        let per_s = |more: u64| more as f64 / (last.at_s - first.at_s);
        let bits = per_s(last.bytes.saturating_sub(first.bytes)) * 8.0;
        Some((per_s(last.sent.saturating_sub(first.sent)), bits))
    }

    /// Numbers of packets under way, and of missing packets. A packet is under way for at most a second, and only as
    /// long as no later one has arrived.
    fn open(&self, arrived: &Arrived) -> (u64, u64) {
        let last = self.now();
        let mut past = self.past.iter().rev();
        let before = past.find(|it| last.at_s - it.at_s >= SECOND_S);
        let young = last.sent - before.map_or(0, |it| it.sent.min(last.sent));
        let open = last.sent.saturating_sub(arrived.received);
        let under_way = arrived.after_the_last.min(young).min(open);
        (under_way, open - under_way)
    }

    fn now(&self) -> Moment {
        self.past.last().copied().unwrap_or_default()
    }

    fn reached(&self) -> Option<(f64, f64)> {
        self.rates_at(self.past.len().checked_sub(1)?)
    }
}

/// A number and its unit: `100000pps`.
fn parts(rate: &str) -> Option<(f64, &str)> {
    let end = rate.find(|c: char| c.is_ascii_alphabetic() || c == '%')?;
    let (number, unit) = rate.split_at(end);
    Some((number.parse().ok()?, unit))
}

/// A rate as people say it.
fn rate_words(text: Option<&str>) -> String {
    match text.map(|text| (text, parts(text))) {
        None => "times of its own".to_owned(),
        Some((_, Some((per_s, "pps")))) => format!("{} packets/s", rate(per_s)),
        Some((_, Some((per_s, "bit/s")))) => bit_rate(per_s),
        Some((_, Some((times, "x")))) => format!("{times} times as fast as captured"),
        Some(("max", _)) => "as fast as the port takes packets".to_owned(),
        Some((other, _)) => other.to_owned(),
    }
}

/// Effect of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// No effect.
    None,
    /// End the sender.
    End,
    /// Stop the process, as Ctrl-Z does.
    Suspend,
    /// Draw all cells again.
    Redraw,
    /// Let no packet leave.
    Stop,
    /// Go on.
    Start,
    /// Leave out the packets of a port, or let them leave again: its name, and whether they are left out.
    Port(String, bool),
    /// Change a setting: its name, and its value.
    Set(&'static str, String),
}

/// State of the keys.
#[derive(Clone, Debug, Default)]
pub struct SenderUi {
    /// The setting that is typed, and its text so far.
    typed: Option<(&'static str, String)>,
    message: Option<String>,
    /// A line that a script has printed.
    pub printed: Option<String>,
    /// Whether the page of the keys is shown.
    has_help: bool,
}

impl SenderUi {
    /// Shows a message until the next key.
    pub fn say(&mut self, message: String) {
        self.message = Some(message);
    }

    /// Takes a key.
    pub fn press(&mut self, key: Key, sending: &Sending) -> Effect {
        match key {
            Key::Interrupt => return Effect::End,
            Key::Suspend => return Effect::Suspend,
            Key::Redraw => return Effect::Redraw,
            Key::Background { .. } => return Effect::None,
            _ => {}
        }
        self.message = None;
        if std::mem::take(&mut self.has_help) && key != Key::Char('q') {
            return Effect::None;
        }
        if let Some((what, text)) = &mut self.typed {
            match key {
                Key::Char(c) if text.chars().count() < LONGEST => text.push(c),
                Key::Backspace => {
                    text.pop();
                }
                Key::Clear => text.clear(),
                Key::Esc => self.typed = None,
                Key::Enter => {
                    let effect = Effect::Set(what, std::mem::take(text));
                    self.typed = None;
                    return effect;
                }
                _ => {}
            }
            return Effect::None;
        }
        match key {
            Key::Char('q') => return Effect::End,
            Key::Char('?') => self.has_help = true,
            Key::Char(' ') if sending.is_stopped => return Effect::Start,
            Key::Char(' ') => return Effect::Stop,
            Key::Char(number @ ('1' | '2')) => {
                let port = sending.ports.get(usize::from(number == '2'));
                if let Some(port) = port {
                    return Effect::Port(port.name.clone(), !port.is_stopped);
                }
            }
            Key::Char('+') | Key::Up => return stepped(sending, STEP),
            Key::Char('-') | Key::Down => return stepped(sending, 1.0 / STEP),
            Key::Char('r') => self.typed = Some(("rate", String::new())),
            Key::Char('x') if sending.is_replay => self.typed = Some(("speed", String::new())),
            Key::Char('s') if !sending.is_replay => self.typed = Some(("sizes", String::new())),
            Key::Char('f') if !sending.is_replay => self.typed = Some(("field", String::new())),
            _ => {}
        }
        Effect::None
    }
}

/// A rate that is higher or lower by a step. Without a rate, it begins with the rate that was reached.
fn stepped(sending: &Sending, factor: f64) -> Effect {
    match sending.rate.as_deref().and_then(parts) {
        Some((times, "x")) => Effect::Set("speed", three_digits(times * factor)),
        Some((per_s, unit)) => Effect::Set("rate", three_digits(per_s * factor) + unit),
        None => match sending.reached() {
            Some((per_s, _)) if per_s > 0.0 => {
                Effect::Set("rate", three_digits(per_s * factor) + "pps")
            }
            _ => Effect::None,
        },
    }
}

/// A number rounded to three digits.
fn three_digits(number: f64) -> String {
    let digits = 10_f64.powf(number.log10().floor() - 2.0);
    let rounded = (number / digits).round() * digits;
    match digits {
        1.0.. => format!("{rounded:.0}"),
        _ => format!("{rounded:.4}")
            .trim_end_matches('0')
            .trim_end_matches('.')
            .to_owned(),
    }
}

/// Draws a sender.
pub fn draw_sender(sending: &Sending, ui: &SenderUi, (look, area): (Look, Rect)) -> Buffer {
    let mut page = Page {
        buffer: Buffer::empty(area),
        look,
        line: 0,
    };
    if area.width < LEAST.0 || area.height < LEAST.1 {
        let words = format!("weir needs {} x {} characters", LEAST.0, LEAST.1);
        page.put(0, 0, &words, look.plain());
        return page.buffer;
    }
    page.head(sending);
    if ui.has_help {
        page.help(sending);
        return page.buffer;
    }
    page.rates(sending);
    page.counts(sending);
    page.ports(sending);
    page.streams(sending);
    page.foot(sending, ui);
    page.buffer
}

/// A picture that is drawn from its first line to its last.
struct Page {
    buffer: Buffer,
    look: Look,
    line: u16,
}

impl Page {
    /// Puts text from a place on; what does not fit is left out. Returns the place after it.
    fn put(&mut self, x: u16, y: u16, text: &str, style: Style) -> u16 {
        let area = self.buffer.area;
        if x >= area.width || y >= area.height {
            return x;
        }
        let room = usize::from(area.width - x);
        self.buffer.set_stringn(x, y, text, room, style).0
    }

    /// Puts a line of figures, parts that do not fit left out.
    fn figures(&mut self, name: &str, parts: &[(String, Style)]) {
        let y = self.line;
        self.put(1, y, name, self.look.accent());
        let mut x = FIGURES;
        for (text, style) in parts {
            if usize::from(x) + text.len() > usize::from(self.buffer.area.width) {
                break;
            }
            x = self.put(x, y, text, *style) + 2;
        }
        self.line += 1;
    }

    fn head(&mut self, sending: &Sending) {
        let look = self.look;
        let (state, style) = match sending.is_stopped {
            true => ("stopped", look.warning()),
            false => ("sending", look.plain()),
        };
        let time = format!("{:.0} s", sending.now().at_s);
        let width = self.buffer.area.width;
        let right = width - 2 - (state.len() + 2 + time.len()) as u16;
        let x = self.put(right, 0, state, style);
        self.put(x + 2, 0, &time, look.plain());
        let command = match sending.is_replay {
            true => "weir replay",
            false => "weir generate",
        };
        let x = self.put(1, 0, command, look.accent()) + 2;
        let port = clean(&sending.port, look.ascii);
        let room = usize::from(right.saturating_sub(x + 2));
        let x = self.put(x, 0, &shortened(&port, room), look.chosen()) + 2;
        let traffic = clean(&sending.traffic, look.ascii);
        let room = usize::from(right.saturating_sub(x + 2));
        if room >= 8 {
            self.put(x, 0, &shortened(&traffic, room), look.plain());
        }
        self.line = 2;
    }

    /// The keys, and what the figures say.
    fn help(&mut self, sending: &Sending) {
        let look = self.look;
        let of_traffic = match sending.is_replay {
            true => &[("x", "set the speed: 2 is twice as fast as captured")][..],
            false => &[
                ("s", "set the sizes: 60-1514, imix, 60:7,1514:1"),
                ("f", "set a field: ipv4.ttl=9, udp.dst=53,123:random"),
            ],
        };
        let before = [
            ("+ -, arrows", "raise or lower the rate by a tenth"),
            ("r", "set the rate: 2kpps, 1Gbit/s, 50%, max"),
        ];
        let after = [
            ("space", "stop: no packet leaves; again: go on"),
            ("^L, ^Z", "draw again; suspend (fg goes on)"),
            ("q, ^C", "end the sender"),
        ];
        let of_ports = match sending.ports.is_empty() {
            true => &[][..],
            false => &[("1, 2", "leave out packets of this port; again: go on")],
        };
        let all = before.iter().chain(of_traffic).chain(of_ports);
        for (keys, does) in all.chain(&after) {
            self.put(1, self.line, keys, look.accent());
            self.put(14, self.line, does, look.plain());
            self.line += 1;
        }
        let height = self.buffer.area.height;
        if height > self.line + 7 {
            self.line += 1;
            for (name, is) in [
                ("reached", "packets that left in the last second"),
                ("missed", "packets that the port did not take; lateness"),
                ("arrived", "packets at the other end (--receive)"),
                ("twice", "arrivals of packets that had arrived before"),
            ] {
                self.put(1, self.line, name, look.faint());
                self.put(14, self.line, is, look.plain());
                self.line += 1;
            }
        }
        self.put(1, height - 1, "any key goes back  q end", look.faint());
    }

    fn rates(&mut self, sending: &Sending) {
        let look = self.look;
        let asked = rate_words(sending.rate.as_deref());
        self.figures("asked", &[(asked, look.chosen())]);
        let mut reached = Vec::new();
        match sending.reached() {
            None => reached.push(("-".to_owned(), look.plain())),
            Some((packets, bits)) => {
                reached.push((format!("{} packets/s", rate(packets)), look.chosen()));
                reached.push((bit_rate(bits), look.plain()));
                let wanted = match sending.rate.as_deref().and_then(parts) {
                    Some((per_s, "pps")) => Some(packets / per_s),
                    Some((per_s, "bit/s")) => Some(bits / per_s),
                    _ => None,
                };
                if let Some(share) = wanted.filter(|_| !sending.is_stopped) {
                    let style = match share {
                        0.98.. => look.plain(),
                        _ => look.warning(),
                    };
                    reached.push((format!("{:.1} % of the rate", share * 100.0), style));
                }
            }
        }
        self.figures("reached", &reached);
        let height = if self.buffer.area.height >= 22 { 2 } else { 1 };
        let width = usize::from(self.buffer.area.width - FIGURES - 2);
        let all = 0..sending.past.len();
        let values: Vec<f64> = all
            .map(|end| sending.rates_at(end).map_or(0.0, |(packets, _)| packets))
            .collect();
        let shown = &values[values.len().saturating_sub(2 * width)..];
        let largest = shown.iter().fold(0.0, |a: f64, b| a.max(*b));
        for text in graph::lines(shown, largest, (width, height), (false, look.ascii)) {
            self.put(FIGURES, self.line, &text, look.plain());
            self.line += 1;
        }
    }

    fn counts(&mut self, sending: &Sending) {
        let look = self.look;
        let Moment {
            sent, bytes: sum, ..
        } = sending.now();
        let sent_words = vec![
            (format!("{} packets", grouped(sent)), look.chosen()),
            (bytes(sum), look.plain()),
        ];
        self.figures("sent", &sent_words);
        let refused = match sending.refused {
            0 => look.plain(),
            _ => look.alarm(),
        };
        let late = latency(sending.late_ns.try_into().unwrap_or(i64::MAX));
        let late_style = match sending.late_ns {
            10_000_000.. => look.warning(),
            _ => look.plain(),
        };
        let missed = vec![
            (format!("{} refused", grouped(sending.refused)), refused),
            (format!("last packet {late} late"), late_style),
        ];
        self.figures("missed", &missed);
        if let Some(arrived) = sending.arrived {
            let (under_way, missing) = sending.open(&arrived);
            let mut counts = vec![
                (grouped(arrived.received), look.chosen()),
                (format!("{} missing", grouped(missing)), look.plain()),
                (
                    format!("{} twice", grouped(arrived.duplicated)),
                    look.plain(),
                ),
                (
                    format!("{} reordered", grouped(arrived.reordered)),
                    look.plain(),
                ),
                (format!("{} under way", grouped(under_way)), look.plain()),
            ];
            if arrived.is_down {
                counts.insert(1, ("no link".to_owned(), look.alarm()));
            }
            self.figures("arrived", &counts);
        }
    }

    fn ports(&mut self, sending: &Sending) {
        let look = self.look;
        for (number, port) in (1..).zip(&sending.ports) {
            let name = clean(&port.name, look.ascii);
            let (state, style) = match port.is_stopped {
                true => ("stopped", look.warning()),
                false => ("", look.plain()),
            };
            let mut parts = vec![
                (shortened(&name, 16), look.plain()),
                (grouped(port.sent), look.chosen()),
            ];
            if port.is_stopped {
                parts.push((state.to_owned(), style));
            }
            if port.left_out > 0 {
                parts.push((format!("{} left out", grouped(port.left_out)), look.plain()));
            }
            if port.refused > 0 {
                parts.push((format!("{} refused", grouped(port.refused)), look.alarm()));
            }
            let late = latency(port.late_ns.try_into().unwrap_or(i64::MAX));
            parts.push((format!("{late} late"), look.plain()));
            self.figures(&format!("port {number}"), &parts);
        }
    }

    fn streams(&mut self, sending: &Sending) {
        let look = self.look;
        let end = self.buffer.area.height - 3;
        if sending.streams.is_empty() || self.line + 3 > end {
            return;
        }
        self.line += 1;
        let width = usize::from(self.buffer.area.width);
        let name_room = width.saturating_sub(30).min(40);
        let title = format!("{:<name_room$} {:>14} {:>8}", "stream", "packets", "share");
        self.put(1, self.line, &title, look.accent());
        self.line += 1;
        let sum = sending.streams.iter().map(|stream| stream.1).sum();
        let room = usize::from(end - self.line);
        let hidden = sending.streams.len().saturating_sub(room);
        let shown = match hidden {
            0 => room,
            _ => room - 1,
        };
        for (name, packets) in sending.streams.iter().take(shown) {
            let name = shortened(&clean(name, look.ascii), name_room);
            let text = format!(
                "{name:<name_room$} {:>14} {:>8}",
                grouped(*packets),
                percent(*packets, sum)
            );
            self.put(1, self.line, &text, look.plain());
            self.line += 1;
        }
        if hidden > 0 {
            let more = format!("{} more", hidden + 1);
            self.put(1, self.line, &more, look.faint());
        }
    }

    fn foot(&mut self, sending: &Sending, ui: &SenderUi) {
        let look = self.look;
        let height = self.buffer.area.height;
        let room = usize::from(self.buffer.area.width) - 2;
        if let Some((what, text)) = &ui.typed {
            let example = match *what {
                "rate" if sending.is_replay => "2kpps, 1Gbit/s, original, max",
                "rate" => "2kpps, 1Gbit/s, max",
                "speed" => "2",
                "sizes" => "imix, 60-1514, 60:7,1514:1",
                _ => "ipv4.ttl=9, udp.dst=53,123:random",
            };
            let prompt = format!("{what} ({example}): {}_", clean(text, look.ascii));
            let end = prompt.chars().count().saturating_sub(room);
            let shown: String = prompt.chars().skip(end).collect();
            self.put(1, height - 2, &shown, look.chosen());
        } else if let Some(message) = &ui.message {
            let message = clean(message, look.ascii);
            self.put(1, height - 2, begin(&message, room), look.warning());
        } else if let Some(line) = &ui.printed {
            let line = clean(line, look.ascii);
            self.put(1, height - 2, begin(&line, room), look.plain());
        }
        let space = match sending.is_stopped {
            true => "start",
            false => "stop",
        };
        let more = match sending.is_replay {
            true => "x speed",
            false => "s sizes  f field",
        };
        let ports = match sending.ports.is_empty() {
            true => "",
            false => "  1 2 port",
        };
        let keys = format!("q end  space {space}  +- r rate  {more}{ports}  ? help");
        self.put(1, height - 1, &keys, look.faint());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_ask_for_what_the_control_socket_takes() {
        let mut sending = Sending {
            rate: Some("100000pps".to_owned()),
            ..Sending::default()
        };
        let mut ui = SenderUi::default();
        let set = |what, value: &str| Effect::Set(what, value.to_owned());
        let press = |ui: &mut SenderUi, key, sending: &Sending| ui.press(key, sending);
        assert_eq!(press(&mut ui, Key::Up, &sending), set("rate", "110000pps"));
        assert_eq!(
            press(&mut ui, Key::Char('-'), &sending),
            set("rate", "90900pps")
        );
        // There are no two ports.
        assert_eq!(press(&mut ui, Key::Char('1'), &sending), Effect::None);
        for key in "r2kppq".chars() {
            assert_eq!(press(&mut ui, Key::Char(key), &sending), Effect::None);
        }
        press(&mut ui, Key::Backspace, &sending);
        press(&mut ui, Key::Char('s'), &sending);
        assert_eq!(press(&mut ui, Key::Enter, &sending), set("rate", "2kpps"));
        press(&mut ui, Key::Char('x'), &sending);
        assert_eq!(press(&mut ui, Key::Char(' '), &sending), Effect::Stop);
        sending.is_stopped = true;
        assert_eq!(press(&mut ui, Key::Char(' '), &sending), Effect::Start);
        sending.is_replay = true;
        sending.ports = [("one", false), ("two", true)]
            .map(|(name, is_stopped)| PortState {
                name: name.to_owned(),
                is_stopped,
                ..PortState::default()
            })
            .to_vec();
        let port = |name: &str, stops| Effect::Port(name.to_owned(), stops);
        assert_eq!(press(&mut ui, Key::Char('1'), &sending), port("one", true));
        assert_eq!(press(&mut ui, Key::Char('2'), &sending), port("two", false));
        for (rate, effect) in [
            (Some("0.5pps"), set("rate", "0.55pps")),
            (Some("2x"), set("speed", "2.2")),
            (Some("1000000000bit/s"), set("rate", "1100000000bit/s")),
            (Some("max"), Effect::None),
            (None, Effect::None),
        ] {
            sending.rate = rate.map(str::to_owned);
            assert_eq!(press(&mut ui, Key::Char('+'), &sending), effect);
        }
        // Without a rate, the reached one is the begin.
        sending.past = (0..3)
            .map(|half| Moment {
                at_s: f64::from(half) / 2.0,
                sent: half as u64 * 5000,
                bytes: 0,
            })
            .collect();
        assert_eq!(
            press(&mut ui, Key::Char('+'), &sending),
            set("rate", "11000pps")
        );
        press(&mut ui, Key::Char('s'), &sending);
        assert_eq!(press(&mut ui, Key::Char('q'), &sending), Effect::End);
        // Any key leaves the help, and does nothing else.
        press(&mut ui, Key::Char('?'), &sending);
        assert_eq!(press(&mut ui, Key::Char('+'), &sending), Effect::None);
        assert_eq!(
            press(&mut ui, Key::Char('+'), &sending),
            set("rate", "11000pps")
        );
        press(&mut ui, Key::Char('x'), &sending);
        assert_eq!(press(&mut ui, Key::Char('q'), &sending), Effect::None);
        assert_eq!(press(&mut ui, Key::Interrupt, &sending), Effect::End);
    }
}
