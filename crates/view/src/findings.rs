//! Findings: what an operator should look at, each with a begin and an end.
//!
//! A rule looks at a window and says which subjects meet it, and which would still meet it: see [`Kind`] and
//! `docs/reference/findings.md`. A finding begins when windows have met its rule for [`Kind::hold_ns`], at the begin of the first of them, and
//! ends [`QUIET_NS`] after the last window that still met it. So a figure near its threshold does not begin and end again and again.

mod rules;

/// Largest memory of the findings, bytes.
pub(crate) const MOST_MEMORY: usize = 4 << 20;

use rules::{Met, Rules};
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use weir_measure::Window;
use weir_packet::addresses::Addresses;

const SECOND: i64 = 1_000_000_000;

/// Quiet time after which a finding ends, ns.
pub const QUIET_NS: i64 = 10 * SECOND;

/// Most subjects that are watched at once, and most findings that are kept after their end.
const MOST: usize = 256;
const MOST_ENDED: usize = 64;
/// Most begins and ends that wait to be taken.
const MOST_NOTICES: usize = 1024;

/// Kind of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A source has many contacts that nobody answers.
    Scan,
    /// A host receives many packets, and hardly sends any.
    Flood,
    /// Many packets to all stations of a link.
    Storm,
    /// A DNS server is slow, or does not answer.
    SlowDns,
    /// Packets were dropped before they were measured.
    Loss,
    /// A host of the local networks sends for the first time.
    NewHost,
}

impl Kind {
    /// Name in messages and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Scan => "scan",
            Self::Flood => "flood",
            Self::Storm => "storm",
            Self::SlowDns => "slow_dns",
            Self::Loss => "loss",
            Self::NewHost => "new_host",
        }
    }

    /// Unit of the figure, in words.
    pub fn unit(self) -> &'static str {
        match self {
            Self::Scan => "unanswered contacts/s",
            Self::Flood => "packets/s received",
            Self::Storm => "broadcasts/s",
            Self::SlowDns => "s mean time, or s without an answer",
            Self::Loss => "packets dropped",
            Self::NewHost => "packets sent",
        }
    }

    /// Time for which windows must meet the rule before the finding begins, ns.
    pub fn hold_ns(self) -> i64 {
        match self {
            Self::Scan | Self::Flood => 2 * SECOND,
            Self::Storm => 3 * SECOND,
            Self::SlowDns | Self::Loss | Self::NewHost => 0,
        }
    }
}

/// State of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The finding goes on.
    Begun,
    /// No window met the rule for [`QUIET_NS`].
    Ended,
    /// The measurement ended before it.
    Open,
}

impl State {
    /// Name in messages and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Begun => "begin",
            Self::Ended => "end",
            Self::Open => "open",
        }
    }
}

/// A finding.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// Number of the finding, counted from 1 in the order of their begins.
    pub number: u64,
    /// Kind of the finding.
    pub kind: Kind,
    /// Host that it is about; `None`: the whole link.
    pub host: Option<IpAddr>,
    /// Begin of the first window that met the rule, ns since 1970.
    pub begin_ns: i64,
    /// End of the last window that still met it.
    pub last_ns: i64,
    /// Whether it has ended.
    pub state: State,
    /// Figure of the last window, in the [unit](Kind::unit) of the kind.
    pub figure: f64,
    /// Largest figure.
    pub most: f64,
    /// Figures of the row that met the rule, as text.
    pub row: String,
}

/// A subject whose rule was met.
#[derive(Debug)]
struct Watched {
    finding: Finding,
    /// Whether the finding has begun; before it, windows are counted.
    has_begun: bool,
}

/// Findings of a measurement.
#[derive(Debug)]
pub struct Findings {
    rules: Rules,
    watched: Vec<Watched>,
    ended: VecDeque<Finding>,
    notices: Vec<Finding>,
    begun: u64,
    /// Findings that were left out because there were too many at once.
    left_out: u64,
    now_ns: i64,
}

impl Findings {
    /// Creates the rules; `local` has the networks whose new hosts are findings; `None`: private and link-local networks.
    pub fn new(local: Option<Arc<Addresses>>) -> Self {
        Self {
            rules: Rules::new(local),
            watched: Vec::new(),
            ended: VecDeque::new(),
            notices: Vec::new(),
            begun: 0,
            left_out: 0,
            now_ns: i64::MIN,
        }
    }

