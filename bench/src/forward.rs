//! Forwarding between two cables by rules, on one core: `weir firewall` against nftables. Rates without loss and under overload, rules that
//! are swapped under load, and the time until a change over the control socket is in force.
//!
//! ```text
//! core 0: sender -> far ~~cable~~ near -> forwarder -> out ~~cable~~ sink: counter      core 0 again
//!                                 `------ core 1 ------'
//! ```
//!
//! The kernel's part at `near` is a thread of the kernel (threaded NAPI), which gets core 1: it makes packets of the frames, and for
//! nftables it forwards them too. What leaves `out` is handed to core 0 (receive packet steering), where a program counts and drops it.

pub mod control;
mod forwarders;
pub mod load;
mod rules;
mod sink;
mod swap;

use crate::Size;
use crate::capture::net::Net;
use crate::capture::ratio;
use crate::capture::send::Helper;
use crate::clock::range;
use crate::plot::{self, Scale};
use crate::report::Report;
use crate::rivals::{median, path};
use anyhow::{Context, ensure};
use forwarders::{Account, Forwarder, Kind, pin, scratch};
use load::{Load, PATIENCE, Sent};
use rules::List;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Columns of the raw data.
pub const RAW: &str = "section,list,frames,rival,round,asked_pps,offered_pps,received_pps,sent,passed,denied,dropped,cable_before,cable_behind,\
                       received,lag_ms";

/// Core of the sender, the sink and all of weir but its worker; and of the forwarder.
const OTHERS: usize = 0;
const FORWARDER: usize = 1;

/// Required and desired ratios of rates without loss, by AF_XDP, to nftables.
const MUST_LINEAR: f64 = 5.0;
const GOAL_LINEAR: f64 = 10.0;
const MUST_SET: f64 = 0.5;
const GOAL_SET: f64 = 0.9;

/// Share of the rate without loss at which frames flow while rules and permissions change, and the searches of that rate.
const SHARE: f64 = 0.8;
const SEARCHES: usize = 3;

/// Longest time from the last frame sent to the last one received of a forwarder that keeps up. A ring may hold more.
const LAG_S: f64 = 0.02;

/// Extent of the comparison.
#[derive(Debug)]
struct Plan {
    sizes: &'static [usize],
    lists: &'static [List],
    /// Number of rules, or of members of the set.
    rules: u32,
    /// Duration of a trial.
    time: Duration,
    /// Most trials of a search, which ends early if the ratio of the lowest rate with loss to the highest without is below `close`.
    trials: usize,
    close: f64,
    /// First rate of a search, 1/s; 0: as fast as the sender can.
    first: f64,
    /// Swaps, the rules of each list, and the pause before each.
    swaps: usize,
    swapped: u32,
    pause: Duration,
    /// Changes over the control socket.
    changes: usize,
}

const FULL: Plan = Plan {
    sizes: &[60, 1500],
    lists: &[List::One, List::Sources, List::Ports, List::Both, List::Set],
    rules: 1000,
    time: Duration::from_millis(500),
    trials: 8,
    close: 1.05,
    first: 0.0,
    swaps: 24,
    swapped: 10_000,
    pause: Duration::from_millis(150),
    changes: 2000,
};
const SMOKE: Plan = Plan {
    sizes: &[60],
    lists: &[List::Sources, List::Set],
    rules: 20,
    time: Duration::from_millis(50),
    trials: 1,
    close: 1.05,
    first: 5e3,
    swaps: 2,
    swapped: 100,
    pause: Duration::from_millis(20),
    changes: 20,
};

/// Runs the parts whose names begin with `only`: `rates`, `swap`, `control`.
pub fn run(
    binary: &Path,
    size: Size,
    rounds: usize,
    only: &str,
    report: &mut Report,
) -> anyhow::Result<()> {
    let ways = match can(binary) {
        Ok(ways) => ways,
        Err(lacking) => {
            report.line(&format!("skipped: all of it: {lacking:#}"));
            return Ok(());
        }
    };
    let plan = if size == Size::Full { FULL } else { SMOKE };
    report.line(&format!(
        "- two cables between two namespaces; sender, sink and the forwarder's other threads on core {OTHERS}, the forwarder on core \
         {FORWARDER}: weir's worker, and the kernel's thread of the first cable (threaded NAPI), in which nftables works",
    ));
    report.line(&format!(
        "- {} flows of UDP, each frame of another flow than the one before, {} ms a trial",
        load::FLOWS,
        plan.time.as_millis()
    ));
    let bench = Bench {
        ways,
        plan,
        rounds,
        is_full: size == Size::Full,
    };
    let is_asked_for = |part: &str| part.starts_with(only) || only.starts_with(part);
    if is_asked_for("rates") {
        bench.rates(report)?;
    }
    if is_asked_for("swap") {
        bench.swap(report)?;
    }
    if is_asked_for("control") {
        bench.control(report)?;
    }
    report.bars();
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    report.line(&format!("\nLoad when it ended: {}", load.trim()));
    Ok(())
}

