//! Interfaces as sources: which backend captures from them, how, and what is said of it.

pub mod rings;

use crate::cli::{DirectionArg, FanoutArg, LiveArgs, StampsArg, XdpModeArg, ZeroCopyArg};
use crate::outcome::{io_words, own_path, say, say_plain};
use anyhow::{anyhow, bail};
use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use weir_engine::control::kernel_program;
use weir_engine::name::{Name, interface_of, queue_name};
use weir_io::Input;
use weir_io::live::{Backend, Counts, Marks};
use weir_io::sys::packet_socket::{self, Direction, Fanout, Insn, Ring, Settings, Stamps};
use weir_io::sys::privilege::{self, Capability};
use weir_io::sys::xdp;
use weir_pipeline::PlanError;

/// Before the name of an interface: the way it is captured from.
pub const AF_PACKET: &str = "af_packet:";
const AF_XDP: &str = "af_xdp:";
const DPDK: &str = "dpdk:";

/// A live source and how it is captured from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Named<'a> {
    /// `af_packet:eth0`, or `eth0` where there is no such file.
    AfPacket(&'a str),
    /// `af_xdp:eth0`, all its queues, or `af_xdp:eth0:1`, one.
    AfXdp(&'a str),
    /// `dpdk:DEVICE`.
    Dpdk(&'a str),
}

impl<'a> Named<'a> {
    fn of(name: &'a str) -> Option<Self> {
        if let Some((way, rest)) = name.split_once(':') {
            match way {
                "af_packet" => return Some(Self::AfPacket(rest)),
                "af_xdp" => return Some(Self::AfXdp(rest)),
                "dpdk" => return Some(Self::Dpdk(rest)),
                _ => {}
            }
        }
        (is_interface(name) && !Path::new(name).exists()).then_some(Self::AfPacket(name))
    }
}

/// Whether a capture of this name can begin, if it is not meant for a file.
pub fn is_interface(name: &str) -> bool {
    name == packet_socket::ANY || packet_socket::index_of(name).is_some()
}

/// Whether a source is a file by the rule that files come first, and could be meant for an interface.
pub fn is_file_and_interface(name: &Name) -> bool {
    is_interface(name.utf8()) && Path::new(name).exists()
}

/// With `--wait` a name that is nothing yet is an interface that will be.
pub fn name_awaited(sources: &mut [Name], live: &LiveArgs) {
    for source in sources.iter_mut().filter(|source| live.wait && !source.is_dash()) {
        // No interface has a colon in its name: what stands before one is no way to capture, and is refused.
        if interface(source).is_none() && !source.utf8().contains(':') && !Path::new(source).exists() {
            *source = Name::from(format!("{AF_PACKET}{}", source.text()));
        }
    }
}

/// The interface or device that a source names, if it is no file.
pub fn interface(name: &Name) -> Option<&str> {
    Some(match Named::of(name.utf8())? {
        Named::AfPacket(interface) | Named::Dpdk(interface) => interface,
        Named::AfXdp(interface) => queue_of(interface).0,
    })
}

/// Refuses names like `af_packet:eth0:1`.
pub fn check_queue(name: &Name) -> anyhow::Result<()> {
    match name.utf8().strip_prefix(AF_PACKET).and_then(|rest| rest.split_once(':')) {
        Some((interface, queue)) => bail!(
            "{name}: AF_PACKET has no queues: {AF_PACKET}{interface} is the whole interface, {AF_XDP}{interface}:{queue} a queue of it"
        ),
        None => Ok(()),
    }
}

/// `eth0:1`: interface and queue.
fn queue_of(text: &str) -> (&str, Option<&str>) {
    text.rsplit_once(':').map_or((text, None), |(interface, queue)| (interface, Some(queue)))
}

/// What a command wants of a capture.
#[derive(Clone, Copy, Debug)]
pub struct CaptureRequest<'a> {
    pub live: &'a LiveArgs,
    /// The expression that packets must match, or empty.
    pub expression: &'a str,
    /// Another one will take its place.
    pub replaces_filter: bool,
    pub resolve: bool,
    /// Bytes of a packet that are needed.
    pub snaplen: u32,
    /// Among how many the packets of an interface are shared out.
    pub shares: usize,
}

/// Begins to capture from the interface that `source` names, and adds a line on how to `about`: as many inputs as shares are
/// wished for, or as the interface has queues. With `--wait`, waits until there is such an interface and it is up;
/// none if `stop` was set meanwhile. That there is memory for all of them is [checked](rings::check) before.
pub fn open(
    source: &Name,
    wish: &CaptureRequest<'_>,
    stop: &Arc<AtomicBool>,
    about: &mut Vec<String>,
) -> anyhow::Result<Vec<Input>> {
    match open_backends(source, wish, stop, about) {
        Err(error) if matches!(error.downcast_ref(), Some(PlanError::Stopped)) => Ok(Vec::new()),
        opened => opened,
    }
}

fn open_backends(
    source: &Name,
    wish: &CaptureRequest<'_>,
    stop: &Arc<AtomicBool>,
    about: &mut Vec<String>,
) -> anyhow::Result<Vec<Input>> {
    let (Some(named), Some(name)) = (Named::of(source.utf8()), interface(source)) else {
        bail!("{source} is no interface")
    };
    if stop.load(Ordering::Relaxed) {
        return Ok(Vec::new());
    }
    if wish.live.wait && !matches!(named, Named::Dpdk(_)) {
        if !wait_for(name, stop) {
            return Ok(Vec::new());
        }
        // How many queues it has is known only now.
        rings::check(std::slice::from_ref(source), wish.live)?;
    }
    let backends = match named {
        Named::AfPacket(_) => af_packet(name, wish, source.utf8() == name, stop, about)?,
        Named::AfXdp(text) => af_xdp(text, wish, stop, about)?,
        Named::Dpdk(device) => dpdk(device, wish, about)?,
    };
    let many = backends.len() > 1;
    let input = |(i, backend)| match many && !matches!(named, Named::AfPacket(_)) {
        true => Input::live(&queue_name(name, i), backend, stop),
        false => Input::live(name, backend, stop),
    };
    Ok(backends.into_iter().enumerate().map(input).collect())
}

/// An interface without a word about the way is `bare`.
fn af_packet(
    name: &str,
    wish: &CaptureRequest<'_>,
    bare: bool,
    stop: &AtomicBool,
    about: &mut Vec<String>,
) -> anyhow::Result<Vec<Box<dyn Backend>>> {
    let settings = settings(name, wish, stop)?;
    let rings = if wish.shares == 1 {
        Ring::open(name, &settings).map(|ring| vec![ring])
    } else {
        Ring::open_fanout(name, &settings, wish.shares, &fanout(wish.live), stop)
    };
    if let Err(packet_socket::Error::Stopped) = rings {
        return Ok(Vec::new());
    }
    let rings = rings.map_err(|error| refusal(name, error))?;
    let shared = match rings.len() {
        1 => String::new(),
        n => format!(", shared out to {n} workers"),
    };
    let why = if bare { " (it takes nothing away from this host)" } else { "" };
    let how = rings[0].describe();
    about.push(format!("{name}: {}{shared}", how.replacen("AF_PACKET", &format!("AF_PACKET{why}"), 1)));
    Ok(rings.into_iter().map(|ring| Box::new(ring) as Box<dyn Backend>).collect())
}

fn af_xdp(
    text: &str,
    wish: &CaptureRequest<'_>,
    stop: &AtomicBool,
    about: &mut Vec<String>,
) -> anyhow::Result<Vec<Box<dyn Backend>>> {
    use xdp::Error;
    let (name, queue) = queue_of(text);
    let live = wish.live;
    if live.direction != DirectionArg::Inout && live.direction != DirectionArg::In {
        bail!("{AF_XDP}{name} sees what the interface receives, and nothing that it sends: use {AF_PACKET}{name}");
    }
    let queue =
        queue.map(|queue| queue.parse::<u32>().map_err(|_| anyhow!("{AF_XDP}{text}: {queue} is no queue number")));
    let queue = queue.transpose()?;
    let memory = usize::try_from(live.ring).map_err(|_| anyhow!("--ring {} is too large", live.ring))?;
    let settings = xdp::Settings {
        mode: match live.xdp_mode {
            XdpModeArg::Auto => None,
            XdpModeArg::Native => Some(xdp::Mode::Native),
            XdpModeArg::Generic => Some(xdp::Mode::Generic),
        },
        zero_copy: match live.zero_copy {
            ZeroCopyArg::Auto => xdp::ZeroCopy::Auto,
            ZeroCopyArg::Never => xdp::ZeroCopy::Never,
            ZeroCopyArg::Force => xdp::ZeroCopy::Force,
        },
        pages: live.ring_pages,
        busy_poll: live.busy_poll.then_some(xdp::BusyPoll { time: Duration::from_micros(20), packets: 64 }),
        promiscuous: !live.no_promiscuous,
        ..xdp::Settings::of_size(memory)
    };
    let sockets = match queue {
        Some(queue) => xdp::open(name, queue, &settings).map(|socket| vec![socket]),
        None => xdp::open_all(name, &settings, stop),
    };
    if let Err(Error::Stopped) = sockets {
        return Ok(Vec::new());
    }
    let sockets = sockets.map_err(|error| match error {
        Error::NoInterface => no_interface(name, &error),
        Error::NotPermitted(_) | Error::Bpf(weir_io::sys::bpf::Error::NotPermitted(_)) => anyhow!(
            "{name}: {error}: sudo setcap cap_net_raw,cap_net_admin,cap_bpf=ep {}, or run it as root",
            own_path()
        ),
        Error::Down => is_down(name, &error),
        Error::Locked(_) => anyhow!("{name}: {error}, or use a smaller one (--ring 4M), or grant cap_ipc_lock too"),
        Error::System { what, error } => anyhow!("{name}: {what}: {}", io_words(&error)),
        error => anyhow!("{name}: {error}"),
    })?;
    let queues = match sockets.len() {
        1 => String::new(),
        n => format!(", and {} more queues", n - 1),
    };
    about.push(format!("{name}: {}{queues}; this host does not get what is captured", sockets[0].describe()));
    Ok(sockets.into_iter().map(|socket| Box::new(socket) as Box<dyn Backend>).collect())
}

#[cfg(feature = "dpdk")]
fn dpdk(device: &str, wish: &CaptureRequest<'_>, about: &mut Vec<String>) -> anyhow::Result<Vec<Box<dyn Backend>>> {
    /// Bytes of a packet's place, about.
    const PLACE: u64 = 2304;
    let queues = u16::try_from(wish.shares).unwrap_or(u16::MAX);
    let settings = weir_io::dpdk::Settings {
        queues,
        packets: u32::try_from(wish.live.ring / PLACE / u64::from(queues)).unwrap_or(u32::MAX),
        promiscuous: !wish.live.no_promiscuous,
        busy: wish.live.busy_poll,
    };
    let captures = weir_io::dpdk::open(device, &settings).map_err(|error| anyhow!("{error}"))?;
    about.extend(captures.iter().map(|capture| format!("{device}: {}", capture.describe())));
    Ok(captures.into_iter().map(|capture| Box::new(capture) as Box<dyn Backend>).collect())
}

#[cfg(not(feature = "dpdk"))]
fn dpdk(device: &str, _: &CaptureRequest<'_>, _: &mut Vec<String>) -> anyhow::Result<Vec<Box<dyn Backend>>> {
    bail!("{DPDK}{device}: this weir was built without DPDK: cargo build --release -p weir --features dpdk")
}

/// Waits until an interface is there and up; `false` if `stop` was set first.
fn wait_for(name: &str, stop: &AtomicBool) -> bool {
    const TURN: Duration = Duration::from_millis(50);
    let mut told = false;
    while name != packet_socket::ANY && !packet_socket::is_up(name) {
        if stop.load(Ordering::Relaxed) {
            return false;
        }
        if !told {
            say_plain(&format!("{name}: waiting until it is there and up"));
            told = true;
        }
        std::thread::sleep(TURN);
    }
    true
}

fn settings(name: &str, wish: &CaptureRequest<'_>, stop: &AtomicBool) -> anyhow::Result<Settings> {
    let live = wish.live;
    let bytes = |size: u64, flag: &str| usize::try_from(size).map_err(|_| anyhow!("{flag} {size} is too large"));
    let size = bytes(live.ring, "--ring")? / wish.shares;
    let ring = match live.block {
        None => Settings::of_size(size),
        Some(block) => {
            let (block, page) = (bytes(block, "--block")?, 4096);
            if !block.is_power_of_two() || block < page {
                bail!("--block {block} is not a power of two of at least {page} bytes");
            }
            Settings::of_blocks(size, block)
        }
    };
    let ring = Settings { snaplen: wish.snaplen, ..ring };
    let asked = ring.block;
    let largest = packet_socket::largest_frame(name);
    let block = asked.max(ring.least_block(largest));
    let ring = Settings { block, blocks: (size / block).max(2), ..ring };
    if size < 2 * block {
        let least = (2 * block * wish.shares) >> 10;
        let each = if wish.shares > 1 { format!(" for each of {} workers", wish.shares) } else { String::new() };
        let why = if block > asked { format!(" (a frame of {name} may have {largest} bytes)") } else { String::new() };
        bail!(
            "--ring {}k is too small for two blocks of {}k{why}{each}: use --ring {least}k or more",
            live.ring >> 10,
            block >> 10
        );
    }
    if live.block.is_some() && block > asked {
        say(&format!(
            "{name}: --block {}k is raised to {}k: a frame may have {largest} bytes",
            asked >> 10,
            block >> 10
        ));
    }
    Ok(Settings {
        promiscuous: !live.no_promiscuous,
        direction: match live.direction {
            DirectionArg::In => Direction::In,
            DirectionArg::Out => Direction::Out,
            DirectionArg::Inout => Direction::Both,
        },
        filter: program(name, wish, stop)?,
        replaces_filter: wish.replaces_filter,
        stamps: match live.time_stamps {
            StampsArg::Software => Stamps::Software,
            StampsArg::Hardware => Stamps::Hardware,
        },
        ..ring
    })
}

/// The expression as a program for the kernel. **Errors**: it cannot be compiled, or not before `stop` was set.
fn program(name: &str, wish: &CaptureRequest<'_>, stop: &AtomicBool) -> anyhow::Result<Option<Vec<Insn>>> {
    if wish.expression.trim().is_empty() && !wish.replaces_filter || wish.live.no_kernel_filter {
        return Ok(None);
    }
    let link = packet_socket::link_of(name).map_err(|error| refusal(name, error))?;
    Ok(Some(kernel_program(wish.expression, link, wish.resolve, stop)?))
}

fn fanout(live: &LiveArgs) -> Fanout {
    match live.fanout {
        FanoutArg::Hash => Fanout::Hash,
        FanoutArg::Cpu => Fanout::Cpu,
        FanoutArg::Queue => Fanout::Queue,
    }
}

fn refusal(name: &str, error: packet_socket::Error) -> anyhow::Error {
    use packet_socket::Error;
    match error {
        Error::NoInterface => no_interface(name, &error),
        Error::NotPermitted => {
            anyhow!("{name}: {error}: sudo setcap cap_net_raw=ep {}, or run it as root", own_path())
        }
        Error::Down => is_down(name, &error),
        Error::System { what, error } => anyhow!("{name}: {what}: {}", io_words(&error)),
        error => anyhow!("{name}: {error}"),
    }
}

fn no_interface(name: &str, error: &impl Display) -> anyhow::Error {
    anyhow!("{name}: {error}: weir filter -D lists those there are; --wait waits for it")
}

fn is_down(name: &str, error: &impl Display) -> anyhow::Error {
    anyhow!("{name}: {error}: sudo ip link set {name} up; --wait waits for it")
}

/// Once all interfaces are open: gives up all rights but those `kept`.
pub fn give_up_privileges(kept: &[Capability]) {
    if let Err(error) = privilege::give_up(kept) {
        say(&format!("capabilities cannot be given up: {}", io_words(&error)));
    }
}

/// What is worth knowing of a capture beside its packets, a line each.
pub fn marks_lines(name: &str, marks: &Marks) -> Vec<String> {
    let Marks { downs, unfinished_checksums, large, cut } = *marks;
    let mut lines = Vec::new();
    // `any` is no device.
    let device = if name == packet_socket::ANY { "IF" } else { interface_of(name) };
    if downs > 0 {
        let times = if downs == 1 { "once".to_owned() } else { format!("{downs} times") };
        lines.push(format!("{name}: it was down {times} meanwhile: what was sent then is not here"));
    }
    if large > 0 {
        lines.push(format!(
            "{name}: {large} packets are larger than the medium takes, merged or not cut yet: \
             sudo ethtool -K {device} gro off lro off tso off gso off shows them as they are sent"
        ));
    }
    if cut > 0 {
        lines.push(format!(
            "{name}: {cut} packets were cut by the ring, whose blocks are smaller than they: a larger --block keeps them whole"
        ));
    }
    if unfinished_checksums > 0 {
        lines.push(format!(
            "{name}: {unfinished_checksums} packets came before their checksum was filled in: sudo ethtool -K {device} tx off, \
             at the end that sends them, has it filled in at once"
        ));
    }
    lines
}

/// The line that SIGUSR1 asks for.
pub fn standing_line(name: &str, counts: &Counts) -> String {
    let Counts { received, filtered, dropped, handed_over } = *counts;
    let filtered = filtered.map_or("an uncounted number".to_owned(), |filtered| filtered.to_string());
    format!("{name}: {received} received, {handed_over} delivered, {filtered} filtered before, {dropped} dropped")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_on_offloads_names_a_device() {
        let marks = Marks { large: 3, unfinished_checksums: 2, ..Marks::default() };
        for (name, device) in [("eth0", "eth0"), ("eth0, queue 1", "eth0"), ("any", "IF")] {
            let lines = marks_lines(name, &marks);
            assert_eq!(lines.len(), 2);
            for line in lines {
                assert!(line.starts_with(&format!("{name}: ")), "{line}");
                assert!(line.contains(&format!("sudo ethtool -K {device} ")), "{line}");
            }
        }
    }
}
