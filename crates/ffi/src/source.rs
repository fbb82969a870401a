//! Sources: files, interfaces and record directories, whose packets come in batches.

use crate::batch::{Lease, describe, weir_batch, weir_lease, with};
use crate::call::{
    Failure, OBJECTS, Object, WEIR_BUSY, WEIR_CLOSED, WEIR_END, WEIR_FAILED, WEIR_NOTHING, WEIR_OK, call,
    call_with_error, check, forget_read, full, get, insert, insert_or_return, kind, name, note_read, store, text,
    weir_status,
};
use crate::text::{Text, weir_text};
use core::ffi::c_char;
use core::mem::size_of;
use std::hash::{BuildHasher, RandomState};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use weir_engine::batches::{self, Batch, Batches, Next};
use weir_engine::capture::{CaptureRequest, Direction, Settings, open, rings};
use weir_engine::control::ChangeError;
use weir_engine::event::Event;
use weir_engine::firewall::engines::Engine;
use weir_engine::firewall::{Change, Firewall, Policy, RuleSet, RuleSettings, Senseless, SharedPolicy};
use weir_engine::handle::{Handle, Order, Sources};
use weir_engine::ledger::Ledger;
use weir_engine::name::Name;
use weir_engine::records::{self, CheckError, Query};
use weir_engine::run::{Error, Run, Setup};
use weir_firewall::Classifier;
use weir_firewall::rules::RuleList;
use weir_io::input::comes_in_order;
use weir_messages::errors::directory_words;
use weir_messages::events::{Line, Listener, account_lines};
use weir_messages::{captures, sources};
use weir_pipeline::select::Selection;

/// A source that is read. Close it with weir_close.
pub type weir_source = u64;

/// Packets of several files come by their time.
pub const WEIR_MERGE: u32 = 1;
/// All packets are sorted by time before the first one comes.
pub const WEIR_SORT: u32 = 2;
/// The verdicts of the filter are inverted.
pub const WEIR_INVERT: u32 = 4;
/// The filter judges the innermost packet of a tunnel.
pub const WEIR_INNER: u32 = 8;
/// Names of hosts in the filter are looked up.
pub const WEIR_RESOLVE: u32 = 16;
/// The interface receives only what is for this host.
pub const WEIR_NO_PROMISCUOUS: u32 = 32;
/// The kernel does not filter: packets that do not match are in the batches too.
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
    /// Longest time for which a packet of an interface waits for others, ns; 0 for 50 ms.
    pub latency_ns: u64,
    /// Most batches that wait or are held, up to 4096; 0 for 64. While there are so many, a file is not read, and a capture drops
    /// packets once its ring is full, and counts them.
    pub batches: u32,
    /// Number of connections for which there is room if a rule asks for the states of packets; 0 for 65536.
    pub connections: u32,
    /// Of a record directory, the least time of the packets that are wanted, ns since 1970; 0 for no limit.
    pub from_ns: i64,
    /// The greatest time; 0 for no limit.
    pub to_ns: i64,
    /// Rules of a firewall, in the language of `weir firewall`; NULL for none. Packets that the rules deny have the verdict 0, and are
    /// counted as denied. Names of files in the rules are relative to the working directory.
    pub rules: *const c_char,
}

/// Packets by what became of them: received = passed + filtered + denied + dropped. Each number is counted where it happens.
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
    /// Packets lost at the source, for want of room.
    pub dropped_source: u64,
    /// Packets that passed and were not taken before the source was closed or stopped.
    pub dropped_output: u64,
    /// Bytes on the wire of the packets that passed.
    pub bytes: u64,
    /// Packets that the file itself says were lost when it was captured; none of `received`.
    pub lost_before: u64,
    /// Batches that wait to be taken.
    pub waiting: u64,
    /// Batches that are held.
    pub held: u64,
    /// Times that reading stopped because `batches` were out.
    pub starved: u64,
    /// 1 if the numbers are final.
    pub is_final: u64,
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

