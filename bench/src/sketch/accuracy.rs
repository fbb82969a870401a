//! Accuracy of answers, compared with the exact table.

use super::stream::Key;

/// Share of the packets that makes a flow heavy.
pub const HEAVY: f64 = 1e-4;

/// Errors of the answers compared with the truth.
#[derive(Clone, Copy, Debug)]
pub struct Accuracy {
    /// Mean error over all flows, packets.
    pub aae: f64,
    /// Mean relative error over the heavy flows.
    pub heavy_are: f64,
    /// Largest error of all flows, packets.
    pub worst: u64,
    /// Share of the flows called heavy that are heavy.
    pub precision: f64,
    /// Share of the heavy flows that are called heavy.
    pub recall: f64,
}

impl Accuracy {
    /// Evaluates the estimates of all flows that occur. `names` is whether the contestant would list a flow at all.
    pub fn of(
        truth: &[(Key, u64)],
        threshold: u64,
        estimate: impl Fn(&Key) -> u64,
        names: impl Fn(&Key) -> bool,
    ) -> Self {
        let (mut sum, mut worst, mut relative) = (0u64, 0, 0.0);
        let (mut heavy, mut called, mut both) = (0u32, 0u32, 0u32);
        for (key, count) in truth {
            let estimate = estimate(key);
            let error = estimate.abs_diff(*count);
            sum += error;
            worst = worst.max(error);
            let (is, said) = (*count >= threshold, estimate >= threshold && names(key));
            if is {
                relative += error as f64 / *count as f64;
            }
            heavy += u32::from(is);
            called += u32::from(said);
            both += u32::from(is && said);
        }
        let share = |part: u32, of: u32| {
            if of == 0 {
                1.0
            } else {
                f64::from(part) / f64::from(of)
            }
        };
        Self {
            aae: sum as f64 / truth.len() as f64,
            heavy_are: if heavy == 0 {
                0.0
            } else {
                relative / f64::from(heavy)
            },
            worst,
            precision: share(both, called),
            recall: share(both, heavy),
        }
    }

    /// Harmonic mean of precision and recall.
    pub fn f1(&self) -> f64 {
        let sum = self.precision + self.recall;
        if sum == 0.0 {
            0.0
        } else {
            2.0 * self.precision * self.recall / sum
        }
    }
}

/// Number of flows whose count is outside its bounds.
pub fn broken(truth: &[(Key, u64)], bounds: impl Fn(&Key) -> (u64, u64)) -> usize {
    let outside = |(key, count): &&(Key, u64)| {
        let (lower, upper) = bounds(key);
        !(lower..=upper).contains(count)
    };
    truth.iter().filter(outside).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counted_by_hand() {
        let key = |i: u8| [i; 13];
        let truth = [(key(0), 100), (key(1), 50), (key(2), 10), (key(3), 9)];
        // One heavy flow is missed because it is not listed, and one light flow is called heavy.
        let answers = |key: &Key| [90, 50, 9, 12][usize::from(key[0])];
        let found = Accuracy::of(&truth, 10, answers, |key| key[0] != 1);
        assert_eq!((found.aae, found.worst), ((10 + 1 + 3) as f64 / 4.0, 10));
        // Called heavy: 0 and 3. Heavy: 0, 1, 2.
        assert_eq!((found.precision, found.recall), (0.5, 1.0 / 3.0));
        assert!((found.f1() - 0.4).abs() < 1e-12);
        assert!((found.heavy_are - (0.1 + 0.0 + 0.1) / 3.0).abs() < 1e-12);
        assert_eq!(broken(&truth, |key| (answers(key), 100)), 1);
    }
}
