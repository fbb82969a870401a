//! Search for the highest loads that a device forwards, by RFC 9971 (MLRsearch).
//!
//! A pure machine: [`Search::next`] asks for a trial, [`Search::tell`] takes its result, and [`Search::bounds`] has the answer.
//!
//! ```text
//! loads     a ladder: neighbours differ by the smallest width of a goal
//! classes   each goal calls a load a lower bound, an upper bound, or neither, by its trials (RFC 9971, appendix A)
//! lean      the class that the trials so far would give if they were enough
//! 1 guess   the received rate of a trial with loss is near the bound
//! 2 widen   from the guess up or down in doubling steps, until the lean changes; then halve
//! 3 decide  two loads a width apart, one leaning each way: the one with more trials is tried next, until both have a class, so
//!           that few trials are spent on other loads. If a lean changes, the pair moves
//! ```
//!
//! **Cost**: some microseconds for a trial. Deliberately not done: trials of several goals in one order; they use the same results one goal after the
//! other.

use std::collections::BTreeMap;

/// Most levels of a ladder.
const LEVELS_MAX: i64 = 1 << 20;

/// Conditions under which a load counts as forwarded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Goal {
    /// Largest share of lost packets of a good trial.
    pub loss_ratio: f64,
    /// Largest share of the time of all trials that bad trials may have.
    pub exceed_ratio: f64,
    /// Largest distance of the bounds, as a share of the upper one.
    pub width: f64,
    /// Length of trials that explore, s.
    pub initial_s: f64,
    /// Least length of trials that make a lower bound, s.
    pub final_s: f64,
    /// Length of all trials at a load, s.
    pub sum_s: f64,
}

impl Goal {
    /// Throughput of RFC 2544, section 26.1, and of RFC 8219, section 7.1: no loss in 60 s.
    pub const THROUGHPUT: Self = Self {
        loss_ratio: 0.0,
        exceed_ratio: 0.0,
        width: 0.005,
        initial_s: 1.0,
        final_s: 60.0,
        sum_s: 60.0,
    };

    /// No loss in half of the seconds of 21 s.
    pub const NO_DROP: Self = Self {
        loss_ratio: 0.0,
        exceed_ratio: 0.5,
        width: 0.005,
        initial_s: 1.0,
        final_s: 1.0,
        sum_s: 21.0,
    };

    /// A loss of at most 0.5 % in half of the seconds of 21 s.
    pub const PARTIAL_DROP: Self = Self {
        loss_ratio: 0.005,
        ..Self::NO_DROP
    };

    /// **Errors**: what is wrong, and what would be right.
    pub fn check(&self) -> Result<(), String> {
        let shares = [("loss", self.loss_ratio), ("exceed", self.exceed_ratio)];
        for (name, share) in shares {
            if !(0.0..1.0).contains(&share) {
                return Err(format!("{name}: want a share from 0 to below 1"));
            }
        }
        if !(1e-4..=0.5).contains(&self.width) {
            return Err("width: want 0.01% to 50%".to_owned());
        }
        let day = 86_400.0;
        if !(self.initial_s > 0.0 && self.initial_s <= self.final_s && self.sum_s <= day) {
            return Err("initial: want a time above 0, and not longer than final".to_owned());
        }
        if self.final_s > self.sum_s {
            return Err("sum: want at least the time of one trial, final".to_owned());
        }
        Ok(())
    }

    /// Class of a load by its trials.
    fn class(&self, trials: &[Done]) -> Class {
        let Sums {
            good_long,
            bad_long,
            good_short,
            bad_short,
        } = self.sums(trials);
        let balance = good_short * self.exceed_ratio / (1.0 - self.exceed_ratio);
        let bad = bad_long + (bad_short - balance).max(0.0);
        let whole = (good_long + bad).max(self.sum_s);
        let most = whole * self.exceed_ratio;
        // Whether it is a lower bound if all further trials are good, and if all are bad.
        match (bad <= most, whole - good_long <= most) {
            (_, true) => Class::Lower,
            (false, _) => Class::Upper,
            _ => Class::Open,
        }
    }

    /// Whether the trials so far speak for a lower bound.
    fn leans_lower(&self, trials: &[Done]) -> bool {
        match self.class(trials) {
            Class::Lower => true,
            Class::Upper => false,
            Class::Open => {
                let sums = self.sums(trials);
                let bad = sums.bad_long + sums.bad_short;
                bad <= (bad + sums.good_long + sums.good_short) * self.exceed_ratio
            }
        }
    }

    fn sums(&self, trials: &[Done]) -> Sums {
        let mut sums = Sums::default();
        for trial in trials {
            let is_long = trial.seconds >= self.final_s;
            let is_good = trial.loss_ratio <= self.loss_ratio;
            let sum = match (is_good, is_long) {
                (true, true) => &mut sums.good_long,
                (false, true) => &mut sums.bad_long,
                (true, false) => &mut sums.good_short,
                (false, false) => &mut sums.bad_short,
            };
            *sum += trial.seconds;
        }
        sums
    }

