//! Sources: files, interfaces and record directories.

use crate::arrow;
use crate::batch::{Batch, Common, tables};
use crate::error::{Closed, Failed, Refused, raised};
use crate::fields::Field;
use crate::gather::{Gather, Gathered, LEAST_BATCHES, Limits, Room};
use crate::process::{Owned, interruption};
use pyo3::exceptions::{PyBufferError, PyStopIteration};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};
use std::ffi::OsString;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use weir_api::{CaptureSettings, Direction, Options, Order, Within};

/// Takes a number of seconds.
pub fn waited(timeout: f64) -> PyResult<Duration> {
    if timeout == f64::INFINITY {
        return Ok(Duration::MAX);
    }
    let wrong = |_| {
        Refused::new_err(format!(
            "timeout {timeout}: it is a number of seconds, 0 or more"
        ))
    };
    Duration::try_from_secs_f64(timeout).map_err(wrong)
}

/// Interval at which a call that waits looks for signals.
pub const LOOK: Duration = Duration::from_millis(100);

/// Packets by what became of them: received = passed + filtered + denied + dropped. Each number is counted where it happens.
#[pyclass(frozen, get_all, eq, module = "weir")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Packets that arrived at the source, whether or not there was room for them.
    received: u64,
    /// Packets that passed the filter.
    passed: u64,
    /// Packets that the filter rejected, here or in the kernel.
    filtered: u64,
    /// Packets that the rules of a firewall rejected.
    denied: u64,
    /// Packets lost at the source, for lack of room.
    dropped_source: u64,
    /// Packets that passed and were not taken before the source was closed or stopped.
    dropped_output: u64,
    /// Bytes on the wire of the packets that passed.
    bytes: u64,
    /// Packets that the file itself says were lost when it was captured; none of `received`.
    lost_before: u64,
    /// Whether a source that was read to its end has no counter of lost packets, as pcap files have none: then 0 of `lost_before` does not
    /// say that nothing was lost.
    loss_not_recorded: bool,
    /// Times that reading stopped because too many batches were held.
    starved: u64,
    /// Whether the numbers are final.
    is_final: bool,
}

impl From<weir_api::Counts> for Counts {
    fn from(counts: weir_api::Counts) -> Self {
        Self {
            received: counts.received,
            passed: counts.passed,
            filtered: counts.filtered,
            denied: counts.denied,
            dropped_source: counts.dropped_source,
            dropped_output: counts.dropped_output,
            bytes: counts.bytes,
            lost_before: counts.lost_before,
            loss_not_recorded: counts.loss_not_recorded,
            starved: counts.starved,
            is_final: counts.is_final,
        }
    }
}

/// Settings of sources, by the names that they have in `weir.open`.
#[derive(Debug, FromPyObject)]
#[pyo3(from_item_all)]
pub struct Settings {
    filter: String,
    marks: Vec<(String, String)>,
    columns: Option<Vec<String>>,
    batch_size: usize,
    latency_ns: u64,
    duration_ns: Option<u64>,
    limit: Option<u64>,
    since_ns: Option<i64>,
    until_ns: Option<i64>,
    order: String,
    invert: bool,
    inner: bool,
    resolve: bool,
    sets: Vec<String>,
    rules: Option<String>,
    connections: usize,
    dedup: Option<u32>,
    dedup_within_ns: Option<u64>,
    yes_take: Vec<String>,
    direction: String,
    promiscuous: bool,
    kernel_filter: bool,
    ring: Option<u64>,
    wait: bool,
    busy_poll: bool,
    workers: usize,
    batches: Option<usize>,
}

impl Settings {
    /// Time after which a source is stopped.
    pub fn duration(&self) -> Option<Duration> {
        self.duration_ns.map(Duration::from_nanos)
    }

