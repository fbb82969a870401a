//! Arguments of `weir replay`.

use super::ctl::SteerArgs;
use super::times::moment;
use super::*;
use weir_messages::moment::Moment;

const REPLAY_EXAMPLES: &str = "\
Examples:
  sudo weir replay trace.pcap --to eth1 --as-is  each packet at its time, the frames as they are
  sudo weir replay trace.pcap --to eth1 --dst-mac 02:00:00:00:00:01  to this station
  sudo weir replay trace.pcap --to eth1 --as-is --rate 100kpps --spin  at even gaps, exact, for a processor
  sudo weir replay trace.pcap --to eth1 --as-is --rate 2Gbit/s --loop 10  ten times
  sudo weir replay trace.pcap --to eth1 --as-is --speed 2x --filter 'tcp port 443'  a part of it, twice as fast
  sudo weir replay /var/cap --to eth1 --as-is --from 03:10 --until 03:15  five minutes of a record
  sudo weir replay trace.pcap --to eth1 --to2 eth2 --split-by 'src net 10' --as-is  both sides, in one order
  sudo weir replay trace.pcap --to eth1 --as-is --receive eth2  and count what arrives at the other end of a device
  sudo weir replay trace.pcap --to eth1 --to2 eth2 --split-by auto --as-is --receive eth2 --receive2 eth1  both ways
  weir replay trace.pcap --to null --rate max  read and throw away

One clock runs from the first packet on, so that a late packet delays no other. The end tells how late packets left; a rate that
is not held is told, and --strict makes it an error.

Packets by which hosts, switches and routers configure each other (ARP, DHCP, STP, LLDP, OSPF, VRRP and the like) are left
out and counted. An interface needs --yes-send IF if it has the default route or the address of this login, or is a port of a
bridge.

Exit codes:
  0  done, or interrupted
  1  the input or the port failed, or packets were refused; with --strict, a rate was not held, or a packet was lost
  2  the command is wrong; nothing was sent";

pub(super) fn speed(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('x').unwrap_or(text);
    match number.parse::<f64>() {
        Ok(speed) if speed > 0.0 && speed.is_finite() => Ok(speed),
        _ => Err(format!("'{text}' is not a speed: write 2x or 0.5x")),
    }
}

fn mac(text: &str) -> Result<[u8; 6], String> {
    let mut parts = text.split(':');
    let mut address = [0; 6];
    let all = address.iter_mut().all(|byte| {
        let part = parts.next().filter(|part| (1..=2).contains(&part.len()));
        let number = part.and_then(|part| u8::from_str_radix(part, 16).ok());
        number.map(|number| *byte = number).is_some()
    });
    match all && parts.next().is_none() {
        true => Ok(address),
        false => Err(format!(
            "'{text}' is not a MAC address: write 02:00:00:00:00:01"
        )),
    }
}

