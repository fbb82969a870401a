//! A result as tables on the terminal, a README, a CSV and plots.

use crate::machine;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// Text, raw data, plots and verdicts of a run.
#[derive(Debug)]
pub struct Report {
    text: String,
    csv: String,
    /// Names and SVG texts of plots.
    pictures: Vec<(String, String)>,
    bars: Vec<Bar>,
    sound: bool,
}

/// A requirement and the result.
#[derive(Debug)]
struct Bar {
    what: String,
    must: String,
    found: String,
    holds: bool,
}

impl Report {
    /// An empty report, whose head names the machine. `raw` has the columns of the raw data, `how` describes the way of
    /// timing.
    pub fn new(raw: &str, how: &str) -> Self {
        let mut report = Self {
            text: String::new(),
            csv: format!("{raw}\n"),
            pictures: Vec::new(),
            bars: Vec::new(),
            sound: true,
        };
        for line in machine::description() {
            report.line(&format!("- {line}"));
        }
        report.line(&format!("- {how}"));
        report
    }

    /// Prints and keeps a line.
    pub fn line(&mut self, line: &str) {
        println!("{line}");
        self.text.push_str(line);
        self.text.push('\n');
    }

    /// Prints and keeps a heading.
    pub fn heading(&mut self, title: &str) {
        self.line(&format!("\n## {title}\n"));
    }

    /// Prints and keeps a Markdown table with aligned columns.
    pub fn table(&mut self, head: &[&str], rows: &[Vec<String>]) {
        let width = |column: usize| {
            let cells = rows.iter().map(|row| row[column].chars().count());
            cells
                .chain([head[column].chars().count()])
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..head.len()).map(width).collect();
        let row = |cells: &[String]| {
            let mut line = String::from("|");
            for (i, (cell, &width)) in cells.iter().zip(&widths).enumerate() {
                let pad = " ".repeat(width - cell.chars().count());
                let (left, right) = if i == 0 {
                    ("", pad.as_str())
                } else {
                    (pad.as_str(), "")
                };
                let _ = write!(line, " {left}{cell}{right} |");
            }
            line
        };
        self.line(&row(&head
            .iter()
            .map(|&cell| cell.to_owned())
            .collect::<Vec<_>>()));
        let rule: Vec<String> = (0..head.len())
            .map(|i| {
                if i == 0 {
                    "-".repeat(widths[i])
                } else {
                    format!("{}:", "-".repeat(widths[i] - 1))
                }
            })
            .collect();
        self.line(&row(&rule));
        for cells in rows {
            self.line(&row(cells));
        }
    }

    /// Keeps a row of raw data.
    pub fn raw(&mut self, fields: &[&str]) {
        let quoted: Vec<String> = fields
            .iter()
            .map(|field| {
                if field.contains([',', '"']) {
                    format!("\"{}\"", field.replace('"', "\"\""))
                } else {
                    (*field).to_owned()
                }
            })
            .collect();
        self.csv.push_str(&quoted.join(","));
        self.csv.push('\n');
    }

    /// Keeps a plot, and refers to it at this place of the text.
    pub fn picture(&mut self, name: &str, svg: &str) {
        self.text.push_str(&format!("\n![{name}]({name}.svg)\n"));
        self.pictures.push((name.to_owned(), svg.to_owned()));
    }

    /// Keeps a requirement and its result.
    pub fn bar(&mut self, what: &str, must: &str, found: &str, holds: bool) {
        self.bars.push(Bar {
            what: what.to_owned(),
            must: must.to_owned(),
            found: found.to_owned(),
            holds,
        });
    }

    /// Reports a wrong answer, which makes the whole result worthless.
    pub fn wrong(&mut self, what: &str) {
        self.sound = false;
        self.line(&format!("WRONG: {what}"));
    }

    /// Whether all answers were right.
    pub fn is_sound(&self) -> bool {
        self.sound
    }

    /// Prints the requirements and their results.
    pub fn bars(&mut self) {
        self.heading("Bars");
        let rows: Vec<Vec<String>> = self
            .bars
            .iter()
            .map(|bar| {
                let holds = if bar.holds { "yes" } else { "NO" };
                vec![
                    bar.what.clone(),
                    bar.must.clone(),
                    bar.found.clone(),
                    holds.to_owned(),
                ]
            })
            .collect();
        self.table(&["what", "must", "found", "holds"], &rows);
    }

    /// Writes `README.md`, `raw.csv` and the pictures.
    pub fn write(&self, scenario: &str, folder: &Path) -> std::io::Result<()> {
        fs::create_dir_all(folder)?;
        let command: Vec<String> = std::env::args().skip(1).collect();
        let readme = format!(
            "# weir-bench {}\n\nRepeat it with `make bench NAME={scenario}`.\n\n{}",
            command.join(" "),
            self.text
        );
        fs::write(folder.join("README.md"), readme)?;
        for (name, svg) in &self.pictures {
            fs::write(folder.join(name).with_extension("svg"), svg)?;
        }
        fs::write(folder.join("raw.csv"), &self.csv)
    }
}
