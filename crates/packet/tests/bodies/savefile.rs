//! Bodies shared by the fuzz targets and the tests over their corpus; each body holds its own oracle.
#![allow(dead_code, reason = "each test and fuzz target uses its part")]

use weir_packet::descriptor::{Descriptor, region};
use weir_packet::savefile::walk::{Cursor, MAX_CURSORS, Visit, guess, walk};
use weir_packet::savefile::write::Encoder;
use weir_packet::savefile::{Format, Interface, Layout, Resolution, Stop};
use weir_packet::{Frame, LinkType};

/// The compared parts of a packet: time, interface, wire length, data.
type Seen = (Option<i64>, u32, u32, Vec<u8>);

#[derive(Default)]
struct Collect {
    records: Vec<Vec<usize>>,
    statistics: Vec<usize>,
}

impl Visit for Collect {
    fn statistics(&mut self, _: usize, record: usize) {
        self.statistics.push(record);
    }

    fn frames(&mut self, cursor: usize, records: &[u32], frames: &[Frame<'_>]) -> bool {
        assert_eq!(records.len(), frames.len());
        self.records[cursor].extend(records.iter().map(|&r| r as usize));
        true
    }
}

/// Reads all of `file` with one cursor, record by record. Returns the packets, and the offset and reason of the end of reading.
fn serial(file: &[u8]) -> (Vec<Seen>, usize, Option<Stop>) {
    let (mut layout, mut pos) = match Layout::read(file, true) {
        Ok(found) => found,
        Err(stop) => return (Vec::new(), 0, Some(stop)),
    };
    let mut seen = Vec::new();
    loop {
        let mut cursors = [Cursor::new(pos, file.len())];
        let mut collect = Collect {
            records: vec![Vec::new()],
            ..Collect::default()
        };
        walk(&layout, file, true, &mut cursors, &mut collect);
        let before = seen.len();
        for &at in &collect.records[0] {
            let record = layout
                .record(file, at)
                .expect("a walked record can be taken apart");
            let frame = record.frame;
            seen.push((
                record.time_ns,
                frame.interface,
                frame.wire_len,
                frame.data.to_vec(),
            ));
        }
        described(&layout, file, &collect.records[0], &seen[before..]);
        for at in collect.statistics {
            let stats = layout.interface_stats(file, at);
            assert!(stats.is_none_or(|stats| (stats.interface as usize) < layout.interfaces.len()));
        }
        pos = cursors[0].pos;
        match cursors[0].stop {
            Some(Stop::Layout) => match layout.apply(file, pos, true) {
                Ok(next) => pos = next,
                Err(stop) => return (seen, pos, Some(stop)),
            },
            Some(Stop::End) => return (seen, pos, None),
            stop => return (seen, pos, stop),
        }
    }
}

/// Checks that the descriptors of walked records name the same packets, and no byte outside their region.
fn described(layout: &Layout, bytes: &[u8], records: &[usize], seen: &[Seen]) {
    let at: Vec<u32> = records.iter().map(|&at| at as u32).collect();
    let region = region(bytes.into());
    assert_eq!(
        (region.cast::<u8>(), region.len()),
        (bytes.as_ptr(), bytes.len())
    );
    let found = layout.descriptors(bytes, &at).into_iter().map(|found| {
        assert!(
            found.offset + u64::from(found.captured) <= bytes.len() as u64,
            "{found:?}"
        );
        let data = &bytes[found.offset as usize..][..found.captured as usize];
        let time_ns = (found.flags & Descriptor::NO_TIME == 0).then_some(found.time_ns);
        assert_eq!(time_ns.unwrap_or(i64::MIN), found.time_ns);
        (time_ns, found.interface, found.wire_len, data.to_vec())
    });
    assert_eq!(found.collect::<Vec<_>>(), seen);
}

/// Checks any bytes as a file: reading ends and gives a reason, and several cursors whose starts are proven find the packets that
/// one cursor finds.
pub fn savefile(file: &[u8]) {
    let (seen, end, stop) = serial(file);
    assert!(end <= file.len());
    assert!(
        stop.is_some() || end == file.len(),
        "an unread rest has a reason"
    );
    assert!(
        !matches!(stop, Some(Stop::NeedMore(_))),
        "at the end of the file nothing more can be asked for"
    );
    several(file);
    prefix(file, &seen);
    rewrite(file, &seen);
    ring(file);
}

/// Checks a walk with many provisional cursors: cursors whose start is proven hold exactly the serial records of their part.
fn several(file: &[u8]) {
    let Ok((layout, first)) = Layout::read(file, true) else {
        return;
    };
    let mut one = [Cursor::new(first, file.len())];
    let mut serial = Collect {
        records: vec![Vec::new()],
        ..Collect::default()
    };
    walk(&layout, file, true, &mut one, &mut serial);

    let part = (file.len() - first) / MAX_CURSORS + 1;
    let mut starts = vec![first];
    for i in 1..MAX_CURSORS {
        let from = (first + i * part).max(starts[starts.len() - 1] + 1);
        let to = (from + part).min(file.len());
        starts.extend(guess(&layout, file, true, from, to));
    }
    let ends = starts.iter().skip(1).copied().chain([file.len()]);
    let mut cursors: Vec<_> = starts
        .iter()
        .zip(ends)
        .map(|(&start, end)| Cursor::new(start, end))
        .collect();
    let mut many = Collect {
        records: vec![Vec::new(); cursors.len()],
        ..Collect::default()
    };
    walk(&layout, file, true, &mut cursors, &mut many);
    let mut joined = Vec::new();
    for (i, cursor) in cursors.iter().enumerate() {
        joined.append(&mut many.records[i]);
        let proven = cursor.stop == Some(Stop::End) && starts.get(i + 1) == Some(&cursor.pos);
        if !proven {
            break;
        }
    }
    assert_eq!(
        joined,
        serial.records[0][..joined.len()],
        "proven cursors equal the serial walk"
    );
}

/// Checks any bytes as a block of a packet socket's ring: the walk finds the packets of a plain reading of linux/if_packet.h.
fn ring(block: &[u8]) {
    let word =
        |at: usize| u32::from_ne_bytes(block[at..at + 4].try_into().expect("four bytes")) as usize;
    let mut expected = Vec::new();
    let mut at = 0;
    while at + 48 <= block.len() {
        let next = word(at);
        let end = if next == 0 { block.len() } else { at + next };
        let from = at + usize::from(u16::from_ne_bytes([block[at + 24], block[at + 25]]));
        let to = from + word(at + 12);
        if next != 0 && (next < 48 || end > block.len()) || from < at + 48 || to > end {
            break;
        }
        expected.push((at, &block[from..to]));
        at = end;
    }
    let layout = Layout::ring(Interface::plain(
        LinkType::ETHERNET,
        0,
        Resolution::NANOSECOND,
    ));
    let mut cursors = [Cursor::new(0, block.len())];
    let mut collect = Collect {
        records: vec![Vec::new()],
        ..Collect::default()
    };
    walk(&layout, block, true, &mut cursors, &mut collect);
    let data = |&at: &usize| {
        (
            at,
            layout
                .record(block, at)
                .expect("a walked record can be taken apart")
                .frame
                .data,
        )
    };
    assert_eq!(
        collect.records[0].iter().map(data).collect::<Vec<_>>(),
        expected
    );
    let record = |&at: &usize| {
        let record = layout
            .record(block, at)
            .expect("a walked record can be taken apart");
        (
            record.time_ns,
            record.frame.interface,
            record.frame.wire_len,
            record.frame.data.to_vec(),
        )
    };
    described(
        &layout,
        block,
        &collect.records[0],
        &collect.records[0].iter().map(record).collect::<Vec<_>>(),
    );
    assert_eq!(
        (cursors[0].pos, cursors[0].stop == Some(Stop::End)),
        (at, at == block.len())
    );
}

/// Checks that a file cut anywhere yields a prefix of its packets.
fn prefix(file: &[u8], seen: &[Seen]) {
    let cut = &file[..file.len() * 2 / 3];
    let (fewer, _, _) = serial(cut);
    assert_eq!(
        fewer[..],
        seen[..fewer.len()],
        "what was good before the cut is kept"
    );
}

/// Checks that written packets are read back the same, as far as the format can hold them.
fn rewrite(file: &[u8], seen: &[Seen]) {
    let Ok((mut layout, mut pos)) = Layout::read(file, true) else {
        return;
    };
    while layout.format == Format::Pcapng {
        match layout.apply(file, pos, true) {
            Ok(next) => pos = next,
            Err(_) => break,
        }
    }
    let mut encoder = Encoder::new(Format::Pcapng, 0);
    let mut out = Vec::new();
    let mut expected = Vec::new();
    for (time_ns, interface, wire_len, data) in seen {
        let Some(from) = layout.interfaces.get(*interface as usize) else {
            return;
        };
        let id = encoder
            .interface(from)
            .expect("pcapng takes every interface");
        let frame = Frame {
            data,
            wire_len: *wire_len,
            interface: id,
        };
        encoder.packet(&mut out, id, *time_ns, &frame);
        expected.push((*wire_len, data));
    }
    encoder.begin(&mut out);
    let (back, end, stop) = serial(&out);
    assert_eq!(
        (end, stop),
        (out.len(), None),
        "our own file is well-formed"
    );
    assert_eq!(
        back.iter()
            .map(|(_, _, wire, data)| (*wire, data))
            .collect::<Vec<_>>(),
        expected
    );
}

#[cfg(test)]
mod tests {
    use super::savefile;
    use weir_packet::savefile::write::Encoder;
    use weir_packet::savefile::{Format, Interface, Resolution};
    use weir_packet::{Frame, LinkType};
    use weir_testkit::Random;

