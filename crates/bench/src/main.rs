//! `weir-bench NAME`: repeats a comparison and writes its results.
//!
//! Every rival runs in every round, in turn; what counts is the median over the rounds. The answers are compared with each
//! other and printed beside the times: a rival that finds something else is a failure, not a winner.
#![forbid(unsafe_code)]

mod ceiling;
mod filter;
mod inputs;
mod machine;
mod native;
mod report;
mod rivals;
mod verdicts;

use anyhow::Context;
use clap::{Parser, ValueEnum};
use std::path::PathBuf;
use std::process::ExitCode;

/// Repeats weir's comparisons with its peers.
#[derive(Debug, Parser)]
#[command(version, about)]
struct Arguments {
    /// Which comparison
    scenario: Scenario,
    /// How large the inputs are
    #[arg(long, default_value = "full")]
    size: Size,
    /// Rounds; each rival runs once in each [default: 7, smoke 2]
    #[arg(long)]
    rounds: Option<usize>,
    /// Folder for the inputs (about 9 GB at full size)
    #[arg(long, default_value = "data/bench")]
    data: PathBuf,
    /// Folder for the results [default: results/DATE-CPU at full size, none at smoke size]
    #[arg(long)]
    out: Option<PathBuf>,
    /// The weir binary to measure [default: the one beside this program]
    #[arg(long)]
    weir: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Scenario {
    /// Reading and filtering capture files, against tcpdump and libpcap
    Filter,
}

/// How large the inputs are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Size {
    /// The sizes whose figures may be quoted.
    Full,
    /// Everything once, small: whether the comparison still works.
    Smoke,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("weir-bench: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Runs the scenario; `false` if an answer was wrong.
fn run(arguments: &Arguments) -> anyhow::Result<bool> {
    let weir = match &arguments.weir {
        Some(path) => path.clone(),
        None => beside_us()?,
    };
    let rounds = arguments.rounds.unwrap_or(if arguments.size == Size::Full { 7 } else { 2 });
    let mut report = report::Report::new(rounds);
    match arguments.scenario {
        Scenario::Filter => filter::run(&weir, arguments.size, rounds, &arguments.data, &mut report)?,
    }
    let out = match (&arguments.out, arguments.size) {
        (Some(out), _) => Some(out.clone()),
        (None, Size::Full) => Some(PathBuf::from("results").join(machine::result_name())),
        (None, Size::Smoke) => None,
    };
    if let Some(out) = out {
        report.write(&out).with_context(|| out.display().to_string())?;
        println!("\nwritten to {}", out.display());
    }
    Ok(report.is_sound())
}

/// The weir binary that was built with this program.
fn beside_us() -> anyhow::Result<PathBuf> {
    let us = std::env::current_exe().context("the path of this program")?;
    let weir = us.with_file_name("weir");
    anyhow::ensure!(weir.exists(), "no {}: build it with `cargo build --release -p weir`", weir.display());
    Ok(weir)
}
