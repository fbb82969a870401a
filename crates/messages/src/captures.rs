//! Messages about captures from interfaces.

use crate::errors::{io_words, own_path};
use crate::guards::guarded;
use crate::numbers::packets;
use crate::twice::twice_line;
use crate::{Refusal, refusal, refuse};
use std::fmt::Display;
use std::path::Path;
use weir_engine::capture::namespaced::{bare, command_words, is_namespaced};
use weir_engine::capture::rings::TooLarge;
use weir_engine::capture::{AF_PACKET, AF_XDP, CaptureError, DPDK, Live, Notice, is_interface};
use weir_engine::name::{Name, interface_of};
use weir_engine::session::{Capture, Session, Unopened};
use weir_io::live::{Counts, Marks};
use weir_io::sys::namespace;
use weir_io::sys::packet_socket;
use weir_io::sys::xdp;

/// Whether a source names both an existing file and an interface. The file is read then.
pub fn is_file_and_interface(name: &Name) -> bool {
    is_interface(name.utf8()) && Path::new(name).exists()
}

/// Interface or device that a source names; `None` for a file.
pub fn interface(name: &Name) -> Option<&str> {
    Live::of(name).map(Live::interface)
}

/// Adds the prefix `af_packet:` to names that no file has, because the run waits for their
/// interface.
pub fn name_awaited(sources: &mut [Name]) {
    for source in sources.iter_mut().filter(|source| !source.is_dash()) {
        // No interface has a colon in its name. A text before a colon that is not a known prefix is
        // refused later.
        if interface(source).is_none()
            && !source.utf8().contains(':')
            && !Path::new(source).exists()
        {
            *source = Name::from(format!("{AF_PACKET}{}", source.text()));
        }
    }
}

/// Refuses names like `af_packet:eth0:1`.
pub fn check_queue(name: &Name) -> Result<(), Refusal> {
    match name
        .utf8()
        .strip_prefix(AF_PACKET)
        .filter(|rest| !is_namespaced(rest))
        .and_then(|rest| rest.split_once(':'))
    {
        Some((interface, queue)) => refuse!(
            "{name}: AF_PACKET has no queues: {AF_PACKET}{interface} is the whole interface, {AF_XDP}{interface}:{queue} a queue of it"
        ),
        None => Ok(()),
    }
}

/// Message on a notice during the opening of a capture; `true` if the line is a warning.
pub fn notice_line(notice: Notice<'_>) -> Option<(String, bool)> {
    match notice {
        Notice::Waits { name } => {
            Some((format!("{name}: waiting until it is there and up"), false))
        }
        Notice::BlockRaised {
            name,
            asked,
            block,
            largest,
        } => Some((
            format!(
                "{name}: --block {}k is raised to {}k: a frame may have {largest} bytes",
                asked >> 10,
                block >> 10
            ),
            true,
        )),
        _ => None,
    }
}

/// Lines that describe the capture from a source. A source is `bare` if it is an interface name without prefix.
fn lines_on(live: Live<'_>, descriptions: &[String], bare: bool) -> Vec<String> {
    let (name, first) = (
        live.interface(),
        descriptions.first().map_or("", String::as_str),
    );
    let more = |words: &dyn Fn(usize) -> String| {
        if descriptions.len() > 1 {
            words(descriptions.len())
        } else {
            String::new()
        }
    };
    match live {
        Live::AfPacket(_) => {
            let why = if bare {
                " (it takes nothing away from this host)"
            } else {
                ""
            };
            let how = first.replacen("AF_PACKET", &format!("AF_PACKET{why}"), 1);
            vec![format!(
                "{name}: {how}{}",
                more(&|n| format!(", shared out to {n} workers"))
            )]
        }
        Live::AfXdp(..) => {
            let queues = more(&|n| format!(", and {} more queues", n - 1));
            vec![format!(
                "{name}: {first}{queues}; this host does not get what is captured"
            )]
        }
        Live::Dpdk(_) => descriptions
            .iter()
            .map(|how| format!("{name}: {how}"))
            .collect(),
    }
}

/// Lines that describe the open captures of a session, and how they count packets twice.
pub fn about(session: &Session) -> Vec<String> {
    let mut lines = Vec::new();
    let open = session
        .captures()
        .iter()
        .filter(|_| !session.inputs().is_empty());
    let mut names = Vec::new();
    for Capture {
        source,
        descriptions,
    } in open
    {
        let Some(live) = Live::of(source) else {
            continue;
        };
        let bare = source.utf8() == live.interface();
        lines.extend(lines_on(live, descriptions, bare));
        names.push(live.interface());
    }
    lines.extend(twice_line(&names));
    lines
}

