//! Packets in spool form: runs of a sort, in files and in memory.

use super::{AccessMode, Current, Delivery, Options, Reader, Source, SourceError};
use crate::Consumer;
use crate::sort::InMemory;
use crate::window::{Start, process};
use std::sync::Arc;
use weir_io::Chunk;
use weir_io::input::PlainFile;
use weir_packet::savefile::Layout;

impl<C: Consumer> Reader<C> {
    /// Makes a reader of a file that holds only packets in spool form, of this layout.
    pub(crate) fn spooled(
        file: PlainFile,
        layout: Layout,
        consumer: Arc<C>,
        options: Options,
    ) -> Self {
        let source = Source::File {
            file,
            way: AccessMode::Read,
            pool: None,
            lost: None,
        };
        Self::laid_out(source, layout, consumer, options)
    }

    /// Makes a reader of packets in memory, of this layout.
    pub(crate) fn in_memory(
        packets: InMemory,
        layout: Layout,
        consumer: Arc<C>,
        options: Options,
    ) -> Self {
        Self::laid_out(Source::Memory(Box::new(packets)), layout, consumer, options)
    }

    /// Makes a reader of a source whose layout is known.
    fn laid_out(source: Source<C>, layout: Layout, consumer: Arc<C>, options: Options) -> Self {
        let mut reader = Self::of(source, consumer, options);
        if let Err(what) = reader.use_layout(layout) {
            reader.fault(what);
        }
        reader
    }

    /// Takes one piece of packets in memory.
    pub(super) fn step_memory(&mut self) -> Result<Option<Delivery<C>>, SourceError> {
        let mut piece = self.spent.take().unwrap_or_default();
        piece.clear();
        let Source::Memory(packets) = &mut self.source else {
            unreachable!("asked by source")
        };
        packets.fill(&mut piece);
        if piece.is_empty() {
            self.finished = true;
            return Ok(None);
        }
        Ok(self.take_piece(piece))
    }

    /// Processes a piece of packets in spool form.
    fn take_piece(&mut self, piece: Vec<u8>) -> Option<Delivery<C>> {
        let current: Arc<Current<C::Plan>> =
            Arc::clone(self.current.as_ref().expect("packets have interfaces"));
        let len = piece.len();
        let view = Chunk::owned(self.report.offset, true, piece, 0..len);
        let done = process(
            self.consumer.as_ref(),
            &current,
            view.content(),
            true,
            Start::Exact(0),
            len,
            0,
        );
        self.accept(view, current, done)
    }
}
