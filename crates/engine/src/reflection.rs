//! Round trips between two hosts, each with a clock of its own: the other end returns frames with its times in them.
//!
//! ```text
//! t1          hand-over to the port, by the clock of this host; in the frame when it leaves
//! t2          arrival at the other end, by the clock there
//! t3          hand-over to the port there, by the clock there; t2 and t3 are in the frame when it comes back
//! t4          arrival, by the clock of this host
//! round trip  (t4 - t1) - (t3 - t2): needs no common clock
//! offset      clock there - clock here. No way takes less than no time: t3 - t4 <= offset <= t2 - t1
//! there       t2 - t1 - offset
//! back        t4 - t3 + offset
//! ```
//!
//! The bounds of all packets within a second hold together; the offset of that second is their middle, and half their distance is its error.
//! The ways there and back are known with this error and no better: a network whose ways differ looks like a clock that is wrong. If the
//! bounds exclude each other, a clock was set or runs at another speed, and the two ways are unknown.
//!
//! **Source**: RFC 8762, stateless reflector. Packets of its format are not used: a frame keeps its headers, and its length.

use crate::pairing::{Spread, now_ns, times};
use crate::port::{Port, failed};
use crate::replay::{IPV4, IPV6, after_tags, correct, is_group, word};
use crate::sink::{End, Kind, Needs, Packets, Sink, SinkReport};
use hdrhistogram::Histogram;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use weir_generator::is_of_tests;
use weir_generator::streams::{MAGIC, RETURNED, STAMP, TRIP};
use weir_packet::LinkType;
use weir_packet::savefile::{Layout, Record};

/// Length of a window with one offset, ns.
const SECOND_NS: i64 = 1_000_000_000;

/// Most packets of such a time.
const MOST: usize = 1 << 16;