/// Makes the cables, and tries each forwarder once. **Errors**: the tool or the right that is missing.
fn can(binary: &Path) -> anyhow::Result<Ways> {
    for tool in ["ip", "taskset", "chrt", "nft", "ethtool", "sh"] {
        Command::new(tool)
            .arg("--version")
            .output()
            .with_context(|| format!("no {tool}"))?;
    }
    let cores = std::thread::available_parallelism()?.get();
    ensure!(cores > FORWARDER, "two cores are needed, there is {cores}");
    let ways = Ways::new(binary)?;
    let mut load = ways.load(60)?;
    for kind in [Kind::Xdp, Kind::Packet, Kind::Routing, Kind::Bridge] {
        let forwarder = Forwarder::start(&ways, kind, List::One, 1)?;
        load.send(1e3, Duration::from_millis(5))
            .with_context(|| kind.name())?;
        forwarder.end()?;
    }
    Ok(ways)
}

/// The two cables, and a folder for rules and socket.
#[derive(Debug)]
struct Ways {
    net: Net,
    weir: PathBuf,
    /// Name of the end where the forwarder receives. It is this process's alone, so that the kernel's thread for it is known by its name.
    near: String,
    _awake: Helper,
}

impl Ways {
    fn new(binary: &Path) -> anyhow::Result<Self> {
        let net = Net::new()?;
        let near = format!("n{}", std::process::id());
        let us = std::env::current_exe()?;
        let words = ["chrt", "--idle", "0", path(&us), load::AWAKE].map(str::to_owned);
        let _awake = Helper::start(net.command("near", FORWARDER, None, &words))?;
        let ways = Self {
            net,
            weir: binary.canonicalize()?,
            near,
            _awake,
        };
        fs::create_dir_all(scratch())?;
        let near = &ways.near;
        ways.net.cable("away", near)?;
        ways.net.cable("sink", "out")?;
        // Frames come to this address. The queue of a cable needs polling (NAPI), which merging (GRO) turns on; datagrams are not merged.
        let line = format!(
            "ip link set {near} address 02:00:00:00:be:01 && ethtool -K {near} gro on && echo 1 >/sys/class/net/{near}/threaded"
        );
        ways.net.shell("near", &line)?;
        let mask = format!("{:x}", 1 << OTHERS);
        ways.net.shell(
            "far",
            &format!("echo {mask} >/sys/class/net/sink/queues/rx-0/rps_cpus"),
        )?;
        ways.pin()?;
        Ok(ways)
    }

    fn load(&self, len: usize) -> anyhow::Result<Load> {
        Load::start(
            self.net
                .command("far", OTHERS, None, &Load::words("away", "sink", len)?),
        )
    }

    fn rules(&self) -> PathBuf {
        scratch().join("rules")
    }

    fn socket(&self) -> PathBuf {
        scratch().join("control")
    }

    /// Number of the kernel's thread that polls the first cable.
    fn napi(&self) -> anyhow::Result<u32> {
        // A thread's name has 15 bytes at most.
        let name: String = format!("napi/{}-", self.near).chars().take(15).collect();
        for process in fs::read_dir("/proc")? {
            let process = process?;
            let is_ours = fs::read_to_string(process.path().join("comm"))
                .is_ok_and(|comm| comm.starts_with(&name));
            if let Some(number) = process
                .file_name()
                .to_str()
                .and_then(|number| number.parse().ok())
                && is_ours
            {
                return Ok(number);
            }
        }
        anyhow::bail!("the kernel has no thread for {}", self.near)
    }

    /// Gives the kernel's thread the forwarder's core. An XDP program that comes or goes may make another one.
    fn pin(&self) -> anyhow::Result<()> {
        const PAUSE: Duration = Duration::from_millis(10);
        for _ in 0..50 {
            if self
                .napi()
                .and_then(|thread| pin(thread, FORWARDER))
                .is_ok()
            {
                return Ok(());
            }
            std::thread::sleep(PAUSE);
        }
        pin(self.napi()?, FORWARDER).context("the thread of the cable")
    }

