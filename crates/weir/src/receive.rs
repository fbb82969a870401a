//! The other end of a sender: an interface that receives the packets, and the fate of each.

use crate::capture::{self, CaptureRequest};
use crate::links::{Changes, LOOK};
use crate::numbers::{counted, duration, grouped, latency, percent};
use crate::outcome::{Outcome, answer, say, say_plain};
use crate::port;
use crate::show::Show;
use crate::terminal;
use crate::times::Clock;
use crate::walls::Walls;
use crate::watch::Links;
use anyhow::{anyhow, bail};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use weir_engine::capture::namespaced::bare;
use weir_engine::capture::{Direction, Settings};
use weir_engine::name::Name;
use weir_engine::pairing::{Arrivals, PairSink, Pairs, Report, Rest, Spread, Wait, now_ns};
use weir_engine::port::counters::Counters;
use weir_engine::reflection::Ways;
use weir_engine::run::{Ended, Run, Setup};
use weir_engine::session::Session;
use weir_io::network::Network;
use weir_io::sys::packet_socket::ANY;
use weir_io::{Input, Kind};
use weir_messages::captures::{WAITS, interface};
use weir_messages::refusals::Terms;
use weir_packet::LinkType;

/// Time without a packet after which the capture ends.
pub const QUIET: Duration = Duration::from_millis(500);

/// The other end, whose capture is open.
pub struct Receiver {
    /// Names of the interfaces, for messages.
    name: String,
    /// The interface that is the second receiver.
    second: Option<String>,
    session: Session,
    pairs: Arc<Mutex<Pairs>>,
    /// Ends the capture.
    stop: Arc<AtomicBool>,
    counters: Wanted,
    links: Links,
    clock: Clock,
    streams: Vec<String>,
}

/// Checks that an interface can receive what leaves by a port.
pub fn check(name: &Name, sink: &Name) -> anyhow::Result<()> {
    check_there(name, sink)?;
    if is_sender(name, sink) {
        bail!(
            "--receive {name}: packets leave by this interface, and do not come back by it: name the interface at which they arrive; if another \
             host returns them, see --round-trip"
        );
    }
    Ok(())
}

/// Checks that an interface can receive packets of a port, whether they leave by it or not.
pub fn check_there(name: &Name, sink: &Name) -> anyhow::Result<()> {
    if !port::is_port(sink) || port::is_null(sink) {
        bail!("--receive {name}: name a port that sends, as af_packet:eth1");
    }
    if interface(name).is_none() {
        bail!("--receive {name}: no such interface: weir filter -D lists those there are");
    }
    if interface(name) == Some(ANY) {
        bail!(
            "--receive {name}: packets of all interfaces come without their Ethernet header, and from interfaces on the way too: name the \
             interface at which they arrive"
        );
    }
    Ok(())
}

/// Whether a source is the interface by which a port sends. Loopback receives what it sends.
fn is_sender(name: &Name, sink: &Name) -> bool {
    let Some(sender) = port::interface(sink) else {
        return false;
    };
    if interface(name) != Some(sender) {
        return false;
    }
    let network = Network::read().unwrap_or_default();
    network.named(sender).is_none_or(|it| !it.is_loopback)
}

/// Checks that two interfaces have different names.
pub fn check_two(first: &Name, second: &Name) -> anyhow::Result<()> {
    if interface(first) == interface(second) {
        bail!(
            "--receive2 {second}: it is the interface of --receive: without --receive2 the packets of both ports are awaited there"
        );
    }
    if interface(first).map(bare) == interface(second).map(bare) {
        bail!(
            "--receive2 {second} has the same name as {first} in its network namespace: give one of them another, with ip link set IF name NEW"
        );
    }
    Ok(())
}

