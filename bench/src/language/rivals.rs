//! Libraries for captures in Java, on one file: packets by destination port.
//!
//! pcap4j comes from Maven Central. jNetPcap is not compared: no version that its pages name could
//! be obtained from there.

use super::{Launch, Programs, input, interval, launch};
use crate::Size;
use crate::report::Report;
use crate::rivals::median;
use anyhow::Context;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Least rate of weir, and the desired one, as multiples of that of pcap4j.
const MUST: f64 = 3.0;
const GOAL: f64 = 10.0;

/// Fetches the jars of pcap4j, and compiles the program. **Errors**: what is lacking.
fn fetch(programs: &Programs, data: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let (root, jars) = (
        Path::new(env!("CARGO_MANIFEST_DIR")).join("language/pcap4j"),
        data.join("pcap4j"),
    );
    let mut mvn = Command::new("mvn");
    mvn.args(["--quiet", "--batch-mode", "--file"])
        .arg(root.join("pom.xml"))
        .arg("dependency:copy-dependencies");
    let done = mvn
        .arg(format!(
            "-DoutputDirectory={}",
            std::path::absolute(&jars)?.display()
        ))
        .output()
        .context("no mvn")?;
    anyhow::ensure!(done.status.success(), "mvn cannot fetch the jars of pcap4j");
    let mut found = Vec::new();
    for entry in std::fs::read_dir(&jars)? {
        found.extend(
            Some(entry?.path())
                .filter(|path| path.extension().is_some_and(|extension| extension == "jar")),
        );
    }
    programs.compile(&[root.join("Pcap4jPorts.java")], &found, &[])?;
    Ok(found)
}

/// Runs the comparison, if the jars can be obtained.
pub fn run(
    programs: &Programs,
    size: Size,
    launches: usize,
    data: &Path,
    report: &mut Report,
) -> anyhow::Result<()> {
    report.heading("Packets by port of one capture, with weir and with pcap4j");
    let jars = match fetch(programs, data) {
        Ok(jars) => jars,
        Err(lacking) => {
            report.line(&format!("skipped: pcap4j: {lacking:#}"));
            return Ok(());
        }
    };
    report
        .line("skipped: jNetPcap: Maven Central gives none of the versions that its pages name\n");
    // pcap4j takes microseconds for a packet. The clock of a process counts hundredths of a second, so weir does more in a turn.
    let (packets, turns, work) = if size == Size::Full {
        (1_000_000, 4, [10_000_000, 1_000_000])
    } else {
        (3000, 2, [3000; 2])
    };
    let file = input(data, packets, 64)?;
    let ways = [
        ("Ports", "weir", "weir"),
        ("Pcap4jPorts", "bytes", "pcap4j, bytes"),
        ("Pcap4jPorts", "packets", "pcap4j, packets"),
    ];
    let mut ns = [const { Vec::new() }; 3];
    for round in 0..launches.div_ceil(4) {
        let mut answers = Vec::new();
        for ((class, program, name), ns) in ways.into_iter().zip(&mut ns) {
            let java = programs.jvm(&["-Xmx512m", "-XX:+UseSerialGC"], class, &jars);
            let Launch {
                ns: one,
                packets: seen,
                checksum,
            } = launch(
                java,
                program,
                &file,
                turns,
                work[usize::from(name != "weir")],
            )?;
            report.raw(&[
                "a file",
                name,
                "java",
                &round.to_string(),
                &format!("{one:.3}"),
                &seen.to_string(),
                &checksum,
            ]);
            ns.push(one);
            answers.push(checksum);
        }
        if answers.iter().any(|answer| *answer != answers[0]) {
            report.wrong(&format!("packets by port: {answers:?}"));
        }
    }
    let mut rows = Vec::new();
    for ((_, _, name), of) in ways.into_iter().zip(&ns) {
        let mut ratios: Vec<f64> = of
            .iter()
            .zip(&ns[0])
            .map(|(rival, weir)| rival / weir)
            .collect();
        ratios.sort_by(f64::total_cmp);
        let ((low, high), ratio) = (interval(&ratios), median(ratios.iter().copied()));
        let words = format!("{ratio:.1}x ({low:.1} to {high:.1})");
        rows.push(vec![
            name.to_owned(),
            format!("{:.1}", median(of.iter().copied())),
            words.clone(),
        ]);
        if name != "weir" {
            let must = format!("{MUST}x (goal {GOAL}x)");
            report.bar(
                &format!("Java: packets by port, rate over that of {name}"),
                &must,
                &words,
                ratio >= MUST,
            );
        }
    }
    report.table(
        &[
            "with",
            "ns/packet, all threads",
            "of weir's (95 % of the median)",
        ],
        &rows,
    );
    report.line(
        "\nProcessor time of the whole process: the library's reader, the collector and the compiler are in it. Frames of 64 bytes, TCP and UDP. \
         `packets` asks the packet objects of pcap4j for the port, `bytes` looks into the array that it makes of each frame.",
    );
    Ok(())
}
