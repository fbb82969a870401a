//! Tables by the Arrow C data interface: structures of C that another library takes over, without a copy of the numbers.
//!
//! Source: "The Arrow C data interface", "The Arrow C stream interface" and "The Arrow PyCapsule Interface" of the Arrow specification.
//! A structure belongs to its consumer, which calls `release`; all that it points to belongs to its `private_data`.

use crate::batch::Common;
use crate::fields::{Field, Memory};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fmt::Write as _;
use std::net::Ipv6Addr;
use std::ptr::{null, null_mut};
use std::sync::Arc;

const NULLABLE: i64 = 2;

#[repr(C)]
struct ArrowSchema {
    format: *const c_char,
    name: *const c_char,
    metadata: *const c_char,
    flags: i64,
    n_children: i64,
    children: *mut *mut Self,
    dictionary: *mut Self,
    release: Option<unsafe extern "C" fn(*mut Self)>,
    private_data: *mut c_void,
}

#[repr(C)]
struct ArrowArray {
    length: i64,
    null_count: i64,
    offset: i64,
    n_buffers: i64,
    n_children: i64,
    buffers: *mut *const c_void,
    children: *mut *mut Self,
    dictionary: *mut Self,
    release: Option<unsafe extern "C" fn(*mut Self)>,
    private_data: *mut c_void,
}

#[repr(C)]
struct ArrowArrayStream {
    get_schema: Option<unsafe extern "C" fn(*mut Self, *mut ArrowSchema) -> c_int>,
    get_next: Option<unsafe extern "C" fn(*mut Self, *mut ArrowArray) -> c_int>,
    get_last_error: Option<unsafe extern "C" fn(*mut Self) -> *const c_char>,
    release: Option<unsafe extern "C" fn(*mut Self)>,
    private_data: *mut c_void,
}

/// Memory of an Arrow buffer.
#[derive(Debug)]
enum Buffer {
    Column(Arc<Memory>),
    /// Lengths in 64 bits: polars adds a column up in the column's own type, and 32 bits end at 4 GiB.
    Lengths(Vec<i64>),
    Bytes(Vec<u8>),
    Offsets(Vec<i32>),
}

impl Buffer {
    fn start(&self) -> *const c_void {
        match self {
            Self::Column(memory) => memory.bytes().as_ptr().cast(),
            Self::Lengths(lengths) => lengths.as_ptr().cast(),
            Self::Bytes(bytes) => bytes.as_ptr().cast(),
            Self::Offsets(offsets) => offsets.as_ptr().cast(),
        }
    }
}

/// A column in the form of Arrow.
#[derive(Debug)]
pub struct Column {
    format: &'static CStr,
    rows: usize,
    /// Bit i is 1 if value i is there; none if all are.
    validity: Option<Vec<u8>>,
    nulls: usize,
    buffers: Vec<Buffer>,
}

impl Column {
    /// The value of a row for people; none for a null.
    pub fn text(&self, row: usize) -> Option<String> {
        let bit = |bits: &[u8]| bits[row / 8] >> (row % 8) & 1 == 1;
        if self.validity.as_ref().is_some_and(|bits| !bit(bits)) {
            return None;
        }
        Some(match &self.buffers[..] {
            [Buffer::Column(memory)] => match self.format.to_bytes() {
                b"tsn:UTC" => time_text(memory.as_slice::<i64>()[row]),
                b"I" => memory.as_slice::<u32>()[row].to_string(),
                b"i" => memory.as_slice::<i32>()[row].to_string(),
                b"S" => memory.as_slice::<u16>()[row].to_string(),
                _ => memory.bytes()[row].to_string(),
            },
            [Buffer::Lengths(lengths)] => lengths[row].to_string(),
            [Buffer::Bytes(bits)] => bit(bits).to_string(),
            [Buffer::Offsets(offsets), Buffer::Bytes(bytes)] => {
                String::from_utf8_lossy(&bytes[offsets[row] as usize..offsets[row + 1] as usize])
                    .into_owned()
            }
            _ => String::new(),
        })
    }
}

/// A time as RFC 3339 writes it, in UTC.
fn time_text(ns: i64) -> String {
    let mut text = String::new();
    weir_api::Stamp(ns).write(
        &mut text,
        weir_api::Shape::Rfc3339,
        weir_api::Digits::Nano,
        0,
    );
    text.trim_end().to_owned()
}

/// A table: columns of one length.
#[derive(Debug)]
pub struct Table {
    pub rows: usize,
    pub columns: Vec<Column>,
}

/// Type of a mark.
const MARK: &CStr = c"b";

