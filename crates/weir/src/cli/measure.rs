//! Arguments of `weir measure`.

use super::*;
use std::net::IpAddr;
use weir_measure::By;

const MEASURE_EXAMPLES: &str = "\
Examples:
  weir measure trace.pcap  show the ten largest flows
  weir measure trace.pcap --key src --by bytes --top 20  who sends most
  sudo weir measure eth0 --key src --window 1s  live, until Ctrl-C
  weir measure trace.pcap --key src --by ports  who tries the most ports (also peers, contacts)
  weir measure trace.pcap --filter 'udp port 53'  only matching packets
  weir measure trace.pcap --window 1s --json  one object per second
  weir measure trace.pcap --format csv --columns src,dst,bytes  for other programs (weir help columns)
  weir measure trace.pcap --key src/24 --key dport  two tables in one pass
  weir measure trace.pcap --key host --by bytes  what each host sent and received
  weir measure trace.pcap --key name --by bytes  by the names that DNS and TLS tell
  sudo weir measure eth0 --key process --by bytes  which program of this host it is
  weir measure trace.pcap --key src,dport  keys of several fields
  weir measure trace.pcap --key src --columns src,first_seen,last_seen,peak  since when, and bursts
  weir measure rot.pcap* --window 1s  rotated files, merged in time order
  weir measure trace.pcap --window 10s --changers 5  what grew and shrank most between windows
  weir measure trace.pcap --sketch exact --memory 256M  a table without error, if all flows fit
  weir measure trace.pcap --filter tcp -w tcp.pcapng  and a copy of the measured packets
  zcat trace.pcap.gz | weir measure -  read a pipe
  sudo weir measure eth0 --window 1s -w all.pcapng -C 1G -W 8 --split dns='port 53'  and keep the packets

Keys: conversation, hosts, host, service, app, mac, name, process, container, asn, country and network count both
directions, and tell them apart as tx and rx; all other keys are directional: weir help keys. By vlan, ethertype, smac
and the like, frames without IP are counted too.

--by peers, ports and contacts count distinct elements of a key, each once. `unanswered` of them sent nothing back, and
`refused` sent only TCP resets or ICMP errors; both are unknown if no contact at all was answered. --memory holds a sample
of the contacts: numbers are exact while it holds all of them, and then bounds hold with 95 % confidence.

Every number has a bound: the true value is between `lower` and `upper`. Bounds of `exact` and `heavy` always hold;
bounds of `cms` hold with the stated confidence. They are about measured packets; losses are shown next to them.
The line below each table says how many packets are outside it, and the most that any key outside can have.
The numbers of flows, sources and destinations are exact up to 49 152 and then estimated (+- 1.6 % at 95 %).
weir draws a new seed for each run, so that crafted traffic cannot skew the estimate.

With --window, weir checks timestamps that jump by an hour, or by ten seconds live, apart from --late: it believes the new time
once 32 packets in a row agree, and otherwise counts the packet as `jumped` in the window before.
A window may have several results: further ones have a `revision` (1, 2 ...) and are added to the first.

Exit codes:
  0  done
  1  the input or output failed; earlier packets were measured
  2  the command is wrong; nothing was done";

/// `weir measure`
#[derive(Args, Debug)]
#[command(after_help = MEASURE_EXAMPLES)]
pub struct MeasureArgs {
    /// Capture files or interfaces; - is standard input.
    ///
    /// Files are plain or compressed (gzip, zstd, lz4). Interfaces: eth0, any for all of them,
    /// af_packet:eth0 if a file has that name as well, af_xdp:eth0 (faster; this host does not get
    /// the captured packets), dpdk:DEVICE; netns:NAME/eth0 and pid:NUMBER/eth0 in the network namespace
    /// of that name, or of that process. generate:PROFILE makes packets.
    #[arg(value_name = "SOURCE", required = true)]
    pub sources: Vec<Name>,

    /// Measure only packets that match this expression.
    ///
    /// Expressions are tcpdump's: weir help expressions.
    #[arg(help_heading = SELECT, long, value_name = "EXPR", default_value = "", hide_default_value = true)]
    pub filter: String,
    /// Read that expression from FILE.
    ///
    /// Text after # is a comment. SIGHUP reads FILE again; packets from then on are judged by the
    /// new expression.
    #[arg(help_heading = SELECT, short = 'F', long, value_name = "FILE", conflicts_with = "filter")]
    pub filter_file: Option<Name>,
    /// Whether the innermost packets are judged.
    #[command(flatten)]
    pub inside: InnerArgs,
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

