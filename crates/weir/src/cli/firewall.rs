//! Arguments of `weir firewall`.

use super::{ANSWER, FILES, PACKETS, SOURCES, WORK, WallArgs, fitted};
use crate::numbers::parse_zstd_window;
use clap::{Args, Subcommand, ValueEnum};
use weir_engine::name::Name;

const USAGE: &str = "weir firewall [OPTIONS] [--rules FILE] [--table FILE] IN OUT
       weir firewall check [OPTIONS] RULES CAPTURE...";

const EXAMPLES: &str = "\
Examples:
  weir firewall check rules.txt trace.pcap         what each rule would do, without forwarding
  weir firewall trace.pcap clean.pcapng --rules rules.txt
                                                   keep what the rules pass
  weir firewall trace.pcap clean.pcapng --rules rules.txt -w denied.pcapng --what denied
                                                   and the rest in another file

A rules file has one rule a line; the first that matches decides:
  set banned 192.0.2.0/24 2001:db8:bad::/48        a set of addresses, prefixes and ranges
  set banned file more.txt                         and more of them, one a line
  drop src $banned                                 a text behind # belongs to its rule
  pass tcp dst 10.0.0.0/8 dport 22,80-89 flags S/SA
  reject udp dport 53
  count vlan 7                                     counts, and goes on
  drop expr 'icmp and len > 1000'                  a tcpdump expression
  default pass                                     all other IP packets

A table file has one change of permissions a line; a packet passes if its source is not banned and its destination accepts it:
  default accept                                   for all other destinations
  ban 192.0.2.7                                    no packet from it passes; unban takes it back
  refuse 10.0.0.5 from any
  accept 10.0.0.5 from 10.1.0.0/16,10.2.0.9

Conditions: src, dst, proto (or tcp, udp, icmp, icmp6 ...), sport, dport, flags, fragment, vlan, on INTERFACE, expr.
If a packet lacks a field that a rule names, as later fragments lack ports, drop and reject apply and pass does not.
ARP and other frames without IP pass, and so does IPv6 neighbor discovery: see non-ip, neighbors and malformed in the README.

Exit codes:
  0  done, or nobody reads the output any more
  1  the input or output failed; what was good was delivered
  2  the command or the rules are wrong; nothing was done";

const CHECK_EXAMPLES: &str = "\
Examples:
  weir firewall check rules.txt trace.pcap
  weir firewall check rules.txt *.pcapng --json
  echo 'drop tcp dport 23' | weir firewall check - trace.pcap";

/// `weir firewall`
#[derive(Args, Debug)]
#[command(after_help = fitted(EXAMPLES), override_usage = USAGE, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct FirewallArgs {
    /// What to do instead of forwarding.
    #[command(subcommand)]
    pub command: Option<FirewallCommand>,
    /// Capture file, plain or compressed; - is standard input
    #[arg(value_name = "IN", required = true)]
    pub source: Option<Name>,
    /// File for the packets that pass: pcapng, or pcap if its name ends in .pcap or .cap; - is standard output
    #[arg(value_name = "OUT", required = true)]
    pub sink: Option<Name>,
    /// The rules; - is standard input
    #[arg(help_heading = PACKETS, long, value_name = "FILE", required_unless_present = "table")]
    pub rules: Option<Name>,
    /// Write one more file, of the packets that --what says
    #[arg(help_heading = FILES, short = 'w', long = "write", value_name = "FILE", requires = "what")]
    pub write: Option<Name>,
    /// What goes to the file of -w
    #[arg(help_heading = FILES, long, requires = "write")]
    pub what: Option<What>,
    /// What `check` has too.
    #[command(flatten)]
    pub judging: JudgingArgs,
}

/// Work of `weir firewall` besides forwarding.
#[derive(Debug, Subcommand)]
pub enum FirewallCommand {
    /// Tell what each rule would do to the packets of capture files, without forwarding
    Check(CheckArgs),
}

/// `weir firewall check`
#[derive(Args, Debug)]
#[command(after_help = fitted(CHECK_EXAMPLES))]
pub struct CheckArgs {
    /// The rules; - is standard input
    #[arg(value_name = "RULES")]
    pub rules: Name,
    /// Capture files, plain or compressed; - is standard input
    #[arg(value_name = "CAPTURE", required = true)]
    pub sources: Vec<Name>,
    /// What forwarding has too.
    #[command(flatten)]
    pub judging: JudgingArgs,
}

/// How packets are judged, and what is told of it.
#[derive(Args, Debug)]
pub struct JudgingArgs {
    /// Permission table, asked before the rules: banned sources, and the sources that a destination accepts
    #[arg(help_heading = PACKETS, long, value_name = "FILE")]
    pub table: Option<Name>,
    /// Judge the packet inside GRE, IP in IP, VXLAN, GENEVE, GTP-U and MPLS over IP, the innermost one, and not the packet around it
    #[arg(help_heading = PACKETS, long)]
    pub inner: bool,
    /// Name of an interface that has none in its file, for rules with `on`: a pcap file names no interface
    #[arg(help_heading = PACKETS, long, value_name = "NAME")]
    pub interface: Option<String>,
    /// Answer with one JSON object
    #[arg(help_heading = ANSWER, long)]
    pub json: bool,
    /// List rules that applied to no packet too, also of a long list
    #[arg(help_heading = ANSWER, long)]
    pub all: bool,
    /// Decode zstd data that needs this much memory for its window (of zstd --long=N: 2 to the power of N)
    #[arg(help_heading = SOURCES, long, value_name = "SIZE", default_value = "128M", value_parser = parse_zstd_window)]
    pub zstd_window: u64,
    /// Threads that read the files [default: one per core]
    #[arg(help_heading = WORK, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub workers: Option<u16>,
    /// What confines the process.
    #[command(flatten)]
    pub walls: WallArgs,
}

/// Packets for the file of `-w`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum What {
    /// Packets that pass
    Passed,
    /// Packets that are dropped or rejected
    Denied,
}
