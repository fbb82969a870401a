//! A call from outside: statuses, pointers that are checked, and panics that stay inside.

use crate::handles::{Inside, Refused, Table};
use crate::text::{Text, weir_text};
use crate::{batch::Lease, sink::SendSink, source::Source};
use std::ffi::CStr;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use weir_api::{Measurement, Recorder};
use weir_engine::name::Name;

/// Status of a call: 0 or more if it did its work, less than 0 if it did not.
pub type weir_status = i32;

/// The call did its work.
pub const WEIR_OK: weir_status = 0;
/// The source is at its end, and all its batches were taken.
pub const WEIR_END: weir_status = 1;
/// Nothing came in that time.
pub const WEIR_NOTHING: weir_status = 2;
/// A name, an expression or a setting is wrong. Nothing was done.
pub const WEIR_REFUSED: weir_status = -1;
/// The input or the output failed. Packets before the error were delivered.
pub const WEIR_FAILED: weir_status = -2;
/// No object has this handle, or none any more.
pub const WEIR_CLOSED: weir_status = -3;
/// The object is in use: by another call, or by batches that were not released.
pub const WEIR_BUSY: weir_status = -4;
/// The object was made before a fork, by the parent of this process.
pub const WEIR_FORKED: weir_status = -5;
/// A pointer that must lead somewhere is NULL.
pub const WEIR_NULL: weir_status = -6;
/// The size of a structure is none that this library knows.
pub const WEIR_SIZE: weir_status = -7;
/// There is no room for another object.
pub const WEIR_FULL: weir_status = -8;
/// A mistake in weir. The objects of the call may be unusable; closing them is safe.
pub const WEIR_BUG: weir_status = -9;

/// An object of this library.
#[derive(Debug)]
pub(crate) enum Object {
    Source(Box<Source>),
    Lease(Lease),
    Sink(Box<SendSink>),
    Text(Text),
    Measure(Box<Measurement>),
    Record(Box<Recorder>),
}

/// All objects. They belong to the process, because a handle must be checked without trust in it.
pub(crate) static OBJECTS: Table<Object> = Table::new();

/// Reason why a call did not do its work.
#[derive(Debug)]
pub(crate) struct Failure {
    pub status: weir_status,
    /// The line for a person.
    pub message: String,
}

impl Failure {
    pub fn new(status: weir_status, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
        }
    }

    pub fn refused(message: impl ToString) -> Self {
        Self::new(WEIR_REFUSED, message.to_string())
    }

    fn null(what: &str) -> Self {
        Self::new(WEIR_NULL, format!("{what} is NULL"))
    }

    pub fn size(what: &str, size: u32, known: usize) -> Self {
        let words = format!(
            "{what} has {size} bytes, and this library knows {known}: program and library are of two versions"
        );
        Self::new(WEIR_SIZE, words)
    }
}

impl From<weir_api::Error> for Failure {
    fn from(error: weir_api::Error) -> Self {
        let status = match error {
            weir_api::Error::Refused(_) => WEIR_REFUSED,
            weir_api::Error::Busy(_) => WEIR_BUSY,
            _ => WEIR_FAILED,
        };
        Self::new(status, error.to_string())
    }
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        let message = match refused {
            Refused::Closed => "the handle is closed, or none of this kind",
            Refused::Busy => {
                "the object is in use: by another call, or by batches that were not released"
            }
            Refused::Forked => "the object was made before a fork, by the parent of this process",
        };
        Self::new(refused.into(), message)
    }
}

impl From<Refused> for weir_status {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Closed => WEIR_CLOSED,
            Refused::Busy => WEIR_BUSY,
            Refused::Forked => WEIR_FORKED,
        }
    }
}

/// Does the work of a call that is short: its failures are statuses from the start. A panic inside becomes a status. Inlined into its
/// few callers, a call with a handle takes 7.4 ns instead of 12.3.
#[inline(always)]
pub(crate) fn short_call(work: impl FnOnce() -> Result<weir_status, weir_status>) -> weir_status {
    catch_unwind(AssertUnwindSafe(work))
        .map_or(WEIR_BUG, |done| done.unwrap_or_else(|status| status))
}

