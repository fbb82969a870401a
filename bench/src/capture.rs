//! Capturing from an interface, compared with tcpdump: highest rate without loss on a share of a core, processor time per
//! packet, writing to disk. AF_XDP is compared with AF_PACKET.
//!
//! Frames arrive at one end of a cable between two network namespaces. The kernel injects them on the sender's core, and
//! copies them into rings there too. The receiver's core therefore does only the receiver's own work, which is what the
//! comparison measures.

pub mod net;
pub mod receive;
pub mod send;

use crate::Size;
use crate::clock::range;
use crate::language;
use crate::plot::{self, Scale};
use crate::report::Report;
use crate::rivals::median;
use anyhow::Context;
use net::{Group, Net};
use receive::{Got, RING_KIB, Receiver};
use send::{FLOWS, Sender, Sent};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Columns of the raw data.
pub const RAW: &str = "section,what,frames,round,asked_pps,sent,seconds,captured,dropped,cpu_s";

/// Share of a core that a receiver gets: percent of each period, and the length of the period in us.
type Share = (u32, u64);
const SHARE: Share = (30, 10_000);
/// A share so small that the sender is faster than receivers of small frames. The kernel's least quota is 1 ms of a period.
const SMALL_SHARE: Share = (5, 20_000);

/// Section of the raw data with processor times.
const TIME: &str = "time";

/// Cores of the sender and the receiver.
const SENDER: usize = 0;
const RECEIVER: usize = 1;

/// Number of frames sent without pacing.
const UNPACED: u64 = 2_000_000;

/// Desired ratio of rates. The required ratio is more than 1.
const GOAL: f64 = 2.0;
/// Required limit on the processor time of `weir measure`, as a multiple of that of `weir filter '' -w /dev/null`; and the
/// desired limit.
const MUST_FILTER: f64 = 1.5;
const GOAL_FILTER: f64 = 1.25;
/// Required ratio of AF_XDP's rate to AF_PACKET's.
const MUST_XDP: f64 = 1.3;
/// Required ratio of the rate of a program in Java to that of `weir filter`.
const MUST_JAVA: f64 = 0.9;

/// Extent of the comparison.
#[derive(Debug)]
struct Plan {
    sizes: &'static [&'static str],
    /// Frame lengths, and the share of a core on which the receiver gets them.
    shares: &'static [(&'static str, Share)],
    /// Duration of a trial, s.
    seconds: f64,
    /// Duration of a trial that measures processor time, s. A longer trial spreads fixed costs over more packets.
    time_s: f64,
    /// Openings by which the program in Java warms up.
    warm_up: u32,
    /// Most trials of a search. The search ends early if the ratio of the lowest rate with loss to the highest without is
    /// below `close`.
    trials: usize,
    close: f64,
    /// Fixed rates for processor times, 1/s.
    rates: &'static [f64],
    /// First rate of a search, 1/s; 0 means unpaced.
    first: f64,
}

const FULL: Plan = Plan {
    sizes: &["60", "1500"],
    shares: &[("60", SHARE), ("60", SMALL_SHARE), ("1500", SHARE)],
    seconds: 1.5,
    time_s: 3.0,
    warm_up: language::WARM_UP,
    trials: 10,
    close: 1.06,
    rates: &[200e3, 400e3],
    first: 0.0,
};
const SMOKE: Plan = Plan {
    sizes: &["60"],
    shares: &[("60", SHARE)],
    seconds: 0.05,
    time_s: 0.05,
    warm_up: language::SMOKE_WARM_UP,
    trials: 1,
    close: 1.06,
    rates: &[20e3],
    first: 20e3,
};

