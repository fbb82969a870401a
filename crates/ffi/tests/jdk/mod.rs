//! The JDK for tests, and the classes for Java compiled with it.
#![allow(dead_code, reason = "each test file uses its part")]

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError};
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
        /// Held while classes are compiled.
        static COMPILES: Mutex<()> = Mutex::new(());
        let home = jdk(test)?;
        let classes = scratch.at("classes");
        let mut all = Vec::new();
        for directory in [
            "bindings/java/src/main/java",
            "bindings/java/src/test/java",
            "samples/java",
        ] {
            all.extend(sources(&root().join(directory)));
        }
        all.sort();
        let compiles = COMPILES.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = kept(&home, &all);
        if !kept.exists() {
            let fresh = scratch.at("fresh");
            let mut javac = Command::new(home.join("bin/javac"));
            javac.args(["-Xlint:all,-restricted", "-Werror", "-d", &fresh]);
            succeeds(javac.args(&all));
            succeeds(Command::new("mv").args(["-T", &fresh]).arg(&kept));
        }
        drop(compiles);
        // Tests may put more into theirs.
        succeeds(Command::new("cp").arg("-R").arg(&kept).arg(&classes));
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

/// Where the classes of these sources are kept, once this JDK has compiled them: that takes seconds, and many tests want them.
fn kept(home: &Path, sources: &[PathBuf]) -> PathBuf {
    let mut hasher = DefaultHasher::new();
    std::fs::read(home.join("release")).ok().hash(&mut hasher);
    for path in sources {
        (path, std::fs::read(path).unwrap()).hash(&mut hasher);
    }
    let name = format!("classes-{:016x}", hasher.finish());
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

fn succeeds(command: &mut Command) {
    let done = command.output().unwrap();
    assert!(
        done.status.success(),
        "{command:?}: {}{}",
        text(&done.stdout),
        text(&done.stderr)
    );
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
