//! The control port: packets among the data packets by which controllers change permissions. See [`weir_firewall::control`].
//!
//! The worker that took such a packet judges earlier packets without the change, and later packets
//! with it; other workers by the shared publication. A sequence number is saved before its change
//! is published, so that a request is not accepted again after the process was killed. It is
//! written to the page cache: a loss of power may lose it, and the time window of 30 s covers that.

use super::ends::{Ends, LiveEnds};
use super::{Change, Worker};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};
use weir_firewall::Fields;
use weir_firewall::control::{
    self, Keys, RECORD, Refusal, Request, Sequences, StateError as Unreadable,
};
use weir_firewall::kept::Origin;
use weir_io::state::{self, StateError};
use weir_packet::flow::Parser;
use weir_packet::savefile::Record;

/// Bans that end together, at most.
const TOGETHER: usize = 256;

/// Bytes of a state file, at most: a record for each number of a key.
const MOST_BYTES: u64 = (RECORD as u64) << 16;

/// The control port of all directions of a firewall.
#[derive(Debug)]
pub struct ControlPort {
    port: u16,
    keys: Keys,
    sequences: Sequences,
    /// Gives accepted requests one order, so that the sequence numbers of a key in the file ascend.
    saved: Mutex<Saved>,
}

/// A place where sequence numbers are kept.
#[derive(Debug, Default)]
struct Saved {
    /// `None` if they are not kept.
    file: Option<File>,
    /// Offset of each key's record in the file.
    offsets: Vec<u64>,
}

/// Reason for which a state file is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateFault {
    /// The system refuses it.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// Others may change it, or it is not a regular file.
    #[error(transparent)]
    Unsafe(StateError),
    /// Another process has it.
    #[error("another weir firewall uses it")]
    InUse,
    /// A record is damaged, or the file is another one.
    #[error(transparent)]
    Damaged(#[from] Unreadable),
}

impl ControlPort {
    /// Makes a port whose sequence numbers begin again and are not kept.
    pub fn new(port: u16, keys: Keys) -> Arc<Self> {
        let sequences = Sequences::new(keys.iter().map(|_| 0));
        Arc::new(Self {
            port,
            keys,
            sequences,
            saved: Mutex::default(),
        })
    }

    /// Makes a port whose sequence numbers are kept in a file, which is made if it is missing; only
    /// its user may read it. Records of keys that are no longer there stay. **Errors**: the file
    /// cannot be obtained, another process has it, or it is damaged.
    pub fn keeping(port: u16, keys: Keys, state: &Path) -> Result<Arc<Self>, StateFault> {
        let refused = |error| match error {
            StateError::Io { error, .. } => StateFault::Io(error),
            error => StateFault::Unsafe(error),
        };
        state::check_directory(state).map_err(refused)?;
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false);
        let mut file = state::open(state, options, None).map_err(refused)?;
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => StateFault::InUse,
            TryLockError::Error(error) => error.into(),
        })?;
        let mut bytes = Vec::new();
        Read::by_ref(&mut file)
            .take(MOST_BYTES)
            .read_to_end(&mut bytes)?;
        let records = control::records(&bytes)?;
        let (mut sequences, mut offsets, mut end) = (Vec::new(), Vec::new(), bytes.len() as u64);
        for key in keys.iter() {
            let place = records.iter().position(|(id, _)| *id == key.id());
            sequences.push(place.map_or(0, |place| records[place].1));
            offsets.push(place.map_or(end, |place| (place * RECORD) as u64));
            if place.is_none() {
                // Each record is there from the beginning, so that no request finds the disk full.
                file.write_all_at(&control::record(key.id(), 0), end)?;
                end += RECORD as u64;
            }
        }
        let saved = Mutex::new(Saved {
            file: Some(file),
            offsets,
        });
        Ok(Arc::new(Self {
            port,
            keys,
            sequences: Sequences::new(sequences),
            saved,
        }))
    }

    /// Accepts a request, once; its changes are put into force by `publish`.
    fn accept(
        &self,
        request: &Request,
        publish: impl FnOnce(&Request) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let saved = self.saved.lock().unwrap_or_else(PoisonError::into_inner);
        let Request { key, sequence, .. } = *request;
        if !self.sequences.is_above(key, sequence) {
            return Err(Refusal::Replayed);
        }
        if let Some(file) = &saved.file {
            let id = self.keys.iter().nth(key).map_or(0, control::Key::id);
            file.write_all_at(&control::record(id, sequence), saved.offsets[key])
                .map_err(|_| Refusal::NotSaved)?;
        }
        self.sequences.raise(key, sequence);
        publish(request)
    }
}

