//! Ports as sinks: interfaces and devices that send frames, and `null`, which counts frames and discards them.

pub mod counters;
mod digest;
mod injection;
pub(crate) mod offload;
mod queue;
mod sink;

use crate::capture::{AF_PACKET, AF_XDP, DPDK};
use crate::guard::{self, Act, Guarded};
use crate::name::Name;
use crate::sink::{Loss, Lost, Note};
pub use digest::Digest;
pub(crate) use digest::hash;
use hdrhistogram::Histogram;
use injection::Injection;
pub use injection::{Injecting, injection_mode};
use queue::Queue;
pub(crate) use sink::failed;
pub use sink::{Finisher, PortSink};
use std::io;
use std::time::Duration;
use weir_io::network::Network;
use weir_io::sys::{device, inject, packet_socket, xdp};
use weir_packet::LinkType;

const INJECT: &str = "inject:";
const NULL: &str = "null";

/// Number of frames sent together.
const BATCH: usize = 256;

/// Length of an Ethernet header, bytes; `TAG` is the length of a VLAN tag after it.
const ETHERNET: usize = 14;
const TAG: usize = 4;

/// Whether a sink of this name is a port. `null` is a port; `./null` is a file.
pub fn is_port(name: &Name) -> bool {
    let text = name.utf8();
    text == NULL
        || [AF_PACKET, AF_XDP, DPDK]
            .iter()
            .any(|scheme| text.starts_with(scheme))
        || injected(name).is_some()
}

/// Returns the interface of a name `inject:IF`.
pub fn injected(name: &Name) -> Option<&str> {
    name.utf8().strip_prefix(INJECT)
}

/// Whether this is the name of the port that discards frames.
pub fn is_null(name: &Name) -> bool {
    name.utf8() == NULL
}

/// Whether a source or sink of this name is a device of DPDK.
pub fn is_dpdk(name: &Name) -> bool {
    name.utf8().starts_with(DPDK)
}

/// Returns the interface through which a port sends.
pub fn interface(name: &Name) -> Option<&str> {
    let name = name.utf8();
    let queue = |text: &'static str| {
        name.strip_prefix(text)
            .map(|rest| rest.rsplit_once(':').map_or(rest, |two| two.0))
    };
    name.strip_prefix(AF_PACKET).or_else(|| queue(AF_XDP))
}

/// Counts of frames by their fate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Frames sent, as far as this machine knows.
    pub sent: u64,
    /// Bytes of the sent frames, without FCS.
    pub bytes: u64,
    /// Frames longer than the interface's limit.
    pub too_long: u64,
    /// Frames shorter than a link header.
    pub too_short: u64,
    /// Frames that the interface dropped for lack of room.
    pub no_room: u64,
    /// Frames for the interface while it was down: see [`Port::outlasting_down`].
    pub down: u64,
    /// Frames that were taken, and were not sent because the port failed.
    pub failed: u64,
    /// Frames whose captured length was below their wire length.
    pub cut: u64,
}

impl Counts {
    /// Returns the number of frames that were not sent.
    pub fn refused(&self) -> u64 {
        self.too_long + self.too_short + self.no_room + self.down + self.failed
    }
}

