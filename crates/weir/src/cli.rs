//! What a user can type. Parsing fills plain data and does nothing.
// Texts here are printed as help, where brackets mean what may be left out.
#![allow(rustdoc::broken_intra_doc_links)]

pub mod firewall;
pub mod names;
pub mod query;
pub mod record;

use crate::numbers::{parse_cpus, parse_rotation_size, parse_size, parse_time, parse_zstd_window};
use crate::terminal::{columns, help_width};
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use firewall::RulesArgs;
use names::NameArgs;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;
use weir_engine::name::Name;
use weir_generator::Sizes;
use weir_measure::{Config, KeyKind};
use weir_memory::Policy;
use weir_pipeline::measuring::Settings;

/// weir answers questions about network captures: which packets match, how many, what is in a file.
#[derive(Debug, Parser)]
#[command(version, about = "weir answers questions about network captures", long_about = None, propagate_version = true, max_term_width = HELP_WIDTH)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Say who uses the traffic: top talkers with bounds, totals, rates
    Measure(MeasureArgs),
    /// Show, keep, count or convert the packets that match a tcpdump expression
    Filter(FilterArgs),
    /// Keep packets in RAM, and save those from before a trigger
    Record(record::RecordArgs),
    /// Get packets back from a record by time and expression
    Query(query::QueryArgs),
    /// Forward what a list of rules passes, drop the rest; check rules against captures
    Firewall(firewall::FirewallArgs),
    /// Say what capture files hold
    Info(InfoArgs),
    /// Write a capture file of synthetic traffic whose answers are known
    Generate(GenerateArgs),
    /// Say what this machine offers (huge pages, queues, sockets, privileges) and what to change
    Doctor(DoctorArgs),
    /// Repeat the comparisons with peers
    Bench(BenchArgs),
}

/// Columns of a help page at most.
const HELP_WIDTH: usize = 100;

/// What stands below the options, for this terminal: where an example and its meaning have no room in a line, the meaning
/// goes below. Other lines are cut at blanks by the parser.
fn fitted(text: &str) -> String {
    /// Columns before a meaning that stands below, and the shortest example.
    const INDENT: usize = 6;
    let width = help_width().map_or(HELP_WIDTH, |width| width.min(HELP_WIDTH));
    let line = |line: &str| {
        let indent = line.len() - line.trim_start_matches(' ').len();
        let gap = line[indent..]
            .find("  ")
            .filter(|&at| at > INDENT)
            .map(|at| indent + at);
        match gap {
            _ if columns(line) <= width => format!("{line}\n"),
            Some(gap) => format!(
                "{}\n{:INDENT$}{}\n",
                &line[..gap],
                "",
                line[gap..].trim_start()
            ),
            None => format!(
                "{:indent$}{}\n",
                "",
                &line[indent..],
                indent = indent.min(INDENT)
            ),
        }
    };
    paragraphs(text).iter().map(|text| line(text)).collect()
}

/// The lines of `text`. Those of a paragraph are one, so that it is cut at the width of the terminal and nowhere else.
fn paragraphs(text: &str) -> Vec<String> {
    let is_prose = |line: &str| !line.is_empty() && !line.starts_with(' ');
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines() {
        match lines.last_mut() {
            Some(last) if is_prose(last) && is_prose(line) => {
                last.push(' ');
                last.push_str(line);
            }
            _ => lines.push(line.to_owned()),
        }
    }
    lines
}

const FILTER_USAGE: &str = "weir filter [OPTIONS] EXPR SOURCE...
       weir filter [OPTIONS] --filter-file FILE SOURCE...
       weir filter -D";

// Headings of the help page, in its order.
const PACKETS: &str = "Which packets";
const LINES: &str = "What to print";
const FILES: &str = "What to write";
const ANSWER: &str = "What to answer";
const COUNTERS: &str = "How to count";
const SOURCES: &str = "What to read";
const LIVE: &str = "How to capture from interfaces";
const WORK: &str = "How to work";

const FILTER_EXAMPLES: &str = "\
Examples:
  weir filter 'udp port 53' trace.pcap                 one line per packet
  weir filter 'udp port 53' trace.pcap --count         only how many
  weir filter 'udp port 53' trace.pcap -w dns.pcapng   keep them
  weir filter '' big.pcapng.zst -w big.pcap            convert: an empty expression matches all
  weir filter tcp a.pcap b.pcap --merge -w -           two files by time, to another program
  weir filter -e -X icmp - <trace.pcap                 link header, hex and ASCII, from a pipe
  sudo weir filter 'udp port 53' eth0 -w dns.pcapng    capture from an interface, until Ctrl-C
  sudo weir filter tcp eth0 -w af_packet:eth1          send what matches out of another interface
  weir filter '' trace.pcap --split web='tcp port 443' --split dns='port 53'
                                                       web.pcapng and dns.pcapng in one pass
  sudo weir filter -F watched.txt eth0 -w seen.pcapng  the expression is in a file: edit it, and kill -HUP
  weir filter 'src @banned' trace.pcap --set banned=banned.txt
                                                       a million addresses and prefixes, one a line