impl Receiver {
    /// Opens the captures of one or two interfaces that receive what leaves by one or two ports, in streams of these names.
    pub fn open(
        names: &[Name],
        sinks: &[Name],
        (pairs, streams): (Pairs, &[String]),
        utc: bool,
    ) -> anyhow::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut session = Session::new(names.to_vec());
        let all: Vec<String> = names.iter().map(Name::text).collect();
        let name = all.join(" and ");
        let request = CaptureRequest {
            settings: Settings {
                direction: Direction::In,
                ..Settings::default()
            },
            ..CaptureRequest::default()
        };
        // A receiver does not wait for its interface.
        let refused = |error: anyhow::Error| {
            let words = error.to_string();
            anyhow!("--receive {}", words.trim_end_matches(WAITS))
        };
        for line in capture::open(&mut session, &request, &stop).map_err(refused)? {
            say_plain(&line);
        }
        let is_ethernet = |input: &Input| match &input.kind {
            Kind::Live(live) => live
                .layout()
                .interfaces
                .iter()
                .all(|it| it.link == LinkType::ETHERNET),
            _ => false,
        };
        if pairs.is_by_bytes() && !session.inputs().iter().all(is_ethernet) {
            bail!(
                "--receive {name}: its packets have no Ethernet header, and cannot be equal to those that leave: name an interface of Ethernet, \
                 or let weir generate --receive send packets that carry a number"
            );
        }
        Ok(Self {
            pairs: Arc::new(Mutex::new(pairs)),
            counters: Wanted::open(
                sinks.iter().filter_map(port::interface),
                names.iter().filter_map(interface),
            ),
            second: names
                .get(1)
                .and_then(interface)
                .map(|it| bare(it).to_owned()),
            links: Links::open(session.names()),
            clock: Clock::new(utc),
            name,
            session,
            stop,
            streams: streams.to_vec(),
        })
    }

    /// The pairs, which the sender and the capture share.
    pub fn pairs(&self) -> Arc<Mutex<Pairs>> {
        Arc::clone(&self.pairs)
    }

    /// Receives while `work` goes on in a thread of its own. `begin` is called once the capture is on.
    pub fn meanwhile<T: Send, S>(
        mut self,
        walls: &Walls,
        begin: impl FnOnce() -> anyhow::Result<S>,
        work: impl FnOnce(&Mutex<Pairs>) -> T + Send,
    ) -> anyhow::Result<(T, Received)> {
        let before = self.counters.read();
        let mut run = Run::new(Setup {
            main: (
                self.name.clone(),
                Some(Box::new(PairSink::new(&self.pairs, self.second.clone()))),
            ),
            stop: Arc::clone(&self.stop),
            ..Setup::default()
        });
        let mut show = Show::new(true, false, 1, false);
        let begun = walls.begin(&self.session, &mut run, &Terms::PACKETS, &mut |event| {
            show.event(event)
        })?;
        if !begun {
            bail!("--receive {}: the capture did not begin", self.name);
        }
        let _begun = begin()?;
        let (pairs, stop, session) = (&self.pairs, &self.stop, &mut self.session);
        let (links, clock) = (&self.links, &self.clock);
        let (done, read, is_early) = std::thread::scope(|scope| {
            let worker = scope.spawn(|| {
                let done = work(pairs);
                stop.store(true, Ordering::Relaxed);
                done
            });
            scope.spawn(|| look_at(links, clock, pairs, stop));
            let read = session.read(&mut run, &mut |event| show.event(event));
            // If the capture has ended by itself, the sender goes on all the same: what it sends is told.
            let is_early = !stop.load(Ordering::Relaxed);
            (worker.join(), read, is_early)
        });
        read.map_err(|error| weir_messages::refusals::refused(&error, &Terms::PACKETS))?;
        let done = done.map_err(|_| anyhow!("the sender ended by an error of this program"))?;
        let (ended, outputs) = run.finish(&mut |event| show.event(event));
        show.outputs(&outputs, &ended);
        if is_early {
            show.say(&format!(
                "--receive {}: the capture ended before the sender: packets that arrived later are told as lost; is the interface still there?",
                self.name
            ));
        }
        let mut pairs = self.pairs.lock().unwrap_or_else(PoisonError::into_inner);
        let received = Received {
            ways: pairs.is_of_trips().then(|| pairs.ways()),
            name: self.name,
            clock: self.clock,
            report: pairs.report().clone(),
            down_ns: pairs.report().downs.length_ns(now_ns()),
            density: pairs.density(),
            streams: self.streams,
            has_ports: pairs.is_by_bytes(),
            counted: self.counters.since(&before, &ended),
            has_failed: is_early || !show.faults.is_empty(),
        };
        Ok((done, received))
    }
}

