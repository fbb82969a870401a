//! Guarded interfaces: where sending, or taking packets away, needs a yes; tried over a real SSH in a namespace.

use crate::capture::net::Net;
use crate::support::*;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Frames that the interface `near` has sent, as the kernel counts them.
fn sent(net: &Net) -> u64 {
    let file = "/sys/class/net/near/statistics/tx_packets";
    net.inside("near", &["cat", file])
        .ok()
        .text()
        .trim()
        .parse()
        .expect("a number")
}

#[test]
fn an_interface_with_the_default_route_sends_only_if_it_is_named() {
    let Some(net) = Net::new("an_interface_with_the_default_route_sends_only_if_it_is_named")
    else {
        return;
    };
    let temp = Temp::new();
    let file = temp.at("two.pcap");
    weir(["generate", &file, "--packets", "2"]).ok();
    net.inside("near", &["ip", "addr", "add", "10.9.0.2/24", "dev", "near"])
        .ok();
    net.inside(
        "near",
        &["ip", "route", "add", "default", "via", "10.9.0.1"],
    )
    .ok();
    let route = net
        .inside("near", &["ip", "route", "get", "203.0.113.1"])
        .ok()
        .text();
    assert!(route.contains("dev near"), "{route}");
    net.beyond();
    let before = sent(&net);
    let send: &[&[&str]] = &[
        &["generate", "af_packet:near"],
        &["generate", "af_xdp:near"],
        &["generate", "af_packet:near", "--reflect", "lab"],
        &["generate", "inject:near"],
        &[
            "generate",
            "af_packet:near",
            "--yes-send",
            "out",
            "--packets",
            "2",
        ],
        &["filter", "", &file, "-w", "af_packet:near"],
        &["filter", "", &file, "--split", "af_packet:near=udp"],
        &["measure", &file, "-w", "af_xdp:near:0"],
        &["firewall", &file, "af_packet:near", "--table", "/dev/null"],
        &["firewall", "out", "near", "--table", "/dev/null"],
    ];
    let take: &[&[&str]] = &[
        &["filter", "", "af_xdp:near"],
        &["measure", "af_xdp:near:0"],
        &["record", "af_xdp:near", &temp.at("record")],
        &["firewall", "near", "out", "--table", "/dev/null"],
        &[
            "firewall",
            "out",
            "near",
            "--bidirectional",
            "--table",
            "/dev/null",
        ],
        &[
            "firewall",
            "af_xdp:near",
            "null",
            "--table",
            "/dev/null",
            "--yes-send",
            "near",
        ],
    ];
    let words = [
        "near carries the default route, and packets sent there may flood it: --yes-send near sends all the same",
        "near carries the default route, and this host would not get what arrives there: --yes-take near takes it all",
    ];
    for (commands, words) in [send, take].into_iter().zip(words) {
        for command in commands {
            let done = net.weir(command);
            assert_eq!(done.code, Some(2), "{command:?}: {}", done.err);
            assert!(done.err.contains(words), "{command:?}: {}", done.err);
            assert_eq!(done.err.lines().count(), 1, "{command:?}: {}", done.err);
        }
    }
    assert_eq!(sent(&net), before);
    // AF_PACKET takes nothing away, and other interfaces are free.
    net.weir(&[
        "filter",
        "",
        "af_packet:near",
        "--duration",
        "100ms",
        "--count",
    ])
    .ok();
    net.weir(&["generate", "af_packet:out", "--packets", "5"])
        .ok();
    let done = net
        .weir(&[
            "generate",
            "af_packet:near",
            "--packets",
            "5",
            "--yes-send",
            "near",
        ])
        .ok();
    assert_eq!(sent(&net), before + 5);
    let line = done.err.lines().next().unwrap();
    let address = net
        .inside("near", &["cat", "/sys/class/net/near/address"])
        .ok()
        .text();
    let speed = net
        .inside("near", &["cat", "/sys/class/net/near/speed"])
        .ok()
        .text();
    assert_eq!(
        line,
        format!(
            "af_packet:near: packets leave by near ({} Mbit/s, {}), frames between 02:00:00:00:00:01 and \
             02:00:00:00:00:02, 1 000 000 packets/s, 5 packets",
            speed.trim(),
            address.trim()
        )
    );
    let done = net
        .weir(&[
            "filter",
            "",
            &file,
            "-w",
            "af_packet:near",
            "--yes-send",
            "near",
        ])
        .ok();
    assert!(
        done.err
            .contains("frames as they are, as they come, until the source ends"),
        "{}",
        done.err
    );
    assert_eq!(sent(&net), before + 7);
}

