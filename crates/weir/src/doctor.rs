//! `weir doctor`: abilities of this machine, their meaning for weir, and the command that changes each.
//!
//! The command changes nothing but its own rights, needs no privilege and never fails. A fact that cannot be found out is
//! reported as unknown, with the reason.

mod capture;
mod interfaces;
mod machine;
mod memory;
mod system;
mod walls;

use crate::cli::DoctorArgs;
use crate::outcome::{Outcome, answer};
use crate::terminal::{self, columns, output_width, printable, wrapped};
use serde_json::{Map, Value, json};
use system::System;

/// Largest width of the text, in columns.
const WIDTH: usize = 100;

/// Column at which the text of a finding begins.
const INDENT: usize = 26;

/// Runs the command.
pub fn run(arguments: &DoctorArgs) -> anyhow::Result<Outcome> {
    let system = System::default();
    let groups = [
        machine::group(&system),
        memory::group(&system),
        memory::pages(&system),
        capture::group(&system),
        capture::privileges(&system),
        interfaces::group(&system),
        // Last, because this check takes rights away.
        walls::group(),
    ];
    let text = if arguments.json {
        format!("{}\n", terminal::json("findings", &as_json(&groups)))
    } else {
        as_text(&groups, output_width())
    };
    Ok(answer(&text))
}

/// Findings about one subject.
struct Group {
    key: &'static str,
    title: &'static str,
    /// Sentence that holds for all findings of the group; may be empty.
    about: &'static str,
    findings: Vec<Finding>,
}

/// State of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Ok,
    Better,
    Missing,
    Unknown,
}

impl State {
    const ALL: [State; 4] = [State::Ok, State::Better, State::Missing, State::Unknown];

    fn mark(self) -> char {
        match self {
            State::Ok => '+',
            State::Better => '~',
            State::Missing => '-',
            State::Unknown => '?',
        }
    }

    /// Text for people.
    fn words(self) -> &'static str {
        match self {
            State::Ok => "ok",
            State::Better => "could be better",
            State::Missing => "missing",
            State::Unknown => "unknown",
        }
    }

    /// Key for programs.
    fn key(self) -> &'static str {
        match self {
            State::Better => "better",
            other => other.words(),
        }
    }
}

/// One fact about the machine, with its meaning for weir and the command that changes it.
#[derive(Clone, Debug)]
struct Finding {
    key: String,
    label: String,
    state: State,
    text: String,
    value: Value,
    means: Option<String>,
    command: Option<String>,
}

impl Finding {
    /// A fact that needs no change.
    fn ok(key: &str, label: &str, text: impl Into<String>, value: Value) -> Self {
        Self {
            key: key.to_owned(),
            label: label.to_owned(),
            state: State::Ok,
            text: text.into(),
            value,
            means: None,
            command: None,
        }
    }

    /// A fact that could not be found out, and why.
    fn unknown(key: &str, label: &str, why: impl std::fmt::Display) -> Self {
        Self {
            state: State::Unknown,
            ..Self::ok(key, label, format!("unknown: {why}"), Value::Null)
        }
    }

    /// A known fact, made by `ok`, or an unknown one with its reason.
    fn of<T>(key: &str, label: &str, fact: Result<T, String>, ok: impl FnOnce(T) -> Self) -> Self {
        fact.map_or_else(|why| Self::unknown(key, label, why), ok)
    }

    fn state(mut self, state: State) -> Self {
        self.state = state;
        self
    }

    fn means(mut self, means: impl Into<String>) -> Self {
        self.means = Some(means.into());
        self
    }

    fn command(mut self, command: impl Into<String>) -> Self {
        self.command = Some(command.into());
        self
    }
}

fn as_json(groups: &[Group]) -> Value {
    let mut all = Map::new();
    for group in groups {
        let mut facts = Map::new();
        for finding in &group.findings {
            let Finding {
                state,
                text,
                value,
                means,
                command,
                ..
            } = finding;
            let mut fact = Map::new();
            fact.insert("type".to_owned(), json!("finding"));
            fact.insert("state".to_owned(), json!(state.key()));
            fact.insert("value".to_owned(), value.clone());
            fact.insert("text".to_owned(), json!(text));
            fact.extend(means.iter().map(|means| ("means".to_owned(), json!(means))));
            fact.extend(
                command
                    .iter()
                    .map(|command| ("command".to_owned(), json!(command))),
            );
            facts.insert(finding.key.clone(), Value::Object(fact));
        }
        all.insert(group.key.to_owned(), Value::Object(facts));
    }
    Value::Object(all)
}

