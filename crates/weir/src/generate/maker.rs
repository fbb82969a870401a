//! The makers of packets: a profile's, and a mix's.

use crate::cli::{GenerateArgs, MixDefault};
use crate::firewall::keys;
use anyhow::{anyhow, bail};
use std::sync::Arc;
use weir_engine::generated;
use weir_filter::Filter;
use weir_firewall::control::{Keys, seal};
use weir_generator::streams::{
    Gaps, Layer, Payload, Profile, Rate, SIZE_MAX, Sizes, Stamp, Stream, Times, Traffic,
};
use weir_generator::trains::MIXES;
use weir_generator::{
    FRAME_MAX, FlowCount, MixFrames, Packets, Profile as Internet, Sizes as InternetSizes,
};
use weir_packet::{Frame, LinkType};

/// Rate of a mix without `--rate`, and of packets that leave as fast as possible, in packet time.
const RATE: u64 = 1_000_000;

/// Packets of a profile that are compared with the expressions it claims.
const TRIED: u64 = 2000;

/// Requested packets.
#[derive(Clone)]
pub enum Wanted {
    Profile(Box<Profile>),
    Mix {
        number: u8,
        seed: u64,
        rate: Option<Rate>,
        gaps: Option<Gaps>,
        packets: u64,
        accepts: bool,
        keys: Option<Arc<Keys>>,
    },
}

/// A maker of packets.
pub struct Maker {
    kind: Kind,
    /// Number of packets made.
    pub made: u64,
    /// Whether the caller wants known answers, which count each packet that is made.
    pub has_answers: bool,
    /// Stream of the last packet.
    stream: usize,
}

enum Kind {
    Profile(Box<Packets>),
    Mix {
        frames: Box<MixFrames>,
        times: Option<Times>,
        /// Gaps and seed of times at another rate.
        gaps: (Gaps, u64),
        frame: Box<[u8; FRAME_MAX]>,
    },
}

impl Wanted {
    /// Reads the options, the profile, and the key of control packets. **Errors**: options, a profile or a key file that cannot be used.
    pub fn of(arguments: &GenerateArgs) -> anyhow::Result<Self> {
        let keys = arguments
            .control_key
            .as_ref()
            .map(keys)
            .transpose()?
            .map(Arc::new);
        Ok(match arguments.mix {
            Some(number) => Self::Mix {
                number,
                seed: arguments.seed.unwrap_or(1),
                rate: Some(Rate::Packets(RATE as f64)),
                gaps: arguments.gaps,
                packets: u64::MAX,
                accepts: arguments.mix_default == MixDefault::Accept,
                keys,
            },
            None => Self::Profile(Box::new(profile(arguments)?)),
        })
    }

    /// Whether there is a table of flows, for the largest of them.
    pub fn has_flows(&self) -> bool {
        match self {
            Self::Profile(profile) => matches!(profile.traffic, Traffic::Internet(_)),
            Self::Mix { .. } => false,
        }
    }

    /// Number of packets that the profile names.
    pub fn packets(&self) -> Option<u64> {
        match self {
            // Connections have an end of their own.
            Self::Profile(profile) if profile.has_times() => {
                Some(profile.packets.unwrap_or(u64::MAX))
            }
            Self::Profile(profile) => profile.packets,
            Self::Mix { .. } => None,
        }
    }

    /// Sets the number of packets.
    pub fn set_packets(&mut self, count: u64) {
        match self {
            Self::Profile(profile) => profile.packets = Some(count),
            Self::Mix { packets, .. } => *packets = count,
        }
    }

    /// Rate of the profile; `None` for as fast as possible, or for times of its own.
    pub fn rate(&self) -> Option<Rate> {
        match self {
            Self::Profile(profile) => profile.rate,
            Self::Mix { rate, .. } => *rate,
        }
    }

    /// Sets the rate.
    pub fn set_rate(&mut self, wanted: Option<Rate>) {
        match self {
            Self::Profile(profile) => profile.rate = wanted,
            Self::Mix { rate, .. } => *rate = wanted,
        }
    }

