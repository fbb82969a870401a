//! Sinks: files and interfaces that packets of batches are written to.

use crate::batch::{Batch, Placed, check_mask};
use crate::error::{Closed, Refused, raised};
use crate::process::Owned;
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::ffi::OsString;
use std::sync::{Mutex, PoisonError};

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
        let Self { given, written, refused, lost } = self;
        format!("SinkCounts(given={given}, written={written}, refused={refused}, lost={lost})")
    }
}

impl From<weir_api::SinkCounts> for SinkCounts {
    fn from(counts: weir_api::SinkCounts) -> Self {
        let weir_api::SinkCounts { given, written, refused, lost } = counts;
        Self { given, written, refused, lost }
    }
}

/// A capture file, a pipe or an interface that takes packets of batches.
#[pyclass(frozen, module = "weir")]
#[derive(Debug)]
pub struct Sink {
    sink: Owned<Mutex<Option<weir_api::Sink>>>,
}

#[pymethods]
impl Sink {
    /// Opens a sink: a capture file (.pcap, else pcapng), "-" for standard output, an interface such as "af_packet:eth0", or "null".
    #[new]
    fn new(py: Python<'_>, name: &Bound<'_, PyAny>) -> PyResult<Self> {
        let name: OsString = py.import("os")?.call_method1("fsdecode", (name,))?.extract()?;
        let opened = py.detach(|| weir_api::Sink::open(name)).map_err(raised)?;
        Ok(Self { sink: Owned::new(Mutex::new(Some(opened))) })
    }

    /// Sends packets of a batch: all, or those for which `mask`, an array of bool, is true.
    #[pyo3(signature = (batch, mask=None))]
    fn send(&self, py: Python<'_>, batch: &Batch, mask: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let mask = mask.map(|mask| chosen(mask, batch)).transpose()?;
        let parts = batch.parts()?;
        let sink = self.sink.get()?;
        py.detach(|| {
            let mut sink = sink.lock().unwrap_or_else(PoisonError::into_inner);
            let sink = sink.as_mut().ok_or_else(|| Closed::new_err("the sink was closed"))?;
            let mut row = 0;
            for Placed { part, .. } in parts.iter() {
                let mut words = vec![0u64; part.batch.len().div_ceil(64)];
                for number in part.numbers() {
                    if mask.as_ref().is_none_or(|mask| mask[row] != 0) {
                        words[number / 64] |= 1 << (number % 64);
                    }
                    row += 1;
                }
                sink.send(&part.batch, Some(&words)).map_err(raised)?;
            }
            Ok(())
        })
    }

    /// The counts so far.
    #[getter]
    fn counts(&self) -> PyResult<SinkCounts> {
        let sink = self.sink.get()?.lock().unwrap_or_else(PoisonError::into_inner);
        sink.as_ref().map(|sink| sink.counts().into()).ok_or_else(|| Closed::new_err("the sink was closed"))
    }

    /// Completes the file, or sends what is left. Returns the final counts. A sink that failed raises Failed here too.
    fn close(&self, py: Python<'_>) -> PyResult<SinkCounts> {
        let sink = self.sink.get()?.lock().unwrap_or_else(PoisonError::into_inner).take();
        let sink = sink.ok_or_else(|| Closed::new_err("the sink was closed"))?;
        let (counts, closed) = py.detach(|| sink.close());
        closed.map_err(raised)?;
        Ok(counts.into())
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        let is_open = self.sink.get()?.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        if is_open { self.close(py).map(drop) } else { Ok(()) }
    }
}

/// The values of a mask: an array of bool, one for each packet; 0 for false.
fn chosen(mask: &Bound<'_, PyAny>, batch: &Batch) -> PyResult<Vec<u8>> {
    // A list of bool is fine too.
    let array = mask.py().import("numpy")?.call_method1("ascontiguousarray", (mask,))?;
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
