//! Rules and sets from files, and rules from rulesets of nftables.

use crate::outcome::{io_words, say};
use crate::table::shortened_to;
use crate::walls;
use anyhow::{anyhow, bail};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use weir_engine::firewall::changes::GivenRules;
use weir_engine::firewall::watch::directory_of;
use weir_engine::name::Name;
use weir_firewall::nft::{self, Translation};
use weir_firewall::permissions::PermissionTable;
use weir_firewall::rules::{RuleError, RuleList, Why};
use weir_io::sys::Access;

/// Largest size of a rules file, and of the file of a set, bytes.
const MOST: u64 = 256 << 20;

/// A file with rules.
#[derive(Clone, Debug)]
pub struct RulesFile {
    /// Path of the rules file.
    pub name: Name,
    /// Whether it is a ruleset of nftables, which is translated.
    pub is_nft: bool,
}

impl RulesFile {
    /// Returns the file of `--rules` or `--from-nft`.
    pub fn of(rules: Option<&Name>, from_nft: Option<&Name>) -> Option<Self> {
        let rules = rules.map(|name| Self {
            name: name.clone(),
            is_nft: false,
        });
        rules.or_else(|| {
            from_nft.map(|name| Self {
                name: name.clone(),
                is_nft: true,
            })
        })
    }

    /// Name of the rules in messages, which number lines.
    pub fn called(&self) -> String {
        let name = self.name.as_source();
        if self.is_nft {
            format!("{name} (as weir firewall translate prints it)")
        } else {
            name
        }
    }
}

/// Translates a ruleset of nftables.
pub fn translation(ruleset: &Name) -> anyhow::Result<Translation> {
    translated(ruleset, &text_of(ruleset, |path| File::open(path))?)
}

fn translated(ruleset: &Name, json: &str) -> anyhow::Result<Translation> {
    nft::translate(json).map_err(|error| anyhow!("{}: {error}", ruleset.as_source()))
}

/// Reads a rules file that may be read again: the file and those of its sets are regular ones. A pipe would be waited for.
pub fn read_again(rules: &RulesFile) -> anyhow::Result<RuleList> {
    read_by(rules, regular)
}

/// Opens a regular file.
fn regular(path: &Path) -> io::Result<File> {
    match std::fs::metadata(path)?.is_file() {
        true => File::open(path),
        false => Err(io::Error::other(
            "not a regular file, which could be read again",
        )),
    }
}

/// Reads a rules file. Names of files in it are relative to its directory.
pub fn read(rules: &RulesFile) -> anyhow::Result<RuleList> {
    read_by(rules, |path| File::open(path))
}

/// Reads the text of a file of rules, or that of standard input.
fn text_of(rules: &Name, open_file: impl Fn(&Path) -> io::Result<File>) -> anyhow::Result<String> {
    let called = rules.as_source();
    let open = if rules.is_dash() {
        File::open("/dev/stdin")
    } else {
        open_file(Path::new(rules))
    };
    open.and_then(text).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => {
            anyhow!(
                "{called}: {}{}",
                io_words(&error),
                walls::advice(Path::new(rules), Access::Read)
            )
        }
        io::ErrorKind::IsADirectory => anyhow!("{called} is a directory: name a file"),
        io::ErrorKind::NotFound if rules.utf8().contains(' ') => anyhow!(
            "{called}: no such file; a rule comes from a file: echo '{called}' >rules.txt, and --rules rules.txt"
        ),
        _ => anyhow!("{called}: {}", io_words(&error)),
    })
}

fn read_by(
    rules: &RulesFile,
    open_file: impl Fn(&Path) -> io::Result<File>,
) -> anyhow::Result<RuleList> {
    let mut text = text_of(&rules.name, &open_file)?;
    if rules.is_nft {
        let translation = translated(&rules.name, &text)?;
        refuse_parts(&rules.name, &translation)?;
        text = translation.text;
    }
    let directory = directory_of(&rules.name);
    let mut set = |name: &str| open_file(&directory.join(name)).and_then(self::text);
    let list = RuleList::parse(&text, &mut set).map_err(|error| refused(error, &rules.called()))?;
    check_empty(&list, &text, rules.name.utf8(), &rules.name.as_source())?;
    Ok(list)
}