/// A run whose batches are taken.
#[derive(Debug)]
pub(crate) struct Source {
    batches: Batches,
    heard: Arc<Mutex<Heard>>,
    state: Mutex<State>,
    /// The rules, if there are any.
    firewall: Option<Engine>,
    /// Batches for which there was no room for a handle.
    put_back: Mutex<Vec<Batch>>,
    /// Packets handed out: all, those that passed, and those that did not. The account of a run that is refused at its end.
    handed: [AtomicU64; 3],
    /// No sink may empty the files of the source.
    _files: Read,
}

/// A note of the files that are read, while it lasts.
#[derive(Debug)]
struct Read(u64);

impl Drop for Read {
    fn drop(&mut self) {
        forget_read(self.0);
    }
}

/// Messages of the run so far.
#[derive(Debug)]
struct Heard {
    listener: Listener,
    faults: Vec<String>,
    remarks: Vec<String>,
    /// Whether a source was begun.
    begun: bool,
}

impl Heard {
    fn add(&mut self, lines: Vec<Line>) {
        for line in lines {
            match line {
                Line::Fault(line) => self.faults.push(line),
                Line::Remark(line) | Line::Plain(line) => self.remarks.push(line),
            }
        }
    }
}

#[derive(Debug)]
struct State {
    handle: Handle<()>,
    /// Counts when the source was last asked, or at its end.
    counts: Ledger,
    ended: bool,
    /// The failure of the run, until a call has returned it.
    failure: Option<Failure>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The library restricts nothing, so there is nothing to advise.
fn no_advice(_: &Path, _: weir_io::sys::Access) -> &'static str {
    ""
}

