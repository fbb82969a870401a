//! Sinks: files and interfaces that packets of batches are written to.

use crate::batch::{weir_lease, with};
use crate::call::{
    self, Failure, OBJECTS, Object, WEIR_CLOSED, WEIR_OK, call_with_error, check, get, insert,
    kind, store, structure, weir_status,
};
use crate::source::interfaces;
use crate::text::weir_text;
use core::ffi::c_char;
use std::sync::{Mutex, PoisonError};
use weir_api::{Sink, SinkCounts, SinkOptions};

/// A file or an interface that takes packets. Close it with weir_sink_close.
pub type weir_sink = u64;

/// Packets by what became of them: given = written + refused + lost.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct weir_sink_counts {
    /// Packets given to the sink.
    pub given: u64,
    /// Packets written to the file, or handed to the interface.
    pub written: u64,
    /// Packets that an interface did not take: too long, too short, or without room.
    pub refused: u64,
    /// The rest of a sink that failed: packets given to it before or after its failure that are in
    /// no file. 0 for all other sinks, whose other numbers are counted each on its own.
    pub lost: u64,
}

/// Settings of a sink. Set all bytes to 0 and `size` to sizeof(weir_sink_options): a 0 stands for the default of each field.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct weir_sink_options {
    /// sizeof(weir_sink_options).
    pub size: u32,
    /// 0.
    pub flags: u32,
    /// Interfaces, with commas between them, that may send although they carry the default route of this host or the login of this program,
    /// or are ports of a bridge; NULL for none.
    pub yes_send: *const c_char,
    /// Bytes of the disk that stay free: a file grows no further, and the sink has failed then; 0 for 1 GiB, or a twentieth of the disk if
    /// that is less.
    pub reserve: u64,
    /// Time that is added to the timestamps of packets, ns.
    pub shift_ns: i64,
    /// File with the key of other addresses, 32 bytes that its owner alone may read: packets get other addresses by it, as with
    /// `--anonymize`. NULL leaves addresses as they are.
    pub anonymize: *const c_char,
    /// Bytes of payload that are kept of each packet with other addresses. Payload may have addresses, which stay.
    pub payload: u64,
}

/// A sink that takes packets of batches.
#[derive(Debug)]
pub(crate) struct SendSink(Mutex<Sink>);

impl From<SinkCounts> for weir_sink_counts {
    fn from(counts: SinkCounts) -> Self {
        let SinkCounts {
            given,
            written,
            refused,
            lost,
        } = counts;
        Self {
            given,
            written,
            refused,
            lost,
        }
    }
}

/// While it lasts, this thread gets an error and no SIGPIPE when it writes to a pipe without a reader.
struct Unharmed {
    before: libc::sigset_t,
    /// Whether the signal waited before, and is left waiting.
    waited: bool,
}

impl Unharmed {
    fn new() -> Self {
        // SAFETY: sets of signals are numbers, for which zeros are valid; all pointers lead to variables.
        unsafe {
            let (mut pipe, mut before, mut waiting): (
                libc::sigset_t,
                libc::sigset_t,
                libc::sigset_t,
            ) = std::mem::zeroed();
            libc::sigemptyset(&mut pipe);
            libc::sigaddset(&mut pipe, libc::SIGPIPE);
            libc::sigpending(&mut waiting);
            libc::pthread_sigmask(libc::SIG_BLOCK, &pipe, &mut before);
            Self {
                before,
                waited: libc::sigismember(&waiting, libc::SIGPIPE) == 1,
            }
        }
    }
}

impl Drop for Unharmed {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe {
            if !self.waited {
                let (mut pipe, none): (libc::sigset_t, libc::timespec) = std::mem::zeroed();
                libc::sigemptyset(&mut pipe);
                libc::sigaddset(&mut pipe, libc::SIGPIPE);
                // Takes the signal of a failed write, if there is one.
                libc::sigtimedwait(&pipe, std::ptr::null_mut(), &none);
            }
            libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut());
        }
    }
}

/// Opens a sink: a capture file (.pcap, else pcapng), "-" for standard output, an interface such as
/// "af_packet:eth0" or "af_xdp:eth0:0", "dpdk:DEVICE", or "null", which counts packets and discards
/// them. Opening a named pipe waits for its reader. A file that a source of this process reads is
/// refused. So is an interface that carries the default route of this host or the login of this
/// program, or is a port of a bridge: weir_sink_open_with sends there if it is named.
///
/// # Safety
/// `name` leads to a text; `sink` leads to memory for a handle; `error` is NULL or leads to memory for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_sink_open(
    name: *const c_char,
    sink: *mut weir_sink,
    error: *mut weir_text,
) -> weir_status {
    // SAFETY: forwarded to the caller.
    unsafe { weir_sink_open_with(name, core::ptr::null(), sink, error) }
}

