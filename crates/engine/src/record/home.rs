//! The directory of a recording, which may be removed, renamed or mounted over while packets
//! arrive.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The directory that a recording writes to, held open.
#[derive(Debug)]
pub(super) struct Home {
    path: PathBuf,
    /// The directory itself: as long as it is open, no other one has its number.
    directory: File,
    /// Device and number of the directory.
    place: (u64, u64),
}

/// Presence of the directory under its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    /// The directory that is held open.
    Same,
    /// Another directory.
    Other,
    /// No directory.
    Missing,
}

impl Home {
    /// Opens the directory.
    pub fn open(path: &Path) -> io::Result<Self> {
        let directory = weir_io::sys::open_directory(path)?;
        let about = directory.metadata()?;
        Ok(Self {
            path: path.to_owned(),
            directory,
            place: (about.dev(), about.ino()),
        })
    }

    /// Looks what is there under the name now. **Cost**: a system call.
    pub fn presence(&self) -> Presence {
        match fs::metadata(&self.path) {
            Ok(about) if !about.is_dir() => Presence::Missing,
            Ok(about) if (about.dev(), about.ino()) == self.place => Presence::Same,
            Ok(_) => Presence::Other,
            Err(_) => Presence::Missing,
        }
    }

    /// Whether the directory was removed, and with it all files in it; otherwise another name leads to it.
    pub fn is_removed(&self) -> bool {
        self.directory
            .metadata()
            .is_ok_and(|about| about.nlink() == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_testkit::Scratch;

    #[test]
    fn a_pipe_in_place_of_a_directory_is_not_waited_for() {
        let scratch = Scratch::new();
        let path = scratch.at("pipe");
        assert!(
            std::process::Command::new("mkfifo")
                .arg(&path)
                .status()
                .unwrap()
                .success()
        );
        let error = Home::open(Path::new(&path)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotADirectory);
    }

    #[test]
    fn a_directory_made_anew_is_another_one() {
        let scratch = Scratch::new();
        let (path, moved) = (scratch.path().join("a"), scratch.path().join("b"));
        fs::create_dir(&path).unwrap();
        let home = Home::open(&path).unwrap();
        assert_eq!(
            (home.presence(), home.is_removed()),
            (Presence::Same, false)
        );
        fs::rename(&path, &moved).unwrap();
        assert_eq!(
            (home.presence(), home.is_removed()),
            (Presence::Missing, false)
        );
        fs::write(&path, "").unwrap();
        assert_eq!(home.presence(), Presence::Missing);
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert_eq!(
            (home.presence(), home.is_removed()),
            (Presence::Other, false)
        );
        fs::remove_dir(&moved).unwrap();
        for _ in 0..20 {
            // A file system may give the next directory the number of one that is gone.
            fs::remove_dir(&path).unwrap();
            fs::create_dir(&path).unwrap();
            assert_eq!(
                (home.presence(), home.is_removed()),
                (Presence::Other, true)
            );
        }
    }
}