    /// The settings in terms of the library. **Errors**: words that are none of a choice.
    pub fn options(self) -> PyResult<Options> {
        let defaults = CaptureSettings::default();
        let capture = CaptureSettings {
            promiscuous: self.promiscuous,
            kernel_filter: self.kernel_filter,
            wait: self.wait,
            busy_poll: self.busy_poll,
            direction: match &self.direction[..] {
                "both" => Direction::Both,
                "in" => Direction::In,
                "out" => Direction::Out,
                other => {
                    return Err(Refused::new_err(format!(
                        "direction '{other}': it is both, in or out"
                    )));
                }
            },
            ring: self.ring.unwrap_or(defaults.ring),
            // A packet waits in the ring and then in a batch. A stop is noticed once a block of the ring retires.
            retire: Some(Duration::from_nanos(self.latency_ns / 2).min(LONGEST_RETIRE)),
            ..defaults
        };
        Ok(Options {
            filter: self.filter,
            splits: self
                .marks
                .into_iter()
                .map(|(_, expression)| expression)
                .collect(),
            invert: self.invert,
            inner: self.inner,
            resolve: self.resolve,
            sets: self.sets,
            order: match &self.order[..] {
                "given" => Order::OneByOne,
                "merge" => Order::Merged,
                "sort" => Order::Sorted,
                other => {
                    return Err(Refused::new_err(format!(
                        "order '{other}': it is given, merge or sort"
                    )));
                }
            },
            workers: self.workers,
            limit: self.limit,
            capture,
            times: [self.since_ns, self.until_ns],
            rules: self.rules,
            connections: self.connections,
            dedup: match (self.dedup, self.dedup_within_ns) {
                (Some(_), Some(_)) => {
                    return Err(Refused::new_err(
                        "dedup and dedup_within exclude each other: give one of them",
                    ));
                }
                (packets, ns) => packets.map(Within::Packets).or(ns.map(Within::Time)),
            },
            yes_take: self.yes_take,
            stop: Some(Arc::default()),
            ..Options::default()
        })
    }
}

/// Longest time after which a block of a ring is handed over although it is not full.
const LONGEST_RETIRE: Duration = Duration::from_millis(50);

/// Does the work of an opening. One that waits for an interface does it in a thread, so that a signal or the end of a duration ends the
/// wait.
pub fn opened<T: Send + 'static>(
    py: Python<'_>,
    waits: bool,
    duration: Option<Duration>,
    stop: Option<&Arc<AtomicBool>>,
    work: impl FnOnce() -> Result<T, weir_api::Error> + Send + 'static,
) -> PyResult<T> {
    let Some(stop) = stop.filter(|_| waits) else {
        return py.detach(work).map_err(raised);
    };
    let (sender, receiver) = channel();
    let begun = Instant::now();
    std::thread::spawn(move || sender.send(work()));
    let receiver = Mutex::new(receiver);
    loop {
        let look = || {
            receiver
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .recv_timeout(LOOK)
        };
        match py.detach(look) {
            Ok(opened) => return opened.map_err(raised),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Failed::new_err(
                    "the opening panicked: this is a mistake in it",
                ));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        if let Err(interrupt) = py.check_signals() {
            stop.store(true, Ordering::Relaxed);
            return Err(interrupt);
        }
        if duration.is_some_and(|duration| begun.elapsed() >= duration) {
            stop.store(true, Ordering::Relaxed);
        }
    }
}

/// The exception of a program that waits for packets, and holds all memory for them.
fn starved(feed: &Feed) -> PyErr {
    PyBufferError::new_err(format!(
        "nothing can come, since this program holds all {} pieces of the source, or the memory of its ring: release batches that it is \
         done with, or open the source with larger batches or ring",
        feed.limits.batches
    ))
}

/// A truth value, as Python writes it.
fn python_bool(value: bool) -> &'static str {
    if value { "True" } else { "False" }
}

/// Text for HTML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

