//! Outputs that cannot be made, are closed, or are full.

use super::*;

#[test]
fn outputs_that_cannot_be_made_are_told_of_once() {
    let temp = Temp::new();
    let file = temp.file("in.pcap", &small_pcap(4));
    let nowhere = temp.at("no/such/directory/out.pcap");
    for expression in ["", "tcp"] {
        let done = weir(["filter", expression, &file, "-w", &nowhere]);
        assert_eq!(done.code, Some(1));
        let directory = temp.at("no/such/directory");
        assert_eq!(
            done.err,
            format!(
                "weir: {nowhere}: cannot be created: its directory does not exist: mkdir -p {directory}\n"
            )
        );
    }
    let done = weir(["filter", "", &file, "-w", s(temp.path())]);
    assert_eq!(done.code, Some(1));
    assert_told("a directory", &done, 1, false);
    let done = weir(["generate", &nowhere]);
    assert_eq!(done.code, Some(1));
    assert_told("generate", &done, 1, false);
    assert!(
        done.err.contains("its directory does not exist"),
        "{}",
        done.err
    );
}

#[test]
fn a_full_disk_is_told_of() {
    let test = "a_full_disk_is_told_of";
    if !Path::new("/dev/full").exists() {
        skipped(test, "no /dev/full");
        return;
    }
    let temp = Temp::new();
    let file = temp.file("in.pcap", &small_pcap(4));
    let done = weir(["filter", "", &file, "-w", "/dev/full"]);
    assert_eq!(done.code, Some(1));
    assert_told("-w /dev/full", &done, 1, true);
    assert!(
        done.err
            .starts_with("weir: /dev/full: no space left on the device; no packet was written\n"),
        "{}",
        done.err
    );
    let shell = |script: &str| {
        let script = script
            .replace("WEIR", &format!("'{}'", env!("CARGO_BIN_EXE_weir")))
            .replace("FILE", &format!("'{file}'"));
        run(
            Command::new("sh")
                .args(["-c", &script])
                .stdin(Stdio::null()),
            &[],
        )
    };
    for command in [
        "filter '' FILE",
        "filter '' FILE --count",
        "filter '' FILE --json",
        "filter '' FILE -w -",
        "filter '' FILE --count --json",
    ] {
        let done = shell(&format!("exec WEIR {command} >/dev/full"));
        assert_eq!(done.code, Some(1), "{command}: {}", done.err);
        assert!(
            done.err
                .starts_with("weir: standard output: no space left on the device"),
            "{command}: {}",
            done.err
        );
        assert_told(command, &done, 1, true);
    }
    for command in [
        "info FILE",
        "info --json FILE",
        "generate - --packets 10",
        "--help",
        "measure --help",
        "--version",
    ] {
        let done = shell(&format!("exec WEIR {command} >/dev/full"));
        assert_eq!(done.code, Some(1), "{command}: {}", done.err);
        assert_told(command, &done, 1, false);
    }
    // Without a place for messages, only the exit code tells the outcome.
    assert_eq!(
        shell("exec WEIR filter '' FILE --count 2>/dev/full").code,
        Some(0)
    );
    assert_eq!(
        shell("exec WEIR filter '' nofile --count 2>/dev/full").code,
        Some(1)
    );
    assert_eq!(shell("exec WEIR info nofile 2>/dev/full").code, Some(1));
    assert_eq!(
        shell("exec WEIR filter 'foo bar' FILE 2>/dev/full").code,
        Some(2)
    );
    assert_eq!(
        shell("exec WEIR filter '' FILE --count 2>&- >&-").code,
        Some(1)
    );
    assert_eq!(shell("exec WEIR measure FILE >/dev/full").code, Some(1));
}

