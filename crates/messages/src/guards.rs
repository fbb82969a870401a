//! Messages about guarded interfaces: why sending or taking packets away is refused, and what is sent by which interface.

use crate::errors::io_words;
use crate::{Refusal, refusal};
use std::fmt::Display;
use weir_engine::guard::{Act, Guarded, Why};
use weir_engine::port::Sender;

/// Message on an act on a guarded interface, with the flag that allows it. `name` is the name of
/// the source or sink.
pub fn guarded(name: impl Display, guarded: &Guarded) -> Refusal {
    match guarded {
        Guarded::Danger {
            act,
            interface,
            carrier,
            why,
        } => {
            let why = match why {
                Why::Login(address) => format!("carries the login that runs weir ({address})"),
                Why::DefaultRoute => "carries the default route".to_owned(),
                Why::BridgePort(bridge) if bridge.is_empty() => "is a port of a bridge".to_owned(),
                Why::BridgePort(bridge) => format!("is a port of the bridge {bridge}"),
                why => format!("is guarded ({why:?})"),
            };
            let place = match act {
                _ if carrier == interface => format!("{interface} {why}"),
                Act::Send => format!("{interface} shares its cable with {carrier}, which {why}"),
                Act::Take => format!("{interface} carries {carrier}, which {why}"),
            };
            refusal!("{name}: {place}, and {}", consequence(*act, interface))
        }
        Guarded::Unknown {
            act,
            interface,
            error,
        } => refusal!(
            "{name}: what {interface} carries cannot be found out ({}), and {}",
            io_words(error),
            consequence(*act, interface)
        ),
        other => refusal!("{name}: {other}"),
    }
}

fn consequence(act: Act, interface: &str) -> String {
    match act {
        Act::Send => {
            format!("packets sent there may flood it: --yes-send {interface} sends all the same")
        }
        Act::Take => {
            format!(
                "this host would not get what arrives there: --yes-take {interface} takes it all the same"
            )
        }
    }
}

/// Words for the link addresses between which frames go.
pub fn between([one, other]: [[u8; 6]; 2]) -> String {
    format!(
        "frames between {} and {}",
        address_words(&one),
        address_words(&other)
    )
}

fn address_words(address: &[u8]) -> String {
    let bytes: Vec<String> = address.iter().map(|byte| format!("{byte:02x}")).collect();
    bytes.join(":")
}

/// Line before the first packet that is given to an interface as if it arrived there, as [`sending_line`].
pub fn injecting_line(name: &str, sender: &Sender, frames: &str, rate: &str, end: &str) -> String {
    format!(
        "{name}: packets arrive at {}, {frames}, {rate}, {end}",
        interface_words(sender)
    )
}

/// Line before the first packet that an interface sends. `frames` says whose link addresses they have, `rate` how fast they
/// leave, and `end` when that ends.
pub fn sending_line(name: &str, sender: &Sender, frames: &str, rate: &str, end: &str) -> String {
    format!(
        "{name}: packets leave by {}, {frames}, {rate}, {end}",
        interface_words(sender)
    )
}

fn interface_words(sender: &Sender) -> String {
    let Sender {
        interface,
        speed_mbit,
        address,
    } = sender;
    let speed = speed_mbit.map_or_else(
        || "speed unknown".to_owned(),
        |speed| format!("{speed} Mbit/s"),
    );
    let address = if address.is_empty() {
        String::new()
    } else {
        format!(", {}", address_words(address))
    };
    format!("{interface} ({speed}{address})")
}