impl Counts {
    /// Names and values of the numbers.
    fn values(&self) -> [(&'static str, u64); 9] {
        [
            ("received", self.received),
            ("passed", self.passed),
            ("filtered", self.filtered),
            ("denied", self.denied),
            ("dropped_source", self.dropped_source),
            ("dropped_output", self.dropped_output),
            ("bytes", self.bytes),
            ("lost_before", self.lost_before),
            ("starved", self.starved),
        ]
    }
}

#[pymethods]
impl Counts {
    /// Packets that were lost: at the source, and because they were not taken.
    #[getter]
    fn dropped(&self) -> u64 {
        self.dropped_source + self.dropped_output
    }

    fn __repr__(&self) -> String {
        let values: Vec<String> = self
            .values()
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        format!(
            "Counts({}, loss_not_recorded={}, is_final={})",
            values.join(", "),
            python_bool(self.loss_not_recorded),
            python_bool(self.is_final),
        )
    }

    fn _repr_html_(&self) -> String {
        let rows: String = self
            .values()
            .iter()
            .map(|(name, value)| format!("<tr><th>{name}</th><td>{value}</td></tr>"))
            .collect();
        format!("<table>{rows}</table>")
    }
}

/// The source and the parts that wait to become a batch, which iteration and Arrow streams share.
#[derive(Debug)]
struct Feed {
    source: weir_api::Source,
    gather: Mutex<Gather>,
    limits: Limits,
    common: Arc<Common>,
}

impl Feed {
    fn next(&self, most: Duration, partial: bool) -> Result<Gathered, weir_api::Error> {
        self.gather
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .next(&self.source, &self.limits, most, partial)
    }

