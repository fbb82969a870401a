//! Makes the frames of streams, in batches.
//!
//! ```text
//! number   packet n of the run is packet m of a stream, by a pattern that repeats: shares are exact, and n tells m
//! word     64 bits of (seed, stream, m), from which all of the packet's own values are drawn
//! flow     chosen by the word, and a word of its own, from which the values of the flow are drawn
//! columns  of each field for the packets of a batch, written into copies of the template
//! ```
//!
//! The copies stay where they are from batch to batch, since each frame writes all that varies. Columns are computed in blocks of [`LANES`]
//! values, and whole blocks are written: the next batch overwrites the frames after the last frame of a batch.

use super::compile::{Compiled, Draw, Op};
use super::ranks::Ranks;
use super::times::Times;
use super::{BATCH, MAGIC, Payload, Profile, RETURNED, STAMP, Stream};
use crate::frame::Noise;
use crate::random::{Random, hash};
use weir_memory::{Work, compiled_for_newer};

// Domains of the seed.
const STREAMS: u64 = 48;
const PATTERN: u64 = 51;
const NOISE: u64 = 52;

/// Values that are computed at once, in a few vectors.
const LANES: usize = 8;

/// Distance of the shortest frames, bytes, which the compiler knows.
const SHORT: usize = 64;

/// Bytes of the noise: the longest payload, from any of 1024 words on.
const NOISE_LEN: usize = super::SIZE_MAX + 2048;

/// Factors by which a word is multiplied for a length, and for the begin of a payload.
const LENGTH: u64 = 0x9fb2_1c65_1e98_df25;
const BEGIN: u64 = 0xb492_b66f_be98_f273;

/// Factors of words: see [`mix`], and of the choice of a flow.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
const CHOICE: u64 = 0xd6e8_feb8_6659_fd93;

/// Difference between the words of flows and of packets.
const FLOW: u64 = 0xa076_1d64_78bd_642f;

/// Most checksums of a stack: two of IPv4, and one of a transport.
const SUMS: usize = 3;

/// A frame that was made.
#[derive(Clone, Copy, Debug)]
pub struct Made<'a> {
    /// Departure time, ns since the epoch.
    pub time_ns: i64,
    /// Number of the stream.
    pub stream: usize,
    /// The frame without FCS.
    pub frame: &'a [u8],
}

/// Frames of the streams of a profile.
///
/// **Cost**: no allocation for a frame; some 20 ns for one of 64 bytes with three fields, whatever the number of flows.
#[derive(Clone, Debug)]
pub struct Frames {
    makers: Vec<Maker>,
    /// Stream of each packet of the pattern, and the number of packets of this stream before it.
    pattern: Box<[(u16, u32)]>,
    /// Number of the next packet to make, and the first number after all of them.
    next: u64,
    end: u64,
    times: Option<Times>,
    start_ns: i64,
    /// The batch: of each packet its stream, and its place there.
    batch: [(u16, u16); BATCH],
    made: usize,
    given: usize,
    /// Most packets of a batch.
    most: usize,
    /// The share of the packets that is made, and the number of shares: see [`Self::share`].
    share: (u64, u64),
    /// Whether the next frame has no time: see [`Self::follow`].
    is_again: bool,
}

/// One stream.
#[derive(Clone, Debug)]
struct Maker {
    compiled: Compiled,
    key: u64,
    weight: u64,
    flows: Option<Ranks>,
    noise: Option<Noise>,
    /// Place of a timestamp, and of its checksum.
    stamp: Option<Stamp>,
    stride: usize,
    /// Copies of the template, [`BATCH`] of them.
    region: Vec<u8>,
    len: [u32; BATCH],
    columns: Box<Columns>,
    /// First packet of the batch, and their number.
    first: u64,
    count: usize,
    packets: u64,
    bytes: u64,
}

/// Places of a timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// First byte of the timestamp.
    pub at: usize,
    /// First byte of the checksum that covers it, and whether 0 is sent as all ones.
    pub sum: Option<(usize, bool)>,
}

