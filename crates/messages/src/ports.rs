//! Ports as sinks: checks of their names, and messages on their failures.

use crate::captures::check_queue;
use crate::errors::{io_words, own_path};
use crate::guards::{guarded, sending_line};
use crate::numbers::packets;
use crate::sources::{near_scheme, scheme};
use crate::{Refusal, refusal, refuse};
use weir_engine::capture::{AF_PACKET, AF_XDP};
use weir_engine::name::Name;
use weir_engine::port::{self, Cause, PortError};
pub use weir_engine::port::{
    Finisher, Injecting, Port, PortFault, PortSink, injected, interface, is_dpdk, is_null, is_port,
    sender,
};
use weir_engine::sink::{Loss, Lost};
use weir_io::sys::{bpf, inject, packet_socket, xdp};
use weir_packet::LinkType;

/// Refuses misspelt schemes like `af_paket:eth0`, which would become files; schemes without an interface, like
/// `af_packet:`; and `af_packet:eth0:1`.
pub fn check_scheme(name: &Name) -> Result<(), Refusal> {
    if interface(name).or(injected(name)) == Some("") {
        refuse!("{name} names no interface: weir filter -D lists those there are");
    }
    if let Some(inside) = name.utf8().strip_prefix("netns:")
        && let Some((namespace, interface)) = inside.split_once('/')
    {
        refuse!(
            "{name}: weir sends in its own network namespace: ip netns exec {namespace} weir ..., with {interface}"
        );
    }
    if scheme(name).is_some() && !is_port(name) {
        refuse!(
            "{name}: unknown way to send{}: af_packet:eth0, af_xdp:eth0, dpdk:DEVICE, inject:eth0 or null (a file of this name: ./{name})",
            near_scheme(name, &["af_packet", "af_xdp", "dpdk", "inject"])
        );
    }
    check_queue(name)
}

/// Opens the port `name`; a guarded interface must be among `yes_send`. **Errors**: a message with the remedy.
pub fn open(name: &Name, yes_send: &[String]) -> Result<Port, Refusal> {
    Port::open(name, yes_send).map_err(|error| refusal(name, error))
}

/// Opens the port `name`, which may be `inject:IF`; see [`Port::injecting`]. **Errors**: a message with the remedy.
pub fn open_or_inject(name: &Name, yes_send: &[String], way: Injecting) -> Result<Port, Refusal> {
    let opened = match injected(name) {
        Some(_) => Port::injecting(name, yes_send, way),
        None => Port::open(name, yes_send),
    };
    opened.map_err(|error| refusal(name, error))
}

/// Line on frames that are counted and dropped.
pub fn dropping_line(name: &Name) -> String {
    format!(
        "{}: the interface has an address: packets are counted and dropped, and --to-stack hands them to this host",
        name.text()
    )
}

/// Refuses a port on a guarded interface that is not among `yes_send`.
pub fn check_guard(name: &Name, yes_send: &[String]) -> Result<(), Refusal> {
    port::check_guard(name, yes_send).map_err(|error| guarded(name, &error))
}

/// Line before the first packet that a port sends as the packets of a run come; `None` for a port
/// that is not an interface.
pub fn forwarding_line(name: &Name, end: &str) -> Option<String> {
    let sender = port::sender(name)?;
    Some(sending_line(
        &name.text(),
        &sender,
        "frames as they are",
        "as they come",
        end,
    ))
}

/// Refuses an interface that does not exist or is down.
pub fn check_interface(name: &Name, interface: &str) -> Result<(), Refusal> {
    port::check_interface(interface).map_err(|error| refusal(name, error))
}