/// The runtime opens /dev/null in place of a closed standard output, where an answer would be lost silently.
#[test]
fn a_closed_standard_output_is_told_of() {
    let temp = Temp::new();
    let file = temp.file("in.pcap", &small_pcap(4));
    let (made, copy) = (temp.at("made.pcap"), temp.at("copy.pcap"));
    let shell = |command: &str, to: &str| {
        let command = command
            .replace("FILE", &file)
            .replace("MADE", &made)
            .replace("COPY", &copy);
        let script = format!("exec '{}' {command} {to}", env!("CARGO_BIN_EXE_weir"));
        run(
            Command::new("sh")
                .args(["-c", &script])
                .stdin(Stdio::null()),
            &[],
        )
    };
    for (command, summary) in [
        ("filter '' FILE -w -", true),
        ("filter '' FILE", true),
        ("filter tcp FILE", true),
        ("filter '' FILE --json", true),
        ("filter '' FILE --count", true),
        ("filter '' FILE --count --json", true),
        ("filter -D", false),
        ("measure FILE", true),
        ("measure FILE --json --window 1s", true),
        ("info FILE", false),
        ("info --json FILE", false),
        ("generate - --packets 10", false),
        ("generate MADE --packets 10 --truth", false),
        ("generate MADE --packets 10 --talkers 3", false),
        ("doctor --json", false),
        ("--help", false),
        ("filter -h", false),
        ("help info", false),
        ("--version", false),
    ] {
        let done = shell(command, ">&-");
        assert_eq!(done.code, Some(1), "{command}: {}", done.err);
        assert_told(command, &done, 1, summary);
        let line = done.err.lines().next().expect("a line");
        assert!(line.contains(": it is closed"), "{command}: {}", done.err);
        // If standard output is /dev/null by intent, the run succeeds.
        assert_eq!(shell(command, ">/dev/null").code, Some(0), "{command}");
        assert_eq!(shell(command, "<>/dev/null >&0").code, Some(0), "{command}");
    }
    // Commands without output on standard output do not need it.
    for command in ["filter '' FILE -w COPY", "generate MADE --packets 10"] {
        assert_eq!(shell(command, ">&-").code, Some(0), "{command}");
    }
    let split = shell("filter '' FILE -w - --split 'COPY=udp'", ">&-");
    assert_eq!(
        (split.code, records(&copy).len()),
        (Some(1), 0),
        "{}",
        split.err
    );
}

#[test]
fn a_file_size_limit_leaves_whole_packets() {
    let temp = Temp::new();
    let file = temp.at("in.pcap");
    weir(["generate", &file, "--packets", "8000"]).ok();
    let all = records(&file);
    for name in ["out.pcap", "out.pcapng"] {
        let out = temp.at(name);
        // The shell counts blocks of 512 or 1024 bytes. Either limit is some MB, which is several writes.
        let script = format!(
            "trap '' XFSZ; ulimit -f 5000; exec '{}' filter '' '{file}' -w '{out}'",
            env!("CARGO_BIN_EXE_weir")
        );
        let done = run(
            Command::new("sh")
                .args(["-c", &script])
                .stdin(Stdio::null()),
            &[],
        );
        assert_eq!(done.code, Some(1), "{}", done.err);
        assert_told(name, &done, 1, true);
        let kept = records(&out);
        assert!(kept.len() > 1000 && kept.len() < 8000, "{}", kept.len());
        assert!(kept == all[..kept.len()]);
        let says = format!(
            "weir: {out}: file too large; {} packets were written before that\n",
            kept.len()
        );
        assert!(done.err.starts_with(&says), "{}\nwanted {says}", done.err);
    }
}

/// An output with the name of the file behind standard input must not empty it.
#[test]
fn a_source_on_standard_input_is_not_its_own_output() {
    let temp = Temp::new();
    let file = temp.file("in.pcap", &small_pcap(4));
    let before = std::fs::read(&file).unwrap();
    let mut command = weir_command();
    command
        .args(["filter", "", "-", "-w", &file])
        .stdin(std::fs::File::open(&file).unwrap());
    let done = command.output().unwrap();
    assert_eq!(done.status.code(), Some(2), "{done:?}");
    let told = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(
        told.contains("is both standard input and output: it would be emptied before it is read"),
        "{told}"
    );
    assert!(std::fs::read(&file).unwrap() == before);
    let own = std::fs::File::options().append(true).open(&file).unwrap();
    let done = weir_command()
        .args(["filter", "", &file, "-w", "-"])
        .stdout(own)
        .output()
        .unwrap();
    assert_eq!(done.status.code(), Some(2), "{done:?}");
    assert!(std::fs::read(&file).unwrap() == before);
}
