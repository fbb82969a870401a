//! Help pages, made from the table of flags: a short one for `-h`, a long one for `--help`. The manual pages have the same
//! parts.

use crate::cli::{Cli, HEADINGS, TUNING};
use crate::terminal::{columns, help_width, wrapped};
use clap::{Arg, Command, CommandFactory};
use std::fmt::Write as _;

/// Columns of a help page at most.
const WIDTH: usize = 100;

/// Columns before the meaning of a flag in a long page.
const INDENT: usize = 10;

/// Names of flags that take more columns do not move the meanings of the others, in a short page.
const LONGEST_NAME: usize = 24;

/// Examples in a short page.
const COMMONEST: usize = 5;

/// Page of `weir -h` and `weir --help`.
pub const OVERVIEW: &str = "\
weir shows who uses a network, and filters, records, firewalls and generates traffic.
Usage: weir COMMAND [OPTIONS] ...

Look:    watch     Show the traffic on the whole screen, as it goes
         measure   Show the largest flows, hosts, networks and ports
         filter    Print, count, copy or convert packets that match an expression
         info      Show what capture files contain
         diff      Compare two captures, or two times of a record
Keep:    record    Keep recent packets in RAM or on disk; save them at a trigger
         query     Get recorded packets back by time and expression
Send:    generate  Make synthetic traffic with known counts
         replay    Send captures again, each packet at its time
Guard:   firewall  Forward packets between interfaces or files by a list of rules
System:  ctl       Change a run that goes on: its filter, keys, outputs, rules
         exec      Run a program of libpcap, with weir reading its packets
         extcap    Be an interface of Wireshark
         doctor    Check what this machine offers, and how to improve it
         bench     Compare weir with other tools (runs weir-bench)
         help      Explain a command, or: rules, expressions, keys, columns, triggers

Examples:
  sudo weir measure eth0 --key src --by bytes --window 1s
  weir filter 'udp port 53' trace.pcap -w dns.pcapng
weir COMMAND -h: the commonest flags. weir COMMAND --help: all. weir --version
";

/// A flag or argument of a command.
#[derive(Clone, Debug)]
pub struct Flag {
    /// Its names with its value, as `-w, --write <SINK>`.
    pub names: String,
    /// Its meaning in a line, without a period.
    pub short: String,
    /// More about it; empty if there is no more.
    pub more: String,
    /// Values with their meanings, if there are a few.
    pub values: Vec<(String, String)>,
    /// Value if the flag is left out; empty if there is none or it says nothing.
    pub default: String,
    /// Whether a short page only names it.
    pub is_rare: bool,
}

/// The parts of a help page.
#[derive(Clone, Debug)]
pub struct Page {
    /// Name of the command, as `weir firewall check`.
    pub name: String,
    /// Purpose, in a line.
    pub about: String,
    /// Command lines, with options in brackets.
    pub usage: Vec<String>,
    /// Command lines with their meanings; the commonest are first.
    pub examples: Vec<(String, String)>,
    /// Commands of the command, with what each does.
    pub commands: Vec<(String, String)>,
    /// Flags and arguments by heading.
    pub headings: Vec<(String, Vec<Flag>)>,
    /// Paragraphs about the rest, among them exit codes.
    pub notes: String,
}

/// The table of flags, as it parses command lines. In place of help it prints the length and the name of a page, which
/// [`page_for`] understands.
pub fn command() -> Command {
    marked(Cli::command(), "weir")
}

fn marked(command: Command, path: &str) -> Command {
    command
        .disable_help_subcommand(true)
        .help_template("{before-help}")
        .before_help(format!("short {path}"))
        .before_long_help(format!("long {path}"))
        .mut_subcommands(|inner| {
            let path = format!("{path} {}", inner.get_name());
            marked(inner, &path)
        })
}

/// The help page for what [`command`] printed in place of help.
pub fn page_for(mark: &str) -> Option<String> {
    let (length, path) = mark.trim().split_once(' ')?;
    let names: Vec<&str> = path.split(' ').skip(1).collect();
    text(&names, length == "long")
}

/// The help page of the command with these names, as `["firewall", "check"]`; of `weir` itself without names.
pub fn text(names: &[&str], is_long: bool) -> Option<String> {
    if names.is_empty() {
        return Some(fitted(OVERVIEW, width()));
    }
    let page = page(names)?;
    Some(if is_long {
        page.long(width())
    } else {
        page.short(width())
    })
}

