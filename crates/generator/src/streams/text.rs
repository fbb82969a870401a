//! Reads the text of a profile.

use super::{FLOWS_MAX, Payload, Profile, Stack, Stream, Traffic, WEIGHTS_MAX};
use crate::known::{Connections, Dialogues, Flood, Plan, Scan, Storm, StormKind};
use crate::{Profile as Internet, streams::Gaps};
use std::str::FromStr;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

const KEYS: &str = "about seed packets rate gaps [[stream]] [internet] [connections]";
const STREAM: &str =
    "name weight layers size payload checksums flows zipf matches, and fields as ipv4.src";
const INTERNET: &str = "sizes flows zipf";
const CONNECTIONS: &str = "span_ms internet connections retransmissions reordered zero_windows resets dialogues slow failing unanswered \
    scan_peers scan_ports scan_sources flood_frames flood_sources arp_storm broadcast_storm";

/// A value, its key and its line.
struct Entry<'a> {
    key: &'a str,
    value: &'a DeValue<'a>,
    line: usize,
}

impl Entry<'_> {
    fn fail<T>(&self, why: impl std::fmt::Display) -> Result<T, String> {
        Err(format!("line {}: {}: {why}", self.line, self.key))
    }

    fn text(&self) -> Result<String, String> {
        match self.value.as_str() {
            Some(text) => Ok(text.to_owned()),
            None => self.fail(format!("{}: want a text in quotes", self.shown())),
        }
    }

    /// A text or a number, as text.
    fn shown(&self) -> String {
        match self.value {
            DeValue::String(text) => text.to_string(),
            DeValue::Integer(number) => match self.integer() {
                Some(number) => number.to_string(),
                None => number.as_str().to_owned(),
            },
            DeValue::Float(number) => number.as_str().to_owned(),
            DeValue::Boolean(value) => value.to_string(),
            other => format!("a value of the kind {}", other.type_str()),
        }
    }

    fn integer(&self) -> Option<u64> {
        let number = self.value.as_integer()?;
        let digits = number.as_str().replace('_', "");
        u64::from_str_radix(&digits, number.radix()).ok()
    }

    fn number(&self, from: u64, to: u64) -> Result<u64, String> {
        match self.integer().filter(|number| (from..=to).contains(number)) {
            Some(number) => Ok(number),
            None => self.fail(format!(
                "{}: want a number from {from} to {to}",
                self.shown()
            )),
        }
    }

    fn small(&self, to: u32) -> Result<u32, String> {
        self.number(0, to.into()).map(|number| number as u32)
    }

    fn float(&self, to: f64) -> Result<f64, String> {
        let number = self.shown().parse::<f64>().ok();
        match number.filter(|number| (0.0..=to).contains(number)) {
            Some(number) => Ok(number),
            None => self.fail(format!("{}: want a number from 0 to {to}", self.shown())),
        }
    }

    fn parsed<T: FromStr<Err = String>>(&self) -> Result<T, String> {
        let text = match self.value {
            DeValue::String(_) | DeValue::Integer(_) | DeValue::Float(_) => self.shown(),
            _ => self.text()?,
        };
        text.parse().or_else(|why: String| self.fail(why))
    }

    fn unknown<T>(&self, known: &str) -> Result<T, String> {
        self.fail(format!("no such key: want one of {known}"))
    }
}

