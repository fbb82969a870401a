//! Arguments of `weir firewall`.

use super::{
    ANSWER, DistributeArg, FILES, LiveArgs, PACKETS, SOURCES, SendArgs, WORK, WallArgs, fitted,
};
use crate::numbers::{parse_size, parse_time, parse_zstd_window};
use clap::{Args, Subcommand, ValueEnum};
use std::time::Duration;
use weir_engine::name::Name;
use weir_firewall::CONNECTIONS;

const USAGE: &str = "weir firewall [OPTIONS] [--rules FILE] [--table FILE] IN OUT
       weir firewall check [OPTIONS] RULES CAPTURE...
       weir firewall translate RULESET.json
       weir firewall ctl COMMAND";

const EXAMPLES: &str = "\
Examples:
  weir firewall check rules.txt trace.pcap         what each rule would do, without forwarding
  weir firewall trace.pcap clean.pcapng --rules rules.txt
                                                   keep what the rules pass
  weir firewall trace.pcap clean.pcapng --rules rules.txt -w denied.pcapng --what denied
                                                   and the rest in another file
  sudo weir firewall eth0 eth1 --bidirectional --rules rules.txt
                                                   between two interfaces, both ways
  sudo weir firewall ctl block 192.0.2.7 --for 10m at once, on the one that runs; see weir firewall ctl --help
  nft -j list ruleset | weir firewall translate - >rules.txt
                                                   the rules of nftables for forwarded packets, as a rules file
  sudo weir firewall eth0 eth1 --rules rules.txt --control-port 6633 --control-key keys.txt
                                                   obey authentic packets to this UDP port among the data packets

A rules file has one rule a line; the first that matches decides:
  set banned 192.0.2.0/24 2001:db8:bad::/48        a set of addresses, prefixes and ranges
  set banned file more.txt                         and more of them, one a line
  drop src $banned                                 a text behind # belongs to its rule
  pass tcp dst 10.0.0.0/8 dport 22,80-89 flags S/SA
  reject udp dport 53
  count vlan 7                                     counts, and goes on
  drop udp dport 53 over 100/s per src             what comes faster than that from one address
  drop src 198.51.100.7 for 10m                    for ten minutes
  pass state established,related                   answers, and errors about them
  pass src 10.0.0.0/8 state new                    connections are made from here only
  drop expr 'icmp and len > 1000'                  a tcpdump expression
  default pass                                     all other IP packets

A table file has one change of permissions a line; a packet passes if its source is not banned and its destination accepts it:
  default accept                                   for all other destinations
  ban 192.0.2.7                                    no packet from it passes; unban takes it back
  refuse 10.0.0.5 from any
  accept 10.0.0.5 from 10.1.0.0/16,10.2.0.9

Conditions: src, dst, proto (or tcp, udp, icmp, icmp6 ...), sport, dport, flags, type, mss, fragment, extension,
routing, vlan, on INTERFACE, to INTERFACE, expr, state, limit RATE, over RATE, hour, for TIME.
If a packet lacks a field that a rule names, as later fragments lack ports, drop and reject apply and pass does not.
ARP and other frames without IP pass, and so does IPv6 neighbor discovery: see non-ip, neighbors and malformed in docs/reference/firewall-rules.md.

Exit codes:
  0  done, or nobody reads the output any more
  1  the input or output failed; what was good was delivered
  2  the command or the rules are wrong; nothing was done";

const CHECK_USAGE: &str = "weir firewall check [OPTIONS] RULES CAPTURE...
       weir firewall check [OPTIONS] --from-nft FILE CAPTURE...";

const CHECK_EXAMPLES: &str = "\
Examples:
  weir firewall check rules.txt trace.pcap
  weir firewall check rules.txt *.pcapng --json
  echo 'drop tcp dport 23' | weir firewall check - trace.pcap
  weir firewall check --from-nft ruleset.json trace.pcap
                                                   what a ruleset of nftables would do; its lines are those of
                                                   weir firewall translate ruleset.json";

const TRANSLATE_EXAMPLES: &str = "\
Examples:
  nft -j list ruleset | weir firewall translate -  print the rules
  weir firewall translate ruleset.json >rules.txt  keep them, to look at and to change
  weir firewall check --from-nft ruleset.json trace.pcap
                                                   use them without a file in between

