//! Claims of the study as ratios of two of its cells, judged by the same ratios inside one run.

use crate::clock::range;
use crate::rivals::median;

/// Cell of the table: design, state and sketch.
pub type Place = (&'static str, &'static str, &'static str);

/// A claim: one cell takes more time than another.
pub struct Claim {
    /// Text of the claim.
    pub text: &'static str,
    /// Times of both cells in the study, ns: the slower and the faster one.
    pub published: [f64; 2],
    /// The cell that is slower in the study.
    pub slow: Place,
    /// The cell that is faster in the study.
    pub fast: Place,
    /// Likely cause of another size here.
    pub cause: &'static str,
}

/// Verdict on a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Confirmed,
    Refuted,
    NotTestable,
}

/// All claims that two cells of one run can judge.
pub const CLAIMS: [Claim; 8] = [
    Claim {
        text: "a shared Count-Min costs 17.8x a separate one (rss)",
        published: [1480.0, 82.9],
        slow: ("rss", "shared", "cms"),
        fast: ("rss", "separate", "cms"),
        cause: "weir adds to shared cells with one atomic instruction and no lock, and the workers here share one cache; the \
                study ran 12 cores in two sockets",
    },
    Claim {
        text: "a shared hash table costs 1.30x a separate one (rss)",
        published: [49.5, 38.0],
        slow: ("rss", "shared", "sht"),
        fast: ("rss", "separate", "sht"),
        cause: "weir locks each slot of a shared table with a compare-and-swap, and counts bytes beside packets",
    },
    Claim {
        text: "a reversible sketch costs 56x a hash table (rss, separate)",
        published: [2140.0, 38.0],
        slow: ("rss", "separate", "rs-set"),
        fast: ("rss", "separate", "sht"),
        cause: "the time of the study's sketch is that of its sets, whose sizes depend on the traffic",
    },
    Claim {
        text: "a shared reversible sketch costs 4.3x a separate one (rss)",
        published: [9150.0, 2140.0],
        slow: ("rss", "shared", "rs-set"),
        fast: ("rss", "separate", "rs-set"),
        cause: "the workers here share one cache; the study ran 12 cores in two sockets",
    },
    Claim {
        text: "async takes 1.75x rss (hash table, separate)",
        published: [66.6, 38.0],
        slow: ("async", "separate", "sht"),
        fast: ("rss", "separate", "sht"),
        cause: "the workers of weir locate and parse packets themselves, so that a distributor adds little to a worker's time",
    },
    Claim {
        text: "sync takes 2.08x rss (hash table, separate)",
        published: [79.0, 38.0],
        slow: ("sync", "separate", "sht"),
        fast: ("rss", "separate", "sht"),
        cause: "the wait for all workers lies in the delay of a batch, not in a worker's time",
    },
    Claim {
        text: "sync takes 1.19x async (hash table, separate)",
        published: [79.0, 66.6],
        slow: ("sync", "separate", "sht"),
        fast: ("async", "separate", "sht"),
        cause: "the wait for all workers lies in the delay of a batch, not in a worker's time",
    },
    Claim {
        text: "sync takes 1.09x async (reversible sketch, separate)",
        published: [7830.0, 7190.0],
        slow: ("sync", "separate", "rs-set"),
        fast: ("async", "separate", "rs-set"),
        cause: "the time of the sets hides that of the design",
    },
];

impl Claim {
    /// Ratio of the times in the study.
    pub fn published(&self) -> f64 {
        self.published[0] / self.published[1]
    }

    /// Judges the claim by the ratios of all rounds; `missing` is the reason if a cell is missing. Returns the verdict and its
    /// reason.
    ///
    /// A claim is confirmed if the slower cell is slower in every round, by at least half of the published excess.
    pub fn judge(&self, ratios: &[f64], missing: Option<&str>) -> (Verdict, String) {
        if let Some(why) = missing {
            return (Verdict::NotTestable, why.to_owned());
        }
        if ratios.is_empty() {
            return (Verdict::NotTestable, "no run has both cells".to_owned());
        }
        let least = 1.0 + (self.published() - 1.0) / 2.0;
        let (middle, (low, high)) = (median(ratios.iter().copied()), range(ratios));
        let cause = self.cause;
        if low > 1.0 && middle >= least {
            (Verdict::Confirmed, "order and size".to_owned())
        } else if low > 1.0 {
            let why = format!("the order holds, the size does not: {cause}");
            (Verdict::Refuted, why)
        } else if high < least {
            (Verdict::Refuted, format!("neither order nor size: {cause}"))
        } else {
            let why = "the rounds disagree, because the machine is busy".to_owned();
            (Verdict::NotTestable, why)
        }
    }
}

impl Verdict {
    pub fn text(self) -> &'static str {
        match self {
            Self::Confirmed => "confirmed",
            Self::Refuted => "refuted",
            Self::NotTestable => "not testable here",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_confirm_or_refute_a_claim() {
        let claim = &CLAIMS[0];
        assert!((claim.published() - 17.85).abs() < 0.01);
        let verdict = |ratios: &[f64]| claim.judge(ratios, None).0;
        assert_eq!(verdict(&[15.0, 17.0, 20.0]), Verdict::Confirmed);
        assert_eq!(verdict(&[1.5, 1.6, 2.0]), Verdict::Refuted);
        assert_eq!(verdict(&[0.9, 1.0, 1.1]), Verdict::Refuted);
        assert_eq!(verdict(&[0.9, 12.0, 15.0]), Verdict::NotTestable);
        assert_eq!(verdict(&[]), Verdict::NotTestable);
        let (verdict, why) = claim.judge(&[20.0], Some("refused"));
        assert_eq!((verdict, &*why), (Verdict::NotTestable, "refused"));
    }

    #[test]
    fn published_times_make_the_ratios_of_the_texts() {
        for claim in &CLAIMS {
            let text = claim
                .text
                .split('x')
                .next()
                .and_then(|text| text.split(' ').next_back());
            let told: f64 = text
                .and_then(|text| text.parse().ok())
                .expect("a ratio in the text");
            let ratio = claim.published();
            assert!(
                (told - ratio).abs() < 0.06 * ratio.min(10.0),
                "{}: {ratio}",
                claim.text
            );
        }
    }
}