/// Waits until no packet has arrived for a time, also after a signal that has ended the sender. A signal during the wait ends it.
pub fn wait_for_the_last(pairs: &Mutex<Pairs>, stop: &AtomicBool, time: Duration) {
    let mut wait = Wait::begin(time);
    let is_waiting_on = stop.load(Ordering::Relaxed);
    loop {
        let rest = {
            let pairs = pairs.lock().unwrap_or_else(PoisonError::into_inner);
            wait.look(&pairs, Instant::now())
        };
        match rest {
            Rest::Waits if is_waiting_on || !stop.load(Ordering::Relaxed) => {
                std::thread::sleep(time / 10);
            }
            Rest::Repeats => {
                say(&format!(
                    "--receive: packets that had arrived before still arrive, {} after the last new one: the count ends here; is there a loop \
                     in the network?",
                    duration(time * Wait::PATIENCE)
                ));
                return;
            }
            Rest::Endless => {
                say(&format!(
                    "--receive: packets still arrive, {} after the last was sent: the count ends here; does another sender stamp packets \
                     for this interface?",
                    duration(time * Wait::MOST)
                ));
                return;
            }
            Rest::Waits | Rest::Quiet => return,
        }
    }
}

/// Tells, until `stop` is set, when interfaces lose their link, and when they have it again.
fn look_at(links: &Links, clock: &Clock, pairs: &Mutex<Pairs>, stop: &AtomicBool) {
    let mut changes = Changes::new("--receive ", "nothing arrives by it", clock.clone());
    while !stop.load(Ordering::Relaxed) {
        changes.note(links.states());
        let mut pairs = pairs.lock().unwrap_or_else(PoisonError::into_inner);
        pairs.note_link(changes.is_down());
        drop(pairs);
        std::thread::sleep(LOOK);
    }
}

/// Counters of interfaces, opened before the sandbox begins.
struct Wanted {
    counters: Option<Counters>,
    /// Interface, and whether it sends.
    wanted: Vec<(String, bool)>,
}

impl Wanted {
    fn open<'a>(
        senders: impl Iterator<Item = &'a str>,
        receivers: impl Iterator<Item = &'a str>,
    ) -> Self {
        let senders = senders.map(|name| (name.to_owned(), true));
        let receivers = receivers.map(|name| (name.to_owned(), false));
        Self {
            counters: Counters::open().ok(),
            wanted: senders.chain(receivers).collect(),
        }
    }

    /// Packets that each counter has, with its name.
    fn read(&self) -> Vec<(String, u64)> {
        let mut all = Vec::new();
        for (name, sends) in &self.wanted {
            let counters = self.counters.as_ref();
            let Some(counts) = counters.and_then(|counters| counters.of(name)) else {
                continue;
            };
            let (words, counts) = match sends {
                true => ("tx", counts.sent),
                false => ("rx", counts.received),
            };
            for (what, count) in ["errors", "dropped", "fifo"].into_iter().zip(counts) {
                all.push((format!("{name} {words}_{what}"), count));
            }
        }
        all
    }

    /// Growth of the counters since then.
    fn since(&self, before: &[(String, u64)], ended: &Ended) -> Vec<(String, u64)> {
        let after = self.read();
        let mut all: Vec<(String, u64)> = after
            .into_iter()
            .map(|(name, count)| {
                let old = before
                    .iter()
                    .find(|row| row.0 == name)
                    .map_or(0, |row| row.1);
                (name, count.saturating_sub(old))
            })
            .collect();
        all.push(("capture dropped".to_owned(), ended.ledger.dropped.source));
        all
    }
}

/// Fate of the packets.
pub struct Received {
    name: String,
    clock: Clock,
    /// The ways to another host and back, if it returns packets and they are known.
    ways: Option<Option<Ways>>,
    report: Report,
    /// Time without a link, ns.
    down_ns: i64,
    /// Packets by displacement (RFC 5236).
    density: BTreeMap<i64, u64>,
    streams: Vec<String>,
    /// Whether the streams are ports.
    has_ports: bool,
    /// Packets that counters saw lost.
    pub counted: Vec<(String, u64)>,
    pub has_failed: bool,
}

