//! Rates of senders: their words, and shares of a link.

use crate::numbers::{bit_rate, duration, rate};
use crate::port;
use anyhow::bail;
use std::time::Duration;
use weir_engine::name::Name;
use weir_generator::streams::Rate;
use weir_io::sys::device;

/// A share of the speed of a port's link, bit/s. **Errors**: a port that does not tell its speed.
pub fn share_of_link(port: &Name, share: f64) -> anyhow::Result<f64> {
    let link = port::interface(port).or_else(|| port::injected(port));
    match link.and_then(device::speed_mbit) {
        Some(mbit) => Ok(share * f64::from(mbit) * 1e6),
        None => bail!(
            "--rate in % needs the speed of the link, which {port} does not tell: name it in bit/s"
        ),
    }
}

/// Why a rate was not held: the sender could send nothing for a time, it fell behind, or its last packet left late.
pub fn why_not_held(halted: Duration, fell_behind: bool) -> String {
    match fell_behind {
        _ if !halted.is_zero() => format!(
            "no packet could leave for {} (was weir stopped?), and those after it left as much later",
            duration(halted)
        ),
        true => "packets left more than a second late".to_owned(),
        false => "the last packet left late".to_owned(),
    }
}

/// Words for a rate; `None` is as fast as possible.
pub fn words(wanted: Option<Rate>) -> String {
    match wanted {
        Some(Rate::Packets(per_s)) => format!("{} packets/s", rate(per_s)),
        Some(Rate::Bits(per_s)) => bit_rate(per_s),
        None => "as fast as it takes them".to_owned(),
    }
}
