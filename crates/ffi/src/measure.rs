//! Measurements: the answers of `weir measure`, as texts.

use crate::call::{
    self, Failure, OBJECTS, Object, WEIR_CLOSED, WEIR_END, WEIR_NOTHING, WEIR_OK, call,
    call_with_error, check, get, insert, kind, names, store, store_made, store_text, structure,
    text, texts, weir_status,
};
use crate::source::{options, weir_options};
use crate::text::{Text, weir_text};
use core::ffi::c_char;
use std::time::Duration;
use weir_api::{
    By, Design, HealthParts, MeasureOptions, Measurement, NextAnswer, Sketch, read_geo,
};

/// A measurement. Close it with weir_measure_close.
pub type weir_measure = u64;

/// Bytes rank the keys, and not packets.
pub const WEIR_BY_BYTES: u32 = 1;
/// Several files are read one after another; without it, files with windows are merged by the time of their packets.
pub const WEIR_NO_MERGE: u32 = 2;
/// All workers share their tables.
pub const WEIR_SHARED: u32 = 4;
/// The hash functions have the seed of weir_measure_options; without it, a seed is drawn, so that nobody can aim collisions.
pub const WEIR_SEED: u32 = 8;
/// Numbers of distinct addresses at the other end rank the keys.
pub const WEIR_BY_PEERS: u32 = 16;
/// Numbers of distinct destination ports rank the keys.
pub const WEIR_BY_PORTS: u32 = 32;
/// Numbers of distinct pairs of a peer and a destination port rank the keys.
pub const WEIR_BY_CONTACTS: u32 = 64;
/// Each window is searched for findings: scans, floods, storms, losses and new hosts; with WEIR_HEALTH_DNS also slow DNS servers. Needs
/// windows of 1 s or longer.
pub const WEIR_FINDINGS: u32 = 128;
/// The health of TCP is examined: weir_answer_tcp.
pub const WEIR_HEALTH_TCP: u32 = 256;
/// The health of DNS is examined: weir_answer_dns.
pub const WEIR_HEALTH_DNS: u32 = 512;
/// Fragments and messages that a packet is too big are counted: `health.mtu` of the answer.
pub const WEIR_HEALTH_MTU: u32 = 1024;
const KNOWN_FLAGS: u32 = 2047;
/// Flags of which at most one may be set.
const FIGURES: [(u32, By); 4] = [
    (WEIR_BY_BYTES, By::Bytes),
    (WEIR_BY_PEERS, By::Peers),
    (WEIR_BY_PORTS, By::Ports),
    (WEIR_BY_CONTACTS, By::Contacts),
];

/// Table of the largest keys, with bounds that always hold.
pub const WEIR_HEAVY: u32 = 0;
/// Table of every key, as long as there is memory.
pub const WEIR_EXACT: u32 = 1;
/// Count-Min, with a heavy table next to it to name the keys.
pub const WEIR_CMS: u32 = 2;
/// Count-Min with conservative update: closer, never lower.
pub const WEIR_CMS_CONSERVATIVE: u32 = 3;
/// Simple Hash Table: one slot for each hash, without a bound.
pub const WEIR_SHT: u32 = 4;
/// MV-Sketch: buckets vote for their largest keys, with bounds that always hold.
pub const WEIR_MV: u32 = 5;
/// Reversible Sketch: IPv4 addresses and pairs, recovered from counters and their changes.
pub const WEIR_RS: u32 = 6;
/// Set-per-entry Reversible Sketch of the study: flows, without a bound, and slow.
pub const WEIR_RS_SET: u32 = 7;

/// Each worker has pieces of the source, if the source can be split; else as WEIR_ASYNC.
pub const WEIR_AUTO: u32 = 0;
/// Each worker has pieces of a file, or a ring or queue of an interface.
pub const WEIR_RSS: u32 = 1;
/// A distributor feeds a ring for each worker.
pub const WEIR_ASYNC: u32 = 2;
/// A distributor hands out a batch and waits for all workers.
pub const WEIR_SYNC: u32 = 3;

