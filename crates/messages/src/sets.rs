//! Files of sets of addresses, which expressions name as in `src @banned`.

use crate::errors::io_words;
use crate::{Refusal, refusal, refuse};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use weir_engine::name::Name;
use weir_filter::Sets;
use weir_filter::sets::{are_named_in, is_name};
use weir_packet::addresses::Addresses;

/// Largest size of a file, bytes: some ten million addresses.
const MOST: u64 = 256 << 20;

/// A set and its file: an address, a prefix or a range of addresses a line; `#` begins a comment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetFile {
    /// Name of the set, without the `@`.
    pub name: String,
    /// File that has its addresses.
    pub file: Name,
}

/// Reads a set and its file as they are named: `NAME=FILE`. **Errors**: a line for people.
pub fn parse_set(text: &str) -> Result<SetFile, Refusal> {
    let Some((name, file)) = text.split_once('=').filter(|(_, file)| !file.is_empty()) else {
        refuse!("a set is a name and its file, as in banned=banned.txt");
    };
    let name = name.strip_prefix('@').unwrap_or(name);
    if !is_name(name) {
        refuse!("{name:?} is not a name of a set: letters, digits, dots, dashes and underscores");
    }
    if file == "-" {
        refuse!("a set is read from a file or a named pipe; standard input has packets");
    }
    Ok(SetFile {
        name: name.to_owned(),
        file: Name::from(file),
    })
}

/// Refuses sets that no expression names: most likely the expression was left out.
pub fn check_sets<'a>(
    files: &[SetFile],
    expressions: impl IntoIterator<Item = &'a str>,
) -> Result<(), Refusal> {
    let Some(SetFile { name, .. }) = files.first() else {
        return Ok(());
    };
    match expressions.into_iter().any(are_named_in) {
        true => Ok(()),
        false => Err(refusal!(
            "--set {name}: no expression names a set: write src @{name}, host @{name} or net @{name}"
        )),
    }
}

/// Sets that were read, and lines about them.
#[derive(Clone, Debug, Default)]
pub struct ReadSets {
    /// The sets.
    pub sets: Sets,
    /// Lines for people.
    pub remarks: Vec<String>,
}

/// Reads the files of sets. **Cost**: some hundred nanoseconds for each address. **Errors**: the first file that cannot be read, or line that is
/// no address.
pub fn read_sets(files: &[SetFile]) -> Result<ReadSets, Refusal> {
    read_by(files, |path| File::open(path))
}

/// Reads the files of sets once more. **Errors**: as of [`read_sets`]; a file is not a regular
/// file: reading a pipe would wait.
pub fn read_sets_again(files: &[SetFile]) -> Result<ReadSets, Refusal> {
    read_by(files, |path| match std::fs::metadata(path)?.is_file() {
        true => File::open(path),
        false => Err(io::Error::other(
            "it is not a regular file, which alone is read again",
        )),
    })
}

fn read_by(
    files: &[SetFile],
    open: impl Fn(&Path) -> io::Result<File>,
) -> Result<ReadSets, Refusal> {
    let mut read = ReadSets::default();
    for SetFile { name, file } in files {
        if read.sets.get(name).is_some() {
            refuse!("--set {name}: two files have this name: name each set once");
        }
        let text = open(Path::new(file)).and_then(text_of);
        let text = text.map_err(|error| refusal!("--set {name}: {file}: {}", words(&error)))?;
        let addresses = Addresses::parse(text.strip_prefix('\u{feff}').unwrap_or(&text));
        // A line may be one word of megabytes.
        let addresses = addresses
            .map_err(|error| refusal!("--set {name}: {file}: {}", shortened(&error.to_string())))?;
        if addresses.is_empty() {
            read.remarks.push(format!(
                "--set {name}: {file} has no address: no packet matches @{name}"
            ));
        }
        read.sets
            .add(name, addresses)
            .map_err(|error| refusal!("--set {name}: {error}"))?;
    }
    Ok(read)
}

fn words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::IsADirectory => "it is a directory: name a file of addresses".to_owned(),
        _ => io_words(error),
    }
}

fn text_of(file: File) -> io::Result<String> {
    let mut text = String::new();
    file.take(MOST + 1).read_to_string(&mut text)?;
    match text.len() as u64 > MOST {
        true => Err(io::Error::other(format!(
            "it is larger than {} MiB",
            MOST >> 20
        ))),
        false => Ok(text),
    }
}

fn shortened(text: &str) -> String {
    const MOST: usize = 400;
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_testkit::Scratch;

    #[test]
    fn a_set_is_a_name_and_a_file() {
        let set = |name: &str, file: &str| SetFile {
            name: name.to_owned(),
            file: Name::from(file),
        };
        assert_eq!(parse_set("banned=a.txt"), Ok(set("banned", "a.txt")));
        assert_eq!(parse_set("@banned=a=b"), Ok(set("banned", "a=b")));
        for text in ["banned", "banned=", "=a", "a b=c", "a=-"] {
            assert!(parse_set(text).is_err(), "{text}");
        }
    }

    #[test]
    fn files_are_read_or_refused_by_their_names() {
        let scratch = Scratch::new();
        let file = |name: &str, text: &[u8]| SetFile {
            name: name.to_owned(),
            file: Name::from(&scratch.file(name, text)),
        };
        let good = file("good", b"# two\n10.0.0.1\n2001:db8::/32\n");
        let read = read_sets(&[good.clone(), file("empty", b"\n# nothing\n")]).unwrap();
        assert_eq!(read.sets.names().collect::<Vec<_>>(), ["empty", "good"]);
        assert_eq!(read.remarks.len(), 1, "{:?}", read.remarks);
        assert!(
            read.remarks[0].ends_with("has no address: no packet matches @empty"),
            "{:?}",
            read.remarks
        );
        let missing = SetFile {
            name: "x".into(),
            file: Name::from(&scratch.at("missing")),
        };
        for (files, wanted) in [
            (
                vec![file("bad", b"10.0.0.1\nwww\n")],
                "line 2: \"www\" is not an address, prefix or range of addresses",
            ),
            (vec![good.clone(), good.clone()], "two files have this name"),
            (vec![missing], "no such file"),
            (vec![file("bytes", b"\xff\xfe")], "it is not text (UTF-8)"),
            (vec![file("long", "1".repeat(1000).as_bytes())], "..."),
        ] {
            let refused = read_sets(&files).unwrap_err().to_string();
            assert!(
                refused.starts_with("--set ") && refused.contains(wanted),
                "{refused}"
            );
            assert!(refused.len() < 700, "{refused}");
        }
        let pipe = SetFile {
            name: "zero".into(),
            file: Name::from("/dev/zero"),
        };
        assert!(
            read_sets_again(&[pipe])
                .unwrap_err()
                .to_string()
                .contains("not a regular file")
        );
    }

    #[test]
    fn sets_without_an_expression_are_refused() {
        let files = [SetFile {
            name: "a".into(),
            file: Name::from("a.txt"),
        }];
        assert!(
            check_sets(&files, ["", "udp"])
                .unwrap_err()
                .to_string()
                .contains("no expression names a set")
        );
        assert_eq!(check_sets(&files, ["", "src @b"]), Ok(()));
        assert_eq!(check_sets(&[], [""]), Ok(()));
    }
}