Expressions are tcpdump's (man pcap-filter), compiled by libpcap itself.

Exit codes:
  0  done, or nobody reads the output any more
  1  the input or output failed; what was good was delivered
  2  the command is wrong; nothing was done";

/// `weir filter`
#[derive(Args, Debug)]
#[command(after_help = fitted(FILTER_EXAMPLES), override_usage = FILTER_USAGE)]
pub struct FilterArgs {
    /// tcpdump expression; '' matches every packet
    #[arg(value_name = "EXPR", required_unless_present_any = ["list_interfaces", "read", "interface", "filter_file"])]
    pub expression: Option<String>,
    /// Capture files, plain or compressed (gzip, zstd, lz4); - is standard input; or interfaces: eth0, any for all of them,
    /// af_packet:eth0 where a file has that name too, af_xdp:eth0 (faster; this host does not get what is captured),
    /// dpdk:DEVICE
    #[arg(value_name = "SOURCE", required_unless_present_any = ["list_interfaces", "read", "interface", "filter_file"])]
    pub sources: Vec<Name>,
    /// Accepted for tcpdump's sake: one more source
    #[arg(short = 'r', value_name = "SOURCE", hide = true)]
    pub read: Vec<Name>,
    /// Accepted for tcpdump's sake: an interface as the source
    #[arg(short = 'i', value_name = "INTERFACE", hide = true)]
    pub interface: Vec<String>,

    /// Take the expression from FILE (# begins a comment); SIGHUP has it read again, and packets that come from then on are judged
    /// by the new one. There is no EXPR then
    #[arg(help_heading = PACKETS, short = 'F', long, value_name = "FILE")]
    pub filter_file: Option<Name>,
    /// Keep the packets that do not match
    #[arg(help_heading = PACKETS, long)]
    pub invert: bool,
    /// Judge the packet inside GRE, IP in IP, VXLAN, GENEVE, GTP-U and MPLS over IP, the innermost one, and not the packet
    /// around it; what is shown and written is the whole packet
    #[arg(help_heading = PACKETS, long)]
    pub inner: bool,
    /// Stop after N matching packets
    #[arg(help_heading = PACKETS, short = 'c', value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub stop_after: Option<u64>,
    #[command(flatten)]
    pub names: NameArgs,
    #[command(flatten)]
    pub judging: RulesArgs,

    /// Print only how many packets match
    #[arg(help_heading = LINES, long, conflicts_with_all = ["write", "link_header", "hex", "hex_ascii"])]
    pub count: bool,
    /// How to print them as lines.
    #[command(flatten)]
    pub lines: LineArgs,
    /// Times in UTC instead of local time
    #[arg(help_heading = LINES, long)]
    pub utc: bool,
    /// One JSON object per packet and one for the summary; with --count only the summary
    #[arg(help_heading = LINES, long, conflicts_with = "write")]
    pub json: bool,

    /// Where to write them.
    #[command(flatten)]
    pub output: OutputArgs,

    /// Merge the sources by packet time instead of reading them one after another
    #[arg(help_heading = SOURCES, long)]
    pub merge: bool,
    /// Put the packets of all files in the order of time first, whatever order the files have: with up to 256 MiB of memory
    /// (at most a quarter of what is free), the rest in temporary files in TMPDIR
    #[arg(help_heading = SOURCES, long, conflicts_with = "follow")]
    pub sort: bool,
    /// Go on at the end of the file and wait for more, and for another file of its name, until interrupted
    #[arg(help_heading = SOURCES, long)]
    pub follow: bool,
    /// Decode zstd data that needs this much memory for its window (of zstd --long=N: 2 to the power of N)
    #[arg(help_heading = SOURCES, long, value_name = "SIZE", default_value = "128M", value_parser = parse_zstd_window)]
    pub zstd_window: u64,
    /// Stop after this much time: 500ms, 10s, 5m
    #[arg(help_heading = SOURCES, long, value_name = "T", value_parser = parse_time)]
    pub duration: Option<Duration>,
    /// List the network interfaces of this machine
    #[arg(help_heading = SOURCES, short = 'D', long = "list-interfaces")]
    pub list_interfaces: bool,
    /// How to capture.
    #[command(flatten)]
    pub live: LiveArgs,

