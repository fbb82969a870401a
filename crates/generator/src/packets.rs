//! The packets of any profile, whatever its traffic.

mod beside;

use crate::known;
use crate::streams::{Frames, Gaps, Made, Profile, Rate, Stamp, Times, Traffic};
use crate::{FRAME_MAX, FlowCount, Generated, Generator};
use beside::Beside;

/// Makes the packets of a profile, and knows the answers.
#[derive(Debug)]
pub struct Packets {
    maker: Maker,
    /// Times in place of the traffic's own.
    times: Option<Times>,
    /// Gaps and seed of times at another rate.
    gaps: Gaps,
    seed: u64,
    start_ns: i64,
    /// Expressions of streams: text, and the numbers of its streams.
    expressions: Vec<(String, Vec<usize>)>,
}

#[derive(Debug)]
enum Maker {
    Internet(Box<Generator>, Box<[u8; FRAME_MAX]>),
    /// Connections, with streams or none.
    Connections(Box<Beside>),
    Streams(Box<Frames>),
}

impl Packets {
    /// Stream of a packet that is of connections, dialogues, scans, floods or storms.
    pub const NO_STREAM: usize = usize::MAX;

    /// Prepares the packets of a profile. **Errors**: what is wrong, and what would be right. **Cost**: seconds for millions of flows of the
    /// internet; little for streams.
    pub fn new(profile: &Profile) -> Result<Self, String> {
        let packets = profile.packets.unwrap_or(u64::MAX);
        let other = |rate: Rate| Times::new(profile.start_ns, rate, profile.gaps, profile.seed);
        let (maker, times) = match &profile.traffic {
            Traffic::Internet(internet) => {
                let (pps, times) = match profile.rate {
                    Some(Rate::Packets(pps))
                        if pps.fract() == 0.0 && profile.gaps == Gaps::Exponential =>
                    {
                        (pps as u64, None)
                    }
                    rate => (1_000_000, rate.map(other)),
                };
                let internet = crate::Profile {
                    seed: profile.seed,
                    packets,
                    start_ns: profile.start_ns,
                    rate_pps: pps,
                    ..internet.clone()
                };
                let generator = Generator::new(&internet).map_err(|error| error.to_string())?;
                (
                    Maker::Internet(Box::new(generator), Box::new([0; FRAME_MAX])),
                    times,
                )
            }
            Traffic::Connections(_) | Traffic::Beside { .. } => {
                let maker = Maker::Connections(Box::new(Beside::new(profile)?));
                (maker, profile.rate.map(other))
            }
            Traffic::Streams(_) => (Maker::Streams(Box::new(Frames::new(profile)?)), None),
        };
        let mut expressions: Vec<(String, Vec<usize>)> = Vec::new();
        for (i, stream) in profile.streams().iter().enumerate() {
            for text in &stream.matches {
                match expressions.iter_mut().find(|row| row.0 == *text) {
                    Some(row) => row.1.push(i),
                    None => expressions.push((text.clone(), vec![i])),
                }
            }
        }
        Ok(Self {
            maker,
            times,
            gaps: profile.gaps,
            seed: profile.seed,
            start_ns: profile.start_ns,
            expressions,
        })
    }

