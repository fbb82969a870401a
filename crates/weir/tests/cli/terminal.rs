//! Output on a terminal: no line is wider than the terminal, and a narrow table has the content of a wide one.

use crate::capture::net::Net;
use crate::support::{Done, Temp, have, run, small_pcap, udp, wait, weir, weir_command};
use std::io::Write as _;
use std::process::{Command, Stdio};

const WIDTHS: [usize; 4] = [60, 80, 120, 200];

/// Whether the programs for a pseudo-terminal exist; if not, prints which one is missing for `test`.
fn can_make_terminals(test: &str) -> bool {
    have(test, &["script", "stty", "sh"])
}

/// Exit code and output of `weir` on a terminal of `width` columns, in `temp`; both streams, without colours.
fn shown(temp: &Temp, width: usize, arguments: &[&str]) -> (Option<i32>, String) {
    let quoted: Vec<String> = arguments
        .iter()
        .map(|word| format!("'{}'", word.replace('\'', r"'\''")))
        .collect();
    let weir = weir_command();
    let program = weir
        .get_program()
        .to_str()
        .expect("the path of a test is ASCII");
    let line = format!(
        "stty cols {width} rows 50 && exec '{program}' {}",
        quoted.join(" ")
    );
    let mut command = Command::new("script");
    command
        .args(["-qec", &line, "/dev/null"])
        .env("TZ", "UTC")
        .env("TERM", "xterm")
        .env("SHELL", "/bin/sh");
    command
        .env_remove("COLUMNS")
        .current_dir(temp.path())
        .stdin(std::process::Stdio::null());
    let Done { code, out, .. } = run(&mut command, &[]);
    (
        code,
        plain(&String::from_utf8(out).expect("weir prints UTF-8")),
    )
}

/// Text without colours and without overwritten lines.
fn plain(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('\x1b') {
        out.push_str(&rest[..at]);
        let end = rest[at..]
            .find(|c: char| c.is_ascii_alphabetic())
            .expect("a sequence ends");
        rest = &rest[at + end + 1..];
    }
    out.push_str(rest);
    let out = out.replace("\r\n", "\n");
    out.split('\n')
        .map(|line| line.rsplit('\r').next().unwrap_or(line))
        .collect::<Vec<_>>()
        .join("\n")
}

#[track_caller]
fn assert_fits(width: usize, arguments: &[&str], text: &str) {
    for line in text.lines() {
        assert!(
            line.chars().count() <= width,
            "{arguments:?} at {width}:\n{line}\nin\n{text}"
        );
    }
}

/// A directory with captures: generated packets of Internet-like sizes with IPv6, a cut file, a pcapng file.
fn captures() -> Temp {
    let temp = Temp::new();
    weir([
        "generate",
        &temp.at("demo.pcap"),
        "--packets",
        "20000",
        "--flows",
        "3000",
        "--rate",
        "100",
    ])
    .ok();
    weir([
        "filter",
        "",
        &temp.at("demo.pcap"),
        "-w",
        &temp.at("demo.pcapng"),
    ])
    .ok();
    let mut cut = small_pcap(30);
    cut.truncate(cut.len() - 3);
    temp.file("cut.pcap", &cut);
    temp
}