#[test]
fn a_load_ends_by_itself_and_within_a_burst_of_an_interrupt() {
    let Some(net) = Net::new("a_load_ends_by_itself_and_within_a_burst_of_an_interrupt") else {
        return;
    };
    let weir = env!("CARGO_BIN_EXE_weir");
    let says = |more: &[&str]| {
        let running = net.start(
            &[
                &[weir, "generate", "af_packet:near", "--rate", "1000"],
                more,
            ]
            .concat(),
            "leave by",
        );
        running.stop().ok().err
    };
    assert!(says(&[]).contains("1 000 packets/s, for 1 min\n"));
    assert!(says(&["--forever"]).contains("1 000 packets/s, until interrupted\n"));
    assert!(says(&["--packets", "9000"]).contains("1 000 packets/s, 9 000 packets\n"));
    for sink in ["af_packet:near", "inject:near"] {
        for rate in ["max", "2000"] {
            let begun = Instant::now();
            let done = net.weir(&["generate", sink, "--duration", "300ms", "--rate", rate]);
            if done.code != Some(0) && sink == "inject:near" {
                skipped(
                    "a_load_ends_by_itself_and_within_a_burst_of_an_interrupt",
                    done.err.trim(),
                );
                continue;
            }
            let (took, err) = (begun.elapsed(), done.ok().err);
            assert!(
                took >= Duration::from_millis(300) && took < Duration::from_secs(20),
                "{took:?}"
            );
            assert!(!err.contains("interrupted"), "{err}");
            let of_summary = err
                .lines()
                .last()
                .unwrap()
                .split(' ')
                .take_while(|word| word.parse::<u64>().is_ok());
            let count: u64 = of_summary.collect::<String>().parse().unwrap();
            assert!(rate == "max" || (400..=700).contains(&count), "{err}");
        }
    }
    let running = net.start(
        &[
            weir,
            "generate",
            "af_packet:near",
            "--rate",
            "max",
            "--forever",
        ],
        "leave by",
    );
    wait::until("a thousand packets", || net.received("far", "far") > 1000);
    let begun = Instant::now();
    let err = running.stop().ok().err;
    assert!(
        begun.elapsed() < Duration::from_secs(2),
        "{:?}",
        begun.elapsed()
    );
    assert!(err.contains(", interrupted"), "{err}");
    for (arguments, words) in [
        (
            &["generate", "null", "--forever", "--packets", "5"][..],
            "exclude each other",
        ),
        (
            &["generate", "a.pcap", "--duration", "1s"],
            "--duration and --forever are about ports",
        ),
        (
            &["generate", "a.pcap", "--forever"],
            "--duration and --forever are about ports",
        ),
        (
            &["generate", "null", "--duration", "0s"],
            "--duration 0s: nothing would be sent",
        ),
    ] {
        let done = crate::support::weir(arguments);
        assert!(
            done.code == Some(2) && done.err.contains(words),
            "{arguments:?}: {}",
            done.err
        );
    }
}

/// An SSH server at the near end, 10.9.0.2, and its clients at the far end.
pub struct Ssh {
    pub net: Net,
    temp: Temp,
    server: Child,
}

