//! Arguments of `weir record`.

use super::*;
use weir_engine::record::trigger::{Condition, Keep};
use weir_messages::recording::{
    check_disk, check_mode, check_segment, parse_file_size, parse_interval, parse_keep,
    parse_threshold_trigger, parse_trigger,
};

const EXAMPLES: &str = "\
Examples:
  sudo weir record eth0 /var/cap  keep recent packets in RAM; SIGUSR2 saves them
  sudo weir record eth0 /var/cap --disk 100G --age 7d  and a week on disk
  sudo weir record eth0 /var/cap --trigger rst='tcp[13] & 4 != 0' --before 30s  save what preceded each RST
  sudo weir record eth0 /var/cap --trigger scan --keep host  save the packets of each scanner
  weir record --fire all /var/cap  save now
  weir record --status /var/cap  ask a recorder for its state
  sudo weir record eth0 /var/cap --ram 8G --age 10m  keep ten minutes in at most 8 GiB of RAM
  sudo weir record eth0 /var/cap --trigger dns='udp port 53 and greater 512' --keep flow  save only that conversation
  weir record trace.pcap out --trigger syn='tcp[13] = 2'  try triggers on a file, in packet time

Thresholds are KEY>VALUE FIGURE/WINDOW (weir help triggers). Keys: total, and those of weir measure --key, such as src,
src/24, host, dport, vlan or src,dport. Figures: packets/s and bit/s, averages over the window; peers, ports, contacts (peers with a
port), different ones; times, packets in this window divided by the packets of the window before. Sizes and rates take k, M, G. Windows slide, and each key fires by itself.

--trigger scan fires for a source with more than 100 contacts in 10s or 5m of which at least 80 % stay unanswered or are refused.

A saved file is DIR/trigger-NAME-TIME.pcapng. It appears once it is complete and on the disk. Its comments name the cause, the
packets that the ring no longer held, and losses. A file cut by a full disk or a kill is named trigger-NAME-TIME-incomplete.pcapng.
If a trigger fires again within --after, for the same key, its file grows, for an hour at most. With --cooldown no file grows: the
key is inactive for --after plus --cooldown. At most 64 files are written at a time.

--before, --after, --age, --every and windows go by the arrival of packets, so that wrong timestamps do not affect them; for files,
timestamps say how fast packets arrived. weir query goes by timestamps.

Signals: SIGUSR2 fires all triggers, SIGUSR1 prints the state. weir record --status DIR and --fire NAME DIR do the same from elsewhere.

Exit codes:
  0  done
  1  the input failed, or a file could not be saved; earlier packets were kept
  2  the command is wrong; nothing was done";

/// `weir record`
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES, override_usage = "weir record [OPTIONS] SOURCE... DIR")]
pub struct RecordArgs {
    /// Sources as for weir filter, then the directory.
    ///
    /// The directory is made if it is missing.
    #[arg(value_name = "NAME", required = true)]
    pub names: Vec<Name>,

    /// Record only packets that match this expression.
    ///
    /// Expressions are tcpdump's: weir help expressions.
    #[arg(help_heading = SELECT, long, value_name = "EXPR", default_value = "", hide_default_value = true)]
    pub filter: String,
    /// Whether the innermost packets are judged.
    #[command(flatten)]
    pub inside: InnerArgs,
    /// Names in the expressions.
    #[command(flatten)]
    pub meaning: NameArgs,
    /// Rules of a firewall.
    #[command(flatten)]
    pub judging: RulesArgs,

