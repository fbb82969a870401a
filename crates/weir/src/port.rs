//! Ports as sinks: interfaces and devices that send frames, and `null`, which counts them and throws them away.

use crate::capture::check_queue;
use crate::numbers::packets;
use crate::outcome::{io_words, own_path};
use crate::sources::scheme;
use anyhow::{anyhow, bail};
use std::collections::VecDeque;
use std::io;
use std::time::Duration;
use weir_engine::name::Name;
use weir_io::sys::{packet_socket, xdp};
use weir_packet::LinkType;

const AF_PACKET: &str = "af_packet:";
const AF_XDP: &str = "af_xdp:";
const DPDK: &str = "dpdk:";
const INJECT: &str = "inject:";
const NULL: &str = "null";

/// Frames that go out together.
const BATCH: usize = 64;

/// Bytes of a link header: of Ethernet, and behind it of a VLAN tag.
const ETHERNET: usize = 14;
const TAG: usize = 4;

/// A frame as AF_XDP takes it lies in a page at most.
const CHUNKS: [usize; 2] = [2048, 4096];

/// Whether a sink of this name is a port. `null` is one; `./null` is a file.
pub fn is_port(name: &Name) -> bool {
    let text = name.utf8();
    text == NULL || [AF_PACKET, AF_XDP, DPDK].iter().any(|way| text.starts_with(way)) || injected(name).is_some()
}

/// Refuses sinks like `af_paket:eth0`, which would become files, and those like `af_packet:` without an interface, and
/// `af_packet:eth0:1`.
pub fn check_scheme(name: &Name) -> anyhow::Result<()> {
    if interface(name).or(injected(name)) == Some("") {
        bail!("{name} names no interface: weir filter -D lists those there are");
    }
    if scheme(name).is_some() && !is_port(name) {
        bail!("{name}: no such way to send: af_packet, af_xdp, dpdk, inject and null are; ./{name} is a file");
    }
    check_queue(name)
}

/// The interface of `inject:IF`.
pub fn injected(name: &Name) -> Option<&str> {
    name.utf8().strip_prefix(INJECT)
}

/// Whether this is the port that throws away.
pub fn is_null(name: &Name) -> bool {
    name.utf8() == NULL
}

/// Whether a source or sink of this name is a device of DPDK.
pub fn is_dpdk(name: &Name) -> bool {
    name.utf8().starts_with(DPDK)
}

/// The interface that a port sends by.
pub fn interface(name: &Name) -> Option<&str> {
    let name = name.utf8();
    let queue =
        |text: &'static str| name.strip_prefix(text).map(|rest| rest.rsplit_once(':').map_or(rest, |two| two.0));
    name.strip_prefix(AF_PACKET).or_else(|| queue(AF_XDP))
}

/// What became of frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Frames that went out, as far as this machine can tell.
    pub sent: u64,
    /// Bytes of them, without FCS.
    pub bytes: u64,
    /// Frames longer than the interface takes.
    pub too_long: u64,
    /// Frames shorter than a link header.
    pub too_short: u64,
    /// Frames that the interface threw away for want of room.
    pub no_room: u64,
    /// Frames that were shorter than on the wire they came from.
    pub cut: u64,
}

impl Counts {
    /// Frames that did not go out.
    pub fn refused(&self) -> u64 {
        self.too_long + self.too_short + self.no_room
    }
}

/// An open port. **Cost**: a copy of each frame, system calls for each 64.
pub struct Port {
    name: Name,
    /// What it takes; `null` takes all.
    link: Option<LinkType>,
    way: AccessMode,
    bytes: Vec<u8>,
    ends: Vec<usize>,
    too_short: u64,
    cut: u64,
    broken: bool,
}

enum AccessMode {
    Null(Counts),
    AfPacket(packet_socket::Sender),
    AfXdp(Box<Queue>),
    #[cfg(feature = "dpdk")]
    Dpdk(device::Device),
}

impl Port {
    /// Opens the port that `name` names. **Errors**: a line that says what to do.
    pub fn open(name: &Name) -> anyhow::Result<Self> {
        let text = name.utf8();
        let (way, link) = if let Some(interface) = text.strip_prefix(AF_PACKET) {
            let (sender, link) = af_packet(text, interface)?;
            (AccessMode::AfPacket(sender), Some(link))
        } else if let Some(queue) = text.strip_prefix(AF_XDP) {
            (AccessMode::AfXdp(Box::new(Queue::open(text, queue)?)), Some(LinkType::ETHERNET))
        } else if let Some(device) = text.strip_prefix(DPDK) {
            (dpdk(device)?, Some(LinkType::ETHERNET))
        } else if injected(name).is_some() {
            bail!("{name}: packets are injected by weir generate {name}, and sent by {AF_PACKET}IF");
        } else {
            (AccessMode::Null(Counts::default()), None)
        };
        let (bytes, ends) = (Vec::new(), Vec::with_capacity(BATCH));
        Ok(Self { name: name.clone(), link, way, bytes, ends, too_short: 0, cut: 0, broken: false })
    }