/// Type of a column.
fn format(field: Field) -> &'static CStr {
    match field {
        Field::Time => c"tsn:UTC",
        Field::Src | Field::Dst => c"u",
        Field::WireLen | Field::Captured => c"l",
        _ if field.is_offset() => c"i",
        _ => match field.size() {
            4 => c"I",
            2 => c"S",
            _ => c"C",
        },
    }
}

/// Packs values into bits, the first one lowest. Returns the number of zeros too.
fn bits(values: impl ExactSizeIterator<Item = bool>) -> (Vec<u8>, usize) {
    let mut packed = vec![0; values.len().div_ceil(8)];
    let mut zeros = 0;
    for (i, value) in values.enumerate() {
        packed[i / 8] |= u8::from(value) << (i % 8);
        zeros += usize::from(!value);
    }
    (packed, zeros)
}

/// Makes a column of a field. Values that a packet has not are null: `version` tells which have addresses, `protocol` which have flags.
pub fn field(
    field: Field,
    memory: &Arc<Memory>,
    version: Option<&Memory>,
    protocol: Option<&Memory>,
) -> Column {
    const TCP: u8 = 6;
    let versions = || version.map_or(&[][..], Memory::bytes).iter();
    let (validity, nulls) = match field {
        Field::WireLen | Field::Captured | Field::Interface => (Vec::new(), 0),
        Field::TcpFlags => bits(
            protocol
                .map_or(&[][..], Memory::bytes)
                .iter()
                .map(|protocol| *protocol == TCP),
        ),
        Field::Time => bits(
            memory
                .as_slice::<i64>()
                .iter()
                .map(|time| *time != i64::MIN),
        ),
        Field::Src4 | Field::Dst4 => bits(versions().map(|version| *version == 4)),
        Field::Src | Field::Dst => bits(versions().map(|version| *version > 0)),
        Field::IpVersion => bits(memory.bytes().iter().map(|version| *version > 0)),
        Field::Protocol => bits(memory.bytes().iter().map(|protocol| *protocol < 255)),
        Field::SrcPort | Field::DstPort => {
            bits(memory.as_slice::<u16>().iter().map(|port| *port > 0))
        }
        Field::Vlan => bits(memory.as_slice::<u16>().iter().map(|vlan| *vlan < u16::MAX)),
        Field::NetworkOffset | Field::TransportOffset | Field::PayloadOffset => {
            bits(memory.as_slice::<i32>().iter().map(|offset| *offset >= 0))
        }
    };
    let rows = memory.bytes().len() / field.size();
    let buffers = match field {
        Field::Src | Field::Dst => texts(memory.as_slice(), version.map_or(&[][..], Memory::bytes)),
        Field::WireLen | Field::Captured => {
            vec![Buffer::Lengths(
                memory
                    .as_slice::<u32>()
                    .iter()
                    .map(|&length| length.into())
                    .collect(),
            )]
        }
        _ => vec![Buffer::Column(Arc::clone(memory))],
    };
    Column {
        format: self::format(field),
        rows,
        validity: (nulls > 0).then_some(validity),
        nulls,
        buffers,
    }
}

/// Makes a column of a mark, of which each byte of `memory` is one value.
pub fn mark(memory: &Memory) -> Column {
    let rows = memory.bytes().len();
    let (packed, _) = bits(memory.bytes().iter().map(|bit| *bit == 1));
    Column {
        format: MARK,
        rows,
        validity: None,
        nulls: 0,
        buffers: vec![Buffer::Bytes(packed)],
    }
}

/// Addresses as texts: offsets of their ends, and bytes. A frame without IP has an empty one.
fn texts(addresses: &[[u8; 16]], versions: &[u8]) -> Vec<Buffer> {
    let mut offsets = Vec::with_capacity(addresses.len() + 1);
    // An address of IPv4 has 15 letters at most.
    let mut bytes = Vec::with_capacity(addresses.len() * 15);
    let mut text = String::new();
    offsets.push(0);
    for (address, version) in addresses.iter().zip(versions) {
        match version {
            4 => {
                for (i, &part) in address[12..].iter().enumerate() {
                    if i > 0 {
                        bytes.push(b'.');
                    }
                    if part >= 100 {
                        bytes.push(b'0' + part / 100);
                    }
                    if part >= 10 {
                        bytes.push(b'0' + part / 10 % 10);
                    }
                    bytes.push(b'0' + part % 10);
                }
            }
            6 => {
                text.clear();
                let _ = write!(text, "{}", Ipv6Addr::from(*address));
                bytes.extend_from_slice(text.as_bytes());
            }
            _ => {}
        }
        offsets.push(bytes.len() as i32);
    }
    vec![Buffer::Offsets(offsets), Buffer::Bytes(bytes)]
}