Translated are the chains of type filter at the hook forward, of families ip, ip6 and inet, with the chains that they jump to: addresses,
protocols, ports, TCP flags, types of ICMP, ct state, iifname, sets, verdict maps, limits in packets. All else is named on standard
error, with its table, chain and rule, and stands as a comment where its line would be.

Where a packet lacks a field that a rule names (later fragments, cut headers), drop applies and pass does not; nftables may pass it.

Exit codes:
  0  all was translated
  1  a part was not, and is named
  2  the text is no ruleset with a chain for forwarded packets; nothing was printed";

/// `weir firewall`
#[derive(Args, Debug)]
#[command(after_help = fitted(EXAMPLES), override_usage = USAGE, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct FirewallArgs {
    /// What to do instead of forwarding.
    #[command(subcommand)]
    pub command: Option<FirewallCommand>,
    /// Interface (eth0, af_packet:eth0, af_xdp:eth0, dpdk:DEVICE), or capture file, plain or compressed; - is standard input
    #[arg(value_name = "IN", required = true)]
    pub source: Option<Name>,
    /// Interface, or file for the packets that pass: pcapng, or pcap if its name ends in .pcap or .cap; - is standard output
    #[arg(value_name = "OUT", required = true)]
    pub sink: Option<Name>,
    /// The rules; - is standard input
    #[arg(help_heading = PACKETS, long, value_name = "FILE", required_unless_present_any = ["table", "control_port", "from_nft"])]
    pub rules: Option<Name>,
    /// The rules, as nft -j list ruleset prints them, in place of --rules; see weir firewall translate --help
    #[arg(help_heading = PACKETS, long, value_name = "FILE", conflicts_with = "rules")]
    pub from_nft: Option<Name>,
    /// Engine that judges packets while permissions change; sharded unless you know why
    #[arg(help_heading = ENGINE, long, default_value = "sharded")]
    pub engine: EngineArg,
    /// Verdicts that each worker of --engine striped remembers, for each of IPv4 and IPv6 [default: 4096]
    #[arg(help_heading = ENGINE, long, value_name = "ENTRIES", value_parser = clap::value_parser!(u32).range(4..=1 << 24))]
    pub cache: Option<u32>,
    /// Write one more file, of the packets that --what says
    #[arg(help_heading = FILES, short = 'w', long = "write", value_name = "FILE", requires = "what")]
    pub write: Option<Name>,
    /// Bytes of the disk that stay free: files grow no further [default: 1G, or a twentieth of the disk if that is less]
    #[arg(help_heading = FILES, long, value_name = "SIZE", value_parser = parse_size)]
    pub reserve: Option<u64>,
    /// What goes to the file of -w
    #[arg(help_heading = FILES, long, requires = "write")]
    pub what: Option<What>,
    /// Forward from OUT to IN too, by the same rules
    #[arg(help_heading = PORTS, long)]
    pub bidirectional: bool,
    /// Which of several --workers gets a packet of af_packet: flow keeps the order of flows, address that of packets to one address, random none
    #[arg(help_heading = PORTS, long, value_name = "RULE", default_value = "flow", hide_possible_values = true, conflicts_with = "fanout")]
    pub distribute: DistributeArg,
    /// What happens to packets that come faster than they are judged: closed: those without room are lost; open: they pass unjudged
    #[arg(help_heading = PORTS, long, value_name = "WAY", default_value = "closed", hide_possible_values = true)]
    pub fail: Fail,
    /// Leave the packets that arrive at IN to this host too; by default no one else gets what is forwarded or denied
    #[arg(help_heading = PORTS, long)]
    pub tap: bool,
    /// Control socket [default: one in /run/weir or $XDG_RUNTIME_DIR/weir, named after IN and OUT]
    #[arg(help_heading = PORTS, long, value_name = "PATH")]
    pub control: Option<Name>,
    /// File that keeps bans, which come back at the next start; its directory is closed to other users [default: one in $STATE_DIRECTORY,
    /// /var/lib/weir or the user's state directory, named after IN, OUT and --control]
    #[arg(help_heading = PORTS, long, value_name = "FILE")]
    pub state: Option<Name>,
    /// Begin without the bans of the run before; their file stays, with .old behind its name
    #[arg(help_heading = PORTS, long)]
    pub no_restore: bool,
    /// Obey control packets: authentic UDP datagrams to this port, wherever they go; nothing to it is forwarded
    #[arg(help_heading = CONTROL, long, value_name = "PORT", requires = "control_key", value_parser = clap::value_parser!(u16).range(1..))]
    pub control_port: Option<u16>,
    /// Keys of controllers: lines NUMBER KEY, the key in hexadecimal, 16 bytes at least; others may not read the file
    #[arg(help_heading = CONTROL, long, value_name = "FILE", requires = "control_port")]
    pub control_key: Option<Name>,
    /// File that keeps the sequence numbers of control packets, so that none is obeyed twice [default: the keys' name with .state;
    /// none for a capture file]
    #[arg(help_heading = CONTROL, long, value_name = "PATH", requires = "control_port")]
    pub control_state: Option<Name>,
    /// End after this time, as 60s, 5m, unless weir firewall ctl confirm comes before: whoever cut off his own login gets it back
    #[arg(help_heading = PORTS, long, value_name = "TIME", value_parser = parse_time)]
    pub confirm: Option<Duration>,
    /// End after this time, as 90s, 5m, 1h
    #[arg(help_heading = PORTS, long, value_name = "TIME", value_parser = parse_time)]
    pub duration: Option<Duration>,
    /// How packets are captured.
    #[command(flatten)]
    pub live: LiveArgs,
    /// Who may be sent to.
    #[command(flatten)]
    pub sending: SendArgs,
    /// What `check` has too.
    #[command(flatten)]
    pub judging: JudgingArgs,
}