    /// Looks at a window. Further results of a window are left out.
    pub fn add(&mut self, window: &Window<'_>) {
        let Some(span) = window.span.filter(|_| window.revision == 0) else {
            return;
        };
        if span.0 == weir_measure::Observation::NO_TIME {
            return;
        }
        // If the clock goes back, quiet times begin again.
        if span.0 < self.now_ns {
            for watched in &mut self.watched {
                let finding = &mut watched.finding;
                finding.last_ns = finding.last_ns.min(span.0);
                finding.begin_ns = finding.begin_ns.min(span.0);
            }
        }
        self.now_ns = span.1;
        for met in self.rules.look(window, span) {
            self.meet(met, span);
        }
        self.watched.retain(|watched| {
            let finding = &watched.finding;
            // Before its begin, each window must meet the rule.
            watched.has_begun || finding.last_ns >= span.1
        });
        self.end(span.1.saturating_sub(QUIET_NS), State::Ended);
    }

    fn meet(&mut self, met: Met, span: (i64, i64)) {
        let same = |watched: &Watched| {
            (watched.finding.kind, watched.finding.host) == (met.kind, met.host)
        };
        let place = self.watched.iter().position(same);
        let place = match place {
            Some(place) => place,
            None if !met.begins => return,
            None if self.watched.len() >= MOST => {
                self.left_out += 1;
                return;
            }
            None => {
                self.watched.push(Watched {
                    finding: Finding {
                        number: 0,
                        kind: met.kind,
                        host: met.host,
                        begin_ns: span.0,
                        last_ns: span.0,
                        state: State::Begun,
                        figure: 0.0,
                        most: 0.0,
                        row: String::new(),
                    },
                    has_begun: false,
                });
                self.watched.len() - 1
            }
        };
        let watched = &mut self.watched[place];
        if !watched.has_begun && !met.begins {
            return;
        }
        let finding = &mut watched.finding;
        finding.last_ns = span.1;
        finding.figure = met.figure;
        if met.figure >= finding.most {
            finding.most = met.figure;
            finding.row = met.row;
        }
        let held = finding.last_ns.saturating_sub(finding.begin_ns);
        if !watched.has_begun && held >= met.kind.hold_ns() {
            watched.has_begun = true;
            self.begun += 1;
            finding.number = self.begun;
            let begun = finding.clone();
            self.tell(begun);
        }
    }

    /// Ends the findings that were last met at a time or before it.
    fn end(&mut self, last_ns: i64, state: State) {
        let (ended, kept) = std::mem::take(&mut self.watched)
            .into_iter()
            .partition(|watched| watched.has_begun && watched.finding.last_ns <= last_ns);
        self.watched = kept;
        let ended: Vec<Watched> = ended;
        for Watched { mut finding, .. } in ended {
            finding.state = state;
            self.tell(finding.clone());
            self.ended.push_back(finding);
            if self.ended.len() > MOST_ENDED {
                self.ended.pop_front();
            }
        }
    }

    /// Completes all findings at the end of a measurement.
    pub fn finish(&mut self) {
        self.watched.retain(|watched| watched.has_begun);
        self.end(i64::MAX, State::Open);
    }

    /// Adds a notice, unless too many wait to be taken.
    fn tell(&mut self, finding: Finding) {
        match self.notices.len() < MOST_NOTICES {
            true => self.notices.push(finding),
            false => self.left_out += 1,
        }
    }

    /// Takes the findings that began or ended since the last call, in this order.
    pub fn take_notices(&mut self) -> Vec<Finding> {
        std::mem::take(&mut self.notices)
    }

    /// Returns the findings that have not ended, and then the latest ended findings.
    pub fn current(&self) -> Vec<Finding> {
        let begun = self.watched.iter().filter(|watched| watched.has_begun);
        let begun = begun.map(|watched| watched.finding.clone());
        begun.chain(self.ended.iter().rev().cloned()).collect()
    }

    /// Memory of the known hosts, bytes. All else is small.
    pub(crate) fn memory(&self) -> usize {
        self.rules.memory()
    }

    /// Returns the number of subjects, begins and ends that were left out because there were too many.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }
}
