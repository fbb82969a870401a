//! A device's port, from opening to closing.

use crate::burst::{Burst, MOST};
use crate::eal::{Eal, Pages, said};
use crate::error::Error;
use crate::pool::{Pool, Wanted};
use crate::raw;
use crate::sender::Sender;
use crate::sockets::{Kernel, Sockets};
use std::collections::BTreeMap;
use std::ffi::{CString, c_int};
use std::io;
use std::sync::Arc;

/// Number of packets in a device's ring, unless the device has another limit.
const DESCRIPTORS: u16 = 2048;

/// Bytes of a frame that fit in an mbuf: DPDK's value for frames of 1518 bytes.
const ROOM: u32 = 2048;

/// Number of mbufs of a port's senders.
const SENDING: u32 = 4095;

/// Settings of a device.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Number of receive queues.
    pub queues: u16,
    /// Number of send queues.
    pub senders: u16,
    /// Number of mbufs of each receive queue, raised to what the device needs. One less than a power of two fits best.
    pub mbufs: u32,
    /// Whether the device shall receive packets for other addresses too, if it can.
    pub promiscuous: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            queues: 1,
            senders: 0,
            mbufs: (1 << 14) - 1,
            promiscuous: true,
        }
    }
}

/// An open port that runs, with its queues.
#[derive(Debug)]
pub struct Opened {
    /// The port, which all queues share.
    pub port: Port,
    /// The receive queues.
    pub queues: Vec<Queue>,
    /// The send queues.
    pub senders: Vec<Sender>,
}

/// A port. When the last of port, queues and senders is dropped, the port is closed and its device removed. Bursts may
/// outlive it.
#[derive(Clone, Debug)]
pub struct Port(Arc<Shared>);

/// A receive queue.
#[derive(Debug)]
pub struct Queue {
    port: Port,
    number: u16,
    pool: Arc<Pool>,
    /// Not zero once a frame has arrived that did not fit in an mbuf.
    large: c_int,
}

/// Counts of a device, as its driver reports them (`struct rte_eth_stats`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Packets that were handed to this process.
    pub received: u64,
    /// Bytes of these packets.
    pub received_bytes: u64,
    /// Packets that arrived while the device's ring was full.
    pub missed: u64,
    /// Packets that were damaged.
    pub errors: u64,
    /// Number of failed attempts to get memory. With some drivers each is a lost packet, with others a late one.
    pub no_memory: u64,
    /// Packets that the device sent.
    pub sent: u64,
    /// Bytes of these packets.
    pub sent_bytes: u64,
    /// Packets that the device could not send.
    pub send_errors: u64,
}

#[derive(Debug)]
struct Shared {
    number: u16,
    name: String,
    eal: &'static Eal,
    about: raw::About,
    promiscuous: bool,
    spread: bool,
    descriptors: u16,
    sockets: Sockets,
    // The device points into the pools until it is closed. Fields are dropped after `drop` has run.
    pools: Vec<Arc<Pool>>,
}

/// A device as the user named it.
struct Device<'a> {
    /// The text up to the first comma.
    name: &'a str,
    /// The whole text, with arguments that this crate adds.
    full: String,
    is_pci: bool,
}

