//! Planted traffic of each kind gives its finding, with the right begin and end, and ordinary traffic gives none.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use weir_measure::health::{self, dns};
use weir_measure::{Aggregate, Arrivals, Config, Kind, Observation, Spares, Window};
use weir_packet::flow::FlowKey;
use weir_testkit::Random;
use weir_view::{Finding, Kind as Found, Settings, State, View};

const SECOND: i64 = 1_000_000_000;
const BEGIN: i64 = 1_700_000_000 * SECOND;

/// Hosts by their number: 10.0.0.0/16.
fn host(number: u32) -> Ipv4Addr {
    Ipv4Addr::from(0x0a00_0000 + number)
}

#[derive(Default)]
struct Traffic {
    packets: Vec<(FlowKey, u32)>,
    broadcast: u64,
    dropped: u64,
    dns: Option<dns::Report>,
}

impl Traffic {
    fn packet(&mut self, from: (u32, u16), to: (u32, u16), bytes: u32) {
        let mut key = FlowKey {
            family: 4,
            proto: 17,
            sport: from.1,
            dport: to.1,
            flags: FlowKey::HAS_PORTS,
            ..FlowKey::NONE
        };
        key.src[..4].copy_from_slice(&host(from.0).octets());
        key.dst[..4].copy_from_slice(&host(to.0).octets());
        self.packets.push((key, bytes));
    }

    /// Clients that ask a few servers and get answers of any size.
    fn ordinary(&mut self, random: &mut Random) {
        for client in 0..20 {
            let (server, port) = (
                200 + random.below(10) as u32,
                1024 + random.below(50_000) as u16,
            );
            for _ in 0..1 + random.below(30) {
                self.packet((client, port), (server, 443), 60 + random.below(400) as u32);
                for _ in 0..random.below(4) {
                    self.packet(
                        (server, 443),
                        (client, port),
                        60 + random.below(1400) as u32,
                    );
                }
            }
            // Now and then a server does not answer.
            if random.below(4) == 0 {
                self.packet((client, port), (220, 53), 80);
            }
        }
        // A stream in one direction, of large packets.
        for _ in 0..1500 {
            self.packet((240, 5000), (30, 5000), 1300);
        }
        self.broadcast += random.below(8) as u64;
    }
}

/// Gives a window of each second to a view, and returns what it says.
fn findings(seconds: i64, plant: impl Fn(i64, &mut Traffic)) -> Vec<Finding> {
    let config = Arc::new(Config {
        watch: true,
        memory: 1 << 20,
        ..Config::default()
    });
    let (hasher, spares) = (config.hasher(), Arc::<Spares>::default());
    let aggregate = Aggregate::new(Arc::clone(&config), Arc::clone(&spares));
    let (mut aggregate, mut view) = (aggregate.expect("memory"), View::new(Settings::default()));
    let mut said = Vec::new();
    for second in 0..seconds {
        let mut traffic = Traffic::default();
        plant(second, &mut traffic);
        let span = (BEGIN + second * SECOND, BEGIN + (second + 1) * SECOND);
        let observed = traffic.packets.iter().map(|(flow, bytes)| {
            let mut packet = Observation::mark(hasher.plain(flow));
            packet.arrived(Kind::Flow, *bytes, span.0);
            packet.flow = *flow;
            packet
        });
        let observed: Vec<Observation> = observed.collect();
        aggregate.take(&observed, &[]).expect("memory");
        let state = aggregate.close(i64::MAX).pop().map(|(_, state)| state);
        let health = traffic.dns.map(|dns| health::Report {
            dns: Some(dns),
            ..health::Report::default()
        });
        view.add(&Window {
            span: Some(span),
            covered: Some(span),
            revision: 0,
            left_out: 0,
            arrivals: Arrivals {
                received: observed.len() as u64 + traffic.dropped,
                broadcast: traffic.broadcast,
                dropped: traffic.dropped,
                ..Arrivals::default()
            },
            state: state.as_ref(),
            change: None,
            before: None,
            health: health.as_ref(),
            names: None,
        });
        state.into_iter().for_each(|state| spares.keep(state));
        said.extend(view.findings().take_notices());
    }
    view.findings().finish();
    said.extend(view.findings().take_notices());
    said
}

