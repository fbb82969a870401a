//! Arguments of `weir exec`.

use super::*;
use std::path::PathBuf;
use weir_memory::Policy;

const EXAMPLES: &str = "\
Examples:
  weir exec tcpdump -nr trace.pcap 'udp port 53'  the answers of tcpdump, sooner
  weir exec tcpdump -r trace.pcap --count tcp  count packets
  sudo weir exec --ring 256M tcpdump -i eth0 -w all.pcap  lose less
  sudo weir exec --fanout 7 softflowd -d -i eth0 -n 10.0.0.9:9995  one of several
  weir exec -- ngrep -I trace.pcap GET  any program that is linked to libpcap

Exit codes:
  that of PROGRAM
  2  PROGRAM or libweir_pcap.so cannot be found or started, or a value is wrong";

/// How weir captures for the program.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum BackendArg {
    /// A ring of AF_PACKET
    #[value(name = "af_packet")]
    AfPacket,
    /// Sockets of AF_XDP, which take the packets away from this host
    #[value(name = "af_xdp")]
    AfXdp,
}

/// `weir exec`
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ExecArgs {
    /// Choose how weir captures.
    ///
    /// af_xdp takes received packets away from this host. If that fails, or if this host needs the interface, weir prints a line and
    /// captures with AF_PACKET.
    #[arg(help_heading = LIVE, long, value_name = "BACKEND")]
    pub backend: Option<BackendArg>,
    /// Capture into memory of this size, from 1M to 1G.
    ///
    /// It takes the place of libpcap's ring, whose usual size is 2M, and the statistics of the program are its counts. The other
    /// flags of captures take 32M. Captures that weir does not take over stay with libpcap; weir prints the reason.
    #[arg(help_heading = LIVE, long, value_name = "SIZE", value_parser = parse_size)]
    pub ring: Option<u64>,
    /// Choose pages for the packets of af_xdp.
    ///
    /// auto, hugetlb, hugetlb-1g, thp, virtual. AF_PACKET's ring lies in pages of the kernel's choice.
    #[arg(help_heading = LIVE, long, value_name = "POLICY")]
    pub pages: Option<Policy>,
    /// Share the packets among the programs of GROUP.
    ///
    /// All programs that capture from an interface with the same number get each flow once, both directions together.
    #[arg(help_heading = LIVE, long, value_name = "GROUP", value_parser = clap::value_parser!(u16).range(1..))]
    pub fanout: Option<u16>,
    /// Record the packets that the program reads into DIR.
    ///
    /// `weir query DIR` and `weir filter EXPR DIR` read it.
    #[arg(help_heading = LIVE, long, value_name = "DIR")]
    pub record: Option<PathBuf>,
    /// Append counts to FILE, each second.
    ///
    /// The last line follows at the end of the capture. A line is a JSON object: packets received, filtered, delivered, and dropped by the kernel or by the interface.
    #[arg(help_heading = LIVE, long, value_name = "FILE")]
    pub stats: Option<PathBuf>,
    /// Interfaces whose packets may be taken.
    #[command(flatten)]
    pub taking: TakeArgs,
    /// Correct filters of libpcap's optimizer
    #[arg(long)]
    pub exact: bool,
    /// Program to run, with its arguments.
    ///
    /// It is found in PATH, gets libweir_pcap.so by LD_PRELOAD, and takes the place of weir: its signals, input, output and exit
    /// code are its own. Programs that start others pass the library on.
    #[arg(
        value_name = "PROGRAM",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub program: Vec<OsString>,
}
