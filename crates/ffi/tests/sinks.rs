//! Sinks and sources of programs in C and Java: guarded interfaces, in networks of the tests' own, and disks with a reserve. The judges are the
//! counters of the kernel, and the file system.

mod jdk;

use jdk::{Java, root, text};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use weir_testkit::net::{self, ip};
use weir_testkit::savefile::mixed;
use weir_testkit::{Scratch, have, skipped};

/// The same as `weir.SinkChecks`, in C.
const PROGRAM: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "weir.h"

static void tell(weir_status status, weir_text error)
{
    const char *line = "";
    if (error)
        weir_text_read(error, &line, NULL);
    printf("%d %s\n", (int)status, line);
    if (error)
        weir_text_free(error);
}

static weir_status send_to(const char *name, const char *yes, weir_text *error)
{
    weir_sink sink;
    weir_sink_options options = {0};
    options.size = sizeof options;
    options.yes_send = *yes ? yes : NULL;
    weir_status status = weir_sink_open_with(name, &options, &sink, error);
    return status == WEIR_OK ? weir_sink_close(sink, NULL, NULL) : status;
}

static weir_status take(const char *name, const char *yes, weir_text *error)
{
    weir_source source;
    weir_options options = {0};
    options.size = sizeof options;
    options.yes_take = *yes ? yes : NULL;
    weir_status status = weir_open(&name, 1, &options, &source, error);
    return status == WEIR_OK ? weir_close(source, NULL) : status;
}

static weir_status copy(const char *file, const char *out, uint64_t reserve, weir_text *error)
{
    weir_source source;
    weir_sink sink;
    weir_batch batch;
    weir_sink_options options = {0};
    options.size = sizeof options;
    options.reserve = reserve;
    weir_status status = weir_open(&file, 1, NULL, &source, error);
    if (status == WEIR_OK)
        status = weir_sink_open_with(out, &options, &sink, error);
    while (status == WEIR_OK && weir_next(source, 1000000000, &batch, NULL) == WEIR_OK) {
        status = weir_send(sink, batch.lease, NULL, error);
        weir_release(batch.lease);
    }
    if (status == WEIR_OK)
        status = weir_sink_close(sink, NULL, error);
    else
        weir_sink_close(sink, NULL, NULL);
    weir_close(source, NULL);
    return status;
}

int main(int argc, char **argv)
{
    weir_text error = 0;
    if (!strcmp(argv[1], "copy")) {
        weir_status status = copy(argv[2], argv[3], strtoull(argv[4], NULL, 10), &error);
        tell(status, error);
        return 0;
    }
    for (int i = 2; i + 2 < argc; i += 3) {
        weir_text why = 0;
        int sends = !strcmp(argv[i], "send");
        weir_status status = sends ? send_to(argv[i + 1], argv[i + 2], &why) : take(argv[i + 1], argv[i + 2], &why);
        tell(status, why);
    }
    return 0;
}
"#;

/// The C program, compiled; `None` without a compiler.
fn in_c(test: &str, scratch: &Scratch) -> Option<PathBuf> {
    if !have(test, &["cc"]) {
        return None;
    }
    let (source, program) = (
        scratch.file("sinks.c", PROGRAM.as_bytes()),
        PathBuf::from(scratch.at("sinks")),
    );
    let libraries = std::env::current_exe()
        .unwrap()
        .parent()
        .unwrap()
        .to_owned();
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-o"])
        .arg(&program);
    cc.arg("-I")
        .arg(root().join("crates/ffi/include"))
        .arg(source)
        .arg(format!("-L{}", libraries.display()));
    let done = cc
        .arg(format!("-Wl,-rpath,{}", libraries.display()))
        .arg("-lweir")
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", text(&done.stderr));
    Some(program)
}

/// Runs the program in each language that is here with these arguments.
fn in_languages(test: &str, judge: impl Fn(&str, &mut dyn FnMut(&[&str]) -> Command)) {
    let scratch = Scratch::new();
    if let Some(program) = in_c(test, &scratch) {
        judge("C", &mut |arguments| {
            let mut command = Command::new(&program);
            command.args(arguments);
            command
        });
    }
    if let Some(java) = Java::new(test, &scratch) {
        judge("Java", &mut |arguments| {
            java.command(&[], "weir.SinkChecks", arguments)
        });
    }
}

fn lines(done: &Output) -> Vec<String> {
    assert!(
        done.status.success(),
        "{}{}",
        text(&done.stdout),
        text(&done.stderr)
    );
    text(&done.stdout).lines().map(str::to_owned).collect()
}

/// Frames that an interface has sent, as the kernel counts them.
fn sent(interface: &str) -> String {
    let link = ip(&format!("-s -j link show {interface}"));
    let packets = link
        .split("\"tx\":")
        .nth(1)
        .and_then(|tx| tx.split("\"packets\":").nth(1));
    packets
        .unwrap_or_else(|| panic!("{link}"))
        .split([',', '}'])
        .next()
        .unwrap()
        .to_owned()
}

