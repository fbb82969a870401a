//! The `weir` command.
#![forbid(unsafe_code)]

mod bench;
mod capture;
mod cli;
mod doctor;
mod emit;
mod filter;
mod filter_file;
mod firewall;
mod generate;
mod info;
mod interfaces;
mod measure;
mod outcome;
mod outputs;
mod programs;
mod progress;
mod query;
mod record;
mod show;
mod sources;
mod summary;
mod table;
mod terminal;
mod walls;

use clap::Parser;
use clap::error::ErrorKind;
use cli::{Cli, Command};
use outcome::Outcome;
use std::io::{self, Write};
use std::process::ExitCode;
use weir_engine::name::Name;
use weir_io::sys::standard;
use weir_messages::{numbers, ports as port};

#[global_allocator]
static ALLOCATOR: weir_io::sys::exhausted::Allocator = weir_io::sys::exhausted::Allocator;

fn main() -> ExitCode {
    weir_io::sys::bear_signals();
    weir_io::sys::guard_mappings();
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_some_and(|role| role == programs::ROLE)
        && let (Some(flag), Some(program), None) =
            (arguments.next(), arguments.next(), arguments.next())
        && let Some(flag) = programs::Flag::of(&flag)
    {
        return exit_code(Ok(programs::serve(flag, &program)));
    }
    let command = match Cli::try_parse() {
        Ok(cli) => cli.command,
        Err(error) => return refused(&error),
    };
    let outcome = match command {
        Command::Measure(arguments) => measure::run(arguments),
        Command::Filter(arguments) => filter::run(arguments),
        Command::Record(arguments) => record::run(arguments),
        Command::Query(arguments) => query::run(arguments),
        Command::Firewall(arguments) => firewall::run(arguments),
        Command::Info(arguments) => info::run(&arguments),
        Command::Generate(arguments) => generate::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
    };
    exit_code(outcome)
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
        let printed = standard::check_output()
            .and_then(|()| error.print())
            .and_then(|()| io::stdout().flush());
        let usual = ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        return match printed {
            // A reader that closes the pipe early is no failure.
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                outcome::say(&format!("standard output: {}", outcome::io_words(&error)));
                ExitCode::FAILURE
            }
            _ => usual,
        };
    }
    // The message quotes the arguments as typed. Parsing them again in printable form gives the same refusal, safe to
    // print.
    let shown =
        Cli::try_parse_from(std::env::args_os().map(|argument| Name::from(argument).to_string()));
    let text = shown
        .err()
        .map_or_else(|| error.to_string(), |shown| shown.to_string());
    let mut lines = text.trim_end().lines();
    let first = lines.next().unwrap_or_default();
    outcome::say(first.strip_prefix("error: ").unwrap_or(first));
    lines.for_each(outcome::say_plain);
    ExitCode::from(2)
}
