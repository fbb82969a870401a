//! Prints the largest sources and ports of each second, and of all, as lines of JSON: top_talkers SOURCE [FILTER]

mod sample;

use std::process::ExitCode;
use std::time::Duration;
use weir_api::{KeyKind, MeasureOptions, Measurement, NextAnswer, Options};

fn main() -> ExitCode {
    sample::run("top_talkers SOURCE [FILTER]", 1..=2, |arguments| {
        let filter = arguments.get(1).cloned().unwrap_or_default();
        let by = MeasureOptions {
            keys: vec![KeyKind::SRC, KeyKind::Dport],
            window: Some(Duration::from_secs(1)),
            ..MeasureOptions::default()
        };
        let measurement = Measurement::open(
            &arguments[..1],
            &Options {
                filter,
                ..Options::default()
            },
            &by,
        )?;
        // What was good before a failure is in the answers.
        while let NextAnswer::Answer(answer) = measurement.next(Duration::MAX)? {
            println!("{}", answer.json);
        }
        Ok(0)
    })
}
