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

/// Reads databases in the MaxMind DB format for these keys, which `may_change` later; `None` if no file is named. **Cost**: some tenths of a second for 10 MB. **Errors**: a file
/// that cannot be read, is damaged, or tells neither AS numbers nor countries; no key needs one.
pub fn read_geo(
    files: &[Name],
    keys: &[KeyKind],
    may_change: bool,
) -> Result<Option<Arc<Geo>>, Refusal> {
    if !files.is_empty() && !may_change && !keys.iter().any(|key| key.needs_geo()) {
        refuse!("--geo is for the keys asn, country and network: add --key asn");
    }
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