impl Received {
    /// Prints it, for packets that left, packets that the port refused, and the same of each stream.
    ///
    /// If nothing arrived, a line has the reason. With `is_strict` lost packets are an error.
    pub fn tell(
        &self,
        (is_json, is_strict): (bool, bool),
        (left, refused): (u64, u64),
        streams: &[(u64, u64)],
    ) -> Outcome {
        let text = match is_json {
            true => format!(
                "{}\n",
                terminal::json("received", &self.object((left, refused), streams))
            ),
            false => self.text((left, refused), streams),
        };
        let answered = answer(&text);
        if let Some(why) = self.nothing(left) {
            say(&format!("--receive {}: {why}", self.name));
        }
        let lost = lost(left, &self.report.all());
        let is_failed = is_strict && lost > 0;
        if is_failed {
            say(&format!(
                "--strict: {} of {} packets were lost",
                grouped(lost),
                grouped(left)
            ));
        }
        Outcome::of(answered == Outcome::Done && !self.has_failed && !is_failed)
    }

    /// Why no packet may have arrived, if none did.
    fn nothing(&self, left: u64) -> Option<String> {
        let all = self.report.all();
        if left == 0 || all.received + all.too_late > 0 {
            return None;
        }
        Some(match self.report.others {
            _ if self.ways.is_some() => {
                "no packet came back: does weir generate --reflect run at the other end, with the same name?".to_owned()
            }
            0 => "no packet arrived there: is it the other end, and does a device on the way let the packets through?".to_owned(),
            others => format!(
                "none of the packets of this run arrived there, and {} did: a device that changes them (TTL, addresses, tags) makes others of them",
                counted(others, "other packet")
            ),
        })
    }

    fn text(&self, (left, refused): (u64, u64), streams: &[(u64, u64)]) -> String {
        let all = self.report.all();
        let mut text = format!("{}\n", fate(left, &all));
        if self.has_ports {
            for ((name, counts), (left, _)) in self.streams(streams) {
                text += &format!("  {name}: {}\n", fate(left, counts));
            }
            if self.report.across > 0 {
                text += &format!(
                    "  {} reordered between the two: after a packet that left later by the other port\n",
                    grouped(self.report.across)
                );
            }
        }
        if refused > 0 {
            text += &format!(
                "{} more did not leave: the port refused them\n",
                grouped(refused)
            );
        }
        let seen: Vec<String> = self
            .counted
            .iter()
            .filter(|row| row.1 > 0)
            .map(|(name, count)| format!("{} by {name}", grouped(*count)))
            .collect();
        if lost(left, &all) > 0 {
            let seen = if seen.is_empty() {
                "no counter here saw them".to_owned()
            } else {
                seen.join(", ")
            };
            text += &format!("lost: {seen}\n");
        }
        let downs = self.report.downs;
        if downs.times > 0 {
            text += &format!(
                "link of the other end: down {}, for {}, first at {}\n",
                times_words(downs.times),
                duration(Duration::from_nanos(self.down_ns.unsigned_abs())),
                self.clock.text(downs.first_ns)
            );
        }
        let times = |spread: Spread| {
            let [p50, p99, p999, max] =
                [spread.p50, spread.p99, spread.p999, spread.max].map(|ns| latency(ns as i64));
            format!("p50 {p50}, p99 {p99}, p99.9 {p999}, max {max}")
        };
        if self.report.delay().count > 0 {
            let what = self.ways.as_ref().map_or("delay", |_| "round trip");
            text += &format!(
                "{what}: {}\njitter: {}\n",
                times(self.report.delay()),
                times(self.report.jitter())
            );
        }
        match &self.ways {
            Some(Some(ways)) => {
                let error = latency(ways.error_ns);
                let (low, high) = ways.offset_ns;
                let middle = i64::midpoint(low, high);
                text += &format!(
                    "clock of the other end (CLOCK_REALTIME of both hosts): {} {} this one, ± {error}{}\n",
                    latency(middle.saturating_abs()),
                    if middle < 0 { "behind" } else { "ahead of" },
                    match high.saturating_sub(low) {
                        0 => String::new(),
                        moved => format!(", from second to second within {}", latency(moved)),
                    }
                );
                for (what, way) in [("there", ways.there), ("back", ways.back)] {
                    text += &format!("{what}, each ± {error}: {}\n", times(way));
                }
            }
            Some(None) if self.report.delay().count > 0 => {
                text += "one-way delays are not known: a clock was set or runs at another speed, so that no offset of the clocks fits\n";
            }
            _ => {}
        }
        if all.reordered > 0 {
            let extent = self.report.extent();
            text += &format!(
                "reordering extent: p50 {}, max {}\n",
                extent.p50, extent.max
            );
            let shares: Vec<String> = self
                .density
                .iter()
                .map(|(by, count)| format!("{by:+} {}", percent(*count, all.received)))
                .collect();
            text += &format!("reorder density: {}\n", shares.join(", "));
        }
        for (count, what) in [
            (
                all.too_late,
                "came more than 1 048 576 packets late: they may be duplicates",
            ),
            (
                self.report.negative,
                "arrived before they left: the clock was set",
            ),
            (self.report.others, "other packets arrived"),
        ] {
            if count > 0 {
                text += &format!("{} {what}\n", grouped(count));
            }
        }
        text
    }

