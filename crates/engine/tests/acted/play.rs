//! Plays a case through the engine, in one thread.

use super::outlets::{Outlet, Plan, Shared as LogOf};
use super::traffic::{EXPRESSIONS, Pieces, RULES};
use super::{Case, Happening, Kind};
use crate::simulated::driven::Machine;
use crate::simulated::{Packet, Random, Shared, Truth, ms};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use weir_engine::batches::{Batches, HeldBatch, Next};
use weir_engine::control::{ChangeError, Control};
use weir_engine::event::Event;
use weir_engine::firewall::changes::NewRules;
use weir_engine::firewall::{Change, Firewall, Policy, RuleSet, RuleSettings, SharedPolicy};
use weir_engine::name::Name;
use weir_engine::output_changes::OutputSlot;
use weir_engine::outputs::Target;
use weir_engine::run::{Driver, Ended, Error, Files, Run, Setup};
use weir_firewall::Classifier;
use weir_firewall::rules::RuleList;
use weir_io::stream::Stream;
use weir_io::{Input, Kind as InputKind};
use weir_measure::{Config, KeyKind, Sketch, State};
use weir_pipeline::measuring::Settings;
use weir_pipeline::select::Selection;
use weir_testkit::Scratch;

/// Counts of packets, and of packets and bytes by source port.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counted {
    pub packets: u64,
    pub bytes: u64,
    pub table: BTreeMap<u16, (u64, u64)>,
}

impl Counted {
    pub fn of(state: Option<&State>) -> Self {
        let Some(state) = state else {
            return Self::default();
        };
        let rows = state.table(0, usize::MAX).rows;
        let row = |row: &weir_measure::Row| (row.key.sport, (row.counts.packets, row.counts.bytes));
        Self {
            packets: state.tally().passed,
            bytes: state.tally().bytes,
            // Packets whose ports were not captured have keys of their own.
            table: rows
                .iter()
                .filter(|row| row.key.sport > 0)
                .map(row)
                .collect(),
        }
    }

    pub fn add(&mut self, packet: &Packet) {
        let bytes = u64::from(packet.bytes);
        self.packets += 1;
        self.bytes += bytes;
        // The key has both ports.
        if packet.kept >= 38 {
            let row = self.table.entry(packet.flow).or_default();
            *row = (row.0 + 1, row.1 + bytes);
        }
    }

    pub fn append(&mut self, other: &Self) {
        self.packets += other.packets;
        self.bytes += other.bytes;
        for (flow, counts) in &other.table {
            let row = self.table.entry(*flow).or_default();
            *row = (row.0 + counts.0, row.1 + counts.1);
        }
    }
}

/// A change that was made, and the packets of each source that were judged before.
#[derive(Clone, Debug)]
pub struct Changed {
    pub what: Happening,
    pub before: Vec<usize>,
}

/// A pulled packet: its number, and its verdict.
pub type Pulled = (u32, bool);

/// A run, after its end.
#[derive(Default)]
pub struct Outcome {
    pub refused: Option<Error>,
    pub ended: Option<Ended>,
    /// What the outputs were handed; the sinks put in place of the main output follow.
    pub logs: Vec<Option<LogOf>>,
    pub replacements: Vec<LogOf>,
    pub changes: Vec<Changed>,
    pub windows: Vec<(i64, Counted)>,
    pub left_out: u64,
    pub total: Counted,
    pub pulled: Vec<Pulled>,
    pub left: bool,
    pub stopped: bool,
    /// Numbers of events: faults of sources, faults of outputs, and replaced filters and outputs.
    pub faults: usize,
    pub sink_faults: usize,
    pub filters_told: usize,
    pub outputs_told: usize,
    pub truths: Vec<Truth>,
}

/// What happens to a run, from its own thread between two steps.
struct Player {
    control: Arc<Control>,
    policy: Option<Arc<SharedPolicy>>,
    /// Whether the control of the run replaces the rules, or else that of the policy.
    sets_rules: bool,
    stop: Arc<AtomicBool>,
    batches: Mutex<Option<Batches>>,
    held: Mutex<Vec<HeldBatch>>,
    holds: usize,
    told: Mutex<Noted>,
    interfaces: Vec<Shared>,
}

#[derive(Default)]
struct Noted {
    changes: Vec<Changed>,
    replacements: Vec<LogOf>,
    pulled: Vec<Pulled>,
    left: bool,
}