    /// Threads that read a file [default: one per core]
    #[arg(help_heading = WORK, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub workers: Option<u16>,
    /// Bind the threads to these processors: 0,2-3
    #[arg(help_heading = WORK, long, value_name = "LIST", value_parser = cpus)]
    pub cpus: Option<Cpus>,
    /// Say on standard error how the work was done
    #[arg(help_heading = WORK, long)]
    pub stats: bool,
    /// What confines the process.
    #[command(flatten, next_help_heading = WORK)]
    pub walls: WallArgs,
}

/// How to print packets as lines.
#[derive(Args, Clone, Copy, Debug)]
pub struct LineArgs {
    /// Print the link-layer header
    #[arg(help_heading = LINES, short = 'e')]
    pub link_header: bool,
    /// Print the packet in hex, without its link-layer header; twice: with it
    #[arg(help_heading = LINES, short = 'x', action = ArgAction::Count)]
    pub hex: u8,
    /// Print the packet in hex and ASCII, without its link-layer header; twice: with it
    #[arg(help_heading = LINES, short = 'X', action = ArgAction::Count, conflicts_with = "hex")]
    pub hex_ascii: u8,
    /// Times: -t none, -tt seconds since 1970, -tttt date and time
    #[arg(help_heading = LINES, short = 't', action = ArgAction::Count)]
    pub time: u8,
    /// Accepted for tcpdump's sake: addresses are never turned into names
    #[arg(short = 'n', action = ArgAction::Count, hide = true)]
    pub numeric: u8,
}

/// Where to write packets, in the same pass as all else.
#[derive(Args, Clone, Debug, Default)]
pub struct OutputArgs {
    /// Write the packets to the file SINK: pcapng, or pcap if its name ends in .pcap or .cap; - is standard output. Or send them, as
    /// they are, by a port: af_packet:IF, af_xdp:IF[:QUEUE], dpdk:DEVICE; null throws them away (./null is a file)
    #[arg(help_heading = FILES, short = 'w', long = "write", value_name = "SINK")]
    pub write: Option<Name>,
    /// Further outputs in the same pass: packets that match EXPR too go to the file NAME (.pcapng is added to a name
    /// without extension); with weir filter --count, one line `COUNT NAME` each
    #[arg(help_heading = FILES, long, value_name = "NAME=EXPR", value_parser = OsStringValueParser::new().try_map(split))]
    pub split: Vec<(Name, String)>,
    /// Bytes of the disk that stay free: files grow no further [default: 1G, or a twentieth of the disk if that is less]
    #[arg(help_heading = FILES, long, value_name = "SIZE", value_parser = parse_size)]
    pub reserve: Option<u64>,
    /// Write each packet out at once
    #[arg(help_heading = FILES, short = 'U', visible_short_alias = 'l')]
    pub unbuffered: bool,
    /// Begin a new file when the current one is larger than SIZE: a plain number counts million bytes, and one with k, M or G
    /// binary units (10M: 10 485 760 bytes)
    #[arg(help_heading = FILES, short = 'C', value_name = "SIZE", requires = "write", value_parser = parse_rotation_size)]
    pub rotate_size: Option<u64>,
    /// Begin a new file every SECONDS: of a capture from its start on, with packets and without; else at multiples of packet time.
    /// The name may hold strftime fields
    #[arg(help_heading = FILES, short = 'G', value_name = "SECONDS", requires = "write", value_parser = clap::value_parser!(u64).range(1..))]
    pub rotate_seconds: Option<u64>,
    /// With -C: reuse the names of COUNT files; with -G: stop writing after COUNT files, which ends a run that does not measure;
    /// with both: ignored as in tcpdump, but for the
    /// width of the numbers in file names
    #[arg(help_heading = FILES, short = 'W', value_name = "COUNT", requires = "write", value_parser = clap::value_parser!(u32).range(1..))]
    pub rotate_count: Option<u32>,
    /// With -C or -G: empty earlier files of the names to be written, instead of taking other names
    #[arg(help_heading = FILES, long, requires = "write")]
    pub overwrite: bool,
    /// Run PROGRAM with the name of each file that is complete, one after the other, without a shell and without capabilities; if
    /// it fails for one, the exit code is 1
    #[arg(help_heading = FILES, short = 'z', value_name = "PROGRAM")]
    pub program: Option<Name>,
    /// Cut packets to SNAPLEN bytes where they are written or printed; filters see all of them (0: no cut)
    #[arg(help_heading = FILES, short = 's', value_name = "SNAPLEN", default_value_t = 0)]
    pub snaplen: u32,
    /// Who may be sent to.
    #[command(flatten)]
    pub sending: SendArgs,
}

