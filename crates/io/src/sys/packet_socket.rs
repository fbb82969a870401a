//! Packet socket with a receive ring that the kernel and the process share (AF_PACKET, TPACKET_V3).
//!
//! The kernel fills one block after another, and hands each over by a bit in its first words. When the last lease on a block is
//! dropped, the block goes back to the kernel. Any number of blocks may be leased, and they come back in any order. Mapping,
//! socket and promiscuous membership end when the ring and all leases are dropped.
//!
//! If an interface goes down, the capture waits for it; if an interface is removed, the capture ends.
//!
//! **Platform**: Linux, linux/if_packet.h, Documentation/networking/packet_mmap.rst; `PACKET_IGNORE_OUTGOING` needs 4.20.

mod counting;
mod fanout;
mod filter;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz_body;
mod memory;
mod options;
mod record;
mod send;
mod stamps;

pub use fanout::Fanout;
pub use filter::{Insn, KernelFilter};
pub use options::{Carrier, index_of, is_up, largest_frame, mtu, name_of};
pub use send::{Sender, Sent, is_full};
pub use stamps::Stamps;

use crate::live::{Backend, Counts, Marks, Next, PreFilter};
use crate::sys::option::{get_option, set_option, zeroed};
use counting::Counters;
use filter::{Away, Filter, RingFilter};
use memory::{Opened, Shared};
use options::PACKET_IGNORE_OUTGOING;
use record::Finish;
use std::ffi::c_int;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use weir_packet::LinkType;
use weir_packet::savefile::{Interface, Layout, MAX_SNAPLEN, Resolution};

/// Name that stands for all interfaces.
pub const ANY: &str = "any";

/// `ARPHRD_RAWIP` of linux/if_arp.h.
const ARPHRD_RAWIP: u16 = 519;

/// Bytes of an Ethernet header, and of two VLAN tags after it.
const ETHERNET: u32 = 14;
const TAGS: u32 = 8;

/// Longest wait at the end for the kernel to hand over the last packets.
const PATIENCE: Duration = Duration::from_secs(1);

/// Settings of a capture.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Whether the interface also receives packets for other hosts.
    pub promiscuous: bool,
    /// Bytes of a block: a power of two and a multiple of the page size. Packets that do not fit into a block are cut, and
    /// counted in [`Marks::cut`]; see [`Settings::least_block`].
    pub block: usize,
    /// Number of blocks of the ring. While traffic is thin, the kernel hands over a block at each `retire`, full or not. The
    /// number of blocks therefore also limits the time for which the reader may be away.
    pub blocks: usize,
    /// Longest time from the first packet of a block until the block is handed over, in whole milliseconds from 1 to 65535: other times
    /// are rounded up, or cut.
    pub retire: Duration,
    /// Snap length: bytes of a packet that are kept, at least one; records also keep the wire
    /// length.
    pub snaplen: u32,
    /// Direction of the captured packets.
    pub direction: Direction,
    /// Program that rejects packets before they are copied. The kernel may let through more packets than the program accepts,
    /// see [`Ring::kernel_filter`]. The reader therefore filters again, with a program for frames as on the wire. The kernel's
    /// program sees whole packets; the reader's program sees `snaplen` bytes of them.
    pub filter: Option<Vec<Insn>>,
    /// Whether the program will be replaced later, by [`Backend::pre_filter`].
    pub replaces_filter: bool,
    /// Clock that timestamps the packets.
    pub stamps: Stamps,
}

/// Direction of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// Packets that the interface receives.
    In,
    /// Packets that the interface sends.
    Out,
    /// Both directions. The loopback sends and receives each packet, so only received packets are captured there.
    #[default]
    Both,
}

impl Settings {
    /// Default of the time for which a block waits for packets.
    pub const RETIRE: Duration = Duration::from_millis(50);
    const LEAST_BLOCK: usize = 128 << 10;
    /// Least size of blocks that are small because they are handed over soon.
    const LEAST_EARLY_BLOCK: usize = 16 << 10;
    const LARGEST_BLOCK: usize = 1 << 20;
    const ENOUGH: usize = 16;

