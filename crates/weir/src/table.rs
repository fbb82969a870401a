//! Tables of text.

use std::fmt::Write as _;

/// A column: its title, its cells, and whether they stand to the right.
pub struct Column {
    pub title: &'static str,
    pub cells: Vec<String>,
    pub right: bool,
}

/// Rows of cells, each column as wide as its widest. Where that is wider than the terminal, long addresses go on in a line of
/// their own.
pub fn grid(columns: &[Column], width: Option<usize>) -> String {
    let rows = columns.first().map_or(0, |column| column.cells.len());
    let widths = widths(columns, width);
    let mut out = String::new();
    let mut line = |cells: &mut dyn Iterator<Item = &str>| {
        let mut text = String::from(" ");
        for ((column, &width), cell) in columns.iter().zip(&widths).zip(cells) {
            let _ = if column.right { write!(text, " {cell:>width$} ") } else { write!(text, " {cell:<width$} ") };
        }
        out.push_str(text.trim_end());
        out.push('\n');
    };
    line(&mut columns.iter().map(|column| column.title));
    for row in 0..rows {
        let piece = |i: usize, n: usize| {
            let (cell, width) = (&columns[i].cells[row], widths[i]);
            // Addresses are ASCII.
            cell.get((n * width).min(cell.len())..((n + 1) * width).min(cell.len())).unwrap_or("")
        };
        let pieces = (0..columns.len()).map(|i| columns[i].cells[row].len().div_ceil(widths[i].max(1))).max();
        for n in 0..pieces.unwrap_or(1) {
            line(&mut (0..columns.len()).map(|i| piece(i, n)));
        }
    }
    out
}

/// The widths of columns that shall fit in `width` together, as far as that leaves room for what matters.
fn widths(columns: &[Column], width: Option<usize>) -> Vec<usize> {
    /// Columns of text are not made narrower than this: an IPv4 address and a port.
    const LEAST: usize = 22;
    let widest = |column: &Column| column.cells.iter().map(String::len).max().unwrap_or(0).max(column.title.len());
    let mut widths: Vec<usize> = columns.iter().map(widest).collect();
    let wide: Vec<usize> = (0..columns.len()).filter(|&i| !columns[i].right && widths[i] > LEAST).collect();
    let total = 1 + widths.iter().map(|width| width + 2).sum::<usize>();
    let excess = width.map_or(0, |width| total.saturating_sub(width));
    for &i in &wide {
        widths[i] = widths[i].saturating_sub(excess.div_ceil(wide.len())).max(LEAST);
    }
    widths
}