/// Entries of a table in the order of the text.
fn entries<'a>(text: &str, table: &'a DeTable<'a>) -> Vec<Entry<'a>> {
    let mut found: Vec<(usize, Entry<'a>)> = table
        .iter()
        .map(|(key, value): (&Spanned<_>, _)| {
            let at = key.span().start;
            let entry = Entry {
                key: key.get_ref(),
                value: value.get_ref(),
                line: line(text, at),
            };
            (at, entry)
        })
        .collect();
    found.sort_by_key(|entry| entry.0);
    found.into_iter().map(|entry| entry.1).collect()
}

fn line(text: &str, at: usize) -> usize {
    1 + text.bytes().take(at).filter(|&byte| byte == b'\n').count()
}

/// Reads a profile.
pub(crate) fn read(text: &str) -> Result<Profile, String> {
    let document = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        let why = error.message().lines().collect::<Vec<_>>().join(", ");
        format!("line {}: {why}", line(text, at))
    })?;
    let mut profile = Profile {
        about: String::new(),
        seed: 1,
        packets: None,
        rate: Some(super::Rate::Packets(1e6)),
        gaps: Gaps::Even,
        start_ns: Internet::default().start_ns,
        traffic: Traffic::Streams(Vec::new()),
    };
    let (mut traffic, mut rate) = (Vec::new(), None);
    for entry in entries(text, document.get_ref()) {
        match entry.key {
            "about" => profile.about = entry.text()?,
            "seed" => profile.seed = entry.number(0, i64::MAX as u64)?,
            "packets" => profile.packets = Some(entry.number(1, i64::MAX as u64)?),
            "rate" => {
                profile.rate = match entry.shown().as_str() {
                    "max" => None,
                    _ => Some(entry.parsed()?),
                };
                rate = Some(entry);
            }
            "gaps" => profile.gaps = entry.parsed()?,
            "stream" | "internet" | "connections" => traffic.push(entry),
            _ => return entry.unknown(KEYS),
        }
    }
    // In the order of their names.
    traffic.sort_by_key(|entry| entry.key);
    profile.traffic = match &traffic[..] {
        [] => Traffic::Streams(Vec::new()),
        [connected, streamed] if (connected.key, streamed.key) == ("connections", "stream") => {
            let Some(wanted) = profile.rate.take() else {
                let rate = rate.expect("without the key there is a rate");
                return rate
                    .fail("max: streams beside [connections] have times: want a rate as 100kpps");
            };
            Traffic::Beside {
                streams: streams(text, streamed)?,
                rate: wanted,
                plan: connections(text, connected)?,
            }
        }
        [_, .., last] => {
            return last.fail(
                "[connections] goes with [[stream]], and has a number of internet packets of its own (internet = 1000); \
                 [internet] goes with nothing",
            );
        }
        [entry] => match entry.key {
            "stream" => Traffic::Streams(streams(text, entry)?),
            "internet" => Traffic::Internet(internet(text, entry)?),
            _ => {
                if let Some(rate) = rate {
                    return rate
                        .fail("connections have times of their own: leave it out, or name --rate");
                }
                profile.rate = None;
                Traffic::Connections(connections(text, entry)?)
            }
        },
    };
    Ok(profile)
}

fn table<'a>(entry: &Entry<'a>) -> Result<&'a DeTable<'a>, String> {
    match entry.value.as_table() {
        Some(table) => Ok(table),
        None => entry.fail(format!("want a table: [{}]", entry.key)),
    }
}

fn internet(text: &str, entry: &Entry<'_>) -> Result<Internet, String> {
    let mut internet = Internet::default();
    for entry in entries(text, table(entry)?) {
        match entry.key {
            "sizes" => {
                let sizes = entry.shown().parse();
                internet.sizes = sizes.or_else(|why: crate::Error| entry.fail(why))?;
            }
            "flows" => internet.flows = entry.number(1, 1 << 24)?,
            "zipf" => internet.zipf = entry.float(10.0)?,
            _ => return entry.unknown(INTERNET),
        }
    }
    Ok(internet)
}

