//! The package for Python: its checks, its types, live packets, and what is left of a program that is killed.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use weir_testkit::savefile::{Pcap, mixed};
use weir_testkit::{Python, Scratch, net, wait};

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests")
        .join(name)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn good(done: &Output) -> String {
    let (out, err) = (text(&done.stdout), text(&done.stderr));
    assert!(done.status.success(), "{out}{err}");
    out + &err
}

#[test]
fn the_package_for_python_keeps_its_promises() {
    let scratch = Scratch::new();
    let modules = ["numpy", "pyarrow", "polars", "pandas", "duckdb", "pytz"];
    let test = "the_package_for_python_keeps_its_promises";
    let Some(python) = Python::new(test, &scratch, &modules) else {
        return;
    };
    let capture = scratch.file("a.pcap", &mixed(60_000));
    let shown = good(
        &python
            .command(&[file("checks.py").to_str().unwrap(), &capture])
            .output()
            .unwrap(),
    );
    let passed = shown
        .lines()
        .filter(|line| line.ends_with("... ok"))
        .count();
    assert!(passed >= 45 && shown.contains("\nOK\n"), "{shown}");
}

#[test]
fn health_and_findings_are_typed_and_sinks_write_other_addresses() {
    let scratch = Scratch::new();
    let test = "health_and_findings_are_typed_and_sinks_write_other_addresses";
    let Some(python) = Python::new(test, &scratch, &["numpy"]) else {
        return;
    };
    let capture = scratch.file("a.pcap", &mixed(6000));
    let mut command = python.command(&[file("typed.py").to_str().unwrap(), &capture]);
    let shown = good(&command.output().unwrap());
    assert!(shown.contains("Ran 2 tests"), "{shown}");
}

/// The types that editors and mypy see are those of the library.
#[test]
fn the_types_are_those_of_the_library() {
    let scratch = Scratch::new();
    let Some(python) = Python::new(
        "the_types_are_those_of_the_library",
        &scratch,
        &["mypy.stubtest", "numpy"],
    ) else {
        return;
    };
    let settings = scratch.file(
        "mypy.ini",
        b"[mypy]\nignore_missing_imports = true\nstrict = true\n",
    );
    let run = |module: &str, arguments: &[&str]| {
        let mut all = vec!["-m", module];
        all.extend(arguments);
        python
            .command(&all)
            .current_dir(python.packages())
            .env("MYPYPATH", python.packages())
            .output()
            .unwrap()
    };
    good(&run(
        "mypy.stubtest",
        &["weir", "--mypy-config-file", &settings],
    ));
    good(&run("mypy", &["--config-file", &settings, "-p", "weir"]));
    // A stub with a function too many is noticed.
    let stub = Path::new(python.packages()).join("weir/_weir.pyi");
    let planted = std::fs::read_to_string(&stub).unwrap() + "\ndef planted() -> int: ...\n";
    std::fs::write(stub, planted).unwrap();
    let done = run("mypy.stubtest", &["weir", "--mypy-config-file", &settings]);
    assert!(
        !done.status.success() && text(&done.stdout).contains("planted"),
        "{}",
        text(&done.stdout)
    );
}

/// UDP to the ports 53 and 80, in turn; the last four bytes number the packets.
fn numbered(packets: u32) -> Vec<u8> {
    let mut pcap = Pcap::new(1, 65_535);
    for number in 0..packets {
        let mut frame = vec![
            2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0,
        ];
        frame.extend([
            10,
            0,
            0,
            1,
            10,
            0,
            0,
            2,
            4,
            0,
            0,
            if number.is_multiple_of(2) { 53 } else { 80 },
            0,
            26,
            0,
            0,
        ]);
        frame.extend([0; 14]);
        frame.extend(number.to_be_bytes());
        pcap.packet(&frame);
    }
    pcap.bytes
}

fn through_a_cable(test: &str, source: &str, sink: &str) {
    let scratch = Scratch::new();
    let Some(python) = Python::new(test, &scratch, &["numpy"]) else {
        return;
    };
    if !net::cable(test, "") {
        return;
    }
    let packets = scratch.file("a.pcap", &numbered(2000));
    let live = file("live.py");
    let done = python
        .command(&[live.to_str().unwrap(), source, sink, &packets])
        .output()
        .unwrap();
    assert_eq!(good(&done), "2000 sent and captured\n");
}

/// Opens what its arguments say, three by three: send or take, a name, and the interface that is named, or nothing.
const OPENS: &str = "
import sys, weir
for act, name, yes in zip(*[iter(sys.argv[1:])] * 3):
    named = [yes] if yes else []
    try:
        with weir.Sink(name, yes_send=named) if act == 'send' else weir.open(name, yes_take=named):
            print('opened')
    except (weir.Refused, weir.Failed) as error:
        print(error)
";