/// Columns of a help page on this terminal.
pub fn width() -> usize {
    help_width().map_or(WIDTH, |width| width.min(WIDTH))
}

/// The page of the command with these names.
pub fn page(names: &[&str]) -> Option<Page> {
    let mut command = Cli::command();
    command.build();
    let mut found = &mut command;
    for name in names {
        found = found.find_subcommand_mut(name)?;
    }
    Some(Page::of(found))
}

/// The names of all commands and of their commands, as [`page`] takes them.
pub fn all() -> Vec<Vec<String>> {
    fn below(command: &Command, path: &[String], all: &mut Vec<Vec<String>>) {
        for inner in command.get_subcommands() {
            let mut path = path.to_vec();
            path.push(inner.get_name().to_owned());
            below(inner, &path, all);
            all.push(path);
        }
    }
    let mut all = Vec::new();
    below(&Cli::command(), &[], &mut all);
    all.sort();
    all
}

impl Page {
    fn of(command: &mut Command) -> Self {
        let usage = command.render_usage().to_string();
        let usage = usage.trim_start_matches("Usage:").lines().map(str::trim);
        let text = command.get_after_help().map(ToString::to_string);
        let (examples, notes) = parts(&text.unwrap_or_default());
        let about = command.get_about().map(ToString::to_string);
        let shown = command
            .get_subcommands()
            .filter(|inner| !inner.is_hide_set());
        Self {
            name: command.get_bin_name().unwrap_or("weir").to_owned(),
            about: about.unwrap_or_default(),
            usage: usage.map(|line| line.replace(['<', '>'], "")).collect(),
            examples,
            commands: shown
                .map(|inner| {
                    let about = inner.get_about().map(ToString::to_string);
                    (inner.get_name().to_owned(), about.unwrap_or_default())
                })
                .collect(),
            headings: headings(command),
            notes,
        }
    }

    /// The page for `-h`: the commonest examples, a line a flag, and the names of the other flags.
    pub fn short(&self, width: usize) -> String {
        let mut out = self.begin();
        self.write_examples(&mut out, COMMONEST, width);
        self.write_commands(&mut out);
        let mut rare = String::new();
        for (heading, flags) in &self.headings {
            let (hidden, shown): (Vec<_>, Vec<_>) = flags.iter().partition(|flag| flag.is_rare);
            for flag in hidden {
                let _ = write!(rare, " {}", flag.long_name());
            }
            if !shown.is_empty() {
                let gap = if heading == &self.headings[0].0 {
                    "\n"
                } else {
                    ""
                };
                let _ = writeln!(out, "{gap}{heading}:");
                shown
                    .iter()
                    .for_each(|flag| flag.write_line(&mut out, width));
            }
        }
        if !rare.is_empty() {
            let _ = write!(out, "\nLess used:{rare}\n");
        }
        let _ = write!(out, "\n{} --help explains all of it.\n", self.name);
        fitted(&out, width)
    }

    /// The page for `--help`.
    pub fn long(&self, width: usize) -> String {
        let mut out = self.begin();
        self.write_examples(&mut out, usize::MAX, width);
        self.write_commands(&mut out);
        for (heading, flags) in &self.headings {
            let _ = write!(out, "\n{heading}:\n");
            flags.iter().for_each(|flag| flag.write_all(&mut out));
        }
        if !self.notes.is_empty() {
            let _ = write!(out, "\n{}\n", paragraphs(&self.notes).join("\n"));
        }
        fitted(&out, width)
    }

    fn begin(&self) -> String {
        format!(
            "{}\n\nUsage: {}\n",
            self.about,
            self.usage.join("\n       ")
        )
    }