#[test]
fn no_command_prints_a_line_wider_than_its_terminal() {
    let test = "no_command_prints_a_line_wider_than_its_terminal";
    if !can_make_terminals(test) {
        return;
    }
    let temp = captures();
    let lines: [&[&str]; 38] = [
        &["measure", "demo.pcap"],
        &[
            "measure",
            "demo.pcap",
            "--by",
            "bytes",
            "--top",
            "40",
            "--stats",
        ],
        &[
            "measure",
            "demo.pcap",
            "--key",
            "conversation",
            "--memory",
            "16k",
        ],
        &[
            "measure",
            "demo.pcap",
            "--key",
            "pair",
            "--key",
            "src",
            "--key",
            "dst",
            "--key",
            "src/24",
            "--key",
            "dst/48",
        ],
        &[
            "measure",
            "demo.pcap",
            "--key",
            "sport",
            "--key",
            "dport",
            "--key",
            "proto",
        ],
        &[
            "measure",
            "demo.pcap",
            "--sketch",
            "cms",
            "--memory",
            "16k",
            "--stats",
        ],
        &[
            "measure",
            "demo.pcap",
            "--sketch",
            "exact",
            "--memory",
            "16k",
        ],
        &["measure", "demo.pcap", "--window", "50s", "--changers", "4"],
        &[
            "measure",
            "demo.pcap",
            "--window",
            "50s",
            "--changers",
            "4",
            "--sketch",
            "cms",
            "--memory",
            "16k",
        ],
        &["measure", "demo.pcap", "demo.pcapng", "--filter", "tcp"],
        &[
            "measure",
            "demo.pcap",
            "--filter",
            "no such host at all, and a long expression about it that goes on and on",
        ],
        &["measure", "cut.pcap"],
        &["measure", "missing.pcap"],
        &["measure", "demo.pcap", "--late", "1s"],
        &["filter", "tcp", "demo.pcap", "--count", "--stats"],
        &["filter", "tcp", "demo.pcap", "-w", "out.pcap"],
        &[
            "filter",
            "",
            "demo.pcap",
            "--count",
            "--split",
            "web=tcp port 443",
            "--split",
            "dns=port 53",
            "--stats",
        ],
        &["filter", "tcp", "cut.pcap", "--count"],
        &["filter", "tcp", "cut.pcap", "-w", "no/such/directory.pcap"],
        &["filter", "tcp port", "demo.pcap"],
        &["filter", "-D"],
        &["filter", "tcp", "nosuchinterface"],
        &["filter", "tcp", "demo.pcap", "--no-such-option"],
        &["filter", "tcp", "demo.pcap", "--workers", "1000"],
        &[
            "info",
            "demo.pcap",
            "demo.pcapng",
            "cut.pcap",
            "missing.pcap",
        ],
        &["generate", "made.pcap", "--packets", "2000", "--truth"],
        &[
            "generate",
            "made.pcap",
            "--packets",
            "2000",
            "--talkers",
            "20",
        ],
        &["generate", "null", "--packets", "2000"],
        &["doctor"],
        &["bench", "no-such-comparison"],
        &["--help"],
        &["measure", "--help"],
        &["filter", "--help"],
        &["info", "--help"],
        &["generate", "--help"],
        &["doctor", "--help"],
        &["bench", "--help"],
        &["filter", "-h"],
    ];
    for arguments in lines {
        for width in WIDTHS {
            let (_, text) = shown(&temp, width, arguments);
            assert!(!text.trim().is_empty(), "{arguments:?} at {width}");
            assert_fits(width, arguments, &text);
        }
    }
}

/// Number with its digits in groups: `1 234 567`.
fn in_groups(n: u64) -> String {
    match n {
        0..1000 => n.to_string(),
        _ => format!("{} {:03}", in_groups(n / 1000), n % 1000),
    }
}

/// Bytes with at most three digits: `12 B`, `1.2 kB`, `123 kB`, `1.2 MB`.
fn in_bytes(n: u64) -> String {
    let units = [(1e9, "GB"), (1e6, "MB"), (1e3, "kB")];
    let Some((unit, name)) = units.iter().find(|(unit, _)| n as f64 >= 0.9995 * unit) else {
        return format!("{n} B");
    };
    let value = n as f64 / unit;
    if value < 99.95 {
        format!("{value:.1} {name}")
    } else {
        format!("{value:.0} {name}")
    }
}

/// Cells of row `rank` of the table, over all its lines. At least two blanks separate cells.
fn cells(text: &str, rank: usize) -> Vec<&str> {
    let begins = |line: &str, rank: usize| line.trim_start().starts_with(&format!("{rank}  "));
    let table = text
        .lines()
        .skip_while(|line| !line.trim_start().starts_with("#  "))
        .skip(1);
    let row = table.skip_while(|line| !begins(line, rank));
    let row = row
        .take_while(|line| !begins(line, rank + 1) && !line.trim_start().starts_with("outside:"));
    row.flat_map(|line| line.split("  "))
        .map(str::trim)
        .filter(|cell| !cell.is_empty())
        .collect()
}

