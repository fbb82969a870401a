//! Tables of text that fit the terminal.
//!
//! If a table is wider than the terminal, these steps are taken in order until it fits:
//!
//! 1. Long texts are broken into lines: IPv6 addresses after a colon, other cells at a line feed, which is otherwise
//!    printed as a blank.
//! 2. Columns marked [`Narrow::Below`] are moved below the column before, then those marked
//!    [`Narrow::Behind`] after it.
//! 3. Columns marked [`Narrow::Leaves`] are left out in the order of their numbers.
//! 4. Texts are broken into shorter pieces.

use crate::terminal::columns as width_of;
use std::fmt::Write as _;

/// A column: its title, its cells, their alignment (`right` for figures), and its place in a narrow table.
#[derive(Clone, Debug)]
pub struct Column {
    pub title: &'static str,
    pub cells: Vec<String>,
    pub right: bool,
    pub narrow: Narrow,
}

impl Column {
    /// A column of text that stays.
    pub fn left(title: &'static str, cells: impl Iterator<Item = String>) -> Self {
        Self {
            title,
            cells: cells.collect(),
            right: false,
            narrow: Narrow::Stays,
        }
    }

    /// A column of figures that stays.
    pub fn right(title: &'static str, cells: impl Iterator<Item = String>) -> Self {
        Self {
            right: true,
            ..Self::left(title, cells)
        }
    }
}

/// Treatment of a column in a table wider than the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Narrow {
    /// The column stays.
    Stays,
    /// Cells are moved below the cells of the previous column.
    Below,
    /// Cells are moved after the cells of the previous column, into the same line if there is room.
    Behind,
    /// The column is left out; the lowest number goes first.
    Leaves(u8),
}

/// Smallest width of a text column before other columns are left out: an IPv4 address and a port.
const LEAST: usize = 22;

/// Smallest width of a text column at all: three groups of an IPv6 address.
const TIGHT: usize = 16;

/// Blanks before the first column, and between columns.
const GAP: usize = 2;

/// Rows of cells, each column as wide as its widest cell. If there is a `width`, the table is made to fit it.
pub fn grid(columns: &[Column], width: Option<usize>) -> String {
    let laid = lay_out(columns, width);
    let rows = laid.first().map_or(0, |column| column.rows.len());
    let mut out = String::new();
    for row in 0..rows {
        let height = laid
            .iter()
            .map(|column| column.rows[row].len())
            .max()
            .unwrap_or(0);
        for line in 0..height {
            let mut text = String::new();
            for column in &laid {
                let cell = column.rows[row].get(line).map_or("", String::as_str);
                let pad = column.width - width_of(cell);
                let (before, after) = if column.right { (pad, 0) } else { (0, pad) };
                // Not by the width of a format, which has 16 bits.
                let blanks = |count: usize| " ".repeat(count);
                let _ = write!(text, "{}{cell}{}", blanks(GAP + before), blanks(after));
            }
            out.push_str(text.trim_end());
            out.push('\n');
        }
    }
    out
}

/// Text for a cell: the first 160 characters, and a sign that more follow.
pub fn shortened(text: &str) -> String {
    shortened_to(160, text)
}

/// The first `most` characters of a text, and a sign that more follow.
pub fn shortened_to(most: usize, text: &str) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

/// A column ready to print: the lines of its title, then the lines of each cell.
struct Laid {
    rows: Vec<Vec<String>>,
    right: bool,
    width: usize,
}

/// Columns merged into one: each cell has parts, and each part begins a line.
#[derive(Clone)]
struct Stack {
    rows: Vec<Vec<String>>,
    right: bool,
    narrow: Narrow,
}

impl Stack {
    fn of(column: &Column) -> Self {
        let title = std::iter::once(column.title.to_owned());
        let rows = title
            .chain(column.cells.iter().cloned())
            .map(|cell| vec![cell])
            .collect();
        Self {
            rows,
            right: column.right,
            narrow: column.narrow,
        }
    }