impl Drop for Ssh {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

impl Ssh {
    pub fn new(test: &str) -> Option<Self> {
        let net = Net::new(test)?;
        let sshd = "/usr/sbin/sshd";
        if !have(test, &["ssh", "ssh-keygen"]) {
            return None;
        }
        if !std::path::Path::new(sshd).exists() {
            skipped(test, format_args!("{sshd} is not here"));
            return None;
        }
        for (end, address) in [("far", "10.9.0.1/24"), ("near", "10.9.0.2/24")] {
            net.inside(end, &["ip", "addr", "add", address, "dev", end])
                .ok();
            net.inside(end, &["ip", "link", "set", "lo", "up"]).ok();
        }
        let temp = Temp::new();
        for key in ["client", "host"] {
            tool(
                "ssh-keygen",
                ["-q", "-t", "ed25519", "-N", "", "-f", &temp.at(key)],
            )
            .ok();
        }
        let settings = format!(
            "Port 2222\nListenAddress 10.9.0.2\nHostKey {}\nAuthorizedKeysFile {}\nStrictModes no\nUsePAM no\nPidFile none\n\
             PermitRootLogin yes\n",
            temp.at("host"),
            temp.at("client.pub")
        );
        let settings = temp.file("sshd", settings.as_bytes());
        // A directory of its own in a place that this mount namespace alone sees.
        let script = format!(
            "mount -t tmpfs none /run && mkdir -p /run/sshd && exec {sshd} -D -e -f {settings}"
        );
        let mut command = net.command("near", &["sh", "-c", &script]);
        let server = command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("ip can be run");
        let ssh = Self { net, temp, server };
        let comes = wait::within(Duration::from_secs(20), || {
            let done = ssh.session("true").output();
            !done.is_ok_and(|done| !done.status.success())
        });
        if !comes {
            skipped(test, "no login by ssh");
        }
        comes.then_some(ssh)
    }

    /// A command in a login of its own.
    pub fn session(&self, script: &str) -> Command {
        let key = self.temp.at("client");
        let settings = [
            "StrictHostKeyChecking=no",
            "UserKnownHostsFile=/dev/null",
            "LogLevel=ERROR",
            "BatchMode=yes",
        ];
        let options = settings.iter().flat_map(|setting| ["-o", setting]);
        let words: Vec<&str> = ["ssh", "-F", "none", "-i", &key, "-p", "2222", "-T"]
            .into_iter()
            .chain(options)
            .collect();
        self.net
            .command("far", &[&words[..], &["root@10.9.0.2", script]].concat())
    }

