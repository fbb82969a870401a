//! Recordings: packets kept in RAM and on disk, and saved around triggers.

use crate::call::{
    Failure, OBJECTS, Object, WEIR_CLOSED, WEIR_END, WEIR_NOTHING, WEIR_OK, call, call_with_error,
    check, get, insert, kind, name, names, store, store_text, structure, text, texts, weir_status,
};
use crate::source::{options, weir_options};
use crate::text::weir_text;
use core::ffi::c_char;
use std::time::Duration;
use weir_api::{
    Condition, NextSaved, RecordOptions, Recorder, Span, Trigger, parse_keep,
    parse_threshold_trigger, parse_trigger,
};

/// A recording. Close it with weir_record_close.
pub type weir_record = u64;

/// Settings of a recording. Set all bytes to 0 and `size` to sizeof(weir_record_options): a 0 stands for the default of each field.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct weir_record_options {
    /// sizeof(weir_record_options).
    pub size: u32,
    /// Number of triggers.
    pub trigger_count: u32,
    /// Triggers that an expression fires: NAME=EXPR, such as "dns=udp port 53"; or the ready rule "scan". Their number is
    /// `trigger_count`. Without any trigger there is one for weir_record_trigger, named "signal".
    pub triggers: *const *const c_char,
    /// Triggers that a threshold fires: NAME=KEY>VALUE FIGURE/WINDOW, such as "many=src>100 peers/10s"; their number is `threshold_count`.
    pub thresholds: *const *const c_char,
    /// Number of thresholds.
    pub threshold_count: u32,
    /// Level of zstd with which complete files of the record on disk are compressed, 1 to 19; 0 for none.
    pub compress: u32,
    /// Packets that triggers save: "all", "flow", "host" or an expression; NULL for all.
    pub keep: *const c_char,
    /// Interval at which a trigger "every" fires, ns; 0 for no such trigger.
    pub every_ns: u64,
    /// Memory for packets, bytes; 0 for 4 GiB, or a quarter of the free memory if that is less.
    pub ram: u64,
    /// Largest size of the record on disk, bytes, at least 8 MiB; 0 for no record but the files that triggers save.
    pub disk: u64,
    /// Longest time for which packets are kept, ns; 0 for as long as there is room.
    pub age_ns: u64,
    /// Bytes of each conversation that are kept; 0 for no limit.
    pub cutoff: u64,
    /// Largest length of a file of the record on disk, bytes; 0 for 256 MiB, or an eighth of `disk` if that is less.
    pub segment: u64,
    /// Longest time of such a file, ns; 0 for an eighth of `age_ns`.
    pub segment_ns: u64,
    /// Largest interval at which packets on disk are made durable, ns; 0 for 1 s.
    pub sync_ns: u64,
    /// Bytes of the file system that stay free; 0 for 1 GiB.
    pub reserve: u64,
    /// Largest size of all saved files, bytes; 0 for no limit.
    pub saved_size: u64,
    /// Longest time for which saved files are kept, ns; 0 for no limit.
    pub saved_age_ns: u64,
    /// Time before a trigger fires from which on packets are saved, ns; 0 for 10 s.
    pub before_ns: u64,
    /// Time after that up to which packets are saved, ns; 0 for 5 s.
    pub after_ns: u64,
    /// Time after a file during which its trigger does not fire, ns.
    pub cooldown_ns: u64,
    /// Largest length of a saved file, bytes; 0 for 1 GiB.
    pub max_size: u64,
    /// Most files that a trigger saves; 0 for 1000.
    pub max_files: u32,
    /// Permission bits of the files; 0 for 0600.
    pub mode: u32,
}

