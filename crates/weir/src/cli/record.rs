//! Arguments of `weir record`.

use super::firewall::RulesArgs;
use super::names::NameArgs;
use super::{LIVE, LiveArgs, PACKETS, SOURCES, WORK, WallArgs, fitted};
use crate::numbers::{parse_size, parse_time};
use clap::Args;
use std::time::Duration;
use weir_engine::name::Name;
use weir_engine::record::trigger::{Condition, Keep};
use weir_memory::Policy;
use weir_messages::recording::{
    check_disk, check_mode, check_segment, parse_file_size, parse_interval, parse_keep,
    parse_threshold_trigger, parse_trigger,
};

const RING: &str = "How long to keep packets";
const TRIGGERS: &str = "When to save them";
const SAVED: &str = "What to save";

const EXAMPLES: &str = "\
Examples:
  sudo weir record eth0 /var/cap                          the last seconds to minutes of eth0 in RAM; kill -USR2 saves them
  sudo weir record eth0 /var/cap --ram 8G --age 10m       in 8 GiB, and no packet older than ten minutes
  sudo weir record eth0 /var/cap --disk 100G --age 7d     and a week on disk, in at most 100 GiB
  sudo weir record eth0 /var/cap --trigger rst='tcp[13] & 4 != 0' --before 30s --after 5s
                                                          each RST saves what came 30 s before to 5 s after it
  sudo weir record eth0 /var/cap --trigger dns='udp port 53 and greater 512' --keep flow
                                                          only the conversation of the packet that fired
  sudo weir record eth0 /var/cap --threshold scan='src>100 peers/10s' --keep host
                                                          a host with more than 100 peers in 10 s: its packets
  weir record trace.pcap out --trigger syn='tcp[13] = 2'  the same over a file, by the time of its packets

Thresholds are KEY>VALUE FIGURE/WINDOW. Keys: total, src, dst, conversation. Figures: packets/s and bit/s, averages over the
window; peers, different addresses at the other end; times, packets in this window divided by those in the one before, once
this window has 100 packets and the one before was seen whole.
Sizes and rates take k, M, G. A threshold fires at the packet that exceeds it, once for each key and window.

A saved file is DIR/trigger-NAME-TIME.pcapng. It appears once it is whole and on the disk. Its comments say what fired, what the
ring no longer held, and how many packets were lost on the way. A file that a full disk or a kill cut is named
trigger-NAME-TIME-incomplete.pcapng. A trigger is armed again --after and --cooldown after it fired: until then nothing fires it,
also no signal and no --fire. Without --cooldown the last packet of that time that would fire it has its own file then, with its
time before and after. At most 64 files are written at a time.

--before, --after, --age, --every and windows go by the arrival of packets: stamps that step back, or one of 2106, change nothing.
Of files the stamps tell how fast packets arrived. weir query goes by stamps.

Signals: SIGUSR2 fires all triggers, SIGUSR1 prints how it stands. weir record --status DIR and --fire NAME DIR ask from elsewhere.

Exit codes:
  0  done
  1  the input failed, or a file could not be saved; what was good was kept
  2  the command is wrong; nothing was done";

/// `weir record`
#[derive(Args, Debug)]
#[command(after_help = fitted(EXAMPLES), override_usage = "weir record [OPTIONS] SOURCE... DIR")]
pub struct RecordArgs {
    /// SOURCE... DIR: interfaces or capture files, as for weir filter, and behind them the directory for what is saved, which is
    /// made if it is missing
    #[arg(value_name = "NAME", required = true)]
    pub names: Vec<Name>,

    /// Record only packets that match this tcpdump expression
    #[arg(help_heading = PACKETS, long, value_name = "EXPR", default_value = "", hide_default_value = true)]
    pub filter: String,
    #[command(flatten)]
    pub meaning: NameArgs,
    #[command(flatten)]
    pub judging: RulesArgs,

