//! Traffic whose diagnosis is known: connections, DNS dialogues, scans, floods and storms, mixed into ordinary traffic.
//!
//! A [`Plan`] says how many of each there are, and [`Traffic`] makes their frames in the order of time. Each fact of [`Known`] is
//! counted where it is decided, and no frame is read for it. The same plan gives the same frames.
//!
//! Clients and scanners have addresses of 10.144.0.0/12, servers and targets of 198.19.0.0/16; ordinary traffic, that of a
//! [`Generator`], has others: of 10.0.0.0/9, 100.64.0.0/10 and 198.18.0.0/16. Deliberately not done: IPv6, TCP options, several segments in flight but where a segment overtakes another.
//!
//! ```
//! use weir_generator::FRAME_MAX;
//! use weir_generator::known::{Plan, Scan, Traffic};
//!
//! let scan = Scan { peers: 254, ..Scan::default() };
//! let mut traffic = Traffic::new(&Plan { scans: vec![scan], ..Plan::default() })?;
//! let mut buf = [0; FRAME_MAX];
//! let mut frames = 0;
//! while let Some(made) = traffic.next(&mut buf) {
//!     frames += u64::from(made.len >= 60);
//! }
//! assert_eq!(traffic.known().frames, frames);
//! assert_eq!(traffic.known().scanners[0].peers, 254);
//! # Ok::<(), weir_generator::Error>(())
//! ```

mod connection;
mod dialogue;
mod scan;
mod storm;
mod wire;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::frame::Noise;
use crate::random::{Random, hash};
use crate::{Error, FRAME_MAX, Generated, Generator, Profile};
use connection::Connection;
use dialogue::Dialogue;
use scan::{Flooding, Scanning};
use storm::Storming;

// Domains of the seed, different from those of ordinary traffic.
const CONNECTIONS: u64 = 32;
const DIALOGUES: u64 = 33;
const FLOODS: u64 = 34;
const NOISE: u64 = 35;

const MILLISECOND: i64 = 1_000_000;

/// Numbers and times of the traffic to make. By default there is none.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Seed of times, lengths and contents.
    pub seed: u64,
    /// Time of the first frame at the earliest, ns since the epoch.
    pub start_ns: i64,
    /// Time over which connections and dialogues begin, ns.
    pub span_ns: i64,
    /// Ordinary traffic, with times and a seed of its own.
    pub ordinary: Option<Profile>,
    /// TCP connections.
    pub connections: Connections,
    /// DNS queries and their answers.
    pub dialogues: Dialogues,
    /// Port scans, each with sources of its own.
    pub scans: Vec<Scan>,
    /// Floods of connection requests, each with a target of its own.
    pub floods: Vec<Flood>,
    /// Storms, each with a sender of its own.
    pub storms: Vec<Storm>,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            seed: 1,
            start_ns: 1_700_000_000_000_000_000,
            span_ns: 1_000_000_000,
            ordinary: None,
            connections: Connections::default(),
            dialogues: Dialogues::default(),
            scans: Vec::new(),
            floods: Vec::new(),
            storms: Vec::new(),
        }
    }
}

/// TCP connections: handshake, requests and responses, and an end. The troubles fall on the first connections, one after another; a
/// connection has at most one trouble of each kind.
#[derive(Clone, Copy, Debug, Default)]
pub struct Connections {
    /// Number of connections, at most 2^22.
    pub count: u32,
    /// Number of connections in which a segment of the server is sent again after 250 ms.
    pub retransmissions: u32,
    /// Number of connections in which a segment of the server overtakes the one before it.
    pub reordered: u32,
    /// Number of connections whose client closes its window for 300 ms.
    pub zero_windows: u32,
    /// Number of connections that the client resets, instead of a FIN of both sides.
    pub resets: u32,
}

/// DNS queries over UDP, each from a port of its own. The first are slow, the next fail, and the
/// rest stay unanswered.
#[derive(Clone, Copy, Debug)]
pub struct Dialogues {
    /// Number of queries, at most 2^22.
    pub count: u32,
    /// Number of queries whose answer takes `slow_ns`; others take 5 to 30 ms.
    pub slow: u32,
    /// Number of queries that are answered with SERVFAIL or NXDOMAIN.
    pub failing: u32,
    /// Number of queries without an answer.
    pub unanswered: u32,
    /// Time that slow answers take, ns.
    pub slow_ns: i64,
}

impl Default for Dialogues {
    fn default() -> Self {
        Self {
            count: 0,
            slow: 0,
            failing: 0,
            unanswered: 0,
            slow_ns: 1_500 * MILLISECOND,
        }
    }
}

