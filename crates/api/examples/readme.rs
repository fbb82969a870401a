//! The program of the README. The test of its snippets runs it, and holds it against the README.

use std::time::Duration;
use weir_api::{Error, Next, Options, Source};

fn main() -> Result<(), Error> {
    let source = Source::open(&["trace.pcap"], &Options::default())?;
    while let Next::Batch(batch) = source.next(Duration::MAX)? {
        println!("{} packets", batch.packets().count());
    }
    Ok(())
}
