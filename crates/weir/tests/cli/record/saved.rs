//! Files that triggers save: the programs that are run for them, triggers that do not fire, files that are not whole.

use super::*;

/// Triggers of a file have settings of their own, and a program runs for each saved file, without a shell.
#[test]
fn triggers_come_from_a_file_and_run_a_program() {
    let temp = Temp::new();
    let (file, out, list, program) = (
        temp.at("all.pcap"),
        temp.at("out"),
        temp.at("t.toml"),
        temp.at("program"),
    );
    std::fs::write(&file, small_pcap(600)).unwrap();
    let triggers = "[trigger.one]\nmatch = 'udp port 100'\nbefore = '2s'\nafter = '1s'\n
        [trigger.two]\nthreshold = 'total>0 packets/s/100s'\nkeep = 'udp port 200'\ncooldown = '1s'\nmax_files = 2 # of six\n";
    std::fs::write(&list, triggers).unwrap();
    std::fs::write(
        &program,
        "#!/bin/sh\nprintf '%s|' \"$#\" \"$1\" \"$2\" >>\"$0.log\"\n",
    )
    .unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    let arguments = [
        "record",
        &file,
        &out,
        "--triggers",
        &list,
        "--before",
        "100s",
        "--on-trigger",
        &program,
    ];
    let done = weir(arguments).ok();
    assert_eq!(ports(&saved(&out, "one")[0]), [98, 99, 100, 101]);
    let two = saved(&out, "two");
    assert_eq!(two.len(), 2, "{}", done.err);
    let log = std::fs::read_to_string(format!("{program}.log")).unwrap();
    let parts: Vec<&str> = log.split('|').collect();
    assert_eq!(parts.len(), 3 * 3 + 1, "{log}");
    let ran: Vec<_> = parts
        .chunks_exact(3)
        .map(|run| {
            (
                run[0],
                run[1],
                run[2].starts_with("all packets: more than 0"),
            )
        })
        .collect();
    assert!(
        ran.contains(&("2", &saved(&out, "one")[0], false)) && ran.contains(&("2", &two[1], true)),
        "{ran:?}"
    );
    assert!(
        log.contains("a packet matches 'udp port 100' (10.0.0.1.4000 > 10.0.0.2.100)"),
        "{log}"
    );
    // A program that fails is told of and counted.
    let out2 = temp.at("out2");
    let fails = |program: &str| {
        weir([
            "record",
            &file,
            &out2,
            "--trigger",
            "t=udp port 9",
            "--json",
            "--on-trigger",
            program,
        ])
    };
    let done = fails("false");
    assert_eq!(done.code, Some(1), "{}", done.err);
    assert!(
        done.err.contains("--on-trigger false: exit status: 1"),
        "{}",
        done.err
    );
    assert!(
        done.err.contains("--on-trigger: ran 1 times, failed 1"),
        "{}",
        done.err
    );
    let end: Value = serde_json::from_str(done.text().lines().last().unwrap()).unwrap();
    assert_eq!(
        end["on_trigger"],
        serde_json::json!({ "ran": 1, "failed": 1 })
    );
    // What cannot be run is refused, and so is a list that makes no sense.
    let refused = [
        ("/no/such", "no such file"),
        (&file, "it is not a file that can be run: chmod +x"),
        ("no-such", "no such program"),
    ];
    for (program, why) in refused {
        let done = fails(program);
        assert!(
            done.code == Some(2) && done.err.contains(&format!("--on-trigger {program}: {why}")),
            "{}",
            done.err
        );
    }
    // A program that does not end is waited for some seconds.
    std::fs::write(&program, "#!/bin/sh\nexec sleep 8\n").unwrap();
    let done = fails(&program).ok();
    assert!(
        done.err
            .contains("not waited for any longer; runs that have not ended: 1"),
        "{}",
        done.err
    );
    let wrong = [
        ("x", "t.toml: line 1: "),
        ("a = 1", "there is no 'a' in a list of triggers"),
        ("", "it holds no [trigger.NAME]"),
        (
            "[trigger.'a/b']\nmatch = 'udp'",
            "'a/b' is not a name of a trigger",
        ),
        (
            "[trigger.a]\nmach = 'udp'",
            "trigger a: there is no setting 'mach'",
        ),
        (
            "[trigger.a]\nmatch = 1",
            "trigger a: match: a text in quotes is expected",
        ),
        (
            "[trigger.a]\nmatch = 'udp'\nevery = '1s'",
            "trigger a: match, threshold, rule and every are conditions",
        ),
        (
            "[trigger.a]\nrule = 'scam'",
            "trigger a: rule: 'scam' is not a ready rule",
        ),
        (
            "[trigger.a]\nbefore = '1 week'",
            "trigger a: before: '1 week' is not a time",
        ),
        ("[trigger.a]\nmatch = 'udp prt 1'", "trigger a: "),
    ];
    for (text, why) in wrong {
        std::fs::write(&list, text).unwrap();
        let done = weir(["record", &file, &temp.at("out3"), "--triggers", &list]);
        assert!(
            done.code == Some(2) && done.err.contains(why),
            "{text}: {}",
            done.err
        );
    }
}