fn connections(text: &str, entry: &Entry<'_>) -> Result<Plan, String> {
    const MOST: u32 = 1 << 22;
    let (mut plan, mut ordinary) = (Plan::default(), None);
    let mut connections = Connections::default();
    let mut dialogues = Dialogues::default();
    let mut scan = Scan {
        peers: 0,
        ..Scan::default()
    };
    let mut flood = Flood {
        frames: 0,
        sources: 1,
        begin_ns: 0,
        gap_ns: 100_000,
    };
    let mut storms = [(StormKind::Arp, 0), (StormKind::Broadcast, 0)];
    for entry in entries(text, table(entry)?) {
        match entry.key {
            "span_ms" => plan.span_ns = 1_000_000 * i64::from(entry.number(1, 3_600_000)? as u32),
            "internet" => ordinary = Some(entry.number(1, MOST.into())?),
            "connections" => connections.count = entry.small(MOST)?,
            "retransmissions" => connections.retransmissions = entry.small(MOST)?,
            "reordered" => connections.reordered = entry.small(MOST)?,
            "zero_windows" => connections.zero_windows = entry.small(MOST)?,
            "resets" => connections.resets = entry.small(MOST)?,
            "dialogues" => dialogues.count = entry.small(MOST)?,
            "slow" => dialogues.slow = entry.small(MOST)?,
            "failing" => dialogues.failing = entry.small(MOST)?,
            "unanswered" => dialogues.unanswered = entry.small(MOST)?,
            "scan_peers" => scan.peers = entry.small(32_768)?,
            "scan_ports" => scan.ports = entry.number(1, 65_535)? as u32,
            "scan_sources" => scan.sources = entry.number(1, 256)? as u32,
            "flood_frames" => flood.frames = entry.small(MOST)?,
            "flood_sources" => flood.sources = entry.number(1, 524_288)? as u32,
            "arp_storm" => storms[0].1 = entry.small(MOST)?,
            "broadcast_storm" => storms[1].1 = entry.small(MOST)?,
            _ => return entry.unknown(CONNECTIONS),
        }
    }
    let Connections { count, .. } = connections;
    let troubles = connections
        .retransmissions
        .max(connections.reordered)
        .max(connections.zero_windows)
        .max(connections.resets);
    if troubles > count {
        return entry.fail(format!(
            "{troubles} connections with a trouble, and {count} in all: want more connections"
        ));
    }
    let unusual =
        u64::from(dialogues.slow) + u64::from(dialogues.failing) + u64::from(dialogues.unanswered);
    if unusual > dialogues.count.into() {
        return entry.fail(format!(
            "{unusual} slow, failing or unanswered dialogues, and {} in all: want more dialogues",
            dialogues.count
        ));
    }
    if scan.sources > scan.peers.max(1) {
        return entry.fail("scan_sources: want at most as many as scan_peers");
    }
    // Spread over the span.
    plan.ordinary = ordinary.map(|packets| Internet {
        packets,
        flows: 1000,
        rate_pps: (packets * 1_000_000_000 / plan.span_ns as u64).clamp(1, 1_000_000_000),
        ..Internet::default()
    });
    (plan.connections, plan.dialogues) = (connections, dialogues);
    plan.scans.extend((scan.peers > 0).then_some(scan));
    plan.floods.extend((flood.frames > 0).then_some(flood));
    let storm = |(kind, frames)| Storm {
        kind,
        frames,
        begin_ns: 0,
        gap_ns: 100_000,
    };
    plan.storms
        .extend(storms.into_iter().filter(|storm| storm.1 > 0).map(storm));
    Ok(plan)
}

fn streams(text: &str, entry: &Entry<'_>) -> Result<Vec<Stream>, String> {
    let Some(array) = entry.value.as_array() else {
        return entry.fail("want [[stream]], with two brackets");
    };
    if array.len() > super::STREAMS_MAX {
        return entry.fail(format!(
            "{} streams: want at most {}",
            array.len(),
            super::STREAMS_MAX
        ));
    }
    let mut made: Vec<Stream> = Vec::new();
    for (i, value) in array.iter().enumerate() {
        let item = Entry {
            key: "stream",
            value: value.get_ref(),
            line: line(text, value.span().start),
        };
        let stream = stream(text, i, &item, &made)?;
        made.push(stream);
    }
    Ok(made)
}

