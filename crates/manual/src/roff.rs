//! Manual pages in the macros of man(7).

use std::fmt::Write as _;
use weir_command::help::{Flag, OVERVIEW, Page};
use weir_command::topics::{Block, blocks};

/// Date on the pages: the day of the version, so that the same sources make the same bytes.
const DATE: &str = "2026-11-26";

/// The page of a command.
pub fn command(page: &Page) -> String {
    let name = page.name.replace(' ', "-");
    let mut out = begin(&name, "1", &page.about);
    out.push_str(".SH SYNOPSIS\n");
    write_lines(&mut out, page.usage.iter().map(String::as_str));
    if !page.examples.is_empty() {
        out.push_str(".SH EXAMPLES\n");
        for (line, meaning) in &page.examples {
            let _ = write!(
                out,
                ".TP\n\\fB{}\\fR\n{}\n",
                escaped(line),
                text_line(meaning)
            );
        }
    }
    if !page.commands.is_empty() {
        out.push_str(".SH COMMANDS\n");
        for (inner, about) in &page.commands {
            let _ = write!(
                out,
                ".TP\n\\fB{name}\\-{0}\\fR(1)\n{1}\n",
                escaped(inner),
                text_line(about)
            );
        }
    }
    out.push_str(".SH OPTIONS\n");
    for (heading, flags) in &page.headings {
        let _ = writeln!(out, ".SS {}", escaped(heading));
        flags.iter().for_each(|flag| write_flag(&mut out, flag));
    }
    write_notes(&mut out, &page.notes);
    write_end(&mut out, &name);
    out
}

/// The page of `weir` itself.
pub fn overview() -> String {
    let (about, rest) = OVERVIEW.split_once("\n\n").unwrap_or((OVERVIEW, ""));
    let about = about.trim_start_matches("weir ").trim_end_matches('.');
    let mut out = begin("weir", "1", about);
    out.push_str(
        ".SH SYNOPSIS\n\\fBweir\\fR \\fICOMMAND\\fR [\\fIOPTIONS\\fR] ...\n.SH COMMANDS\n.EX\n",
    );
    let rest = rest.split_once("\n\n").map_or(rest, |(_, rest)| rest);
    write_code(&mut out, rest.trim().lines());
    write_end(&mut out, "weir");
    out
}

/// The page about rules, from the page of the documentation.
pub fn rules(page: &str) -> String {
    let mut out = begin("weir-rules", "5", "firewall rules of weir");
    let mut has_section = false;
    for block in blocks(page) {
        let is_text = !matches!(block, Block::Heading(..));
        if is_text && !std::mem::replace(&mut has_section, true) {
            out.push_str(".SH DESCRIPTION\n");
        }
        match block {
            Block::Heading(1, _) => {}
            Block::Heading(2, text) => {
                let _ = writeln!(out, ".SH {}", escaped(&text.to_uppercase()));
                has_section = true;
            }
            Block::Heading(_, text) => {
                let _ = writeln!(out, ".SS {}", escaped(&text));
            }
            Block::Paragraph(text) => {
                let _ = write!(out, ".PP\n{}\n", text_line(&text));
            }
            Block::Item(text) => {
                let _ = write!(out, ".IP \\(bu 2\n{}\n", text_line(&text));
            }
            Block::Code(lines) => {
                out.push_str(".PP\n");
                write_code(&mut out, lines.iter().map(String::as_str));
            }
            Block::Table(rows) => {
                for row in rows.iter().skip(1) {
                    let Some((name, others)) = row.split_first() else {
                        continue;
                    };
                    let _ = write!(
                        out,
                        ".TP\n\\fB{}\\fR\n{}\n",
                        escaped(name),
                        text_line(&others.join("; "))
                    );
                }
            }
        }
    }
    write_end(&mut out, "weir-rules");
    out
}

fn begin(name: &str, section: &str, about: &str) -> String {
    let version = env!("CARGO_PKG_VERSION");
    format!(
        ".TH {} {section} {DATE} \"weir {version}\"\n.SH NAME\n{} \\- {}\n",
        escaped(&name.to_uppercase()),
        escaped(name),
        escaped(about)
    )
}

