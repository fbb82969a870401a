//! Outputs that keep what they are handed, and end as the case wants it.

use crate::simulated::Packet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use weir_engine::batches::Batch;
use weir_engine::sink::{End, Needs, Packets, Sink, SinkFault, SinkReport, Wanted};
use weir_packet::savefile::{Layout, Record};

/// Plan of an output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    pub wanted: Wanted,
    /// Number of packets after which it is complete.
    pub most: Option<usize>,
    /// Number of packets after which a write fails.
    pub fails: Option<usize>,
    /// Number of packets at which the run is stopped.
    pub stops: Option<usize>,
    /// Number of batches that it keeps, if it keeps any.
    pub keeps: Option<usize>,
}

/// What an output was handed.
#[derive(Debug, Default)]
pub struct Log {
    /// Time, ns, length on the wire, and captured bytes of each packet.
    pub packets: Vec<(Option<i64>, u32, Vec<u8>)>,
    pub finished: u32,
}

impl Log {
    /// Returns the numbers of the packets, after a check of each against the packet of its number.
    pub fn numbers(&self, packet: impl Fn(u32) -> Packet) -> Vec<u32> {
        let number = |(stamp, wire, data): &(Option<i64>, u32, Vec<u8>)| {
            let made = packet(Packet::number_in(data));
            assert_eq!(
                (*stamp, *wire, data),
                (made.stamp, made.bytes, &made.frame())
            );
            made.number
        };
        self.packets.iter().map(number).collect()
    }
}

pub type Shared = Arc<Mutex<Log>>;

/// An output of a plan.
pub struct Outlet {
    pub plan: Plan,
    pub log: Shared,
    pub stop: Arc<AtomicBool>,
    pub kept: Vec<Batch>,
}

impl Sink for Outlet {
    fn packet(&mut self, _: &Layout, record: &Record<'_>) -> Result<(), End> {
        let mut log = self.log.lock().unwrap();
        let written = log.packets.len();
        if self.plan.most == Some(written) {
            return Err(End::Complete);
        }
        if self.plan.fails == Some(written) {
            return Err(End::Failed(SinkFault::Said("no room is left".to_owned())));
        }
        if self.plan.stops == Some(written) {
            self.stop.store(true, Ordering::Relaxed);
        }
        let frame = record.frame;
        log.packets
            .push((record.time_ns, frame.wire_len, frame.data.to_vec()));
        Ok(())
    }

    fn batch(&mut self, packets: &Packets<'_>) -> (u64, Result<(), End>) {
        if let Some(keeps) = self.plan.keeps {
            if self.kept.len() > keeps {
                self.kept.remove(0);
            }
            self.kept.push(packets.keep());
        }
        packets.hand_on(|record| self.packet(packets.layout(), record))
    }

    fn needs(&self) -> Needs {
        Needs {
            wanted: self.plan.wanted,
            ends: true,
            has_files: false,
        }
    }

    fn flush(&mut self) -> Result<(), End> {
        Ok(())
    }

    fn finish(&mut self, _: Option<&Layout>, _: bool) -> Result<(), End> {
        self.log.lock().unwrap().finished += 1;
        self.kept.clear();
        Ok(())
    }

    fn report(&self) -> SinkReport {
        SinkReport {
            taken: self.log.lock().unwrap().packets.len() as u64,
            ..SinkReport::default()
        }
    }
}
