#![doc = include_str!("../README.md")]
//!
//! # How it works
//!
//! [`draw`] makes a buffer of cells from a [`Scene`]: a snapshot of the view, facts about the run, the state of the keys ([`Ui`]) and a
//! [`Look`]. [`Ui::press`] takes a key, and says what the front end has to do. [`Keys`] reads keys from the bytes of a terminal, and
//! [`ansi::changes`] writes what differs between two buffers.
//!
//! **Invariants.** The places of columns depend on the size of the terminal and on the tab, never on the rows. No control character of a
//! packet, a file or an interface reaches a cell: see [`text::clean`].
#![forbid(unsafe_code)]

pub mod ansi;
mod columns;
mod detail;
mod draw;
mod graph;
mod help;
mod keys;
mod line;
mod look;
mod rows;
mod save;
mod scene;
pub mod sender;
pub mod text;
mod ui;

pub use draw::{LEAST, draw, points};
pub use keys::{Key, Keys};
pub use line::line;
pub use look::Look;
pub use ratatui_core::buffer::Buffer;
pub use ratatui_core::layout::Rect;
pub use rows::Id;
pub use save::{Save, Subject};
pub use scene::{About, Scene, Status};
pub use ui::{Effect, Tab, Ui};