    /// Returns settings for a ring of about `bytes`: 16 blocks or more, unless blocks would be smaller than 128 KiB; no block
    /// is larger than 1 MiB.
    ///
    /// Large blocks wake the reader less often, and a wakeup costs more than reading. But a block is handed over at each
    /// `retire`, whether full or not. A ring of two blocks thus has no room while the reader holds one of them. On a busy
    /// machine, it loses packets while nearly all its memory is free.
    pub fn of_size(bytes: usize) -> Self {
        let block = 1 << (bytes / Self::ENOUGH).max(1).ilog2();
        Self::of_blocks(bytes, block.clamp(Self::LEAST_BLOCK, Self::LARGEST_BLOCK))
    }

    /// Returns settings for a ring of about `bytes` whose blocks are handed over after `retire`, 50 ms or less: with blocks that are
    /// smaller by as much as the time is shorter, down to 16 KiB.
    ///
    /// Each `retire` takes a block while packets arrive, however few they are. So a reader may be
    /// away for `blocks * retire`, which is the same for all times: 1.6 s with 32 MiB. Large blocks
    /// of a ring that hands over after 1 ms would be used up in 32 ms.
    pub fn of_latency(bytes: usize, retire: Duration) -> Self {
        let usual = Self::of_size(bytes).block;
        let retire = retire.clamp(Duration::from_millis(1), Self::RETIRE);
        let scaled = (usual as u128 * retire.as_nanos() / Self::RETIRE.as_nanos()) as usize;
        let block = 1 << scaled.max(1).ilog2();
        Self {
            retire,
            ..Self::of_blocks(bytes, block.clamp(Self::LEAST_EARLY_BLOCK, usual))
        }
    }

    /// Returns settings for a ring of about `bytes`, at least two blocks, in blocks of `block` bytes.
    pub fn of_blocks(bytes: usize, block: usize) -> Self {
        Self {
            promiscuous: true,
            block,
            blocks: (bytes / block).max(2),
            retire: Self::RETIRE,
            snaplen: MAX_SNAPLEN,
            direction: Direction::Both,
            filter: None,
            replaces_filter: false,
            stamps: Stamps::Software,
        }
    }
}

impl Settings {
    /// Returns the size in bytes of the smallest block that holds frames of `largest` bytes, as far as the snap length keeps
    /// them.
    pub fn least_block(&self, largest: u32) -> usize {
        /// Bytes in front of a block's first frame, rounded up: the headers of block and record, and the reserve for headers
        /// that weir inserts. 48 + 68 + 16 + 24 bytes, aligned to 16.
        const BEFORE: usize = 176;
        let page = 4096;
        let copied = filter::kernel_snaplen(self.snaplen.clamp(1, MAX_SNAPLEN), true);
        (BEFORE + copied.min(largest) as usize)
            .next_power_of_two()
            .max(page)
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self::of_size(32 << 20)
    }
}

/// Reason why capturing from an interface, or sending to it, is not possible.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No interface has this name.
    #[error("no such network interface")]
    NoInterface,
    /// Packet sockets need CAP_NET_RAW.
    #[error("capturing needs CAP_NET_RAW")]
    NotPermitted,
    /// The interface is down.
    #[error("the interface is down")]
    Down,
    /// Frames of a kind that weir does not read; the number is an ARPHRD_ value of linux/if_arp.h.
    #[error(
        "frames of hardware type {0}, which are not captured: Ethernet, loopback and IP tunnels are"
    )]
    Hardware(u16),
    /// The stop flag was set during the start.
    #[error("told to end before it began")]
    Stopped,
    /// Error of the system.
    #[error("{what}: {error}")]
    System {
        /// Operation that failed.
        what: &'static str,
        /// Error of the operation.
        error: io::Error,
    },
}

