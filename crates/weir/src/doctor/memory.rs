//! Memory, its limits and its page sizes.

use super::system::System;
use super::{Finding, Group, State, size};
use serde_json::{Value, json};
use weir_memory::{HUGE, Pool, Region, Request};

/// Size of the region allocated to see which pages a table gets, in bytes.
const PROBE: usize = 4 << 20;

const THP: &str = "/sys/kernel/mm/transparent_hugepage";

/// Findings about memory and its limits.
pub fn group(system: &System) -> Group {
    let findings = vec![total(system), group_limit(system), locked(system)];
    Group {
        key: "memory",
        title: "Memory",
        about: "",
        findings,
    }
}

fn kib(system: &System, name: &str) -> Result<u64, String> {
    let text = system.field("/proc/meminfo", name)?;
    let number = text
        .strip_suffix(" kB")
        .and_then(|number| number.parse::<u64>().ok());
    number
        .map(|kib| kib << 10)
        .ok_or_else(|| format!("/proc/meminfo: {name} is '{text}'"))
}

fn total(system: &System) -> Finding {
    let both = kib(system, "MemTotal").and_then(|total| Ok((total, kib(system, "MemAvailable")?)));
    Finding::of("total", "memory", both, |(total, available)| {
        let text = format!("{}, {} available", size(total), size(available));
        Finding::ok(
            "total",
            "memory",
            text,
            json!({"bytes": total, "available_bytes": available}),
        )
    })
}

fn group_limit(system: &System) -> Finding {
    let limit = system.group_limit("memory", |system, group| {
        let text = ["memory.max", "memory.limit_in_bytes"]
            .map(|file| system.read(&format!("{group}/{file}")).ok());
        // No limit: "max", or in version 1 of the control groups a number near 2^63.
        text.into_iter()
            .flatten()
            .find_map(|text| text.parse::<f64>().ok())
            .filter(|&bytes| bytes < 1e18)
    });
    let text = limit.map_or("none".to_owned(), |bytes| size(bytes as u64));
    Finding::ok(
        "group_limit",
        "control group limit",
        text,
        json!(limit.map(|bytes| bytes as u64)),
    )
}

fn locked(system: &System) -> Finding {
    let soft = system.read("/proc/self/limits").and_then(|text| {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("Max locked memory"));
        let soft = line.and_then(|line| line.split_ascii_whitespace().next().map(str::to_owned));
        soft.ok_or_else(|| "/proc/self/limits: no Max locked memory".to_owned())
    });
    Finding::of("locked", "locked memory limit", soft, |soft| {
        let bytes = soft.parse::<u64>().ok();
        let text = bytes.map_or(soft, size);
        let found = Finding::ok(
            "locked",
            "locked memory limit",
            text,
            json!({"limit_bytes": bytes}),
        );
        match bytes {
            Some(_) if super::capture::may_lock(system) => {
                found.means("does not bind this process, it has CAP_IPC_LOCK")
            }
            Some(bytes) if bytes < 64 << 20 => found
                .state(State::Better)
                .means(
                    "enough for files; rings of live capture that are kept in memory would need more, or CAP_IPC_LOCK; \
                     the command needs root, memlock in /etc/security/limits.conf makes it lasting",
                )
                .command("ulimit -l unlimited"),
            _ => found,
        }
    })
}

/// Findings about page sizes.
pub fn pages(system: &System) -> Group {
    let thp = system.choice(&format!("{THP}/enabled"));
    let findings = vec![
        pool(
            system,
            "hugetlb_2m",
            "huge pages, 2 MiB",
            HUGE,
            thp.as_deref() == Ok("never"),
        ),
        pool(system, "hugetlb_1g", "huge pages, 1 GiB", 1 << 30, false),
        transparent(thp),
        defrag(system),
        obtained(),
    ];
    Group {
        key: "pages",
        title: "Memory pages",
        about: "",
        findings,
    }
}

