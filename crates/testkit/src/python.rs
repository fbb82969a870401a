//! Python for tests, with the package that lies in `bindings/python`.

use crate::{Scratch, have, skipped};
use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// An interpreter that finds the package.
#[derive(Debug)]
pub struct Python {
    program: PathBuf,
    packages: String,
}

impl Python {
    /// Lays the package, with the library of this build, into `scratch`. Without Python 3.11, one of these modules or the library, the test
    /// says what it lacks.
    ///
    /// The interpreter is that of `WEIR_PYTHON`, else the one that `scripts/setup` puts next to the
    /// build, else `python3`.
    pub fn new(test: &str, scratch: &Scratch, modules: &[&str]) -> Option<Self> {
        let here = env::current_exe().ok()?;
        let libraries = here.parent()?;
        let beside = here.ancestors().nth(3)?.join("python/bin/python");
        let program = match env::var_os("WEIR_PYTHON") {
            Some(named) => PathBuf::from(named),
            None if beside.exists() => beside,
            None if have(test, &["python3"]) => PathBuf::from("python3"),
            None => return None,
        };
        let asked = format!(
            "import sys; assert sys.version_info >= (3, 11); import {}",
            modules.join(", ")
        );
        let imports = Command::new(&program).args(["-c", &asked]).output().ok()?;
        if !imports.status.success() {
            let error = String::from_utf8_lossy(&imports.stderr)
                .lines()
                .last()
                .unwrap_or_default()
                .to_owned();
            skipped(
                test,
                format_args!(
                    "{} cannot import {}: {error}",
                    program.display(),
                    modules.join(", ")
                ),
            );
            return None;
        }
        let library = libraries.join("lib_weir.so");
        if !library.exists() {
            skipped(
                test,
                "the library for Python is not built: cargo build -p weir-python",
            );
            return None;
        }
        let packages = scratch.at("packages");
        let package = Path::new(&packages).join("weir");
        fs::create_dir_all(&package).ok()?;
        let sources =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bindings/python/python/weir");
        for entry in fs::read_dir(sources).ok()?.flatten() {
            if entry.path().is_file() {
                fs::copy(entry.path(), package.join(entry.file_name())).ok()?;
            }
        }
        fs::copy(library, package.join("_weir.abi3.so")).ok()?;
        Some(Self { program, packages })
    }

    /// A command that runs the interpreter.
    pub fn command<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Command {
        let mut python = Command::new(&self.program);
        python
            .args(arguments)
            .env("PYTHONPATH", &self.packages)
            .env("PYTHONDONTWRITEBYTECODE", "1");
        python
    }

    /// The folder with the package.
    pub fn packages(&self) -> &str {
        &self.packages
    }
}
