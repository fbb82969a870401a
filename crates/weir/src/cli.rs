//! What a user can type. Parsing fills plain data and does nothing.
// Texts here are printed as help, where brackets mean what may be left out.
#![allow(rustdoc::broken_intra_doc_links)]

mod capture;
pub mod ctl;
mod dedup;
pub mod diff;
pub mod exec;
pub mod extcap;
mod filter;
pub mod firewall;
pub mod format;
pub mod generate;
mod geo;
mod inside;
mod measure;
pub mod names;
pub mod query;
mod rate;
pub mod record;
pub mod replay;
mod times;
mod viewers;
mod watch;

pub use capture::*;
pub use dedup::DedupArgs;
pub use filter::*;
pub use generate::*;
pub use geo::GeoArgs;
pub use inside::InnerArgs;
pub use measure::*;
pub use rate::*;
pub use times::TimeArgs;
pub use viewers::ViewersArgs;
pub use watch::WatchArgs;

use crate::numbers::{
    parse_cpus, parse_rotation_size, parse_share, parse_shift, parse_size, parse_speed, parse_time,
    parse_zstd_window,
};
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use ctl::ControlArgs;
use firewall::RulesArgs;
use format::FormatArgs;
use names::NameArgs;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;
use weir_engine::name::Name;
use weir_measure::{Config, KeyKind};
use weir_memory::Policy;
use weir_messages::Refusal;
use weir_messages::anonymity::{parse_payload, read_key};
use weir_packet::anonymize::Anonymizer;
use weir_pipeline::measuring::Settings;

/// The whole command line.
#[derive(Debug, Parser)]
#[command(version, propagate_version = true, disable_help_subcommand = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show the largest flows, hosts, networks and ports, with error bounds
    Measure(MeasureArgs),
    /// Show the traffic on the whole screen, as it goes
    #[command(visible_alias = "top")]
    Watch(WatchArgs),
    /// Print, count, copy or convert packets that match a tcpdump expression
    Filter(FilterArgs),
    /// Show what capture files contain
    Info(InfoArgs),
    /// Keep recent packets in RAM or on disk; save them at a trigger
    Record(record::RecordArgs),
    /// Get recorded packets back by time and expression
    Query(query::QueryArgs),
    /// Compare two captures, or two times of a record: what is new, gone, grown
    Diff(diff::DiffArgs),
    /// Make synthetic traffic with known counts, in a file or on an interface
    Generate(GenerateArgs),
    /// Send the packets of captures again, each at its time
    Replay(replay::ReplayArgs),
    /// Forward packets between interfaces or files by a list of rules
    Firewall(firewall::FirewallArgs),
    /// Change a run that has a control socket
    Ctl(ctl::CtlArgs),
    /// Run a program of libpcap, such as tcpdump, with weir reading its packets
    Exec(exec::ExecArgs),
    /// Be an interface of Wireshark: captures and records of weir
    Extcap(extcap::ExtcapArgs),
    /// Check what this machine offers, and how to improve it
    Doctor(DoctorArgs),
    /// Compare weir with other tools (runs weir-bench)
    Bench(BenchArgs),
    /// Explain a command or a topic
    Help(HelpArgs),
}

/// `weir help`
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  weir help measure          all options of a command
  weir help firewall check   of a command of a command
  weir help rules            the language of firewall rules
  weir help expressions      tcpdump expressions and sets of addresses
  weir help keys             what measure counts by
  weir help columns          what --columns chooses from
  weir help triggers         when record saves packets")]
pub struct HelpArgs {
    /// Command, or a topic of the examples below
    #[arg(value_name = "TOPIC")]
    pub topic: Vec<String>,
}

// Headings of the help page, in its order.
/// Which packets.
pub const SELECT: &str = "Select";
/// Windows and times.
pub const TIME: &str = "Time";
/// What a recorder keeps.
pub const KEEP: &str = "Keep";
/// When a recorder saves packets.
pub const TRIGGERS: &str = "Triggers";
/// What a recorder saves.
pub const SAVED: &str = "Saved files";
/// What is printed.
pub const ANSWER: &str = "Answer";
/// What is written and sent.
pub const OUTPUT: &str = "Output";
/// How a firewall forwards.
pub const FORWARD: &str = "Forward";
/// Control packets of a firewall.
pub const CONTROL: &str = "Control packets";
/// How sources are read.
pub const INPUT: &str = "Input";
/// How interfaces are captured.
pub const LIVE: &str = "Live capture";
/// Threads, memory, privileges: seldom needed.
pub const TUNING: &str = "Tuning";

