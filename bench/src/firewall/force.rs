//! The time from a change to its being in force on a worker that judges batch after batch, with the controller on another core.

use crate::Size;
use crate::report::Report;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use weir_firewall::permissions::{Change, Permissions};
use weir_firewall::replicas::{Refused, Shard, Shared};

/// Packets of a batch, as between interfaces.
const BATCH: usize = 32;

/// Addresses of the table.
const ADDRESSES: u32 = 1 << 16;

pub fn run(size: Size, report: &mut Report) -> anyhow::Result<()> {
    report.heading("From a change to its force");
    let changes = if size == Size::Full { 200_000 } else { 2_000 };
    let shared = Shared::new(Permissions::<u32>::new(ADDRESSES as usize, true, 1), 4096);
    let stop = Arc::new(AtomicBool::new(false));
    let mut worker = shared.worker(Shard::ALL);
    let seen = Arc::clone(&stop);
    let (mut waits, batches) = std::thread::scope(|scope| {
        let judge = scope.spawn(move || {
            let (mut passed, mut packet, mut times) = (0u64, 1u32, Vec::with_capacity(1 << 20));
            let mut last = Instant::now();
            while !seen.load(Ordering::Relaxed) || times.is_empty() {
                worker.begin();
                for _ in 0..BATCH {
                    packet = packet.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    passed += u64::from(worker.value().passes(packet >> 16, packet & 0xffff));
                }
                worker.end();
                let now = Instant::now();
                if times.len() < times.capacity() {
                    times.push(now - last);
                }
                last = now;
            }
            std::hint::black_box(passed);
            times
        });
        let mut waits = Vec::with_capacity(changes);
        for number in 0..changes as u32 {
            let address = number.wrapping_mul(2_654_435_761) >> 16;
            let change = Change {
                address,
                persona_non_grata: Some(number % 2 == 0),
                accepts: None,
            };
            let begun = Instant::now();
            let applied = loop {
                match shared.apply(&change) {
                    // The worker has not had its turn for long.
                    Err(Refused::NoRoom { .. }) => std::thread::yield_now(),
                    applied => break applied,
                }
            };
            if let Ok(number) = applied
                && shared.wait(number, Duration::from_secs(10))
            {
                waits.push(begun.elapsed());
            }
        }
        stop.store(true, Ordering::Relaxed);
        (waits, judge.join())
    });
    let mut batches = batches.map_err(|_| anyhow::anyhow!("the worker panicked"))?;
    if waits.len() < changes {
        report.wrong(&format!(
            "{} changes of {changes} came into force",
            waits.len()
        ));
    }
    let at = |times: &mut Vec<Duration>, share: f64| {
        times.sort_unstable();
        times[((times.len() - 1) as f64 * share) as usize]
    };
    let [wait_50, wait_99, wait_most] = [0.5, 0.99, 1.0].map(|share| at(&mut waits, share));
    let [batch_50, batch_99, batch_most] = [0.5, 0.99, 1.0].map(|share| at(&mut batches, share));
    let row = |name: &str, times: [Duration; 3]| {
        std::iter::once(name.to_owned())
            .chain(times.map(|time| format!("{:.2} us", time.as_secs_f64() * 1e6)))
            .collect()
    };
    let rows = [
        row("a batch of 32 packets", [batch_50, batch_99, batch_most]),
        row(
            "a change, until it is in force",
            [wait_50, wait_99, wait_most],
        ),
    ];
    report.table(&["", "p50", "p99", "longest"], &rows);
    if size == Size::Full {
        let most = 2 * batch_99 + Duration::from_micros(20);
        let words = format!("{:.1} us", wait_99.as_secs_f64() * 1e6);
        report.bar(
            "a change in force, p99",
            &format!("{:.1} us", most.as_secs_f64() * 1e6),
            &words,
            wait_99 <= most,
        );
    }
    Ok(())
}