/// Reading end of the ring.
#[derive(Debug)]
pub struct Ring {
    shared: Arc<Shared>,
    next: usize,
    /// Block before `next`, while parts of it are not handed on yet.
    opened: Option<Opened>,
    /// Number of the block before `next`, 0 at the start.
    taken: u64,
    name: String,
    /// Number of the interface; 0 for all interfaces.
    index: u32,
    link: LinkType,
    modes: String,
    retire: Duration,
    finish: Finish,
    filter: Arc<RingFilter>,
    kernel_filter: KernelFilter,
    replaces_filter: bool,
    counters: Option<Arc<Counters>>,
    kernel: KernelCounts,
    handed_over: u64,
    marks: Marks,
    is_down: bool,
    ending: Option<Ending>,
}

/// Counts of the kernel so far.
#[derive(Clone, Copy, Debug, Default)]
struct KernelCounts {
    /// Number of packets that passed the filter, lost ones included.
    packets: u64,
    drops: u64,
}

#[derive(Debug)]
struct Ending {
    /// Time of the last packet or of the stop; after [`PATIENCE`] without packets, the capture ends.
    quiet_since: Instant,
    /// Reason of the end, if it was not requested.
    why: Option<&'static str>,
}

impl Ring {
    /// Starts the capture from interface `name`, or from all interfaces for [`ANY`]. Packets of [`ANY`] have link type
    /// LINUX_SLL2, which names their interface in the header, and the kernel does not filter them.
    pub fn open(name: &str, settings: &Settings) -> Result<Self, Error> {
        Self::start(name, settings, false)
    }

    /// Returns the state of the filter in the kernel.
    pub fn kernel_filter(&self) -> &KernelFilter {
        &self.kernel_filter
    }

    /// Starts a capture; if `held`, no packet arrives before [`Self::release`].
    fn start(name: &str, settings: &Settings, held: bool) -> Result<Self, Error> {
        let any = name == ANY;
        let index = if any {
            0
        } else {
            index_of(name).ok_or(Error::NoInterface)?
        };
        let socket = options::open()?;
        let set = |what, option, value: c_int| {
            set_option(&socket, libc::SOL_PACKET, option, &value)
                .map_err(|error| Error::System { what, error })
        };
        set(
            "TPACKET_V3",
            libc::PACKET_VERSION,
            libc::tpacket_versions::TPACKET_V3 as c_int,
        )?;
        set(
            "PACKET_RESERVE",
            libc::PACKET_RESERVE,
            record::RESERVE as c_int,
        )?;
        let loopback =
            options::flags_of(name, &socket).is_some_and(|flags| flags & libc::IFF_LOOPBACK != 0);
        let away = match settings.direction {
            Direction::Out => Away::Received,
            Direction::Both if any => Away::SentOnLoopback,
            Direction::Both if !loopback => Away::Nothing,
            Direction::Both | Direction::In => {
                set("PACKET_IGNORE_OUTGOING", PACKET_IGNORE_OUTGOING, 1)?;
                Away::Nothing
            }
        };
        let stamps = settings.stamps.ask(name, &socket)?;
        let snaplen = filter::kernel_snaplen(settings.snaplen.clamp(1, MAX_SNAPLEN), any);
        let mut filter = match &settings.filter {
            Some(_) if any => Filter::refused(
                "link headers differ from interface to interface",
                away,
                snaplen,
            ),
            program => Filter::new(program.as_deref(), away, snaplen),
        };
        if settings.replaces_filter {
            filter.prepare_to_be_replaced();
        }
        if held {
            filter.hold(&socket).map_err(|error| Error::System {
                what: "the filter",
                error,
            })?;
        } else {
            // The filter is attached before the socket is bound, so that no packet arrives unfiltered.
            filter.attach(&socket)?;
        }
        let shared = Arc::new(Shared::new(socket, settings)?);
        let hardware = options::bind(shared.socket(), index, libc::ETH_P_ALL)?;
        let link = if any {
            LinkType::LINUX_SLL2
        } else {
            link(hardware)?
        };
        let header = if link == LinkType::ETHERNET {
            ETHERNET + TAGS
        } else {
            0
        };
        let promiscuous = settings.promiscuous && !any;
        if promiscuous {
            join_promiscuous(shared.socket(), index)?;
        }
        let mtu = if any {
            None
        } else {
            options::mtu_of(name, shared.socket())
        };
        let largest = mtu.map_or(u32::MAX, |mtu| mtu.saturating_add(header));
        let direction = match settings.direction {
            Direction::In => "what is received",
            Direction::Out => "what is sent",
            Direction::Both => "both directions",
        };
        let promiscuous = if promiscuous {
            "promiscuous"
        } else {
            "not promiscuous"
        };
        Ok(Self {
            next: 0,
            opened: None,
            taken: 0,
            name: name.to_owned(),
            index,
            link,
            modes: format!("{direction}, {promiscuous}, {stamps}"),
            retire: settings.retire,
            finish: Finish {
                cooked: any,
                snaplen: settings.snaplen.clamp(1, MAX_SNAPLEN),
                copied: snaplen,
                largest,
            },
            kernel_filter: filter.how().clone(),
            replaces_filter: settings.replaces_filter,
            counters: filter.counters(),
            filter: RingFilter::new(&shared, filter),
            kernel: KernelCounts::default(),
            handed_over: 0,
            marks: Marks::default(),
            is_down: false,
            ending: None,
            shared,
        })
    }