/// One stream; `like` names an earlier one, from which it takes all that it does not say.
fn stream(text: &str, i: usize, item: &Entry<'_>, earlier: &[Stream]) -> Result<Stream, String> {
    let all = entries(text, table(item)?);
    let find = |key: &str| all.iter().find(|entry| entry.key == key);
    let name = format!("{}", i + 1);
    let mut stream = match (find("like"), find("layers")) {
        (Some(like), None) => {
            let wanted = like.text()?;
            match earlier.iter().find(|stream| stream.name == wanted) {
                Some(stream) => Stream {
                    name,
                    weight: 1,
                    matches: Vec::new(),
                    ..stream.clone()
                },
                None => return like.fail(format!("{wanted}: no earlier stream of this name")),
            }
        }
        (None, Some(layers)) => {
            let stack = Stack::read(&layers.text()?).or_else(|why| layers.fail(why))?;
            Stream::new(name, stack)
        }
        (Some(like), Some(_)) => return like.fail("a stream has layers, or is like another one"),
        (None, None) => return item.fail("no layers: want for instance layers = \"eth/ipv4/udp\""),
    };
    for entry in &all {
        match entry.key {
            "like" | "layers" => {}
            "name" => stream.name = entry.text()?,
            "weight" => stream.weight = entry.number(1, WEIGHTS_MAX)? as u32,
            "size" => stream.sizes = entry.parsed()?,
            "payload" => {
                stream.payload = entry
                    .text()?
                    .parse()
                    .or_else(|why: String| entry.fail(why))?
            }
            "checksums" => {
                stream.has_sums = match entry.shown().as_str() {
                    "right" => true,
                    "none" => false,
                    other => return entry.fail(format!("{other:?}: want \"right\" or \"none\"")),
                }
            }
            "flows" => stream.flows = Some(entry.number(1, FLOWS_MAX)?),
            "zipf" => stream.zipf = entry.float(10.0)?,
            "matches" => {
                let Some(array) = entry.value.as_array() else {
                    return entry.fail("want a list of expressions: [\"udp port 53\"]");
                };
                let text =
                    |value: &Spanned<DeValue<'_>>| value.get_ref().as_str().map(str::to_owned);
                let all: Option<Vec<String>> = array.iter().map(text).collect();
                let Some(all) = all else {
                    return entry.fail("want a list of expressions: [\"udp port 53\"]");
                };
                stream.matches = all;
            }
            _ => match entry.value.as_table() {
                Some(table) => fields(text, &mut stream, entry.key, table)?,
                None => return entry.unknown(STREAM),
            },
        }
    }
    Ok(stream)
}

/// The fields of a table: `ipv4.src = "..."` is `src` in the table `ipv4`.
fn fields(
    text: &str,
    stream: &mut Stream,
    prefix: &str,
    table: &DeTable<'_>,
) -> Result<(), String> {
    for entry in entries(text, table) {
        let name = format!("{prefix}.{}", entry.key);
        match entry.value {
            // A container of two bytes has a place of its own: at.54.2.
            DeValue::Table(inner) => fields(text, stream, &name, inner)?,
            DeValue::String(_) | DeValue::Integer(_) => {
                let set = stream.set_field(&name, &entry.shown());
                set.map_err(|why| format!("line {}: {why}", entry.line))?;
            }
            _ => {
                return Err(format!(
                    "line {}: {name}: {}: want a number, or a text in quotes",
                    entry.line,
                    entry.shown()
                ));
            }
        }
    }
    Ok(())
}