impl<'a> Device<'a> {
    fn parse(text: &'a str, queues: u16) -> Result<Self, Error> {
        let (name, arguments) = text.split_once(',').unwrap_or((text, ""));
        let is_name = !name.is_empty()
            && name
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"_.:-".contains(&b));
        if !is_name || text.contains('\0') {
            return Err(Error::Name(text.to_owned()));
        }
        let keys: Vec<&str> = arguments
            .split(',')
            .filter_map(|one| one.split('=').next())
            .collect();
        if (name.starts_with("net_af_packet") || name.starts_with("net_af_xdp"))
            && !keys.contains(&"iface")
        {
            return Err(Error::NoInterface(name.to_owned()));
        }
        let mut full = text.to_owned();
        if name.starts_with("net_af_packet") {
            if !["blocksz", "framesz", "framecnt"]
                .iter()
                .any(|key| keys.contains(key))
            {
                // The driver's default ring of 512 frames loses packets of any burst.
                full.push_str(",blocksz=1048576,framesz=2048,framecnt=65536");
            }
            if queues > 1 && !keys.contains(&"qpairs") {
                full.push_str(&format!(",qpairs={queues}"));
            }
        }
        // A PCI address: 0000:01:00.0 or 01:00.0.
        let is_pci = name
            .rsplit_once('.')
            .is_some_and(|(_, function)| function.parse::<u8>().is_ok())
            && name
                .split([':', '.'])
                .all(|part| u32::from_str_radix(part, 16).is_ok())
            && name.contains(':');
        Ok(Self { name, full, is_pci })
    }
}

/// Opens and starts a device: its DPDK name, or a PCI address, followed by its driver's arguments
/// after commas (`net_af_packet0,iface=eth1`).
///
/// `net_af_packet` gets a ring of 65536 frames of 2 KiB, because it loses packets with its default ring. Arguments that set the
/// size of the ring take precedence. The driver cuts longer frames.
///
/// **Cost**: the first device starts DPDK (some 100 ms) and its memory; about 39 MiB for each receive queue at the defaults.
/// **Platform**: huge pages if enough are free, otherwise pages of 4 KiB; see [`Eal::pages`].
pub fn open(text: &str, settings: &Settings) -> Result<Opened, Error> {
    let device = Device::parse(text, settings.queues)?;
    let receiving = Wanted {
        count: settings.mbufs.max(Pool::least(DESCRIPTORS.into())),
        room: ROOM,
        device: DESCRIPTORS.into(),
        slots: true,
        socket: -1,
    };
    let sending = Wanted {
        count: SENDING,
        room: ROOM,
        device: 0,
        slots: false,
        socket: -1,
    };
    let bytes = usize::from(settings.queues) * receiving.bytes()
        + usize::from(settings.senders.min(1)) * sending.bytes();
    let eal = Eal::get(bytes, device.is_pci.then_some(device.full.as_str()))?;
    if device.is_pci && !eal.has_pci() {
        return Err(Error::WithoutPci {
            device: device.name.to_owned(),
        });
    }
    let control = eal.control();
    let before = Sockets::all();
    let number = probe(&device)?;
    // From here on, the port is closed if a step fails.
    let mut port = Shared {
        number,
        name: device.name.to_owned(),
        eal,
        about: raw::About::default(),
        promiscuous: false,
        spread: false,
        descriptors: DESCRIPTORS,
        sockets: Sockets::none(),
        pools: Vec::new(),
    };
    let done = port.set_up(settings, &receiving, &sending);
    if port.driver() == "net_af_packet" {
        port.sockets = Sockets::since(&before, port.about.if_index);
    }
    // Released first, because closing a port takes the lock too.
    drop(control);
    done?;
    let (pools, queues) = (port.pools.clone(), usize::from(settings.queues));
    let port = Port(Arc::new(port));
    let queue = |(number, pool): (u16, &Arc<Pool>)| Queue {
        port: port.clone(),
        number,
        pool: Arc::clone(pool),
        large: 0,
    };
    let receivers = (0..).zip(&pools[..queues]).map(queue).collect();
    let sender = |number| Sender::new(port.clone(), number, Arc::clone(&pools[queues]));
    let senders = (0..settings.senders).map(sender).collect();
    Ok(Opened {
        port,
        queues: receivers,
        senders,
    })
}