/// Settings of a measurement. Set all bytes to 0 and `size` to sizeof(weir_measure_options): a 0 stands for the default of each field.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct weir_measure_options {
    /// sizeof(weir_measure_options).
    pub size: u32,
    /// WEIR_BY_BYTES and so on, added.
    pub flags: u32,
    /// Keys to count by, a table each: 5tuple, conversation, src, dst, host, dport, service, vlan and others of weir help keys, prefixes such as src/24; their number
    /// is `key_count`. By default 5tuple.
    pub keys: *const *const c_char,
    /// Number of keys.
    pub key_count: u32,
    /// Most rows of a table; 0 for 10.
    pub rows: u32,
    /// Most rows of a table of the keys that changed most since the window before; 0 for no such table.
    pub changers: u32,
    /// WEIR_HEAVY, WEIR_EXACT, WEIR_CMS, WEIR_CMS_CONSERVATIVE, WEIR_SHT, WEIR_MV, WEIR_RS or WEIR_RS_SET.
    pub sketch: u32,
    /// WEIR_AUTO, WEIR_RSS, WEIR_ASYNC or WEIR_SYNC.
    pub design: u32,
    /// Packets that a worker takes at once; 0 for 32.
    pub batch: u32,
    /// Memory of each table, bytes; 0 for a size that follows the caches (heavy, 1 to 4 MiB) or 4 MiB. There is a table for each key, for each worker, for each open window.
    pub memory: u64,
    /// Length of a window of packet time, ns; 0 for one answer about all packets.
    pub window_ns: u64,
    /// Time that a window waits for late packets, ns; 0 for 1 s, or the window if that is shorter; of interfaces 200 ms.
    pub late_ns: u64,
    /// Seed of the hash functions, with WEIR_SEED.
    pub seed: u64,
    /// Databases in the MaxMind DB format (.mmdb), for the keys asn, country and network, and for columns such as src_country; their number
    /// is `geo_count`. They are read by the opening.
    pub geo: *const *const c_char,
    /// Number of databases.
    pub geo_count: u32,
    /// 0.
    pub reserved: u32,
    /// Names of the columns of the rows, with commas between them; NULL for the usual ones.
    pub columns: *const c_char,
}

/// Returns the figure that ranks the keys.
fn figure(flags: u32) -> Result<By, Failure> {
    let mut chosen = FIGURES.iter().filter(|(flag, _)| flags & flag != 0);
    let first = chosen.next();
    match chosen.next() {
        None => Ok(first.map_or(By::Packets, |(_, by)| *by)),
        Some(_) => Err(Failure::refused(
            "weir_measure_options.flags has several of WEIR_BY_BYTES, WEIR_BY_PEERS, WEIR_BY_PORTS and WEIR_BY_CONTACTS: choose one",
        )),
    }
}