/// Does the work of a call. A panic inside becomes a status.
pub(crate) fn call(work: impl FnOnce() -> Result<weir_status, Failure>) -> weir_status {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(done) => done.unwrap_or_else(|failure| failure.status),
        Err(_) => WEIR_BUG,
    }
}

/// Does the work of a call that words its failures: a text is stored at `error`, unless that is NULL.
///
/// # Safety
/// `error` is NULL, or leads to memory of the caller for a handle.
pub(crate) unsafe fn call_with_error(
    error: *mut weir_text,
    work: impl FnOnce() -> Result<weir_status, Failure>,
) -> weir_status {
    let failure = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(status)) => return status,
        Ok(Err(failure)) => failure,
        Err(_) => Failure::new(WEIR_BUG, "a mistake in weir"),
    };
    if !error.is_null() {
        let text = OBJECTS
            .insert(Object::Text(Text::new(failure.message)), kind::TEXT)
            .unwrap_or(0);
        // SAFETY: the caller promises memory for a handle.
        unsafe { error.write(text) };
    }
    failure.status
}

impl Object {
    /// The number of its kind in handles.
    fn kind(&self) -> u32 {
        match self {
            Self::Source(_) => kind::SOURCE,
            Self::Lease(_) => kind::LEASE,
            Self::Sink(_) => kind::SINK,
            Self::Text(_) => kind::TEXT,
            Self::Measure(_) => kind::MEASURE,
            Self::Record(_) => kind::RECORD,
        }
    }
}

/// Numbers of the kinds of objects.
pub(crate) mod kind {
    pub(crate) const SOURCE: u32 = 1;
    /// Calls are inside alone.
    pub(crate) const LEASE: u32 = 2;
    pub(crate) const SINK: u32 = 3;
    /// Calls are inside alone.
    pub(crate) const TEXT: u32 = 4;
    pub(crate) const MEASURE: u32 = 5;
    pub(crate) const RECORD: u32 = 6;
}

/// Adds an object. The caller that adds the first object also registers for forks.
pub(crate) fn insert(object: Object) -> Result<u64, Failure> {
    insert_or_return(object).map_err(|_| full())
}

/// The failure of a full table.
pub(crate) fn full() -> Failure {
    Failure::new(
        WEIR_FULL,
        "there is no room for another object: 65536 are open",
    )
}

/// Adds an object, or gives it back if the table is full.
pub(crate) fn insert_or_return(object: Object) -> Result<u64, Object> {
    static LISTENS: Once = Once::new();
    extern "C" fn forked() {
        OBJECTS.forked();
    }
    LISTENS.call_once(|| {
        // SAFETY: the handler only adds to an atomic number. Without memory for it, objects of a parent are not refused.
        let _ = unsafe { libc::pthread_atfork(None, None, Some(forked)) };
    });
    let kind = object.kind();
    OBJECTS.insert(object, kind)
}

/// Returns the object of a handle.
#[inline]
pub(crate) fn get(handle: u64, kind: u32) -> Result<Inside<'static, Object>, Failure> {
    Ok(match kind {
        kind::LEASE | kind::TEXT => OBJECTS.get_alone(handle, kind)?,
        _ => OBJECTS.get(handle, kind)?,
    })
}

/// Stores a result.
///
/// # Safety
/// `to` is NULL, or leads to memory of the caller for a `T`.
pub(crate) unsafe fn store<T>(to: *mut T, value: T, what: &str) -> Result<(), Failure> {
    if to.is_null() {
        return Err(Failure::null(what));
    }
    // SAFETY: the caller promises memory for a `T`.
    unsafe { to.write(value) };
    Ok(())
}

/// Refuses NULL.
pub(crate) fn check<T>(pointer: *const T, what: &str) -> Result<(), Failure> {
    if pointer.is_null() {
        Err(Failure::null(what))
    } else {
        Ok(())
    }
}

