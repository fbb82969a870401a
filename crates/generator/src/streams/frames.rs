//! Makes the frames of streams, in batches.
//!
//! ```text
//! number   packet n of the run is packet m of a stream, by a pattern that repeats: shares are exact, and n tells m
//! word     64 bits of (seed, stream, m), from which all of the packet's own values are drawn
//! flow     chosen by the word, and a word of its own, from which the values of the flow are drawn
//! columns  of each field for the packets of a batch, written into copies of the template
//! ```
//!
//! The copies stay where they are from batch to batch, since each frame writes all that varies.

use super::compile::{Compiled, Draw, Op};
use super::ranks::Ranks;
use super::times::Times;
use super::{BATCH, MAGIC, Payload, Profile, RETURNED, STAMP, Stream, Traffic};
use crate::frame::Noise;
use crate::random::{Random, hash};

// Domains of the seed.
const STREAMS: u64 = 48;
const PATTERN: u64 = 51;
const NOISE: u64 = 52;

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
    /// Other shares of the packets, which are left out: see [`Self::share`].
    shares: u64,
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
#[inline]
fn finish(sum: u64, never_zero: bool) -> u16 {
    // Adding a number to itself with its halves exchanged adds the halves, with the carry, in the upper half.
    let sum = (sum.wrapping_add(sum.rotate_left(32)) >> 32) as u32;
    let sum = !((sum.wrapping_add(sum.rotate_left(16)) >> 16) as u16);
    if never_zero && sum == 0 { 0xffff } else { sum }
}

/// Half a hash: the upper half of its product with a factor is random.
#[inline]
fn mix(x: u64) -> u64 {
    let x = x.wrapping_mul(STEP);
    x ^ (x >> 32)
}