    /// Frames that the queues of the first and the second cable had no room for.
    fn refused(&self) -> anyhow::Result<[u64; 2]> {
        let told = self.net.shell("far", "ethtool -S away")?;
        let errors = told
            .lines()
            .filter_map(|line| line.trim().strip_prefix("tx_queue_0_xdp_xmit_errors: "));
        let before = errors
            .filter_map(|count| count.parse::<u64>().ok())
            .next()
            .context("ethtool tells no errors")?;
        let behind = self
            .net
            .shell("near", "cat /sys/class/net/out/statistics/tx_dropped")?;
        Ok([before, behind.trim().parse()?])
    }
}

impl Drop for Ways {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(scratch());
    }
}

#[derive(Debug)]
struct Bench {
    ways: Ways,
    plan: Plan,
    rounds: usize,
    is_full: bool,
}

/// A trial's place in the raw data.
#[derive(Clone, Copy, Debug)]
struct Trial<'a> {
    section: &'a str,
    list: List,
    len: usize,
    round: usize,
}

/// A forwarder's results in the rounds.
#[derive(Debug, Default)]
struct Found {
    /// Highest rates without loss, Mpps.
    highest: Vec<f64>,
    /// Rates received in an overload, Mpps.
    overload: Vec<f64>,
    /// Sums over all trials.
    sent: u64,
    received: u64,
    account: Account,
    /// Shares of the time of an overload in which the kernel's thread of the first cable ran, and weir's worker.
    shares: [Vec<f64>; 2],
}

impl Bench {
    /// Sends for a time, and checks the totals.
    fn once(
        &self,
        trial: &Trial<'_>,
        forwarder: &mut Forwarder<'_>,
        load: &mut Load,
        rate: f64,
        report: &mut Report,
    ) -> anyhow::Result<(Sent, Account)> {
        let before = forwarder.account()?;
        let sent = load.send(rate, self.plan.time)?;
        let (sent, account) = settled(forwarder, load, sent, before)?;
        check(forwarder.kind, &sent, &account, report);
        let Account {
            passed,
            denied,
            dropped,
            before,
            behind,
        } = account;
        let counts = [
            sent.frames,
            passed,
            denied,
            dropped,
            before,
            behind,
            sent.received,
        ]
        .map(|count| count.to_string());
        let rates = [rate, sent.rate(), sent.received_pps].map(|rate| format!("{rate:.0}"));
        let (len, round, lag) = (
            trial.len.to_string(),
            trial.round.to_string(),
            format!("{:.3}", sent.lag * 1e3),
        );
        let mut fields = vec![
            trial.section,
            trial.list.name(),
            &len,
            forwarder.kind.name(),
            &round,
        ];
        fields.extend(rates.iter().chain(&counts).map(String::as_str));
        fields.push(&lag);
        report.raw(&fields);
        Ok((sent, account))
    }

    /// Finds the highest rate without loss and the rate under overload, in one round.
    fn round(
        &self,
        trial: &Trial<'_>,
        kind: Kind,
        load: &mut Load,
        found: &mut Found,
        report: &mut Report,
    ) -> anyhow::Result<()> {
        let mut forwarder = Forwarder::start(&self.ways, kind, trial.list, self.plan.rules)?;
        let add = |found: &mut Found, sent: &Sent, account: &Account| {
            found.sent += sent.frames;
            found.received += sent.received;
            let sum = &mut found.account;
            sum.passed += account.passed;
            sum.denied += account.denied;
            sum.dropped += account.dropped;
            sum.before += account.before;
            sum.behind += account.behind;
        };
        let ran = forwarder.run_s();
        let (sent, account) = self.once(trial, &mut forwarder, load, self.plan.first, report)?;
        let time = sent.received as f64 / sent.received_pps;
        let shares = forwarder
            .run_s()
            .iter()
            .zip(ran)
            .map(|(now, then)| (now - then) / time)
            .collect::<Vec<_>>();
        found
            .shares
            .iter_mut()
            .zip(shares)
            .for_each(|(all, share)| all.push(share));
        found.overload.push(sent.received_pps / 1e6);
        add(found, &sent, &account);
        forwarder.hurry(true)?;
        let (mut good, mut bad, mut rate) = (0.0f64, f64::INFINITY, sent.received_pps);
        if is_whole(&sent) {
            good = sent.rate();
        } else {
            bad = sent.rate();
        }
        for _ in 0..self.plan.trials {
            let (sent, account) = self.once(trial, &mut forwarder, load, rate, report)?;
            add(found, &sent, &account);
            if is_whole(&sent) {
                good = good.max(sent.rate());
                // Less than asked for: the sender can do no more.
                if sent.rate() < 0.9 * rate {
                    break;
                }
            } else {
                bad = bad.min(sent.rate());
            }
            if bad / good < self.plan.close {
                break;
            }
            rate = match (good > 0.0, bad.is_finite()) {
                (true, true) if bad < 1.5 * good => (good * bad).sqrt(),
                (true, _) => good * 1.15,
                _ => rate * 0.8,
            };
        }
        found.highest.push(good / 1e6);
        forwarder.hurry(false)?;
        forwarder.end()
    }

