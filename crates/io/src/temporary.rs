//! Temporary files without a name.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Creates a file in `directory` for writing and reading. No other process can open it by a name, and it vanishes with its last
/// descriptor.
///
/// **Platform**: `O_TMPFILE` if the file system supports it; otherwise a new file whose name is removed at once.
pub fn unnamed(directory: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    match options
        .clone()
        .custom_flags(libc::O_TMPFILE)
        .open(directory)
    {
        Ok(file) => Ok(file),
        // If the disk is full or the access denied, the other method would fail too, with a less clear error.
        Err(error) if !is_unsupported(&error) => Err(error),
        Err(_) => named(&options, directory),
    }
}

/// Returns whether the file system, or an old kernel, has no files without a name.
fn is_unsupported(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EOPNOTSUPP | libc::EISDIR | libc::EINVAL)
    )
}

/// Creates a file and removes its name at once.
fn named(options: &OpenOptions, directory: &Path) -> io::Result<File> {
    /// Largest number of names that are tried, since others may make files of these names.
    const TRIES: u32 = 1000;
    let mut number = 0u32;
    loop {
        let path = directory.join(format!("weir-{}-{number}", std::process::id()));
        match options.clone().create_new(true).open(&path) {
            Ok(file) => return std::fs::remove_file(&path).map(|()| file),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < TRIES => {
                number += 1
            }
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Seek, Write};
    use std::os::unix::fs::MetadataExt;

    fn is_unnamed(mut file: File) {
        let about = file.metadata().unwrap();
        assert_eq!((about.nlink(), about.mode() & 0o777), (0, 0o600));
        file.write_all(b"kept").unwrap();
        file.rewind().unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "kept");
    }

    #[test]
    fn a_temporary_file_has_no_name_and_is_its_owners_alone() {
        let directory = std::env::temp_dir();
        is_unnamed(unnamed(&directory).unwrap());
        let mut options = OpenOptions::new();
        options.read(true).write(true).mode(0o600);
        is_unnamed(named(&options, &directory).unwrap());
    }

    #[test]
    fn a_directory_that_is_not_there_is_an_error() {
        let error = unnamed(Path::new("/nowhere/at/all")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