impl Stamp {
    /// Writes the time, ns since the epoch, and corrects the checksum.
    pub fn set_time(&self, frame: &mut [u8], time_ns: i64) {
        let at = self.at + 16;
        let old = words(&frame[at..at + 8]);
        frame[at..at + 8].copy_from_slice(&time_ns.to_be_bytes());
        let new = words(&frame[at..at + 8]);
        if let Some((sum, never_zero)) = self.sum {
            // RFC 1624: HC' = ~(~HC + ~m + m').
            let field = u16::from_be_bytes([frame[sum], frame[sum + 1]]);
            let total = u64::from(!field) + (4 * 0xffff - old) + new;
            let field = finish(total, never_zero);
            frame[sum..sum + 2].copy_from_slice(&field.to_be_bytes());
        }
    }
}

fn words(bytes: &[u8]) -> u64 {
    let words = bytes.chunks_exact(2);
    words
        .map(|word| u64::from(u16::from_be_bytes([word[0], word[1]])))
        .sum()
}

/// The checksum of a sum.
#[inline(always)]
fn finish(sum: u64, never_zero: bool) -> u16 {
    // Adding a number to itself with its halves exchanged adds the halves, with the carry, in the upper half.
    let sum = (sum.wrapping_add(sum.rotate_left(32)) >> 32) as u32;
    let sum = !((sum.wrapping_add(sum.rotate_left(16)) >> 16) as u16);
    if never_zero && sum == 0 { 0xffff } else { sum }
}

/// Half a hash: the upper half of its product with a factor is random.
#[inline(always)]
fn mix(x: u64) -> u64 {
    let x = x.wrapping_mul(STEP);
    x ^ (x >> 32)
}

impl Frames {
    /// Prepares the streams of a profile. **Errors**: what is wrong, and what would be right; traffic without streams.
    pub fn new(profile: &Profile) -> Result<Self, String> {
        let streams = profile.streams();
        if streams.is_empty() {
            return Err("this traffic has no streams".to_owned());
        }
        let noise = Noise::of(Random::new(profile.seed, NOISE), NOISE_LEN);
        let make = |(i, stream): (usize, &Stream)| {
            Maker::new(stream, i, hash(profile.seed, STREAMS, i as u64), &noise)
                .map_err(|why| format!("stream {}: {why}", stream.name))
        };
        let makers: Result<Vec<Maker>, String> = streams.iter().enumerate().map(make).collect();
        Ok(Self {
            makers: makers?,
            pattern: pattern(streams, profile.seed),
            next: 0,
            end: profile.packets.unwrap_or(u64::MAX),
            times: profile
                .rate
                .map(|rate| Times::new(profile.start_ns, rate, profile.gaps, profile.seed)),
            start_ns: profile.start_ns,
            batch: [(0, 0); BATCH],
            made: 0,
            given: 0,
            most: BATCH,
            share: (0, 1),
            is_again: false,
        })
    }

    /// Makes batches of so many packets, at most [`BATCH`]: fewer packets are made before they are due.
    pub fn set_batch(&mut self, most: usize) {
        self.most = most.clamp(1, BATCH);
    }

    /// Makes every `shares`-th batch only, from number `share` on: the shares together have the packets of the whole, at the times that
    /// they have there. **Cost**: with times, it also draws the lengths of all other packets.
    pub fn share(&mut self, share: u64, shares: u64) {
        self.share = (share, shares);
    }

    /// Sets the departure times of frames from now on.
    pub fn set_times(&mut self, times: Times) {
        self.times = Some(times);
    }

    /// Takes the place of the frames of another profile with the same number of streams: goes on with the next number, the times and the
    /// counts of those. If `again`, the last frame is made again with its number, and has no time: the first frame here.
    pub fn follow(&mut self, before: &mut Self, again: bool) {
        let again = again && before.given > 0;
        let unmade = (before.made - before.given) as u64 + u64::from(again);
        self.next = before.next - unmade;
        (self.end, self.most) = (before.end, before.most);
        self.times = before.times.take();
        self.is_again = again;
        for (maker, old) in self.makers.iter_mut().zip(&before.makers) {
            (maker.packets, maker.bytes) = (old.packets, old.bytes);
        }
        if again {
            let (stream, place) = before.batch[before.given - 1];
            let (stream, place) = (usize::from(stream), usize::from(place));
            if let Some(maker) = self.makers.get_mut(stream) {
                maker.packets -= 1;
                maker.bytes -= u64::from(before.makers[stream].len[place]);
            }
        }
    }

    /// Number of packets that this profile still has.
    pub fn remaining(&self) -> u64 {
        self.end.saturating_sub(self.next) + (self.made - self.given) as u64
    }