    /// Refuses packets of a link type other than the port's.
    pub fn check(&self, link: LinkType) -> Result<(), String> {
        let words = |link: LinkType| link.name().map_or_else(|| link.0.to_string(), str::to_owned);
        match self.link {
            Some(own) if own != link => Err(format!(
                "{}: packets of link type {} cannot be sent here, only those of {}; -w FILE keeps them; {} before that",
                self.name.text(),
                words(link),
                words(own),
                sent_words(self.counts().sent)
            )),
            _ => Ok(()),
        }
    }

    /// Takes a frame; `cut` if it was longer once. It goes out with the others of its batch. **Errors**: a line; nothing is
    /// taken from then on.
    pub fn take(&mut self, frame: &[u8], cut: bool) -> Result<(), String> {
        if self.link == Some(LinkType::ETHERNET) && frame.len() < ETHERNET || frame.is_empty() {
            self.too_short += 1;
            return Ok(());
        }
        self.cut += u64::from(cut);
        if let AccessMode::Null(counts) = &mut self.way {
            counts.sent += 1;
            counts.bytes += frame.len() as u64;
            return Ok(());
        }
        self.bytes.extend_from_slice(frame);
        self.ends.push(self.bytes.len());
        if self.ends.len() == BATCH { self.flush() } else { Ok(()) }
    }

    /// Sends what was taken. **Errors**: as for [`Self::take`].
    pub fn flush(&mut self) -> Result<(), String> {
        if self.ends.is_empty() || self.broken {
            return Ok(());
        }
        let mut frames = [&[][..]; BATCH];
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        for ((frame, start), &end) in frames.iter_mut().zip(starts).zip(&self.ends) {
            *frame = &self.bytes[start..end];
        }
        let frames = &frames[..self.ends.len()];
        let done = match &mut self.way {
            AccessMode::Null(_) => Ok(()),
            AccessMode::AfPacket(sender) => sender.send(frames),
            AccessMode::AfXdp(queue) => queue.send(frames),
            #[cfg(feature = "dpdk")]
            AccessMode::Dpdk(device) => device.send(frames),
        };
        self.bytes.clear();
        self.ends.clear();
        done.map_err(|error| self.broke(&error))
    }

    /// Sends what is left, and waits until it is gone where that can be told. **Errors**: as for [`Self::take`].
    pub fn finish(&mut self) -> Result<(), String> {
        self.flush()?;
        if self.broken {
            return Ok(());
        }
        let done = match &mut self.way {
            AccessMode::AfXdp(queue) => queue.finish(),
            _ => Ok(()),
        };
        done.map_err(|error| self.broke(&error))
    }

    /// What became of the frames so far, without those that wait.
    pub fn counts(&self) -> Counts {
        let counts = match &self.way {
            AccessMode::Null(counts) => *counts,
            AccessMode::AfPacket(sender) => {
                let packet_socket::Sent { frames, bytes, too_long, too_short, .. } = sender.sent();
                Counts { sent: frames, bytes, too_long, too_short, ..Counts::default() }
            }
            AccessMode::AfXdp(queue) => queue.counts(),
            #[cfg(feature = "dpdk")]
            AccessMode::Dpdk(device) => device.counts(),
        };
        Counts { too_short: counts.too_short + self.too_short, cut: self.cut, ..counts }
    }

    /// Whether frames are thrown away here.
    pub fn is_null(&self) -> bool {
        matches!(self.way, AccessMode::Null(_))
    }

    /// Lines about frames that did not go out.
    pub fn refusals(&self) -> Vec<String> {
        let name = self.name.text();
        let counts = self.counts();
        let longest = interface(&self.name).and_then(mtu).map_or(String::new(), |mtu| format!(" (MTU {mtu})"));
        let why = [
            (counts.too_long, format!("longer than the interface takes{longest}")),
            (counts.too_short, "shorter than a link header".to_owned()),
            (counts.no_room, "more than the interface had room for".to_owned()),
        ];
        let line = |(n, why): (u64, String)| (n > 0).then(|| format!("{name}: {} not sent: {why}", packets(n)));
        why.into_iter().filter_map(line).collect()
    }