    /// The faster of routing and bridge, by one overload each.
    fn faster(
        &self,
        trial: &Trial<'_>,
        load: &mut Load,
        report: &mut Report,
    ) -> anyhow::Result<Kind> {
        let mut best = (Kind::Routing, 0.0);
        for kind in [Kind::Routing, Kind::Bridge] {
            let mut forwarder = Forwarder::start(&self.ways, kind, trial.list, self.plan.rules)?;
            let (sent, _) = self.once(trial, &mut forwarder, load, self.plan.first, report)?;
            if sent.received_pps > best.1 {
                best = (kind, sent.received_pps);
            }
        }
        Ok(best.0)
    }

    /// A share of the highest rate without loss, 1/s: of the best of some searches, as other programs of the machine only lower it.
    fn share_of_highest(&self, kind: Kind, share: f64, report: &mut Report) -> anyhow::Result<f64> {
        if !self.is_full {
            return Ok(self.plan.first);
        }
        let (mut load, mut found) = (self.ways.load(60)?, Found::default());
        for round in 1..=SEARCHES {
            let trial = Trial {
                section: "rate for changes",
                list: List::Sources,
                len: 60,
                round,
            };
            self.round(&trial, kind, &mut load, &mut found, report)?;
        }
        Ok(found.highest.iter().copied().fold(0.0, f64::max) * 1e6 * share)
    }

    fn rates(&self, report: &mut Report) -> anyhow::Result<()> {
        let mut bars = Vec::new();
        for &len in self.plan.sizes {
            let mut load = self.ways.load(len)?;
            let mut costs = Vec::new();
            for &list in self.plan.lists {
                report.heading(&format!(
                    "{} rules, {}: {len} bytes",
                    self.plan.rules,
                    list.name()
                ));
                let trial = |section, round| Trial {
                    section,
                    list,
                    len,
                    round,
                };
                let nft = self.faster(&trial("nftables, which", 0), &mut load, report)?;
                let kinds = [Kind::Xdp, Kind::Packet, nft];
                let mut found = [const { None }; 3].map(|_: Option<()>| Found::default());
                for round in 1..=self.rounds {
                    for (kind, found) in kinds.into_iter().zip(&mut found) {
                        self.round(&trial("rates", round), kind, &mut load, found, report)?;
                    }
                }
                table(&kinds, &found, report);
                costs.push((
                    list,
                    found
                        .each_ref()
                        .map(|found| 1e3 / median(found.overload.iter().copied())),
                ));
                for (i, (kind, found)) in kinds.iter().zip(&found).enumerate() {
                    let label = format!("{}, {}, {len} bytes", kind.name(), list.name());
                    let value = median(found.highest.iter().copied());
                    bars.push(plot::Bar {
                        label,
                        value,
                        range: range(&found.highest),
                        group: usize::from(i == 2),
                    });
                }
                if self.is_full {
                    self.judge(list, len, &found, report);
                }
            }
            costs_table(&costs, report);
        }
        let axis = "Mpps without loss: median, smallest and largest of the rounds";
        let title = "Highest rate without loss, forwarder on one core";
        report.picture(
            "rates",
            &plot::bars(title, axis, Scale::Linear, &["weir", "nftables"], &bars),
        );
        Ok(())
    }

    /// Compares with the required ratios.
    fn judge(&self, list: List, len: usize, found: &[Found; 3], report: &mut Report) {
        let (must, goal) = match list {
            List::One => return,
            List::Set => (MUST_SET, GOAL_SET),
            _ => (MUST_LINEAR, GOAL_LINEAR),
        };
        for (i, kind) in [Kind::Xdp, Kind::Packet].into_iter().enumerate() {
            let [(middle, words), (_, overload)] = [
                |one: &Found| one.highest.clone(),
                |one: &Found| one.overload.clone(),
            ]
            .map(|of| ratio(&of(&found[i]), &of(&found[2])));
            let words = format!("{words}; overload {overload}");
            let what = format!("{}, {}, {len} bytes", kind.name(), list.name());
            report.bar(
                &what,
                &format!("{must}x nftables (goal {goal}x)"),
                &words,
                middle >= must,
            );
        }
    }
}