/// A scan by connection requests: each port of each peer is asked once. One peer makes it vertical, one port horizontal, a long gap
/// slow, several sources distributed.
#[derive(Clone, Copy, Debug)]
pub struct Scan {
    /// Number of sources, at most `peers` and 256; each asks some of the peers.
    pub sources: u32,
    /// Number of peers, 1 to 32 768.
    pub peers: u32,
    /// Number of ports, 1 to 65 535, from port 1 on.
    pub ports: u32,
    /// Time of the first request, ns after the start of the plan.
    pub begin_ns: i64,
    /// Time between two requests, ns, at least 4.
    pub gap_ns: i64,
    /// Of a thousand ports, the number that accept, and the number that refuse. The others do not answer.
    pub accepting: u32,
    /// See `accepting`.
    pub refusing: u32,
}

impl Default for Scan {
    fn default() -> Self {
        Self {
            sources: 1,
            peers: 1,
            ports: 1,
            begin_ns: 0,
            gap_ns: MILLISECOND,
            accepting: 50,
            refusing: 150,
        }
    }
}

/// Connection requests to one port of one target, none of which is answered.
#[derive(Clone, Copy, Debug)]
pub struct Flood {
    /// Number of frames.
    pub frames: u32,
    /// Number of source addresses, 1 to 524 288, drawn at random if there are several.
    pub sources: u32,
    /// Time of the first frame, ns after the start of the plan.
    pub begin_ns: i64,
    /// Time between two frames, ns.
    pub gap_ns: i64,
}

/// Frames to all stations.
#[derive(Clone, Copy, Debug)]
pub struct Storm {
    /// Kind of the frames.
    pub kind: StormKind,
    /// Number of frames.
    pub frames: u32,
    /// Time of the first frame, ns after the start of the plan.
    pub begin_ns: i64,
    /// Time between two frames, ns.
    pub gap_ns: i64,
}

/// Kind of a storm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StormKind {
    /// ARP requests, each for another address.
    Arp,
    /// UDP datagrams to 255.255.255.255.
    Broadcast,
}

/// Facts about the traffic made so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Known {
    /// Number of all frames.
    pub frames: u64,
    /// Bytes of all frames, without FCS.
    pub bytes: u64,
    /// Number of frames of ordinary traffic.
    pub ordinary: u64,
    /// TCP connections.
    pub connections: ConnectionFacts,
    /// DNS dialogues.
    pub dialogues: DialogueFacts,
    /// Sources of scans, in the order of the plan.
    pub scanners: Vec<Scanner>,
    /// Floods, in the order of the plan.
    pub floods: Vec<Flooded>,
    /// Number of ARP requests of storms.
    pub arp: u64,
    /// Number of broadcast datagrams of storms.
    pub broadcasts: u64,
}

/// Facts about connections; numbers of connections unless noted otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionFacts {
    /// Connections whose handshake is complete.
    pub established: u64,
    /// Connections that ended with a FIN of both sides.
    pub finished: u64,
    /// Connections that were reset.
    pub reset: u64,
    /// Segments that were sent again.
    pub retransmissions: u64,
    /// Segments that arrived after the next segment.
    pub reordered: u64,
    /// Acknowledgements with a window of zero.
    pub zero_windows: u64,
    /// Bytes of payload of clients and of servers, each byte counted once.
    pub payload: [u64; 2],
}

/// Facts about DNS dialogues, numbers of messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DialogueFacts {
    /// Queries.
    pub queries: u64,
    /// Answers.
    pub answers: u64,
    /// Answers that took as long as a slow one takes.
    pub slow: u64,
    /// Answers that tell a failure.
    pub failing: u64,
    /// Queries without an answer.
    pub unanswered: u64,
    /// Time between queries and their answers, ns, added up.
    pub waited_ns: i64,
}

/// Facts about a source of a scan. A contact is a peer with a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scanner {
    /// Address of the source.
    pub source: [u8; 4],
    /// Different peers.
    pub peers: u64,
    /// Different ports.
    pub ports: u64,
    /// Different contacts; each was asked once.
    pub contacts: u64,
    /// Contacts that accepted.
    pub accepted: u64,
    /// Contacts that refused.
    pub refused: u64,
}

impl Scanner {
    /// Contacts that did not answer.
    pub fn unanswered(&self) -> u64 {
        self.contacts - self.accepted - self.refused
    }
}

/// Facts about a flood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flooded {
    /// Address of the target.
    pub target: [u8; 4],
    /// Port of the target.
    pub port: u16,
    /// Frames.
    pub frames: u64,
    /// Different source addresses.
    pub sources: u64,
}

/// Makes the frames of a plan, in the order of time.
///
/// **Cost**: [`Traffic::new`] allocates some hundred bytes for each connection, dialogue, scan,
/// flood and storm. [`Traffic::next`] allocates nothing; it moves in a heap of all that
/// still have frames.
#[derive(Debug)]
pub struct Traffic {
    actors: Vec<Actor>,
    /// Time of the next frame of each actor, and its number; the earliest is on top.
    due: BinaryHeap<Reverse<(i64, u32)>>,
    noise: Noise,
    known: Known,
}

