//! The permission table of the multithreaded packet filter: who is *persona non grata*, and which sources a destination accepts.
//!
//! A packet passes if its source is not *persona non grata* and its destination accepts the source. A [`Change`] sets both for one address,
//! as one step. [`Permissions`] is the serial table of one family of addresses, and [`PermissionTable`] holds both families.
//!
//! A table is read from a text, one change a line, applied in their order ([`PermissionTable::parse`]):
//!
//! ```text
//! default accept                                # what destinations accept that no line names; accept unless given
//! ban 192.0.2.7                                 # persona non grata: no packet from it passes
//! unban 192.0.2.7                               # an address, or a prefix or range of up to 65536 addresses
//! refuse 10.0.0.5 from any                      # a destination, and sources: addresses, prefixes, ranges
//! accept 10.0.0.5 from 10.1.0.0/16,10.2.0.9
//! ```
//!
//! **Source**: Smith, "Multithreaded packet filter" (Brown University), after the final problem set of the MIT course 6.816.

pub(crate) mod log;
mod parse;
mod ranges;
mod table;

pub use parse::{TableError, TableWhy};
pub use ranges::Ranges;
pub use table::Full;

use crate::{Address, DecidedBy, Fields};
use core::net::IpAddr;
use table::{Entry, Table};

/// Sources from `first` to `last`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Span<A> {
    first: A,
    last: A,
}

impl<A: Address> Span<A> {
    /// The sources from `first` to `last`; `None` if the ends are reversed.
    pub fn new(first: A, last: A) -> Option<Self> {
        (first <= last).then_some(Self { first, last })
    }

    /// The sources from `begin` to the one before `end`. `None` for `end` is the end of the address space.
    ///
    /// Returns `None` for a range without an address, or with reversed ends.
    pub fn half_open(begin: A, end: Option<A>) -> Option<Self> {
        match end {
            None => Some(Self {
                first: begin,
                last: A::LAST,
            }),
            Some(end) if begin < end => Some(Self {
                first: begin,
                last: end.before(),
            }),
            Some(_) => None,
        }
    }

    /// Whether the source is among these.
    pub fn contains(&self, source: A) -> bool {
        self.first <= source && source <= self.last
    }
}

/// A change of the permissions of one address, in one step. A part that is `None` stays as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Change<A> {
    /// The address.
    pub address: A,
    /// Whether it is *persona non grata* from now on: no packet from it passes.
    pub persona_non_grata: Option<bool>,
    /// Sources, and whether the address accepts packets from them from now on.
    pub accepts: Option<(Span<A>, bool)>,
}

/// The serial permission table.
///
/// **Cost**: a look is two searches in a hash table and one in the ranges of a destination, without
/// allocation; a change is one search in the hash table, and moves the ranges after it.
#[derive(Clone, Debug)]
pub struct Permissions<A> {
    addresses: Table<A>,
    /// Accepted sources of the destinations that have others than the rest.
    rows: Vec<Ranges<A>>,
    /// Whether all other destinations accept every source, or none.
    default: bool,
}

impl<A: Address> Permissions<A> {
    /// Makes a table of up to `most` addresses that were changed. All others are no *persona non grata*, and accept every source if
    /// `default`, else none. The `seed` decides where addresses lie in memory, so that nobody can choose addresses that collide.
    pub fn new(most: usize, default: bool, seed: u64) -> Self {
        Self {
            addresses: Table::new(most, seed),
            rows: Vec::new(),
            default,
        }
    }

    /// Whether the destination accepts the source.
    #[inline]
    pub fn accepts(&self, destination: A, source: A) -> bool {
        self.row(destination)
            .map_or(self.default, |row| row.contains(source))
    }

    #[inline]
    fn row(&self, destination: A) -> Option<&Ranges<A>> {
        self.rows.get(self.addresses.get(destination)?.row()?)
    }

    /// Whether a packet passes.
    #[inline]
    pub fn passes(&self, source: A, destination: A) -> bool {
        self.denies(source, destination).is_none()
    }