    fn below(&mut self, column: &Self) {
        self.rows
            .iter_mut()
            .zip(&column.rows)
            .for_each(|(own, other)| own.extend_from_slice(other));
    }

    fn behind(&mut self, column: &Self) {
        for (own, other) in self.rows.iter_mut().zip(&column.rows) {
            let last = own.last_mut().expect("a cell has a part");
            let _ = write!(last, "\n{}", other.join("\n"));
        }
    }

    /// The cells in lines of at most `room` columns. Pieces that cannot be broken may be wider.
    fn folded(&self, room: usize) -> Laid {
        let lines = |parts: &Vec<String>| {
            parts
                .iter()
                .flat_map(|part| fold(part, room, !self.right))
                .collect()
        };
        let rows: Vec<Vec<String>> = self.rows.iter().map(lines).collect();
        let width = rows
            .iter()
            .flatten()
            .map(|line| width_of(line))
            .max()
            .unwrap_or(0);
        Laid {
            rows,
            right: self.right,
            width,
        }
    }
}

fn lay_out(columns: &[Column], width: Option<usize>) -> Vec<Laid> {
    let mut stacks: Vec<Stack> = columns.iter().map(Stack::of).collect();
    let whole = || {
        columns
            .iter()
            .map(|column| Stack::of(column).folded(usize::MAX))
            .collect()
    };
    let Some(width) = width else { return whole() };
    if let Some(laid) = fit(&stacks, width, LEAST) {
        return laid;
    }
    for narrow in [Narrow::Below, Narrow::Behind] {
        for i in (1..stacks.len()).rev() {
            if stacks[i].narrow == narrow {
                let column = stacks.remove(i);
                if narrow == Narrow::Below {
                    stacks[i - 1].below(&column)
                } else {
                    stacks[i - 1].behind(&column)
                }
            }
        }
        if let Some(laid) = fit(&stacks, width, LEAST) {
            return laid;
        }
    }
    let order = |stack: &Stack| {
        if let Narrow::Leaves(order) = stack.narrow {
            Some(order)
        } else {
            None
        }
    };
    while let Some(first) = stacks.iter().filter_map(order).min() {
        stacks.retain(|stack| order(stack) != Some(first));
        if let Some(laid) = fit(&stacks, width, LEAST) {
            return laid;
        }
    }
    fit(&stacks, width, TIGHT)
        .unwrap_or_else(|| stacks.iter().map(|stack| stack.folded(TIGHT)).collect())
}

/// The columns within `width`, the widest made narrower first. Text columns never get narrower than `least`; `None` if that
/// does not suffice.
fn fit(stacks: &[Stack], width: usize, least: usize) -> Option<Vec<Laid>> {
    let mut laid: Vec<Laid> = stacks
        .iter()
        .map(|stack| stack.folded(usize::MAX))
        .collect();
    let mut fixed = vec![false; laid.len()];
    while laid.iter().map(|column| column.width + GAP).sum::<usize>() > width {
        let (i, widest) = laid
            .iter()
            .map(|column| column.width)
            .enumerate()
            .filter(|(i, _)| !fixed[*i])
            .max_by_key(|(_, width)| *width)?;
        let narrower = stacks[i].folded(widest.saturating_sub(1).max(1));
        fixed[i] = narrower.width >= widest || !stacks[i].right && widest <= least;
        if !fixed[i] {
            laid[i] = narrower;
        }
    }
    Some(laid)
}

/// The lines of `cell`, at most `room` columns wide. A wider piece stays whole.
fn fold(cell: &str, room: usize, text: bool) -> Vec<String> {
    let mut lines = vec![String::new()];
    for piece in pieces(cell, text) {
        let line = lines.last_mut().expect("there is always a line");
        if line.is_empty() || width_of(line) + width_of(piece.trim_end()) <= room {
            line.push_str(&piece.replace('\n', " "));
        } else {
            line.truncate(line.trim_end().len());
            lines.push(piece.replace('\n', " "));
        }
    }
    lines
}

