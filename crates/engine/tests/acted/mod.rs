//! Runs drawn from a seed: what they read, what they do with it, and what happens meanwhile.

pub mod outlets;
pub mod play;
pub mod tally;
pub mod traffic;
pub mod twin;

use crate::simulated::{
    Event, MS, Packet, Random, Ring, SECOND, Script, WallSteps, Weather, ms, ring, scripts,
};
use outlets::Plan;
use std::time::Duration;
use traffic::{Content, EXPRESSIONS, Nature, RULES, content, packets};
use weir_engine::sink::Wanted;
use weir_measure::Windowing;

/// Kind of the sources of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A file, or two one after the other.
    Files,
    /// Two files, by time.
    Merged,
    /// Two files, sorted.
    Sorted,
    /// A pipe, whose bytes come in pieces.
    Stream,
    /// A capture.
    Capture,
    /// Two queues of an interface.
    Queues,
    /// Two interfaces.
    Interfaces,
}

impl Kind {
    const ALL: [Self; 7] = [
        Self::Files,
        Self::Merged,
        Self::Sorted,
        Self::Stream,
        Self::Capture,
        Self::Queues,
        Self::Interfaces,
    ];

    pub fn is_live(self) -> bool {
        self >= Self::Capture
    }
}

/// Something that happens during a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happening {
    Filter(usize),
    Rules(usize),
    /// The sink of the main output is replaced.
    Output,
    /// The run is stopped.
    Stop,
    /// The program that pulls leaves.
    Leave,
    /// The program takes the waiting batches.
    Take,
}

/// The interfaces of a capture.
pub struct Live {
    pub scripts: Vec<Script>,
    pub rings: Vec<Ring>,
    pub steps: WallSteps,
    pub length: Duration,
    pub stalls: usize,
    pub weather: Weather,
}

/// A run, before it begins.
pub struct Case {
    pub seed: u64,
    pub kind: Kind,
    /// Number of the expression.
    pub filter: usize,
    /// Numbers of the expressions of the splits, and their outputs, if they have any.
    pub splits: Vec<(usize, Option<Plan>)>,
    pub main: Option<Plan>,
    pub rules: Option<usize>,
    pub windowing: Option<Windowing>,
    /// Number of batches that the program holds, if it pulls.
    pub pull: Option<usize>,
    pub limit: Option<u64>,
    /// What happens, at the event of progress of this number, or at this time of a capture, ms.
    pub happenings: Vec<(u64, Happening)>,
    pub nature: Nature,
    /// Whether the pipe breaks at its end.
    pub breaks: bool,
    pub contents: Vec<Content>,
    pub live: Option<Live>,
    pub random: Random,
}

impl Case {
    pub fn draw(seed: u64) -> Self {
        let mut random = Random(seed);
        let kind = Kind::ALL[random.below(7)];
        let mut one_of = |odds: usize| random.below(odds) == 0;
        let nature = Nature {
            mixed: one_of(2),
            truncated: one_of(3),
            jumps: one_of(4),
            cut: one_of(4),
            damaged: one_of(5),
            gap: one_of(4),
            large: !kind.is_live() && seed % 31 == 7,
        };
        let breaks = kind == Kind::Stream && one_of(3);
        let (pulls, ruled) = (one_of(4), one_of(3));
        let measures = one_of(2);
        let limited = one_of(4);
        let mut case = Self {
            seed,
            kind,
            filter: if one_of(4) {
                0
            } else {
                random.below(EXPRESSIONS.len())
            },
            splits: Vec::new(),
            main: None,
            rules: ruled.then(|| random.below(RULES.len())),
            windowing: measures.then(|| windowing(&mut random)),
            pull: pulls.then(|| random.below(3)),
            limit: limited.then(|| 1 + random.next() % 120),
            happenings: Vec::new(),
            nature,
            breaks,
            contents: Vec::new(),
            live: None,
            random: Random(random.next()),
        };
        case.draw_outputs(&mut random);
        case.draw_happenings(&mut random);
        if kind.is_live() {
            case.live = Some(live(&mut random, kind, nature));
        } else {
            case.draw_contents(&mut random);
        }
        case
    }

    fn draw_outputs(&mut self, random: &mut Random) {
        // Half of the programs that pull have no outputs.
        let none = self.pull.is_some() && random.below(2) > 0;
        if random.below(2) == 0 && !none {
            self.main = Some(plan(random));
        }
        if random.below(2) == 0 {
            for _ in 0..1 + random.below(2) {
                let has_output = !none && random.below(4) > 0;
                let plan = has_output.then(|| plan(random));
                self.splits.push((1 + random.below(6), plan));
            }
        }
    }

    fn draw_contents(&mut self, random: &mut Random) {
        let files = match self.kind {
            Kind::Stream => 1,
            Kind::Files => 1 + random.below(2),
            _ => 2,
        };
        // Files of other interfaces, and large ones, are merged in several batches, which nobody sees from outside.
        let like = self.kind == Kind::Merged && !self.happenings.is_empty();
        self.nature.large &= !like;
        for file in 0..files {
            let packets = packets(random, self.nature, 1000 * file as u32, 200);
            let is_pcapng = !like && (self.nature.gap || random.below(3) == 0);
            let content = content(random, self.nature, is_pcapng, packets);
            self.contents.push(content);
        }
    }

