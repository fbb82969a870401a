//! Kernel, processors, NUMA nodes and clock.

use super::system::System;
use super::{Finding, Group, State, size};
use crate::numbers::parse_cpus;
use serde_json::json;

const CPUS: &str = "/sys/devices/system/cpu";
const NODES: &str = "/sys/devices/system/node";

/// Findings about kernel, processors and NUMA nodes.
pub fn group(system: &System) -> Group {
    let findings = vec![
        kernel(system),
        cores(system),
        threads(system),
        governor(system),
        nodes(system),
    ];
    Group {
        key: "machine",
        title: "Machine",
        about: "",
        findings,
    }
}

fn kernel(system: &System) -> Finding {
    let release = system.read("/proc/sys/kernel/osrelease");
    Finding::of("kernel", "kernel", release, |release| {
        let text = format!("Linux {release}, {}", std::env::consts::ARCH);
        Finding::ok("kernel", "kernel", text, json!(release))
    })
}

fn cores(system: &System) -> Finding {
    let allowed = system
        .field("/proc/self/status", "Cpus_allowed_list")
        .and_then(|list| {
            let usable = parse_cpus(&list)?.len();
            // Without this file, only the usable processors are known.
            let online = system
                .read(&format!("{CPUS}/online"))
                .and_then(|list| parse_cpus(&list))
                .map_or(usable, |all| all.len());
            Ok((list, usable.min(online), online))
        });
    Finding::of("cores", "processors", allowed, |(list, usable, online)| {
        let quota = system.group_limit("cpu", quota);
        let mut text = format!("{usable} of {online} usable ({list})");
        if let Some(quota) = quota {
            text += &format!(", control group grants {quota:.1}");
        }
        let value = json!({"usable": usable, "online": online, "list": list, "quota": quota});
        let found = Finding::ok("cores", "processors", text, value);
        match quota {
            Some(quota) if quota < usable as f64 => found
                .state(State::Better)
                .means("weir starts a worker for each granted processor; more would be throttled"),
            _ if usable < online => found
                .state(State::Better)
                .means("the others are kept from this process (taskset, cpuset)"),
            _ => found,
        }
    })
}

/// Processor time that a control group grants, in processors.
fn quota(system: &System, group: &str) -> Option<f64> {
    let (quota, period) = match system.read(&format!("{group}/cpu.max")) {
        Ok(text) => {
            let (quota, period) = text.split_once(' ')?;
            (quota.parse::<f64>().ok()?, period.parse::<f64>().ok()?)
        }
        Err(_) => {
            let number = |file| {
                system
                    .read(&format!("{group}/{file}"))
                    .ok()?
                    .parse::<f64>()
                    .ok()
            };
            (number("cpu.cfs_quota_us")?, number("cpu.cfs_period_us")?)
        }
    };
    (quota > 0.0 && period > 0.0).then(|| quota / period)
}

fn threads(system: &System) -> Finding {
    let active = system.number(&format!("{CPUS}/smt/active"));
    Finding::of("smt", "SMT", active, |active| {
        let found = Finding::ok(
            "smt",
            "SMT",
            if active == 1 { "on" } else { "off" },
            json!(active == 1),
        );
        if active == 1 {
            found.means("two processors share a core: bind workers to one of each (--cpus)")
        } else {
            found
        }
    })
}

fn governor(system: &System) -> Finding {
    let mut governors: Vec<String> = system
        .names(CPUS)
        .iter()
        .filter_map(|cpu| {
            system
                .read(&format!("{CPUS}/{cpu}/cpufreq/scaling_governor"))
                .ok()
        })
        .collect();
    governors.sort();
    governors.dedup();
    let found = |text: &str| Finding::ok("governor", "frequency governor", text, json!(governors));
    match &governors[..] {
        [] => found("none: the clock is not ours to change (virtual machine or fixed clock)"),
        [only] if only == "performance" => found(only),
        _ => found(&governors.join(", "))
            .state(State::Better)
            .means("timings waver, and a burst of packets meets a slow processor")
            .command("sudo cpupower frequency-set -g performance"),
    }
}

