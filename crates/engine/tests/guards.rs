//! The guard of this host, held against what `ip` says about the same network, in namespaces of the tests' own.

use serde_json::Value;
use std::collections::BTreeSet;
use std::process::Command;
use weir_engine::guard::{Act, Guarded, Why, check};
use weir_engine::name::Name;
use weir_engine::port::{Port, PortError};
use weir_io::network::{Interface, Network};
use weir_testkit::net::{alone, cable, ip};
use weir_testkit::skipped;

/// Why an act is refused, and on account of which interface.
fn refused(act: Act, interface: &str) -> Option<(String, Why)> {
    match check(act, interface, &[]) {
        Ok(()) => None,
        Err(Guarded::Danger { carrier, why, .. }) => Some((carrier, why)),
        Err(other) => panic!("{interface}: {other}"),
    }
}

#[track_caller]
fn route(carrier: &str) -> Option<(String, Why)> {
    Some((carrier.to_owned(), Why::DefaultRoute))
}

fn json(words: &str) -> Vec<Value> {
    let text = ip(words);
    if text.trim().is_empty() {
        Vec::new()
    } else {
        serde_json::from_str(&text).expect("ip prints JSON")
    }
}

/// Interfaces of default routes, as `ip` lists them.
fn defaults_by_ip() -> BTreeSet<String> {
    let routes = ["-4", "-6"]
        .iter()
        .flat_map(|family| json(&format!("-j {family} route show table all")));
    let is_default = |route: &Value| {
        route["dst"] == "default" && route["type"].as_str().is_none_or(|kind| kind == "unicast")
    };
    routes
        .filter(is_default)
        .flat_map(|route| {
            let paths = route["nexthops"].as_array().cloned().unwrap_or_default();
            paths
                .into_iter()
                .chain([route])
                .filter_map(|path| Some(path["dev"].as_str()?.to_owned()))
                .collect::<Vec<_>>()
        })
        .collect()
}

fn names(network: &Network, indexes: impl IntoIterator<Item = u32>) -> BTreeSet<String> {
    indexes
        .into_iter()
        .filter_map(|index| Some(network.numbered(index)?.name.clone()))
        .collect()
}

#[test]
fn default_routes_of_all_kinds_are_those_that_ip_lists() {
    if !cable("default_routes_of_all_kinds_are_those_that_ip_lists", "") {
        return;
    }
    for interface in ["far", "near"] {
        std::fs::write(
            format!("/proc/sys/net/ipv6/conf/{interface}/disable_ipv6"),
            "0",
        )
        .unwrap();
    }
    ip("addr add 192.0.2.1/24 dev near");
    ip("addr add 198.51.100.1/24 dev far");
    ip("addr add 2001:db8::1/64 dev near nodad");
    assert_eq!(refused(Act::Send, "near"), None);
    assert_eq!(refused(Act::Take, "near"), None);
    let kinds = [
        ("route add default via 192.0.2.9", "near"),
        ("route add default dev near table 100", "near"),
        ("route add default via 192.0.2.9 metric 500", "near"),
        ("-6 route add default via 2001:db8::9", "near"),
        ("-6 route add default dev near table 7 metric 9", "near"),
        (
            "route add default nexthop via 192.0.2.9 nexthop via 198.51.100.9",
            "far near",
        ),
    ];
    for (words, expected) in kinds {
        ip(words);
        let network = Network::read().unwrap();
        let found = names(
            &network,
            network.defaults.iter().map(|route| route.interface),
        );
        assert_eq!(found, defaults_by_ip(), "{words}");
        assert_eq!(
            found,
            expected.split(' ').map(str::to_owned).collect(),
            "{words}"
        );
        for interface in expected.split(' ') {
            assert_eq!(refused(Act::Send, interface), route(interface), "{words}");
            assert_eq!(refused(Act::Take, interface), route(interface), "{words}");
            let port = Port::open(
                &Name::from(format!("af_packet:{interface}")),
                &["other".to_owned()],
            );
            assert!(matches!(port, Err(PortError::Guarded(_))), "{words}");
            assert!(check(Act::Take, interface, &[interface.to_owned()]).is_ok());
            Port::open(
                &Name::from(format!("af_packet:{interface}")),
                &[interface.to_owned()],
            )
            .unwrap();
        }
        ip(&words.replace("route add", "route del"));
        assert_eq!(refused(Act::Send, "near"), None, "{words}");
    }
    // What is refused at its end, or leads to a part of the addresses, is none. VPNs have two halves.
    ip("route add unreachable default");
    ip("route add 10.0.0.0/8 via 192.0.2.9");
    ip("-6 route add 3000::/4 via 2001:db8::9");
    assert_eq!(refused(Act::Send, "near"), None);
    // All global addresses of IPv6.
    ip("-6 route add 2000::/3 via 2001:db8::9");
    assert_eq!(refused(Act::Send, "near"), route("near"));
    ip("-6 route del 2000::/3");
    assert_eq!(refused(Act::Send, "near"), None);
    ip("route add 128.0.0.0/1 via 192.0.2.9");
    assert_eq!(refused(Act::Send, "near"), route("near"));
    ip("route del 128.0.0.0/1");
    // Objects for next hops, expanded in the routes or not.
    let hop = Command::new("ip")
        .args("nexthop add id 7 via 192.0.2.9 dev near".split(' '))
        .status();
    if !hop.is_ok_and(|status| status.success()) {
        skipped(
            "default_routes_of_all_kinds_are_those_that_ip_lists",
            "no objects for next hops",
        );
        return;
    }
    ip("nexthop add id 8 group 7");
    for expanded in ["1", "0"] {
        std::fs::write("/proc/sys/net/ipv4/nexthop_compat_mode", expanded).unwrap();
        for id in ["7", "8"] {
            ip(&format!("route add default nhid {id} table 9"));
            assert_eq!(refused(Act::Take, "near"), route("near"), "{id} {expanded}");
            ip("route del default table 9");
        }
    }
}

