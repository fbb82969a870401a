//! Interfaces as sources: the choice of the capture backend, and its settings.
//!
//! ```text
//! eth0               AF_PACKET, if there is no file of that name
//! af_packet:eth0     AF_PACKET
//! af_xdp:eth0        AF_XDP, all queues          af_xdp:eth0:1    one queue
//! dpdk:DEVICE        DPDK
//! netns:blue/eth0    an interface of another network namespace: see [`namespaced`]
//! ```

pub mod namespaced;
pub mod rings;

use crate::control::kernel_program;
use crate::guard::{self, Act, Guarded};
use crate::name::{Name, queue_name};
use rings::TooLarge;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use weir_filter::Names;
use weir_io::Input;
use weir_io::live::Backend;
use weir_io::sys::namespace::{self, Namespace};
use weir_io::sys::packet_socket::{self, Ring};
pub use weir_io::sys::packet_socket::{Direction, Fanout, Stamps};
use weir_io::sys::xdp;
pub use weir_io::sys::xdp::{Mode, ZeroCopy};
use weir_memory::Policy;
use weir_packet::savefile::MAX_SNAPLEN;
use weir_pipeline::PlanError;

/// Prefix of an interface name for a capture with AF_PACKET.
pub const AF_PACKET: &str = "af_packet:";
/// Prefix of an interface name for a capture with AF_XDP.
pub const AF_XDP: &str = "af_xdp:";
/// Prefix of a device name for a capture by DPDK.
pub const DPDK: &str = "dpdk:";

/// A live source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Live<'a> {
    /// Name of an interface.
    AfPacket(&'a str),
    /// Name of an interface, and the number of its queue if only one queue is captured.
    AfXdp(&'a str, Option<&'a str>),
    /// Name of a device.
    Dpdk(&'a str),
}

impl<'a> Live<'a> {
    /// Returns the live source with this name; `None` for a file. If a file and an interface have the name, the file is chosen.
    pub fn of(name: &'a Name) -> Option<Self> {
        let name = name.utf8();
        if let Some(interface) = name.strip_prefix(AF_PACKET) {
            return Some(Self::AfPacket(interface));
        }
        if let Some(text) = name.strip_prefix(AF_XDP) {
            // The name of a namespace may have a colon itself.
            let from = text.rfind('/').map_or(0, |slash| slash + 1);
            let (interface, queue) = match text[from..].rsplit_once(':') {
                Some((interface, queue)) => (&text[..from + interface.len()], Some(queue)),
                None => (text, None),
            };
            return Some(Self::AfXdp(interface, queue));
        }
        if let Some(device) = name.strip_prefix(DPDK) {
            return Some(Self::Dpdk(device));
        }
        let is_named = is_interface(name) || namespaced::is_namespaced(name);
        (is_named && !Path::new(name).exists()).then_some(Self::AfPacket(name))
    }

    /// Returns the name of the interface or device; with the name of its namespace, if it is [another](namespaced).
    pub fn interface(self) -> &'a str {
        match self {
            Self::AfPacket(interface) | Self::AfXdp(interface, _) | Self::Dpdk(interface) => {
                interface
            }
        }
    }
}

/// Whether an interface of this name exists, or the name stands for all interfaces.
pub fn is_interface(name: &str) -> bool {
    name == packet_socket::ANY || packet_socket::index_of(name).is_some()
}

/// Settings of a capture. A backend ignores settings it does not know.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Whether interfaces also receive packets for other machines.
    pub promiscuous: bool,
    /// Direction of the packets to capture.
    pub direction: Direction,
    /// Size of the ring for unread packets, bytes: per interface, or per queue.
    pub ring: u64,
    /// Whether rings may take more than half of the free memory.
    pub ring_force: bool,
    /// Block size of AF_PACKET's ring, bytes; `None` derives it from the ring's size and from [`retire`](Self::retire).
    pub block: Option<u64>,
    /// Rule by which the kernel distributes packets.
    pub fanout: FanoutBy,
    /// Clock of the timestamps.
    pub stamps: Stamps,
    /// Whether the kernel filters packets before it copies them.
    pub kernel_filter: bool,
    /// Whether to wait until the interface exists and is up.
    pub wait: bool,
    /// Mode of the AF_XDP program; `None` chooses one.
    pub xdp_mode: Option<Mode>,
    /// Use of zero copy, in which the network card writes into the memory of this process.
    pub zero_copy: ZeroCopy,
    /// Kind of pages for AF_XDP's memory.
    pub pages: Policy,
    /// Whether AF_XDP and DPDK poll without sleep.
    pub busy_poll: bool,
    /// Longest time that a packet waits for others in AF_PACKET's ring; `None` for the default of 50 ms.
    pub retire: Option<Duration>,
}