/// Times of requests, and of the ends of bans.
#[derive(Debug)]
pub enum Times {
    /// The clock of this machine; bans end by the controller.
    Clock(Arc<LiveEnds>),
    /// The timestamps of the packets, ns since the Unix epoch; a ban ends before the first packet
    /// that is not earlier than its end.
    Packets(Ends<u64>),
}

/// The control port at work in one run.
#[derive(Debug)]
pub struct ControlPackets {
    port: Arc<ControlPort>,
    times: Times,
}

/// Timestamp of a packet, ns since the Unix epoch; 0 without one.
fn time_of(record: &Record<'_>) -> u64 {
    record
        .time_ns
        .and_then(|time| u64::try_from(time).ok())
        .unwrap_or(0)
}

impl ControlPackets {
    /// Puts a control port to work.
    pub fn new(port: &Arc<ControlPort>, times: Times) -> Self {
        Self {
            port: Arc::clone(port),
            times,
        }
    }

    /// Whether the packet goes to the control port.
    #[inline]
    pub(super) fn is_control(&self, fields: &Fields) -> bool {
        fields.is_udp_to(self.port.port)
    }

    /// Returns the number of packets before the first that goes to the control port, or at which a ban ends.
    #[inline]
    pub(super) fn before_change(&self, packets: &[Option<Record<'_>>], fields: &[Fields]) -> usize {
        let end = match &self.times {
            Times::Clock(_) => None,
            Times::Packets(ends) => ends.next(),
        };
        let is_over = |packet: &Option<Record<'_>>| {
            packet
                .as_ref()
                .is_some_and(|record| end <= Some(time_of(record)))
        };
        let mut all = packets.iter().zip(fields);
        let place = match end {
            None => fields.iter().position(|fields| self.is_control(fields)),
            Some(_) => all.position(|(packet, fields)| self.is_control(fields) || is_over(packet)),
        };
        place.unwrap_or(fields.len())
    }

    /// Ends the bans that are over at this packet.
    pub(super) fn end_bans(&mut self, record: &Record<'_>, worker: &mut Worker) {
        let Times::Packets(ends) = &mut self.times else {
            return;
        };
        let now = time_of(record);
        loop {
            let due = ends.due(now, TOGETHER);
            if due.is_empty() {
                return;
            }
            let step: Vec<Change> = due.iter().copied().map(Change::Address).collect();
            // The addresses have room already, and the only worker of a file does not lag.
            let ended = worker.change_all(&step);
            debug_assert!(ended.is_ok(), "{ended:?}");
            ends.note(&due, None);
        }
    }