    /// Keep SIZE bytes of packets in RAM.
    ///
    /// k, M and G are binary [default: 4G, or a quarter of the free memory if that is less].
    #[arg(help_heading = KEEP, long, value_name = "SIZE", value_parser = parse_size)]
    pub ram: Option<u64>,
    /// Also keep SIZE bytes of packets on disk.
    ///
    /// At least 8M, in pcapng files of DIR: weir query finds the packets, and any other program
    /// reads the files. Saved files of triggers are not counted.
    #[arg(help_heading = KEEP, long, value_name = "SIZE", value_parser = disk)]
    pub disk: Option<u64>,
    /// Drop packets older than this: 500ms, 10s, 5m, 7d.
    ///
    /// Without it, packets go when there is no more room.
    #[arg(help_heading = KEEP, long, value_name = "T", value_parser = parse_interval)]
    pub age: Option<Duration>,
    /// Keep only the first BYTES of each conversation.
    ///
    /// A conversation begins again after ten minutes of silence; a million are remembered.
    #[arg(help_heading = KEEP, long, value_name = "BYTES", value_parser = parse_size)]
    pub cutoff: Option<u64>,
    /// Cut packets to SNAPLEN bytes in the record.
    ///
    /// Filters and triggers of an interface see no more of them either. 0 cuts nothing.
    #[arg(help_heading = KEEP, short = 's', value_name = "SNAPLEN", default_value_t = 0)]
    pub snaplen: u32,
    /// Go on in DIR after it was removed and made again.
    ///
    /// This process may then write everything below the parent of DIR. Without it the sandbox keeps
    /// another DIR closed, and packets stay in RAM.
    #[arg(hide_short_help = true, help_heading = KEEP, long)]
    pub reopen: bool,
    /// Make the disk record durable at least this often
    #[arg(hide_short_help = true, help_heading = KEEP, long, value_name = "T", default_value = "1s", value_parser = parse_time, requires = "disk")]
    pub sync: Duration,
    /// Begin another file of DIR after SIZE bytes.
    ///
    /// At most 4G [default: 256M, or an eighth of --disk if that is less].
    #[arg(hide_short_help = true, help_heading = KEEP, long, value_name = "SIZE", value_parser = segment, requires = "disk")]
    pub segment: Option<u64>,
    /// Begin another file of DIR at multiples of this time.
    ///
    /// The default is an eighth of --age.
    #[arg(hide_short_help = true, help_heading = KEEP, long, value_name = "T", value_parser = parse_interval, requires = "disk")]
    pub segment_time: Option<Duration>,
    /// Compress complete files of DIR with zstd.
    ///
    /// The level is 3 unless named. A file stays as it is if that saves less than 5 %.
    #[arg(help_heading = KEEP, long, value_name = "LEVEL", num_args = 0..=1, require_equals = true, default_missing_value = "3",
        value_parser = clap::value_parser!(i32).range(1..=19), requires = "disk")]
    pub compress: Option<i32>,
    /// Keep SIZE bytes of the disk free.
    ///
    /// The oldest files of DIR are removed first, and saved files grow no further.
    #[arg(hide_short_help = true, help_heading = KEEP, long, value_name = "SIZE", default_value = "1G", value_parser = parse_size)]
    pub reserve: u64,
    /// Choose pages for the memory of packets.
    ///
    /// auto, hugetlb, hugetlb-1g, thp, virtual.
    #[arg(help_heading = TUNING, long, value_name = "POLICY", default_value = "auto")]
    pub pages: Policy,
    /// Align packets in memory to 1, 2, 4 ... 128 bytes.
    ///
    /// +2 after the number puts them 2 bytes further.
    #[arg(help_heading = TUNING, long, value_name = "BYTES", default_value_t = weir_store::record::Shape::default())]
    pub align: weir_store::record::Shape,

    /// Save when a packet matches, or at a scan: scan.
    ///
    /// NAME=EXPR, or the name of a ready rule. scan fires for a source of many contacts of which most stay unanswered or are
    /// refused: weir help triggers.
    #[arg(help_heading = TRIGGERS, long, value_name = "NAME=EXPR", value_parser = parse_trigger)]
    pub trigger: Vec<(String, Condition)>,
    /// Save when a key exceeds a value in a window.
    ///
    /// For instance flood='dst>100k packets/s/1s' or many='src>100 peers/10s': weir help triggers.
    #[arg(help_heading = TRIGGERS, long, value_name = "NAME=SPEC", value_parser = parse_threshold_trigger)]
    pub threshold: Vec<(String, Condition)>,
    /// Read triggers from a TOML file.
    ///
    /// [trigger.NAME] with match = 'EXPR', threshold = 'SPEC', rule = 'scan' or every = 'T', and
    /// before, after, keep, cooldown, max_size, max_files of its own: weir help triggers.
    #[arg(help_heading = TRIGGERS, long, value_name = "FILE")]
    pub triggers: Option<Name>,
    /// Save at this interval
    #[arg(help_heading = TRIGGERS, long, value_name = "T", value_parser = parse_interval)]
    pub every: Option<Duration>,
    /// Do not fire again for this long after a file.
    ///
    /// This holds for packets, SIGUSR2 and --fire.
    #[arg(help_heading = TRIGGERS, long, value_name = "T", default_value = "0s", value_parser = parse_time)]
    pub cooldown: Duration,
    /// Run PROGRAM for each saved file.
    ///
    /// Its two arguments are the path of the file and the cause; no shell is involved. It has the
    /// rights of the user who records. Programs run one at a time; weir waits up to 5 s for them on
    /// exit. If one fails, the exit code is 1.
    #[arg(help_heading = TRIGGERS, long, value_name = "PROGRAM")]
    pub on_trigger: Option<Name>,
    /// Save at most N files per trigger
    #[arg(hide_short_help = true, help_heading = TRIGGERS, long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    pub max_files: u64,

    /// Save packets from this long before the event
    #[arg(help_heading = SAVED, long, value_name = "T", default_value = "10s", value_parser = parse_time)]
    pub before: Duration,
    /// Save packets until this long after the event
    #[arg(help_heading = SAVED, long, value_name = "T", default_value = "5s", value_parser = parse_time)]
    pub after: Duration,
    /// Save all, flow, host, or an expression.
    ///
    /// flow: both directions of the flow of the packet that fired. host: its source address, or the
    /// address or prefix that a threshold or the rule scan names.
    #[arg(help_heading = SAVED, long, value_name = "WHAT", default_value = "all", value_parser = parse_keep)]
    pub keep: Keep,
    /// Keep SIZE bytes of saved files; the oldest go first.
    ///
    /// Only with --disk.
    #[arg(hide_short_help = true, help_heading = SAVED, long, value_name = "SIZE", value_parser = parse_size, requires = "disk")]
    pub saved_size: Option<u64>,
    /// Remove saved files that are older than this.
    ///
    /// Only with --disk.
    #[arg(hide_short_help = true, help_heading = SAVED, long, value_name = "T", value_parser = parse_interval, requires = "disk")]
    pub saved_age: Option<Duration>,
    /// Other addresses in saved files.
    #[command(flatten)]
    pub anonymize: AnonymizeArgs,
    /// Limit the size of a saved file
    #[arg(hide_short_help = true, help_heading = SAVED, long, value_name = "SIZE", default_value = "1G", value_parser = parse_file_size)]
    pub max_size: u64,
    /// Set the permissions of files, in octal.
    ///
    /// Users with read permission may also search a new directory. Other users who query the
    /// directory miss the packets that are not on disk yet.
    #[arg(hide_short_help = true, help_heading = SAVED, long, value_name = "MODE", default_value = "600", value_parser = mode)]
    pub mode: u32,

    /// Stop after this much time: 500ms, 10s, 5m
    #[arg(help_heading = INPUT, long, value_name = "T", value_parser = parse_time)]
    pub duration: Option<Duration>,
    /// How to capture.
    #[command(flatten)]
    pub live: LiveArgs,

    /// Print the state of the recorder of DIR as JSON.
    ///
    /// weir record --status DIR.
    #[arg(help_heading = ANSWER, long, conflicts_with_all = ["fire", "reindex"])]
    pub status: bool,
    /// Fire trigger NAME, or all, of the recorder of DIR.
    ///
    /// weir record --fire NAME DIR. If none fires, weir says why and exits with 1.
    #[arg(help_heading = ANSWER, long, value_name = "NAME", conflicts_with = "reindex")]
    pub fire: Option<String>,
    /// Build the indexes of the files of DIR again.
    ///
    /// weir record --reindex DIR. Nothing else changes.
    #[arg(help_heading = ANSWER, long)]
    pub reindex: bool,
    /// Print on standard error how the work was done
    #[arg(help_heading = TUNING, long)]
    pub stats: bool,
    /// Print JSON: an object per saved file, then a summary
    #[arg(help_heading = ANSWER, long)]
    pub json: bool,
    /// How it is controlled.
    #[command(flatten)]
    pub remote: ControlArgs,
    /// Its viewers.
    #[command(flatten)]
    pub viewers: ViewersArgs,
    /// What confines the process.
    #[command(flatten)]
    pub walls: WallArgs,
}

impl RecordArgs {
    /// The sources, and the directory; `None` if only one name was given.
    pub fn sources_and_directory(&self) -> Option<(&[Name], &Name)> {
        let (directory, sources) = self.names.split_last()?;
        (!sources.is_empty()).then_some((sources, directory))
    }
}

fn disk(text: &str) -> Result<u64, String> {
    check_disk(parse_size(text)?, text)
}

fn segment(text: &str) -> Result<u64, String> {
    check_segment(parse_size(text)?, text)
}

fn mode(text: &str) -> Result<u32, String> {
    // A number that is none has no such bits either.
    check_mode(u32::from_str_radix(text, 8).unwrap_or(0), text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_are_those_of_files() {
        assert_eq!((mode("600"), mode("0640")), (Ok(0o600), Ok(0o640)));
        for text in ["", "700", "400", "1600", "rw"] {
            assert!(mode(text).is_err(), "{text}");
        }
    }
}
