//! Interfaces as sources: by which backend they are captured from, and how.
//!
//! ```text
//! eth0               AF_PACKET, where there is no file of that name
//! af_packet:eth0     AF_PACKET
//! af_xdp:eth0        AF_XDP, all queues          af_xdp:eth0:1    one queue
//! dpdk:DEVICE        DPDK
//! ```

pub mod rings;

use crate::control::kernel_program;
use crate::name::{Name, queue_name};
use rings::TooLarge;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use weir_io::Input;
use weir_io::live::Backend;
use weir_io::sys::packet_socket::{self, Ring};
pub use weir_io::sys::packet_socket::{Direction, Fanout, Stamps};
use weir_io::sys::xdp;
pub use weir_io::sys::xdp::{Mode, ZeroCopy};
use weir_memory::Policy;
use weir_packet::savefile::MAX_SNAPLEN;
use weir_pipeline::PlanError;

/// Before the name of an interface: the way it is captured from.
pub const AF_PACKET: &str = "af_packet:";
/// The same.
pub const AF_XDP: &str = "af_xdp:";
/// The same, before that of a device.
pub const DPDK: &str = "dpdk:";

/// A source that is no file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Live<'a> {
    /// An interface.
    AfPacket(&'a str),
    /// An interface, and the number of its queue, if it is one.
    AfXdp(&'a str, Option<&'a str>),
    /// A device.
    Dpdk(&'a str),
}

impl<'a> Live<'a> {
    /// What a source of this name is; `None` for a file. A file comes before an interface of its name.
    pub fn of(name: &'a Name) -> Option<Self> {
        let name = name.utf8();
        if let Some(interface) = name.strip_prefix(AF_PACKET) {
            return Some(Self::AfPacket(interface));
        }
        if let Some(text) = name.strip_prefix(AF_XDP) {
            let (interface, queue) =
                text.rsplit_once(':').map_or((text, None), |(interface, queue)| (interface, Some(queue)));
            return Some(Self::AfXdp(interface, queue));
        }
        if let Some(device) = name.strip_prefix(DPDK) {
            return Some(Self::Dpdk(device));
        }
        (is_interface(name) && !Path::new(name).exists()).then_some(Self::AfPacket(name))
    }

    /// The interface or device.
    pub fn interface(self) -> &'a str {
        match self {
            Self::AfPacket(interface) | Self::AfXdp(interface, _) | Self::Dpdk(interface) => interface,
        }
    }
}

/// Whether a capture of this name can begin, if it is not meant for a file.
pub fn is_interface(name: &str) -> bool {
    name == packet_socket::ANY || packet_socket::index_of(name).is_some()
}

/// How to capture. What a backend does not know it ignores.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Have interfaces receive what is for others.
    pub promiscuous: bool,
    /// Which packets.
    pub direction: Direction,
    /// Memory for packets that wait to be read, bytes: of an interface in all, or of a queue.
    pub ring: u64,
    /// Rings may take more than half of the memory that is free.
    pub ring_force: bool,
    /// Bytes of a block of AF_PACKET's ring, if it is not to be chosen by the ring's size.
    pub block: Option<u64>,
    /// How the kernel shares packets out.
    pub fanout: FanoutBy,
    /// Whose clock.
    pub stamps: Stamps,
    /// The kernel filters before it copies packets.
    pub kernel_filter: bool,
    /// Wait until the interface is there and up.
    pub wait: bool,
    /// Where the program of AF_XDP runs, if that is not to be chosen.
    pub xdp_mode: Option<Mode>,
    /// Whether a card writes into our memory itself.
    pub zero_copy: ZeroCopy,
    /// Pages of AF_XDP's memory.
    pub pages: Policy,
    /// AF_XDP, DPDK: never sleep, poll.
    pub busy_poll: bool,
}

/// By what the kernel shares the packets of an interface out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FanoutBy {
    /// By flow, both directions together.
    #[default]
    Hash,
    /// By the processor that receives it.
    Cpu,
    /// By the queue of the card.
    Queue,
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
        }
    }
}