/// Interfaces that may send although they are guarded.
#[derive(Args, Clone, Debug, Default)]
pub struct SendArgs {
    /// Send by IF although it has the default route or the address of this login, or is a port of a bridge (several: repeat it)
    #[arg(help_heading = FILES, long, value_name = "IF")]
    pub yes_send: Vec<String>,
}

/// Interfaces whose packets may be taken away from this host although they are guarded.
#[derive(Args, Clone, Debug, Default)]
pub struct TakeArgs {
    /// af_xdp, dpdk, firewall: take the packets of IF away from this host although it has the default route or the address of
    /// this login, or is a port of a bridge: that may cut this login off (several: repeat it)
    #[arg(help_heading = LIVE, long, value_name = "IF")]
    pub yes_take: Vec<String>,
}

/// How to capture from an interface.
#[derive(Args, Clone, Debug)]
pub struct LiveArgs {
    /// Capture only what this machine sends and receives anyway, not what is for others (promiscuous mode)
    #[arg(help_heading = LIVE, short = 'p', long = "no-promiscuous-mode")]
    pub no_promiscuous: bool,
    /// Capture what the interface receives, what it sends, or both
    #[arg(help_heading = LIVE, short = 'Q', long, default_value = "inout")]
    pub direction: DirectionArg,
    /// Memory for packets that wait to be read, in bytes (k, M, G: binary), in all
    #[arg(help_heading = LIVE, long, value_name = "SIZE", default_value = "32M", value_parser = parse_size)]
    pub ring: u64,
    /// Take more memory for rings than half of what is free: the kernel charges it to nobody, and may end other programs
    #[arg(help_heading = LIVE, long)]
    pub ring_force: bool,
    /// Size of the ring's blocks, in which the kernel hands packets over: a power of two, raised to what holds the largest packet
    /// [default: 1M, less in a small ring and in weir firewall]
    #[arg(help_heading = LIVE, long, value_name = "SIZE", value_parser = parse_size)]
    pub block: Option<u64>,
    /// How the kernel shares packets out to the workers: by flow, by processor, by queue of the card
    #[arg(help_heading = LIVE, long, default_value = "hash")]
    pub fanout: FanoutArg,
    /// Clock that stamps the packets; that of the hardware where the card offers it
    #[arg(help_heading = LIVE, long, default_value = "software")]
    pub time_stamps: StampsArg,
    /// Let the kernel hand over all packets, and match the expression here alone
    #[arg(help_heading = LIVE, long)]
    pub no_kernel_filter: bool,
    /// Wait until the interface is there and up
    #[arg(help_heading = LIVE, long)]
    pub wait: bool,
    /// af_xdp: where the program that takes packets runs [auto: native where the driver has it]
    #[arg(help_heading = LIVE, long, value_name = "MODE", default_value = "auto", hide_possible_values = true)]
    pub xdp_mode: XdpModeArg,
    /// af_xdp: whether the card writes into our memory itself [auto: if it can]
    #[arg(help_heading = LIVE, long, value_name = "WHEN", default_value = "auto", hide_possible_values = true)]
    pub zero_copy: ZeroCopyArg,
    /// af_xdp: pages of the memory for packets: auto, hugetlb, hugetlb-1g, thp, virtual
    #[arg(help_heading = LIVE, long, value_name = "POLICY", default_value = "auto")]
    pub ring_pages: Policy,
    /// af_xdp, dpdk: never sleep, poll
    #[arg(help_heading = LIVE, long)]
    pub busy_poll: bool,
    /// Whose packets may be taken.
    #[command(flatten)]
    pub taking: TakeArgs,
}

/// What confines the process before packets are parsed.
#[derive(Args, Clone, Debug)]
pub struct WallArgs {
    /// As root, become USER once interfaces and ports are open: files are written with the rights of USER. Without it, sudo makes
    /// that the user who called it; root stays root
    #[arg(short = 'Z', long = "user", value_name = "USER")]
    pub user: Option<String>,
}

/// Where an XDP program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum XdpModeArg {
    /// Native where the driver has it, else generic
    Auto,
    /// In the driver
    Native,
    /// In the kernel's general code
    Generic,
}

/// Whether a card writes into our memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ZeroCopyArg {
    /// If it can
    Auto,
    /// The kernel copies
    Never,
    /// It does, or nothing is captured
    Force,
}

