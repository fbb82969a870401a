//! A piece of a source in memory.

use crate::live::Lent;
use crate::sys::Mapping;
use std::io;
use weir_packet::savefile;

/// Bytes of a source from `offset` on: mapped, owned, or lent by a capture.
#[derive(Debug)]
pub struct View {
    /// Offset of the first byte in the source.
    pub offset: u64,
    /// The source ends with these bytes.
    pub eof: bool,
    bytes: Bytes,
}

#[derive(Debug)]
enum Bytes {
    Mapped(Mapping),
    /// A buffer and the part of it that holds data.
    Owned(Vec<u8>, std::ops::Range<usize>),
    Lent(Box<dyn Lent>),
}

impl View {
    /// A mapped piece.
    pub fn mapped(offset: u64, eof: bool, mapping: Mapping) -> Self {
        Self { offset, eof, bytes: Bytes::Mapped(mapping) }
    }

    /// A piece in a buffer, of which `part` holds data.
    pub fn owned(offset: u64, eof: bool, buffer: Vec<u8>, part: std::ops::Range<usize>) -> Self {
        Self { offset, eof, bytes: Bytes::Owned(buffer, part) }
    }

    /// Memory of a capture, which gets it back when the view is dropped or [released](Self::release).
    pub fn lent(offset: u64, lent: Box<dyn Lent>) -> Self {
        Self { offset, eof: false, bytes: Bytes::Lent(lent) }
    }

    /// Nobody reads the bytes any more: what others wait for is given back now, and the view is empty if it held that.
    pub fn release(self) -> Self {
        match self.bytes {
            Bytes::Lent(_) => Self::owned(self.offset, self.eof, Vec::new(), 0..0),
            _ => self,
        }
    }

    /// The same piece with `more` behind it. **Errors**: no memory for it.
    pub(crate) fn grown(self, more: &[u8], eof: bool) -> io::Result<Self> {
        let (mut buffer, part) = match self.bytes {
            Bytes::Owned(buffer, part) => (buffer, part),
            Bytes::Mapped(mapping) => (mapping.bytes().to_vec(), 0..mapping.bytes().len()),
            Bytes::Lent(lent) => (lent.bytes().slice().to_vec(), 0..lent.bytes().slice().len()),
        };
        buffer.truncate(part.end);
        buffer.try_reserve(more.len())?;
        buffer.extend_from_slice(more);
        let end = buffer.len();
        Ok(Self { offset: self.offset, eof, bytes: Bytes::Owned(buffer, part.start..end) })
    }

    /// What the records lie in.
    #[inline]
    pub fn content(&self) -> savefile::Bytes<'_> {
        match &self.bytes {
            Bytes::Lent(lent) => lent.bytes(),
            Bytes::Mapped(_) | Bytes::Owned(..) => self.bytes().into(),
        }
    }

    /// The bytes of a piece in one slice, as files are; none of a burst, whose packets lie apart: see [`Self::content`].
    pub fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Mapped(mapping) => mapping.bytes(),
            Bytes::Owned(buffer, part) => &buffer[part.clone()],
            Bytes::Lent(lent) => lent.bytes().slice(),
        }
    }

    /// Offset in the source from which on the bytes were made up, because the file could not be read there.
    pub fn fault(&self) -> Option<u64> {
        match &self.bytes {
            Bytes::Mapped(mapping) => mapping.fault().map(|at| self.offset + at as u64),
            Bytes::Owned(..) | Bytes::Lent(_) => None,
        }
    }

    /// The buffer, to be used again.
    pub fn into_buffer(self) -> Option<Vec<u8>> {
        match self.bytes {
            Bytes::Mapped(_) | Bytes::Lent(_) => None,
            Bytes::Owned(buffer, _) => Some(buffer),
        }
    }
}