    /// Loss of a load that the conditional throughput has: the quantile of long trials at the exceed ratio (RFC 9971, appendix B).
    fn quantile_loss(&self, trials: &[Done]) -> f64 {
        let long = trials.iter().filter(|trial| trial.seconds >= self.final_s);
        let mut long: Vec<&Done> = long.collect();
        long.sort_by(|a, b| a.loss_ratio.total_cmp(&b.loss_ratio));
        let sum: f64 = long.iter().map(|trial| trial.seconds).sum();
        let mut left = sum.max(self.sum_s) * (1.0 - self.exceed_ratio);
        for trial in long {
            left -= trial.seconds;
            if left <= 0.0 {
                return trial.loss_ratio;
            }
        }
        1.0
    }
}

/// Seconds of trials.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    good_long: f64,
    bad_long: f64,
    good_short: f64,
    bad_short: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Lower,
    Upper,
    Open,
}

/// A trial to make.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trial {
    /// Packets a second.
    pub load: f64,
    /// Length, s.
    pub seconds: f64,
}

/// A trial that was made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Done {
    /// Length, s.
    pub seconds: f64,
    /// Share of lost packets, of the packets of the intended load.
    pub loss_ratio: f64,
}

/// Answer for a goal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// Relevant lower bound, packets a second; `None` if not even the least load is forwarded.
    pub lower: Option<f64>,
    /// Relevant upper bound; `None` if the highest load is forwarded.
    pub upper: Option<f64>,
    /// Conditional throughput: the forwarded rate at the lower bound.
    pub conditional: Option<f64>,
    /// Whether the bounds are a width apart, or at an end of the loads.
    pub is_complete: bool,
}

/// Search under way.
#[derive(Clone, Debug)]
pub struct Search {
    goals: Vec<Goal>,
    /// Highest load.
    max: f64,
    /// Level of the highest load; 0 is the least load.
    top: i64,
    /// Logarithm of the factor between two levels.
    step: f64,
    /// Trials by level.
    trials: BTreeMap<i64, Vec<Done>>,
    /// Trial to make.
    asked: Option<(i64, f64)>,
    /// Level of the last trial.
    last: i64,
    /// Steps of the next widening.
    stride: i64,
    /// Received rate of the last trial with loss.
    forwarded: f64,
    /// Seconds of all trials, and their limit.
    spent_s: f64,
    limit_s: f64,
}

impl Search {
    /// Begins a search between two loads, for at most so many seconds of trials. **Errors**: what is wrong, and what would be right.
    pub fn new(goals: &[Goal], (min, max): (f64, f64), limit_s: f64) -> Result<Self, String> {
        goals.iter().try_for_each(Goal::check)?;
        let width = goals.iter().map(|goal| goal.width).fold(1.0, f64::min);
        if !(min > 0.0 && min < max && max.is_finite()) {
            return Err("want loads above 0, the least below the highest".to_owned());
        }
        if goals.is_empty() {
            return Err("want a goal".to_owned());
        }
        let step = -(1.0 - width).ln();
        let top = ((max / min).ln() / step).ceil() as i64;
        if top > LEVELS_MAX {
            return Err("the loads are too far apart for such a width".to_owned());
        }
        // Both ends are on the ladder.
        let step = (max / min).ln() / top as f64;
        Ok(Self {
            goals: goals.to_vec(),
            max,
            top,
            step,
            trials: BTreeMap::new(),
            asked: None,
            last: top,
            stride: 1,
            forwarded: 0.0,
            spent_s: 0.0,
            limit_s,
        })
    }