/// A trigger that is asked to fire and does not says why, over the socket and at a signal.
#[test]
fn a_trigger_that_does_not_fire_says_why() {
    use std::io::{Read, Write};
    let temp = Temp::new();
    let (out, all) = (temp.at("out"), small_pcap(64));
    let options = [
        "--trigger",
        "t=tcp",
        "--trigger",
        "once=tcp",
        "--trigger",
        "seen=udp",
        "--after",
        "1h",
    ];
    let mut child = start_recorder(&out, &options);
    let mut input = child.stdin.take().unwrap();
    input.write_all(&all).unwrap();
    let mut client = connected(&out);
    wait::until("the third trigger", || {
        status(&mut client)["triggers"][2]["fired"] == 1
    });
    let fire = |name: &str| weir(["record", "--fire", name, &out]);
    fire("t").ok();
    let again = fire("t");
    assert_eq!(again.code, Some(1), "{}", again.err);
    assert!(again.err.contains(
        "trigger t does not fire: a file of it is being written; it is armed again in 36"
    ));
    let both = fire("all").ok();
    assert!(
        both.err.contains("trigger t does not fire") && !both.err.contains("trigger once"),
        "{}",
        both.err
    );
    assert_eq!((fire("all").code, fire("x").code), (Some(1), Some(2)));
    tool("kill", ["-USR2", &child.id().to_string()]).ok();
    let mut said = [0; 1];
    let mut err = child.stderr.take().unwrap();
    let mut text = Vec::new();
    while !String::from_utf8_lossy(&text).contains("SIGUSR2: trigger t does not fire: a file") {
        assert_eq!(
            err.read(&mut said).unwrap(),
            1,
            "{}",
            String::from_utf8_lossy(&text)
        );
        text.push(said[0]);
    }
    drop(input);
    err.read_to_end(&mut text).unwrap();
    assert_eq!(
        child.wait().unwrap().code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&text)
    );
    assert_eq!((saved(&out, "t").len(), saved(&out, "once").len()), (1, 1));
    let spent = [
        "--trigger",
        "t=udp",
        "--max-files",
        "1",
        "--after",
        "0s",
        "--cooldown",
        "1h",
    ];
    let mut child = start_recorder(&temp.at("spent"), &spent);
    let mut input = child.stdin.take().unwrap();
    input.write_all(&all).unwrap();
    let mut client = connected(&temp.at("spent"));
    wait::until("the first trigger", || {
        status(&mut client)["triggers"][0]["fired"] == 1
    });
    let done = weir(["record", "--fire", "t", &temp.at("spent")]);
    assert!(
        done.code == Some(1) && done.err.contains("it has saved 1 files, as many as it may"),
        "{}",
        done.err
    );
    drop(input);
    child.wait().unwrap();
}

/// Names of the saved files of a directory, whole or not.
fn saved_names(directory: &str) -> Vec<String> {
    let names = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with("trigger-")).collect()
}

