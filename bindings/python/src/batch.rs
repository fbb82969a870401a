//! Batches: packets that passed the filter, as columns and as frames.

use crate::arrow;
use crate::buffer::{Column, Frame};
use crate::error::{Closed, Refused};
use crate::fields::{Field, Memory, Pool};
use crate::gather::Part;
use crate::process::Owned;
use pyo3::exceptions::{PyBufferError, PyIndexError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyMemoryView, PyTuple};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A part of a batch for Python.
#[derive(Debug)]
pub struct Placed {
    pub part: Part,
    /// Row of the batch that is the first of the part.
    first_row: usize,
    /// Number of the packet of each row in its batch of the library, once a row was asked for.
    numbers: OnceLock<Vec<u32>>,
}

impl Placed {
    /// Number of the packet of a row of the part.
    fn number(&self, row: usize) -> usize {
        if self.part.is_whole() {
            return self.part.first + row;
        }
        self.numbers
            .get_or_init(|| self.part.numbers().map(|number| number as u32).collect())[row]
            as usize
    }
}

/// Parts that a batch holds until it is released, and the number of views of their memory.
#[derive(Debug)]
pub struct Held(Owned<Mutex<State>>);

#[derive(Debug)]
struct State {
    /// None of a released batch.
    parts: Option<Arc<[Placed]>>,
    views: usize,
}

impl Held {
    fn new(parts: Vec<Part>) -> Self {
        let mut row = 0;
        let placed = parts.into_iter().map(|part| {
            let first_row = row;
            row += part.rows;
            Placed {
                part,
                first_row,
                numbers: OnceLock::new(),
            }
        });
        let placed = placed.collect();
        Self(Owned::new(Mutex::new(State {
            parts: Some(placed),
            views: 0,
        })))
    }

    /// Counts a view more, unless the batch was released. Returns whether it was not.
    pub fn begin_view(&self) -> PyResult<bool> {
        let mut state = locked(self.0.get()?);
        let is_held = state.parts.is_some();
        state.views += usize::from(is_held);
        Ok(is_held)
    }

    /// Counts a view less.
    pub fn end_view(&self) {
        if let Ok(state) = self.0.get() {
            locked(state).views -= 1;
        }
    }

    /// The parts, for the time of some work.
    fn parts(&self) -> PyResult<Arc<[Placed]>> {
        locked(self.0.get()?)
            .parts
            .clone()
            .ok_or_else(|| Closed::new_err("the batch was released"))
    }

    fn release(&self) -> PyResult<()> {
        let parts = {
            let mut state = locked(self.0.get()?);
            if state.views > 0 {
                let words = format!(
                    "{} views of frames are alive: delete them, then release the batch",
                    state.views
                );
                return Err(PyBufferError::new_err(words));
            }
            state.parts.take()
        };
        drop(parts);
        Ok(())
    }
}

/// Settings that all batches of a source share.
#[derive(Debug)]
pub struct Common {
    /// Columns that are filled together.
    pub fields: Vec<Field>,
    /// Names of the marks.
    pub marks: Vec<String>,
    pub pool: Arc<Pool>,
}

/// Packets of a source that passed its filter.
#[pyclass(frozen, module = "weir")]
#[derive(Debug)]
pub struct Batch {
    held: Arc<Held>,
    rows: usize,
    common: Arc<Common>,
    filter: u64,
    link_types: Vec<u32>,
    filled: Mutex<HashMap<Field, Arc<Memory>>>,
    /// Arrays that were made.
    arrays: Mutex<HashMap<String, Py<PyAny>>>,
}