/// Runs the parts whose names begin with `only`: `rates`, `time`, `disk`, `feeds`, `java`.
pub fn run(
    binary: &Path,
    size: Size,
    rounds: usize,
    (only, data): (&str, &Path),
    report: &mut Report,
) -> anyhow::Result<()> {
    if let Err(lacking) = can() {
        report.line(&format!("skipped: all of it: {lacking:#}"));
        return Ok(());
    }
    let net = Net::new()?;
    let plan = if size == Size::Full { FULL } else { SMOKE };
    report.line(&format!(
        "- two namespaces, a cable; frames injected on core {SENDER} as if received, {FLOWS} flows of equal rates, {} s a \
         trial; receivers on core {RECEIVER}, rings of {RING_KIB} KiB",
        plan.seconds
    ));
    let bench = Bench {
        net,
        plan,
        binary: binary.to_owned(),
        rounds,
    };
    type Part = fn(&Bench, &Path, &mut Report) -> anyhow::Result<()>;
    let parts: [(&str, Part); 5] = [
        ("rates", |bench, _, report| bench.rates(report)),
        ("time", |bench, _, report| bench.time(report)),
        ("disk", Bench::disk),
        ("feeds", |bench, _, report| bench.feeds(report)),
        ("java", Bench::java),
    ];
    for (_, part) in parts.into_iter().filter(|(name, _)| name.starts_with(only)) {
        part(&bench, data, report)?;
    }
    report.bars();
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    report.line(&format!("\nLoad when it ended: {}", load.trim()));
    Ok(())
}

/// Tries each part once. **Errors**: the tool or the right that is missing.
fn can() -> anyhow::Result<()> {
    for tool in ["ip", "taskset", "chrt", "tcpdump"] {
        Command::new(tool)
            .arg("--version")
            .output()
            .with_context(|| format!("no {tool}"))?;
    }
    Group::new(SHARE)?;
    let net = Net::new()?;
    Sender::start(net.command("near", SENDER, None, &Sender::words("near", "60", false)?))?
        .send(0.0, 1)?;
    Receiver::ours("AF_XDP")?
        .start(&net, RECEIVER, None)?
        .done()?;
    Ok(())
}

/// Settings and network of all parts.
#[derive(Debug)]
struct Bench {
    net: Net,
    plan: Plan,
    binary: PathBuf,
    rounds: usize,
}

/// One receiver with its frames and its share of a core, in one round.
struct Trial<'a> {
    section: &'a str,
    receiver: &'a Receiver,
    frames: &'a str,
    group: Option<&'a Group>,
    round: usize,
}

/// Highest rate without loss in a round, 1/s.
#[derive(Clone, Copy, Debug)]
struct Highest {
    rate: f64,
    /// Mean length of the frames, bytes.
    bytes: f64,
    /// Whether the sender was the limit.
    at_least: bool,
}

impl Bench {
    fn sender(&self, frames: &str) -> anyhow::Result<Sender> {
        Sender::start(self.net.command(
            "near",
            SENDER,
            None,
            &Sender::words("near", frames, false)?,
        ))
    }

    fn redirecting(&self, frames: &str) -> anyhow::Result<Sender> {
        Sender::start(
            self.net
                .command("far", SENDER, None, &Sender::words("far", frames, true)?),
        )
    }

    /// Sends `rate` frames a second to a receiver, or as many as possible if `rate` is 0.
    fn once(
        &self,
        trial: &Trial<'_>,
        sender: &mut Sender,
        rate: f64,
        report: &mut Report,
    ) -> anyhow::Result<(Sent, Got)> {
        let running = trial.receiver.start(&self.net, RECEIVER, trial.group)?;
        let seconds = if trial.section == TIME {
            self.plan.time_s
        } else {
            self.plan.seconds
        };
        let count = if rate > 0.0 {
            (rate * seconds) as u64
        } else {
            UNPACED
        };
        let sent = sender.send(rate, count)?;
        running.work_off()?;
        let got = running.done()?;
        let name = &trial.receiver.name;
        // tcpdump does not read the packets that wait when it is interrupted.
        if !name.starts_with("tcpdump") && got.packets + got.dropped != sent.frames {
            report.wrong(&format!(
                "{name} has {} and lost {} of {}",
                got.packets, got.dropped, sent.frames
            ));
        }
        if is_whole(&sent, &got) {
            judge(trial, &sent, &got, report)?;
        }
        if let Some(file) = trial
            .receiver
            .file
            .as_deref()
            .filter(|&file| file != Path::new("/dev/null"))
        {
            let bytes = fs::metadata(file)?.len();
            // Each format has at least 16 bytes of header for a packet.
            if is_whole(&sent, &got) && bytes < sent.bytes + 16 * sent.frames {
                report.wrong(&format!(
                    "{name}: a file of {bytes} bytes for {} bytes of packets",
                    sent.bytes
                ));
            }
            fs::remove_file(file)?;
        }
        report.raw(&[
            trial.section,
            name,
            trial.frames,
            &trial.round.to_string(),
            &format!("{rate:.0}"),
            &sent.frames.to_string(),
            &format!("{:.6}", sent.seconds),
            &got.packets.to_string(),
            &got.dropped.to_string(),
            &format!("{:.6}", got.cpu),
        ]);
        Ok((sent, got))
    }