    /// Obeys a packet to the control port. **Errors**: the reason for which it is not obeyed. **Cost**: one HMAC at most for a packet without a
    /// key; for an authentic one a lock, allocation, and a write to the state file.
    pub(super) fn obey(
        &mut self,
        record: &Record<'_>,
        parser: &Parser,
        worker: &mut Worker,
    ) -> Result<(), Refusal> {
        let Self { port, times } = self;
        let headers = parser
            .headers(record.frame.data)
            .map_err(|_| Refusal::Malformed)?;
        let payload = control::payload(&headers)?;
        let now = match times {
            Times::Clock(_) => SystemTime::now()
                .duration_since(SystemTime::UNIX_EPOCH)
                .map_or(0, |now| now.as_nanos() as u64),
            Times::Packets(_) => time_of(record),
        };
        let request = Request::open(payload, now, &port.keys, &port.sequences)?;
        let by = Origin::key(
            port.keys
                .iter()
                .nth(request.key)
                .map_or(0, control::Key::id),
        );
        port.accept(&request, |Request { changes, lasts, .. }| {
            match times {
                Times::Clock(ends) => {
                    ends.apply(changes, *lasts, &by, |step| worker.change_all(step))
                }
                Times::Packets(ends) => {
                    let step: Vec<Change> = changes.iter().copied().map(Change::Address).collect();
                    let end = |lasts: Duration| now.saturating_add(lasts.as_nanos() as u64);
                    worker
                        .change_all(&step)
                        .inspect(|_| ends.note(changes, lasts.map(end)))
                }
            }
            .map(drop)
            .map_err(|_| Refusal::NoRoom)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::firewall::{Policy, RuleSet, RuleSettings, SharedPolicy};
    use std::net::IpAddr;
    use weir_firewall::Classifier;
    use weir_firewall::permissions::PermissionTable;
    use weir_firewall::replicas::Shard;
    use weir_firewall::rules::RuleList;
    use weir_packet::{Frame, LinkType};
    use weir_testkit::Scratch;

    const KEYS: &str = "7 00112233445566778899aabbccddeeff\n9 99112233445566778899aabbccddeeff\n";

    /// A policy with room for two addresses, whose log has room for eight changes.
    fn policy() -> Arc<SharedPolicy> {
        let settings = RuleSettings {
            inner: None,
            seed: 1,
            connections: 1,
        };
        let rules = RuleSet::new(Classifier::new(RuleList::default()).unwrap(), settings).unwrap();
        let policy = Policy::new(Some(PermissionTable::new(2, true, 1)), Arc::new(rules));
        SharedPolicy::new(policy, 8)
    }

    fn now() -> u64 {
        SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap()
            .as_nanos() as u64
    }

    /// Gives a request to a control port as an Ethernet frame.
    fn ask(
        control: &mut ControlPackets,
        worker: &mut Worker,
        (id, sequence, lines): (u16, u64, &str),
    ) -> Result<(), Refusal> {
        let keys = Keys::parse(KEYS).unwrap();
        let payload =
            control::seal(keys.find(id).unwrap().1, sequence, now(), None, lines).unwrap();
        let mut frame = vec![2; 12];
        let [total, udp] =
            [28 + payload.len() as u16, 8 + payload.len() as u16].map(u16::to_be_bytes);
        frame.extend([
            8, 0, 0x45, 0, total[0], total[1], 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
        ]);
        frame.extend([1, 2, 3, 4, udp[0], udp[1], 0, 0]);
        frame.extend(payload);
        let record = Record {
            time_ns: None,
            frame: Frame {
                data: &frame,
                wire_len: 0,
                interface: 0,
            },
            options: Default::default(),
        };
        let parser = Parser::new(LinkType::ETHERNET, false).unwrap();
        worker.begin();
        let obeyed = control.obey(&record, &parser, worker);
        worker.end();
        obeyed
    }

    fn banned(worker: &Worker) -> Vec<IpAddr> {
        let mut banned: Vec<IpAddr> = worker
            .value()
            .permissions
            .as_ref()
            .unwrap()
            .banned()
            .collect();
        banned.sort_unstable();
        banned
    }

    #[test]
    fn a_request_without_room_changes_nothing_and_is_used_up() {
        let (policy, port) = (policy(), ControlPort::new(772, Keys::parse(KEYS).unwrap()));
        let (mut worker, mut other) = (policy.worker(Shard::ALL), policy.worker(Shard::ALL));
        let mut control = ControlPackets::new(&port, Times::Clock(Arc::default()));
        let mut ask = |request| ask(&mut control, &mut worker, request).map_err(Refusal::name);
        assert_eq!(ask((7, 5, "ban 10.0.0.1")), Ok(()));
        assert_eq!(ask((7, 6, "ban 10.0.0.2\nban 10.0.0.3")), Err("no room"));
        assert_eq!(ask((7, 6, "ban 10.0.0.2")), Err("replayed"));
        assert_eq!(ask((9, 1, "ban 10.0.0.2")), Ok(()));
        // The other worker is in a batch, and the log has room for six more.
        let lines = "unban 10.0.0.1\n".repeat(6);
        assert_eq!(ask((9, 2, &lines)), Ok(()));
        assert_eq!(ask((9, 3, "unban 10.0.0.2")), Err("no room"));
        other.take_up();
        assert_eq!(ask((9, 4, "ban 10.0.0.1")), Ok(()));
        assert_eq!(
            banned(&worker),
            ["10.0.0.1", "10.0.0.2"].map(|ip| ip.parse::<IpAddr>().unwrap())
        );
        other.take_up();
        assert_eq!(banned(&worker), banned(&other));
    }

    #[test]
    fn a_number_is_saved_before_its_change_is_in_force_or_it_is_not_in_force() {
        let (scratch, policy) = (Scratch::new(), policy());
        let state = scratch.at("state");
        // The record of a key that is no longer there stays.
        std::fs::write(
            &state,
            [control::record(3, 8), control::record(9, 20)].concat(),
        )
        .unwrap();
        let saved = || control::records(&std::fs::read(&state).unwrap()).unwrap();
        let keeping = || ControlPort::keeping(772, Keys::parse(KEYS).unwrap(), Path::new(&state));
        let port = keeping().unwrap();
        assert!(matches!(keeping(), Err(StateFault::InUse)));
        let mut worker = policy.worker(Shard::ALL);
        let mut control = ControlPackets::new(&port, Times::Clock(Arc::default()));
        assert_eq!(
            ask(&mut control, &mut worker, (9, 20, "ban 10.0.0.1")),
            Err(Refusal::Replayed)
        );
        let request = Request {
            key: 1,
            sequence: 21,
            lasts: None,
            changes: Vec::new(),
        };
        let seen = |_: &Request| {
            assert_eq!(
                saved(),
                [(3, 8), (9, 21), (7, 0)],
                "published before it is saved"
            );
            Ok(())
        };
        assert_eq!(port.accept(&request, seen), Ok(()));
        assert_eq!(
            port.accept(&request, |_| unreachable!("accepted twice")),
            Err(Refusal::Replayed)
        );
        // A file that cannot be written: nothing is in force, and the number is free.
        let whole = port
            .saved
            .lock()
            .unwrap()
            .file
            .replace(File::open(&state).unwrap());
        assert_eq!(
            ask(&mut control, &mut worker, (7, 1, "ban 10.0.0.1")),
            Err(Refusal::NotSaved)
        );
        assert_eq!(banned(&worker), Vec::<IpAddr>::new());
        port.saved.lock().unwrap().file = whole;
        assert_eq!(
            ask(&mut control, &mut worker, (7, 1, "ban 10.0.0.1")),
            Ok(())
        );
        assert_eq!(
            (banned(&worker).len(), saved()),
            (1, vec![(3, 8), (9, 21), (7, 1)])
        );
        drop((control, port));
        // The next process goes on after them.
        let mut control = ControlPackets::new(&keeping().unwrap(), Times::Clock(Arc::default()));
        assert_eq!(
            ask(&mut control, &mut worker, (7, 1, "unban 10.0.0.1")),
            Err(Refusal::Replayed)
        );
        assert_eq!(
            ask(&mut control, &mut worker, (9, 22, "unban 10.0.0.1")),
            Ok(())
        );
    }
}
