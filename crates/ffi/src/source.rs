//! Sources: files, interfaces and record directories, whose packets are read in batches.

use crate::batch::{Lease, describe, weir_batch, weir_lease, with};
use crate::call::{
    Failure, OBJECTS, Object, WEIR_BUSY, WEIR_CLOSED, WEIR_END, WEIR_FAILED, WEIR_NOTHING, WEIR_OK,
    call, call_with_error, check, full, get, insert, insert_or_return, kind, names, store,
    store_text, structure, text, texts, weir_status,
};
use crate::text::weir_text;
use core::ffi::c_char;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use weir_api::{Batch, Counts, Direction, Next, Options, Order, Within};

/// A source that is read. Close it with weir_close.
pub type weir_source = u64;

/// Packets of several files are merged in time order.
pub const WEIR_MERGE: u32 = 1;
/// All packets are put in time order before the first is delivered.
pub const WEIR_SORT: u32 = 2;
/// The verdicts of the filter are inverted.
pub const WEIR_INVERT: u32 = 4;
/// The filter judges the innermost packet of a tunnel.
pub const WEIR_INNER: u32 = 8;
/// Names of hosts in the filter are looked up.
pub const WEIR_RESOLVE: u32 = 16;
/// The interface receives only packets for this host.
pub const WEIR_NO_PROMISCUOUS: u32 = 32;
/// The kernel does not filter: the batches also have packets that do not match.
pub const WEIR_NO_KERNEL_FILTER: u32 = 64;
/// Only packets that the interface receives.
pub const WEIR_IN: u32 = 128;
/// Only packets that the interface sends.
pub const WEIR_OUT: u32 = 256;
/// Wait until the interface is there and up.
pub const WEIR_WAIT: u32 = 512;
/// Poll without sleep (AF_XDP and DPDK).
pub const WEIR_BUSY_POLL: u32 = 1024;
const KNOWN_FLAGS: u32 = 2047;

/// Settings of a source. Set all bytes to 0 and `size` to sizeof(weir_options): a 0 stands for the default of each field.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct weir_options {
    /// sizeof(weir_options).
    pub size: u32,
    /// WEIR_MERGE and so on, added.
    pub flags: u32,
    /// Filter in the language of libpcap; NULL or "" for all packets.
    pub filter: *const c_char,
    /// Further filters, each of which marks some of the packets that pass; their number is `split_count`.
    pub splits: *const *const c_char,
    /// Number of splits.
    pub split_count: u32,
    /// Threads that read and filter files; 0 for one for each processor.
    pub workers: u32,
    /// Number of packets that pass, after which the source ends; 0 for no limit.
    pub limit: u64,
    /// Memory for packets of an interface that were not taken yet, bytes; 0 for 32 MiB.
    pub ring: u64,
    /// Longest time for which a packet of an interface waits for others, ns; 0 for 50 ms. With
    /// AF_PACKET it is whole milliseconds, and blocks of the ring are smaller by as much as it is
    /// shorter, so that the ring still has room for 1.6 s of few packets; but a block holds the
    /// largest frame: 128 KiB, so that a ring of 32 MiB has room for 256 times the latency.
    pub latency_ns: u64,
    /// Most batches that wait or are held, up to 4096; 0 for 64. While there are so many, a file is
    /// not read, and a capture drops packets once its ring is full, and counts them. With AF_PACKET
    /// a batch is a block of the ring, even if it holds one packet (1 MiB; of a ring below 32 MiB
    /// or with a latency below 50 ms less), and blocks are filled in turn: the kernel stops at a
    /// block that is still in use. Release batches about in their order.
    pub batches: u32,
    /// Number of connections for which there is room if a rule asks for the states of packets; 0 for 65536.
    pub connections: u32,
    /// The least time of the wanted packets, ns since 1970; 0 for no limit.
    pub from_ns: i64,
    /// The greatest time; 0 for no limit.
    pub to_ns: i64,
    /// Rules of a firewall, in the language of `weir firewall`; NULL for none. Packets that the rules deny have the verdict 0, and are
    /// counted as denied. Names of files in the rules are relative to the working directory.
    pub rules: *const c_char,
    /// Interfaces, with commas between them, whose packets AF_XDP or DPDK may take away from this
    /// host, although they carry its default route or the login of this program, or are ports of a
    /// bridge; NULL for none.
    pub yes_take: *const c_char,
    /// Sets of addresses that expressions name as in "src @banned": each is a name and a file, such as "banned=banned.txt"; their number
    /// is `set_count`. The file has an address, a prefix or a range a line, # begins a comment, and it is read by the opening.
    pub sets: *const *const c_char,
    /// Number of sets.
    pub set_count: u32,
    /// Duplicates are left out of the packets that pass: a duplicate has the bytes of one of so many packets that pass, itself included, 2
    /// to 1000000; 0 for none, or by `dedup_ns`.
    pub dedup: u32,
    /// Duplicates are packets with the bytes of a packet up to this time before, ns; 0 for none, or by `dedup`.
    pub dedup_ns: u64,
}