    /// Searches the highest rate without loss, starting at `guess`.
    fn highest(
        &self,
        trial: &Trial<'_>,
        sender: &mut Sender,
        guess: f64,
        report: &mut Report,
    ) -> anyhow::Result<Highest> {
        let (mut good, mut bad, mut rate, mut bytes) = (0.0f64, f64::INFINITY, guess, 0.0);
        for _ in 0..self.plan.trials {
            let all = sender.is_full(rate);
            let (sent, got) = self.once(trial, sender, rate, report)?;
            let done = sent.rate();
            bytes = sent.bytes as f64 / sent.frames as f64;
            if is_whole(&sent, &got) {
                good = good.max(done);
                if all {
                    return Ok(Highest {
                        rate: good,
                        bytes,
                        at_least: true,
                    });
                }
            } else {
                bad = bad.min(done);
            }
            if bad / good < self.plan.close {
                break;
            }
            rate = match (good > 0.0, bad.is_finite()) {
                (true, true) => (good * bad).sqrt(),
                (true, false) => good * 1.25,
                // The rate at which packets were received is close to the highest.
                _ => (got.packets as f64 / sent.seconds)
                    .min(0.8 * done)
                    .max(1000.0),
            };
        }
        Ok(Highest {
            rate: good,
            bytes,
            at_least: false,
        })
    }

    /// Searches the highest rate of each rival, in turn within each round, and compares the first two.
    fn compare(
        &self,
        to: &Compared<'_>,
        rivals: &mut [Rival],
        report: &mut Report,
    ) -> anyhow::Result<Found> {
        let mut found: Vec<Vec<Highest>> = rivals.iter().map(|_| Vec::new()).collect();
        for round in 1..=self.rounds {
            for (rival, found) in rivals.iter_mut().zip(&mut found) {
                let guess = found.last().map_or(self.plan.first, |last| {
                    if last.at_least { 0.0 } else { last.rate }
                });
                let Compared {
                    section,
                    frames,
                    group,
                } = *to;
                let trial = Trial {
                    section,
                    receiver: &rival.receiver,
                    frames,
                    group,
                    round,
                };
                found.push(self.highest(&trial, &mut rival.sender, guess, report)?);
            }
        }
        let rates =
            |found: &[Highest]| found.iter().map(|one| one.rate / 1e6).collect::<Vec<f64>>();
        let base = rates(&found[1]);
        let (mut rows, mut bars) = (Vec::new(), Vec::new());
        for (i, (rival, found)) in rivals.iter().zip(&found).enumerate() {
            let (rates, name) = (rates(found), &rival.receiver.name);
            let (middle, (low, high)) = (median(rates.iter().copied()), range(&rates));
            let bound = found.iter().filter(|one| one.at_least).count();
            rows.push(vec![
                name.clone(),
                format!("{middle:.3}"),
                format!("{low:.3} - {high:.3}"),
                format!("{:.2}", middle * 8e-3 * found[0].bytes),
                ratio(&rates, &base).1,
                format!("{bound} of {}", self.rounds),
            ]);
            let label = format!("{name}, {}", frames_of(to.frames));
            bars.push(plot::Bar {
                label,
                value: middle,
                range: (low, high),
                group: i.min(1),
            });
        }
        let head = [
            "who",
            "Mpps without loss",
            "min - max",
            "Gbit/s",
            "of the second's",
            "rounds where the sender was the limit",
        ];
        report.table(&head, &rows);
        report.line("");
        let (ratio, words) = ratio(&rates(&found[0]), &base);
        let bound = if found[0].iter().any(|one| one.at_least) {
            ", the sender the limit"
        } else {
            ""
        };
        let undecided = found[..2].iter().flatten().all(|one| one.at_least);
        Ok(Found {
            bars,
            ratio,
            words: format!("{words}{bound}"),
            undecided,
        })
    }