    /// The next frame; `None` at the end.
    #[inline]
    #[allow(clippy::should_implement_trait, reason = "the frame is borrowed")]
    pub fn next(&mut self) -> Option<Made<'_>> {
        if self.given == self.made {
            self.fill();
            if self.made == 0 {
                return None;
            }
        }
        let (stream, place) = self.batch[self.given];
        self.given += 1;
        let maker = &mut self.makers[usize::from(stream)];
        let len = maker.len[usize::from(place)] as usize;
        let at = usize::from(place) * maker.stride;
        let time_ns = match &mut self.times {
            Some(times) if !std::mem::take(&mut self.is_again) => times.next(len),
            _ => self.start_ns,
        };
        maker.packets += 1;
        maker.bytes += len as u64;
        if let Some(stamp) = maker.stamp {
            stamp.set_time(&mut maker.region[at..at + len], time_ns);
        }
        Some(Made {
            time_ns,
            stream: stream.into(),
            frame: &maker.region[at..at + len],
        })
    }

    /// Calls `each` for the frames of a batch, in order, without their times. Returns their number, 0 at the end. **Cost**: some 20
    /// instructions a frame less than [`Self::next`]. **Errors**: the error of `each`; later frames of the batch come with the next call.
    #[inline]
    pub fn give<E>(&mut self, mut each: impl FnMut(&[u8]) -> Result<(), E>) -> Result<usize, E> {
        if self.given == self.made {
            self.fill();
        }
        let [
            Maker {
                stamp: None,
                region,
                stride,
                len,
                packets,
                bytes,
                ..
            },
        ] = &mut self.makers[..]
        else {
            let count = self.made - self.given;
            for _ in 0..count {
                if let Some(made) = self.next() {
                    each(made.frame)?;
                }
            }
            return Ok(count);
        };
        let first = self.given;
        let mut frames = region.chunks_exact(*stride).zip(&*len);
        let mut frames = frames.by_ref().take(self.made).skip(first);
        let (mut given, mut sum) = (0, 0);
        let done = frames.try_for_each(|(frame, &len)| {
            given += 1;
            sum += u64::from(len);
            each(&frame[..len as usize])
        });
        self.given += given;
        *packets += given as u64;
        *bytes += sum;
        done?;
        Ok(self.made - first)
    }

    /// The place of the timestamps of a stream.
    pub fn stamp(&self, stream: usize) -> Option<Stamp> {
        self.makers[stream].stamp
    }

    /// Packets and bytes of each stream so far.
    pub fn counts(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.makers.iter().map(|maker| (maker.packets, maker.bytes))
    }

    /// Makes the next batch.
    fn fill(&mut self) {
        let (share, shares) = self.share;
        let mut most = self.most as u64;
        if shares > 1 {
            while self.next < self.end && (self.next / BATCH as u64) % shares != share {
                self.skip();
            }
            most = most.min(BATCH as u64 - self.next % BATCH as u64);
        }
        let count = self.end.saturating_sub(self.next).min(most) as usize;
        (self.made, self.given) = (count, 0);
        self.plan(count);
        for maker in self.makers.iter_mut().filter(|maker| maker.count > 0) {
            maker.make();
        }
    }

    /// Leaves out a batch of another share, but for its times.
    fn skip(&mut self) {
        let count = (self.end - self.next).min(BATCH as u64) as usize;
        let Some(mut times) = self.times.take() else {
            self.next += count as u64;
            return;
        };
        self.plan(count);
        for maker in self.makers.iter_mut().filter(|maker| maker.count > 0) {
            maker.draw();
            maker.lengths();
        }
        for &(stream, place) in &self.batch[..count] {
            times.next(self.makers[usize::from(stream)].len[usize::from(place)] as usize);
        }
        self.times = Some(times);
    }

    /// Chooses the streams of the next packets.
    fn plan(&mut self, count: usize) {
        let period = self.pattern.len() as u64;
        if let [maker] = &mut self.makers[..] {
            (maker.first, maker.count) = (self.next, count);
            for (place, slot) in self.batch.iter_mut().enumerate() {
                *slot = (0, place as u16);
            }
        } else {
            self.makers.iter_mut().for_each(|maker| maker.count = 0);
            let (mut cycle, mut at) = (self.next / period, (self.next % period) as usize);
            for slot in &mut self.batch[..count] {
                let (stream, before) = self.pattern[at];
                let maker = &mut self.makers[usize::from(stream)];
                if maker.count == 0 {
                    maker.first = cycle.wrapping_mul(maker.weight) + u64::from(before);
                }
                *slot = (stream, maker.count as u16);
                maker.count += 1;
                at += 1;
                if at == self.pattern.len() {
                    (cycle, at) = (cycle + 1, 0);
                }
            }
        }
        self.next += count as u64;
    }
}

