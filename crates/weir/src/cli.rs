//! What a user can type. Parsing fills plain data and does nothing.

use crate::numbers::{parse_cpus, parse_rotation_size, parse_time};
use clap::{ArgAction, Args, Parser, Subcommand};
use std::time::Duration;
use weir_generator::Sizes;

/// weir answers questions about network captures: which packets match, how many, what is in a file.
#[derive(Debug, Parser)]
#[command(version, about = "weir answers questions about network captures", long_about = None, propagate_version = true, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show, keep, count or convert the packets that match a tcpdump expression
    Filter(FilterArgs),
    /// Say what capture files hold
    Info(InfoArgs),
    /// Write a capture file of synthetic traffic whose answers are known
    Generate(GenerateArgs),
}

const FILTER_USAGE: &str = "weir filter [OPTIONS] EXPR SOURCE...
       weir filter -D";

// Headings of the help page, in its order.
const PACKETS: &str = "Which packets";
const LINES: &str = "What to print";
const FILES: &str = "What to write";
const SOURCES: &str = "What to read";
const WORK: &str = "How to work";

const FILTER_EXAMPLES: &str = "\
Examples:
  weir filter 'udp port 53' trace.pcap                 one line per packet
  weir filter 'udp port 53' trace.pcap --count         only how many
  weir filter 'udp port 53' trace.pcap -w dns.pcapng   keep them
  weir filter '' big.pcapng.zst -w big.pcap            convert: an empty expression matches all
  weir filter tcp a.pcap b.pcap --merge -w -           two files by time, to another program
  weir filter -e -X icmp - <trace.pcap                 link header, hex and ASCII, from a pipe
  weir filter '' trace.pcap --split web='tcp port 443' --split dns='port 53'
                                                       web.pcapng and dns.pcapng in one pass

Expressions are tcpdump's (man pcap-filter), compiled by libpcap itself.

Exit codes:
  0  done, or nobody reads the output any more
  1  the input or output failed; what was good was delivered
  2  the command is wrong; nothing was done";

/// `weir filter`
#[derive(Args, Debug)]
#[command(after_help = FILTER_EXAMPLES, override_usage = FILTER_USAGE)]
pub struct FilterArgs {
    /// tcpdump expression; '' matches every packet
    #[arg(value_name = "EXPR", required_unless_present_any = ["list_interfaces", "read"])]
    pub expression: Option<String>,
    /// Capture files, plain or compressed (gzip, zstd, lz4); - is standard input
    #[arg(value_name = "SOURCE", required_unless_present_any = ["list_interfaces", "read"])]
    pub sources: Vec<String>,
    /// Accepted for tcpdump's sake: one more source
    #[arg(short = 'r', value_name = "SOURCE", hide = true)]
    pub read: Vec<String>,

    /// Keep the packets that do not match
    #[arg(help_heading = PACKETS, long)]
    pub invert: bool,
    /// Stop after N matching packets
    #[arg(help_heading = PACKETS, short = 'c', value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub stop_after: Option<u64>,
    /// Cut packets to SNAPLEN bytes where they are written or printed; the filter sees all of them (0: no cut)
    #[arg(help_heading = PACKETS, short = 's', value_name = "SNAPLEN", default_value_t = 0)]
    pub snaplen: u32,
    /// Let libpcap look up host names in the expression
    #[arg(help_heading = PACKETS, long)]
    pub resolve: bool,

    /// Print only how many packets match
    #[arg(help_heading = LINES, long, conflicts_with_all = ["write", "link_header", "hex", "hex_ascii"])]
    pub count: bool,
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
    /// Times in UTC instead of local time
    #[arg(help_heading = LINES, long)]
    pub utc: bool,
    /// One JSON object per packet and one for the summary; with --count only the summary
    #[arg(help_heading = LINES, long, conflicts_with = "write")]
    pub json: bool,
    /// Accepted for tcpdump's sake: addresses are never turned into names
    #[arg(short = 'n', action = ArgAction::Count, hide = true)]
    pub numeric: u8,

