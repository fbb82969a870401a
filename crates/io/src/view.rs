//! Chunks: pieces of a source in memory.

use crate::live::Lease;
use crate::sys::Mapping;
use std::io;
use std::sync::Arc;
use weir_packet::savefile;

/// Bytes of a source from `offset` on: mapped, owned, or leased from a capture.
#[derive(Debug)]
pub struct Chunk {
    /// Offset of the first byte in the source.
    pub offset: u64,
    /// Whether the source ends with these bytes.
    pub eof: bool,
    bytes: Bytes,
}

#[derive(Debug)]
enum Bytes {
    Mapped(Arc<Mapping>),
    /// A buffer and the part of it that holds data.
    Owned(Arc<Vec<u8>>, std::ops::Range<usize>),
    Lease(Arc<dyn Lease>),
    /// Nothing any more.
    Given,
}

impl Chunk {
    /// Creates a chunk from a mapped piece of a file.
    pub(crate) fn mapped(offset: u64, eof: bool, mapping: Mapping) -> Self {
        Self {
            offset,
            eof,
            bytes: Bytes::Mapped(Arc::new(mapping)),
        }
    }

    /// Creates a chunk from a buffer, of which `part` holds data.
    pub fn owned(offset: u64, eof: bool, buffer: Vec<u8>, part: std::ops::Range<usize>) -> Self {
        Self {
            offset,
            eof,
            bytes: Bytes::Owned(Arc::new(buffer), part),
        }
    }

    /// Creates a chunk from the memory of a capture. The memory goes back to the capture when the last chunk that shares it is
    /// dropped or [released](Self::release).
    pub fn leased(offset: u64, lease: Arc<dyn Lease>) -> Self {
        Self {
            offset,
            eof: false,
            bytes: Bytes::Lease(lease),
        }
    }

    /// Returns a chunk that shares the same bytes, without a copy. **Cost**: an atomic update.
    pub fn share(&self) -> Self {
        let bytes = match &self.bytes {
            Bytes::Mapped(mapping) => Bytes::Mapped(Arc::clone(mapping)),
            Bytes::Owned(buffer, part) => Bytes::Owned(Arc::clone(buffer), part.clone()),
            Bytes::Lease(lease) => Bytes::Lease(Arc::clone(lease)),
            Bytes::Given => Bytes::Given,
        };
        Self { bytes, ..*self }
    }

    /// Gives leased memory back to its capture and returns an empty chunk; other chunks are returned unchanged.
    pub fn release(self) -> Self {
        match self.bytes {
            Bytes::Lease(_) => Self::owned(self.offset, self.eof, Vec::new(), 0..0),
            _ => self,
        }
    }

    /// Whether the bytes lie in a buffer of this process.
    pub fn is_buffer(&self) -> bool {
        matches!(self.bytes, Bytes::Owned(..))
    }

    /// Whether the bytes lie in the memory of a capture.
    pub fn is_leased(&self) -> bool {
        matches!(self.bytes, Bytes::Lease(..))
    }

    /// Gives leased or mapped memory back, and is empty then. A buffer stays, for [reuse](Self::into_buffer).
    pub fn give_back(&mut self) {
        if !self.is_buffer() {
            self.bytes = Bytes::Given;
        }
    }

    /// Returns the chunk with `more` appended. **Errors**: no memory for the bytes.
    pub(crate) fn grown(self, more: &[u8], eof: bool) -> io::Result<Self> {
        let (mut buffer, part) = match self.bytes {
            Bytes::Owned(buffer, part) => (Arc::unwrap_or_clone(buffer), part),
            Bytes::Mapped(mapping) => (mapping.bytes().to_vec(), 0..mapping.bytes().len()),
            Bytes::Lease(lease) => (
                lease.bytes().slice().to_vec(),
                0..lease.bytes().slice().len(),
            ),
            Bytes::Given => (Vec::new(), 0..0),
        };
        buffer.truncate(part.end);
        buffer.try_reserve(more.len())?;
        buffer.extend_from_slice(more);
        let end = buffer.len();
        Ok(Self {
            offset: self.offset,
            eof,
            bytes: Bytes::Owned(Arc::new(buffer), part.start..end),
        })
    }

    /// Returns the content that holds the records.
    #[inline]
    pub fn content(&self) -> savefile::Bytes<'_> {
        match &self.bytes {
            Bytes::Lease(lease) => lease.bytes(),
            Bytes::Mapped(..) | Bytes::Owned(..) | Bytes::Given => self.bytes().into(),
        }
    }

    /// Returns the bytes as one slice. The slice is empty for a burst, whose packets are not contiguous: see [`Self::content`].
    pub fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Mapped(mapping) => mapping.bytes(),
            Bytes::Owned(buffer, part) => &buffer[part.clone()],
            Bytes::Lease(lease) => lease.bytes().slice(),
            Bytes::Given => &[],
        }
    }

    /// Returns the offset in the source from which on the bytes differ from the file, because the
    /// file could not be read there.
    pub fn fault(&self) -> Option<u64> {
        match &self.bytes {
            Bytes::Mapped(mapping) => mapping.fault().map(|at| self.offset + at as u64),
            Bytes::Owned(..) | Bytes::Lease(_) | Bytes::Given => None,
        }
    }

    /// Returns the buffer for reuse; of several chunks that share a buffer, the last returns it.
    pub fn into_buffer(self) -> Option<Vec<u8>> {
        match self.bytes {
            Bytes::Mapped(..) | Bytes::Lease(_) | Bytes::Given => None,
            Bytes::Owned(buffer, _) => Arc::into_inner(buffer),
        }
    }
}
