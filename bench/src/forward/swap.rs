//! Rules that are swapped while frames flow.

use super::forwarders::{Account, Forwarder, Kind};
use super::load::{Sent, source};
use super::rules::List;
use super::sink::PROBES;
use super::{Bench, Trial, check};
use crate::report::Report;
use crate::rivals::median;
use serde_json::json;
use std::fmt::Write;
use std::fs;
use std::time::{Duration, Instant};

/// Share of the rate without loss at which frames flow.
const SHARE: f64 = 0.8;

/// Bytes of a frame.
const LEN: usize = 60;

/// A list of `count` rules that passes one kind of probe, and drops the other.
fn list(count: u32, passes: u8) -> String {
    let mut text = "default drop\n".to_owned();
    for i in 0..count.saturating_sub(3) {
        let (a, b) = (i >> 8 & 0xff, i & 0xff);
        // Both lists have the rule of a number, with another port.
        let _ = writeln!(text, "drop udp src 172.{}.{a}.{b} dport {}", 16 + (i >> 16), 6000 + u32::from(passes));
    }
    for probe in PROBES {
        let verdict = if probe == passes { "pass" } else { "drop" };
        let _ = writeln!(text, "{verdict} src 10.1.0.{probe}");
    }
    text + "pass src 10.1.0.0/16\n"
}

impl Bench {
    /// Rate without loss with this list, 1/s; and the rate at which the swaps are tried.
    fn usual(&self, kind: Kind, report: &mut Report) -> anyhow::Result<f64> {
        if !self.is_full {
            return Ok(self.plan.first);
        }
        let mut load = self.ways.load(LEN)?;
        let mut found = super::Found::default();
        let trial = Trial { section: "rate for swaps", list: List::Sources, len: LEN, round: 0 };
        self.round(&trial, kind, &mut load, &mut found, report)?;
        Ok(found.highest[0] * 1e6 * SHARE)
    }