/// The counters of the kernel tell that nothing was sent.
#[test]
fn guarded_interfaces_are_refused_unless_they_are_named() {
    let test = "guarded_interfaces_are_refused_unless_they_are_named";
    let scratch = Scratch::new();
    let Some(python) = Python::new(test, &scratch, &["numpy"]) else {
        return;
    };
    if !net::cable(test, "") {
        return;
    }
    net::ip("addr add 10.9.0.2/24 dev near");
    let guards = [
        (
            "route add default via 10.9.0.1",
            "route del default",
            "near carries the default route",
        ),
        (
            "link set near up",
            "addr del 10.9.0.2/24 dev near",
            "near carries the login that runs weir (10.9.0.2)",
        ),
        (
            "link add br0 type bridge",
            "link del br0",
            "near is a port of the bridge br0",
        ),
    ];
    let sent = || {
        net::ip("-s link show near")
            .split("TX:")
            .nth(1)
            .unwrap()
            .split_whitespace()
            .nth(7)
            .unwrap()
            .to_owned()
    };
    for (guard, unguard, words) in guards {
        net::ip(guard);
        if words.contains("bridge") {
            net::ip("link set near master br0");
        }
        let before = sent();
        let asked = [
            ["send", "af_packet:near", ""],
            ["send", "inject:near", "far"],
            ["take", "af_xdp:near:0", ""],
            ["send", "af_packet:near", "near"],
            ["take", "af_packet:near", ""],
        ];
        let mut command = python.command(&[&["-c", OPENS][..], &asked.concat()].concat());
        command
            .env_remove("SSH_CONNECTION")
            .env_remove("SSH_CLIENT");
        if words.contains("login") {
            command.env("SSH_CONNECTION", "10.9.0.1 5 10.9.0.2 22");
        }
        let answers = good(&command.output().unwrap());
        let answers: Vec<&str> = answers.lines().collect();
        for (asked, answer) in asked.iter().zip(&answers[..3]) {
            assert!(answer.contains(words), "{asked:?}: {answer}");
            assert!(
                answer.contains(&format!("--yes-{} near", asked[0])),
                "{asked:?}: {answer}"
            );
        }
        assert_eq!(answers[3..], ["opened", "opened"], "{words}");
        assert_eq!(sent(), before, "{words}");
        net::ip(unguard);
    }
}

/// The judge is the file system.
#[test]
fn a_file_of_a_sink_leaves_the_reserve_free() {
    const SIZE: u64 = 32 << 20;
    let test = "a_file_of_a_sink_leaves_the_reserve_free";
    let scratch = Scratch::new();
    let Some(python) = Python::new(test, &scratch, &["numpy"]) else {
        return;
    };
    let (file, disk) = (scratch.file("a.pcap", &mixed(800_000)), scratch.at("disk"));
    std::fs::create_dir(&disk).unwrap();
    let program = "
import os, sys, weir
file, disk, reserve = sys.argv[1:]
sink = weir.Sink(disk + '/out.pcap', reserve=int(reserve) if reserve else None)
try:
    for batch in weir.open(file):
        sink.send(batch)
    sink.close()
except weir.Failed as error:
    print(error)
space = os.statvfs(disk)
print(space.f_bavail * space.f_frsize)
";
    for (reserve, least) in [("20971520", 20 << 20), ("", SIZE / 20)] {
        let command = python.command(&["-c", program, &file, &disk, reserve]);
        let mut inside = Command::new("unshare");
        let script = "mount -t tmpfs -o size=32m none \"$D\" || exit 77; exec \"$@\"";
        inside
            .args(["-m", "sh", "-c", script, "sh"])
            .arg(command.get_program())
            .args(command.get_args());
        inside.envs(
            command
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        );
        let done = inside.env("D", &disk).output().unwrap();
        if done.status.code() == Some(77) {
            return weir_testkit::skipped(
                test,
                "file systems cannot be mounted here: a privilege is lacking",
            );
        }
        let answer = good(&done);
        let free: u64 = answer.lines().last().unwrap().parse().unwrap();
        assert!(answer.contains("are to stay free (--reserve)"), "{answer}");
        assert!(
            (least - 8192..least + (6 << 20)).contains(&free),
            "{reserve}: {free} are free"
        );
    }
}

/// The example of the README: SQL over a live source, which ends by itself.
#[test]
fn duckdb_answers_over_a_live_source() {
    let test = "duckdb_answers_over_a_live_source";
    let scratch = Scratch::new();
    let Some(python) = Python::new(test, &scratch, &["numpy", "duckdb"]) else {
        return;
    };
    if !net::cable(test, "") {
        return;
    }
    let packets = scratch.file("a.pcap", &numbered(2000));
    let program = "import duckdb, sys, threading, weir\n\
        packets = weir.open('near', duration=1.5, filter='udp')\n\
        def send():\n    with weir.Sink('af_packet:far') as sink:\n        [sink.send(batch) for batch in weir.open(sys.argv[1])]\n\
        sender = threading.Thread(target=send)\nsender.start()\n\
        print(duckdb.sql('select src, dst_port, count(*), sum(wire_len) from packets group by all order by 2').fetchall())\n\
        sender.join()\ncounts = packets.counts\n\
        assert counts.passed == 2000 and counts.received == counts.passed + counts.filtered, counts\n";
    let done = python.command(&["-c", program, &packets]).output().unwrap();
    assert_eq!(
        good(&done),
        "[('10.0.0.1', 53, 1000, 60000), ('10.0.0.1', 80, 1000, 60000)]\n"
    );
}