    /// Count by KEY; repeat it for several tables.
    ///
    /// Keys: 5tuple, conversation, pair, hosts, src, dst, host, sport, dport, service, app, proto,
    /// mac, name, process, container, asn, country, network, smac, dmac, vlan, mpls, vni, ethertype,
    /// dscp, ttl, tcpflags, size, interface, direction.
    /// Also prefixes such as src/24 and host/24/48, and fields with commas such as src,dport: weir
    /// help keys.
    #[arg(help_heading = ANSWER, long, value_name = "KEY", default_values_t = Config::default().keys)]
    pub key: Vec<KeyKind>,
    /// Rank by this figure
    #[arg(help_heading = ANSWER, long, default_value = "packets")]
    pub by: ByArg,
    /// Print N rows per table [default: 10]
    #[arg(help_heading = ANSWER, long, value_name = "N")]
    pub top: Option<usize>,
    /// Print only rows with at least this share: 1%
    #[arg(help_heading = ANSWER, long, value_name = "SHARE", value_parser = parse_share)]
    pub above: Option<f64>,
    /// Say why traffic is slow.
    ///
    /// tcp: segments of each conversation sent again, out of order, duplicate ACKs, zero windows,
    /// resets, and round trip times. dns: times, failures and missing answers by server and name.
    /// mtu: fragments, and routers that say a packet is too big. Each table has --memory, 32M by
    /// default.
    #[arg(help_heading = ANSWER, long, value_name = "PART", value_delimiter = ',')]
    pub health: Vec<HealthArg>,
    /// Print scans, floods and other findings.
    ///
    /// A finding has a line when it begins, and another when it ends: scans, floods, storms, losses
    /// and new hosts; with --health dns also slow DNS servers. Windows are 1 s or longer.
    #[arg(help_heading = ANSWER, long, requires = "window")]
    pub findings: bool,
    /// Run PROGRAM when a finding begins, and when it ends.
    ///
    /// Its two arguments are begin, end or open, and the finding as JSON; no shell is involved. It
    /// has the rights of the user who measures. Programs run one at a time; weir waits up to 5 s for
    /// them on exit. If one fails, the exit code is 1.
    #[arg(hide_short_help = true, help_heading = ANSWER, long, value_name = "PROGRAM", requires = "window")]
    pub on_finding: Option<Name>,
    /// Print one answer per window of time: 500ms, 10s, 5m
    #[arg(help_heading = TIME, long, value_name = "T", value_parser = parse_time)]
    pub window: Option<Duration>,
    /// Wait this long for late packets of a window.
    ///
    /// Files: until a packet is T or more past the end of the window. Live: for T. At most 64
    /// windows are open at once. Later packets of files give a further result for their window;
    /// live, they are dropped as late [default: 1s, or the window if that is shorter; live 200ms].
    #[arg(hide_short_help = true, help_heading = TIME, long, value_name = "T", value_parser = parse_time, requires = "window")]
    pub late: Option<Duration>,
    /// Show the N keys that changed most between windows
    #[arg(help_heading = ANSWER, long, value_name = "N", default_value_t = 0, hide_default_value = true, requires = "window")]
    pub changers: usize,
    /// Form of the answer.
    #[command(flatten)]
    pub format: FormatArgs,
    /// Set the speed of the link: 1G, 100M.
    ///
    /// Each direction is shown as a share of it. Without SPEED, interfaces say it, if they know
    /// theirs.
    #[arg(hide_short_help = true, help_heading = ANSWER, long, value_name = "SPEED", value_parser = link_speed)]
    pub link: Option<f64>,
    /// Take NET for this side of the link; repeat it for several.
    ///
    /// Packets from NET go out, packets to NET come in, packets between hosts of NET are local. This
    /// is for files, and for an interface that gets a copy of the traffic of others. Without NET,
    /// interfaces say what they sent.
    #[arg(hide_short_help = true, help_heading = ANSWER, long, value_name = "NET", value_parser = network)]
    pub local: Vec<(IpAddr, IpAddr)>,
    /// Databases of addresses.
    #[command(flatten)]
    pub places: GeoArgs,
    /// Print times in UTC instead of local time
    #[arg(help_heading = TIME, long)]
    pub utc: bool,

    /// Where to write what is measured.
    #[command(flatten)]
    pub output: OutputArgs,

    /// Set the table of packets or bytes [default: heavy]
    #[arg(help_heading = ANSWER, long)]
    pub sketch: Option<SketchArg>,
    /// Use SIZE bytes for each table.
    ///
    /// There is a table for each key, each worker and each open window. Sizes take k, M and G
    /// (binary). Without SIZE, a heavy table has half of the second-level cache, but 1M to 4M,
    /// every other table 4M, and more for a long --top. --stats shows it.
    #[arg(help_heading = ANSWER, long, value_name = "SIZE", value_parser = parse_size)]
    pub memory: Option<u64>,
    /// Choose pages for the memory of tables.
    ///
    /// auto, hugetlb, hugetlb-1g, thp, contiguous, virtual.
    #[arg(help_heading = TUNING, long, value_name = "POLICY", default_value = "auto")]
    pub pages: Policy,
    /// Fix the seed of the hash functions [default: random].
    ///
    /// A new seed for each run keeps senders from aiming collisions.
    #[arg(help_heading = TUNING, long)]
    pub seed: Option<u64>,