/// What a run wants of a capture.
#[derive(Clone, Copy, Debug)]
pub struct CaptureRequest<'a> {
    /// How to capture.
    pub settings: Settings,
    /// The expression that packets must match, or empty: for the kernel's filter.
    pub expression: &'a str,
    /// Another one will take its place.
    pub replaces_filter: bool,
    /// Look host names up.
    pub resolve: bool,
    /// Bytes of a packet that are needed.
    pub snaplen: u32,
    /// Among how many the packets of an interface are shared out, from 1 on.
    pub shares: usize,
}

/// All packets, whole, of one capture.
impl Default for CaptureRequest<'_> {
    fn default() -> Self {
        Self {
            settings: Settings::default(),
            expression: "",
            replaces_filter: false,
            resolve: false,
            snaplen: MAX_SNAPLEN,
            shares: 1,
        }
    }
}

/// News about a capture that is being opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice<'a> {
    /// The interface is not there, or not up, and is waited for.
    Waits {
        /// The interface.
        name: &'a str,
    },
    /// The blocks are larger than was asked for, since a frame may have `largest` bytes.
    BlockRaised {
        /// The interface.
        name: &'a str,
        /// Bytes of a block that were asked for.
        asked: usize,
        /// Bytes that it has.
        block: usize,
        /// Bytes of the largest frame.
        largest: u32,
    },
}

/// Captures that have begun.
#[derive(Debug, Default)]
pub struct Opened {
    /// One for each share, or queue; none if the run was stopped meanwhile.
    pub inputs: Vec<Input>,
    /// What each backend does, in a line.
    pub descriptions: Vec<String>,
}

