//! Text for cells.

use std::fmt::Write as _;
use weir_packet::text::printable;

/// Text in one line that cannot steer a terminal: control characters, marks of the direction of writing, and all other characters that are
/// neither letters nor digits are escaped. With `ascii`, letters outside ASCII are also escaped.
pub fn clean(text: &str, ascii: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for c in printable(text).chars() {
        let stays = c == ' ' || c.is_ascii_graphic() || (!ascii && c.is_alphanumeric());
        let _ = match stays {
            true => out.write_char(c),
            false => write!(out, "\\u{:04x}", u32::from(c)),
        };
    }
    out
}

/// A text of at most `room` characters: of a longer one, the begin and the end.
pub(crate) fn shortened(text: &str, room: usize) -> String {
    let length = text.chars().count();
    if length <= room {
        return text.to_owned();
    }
    let kept = room.saturating_sub(2);
    let end = kept / 2;
    let begin: String = text.chars().take(kept - end).collect();
    let end: String = text.chars().skip(length - end).collect();
    let dots = "..";
    format!("{begin}{}{end}", &dots[..room.min(2)])
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
    }

    #[test]
    fn long_texts_keep_both_ends() {
        assert_eq!(shortened("0123456789", 10), "0123456789");
        assert_eq!(shortened("0123456789", 8), "012..789");
        assert_eq!(shortened("0123456789", 2), "..");
        assert_eq!(shortened("0123456789", 1), ".");
        assert_eq!(shortened("0123456789", 0), "");
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