/// Heading of the options about the engine.
const ENGINE: &str = "Engine";

/// Engine that judges packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum EngineArg {
    /// Rules and table, a copy for each worker: no packet waits for a lock
    Sharded,
    /// The table alone, one for all workers, in stripes with a lock each: less memory for large tables
    Striped,
}

/// Heading of the options about control packets.
const CONTROL: &str = "Control packets";

/// Heading of the options between interfaces.
const PORTS: &str = "Between interfaces";

/// Work of `weir firewall` besides forwarding.
#[derive(Debug, Subcommand)]
pub enum FirewallCommand {
    /// Tell what each rule would do to the packets of capture files, without forwarding
    Check(CheckArgs),
    /// Print the rule list that means the same as a ruleset of nftables
    Translate(TranslateArgs),
    /// Control a firewall that runs between interfaces
    Ctl(CtlArgs),
}

/// `weir firewall translate`
#[derive(Args, Debug)]
#[command(after_help = fitted(TRANSLATE_EXAMPLES))]
pub struct TranslateArgs {
    /// The output of nft -j list ruleset; - is standard input
    #[arg(value_name = "RULESET.json")]
    pub ruleset: Name,
}

const CTL_EXAMPLES: &str = "\
Examples:
  weir firewall ctl block 192.0.2.7                no packet from it passes
  weir firewall ctl block 192.0.2.0/28 --for 10m   a prefix, for ten minutes
  weir firewall ctl accept 192.0.2.7               take the ban back
  weir firewall ctl refuse 10.0.0.5 --from any     10.0.0.5 gets no packets
  weir firewall ctl accept 10.0.0.5 --from 10.1.0.0/16
  weir firewall ctl reload                         read the rules again, as SIGHUP does
  weir firewall ctl reload --confirm 60s           and take them back, unless this comes within a minute:
  weir firewall ctl confirm
  weir firewall ctl list                           what is banned, for how long, and who asked
  weir firewall ctl stats
  weir firewall ctl watch
  weir firewall ctl --udp 10.0.0.9:6633 --key keys.txt --id 7 block 192.0.2.7 --for 10m
                                                   by a control packet, to an address behind the firewall

A change is in force on every worker when the command ends, and its bans come back after a restart. With --udp one packet is sent, which
nothing acknowledges; it must pass the firewall within 30 s by both clocks.";

/// `weir firewall ctl`
#[derive(Args, Debug)]
#[command(after_help = fitted(CTL_EXAMPLES))]
pub struct CtlArgs {
    /// Control socket of the firewall, if several run
    #[arg(long, global = true, value_name = "PATH")]
    pub control: Option<Name>,
    /// Send block, accept or refuse as a control packet to this address and port, without acknowledgement
    #[arg(
        long,
        global = true,
        value_name = "ADDRESS:PORT",
        conflicts_with = "control"
    )]
    pub udp: Option<String>,
    /// File with the key of the control packet
    #[arg(long, global = true, value_name = "FILE", requires = "udp")]
    pub key: Option<Name>,
    /// Number of the key, if the file has several
    #[arg(long, global = true, value_name = "NUMBER", requires = "udp")]
    pub id: Option<u16>,
    /// Answer with one JSON object, a line for each with watch
    #[arg(long, global = true)]
    pub json: bool,
    /// What to do.
    #[command(subcommand)]
    pub command: CtlCommand,
}

