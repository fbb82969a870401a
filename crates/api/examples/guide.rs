//! The programs of the guide for Rust. The test of its snippets runs them, and holds them against the guide.

use std::time::Duration;
use weir_api::{Error, KeyKind, MeasureOptions, Measurement, Next, NextAnswer, Options, Source};

fn main() -> Result<(), Error> {
    measure()?;
    let mut looked = 0u64;
    let mut look = |frame: &[u8]| looked += u64::from(!frame.is_empty());
    let options = Options {
        filter: "udp".into(),
        ..Options::default()
    };
    let source = Source::open(&["trace.pcap"], &options)?;
    while let Next::Batch(batch) = source.next(Duration::MAX)? {
        batch.packets().for_each(|packet| look(packet.frame.data));
    }
    println!("{looked} packets");
    Ok(())
}

fn measure() -> Result<(), Error> {
    let by = MeasureOptions {
        keys: vec![KeyKind::SRC, KeyKind::Dport],
        window: Some(Duration::from_secs(1)),
        ..MeasureOptions::default()
    };
    let measurement = Measurement::open(&["trace.pcap"], &Options::default(), &by)?;
    while let NextAnswer::Answer(answer) = measurement.next(Duration::MAX)? {
        println!("{}", answer.json);
    }
    Ok(())
}
