//! Streams of frames that are computed from numbers: any field constant, counted, ranged, drawn, listed or masked.
//!
//! A frame is a pure function of the seed, the stream and the packet's number, so that nothing is looked up: a million flows cost what one
//! costs, and workers divide the numbers among themselves. A [`Profile`] is read from a small text (TOML); some are built in.
//!
//! ```
//! use weir_generator::streams::{Frames, Profile};
//!
//! let profile = Profile::read(
//!     r#"
//!     packets = 3
//!     [[stream]]
//!     layers = "eth/ipv4/udp"
//!     ipv4.src = "198.18.0.1-198.18.0.2"
//!     "#,
//! )?;
//! let mut frames = Frames::new(&profile)?;
//! let mut last = Vec::new();
//! while let Some(made) = frames.next() {
//!     last.push(made.frame[29]);
//! }
//! assert_eq!(last, [1, 2, 1]);
//! # Ok::<(), String>(())
//! ```
//!
//! Deliberately not done: answers of a receiver, TCP options, IPv6 extension headers, fragments other than by hand.

mod compile;
mod frames;
mod ranks;
mod sizes;
mod stack;
mod text;
mod times;
mod values;

pub use frames::{Frames, Made, Stamp, read_stamp};
pub use sizes::{SIZE_MAX, SIZE_MIN, Sizes};
pub use stack::{Layer, Place, Stack};
pub use times::{Gaps, Rate, Times};
pub use values::{Kind, Order, Set, Values};

use crate::known;

/// Number of frames that are made together.
pub const BATCH: usize = 32;

/// Bytes of a timestamp in a payload: [`MAGIC`], number of the stream (4), of the packet in it (8), and time of departure in ns since the epoch (8), all
/// big-endian.
pub const STAMP: usize = 24;

/// Begin of a timestamp.
pub const MAGIC: [u8; 4] = *b"weir";

/// Bytes of a timestamp that makes a round trip: a timestamp, number of the run (8), and the times of arrival at the other end and of the
/// departure there (8 each), which the other end writes.
pub const TRIP: usize = STAMP + 24;

/// Begin of a timestamp that comes back.
pub const RETURNED: [u8; 4] = *b"riew";

/// Most streams of a profile, and the largest sum of their weights.
const STREAMS_MAX: usize = 64;
const WEIGHTS_MAX: u64 = 65_536;

/// Largest number of flows.
const FLOWS_MAX: u64 = 1 << 32;

/// Names and texts of the profiles that are built in.
const BUILT_IN: [(&str, &str); 11] = [
    ("default", include_str!("../data/profiles/default.toml")),
    ("imix", include_str!("../data/profiles/imix.toml")),
    ("mwn", include_str!("../data/profiles/mwn.toml")),
    ("64", include_str!("../data/profiles/64.toml")),
    ("1518", include_str!("../data/profiles/1518.toml")),
    ("syn-flood", include_str!("../data/profiles/syn-flood.toml")),
    ("scan", include_str!("../data/profiles/scan.toml")),
    (
        "ddos-amplification",
        include_str!("../data/profiles/ddos-amplification.toml"),
    ),
    ("zipf-1m", include_str!("../data/profiles/zipf-1m.toml")),
    (
        "align-study",
        include_str!("../data/profiles/align-study.toml"),
    ),
    (
        "connections",
        include_str!("../data/profiles/connections.toml"),
    ),
];

/// Contents of the payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// These bytes, and zeros after them.
    Fixed(Vec<u8>),
    /// Random bytes.
    Random,
    /// A timestamp, and zeros after it.
    Stamp,
    /// A timestamp that makes a round trip, of the run of this number, and zeros after it.
    Trip(u64),
    /// Nothing: the rest of the frame is padding, of which no header tells.
    None,
}

impl Payload {
    /// Bytes that a frame has at least.
    fn least(&self) -> usize {
        match self {
            Self::Stamp => STAMP,
            Self::Trip(_) => TRIP,
            _ => 0,
        }
    }

