//! Arguments of `weir firewall`.

use super::*;
use weir_firewall::CONNECTIONS;

const USAGE: &str = "weir firewall [OPTIONS] [--rules FILE] [--table FILE] IN OUT
       weir firewall check [OPTIONS] RULES CAPTURE...
       weir firewall translate RULESET.json
       weir firewall ctl COMMAND";

const EXAMPLES: &str = "\
Examples:
  weir firewall check rules.txt trace.pcap  try rules without forwarding
  sudo weir firewall eth0 eth1 --bidirectional --rules rules.txt  between two interfaces, both ways
  sudo weir firewall ctl block 192.0.2.7 --for 10m  at once, in a firewall that runs
  weir firewall trace.pcap clean.pcapng --rules rules.txt  keep the packets that pass
  nft -j list ruleset | weir firewall translate - >rules.txt  take over the rules of nftables
  weir firewall trace.pcap clean.pcapng --rules rules.txt -w denied.pcapng --what denied  and the rest in another file
  sudo weir firewall eth0 eth1 --rules rules.txt --control-port 6633 --control-key keys.txt  obey control packets

While the firewall runs, this host receives nothing from IN: try rules with weir firewall check first.

A rules file has one rule a line; the first that matches decides (weir help rules):
  set banned 192.0.2.0/24 2001:db8:bad::/48        a set of addresses, prefixes and ranges
  set banned file more.txt                         and more of them, one a line
  drop src $banned                                 text after # belongs to its rule
  pass tcp dst 10.0.0.0/8 dport 22,80-89 flags S/SA
  reject udp dport 53
  count vlan 7                                     counts, and goes on
  drop udp dport 53 over 100/s per src             faster traffic from one address
  drop src 198.51.100.7 for 10m                    for ten minutes
  pass state established,related                   answers, and errors about them
  pass src 10.0.0.0/8 state new                    only this side opens connections
  drop expr 'icmp and len > 1000'                  a tcpdump expression
  default pass                                     all other IP packets

A table file has one change of permissions a line; a packet passes if its source is not banned and its destination accepts it:
  default accept                                   for all other destinations
  ban 192.0.2.7                                    no packet from it passes; unban lifts the ban
  refuse 10.0.0.5 from any
  accept 10.0.0.5 from 10.1.0.0/16,10.2.0.9

Conditions: src, dst, proto (or tcp, udp, icmp, icmp6 ...), sport, dport, flags, type, mss, fragment, extension,
routing, vlan, on INTERFACE, to INTERFACE, expr, state, limit RATE, over RATE, hour, for TIME.
If a packet lacks a field that a rule names, as later fragments lack ports, drop and reject apply and pass does not.
ARP and other frames without IP pass, and so does IPv6 neighbor discovery: non-ip, neighbors and malformed in weir help rules.

Exit codes:
  0  done, or the reader of the output closed it
  1  the input or output failed; earlier packets were delivered
  2  the command or the rules are wrong; nothing was done";

const CHECK_USAGE: &str = "weir firewall check [OPTIONS] RULES CAPTURE...
       weir firewall check [OPTIONS] --from-nft FILE CAPTURE...";

const CHECK_EXAMPLES: &str = "\
Examples:
  weir firewall check rules.txt trace.pcap  show what each rule would do
  weir firewall check rules.txt *.pcapng --json  as one JSON object
  echo 'drop tcp dport 23' | weir firewall check - trace.pcap  try one rule
  weir firewall check --from-nft ruleset.json trace.pcap  try the rules of nftables

Exit codes:
  0  done
  1  the captures failed; earlier packets were judged
  2  the command or the rules are wrong; nothing was done";

const TRANSLATE_EXAMPLES: &str = "\
Examples:
  nft -j list ruleset | weir firewall translate -  print the rules
  weir firewall translate ruleset.json >rules.txt  keep them, to read and change
  weir firewall check --from-nft ruleset.json trace.pcap  use them without a file in between

weir translates chains of type filter at the hook forward, of the families ip, ip6 and inet, with the chains that they jump to:
addresses, protocols, ports, TCP flags, types of ICMP, ct state, iifname, sets, verdict maps, limits in packets. It names everything
else on standard error, with its table, chain and rule, and leaves a comment in place of its line.

Where a packet lacks a field that a rule names (later fragments, cut headers), drop applies and pass does not; nftables may pass it.

Exit codes:
  0  all was translated
  1  a part was not, and is named
  2  the text is not a ruleset with a chain for forwarded packets; nothing was printed";