/// Pieces of `cell`, broken at line feeds. Text is also broken at blanks and after the colons of an IPv6 address, whose
/// port stays with the last group.
fn pieces(cell: &str, text: bool) -> Vec<&str> {
    let groups = text && !cell.contains('.');
    let mut pieces = Vec::new();
    let mut begin = 0;
    for (at, c) in cell.char_indices() {
        let (before, end) = (&cell[..at], at + c.len_utf8());
        let cut = match c {
            '\n' => true,
            ' ' => text,
            ':' => groups && !before.ends_with(']') && !cell[end..].starts_with(':'),
            _ => false,
        };
        if cut {
            pieces.push(&cell[begin..end]);
            begin = end;
        }
    }
    pieces.push(&cell[begin..]);
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(title: &'static str, cells: &[&str], right: bool, narrow: Narrow) -> Column {
        Column {
            title,
            cells: cells.iter().map(|&cell| cell.to_owned()).collect(),
            right,
            narrow,
        }
    }

    fn flows() -> Vec<Column> {
        let long = "[2001:2:0:e35f:ec71:afbf:3e13:9934]:10040";
        vec![
            column("#", &["1", "2"], true, Narrow::Stays),
            column(
                "source",
                &["10.133.85.67:60887", long],
                false,
                Narrow::Stays,
            ),
            column(
                "destination",
                &["198.18.208.14:443", "[2001:db8::1]:53"],
                false,
                Narrow::Below,
            ),
            column("proto", &["tcp", "udp"], false, Narrow::Behind),
            column("packets", &["134 034", "23 084"], true, Narrow::Stays),
            column("share", &["13.4 %", "2.3 %"], true, Narrow::Leaves(2)),
            column("bytes", &["124 MB", "21.2 MB"], true, Narrow::Leaves(1)),
            column("bound", &["-0\n+1 238 908", "exact"], true, Narrow::Stays),
        ]
    }

    #[test]
    fn without_a_limit_each_row_is_a_line() {
        let text = grid(&flows(), None);
        assert_eq!(text, grid(&flows(), Some(200)));
        assert_eq!(
            text,
            "  #  source                                     destination        proto  packets   share    bytes          bound
  1  10.133.85.67:60887                         198.18.208.14:443  tcp    134 034  13.4 %   124 MB  -0 +1 238 908
  2  [2001:2:0:e35f:ec71:afbf:3e13:9934]:10040  [2001:db8::1]:53   udp     23 084   2.3 %  21.2 MB          exact
"
        );
    }

    #[test]
    fn what_has_no_room_goes_below_and_behind_and_then_away() {
        assert_eq!(
            grid(&flows(), Some(80)),
            "  #  source                     proto  packets   share    bytes          bound
     destination
  1  10.133.85.67:60887         tcp    134 034  13.4 %   124 MB  -0 +1 238 908
     198.18.208.14:443
  2  [2001:2:0:e35f:ec71:afbf:  udp     23 084   2.3 %  21.2 MB          exact
     3e13:9934]:10040
     [2001:db8::1]:53
"
        );
        assert_eq!(
            grid(&flows(), Some(60)),
            "  #  source                 packets   share          bound
     destination proto
  1  10.133.85.67:60887     134 034  13.4 %  -0 +1 238 908
     198.18.208.14:443 tcp
  2  [2001:2:0:e35f:ec71:    23 084   2.3 %          exact
     afbf:3e13:9934]:10040
     [2001:db8::1]:53 udp
"
        );
    }

    #[test]
    fn no_line_is_wider_than_its_terminal() {
        for width in 50..=200 {
            let text = grid(&flows(), Some(width));
            assert!(
                text.lines().all(|line| width_of(line) <= width),
                "{width}:\n{text}"
            );
            for kept in [
                "packets",
                "134 034",
                "bound",
                "exact",
                "+1 238 908",
                "tcp",
                "60887",
                "443",
                "9934]:10040",
            ] {
                assert!(text.contains(kept), "{width}: {kept}\n{text}");
            }
        }
    }
}