impl Settings {
    /// Returns the size of a block of AF_PACKET's ring for whole packets of `interface`, bytes.
    pub fn packet_block(&self, interface: &str) -> usize {
        let size = usize::try_from(self.ring).unwrap_or(usize::MAX);
        let block = self.block.and_then(|block| usize::try_from(block).ok());
        let block = block.unwrap_or_else(|| self.packet_ring(size).block);
        block.max(
            packet_socket::Settings::default().least_block(packet_socket::largest_frame(interface)),
        )
    }

    /// Returns settings for AF_PACKET's ring of `size` bytes, with blocks that fit its size and the time for which packets may wait.
    fn packet_ring(&self, size: usize) -> packet_socket::Settings {
        packet_socket::Settings::of_latency(size, self.packet_retire())
    }

    fn packet_retire(&self) -> Duration {
        self.retire.unwrap_or(packet_socket::Settings::RETIRE)
    }
}

/// Rule by which the kernel distributes the packets of an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FanoutBy {
    /// By flow, both directions together.
    #[default]
    Hash,
    /// By the processor that receives the packet.
    Cpu,
    /// By the queue of the network card.
    Queue,
    /// By the destination address; packets without one go to the first share.
    Address,
    /// By a random number.
    Random,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            promiscuous: true,
            direction: Direction::Both,
            ring: 32 << 20,
            ring_force: false,
            block: None,
            fanout: FanoutBy::default(),
            stamps: Stamps::Software,
            kernel_filter: true,
            wait: false,
            xdp_mode: None,
            zero_copy: ZeroCopy::Auto,
            pages: Policy::Auto,
            busy_poll: false,
            retire: None,
        }
    }
}

/// A run's request for a capture.
#[derive(Clone, Copy, Debug)]
pub struct CaptureRequest<'a> {
    /// Settings of the capture.
    pub settings: Settings,
    /// Filter expression for the kernel; empty if there is none.
    pub expression: &'a str,
    /// Whether the expression may be replaced during the capture.
    pub replaces_filter: bool,
    /// Meaning of the names in the expression.
    pub names: &'a Names,
    /// Captured length needed of each packet, bytes.
    pub snaplen: u32,
    /// Number of shares among which the packets of an interface are distributed, at least 1.
    pub shares: usize,
    /// Interfaces whose packets may be taken away from this host although they are [guarded](guard).
    pub yes_take: &'a [String],
}

/// Requests all packets, whole, in one share.
impl Default for CaptureRequest<'_> {
    fn default() -> Self {
        Self {
            settings: Settings::default(),
            expression: "",
            replaces_filter: false,
            names: &Names::NONE,
            snaplen: MAX_SNAPLEN,
            shares: 1,
            yes_take: &[],
        }
    }
}

/// A notice during the opening of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice<'a> {
    /// The interface does not exist or is not up; the run waits for it.
    Waits {
        /// The interface.
        name: &'a str,
    },
    /// The blocks are larger than requested, because a frame may have `largest` bytes.
    BlockRaised {
        /// The interface.
        name: &'a str,
        /// Requested block size, bytes.
        asked: usize,
        /// Actual block size, bytes.
        block: usize,
        /// Size of the largest frame, bytes.
        largest: u32,
    },
}

/// Captures that have begun.
#[derive(Debug, Default)]
pub struct Opened {
    /// Inputs, one for each share or queue; none if the run was stopped in the meantime.
    pub inputs: Vec<Input>,
    /// Description of each backend, one line each.
    pub descriptions: Vec<String>,
}

