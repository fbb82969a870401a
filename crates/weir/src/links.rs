//! Links of interfaces while packets leave or arrive by them: a line when one is lost, and when it is there again.

use crate::numbers::duration;
use crate::outcome::say;
use crate::port;
use crate::times::Clock;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};
use weir_engine::name::Name;
use weir_engine::pairing::now_ns;
use weir_io::sys::packet_socket::Carrier;

/// Pause between two looks at the links.
pub const LOOK: Duration = Duration::from_millis(20);

/// Most messages about links.
const MOST: u64 = 10;

/// The links that are down, and the messages about them.
pub struct Changes {
    /// Words in front of each message, and the effect of a lost link.
    about: &'static str,
    effect: &'static str,
    clock: Clock,
    down: BTreeMap<String, Instant>,
    /// Links that were down and are up again.
    past: Down,
    said: u64,
}

/// Times in which links were down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Down {
    /// Their number.
    pub times: u64,
    /// Their sum.
    pub time: Duration,
}

impl Changes {
    pub fn new(about: &'static str, effect: &'static str, clock: Clock) -> Self {
        Self {
            about,
            effect,
            clock,
            down: BTreeMap::new(),
            past: Down::default(),
            said: 0,
        }
    }

    /// Notes which links are up, and prints changes.
    pub fn note<'a>(&mut self, states: impl Iterator<Item = (&'a str, Option<bool>)>) {
        for (name, is_up) in states {
            match (is_up, self.down.get(name)) {
                (Some(false), None) => {
                    self.down.insert(name.to_owned(), Instant::now());
                    let time = self.clock.text(now_ns());
                    let effect = self.effect;
                    self.say(&format!("{name}: the link is down, at {time}: {effect}"));
                }
                (Some(true), Some(since)) => {
                    let time = since.elapsed();
                    self.past.times += 1;
                    self.past.time += time;
                    let time = duration(time);
                    self.say(&format!("{name}: the link is up again, after {time}"));
                    self.down.remove(name);
                }
                _ => {}
            }
        }
    }

    fn say(&mut self, line: &str) {
        self.said += 1;
        let about = self.about;
        match self.said {
            ..=MOST => say(&format!("{about}{line}")),
            _ if self.said == MOST + 1 => {
                say(&format!("{about}later changes of the link have no line"));
            }
            _ => {}
        }
    }

    /// Whether a link is down.
    pub fn is_down(&self) -> bool {
        !self.down.is_empty()
    }

    /// Times in which links were down so far.
    pub fn times(&self) -> Down {
        Down {
            times: self.past.times + self.down.len() as u64,
            time: self.past.time + self.down.values().map(Instant::elapsed).sum(),
        }
    }
}

/// The links by which a sender sends, opened before the process is confined.
pub struct SenderLinks(Vec<(String, Carrier)>);

impl SenderLinks {
    /// Opens the links of ports that have one. Packets that are injected do not pass the link.
    pub fn open(ports: &[Name]) -> Self {
        let link = |name: &Name| Some((name.text(), Carrier::open(port::interface(name)?).ok()?));
        Self(ports.iter().filter_map(link).collect())
    }

    /// Watches them in a thread of its own, until the value is dropped.
    pub fn watch(self) -> std::io::Result<Watch> {
        let is_over = Arc::<AtomicBool>::default();
        let over = Arc::clone(&is_over);
        let thread = Builder::new()
            .name("links".to_owned())
            .spawn(move || self.look(&over))?;
        Ok(Watch {
            is_over,
            thread: Some(thread),
        })
    }

    /// Looks until it is over; returns the times in which links were down.
    fn look(&self, is_over: &AtomicBool) -> Down {
        let clock = Clock::new(false);
        let mut changes = Changes::new("", "no packet gets through", clock);
        let mut lost = BTreeSet::new();
        while !is_over.load(Ordering::Relaxed) {
            // An interface that goes down loses its link first, and its port says so. So a link is down if it is so twice.
            let links = self.0.iter();
            let without: BTreeSet<&str> = links
                .clone()
                .filter(|(_, carrier)| carrier.lacks_link() == Some(true))
                .map(|(name, _)| name.as_str())
                .collect();
            let before = std::mem::replace(&mut lost, without);
            changes.note(links.map(|(name, carrier)| {
                let name = name.as_str();
                let state = match (lost.contains(name), before.contains(name)) {
                    (true, true) => Some(false),
                    (true, false) => None,
                    (false, _) => carrier.is_up().filter(|is_up| *is_up),
                };
                (name, state)
            }));
            std::thread::sleep(LOOK);
        }
        changes.times()
    }
}

/// A watch of links.
pub struct Watch {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<Down>>,
}

impl Watch {
    /// Ends the watch. Returns the times in which links were down.
    pub fn end(mut self) -> Down {
        self.join()
    }

    fn join(&mut self) -> Down {
        self.is_over.store(true, Ordering::Relaxed);
        let thread = self.thread.take();
        thread.map_or_else(Down::default, |thread| thread.join().unwrap_or_default())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.join();
    }
}
