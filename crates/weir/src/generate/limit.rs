//! The end of a generated load.

use crate::cli::GenerateArgs;
use crate::numbers::{asked_time, grouped};
use crate::port;
use anyhow::bail;
use std::time::Duration;

/// Packets of a file, and of the port `null`, without `--packets`.
const PACKETS: u64 = 1_000_000;

/// Time for which an interface sends without another limit: a load that was started by mistake ends by itself.
const TIME: Duration = Duration::from_secs(60);

/// Packets and time after which a load ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Number of packets; `u64::MAX` stands for no limit.
    pub packets: u64,
    /// Time in which they are sent.
    pub time: Option<Duration>,
}

impl Limit {
    /// The limit of a command, whose profile may have a number of packets. **Errors**: a time for a file.
    pub fn of(arguments: &GenerateArgs, of_profile: Option<u64>) -> anyhow::Result<Self> {
        let GenerateArgs {
            sink,
            packets,
            duration,
            forever,
            ..
        } = arguments;
        let packets = packets.or(of_profile);
        if !port::is_port(sink) {
            if duration.is_some() || *forever {
                bail!(
                    "--duration and --forever are about ports: a file ends with the last of its --packets"
                );
            }
            return Ok(Self {
                packets: packets.unwrap_or(PACKETS),
                time: None,
            });
        }
        if duration.is_some_and(|time| time.is_zero()) {
            bail!("--duration 0s: nothing would be sent");
        }
        let is_bounded = packets.is_some() || duration.is_some() || *forever;
        Ok(match is_bounded {
            true => Self {
                packets: packets.unwrap_or(u64::MAX),
                time: *duration,
            },
            false if port::is_null(sink) => Self {
                packets: PACKETS,
                time: None,
            },
            false => Self {
                packets: u64::MAX,
                time: Some(TIME),
            },
        })
    }

    /// Words for the end: `for 60s`, `1 000 packets`, `until interrupted`.
    pub fn words(&self) -> String {
        let packets = format!("{} packets", grouped(self.packets));
        match (self.packets, self.time) {
            (u64::MAX, None) => "until interrupted".to_owned(),
            (u64::MAX, Some(time)) => format!("for {}", asked_time(time)),
            (_, None) => packets,
            (_, Some(time)) => format!("{packets} in at most {}", asked_time(time)),
        }
    }
}
