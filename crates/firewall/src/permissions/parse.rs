//! From text to a permission table.

use super::{Change, Full, PermissionTable, Permissions, Span};
use crate::rules::{Why, addresses_in};
use crate::{Address, Addresses};
use core::net::IpAddr;

/// A line that is refused.
#[derive(Debug, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct TableError {
    /// Number of the line, from 1 on.
    pub line: usize,
    /// Reason.
    pub why: TableWhy,
}

/// Reason for which a line of a permission table is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TableWhy {
    /// The words are no line of a table.
    #[error(
        "{0:?} is no line of a table: default accept|refuse, ban A, unban A, accept D from SOURCES, refuse D from SOURCES"
    )]
    NoLine(String),
    /// `default` behind a line that changes permissions.
    #[error("default stands before all other lines")]
    LateDefault,
    /// An address that is none.
    #[error("{0:?} is no address")]
    NoAddress(String),
    /// Sources that are none.
    #[error(transparent)]
    Sources(#[from] Why),
    /// Sources of the other family.
    #[error("{0} and its sources are of different families")]
    TwoFamilies(IpAddr),
    /// Too many addresses.
    #[error(transparent)]
    Full(#[from] Full),
}

pub(super) fn table(text: &str, most: usize, seed: u64) -> Result<PermissionTable, TableError> {
    let mut table = None;
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if !line.is_empty() {
            apply(line, &mut table, most, seed).map_err(|why| TableError { line: number + 1, why })?;
        }
    }
    Ok(table.unwrap_or_else(|| PermissionTable::new(most, true, seed)))
}

fn apply(line: &str, table: &mut Option<PermissionTable>, most: usize, seed: u64) -> Result<(), TableWhy> {
    let words: Vec<&str> = line.split_whitespace().collect();
    if let ["default", default @ ("accept" | "refuse")] = words[..] {
        return match table {
            Some(_) => Err(TableWhy::LateDefault),
            None => {
                *table = Some(PermissionTable::new(most, default == "accept", seed));
                Ok(())
            }
        };
    }
    let table = table.get_or_insert_with(|| PermissionTable::new(most, true, seed));
    let address = |text: &str| text.parse::<IpAddr>().map_err(|_| TableWhy::NoAddress(text.to_owned()));
    match words[..] {
        [word @ ("ban" | "unban"), banned] => {
            let flag = Some(word == "ban");
            match address(banned)? {
                IpAddr::V4(address) => table.v4.apply(&flagged(address.to_bits(), flag))?,
                IpAddr::V6(address) => table.v6.apply(&flagged(address.to_bits(), flag))?,
            }
        }
        [word @ ("accept" | "refuse"), destination, "from", sources] => {
            let (destination, accepts) = (address(destination)?, word == "accept");
            let sources = if sources == "any" { Addresses::all() } else { addresses_in(sources)? };
            let is_other = |other: bool| other && sources != Addresses::all();
            match destination {
                IpAddr::V4(_) if is_other(!sources.v6().is_empty()) => return Err(TableWhy::TwoFamilies(destination)),
                IpAddr::V6(_) if is_other(!sources.v4().is_empty()) => return Err(TableWhy::TwoFamilies(destination)),
                IpAddr::V4(address) => set(&mut table.v4, address.to_bits(), &sources, accepts)?,
                IpAddr::V6(address) => set(&mut table.v6, address.to_bits(), &sources, accepts)?,
            }
        }
        _ => return Err(TableWhy::NoLine(line.to_owned())),
    }
    Ok(())
}

fn flagged<A>(address: A, persona_non_grata: Option<bool>) -> Change<A> {
    Change { address, persona_non_grata, accepts: None }
}

fn set<A: Address>(table: &mut Permissions<A>, address: A, sources: &Addresses, accepts: bool) -> Result<(), Full> {
    for &(first, last) in A::ranges_of(sources) {
        let accepts = Span::new(first, last).map(|sources| (sources, accepts));
        table.apply(&Change { address, persona_non_grata: None, accepts })?;
    }
    Ok(())
}
