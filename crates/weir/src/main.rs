//! The `weir` command.
#![forbid(unsafe_code)]

mod cli;
mod emit;
mod filter;
mod generate;
mod info;
mod interfaces;
mod numbers;
mod outcome;
mod progress;

use clap::Parser;
use cli::{Cli, Command};
use outcome::Outcome;
use std::process::ExitCode;

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Filter(arguments) => filter::run(arguments),
        Command::Info(arguments) => info::run(&arguments),
        Command::Generate(arguments) => generate::run(&arguments),
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
