//! `weir doctor` compared with `/proc`, `/sys` and other tools on the same machine.

use crate::support::{skipped, tool, weir, weir_command};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

/// Report of the command run under `prefix`. If the prefix cannot be run, prints that and returns `None`.
fn report(test: &str, prefix: &[&str]) -> Option<Value> {
    let Some((first, rest)) = prefix.split_first() else {
        return Some(serde_json::from_str(&weir(["doctor", "--json"]).ok().text()).unwrap());
    };
    let own = weir_command();
    match Command::new(first)
        .args(rest)
        .arg(own.get_program())
        .args(["doctor", "--json"])
        .output()
    {
        Ok(done) if done.status.success() => Some(serde_json::from_slice(&done.stdout).unwrap()),
        Ok(done) => {
            let err = String::from_utf8_lossy(&done.stderr);
            assert!(
                ["taskset:", "setpriv:", "sh:"]
                    .iter()
                    .any(|tool| err.contains(tool)),
                "{err}"
            );
            skipped(test, err);
            None
        }
        Err(error) => {
            skipped(test, format_args!("no {first} ({error})"));
            None
        }
    }
}

/// Shell script that runs a command without CAP_IPC_LOCK and with the limit of old systems.
const LITTLE_TO_LOCK: &str =
    "ulimit -l 64 && exec setpriv --bounding-set=-ipc_lock --inh-caps=-ipc_lock \"$@\"";

fn whole() -> Value {
    report("", &[]).unwrap()
}

/// Output of a program. If there is no such program, prints that and returns `None`.
fn printed(test: &str, name: &str, arguments: &[&str]) -> Option<String> {
    match Command::new(name).args(arguments).output() {
        Ok(done) => Some(String::from_utf8_lossy(&done.stdout).into_owned()),
        Err(error) => {
            skipped(test, format_args!("no {name} ({error})"));
            None
        }
    }
}