    /// Sets the gaps.
    pub fn set_gaps(&mut self, wanted: Gaps) {
        match self {
            Self::Profile(profile) => profile.gaps = wanted,
            Self::Mix { gaps, .. } => *gaps = Some(wanted),
        }
    }

    /// Whether packets have times, though there is no rate.
    pub fn has_times(&self) -> bool {
        matches!(self, Self::Profile(profile) if profile.has_times())
    }

    /// Whether workers can share the packets.
    pub fn can_be_shared(&self) -> bool {
        matches!(self, Self::Profile(profile) if matches!(profile.traffic, Traffic::Streams(_)))
    }

    /// Whether frames have other link addresses than the generator's.
    pub fn has_link_addresses(&self) -> bool {
        let Self::Profile(profile) = self else {
            return false;
        };
        let mut fields = profile.streams().iter().flat_map(|stream| &stream.fields);
        fields.any(|(name, _)| name.contains("eth.src") || name.contains("eth.dst"))
    }

    /// Length of the longest frame that may be made, bytes.
    pub fn longest(&self) -> usize {
        match self {
            Self::Profile(profile) if !profile.streams().is_empty() => SIZE_MAX,
            _ => FRAME_MAX,
        }
    }

    /// Has all streams carry timestamps, for a round trip of the run of a number or for one way. **Errors**: traffic without streams; a stream
    /// without room for them.
    pub fn stamp(&mut self, run: Option<u64>) -> Result<(), String> {
        let payload = run.map_or(Payload::Stamp, Payload::Trip);
        match self {
            Self::Profile(profile) if matches!(profile.traffic, Traffic::Beside { .. }) => Err(
                "packets of [connections] carry no timestamps: leave [connections] out of the profile"
                    .to_owned(),
            ),
            Self::Profile(profile) => {
                let is_returned = |stream: &Stream| {
                    let mut layers = stream.stack.layers().iter().map(|(layer, _)| *layer);
                    layers.any(|layer| layer == Layer::Udp)
                        && !layers.any(|layer| layer == Layer::Vxlan)
                };
                let other = profile.streams().iter().find(|it| !is_returned(it));
                if let (Some(_), Some(stream)) = (run, other) {
                    return Err(format!(
                        "stream '{}' has no UDP, and --reflect returns UDP alone: --profile 64 has it",
                        stream.name
                    ));
                }
                profile.change("timestamps", |stream| stream.payload = payload.clone())
            }
            Self::Mix { .. } => Err("a mix has no streams".to_owned()),
        }
    }

    /// Names of the streams.
    pub fn stream_names(&self) -> Vec<String> {
        match self {
            Self::Profile(profile) => {
                let streams = profile.streams().iter();
                streams.map(|stream| stream.name.clone()).collect()
            }
            Self::Mix { .. } => Vec::new(),
        }
    }

    /// Compares the first packets with the expressions that the profile claims. **Errors**: a wrong claim.
    pub fn check_claims(&self) -> anyhow::Result<()> {
        let Self::Profile(profile) = self else {
            return Ok(());
        };
        let streams = profile.streams();
        let mut filters: Vec<(&String, Filter)> = Vec::new();
        for text in streams.iter().flat_map(|stream| &stream.matches) {
            if filters.iter().all(|row| row.0 != text) {
                let filter = Filter::compile(text, LinkType::ETHERNET, false)
                    .map_err(|error| anyhow!("matches = [{text:?}]: {error}"))?;
                filters.push((text, filter));
            }
        }
        if filters.is_empty() {
            return Ok(());
        }
        let mut tried = (**profile).clone();
        // All packets beside the streams are compared, since each kind of them may begin late.
        if let Traffic::Beside { plan, .. } = &profile.traffic {
            let beside = Profile {
                traffic: Traffic::Connections(plan.clone()),
                ..tried.clone()
            };
            check_packets(&beside, streams, &filters)?;
            tried.traffic = Traffic::Streams(streams.to_vec());
        }
        tried.packets = Some(TRIED);
        check_packets(&tried, streams, &filters)
    }

