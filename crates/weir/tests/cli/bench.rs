//! `weir bench` runs the program `weir-bench`, beside the command or in PATH.

use crate::support::{Done, Temp, run, s};
use std::process::Command;

/// Runs a shell script. Other processes write the programs, because a file open for writing here could be inherited by a
/// program that another test starts at that moment. The kernel would then refuse to run the file.
fn shell(script: &str, arguments: &[&str]) {
    let status = Command::new("sh")
        .args(["-c", script, "sh"])
        .args(arguments)
        .status();
    assert!(status.is_ok_and(|status| status.success()), "{script}");
}

/// A copy of the command in `temp`, so that no weir-bench lies beside it.
fn weir_in(temp: &Temp) -> String {
    let copy = temp.at("weir");
    shell(r#"cp "$1" "$2""#, &[env!("CARGO_BIN_EXE_weir"), &copy]);
    copy
}

/// A program that prints its name and its arguments, one a line, and exits with 7.
fn stand_in(path: &str) {
    let program = "#!/bin/sh\nprintf '%s\\n' \"$0\" \"$@\"\nexit 7\n";
    shell(
        r#"printf '%s' "$2" >"$1" && chmod +x "$1""#,
        &[path, program],
    );
}

fn bench(weir: &str, path: &str, arguments: &[&str]) -> Done {
    let mut command = Command::new(weir);
    run(command.arg("bench").args(arguments).env("PATH", path), &[])
}

#[test]
fn arguments_and_exit_code_go_through_to_the_one_beside() {
    let temp = Temp::new();
    let weir = weir_in(&temp);
    stand_in(&temp.at("weir-bench"));
    let arguments = [
        "sketch", "--size", "smoke", "--help", "-x", "a b", "--", "c",
    ];
    let done = bench(&weir, "/nowhere:/bin:/usr/bin", &arguments);
    assert_eq!(done.code, Some(7), "{}", done.err);
    let text = done.text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], temp.at("weir-bench"));
    assert_eq!(lines[1..], arguments);
    assert_eq!(
        bench(&weir, "/bin:/usr/bin", &[]).text().lines().count(),
        1,
        "without a name nothing is added"
    );
}

#[test]
fn one_in_path_will_do() {
    let (temp, other) = (Temp::new(), Temp::new());
    let weir = weir_in(&temp);
    stand_in(&other.at("weir-bench"));
    let done = bench(
        &weir,
        &format!("{}:/bin:/usr/bin", s(other.path())),
        &["pages"],
    );
    assert_eq!(
        (done.code, done.text().lines().last()),
        (Some(7), Some("pages"))
    );
}

#[test]
fn without_it_one_line_says_how_to_build_it() {
    let temp = Temp::new();
    let done = bench(&weir_in(&temp), "/nowhere", &["sketch"]);
    assert_eq!(done.code, Some(2));
    assert_eq!(done.err.lines().count(), 1, "{}", done.err);
    assert!(
        done.err.starts_with("weir: ") && done.err.contains("--manifest-path bench/Cargo.toml"),
        "{}",
        done.err
    );
}