fn file(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

#[test]
fn the_text_fits_and_says_what_the_json_says() {
    let text = weir(["doctor"]).ok().text();
    for line in text
        .lines()
        .filter(|line| !line.trim_start().starts_with("$ "))
    {
        assert!(line.chars().count() <= 100, "{line}");
    }
    let joined = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let groups = whole();
    assert_eq!(groups["type"], "findings");
    for (key, group) in groups
        .as_object()
        .unwrap()
        .iter()
        .filter(|(key, _)| !["type", "version"].contains(&key.as_str()))
    {
        for (name, fact) in group.as_object().unwrap() {
            // Available memory changes from one run to the next.
            let part = fact["text"].as_str().unwrap().split(',').next().unwrap();
            assert!(joined.contains(part), "{key}.{name}: {part} in {text}");
            let state = fact["state"].as_str().unwrap();
            assert!(
                ["ok", "better", "missing", "unknown"].contains(&state),
                "{key}.{name}"
            );
            assert!(
                state != "unknown" || part.starts_with("unknown: "),
                "{key}.{name}: {part}"
            );
            for field in ["means", "command"]
                .iter()
                .filter_map(|field| fact[*field].as_str())
            {
                assert!(
                    joined.contains(&field.split_whitespace().collect::<Vec<_>>().join(" ")),
                    "{key}.{name}: {field}"
                );
            }
        }
    }
}

#[test]
fn the_machine_is_the_one_that_other_tools_see() {
    let test = "the_machine_is_the_one_that_other_tools_see";
    let found = whole();
    if let Some(release) = printed(test, "uname", &["-r"]) {
        assert_eq!(found["machine"]["kernel"]["value"], release.trim());
    }
    if let Some(processors) = printed(test, "nproc", &[]) {
        assert_eq!(
            found["machine"]["cores"]["value"]["usable"].to_string(),
            processors.trim()
        );
    }
    if let Some(one) = report(test, &["taskset", "-c", "0"]) {
        assert_eq!(one["machine"]["cores"]["value"]["usable"], 1);
        assert_eq!(one["machine"]["cores"]["value"]["list"], "0");
    }
    let total = file("/proc/meminfo").unwrap();
    let total = total
        .lines()
        .find(|line| line.starts_with("MemTotal:"))
        .unwrap()
        .split_whitespace()
        .nth(1)
        .unwrap();
    assert_eq!(
        found["memory"]["total"]["value"]["bytes"],
        total.parse::<u64>().unwrap() * 1024
    );
    if let Some(limited) = report(test, &["sh", "-c", LITTLE_TO_LOCK, "sh"]) {
        assert_eq!(limited["memory"]["locked"]["value"]["limit_bytes"], 65536);
        assert_eq!(limited["memory"]["locked"]["state"], "better");
    }
}

#[test]
fn rings_may_take_half_of_what_is_free() {
    let found = whole();
    let [most, available] = [
        &found["capture"]["rings"]["value"]["most_bytes"],
        &found["memory"]["total"]["value"]["available_bytes"],
    ]
    .map(|value| value.as_u64().unwrap());
    // Available memory changes between the two readings.
    assert!(most > 0 && most < available, "{most} of {available}");
    assert!(
        found["capture"]["rings"]["text"]
            .as_str()
            .unwrap()
            .starts_with("all together at most half of ")
    );
}

#[test]
fn pages_are_those_of_sysfs() {
    let found = &whole()["pages"];
    let mode = file("/sys/kernel/mm/transparent_hugepage/enabled");
    match &mode {
        Some(modes) => {
            assert!(modes.contains(&format!("[{}]", found["thp"]["value"].as_str().unwrap())))
        }
        None => assert_eq!(found["thp"]["state"], "unknown"),
    }
    if let Some(total) = file("/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages") {
        assert_eq!(found["hugetlb_1g"]["value"]["total"].to_string(), total);
    }
    // Only the page sizes that were obtained count.
    let table = &found["table"]["value"];
    assert_eq!(table["bytes"], 4 << 20);
    if mode.is_some_and(|modes| modes.contains("[never]")) {
        assert_ne!(table["policy"], "thp");
    } else if table["huge_bytes"] == 4 << 20 {
        assert_eq!(table["page_bytes"], 2 << 20);
    }
}

/// Bits of linux/capability.h, in another order and notation than in the code.
const BITS: [(&str, u64); 5] = [
    ("cap_net_admin", 0x1000),
    ("cap_net_raw", 0x2000),
    ("cap_ipc_lock", 0x4000),
    ("cap_sys_admin", 0x20_0000),
    ("cap_bpf", 0x80_0000_0000),
];

#[test]
fn capabilities_are_those_of_the_process() {
    let found = &whole()["capabilities"];
    let status = file("/proc/self/status").unwrap();
    let hex = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .unwrap()
        .trim();
    let effective = u64::from_str_radix(hex, 16).unwrap();
    for (name, bit) in BITS {
        assert_eq!(found[name]["value"], effective & bit != 0, "{name}");
    }
    let test = "capabilities_are_those_of_the_process";
    let without = [
        "setpriv",
        "--bounding-set=-net_raw,-bpf",
        "--inh-caps=-net_raw,-bpf",
    ];
    if let Some(less) = report(test, &without) {
        assert_eq!(less["capabilities"]["cap_net_raw"]["state"], "missing");
        let command = less["capabilities"]["grant"]["command"].as_str().unwrap();
        assert!(
            command.starts_with("sudo setcap cap_net_raw,") && command.contains("cap_bpf"),
            "{command}"
        );
        assert!(command.ends_with(env!("CARGO_BIN_EXE_weir")), "{command}");
        assert_eq!(less["capture"]["af_packet"]["state"], "missing");
        assert_eq!(less["capture"]["af_packet"]["value"], false);
    }
}

#[test]
fn libpcap_is_the_one_that_tcpdump_has() {
    let version = whole()["capture"]["libpcap"]["value"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(version.starts_with("libpcap version "), "{version}");
    match Command::new("tcpdump").arg("--version").output() {
        // Both are linked with the system's library.
        Ok(done) => {
            let said = String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned();
            assert!(said.contains(&version), "{said}, not {version}");
        }
        Err(error) => skipped(
            "libpcap_is_the_one_that_tcpdump_has",
            format_args!("no tcpdump ({error})"),
        ),
    }
}

#[test]
fn interfaces_are_those_of_sysfs_and_their_offloads_those_of_ethtool() {
    let test = "interfaces_are_those_of_sysfs_and_their_offloads_those_of_ethtool";
    let found = &whole()["interfaces"];
    let mut names: Vec<_> = fs::read_dir("/sys/class/net")
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    names.retain(|name| fs::exists(format!("/sys/class/net/{}/ifindex", name.display())).unwrap());
    assert_eq!(found.as_object().unwrap().len(), names.len());
    for name in &names {
        let name = name.to_str().unwrap();
        let value = &found[name]["value"];
        assert_eq!(
            value["mtu"].to_string(),
            file(&format!("/sys/class/net/{name}/mtu")).unwrap()
        );
        let driver = fs::read_link(format!("/sys/class/net/{name}/device/driver")).ok();
        if let Some(driver) = driver.as_ref().and_then(|path| path.file_name()) {
            assert_eq!(value["driver"], driver.to_str().unwrap());
        }
        let Some(listed) = printed(test, "ethtool", &["-k", name]) else {
            continue;
        };
        for (key, long) in [
            ("gro", "generic-receive-offload"),
            ("lro", "large-receive-offload"),
            ("tso", "tcp-segmentation-offload"),
            ("gso", "generic-segmentation-offload"),
            ("rxvlan", "rx-vlan-offload"),
        ] {
            let on = listed
                .lines()
                .find_map(|line| line.strip_prefix(&format!("{long}: ")))
                .unwrap()
                .starts_with("on");
            assert_eq!(value["offloads"][key], on, "{name} {long}");
        }
    }
    let loopback = &found["lo"];
    assert_eq!(
        (&loopback["value"]["loopback"], &loopback["state"]),
        (&Value::Bool(true), &Value::from("ok"))
    );
}

/// A pair of virtual links with known queues, MTU and XDP, in a separate network namespace.
#[test]
fn a_virtual_link_is_described_as_it_was_made() {
    let script = "ip link add wd0 numrxqueues 2 numtxqueues 3 mtu 1300 type veth peer name wd1 && ip link set wd0 up && exec \"$@\"";
    // A mount of sysfs shows the network namespace in which it was made.
    let script = format!("mount -t sysfs none /sys && {script}");
    let prefix = ["unshare", "-n", "-m", "sh", "-c", &script, "sh"];
    let Ok(done) = Command::new(prefix[0])
        .args(&prefix[1..])
        .arg("true")
        .output()
    else {
        return skipped("a_virtual_link_is_described_as_it_was_made", "no unshare");
    };
    if !done.status.success() {
        let why = String::from_utf8_lossy(&done.stderr);
        return skipped("a_virtual_link_is_described_as_it_was_made", why);
    }
    let found = report("", &prefix).unwrap();
    let value = &found["interfaces"]["wd0"]["value"];
    assert_eq!(
        (&value["driver"], &value["mtu"]),
        (&Value::from("veth"), &Value::from(1300))
    );
    assert_eq!(
        (&value["rx_queues"], &value["tx_queues"]),
        (&Value::from(2), &Value::from(3))
    );
    assert_eq!(
        (&value["up"], &value["loopback"]),
        (&Value::from(true), &Value::from(false))
    );
    // Since Linux 6.3 drivers report their features. veth redirects, but has no zero copy.
    if !value["xdp"].is_null() {
        assert_eq!(value["xdp"]["zero_copy"], false);
    }
    assert_eq!(found["interfaces"]["wd1"]["value"]["up"], false);
    if tool_is_there("ethtool") {
        offloads_are_told_apart(&script);
    }
}

fn tool_is_there(name: &str) -> bool {
    let there = Command::new(name).arg("--version").output().is_ok();
    if !there {
        skipped(
            "a_virtual_link_is_described_as_it_was_made",
            format_args!("in part, no {name}"),
        );
    }
    there
}

/// Each end of the link gets other offloads, so that a confusion of two offloads is found.
fn offloads_are_told_apart(script: &str) {
    let switches = "ethtool -K wd0 gro on gso on tso off rxvlan on && ethtool -K wd1 gro off gso on tso on rxvlan off";
    let script = script.replace("exec", &format!("{{ {switches}; }} >&2 && exec"));
    let found = report("", &["unshare", "-n", "-m", "sh", "-c", &script, "sh"]).unwrap();
    let on = |end: &str| {
        let offloads = found["interfaces"][end]["value"]["offloads"]
            .as_object()
            .unwrap();
        let on: Vec<_> = offloads
            .iter()
            .filter(|(_, on)| **on == true)
            .map(|(name, _)| name.clone())
            .collect();
        on.join(" ")
    };
    assert_eq!(
        (on("wd0"), on("wd1")),
        ("gro gso rxvlan".to_owned(), "tso gso".to_owned())
    );
    // Only the end that is up and merges packets gets advice.
    assert_eq!(
        found["interfaces"]["wd0"]["command"],
        "sudo ethtool -K wd0 gro off"
    );
    assert!(found["interfaces"]["wd1"]["command"].is_null());
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let own = weir_command();
    let own = own.get_program().to_str().unwrap();
    let done = tool(
        "sh",
        [
            "-c",
            &format!("'{own}' doctor | true; '{own}' doctor --json >/dev/null; echo $?"),
        ],
    )
    .ok();
    assert_eq!(done.text(), "0\n");
    assert_eq!(weir(["doctor", "--what"]).code, Some(2));
}

#[test]
fn walls_are_those_that_the_kernel_has() {
    let walls = &whole()["walls"];
    let enabled = file("/sys/kernel/security/lsm")
        .map(|modules| modules.split(',').any(|module| module == "landlock"));
    if let Some(enabled) = enabled {
        assert_eq!(walls["landlock"]["value"].is_number(), enabled, "{walls}");
    }
    let filters = file("/proc/sys/kernel/seccomp/actions_avail")
        .is_some_and(|actions| actions.contains("kill_process"));
    assert_eq!(walls["seccomp"]["value"], filters, "{walls}");
    assert_eq!(walls["capabilities"]["state"], "ok", "{walls}");
    let own = fs::metadata("/proc/self").unwrap().uid();
    assert_eq!(walls["user"]["value"]["uid"], own);
    let sudo = weir_command()
        .args(["doctor", "--json"])
        .env("SUDO_UID", "1234")
        .env("SUDO_GID", "1234")
        .output()
        .unwrap();
    let sudo: Value = serde_json::from_slice(&sudo.stdout).unwrap();
    let becomes = if own == 0 {
        Value::from(1234)
    } else {
        Value::Null
    };
    assert_eq!(sudo["walls"]["user"]["value"]["becomes"], becomes);
}