/// The number of a run, by its name (FNV-1a).
pub fn run_number(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

/// Times of the other end in a timestamp that came back, of a run: arrival and departure, ns since the epoch.
pub(crate) fn times_there(stamp: &[u8], run: u64) -> Option<(i64, i64)> {
    let number = |at: usize| Some(u64::from_be_bytes(*stamp.get(at..)?.first_chunk()?));
    (number(STAMP)? == run).then_some((number(STAMP + 8)? as i64, number(STAMP + 16)? as i64))
}

/// Offset of the clock of the other end, and the ways there and back.
#[derive(Clone, Debug)]
pub struct Ways {
    /// Least and largest offset, ns: middles of the bounds of each second.
    pub offset_ns: (i64, i64),
    /// Largest error of them, ns.
    pub error_ns: i64,
    /// Way there, ns.
    pub there: Spread,
    /// Way back, ns.
    pub back: Spread,
}

/// Times of packets that came back.
#[derive(Debug)]
pub(crate) struct Trips {
    pub(crate) run: u64,
    /// Packets of this second: t2 - t1, and t4 - t3.
    pending: Vec<(i64, i64)>,
    /// Departure of the first of them.
    since_ns: i64,
    offset_ns: Option<(i64, i64)>,
    error_ns: i64,
    there: Histogram<u64>,
    back: Histogram<u64>,
    /// Whether bounds excluded each other.
    is_contradicted: bool,
}

impl Trips {
    pub(crate) fn new(run: u64) -> Self {
        Self {
            run,
            pending: Vec::with_capacity(MOST),
            since_ns: 0,
            offset_ns: None,
            error_ns: 0,
            there: times(),
            back: times(),
            is_contradicted: false,
        }
    }

    /// Takes the four times of a packet. **Cost**: no allocation.
    pub(crate) fn returns(&mut self, [t1, t2, t3, t4]: [i64; 4]) {
        if self.pending.len() == MOST || t1.saturating_sub(self.since_ns) >= SECOND_NS {
            self.settle();
        }
        if self.pending.is_empty() {
            self.since_ns = t1;
        }
        self.pending
            .push((t2.saturating_sub(t1), t4.saturating_sub(t3)));
    }

    /// Finds the offset in the second that has passed, and the ways of its packets.
    fn settle(&mut self) {
        let Some(most) = self.pending.iter().map(|it| it.0).min() else {
            return;
        };
        let least = self.pending.iter().map(|it| it.1.saturating_neg()).max();
        let least = least.unwrap_or(most);
        if least > most {
            self.is_contradicted = true;
            self.pending.clear();
            return;
        }
        let distance = most.saturating_sub(least);
        let offset = least + distance / 2;
        let (low, high) = self.offset_ns.unwrap_or((offset, offset));
        self.offset_ns = Some((low.min(offset), high.max(offset)));
        self.error_ns = self.error_ns.max(distance.saturating_add(1) / 2);
        for (there, back) in self.pending.drain(..) {
            let record = |histogram: &mut Histogram<u64>, ns: i64| {
                histogram.saturating_record(u64::try_from(ns).unwrap_or(0));
            };
            record(&mut self.there, there.saturating_sub(offset));
            record(&mut self.back, back.saturating_add(offset));
        }
    }

    /// The ways so far; `None` if nothing came back, or the bounds of the offset exclude each other.
    pub(crate) fn ways(&mut self) -> Option<Ways> {
        self.settle();
        let offset_ns = self.offset_ns.filter(|_| !self.is_contradicted)?;
        Some(Ways {
            offset_ns,
            error_ns: self.error_ns,
            there: Spread::of(&self.there),
            back: Spread::of(&self.back),
        })
    }
}

/// Counts of a sink that returns frames.
#[derive(Debug, Default)]
pub struct Turned {
    /// Frames of the run that were returned.
    pub returned: AtomicU64,
    /// Other frames.
    pub others: AtomicU64,
}

/// Sink that returns frames of a run to their senders: as many as arrive, of the same length, for a time.
pub struct ReflectSink {
    port: Port,
    run: u64,
    until: Option<Instant>,
    most: u64,
    /// The end that came with the frame before, which was taken.
    end: Option<End>,
    turned: Arc<Turned>,
    frame: Vec<u8>,
}

impl ReflectSink {
    /// Makes a sink for the run of this number. It ends after a time, or after so many frames.
    pub fn new(port: Port, run: u64, (time, most): (Option<Duration>, u64)) -> Self {
        Self {
            port,
            run,
            until: time.and_then(|time| Instant::now().checked_add(time)),
            most,
            end: (most == 0).then_some(End::Complete),
            turned: Arc::default(),
            frame: Vec::new(),
        }
    }

    /// The counts, which can be asked at any time.
    pub fn turned(&self) -> Arc<Turned> {
        Arc::clone(&self.turned)
    }

    /// Returns the end that came with the frame before.
    fn take_end(&mut self) -> Result<(), End> {
        self.end.take().map_or(Ok(()), Err)
    }

    fn turn(&mut self, layout: &Layout, record: &Record<'_>) -> Result<(), End> {
        self.take_end()?;
        let Record { frame, time_ns, .. } = record;
        let is_ethernet = layout.interfaces[frame.interface as usize].link == LinkType::ETHERNET;
        let is_whole = frame.data.len() == frame.wire_len as usize;
        let place = Place::find(frame.data, self.run).filter(|_| is_ethernet && is_whole);
        let (Some(place), &Some(time_ns)) = (place, time_ns) else {
            self.turned.others.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        };
        self.frame.clear();
        self.frame.extend_from_slice(frame.data);
        place.turn(&mut self.frame, (time_ns, now_ns()));
        // A frame that the port does not take is in its losses.
        self.end = match self.port.take(&self.frame, false) {
            Err(fault) => Some(failed(fault)),
            Ok(()) => {
                let before = self.turned.returned.fetch_add(1, Ordering::Relaxed);
                (before + 1 >= self.most).then_some(End::Complete)
            }
        };
        Ok(())
    }
}

impl Sink for ReflectSink {
    fn packet(&mut self, layout: &Layout, record: &Record<'_>) -> Result<(), End> {
        self.turn(layout, record)?;
        self.flush()?;
        self.take_end()
    }

    fn batch(&mut self, packets: &Packets<'_>) -> (u64, Result<(), End>) {
        let done = packets.hand_on(|record| self.turn(packets.layout(), record));
        let flushed = self.flush();
        (done.0, done.1.and_then(|()| self.take_end()).and(flushed))
    }

    fn needs(&self) -> Needs {
        Needs {
            ends: true,
            ..Needs::default()
        }
    }

    fn pass_time(&mut self, now: Instant) -> Result<(), End> {
        match self.until.is_some_and(|until| now >= until) {
            true => Err(End::Complete),
            false => Ok(()),
        }
    }

    fn flush(&mut self) -> Result<(), End> {
        self.port.flush().map_err(failed)
    }

    fn finish(&mut self, _: Option<&Layout>, _: bool) -> Result<(), End> {
        self.port.finish().map_err(failed)
    }

    fn report(&self) -> SinkReport {
        SinkReport {
            kind: Kind::Sent,
            // Others were handed to the sink too, and left out on purpose.
            taken: self.port.counts().sent + self.turned.others.load(Ordering::Relaxed),
            lost: self.port.lost(),
            ..SinkReport::default()
        }
    }
}

/// Places in a frame that can be returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    /// Addresses of the network layer, and their length.
    addresses: (usize, usize),
    /// The header of UDP.
    udp: usize,
}

