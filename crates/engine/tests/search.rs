//! The search on simulated devices, against the answers of MLRsearch (search/table.csv, made by search/judge.py).

use std::collections::HashMap;
use weir_engine::search::{Bounds, Goal, Search, Trial};

/// A device that forwards at most its capacity, as in judge.py.
struct Device {
    kind: &'static str,
    seed: u64,
    capacity: f64,
    trials: u64,
    at: HashMap<u64, u64>,
}

/// A number from 0 to 1: splitmix64 of seed and number.
fn draw(seed: u64, number: u64) -> f64 {
    let x = seed
        .wrapping_mul(0x9E37_79B9_7F4A_7C15)
        .wrapping_add(number.wrapping_mul(0xD134_2543_DE82_EF95))
        .wrapping_add(1);
    let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    ((x ^ (x >> 31)) >> 11) as f64 / (1u64 << 53) as f64
}

impl Device {
    fn new(kind: &'static str, seed: u64) -> Self {
        Self {
            kind,
            seed,
            capacity: 1e4 * 1000f64.powf(draw(seed, 0)),
            trials: 0,
            at: HashMap::new(),
        }
    }

    fn received(&mut self, trial: Trial) -> u64 {
        self.trials += 1;
        let at = self.at.entry(trial.load.to_bits()).or_default();
        *at += 1;
        let noise = match self.kind {
            "noisy" => 0.01 * (2.0 * draw(self.seed, self.trials) - 1.0),
            "by-load" => 0.01 * (2.0 * draw(self.seed, *at) - 1.0),
            _ => 0.0,
        };
        let sent = (trial.load * trial.seconds) as u64;
        sent.min((trial.seconds * self.capacity * (1.0 + noise)) as u64)
    }
}

/// Bounds, number of trials, and seconds of a search.
fn searched(device: &mut Device, goal: Goal) -> (Bounds, usize, f64) {
    let mut search = Search::new(&[goal], (1e3, 2e7), f64::INFINITY).unwrap();
    while let Some(trial) = search.next() {
        let received = device.received(trial);
        search.tell(received);
        assert!(search.trials() < 2000, "it does not end");
    }
    let bounds = search.bounds()[0];
    assert!(bounds.is_complete, "{bounds:?}");
    (bounds, search.trials(), search.spent_s())
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// Rows of the table by device and goal: lower bound, conditional throughput, trials, seconds, of each seed.
fn table() -> HashMap<&'static str, Vec<[f64; 4]>> {
    let mut all: HashMap<&str, Vec<[f64; 4]>> = HashMap::new();
    let mut name = "";
    for line in include_str!("search/table.csv").lines() {
        let numbers: Vec<f64> = line
            .split(',')
            .filter_map(|word| word.parse().ok())
            .collect();
        match numbers[..].try_into() {
            Ok(row) => all.entry(name).or_default().push(row),
            Err(_) => name = line,
        }
    }
    all
}

/// Within a goal's width of the judge's bound for 95 % of the seeds, and not more trials or seconds in the median.
#[test]
fn bounds_are_those_of_the_judge_with_no_more_trials() {
    let judge = table();
    for (kind, name, goal) in [
        ("exact", "throughput", Goal::THROUGHPUT),
        ("exact", "no-drop", Goal::NO_DROP),
        ("exact", "partial-drop", Goal::PARTIAL_DROP),
        ("by-load", "no-drop", Goal::NO_DROP),
        ("by-load", "partial-drop", Goal::PARTIAL_DROP),
        ("noisy", "no-drop", Goal::NO_DROP),
        ("noisy", "partial-drop", Goal::PARTIAL_DROP),
    ] {
        let judged = &judge[format!("{kind} {name}").as_str()];
        assert_eq!(judged.len(), 1000);
        let is_near = |a: f64, b: f64| (a - b).abs() <= a.max(b) * goal.width * 1.000_01;
        let (mut agree, mut through) = (0, 0);
        let (mut own, mut theirs) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
        for (seed, judged) in judged.iter().enumerate() {
            let mut device = Device::new(kind, seed as u64);
            let (bounds, trials, seconds) = searched(&mut device, goal);
            agree += u32::from(is_near(bounds.lower.unwrap(), judged[0]));
            through += u32::from(is_near(bounds.conditional.unwrap(), judged[1]));
            own[0].push(trials as f64);
            own[1].push(seconds);
            theirs[0].push(judged[2]);
            theirs[1].push(judged[3]);
        }
        let (own, theirs) = (own.map(median), theirs.map(median));
        println!(
            "{kind} {name}: {agree} agree, and {through} throughputs; trials, s: {own:?}, judge {theirs:?}"
        );
        assert!(agree >= 950, "{kind} {name}: {agree} of 1000");
        assert!(
            own[0] <= theirs[0] && own[1] <= theirs[1],
            "{kind} {name}: {own:?} {theirs:?}"
        );
    }
}