    /// The next packet; `None` at the end. Packets of connections have stream [`Self::NO_STREAM`], and packets of the internet stream 0.
    #[inline]
    #[allow(clippy::should_implement_trait, reason = "the frame is borrowed")]
    pub fn next(&mut self) -> Option<Made<'_>> {
        let made = match &mut self.maker {
            Maker::Streams(frames) => return frames.next(),
            Maker::Internet(generator, frame) => {
                let Generated { time_ns, len, .. } = generator.next(frame)?;
                Made {
                    time_ns,
                    stream: 0,
                    frame: &frame[..len],
                }
            }
            Maker::Connections(beside) => beside.next()?,
        };
        let times = self.times.as_mut();
        Some(Made {
            time_ns: times.map_or(made.time_ns, |times| times.next(made.frame.len())),
            ..made
        })
    }

    /// Calls `each` for the next frames without their times, see [`Frames::give`]. Returns their number, 0 at the end.
    #[inline]
    pub fn give<E>(&mut self, mut each: impl FnMut(&[u8]) -> Result<(), E>) -> Result<usize, E> {
        if let Maker::Streams(frames) = &mut self.maker {
            return frames.give(each);
        }
        match self.next() {
            Some(made) => each(made.frame).map(|()| 1),
            None => Ok(0),
        }
    }

    /// Makes batches of so many packets at most, see [`Frames::set_batch`].
    pub fn set_batch(&mut self, most: usize) {
        if let Maker::Streams(frames) = &mut self.maker {
            frames.set_batch(most);
        }
    }

    /// Changes the rate: the next packet leaves at `at_ns`, or one gap later if a packet of `waiting` bytes was made and leaves then.
    pub fn set_rate(&mut self, rate: Rate, at_ns: i64, waiting: Option<usize>) {
        let mut times = Times::new(at_ns, rate, self.gaps, self.seed);
        if let Some(bytes) = waiting {
            times.next(bytes);
        }
        match &mut self.maker {
            Maker::Streams(frames) => frames.set_times(times),
            _ => self.times = Some(times),
        }
    }

    /// Goes on with other packets of the same streams: at the next number and time, with the same counts. If `again`, the last packet is
    /// made again, and has no time of its own. **Errors**: traffic without streams.
    pub fn replace(&mut self, mut other: Self, again: bool) -> Result<(), String> {
        match (&mut self.maker, &mut other.maker) {
            (Maker::Streams(frames), Maker::Streams(others)) => {
                others.follow(frames, again);
                *self = other;
                Ok(())
            }
            _ => Err("this traffic has no streams".to_owned()),
        }
    }

    /// Leaves out the packets of other workers, see [`Frames::share`]. Returns whether this traffic can be shared.
    pub fn share(&mut self, share: u64, shares: u64) -> bool {
        match &mut self.maker {
            Maker::Streams(frames) => {
                frames.share(share, shares);
                true
            }
            _ => false,
        }
    }

    /// The place of timestamps in frames of a stream.
    pub fn stamp(&self, stream: usize) -> Option<Stamp> {
        match &self.maker {
            Maker::Streams(frames) => frames.stamp(stream),
            _ => None,
        }
    }

    /// Time of the first packet of all shares, ns since the epoch.
    pub fn start_ns(&self) -> i64 {
        self.start_ns
    }

    /// Number of packets that are still to be made, if that is known: connections have an end of their own.
    pub fn remaining(&self) -> Option<u64> {
        match &self.maker {
            Maker::Internet(generator, _) => Some(generator.remaining()),
            Maker::Connections(_) => None,
            Maker::Streams(frames) => Some(frames.remaining()),
        }
    }

    /// Expressions, with the packets and bytes so far that match them.
    pub fn rows(&self) -> Vec<(String, u64, u64)> {
        let (mut rows, counts): (Vec<_>, Vec<_>) = match &self.maker {
            Maker::Internet(generator, _) => return generator.truth().rows().collect(),
            Maker::Connections(beside) => (beside.kinds().collect(), beside.counts().to_vec()),
            Maker::Streams(frames) => (Vec::new(), frames.counts().collect()),
        };
        let row = |(text, streams): &(String, Vec<usize>)| {
            let sum = |of: fn(&(u64, u64)) -> u64| streams.iter().map(|&i| of(&counts[i])).sum();
            (text.clone(), sum(|count| count.0), sum(|count| count.1))
        };
        rows.extend(self.expressions.iter().map(row));
        rows
    }

    /// Packets of each stream so far; none without streams.
    pub fn counts(&self) -> Vec<u64> {
        match &self.maker {
            Maker::Streams(frames) => frames.counts().map(|count| count.0).collect(),
            Maker::Connections(beside) => beside.counts().iter().map(|count| count.0).collect(),
            Maker::Internet(..) => Vec::new(),
        }
    }

    /// Facts about the planted connections, if the traffic has some.
    pub fn known(&self) -> Option<&known::Known> {
        match &self.maker {
            Maker::Connections(beside) => Some(beside.known()),
            _ => None,
        }
    }

    /// The flows with the most packets; none if the traffic has no table of them.
    pub fn top(&self, n: usize) -> Vec<FlowCount> {
        match &self.maker {
            Maker::Internet(generator, _) => generator.top(n),
            _ => Vec::new(),
        }
    }
}
