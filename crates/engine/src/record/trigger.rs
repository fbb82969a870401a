//! Triggers: conditions on which packets are saved, including earlier packets.

use serde_json::{Map, Value, json};
use std::path::PathBuf;
use std::time::Duration;
use weir_measure::{By, KeyKind};

/// A trigger.
#[derive(Clone, Debug)]
pub struct Trigger {
    /// Name; part of the names of its files.
    pub name: String,
    /// Condition.
    pub condition: Condition,
    /// Time before the firing from which on packets are saved.
    pub before: Duration,
    /// Time after the firing up to which packets are saved.
    pub after: Duration,
    /// Packets to save.
    pub keep: Keep,
    /// Time after a file is complete before the trigger can fire again.
    pub cooldown: Duration,
    /// Largest length of a file, bytes.
    pub max_bytes: u64,
    /// Largest number of files; then the trigger does not fire any more.
    pub max_files: u64,
}

impl Default for Trigger {
    fn default() -> Self {
        Self {
            name: "manual".to_owned(),
            condition: Condition::Asked,
            before: Duration::from_secs(10),
            after: Duration::from_secs(5),
            keep: Keep::All,
            cooldown: Duration::ZERO,
            max_bytes: 1 << 30,
            max_files: 1000,
        }
    }
}

/// Times around a firing: packets of these times are saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Time before the firing.
    pub before: Duration,
    /// Time after the firing.
    pub after: Duration,
}

/// Whether a trigger may have this name: a part of the names of its files.
pub fn is_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=64).contains(&name.len()) && name.bytes().all(is_plain)
}

/// Condition of a trigger. Each trigger can also be fired by [`Handle::fire`](super::Handle::fire).
#[derive(Clone, Debug, PartialEq)]
pub enum Condition {
    /// No condition of its own.
    Asked,
    /// A packet matches a tcpdump expression.
    Matches(String),
    /// The packets of a key in a sliding window exceed a threshold.
    Exceeds(Threshold),
    /// A source scans: it has many contacts of which most stay unanswered or are refused.
    Scan,
    /// An interval has passed, counted from the start on.
    Every(Duration),
}

/// Condition on the packets of a key in a window of time that slides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Threshold {
    /// Key of the packets.
    pub key: Key,
    /// Measured figure of the key.
    pub figure: Figure,
    /// Value that must be exceeded.
    pub above: f64,
    /// Length of a window. For figures that count different elements, it is at least [`Figure::LEAST_WINDOW`].
    pub window: Duration,
}

/// Key by which a threshold counts. Each key fires by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// All packets together.
    Total,
    /// A part of a packet, under which a measurement also counts it; for both of its ends, if the kind does.
    Of(KeyKind),
}

/// Figure that a threshold is about.
///
/// The elements of a source or a prefix of sources lie at the destination of its packets: addresses, ports, or both. The elements of
/// a destination, and of all packets together, are source addresses and destination ports. [`By`] says which keys have elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// Packets per second.
    Packets,
    /// Wire bits per second, without FCS and preamble.
    Bits,
    /// Packets in this window divided by packets in the previous window, once this window has at
    /// least 100.
    Growth,
    /// Different addresses at the other end.
    Peers,
    /// Different destination ports, each with its protocol.
    Ports,
    /// Different addresses at the other end, each with a destination port and a protocol.
    Contacts,
}

impl Figure {
    /// The shortest window of figures that count different elements.
    pub const LEAST_WINDOW: Duration = Duration::from_millis(100);

    /// The figure of a measurement with the same elements, if the figure is a number of different elements, which a sample estimates.
    pub fn elements(self) -> Option<By> {
        match self {
            Self::Packets | Self::Bits | Self::Growth => None,
            Self::Peers => Some(By::Peers),
            Self::Ports => Some(By::Ports),
            Self::Contacts => Some(By::Contacts),
        }
    }
}

/// Packets that a trigger saves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Keep {
    /// All packets.
    #[default]
    All,
    /// Both directions of the 5-tuple of the packet that fired.
    Flow,
    /// Packets from and to the source address of the packet that fired, or the address that a threshold counted.
    Host,
    /// Packets that match a tcpdump expression.
    Matches(String),
}

/// Reason for which a trigger does not fire.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotFired {
    /// The packets that it saves now are not after it yet.
    #[error("a file of it is being written; it is armed again in {0:.1?}")]
    Saving(Duration),
    /// No packet has arrived, and the packets of files tell the time.
    #[error("no packet has come yet")]
    Early,
    /// The time after a file has not passed.
    #[error("it is in its cooldown, and armed again in {0:.1?}")]
    Resting(Duration),
    /// Number of saved files, when it is as many as may be.
    #[error("it has saved {0} files, as many as it may")]
    Spent(u64),
    /// As many files are being written as may be at a time.
    #[error("{0} files are being written, as many as may be at a time")]
    Busy(usize),
    /// No file can be made.
    #[error("no file can be made: {0}")]
    Failed(String),
}

/// Reason for which no trigger can be asked to fire.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotAsked {
    /// There is no trigger of this name.
    #[error("there is no trigger {0}")]
    Unknown(String),
    /// The recording has ended.
    #[error("the recording has ended")]
    Ended,
    /// The trigger thread did not answer in time.
    #[error("the triggers do not answer")]
    Silent,
}

/// Triggers that were asked to fire, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Names of the triggers that fired.
    pub fired: Vec<String>,
    /// Names of the triggers that did not, with the reasons.
    pub refused: Vec<(String, NotFired)>,
}

impl Asked {
    /// The triggers that did not fire, with the reasons, as text; empty if all fired.
    pub fn refusals(&self) -> String {
        let text = self
            .refused
            .iter()
            .map(|(name, why)| format!("trigger {name} does not fire: {why}"));
        text.collect::<Vec<_>>().join("; ")
    }

    /// Returns the triggers as JSON. **Errors**: none fired, for these reasons.
    pub fn json(&self) -> Result<Value, String> {
        if self.fired.is_empty() {
            return Err(self.refusals());
        }
        let refused = self
            .refused
            .iter()
            .map(|(name, why)| (name.clone(), why.to_string().into()));
        Ok(json!({ "fired": self.fired, "refused": refused.collect::<Map<_, _>>() }))
    }
}

/// A file that a trigger saved, or failed to save.
#[derive(Debug)]
pub struct Saved {
    /// Name of the trigger.
    pub trigger: String,
    /// Event that fired the trigger, as text.
    pub cause: String,
    /// The file.
    pub path: PathBuf,
    /// Number of packets in the file.
    pub packets: u64,
    /// Remarks that the file also holds as comments: loss in its span, packets no longer in the ring, the limit of its size.
    pub remarks: Vec<String>,
    /// Packets that left the ring, or could not be read there, before they were saved.
    pub missed: u64,
    /// Error that ended the file; the packets before it are kept.
    pub error: Option<std::io::Error>,
}
