//! A piece of a capture file in memory.

use crate::sys::Mapping;

/// Bytes of a source from `offset` on, mapped or owned.
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

    /// The same piece with `more` behind it.
    pub(crate) fn grown(self, more: &[u8], eof: bool) -> Self {
        let (mut buffer, part) = match self.bytes {
            Bytes::Owned(buffer, part) => (buffer, part),
            Bytes::Mapped(mapping) => (mapping.bytes().to_vec(), 0..mapping.bytes().len()),
        };
        buffer.truncate(part.end);
        buffer.extend_from_slice(more);
        let end = buffer.len();
        Self { offset: self.offset, eof, bytes: Bytes::Owned(buffer, part.start..end) }
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Mapped(mapping) => mapping.bytes(),
            Bytes::Owned(buffer, part) => &buffer[part.clone()],
        }
    }

    /// Offset in the source from which on the bytes were made up, because the file could not be read there.
    pub fn fault(&self) -> Option<u64> {
        match &self.bytes {
            Bytes::Mapped(mapping) => mapping.fault().map(|at| self.offset + at as u64),
            Bytes::Owned(..) => None,
        }
    }

    /// The buffer, to be used again.
    pub fn into_buffer(self) -> Option<Vec<u8>> {
        match self.bytes {
            Bytes::Mapped(_) => None,
            Bytes::Owned(buffer, _) => Some(buffer),
        }
    }
}