    /// A small capture of two interfaces (of one link type, which pcap needs).
    fn capture(format: Format) -> Vec<u8> {
        let mut encoder = Encoder::new(format, 0);
        let mut out = Vec::new();
        for i in 0..12u32 {
            let resolution = if i < 6 {
                Resolution::MICROSECOND
            } else {
                Resolution::NANOSECOND
            };
            let interface = Interface::plain(LinkType::ETHERNET, 262_144, resolution);
            let id = encoder.interface(&interface).expect("one link type");
            let data: Vec<u8> = (0..i * 7).map(|byte| (byte * i) as u8).collect();
            let frame = Frame {
                data: &data,
                wire_len: data.len() as u32 + i % 2,
                interface: id,
            };
            encoder.packet(
                &mut out,
                id,
                Some(1_700_000_000_000_000_000 + i64::from(i)),
                &frame,
            );
        }
        out
    }

    /// A block of three records, and every way to spoil one byte of their headers.
    #[test]
    fn damaged_blocks_are_read_as_the_header_file_says() {
        let mut block = [[0u8; 64]; 3].concat();
        for (at, next, captured) in [(0, 64u32, 9u32), (64, 64, 0), (128, 0, 16)] {
            block[at..at + 4].copy_from_slice(&next.to_ne_bytes());
            block[at + 12..at + 16].copy_from_slice(&captured.to_ne_bytes());
            block[at + 24..at + 26].copy_from_slice(&48u16.to_ne_bytes());
        }
        super::ring(&block);
        for at in (0..block.len()).filter(|at| at % 64 < 26) {
            for value in (0..=255).step_by(if cfg!(miri) { 51 } else { 1 }) {
                let mut damaged = block.clone();
                damaged[at] = value;
                super::ring(&damaged);
            }
        }
        (0..block.len()).for_each(|len| super::ring(&block[..len]));
    }

    /// Runs in a moment natively and in minutes under miri, which checks the codecs, the walk and the writer here.
    #[test]
    fn damaged_captures_are_read_alike_by_one_cursor_and_by_many() {
        let cases = if cfg!(miri) { 24 } else { 4000 };
        let mut random = Random(1);
        let mut below = |bound| random.below(bound);
        for format in [Format::Pcap, Format::Pcapng] {
            let whole = capture(format);
            savefile(&whole);
            for _ in 0..cases {
                let mut damaged = whole.clone();
                for _ in 0..=below(3) {
                    let at = below(damaged.len());
                    damaged[at] = [0, 1, 0xff, damaged[at] ^ 1 << below(8)][below(4)];
                }
                damaged.truncate(damaged.len() - below(2) * below(damaged.len()));
                savefile(&damaged);
            }
        }
    }
}