    pub fn swap(&self, report: &mut Report) -> anyhow::Result<()> {
        report.heading(&format!("Swapping lists of {} rules under load: {LEN} bytes", self.plan.swapped));
        report.line(
            "Each of two lists passes one kind of probe and drops the other; an eighth of the frames are probes of both kinds. The verdicts \
             on the probes must be those of the lists in turn, without a frame lost, or judged by the list before once the command has \
             returned. Weir compiles the lists on the sender's core.\n",
        );
        let (mut rows, mut accounts) = (Vec::new(), Vec::new());
        for kind in [Kind::Xdp, Kind::Packet] {
            let rate = self.usual(kind, report)?;
            let lists = PROBES.map(|probe| list(self.plan.swapped, probe));
            let mut forwarder = Forwarder::start(&self.ways, kind, List::One, 1)?;
            let mut load = self.ways.load(LEN)?;
            fs::write(self.ways.rules(), &lists[0])?;
            forwarder.control()?.ask(&json!({ "request": "reload" }))?;
            let before = forwarder.account()?;
            forwarder.hurry(true)?;
            load.begin(rate)?;
            std::thread::sleep(self.plan.pause);
            load.longest()?;
            let (mut calm, mut swapping, mut acknowledged) = (Vec::new(), Vec::new(), Vec::new());
            for number in 1..=self.plan.swaps {
                // As long without a swap as with one.
                std::thread::sleep(self.plan.pause);
                calm.push(load.longest()?);
                let begun = Instant::now();
                fs::write(self.ways.rules(), &lists[number % 2])?;
                forwarder.control()?.ask(&json!({ "request": "reload" }))?;
                acknowledged.push(begun.elapsed());
                std::thread::sleep(self.plan.pause.saturating_sub(begun.elapsed()));
                swapping.push(load.longest()?);
            }
            let sent = load.end()?;
            let account = forwarder.account()?.since(before);
            check(kind, &sent, &account, report);
            let [lost, misjudged] = self.judged(kind, &sent, &account, report);
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
                format!("{:.0} / {:.0} ms", median(acknowledged.iter().map(|&time| ms(time))), ms(slowest)),
                waits(&calm, 1),
                waits(&swapping, 1),
                waits(&calm, 0),
                waits(&swapping, 0),
            ]);
            let Account { passed, denied, dropped, before, behind } = account;
            let switches = sent.switches.len().saturating_sub(1) as u64;
            let counts =
                [sent.frames, before, dropped, denied, passed, behind, sent.received, lost, misjudged, switches];
            accounts
                .push(std::iter::once(kind.name().to_owned()).chain(counts.map(|count| count.to_string())).collect());
            let name = |what: &str| {
                format!("{}, {} swaps at {:.0} % of the rate: {what}", kind.name(), self.plan.swaps, 100.0 * SHARE)
            };
            report.bar(&name("frames lost"), "0", &lost.to_string(), lost == 0);
            report.bar(&name("verdicts of neither list, or out of turn"), "0", &misjudged.to_string(), misjudged == 0);
            forwarder.hurry(false)?;
            forwarder.end()?;
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
            "lost",
            "misjudged",
            "changes of verdict",
        ];
        report.table(&head, &accounts);
        Ok(())
    }

    /// Returns the number of frames lost, and of probes that were judged by neither list or out of turn. The sink has noted after which probe
    /// the verdicts changed: from one change to the next one all probes of one kind must have come.
    fn judged(&self, kind: Kind, sent: &Sent, account: &Account, report: &mut Report) -> [u64; 2] {
        let lost = account.before + account.dropped + account.behind;
        let mut wrong = 0;
        let mut judge = |is_right: bool, what: &str| {
            if !is_right && lost == 0 {
                wrong += 1;
                report.wrong(&format!("{}: {what}", kind.name()));
            }
        };
        judge(
            sent.switches.len() == self.plan.swaps + 1,
            &format!("{} changes: {:?}", sent.switches.len(), sent.switches),
        );
        let end = sent.begin + sent.frames;
        let of = |kind: u64, from: u64, to: u64| (from..to).filter(|&number| source(number) == kind).count() as u64;
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
            let last = next.map_or(end, |next| next.before + 1);
            let came = next.map_or(sent.probes, |next| next.probes) - now.probes;
            let due = of(now.kind, now.after, last);
            judge(came == due, &format!("{came} probes of {due} came after {i} swaps"));
            expected += due;
        }
        judge(sent.probes == expected, &format!("{} probes came, {expected} are due", sent.probes));
        let plain = (sent.begin..end).filter(|&number| !PROBES.map(u64::from).contains(&source(number))).count() as u64;
        judge(sent.received == plain + sent.probes, "frames that are no probes are missing");
        judge(account.denied == sent.frames - plain - sent.probes, "the denied are not the other probes");
        [lost, wrong]
    }
}

/// The other kind of probe.
fn other(kind: u64) -> u64 {
    PROBES.map(u64::from).iter().sum::<u64>() - kind
}

/// Whether a moment among the frames `first..after`, none of which came, divides the probes: those of the list before, which drops `kind`,
/// first, and then those of the list after, which drops the other.
fn is_cut(kind: u64, first: u64, after: u64) -> bool {
    let probes: Vec<u64> = (first..after).map(source).filter(|&one| one == kind || one == other(kind)).collect();
    let begin = probes.iter().position(|&one| one != kind).unwrap_or(probes.len());
    probes[begin..].iter().all(|&one| one != kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_divides_probes_that_the_list_before_dropped_from_those_that_the_list_after_dropped() {
        let [a, b] = PROBES.map(u64::from);
        // Two probes of `a` in turn, and one of `b` behind them: runs of frames without others of these kinds between.
        let probes: Vec<(u64, u64)> = (0..10_000).map(|number| (number, source(number))).collect();
        let probes: Vec<_> = probes.into_iter().filter(|(_, kind)| [a, b].contains(kind)).collect();
        let three = probes.windows(3).find(|three| three.iter().map(|(_, kind)| *kind).eq([a, b, a])).unwrap();
        let [(first, _), (second, _), (third, _)] = three[..] else { unreachable!("windows of three") };
        assert!(is_cut(b, first + 1, second), "none is missing");
        // The list before drops the kind that comes after it.
        assert!(is_cut(a, first, second + 1));
        assert!(!is_cut(b, first, second + 1), "first one that came after, and then one that came before");
        assert!(is_cut(b, second, third + 1));
        assert!(!is_cut(a, first, third + 1));
    }
}