/// Work of `weir firewall ctl`.
#[derive(Debug, Subcommand)]
pub enum CtlCommand {
    /// Let no packet from these addresses pass
    Block {
        /// Addresses, or prefixes and ranges of up to 65536 addresses
        #[arg(value_name = "ADDRESS", required = true)]
        addresses: Vec<String>,
        /// Time until the ban ends, as 90s, 10m, 1h [default: it does not]
        #[arg(long = "for", value_name = "TIME", value_parser = parse_time)]
        time: Option<Duration>,
    },
    /// Take bans back; with --from, let a destination accept sources
    Accept {
        /// Addresses
        #[arg(value_name = "ADDRESS", required = true)]
        addresses: Vec<String>,
        /// Sources that the addresses accept from now on: addresses, prefixes, ranges, with commas; any is all
        #[arg(long, value_name = "SOURCES")]
        from: Option<String>,
    },
    /// Let a destination refuse sources
    Refuse {
        /// Addresses
        #[arg(value_name = "ADDRESS", required = true)]
        addresses: Vec<String>,
        /// Sources that the addresses refuse from now on
        #[arg(long, value_name = "SOURCES", default_value = "any")]
        from: String,
    },
    /// List the banned addresses, for how long they are, and who asked
    List,
    /// Tell what was forwarded and denied so far, and by which rule
    Stats,
    /// Tell rates at an interval, until interrupted
    Watch {
        /// The interval, as 500ms, 1s, 10s
        #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "1s")]
        every: Duration,
    },
    /// Read the rules again; if a line is wrong, the rules stay as they are
    Reload {
        /// Put the rules from before back after this time, as 60s, 5m, unless weir firewall ctl confirm comes
        #[arg(long, value_name = "TIME", value_parser = parse_time)]
        confirm: Option<Duration>,
    },
    /// Confirm what was started or reloaded with --confirm
    Confirm,
}

/// `weir firewall check`
#[derive(Args, Debug)]
#[command(after_help = fitted(CHECK_EXAMPLES), override_usage = CHECK_USAGE)]
pub struct CheckArgs {
    /// The rules; - is standard input. With --from-nft the first CAPTURE
    #[arg(value_name = "RULES")]
    pub rules: Name,
    /// Capture files, plain or compressed; - is standard input
    #[arg(value_name = "CAPTURE", required_unless_present = "from_nft")]
    pub sources: Vec<Name>,
    /// The rules, as nft -j list ruleset prints them, in place of RULES
    #[arg(help_heading = PACKETS, long, value_name = "FILE")]
    pub from_nft: Option<Name>,
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
    /// Name of the interface where packets of files would leave, for rules with `to`: a file does not tell it
    #[arg(help_heading = PACKETS, long, value_name = "NAME")]
    pub to: Option<String>,
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
    /// Connections for which there is room if rules ask for states, 16 bytes each; a full table gives away those that are not fully open
    #[arg(help_heading = WORK, long, value_name = "N", default_value_t = CONNECTIONS as u32, value_parser = clap::value_parser!(u32).range(1024..=1 << 26))]
    pub connections: u32,
    /// What confines the process.
    #[command(flatten)]
    pub walls: WallArgs,
}

/// A firewall as one stage of a run.
#[derive(Args, Clone, Debug, Default)]
pub struct RulesArgs {
    /// Judge what matches by the firewall rules of FILE too: what they drop or reject is denied. Rates, states and bans go by the times of
    /// the packets (weir firewall -h: the language)
    #[arg(help_heading = PACKETS, long, value_name = "FILE")]
    pub rules: Option<Name>,
}

/// Fate of packets in an overload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Fail {
    /// They pass unjudged
    Open,
    /// Those without room are lost
    Closed,
}

/// Packets for the file of `-w`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum What {
    /// Packets that pass
    #[value(name = "passed")]
    Forwarded,
    /// Packets that are dropped or rejected
    Denied,
}