/// One finding, from second to second.
#[track_caller]
fn is_one(said: &[Finding], kind: Found, host: Option<u32>, (begin, last): (i64, i64)) {
    let ends = [State::Begun, State::Ended];
    let states: Vec<_> = said.iter().map(|finding| finding.state).collect();
    assert_eq!(states, ends, "{said:#?}");
    for finding in said {
        let about = host.map(|number| IpAddr::V4(self::host(number)));
        assert_eq!((finding.kind, finding.host), (kind, about));
        assert_eq!(finding.begin_ns, BEGIN + begin * SECOND);
        assert!(!finding.row.is_empty());
    }
    assert_eq!(said[1].last_ns, BEGIN + last * SECOND);
    assert!(said[1].most >= said[0].most);
}

/// Ordinary traffic, and in some seconds more.
fn with(seed: u64, plant: impl Fn(i64, &mut Traffic)) -> impl Fn(i64, &mut Traffic) {
    move |second, traffic| {
        traffic.ordinary(&mut Random(seed * 1000 + second as u64));
        plant(second, traffic);
    }
}

#[test]
fn ordinary_traffic_has_no_finding() {
    for seed in 0..10 {
        assert_eq!(findings(90, with(seed, |_, _| {})), []);
    }
}

#[test]
fn a_scan_has_a_begin_and_an_end() {
    let said = findings(
        40,
        with(1, |second, traffic| {
            if (5..17).contains(&second) {
                for port in 0..50 {
                    traffic.packet((66, 40_000), (7, port + second as u16 * 50), 60);
                }
            }
        }),
    );
    is_one(&said, Found::Scan, Some(66), (5, 17));
    assert_eq!(said[1].row, "50 contacts, 50 unanswered, 0 refused");
}

#[test]
fn a_flood_has_a_begin_and_an_end_whoever_sends_it() {
    let said = findings(
        40,
        with(2, |second, traffic| {
            if (5..15).contains(&second) {
                for from in 0..3000 {
                    traffic.packet((1000 + from, 4000), (9, 80), 60);
                }
            }
        }),
    );
    is_one(&said, Found::Flood, Some(9), (5, 15));
}

#[test]
fn storms_and_losses_are_of_the_whole_link() {
    let storm = |second, traffic: &mut Traffic| {
        traffic.broadcast += if (8..20).contains(&second) { 50 } else { 0 };
    };
    is_one(&findings(45, with(3, storm)), Found::Storm, None, (8, 20));
    let loss = |second, traffic: &mut Traffic| {
        traffic.dropped = if (3..6).contains(&second) { 7 } else { 0 };
    };
    is_one(&findings(45, with(4, loss)), Found::Loss, None, (3, 6));
}

#[test]
fn slow_and_silent_servers_of_dns_are_found() {
    let server = |number: u32, answers: u64, ms: i64, unanswered: u64| {
        let mut figures = dns::Figures::default();
        figures.times.count = answers;
        figures.times.sum_ns = answers as i64 * ms * 1_000_000;
        figures.unanswered = unanswered;
        dns::ServerRow {
            server: host(number).into(),
            figures,
        }
    };
    let cases = [(1200, 0, true), (20, 5, true), (1200, 0, false)];
    for (ms, unanswered, is_always) in cases {
        let said = findings(60, |second, traffic| {
            let (ms, unanswered) = match (10..20).contains(&second) {
                true => (ms, unanswered),
                false => (20, 0),
            };
            // Later windows without DNS change nothing.
            traffic.dns = (second < 20 || is_always).then(|| dns::Report {
                servers: vec![server(53, 8, ms, unanswered), server(54, 8, 20, 0)],
                ..dns::Report::default()
            });
        });
        let ends: Vec<_> = said.iter().map(|finding| finding.state).collect();
        assert_eq!(ends, [State::Begun, State::Ended], "{said:#?}");
        assert!(said.iter().all(|finding| {
            (finding.kind, finding.host) == (Found::SlowDns, Some(host(53).into()))
        }));
        // Figures of 10 s tell it within 5 s, and for as long after it.
        let begin = (said[0].begin_ns - BEGIN) / SECOND;
        let last = (said[1].last_ns - BEGIN) / SECOND;
        assert!(
            (10..=15).contains(&begin) && (20..30).contains(&last),
            "{begin} {last}"
        );
    }
}

