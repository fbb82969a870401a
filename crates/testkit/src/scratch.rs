//! Folders and files below the temporary directory.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A path that no other test uses, in this process or another.
fn unique() -> PathBuf {
    // tidy: allow(global): tests of one process run side by side, and a name must differ from all others.
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("weir-test-{}-{number}", std::process::id()));
        // A process of the same number that was killed may have left its own.
        if !path.exists() {
            return path;
        }
    }
}

/// A path as text, for arguments of programs.
fn text(path: &Path) -> &str {
    path.to_str()
        .expect("the temporary directory has a readable name")
}

/// A folder that is removed with its contents.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// Makes an empty folder.
    #[allow(clippy::new_without_default, reason = "it makes a folder")]
    pub fn new() -> Self {
        let path = unique();
        fs::create_dir(&path).expect("the temporary directory can be written");
        Self(path)
    }

    /// Makes a folder of text files, each with a line end after its text, as in `/proc` and `/sys`.
    pub fn of(files: &[(&str, &str)]) -> Self {
        let folder = Self::new();
        for (name, text) in files {
            folder.file(name, format!("{text}\n").as_bytes());
        }
        folder
    }

    /// Path of the folder.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Path of `name` in the folder.
    pub fn at(&self, name: &str) -> String {
        text(&self.0.join(name)).to_owned()
    }

    /// Writes a file and returns its path; makes the folders in front of `name`.
    pub fn file(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().expect("it lies in the folder"))
            .expect("the folder can be written");
        fs::write(path, bytes).expect("the folder can be written");
        self.at(name)
    }

    /// Names of all entries of the folder, sorted.
    pub fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0)
            .expect("it is there")
            .map(|entry| entry.expect("it can be listed"));
        let mut names: Vec<_> = entries
            .map(|entry| {
                entry
                    .file_name()
                    .into_string()
                    .expect("a test chose the name")
            })
            .collect();
        names.sort();
        names
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A file that is removed with its value.
#[derive(Debug)]
pub struct ScratchFile(pub PathBuf);

impl ScratchFile {
    /// A path that ends with `name`, at which nothing exists yet.
    pub fn empty(name: &str) -> Self {
        let mut path = unique().into_os_string();
        path.push(format!("-{name}"));
        Self(path.into())
    }

    /// A file with these bytes, whose path ends with `name`.
    pub fn new(name: &str, bytes: &[u8]) -> Self {
        let scratch = Self::empty(name);
        fs::write(&scratch.0, bytes).expect("the temporary directory can be written");
        scratch
    }

    /// Path of the file.
    pub fn path(&self) -> &str {
        text(&self.0)
    }
}

impl Drop for ScratchFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// An open file without a name: its path has been removed.
pub fn nameless(bytes: &[u8]) -> fs::File {
    let scratch = ScratchFile::new("nameless", bytes);
    fs::File::options()
        .read(true)
        .write(true)
        .open(&scratch.0)
        .expect("it was made just now")
}
