//! Times of the two sides of a comparison.

use crate::cli::diff::{Against, DiffArgs};
use crate::outcome::say;
use crate::times::{Clock, ns};
use anyhow::bail;
use std::time::Duration;
use weir_pipeline::select::Span;

/// Times of the packets of a side, ns since 1970; both ends are part of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    pub from_ns: Option<i64>,
    pub to_ns: Option<i64>,
    /// Whether the next side begins with the last ns, which is not part of this one.
    ends_before: bool,
}

impl Times {
    fn between(from_ns: i64, to_ns: i64) -> Self {
        Self {
            from_ns: Some(from_ns),
            to_ns: Some(to_ns),
            ends_before: false,
        }
    }

    /// The span of a filter.
    pub fn span(self) -> Span {
        Span {
            from_ns: self.from_ns,
            to_ns: self.last_ns(),
            last_ns: None,
        }
    }

    /// The last time that is part of the side.
    pub fn last_ns(self) -> Option<i64> {
        self.to_ns
            .map(|to_ns| to_ns.saturating_sub(i64::from(self.ends_before)))
    }

    /// Part of these times that lies in others; `None` if there is none.
    pub fn part_of(self, (first, last): (i64, i64)) -> Option<(i64, i64)> {
        let from = self.from_ns.map_or(first, |from| from.max(first));
        let to = self.to_ns.map_or(last, |to| to.min(last));
        (from <= to).then_some((from, to))
    }
}

/// Wanted times of the two sides.
#[derive(Clone, Copy, Debug)]
pub enum Asked {
    /// Known times of both sides.
    Known([Times; 2]),
    /// A time before the last packet of each side; with `back`, of the second side alone.
    Last { last: Duration, back: Option<Back> },
}

/// The way from the second side to the first.
#[derive(Clone, Copy, Debug)]
pub enum Back {
    /// So much earlier, ns.
    By(i64),
    /// Begin of the first side, ns since 1970.
    To(i64),
}

impl Back {
    /// Times of the first side, from the times of the second.
    fn of(self, (from, to): (i64, i64)) -> Times {
        let by = match self {
            Self::By(by) => by,
            Self::To(begin) => from.saturating_sub(begin),
        };
        let before = Times::between(from.saturating_sub(by), to.saturating_sub(by));
        Times {
            ends_before: before.to_ns == Some(from),
            ..before
        }
    }
}

impl Asked {
    /// The times that the options ask for. `lasts` tells whether `--last` counts back from now, because the sources are record
    /// directories. **Errors**: contradictory times.
    pub fn of(arguments: &DiffArgs, is_one: bool, from_now: bool) -> anyhow::Result<Self> {
        let clock = Clock::new(arguments.utc);
        if let Some(around) = clock.meaning("--around", arguments.around.as_ref())? {
            if let Some(twice) = &around.twice {
                say(&format!(
                    "--around {twice}: the time between them is in neither side"
                ));
            }
            let within = ns(arguments.within);
            let before = Times::between(around.first_ns.saturating_sub(within), around.first_ns);
            let after = Times::between(around.last_ns, around.last_ns.saturating_add(within));
            let before = Times {
                ends_before: true,
                ..before
            };
            return Ok(Self::Known([before, after]));
        }
        let back = match &arguments.against {
            None => None,
            Some(Against::Earlier(earlier)) => Some(Back::By(ns(*earlier))),
            Some(Against::At(at)) => {
                let first = clock.meaning("--against", Some(at))?.map(|at| at.first());
                first.map(|(begin_ns, note)| {
                    if let Some(line) = note {
                        say(&format!("--against {line}"));
                    }
                    Back::To(begin_ns)
                })
            }
        };
        if is_one && back.is_none() {
            bail!(
                "one source is compared with itself at two times: add --against 1h, --against 1d or --around T, or name a second \
                 source"
            );
        }
        let (from_ns, to_ns) = match arguments.last {
            Some(last) if from_now => {
                let now = clock.now_ns();
                (Some(now.saturating_sub(ns(last))), Some(now))
            }
            Some(last) => return Ok(Self::Last { last, back }),
            None => clock.range(arguments.from.as_ref(), arguments.to.as_ref())?,
        };
        let after = Times {
            from_ns,
            to_ns,
            ends_before: false,
        };
        let before = match (back, from_ns, to_ns) {
            (None, ..) => after,
            (Some(back), Some(from), Some(to)) => back.of((from, to)),
            (Some(_), ..) => bail!(
                "--against goes back from a time with a begin and an end: add --last 10m, or --from and --to"
            ),
        };
        Ok(Self::Known([before, after]))
    }

