//! Times that packets must lie between.

use std::sync::atomic::{AtomicI64, Ordering};

/// Times of the packets to keep. A packet without a timestamp lies in a span without limits only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// The first time, ns since 1970; `None` for no limit.
    pub from_ns: Option<i64>,
    /// The last time, which is part of the span, ns since 1970; `None` for no limit.
    pub to_ns: Option<i64>,
    /// Length of the span before the latest packet of all sources, ns. The run reads the sources once more to find that packet.
    pub last_ns: Option<u64>,
}

impl Span {
    /// Whether there is no limit.
    pub fn is_all(&self) -> bool {
        *self == Self::default()
    }

    /// Returns a description of the span: `packets from 2026-11-23T05:30:00.000000Z on`; `None` if there is no limit.
    /// `stamp` writes a time.
    pub fn words(&self, stamp: impl Fn(i64) -> String) -> Option<String> {
        Some(match (self.from_ns, self.to_ns, self.last_ns) {
            (_, _, Some(last)) => format!(
                "packets of the last {} s before the latest one",
                seconds(last)
            ),
            (None, None, None) => return None,
            (Some(from), None, _) => format!("packets from {} on", stamp(from)),
            (None, Some(to), _) => format!("packets up to {}", stamp(to)),
            (Some(from), Some(to), _) => format!("packets from {} to {}", stamp(from), stamp(to)),
        })
    }
}

/// Returns a time of so many ns in seconds, with the decimals that are needed.
pub fn seconds(ns: u64) -> String {
    let (whole, part) = (ns / 1_000_000_000, ns % 1_000_000_000);
    match part {
        0 => whole.to_string(),
        _ => format!("{whole}.{}", format!("{part:09}").trim_end_matches('0')),
    }
}

/// The span of a filter in use. Its begin is known late if it depends on the latest packet.
#[derive(Debug)]
pub(super) struct Limits {
    from_ns: AtomicI64,
    to_ns: i64,
    is_all: bool,
}

impl Limits {
    pub(super) fn new(span: &Span) -> Self {
        Self {
            from_ns: AtomicI64::new(span.from_ns.unwrap_or(i64::MIN)),
            to_ns: span.to_ns.unwrap_or(i64::MAX),
            is_all: span.is_all(),
        }
    }

    #[inline]
    pub(super) fn are_all(&self) -> bool {
        self.is_all
    }

    /// Sets the begin, before any packet is judged.
    pub(super) fn begin_at(&self, from_ns: i64) {
        self.from_ns.store(from_ns, Ordering::Relaxed);
    }

    /// Takes the begin of the limits before.
    pub(super) fn follow(&self, before: &Self) {
        self.begin_at(before.from_ns.load(Ordering::Relaxed));
    }

    /// Returns the limits as a range.
    #[inline]
    pub(super) fn range(&self) -> std::ops::RangeInclusive<i64> {
        self.from_ns.load(Ordering::Relaxed)..=self.to_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_told_in_words() {
        let span = |from_ns, to_ns, last_ns| Span {
            from_ns,
            to_ns,
            last_ns,
        };
        let words = |span: Span| span.words(|ns| format!("t{ns}"));
        assert_eq!(words(Span::default()), None);
        for (span, expected) in [
            (span(Some(1), None, None), "packets from t1 on"),
            (span(None, Some(2), None), "packets up to t2"),
            (span(Some(1), Some(2), None), "packets from t1 to t2"),
            (
                span(None, None, Some(1_500_000_000)),
                "packets of the last 1.5 s before the latest one",
            ),
        ] {
            assert_eq!(words(span).as_deref(), Some(expected));
            assert!(!span.is_all());
        }
    }
}
