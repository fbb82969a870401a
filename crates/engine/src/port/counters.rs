//! Counters of the kernel for interfaces.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use weir_io::network::Network;

/// Longest list, bytes: for some 10 000 interfaces.
const LONGEST: usize = 1 << 20;

/// Counters of an interface since its beginning, of all programs together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Arriving frames with errors, dropped frames, and frames lost in a queue of the device.
    pub received: [u64; 3],
    /// The same for frames to send.
    pub sent: [u64; 3],
}

/// The counters of all interfaces of a network namespace. They can be read once a sandbox is in force.
///
/// **Source**: `/proc/net/dev`, proc_net(5): bytes, packets, errors, drops, fifo and more for arriving frames, then for sent frames.
#[derive(Debug)]
pub struct Counters(File);

impl Counters {
    /// Opens the list. **Errors**: errors of the system.
    pub fn open() -> io::Result<Self> {
        File::open("/proc/net/dev").map(Self)
    }

    /// Counts of an interface; `None` if there is no such interface. **Cost**: the kernel prints all of its interfaces.
    pub fn of(&self, interface: &str) -> Option<Counts> {
        let mut text = Vec::new();
        let mut part = [0; 4096];
        while text.len() < LONGEST
            && let Ok(read @ 1..) = self.0.read_at(&mut part, text.len() as u64)
        {
            text.extend_from_slice(&part[..read]);
        }
        counts(&String::from_utf8_lossy(&text), interface)
    }
}

fn counts(text: &str, interface: &str) -> Option<Counts> {
    let fields = text
        .lines()
        .find_map(|line| line.trim_start().strip_prefix(interface)?.strip_prefix(':'))?;
    let mut numbers = fields.split_whitespace().map(|field| field.parse().ok());
    let mut three = |skipped: usize| {
        let mut next = || numbers.next().flatten();
        (0..skipped).try_for_each(|_| next().map(|_: u64| ()))?;
        Some([next()?, next()?, next()?])
    };
    Some(Counts {
        received: three(2)?,
        sent: three(5)?,
    })
}

/// The number of frames that an interface drops from now on.
#[derive(Debug)]
pub(super) struct Dropped {
    counters: Counters,
    interface: String,
    before: u64,
    /// Whether attempts at frames for which there was no room are among them: a queueing discipline in front of the driver takes these.
    pub has_attempts: bool,
}

impl Dropped {
    /// Begins to count, if the interface has counters.
    pub fn begin(interface: &str) -> Option<Self> {
        let counters = Counters::open().ok()?;
        let before = counters.of(interface)?.sent[1];
        let network = Network::read().unwrap_or_default();
        Some(Self {
            has_attempts: network.named(interface).is_some_and(|it| !it.has_queue),
            counters,
            interface: interface.to_owned(),
            before,
        })
    }

    /// Frames that were dropped since the beginning, of all senders.
    pub fn since(&self) -> u64 {
        let now = self.counters.of(&self.interface);
        now.map_or(0, |now| now.sent[1].saturating_sub(self.before))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_the_kernel_is_taken_apart() {
        let text = "Inter-|   Receive                    |  Transmit\n face |bytes ...\n    \
            lo: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\neth0:  9 8 7 6 5 4 3 2 1 0 1 2 3 4 5 6\n cut: 1 2\n";
        let of = |name| counts(text, name);
        let lo = Counts {
            received: [3, 4, 5],
            sent: [11, 12, 13],
        };
        assert_eq!(of("lo"), Some(lo));
        assert_eq!(of("eth0").map(|it| it.sent), Some([1, 2, 3]));
        assert_eq!((of("eth"), of("cut"), of("")), (None, None, None));
        assert!(Counters::open().unwrap().of("lo").is_some());
    }
}
