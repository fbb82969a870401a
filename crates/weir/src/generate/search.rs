//! `--search`: the highest rates without loss, by RFC 9971.

use super::maker::Wanted;
use super::pace::Pace;
use super::receive;
use super::sender::Sender;
use super::{frames_words, open};
use crate::cli::GenerateArgs;
use crate::numbers::{asked_time, counted, duration, grouped, latency, percent, rate};
use crate::outcome::{Outcome, answer, say, say_plain};
use crate::port::{self, Port, PortFault};
use crate::receive::{Received, times, wait_for_the_last};
use crate::table::{Column, grid};
use crate::terminal;
use crate::walls::Walls;
use anyhow::{anyhow, bail};
use serde_json::{Value, json};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use weir_engine::pairing::{Pairs, Spread};
use weir_engine::search::{Bounds, Goal, Search, Trial};
use weir_generator::streams::{Gaps, Rate};
use weir_messages::guards::sending_line;

/// Highest rate over the least rate.
const RANGE: f64 = 10_000.0;

/// Part of the length of a trial by which its last packet may be late.
const GRACE: f64 = 0.1;

/// Least and longest time without a packet after which a trial is over: a quarter of its length, up to the 2 s of RFC 2544, section 23.
const QUIET: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(2));

/// A trial that was made.
struct Made {
    trial: Trial,
    sent: u64,
    received: u64,
    delay: Spread,
}

/// The highest rate to try. **Errors**: it is none of packets.
pub fn highest(rate: Option<Option<Rate>>) -> anyhow::Result<f64> {
    match rate {
        Some(Some(Rate::Packets(per_s))) => Ok(per_s),
        _ => bail!("--search tries rates of packets: name the highest one, as in --rate 1Mpps"),
    }
}

/// Searches, and prints the bounds.
pub fn run(
    arguments: &GenerateArgs,
    (wanted, max): (&Wanted, f64),
    walls: &Walls,
    stop: &Arc<AtomicBool>,
) -> anyhow::Result<Outcome> {
    let goals: Vec<Goal> = arguments.search.iter().map(|it| it.goal).collect();
    let least = (max / RANGE).min(max / 2.0);
    let limit_s = arguments
        .duration
        .map_or(f64::INFINITY, |limit| limit.as_secs_f64());
    let mut search =
        Search::new(&goals, (least, max), limit_s).map_err(|why| anyhow!("--search: {why}"))?;
    let port = open(arguments, true)?;
    let receiver = receive::open(arguments, &wanted.stream_names())?;
    let receiver = receiver.ok_or_else(|| anyhow!("--search: name the other end: --receive IF"))?;
    tell_begin(arguments, wanted, max);
    let mut wanted = wanted.clone();
    if arguments.gaps.is_none() {
        wanted.set_gaps(Gaps::Even);
    }
    let mut tries = Tries {
        port,
        wanted,
        stop,
        made: Vec::new(),
    };
    let work = |pairs: &Mutex<Pairs>| {
        let done = tries.all(&mut search, pairs);
        (tries, search, done)
    };
    let ((tries, search, done), received) = receiver.meanwhile(walls, || Ok(()), work)?;
    let mut is_done = !received.has_failed;
    let lost = tries.port.lost();
    for line in lost
        .iter()
        .map(|lost| port::lost_line(&arguments.sink.text(), lost))
    {
        say(&line);
        is_done = false;
    }
    if let Err(why) = done {
        say(&why);
        is_done = false;
    }
    let report = Report {
        arguments,
        bounds: search.bounds(),
        made: &tries.made,
        spent_s: search.spent_s(),
        received: &received,
        refused: tries.port.counts().refused(),
    };
    let unfinished = report.bounds.iter().any(|bounds| !bounds.is_complete);
    let text = match arguments.json {
        true => format!("{}\n", terminal::json("search", &report.object())),
        false => report.text(),
    };
    let answered = answer(&text);
    for line in report.remarks() {
        say_plain(&line);
    }
    Ok(Outcome::of(
        is_done && !unfinished && answered == Outcome::Done,
    ))
}