/// Packets by their fate: received = passed + filtered + denied + dropped. Each number is counted
/// where it happens.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct weir_counts {
    /// Packets that arrived at the source, whether or not there was room for them.
    pub received: u64,
    /// Packets that passed the filter.
    pub passed: u64,
    /// Packets that the filter rejected, here or in the kernel.
    pub filtered: u64,
    /// Packets that a firewall rejected.
    pub denied: u64,
    /// Packets lost at the source, for lack of room.
    pub dropped_source: u64,
    /// Packets that passed and were not taken before the source was closed or stopped.
    pub dropped_output: u64,
    /// Bytes on the wire of the packets that passed.
    pub bytes: u64,
    /// Packets that were lost when the file was captured, as the file says; not part of `received`.
    pub lost_before: u64,
    /// Batches that wait to be taken.
    pub waiting: u64,
    /// Batches that are held.
    pub held: u64,
    /// Times that reading stopped because `batches` were out.
    pub starved: u64,
    /// 1 if the numbers are final.
    pub is_final: u64,
    /// 1 if a source that was read to its end has no counter of lost packets, as pcap files have none: then 0 of `lost_before` does not say
    /// that nothing was lost.
    pub loss_not_recorded: u64,
}

/// An interface of a source.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct weir_interface {
    /// Link type: a number of the LINKTYPE registry of tcpdump.org, such as 1 for Ethernet.
    pub link_type: u32,
    /// Largest captured length, bytes; 0 if there is none.
    pub snaplen: u32,
}

/// A source, with batches for which there was no room for a handle.
#[derive(Debug)]
pub(crate) struct Source {
    source: weir_api::Source,
    put_back: Mutex<Vec<Batch>>,
    /// Whether there is such a batch: the lock is taken only then.
    has_put_back: AtomicBool,
}

impl Source {
    /// The next batch: a batch that was put back, if there is one.
    fn next(&self, most: Duration) -> Result<Next, Failure> {
        if self.has_put_back.load(Ordering::Acquire) {
            let mut put_back = self.put_back.lock().unwrap_or_else(PoisonError::into_inner);
            let batch = put_back.pop();
            self.has_put_back
                .store(!put_back.is_empty(), Ordering::Release);
            if let Some(batch) = batch {
                return Ok(Next::Batch(batch));
            }
        }
        Ok(self.source.next(most)?)
    }

    fn put_back(&self, batch: Batch) {
        let mut put_back = self.put_back.lock().unwrap_or_else(PoisonError::into_inner);
        put_back.push(batch);
        self.has_put_back.store(true, Ordering::Release);
    }
}

impl From<Counts> for weir_counts {
    fn from(counts: Counts) -> Self {
        Self {
            received: counts.received,
            passed: counts.passed,
            filtered: counts.filtered,
            denied: counts.denied,
            dropped_source: counts.dropped_source,
            dropped_output: counts.dropped_output,
            bytes: counts.bytes,
            lost_before: counts.lost_before,
            waiting: counts.waiting,
            held: counts.held,
            starved: counts.starved,
            is_final: counts.is_final.into(),
            loss_not_recorded: counts.loss_not_recorded.into(),
        }
    }
}

