//! Sinks: files and interfaces that packets of batches are written to.

use crate::batch::{weir_lease, with};
use crate::call::{
    self, Failure, OBJECTS, Object, WEIR_CLOSED, WEIR_FAILED, WEIR_OK, all_read, call_with_error, check, get, insert,
    kind, store, weir_status,
};
use crate::text::weir_text;
use core::ffi::c_char;
use std::sync::{Arc, Mutex, PoisonError};
use weir_engine::batches::Batch;
use weir_engine::claims::Claims;
use weir_engine::file::{FileSettings, FileSink};
use weir_engine::name::Name;
use weir_engine::port::{PortSink, is_port};
use weir_engine::sink::{End, Sink, SinkReport};
use weir_messages::events::sink_fault_line;
use weir_messages::{ports, sources};
use weir_packet::savefile::Layout;

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
    /// The rest of a sink that failed: packets given to it before or behind its failure that are in no file. 0 for all other sinks, whose
    /// other numbers are counted each on its own.
    pub lost: u64,
}

/// A sink that takes packets of batches.
pub(crate) struct SendSink(Mutex<State>);

struct State {
    sink: Box<dyn Sink>,
    /// Source of the last batch, and its layout.
    source: u64,
    layout: Option<Layout>,
    given: u64,
    /// The line about the failure that ended the sink.
    failed: Option<String>,
    /// Whether a write may meet a pipe without a reader.
    is_file: bool,
}

impl core::fmt::Debug for SendSink {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("SendSink")
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
            let (mut pipe, mut before, mut waiting): (libc::sigset_t, libc::sigset_t, libc::sigset_t) =
                std::mem::zeroed();
            libc::sigemptyset(&mut pipe);
            libc::sigaddset(&mut pipe, libc::SIGPIPE);
            libc::sigpending(&mut waiting);
            libc::pthread_sigmask(libc::SIG_BLOCK, &pipe, &mut before);
            Self { before, waited: libc::sigismember(&waiting, libc::SIGPIPE) == 1 }
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

/// Message on a sink that takes no more.
fn ended(end: &End) -> Failure {
    let message = match end {
        End::Failed(fault) => sink_fault_line(fault, |_, _| ""),
        End::ClosedPipe => "the reader of the pipe is gone".to_owned(),
        End::Complete => "the output is complete".to_owned(),
    };
    Failure::new(WEIR_FAILED, message)
}

impl State {
    fn send(&mut self, source: u64, batch: &Batch, mask: &[u64]) -> Result<(), Failure> {
        self.given += mask.iter().map(|word| u64::from(word.count_ones())).sum::<u64>();
        if let Some(line) = &self.failed {
            return Err(Failure::new(WEIR_FAILED, line.clone()));
        }
        if std::mem::replace(&mut self.source, source) != source {
            self.sink.new_source();
        }
        let _unharmed = self.is_file.then(Unharmed::new);
        let sent = self.send_marked(batch, mask);
        self.layout = Some(batch.layout().clone());
        sent.map_err(|end| {
            let failure = ended(&end);
            self.failed = Some(failure.message.clone());
            failure
        })
    }

    fn send_marked(&mut self, batch: &Batch, mask: &[u64]) -> Result<(), End> {
        self.sink.open()?;
        for (i, &word) in mask.iter().enumerate() {
            let mut bits = word;
            while bits != 0 {
                let number = i * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                let Some(record) = batch.packet(number) else { break };
                self.sink.packet(batch.layout(), &record)?;
            }
        }
        self.sink.flush()
    }

