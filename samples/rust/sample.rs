//! What the samples share: the line of an error, and the exit code of the weir command.
#![allow(dead_code, reason = "each sample uses a part of it")]

use std::process::ExitCode;
use std::time::Duration;
use weir_api::{Batch, Error, Next, Source};

/// Prints the line of an error. Returns 2 if the call was refused, 1 if it failed.
pub fn fault(error: &Error) -> u8 {
    eprintln!("weir: {error}");
    if matches!(error, Error::Refused(_)) {
        2
    } else {
        1
    }
}

/// Runs a program of `wanted` arguments or one more. Its result is the exit code.
pub fn run(
    usage: &str,
    wanted: std::ops::RangeInclusive<usize>,
    main: fn(&[String]) -> Result<u8, Error>,
) -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if !wanted.contains(&arguments.len()) {
        eprintln!("{usage}");
        return ExitCode::from(2);
    }
    ExitCode::from(main(&arguments).unwrap_or_else(|error| fault(&error)))
}

/// Gives all batches to `each`. What could not be read is told, and 1 is returned.
pub fn each_batch(
    source: &Source,
    mut each: impl FnMut(Batch) -> Result<(), Error>,
) -> Result<u8, Error> {
    let mut code = 0;
    loop {
        match source.next(Duration::from_secs(1)) {
            Ok(Next::Batch(batch)) => each(batch)?,
            Ok(Next::Nothing) => {}
            Ok(Next::End) => return Ok(code),
            Err(error) => {
                fault(&error);
                code = 1;
            }
        }
    }
}
