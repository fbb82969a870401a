//! Interfaces of a capture that pass packets to each other, so that one packet is captured several times.
//!
//! **Source**: the kernel links an interface above others (a bridge, a bond, a VLAN) to each of
//! them as `/sys/class/net/UPPER/lower_LOWER`, Documentation/ABI/testing/sysfs-class-net.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use weir_io::sys::packet_socket;

/// Most groups of interfaces named in a line, and most interfaces named of a group.
const NAMED: usize = 4;

/// Returns a line on captured interfaces that are above one another; `captured` are their names, or
/// `any`. `None` if no packet reaches two of them. No packet is left out of the capture for that.
pub fn twice_line(captured: &[&str]) -> Option<String> {
    let names = fs::read_dir("/sys/class/net")
        .ok()?
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok());
    let relations = names.flat_map(|upper| {
        lower_of(&upper)
            .into_iter()
            .map(move |lower| (upper.clone(), lower))
    });
    line(captured, &relations.collect::<Vec<_>>())
}

/// Returns the names of the interfaces directly below `upper`. The directory may show the
/// interfaces of another network namespace: then there are none.
fn lower_of(upper: &str) -> Vec<String> {
    let directory = Path::new("/sys/class/net").join(upper);
    let index = fs::read_to_string(directory.join("ifindex"))
        .ok()
        .and_then(|text| text.trim().parse().ok());
    if index.is_none() || index != packet_socket::index_of(upper) {
        return Vec::new();
    }
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            Some(
                entry
                    .file_name()
                    .to_str()?
                    .strip_prefix("lower_")?
                    .to_owned(),
            )
        })
        .collect()
}

/// Returns the line for these relations of an upper and a lower interface.
fn line(captured: &[&str], relations: &[(String, String)]) -> Option<String> {
    let captures = |name: &str| captured.contains(&packet_socket::ANY) || captured.contains(&name);
    let mut lowers: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (upper, lower) in relations
        .iter()
        .filter(|(upper, lower)| captures(upper) && captures(lower))
    {
        lowers.entry(upper).or_default().insert(lower);
    }
    let group = |(upper, lowers): (&&str, &BTreeSet<&str>)| {
        format!("{upper} and {}", some(lowers.iter().copied()))
    };
    let groups: Vec<String> = lowers.iter().map(group).collect();
    let groups = (!groups.is_empty()).then(|| some(groups.iter().map(String::as_str)))?;
    Some(format!(
        "packets that pass one of these interfaces to another are captured at both, and count twice: {groups}"
    ))
}

/// Returns the first names, and how many more there are.
fn some<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> String {
    let more = names.len().saturating_sub(NAMED);
    let mut text = names.take(NAMED).collect::<Vec<_>>().join(", ");
    if more > 0 {
        text.push_str(&format!(" and {more} more"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_captured_interfaces_that_stand_on_one_another_are_told_of() {
        let relations = [
            ("br0", "veth1"),
            ("br0", "veth2"),
            ("eth0.5", "eth0"),
            ("bond0", "eth1"),
        ];
        let relations: Vec<_> = relations
            .map(|(upper, lower)| (upper.to_owned(), lower.to_owned()))
            .into();
        let of = |captured: &[&str]| {
            line(captured, &relations).map(|line| line.split(": ").nth(1).unwrap().to_owned())
        };
        assert_eq!(
            of(&["any"]).as_deref(),
            Some("bond0 and eth1, br0 and veth1, veth2, eth0.5 and eth0")
        );
        assert_eq!(of(&["br0", "veth2"]).as_deref(), Some("br0 and veth2"));
        for captured in [&["br0"][..], &["veth1", "veth2"], &["eth0", "eth1"], &[]] {
            assert_eq!(of(captured), None, "{captured:?}");
        }
        let many: Vec<_> = (0..9)
            .map(|number| ("br0".to_owned(), format!("v{number}")))
            .collect();
        assert!(
            line(&["any"], &many)
                .unwrap()
                .ends_with("br0 and v0, v1, v2, v3 and 5 more")
        );
    }
}
