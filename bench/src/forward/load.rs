//! Sender and sink: one process outside the forwarder, on a core of their own. The sender's frames come as from a cable, at an even pace.

use super::sink::{Counts, NUMBER, Sink, Switch, TIME};
use crate::capture::send::{Helper, udp};
use anyhow::{Context, anyhow, bail, ensure};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::hint::spin_loop;
use std::io::stdin;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use weir_io::sys::inject::{Fields, Injector, Mode};
use weir_io::sys::packet_socket::index_of;
use weir_io::sys::stop_on_signals;

/// First argument that makes this program sender and sink.
pub const WORD: &str = "load";

/// Distinct flows, and the factor by which they follow one another: near the golden ratio of their number, so that neighbors differ.
pub const FLOWS: u32 = 1 << 20;
pub const STRIDE: u32 = 648_055;

/// First argument that makes this program keep a core awake.
pub const AWAKE: &str = "awake";

/// Returns the last byte of the source address of frame `number`.
pub fn source(number: u64) -> u64 {
    (number.wrapping_mul(STRIDE.into()) % u64::from(FLOWS)) >> 16
}

/// Longest wait until no frame comes any more, and the time without frames that shows it.
pub const PATIENCE: Duration = Duration::from_secs(10);
const QUIET: Duration = Duration::from_millis(150);

/// Result of a time of sending.
#[derive(Clone, Debug)]
pub struct Sent {
    /// Frames, counted by the program in the kernel.
    pub frames: u64,
    /// Number of the first of them.
    pub begin: u64,
    /// Time from the first to the last one, s.
    pub seconds: f64,
    /// Time from the last frame sent to the last one received, s; negative if the last ones were lost.
    pub lag: f64,
    /// Frames received.
    pub received: u64,
    /// Frames of others.
    pub others: u64,
    /// Frames that overtook others.
    pub disorder: u64,
    /// Probes of both kinds.
    pub probes: u64,
    /// Rate of what was received, 1/s, from the first frame sent to the last one received.
    pub received_pps: f64,
    /// Changes from one kind of probe to the other.
    pub switches: Vec<Switch>,
}

impl Sent {
    /// Offered rate, 1/s.
    pub fn rate(&self) -> f64 {
        self.frames as f64 / self.seconds
    }
}

/// Frames among which there are some of each source, also if an eighth of them is dropped.
const ALL_SOURCES: u64 = 64;

/// Sender and sink, which wait for orders.
#[derive(Debug)]
pub struct Load {
    helper: Helper,
    /// Frames that had been received at the last look.
    seen: u64,
}

impl Load {
    /// Command line: frames of `len` bytes over the interface `far`, counted at `sink`.
    pub fn words(far: &str, sink: &str, len: usize) -> anyhow::Result<Vec<String>> {
        let us = std::env::current_exe()?
            .to_str()
            .context("a plain path")?
            .to_owned();
        Ok([us.as_str(), WORD, far, sink, &len.to_string()]
            .map(str::to_owned)
            .to_vec())
    }

    pub fn start(command: Command) -> anyhow::Result<Self> {
        Ok(Self {
            helper: Helper::start(command)?,
            seen: 0,
        })
    }

    /// Begins to send at about `rate` per second; 0: as fast as the sender can.
    pub fn begin(&mut self, rate: f64) -> anyhow::Result<()> {
        let interval = if rate > 0.0 {
            (1e9 / rate).round() as u64
        } else {
            0
        };
        ensure!(
            self.helper.ask(&format!("begin {interval}"))? == "sending",
            "the sender does not begin"
        );
        self.seen = 0;
        Ok(())
    }