/// All that a schema points to.
struct SchemaParts {
    name: CString,
    children: Vec<*mut ArrowSchema>,
}

unsafe extern "C" fn release_schema(schema: *mut ArrowSchema) {
    // SAFETY: the consumer calls it once, with a structure of `schema_of`, whose private data is a box of its parts. A child that was
    // moved out by the consumer is marked by a missing `release`.
    unsafe {
        let parts = Box::from_raw((*schema).private_data.cast::<SchemaParts>());
        for &child in &parts.children {
            if let Some(release) = (*child).release {
                release(child);
            }
            drop(Box::from_raw(child));
        }
        (*schema).release = None;
    }
}

fn schema_of(format: &'static CStr, name: &str, children: Vec<ArrowSchema>) -> ArrowSchema {
    let children = children
        .into_iter()
        .map(|child| Box::into_raw(Box::new(child)))
        .collect();
    let name = CString::new(name.replace('\0', " ")).expect("zeros were replaced");
    let mut parts = Box::new(SchemaParts { name, children });
    ArrowSchema {
        format: format.as_ptr(),
        name: parts.name.as_ptr(),
        metadata: null(),
        flags: NULLABLE,
        n_children: parts.children.len() as i64,
        children: parts.children.as_mut_ptr(),
        dictionary: null_mut(),
        release: Some(release_schema),
        private_data: Box::into_raw(parts).cast(),
    }
}

/// The schema of all batches of a source.
fn schema(common: &Common) -> ArrowSchema {
    let fields = common
        .fields
        .iter()
        .map(|&field| schema_of(format(field), field.name(), Vec::new()));
    let marks = common
        .marks
        .iter()
        .map(|name| schema_of(MARK, name, Vec::new()));
    let mut schema = schema_of(c"+s", "", fields.chain(marks).collect());
    schema.flags = 0;
    schema
}

/// All that an array points to.
struct ArrayParts {
    starts: Vec<*const c_void>,
    children: Vec<*mut ArrowArray>,
    /// Memory to which `starts` lead.
    _memory: Option<Column>,
}

unsafe extern "C" fn release_array(array: *mut ArrowArray) {
    // SAFETY: as for a schema.
    unsafe {
        let parts = Box::from_raw((*array).private_data.cast::<ArrayParts>());
        for &child in &parts.children {
            if let Some(release) = (*child).release {
                release(child);
            }
            drop(Box::from_raw(child));
        }
        (*array).release = None;
    }
}

fn array_of(rows: usize, nulls: usize, mut parts: Box<ArrayParts>) -> ArrowArray {
    ArrowArray {
        length: rows as i64,
        null_count: nulls as i64,
        offset: 0,
        n_buffers: parts.starts.len() as i64,
        n_children: parts.children.len() as i64,
        buffers: parts.starts.as_mut_ptr(),
        children: parts.children.as_mut_ptr(),
        dictionary: null_mut(),
        release: Some(release_array),
        private_data: Box::into_raw(parts).cast(),
    }
}

fn column_array(column: Column) -> ArrowArray {
    let validity = column
        .validity
        .as_ref()
        .map_or(null(), |bits| bits.as_ptr().cast());
    let starts = std::iter::once(validity)
        .chain(column.buffers.iter().map(Buffer::start))
        .collect();
    let (rows, nulls) = (column.rows, column.nulls);
    array_of(
        rows,
        nulls,
        Box::new(ArrayParts {
            starts,
            children: Vec::new(),
            _memory: Some(column),
        }),
    )
}

fn table_array(table: Table) -> ArrowArray {
    let children = table
        .columns
        .into_iter()
        .map(|column| Box::into_raw(Box::new(column_array(column))))
        .collect();
    array_of(
        table.rows,
        0,
        Box::new(ArrayParts {
            starts: vec![null()],
            children,
            _memory: None,
        }),
    )
}

/// A structure in a capsule. If no consumer takes the structure over, the capsule releases it.
#[repr(C)]
struct Kept<T>(T, fn(&mut T));

// SAFETY: structures of the interface may be used by any thread, by one at a time; all memory that they point to is shared with `Arc`, or theirs.
unsafe impl<T> Send for Kept<T> {}

impl<T> Drop for Kept<T> {
    fn drop(&mut self) {
        (self.1)(&mut self.0);
    }
}

