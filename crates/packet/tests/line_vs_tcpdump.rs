//! The line printer against tcpdump, on captures from other sources.

mod line_support;

use line_support::compare::{self, Tally};
use line_support::{Packet, Random, captures, have_tcpdump, load};

/// The bar: of each of the commonest protocols, 99 of 100 lines equal tcpdump's.
#[test]
fn lines_of_every_capture() {
    let test = "lines_of_every_capture";
    let paths = captures(test);
    if paths.is_empty() || !have_tcpdump(test) {
        return;
    }
    let mut tally = Tally::default();
    for path in &paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if let Some((link, packets)) = load(path) {
            compare::all(&mut tally, &name, link, &packets);
        }
    }
    tally.report(99.0);
    assert!(tally.total()[1] >= 10_000, "too little was compared");
}

/// Packets of the captures with a few changed bytes, and cut at any length: frequent causes of faults in printers of headers.
#[test]
fn lines_of_damaged_packets() {
    let test = "lines_of_damaged_packets";
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
    // Damage makes other protocols of packets, which stay tcpdump's.
    tally.report(0.0);
    let [equal, all] = tally.total();
    assert!(all >= 10_000, "too little was compared");
    assert!(100 * equal >= 70 * all, "{equal} of {all} lines equal");
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
    let [equal, all] = tally.total();
    println!("{equal} of {all} dumps equal");
    tally
        .differences
        .iter()
        .take(20)
        .for_each(|difference| println!("{difference}"));
    assert!(equal == all && all >= 5000, "{equal} of {all} dumps equal");
}
