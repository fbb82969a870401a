//! The rate at which packets leave, for all that sends.

use crate::numbers::parse_share;
use weir_generator::streams;

/// How fast.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rate {
    /// At the times of the capture.
    Original,
    /// As fast as possible.
    Max,
    /// Packets a second.
    Packets(f64),
    /// Bits a second, of frames without FCS.
    Bits(f64),
    /// A share of the speed of the link.
    Share(f64),
}

/// Reads a rate. **Errors**: what would be right.
pub fn rate(text: &str) -> Result<Rate, String> {
    let other = |_| {
        format!(
            "'{text}' is not a rate: write original, max, 100kpps, 2Gbit/s or 50% (of the link)"
        )
    };
    match text {
        "original" => Ok(Rate::Original),
        "max" => Ok(Rate::Max),
        _ if text.ends_with('%') => parse_share(text).map(Rate::Share).map_err(other),
        _ => match text.parse().map_err(other)? {
            streams::Rate::Packets(per_s) => Ok(Rate::Packets(per_s)),
            streams::Rate::Bits(per_s) => Ok(Rate::Bits(per_s)),
        },
    }
}
