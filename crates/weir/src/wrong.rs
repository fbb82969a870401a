//! Command lines that are wrong: one line each, with the cause and a command that is right.

use crate::cli::Cli;
use crate::topics::TOPICS;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, CommandFactory, Parser};
use std::error::Error as _;
use std::path::Path;
use weir_engine::capture::is_interface;
use weir_packet::suggestions::{did_you_mean, nearest};

/// The line for `error`, about these arguments without the name of the program.
pub fn line(error: &clap::Error, arguments: &[String]) -> String {
    let mut root = Cli::command();
    root.build();
    let wrong = Wrong::of(&root, error, arguments);
    match error.kind() {
        ErrorKind::InvalidSubcommand => wrong.unknown_command(),
        ErrorKind::UnknownArgument => wrong.unknown_argument(),
        ErrorKind::InvalidValue | ErrorKind::ValueValidation | ErrorKind::InvalidUtf8 => {
            wrong.wrong_value()
        }
        ErrorKind::MissingRequiredArgument => wrong.missing(),
        ErrorKind::ArgumentConflict => wrong.conflict(),
        _ => wrong.other(),
    }
}

/// A wrong command line.
struct Wrong<'a> {
    error: &'a clap::Error,
    root: &'a Command,
    /// Names of the command, as `["firewall", "ctl"]`.
    names: Vec<&'a str>,
    command: &'a Command,
    /// Arguments after these names.
    rest: &'a [String],
}

impl<'a> Wrong<'a> {
    fn of(root: &'a Command, error: &'a clap::Error, arguments: &'a [String]) -> Self {
        let (mut command, mut names, mut at, mut end) = (root, Vec::new(), 0, 0);
        while let Some(word) = arguments.get(at) {
            if let Some(inner) = command.find_subcommand(word) {
                command = inner;
                names.push(word.as_str());
                end = at + 1;
            } else if !word.starts_with('-') || command.get_subcommands().next().is_none() {
                break;
            } else if takes_a_value(command, word) {
                at += 1;
            }
            at += 1;
        }
        let rest = &arguments[end..];
        Self {
            error,
            root,
            names,
            command,
            rest,
        }
    }

    /// The command as it is typed: `weir firewall ctl`.
    fn called(&self) -> String {
        let names = self.names.iter().map(|name| format!(" {name}"));
        format!("weir{}", names.collect::<String>())
    }

    fn name(&self) -> &str {
        self.names.last().copied().unwrap_or("")
    }

    /// Words of the parser about this, as one text.
    fn said(&self, kind: ContextKind) -> String {
        match self.error.get(kind) {
            Some(ContextValue::String(text)) => text.clone(),
            Some(ContextValue::Strings(texts)) => texts.join(", "),
            _ => String::new(),
        }
    }

    fn flags(command: &Command) -> impl Iterator<Item = &Arg> {
        command.get_arguments().filter(|arg| !arg.is_positional())
    }

    fn unknown_command(&self) -> String {
        let word = self.said(ContextKind::InvalidSubcommand);
        let is_there = Path::new(&word).exists();
        if is_there && self.names.last() == Some(&"ctl") {
            let called = self.called();
            return format!(
                "the socket of a run goes after --control: {called} --control {word} COMMAND"
            );
        }
        if self.names == ["firewall", "ctl"] {
            return self.unknown_control(&word);
        }
        if let Some(right) = command_for(&word) {
            return format!("unknown command '{word}': {right}");
        }
        if is_there {
            return format!("{word} is a file: weir measure {word}, or weir info {word}");
        }
        if is_interface(&word) {
            return format!("{word} is an interface: sudo weir measure {word}");
        }
        if TOPICS.iter().any(|topic| topic.name == word) {
            return format!("{word} is a topic: weir help {word}");
        }
        let all: Vec<_> = self
            .command
            .get_subcommands()
            .map(Command::get_name)
            .collect();
        match nearest(&word, all.iter().copied()) {
            Some(near) => {
                format!(
                    "unknown command '{word}': did you mean {} {near}?",
                    self.called()
                )
            }
            None if word.starts_with('-') => {
                format!("unknown option {word} before the command: weir -h lists commands")
            }
            None => format!(
                "unknown command '{word}': commands are {}; {} -h",
                all.join(", "),
                self.called()
            ),
        }
    }