/// Takes the options of a caller.
///
/// # Safety
/// `options` is NULL, or leads to options as documented.
unsafe fn record_options(options: *const weir_record_options) -> Result<RecordOptions, Failure> {
    // SAFETY: forwarded to the caller.
    let Some(options) = (unsafe { structure(options, "weir_record_options")? }) else {
        return Ok(RecordOptions::default());
    };
    // SAFETY: the caller promises that many texts.
    let (triggers, thresholds, keep) = unsafe {
        (
            texts(
                options.triggers,
                options.trigger_count,
                "weir_record_options.triggers",
            )?,
            texts(
                options.thresholds,
                options.threshold_count,
                "weir_record_options.thresholds",
            )?,
            text(options.keep, "weir_record_options.keep")?,
        )
    };
    let triggers = triggers
        .into_iter()
        .map(parse_trigger)
        .chain(thresholds.into_iter().map(parse_threshold_trigger));
    let mut triggers = triggers
        .collect::<Result<Vec<_>, _>>()
        .map_err(Failure::refused)?;
    let some = |value: u64| (value > 0).then_some(value);
    let time = |ns: u64| some(ns).map(Duration::from_nanos);
    triggers
        .extend(time(options.every_ns).map(|time| ("every".to_owned(), Condition::Every(time))));
    let defaults = RecordOptions::default();
    let trigger = Trigger {
        before: time(options.before_ns).unwrap_or(defaults.trigger.before),
        after: time(options.after_ns).unwrap_or(defaults.trigger.after),
        keep: keep
            .map_or(Ok(defaults.trigger.keep), parse_keep)
            .map_err(Failure::refused)?,
        cooldown: Duration::from_nanos(options.cooldown_ns),
        max_bytes: some(options.max_size).unwrap_or(defaults.trigger.max_bytes),
        max_files: some(options.max_files.into()).unwrap_or(defaults.trigger.max_files),
        ..defaults.trigger
    };
    if options.compress > 19 {
        return Err(Failure::refused(format!(
            "weir_record_options.compress is {}, and 19 is the most",
            options.compress
        )));
    }
    Ok(RecordOptions {
        ram: some(options.ram),
        age: time(options.age_ns),
        cutoff: some(options.cutoff),
        disk: some(options.disk),
        sync: time(options.sync_ns).unwrap_or(defaults.sync),
        segment: some(options.segment),
        segment_time: time(options.segment_ns),
        compress: some(options.compress.into()).map(|level| level as i32),
        reserve: some(options.reserve).unwrap_or(defaults.reserve),
        saved_size: some(options.saved_size),
        saved_age: time(options.saved_age_ns),
        mode: if options.mode == 0 {
            defaults.mode
        } else {
            options.mode
        },
        triggers,
        trigger,
        ..defaults
    })
}

/// Does work on a recording.
fn with_record<T>(
    record: weir_record,
    work: impl FnOnce(&Recorder) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let object = get(record, kind::RECORD)?;
    match &*object {
        Object::Record(record) => work(record),
        _ => Err(Failure::new(
            WEIR_CLOSED,
            "the handle is none of a recording",
        )),
    }
}

/// Begins to record sources, named as for weir_open, into a directory, which is made if it is missing. Several interfaces may be named.
///
/// Of `options`, `filter`, `sets`, `ring`, `latency_ns` and the flags of captures are used; all else is refused. The directory gets a control socket:
/// `weir query` and weir_open find what is only in RAM, and `weir record --status` asks for the state. Waits until the capture has begun.
/// `options` and `record_options` may be NULL. **Cost**: the memory of `ram`, which is obtained now.
///
/// # Safety
/// `names` leads to `count` texts, `directory` leads to a text, `options` and `record_options` are NULL or lead to options, `record` leads to
/// memory for a handle, `error` is NULL or leads to memory for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_record_open(
    names: *const *const c_char,
    count: usize,
    directory: *const c_char,
    options: *const weir_options,
    record_options: *const weir_record_options,
    record: *mut weir_record,
    error: *mut weir_text,
) -> weir_status {
    let work = || {
        check(record, "record")?;
        // SAFETY: the caller promises that many texts, a text, and options.
        let (names, directory, chosen, kept) = unsafe {
            (
                self::names(names, count)?,
                name(directory)?,
                self::options(options)?,
                self::record_options(record_options)?,
            )
        };
        let opened = Recorder::open(&names, directory, &chosen, &kept)?;
        let handle = insert(Object::Record(Box::new(opened)))?;
        // SAFETY: the caller promises memory for a handle.
        unsafe { store(record, handle, "record")? };
        Ok(WEIR_OK)
    };
    // SAFETY: forwarded to the caller.
    unsafe { call_with_error(error, work) }
}

