//! The line printer against tcpdump, on captures from other sources.

mod line_support;

use line_support::compare::{self, Tally};
use line_support::{Packet, Random, captures, have_tcpdump, load};

fn report(tally: &Tally) {
    println!(
        "{} packets, {} fields compared: {:?}",
        tally.packets,
        tally.total(),
        tally.fields
    );
    println!("intended differences: {:?}", tally.intended);
    for difference in tally.differences.iter().take(40) {
        println!("{difference}");
    }
    assert!(
        tally.differences.is_empty(),
        "{} differences",
        tally.differences.len()
    );
}

#[test]
fn fields_of_every_capture() {
    let test = "fields_of_every_capture";
    let paths = captures(test);
    if paths.is_empty() || !have_tcpdump(test) {
        return;
    }
    let mut tally = Tally::default();
    for path in &paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let Some((link, packets)) = load(path) else {
            continue;
        };
        let before = (tally.packets, tally.total());
        compare::all(&mut tally, &name, link, &packets);
        println!(
            "{name}: {} packets, {} fields",
            tally.packets - before.0,
            tally.total() - before.1
        );
    }
    report(&tally);
    assert!(
        tally.packets >= 1000 && tally.total() >= 10_000,
        "too little was compared"
    );
}

/// Packets of the captures with a few changed bytes, and cut at any length: frequent causes of faults in printers of headers.
#[test]
fn fields_of_damaged_packets() {
    let test = "fields_of_damaged_packets";
    let paths = captures(test);
    if paths.is_empty() || !have_tcpdump(test) {
        return;
    }
    let seed = std::env::var("WEIR_SEED")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(20_231_114);
    let mut random = Random(seed);
    println!("WEIR_SEED={seed}");
    let mut tally = Tally::default();
    for path in &paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let Some((link, packets)) = load(path).filter(|(_, packets)| !packets.is_empty()) else {
            continue;
        };
        let damaged: Vec<_> = (0..120)
            .map(|_| damage(&packets[random.below(packets.len())], &mut random))
            .collect();
        compare::all(&mut tally, &name, link, &damaged);
    }
    report(&tally);
    assert!(
        tally.packets >= 1000 && tally.total() >= 10_000,
        "too little was compared"
    );
}

/// Up to three bytes of the headers are changed, and one packet in three loses its end.
fn damage(packet: &Packet, random: &mut Random) -> Packet {
    let mut packet = packet.clone();
    for _ in 0..random.below(4) {
        let at = random.below(packet.data.len().min(96));
        if let Some(byte) = packet.data.get_mut(at) {
            *byte = if random.below(2) == 0 {
                random.next() as u8
            } else {
                *byte ^ (1 << random.below(8))
            };
        }
    }
    if random.below(3) == 0 {
        packet
            .data
            .truncate(1 + random.below(packet.data.len().min(120)));
    }
    packet
}

#[test]
fn hex_dumps_of_every_capture() {
    let test = "hex_dumps_of_every_capture";
    let paths = captures(test);
    if paths.is_empty() || !have_tcpdump(test) {
        return;
    }
    let mut tally = Tally::default();
    for path in &paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let Some((link, packets)) = load(path) else {
            continue;
        };
        compare::dumps(&mut tally, &name, link, &packets);
    }
    report(&tally);
    assert!(tally.total() >= 10_000, "too little was compared");
}
