//! A simulated machine for a run in one thread: its clocks move while the run waits for packets, and a little when it takes some.

#![allow(dead_code, reason = "each test file uses its part")]

use super::*;
use weir_pipeline::steps::Clock;

/// Work to be done at a time, between two steps of the run.
pub type Act = Box<dyn FnOnce() + Send>;

struct State {
    now: Duration,
    interfaces: Vec<Shared>,
    wall_steps: WallSteps,
    /// Time at which the run is stopped.
    stops: Duration,
    stop: Arc<AtomicBool>,
    /// Acts with their times, ascending.
    acts: VecDeque<(Duration, Act)>,
    /// Number of looks, of 1000, at which an interface hands over nothing although packets are ready.
    stalls: usize,
    random: Random,
    looks: u64,
}

/// The machine, shared by the run's clock and its captures.
#[derive(Clone)]
pub struct Machine(Arc<Mutex<State>>);

impl core::fmt::Debug for Machine {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Machine")
    }
}

impl Clock for Machine {
    fn now(&self) -> Moment {
        let state = self.lock();
        Moment {
            steady: state.now,
            wall_ns: wall_ns(state.now, &state.wall_steps),
        }
    }
}

impl Machine {
    pub fn new(
        interfaces: Vec<Shared>,
        wall_steps: WallSteps,
        (stops, stop): (Duration, Arc<AtomicBool>),
        stalls: usize,
        random: Random,
    ) -> Self {
        Self(Arc::new(Mutex::new(State {
            now: Duration::ZERO,
            interfaces,
            wall_steps,
            stops,
            stop,
            acts: VecDeque::new(),
            stalls,
            random,
            looks: 0,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no test panics while it holds this")
    }

    /// Has `act` called at this time, which is later than that of all acts before.
    pub fn at(&self, time: Duration, act: Act) {
        self.lock().acts.push_back((time, act));
    }

    /// Returns the interfaces as inputs for readers.
    pub fn inputs(&self, names: &[&str]) -> Vec<Input> {
        let state = self.lock();
        let interfaces = state.interfaces.iter().zip(names);
        let driven = |(interface, name): (&Shared, &&str)| {
            let backend = Driven(Reading(interface.clone()), self.clone());
            Input::live(name, Box::new(backend), &state.stop)
        };
        interfaces.map(driven).collect()
    }

    /// Moves the clocks by at most `most`, and does the acts that are due.
    fn wait(&self, most: Duration) {
        let mut state = self.lock();
        let until = state.now + most.max(Duration::from_micros(1));
        let next = state
            .interfaces
            .iter()
            .filter_map(|interface| interface.lock().next_change())
            .chain(state.acts.front().map(|(at, _)| *at))
            .chain([state.stops])
            .filter(|at| *at > state.now)
            .min();
        let to = match next {
            Some(next) if state.random.below(3) > 0 => next.min(until),
            _ => until,
        };
        state.advance(to);
        let now = state.now;
        let mut due = Vec::new();
        while let Some((_, act)) = state.acts.pop_front_if(|(at, _)| *at <= now) {
            due.push(act);
        }
        drop(state);
        due.into_iter().for_each(|act| act());
    }

    /// Whether the interface hands over nothing this time. The look itself may take time.
    fn stalls(&self) -> bool {
        let mut state = self.lock();
        state.looks += 1;
        assert!(state.looks < 1_000_000, "the run does not end");
        if state.random.below(3) == 0 {
            let more = Duration::from_micros(state.random.next() % 2000);
            let to = state.now + more;
            state.advance(to);
        }
        let stalls = state.stalls;
        state.random.below(1000) < stalls
    }
}

impl State {
    fn advance(&mut self, to: Duration) {
        self.now = self.now.max(to);
        for interface in &self.interfaces {
            interface.lock().advance(self.now);
        }
        if self.now >= self.stops {
            self.stop.store(true, Ordering::Relaxed);
            self.stops = Duration::MAX;
        }
    }
}

/// The reader's end of an interface of the machine.
#[derive(Debug)]
struct Driven(Reading, Machine);

impl Backend for Driven {
    fn next(&mut self, stop: &AtomicBool) -> io::Result<Next> {
        if self.1.stalls() {
            return Ok(Next::Nothing);
        }
        self.0.next(stop)
    }

    fn wait(&mut self, most: Duration) -> io::Result<()> {
        self.1.wait(most);
        Ok(())
    }

    fn counts(&self) -> Counts {
        self.0.counts()
    }

    fn marks(&self) -> Marks {
        self.0.marks()
    }

    fn layout(&self) -> Layout {
        self.0.layout()
    }

    fn place(&self) -> &'static str {
        self.0.place()
    }

    fn describe(&self) -> String {
        self.0.describe()
    }
}