fn nodes(system: &System) -> Finding {
    let Ok(list) = system.read(&format!("{NODES}/has_memory")) else {
        return Finding::ok(
            "numa",
            "NUMA nodes",
            "1 (the kernel has no NUMA)",
            json!([]),
        );
    };
    Finding::of("numa", "NUMA nodes", parse_cpus(&list), |nodes| {
        let (mut texts, mut values) = (Vec::new(), Vec::new());
        for node in nodes {
            let cpus = system
                .read(&format!("{NODES}/node{node}/cpulist"))
                .unwrap_or_default();
            let total = system.field(
                &format!("{NODES}/node{node}/meminfo"),
                &format!("Node {node} MemTotal"),
            );
            let bytes = total
                .ok()
                .and_then(|text| text.split(' ').next()?.parse::<u64>().ok())
                .map(|kib| kib << 10);
            let memory = bytes.map_or("memory unknown".to_owned(), size);
            let processors = if cpus.is_empty() {
                "no processors".to_owned()
            } else {
                format!("processors {cpus}")
            };
            texts.push(format!("{node} ({processors}, {memory})"));
            values.push(json!({"node": node, "cpus": cpus, "bytes": bytes}));
        }
        let many = texts.len() > 1;
        let found = Finding::ok(
            "numa",
            "NUMA nodes",
            format!("{}: {}", texts.len(), texts.join(", ")),
            json!(values),
        );
        if many {
            found.means("workers are fastest on the node of their memory and card (--cpus)")
        } else {
            found
        }
    })
}

#[cfg(test)]
mod tests {
    use super::super::system::tests::Made;
    use super::*;

    #[test]
    fn a_server_with_limits_is_described() {
        let made = Made::new(&[
            ("proc/self/status", "Name:\tweir\nCpus_allowed_list:\t0-3,8"),
            ("proc/self/cgroup", "0::/a/b"),
            ("sys/fs/cgroup/a/cpu.max", "250000 100000"),
            ("sys/fs/cgroup/a/b/cpu.max", "max 100000"),
            ("sys/devices/system/cpu/online", "0-15"),
            ("sys/devices/system/cpu/smt/active", "1"),
            (
                "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
                "powersave",
            ),
            (
                "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor",
                "powersave",
            ),
            ("sys/devices/system/node/has_memory", "0-1"),
            ("sys/devices/system/node/node0/cpulist", "0-7"),
            (
                "sys/devices/system/node/node0/meminfo",
                "Node 0 MemTotal:       67108864 kB\nNode 0 MemFree: 5 kB",
            ),
            ("sys/devices/system/node/node1/cpulist", ""),
        ]);
        let found = cores(&made.system);
        assert_eq!(
            found.text,
            "5 of 16 usable (0-3,8), control group grants 2.5"
        );
        assert_eq!(
            (found.state, found.value["quota"].as_f64()),
            (State::Better, Some(2.5))
        );
        assert_eq!(threads(&made.system).text, "on");
        let found = governor(&made.system);
        assert_eq!(
            (found.text.as_str(), found.state),
            ("powersave", State::Better)
        );
        let found = nodes(&made.system);
        assert_eq!(
            found.text,
            "2: 0 (processors 0-7, 64 GiB), 1 (no processors, memory unknown)"
        );
        assert!(found.means.is_some());
    }

    #[test]
    fn a_machine_that_tells_nothing_is_unknown() {
        let made = Made::new(&[]);
        for found in group(&made.system).findings {
            let fine = matches!(found.key.as_str(), "governor" | "numa");
            assert_eq!(
                found.state,
                if fine { State::Ok } else { State::Unknown },
                "{found:?}"
            );
        }
    }

    #[test]
    fn quotas_of_the_older_control_groups_count() {
        let files = |quota| {
            Made::new(&[
                (
                    "proc/self/cgroup",
                    "3:cpu,cpuacct:/x\n1:name=systemd:/y\n0::/",
                ),
                ("sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", quota),
                ("sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000"),
            ])
        };
        assert_eq!(files("50000").system.group_limit("cpu", quota), Some(0.5));
        assert_eq!(files("-1").system.group_limit("cpu", quota), None);
    }
}