    /// Highest rates on a share of a core, without output to disk.
    fn rates(&self, report: &mut Report) -> anyhow::Result<()> {
        let null = Path::new("/dev/null");
        let mut bars = Vec::new();
        for &(frames, share) in self.plan.shares {
            let (percent, period) = share;
            let group = Group::new(share)?;
            report.heading(&format!(
                "Without loss on {percent} % of a core: {}",
                frames_of(frames)
            ));
            report.line(&format!(
                "cgroup: {percent} % of each {} ms\n",
                period / 1000
            ));
            let mut receivers = vec![
                Receiver::measure(&self.binary),
                Receiver::tcpdump(null, None),
            ];
            if frames == "1500" {
                // The bytes of a packet that weir measure takes by default.
                receivers.push(Receiver::tcpdump(null, Some(512)));
            }
            let mut rivals = self.fed(receivers, frames)?;
            let to = Compared {
                section: "rates",
                frames,
                group: Some(&group),
            };
            let found = self.compare(&to, &mut rivals, report)?;
            bars.extend(found.bars.into_iter().map(|bar| plot::Bar {
                label: format!("{}, {percent} %", bar.label),
                ..bar
            }));
            let what = format!(
                "rate without loss on {percent} % of a core, {}",
                frames_of(frames)
            );
            if found.undecided {
                report.line(&format!(
                    "{what}: the sender is the limit of both, so this decides nothing."
                ));
                continue;
            }
            report.bar(
                &what,
                &format!("tcpdump's (goal {GOAL}x)"),
                &found.words,
                found.ratio > 1.0,
            );
        }
        let axis = "Mpps without loss: median, smallest and largest of the rounds";
        report.picture(
            "rates",
            &plot::bars(
                "Highest rate without loss on a share of a core",
                axis,
                Scale::Linear,
                &["weir", "tcpdump"],
                &bars,
            ),
        );
        Ok(())
    }

    /// A rival for each receiver, with a sender of its own.
    fn fed(&self, receivers: Vec<Receiver>, frames: &str) -> anyhow::Result<Vec<Rival>> {
        receivers
            .into_iter()
            .map(|receiver| {
                Ok(Rival {
                    receiver,
                    sender: self.sender(frames)?,
                })
            })
            .collect()
    }