    /// Refuses a source that was read to its end: another table of it would be empty.
    fn check_unread(&self) -> PyResult<()> {
        if self
            .gather
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .has_ended()
        {
            return Err(Closed::new_err(
                "the source was read to its end: open it again for another table",
            ));
        }
        Ok(())
    }
}

impl arrow::Tables for Arc<Feed> {
    fn next(&mut self) -> Result<Option<arrow::Table>, String> {
        loop {
            match Feed::next(self, LOOK, false) {
                Ok(Gathered::Batch(parts)) => {
                    let batch = Batch::new(parts, Arc::clone(&self.common));
                    return batch
                        .table(&self.common.fields, true)
                        .map(Some)
                        .map_err(|error| error.to_string());
                }
                // Another thread may release batches.
                Ok(Gathered::Nothing | Gathered::Starved) => {
                    if let Some(line) = interruption() {
                        return Err(line);
                    }
                }
                Ok(Gathered::End) => return Ok(None),
                Err(error) => return Err(error.to_string()),
            }
        }
    }
}

/// Captures, files or a record directory that are read in batches.
#[pyclass(frozen, module = "weir")]
#[derive(Debug)]
pub struct Source {
    feed: Owned<Mutex<Option<Arc<Feed>>>>,
    names: Vec<String>,
    /// Counts at the closing.
    last: Mutex<Option<Counts>>,
}

impl Source {
    fn feed(&self) -> PyResult<Arc<Feed>> {
        let feed = self
            .feed
            .get()?
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        feed.clone()
            .ok_or_else(|| Closed::new_err("the source was closed"))
    }
}

#[pymethods]
impl Source {
    /// `weir.open` has the documentation of the settings.
    #[new]
    fn new(py: Python<'_>, names: Vec<OsString>, settings: Settings) -> PyResult<Self> {
        let (batch_size, latency_ns) = (settings.batch_size, settings.latency_ns);
        if batch_size == 0 {
            return Err(Refused::new_err(
                "batch_size 0 would never hold a packet: 65536 is the default",
            ));
        }
        let fields = match &settings.columns {
            Some(names) if names.is_empty() => {
                return Err(Refused::new_err(
                    "columns is empty: name one, or leave it out",
                ));
            }
            Some(names) => Field::all_named(names)?,
            None => Field::DEFAULT.to_vec(),
        };
        let marks: Vec<String> = settings
            .marks
            .iter()
            .map(|(name, _)| name.clone())
            .collect();
        if let Some(mark) = marks.iter().find(|mark| Field::named(mark).is_ok()) {
            return Err(Refused::new_err(format!(
                "mark '{mark}' has the name of a column: choose another one"
            )));
        }
        // A capture hands out many small batches; a buffer of a file is 1 MiB.
        let is_live = weir_api::is_live(&names);
        let batches = settings
            .batches
            .unwrap_or(if is_live { weir_api::MOST_BATCHES } else { 96 });
        if batches < LEAST_BATCHES {
            return Err(Refused::new_err(format!(
                "batches {batches}: {LEAST_BATCHES} are the least"
            )));
        }
        let duration_ns = settings.duration_ns;
        let options = Options {
            batches,
            ..settings.options()?
        };
        let shown = names
            .iter()
            .map(|name| name.to_string_lossy().into_owned())
            .collect();
        let until = duration_ns.map(Duration::from_nanos);
        let (opening, chosen) = (names.clone(), options.clone());
        let source = opened(
            py,
            options.capture.wait,
            until,
            options.stop.as_ref(),
            move || weir_api::Source::open(&opening, &chosen),
        )?;
        let deadline = duration_ns.map(|time| Instant::now() + Duration::from_nanos(time));
        // A packet of AF_PACKET has a header of the kernel and a gap; other backends have slots of one size.
        let slot = if names.iter().any(weir_api::has_slots) {
            2048
        } else {
            160
        };
        let block = names
            .iter()
            .map(|name| weir_api::block_of(name, &options.capture))
            .max()
            .unwrap_or(0);
        let limits = Limits {
            rows: batch_size,
            batches,
            latency: Duration::from_nanos(latency_ns)
                .saturating_sub(options.capture.retire.unwrap_or_default()),
            ring: is_live.then_some(Room {
                bytes: options.capture.ring as usize,
                slot,
                block,
            }),
        };
        let common = Arc::new(Common {
            fields,
            marks,
            pool: Arc::default(),
        });
        let feed = Arc::new(Feed {
            source,
            gather: Mutex::new(Gather::new(deadline)),
            limits,
            common,
        });
        Ok(Self {
            feed: Owned::new(Mutex::new(Some(feed))),
            names: shown,
            last: Mutex::new(None),
        })
    }

    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Batch> {
        let feed = self.feed()?;
        loop {
            let next = py.detach(|| feed.next(LOOK, false)).map_err(raised)?;
            match next {
                Gathered::Batch(parts) => return Ok(Batch::new(parts, Arc::clone(&feed.common))),
                Gathered::End => return Err(PyStopIteration::new_err(())),
                Gathered::Starved => return Err(starved(&feed)),
                Gathered::Nothing => py.check_signals()?,
            }
        }
    }

    /// Waits at most `timeout` seconds for the next batch, which need not be full then. Returns
    /// None if no packet arrived, and raises StopIteration at the end.
    #[pyo3(signature = (timeout))]
    fn next(&self, py: Python<'_>, timeout: f64) -> PyResult<Option<Batch>> {
        let timeout = waited(timeout)?;
        let feed = self.feed()?;
        let begun = Instant::now();
        loop {
            let left = timeout.saturating_sub(begun.elapsed());
            // After the time, the batch has what came until then: a program that polls finds
            // nothing left over.
            let next = py
                .detach(|| feed.next(left.min(LOOK), left <= LOOK))
                .map_err(raised)?;
            match next {
                Gathered::Batch(parts) => {
                    return Ok(Some(Batch::new(parts, Arc::clone(&feed.common))));
                }
                Gathered::End => return Err(PyStopIteration::new_err(())),
                Gathered::Starved => return Err(starved(&feed)),
                Gathered::Nothing => py.check_signals()?,
            }
            if begun.elapsed() >= timeout {
                return Ok(None);
            }
        }
    }