/// Reason for which a port cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PortError {
    /// There is no such interface.
    #[error("no such network interface")]
    NoInterface,
    /// The interface is down.
    #[error("the interface is down")]
    Down,
    /// The text is not a queue number.
    #[error("{0} is not a queue number")]
    Queue(String),
    /// The name begins with `inject:`, and the port is not opened by [`Port::injecting`].
    #[error("packets are injected by who generates them, and not sent here")]
    Injects,
    /// An XDP program is attached to the interface, and injected packets would pass it by.
    #[error("an XDP program is attached, and injected packets would pass it by")]
    HasXdp,
    /// The kernel does not inject packets.
    #[error(transparent)]
    Inject(#[from] inject::Error),
    /// weir was built without DPDK.
    #[error("this weir was built without DPDK")]
    WithoutDpdk,
    /// DPDK reported an error.
    #[error("{0}")]
    Dpdk(String),
    /// The interface is guarded.
    #[error(transparent)]
    Guarded(#[from] Guarded),
    /// AF_PACKET reported an error.
    #[error(transparent)]
    PacketSocket(#[from] packet_socket::Error),
    /// AF_XDP reported an error.
    #[error(transparent)]
    Xdp(#[from] xdp::Error),
}

/// Failure of a port: no more frames are taken.
#[derive(Debug, thiserror::Error)]
#[error("{}: {cause}; {sent} packets were sent before that", .name.text())]
pub struct PortFault {
    /// Name of the port.
    pub name: Name,
    /// Cause of the failure.
    pub cause: Cause,
    /// Number of packets sent before.
    pub sent: u64,
}

/// Cause for which a port takes no more frames.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Cause {
    /// The packets have another link type than the port.
    #[error("packets of link type {} cannot be sent here, only those of {}", .packets.0, .port.0)]
    LinkType {
        /// Link type of the packets.
        packets: LinkType,
        /// Link type of the port.
        port: LinkType,
    },
    /// The interface was removed.
    #[error("the interface is gone")]
    Gone,
    /// The interface went down.
    #[error("the interface went down")]
    Down {
        /// Name of the interface.
        interface: String,
    },
    /// The interface took no frame for some seconds.
    #[error("the interface took no frame for some seconds")]
    Full {
        /// Length of the longest frame that waited, bytes.
        longest: usize,
    },
    /// The system or the device reported an error.
    #[error(transparent)]
    Io(io::Error),
}

/// An open port. **Cost**: system calls for each 64 frames, and a copy of each frame that is [taken](Port::take).
pub struct Port {
    name: Name,
    /// Link type of the port; `None` for `null`, which takes all.
    link: Option<LinkType>,
    /// MTU of the interface at the opening, if there is one.
    mtu: Option<usize>,
    /// Drops of the interface, if it is one.
    dropped: Option<counters::Dropped>,
    transmitter: Transmitter,
    bytes: Vec<u8>,
    ends: Vec<usize>,
    too_short: u64,
    cut: u64,
    /// Frames taken since the port failed.
    behind_failure: u64,
    broken: bool,
    /// Digest of all frames, if wanted.
    digest: Option<Digest>,
}

enum Transmitter {
    Null(Counts),
    AfPacket(packet_socket::Sender),
    AfXdp(Box<Queue>),
    Inject(Box<Injection>),
    #[cfg(feature = "dpdk")]
    Dpdk(dpdk_device::Device),
}

impl Port {
    /// Opens the port with this name. A [guarded](guard) interface must be among `yes_send`.
    pub fn open(name: &Name, yes_send: &[String]) -> Result<Self, PortError> {
        let text = name.utf8();
        check_guard(name, yes_send)?;
        let (transmitter, link) = if let Some(interface) = text.strip_prefix(AF_PACKET) {
            let (sender, link) = af_packet(interface)?;
            (Transmitter::AfPacket(sender), Some(link))
        } else if let Some(queue) = text.strip_prefix(AF_XDP) {
            (
                Transmitter::AfXdp(Box::new(Queue::open(queue)?)),
                Some(LinkType::ETHERNET),
            )
        } else if let Some(device) = text.strip_prefix(DPDK) {
            (dpdk(device)?, Some(LinkType::ETHERNET))
        } else if injected(name).is_some() {
            return Err(PortError::Injects);
        } else {
            (Transmitter::Null(Counts::default()), None)
        };
        Ok(Self::of(name, transmitter, link))
    }

    /// Opens `inject:IF`: the kernel handles frames as if the interface had received them. On an interface with an address they are
    /// counted and dropped, unless they go [`to_stack`](Injecting::to_stack). A [guarded](guard) interface must be among `yes_send`.
    pub fn injecting(name: &Name, yes_send: &[String], way: Injecting) -> Result<Self, PortError> {
        check_guard(name, yes_send)?;
        let interface = injected(name).ok_or(PortError::NoInterface)?;
        let injection = Injection::open(interface, way)?;
        let transmitter = Transmitter::Inject(Box::new(injection));
        Ok(Self::of(name, transmitter, Some(LinkType::ETHERNET)))
    }

    fn of(name: &Name, transmitter: Transmitter, link: Option<LinkType>) -> Self {
        let (bytes, ends) = (Vec::new(), Vec::with_capacity(BATCH));
        Self {
            name: name.clone(),
            link,
            mtu: interface(name).and_then(mtu),
            dropped: interface(name).and_then(counters::Dropped::begin),
            transmitter,
            bytes,
            ends,
            too_short: 0,
            cut: 0,
            behind_failure: 0,
            broken: false,
            digest: None,
        }
    }

    /// The same port, with a digest of all frames that it takes.
    pub fn digesting(self) -> Self {
        Self {
            digest: Some(Digest::default()),
            ..self
        }
    }

    /// Digest of all frames that the port took, if it makes one.
    pub fn digest(&self) -> Option<Digest> {
        self.digest
    }

    /// Times from when packets were due until they left, ns, if the port knows them, up to the last [`Self::finish`].
    pub fn lateness(&self) -> Option<&Histogram<u64>> {
        match &self.transmitter {
            Transmitter::Inject(injection) => Some(injection.lateness()),
            _ => None,
        }
    }

    /// Time before a packet is due at which the port wants it: it knows the times of packets itself.
    pub fn lead(&self) -> Duration {
        match self.transmitter {
            Transmitter::Inject(_) => injection::LEAD,
            _ => Duration::ZERO,
        }
    }

    /// Whether the port counts and drops injected frames, because the interface has an address.
    pub fn drops_injected(&self) -> bool {
        matches!(&self.transmitter, Transmitter::Inject(injection) if injection.drops())
    }

    /// Takes a frame as [`Self::take`] does. A port with a [lead](Self::lead) sends it at `due_ns`, ns of CLOCK_MONOTONIC.
    pub fn take_at(&mut self, frame: &[u8], cut: bool, due_ns: u64) -> Result<(), PortFault> {
        if !matches!(self.transmitter, Transmitter::Inject(_)) {
            return self.take(frame, cut);
        }
        self.flush()?;
        if !self.is_for_device(frame, cut) || self.broken {
            self.behind_failure += u64::from(self.broken);
            return Ok(());
        }
        let Transmitter::Inject(injection) = &mut self.transmitter else {
            return Ok(());
        };
        injection
            .take(frame, due_ns)
            .map_err(|error| self.broke(error))
    }

    /// Makes the port ready for the first frame, which would otherwise be late: a sender calls it before its clock begins.
    pub fn start(&mut self) -> Result<(), PortFault> {
        match &mut self.transmitter {
            Transmitter::Inject(injection) if !self.broken => {
                injection.start().map_err(|error| self.broke(error))
            }
            _ => Ok(()),
        }
    }

    /// Looks whether the port still works, as far as that costs no system call: a sender that waits calls it from time to time.
    pub fn look(&mut self) -> Result<(), PortFault> {
        match &self.transmitter {
            Transmitter::Inject(injection) if !self.broken => {
                injection.check().map_err(|error| self.broke(error))
            }
            _ => Ok(()),
        }
    }

    /// The same port, which goes on while its interface is down, if it is a port of AF_PACKET:
    /// frames in the meantime are counted and not sent.
    pub fn outlasting_down(self) -> Self {
        let transmitter = match self.transmitter {
            Transmitter::AfPacket(sender) => Transmitter::AfPacket(sender.outlasting_down()),
            other => other,
        };
        Self {
            transmitter,
            ..self
        }
    }

    /// Name of the port.
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// Refuses packets of a link type other than the port's.
    pub fn check(&self, link: LinkType) -> Result<(), PortFault> {
        match self.link {
            Some(port) if port != link => Err(self.fault(Cause::LinkType {
                packets: link,
                port,
            })),
            _ => Ok(()),
        }
    }

    /// Takes a frame, which is sent with the others of its batch; `cut` if its captured length is below its wire length.
    /// **Errors**: the port failed, and takes no more frames.
    #[inline]
    pub fn take(&mut self, frame: &[u8], cut: bool) -> Result<(), PortFault> {
        if let Transmitter::Null(counts) = &mut self.transmitter
            && !frame.is_empty()
        {
            counts.sent += 1;
            counts.bytes += frame.len() as u64;
            self.taken(frame, cut);
            return Ok(());
        }
        self.take_for_device(frame, cut)
    }

    fn take_for_device(&mut self, frame: &[u8], cut: bool) -> Result<(), PortFault> {
        if !self.is_for_device(frame, cut) {
            return Ok(());
        }
        self.bytes.extend_from_slice(frame);
        self.ends.push(self.bytes.len());
        if self.ends.len() == BATCH {
            self.flush()
        } else {
            Ok(())
        }
    }

    /// Returns whether the device sends and counts the frame. If not, counts the frame here.
    fn is_for_device(&mut self, frame: &[u8], cut: bool) -> bool {
        if self.link == Some(LinkType::ETHERNET) && frame.len() < ETHERNET || frame.is_empty() {
            self.too_short += 1;
            return false;
        }
        self.taken(frame, cut);
        true
    }

    /// Notes a frame that the device gets.
    #[inline]
    fn taken(&mut self, frame: &[u8], cut: bool) {
        self.cut += u64::from(cut);
        if let Some(digest) = &mut self.digest {
            digest.add(frame);
        }
    }

    /// Sends the frames taken so far. **Errors**: as for [`Self::take`].
    pub fn flush(&mut self) -> Result<(), PortFault> {
        let (bytes, ends) = (
            std::mem::take(&mut self.bytes),
            std::mem::take(&mut self.ends),
        );
        let done = match ends.len() {
            // Packets with times leave one by one.
            1 => self.send(&[&bytes]),
            count => {
                let mut frames = [&[][..]; BATCH];
                let starts = std::iter::once(0).chain(ends.iter().copied());
                for ((frame, start), &end) in frames.iter_mut().zip(starts).zip(&ends) {
                    *frame = &bytes[start..end];
                }
                self.send(&frames[..count])
            }
        };
        (self.bytes, self.ends) = (bytes, ends);
        self.bytes.clear();
        self.ends.clear();
        done
    }

    /// Sends at most [`BATCH`] frames without a copy. Frames taken before must have been sent.
    fn send(&mut self, frames: &[&[u8]]) -> Result<(), PortFault> {
        if frames.is_empty() || self.broken {
            self.behind_failure += frames.len() as u64;
            return Ok(());
        }
        let done = match &mut self.transmitter {
            Transmitter::Null(counts) => {
                counts.sent += frames.len() as u64;
                counts.bytes += frames.iter().map(|frame| frame.len() as u64).sum::<u64>();
                Ok(())
            }
            Transmitter::AfPacket(sender) => sender.send(frames),
            Transmitter::AfXdp(queue) => queue.send(frames),
            Transmitter::Inject(injection) => injection.send(frames),
            #[cfg(feature = "dpdk")]
            Transmitter::Dpdk(device) => device.send(frames),
        };
        let longest = frames.iter().map(|frame| frame.len()).max();
        done.map_err(|error| match packet_socket::is_full(&error) {
            true => {
                self.broken = true;
                let longest = longest.unwrap_or_default();
                self.fault(Cause::Full { longest })
            }
            false => self.broke(error),
        })
    }

    /// Sends the remaining frames. If the port reports completions, waits for them. **Errors**: as for [`Self::take`].
    pub fn finish(&mut self) -> Result<(), PortFault> {
        self.flush()?;
        if self.broken {
            return Ok(());
        }
        let done = match &mut self.transmitter {
            Transmitter::AfXdp(queue) => queue.finish(),
            Transmitter::Inject(injection) => injection.finish(),
            _ => Ok(()),
        };
        done.map_err(|error| self.broke(error))
    }

    /// Returns the counts of the frames so far, without the frames that wait in the batch.
    pub fn counts(&self) -> Counts {
        let counts = match &self.transmitter {
            Transmitter::Null(counts) => *counts,
            Transmitter::AfPacket(sender) => {
                let packet_socket::Sent {
                    frames,
                    bytes,
                    too_long,
                    too_short,
                    no_room,
                    down,
                    failed,
                    ..
                } = sender.sent();
                Counts {
                    sent: frames,
                    bytes,
                    too_long,
                    too_short,
                    no_room,
                    down,
                    failed,
                    ..Counts::default()
                }
            }
            Transmitter::AfXdp(queue) => queue.counts(),
            Transmitter::Inject(injection) => injection.counts(),
            #[cfg(feature = "dpdk")]
            Transmitter::Dpdk(device) => device.counts(),
        };
        let (too_short, failed) = (
            counts.too_short + self.too_short,
            counts.failed + self.behind_failure,
        );
        Counts {
            too_short,
            failed,
            cut: self.cut,
            ..counts
        }
    }

    /// Whether the port discards all frames.
    pub fn is_null(&self) -> bool {
        matches!(self.transmitter, Transmitter::Null(_))
    }

    /// Returns the numbers of frames that were not sent, by reason.
    pub fn lost(&self) -> Vec<Lost> {
        let counts = self.counts();
        let mtu = match self.transmitter {
            // With the header of Ethernet, whose length the limit does not have.
            Transmitter::Inject(_) => Some(inject::LONGEST - ETHERNET),
            _ => self.mtu,
        };
        let too_long = || Loss::TooLong(mtu);
        let all = [
            (counts.too_long, &too_long as &dyn Fn() -> Loss),
            (counts.too_short, &|| Loss::TooShort),
            (counts.no_room, &|| Loss::NoRoom),
            (counts.down, &|| Loss::Down),
            (counts.failed, &|| Loss::Failed),
        ];
        all.into_iter()
            .filter(|(packets, _)| *packets > 0)
            .map(|(packets, why)| Lost {
                packets,
                why: why(),
            })
            .collect()
    }

    /// Returns the frames that the interface has dropped since the opening, of all senders: they count as sent. **Cost**: the
    /// kernel prints the counters of its interfaces.
    pub fn dropped(&self) -> u64 {
        Self::dropped_by_all([self])
    }

    /// The same of several ports of one interface.
    pub fn dropped_by_all<'a>(ports: impl IntoIterator<Item = &'a Self>) -> u64 {
        let counts = ports.into_iter().map(Self::drops_and_attempts);
        let (all, own) = counts.fold((0, 0), |(all, own), one| (one.0.max(all), own + one.1));
        all.saturating_sub(own)
    }

    /// Frames that the interface counts as dropped since the opening, and attempts of this port among them.
    fn drops_and_attempts(&self) -> (u64, u64) {
        let all = self.dropped.as_ref().map_or(0, counters::Dropped::since);
        let has_attempts = self.dropped.as_ref().is_some_and(|it| it.has_attempts);
        // A driver also counts the attempts at frames for which it had no room. Frames of AF_XDP go past a queueing discipline.
        let own = match &self.transmitter {
            Transmitter::AfPacket(sender) if has_attempts => sender.sent().waits,
            Transmitter::AfXdp(queue) => queue.sender.counts().refused,
            _ => 0,
        };
        (all, own)
    }

    /// Returns a note on what the interface has dropped, if it has.
    pub(crate) fn note(&self) -> Option<Note> {
        let packets = self.dropped();
        (packets > 0).then(|| Note::Dropped {
            port: self.name.text(),
            packets,
        })
    }

    fn broke(&mut self, error: io::Error) -> PortFault {
        self.broken = true;
        let cause = interface(&self.name)
            .or(injected(&self.name))
            .and_then(what_befell)
            .unwrap_or(Cause::Io(error));
        self.fault(cause)
    }

    fn fault(&self, cause: Cause) -> PortFault {
        PortFault {
            name: self.name.clone(),
            cause,
            sent: self.counts().sent,
        }
    }
}

/// Refuses a port, or an interface of `inject:IF`, that is [guarded](guard) and not among `yes_send`.
pub fn check_guard(name: &Name, yes_send: &[String]) -> Result<(), Guarded> {
    match (
        interface(name).or(injected(name)),
        name.utf8().strip_prefix(DPDK),
    ) {
        (Some(interface), _) => guard::check(Act::Send, interface, yes_send),
        (None, Some(device)) => guard::check_device(Act::Send, device, yes_send),
        (None, None) => Ok(()),
    }
}

/// An interface that sends, as messages name it before the first packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sender {
    /// Name of the interface.
    pub interface: String,
    /// Speed of its link, Mbit/s, if the driver tells one.
    pub speed_mbit: Option<u32>,
    /// Its link-layer address; empty if it has none.
    pub address: Vec<u8>,
}

