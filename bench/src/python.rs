//! Packet programs in Python against the same ones in Rust, and against other libraries for Python.
//!
//! The programs are `bench/language/columns.rs`, `columns.py` and `ports.py`. Each launch is a process; they take turns.

use crate::Size;
use crate::language::{Launch, input, interval, launch};
use crate::report::Report;
use crate::rivals::median;
use anyhow::Context;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Columns of the raw data.
pub const RAW: &str = "program,language,launch,ns_per_packet,packets,checksum";

/// Share of Rust's rate that the rule in NumPy must reach, and should.
const MUST: f64 = 0.5;
const GOAL: f64 = 0.8;

/// Multiple of dpkt's rate that weir must reach.
const MUST_DPKT: f64 = 100.0;

/// Python with the package, and the program in Rust.
struct Programs {
    python: PathBuf,
    packages: PathBuf,
    rust: PathBuf,
}

impl Programs {
    /// Lays the package next to the data. **Errors**: what is lacking, and how to get it.
    fn new(data: &Path) -> anyhow::Result<Self> {
        let here = std::env::current_exe()?;
        let built = here
            .parent()
            .filter(|folder| !folder.ends_with("deps"))
            .context("no folder of programs")?;
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let library = built.join("lib_weir.so");
        anyhow::ensure!(
            library.exists(),
            "{} is lacking: cargo build --release -p weir-python",
            library.display()
        );
        let beside = built
            .parent()
            .context("no target")?
            .join("python/bin/python");
        let python = if beside.exists() {
            beside
        } else {
            PathBuf::from("python3")
        };
        let packages = std::path::absolute(data.join("python"))?;
        let package = packages.join("weir");
        std::fs::create_dir_all(&package)?;
        for entry in std::fs::read_dir(root.join("bindings/python/python/weir"))? {
            let path = entry?.path();
            if let Some(name) = path.file_name().filter(|_| path.is_file()) {
                std::fs::copy(&path, package.join(name))?;
            }
        }
        std::fs::copy(library, package.join("_weir.abi3.so"))?;
        let programs = Self {
            python,
            packages,
            rust: built.join("weir-bench-columns"),
        };
        let lacking = programs.lacking("numpy")?;
        anyhow::ensure!(
            lacking.is_none(),
            "{}: scripts/python environment",
            lacking.unwrap_or_default()
        );
        Ok(programs)
    }

    fn command(&self) -> Command {
        let mut python = Command::new(&self.python);
        python.env("PYTHONPATH", &self.packages);
        // Some machines name a kernel of OpenBLAS here, which is not the one that NumPy would choose.
        python
            .env_remove("OPENBLAS_CORETYPE")
            .env_remove("OPENBLAS_L2_SIZE");
        python
    }

    /// The last line of an error, if a module cannot be imported.
    fn lacking(&self, module: &str) -> anyhow::Result<Option<String>> {
        let done = self
            .command()
            .args(["-c", &format!("import weir, {module}")])
            .output()?;
        let error = String::from_utf8_lossy(&done.stderr)
            .lines()
            .last()
            .unwrap_or_default()
            .to_owned();
        Ok((!done.status.success()).then_some(error))
    }

    fn script(&self, name: &str) -> Command {
        let mut command = self.command();
        command.arg(
            Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("language")
                .join(name),
        );
        command
    }
}

/// Runs all cases.
pub fn run(size: Size, launches: usize, data: &Path, report: &mut Report) -> anyhow::Result<()> {
    let programs = match Programs::new(data) {
        Ok(programs) => programs,
        Err(lacking) => {
            report.line(&format!("skipped: all of it: {lacking:#}"));
            return Ok(());
        }
    };
    let packets = if size == Size::Full { 3_355_443 } else { 3000 };
    let file = input(data, packets, 64)?;
    columns(&programs, size, launches, &file, report)?;
    libraries(&programs, size, launches, &file, report)?;
    report.bars();
    Ok(())
}

