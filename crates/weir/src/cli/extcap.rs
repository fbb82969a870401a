//! Arguments of `weir extcap`, as Wireshark gives them.

use super::*;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  weir extcap --install  put weir into Wireshark's list of interfaces
  weir extcap --extcap-interfaces  the list, as Wireshark asks for it

Exit codes:
  0  done
  1  the interface or the record cannot be read
  2  the arguments are wrong";

/// `weir extcap`
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ExtcapArgs {
    /// Put weir into Wireshark's list of interfaces.
    ///
    /// The variable WIRESHARK_EXTCAP_DIR names the directory, or else ~/.local/lib/wireshark/extcap. Removing the file takes weir out
    /// again.
    #[arg(long)]
    pub install: bool,
    /// List the interfaces
    #[arg(long)]
    pub extcap_interfaces: bool,
    /// Choose an interface of the list
    #[arg(long, value_name = "NAME")]
    pub extcap_interface: Option<String>,
    /// List the link types of an interface
    #[arg(long)]
    pub extcap_dlts: bool,
    /// List the settings of an interface
    #[arg(long)]
    pub extcap_config: bool,
    /// Version of Wireshark; ignored
    #[arg(long, value_name = "VERSION")]
    pub extcap_version: Option<String>,
    /// Capture packets that match this expression
    #[arg(long, value_name = "EXPR")]
    pub extcap_capture_filter: Option<String>,
    /// Capture from an interface
    #[arg(long)]
    pub capture: bool,
    /// Write the packets to this pipe
    #[arg(long, value_name = "PIPE")]
    pub fifo: Option<PathBuf>,
    /// Directory of a record
    #[arg(long, value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// Read the last of the record alone, such as 5m
    #[arg(long, value_name = "TIME")]
    pub last: Option<String>,
    /// Go on with new packets of a running weir record
    #[arg(long, value_name = "YES", num_args = 0..=1, default_missing_value = "true", default_value = "false")]
    pub follow: bool,
}