impl Source {
    fn open(mut names: Vec<Name>, options: &Options<'_>) -> Result<Self, Failure> {
        let settings = &options.settings;
        if settings.wait {
            captures::name_awaited(&mut names);
        }
        sources::check(&names, false).map_err(Failure::refused)?;
        sources::check_schemes(&names).map_err(Failure::refused)?;
        sources::check_sort(&names, options.order == Order::Sorted).map_err(Failure::refused)?;
        let is_live = names.iter().any(|name| captures::interface(name).is_some());
        let files = Read(note_read(&names));
        let firewall = match options.rules {
            Some(rules) => {
                let rules = rule_set(rules, |classifier| RuleSet::new(classifier, options.rule_settings))?;
                Some(Engine::Sharded(SharedPolicy::new(Policy::new(None, Arc::new(rules)), LOG)))
            }
            None => None,
        };
        let setup = Setup {
            selection: options.selection.clone(),
            firewall: firewall.as_ref().map(|engine| Firewall::new(engine, None).by_packet_time()),
            limit: options.limit,
            workers: options.workers,
            pull: Some(options.batches),
            ..Setup::default()
        };
        let stop = Arc::clone(&setup.stop);
        let listener = Listener::new(false, no_advice);
        let heard = Arc::new(Mutex::new(Heard { listener, faults: Vec::new(), remarks: Vec::new(), begun: false }));
        let mut run = Run::new(setup);
        let batches = run.batches().map_err(|error| refusal(&error))?;
        let batches = batches.ok_or_else(|| Failure::refused("no batches"))?;
        // Only a file is read at once; of a pipe, nobody knows when its first packet comes.
        let is_quick = !is_live && names.iter().all(|name| !name.is_dash() && !comes_in_order(name));
        let query = options.query(&names, &heard)?;
        let from = if is_live {
            rings::check(&names, settings).map_err(|error| Failure::refused(captures::too_large(&error)))?;
            let filters = !options.selection.invert && !options.selection.inner;
            let request = CaptureRequest {
                settings: *settings,
                expression: if filters { &options.selection.expression } else { "" },
                replaces_filter: filters,
                resolve: options.selection.resolve,
                ..CaptureRequest::default()
            };
            let mut inputs = Vec::new();
            for name in &names {
                let mut hear = |notice: weir_engine::capture::Notice<'_>| {
                    locked(&heard).remarks.extend(captures::notice_line(notice).map(|(line, _)| line));
                };
                let opened = open(name, &request, &stop, &mut hear);
                inputs.extend(opened.map_err(|error| Failure::refused(captures::refusal(name, error)))?.inputs);
            }
            Sources::Captures(inputs)
        } else {
            Sources::Files { names, order: options.order, zstd_window: 128 << 20, follow: None, query }
        };
        let hears = Arc::clone(&heard);
        let hear = move |event: Event<'_>| {
            let mut heard = locked(&hears);
            heard.begun |= matches!(event, Event::Begun { .. });
            let lines = heard.listener.event(&event);
            heard.add(lines);
            None::<()>
        };
        let handle = Handle::start(run, from, 1, hear)
            .map_err(|error| Failure::new(WEIR_FAILED, format!("a thread cannot be started: {error}")))?;
        let state = State { handle, counts: Ledger::default(), ended: false, failure: None };
        let source = Self {
            batches,
            heard,
            state: Mutex::new(state),
            firewall,
            put_back: Mutex::default(),
            handed: Default::default(),
            _files: files,
        };
        source.begin(is_live, is_quick)?;
        Ok(source)
    }

    /// Waits until the source has begun, so that a wrong name or expression is an error of its opening.
    fn begin(&self, is_live: bool, is_quick: bool) -> Result<(), Failure> {
        const LONGEST: Duration = Duration::from_secs(10);
        const LOOK: Duration = Duration::from_millis(1);
        let mut waited = Duration::ZERO;
        let over = loop {
            // A capture has begun once its expression is compiled.
            if self.batches.wait(LOOK) || !is_quick && (!is_live || locked(&self.heard).begun) || waited > LONGEST {
                break self.batches.wait(Duration::ZERO);
            }
            waited += LOOK;
        };
        // It is over, and no batch came.
        if over && self.batches.outstanding().0 == 0 {
            let mut state = locked(&self.state);
            self.end(&mut state);
            if let Some(failure) = state.failure.take() {
                return Err(failure);
            }
        }
        Ok(())
    }

    fn next(&self, most: Duration) -> Result<Option<Batch>, Failure> {
        if let Some(batch) = locked(&self.put_back).pop() {
            return Ok(Some(batch));
        }
        match self.batches.next(most) {
            Next::Batch(batch) => {
                let (passed, filtered) = batch.judged();
                for (sum, count) in self.handed.iter().zip([batch.len() as u64, passed, filtered]) {
                    sum.fetch_add(count, Ordering::Relaxed);
                }
                Ok(Some(*batch))
            }
            Next::Nothing => Err(Failure::new(WEIR_NOTHING, "")),
            Next::End => {
                let mut state = locked(&self.state);
                self.end(&mut state);
                state.failure.take().map_or(Ok(None), Err)
            }
        }
    }

    /// Takes up the end of the run, once.
    fn end(&self, state: &mut State) {
        /// Longest wait for a thread that has nothing more to read.
        const LONGEST: Duration = Duration::from_secs(10);
        if std::mem::replace(&mut state.ended, true) {
            return;
        }
        match state.handle.join(LONGEST) {
            Ok(Ok((ended, _))) => {
                let mut heard = locked(&self.heard);
                let lines = heard.listener.end_of_capture();
                heard.add(lines);
                heard.add(account_lines(&ended));
                if !heard.faults.is_empty() {
                    state.failure = Some(Failure::new(WEIR_FAILED, heard.faults.join("\n")));
                }
                state.counts = ended.ledger;
            }
            Ok(Err(error)) => {
                // An expression may turn out to make sense for no link type of a file when batches of it are out.
                let [received, passed, filtered] = self.handed.each_ref().map(|count| count.load(Ordering::Relaxed));
                state.counts = Ledger { received, passed, filtered, ..Ledger::default() };
                state.failure = Some(refusal(&error));
            }
            Err(error) => state.failure = Some(Failure::new(WEIR_FAILED, error.to_string())),
        }
    }

    /// Counts so far. While the run does not answer, those of the last answer.
    fn counts(&self) -> weir_counts {
        /// The run answers between two batches, and while it waits for room.
        const ANSWER: Duration = Duration::from_millis(100);
        let mut state = locked(&self.state);
        if !state.ended {
            if let Some(snapshot) = state.handle.control().snapshot(ANSWER) {
                state.counts = snapshot.ledger;
            } else if self.batches.wait(Duration::ZERO) && self.batches.outstanding().0 == 0 {
                self.end(&mut state);
            }
        }
        let (waiting, held) = self.batches.outstanding();
        let Ledger { received, passed, filtered, denied, ref dropped, bytes, lost_before, .. } = state.counts;
        weir_counts {
            received,
            passed,
            filtered,
            denied,
            dropped_source: dropped.source,
            dropped_output: dropped.output,
            bytes,
            lost_before,
            waiting: waiting as u64,
            held: held as u64,
            starved: self.batches.full(),
            is_final: u64::from(state.ended),
        }
    }

    /// Ends the run and returns the final counts.
    fn close(&self) -> weir_counts {
        let mut state = locked(&self.state);
        state.handle.control().stop();
        // Batches that wait are dropped, and counted by the run.
        self.batches.leave();
        self.end(&mut state);
        // Threads that have nothing more to do leave in a moment.
        for _ in 0..100 {
            if state.handle.threads().is_empty() {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(state);
        self.counts()
    }
}

/// Message on why a run could not begin, as the command words it.
fn refusal(error: &Error) -> Failure {
    let message = match error {
        Error::TooManySources { .. } | Error::TooManyStreams { .. } => {
            sources::too_many(error, "WEIR_SORT takes any number of files").to_string()
        }
        Error::Refused { name: Some(name), why } => format!("{name}: {why}"),
        Error::CannotBePulled => {
            "batches come from files, or from one queue of one interface: name one, as in af_xdp:eth0:0".to_owned()
        }
        Error::LimitOfQueues => "a limit and an interface of several queues: name one, as in af_xdp:eth0:0".to_owned(),
        error => error.to_string(),
    };
    match error {
        Error::Panic { .. } | Error::Io(_) => Failure::new(WEIR_FAILED, message),
        _ => Failure::refused(message),
    }
}

/// Changes of rules for which there is room until all workers have taken them up: there is one worker.
const LOG: usize = 16;

/// Compiles a rule list.
fn rule_set(rules: &str, make: impl FnOnce(Classifier) -> Result<RuleSet, Senseless>) -> Result<RuleSet, Failure> {
    let list = RuleList::parse(rules, &mut |name| std::fs::read_to_string(name));
    let list = list.map_err(|error| Failure::refused(format!("the rules: {error}")))?;
    let classifier = Classifier::new(list).map_err(|error| Failure::refused(format!("the rules: {error}")))?;
    make(classifier).map_err(|senseless| Failure::refused(format!("the rules: {}", senseless.why)))
}

/// Settings in the engine's terms.
struct Options<'a> {
    selection: Selection,
    order: Order,
    limit: Option<u64>,
    workers: usize,
    batches: usize,
    settings: Settings,
    times: [Option<i64>; 2],
    rules: Option<&'a str>,
    rule_settings: RuleSettings,
}