/// The headings of all pages, in their order.
pub const HEADINGS: [&str; 12] = [
    SELECT, TIME, KEEP, TRIGGERS, SAVED, ANSWER, OUTPUT, FORWARD, CONTROL, INPUT, LIVE, TUNING,
];

/// How to print packets as lines.
#[derive(Args, Clone, Copy, Debug)]
pub struct LineArgs {
    /// Print the link-layer header
    #[arg(help_heading = ANSWER, short = 'e')]
    pub link_header: bool,
    /// Print packets in hex; -xx with link-layer header
    #[arg(help_heading = ANSWER, short = 'x', action = ArgAction::Count)]
    pub hex: u8,
    /// Print packets in hex and ASCII; -XX with header
    #[arg(help_heading = ANSWER, short = 'X', action = ArgAction::Count, conflicts_with = "hex")]
    pub hex_ascii: u8,
    /// Print packets in ASCII; -AA with header
    #[arg(help_heading = ANSWER, short = 'A', action = ArgAction::Count, conflicts_with_all = ["hex", "hex_ascii"])]
    pub ascii: u8,
    /// Change times: -t none, -tt seconds, -tttt date.
    ///
    /// -ttt is the time since the previous line, -ttttt since the first.
    #[arg(help_heading = ANSWER, short = 't', action = ArgAction::Count)]
    pub time: u8,
    /// Print nanoseconds, not microseconds
    #[arg(hide_short_help = true, help_heading = ANSWER, long)]
    pub nano: bool,
    /// Print more: fields of IP headers, checksums
    #[arg(help_heading = ANSWER, short = 'v', action = ArgAction::Count, conflicts_with = "quiet")]
    pub verbose: u8,
    /// Print less about the protocols
    #[arg(hide_short_help = true, help_heading = ANSWER, short = 'q')]
    pub quiet: bool,
    /// Print absolute TCP sequence numbers
    #[arg(hide_short_help = true, help_heading = ANSWER, short = 'S')]
    pub absolute: bool,
    /// Number the lines
    #[arg(hide_short_help = true, help_heading = ANSWER, short = '#', long)]
    pub number: bool,
    /// Accept -n, as in tcpdump: addresses are never resolved
    #[arg(short = 'n', action = ArgAction::Count, hide = true)]
    pub numeric: u8,
}

impl LineArgs {
    /// Whether a flag asks for lines of a kind, so that packets have to be printed.
    pub const fn asks_for_lines(&self) -> bool {
        let dumps = self.hex + self.hex_ascii + self.ascii > 0;
        self.link_header
            || dumps
            || self.verbose > 0
            || self.quiet
            || self.absolute
            || self.number
            || self.nano
    }
}