    /// Whether there is a timestamp.
    fn is_stamped(&self) -> bool {
        matches!(self, Self::Stamp | Self::Trip(_))
    }
}

/// Frames of one kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Stream {
    /// Its name in messages and answers.
    pub name: String,
    /// Its share of the packets: this part of the sum of all weights.
    pub weight: u32,
    /// The layers.
    pub stack: Stack,
    /// Names of fields, with values other than the usual.
    pub fields: Vec<(String, Values)>,
    /// Lengths of the frames.
    pub sizes: Sizes,
    /// Contents of the payload.
    pub payload: Payload,
    /// Whether checksums are right; if not, they are 0.
    pub has_sums: bool,
    /// Number of flows; without flows, each packet has values of its own.
    pub flows: Option<u64>,
    /// Zipf exponent of packets over flows; 0 for equal shares.
    pub zipf: f64,
    /// Expressions that all its frames match. Frames of a stream that does not list an expression do not match it.
    pub matches: Vec<String>,
}

/// Kinds of traffic.
#[derive(Clone, Debug)]
pub enum Traffic {
    /// Internet-like packets, of flows with tags, IPv6, ARP and fragments.
    Internet(crate::Profile),
    /// Connections, dialogues, scans and floods, at times of their own.
    Connections(known::Plan),
    /// Frames that are computed.
    Streams(Vec<Stream>),
    /// Computed frames, for as long as connections begin.
    Beside {
        /// The frames.
        streams: Vec<Stream>,
        /// Their rate.
        rate: Rate,
        /// Connections, dialogues, scans and floods, at times of their own.
        plan: known::Plan,
    },
}

/// A profile: traffic, and how much of it when.
#[derive(Clone, Debug)]
pub struct Profile {
    /// Purpose, in a line.
    pub about: String,
    /// Seed of all that is drawn.
    pub seed: u64,
    /// Number of packets; `None` for no end.
    pub packets: Option<u64>,
    /// Rate; `None` for as fast as possible, or for times of their own.
    pub rate: Option<Rate>,
    /// Gaps.
    pub gaps: Gaps,
    /// Time of the first packet, ns since the epoch.
    pub start_ns: i64,
    /// The traffic.
    pub traffic: Traffic,
}

impl Profile {
    /// Reads the text of a profile. **Errors**: one line: the line of the text, the field, and what would be right.
    pub fn read(text: &str) -> Result<Self, String> {
        let profile = text::read(text)?;
        profile.check()?;
        Ok(profile)
    }

    /// The profile of this name that is built in.
    pub fn built_in(name: &str) -> Option<Self> {
        Self::text(name).map(|text| Self::read(text).expect("what is built in is right"))
    }