/// `weir firewall`
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES, override_usage = USAGE, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct FirewallArgs {
    /// What to do instead of forwarding.
    #[command(subcommand)]
    pub command: Option<FirewallCommand>,
    /// Interface or capture file; - is standard input.
    ///
    /// Interfaces: eth0, af_packet:eth0, af_xdp:eth0, dpdk:DEVICE. Files are plain or compressed.
    #[arg(value_name = "IN", required = true)]
    pub source: Option<Name>,
    /// Interface, or file for the packets that pass.
    ///
    /// A file is pcapng, or pcap if its name ends in .pcap or .cap; - is standard output.
    #[arg(value_name = "OUT", required = true)]
    pub sink: Option<Name>,
    /// Read the rules from FILE; - is standard input
    #[arg(help_heading = SELECT, long, value_name = "FILE", required_unless_present_any = ["table", "control_port", "from_nft"])]
    pub rules: Option<Name>,
    /// Read the rules from a ruleset of nftables.
    ///
    /// FILE is the output of nft -j list ruleset, in place of --rules: weir firewall translate
    /// --help.
    #[arg(help_heading = SELECT, long, value_name = "FILE", conflicts_with = "rules")]
    pub from_nft: Option<Name>,
    /// Write one more file, of the packets of --what
    #[arg(help_heading = OUTPUT, short = 'w', long = "write", value_name = "FILE", requires = "what")]
    pub write: Option<Name>,
    /// Keep SIZE bytes of the disk free.
    ///
    /// Files grow no further [default: 1G, or a twentieth of the disk if that is less].
    #[arg(hide_short_help = true, help_heading = OUTPUT, long, value_name = "SIZE", value_parser = parse_size)]
    pub reserve: Option<u64>,
    /// Other addresses in the file of -w.
    #[command(flatten)]
    pub anonymize: AnonymizeArgs,
    /// Choose the packets for the file of -w
    #[arg(hide_short_help = true, help_heading = OUTPUT, long, requires = "write")]
    pub what: Option<What>,
    /// Also forward from OUT to IN, by the same rules
    #[arg(help_heading = FORWARD, long)]
    pub bidirectional: bool,
    /// Choose the worker of a packet of af_packet.
    ///
    /// flow keeps the order of flows, address the order of packets to one address, random none.
    #[arg(help_heading = TUNING, long, value_name = "RULE", default_value = "flow", conflicts_with = "fanout")]
    pub distribute: DistributeArg,
    /// Under overload, drop packets or pass them unjudged
    #[arg(help_heading = FORWARD, long, value_name = "WAY", default_value = "closed")]
    pub fail: Fail,
    /// Also deliver packets to this host.
    ///
    /// By default this host receives nothing from IN while the firewall runs.
    #[arg(help_heading = FORWARD, long)]
    pub tap: bool,
    /// Put the control socket at PATH.
    ///
    /// The default is in /run/weir or $XDG_RUNTIME_DIR/weir, named after IN and OUT.
    #[arg(help_heading = FORWARD, long, value_name = "PATH")]
    pub control: Option<Name>,
    /// Keep bans in FILE.
    ///
    /// Bans come back at the next start. The directory of FILE is closed to other users. The
    /// default is in $STATE_DIRECTORY, /var/lib/weir or the user's state directory, named after IN,
    /// OUT and --control.
    #[arg(hide_short_help = true, help_heading = FORWARD, long, value_name = "FILE")]
    pub state: Option<Name>,
    /// Begin without the bans of the run before.
    ///
    /// Their file stays, with .old added to its name.
    #[arg(hide_short_help = true, help_heading = FORWARD, long)]
    pub no_restore: bool,
    /// Obey control packets to this UDP port.
    ///
    /// Control packets are authentic UDP datagrams, to any address; weir forwards nothing to that
    /// port.
    #[arg(help_heading = CONTROL, long, value_name = "PORT", requires = "control_key", value_parser = clap::value_parser!(u16).range(1..))]
    pub control_port: Option<u16>,
    /// Read the keys of controllers from FILE.
    ///
    /// Lines NUMBER KEY, the key in hexadecimal, at least 16 bytes; other users may not read the
    /// file.
    #[arg(help_heading = CONTROL, long, value_name = "FILE", requires = "control_port")]
    pub control_key: Option<Name>,
    /// Keep the sequence numbers of control packets at PATH.
    ///
    /// So that none is obeyed twice. The default is the name of the keys with .state; none for a
    /// capture file.
    #[arg(hide_short_help = true, help_heading = CONTROL, long, value_name = "PATH", requires = "control_port")]
    pub control_state: Option<Name>,
    /// End after this time unless ctl confirm follows.
    ///
    /// weir firewall ctl confirm keeps it running. A user whose own login is cut off gets it back. Times: 60s, 5m.
    #[arg(help_heading = TIME, long, value_name = "TIME", value_parser = parse_time)]
    pub confirm: Option<Duration>,
    /// End after this time: 90s, 5m, 1h
    #[arg(help_heading = TIME, long, value_name = "TIME", value_parser = parse_time)]
    pub duration: Option<Duration>,
    /// How packets are captured.
    #[command(flatten)]
    pub live: LiveArgs,
    /// Its viewers.
    #[command(flatten)]
    pub viewers: ViewersArgs,
    /// Who may be sent to.
    #[command(flatten)]
    pub sending: SendArgs,
    /// Arguments that `check` also has.
    #[command(flatten)]
    pub judging: JudgingArgs,
}