/// Takes the options of a caller.
///
/// # Safety
/// `options` is NULL, or leads to options as documented.
pub(crate) unsafe fn options(options: *const weir_options) -> Result<Options, Failure> {
    // SAFETY: forwarded to the caller.
    let Some(options) = (unsafe { structure(options, "weir_options")? }) else {
        return Ok(Options::default());
    };
    if options.flags & !KNOWN_FLAGS != 0 {
        return Err(Failure::refused(format!(
            "weir_options.flags has unknown bits: {:#x}",
            options.flags & !KNOWN_FLAGS
        )));
    }
    let has = |flag: u32| options.flags & flag != 0;
    // SAFETY: the caller promises that many texts.
    let splits = unsafe { texts(options.splits, options.split_count, "weir_options.splits")? };
    for (one, other, names) in [
        (WEIR_IN, WEIR_OUT, "WEIR_IN and WEIR_OUT"),
        (WEIR_MERGE, WEIR_SORT, "WEIR_MERGE and WEIR_SORT"),
    ] {
        if has(one) && has(other) {
            return Err(Failure::refused(format!(
                "{names} exclude each other: leave one out"
            )));
        }
    }
    // SAFETY: the caller promises texts.
    let (filter, rules) = unsafe {
        (
            text(options.filter, "weir_options.filter")?,
            text(options.rules, "weir_options.rules")?,
        )
    };
    // SAFETY: as before.
    let yes_take = unsafe { text(options.yes_take, "weir_options.yes_take")? };
    // SAFETY: the caller promises that many texts.
    let sets = unsafe { texts(options.sets, options.set_count, "weir_options.sets")? };
    let mut chosen = Options {
        filter: filter.unwrap_or_default().to_owned(),
        splits: splits.into_iter().map(str::to_owned).collect(),
        invert: has(WEIR_INVERT),
        inner: has(WEIR_INNER),
        resolve: has(WEIR_RESOLVE),
        sets: sets.into_iter().map(str::to_owned).collect(),
        order: match (has(WEIR_MERGE), has(WEIR_SORT)) {
            (_, true) => Order::Sorted,
            (true, false) => Order::Merged,
            _ => Order::OneByOne,
        },
        workers: options.workers as usize,
        limit: (options.limit > 0).then_some(options.limit),
        times: [options.from_ns, options.to_ns].map(|time| (time != 0).then_some(time)),
        rules: rules.map(str::to_owned),
        yes_take: interfaces(yes_take),
        dedup: within(&options)?,
        ..Options::default()
    };
    let capture = &mut chosen.capture;
    capture.promiscuous = !has(WEIR_NO_PROMISCUOUS);
    capture.kernel_filter = !has(WEIR_NO_KERNEL_FILTER);
    capture.wait = has(WEIR_WAIT);
    capture.busy_poll = has(WEIR_BUSY_POLL);
    capture.direction = match (has(WEIR_IN), has(WEIR_OUT)) {
        (true, false) => Direction::In,
        (false, true) => Direction::Out,
        _ => Direction::Both,
    };
    capture.retire = (options.latency_ns > 0).then(|| Duration::from_nanos(options.latency_ns));
    // A 0 stands for the default.
    if options.ring > 0 {
        capture.ring = options.ring;
    }
    if options.batches > 0 {
        chosen.batches = options.batches as usize;
    }
    if options.connections > 0 {
        chosen.connections = options.connections as usize;
    }
    Ok(chosen)
}

/// The packets that a packet is compared with.
fn within(options: &weir_options) -> Result<Option<Within>, Failure> {
    match (options.dedup, options.dedup_ns) {
        (0, 0) => Ok(None),
        (packets, 0) => Ok(Some(Within::Packets(packets))),
        (0, ns) => Ok(Some(Within::Time(ns))),
        _ => Err(Failure::refused(
            "weir_options.dedup and weir_options.dedup_ns exclude each other: set one of them to 0",
        )),
    }
}

/// Names of interfaces, with commas between them.
pub(crate) fn interfaces(text: Option<&str>) -> Vec<String> {
    let names = text.unwrap_or_default().split(',').map(str::trim);
    names
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect()
}

/// Does work on a source.
fn with_source<T>(
    source: weir_source,
    work: impl FnOnce(&Source) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let object = get(source, kind::SOURCE)?;
    match &*object {
        Object::Source(source) => work(source),
        _ => Err(Failure::new(WEIR_CLOSED, "the handle is none of a source")),
    }
}

