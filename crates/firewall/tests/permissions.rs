//! The serial permission table against the list of all changes, against a map of bits, and against the course's outcome.

#[path = "bodies/trains.rs"]
mod trains;

use trains::change;
use weir_firewall::Address;
use weir_firewall::permissions::{Change, Full, PermissionTable, Permissions, Ranges, Span};
use weir_generator::trains::{Config, MIXES, Packet, Trains};
use weir_testkit::Random;

/// Addresses at both ends of the space, and some between.
fn pool<A: Address + TryFrom<u64>>() -> Vec<A> {
    let mut up = A::ZERO;
    let mut down = A::LAST;
    let mut pool = Vec::new();
    for _ in 0..12 {
        pool.extend([up, down]);
        up = up.next().unwrap();
        down = down.before();
    }
    pool.extend((0..8u64).filter_map(|i| A::try_from(1_000_000 + i * i).ok()));
    pool
}

/// The latest change of an address that says something about a source decides.
fn against_all_changes<A: Address + TryFrom<u64>>(seed: u64) {
    let (pool, mut random) = (pool::<A>(), Random(seed));
    for default in [true, false] {
        let mut table = Permissions::new(pool.len(), default, random.next());
        let mut changes: Vec<Change<A>> = Vec::new();
        for step in 0..600 {
            let mut any = || pool[random.below(pool.len())];
            let (address, a, b) = (any(), any(), any());
            // Few addresses at first, so that their ranges get complicated.
            let address = if step < 300 { pool[step % 3] } else { address };
            assert_eq!(Span::new(a.max(b), a.min(b)).is_none(), a != b);
            assert_eq!(Span::half_open(a.max(b), Some(a.min(b))), None);
            let sources = match random.below(3) {
                0 => Span::new(a.min(b), a.max(b)).unwrap(),
                1 if a != b => Span::half_open(a.min(b), Some(a.max(b))).unwrap(),
                _ => Span::half_open(a, None).unwrap(),
            };
            let persona_non_grata = [Some(true), Some(false), None][random.below(3)];
            let accepts = [Some((sources, true)), Some((sources, false)), None][random.below(3)];
            let change = Change {
                address,
                persona_non_grata,
                accepts,
            };
            table.apply(&change).unwrap();
            changes.push(change);
            for _ in 0..40 {
                let (source, destination) = (
                    pool[random.below(pool.len())],
                    pool[random.below(pool.len())],
                );
                let flag = |change: &Change<A>| {
                    change
                        .persona_non_grata
                        .filter(|_| change.address == source)
                };
                let is_bad = changes.iter().rev().find_map(flag).unwrap_or(false);
                let says = |change: &Change<A>| {
                    let (sources, accepts) =
                        change.accepts.filter(|_| change.address == destination)?;
                    sources.contains(source).then_some(accepts)
                };
                let accepts = changes.iter().rev().find_map(says).unwrap_or(default);
                assert_eq!(table.is_persona_non_grata(source), is_bad);
                assert_eq!(
                    table.passes(source, destination),
                    !is_bad && accepts,
                    "{source:?} {destination:?} {changes:?}"
                );
            }
        }
    }
}

#[test]
fn a_packet_passes_as_the_latest_changes_say() {
    (0..10).for_each(against_all_changes::<u32>);
    (0..10).for_each(against_all_changes::<u128>);
}

#[test]
fn a_set_has_no_more_edges_than_it_needs() {
    let mut random = Random(2);
    for all in [false, true] {
        let mut set = Ranges::<u32>::new(all);
        let mut naive = [all; 64];
        for _ in 0..2000 {
            let (a, b, inside) = (random.below(64), random.below(64), random.below(2) == 0);
            let (first, last) = (a.min(b), a.max(b));
            // The last number of the small space stands for all behind it.
            set.set(
                first as u32,
                if last == 63 { u32::MAX } else { last as u32 },
                inside,
            );
            naive[first..=last].fill(inside);
            assert!((0..64).all(|number| set.contains(number as u32) == naive[number]));
            assert_eq!(set.contains(u32::MAX), naive[63]);
            assert_eq!(
                set.edges(),
                naive.windows(2).filter(|pair| pair[0] != pair[1]).count()
            );
        }
    }
}

#[test]
fn a_full_table_refuses_a_new_address_and_changes_known_ones() {
    let change = |address: u32, persona_non_grata| Change {
        address,
        persona_non_grata: Some(persona_non_grata),
        accepts: Some((Span::half_open(0, None).unwrap(), true)),
    };
    let mut table = Permissions::new(100, false, 3);
    (0..100).for_each(|address| table.apply(&change(address * 7, true)).unwrap());
    assert_eq!(table.apply(&change(1, true)), Err(Full { most: 100 }));
    assert!(!table.is_persona_non_grata(1) && !table.passes(2, 1));
    assert_eq!(table.apply(&change(7, false)), Ok(()));
    assert!(table.passes(7, 7) && !table.passes(14, 7));
    assert_eq!(
        Permissions::new(0, false, 1).apply(&change(1, false)),
        Err(Full { most: 0 })
    );
}

/// A bit for each pair of destination and source.
struct Bits {
    words: Vec<u64>,
    row: usize,
}

impl Bits {
    fn new(addresses: u32, all: bool) -> Self {
        let row = addresses as usize / 64;
        Self {
            words: vec![if all { u64::MAX } else { 0 }; addresses as usize * row],
            row,
        }
    }

    fn apply(&mut self, config: &Config) {
        for source in config.begin..config.end {
            let word = &mut self.words[config.address as usize * self.row + source as usize / 64];
            *word = *word & !(1 << (source % 64)) | u64::from(config.accepting) << (source % 64);
        }
    }

