//! What a user can type after `weir ctl`, and the flag of the runs that it changes.

use super::replay::speed;
use super::{ANSWER, SketchArg, TUNING, rate};
use crate::numbers::parse_size;
use clap::{Args, Subcommand};
use weir_engine::name::Name;
use weir_generator::streams::Sizes;
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
  sudo weir generate af_packet:eth1 --profile 64 --rate 1kpps --control s.sock  start a sender
  sudo weir ctl --control s.sock set rate 50kpps  send faster from now on
  sudo weir ctl --control s.sock set field ipv4.ttl=9  send other packets
  sudo weir ctl --control s.sock stop  let nothing leave until weir ctl start
  sudo weir ctl --control s.sock stop eth2  leave out the packets of one of two ports
  sudo weir ctl --control s.sock hold  end the sender with this command

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

/// Control socket of a sender.
#[derive(Args, Clone, Debug, Default)]
pub struct SteerArgs {
    /// Take requests of weir ctl at the socket PATH.
    ///
    /// weir ctl --control PATH stops and starts the sender, or one of two ports, sets its rate, and of generated streams the sizes and fields.
    #[arg(hide_short_help = true, help_heading = TUNING, long, value_name = "PATH")]
    pub control: Option<Name>,
    /// Show the sender on the whole screen; keys change it.
    ///
    /// Rates asked and reached, streams, and what is missed. + and - change the rate, r sets it, s and f set sizes and fields of generated
    /// streams, x the speed of a replay. Space stops and starts, 1 and 2 stop and start one of two ports, q ends.
    #[arg(help_heading = ANSWER, long, conflicts_with = "json")]
    pub watch: bool,
    /// Run a Lua 5.4 program that steers the sender.
    ///
    /// It reads counters and gives the orders of weir ctl: weir.status(), weir.set("rate", "2kpps"), weir.sleep(1), weir.stop(),
    /// weir.finish(). It sees no packet, no file and no other program.
    #[arg(hide_short_help = true, help_heading = TUNING, long, value_name = "FILE")]
    pub script: Option<Name>,
}

impl SteerArgs {
    /// The first flag that steers the sender, with its value.
    pub fn named(&self) -> Option<String> {
        let control = self
            .control
            .as_ref()
            .map(|path| format!("--control {path}"));
        let script = self.script.as_ref().map(|path| format!("--script {path}"));
        let watch = self.watch.then(|| "--watch".to_owned());
        control.or(script).or(watch)
    }
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
    /// Stop sending, until start
    Stop {
        /// Leave out the packets of this port alone
        ///
        /// The port is its name, its interface, 1 or 2.
        #[arg(value_name = "PORT")]
        port: Option<Name>,
    },
    /// Go on sending
    Start {
        /// Let the packets of this port leave again
        ///
        /// The port is its name, its interface, 1 or 2.
        #[arg(value_name = "PORT")]
        port: Option<Name>,
    },
    /// Print how many packets a sender has sent
    Status,
    /// End the sender when this command ends.
    ///
    /// Also if this command is killed, or its terminal or connection is lost.
    Hold,
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
    /// Send at another rate
    Rate {
        /// Rate, as for weir generate --rate
        #[arg(value_name = "RATE", value_parser = rate_text)]
        rate: String,
        /// A port, which the sender refuses with the reason.
        #[arg(hide = true)]
        port: Option<Name>,
    },
    /// Replay so many times as fast
    Speed {
        /// Times as fast as captured: 2x, 0.5x
        #[arg(value_name = "TIMES", value_parser = speed)]
        speed: f64,
    },
    /// Send frames of other sizes
    Sizes {
        /// Sizes, as for weir generate --sizes
        #[arg(value_name = "SIZES", value_parser = sizes_text)]
        sizes: String,
    },
    /// Send frames with other values in a field
    Field {
        /// Field and values, as for weir generate --field
        #[arg(value_name = "F=V")]
        field: String,
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

/// Checks a rate, which the sender reads. **Errors**: what would be right.
fn rate_text(text: &str) -> Result<String, String> {
    rate(text).map(|_| text.to_owned())
}

/// Checks sizes, which the sender reads. **Errors**: what would be right.
fn sizes_text(text: &str) -> Result<String, String> {
    text.parse::<Sizes>().map(|_| text.to_owned())
}