    /// The first `most` examples. A meaning without room next to its example goes below it.
    fn write_examples(&self, out: &mut String, most: usize, width: usize) {
        let shown = &self.examples[..most.min(self.examples.len())];
        if shown.is_empty() {
            return;
        }
        let fits = |line: &str, meaning: &str| columns(line) + columns(meaning) + 4 <= width;
        let aligned = shown.iter().filter(|(line, meaning)| fits(line, meaning));
        let aligned: Vec<_> = aligned.map(|(line, _)| columns(line)).collect();
        out.push_str("\nExamples:\n");
        for (line, meaning) in shown {
            let room = width.saturating_sub(columns(meaning) + 4);
            let most = aligned
                .iter()
                .copied()
                .filter(|&widest| widest <= room)
                .max();
            let line = format!("  {line:0$}  {meaning}", most.unwrap_or(0));
            let _ = writeln!(out, "{}", line.trim_end());
        }
    }

    fn write_commands(&self, out: &mut String) {
        if self.commands.is_empty() {
            return;
        }
        let widest = self.commands.iter().map(|(name, _)| name.len()).max();
        out.push_str("\nCommands:\n");
        for (name, about) in &self.commands {
            let _ = writeln!(out, "  {name:0$}  {about}", widest.unwrap_or(0));
        }
    }
}

impl Flag {
    fn of(arg: &Arg) -> Self {
        let short = arg.get_help().map(ToString::to_string).unwrap_or_default();
        let long = arg.get_long_help().map(ToString::to_string);
        let more = long.unwrap_or_default();
        let more = more.split_once("\n\n").map_or("", |(_, more)| more);
        let values: Vec<_> = arg
            .get_possible_values()
            .iter()
            .filter(|_| arg.get_action().takes_values())
            .map(|value| {
                let help = value.get_help().map(ToString::to_string);
                (value.get_name().to_owned(), help.unwrap_or_default())
            })
            .collect();
        let defaults = arg
            .get_default_values()
            .iter()
            .map(|value| value.to_string_lossy());
        let is_told = arg.is_hide_default_value_set() || !arg.get_action().takes_values();
        Self {
            names: names(arg, &values),
            short,
            more: more.replace('\n', " "),
            values,
            default: if is_told {
                String::new()
            } else {
                defaults.collect::<Vec<_>>().join(" ")
            },
            is_rare: arg.is_hide_short_help_set() || arg.get_help_heading() == Some(TUNING),
        }
    }

    /// The name for a list: the long one if there is one.
    fn long_name(&self) -> &str {
        let name = self.names.split(' ').find(|name| name.starts_with("--"));
        let name = name.unwrap_or(&self.names);
        name.split([' ', '[', ',']).next().unwrap_or(name)
    }

    fn write_line(&self, out: &mut String, width: usize) {
        let begin = format!("  {:LONGEST_NAME$}  {}", self.names, self.short);
        let values = self.values.iter().map(|(name, _)| name.as_str());
        let values = values.collect::<Vec<_>>().join(", ");
        let mut line = begin;
        if !self.values.is_empty() && !self.names.contains('|') {
            // A list that does not fit stands in the long page.
            let listed = format!("{line}: {values}");
            if columns(&listed) <= width {
                line = listed;
            }
        }
        let with_default = format!("{line} [default: {}]", self.default);
        if !self.default.is_empty() && columns(&with_default) <= width {
            line = with_default;
        }
        let _ = writeln!(out, "{line}");
    }

    fn write_all(&self, out: &mut String) {
        let dot = if self.more.is_empty() { "" } else { ". " };
        let default = match self.default.as_str() {
            "" => String::new(),
            default => format!(" [default: {default}]"),
        };
        let _ = writeln!(out, "  {}", self.names);
        let text = format!("{}{dot}{}", self.short.trim_end_matches('.'), self.more);
        let text = text.trim_end_matches('.');
        let _ = writeln!(out, "{:INDENT$}{text}{default}", "");
        let says_more = |(value, meaning): &&(String, String)| !meaning.eq_ignore_ascii_case(value);
        for (value, meaning) in self.values.iter().filter(says_more) {
            let _ = writeln!(out, "{:INDENT$}- {value}: {meaning}", "");
        }
    }
}