/// Tells what is sent, before the first packet.
fn tell_begin(arguments: &GenerateArgs, wanted: &Wanted, max: f64) {
    let end = match arguments.duration {
        Some(time) => format!("in trials of at most {} together", asked_time(time)),
        None => "in trials until the bounds are known".to_owned(),
    };
    if let Some(sender) = port::sender(&arguments.sink) {
        say_plain(&sending_line(
            &arguments.sink.text(),
            &sender,
            &frames_words(wanted),
            &format!("up to {} packets/s", rate(max)),
            &end,
        ));
    }
}

/// Trials by a port.
struct Tries<'a> {
    port: Port,
    wanted: Wanted,
    stop: &'a Arc<AtomicBool>,
    made: Vec<Made>,
}

impl Tries<'_> {
    /// Makes the trials of a search. **Errors**: why no more can be made, as a line.
    fn all(&mut self, search: &mut Search, pairs: &Mutex<Pairs>) -> Result<(), String> {
        while let Some(trial) = search.next() {
            let made = self.one(trial, pairs).map_err(|why| match why {
                Ok(fault) => port::fault_line(&fault),
                Err(why) => why,
            })?;
            let Some(made) = made else { return Ok(()) };
            search.tell(made.received);
            let number = self.made.len() + 1;
            say_plain(&format!(
                "trial {number}: {} packets/s for {}: {} sent, {} received",
                rate(trial.load),
                duration(Duration::from_secs_f64(trial.seconds)),
                grouped(made.sent),
                grouped(made.received),
            ));
            self.made.push(made);
        }
        Ok(())
    }

    /// Makes a trial; `None` if it was interrupted.
    fn one(
        &mut self,
        trial: Trial,
        pairs: &Mutex<Pairs>,
    ) -> Result<Option<Made>, Result<PortFault, String>> {
        let Trial { load, seconds } = trial;
        let rate = Rate::Packets(load);
        self.wanted.set_rate(Some(rate));
        self.wanted.set_packets((load * seconds).max(1.0) as u64);
        let mut maker = self.wanted.prepare().map_err(Err)?;
        let lock = || pairs.lock().unwrap_or_else(PoisonError::into_inner);
        lock().restart();
        let end = Duration::from_secs_f64(seconds * (1.0 + GRACE));
        let mut pace = Pace::quiet(self.stop, Some(end));
        let mut sender = Sender::new(&mut self.port, &mut maker, &mut pace, (Some(rate), true));
        sender = sender.stamping();
        sender.send().map_err(Ok)?;
        let quiet = Duration::from_secs_f64(seconds / 4.0).clamp(QUIET.0, QUIET.1);
        wait_for_the_last(pairs, self.stop, quiet);
        if pace.is_stopped() {
            return Ok(None);
        }
        let pairs = lock();
        Ok(Some(Made {
            trial,
            sent: maker.made,
            received: pairs.report().all().received,
            delay: pairs.report().delay(),
        }))
    }
}

/// Findings of a search.
struct Report<'a> {
    arguments: &'a GenerateArgs,
    bounds: Vec<Bounds>,
    made: &'a [Made],
    spent_s: f64,
    received: &'a Received,
    refused: u64,
}

