//! The permission table of both families, in stripes.

use super::{ArcOfChanges, Striped, StripedWorker};
use crate::permissions::{AddressChange, Change, Full, PermissionTable};
use crate::{DecidedBy, Fields};
use core::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use weir_memory::changes::Changes;

/// A permission table of all workers, for IPv4 and IPv6. Changes of both have one order.
#[derive(Debug)]
pub struct StripedTable {
    v4: Arc<Striped<u32>>,
    v6: Arc<Striped<u128>>,
}

impl StripedTable {
    /// Distributes a table to `stripes` stripes for each family; see [`Striped::new`].
    pub fn new(
        PermissionTable { v4, v6 }: PermissionTable,
        stripes: usize,
        seed: u64,
    ) -> Arc<Self> {
        let changes = ArcOfChanges::new(Changes::default());
        let v4 = Striped::numbered_by(ArcOfChanges::clone(&changes), v4, stripes, seed);
        let v6 = Striped::numbered_by(changes, v6, stripes, seed);
        Arc::new(Self { v4, v6 })
    }

    /// Applies several changes as one step, and returns the number of the last; without changes, that of the latest change.
    ///
    /// **Errors**: no room for all of them; nothing has changed then. **Cost**: the locks of their stripes, and allocation.
    pub fn apply_all(&self, changes: &[AddressChange]) -> Result<u64, Full> {
        let (mut of_v4, mut of_v6): (Vec<Change<u32>>, Vec<Change<u128>>) =
            (Vec::new(), Vec::new());
        for change in changes {
            match change {
                AddressChange::V4(change) => of_v4.push(*change),
                AddressChange::V6(change) => of_v6.push(*change),
            }
        }
        // Always in this order, so that nobody waits in a circle.
        let (mut v4, mut v6) = (self.v4.step(&of_v4), self.v6.step(&of_v6));
        v4.has_room()?;
        v6.has_room()?;
        v4.apply();
        v6.apply();
        Ok(self.v4.changes.publish_several(changes.len() as u64))
    }

    /// Waits until the change of this number is in force on every worker; `false` if a batch still runs after `timeout` that began
    /// before it.
    pub fn wait(&self, number: u64, timeout: Duration) -> bool {
        self.v4.wait(number, timeout)
    }

    /// Returns the addresses from which no packet passes, in no order. **Cost**: all stripes, one after another.
    pub fn banned(&self) -> Vec<IpAddr> {
        let v4 = self
            .v4
            .banned()
            .into_iter()
            .map(|address| IpAddr::from(address.to_be_bytes()));
        v4.chain(
            self.v6
                .banned()
                .into_iter()
                .map(|address| IpAddr::from(address.to_be_bytes())),
        )
        .collect()
    }

    /// Makes a worker with a cache of `room` verdicts for each family; see [`Striped::worker`].
    pub fn worker(self: &Arc<Self>, room: usize) -> StripedTableWorker {
        StripedTableWorker {
            v4: self.v4.worker(room),
            v6: self.v6.worker(room),
            table: Arc::clone(self),
        }
    }
}

/// A worker that judges batches of packets of both families.
#[derive(Debug)]
pub struct StripedTableWorker {
    /// Begins and ends the batches of both families, whose changes have one order.
    v4: StripedWorker<u32>,
    v6: StripedWorker<u128>,
    table: Arc<StripedTable>,
}

impl StripedTableWorker {
    /// Begins a batch that was taken before.
    #[inline]
    pub fn begin(&mut self) {
        self.v4.begin();
    }

    /// Ends the batch, once its verdicts are handed on.
    #[inline]
    pub fn end(&mut self) {
        self.v4.end();
    }

    /// Applies several changes that came as one packet of the batch under way; see [`StripedTable::apply_all`].
    pub fn change_all(&mut self, changes: &[AddressChange]) -> Result<u64, Full> {
        self.table.apply_all(changes)
    }

    /// Returns the reason for which an IP packet of the batch under way does not pass; see [`StripedWorker::denies`].
    #[inline]
    pub fn denies(&mut self, fields: &Fields) -> Option<DecidedBy> {
        let [src, dst] = fields.v4();
        match fields.is_v6() {
            true => self.v6.denies(fields.src(), fields.dst()),
            false => self.v4.denies(src, dst),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::permissions::Span;
    use weir_testkit::Random;

    fn v4(random: &mut Random, most: usize) -> AddressChange {
        let begin = random.below(60) as u32;
        AddressChange::V4(Change {
            address: random.below(most) as u32,
            persona_non_grata: Some(random.below(3) == 0),
            accepts: Span::half_open(begin, Some(begin + 4))
                .map(|span| (span, random.below(2) == 0)),
        })
    }

    fn v6(random: &mut Random, most: usize) -> AddressChange {
        let AddressChange::V4(Change {
            address,
            persona_non_grata,
            ..
        }) = v4(random, most)
        else {
            unreachable!()
        };
        AddressChange::V6(Change {
            address: u128::from(address) << 80,
            persona_non_grata,
            accepts: None,
        })
    }

    /// Steps of both families against the serial table, where each has room or none of its changes is made.
    #[test]
    fn steps_are_those_of_the_serial_table() {
        let mut random = Random(4);
        let mut serial = PermissionTable::new(1 << 20, true, 1);
        let striped = StripedTable::new(PermissionTable::new(1 << 20, true, 2), 8, 3);
        let (mut worker, mut count) = (striped.worker(16), 0);
        for _ in 0..3000 {
            let step: Vec<AddressChange> = (0..random.below(5))
                .map(|i| [v4, v6][i % 2](&mut random, 64))
                .collect();
            count += step.len() as u64;
            worker.begin();
            assert_eq!(worker.change_all(&step), Ok(count));
            step.iter().for_each(|change| serial.apply(change).unwrap());
            for _ in 0..10 {
                let (source, destination) = (random.below(64) as u32, random.below(64) as u32);
                assert_eq!(
                    worker.v4.denies(source, destination),
                    serial.v4.denies(source, destination)
                );
                let (source, destination) =
                    (u128::from(source) << 80, u128::from(destination) << 80);
                assert_eq!(
                    worker.v6.denies(source, destination),
                    serial.v6.denies(source, destination)
                );
            }
            worker.end();
        }
        let (mut all, mut found): (Vec<IpAddr>, Vec<IpAddr>) =
            (serial.banned().collect(), striped.banned());
        all.sort_unstable();
        found.sort_unstable();
        assert_eq!(found, all);
        assert!(all.iter().any(IpAddr::is_ipv4) && all.iter().any(IpAddr::is_ipv6));
    }

    #[test]
    fn a_step_without_room_changes_nothing() {
        let striped = StripedTable::new(PermissionTable::new(2, true, 2), 1, 3);
        let ban = |ip: &str| AddressChange::banning(ip.parse().unwrap(), true);
        assert_eq!(
            striped.apply_all(&[ban("10.0.0.1"), ban("2001:db8::1")]),
            Ok(2)
        );
        let step = [ban("2001:db8::2"), ban("10.0.0.2"), ban("10.0.0.3")];
        assert_eq!(striped.apply_all(&step), Err(Full { most: 2 }));
        let mut banned = striped.banned();
        banned.sort_unstable();
        assert_eq!(
            banned,
            ["10.0.0.1", "2001:db8::1"].map(|ip| ip.parse::<IpAddr>().unwrap())
        );
        assert_eq!(striped.apply_all(&step[..2]), Ok(4));
    }
}
