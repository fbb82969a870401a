//! Shows the ten IPv4 sources with the most bytes: heavy_hitters SOURCE [FILTER]

mod sample;

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::process::ExitCode;
use weir_api::{Column, Options, Source};

const ROOM: usize = 4096;

fn main() -> ExitCode {
    sample::run("heavy_hitters SOURCE [FILTER]", 1..=2, |arguments| {
        let filter = arguments.get(1).cloned().unwrap_or_default();
        let source = Source::open(
            &arguments[..1],
            &Options {
                filter,
                ..Options::default()
            },
        )?;
        // Packets and bytes by address.
        let mut talkers: HashMap<u32, (u64, u64)> = HashMap::new();
        let (mut versions, mut sources, mut lengths) = ([0u8; ROOM], [0u32; ROOM], [0u32; ROOM]);
        let code = sample::each_batch(&source, |batch| {
            let mut first = 0;
            while first < batch.len() {
                let mut columns = [
                    Column::IpVersion(&mut versions),
                    Column::Source4(&mut sources),
                    Column::WireLength(&mut lengths),
                ];
                let written;
                (written, first) = batch.fill(first, true, &mut columns);
                for i in (0..written).filter(|i| versions[*i] == 4) {
                    let sums = talkers.entry(sources[i]).or_default();
                    *sums = (sums.0 + 1, sums.1 + u64::from(lengths[i]));
                }
            }
            Ok(())
        })?;
        let mut ranked: Vec<_> = talkers.iter().collect();
        ranked.sort_by_key(|(address, (_, bytes))| (Reverse(*bytes), **address));
        for (address, (packets, bytes)) in ranked.iter().take(10) {
            println!(
                "{} {packets} packets {bytes} bytes",
                Ipv4Addr::from(**address)
            );
        }
        println!("{} sources", talkers.len());
        Ok(code)
    })
}