/// Message on why a capture cannot begin, with the remedy.
pub fn refusal(
    Unopened {
        name: ref source,
        error,
    }: Unopened,
) -> Refusal {
    let name = interface(source).unwrap_or_default();
    match error {
        CaptureError::NoInterface => refusal!("{source} is not an interface"),
        CaptureError::Memory(error) => Refusal(too_large(&error)),
        CaptureError::Size(size) => refusal!("--ring or --block {size} is too large"),
        CaptureError::Block { block, page } => {
            refusal!("--block {block} is not a power of two of at least {page} bytes")
        }
        CaptureError::Ring {
            ring,
            block,
            largest,
            shares,
        } => {
            let least = (2 * block * shares) >> 10;
            let each = if shares > 1 {
                format!(" for each of {shares} workers")
            } else {
                String::new()
            };
            let why = largest.map_or(String::new(), |largest| {
                format!(" (a frame of {name} may have {largest} bytes)")
            });
            refusal!(
                "--ring {}k is too small for two blocks of {}k{why}{each}: use --ring {least}k or more",
                ring >> 10,
                block >> 10
            )
        }
        CaptureError::ReceivesOnly => {
            refusal!(
                "{AF_XDP}{name} sees what the interface receives, and nothing that it sends: use {AF_PACKET}{name}"
            )
        }
        CaptureError::Queue(_) => refusal!("{source}: {error}"),
        CaptureError::WithoutDpdk => {
            refusal!("{DPDK}{name}: {error}: cargo build --release -p weir --features dpdk")
        }
        CaptureError::Guarded(error) => guarded(source, &error),
        CaptureError::PacketSocket(error) => refused_by_packet_socket(name, error),
        CaptureError::Xdp(error) => refused_by_xdp(name, error),
        CaptureError::Namespace(error) => refused_namespace(source, error),
        CaptureError::Namespaced | CaptureError::AnyInNamespace => refusal!("{source}: {error}"),
        error => Refusal(error.to_string()),
    }
}

fn refused_namespace(source: &Name, error: namespace::Error) -> Refusal {
    use namespace::{Error, Namespace};
    match error {
        Error::Missing(Namespace::Named(_)) => {
            refusal!("{source}: {error}: ip netns lists those there are")
        }
        Error::NotPermitted(_) => refusal!("{source}: {error}: run weir as root"),
        Error::System { namespace, error } => {
            refusal!("{source}: {namespace}: {}", io_words(&error))
        }
        error => refusal!("{source}: {error}"),
    }
}

fn refused_by_packet_socket(name: &str, error: packet_socket::Error) -> Refusal {
    use packet_socket::Error;
    match error {
        Error::NoInterface => no_interface(name, &error),
        Error::NotPermitted => {
            refusal!(
                "{name}: {error}: sudo setcap cap_net_raw=ep {}, or run it as root",
                own_path()
            )
        }
        Error::Down => is_down(name, &error),
        Error::System { what, error } => refusal!("{name}: {what}: {}", io_words(&error)),
        error => refusal!("{name}: {error}"),
    }
}

fn refused_by_xdp(name: &str, error: xdp::Error) -> Refusal {
    use xdp::Error;
    match error {
        Error::NoInterface => no_interface(name, &error),
        Error::NotPermitted(_) | Error::Bpf(weir_io::sys::bpf::Error::NotPermitted(_)) => refusal!(
            "{name}: {error}: sudo setcap cap_net_raw,cap_net_admin,cap_bpf=ep {}, or run it as root",
            own_path()
        ),
        Error::Down => is_down(name, &error),
        Error::Locked(_) => {
            refusal!("{name}: {error}, or use a smaller one (--ring 4M), or grant cap_ipc_lock too")
        }
        Error::System { what, error } => refusal!("{name}: {what}: {}", io_words(&error)),
        error => refusal!("{name}: {error}"),
    }
}

/// Message on rings that take too much memory, with a size that would fit.
fn too_large(error: &TooLarge) -> String {
    let TooLarge {
        ring,
        several,
        wanted,
        free,
        grouped,
        most,
    } = *error;
    let rings = if several {
        "the rings together take"
    } else {
        "a ring takes"
    };
    let place = if grouped {
        " to this control group"
    } else {
        ""
    };
    format!(
        "--ring {}: {rings} {}, and at most half of the {} that are free{place}: --ring {} would do, --ring-force takes \
         more",
        size(ring),
        size(wanted),
        size(free),
        size(most)
    )
}