/// Where to write packets, in the same pass as all else.
#[derive(Args, Clone, Debug, Default)]
pub struct OutputArgs {
    /// Write the packets to SINK.
    ///
    /// A file is pcapng, or pcap if its name ends in .pcap or .cap; - is standard output. A port
    /// sends the packets as they are: af_packet:IF, af_xdp:IF[:QUEUE], dpdk:DEVICE. null throws
    /// them away (./null is a file).
    #[arg(help_heading = OUTPUT, short = 'w', long = "write", value_name = "SINK")]
    pub write: Option<Name>,
    /// Also write packets that match EXPR to file NAME.
    ///
    /// Several are possible, in the same pass. .pcapng is added to a name without extension; with
    /// weir filter --count, each prints a line COUNT NAME.
    #[arg(help_heading = OUTPUT, long, value_name = "NAME=EXPR", value_parser = OsStringValueParser::new().try_map(split))]
    pub split: Vec<(Name, String)>,
    /// Write a file for each source address, or each flow.
    ///
    /// -w out.pcapng makes out-10.1.2.3.pcapng, or out-10.1.2.3.80-10.9.9.9.4000-tcp.pcapng for both
    /// directions of a flow; packets without addresses are in out-other.pcapng.
    #[arg(hide_short_help = true, help_heading = OUTPUT, long, requires = "write", conflicts_with_all = ["rotate_size", "rotate_seconds"])]
    pub split_by: Option<SplitByArg>,
    /// Write N files with --split-by, the rest into one.
    ///
    /// Packets of further addresses or flows are in out-rest.pcapng.
    #[arg(hide_short_help = true, help_heading = OUTPUT, long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000), requires = "split_by")]
    pub split_most: u32,
    /// Keep SIZE bytes of the disk free.
    ///
    /// Files grow no further [default: 1G, or a twentieth of the disk if that is less].
    #[arg(hide_short_help = true, help_heading = OUTPUT, long, value_name = "SIZE", value_parser = parse_size)]
    pub reserve: Option<u64>,
    /// Write each packet out at once
    #[arg(hide_short_help = true, help_heading = OUTPUT, short = 'U', visible_short_alias = 'l')]
    pub unbuffered: bool,
    /// Begin a new file after SIZE.
    ///
    /// A plain number counts million bytes; with k, M or G, units are binary (10M: 10 485 760
    /// bytes).
    #[arg(help_heading = OUTPUT, short = 'C', value_name = "SIZE", requires = "write", value_parser = parse_rotation_size)]
    pub rotate_size: Option<u64>,
    /// Begin a new file every SECONDS.
    ///
    /// A live capture counts from its start; files go by multiples of packet time. The name may
    /// hold strftime fields.
    #[arg(help_heading = OUTPUT, short = 'G', value_name = "SECONDS", requires = "write", value_parser = clap::value_parser!(u64).range(1..))]
    pub rotate_seconds: Option<u64>,
    /// Keep COUNT files (-C), or stop after COUNT (-G).
    ///
    /// With -C, names are used again after COUNT files. With -G, writing stops after COUNT files,
    /// which ends a run that does not measure. With both, COUNT only sets the width of the numbers
    /// in file names, as in tcpdump.
    #[arg(hide_short_help = true, help_heading = OUTPUT, short = 'W', value_name = "COUNT", requires = "write", value_parser = clap::value_parser!(u32).range(1..))]
    pub rotate_count: Option<u32>,
    /// Empty earlier files of the names that -C or -G writes.
    ///
    /// Without it, weir takes other names.
    #[arg(hide_short_help = true, help_heading = OUTPUT, long, requires = "write")]
    pub overwrite: bool,
    /// Run PROGRAM with the name of each complete file.
    ///
    /// Programs run one after another, without a shell and without capabilities. If one fails, the
    /// exit code is 1.
    #[arg(hide_short_help = true, help_heading = OUTPUT, short = 'z', value_name = "PROGRAM")]
    pub program: Option<Name>,
    /// Cut written and printed packets to SNAPLEN bytes.
    ///
    /// Filters see whole packets. 0 cuts nothing.
    #[arg(help_heading = OUTPUT, short = 's', value_name = "SNAPLEN", default_value_t = 0)]
    pub snaplen: u32,
    /// Changes of the packets.
    #[command(flatten)]
    pub rewriting: RewriteArgs,
    /// Who may be sent to.
    #[command(flatten)]
    pub sending: SendArgs,
}

/// Key that decides about the file of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SplitByArg {
    /// Both ends and the protocol of a conversation
    Flow,
    /// The source address
    Src,
}

/// Changes of packets that are printed, written or sent.
#[derive(Args, Clone, Debug, Default)]
pub struct RewriteArgs {
    /// Move the times of written packets: 1h, -1h, -0.25s.
    ///
    /// Lines, files and the times of interface statistics are moved; --from, --to and measurements
    /// see the times of the source.
    #[arg(hide_short_help = true, help_heading = OUTPUT, long, value_name = "TIME", value_parser = parse_shift, allow_hyphen_values = true)]
    pub shift: Option<i64>,
    /// Other addresses.
    #[command(flatten)]
    pub anonymize: AnonymizeArgs,
}

/// Other addresses in packets that are printed, written or sent.
#[derive(Args, Clone, Debug, Default)]
pub struct AnonymizeArgs {
    /// Write other addresses, by the key in KEYFILE.
    ///
    /// IP addresses keep their common prefixes (Crypto-PAn); link-layer addresses become others too,
    /// and checksums follow. Comments, names and secrets are left out. KEYFILE has 32 random bytes
    /// that you alone may read: (umask 077; head -c 32 /dev/urandom >KEYFILE).
    #[arg(id = "anonymize", hide_short_help = true, help_heading = OUTPUT, long = "anonymize", value_name = "KEYFILE")]
    pub key: Option<Name>,
    /// Keep N bytes of payload with --anonymize: none, N, all.
    ///
    /// Payload may have addresses and names, such as DNS names: they stay [default: none].
    #[arg(hide_short_help = true, help_heading = OUTPUT, long, value_name = "N", value_parser = parse_payload, requires = "anonymize")]
    pub payload: Option<usize>,
}

impl AnonymizeArgs {
    /// The writer of other addresses, if there is one. **Errors**: the key cannot be read.
    pub fn anonymizer(&self) -> Result<Option<Anonymizer>, Refusal> {
        let payload = self.payload.unwrap_or(0);
        let read = |key: &Name| read_key(key.as_ref(), payload);
        self.key.as_ref().map(read).transpose()
    }
}

/// What becomes of injected packets.
#[derive(Args, Clone, Debug, Default)]
pub struct InjectArgs {
    /// Let this host handle packets that inject:IF injects.
    ///
    /// On an interface with an address they are otherwise counted and dropped.
    #[arg(hide_short_help = true, help_heading = OUTPUT, long)]
    pub to_stack: bool,
}

