//! `inject:IF` as a port: frames that an interface seems to receive.

use super::{Counts, PortError, check_interface};
use hdrhistogram::Histogram;
use std::io;
use std::net::IpAddr;
use std::time::Duration;
use weir_io::network::Network;
use weir_io::sys::inject;

/// Time before a frame is due at which it is handed to the ring of an injection.
pub(super) const LEAD: Duration = Duration::from_millis(5);

/// Live frames of an injection that end together: few of them if packets have times, since a packet waits for the end of its batch (some 0.1 us).
const TOGETHER: u32 = 64;
const TOGETHER_PACED: u32 = 4;

/// Way to inject packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Injecting {
    /// Whether this host handles them, although the interface has an address.
    pub to_stack: bool,
    /// Whether packets have times: more exact, and each packet costs more.
    pub is_paced: bool,
}

/// Frames injected into an interface.
pub(super) struct Injection {
    ring: inject::Ring,
    /// Frames that were handed to the ring, and refused ones.
    counts: Counts,
    drops: bool,
}

impl Injection {
    pub(super) fn open(interface: &str, way: Injecting) -> Result<Self, PortError> {
        let mode = injection_mode(interface, way.to_stack)?;
        let together = match way.is_paced {
            true => TOGETHER_PACED,
            false => TOGETHER,
        };
        Ok(Self {
            ring: inject::Ring::open(interface, mode, together)?,
            counts: Counts::default(),
            drops: mode == inject::Mode::Drop,
        })
    }

    /// Whether frames are counted and dropped.
    pub(super) fn drops(&self) -> bool {
        self.drops
    }

    /// Waits until the kernel is ready for the first frame.
    pub(super) fn start(&mut self) -> io::Result<()> {
        self.ring.start()
    }

    /// Returns an error if the kernel injects no more.
    pub(super) fn check(&self) -> io::Result<()> {
        self.ring.check()
    }

    /// See [`Port::lateness`](super::Port::lateness).
    pub(super) fn lateness(&self) -> &Histogram<u64> {
        self.ring.lateness()
    }

    /// Waits until the kernel has handled all frames.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        self.ring.drain()
    }

    /// Takes a frame for this time, ns of CLOCK_MONOTONIC.
    pub(super) fn take(&mut self, frame: &[u8], due_ns: u64) -> io::Result<()> {
        let done = self.push(frame, due_ns);
        self.ring.publish();
        done
    }

    pub(super) fn send(&mut self, frames: &[&[u8]]) -> io::Result<()> {
        for (i, frame) in frames.iter().enumerate() {
            if let Err(error) = self.push(frame, 0) {
                // The first of them is counted.
                self.counts.failed += (frames.len() - i - 1) as u64;
                return Err(error);
            }
        }
        self.ring.publish();
        Ok(())
    }

    fn push(&mut self, frame: &[u8], due_ns: u64) -> io::Result<()> {
        if frame.len() > inject::LONGEST {
            self.counts.too_long += 1;
            return Ok(());
        }
        let done = self.ring.push(frame, due_ns);
        match done {
            Ok(()) => {
                self.counts.sent += 1;
                self.counts.bytes += frame.len() as u64;
            }
            Err(_) => self.counts.failed += 1,
        }
        done
    }

    /// Frames that the kernel did not take are not sent; their bytes are not known.
    pub(super) fn counts(&self) -> Counts {
        let (received, mut failed) = self.ring.counts();
        if self.ring.check().is_err() {
            // Frames that wait in the ring when the call of the kernel ends leave no more.
            failed = self.counts.sent.saturating_sub(received);
        }
        Counts {
            sent: self.counts.sent.saturating_sub(failed),
            failed: self.counts.failed + failed,
            ..self.counts
        }
    }
}

/// Verdict on frames that are injected into an interface. They go to this host; if the interface has an address and `to_stack` is not set,
/// they are counted and dropped. **Errors**: no such interface; the interface is down, or has an XDP program.
pub fn injection_mode(interface: &str, to_stack: bool) -> Result<inject::Mode, PortError> {
    check_interface(interface)?;
    let network = Network::read().unwrap_or_default();
    let found = network.named(interface).ok_or(PortError::NoInterface)?;
    if found.has_xdp {
        return Err(PortError::HasXdp);
    }
    // Each interface that is up has an address of its link.
    let is_own = |address: &IpAddr| match address {
        IpAddr::V4(_) => true,
        IpAddr::V6(address) => !address.is_unicast_link_local(),
    };
    let mut addresses = network.addresses.iter();
    let has_address = addresses.any(|(address, index)| *index == found.index && is_own(address));
    Ok(match has_address && !to_stack {
        true => inject::Mode::Drop,
        false => inject::Mode::Pass,
    })
}