/// The order of the streams: each as often as its weight, in an order that the seed chooses.
fn pattern(streams: &[Stream], seed: u64) -> Box<[(u16, u32)]> {
    let all = streams.iter().enumerate();
    let mut order: Vec<u16> = all
        .flat_map(|(i, stream)| std::iter::repeat_n(i as u16, stream.weight as usize))
        .collect();
    let mut random = Random::new(seed, PATTERN);
    for i in (1..order.len()).rev() {
        let other = (u128::from(random.next()) * (i as u128 + 1)) >> 64;
        order.swap(i, other as usize);
    }
    let mut before = vec![0; streams.len()];
    let count = |stream: u16| {
        let count = &mut before[usize::from(stream)];
        *count += 1;
        (stream, *count - 1)
    };
    order.into_iter().map(count).collect()
}

/// A value for each packet of a batch.
type Column = [[u64; LANES]; BATCH / LANES];

/// Values of a batch.
#[derive(Clone, Debug, Default)]
struct Columns {
    number: Column,
    word: Column,
    flow: Column,
    flow_word: Column,
    value: Column,
    /// One for each checksum.
    sums: [Column; SUMS],
}

impl Maker {
    fn new(stream: &Stream, index: usize, key: u64, noise: &Noise) -> Result<Self, String> {
        let compiled = Compiled::new(stream, index, key)?;
        let stride = compiled.template.len().next_multiple_of(64);
        let mut copy = compiled.template.clone();
        copy.resize(stride, 0);
        let covers = compiled.sums.iter().find(|sum| sum.with_payload);
        let stamp = Stamp {
            at: compiled.payload_at,
            sum: covers.map(|sum| (sum.at, sum.never_zero)),
        };
        let len = match compiled.lengths {
            super::sizes::Draw::Fixed(len) => len as u32,
            _ => 0,
        };
        Ok(Self {
            key,
            weight: stream.weight.into(),
            flows: stream.flows.map(|flows| Ranks::new(flows, stream.zipf)),
            noise: (stream.payload == Payload::Random).then(|| noise.clone()),
            stamp: stream.payload.is_stamped().then_some(stamp),
            stride,
            region: copy.repeat(BATCH),
            compiled,
            len: [len; BATCH],
            columns: Box::default(),
            first: 0,
            count: 0,
            packets: 0,
            bytes: 0,
        })
    }

    /// Makes the frames of a batch.
    fn make(&mut self) {
        if let Some(Stamp { at, .. }) = self.stamp {
            // The time comes when the frame leaves; the checksum is right without it.
            for frame in self.region.chunks_exact_mut(self.stride) {
                frame[at + 16..at + STAMP].fill(0);
            }
        }
        compiled_for_newer(Making(self));
    }

    /// Number of blocks of the batch.
    #[inline(always)]
    fn blocks(&self) -> usize {
        self.count.div_ceil(LANES)
    }

    /// Draws the words and flows.
    #[inline(always)]
    fn draw(&mut self) {
        let blocks = self.blocks();
        let columns = &mut *self.columns;
        let (first, key) = (self.first, self.key);
        let places = columns.number.iter_mut().zip(&mut columns.word);
        for (block, (numbers, words)) in places.take(blocks).enumerate() {
            let first = first.wrapping_add((block * LANES) as u64);
            let begin = first.wrapping_add(key).wrapping_mul(STEP);
            *numbers = std::array::from_fn(|lane| first.wrapping_add(lane as u64));
            *words = std::array::from_fn(|lane| {
                // The word of this number: see `mix`.
                let x = begin.wrapping_add(STEP.wrapping_mul(lane as u64));
                x ^ (x >> 32)
            });
        }
        let key = key ^ FLOW;
        match &self.flows {
            None => return,
            Some(Ranks::Uniform(count)) => {
                let places = columns.flow.iter_mut().zip(&columns.word);
                for (flows, words) in places.take(blocks) {
                    *flows = words.map(|word| share(word.wrapping_mul(CHOICE), *count));
                }
            }
            Some(flows) => {
                let places = columns.flow.as_flattened_mut().iter_mut();
                let places = places.zip(columns.word.as_flattened());
                for (flow, word) in places.take(self.count) {
                    *flow = flows.pick(word.wrapping_mul(CHOICE));
                }
            }
        }
        let places = columns.flow_word.iter_mut().zip(&columns.flow);
        for (words, flows) in places.take(blocks) {
            *words = flows.map(|flow| mix(flow.wrapping_add(key)));
        }
    }