#[test]
fn a_narrow_table_has_the_keys_the_figure_and_its_bound_of_a_wide_one() {
    let test = "a_narrow_table_has_the_keys_the_figure_and_its_bound_of_a_wide_one";
    if !can_make_terminals(test) {
        return;
    }
    let temp = captures();
    // JSON is the oracle, because it has no layout.
    for more in [
        &["--top", "25"][..],
        &["--top", "25", "--by", "bytes", "--memory", "16k"],
        &["--key", "src"],
    ] {
        let arguments = [
            &["measure", "demo.pcap", "--seed", "1", "--workers", "1"],
            more,
        ]
        .concat();
        let full = [&arguments[..], &["--json"]].concat();
        let object = run(weir_command().current_dir(temp.path()).args(full), &[]).ok();
        let object: serde_json::Value = serde_json::from_slice(&object.out).unwrap();
        for width in WIDTHS {
            let (code, text) = shown(&temp, width, &arguments);
            assert_eq!(code, Some(0), "{text}");
            let joined: String = text.split_whitespace().collect();
            let by_bytes = more.contains(&"bytes");
            let figure = if by_bytes { "bytes" } else { "packets" };
            for (i, row) in object["top"].as_array().unwrap().iter().enumerate() {
                let cells = cells(&text, i + 1);
                let number = |value: &serde_json::Value| value.as_u64().expect("it is a count");
                let (ranked, lower, upper) = (
                    number(&row[figure]),
                    &row["bound"]["lower"],
                    &row["bound"]["upper"],
                );
                let shown = if by_bytes {
                    in_bytes(ranked)
                } else {
                    in_groups(ranked)
                };
                assert!(
                    cells.contains(&shown.as_str()),
                    "{width}: {shown} in {cells:?} of\n{text}"
                );
                let share = if by_bytes {
                    number(&object["bytes"])
                } else {
                    number(&object["passed"])
                };
                let share = format!("{:.1} %", ranked as f64 * 100.0 / share as f64);
                assert!(
                    cells.contains(&share.as_str()),
                    "{width}: {share} in {cells:?} of\n{text}"
                );
                let [below, above] =
                    [ranked - number(lower), number(upper) - ranked].map(in_groups);
                let holds = |cell: &str| cells.contains(&cell);
                let bounded = match (below.as_str(), above.as_str()) {
                    ("0", "0") => holds("exact"),
                    _ => {
                        let [below, above] = [format!("-{below}"), format!("+{above}")];
                        holds(&format!("{below} {above}")) || holds(&below) && holds(&above)
                    }
                };
                assert!(
                    bounded,
                    "{width}: -{below} +{above} in {cells:?} of\n{text}"
                );
                for address in ["src", "dst"].iter().filter_map(|key| row[*key].as_str()) {
                    // An address may be broken over lines, with figures of the row in between. Its two ends must occur.
                    let ends = [
                        address.split(':').next().unwrap(),
                        address.rsplit(':').next().unwrap(),
                    ];
                    assert!(
                        ends.iter().all(|end| joined.contains(end)),
                        "{width}: {address} in\n{text}"
                    );
                }
                for port in ["sport", "dport"]
                    .iter()
                    .filter_map(|key| row[*key].as_u64())
                {
                    assert!(
                        text.contains(&format!(":{port}")),
                        "{width}: {port} in\n{text}"
                    );
                }
            }
            let titles = ["packets", "share", "bound"];
            assert!(
                titles.iter().all(|title| by_bytes || text.contains(title)),
                "{width}:\n{text}"
            );
        }
    }
}

#[test]
fn piped_text_has_its_own_layout_unless_columns_are_asked_for() {
    let temp = captures();
    let path = temp.at("demo.pcap");
    let measure = |columns: Option<&str>| {
        let mut command = weir_command();
        command.args(["measure", &path, "--seed", "1", "--workers", "1"]);
        columns.map(|columns| command.env("COLUMNS", columns));
        run(&mut command, &[]).ok()
    };
    let whole = measure(None).text();
    let rows = whole
        .lines()
        .filter(|line| line.contains(" exact") || line.contains(" -0 "))
        .count();
    assert_eq!(rows, 10, "each row is a line:\n{whole}");
    assert!(whole.lines().any(|line| line.len() > 90), "{whole}");
    let narrow = measure(Some("70"));
    assert_fits(70, &["measure"], &narrow.text());
    assert!(
        narrow.err.lines().count() == 1,
        "lines on standard error stay whole: {}",
        narrow.err
    );
    assert_eq!(measure(Some("wide")).text(), whole);
}

