//! Several threads that make and send packets together.

use super::Sent;
use super::maker::{Maker, Wanted};
use super::pace::Pace;
use super::sender::Sender;
use crate::cli::GenerateArgs;
use crate::port::{self, Port};
use weir_generator::streams::Rate;

/// Sends the packets by a port for each worker: at the rate all together, or as fast as possible. Returns what each has sent, and the
/// clock of the latest worker.
pub fn run(
    wanted: &Wanted,
    ports: Vec<Port>,
    rate: (Option<Rate>, bool),
    begin: impl FnOnce() -> Pace,
) -> anyhow::Result<(Vec<Sent>, Pace)> {
    let shares = ports.len() as u64;
    let prepared = (0..shares).map(|share| {
        let mut maker = wanted.prepare().map_err(|why| anyhow::anyhow!(why))?;
        if matches!(rate, (Some(Rate::Packets(per_s)), true) if per_s <= super::SLOW) {
            maker.hurries_not();
        }
        let first_ns = maker.share(share, shares);
        Ok((maker, first_ns))
    });
    let makers: anyhow::Result<Vec<_>> = prepared.collect();
    let makers = makers?;
    // One clock for all of them.
    let mut pace = begin();
    let twins: Vec<Pace> = (0..shares).map(|share| pace.twin(share == 0)).collect();
    let (mut all, mut paces) = (Vec::new(), Vec::new());
    std::thread::scope(|scope| {
        let work = |((mut port, (mut maker, first_ns)), mut pace): ((Port, (Maker, i64)), Pace)| {
            std::thread::Builder::new()
                .name("sender".to_owned())
                .spawn_scoped(scope, move || {
                    let sender = Sender::new(&mut port, &mut maker, &mut pace, rate);
                    let done = sender.beginning(first_ns).send();
                    let (rows, made) = (maker.rows(), maker.made);
                    let sent = Sent {
                        done,
                        port,
                        rows,
                        made,
                    };
                    (sent, pace)
                })
        };
        let threads = ports.into_iter().zip(makers).zip(twins).map(work);
        let threads: std::io::Result<Vec<_>> = threads.collect();
        for thread in threads? {
            let joined = thread.join();
            let (sent, pace) = joined
                .map_err(|_| anyhow::anyhow!("a sender ended by an error of this program"))?;
            all.push(sent);
            paces.push(pace);
        }
        Ok::<(), anyhow::Error>(())
    })?;
    paces.iter().for_each(|other| pace.take_late(other));
    Ok((all, pace))
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