#[test]
fn what_python_sends_by_af_packet_python_captures() {
    through_a_cable(
        "what_python_sends_by_af_packet_python_captures",
        "af_packet:near",
        "af_packet:far",
    );
}

#[test]
fn what_python_sends_by_af_xdp_python_captures() {
    through_a_cable(
        "what_python_sends_by_af_xdp_python_captures",
        "af_xdp:near:0",
        "af_packet:far",
    );
}

/// State of the kernel that a capture changes: packet sockets, whether the interface takes packets for others, and whether it has an XDP
/// program, as `/proc` and `ip` tell.
fn kernel_state() -> (usize, bool, bool) {
    let sockets = std::fs::read_to_string("/proc/thread-self/net/packet")
        .unwrap()
        .lines()
        .count()
        - 1;
    let shown = Command::new("ip")
        .args(["-details", "link", "show", "near"])
        .output()
        .unwrap();
    let shown = text(&shown.stdout);
    let promiscuity = shown
        .split("promiscuity ")
        .nth(1)
        .and_then(|rest| rest.split(' ').next()?.parse::<u32>().ok());
    (
        sockets,
        promiscuity.unwrap_or_default() > 0,
        shown.contains("prog/xdp"),
    )
}

/// Killed, by an exception in the loop, by Ctrl-C, and by a source that is never closed.
#[test]
fn a_python_program_that_ends_leaves_nothing_in_the_kernel() {
    let test = "a_python_program_that_ends_leaves_nothing_in_the_kernel";
    let scratch = Scratch::new();
    let Some(python) = Python::new(test, &scratch, &["numpy"]) else {
        return;
    };
    if !net::cable(test, "") {
        return;
    }
    let before = kernel_state();
    assert_eq!(before, (0, false, false));
    let endings = [
        ("next(source)", Some("KILL"), None),
        // Ctrl-C ends a wait for packets, as it ends any other one.
        (
            "try:\n    next(source)\nexcept KeyboardInterrupt:\n    print('interrupted'); sys.exit(7)",
            Some("INT"),
            Some(7),
        ),
        (
            "kept = [source]; kept.append(kept); sys.stdin.read(); raise ValueError",
            None,
            Some(1),
        ),
        ("sys.stdin.read()", None, Some(0)),
    ];
    let sources = [
        ("af_packet:near", (1, true, false)),
        ("af_xdp:near:0", (1, true, true)),
    ];
    for ((source, during), (ending, signal, wanted)) in sources
        .into_iter()
        .flat_map(|source| endings.map(|ending| (source, ending)))
    {
        let program = format!(
            "import weir, sys\nsource = weir.open('{source}')\nprint('open', flush=True)\n{ending}\n"
        );
        let mut child = python.command(&["-c", &program]);
        let mut child = child
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        wait::until_ok(|| {
            assert!(
                child.try_wait().unwrap().is_none(),
                "{source}: {ending} ended"
            );
            match kernel_state() {
                state if state == during => Ok(()),
                state => Err(format!("no capture by {source}: {state:?}")),
            }
        });
        if let Some(signal) = signal {
            // Its wait begins a moment after the socket is there; a signal before it would end Python without the handler of the program.
            std::io::BufRead::read_line(
                &mut std::io::BufReader::new(child.stdout.as_mut().unwrap()),
                &mut String::new(),
            )
            .unwrap();
            wait::until_asleep(child.id(), |_| true);
            assert!(
                Command::new("kill")
                    .args(["-s", signal, &child.id().to_string()])
                    .status()
                    .unwrap()
                    .success()
            );
        }
        drop(child.stdin.take());
        let done = child.wait_with_output().unwrap();
        assert_eq!(
            done.status.code(),
            wanted,
            "{ending}: {}{}",
            text(&done.stdout),
            text(&done.stderr)
        );
        // The kernel takes an XDP program down a moment after the end of its process.
        wait::until_ok(|| match kernel_state() {
            state if state == before => Ok(()),
            state => Err(format!("{source}, {ending}: {state:?} is left")),
        });
    }
}

/// Whatever is lacking is told by Python's own exception, with what to do.
#[test]
fn what_a_python_program_lacks_is_told() {
    let scratch = Scratch::new();
    let Some(python) = Python::new("what_a_python_program_lacks_is_told", &scratch, &["numpy"])
    else {
        return;
    };
    let capture = scratch.file("a.pcap", &mixed(100));
    let program = "import sys, weir\nsys.modules['polars'] = None\nnext(weir.open(sys.argv[1])).to_polars()\n";
    let done = python.command(&["-c", program, &capture]).output().unwrap();
    let line = text(&done.stderr).lines().last().unwrap().to_owned();
    assert_eq!(
        line,
        "ImportError: polars is not installed: pip install polars"
    );
}