/// Work of `weir firewall` besides forwarding.
#[derive(Debug, Subcommand)]
pub enum FirewallCommand {
    /// Show what each rule would do to the packets of capture files
    Check(CheckArgs),
    /// Translate a ruleset of nftables into rules
    Translate(TranslateArgs),
    /// Control a firewall that runs: block, unblock, reload, show
    Ctl(CtlArgs),
}

/// `weir firewall translate`
#[derive(Args, Debug)]
#[command(after_help = TRANSLATE_EXAMPLES)]
pub struct TranslateArgs {
    /// Output of nft -j list ruleset; - is standard input
    #[arg(value_name = "RULESET.json")]
    pub ruleset: Name,
}

const CTL_EXAMPLES: &str = "\
Examples:
  sudo weir firewall ctl block 192.0.2.7  let no packet from it pass
  sudo weir firewall ctl block 192.0.2.0/28 --for 10m  a prefix, for ten minutes
  sudo weir firewall ctl accept 192.0.2.7  unblock it
  sudo weir firewall ctl list  show who is blocked, for how long, and who asked
  sudo weir firewall ctl stats  show what was forwarded and denied
  sudo weir firewall ctl refuse 10.0.0.5 --from any  let no packet reach 10.0.0.5
  sudo weir firewall ctl accept 10.0.0.5 --from 10.1.0.0/16  let packets of these sources reach it
  sudo weir firewall ctl reload  read the rules again, as SIGHUP does
  sudo weir firewall ctl reload --confirm 60s  unless confirm follows, go back after 60 s
  sudo weir firewall ctl confirm  keep the new rules
  sudo weir firewall ctl watch  show rates every second
  weir firewall ctl --udp 10.0.0.9:6633 --key keys.txt --id 7 block 192.0.2.7 --for 10m  with a control packet

When the command ends, its change is in force on every worker. Bans come back after a restart. With --udp, weir sends one packet,
which nothing acknowledges; it must pass the firewall within 30 s, by the clocks of both hosts.

Exit codes:
  0  done
  1  the firewall refused, or the connection to it ended
  2  the command is wrong, or no firewall runs here";

/// `weir firewall ctl`
#[derive(Args, Debug)]
#[command(after_help = CTL_EXAMPLES)]
pub struct CtlArgs {
    /// Use this control socket, if several firewalls run
    #[arg(long, global = true, value_name = "PATH")]
    pub control: Option<Name>,
    /// Send a control packet to this address and port.
    ///
    /// For block, accept and refuse; nothing acknowledges it.
    #[arg(
        long,
        global = true,
        value_name = "ADDRESS:PORT",
        conflicts_with = "control"
    )]
    pub udp: Option<String>,
    /// Read the key of the control packet from FILE
    #[arg(long, global = true, value_name = "FILE", requires = "udp")]
    pub key: Option<Name>,
    /// Take the key with this number, if FILE has several
    #[arg(long, global = true, value_name = "NUMBER", requires = "udp")]
    pub id: Option<u16>,
    /// Answer with one JSON object, with watch a line each
    #[arg(long, global = true)]
    pub json: bool,
    /// What to do.
    #[command(subcommand)]
    pub command: CtlCommand,
}

