//! Bans of a firewall between interfaces, with the programs that asked for them, and the thread that keeps them in a file.
//!
//! The file is written as a whole, and never by a thread that judges packets: at once if somebody waits until a change is kept, else a second
//! after the write before; and never more than half of the time. The bans of a table file are not among them.

use super::ends::LiveEnds;
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::ops::Bound;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use weir_firewall::kept::{BootId, End, Kept, MOST, Moment, Origin};
use weir_firewall::permissions::AddressChange;
use weir_io::state::StateFile;
use weir_io::sys::since_boot;
use weir_pipeline::threads::spawn;

/// Pause between two writes for which nobody waits, and before another attempt.
const PAUSE: Duration = Duration::from_secs(1);

/// Longest wait for the file.
const PATIENCE: Duration = Duration::from_secs(10);

/// Bans that are copied while the lock is held, at most.
const TOGETHER: usize = 1024;

/// A ban that is kept.
#[derive(Clone, Debug)]
pub struct KeptBan {
    /// The end, and the time that the ban lasts in all; `None` if it does not end by itself.
    pub end: Option<(Instant, Duration)>,
    /// Program that asked for it.
    pub by: Origin,
    /// Whether it was there before this process began.
    pub restored: bool,
}

/// Bans that are kept, and how far they are in the file.
#[derive(Debug, Default)]
pub struct KeptBans {
    state: Mutex<State>,
    /// Signals a change, or that somebody waits for one.
    changed: Condvar,
    /// Signals the end of an attempt to write.
    tried: Condvar,
}

#[derive(Debug, Default)]
struct State {
    bans: BTreeMap<IpAddr, KeptBan>,
    /// Number of the last change.
    change: u64,
    /// Number of the last change for which somebody waits.
    asked: u64,
    /// Number of the last change that an attempt to write had.
    tried: u64,
    /// Number of the last change that is in the file.
    saved: u64,
    /// Number of the last change that had a ban without room.
    without_room: u64,
    /// Reason for which the last attempt failed.
    fault: Option<String>,
    /// Whether the thread is at work.
    is_kept: bool,
    /// Whether the thread ends, once it has tried to write what there is.
    is_over: bool,
}

impl KeptBans {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes changes that are in force.
    pub(super) fn note(
        &self,
        changes: &[AddressChange],
        end: Option<(Instant, Duration)>,
        by: &Origin,
    ) {
        let mut state = self.state();
        let before = state.change;
        for change in changes {
            let (address, Some(is_ban)) = (change.address(), change.persona_non_grata()) else {
                continue;
            };
            let was_kept = state.bans.remove(&address).is_some();
            if is_ban && state.bans.len() < MOST {
                state.bans.insert(
                    address,
                    KeptBan {
                        end,
                        by: by.clone(),
                        restored: false,
                    },
                );
            } else if is_ban {
                state.without_room = before + 1;
            }
            state.change = before + u64::from(is_ban || was_kept || state.change > before);
        }
        let has_changed = state.change > before;
        drop(state);
        if has_changed {
            self.changed.notify_all();
        }
    }

    /// Forgets bans that ended. The file has their ends, and may keep them until it is written again.
    pub(super) fn forget(&self, ended: &[AddressChange]) {
        let mut state = self.state();
        ended
            .iter()
            .for_each(|change| drop(state.bans.remove(&change.address())));
    }

    /// Takes bans that are in force from the start on.
    fn restore(&self, bans: impl IntoIterator<Item = (IpAddr, KeptBan)>) {
        self.state().bans.extend(bans);
    }

    /// Returns the ban of an address, if it is kept.
    pub fn of(&self, address: &IpAddr) -> Option<KeptBan> {
        self.state().bans.get(address).cloned()
    }

    /// Returns the reason for which changes are not in the file, if they are not.
    pub fn fault(&self) -> Option<String> {
        self.state().fault.clone()
    }

    /// Number of the last change.
    pub(super) fn change(&self) -> u64 {
        self.state().change
    }

    /// Waits until a change is on the disk, as all before it. Without a file that is at once. **Errors**: the reason for which it is not.
    pub(super) fn wait(&self, change: u64) -> Result<(), String> {
        let mut state = self.state();
        if !state.is_kept {
            return Ok(());
        }
        if state.without_room == change && change > 0 {
            return Err(format!("{MOST} bans are kept at most"));
        }
        state.asked = state.asked.max(change);
        self.changed.notify_all();
        let is_open = |state: &mut State| state.tried < change;
        let (state, _) = self
            .tried
            .wait_timeout_while(state, PATIENCE, is_open)
            .unwrap_or_else(PoisonError::into_inner);
        match &state.fault {
            _ if state.saved >= change => Ok(()),
            Some(why) => Err(why.clone()),
            None => Err(format!(
                "nothing was written within {} s",
                PATIENCE.as_secs()
            )),
        }
    }