/// Why a capture cannot begin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CaptureError {
    /// The name is that of a file.
    #[error("it is no interface")]
    NoInterface,
    /// The rings would take too much memory.
    #[error(transparent)]
    Memory(#[from] TooLarge),
    /// A size that this machine cannot have.
    #[error("a ring or block of {0} bytes is too large")]
    Size(u64),
    /// Blocks are powers of two of a page at least.
    #[error("a block of {block} bytes is not a power of two of at least {page} bytes")]
    Block {
        /// Bytes asked for.
        block: usize,
        /// Bytes of a page.
        page: usize,
    },
    /// The ring does not hold two blocks.
    #[error("a ring of {ring} bytes is too small for two blocks of {block} bytes")]
    Ring {
        /// Bytes of the ring that was asked for, for all shares.
        ring: u64,
        /// Bytes of a block.
        block: usize,
        /// Bytes of the largest frame, if that is why the block is so large.
        largest: Option<u32>,
        /// Shares.
        shares: usize,
    },
    /// AF_XDP sees what is received, and nothing else.
    #[error("AF_XDP sees what the interface receives, and nothing that it sends")]
    ReceivesOnly,
    /// No number of a queue.
    #[error("{0} is no queue number")]
    Queue(String),
    /// weir was built without DPDK.
    #[error("this weir was built without DPDK")]
    WithoutDpdk,
    /// DPDK refuses.
    #[error("{0}")]
    Dpdk(String),
    /// AF_PACKET refuses.
    #[error(transparent)]
    PacketSocket(#[from] packet_socket::Error),
    /// AF_XDP refuses.
    #[error(transparent)]
    Xdp(#[from] xdp::Error),
    /// The expression makes no sense for the interface.
    #[error(transparent)]
    Plan(#[from] PlanError),
}

/// Hears what is told while captures are opened.
pub type Hear<'a> = &'a mut dyn FnMut(Notice<'_>);

/// Begins to capture from what `source` names: as many inputs as shares are wanted, or as the interface has queues. That there is
/// memory for all sources of a run is to be [checked](rings::check) before.
pub fn open(
    source: &Name,
    request: &CaptureRequest<'_>,
    stop: &Arc<AtomicBool>,
    hear: Hear<'_>,
) -> Result<Opened, CaptureError> {
    use CaptureError::{PacketSocket, Plan, Xdp};
    match try_open(source, request, stop, hear) {
        Err(Plan(PlanError::Stopped) | PacketSocket(packet_socket::Error::Stopped) | Xdp(xdp::Error::Stopped)) => {
            Ok(Opened::default())
        }
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
    let awaited = request.settings.wait && !matches!(live, Live::Dpdk(_));
    if stop.load(Ordering::Relaxed) || awaited && !wait_for(name, stop, hear) {
        return Ok(Opened::default());
    }
    if awaited {
        // How many queues it has is known only now.
        rings::check(std::slice::from_ref(source), &request.settings)?;
    }
    let backends = match live {
        Live::AfPacket(_) => af_packet(name, request, stop, hear)?,
        Live::AfXdp(_, queue) => af_xdp(name, queue, request, stop)?,
        Live::Dpdk(device) => dpdk(device, request)?,
    };
    let descriptions = backends.iter().map(|backend| backend.describe()).collect();
    let queues = backends.len() > 1 && !matches!(live, Live::AfPacket(_));
    let input = |(i, backend)| match queues {
        true => Input::live(&queue_name(name, i), backend, stop),
        false => Input::live(name, backend, stop),
    };
    Ok(Opened { inputs: backends.into_iter().enumerate().map(input).collect(), descriptions })
}

fn boxed<B: Backend + 'static>(backends: Vec<B>) -> Vec<Box<dyn Backend>> {
    backends.into_iter().map(|backend| Box::new(backend) as Box<dyn Backend>).collect()
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
    let CaptureRequest { settings, snaplen, shares, .. } = *request;
    let bytes = |size: u64| usize::try_from(size).map_err(|_| CaptureError::Size(size));
    let size = bytes(settings.ring)? / shares;
    let ring = match settings.block.map(bytes).transpose()? {
        None => packet_socket::Settings::of_size(size),
        Some(block) if block.is_power_of_two() && block >= PAGE => packet_socket::Settings::of_blocks(size, block),
        Some(block) => return Err(CaptureError::Block { block, page: PAGE }),
    };
    let ring = packet_socket::Settings { snaplen, ..ring };
    let asked = ring.block;
    let largest = packet_socket::largest_frame(name);
    let block = asked.max(ring.least_block(largest));
    if size < 2 * block {
        let largest = (block > asked).then_some(largest);
        return Err(CaptureError::Ring { ring: settings.ring, block, largest, shares });
    }
    if settings.block.is_some() && block > asked {
        hear(Notice::BlockRaised { name, asked, block, largest });
    }
    let filters = settings.kernel_filter && (request.replaces_filter || !request.expression.trim().is_empty());
    let filter = if filters {
        let link = packet_socket::link_of(name)?;
        Some(kernel_program(request.expression, link, request.resolve, stop)?)
    } else {
        None
    };
    Ok(packet_socket::Settings {
        block,
        blocks: (size / block).max(2),
        promiscuous: settings.promiscuous,
        direction: settings.direction,
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
    let number = |queue: &str| queue.parse::<u32>().map_err(|_| CaptureError::Queue(queue.to_owned()));
    let queue = queue.map(number).transpose()?;
    let memory = usize::try_from(settings.ring).map_err(|_| CaptureError::Size(settings.ring))?;
    let xdp = xdp::Settings {
        mode: settings.xdp_mode,
        zero_copy: settings.zero_copy,
        pages: settings.pages,
        busy_poll: settings.busy_poll.then_some(xdp::BusyPoll { time: Duration::from_micros(20), packets: 64 }),
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
    /// Bytes of a packet's place, about.
    const PLACE: u64 = 2304;
    let queues = u16::try_from(request.shares).unwrap_or(u16::MAX);
    let settings = weir_io::dpdk::Settings {
        queues,
        packets: u32::try_from(request.settings.ring / PLACE / u64::from(queues)).unwrap_or(u32::MAX),
        promiscuous: request.settings.promiscuous,
        busy: request.settings.busy_poll,
    };
    weir_io::dpdk::open(device, &settings).map(boxed).map_err(|error| CaptureError::Dpdk(error.to_string()))
}

#[cfg(not(feature = "dpdk"))]
fn dpdk(_: &str, _: &CaptureRequest<'_>) -> Result<Vec<Box<dyn Backend>>, CaptureError> {
    Err(CaptureError::WithoutDpdk)
}

/// Waits until an interface is there and up; `false` if `stop` was set first.
fn wait_for(name: &str, stop: &AtomicBool, hear: Hear<'_>) -> bool {
    const TURN: Duration = Duration::from_millis(50);
    let mut told = false;
    while name != packet_socket::ANY && !packet_socket::is_up(name) {
        if stop.load(Ordering::Relaxed) {
            return false;
        }
        if !std::mem::replace(&mut told, true) {
            hear(Notice::Waits { name });
        }
        std::thread::sleep(TURN);
    }
    true
}
