//! Text for terminals: escaped, and wrapped to their width.

use std::fmt::Write as _;
use std::io;
use std::os::fd::AsFd;
pub use weir_messages::json::{line as json, unversioned};
pub use weir_packet::text::printable;

/// Columns of the terminal after `stream`; `None` if there is no terminal or its width is unknown.
pub fn width(stream: impl AsFd) -> Option<usize> {
    terminal_size::terminal_size_of(stream).map(|(width, _)| width.0.into())
}

/// Columns for text on standard output: its terminal's, or without a terminal the variable COLUMNS.
pub fn output_width() -> Option<usize> {
    width(io::stdout()).or_else(asked_width)
}

/// Columns for help, as the parser needs them: any terminal's of this process, or without a
/// terminal the variable COLUMNS.
pub fn help_width() -> Option<usize> {
    terminal_size::terminal_size()
        .map(|(width, _)| width.0.into())
        .or_else(asked_width)
}

fn asked_width() -> Option<usize> {
    std::env::var("COLUMNS")
        .ok()?
        .parse()
        .ok()
        .filter(|&columns| columns > 0)
}

/// Columns that `text` takes. Wide characters of East Asia and pictographs take two.
pub fn columns(text: &str) -> usize {
    let wide = |c: char| {
        matches!(c, '\u{1100}'..='\u{115f}' | '\u{2e80}'..='\u{a4cf}' | '\u{ac00}'..='\u{d7a3}' | '\u{f900}'..='\u{faff}'
            | '\u{fe30}'..='\u{fe6f}' | '\u{ff00}'..='\u{ff60}' | '\u{ffe0}'..='\u{ffe6}' | '\u{1f300}'..='\u{1faff}'
            | '\u{20000}'..='\u{3fffd}')
    };
    text.chars().map(|c| 1 + usize::from(wide(c))).sum()
}

/// Text with the lines wider than `width` broken at blanks. Continuation lines are indented by `hang` more than their line.
/// A number stays with the next word, and a word with a parenthesis after it. A word wider than a line stays whole.
pub fn wrapped(text: &str, width: Option<usize>, hang: usize) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        match width {
            Some(width) if columns(line.trim_end_matches('\n')) > width => {
                wrap_line(&mut out, line, width, hang)
            }
            _ => out.push_str(line),
        }
    }
    out
}

fn wrap_line(out: &mut String, line: &str, width: usize, hang: usize) {
    let (body, end) = line
        .strip_suffix('\n')
        .map_or((line, ""), |body| (body, "\n"));
    let body = body.trim_end_matches(' ');
    let indent = body.len() - body.trim_start_matches(' ').len() + hang;
    let (mut column, mut rest, mut first) = (0, body, true);
    while !rest.is_empty() {
        let gap = rest.len() - rest.trim_start_matches(' ').len();
        let (unit, left) =
            rest[gap..].split_at(unit_len(&rest[gap..], width.saturating_sub(indent)));
        if !first && column + gap + columns(unit) > width {
            let _ = write!(out, "\n{:indent$}{unit}", "");
            column = indent + columns(unit);
        } else {
            let _ = write!(out, "{:gap$}{unit}", "");
            column += gap + columns(unit);
        }
        (rest, first) = (left, false);
    }
    out.push_str(end);
}

/// Length in bytes of the first word of `text` and of the words that stay with it, if they fit into `room` columns.
fn unit_len(text: &str, room: usize) -> usize {
    let word = |from: usize| text[from..].find(' ').map_or(text.len(), |at| from + at);
    let mut end = word(0);
    while end < text.len() {
        let next = &text[end + 1..];
        let number = text[..end].ends_with(|c: char| c.is_ascii_digit() || c == '-' || c == '+');
        let belongs = (number || next.starts_with('(')) && !next.starts_with(' ');
        let longer = word(end + 1);
        if !belongs || columns(&text[..longer]) > room {
            break;
        }
        end = longer;
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cut_at_blanks_and_numbers_stay_with_their_words() {
        let line = "demo.pcap  1 000 000 packets  919 MB  no loss        66 195 flows (+- 1.6 %)\n";
        assert_eq!(wrapped(line, None, 2), line);
        assert_eq!(wrapped(line, Some(80), 2), line);
        assert_eq!(
            wrapped(line, Some(60), 2),
            "demo.pcap  1 000 000 packets  919 MB  no loss\n  66 195 flows (+- 1.6 %)\n"
        );
        assert_eq!(
            wrapped("  a bb ccc\n  dd e", Some(6), 1),
            "  a bb\n   ccc\n  dd e"
        );
        assert_eq!(
            wrapped("much-too-long a b\n", Some(5), 2),
            "much-too-long\n  a b\n"
        );
        assert_eq!(wrapped("", Some(5), 2), "");
        let sentence =
            "what 12 345 678 packets and (in parentheses) 99.9 % of wide 漢字漢字 characters do "
                .repeat(5);
        for width in 20..200 {
            let text = wrapped(&sentence, Some(width), 4);
            assert!(
                text.lines().all(|line| columns(line) <= width),
                "{width}: {text}"
            );
            assert_eq!(
                text.split_whitespace().collect::<Vec<_>>(),
                sentence.split_whitespace().collect::<Vec<_>>(),
                "{width}"
            );
        }
    }
}