#[test]
fn a_host_is_new_after_the_time_of_learning_and_only_once() {
    let said = findings(
        100,
        with(5, |second, traffic| {
            if second > 70 {
                traffic.packet((300, 1), (200, 443), 60);
                traffic.packet((200, 443), (300, 1), 60);
            }
        }),
    );
    is_one(&said, Found::NewHost, Some(300), (71, 72));
}

/// The thresholds of `docs/reference/findings.md`: what meets them begins, and one less does not.
#[test]
fn thresholds_are_those_of_the_page() {
    let begins = |kind: Found, plant: &dyn Fn(&mut Traffic)| {
        let said = findings(5, |_, traffic| {
            // Somebody answers, so that the capture has both directions.
            traffic.packet((1, 1), (2, 443), 60);
            traffic.packet((2, 443), (1, 1), 60);
            plant(traffic);
        });
        assert!(said.iter().all(|finding| finding.kind == kind), "{said:?}");
        !said.is_empty()
    };
    let scan = |unanswered: u16, answered: u16| {
        begins(Found::Scan, &|traffic| {
            for port in 0..unanswered + answered {
                traffic.packet((66, 40_000), (7, 1 + port), 60);
            }
            for port in 0..answered {
                traffic.packet((7, 1 + port), (66, 40_000), 60);
            }
        })
    };
    assert_eq!(
        [scan(20, 5), scan(20, 6), scan(19, 0)],
        [true, false, false]
    );
    let flood = |packets: u32, bytes, sent| {
        begins(Found::Flood, &|traffic| {
            for from in 0..packets {
                traffic.packet((1000 + from % 4000, 4000), (9, 80), bytes);
            }
            for to in 0..sent {
                traffic.packet((9, 80), (1000 + to, 4000), 60);
            }
        })
    };
    assert_eq!([flood(1000, 256, 100), flood(999, 256, 0)], [true, false]);
    assert_eq!([flood(1000, 257, 0), flood(1000, 256, 101)], [false; 2]);
    assert_eq!(
        [flood(20_000, 257, 0), flood(19_999, 257, 0)],
        [true, false]
    );
    let storm = |packets| begins(Found::Storm, &|traffic| traffic.broadcast = packets);
    assert_eq!([storm(25), storm(24)], [true, false]);
    let slow = |answers: u64, ms: i64, unanswered: u64| {
        begins(Found::SlowDns, &|traffic| {
            let mut figures = dns::Figures::default();
            (figures.times.count, figures.unanswered) = (answers, unanswered);
            figures.times.sum_ns = answers as i64 * ms * 1_000_000;
            traffic.dns = Some(dns::Report {
                servers: vec![dns::ServerRow {
                    server: host(53).into(),
                    figures,
                }],
                ..dns::Report::default()
            });
        })
    };
    assert_eq!([slow(1, 500, 0), slow(1, 499, 0)], [true, false]);
    assert_eq!([slow(4, 20, 1), slow(5, 20, 1)], [true, false]);
}

/// A figure that goes up and down around its threshold is one finding, and a finding at the end of the measurement is open.
#[test]
fn findings_do_not_flap_and_the_end_of_the_measurement_is_not_theirs() {
    let said = findings(
        30,
        with(6, |second, traffic| {
            traffic.broadcast += [30, 15][second as usize % 2] * u64::from(second > 3);
            if second <= 7 {
                traffic.broadcast += 30;
            }
        }),
    );
    let states: Vec<_> = said.iter().map(|finding| finding.state).collect();
    assert_eq!(states, [State::Begun, State::Open], "{said:#?}");
}

/// More subjects than there is room for, and clocks that jump: nothing grows without a limit.
#[test]
fn many_findings_and_clocks_that_jump_do_no_harm() {
    let said = findings(6, |_, traffic| {
        for source in 0..400 {
            for port in 0..30 {
                traffic.packet((1000 + source, 1), (7, port), 60);
            }
        }
        traffic.packet((7, 1), (1000, 1), 60);
    });
    let begun = said.iter().filter(|finding| finding.state == State::Begun);
    assert!((100..=256).contains(&begun.count()));
}