/// Finds the device's port, attaching the device if necessary.
fn probe(device: &Device<'_>) -> Result<u16, Error> {
    let name = CString::new(device.name).expect("looked at when it was parsed");
    let find = || {
        let mut number = 0;
        // SAFETY: the name ends with NUL, and the number is a live local.
        let found = unsafe { raw::rte_eth_dev_get_port_by_name(name.as_ptr(), &raw mut number) };
        (found == 0).then_some(number)
    };
    if let Some(number) = find() {
        return Ok(number);
    }
    let full = CString::new(device.full.as_str()).expect("looked at when it was parsed");
    // SAFETY: the text ends with NUL; only one thread at a time runs this.
    let probed = unsafe { raw::rte_dev_probe(full.as_ptr()) };
    let failed = |said| Error::Device {
        device: device.full.clone(),
        said,
    };
    if probed < 0 {
        // Texts that DPDK adds to each message; for some failures they are the only ones.
        let general = ["Driver cannot attach", "Failed to attach"];
        let said = said(probed);
        let of_driver: Vec<&str> = said
            .split("; ")
            .filter(|line| !general.iter().any(|start| line.starts_with(start)))
            .collect();
        return Err(failed(if of_driver.is_empty() {
            "its driver refuses these arguments, or cannot have what they name".to_owned()
        } else {
            of_driver.join("; ")
        }));
    }
    find().ok_or_else(|| failed("the device has no port of its name".to_owned()))
}

impl Shared {
    fn set_up(
        &mut self,
        settings: &Settings,
        receiving: &Wanted,
        sending: &Wanted,
    ) -> Result<(), Error> {
        let number = self.number;
        let Settings {
            queues, senders, ..
        } = *settings;
        // SAFETY: the port exists; the structure is a live local of the shim's layout.
        let told = unsafe { raw::weir_port_about(number, &raw mut self.about) };
        self.check("its properties", told)?;
        for (what, has, asked) in [
            ("receive", self.about.rx_queues, queues),
            ("send", self.about.tx_queues, senders),
        ] {
            if asked > has {
                return Err(Error::Queues {
                    device: self.name.clone(),
                    what,
                    has,
                    asked,
                });
            }
        }
        let socket = self.about.socket;
        // With this size, jumbo frames fit in an mbuf if the device is set to them.
        let room = receiving
            .room
            .max((u32::from(self.about.mtu) + 64).next_multiple_of(64));
        for _ in 0..queues {
            self.add_pool(&Wanted {
                room,
                socket,
                ..*receiving
            })?;
        }
        if senders > 0 {
            self.add_pool(&Wanted {
                room,
                socket,
                ..*sending
            })?;
        }
        let pools: Vec<*const raw::Pool> = self.pools.iter().map(|pool| pool.raw()).collect();
        let mut spread: c_int = 0;
        // SAFETY: there is a pool for each receive queue, and the pools live as long as the port; the others are live locals.
        let done = unsafe {
            let descriptors = &raw mut self.descriptors;
            raw::weir_port_set_up(
                number,
                queues,
                senders,
                descriptors,
                pools.as_ptr(),
                &raw mut spread,
            )
        };
        self.check("setting up its queues", done)?;
        self.spread = spread != 0;
        // SAFETY: the port is set up.
        self.check("starting it", unsafe { raw::rte_eth_dev_start(number) })?;
        if settings.promiscuous {
            // SAFETY: the port runs.
            self.promiscuous = unsafe { raw::rte_eth_promiscuous_enable(number) } == 0;
        }
        Ok(())
    }

    fn add_pool(&mut self, wanted: &Wanted) -> Result<(), Error> {
        let memory = |code| Error::Memory {
            device: self.name.clone(),
            bytes: wanted.bytes(),
            pages: self.eal.pages(),
            said: said(code),
        };
        let pool = Pool::new(&self.eal.pool_name(), wanted).map_err(memory)?;
        self.pools.push(Arc::new(pool));
        Ok(())
    }

    fn check(&self, what: &'static str, code: c_int) -> Result<(), Error> {
        if code < 0 {
            Err(Error::Setup {
                device: self.name.clone(),
                what,
                said: said(code),
            })
        } else {
            Ok(())
        }
    }

