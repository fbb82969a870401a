//! State that the run, the screen and viewers share.

use super::figures::Figures;
use super::past::Past;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use weir_engine::capture::namespaced::{bare, namespace_of};
use weir_engine::event::Event;
use weir_engine::name::Name;
use weir_io::sys::device;
use weir_io::sys::packet_socket::{ANY, Carrier};
use weir_measure::Window;
use weir_measure::names::Names;
use weir_messages::captures::interface;
use weir_messages::faults::{fault_line, holds_only_words};
use weir_messages::viewing::{Facts, Lacks};
use weir_packet::addresses::Addresses;
use weir_view::{Ask, Settings, Snapshot, View};

/// Time for which the name of an address is kept after it was last asked for, and most such addresses.
const NAMED: Duration = Duration::from_secs(10);
const MOST_NAMED: usize = 1 << 13;

/// The view of a run, and facts about its sources. **Threads**: the run adds, the screen and viewers ask.
#[derive(Debug)]
pub struct Shared {
    state: Mutex<State>,
    /// The links, once the sources are open.
    links: OnceLock<Links>,
}

#[derive(Debug)]
struct State {
    /// Addresses on screens, with the time at which they were last asked for and their names as far as they are known.
    names: HashMap<IpAddr, (Instant, Option<String>)>,
    /// All names of sources that were read to their end.
    read: Names,
    settings: Settings,
    view: View,
    facts: Facts,
    /// Time of the latest window with packets, or of the begin, and of the begin.
    last_packet: Instant,
    begun: Instant,
}

/// A run as it is at its begin.
#[derive(Debug)]
pub struct About {
    /// Names of the sources, and the expression that packets must match.
    pub sources: String,
    pub filter: String,
    pub is_live: bool,
    /// Networks on this side.
    pub local: Option<Arc<Addresses>>,
    pub lacks: Lacks,
}

/// The links of sources.
#[derive(Debug, Default)]
pub struct Links {
    carriers: Vec<(String, Carrier)>,
}

/// Speed of the link in each direction, bit/s: of all interfaces together, if each of them says it.
pub fn link_speed(sources: &[Name]) -> Option<f64> {
    let of_interface = |name| {
        let speed = |interface: &str| device::speed_mbit(interface);
        let interface = interface(name)?;
        // The speed is that in the namespace of the interface.
        let found = match namespace_of(interface).ok()? {
            Some((namespace, bare)) => namespace.within(|| speed(bare)).ok()?,
            None => speed(interface),
        };
        Some(f64::from(found?) * 1e6)
    };
    sources.iter().map(of_interface).sum()
}

impl Links {
    /// Opens them, before the process is confined.
    pub fn open(sources: &[Name]) -> Self {
        let of = |name: &Name| {
            let source = interface(name)?;
            let carrier = match namespace_of(source).ok()? {
                Some((namespace, bare)) => namespace.within(|| Carrier::open(bare)).ok()?,
                None => Carrier::open(bare(source)),
            };
            let is_one = bare(source) != ANY;
            Some((name.to_string(), carrier.ok().filter(|_| is_one)?))
        };
        Self {
            carriers: sources.iter().filter_map(of).collect(),
        }
    }

    /// Names of sources, and whether each has a carrier; `None` for a source that is gone.
    pub fn states(&self) -> impl Iterator<Item = (&str, Option<bool>)> {
        let carriers = self.carriers.iter();
        carriers.map(|(name, carrier)| (name.as_str(), carrier.is_up()))
    }

    /// Names of sources without a carrier.
    pub fn down(&self) -> Vec<&str> {
        let down = self.states().filter(|it| it.1 == Some(false));
        down.map(|(name, _)| name).collect()
    }
}

impl Shared {
    pub fn new(about: About, past: &Past) -> Self {
        let settings = Settings {
            local: about.local.clone(),
            ..Settings::default()
        };
        Self {
            state: Mutex::new(State {
                names: HashMap::new(),
                read: Names::default(),
                view: View::new(settings.clone()),
                settings,
                last_packet: Instant::now(),
                begun: Instant::now(),
                facts: Facts {
                    sources: about.sources,
                    filter: about.filter,
                    is_live: about.is_live,
                    lacks: about.lacks,
                    has_sides: about.is_live || about.local.is_some(),
                    part: past.first,
                    parts: 1,
                    covered: past.covered,
                    ..Facts::default()
                },
            }),
            links: OnceLock::new(),
        }
    }