/// Pool of huge pages of `bytes` each. A pool is `needed` if no other mechanism gives such pages.
fn pool(system: &System, key: &str, label: &str, bytes: usize, needed: bool) -> Finding {
    let directory = format!("/sys/kernel/mm/hugepages/hugepages-{}kB", bytes >> 10);
    if !system.exists(&directory) {
        return Finding::ok(
            key,
            label,
            "not offered by kernel or processor",
            Value::Null,
        );
    }
    let read = |node| Pool::read(system.root(), bytes, node);
    let pool = read(None).ok_or_else(|| format!("{directory} cannot be read"));
    Finding::of(key, label, pool, |Pool { free, total, .. }| {
        let mut text = format!("{free} of {total} free");
        let names = system.names("/sys/devices/system/node");
        let numbers = names
            .iter()
            .filter_map(|name| name.strip_prefix("node")?.parse().ok());
        let nodes = numbers.filter_map(|number: u32| {
            let Pool { free, total, .. } = read(Some(number))?;
            Some(json!({"node": number, "free": free, "total": total}))
        });
        let nodes: Vec<Value> = nodes.collect();
        if nodes.len() > 1 && total > 0 {
            let each: Vec<_> = nodes
                .iter()
                .map(|n| format!("node {}: {} of {}", n["node"], n["free"], n["total"]))
                .collect();
            text += &format!(" ({})", each.join(", "));
        }
        let found = Finding::ok(
            key,
            label,
            text,
            json!({"free": free, "total": total, "nodes": nodes}),
        );
        let command = format!("echo 512 | sudo tee {directory}/nr_hugepages");
        match total {
            0 if needed => found
                .state(State::Missing)
                .means("transparent huge pages are off too: tables lie in 4 KiB pages, and random look-ups are slower")
                .command(command),
            0 if bytes == HUGE => {
                found.means("not needed: tables take transparent huge pages instead, which are as fast")
            }
            _ => found,
        }
    })
}

fn transparent(mode: Result<String, String>) -> Finding {
    let (key, label) = ("thp", "transparent (THP)");
    Finding::of(key, label, mode, |mode| {
        let found = Finding::ok(key, label, &mode, json!(mode));
        match mode.as_str() {
            "never" => found
                .state(State::Better)
                .means("large tables lie in 4 KiB pages, and random look-ups are slower")
                .command(format!("echo madvise | sudo tee {THP}/enabled")),
            "madvise" => found.means("for who asks, as weir does for tables of 2 MiB and more"),
            _ => found,
        }
    })
}

fn defrag(system: &System) -> Finding {
    let (key, label) = ("thp_defrag", "THP defrag");
    Finding::of(
        key,
        label,
        system.choice(&format!("{THP}/defrag")),
        |mode| {
            let found = Finding::ok(key, label, &mode, json!(mode));
            match mode.as_str() {
            "never" | "defer" => found
                .state(State::Better)
                .means("memory in pieces is not put together when weir asks: it may get small pages")
                .command(format!("echo defer+madvise | sudo tee {THP}/defrag")),
            _ => found,
        }
        },
    )
}

/// Pages that a region of weir's tables gets in fact.
fn obtained() -> Finding {
    let (key, label) = ("table", "a table of weir gets");
    let region = Region::zeroed(
        PROBE,
        &Request {
            populate: true,
            ..Request::default()
        },
    );
    Finding::of(
        key,
        label,
        region.map_err(|error| error.to_string()),
        |region| {
            let got = region.obtained();
            let value = json!({
                "policy": got.policy.name(), "bytes": got.bytes, "page_bytes": got.page_bytes, "huge_bytes": got.huge_bytes,
                "nodes": got.nodes,
            });
            let found = Finding::ok(key, label, got.to_string(), value);
            match &got.unknown {
                Some(why) => Finding::unknown(key, label, why),
                None if got.huge_bytes < PROBE => found.state(State::Better),
                None => found,
            }
        },
    )
}