impl Frames {
    /// Prepares the streams of a profile. **Errors**: what is wrong, and what would be right; traffic without streams.
    pub fn new(profile: &Profile) -> Result<Self, String> {
        let Traffic::Streams(streams) = &profile.traffic else {
            return Err("this traffic has no streams".to_owned());
        };
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
            shares: 1,
            is_again: false,
        })
    }

    /// Makes batches of so many packets, at most [`BATCH`]: fewer packets are made before they are due.
    pub fn set_batch(&mut self, most: usize) {
        self.most = most.clamp(1, BATCH);
    }

    /// Makes every `shares`-th batch only, from number `share` on: the shares together have the packets of the whole. They have no
    /// departure times.
    pub fn share(&mut self, share: u64, shares: u64) {
        self.times = None;
        self.next = share * BATCH as u64;
        self.shares = shares;
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
        let frames = region.chunks_exact(*stride).zip(&*len);
        for (frame, &len) in frames.take(self.made).skip(first) {
            self.given += 1;
            *packets += 1;
            *bytes += u64::from(len);
            each(&frame[..len as usize])?;
        }
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
        let count = self.end.saturating_sub(self.next).min(self.most as u64) as usize;
        (self.made, self.given) = (count, 0);
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
        self.next += count as u64 + (self.shares - 1) * BATCH as u64;
        for maker in self.makers.iter_mut().filter(|maker| maker.count > 0) {
            maker.make();
        }
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

/// Values of a batch.
#[derive(Clone, Debug)]
struct Columns {
    number: [u64; BATCH],
    word: [u64; BATCH],
    flow: [u64; BATCH],
    flow_word: [u64; BATCH],
    value: [u32; BATCH],
    /// One for each checksum, and two that are thrown away.
    sums: [[u64; BATCH]; SUMS + 2],
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
            columns: Box::new(Columns {
                number: [0; BATCH],
                word: [0; BATCH],
                flow: [0; BATCH],
                flow_word: [0; BATCH],
                value: [0; BATCH],
                sums: [[0; BATCH]; SUMS + 2],
            }),
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
        self.draw();
        self.lengths();
        self.payloads();
        let (columns, stride) = (&mut *self.columns, self.stride);
        let frames = &mut self.region[..self.count * stride];
        for op in &self.compiled.ops {
            if !draw_and_store(op, self.flows.is_some(), frames, stride, columns) {
                compute(op, self.flows.is_some(), &self.len, columns);
                if let Some((at, width)) = op.store {
                    store(frames, stride, (at, width), &columns.value);
                }
            }
        }
        for (sum, sums) in self.compiled.sums.iter().zip(&columns.sums) {
            let fields = finished(sums, sum.never_zero);
            for (frame, field) in frames.chunks_exact_mut(stride).zip(&fields) {
                frame[sum.at..sum.at + 2].copy_from_slice(&field.to_be_bytes());
            }
        }
    }

    /// Draws the words and flows.
    #[inline]
    fn draw(&mut self) {
        let columns = &mut *self.columns;
        let mut x = self.first.wrapping_add(self.key).wrapping_mul(STEP);
        let places = columns.number.iter_mut().zip(&mut columns.word);
        for (i, (number, word)) in places.take(self.count).enumerate() {
            *number = self.first.wrapping_add(i as u64);
            // The word of this number: see `mix`.
            *word = x ^ (x >> 32);
            x = x.wrapping_add(STEP);
        }
        let key = self.key ^ FLOW;
        let places = columns.flow.iter_mut().zip(&mut columns.flow_word);
        let places = places.zip(&columns.word).take(self.count);
        match &self.flows {
            None => {}
            Some(Ranks::Uniform(count)) => {
                for ((flow, flow_word), word) in places {
                    *flow = ((word.wrapping_mul(CHOICE) >> 32) * count) >> 32;
                    *flow_word = mix(flow.wrapping_add(key));
                }
            }
            Some(flows) => {
                for ((flow, flow_word), word) in places {
                    *flow = flows.pick(word.wrapping_mul(CHOICE));
                    *flow_word = mix(flow.wrapping_add(key));
                }
            }
        }
    }

    #[inline]
    fn lengths(&mut self) {
        let columns = &*self.columns;
        let lengths = &self.compiled.lengths;
        if !matches!(lengths, super::sizes::Draw::Fixed(_)) {
            for (len, word) in self.len.iter_mut().zip(&columns.word).take(self.count) {
                *len = lengths.pick(word.wrapping_mul(LENGTH)) as u32;
            }
        }
    }

    /// Begins the sums, and writes random payloads.
    #[inline]
    fn payloads(&mut self) {
        let columns = &mut *self.columns;
        let Compiled {
            sums,
            payload_at,
            payload_sums,
            ..
        } = &self.compiled;
        for (sum, values) in sums.iter().zip(&mut columns.sums) {
            values[..self.count].fill(sum.base);
        }
        let has = |i: usize| sums.get(i).is_some_and(|sum| sum.with_payload);
        let carrier = (0..SUMS).find(|&i| has(i));
        if let Some(noise) = &self.noise {
            let frames = self.region.chunks_exact_mut(self.stride).zip(&self.len);
            let frames = frames.zip(&columns.word).take(self.count);
            for (i, ((frame, &len), word)) in frames.enumerate() {
                let begin = (word.wrapping_mul(BEGIN) >> 54) as usize;
                let sum = noise.fill(&mut frame[*payload_at..len as usize], begin);
                if let Some(carrier) = carrier {
                    columns.sums[carrier][i] += u64::from(sum);
                }
            }
        } else if let (false, Some(carrier)) = (payload_sums.is_empty(), carrier) {
            for (sum, len) in columns.sums[carrier]
                .iter_mut()
                .zip(&self.len)
                .take(self.count)
            {
                *sum += u64::from(payload_sums[*len as usize - payload_at]);
            }
        }
    }
}

/// Computes and writes values that are drawn from a range and fill their container, in one pass. Returns whether the field is such.
#[inline]
fn draw_and_store(
    op: &Op,
    has_flows: bool,
    frames: &mut [u8],
    stride: usize,
    columns: &mut Columns,
) -> bool {
    let (
        &Draw::Random {
            first,
            span,
            factor,
        },
        Some((at, width)),
        0,
        0,
    ) = (&op.draw, op.store, op.shift, op.rest)
    else {
        return false;
    };
    let sums = match op.sums[..] {
        [] => [SUMS, SUMS + 1],
        [(sum, 0)] => [sum, SUMS],
        [(sum, 0), (other, 0)] => [sum, other],
        _ => return false,
    };
    let words = match has_flows && !op.each {
        true => &columns.flow_word,
        false => &columns.word,
    };
    let Ok(sums) = columns.sums.get_disjoint_mut(sums) else {
        return false;
    };
    let value =
        |word: u64| first.wrapping_add((((word.wrapping_mul(factor) >> 32) * span) >> 32) as u32);
    match width {
        1 => pass::<1>(frames, (stride, at), words, sums, value),
        2 => pass::<2>(frames, (stride, at), words, sums, value),
        _ => pass::<4>(frames, (stride, at), words, sums, value),
    }
    true
}