/// `1 packet was`, `7 packets were`.
fn was(count: u64) -> String {
    let verb = if count == 1 { "was" } else { "were" };
    format!("{} {verb}", packets(count))
}

/// Size in the notation of command-line options, rounded down.
fn size(bytes: u64) -> String {
    match bytes {
        _ if bytes >= 1 << 30 && bytes.is_multiple_of(1 << 30) => format!("{}G", bytes >> 30),
        _ if bytes >= 1 << 20 => format!("{}M", bytes >> 20),
        _ => format!("{}k", bytes >> 10),
    }
}

/// The end of a message about an interface that may come, for commands with `--wait`.
pub const WAITS: &str = "; --wait waits for it";

fn no_interface(name: &str, error: &impl Display) -> Refusal {
    let list = match command_words(name) {
        inside if inside.is_empty() => "weir filter -D".to_owned(),
        inside => format!("sudo {inside}ip link"),
    };
    refusal!("{name}: {error}: {list} lists those there are{WAITS}")
}

fn is_down(name: &str, error: &impl Display) -> Refusal {
    let (inside, bare) = (command_words(name), bare(name));
    refusal!("{name}: {error}: sudo {inside}ip link set {bare} up{WAITS}")
}

/// Observations about a capture in addition to its packets (link down, merged or cut packets,
/// checksums), a line each.
pub fn marks_lines(name: &str, marks: &Marks) -> Vec<String> {
    let Marks {
        downs,
        unfinished_checksums,
        large,
        cut,
    } = *marks;
    let mut lines = Vec::new();
    // `any` is not a device.
    let device = if name == packet_socket::ANY {
        "IF"
    } else {
        bare(interface_of(name))
    };
    let inside = command_words(interface_of(name));
    if downs > 0 {
        let times = if downs == 1 {
            "once".to_owned()
        } else {
            format!("{downs} times")
        };
        lines.push(format!(
            "{name}: it was down {times} meanwhile: what was sent then is not here"
        ));
    }
    if large > 0 {
        lines.push(format!(
            "{name}: {large} packets are larger than the medium takes, merged or not cut yet: \
             sudo {inside}ethtool -K {device} gro off lro off tso off gso off shows them as they are sent"
        ));
    }
    if cut > 0 {
        lines.push(format!(
            "{name}: {} cut, because blocks of the ring are smaller: a larger --block keeps them whole",
            was(cut)
        ));
    }
    if unfinished_checksums > 0 {
        lines.push(format!(
            "{name}: {} captured before the card filled in the checksum (normal for packets sent locally); to avoid it: \
             sudo {inside}ethtool -K {device} tx off, on the sender",
            was(unfinished_checksums)
        ));
    }
    lines
}

/// Line of counters that SIGUSR1 requests.
pub fn standing_line(name: &str, counts: &Counts) -> String {
    let Counts {
        received,
        filtered,
        dropped,
        handed_over,
    } = *counts;
    let filtered = filtered.map_or("an uncounted number".to_owned(), |filtered| {
        filtered.to_string()
    });
    format!(
        "{name}: {received} received, {handed_over} delivered, {filtered} filtered before, {dropped} dropped"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_that_are_too_large_are_told_with_what_would_do() {
        let one = TooLarge {
            ring: 501 << 20,
            several: false,
            wanted: 501 << 20,
            free: 1000 << 20,
            grouped: false,
            most: 500 << 20,
        };
        assert_eq!(
            too_large(&one),
            "--ring 501M: a ring takes 501M, and at most half of the 1000M that are free: --ring 500M would do, --ring-force takes more"
        );
        let more = TooLarge {
            ring: 100 << 30,
            several: true,
            wanted: 300 << 30,
            grouped: true,
            most: 0,
            ..one
        };
        assert_eq!(
            too_large(&more),
            "--ring 100G: the rings together take 300G, and at most half of the 1000M that are free to this control group: --ring 0k would do, --ring-force takes more"
        );
    }

    #[test]
    fn advice_on_offloads_names_a_device() {
        let marks = Marks {
            large: 3,
            unfinished_checksums: 2,
            ..Marks::default()
        };
        for (name, device) in [("eth0", "eth0"), ("eth0, queue 1", "eth0"), ("any", "IF")] {
            let lines = marks_lines(name, &marks);
            assert_eq!(lines.len(), 2);
            for line in lines {
                assert!(line.starts_with(&format!("{name}: ")), "{line}");
                assert!(
                    line.contains(&format!("sudo ethtool -K {device} ")),
                    "{line}"
                );
            }
        }
    }
}