impl Batch {
    /// Makes a batch of one part or more.
    pub fn new(parts: Vec<Part>, common: Arc<Common>) -> Self {
        let first = &parts[0].batch;
        Self {
            rows: parts.iter().map(|part| part.rows).sum(),
            filter: first.change(),
            link_types: first
                .layout()
                .interfaces
                .iter()
                .map(|of| of.link.0.into())
                .collect(),
            common,
            filled: Mutex::default(),
            arrays: Mutex::default(),
            held: Arc::new(Held::new(parts)),
        }
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The parts of the batch, which a sink takes packets of.
    pub fn parts(&self) -> PyResult<Arc<[Placed]>> {
        self.held.parts()
    }

    /// The memory of columns, filled if they were not. With a field of the batch's choice all of them are filled, since each frame is read
    /// once for all columns.
    pub fn columns(&self, wanted: &[Field]) -> PyResult<Vec<Arc<Memory>>> {
        let mut filled = locked(&self.filled);
        let is_lacking = |field: &Field| !filled.contains_key(field);
        let mut fields: Vec<Field> = wanted.iter().copied().filter(&is_lacking).collect();
        if fields
            .iter()
            .any(|field| self.common.fields.contains(field))
        {
            let others = self
                .common
                .fields
                .iter()
                .copied()
                .filter(|field| is_lacking(field) && !wanted.contains(field));
            fields.extend(others);
        }
        if !fields.is_empty() {
            let parts = self.held.parts()?;
            filled.extend(fill(&parts, self.rows, &fields, &self.common.pool));
        }
        Ok(wanted
            .iter()
            .map(|field| Arc::clone(&filled[field]))
            .collect())
    }

    /// Bits of a mark, a byte for each packet.
    fn mark(&self, number: usize) -> PyResult<Arc<Memory>> {
        let parts = self.held.parts()?;
        let mut memory = self.common.pool.take(self.rows);
        let mut to = memory.bytes_mut().iter_mut();
        for Placed { part, .. } in parts.iter() {
            let bits = &part.batch.split_verdicts()[number];
            for (packet, to) in part.numbers().zip(&mut to) {
                *to = bits.get(packet, 1) as u8;
            }
        }
        Ok(Arc::new(memory))
    }

    /// Makes a table for the Arrow C data interface.
    pub fn table(&self, fields: &[Field], marks: bool) -> PyResult<arrow::Table> {
        let mut wanted = fields.to_vec();
        // Tells which address is none.
        if fields.iter().any(|field| field.is_address()) && !wanted.contains(&Field::IpVersion) {
            wanted.push(Field::IpVersion);
        }
        if fields.contains(&Field::TcpFlags) && !wanted.contains(&Field::Protocol) {
            wanted.push(Field::Protocol);
        }
        let memory = self.columns(&wanted)?;
        let of = |field| {
            wanted
                .iter()
                .position(|one| *one == field)
                .map(|at| Arc::clone(&memory[at]))
        };
        let protocol = of(Field::Protocol);
        let version = of(Field::IpVersion);
        let mut columns: Vec<arrow::Column> = fields
            .iter()
            .zip(&memory)
            .map(|(field, memory)| {
                arrow::field(*field, memory, version.as_deref(), protocol.as_deref())
            })
            .collect();
        if marks {
            for number in 0..self.common.marks.len() {
                let bits = self.mark(number)?;
                columns.push(arrow::mark(&bits));
            }
        }
        Ok(arrow::Table {
            rows: self.rows,
            columns,
        })
    }

    /// The columns of the first packets as texts.
    fn head(&self, rows: usize) -> PyResult<Vec<Vec<Option<String>>>> {
        let rows = rows.min(self.rows);
        let table = self.table(&self.common.fields, true)?;
        Ok(table
            .columns
            .iter()
            .map(|column| (0..rows).map(|row| column.text(row)).collect())
            .collect())
    }
}

/// Calls a function of `weir._tables`, which knows other libraries.
pub fn tables<'py>(of: &Bound<'py, PyAny>, function: &str) -> PyResult<Bound<'py, PyAny>> {
    of.py()
        .import("weir._tables")?
        .call_method1(function, (of,))
}