    /// Lets packets in, after a start with `held`.
    fn release(&mut self) -> Result<(), Error> {
        let (attached, how) = self
            .filter
            .with(|filter| (filter.attach(self.shared.socket()), filter.how().clone()));
        self.kernel_filter = how;
        attached
    }

    /// Ends the capture: lets no more packets in.
    fn end(&mut self, why: Option<&'static str>) -> io::Result<()> {
        self.filter
            .with(|filter| filter.hold(self.shared.socket()))?;
        self.ending = Some(Ending {
            quiet_since: Instant::now(),
            why,
        });
        Ok(())
    }

    /// Returns whether all received packets were handed over.
    ///
    /// When the rejecting filter is attached, a packet may still be passing the old one, and the last block is handed over only
    /// after `retire`. The counts must therefore agree after that time, and not before. A next block that is still leased from
    /// the last round does not delay the end, because the kernel has written nothing after it.
    fn is_over(&mut self) -> io::Result<bool> {
        let Some(ending) = &self.ending else {
            return Ok(false);
        };
        let quiet = ending.quiet_since.elapsed();
        if quiet < self.retire {
            return Ok(false);
        }
        self.read_counts()?;
        // Another check is necessary, because a block may have arrived between the first check and
        // the counts.
        Ok(!self.shared.is_ready(self.next) && (self.agree() || quiet > PATIENCE))
    }

    /// Returns the numbers of packets that reached the filter and that it rejected, if it counts.
    fn filter_counts(&self) -> Option<(u64, u64)> {
        self.counters.as_ref().map(|counters| counters.now())
    }

    /// Returns whether the counts of the kernel, of the filter and of this ring agree.
    fn agree(&self) -> bool {
        let KernelCounts { packets, drops } = self.kernel;
        let passed = |(seen, rejected): (u64, u64)| seen.checked_sub(rejected) == Some(packets);
        packets.checked_sub(drops) == Some(self.handed_over)
            && self.filter_counts().is_none_or(passed)
    }

