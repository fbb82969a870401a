//! Arguments of `weir query`.

use super::times::{last, moment};
use super::*;
use std::net::IpAddr;
use weir_messages::moment::Moment;

const EXAMPLES: &str = "\
Examples:
  weir query /var/cap  print all packets, one line each
  weir query /var/cap 'host 10.1.2.3' --last 5m  a host in the last five minutes
  weir query /var/cap 'udp port 53' --from 05:30 --to 05:31 -w dns.pcapng  a minute of today, into a file
  weir query /var/cap --last 1h --flows  the largest conversations of the last hour
  weir query /var/cap icmp --follow  and go on with new packets
  weir query /var/cap --around 05:30:07 --flow '10.1.2.3:443 10.9.9.9:40000 tcp'  a conversation, 10 s to each side
  weir query /var/cap tcp --count --explain  the number, and what was read for it

T is a time with date and zone (2026-11-23T05:30:00Z, '2026-11-23 05:30+01:00'), a local one ('2026-11-23 05:30', or 05:30 for
today; a date alone is the begin of its day), seconds since 1970 (1795412174.5), or a time before now (-5m, '5m ago'). If clocks
are set back and show a time twice, --from means the first and --to the second; a time that clocks never show is refused.

The index says which blocks of the record can hold a match; the rest is not read. Packets are printed in time order. While a
recorder writes to DIR, the answer includes the packets that it has only in memory: they follow in the order of their arrival.

Exit codes:
  0  done, or the reader of the output closed it
  1  the record or the output failed; earlier packets were delivered
  2  the command is wrong; nothing was done";

/// `weir query`
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct QueryArgs {
    /// Directory that weir record has written
    #[arg(value_name = "DIR")]
    pub directory: Name,
    /// tcpdump expression; without it every packet matches
    #[arg(value_name = "EXPR", default_value = "", hide_default_value = true)]
    pub expression: String,

    /// Leave out packets before this time
    #[arg(help_heading = TIME, long, value_name = "T", value_parser = moment, allow_hyphen_values = true)]
    pub from: Option<Moment>,
    /// Leave out packets after this time
    #[arg(help_heading = TIME, long, value_name = "T", value_parser = moment, allow_hyphen_values = true)]
    pub to: Option<Moment>,
    /// Answer for this much time before now: 500ms, 10s, 5m
    #[arg(help_heading = TIME, long, value_name = "TIME", value_parser = last, allow_hyphen_values = true, conflicts_with_all = ["from", "to", "around"])]
    pub last: Option<Duration>,
    /// Answer for the time around T: see --within
    #[arg(help_heading = TIME, long, value_name = "T", value_parser = moment, allow_hyphen_values = true, conflicts_with_all = ["from", "to"])]
    pub around: Option<Moment>,
    /// Set how far from --around
    #[arg(help_heading = TIME, long, value_name = "TIME", value_parser = parse_time, default_value = "10s", requires = "around")]
    pub within: Duration,

    /// Select one conversation, in both directions.
    ///
    /// Two ends and a protocol, as weir measure shows them: '10.1.2.3:443 10.9.9.9:40000 tcp',
    /// '[2001:db8::1]:53 [2001:db8::2]:4000 udp', '10.1.2.3 10.9.9.9 icmp'. Packets with one or two
    /// VLAN tags are included.
    #[arg(help_heading = SELECT, long, value_name = "FLOW", value_parser = flow)]
    pub flow: Option<String>,
    /// Keep the packets that do not match
    #[arg(help_heading = SELECT, long)]
    pub invert: bool,
    /// Whether the innermost packets are judged.
    #[command(flatten)]
    pub inside: InnerArgs,
    /// Stop after N matching packets
    #[arg(help_heading = SELECT, short = 'c', value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub stop_after: Option<u64>,
    /// Names in the expressions.
    #[command(flatten)]
    pub names: NameArgs,

    /// Print only the number of matching packets
    #[arg(help_heading = ANSWER, long, conflicts_with_all = ["write", "link_header", "hex", "hex_ascii", "ascii", "verbose", "quiet", "absolute", "number"])]
    pub count: bool,
    /// Print the largest conversations.
    ///
    /// As weir measure --key conversation does.
    #[arg(help_heading = ANSWER, long, conflicts_with_all = ["count", "invert", "follow", "link_header", "hex", "hex_ascii", "ascii", "verbose", "quiet", "absolute", "number", "time", "stop_after"])]
    pub flows: bool,
    /// Print N rows with --flows
    #[arg(help_heading = ANSWER, long, value_name = "N", default_value_t = 10, requires = "flows")]
    pub top: usize,
    /// Print the names that resolved to ADDRESS.
    ///
    /// They are in answers of DNS and in the first messages of TLS connections. Each has its number,
    /// and the first and the last time. The expression 'port 53' asks DNS alone.
    #[arg(help_heading = ANSWER, long, value_name = "ADDRESS", conflicts_with_all = ["count", "write", "split", "columns", "link_header", "hex", "hex_ascii", "ascii", "verbose", "quiet", "absolute", "number", "time", "nano", "flows"])]
    pub names_of: Option<IpAddr>,
    /// How to print them as lines.
    #[command(flatten)]
    pub lines: LineArgs,
    /// Use UTC instead of local time, in and out
    #[arg(help_heading = TIME, long)]
    pub utc: bool,
    /// Form of the answer.
    #[command(flatten)]
    pub format: FormatArgs,
    /// Databases of columns about addresses.
    #[command(flatten)]
    pub places: GeoArgs,

    /// Where to write them.
    #[command(flatten)]
    pub output: OutputArgs,

    /// Go on with packets that arrive from now on.
    ///
    /// The recorder of DIR hands them over. Ctrl-C ends the run.
    #[arg(help_heading = INPUT, long, conflicts_with = "to")]
    pub follow: bool,

    /// Say which segments and blocks were read, and why
    #[arg(help_heading = ANSWER, long)]
    pub explain: bool,
    /// Filter with N threads [default: one per core]
    #[arg(help_heading = TUNING, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub workers: Option<u16>,
    /// Print on standard error how the work was done
    #[arg(help_heading = TUNING, long)]
    pub stats: bool,
    /// What confines the process.
    #[command(flatten)]
    pub walls: WallArgs,
}