/// Reason for which a capture cannot begin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CaptureError {
    /// The name belongs to a file, not to an interface.
    #[error("it is not an interface")]
    NoInterface,
    /// The rings would take too much memory.
    #[error(transparent)]
    Memory(#[from] TooLarge),
    /// A ring or block size, bytes, beyond the range of this machine.
    #[error("a ring or block of {0} bytes is too large")]
    Size(u64),
    /// The block size is not a power of two of at least a page.
    #[error("a block of {block} bytes is not a power of two of at least {page} bytes")]
    Block {
        /// Requested block size, bytes.
        block: usize,
        /// Size of a page, bytes.
        page: usize,
    },
    /// The ring does not hold two blocks.
    #[error("a ring of {ring} bytes is too small for two blocks of {block} bytes")]
    Ring {
        /// Requested size of the ring for all shares, bytes.
        ring: u64,
        /// Block size, bytes.
        block: usize,
        /// Size of the largest frame, bytes, if it determines the block size.
        largest: Option<u32>,
        /// Number of shares.
        shares: usize,
    },
    /// AF_XDP captures received packets only.
    #[error("AF_XDP sees what the interface receives, and nothing that it sends")]
    ReceivesOnly,
    /// The text is not a queue number.
    #[error("{0} is not a queue number")]
    Queue(String),
    /// weir was built without DPDK.
    #[error("this weir was built without DPDK")]
    WithoutDpdk,
    /// DPDK reported an error.
    #[error("{0}")]
    Dpdk(String),
    /// The interface is guarded, and its packets would be taken away from this host.
    #[error(transparent)]
    Guarded(#[from] Guarded),
    /// AF_PACKET reported an error.
    #[error(transparent)]
    PacketSocket(#[from] packet_socket::Error),
    /// AF_XDP reported an error.
    #[error(transparent)]
    Xdp(#[from] xdp::Error),
    /// The network namespace of the interface cannot be entered.
    #[error(transparent)]
    Namespace(#[from] namespace::Error),
    /// A name that begins as one of an interface in a namespace has another form.
    #[error(
        "an interface of another network namespace is netns:NAME/INTERFACE or pid:NUMBER/INTERFACE"
    )]
    Namespaced,
    /// All interfaces of another namespace.
    #[error("name one interface of another network namespace: any has the names of this one")]
    AnyInNamespace,
    /// The expression does not fit the interface.
    #[error(transparent)]
    Plan(#[from] PlanError),
}

/// Function called with the notices during the opening of captures.
pub type Hear<'a> = &'a mut dyn FnMut(Notice<'_>);

/// Begins a capture from the source `source`: one input for each share or queue. The memory for all sources of a run must be
/// [checked](rings::check) before.
pub fn open(
    source: &Name,
    request: &CaptureRequest<'_>,
    stop: &Arc<AtomicBool>,
    hear: Hear<'_>,
) -> Result<Opened, CaptureError> {
    use CaptureError::{PacketSocket, Plan, Xdp};
    match try_open(source, request, stop, hear) {
        Err(
            Plan(PlanError::Stopped)
            | PacketSocket(packet_socket::Error::Stopped)
            | Xdp(xdp::Error::Stopped),
        ) => Ok(Opened::default()),
        opened => opened,
    }
}

fn try_open(
    source: &Name,
    request: &CaptureRequest<'_>,
    stop: &Arc<AtomicBool>,
    hear: Hear<'_>,
) -> Result<Opened, CaptureError> {
    let live = Live::of(source).ok_or(CaptureError::NoInterface)?;
    let name = live.interface();
    let place = match live {
        Live::AfPacket(_) | Live::AfXdp(..) => namespaced::namespace_of(name)?,
        Live::Dpdk(_) => None,
    };
    let awaited = request.settings.wait && !matches!(live, Live::Dpdk(_));
    if stop.load(Ordering::Relaxed) || awaited && !wait_for(name, place.as_ref(), stop, hear)? {
        return Ok(Opened::default());
    }
    if awaited {
        // The number of queues is known only now.
        rings::check(std::slice::from_ref(source), &request.settings)?;
    }
    let backends = match &place {
        None => backends(live, name, request, stop, hear)?,
        Some((namespace, bare)) => backends_within(namespace, (live, bare), request, stop, hear)?,
    };
    let descriptions = backends.iter().map(|backend| backend.describe()).collect();
    let queues = backends.len() > 1 && !matches!(live, Live::AfPacket(_));
    let input = |(i, backend)| match queues {
        true => Input::live(&queue_name(name, i), backend, stop),
        false => Input::live(name, backend, stop),
    };
    Ok(Opened {
        inputs: backends.into_iter().enumerate().map(input).collect(),
        descriptions,
    })
}

/// Opens the backends of a source, whose interface is called `name` in the namespace of this thread.
fn backends(
    live: Live<'_>,
    name: &str,
    request: &CaptureRequest<'_>,
    stop: &AtomicBool,
    hear: Hear<'_>,
) -> Result<Vec<Box<dyn Backend>>, CaptureError> {
    // A packet socket copies, and takes nothing away.
    match live {
        Live::AfPacket(_) => {}
        Live::AfXdp(..) => guard::check(Act::Take, name, request.yes_take)?,
        Live::Dpdk(device) => guard::check_device(Act::Take, device, request.yes_take)?,
    }
    match live {
        Live::AfPacket(_) => af_packet(name, request, stop, hear),
        Live::AfXdp(_, queue) => af_xdp(name, queue, request, stop),
        Live::Dpdk(device) => dpdk(device, request),
    }
}

/// Opens the backends of a source in another namespace, where its interface is called `bare`.
fn backends_within(
    namespace: &Namespace,
    (live, bare): (Live<'_>, &str),
    request: &CaptureRequest<'_>,
    stop: &AtomicBool,
    hear: Hear<'_>,
) -> Result<Vec<Box<dyn Backend>>, CaptureError> {
    let name = live.interface();
    let mut yes_take = request.yes_take.to_vec();
    if yes_take.iter().any(|named| named == name) {
        yes_take.push(bare.to_owned());
    }
    let request = CaptureRequest {
        yes_take: &yes_take,
        ..*request
    };
    // The function of the caller stays in its thread.
    let mut raised = None;
    let mut keep = |notice: Notice<'_>| {
        if let Notice::BlockRaised {
            asked,
            block,
            largest,
            ..
        } = notice
        {
            raised = Some((asked, block, largest));
        }
    };
    let opened = namespace.within(|| backends(live, bare, &request, stop, &mut keep))?;
    if let Some((asked, block, largest)) = raised {
        hear(Notice::BlockRaised {
            name,
            asked,
            block,
            largest,
        });
    }
    opened
}

fn boxed<B: Backend + 'static>(backends: Vec<B>) -> Vec<Box<dyn Backend>> {
    backends
        .into_iter()
        .map(|backend| Box::new(backend) as Box<dyn Backend>)
        .collect()
}

fn af_packet(
    name: &str,
    request: &CaptureRequest<'_>,
    stop: &AtomicBool,
    hear: Hear<'_>,
) -> Result<Vec<Box<dyn Backend>>, CaptureError> {
    let settings = packet_settings(name, request, stop, hear)?;
    let fanout = match request.settings.fanout {
        FanoutBy::Hash => Fanout::Hash,
        FanoutBy::Cpu => Fanout::Cpu,
        FanoutBy::Queue => Fanout::Queue,
        FanoutBy::Address => Fanout::Address,
        FanoutBy::Random => Fanout::Random,
    };
    Ok(boxed(match request.shares {
        1 => vec![Ring::open(name, &settings)?],
        shares => Ring::open_fanout(name, &settings, shares, &fanout, stop)?,
    }))
}

fn packet_settings(
    name: &str,
    request: &CaptureRequest<'_>,
    stop: &AtomicBool,
    hear: Hear<'_>,
) -> Result<packet_socket::Settings, CaptureError> {
    const PAGE: usize = 4096;
    let CaptureRequest {
        settings,
        snaplen,
        shares,
        ..
    } = *request;
    let bytes = |size: u64| usize::try_from(size).map_err(|_| CaptureError::Size(size));
    let size = bytes(settings.ring)? / shares;
    let ring = match settings.block.map(bytes).transpose()? {
        None => settings.packet_ring(size),
        Some(block) if block.is_power_of_two() && block >= PAGE => {
            packet_socket::Settings::of_blocks(size, block)
        }
        Some(block) => return Err(CaptureError::Block { block, page: PAGE }),
    };
    let ring = packet_socket::Settings { snaplen, ..ring };
    let asked = ring.block;
    let largest = packet_socket::largest_frame(name);
    let block = asked.max(ring.least_block(largest));
    if size < 2 * block {
        let largest = (block > asked).then_some(largest);
        return Err(CaptureError::Ring {
            ring: settings.ring,
            block,
            largest,
            shares,
        });
    }
    if settings.block.is_some() && block > asked {
        hear(Notice::BlockRaised {
            name,
            asked,
            block,
            largest,
        });
    }
    let filters = settings.kernel_filter
        && (request.replaces_filter || !request.expression.trim().is_empty());
    let filter = if filters {
        let link = packet_socket::link_of(name)?;
        Some(kernel_program(
            request.expression,
            link,
            request.names,
            stop,
        )?)
    } else {
        None
    };
    Ok(packet_socket::Settings {
        block,
        blocks: (size / block).max(2),
        promiscuous: settings.promiscuous,
        direction: settings.direction,
        retire: settings.packet_retire(),
        filter,
        replaces_filter: request.replaces_filter,
        stamps: settings.stamps,
        ..ring
    })
}

fn af_xdp(
    name: &str,
    queue: Option<&str>,
    request: &CaptureRequest<'_>,
    stop: &AtomicBool,
) -> Result<Vec<Box<dyn Backend>>, CaptureError> {
    let settings = &request.settings;
    if settings.direction == Direction::Out {
        return Err(CaptureError::ReceivesOnly);
    }
    let number = |queue: &str| {
        queue
            .parse::<u32>()
            .map_err(|_| CaptureError::Queue(queue.to_owned()))
    };
    let queue = queue.map(number).transpose()?;
    let memory = usize::try_from(settings.ring).map_err(|_| CaptureError::Size(settings.ring))?;
    let xdp = xdp::Settings {
        mode: settings.xdp_mode,
        zero_copy: settings.zero_copy,
        pages: settings.pages,
        busy_poll: settings.busy_poll.then_some(xdp::BusyPoll {
            time: Duration::from_micros(20),
            packets: 64,
        }),
        promiscuous: settings.promiscuous,
        ..xdp::Settings::of_size(memory)
    };
    Ok(boxed(match queue {
        Some(queue) => vec![xdp::open(name, queue, &xdp)?],
        None => xdp::open_all(name, &xdp, stop)?,
    }))
}

#[cfg(feature = "dpdk")]
fn dpdk(device: &str, request: &CaptureRequest<'_>) -> Result<Vec<Box<dyn Backend>>, CaptureError> {
    /// Approximate memory per packet, bytes.
    const PLACE: u64 = 2304;
    let queues = u16::try_from(request.shares).unwrap_or(u16::MAX);
    let settings = weir_io::dpdk::Settings {
        queues,
        packets: u32::try_from(request.settings.ring / PLACE / u64::from(queues))
            .unwrap_or(u32::MAX),
        promiscuous: request.settings.promiscuous,
        busy: request.settings.busy_poll,
    };
    weir_io::dpdk::open(device, &settings)
        .map(boxed)
        .map_err(|error| CaptureError::Dpdk(error.to_string()))
}

#[cfg(not(feature = "dpdk"))]
fn dpdk(_: &str, _: &CaptureRequest<'_>) -> Result<Vec<Box<dyn Backend>>, CaptureError> {
    Err(CaptureError::WithoutDpdk)
}

/// Waits until an interface exists and is up, in its namespace if that is another one. Returns `false` if `stop` was set first.
fn wait_for(
    name: &str,
    place: Option<&(Namespace, &str)>,
    stop: &AtomicBool,
    hear: Hear<'_>,
) -> Result<bool, CaptureError> {
    const TURN: Duration = Duration::from_millis(50);
    let is_up = || match place {
        Some((namespace, bare)) => namespace.within(|| packet_socket::is_up(bare)),
        None => Ok(packet_socket::is_up(name)),
    };
    let mut told = false;
    while name != packet_socket::ANY && !is_up()? {
        if stop.load(Ordering::Relaxed) {
            return Ok(false);
        }
        if !std::mem::replace(&mut told, true) {
            hear(Notice::Waits { name });
        }
        std::thread::sleep(TURN);
    }
    Ok(true)
}