    /// Prepares the maker. **Cost**: seconds for millions of flows of the internet, and for the warm-up of a mix.
    pub fn prepare(&self) -> Result<Maker, String> {
        let kind = match self {
            Self::Profile(profile) => Kind::Profile(Box::new(Packets::new(profile)?)),
            Self::Mix {
                number,
                seed,
                rate,
                gaps,
                packets,
                accepts,
                keys,
            } => {
                let mix = &MIXES[usize::from(*number) - 1];
                let start_ns = Internet::default().start_ns;
                let (rate_pps, times) = match (rate, gaps.unwrap_or(Gaps::Exponential)) {
                    (&Some(Rate::Packets(pps)), Gaps::Exponential) if pps.fract() == 0.0 => {
                        (pps as u64, None)
                    }
                    (&Some(rate), gaps) => (RATE, Some(Times::new(start_ns, rate, gaps, *seed))),
                    (None, _) => (RATE, None),
                };
                let mut frames = MixFrames::new(mix, *seed, *packets, start_ns, rate_pps, *accepts);
                if let Some(keys) = keys.clone() {
                    frames.sign(Box::new(move |sequence, time_ns, lines| {
                        let key = keys.iter().next().expect("a key file has a key");
                        seal(key, sequence, time_ns as u64, None, lines)
                            .expect("two lines of a table fit a packet")
                    }));
                }
                Kind::Mix {
                    frames: Box::new(frames),
                    times,
                    gaps: (gaps.unwrap_or(Gaps::Exponential), *seed),
                    frame: Box::new([0; FRAME_MAX]),
                }
            }
        };
        Ok(Maker {
            kind,
            made: 0,
            has_answers: false,
            stream: 0,
        })
    }
}

/// Compares packets with expressions that streams claim. **Errors**: a wrong claim.
fn check_packets(
    profile: &Profile,
    streams: &[Stream],
    filters: &[(&String, Filter)],
) -> anyhow::Result<()> {
    let mut packets = Packets::new(profile).map_err(|why| anyhow!(why))?;
    let mut number = 0;
    while let Some(made) = packets.next() {
        number += 1;
        let judged = [Frame {
            data: made.frame,
            wire_len: made.frame.len() as u32,
            interface: 0,
        }];
        let stream = streams.get(made.stream);
        for (text, filter) in filters {
            let (claimed, is) = (
                stream.is_some_and(|it| it.matches.contains(text)),
                filter.matches(&judged) & 1 == 1,
            );
            if claimed != is {
                let Some(Stream { name, .. }) = stream else {
                    bail!(
                        "matches = [{text:?}]: packet {number} of [connections] matches it: name the addresses of the stream in it"
                    );
                };
                let what = if claimed {
                    "does not match it"
                } else {
                    "matches it, and does not list it"
                };
                bail!("matches = [{text:?}]: packet {number}, of stream {name}, {what}");
            }
        }
    }
    Ok(())
}

/// Packets whose fields can be changed while they are sent.
pub struct Changeable {
    wanted: Wanted,
    /// Whether the expressions of the profile must stay true.
    has_claims: bool,
}

impl Changeable {
    /// Of these packets.
    pub fn new(wanted: &Wanted, has_claims: bool) -> Self {
        Self {
            wanted: wanted.clone(),
            has_claims,
        }
    }