#[test]
fn what_the_parser_refuses_is_a_line_of_ours() {
    for arguments in [
        &["filter"][..],
        &["measure", "a", "--no-such"],
        &["no-such-command"],
        &["info", "--workers", "0", "a"],
    ] {
        let done = weir(arguments);
        assert_eq!(
            (done.code, done.text().as_str()),
            (Some(2), ""),
            "{arguments:?}"
        );
        assert!(
            done.err.starts_with("weir: "),
            "{arguments:?}: {}",
            done.err
        );
        assert!(!done.err.contains("error:"), "{arguments:?}: {}", done.err);
    }
    for arguments in [&["--help"][..], &["filter", "-h"], &["--version"]] {
        assert!(weir(arguments).ok().err.is_empty(), "{arguments:?}");
    }
    for arguments in [&["--version"][..], &["-V"], &["filter", "--version"]] {
        let text = weir(arguments).ok().text();
        let version = format!(" {}\n", env!("CARGO_PKG_VERSION"));
        assert!(
            text.lines().count() == 1 && text.ends_with(&version),
            "{text}"
        );
    }
    // Without arguments the help is printed, and no command runs.
    let done = weir::<&str>([]);
    assert_eq!(done.code, Some(2));
    assert!(done.err.contains("Usage: weir"), "{}", done.err);
}

/// A paragraph of help is broken only where its lines are full: the first word of a line had no room in the line before.
#[test]
fn paragraphs_below_the_options_fill_their_lines() {
    for columns in [60, 80, 100] {
        for command in ["filter", "measure", "generate", "info", "doctor"] {
            let mut weir = weir_command();
            let help = run(
                weir.args([command, "--help"])
                    .env("COLUMNS", columns.to_string()),
                &[],
            )
            .ok()
            .text();
            let below = help
                .split("\nExamples:\n")
                .nth(1)
                .and_then(|rest| rest.split_once("\n\n"))
                .expect("each has examples")
                .1;
            for lines in below.lines().collect::<Vec<_>>().windows(2) {
                let [line, next] = lines else { unreachable!() };
                let is_prose =
                    |line: &str| !line.is_empty() && !line.starts_with(' ') && !line.ends_with(':');
                if is_prose(line) && is_prose(next) {
                    let word = next.split(' ').next().expect("it is not empty");
                    let both = line.chars().count() + 1 + word.chars().count();
                    assert!(both > columns, "{command} at {columns}:\n{line}\n{next}");
                }
            }
        }
    }
}

/// A terminal whose user sees a capture go on, and presses Ctrl-C: the progress line says how many packets the sender has sent,
/// goes away, and leaves the answer.
#[test]
fn a_capture_shows_what_it_has_received_until_ctrl_c_ends_it() {
    let test = "a_capture_shows_what_it_has_received_until_ctrl_c_ends_it";
    if !can_make_terminals(test) {
        return;
    }
    let Some(net) = Net::new(test) else { return };
    let temp = Temp::new();
    let (weir, out) = (env!("CARGO_BIN_EXE_weir"), temp.at("out.pcap"));
    let frames: Vec<Vec<u8>> = (0..20).map(|port| udp(port, 30)).collect();
    for (number, (words, answer)) in [
        ("measure near", "20 packets"),
        ("measure near --window 1s", "20 received"),
        ("filter '' near --count", "20 received, 20 matched"),
        (
            &format!("filter '' near -w {out}"),
            "20 received, 20 matched",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let typescript = temp.at(&format!("typescript{number}"));
        let line = format!("stty cols 100; exec {weir} {words}");
        let mut terminal = net
            .command("near", &["script", "-qefc", &line, &typescript])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("script is there");
        let shows = |words: &str| {
            wait::until(format_args!("{words} in {typescript}"), || {
                std::fs::read_to_string(&typescript).is_ok_and(|text| text.contains(words))
            });
        };
        shows("AF_PACKET");
        assert_eq!(net.send(&frames, 0), 20);
        shows("\r20 received, ");
        shows("; Ctrl-C ends the run\x1b[K");
        let mut keyboard = terminal.stdin.take().expect("a pipe");
        keyboard.write_all(b"\x03").expect("script reads it");
        assert!(terminal.wait().expect("it ends").success(), "{words}");
        let text = std::fs::read_to_string(&typescript).expect("script wrote it");
        let left = plain(&text);
        assert!(left.contains(answer), "{words}: {left}");
        assert!(!left.contains("ends the run"), "{words}: {left}");
    }
    // Without a terminal nothing is shown.
    let capture = net.capture(&["measure", "near"]);
    assert_eq!(net.send(&frames, 10), 20);
    let done = capture.until_received("near", 20).stop().ok();
    assert!(!done.err.contains("ends the run"), "{}", done.err);
}