/// Opens sources, named as for the command: capture files, "-" for standard input, record
/// directories; or interfaces, such as "eth0", "af_packet:eth0", "af_xdp:eth0:0" or "dpdk:DEVICE".
/// Several interfaces or queues are copied and merged in time order.
///
/// Waits until the first packets of a file are there, or the capture has begun; not for packets of
/// a pipe, but for the writer of a named one. Threads of the library read ahead. An expression that
/// makes sense for no link type of a pcapng file is refused by weir_next, after its batches.
/// `options` may be NULL. On failure, and only then, `error` gets a text with the line that the
/// command would print, unless it is NULL; free it with weir_text_free. This holds for each
/// function with an `error`. Without room for one more object (65536 are the most, texts among
/// them) `error` gets 0. Advice in a line names flags of the command; members of weir_options have
/// similar names.
///
/// # Safety
/// `names` leads to `count` texts, `options` is NULL or leads to options, `source` leads to memory for a handle, `error` is NULL or
/// leads to memory for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_open(
    names: *const *const c_char,
    count: usize,
    options: *const weir_options,
    source: *mut weir_source,
    error: *mut weir_text,
) -> weir_status {
    let work = || {
        check(source, "source")?;
        // SAFETY: the caller promises that many texts, and options.
        let (names, chosen) = unsafe { (self::names(names, count)?, self::options(options)?) };
        let opened = weir_api::Source::open(&names, &chosen)?;
        let opened = Source {
            source: opened,
            put_back: Mutex::default(),
            has_put_back: AtomicBool::new(false),
        };
        let handle = insert(Object::Source(Box::new(opened)))?;
        // SAFETY: the caller promises memory for a handle.
        unsafe { store(source, handle, "source")? };
        Ok(WEIR_OK)
    };
    // SAFETY: forwarded to the caller.
    unsafe { call_with_error(error, work) }
}

/// Waits at most `timeout_ns` for the next batch, and describes it in `batch`. Release it with weir_release.
///
/// Returns WEIR_NOTHING if there was no batch, WEIR_END at the end, and once before that
/// WEIR_FAILED or WEIR_REFUSED if the source could not be read to its end: `error` then gets one
/// line per error. Several threads may take batches of a source; each goes to one. **Cost**: a lock
/// and some atomic operations, if a batch waits; a wait is a system call. Descriptors were made by
/// the thread that reads.
///
/// # Safety
/// `batch` leads to memory for a batch; `error` is NULL or leads to memory for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_next(
    source: weir_source,
    timeout_ns: u64,
    batch: *mut weir_batch,
    error: *mut weir_text,
) -> weir_status {
    let work = || {
        check(batch, "batch")?;
        with_source(source, |of| {
            match of.next(Duration::from_nanos(timeout_ns))? {
                Next::End => Ok(WEIR_END),
                Next::Nothing => Ok(WEIR_NOTHING),
                Next::Batch(next) => {
                    let mut described = describe(&next);
                    described.lease = match insert_or_return(Object::Lease(Lease { batch: next })) {
                        Ok(handle) => handle,
                        Err(object) => {
                            // The next call takes it.
                            if let Object::Lease(lease) = object {
                                of.put_back(lease.batch);
                            }
                            return Err(full());
                        }
                    };
                    // SAFETY: the caller promises memory for a batch.
                    unsafe { store(batch, described, "batch")? };
                    Ok(WEIR_OK)
                }
            }
        })
    };
    // SAFETY: forwarded to the caller.
    unsafe { call_with_error(error, work) }
}

/// Gives a descriptor for poll(2): readable while a batch waits, and at the end. It belongs to the source: do not read from it or
/// close it.
///
/// # Safety
/// `fd` leads to memory for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_poll_fd(source: weir_source, fd: *mut i32) -> weir_status {
    call(|| {
        with_source(source, |source| {
            let ready = source
                .source
                .poll_fd()
                .map_err(|error| Failure::new(WEIR_FAILED, error.to_string()))?;
            // SAFETY: the caller promises memory for a number.
            unsafe { store(fd, ready.as_raw_fd(), "fd")? };
            Ok(WEIR_OK)
        })
    })
}

/// Stops a source: it takes no more packets. Packets that it received can still be taken; then
/// weir_next returns WEIR_END.
#[unsafe(no_mangle)]
pub extern "C" fn weir_stop(source: weir_source) -> weir_status {
    call(|| {
        with_source(source, |source| {
            source.source.stop();
            Ok(WEIR_OK)
        })
    })
}

/// Replaces the filter between two batches, without loss. weir_batch.filter tells which filter
/// judged a batch; `filter` gets the number of the new filter.
///
/// Waits at most `timeout_ns` until no batch begins under the old filter. WEIR_BUSY: it is in place, and batches from before it are
/// still under way. After any other failure the old filter stays.
///
/// # Safety
/// `expression` leads to a text; `filter` is NULL or leads to memory for a number; `error` is NULL or leads to memory for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_set_filter(
    source: weir_source,
    expression: *const c_char,
    timeout_ns: u64,
    filter: *mut u64,
    error: *mut weir_text,
) -> weir_status {
    let work = || {
        check(expression, "expression")?;
        // SAFETY: the caller promises a text.
        let expression = unsafe { text(expression, "the filter")? }.unwrap_or_default();
        with_source(source, |source| {
            let change = source
                .source
                .set_filter(expression, Duration::from_nanos(timeout_ns))?;
            if !filter.is_null() {
                // SAFETY: the caller promises memory for a number.
                unsafe { filter.write(change.number) };
            }
            if change.under_way {
                let words =
                    "the filter is in place, and batches from before it are still under way";
                return Err(Failure::new(WEIR_BUSY, words));
            }
            Ok(WEIR_OK)
        })
    };
    // SAFETY: forwarded to the caller.
    unsafe { call_with_error(error, work) }
}

