//! Requirements of capturing from an interface: libraries, sockets, capabilities.

use super::system::System;
use super::{Finding, Group, State, size};
use crate::outcome::own_path;
use serde_json::{Value, json};
use std::io;
use std::process::{Command, Stdio};
use weir_io::sys::device;
use weir_memory::{Available, Pool};

/// Libraries and sockets.
pub fn group(system: &System) -> Group {
    let findings = vec![
        libpcap(),
        af_packet(),
        af_xdp(system),
        rings(system),
        jit(system),
        dpdk(system),
    ];
    Group {
        key: "capture",
        title: "Capture",
        about: "Capture files need libpcap alone. From interfaces weir captures by AF_PACKET (eth0), and where asked by AF_XDP (af_xdp:eth0) or DPDK (dpdk:DEVICE).",
        findings,
    }
}

fn libpcap() -> Finding {
    let version = weir_filter::libpcap::version();
    let found = Finding::ok("libpcap", "libpcap", version.clone(), json!(version));
    found.means("compiles the expressions of weir filter and --filter")
}

fn socket(key: &str, label: &str, tried: io::Result<()>, absent: &str) -> Finding {
    match tried {
        Ok(()) => Finding::ok(key, label, "a socket can be opened", json!(true)),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Finding::ok(
            key,
            label,
            "in the kernel, but not permitted to this process",
            json!(false),
        )
        .state(State::Missing)
        .means("capturing from an interface needs CAP_NET_RAW: see Capabilities"),
        Err(error) if error.raw_os_error() == Some(EAFNOSUPPORT) => {
            Finding::ok(key, label, "not in this kernel", json!(false))
                .state(State::Missing)
                .means(absent)
        }
        Err(error) => Finding::unknown(key, label, error),
    }
}

/// `EAFNOSUPPORT` of asm-generic/errno.h.
const EAFNOSUPPORT: i32 = 97;

fn af_packet() -> Finding {
    socket(
        "af_packet",
        "AF_PACKET",
        device::try_af_packet(),
        "no capturing from interfaces without it (CONFIG_PACKET)",
    )
}

fn af_xdp(system: &System) -> Finding {
    let mut found = socket(
        "af_xdp",
        "AF_XDP",
        device::try_af_xdp(),
        "AF_PACKET is slower (CONFIG_XDP_SOCKETS)",
    );
    let btf = system.exists("/sys/kernel/btf/vmlinux");
    found.text += if btf {
        "; kernel types (BTF) are there"
    } else {
        "; no kernel types (BTF)"
    };
    if !found.value.is_null() {
        found.value = json!({"socket": found.value, "btf": btf});
    }
    found
}

fn rings(system: &System) -> Finding {
    let (key, label) = ("rings", "rings");
    let Some(available) = Available::under(system.root()) else {
        return Finding::unknown(key, label, "the kernel does not say what memory is free");
    };
    let most = weir_engine::capture::rings::most(&available);
    let place = if available.grouped {
        " to this control group"
    } else {
        ""
    };
    let text = format!(
        "all together at most half of what is free{place}, now {}",
        size(most)
    );
    Finding::ok(key, label, text, json!({ "most_bytes": most }))
        .means("the kernel charges their memory to nobody, and ends other programs when it lacks some: --ring-force takes more")
}

fn jit(system: &System) -> Finding {
    let (key, label) = ("bpf_jit", "BPF compiler");
    Finding::of(
        key,
        label,
        system.number("/proc/sys/net/core/bpf_jit_enable"),
        |mode| {
            let found = Finding::ok(
                key,
                label,
                if mode > 0 { "on" } else { "off" },
                json!(mode > 0),
            );
            if mode > 0 {
                return found;
            }
            found
                .state(State::Better)
                .means("filters that run in the kernel would be interpreted")
                .command("sudo sysctl net.core.bpf_jit_enable=1")
        },
    )
}

fn dpdk(system: &System) -> Finding {
    let (key, label) = ("dpdk", "DPDK");
    let asked = Command::new("pkg-config")
        .args(["--modversion", "libdpdk"])
        .stderr(Stdio::null())
        .stdin(Stdio::null())
        .output();
    match asked {
        Ok(done) if done.status.success() => {
            let version = String::from_utf8_lossy(&done.stdout).trim().to_owned();
            let built = if cfg!(feature = "dpdk") {
                "with"
            } else {
                "without"
            };
            let text = format!("{version} (development files); this weir was built {built} it");
            let found = Finding::ok(key, label, text, json!(version));
            if Pool::all(system.root()).iter().any(|pool| pool.total > 0) {
                return found;
            }
            found
                .state(State::Better)
                .means("it is several times faster with huge pages set aside, and there are none")
                .command(
                    "echo 512 | sudo tee /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
                )
        }
        Ok(_) => Finding::ok(
            key,
            label,
            "no development files (pkg-config libdpdk)",
            Value::Null,
        )
        .state(State::Missing)
        .means("needed only for a weir with DPDK, and to build one")
        .command(
            "sudo apt-get install libdpdk-dev && cargo build --release -p weir --features dpdk",
        ),
        Err(error) => Finding::unknown(key, label, format!("pkg-config: {error}")),
    }
}