/// Which packets of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DirectionArg {
    /// What it receives
    In,
    /// What it sends
    Out,
    /// Both
    Inout,
}

/// Which worker gets a packet of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FanoutArg {
    /// By flow, both directions together
    Hash,
    /// By the processor that receives it
    Cpu,
    /// By the queue of the card
    Queue,
}

/// Whose clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StampsArg {
    /// The kernel's
    Software,
    /// The card's, where it stamps all packets
    Hardware,
}

/// A list of processors; a type of its own, since `Vec` means repetition to the parser.
#[derive(Clone, Debug)]
pub struct Cpus(pub Vec<usize>);

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

const MEASURE_EXAMPLES: &str = "\
Examples:
  weir measure trace.pcap                                 the ten largest flows, by packets
  weir measure trace.pcap --key src --by bytes --top 20   who sends most
  weir measure trace.pcap --key src/24 --key dport        several keys in one pass
  weir measure trace.pcap --window 1s --json              one object per second, then the summary
  weir measure trace.pcap --filter 'udp port 53'          only what matches a tcpdump expression
  weir measure rot.pcap* --window 1s                      rotated files, merged by time
  weir measure trace.pcap --window 10s --changers 5       what grew and shrank most between windows
  weir measure trace.pcap --sketch exact --memory 256M    a table without error, if all flows fit
  weir measure trace.pcap --filter tcp -w tcp.pcapng      and a copy of what is measured, in the same pass
  zcat trace.pcap.gz | weir measure -                     from a pipe
  sudo weir measure eth0 --window 1s                      an interface, once a second, until Ctrl-C
  sudo weir measure eth0 --window 1s -w all.pcapng -C 1G -W 8 --split dns='port 53'

Keys: 5tuple, src, dst, pair, sport, dport, proto, src/24, dst/48 and other prefixes; they are directional.
conversation counts both directions of a 5-tuple as one.

Every figure carries a bound: the true value lies between `lower` and `upper`. Bounds of `exact` and `heavy` always
hold; those of `cms` hold with the stated confidence. Bounds are about the packets that were measured; loss is shown beside them.
Below each table a line says how many packets are outside it, and how many any key outside may have at most.
Numbers of flows, sources and destinations are counted up to 1024 and then estimated (+- 1.6 % at 95 %), over hashes with a
seed that is drawn anew for each run: nobody can make traffic that bends them.
Packets that the kernel dropped for want of room count in the window that the capture had reached when weir saw the kernel's figure.

With --window a time stamp that jumps (an hour off, live ten seconds, apart from --late) is
believed once 32 packets that came one after the other agree; else its packet is counted where it
came, and as `jumped`. A packet without a stamp counts where it came. A window may have several
results: further ones have a `revision` (1, 2 ...) and are added to the first.

Exit codes:
  0  done
  1  the input or output failed; what was good was measured
  2  the command is wrong; nothing was done";

impl FilterArgs {
    /// Whether SIGHUP changes the filter, because it or its sets come from files.
    pub fn reloads(&self) -> bool {
        self.filter_file.is_some() || !self.names.set.is_empty()
    }
}

/// `weir measure`
#[derive(Args, Debug)]
#[command(after_help = fitted(MEASURE_EXAMPLES))]
pub struct MeasureArgs {
    /// Capture files, plain or compressed (gzip, zstd, lz4); - is standard input; or interfaces: eth0, any for all of them,
    /// af_packet:eth0 where a file has that name too, af_xdp:eth0 (faster; this host does not get what is captured),
    /// dpdk:DEVICE
    #[arg(value_name = "SOURCE", required = true)]
    pub sources: Vec<Name>,

    /// Measure only packets that match this tcpdump expression
    #[arg(help_heading = PACKETS, long, value_name = "EXPR", default_value = "", hide_default_value = true)]
    pub filter: String,
    /// Take that expression from FILE (# begins a comment); SIGHUP has it read again, and packets that come from then on are
    /// judged by the new one
    #[arg(help_heading = PACKETS, short = 'F', long, value_name = "FILE", conflicts_with = "filter")]
    pub filter_file: Option<Name>,
    /// Look inside GRE, IP in IP, VXLAN, GENEVE, GTP-U and MPLS over IP for the addresses and ports; --filter sees the packet
    /// around them all the same (weir filter --inner judges the packet inside)
    #[arg(help_heading = PACKETS, long)]
    pub inner: bool,
    #[command(flatten)]
    pub names: NameArgs,
    #[command(flatten)]
    pub judging: RulesArgs,

