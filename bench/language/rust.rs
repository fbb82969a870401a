//! The programs of `weir-bench language` in Rust, by the C interface: CASE FILE TURNS PACKETS
//!
//! Prints a line for each turn: nanoseconds of this thread's processor time, packets, checksum.

use std::ffi::CString;
use std::fs::File;
use std::hint::black_box;
use std::io::Write;
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};
use std::time::{Duration, Instant};
use weir::*;

/// Addresses in a table of open addressing; 0 is an empty place.
pub struct Set {
    places: [i32; Set::PLACES],
}

impl Set {
    const PLACES: usize = 4096;

    /// The same addresses as in Java: 10.x.y.z of a multiplicative sequence.
    fn new() -> Self {
        let mut set = Self {
            places: [0; Self::PLACES],
        };
        for i in 0..1000u32 {
            let address = (0x0a00_0000 | (i.wrapping_mul(2_654_435_761) >> 20)) as i32;
            let mut at = Self::place(address);
            while set.places[at] != 0 && set.places[at] != address {
                at = (at + 1) & (Self::PLACES - 1);
            }
            set.places[at] = address;
        }
        set
    }

    #[inline(always)]
    fn place(address: i32) -> usize {
        ((address as u32).wrapping_mul(0x9e37_79b1) >> 20) as usize
    }

    #[inline(always)]
    fn has(&self, address: i32) -> bool {
        let mut at = Self::place(address);
        loop {
            let found = self.places[at];
            if found == address {
                return true;
            }
            if found == 0 {
                return false;
            }
            at = (at + 1) & (Self::PLACES - 1);
        }
    }
}

const UDP: u8 = 17;

fn open(file: &str, times: usize) -> weir_source {
    let name = CString::new(file).expect("a path has no 0");
    let names = vec![name.as_ptr(); times];
    // SAFETY: zeros are valid options.
    let zeros: weir_options = unsafe { MaybeUninit::zeroed().assume_init() };
    let options = weir_options {
        size: size_of::<weir_options>() as u32,
        batches: 4096,
        workers: 1,
        ..zeros
    };
    let mut source = 0;
    // SAFETY: all pointers lead to variables.
    let status = unsafe {
        weir_open(
            names.as_ptr(),
            names.len(),
            &options,
            &mut source,
            null_mut(),
        )
    };
    assert_eq!(status, WEIR_OK, "{file}");
    source
}

fn next(source: weir_source) -> Option<weir_batch> {
    let mut batch = MaybeUninit::uninit();
    // SAFETY: it leads to memory for a batch, which is read only if it was written.
    unsafe {
        (weir_next(source, u64::MAX, batch.as_mut_ptr(), null_mut()) == WEIR_OK)
            .then(|| batch.assume_init())
    }
}

fn packets(batch: &weir_batch) -> &[weir_descriptor] {
    // SAFETY: the batch is held, and has so many descriptors.
    unsafe { std::slice::from_raw_parts(batch.packets, batch.len as usize) }
}

fn frame<'a>(batch: &'a weir_batch, packet: &weir_descriptor) -> &'a [u8] {
    // SAFETY: the batch is held, and the descriptor names bytes of its region.
    unsafe {
        std::slice::from_raw_parts(
            batch.region.add(packet.offset as usize),
            packet.captured as usize,
        )
    }
}

/// Checked slices, as the flyweight of Java is checked.
fn checked(batch: &weir_batch, set: &Set) -> u64 {
    let mut sum = 0;
    for packet in packets(batch) {
        let data = frame(batch, packet);
        let Some(head) = data.get(..34) else { continue };
        if head[12] == 8 && head[13] == 0 && head[14] >> 4 == 4 && head[23] == UDP {
            let source = i32::from_be_bytes([head[26], head[27], head[28], head[29]]);
            if set.has(source) {
                sum += u64::from(packet.wire_len) + (1 << 32);
            }
        }
    }
    sum
}

/// Addresses without checks.
fn unchecked(batch: &weir_batch, set: &Set) -> u64 {
    let mut sum = 0;
    for packet in packets(batch) {
        if packet.captured < 34 {
            continue;
        }
        // SAFETY: so many bytes were captured.
        let (kind, version, proto, source) = unsafe {
            let at = batch.region.add(packet.offset as usize);
            (
                at.add(12).cast::<u16>().read_unaligned(),
                at.add(14).read(),
                at.add(23).read(),
                at.add(26).cast::<i32>().read_unaligned(),
            )
        };
        if kind == 8u16.to_le()
            && version >> 4 == 4
            && proto == UDP
            && set.has(i32::from_be(source))
        {
            sum += u64::from(packet.wire_len) + (1 << 32);
        }
    }
    sum
}