/// Takes the options of a caller.
///
/// # Safety
/// `options` is NULL, or leads to options as documented.
unsafe fn measure_options(options: *const weir_measure_options) -> Result<MeasureOptions, Failure> {
    // SAFETY: forwarded to the caller.
    let Some(options) = (unsafe { structure(options, "weir_measure_options")? }) else {
        return Ok(MeasureOptions::default());
    };
    let unknown = |field: &str, value: u32| {
        Failure::refused(format!(
            "weir_measure_options.{field} is {value:#x}, which is unknown"
        ))
    };
    if options.flags & !KNOWN_FLAGS != 0 {
        return Err(unknown("flags", options.flags & !KNOWN_FLAGS));
    }
    let has = |flag: u32| options.flags & flag != 0;
    // SAFETY: the caller promises that many texts.
    let keys = unsafe { texts(options.keys, options.key_count, "weir_measure_options.keys")? };
    let keys = keys
        .iter()
        .map(|key| key.parse().map_err(Failure::refused))
        .collect::<Result<Vec<_>, _>>()?;
    // SAFETY: the caller promises that many texts, and a text.
    let (geo, columns) = unsafe {
        (
            call::names_of(options.geo, options.geo_count, "weir_measure_options.geo")?,
            text(options.columns, "weir_measure_options.columns")?,
        )
    };
    let time = |ns: u64| (ns > 0).then(|| Duration::from_nanos(ns));
    let mut chosen = MeasureOptions {
        by: figure(options.flags)?,
        changers: options.changers as usize,
        window: time(options.window_ns),
        late: time(options.late_ns),
        sketch: match options.sketch {
            WEIR_HEAVY => Sketch::Heavy,
            WEIR_EXACT => Sketch::Exact,
            WEIR_CMS => Sketch::Cms {
                conservative: false,
            },
            WEIR_CMS_CONSERVATIVE => Sketch::Cms { conservative: true },
            WEIR_SHT => Sketch::Simple,
            WEIR_MV => Sketch::Majority,
            WEIR_RS => Sketch::Reversible,
            WEIR_RS_SET => Sketch::ReversibleSets,
            other => return Err(unknown("sketch", other)),
        },
        design: match options.design {
            WEIR_AUTO => Design::Auto,
            WEIR_RSS => Design::Rss,
            WEIR_ASYNC => Design::Async,
            WEIR_SYNC => Design::Sync,
            other => return Err(unknown("design", other)),
        },
        shared: has(WEIR_SHARED),
        seed: has(WEIR_SEED).then_some(options.seed),
        merge: has(WEIR_NO_MERGE).then_some(false),
        geo: read_geo(&geo)?,
        columns: columns.map(str::to_owned),
        findings: has(WEIR_FINDINGS),
        health: HealthParts {
            tcp: has(WEIR_HEALTH_TCP),
            dns: has(WEIR_HEALTH_DNS),
            path: has(WEIR_HEALTH_MTU),
        },
        ..MeasureOptions::default()
    };
    // A 0 stands for the default.
    if !keys.is_empty() {
        chosen.keys = keys;
    }
    if options.rows > 0 {
        chosen.rows = options.rows as usize;
    }
    if options.batch > 0 {
        chosen.batch = options.batch as usize;
    }
    if options.memory > 0 {
        chosen.memory = Some(options.memory);
    }
    Ok(chosen)
}

/// Does work on a measurement.
fn with_measure<T>(
    measure: weir_measure,
    work: impl FnOnce(&Measurement) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let object = get(measure, kind::MEASURE)?;
    match &*object {
        Object::Measure(measure) => work(measure),
        _ => Err(Failure::new(
            WEIR_CLOSED,
            "the handle is none of a measurement",
        )),
    }
}

/// Begins to measure sources, named as for weir_open; several interfaces may be named, and each queue has workers of its own.
///
/// Of `options`, `filter`, `sets`, `workers`, the times, `ring`, `latency_ns` and the flags are used: `workers` is the number of
/// threads that measure, and WEIR_INNER has keys read inside tunnels, while the filter judges the packets around them. Splits, limits, rules
/// and WEIR_INVERT are refused. Waits until the first packets of a file are there, or the capture has begun; not for packets of a pipe.
/// `options` and `measure_options` may be NULL.
///
/// # Safety
/// `names` leads to `count` texts, `options` and `measure_options` are NULL or lead to options, `measure` leads to memory for a handle,
/// `error` is NULL or leads to memory for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_measure_open(
    names: *const *const c_char,
    count: usize,
    options: *const weir_options,
    measure_options: *const weir_measure_options,
    measure: *mut weir_measure,
    error: *mut weir_text,
) -> weir_status {
    let work = || {
        check(measure, "measure")?;
        // SAFETY: the caller promises that many texts, and options.
        let (names, chosen, counts) = unsafe {
            (
                self::names(names, count)?,
                self::options(options)?,
                self::measure_options(measure_options)?,
            )
        };
        let opened = Measurement::open(&names, &chosen, &counts)?;
        let handle = insert(Object::Measure(Box::new(opened)))?;
        // SAFETY: the caller promises memory for a handle.
        unsafe { store(measure, handle, "measure")? };
        Ok(WEIR_OK)
    };
    // SAFETY: forwarded to the caller.
    unsafe { call_with_error(error, work) }
}

