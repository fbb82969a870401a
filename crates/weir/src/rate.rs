//! Rates of senders: their words, and shares of a link.

use crate::numbers::{bit_rate, duration, latency, rate};
use crate::outcome::say;
use crate::port;
use anyhow::bail;
use std::time::Duration;
use weir_engine::clock::{Behind, Lateness};
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

/// Says that packets of a port do not leave at their rate, and why, while they leave.
pub fn say_behind(port: &Name, behind: Behind) {
    let Behind {
        late,
        halted,
        is_last,
    } = behind;
    let why = match halted.is_zero() {
        true => format!(
            "packets leave {} late: the port, or what reads or makes the packets, is slower than the rate",
            latency(late.as_nanos() as i64)
        ),
        false => format!("{}, and those after it leave as much later", halt(halted)),
    };
    let more = match is_last {
        true => "; later times have a line at the end alone",
        false => "",
    };
    say(&format!(
        "{}: the rate is not held: {why}{more}",
        port.text()
    ));
}

fn halt(time: Duration) -> String {
    let time = duration(time);
    format!("no packet could leave for {time} (was weir stopped?)")
}

/// Why a rate was not held: the sender could send nothing for a time, it fell behind, or its last packet left late.
pub fn why_not_held(halted: Duration, late: Lateness) -> String {
    match late.fell_behind() {
        _ if !halted.is_zero() => {
            format!("{}, and those after it left as much later", halt(halted))
        }
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
