//! Counts packets by destination port, of TCP and UDP together: count_by_port SOURCE [FILTER]

mod sample;

use std::cmp::Reverse;
use std::process::ExitCode;
use weir_api::{Column, Options, Source};

const ROOM: usize = 4096;

fn main() -> ExitCode {
    sample::run("count_by_port SOURCE [FILTER]", 1..=2, |arguments| {
        let filter = arguments.get(1).cloned().unwrap_or_default();
        let source = Source::open(
            &arguments[..1],
            &Options {
                filter,
                ..Options::default()
            },
        )?;
        let mut packets = vec![0u64; 65_536];
        let mut ports = [0u16; ROOM];
        let code = sample::each_batch(&source, |batch| {
            let mut first = 0;
            while first < batch.len() {
                let written;
                (written, first) =
                    batch.fill(first, true, &mut [Column::DestinationPort(&mut ports)]);
                ports[..written]
                    .iter()
                    .for_each(|port| packets[usize::from(*port)] += 1);
            }
            Ok(())
        })?;
        let counts = source.close();
        // Port 0 stands for packets without a port.
        let mut ranked: Vec<usize> = (1..65_536).filter(|port| packets[*port] > 0).collect();
        ranked.sort_by_key(|port| Reverse(packets[*port]));
        ranked
            .iter()
            .take(10)
            .for_each(|port| println!("{port} {}", packets[*port]));
        println!("{} received, {} matched", counts.received, counts.passed);
        Ok(code)
    })
}
