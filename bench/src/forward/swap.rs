//! Rules that are swapped while frames flow.

use super::forwarders::{Account, Forwarder, Kind};
use super::load::{Sent, source};
use super::rules::List;
use super::sink::PROBES;
use super::{Bench, SHARE, check, settled};
use crate::report::Report;
use crate::rivals::median;
use nix::time::{ClockId, clock_gettime};
use serde_json::json;
use std::fmt::Write;
use std::fs;
use std::time::{Duration, Instant};

/// Bytes of a frame.
const LEN: usize = 60;

/// Attempts to get through the swaps without a frame that the first cable did not take, before weir has seen it.
const ATTEMPTS: usize = 5;

/// Frames and times while lists were swapped. Times are the longest gap at the sink and the longest way of a frame, s.
struct Tried {
    sent: Sent,
    account: Account,
    /// Of periods without a swap.
    calm: Vec<[f64; 2]>,
    /// Of periods with one.
    swapping: Vec<[f64; 2]>,
    /// From the writing of each list to its acknowledgement.
    acknowledged: Vec<Duration>,
    /// Times of the acknowledgements, ns of CLOCK_MONOTONIC.
    in_force_ns: Vec<u64>,
}

/// A list of `count` rules that passes one kind of probe, and drops the other.
fn list(count: u32, passes: u8) -> String {
    let mut text = "default drop\n".to_owned();
    for i in 0..count.saturating_sub(3) {
        let (a, b) = (i >> 8 & 0xff, i & 0xff);
        // Both lists have the rule of a number, with another port.
        let _ = writeln!(
            text,
            "drop udp src 172.{}.{a}.{b} dport {}",
            16 + (i >> 16),
            6000 + u32::from(passes)
        );
    }
    for probe in PROBES {
        let verdict = if probe == passes { "pass" } else { "drop" };
        let _ = writeln!(text, "{verdict} src 10.1.0.{probe}");
    }
    text + "pass src 10.1.0.0/16\n"
}

impl Bench {
    pub fn swap(&self, report: &mut Report) -> anyhow::Result<()> {
        report.heading(&format!(
            "Swapping lists of {} rules under load: {LEN} bytes",
            self.plan.swapped
        ));
        report.line(
            "Each of two lists passes one kind of probe and drops the other; an eighth of the frames are probes of both kinds. The verdicts \
             on the probes must be those of the lists in turn, without a frame lost, and \
             none of a probe that was sent after the command returned may be that of the list before. Weir compiles the lists on the sender's core.\n",
        );
        let (mut rows, mut accounts) = (Vec::new(), Vec::new());
        for kind in [Kind::Xdp, Kind::Packet] {
            let rate = self.share_of_highest(kind, SHARE, report)?;
            // Which frames a full cable did not take is not known, so that verdicts are judged where it took all.
            let mut tried = self.swaps_at(kind, rate, report)?;
            let mut attempts = 1;
            while tried.account.before > 0 && attempts < ATTEMPTS {
                tried = self.swaps_at(kind, rate, report)?;
                attempts += 1;
            }
            let misjudged = self.misjudged(kind, &tried, report);
            let Tried {
                sent,
                account,
                calm,
                swapping,
                acknowledged,
                ..
            } = tried;
            let waits = |all: &[[f64; 2]], i: usize| {
                let middle = median(all.iter().map(|one| one[i]));
                let most = all.iter().map(|one| one[i]).fold(0.0, f64::max);
                format!("{:.2} / {:.2} ms", middle * 1e3, most * 1e3)
            };
            let ms = |time: Duration| time.as_secs_f64() * 1e3;
            let slowest = acknowledged.iter().copied().max().unwrap_or_default();
            rows.push(vec![
                kind.name().to_owned(),
                format!("{:.3}", sent.rate() / 1e6),
                format!(
                    "{:.0} / {:.0} ms",
                    median(acknowledged.iter().map(|&time| ms(time))),
                    ms(slowest)
                ),
                waits(&calm, 1),
                waits(&swapping, 1),
                waits(&calm, 0),
                waits(&swapping, 0),
            ]);
            let Account {
                passed,
                denied,
                dropped,
                before,
                behind,
            } = account;
            let switches = sent.switches.len().saturating_sub(1) as u64;
            let words = misjudged.map_or_else(|| "not known".to_owned(), |count| count.to_string());
            let counts = [
                sent.frames,
                before,
                dropped,
                denied,
                passed,
                behind,
                sent.received,
                switches,
            ];
            let cells = counts
                .map(|count| count.to_string())
                .into_iter()
                .chain([words.clone(), attempts.to_string()]);
            accounts.push(
                std::iter::once(kind.name().to_owned())
                    .chain(cells)
                    .collect(),
            );
            let name = |what: &str| format!("{}, {} swaps: {what}", kind.name(), self.plan.swaps);
            let lost = dropped + behind;
            report.bar(
                &name("frames lost by the forwarder"),
                "0",
                &lost.to_string(),
                lost == 0,
            );
            report.bar(
                &name("verdicts of neither list, or out of turn"),
                "0",
                &words,
                misjudged == Some(0),
            );
        }
        let head = [
            "who",
            "Mpps offered",
            "until in force, median / longest",
            "longest way of a frame, no swap",
            "with a swap",
            "longest gap at the sink, no swap",
            "with a swap",
        ];
        report.table(&head, &rows);
        report.line("");
        let head = [
            "who",
            "sent",
            "first cable full",
            "ring full",
            "denied",
            "passed",
            "second cable full",
            "received",
            "changes of verdict",
            "misjudged",
            "attempts",
        ];
        report.table(&head, &accounts);
        report.line(
            "\nThe way of a frame is the time from sender to sink, which no pause of the sender lengthens: a worker that stands still does. The gap \
             at the sink has the pauses of the sender in it, which shares its core with the compiler.",
        );
        Ok(())
    }

