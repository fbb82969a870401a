//! Sources: files, interfaces and record directories, whose packets are read in batches.

use crate::error::Error;
use crate::heard::{Heard, locked};
use crate::opening::{Opening, Running, names_of};
use crate::options::Options;
use crate::reading::Reading;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use weir_engine::batches::{self, Batches};
use weir_engine::capture::{CaptureRequest, Direction, Live, Settings as CaptureSettings};
use weir_engine::control::ChangeError;
use weir_engine::event::Event;
use weir_engine::firewall::{Change, Firewall, Policy, RuleSet, Senseless, SharedPolicy};
use weir_engine::ledger::Ledger;
use weir_engine::name::Name;
use weir_engine::provenance::{Chosen, stamp};
use weir_engine::run::{Run, Setup};
use weir_engine::session::{Order, Session};
use weir_firewall::Classifier;
use weir_firewall::rules::RuleList;
use weir_messages::events::account_lines;
use weir_messages::refusals::Terms;
use weir_messages::sources;
use weir_packet::savefile;
use weir_pipeline::select::Selection;

/// Packets by what became of them: received = passed + filtered + denied + dropped. Each number is counted where it happens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets that arrived at the source, whether or not there was room for them.
    pub received: u64,
    /// Packets that passed the filter.
    pub passed: u64,
    /// Packets that the filter rejected, here or in the kernel.
    pub filtered: u64,
    /// Packets that the rules of a firewall rejected.
    pub denied: u64,
    /// Packets lost at the source, for lack of room.
    pub dropped_source: u64,
    /// Packets that passed and were not taken before the source was closed or stopped.
    pub dropped_output: u64,
    /// Bytes on the wire of the packets that passed.
    pub bytes: u64,
    /// Packets that the file itself says were lost when it was captured; none of `received`.
    pub lost_before: u64,
    /// Whether a source that was read to its end has no counter of lost packets, as pcap files have none: then 0 of `lost_before` does not
    /// say that nothing was lost.
    pub loss_not_recorded: bool,
    /// Batches that wait to be taken.
    pub waiting: u64,
    /// Batches that are held.
    pub held: u64,
    /// Times that reading stopped because the most [batches](Options::batches) were out.
    pub starved: u64,
    /// Whether the numbers are final.
    pub is_final: bool,
}

/// A batch of packets in place. Its memory goes back to its source when the batch is dropped.
#[derive(Debug)]
pub struct Batch {
    batch: batches::HeldBatch,
    source: u64,
    chosen: Arc<Chosen>,
}

impl Batch {
    /// Returns a number that all batches of one source share, and no others.
    pub fn source(&self) -> u64 {
        self.source
    }

    /// Choice of the packets that passed.
    pub(crate) fn chosen(&self) -> &Arc<Chosen> {
        &self.chosen
    }
}

impl Batch {
    /// Returns the facts of the batch in one cache line, for the C interface.
    #[doc(hidden)]
    #[inline]
    pub fn summary(&self) -> &batches::Summary {
        self.batch.summary()
    }
}

impl std::ops::Deref for Batch {
    type Target = batches::Batch;

    fn deref(&self) -> &batches::Batch {
        &self.batch
    }
}

/// Result of [`Source::set_filter`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilterChange {
    /// Number of the filter: 0 at the opening, and 1 more with each change.
    pub number: u64,
    /// Whether batches of the filter before are still under way.
    pub under_way: bool,
}

/// Result of [`Source::next`].
#[derive(Debug)]
pub enum Next {
    /// A batch.
    Batch(Batch),
    /// No batch came in that time.
    Nothing,
    /// The source is at its end, and all its batches were taken.
    End,
}

/// A source whose batches are taken. Threads of the library read ahead. Every method may be called from any thread; several threads may
/// take batches, and each batch goes to one of them.
#[derive(Debug)]
pub struct Source {
    batches: Batches,
    heard: Arc<Mutex<Heard>>,
    state: Mutex<State>,
    /// The rules, if there are any.
    firewall: Option<Arc<SharedPolicy>>,
    /// No sink may empty the files of the source.
    files: Reading,
    /// Choice of its packets, for files.
    choice: Choice,
}