    fn unknown_control(&self, word: &str) -> String {
        let right = match word {
            "unblock" | "unban" | "allow" | "pass" | "permit" | "remove" | "delete" => "accept",
            "ban" | "deny" | "drop" | "reject" | "add" => "block",
            "status" | "show" | "counters" => "stats",
            "monitor" | "top" => "watch",
            "blocked" | "banned" | "ls" => "list",
            _ => "",
        };
        let all: Vec<_> = self
            .command
            .get_subcommands()
            .map(Command::get_name)
            .collect();
        let right = if right.is_empty() {
            nearest(word, all.iter().copied()).unwrap_or("")
        } else {
            right
        };
        let address = if ["accept", "block", "refuse"].contains(&right) {
            let given = self
                .rest
                .iter()
                .find(|given| given.parse::<std::net::IpAddr>().is_ok());
            format!(" {}", given.map_or("192.0.2.7", String::as_str))
        } else {
            String::new()
        };
        match right {
            "" => format!(
                "unknown command 'ctl {word}': weir firewall ctl has {}",
                all.join(", ")
            ),
            right => {
                format!("unknown command 'ctl {word}': use weir firewall ctl {right}{address}")
            }
        }
    }

    fn unknown_argument(&self) -> String {
        let typed = self.said(ContextKind::InvalidArg);
        let word = typed.split('=').next().unwrap_or(&typed);
        if !word.starts_with('-') {
            return self.one_too_many(&typed);
        }
        let called = self.called();
        if word[1..].starts_with(|c: char| c.is_ascii_digit())
            && let Some(flag) = self.flag_before(word)
        {
            return self.negative(flag, word);
        }
        if let Some(words) = self.neighbour(word) {
            return words;
        }
        let has = |command: &&Command| {
            Self::flags(command)
                .flat_map(names_of)
                .any(|name| name == word)
        };
        let others: Vec<_> = self
            .root
            .get_subcommands()
            .filter(has)
            .map(Command::get_name)
            .collect();
        if !others.is_empty() {
            return format!(
                "{called} has no {word}: weir {} has it; {called} -h lists the options",
                others.join(", weir ")
            );
        }
        let flags: Vec<String> = Self::flags(self.command).flat_map(names_of).collect();
        if let Some(near) = nearest(
            word,
            flags
                .iter()
                .map(String::as_str)
                .filter(|flag| flag.len() > 2),
        )
        .filter(|_| word.len() > 2)
        {
            return format!("unknown option {word}: did you mean {near}?");
        }
        format!("unknown option {word}: {called} -h lists the options")
    }

    /// Answers to options of tcpdump, tshark and others that this command lacks.
    fn neighbour(&self, word: &str) -> Option<String> {
        let called = self.called();
        let value = self.value_after(word);
        let reads = [
            "measure", "filter", "record", "info", "query", "diff", "replay",
        ]
        .contains(&self.name());
        let answer = match word {
            "-i" | "--interface" if self.name() == "query" => {
                "weir query reads a record: sudo weir record eth0 /var/cap makes one of an interface".to_owned()
            }
            "-i" | "--interface" if self.name() == "diff" => {
                let name = value.unwrap_or("eth0");
                format!(
                    "weir diff compares files and records: weir measure {name} --window 10s --changers 10 compares the windows of an interface"
                )
            }
            "-r" | "--read" | "--read-file" if self.name() == "diff" => {
                "weir diff takes files without a flag: weir diff before.pcap after.pcap".to_owned()
            }
            "-i" | "--interface" if self.name() == "info" => {
                "interfaces are listed with weir filter -D".to_owned()
            }
            "-i" | "--interface" if reads => {
                let name = value.unwrap_or("eth0");
                format!("{called} takes interfaces without a flag: sudo {called} {name}")
            }
            "-r" | "--read" | "--read-file" if reads => {
                let name = value.unwrap_or("trace.pcap");
                format!("{called} takes files without a flag: {called} {name}")
            }
            "-v" | "-vv" | "-vvv" | "-q" | "--verbose" | "--quiet" if reads => format!(
                "{called} has no {word}: weir filter -v prints more of each packet; --stats prints the totals of a run"
            ),
            "-A" | "-AA" => format!("{called} has no {word}: weir filter -A prints ASCII"),
            "-n" | "-nn" | "-N" => {
                format!("{called} has no {word}: addresses are never looked up, leave it out")
            }
            "-B" | "--buffer-size" => format!("{called} has no {word}: --ring 64M sets the buffer"),
            "-Y" | "-f" | "--display-filter" if self.name() == "filter" => {
                "the expression comes first, without a flag: weir filter 'udp port 53' trace.pcap".to_owned()
            }
            "-Y" | "-f" if reads => format!("{called} has no {word}: --filter 'udp port 53'"),
            "-o" | "--output" | "--out" | "--write-file"
                if !["info", "diff"].contains(&self.name()) =>
            {
                let name = value.unwrap_or("out.pcapng");
                format!("unknown option {word}: did you mean -w {name}?")
            }
            "-n1" | "--limit" | "--head" | "--max-count" => {
                format!("unknown option {word}: --top N in weir measure, -c N in weir filter")
            }
            "--count" if self.name() == "measure" => {
                "weir measure has no --count: its heading has the totals; weir filter '' FILE --count counts packets"
                    .to_owned()
            }
            "--sort" if self.name() == "info" || self.name() == "query" => format!(
                "{called} has no --sort: weir filter '' FILE --sort puts packets in time order"
            ),
            "--interval" | "--every" | "--period" if self.name() == "measure" => {
                let time = value.unwrap_or("10s");
                format!("unknown option {word}: did you mean --window {time}?")
            }
            "--format" | "--csv" | "--output-format" => {
                format!("unknown option {word}: --json prints JSON")
            }
            "--sort-by" | "--order" | "--rank" => format!("unknown option {word}: --by bytes ranks"),
            _ => return None,
        };
        Some(answer)
    }