    fn driver(&self) -> String {
        let name = self
            .about
            .driver
            .split(|&byte| byte == 0)
            .next()
            .unwrap_or_default();
        String::from_utf8_lossy(name).into_owned()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let _control = self.eal.control();
        // SAFETY: the port is ours; the queues and senders that use it hold it, so they are gone.
        unsafe {
            if self.promiscuous {
                raw::rte_eth_promiscuous_disable(self.number);
            }
            raw::weir_port_close(self.number);
        }
    }
}

impl Port {
    /// Name of the driver.
    pub fn driver(&self) -> String {
        self.0.driver()
    }

    /// Name of the device.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// DPDK's environment.
    pub fn eal(&self) -> &'static Eal {
        self.0.eal
    }

    /// Whether the device receives packets for other addresses too; `false` if it cannot be set to do so.
    pub fn is_promiscuous(&self) -> bool {
        self.0.promiscuous
    }

    /// Whether the device spreads flows over its queues by their hash (RSS). A driver may do so without reporting it.
    pub fn spreads(&self) -> bool {
        self.0.spread
    }

    /// Number of packets in a queue's ring in the device.
    pub fn descriptors(&self) -> u16 {
        self.0.descriptors
    }

    /// Index of the kernel's interface under the device, if it has one.
    pub fn interface(&self) -> Option<u32> {
        Some(self.0.about.if_index).filter(|&index| index != 0)
    }

    /// Counts of the device since it was opened. **Errors**: the driver has no counters.
    pub fn stats(&self) -> io::Result<Stats> {
        let mut found = raw::Stats::default();
        // SAFETY: the port exists, the structure is a live local of the shim's layout.
        let done = unsafe { raw::weir_port_stats(self.0.number, &raw mut found) };
        if done < 0 {
            return Err(io::Error::from_raw_os_error(-done));
        }
        Ok(Stats {
            received: found.ipackets,
            received_bytes: found.ibytes,
            missed: found.imissed,
            errors: found.ierrors,
            no_memory: found.rx_nombuf,
            sent: found.opackets,
            sent_bytes: found.obytes,
            send_errors: found.oerrors,
        })
    }

    /// All other counts of the driver, by its own names; empty if there are none.
    pub fn more_stats(&self) -> BTreeMap<String, u64> {
        let number = self.0.number;
        // SAFETY: no room is given, so nothing is written: the call returns the number of counts.
        let count =
            unsafe { raw::rte_eth_xstats_get(number, std::ptr::null_mut(), 0) }.max(0) as usize;
        let (mut values, mut names) = (vec![raw::Xstat::default(); count], vec![[0u8; 64]; count]);
        // SAFETY: as many elements as stated, of the layouts in rte_ethdev.h; both calls write at most that many.
        let got = unsafe {
            let named = raw::rte_eth_xstats_get_names(number, names.as_mut_ptr(), count as u32);
            named.min(raw::rte_eth_xstats_get(
                number,
                values.as_mut_ptr(),
                count as u32,
            ))
        };
        let name = |bytes: &[u8; 64]| {
            String::from_utf8_lossy(bytes.split(|&b| b == 0).next().unwrap_or_default())
                .into_owned()
        };
        let got = usize::try_from(got).unwrap_or(0).min(count);
        values[..got]
            .iter()
            .filter_map(|one| Some((name(names.get(one.id as usize)?), one.value)))
            .collect()
    }

    /// Counts of the kernel at the driver's own sockets since the last call. `None` if the driver has no sockets, or the
    /// kernel no such counts.
    ///
    /// `net_af_packet` does not read these counts, and loses packets silently.
    pub fn kernel(&self) -> Option<Kernel> {
        self.0.sockets.counts()
    }

    /// Makes the kernel reject all further packets at the driver's sockets; `false` if that is impossible.
    pub fn reject(&self) -> bool {
        self.0.sockets.reject()
    }

    /// A line about the environment: version, driver, pages.
    pub fn describe(&self) -> String {
        let pages = match self.eal().pages() {
            Pages::Huge => "huge pages".to_owned(),
            small @ Pages::Small(_) => {
                let bytes = self.0.pools.iter().map(|pool| pool.area().1).sum();
                format!("pages of 4 KiB{}", small.remedy(bytes))
            }
        };
        let promiscuous = if self.is_promiscuous() {
            "promiscuous"
        } else {
            "not promiscuous"
        };
        format!(
            "{} {}, {promiscuous}, {pages}",
            self.eal().version(),
            self.driver()
        )
    }

    pub(crate) fn number(&self) -> u16 {
        self.0.number
    }
}

