//! What a user can type after `weir ctl`, and the flag of the runs that it changes.

use super::{SketchArg, TUNING};
use crate::numbers::parse_size;
use clap::{Args, Subcommand};
use weir_engine::name::Name;
use weir_measure::KeyKind;

const EXAMPLES: &str = "\
Examples:
  sudo weir measure eth0 --window 10s -w a.pcapng --control m.sock  start a run that can be changed
  sudo weir ctl --control m.sock set filter 'udp port 53'  measure other packets
  sudo weir ctl --control m.sock set key src dport  count by other keys
  sudo weir ctl --control m.sock set sketch exact  count in exact tables
  sudo weir ctl --control m.sock set memory 16M  count in larger tables
  sudo weir ctl --control m.sock set output b.pcapng  go on in another file
  sudo weir ctl --control m.sock rotate  go on in the next file of -w
  sudo weir ctl --control m.sock set rules rules.txt  judge by other rules than those of --rules

When the command ends, its change is in force. A firewall takes set rules too, and has weir firewall ctl.

Exit codes:
  0  the change is in force
  1  the run refused the change
  2  the command is wrong, or no run listens at PATH";

/// Control socket of a run.
#[derive(Args, Clone, Debug, Default)]
pub struct ControlArgs {
    /// Take requests of weir ctl at the socket PATH.
    ///
    /// weir ctl --control PATH set changes the filter, the rules and the output files, and of a
    /// measurement also the keys, the sketch and the memory, while packets flow.
    #[arg(hide_short_help = true, help_heading = TUNING, long, value_name = "PATH")]
    pub control: Option<Name>,
}

/// `weir ctl`
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct CtlArgs {
    /// Ask the run with the control socket PATH
    #[arg(long, value_name = "PATH")]
    pub control: Name,
    /// Answer with one JSON object
    #[arg(long, global = true)]
    pub json: bool,
    /// What to do.
    #[command(subcommand)]
    pub command: CtlCommand,
}

/// Work of `weir ctl`.
#[derive(Debug, Subcommand)]
pub enum CtlCommand {
    /// Change the run, between two packets and without loss
    Set {
        /// What to change.
        #[command(subcommand)]
        setting: Setting,
    },
    /// Complete the file that is written, and begin the next.
    ///
    /// Its name has the next number, as with -C. No packet is lost, and no earlier file is emptied.
    Rotate {
        /// Begin the next file of the split NAME
        #[arg(long, value_name = "NAME")]
        split: Option<Name>,
    },
}

/// Setting of a run.
#[derive(Debug, Subcommand)]
pub enum Setting {
    /// Take the packets that match another tcpdump expression
    Filter {
        /// tcpdump expression; '' matches all packets
        #[arg(value_name = "EXPR")]
        expression: String,
    },
    /// Count by other keys, in fresh tables
    Key {
        /// Keys, as for weir measure --key
        #[arg(value_name = "KEY", required = true)]
        keys: Vec<KeyKind>,
    },
    /// Count in fresh tables of another kind
    Sketch {
        /// Kind of table
        sketch: SketchArg,
    },
    /// Count in fresh tables of another size
    Memory {
        /// Memory of each table in bytes; k, M and G are binary
        #[arg(value_name = "SIZE", value_parser = parse_size)]
        bytes: u64,
    },
    /// Judge by the rules of another file.
    ///
    /// A firewall goes back to its own file when that changes, or with weir firewall ctl reload.
    Rules {
        /// Rules file; - is standard input
        #[arg(value_name = "FILE")]
        file: Name,
    },
    /// Write to another file than -w names
    Output {
        /// Write to FILE: pcapng, or pcap by its name
        #[arg(value_name = "FILE")]
        file: Name,
        /// Replace the file of the split NAME
        #[arg(long, value_name = "NAME")]
        split: Option<Name>,
    },
}
