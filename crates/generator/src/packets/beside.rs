//! Connections, dialogues, scans and floods, with streams among them, in time order.

use super::Packets;
use crate::FRAME_MAX;
use crate::known::{self, Plan};
use crate::streams::{Frames, Made, Profile, Traffic};

/// Expressions that tell all packets apart, but for tags and other protocols.
const KINDS: [&str; 4] = ["arp", "tcp", "udp port 53", "udp and not port 53"];

/// Packets and bytes.
type Count = (u64, u64);

/// Packets of a plan, and packets of streams until the plan's span ends.
#[derive(Debug)]
pub(super) struct Beside {
    traffic: known::Traffic,
    frame: Box<[u8; FRAME_MAX]>,
    streams: Option<Frames>,
    /// The next frame of the streams: its time and its stream, and its bytes.
    next: Option<(i64, usize)>,
    held: Vec<u8>,
    /// The last frame of the streams that the caller got.
    given: Vec<u8>,
    /// Time at which the streams end, ns since the epoch.
    end_ns: i64,
    left: u64,
    /// Counts of each of [`KINDS`], and of each stream.
    kinds: [Count; KINDS.len()],
    counts: Vec<Count>,
}

impl Beside {
    /// Prepares the packets of a profile with connections. **Errors**: what is wrong, and what would be right; a profile without them.
    pub(super) fn new(profile: &Profile) -> Result<Self, String> {
        let (plan, rate) = match &profile.traffic {
            Traffic::Connections(plan) => (plan, None),
            Traffic::Beside { plan, rate, .. } => (plan, Some(*rate)),
            _ => return Err("this traffic has no connections".to_owned()),
        };
        let Profile { seed, start_ns, .. } = *profile;
        let ordinary = plan.ordinary.clone().map(|ordinary| crate::Profile {
            seed,
            start_ns,
            ..ordinary
        });
        let plan = Plan {
            seed,
            start_ns,
            ordinary,
            ..plan.clone()
        };
        let streams = rate.map(|rate| {
            Frames::new(&Profile {
                rate: Some(rate),
                packets: None,
                ..profile.clone()
            })
        });
        let mut beside = Self {
            traffic: known::Traffic::new(&plan).map_err(|error| error.to_string())?,
            frame: Box::new([0; FRAME_MAX]),
            streams: streams.transpose()?,
            next: None,
            held: Vec::new(),
            given: Vec::new(),
            end_ns: start_ns.saturating_add(plan.span_ns),
            left: profile.packets.unwrap_or(u64::MAX),
            kinds: Default::default(),
            counts: vec![(0, 0); profile.streams().len()],
        };
        beside.hold();
        Ok(beside)
    }

    /// Makes the next frame of the streams.
    fn hold(&mut self) {
        let made = self.streams.as_mut().and_then(Frames::next);
        let made = made.filter(|made| made.time_ns < self.end_ns);
        self.next = made.as_ref().map(|made| (made.time_ns, made.stream));
        if let Some(made) = made {
            self.held.clear();
            self.held.extend_from_slice(made.frame);
        }
    }

    /// The next packet; `None` at the end. At equal times, streams are first.
    pub(super) fn next(&mut self) -> Option<Made<'_>> {
        self.left = self.left.checked_sub(1)?;
        let due = self.traffic.due();
        let streamed = self.next.filter(|(at, _)| due.is_none_or(|due| *at <= due));
        let (time_ns, stream, frame) = match streamed {
            Some((time_ns, stream)) => {
                std::mem::swap(&mut self.given, &mut self.held);
                add(&mut self.counts[stream], self.given.len());
                self.hold();
                (time_ns, stream, &self.given[..])
            }
            None => {
                let made = self.traffic.next(&mut self.frame)?;
                (made.time_ns, Packets::NO_STREAM, &self.frame[..made.len])
            }
        };
        if let Some(kind) = kind_of(frame) {
            add(&mut self.kinds[kind], frame.len());
        }
        Some(Made {
            time_ns,
            stream,
            frame,
        })
    }

    /// Expressions that tell packets apart, with packets and bytes so far.
    pub(super) fn kinds(&self) -> impl Iterator<Item = (String, u64, u64)> {
        let rows = KINDS.iter().zip(&self.kinds);
        rows.map(|(text, (packets, bytes))| ((*text).to_owned(), *packets, *bytes))
    }

    /// Packets and bytes of each stream so far.
    pub(super) fn counts(&self) -> &[Count] {
        &self.counts
    }

    /// Facts about the connections.
    pub(super) fn known(&self) -> &known::Known {
        self.traffic.known()
    }
}

fn add((packets, bytes): &mut Count, len: usize) {
    *packets += 1;
    *bytes += len as u64;
}

/// The place among [`KINDS`] of a frame, as libpcap judges it: no tag is skipped, and a later fragment has no ports.
fn kind_of(frame: &[u8]) -> Option<usize> {
    const DNS: [u8; 2] = 53u16.to_be_bytes();
    let (protocol, ports) = match frame.get(12..14)? {
        [8, 6] => return Some(0),
        [8, 0] => {
            let is_first = frame.get(20)? & 0x1f == 0 && *frame.get(21)? == 0;
            let ports = 14 + 4 * usize::from(frame.get(14)? & 15);
            (frame.get(23)?, is_first.then_some(ports))
        }
        [0x86, 0xdd] => (frame.get(20)?, Some(54)),
        _ => return None,
    };
    let is = |at: usize| frame.get(at..at + 2) == Some(&DNS);
    match protocol {
        6 => Some(1),
        17 if ports.is_some_and(|at| is(at) || is(at + 2)) => Some(2),
        17 => Some(3),
        _ => None,
    }
}