impl Report<'_> {
    /// Delay at a goal's lower bound: of the longest trial with the least loss.
    fn delay(&self, bounds: &Bounds) -> Option<Spread> {
        let at = self
            .made
            .iter()
            .filter(|made| Some(made.trial.load) == bounds.lower);
        let best = at.max_by(|a, b| {
            let length = a.trial.seconds.total_cmp(&b.trial.seconds);
            length.then(a.received.cmp(&b.received))
        });
        best.map(|made| made.delay).filter(|delay| delay.count > 0)
    }

    /// Trials whose packets the sender did not make in time.
    fn short(&self) -> usize {
        let intended = |made: &&Made| (made.trial.load * made.trial.seconds) as u64;
        self.made
            .iter()
            .filter(|made| made.sent < intended(made))
            .count()
    }

    fn text(&self) -> String {
        let rows = || self.arguments.search.iter().zip(&self.bounds);
        let load = |load: Option<f64>| load.map_or_else(|| "-".to_owned(), rate);
        let figure = |of: fn(&Bounds) -> Option<f64>| rows().map(move |row| load(of(row.1)));
        let delay = |of: fn(Spread) -> u64| {
            rows().map(move |row| {
                let delay = self.delay(row.1);
                delay.map_or_else(|| "-".to_owned(), |delay| latency(of(delay) as i64))
            })
        };
        let columns = [
            Column::left("goal", rows().map(|row| row.0.name.clone())),
            Column::right("lower bound", figure(|bounds| bounds.lower)),
            Column::right("upper bound", figure(|bounds| bounds.upper)),
            Column::right("throughput", figure(|bounds| bounds.conditional)),
            Column::right("delay p50", delay(|delay| delay.p50)),
            Column::right("p99.9", delay(|delay| delay.p999)),
        ];
        grid(&columns, terminal::output_width())
    }

    /// Lines about the whole.
    fn remarks(&self) -> Vec<String> {
        let mut lines = vec![format!(
            "packets/s; {}, {} together",
            counted(self.made.len() as u64, "trial"),
            duration(Duration::from_secs_f64(self.spent_s))
        )];
        for (named, bounds) in self.arguments.search.iter().zip(&self.bounds) {
            let name = &named.name;
            match (bounds.is_complete, bounds.lower, bounds.upper) {
                (false, ..) => lines.push(format!(
                    "{name}: the search ended before the bounds were {} apart",
                    percent((named.goal.width * 1e6) as u64, 1_000_000)
                )),
                (_, Some(_), None) => lines.push(format!(
                    "{name}: the highest rate comes through: name a higher --rate"
                )),
                (_, None, _) => {
                    lines.push(format!("{name}: not even the least rate comes through"))
                }
                _ => {}
            }
        }
        let short = self.short();
        if short > 0 {
            lines.push(format!(
                "in {} the sender was too slow for the rate: such a bound is its own, and not that of the device",
                counted(short as u64, "trial")
            ));
        }
        let counted = self.received.counted.iter().filter(|row| row.1 > 0);
        let seen: Vec<String> = counted
            .map(|(name, count)| format!("{} by {name}", grouped(*count)))
            .collect();
        if !seen.is_empty() {
            lines.push(format!("lost in all trials: {}", seen.join(", ")));
        }
        lines
    }

    fn object(&self) -> Value {
        let goals = self.arguments.search.iter().zip(&self.bounds);
        let goals: Vec<Value> = goals
            .map(|(named, bounds)| {
                let goal = named.goal;
                json!({
                    "name": named.name, "loss_ratio": goal.loss_ratio, "exceed_ratio": goal.exceed_ratio, "width": goal.width,
                    "initial_s": goal.initial_s, "final_s": goal.final_s, "sum_s": goal.sum_s,
                    "lower_pps": bounds.lower, "upper_pps": bounds.upper, "throughput_pps": bounds.conditional,
                    "complete": bounds.is_complete, "delay_ns": self.delay(bounds).map(times),
                })
            })
            .collect();
        let trials: Vec<Value> = self
            .made
            .iter()
            .map(|made| {
                json!({
                    "pps": made.trial.load, "seconds": made.trial.seconds, "sent": made.sent, "received": made.received,
                    "delay_ns": (made.delay.count > 0).then(|| times(made.delay)),
                })
            })
            .collect();
        let refused = ("port refused".to_owned(), self.refused);
        let counters: serde_json::Map<String, Value> = std::iter::once(&refused)
            .chain(&self.received.counted)
            .map(|(name, count)| (name.replace(' ', "_"), (*count).into()))
            .collect();
        json!({ "goals": goals, "trials": trials, "spent_s": self.spent_s, "counters": counters })
    }
}
