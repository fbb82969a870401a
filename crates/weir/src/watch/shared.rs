//! State that the run and the screen share.

use super::past::Past;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use weir_engine::event::Event;
use weir_measure::Window;
use weir_measure::names::Names;
use weir_messages::faults::{fault_line, holds_only_words};
use weir_packet::addresses::Addresses;
use weir_view::{Ask, Settings, Snapshot, View};

/// The view of a run, and facts about its sources. **Threads**: the run adds, the screen asks.
#[derive(Debug)]
pub struct Shared {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Addresses on the screen, with their names as far as they are known.
    names: HashMap<IpAddr, Option<String>>,
    /// All names of sources that were read to their end.
    read: Names,
    settings: Settings,
    view: View,
    facts: SourceFacts,
}

/// Facts about the sources so far.
#[derive(Clone, Debug)]
pub struct SourceFacts {
    /// Number of windows.
    pub windows: u64,
    /// Time of the latest window with packets, or of the begin.
    pub last_packet: Instant,
    /// Packets that were dropped for lack of room, and late packets.
    pub dropped: u64,
    pub late: u64,
    /// Packets that were lost before the files of the sources were written, as far as these tell.
    pub lost_before: u64,
    /// Whether a source does not tell for some time what was lost.
    pub is_loss_unknown: bool,
    /// Choice of packets that a source holds, in words; `None`: all.
    pub holds_only: Option<String>,
    /// Whether packets are known to come in or to go out.
    pub has_sides: bool,
    /// Why a source ended early.
    pub fault: Option<String>,
    /// Whether the sources, or the part that is read, were read to their end.
    pub is_over: bool,
    /// Times that were read; `None`: all.
    pub part: Option<(i64, i64)>,
    /// Number of parts that were begun.
    pub parts: u64,
    /// Times of the first and the last packet of all parts, and of a record.
    pub covered: Option<(i64, i64)>,
}

impl Shared {
    pub fn new(is_live: bool, local: Option<Arc<Addresses>>, past: &Past) -> Self {
        let settings = Settings {
            local,
            ..Settings::default()
        };
        Self {
            state: Mutex::new(State {
                names: HashMap::new(),
                read: Names::default(),
                view: View::new(settings.clone()),
                settings,
                facts: SourceFacts {
                    windows: 0,
                    last_packet: Instant::now(),
                    dropped: 0,
                    late: 0,
                    lost_before: 0,
                    is_loss_unknown: false,
                    holds_only: None,
                    has_sides: is_live,
                    fault: None,
                    is_over: false,
                    part: past.first,
                    parts: 1,
                    covered: past.covered,
                },
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a window.
    pub fn add(&self, window: &Window<'_>) {
        let mut state = self.state();
        let State {
            view, facts, names, ..
        } = &mut *state;
        if let Some(known) = window.names {
            for (address, name) in names {
                *name = known.of(*address).map(str::to_owned);
            }
        }
        view.add(window);
        // The screen shows the findings themselves.
        view.findings().take_notices();
        let Some(span) = window.span else {
            return;
        };
        let arrivals = &window.arrivals;
        facts.windows += 1;
        facts.dropped += arrivals.dropped;
        facts.late += arrivals.late;
        facts.has_sides |= arrivals.rx.packets + arrivals.tx.packets > 0;
        if arrivals.received > 0 {
            facts.last_packet = Instant::now();
            let (first, last) = window.covered.unwrap_or(span);
            let before = facts.covered.unwrap_or((first, last));
            facts.covered = Some((before.0.min(first), before.1.max(last)));
        }
    }

    /// Notes what an event says about the sources.
    pub fn note(&self, event: &Event<'_>) {
        if let Event::Closed(closed) = event
            && closed.report.live.is_none()
        {
            let facts = &mut self.state().facts;
            facts.lost_before += closed.report.lost_before();
            facts.is_loss_unknown |= !closed.report.counted.uncounted().is_empty();
            let part = closed.layout.and_then(holds_only_words);
            facts.holds_only = facts.holds_only.take().or(part);
        }
        self.state().facts.fault = Some(match event {
            Event::Fault { name, fault } => fault_line(name, fault),
            Event::LiveFault { name, fault } => format!("{name}: {}", fault.what),
            _ => return,
        });
    }

    /// Begins to read these times, and forgets earlier parts.
    pub fn begin(&self, times: (i64, i64)) {
        let mut state = self.state();
        state.view = View::new(state.settings.clone());
        let facts = &mut state.facts;
        (facts.is_over, facts.fault, facts.part) = (false, None, Some(times));
        facts.parts += 1;
        (facts.dropped, facts.late, facts.lost_before) = (0, 0, 0);
        facts.is_loss_unknown = false;
    }

    /// Notes the end of the windows, with the names of the packets that were read, and why the reading failed.
    pub fn end(&self, names: Option<&Names>, fault: Option<String>) {
        let mut state = self.state();
        state.read = names.cloned().unwrap_or_default();
        state.facts.is_over = true;
        state.facts.fault = fault.or(state.facts.fault.take());
    }

    /// Returns the known names of addresses. From the next window on, they are the names of `addresses`.
    pub fn names(&self, addresses: impl Iterator<Item = IpAddr>) -> HashMap<IpAddr, String> {
        let state = &mut *self.state();
        let (names, read) = (&mut state.names, &state.read);
        let mut before = std::mem::take(names);
        *names = addresses
            .map(|address| {
                let of_end = || read.of(address).map(str::to_owned);
                let name = before.remove(&address).flatten().or_else(of_end);
                (address, name)
            })
            .collect();
        let known = names.iter();
        known
            .filter_map(|(address, name)| Some((*address, name.clone()?)))
            .collect()
    }

    /// Facts so far.
    pub fn facts(&self) -> SourceFacts {
        self.state().facts.clone()
    }

    /// Answers a question to the view.
    pub fn snapshot(&self, ask: &Ask) -> Option<Snapshot> {
        self.state().view.snapshot(ask)
    }
}