/// Replaces the rules of a source that was opened with rules, between two batches, without loss. Rules of the same text keep their
/// counts and rates. After a failure the old rules stay.
///
/// # Safety
/// `rules` leads to a text; `error` is NULL or leads to memory for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_set_rules(
    source: weir_source,
    rules: *const c_char,
    error: *mut weir_text,
) -> weir_status {
    let work = || {
        check(rules, "rules")?;
        // SAFETY: the caller promises a text.
        let rules = unsafe { text(rules, "the rules")? }.unwrap_or_default();
        with_source(source, |source| {
            source.source.set_rules(rules)?;
            Ok(WEIR_OK)
        })
    };
    // SAFETY: forwarded to the caller.
    unsafe { call_with_error(error, work) }
}

/// Gives the counts of a source. While the source is read, these are the counts between two
/// batches; at its end, the final counts. A thread of the library that waits for bytes of a pipe
/// cannot answer: the call then takes 0.1 s and gives earlier counts. While a capture runs,
/// `received` is the number of delivered and dropped packets; the final number is the kernel's own,
/// unless a limit ended the capture.
///
/// # Safety
/// `counts` leads to memory for counts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_counts_of(
    source: weir_source,
    counts: *mut weir_counts,
) -> weir_status {
    call(|| {
        with_source(source, |source| {
            // SAFETY: the caller promises memory for counts.
            unsafe { store(counts, source.source.counts().into(), "counts")? };
            Ok(WEIR_OK)
        })
    })
}

/// Gives messages for the user since the last call that are not errors, a line each. WEIR_NOTHING
/// if there is nothing.
///
/// # Safety
/// `text` leads to memory for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_remarks(source: weir_source, text: *mut weir_text) -> weir_status {
    call(|| {
        check(text, "text")?;
        let lines = with_source(source, |source| Ok(source.source.remarks()))?;
        if lines.is_empty() {
            return Ok(WEIR_NOTHING);
        }
        // SAFETY: the caller promises memory for a handle.
        unsafe { store_text(text, lines.join("\n"))? };
        Ok(WEIR_OK)
    })
}

/// Describes interface number `index` of the source of a batch. WEIR_REFUSED if there is none.
///
/// # Safety
/// `interface` leads to memory for an interface.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_interface_of(
    lease: weir_lease,
    index: u32,
    interface: *mut weir_interface,
) -> weir_status {
    call(|| {
        with(lease, |lease| {
            let interfaces = &lease.batch.layout().interfaces;
            let known = (index as usize) < interfaces.len();
            let about = known.then(|| &interfaces[index as usize]);
            let about = about.ok_or_else(|| Failure::refused("there is no such interface"))?;
            let described = weir_interface {
                link_type: about.link.0.into(),
                snaplen: about.snaplen,
            };
            // SAFETY: the caller promises memory for an interface.
            unsafe { store(interface, described, "interface")? };
            Ok(WEIR_OK)
        })
    })
}

/// Closes a source. `counts`, if not NULL, gets the final counts.
///
/// A child of a fork keeps the sockets of a capture until it ends or calls exec.
/// WEIR_BUSY if batches are out or another thread is in a call: release them, end the call with weir_stop, and try again.
///
/// # Safety
/// `counts` is NULL or leads to memory for counts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_close(source: weir_source, counts: *mut weir_counts) -> weir_status {
    call(|| {
        let is_free =
            |object: &Object| matches!(object, Object::Source(source) if source.source.held() == 0);
        let Object::Source(removed) = OBJECTS.remove(source, kind::SOURCE, is_free)? else {
            return Err(Failure::new(WEIR_CLOSED, "the handle is none of a source"));
        };
        let last = removed.source.close().into();
        if !counts.is_null() {
            // SAFETY: the caller promises memory for counts.
            unsafe { counts.write(last) };
        }
        Ok(WEIR_OK)
    })
}