    /// Makes the packets with another setting, `sizes` or `field`, and keeps the setting. **Errors**: the reason of a refusal.
    pub fn with(&mut self, what: &str, value: &str) -> Result<Packets, String> {
        let Wanted::Profile(profile) = &self.wanted else {
            return Err("a mix has no streams whose fields could be set".to_owned());
        };
        if profile.has_times() {
            return Err("packets beside [connections] are not changed while they leave".to_owned());
        }
        let mut profile = profile.clone();
        match what {
            "sizes" => {
                let sizes: Sizes = value.parse()?;
                profile.change("sizes", |stream| stream.sizes = sizes.clone())?;
            }
            _ => {
                let (name, values) = value
                    .split_once('=')
                    .ok_or_else(|| format!("{value}: want FIELD=VALUES, as ipv4.ttl=9"))?;
                profile.set_field(name, values)?;
            }
        }
        let packets = Packets::new(&profile)?;
        let wanted = Wanted::Profile(profile);
        if self.has_claims {
            let checked = wanted.check_claims();
            checked.map_err(|why| format!("--truth would be wrong: {why}"))?;
        }
        self.wanted = wanted;
        Ok(packets)
    }
}

/// The profile with the changes of the command line.
fn profile(arguments: &GenerateArgs) -> anyhow::Result<Profile> {
    let name = arguments.profile.as_deref().unwrap_or("default");
    let refused = |why: String| match &arguments.profile {
        Some(name) => anyhow!("--profile {name}: {why}"),
        None => anyhow!("the profile: {why}"),
    };
    let mut profile = generated::profile(name).map_err(|why| anyhow!("--profile {why}"))?;
    if let Some(seed) = arguments.seed {
        profile.seed = seed;
    }
    if let Some(gaps) = arguments.gaps {
        profile.gaps = gaps;
    }
    for field in &arguments.field {
        let Some((name, values)) = field.split_once('=') else {
            bail!("--field {field}: want FIELD=VALUES, as ipv4.dst=198.18.0.0/24:random");
        };
        profile.set_field(name, values).map_err(refused)?;
    }
    if let Traffic::Internet(internet) = &mut profile.traffic {
        if let Some(sizes) = &arguments.sizes {
            internet.sizes = of_internet(sizes)?;
        }
        internet.flows = arguments.flows.unwrap_or(internet.flows);
        internet.zipf = arguments.zipf.unwrap_or(internet.zipf);
        return Ok(profile);
    }
    let GenerateArgs { flows, zipf, .. } = *arguments;
    if let Some(sizes) = &arguments.sizes {
        let set = profile.change("--sizes", |stream| stream.sizes = sizes.clone());
        set.map_err(refused)?;
    }
    if let Some(flows) = flows {
        if !(1..=1 << 32).contains(&flows) {
            bail!("--flows {flows}: want 1 to 4294967296");
        }
        profile
            .change("--flows", |stream| stream.flows = Some(flows))
            .map_err(refused)?;
    }
    if let Some(zipf) = zipf {
        profile
            .change("--zipf", |stream| stream.zipf = zipf)
            .map_err(refused)?;
    }
    Ok(profile)
}

/// Sizes of internet traffic, which has a distribution of its own for each.
fn of_internet(sizes: &Sizes) -> anyhow::Result<InternetSizes> {
    match *sizes {
        Sizes::Mwn => Ok(InternetSizes::Mwn),
        Sizes::Uniform(60, 1514) => Ok(InternetSizes::Uniform),
        Sizes::Uniform(len, last) if len == last && usize::from(len) <= FRAME_MAX => {
            Ok(InternetSizes::Fixed(len))
        }
        _ => bail!(
            "--sizes {sizes}: internet traffic takes mwn, uniform, or a number of bytes from 60 to 1514: --profile imix takes others"
        ),
    }
}

impl Maker {
    /// Makes the next packet: its time and frame; `None` if all have been made.
    #[inline]
    pub fn next(&mut self) -> Option<(i64, &[u8])> {
        let made = match &mut self.kind {
            Kind::Profile(packets) => {
                let made = packets.next()?;
                self.stream = made.stream;
                (made.time_ns, made.frame)
            }
            Kind::Mix {
                frames,
                times,
                frame,
                ..
            } => {
                let made = frames.next(frame)?;
                let time_ns = times
                    .as_mut()
                    .map_or(made.time_ns, |times| times.next(made.len));
                (time_ns, &frame[..made.len])
            }
        };
        self.made += 1;
        Some(made)
    }