    /// Notes that the sources are open: their links, the part of the system that drops packets for lack of room, and the speed of the link
    /// in each direction, bit/s.
    pub fn open(&self, links: Links, place: &str, link_bits_per_s: Option<f64>) {
        let _ = self.links.set(links);
        let mut state = self.state();
        place.clone_into(&mut state.facts.place);
        state.facts.link_bits_per_s = link_bits_per_s;
        (state.begun, state.last_packet) = (Instant::now(), Instant::now());
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes an event of a run, and its window. With several sources that are read apart, each has a window for the same time: windows of
    /// `further` sources add to the window of the first.
    pub fn hear(&self, event: &Event<'_>, further: bool) {
        self.note(event);
        if let Event::Window(window) = event {
            self.add(&Window {
                revision: window.revision.max(further.into()),
                ..*window
            });
        }
    }

    /// Takes a window.
    pub fn add(&self, window: &Window<'_>) {
        let mut state = self.state();
        let State {
            view,
            facts,
            names,
            last_packet,
            ..
        } = &mut *state;
        if let Some(known) = window.names {
            for (address, (_, name)) in names {
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
            *last_packet = Instant::now();
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
            facts.without_counter += u64::from(!closed.report.counts_losses());
            let part = closed.layout;
            let part = part.and_then(|layout| holds_only_words(layout, closed.report.has_cut));
            facts.holds_only = facts.holds_only.take().or(part);
        }
        if let Event::FilterReplaced { expression, .. } = event {
            (*expression).clone_into(&mut self.state().facts.filter);
        }
        self.state().facts.fault = Some(match event {
            Event::Fault { name, fault } => fault_line(name, fault),
            Event::LiveFault { name, fault } => format!("{name}: {}", fault.what),
            _ => return,
        });
    }

    /// Begins to read these times with packets that match an expression, and forgets earlier parts.
    pub fn begin(&self, times: (i64, i64), filter: &str) {
        let mut state = self.state();
        state.view = View::new(state.settings.clone());
        let facts = &mut state.facts;
        (facts.is_over, facts.fault, facts.part) = (false, None, Some(times));
        facts.parts += 1;
        filter.clone_into(&mut facts.filter);
        (facts.dropped, facts.late, facts.lost_before) = (0, 0, 0);
        (facts.is_loss_unknown, facts.without_counter) = (false, 0);
    }

    /// Notes that packets are left out which nobody has counted.
    pub fn lack(&self) {
        self.state().facts.is_loss_unknown = true;
    }

    /// Notes the end of the windows, with the names of the packets that were read, and why the reading failed.
    pub fn end(&self, names: Option<&Names>, fault: Option<String>) {
        let mut state = self.state();
        state.read = names.cloned().unwrap_or_default();
        state.facts.is_over = true;
        state.facts.fault = fault.or(state.facts.fault.take());
    }
}

impl Figures for Shared {
    fn facts(&self) -> Facts {
        // No system call is made while the run may wait.
        let down = self.links.get().into_iter().flat_map(Links::down);
        let down = down.map(str::to_owned).collect();
        let state = self.state();
        let ms = |since: Instant| u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
        Facts {
            down,
            up_s: state.begun.elapsed().as_secs(),
            quiet_ms: ms(state.last_packet),
            ..state.facts.clone()
        }
    }

    fn snapshot(&self, ask: &Ask) -> Option<Snapshot> {
        self.state().view.snapshot(ask)
    }

    /// The next window has names of later packets.
    fn names(&self, addresses: Vec<IpAddr>) -> HashMap<IpAddr, String> {
        let state = &mut *self.state();
        let (names, read, now) = (&mut state.names, &state.read, Instant::now());
        names.retain(|_, (asked, _)| asked.elapsed() < NAMED);
        let mut known = HashMap::new();
        for address in addresses {
            let of_end = || read.of(address).map(str::to_owned);
            let name = match names.get_mut(&address) {
                Some((asked, name)) => {
                    *asked = now;
                    name.clone()
                }
                None => {
                    if names.len() < MOST_NAMED {
                        names.insert(address, (now, of_end()));
                    }
                    None
                }
            };
            known.extend(name.or_else(of_end).map(|name| (address, name)));
        }
        known
    }
}