#[test]
fn what_lies_above_and_below_is_what_ip_links() {
    if !cable("what_lies_above_and_below_is_what_ip_links", "") {
        return;
    }
    let made = [
        "link add link near name mac5 type macvlan mode bridge",
        "link add link near name mac6 type macvlan mode bridge",
        "link add vx0 type vxlan id 5 dstport 4789 local 198.51.100.1 dev mac5",
        "link add br0 type bridge",
        "link add one type veth peer name two",
        "link set one master br0",
    ];
    for words in made {
        let done = Command::new("ip").args(words.split(' ')).output().unwrap();
        if !done.status.success() {
            let why = String::from_utf8_lossy(&done.stderr).into_owned();
            skipped(
                "what_lies_above_and_below_is_what_ip_links",
                format_args!("{words}: {}", why.trim()),
            );
            return;
        }
    }
    for interface in ["mac5", "mac6", "vx0", "br0", "one", "two"] {
        ip(&format!("link set {interface} up"));
    }
    let network = Network::read().unwrap();
    for link in json("-j -d link show") {
        let Interface {
            below,
            master,
            is_bridge_port,
            is_loopback,
            ..
        } = network
            .named(link["ifname"].as_str().unwrap())
            .unwrap()
            .clone();
        let name = |index: Option<u32>| {
            index.and_then(|index| Some(network.numbered(index)?.name.clone()))
        };
        // Of a veth, `link` is the other end.
        let is_pair = link["linkinfo"]["info_kind"] == "veth";
        let carrier = link["link"]
            .as_str()
            .filter(|_| !is_pair)
            .or(link["linkinfo"]["info_data"]["link"].as_str());
        assert_eq!(name(below).as_deref(), carrier, "{link}");
        assert_eq!(name(master).as_deref(), link["master"].as_str(), "{link}");
        assert_eq!(
            is_bridge_port,
            link["linkinfo"]["info_slave_kind"] == "bridge",
            "{link}"
        );
        assert_eq!(is_loopback, link["link_type"] == "loopback", "{link}");
    }
    let port = |name: &str| Some((name.to_owned(), Why::BridgePort("br0".to_owned())));
    assert_eq!(refused(Act::Send, "one"), port("one"));
    assert_eq!(refused(Act::Take, "one"), port("one"));
    assert_eq!(
        (refused(Act::Send, "br0"), refused(Act::Take, "br0")),
        (port("one"), None)
    );
    assert_eq!(
        (refused(Act::Send, "two"), refused(Act::Take, "two")),
        (None, None)
    );
    // A route of the upper interface hangs on its parent, and on nothing beside it.
    ip("addr add 192.0.2.1/24 dev mac5");
    ip("route add default via 192.0.2.9");
    assert_eq!(ip("route get 203.0.113.1").split(' ').nth(4), Some("mac5"));
    assert_eq!(
        (refused(Act::Take, "near"), refused(Act::Take, "mac5")),
        (route("mac5"), route("mac5"))
    );
    assert_eq!(
        (refused(Act::Take, "mac6"), refused(Act::Take, "vx0")),
        (None, None)
    );
    assert_eq!(refused(Act::Take, "far"), None);
    // All of them send by one cable.
    for interface in ["near", "mac5", "mac6", "vx0"] {
        assert_eq!(refused(Act::Send, interface), route("mac5"), "{interface}");
    }
    assert_eq!(refused(Act::Send, "far"), None);
    // A bridge of an upper interface hangs on the parent as well.
    ip("route flush table main");
    ip("link set mac6 master br0");
    assert_eq!(refused(Act::Take, "near"), port("mac6"));
}

#[test]
fn the_loopback_sends_to_nobody_and_a_missing_interface_is_not_the_guards() {
    if !alone("the_loopback_sends_to_nobody_and_a_missing_interface_is_not_the_guards") {
        return;
    }
    ip("route add default dev lo");
    assert_eq!(refused(Act::Send, "lo"), None);
    assert_eq!(refused(Act::Take, "lo"), route("lo"));
    assert_eq!(
        (refused(Act::Send, "nix"), refused(Act::Take, "nix")),
        (None, None)
    );
}
