//! Texts that the library hands out: messages, and answers in JSON.

use crate::answer::Figures;
use crate::call::{Failure, WEIR_CLOSED, WEIR_OK};
use crate::call::{OBJECTS, Object, call, get, kind, store, weir_status};
use core::ffi::c_char;

/// A text. Free it with weir_text_free: texts count among the 65536 objects that a process may have.
///
/// A text about an error is the line that the command would print. If it names a flag, such as `--ring` or `--memory`, the option of that name
/// is meant, here weir_options.ring or weir_measure_options.memory.
pub type weir_text = u64;

/// A text with a 0 after it.
#[derive(Debug)]
pub(crate) struct Text {
    bytes: Vec<u8>,
    /// Figures, if it is an answer that has some.
    figures: Option<Box<Figures>>,
}

impl Text {
    /// Bytes of 0 inside, which C would take for the end, become blanks.
    pub fn new(text: String) -> Self {
        Self::with(text, None)
    }

    pub fn with(text: String, figures: Option<Box<Figures>>) -> Self {
        let mut bytes = text.into_bytes();
        bytes
            .iter_mut()
            .filter(|byte| **byte == 0)
            .for_each(|byte| *byte = b' ');
        bytes.push(0);
        Self { bytes, figures }
    }

    pub fn figures(&self) -> Option<&Figures> {
        self.figures.as_deref()
    }
}

/// Gives the bytes of a text (UTF-8, with a 0 after them) and their number without that 0. They
/// stay until weir_text_free.
///
/// `length` may be NULL.
///
/// # Safety
/// `bytes` leads to memory for a pointer, `length` to memory for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_text_read(
    text: weir_text,
    bytes: *mut *const c_char,
    length: *mut usize,
) -> weir_status {
    call(|| {
        let object = get(text, kind::TEXT)?;
        let Object::Text(text) = &*object else {
            return Err(closed());
        };
        // SAFETY: the caller promises memory for both.
        unsafe {
            if !length.is_null() {
                length.write(text.bytes.len() - 1);
            }
            store(bytes, text.bytes.as_ptr().cast(), "bytes")?;
        }
        Ok(WEIR_OK)
    })
}

/// Frees a text. 0 is not a text, and is ignored.
#[unsafe(no_mangle)]
pub extern "C" fn weir_text_free(text: weir_text) -> weir_status {
    call(|| {
        if text != 0 {
            drop(OBJECTS.remove(text, kind::TEXT, |_| true)?);
        }
        Ok(WEIR_OK)
    })
}

fn closed() -> Failure {
    Failure::new(WEIR_CLOSED, "the handle is none of a text")
}