    pub fn run(&self, script: &str) -> Done {
        run(&mut self.session(script), &[])
    }
}

#[test]
fn a_login_by_ssh_is_not_cut_and_its_interface_not_flooded() {
    let Some(ssh) = Ssh::new("a_login_by_ssh_is_not_cut_and_its_interface_not_flooded") else {
        return;
    };
    ssh.net.beyond();
    let weir = env!("CARGO_BIN_EXE_weir");
    let login = "carries the login that runs weir (10.9.0.2)";
    // Programs like sudo take the variables of ssh away.
    for (before, address) in [
        ("", "10.9.0.2"),
        ("env -u SSH_CONNECTION ", "10.9.0.1"),
        ("env -u SSH_CONNECTION -u SSH_CLIENT ", "10.9.0.2"),
    ] {
        for command in [
            "generate af_packet:near",
            "filter '' af_xdp:near",
            "firewall near out --table /dev/null",
        ] {
            let done = ssh.run(&format!("{before}{weir} {command}"));
            assert_eq!(done.code, Some(2), "{before}{command}: {}", done.err);
            let carries = format!("near carries the login that runs weir ({address})");
            assert!(
                done.err.contains(&carries),
                "{before}{command}: {}",
                done.err
            );
        }
    }
    let done = ssh.run(&format!(
        "{weir} generate af_packet:out --packets 3 && {weir} generate af_packet:near --packets 3 --yes-send near"
    ));
    assert!(done.ok().err.contains("3 sent"));
    // What lies below the interface of a login is guarded as well, and what lies beside it may be taken.
    let near = |words: &str| {
        ssh.net
            .inside("near", &words.split(' ').collect::<Vec<_>>())
            .ok()
    };
    for words in [
        "ip link add link out name mac5 type macvlan mode bridge",
        "ip link set mac5 up",
        "ip addr add 10.9.5.2/24 dev mac5",
        "ip link add link out name mac6 type macvlan mode bridge",
        "ip link set mac6 up",
    ] {
        near(words);
    }
    let done = ssh.run(&format!(
        "SSH_CONNECTION='10.9.5.1 5 10.9.5.2 22' {weir} filter '' af_xdp:out"
    ));
    assert!(
        done.code == Some(2)
            && done
                .err
                .contains("out carries mac5, which carries the login"),
        "{}",
        done.err
    );
    let done = ssh
        .run(&format!("SSH_CONNECTION='10.9.5.1 5 10.9.5.2 22' {weir} filter '' af_xdp:mac6 --duration 100ms --count"));
    assert!(
        !done.err.contains(login) && !done.err.contains("which carries the login"),
        "{}",
        done.err
    );
    // Other variables than ssh's own do not open the way.
    let done = ssh.run(&format!(
        "SSH_CONNECTION='192.0.2.1 5 192.0.2.2 22' {weir} generate af_packet:near"
    ));
    assert!(
        done.code == Some(2) && done.err.contains(login),
        "{}",
        done.err
    );
}

/// What an SSH session shows while a firewall has its interface: nothing, until nobody confirmed it.
#[test]
fn a_login_that_a_firewall_cuts_off_comes_back_unless_it_is_confirmed() {
    let Some(ssh) = Ssh::new("a_login_that_a_firewall_cuts_off_comes_back_unless_it_is_confirmed")
    else {
        return;
    };
    ssh.net.beyond();
    let weir = env!("CARGO_BIN_EXE_weir");
    let socket = ssh.temp.at("socket");
    let rules = ssh.temp.file("rules", b"default drop\n");
    let firewall = format!(
        "{weir} firewall near out --rules {rules} --yes-take near --confirm 3s --control {socket} \
         --state {}; echo back $?",
        ssh.temp.at("bans")
    );
    let session = ssh
        .session(&firewall)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    let answers = || {
        ssh.net
            .inside("far", &["ping", "-c", "1", "-W", "1", "10.9.0.2"])
            .code
            == Some(0)
    };
    while answers() {
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "the host gets packets all the time"
        );
    }
    let done = gather(session, &[]);
    assert_eq!(done.text(), "back 1\n", "{}", done.err);
    assert!(
        begun.elapsed() >= Duration::from_secs(3),
        "{:?}",
        begun.elapsed()
    );
    assert!(
        done.err
            .contains("forwarding ends in 3 s, unless weir firewall ctl confirm comes\n"),
        "{}",
        done.err
    );
    assert!(
        done.err
            .contains("nobody confirmed the start: forwarding ends, and packets are this host's"),
        "{}",
        done.err
    );
    assert!(answers());
    // Confirmed by a process that is not cut off, it stays.
    let command = [
        "firewall",
        "near",
        "out",
        "--rules",
        &rules,
        "--yes-take",
        "near",
        "--confirm",
        "1s",
        "--control",
        &socket,
    ];
    let running = ssh
        .net
        .start(&[&[weir][..], &command].concat(), "forwarding ends in");
    let confirm = || crate::support::weir(["firewall", "ctl", "--control", &socket, "confirm"]);
    let awaited = |words: &str| {
        let shown = crate::support::weir(["firewall", "ctl", "--control", &socket, "list"])
            .ok()
            .text();
        assert_eq!(
            shown.contains(words),
            !words.is_empty() || !shown.contains("unless"),
            "{shown}"
        );
    };
    awaited("forwarding ends in 1 s, unless weir firewall ctl confirm comes\n");
    assert_eq!(confirm().ok().text(), "confirmed\n");
    let running = running.until("confirmed: forwarding goes on\n");
    awaited("");
    let again = confirm();
    assert!(
        again.code == Some(1) && again.err.contains("nothing waits for a confirmation"),
        "{}",
        again.err
    );
    // The second in which forwarding would have ended, and more: each ping that nobody answers takes one.
    assert!(!answers() && !answers());
    let done = running.stop().ok();
    assert!(!done.err.contains("nobody confirmed"), "{}", done.err);
}