impl Options<'_> {
    /// # Safety
    /// `options` is NULL, or leads to options as documented.
    unsafe fn of(options: *const weir_options) -> Result<Self, Failure> {
        if options.is_null() {
            return Ok(Self {
                selection: Selection::default(),
                order: Order::Given,
                limit: None,
                workers: weir_pipeline::processors(),
                batches: 64,
                settings: Settings::default(),
                times: [None; 2],
                rules: None,
                rule_settings: RuleSettings { inner: false, seed: 0, connections: 0 },
            });
        }
        // SAFETY: the caller promises at least the size.
        let size = unsafe { (*options).size };
        if size as usize != size_of::<weir_options>() {
            return Err(Failure::size("weir_options", size, size_of::<weir_options>()));
        }
        // SAFETY: it has the size of this version.
        let options = unsafe { *options };
        if options.flags & !KNOWN_FLAGS != 0 {
            return Err(Failure::refused(format!(
                "weir_options.flags has unknown bits: {:#x}",
                options.flags & !KNOWN_FLAGS
            )));
        }
        let has = |flag: u32| options.flags & flag != 0;
        // SAFETY: the caller promises a text.
        let expression = unsafe { text(options.filter, "weir_options.filter")? }.unwrap_or_default();
        let mut splits = Vec::new();
        if options.split_count > 0 {
            check(options.splits, "weir_options.splits")?;
        }
        for i in 0..options.split_count as usize {
            // SAFETY: the caller promises that many texts.
            let split = unsafe { text(*options.splits.add(i), "a split")? };
            splits.push(split.ok_or_else(|| Failure::refused("a split is NULL"))?.to_owned());
        }
        let selection = Selection {
            expression: expression.to_owned(),
            invert: has(WEIR_INVERT),
            inner: has(WEIR_INNER),
            resolve: has(WEIR_RESOLVE),
            splits,
            ..Selection::default()
        };
        const MOST_WORKERS: u32 = 1024;
        for (name, value, most) in
            [("batches", options.batches, batches::MOST as u32), ("workers", options.workers, MOST_WORKERS)]
        {
            if value > most {
                return Err(Failure::refused(format!("weir_options.{name} is {value}, and {most} is the most")));
            }
        }
        for (one, other, names) in
            [(WEIR_IN, WEIR_OUT, "WEIR_IN and WEIR_OUT"), (WEIR_MERGE, WEIR_SORT, "WEIR_MERGE and WEIR_SORT")]
        {
            if has(one) && has(other) {
                return Err(Failure::refused(format!("{names} exclude each other: leave one out")));
            }
        }
        let direction = match (has(WEIR_IN), has(WEIR_OUT)) {
            (true, false) => Direction::In,
            (false, true) => Direction::Out,
            _ => Direction::Both,
        };
        let defaults = Settings::default();
        let settings = Settings {
            promiscuous: !has(WEIR_NO_PROMISCUOUS),
            kernel_filter: !has(WEIR_NO_KERNEL_FILTER),
            direction,
            wait: has(WEIR_WAIT),
            busy_poll: has(WEIR_BUSY_POLL),
            ring: if options.ring == 0 { defaults.ring } else { options.ring },
            retire: (options.latency_ns > 0).then(|| Duration::from_nanos(options.latency_ns)),
            ..defaults
        };
        Ok(Self {
            selection,
            order: match (has(WEIR_MERGE), has(WEIR_SORT)) {
                (_, true) => Order::Sorted,
                (true, false) => Order::Merged,
                _ => Order::Given,
            },
            limit: (options.limit > 0).then_some(options.limit),
            workers: if options.workers == 0 { weir_pipeline::processors() } else { options.workers as usize },
            batches: if options.batches == 0 { 64 } else { options.batches as usize },
            settings,
            times: [options.from_ns, options.to_ns].map(|time| (time != 0).then_some(time)),
            // SAFETY: the caller promises a text.
            rules: unsafe { text(options.rules, "weir_options.rules")? },
            rule_settings: RuleSettings {
                inner: has(WEIR_INNER),
                seed: RandomState::new().hash_one(0),
                connections: if options.connections == 0 { 65_536 } else { options.connections as usize },
            },
        })
    }
}

