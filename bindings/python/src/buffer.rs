//! Memory for Python by the buffer protocol: columns, and frames where they lie. All of it is read-only.
//!
//! Source: Python's documentation of `Py_buffer`; the protocol is part of the stable ABI since 3.11.

use crate::batch::Held;
use crate::error::Closed;
use crate::fields::{Field, Memory};
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::{CStr, c_int};
use std::ptr::NonNull;
use std::sync::Arc;

/// Shape of a view: format of an element, its size in bytes, and the number of elements in each dimension with the bytes between them.
/// The two arrays lie as long as the object that is viewed.
struct Shape<'a> {
    format: &'static CStr,
    element: usize,
    counts: &'a [ffi::Py_ssize_t],
    strides: &'a [ffi::Py_ssize_t],
}

/// Fills a view of `bytes` bytes from `start` on, which stay as long as `owner` lives.
///
/// # Safety
/// `view` leads to a `Py_buffer` to be filled. The bytes, and the arrays of `shape`, stay in place while `owner` lives.
unsafe fn fill(
    owner: Bound<'_, PyAny>,
    view: *mut ffi::Py_buffer,
    flags: c_int,
    (start, bytes): (*const u8, usize),
    shape: &Shape<'_>,
) -> PyResult<()> {
    if flags & ffi::PyBUF_WRITABLE == ffi::PyBUF_WRITABLE {
        return Err(PyBufferError::new_err(
            "packets of weir are read-only: copy what is to be changed",
        ));
    }
    let is = |flag: c_int| flags & flag == flag;
    // SAFETY: the caller promises a buffer. All pointers lead to constants, or to memory that lives as long as the owner.
    unsafe {
        (*view).buf = start.cast_mut().cast();
        (*view).len = bytes as ffi::Py_ssize_t;
        (*view).readonly = 1;
        (*view).itemsize = shape.element as ffi::Py_ssize_t;
        (*view).format = if is(ffi::PyBUF_FORMAT) {
            shape.format.as_ptr().cast_mut()
        } else {
            std::ptr::null_mut()
        };
        (*view).ndim = shape.counts.len() as c_int;
        (*view).shape = if is(ffi::PyBUF_ND) {
            shape.counts.as_ptr().cast_mut()
        } else {
            std::ptr::null_mut()
        };
        (*view).strides = if is(ffi::PyBUF_STRIDES) {
            shape.strides.as_ptr().cast_mut()
        } else {
            std::ptr::null_mut()
        };
        (*view).suboffsets = std::ptr::null_mut();
        (*view).internal = std::ptr::null_mut();
        (*view).obj = owner.into_ptr();
    }
    Ok(())
}

/// One field of the packets of a batch. NumPy takes its memory without a copy.
#[pyclass(frozen, module = "weir")]
#[derive(Debug)]
pub struct Column {
    memory: Arc<Memory>,
    format: &'static CStr,
    element: usize,
    counts: Vec<ffi::Py_ssize_t>,
    strides: Vec<ffi::Py_ssize_t>,
}

impl Column {
    pub fn of_field(field: Field, memory: Arc<Memory>) -> Self {
        let rows = (memory.bytes().len() / field.size()) as ffi::Py_ssize_t;
        match field {
            Field::Src | Field::Dst => Self {
                memory,
                format: c"B",
                element: 1,
                counts: vec![rows, 16],
                strides: vec![16, 1],
            },
            _ => {
                let format = match field.size() {
                    8 => c"q",
                    _ if field.is_offset() => c"i",
                    4 => c"I",
                    2 => c"H",
                    _ => c"B",
                };
                Self::plain(memory, format, field.size())
            }
        }
    }

    /// A column of one dimension.
    pub fn plain(memory: Arc<Memory>, format: &'static CStr, element: usize) -> Self {
        let rows = (memory.bytes().len() / element) as ffi::Py_ssize_t;
        Self {
            memory,
            format,
            element,
            counts: vec![rows],
            strides: vec![element as ffi::Py_ssize_t],
        }
    }
}

#[pymethods]
impl Column {
    /// # Safety
    /// Python calls it, with a buffer to be filled.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let column = slf.get();
        let bytes = column.memory.bytes();
        let shape = Shape {
            format: column.format,
            element: column.element,
            counts: &column.counts,
            strides: &column.strides,
        };
        // SAFETY: memory and arrays belong to the column, and change no more.
        unsafe {
            fill(
                slf.clone().into_any(),
                view,
                flags,
                (bytes.as_ptr(), bytes.len()),
                &shape,
            )
        }
    }
}

/// Bytes of a batch where they lie: one frame, or the memory of many. While a view of them lives, the batch cannot be released.
#[pyclass(frozen, module = "weir")]
#[derive(Debug)]
pub struct Frame {
    held: Arc<Held>,
    start: *mut u8,
    counts: [ffi::Py_ssize_t; 1],
}

// SAFETY: the pointer leads to memory that all threads may read while the batch is held, which `held` answers for.
unsafe impl Send for Frame {}
// SAFETY: as above.
unsafe impl Sync for Frame {}

impl Frame {
    /// Bytes of a region that `held` keeps in place until it is released.
    pub fn new(held: Arc<Held>, bytes: *const [u8]) -> Self {
        // Of no bytes there may be no address, and Python wants one.
        let start = if bytes.is_empty() {
            NonNull::dangling().as_ptr()
        } else {
            bytes.cast::<u8>().cast_mut()
        };
        Self {
            held,
            start,
            counts: [bytes.len() as ffi::Py_ssize_t],
        }
    }
}

#[pymethods]
impl Frame {
    fn __len__(&self) -> usize {
        self.counts[0] as usize
    }

    /// # Safety
    /// Python calls it, with a buffer to be filled.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let frame = slf.get();
        if !frame.held.begin_view()? {
            return Err(Closed::new_err("the batch was released"));
        }
        let shape = Shape {
            format: c"B",
            element: 1,
            counts: &frame.counts,
            strides: &[1],
        };
        // SAFETY: the batch is not released while there is a view; the strides are a constant.
        let filled = unsafe {
            fill(
                slf.clone().into_any(),
                view,
                flags,
                (frame.start, frame.counts[0] as usize),
                &shape,
            )
        };
        filled.inspect_err(|_| frame.held.end_view())
    }

    /// # Safety
    /// Python calls it, once for each view.
    unsafe fn __releasebuffer__(&self, _view: *mut ffi::Py_buffer) {
        self.held.end_view();
    }
}