#[test]
fn rules_that_nobody_confirms_go_back_to_those_before() {
    let Some(net) = Net::new("rules_that_nobody_confirms_go_back_to_those_before") else {
        return;
    };
    net.beyond();
    let temp = Temp::new();
    let (socket, rules) = (
        temp.at("socket"),
        temp.file("rules", b"drop udp dport 9\ndefault pass\n"),
    );
    let weir = env!("CARGO_BIN_EXE_weir");
    let command = [
        weir,
        "firewall",
        "near",
        "out",
        "--rules",
        &rules,
        "--control",
        &socket,
    ];
    let running = net.start(&command, "control socket");
    let ctl = |words: &[&str]| {
        crate::support::weir([&["firewall", "ctl", "--control", &socket], words].concat())
    };
    let texts = || {
        let stats: serde_json::Value =
            serde_json::from_str(&ctl(&["stats", "--json"]).ok().text()).unwrap();
        let rules = stats["rules"]
            .as_array()
            .unwrap()
            .iter()
            .map(|rule| rule["rule"].as_str().unwrap().to_owned());
        (
            rules.collect::<Vec<_>>(),
            stats["default"]["does"].as_str().unwrap().to_owned(),
            stats["unconfirmed_s"].as_f64(),
        )
    };
    let wait_for = |expected: (&[&str], &str)| {
        wait::until_ok(|| match texts() {
            (rules, default, _) if rules == expected.0 && default == expected.1 => Ok(()),
            others => Err(format!("{others:?}")),
        });
    };
    let former = (&["drop udp dport 9"][..], "pass");
    let write = |text: &str| std::fs::write(&rules, text).unwrap();
    write("drop tcp dport 22\ndefault drop\n");
    let done = ctl(&["reload", "--confirm", "1s"]).ok();
    assert_eq!(
        done.text(),
        "1 rule in force for 1 s: weir firewall ctl confirm keeps them\n"
    );
    let (now, default, left) = texts();
    assert_eq!(
        (&now[..], &default[..]),
        (&["drop tcp dport 22".to_owned()][..], "drop")
    );
    assert!(left.is_some_and(|left| left <= 1.0), "{left:?}");
    wait_for(former);
    assert_eq!(texts().2, None);
    // Two changes in a row go back to what was confirmed last.
    write("drop tcp dport 23\n");
    ctl(&["reload", "--confirm", "20s"]).ok();
    write("drop tcp dport 24\n");
    ctl(&["reload", "--confirm", "300ms"]).ok();
    wait_for(former);
    write("drop tcp dport 25\ndefault pass\n");
    ctl(&["reload", "--confirm", "20s"]).ok();
    let shown = ctl(&["stats"]).ok().text();
    assert!(
        shown.contains(
            "the rules from before come back in 20 s, unless weir firewall ctl confirm comes\n"
        ),
        "{shown}"
    );
    // The loop that tells it has seen the request once it answers a second time.
    let mut running = running;
    for _ in 0..2 {
        running.asked(" delivered, ");
    }
    ctl(&["confirm"]).ok();
    let running = running.until("confirmed: the rules stay\n");
    wait::throughout(Duration::from_secs(1), "the rules stay", || {
        texts().0 == ["drop tcp dport 25"]
    });
    write("drop tcp dport\n");
    assert_eq!(ctl(&["reload", "--confirm", "1s"]).code, Some(1));
    assert_eq!(
        (texts().0, texts().2),
        (vec!["drop tcp dport 25".to_owned()], None)
    );
    let err = running.stop().ok().err;
    assert_eq!(
        err.matches("nobody confirmed the rules: those from before are in force, 1 rule")
            .count(),
        2,
        "{err}"
    );
    for words in [
        &[
            "firewall",
            "near",
            "out",
            "--rules",
            &rules,
            "--confirm",
            "0s",
        ][..],
        &["firewall", "ctl", "--control", &socket, "confirm"],
    ] {
        let done = net.weir(words);
        assert_eq!(done.code, Some(2), "{words:?}: {}", done.err);
    }
}