    /// The flag before `word`, if it takes a value.
    fn flag_before(&self, word: &str) -> Option<&str> {
        let at = self.rest.iter().position(|given| given == word)?;
        let flag = self.rest.get(at.checked_sub(1)?)?;
        takes_a_value(self.command, flag).then_some(flag.as_str())
    }

    /// A negative number after a flag: what its parser says of other values, unless it is a count.
    fn negative(&self, flag: &str, word: &str) -> String {
        let is_count = |arg: &&Arg| {
            let mut names = arg.get_value_names().unwrap_or_default().iter();
            names_of(arg).iter().any(|name| name == flag) && names.any(|name| name == "N")
        };
        if self.command.get_arguments().any(|arg| is_count(&arg)) {
            return format!("{flag}: '{word}' is too small: use {flag} 1 or more");
        }
        let joined = format!("{flag}={word}");
        let names = self.names.iter().map(|name| (*name).to_owned());
        let mut arguments: Vec<String> = std::iter::once("weir".to_owned()).chain(names).collect();
        let mut rest = self.rest.iter().peekable();
        while let Some(given) = rest.next() {
            match given == flag && rest.next_if(|next| *next == word).is_some() {
                true => arguments.push(joined.clone()),
                false => arguments.push(given.clone()),
            }
        }
        match Cli::try_parse_from(&arguments) {
            Err(error) if error.kind() == ErrorKind::ValueValidation => {
                line(&error, &arguments[1..])
            }
            _ => format!("{flag}: a value that begins with - is written {joined}"),
        }
    }

    /// The argument after `word`, if it is a value.
    fn value_after(&self, word: &str) -> Option<&str> {
        let at = self.rest.iter().position(|given| given == word)?;
        self.rest
            .get(at + 1)
            .map(String::as_str)
            .filter(|next| !next.starts_with('-'))
    }

    /// An argument without a dash for which there is no place.
    fn one_too_many(&self, word: &str) -> String {
        match self.name() {
            "query" => {
                let words: Vec<_> = self
                    .rest
                    .iter()
                    .take_while(|word| !word.starts_with('-'))
                    .collect();
                let words = words
                    .iter()
                    .skip(1)
                    .map(|word| word.as_str())
                    .collect::<Vec<_>>();
                format!(
                    "unexpected argument '{word}': an expression is one argument, in quotes: '{}'",
                    words.join(" ")
                )
            }
            "generate" => format!(
                "unexpected argument '{word}': one file or port at a time: weir generate demo.pcap"
            ),
            "firewall" => format!(
                "unexpected argument '{word}': name IN, OUT and the rules: weir firewall IN OUT --rules FILE"
            ),
            "translate" => {
                format!("unexpected argument '{word}': weir firewall translate RULESET.json")
            }
            _ => format!(
                "unexpected argument '{word}': {} -h shows the usage",
                self.called()
            ),
        }
    }