    /// Makes the next packet of streams in `frame`. Returns its time, and the place of its timestamp; `None` if all have been made.
    pub fn copy_next(&mut self, frame: &mut Vec<u8>) -> Option<(i64, Option<Stamp>)> {
        let Kind::Profile(packets) = &mut self.kind else {
            return None;
        };
        frame.clear();
        let made = packets.next()?;
        frame.extend_from_slice(made.frame);
        let (time_ns, stream) = (made.time_ns, made.stream);
        (self.made, self.stream) = (self.made + 1, stream);
        Some((time_ns, packets.stamp(stream)))
    }

    /// Stream of the last packet that was made one by one.
    pub fn stream(&self) -> usize {
        self.stream
    }

    /// Packets of each stream so far.
    pub fn counts(&self) -> Vec<u64> {
        match &self.kind {
            Kind::Profile(packets) => packets.counts(),
            Kind::Mix { .. } => Vec::new(),
        }
    }

    /// Calls `each` for the next frames without their times. Returns their number, 0 at the end.
    #[inline]
    pub fn give<E>(&mut self, mut each: impl FnMut(&[u8]) -> Result<(), E>) -> Result<usize, E> {
        let count = match &mut self.kind {
            Kind::Profile(packets) => packets.give(each)?,
            Kind::Mix { frames, frame, .. } => match frames.next(frame) {
                Some(made) => each(&frame[..made.len]).map(|()| 1)?,
                None => 0,
            },
        };
        self.made += count as u64;
        Ok(count)
    }

    /// Makes packets shortly before they are due.
    pub fn hurries_not(&mut self) {
        if let Kind::Profile(packets) = &mut self.kind {
            packets.set_batch(1);
        }
    }

    /// Changes the rate: the next packet leaves at `at_ns`, or one gap later if a packet of `waiting` bytes leaves then.
    pub fn set_rate(&mut self, rate: Rate, at_ns: i64, waiting: Option<usize>) {
        match &mut self.kind {
            Kind::Profile(packets) => packets.set_rate(rate, at_ns, waiting),
            Kind::Mix { times, gaps, .. } => {
                let mut other = Times::new(at_ns, rate, gaps.0, gaps.1);
                if let Some(bytes) = waiting {
                    other.next(bytes);
                }
                *times = Some(other);
            }
        }
    }

    /// Goes on with other packets of the same streams. If `again`, the last packet is made again.
    pub fn replace(&mut self, other: Packets, again: bool) {
        if let Kind::Profile(packets) = &mut self.kind
            && packets.replace(other, again).is_ok()
        {
            self.made -= u64::from(again);
        }
    }

    /// Leaves out the packets of other workers. Returns the time of the first of all packets, ns since the epoch.
    pub fn share(&mut self, share: u64, shares: u64) -> i64 {
        match &mut self.kind {
            Kind::Profile(packets) => {
                packets.share(share, shares);
                packets.start_ns()
            }
            Kind::Mix { .. } => 0,
        }
    }

    /// The lines of the permissions of a mix.
    pub fn table(&self) -> Option<impl Iterator<Item = String> + '_> {
        match &self.kind {
            Kind::Mix { frames, .. } => Some(frames.table()),
            Kind::Profile(_) => None,
        }
    }

    /// The known answers: expression or fate, packets and bytes.
    pub fn rows(&self) -> Vec<(String, u64, u64)> {
        match &self.kind {
            Kind::Profile(packets) => packets.rows(),
            Kind::Mix { frames, .. } => frames.rows().collect(),
        }
    }

    /// Name of what [`Self::rows`] tell about.
    pub fn rows_of(&self) -> &'static str {
        match self.kind {
            Kind::Profile(_) => "expression",
            Kind::Mix { .. } => "fate",
        }
    }

    /// The flows with most packets; a mix has none.
    pub fn top(&self, n: usize) -> Vec<FlowCount> {
        match &self.kind {
            Kind::Profile(packets) => packets.top(n),
            Kind::Mix { .. } => Vec::new(),
        }
    }
}