/// Choice of the packets of a source, by the changes of its filter.
#[derive(Debug)]
struct Choice {
    selection: Selection,
    /// Whatever the filter is: rules, times, a direction.
    other: Chosen,
    /// Before any change.
    first: Arc<Chosen>,
    /// The latest change.
    latest: Mutex<Option<(u64, Arc<Chosen>)>>,
}

impl Choice {
    fn new(selection: &Selection, options: &Options) -> Self {
        let way = match options.capture.direction {
            Direction::Both => None,
            Direction::In => Some(savefile::Direction::In),
            Direction::Out => Some(savefile::Direction::Out),
        };
        let mut other = Chosen::default().one_way(way);
        if let Some(times) = options.span().words(stamp) {
            other = other.only(times);
        }
        if options.rules.is_some() {
            other = other.by_firewall(true, None);
        }
        let first = Arc::new(Chosen::by(selection).and(&other));
        let mut selection = selection.clone();
        selection.splits.clear();
        Self {
            selection,
            other,
            first,
            latest: Mutex::new(None),
        }
    }

    /// Notes that the filter was changed, by the number of the change.
    fn change(&self, number: u64, expression: &str) {
        let selection = Selection {
            expression: expression.to_owned(),
            ..self.selection.clone()
        };
        *locked(&self.latest) = Some((number, Arc::new(Chosen::by(&selection).and(&self.other))));
    }

    /// The choice after a change of this number.
    fn after(&self, number: u64) -> Arc<Chosen> {
        if number == 0 {
            return Arc::clone(&self.first);
        }
        match &*locked(&self.latest) {
            Some((latest, chosen)) if *latest == number => Arc::clone(chosen),
            // An earlier change, or one that is just being made.
            _ => Arc::new(
                self.other
                    .clone()
                    .only("packets that match a filter that was changed meanwhile".to_owned()),
            ),
        }
    }
}

#[derive(Debug)]
struct State {
    run: Running,
    /// Counts when the source was last asked, or at its end.
    counts: Ledger,
}

/// Whether one of these names is the name of an interface or of a device, and not of a file.
pub fn is_live<N: Clone + Into<Name>>(names: &[N]) -> bool {
    Session::new(names.iter().cloned().map(Into::into).collect()).is_live()
}

/// Whether a capture of this name takes memory of one size for each packet, as AF_XDP and DPDK do.
pub fn has_slots(name: impl Into<Name>) -> bool {
    let name = name.into().text();
    name.starts_with("af_xdp:") || name.starts_with("dpdk:")
}

/// Bytes of the ring that each batch of a capture of this name takes, however few packets it has: a block of AF_PACKET's ring; else 0.
pub fn block_of(name: impl Into<Name>, settings: &CaptureSettings) -> usize {
    match Live::of(&name.into()) {
        Some(Live::AfPacket(interface)) => settings.packet_block(interface),
        _ => 0,
    }
}

impl Source {
    /// Opens sources, named as for the command: capture files, "-" for standard input, record directories; or interfaces, such as
    /// "eth0", "af_packet:eth0", "af_xdp:eth0:0" or "dpdk:DEVICE". Several interfaces or queues come in the order of time, copied.
    ///
    /// Waits until the first packets of a file are there, or the capture has begun; not for packets
    /// of a pipe, but for the writer of a named one. An expression that makes sense for no link
    /// type of a pcapng file is refused by [`next`](Self::next), after its batches.
    pub fn open<N: Clone + Into<Name>>(names: &[N], options: &Options) -> Result<Self, Error> {
        let names = names_of(names, options)?;
        sources::check(&names, false).map_err(Error::refused)?;
        sources::check_schemes(&names).map_err(Error::refused)?;
        sources::check_sort(&names, options.order == Order::Sorted).map_err(Error::refused)?;
        let firewall = match &options.rules {
            Some(rules) => {
                let settings = options.rule_settings();
                let rules = rule_set(rules, |classifier| RuleSet::new(classifier, settings))?;
                Some(SharedPolicy::new(Policy::new(None, Arc::new(rules)), LOG))
            }
            None => None,
        };
        let mut opening = Opening::new(names, options, [])?;
        let selection = options.selection(&opening.meaning);
        let mut run = Run::new(Setup {
            selection: selection.clone(),
            dedup: options.dedup,
            firewall: firewall
                .as_ref()
                .map(|policy| Firewall::new(policy, None).by_packet_time()),
            limit: options.limit,
            workers: options.workers(),
            pull: Some(options.batches),
            stop: Arc::clone(&opening.stop),
            ..Setup::default()
        });
        let batches = run.batches();
        let batches = batches.ok_or_else(|| Error::refused("no batches"))?;
        opening.read(options.order, options)?;
        let filters = !selection.invert && selection.inner.is_none();
        opening.capture(&CaptureRequest {
            settings: options.capture,
            expression: if filters { &selection.expression } else { "" },
            replaces_filter: filters,
            names: &opening.meaning.clone(),
            yes_take: &options.yes_take,
            ..CaptureRequest::default()
        })?;
        let Opening {
            session,
            heard,
            files,
            is_quick,
            ..
        } = opening;
        let is_live = session.is_live();
        let choice = Choice::new(&selection, options);
        let hears = Arc::clone(&heard);
        let hear = move |event: Event<'_>| locked(&hears).event(&event);
        let state = State {
            run: Running::start(run, session, Terms::LIBRARY, hear)?,
            counts: Ledger::default(),
        };
        let source = Self {
            batches,
            heard,
            state: Mutex::new(state),
            firewall,
            files,
            choice,
        };
        source.begin(is_live, is_quick)?;
        Ok(source)
    }

