//! `weir-bench NAME`: repeats a comparison and writes its results.
//!
//! Every rival runs in every round, in turn, and the median over the rounds counts. The answers are
//! compared with each other and printed next to the times. A rival with a different answer is a
//! failure, not a winner.
#![forbid(unsafe_code)]

mod by_etherparse;
mod capture;
mod ceiling;
mod clock;
#[cfg(feature = "dpdk")]
mod dpdk;
mod filter;
mod firewall;
mod forward;
mod heavy;
mod inputs;
mod language;
mod layout;
mod machine;
mod measure;
#[path = "../../crates/pipeline/tests/measured/mod.rs"]
mod measured;
mod native;
mod pages;
mod plot;
mod python;
mod report;
mod rivals;
mod sketch;
mod store;
mod verdicts;

use anyhow::Context;
use clap::builder::{EnumValueParser, PossibleValue, TypedValueParser};
use clap::error::ContextKind;
use clap::{Arg, Command, CommandFactory, Parser, ValueEnum};
use report::Report;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Repeats weir's comparisons with its peers.
#[derive(Debug, Parser)]
#[command(version, about)]
struct Arguments {
    /// Comparison to run; without it: a list of them
    #[arg(value_parser = ScenarioParser)]
    scenario: Option<Scenario>,
    /// How large the inputs are
    #[arg(long, default_value = "full")]
    size: Size,
    /// Rounds; each rival runs once in each [default: 7, smoke 2]
    #[arg(long)]
    rounds: Option<usize>,
    /// Folder for the inputs (filter: about 9 GB at full size, measure: 5 GB, capture: 2 GB, store: 5 GB, the others: none)
    #[arg(long, default_value = "data/bench")]
    data: PathBuf,
    /// layout: bytes of the buffer [default: 1 GiB, at most a quarter of what is free]; store: bytes of the record that is queried
    /// [default: 4 GiB]
    #[arg(long)]
    bytes: Option<u64>,
    /// Folder for the results [default: results/DATE-CPU/SCENARIO at full size, none at smoke size]
    #[arg(long)]
    out: Option<PathBuf>,
    /// firewall, forward, capture, language: only parts and cases whose names begin so: `mixes`, `lists`, `lists acl 1000`, `force`; `rates`, `swap`,
    /// `control`; `rates`, `time`, `disk`, `feeds`, `java`; `programs`
    #[arg(long, default_value = "", hide_default_value = true)]
    only: String,
    /// firewall: destinations of the course's mixes refuse sources that no change names, which they accept else
    #[arg(long)]
    refuse: bool,
    /// The weir binary to measure [default: the one next to this program]
    #[arg(long)]
    weir: Option<PathBuf>,
}

/// Parser of a comparison's name. Its error does not list all names in one line, which would be wider than a narrow terminal.
#[derive(Clone)]
struct ScenarioParser;

impl TypedValueParser for ScenarioParser {
    type Value = Scenario;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<Scenario, clap::Error> {
        EnumValueParser::new()
            .parse_ref(command, arg, value)
            .map_err(|mut error: clap::Error| {
                error.remove(ContextKind::ValidValue);
                error
            })
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(
            Scenario::value_variants()
                .iter()
                .filter_map(ValueEnum::to_possible_value),
        ))
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Scenario {
    /// Reading and filtering capture files, against tcpdump and libpcap
    Filter,
    /// Sketches and tables against public libraries, flow keys against etherparse; one thread, in memory
    Sketch,
    /// weir measure on capture files: time, workers, memory, answers; the designs of the 100 Gbit/s study
    Measure,
    /// Random look-ups in tables of 4 KiB pages and of huge pages
    Pages,
    /// Filters over packets in memory at several alignments: the alignment study
    Layout,
    /// The packet store: writing and scanning the ring, recording on disk, queries against tcpdump
    Store,
    /// The firewall: the eight mixes of the multithreaded packet filter, rule lists, and the time until a change is in force
    Firewall,
    /// Forwarding by rules on one core, against nftables: rates without loss, rules swapped under load, control; needs root
    Forward,
    /// Capturing from an interface, against tcpdump: rates without loss, processor time, writing to disk, AF_XDP; needs root
    Capture,
    /// Packet programs in Java against the same ones in Rust, both by the C interface; needs JDK 25
    Language,
    /// Packet programs in Python against the same ones in Rust, and against dpkt and scapy
    Python,
    /// Receiving from DPDK's ports against a loop in C, and the pipeline after one; built with the
    /// feature `dpdk`
    #[cfg(feature = "dpdk")]
    Dpdk,
}

/// Size of the inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Size {
    /// The sizes whose figures may be quoted.
    Full,
    /// Everything once, small: whether the comparison still works.
    Smoke,
}

