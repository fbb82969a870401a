//! Times of the past.

use crate::times::Clock;
use weir_messages::moment::Moment;

/// The time of `--at`, ns since 1970. **Errors**: a time that clocks never showed.
pub fn place(at: Option<&Moment>, utc: bool) -> anyhow::Result<Option<i64>> {
    let meaning = Clock::new(utc).meaning("--at", at)?;
    Ok(meaning.map(|meaning| meaning.first_ns))
}
