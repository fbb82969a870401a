//! Rows of cells as comma-separated values, tab-separated values, JSON or columns for people.
//!
//! A row is always one line. Text from captures may hold anything; a cell of it can end neither its cell nor its row, steer no
//! terminal, and begin no formula of a spreadsheet:
//!
//! | | csv (RFC 4180) | tsv |
//! |---|---|---|
//! | end of a line | CR LF | LF |
//! | control characters | escaped as on a terminal (`\n`, `\x1b`, `\u202e`) | the same |
//! | `\` | stays | `\\`, so that all escapes can be undone |
//! | `"`, `,`, `;` and blanks at the ends | the cell is quoted, `"` doubled | stay |
//! | text whose first character but blanks is `=`, `+`, `-` or `@`, plain or full-width | `'` in front | the same |
//!
//! An empty cell has no value. Numbers have no unit, no separator of thousands, and a point.

use serde_json::Value;
use std::fmt::{self, Write as _};
use weir_packet::text::{is_control, printable};

/// Form of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Columns of a fixed width, for people.
    Table,
    /// An object a line.
    Json,
    /// Comma-separated values: RFC 4180.
    Csv,
    /// Tab-separated values.
    Tsv,
}

impl Form {
    /// Name of the form, as in `--format`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::Json => "json",
            Self::Csv => "csv",
            Self::Tsv => "tsv",
        }
    }

    /// Whether rows are separated values, which have a heading and nothing but rows.
    pub fn is_separated(self) -> bool {
        matches!(self, Self::Csv | Self::Tsv)
    }
}

/// A row that is being written. [`end`](Self::end) completes it.
///
/// **Cost**: none beyond the growth of the buffer, except for text that must be escaped.
#[derive(Debug)]
pub struct RowWriter<'a> {
    out: &'a mut String,
    form: Form,
    is_first: bool,
    /// Where a cell of a table begins, and its width.
    padded: Option<(usize, usize)>,
}

impl<'a> RowWriter<'a> {
    /// Begins a row at the end of `out`. In JSON, `begin` are the first members; the other forms leave it out.
    pub fn new(out: &'a mut String, form: Form, begin: &str) -> Self {
        if form == Form::Json {
            out.push('{');
            out.push_str(begin);
        }
        let is_first = form != Form::Json || begin.is_empty();
        Self {
            out,
            form,
            is_first,
            padded: None,
        }
    }

    /// Begins a cell: all before it is complete.
    fn next(&mut self, name: &str, width: usize) {
        self.pad();
        let separator = match self.form {
            _ if self.is_first => "",
            Form::Json | Form::Csv => ",",
            Form::Tsv => "\t",
            Form::Table => "  ",
        };
        self.out.push_str(separator);
        self.is_first = false;
        match self.form {
            Form::Json => _ = write!(self.out, "\"{name}\":"),
            Form::Table => self.padded = Some((self.out.len(), width)),
            Form::Csv | Form::Tsv => {}
        }
    }

    /// Fills a cell of a table up to its width, once another one follows.
    fn pad(&mut self) {
        if let Some((from, width)) = self.padded.take() {
            let has = crate::rows::columns(&self.out[from..]);
            (has..width).for_each(|_| self.out.push(' '));
        }
    }

    /// Adds a cell without a value.
    pub fn none(&mut self, name: &str, width: usize) {
        self.next(name, width);
        match self.form {
            Form::Json => self.out.push_str("null"),
            Form::Table => self.out.push('-'),
            Form::Csv | Form::Tsv => {}
        }
    }

    /// Adds a number or a truth value, as it is written.
    pub fn number(&mut self, name: &str, width: usize, number: fmt::Arguments<'_>) {
        self.next(name, width);
        let _ = self.out.write_fmt(number);
    }

    /// Adds a word of this program: letters, digits, and marks that no form treats in its own way.
    pub fn word(&mut self, name: &str, width: usize, word: fmt::Arguments<'_>) {
        self.next(name, width);
        let quote = if self.form == Form::Json { "\"" } else { "" };
        let _ = write!(self.out, "{quote}{word}{quote}");
    }

    /// Adds text that may hold any character.
    pub fn text(&mut self, name: &str, width: usize, text: &str) {
        self.next(name, width);
        match self.form {
            Form::Table => self.out.push_str(&printable(text)),
            Form::Json => json_text(self.out, text),
            Form::Csv => csv_text(self.out, text),
            Form::Tsv => tsv_text(self.out, text),
        }
    }

    /// Ends the row.
    pub fn end(self) {
        self.out.push_str(match self.form {
            Form::Json => "}",
            Form::Table => "",
            Form::Csv => "\r\n",
            Form::Tsv => "\n",
        });
        if self.form == Form::Table {
            let length = self.out.trim_end_matches(' ').len();
            self.out.truncate(length);
        }
        if matches!(self.form, Form::Json | Form::Table) {
            self.out.push('\n');
        }
    }
}

