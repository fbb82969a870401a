//! Duplicates of packets.

use super::*;
use std::path::Path;
use weir_engine::dedup::{MOST, Within};

/// Duplicates that are left out.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct DedupArgs {
    /// Leave out packets that repeat an earlier one.
    ///
    /// A duplicate has the captured bytes of one of the last N matching packets, itself included, or
    /// of a packet up to a time T earlier: --dedup=100, --dedup=10ms. The summary counts duplicates
    /// [without a value: 5 packets].
    #[arg(id = "dedup", hide_short_help = true, help_heading = SELECT, long = "dedup", value_name = "N|T", num_args = 0..=1, require_equals = true, default_missing_value = "5", value_parser = within)]
    pub within: Option<Within>,
}

impl DedupArgs {
    /// Refuses a value after a blank, which would be an expression or a source.
    pub fn check(&self, words: impl IntoIterator<Item = String>) -> Result<(), Refusal> {
        let is_value = |word: &String| within(word).is_ok() && !Path::new(word).exists();
        let mut words = words.into_iter().filter(|_| self.within.is_some());
        match words.find(is_value) {
            Some(value) => Err(Refusal(format!(
                "--dedup {value}: the value follows after '=', without a blank: --dedup={value}"
            ))),
            _ => Ok(()),
        }
    }
}

fn within(text: &str) -> Result<Within, String> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        let packets = text
            .parse()
            .ok()
            .filter(|packets| (2..=MOST).contains(packets));
        return packets.map(Within::Packets).ok_or_else(|| {
            format!(
                "'{text}' is no number of packets from 2 to {MOST}: a time has a unit, as in 10ms"
            )
        });
    }
    let ns = parse_shift(text).ok().and_then(|ns| u64::try_from(ns).ok());
    let is_signed = text.starts_with(['-', '+']);
    ns.filter(|_| !is_signed).map(Within::Time).ok_or_else(|| {
        format!("'{text}' is neither a number of packets nor a time: write 100 or 10ms (units: ns, us, ms, s, m, h, d)")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_packets_or_times() {
        for (text, expected) in [
            ("5", Ok(Within::Packets(5))),
            ("1000000", Ok(Within::Packets(1_000_000))),
            ("10ms", Ok(Within::Time(10_000_000))),
            ("0s", Ok(Within::Time(0))),
            ("1", Err(())),
            ("1000001", Err(())),
            ("", Err(())),
            ("-1s", Err(())),
            ("5x", Err(())),
        ] {
            assert_eq!(within(text).map_err(drop), expected, "{text}");
        }
    }
}
