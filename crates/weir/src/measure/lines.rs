//! A line each second on the terminal, while a capture goes on whose answer comes at its end.

use crate::terminal::width;
use crate::watch::Links;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_engine::zone::Zone;
use weir_measure::Window;
use weir_packet::addresses::Addresses;
use weir_screen::{About, Status, line};
use weir_view::{Ask, Settings, View};

/// Length of the windows of the lines, and the time that they wait for late packets: none is left out of the answer for them.
pub const EVERY: Duration = Duration::from_secs(1);

/// Columns of a terminal of unknown width.
const USUAL: usize = 80;

/// The lines of a capture.
#[derive(Debug)]
pub struct Lines {
    view: View,
    links: Links,
    zone: Zone,
    is_ascii: bool,
    last_packet: Instant,
}

impl Lines {
    /// Lines about sources, of which `local` is this side.
    pub fn new(
        (links, zone): (Links, Zone),
        local: Option<Arc<Addresses>>,
        is_ascii: bool,
    ) -> Self {
        let settings = Settings {
            local,
            ..Settings::default()
        };
        Self {
            view: View::new(settings),
            links,
            zone,
            is_ascii,
            last_packet: Instant::now(),
        }
    }

    /// Takes a window, and returns its line.
    pub fn line(&mut self, window: &Window<'_>) -> Option<String> {
        self.view.add(window);
        window.span.filter(|_| window.revision == 0)?;
        if window.arrivals.received > 0 {
            self.last_packet = Instant::now();
        }
        let ask = Ask {
            rows: 1,
            changes: 0,
            points: 1,
            ..Ask::default()
        };
        let snapshot = self.view.snapshot(&ask)?;
        let down = self.links.down();
        let status = match self.last_packet.elapsed().as_secs() {
            _ if !down.is_empty() => Status::LinkDown(down.join(" ")),
            quiet if window.arrivals.received == 0 => Status::Idle(quiet),
            _ => Status::Running,
        };
        let arrivals = &snapshot.totals.arrivals;
        let about = About {
            has_sides: arrivals.rx.packets + arrivals.tx.packets + arrivals.local.packets > 0,
            east_s: self.zone.east_s(snapshot.from_ns),
            status,
            ..About::default()
        };
        let columns = width(io::stdout()).unwrap_or(USUAL);
        Some(line(&snapshot, &about, columns.saturating_sub(1), self.is_ascii) + "\n")
    }
}
