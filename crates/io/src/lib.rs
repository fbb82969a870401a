//! Where packets come from and go to: capture files, mapped or read, compressed or growing, and the files we write.
//!
//! Attaching, opening, mapping live here; the bytes of the formats are `weir-packet`'s.
#![deny(unsafe_code)]

pub mod compressed;
pub mod input;
pub mod output;
pub mod stream;
#[allow(unsafe_code)]
pub mod sys;
pub mod view;

pub use input::{Input, Kind};
pub use view::View;
