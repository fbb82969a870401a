//! The JDK for tests, and the classes for Java compiled with it.
#![allow(dead_code, reason = "each test file uses its part")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use weir_testkit::{Scratch, skipped};

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Directory of a JDK of version 25 or later: JAVA_HOME, that of the path, or one of those beside each other.
pub fn jdk(test: &str) -> Option<PathBuf> {
    let beside = std::fs::read_dir("/usr/lib/jvm")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    let on_path = std::env::var_os("PATH").map(|paths| {
        std::env::split_paths(&paths)
            .map(|path| path.join(".."))
            .collect::<Vec<_>>()
    });
    let named = std::env::var_os("JAVA_HOME").map(PathBuf::from);
    let found = named
        .into_iter()
        .chain(on_path.into_iter().flatten())
        .chain(beside)
        .find(|home| {
            let asked = Command::new(home.join("bin/javac"))
                .arg("-version")
                .output();
            let version = asked
                .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
                .unwrap_or_default();
            let major = version
                .strip_prefix("javac ")
                .and_then(|rest| rest.split(['.', '-', '\n']).next()?.parse::<u32>().ok());
            major.is_some_and(|major| major >= 25)
        });
    if found.is_none() {
        skipped(test, "there is no JDK 25");
    }
    found
}

pub fn sources(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(sources(&path)),
            false => found.extend(
                (path
                    .extension()
                    .is_some_and(|extension| extension == "java"))
                .then_some(path),
            ),
        }
    }
    found
}

/// Classes of the binding, its checks and the samples.
pub struct Java {
    pub home: PathBuf,
    pub classes: String,
}

impl Java {
    pub fn new(test: &str, scratch: &Scratch) -> Option<Self> {
        let home = jdk(test)?;
        let classes = scratch.at("classes");
        let mut javac = Command::new(home.join("bin/javac"));
        javac.args(["-Xlint:all,-restricted", "-Werror", "-d", &classes]);
        for directory in [
            "bindings/java/src/main/java",
            "bindings/java/src/test/java",
            "samples/java",
        ] {
            javac.args(sources(&root().join(directory)));
        }
        let done = javac.output().unwrap();
        assert!(
            done.status.success(),
            "{}{}",
            text(&done.stdout),
            text(&done.stderr)
        );
        Some(Self { home, classes })
    }

    pub fn run(&self, flags: &[&str], class: &str, arguments: &[&str]) -> Output {
        self.command(flags, class, arguments).output().unwrap()
    }

    pub fn command(&self, flags: &[&str], class: &str, arguments: &[&str]) -> Command {
        let library = std::env::current_exe()
            .unwrap()
            .parent()
            .unwrap()
            .join("libweir.so");
        let mut java = Command::new(self.home.join("bin/java"));
        java.args([
            "--enable-native-access=ALL-UNNAMED",
            "-Xmx256m",
            "-cp",
            &self.classes,
        ])
        .args(flags);
        java.arg(format!("-Dweir.library={}", library.display()))
            .arg(class)
            .args(arguments);
        java
    }
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
