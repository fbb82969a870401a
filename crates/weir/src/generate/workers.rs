//! Several threads that make and send packets together.

use super::Sent;
use super::maker::Wanted;
use super::pace::Pace;
use super::sender::Sender;
use crate::cli::GenerateArgs;
use crate::port::{self, Port};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Sends the packets by a port for each worker, as fast as possible. Returns what each has sent.
pub fn run(
    wanted: &Wanted,
    ports: Vec<Port>,
    end: Option<Duration>,
    stop: &Arc<AtomicBool>,
) -> anyhow::Result<Vec<Sent>> {
    let shares = ports.len() as u64;
    let work = |(share, mut port): (usize, Port)| {
        let (wanted, stop) = (wanted.clone(), Arc::clone(stop));
        std::thread::Builder::new()
            .name(format!("sender {share}"))
            .spawn(move || {
                let mut maker = wanted.prepare().map_err(|why| anyhow::anyhow!(why))?;
                maker.share(share as u64, shares);
                let mut pace = Pace::quiet(&stop, end);
                let hurried = (None, false);
                let done = Sender::new(&mut port, &mut maker, &mut pace, hurried).send();
                Ok(Sent {
                    done,
                    port,
                    rows: maker.rows(),
                    made: maker.made,
                })
            })
    };
    let threads: std::io::Result<Vec<_>> = ports.into_iter().enumerate().map(work).collect();
    let joined = threads?.into_iter().map(|thread| thread.join());
    joined
        .map(|result| {
            result.unwrap_or_else(|_| {
                Err(anyhow::anyhow!(
                    "a sender ended by an error of this program"
                ))
            })
        })
        .collect()
}

/// Opens a port for each worker. **Errors**: a port that only one can use.
pub fn open(arguments: &GenerateArgs) -> anyhow::Result<Vec<Port>> {
    let GenerateArgs { sink, workers, .. } = arguments;
    let is_shared = port::is_null(sink) || sink.utf8().starts_with("af_packet:");
    if *workers > 1 && !is_shared {
        anyhow::bail!("--workers {workers}: {sink} is used by one: name null or af_packet:IF");
    }
    (0..*workers)
        .map(|_| super::open(arguments, false))
        .collect()
}
