//! Access to the files in which the kernel publishes facts.

use std::fs;
use std::path::{Path, PathBuf};

/// Files of a machine: this machine's, or in tests the files of a prepared directory.
#[derive(Debug)]
pub struct System {
    root: PathBuf,
}

impl Default for System {
    fn default() -> Self {
        Self {
            root: PathBuf::from("/"),
        }
    }
}

impl System {
    /// Text of a file without surrounding blanks. **Errors**: the reason why it cannot be read.
    pub fn read(&self, path: &str) -> Result<String, String> {
        match fs::read_to_string(self.at(path)) {
            Ok(text) => Ok(text.trim().to_owned()),
            Err(error) => Err(format!("{path}: {}", crate::outcome::io_words(&error))),
        }
    }

    /// Number in a file that holds nothing else.
    pub fn number(&self, path: &str) -> Result<u64, String> {
        let text = self.read(path)?;
        text.parse()
            .map_err(|_| format!("{path}: '{text}' is not a number"))
    }

    /// Value of the field `name:` in a file with one field per line.
    pub fn field(&self, path: &str, name: &str) -> Result<String, String> {
        let text = self.read(path)?;
        let found = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix(':'));
        found
            .map(|value| value.trim().to_owned())
            .ok_or_else(|| format!("{path}: no {name}"))
    }

    /// Whether the path exists.
    pub fn exists(&self, path: &str) -> bool {
        self.at(path).exists()
    }

    /// Names in a directory, sorted. A missing directory gives none.
    pub fn names(&self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(self.at(path)).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        names.sort();
        names
    }

    /// Word in brackets in a file that lists its choices: `always [madvise] never`.
    pub fn choice(&self, path: &str) -> Result<String, String> {
        let text = self.read(path)?;
        let chosen = text
            .split(' ')
            .find_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
        chosen
            .map(str::to_owned)
            .ok_or_else(|| format!("{path}: '{text}' marks none"))
    }

    /// Smallest limit among this process's control group (v1 or v2) and its ancestors. `None` means no limit.
    pub fn group_limit(
        &self,
        controller: &str,
        of: impl Fn(&Self, &str) -> Option<f64>,
    ) -> Option<f64> {
        let groups = self.read("/proc/self/cgroup").ok()?;
        let mut smallest: Option<f64> = None;
        for line in groups.lines() {
            let mut parts = line.splitn(3, ':').skip(1);
            let (controllers, mut path) = (parts.next()?, parts.next()?.trim_end_matches('/'));
            let mount = match controllers {
                "" => "/sys/fs/cgroup".to_owned(),
                names if names.split(',').any(|name| name == controller) => {
                    format!("/sys/fs/cgroup/{controller}")
                }
                _ => continue,
            };
            loop {
                let limit = of(self, &format!("{mount}{path}"));
                smallest = [smallest, limit].into_iter().flatten().reduce(f64::min);
                let Some(cut) = path.rfind('/') else { break };
                path = &path[..cut];
            }
        }
        smallest
    }

    /// Root directory of the files.
    pub fn root(&self) -> &Path {
        &self.root
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use weir_testkit::Scratch;

    /// A system made of given files, removed when dropped.
    pub struct Made {
        pub system: System,
        _files: Scratch,
    }

    impl Made {
        pub fn new(files: &[(&str, &str)]) -> Self {
            let files = Scratch::of(files);
            Self {
                system: System {
                    root: files.path().to_owned(),
                },
                _files: files,
            }
        }
    }

    #[test]
    fn files_are_read_or_it_is_said_why_not() {
        let made = Made::new(&[
            ("a/number", "12"),
            ("a/choices", "always [madvise] never"),
            ("a/fields", "One:\t1 kB\nOnes: 2\nb : 3"),
        ]);
        let system = &made.system;
        assert_eq!(system.number("/a/number"), Ok(12));
        assert_eq!(
            system.number("/a/choices"),
            Err("/a/choices: 'always [madvise] never' is not a number".to_owned())
        );
        assert_eq!(
            system.number("/a/none"),
            Err("/a/none: no such file".to_owned())
        );
        assert_eq!(system.choice("/a/choices"), Ok("madvise".to_owned()));
        assert!(system.choice("/a/number").is_err());
        assert_eq!(system.field("/a/fields", "One"), Ok("1 kB".to_owned()));
        assert_eq!(system.field("/a/fields", "b"), Ok("3".to_owned()));
        assert!(system.field("/a/fields", "On").is_err());
        assert_eq!(system.names("/a"), ["choices", "fields", "number"]);
        assert!(system.names("/b").is_empty() && system.exists("/a") && !system.exists("/b"));
    }
}
