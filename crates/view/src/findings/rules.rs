//! Rules of findings, over one window at a time. Thresholds: `docs/reference/findings.md`.

use super::{Kind, SECOND};
use std::collections::{HashMap, HashSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use weir_measure::health::dns;
use weir_measure::{Row, Spreader, Window, per_second};
use weir_packet::addresses::Addresses;

/// Number of hosts and of sources whose rows are searched.
const ROWS: usize = 200;

/// Contacts without an answer per second: a scan begins, and stays.
const SCAN: (f64, f64) = (20.0, 5.0);
/// Least share of the contacts of a scan that have no answer, or a refusal.
const SCAN_SHARE: f64 = 0.8;

/// Packets received per second: a flood of packets of at most [`SMALL`] bytes begins, and stays; and a flood of any packets begins.
const FLOOD: (f64, f64) = (1000.0, 500.0);
const FLOOD_OF_ANY: f64 = 20_000.0;
const SMALL: u64 = 256;
/// Received packets for each packet that the host of a flood sends.
const FLOOD_RATIO: u64 = 10;

/// Packets to all stations per second: a storm begins, and stays.
const STORM: (f64, f64) = (25.0, 12.0);

/// Time over which the answers of a DNS server are added up, ns.
const DNS_NS: i64 = 10 * SECOND;
/// Least number of slow or of missing answers in this time.
const DNS_LEAST: u64 = 5;
/// Mean time of the answers of a slow server, s: it begins, and stays.
const DNS_SLOW: (f64, f64) = (0.5, 0.3);
/// Share of queries without an answer, of queries that had one or were given up: it begins, and stays.
const DNS_LOST: (f64, f64) = (0.2, 0.1);
/// Most DNS servers.
const SERVERS: usize = 64;

/// Time in which hosts are learnt before any is new, ns.
const LEARNING_NS: i64 = 60 * SECOND;
/// Most hosts that are known. With more, no host is new any more.
const KNOWN: usize = 1 << 16;
/// Most new hosts in a window; with more, the sources are forged, and the others are left out.
const NEW: usize = 16;

/// A subject that meets a rule in a window.
#[derive(Debug)]
pub(super) struct Met {
    pub kind: Kind,
    pub host: Option<IpAddr>,
    /// Whether the figure is large enough for a begin; else only for a finding that has begun.
    pub begins: bool,
    pub figure: f64,
    pub row: String,
}

/// Answers of a DNS server in recent windows: ends of the windows and figures.
type Answers = VecDeque<(i64, Sums)>;

#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    answers: u64,
    sum_ns: i64,
    unanswered: u64,
}

#[derive(Debug)]
pub(super) struct Rules {
    local: Option<Arc<Addresses>>,
    servers: HashMap<IpAddr, Answers>,
    known: HashSet<IpAddr>,
    /// Begin of the first window.
    since_ns: Option<i64>,
}

impl Rules {
    pub fn new(local: Option<Arc<Addresses>>) -> Self {
        Self {
            local,
            servers: HashMap::new(),
            known: HashSet::new(),
            since_ns: None,
        }
    }

    /// Memory of the known hosts, bytes.
    pub fn memory(&self) -> usize {
        self.known.capacity() * 8 / 7 * (size_of::<IpAddr>() + 1)
    }

    /// Returns the subjects that meet a rule in a window.
    pub fn look(&mut self, window: &Window<'_>, span: (i64, i64)) -> Vec<Met> {
        let ns = span.1.saturating_sub(span.0).max(1) as u64;
        let mut met = Vec::new();
        let arrivals = &window.arrivals;
        if arrivals.dropped > 0 {
            met.push(Met {
                kind: Kind::Loss,
                host: None,
                begins: true,
                figure: arrivals.dropped as f64,
                row: format!("{} of {} packets", arrivals.dropped, arrivals.received),
            });
        }
        let broadcasts = per_second(arrivals.broadcast, ns).unwrap_or(0.0);
        if broadcasts >= STORM.1 {
            met.push(Met {
                kind: Kind::Storm,
                host: None,
                begins: broadcasts >= STORM.0,
                figure: broadcasts,
                row: format!("{} packets to all stations", arrivals.broadcast),
            });
        }
        if let Some((hosts, contacts)) = window.state.and_then(|state| state.watched(ROWS)) {
            met.extend(hosts.rows.iter().filter_map(|row| flood(row, ns)));
            met.extend(contacts.rows.iter().filter_map(|row| scan(row, ns)));
            self.learn(&hosts.rows, span.0, &mut met);
        }
        // A window without DNS is part of the time that the rule is about.
        let dns = window.health.and_then(|health| health.dns.as_ref());
        let servers = dns.map_or(&[][..], |dns| &dns.servers);
        self.dns(servers, span.1, &mut met);
        met
    }

