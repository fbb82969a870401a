//! Health of the packets of a source, and the names in them, in its order.
//!
//! The rules compare each packet with earlier ones of its conversation. So with several workers, the thread that delivers the pieces
//! looks at them, in order, before the workers get them; the workers of a capture each look at the packets of their own queue, and
//! the kernel gives both directions of a conversation to one queue.

use super::worker::Piece;
use std::collections::BTreeMap;
use weir_measure::Windowing;
use weir_measure::health::{Config, Health, Report};
use weir_packet::transport::Transport;

/// Number of packets whose table lines are prefetched together.
const TOGETHER: usize = 16;

/// Health of the packets of one or more sources, one after another.
#[derive(Debug)]
pub(super) struct Lane {
    health: Health,
    windowing: Windowing,
    /// Number of the current window.
    window: i64,
    /// Time at which the current window ends, ns; the least time if there is none yet.
    ends_at: i64,
    /// Whether the current window has packets.
    is_begun: bool,
    /// Time of the latest packet, for packets without one, ns; 0 if no packet had one.
    latest_ns: i64,
    /// Reports of windows that were not taken.
    ended: BTreeMap<i64, Report>,
}

/// Reports that may wait to be taken, with live sources that nothing waits for. Beyond it, the oldest is discarded.
const MOST_WAITING: usize = 1 << 12;

impl Lane {
    pub fn new(config: &Config, windowing: Windowing) -> Self {
        let windows = windowing.window_ns.is_some();
        let config = Config { windows, ..*config };
        Self {
            health: Health::new(&config),
            windowing,
            window: i64::MIN,
            ends_at: i64::MIN,
            is_begun: false,
            latest_ns: 0,
            ended: BTreeMap::new(),
        }
    }

    /// Looks at the packets of a piece that pass. The windows end where their packets do: a packet that is late belongs to the current
    /// window here.
    pub fn piece(&mut self, piece: &Piece) {
        let (current, part) = (&piece.delivery.current, &piece.delivery.part);
        let plan = &current.plan;
        let content = piece.delivery.view.content();
        let mut jumped = piece.jumped.iter().copied().peekable();
        let mut done = 0;
        for records in part.records[piece.range.clone()].chunks(TOGETHER) {
            let judged = (!part.passed.is_empty())
                .then(|| part.passed.get(piece.range.start + done, records.len()));
            let mut packets = [const { None }; TOGETHER];
            current.layout.records(content, records, |i, record| {
                let is_jump = jumped.next_if_eq(&(done + i)).is_some();
                let Some(record) = record else { return };
                if !judged.map_or_else(|| plan.passes(&record.frame), |judged| judged >> i & 1 == 1)
                {
                    return;
                }
                let parser = plan.parsers.get(record.frame.interface as usize);
                let Some(Some(parser)) = parser else { return };
                let Ok(transport) = Transport::of(parser, &record.frame) else {
                    return;
                };
                let hash = self.health.prefetch(&transport.key);
                packets[i] = Some((transport, hash, record.time_ns, is_jump));
            });
            for (transport, hash, ..) in packets.iter().flatten() {
                self.health.prefetch_more(&transport.key, *hash);
            }
            for (transport, hash, time_ns, is_jump) in packets.iter().flatten() {
                if let Some(time_ns) = time_ns.filter(|_| !*is_jump) {
                    self.pass(time_ns);
                }
                let time_ns = time_ns.unwrap_or(self.latest_ns);
                self.latest_ns = time_ns;
                self.is_begun = true;
                self.health.take(transport, *hash, time_ns);
            }
            done += records.len();
        }
    }

    /// Moves on to the window of a time.
    #[inline]
    fn pass(&mut self, time_ns: i64) {
        if time_ns >= self.ends_at {
            self.go_on(time_ns);
        }
    }

    #[inline(never)]
    fn go_on(&mut self, time_ns: i64) {
        if self.windowing.window_ns.is_none() {
            return;
        }
        let number = self.windowing.number(time_ns);
        if number > self.window {
            self.end_window();
            self.begin_window(number);
        }
    }

    fn begin_window(&mut self, number: i64) {
        self.window = number;
        self.ends_at = match number {
            i64::MIN => i64::MIN,
            number => self.windowing.span(number).1,
        };
    }

    /// Ends the current window, if it has packets.
    fn end_window(&mut self) {
        if !std::mem::take(&mut self.is_begun) || self.windowing.window_ns.is_none() {
            return;
        }
        let report = self.health.end_window();
        match self.ended.get_mut(&self.window) {
            Some(known) => known.merge(report),
            None => drop(self.ended.insert(self.window, report)),
        }
        if self.ended.len() > MOST_WAITING {
            self.ended.pop_first();
        }
    }

    /// Returns the reports of the windows before number `before`, which are complete. With `i64::MAX`, time may begin again.
    pub fn close(&mut self, before: i64) -> BTreeMap<i64, Report> {
        if self.window < before {
            self.end_window();
        }
        if before == i64::MAX {
            self.begin_window(i64::MIN);
            let mut ended = std::mem::take(&mut self.ended);
            if self.windowing.window_ns.is_none()
                && let Some(names) = self.health.take_names()
            {
                let number = self.windowing.number(self.latest_ns);
                ended.entry(number).or_default().names = Some(names);
            }
            return ended;
        }
        // Late packets belong to an open window.
        self.begin_window(self.window.max(before));
        let later = self.ended.split_off(&before);
        std::mem::replace(&mut self.ended, later)
    }

    /// Returns the health of all packets.
    pub fn total(self) -> Report {
        self.health.total()
    }
}