impl Place {
    /// Finds the places in a frame of Ethernet with a UDP datagram whose payload begins with a timestamp of a run, between addresses of single
    /// stations; the sender has an address of the networks for tests.
    fn find(frame: &[u8], run: u64) -> Option<Self> {
        const UDP: u8 = 17;
        let (ethertype, at) = after_tags(frame)?;
        let header = frame.get(at..)?;
        let (addresses, udp) = match ethertype {
            IPV4 => {
                let len = usize::from(header.first()? & 15) * 4;
                let is_whole = word(header, 6)? & 0x3fff == 0;
                let is_udp = header[0] >> 4 == 4 && len >= 20 && header.get(9) == Some(&UDP);
                (is_whole && is_udp).then_some(((at + 12, 4), at + len))?
            }
            IPV6 => {
                let is_udp = header.first()? >> 4 == 6 && header.get(6) == Some(&UDP);
                is_udp.then_some(((at + 8, 16), at + 40))?
            }
            _ => return None,
        };
        let stamp = frame.get(udp + 8..)?;
        let is_ours = stamp.len() >= TRIP
            && stamp.starts_with(&MAGIC)
            && stamp[STAMP..].starts_with(&run.to_be_bytes());
        let ends = frame[addresses.0..].chunks_exact(addresses.1);
        let mut ends = ends.take(2);
        let (source, destination) = (ends.next()?, ends.next()?);
        // The lowest bit of the first byte is that of groups.
        let is_single =
            (frame[0] | frame[6]) & 1 == 0 && is_of_tests(source) && !is_group(destination);
        (is_ours && is_single).then_some(Self { addresses, udp })
    }

