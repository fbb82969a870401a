//! Databases of networks, autonomous systems and countries.

use crate::errors::io_words;
use crate::{Refusal, refusal, refuse};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use weir_engine::name::Name;
use weir_measure::{Geo, KeyKind};

/// Largest size of a file, bytes: ten times the largest known file.
const MOST: u64 = 2 << 30;

/// Kind of key of which a column of an address shows a part: `src_country`, or `country` with another key.
pub fn kind_of_column(column: &str) -> Option<KeyKind> {
    let ends = ["src_", "dst_"];
    let part = ends.iter().find_map(|end| column.strip_prefix(end));
    match part.unwrap_or(column) {
        "asn" | "as_name" => Some(KeyKind::Asn),
        "country" => Some(KeyKind::Country),
        "network" => Some(KeyKind::Network),
        _ => None,
    }
}

/// Columns of a list that come from databases, with the kinds of key that they are parts of.
pub fn of_columns(list: Option<&str>) -> impl Iterator<Item = (&str, KeyKind)> {
    let columns = list.into_iter().flat_map(|list| list.split(','));
    columns.filter_map(|column| Some((column, kind_of_column(column)?)))
}

/// Refuses a key or a column that the databases cannot give; `what` asks for it.
pub fn check(geo: Option<&Geo>, what: &str, kind: KeyKind) -> Result<(), Refusal> {
    let Some(geo) = geo else {
        refuse!("{what} needs a database of addresses: add --geo FILE.mmdb");
    };
    let (which, such) = match kind {
        KeyKind::Asn => ("AS numbers", "GeoLite2-ASN.mmdb"),
        _ => ("countries", "GeoLite2-Country.mmdb"),
    };
    if !geo.has(kind) {
        refuse!("{what}: no file of --geo has {which}: add one that has, such as {such}");
    }
    Ok(())
}

/// Reads databases in the MaxMind DB format; `None` if no file is named. **Cost**: some tenths of a second for 10 MB. **Errors**: a file
/// that cannot be read, is damaged, or tells neither AS numbers nor countries.
pub fn read_geo(files: &[Name]) -> Result<Option<Arc<Geo>>, Refusal> {
    let mut geo = Geo::default();
    for file in files {
        if file.is_dash() {
            refuse!("--geo -: name a file; standard input has packets");
        }
        let bytes = bytes_of(file.as_ref());
        let bytes = bytes.map_err(|error| refusal!("--geo {file}: {}", words(&error)))?;
        geo.add(bytes).map_err(|error| {
            refusal!("--geo {file}: not a whole file in the MaxMind DB format (.mmdb): {error}")
        })?;
    }
    Ok((!files.is_empty()).then(|| Arc::new(geo)))
}

fn bytes_of(file: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut file = File::open(file)?.take(MOST + 1);
    file.read_to_end(&mut bytes)?;
    match bytes.len() as u64 > MOST {
        true => Err(io::Error::other("it is larger than 2 GiB")),
        false => Ok(bytes),
    }
}

fn words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::IsADirectory => "it is a directory: name a file in it".to_owned(),
        _ => io_words(error),
    }
}
