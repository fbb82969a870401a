//! Interfaces as sources: settings from the command line, and messages about captures.

use crate::cli::{DirectionArg, FanoutArg, LiveArgs, StampsArg, XdpModeArg, ZeroCopyArg};
use crate::outcome::{io_words, say, say_plain};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use weir_engine::capture::Notice;
pub use weir_engine::capture::{AF_PACKET, CaptureRequest};
use weir_engine::capture::{Direction, FanoutBy, Mode, Settings, Stamps, ZeroCopy};
use weir_engine::name::Name;
use weir_engine::session::Session;
use weir_io::sys::privilege::{self, Capability};
use weir_messages::captures::{self, about, notice_line};
pub use weir_messages::captures::{check_queue, interface, is_file_and_interface, refusal};

/// Capture settings from the command line.
pub fn settings(live: &LiveArgs) -> Settings {
    Settings {
        promiscuous: !live.no_promiscuous,
        direction: match live.direction {
            DirectionArg::In => Direction::In,
            DirectionArg::Out => Direction::Out,
            DirectionArg::Inout => Direction::Both,
        },
        ring: live.ring,
        ring_force: live.ring_force,
        block: live.block,
        fanout: match live.fanout {
            FanoutArg::Hash => FanoutBy::Hash,
            FanoutArg::Cpu => FanoutBy::Cpu,
            FanoutArg::Queue => FanoutBy::Queue,
        },
        stamps: match live.time_stamps {
            StampsArg::Software => Stamps::Software,
            StampsArg::Hardware => Stamps::Hardware,
        },
        kernel_filter: !live.no_kernel_filter,
        wait: live.wait,
        xdp_mode: match live.xdp_mode {
            XdpModeArg::Auto => None,
            XdpModeArg::Native => Some(Mode::Native),
            XdpModeArg::Generic => Some(Mode::Generic),
        },
        zero_copy: match live.zero_copy {
            ZeroCopyArg::Auto => ZeroCopy::Auto,
            ZeroCopyArg::Never => ZeroCopy::Never,
            ZeroCopyArg::Force => ZeroCopy::Force,
        },
        pages: live.ring_pages,
        busy_poll: live.busy_poll,
        retire: None,
    }
}

/// With `--wait`, [names the interfaces](captures::name_awaited) that may still come.
pub fn name_awaited(sources: &mut [Name], live: &LiveArgs) {
    if live.wait {
        captures::name_awaited(sources);
    }
}

/// Opens the captures of a session, if its sources are captured. Returns lines that describe them.
pub fn open(
    session: &mut Session,
    request: &CaptureRequest<'_>,
    stop: &Arc<AtomicBool>,
) -> anyhow::Result<Vec<String>> {
    session.open(request, stop, &mut hear).map_err(refusal)?;
    Ok(about(session))
}

/// Prints a notice of a capture that is opened.
pub fn hear(notice: Notice<'_>) {
    match notice_line(notice) {
        Some((line, true)) => say(&line),
        Some((line, false)) => say_plain(&line),
        None => {}
    }
}

/// Gives up all capabilities but those `kept`. Called once all interfaces are open.
pub fn give_up_privileges(kept: &[Capability]) {
    if let Err(error) = privilege::give_up(kept) {
        say(&format!(
            "capabilities cannot be given up: {}",
            io_words(&error)
        ));
    }
}
