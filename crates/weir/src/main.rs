//! The `weir` command.
#![forbid(unsafe_code)]

mod bench;
mod capture;
mod cli;
mod doctor;
mod emit;
mod filter;
mod generate;
mod info;
mod interfaces;
mod measure;
mod numbers;
mod outcome;
mod port;
mod progress;
mod sources;
mod table;

use clap::Parser;
use cli::{Cli, Command};
use outcome::Outcome;
use std::process::ExitCode;

fn main() -> ExitCode {
    weir_io::sys::bear_questions();
    let outcome = match Cli::parse().command {
        Command::Measure(arguments) => measure::run(arguments),
        Command::Filter(arguments) => filter::run(arguments),
        Command::Info(arguments) => info::run(&arguments),
        Command::Generate(arguments) => generate::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
    };
    match outcome {
        Ok(Outcome::Done) => ExitCode::SUCCESS,
        Ok(Outcome::Failed) => ExitCode::FAILURE,
        Err(error) => {
            outcome::say(&format!("{error:#}"));
            ExitCode::from(2)
        }
    }
}