    #[inline(always)]
    fn lengths(&mut self) {
        let lengths = &self.compiled.lengths;
        if !matches!(lengths, super::sizes::Draw::Fixed(_)) {
            let words = self.columns.word.as_flattened();
            for (len, word) in self.len.iter_mut().zip(words).take(self.count) {
                *len = lengths.pick(word.wrapping_mul(LENGTH)) as u32;
            }
        }
    }

    /// Begins the sums, and writes random payloads.
    #[inline(always)]
    fn payloads(&mut self) {
        let columns = &mut *self.columns;
        let Compiled {
            sums,
            payload_at,
            payload_sums,
            ..
        } = &self.compiled;
        for (sum, column) in sums.iter().zip(&mut columns.sums) {
            *column = [[sum.base; LANES]; BATCH / LANES];
        }
        let has = |i: usize| sums.get(i).is_some_and(|sum| sum.with_payload);
        let carrier = (0..SUMS).find(|&i| has(i));
        if let Some(noise) = &self.noise {
            let frames = self.region.chunks_exact_mut(self.stride).zip(&self.len);
            let frames = frames.zip(columns.word.as_flattened()).take(self.count);
            for (i, ((frame, &len), word)) in frames.enumerate() {
                let begin = (word.wrapping_mul(BEGIN) >> 54) as usize;
                let sum = noise.fill(&mut frame[*payload_at..len as usize], begin);
                if let Some(carrier) = carrier {
                    columns.sums[carrier].as_flattened_mut()[i] += u64::from(sum);
                }
            }
        } else if let (false, Some(carrier)) = (payload_sums.is_empty(), carrier) {
            let sums = columns.sums[carrier].as_flattened_mut().iter_mut();
            for (sum, len) in sums.zip(&self.len).take(self.count) {
                *sum += u64::from(payload_sums[*len as usize - payload_at]);
            }
        }
    }
}

/// The frames of a batch.
struct Making<'a>(&'a mut Maker);

impl Work for Making<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self(maker) = self;
        maker.draw();
        maker.lengths();
        maker.payloads();
        let (blocks, stride, has_flows) = (maker.blocks(), maker.stride, maker.flows.is_some());
        let columns = &mut *maker.columns;
        let frames = &mut maker.region[..blocks * LANES * stride];
        let mut fields = [[0; LANES]; BATCH / LANES];
        for op in &maker.compiled.ops {
            compute(op, has_flows, (&maker.len, blocks), columns);
            if let Some((at, width)) = op.store {
                for (fields, values) in fields.iter_mut().zip(&columns.value).take(blocks) {
                    *fields = values.map(|value| (value as u32).to_be());
                }
                store(frames, (stride, at, width), &fields);
            }
        }
        for (sum, sums) in maker.compiled.sums.iter().zip(&columns.sums) {
            for (fields, totals) in fields.iter_mut().zip(sums).take(blocks) {
                *fields = totals.map(|total| u32::from(finish(total, sum.never_zero)).to_be());
            }
            store(frames, (stride, sum.at, 2), &fields);
        }
    }
}

/// A number from 0 to `count` - 1, by the upper half of a word; `count` is from 1 to 2^32.
#[inline(always)]
fn share(word: u64, count: u64) -> u64 {
    let half = word >> 32;
    match count == 1 << 32 {
        true => half,
        // A product of two numbers of 32 bits is a single instruction.
        false => (half * u64::from(count as u32)) >> 32,
    }
}