    /// Processor time per packet, at fixed rates.
    fn time(&self, report: &mut Report) -> anyhow::Result<()> {
        let null = Path::new("/dev/null");
        let mut bars = Vec::new();
        for frames in self.plan.sizes {
            report.heading(&format!("Processor time a packet: {}", frames_of(frames)));
            let receivers = [
                Receiver::measure(&self.binary),
                Receiver::filter(&self.binary, null),
                Receiver::tcpdump(null, None),
            ];
            let mut senders = Vec::new();
            for receiver in &receivers {
                let mut sender = self.sender(frames)?;
                if self.plan.first > 0.0 {
                    senders.push(sender);
                    continue;
                }
                // Finds the sender's highest rate with this receiver.
                let trial = Trial {
                    section: "time, before",
                    receiver,
                    frames,
                    group: None,
                    round: 0,
                };
                self.once(&trial, &mut sender, 0.0, report)?;
                senders.push(sender);
            }
            // For each receiver: without traffic, then at each rate.
            let rates: Vec<f64> = std::iter::once(f64::NAN)
                .chain(self.plan.rates.iter().copied())
                .collect();
            let mut times = vec![vec![Vec::new(); rates.len()]; receivers.len()];
            let mut lost = vec![0; receivers.len()];
            for round in 1..=self.rounds {
                for (n, &rate) in rates.iter().enumerate() {
                    for (i, receiver) in receivers.iter().enumerate() {
                        let trial = Trial {
                            section: TIME,
                            receiver,
                            frames,
                            group: None,
                            round,
                        };
                        if rate.is_nan() {
                            times[i][n].push(self.nothing(&trial, report)?);
                            continue;
                        }
                        let (sent, got) = self.once(&trial, &mut senders[i], rate, report)?;
                        lost[i] += sent.frames.saturating_sub(got.packets);
                        let idle = times[i][0].last().copied().unwrap_or(0.0);
                        times[i][n].push((got.cpu - idle) * 1e9 / sent.frames as f64);
                    }
                }
            }
            let mut rows = Vec::new();
            for (n, &rate) in rates.iter().enumerate().skip(1) {
                let base = &times[2][n];
                for (i, receiver) in receivers.iter().enumerate() {
                    let (middle, (low, high)) =
                        (median(times[i][n].iter().copied()), range(&times[i][n]));
                    let kpps = format!("{:.0} kpps", rate / 1e3);
                    let (share, words) = ratio(&times[i][n], base);
                    rows.push(vec![
                        format!("{}, {kpps}", receiver.name),
                        format!("{middle:.1} ns"),
                        format!("{low:.1} - {high:.1}"),
                        words.clone(),
                        lost[i].to_string(),
                    ]);
                    let label = format!("{}, {kpps}, {}", receiver.name, frames_of(frames));
                    bars.push(plot::Bar {
                        label,
                        value: middle,
                        range: (low, high),
                        group: i / 2,
                    });
                    if i < 2 {
                        let what = format!(
                            "processor time, {}, {kpps}, {}",
                            receiver.name,
                            frames_of(frames)
                        );
                        report.bar(&what, "below tcpdump's (goal 0.5x)", &words, share < 1.0);
                    }
                }
                if *frames == "60" {
                    let (share, words) = ratio(&times[0][n], &times[1][n]);
                    let what = format!(
                        "processor time, weir measure against weir filter, {:.0} kpps",
                        rate / 1e3
                    );
                    let must = format!("{MUST_FILTER}x (goal {GOAL_FILTER}x)");
                    report.bar(&what, &must, &words, share <= MUST_FILTER);
                }
            }
            report.table(
                &[
                    "who, rate",
                    "a packet",
                    "min - max",
                    "of tcpdump's",
                    "lost at any rate",
                ],
                &rows,
            );
        }
        let axis = "ns a packet, user and kernel: median, smallest and largest of the rounds";
        report.picture(
            "time",
            &plot::bars(
                "Processor time a packet",
                axis,
                Scale::Linear,
                &["weir", "tcpdump"],
                &bars,
            ),
        );
        Ok(())
    }

    /// Processor time of a receiver without traffic, s.
    fn nothing(&self, trial: &Trial<'_>, report: &mut Report) -> anyhow::Result<f64> {
        let running = trial.receiver.start(&self.net, RECEIVER, None)?;
        std::thread::sleep(Duration::from_secs_f64(self.plan.time_s));
        let got = running.done()?;
        let (round, cpu) = (trial.round.to_string(), format!("{:.6}", got.cpu));
        let counts = [got.packets, got.dropped].map(|count| count.to_string());
        report.raw(&[
            trial.section,
            &trial.receiver.name,
            trial.frames,
            &round,
            "none",
            "0",
            "0",
            &counts[0],
            &counts[1],
            &cpu,
        ]);
        Ok(got.cpu)
    }