/// Fills columns with the packets of all parts.
fn fill(
    parts: &[Placed],
    rows: usize,
    fields: &[Field],
    pool: &Arc<Pool>,
) -> HashMap<Field, Arc<Memory>> {
    let mut columns: Vec<(Field, Memory)> = fields
        .iter()
        .map(|&field| (field, pool.take(rows * field.size())))
        .collect();
    for Placed {
        part, first_row, ..
    } in parts
    {
        let range = |field: Field| first_row * field.size()..(first_row + part.rows) * field.size();
        let mut here: Vec<_> = columns
            .iter_mut()
            .map(|(field, memory)| field.column(&mut memory.bytes_mut()[range(*field)]))
            .collect();
        part.batch.fill(part.first, !part.is_whole(), &mut here);
    }
    columns
        .into_iter()
        .map(|(field, memory)| (field, Arc::new(memory)))
        .collect()
}

#[pymethods]
impl Batch {
    fn __len__(&self) -> usize {
        self.rows
    }

    /// The column as a NumPy array, read-only. Columns that were chosen at the opening are read together.
    fn __getitem__(&self, py: Python<'_>, name: &str) -> PyResult<Py<PyAny>> {
        if let Some(array) = locked(&self.arrays).get(name) {
            return Ok(array.clone_ref(py));
        }
        let column = match self.common.marks.iter().position(|mark| mark == name) {
            Some(mark) => Column::plain(py.detach(|| self.mark(mark))?, c"?", 1),
            None => {
                let field = Field::named(name)?;
                let memory = py.detach(|| self.columns(&[field]))?.remove(0);
                Column::of_field(field, memory)
            }
        };
        let array = py
            .import("numpy")?
            .call_method1("asarray", (column,))?
            .unbind();
        locked(&self.arrays).insert(name.to_owned(), array.clone_ref(py));
        Ok(array)
    }