    fn draw_happenings(&mut self, random: &mut Random) {
        let mut add = |odds: usize, happening: &mut dyn FnMut(&mut Random) -> Happening| {
            if random.below(odds) == 0 {
                let at = match self.kind.is_live() {
                    true => random.next() % 2000,
                    false => 1 + random.next() % 6,
                };
                let happening = happening(random);
                self.happenings.push((at, happening));
            }
        };
        for _ in 0..2 {
            add(5, &mut |random| {
                Happening::Filter(random.below(EXPRESSIONS.len()))
            });
        }
        let is_several = matches!(self.kind, Kind::Queues | Kind::Interfaces);
        if self.rules.is_some() && !is_several {
            add(2, &mut |random| Happening::Rules(random.below(RULES.len())));
        }
        if self.main.is_some() {
            add(4, &mut |_| Happening::Output);
        }
        add(4, &mut |_| Happening::Stop);
        if self.pull.is_some() {
            add(2, &mut |_| Happening::Leave);
            if self.kind.is_live() {
                let takes = (0..40).map(|turn| (turn * 97, Happening::Take));
                self.happenings.extend(takes);
            }
        }
        self.happenings.sort_by_key(|(at, _)| *at);
    }

    /// Returns the plans of the outputs, the main output first.
    pub fn plans(&self) -> Vec<Option<Plan>> {
        let splits = self.splits.iter().map(|(_, plan)| *plan);
        std::iter::once(self.main).chain(splits).collect()
    }

    /// Whether stamps of the packets are believed, and late by less than a window waits.
    pub fn is_calm(&self) -> bool {
        match &self.live {
            Some(live) => {
                let Weather {
                    steps,
                    offsets,
                    damaged,
                    disorder_ns,
                    ..
                } = live.weather;
                !(steps || offsets || damaged) && disorder_ns == 0
            }
            None => !self.nature.jumps,
        }
    }
}

/// What a reader of a failure needs.
impl core::fmt::Display for Case {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self {
            kind,
            filter,
            splits,
            main,
            rules,
            windowing,
            pull,
            limit,
            nature,
            breaks,
            ..
        } = self;
        let taken = |(_, happening): &&(u64, Happening)| *happening != Happening::Take;
        let happenings: Vec<_> = self.happenings.iter().filter(taken).collect();
        writeln!(
            f,
            "{kind:?}, filter {:?}, rules {rules:?}",
            EXPRESSIONS[*filter].0
        )?;
        writeln!(
            f,
            "main {main:?}, splits {splits:?}, pull {pull:?}, limit {limit:?}"
        )?;
        writeln!(f, "windows {windowing:?}, {happenings:?}")?;
        write!(
            f,
            "{nature:?}, breaks {breaks}, {:?}",
            self.live.as_ref().map(|live| live.weather)
        )
    }
}

fn windowing(random: &mut Random) -> Windowing {
    let window_ns = [None, Some(50 * MS), Some(330 * MS), Some(SECOND)][random.below(4)];
    Windowing {
        window_ns,
        late_ns: [0, 200 * MS][random.below(2)],
    }
}

fn plan(random: &mut Random) -> Plan {
    let mut plan = Plan::default();
    if random.below(4) == 0 {
        plan.wanted = [Wanted::Rejected, Wanted::All][random.below(2)];
    }
    match random.below(6) {
        0 => plan.most = Some(random.below(100)),
        1 => plan.fails = Some(random.below(100)),
        2 => plan.stops = Some(random.below(100)),
        _ => {}
    }
    if random.below(5) == 0 {
        plan.keeps = Some(random.below(4));
    }
    plan
}

fn live(random: &mut Random, kind: Kind, nature: Nature) -> Live {
    let sources = if kind == Kind::Capture { 1 } else { 2 };
    let length = ms(100 + random.next() % 1500);
    let weather = Weather {
        steps: nature.jumps && random.below(2) == 0,
        offsets: nature.jumps && random.below(2) == 0,
        damaged: nature.jumps && random.below(2) == 0,
        disorder_ns: if nature.jumps { SECOND } else { 0 },
        downs: nature.damaged || nature.cut,
        rejects: nature.gap,
    };
    let (mut scripts, steps) = scripts(random, sources, length, weather);
    if random.below(6) == 0 {
        let gone = length.mul_f64(random.below(100) as f64 / 100.0);
        scripts[0].push((gone, Event::Gone));
    }
    for (_, event) in scripts.iter_mut().flatten() {
        if let Event::Packet(packet) = event {
            vary(random, nature, packet);
        }
    }
    Live {
        scripts,
        rings: (0..sources).map(|_| ring(random)).collect(),
        steps,
        length: length + ms(random.next() % 500),
        stalls: [0, 0, 50, 300][random.below(4)],
        weather,
    }
}

/// Gives a packet of a script the lengths and the flow of this nature.
fn vary(random: &mut Random, nature: Nature, packet: &mut Packet) {
    packet.flow = 1 + (packet.flow & 7);
    if !nature.mixed {
        packet.bytes = 60;
    }
    if nature.truncated && random.below(3) == 0 {
        packet.kept = 14 + random.below(46);
    }
}