    fn wrong_value(&self) -> String {
        let arg = self.said(ContextKind::InvalidArg);
        let flag = flag_of(&arg);
        let value = self.said(ContextKind::InvalidValue);
        let valid = self.said(ContextKind::ValidValue);
        if value.is_empty() && self.error.source().is_none() {
            return match valid.as_str() {
                "" => format!("{flag} needs a value: {}", arg.replace(['<', '>'], "")),
                valid => format!("{flag} needs a value: {valid}"),
            };
        }
        if !valid.is_empty() {
            let near = did_you_mean(&value, valid.split(", "));
            return format!("unknown value '{value}' for {flag}{near}: {valid}");
        }
        let why = self
            .error
            .source()
            .map(ToString::to_string)
            .unwrap_or_default();
        let (unit, _) = arg.split_once(' ').map_or(("", ""), |(_, unit)| (unit, ""));
        let is_number = why.contains("invalid digit") || why.contains("cannot parse integer");
        if is_number {
            return format!("{flag}: '{value}' is not a number: write {flag} 10");
        }
        if why.contains("invalid float") {
            return format!("{flag}: '{value}' is not a number: write {flag} 1.1");
        }
        if why.contains("number too large") {
            return format!("{flag}: '{value}' is too large: write {flag} 10");
        }
        if let Some((_, range)) = why.split_once(" is not in ") {
            return format!("{flag} {}", range_words(range, &value));
        }
        if why.is_empty() {
            return format!(
                "{flag}: '{value}' is not a right value for {unit}: {} -h",
                self.called()
            );
        }
        format!("{flag}: {why}")
    }

    fn missing(&self) -> String {
        let missing = self.said(ContextKind::InvalidArg);
        if let Some(words) = self.missing_places(&missing) {
            return words;
        }
        let all: Vec<_> = missing
            .split(", ")
            .map(|arg| arg.replace(['<', '>'], ""))
            .collect();
        let of: Vec<_> = self.needing(&all);
        match of.first() {
            Some(flag) => format!(
                "{flag} needs {}: add it, or leave {flag} out",
                all.join(" and ")
            ),
            None => format!(
                "name {}: {} -h shows the usage",
                all.join(", "),
                self.called()
            ),
        }
    }

    /// Flags of this command line that may need the missing ones: flags without which nothing is missing, else all.
    fn needing(&self, missing: &[String]) -> Vec<String> {
        let given = self.rest.iter().filter(|word| word.starts_with('-'));
        let given = given.map(|word| word.split('=').next().unwrap_or(word).to_owned());
        let is_missing = |flag: &String| {
            let words = missing.iter().flat_map(|name| name.split(' '));
            words.into_iter().any(|word| word == flag)
        };
        let given: Vec<_> = given.filter(|flag| !is_missing(flag)).collect();
        let (alone, others) = given
            .into_iter()
            .partition(|flag| self.is_whole_without(flag));
        let alone: Vec<_> = alone;
        if alone.is_empty() { others } else { alone }
    }

    /// Whether no flag is missing if this one is left out.
    fn is_whole_without(&self, flag: &str) -> bool {
        let mut words = vec!["weir".to_owned()];
        words.extend(self.names.iter().map(|name| (*name).to_owned()));
        let mut rest = self.rest.iter();
        while let Some(word) = rest.next() {
            if word == flag && takes_a_value(self.command, word) {
                rest.next();
            } else if word != flag && word.split('=').next() != Some(flag) {
                words.push(word.clone());
            }
        }
        let parsed = self.root.clone().try_get_matches_from(words);
        parsed.map_or_else(
            |error| error.kind() != ErrorKind::MissingRequiredArgument,
            |_| true,
        )
    }

    /// The first argument that is not a flag.
    fn first(&self) -> Option<&str> {
        self.rest
            .iter()
            .map(String::as_str)
            .find(|word| !word.starts_with('-') || *word == "-")
    }

    /// Line on the missing value of `weir ctl set`.
    fn missing_setting(&self) -> Option<String> {
        let after = self.rest.iter().skip_while(|word| *word != "set").nth(1);
        let name = after.map_or_else(|| self.name(), String::as_str);
        let (what, example) = match name {
            "filter" => ("an expression", "'udp port 53'"),
            "key" => ("one or several keys", "src dport"),
            "sketch" => ("a sketch", "exact"),
            "memory" => ("a size", "16M"),
            "rules" => ("a file of rules", "rules.txt"),
            "output" => ("a file", "b.pcapng"),
            "rate" => ("a rate", "100kpps"),
            "speed" => ("a speed", "2x"),
            "sizes" => ("sizes", "imix"),
            "field" => ("a field and its values", "ipv4.ttl=9"),
            _ => return None,
        };
        Some(format!(
            "name {what}: weir ctl --control PATH set {name} {example}"
        ))
    }

