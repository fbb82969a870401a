//! Bytes for a terminal: the cells that differ, with sequences of all terminals.
//!
//! **Source**: ECMA-48 (CUP, ED, SGR); DEC private modes 25 and 1049 of xterm's ctlseqs.

use ratatui_core::buffer::{Buffer, Cell};
use ratatui_core::style::{Color, Modifier};
use std::fmt::Write as _;

/// Begins the other screen, which is empty and without a cursor.
pub const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[0m\x1b[2J";

/// Asks the terminal for the colour of its background; the answer comes among the [keys](crate::Keys).
pub const ASK_BACKGROUND: &str = "\x1b]11;?\x1b\\";

/// Shows the cursor, and goes back to the screen before.
pub const LEAVE: &str = "\x1b[0m\x1b[?25h\x1b[?1049l";

/// Empties the screen.
pub const CLEAR: &str = "\x1b[0m\x1b[2J";

/// Returns what turns the picture `before` into `after`, both of one size.
pub fn changes(before: &Buffer, after: &Buffer) -> String {
    let mut out = String::new();
    let mut style = None;
    let mut next = None;
    for (x, y, cell) in before.diff(after) {
        if next != Some((x, y)) {
            let _ = write!(out, "\x1b[{};{}H", y + 1, x + 1);
        }
        let wanted = (cell.fg, cell.modifier);
        if style != Some(wanted) {
            put_style(&mut out, cell);
            style = Some(wanted);
        }
        out.push_str(cell.symbol());
        // A wide character moves the cursor by two.
        let is_narrow = cell.symbol().chars().all(|c| c.is_ascii() || is_drawn(c));
        next = is_narrow.then_some((x + 1, y));
    }
    if style.is_some_and(|style| style != (Color::Reset, Modifier::empty())) {
        out.push_str("\x1b[0m");
    }
    out
}

/// Whether a character is of a graph, and takes one cell.
fn is_drawn(c: char) -> bool {
    matches!(c, '\u{2580}'..='\u{259f}' | '\u{2800}'..='\u{28ff}')
}

fn put_style(out: &mut String, cell: &Cell) {
    out.push_str("\x1b[0");
    let modifiers = [
        (Modifier::BOLD, ";1"),
        (Modifier::DIM, ";2"),
        (Modifier::UNDERLINED, ";4"),
        (Modifier::REVERSED, ";7"),
    ];
    for (modifier, code) in modifiers {
        if cell.modifier.contains(modifier) {
            out.push_str(code);
        }
    }
    out.push_str(match cell.fg {
        Color::Red => ";31",
        Color::Yellow => ";33",
        Color::Blue => ";34",
        Color::Magenta => ";35",
        Color::Cyan => ";36",
        _ => "",
    });
    out.push('m');
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui_core::layout::Rect;
    use ratatui_core::style::Style;

    #[test]
    fn only_what_differs_is_sent() {
        let before = Buffer::empty(Rect::new(0, 0, 20, 2));
        let mut after = before.clone();
        after.set_string(
            2,
            1,
            "ab",
            Style::new().fg(Color::Red).add_modifier(Modifier::BOLD),
        );
        after.set_string(5, 1, "c", Style::new());
        let sent = changes(&before, &after);
        assert_eq!(sent, "\x1b[2;3H\x1b[0;1;31mab\x1b[2;6H\x1b[0mc");
        assert_eq!(changes(&after, &after), "");
    }
}
