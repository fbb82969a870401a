//! Arguments of `weir diff`.

use super::times::{last, moment};
use super::*;
use weir_messages::moment::Moment;

const EXAMPLES: &str = "\
Examples:
  weir diff mon.pcap tue.pcap  what changed from one file to the other
  weir diff mon/*.pcap -- tue/*.pcap  the same for several files on each side
  weir diff /var/cap --last 10m --against 1h  the last ten minutes, and ten minutes an hour ago
  weir diff /var/cap --last 1h --against 1d  this hour, and the same hour of yesterday
  weir diff /var/cap --around 14:30 --within 10m  ten minutes before and after a change
  weir diff /var/cap --from 09:00 --to 10:00 --against '2026-11-20 09:00'  two hours of your choice
  weir diff /var/cap --last 1d --against 7d --key name  which names of DNS and TLS are new
  weir diff a.pcap b.pcap --key src --key dport --by packets --top 20
  weir diff a.pcap b.pcap --above 1% --format csv  changes of at least 1 % of all traffic

The first side is `before`, the second `after`. Figures are per second of the covered time of each side, so that sides of
different lengths compare. --by peers, ports and contacts count distinct elements, which do not grow with time in proportion:
they are compared as they are.

A row is new, gone, grown or shrunk. A question mark says that the tables were too small to prove it: `bound` is the range
of the true change, and a larger --memory makes it smaller. The line below each table says what is outside.

T is a time as weir query takes it: 05:30, '2026-11-23 05:30', 2026-11-23T05:30:00Z, seconds since 1970, or -5m.

Exit codes:
  0  done, whether the sides differ or not
  1  the input or output failed; the answer is about what could be read
  2  the command is wrong; nothing was done";

/// `weir diff`
#[derive(Args, Debug)]
#[command(
    after_help = EXAMPLES,
    override_usage = "weir diff [OPTIONS] BEFORE AFTER\n       weir diff [OPTIONS] BEFORE... -- AFTER...\n       \
                      weir diff [OPTIONS] SOURCE --last TIME --against WHEN"
)]
pub struct DiffArgs {
    /// Capture files or a record directory: one a side.
    ///
    /// With several files on a side, -- separates the sides. One source alone is both sides, at the
    /// times of --against or --around.
    #[arg(value_name = "SOURCE", required = true)]
    pub sources: Vec<Name>,
    /// Sources of the second side
    #[arg(value_name = "AFTER", last = true)]
    pub after: Vec<Name>,

    /// Compare only packets that match this expression
    #[arg(help_heading = SELECT, long, value_name = "EXPR", default_value = "", hide_default_value = true)]
    pub filter: String,
    /// Whether the innermost packets are judged.
    #[command(flatten)]
    pub inside: InnerArgs,
    /// Names in the expression.
    #[command(flatten)]
    pub names: NameArgs,

    /// Leave out packets before this time
    #[arg(help_heading = TIME, long, value_name = "T", value_parser = moment, allow_hyphen_values = true)]
    pub from: Option<Moment>,
    /// Leave out packets after this time
    #[arg(help_heading = TIME, long, value_name = "T", value_parser = moment, allow_hyphen_values = true)]
    pub to: Option<Moment>,
    /// Take this much time before now: 10m, 1h.
    ///
    /// For files it is the time before their last packet.
    #[arg(help_heading = TIME, long, value_name = "TIME", value_parser = last, allow_hyphen_values = true, conflicts_with_all = ["from", "to", "around"])]
    pub last: Option<Duration>,
    /// Compare with the time before: 1h, 1d, or T.
    ///
    /// The first side is so much earlier than --last or --from and --to, or begins at T; it is as
    /// long.
    #[arg(help_heading = TIME, long, value_name = "WHEN", value_parser = against, allow_hyphen_values = true, conflicts_with = "around")]
    pub against: Option<Against>,
    /// Compare the time before T with that after it
    #[arg(help_heading = TIME, long, value_name = "T", value_parser = moment, allow_hyphen_values = true, conflicts_with_all = ["from", "to"])]
    pub around: Option<Moment>,
    /// Set the time to each side of --around
    #[arg(help_heading = TIME, long, value_name = "TIME", value_parser = parse_time, default_value = "10m", requires = "around")]
    pub within: Duration,
    /// Use UTC instead of local time, in and out
    #[arg(help_heading = TIME, long)]
    pub utc: bool,

    /// Compare by KEY; repeat it for several tables.
    ///
    /// All keys of weir measure: weir help keys.
    #[arg(help_heading = ANSWER, long, value_name = "KEY", default_values_t = [KeyKind::HOST, KeyKind::Service])]
    pub key: Vec<KeyKind>,
    /// Rank by the change of this figure.
    ///
    /// bytes and rate are bits per second, packets are packets per second.
    #[arg(help_heading = ANSWER, long, default_value = "bytes")]
    pub by: ByArg,
    /// Print N rows per table
    #[arg(help_heading = ANSWER, long, value_name = "N", default_value_t = 10)]
    pub top: usize,
    /// Print only changes of at least this share: 1%.
    ///
    /// It is a share of all packets or bytes per second of the side that has more.
    #[arg(help_heading = ANSWER, long, value_name = "SHARE", value_parser = parse_share)]
    pub above: Option<f64>,
    /// Databases of addresses.
    #[command(flatten)]
    pub places: GeoArgs,
    /// Form of the answer.
    #[command(flatten)]
    pub format: FormatArgs,

    /// Use SIZE bytes for each table.
    ///
    /// There is a table for each key, each worker and each side.
    #[arg(help_heading = ANSWER, long, value_name = "SIZE", value_parser = parse_size)]
    pub memory: Option<u64>,
    /// Allow zstd windows up to SIZE.
    ///
    /// A file compressed with zstd --long=N needs a window of 2 to the power of N bytes.
    #[arg(hide_short_help = true, help_heading = INPUT, long, value_name = "SIZE", default_value = "128M", value_parser = parse_zstd_window)]
    pub zstd_window: u64,
    /// Measure with N threads [default: one per core]
    #[arg(help_heading = TUNING, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub workers: Option<u16>,
    /// Fix the seed of the hash functions [default: random]
    #[arg(help_heading = TUNING, long)]
    pub seed: Option<u64>,
    /// What confines the process.
    #[command(flatten)]
    pub walls: WallArgs,
}

/// Times of the first side, if it is of the same source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Against {
    /// So much before the second side.
    Earlier(Duration),
    /// From this time on.
    At(Moment),
}

/// A time to go back, as `1h`, `-1h` or `1h ago`, or a time.
fn against(text: &str) -> Result<Against, String> {
    let bare = text.trim();
    let bare = bare.strip_prefix('-').unwrap_or(bare);
    let bare = bare.strip_suffix("ago").unwrap_or(bare).trim();
    // A plain number is a time since 1970.
    let has_unit = bare.ends_with(|last: char| last.is_ascii_alphabetic());
    match last(bare).ok().filter(|_| has_unit) {
        Some(Duration::ZERO) => Err(format!("'{text}' is the same time: write 1h, 1d or a time")),
        Some(earlier) => Ok(Against::Earlier(earlier)),
        None => moment(text).map(Against::At).map_err(|_| {
            format!("'{text}' is not a time: write 1h or 1d for so much earlier, or 05:30, '2026-11-23 05:30'")
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_to_compare_with_are_distances_or_times() {
        let hour = Against::Earlier(Duration::from_secs(3600));
        for text in ["1h", "-1h", "1h ago", " 60m ", "3600s"] {
            assert_eq!(against(text).as_ref(), Ok(&hour), "{text}");
        }
        for text in [
            "05:30",
            "2026-11-23 05:30",
            "1795412174.5",
            "2026-11-23T05:30:00Z",
        ] {
            assert_eq!(
                against(text),
                Ok(Against::At(Moment(text.to_owned()))),
                "{text}"
            );
        }
        for text in ["", "0s", "tea time", "1 week"] {
            assert!(against(text).is_err(), "{text}");
        }
    }
}
