//! From text to a permission table.

use super::{AddressChange, Change, Full, PermissionTable, Span};
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
    /// The words are not a line of a table.
    #[error(
        "{0:?} is not a line of a table: default accept|refuse, ban ADDRESSES, unban ADDRESSES, accept D from SOURCES, refuse D from SOURCES"
    )]
    NoLine(String),
    /// `default` after a line that changes permissions.
    #[error("default stands before all other lines")]
    LateDefault,
    /// More addresses than a line bans.
    #[error(
        "a line bans at most {MOST_BANNED} addresses: larger prefixes belong into a set of the rules"
    )]
    ManyBanned,
    /// An address that is none.
    #[error("{0:?} is not an address")]
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
            apply(line, &mut table, most, seed).map_err(|why| TableError {
                line: number + 1,
                why,
            })?;
        }
    }
    Ok(table.unwrap_or_else(|| PermissionTable::new(most, true, seed)))
}

fn apply(
    line: &str,
    table: &mut Option<PermissionTable>,
    most: usize,
    seed: u64,
) -> Result<(), TableWhy> {
    if let ["default", default @ ("accept" | "refuse")] =
        line.split_whitespace().collect::<Vec<_>>()[..]
    {
        return match table {
            Some(_) => Err(TableWhy::LateDefault),
            None => {
                *table = Some(PermissionTable::new(most, default == "accept", seed));
                Ok(())
            }
        };
    }
    let table = table.get_or_insert_with(|| PermissionTable::new(most, true, seed));
    changes(line)?
        .iter()
        .try_for_each(|change| table.apply(change))
        .map_err(TableWhy::Full)
}

/// Reads the changes of a line other than `default`.
pub(super) fn changes(line: &str) -> Result<Vec<AddressChange>, TableWhy> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let address = |text: &str| {
        text.parse::<IpAddr>()
            .map_err(|_| TableWhy::NoAddress(text.to_owned()))
    };
    match words[..] {
        [word @ ("ban" | "unban"), banned] => flags(&addresses_in(banned)?, word == "ban"),
        [word @ ("accept" | "refuse"), destination, "from", sources] => {
            let (destination, accepts) = (address(destination)?, word == "accept");
            let sources = if sources == "any" {
                Addresses::all()
            } else {
                addresses_in(sources)?
            };
            let is_other = |other: bool| other && sources != Addresses::all();
            match destination {
                IpAddr::V4(_) if is_other(!sources.v6().is_empty()) => {
                    Err(TableWhy::TwoFamilies(destination))
                }
                IpAddr::V6(_) if is_other(!sources.v4().is_empty()) => {
                    Err(TableWhy::TwoFamilies(destination))
                }
                IpAddr::V4(address) => Ok(acceptances(
                    address.to_bits(),
                    &sources,
                    accepts,
                    AddressChange::V4,
                )),
                IpAddr::V6(address) => Ok(acceptances(
                    address.to_bits(),
                    &sources,
                    accepts,
                    AddressChange::V6,
                )),
            }
        }
        _ => Err(TableWhy::NoLine(line.to_owned())),
    }
}

/// Most addresses that a line bans.
const MOST_BANNED: u128 = 1 << 16;

fn flags(addresses: &Addresses, flag: bool) -> Result<Vec<AddressChange>, TableWhy> {
    let number = |len: u128| len.saturating_add(1);
    let v4 = addresses
        .v4()
        .iter()
        .map(|(first, last)| number(u128::from(last - first)));
    let all = v4
        .chain(
            addresses
                .v6()
                .iter()
                .map(|(first, last)| number(last - first)),
        )
        .fold(0, u128::saturating_add);
    if all > MOST_BANNED {
        return Err(TableWhy::ManyBanned);
    }
    let v4 = addresses
        .v4()
        .iter()
        .flat_map(|(first, last)| *first..=*last);
    let v6 = addresses
        .v6()
        .iter()
        .flat_map(|(first, last)| *first..=*last);
    let banned = v4
        .map(|v4| IpAddr::from(v4.to_be_bytes()))
        .chain(v6.map(|v6| IpAddr::from(v6.to_be_bytes())));
    Ok(banned
        .map(|address| AddressChange::banning(address, flag))
        .collect())
}

fn acceptances<A: Address>(
    address: A,
    sources: &Addresses,
    accepts: bool,
    of_family: impl Fn(Change<A>) -> AddressChange,
) -> Vec<AddressChange> {
    let spans = A::ranges_of(sources)
        .iter()
        .filter_map(|&(first, last)| Span::new(first, last));
    let change = |span| Change {
        address,
        persona_non_grata: None,
        accepts: Some((span, accepts)),
    };
    spans.map(|span| of_family(change(span))).collect()
}