fn names(arg: &Arg, values: &[(String, String)]) -> String {
    let value = values.iter().map(|(name, _)| name.as_str());
    let value = value.collect::<Vec<_>>().join("|");
    let named = arg.get_value_names().unwrap_or_default();
    let value = match named {
        _ if !value.is_empty() && value.len() <= 20 => format!("<{value}>"),
        [name] => format!("<{name}>"),
        _ => format!("<{}>", arg.get_id().as_str().to_uppercase()),
    };
    if arg.is_positional() {
        let value = value.replace(['<', '>'], "");
        let value = if arg.is_required_set() {
            format!("<{value}>")
        } else {
            format!("[{value}]")
        };
        let many = matches!(arg.get_action(), clap::ArgAction::Append);
        return value + if many { "..." } else { "" };
    }
    let short = arg.get_short().map(|name| format!("-{name}"));
    let aliases = arg.get_visible_short_aliases().unwrap_or_default();
    let aliases = aliases.into_iter().map(|name| format!("-{name}"));
    let long = arg.get_long().map(|name| format!("--{name}"));
    let names: Vec<_> = short.into_iter().chain(aliases).chain(long).collect();
    let names = names.join(", ");
    match arg.get_num_args() {
        _ if !arg.get_action().takes_values() => names,
        Some(count) if count.min_values() == 0 => format!("{names}[={value}]"),
        _ => format!("{names} {value}"),
    }
}

/// The flags by heading, in the order of the headings. Within one, the order of the table is kept.
fn headings(command: &Command) -> Vec<(String, Vec<Flag>)> {
    let mut all = vec![("Arguments".to_owned(), Vec::new())];
    all.extend(HEADINGS.map(|name| (name.to_owned(), Vec::new())));
    all.push(("Options".to_owned(), Vec::new()));
    for arg in command.get_arguments() {
        let is_own = ["help", "version"].contains(&arg.get_id().as_str());
        if arg.is_hide_set() || is_own {
            continue;
        }
        let heading = match arg.get_help_heading() {
            _ if arg.is_positional() => "Arguments",
            Some(heading) => heading,
            None => "Options",
        };
        match all.iter_mut().find(|(name, _)| name == heading) {
            Some((_, flags)) => flags.push(Flag::of(arg)),
            None => all.push((heading.to_owned(), vec![Flag::of(arg)])),
        }
    }
    all.retain(|(_, flags)| !flags.is_empty());
    all
}

/// The examples of a text, and the paragraphs after them.
fn parts(text: &str) -> (Vec<(String, String)>, String) {
    let Some(rest) = text.strip_prefix("Examples:\n") else {
        return (Vec::new(), text.trim().to_owned());
    };
    let (block, notes) = rest.split_once("\n\n").unwrap_or((rest, ""));
    let mut examples: Vec<(String, String)> = Vec::new();
    for line in block.lines() {
        let is_meaning = line.starts_with("      ");
        let line = line.trim();
        match examples.last_mut() {
            Some((_, meaning)) if is_meaning => {
                let blank = if meaning.is_empty() { "" } else { " " };
                let _ = write!(meaning, "{blank}{line}");
            }
            _ => {
                let (command, meaning) = line.split_once("  ").unwrap_or((line, ""));
                examples.push((command.to_owned(), meaning.trim().to_owned()));
            }
        }
    }
    (examples, notes.trim().to_owned())
}

/// The text in lines of at most `width` columns. Where an example and its meaning have no room in a line, the meaning goes
/// below; paragraphs are broken where their lines are full.
fn fitted(text: &str, width: usize) -> String {
    /// Columns before a meaning that is below, and the shortest example.
    const BELOW: usize = 6;
    let line = |line: &str| {
        let indent = line.len() - line.trim_start_matches(' ').len();
        let gap = line[indent..]
            .find("  ")
            .filter(|&at| at > BELOW || columns(&line[..indent + at]) > BELOW)
            .map(|at| indent + at);
        match gap {
            _ if columns(line) <= width => format!("{line}\n"),
            Some(gap) if indent == 2 => {
                let below = format!("{:BELOW$}{}\n", "", line[gap..].trim_start());
                let above = wrapped(&format!("{}\n", &line[..gap]), Some(width), BELOW);
                above + &wrapped(&below, Some(width), 0)
            }
            _ => {
                let is_value = line.trim_start().starts_with("- ");
                let hang = if indent == 2 {
                    4
                } else {
                    2 * usize::from(is_value)
                };
                wrapped(&format!("{line}\n"), Some(width), hang)
            }
        }
    };
    text.lines().map(line).collect()
}