    fn over(&self) -> io::Result<Next> {
        let why = self.ending.as_ref().and_then(|ending| ending.why);
        if !self.agree() {
            let KernelCounts { packets, drops } = self.kernel;
            let why = why.map_or(String::new(), |why| format!("{why}; "));
            let counted = |(seen, rejected)| {
                format!("the filter saw {seen} packets and rejected {rejected}, ")
            };
            let filtered = self.filter_counts().map_or(String::new(), counted);
            return Err(io::Error::other(format!(
                "{why}{filtered}the kernel counted {packets} packets, dropped {drops} and handed over {}",
                self.handed_over
            )));
        }
        match why {
            Some(why) => Err(io::Error::other(why)),
            None => Ok(Next::End),
        }
    }

    /// Waits for a block or an error of the socket, at most for `time`.
    fn poll(&mut self, time: Duration) -> io::Result<()> {
        /// Pause if the next block is still leased, because `poll` then reports readiness at once.
        const PAUSE: Duration = Duration::from_millis(1);
        let time = time.as_nanos().div_ceil(1_000_000);
        let mut asked = libc::pollfd {
            fd: self.shared.socket().as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: the pointer is to one live local.
        let ready = unsafe {
            libc::poll(
                &raw mut asked,
                1,
                c_int::try_from(time).unwrap_or(c_int::MAX),
            )
        };
        if ready < 0 {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::Interrupted {
                Ok(())
            } else {
                Err(error)
            };
        }
        if asked.revents & libc::POLLERR != 0 {
            match get_option::<c_int>(self.shared.socket(), libc::SOL_SOCKET, libc::SO_ERROR)? {
                0 => {}
                libc::ENETDOWN => self.is_down = true,
                error => return Err(io::Error::from_raw_os_error(error)),
            }
        } else if ready > 0 && !self.shared.is_ready(self.next) {
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Checks an interface that went down. An interface goes down before it is removed, and the kernel does not report the
    /// removal.
    fn look_after(&mut self) -> io::Result<()> {
        if !self.is_down || self.ending.is_some() {
            return Ok(());
        }
        let socket = self.shared.socket();
        match options::name_on(self.index, socket).and_then(|name| options::flags_of(&name, socket))
        {
            None => {
                // The interface was removed, which does not count as going down.
                self.is_down = false;
                self.end(Some("the interface is gone"))?;
            }
            Some(flags) if flags & libc::IFF_UP != 0 => {
                self.is_down = false;
                self.marks.downs += 1;
            }
            Some(_) => {}
        }
        Ok(())
    }

    /// Adds the kernel's counts since the last call; the kernel resets its counters at each read.
    fn read_counts(&mut self) -> io::Result<()> {
        let counted: libc::tpacket_stats_v3 = get_option(
            self.shared.socket(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
        )?;
        // `tp_packets` includes `tp_drops`.
        self.kernel.packets += u64::from(counted.tp_packets);
        self.kernel.drops += u64::from(counted.tp_drops);
        Ok(())
    }

    /// Returns the next portion; see [`Backend::next`].
    fn find_next(&mut self, stop: &AtomicBool) -> io::Result<Next> {
        if self.ending.is_none() && stop.load(Ordering::Relaxed) {
            self.end(None)?;
        }
        loop {
            if let Some(mut opened) = self.opened.take() {
                let (portion, packets) = opened.portion(&self.finish, &mut self.marks);
                self.opened = opened.more();
                self.handed_over += u64::from(packets);
                return Ok(Next::Records(Arc::new(portion), packets.into()));
            }
            if !self.shared.is_ready(self.next) {
                break;
            }
            self.opened = self.shared.take(self.next)?.more();
            self.taken = self.shared.number(self.next);
            self.next = self.shared.behind(self.next);
            self.read_counts()?;
            if let Some(ending) = &mut self.ending {
                ending.quiet_since = Instant::now();
            }
        }
        if self.is_over()? {
            return self.over();
        }
        self.look_after()?;
        Ok(Next::Nothing)
    }
}

/// The socket, which is readable while a block waits, and possibly also while a block is leased.
impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.socket().as_fd()
    }
}

impl Backend for Ring {
    fn next(&mut self, stop: &AtomicBool) -> io::Result<Next> {
        // Who asks for more has done what there was before.
        if self.opened.is_none() {
            self.shared.note_done(self.taken);
        }
        let next = self.find_next(stop);
        if !matches!(next, Ok(Next::Records(..) | Next::Nothing)) {
            self.shared.note_done(u64::MAX);
        }
        next
    }

    fn wait(&mut self, most: Duration) -> io::Result<()> {
        let begun = Instant::now();
        let mut left = most;
        while !left.is_zero() {
            self.poll(left)?;
            if self.shared.is_ready(self.next) {
                return Ok(());
            }
            left = most.saturating_sub(begun.elapsed());
        }
        self.read_counts()
    }

    fn counts(&self) -> Counts {
        let filter = self.filter_counts();
        Counts {
            received: filter.map_or(self.kernel.packets, |(seen, _)| seen),
            filtered: match self.kernel_filter() {
                KernelFilter::Plain(_) => None,
                KernelFilter::None | KernelFilter::Counting | KernelFilter::Refused(_) => {
                    Some(filter.map_or(0, |(_, rejected)| rejected))
                }
            },
            dropped: self.kernel.drops,
            handed_over: self.handed_over,
        }
    }

    fn marks(&self) -> Marks {
        let downs = self.marks.downs + u64::from(self.is_down);
        Marks {
            downs,
            ..self.marks
        }
    }

    fn layout(&self) -> Layout {
        let mut interface =
            Interface::plain(self.link, self.finish.snaplen, Resolution::NANOSECOND);
        interface.name = Some(self.name.clone());
        Layout::ring(interface)
    }

    fn place(&self) -> &'static str {
        "kernel"
    }

    fn pre_filter(&self) -> Option<Arc<dyn PreFilter>> {
        match self.kernel_filter {
            KernelFilter::Counting | KernelFilter::Plain(_) if self.replaces_filter => {
                Some(Arc::clone(&self.filter) as Arc<dyn PreFilter>)
            }
            _ => None,
        }
    }

    fn rejects_before(&self) -> bool {
        matches!(
            self.kernel_filter,
            KernelFilter::Counting | KernelFilter::Plain(_)
        )
    }

    fn describe(&self) -> String {
        let filter = match self.kernel_filter() {
            KernelFilter::None => String::new(),
            KernelFilter::Counting => ", the kernel filters".to_owned(),
            KernelFilter::Plain(why) => format!(", the kernel filters and does not count: {why}"),
            KernelFilter::Refused(why) => format!(", the kernel does not filter: {why}"),
        };
        format!(
            "AF_PACKET, {}, a ring of {} KiB{filter}",
            self.modes,
            self.shared.len() >> 10
        )
    }
}

/// Returns the link type of packets of interface `name`, as a capture will report it.
pub fn link_of(name: &str) -> Result<LinkType, Error> {
    if name == ANY {
        return Ok(LinkType::LINUX_SLL2);
    }
    link(options::hardware_of(name).ok_or(Error::NoInterface)?)
}

fn link(hardware: u16) -> Result<LinkType, Error> {
    match hardware {
        libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK => Ok(LinkType::ETHERNET),
        libc::ARPHRD_NONE | ARPHRD_RAWIP => Ok(LinkType::RAW),
        other => Err(Error::Hardware(other)),
    }
}

/// Makes the interface receive packets for other hosts, as long as the socket lives.
fn join_promiscuous(socket: &OwnedFd, index: u32) -> Result<(), Error> {
    let mut wanted = zeroed::<libc::packet_mreq>();
    wanted.mr_ifindex = index as c_int;
    wanted.mr_type = libc::PACKET_MR_PROMISC as u16;
    set_option(
        socket,
        libc::SOL_PACKET,
        libc::PACKET_ADD_MEMBERSHIP,
        &wanted,
    )
    .map_err(|error| Error::System {
        what: "promiscuous mode",
        error,
    })
}

#[cfg(test)]
mod tests;
