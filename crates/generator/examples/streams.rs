//! Makes packets of a profile, and prints their number, bytes and digest, and the time of one: `streams [PROFILE|FILE [PACKETS]]`.
//!
//! The digest is a sum over frames, so that workers who share the packets have sums that add up to it.

use std::time::Instant;
use weir_generator::streams::{Frames, Profile};

fn main() -> Result<(), String> {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_else(|| "64".to_owned());
    let packets = arguments.next().map_or(Ok(1_000_000), |text| text.parse());
    let packets: u64 =
        packets.map_err(|_| "the second argument is a number of packets".to_owned())?;
    let text = match Profile::text(&name) {
        Some(text) => text.to_owned(),
        None => std::fs::read_to_string(&name).map_err(|error| format!("{name}: {error}"))?,
    };
    let mut profile = Profile::read(&text)?;
    (profile.packets, profile.rate) = (Some(packets), None);
    for (what, is_digested) in [("made", false), ("made and digested", true)] {
        let mut frames = Frames::new(&profile)?;
        let begun = Instant::now();
        let (mut bytes, mut sum) = (0, 0_u64);
        let mut take = |frame: &[u8]| {
            bytes += frame.len();
            if is_digested {
                sum = sum.wrapping_add(digest(frame));
            }
            Ok::<(), String>(())
        };
        while frames.give(&mut take)? > 0 {}
        let ns = begun.elapsed().as_nanos() as f64 / packets as f64;
        println!("{packets} frames {what}, {bytes} bytes, digest {sum:016x}, {ns:.1} ns a frame");
    }
    Ok(())
}

/// A number that depends on each byte and its place.
fn digest(frame: &[u8]) -> u64 {
    let mut words = frame.chunks_exact(8);
    let mut sum = frame.len() as u64;
    for word in &mut words {
        let word = u64::from_le_bytes(word.try_into().expect("eight bytes"));
        sum = (sum ^ word)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(29);
    }
    words.remainder().iter().fold(sum, |sum, &byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
