//! Errors of calls.

use weir_engine::run;
use weir_messages::refusals::{Terms, refused};

/// Reason why a call did not do its work: the line that the command would print. A line that names a flag, such as `--ring` or `--memory`,
/// means the option of that name, here [`CaptureSettings::ring`](crate::CaptureSettings) or [`MeasureOptions::memory`](crate::MeasureOptions).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A name, an expression or a setting is wrong. Nothing was done.
    #[error("{0}")]
    Refused(String),
    /// The input or the output failed. Packets before the error were delivered. Of several errors
    /// each has a line.
    #[error("{0}")]
    Failed(String),
    /// An earlier change is still under way.
    #[error("{0}")]
    Busy(String),
}

impl Error {
    pub(crate) fn refused(line: impl ToString) -> Self {
        Self::Refused(line.to_string())
    }

    /// Error for a run that could not begin, or could not go on.
    pub(crate) fn of_run(error: &run::Error, terms: &Terms) -> Self {
        let line = refused(error, terms);
        match error {
            run::Error::Panic { .. } | run::Error::Io(_) => Self::failed(line),
            _ => Self::refused(line),
        }
    }

    pub(crate) fn failed(line: impl ToString) -> Self {
        Self::Failed(line.to_string())
    }
}