    /// Highest rates on a share of a core, with output to a file.
    fn disk(&self, data: &Path, report: &mut Report) -> anyhow::Result<()> {
        report.heading(&format!(
            "Without loss on {} % of a core, to a file: {}",
            SHARE.0,
            frames_of("mwn")
        ));
        fs::create_dir_all(data).with_context(|| data.display().to_string())?;
        let data = data.canonicalize()?;
        let group = Group::new(SHARE)?;
        let receivers = vec![
            Receiver::filter(&self.binary, &data.join("capture.pcapng")),
            Receiver::tcpdump(&data.join("capture.pcap"), None),
        ];
        let mut rivals = self.fed(receivers, "mwn")?;
        let to = Compared {
            section: "disk",
            frames: "mwn",
            group: Some(&group),
        };
        let found = self.compare(&to, &mut rivals, report)?;
        report.line("Each file is removed before the next is begun.");
        let what = format!("rate without loss to a file, on {} % of a core", SHARE.0);
        report.bar(
            &what,
            &format!("tcpdump's (goal {GOAL}x)"),
            &found.words,
            found.ratio > 1.0,
        );
        let axis = "Mpps without loss: median, smallest and largest of the rounds";
        report.picture(
            "disk",
            &plot::bars(
                "To a file",
                axis,
                Scale::Linear,
                &["weir", "tcpdump"],
                &found.bars,
            ),
        );
        Ok(())
    }

    /// Highest rates without loss of a program in Java, against `weir filter`, by both ways into the interface.
    fn java(&self, data: &Path, report: &mut Report) -> anyhow::Result<()> {
        report.heading("A program in Java, against weir filter");
        let Some(home) = language::jdk() else {
            report.line("skipped: Java: there is no JDK 25; install one, or name it in JAVA_HOME");
            return Ok(());
        };
        fs::create_dir_all(data).with_context(|| data.display().to_string())?;
        let data = data.canonicalize()?;
        let programs = language::Programs::new(&home, &data, self.plan.warm_up)?;
        report.line(
            "The program counts UDP packets by checked accesses. It warms up on small batches of a file, until the calls of a capture \
             are compiled, and gets its share of a core behind that; its accounts must agree with the sender's.\n",
        );
        for from in ["near", "af_xdp:near:0"] {
            for &(frames, share) in self
                .plan
                .shares
                .iter()
                .filter(|(frames, _)| *frames == "60")
            {
                let group = Group::new(share)?;
                let percent = share.0;
                let receivers = [
                    Receiver::java(&programs, from),
                    Receiver::filter_from(&self.binary, from),
                ];
                let with_sender = |receiver| {
                    let is_xdp = from.starts_with("af_xdp");
                    let sender = if is_xdp {
                        self.redirecting(frames)?
                    } else {
                        self.sender(frames)?
                    };
                    anyhow::Ok(Rival { receiver, sender })
                };
                let mut rivals = receivers
                    .into_iter()
                    .map(with_sender)
                    .collect::<anyhow::Result<Vec<_>>>()?;
                report.line(&format!(
                    "{from}, {percent} % of a core, {}:\n",
                    frames_of(frames)
                ));
                let to = Compared {
                    section: "java",
                    frames,
                    group: Some(&group),
                };
                let found = self.compare(&to, &mut rivals, report)?;
                let what = format!("Java on {from}, rate without loss on {percent} % of a core");
                if found.undecided {
                    report.line(&format!(
                        "{what}: the sender is the limit of both, so this decides nothing.\n"
                    ));
                    continue;
                }
                let must = format!("{MUST_JAVA}x of weir filter");
                report.bar(&what, &must, &found.words, found.ratio >= MUST_JAVA);
            }
        }
        Ok(())
    }

