//! Rules and sets from files.

use super::directory_of;
use crate::outcome::io_words;
use crate::walls;
use anyhow::{anyhow, bail};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use weir_engine::name::Name;
use weir_firewall::permissions::PermissionTable;
use weir_firewall::rules::{RuleError, RuleList, Why};
use weir_io::sys::Access;

/// Largest size of a rules file, and of the file of a set, bytes.
const MOST: u64 = 256 << 20;

/// Reads a rules file that may be read again: the file and those of its sets are regular ones, and it has a rule or a line for the rest.
///
/// A pipe would be waited for; and a list of nothing, by which all pass, is more often a file that is still written than a wish.
pub fn read_again(rules: &Name) -> anyhow::Result<RuleList> {
    let list = read_by(rules, regular)?;
    let text = regular(Path::new(rules)).and_then(text).unwrap_or_default();
    let says =
        |line: &str| !line.trim().is_empty() && !line.trim_start().starts_with(['#']) && !line.starts_with("set ");
    if list.rules.is_empty() && !text.lines().any(says) {
        bail!("{}: there is neither a rule nor a line as default pass", rules.as_source());
    }
    Ok(list)
}

/// Opens a regular file.
fn regular(path: &Path) -> io::Result<File> {
    match std::fs::metadata(path)?.is_file() {
        true => File::open(path),
        false => Err(io::Error::other("no regular file, which could be read again")),
    }
}

/// Reads a rules file. Names of files in it are relative to its directory.
pub fn read(rules: &Name) -> anyhow::Result<RuleList> {
    read_by(rules, |path| File::open(path))
}

fn read_by(rules: &Name, open_file: impl Fn(&Path) -> io::Result<File>) -> anyhow::Result<RuleList> {
    let called = rules.as_source();
    let open = if rules.is_dash() { File::open("/dev/stdin") } else { open_file(Path::new(rules)) };
    let text = open.and_then(text).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => {
            anyhow!("{called}: {}{}", io_words(&error), walls::advice(Path::new(rules), Access::Read))
        }
        _ => anyhow!("{called}: {}", io_words(&error)),
    })?;
    let directory = directory_of(rules);
    RuleList::parse(&text, &mut |name| open_file(&directory.join(name)).and_then(self::text)).map_err(|error| {
        match error {
            // Its own words name the file of the set.
            RuleError { file: Some(_), .. } => anyhow!("{error}"),
            RuleError { line, why: Why::SetFile { file, error }, .. } => {
                anyhow!("{called}: line {line}: {file}: {}", io_words(&error))
            }
            error => anyhow!("{called}: {error}"),
        }
    })
}

/// Largest number of addresses of a family whose permissions are changed.
const MOST_ADDRESSES: usize = 16 << 20;

/// An empty permission table: all pass.
pub fn empty_table() -> anyhow::Result<PermissionTable> {
    Ok(PermissionTable::new(MOST_ADDRESSES, true, seed()?))
}

/// Random number that decides where addresses lie in memory.
pub fn seed() -> anyhow::Result<u64> {
    let mut seed = [0; 8];
    getrandom::fill(&mut seed).map_err(|error| anyhow!("random numbers: {error}"))?;
    Ok(u64::from_ne_bytes(seed))
}

/// Reads a permission table.
pub fn table(name: &Name) -> anyhow::Result<PermissionTable> {
    let called = name.as_source();
    let text = File::open(name).and_then(text).map_err(|error| anyhow!("{called}: {}", io_words(&error)))?;
    PermissionTable::parse(&text, MOST_ADDRESSES, seed()?).map_err(|error| anyhow!("{called}: {error}"))
}

fn text(file: File) -> io::Result<String> {
    let mut bytes = Vec::new();
    file.take(MOST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MOST {
        return Err(io::Error::other(format!("larger than {} MiB", MOST >> 20)));
    }
    String::from_utf8(bytes).map_err(|_| io::Error::other("it is no text (UTF-8)"))
}