const ROOM: usize = 4096;

struct Columns {
    versions: [u8; ROOM],
    protocols: [u8; ROOM],
    sources: [i32; ROOM],
    lengths: [u32; ROOM],
}

fn columns(batch: &weir_batch, set: &Set, columns: &mut Columns) -> u64 {
    let of = [
        weir_column {
            field: WEIR_IP_VERSION,
            capacity: ROOM as u32,
            values: columns.versions.as_mut_ptr().cast(),
        },
        weir_column {
            field: WEIR_PROTOCOL,
            capacity: ROOM as u32,
            values: columns.protocols.as_mut_ptr().cast(),
        },
        weir_column {
            field: WEIR_SRC4,
            capacity: ROOM as u32,
            values: columns.sources.as_mut_ptr().cast(),
        },
        weir_column {
            field: WEIR_WIRE_LEN,
            capacity: ROOM as u32,
            values: columns.lengths.as_mut_ptr().cast(),
        },
    ];
    let (mut sum, mut first) = (0, 0);
    while first < batch.len {
        let mut rows = 0;
        // SAFETY: the columns have room, and all pointers lead to variables.
        unsafe {
            weir_fill(
                batch.lease,
                first,
                0,
                of.as_ptr(),
                of.len(),
                &mut rows,
                &mut first,
                null_mut(),
            )
        };
        for row in 0..rows as usize {
            if columns.versions[row] == 4
                && columns.protocols[row] == UDP
                && set.has(columns.sources[row])
            {
                sum += u64::from(columns.lengths[row]) + (1 << 32);
            }
        }
    }
    sum
}

fn cpu_ns() -> u64 {
    let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID)
        .expect("each thread has this clock");
    time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64
}

