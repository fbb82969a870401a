//! Writes the packets around each that matches: capture_on_trigger SOURCE TRIGGER OUT
//!
//! Of each packet that matches the expression TRIGGER, the 100 before it and the 100 behind it are written too. Batches are held until
//! no later packet can ask for theirs.

mod sample;

use std::collections::VecDeque;
use std::process::ExitCode;
use weir_api::{Batch, Error, MOST_BATCHES, Options, Sink, Source};

const AROUND: usize = 100;

/// A batch with the number of its first packet.
struct Held {
    batch: Batch,
    first: usize,
    chosen: Vec<u64>,
}

impl Held {
    fn end(&self) -> usize {
        self.first + self.batch.len()
    }

    /// Chooses packets from number `begin` up to and without `end`, as far as they are here.
    fn choose(&mut self, begin: usize, end: usize) {
        for at in begin.max(self.first)..end.min(self.end()) {
            let at = at - self.first;
            self.chosen[at / 64] |= 1 << (at % 64);
        }
    }
}

/// Writes and releases the batches that end before packet `number`.
fn write_before(number: usize, held: &mut VecDeque<Held>, sink: &mut Sink) -> Result<(), Error> {
    while let Some(first) = held.pop_front_if(|first| first.end() <= number) {
        sink.send(&first.batch, Some(&first.chosen))?;
    }
    Ok(())
}

fn main() -> ExitCode {
    sample::run(
        "capture_on_trigger SOURCE TRIGGER OUT",
        3..=3,
        |arguments| {
            let splits = vec![arguments[1].clone()];
            let options = Options {
                splits,
                batches: MOST_BATCHES,
                ..Options::default()
            };
            let source = Source::open(&arguments[..1], &options)?;
            let mut sink = Sink::open(&arguments[2])?;
            let mut held = VecDeque::new();
            // Packets before `until` are chosen as they come.
            let (mut received, mut triggers, mut until) = (0, 0, 0);
            let code = sample::each_batch(&source, |batch| {
                let count = batch.len();
                let matches: Vec<usize> = {
                    let bits = &batch.split_verdicts()[0];
                    (0..count)
                        .filter(|i| bits.get(*i, 1) == 1)
                        .map(|i| received + i)
                        .collect()
                };
                let chosen = vec![0; count.div_ceil(64)];
                let mut now = Held {
                    batch,
                    first: received,
                    chosen,
                };
                now.choose(0, until);
                held.push_back(now);
                for at in matches {
                    triggers += 1;
                    until = at + AROUND + 1;
                    held.iter_mut()
                        .for_each(|one| one.choose(at.saturating_sub(AROUND), until));
                }
                received += count;
                write_before(received.saturating_sub(AROUND), &mut held, &mut sink)
            })?;
            write_before(received, &mut held, &mut sink)?;
            let (counts, closed) = sink.close();
            closed?;
            println!(
                "{received} received, {triggers} triggers, {} written",
                counts.written
            );
            Ok(code)
        },
    )
}