fn classifier(number: usize) -> Classifier {
    let list = RuleList::parse(RULES[number].0, &mut |_| panic!("no file is named")).unwrap();
    Classifier::new(list).unwrap()
}

fn rules(number: usize) -> Arc<RuleSet> {
    let settings = RuleSettings {
        inner: None,
        seed: 1,
        connections: 0,
    };
    Arc::new(RuleSet::new(classifier(number), settings).unwrap())
}

fn target(name: &str, plan: Option<Plan>, stop: &Arc<AtomicBool>) -> (Target, Option<LogOf>) {
    let log = plan.map(|_| LogOf::default());
    let sink = plan.zip(log.clone()).map(|(plan, log)| {
        let stop = Arc::clone(stop);
        let kept = Vec::new();
        Box::new(Outlet {
            plan,
            log,
            stop,
            kept,
        }) as Box<dyn weir_engine::sink::Sink>
    });
    ((name.to_owned(), sink), log)
}

impl Player {
    /// Does what happens after `before` packets of each source.
    fn act(&self, what: Happening, before: Vec<usize>) {
        let made = match what {
            Happening::Filter(number) => {
                let made = self
                    .control
                    .set_filter(EXPRESSIONS[number].0, Duration::ZERO);
                made.expect("no step is under way");
                true
            }
            Happening::Rules(number) => {
                let policy = self.policy.as_ref().expect("there are rules");
                if self.sets_rules {
                    self.set_rules(number)
                } else {
                    let change = policy.apply_all(&[Change::Rules(rules(number))]);
                    assert!(policy.wait(change.unwrap(), Duration::ZERO));
                    true
                }
            }
            Happening::Output => self.replace_output(),
            Happening::Stop => {
                self.stop.store(true, Ordering::Relaxed);
                false
            }
            Happening::Leave => {
                if let Some(batches) = &*self.batches.lock().unwrap() {
                    self.told.lock().unwrap().left = true;
                    batches.leave();
                }
                false
            }
            Happening::Take => {
                self.take();
                false
            }
        };
        if made {
            let changed = Changed { what, before };
            self.told.lock().unwrap().changes.push(changed);
        }
    }

    fn set_rules(&self, number: usize) -> bool {
        let new = NewRules {
            classifier: classifier(number),
            called: "new rules".to_owned(),
        };
        match self.control.set_rules(new, Duration::ZERO) {
            // The run takes them up with its next batch.
            Err(ChangeError::UnderWay { .. }) => true,
            Err(ChangeError::Earlier | ChangeError::Over) => false,
            other => panic!("{other:?}"),
        }
    }

    fn replace_output(&self) -> bool {
        let log = LogOf::default();
        let sink = Outlet {
            plan: Plan::default(),
            log: Arc::clone(&log),
            stop: Arc::clone(&self.stop),
            kept: Vec::new(),
        };
        let made = self
            .control
            .set_output(OutputSlot::Main, "new", Box::new(sink), Duration::ZERO);
        match made {
            // The run puts it in place with its next batch.
            Err(ChangeError::UnderWay { .. }) => {
                self.told.lock().unwrap().replacements.push(log);
                true
            }
            Err(ChangeError::Wants | ChangeError::Over) => false,
            other => panic!("{other:?}"),
        }
    }

    /// Takes the waiting batches, and gives back those held too long.
    fn take(&self) {
        let batches = self.batches.lock().unwrap();
        let (Some(batches), false) = (&*batches, self.told.lock().unwrap().left) else {
            return;
        };
        while let Next::Batch(batch) = batches.next(Duration::ZERO) {
            let passed = batch.verdicts().words();
            let packets = (0..batch.len()).map(|i| {
                let record = batch.packet(i).expect("it is in the batch");
                let passes = passed[i / 64] >> (i % 64) & 1 == 1;
                (Packet::number_in(record.frame.data), passes)
            });
            self.told.lock().unwrap().pulled.extend(packets);
            let mut masks = batch.split_verdicts().iter();
            assert!(
                masks.all(|mask| mask.len() == batch.len()),
                "a bit for each packet"
            );
            let mut held = self.held.lock().unwrap();
            held.push(batch);
            if held.len() > self.holds {
                held.remove(0);
            }
        }
    }

    fn handed(&self) -> Vec<usize> {
        let handed = |interface: &Shared| interface.counts().handed_over as usize;
        self.interfaces.iter().map(handed).collect()
    }
}