    /// Write the packets to FILE: pcapng, or pcap if its name ends in .pcap or .cap; - is standard output
    #[arg(help_heading = FILES, short = 'w', long = "write", value_name = "FILE")]
    pub write: Option<String>,
    /// Further outputs in the same pass: packets that match EXPR too go to the file NAME (.pcapng is added to a name
    /// without extension); with --count, one line `COUNT NAME` each
    #[arg(help_heading = FILES, long, value_name = "NAME=EXPR", value_parser = split)]
    pub split: Vec<(String, String)>,
    /// Write each packet out at once
    #[arg(help_heading = FILES, short = 'U', visible_short_alias = 'l')]
    pub unbuffered: bool,
    /// Begin a new file when the current one is larger than SIZE million bytes (k, M, G: binary units)
    #[arg(help_heading = FILES, short = 'C', value_name = "SIZE", requires = "write", value_parser = parse_rotation_size)]
    pub rotate_size: Option<u64>,
    /// Begin a new file every SECONDS of packet time; the name may hold strftime fields
    #[arg(help_heading = FILES, short = 'G', value_name = "SECONDS", requires = "write", value_parser = clap::value_parser!(u64).range(1..))]
    pub rotate_seconds: Option<u64>,
    /// With -C: reuse the names of COUNT files; with -G: stop after COUNT files
    #[arg(help_heading = FILES, short = 'W', value_name = "COUNT", requires = "write", value_parser = clap::value_parser!(u32).range(1..))]
    pub rotate_count: Option<u32>,

    /// Merge the sources by packet time instead of reading them one after another
    #[arg(help_heading = SOURCES, long)]
    pub merge: bool,
    /// Go on at the end of the file and wait for more, until interrupted
    #[arg(help_heading = SOURCES, long)]
    pub follow: bool,
    /// Stop after this much time: 500ms, 10s, 5m
    #[arg(help_heading = SOURCES, long, value_name = "T", value_parser = parse_time)]
    pub duration: Option<Duration>,
    /// List the network interfaces of this machine
    #[arg(help_heading = SOURCES, short = 'D', long = "list-interfaces")]
    pub list_interfaces: bool,

    /// Threads that read a file [default: one per core]
    #[arg(help_heading = WORK, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub workers: Option<u16>,
    /// Bind the threads to these processors: 0,2-3
    #[arg(help_heading = WORK, long, value_name = "LIST", value_parser = cpus)]
    pub cpus: Option<Cpus>,
    /// Say on standard error how the work was done
    #[arg(help_heading = WORK, long)]
    pub stats: bool,
}

/// A list of processors; a type of its own, since `Vec` means repetition to the parser.
#[derive(Clone, Debug)]
pub struct Cpus(pub Vec<usize>);

fn cpus(text: &str) -> Result<Cpus, String> {
    parse_cpus(text).map(Cpus)
}

fn split(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, expression)) if !name.is_empty() => Ok((name.to_owned(), expression.to_owned())),
        _ => Err(format!("'{text}' is not NAME=EXPR, for instance dns='udp port 53'")),
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
    /// Capture files, plain or compressed; - is standard input
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<String>,
    /// One JSON object per file
    #[arg(long)]
    pub json: bool,
    /// Times in UTC instead of local time
    #[arg(long)]
    pub utc: bool,
    /// Threads that read a file [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub workers: Option<u16>,
}

const GENERATE_EXAMPLES: &str = "\
Examples:
  weir generate demo.pcap                          a million packets of Internet-like sizes
  weir generate demo.pcap --packets 8000000 --sizes 60 --seed 7
  weir generate demo.pcapng --truth                and print how many match which expression

The same seed and options make the same bytes everywhere.";

/// `weir generate`
#[derive(Args, Debug)]
#[command(after_help = GENERATE_EXAMPLES)]
pub struct GenerateArgs {
    /// File to write: pcapng, or pcap if its name ends in .pcap or .cap; - is standard output
    #[arg(value_name = "SINK")]
    pub sink: String,
    /// Packets
    #[arg(long, default_value_t = 1_000_000)]
    pub packets: u64,
    /// Seed of all choices
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Frame sizes without FCS: mwn (an Internet uplink), uniform, or a number of bytes
    #[arg(long, default_value = "mwn")]
    pub sizes: Sizes,
    /// Flows
    #[arg(long, default_value_t = 100_000)]
    pub flows: u64,
    /// Exponent of the Zipf distribution of packets over flows
    #[arg(long, default_value_t = 1.1)]
    pub zipf: f64,
    /// Mean rate in packet time, packets per second
    #[arg(long, default_value_t = 1_000_000)]
    pub rate: u64,
    /// Print `PACKETS BYTES EXPRESSION` for expressions whose answers the generator knows
    #[arg(long)]
    pub truth: bool,
}