/// The heading of rows: the names of their columns with their widths. JSON has none.
pub fn heading<'n>(form: Form, columns: impl IntoIterator<Item = (&'n str, usize)>) -> String {
    let mut out = String::new();
    if form == Form::Json {
        return out;
    }
    let mut row = RowWriter::new(&mut out, form, "");
    for (name, width) in columns {
        row.word(name, width, format_args!("{name}"));
    }
    row.end();
    out
}

/// Columns of a terminal that plain text takes.
fn columns(text: &str) -> usize {
    text.chars().count()
}

/// Appends a JSON string. Characters that could steer a terminal are escaped as well.
fn json_text(out: &mut String, text: &str) {
    let quoted = Value::from(text).to_string();
    for c in quoted.chars() {
        match is_control(c) {
            true => _ = write!(out, "\\u{:04x}", u32::from(c)),
            false => out.push(c),
        }
    }
}

/// Whether a spreadsheet could take text for a formula.
fn is_formula(text: &str) -> bool {
    const BEGINS: [char; 8] = ['=', '+', '-', '@', '＝', '＋', '－', '＠'];
    text.trim_start().starts_with(BEGINS)
}

fn csv_text(out: &mut String, text: &str) {
    let text = printable(text);
    let guard = if is_formula(&text) { "'" } else { "" };
    if !text.contains(['"', ',', ';']) && text.trim() == text {
        out.push_str(guard);
        out.push_str(&text);
        return;
    }
    let _ = write!(out, "\"{guard}{}\"", text.replace('"', "\"\""));
}

fn tsv_text(out: &mut String, text: &str) {
    if is_formula(text) {
        out.push('\'');
    }
    // What is escaped next has no backslash of its own left.
    let text = text.replace('\\', "\\\\");
    out.push_str(&printable(&text));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(form: Form, texts: &[&str]) -> String {
        let mut out = String::new();
        let mut row = RowWriter::new(&mut out, form, "");
        for text in texts {
            row.text("a", 3, text);
        }
        row.end();
        out
    }

    #[test]
    fn text_cannot_leave_its_cell_or_begin_a_formula() {
        let texts = [
            "a,b",
            "say \"x\"",
            "=1+1",
            " @x",
            "a\tb\r\nc\\",
            "",
            "plain",
        ];
        assert_eq!(
            row(Form::Csv, &texts),
            "\"a,b\",\"say \"\"x\"\"\",'=1+1,\"' @x\",a\\tb\\r\\nc\\,,plain\r\n"
        );
        assert_eq!(
            row(Form::Tsv, &texts),
            "a,b\tsay \"x\"\t'=1+1\t' @x\ta\\tb\\r\\nc\\\\\t\tplain\n"
        );
        assert_eq!(
            row(Form::Json, &["a\"\n\u{9b}"]),
            "{\"a\":\"a\\\"\\n\\u009b\"}\n"
        );
        assert_eq!(row(Form::Table, &["a\n", "bcd", "e"]), "a\\n  bcd  e\n");
        for c in (0..=0xffff).filter_map(char::from_u32) {
            let text = format!("{c}x{c}");
            for (form, end, separators) in [(Form::Csv, "\r\n", ","), (Form::Tsv, "\n", "\t")] {
                let line = row(form, &[&text]);
                let body = line.strip_suffix(end).expect("one line");
                assert!(!body.contains(is_control), "{line:?}");
                let quoted = body.starts_with('"') && body.ends_with('"');
                assert!(quoted || !body.contains(separators), "{line:?}");
                assert!(!is_formula(body.trim_matches('"')), "{line:?}");
            }
        }
    }

    #[test]
    fn cells_without_a_value_are_empty_and_null() {
        for (form, expected) in [
            (Form::Csv, ",7,x\r\n"),
            (Form::Tsv, "\t7\tx\n"),
            (
                Form::Json,
                "{\"type\":\"t\",\"a\":null,\"b\":7,\"c\":\"x\"}\n",
            ),
            (Form::Table, "-    7    x\n"),
        ] {
            let mut out = String::new();
            let mut row = RowWriter::new(&mut out, form, "\"type\":\"t\"");
            row.none("a", 3);
            row.number("b", 3, format_args!("7"));
            row.word("c", 3, format_args!("x"));
            row.end();
            assert_eq!(out, expected);
        }
        assert_eq!(heading(Form::Csv, [("a", 1), ("b", 1)]), "a,b\r\n");
        assert_eq!(heading(Form::Json, [("a", 1)]), "");
    }
}