/// Names of the files of a directory.
fn names_in(directory: &str) -> Vec<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_start_that_is_refused_leaves_neither_socket_nor_lock() {
    let Some(net) = Net::new("a_start_that_is_refused_leaves_neither_socket_nor_lock") else {
        return;
    };
    net.beyond();
    net.inside("near", &["ip", "addr", "add", "10.9.0.2/24", "dev", "near"])
        .ok();
    net.inside(
        "near",
        &["ip", "route", "add", "default", "via", "10.9.0.1"],
    )
    .ok();
    let temp = Temp::new();
    let rejects = temp.file("rejects", b"reject udp\n");
    let sockets = temp.at("sockets");
    std::fs::create_dir(&sockets).unwrap();
    let (socket, file) = (format!("{sockets}/control"), temp.at("out.pcap"));
    let refusals: &[(&[&str], &str)] = &[
        (
            &["near", "out", "--table", "/dev/null"],
            "near carries the default route",
        ),
        (
            &["out", "near", "--table", "/dev/null"],
            "near carries the default route",
        ),
        (
            &["af_xdp:near", &file, "--table", "/dev/null"],
            "near carries the default route",
        ),
        (
            &["af_packet:out", "null", "--rules", &rejects, "--ring", "1T"],
            "--ring",
        ),
        (
            &[
                "af_packet:near",
                &file,
                "--rules",
                &rejects,
                "--control-port",
                "5",
                "--control-key",
                "/dev/null",
            ],
            "others may",
        ),
        (
            &["af_packet:out", "af_packet:nowhere", "--table", "/dev/null"],
            "nowhere",
        ),
        (
            &["af_packet:nowhere", "af_packet:out", "--table", "/dev/null"],
            "nowhere",
        ),
        (
            &[
                "af_packet:out",
                &temp.at("no/out.pcap"),
                "--table",
                "/dev/null",
            ],
            "no/out.pcap",
        ),
    ];
    for (words, why) in refusals {
        let done = net.weir(&[&["firewall"], *words, &["--control", &socket]].concat());
        assert!(matches!(done.code, Some(1 | 2)), "{words:?}: {}", done.err);
        assert!(done.err.contains(why), "{words:?}: {}", done.err);
        assert_eq!(
            names_in(&sockets),
            Vec::<String>::new(),
            "{words:?}: {}",
            done.err
        );
        assert_eq!(
            names_in(&net.state()),
            Vec::<String>::new(),
            "{words:?}: {}",
            done.err
        );
    }
}

