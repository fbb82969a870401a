//! Names that lead to no source.

use super::*;

#[test]
fn sources_that_cannot_be_opened_are_told_of_and_passed_over() {
    let temp = Temp::new();
    let good = temp.file("good.pcap", &small_pcap(4));
    let (missing, directory) = (temp.at("missing.pcap"), s(temp.path()).to_owned());
    for (source, says) in [
        (missing.as_str(), "no such file"),
        (
            "port",
            "no such file: an expression is one argument, in quotes: 'udp port 53'",
        ),
        (
            directory.as_str(),
            "is a directory: name the capture files in it, for instance DIR/*.pcap",
        ),
    ] {
        let alone = weir(["filter", "", source, "--count"]);
        assert_eq!(
            (alone.code, alone.text().as_str()),
            (Some(1), ""),
            "0 would be an answer: {}",
            alone.err
        );
        assert_told(source, &alone, 1, true);
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
            "sources_that_cannot_be_opened_are_told_of_and_passed_over",
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
            let both = weir([&["filter", "", source, &good, "--count"][..], more].concat());
            assert_eq!((both.code, both.count()), (Some(1), 4), "{}", both.err);
            assert_told(source, &both, 1, true);
        }
        let out = temp.at("out.pcap");
        weir(["filter", "", source, "-w", &out]);
        assert!(
            !Path::new(&out).exists(),
            "{source}: nothing was read, so nothing is written"
        );
    }
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
    assert_told(test, &done, 1, true);
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