    /// Swaps the lists while frames flow.
    fn swaps_at(&self, kind: Kind, rate: f64, report: &mut Report) -> anyhow::Result<Tried> {
        let lists = PROBES.map(|probe| list(self.plan.swapped, probe));
        let mut forwarder = Forwarder::start(&self.ways, kind, List::One, 1)?;
        let mut load = self.ways.load(LEN)?;
        self.put(&mut forwarder, &lists[0])?;
        let before = forwarder.account()?;
        forwarder.hurry(true)?;
        load.begin(rate)?;
        load.watch(self.plan.pause)?;
        let (mut calm, mut swapping) = (Vec::new(), Vec::new());
        let (mut acknowledged, mut in_force_ns) = (Vec::new(), Vec::new());
        for number in 1..=self.plan.swaps {
            // As long without a swap as with one.
            calm.push(load.watch(self.plan.pause)?);
            let begun = Instant::now();
            self.put(&mut forwarder, &lists[number % 2])?;
            in_force_ns
                .push(Duration::from(clock_gettime(ClockId::CLOCK_MONOTONIC)?).as_nanos() as u64);
            acknowledged.push(begun.elapsed());
            swapping.push(load.watch(self.plan.pause.saturating_sub(begun.elapsed()))?);
        }
        load.watch(Duration::ZERO)?;
        let sent = load.end()?;
        let (sent, account) = settled(&mut forwarder, &mut load, sent, before)?;
        check(kind, &sent, &account, report);
        forwarder.hurry(false)?;
        forwarder.end()?;
        Ok(Tried {
            sent,
            account,
            calm,
            swapping,
            acknowledged,
            in_force_ns,
        })
    }

    /// Writes the rules, and returns once they are in force.
    fn put(&self, forwarder: &mut Forwarder<'_>, text: &str) -> anyhow::Result<()> {
        let next = self.ways.rules().with_extension("next");
        fs::write(&next, text)?;
        fs::rename(&next, self.ways.rules())?;
        forwarder.control()?.ask(&json!({ "request": "reload" }))?;
        Ok(())
    }