fn capsule<'py, T: 'static>(
    py: Python<'py>,
    name: &'static CStr,
    value: T,
    release: fn(&mut T),
) -> PyResult<Bound<'py, PyCapsule>> {
    // The capsule's pointer leads to the structure, which is the first field.
    PyCapsule::new_with_value(py, Kept(value, release), name)
}

fn release_kept_schema(schema: &mut ArrowSchema) {
    if let Some(release) = schema.release {
        // SAFETY: nobody has taken it over.
        unsafe { release(schema) };
    }
}

fn release_kept_array(array: &mut ArrowArray) {
    if let Some(release) = array.release {
        // SAFETY: as above.
        unsafe { release(array) };
    }
}

fn release_kept_stream(stream: &mut ArrowArrayStream) {
    if let Some(release) = stream.release {
        // SAFETY: as above.
        unsafe { release(stream) };
    }
}

/// Capsules for the schema and the array of a table.
pub fn array_capsules<'py>(
    py: Python<'py>,
    common: &Common,
    table: Table,
) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
    let array = capsule(py, c"arrow_array", table_array(table), release_kept_array)?;
    Ok((schema_capsule(py, common)?, array))
}

/// A capsule for the schema of all batches of a source.
pub fn schema_capsule<'py>(py: Python<'py>, common: &Common) -> PyResult<Bound<'py, PyCapsule>> {
    capsule(py, c"arrow_schema", schema(common), release_kept_schema)
}

/// Tables that come one after another, and what failed.
pub trait Tables: Send {
    /// The next table; none at the end. It may be called without the interpreter's lock.
    fn next(&mut self) -> Result<Option<Table>, String>;
}

/// No tables.
pub struct NoTables;

impl Tables for NoTables {
    fn next(&mut self) -> Result<Option<Table>, String> {
        Ok(None)
    }
}

struct StreamParts {
    common: Arc<Common>,
    tables: Box<dyn Tables>,
    error: CString,
}

/// Error number for a failed input, `EIO`.
const FAILED: c_int = 5;

unsafe extern "C" fn stream_schema(stream: *mut ArrowArrayStream, to: *mut ArrowSchema) -> c_int {
    // SAFETY: the consumer gives a stream of `stream_capsule`, and memory for a schema.
    unsafe {
        let parts = &*(*stream).private_data.cast::<StreamParts>();
        to.write(schema(&parts.common));
    }
    0
}

unsafe extern "C" fn stream_next(stream: *mut ArrowArrayStream, to: *mut ArrowArray) -> c_int {
    // SAFETY: as above, with memory for an array; a consumer makes one call at a time.
    let parts = unsafe { &mut *(*stream).private_data.cast::<StreamParts>() };
    let next = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| parts.tables.next()));
    let array = match next.unwrap_or_else(|_| Err("a mistake in weir".to_owned())) {
        Ok(Some(table)) => table_array(table),
        // The end is an array without `release`.
        Ok(None) => ArrowArray {
            length: 0,
            null_count: 0,
            offset: 0,
            n_buffers: 0,
            n_children: 0,
            buffers: null_mut(),
            children: null_mut(),
            dictionary: null_mut(),
            release: None,
            private_data: null_mut(),
        },
        Err(line) => {
            parts.error = CString::new(line.replace('\0', " ")).expect("zeros were replaced");
            return FAILED;
        }
    };
    // SAFETY: the consumer promises memory for an array.
    unsafe { to.write(array) };
    0
}

unsafe extern "C" fn stream_error(stream: *mut ArrowArrayStream) -> *const c_char {
    // SAFETY: as above.
    let parts = unsafe { &*(*stream).private_data.cast::<StreamParts>() };
    if parts.error.is_empty() {
        null()
    } else {
        parts.error.as_ptr()
    }
}

unsafe extern "C" fn release_stream(stream: *mut ArrowArrayStream) {
    // SAFETY: the consumer calls it once, with a stream of `stream_capsule`.
    unsafe {
        drop(Box::from_raw((*stream).private_data.cast::<StreamParts>()));
        (*stream).release = None;
    }
}

/// A capsule for a stream of tables.
pub fn stream_capsule<'py>(
    py: Python<'py>,
    common: Arc<Common>,
    tables: Box<dyn Tables>,
) -> PyResult<Bound<'py, PyCapsule>> {
    let parts = Box::new(StreamParts {
        common,
        tables,
        error: CString::default(),
    });
    let stream = ArrowArrayStream {
        get_schema: Some(stream_schema),
        get_next: Some(stream_next),
        get_last_error: Some(stream_error),
        release: Some(release_stream),
        private_data: Box::into_raw(parts).cast(),
    };
    capsule(py, c"arrow_array_stream", stream, release_kept_stream)
}