    /// Starts to fetch what [`Self::denies`] needs.
    #[inline]
    pub fn prefetch(&self, source: A, destination: A) {
        self.addresses.prefetch(source);
        self.addresses.prefetch(destination);
    }

    /// Starts to fetch what changes need.
    fn prefetch_changes(&self, changes: &[Change<A>]) {
        changes
            .iter()
            .for_each(|change| self.addresses.prefetch(change.address));
        for change in changes.iter().filter(|change| change.accepts.is_some()) {
            if let Some(row) = self.row(change.address) {
                row.prefetch();
            }
        }
    }

    /// Returns the reason for which a packet does not pass, if it does not.
    #[inline]
    pub fn denies(&self, source: A, destination: A) -> Option<DecidedBy> {
        if self.is_persona_non_grata(source) {
            return Some(DecidedBy::PersonaNonGrata);
        }
        (!self.accepts(destination, source)).then_some(DecidedBy::NotAccepted)
    }

    /// Returns the addresses from which no packet passes, in no order.
    pub fn banned(&self) -> impl Iterator<Item = A> {
        self.addresses
            .iter()
            .filter(|(_, entry)| entry.flag())
            .map(|(address, _)| address)
    }

    /// Whether no packet from this address passes.
    #[inline]
    pub fn is_persona_non_grata(&self, address: A) -> bool {
        self.addresses.get(address).is_some_and(Entry::flag)
    }

    /// Checks that there is room for all of these changes together. **Errors**: there is not.
    pub fn has_room<'a>(
        &self,
        changes: impl IntoIterator<Item = &'a Change<A>, IntoIter: Clone>,
    ) -> Result<(), Full>
    where
        A: 'a,
    {
        let is_change =
            |change: &&Change<A>| change.persona_non_grata.is_some() || change.accepts.is_some();
        self.addresses.has_room_for_all(
            changes
                .into_iter()
                .filter(is_change)
                .map(|change| change.address),
        )
    }

    /// Forgets the accepted sources of destinations for which `keeps` returns `false`, which are then like all others.
    fn retain(&mut self, keeps: impl Fn(A) -> bool) {
        let mut rows = std::mem::take(&mut self.rows);
        for (address, entry) in self.addresses.iter_mut() {
            let kept = entry.row().filter(|_| keeps(*address));
            *entry = entry.with_row(kept.map(|row| {
                self.rows.push(rows[row].take());
                self.rows.len() - 1
            }));
        }
    }

    /// Applies a change. **Errors**: there is no room for another address; nothing has changed then.
    pub fn apply(&mut self, change: &Change<A>) -> Result<(), Full> {
        let Change {
            address,
            persona_non_grata,
            accepts,
        } = *change;
        if persona_non_grata.is_none() && accepts.is_none() {
            return Ok(());
        }
        let entry = self.addresses.entry(address)?;
        // Most flags stay as they are: what is not written need not leave the caches of other processors.
        if let Some(flag) = persona_non_grata
            && entry.flag() != flag
        {
            *entry = entry.with_flag(flag);
        }
        if let Some((sources, accepts)) = accepts {
            let row = entry.row().unwrap_or(self.rows.len());
            if row == self.rows.len() {
                *entry = entry.with_row(Some(row));
                self.rows.push(Ranges::new(self.default));
            }
            self.rows[row].set(sources.first, sources.last, accepts);
        }
        Ok(())
    }
}

/// A change of the permissions of an address of either family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressChange {
    /// An IPv4 address.
    V4(Change<u32>),
    /// An IPv6 address.
    V6(Change<u128>),
}

impl AddressChange {
    /// Reads the changes of a line of a table, other than `default`. **Errors**: the reason for which the line is refused.
    pub fn parse(line: &str) -> Result<Vec<Self>, TableWhy> {
        parse::changes(line)
    }

