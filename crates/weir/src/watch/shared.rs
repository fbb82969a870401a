//! State that the run and the screen share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use weir_engine::event::Event;
use weir_measure::Window;
use weir_messages::faults::fault_line;
use weir_packet::addresses::Addresses;
use weir_view::{Ask, Settings, Snapshot, View};

/// The view of a run, and facts about its sources. **Threads**: the run adds, the screen asks.
#[derive(Debug)]
pub struct Shared {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
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
    /// Whether packets are known to come in or to go out.
    pub has_sides: bool,
    /// Why a source ended early.
    pub fault: Option<String>,
    /// Whether the sources were read to their end.
    pub is_over: bool,
}

impl Shared {
    pub fn new(is_live: bool, local: Option<Arc<Addresses>>) -> Self {
        let settings = Settings {
            local,
            ..Settings::default()
        };
        Self {
            state: Mutex::new(State {
                view: View::new(settings),
                facts: SourceFacts {
                    windows: 0,
                    last_packet: Instant::now(),
                    dropped: 0,
                    late: 0,
                    has_sides: is_live,
                    fault: None,
                    is_over: false,
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
        let State { view, facts } = &mut *state;
        view.add(window);
        // The screen shows the findings themselves.
        view.findings().take_notices();
        if window.span.is_none() {
            return;
        }
        let arrivals = &window.arrivals;
        facts.windows += 1;
        facts.dropped += arrivals.dropped;
        facts.late += arrivals.late;
        facts.has_sides |= arrivals.rx.packets + arrivals.tx.packets > 0;
        if arrivals.received > 0 {
            facts.last_packet = Instant::now();
        }
    }

    /// Notes what an event says about the sources.
    pub fn note(&self, event: &Event<'_>) {
        self.state().facts.fault = Some(match event {
            Event::Fault { name, fault } => fault_line(name, fault),
            Event::LiveFault { name, fault } => format!("{name}: {}", fault.what),
            _ => return,
        });
    }

    /// Notes the end of the windows.
    pub fn end(&self) {
        self.state().facts.is_over = true;
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