/// A source of frames in the order of time.
#[derive(Debug)]
enum Actor {
    Ordinary(Box<Generator>),
    Connection(Connection),
    Dialogue(Dialogue),
    Scanning(Scanning),
    Flooding(Flooding),
    Storming(Storming),
}

impl Actor {
    /// Time of the next frame; `None` if there is none.
    fn due(&self) -> Option<i64> {
        match self {
            Self::Ordinary(generator) => generator.due(),
            Self::Connection(it) => it.due(),
            Self::Dialogue(it) => it.due(),
            Self::Scanning(it) => it.due(),
            Self::Flooding(it) => it.due(),
            Self::Storming(it) => it.due(),
        }
    }

    /// Writes the next frame and returns its length.
    fn write(&mut self, buf: &mut [u8; FRAME_MAX], noise: &Noise, known: &mut Known) -> usize {
        match self {
            Self::Ordinary(generator) => {
                known.ordinary += 1;
                generator.next(buf).map_or(0, |made| made.len)
            }
            Self::Connection(it) => it.write(buf, noise, &mut known.connections),
            Self::Dialogue(it) => it.write(buf, &mut known.dialogues),
            Self::Scanning(it) => it.write(buf, noise, &mut known.scanners),
            Self::Flooding(it) => it.write(buf, noise, &mut known.floods),
            Self::Storming(it) => it.write(buf, known),
        }
    }
}

impl Traffic {
    /// Prepares the traffic.
    ///
    /// **Errors**: a profile of ordinary traffic that is invalid. **Panics**: a number of the plan is outside its range.
    pub fn new(plan: &Plan) -> Result<Self, Error> {
        let mut known = Known::default();
        let mut actors = Vec::new();
        if let Some(profile) = &plan.ordinary {
            actors.push(Actor::Ordinary(Box::new(Generator::beside(profile)?)));
        }
        let begin = |number: u32, count: u32, seed: u64| {
            let each = plan.span_ns / i64::from(count.max(1));
            plan.start_ns + each * i64::from(number) + (seed % 1024) as i64
        };
        let Connections { count, .. } = plan.connections;
        assert!(count <= 1 << 22, "at most 2^22 connections");
        for number in 0..count {
            let seed = hash(plan.seed, CONNECTIONS, number.into());
            let connection =
                Connection::new(&plan.connections, number, begin(number, count, seed), seed);
            actors.push(Actor::Connection(connection));
        }
        let Dialogues { count, .. } = plan.dialogues;
        assert!(count <= 1 << 22, "at most 2^22 dialogues");
        for number in 0..count {
            let seed = hash(plan.seed, DIALOGUES, number.into());
            let dialogue = Dialogue::new(&plan.dialogues, number, begin(number, count, seed), seed);
            actors.push(Actor::Dialogue(dialogue));
        }
        for scan in &plan.scans {
            let scanning = Scanning::new(scan, plan.start_ns, &mut known.scanners);
            actors.push(Actor::Scanning(scanning));
        }
        for (number, flood) in (0..).zip(&plan.floods) {
            let seed = hash(plan.seed, FLOODS, number);
            let flooding = Flooding::new(flood, plan.start_ns, seed, &mut known.floods);
            actors.push(Actor::Flooding(flooding));
        }
        for (number, storm) in (0..).zip(&plan.storms) {
            actors.push(Actor::Storming(Storming::new(storm, plan.start_ns, number)));
        }
        let due = (0..).zip(&actors);
        let due = due.filter_map(|(number, actor)| Some(Reverse((actor.due()?, number))));
        Ok(Self {
            due: due.collect(),
            actors,
            noise: Noise::new(Random::new(plan.seed, NOISE)),
            known,
        })
    }

    /// Time of the next frame; `None` if all are made.
    pub(crate) fn due(&self) -> Option<i64> {
        self.due.peek().map(|Reverse((time_ns, _))| *time_ns)
    }

    /// Writes the next frame to the start of `buf`; `None` if all are made. Bytes after the frame
    /// are unspecified. The frame belongs to no flow of a [`Profile`], not even an ordinary one.
    pub fn next(&mut self, buf: &mut [u8; FRAME_MAX]) -> Option<Generated> {
        let Reverse((time_ns, number)) = self.due.pop()?;
        let actor = &mut self.actors[number as usize];
        let len = actor.write(buf, &self.noise, &mut self.known);
        self.known.frames += 1;
        self.known.bytes += len as u64;
        if let Some(due) = actor.due() {
            self.due.push(Reverse((due, number)));
        }
        Some(Generated {
            time_ns,
            len,
            flow: None,
        })
    }

    /// Facts about the frames made so far.
    pub fn known(&self) -> &Known {
        &self.known
    }
}
