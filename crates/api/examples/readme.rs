//! The program of the README. The test of its snippets runs it, and holds it against the README.

use std::time::Duration;
use weir_api::{Error, Next, Options, Source};

fn main() -> Result<(), Error> {
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
