//! Arguments of `weir query`.

use super::names::NameArgs;
use super::{LINES, LineArgs, OutputArgs, PACKETS, SOURCES, WORK, WallArgs, fitted};
use crate::numbers::parse_time;
use clap::Args;
use std::time::Duration;
use weir_engine::name::Name;
use weir_messages::moment::Moment;

const TIMES: &str = "From which time";

const EXAMPLES: &str = "\
Examples:
  weir query /var/cap                           all packets, one line each
  weir query /var/cap 'host 10.1.2.3' --last 5m those of a host in the last five minutes
  weir query /var/cap 'udp port 53' --from 05:30 --to 05:31 -w dns.pcapng
                                                a minute of today, into a file
  weir query /var/cap --around 05:30:07 --flow '10.1.2.3:443 10.9.9.9:40000 tcp'
                                                a conversation, 10 s before to 10 s after that time
  weir query /var/cap --last 1h --flows         the largest conversations of the last hour
  weir query /var/cap tcp --count --explain     how many, and what was read to know it
  weir query /var/cap icmp --follow             and go on with packets that come now

T is a time with date and zone (2026-11-23T05:30:00Z, '2026-11-23 05:30+01:00'), a local one ('2026-11-23 05:30', or 05:30 for
today; a date alone is where its day begins), seconds since 1970 (1795412174.5), or a time before now (-5m, '5m ago'). Of a time
that clocks show twice because they are set back, --from means the first and --to the second; one that they never show is refused.

The index says which blocks of the record can hold a match; the rest is not read. Packets come in the order of their times. While a
recorder writes to DIR, the packets that it has only in memory are part of the answer: they follow in the order in which they came.

Exit codes:
  0  done, or nobody reads the output any more
  1  the record or the output failed; what was good was delivered
  2  the command is wrong; nothing was done";

/// `weir query`
#[derive(Args, Debug)]
#[command(after_help = fitted(EXAMPLES))]
pub struct QueryArgs {
    /// Directory that weir record has written
    #[arg(value_name = "DIR")]
    pub directory: Name,
    /// tcpdump expression; without it, or if it is '', every packet matches
    #[arg(value_name = "EXPR", default_value = "", hide_default_value = true)]
    pub expression: String,

    /// No packets before this time
    #[arg(help_heading = TIMES, long, value_name = "T", value_parser = moment, allow_hyphen_values = true)]
    pub from: Option<Moment>,
    /// No packets after this time
    #[arg(help_heading = TIMES, long, value_name = "T", value_parser = moment, allow_hyphen_values = true)]
    pub to: Option<Moment>,
    /// Only packets of this much time before now: 500ms, 10s, 5m
    #[arg(help_heading = TIMES, long, value_name = "TIME", value_parser = last, allow_hyphen_values = true, conflicts_with_all = ["from", "to", "around"])]
    pub last: Option<Duration>,
    /// Only packets around this time: see --within
    #[arg(help_heading = TIMES, long, value_name = "T", value_parser = moment, allow_hyphen_values = true, conflicts_with_all = ["from", "to"])]
    pub around: Option<Moment>,
    /// How far from --around
    #[arg(help_heading = TIMES, long, value_name = "TIME", value_parser = parse_time, default_value = "10s", requires = "around")]
    pub within: Duration,

    /// Only packets of this conversation, in both directions: two ends and a protocol, as weir measure shows them:
    /// '10.1.2.3:443 10.9.9.9:40000 tcp', '[2001:db8::1]:53 [2001:db8::2]:4000 udp', '10.1.2.3 10.9.9.9 icmp'.
    /// Behind one or two VLAN tags too
    #[arg(help_heading = PACKETS, long, value_name = "FLOW", value_parser = flow)]
    pub flow: Option<String>,
    /// Keep the packets that do not match
    #[arg(help_heading = PACKETS, long)]
    pub invert: bool,
    /// Judge the packet inside tunnels, as weir filter --inner does; the index is of no use then
    #[arg(help_heading = PACKETS, long)]
    pub inner: bool,
    /// Stop after N matching packets
    #[arg(help_heading = PACKETS, short = 'c', value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub stop_after: Option<u64>,
    #[command(flatten)]
    pub names: NameArgs,

    /// Print only how many packets match
    #[arg(help_heading = LINES, long, conflicts_with_all = ["write", "link_header", "hex", "hex_ascii"])]
    pub count: bool,
    /// Print the largest conversations, as weir measure --key conversation does
    #[arg(help_heading = LINES, long, conflicts_with_all = ["count", "invert", "follow", "link_header", "hex", "hex_ascii", "time", "stop_after"])]
    pub flows: bool,
    /// With --flows: rows of the table
    #[arg(help_heading = LINES, long, value_name = "N", default_value_t = 10, requires = "flows")]
    pub top: usize,
    /// How to print them as lines.
    #[command(flatten)]
    pub lines: LineArgs,
    /// Times in UTC instead of local time, here and on the command line
    #[arg(help_heading = LINES, long)]
    pub utc: bool,
    /// One JSON object per packet and one for the summary; with --count or --flows only one
    #[arg(help_heading = LINES, long, conflicts_with = "write")]
    pub json: bool,

    /// Where to write them.
    #[command(flatten)]
    pub output: OutputArgs,

    /// Go on with the packets that the recorder of DIR receives from now on, until interrupted
    #[arg(help_heading = SOURCES, long, conflicts_with = "to")]
    pub follow: bool,

    /// Say on standard error which segments and blocks were read, and why
    #[arg(help_heading = WORK, long)]
    pub explain: bool,
    /// Threads that filter [default: one per core]
    #[arg(help_heading = WORK, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub workers: Option<u16>,
    /// Say on standard error how the work was done
    #[arg(help_heading = WORK, long)]
    pub stats: bool,
    /// What confines the process.
    #[command(flatten, next_help_heading = WORK)]
    pub walls: WallArgs,
}

fn last(text: &str) -> Result<Duration, String> {
    match text.strip_prefix('-') {
        Some(time) => Err(format!(
            "'{text}' is before now already: write --last {time}, or --from {text}"
        )),
        None => parse_time(text),
    }
}

fn moment(text: &str) -> Result<Moment, String> {
    let moment = Moment(text.to_owned());
    // The form is checked here, so that the message names the option, and so in UTC, whose clocks show each time once.
    moment.ns(
        jiff::Timestamp::UNIX_EPOCH + jiff::SignedDuration::from_hours(1_000_000),
        &jiff::tz::TimeZone::UTC,
    )?;
    Ok(moment)
}

/// Expression of tcpdump for the packets of a conversation, both directions.
fn flow(text: &str) -> Result<String, String> {
    const PROTOCOLS: [&str; 9] = [
        "tcp", "udp", "sctp", "icmp", "icmp6", "igmp", "esp", "ah", "pim",
    ];
    let wrong = || format!("'{text}' is no conversation: write '10.1.2.3:443 10.9.9.9:40000 tcp'");
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
    let side = |way: &str, address, port: Option<u16>| {
        let port = port.map_or(String::new(), |port| format!(" and {way} port {port}"));
        format!("{way} host {address}{port}")
    };
    let one = |a, from, b, to| format!("({} and {})", side("src", a, from), side("dst", b, to));
    let both = format!("({} or {})", one(a, from, b, to), one(b, to, a, from));
    Ok(protocol.map_or(both.clone(), |protocol| format!("({protocol} and {both})")))
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