    /// The next trial to make; `None` at the end.
    #[allow(
        clippy::should_implement_trait,
        reason = "a search is told results in between"
    )]
    pub fn next(&mut self) -> Option<Trial> {
        if self.spent_s >= self.limit_s {
            return None;
        }
        let goals = self.goals.clone();
        let (level, seconds) = goals.iter().find_map(|goal| self.wanted(goal))?;
        self.asked = Some((level, seconds));
        let load = self.load(level);
        Some(Trial { load, seconds })
    }

    /// Takes the result of the last [trial](Self::next): the number of received packets. More packets than intended are a loss of 0.
    pub fn tell(&mut self, received: u64) {
        let Some((level, seconds)) = self.asked.take() else {
            return;
        };
        let intended = (self.load(level) * seconds).max(1.0).floor();
        let loss_ratio = 1.0 - (received as f64 / intended).min(1.0);
        let trial = Done {
            seconds,
            loss_ratio,
        };
        self.trials.entry(level).or_default().push(trial);
        self.spent_s += seconds;
        self.last = level;
        if loss_ratio > 0.0 {
            self.forwarded = received as f64 / seconds;
        }
    }

    /// Number of trials so far.
    pub fn trials(&self) -> usize {
        self.trials.values().map(Vec::len).sum()
    }

    /// Seconds of all trials so far.
    pub fn spent_s(&self) -> f64 {
        self.spent_s
    }

    /// The answer for each goal, in their order.
    pub fn bounds(&self) -> Vec<Bounds> {
        self.goals.iter().map(|goal| self.bounds_of(goal)).collect()
    }

    fn bounds_of(&self, goal: &Goal) -> Bounds {
        let classes = || {
            let levels = self.trials.iter();
            levels.map(|(&level, trials)| (level, goal.class(trials)))
        };
        let upper = classes().find(|row| row.1 == Class::Upper).map(|row| row.0);
        let below = classes().take_while(|row| upper.is_none_or(|upper| row.0 < upper));
        let lower = below.filter(|row| row.1 == Class::Lower).last();
        let lower = lower.map(|row| row.0);
        let conditional =
            lower.map(|level| self.load(level) * (1.0 - goal.quantile_loss(&self.trials[&level])));
        Bounds {
            lower: lower.map(|level| self.load(level)),
            upper: upper.map(|level| self.load(level)),
            conditional,
            is_complete: match (lower, upper) {
                (Some(lower), Some(upper)) => upper - lower <= self.gap(goal),
                (Some(lower), None) => lower == self.top,
                (None, Some(upper)) => upper == 0,
                (None, None) => false,
            },
        }
    }

    fn load(&self, level: i64) -> f64 {
        self.max * (-self.step * (self.top - level) as f64).exp()
    }

    /// The highest level whose load is at most `load`.
    fn level_of(&self, load: f64) -> i64 {
        let below = ((self.max / load.max(1e-9)).ln() / self.step - 1e-9).ceil();
        (self.top - below.clamp(0.0, LEVELS_MAX as f64) as i64).clamp(0, self.top)
    }

    /// Levels between the bounds of a goal.
    fn gap(&self, goal: &Goal) -> i64 {
        let levels = -(1.0 - goal.width).ln() / self.step;
        (levels + 1e-9).floor().max(1.0) as i64
    }

    /// Level and length of the next trial for a goal; `None` once it has its bounds.
    fn wanted(&mut self, goal: &Goal) -> Option<(i64, f64)> {
        let gap = self.gap(goal);
        let leans = self.trials.iter();
        let high = leans
            .clone()
            .find(|row| !goal.leans_lower(row.1))
            .map(|row| *row.0);
        let low = leans.take_while(|row| high.is_none_or(|high| *row.0 < high));
        let low = low.last().map(|row| *row.0);
        match (low, high) {
            (Some(low), Some(high)) if high - low <= gap => {
                self.stride = gap;
                let [of_low, of_high] = [low, high].map(|level| {
                    let trials = &self.trials[&level];
                    let seconds: f64 = trials.iter().map(|trial| trial.seconds).sum();
                    (goal.class(trials) == Class::Open).then_some(seconds)
                });
                match (of_low, of_high) {
                    (None, None) => None,
                    (Some(of_low), Some(of_high)) if of_low > of_high => Some((low, goal.final_s)),
                    (_, Some(_)) => Some((high, goal.final_s)),
                    (Some(_), None) => Some((low, goal.final_s)),
                }
            }
            (None, None) => Some((self.top, goal.initial_s)),
            (Some(low), None) if low == self.top => {
                let is_open = goal.class(&self.trials[&low]) == Class::Open;
                is_open.then_some((low, goal.final_s))
            }
            (Some(_), None) => Some((self.top, goal.initial_s)),
            (None, Some(0)) => {
                let is_open = goal.class(&self.trials[&0]) == Class::Open;
                is_open.then_some((0, goal.final_s))
            }
            (low, Some(high)) => Some((self.between(goal, low, high), goal.initial_s)),
        }
    }

    /// Level to explore above `low` and below `high`, more than a gap apart.
    fn between(&mut self, goal: &Goal, low: Option<i64>, high: i64) -> i64 {
        let gap = self.gap(goal);
        let guess = self.level_of(self.forwarded / (1.0 - goal.loss_ratio));
        let is_new = low.is_none_or(|low| guess > low) && guess < high;
        if is_new && !self.trials.contains_key(&guess) {
            self.stride = gap;
            return guess;
        }
        let stride = self.stride.max(gap);
        self.stride = stride.saturating_mul(2).min(LEVELS_MAX);
        let Some(low) = low else {
            return (high - stride).max(0);
        };
        let half = ((high - low) / 2).max(1);
        match self.last <= low {
            true => low + stride.min(half),
            false => high - stride.min(half),
        }
    }
}