    /// Waits for a time, and until frames of all sources have arrived; returns the longest time
    /// between two frames, and the longest time of a frame from sender to sink, since the last
    /// call, in s.
    pub fn watch(&mut self, time: Duration) -> anyhow::Result<[f64; 2]> {
        std::thread::sleep(time);
        let begun = Instant::now();
        let mut most = [0.0f64; 2];
        loop {
            let answer: Value = serde_json::from_str(&self.helper.ask("longest")?)?;
            let received = answer["received"]
                .as_u64()
                .context("the count of the sink")?;
            most = [0, 1]
                .map(|i| most[i].max(answer["longest"][i].as_f64().unwrap_or(f64::NAN) / 1e9));
            if received >= self.seen + ALL_SOURCES {
                self.seen = received;
                return Ok(most);
            }
            ensure!(
                begun.elapsed() < PATIENCE,
                "{} frames came in {PATIENCE:?}",
                received - self.seen
            );
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Ends sending, and waits until no frame comes any more.
    pub fn end(&mut self) -> anyhow::Result<Sent> {
        self.sent("end")
    }

    /// Waits again until no frame comes any more, because some may have waited for a processor.
    pub fn again(&mut self) -> anyhow::Result<Sent> {
        self.sent("again")
    }

    fn sent(&mut self, order: &str) -> anyhow::Result<Sent> {
        let answer: Value =
            serde_json::from_str(&self.helper.ask(order)?).context("the sender's answer")?;
        let count = |name: &str| {
            answer[name]
                .as_u64()
                .with_context(|| format!("no {name} in {answer}"))
        };
        let [first, last, latest] = [count("first")?, count("last")?, count("latest")?];
        let switch = |one: &Value| {
            let word = |i: usize| one[i].as_u64().unwrap_or(0);
            Switch {
                kind: word(0),
                before: word(1),
                after: word(2),
                probes: word(3),
                before_ns: word(4),
            }
        };
        let received = count("received")?;
        Ok(Sent {
            frames: count("sent")?,
            begin: count("begin")?,
            seconds: last.saturating_sub(first).max(1) as f64 / 1e9,
            lag: latest as f64 / 1e9 - last as f64 / 1e9,
            received,
            others: count("others")?,
            disorder: count("disorder")?,
            probes: count("probes")?,
            received_pps: received as f64 * 1e9 / latest.saturating_sub(first).max(1) as f64,
            switches: answer["switches"]
                .as_array()
                .into_iter()
                .flatten()
                .map(switch)
                .collect(),
        })
    }

    /// Sends for a time.
    pub fn send(&mut self, rate: f64, time: Duration) -> anyhow::Result<Sent> {
        self.begin(rate)?;
        std::thread::sleep(time);
        self.end()
    }
}

/// The process that [`Load::words`] starts.
pub fn serve(arguments: &[String]) -> anyhow::Result<()> {
    let [far, sink, len] = arguments else {
        bail!("{WORD} INTERFACE SINK LENGTH")
    };
    let sink = Sink::open(sink)?;
    let fields = Fields {
        counter: Some(NUMBER),
        time: Some(TIME),
        flows: FLOWS,
        stride: STRIDE,
        paced: true,
    };
    let mode = Mode::Redirect(index_of(far).context("no such interface")?);
    let mut injector = Injector::open(far, &udp(len.parse()?), &fields, mode)?;
    // A call ends by the signal.
    injector.at_once = u32::MAX;
    stop_on_signals(Arc::new(AtomicBool::new(false)));
    let (orders, hear) = channel();
    let (tell, told) = channel();
    std::thread::spawn(move || inject(injector, &hear, &tell));
    // Only the other thread takes the signal that ends its call.
    SigSet::from(Signal::SIGALRM).thread_block()?;
    println!("ready");
    let mut sent = Value::Null;
    for order in stdin().lines() {
        let order = order?;
        match order.split_once(' ') {
            Some(("begin", interval)) => {
                sink.reset();
                orders.send(interval.parse()?)?;
                println!("sending");
            }
            _ if order == "end" || order == "again" => {
                if order == "end" {
                    sent = stop(&told)?;
                }
                let mut answer = sent.clone();
                let counts = settle(&sink)?;
                let Counts {
                    frames,
                    others,
                    latest_ns,
                    disorder,
                    probes,
                    ..
                } = counts;
                answer["received"] = frames.into();
                answer["others"] = others.into();
                answer["latest"] = latest_ns.into();
                answer["disorder"] = disorder.into();
                answer["probes"] = probes.into();
                let switches = sink.switches();
                answer["switches"] = switches
                    .iter()
                    .map(|one| json!([one.kind, one.before, one.after, one.probes, one.before_ns]))
                    .collect();
                println!("{answer}");
            }
            _ => println!(
                "{}",
                json!({ "longest": sink.longest(), "received": sink.counts().frames })
            ),
        }
    }
    Ok(())
}

/// Sends at each interval that comes, until a signal; tells what was sent.
fn inject(
    mut injector: Injector,
    intervals: &Receiver<u64>,
    tell: &Sender<Value>,
) -> anyhow::Result<()> {
    for interval in intervals {
        let begin = injector.injected();
        injector.pace(interval);
        injector.inject(u64::MAX)?;
        let (first, last) = injector.times();
        tell.send(json!({ "begin": begin, "sent": injector.injected() - begin, "first": first, "last": last }))?;
    }
    Ok(())
}

/// Interrupts the sending thread, again if the signal came between two of its calls.
fn stop(told: &Receiver<Value>) -> anyhow::Result<Value> {
    const AGAIN: Duration = Duration::from_millis(20);
    loop {
        kill(Pid::this(), Signal::SIGALRM)?;
        match told.recv_timeout(AGAIN) {
            Err(RecvTimeoutError::Timeout) => {}
            answer => return answer.context("the sending thread has ended"),
        }
    }
}

/// Waits until no frame comes any more.
fn settle(sink: &Sink) -> anyhow::Result<Counts> {
    let (begun, mut last) = (Instant::now(), sink.counts().frames);
    loop {
        std::thread::sleep(QUIET);
        let counts = sink.counts();
        if counts.frames == last {
            return Ok(counts);
        }
        last = counts.frames;
        ensure!(
            begun.elapsed() < PATIENCE,
            "frames come {PATIENCE:?} after the last was sent"
        );
    }
}

/// Keeps the core awake until the input ends. In a virtual machine a core that halts runs again only when the host says so, which may take
/// longer than the queue of a cable holds.
pub fn keep_awake() -> anyhow::Result<()> {
    let done = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&done);
    let spins = std::thread::spawn(move || {
        while !seen.load(Ordering::Relaxed) {
            spin_loop();
        }
    });
    println!("ready");
    stdin().lines().for_each(drop);
    done.store(true, Ordering::Relaxed);
    spins
        .join()
        .map_err(|_| anyhow!("the thread that spins died"))
}