/// At the ends of the loads, with a limit of time, and for several goals at once.
#[test]
fn ends_limits_and_several_goals() {
    let all = |trial: Trial| (trial.load * trial.seconds) as u64;
    let run = |mut search: Search, device: &dyn Fn(Trial) -> u64| {
        while let Some(trial) = search.next() {
            search.tell(device(trial));
        }
        search
    };
    let new = |goals: &[Goal], limit| Search::new(goals, (1e3, 1e6), limit).unwrap();
    let fast = run(new(&[Goal::THROUGHPUT], 1e9), &all);
    let bounds = fast.bounds()[0];
    assert_eq!(
        (bounds.lower, bounds.upper, bounds.is_complete),
        (Some(1e6), None, true)
    );
    assert_eq!((fast.trials(), bounds.conditional), (2, Some(1e6)));
    let dead = run(new(&[Goal::NO_DROP], 1e9), &|_| 0);
    let bounds = dead.bounds()[0];
    assert_eq!(
        (bounds.lower, bounds.conditional, bounds.is_complete),
        (None, None, true)
    );
    assert!(bounds.upper.is_some_and(|upper| (upper - 1e3).abs() < 1e-6));
    let cut = run(new(&[Goal::NO_DROP], 5.0), &|trial| all(trial).min(5_000));
    assert!(!cut.bounds()[0].is_complete);
    assert_eq!(cut.trials(), 5);
    // A device that drops 0.2 % from 300 000 on, and everything above 500 000 packets/s.
    let device = |trial: Trial| match trial.load {
        load if load < 300_000.0 => all(trial),
        load if load < 500_000.0 => (trial.load * trial.seconds * 0.998) as u64,
        _ => (500_000.0 * trial.seconds * 0.9) as u64,
    };
    let both = run(new(&[Goal::NO_DROP, Goal::PARTIAL_DROP], 1e9), &device);
    let bounds = both.bounds();
    for (bounds, edge) in bounds.iter().zip([300_000.0, 500_000.0]) {
        let (lower, upper) = (bounds.lower.unwrap(), bounds.upper.unwrap());
        assert!(
            lower < edge && edge <= upper && upper - lower <= upper * 0.005_01,
            "{bounds:?}"
        );
    }
    let through = bounds[1].conditional.unwrap() / bounds[1].lower.unwrap();
    assert!((through - 0.998).abs() < 1e-5, "{through}");
}

#[test]
fn wrong_goals_are_refused() {
    let good = Goal::NO_DROP;
    for (goal, word) in [
        (
            Goal {
                loss_ratio: 1.0,
                ..good
            },
            "loss",
        ),
        (
            Goal {
                exceed_ratio: -0.1,
                ..good
            },
            "exceed",
        ),
        (
            Goal {
                width: f64::NAN,
                ..good
            },
            "width",
        ),
        (
            Goal {
                initial_s: 2.0,
                ..good
            },
            "initial",
        ),
        (Goal { sum_s: 0.5, ..good }, "sum"),
    ] {
        let why = Search::new(&[goal], (1.0, 2.0), 1.0).unwrap_err();
        assert!(why.starts_with(word), "{why}");
    }
    assert!(Search::new(&[], (1.0, 2.0), 1.0).is_err());
    assert!(Search::new(&[good], (2.0, 1.0), 1.0).is_err());
}