/// Text of the caller; `None` for NULL.
///
/// # Safety
/// `text` is NULL, or leads to bytes that end with a 0 and do not change during the call.
pub(crate) unsafe fn text<'a>(
    text: *const core::ffi::c_char,
    what: &str,
) -> Result<Option<&'a str>, Failure> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller promises bytes that end with a 0.
    let bytes = unsafe { CStr::from_ptr(text) };
    bytes
        .to_str()
        .map(Some)
        .map_err(|_| Failure::refused(format!("{what}: it is not text (UTF-8)")))
}

/// Name of a source or sink, of any bytes.
///
/// # Safety
/// As for [`text`].
pub(crate) unsafe fn name(name: *const core::ffi::c_char) -> Result<Name, Failure> {
    check(name, "a name")?;
    // SAFETY: it is not NULL, and the caller promises bytes that end with a 0.
    let bytes = unsafe { CStr::from_ptr(name) }.to_bytes();
    Ok(Name::from(std::ffi::OsStr::from_bytes(bytes).to_owned()))
}

/// Names of sources.
///
/// # Safety
/// `list` is NULL, or leads to `count` texts, each as for [`text`].
pub(crate) unsafe fn names(
    list: *const *const core::ffi::c_char,
    count: usize,
) -> Result<Vec<Name>, Failure> {
    check(list, "names")?;
    // SAFETY: the caller promises that many texts.
    (0..count).map(|i| unsafe { name(*list.add(i)) }).collect()
}

/// Names of files; none if `count` is 0.
///
/// # Safety
/// As for [`names`].
pub(crate) unsafe fn names_of(
    list: *const *const core::ffi::c_char,
    count: u32,
    what: &str,
) -> Result<Vec<Name>, Failure> {
    if count == 0 {
        return Ok(Vec::new());
    }
    check(list, what)?;
    // SAFETY: forwarded to the caller.
    unsafe { names(list, count as usize) }
}

/// Texts of the caller; none if `count` is 0.
///
/// # Safety
/// `list` is NULL, or leads to `count` texts, each as for [`text`].
pub(crate) unsafe fn texts<'a>(
    list: *const *const core::ffi::c_char,
    count: u32,
    what: &str,
) -> Result<Vec<&'a str>, Failure> {
    if count > 0 {
        check(list, what)?;
    }
    let one = |i: usize| {
        // SAFETY: the caller promises that many texts.
        let text = unsafe { text(*list.add(i), what) }?;
        text.ok_or_else(|| Failure::null(&format!("{what}[{i}]")))
    };
    (0..count as usize).map(one).collect()
}

/// A structure of the caller, whose first field is its size; `None` for NULL.
///
/// # Safety
/// `structure` is NULL, or leads to a `T` of any version, whose first field is its size.
pub(crate) unsafe fn structure<T: Copy>(
    structure: *const T,
    what: &str,
) -> Result<Option<T>, Failure> {
    if structure.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller promises at least the size.
    let size = unsafe { structure.cast::<u32>().read() };
    if size as usize != size_of::<T>() {
        return Err(Failure::size(what, size, size_of::<T>()));
    }
    // SAFETY: it has the size of this version.
    Ok(Some(unsafe { *structure }))
}

/// Stores a text.
///
/// # Safety
/// `to` is NULL, or leads to memory of the caller for a handle.
pub(crate) unsafe fn store_text(to: *mut weir_text, text: String) -> Result<(), Failure> {
    // SAFETY: forwarded to the caller.
    unsafe { store_made(to, Text::new(text)) }
}

/// Stores a text that was made.
///
/// # Safety
/// As for [`store_text`].
pub(crate) unsafe fn store_made(to: *mut weir_text, text: Text) -> Result<(), Failure> {
    let handle = insert(Object::Text(text))?;
    // SAFETY: forwarded to the caller.
    unsafe { store(to, handle, "text") }
}