/// Opens a sink as weir_sink_open does, with settings; `options` may be NULL.
///
/// # Safety
/// `name` leads to a text; `options` is NULL or leads to options; `sink` leads to memory for a handle; `error` is NULL or leads to memory
/// for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_sink_open_with(
    name: *const c_char,
    options: *const weir_sink_options,
    sink: *mut weir_sink,
    error: *mut weir_text,
) -> weir_status {
    let work = || {
        check(sink, "sink")?;
        // SAFETY: the caller promises a text, and options.
        let (name, chosen) = unsafe { (call::name(name)?, self::options(options)?) };
        let opened = Sink::open_with(name, &chosen)?;
        let handle = insert(Object::Sink(Box::new(SendSink(Mutex::new(opened)))))?;
        // SAFETY: the caller promises memory for a handle.
        unsafe { store(sink, handle, "sink")? };
        Ok(WEIR_OK)
    };
    // SAFETY: forwarded to the caller.
    unsafe { call_with_error(error, work) }
}

/// Takes the options of a caller.
///
/// # Safety
/// `options` is NULL, or leads to options as documented.
unsafe fn options(options: *const weir_sink_options) -> Result<SinkOptions, Failure> {
    // SAFETY: forwarded to the caller.
    let Some(options) = (unsafe { structure(options, "weir_sink_options")? }) else {
        return Ok(SinkOptions::default());
    };
    if options.flags != 0 {
        return Err(Failure::refused(format!(
            "weir_sink_options.flags has unknown bits: {:#x}",
            options.flags
        )));
    }
    // SAFETY: the caller promises a text.
    let yes_send = unsafe { call::text(options.yes_send, "weir_sink_options.yes_send")? };
    let key = match options.anonymize.is_null() {
        true => None,
        // SAFETY: the caller promises a text.
        false => Some(unsafe { call::name(options.anonymize)? }),
    };
    if key.is_none() && options.payload > 0 {
        return Err(Failure::refused(
            "weir_sink_options.payload is about packets with other addresses: set weir_sink_options.anonymize as well",
        ));
    }
    let reserve = (options.reserve > 0).then_some(options.reserve);
    Ok(SinkOptions {
        yes_send: interfaces(yes_send),
        reserve,
        shift_ns: options.shift_ns,
        anonymize: key.map(|key| std::path::PathBuf::from(key.as_ref() as &std::path::Path)),
        payload: usize::try_from(options.payload).unwrap_or(usize::MAX),
    })
}

fn with_sink<T>(
    sink: weir_sink,
    work: impl FnOnce(&mut Sink) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let object = get(sink, kind::SINK)?;
    match &*object {
        Object::Sink(sink) => work(&mut sink.0.lock().unwrap_or_else(PoisonError::into_inner)),
        _ => Err(Failure::new(WEIR_CLOSED, "the handle is none of a sink")),
    }
}

/// Sends the packets of a batch whose bit in `verdicts` is 1, in their order. If `verdicts` is
/// NULL, sends the packets that passed the filter. `verdicts` has a bit for each packet of the
/// batch, as weir_batch.verdicts. The batch may be released after the call.
///
/// # Safety
/// `verdicts` is NULL or leads to as many words of 64 bits as hold a bit for each packet; `error` is NULL or leads to memory for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_send(
    sink: weir_sink,
    lease: weir_lease,
    verdicts: *const u64,
    error: *mut weir_text,
) -> weir_status {
    let work = || {
        with(lease, |lease| {
            // SAFETY: the caller promises a bit for each packet.
            let mask = (!verdicts.is_null()).then(|| unsafe {
                core::slice::from_raw_parts(verdicts, lease.batch.len().div_ceil(64))
            });
            with_sink(sink, |sink| {
                let _unharmed = sink.is_file().then(Unharmed::new);
                Ok(sink.send(&lease.batch, mask)?)
            })?;
            Ok(WEIR_OK)
        })
    };
    // SAFETY: forwarded to the caller.
    unsafe { call_with_error(error, work) }
}

/// Closes a sink: completes its file, or sends what is left. `counts`, if not NULL, gets the final counts. WEIR_FAILED if the sink
/// failed, now or before; it is closed all the same.
///
/// # Safety
/// `counts` is NULL or leads to memory for counts; `error` is NULL or leads to memory for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_sink_close(
    sink: weir_sink,
    counts: *mut weir_sink_counts,
    error: *mut weir_text,
) -> weir_status {
    let work = || {
        let Object::Sink(removed) = OBJECTS.remove(sink, kind::SINK, |_| true)? else {
            return Err(Failure::new(WEIR_CLOSED, "the handle is none of a sink"));
        };
        let sink = removed
            .0
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        let _unharmed = sink.is_file().then(Unharmed::new);
        let (last, closed) = sink.close();
        if !counts.is_null() {
            // SAFETY: the caller promises memory for counts.
            unsafe { counts.write(last.into()) };
        }
        closed?;
        Ok(WEIR_OK)
    };
    // SAFETY: forwarded to the caller.
    unsafe { call_with_error(error, work) }
}