    /// Exchanges the ends, and writes the times of arrival and departure. Checksums follow.
    fn turn(&self, frame: &mut [u8], (arrived_ns, leaves_ns): (i64, i64)) {
        let exchange = |frame: &mut [u8], at: usize, len: usize| {
            let (one, other) = frame[at..at + 2 * len].split_at_mut(len);
            one.swap_with_slice(other);
        };
        exchange(frame, 0, 6);
        exchange(frame, self.addresses.0, self.addresses.1);
        exchange(frame, self.udp, 2);
        let (stamp, sum) = (self.udp + 8, self.udp + 6);
        let words = |frame: &[u8], complement: u16| -> u32 {
            let words = frame[stamp..stamp + TRIP].chunks_exact(2);
            let words = words.map(|it| u16::from_be_bytes([it[0], it[1]]) ^ complement);
            words.map(u32::from).sum()
        };
        let old = words(frame, !0);
        frame[stamp..stamp + 4].copy_from_slice(&RETURNED);
        let times = stamp + STAMP + 8;
        frame[times..times + 8].copy_from_slice(&arrived_ns.to_be_bytes());
        frame[times + 8..times + 16].copy_from_slice(&leaves_ns.to_be_bytes());
        let change = old + words(frame, 0);
        correct(frame, sum, change, true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_testkit::Random;

    /// Ways and a clock that are planted: the offset lies within its error, and so do the ways.
    #[test]
    fn a_planted_offset_lies_within_its_error() {
        for seed in 0..20 {
            let mut random = Random::behind(seed);
            let offset = random.below(2_000_000) as i64 - 1_000_000;
            let (there, back) = (random.below(50_000) as i64, random.below(50_000) as i64);
            let mut trips = Trips::new(1);
            let mut ways = (Vec::new(), Vec::new());
            let mut now = 1_700_000_000_000_000_000;
            for _ in 0..4000 {
                now += 1_000_000;
                let mut way = |least| least + random.below(30_000) as i64;
                let (go, stay, come) = (way(there), way(0), way(back));
                ways.0.push(go);
                ways.1.push(come);
                let t2 = now + go + offset;
                let t4 = now + go + stay + come;
                trips.returns([now, t2, t2 + stay, t4]);
            }
            let found = trips.ways().unwrap();
            assert!(found.error_ns <= (there + back) / 2 + 1000, "{found:?}");
            for middle in [found.offset_ns.0, found.offset_ns.1] {
                assert!(
                    (middle - offset).abs() <= found.error_ns,
                    "{offset}: {found:?}"
                );
            }
            for (found_way, ways) in [(found.there, &mut ways.0), (found.back, &mut ways.1)] {
                ways.sort_unstable();
                let p50 = ways[ways.len() / 2];
                let difference = (found_way.p50 as i64 - p50).abs();
                assert!(difference <= found.error_ns + p50 / 500, "{p50}: {found:?}");
                assert_eq!(found_way.count, 4000);
            }
        }
    }

    #[test]
    fn a_clock_that_was_set_leaves_no_ways() {
        let mut trips = Trips::new(1);
        assert!(trips.ways().is_none());
        trips.returns([0, 1000, 1000, 2000]);
        trips.returns([5000, 90_000, 90_000, 7000]);
        trips.returns([9000, 10_000, 10_000, 11_000]);
        assert!(trips.ways().is_none());
    }

    /// Frames of a generator come back as they are, but for the ends, the begin of the timestamp and the times, with right checksums.
    #[test]
    fn a_frame_goes_back() {
        use weir_generator::streams::{Frames, Payload, Profile};
        for layers in ["eth/ipv4/udp", "eth/vlan/ipv6/udp"] {
            let text =
                format!("packets = 50\n[[stream]]\nlayers = \"{layers}\"\nsize = \"60-300\"");
            let mut profile = Profile::read(&text).unwrap();
            let run = run_number("lab");
            profile
                .change("a round trip", |stream| stream.payload = Payload::Trip(run))
                .unwrap();
            let mut frames = Frames::new(&profile).unwrap();
            while let Some(made) = frames.next() {
                let mut frame = made.frame.to_vec();
                assert_eq!(Place::find(&frame, run_number("other")), None);
                let place = Place::find(&frame, run).expect("it is of the run");
                let sum = |frame: &[u8]| pseudo_sum(frame, place);
                assert_eq!(sum(&frame), 0xffff);
                place.turn(&mut frame, (0x0123_4567_89ab_cdef, -2));
                assert_eq!(sum(&frame), 0xffff);
                assert_eq!(Place::find(&frame, run), None, "it goes back once");
                let stamp = place.udp + 8;
                assert_eq!(
                    times_there(&frame[stamp..], run),
                    Some((0x0123_4567_89ab_cdef, -2))
                );
                assert_eq!(times_there(&frame[stamp..], run + 1), None);
                assert_eq!(frame[..12], [&made.frame[6..12], &made.frame[..6]].concat());
                assert_eq!(frame.len(), made.frame.len());
                // Cut or to a group, it does not go back.
                for end in 0..stamp + TRIP {
                    assert_eq!(Place::find(&made.frame[..end], run), None);
                }
                let mut group = made.frame.to_vec();
                group[0] |= 1;
                assert_eq!(Place::find(&group, run), None);
            }
        }
    }

    /// The sum that a right checksum makes 0xffff.
    fn pseudo_sum(frame: &[u8], place: Place) -> u16 {
        let len = u64::from(word(frame, place.udp + 4).unwrap());
        let words = |bytes: &[u8]| -> u64 {
            let words = bytes.chunks(2);
            words
                .map(|it| u64::from(it[0]) << 8 | u64::from(*it.get(1).unwrap_or(&0)))
                .sum()
        };
        let (at, one) = place.addresses;
        let mut sum = words(&frame[at..at + 2 * one]) + 17 + len;
        sum += words(&frame[place.udp..place.udp + len as usize]);
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }
}
