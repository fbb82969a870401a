//! Where the figures of a screen come from.

use std::collections::HashMap;
use std::fmt::Debug;
use std::net::IpAddr;
use weir_messages::viewing::Facts;
use weir_view::{Ask, Snapshot};

/// Figures of a run, of this process or of another.
pub trait Figures: Debug + Send + Sync {
    /// Facts so far.
    fn facts(&self) -> Facts;

    /// Answers a question to the view.
    fn snapshot(&self, ask: &Ask) -> Option<Snapshot>;

    /// Returns the known names of addresses.
    fn names(&self, addresses: Vec<IpAddr>) -> HashMap<IpAddr, String>;

    /// Why there will be no more figures, in words; `None` if there will.
    fn gone(&self) -> Option<String> {
        None
    }
}