/// Waits until the library has read ahead all it may: until its counts stay as they are for 60 ms.
fn read_ahead(source: weir_source) {
    let (mut last, mut same) = (u64::MAX, 0);
    while same < 4 {
        let mut counts = weir_counts::default();
        // SAFETY: it leads to counts.
        unsafe { weir_counts_of(source, &mut counts) };
        same = if counts.received == last { same + 1 } else { 1 };
        last = counts.received;
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Takes and releases batches that are there, without a look at packets. Prints nanoseconds, batches, packets.
fn batches(file: &str, times: usize, turns: usize, at_least: u64) {
    for _ in 0..turns {
        let (mut ns, mut batches, mut packets) = (0, 0, 0);
        while packets < at_least {
            let source = open(file, times);
            read_ahead(source);
            let begun = Instant::now();
            while let Some(batch) = next(source) {
                packets += u64::from(batch.len);
                weir_release(batch.lease);
                batches += 1;
            }
            ns += begun.elapsed().as_nanos();
            // SAFETY: NULL is allowed.
            unsafe { weir_close(source, null_mut()) };
        }
        println!("{ns} {batches} {packets}");
    }
}

/// Bytes of `packets` frames of 64 bytes in a capture file, behind the head of one if that is asked for.
fn records(packets: usize, head: bool) -> Vec<u8> {
    let head = [0xa1b2_c3d4u32, 4 << 16 | 2, 0, 0, 65_535, 1]
        .into_iter()
        .filter(|_| head);
    let mut bytes: Vec<u8> = head.flat_map(u32::to_le_bytes).collect();
    for _ in 0..packets {
        bytes.extend([0, 0, 64, 64].into_iter().flat_map(u32::to_le_bytes));
        bytes.extend([0; 64]);
    }
    bytes
}

/// Takes and releases small batches, without a look at packets, from a source that goes on: a named pipe, into which bursts of packets
/// are written. Prints nanoseconds, batches, packets.
fn bursts(pipe: &str, packets: usize, turns: usize, at_least: u64) {
    /// Bursts that are written before any is taken; and time between them, in which the library reads one.
    const BURSTS: usize = 1000;
    const GAP: Duration = Duration::from_micros(50);
    // Opened for both, so that the writer does not wait for a reader.
    let mut writer = File::options()
        .read(true)
        .write(true)
        .open(pipe)
        .expect("the pipe is there");
    writer
        .write_all(&records(0, true))
        .expect("the pipe has room");
    let (source, burst) = (open(pipe, 1), records(packets, false));
    let take = |timeout| {
        let mut batch = MaybeUninit::uninit();
        // SAFETY: it leads to memory for a batch, which is read only if it was written.
        let batch = unsafe {
            let status = weir_next(source, timeout, batch.as_mut_ptr(), null_mut());
            (status == WEIR_OK).then(|| batch.assume_init())?
        };
        weir_release(batch.lease);
        Some(u64::from(batch.len))
    };
    for _ in 0..turns {
        let (mut ns, mut batches, mut packets) = (0, 0, 0);
        while batches < at_least {
            for _ in 0..BURSTS {
                writer.write_all(&burst).expect("the library reads");
                std::thread::sleep(GAP);
            }
            std::thread::sleep(400 * GAP);
            let begun = Instant::now();
            while let Some(len) = take(0) {
                (packets, batches) = (packets + len, batches + 1);
            }
            ns += begun.elapsed().as_nanos();
        }
        println!("{ns} {batches} {packets}");
    }
    drop(writer);
    while take(u64::MAX).is_some() {}
    // SAFETY: NULL is allowed.
    unsafe { weir_close(source, null_mut()) };
}

/// Calls a function that looks a handle up and does nothing else. Prints nanoseconds, calls, and how often there was no split.
fn handle(file: &str, turns: usize, calls: u64) {
    let source = open(file, 1);
    let batch = next(source).expect("the file has packets");
    for _ in 0..turns {
        let (begun, mut found, mut words) = (cpu_ns(), 0, null());
        for _ in 0..calls {
            // SAFETY: it leads to a pointer.
            found += i64::from(unsafe { weir_split(black_box(batch.lease), 0, &mut words) });
        }
        println!("{} {calls} {}", cpu_ns() - begun, -found);
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, case, file, turns, at_least] = &arguments[..] else {
        panic!("CASE FILE TURNS PACKETS")
    };
    let (turns, at_least): (usize, u64) = (
        turns.parse().expect("a number"),
        at_least.parse().expect("a number"),
    );
    if case == "capture" {
        for _ in 0..turns {
            let (mut ns, mut sum, mut seen) = (0, 0u64, 0u64);
            while seen < at_least {
                let source = open(file, 1);
                let begun = cpu_ns();
                while let Some(batch) = next(source) {
                    sum += packets(&batch)
                        .iter()
                        .map(|packet| u64::from(packet.wire_len))
                        .sum::<u64>();
                    seen += u64::from(batch.len);
                    weir_release(batch.lease);
                }
                ns += cpu_ns() - begun;
                // SAFETY: NULL is allowed.
                unsafe { weir_close(source, null_mut()) };
            }
            println!("{ns} {seen} {sum}");
        }
        return;
    }
    if let Some(times) = case.strip_prefix("batch:") {
        return batches(file, times.parse().expect("a number"), turns, at_least);
    }
    if let Some(packets) = case.strip_prefix("bursts:") {
        return bursts(file, packets.parse().expect("a number"), turns, at_least);
    }
    if case == "handle" {
        return handle(file, turns, at_least);
    }
    let source = open(file, 1);
    let mut held = Vec::new();
    while let Some(batch) = next(source) {
        held.push(batch);
    }
    let (set, passes) = (
        Set::new(),
        at_least.div_ceil(held.iter().map(|batch| u64::from(batch.len)).sum()),
    );
    let mut room = Box::new(Columns {
        versions: [0; ROOM],
        protocols: [0; ROOM],
        sources: [0; ROOM],
        lengths: [0; ROOM],
    });
    for _ in 0..turns {
        let (begun, mut sum, mut seen) = (cpu_ns(), 0u64, 0u64);
        for _ in 0..passes {
            for batch in &held {
                sum = sum.wrapping_add(match &case[..] {
                    "checked" => checked(black_box(batch), &set),
                    "unchecked" => unchecked(black_box(batch), &set),
                    "columns" => columns(black_box(batch), &set, &mut room),
                    other => panic!("{other}"),
                });
                seen += u64::from(batch.len);
            }
        }
        println!("{} {seen} {sum}", cpu_ns() - begun);
    }
}