fn write_flag(out: &mut String, flag: &Flag) {
    let _ = write!(out, ".TP\n\\fB{}\\fR\n", escaped(&flag.names));
    let _ = writeln!(out, "{}.", text_line(flag.short.trim_end_matches('.')));
    if !flag.more.is_empty() {
        let _ = writeln!(out, "{}.", text_line(flag.more.trim_end_matches('.')));
    }
    for (value, meaning) in &flag.values {
        let _ = writeln!(out, ".br\n\\fB{}\\fR: {}", escaped(value), escaped(meaning));
    }
    if !flag.default.is_empty() {
        let _ = writeln!(out, ".br\nDefault: {}", escaped(&flag.default));
    }
}

/// The paragraphs after the options. Lines that begin with a blank are shown as they are; exit codes have a section.
fn write_notes(out: &mut String, notes: &str) {
    if notes.is_empty() {
        return;
    }
    let (text, codes) = notes.split_once("Exit codes:\n").unwrap_or((notes, ""));
    if !text.trim().is_empty() {
        out.push_str(".SH NOTES\n");
    }
    for paragraph in text.trim().split("\n\n").filter(|text| !text.is_empty()) {
        out.push_str(".PP\n");
        let mut is_code = false;
        for line in paragraph.lines() {
            let now = line.starts_with(' ');
            if now != is_code {
                out.push_str(if now { ".EX\n" } else { ".EE\n" });
                is_code = now;
            }
            let _ = writeln!(out, "{}", text_line(line));
        }
        if is_code {
            out.push_str(".EE\n");
        }
    }
    if !codes.is_empty() {
        out.push_str(".SH EXIT STATUS\n");
        for line in codes.lines() {
            let (code, meaning) = line.trim().split_once(' ').unwrap_or((line, ""));
            let _ = write!(
                out,
                ".TP\n\\fB{}\\fR\n{}\n",
                escaped(code),
                text_line(meaning.trim())
            );
        }
    }
}

/// Other pages. A command of a command has the page of that command among them.
fn write_end(out: &mut String, name: &str) {
    let all = [
        ("weir", "1"),
        ("weir-measure", "1"),
        ("weir-filter", "1"),
        ("weir-record", "1"),
        ("weir-query", "1"),
        ("weir-firewall", "1"),
        ("weir-rules", "5"),
    ];
    let others: Vec<_> = all.iter().filter(|(other, _)| *other != name).collect();
    out.push_str(".SH SEE ALSO\n");
    for (i, (other, section)) in others.iter().enumerate() {
        let comma = if i + 1 < others.len() { " ," } else { "" };
        let _ = writeln!(out, ".BR {} ({section}){comma}", escaped(other));
    }
    // A heading begins a paragraph by itself.
    for heading in ["SH", "SS"] {
        let mut text = String::with_capacity(out.len());
        let mut after = false;
        for line in out.lines() {
            let is_heading = line.starts_with(&format!(".{heading} "));
            if !(after && line == ".PP") {
                text.push_str(line);
                text.push('\n');
            }
            after = is_heading;
        }
        *out = text;
    }
}

fn write_lines<'a>(out: &mut String, lines: impl Iterator<Item = &'a str>) {
    for (i, line) in lines.enumerate() {
        if i > 0 {
            out.push_str(".br\n");
        }
        let _ = writeln!(out, "{}", text_line(line));
    }
}

fn write_code<'a>(out: &mut String, lines: impl Iterator<Item = &'a str>) {
    out.push_str(".EX\n");
    for line in lines {
        let _ = writeln!(out, "{}", text_line(line));
    }
    out.push_str(".EE\n");
}

/// A line of text: a control character at its begin is none.
fn text_line(text: &str) -> String {
    let text = escaped(text);
    if text.is_empty() {
        return "\\&".to_owned();
    }
    if text.starts_with(['.', '\'']) {
        return format!("\\&{text}");
    }
    text
}

/// Text without meaning to roff.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\e")
        .replace('-', "\\-")
        .replace('\t', "    ")
}