    fn missing_places(&self, missing: &str) -> Option<String> {
        let first = self.first();
        let words = match self.name() {
            _ if self.names.first() == Some(&"ctl") && !missing.contains("--control") => self.missing_setting()?,
            "measure" if missing.contains("SOURCE") => {
                "name a capture file or an interface: weir measure trace.pcap, or sudo weir measure eth0".to_owned()
            }
            "filter" if missing.contains("EXPR") || missing.contains("SOURCE") => match first {
                Some(first) if Path::new(first).is_file() => format!(
                    "{first} is a file where the expression should be: weir filter '' {first} prints all packets"
                ),
                Some(first) if is_interface(first) => format!(
                    "{first} is an interface where the expression should be: sudo weir filter '' {first}"
                ),
                Some(first) => format!("name a source after the expression: weir filter '{first}' trace.pcap"),
                None => "name an expression and a source: weir filter 'udp port 53' trace.pcap".to_owned(),
            },
            "record" => {
                let mut asked = ["--status", "--reindex"].into_iter();
                let asked = asked.find(|flag| self.rest.iter().any(|word| word == flag));
                match asked {
                    Some(flag) => format!("{flag} is about a directory: weir record {flag} /var/cap"),
                    None => "name a source and a directory: weir record eth0 /var/cap".to_owned(),
                }
            }
            _ if missing.contains("--control") && self.names.first() == Some(&"ctl") => {
                let rest: Vec<_> = self.names[1..].iter().copied().chain(self.rest.iter().map(String::as_str)).collect();
                format!("name the control socket of the run: weir ctl --control PATH {}", rest.join(" "))
            }
            "query" if missing.contains("DIR") => {
                "name the directory of a recorder: weir query /var/cap 'udp port 53' --last 5m".to_owned()
            }
            "exec" => "name a program: weir exec tcpdump -nr trace.pcap".to_owned(),
            "info" => "name a capture file: weir info trace.pcap".to_owned(),
            "replay" if missing.contains("--to2") => {
                "--split-by chooses the packets of a second interface: add --to2 IF".to_owned()
            }
            "replay" if missing.contains("--split-by") => {
                "--to2 needs the expression of its packets: add --split-by EXPR".to_owned()
            }
            "replay" if missing.contains("--loop") => {
                "--shift-addresses changes what later passes send: add --loop N".to_owned()
            }
            "replay" => "name a capture, and the interface that sends it: weir replay trace.pcap --to eth1".to_owned(),
            "generate" if missing.contains("SINK") => {
                "name a file or a port: weir generate demo.pcap".to_owned()
            }
            "firewall" if missing.contains("IN") || missing.contains("OUT") => self.firewall_places(),
            "firewall" if missing.contains("--rules") && !missing.contains("--control") => {
                "name the rules: --rules rules.txt (weir help rules)".to_owned()
            }
            "check" => match first {
                Some(rules) => format!("name a capture after the rules: weir firewall check {rules} trace.pcap"),
                None => "name rules and captures: weir firewall check rules.txt trace.pcap".to_owned(),
            },
            "translate" => {
                "name a ruleset: nft -j list ruleset | weir firewall translate -".to_owned()
            }
            name @ ("block" | "accept" | "refuse") => {
                format!("name an address: weir firewall ctl {name} 192.0.2.7")
            }
            _ => return None,
        };
        Some(words)
    }

    /// A line of `weir firewall` without IN or OUT, in which the name of its command may be misspelt.
    fn firewall_places(&self) -> String {
        let known = self.command.get_subcommands().map(Command::get_name);
        match self
            .first()
            .filter(|word| !Path::new(word).exists() && !is_interface(word))
        {
            Some("block" | "unblock" | "accept" | "list" | "stats" | "reload") => format!(
                "unknown command 'firewall {0}': use weir firewall ctl {0}",
                self.first().unwrap_or_default()
            )
            .replace("ctl unblock", "ctl accept"),
            Some(word) => match nearest(word, known) {
                Some(near) => {
                    format!("unknown command 'firewall {word}': did you mean weir firewall {near}?")
                }
                None => {
                    format!("name OUT and the rules: weir firewall {word} eth1 --rules rules.txt")
                }
            },
            None => {
                "name IN, OUT and the rules: weir firewall eth0 eth1 --rules rules.txt".to_owned()
            }
        }
    }

