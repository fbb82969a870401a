//! The end of a segment. Its index is made on a thread of its own, while the next segment is written.

use super::super::background::Background;
use super::super::file;
use super::super::index::Builder;
use super::super::name::Segment;
use super::super::{Error, Recorder};

/// A closed segment: what its packets have left in the index, and its bytes.
#[derive(Debug)]
struct Closed {
    segment: Segment,
    builder: Builder,
    bytes: u64,
}

/// The bytes of an index, and its builder, which is empty again.
type Made = (Builder, Vec<u8>);

fn make(
    Closed {
        segment,
        mut builder,
        bytes,
    }: Closed,
) -> Made {
    let index = builder.finish(segment.generation, segment.start_ns, bytes);
    builder.clear();
    (builder, index)
}

/// The thread that makes the index of a closed segment, one at a time.
#[derive(Debug)]
pub(super) struct Closing {
    thread: Background<Closed, Made>,
    /// The builder for the next segment; `None` before the first segment has ended, and while an
    /// index is being made.
    spare: Option<Builder>,
    /// The segment whose index is being made.
    segment: Option<Segment>,
}

impl Default for Closing {
    fn default() -> Self {
        Self {
            thread: Background::new("weir-index", make, 1),
            spare: None,
            segment: None,
        }
    }
}

impl Closing {
    /// Whether the index of this segment is being made.
    pub(super) fn has(&self, segment: &Segment) -> bool {
        self.segment.as_ref() == Some(segment)
    }
}

impl Recorder {
    /// Closes the current segment: makes it durable, then writes its last mark, then its index.
    /// These two become durable at once only if `whole`: if they are lost, the next recorder makes
    /// them again. Unless `whole`, the index is written later.
    pub(super) fn end_segment(&mut self, whole: bool) -> Result<(), Error> {
        self.begin_write(false)?;
        self.take_index(true, whole)?;
        self.sync()?;
        self.tell(true);
        self.write(true)?;
        if whole {
            self.sync()?;
        }
        let Some(open) = self.open.take() else {
            return Ok(());
        };
        self.keeper.add(open.segment.clone(), Some(open.changed_ns));
        let most_pairs = self.settings.index_pairs;
        let mut next = self
            .closing
            .spare
            .take()
            .unwrap_or_else(|| Builder::new(most_pairs));
        next.share_interfaces(&self.index);
        let builder = std::mem::replace(&mut self.index, next);
        self.closing.segment = Some(open.segment.clone());
        self.closing.thread.begin(Closed {
            segment: open.segment,
            builder,
            bytes: open.written,
        });
        if whole {
            self.take_index(true, true)
        } else {
            Ok(())
        }
    }

    /// Writes the index that is being made, if it is ready; waits for it if `wait`. It is durable then if `whole`.
    pub(super) fn take_index(&mut self, wait: bool, whole: bool) -> Result<(), Error> {
        if self.closing.segment.is_none() {
            return Ok(());
        }
        let made = self.closing.thread.finished(wait);
        if made.is_none() && !wait {
            return Ok(());
        }
        let Some(segment) = self.closing.segment.take() else {
            return Ok(());
        };
        let (builder, index) = made.expect("the thread ends when it is dropped");
        self.closing.spare = Some(builder);
        let next = self.open.as_ref().map_or(0, |_| self.with_index());
        let room = (next + index.len() as u64 + self.room_to_compress(), 0);
        self.keeper.make_room(
            self.disk.as_ref(),
            &self.dir,
            &self.settings.retention,
            None,
            room,
        )?;
        if !self.keeper.has(&segment) {
            return Ok(());
        }
        let path = segment.index();
        let published = file::publish(
            self.disk.as_ref(),
            &path,
            self.settings.file_mode,
            &index,
            whole,
        );
        self.keeper.measure(&segment);
        published.map_err(|error| Error::file("writing", &path, error).keeping(self.next))?;
        self.stats.index_bytes += index.len() as u64;
        Ok(())
    }

    /// Bytes that stay free of the limit for an index that is being made.
    pub(super) fn room_to_close(&self) -> u64 {
        self.closing
            .segment
            .as_ref()
            .map_or(0, |_| self.with_index() - self.settings.segment_bytes)
    }
}