impl Options<'_> {
    /// The question to a record directory, if one is named. What its recorder has only in memory is asked for too.
    fn query(&self, names: &[Name], heard: &Mutex<Heard>) -> Result<Option<Arc<Query>>, Failure> {
        let is_record = |name: &Name| !name.is_dash() && Path::new(name).is_dir();
        let [from_ns, to_ns] = self.times;
        if let Some(file) = names.iter().find(|name| !is_record(name)).filter(|_| from_ns.or(to_ns).is_some()) {
            return Err(Failure::refused(format!("{file}: from_ns and to_ns choose packets of a record directory")));
        }
        let [directory] = names else { return Ok(None) };
        if !is_record(directory) {
            return Ok(None);
        }
        if let (Some(from), Some(to)) = (from_ns, to_ns)
            && from > to
        {
            return Err(Failure::refused(format!(
                "from_ns {from} is later than to_ns {to}: no packet can lie between them"
            )));
        }
        records::check(Path::new(directory)).map_err(|error| match error {
            CheckError::Io(error) => Failure::new(WEIR_FAILED, format!("{directory}: {}", directory_words(&error))),
            error => Failure::new(WEIR_FAILED, error.to_string()),
        })?;
        let Selection { expression, invert, inner, resolve, .. } = &self.selection;
        let chooses = records::choosing(expression, *invert, *inner, *resolve).to_owned();
        let wanted = records::Selection { from_ns, to_ns, expression: chooses, behind_tags: false };
        let mut query = Query::new(wanted);
        if let Err(error) = query.ask_recorder(Path::new(directory), false) {
            let line = format!("{directory}: the recorder: {error}; packets that are not on disk yet are left out");
            locked(heard).remarks.push(line);
        }
        Ok(Some(Arc::new(query)))
    }
}