    /// The change by which an address becomes *persona non grata*, or no longer is.
    pub fn banning(address: IpAddr, persona_non_grata: bool) -> Self {
        let flag = Some(persona_non_grata);
        match address {
            IpAddr::V4(v4) => Self::V4(Change {
                address: v4.to_bits(),
                persona_non_grata: flag,
                accepts: None,
            }),
            IpAddr::V6(v6) => Self::V6(Change {
                address: v6.to_bits(),
                persona_non_grata: flag,
                accepts: None,
            }),
        }
    }

    /// Returns the address.
    pub fn address(&self) -> IpAddr {
        match self {
            Self::V4(change) => IpAddr::from(change.address.to_be_bytes()),
            Self::V6(change) => IpAddr::from(change.address.to_be_bytes()),
        }
    }

    /// Returns the *persona non grata* flag that the address has from now on, if it changes.
    pub fn persona_non_grata(&self) -> Option<bool> {
        match self {
            Self::V4(change) => change.persona_non_grata,
            Self::V6(change) => change.persona_non_grata,
        }
    }
}

/// The serial permission tables of both families.
#[derive(Clone, Debug)]
pub struct PermissionTable {
    /// Permissions of IPv4 addresses.
    pub v4: Permissions<u32>,
    /// Permissions of IPv6 addresses.
    pub v6: Permissions<u128>,
}

impl PermissionTable {
    /// Makes tables of up to `most` changed addresses each; see [`Permissions::new`].
    pub fn new(most: usize, default: bool, seed: u64) -> Self {
        Self {
            v4: Permissions::new(most, default, seed),
            v6: Permissions::new(most, default, seed),
        }
    }

    /// Reads a table from its text; see [`permissions`](crate::permissions). At most `most` addresses of each family are changed.
    ///
    /// **Errors**: the first line that is refused.
    pub fn parse(text: &str, most: usize, seed: u64) -> Result<Self, TableError> {
        parse::table(text, most, seed)
    }

    /// Returns the addresses from which no packet passes, in no order.
    pub fn banned(&self) -> impl Iterator<Item = IpAddr> {
        let v4 = self
            .v4
            .banned()
            .map(|address| IpAddr::from(address.to_be_bytes()));
        v4.chain(
            self.v6
                .banned()
                .map(|address| IpAddr::from(address.to_be_bytes())),
        )
    }

    /// Checks that there is room for all of these changes together. **Errors**: there is not.
    pub fn has_room<'a>(
        &self,
        changes: impl IntoIterator<Item = &'a AddressChange, IntoIter: Clone>,
    ) -> Result<(), Full> {
        let changes = changes.into_iter();
        self.v4
            .has_room(changes.clone().filter_map(|change| match change {
                AddressChange::V4(change) => Some(change),
                AddressChange::V6(_) => None,
            }))?;
        self.v6.has_room(changes.filter_map(|change| match change {
            AddressChange::V4(_) => None,
            AddressChange::V6(change) => Some(change),
        }))
    }

    /// Applies a change. **Errors**: there is no room for another address; nothing has changed then.
    pub fn apply(&mut self, change: &AddressChange) -> Result<(), Full> {
        match change {
            AddressChange::V4(change) => self.v4.apply(change),
            AddressChange::V6(change) => self.v6.apply(change),
        }
    }

    /// Starts to fetch what [`Self::denies`] needs.
    #[inline]
    pub fn prefetch(&self, fields: &Fields) {
        let [src, dst] = fields.v4();
        match fields.is_v6() {
            true => self.v6.prefetch(fields.src(), fields.dst()),
            false => self.v4.prefetch(src, dst),
        }
    }

    /// Returns the reason for which an IP packet does not pass, if it does not.
    #[inline]
    pub fn denies(&self, fields: &Fields) -> Option<DecidedBy> {
        let [src, dst] = fields.v4();
        match fields.is_v6() {
            true => self.v6.denies(fields.src(), fields.dst()),
            false => self.v4.denies(src, dst),
        }
    }
}
