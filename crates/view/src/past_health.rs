//! Health of earlier seconds, in bytes.

use crate::wire;
use std::collections::VecDeque;
use weir_measure::health;

/// Most bytes of the reports, and most reports: as many as steps of a second are kept.
pub(crate) const MOST: usize = 8 << 20;
const REPORTS: usize = 600;

/// Reports by the second in which their windows began, in the order of their delivery.
#[derive(Debug, Default)]
pub(crate) struct PastHealth {
    reports: VecDeque<(i64, Box<[u8]>)>,
    bytes: usize,
}

impl PastHealth {
    /// Notes the report of a window that begins at a time, ns since 1970. Of several windows of a second, the last report stays.
    pub fn add(&mut self, begin_ns: i64, report: &health::Report) {
        let second = second_of(begin_ns);
        let is_same = self.reports.back().is_some_and(|(last, _)| *last == second);
        if let Some((_, replaced)) = is_same.then(|| self.reports.pop_back()).flatten() {
            self.bytes -= replaced.len();
        }
        let bytes = wire::health_bytes(report);
        self.bytes += bytes.len();
        self.reports.push_back((second, bytes));
        while self.bytes > MOST || self.reports.len() > REPORTS {
            let Some((_, oldest)) = self.reports.pop_front() else {
                break;
            };
            self.bytes -= oldest.len();
        }
    }

    /// Returns the report of the second of a time, the latest one if the clock went back; `None` if it has left. **Cost**: of all reports.
    pub fn at(&self, begin_ns: i64) -> Option<health::Report> {
        let second = second_of(begin_ns);
        let mut latest_first = self.reports.iter().rev();
        let found = latest_first.find(|(other, _)| *other == second);
        found.map(|(_, bytes)| wire::health_of(bytes))
    }

    /// Memory, bytes.
    pub fn memory(&self) -> usize {
        self.bytes + self.reports.capacity() * size_of::<(i64, Box<[u8]>)>()
    }
}

fn second_of(ns: i64) -> i64 {
    ns.div_euclid(1_000_000_000)
}

/// Largest memory of the reports, bytes.
pub(crate) const MOST_MEMORY: usize = 2 * MOST + 2 * REPORTS * size_of::<(i64, Box<[u8]>)>();

#[cfg(test)]
mod tests {
    use super::*;
    use weir_measure::health::tcp;

    fn report(conversations: u64, rows: usize) -> health::Report {
        let row = tcp::Row {
            key: weir_packet::flow::FlowKey::NONE,
            first_ns: i64::MAX,
            latest_ns: i64::MAX,
            begun: true,
            handshake_ns: None,
            directions: Default::default(),
        };
        health::Report {
            tcp: Some(tcp::Report {
                numbers: tcp::Numbers {
                    conversations,
                    ..tcp::Numbers::default()
                },
                rows: vec![row; rows],
                ..tcp::Report::default()
            }),
            ..health::Report::default()
        }
    }

    #[test]
    fn each_second_has_its_report_until_it_leaves() {
        const SECOND: i64 = 1_000_000_000;
        let mut past = PastHealth::default();
        let begin = -300 * SECOND;
        for number in 0..1000 {
            // Two windows of a second, whose last report stays.
            past.add(begin + number * SECOND, &report(7, 1));
            past.add(
                begin + number * SECOND + SECOND / 2,
                &report(number as u64, 1),
            );
        }
        assert_eq!(past.at(begin + 399 * SECOND), None);
        for number in 400..1000 {
            let found = past.at(begin + number * SECOND + 1);
            assert_eq!(found, Some(report(number as u64, 1)));
        }
        // The clock goes back: the later report is shown.
        past.add(begin + 500 * SECOND, &report(1, 0));
        assert_eq!(past.at(begin + 500 * SECOND), Some(report(1, 0)));
        assert!(past.memory() <= MOST_MEMORY);
    }

    #[test]
    fn large_reports_leave_earlier() {
        let mut past = PastHealth::default();
        let large = report(1, 1000);
        for number in 0..600 {
            past.add(number * 1_000_000_000, &large);
            assert!(past.memory() <= MOST_MEMORY);
        }
        assert_eq!(past.at(0), None);
        assert_eq!(past.at(599_000_000_000), Some(large));
        assert!(past.bytes > MOST / 2);
    }
}