    fn counts(&self) -> weir_sink_counts {
        let SinkReport { written, sent, refused, .. } = self.sink.report();
        let refused = refused.iter().map(|refused| refused.packets).sum();
        let written = sent.unwrap_or(written);
        let lost = if self.failed.is_some() { self.given.saturating_sub(written + refused) } else { 0 };
        weir_sink_counts { given: self.given, written, refused, lost }
    }
}

fn open_sink(name: &Name) -> Result<Box<dyn Sink>, Failure> {
    ports::check_scheme(name).map_err(Failure::refused)?;
    if is_port(name) {
        let port = ports::open(name).map_err(Failure::refused)?;
        return Ok(Box::new(PortSink { port, snaplen: 0, flush_each: false, finisher: None }));
    }
    if name.text().is_empty() {
        return Err(Failure::refused("the name of an output is empty"));
    }
    let format = sources::format_for(name).map_err(Failure::refused)?;
    let settings = FileSettings { format, ..FileSettings::default() };
    Ok(Box::new(FileSink::new(name, settings, &Arc::new(Claims::of(&all_read())))))
}

/// Opens a sink: a capture file (.pcap, else pcapng), "-" for standard output, an interface such as "af_packet:eth0" or
/// "af_xdp:eth0:0", "dpdk:DEVICE", or "null", which counts packets and discards them. A named pipe is waited for until it has a reader.
/// A file that a source of this process reads is refused.
///
/// # Safety
/// `name` leads to a text; `sink` leads to memory for a handle; `error` is NULL or leads to memory for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_sink_open(
    name: *const c_char,
    sink: *mut weir_sink,
    error: *mut weir_text,
) -> weir_status {
    let work = || {
        check(sink, "sink")?;
        // SAFETY: the caller promises a text.
        let name = unsafe { call::name(name)? };
        let mut opened = open_sink(&name)?;
        opened.open().map_err(|end| ended(&end))?;
        let state = State { sink: opened, source: 0, layout: None, given: 0, failed: None, is_file: !is_port(&name) };
        let handle = insert(Object::Sink(Box::new(SendSink(Mutex::new(state)))))?;
        // SAFETY: the caller promises memory for a handle.
        unsafe { store(sink, handle, "sink")? };
        Ok(WEIR_OK)
    };
    // SAFETY: forwarded to the caller.
    unsafe { call_with_error(error, work) }
}

fn with_sink<T>(sink: weir_sink, work: impl FnOnce(&mut State) -> Result<T, Failure>) -> Result<T, Failure> {
    let object = get(sink, kind::SINK)?;
    match &*object {
        Object::Sink(sink) => work(&mut sink.0.lock().unwrap_or_else(PoisonError::into_inner)),
        _ => Err(Failure::new(WEIR_CLOSED, "the handle is none of a sink")),
    }
}

/// Sends packets of a batch, in their order: those whose bit in `verdicts` is 1, or if that is NULL, those that passed the filter.
/// `verdicts` has a bit for each packet of the batch, as weir_batch.verdicts. The batch may be released behind the call.
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
            let own = lease.batch.verdicts().words();
            let mask = match verdicts.is_null() {
                true => own,
                // SAFETY: the caller promises a bit for each packet.
                false => unsafe { core::slice::from_raw_parts(verdicts, lease.batch.len().div_ceil(64)) },
            };
            with_sink(sink, |state| state.send(lease.source, &lease.batch, mask))?;
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
        let mut state = removed.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        let layout = state.layout.take();
        let _unharmed = state.is_file.then(Unharmed::new);
        let has_failed = state.failed.is_some();
        let flushed = if has_failed { Ok(()) } else { state.sink.flush() };
        let finished = flushed.and_then(|()| state.sink.finish(layout.as_ref(), has_failed));
        if let (Err(end), None) = (&finished, &state.failed) {
            state.failed = Some(ended(end).message);
        }
        if !counts.is_null() {
            // SAFETY: the caller promises memory for counts.
            unsafe { counts.write(state.counts()) };
        }
        match state.failed {
            Some(line) => Err(Failure::new(WEIR_FAILED, line)),
            None => Ok(WEIR_OK),
        }
    };
    // SAFETY: forwarded to the caller.
    unsafe { call_with_error(error, work) }
}
