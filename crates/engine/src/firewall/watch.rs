//! Polling of rules files for changes.

use crate::name::Name;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use weir_firewall::rules::RuleList;

/// Number, length and time of a file, which change with its contents.
type State = (u64, u64, i64, i64);

fn state_of(file: &Path) -> Option<State> {
    let about = std::fs::metadata(file).ok()?;
    Some((about.ino(), about.len(), about.mtime(), about.mtime_nsec()))
}

/// A rules file and the files of its sets.
#[derive(Debug)]
pub struct RulesWatch {
    rules: PathBuf,
    /// The rules file, and the files of its sets.
    files: Vec<PathBuf>,
    seen: Vec<Option<State>>,
    /// Changed states not yet acted on, and when they were first seen.
    changed: Option<(Vec<Option<State>>, Instant)>,
}

/// Change of a rules file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileChange {
    /// The file is empty now.
    Emptied,
    /// The file, or the file of a set, has other contents.
    Written,
}

/// Directory of a rules file, to which the names of its sets are relative.
pub fn directory_of(rules: &Name) -> &Path {
    match rules.is_dash() {
        true => Path::new(""),
        false => Path::new(rules).parent().unwrap_or(Path::new("")),
    }
}

impl RulesWatch {
    /// Takes the files of the rules in force as they are now.
    pub fn new(rules: &Name, list: &RuleList) -> Self {
        let rules = PathBuf::from(rules);
        let files = Self::files(&rules, list);
        Self {
            seen: files.iter().map(|file| state_of(file)).collect(),
            rules,
            files,
            changed: None,
        }
    }

    fn files(rules: &Path, list: &RuleList) -> Vec<PathBuf> {
        let directory = rules.parent().unwrap_or(Path::new(""));
        let of_sets = list.files.iter().map(|file| directory.join(file));
        std::iter::once(rules.to_owned()).chain(of_sets).collect()
    }

    /// Takes the present files as the files of the rules in force.
    pub fn take_as_seen(&mut self, list: &RuleList) {
        self.files = Self::files(&self.rules, list);
        self.seen = self.files.iter().map(|file| state_of(file)).collect();
        self.changed = None;
    }

    /// Returns a change once all files rest; `list` is in force. A file that is empty, or ends
    /// inside a line, may still be written: it rests longer.
    pub fn check(&mut self, list: &RuleList) -> Option<FileChange> {
        const RESTS: Duration = Duration::from_millis(150);
        const RESTS_INSIDE_A_LINE: Duration = Duration::from_secs(2);
        let files = Self::files(&self.rules, list);
        if files != self.files {
            // The new rules may include other set files.
            self.seen.truncate(1);
            self.seen
                .extend(files[1..].iter().map(|file| state_of(file)));
            self.files = files;
        }
        let now: Vec<Option<State>> = self.files.iter().map(|file| state_of(file)).collect();
        // A file that is gone may be one that is replaced.
        if now == self.seen || now.contains(&None) {
            return None;
        }
        let since = match &self.changed {
            Some((state, since)) if *state == now => *since,
            _ => {
                self.changed = Some((now, Instant::now()));
                return None;
            }
        };
        let rests = match self.files.iter().all(|file| ends_with_a_line(file)) {
            true => RESTS,
            false => RESTS_INSIDE_A_LINE,
        };
        if since.elapsed() < rests {
            return None;
        }
        // All packets would pass by an empty list, which is asked for in words.
        let is_empty = matches!(now[0], Some((_, 0, ..)));
        self.seen = now;
        Some(match is_empty {
            true => FileChange::Emptied,
            false => FileChange::Written,
        })
    }
}

fn ends_with_a_line(file: &Path) -> bool {
    let last = || -> io::Result<bool> {
        let mut file = File::open(file)?;
        file.seek(SeekFrom::End(-1))?;
        let mut byte = [0];
        file.read_exact(&mut byte).map(|()| byte[0] == b'\n')
    };
    last().unwrap_or(false)
}