/// Packets go to a file, and none is forwarded: with AF_PACKET this host has them too, and so its login and its route need no guard.
#[test]
fn a_firewall_into_a_file_takes_nothing_from_this_host() {
    let Some(net) = Net::new("a_firewall_into_a_file_takes_nothing_from_this_host") else {
        return;
    };
    net.inside("near", &["ip", "addr", "add", "10.9.0.2/24", "dev", "near"])
        .ok();
    net.inside("far", &["ip", "addr", "add", "10.9.0.1/24", "dev", "far"])
        .ok();
    net.inside(
        "near",
        &["ip", "route", "add", "default", "via", "10.9.0.1"],
    )
    .ok();
    let temp = Temp::new();
    let (file, rules, socket) = (
        temp.at("out.pcap"),
        temp.file("rules", b"default drop\n"),
        temp.at("socket"),
    );
    let weir = env!("CARGO_BIN_EXE_weir");
    for source in ["near", "af_packet:near"] {
        let command = [
            weir,
            "firewall",
            source,
            &file,
            "--rules",
            &rules,
            "--control",
            &socket,
        ];
        let running = net.start(&command, "control socket");
        net.inside(
            "far",
            &["ping", "-c", "2", "-i", "0.2", "-W", "5", "10.9.0.2"],
        )
        .ok();
        let done = running.stop().ok();
        assert!(done.err.contains("this host gets them too"), "{}", done.err);
        assert!(!done.err.contains(" 0 denied"), "{}", done.err);
        std::fs::remove_file(&file).unwrap();
    }
    // AF_XDP takes them, wherever they go.
    let xdp = [
        "firewall",
        "af_xdp:near",
        &file,
        "--rules",
        &rules,
        "--control",
        &socket,
    ];
    let done = net.weir(&xdp);
    assert!(
        done.code == Some(2) && done.err.contains("--yes-take near"),
        "{}",
        done.err
    );
    let command = [&[weir][..], &xdp, &["--yes-take", "near"]].concat();
    let running = net.start(&command, "control socket");
    let pings = net.inside("far", &["ping", "-c", "1", "-W", "1", "10.9.0.2"]);
    assert_eq!(pings.code, Some(1), "{}", pings.text());
    let done = running.stop().ok();
    assert!(
        done.err.contains("this host gets none of them"),
        "{}",
        done.err
    );
}

#[test]
fn an_interface_belongs_to_one_firewall() {
    let Some(net) = Net::new("an_interface_belongs_to_one_firewall") else {
        return;
    };
    net.beyond();
    net.second_cable();
    let temp = Temp::new();
    let weir = env!("CARGO_BIN_EXE_weir");
    let (table, number) = (
        temp.file("table", b"default accept\n"),
        std::sync::atomic::AtomicU32::new(0),
    );
    let socket = || {
        temp.at(&format!(
            "socket{}",
            number.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
        ))
    };
    let begin = |source: &str, sink: &str| {
        let command = [
            weir,
            "firewall",
            source,
            sink,
            "--table",
            &table,
            "--control",
            &socket(),
        ];
        net.start(&command, "control socket")
    };
    let refused = |source: &str, sink: &str, interface: &str| {
        let done = net.weir(&[
            "firewall",
            source,
            sink,
            "--table",
            &table,
            "--control",
            &socket(),
        ]);
        assert_eq!(done.code, Some(2), "{source} {sink}: {}", done.err);
        let words = format!("{interface} belongs to another firewall, process ");
        assert!(done.err.contains(&words), "{source} {sink}: {}", done.err);
    };
    for first in ["af_packet:near", "af_xdp:near"] {
        let running = begin(first, "out");
        for (source, sink, interface) in [
            ("near", "out", "near"),
            ("af_packet:near", "af_packet:one", "near"),
            ("af_xdp:near", "af_xdp:one", "near"),
            ("af_packet:near", "null", "near"),
            ("one", "out", "out"),
            ("one", "af_xdp:near", "near"),
        ] {
            refused(source, sink, interface);
        }
        // Others are free, and a file takes nothing away.
        begin("one", "null").stop().ok();
        net.weir(&[
            "firewall",
            "near",
            &temp.at("copy.pcap"),
            "--table",
            &table,
            "--control",
            &socket(),
            "--duration",
            "100ms",
        ]);
        // A kill gives the interface back at once.
        running.signal("-KILL");
        running.done();
        begin("near", "out").stop().ok();
    }
}
