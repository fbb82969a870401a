//! Text for cells.

use ratatui_core::buffer::{Buffer, Cell};
use std::fmt::Write as _;
use weir_packet::text::printable;

/// Text in one line that cannot steer a terminal, and whose width is known: all characters but ASCII and plain letters are
/// escaped. With `ascii`, letters outside ASCII are also escaped.
pub fn clean(text: &str, ascii: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for c in printable(text).chars() {
        let stays = c == ' ' || c.is_ascii_graphic() || (!ascii && is_plain(c));
        let _ = match stays {
            true => out.write_char(c),
            false => write!(out, "\\u{:04x}", u32::from(c)),
        };
    }
    out
}

/// Lines of a picture, without blanks at their ends.
pub fn lines(picture: &Buffer) -> String {
    let mut text = String::new();
    for line in picture.content.chunks(picture.area.width.max(1).into()) {
        let line: String = line.iter().map(Cell::symbol).collect();
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Whether a character is a letter or a digit of a script that is written from left to right without marks above or below other
/// letters: Latin, Greek, Cyrillic, Armenian, Georgian, and those [of two cells](is_wide).
fn is_plain(c: char) -> bool {
    let is_narrow = matches!(c,
        '\u{c0}'..='\u{2af}' | '\u{370}'..='\u{587}' | '\u{10a0}'..='\u{10ff}' | '\u{1e00}'..='\u{1fff}');
    c.is_alphanumeric() && (is_narrow || is_wide(c))
}

/// Whether a letter takes two cells: Japanese, Chinese, Korean. **Source**: Unicode's EastAsianWidth.txt.
fn is_wide(c: char) -> bool {
    matches!(c,
        '\u{3041}'..='\u{3096}' | '\u{30a1}'..='\u{30fa}' | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{ac00}'..='\u{d7a3}')
}

/// Number of cells that a cleaned text takes.
pub(crate) fn cells(text: &str) -> usize {
    text.chars().map(|c| 1 + usize::from(is_wide(c))).sum()
}

/// The first characters of a text, as far as they fit into `room` cells.
pub(crate) fn begin(text: &str, room: usize) -> &str {
    let mut left = room;
    let fits = |(_, c): &(usize, char)| {
        let rest = left.checked_sub(1 + usize::from(is_wide(*c)));
        left = rest.unwrap_or(0);
        rest.is_some()
    };
    let last = text.char_indices().take_while(fits).last();
    last.map_or("", |(at, c)| &text[..at + c.len_utf8()])
}

/// A text of at most `room` cells: of a longer one, the begin and the end.
pub(crate) fn shortened(text: &str, room: usize) -> String {
    if cells(text) <= room {
        return text.to_owned();
    }
    let kept = room.saturating_sub(2);
    let turned: String = text.chars().rev().collect();
    let end: String = begin(&turned, kept / 2).chars().rev().collect();
    let begin = begin(text, kept - kept / 2);
    let dots = "..";
    format!("{begin}{}{end}", &dots[..room.min(2)])
}

/// The name of a key in at most `room` cells. Of two ends, each is shortened on its own, since the begin of one and the end of the other would
/// look like an address.
pub(crate) fn shortened_key(name: &str, room: usize) -> String {
    /// Least cells of an end.
    const LEAST: usize = 8;
    let ends = [" > ", " <> "]
        .into_iter()
        .find_map(|middle| Some((middle, name.split_once(middle)?)));
    // If little is left out, it is in the middle, and the ends can be read.
    let is_far = 4 * room < 3 * cells(name);
    let Some((middle, (first, other))) = ends.filter(|_| is_far) else {
        return shortened(name, room);
    };
    // A protocol stands after the other end.
    let (other, proto) = other.split_at(other.find(' ').unwrap_or(other.len()));
    let left = room.saturating_sub(cells(middle) + cells(proto));
    if left < 2 * LEAST {
        return shortened(name, room);
    }
    let half = left / 2;
    let of_first = cells(first).min(half.max(left.saturating_sub(cells(other))));
    let [first, other] = [
        shortened(first, of_first),
        shortened(other, left - of_first),
    ];
    format!("{first}{middle}{other}{proto}")
}

/// The lines of a text, of at most `room` cells each, broken at blanks where possible.
pub(crate) fn lines_of(text: &str, room: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for mut word in text.split(' ') {
        let last = lines.last_mut().expect("there is a line");
        let blank = usize::from(!last.is_empty());
        if cells(last) + blank + cells(word) <= room {
            last.push_str(&" "[..blank]);
            last.push_str(word);
            continue;
        }
        while cells(word) > room {
            let part = begin(word, room.max(2));
            word = &word[part.len()..];
            lines.push(part.to_owned());
        }
        lines.push(word.to_owned());
    }
    lines.retain(|line| !line.is_empty());
    lines
}

/// A rate of packets: `41.2 kpps`.
pub(crate) fn packet_rate(per_s: f64) -> String {
    let (mut value, mut unit) = (per_s, 0);
    const UNITS: [&str; 4] = ["pps", "kpps", "Mpps", "Gpps"];
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    let digits = usize::from(unit > 0 && value < 99.95);
    format!("{value:.digits$} {}", UNITS[unit])
}

/// A time in one unit: `14 min`.
pub(crate) fn age(ns: i64) -> String {
    let seconds = ns.max(0) / 1_000_000_000;
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_steers_the_terminal() {
        let hostile = "a\u{1b}[31mb\u{202e}c\u{9b}d\u{300}e\u{200b}f\n\u{feff}\u{e0001}";
        let shown = clean(hostile, false);
        assert!(shown.chars().all(|c| c.is_ascii_graphic()), "{shown}");
        assert_eq!(clean("Zürich 漢", false), "Zürich 漢");
        assert_eq!(clean("Zürich", true), "Z\\u00fcrich");
        // Letters that are written from the right, or above others.
        assert_eq!(clean("א\u{93f}\u{e31}", false), "\\u05d0\\u093f\\u0e31");
    }

    #[test]
    fn long_texts_keep_both_ends() {
        assert_eq!(shortened("0123456789", 10), "0123456789");
        assert_eq!(shortened("0123456789", 8), "012..789");
        assert_eq!(shortened("0123456789", 2), "..");
        assert_eq!(shortened("0123456789", 1), ".");
        assert_eq!(shortened("0123456789", 0), "");
        assert_eq!(shortened("漢字漢字漢", 10), "漢字漢字漢");
        assert_eq!(shortened("漢字漢字漢", 9), "漢字..漢");
        assert_eq!(shortened("漢字漢字漢", 5), "漢..");
        assert_eq!(begin("a漢", 2), "a");
    }

    #[test]
    fn each_end_of_a_key_is_shortened_on_its_own() {
        let pair = "2001:db8:1:2:3:4:5:6 > 2001:db8:a:b:c:d:e:f";
        for room in 0..60 {
            assert!(cells(&shortened_key(pair, room)) <= room);
        }
        assert_eq!(shortened_key(pair, 25), "2001:..:5:6 > 2001:..:e:f");
        assert_eq!(shortened_key(pair, 33), shortened(pair, 33));
        let flow = "10.0.0.1:80 <> [2001:db8:a:b:c:d:e:f]:443 tcp";
        assert_eq!(shortened_key(flow, 33), "10.0.0.1:80 <> [2001:..f]:443 tcp");
        assert_eq!(shortened_key(flow, 45), flow);
        assert_eq!(shortened_key("0123456789", 8), "012..789");
        assert_eq!(
            lines_of(pair, 24),
            ["2001:db8:1:2:3:4:5:6 >", "2001:db8:a:b:c:d:e:f"]
        );
        assert_eq!(lines_of("0123456789 a", 4), ["0123", "4567", "89 a"]);
    }

    #[test]
    fn short_numbers() {
        let rates = [0.0, 999.0, 1000.0, 41_200.0, 999_600.0, 14_880_000.0];
        let shown = rates.map(packet_rate);
        assert_eq!(
            shown,
            [
                "0 pps",
                "999 pps",
                "1.0 kpps",
                "41.2 kpps",
                "1.0 Mpps",
                "14.9 Mpps"
            ]
        );
        let ages = [0, 119, 120, 7199, 7200, 172_800].map(|s| age(s * 1_000_000_000));
        assert_eq!(ages, ["0 s", "119 s", "2 min", "119 min", "2 h", "2 d"]);
    }
}
