//! Messages on errors of the system.

use std::io;

/// Short description of a system error, with a remedy if one is known.
pub fn io_words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "no such file".to_owned(),
        io::ErrorKind::PermissionDenied => {
            "permission denied: make it readable to you, or run weir as a user who may read it"
                .to_owned()
        }
        io::ErrorKind::IsADirectory => {
            "is a directory: name the capture files in it, for instance DIR/*.pcap".to_owned()
        }
        // What the standard library says of a text with other bytes.
        io::ErrorKind::InvalidData if error.to_string().contains("valid UTF-8") => {
            "it is not text (UTF-8)".to_owned()
        }
        // An error of our own says how much is free.
        io::ErrorKind::StorageFull if error.get_ref().is_some() => error.to_string(),
        io::ErrorKind::StorageFull => "no space left on the device".to_owned(),
        _ => match error.raw_os_error() {
            Some(_) => {
                let text = error.to_string();
                text.split(" (os error")
                    .next()
                    .unwrap_or(&text)
                    .to_lowercase()
            }
            None => error.to_string(),
        },
    }
}

/// Short reason why a file cannot be created. If access is denied, `advice` follows.
pub fn create_words(error: &io::Error, advice: &str) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "cannot be created: its directory does not exist".to_owned(),
        io::ErrorKind::PermissionDenied => format!("cannot be created: permission denied{advice}"),
        io::ErrorKind::IsADirectory => "cannot be written: it is a directory".to_owned(),
        _ => format!("cannot be created: {}", io_words(error)),
    }
}

/// Words for an error of a record directory.
pub fn directory_words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "no such directory".to_owned(),
        io::ErrorKind::NotADirectory => "is not a directory".to_owned(),
        _ => io_words(error),
    }
}

/// Returns the line without the numbers that the standard library puts after the words of the
/// system.
pub fn without_codes(line: &str) -> String {
    let mut words = String::with_capacity(line.len());
    let mut rest = line;
    while let Some((before, behind)) = rest.split_once(" (os error ") {
        words.push_str(before);
        rest = match behind.split_once(')') {
            Some((code, behind)) if code.bytes().all(|byte| byte.is_ascii_digit()) => behind,
            _ => {
                words.push_str(" (os error ");
                behind
            }
        };
    }
    words.push_str(rest);
    words
}

/// Path of this program, quoted for a shell.
pub fn own_path() -> String {
    std::env::current_exe().map_or("weir".to_owned(), |path| quoted(&path.to_string_lossy()))
}

/// A path as it is typed in a shell.
pub fn quoted(path: &str) -> String {
    let plain = path
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || "/._-+".contains(c));
    if plain {
        path.to_owned()
    } else {
        format!("'{}'", path.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::{quoted, without_codes};

    #[test]
    fn numbers_of_system_errors_are_left_out_and_nothing_else() {
        let missing = std::io::Error::from_raw_os_error(2);
        assert_eq!(
            without_codes(&format!("a: {missing}; b: {missing}")),
            "a: No such file or directory; b: No such file or directory"
        );
        for line in ["", "(os error 2)", "x (os error two)", "x (os error 2"] {
            assert_eq!(without_codes(line), line);
        }
    }

    #[test]
    fn paths_are_quoted_for_a_shell() {
        assert_eq!(quoted("/usr/bin/weir"), "/usr/bin/weir");
        assert_eq!(quoted("/a b/it's"), r"'/a b/it'\''s'");
    }
}
