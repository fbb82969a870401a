//! Arguments of `weir filter`.

use super::*;
use std::net::IpAddr;

const FILTER_USAGE: &str = "weir filter [OPTIONS] EXPR SOURCE...
       weir filter [OPTIONS] --filter-file FILE SOURCE...
       weir filter -D";

const FILTER_EXAMPLES: &str = "\
Examples:
  weir filter 'udp port 53' trace.pcap  print one line per packet
  weir filter 'udp port 53' trace.pcap --count  print only the number
  weir filter 'udp port 53' trace.pcap -w dns.pcapng  keep them
  weir filter tcp trace.pcap --format csv --columns time,src,dst,dport,tcp_flags  for other programs
  sudo weir filter 'udp port 53' eth0 -w dns.pcapng  capture until Ctrl-C
  weir filter '' big.pcapng.zst -w big.pcap  convert: '' matches every packet
  weir filter tcp a.pcap b.pcap --merge -w -  merge two files, to another program
  weir filter -e -X icmp - <trace.pcap  link header, hex and ASCII, from a pipe
  sudo weir filter tcp eth0 -w af_packet:eth1  send matching packets on another interface
  weir filter '' trace.pcap --split web='tcp port 443' --split dns='port 53'  two files in one pass
  sudo weir filter -F watched.txt eth0 -w seen.pcapng  read the expression from a file; SIGHUP reads it again
  weir filter 'src @banned' trace.pcap --set banned=banned.txt  up to a million addresses and prefixes

Expressions are tcpdump's (man pcap-filter, weir help expressions), compiled by libpcap itself.

Exit codes:
  0  done, or the reader of the output closed it
  1  the input or output failed; earlier packets were delivered
  2  the command is wrong; nothing was done";

/// `weir filter`
#[derive(Args, Debug)]
#[command(after_help = FILTER_EXAMPLES, override_usage = FILTER_USAGE)]
pub struct FilterArgs {
    /// tcpdump expression; '' matches every packet
    #[arg(value_name = "EXPR", required_unless_present_any = ["list_interfaces", "read", "interface", "filter_file"])]
    pub expression: Option<String>,
    /// Capture files or interfaces; - is standard input.
    ///
    /// Files are plain or compressed (gzip, zstd, lz4). Interfaces: eth0, any for all of them,
    /// af_packet:eth0 if a file has that name as well, af_xdp:eth0 (faster; this host does not get
    /// the captured packets), dpdk:DEVICE; netns:NAME/eth0 and pid:NUMBER/eth0 in the network namespace
    /// of that name, or of that process. generate:PROFILE makes packets.
    #[arg(value_name = "SOURCE", required_unless_present_any = ["list_interfaces", "read", "interface", "filter_file"])]
    pub sources: Vec<Name>,
    /// Read one more source, as in tcpdump
    #[arg(short = 'r', value_name = "SOURCE", hide = true)]
    pub read: Vec<Name>,
    /// Capture from INTERFACE, as in tcpdump
    #[arg(short = 'i', value_name = "INTERFACE", hide = true)]
    pub interface: Vec<String>,

    /// Read the expression from FILE, instead of EXPR.
    ///
    /// Text after # is a comment. SIGHUP reads FILE again; packets from then on are judged by the
    /// new expression.
    #[arg(help_heading = SELECT, short = 'F', long, value_name = "FILE")]
    pub filter_file: Option<Name>,
    /// Keep the packets that do not match
    #[arg(help_heading = SELECT, long)]
    pub invert: bool,
    /// Whether the innermost packets are judged.
    #[command(flatten)]
    pub inside: InnerArgs,
    /// Stop after N matching packets
    #[arg(help_heading = SELECT, short = 'c', value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub stop_after: Option<u64>,
    /// Times of the packets.
    #[command(flatten)]
    pub times: TimeArgs,
    /// Duplicates.
    #[command(flatten)]
    pub dedup: DedupArgs,
    /// Names in the expressions.
    #[command(flatten)]
    pub names: NameArgs,
    /// Rules of a firewall.
    #[command(flatten)]
    pub judging: RulesArgs,

    /// Print only the number of matching packets
    #[arg(help_heading = ANSWER, long, conflicts_with_all = ["write", "link_header", "hex", "hex_ascii", "ascii", "verbose", "quiet", "absolute", "number"])]
    pub count: bool,
    /// Print the names that resolved to ADDRESS.
    ///
    /// They are in answers of DNS and in the first messages of TLS connections. Each has its number,
    /// and the first and the last time. The expression 'port 53' asks DNS alone.
    #[arg(help_heading = ANSWER, long, value_name = "ADDRESS", conflicts_with_all = ["count", "write", "split", "columns", "link_header", "hex", "hex_ascii", "ascii", "verbose", "quiet", "absolute", "number", "time", "nano"])]
    pub names_of: Option<IpAddr>,
    /// How to print them as lines.
    #[command(flatten)]
    pub lines: LineArgs,
    /// Print times in UTC instead of local time
    #[arg(help_heading = ANSWER, long)]
    pub utc: bool,
    /// Form of the answer.
    #[command(flatten)]
    pub format: FormatArgs,
    /// Databases of columns about addresses.
    #[command(flatten)]
    pub places: GeoArgs,

    /// Where to write them.
    #[command(flatten)]
    pub output: OutputArgs,

    /// Merge the sources in time order
    #[arg(help_heading = INPUT, long)]
    pub merge: bool,
    /// Sort the packets of all files by time.
    ///
    /// Sorting takes up to 256 MiB of memory (at most a quarter of the free memory), and temporary
    /// files in TMPDIR for the rest.
    #[arg(help_heading = INPUT, long, conflicts_with = "follow")]
    pub sort: bool,
    /// Wait for more at the end of the file.
    ///
    /// Rotated files are followed: another file of the same name goes on. Ctrl-C ends the run.
    #[arg(hide_short_help = true, help_heading = INPUT, long)]
    pub follow: bool,
    /// Allow zstd windows up to SIZE.
    ///
    /// A file compressed with zstd --long=N needs a window of 2 to the power of N bytes.
    #[arg(hide_short_help = true, help_heading = INPUT, long, value_name = "SIZE", default_value = "128M", value_parser = parse_zstd_window)]
    pub zstd_window: u64,
    /// Stop after this much time: 500ms, 10s, 5m
    #[arg(help_heading = INPUT, long, value_name = "T", value_parser = parse_time)]
    pub duration: Option<Duration>,
    /// List the network interfaces of this machine
    #[arg(help_heading = INPUT, short = 'D', long = "list-interfaces")]
    pub list_interfaces: bool,
    /// How to capture.
    #[command(flatten)]
    pub live: LiveArgs,

    /// Read a file with N threads [default: one per core]
    #[arg(help_heading = TUNING, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub workers: Option<u16>,
    /// Bind the threads to these processors: 0,2-3
    #[arg(help_heading = TUNING, long, value_name = "LIST", value_parser = cpus)]
    pub cpus: Option<Cpus>,
    /// Print on standard error how the work was done
    #[arg(help_heading = TUNING, long)]
    pub stats: bool,
    /// How it is controlled.
    #[command(flatten)]
    pub remote: ControlArgs,
    /// What confines the process.
    #[command(flatten)]
    pub walls: WallArgs,
}

impl FilterArgs {
    /// Whether the filter may change: by SIGHUP, because it or its sets come from files, or by requests.
    pub fn reloads(&self) -> bool {
        self.filter_file.is_some() || !self.names.set.is_empty() || self.remote.control.is_some()
    }
}