/// A rule in NumPy against the same rule in Rust.
fn columns(
    programs: &Programs,
    size: Size,
    launches: usize,
    file: &Path,
    report: &mut Report,
) -> anyhow::Result<()> {
    report.heading("A rule in NumPy against the same rule in Rust, over columns of 65 536 packets");
    let turns = if size == Size::Full { 8 } else { 2 };
    let mut rows = Vec::new();
    for (case, about) in [
        ("fill", "columns alone"),
        ("prefix", "IPv4, UDP, source in a prefix"),
        ("set", "IPv4, UDP, source in a set of 1 000 (sorted search)"),
    ] {
        let mut ns = [Vec::new(), Vec::new()];
        for round in 0..launches {
            let found = [
                launch(Command::new(&programs.rust), case, file, turns, 0)?,
                launch(programs.script("columns.py"), case, file, turns, 0)?,
            ];
            for (
                i,
                Launch {
                    ns: one,
                    packets,
                    checksum,
                },
            ) in found.iter().enumerate()
            {
                let language = ["rust", "python"][i];
                report.raw(&[
                    case,
                    language,
                    &round.to_string(),
                    &format!("{one:.3}"),
                    &packets.to_string(),
                    checksum,
                ]);
                ns[i].push(*one);
            }
            if (found[0].packets, &found[0].checksum) != (found[1].packets, &found[1].checksum) {
                report.wrong(&format!(
                    "{about}: {} in Rust, {} in Python",
                    found[0].checksum, found[1].checksum
                ));
            }
        }
        let mut ratios: Vec<f64> = ns[0]
            .iter()
            .zip(&ns[1])
            .map(|(rust, python)| rust / python)
            .collect();
        ratios.sort_by(f64::total_cmp);
        let ((low, high), ratio) = (interval(&ratios), median(ratios.iter().copied()));
        let found = format!("{ratio:.2} ({low:.2} to {high:.2})");
        let [rust, python] = ns.map(|ns| format!("{:.2}", median(ns.into_iter())));
        rows.push(vec![about.to_owned(), rust, python, found.clone()]);
        if case == "prefix" {
            report.bar(
                &format!("Python: {about}"),
                &format!("{MUST}x of Rust (goal {GOAL}x)"),
                &found,
                ratio >= MUST,
            );
        }
    }
    report.table(
        &[
            "program",
            "Rust ns/packet",
            "Python ns/packet",
            "rate of Python / Rust (95 % of the median)",
        ],
        &rows,
    );
    report.line("\nA file of 256 MiB, frames of 64 bytes, half of them UDP. Processor time of the thread that asks for batches, fills columns and judges; the library's reader is beside it.");
    Ok(())
}

/// Packets by port, with weir and with other libraries.
fn libraries(
    programs: &Programs,
    size: Size,
    launches: usize,
    file: &Path,
    report: &mut Report,
) -> anyhow::Result<()> {
    report.heading("Packets by port of one capture, with weir and with other libraries for Python");
    let (most, few) = if size == Size::Full {
        (3_000_000, 300_000)
    } else {
        (3000, 300)
    };
    // A library that takes microseconds a packet reads fewer, and weir reads as few once more, so that answers can be compared.
    let ways = [
        ("weir", most),
        ("weir", few),
        ("weir-frames", few),
        ("dpkt", few),
        ("scapy", few / 10),
        ("weir", few / 10),
    ];
    let mut found: Vec<(String, u64, Vec<f64>)> = Vec::new();
    let mut answers: Vec<(u64, String)> = Vec::new();
    for (library, packets) in ways {
        if let (false, Some(lacking)) = (library.starts_with("weir"), programs.lacking(library)?) {
            report.line(&format!("skipped: {library}: {lacking}"));
            continue;
        }
        let mut ns = Vec::new();
        for round in 0..launches.div_ceil(4) {
            let Launch {
                ns: one,
                packets: seen,
                checksum,
            } = launch(programs.script("ports.py"), library, file, 4, packets)?;
            report.raw(&[
                &format!("ports of {packets}"),
                library,
                &round.to_string(),
                &format!("{one:.3}"),
                &seen.to_string(),
                &checksum,
            ]);
            ns.push(one);
            match answers.iter().find(|(number, _)| *number == packets) {
                Some((_, answer)) if *answer != checksum => {
                    report
                        .wrong(&format!("{library}: {checksum} of {packets} packets, and {answer} by another library"));
                }
                Some(_) => {}
                None => answers.push((packets, checksum)),
            }
        }
        found.push((library.to_owned(), packets, ns));
    }
    // The rate of weir over as many packets.
    let weir = |packets: u64| {
        let same = found
            .iter()
            .find(|(library, number, _)| library == "weir" && *number == packets);
        same.map_or(f64::NAN, |(_, _, ns)| median(ns.iter().copied()))
    };
    let mut rows = Vec::new();
    for (library, packets, ns) in &found {
        let ns = median(ns.iter().copied());
        let ratio = ns / weir(*packets);
        rows.push(vec![
            library.clone(),
            packets.to_string(),
            format!("{ns:.1}"),
            format!("{ratio:.1}x"),
        ]);
        if library == "dpkt" {
            let must = format!("{MUST_DPKT}x of dpkt's rate");
            report.bar(
                "Python: packets by port",
                &must,
                &format!("{ratio:.0}x"),
                ratio >= MUST_DPKT,
            );
        }
    }
    report.table(
        &[
            "with",
            "packets",
            "ns/packet, all threads",
            "of weir's over as many",
        ],
        &rows,
    );
    report.line("\nProcessor time of the whole process without imports. `weir-frames` looks at each frame in Python, as the other libraries do.");
    Ok(())
}