    /// The text of the profile of this name that is built in.
    pub fn text(name: &str) -> Option<&'static str> {
        BUILT_IN.iter().find(|row| row.0 == name).map(|row| row.1)
    }

    /// Names of the profiles that are built in.
    pub fn names() -> impl Iterator<Item = &'static str> {
        BUILT_IN.iter().map(|row| row.0)
    }

    /// The streams; none if the traffic is of another kind.
    pub fn streams(&self) -> &[Stream] {
        match &self.traffic {
            Traffic::Streams(streams) | Traffic::Beside { streams, .. } => streams,
            _ => &[],
        }
    }

    fn streams_mut(&mut self, what: &str) -> Result<&mut [Stream], String> {
        let instead = match &mut self.traffic {
            Traffic::Streams(streams) | Traffic::Beside { streams, .. } => return Ok(streams),
            Traffic::Internet(_) => "--profile imix has some",
            Traffic::Connections(_) => {
                "its numbers are those of [connections] in a file of your own; --profile imix has streams"
            }
        };
        Err(format!("{what}: this profile has no streams: {instead}"))
    }

    /// Whether packets have times of their own, at which a rate has no part.
    pub fn has_times(&self) -> bool {
        matches!(
            self.traffic,
            Traffic::Connections(_) | Traffic::Beside { .. }
        )
    }

    /// Sets a field of all streams that have it (`ipv4.dst`), or of the stream `web` (`web/ipv4.dst`). **Errors**: what is wrong, and
    /// what would be right.
    pub fn set_field(&mut self, name: &str, values: &str) -> Result<(), String> {
        let (only, field) = match name.split_once('/') {
            Some((stream, field)) => (Some(stream), field),
            None => (None, name),
        };
        let streams = self.streams_mut(name)?;
        let chosen = |stream: &&mut Stream| only.is_none_or(|only| only == stream.name);
        let mut set = 0;
        let mut error = format!("{name}: no stream of this name");
        for stream in streams.iter_mut().filter(chosen) {
            match stream.stack.field(field) {
                Ok(_) => {
                    stream.set_field(field, values)?;
                    set += 1;
                }
                Err(why) => error = format!("{name}: {why}"),
            }
        }
        if set == 0 { Err(error) } else { self.check() }
    }

    /// Calls `change` for each stream. **Errors**: traffic without streams; what is wrong then.
    pub fn change(
        &mut self,
        what: &str,
        mut change: impl FnMut(&mut Stream),
    ) -> Result<(), String> {
        self.streams_mut(what)?.iter_mut().for_each(&mut change);
        self.check()
    }

    fn check(&self) -> Result<(), String> {
        match &self.traffic {
            Traffic::Internet(profile) => profile.check().map_err(|error| error.to_string()),
            Traffic::Connections(_) => Ok(()),
            Traffic::Streams(streams) | Traffic::Beside { streams, .. } => {
                let sum: u64 = streams.iter().map(|stream| u64::from(stream.weight)).sum();
                match streams.len() {
                    0 => {
                        return Err(
                            "no traffic: want [[stream]], [internet] or [connections]".to_owned()
                        );
                    }
                    1..=STREAMS_MAX => {}
                    count => return Err(format!("{count} streams: want at most {STREAMS_MAX}")),
                }
                if sum > WEIGHTS_MAX {
                    return Err(format!(
                        "the weights add up to {sum}: want at most {WEIGHTS_MAX}"
                    ));
                }
                for (i, stream) in streams.iter().enumerate() {
                    if streams[..i].iter().any(|other| other.name == stream.name) {
                        return Err(format!("two streams are named {}", stream.name));
                    }
                    if stream.zipf > 0.0 && stream.flows.is_none() {
                        return Err(format!(
                            "stream {}: zipf {} spreads packets over flows: name their number too",
                            stream.name, stream.zipf
                        ));
                    }
                    let tried = compile::Compiled::new(stream, i, 0);
                    tried.map_err(|why| format!("stream {}: {why}", stream.name))?;
                }
                Ok(())
            }
        }
    }
}

impl Stream {
    /// A stream of these layers, with the usual values.
    fn new(name: String, stack: Stack) -> Self {
        Self {
            name,
            weight: 1,
            stack,
            fields: Vec::new(),
            sizes: Sizes::Uniform(SIZE_MIN as u16, SIZE_MIN as u16),
            payload: Payload::Fixed(Vec::new()),
            has_sums: true,
            flows: None,
            zipf: 0.0,
            matches: Vec::new(),
        }
    }

    /// Sets a field. **Errors**: what is wrong, and what would be right.
    pub fn set_field(&mut self, name: &str, values: &str) -> Result<(), String> {
        let place = self
            .stack
            .field(name)
            .map_err(|why| format!("{name}: {why}"))?;
        let values = Values::read(values, place.kind).map_err(|why| format!("{name} = {why}"))?;
        self.fields.retain(|(other, _)| other != name);
        self.fields.push((name.to_owned(), values));
        Ok(())
    }
}
