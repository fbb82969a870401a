//! Words that every room of weir shares: frames, link types, time, and the savefile codecs.
//!
//! Bytes in, records out. Nothing here opens a file, reads a clock or allocates per packet.
#![forbid(unsafe_code)]

pub mod descriptor;
pub mod flow;
pub mod line;
pub mod link;
pub mod list;
pub mod savefile;
pub mod text;
pub mod time;

pub use link::LinkType;

/// One captured frame, borrowed from the place where it lies.
///
/// `wire_len` is the length on the wire in bytes, without FCS and preamble; `data.len()` is what was captured of it and
/// may be shorter (snap length) or, in odd files, longer. `interface` indexes the interface table of the source (always 0
/// in a pcap file). The filter's native code reads this struct, hence `repr(C)`.
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
