//! Names that lead to no source.

use super::*;

#[test]
fn a_run_with_a_source_that_does_not_exist_ends_before_it_answers() {
    let (temp, outputs) = (Temp::new(), Temp::new());
    let good = temp.file("good.pcap", &small_pcap(4));
    let (missing, directory) = (temp.at("missing.pcap"), s(temp.path()).to_owned());
    for (source, says) in [
        (
            missing.as_str(),
            format!("no such file: ls {directory} shows what is there"),
        ),
        (
            directory.as_str(),
            format!(
                "is a directory: name the capture files in it, for instance {directory}/*.pcap"
            ),
        ),
    ] {
        let alone = weir(["filter", "", source, "--count"]);
        assert_eq!(
            (alone.code, alone.text().as_str()),
            (Some(1), ""),
            "0 would be an answer: {}",
            alone.err
        );
        assert_told(source, &alone, 1, false);
        for more in [
            &["--sort"][..],
            &["--merge"],
            &["--split", "u=udp"],
            &["--follow"],
        ] {
            let done = weir([&["filter", "", source, "--count"][..], more].concat());
            assert_eq!(
                (done.code, done.text().as_str()),
                (Some(1), ""),
                "{more:?}: {}",
                done.err
            );
        }
        let json = weir(["filter", "", source, "--count", "--json"]).text();
        let object: serde_json::Value =
            serde_json::from_str(&json).expect("an object, which has the fault");
        assert_eq!(
            (&object["received"], object["fault"].is_string()),
            (&0.into(), true),
            "{json}"
        );
        if have(
            "a_run_with_a_source_that_does_not_exist_ends_before_it_answers",
            &["tcpdump"],
        ) {
            let theirs = tool("tcpdump", ["-n", "--count", "-r", source]);
            assert_eq!(
                (theirs.code, theirs.text().as_str()),
                (Some(1), ""),
                "{}",
                theirs.err
            );
        }
        assert!(
            alone.err.starts_with(&format!("weir: {source}: {says}\n")),
            "{}",
            alone.err
        );
        for more in [&[][..], &["--merge"]] {
            let both = weir([&["filter", "", &good, source, "--count"][..], more].concat());
            assert_eq!(
                (both.code, both.text().as_str()),
                (Some(1), ""),
                "{}",
                both.err
            );
            assert_told(source, &both, 1, false);
        }
        let out = outputs.at("out.pcap");
        for sources in [&[source][..], &[&good, source], &[source, &good]] {
            for command in [&["filter", "udp"][..], &["measure"]] {
                let done = weir([command, sources, &["-w", &out]].concat());
                assert_eq!(
                    (done.code, done.text().as_str()),
                    (Some(1), ""),
                    "{sources:?}"
                );
                assert_told(source, &done, 1, false);
                assert!(
                    !Path::new(&out).exists(),
                    "{sources:?}: nothing was read, so nothing is written"
                );
            }
        }
        let record = outputs.at("record");
        let done = weir(["record", source, &record]);
        assert_eq!((done.code, done.text().as_str()), (Some(1), ""));
        assert_told(source, &done, 1, false);
        assert!(
            !Path::new(&record).exists(),
            "{source}: nothing is recorded"
        );
        let rules = temp.file("rules.txt", b"drop udp\n");
        let done = weir(["firewall", "check", &rules, &good, source]);
        assert_eq!((done.code, done.text().as_str()), (Some(1), ""));
        assert_told(source, &done, 1, false);
    }
}

#[test]
fn an_expression_in_the_place_of_a_source_is_refused_with_the_right_line() {
    let temp = Temp::new();
    let good = temp.file("good.pcap", &small_pcap(4));
    for (arguments, right) in [
        (
            &["filter", "udp", "port", "53", &good][..],
            format!("weir filter 'udp port 53' {good}\n"),
        ),
        (
            &["measure", &good, "tcp port 443", "--json"],
            format!("weir measure {good} --filter 'tcp port 443'\n"),
        ),
    ] {
        let done = weir(arguments);
        assert_eq!(
            (done.code, done.text().as_str()),
            (Some(2), ""),
            "{}",
            done.err
        );
        assert_told(&right, &done, 1, false);
        assert!(done.err.ends_with(&right), "{}", done.err);
    }
}

