//! Sets of addresses in expressions: `src @banned`, `host @lan`.
//!
//! libpcap knows no sets. Each set gets *markers*, an IPv4 and an IPv6 address that are in its
//! place in the text that libpcap compiles. In the program, comparisons with markers become tests
//! of the set.

mod ahead;
mod either;
mod lookup;
mod markers;
pub(crate) mod runs;
mod table;

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_packet::addresses::Addresses;

use crate::names;
pub use crate::names::is_set_name as is_name;
pub(crate) use ahead::Lookup;
pub use lookup::AddressSet;
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
        Self {
            resolve,
            sets: Sets::default(),
        }
    }
}

impl Names {
    /// No sets, and no look-ups.
    pub const NONE: Self = Self {
        resolve: false,
        sets: Sets(None),
    };
}

/// Sets of addresses by name. Copies share the sets.
#[derive(Clone, Debug, Default)]
pub struct Sets(Option<Arc<BTreeMap<String, Arc<AddressSet>>>>);

/// Whether an expression names a set of addresses.
#[must_use]
pub fn are_named_in(expression: &str) -> bool {
    !named_in(expression).is_empty()
}

/// Names of the sets in an expression, without the `@`; a name may come several times.
#[must_use]
pub fn named_in(expression: &str) -> Vec<&str> {
    if !expression.contains('@') {
        return Vec::new();
    }
    names::sets(expression)
        .into_iter()
        .map(|word| word.name)
        .collect()
}

/// Reason for which a set is not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SetError {
    /// The name cannot be in an expression.
    #[error("{0:?} is not a name of a set: letters, digits, dots, dashes and underscores")]
    Name(String),
    /// Another set has the name.
    #[error("there are two sets with the name {0:?}")]
    Twice(String),
}

impl Sets {
    /// Adds a set. **Cost**: as of [`AddressSet::new`]. **Errors**: the name is wrong, or taken.
    pub fn add(&mut self, name: &str, addresses: Addresses) -> Result<(), SetError> {
        if !names::is_set_name(name) {
            return Err(SetError::Name(name.to_owned()));
        }
        if self.get(name).is_some() {
            return Err(SetError::Twice(name.to_owned()));
        }
        Arc::make_mut(self.0.get_or_insert_default())
            .insert(name.to_owned(), Arc::new(AddressSet::new(addresses)));
        Ok(())
    }

    /// Returns a set by its name without the `@`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<AddressSet>> {
        self.0.as_ref()?.get(name)
    }

    /// The names of the sets, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0
            .iter()
            .flat_map(|sets| sets.keys())
            .map(String::as_str)
    }

    /// Whether there is no set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

/// Collections are equal if they share their sets.
impl PartialEq for Sets {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(own), Some(other)) => Arc::ptr_eq(own, other),
            (own, other) => own.is_none() && other.is_none(),
        }
    }
}

impl Eq for Sets {}