/// Does work on a source.
fn with_source<T>(source: weir_source, work: impl FnOnce(&Source) -> Result<T, Failure>) -> Result<T, Failure> {
    let object = get(source, kind::SOURCE)?;
    match &*object {
        Object::Source(source) => work(source),
        _ => Err(Failure::new(WEIR_CLOSED, "the handle is none of a source")),
    }
}

/// Opens sources, named as for the command: capture files, "-" for standard input, record directories; or one interface, such as
/// "eth0", "af_packet:eth0", "af_xdp:eth0:0" or "dpdk:DEVICE".
///
/// Waits until the first packets of a file are there, or the capture has begun; not for packets of a pipe, but for the writer of a
/// named one. Threads of the library read ahead. An expression that makes sense for no link type of a pcapng file is refused by
/// weir_next, behind its batches.
/// `options` may be NULL. On failure, and only then, `error` gets a text with the line that the command would print, unless it is NULL;
/// free it with weir_text_free. This holds for each function with an `error`. Without room for one more object (65536 are the most,
/// texts among them) `error` gets 0. Advice in a line names flags of the command: those of weir_options have similar names.
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
        check(names, "names")?;
        if count == 0 {
            return Err(Failure::refused("there is no name of a source"));
        }
        // SAFETY: the caller promises that many texts, and options.
        let (names, options) = unsafe {
            let names = (0..count).map(|i| name(*names.add(i))).collect::<Result<Vec<_>, _>>()?;
            (names, Options::of(options)?)
        };
        let opened = Source::open(names, &options)?;
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
/// Returns WEIR_NOTHING if none came, WEIR_END at the end, and once before that WEIR_FAILED or WEIR_REFUSED if the source could not
/// be read to its end: `error` then gets a line for each fault. Several threads may take batches of a source; each goes to one.
/// **Cost**: a lock, an allocation and some atomic operations, if a batch waits; a wait is a system call. Descriptors were made by the
/// thread that reads.
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
        with_source(source, |of| match of.next(Duration::from_nanos(timeout_ns)) {
            Ok(None) => Ok(WEIR_END),
            Ok(Some(next)) => {
                let lease = Box::new(Lease { batch: next, source });
                let mut described = describe(&lease.batch);
                described.lease = match insert_or_return(Object::Lease(lease)) {
                    Ok(handle) => handle,
                    Err(object) => {
                        // The next call takes it.
                        if let Object::Lease(lease) = object {
                            locked(&of.put_back).push(lease.batch);
                        }
                        return Err(full());
                    }
                };
                // SAFETY: the caller promises memory for a batch.
                unsafe { store(batch, described, "batch")? };
                Ok(WEIR_OK)
            }
            Err(Failure { status: WEIR_NOTHING, .. }) => Ok(WEIR_NOTHING),
            Err(failure) => Err(failure),
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
            let ready = source.batches.poll_fd().map_err(|error| Failure::new(WEIR_FAILED, error.to_string()))?;
            // SAFETY: the caller promises memory for a number.
            unsafe { store(fd, ready.as_raw_fd(), "fd")? };
            Ok(WEIR_OK)
        })
    })
}