/// A file that may not grow any further stands for a disk that is full, and a kill leaves the same: neither gets the name of a whole file.
#[test]
fn a_saved_file_that_is_not_whole_says_so_in_its_name() {
    use std::io::Write;
    let temp = Temp::new();
    let (file, out) = (temp.at("all.pcap"), temp.at("out"));
    let mut bytes = pcap_header(65_535, 1);
    for number in 0..4000u32 {
        bytes.extend(pcap_record(BEGIN, &numbered(53, number, 1000)));
    }
    std::fs::write(&file, &bytes).unwrap();
    let mut limited = std::process::Command::new("sh");
    // In blocks of 512 bytes: 1.5 MiB.
    limited.args([
        "-c",
        "ulimit -f 3072; exec \"$@\"",
        "-",
        env!("CARGO_BIN_EXE_weir"),
        "record",
        &file,
        &out,
    ]);
    let done = run(
        limited.args(["--trigger", "t=udp", "--max-files", "1"]),
        &[],
    );
    let [name] = &saved_names(&out)[..] else {
        panic!("{}", done.err)
    };
    assert!(
        done.code == Some(1) && name.ends_with("Z-incomplete.pcapng"),
        "{name}: {}",
        done.err
    );
    let kept = records(&format!("{out}/{name}"));
    assert!(
        kept.len() > 1300 && kept.iter().map(number).eq(0..kept.len() as u32),
        "{}",
        kept.len()
    );
    assert!(
        done.err.contains(&format!("{name}: file too large; ")),
        "{}",
        done.err
    );
    assert_eq!(
        tool("capinfos", ["-c", "-Mr", &format!("{out}/{name}")]).code,
        Some(0)
    );
    // A kill amid a file: the next recorder cuts it, and removes one without a packet.
    let killed = temp.at("killed");
    let mut child = start_recorder(
        &killed,
        &[
            "--trigger",
            "t=udp",
            "--trigger",
            "none=tcp",
            "--after",
            "1h",
        ],
    );
    let mut input = child.stdin.take().unwrap();
    input.write_all(&bytes).unwrap();
    let mut client = connected(&killed);
    wait::until("the first trigger", || {
        status(&mut client)["triggers"][0]["fired"] == 1
    });
    weir(["record", "--fire", "none", &killed]).ok();
    let len =
        |name: &str| std::fs::metadata(format!("{killed}/{name}")).map_or(0, |about| about.len());
    wait::until("two large files and 4000 packets", || {
        let names = saved_names(&killed);
        names.iter().filter(|name| len(name) > 2 << 20).count() >= 2
            && status(&mut client)["recorded"] == 4000
    });
    child.kill().unwrap();
    child.wait().unwrap();
    drop(input);
    let parts = saved_names(&killed);
    assert!(
        parts.len() == 2 && parts.iter().all(|name| name.ends_with(".pcapng.part")),
        "{parts:?}"
    );
    let t = parts
        .iter()
        .find(|name| name.starts_with("trigger-t-"))
        .unwrap();
    let none = parts
        .iter()
        .find(|name| name.starts_with("trigger-none-"))
        .unwrap();
    // The last block is torn, and a file has no packet.
    std::fs::OpenOptions::new()
        .write(true)
        .open(format!("{killed}/{t}"))
        .unwrap()
        .set_len(1_000_000)
        .unwrap();
    std::fs::write(format!("{killed}/{none}"), pcapng_start(1)).unwrap();
    let again = weir(["record", &file, &killed, "--trigger", "x=tcp"]).ok();
    let name = t.replace(".pcapng.part", "-incomplete.pcapng");
    assert_eq!(
        saved_names(&killed),
        std::slice::from_ref(&name),
        "{}",
        again.err
    );
    let kept = records(&format!("{killed}/{name}"));
    assert!(
        kept.len() > 900 && kept.iter().map(number).eq(0..kept.len() as u32),
        "{}",
        kept.len()
    );
    let told = format!(
        "{name}: an earlier recording did not complete it; {} packets are in it",
        kept.len()
    );
    assert!(
        again.err.contains(&told) && again.err.contains(&format!("{none}: an earlier")),
        "{}",
        again.err
    );
}
