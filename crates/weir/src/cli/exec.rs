//! Arguments of `weir exec`.

use clap::Args;
use std::ffi::OsString;

const EXAMPLES: &str = "\
Examples:
  weir exec tcpdump -nr trace.pcap 'udp port 53'  the answers of tcpdump, sooner
  weir exec tcpdump -r trace.pcap --count tcp  count packets
  weir exec -- ngrep -I trace.pcap GET  any program that is linked to libpcap

Exit codes:
  that of PROGRAM
  2  PROGRAM or libweir_pcap.so cannot be found or started";

/// `weir exec`
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ExecArgs {
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
