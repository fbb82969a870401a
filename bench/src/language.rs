//! Packet programs in Java against the same ones in Rust, both by the C interface of weir.
//!
//! The programs are `bench/language/rust.rs` and `bench/language/Language.java`. Each launch is a
//! process; those of both languages alternate. The steps of the thesis on middleboxes in Java are
//! re-created next to them.

mod costs;
mod rivals;

use crate::Size;
use crate::plot::{self, Bar, Scale};
use crate::report::Report;
use crate::rivals::median;
use anyhow::{Context, bail, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Columns of the raw data.
pub const RAW: &str = "region,program,language,launch,ns_per_packet,packets,checksum";

/// Programs in both languages: name, description, and what Java must reach of Rust's rate in the cache and outside.
const BOTH: [(&str, &str, [f64; 2]); 5] = [
    ("capture", "capture and release", [0.9, 0.9]),
    ("columns", "firewall, columns", [0.85, 0.85]),
    (VECTORS, "firewall, columns by vectors", [0.0, 0.0]),
    ("checked", "firewall, checked packets", [0.6, 0.7]),
    ("unchecked", "firewall, unchecked addresses", [0.0, 0.0]),
];

/// The program in Java that uses the Vector API. The one in Rust is that of columns.
const VECTORS: &str = "vectors";

/// Option of java and javac for the Vector API.
const MODULE: [&str; 2] = ["--add-modules", "jdk.incubator.vector"];

/// Steps of the thesis: name, description, and its rate, million packets a second (one core of an E5-2690).
/// **Source**: raw data of the thesis on DPDK in Java, Imperial College London, 2015.
const STEPS: [(&str, &str, f64); 5] = [
    (
        "objects",
        "1 an object for each packet, lists for batches",
        1.560,
    ),
    ("reused", "2 lists and objects used again", 2.321),
    ("accessor", "3 one accessor of memory", 10.427),
    ("offheap", "4 addresses outside the heap", 11.144),
    ("checked", "R a packet that is pointed", 13.238),
];

/// Output of a launch: ns a packet of its median turn, packets and checksum of its last.
pub struct Launch {
    /// Nanoseconds a packet.
    pub ns: f64,
    /// Packets of a turn.
    pub packets: u64,
    /// Checksum of the answer.
    pub checksum: String,
}

/// Openings of a warm-up: as many calls of a loop as the JVM wants before it compiles it for good.
pub const WARM_UP: u32 = 1000;

/// The same at the smoke size, where nobody looks at the times.
pub const SMOKE_WARM_UP: u32 = 10;

/// Programs that are launched.
#[derive(Debug)]
pub struct Programs {
    /// Openings by which programs warm up (`WarmUp.java`).
    warm_up: u32,
    rust: PathBuf,
    java: PathBuf,
    javac: PathBuf,
    classes: PathBuf,
    library: PathBuf,
    /// Whether the JDK has the Vector API, and its program was compiled.
    vectors: bool,
}

/// Runs all cases.
pub fn run(
    size: Size,
    launches: usize,
    only: &str,
    data: &Path,
    report: &mut Report,
) -> anyhow::Result<()> {
    let Some(home) = jdk() else {
        report.line("skipped: all of it: there is no JDK 25; install one, or name it in JAVA_HOME");
        return Ok(());
    };
    let warm_up = match size {
        Size::Full => WARM_UP,
        Size::Smoke => SMOKE_WARM_UP,
    };
    let programs = Programs::new(&home, data, warm_up)?;
    report.line("- Java with the serial collector and a heap of 128 MiB; both single-threaded beside the library's thread that reads");
    let (regions, turns, work): ([(&str, u32); 2], usize, u64) = match size {
        Size::Full => (
            [("in the cache", 3000), ("256 MiB", 3_355_443)],
            12,
            8_000_000,
        ),
        Size::Smoke => ([("in the cache", 300), ("larger", 3000)], 2, 10_000),
    };
    let mut files = Vec::new();
    for (name, packets) in regions {
        files.push((name, input(data, packets, 64)?));
    }
    report.heading("Java against Rust, the same program by the same C interface");
    let mut rows = Vec::new();
    for (program, about, must) in BOTH {
        if program == VECTORS && !programs.vectors {
            report
                .line("skipped: columns by vectors: this JDK has no module jdk.incubator.vector\n");
            continue;
        }
        // What is captured lies in buffers of 1 MiB, which are used again: a small file would show the opening of files.
        let skipped = usize::from(program == "capture");
        for ((region, file), must) in files.iter().zip(must).skip(skipped) {
            let region = if skipped > 0 {
                "a file of 256 MiB"
            } else {
                *region
            };
            let mut ns = [Vec::new(), Vec::new()];
            for launch in 0..launches {
                let found = if program == VECTORS {
                    [
                        programs.rust("columns", file, turns, work)?,
                        programs.vectors(file, turns, work)?,
                    ]
                } else {
                    [
                        programs.rust(program, file, turns, work)?,
                        programs.java(program, file, turns, work)?,
                    ]
                };
                for (i, found) in found.iter().enumerate() {
                    let Launch {
                        ns: one,
                        packets,
                        checksum,
                    } = found;
                    let language = ["rust", "java"][i];
                    let (launch, one_text) = (launch.to_string(), format!("{one:.3}"));
                    report.raw(&[
                        region,
                        program,
                        language,
                        &launch,
                        &one_text,
                        &packets.to_string(),
                        checksum,
                    ]);
                    ns[i].push(*one);
                }
                if (found[0].packets, &found[0].checksum) != (found[1].packets, &found[1].checksum)
                {
                    report.wrong(&format!(
                        "{about}, {region}: {} in Rust, {} in Java",
                        found[0].checksum, found[1].checksum
                    ));
                }
            }
            let [rust, java] = ns.each_ref().map(|ns| median(ns.iter().copied()));
            let mut ratios: Vec<f64> = ns[0]
                .iter()
                .zip(&ns[1])
                .map(|(rust, java)| rust / java)
                .collect();
            ratios.sort_by(f64::total_cmp);
            let (low, high) = interval(&ratios);
            let ratio = median(ratios.iter().copied());
            let found = format!("{ratio:.2} ({low:.2} to {high:.2})");
            rows.push(vec![
                format!("{about}, {region}"),
                format!("{rust:.2}"),
                format!("{java:.2}"),
                found.clone(),
            ]);
            if must > 0.0 {
                report.bar(
                    &format!("Java: {about}, {region}"),
                    &format!("{must:.2}x of Rust"),
                    &found,
                    ratio >= must,
                );
            }
        }
    }
    report.table(
        &[
            "program, region",
            "Rust ns/packet",
            "Java ns/packet",
            "rate of Java / Rust (95 % of the median)",
        ],
        &rows,
    );
    report.line(
        "\nA packet has 64 bytes; half of them are UDP, and a quarter of the sources are in the set of 1 000. For capture and release, Java \
         has taken 60 000 small batches before, so that the calls for each batch are compiled.",
    );
    // `--only programs`: the table above, and nothing that takes longer.
    if only == "programs" {
        report.bars();
        return Ok(());
    }
    costs::run(&programs, size, launches, data, report)?;
    rivals::run(&programs, size, launches, data, report)?;
    steps(&programs, size, launches, (turns, work), data, report)?;
    report.bars();
    Ok(())
}

/// Makes a capture of frames of `len` bytes: half of them UDP, sources of 4 096 addresses, of which 1 000 are in the set of the firewall.
pub fn input(data: &Path, packets: u32, len: usize) -> anyhow::Result<PathBuf> {
    std::fs::create_dir_all(data)?;
    let path = data.join(format!("{len}-{packets}.pcap"));
    let mut bytes = Vec::with_capacity(24 + (16 + len) * packets as usize);
    for word in [0xa1b2_c3d4u32, 4 << 16 | 2, 0, 0, 65_535, 1] {
        bytes.extend(word.to_le_bytes());
    }
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    for i in 0..packets {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        for word in [i / 1_000_000, i % 1_000_000, len as u32, len as u32] {
            bytes.extend(word.to_le_bytes());
        }
        let total = (len as u16 - 14).to_be_bytes();
        let mut frame = vec![0u8; len];
        frame[12..18].copy_from_slice(&[8, 0, 0x45, 0, total[0], total[1]]);
        (frame[22], frame[23]) = (64, if random >> 40 & 1 == 1 { 17 } else { 6 });
        frame[26..30].copy_from_slice(&(0x0a00_0000 | (random >> 20) as u32 & 0xfff).to_be_bytes());
        frame[30..34].copy_from_slice(&[10, 1, 0, 1]);
        let port = 1 + (random >> 50) as u16 % 500;
        frame[36..38].copy_from_slice(&port.to_be_bytes());
        // The length of the datagram, or the header length of TCP.
        if frame[23] == 17 {
            frame[38..40].copy_from_slice(&(len as u16 - 34).to_be_bytes());
        } else {
            frame[46] = 0x50;
        }
        bytes.extend(frame);
    }
    std::fs::write(&path, bytes).with_context(|| path.display().to_string())?;
    Ok(path)
}

/// Interval that holds the median of such ratios with 95 %, from their order statistics; `sorted` ascend.
pub fn interval(sorted: &[f64]) -> (f64, f64) {
    // Of 20 launches the sixth and the fifteenth: the binomial distribution puts 95.9 % between them.
    let off = (0.98 * (sorted.len() as f64).sqrt()).floor() as usize;
    let middle = sorted.len() / 2;
    (
        sorted[middle.saturating_sub(off + 1)],
        sorted[(middle + off).min(sorted.len() - 1)],
    )
}

fn steps(
    programs: &Programs,
    size: Size,
    launches: usize,
    (turns, work): (usize, u64),
    data: &Path,
    report: &mut Report,
) -> anyhow::Result<()> {
    report.heading("The steps of the thesis, in Java");
    let file = &input(data, if size == Size::Full { 3_355_443 } else { 3000 }, 64)?;
    let mut found = Vec::new();
    for (program, about, thesis) in STEPS {
        let mut ns = Vec::new();
        for launch in 0..launches.div_ceil(4) {
            let one = programs.java(program, file, turns.div_ceil(2), work)?;
            report.raw(&[
                "steps",
                program,
                "java",
                &launch.to_string(),
                &format!("{:.3}", one.ns),
                &one.packets.to_string(),
                &one.checksum,
            ]);
            ns.push(one.ns);
        }
        found.push((about, 1e3 / median(ns.into_iter()), thesis));
    }
    let row = |&(about, rate, thesis): &(&str, f64, f64)| {
        let cells = [(rate, found[0].1), (thesis, STEPS[0].2)]
            .map(|(rate, first)| [format!("{rate:.2}"), format!("{:.1}x", rate / first)]);
        [vec![about.to_owned()], cells.concat()].concat()
    };
    let rows: Vec<_> = found.iter().map(row).collect();
    report.table(
        &[
            "step",
            "Mpps here",
            "of step 1",
            "Mpps, thesis",
            "of step 1",
        ],
        &rows,
    );
    report.line("\nThe thesis received from a network card at 14.9 Mpps at most; here packets lie in 256 MiB of memory and are judged by the firewall.");
    let bar = |(label, value, group): (&str, f64, usize)| Bar {
        label: label.to_owned(),
        value,
        range: (value, value),
        group,
    };
    let bars = found
        .iter()
        .flat_map(|&(about, here, thesis)| [(about, here, 0), (about, thesis, 1)]);
    let mut bars: Vec<Bar> = bars.map(bar).collect();
    bars.sort_by_key(|bar| bar.group);
    let groups = ["here", "thesis, 2015"];
    report.picture(
        "steps",
        &plot::bars(
            "Steps to a packet program in Java",
            "million packets a second",
            Scale::Log,
            &groups,
            &bars,
        ),
    );
    frames(programs, size, launches, (turns, work), data, report)
}

/// Frame lengths, and the rates of the thesis, million packets a second: capturing in C, the firewall in C, that in Java as published,
/// and that in Java with a packet that is pointed. **Source**: as for [`STEPS`].
const FRAMES: [(usize, [Option<f64>; 4]); 6] = [
    (64, [Some(13.137), Some(12.512), Some(5.03), Some(12.655)]),
    (128, [Some(7.07), Some(7.56), Some(5.01), Some(7.88)]),
    (256, [Some(4.04), None, Some(3.74), None]),
    (512, [Some(2.23), Some(2.01), None, Some(2.16)]),
    (1024, [Some(0.845), Some(0.882), None, Some(0.975)]),
    (1518, [None; 4]),
];

/// The firewall over frames of each length, in addition to the rates of the thesis.
fn frames(
    programs: &Programs,
    size: Size,
    launches: usize,
    (turns, work): (usize, u64),
    data: &Path,
    report: &mut Report,
) -> anyhow::Result<()> {
    report.heading("Frame lengths");
    let bytes = if size == Size::Full {
        256 << 20
    } else {
        256 << 10
    };
    let names = [
        "Rust here",
        "Java here",
        "C, thesis",
        "C firewall, thesis",
        "Java firewall, thesis",
        "Java R, thesis",
    ];
    let (mut rows, mut values) = (Vec::new(), vec![Vec::new(); names.len()]);
    for (len, thesis) in FRAMES {
        let file = input(data, (bytes / (16 + len)) as u32, len)?;
        let mut ns = [Vec::new(), Vec::new()];
        for launch in 0..launches.div_ceil(4) {
            let work = work * 80 / (16 + len as u64);
            let found = [
                programs.rust("checked", &file, turns.div_ceil(2), work)?,
                programs.java("checked", &file, turns.div_ceil(2), work)?,
            ];
            if found[0].checksum != found[1].checksum {
                report.wrong(&format!(
                    "frames of {len}: {} in Rust, {} in Java",
                    found[0].checksum, found[1].checksum
                ));
            }
            for (i, found) in found.iter().enumerate() {
                let Launch {
                    ns: one,
                    packets,
                    checksum,
                } = found;
                let (region, one_text) = (format!("frames of {len}"), format!("{one:.3}"));
                let language = ["rust", "java"][i];
                report.raw(&[
                    &region,
                    "checked",
                    language,
                    &launch.to_string(),
                    &one_text,
                    &packets.to_string(),
                    checksum,
                ]);
                ns[i].push(*one);
            }
        }
        std::fs::remove_file(&file).with_context(|| file.display().to_string())?;
        let here = ns.map(|ns| Some(1e3 / median(ns.into_iter())));
        let all: Vec<Option<f64>> = here.into_iter().chain(thesis).collect();
        let mut row = vec![len.to_string()];
        for (values, rate) in values.iter_mut().zip(&all) {
            values.push(*rate);
            row.push(rate.map_or("-".to_owned(), |rate| format!("{rate:.2}")));
        }
        row.push(here[1].map_or(String::new(), |rate| {
            format!("{:.0}", rate * 8.0 * len as f64 / 1e3)
        }));
        rows.push(row);
    }
    let head = [&["bytes"], &names[..], &["Java here, Gbit/s"]].concat();
    report.table(&head, &rows);
    report.line(
        "\nMillion packets a second, one core. Here 256 MiB of records lie in memory and each length has as many bytes; the thesis's card \
         received 14.9 Mpps of 64 bytes, and 10 Gbit/s, at most.",
    );
    let lines: Vec<plot::Line> = names
        .iter()
        .zip(values)
        .map(|(label, values)| plot::Line {
            label: (*label).to_owned(),
            values,
        })
        .collect();
    let lengths: Vec<String> = FRAMES.iter().map(|(len, _)| len.to_string()).collect();
    let axes = ("bytes of a frame", "million packets a second");
    report.picture(
        "frames",
        &plot::lines(
            "A firewall over frames of each length",
            axes,
            Scale::Log,
            &lengths,
            &lines,
        ),
    );
    Ok(())
}

impl Programs {
    /// Compiles the programs in Java. **Errors**: what is lacking.
    pub fn new(home: &Path, data: &Path, warm_up: u32) -> anyhow::Result<Self> {
        let us = std::env::current_exe().context("the path of this program")?;
        let (rust, library) = (
            us.with_file_name("weir-bench-language"),
            us.with_file_name("deps").join("libweir.so"),
        );
        for path in [&rust, &library] {
            ensure!(
                path.exists(),
                "no {}: build all of bench/Cargo.toml",
                path.display()
            );
        }
        let classes = data.join("classes");
        std::fs::create_dir_all(&classes)?;
        let mut sources = Vec::new();
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        for folder in [
            "../bindings/java/src/main/java/weir/ffi",
            "../bindings/java/src/main/java/weir",
            "language",
        ] {
            for entry in std::fs::read_dir(root.join(folder)).with_context(|| folder.to_owned())? {
                let path = entry?.path();
                sources.extend(Some(path).filter(|path| {
                    path.extension()
                        .is_some_and(|extension| extension == "java")
                }));
            }
        }
        let (java, javac) = (home.join("bin/java"), home.join("bin/javac"));
        let mut programs = Self {
            warm_up,
            rust,
            java,
            javac,
            classes,
            library,
            vectors: false,
        };
        programs.compile(&sources, &[], &[])?;
        let modules = Command::new(&programs.java)
            .arg("--list-modules")
            .output()
            .context("java")?;
        if String::from_utf8_lossy(&modules.stdout).contains(MODULE[1]) {
            let ours = [
                "../bindings/java/src/vector/java/weir/vector/Marks.java",
                "language/vector/Vectors.java",
            ];
            programs.compile(&ours.map(|path| root.join(path)), &[], &MODULE)?;
            programs.vectors = true;
        }
        Ok(programs)
    }

    /// Compiles programs that use weir's classes, and jars.
    fn compile(&self, sources: &[PathBuf], jars: &[PathBuf], flags: &[&str]) -> anyhow::Result<()> {
        let path = std::iter::once(&self.classes)
            .chain(jars)
            .map(|path| path.display().to_string());
        let path = path.collect::<Vec<_>>().join(":");
        let mut javac = Command::new(&self.javac);
        javac
            .arg("-d")
            .arg(&self.classes)
            .args(["-Xlint:-restricted", "-cp", &path])
            .args(flags);
        let done = javac.args(sources).output();
        let done = done.context("javac")?;
        ensure!(
            done.status.success(),
            "{}",
            String::from_utf8_lossy(&done.stderr)
        );
        Ok(())
    }

    fn rust(&self, program: &str, file: &Path, turns: usize, work: u64) -> anyhow::Result<Launch> {
        launch(Command::new(&self.rust), program, file, turns, work)
    }

    fn java(&self, program: &str, file: &Path, turns: usize, work: u64) -> anyhow::Result<Launch> {
        launch(
            self.jvm(&["-Xmx128m", "-XX:+UseSerialGC"], "Language", &[]),
            program,
            file,
            turns,
            work,
        )
    }

    fn vectors(&self, file: &Path, turns: usize, work: u64) -> anyhow::Result<Launch> {
        let flags = [&["-Xmx128m", "-XX:+UseSerialGC"], &MODULE[..]].concat();
        launch(self.jvm(&flags, "Vectors", &[]), VECTORS, file, turns, work)
    }

    /// A command that runs a class, with jars next to the classes of weir.
    pub fn jvm(&self, flags: &[&str], class: &str, jars: &[PathBuf]) -> Command {
        let mut java = Command::new(&self.java);
        let path = std::iter::once(&self.classes)
            .chain(jars)
            .map(|path| path.display().to_string());
        java.args([
            "--enable-native-access=ALL-UNNAMED",
            "-cp",
            &path.collect::<Vec<_>>().join(":"),
        ])
        .args(flags);
        java.arg(format!("-Dopenings={}", self.warm_up))
            .arg(format!("-Dweir.library={}", self.library.display()))
            .arg(class);
        java
    }
}

/// Home of a JDK of version 25 or later.
pub fn jdk() -> Option<PathBuf> {
    let beside = std::fs::read_dir("/usr/lib/jvm")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    std::env::var_os("JAVA_HOME")
        .map(PathBuf::from)
        .into_iter()
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
        })
}

/// Launches a program once.
pub fn launch(
    mut command: Command,
    program: &str,
    file: &Path,
    turns: usize,
    work: u64,
) -> anyhow::Result<Launch> {
    command
        .arg(program)
        .arg(file)
        .args([turns.to_string(), work.to_string()]);
    let done = command.output().with_context(|| program.to_owned())?;
    ensure!(
        done.status.success(),
        "{program}: {}",
        String::from_utf8_lossy(&done.stderr)
    );
    let out = String::from_utf8_lossy(&done.stdout);
    let mut found = Vec::new();
    for line in out.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [ns, packets, checksum] = words[..] else {
            bail!("{program} printed: {line}")
        };
        let (ns, packets): (f64, u64) = (ns.parse()?, packets.parse()?);
        found.push(Launch {
            ns: ns / packets.max(1) as f64,
            packets,
            checksum: checksum.to_owned(),
        });
    }
    ensure!(
        found.len() == turns,
        "{program} printed {} turns of {turns}",
        found.len()
    );
    let behind = found.split_off(turns / 2);
    let ns = median(behind.iter().map(|one| one.ns));
    let last = behind.into_iter().next_back().context("no turn")?;
    Ok(Launch { ns, ..last })
}