    /// What to count by; may be given several times
    #[arg(help_heading = ANSWER, long, value_name = "KEY", default_values_t = Config::default().keys)]
    pub key: Vec<KeyKind>,
    /// What makes a flow large
    #[arg(help_heading = ANSWER, long, default_value = "packets")]
    pub by: ByArg,
    /// Rows of a table
    #[arg(help_heading = ANSWER, long, value_name = "N", default_value_t = 10)]
    pub top: usize,
    /// One answer per window of packet time: 500ms, 10s, 5m
    #[arg(help_heading = ANSWER, long, value_name = "T", value_parser = parse_time)]
    pub window: Option<Duration>,
    /// How long a window waits for late packets: until a packet comes whose time is T after the window's end, or later; live,
    /// until T has passed. At most 64 windows are open at once. Packets that come later are a further result of their window;
    /// live they are dropped as late [default: 1s, or the window if that is shorter; live 200ms]
    #[arg(help_heading = ANSWER, long, value_name = "T", value_parser = parse_time, requires = "window")]
    pub late: Option<Duration>,
    /// The N keys whose figures changed most since the window before
    #[arg(help_heading = ANSWER, long, value_name = "N", default_value_t = 0, hide_default_value = true, requires = "window")]
    pub changers: usize,
    /// JSON: one object, or one per window and then the summary
    #[arg(help_heading = ANSWER, long)]
    pub json: bool,
    /// Times in UTC instead of local time
    #[arg(help_heading = ANSWER, long)]
    pub utc: bool,

    /// Where to write what is measured.
    #[command(flatten)]
    pub output: OutputArgs,

    /// Table that counts the keys
    #[arg(help_heading = COUNTERS, long, default_value = "heavy")]
    pub sketch: SketchArg,
    /// Memory of each table, in bytes (k, M, G: binary): there is one for each key, for each worker, for each open window
    #[arg(help_heading = COUNTERS, long, value_name = "SIZE", default_value = "4M", value_parser = parse_size)]
    pub memory: u64,
    /// Pages of that memory: auto, hugetlb, hugetlb-1g, thp, contiguous, virtual
    #[arg(help_heading = COUNTERS, long, value_name = "POLICY", default_value = "auto")]
    pub pages: Policy,
    /// Seed of the hash functions [default: drawn anew, so that nobody can aim collisions]
    #[arg(help_heading = COUNTERS, long)]
    pub seed: Option<u64>,

    /// Merge the files by packet time instead of reading them one after another; with --window that is the default, unless a
    /// named pipe is among them
    #[arg(help_heading = SOURCES, long)]
    pub merge: bool,
    /// With --window: read the files one after another, in the order given
    #[arg(help_heading = SOURCES, long, conflicts_with_all = ["merge", "sort"])]
    pub no_merge: bool,
    /// Put the packets of all files in the order of time first, whatever order the files have: with up to 256 MiB of memory
    /// (at most a quarter of what is free), the rest in temporary files in TMPDIR
    #[arg(help_heading = SOURCES, long, conflicts_with = "follow")]
    pub sort: bool,
    /// Go on at the end of the file and wait for more, and for another file of its name, until interrupted
    #[arg(help_heading = SOURCES, long)]
    pub follow: bool,
    /// Decode zstd data that needs this much memory for its window (of zstd --long=N: 2 to the power of N)
    #[arg(help_heading = SOURCES, long, value_name = "SIZE", default_value = "128M", value_parser = parse_zstd_window)]
    pub zstd_window: u64,
    /// Stop after this much time: 500ms, 10s, 5m
    #[arg(help_heading = SOURCES, long, value_name = "T", value_parser = parse_time)]
    pub duration: Option<Duration>,
    /// How to capture.
    #[command(flatten)]
    pub live: LiveArgs,

    /// Threads that measure [default: one per core]
    #[arg(help_heading = WORK, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub workers: Option<u16>,
    /// Bind the threads to these processors: 0,2-3
    #[arg(help_heading = WORK, long, value_name = "LIST", value_parser = cpus)]
    pub cpus: Option<Cpus>,
    /// Packets that are handled at once
    #[arg(help_heading = WORK, long, value_name = "N", default_value_t = default_batch(), value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub batch: u16,
    /// Who hands packets to the workers
    #[arg(help_heading = WORK, long, default_value = "auto")]
    pub design: DesignArg,
    /// With async and sync: which worker gets a packet [default: flow]
    #[arg(help_heading = WORK, long)]
    pub distribute: Option<DistributeArg>,
    /// One sketch per worker, merged when asked, or one for all
    #[arg(help_heading = WORK, long, default_value = "separate")]
    pub state: StateArg,
    /// Say on standard error how the work was done: accounting, memory, time per packet
    #[arg(help_heading = WORK, long)]
    pub stats: bool,
    /// What confines the process.
    #[command(flatten, next_help_heading = WORK)]
    pub walls: WallArgs,
}