    /// Memory for packets, in bytes (k, M, G: binary) [default: 4G, or a quarter of what is free if that is less]
    #[arg(help_heading = RING, long, value_name = "SIZE", value_parser = parse_size)]
    pub ram: Option<u64>,
    /// Keep packets on disk too, in up to this many bytes of pcapng files of DIR, at least 8M: weir query finds them, and any other
    /// program reads them. Files that triggers save are not counted
    #[arg(help_heading = RING, long, value_name = "SIZE", value_parser = disk)]
    pub disk: Option<u64>,
    /// Drop packets that arrived longer ago than this: 500ms, 10s, 5m, 7d [default: when there is no more room]
    #[arg(help_heading = RING, long, value_name = "T", value_parser = parse_interval)]
    pub age: Option<Duration>,
    /// Keep only the first bytes of each conversation (k, M, G: binary): packets are kept until that many bytes have come. After ten
    /// minutes of silence a conversation begins anew; a million are remembered
    #[arg(help_heading = RING, long, value_name = "BYTES", value_parser = parse_size)]
    pub cutoff: Option<u64>,
    /// Cut packets to SNAPLEN bytes in the record; filters and triggers of an interface see no more of them either (0: no cut)
    #[arg(help_heading = RING, short = 's', value_name = "SNAPLEN", default_value_t = 0)]
    pub snaplen: u32,
    /// Go on in DIR when it was removed, renamed or mounted over, and is there again: this process may then write everything beneath the
    /// directory above DIR. Without it the walls keep another DIR closed, and packets stay in RAM
    #[arg(help_heading = RING, long)]
    pub reopen: bool,
    /// Make what was written to disk durable at least this often
    #[arg(help_heading = RING, long, value_name = "T", default_value = "1s", value_parser = parse_time, requires = "disk")]
    pub sync: Duration,
    /// Begin another file of DIR after this many bytes, at most 4G [default: 256M, or an eighth of --disk if that is less]
    #[arg(help_heading = RING, long, value_name = "SIZE", value_parser = segment, requires = "disk")]
    pub segment: Option<u64>,
    /// Begin another file of DIR at multiples of this time [default: an eighth of --age]
    #[arg(help_heading = RING, long, value_name = "T", value_parser = parse_interval, requires = "disk")]
    pub segment_time: Option<Duration>,
    /// Compress files of DIR that are complete, by zstd at this level [default: 3]; a file for which that saves less than 5 % stays
    /// as it is
    #[arg(help_heading = RING, long, value_name = "LEVEL", num_args = 0..=1, require_equals = true, default_missing_value = "3",
        value_parser = clap::value_parser!(i32).range(1..=19), requires = "disk")]
    pub compress: Option<i32>,
    /// Bytes of the disk that stay free: the oldest files of DIR are removed before that, and files that triggers save grow no further
    #[arg(help_heading = RING, long, value_name = "SIZE", default_value = "1G", value_parser = parse_size)]
    pub reserve: u64,
    /// Pages of that memory: auto, hugetlb, hugetlb-1g, thp, virtual
    #[arg(help_heading = RING, long, value_name = "POLICY", default_value = "auto")]
    pub pages: Policy,
    /// Where packets begin in memory: at multiples of 1, 2, 4 ... 128 bytes, and 2 bytes behind with +2
    #[arg(help_heading = RING, long, value_name = "BYTES", default_value_t = weir_store::record::Shape::default())]
    pub align: weir_store::record::Shape,

    /// Save when a packet matches
    #[arg(help_heading = TRIGGERS, long, value_name = "NAME=EXPR", value_parser = parse_trigger)]
    pub trigger: Vec<(String, Condition)>,
    /// Save when a key exceeds a figure in a window: flood='dst>100k packets/s/1s', scan='src>100 peers/10s'
    #[arg(help_heading = TRIGGERS, long, value_name = "NAME=SPEC", value_parser = parse_threshold_trigger)]
    pub threshold: Vec<(String, Condition)>,
    /// Triggers of a TOML file: [trigger.NAME] with match = 'EXPR', threshold = 'SPEC' or every = 'T', and before, after, keep,
    /// cooldown, max_size, max_files of its own
    #[arg(help_heading = TRIGGERS, long, value_name = "FILE")]
    pub triggers: Option<Name>,
    /// Save at this interval
    #[arg(help_heading = TRIGGERS, long, value_name = "T", value_parser = parse_interval)]
    pub every: Option<Duration>,
    /// After a file, do not fire for this long: neither for a packet, also not for one that came while the file was saved, nor for
    /// SIGUSR2 or --fire
    #[arg(help_heading = TRIGGERS, long, value_name = "T", default_value = "0s", value_parser = parse_time)]
    pub cooldown: Duration,
    /// Run this program for each saved file, with the file's path and the cause as its two arguments; no shell is involved. It has
    /// the rights of the user who records, and one runs at a time; at the end they are waited for 5 s. If it fails for a file, the
    /// exit code is 1
    #[arg(help_heading = TRIGGERS, long, value_name = "PROGRAM")]
    pub on_trigger: Option<Name>,
    /// Files that each trigger saves at most
    #[arg(help_heading = TRIGGERS, long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    pub max_files: u64,

    /// Save what came this long before
    #[arg(help_heading = SAVED, long, value_name = "T", default_value = "10s", value_parser = parse_time)]
    pub before: Duration,
    /// Save what comes this long after
    #[arg(help_heading = SAVED, long, value_name = "T", default_value = "5s", value_parser = parse_time)]
    pub after: Duration,
    /// Which packets: all, flow (both directions of that of the packet that fired), host (its source address, or the one that a
    /// threshold names), or a tcpdump expression
    #[arg(help_heading = SAVED, long, value_name = "WHAT", default_value = "all", value_parser = parse_keep)]
    pub keep: Keep,
    /// Remove the oldest saved files when all of them are larger than this; with --disk
    #[arg(help_heading = SAVED, long, value_name = "SIZE", value_parser = parse_size, requires = "disk")]
    pub saved_size: Option<u64>,
    /// Remove saved files that are older than this; with --disk
    #[arg(help_heading = SAVED, long, value_name = "T", value_parser = parse_interval, requires = "disk")]
    pub saved_age: Option<Duration>,
    /// Largest size of a file
    #[arg(help_heading = SAVED, long, value_name = "SIZE", default_value = "1G", value_parser = parse_file_size)]
    pub max_size: u64,
    /// Permissions of files, in octal; a new directory can also be searched by those who may read. Others who query the directory miss
    /// the packets that are not on disk yet
    #[arg(help_heading = SAVED, long, value_name = "MODE", default_value = "600", value_parser = mode)]
    pub mode: u32,

    /// Stop after this much time: 500ms, 10s, 5m
    #[arg(help_heading = SOURCES, long, value_name = "T", value_parser = parse_time)]
    pub duration: Option<Duration>,
    /// How to capture.
    #[command(flatten, next_help_heading = LIVE)]
    pub live: LiveArgs,

    /// Ask the recorder of DIR how it stands: a JSON object (weir record --status DIR)
    #[arg(help_heading = WORK, long, conflicts_with_all = ["fire", "reindex"])]
    pub status: bool,
    /// Have the recorder of DIR fire its trigger NAME, or all (weir record --fire NAME DIR); if none fires, say why and exit with 1
    #[arg(help_heading = WORK, long, value_name = "NAME", conflicts_with = "reindex")]
    pub fire: Option<String>,
    /// Make the indexes of the files of DIR anew, and change nothing else (weir record --reindex DIR)
    #[arg(help_heading = WORK, long)]
    pub reindex: bool,
    /// Say on standard error how the work was done
    #[arg(help_heading = WORK, long)]
    pub stats: bool,
    /// One JSON object for each saved file, and one for the end
    #[arg(help_heading = WORK, long)]
    pub json: bool,
    /// What confines the process.
    #[command(flatten, next_help_heading = WORK)]
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