    /// Times of both sides, by the first and the last time of their sources.
    pub fn sides(self, found: [Option<(i64, i64)>; 2]) -> [Times; 2] {
        let (last, back) = match self {
            Self::Known(times) => return times,
            Self::Last { last, back } => (last, back),
        };
        let of_last = |found: Option<(i64, i64)>| {
            let end = found.map_or(0, |(_, end)| end);
            (end.saturating_sub(ns(last)), end)
        };
        let (from, to) = of_last(found[1]);
        let before = match back {
            Some(back) => back.of((from, to)),
            None => {
                let (from, to) = of_last(found[0]);
                Times::between(from, to)
            }
        };
        [before, Times::between(from, to)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;

    fn asked(words: &str, from_now: bool) -> anyhow::Result<Asked> {
        let words = ["weir", "diff"].into_iter().chain(words.split(' '));
        let Command::Diff(arguments) = Cli::parse_from(words).command else {
            panic!("another command")
        };
        Asked::of(&arguments, arguments.sources.len() == 1, from_now)
    }

    fn times(words: &str, found: [Option<(i64, i64)>; 2]) -> [(i64, i64); 2] {
        let sides = asked(words, false).expect("right times").sides(found);
        sides.map(|side| {
            let second = 1_000_000_000;
            (side.from_ns.unwrap() / second, side.to_ns.unwrap() / second)
        })
    }

    #[test]
    fn the_first_side_is_as_long_as_the_second_and_earlier() {
        let found = [Some((0, 500_000_000_000)), Some((0, 900_000_000_000))];
        for (words, expected) in [
            (
                "d --from 1000 --to 1600 --against 15m",
                [(100, 700), (1000, 1600)],
            ),
            (
                "d --from 1000 --to 1600 --against 50",
                [(50, 650), (1000, 1600)],
            ),
            ("d --around 1000 --within 60s", [(940, 1000), (1000, 1060)]),
            ("a b --last 100s", [(400, 500), (800, 900)]),
            ("a --last 100s --against 200s", [(600, 700), (800, 900)]),
            ("a b --from 5 --to 6", [(5, 6), (5, 6)]),
        ] {
            assert_eq!(times(words, found), expected, "{words}");
        }
        for wrong in [
            "d",
            "d --last 5m",
            "d --from 5 --against 1h",
            "d --against 1h",
        ] {
            assert!(asked(wrong, true).is_err(), "{wrong}");
        }
        let Ok(Asked::Known([before, after])) = asked("d --last 5m --against 1h", true) else {
            panic!("times before now are known")
        };
        let hour = 3_600_000_000_000;
        assert_eq!(before.from_ns.map(|ns| ns + hour), after.from_ns);
        assert_eq!(before.to_ns.map(|ns| ns + hour), after.to_ns);
    }

    #[test]
    fn a_packet_between_two_sides_is_in_one_of_them() {
        let sides = asked("d --around 1000 --within 60s", true).unwrap();
        let [before, after] = sides.sides([None, None]);
        assert_eq!(before.last_ns(), after.from_ns.map(|ns| ns - 1));
        let sides = asked("d --from 100 --to 200 --against 100s", true).unwrap();
        let [before, after] = sides.sides([None, None]);
        assert_eq!(before.last_ns(), after.from_ns.map(|ns| ns - 1));
        assert_eq!(after.last_ns(), after.to_ns);
        assert_eq!(
            after.part_of((0, 150_000_000_000)),
            Some((100_000_000_000, 150_000_000_000))
        );
        assert_eq!(after.part_of((0, 50)), None);
    }
}
