//! Arguments of `weir generate`.

use super::ctl::SteerArgs;
use super::*;
use weir_engine::search::Goal;
use weir_generator::streams::{Gaps, Sizes};

const GENERATE_EXAMPLES: &str = "\
Examples:
  weir generate demo.pcap  a million packets of Internet-like sizes
  weir generate demo.pcapng --truth  and print known answers
  weir generate demo.pcap --talkers 10  and print the ten largest flows
  weir generate demo.pcap --packets 8000000 --sizes 60 --seed 7  eight million small packets
  sudo weir generate af_packet:eth1 --rate 100000  send in real time, for 60 s
  sudo weir generate af_xdp:eth1:0 --rate max  send as fast as possible
  sudo weir generate af_packet:eth1 --rate 1kpps --control s.sock  let weir ctl --control s.sock set rate 2kpps
  weir generate null  show how fast packets are made
  weir generate mix.pcap --mix 3 --table mix.txt  trains of packets, and permissions for weir firewall
  weir generate profiles  list the profiles; weir generate profiles mwn prints one
  weir generate names.pcap --profile 64 --field udp.dst=53,5353:random --sizes imix  a profile, changed
  sudo weir generate af_packet:eth1 --profile ./mine.toml --rate 2Gbit/s --gaps bursts  one of your own
  sudo weir generate af_packet:eth1 --profile 64 --rate 1Mpps --receive eth2 --search ndr  find the highest rate without loss
  sudo weir generate inject:eth1 --sizes 60  load the receive path of eth1, to test captures

A port sends for 60 s, unless --packets, --duration or --forever says otherwise. An interface needs --yes-send IF if it has the
default route or the address of this login, or is a port of a bridge.

Packets leave a port at the times that a file of the same options holds, never earlier; a slower port gets them as fast as it
takes them. null throws packets away (./null is a file).

inject:IF makes the kernel handle packets as if IF had received them; it needs a processor. With --profile they are those of the profile, up
to 3 392 bytes, each at its time. Without, they are copies of one UDP datagram, from 10.1.x.x to 198.18.0.1: more load than a sender
on this machine reaches. The first 16 bytes of the payload are the number of the copy and the time (ns since boot),
both big-endian; its flow is NUMBER modulo FLOWS. --seed and --zipf do nothing here.

The same seed and options make the same bytes everywhere.

Exit codes:
  0  done, or interrupted
  1  the output failed, or packets were refused; earlier packets were sent and counted
  2  the command is wrong; nothing was done";

/// What destinations of a mix do with sources that no change names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MixDefault {
    /// They accept them
    Accept,
    /// They refuse them: fewer packets pass, and less work is done
    Refuse,
}

/// Goal of a search.
#[derive(Clone, Debug, PartialEq)]
pub struct SearchGoal {
    /// Its name, as it was written.
    pub name: String,
    /// The goal.
    pub goal: Goal,
}

/// Reads a goal: the name of one, and other values. **Errors**: what would be right.
pub fn search_goal(text: &str) -> Result<SearchGoal, String> {
    let mut words = text.split(',');
    let mut goal = match words.next().unwrap_or_default() {
        "rfc2544" | "rfc8219" => Goal::THROUGHPUT,
        "ndr" => Goal::NO_DROP,
        "pdr" => Goal::PARTIAL_DROP,
        other => {
            return Err(format!(
                "'{other}' is not a goal: write rfc2544, rfc8219, ndr or pdr, and changes as in ndr,width=1%"
            ));
        }
    };
    for word in words {
        let known = "loss, exceed, width, initial, final and sum";
        let Some((name, value)) = word.split_once('=') else {
            return Err(format!(
                "'{word}' is not a value of a goal: write {known} as in width=1%"
            ));
        };
        let share = |value: &str| match value {
            "0" | "0%" => Ok(0.0),
            _ => parse_share(value),
        };
        let seconds = |value| parse_time(value).map(|time| time.as_secs_f64());
        match name {
            "loss" => goal.loss_ratio = share(value)?,
            "exceed" => goal.exceed_ratio = share(value)?,
            "width" => goal.width = share(value)?,
            "initial" => goal.initial_s = seconds(value)?,
            "final" => goal.final_s = seconds(value)?,
            "sum" => goal.sum_s = seconds(value)?,
            _ => return Err(format!("a goal has no '{name}': it has {known}")),
        }
    }
    goal.check()?;
    Ok(SearchGoal {
        name: text.to_owned(),
        goal,
    })
}

/// Reads an exponent of Zipf's law. **Errors**: what would be right.
fn zipf_exponent(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(exponent) if (0.0..=10.0).contains(&exponent) => Ok(exponent),
        Ok(_) => Err(format!("'{text}' is out of range: use 0 to 10")),
        Err(_) => Err(format!("'{text}' is not a number: write --zipf 1.1")),
    }
}

