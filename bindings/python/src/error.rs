//! Exceptions.

use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;

create_exception!(
    weir,
    WeirError,
    PyException,
    "What weir could not do; the text is the line that the command prints."
);
create_exception!(
    weir,
    Refused,
    WeirError,
    "A name, an expression or a setting is wrong. Nothing was done."
);
create_exception!(
    weir,
    Failed,
    WeirError,
    "The input or the output failed. What was good before was delivered; of several faults each has a line."
);
create_exception!(
    weir,
    Closed,
    WeirError,
    "The object was closed or released, or belongs to the parent of this process."
);

/// The exception for an error of the library.
pub fn raised(error: weir_api::Error) -> PyErr {
    // Names may have characters that steer a terminal. Of several errors each has a line.
    let steers = |c: char| {
        c != '\n'
            && (c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'))
    };
    let plain = |c: char| {
        if steers(c) {
            c.escape_default().to_string()
        } else {
            c.to_string()
        }
    };
    let line: String = error.to_string().chars().map(plain).collect();
    match error {
        weir_api::Error::Refused(_) => Refused::new_err(line),
        _ => Failed::new_err(line),
    }
}