/// A file that the first look finds and that is gone when its turn comes: what was read before it is told in full.
#[test]
fn a_source_that_vanishes_after_the_run_began_keeps_the_answer_of_the_others() {
    let temp = Temp::new();
    let (pipe, late) = (temp.at("pipe"), temp.file("late.pcap", &small_pcap(4)));
    assert!(tool("mkfifo", [&pipe]).code == Some(0));
    let running = weir_command()
        .args(["filter", "", &pipe, &late, "--count"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Opened by the run, which has looked at all names before.
    let mut writer = std::fs::OpenOptions::new().write(true).open(&pipe).unwrap();
    std::fs::remove_file(&late).unwrap();
    std::io::Write::write_all(&mut writer, &small_pcap(3)).unwrap();
    drop(writer);
    let done = running.wait_with_output().unwrap();
    let err = String::from_utf8(done.stderr).unwrap();
    assert_eq!(
        (done.status.code(), &done.stdout[..]),
        (Some(1), &b"3\n"[..]),
        "{err}"
    );
    assert!(err.contains("late.pcap: no such file\n"), "{err}");
    assert!(
        err.contains("3 received") && err.ends_with("see the fault above\n"),
        "{err}"
    );
}

#[test]
fn a_file_that_may_not_be_read_is_told_of() {
    let test = "a_file_that_may_not_be_read_is_told_of";
    use std::os::unix::fs::PermissionsExt;
    let temp = Temp::new();
    let file = temp.file("secret.pcap", &small_pcap(1));
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o0)).unwrap();
    let mut command = if std::fs::read(&file).is_ok() {
        // Root may read any file, so that the child gives up that right. The child must still reach the binary, which is
        // therefore copied to the directory.
        if !have(test, &["setpriv"]) {
            return;
        }
        std::fs::set_permissions(temp.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let copy = temp.at("weir");
        std::fs::copy(env!("CARGO_BIN_EXE_weir"), &copy).unwrap();
        let mut command = Command::new("setpriv");
        command.args([
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            "--",
            &copy,
        ]);
        command
    } else {
        Command::new(env!("CARGO_BIN_EXE_weir"))
    };
    let done = run(
        command
            .args(["filter", "", &file, "--count"])
            .stdin(Stdio::null()),
        &[],
    );
    if done.err.starts_with("setpriv") {
        skipped(test, done.err.trim());
        return;
    }
    assert_eq!(
        (done.code, done.text().as_str()),
        (Some(1), ""),
        "{}",
        done.err
    );
    assert!(
        done.err
            .starts_with(&format!("weir: {file}: permission denied: ")),
        "{}",
        done.err
    );
    assert_told(test, &done, 1, false);
}

#[test]
fn a_name_is_refused_whatever_the_source() {
    let temp = Temp::new();
    let out = temp.at("out.pcap");
    let done = weir_fed(
        ["filter", "host www.example.com", "-", "-w", &out],
        &small_pcap(3),
    );
    assert_eq!(
        (done.code, Path::new(&out).exists()),
        (Some(2), false),
        "{}",
        done.err
    );
    assert_told("host name", &done, 1, false);
}

#[test]
fn standard_input_that_is_a_directory_is_called_standard_input() {
    let temp = Temp::new();
    for command in ["filter", "info", "measure"] {
        let expression = (command == "filter").then_some("");
        let folder = std::fs::File::open(temp.path()).unwrap();
        let done = run(
            weir_command()
                .arg(command)
                .args(expression)
                .arg("-")
                .stdin(folder),
            &[],
        );
        let line = "weir: standard input: is a directory: name the capture files in it";
        assert!(
            done.code == Some(1) && done.err.contains(line),
            "{}",
            done.err
        );
    }
}

#[test]
fn names_that_are_neither_files_nor_interfaces_are_called_neither() {
    for name in ["nosuch", "af_packet:nosuch", "af_xdp:no.such:1"] {
        let done = weir(["info", name]);
        let line = format!(
            "weir: {name}: no such file, and no network interface of this name: weir filter -D lists them\n"
        );
        assert_eq!((done.code, done.err), (Some(1), line));
    }
    let line = "weir: af_packet:lo: is a network interface, and no such file: ";
    assert!(weir(["info", "af_packet:lo"]).err.starts_with(line));
}

#[test]
fn an_unknown_way_to_capture_or_send_is_refused_and_makes_no_file() {
    let temp = Temp::new();
    let file = temp.file("in.pcap", &small_pcap(4));
    let inside =
        |arguments: &[&str]| run(weir_command().current_dir(temp.path()).args(arguments), &[]);
    let refused = |arguments: &[&str], words: &str| {
        let done = inside(arguments);
        assert_eq!(done.code, Some(2), "{arguments:?}: {}", done.err);
        assert!(
            done.err.starts_with("weir: af_paket:ux0") && done.err.contains(words),
            "{arguments:?}: {}",
            done.err
        );
        assert_eq!(
            (done.err.lines().count(), temp.names().len()),
            (1, 1),
            "{arguments:?}: {}",
            done.err
        );
    };
    let capture = "unknown capture method (did you mean af_packet:ux0?)";
    refused(&["filter", "", "af_paket:ux0"], capture);
    refused(&["filter", "", "af_paket:ux0", "--wait"], capture);
    refused(
        &["filter", "", &file, "af_paket:ux0", "--merge", "--count"],
        capture,
    );
    refused(&["measure", "af_paket:ux0"], capture);
    let send = "unknown way to send (did you mean af_packet:ux0?)";
    refused(&["filter", "", &file, "-w", "af_paket:ux0"], send);
    refused(
        &["filter", "", &file, "--split", "af_paket:ux0=udp"],
        "unknown way to send (did",
    );
    refused(&["generate", "af_paket:ux0", "--packets", "3"], send);
    // A file name may contain a colon.
    inside(&["filter", "", &file, "-w", "./af_paket:ux0"]).ok();
    assert_eq!(
        inside(&["filter", "", "./af_paket:ux0", "--count"])
            .ok()
            .count(),
        4
    );
    assert_eq!(
        inside(&["filter", "", "af_paket:ux0", "--count"])
            .ok()
            .count(),
        4,
        "there is such a file"
    );
    inside(&["generate", "2026-11-22T12:00:00.pcap", "--packets", "1k"]).ok();
    assert_eq!(
        inside(&["filter", "", "2026-11-22T12:00:00.pcap", "--count"])
            .ok()
            .count(),
        1024
    );
}

#[test]
fn a_circle_of_links_is_an_error_of_its_name() {
    let temp = Temp::new();
    let (circle, file) = (
        temp.at("circle"),
        temp.file("a.pcap", &pcap_header(65_535, 1)),
    );
    std::os::unix::fs::symlink("circle", &circle).unwrap();
    let runs: [(&[&str], i32); 5] = [
        (&["filter", "", &circle], 1),
        (&["filter", "", &circle, "--follow"], 1),
        (&["measure", &circle], 1),
        (&["filter", "", &file, "-w", &circle], 1),
        (&["generate", &circle, "--packets", "1"], 1),
    ];
    for (arguments, code) in runs {
        // A run that follows links for ever is deaf to signals: TERM after ten seconds, KILL a second later.
        let weir = env!("CARGO_BIN_EXE_weir");
        let done = tool("timeout", ["-k", "1", "10", weir].iter().chain(arguments));
        assert_eq!(done.code, Some(code), "{arguments:?}: {done:?}");
        assert!(
            done.err.contains("too many levels of symbolic links"),
            "{arguments:?}: {}",
            done.err
        );
    }
}