impl MeasureArgs {
    /// Whether SIGHUP changes the filter, because it or its sets come from files.
    pub fn reloads(&self) -> bool {
        self.filter_file.is_some() || !self.names.set.is_empty()
    }
}

fn default_batch() -> u16 {
    Settings::default()
        .batch
        .try_into()
        .expect("a batch is small")
}

/// What makes a flow large.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ByArg {
    /// Packets
    Packets,
    /// Bytes on the wire
    Bytes,
}

/// How to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SketchArg {
    /// The largest keys, with bounds that always hold
    Heavy,
    /// Every key, as long as there is memory
    Exact,
    /// Count-Min, with a heavy table beside it to name the keys
    Cms,
    /// Count-Min with conservative update: closer, never lower
    CmsConservative,
}

/// Who hands packets to the workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DesignArg {
    /// rss where the source can be split, else async
    Auto,
    /// Each worker owns slices of the file
    Rss,
    /// A distributor feeds a ring per worker
    Async,
    /// A distributor hands out a batch and waits for all
    Sync,
}

/// Which worker gets a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DistributeArg {
    /// Both directions of a flow go to one worker
    Flow,
    /// All to one destination address go to one worker
    Address,
    /// Any worker
    Random,
}

/// Whose the sketches are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StateArg {
    /// Each worker has its own
    Separate,
    /// One for all, with atomic updates or locks
    Shared,
}

const INFO_EXAMPLES: &str = "\
Examples:
  weir info trace.pcap
  weir info *.pcapng --json";

/// `weir info`
#[derive(Args, Debug)]
#[command(after_help = fitted(INFO_EXAMPLES))]
pub struct InfoArgs {
    /// Capture files, plain or compressed; - is standard input
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<Name>,
    /// One JSON object per file
    #[arg(long)]
    pub json: bool,
    /// Times in UTC instead of local time
    #[arg(long)]
    pub utc: bool,
    /// Threads that read a file [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub workers: Option<u16>,
    /// Decode zstd data that needs this much memory for its window (of zstd --long=N: 2 to the power of N)
    #[arg(long, value_name = "SIZE", default_value = "128M", value_parser = parse_zstd_window)]
    pub zstd_window: u64,
    /// What confines the process.
    #[command(flatten)]
    pub walls: WallArgs,
}

const GENERATE_EXAMPLES: &str = "\
Examples:
  weir generate demo.pcap                          a million packets of Internet-like sizes
  weir generate demo.pcap --packets 8000000 --sizes 60 --seed 7
  weir generate demo.pcapng --truth                and print how many match which expression
  weir generate demo.pcap --talkers 10             and print the ten largest flows
  sudo weir generate af_packet:eth1 --rate 100000  send them in real time, for 60 s or until Ctrl-C
  sudo weir generate af_xdp:eth1:0 --rate max      as fast as they go
  weir generate null                               how fast they are made
  weir generate mix.pcap --mix 3 --table mix.txt   trains of packets, and permissions for weir firewall
  sudo weir generate inject:eth1 --sizes 60        as if eth1 received them: what captures there can take

An interface sends for 60 s, unless --packets, --duration or --forever says otherwise. One with the default route or the address of
this login, or that is a port of a bridge, sends only with --yes-send IF.

Ports: af_packet:IF, af_xdp:IF[:QUEUE] and dpdk:DEVICE send; null throws away (./null is a file). Packets leave at the times
that a file of the same options holds, never earlier; a port that is slower gets them as fast as it takes them.

inject:IF has the kernel run copies of one UDP datagram, from 10.1.x.x to 198.18.0.1, through the receive path of IF: a load
that no sender on this machine reaches, to test captures with. A copy has its number and the time (ns since boot) in its
first 16 bytes of payload, both big-endian, and is of flow NUMBER modulo FLOWS. --seed and --zipf do nothing here.

The same seed and options make the same bytes everywhere.

Exit codes:
  0  done, or interrupted
  1  the output failed, or packets were refused; what was sent before is counted
  2  the command is wrong; nothing was done";

/// How fast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    /// Packets per second.
    Of(u64),
    /// As fast as possible.
    Max,
}

fn rate(text: &str) -> Result<Rate, String> {
    match text {
        "max" => Ok(Rate::Max),
        _ => text
            .parse()
            .map(Rate::Of)
            .map_err(|_| format!("'{text}' is no rate: write packets per second, or max")),
    }
}

