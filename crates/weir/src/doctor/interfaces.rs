//! Network interfaces: their state, and what their offloads do to packets before a capture sees them.

use super::system::System;
use super::{Finding, Group, State};
use serde_json::json;
use std::io;
use weir_io::sys::device::{self, Offloads, XdpFeatures};

/// `IFF_UP` and `IFF_LOOPBACK` of linux/if.h.
const UP: u64 = 1;
const LOOPBACK: u64 = 8;

/// All interfaces, in the order of their numbers.
pub fn group(system: &System) -> Group {
    let mut names: Vec<(u64, String)> = system
        .names("/sys/class/net")
        .into_iter()
        // Some entries are not interfaces, for instance bonding_masters.
        .filter_map(|name| {
            Some((
                system
                    .number(&format!("/sys/class/net/{name}/ifindex"))
                    .ok()?,
                name,
            ))
        })
        .collect();
    names.sort();
    let findings = names
        .into_iter()
        .map(|(index, name)| describe(&Facts::read(system, index, name)))
        .collect();
    Group {
        key: "interfaces",
        title: "Network interfaces",
        about: "Offloads that change what a capture sees: gro and lro merge received packets, tso and gso cut sent \
                packets behind it, rxvlan takes VLAN tags out. Others are not shown.",
        findings,
    }
}

/// Facts about one interface; an `Err` says why a fact is unknown.
struct Facts {
    name: String,
    up: bool,
    loopback: bool,
    state: Option<String>,
    driver: Option<String>,
    mtu: Result<u64, String>,
    rx_queues: usize,
    tx_queues: usize,
    max_rx_queues: Option<u32>,
    speed_mbit: Option<u64>,
    /// Protocols that the kernel forwards from here by itself, also while no firewall of weir runs.
    forwards: Vec<&'static str>,
    xdp: io::Result<XdpFeatures>,
    offloads: io::Result<Offloads>,
}

impl Facts {
    fn read(system: &System, index: u64, name: String) -> Self {
        let file = |field: &str| system.read(&format!("/sys/class/net/{name}/{field}"));
        let flags = file("flags")
            .ok()
            .and_then(|text| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok());
        let flags = flags.unwrap_or(0);
        let queues = system.names(&format!("/sys/class/net/{name}/queues"));
        let count = |kind| {
            queues
                .iter()
                .filter(|queue| queue.starts_with(kind))
                .count()
        };
        let index = u32::try_from(index).unwrap_or(0);
        Self {
            up: flags & UP != 0,
            loopback: flags & LOOPBACK != 0,
            state: file("operstate").ok(),
            driver: device::driver(&name)
                .ok()
                .filter(|driver| !driver.is_empty()),
            mtu: system.number(&format!("/sys/class/net/{name}/mtu")),
            rx_queues: count("rx-"),
            tx_queues: count("tx-"),
            max_rx_queues: device::max_rx_queues(&name).ok().filter(|&most| most > 0),
            // The driver reports -1 or nothing if the interface has no speed.
            speed_mbit: file("speed").ok().and_then(|text| text.parse().ok()),
            forwards: forwards(system, &name),
            xdp: device::xdp_features(index),
            offloads: device::offloads(&name),
            name,
        }
    }
}

/// Reads which protocols the kernel forwards from an interface. **Source**: Documentation/networking/ip-sysctl.rst; a port of a bridge has a
/// directory `brport`.
fn forwards(system: &System, name: &str) -> Vec<&'static str> {
    let routes = |family: &str| {
        system.number(&format!("/proc/sys/net/{family}/conf/{name}/forwarding")) == Ok(1)
    };
    let is_port = !system
        .names(&format!("/sys/class/net/{name}/brport"))
        .is_empty();
    let all = [
        ("IPv4", routes("ipv4")),
        ("IPv6", routes("ipv6")),
        ("bridge", is_port),
    ];
    all.into_iter()
        .filter(|(_, forwards)| *forwards)
        .map(|(name, _)| name)
        .collect()
}