/// `weir replay`
#[derive(Args, Debug)]
#[command(after_help = REPLAY_EXAMPLES)]
pub struct ReplayArgs {
    /// Captures or records; - is standard input.
    ///
    /// Files are plain or compressed (gzip, zstd, lz4), and follow each other. A file that begins within a second of the end
    /// of the one before goes on after it; any other follows at once.
    #[arg(value_name = "FILE", required = true)]
    pub sources: Vec<Name>,
    /// Send by this interface or port.
    ///
    /// eth1, or a port: af_packet:eth1, af_xdp:eth1[:QUEUE], dpdk:DEVICE, inject:eth1 (as if eth1 had received them); null throws packets away.
    #[arg(help_heading = OUTPUT, long, short = 'i', value_name = "IF", visible_alias = "intf1", required = true)]
    pub to: Name,
    /// Send the packets of --split-by by this one
    #[arg(help_heading = OUTPUT, long, short = 'I', value_name = "IF", alias = "intf2", requires = "split_by")]
    pub to2: Option<Name>,
    /// Choose the packets of --to2: EXPR, or auto.
    ///
    /// auto sends what servers send by --to2: the end of a connection with the lower port, or else the lower address.
    #[arg(help_heading = OUTPUT, long, value_name = "EXPR", requires = "to2")]
    pub split_by: Option<String>,
    /// Send packets that match this expression
    #[arg(help_heading = SELECT, long, value_name = "EXPR", default_value = "", hide_default_value = true)]
    pub filter: String,
    /// Leave out packets before this time
    #[arg(help_heading = SELECT, long, value_name = "T", value_parser = moment, allow_hyphen_values = true)]
    pub from: Option<Moment>,
    /// Leave out packets after this time
    #[arg(help_heading = SELECT, long, value_name = "T", value_parser = moment, allow_hyphen_values = true)]
    pub until: Option<Moment>,
    /// Stop after N packets
    #[arg(help_heading = SELECT, short = 'c', short_alias = 'L', alias = "limit", value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub stop_after: Option<u64>,
    /// Also send ARP, DHCP, STP, OSPF and the like.
    ///
    /// ARP, ND, DHCP, redirects, IGMP, MLD; STP, LLDP, LACP, CDP, 802.1X, PPPoE discovery, PPP control; OSPF, IS-IS, VRRP, EIGRP, PIM, RIP,
    /// HSRP, GLBP, LDP; also after VLAN tags, MPLS labels and IPv6 extension headers, and in PPPoE.
    #[arg(help_heading = SELECT, long)]
    pub control_traffic: bool,
    /// Set how fast: original, max, 100kpps, 2Gbit/s, 50%.
    ///
    /// Bits are counted in frames without FCS; 50% is half of the link's speed.
    #[arg(help_heading = TIME, long, value_name = "RATE", value_parser = rate, default_value = "original", conflicts_with_all = ["pps", "mbps", "topspeed"])]
    pub rate: Rate,
    /// Replay so many times as fast: 2x, 0.5x
    #[arg(help_heading = TIME, long, short = 'x', alias = "multiplier", value_name = "TIMES", value_parser = speed)]
    pub speed: Option<f64>,
    /// Stop after this time
    #[arg(help_heading = TIME, long, value_name = "TIME", value_parser = parse_time)]
    pub duration: Option<Duration>,
    /// Replay N times; without N, for 60s.
    ///
    /// --duration and -c set another end. N = 0 is the same as no N, as for tcpreplay.
    #[arg(help_heading = TIME, long = "loop", short = 'l', value_name = "N", num_args = 0..=1, default_missing_value = "0")]
    pub loops: Option<u64>,
    /// Shift addresses in each round of --loop.
    ///
    /// The last 16 bits of IPv4 and IPv6 addresses grow by one from round to round; checksums follow.
    #[arg(help_heading = OUTPUT, long, alias = "unique-ip", requires = "loops")]
    pub shift_addresses: bool,
    /// Shorten gaps to at most this time
    #[arg(help_heading = TIME, long, value_name = "TIME", value_parser = parse_time)]
    pub gap_limit: Option<Duration>,
    /// Read the clock without pause: exact, for a processor
    #[arg(help_heading = TIME, long)]
    pub spin: bool,
    /// Fail if the rate is not held, or a packet is lost.
    ///
    /// The rate is not held if a packet leaves more than a second late, or the last packet more than 10 ms late. A link that was down and
    /// drops of the interface are losses; --receive finds all of them.
    #[arg(help_heading = TIME, long)]
    pub strict: bool,
    /// Packets a second, as in tcpreplay
    #[arg(long, short = 'p', value_name = "N", hide = true)]
    pub pps: Option<f64>,
    /// Mbit/s, as in tcpreplay
    #[arg(long, short = 'M', value_name = "N", hide = true)]
    pub mbps: Option<f64>,
    /// As fast as possible, as in tcpreplay
    #[arg(long, short = 't', hide = true)]
    pub topspeed: bool,
    /// Accepted, as in tcpreplay: files are read ahead
    #[arg(long, short = 'K', alias = "preload-pcap", hide = true)]
    pub preload: bool,
    /// Set the destination MAC address
    #[arg(help_heading = OUTPUT, long, value_name = "MAC", value_parser = mac)]
    pub dst_mac: Option<[u8; 6]>,
    /// Set the source MAC address
    #[arg(help_heading = OUTPUT, long, value_name = "MAC", value_parser = mac)]
    pub src_mac: Option<[u8; 6]>,
    /// Send the frames as they are
    #[arg(help_heading = OUTPUT, long)]
    pub as_is: bool,
    /// Who may be sent to.
    #[command(flatten)]
    pub sending: SendArgs,
    /// Where injected packets go.
    #[command(flatten)]
    pub inject: InjectArgs,
    /// Who steers it.
    #[command(flatten)]
    pub steer: SteerArgs,
    /// Print times in UTC instead of local time
    #[arg(help_heading = ANSWER, long)]
    pub utc: bool,
    /// Print a digest of all frames, whatever their order.
    #[arg(help_heading = ANSWER, long)]
    pub digest: bool,
    /// Receive packets with IF, and print their fate.
    ///
    /// IF is another interface of this host, so that one clock measures delays. Packets are matched by their bytes, as they leave; equal
    /// packets in their order. With --to2, the packets of both ports, unless there is --receive2.
    #[arg(help_heading = ANSWER, long, value_name = "IF")]
    pub receive: Option<Name>,
    /// Receive the packets of --to2 with IF
    #[arg(help_heading = ANSWER, long, value_name = "IF", requires = "to2", requires = "receive")]
    pub receive2: Option<Name>,
    /// Print the end as JSON
    #[arg(help_heading = ANSWER, long)]
    pub json: bool,
    /// What confines the process.
    #[command(flatten)]
    pub walls: WallArgs,
}