    /// Copies the bans, a part after the other, so that nobody waits long. Each change from before the call is among them.
    fn copy(&self, now: Instant) -> Vec<(IpAddr, Origin, Option<End>)> {
        let (mut all, mut part) = (Vec::new(), Vec::with_capacity(TOGETHER));
        let mut from = Bound::Unbounded;
        loop {
            let of = |(address, ban): (&IpAddr, &KeptBan)| (*address, ban.clone());
            part.extend(
                self.state()
                    .bans
                    .range((from, Bound::Unbounded))
                    .take(TOGETHER)
                    .map(of),
            );
            let Some((last, _)) = part.last() else {
                return all;
            };
            from = Bound::Excluded(*last);
            for (address, ban) in part.drain(..) {
                let end = ban.end.map(|(end, lasts)| {
                    let [left_ns, lasts_ns] = [end.saturating_duration_since(now), lasts]
                        .map(|time| time.as_nanos() as u64);
                    End {
                        left_ns: left_ns.min(lasts_ns),
                        lasts_ns,
                    }
                });
                // A ban that is over is about to be taken back.
                if end.is_none_or(|end| end.left_ns > 0) {
                    all.push((address, ban.by, end));
                }
            }
        }
    }

    /// Waits for a change that is to be written now. Returns its number; `None` at the end.
    fn due(&self, before: Option<(Instant, Duration)>) -> Option<u64> {
        let mut state = self.state();
        loop {
            if state.change == state.saved || state.is_over && state.tried == state.change {
                if state.is_over {
                    return None;
                }
                state = self
                    .changed
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let Some((ended, took)) = before.filter(|_| !state.is_over) else {
                return Some(state.change);
            };
            let is_urgent = state.asked > state.tried && state.fault.is_none();
            let pause = if is_urgent { took } else { took.max(PAUSE) };
            let rest = pause.saturating_sub(ended.elapsed());
            if rest.is_zero() {
                return Some(state.change);
            }
            state = self
                .changed
                .wait_timeout(state, rest)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// Notes the outcome of an attempt to write. Returns whether the outcome has changed.
    fn tried(&self, change: u64, written: &io::Result<()>) -> bool {
        let mut state = self.state();
        state.tried = change;
        let was_faulty = state.fault.is_some();
        state.fault = written.as_ref().err().map(words);
        if written.is_ok() {
            state.saved = change;
        }
        drop(state);
        self.tried.notify_all();
        was_faulty != written.is_err()
    }
}

/// Words of an error without the number of the system.
fn words(error: &io::Error) -> String {
    let words = error.to_string();
    words
        .split(" (os error")
        .next()
        .unwrap_or_default()
        .to_lowercase()
}

/// Name of the kernel's boot, if the kernel says it.
pub fn boot_id() -> Option<BootId> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    BootId::new(text.trim_end())
}

/// Returns the present moment.
pub fn now(boot: Option<BootId>) -> Moment {
    let wall = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    Moment {
        wall_ns: ns(wall),
        boot: boot.map(|id| (id, ns(since_boot()))),
    }
}

/// Bans of a text that are not over, and the number of bans that are over.
#[derive(Debug, Default)]
pub struct Restored {
    /// Addresses with their bans.
    pub bans: Vec<(IpAddr, KeptBan)>,
    /// Number of addresses whose bans ended in the meantime.
    pub over: usize,
}

impl Restored {
    /// Takes the bans of a text as they are at `now`, which is this `instant`.
    pub fn new(kept: &Kept, now: &Moment, instant: Instant) -> Self {
        let age = kept.age(now);
        let mut restored = Self::default();
        for bans in &kept.bans {
            let end = match bans.end {
                None => None,
                Some(end) => match end.after(age) {
                    Some(left) => Some((instant + left, Duration::from_nanos(end.lasts_ns))),
                    None => {
                        restored.over += bans.addresses().count();
                        continue;
                    }
                },
            };
            let ban = KeptBan {
                end,
                by: bans.by.clone(),
                restored: true,
            };
            restored
                .bans
                .extend(bans.addresses().map(|address| (address, ban.clone())));
        }
        restored
    }
}

/// Event of the file.
#[derive(Debug)]
pub enum Event<'a> {
    /// The file cannot be written. Bans stay in force; further attempts follow.
    Failed(&'a io::Error),
    /// The file was written again.
    Again,
}

/// Thread that keeps bans in a file. It ends when the value is dropped.
#[derive(Debug)]
pub struct Keeper(Arc<LiveEnds>);

impl LiveEnds {
    /// Takes bans that are in force before the first packet.
    pub fn restore_bans(&self, bans: Vec<(IpAddr, KeptBan)>) {
        let ends = bans
            .iter()
            .map(|(address, ban)| (*address, ban.end.map(|(end, _)| end)));
        self.note_ends(ends);
        self.kept().restore(bans);
    }

    /// Starts the thread that keeps bans in `file`; `tell` is called when the file cannot be written, and when it can again.
    pub fn keep(
        self: &Arc<Self>,
        file: StateFile,
        boot: Option<BootId>,
        tell: impl Fn(&Path, Event<'_>) + Send + 'static,
    ) -> io::Result<Keeper> {
        let ends = Arc::clone(self);
        ends.kept().state().is_kept = true;
        let work = move || {
            let (kept, mut before) = (ends.kept(), None);
            while let Some(change) = kept.due(before) {
                let begun = Instant::now();
                let text = Kept::gather(now(boot), kept.copy(begun)).text();
                let written = file.replace(text.as_bytes());
                before = Some((Instant::now(), begun.elapsed()));
                if kept.tried(change, &written) {
                    tell(
                        file.path(),
                        written.as_ref().err().map_or(Event::Again, Event::Failed),
                    );
                }
            }
            // The process may end as soon as it hears: the lock must be gone by then.
            drop(file);
            kept.state().is_kept = false;
            kept.tried.notify_all();
        };
        let made = spawn("kept bans", 0, work);
        if made.is_err() {
            self.kept().state().is_kept = false;
        }
        made.map(|()| Keeper(Arc::clone(self)))
    }
}

impl Keeper {
    /// Writes what is not written yet, and ends the thread. **Errors**: the reason for which the last changes are not in the file.
    pub fn finish(self) -> Result<(), String> {
        let kept = self.0.kept();
        let mut state = kept.state();
        state.is_over = true;
        kept.changed.notify_all();
        let is_at_work = |state: &mut State| state.is_kept;
        let (state, _) = kept
            .tried
            .wait_timeout_while(state, PATIENCE, is_at_work)
            .unwrap_or_else(PoisonError::into_inner);
        match &state.fault {
            _ if state.saved == state.change => Ok(()),
            Some(why) => Err(why.clone()),
            None => Err(format!(
                "nothing was written within {} s",
                PATIENCE.as_secs()
            )),
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.0.kept().state().is_over = true;
        self.0.kept().changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::mpsc::channel;
    use weir_io::sys::privilege::user_id;
    use weir_testkit::{Scratch, wait};

    fn ban(ends: &LiveEnds, line: &str, time: Option<Duration>) -> u64 {
        let changes = AddressChange::parse(line).unwrap();
        ends.apply(&changes, time, &Origin::new("ctl").unwrap(), |_| Ok(1))
            .unwrap();
        ends.kept().change()
    }

    /// A directory for state, and the file in it.
    fn file(scratch: &Scratch) -> StateFile {
        let directory = scratch.at("state");
        fs::create_dir(&directory).unwrap();
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o700)).unwrap();
        StateFile::take(&Path::new(&directory).join("bans"), &[0, user_id()]).unwrap()
    }

    fn read(scratch: &Scratch) -> Kept {
        Kept::parse(&fs::read(scratch.at("state/bans")).unwrap()).unwrap()
    }

    fn addresses(kept: &Kept) -> Vec<String> {
        kept.bans
            .iter()
            .flat_map(|bans| bans.addresses())
            .map(|address| address.to_string())
            .collect()
    }

    /// Several threads ban at once: what each waited for is in the file when its wait ends.
    #[test]
    fn changes_that_were_waited_for_are_in_the_file() {
        let (scratch, ends) = (Scratch::new(), Arc::<LiveEnds>::default());
        let keeper = ends
            .keep(file(&scratch), boot_id(), |_, event| panic!("{event:?}"))
            .unwrap();
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (ends, scratch) = (&ends, &scratch);
                scope.spawn(move || {
                    for number in 0..20 {
                        let address = format!("10.0.{thread}.{number}");
                        let change = ban(ends, &format!("ban {address}"), None);
                        ends.kept().wait(change).unwrap();
                        assert!(addresses(&read(scratch)).contains(&address), "{address}");
                    }
                });
            }
        });
        keeper.finish().unwrap();
        assert_eq!(addresses(&read(&scratch)).len(), 160);
    }

