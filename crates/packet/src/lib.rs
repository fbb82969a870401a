//! Vocabulary that all weir crates share: frames, link types, time, and the savefile codecs.
//!
//! Input is bytes, output is records. Nothing here opens a file, reads a clock or allocates per packet.
#![forbid(unsafe_code)]

pub mod addresses;
pub mod anonymize;
pub mod descriptor;
pub mod dns;
pub mod fields;
pub mod flow;
pub mod line;
pub mod link;
pub mod list;
pub mod savefile;
pub mod suggestions;
pub mod text;
pub mod time;
pub mod tls;
pub mod transport;

pub use link::LinkType;

/// A captured frame, borrowed from the buffer that holds its bytes.
///
/// `wire_len` is the length on the wire in bytes, without FCS and preamble. The captured length is `data.len()`: shorter if the
/// snap length cut the frame, and in odd files longer. `interface` indexes the interface table of the source (always 0 in a
/// pcap file). The filter's native code reads this struct, hence `repr(C)`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Frame<'a> {
    /// The captured bytes, starting at the link-layer header.
    pub data: &'a [u8],
    /// Length on the wire, bytes.
    pub wire_len: u32,
    /// Index of the interface in the source's table.
    pub interface: u32,
}

/// Judgement of one frame, by which a crate uses filters without knowing their language.
pub trait Matcher: core::fmt::Debug + Send + Sync {
    /// Whether the frame matches.
    fn matches(&self, frame: &Frame<'_>) -> bool;
}