fn as_text(groups: &[Group], terminal: Option<usize>) -> String {
    let width = terminal.map_or(WIDTH, |width| width.min(WIDTH));
    let line = |text: &str, hang: usize| wrapped(&format!("{text}\n"), Some(width), hang);
    let mut out = String::new();
    for group in groups {
        out += &line(group.title, 2);
        if !group.about.is_empty() {
            out += &line(&format!("  {}", group.about), 0);
        }
        for Finding {
            state,
            label,
            text,
            means,
            command,
            ..
        } in &group.findings
        {
            let head = format!(
                "  {} {:<width$}",
                state.mark(),
                printable(label),
                width = INDENT - 5
            );
            // A long label is in a line of its own.
            if columns(&head) >= INDENT {
                out += &line(&head, 2);
                out += &line(&format!("{:INDENT$}{}", "", printable(text)), 0);
            } else {
                out += &line(&format!("{head} {}", printable(text)), INDENT - 2);
            }
            if let Some(means) = means {
                out += &line(&format!("{:INDENT$}{}", "", printable(means)), 0);
            }
            if let Some(command) = command {
                out += &command_lines(&printable(command), terminal);
            }
        }
        out.push('\n');
    }
    let marks = State::ALL.map(|state| format!("{} {}", state.mark(), state.words()));
    out + &line(
        &format!("{}     $ the command that changes it", marks.join("   ")),
        2,
    )
}

/// Lines of a command to copy. On a narrow terminal the command takes several lines, joined by backslashes as a shell
/// expects. A command with quotes or a comment cannot be folded, and stays in one line.
fn command_lines(command: &str, terminal: Option<usize>) -> String {
    let terminal = terminal.filter(|_| !command.contains(['\'', '"', '#']));
    let folded = |indent: usize| {
        let room = terminal.map(|width| width.saturating_sub(indent + "$  \\".len()));
        let lines = wrapped(command, room, 0).replace('\n', &format!(" \\\n{:indent$}  ", ""));
        format!("{:indent$}$ {lines}\n", "")
    };
    let beside = folded(INDENT);
    let fits = terminal.is_none_or(|width| beside.lines().all(|line| columns(line) <= width));
    if fits { beside } else { folded(4) }
}

/// Bytes in binary units: `24.0 GiB`, `64 KiB`.
fn size(bytes: u64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    let Some((shift, unit)) = units.iter().find(|(shift, _)| bytes >> shift > 0) else {
        return format!("{bytes} bytes");
    };
    let number = format!("{:.1}", bytes as f64 / (1u64 << shift) as f64);
    format!("{} {unit}", number.strip_suffix(".0").unwrap_or(&number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_fit_and_commands_can_be_copied() {
        let long = "word ".repeat(60);
        let groups = || {
            let finding = Finding::ok("a", "label", long.trim(), Value::Null)
                .means(long.trim())
                .command(long.trim());
            [Group {
                key: "k",
                title: "Title",
                about: "",
                findings: vec![finding],
            }]
        };
        let text = as_text(&groups(), None);
        let (commands, lines): (Vec<_>, Vec<_>) = text
            .lines()
            .partition(|line| line.trim_start().starts_with("$ word"));
        assert_eq!(commands, [format!("{:INDENT$}$ {}", "", long.trim())]);
        assert!(lines.iter().all(|line| line.len() <= WIDTH), "{text}");
        assert!(
            text.starts_with("Title\n  + label                 word word"),
            "{text}"
        );
        for width in 40..200 {
            let text = as_text(&groups(), Some(width));
            assert!(
                text.lines().all(|line| line.len() <= width),
                "{width}: {text}"
            );
            let (_, command) = text.split_once("$ word").unwrap();
            let (command, _) = command.split_once("\n\n").unwrap();
            assert_eq!(
                words_of(&format!("word{command}")),
                vec!["word"; 60],
                "{width}: {text}"
            );
        }
        // Quoted text stays in one piece.
        for width in 20..60 {
            let lines = command_lines("run '/a long name/with blanks' and -f", Some(width));
            let command = lines.trim_start().trim_start_matches("$ ");
            assert_eq!(
                words_of(command),
                ["run", "/a long name/with blanks", "and", "-f"],
                "{width}"
            );
        }
    }

    /// Words that a shell reads in a command.
    fn words_of(command: &str) -> Vec<String> {
        let shell = std::process::Command::new("sh")
            .arg("-c")
            .arg(format!("printf '%s\\n' {command}"))
            .output();
        let out = String::from_utf8(shell.expect("there is a shell").stdout).expect("text");
        out.lines().map(str::to_owned).collect()
    }

    #[test]
    fn sizes_are_short() {
        assert_eq!(size(512), "512 bytes");
        assert_eq!(size(64 << 10), "64 KiB");
        assert_eq!(size((24 << 30) - 1), "24 GiB");
        assert_eq!(size(3 << 29), "1.5 GiB");
    }

    #[test]
    fn json_says_what_the_text_says() {
        let findings = vec![
            Finding::ok("one", "One", "all well", json!(1)),
            Finding::unknown("two", "Two", "no file")
                .means("nothing")
                .command("do it"),
        ];
        let object = as_json(&[Group {
            key: "k",
            title: "Title",
            about: "",
            findings,
        }]);
        assert_eq!(
            object.to_string(),
            r#"{"k":{"one":{"type":"finding","state":"ok","value":1,"text":"all well"},"two":{"type":"finding","state":"unknown","value":null,"text":"unknown: no file","means":"nothing","command":"do it"}}}"#
        );
    }
}
