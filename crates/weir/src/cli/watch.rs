//! Arguments of `weir watch`.

use super::times::moment;
use super::*;
use std::net::IpAddr;
use weir_messages::moment::Moment;

const EXAMPLES: &str = "\
Examples:
  sudo weir watch  the interface of the default route
  sudo weir watch eth0 eth1  two interfaces as one
  sudo weir watch eth0 --filter 'not port 22'  without this login
  weir watch trace.pcap --local 10.0.0.0/8  a file, whose packets from 10.0.0.0/8 go out
  sudo weir watch eth0 --history /var/cap  its packets from before are in the record of weir record
  sudo weir watch netns:blue/eth0  an interface of another network namespace
  sudo weir watch eth0 --key process  which program sends how much

Keys: arrows choose a row, Enter opens it and Esc comes back; Tab or 1-5 change the table; / chooses rows by their text,
f the packets by an expression, k a further key, s the order; p pauses, < and > move in time; w writes the packets of a
row, B an incident bundle; q ends. ? shows all.

Colours are those of the terminal; NO_COLOR leaves them out. In a locale without UTF-8 only ASCII is drawn.

Exit codes:
  0  done
  1  the input failed; the summary says what was measured
  2  the command is wrong, or this is not a terminal; nothing was done";

/// `weir watch`
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct WatchArgs {
    /// Interfaces or capture files, as for weir measure.
    ///
    /// Without one, the interface of the default route is captured.
    #[arg(value_name = "SOURCE")]
    pub sources: Vec<Name>,

    /// Show the figures of the run at socket PATH.
    ///
    /// It was begun with --view PATH. A viewer needs no rights to capture, and changes nothing.
    #[arg(help_heading = INPUT, long, value_name = "PATH", conflicts_with_all = ["sources", "filter", "at", "key",
        "geo", "history", "link", "local", "follow", "inner", "resolve", "set", "workers", "view",
        "no_promiscuous", "direction", "ring", "ring_force", "block", "fanout", "time_stamps", "no_kernel_filter", "wait",
        "xdp_mode", "zero_copy", "ring_pages", "busy_poll", "yes_take"])]
    pub attach: Option<Name>,

    /// Show only packets that match this expression.
    ///
    /// Expressions are tcpdump's: weir help expressions. The key f changes it.
    #[arg(help_heading = SELECT, long, value_name = "EXPR", default_value = "", hide_default_value = true)]
    pub filter: String,
    /// Whether the innermost packets are judged.
    #[command(flatten)]
    pub inside: InnerArgs,
    /// Names in the expressions.
    #[command(flatten)]
    pub names: NameArgs,
    /// Begin at this time of a file.
    ///
    /// T is a time as weir query takes it: 03:12, '2026-11-23 05:30', -5m.
    #[arg(help_heading = TIME, long, value_name = "T", value_parser = moment, allow_hyphen_values = true)]
    pub at: Option<Moment>,
    /// Begin with a further table, of KEY.
    ///
    /// It is the sixth, and the key k changes it. For KEY see weir help keys.
    #[arg(help_heading = ANSWER, long, value_name = "KEY")]
    pub key: Option<KeyKind>,
    /// Databases of addresses.
    #[command(flatten)]
    pub places: GeoArgs,
    /// Show times in UTC instead of local time
    #[arg(help_heading = TIME, long)]
    pub utc: bool,
    /// Take packets from before out of this record directory.
    ///
    /// A recorder writes them there in the meantime: weir record eth0 DIR. The keys w and B of a screen of interfaces need it.
    #[arg(hide_short_help = true, help_heading = OUTPUT, long, value_name = "DIR")]
    pub history: Option<Name>,
    /// Write files of the keys w and B into this directory.
    #[arg(hide_short_help = true, help_heading = OUTPUT, long, value_name = "DIR", default_value = ".")]
    pub save_dir: Name,
    /// Set the speed of the link: 1G, 100M.
    ///
    /// Without SPEED, interfaces say it, if they know theirs.
    #[arg(hide_short_help = true, help_heading = ANSWER, long, value_name = "SPEED", value_parser = link_speed)]
    pub link: Option<f64>,
    /// Take NET for this side of the link; repeat it for several.
    ///
    /// Packets from NET go out, packets to NET come in, packets between hosts of NET are local. This
    /// is for files, and for an interface that gets a copy of the traffic of others. Without NET,
    /// interfaces say what they sent.
    #[arg(hide_short_help = true, help_heading = ANSWER, long, value_name = "NET", value_parser = network)]
    pub local: Vec<(IpAddr, IpAddr)>,
    /// Wait for more at the end of the file
    #[arg(hide_short_help = true, help_heading = INPUT, long)]
    pub follow: bool,
    /// How to capture.
    #[command(flatten)]
    pub live: LiveArgs,
    /// Measure with N threads [default: one per core]
    #[arg(help_heading = TUNING, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub workers: Option<u16>,
    /// Its viewers.
    #[command(flatten)]
    pub viewers: ViewersArgs,
    /// What confines the process.
    #[command(flatten)]
    pub walls: WallArgs,
}
