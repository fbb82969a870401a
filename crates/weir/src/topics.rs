//! The topics of `weir help`: pages of the documentation, as text for a terminal.

use std::fmt::Write as _;

/// A page of the documentation that the command carries.
#[derive(Clone, Copy, Debug)]
pub struct Topic {
    /// Its name in `weir help NAME`.
    pub name: &'static str,
    /// The page, in Markdown.
    pub page: &'static str,
}

/// All topics.
pub const TOPICS: [Topic; 5] = [
    Topic {
        name: "rules",
        page: include_str!("../../../docs/reference/firewall-rules.md"),
    },
    Topic {
        name: "expressions",
        page: include_str!("../../../docs/reference/expressions.md"),
    },
    Topic {
        name: "keys",
        page: include_str!("../../../docs/reference/keys-and-tables.md"),
    },
    Topic {
        name: "columns",
        page: include_str!("../../../docs/reference/columns.md"),
    },
    Topic {
        name: "triggers",
        page: include_str!("../../../docs/reference/triggers.md"),
    },
];

/// A part of a page of the documentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Block {
    /// A heading and its level, from 1.
    Heading(usize, String),
    /// A paragraph.
    Paragraph(String),
    /// A member of a list.
    Item(String),
    /// Lines that are shown as they are.
    Code(Vec<String>),
    /// Rows of a table; the first names the columns.
    Table(Vec<Vec<String>>),
}

/// The parts of a page in the Markdown of the documentation. Links keep their text alone; pictures and comments are left out.
pub fn blocks(page: &str) -> Vec<Block> {
    let mut found: Vec<Block> = Vec::new();
    let mut lines = page.lines();
    let mut goes_on = false;
    while let Some(line) = lines.next() {
        let text = line.trim();
        let went_on = std::mem::replace(&mut goes_on, false);
        if text.starts_with("```") {
            let code = lines
                .by_ref()
                .take_while(|line| !line.trim().starts_with("```"));
            found.push(Block::Code(code.map(ToOwned::to_owned).collect()));
        } else if text.starts_with('#') {
            let level = text.bytes().take_while(|&byte| byte == b'#').count();
            found.push(Block::Heading(level, plain(text.trim_start_matches('#'))));
        } else if text.is_empty() || text.starts_with("<!--") || text.starts_with("![") {
            continue;
        } else if text.starts_with('|') {
            row(&mut found, text);
        } else if let Some(item) = text.strip_prefix("- ") {
            found.push(Block::Item(item.to_owned()));
            goes_on = true;
        } else {
            match found.last_mut() {
                Some(Block::Item(last) | Block::Paragraph(last)) if went_on => {
                    let _ = write!(last, " {text}");
                }
                _ => found.push(Block::Paragraph(text.to_owned())),
            }
            goes_on = true;
        }
    }
    for block in &mut found {
        if let Block::Paragraph(text) | Block::Item(text) = block {
            *text = plain(text);
        }
    }
    found
}

fn row(found: &mut Vec<Block>, text: &str) {
    let text = text.trim_matches('|').replace("\\|", "\u{0}");
    let cells: Vec<_> = text
        .split('|')
        .map(|cell| plain(&cell.replace('\u{0}', "|")))
        .collect();
    let is_rule = cells
        .iter()
        .all(|cell| cell.chars().all(|c| c == '-' || c == ':'));
    match found.last_mut() {
        Some(Block::Table(_)) if is_rule && !cells.concat().is_empty() => {}
        Some(Block::Table(rows)) => rows.push(cells),
        _ => found.push(Block::Table(vec![cells])),
    }
}

/// Text without marks: links keep their words, code its letters.
fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.trim();
    while let Some(at) = rest.find(['`', '*', '[']) {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        if let Some((code, after)) = rest.strip_prefix('`').and_then(|code| code.split_once('`')) {
            out.push_str(code);
            rest = after;
        } else if let Some(after) = rest.strip_prefix("**") {
            rest = after;
        } else if let Some((words, after)) = link(rest) {
            out.push_str(&plain(words));
            rest = after;
        } else {
            out.push_str(&rest[..1]);
            rest = &rest[1..];
        }
    }
    out + rest
}

/// The words of the link at the begin of `text`, and the text after it.
fn link(text: &str) -> Option<(&str, &str)> {
    let (words, after) = text.strip_prefix('[')?.split_once("](")?;
    Some((words, after.split_once(')')?.1))
}