    fn accepts(&self, destination: u32, source: u32) -> bool {
        self.words[destination as usize * self.row + source as usize / 64] >> (source % 64) & 1 == 1
    }
}

/// Shares of the data packets of a million packets behind the warm-up, found by an independent re-statement of the course's program:
/// accepted by default and not, refused for their source; and rounds of work for each packet, by default and not. All agree to the last digit that
/// was found, but for its rounding.
#[test]
fn the_outcome_of_the_first_mixes_is_that_of_the_course() {
    for (mix, found) in MIXES.iter().zip([
        [0.932, 0.689, 0.040, 2796.0, 2070.0],
        [0.875, 0.371, 0.092, 2069.0, 871.0],
    ]) {
        let mut trains = Trains::new(mix);
        let new = |default| Permissions::new(mix.addresses() as usize, default, 9);
        let mut tables = [new(true), new(false)];
        let mut bits = [
            Bits::new(mix.addresses(), true),
            Bits::new(mix.addresses(), false),
        ];
        let apply = |tables: &mut [Permissions<u32>; 2], bits: &mut [Bits; 2], config: &Config| {
            tables
                .iter_mut()
                .for_each(|table| table.apply(&change(config)).unwrap());
            bits.iter_mut().for_each(|bits| bits.apply(config));
        };
        (0..mix.warm_up()).for_each(|_| apply(&mut tables, &mut bits, &trains.config()));
        let (mut data, mut refused, mut accepted, mut rounds) = (0u64, 0u64, [0u64; 2], [0u64; 2]);
        for packet in trains.take(1_000_000) {
            let packet = match packet {
                Packet::Config(config) => {
                    apply(&mut tables, &mut bits, &config);
                    continue;
                }
                Packet::Data(packet) => packet,
            };
            data += 1;
            let is_bad = tables[0].is_persona_non_grata(packet.source);
            refused += u64::from(is_bad);
            for default in 0..2 {
                let passes = tables[default].passes(packet.source, packet.destination);
                assert_eq!(
                    passes,
                    !is_bad && bits[default].accepts(packet.destination, packet.source)
                );
                accepted[default] += u64::from(passes);
                rounds[default] += if passes {
                    u64::from(packet.iterations)
                } else {
                    0
                };
            }
        }
        let share = |packets: u64| packets as f64 / data as f64;
        let ours = [
            share(accepted[0]),
            share(accepted[1]),
            share(refused),
            rounds[0] as f64 / 1e6,
            rounds[1] as f64 / 1e6,
        ];
        for (place, (ours, found)) in ours.into_iter().zip(found).enumerate() {
            let digit = if place < 3 { 0.001 } else { 1.0 };
            assert!(
                (ours - found).abs() <= 0.6 * digit,
                "figure {place} of {mix:?}: {ours}, the course's {found}"
            );
        }
    }
}

#[test]
fn a_table_is_read_line_by_line() {
    let table = |text: &str| PermissionTable::parse(text, 4, 1).map_err(|error| error.to_string());
    let v4 = |last: u8| u32::from_be_bytes([10, 0, 0, last]);
    let v6 = |last: u128| 0x2001_0db8 << 96 | last;
    let read = table(
        "default refuse # the first line\n\n\
         ban 10.0.0.1\nban 10.0.0.2\nunban 10.0.0.2\nban 2001:db8::1\n\
         accept 10.0.0.9 from any\nrefuse 10.0.0.9 from 10.0.0.4/31,10.0.0.7-10.0.0.8\n\
         accept 2001:db8::9 from 2001:db8::/126\n",
    )
    .unwrap();
    let passing: Vec<u8> = (0..16)
        .filter(|&last| read.v4.passes(v4(last), v4(9)))
        .collect();
    assert_eq!(passing, [0, 2, 3, 6, 9, 10, 11, 12, 13, 14, 15]);
    let passing: Vec<u128> = (0..6)
        .filter(|&last| read.v6.passes(v6(last), v6(9)))
        .collect();
    assert_eq!(passing, [0, 2, 3]);
    assert!(!read.v4.passes(v4(3), v4(8)) && !read.v6.passes(v6(3), v6(8)));
    let open = table("").unwrap();
    assert!(open.v4.passes(1, 2) && open.v6.passes(1, 2));
    for (line, words) in [
        (
            "allow 10.0.0.1",
            "is not a line of a table: default accept|refuse",
        ),
        ("ban", "is not a line of a table"),
        ("ban 10.0.0.0/8", "a line bans at most 65536 addresses"),
        ("ban ::/0", "a line bans at most 65536 addresses"),
        ("ban example.org", "\"example.org\""),
        ("accept 10.0.0.1 10.0.0.2", "is not a line of a table"),
        (
            "accept 10.0.0.1 from 10.0.0.9-10.0.0.2",
            "the range 10.0.0.9-10.0.0.2 is reversed",
        ),
        (
            "accept 10.0.0.1 from 10.0.0.1/8",
            "has bits behind its prefix",
        ),
        (
            "accept 10.0.0.1 from 10.0.0.1,",
            "a list has an empty element",
        ),
        (
            "accept 10.0.0.1 from ::1",
            "10.0.0.1 and its sources are of different families",
        ),
        (
            "refuse ::1 from 10.0.0.1",
            "::1 and its sources are of different families",
        ),
        ("default accept", "default stands before all other lines"),
    ] {
        let refused = table(&format!("ban 10.0.0.1\n{line}\n")).unwrap_err();
        assert!(
            refused.starts_with("line 2: ") && refused.contains(words),
            "{line}: {refused}"
        );
    }
    let many: String = (0..5).map(|last| format!("ban 10.0.0.{last}\n")).collect();
    assert_eq!(
        table(&many).unwrap_err(),
        "line 5: the permissions of 4 addresses were changed, and there is no room for another one"
    );
}