/// Returns the interface by which a port sends, or into which it injects; `None` for one that is
/// not an interface of the kernel.
pub fn sender(name: &Name) -> Option<Sender> {
    let interface = interface(name).or(injected(name))?.to_owned();
    let network = Network::read().unwrap_or_default();
    let address = network
        .named(&interface)
        .map(|found| found.address.clone())
        .unwrap_or_default();
    Some(Sender {
        speed_mbit: device::speed_mbit(&interface),
        address,
        interface,
    })
}

/// Returns the cause for which an interface no longer works. Waits up to 0.2 s, because an interface under removal goes down first.
pub fn what_befell(interface: &str) -> Option<Cause> {
    for _ in 0..10 {
        if packet_socket::index_of(interface).is_none() {
            return Some(Cause::Gone);
        }
        if packet_socket::is_up(interface) {
            return None;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Some(Cause::Down {
        interface: interface.to_owned(),
    })
}

/// Returns the MTU of an interface: its largest packet without the link header, bytes.
fn mtu(interface: &str) -> Option<usize> {
    packet_socket::mtu(interface).map(|mtu| mtu as usize)
}

/// Refuses an interface that does not exist or is down.
pub fn check_interface(interface: &str) -> Result<(), PortError> {
    match () {
        () if packet_socket::index_of(interface).is_none() => Err(PortError::NoInterface),
        () if !packet_socket::is_up(interface) => Err(PortError::Down),
        () => Ok(()),
    }
}

fn af_packet(interface: &str) -> Result<(packet_socket::Sender, LinkType), PortError> {
    check_interface(interface)?;
    let link = packet_socket::link_of(interface)?;
    // Frames pass the queueing discipline, so captures on this machine see them, and traffic shaping applies.
    Ok((packet_socket::Sender::open(interface, false)?, link))
}

#[cfg(not(feature = "dpdk"))]
fn dpdk(_: &str) -> Result<Transmitter, PortError> {
    Err(PortError::WithoutDpdk)
}

#[cfg(feature = "dpdk")]
fn dpdk(name: &str) -> Result<Transmitter, PortError> {
    Ok(Transmitter::Dpdk(dpdk_device::Device::open(name)?))
}

#[cfg(feature = "dpdk")]
mod dpdk_device {
    use super::{Counts, PortError};
    use std::io;
    use std::time::{Duration, Instant};
    use weir_io::dpdk::{SendError, Sender, sender};

    /// Longest time for which a device may have no room before a send fails.
    const PATIENCE: Duration = Duration::from_secs(2);

    /// A sending device of DPDK.
    pub struct Device {
        sender: Sender,
        bytes: u64,
        too_long: u64,
    }

    impl Device {
        pub fn open(name: &str) -> Result<Self, PortError> {
            let sender = sender(name).map_err(|error| PortError::Dpdk(error.to_string()))?;
            Ok(Self {
                sender,
                bytes: 0,
                too_long: 0,
            })
        }

        pub fn send(&mut self, frames: &[&[u8]]) -> io::Result<()> {
            let Err(SendError::TooLong { room, .. }) = self.send_all(frames)? else {
                return Ok(());
            };
            // None of the frames was sent.
            let fit: Vec<&[u8]> = frames
                .iter()
                .copied()
                .filter(|frame| frame.len() <= room)
                .collect();
            self.too_long += (frames.len() - fit.len()) as u64;
            self.send_all(&fit)?.map_err(io::Error::other)
        }

        /// Tries until the device has taken all frames.
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
                    return Err(io::Error::other(
                        "the device takes nothing any more: is its link up?",
                    ));
                } else {
                    std::thread::yield_now();
                }
            }
            Ok(Ok(()))
        }

        pub fn counts(&self) -> Counts {
            Counts {
                sent: self.sender.sent(),
                bytes: self.bytes,
                too_long: self.too_long,
                ..Counts::default()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_told_from_files_by_their_names() {
        for name in [
            "null",
            "af_packet:eth0.100",
            "af_xdp:eth0:3",
            "dpdk:net_null0",
            "inject:eth0",
        ] {
            assert!(is_port(&Name::from(name)), "{name}");
        }
        for name in [
            "./null",
            "null.pcap",
            "nullx",
            "eth0",
            "-",
            "a/af_packet:eth0",
            "",
        ] {
            assert!(!is_port(&Name::from(name)), "{name}");
        }
        let interfaces = [
            ("af_packet:a:b", Some("a:b")),
            ("af_xdp:a", Some("a")),
            ("af_xdp:a:3", Some("a")),
            ("null", None),
        ];
        for (name, expected) in interfaces {
            assert_eq!(interface(&Name::from(name)), expected, "{name}");
        }
    }
}