#[cfg(test)]
mod tests {
    use super::super::system::tests::Made;
    use super::*;
    use std::fs;

    #[test]
    fn a_machine_without_huge_pages_is_told_how_to_get_them() {
        let made = Made::new(&[
            (
                "sys/kernel/mm/transparent_hugepage/enabled",
                "always madvise [never]",
            ),
            (
                "sys/kernel/mm/transparent_hugepage/defrag",
                "always defer defer+madvise madvise [never]",
            ),
            (
                "sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages",
                "0",
            ),
            ("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "0"),
            (
                "sys/kernel/mm/hugepages/hugepages-2048kB/resv_hugepages",
                "0",
            ),
        ]);
        let found = pages(&made.system).findings;
        assert_eq!(found[0].state, State::Missing);
        let command = "echo 512 | sudo tee /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";
        assert_eq!(found[0].command.as_deref(), Some(command));
        assert_eq!(
            (found[1].state, found[1].text.as_str()),
            (State::Ok, "not offered by kernel or processor")
        );
        let command = "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled";
        assert_eq!(
            (found[2].state, found[2].command.as_deref()),
            (State::Better, Some(command))
        );
        assert_eq!(found[3].state, State::Better);
    }

    #[test]
    fn pools_are_shown_by_node() {
        let node = "sys/devices/system/node";
        let made = Made::new(&[
            (
                "sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages",
                "5",
            ),
            ("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "8"),
            (
                "sys/kernel/mm/hugepages/hugepages-2048kB/resv_hugepages",
                "1",
            ),
            (
                &format!("{node}/node0/hugepages/hugepages-2048kB/free_hugepages"),
                "4",
            ),
            (
                &format!("{node}/node0/hugepages/hugepages-2048kB/nr_hugepages"),
                "4",
            ),
            (
                &format!("{node}/node1/hugepages/hugepages-2048kB/free_hugepages"),
                "1",
            ),
            (
                &format!("{node}/node1/hugepages/hugepages-2048kB/nr_hugepages"),
                "4",
            ),
            (&format!("{node}/has_cpu"), "0-1"),
        ]);
        let found = pool(&made.system, "k", "l", HUGE, true);
        assert_eq!(found.text, "4 of 8 free (node 0: 3 of 4, node 1: 0 of 4)");
        assert_eq!(
            (found.state, found.value["nodes"][1]["free"].as_u64()),
            (State::Ok, Some(0))
        );
        fs::remove_file(
            made.system
                .root()
                .join("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages"),
        )
        .unwrap();
        let found = pool(&made.system, "k", "l", HUGE, true);
        assert_eq!(
            (found.state, found.text.as_str()),
            (
                State::Unknown,
                "unknown: /sys/kernel/mm/hugepages/hugepages-2048kB cannot be read"
            )
        );
    }

    #[test]
    fn limits_are_the_smallest_on_the_way_up() {
        let made = Made::new(&[
            (
                "proc/meminfo",
                "MemTotal:       24683884 kB\nMemFree:  1 kB\nMemAvailable:   24245588 kB",
            ),
            ("proc/self/cgroup", "0::/a/b"),
            ("sys/fs/cgroup/memory.max", "4294967296"),
            ("sys/fs/cgroup/a/memory.max", "1073741824"),
            ("sys/fs/cgroup/a/b/memory.max", "max"),
            (
                "proc/self/limits",
                "Limit  Soft Limit  Hard Limit  Units\nMax locked memory         65536                unlimited            bytes",
            ),
        ]);
        assert_eq!(total(&made.system).text, "23.5 GiB, 23.1 GiB available");
        assert_eq!(group_limit(&made.system).value, json!(1u64 << 30));
        let found = locked(&made.system);
        assert_eq!(
            (found.text.as_str(), found.command.is_some()),
            ("64 KiB", true)
        );
    }
}