/// Stops a source: it takes no more packets. Those that it received can still be taken; then weir_next returns WEIR_END.
#[unsafe(no_mangle)]
pub extern "C" fn weir_stop(source: weir_source) -> weir_status {
    call(|| {
        with_source(source, |source| {
            locked(&source.state).handle.control().stop();
            Ok(WEIR_OK)
        })
    })
}

/// Replaces the filter between two batches, without loss. weir_batch.filter tells which filter judged a batch; `filter` gets the
/// number of the new one.
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
            let control = Arc::clone(locked(&source.state).handle.control());
            let number = match control.set_filter(expression, Duration::from_nanos(timeout_ns)) {
                Ok(number) => number,
                Err(error @ ChangeError::UnderWay { .. }) => return Err(Failure::new(WEIR_BUSY, error.to_string())),
                Err(error) => return Err(Failure::refused(error)),
            };
            if !filter.is_null() {
                // SAFETY: the caller promises memory for a number.
                unsafe { filter.write(number) };
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
            let none = || Failure::refused("the source was opened without rules: give it some, such as `default pass`");
            let engine = source.firewall.as_ref().ok_or_else(none)?;
            let before = engine.rules();
            let rules = rule_set(rules, |classifier| before.successor(classifier, &engine.expired()))?;
            let full = |_| Failure::new(WEIR_BUSY, "earlier changes of the rules are still under way");
            engine.apply_all(&[Change::Rules(Arc::new(rules))]).map_err(full)?;
            Ok(WEIR_OK)
        })
    };
    // SAFETY: forwarded to the caller.
    unsafe { call_with_error(error, work) }
}

/// Gives the counts of a source. While it is read, those of the last batch that was read; at its end the final ones.
///
/// # Safety
/// `counts` leads to memory for counts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_counts_of(source: weir_source, counts: *mut weir_counts) -> weir_status {
    call(|| {
        with_source(source, |source| {
            // SAFETY: the caller promises memory for counts.
            unsafe { store(counts, source.counts(), "counts")? };
            Ok(WEIR_OK)
        })
    })
}

/// Gives what the user should know although nothing failed, a line each, since the last call. WEIR_NOTHING if there is nothing.
///
/// # Safety
/// `text` leads to memory for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_remarks(source: weir_source, text: *mut weir_text) -> weir_status {
    call(|| {
        check(text, "text")?;
        let lines = with_source(source, |source| Ok(std::mem::take(&mut locked(&source.heard).remarks)))?;
        if lines.is_empty() {
            return Ok(WEIR_NOTHING);
        }
        let handle = insert(Object::Text(Text::new(lines.join("\n"))))?;
        // SAFETY: the caller promises memory for a handle.
        unsafe { store(text, handle, "text")? };
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
            let described = weir_interface { link_type: about.link.0.into(), snaplen: about.snaplen };
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
        let is_free = |object: &Object| matches!(object, Object::Source(source) if source.batches.outstanding().1 == 0);
        let Object::Source(removed) = OBJECTS.remove(source, kind::SOURCE, is_free)? else {
            return Err(Failure::new(WEIR_CLOSED, "the handle is none of a source"));
        };
        let last = removed.close();
        if !counts.is_null() {
            // SAFETY: the caller promises memory for counts.
            unsafe { counts.write(last) };
        }
        Ok(WEIR_OK)
    })
}