/// Fires the trigger `name`, or all triggers if it is NULL: packets from `before_ns` before now to
/// `after_ns` after now are saved. If both times are 0, each trigger saves packets of its own
/// times. If files are recorded, now is the timestamp of the latest recorded packet, and the call
/// waits up to a second for the first packet.
///
/// `text`, if not NULL, gets the triggers as JSON: {"type":"trigger","fired":[NAME...],"refused":{NAME:WHY...}}. WEIR_REFUSED if none
/// fired.
/// Waits for the thread of the triggers, seconds at most.
///
/// # Safety
/// `name` is NULL or leads to a text; `text` and `error` are NULL or lead to memory for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_record_trigger(
    record: weir_record,
    name: *const c_char,
    before_ns: u64,
    after_ns: u64,
    text: *mut weir_text,
    error: *mut weir_text,
) -> weir_status {
    let work = || {
        // SAFETY: the caller promises a text.
        let name = unsafe { crate::call::text(name, "the name of a trigger")? };
        let [before, after] = [before_ns, after_ns].map(Duration::from_nanos);
        let span = (before_ns > 0 || after_ns > 0).then_some(Span { before, after });
        let fired = with_record(record, |record| Ok(record.trigger(name, span)?))?;
        if !text.is_null() {
            // SAFETY: the caller promises memory for a handle.
            unsafe { store_text(text, fired)? };
        }
        Ok(WEIR_OK)
    };
    // SAFETY: forwarded to the caller.
    unsafe { call_with_error(error, work) }
}

/// Gives the state of a recording: a JSON object in one line, as `weir record --status` prints it. **Cost**: a look at each chunk of the ring.
///
/// # Safety
/// `text` leads to memory for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_record_status(
    record: weir_record,
    text: *mut weir_text,
) -> weir_status {
    call(|| {
        check(text, "text")?;
        let status = with_record(record, |record| Ok(record.status()))?;
        // SAFETY: the caller promises memory for a handle.
        unsafe { store_text(text, status)? };
        Ok(WEIR_OK)
    })
}

/// Waits at most `timeout_ns` for the next file that a trigger saves, or fails to save. `text` gets a JSON object in one line, as
/// `weir record --json` prints it. WEIR_NOTHING if none came.
///
/// After the end of recorded files the recording is completed, and WEIR_END follows the last saved
/// file. Of more than 1024 saved files that were not asked for, the oldest are forgotten here.
///
/// # Safety
/// `text` leads to memory for a handle; `error` is NULL or leads to memory for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_record_next(
    record: weir_record,
    timeout_ns: u64,
    text: *mut weir_text,
    error: *mut weir_text,
) -> weir_status {
    let work = || {
        check(text, "text")?;
        with_record(record, |record| {
            match record.next(Duration::from_nanos(timeout_ns)) {
                NextSaved::End => Ok(WEIR_END),
                NextSaved::Nothing => Ok(WEIR_NOTHING),
                NextSaved::Saved(saved) => {
                    // SAFETY: the caller promises memory for a handle.
                    unsafe { store_text(text, saved)? };
                    Ok(WEIR_OK)
                }
            }
        })
    };
    // SAFETY: forwarded to the caller.
    unsafe { call_with_error(error, work) }
}

/// Ends a recording early: what the sources received is recorded. weir_record_next then comes to its end.
#[unsafe(no_mangle)]
pub extern "C" fn weir_record_stop(record: weir_record) -> weir_status {
    call(|| {
        with_record(record, |record| {
            record.stop();
            Ok(WEIR_OK)
        })
    })
}

/// Gives what the user should know although nothing failed, a line each, since the last call. WEIR_NOTHING if there is nothing.
///
/// # Safety
/// `text` leads to memory for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_record_remarks(
    record: weir_record,
    text: *mut weir_text,
) -> weir_status {
    call(|| {
        check(text, "text")?;
        let lines = with_record(record, |record| Ok(record.remarks()))?;
        if lines.is_empty() {
            return Ok(WEIR_NOTHING);
        }
        // SAFETY: the caller promises memory for a handle.
        unsafe { store_text(text, lines.join("\n"))? };
        Ok(WEIR_OK)
    })
}

/// Ends, completes and closes a recording. `text`, if not NULL, gets its account: a JSON object in one line, as `weir record --json` prints it
/// at the end. WEIR_FAILED if a source or a file failed; the recording is closed all the same, and has an account. Waits for the threads and
/// the disk. WEIR_BUSY if another thread is in a call: end that with weir_record_stop, and try again.
///
/// # Safety
/// `text` and `error` are NULL or lead to memory for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_record_close(
    record: weir_record,
    text: *mut weir_text,
    error: *mut weir_text,
) -> weir_status {
    let work = || {
        let Object::Record(removed) = OBJECTS.remove(record, kind::RECORD, |_| true)? else {
            return Err(Failure::new(
                WEIR_CLOSED,
                "the handle is none of a recording",
            ));
        };
        let (account, result) = removed.close();
        if !text.is_null() {
            // SAFETY: the caller promises memory for a handle.
            unsafe { store_text(text, account)? };
        }
        Ok(result.map(|()| WEIR_OK)?)
    };
    // SAFETY: forwarded to the caller.
    unsafe { call_with_error(error, work) }
}
