//! Sets of addresses in expressions: `src @banned`, `host @lan`.
//!
//! libpcap knows no sets. Each set gets *markers*, an IPv4 and an IPv6 address that stand in its place in the text that libpcap compiles. In
//! the program, comparisons with markers become tests of the set.

mod either;
mod lookup;
mod markers;

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_packet::addresses::Addresses;

use crate::names;
pub use lookup::{AddressSet, TOGETHER};
pub(crate) use markers::Marked;

/// Meaning of the names in expressions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// Whether names of hosts and networks are looked up, over the network.
    pub resolve: bool,
    /// Sets of addresses.
    pub sets: Sets,
}

impl From<bool> for Names {
    /// No sets; `resolve` says whether names of hosts are looked up.
    fn from(resolve: bool) -> Self {
        Self { resolve, sets: Sets::default() }
    }
}

/// Sets of addresses by name. Copies share the sets.
#[derive(Clone, Debug, Default)]
pub struct Sets(Arc<BTreeMap<String, Arc<AddressSet>>>);

/// Reason for which a set is not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SetError {
    /// The name cannot stand in an expression.
    #[error("{0:?} is no name of a set: letters, digits, dots, dashes and underscores")]
    Name(String),
    /// Another set has the name.
    #[error("there are two sets with the name {0:?}")]
    Twice(String),
}

impl Sets {
    /// Adds a set. **Cost**: that of [`AddressSet::new`]. **Errors**: the name is wrong, or taken.
    pub fn add(&mut self, name: &str, addresses: Addresses) -> Result<(), SetError> {
        if !names::is_set_name(name) {
            return Err(SetError::Name(name.to_owned()));
        }
        if self.0.contains_key(name) {
            return Err(SetError::Twice(name.to_owned()));
        }
        Arc::make_mut(&mut self.0).insert(name.to_owned(), Arc::new(AddressSet::new(addresses)));
        Ok(())
    }

    /// Returns a set by its name without the `@`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<AddressSet>> {
        self.0.get(name)
    }

    /// The names of the sets, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Whether there is no set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Collections are equal if they share their sets.
impl PartialEq for Sets {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || (self.is_empty() && other.is_empty())
    }
}

impl Eq for Sets {}