    /// Notes hosts that send, and tells new ones of the local networks.
    fn learn(&mut self, rows: &[Row], begin: i64, met: &mut Vec<Met>) {
        let since = *self.since_ns.get_or_insert(begin);
        let is_learning = begin.saturating_sub(since) < LEARNING_NS;
        let before = met.len();
        for row in rows {
            let sent = row.sides.map_or(0, |sides| sides.tx.packets);
            let host = row
                .key
                .source()
                .filter(|host| sent > 0 && self.is_local(*host));
            let Some(host) = host else { continue };
            if self.known.len() >= KNOWN || !self.known.insert(host) {
                continue;
            }
            if !is_learning && met.len() - before < NEW {
                met.push(Met {
                    kind: Kind::NewHost,
                    host: Some(host),
                    begins: true,
                    figure: sent as f64,
                    row: format!("{sent} packets sent"),
                });
            }
        }
    }

    fn is_local(&self, host: IpAddr) -> bool {
        match (&self.local, host) {
            (Some(local), host) => local.has(host),
            (None, IpAddr::V4(v4)) => v4.is_private() || v4.is_link_local(),
            (None, IpAddr::V6(v6)) => v6.is_unique_local() || v6.is_unicast_link_local(),
        }
    }

    fn dns(&mut self, rows: &[dns::ServerRow], end: i64, met: &mut Vec<Met>) {
        for row in rows {
            if self.servers.len() >= SERVERS && !self.servers.contains_key(&row.server) {
                continue;
            }
            let answers = self.servers.entry(row.server).or_default();
            let sums = Sums {
                answers: row.figures.times.count,
                sum_ns: row.figures.times.sum_ns,
                unanswered: row.figures.unanswered,
            };
            answers.push_back((end, sums));
        }
        for (server, answers) in &mut self.servers {
            let is_recent = |(at, _): &(i64, Sums)| *at <= end && *at > end.saturating_sub(DNS_NS);
            answers.retain(is_recent);
            met.extend(slow_dns(*server, answers));
        }
        self.servers.retain(|_, answers| !answers.is_empty());
    }
}

fn slow_dns(server: IpAddr, recent: &Answers) -> Option<Met> {
    let mut all = Sums::default();
    for (_, sums) in recent {
        all.answers += sums.answers;
        all.sum_ns = all.sum_ns.saturating_add(sums.sum_ns);
        all.unanswered += sums.unanswered;
    }
    let judged = all.answers + all.unanswered;
    let mean = all.sum_ns as f64 / 1e9 / all.answers.max(1) as f64;
    let lost = all.unanswered as f64 / judged.max(1) as f64;
    let is_slow = |mean_from: f64, lost_from: f64| {
        all.answers >= DNS_LEAST && mean >= mean_from
            || all.unanswered >= DNS_LEAST && lost >= lost_from
    };
    is_slow(DNS_SLOW.1, DNS_LOST.1).then(|| Met {
        kind: Kind::SlowDns,
        host: Some(server),
        begins: is_slow(DNS_SLOW.0, DNS_LOST.0),
        figure: mean,
        row: [
            (all.answers > 0).then(|| format!("{} answers in {mean:.3} s on average", all.answers)),
            (all.unanswered > 0).then(|| format!("{} queries without an answer", all.unanswered)),
        ]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join(", "),
    })
}

fn flood(row: &Row, ns: u64) -> Option<Met> {
    let sides = row.sides?;
    let host = row.key.source()?;
    let is_group = match host {
        IpAddr::V4(v4) => v4.is_multicast() || v4.is_broadcast(),
        IpAddr::V6(v6) => v6.is_multicast(),
    };
    let rate = per_second(sides.rx.packets, ns)?;
    let is_small = sides.rx.bytes <= sides.rx.packets.saturating_mul(SMALL);
    let least = if is_small {
        FLOOD.1
    } else {
        FLOOD_OF_ANY / 2.0
    };
    let is_one_way = sides.rx.packets >= sides.tx.packets.saturating_mul(FLOOD_RATIO);
    (rate >= least && is_one_way && !is_group).then(|| Met {
        kind: Kind::Flood,
        host: Some(host),
        begins: rate >= least * 2.0,
        figure: rate,
        row: format!(
            "{} packets and {} bytes received, {} packets sent",
            sides.rx.packets, sides.rx.bytes, sides.tx.packets
        ),
    })
}

fn scan(row: &Spreader, ns: u64) -> Option<Met> {
    let host = row.key.source()?;
    // Without any answer in the capture, nobody knows whether contacts are answered.
    let silent = row.unanswered? + row.refused?;
    // With a sample, at least as many as its lower bound allows.
    let share = silent as f64 / row.elements.max(1) as f64;
    let least = (row.bound.lower as f64 * share) as u64;
    let rate = per_second(least, ns)?;
    (rate >= SCAN.1 && share >= SCAN_SHARE).then(|| Met {
        kind: Kind::Scan,
        host: Some(host),
        begins: rate >= SCAN.0,
        figure: rate,
        row: format!(
            "{} contacts, {} unanswered, {} refused",
            row.elements,
            row.unanswered.unwrap_or(0),
            row.refused.unwrap_or(0)
        ),
    })
}