/// Computes the values of a field for all packets of the batch, and adds them to the sums.
#[inline(always)]
fn compute(op: &Op, has_flows: bool, (len, blocks): (&[u32; BATCH], usize), columns: &mut Columns) {
    let (numbers, words) = match has_flows && !op.each {
        true => (&columns.flow, &columns.flow_word),
        false => (&columns.number, &columns.word),
    };
    let numbers = numbers[..blocks].as_flattened();
    let words = words[..blocks].as_flattened();
    let values = columns.value[..blocks].as_flattened_mut();
    let drawn = |word: u64, factor: u64| word.wrapping_mul(factor) >> 32;
    match &op.draw {
        &Draw::Count { first, span } if span.is_power_of_two() => {
            for (value, number) in values.iter_mut().zip(numbers) {
                *value = u64::from(first) + (number & (span - 1));
            }
        }
        &Draw::Count { first, span } => {
            for (value, number) in values.iter_mut().zip(numbers) {
                *value = u64::from(first) + number % span;
            }
        }
        &Draw::Random {
            first,
            span,
            factor,
        } => {
            for (value, &word) in values.iter_mut().zip(words) {
                *value = u64::from(first) + share(word.wrapping_mul(factor), span);
            }
        }
        &Draw::Masked {
            value: constant,
            free,
            factor,
        } => {
            for (value, &word) in values.iter_mut().zip(words) {
                *value = u64::from(constant) | drawn(word, factor) & u64::from(free);
            }
        }
        Draw::List {
            values: list,
            factor,
        } => {
            let count = list.len() as u64;
            for ((value, &number), &word) in values.iter_mut().zip(numbers).zip(words) {
                let at = match factor {
                    Some(factor) => (drawn(word, *factor) * count) >> 32,
                    None => number % count,
                };
                *value = list[at as usize].into();
            }
        }
        &Draw::Length(less) => {
            for (value, len) in values.iter_mut().zip(len) {
                *value = len.wrapping_sub(less).into();
            }
        }
        &Draw::Number { high } => {
            let shift = if high { 32 } else { 0 };
            let numbers = columns.number[..blocks].as_flattened();
            for (value, number) in values.iter_mut().zip(numbers) {
                *value = number >> shift & u64::from(u32::MAX);
            }
        }
    }
    if op.shift > 0 || op.rest > 0 {
        for value in values.iter_mut() {
            *value = u64::from((*value as u32) << op.shift | op.rest);
        }
    }
    for &(sum, shift) in &op.sums {
        let sums = columns.sums[sum].iter_mut();
        for (sums, values) in sums.zip(&columns.value).take(blocks) {
            *sums = std::array::from_fn(|lane| sums[lane] + (values[lane] << shift));
        }
    }
}

/// Writes the big-endian values of a field into the frames, the last bytes of each.
#[inline(always)]
fn store(
    frames: &mut [u8],
    (stride, at, width): (usize, usize, usize),
    fields: &[[u32; LANES]; BATCH / LANES],
) {
    match width {
        1 => write::<1>(frames, (stride, at), fields),
        2 => write::<2>(frames, (stride, at), fields),
        _ => write::<4>(frames, (stride, at), fields),
    }
}

#[inline(always)]
fn write<const WIDTH: usize>(
    frames: &mut [u8],
    (stride, at): (usize, usize),
    fields: &[[u32; LANES]; BATCH / LANES],
) {
    if stride == SHORT {
        let (frames, _) = frames.as_chunks_mut::<SHORT>();
        let (blocks, _) = frames.as_chunks_mut::<LANES>();
        for (block, fields) in blocks.iter_mut().zip(fields) {
            for lane in 0..LANES {
                let field = fields[lane].to_ne_bytes();
                block[lane][at..at + WIDTH].copy_from_slice(&field[4 - WIDTH..]);
            }
        }
    } else {
        let fields = fields.as_flattened();
        for (frame, field) in frames.chunks_exact_mut(stride).zip(fields) {
            frame[at..at + WIDTH].copy_from_slice(&field.to_ne_bytes()[4 - WIDTH..]);
        }
    }
}

/// Reads a timestamp at the begin of a payload: stream, packet, time. It begins with [`MAGIC`], or with [`RETURNED`] if it comes back.
pub fn read_stamp(payload: &[u8]) -> Option<(u32, u64, i64)> {
    let stamp = payload
        .get(..STAMP)
        .filter(|stamp| stamp.starts_with(&MAGIC) || stamp.starts_with(&RETURNED))?;
    let number = |at: usize| u64::from_be_bytes(stamp[at..at + 8].try_into().expect("eight bytes"));
    let stream = u32::from_be_bytes(stamp[4..8].try_into().expect("four bytes"));
    Some((stream, number(8), number(16) as i64))
}
