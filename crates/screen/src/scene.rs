//! Contents of a screen.

use crate::look::Look;
use crate::ui::Ui;
use weir_messages::viewing::Lacks;
use weir_view::Snapshot;

/// Contents of a screen.
#[derive(Clone, Copy, Debug)]
pub struct Scene<'a> {
    /// The recent past; `None` before the first window.
    pub snapshot: Option<&'a Snapshot>,
    /// Facts about the run.
    pub about: &'a About,
    /// State of the keys.
    pub ui: &'a Ui,
    /// Colours and characters.
    pub look: Look,
}

/// Facts about a run.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// Names of the sources.
    pub sources: String,
    /// Speed of the link in each direction, bit/s, if known.
    pub link_bits_per_s: Option<f64>,
    /// Whether the sources tell the directions of packets.
    pub has_sides: bool,
    /// State of the sources.
    pub status: Status,
    /// Time that the clock shows, ns since 1970.
    pub now_ns: i64,
    /// Time since the run began, s; `None` if the sources are files.
    pub up_s: Option<u64>,
    /// Offset of local time, seconds east of UTC.
    pub east_s: i32,
    /// Dropped packets since the begin, by cause.
    pub losses: Vec<(String, u64)>,
    /// Whether the sources do not tell for some time what was lost.
    pub is_loss_unknown: bool,
    /// Whether a source has no counter of lost packets.
    pub lacks_loss_counter: bool,
    /// Whether counters of lost packets may follow, since the sources are not read to their end.
    pub is_loss_to_come: bool,
    /// Choice of packets that the sources hold, in words; `None`: all.
    pub holds_only: Option<String>,
    /// Whether the sources are captured now.
    pub is_live: bool,
    /// Expression that packets must match; empty: all.
    pub filter: String,
    /// Parts of the screen that the run does not measure.
    pub lacks: Lacks,
    /// The latest message of the run.
    pub message: Option<String>,
}

/// State of the sources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Status {
    /// No window is complete.
    #[default]
    Starting,
    /// Packets arrive.
    Running,
    /// The time without a packet, s.
    Idle(u64),
    /// The time without a complete second of packets in a pipe or in a file that grows, s.
    Waiting(u64),
    /// The interfaces of these names have no carrier.
    LinkDown(String),
    /// A source ended by an error.
    Gone(String),
    /// A source is damaged, and was read up to there.
    Damaged(String),
    /// Another part of the past is read.
    Reading,
    /// All sources were read to their end.
    Ended,
}

impl Status {
    /// A line about the state; `None` if packets arrive.
    pub(crate) fn words(&self) -> Option<String> {
        Some(match self {
            Self::Starting => "starting: the first figures come in about a second".to_owned(),
            Self::Running => return None,
            Self::Idle(seconds) => {
                format!("idle: the link is up, and no packet came for {seconds} s")
            }
            Self::Waiting(seconds) => format!("waiting: no new second of packets for {seconds} s"),
            Self::LinkDown(names) => format!("link down: {names} has no carrier"),
            Self::Gone(why) => format!("gone: {why}"),
            Self::Damaged(why) => format!("read up to an error: {why}"),
            Self::Reading => "reading ...".to_owned(),
            Self::Ended => "all is read: < and > move in time, q ends".to_owned(),
        })
    }

    /// Whether an operator should look at the state.
    pub(crate) fn is_alarm(&self) -> bool {
        matches!(self, Self::LinkDown(_) | Self::Gone(_) | Self::Damaged(_))
    }
}