    /// A line about frames that are not what they were.
    pub fn cut_line(&self) -> Option<String> {
        let were = match self.cut {
            0 => return None,
            _ if self.is_null() => return None,
            1 => "was cut and was sent shorter than it was",
            _ => "were cut and were sent shorter than they were",
        };
        Some(format!("{}: {} {were}", self.name.text(), packets(self.cut)))
    }

    fn broke(&mut self, error: &io::Error) -> String {
        self.broken = true;
        let gone = interface(&self.name).and_then(gone_words);
        let why = gone.unwrap_or_else(|| io_words(error));
        format!("{}: {why}; {} before that", self.name.text(), sent_words(self.counts().sent))
    }
}

/// `1 packet was sent`.
pub fn sent_words(sent: u64) -> String {
    match sent {
        0 => "no packet was sent".to_owned(),
        1 => "1 packet was sent".to_owned(),
        n => format!("{} were sent", packets(n)),
    }
}

/// Why an interface does not work any more. One that is removed goes down first, so it is given a moment.
pub fn gone_words(interface: &str) -> Option<String> {
    for _ in 0..10 {
        if packet_socket::index_of(interface).is_none() {
            return Some("the interface is gone".to_owned());
        }
        if packet_socket::is_up(interface) {
            return None;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Some(format!("the interface went down: sudo ip link set {interface} up"))
}

/// The largest packet of an interface without its link header, as sysfs has it.
fn mtu(interface: &str) -> Option<usize> {
    std::fs::read_to_string(format!("/sys/class/net/{interface}/mtu")).ok()?.trim().parse().ok()
}

/// Refuses an interface that is not there, or down.
pub fn check_interface(name: &str, interface: &str) -> anyhow::Result<()> {
    if packet_socket::index_of(interface).is_none() {
        bail!("{name}: no such network interface: weir filter -D lists those there are");
    }
    if !packet_socket::is_up(interface) {
        bail!("{name}: the interface is down: sudo ip link set {interface} up");
    }
    Ok(())
}

/// The error of who may not send.
pub fn not_permitted(name: &str, what: &str, capabilities: &str) -> anyhow::Error {
    anyhow!("{name}: {what}: sudo setcap {capabilities}=ep {}, or run it as root", own_path())
}

fn af_packet(name: &str, interface: &str) -> anyhow::Result<(packet_socket::Sender, LinkType)> {
    use packet_socket::Error;
    check_interface(name, interface)?;
    let refusal = |error| match error {
        Error::NotPermitted => not_permitted(name, "sending needs CAP_NET_RAW", "cap_net_raw"),
        Error::Hardware(other) => {
            anyhow!("{name}: frames of hardware type {other} are not sent: those of Ethernet and IP tunnels are")
        }
        Error::System { what, error } => anyhow!("{name}: {what}: {}", io_words(&error)),
        error => anyhow!("{name}: {error}"),
    };
    let link = packet_socket::link_of(interface).map_err(refusal)?;
    // By the queueing discipline: what is sent is seen by captures here, and is shaped as all else is.
    Ok((packet_socket::Sender::open(interface, false).map_err(refusal)?, link))
}

/// A queue of AF_XDP that sends.
struct Queue {
    sender: xdp::Sender,
    longest: usize,
    too_long: u64,
    /// Lengths of frames that the kernel was not known to be done with, oldest first.
    under_way: VecDeque<usize>,
    /// Bytes and number of those that it is done with.
    bytes: u64,
    done: u64,
}

impl Queue {
    fn open(name: &str, text: &str) -> anyhow::Result<Self> {
        use xdp::Error;
        let (interface, queue) = text.rsplit_once(':').unwrap_or((text, "0"));
        let queue = queue.parse().map_err(|_| anyhow!("{name}: {queue} is no queue number: {AF_XDP}{interface}:0"))?;
        check_interface(name, interface)?;
        let frame = mtu(interface).map_or(CHUNKS[0], |mtu| mtu + ETHERNET);
        let chunk = if frame + TAG > CHUNKS[0] { CHUNKS[1] } else { CHUNKS[0] };
        let settings = xdp::SendSettings { queue, chunk, ..xdp::SendSettings::default() };
        let sender = xdp::Sender::open(interface, &settings).map_err(|error| match error {
            Error::NotPermitted(_) => not_permitted(name, &error.to_string(), "cap_net_raw"),
            Error::System { what, error } => anyhow!("{name}: {what}: {}", io_words(&error)),
            error => anyhow!("{name}: {error}"),
        })?;
        let under_way = VecDeque::with_capacity(settings.frames as usize + BATCH);
        Ok(Self { sender, longest: frame.min(chunk), too_long: 0, under_way, bytes: 0, done: 0 })
    }

    /// AF_XDP itself does not ask whether a frame is longer than the interface takes: such ones would be lost unseen.
    fn is_too_long(&self, frame: &[u8]) -> bool {
        let tag = if frame[12..14] == [0x81, 0x00] { TAG } else { 0 };
        frame.len() > self.longest + tag
    }

    fn send(&mut self, frames: &[&[u8]]) -> io::Result<()> {
        let done = frames.iter().try_for_each(|frame| {
            if self.is_too_long(frame) {
                self.too_long += 1;
                return Ok(());
            }
            self.under_way.push_back(frame.len());
            self.sender.send(frame)
        });
        let done = done.and_then(|()| self.sender.flush());
        self.book();
        done
    }

    fn finish(&mut self) -> io::Result<()> {
        let done = self.sender.finish();
        self.book();
        done.map(drop)
    }

    /// Frames are completed in their order.
    fn book(&mut self) {
        let done = self.sender.counts().completed;
        let now = (done - self.done) as usize;
        self.bytes += self.under_way.drain(..now.min(self.under_way.len())).map(|len| len as u64).sum::<u64>();
        self.done = done;
    }

    fn counts(&self) -> Counts {
        let sent = self.sender.counts();
        Counts {
            sent: sent.sent(),
            bytes: self.bytes,
            too_long: self.too_long,
            no_room: sent.refused,
            ..Counts::default()
        }
    }
}

#[cfg(not(feature = "dpdk"))]
fn dpdk(name: &str) -> anyhow::Result<AccessMode> {
    bail!("{DPDK}{name}: this weir was built without DPDK: cargo build --release -p weir --features dpdk")
}

#[cfg(feature = "dpdk")]
fn dpdk(name: &str) -> anyhow::Result<AccessMode> {
    Ok(AccessMode::Dpdk(device::Device::open(name)?))
}

#[cfg(feature = "dpdk")]
mod device {
    use super::Counts;
    use std::io;
    use std::time::{Duration, Instant};
    use weir_io::dpdk::{SendError, Sender, sender};

    /// How long a device may have no room before sending fails.
    const PATIENCE: Duration = Duration::from_secs(2);

    /// A device of DPDK's that sends.
    pub struct Device {
        sender: Sender,
        bytes: u64,
        too_long: u64,
    }

    impl Device {
        pub fn open(name: &str) -> anyhow::Result<Self> {
            let sender = sender(name).map_err(|error| anyhow::anyhow!("{error}"))?;
            Ok(Self { sender, bytes: 0, too_long: 0 })
        }

        pub fn send(&mut self, frames: &[&[u8]]) -> io::Result<()> {
            let Err(SendError::TooLong { room, .. }) = self.send_all(frames)? else { return Ok(()) };
            // Nothing was sent of them.
            let fit: Vec<&[u8]> = frames.iter().copied().filter(|frame| frame.len() <= room).collect();
            self.too_long += (frames.len() - fit.len()) as u64;
            self.send_all(&fit)?.map_err(io::Error::other)
        }

        /// Tries until the device has taken all.
        fn send_all(&mut self, mut frames: &[&[u8]]) -> io::Result<Result<(), SendError>> {
            let mut moved = Instant::now();
            while !frames.is_empty() {
                let taken = match self.sender.send(frames) {
                    Ok(taken) => taken,
                    Err(error) => return Ok(Err(error)),
                };
                let (gone, left) = frames.split_at(taken);
                self.bytes += gone.iter().map(|frame| frame.len() as u64).sum::<u64>();
                frames = left;
                if taken > 0 {
                    moved = Instant::now();
                } else if moved.elapsed() > PATIENCE {
                    return Err(io::Error::other("the device takes nothing any more: is its link up?"));
                } else {
                    std::thread::yield_now();
                }
            }
            Ok(Ok(()))
        }

        pub fn counts(&self) -> Counts {
            Counts { sent: self.sender.sent(), bytes: self.bytes, too_long: self.too_long, ..Counts::default() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_told_from_files_by_their_names() {
        for name in ["null", "af_packet:eth0.100", "af_xdp:eth0:3", "dpdk:net_null0", "inject:eth0"] {
            assert!(is_port(&Name::from(name)), "{name}");
        }
        for name in ["./null", "null.pcap", "nullx", "eth0", "-", "a/af_packet:eth0", ""] {
            assert!(!is_port(&Name::from(name)), "{name}");
        }
        let interfaces =
            [("af_packet:a:b", Some("a:b")), ("af_xdp:a", Some("a")), ("af_xdp:a:3", Some("a")), ("null", None)];
        for (name, expected) in interfaces {
            assert_eq!(interface(&Name::from(name)), expected, "{name}");
        }
    }
}
