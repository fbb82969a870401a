//! The time from a request over the control socket to its acknowledgement, when the change is in force.

use super::forwarders::{Control, Forwarder, Kind};
use super::rules::List;
use super::{Bench, OTHERS, SHARE};
use crate::capture::send::Helper;
use crate::report::Report;
use anyhow::{Context, bail};
use std::io::stdin;
use std::path::Path;
use std::time::Instant;

/// First argument that makes this program a controller.
pub const WORD: &str = "controller";

/// Requests whose answers are timed. The second one is refused when it has been read, and costs what the socket costs.
const CHANGE: &str = "block and accept";
const SOCKET: &str = "the socket alone";

impl Bench {
    pub fn control(&self, report: &mut Report) -> anyhow::Result<()> {
        report.heading("From a request over the socket to its force");
        report.line(&format!(
            "{} requests to block an address or to accept it again, one after another, by a process on core {OTHERS}, where the sender is busy \
             all the time under load; each is written once the one before is acknowledged, which it is when all workers obey. The socket \
             alone: requests that weir reads and refuses.\n",
            self.plan.changes
        ));
        let mut rows = Vec::new();
        for kind in [Kind::Xdp, Kind::Packet] {
            let rate = self.share_of_highest(kind, SHARE, report)?;
            let forwarder = Forwarder::start(&self.ways, kind, List::Sources, self.plan.rules)?;
            let mut load = self.ways.load(60)?;
            forwarder.hurry(true)?;
            for is_busy in [false, true] {
                for what in [CHANGE, SOCKET] {
                    let us = std::env::current_exe()?
                        .to_str()
                        .context("a plain path")?
                        .to_owned();
                    let socket = self
                        .ways
                        .socket()
                        .to_str()
                        .context("a plain path")?
                        .to_owned();
                    let words = [us, WORD.to_owned(), socket];
                    let mut controller =
                        Helper::start(self.ways.net.command("near", OTHERS, None, &words))?;
                    if is_busy {
                        load.begin(rate)?;
                    }
                    let answer = controller.ask(&format!(
                        "{} {}",
                        u8::from(what == CHANGE),
                        self.plan.changes
                    ))?;
                    let lost = if is_busy {
                        let sent = load.end()?;
                        (sent.frames - sent.received).to_string()
                    } else {
                        "-".to_owned()
                    };
                    let load = if is_busy {
                        format!("{:.3} Mpps", rate / 1e6)
                    } else {
                        "idle".to_owned()
                    };
                    let mut row = vec![format!("{}, {load}: {what}", kind.name())];
                    row.extend(answer.split(' ').map(|us| format!("{us} us")));
                    row.push(lost);
                    rows.push(row);
                }
            }
            forwarder.hurry(false)?;
            forwarder.end()?;
        }
        report.table(&["", "p50", "p99", "longest", "frames lost"], &rows);
        Ok(())
    }
}

/// The controller's process. An order is `1` for changes or `0` for refused requests, and their number.
pub fn serve(arguments: &[String]) -> anyhow::Result<()> {
    let [socket] = arguments else {
        bail!("{WORD} SOCKET")
    };
    let mut control = Control::connect(Path::new(socket))?;
    println!("ready");
    for order in stdin().lines() {
        let order = order?;
        let (what, count) = order.split_once(' ').context("WHAT COUNT")?;
        let (is_change, count): (bool, usize) = (what == "1", count.parse()?);
        let mut times = Vec::with_capacity(count);
        for number in 0..count {
            let verb = if number % 2 == 0 { "ban" } else { "unban" };
            let line = format!("{verb} 192.0.2.{}", number / 2 % 250);
            let request = if is_change { "change" } else { "nothing" };
            let request = format!("{{\"request\":\"{request}\",\"lines\":[\"{line}\"]}}\n");
            let begun = Instant::now();
            let answer = control.line(&request)?;
            times.push(begun.elapsed());
            anyhow::ensure!(
                answer.contains("\"ok\"") == is_change,
                "{request}: {answer}"
            );
        }
        times.sort_unstable();
        let at =
            |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e6;
        println!("{:.1} {:.1} {:.1}", at(0.5), at(0.99), at(1.0));
    }
    Ok(())
}