/// Reads the name of a run. **Errors**: what would be right.
fn run_name(text: &str) -> Result<String, String> {
    match text.len() {
        1..=64 => Ok(text.to_owned()),
        _ => Err("want a name of 1 to 64 bytes, the same on both hosts".to_owned()),
    }
}

/// `weir generate`
#[derive(Args, Debug)]
#[command(after_help = GENERATE_EXAMPLES)]
pub struct GenerateArgs {
    /// File to write, or port that sends.
    ///
    /// A file is pcapng, or pcap if its name ends in .pcap or .cap; - is standard output. Ports:
    /// af_packet:IF, af_xdp:IF[:QUEUE], dpdk:DEVICE, null, inject:IF.
    #[arg(value_name = "SINK")]
    pub sink: Name,
    /// Profile to print, after `profiles`
    #[arg(value_name = "NAME", hide = true)]
    pub name: Option<String>,
    /// Make the traffic of this profile.
    ///
    /// Built in, or a file: `weir generate profiles` lists the first [default: default].
    #[arg(help_heading = SELECT, long, value_name = "NAME|FILE", conflicts_with = "mix")]
    pub profile: Option<String>,
    /// Set a field, as ipv4.ttl=9-64:random.
    ///
    /// Of all streams that have it, or of one: web/ipv4.dst=... . Values are constant, a range (1-9), a prefix or mask, or a list, and
    /// counted or :random, for each flow or :packet.
    #[arg(help_heading = SELECT, long, value_name = "F=V", requires = "profile")]
    pub field: Vec<String>,
    /// Set gaps: even, exponential, bursts[:N].
    ///
    /// Bursts are of 32 packets without N [default: as the profile says].
    #[arg(help_heading = TIME, long, value_name = "GAPS")]
    pub gaps: Option<Gaps>,
    /// Make packets with N threads.
    ///
    /// Together they make the same packets, at the same times and rate. For null and af_packet, from streams.
    #[arg(hide_short_help = true, help_heading = TUNING, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256), default_value_t = 1)]
    pub workers: u16,
    /// Make N packets.
    ///
    /// A file gets 1000000 unless told otherwise; a port goes on for --duration. k, M and G are binary, so that 1M is 1 048 576.
    #[arg(help_heading = SELECT, long, value_name = "N", value_parser = parse_size)]
    pub packets: Option<u64>,
    /// Stop sending after this time [default: 60s].
    ///
    /// For ports only, unless --packets is given.
    #[arg(help_heading = TIME, long, value_name = "TIME", value_parser = parse_time)]
    pub duration: Option<Duration>,
    /// Send until interrupted
    #[arg(help_heading = TIME, long, conflicts_with_all = ["packets", "duration"])]
    pub forever: bool,
    /// Fail if the rate is not held, or a packet is lost.
    ///
    /// The rate is not held if a packet leaves more than a second late, or the last packet more than 10 ms late. A link that was down and
    /// drops of the interface are losses; --receive finds all of them.
    #[arg(help_heading = TIME, long)]
    pub strict: bool,
    /// Who may be sent to.
    #[command(flatten)]
    pub sending: SendArgs,
    /// Where injected packets go.
    #[command(flatten)]
    pub inject: InjectArgs,
    /// Who steers it.
    #[command(flatten)]
    pub steer: SteerArgs,
    /// Keep SIZE bytes of the disk free.
    ///
    /// The file grows no further [default: 1G, or a twentieth of the disk if that is less].
    #[arg(hide_short_help = true, help_heading = OUTPUT, long, value_name = "SIZE", value_parser = parse_size)]
    pub reserve: Option<u64>,
    /// Set the seed of all choices [default: 1]
    #[arg(help_heading = SELECT, long)]
    pub seed: Option<u64>,
    /// Set frame sizes: mwn, uniform, or bytes.
    ///
    /// Sizes are without FCS. mwn is the mix of an Internet uplink. Streams of a profile also take imix, ranges as 60-9000, and lists
    /// with weights as 60:7,590:4,1514:1 [default: mwn; 60 for inject].
    #[arg(help_heading = SELECT, long)]
    pub sizes: Option<Sizes>,
    /// Spread packets over N flows.
    ///
    /// [default: 100000, or as the profile says].
    #[arg(help_heading = SELECT, long)]
    pub flows: Option<u64>,
    /// Set the Zipf exponent of packets over flows.
    ///
    /// [default: 1.1, or as the profile says].
    #[arg(help_heading = SELECT, long, value_parser = zipf_exponent)]
    pub zipf: Option<f64>,
    /// Set how fast: 2Gbit/s, 50%, max [default: 1Mpps].
    ///
    /// Packets a second (1000, 100kpps, 0.5pps) or bits: in packet time for a file, in real time for a port. Bits are counted in frames without FCS; 50% is half of the link's speed. max:
    /// as fast as the port takes them, the default of null and inject.
    #[arg(help_heading = TIME, long, value_name = "RATE", value_parser = rate)]
    pub rate: Option<Rate>,
    /// Make the data packets of mix N, 1 to 8.
    ///
    /// The mixes are from the exercise "multithreaded packet filter": datagrams in 10.0.0.0/16; a
    /// serial program knows which of them the permissions let pass. Mix 8 needs 600 MB and ten
    /// seconds.
    #[arg(hide_short_help = true, help_heading = SELECT, long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=8), conflicts_with_all = ["sizes", "flows", "zipf", "talkers"])]
    pub mix: Option<u8>,
    /// Set the verdict on sources that no change of the mix names
    #[arg(hide_short_help = true, help_heading = SELECT, long, value_name = "WHAT", default_value = "accept", requires = "mix")]
    pub mix_default: MixDefault,
    /// Also make the changes of the mix, signed with the key in FILE.
    ///
    /// Changes are control packets to UDP port 6633, signed with the first key of FILE; without it
    /// they are left out.
    #[arg(hide_short_help = true, help_heading = OUTPUT, long, value_name = "FILE", requires = "mix")]
    pub control_key: Option<Name>,
    /// Write the first permissions of the mix to FILE.
    ///
    /// weir firewall --table reads them.
    #[arg(hide_short_help = true, help_heading = OUTPUT, long, value_name = "FILE", requires = "mix")]
    pub table: Option<Name>,
    /// Print the expressions whose counts are known.
    ///
    /// Each line is PACKETS BYTES EXPRESSION; of a mix, for packets that pass and packets that do
    /// not.
    #[arg(help_heading = ANSWER, long)]
    pub truth: bool,
    /// Print the N largest flows.
    ///
    /// Each line is PACKETS BYTES PROTOCOL SOURCE PORT DESTINATION PORT.
    #[arg(help_heading = ANSWER, long, value_name = "N", conflicts_with = "truth")]
    pub talkers: Option<usize>,
    /// Print a digest of all frames, whatever their order.
    #[arg(help_heading = ANSWER, long)]
    pub digest: bool,
    /// Receive packets with IF, and print their fate.
    ///
    /// IF is another interface of this host, so that one clock measures delays: packets carry their number and time in the payload.
    /// For streams of a profile, and ports that send.
    #[arg(help_heading = ANSWER, long, value_name = "IF", requires = "profile", conflicts_with_all = ["truth", "talkers"])]
    pub receive: Option<Name>,
    /// Receive what another host returns of the run NAME.
    ///
    /// There, weir generate --reflect NAME returns them, with times of its own clock. IF may be the interface that sends. Frames have at least
    /// 90 bytes.
    #[arg(help_heading = ANSWER, long, value_name = "NAME", value_parser = run_name, requires = "receive", conflicts_with = "search")]
    pub round_trip: Option<String>,
    /// Return the packets of the run NAME of another host.
    ///
    /// Nothing else is sent. Each packet goes back once, by the interface at which it arrives, with its ends exchanged and the times of arrival and
    /// departure in it. Ends after --duration, or --packets.
    #[arg(help_heading = OUTPUT, long, value_name = "NAME", value_parser = run_name, conflicts_with_all = [
        "profile", "field", "gaps", "workers", "seed", "sizes", "flows", "zipf", "rate", "mix", "mix_default", "control_key", "table", "truth",
        "talkers", "digest", "receive", "strict", "to_stack", "control", "script", "watch", "reserve",
    ])]
    pub reflect: Option<String>,
    /// Search the highest rate without loss: a GOAL.
    ///
    /// By RFC 9971, up to the packets/s of --rate: rfc2544 (or rfc8219: no loss in 60 s), ndr, pdr (no loss, or 0.5%, in half of 21 s), and
    /// others as ndr,loss=1%,exceed=10%; width=2%, initial=1s, final=10s and sum=60s are further values. --duration bounds the time of all
    /// trials; --search may be given several times [default: rfc2544].
    #[arg(help_heading = ANSWER, long, value_name = "GOAL", value_parser = search_goal, num_args = 0..=1, default_missing_value = "rfc2544", requires = "receive", conflicts_with_all = ["packets", "forever", "control", "script", "watch", "strict"])]
    pub search: Vec<SearchGoal>,
    /// Print the fate of the packets as JSON
    #[arg(help_heading = ANSWER, long, requires = "receive")]
    pub json: bool,
    /// What confines the process.
    #[command(flatten)]
    pub walls: WallArgs,
}