#[inline(always)]
fn pass<const WIDTH: usize>(
    frames: &mut [u8],
    (stride, at): (usize, usize),
    words: &[u64; BATCH],
    [one, other]: [&mut [u64; BATCH]; 2],
    value: impl Fn(u64) -> u32,
) {
    let sums = one.iter_mut().zip(other);
    for ((frame, &word), (one, other)) in frames.chunks_exact_mut(stride).zip(words).zip(sums) {
        let value = value(word);
        frame[at..at + WIDTH].copy_from_slice(&value.to_be_bytes()[4 - WIDTH..]);
        *one += u64::from(value);
        *other += u64::from(value);
    }
}

/// The checksums of sums.
#[inline]
fn finished(sums: &[u64; BATCH], never_zero: bool) -> [u16; BATCH] {
    let mut fields = [0; BATCH];
    for (field, &sum) in fields.iter_mut().zip(sums) {
        *field = finish(sum, false);
    }
    if never_zero {
        for field in &mut fields {
            *field = if *field == 0 { 0xffff } else { *field };
        }
    }
    fields
}

/// Computes the values of a field for all packets of the batch, and adds them to the sums.
#[inline]
fn compute(op: &Op, has_flows: bool, len: &[u32; BATCH], columns: &mut Columns) {
    let (numbers, words) = match has_flows && !op.each {
        true => (&columns.flow, &columns.flow_word),
        false => (&columns.number, &columns.word),
    };
    let values = &mut columns.value;
    let drawn = |word: u64, factor: u64| word.wrapping_mul(factor) >> 32;
    match &op.draw {
        &Draw::Count { first, span } if span.is_power_of_two() => {
            for (value, number) in values.iter_mut().zip(numbers) {
                *value = first.wrapping_add((number & (span - 1)) as u32);
            }
        }
        &Draw::Count { first, span } => {
            for (value, number) in values.iter_mut().zip(numbers) {
                *value = first.wrapping_add((number % span) as u32);
            }
        }
        &Draw::Random {
            first,
            span,
            factor,
        } => {
            for (value, &word) in values.iter_mut().zip(words) {
                *value = first.wrapping_add(((drawn(word, factor) * span) >> 32) as u32);
            }
        }
        &Draw::Masked {
            value: constant,
            free,
            factor,
        } => {
            for (value, &word) in values.iter_mut().zip(words) {
                *value = constant | drawn(word, factor) as u32 & free;
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
                *value = list[at as usize];
            }
        }
        &Draw::Length(less) => {
            for (value, len) in values.iter_mut().zip(len) {
                *value = len.wrapping_sub(less);
            }
        }
        &Draw::Number { high } => {
            let shift = if high { 32 } else { 0 };
            for (value, number) in values.iter_mut().zip(&columns.number) {
                *value = (number >> shift) as u32;
            }
        }
    }
    if op.shift > 0 || op.rest > 0 {
        for value in values.iter_mut() {
            *value = *value << op.shift | op.rest;
        }
    }
    for &(sum, shift) in &op.sums {
        for (sum, &value) in columns.sums[sum].iter_mut().zip(&*values) {
            *sum += u64::from(value) << shift;
        }
    }
}

/// Writes values into the frames.
#[inline]
fn store(frames: &mut [u8], stride: usize, (at, width): (usize, usize), values: &[u32; BATCH]) {
    fn write<const WIDTH: usize>(
        frames: &mut [u8],
        stride: usize,
        at: usize,
        values: &[u32; BATCH],
    ) {
        for (frame, value) in frames.chunks_exact_mut(stride).zip(values) {
            let bytes = value.to_be_bytes();
            frame[at..at + WIDTH].copy_from_slice(&bytes[4 - WIDTH..]);
        }
    }
    match width {
        1 => write::<1>(frames, stride, at, values),
        2 => write::<2>(frames, stride, at, values),
        _ => write::<4>(frames, stride, at, values),
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