/// Expression of tcpdump for the packets of a conversation, both directions.
fn flow(text: &str) -> Result<String, String> {
    const PROTOCOLS: [&str; 9] = [
        "tcp", "udp", "sctp", "icmp", "icmp6", "igmp", "esp", "ah", "pim",
    ];
    let wrong =
        || format!("'{text}' is not a conversation: write '10.1.2.3:443 10.9.9.9:40000 tcp'");
    let (mut ends, mut protocol) = (Vec::new(), None);
    for word in text
        .split_whitespace()
        .filter(|word| !["-", ">", "->", "<->"].contains(word))
    {
        if let Some(end) = end(word) {
            ends.push(end);
        } else if protocol.is_some() {
            return Err(wrong());
        } else if PROTOCOLS.contains(&word) {
            protocol = Some(word.to_owned());
        } else {
            let number: u8 = word.parse().map_err(|_| wrong())?;
            protocol = Some(format!("proto {number}"));
        }
    }
    let [(a, from), (b, to)] = ends[..] else {
        return Err(wrong());
    };
    if a.is_ipv4() != b.is_ipv4() || from.is_some() != to.is_some() {
        return Err(wrong());
    }
    Ok(between((a, from), (b, to), protocol.as_deref()))
}

/// Expression of tcpdump for the packets between two ends, both directions.
pub fn between(
    (a, from): (std::net::IpAddr, Option<u16>),
    (b, to): (std::net::IpAddr, Option<u16>),
    protocol: Option<&str>,
) -> String {
    let side = |way: &str, address, port: Option<u16>| {
        let port = port.map_or(String::new(), |port| format!(" and {way} port {port}"));
        format!("{way} host {address}{port}")
    };
    let one = |a, from, b, to| format!("({} and {})", side("src", a, from), side("dst", b, to));
    let both = format!("({} or {})", one(a, from, b, to), one(b, to, a, from));
    match protocol {
        Some(protocol) => format!("({protocol} and {both})"),
        None => both,
    }
}

/// Address and port of one end of a conversation.
fn end(word: &str) -> Option<(std::net::IpAddr, Option<u16>)> {
    match word.parse::<std::net::SocketAddr>() {
        Ok(end) => Some((end.ip(), Some(end.port()))),
        Err(_) => Some((word.parse().ok()?, None)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversations_become_expressions_of_both_directions() {
        let both = "(tcp and ((src host 10.1.2.3 and src port 443 and dst host 10.9.9.9 and dst port 40000) or \
                    (src host 10.9.9.9 and src port 40000 and dst host 10.1.2.3 and dst port 443)))";
        for text in [
            "10.1.2.3:443 10.9.9.9:40000 tcp",
            "tcp 10.1.2.3:443 -> 10.9.9.9:40000",
            " 10.1.2.3:443  10.9.9.9:40000\ttcp ",
        ] {
            assert_eq!(flow(text).as_deref(), Ok(both), "{text}");
        }
        let plain = "(icmp6 and ((src host 2001:db8::1 and dst host 2001:db8::2) or (src host 2001:db8::2 and dst host 2001:db8::1)))";
        assert_eq!(flow("2001:db8::1 2001:db8::2 icmp6").as_deref(), Ok(plain));
        assert!(
            flow("[2001:db8::1]:53 [2001:db8::2]:4000 udp")
                .unwrap()
                .contains("src host 2001:db8::1 and src port 53")
        );
        assert!(
            flow("10.0.0.1 10.0.0.2 47")
                .unwrap()
                .starts_with("(proto 47 and ")
        );
        assert!(
            flow("10.0.0.1:1 10.0.0.2:2")
                .unwrap()
                .starts_with("((src host ")
        );
        for text in [
            "",
            "10.0.0.1",
            "10.0.0.1 10.0.0.2 10.0.0.3",
            "10.0.0.1:1 10.0.0.2 tcp",
            "10.0.0.1 ::1",
            "a b tcp",
            "10.0.0.1 10.0.0.2 tcp udp",
            "10.0.0.1 10.0.0.2 300",
        ] {
            assert!(flow(text).is_err(), "{text}");
        }
    }
}