fn describe(facts: &Facts) -> Finding {
    let mut parts = vec![match (facts.up, facts.state.as_deref()) {
        (false, _) => "down".to_owned(),
        (true, Some("up") | Some("unknown") | None) => "up".to_owned(),
        (true, Some(state)) => format!("up, link {state}"),
    }];
    if facts.loopback {
        parts.push("loopback".to_owned());
    }
    parts.extend(facts.driver.clone());
    parts.push(
        facts
            .mtu
            .as_ref()
            .map_or("MTU unknown".to_owned(), |mtu| format!("MTU {mtu}")),
    );
    parts.push(match facts.max_rx_queues {
        Some(most) if most as usize > facts.rx_queues => {
            format!(
                "{} rx (of {most}) + {} tx queues",
                facts.rx_queues, facts.tx_queues
            )
        }
        _ => format!("{} rx + {} tx queues", facts.rx_queues, facts.tx_queues),
    });
    parts.push(
        facts
            .speed_mbit
            .map_or("speed unknown".to_owned(), |speed| {
                format!("{speed} Mbit/s")
            }),
    );
    if !facts.forwards.is_empty() {
        parts.push(format!(
            "the kernel forwards from here ({})",
            facts.forwards.join(", ")
        ));
    }
    let offloads = match &facts.offloads {
        Ok(offloads) => {
            let Offloads {
                gro,
                lro,
                tso,
                gso,
                rxvlan,
            } = *offloads;
            let all = [
                ("gro", gro),
                ("lro", lro),
                ("tso", tso),
                ("gso", gso),
                ("rxvlan", rxvlan),
            ];
            let on: Vec<_> = all
                .iter()
                .filter(|(_, on)| *on)
                .map(|(name, _)| *name)
                .collect();
            parts.push(format!(
                "offloads: {}",
                if on.is_empty() {
                    "none".to_owned()
                } else {
                    on.join(" ")
                }
            ));
            json!({"gro": gro, "lro": lro, "tso": tso, "gso": gso, "rxvlan": rxvlan})
        }
        Err(error) => {
            parts.push(format!(
                "offloads unknown ({})",
                crate::outcome::io_words(error)
            ));
            json!(null)
        }
    };
    let xdp = match &facts.xdp {
        Ok(features) => {
            let (native, redirect, zero_copy) =
                (features.native(), features.redirect(), features.zero_copy());
            parts.push(match (native, zero_copy) {
                (true, true) => "XDP native, AF_XDP zero copy offered".to_owned(),
                (true, false) if redirect => "XDP native, AF_XDP copies".to_owned(),
                (true, false) => "XDP native, no redirect".to_owned(),
                (false, _) => "XDP generic only".to_owned(),
            });
            json!({"native": native, "redirect": redirect, "zero_copy": zero_copy})
        }
        Err(error) => {
            parts.push(format!("XDP unknown ({})", crate::outcome::io_words(error)));
            json!(null)
        }
    };
    let value = json!({
        "up": facts.up, "loopback": facts.loopback, "operstate": facts.state, "driver": facts.driver,
        "mtu": facts.mtu.as_ref().ok(), "rx_queues": facts.rx_queues, "tx_queues": facts.tx_queues,
        "max_rx_queues": facts.max_rx_queues, "speed_mbit": facts.speed_mbit, "forwards": facts.forwards, "offloads": offloads, "xdp": xdp,
    });
    advise(
        facts,
        Finding::ok(&facts.name, &facts.name, parts.join(", "), value),
    )
}

/// Adds advice for an interface that is up and no loopback, and could thus be captured from.
fn advise(facts: &Facts, found: Finding) -> Finding {
    match &facts.offloads {
        Ok(offloads) if facts.up && !facts.loopback && (offloads.gro || offloads.lro) => {
            let merged: Vec<_> = [(offloads.gro, "gro"), (offloads.lro, "lro")]
                .into_iter()
                .filter(|(on, _)| *on)
                .collect();
            let switches: Vec<_> = merged
                .iter()
                .map(|(_, name)| format!("{name} off"))
                .collect();
            found
                .state(State::Better)
                .means(
                    "a capture would see merged packets, fewer and larger than those on the wire",
                )
                .command(format!(
                    "sudo ethtool -K {} {}",
                    facts.name,
                    switches.join(" ")
                ))
        }
        _ => found,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card() -> Facts {
        Facts {
            name: "eth7".to_owned(),
            up: true,
            loopback: false,
            state: Some("up".to_owned()),
            driver: Some("ice".to_owned()),
            mtu: Ok(1500),
            rx_queues: 8,
            tx_queues: 16,
            max_rx_queues: Some(32),
            speed_mbit: Some(100_000),
            forwards: Vec::new(),
            xdp: Ok(XdpFeatures(0b1011)),
            offloads: Ok(Offloads {
                gro: true,
                lro: false,
                tso: true,
                gso: true,
                rxvlan: false,
            }),
        }
    }

    #[test]
    fn a_card_that_merges_packets_is_told_off() {
        let found = describe(&card());
        assert_eq!(
            found.text,
            "up, ice, MTU 1500, 8 rx (of 32) + 16 tx queues, 100000 Mbit/s, offloads: gro tso gso, \
             XDP native, AF_XDP zero copy offered"
        );
        assert_eq!(
            (found.state, found.command.as_deref()),
            (State::Better, Some("sudo ethtool -K eth7 gro off"))
        );
        let both = Ok(Offloads {
            gro: true,
            lro: true,
            tso: false,
            gso: false,
            rxvlan: false,
        });
        let found = describe(&Facts {
            offloads: both,
            ..card()
        });
        assert_eq!(
            found.command.as_deref(),
            Some("sudo ethtool -K eth7 gro off lro off")
        );
    }

    #[test]
    fn who_cannot_be_captured_from_is_left_alone() {
        for facts in [
            Facts {
                up: false,
                ..card()
            },
            Facts {
                loopback: true,
                ..card()
            },
        ] {
            assert_eq!(describe(&facts).state, State::Ok);
        }
        let silent = Facts {
            offloads: Err(io::Error::from_raw_os_error(95)),
            xdp: Err(io::Error::from_raw_os_error(2)),
            mtu: Err("x".to_owned()),
            speed_mbit: None,
            forwards: Vec::new(),
            driver: None,
            max_rx_queues: None,
            state: Some("lowerlayerdown".to_owned()),
            ..card()
        };
        let found = describe(&silent);
        assert!(found.text.starts_with(
            "up, link lowerlayerdown, MTU unknown, 8 rx + 16 tx queues, speed unknown, offloads unknown ("
        ));
        assert!(
            found.state == State::Ok
                && found.value["offloads"].is_null()
                && found.value["xdp"].is_null()
        );
    }
}