/// Reads the rules of a request, which have the addresses of their sets.
pub fn given(given: &GivenRules<'_>) -> anyhow::Result<RuleList> {
    let GivenRules { text, called } = *given;
    let mut set = |_: &str| {
        let why = "rules in a request have the addresses of their sets in them";
        Err(io::Error::other(why))
    };
    let list = RuleList::parse(text, &mut set).map_err(|error| refused(error, called))?;
    check_empty(&list, text, called, called)?;
    Ok(list)
}

/// Reads a rules file for a request. Returns the text of the list, with the addresses of its sets.
pub fn for_request(rules: &Name) -> anyhow::Result<String> {
    let open_file = |path: &Path| File::open(path);
    let text = text_of(rules, open_file)?;
    let directory = directory_of(rules);
    let mut set = |name: &str| open_file(&directory.join(name)).and_then(self::text);
    RuleList::with_sets(&text, &mut set).map_err(|error| refused(error, &rules.as_source()))
}

fn refused(error: RuleError, called: &str) -> anyhow::Error {
    match error {
        // Its own words name the file of the set.
        RuleError { file: Some(_), .. } => anyhow!("{}", shortened_to(600, &error.to_string())),
        RuleError {
            line,
            why: Why::SetFile { file, error },
            ..
        } => {
            anyhow!("{called}: line {line}: {file}: {}", io_words(&error))
        }
        // A line may be one word of megabytes.
        error => anyhow!("{called}: {}", shortened_to(600, &error.to_string())),
    }
}

/// Refuses a list without a rule, or a line for the rest. A list of nothing, by which all pass, is more often the output of a command that
/// failed, or a file that is still written, than a wish. Who wants no rules beside a table names /dev/null.
fn check_empty(list: &RuleList, text: &str, name: &str, called: &str) -> anyhow::Result<()> {
    let says = |line: &str| {
        !line.trim().is_empty()
            && !line.trim_start().starts_with(['#'])
            && !line.starts_with("set ")
    };
    if list.rules.is_empty() && !text.lines().any(says) && name != "/dev/null" {
        bail!("{called}: there is neither a rule nor a line as default pass");
    }
    Ok(())
}

/// Refuses a translation that lacks parts of the ruleset, which are all named on standard error.
fn refuse_parts(ruleset: &Name, Translation { refused, .. }: &Translation) -> anyhow::Result<()> {
    if refused.is_empty() {
        return Ok(());
    }
    refused.iter().for_each(|part| say(&part.to_string()));
    let called = ruleset.as_source();
    bail!(
        "{called}: {} not translated: weir firewall translate prints the rest",
        counted_parts(refused.len())
    )
}

/// Words for a number of parts.
pub fn counted_parts(count: usize) -> String {
    if count == 1 {
        "1 part is".to_owned()
    } else {
        format!("{count} parts are")
    }
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
    let text = File::open(name)
        .and_then(text)
        .map_err(|error| anyhow!("{called}: {}", io_words(&error)))?;
    PermissionTable::parse(&text, MOST_ADDRESSES, seed()?)
        .map_err(|error| anyhow!("{called}: {error}"))
}

fn text(file: File) -> io::Result<String> {
    let mut bytes = Vec::new();
    file.take(MOST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MOST {
        return Err(io::Error::other(format!("larger than {} MiB", MOST >> 20)));
    }
    // Some editors begin a text with a byte order mark.
    let marked = bytes
        .strip_prefix("\u{feff}".as_bytes())
        .map(<[u8]>::to_vec);
    String::from_utf8(marked.unwrap_or(bytes))
        .map_err(|_| io::Error::other("it is not text (UTF-8)"))
}