#[test]
fn guarded_interfaces_are_refused_unless_they_are_named() {
    let test = "guarded_interfaces_are_refused_unless_they_are_named";
    if !net::cable(test, "") {
        return;
    }
    ip("addr add 10.9.0.2/24 dev near");
    let guards = [
        (
            "route add default via 10.9.0.1",
            "route del default",
            "near carries the default route",
        ),
        (
            "link set near promisc off",
            "addr del 10.9.0.2/24 dev near",
            "near carries the login that runs weir (10.9.0.2)",
        ),
        (
            "link add br0 type bridge",
            "link del br0",
            "near is a port of the bridge br0",
        ),
    ];
    // Acts, and whether each goes on.
    let asked = [
        ("send", "af_packet:near", "", false),
        ("send", "inject:near", "", false),
        ("send", "af_packet:near", "far", false),
        ("take", "af_xdp:near:0", "", false),
        ("take", "af_xdp:near:0", "far", false),
        ("send", "af_packet:near", "near", true),
        ("send", "af_packet:far", "", true),
        ("take", "af_packet:near", "", true),
        ("take", "af_xdp:near:0", "near", true),
    ];
    for (guard, unguard, words) in guards {
        ip(guard);
        if words.contains("bridge") {
            ip("link set near master br0");
        }
        let before = sent("near");
        in_languages(test, |language, program| {
            let arguments: Vec<&str> = std::iter::once("open")
                .chain(
                    asked
                        .iter()
                        .flat_map(|(act, name, yes, _)| [*act, *name, *yes]),
                )
                .collect();
            let mut command = program(&arguments);
            command
                .env_remove("SSH_CONNECTION")
                .env_remove("SSH_CLIENT");
            if words.contains("login") {
                command.env("SSH_CONNECTION", "10.9.0.1 5 10.9.0.2 22");
            }
            let answers = lines(&command.output().unwrap());
            assert_eq!(answers.len(), asked.len(), "{language}: {answers:#?}");
            for ((act, name, yes, goes_on), answer) in asked.iter().zip(answers) {
                let is_refused = answer.contains(words);
                assert_eq!(
                    !is_refused, *goes_on,
                    "{language}: {act} {name} {yes}: {answer}"
                );
                if is_refused {
                    let names_the_way = answer.contains(&format!("--yes-{act} near"));
                    assert!(
                        names_the_way && !answer.starts_with("0 "),
                        "{language}: {answer}"
                    );
                } else {
                    // Not every kernel has AF_XDP.
                    assert!(
                        answer.starts_with("0 ") || name.contains("xdp"),
                        "{language}: {answer}"
                    );
                }
            }
        });
        assert_eq!(sent("near"), before, "{words}: something was sent");
        ip(unguard);
    }
}

/// Runs a program where a directory is a file system of 32 MiB; returns what it printed, and the bytes that were free at the end.
fn on_small_disk(directory: &str, command: &Command) -> Option<(String, u64)> {
    let script = "mount -t tmpfs -o size=32m none \"$D\" || exit 77; \"$@\" && stat -f -c 'free %a %S' \"$D\"";
    let mut inside = Command::new("unshare");
    inside
        .args(["-m", "sh", "-c", script, "sh"])
        .arg(command.get_program())
        .args(command.get_args());
    let done = inside.env("D", directory).output().unwrap();
    if done.status.code() == Some(77) {
        return None;
    }
    let answer = lines(&done);
    let free: Vec<u64> = answer[1]
        .split(' ')
        .filter_map(|word| word.parse().ok())
        .collect();
    Some((answer[0].clone(), free[0] * free[1]))
}

#[test]
fn a_file_of_a_sink_leaves_the_reserve_free() {
    const SIZE: u64 = 32 << 20;
    let test = "a_file_of_a_sink_leaves_the_reserve_free";
    if !have(test, &["unshare", "stat"]) {
        return;
    }
    let scratch = Scratch::new();
    let (file, disk) = (scratch.file("a.pcap", &mixed(800_000)), scratch.at("disk"));
    assert!(Path::new(&file).metadata().unwrap().len() > SIZE + SIZE / 2);
    std::fs::create_dir(&disk).unwrap();
    let out = format!("{disk}/out.pcap");
    in_languages(test, |language, program| {
        // By default a twentieth of the disk stays free.
        for (reserve, least) in [("20971520", 20 << 20), ("0", SIZE / 20)] {
            let Some((answer, free)) =
                on_small_disk(&disk, &program(&["copy", &file, &out, reserve]))
            else {
                return skipped(
                    test,
                    "file systems cannot be mounted here: a privilege is lacking",
                );
            };
            assert!(
                answer.contains("are to stay free (--reserve)"),
                "{language}: {answer}"
            );
            assert!(
                (least - 8192..least + (6 << 20)).contains(&free),
                "{language}, {reserve}: {free} are free"
            );
        }
    });
}