/// Whether all frames came through in time.
fn is_whole(sent: &Sent) -> bool {
    sent.received == sent.frames && sent.lag < LAG_S
}

/// Whether what was sent was passed, denied or dropped, and what was passed was received.
fn adds_up(sent: &Sent, account: &Account) -> bool {
    let Account {
        passed,
        denied,
        dropped,
        before,
        behind,
    } = *account;
    sent.frames == before + dropped + denied + passed && passed == sent.received + behind
}

/// Returns what was sent, and the totals since `before`, once they add up: where other programs
/// have the processors, the kernel's thread forwards the last frames late. If they do not add up
/// for long, returns both as they are.
fn settled(
    forwarder: &mut Forwarder<'_>,
    load: &mut Load,
    sent: Sent,
    before: Account,
) -> anyhow::Result<(Sent, Account)> {
    let begun = Instant::now();
    let (mut sent, mut account) = (sent, forwarder.account()?.since(before));
    while !adds_up(&sent, &account) && begun.elapsed() < PATIENCE {
        sent = load.again()?;
        account = forwarder.account()?.since(before);
    }
    Ok((sent, account))
}

/// Checks that what was sent was passed, denied or dropped, and what was passed was received. Each count is another one's: the program of the
/// sender, the forwarder, both cables, and the program of the sink.
fn check(kind: Kind, sent: &Sent, account: &Account, report: &mut Report) {
    let sent = &Sent {
        switches: Vec::new(),
        ..sent.clone()
    };
    if !adds_up(sent, account) || sent.disorder > 0 || sent.others > 0 {
        report.wrong(&format!(
            "{}: the account: {sent:?}, {account:?}",
            kind.name()
        ));
    }
}

fn table(kinds: &[Kind; 3], found: &[Found; 3], report: &mut Report) {
    let mut rows = Vec::new();
    for (kind, one) in kinds.iter().zip(found) {
        let spread = |values: &[f64]| {
            let (low, high) = range(values);
            format!("{low:.3} - {high:.3}")
        };
        let middle = |values: &[f64]| median(values.iter().copied());
        let share = |i: usize| format!("{:.0} %", 100.0 * middle(&one.shares[i]));
        rows.push(vec![
            kind.name().to_owned(),
            format!("{:.3}", middle(&one.highest)),
            spread(&one.highest),
            format!("{:.3}", middle(&one.overload)),
            spread(&one.overload),
            share(0),
            if kind.is_weir() {
                share(1)
            } else {
                "-".to_owned()
            },
        ]);
    }
    let head = [
        "who",
        "Mpps without loss",
        "min - max",
        "overload, received",
        "min - max",
        "kernel's thread",
        "worker",
    ];
    report.table(&head, &rows);
    report.line("\nAll trials, with those that were too fast:\n");
    let rows: Vec<Vec<String>> = kinds
        .iter()
        .zip(found)
        .map(
            |(
                kind,
                Found {
                    sent,
                    received,
                    account,
                    ..
                },
            )| {
                let Account {
                    passed,
                    denied,
                    dropped,
                    before,
                    behind,
                } = *account;
                let counts = [*sent, before, dropped, denied, passed, behind, *received];
                std::iter::once(kind.name().to_owned())
                    .chain(counts.map(|count| count.to_string()))
                    .collect()
            },
        )
        .collect();
    let head = [
        "who",
        "sent",
        "first cable full",
        "ring full",
        "denied",
        "passed",
        "second cable full",
        "received",
    ];
    report.table(&head, &rows);
}

/// Time of a frame by each list, and how much of it is the list.
fn costs_table(costs: &[(List, [f64; 3])], report: &mut Report) {
    let Some((_, one)) = costs.iter().find(|(list, _)| *list == List::One) else {
        return;
    };
    report.line("\nTime of a received frame under overload, ns, and how much more that is than with one rule, which is the way alone:\n");
    let rows: Vec<Vec<String>> = costs
        .iter()
        .map(|(list, times)| {
            let cells = times
                .iter()
                .zip(one)
                .map(|(time, way)| format!("{time:.0} ({:+.0})", time - way));
            std::iter::once(list.name().to_owned())
                .chain(cells)
                .collect()
        })
        .collect();
    report.table(
        &["list", "weir, AF_XDP", "weir, AF_PACKET", "nftables"],
        &rows,
    );
}