impl Queue {
    /// The port of the queue.
    pub fn port(&self) -> &Port {
        &self.port
    }

    /// Index of the queue.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// An empty burst for this queue.
    ///
    /// **Cost**: two allocations, 4 KiB.
    pub fn burst(&self) -> Burst {
        Burst::new(&self.pool)
    }

    /// Whether bursts hold so many packets that nothing is received until some are given back. In
    /// the meantime, arriving packets wait in the device, which counts those that it has no room
    /// for.
    pub fn is_waiting(&self) -> bool {
        !self.pool.can_lend() || self.large != 0 && self.pool.free_slots() == 0
    }

    /// Gives back the packets of `burst` and fills it with arrived ones, up to [`MOST`]. Returns their number, without waiting.
    ///
    /// **Cost**: one call of the driver for each 64 packets. A calling thread gets a thread number of DPDK, of which there
    /// are 127, until it ends.
    /// **Panics**: the burst belongs to another queue.
    #[inline]
    pub fn receive(&mut self, burst: &mut Burst) -> usize {
        assert!(
            burst.is_of(&self.pool),
            "a burst is used with the queue that made it"
        );
        burst.clear();
        if !self.pool.can_lend() {
            return 0;
        }
        let (port, queue, large) = (self.port.number(), self.number, &raw mut self.large);
        // SAFETY: the queue is set up and runs while the port is held; `&mut self` is its only reader. There is room for
        // `MOST` mbufs and places.
        unsafe {
            burst.fill(|pool, slots, mbufs, places, found| {
                raw::weir_receive(
                    port,
                    queue,
                    pool.raw(),
                    slots,
                    MOST as u32,
                    large,
                    mbufs,
                    places,
                    found,
                );
            });
        }
        burst.len()
    }

    #[cfg(feature = "bench")]
    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }
}

#[cfg(test)]
mod tests {
    use super::Device;

    #[test]
    fn devices_are_told_apart_by_their_names() {
        let full = |text, queues| {
            Device::parse(text, queues)
                .map(|device| (device.full, device.is_pci))
                .unwrap()
        };
        let ring = "blocksz=1048576,framesz=2048,framecnt=65536";
        for (text, queues, expected, pci) in [
            ("0000:01:00.0", 1, "0000:01:00.0".to_owned(), true),
            ("01:00.1,rx=4", 1, "01:00.1,rx=4".to_owned(), true),
            ("net_null0,copy=1", 3, "net_null0,copy=1".to_owned(), false),
            (
                "net_af_packet0,iface=a",
                1,
                format!("net_af_packet0,iface=a,{ring}"),
                false,
            ),
            (
                "net_af_packet0,iface=a",
                2,
                format!("net_af_packet0,iface=a,{ring},qpairs=2"),
                false,
            ),
            (
                "net_af_packet0,iface=a,framecnt=8",
                1,
                "net_af_packet0,iface=a,framecnt=8".to_owned(),
                false,
            ),
        ] {
            assert_eq!(full(text, queues), (expected, pci), "{text}");
        }
        for text in ["", ",iface=a", "a b", "a\0"] {
            assert!(Device::parse(text, 1).is_err(), "{text:?}");
        }
    }
}
