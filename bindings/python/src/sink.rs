//! Sinks: files and interfaces that packets of batches are written to.

use crate::batch::{Batch, Placed, check_mask};
use crate::error::{Closed, Failed, Refused, raised};
use crate::process::Owned;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{ThreadId, current};

/// Packets of a sink by what became of them: given = written + refused + lost.
#[pyclass(frozen, get_all, eq, module = "weir")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SinkCounts {
    /// Packets given to the sink.
    given: u64,
    /// Packets written to the file, or handed to the interface.
    written: u64,
    /// Packets that an interface did not take: too long, too short, or without room.
    refused: u64,
    /// Packets of a sink that failed, which are in no file.
    lost: u64,
}

#[pymethods]
impl SinkCounts {
    fn __repr__(&self) -> String {
        let Self {
            given,
            written,
            refused,
            lost,
        } = self;
        format!("SinkCounts(given={given}, written={written}, refused={refused}, lost={lost})")
    }
}

impl From<weir_api::SinkCounts> for SinkCounts {
    fn from(counts: weir_api::SinkCounts) -> Self {
        let weir_api::SinkCounts {
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

/// The sink until it is closed, and its counts then.
#[derive(Debug)]
struct State {
    sink: Option<weir_api::Sink>,
    last: SinkCounts,
}

impl State {
    fn closed() -> PyErr {
        Closed::new_err("the sink was closed")
    }
}

/// A capture file, a pipe or an interface that takes packets of batches. An exception of a signal handler, such as KeyboardInterrupt, ends a
/// wait of the main thread for the reader of a pipe. The sink has failed then, and its counts tell how many packets were written.
#[pyclass(frozen, module = "weir")]
#[derive(Debug)]
pub struct Sink {
    state: Owned<Mutex<State>>,
    /// Thread that uses the sink.
    user: Mutex<Option<ThreadId>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sink {
    /// Works with the sink while other threads of Python go on. **Errors**: in addition to those of
    /// `work` the exception of a signal that interrupted it.
    fn using<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut State) -> PyResult<T> + Send,
    ) -> PyResult<T> {
        let state = self.state.get()?;
        let me = current().id();
        if *locked(&self.user) == Some(me) {
            return Err(PyRuntimeError::new_err(
                "a signal handler used a sink for which its thread waits",
            ));
        }
        let done = py.detach(|| {
            let mut state = locked(state);
            *locked(&self.user) = Some(me);
            let done = work(&mut state);
            *locked(&self.user) = None;
            done
        });
        PyErr::take(py).map_or(done, Err)
    }
}

#[pymethods]
impl Sink {
    /// Opens a sink: a capture file (.pcap, else pcapng), "-" for standard output, an interface such as "af_packet:eth0", or "null". An
    /// interface that carries the default route or this login, or is a port of a bridge, sends only if `yes_send` names it. A file leaves
    /// `reserve` bytes of the disk free: by default 1 GiB, or a twentieth of the disk if that is less. `shift_ns` is added to the times of
    /// packets. `anonymize` is a file with a key of 32 bytes that its owner alone may read: packets get other addresses by it, and keep
    /// `payload` bytes after their headers.
    #[new]
    #[pyo3(signature = (name, *, yes_send=None, reserve=None, shift_ns=0, anonymize=None, payload=0))]
    fn new(
        py: Python<'_>,
        name: &Bound<'_, PyAny>,
        yes_send: Option<Vec<String>>,
        reserve: Option<u64>,
        shift_ns: i64,
        anonymize: Option<PathBuf>,
        payload: usize,
    ) -> PyResult<Self> {
        let yes_send = yes_send.unwrap_or_default();
        if anonymize.is_none() && payload > 0 {
            let words = "payload is about packets with other addresses: give anonymize as well";
            return Err(Refused::new_err(words));
        }
        let name: OsString = py
            .import("os")?
            .call_method1("fsdecode", (name,))?
            .extract()?;
        let opened = py.detach(|| {
            let options = weir_api::SinkOptions {
                yes_send,
                reserve,
                shift_ns,
                anonymize,
                payload,
            };
            weir_api::Sink::open_with(name, &options)
        });
        let sink = Some(PyErr::take(py).map_or(opened.map_err(raised), Err)?);
        let state = State {
            sink,
            last: weir_api::SinkCounts::default().into(),
        };
        Ok(Self {
            state: Owned::new(Mutex::new(state)),
            user: Mutex::default(),
        })
    }

    /// Sends packets of a batch: all, or those for which `mask`, an array of bool, is true.
    #[pyo3(signature = (batch, mask=None))]
    fn send(&self, py: Python<'_>, batch: &Batch, mask: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let mask = mask.map(|mask| chosen(mask, batch)).transpose()?;
        let parts = batch.parts()?;
        self.using(py, |state| {
            let sink = state.sink.as_mut().ok_or_else(State::closed)?;
            let (mut row, mut sent) = (0, Ok(()));
            for Placed { part, .. } in parts.iter() {
                let mut words = vec![0u64; part.batch.len().div_ceil(64)];
                for number in part.numbers() {
                    if mask.as_ref().is_none_or(|mask| mask[row] != 0) {
                        words[number / 64] |= 1 << (number % 64);
                    }
                    row += 1;
                }
                // A sink that has failed counts the packets as lost.
                sent = sent.and(sink.send(&part.batch, Some(&words)));
            }
            sent.map_err(raised)
        })
    }

    /// The counts so far; of a closed sink the final ones.
    #[getter]
    fn counts(&self, py: Python<'_>) -> PyResult<SinkCounts> {
        self.using(py, |state| {
            Ok(state
                .sink
                .as_ref()
                .map_or(state.last, |sink| sink.counts().into()))
        })
    }

    /// Completes the file, or sends what is left. Returns the final counts. A sink that failed raises Failed here too.
    fn close(&self, py: Python<'_>) -> PyResult<SinkCounts> {
        self.using(py, |state| {
            let (counts, closed) = state.sink.take().ok_or_else(State::closed)?.close();
            state.last = counts.into();
            closed.map_err(raised)?;
            Ok(state.last)
        })
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (*exception))]
    fn __exit__(&self, py: Python<'_>, exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        let is_open = self.using(py, |state| Ok(state.sink.is_some()))?;
        let has_failed = !exception.is_empty() && !exception.get_item(0)?.is_none();
        match if is_open {
            self.close(py).map(drop)
        } else {
            Ok(())
        } {
            // The exception of the block is not hidden: often the sink has failed there.
            Err(error) if has_failed && error.is_instance_of::<Failed>(py) => Ok(()),
            closed => closed,
        }
    }
}

/// The values of a mask: an array of bool, one for each packet; 0 for false.
fn chosen(mask: &Bound<'_, PyAny>, batch: &Batch) -> PyResult<Vec<u8>> {
    // A list of bool is fine too.
    let array = mask
        .py()
        .import("numpy")?
        .call_method1("ascontiguousarray", (mask,))?;
    let kind: String = array.getattr("dtype")?.getattr("kind")?.extract()?;
    if kind != "b" || array.getattr("ndim")?.extract::<usize>()? != 1 {
        return Err(Refused::new_err(
            "a mask is an array of bool with one dimension, such as batch[\"dst_port\"] == 53",
        ));
    }
    let values = PyBuffer::<u8>::get(&array.call_method1("view", ("uint8",))?)?;
    check_mask(values.item_count(), batch.rows())?;
    values.to_vec(mask.py())
}