impl FromStr for Payload {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?}: want \"zeros\", \"random\", \"stamp\", \"none\", \"text:...\" or \"hex:00ff\""
            )
        };
        let hex = |text: &str| -> Option<Vec<u8>> {
            let pairs = text.as_bytes().chunks(2);
            pairs
                .map(|pair| {
                    u8::from_str_radix(
                        std::str::from_utf8(pair).ok().filter(|it| it.len() == 2)?,
                        16,
                    )
                    .ok()
                })
                .collect()
        };
        match text.split_once(':') {
            None if text == "zeros" => Ok(Self::Fixed(Vec::new())),
            None if text == "random" => Ok(Self::Random),
            None if text == "stamp" => Ok(Self::Stamp),
            None if text == "none" => Ok(Self::None),
            Some(("text", rest)) => Ok(Self::Fixed(rest.as_bytes().to_vec())),
            Some(("hex", rest)) => hex(rest).map(Self::Fixed).ok_or_else(wrong),
            _ => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_quote_the_line_the_field_and_what_would_be_right() {
        let udp = "[[stream]]\nlayers = \"eth/ipv4/udp\"\n";
        for (text, parts) in [
            ("seed = \"x\"", ["line 1: seed", "want a number"]),
            ("\nsead = 1", ["line 2: sead", "want one of about seed"]),
            ("seed = ", ["line 1", ""]),
            ("", ["no traffic", "[[stream]]"]),
            ("rate = \"fast\"", ["line 1: rate", "100kpps"]),
            ("gaps = \"odd\"", ["line 1: gaps", "exponential"]),
            ("[stream]\nsize = 60", ["line 1: stream", "two brackets"]),
            ("[[stream]]\nsize = 60", ["line 1: stream", "layers"]),
            (
                "[[stream]]\nlayers = \"eth/tcp\"",
                ["line 2: layers", "tcp cannot follow eth"],
            ),
            (&format!("{udp}size = 59"), ["line 3: size", "60 to 9000"]),
            (&format!("{udp}size = \"60-40\""), ["line 3: size", "range"]),
            (
                &format!("{udp}ipv4.ttl = 300"),
                ["line 3: ipv4.ttl = \"300\"", "0 to 255"],
            ),
            (
                &format!("{udp}ipv4.tll = 3"),
                ["line 3: ipv4.tll", "ipv4.ttl"],
            ),
            (
                &format!("{udp}ipv6.src = \"::1\""),
                ["line 3: ipv6.src", "no ipv6"],
            ),
            (
                &format!("{udp}ipv4.src = true"),
                ["line 3: ipv4.src", "text in quotes"],
            ),
            (
                &format!("{udp}sizes = 60"),
                ["line 3: sizes", "name weight layers size"],
            ),
            (
                &format!("{udp}payload = \"noise\""),
                ["line 3: payload", "\"random\""],
            ),
            (
                &format!("{udp}payload = \"hex:0g\""),
                ["line 3: payload", "hex:00ff"],
            ),
            (
                &format!("{udp}checksums = \"wrong\""),
                ["line 3: checksums", "\"none\""],
            ),
            (
                &format!("{udp}flows = 0"),
                ["line 3: flows", "1 to 4294967296"],
            ),
            (&format!("{udp}zipf = 11"), ["line 3: zipf", "0 to 10"]),
            (
                &format!("{udp}matches = \"udp\""),
                ["line 3: matches", "[\"udp port 53\"]"],
            ),
            (
                &format!("{udp}weight = 0"),
                ["line 3: weight", "1 to 65536"],
            ),
            (
                &format!("{udp}weight = 65536\n{udp}"),
                ["the weights add up to 65537", "65536"],
            ),
            (
                &format!("{udp}name = \"a\"\n{udp}name = \"a\""),
                ["two streams are named a", ""],
            ),
            (
                &format!("{udp}udp.checksum = 1"),
                ["line 3: udp.checksum", "udp.src"],
            ),
            (
                &format!("{udp}at.40.2 = \"1-9\""),
                ["stream 1: at.40.2", "checksums = \"none\""],
            ),
            (&format!("{udp}at.16 = 1"), ["stream 1: at.16", "length"]),
            (&format!("{udp}at.60 = 1"), ["stream 1: at.60", "60 bytes"]),
            (
                &format!("{udp}at.33.2 = \"1-9\""),
                ["stream 1: at.33.2", "one by one"],
            ),
            (
                &format!("{udp}ipv4.dscp = \"1-9\"\nipv4.ecn = \"0-3\""),
                ["share a byte", "constant"],
            ),
            (
                "[[stream]]\nlike = \"x\"",
                ["line 2: like", "no earlier stream"],
            ),
            ("[internet]\nflows = 0", ["line 2: flows", "16777216"]),
            ("[internet]\nsizes = 20", ["line 2: sizes", "60 to 1514"]),
            (
                "[connections]\nresets = 4",
                ["line 1: connections", "more connections"],
            ),
            ("[connections]\nfoo = 4", ["line 2: foo", "dialogues"]),
            (
                "[internet]\n[connections]",
                ["line 1: internet", "goes with nothing"],
            ),
            (
                &format!("[internet]\n{udp}\n[connections]"),
                ["line 2: stream", "goes with nothing"],
            ),
            (
                &format!("rate = \"max\"\n[connections]\n{udp}"),
                ["line 1: rate", "100kpps"],
            ),
            (
                "rate = \"1kpps\"\n[connections]",
                ["line 1: rate", "--rate"],
            ),
        ] {
            let error = Profile::read(text).unwrap_err();
            for part in parts {
                assert!(error.contains(part), "{text}\n{error}\nwithout {part:?}");
            }
            assert!(!error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn what_is_built_in_is_right() {
        for name in Profile::names() {
            let profile = Profile::built_in(name).unwrap();
            assert!(
                !profile.about.is_empty() && !profile.about.contains('\n'),
                "{name}"
            );
        }
    }
}
