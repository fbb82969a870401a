//! Messages for people about sources, captures, ports and outputs, and answers as JSON, the same in every front end.
//!
//! The engine reports values, and front ends say what they mean: the command on standard error, a library in the text of its
//! errors. Each function here returns the line for one such value. Advice in a line is for a shell, and names flags of the `weir` command.
#![forbid(unsafe_code)]

pub mod absent;
pub mod anonymity;
pub mod captures;
pub mod errors;
pub mod events;
pub mod faults;
pub mod forwarding;
pub mod geo;
pub mod guards;
pub mod health;
pub mod json;
pub mod measured;
pub mod measurement;
pub mod moment;
pub mod numbers;
pub mod ports;
pub mod recording;
pub mod records;
pub mod refusals;
pub mod rows;
pub mod sets;
pub mod sources;
pub mod twice;
pub mod view;
pub mod viewing;

/// Reason why a source, an output or a setting is refused, as a line for people. Nothing was opened or processed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refusal(pub String);

/// Makes a [`Refusal`] of a format string and its arguments.
macro_rules! refusal {
    ($($text:tt)*) => { $crate::Refusal(format!($($text)*)) };
}

/// Returns early with a [`Refusal`].
macro_rules! refuse {
    ($($text:tt)*) => { return Err($crate::Refusal(format!($($text)*))) };
}

pub(crate) use {refusal, refuse};