    /// Several columns as NumPy arrays, for which each frame is read once.
    #[pyo3(name = "columns", signature = (*names))]
    fn named_columns<'py>(
        &self,
        py: Python<'py>,
        names: Vec<String>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let fields: Vec<Field> = names
            .iter()
            .filter(|name| !self.common.marks.contains(name))
            .map(|name| Field::named(name))
            .collect::<PyResult<_>>()?;
        py.detach(|| self.columns(&fields))?;
        let columns = PyDict::new(py);
        for name in names {
            let array = self.__getitem__(py, &name)?;
            columns.set_item(name, array)?;
        }
        Ok(columns)
    }

    /// Names of the columns that were chosen at the opening, marks among them.
    #[getter]
    fn names(&self) -> Vec<String> {
        let fields = self
            .common
            .fields
            .iter()
            .map(|field| field.name().to_owned());
        fields.chain(self.common.marks.iter().cloned()).collect()
    }

    /// The number of the filter that judged the packets: 0, and 1 more with each `set_filter`.
    #[getter]
    fn filter(&self) -> u64 {
        self.filter
    }

    /// The link type of each interface, a number of the LINKTYPE registry of tcpdump.org, such as 1 for Ethernet.
    #[getter]
    fn link_types(&self) -> Vec<u32> {
        self.link_types.clone()
    }

    /// The captured bytes of a packet where they lie, as a read-only memoryview. While it lives, the batch cannot be released.
    fn frame<'py>(&self, py: Python<'py>, row: isize) -> PyResult<Bound<'py, PyMemoryView>> {
        let index = if row < 0 {
            row + self.rows as isize
        } else {
            row
        };
        if index < 0 || index as usize >= self.rows {
            return Err(PyIndexError::new_err(format!(
                "packet {row} of {}",
                self.rows
            )));
        }
        let parts = self.held.parts()?;
        let placed = &parts[parts.partition_point(|placed| placed.first_row <= index as usize) - 1];
        let batch = &placed.part.batch;
        let of = batch.descriptors()[placed.number(index as usize - placed.first_row)];
        let region = batch.region();
        let bytes = std::ptr::slice_from_raw_parts(
            region.cast::<u8>().wrapping_add(of.offset as usize),
            of.captured as usize,
        );
        let frame = Bound::new(py, Frame::new(Arc::clone(&self.held), bytes))?;
        PyMemoryView::from(frame.as_any())
    }

    /// Memory with the frames of the batch, piece by piece, for work on bytes of all packets at once.
    fn regions<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let numpy = py.import("numpy")?;
        let mut regions = Vec::new();
        for Placed {
            part, first_row, ..
        } in self.held.parts()?.iter()
        {
            let descriptors = part.batch.descriptors();
            let mut offsets = self.common.pool.take(part.rows * 8);
            let mut captured = self.common.pool.take(part.rows * 4);
            let of = part.numbers().map(|number| &descriptors[number]);
            let to = offsets
                .bytes_mut()
                .chunks_exact_mut(8)
                .zip(captured.bytes_mut().chunks_exact_mut(4));
            for (of, (offset, length)) in of.zip(to) {
                offset.copy_from_slice(&of.offset.to_ne_bytes());
                length.copy_from_slice(&of.captured.to_ne_bytes());
            }
            let memory = Frame::new(Arc::clone(&self.held), part.batch.region());
            let array = |column: Bound<'py, PyAny>| {
                numpy.call_method1("asarray", (column,)).map(Bound::unbind)
            };
            let region = Region {
                first_row: *first_row,
                memory: array(Bound::new(py, memory)?.into_any())?,
                offsets: array(
                    Bound::new(py, Column::plain(Arc::new(offsets), c"Q", 8))?.into_any(),
                )?,
                captured: array(
                    Bound::new(py, Column::plain(Arc::new(captured), c"I", 4))?.into_any(),
                )?,
            };
            regions.push(Bound::new(py, region)?);
        }
        PyTuple::new(py, regions)
    }

    /// Gives the memory of the frames back to the source. Columns that were made stay.
    fn release(&self) -> PyResult<()> {
        self.held.release()
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    /// Views that an exception keeps alive are not an error of their own.
    #[pyo3(signature = (*exception))]
    fn __exit__(&self, py: Python<'_>, exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        let has_failed = !exception.is_empty() && !exception.get_item(0)?.is_none();
        match self.release() {
            Err(error) if has_failed && error.is_instance_of::<PyBufferError>(py) => Ok(()),
            released => released,
        }
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        // The consumer casts, if it wants other types.
        drop(requested_schema);
        let table = py.detach(|| self.table(&self.common.fields, true))?;
        arrow::array_capsules(py, &self.common, table)
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        arrow::schema_capsule(py, &self.common)
    }

    /// The batch as a pyarrow.RecordBatch.
    fn to_arrow<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        tables(slf.as_any(), "batch_to_arrow")
    }

    /// The batch as a polars.DataFrame.
    fn to_polars<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        tables(slf.as_any(), "to_polars")
    }

    /// The batch as a pandas.DataFrame.
    fn to_pandas<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        tables(slf.as_any(), "to_pandas")
    }

    fn _repr_html_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        tables(slf.as_any(), "batch_to_html")
    }

    /// Columns of the first packets, an element for each, as texts: for people.
    fn _head(&self, py: Python<'_>, rows: usize) -> PyResult<Vec<Vec<Option<String>>>> {
        py.detach(|| self.head(rows))
    }

    fn __repr__(&self) -> String {
        format!(
            "<weir.Batch of {} packets: {}>",
            self.rows,
            self.names().join(", ")
        )
    }
}

/// A piece of memory with frames of a batch.
#[pyclass(frozen, get_all, module = "weir")]
#[derive(Debug)]
pub struct Region {
    /// Row of the batch whose packet is the first one here.
    first_row: usize,
    /// The memory, uint8. Only the bytes of packets may be read: between them the kernel may write.
    memory: Py<PyAny>,
    /// Offset of each packet in the memory, uint64.
    offsets: Py<PyAny>,
    /// Captured length of each packet, uint32.
    captured: Py<PyAny>,
}

/// Refuses a mask that has another length than its batch.
pub fn check_mask(length: usize, rows: usize) -> PyResult<()> {
    if length == rows {
        return Ok(());
    }
    Err(Refused::new_err(format!(
        "the mask has {length} values, and the batch has {rows} packets"
    )))
}