/// Message on why a port cannot be opened, with the remedy.
pub fn refusal(name: &Name, error: PortError) -> Refusal {
    let interface = interface(name).or(injected(name)).unwrap_or_default();
    match error {
        PortError::NoInterface => refusal!("{name}: {error}: weir filter -D lists those there are"),
        PortError::Down => refusal!("{name}: {error}: sudo ip link set {interface} up"),
        PortError::Queue(_) => refusal!("{name}: {error}: {AF_XDP}{interface}:0"),
        PortError::Injects => {
            refusal!(
                "{name}: packets are injected by weir generate {name} and weir replay --to {name}, and sent by {AF_PACKET}IF"
            )
        }
        PortError::WithoutDpdk => {
            refusal!("{name}: {error}: cargo build --release -p weir --features dpdk")
        }
        PortError::Guarded(error) => guarded(name, &error),
        PortError::PacketSocket(packet_socket::Error::NotPermitted) => {
            not_permitted(name, "sending needs CAP_NET_RAW", "cap_net_raw")
        }
        PortError::PacketSocket(packet_socket::Error::Hardware(other)) => {
            refusal!(
                "{name}: frames of hardware type {other} are not sent: those of Ethernet and IP tunnels are"
            )
        }
        PortError::Inject(inject::Error::Bpf(bpf::Error::NotPermitted(_))) => not_permitted(
            name,
            "injecting needs CAP_BPF and CAP_NET_ADMIN",
            "cap_bpf,cap_net_admin",
        ),
        PortError::HasXdp => {
            refusal!("{name}: {error}: sudo ip link set {interface} xdp off takes it away")
        }
        PortError::Xdp(ref xdp @ xdp::Error::NotPermitted(_)) => {
            not_permitted(name, &xdp.to_string(), "cap_net_raw")
        }
        PortError::PacketSocket(packet_socket::Error::System { what, error })
        | PortError::Xdp(xdp::Error::System { what, error }) => {
            refusal!("{name}: {what}: {}", io_words(&error))
        }
        PortError::Dpdk(words) => Refusal(words),
        error => refusal!("{name}: {error}"),
    }
}

/// Message on missing capabilities to send or inject, with the command that grants them.
pub fn not_permitted(name: &Name, what: &str, capabilities: &str) -> Refusal {
    refusal!(
        "{name}: {what}: sudo setcap {capabilities}=ep {}, or run it as root",
        own_path()
    )
}

/// Message on a port that failed.
pub fn fault_line(fault: &PortFault) -> String {
    let PortFault { name, cause, sent } = fault;
    format!(
        "{}: {}; {} before that",
        name.text(),
        cause_words(cause),
        sent_words(*sent)
    )
}

/// Why an interface no longer works, if that can be found out.
pub fn gone_words(interface: &str) -> Option<String> {
    port::what_befell(interface).map(|cause| cause_words(&cause))
}

fn cause_words(cause: &Cause) -> String {
    let link = |link: LinkType| {
        link.name()
            .map_or_else(|| link.0.to_string(), str::to_owned)
    };
    match cause {
        Cause::LinkType { packets, port } => format!(
            "packets of link type {} cannot be sent here, only those of {}; weir filter FILE -w COPY keeps them",
            link(*packets),
            link(*port)
        ),
        Cause::Full { longest } => format!(
            "the interface took no packet for 4 s, of up to {longest} bytes: its queue is full, or its other end has a smaller MTU"
        ),
        Cause::Down { interface } => format!("{cause}: sudo ip link set {interface} up"),
        Cause::Io(error) => io_words(error),
        cause => cause.to_string(),
    }
}

/// Message on packets that the port `name` did not send.
pub fn lost_line(name: &str, lost: &Lost) -> String {
    let why = match lost.why {
        Loss::TooLong(mtu) => {
            format!(
                "longer than the interface takes{}",
                mtu.map_or(String::new(), |mtu| format!(" (MTU {mtu})"))
            )
        }
        Loss::TooShort => "shorter than a link header".to_owned(),
        Loss::NoRoom => {
            "the interface had no room, or its other end takes none so long (MTU)".to_owned()
        }
        Loss::Down => "the interface was down".to_owned(),
        Loss::Failed => "the interface failed".to_owned(),
        why => format!("{why:?}"),
    };
    format!("{name}: {} not sent: {why}", packets(lost.packets))
}

/// Message on packets that the port `name` sent shorter than they were.
pub fn cut_line(name: &str, cut: u64) -> String {
    let were = match cut {
        1 => "was cut and was sent shorter than it was",
        _ => "were cut and were sent shorter than they were",
    };
    format!("{name}: {} {were}", packets(cut))
}

/// Message on packets that the interface of the port `name` has dropped.
pub fn dropped_line(name: &str, dropped: u64) -> String {
    format!(
        "{name}: the interface dropped {} after it took them, from all senders (tx_dropped): is its other end up?",
        packets(dropped)
    )
}

/// Number of packets sent: `1 packet was sent`.
fn sent_words(sent: u64) -> String {
    match sent {
        0 => "no packet was sent".to_owned(),
        1 => "1 packet was sent".to_owned(),
        n => format!("{} were sent", packets(n)),
    }
}