    fn conflict(&self) -> String {
        let arg = self.said(ContextKind::InvalidArg);
        let prior = self.said(ContextKind::PriorArg);
        let flag = flag_of(&arg);
        if self.names == ["firewall"] {
            let first = self.first().unwrap_or_default();
            let known = self.command.get_subcommands().map(Command::get_name);
            if let Some(near) = nearest(first, known) {
                return format!(
                    "unknown command 'firewall {first}': did you mean weir firewall {near}?"
                );
            }
            if prior.contains("IN") || prior.contains("OUT") || !arg.starts_with('-') {
                return "weir firewall takes IN and OUT, and the rules with a flag: weir firewall eth0 eth1 --rules rules.txt"
                    .to_owned();
            }
        }
        let prior: Vec<_> = prior.split(", ").map(flag_of).collect();
        if prior.contains(&flag) || prior == [""] {
            return format!("{flag} is given twice: give it once");
        }
        format!(
            "{flag} and {} exclude each other: leave one of them out",
            prior.join(", ")
        )
    }

    fn other(&self) -> String {
        let text = self.error.to_string();
        let first = text.lines().next().unwrap_or_default();
        let first = first.strip_prefix("error: ").unwrap_or(first);
        format!("{first}: {} -h shows the usage", self.called())
    }
}

/// The commands for what people call otherwise.
fn command_for(word: &str) -> Option<&'static str> {
    Some(match word {
        "talkers" | "flows" | "stat" | "stats" => "weir measure trace.pcap shows the largest flows",
        "live" | "monitor" => "sudo weir watch eth0 shows an interface on the whole screen",
        "merge" => "weir filter '' a.pcap b.pcap --merge -w out.pcapng merges files",
        "convert" => "weir filter '' in.pcapng -w out.pcap converts a file",
        "sort" => "weir filter '' in.pcap --sort -w out.pcapng sorts a file",
        "split" => "weir filter '' in.pcap --split dns='port 53' splits a file",
        "cut" | "editcap" => "weir filter '' in.pcap -s 64 -w out.pcap cuts packets",
        "capture" | "dump" | "sniff" | "tcpdump" => {
            "sudo weir filter '' eth0 -w out.pcapng captures"
        }
        "read" | "print" | "show" => "weir filter '' trace.pcap prints packets",
        "grep" | "search" => "weir filter 'udp port 53' trace.pcap prints matching packets",
        "count" => "weir filter '' trace.pcap --count counts packets",
        "send" => "sudo weir replay trace.pcap --to eth1 sends a file",
        "block" | "unblock" | "ban" | "unban" => {
            "weir firewall ctl block 192.0.2.7, or accept to unblock"
        }
        "check" => "weir firewall check rules.txt trace.pcap tries rules",
        "interfaces" | "list" | "devices" => "weir filter -D lists the interfaces",
        "man" | "manual" => "weir help, or man weir",
        "version" => "weir --version",
        _ => return None,
    })
}

/// Whether a word is a flag of the command that takes the next word as its value.
fn takes_a_value(command: &Command, word: &str) -> bool {
    let of_name = |arg: &&Arg| names_of(arg).iter().any(|name| name == word);
    let arg = command.get_arguments().find(of_name);
    arg.is_some_and(|arg| arg.get_action().takes_values() && !arg.is_require_equals_set())
}

/// The names of a flag: `--top`, `-w`.
fn names_of(arg: &Arg) -> Vec<String> {
    let long = arg.get_long().map(|name| format!("--{name}"));
    let short = arg.get_short().map(|name| format!("-{name}"));
    long.into_iter().chain(short).collect()
}

/// The flag of `--top <N>`, or the place of `<SOURCE>...`.
fn flag_of(arg: &str) -> &str {
    let flag = arg.split([' ', '=']).next().unwrap_or(arg);
    flag.trim_end_matches("...")
        .trim_matches(['<', '>', '[', ']'])
}

/// Range in which a number has to be, for `1..=256` and a value outside.
fn range_words(range: &str, value: &str) -> String {
    let (least, most) = range.split_once("..").unwrap_or((range, ""));
    let most = most.trim_start_matches('=');
    let is_open = most.is_empty() || most.len() > 9;
    match value.parse::<i128>() {
        Ok(0) if least == "1" && is_open => {
            "0 is too small: use at least 1, or leave it out for no limit".to_owned()
        }
        _ if is_open => format!("{value} is too small: use at least {least}"),
        _ => format!("{value} is out of range: use {least} to {most}"),
    }
}