/// The page as text for a terminal of `width` columns.
pub fn text(page: &str, width: usize) -> String {
    let mut out = String::new();
    let mut is_list = false;
    for block in blocks(page) {
        let is_item = matches!(block, Block::Item(_));
        let goes_on = is_item && is_list;
        if !out.is_empty() && !goes_on {
            out.push('\n');
        }
        is_list = is_item;
        match block {
            Block::Heading(1, text) => {
                let _ = writeln!(out, "{}", text.to_uppercase());
            }
            Block::Heading(_, text) => {
                let _ = writeln!(out, "{text}:");
            }
            Block::Paragraph(text) => write_wrapped(&mut out, &text, width, 0),
            Block::Item(text) => write_wrapped(&mut out, &format!("- {text}"), width, 2),
            Block::Code(lines) => lines.iter().for_each(|line| {
                let _ = writeln!(out, "    {line}");
            }),
            Block::Table(rows) => write_table(&mut out, &rows, width),
        }
    }
    out
}

fn write_wrapped(out: &mut String, text: &str, width: usize, hang: usize) {
    out.push_str(&crate::terminal::wrapped(
        &format!("{text}\n"),
        Some(width),
        hang,
    ));
}

/// The rows below each other: the first cell, and after it, or below it if it is long, the others.
fn write_table(out: &mut String, rows: &[Vec<String>], width: usize) {
    let first = rows.iter().skip(1).filter_map(|row| row.first());
    let widest = first
        .map(|cell| cell.chars().count())
        .filter(|&columns| columns <= 24)
        .max();
    let column = widest.unwrap_or(0) + 4;
    for row in rows.iter().skip(1) {
        let Some((name, others)) = row.split_first() else {
            continue;
        };
        let others = others.join("; ");
        let is_long = name.chars().count() + 4 > column;
        if is_long {
            write_wrapped(out, &format!("  {name}"), width, 2);
        }
        let body = crate::terminal::wrapped(
            &format!("{others}\n"),
            Some(width.saturating_sub(column).max(20)),
            0,
        );
        for (i, line) in body.lines().enumerate() {
            let name = if i == 0 && !is_long {
                format!("  {name}")
            } else {
                String::new()
            };
            let _ = writeln!(out, "{name:column$}{line}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines between `<!-- columns: NAME -->` and the end of the columns.
    fn listed(page: &str, name: &str) -> Vec<String> {
        let begin = format!("<!-- columns: {name} -->");
        let (_, part) = page.split_once(&begin).expect("the page has the part");
        let lines = part.lines().take_while(|line| !line.starts_with("<!--"));
        let rows = lines.filter(|line| line.starts_with("| `"));
        rows.map(ToOwned::to_owned).collect()
    }

    #[test]
    fn the_page_of_columns_lists_each_of_them() {
        use weir_messages::measured::columns::{COLUMNS, KEY_COLUMNS};
        let page = include_str!("../../../docs/reference/columns.md");
        let cell = |text: &str| text.replace('|', "\\|");
        let code = |text: &str| match text {
            "" => String::new(),
            text => format!("`{text}`"),
        };
        let packets = weir_packet::fields::FIELDS.iter().map(|field| {
            let (unit, about) = (field.unit, cell(field.about));
            format!(
                "| `{}` | {unit} | {about} | {} |",
                field.name,
                code(field.tshark)
            )
        });
        assert_eq!(listed(page, "packets"), packets.collect::<Vec<_>>());
        let keys = KEY_COLUMNS.iter().map(|(name, about)| (*name, "", *about));
        let figures = COLUMNS
            .iter()
            .map(|column| (column.name, column.unit.words(), column.about));
        let measured = keys
            .chain(figures)
            .map(|(name, unit, about)| format!("| `{name}` | {unit} | {} |", cell(about)));
        assert_eq!(listed(page, "measured"), measured.collect::<Vec<_>>());
        let compared = weir_messages::measured::diff::COLUMNS.iter().map(|column| {
            let unit = column.unit.map_or("", |unit| unit.words());
            format!("| `{}` | {unit} | {} |", column.name, cell(column.about))
        });
        assert_eq!(listed(page, "compared"), compared.collect::<Vec<_>>());
    }

    #[test]
    fn markdown_becomes_text() {
        let page = "# A *b*\n\nSee [the `x` page](x.md#y), **now**\nand then.\n\n<!-- file: a -->\n```text\na | b\n```\n\
                    - one\n  more\n- two `a*b`\n\n| k | v |\n|---|---|\n| `a \\| b` | [c](d) |\n";
        assert_eq!(
            blocks(page),
            [
                Block::Heading(1, "A *b*".to_owned()),
                Block::Paragraph("See the x page, now and then.".to_owned()),
                Block::Code(vec!["a | b".to_owned()]),
                Block::Item("one more".to_owned()),
                Block::Item("two a*b".to_owned()),
                Block::Table(vec![
                    vec!["k".to_owned(), "v".to_owned()],
                    vec!["a | b".to_owned(), "c".to_owned()]
                ]),
            ]
        );
        let shown = text(page, 40);
        assert!(shown.contains("\n- one more\n- two a*b\n"), "{shown}");
        assert!(shown.contains("\n  a | b  c\n"), "{shown}");
    }
}
