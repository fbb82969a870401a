//! Several sources as one, in the order of packet time: files and pipes, the runs of a sort, captures.
//!
//! The packets of each source are judged where it is read. Then they are copied with their verdicts into pieces of one layout, so
//! that the memory of a source returns early, and later stages get batches as of one source. A stage that needs no rejected packets
//! gets none: see [`Rejected`].
//!
//! A piece ends where the number of changes differs, so that each batch has the number of the filter that judged it.

mod captures;
mod files;
mod gather;

pub use captures::MergedCaptures;
pub(crate) use files::Sorted;
pub use files::{MergedFiles, Part};
pub use gather::Rejected;