    /// Waits until the source has begun, so that a wrong name or expression is an error of its opening.
    fn begin(&self, is_live: bool, is_quick: bool) -> Result<(), Error> {
        const LONGEST: Duration = Duration::from_secs(10);
        const LOOK: Duration = Duration::from_millis(1);
        let mut waited = Duration::ZERO;
        let over = loop {
            // A capture has begun once its expression is compiled.
            if self.batches.wait(LOOK)
                || !is_quick && (!is_live || locked(&self.heard).begun)
                || waited > LONGEST
            {
                break self.batches.wait(Duration::ZERO);
            }
            waited += LOOK;
        };
        // It is over, and no batch came.
        if over && self.batches.outstanding().0 == 0 {
            let mut state = locked(&self.state);
            self.end(&mut state);
            state.run.take_failure()?;
        }
        Ok(())
    }

    /// Waits at most `most` for the next batch.
    ///
    /// At the end, and once before [`Next::End`], an error tells why the source could not be read to its end. **Cost**: a lock, if a
    /// batch waits; a wait is a system call.
    #[inline]
    pub fn next(&self, most: Duration) -> Result<Next, Error> {
        match self.batches.next(most) {
            batches::Next::Batch(batch) => {
                let chosen = self.choice.after(batch.change());
                Ok(Next::Batch(Batch {
                    batch,
                    source: self.files.number(),
                    chosen,
                }))
            }
            batches::Next::Nothing => Ok(Next::Nothing),
            batches::Next::End => {
                let mut state = locked(&self.state);
                self.end(&mut state);
                state.run.take_failure().map(|()| Next::End)
            }
        }
    }

    /// Takes up the end of the run, once.
    fn end(&self, state: &mut State) {
        if state.run.has_ended {
            return;
        }
        match state.run.end() {
            Some((ended, _)) => {
                let mut heard = locked(&self.heard);
                let lines = heard.listener.end_of_capture();
                heard.add(lines);
                heard.add(account_lines(&ended));
                state.run.failure = heard.failure();
                state.counts = ended.ledger;
            }
            None => {
                // An expression may turn out to make sense for no link type of a file when batches of it are out.
                let [received, passed, filtered] = self.batches.taken();
                state.counts = Ledger {
                    received,
                    passed,
                    filtered,
                    ..Ledger::default()
                };
            }
        }
    }

    /// Returns the counts: while the source is read, those between two batches; at its end the final ones. While a thread waits for bytes of a
    /// pipe it answers nothing: the call then takes 0.1 s, and gives the counts of before.
    ///
    /// While a capture runs, `received` is what was handed over and what was dropped; the final number is the kernel's own, unless a limit ended it.
    pub fn counts(&self) -> Counts {
        /// The run answers between two batches, and while it waits for room.
        const ANSWER: Duration = Duration::from_millis(100);
        let mut state = locked(&self.state);
        if !state.run.has_ended {
            if let Some(snapshot) = state.run.handle.control().snapshot(ANSWER) {
                // The kernel drops packets also while none are read.
                let dropped: u64 = snapshot
                    .captures
                    .iter()
                    .map(|(_, counts)| counts.dropped)
                    .sum();
                state.counts = snapshot.ledger;
                state.counts.received += dropped;
                state.counts.dropped.source += dropped;
            } else if self.batches.wait(Duration::ZERO) && self.batches.outstanding().0 == 0 {
                self.end(&mut state);
            }
        }
        let (waiting, held) = self.batches.outstanding();
        let Ledger {
            received,
            passed,
            filtered,
            denied,
            ref dropped,
            bytes,
            lost_before,
            without_counter,
            ..
        } = state.counts;
        Counts {
            received,
            passed,
            filtered,
            denied,
            dropped_source: dropped.source,
            dropped_output: dropped.output,
            bytes,
            lost_before,
            loss_not_recorded: without_counter > 0,
            waiting: waiting as u64,
            held: held as u64,
            starved: self.batches.full(),
            is_final: state.run.has_ended,
        }
    }