fn main() -> ExitCode {
    let done = match helper() {
        Some(done) => done.map(|()| true),
        None => run(&Arguments::parse()),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("weir-bench: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Runs a sender, receiver or controller process of `capture` or `forward`; `None` if the arguments name neither.
fn helper() -> Option<anyhow::Result<()>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (word, rest) = arguments.split_first()?;
    match word.as_str() {
        capture::send::WORD => Some(capture::send::serve(rest)),
        capture::receive::WORD => Some(capture::receive::serve(rest)),
        forward::load::WORD => Some(forward::load::serve(rest)),
        forward::load::AWAKE => Some(forward::load::keep_awake()),
        forward::control::WORD => Some(forward::control::serve(rest)),
        _ => None,
    }
}

/// Runs the scenario; `false` if an answer was wrong.
fn run(arguments: &Arguments) -> anyhow::Result<bool> {
    let Some(scenario) = arguments.scenario else {
        list();
        return Ok(true);
    };
    let full = arguments.size == Size::Full;
    let rounds = arguments.rounds.unwrap_or(if full { 7 } else { 2 });
    anyhow::ensure!(rounds > 0, "--rounds 0 measures nothing");
    let weir = || arguments.weir.clone().map_or_else(beside_us, Ok);
    let (size, data) = (arguments.size, arguments.data.as_path());
    let in_turn = format!("{rounds} rounds, rivals in turn within each, medians");
    let mut report;
    match scenario {
        Scenario::Filter => {
            let how = format!(
                "{in_turn}; times of whole processes, start to end; all inputs in the page cache"
            );
            report = Report::new(filter::RAW, &how);
            filter::run(&weir()?, size, rounds, data, &mut report)?;
        }
        Scenario::Sketch => {
            report = Report::new(sketch::RAW, &in_turn);
            sketch::run(size, rounds, &mut report)?;
        }
        Scenario::Measure => {
            let how = format!(
                "{in_turn}; times of whole processes unless said otherwise; all inputs in the page cache"
            );
            report = Report::new(measure::RAW, &how);
            measure::run(&weir()?, size, rounds, data, &mut report)?;
        }
        Scenario::Pages => {
            report = Report::new(
                pages::RAW,
                &format!("{in_turn}; ns a look-up of one thread, processor time"),
            );
            pages::run(size, rounds, &mut report);
        }
        Scenario::Layout => {
            report = Report::new(
                layout::RAW,
                &format!("{rounds} rounds, layouts in turn within each, medians"),
            );
            layout::run(size, rounds, arguments.bytes, &mut report)?;
        }
        Scenario::Store => {
            report = Report::new(
                store::RAW,
                &format!("{in_turn}; processor time of one thread unless said otherwise"),
            );
            store::run(&weir()?, size, rounds, arguments.bytes, data, &mut report)?;
        }
        Scenario::Firewall => {
            report = Report::new(
                firewall::RAW,
                &format!("{in_turn}; processor time of one thread unless said otherwise"),
            );
            firewall::run(
                size,
                rounds,
                &arguments.only,
                !arguments.refuse,
                &mut report,
            )?;
        }
        Scenario::Forward => {
            report = Report::new(forward::RAW, &in_turn);
            forward::run(&weir()?, size, rounds, &arguments.only, &mut report)?;
        }
        Scenario::Capture => {
            report = Report::new(capture::RAW, &in_turn);
            capture::run(&weir()?, size, rounds, (&arguments.only, data), &mut report)?;
        }
        Scenario::Language => {
            let launches = if full { rounds.max(20) } else { rounds };
            let how = format!(
                "{launches} launches of each program, in turn; of each the median turn behind the first half; processor time of the thread"
            );
            report = Report::new(language::RAW, &how);
            language::run(size, launches, &arguments.only, data, &mut report)?;
        }
        Scenario::Python => {
            let launches = if full { rounds.max(20) } else { rounds };
            let how = format!(
                "{launches} launches of each program, in turn; of each the median turn behind the first half"
            );
            report = Report::new(python::RAW, &how);
            python::run(size, launches, data, &mut report)?;
        }
        #[cfg(feature = "dpdk")]
        Scenario::Dpdk => {
            report = Report::new(
                dpdk::RAW,
                &format!("{in_turn}; processor time of one thread"),
            );
            dpdk::run(size, rounds, &mut report)?;
        }
    }
    let name = scenario.name();
    let out = match &arguments.out {
        Some(out) => Some(out.clone()),
        None => full.then(|| {
            Path::new("results")
                .join(machine::result_name())
                .join(&name)
        }),
    };
    if let Some(out) = out {
        report
            .write(&name, &out)
            .with_context(|| out.display().to_string())?;
        println!("\nwritten to {}", out.display());
    }
    Ok(report.is_sound())
}

/// Prints the scenarios, in lines that fit the terminal.
fn list() {
    let page = Arguments::command()
        .help_template("{positionals}")
        .max_term_width(100)
        .render_long_help();
    println!("Scenarios (weir-bench NAME; --help for options):");
    println!("{}", page.to_string().replace("  - ", "    "));
}

impl Scenario {
    /// Name on the command line.
    fn name(self) -> String {
        self.to_possible_value()
            .expect("no scenario is hidden")
            .get_name()
            .to_owned()
    }
}

/// Path of the weir binary built with this program.
fn beside_us() -> anyhow::Result<PathBuf> {
    let us = std::env::current_exe().context("the path of this program")?;
    let weir = us.with_file_name("weir");
    anyhow::ensure!(
        weir.exists(),
        "no {}: build it with `cargo build --release -p weir`",
        weir.display()
    );
    Ok(weir)
}