    /// Name, arrivals and departures of each stream.
    fn streams<'a>(
        &'a self,
        left: &'a [(u64, u64)],
    ) -> impl Iterator<Item = ((&'a String, &'a Arrivals), (u64, u64))> {
        let streams = self.streams.iter().zip(&self.report.streams);
        streams.zip(left.iter().copied())
    }

    fn object(&self, (left, refused): (u64, u64), streams: &[(u64, u64)]) -> Value {
        let streams: Vec<Value> = self
            .streams(streams)
            .map(|((name, counts), (left, refused))| {
                let sent = left + refused;
                json!({
                    "name": name, "sent": sent, "received": counts.received,
                    "lost": lost(sent, counts),
                    "duplicated": counts.duplicated, "reordered": counts.reordered, "too_late": counts.too_late,
                })
            })
            .collect();
        let counters: serde_json::Map<String, Value> = self
            .counted
            .iter()
            .map(|(name, count)| (name.replace(' ', "_"), (*count).into()))
            .collect();
        let all = self.report.all();
        json!({
            "sent": left,
            "refused": refused,
            "received": all.received,
            "lost": lost(left, &all),
            "duplicated": all.duplicated,
            "reordered": all.reordered,
            "reordered_across": self.report.across,
            "too_late": all.too_late,
            "others": self.report.others,
            "delay_ns": times(self.report.delay()),
            "jitter_ns": times(self.report.jitter()),
            "ways": self.ways.iter().flatten().next().map(|ways| json!({
                "offset_ns": {"min": ways.offset_ns.0, "max": ways.offset_ns.1},
                "error_ns": ways.error_ns,
                "there_ns": times(ways.there),
                "back_ns": times(ways.back),
            })),
            "extent": times(self.report.extent()),
            "density": self.density.iter().map(|(by, count)| (by.to_string(), (*count).into())).collect::<serde_json::Map<String, Value>>(),
            "counters": counters,
            "link_down": {
                "times": self.report.downs.times, "ns": self.down_ns,
                "first_ns": (self.report.downs.times > 0).then_some(self.report.downs.first_ns),
            },
            "streams": streams,
        })
    }
}

/// Packets that left and did not arrive.
fn lost(left: u64, arrived: &Arrivals) -> u64 {
    left.saturating_sub(arrived.received + arrived.too_late)
}

/// Packets that left, and what became of them, in words.
fn fate(left: u64, arrived: &Arrivals) -> String {
    let lost = lost(left, arrived);
    format!(
        "{} sent, {} received, {} lost ({}), {} duplicated, {} reordered",
        grouped(left),
        grouped(arrived.received),
        grouped(lost),
        percent(lost, left),
        grouped(arrived.duplicated),
        grouped(arrived.reordered)
    )
}

/// How often: `once`, `3 times`.
fn times_words(times: u64) -> String {
    match times {
        1 => "once".to_owned(),
        _ => format!("{} times", grouped(times)),
    }
}

/// A distribution of times as JSON.
pub fn times(spread: Spread) -> Value {
    let Spread {
        p50,
        p99,
        p999,
        max,
        ..
    } = spread;
    json!({"p50": p50, "p99": p99, "p999": p999, "max": max})
}