    /// The counts: while the source is read, those between two batches; at its end the final ones.
    #[getter]
    fn counts(&self, py: Python<'_>) -> PyResult<Counts> {
        if let Some(last) = *self.last.lock().unwrap_or_else(PoisonError::into_inner) {
            return Ok(last);
        }
        let feed = self.feed()?;
        Ok(py.detach(|| feed.source.counts()).into())
    }

    /// Names of the source.
    #[getter]
    fn names(&self) -> Vec<String> {
        self.names.clone()
    }

    /// Stops the source: it takes no more packets, and those that it received can still be taken.
    fn stop(&self) -> PyResult<()> {
        self.feed()?.source.stop();
        Ok(())
    }

    /// Replaces the filter between two batches, without loss. Returns its number, which `batch.filter` tells.
    fn set_filter(&self, py: Python<'_>, filter: &str) -> PyResult<u64> {
        let feed = self.feed()?;
        // Batches from before it may still be taken, so there is no end to wait for.
        let change = py
            .detach(|| feed.source.set_filter(filter, Duration::ZERO))
            .map_err(raised)?;
        Ok(change.number)
    }

    /// Replaces the rules of a source that was opened with rules, between two batches, without loss.
    fn set_rules(&self, py: Python<'_>, rules: &str) -> PyResult<()> {
        let feed = self.feed()?;
        py.detach(|| feed.source.set_rules(rules)).map_err(raised)
    }

    /// Remarks for the user although nothing failed, a line each, since the last call.
    fn remarks(&self) -> PyResult<Vec<String>> {
        Ok(self.feed()?.source.remarks())
    }

    /// A descriptor for `select` and `asyncio`: readable while packets wait, and at the end. Call `next(0)` then, and do not read from it.
    fn fileno(&self) -> PyResult<i32> {
        let feed = self.feed()?;
        let fd = feed
            .source
            .poll_fd()
            .map_err(|error| Failed::new_err(error.to_string()))?;
        Ok(fd.as_raw_fd())
    }

    /// Ends the source, and returns the final counts. Batches that are held stay valid.
    fn close(&self, py: Python<'_>) -> PyResult<Counts> {
        let feed = self
            .feed
            .get()?
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(feed) = feed {
            let last = py.detach(|| feed.source.close()).into();
            *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(last);
        }
        self.counts(py)
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py).map(drop)
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // The consumer casts, if it wants other types.
        drop(requested_schema);
        let feed = self.feed()?;
        feed.check_unread()?;
        arrow::stream_capsule(py, Arc::clone(&feed.common), Box::new(feed))
    }

    /// A stream of no tables, whose schema is that of the source.
    fn _empty_stream<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        arrow::stream_capsule(
            py,
            Arc::clone(&self.feed()?.common),
            Box::new(arrow::NoTables),
        )
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        arrow::schema_capsule(py, &self.feed()?.common)
    }

    /// All packets that are left as a pyarrow.Table.
    fn to_arrow<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.get().feed()?.check_unread()?;
        tables(slf.as_any(), "source_to_arrow")
    }

    /// All packets that are left as a polars.DataFrame.
    fn to_polars<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.get().feed()?.check_unread()?;
        tables(slf.as_any(), "source_to_polars")
    }

    /// All packets that are left as a pandas.DataFrame.
    fn to_pandas<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.get().feed()?.check_unread()?;
        tables(slf.as_any(), "source_to_pandas")
    }

    fn _repr_html_(&self, py: Python<'_>) -> PyResult<String> {
        let names: Vec<String> = self.names.iter().map(|name| escaped(name)).collect();
        Ok(format!(
            "<p><b>{}</b></p>{}",
            names.join(", "),
            self.counts(py)?._repr_html_()
        ))
    }

    fn __repr__(&self) -> String {
        let names: Vec<String> = self
            .names
            .iter()
            .map(|name| name.escape_debug().to_string())
            .collect();
        format!("<weir.Source {}>", names.join(", "))
    }
}