/// Work of `weir firewall ctl`.
#[derive(Debug, Subcommand)]
pub enum CtlCommand {
    /// Block addresses: no packet from them passes
    Block {
        /// Addresses, prefixes or ranges of up to 65536
        #[arg(value_name = "ADDRESS", required = true)]
        addresses: Vec<String>,
        /// End the ban after this time: 90s, 10m, 1h
        #[arg(long = "for", value_name = "TIME", value_parser = parse_time)]
        time: Option<Duration>,
    },
    /// Unblock addresses; with --from, let a destination accept sources
    Accept {
        /// Addresses
        #[arg(value_name = "ADDRESS", required = true)]
        addresses: Vec<String>,
        /// Accept these sources: addresses, prefixes, or any.
        ///
        /// Ranges are possible as well; separate several with commas.
        #[arg(long, value_name = "SOURCES")]
        from: Option<String>,
    },
    /// Let a destination refuse sources
    Refuse {
        /// Addresses
        #[arg(value_name = "ADDRESS", required = true)]
        addresses: Vec<String>,
        /// Refuse these sources, as for accept
        #[arg(long, value_name = "SOURCES", default_value = "any")]
        from: String,
    },
    /// List blocked addresses, for how long, and who asked
    List,
    /// Show what was forwarded and denied so far, and by which rule
    Stats,
    /// Show rates at an interval, until interrupted
    Watch {
        /// Set the interval: 500ms, 1s, 10s
        #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "1s")]
        every: Duration,
    },
    /// Read the rules again; if a line is wrong, keep the old rules
    Reload {
        /// Go back after this time unless ctl confirm follows
        #[arg(long, value_name = "TIME", value_parser = parse_time)]
        confirm: Option<Duration>,
    },
    /// Keep a start or reload made with --confirm
    Confirm,
}

/// `weir firewall check`
#[derive(Args, Debug)]
#[command(after_help = CHECK_EXAMPLES, override_usage = CHECK_USAGE)]
pub struct CheckArgs {
    /// The rules; - is standard input.
    ///
    /// With --from-nft this is the first CAPTURE.
    #[arg(value_name = "RULES")]
    pub rules: Name,
    /// Capture files; - is standard input
    #[arg(value_name = "CAPTURE", required_unless_present = "from_nft")]
    pub sources: Vec<Name>,
    /// Read the rules from a ruleset of nftables.
    ///
    /// FILE is the output of nft -j list ruleset, in place of RULES.
    #[arg(help_heading = SELECT, long, value_name = "FILE")]
    pub from_nft: Option<Name>,
    /// Arguments that forwarding also has.
    #[command(flatten)]
    pub judging: JudgingArgs,
}

/// How packets are judged, and what is printed.
#[derive(Args, Debug)]
pub struct JudgingArgs {
    /// Ask the permission table in FILE before the rules.
    ///
    /// Banned sources, and the sources that a destination accepts.
    #[arg(help_heading = SELECT, long, value_name = "FILE")]
    pub table: Option<Name>,
    /// Whether the innermost packets are judged.
    #[command(flatten)]
    pub inside: InnerArgs,
    /// Name the interface of packets in a file.
    ///
    /// For rules with `on`: a pcap file has no names of interfaces.
    #[arg(hide_short_help = true, help_heading = SELECT, long, value_name = "NAME")]
    pub interface: Option<String>,
    /// Name the interface where packets would leave.
    ///
    /// For rules with `to`: a file does not tell it.
    #[arg(hide_short_help = true, help_heading = SELECT, long, value_name = "NAME")]
    pub to: Option<String>,
    /// Answer with one JSON object
    #[arg(help_heading = ANSWER, long)]
    pub json: bool,
    /// Also list rules that applied to no packet.
    ///
    /// Even of a long list.
    #[arg(help_heading = ANSWER, long)]
    pub all: bool,
    /// Allow zstd windows up to SIZE.
    ///
    /// A file compressed with zstd --long=N needs a window of 2 to the power of N bytes.
    #[arg(hide_short_help = true, help_heading = INPUT, long, value_name = "SIZE", default_value = "128M", value_parser = parse_zstd_window)]
    pub zstd_window: u64,
    /// Read the files with N threads [default: one per core]
    #[arg(help_heading = TUNING, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub workers: Option<u16>,
    /// Make room for N connections, if rules ask for states.
    ///
    /// A connection takes 16 bytes; a full table gives up connections that are not fully open.
    #[arg(help_heading = TUNING, long, value_name = "N", default_value_t = CONNECTIONS as u32, value_parser = clap::value_parser!(u32).range(1024..=1 << 26))]
    pub connections: u32,
    /// What confines the process.
    #[command(flatten)]
    pub walls: WallArgs,
}

/// A firewall as one stage of a run.
#[derive(Args, Clone, Debug, Default)]
pub struct RulesArgs {
    /// Also judge packets by the firewall rules of FILE.
    ///
    /// Packets that the rules drop or reject count as denied. Rates, states and bans go by the
    /// times of the packets: weir help rules.
    #[arg(help_heading = SELECT, long, value_name = "FILE")]
    pub rules: Option<Name>,
}

/// Fate of packets in an overload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Fail {
    /// Packets are forwarded unchecked
    Open,
    /// Packets without room are dropped
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