/// What destinations of a mix do with sources that no change names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MixDefault {
    /// They accept them
    Accept,
    /// They refuse them: fewer packets pass, and less work is done
    Refuse,
}

/// `weir generate`
#[derive(Args, Debug)]
#[command(after_help = fitted(GENERATE_EXAMPLES))]
pub struct GenerateArgs {
    /// File to write: pcapng, or pcap if its name ends in .pcap or .cap; - is standard output. Or a port to send by:
    /// af_packet:IF, af_xdp:IF[:QUEUE], dpdk:DEVICE, null, inject:IF; see below
    #[arg(value_name = "SINK")]
    pub sink: Name,
    /// Packets (k, M, G: binary, so that 1M is 1 048 576) [default: 1000000; for an interface those of --duration]
    #[arg(long, value_parser = parse_size)]
    pub packets: Option<u64>,
    /// For interfaces: end after this time, as 90s, 5m [default: 60s, unless --packets is given]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub duration: Option<Duration>,
    /// For interfaces: send until interrupted
    #[arg(long, conflicts_with_all = ["packets", "duration"])]
    pub forever: bool,
    /// Who may be sent to.
    #[command(flatten)]
    pub sending: SendArgs,
    /// Bytes of the disk that stay free: the file grows no further [default: 1G, or a twentieth of the disk if that is less]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub reserve: Option<u64>,
    /// Seed of all choices
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Frame sizes without FCS: mwn (an Internet uplink), uniform, or a number of bytes [default: mwn; 60 for inject]
    #[arg(long)]
    pub sizes: Option<Sizes>,
    /// Flows
    #[arg(long, default_value_t = 100_000)]
    pub flows: u64,
    /// Exponent of the Zipf distribution of packets over flows
    #[arg(long, default_value_t = 1.1)]
    pub zipf: f64,
    /// Mean rate, packets per second: in packet time for a file, in real time for a port; max: as fast as the port takes
    /// them [default: 1000000; max for null and inject]
    #[arg(long, value_name = "PPS", value_parser = rate)]
    pub rate: Option<Rate>,
    /// The data packets of mix N, 1 to 8, of the multithreaded packet filter instead: datagrams in 10.0.0.0/16; a serial program
    /// knows which of them its permissions let pass. Mix 8 needs 600 MB and ten seconds
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=8), conflicts_with_all = ["sizes", "flows", "zipf", "talkers"])]
    pub mix: Option<u8>,
    /// What destinations do with sources that no change of the mix names
    #[arg(long, value_name = "WHAT", default_value = "accept", requires = "mix")]
    pub mix_default: MixDefault,
    /// Make the changes of the mix too: control packets to UDP port 6633, signed by the first key of FILE; without it they are left out
    #[arg(long, value_name = "FILE", requires = "mix")]
    pub control_key: Option<Name>,
    /// Write the permissions before the first packet to FILE, as weir firewall --table reads them
    #[arg(long, value_name = "FILE", requires = "mix")]
    pub table: Option<Name>,
    /// Print `PACKETS BYTES EXPRESSION` for expressions whose answers the generator knows; of a mix, for what passes and what does not
    #[arg(long)]
    pub truth: bool,
    /// Print `PACKETS BYTES PROTOCOL SOURCE PORT DESTINATION PORT` of the N flows with most packets
    #[arg(long, value_name = "N", conflicts_with = "truth")]
    pub talkers: Option<usize>,
    /// What confines the process.
    #[command(flatten)]
    pub walls: WallArgs,
}

const DOCTOR_EXAMPLES: &str = "\
Examples:
  weir doctor
  weir doctor --json | jq '.interfaces.eth0.value.offloads'

It changes nothing and needs no privilege; what it cannot find out is unknown. The exit code is 0.";

/// `weir doctor`
#[derive(Args, Debug)]
#[command(after_help = fitted(DOCTOR_EXAMPLES))]
pub struct DoctorArgs {
    /// The same facts as one JSON object
    #[arg(long)]
    pub json: bool,
}

const BENCH_EXAMPLES: &str = "\
Examples:
  weir bench                        which comparisons there are
  weir bench sketch                 sketches and tables against public libraries
  weir bench sketch --size smoke    the same, small: whether it works
  weir bench sketch --help          all options

The work is done by weir-bench, a program of its own, which `make bench` builds.";

/// `weir bench`
#[derive(Args, Debug)]
#[command(after_help = fitted(BENCH_EXAMPLES))]
pub struct BenchArgs {
    /// Name of the comparison and its options, for weir-bench
    #[arg(
        value_name = "NAME",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub arguments: Vec<OsString>,
}