/// Waits at most `timeout_ns` for the next answer: each complete window, if the options name one,
/// and at the end the summary. `text` gets a JSON object in one line, as `weir measure --json`
/// prints it; free it with weir_text_free. weir_answer_tcp and so on give its figures as structures. `is_summary`, if not NULL, gets 1 for the summary, else
/// 0.
///
/// Returns WEIR_NOTHING if there was no answer, WEIR_END after the summary, and once before that
/// WEIR_FAILED if a source failed: the summary then has a `fault`. While 64 windows wait to be
/// taken, files are not read, and windows of interfaces are left out: the next answer counts them
/// as `left_out`. **Cost**: a lock and an allocation; the text was made by the thread that reads.
///
/// # Safety
/// `text` leads to memory for a handle; `is_summary` is NULL or leads to memory for a number; `error` is NULL or leads to memory for a
/// handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_measure_next(
    measure: weir_measure,
    timeout_ns: u64,
    text: *mut weir_text,
    is_summary: *mut u32,
    error: *mut weir_text,
) -> weir_status {
    let work = || {
        check(text, "text")?;
        with_measure(measure, |measure| {
            match measure.next(Duration::from_nanos(timeout_ns))? {
                NextAnswer::End => Ok(WEIR_END),
                NextAnswer::Nothing => Ok(WEIR_NOTHING),
                NextAnswer::Answer(answer) => {
                    if !is_summary.is_null() {
                        // SAFETY: the caller promises memory for a number.
                        unsafe { is_summary.write(answer.is_summary.into()) };
                    }
                    // SAFETY: the caller promises memory for a handle.
                    unsafe { store_made(text, Text::of_answer(answer))? };
                    Ok(WEIR_OK)
                }
            }
        })
    };
    // SAFETY: forwarded to the caller.
    unsafe { call_with_error(error, work) }
}

/// Ends a measurement early. Packets that were read are measured; the answers can still be taken.
#[unsafe(no_mangle)]
pub extern "C" fn weir_measure_stop(measure: weir_measure) -> weir_status {
    call(|| {
        with_measure(measure, |measure| {
            measure.stop();
            Ok(WEIR_OK)
        })
    })
}

/// Gives what the user should know although nothing failed, a line each, since the last call. WEIR_NOTHING if there is nothing.
///
/// # Safety
/// `text` leads to memory for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_measure_remarks(
    measure: weir_measure,
    text: *mut weir_text,
) -> weir_status {
    call(|| {
        check(text, "text")?;
        let lines = with_measure(measure, |measure| Ok(measure.remarks()))?;
        if lines.is_empty() {
            return Ok(WEIR_NOTHING);
        }
        // SAFETY: the caller promises memory for a handle.
        unsafe { store_text(text, lines.join("\n"))? };
        Ok(WEIR_OK)
    })
}

/// Closes a measurement, and ends it if it goes on: answers that wait are dropped. Waits for its threads, seconds at most. WEIR_BUSY if another
/// thread is in a call: end that with weir_measure_stop, and try again.
#[unsafe(no_mangle)]
pub extern "C" fn weir_measure_close(measure: weir_measure) -> weir_status {
    call(|| {
        let Object::Measure(removed) = OBJECTS.remove(measure, kind::MEASURE, |_| true)? else {
            return Err(Failure::new(
                WEIR_CLOSED,
                "the handle is none of a measurement",
            ));
        };
        removed.close();
        Ok(WEIR_OK)
    })
}