    #[test]
    fn changes_for_which_nobody_waits_are_written_a_second_later_and_at_the_end() {
        let (scratch, ends) = (Scratch::new(), Arc::<LiveEnds>::default());
        let keeper = ends
            .keep(file(&scratch), None, |_, event| panic!("{event:?}"))
            .unwrap();
        let first = ban(&ends, "ban 10.0.0.1", None);
        ends.kept().wait(first).unwrap();
        let begun = Instant::now();
        ban(&ends, "ban 10.0.0.2", Some(Duration::from_secs(60)));
        wait::until("the second ban", || addresses(&read(&scratch)).len() == 2);
        assert!(
            begun.elapsed() > Duration::from_millis(500),
            "{:?}",
            begun.elapsed()
        );
        let end = read(&scratch).bans[1].end.unwrap();
        assert!(
            end.lasts_ns == 60_000_000_000
                && (50_000_000_000..=end.lasts_ns).contains(&end.left_ns),
            "{end:?}"
        );
        ban(&ends, "unban 10.0.0.1", None);
        keeper.finish().unwrap();
        assert_eq!(addresses(&read(&scratch)), ["10.0.0.2"]);
    }

    #[test]
    fn a_file_that_cannot_be_written_is_told_once_and_tried_again() {
        let (scratch, ends) = (Scratch::new(), Arc::<LiveEnds>::default());
        let (tells, told) = channel();
        let tell = move |_: &Path, event: Event<'_>| {
            tells.send(matches!(event, Event::Failed(_))).unwrap()
        };
        let keeper = ends.keep(file(&scratch), None, tell).unwrap();
        // The new text has no place.
        fs::create_dir(scratch.at("state/bans.new")).unwrap();
        for address in ["10.0.0.1", "10.0.0.2"] {
            let change = ban(&ends, &format!("ban {address}"), None);
            ends.kept().wait(change).unwrap_err();
        }
        assert!(told.recv().unwrap() && ends.kept().fault().is_some());
        fs::remove_dir(scratch.at("state/bans.new")).unwrap();
        assert!(
            !told.recv_timeout(Duration::from_secs(20)).unwrap(),
            "once, and then that it goes on"
        );
        assert_eq!(
            (ends.kept().fault(), addresses(&read(&scratch)).len()),
            (None, 2)
        );
        fs::create_dir(scratch.at("state/bans.new")).unwrap();
        ban(&ends, "ban 10.0.0.3", None);
        keeper.finish().unwrap_err();
    }

    #[test]
    fn restored_bans_end_as_they_would_have_and_more_than_there_is_room_for_are_told() {
        let ends = LiveEnds::default();
        let by = Origin::new("mail").unwrap();
        let address = |last: u8| IpAddr::from([10, 0, 0, last]);
        let end = |left_s: u64| {
            Some(End {
                left_ns: left_s * 1_000_000_000,
                lasts_ns: 600_000_000_000,
            })
        };
        let at = Moment {
            wall_ns: 5_000_000_000,
            boot: None,
        };
        let bans = [
            (address(1), None),
            (address(2), end(100)),
            (address(3), end(300)),
            (address(4), end(300)),
        ];
        let kept = Kept::gather(at, bans.map(|(address, end)| (address, by.clone(), end)));
        let now = Instant::now();
        let later = Moment {
            wall_ns: 105_000_000_000,
            boot: None,
        };
        let restored = Restored::new(&kept, &later, now);
        assert_eq!((restored.bans.len(), restored.over), (3, 1));
        ends.restore_bans(restored.bans);
        let left = |last| {
            ends.with(|ends| ends.of(&address(last)))
                .map(|end| end.duration_since(now))
        };
        assert_eq!(
            [left(1), left(2), left(3)],
            [None, None, Some(Duration::from_secs(200))]
        );
        assert!(
            ends.kept()
                .of(&address(4))
                .is_some_and(|ban| ban.restored && ban.by == by)
        );
        // The text that is written next has what is left now, of the same time in all.
        let copied = ends.kept().copy(now);
        let four = copied
            .iter()
            .find(|(kept, ..)| *kept == address(4))
            .unwrap();
        assert_eq!(
            four.2,
            Some(End {
                left_ns: 200_000_000_000,
                lasts_ns: 600_000_000_000
            })
        );
        // The list is full.
        ends.kept().state().is_kept = true;
        let fill = (0..MOST as u32).map(|i| (IpAddr::from(i.to_be_bytes()), four_of(&by)));
        ends.kept().restore(fill);
        let change = ban(&ends, "ban 250.0.0.1", None);
        assert_eq!(
            ends.kept().wait(change).unwrap_err(),
            "1048576 bans are kept at most"
        );
        assert_eq!(
            ends.kept().copy(now).len(),
            ends.kept().state().bans.len(),
            "parts make the whole"
        );
    }

    fn four_of(by: &Origin) -> KeptBan {
        KeptBan {
            end: None,
            by: by.clone(),
            restored: true,
        }
    }
}
