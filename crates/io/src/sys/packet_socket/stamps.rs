//! Clocks that timestamp packets.

use super::Error;
use super::options::request_for;
use crate::sys::option::set_option;
use std::ffi::c_int;
use std::os::fd::{AsRawFd, OwnedFd};

/// Clock that timestamps packets. All timestamps are in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stamps {
    /// The kernel's clock, when the kernel first handles the packet.
    #[default]
    Software,
    /// The card's clock, when the packet arrives, if card and driver timestamp all packets; else
    /// the kernel's clock.
    ///
    /// The card keeps stamping after the capture has ended. Its clock is right only if a program
    /// such as ptp4l or phc2sys sets it. Packets without a timestamp of the card, such as sent
    /// packets, have the kernel's timestamp.
    Hardware,
}

/// `SIOCGHWTSTAMP` of linux/sockios.h.
const SIOCGHWTSTAMP: libc::Ioctl = 0x89b1;
const SIOCSHWTSTAMP: libc::Ioctl = 0x89b0;

/// `HWTSTAMP_FILTER_ALL` of linux/net_tstamp.h.
const ALL: c_int = 1;

/// `struct hwtstamp_config`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Config {
    flags: c_int,
    sent: c_int,
    received: c_int,
}

impl Stamps {
    /// Requests the timestamps; returns a description of the timestamps that packets will have.
    pub(super) fn ask(self, name: &str, socket: &OwnedFd) -> Result<&'static str, Error> {
        if self == Self::Software {
            return Ok("stamps of the kernel");
        }
        if !stamps_all(name, socket) {
            return Ok("stamps of the kernel (the card has none for all packets)");
        }
        let whose = libc::SOF_TIMESTAMPING_RAW_HARDWARE as c_int;
        set_option(socket, libc::SOL_PACKET, libc::PACKET_TIMESTAMP, &whose).map_err(|error| {
            Error::System {
                what: "PACKET_TIMESTAMP",
                error,
            }
        })?;
        Ok("stamps of the card")
    }
}

/// Makes the card timestamp all received packets; its setting for sent packets stays unchanged.
fn stamps_all(name: &str, socket: &OwnedFd) -> bool {
    let mut config = Config::default();
    if exchange(name, socket, SIOCGHWTSTAMP, &mut config) && config.received == ALL {
        return true;
    }
    config.received = ALL;
    exchange(name, socket, SIOCSHWTSTAMP, &mut config) && config.received == ALL
}

fn exchange(name: &str, socket: &OwnedFd, command: libc::Ioctl, config: &mut Config) -> bool {
    let mut request = request_for(name);
    request.ifr_ifru.ifru_data = std::ptr::from_mut(config).cast();
    // SAFETY: the request is a live local; both commands read and write the live structure that it points to.
    unsafe { libc::ioctl(socket.as_raw_fd(), command, &raw mut request) == 0 }
}