/// Interfaces that may send although they are guarded.
#[derive(Args, Clone, Debug, Default)]
pub struct SendArgs {
    /// Send on IF although this host depends on it.
    ///
    /// This is needed if IF has the default route or the address of this login, or is a port of a
    /// bridge. Repeat it for several interfaces.
    #[arg(hide_short_help = true, help_heading = OUTPUT, long, value_name = "IF")]
    pub yes_send: Vec<String>,
}

/// Interfaces whose packets may be taken away from this host although they are guarded.
#[derive(Args, Clone, Debug, Default)]
pub struct TakeArgs {
    /// Take packets of IF away although this host needs them.
    ///
    /// af_xdp, dpdk and weir firewall take packets away. This is needed if IF has the default route
    /// or the address of this login, or is a port of a bridge: it may cut this login off. Repeat it
    /// for several interfaces.
    #[arg(hide_short_help = true, help_heading = LIVE, long, value_name = "IF")]
    pub yes_take: Vec<String>,
}

/// A list of processors; a type of its own, since `Vec` means repetition to the parser.
#[derive(Clone, Debug)]
pub struct Cpus(pub Vec<usize>);

/// The speed of a link. A number without a unit is meant in another than bit/s.
fn link_speed(text: &str) -> Result<f64, String> {
    match parse_speed(text)? {
        speed if speed < 1000.0 => Err(format!(
            "'{text}' is less than 1 kbit/s: write the unit, as in 1G, 100M or 2.5G (bit/s)"
        )),
        speed => Ok(speed),
    }
}

fn cpus(text: &str) -> Result<Cpus, String> {
    parse_cpus(text).map(Cpus)
}

fn split(text: OsString) -> Result<(Name, String), String> {
    let bytes = text.as_bytes();
    let parts = bytes
        .iter()
        .position(|&byte| byte == b'=')
        .map(|at| (&bytes[..at], &bytes[at + 1..]));
    match parts.map(|(name, expression)| (name, str::from_utf8(expression))) {
        Some((name, Ok(expression))) if !name.is_empty() => {
            Ok((Name::from(OsStr::from_bytes(name)), expression.to_owned()))
        }
        _ => Err(format!(
            "'{}' is not NAME=EXPR, for instance dns='udp port 53'",
            Name::from(text)
        )),
    }
}

const INFO_EXAMPLES: &str = "\
Examples:
  weir info trace.pcap
  weir info *.pcapng --json";

/// `weir info`
#[derive(Args, Debug)]
#[command(after_help = INFO_EXAMPLES)]
pub struct InfoArgs {
    /// Capture files; - is standard input
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<Name>,
    /// Print one JSON object per file
    #[arg(help_heading = ANSWER, long)]
    pub json: bool,
    /// Print times in UTC instead of local time
    #[arg(help_heading = ANSWER, long)]
    pub utc: bool,
    /// Read a file with N threads [default: one per core]
    #[arg(help_heading = TUNING, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub workers: Option<u16>,
    /// Allow zstd windows up to SIZE.
    ///
    /// A file compressed with zstd --long=N needs a window of 2 to the power of N bytes.
    #[arg(help_heading = INPUT, long, value_name = "SIZE", default_value = "128M", value_parser = parse_zstd_window)]
    pub zstd_window: u64,
    /// What confines the process.
    #[command(flatten)]
    pub walls: WallArgs,
}

const DOCTOR_EXAMPLES: &str = "\
Examples:
  weir doctor
  weir doctor --json | jq '.interfaces.eth0.value.offloads'

weir doctor changes nothing and needs no privilege. What it cannot find out is unknown. The exit code is 0.";

/// `weir doctor`
#[derive(Args, Debug)]
#[command(after_help = DOCTOR_EXAMPLES)]
pub struct DoctorArgs {
    /// Print the same facts as one JSON object
    #[arg(help_heading = ANSWER, long)]
    pub json: bool,
}

const BENCH_EXAMPLES: &str = "\
Examples:
  weir bench                        list the comparisons
  weir bench sketch                 sketches and tables next to public libraries
  weir bench sketch --size smoke    the same, small: whether it works
  weir bench sketch --help          all options

weir-bench does the work, a program of its own. `make bench` builds it.";

/// `weir bench`
#[derive(Args, Debug)]
#[command(after_help = BENCH_EXAMPLES)]
pub struct BenchArgs {
    /// Comparison and its options, for weir-bench
    #[arg(
        value_name = "NAME",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub arguments: Vec<OsString>,
}