/// Bit of CAP_IPC_LOCK, which lifts the limit on locked memory.
const CAP_IPC_LOCK: u32 = 14;

/// Capabilities of linux/capability.h: bit, name, purpose.
const CAPABILITIES: [(u32, &str, &str); 5] = [
    (
        13,
        "CAP_NET_RAW",
        "to capture from interfaces, promiscuously too",
    ),
    (
        12,
        "CAP_NET_ADMIN",
        "to attach XDP, set queues and offloads",
    ),
    (39, "CAP_BPF", "to load programs for AF_XDP"),
    (
        CAP_IPC_LOCK,
        "CAP_IPC_LOCK",
        "to lock rings and tables in memory beyond the limit",
    ),
    (
        21,
        "CAP_SYS_ADMIN",
        "only to verify that memory is contiguous (--pages contiguous)",
    ),
];

/// Capabilities in force, one bit each.
fn effective(system: &System) -> Result<u64, String> {
    let hex = system.field("/proc/self/status", "CapEff")?;
    u64::from_str_radix(&hex, 16).map_err(|_| format!("/proc/self/status: CapEff is '{hex}'"))
}

/// Whether this process may lock memory beyond its limit.
pub fn may_lock(system: &System) -> bool {
    effective(system).is_ok_and(|effective| effective >> CAP_IPC_LOCK & 1 == 1)
}

/// Capabilities of this process.
pub fn privileges(system: &System) -> Group {
    let effective = effective(system);
    let mut findings = Vec::new();
    let mut lacking = Vec::new();
    for (bit, name, what) in CAPABILITIES {
        let key = name.to_lowercase();
        findings.push(Finding::of(&key, name, effective.clone(), |effective| {
            let have = effective >> bit & 1 == 1;
            let found = Finding::ok(
                &key,
                name,
                format!("{}: {what}", if have { "yes" } else { "no" }),
                json!(have),
            );
            // CAP_SYS_ADMIN is too powerful to recommend for a report on memory.
            if !have && name != "CAP_SYS_ADMIN" {
                lacking.push(key.clone());
                return found.state(State::Missing);
            }
            found
        }));
    }
    if !lacking.is_empty() {
        let found = Finding::ok("grant", "to grant them", lacking.join(", "), json!(lacking))
            .state(State::Missing);
        let found = found.means("capturing needs CAP_NET_RAW alone; files need none");
        findings.push(found.command(format!(
            "sudo setcap {}=ep {}",
            lacking.join(","),
            own_path()
        )));
    }
    Group {
        key: "capabilities",
        title: "Capabilities",
        about: "",
        findings,
    }
}

#[cfg(test)]
mod tests {
    use super::super::system::tests::Made;
    use super::*;

    fn with(effective: &str) -> Vec<Finding> {
        let made = Made::new(&[(
            "proc/self/status",
            &format!("CapPrm:\tff\nCapEff:\t{effective}"),
        )]);
        privileges(&made.system).findings
    }

    #[test]
    fn each_capability_is_its_bit() {
        let have = |effective: &str| -> Vec<bool> {
            with(effective)[..5]
                .iter()
                .map(|found| found.value == json!(true))
                .collect()
        };
        assert_eq!(have("0000000000000000"), [false; 5]);
        assert_eq!(have("000001ffffffffff"), [true; 5]);
        assert_eq!(have("0000000000002000"), [true, false, false, false, false]);
        assert_eq!(have("0000000000001000"), [false, true, false, false, false]);
        assert_eq!(have("0000008000000000"), [false, false, true, false, false]);
        assert_eq!(have("0000000000004000"), [false, false, false, true, false]);
        assert_eq!(have("0000000000200000"), [false, false, false, false, true]);
    }

    #[test]
    fn one_command_grants_what_is_lacking() {
        let found = with("0000000000002000");
        let command = found
            .last()
            .and_then(|found| found.command.clone())
            .unwrap();
        assert!(
            command.starts_with("sudo setcap cap_net_admin,cap_bpf,cap_ipc_lock=ep /"),
            "{command}"
        );
        assert_eq!(with("000001ffffffffff").len(), 5);
        assert!(
            with("what")
                .iter()
                .all(|found| found.state == State::Unknown)
        );
    }

    #[test]
    fn sockets_are_refused_for_different_reasons() {
        let refused = |number| {
            socket(
                "k",
                "l",
                Err(io::Error::from_raw_os_error(number)),
                "absent",
            )
        };
        assert_eq!(
            (refused(1).state, refused(97).state),
            (State::Missing, State::Missing)
        );
        assert!(refused(1).means.unwrap().contains("CAP_NET_RAW"));
        assert_eq!(refused(97).means.as_deref(), Some("absent"));
        assert_eq!(refused(24).state, State::Unknown);
        assert_eq!(socket("k", "l", Ok(()), "").state, State::Ok);
    }
}