    /// Returns the number of findings against the order of the lists; `None` if frames were lost,
    /// whose numbers are not known. The sink has noted after which probe the verdicts changed: from
    /// one change to the next one all probes of one kind must have arrived.
    fn misjudged(&self, kind: Kind, tried: &Tried, report: &mut Report) -> Option<u64> {
        let Tried {
            sent,
            account,
            in_force_ns,
            ..
        } = tried;
        if account.before + account.dropped + account.behind > 0 {
            return None;
        }
        let mut wrong = 0;
        let mut judge = |is_right: bool, what: &str| {
            if !is_right {
                wrong += 1;
                report.wrong(&format!("{}: {what}", kind.name()));
            }
        };
        judge(
            sent.switches.len() == self.plan.swaps + 1,
            &format!("{} changes: {:?}", sent.switches.len(), sent.switches),
        );
        let end = sent.begin + sent.frames;
        let of = |kind: u64, from: u64, to: u64| {
            (from..to).filter(|&number| source(number) == kind).count() as u64
        };
        let mut expected = 0;
        for (i, now) in sent.switches.iter().enumerate() {
            let next = sent.switches.get(i + 1);
            let kind_expected = u64::from(PROBES[i % 2]);
            judge(
                now.kind == kind_expected,
                &format!("the list after {i} swaps passed the probes of the other: {now:?}"),
            );
            let divides = match i {
                0 => of(now.kind, sent.begin, now.after) == 0,
                _ => is_cut(now.kind, now.before + 1, now.after),
            };
            judge(divides, &format!("no moment divides the verdicts: {now:?}"));
            if let Some(in_force_ns) = i.checked_sub(1).and_then(|swap| in_force_ns.get(swap)) {
                judge(
                    now.before_ns < *in_force_ns,
                    &format!("a probe sent after swap {i} was judged as before: {now:?}"),
                );
            }
            let last = next.map_or(end, |next| next.before + 1);
            let came = next.map_or(sent.probes, |next| next.probes) - now.probes;
            let due = of(now.kind, now.after, last);
            judge(
                came == due,
                &format!("{came} probes of {due} came after {i} swaps"),
            );
            expected += due;
        }
        judge(
            sent.probes == expected,
            &format!("{} probes came, {expected} are due", sent.probes),
        );
        let plain = (sent.begin..end)
            .filter(|&number| !PROBES.map(u64::from).contains(&source(number)))
            .count() as u64;
        judge(
            sent.received == plain + sent.probes,
            "frames that are no probes are missing",
        );
        judge(
            account.denied == sent.frames - plain - sent.probes,
            "the denied are not the other probes",
        );
        Some(wrong)
    }
}

/// The other kind of probe.
fn other(kind: u64) -> u64 {
    PROBES.map(u64::from).iter().sum::<u64>() - kind
}

/// Whether a moment among the frames `first..after`, none of which came, divides the probes: those of the list before, which drops `kind`,
/// first, and then those of the list after, which drops the other.
fn is_cut(kind: u64, first: u64, after: u64) -> bool {
    let probes: Vec<u64> = (first..after)
        .map(source)
        .filter(|&one| one == kind || one == other(kind))
        .collect();
    let begin = probes
        .iter()
        .position(|&one| one != kind)
        .unwrap_or(probes.len());
    probes[begin..].iter().all(|&one| one != kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_divides_probes_that_the_list_before_dropped_from_those_that_the_list_after_dropped()
    {
        let [a, b] = PROBES.map(u64::from);
        // Two probes of `a` in turn, and one of `b` after them: runs of frames without others of
        // these kinds between.
        let probes: Vec<(u64, u64)> = (0..10_000).map(|number| (number, source(number))).collect();
        let probes: Vec<_> = probes
            .into_iter()
            .filter(|(_, kind)| [a, b].contains(kind))
            .collect();
        let three = probes
            .windows(3)
            .find(|three| three.iter().map(|(_, kind)| *kind).eq([a, b, a]))
            .unwrap();
        let [(first, _), (second, _), (third, _)] = three[..] else {
            unreachable!("windows of three")
        };
        assert!(is_cut(b, first + 1, second), "none is missing");
        // The list before drops the kind that comes after it.
        assert!(is_cut(a, first, second + 1));
        assert!(
            !is_cut(b, first, second + 1),
            "first one that came after, and then one that came before"
        );
        assert!(is_cut(b, second, third + 1));
        assert!(!is_cut(a, first, third + 1));
    }
}