    /// Returns the number of batches that are held.
    pub fn held(&self) -> usize {
        self.batches.outstanding().1
    }

    /// Returns a descriptor for `poll`: readable while a batch waits, and at the end. Do not read from it. **Errors**: no descriptor is
    /// available.
    pub fn poll_fd(&self) -> std::io::Result<BorrowedFd<'_>> {
        self.batches.poll_fd()
    }

    /// Stops the source: it takes no more packets. Packets that it received can still be taken.
    pub fn stop(&self) {
        locked(&self.state).run.stop();
    }

    /// Replaces the filter between two batches, without loss. [`Batch::change`](batches::Batch::change) tells which filter judged a batch.
    ///
    /// Waits at most `most` until no batch begins under the old filter. After an error the old filter stays.
    pub fn set_filter(&self, expression: &str, most: Duration) -> Result<FilterChange, Error> {
        let control = Arc::clone(locked(&self.state).run.handle.control());
        let change = match control.set_filter(expression, most) {
            Ok(number) => FilterChange {
                number,
                under_way: false,
            },
            Err(ChangeError::UnderWay { change }) => FilterChange {
                number: change,
                under_way: true,
            },
            Err(error) => return Err(Error::refused(error)),
        };
        self.choice.change(change.number, expression);
        Ok(change)
    }

    /// Replaces the rules of a source that was opened with rules, between two batches, without loss. Rules of the same text keep their
    /// counts and rates. After an error the old rules stay.
    pub fn set_rules(&self, rules: &str) -> Result<(), Error> {
        let none = || {
            Error::refused(
                "the source was opened without rules: give it some, such as `default pass`",
            )
        };
        let policy = self.firewall.as_ref().ok_or_else(none)?;
        let before = policy.rules();
        let rules = rule_set(rules, |classifier| {
            before.successor(classifier, &policy.expired())
        })?;
        let full = |_| Error::Busy("earlier changes of the rules are still under way".to_owned());
        policy
            .apply_all(&[Change::Rules(Arc::new(rules))])
            .map_err(full)?;
        Ok(())
    }

    /// Returns what the user should know although nothing failed, a line each, since the last call.
    pub fn remarks(&self) -> Vec<String> {
        std::mem::take(&mut locked(&self.heard).remarks)
    }

    /// Ends the source and returns the final counts. Batches that wait are dropped, and counted.
    pub fn close(&self) -> Counts {
        let mut state = locked(&self.state);
        state.run.stop();
        self.batches.leave();
        self.end(&mut state);
        state.run.wait_for_threads();
        drop(state);
        self.counts()
    }
}

/// Changes of rules for which there is room until all workers have taken them up: there is one worker.
const LOG: usize = 16;

/// Compiles a rule list.
fn rule_set(
    rules: &str,
    make: impl FnOnce(Classifier) -> Result<RuleSet, Senseless>,
) -> Result<RuleSet, Error> {
    let list = RuleList::parse(rules, &mut |name| std::fs::read_to_string(name));
    let list = list.map_err(|error| Error::refused(format!("the rules: {error}")))?;
    if let Some(rule) = list.rules.iter().find(|rule| rule.to.is_some()) {
        return Err(Error::refused(format!(
            "the rules: line {}: to names where packets leave, and those of a source leave at no interface",
            rule.line
        )));
    }
    let classifier =
        Classifier::new(list).map_err(|error| Error::refused(format!("the rules: {error}")))?;
    make(classifier).map_err(|senseless| Error::refused(format!("the rules: {senseless}")))
}