/// Notes the events of a run, and has things happen at those of progress.
struct Listener<'a> {
    case: &'a Case,
    player: Arc<Player>,
    outcome: Outcome,
    /// Number of events of progress, of closed and of begun sources.
    progress: u64,
    closed: usize,
    begun: usize,
}

impl Listener<'_> {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Progress { bytes } => self.progress(bytes),
            Event::Begun { .. } => self.begun += 1,
            Event::Closed(_) => self.closed += 1,
            Event::Fault { .. } | Event::LiveFault { .. } => self.outcome.faults += 1,
            Event::Sink(_) => self.outcome.sink_faults += 1,
            Event::FilterReplaced { .. } => self.outcome.filters_told += 1,
            Event::OutputReplaced { .. } => self.outcome.outputs_told += 1,
            Event::Window(window) => {
                self.outcome.left_out += window.left_out;
                let number = window.span.map_or(0, |(from, _)| from);
                self.outcome
                    .windows
                    .push((number, Counted::of(window.state)));
            }
            Event::Unopened { .. } => panic!("{event:?}"),
            _ => {}
        }
    }

    /// What happens between two batches of files; `bytes` of the current one are judged.
    fn progress(&mut self, bytes: u64) {
        if self.case.kind.is_live() {
            return;
        }
        self.progress += 1;
        let contents = &self.case.contents;
        let before = match self.case.kind {
            // All packets are judged in one batch, after the last file was read.
            Kind::Sorted if self.begun < contents.len() => 0,
            Kind::Sorted => return self.player.take(),
            // All packets are judged before the first is passed on.
            Kind::Merged => contents.iter().map(|content| content.packets.len()).sum(),
            _ => {
                let closed = contents[..self.closed].iter();
                let closed: usize = closed.map(|content| content.packets.len()).sum();
                closed + contents[self.closed].before(bytes)
            }
        };
        let now = self.progress;
        for &(_, happening) in self.case.happenings.iter().filter(|(at, _)| *at == now) {
            self.player.act(happening, vec![before]);
        }
        self.player.take();
    }
}

impl Case {
    /// Whether rules begin in a firewall without a controller, so that the control of the run replaces them.
    fn sets_rules(&self) -> bool {
        self.rules.is_some_and(|number| number % 2 == 0)
    }

    fn setup(
        &self,
        machine: &Machine,
        stop: &Arc<AtomicBool>,
    ) -> (Setup, Vec<Option<LogOf>>, Option<Arc<SharedPolicy>>) {
        let expression = |number: usize| EXPRESSIONS[number].0.to_owned();
        let targets = self.plans().into_iter().enumerate();
        let (mut targets, logs): (Vec<Target>, Vec<_>) = targets
            .map(|(i, plan)| target(&format!("output {i}"), plan, stop))
            .unzip();
        let main = targets.remove(0);
        let policy = self
            .rules
            .map(|number| SharedPolicy::new(Policy::new(None, rules(number)), 64));
        let setup = Setup {
            selection: Selection {
                expression: expression(self.filter),
                splits: self
                    .splits
                    .iter()
                    .map(|split| expression(split.0))
                    .collect(),
                interpret: true,
                ..Selection::default()
            },
            firewall: policy.as_ref().map(|policy| {
                let firewall = Firewall::new(policy, None);
                if self.sets_rules() {
                    firewall.by_packet_time()
                } else {
                    firewall
                }
            }),
            measure: self.windowing.map(|windowing| Settings {
                config: Arc::new(Config {
                    keys: vec![KeyKind::FiveTuple],
                    sketch: Sketch::Exact,
                    memory: 16 << 10,
                    windowing,
                    seed: 7,
                    ..Config::default()
                }),
                workers: 1,
                ..Settings::default()
            }),
            main,
            splits: targets,
            limit: self.limit,
            workers: 1,
            pull: self
                .pull
                .map(|held| if self.kind.is_live() { 4096 } else { held + 2 }),
            stop: Arc::clone(stop),
            driver: Driver::OneThread(Arc::new(machine.clone())),
            ..Setup::default()
        };
        (setup, logs, policy)
    }

    fn interfaces(&self) -> Vec<Shared> {
        let Some(live) = &self.live else {
            return Vec::new();
        };
        let scripts = live.scripts.iter().zip(&live.rings).enumerate();
        scripts
            .map(|(i, (script, ring))| Shared::new(script.clone(), *ring, self.seed + i as u64))
            .collect()
    }