    /// Merge the files in time order.
    ///
    /// This is the default with --window and --columns peak, unless a named pipe is among the files.
    #[arg(help_heading = INPUT, long)]
    pub merge: bool,
    /// Read files in the order given, also with --window
    #[arg(hide_short_help = true, help_heading = INPUT, long, conflicts_with_all = ["merge", "sort"])]
    pub no_merge: bool,
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
    #[arg(help_heading = TIME, long, value_name = "T", value_parser = parse_time)]
    pub duration: Option<Duration>,
    /// How to capture.
    #[command(flatten)]
    pub live: LiveArgs,

    /// Measure with N threads [default: one per core]
    #[arg(help_heading = TUNING, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub workers: Option<u16>,
    /// Bind the threads to these processors: 0,2-3
    #[arg(help_heading = TUNING, long, value_name = "LIST", value_parser = cpus)]
    pub cpus: Option<Cpus>,
    /// Handle N packets at once
    #[arg(help_heading = TUNING, long, value_name = "N", default_value_t = default_batch(), value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub batch: u16,
    /// Choose who hands packets to the workers
    #[arg(help_heading = TUNING, long, default_value = "auto")]
    pub design: DesignArg,
    /// Choose the worker of a packet (async, sync) [default: flow]
    #[arg(help_heading = TUNING, long)]
    pub distribute: Option<DistributeArg>,
    /// Keep one table per worker, or one for all
    #[arg(help_heading = TUNING, long, default_value = "separate")]
    pub state: StateArg,
    /// Print on standard error how the work was done.
    ///
    /// Totals, memory, time per packet.
    #[arg(help_heading = TUNING, long)]
    pub stats: bool,
    /// How it is controlled.
    #[command(flatten)]
    pub remote: ControlArgs,
    /// Its viewers.
    #[command(flatten)]
    pub viewers: ViewersArgs,
    /// What confines the process.
    #[command(flatten)]
    pub walls: WallArgs,
}

impl MeasureArgs {
    /// Whether windows are searched for findings.
    pub fn looks_for_findings(&self) -> bool {
        self.findings || self.on_finding.is_some()
    }

    /// Whether the filter may change: by SIGHUP, because it or its sets come from files, or by requests.
    pub fn reloads(&self) -> bool {
        let is_controlled = self.remote.control.is_some();
        is_controlled || self.filter_file.is_some() || !self.names.set.is_empty()
    }
}

pub(super) fn network(text: &str) -> Result<(IpAddr, IpAddr), String> {
    weir_packet::addresses::range(text).map_err(|error| error.to_string())
}

fn default_batch() -> u16 {
    Settings::default()
        .batch
        .try_into()
        .expect("a batch is small")
}

/// What makes a key large.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ByArg {
    /// Packets
    Packets,
    /// Bytes on the wire
    Bytes,
    /// Bits on the wire per second: as bytes, with rates
    Rate,
    /// Distinct addresses at the other end
    Peers,
    /// Distinct destination ports
    Ports,
    /// Distinct pairs of a peer and a destination port
    Contacts,
}

impl ByArg {
    /// The figure that ranks.
    pub fn figure(self) -> By {
        match self {
            Self::Packets => By::Packets,
            Self::Bytes | Self::Rate => By::Bytes,
            Self::Peers => By::Peers,
            Self::Ports => By::Ports,
            Self::Contacts => By::Contacts,
        }
    }
}

/// Part of the health of the traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum HealthArg {
    /// TCP conversations
    Tcp,
    /// DNS queries and their answers
    Dns,
    /// Fragments and packets that are too big
    Mtu,
    /// All parts
    All,
}

impl HealthArg {
    /// Whether one of `asked` is this part, or all of them.
    pub fn is_in(self, asked: &[Self]) -> bool {
        asked.iter().any(|part| [self, Self::All].contains(part))
    }
}

/// How to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SketchArg {
    /// The largest keys, with bounds that always hold
    Heavy,
    /// Every key, as long as there is memory
    Exact,
    /// Count-Min, with a heavy table that names the keys
    Cms,
    /// Count-Min with conservative update: closer, never lower
    CmsConservative,
    /// Simple Hash Table: one slot for each hash, without a bound
    Sht,
    /// MV-Sketch: buckets vote for their largest keys, with bounds that always hold
    Mv,
    /// Reversible Sketch: IPv4 addresses and pairs, recovered from counters and their changes
    Rs,
    /// Set-per-entry Reversible Sketch of the study: flows, without a bound, and slow
    RsSet,
}

/// Who hands packets to the workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DesignArg {
    /// rss if the source can be split, otherwise async
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
    /// Packets to one destination address go to one worker
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