    /// AF_XDP against AF_PACKET on a whole core, each with the path of injection that suits it.
    fn feeds(&self, report: &mut Report) -> anyhow::Result<()> {
        for frames in self.plan.sizes {
            report.heading(&format!(
                "AF_XDP and AF_PACKET, a whole core, heavy behind them: {}",
                frames_of(frames)
            ));
            report.line(
                "The feeds differ: to AF_XDP frames are redirected by the other end of the cable, before the kernel makes \
                 packets of its own of them; to AF_PACKET they come behind that.\n",
            );
            let mut rivals = [
                Rival {
                    receiver: Receiver::ours("AF_XDP")?,
                    sender: self.redirecting(frames)?,
                },
                Rival {
                    receiver: Receiver::ours("AF_PACKET")?,
                    sender: self.sender(frames)?,
                },
            ];
            let mut rates = [const { Vec::new() }; 2];
            let mut losses = [const { Vec::new() }; 2];
            for round in 1..=self.rounds {
                for (i, rival) in rivals.iter_mut().enumerate() {
                    let trial = Trial {
                        section: "feeds",
                        receiver: &rival.receiver,
                        frames,
                        group: None,
                        round,
                    };
                    let (sent, got) =
                        self.once(&trial, &mut rival.sender, self.plan.first, report)?;
                    rates[i].push(got.packets as f64 / sent.seconds / 1e6);
                    losses[i].push(100.0 * got.dropped as f64 / sent.frames as f64);
                }
            }
            let rows: Vec<Vec<String>> = (0..2)
                .map(|i| {
                    let (low, high) = range(&rates[i]);
                    vec![
                        rivals[i].receiver.name.clone(),
                        format!("{:.3}", median(rates[i].iter().copied())),
                        format!("{low:.3} - {high:.3}"),
                        format!("{:.2} %", median(losses[i].iter().copied())),
                        ratio(&rates[i], &rates[1]).1,
                    ]
                })
                .collect();
            report.line("As fast as the sender can:\n");
            report.table(
                &[
                    "who",
                    "Mpps received",
                    "min - max",
                    "lost",
                    "of the second's",
                ],
                &rows,
            );
            report.line("\nWithout loss:\n");
            let to = Compared {
                section: "feeds, without loss",
                frames,
                group: None,
            };
            let found = self.compare(&to, &mut rivals, report)?;
            let must = format!("{MUST_XDP}x AF_PACKET (goal {GOAL}x)");
            report.bar(
                &format!("AF_XDP, without loss, {}", frames_of(frames)),
                &must,
                &found.words,
                found.ratio >= MUST_XDP,
            );
            let (share, words) = ratio(&rates[0], &rates[1]);
            let words = format!("{words}, {} lost", rows[0][3]);
            report.bar(
                &format!("AF_XDP, received with loss, {}", frames_of(frames)),
                &must,
                &words,
                share >= MUST_XDP,
            );
        }
        Ok(())
    }
}

/// A receiver and its sender.
struct Rival {
    receiver: Receiver,
    sender: Sender,
}

/// Section, frames and share of a core of a comparison.
struct Compared<'a> {
    section: &'a str,
    frames: &'a str,
    group: Option<&'a Group>,
}

/// Result of a comparison of the first rival with the second.
struct Found {
    bars: Vec<plot::Bar>,
    ratio: f64,
    words: String,
    /// Whether the sender was the limit of both in all rounds.
    undecided: bool,
}

/// Whether all sent frames were received.
fn is_whole(sent: &Sent, got: &Got) -> bool {
    got.packets == sent.frames && got.dropped == 0
}

/// Checks the largest flow that `heavy` reports. With frames of one length, all flows have the same share of the packets.
fn judge(trial: &Trial<'_>, sent: &Sent, got: &Got, report: &mut Report) -> anyhow::Result<()> {
    if got.out.trim().is_empty() || trial.frames == "mwn" {
        return Ok(());
    }
    let answer: Value = serde_json::from_str(&got.out).context("the answer is no JSON")?;
    let (first, real) = (
        answer["top"][0]["packets"].as_u64(),
        sent.frames.div_ceil(u64::from(FLOWS)),
    );
    if first != Some(real) {
        report.wrong(&format!(
            "{}: the largest flow has {first:?} packets, not {real}",
            trial.receiver.name
        ));
    }
    Ok(())
}

/// Median ratio of the first to the second, and the median with its range as text. Values of the same round are divided, so
/// that a slow minute of the machine affects both.
pub fn ratio(first: &[f64], second: &[f64]) -> (f64, String) {
    let ratios: Vec<f64> = first
        .iter()
        .zip(second)
        .map(|(first, second)| first / second)
        .collect();
    let (middle, (low, high)) = (median(ratios.iter().copied()), range(&ratios));
    (middle, format!("{middle:.2}x ({low:.2} - {high:.2})"))
}

fn frames_of(frames: &str) -> String {
    if frames == "mwn" {
        "MWN sizes".to_owned()
    } else {
        format!("{frames} bytes")
    }
}