/// The lines of `text`. The lines of a paragraph are one line, so that it is broken at the width of the terminal and nowhere else.
fn paragraphs(text: &str) -> Vec<String> {
    let is_prose = |line: &str| !line.is_empty() && !line.starts_with(' ') && !line.ends_with(':');
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines() {
        match lines.last_mut() {
            Some(last) if is_prose(last) && is_prose(line) => {
                last.push(' ');
                last.push_str(line);
            }
            _ => lines.push(line.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::FromArgMatches;

    fn pages() -> Vec<Page> {
        let names = all();
        let names = names
            .iter()
            .map(|path| path.iter().map(String::as_str).collect::<Vec<_>>());
        names
            .map(|path| page(&path).expect("it is a command"))
            .collect()
    }

    /// The words of a command line as a shell splits it, without redirections; of a pipe the part of weir.
    fn words(line: &str) -> Vec<String> {
        let line = line.split(" | jq").next().unwrap_or(line);
        let at = line.find("weir ").expect("each example runs weir");
        let (mut words, mut word, mut quoted) = (Vec::new(), String::new(), false);
        for c in line[at..].chars().chain([' ']) {
            match c {
                '\'' => quoted = !quoted,
                ' ' if !quoted => words.push(std::mem::take(&mut word)),
                c => word.push(c),
            }
        }
        words.retain(|word| !word.starts_with(['<', '>']));
        words
    }

    #[test]
    fn examples_are_commands_and_say_what_they_do() {
        for page in pages() {
            assert!(
                !page.examples.is_empty() || page.name.contains(" ctl "),
                "{}",
                page.name
            );
            for (line, meaning) in &page.examples {
                let parsed = command().try_get_matches_from(words(line));
                let parsed = parsed.and_then(|matches| Cli::from_arg_matches(&matches));
                assert!(parsed.is_ok(), "{line}: {parsed:?}");
                assert!(
                    !line.contains("  ") && meaning.len() < 60,
                    "{line}: {meaning}"
                );
            }
        }
        for line in OVERVIEW
            .lines()
            .skip_while(|line| *line != "Examples:")
            .skip(1)
        {
            if line.starts_with("  ") {
                assert!(
                    command().try_get_matches_from(words(line)).is_ok(),
                    "{line}"
                );
            }
        }
    }

    #[test]
    fn short_pages_fit_and_have_a_line_for_each_flag() {
        let mut long_lines = Vec::new();
        assert!(OVERVIEW.lines().count() <= 24 && OVERVIEW.lines().all(|line| line.len() <= 90));
        for inner in Cli::command().get_subcommands() {
            assert!(
                OVERVIEW.contains(&format!(" {}  ", inner.get_name())),
                "{inner:?}"
            );
        }
        for page in pages() {
            let short = page.short(80);
            assert!(
                short.lines().count() <= 60,
                "{} lines: {short}",
                short.lines().count()
            );
            assert!(
                short.lines().all(|line| line.chars().count() <= 80),
                "{short}"
            );
            let long = page.long(80);
            for flag in page.headings.iter().flat_map(|(_, flags)| flags) {
                let name = flag.long_name();
                assert!(
                    short.contains(name) && long.contains(&flag.names),
                    "{}: {name}",
                    page.name
                );
                let is_line = |line: &str| {
                    line.trim_start().starts_with(&flag.names) && line.contains(&flag.short)
                };
                if !flag.is_rare && !short.lines().any(is_line) {
                    long_lines.push(format!("{}: {} {}", page.name, flag.names, flag.short));
                }
            }
        }
        assert!(
            long_lines.is_empty(),
            "no room at 80 columns: {long_lines:#?}"
        );
    }

    #[test]
    fn headings_have_one_order_and_defaults_are_told_once() {
        for page in pages() {
            let mut rest = HEADINGS.iter();
            for (heading, flags) in page
                .headings
                .iter()
                .filter(|(name, _)| !["Arguments", "Options"].contains(&name.as_str()))
            {
                assert!(rest.any(|name| name == heading), "{}: {heading}", page.name);
                for flag in flags {
                    let told = format!("{} {}", flag.short, flag.more)
                        .matches("[default")
                        .count();
                    let told = told + usize::from(!flag.default.is_empty());
                    assert!(told <= 1, "{}: {}", page.name, flag.names);
                }
            }
        }
    }
}
