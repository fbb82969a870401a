//! The `weir` command as a library: its table of flags, from which help, manual pages and completions are made, and its
//! main function. Other programs use the crate `weir-api`.
#![forbid(unsafe_code)]

mod bench;
mod capture;
pub mod cli;
mod ctl;
mod diff;
mod doctor;
mod emit;
mod exec;
mod extcap;
mod filter;
mod filter_file;
mod firewall;
mod generate;
pub mod help;
mod info;
mod interfaces;
mod links;
mod measure;
mod outcome;
mod outputs;
mod processes;
mod programs;
mod progress;
mod query;
mod rate;
mod receive;
mod record;
mod replay;
mod script;
mod show;
mod sources;
mod summary;
mod table;
mod terminal;
mod times;
mod toml_file;
pub mod topics;
mod walls;
mod watch;
mod wrong;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches};
use cli::{Cli, Command, HelpArgs};
use outcome::Outcome;
use std::ffi::OsString;
use std::io;
use std::process::ExitCode;
use weir_engine::name::Name;
use weir_messages::{numbers, ports as port};
use weir_packet::suggestions::did_you_mean;

/// Runs the command that the arguments of this process name, and returns its exit code.
pub fn main() -> ExitCode {
    // A program that takes the place of weir begins with the signals that weir was started with.
    if std::env::args_os()
        .nth(1)
        .is_none_or(|command| command != exec::NAME)
    {
        weir_io::sys::bear_signals();
        weir_io::sys::guard_mappings();
    }
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_some_and(|role| role == programs::ROLE)
        && let (Some(flag), Some(program), None) =
            (arguments.next(), arguments.next(), arguments.next())
        && let Some(flag) = programs::Flag::of(&flag)
    {
        return exit_code(Ok(programs::serve(flag, &program)));
    }
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_some_and(|role| role == processes::ROLE) {
        let interfaces = arguments.filter_map(|name| name.into_string().ok());
        return exit_code(Ok(processes::serve(interfaces)));
    }
    weir_io::sys::writer::open_terminals();
    let command = match parsed(std::env::args_os()) {
        Ok(cli) => cli.command,
        Err(error) => return refused(&error),
    };
    let outcome = match command {
        Command::Measure(arguments) => measure::run(arguments),
        Command::Watch(arguments) => watch::run(arguments),
        Command::Filter(arguments) => filter::run(arguments),
        Command::Record(arguments) => record::run(arguments),
        Command::Query(arguments) => query::run(arguments),
        Command::Diff(arguments) => diff::run(arguments),
        Command::Firewall(arguments) => firewall::run(arguments),
        Command::Info(arguments) => info::run(&arguments),
        Command::Generate(arguments) => generate::run(&arguments),
        Command::Replay(arguments) => replay::run(arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Ctl(arguments) => ctl::run(&arguments),
        Command::Exec(arguments) => exec::run(&arguments),
        Command::Extcap(arguments) => extcap::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Help(arguments) => explain(&arguments),
    };
    exit_code(outcome)
}

/// The command that these arguments mean.
fn parsed(arguments: impl IntoIterator<Item: Into<OsString> + Clone>) -> Result<Cli, clap::Error> {
    Cli::from_arg_matches(&help::command().try_get_matches_from(arguments)?)
}

/// `weir help`: the page of a command, or a topic.
fn explain(arguments: &HelpArgs) -> anyhow::Result<Outcome> {
    let names: Vec<&str> = arguments.topic.iter().map(String::as_str).collect();
    let topic = topics::TOPICS.iter().find(|topic| names == [topic.name]);
    let text = match topic {
        Some(topic) => Some(topics::text(topic.page, help::width())),
        None => help::text(&names, true),
    };
    let Some(text) = text else {
        anyhow::bail!(
            "unknown topic '{}'{}: weir help lists the commands; topics are rules, expressions, keys, columns, triggers",
            names.join(" "),
            topic_meant(&names),
        );
    };
    Ok(outcome::answer(&text))
}

/// The command or topic that was meant, in words.
fn topic_meant(names: &[&str]) -> String {
    let command = Cli::command();
    let commands = command.get_subcommands().map(clap::Command::get_name);
    let known: Vec<&str> = commands
        .chain(topics::TOPICS.iter().map(|topic| topic.name))
        .collect();
    did_you_mean(names.first().copied().unwrap_or_default(), known)
}

fn exit_code(outcome: anyhow::Result<Outcome>) -> ExitCode {
    match outcome {
        Ok(Outcome::Done) => ExitCode::SUCCESS,
        Ok(Outcome::Failed) => ExitCode::FAILURE,
        Err(error) => {
            outcome::say(&words(&error));
            ExitCode::from(2)
        }
    }
}

/// An error and its causes. Some errors have the words of their cause already.
fn words(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// Prints help, or the reason why the arguments are refused.
fn refused(error: &clap::Error) -> ExitCode {
    let wrong =
        error.use_stderr() && error.kind() != ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    if !wrong {
        let text = error.to_string();
        let text = match error.kind() {
            ErrorKind::DisplayVersion => text,
            _ => help::page_for(&text).unwrap_or(text),
        };
        let printed = if error.use_stderr() {
            outcome::show(&text);
            Ok(())
        } else {
            outcome::print(&text)
        };
        let usual = ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        return match printed {
            // A reader that closes the pipe early is not a failure.
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                outcome::say(&format!("standard output: {}", outcome::io_words(&error)));
                ExitCode::FAILURE
            }
            _ => usual,
        };
    }
    // The message quotes the arguments as typed. Parsing them again in printable form gives the same refusal, safe to
    // print.
    let shown = parsed(std::env::args_os().map(|argument| Name::from(argument).to_string()));
    let shown = shown.err();
    let arguments: Vec<String> = std::env::args_os()
        .skip(1)
        .map(|argument| Name::from(argument).to_string())
        .collect();
    outcome::say(&wrong::line(shown.as_ref().unwrap_or(error), &arguments));
    ExitCode::from(2)
}