    fn machine(&self, interfaces: &[Shared], stop: &Arc<AtomicBool>) -> Machine {
        let (steps, stops, stalls) = match &self.live {
            Some(live) => (live.steps.clone(), live.length, live.stalls),
            None => (Vec::new(), Duration::MAX, 0),
        };
        let stop = (stops, Arc::clone(stop));
        Machine::new(
            interfaces.to_vec(),
            steps,
            stop,
            stalls,
            self.random.clone(),
        )
    }

    /// Plays the run.
    pub fn play(&self, scratch: &Scratch) -> Outcome {
        let stop = Arc::<AtomicBool>::default();
        let interfaces = self.interfaces();
        let machine = self.machine(&interfaces, &stop);
        let (setup, logs, policy) = self.setup(&machine, &stop);
        let mut run = Run::new(setup);
        let batches = run.batches();
        let player = Arc::new(Player {
            control: Arc::clone(run.control()),
            policy,
            sets_rules: self.sets_rules(),
            stop: Arc::clone(&stop),
            batches: Mutex::new(batches),
            held: Mutex::default(),
            holds: self.pull.unwrap_or(0),
            told: Mutex::default(),
            interfaces,
        });
        let listener = RefCell::new(Listener {
            case: self,
            player: Arc::clone(&player),
            outcome: Outcome::default(),
            progress: 0,
            closed: 0,
            begun: 0,
        });
        let mut on = |event: Event<'_>| listener.borrow_mut().event(event);
        let read = match self.live {
            Some(_) => self.capture(&mut run, &machine, &player, &mut on),
            None => self.read(&mut run, scratch, &mut on),
        };
        let ended = read.map(|()| run.finish(&mut on).0);
        player.take();
        player.held.lock().unwrap().clear();
        drop(player.batches.lock().unwrap().take());
        let stopped = stop.load(Ordering::Relaxed);
        let mut outcome = listener.into_inner().outcome;
        let told = std::mem::take(&mut *player.told.lock().unwrap());
        match ended {
            Ok(ended) => {
                let measured = ended.measured.as_ref();
                outcome.total = Counted::of(measured.and_then(|done| done.state.as_ref()));
                outcome.ended = Some(ended);
                outcome.truths = player.interfaces.iter().map(Shared::truth).collect();
            }
            Err(refused) => outcome.refused = Some(refused),
        }
        Outcome {
            logs,
            replacements: told.replacements,
            changes: told.changes,
            pulled: told.pulled,
            left: told.left,
            stopped,
            ..outcome
        }
    }

    fn read(
        &self,
        run: &mut Run,
        scratch: &Scratch,
        on: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), Error> {
        let names = |i: usize| format!("{i}");
        let names: Vec<Name> = (0..self.contents.len())
            .map(names)
            .map(Name::from)
            .collect();
        let random = RefCell::new(self.random.clone());
        let open = |name: &Name, stop: &Arc<AtomicBool>| -> io::Result<Input> {
            let number: usize = name.as_output().parse().expect("it is a number");
            let bytes = &self.contents[number].bytes;
            if self.kind != Kind::Stream {
                let path = scratch.file(&name.as_output(), bytes);
                return Input::open(path, &Default::default(), stop);
            }
            let pieces = Pieces {
                bytes: bytes.clone(),
                at: 0,
                random: Random(random.borrow_mut().next()),
                fails: self.breaks,
            };
            Ok(Input {
                name: String::new(),
                kind: InputKind::Stream(Stream::direct(pieces, Arc::clone(stop))),
            })
        };
        let files = Files {
            names: &names,
            zstd_window: 1 << 20,
            follow: None,
            query: None,
            open: Some(&open),
        };
        match self.kind {
            Kind::Merged => run.merged(&files, on),
            Kind::Sorted => run.sorted(&files, on),
            _ => run.one_by_one(&files, on),
        }
    }

    fn capture(
        &self,
        run: &mut Run,
        machine: &Machine,
        player: &Arc<Player>,
        on: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), Error> {
        for &(at, happening) in &self.happenings {
            let player = Arc::clone(player);
            let act = move || player.act(happening, player.handed());
            machine.at(ms(at), Box::new(act));
        }
        let names: &[&str] = match self.kind {
            Kind::Capture => &["eth0"],
            Kind::Queues => &["eth0:0", "eth0:1"],
            _ => &["eth0", "eth1"],
        };
        let inputs = machine.inputs(names);
        if run.begin_capture(&inputs, on)? {
            run.capture(inputs, on)?;
        }
        Ok(())
    }
}
