//! The health of planted traffic: each figure is what the generator decided.

use weir_generator::FRAME_MAX;
use weir_generator::known::{Connections, Dialogues, Flood, Known, Plan, Traffic};
use weir_measure::health::{Config, Health, MEMORY, Parts, Report, tcp};
use weir_packet::flow::Parser;
use weir_packet::transport::Transport;
use weir_packet::{Frame, LinkType};

const MILLISECOND: i64 = 1_000_000;

fn plan(seed: u64) -> Plan {
    Plan {
        seed,
        connections: Connections {
            count: 400,
            retransmissions: 120,
            reordered: 150,
            zero_windows: 90,
            resets: 60,
        },
        dialogues: Dialogues {
            count: 300,
            slow: 20,
            failing: 40,
            unanswered: 30,
            ..Dialogues::default()
        },
        ..Plan::default()
    }
}

/// Looks at all packets of a plan, in windows of `window_ns` if that is not 0. Returns the reports of the windows, and of all.
fn look(plan: &Plan, memory: usize, window_ns: i64) -> (Vec<Report>, Report, Known) {
    let mut health = Health::new(&Config {
        parts: Parts {
            tcp: true,
            dns: true,
            path: true,
        },
        names: None,
        memory,
        rows: 1000,
        windows: window_ns != 0,
        seed: 5,
    });
    let parser = Parser::new(LinkType::ETHERNET, false).expect("Ethernet has keys");
    let mut traffic = Traffic::new(plan).expect("the plan is sound");
    let (mut buf, mut windows, mut end) = ([0; FRAME_MAX], Vec::new(), i64::MAX);
    while let Some(made) = traffic.next(&mut buf) {
        if window_ns != 0 && end == i64::MAX {
            end = made.time_ns + window_ns;
        }
        while made.time_ns >= end {
            windows.push(health.end_window());
            end += window_ns;
        }
        let frame = Frame {
            data: &buf[..made.len],
            wire_len: made.len as u32,
            interface: 0,
        };
        let Ok(transport) = Transport::of(&parser, &frame) else {
            continue;
        };
        let hash = health.prefetch(&transport.key);
        health.take(&transport, hash, made.time_ns);
    }
    if window_ns != 0 {
        windows.push(health.end_window());
    }
    (windows, health.total(), traffic.known().clone())
}

fn tcp_of(report: &Report) -> &tcp::Report {
    report.tcp.as_ref().expect("TCP was looked at")
}

#[test]
fn planted_troubles_are_counted_one_by_one() {
    for seed in 1..4 {
        let (_, report, known) = look(&plan(seed), MEMORY, 0);
        let (tcp, known_tcp) = (tcp_of(&report), &known.connections);
        let sum = &tcp.sum;
        assert_eq!(tcp.numbers.conversations, 400);
        assert_eq!((tcp.numbers.midway, tcp.numbers.evicted), (0, 0));
        assert_eq!(
            [
                sum.retransmitted,
                sum.out_of_order,
                sum.zero_windows,
                sum.resets
            ],
            [
                known_tcp.retransmissions,
                known_tcp.reordered,
                known_tcp.zero_windows,
                known_tcp.reset
            ],
        );
        assert_eq!(sum.repeated, known_tcp.retransmissions);
        // A segment that overtakes leaves a gap in front of it.
        assert_eq!(
            (sum.gaps, sum.fast, sum.spurious),
            (known_tcp.reordered, 0, 0)
        );
        let sent: [u64; 2] =
            [0, 1].map(|end| tcp.rows.iter().map(|row| row.directions[end].bytes).sum());
        let again: u64 = tcp
            .rows
            .iter()
            .map(|row| row.directions[1].retransmitted_bytes)
            .sum();
        assert_eq!([sent[0], sent[1] - again], known_tcp.payload);
        for row in &tcp.rows {
            assert!(row.begun);
            assert_eq!(row.handshake_ns, Some(20 * MILLISECOND));
            assert_eq!(
                row.directions[0].rtt.range_ns().map(|(min, _)| min),
                Some(10 * MILLISECOND)
            );
        }
        let (dns, known_dns) = (report.dns.expect("DNS was looked at"), &known.dialogues);
        assert_eq!(dns.sum.queries, known_dns.queries);
        assert_eq!(dns.sum.unanswered, known_dns.unanswered);
        assert_eq!(dns.sum.failed(), known_dns.failing);
        assert_eq!(dns.sum.codes.iter().sum::<u64>(), known_dns.answers);
        assert_eq!(
            (dns.sum.times.count, dns.sum.times.sum_ns),
            (known_dns.answers, known_dns.waited_ns)
        );
        assert_eq!(dns.sum.times.max_ns, plan(seed).dialogues.slow_ns);
        assert_eq!(
            (dns.servers.len(), dns.sum.unasked, dns.sum.retransmitted),
            (1, 0, 0)
        );
        assert_eq!(dns.servers[0].figures, dns.sum);
        let names = [&dns.failing, &dns.unanswered];
        assert_eq!(
            names.map(|names| names.len() as u64),
            [known_dns.failing, known_dns.unanswered]
        );
        assert!(
            dns.slow[..20]
                .iter()
                .all(|row| row.figures.times.max_ns == plan(seed).dialogues.slow_ns)
        );
    }
}

#[test]
fn windows_add_up_to_the_whole() {
    let (_, whole, _) = look(&plan(9), MEMORY, 0);
    let (windows, total, _) = look(&plan(9), MEMORY, 100 * MILLISECOND);
    assert!(windows.len() > 10);
    assert_eq!(
        tcp_of(&total),
        &tcp::Report {
            capacity: tcp_of(&total).capacity,
            ..tcp_of(&whole).clone()
        }
    );
    assert_eq!(
        total.dns.as_ref().map(|dns| dns.sum),
        whole.dns.as_ref().map(|dns| dns.sum)
    );
    let mut sum = tcp::Figures::default();
    windows.iter().for_each(|window| sum += tcp_of(window).sum);
    assert_eq!(sum, tcp_of(&whole).sum);
    // In each window the rows have all of it, too.
    for window in &windows {
        let mut of_rows = tcp::Figures::default();
        tcp_of(window)
            .rows
            .iter()
            .for_each(|row| of_rows += row.both());
        assert_eq!(of_rows, tcp_of(window).sum);
    }
    let queries = |report: &Report| report.dns.as_ref().map_or(0, |dns| dns.sum.queries);
    assert_eq!(windows.iter().map(queries).sum::<u64>(), queries(&whole));
}

#[test]
fn a_flood_of_requests_displaces_itself() {
    let plan = Plan {
        floods: vec![Flood {
            frames: 60_000,
            sources: 524_288,
            begin_ns: 0,
            gap_ns: 40_000,
        }],
        ..plan(3)
    };
    let (_, report, known) = look(&plan, 2 << 20, 0);
    let (tcp, known_tcp) = (tcp_of(&report), &known.connections);
    assert!(tcp.numbers.evicted > 50_000, "{:?}", tcp.numbers);
    assert_eq!(tcp.numbers.evicted_retransmitted, 0);
    let sum = &tcp.sum;
    assert_eq!(
        [
            sum.retransmitted,
            sum.out_of_order,
            sum.zero_windows,
            sum.resets
        ],
        [
            known_tcp.retransmissions,
            known_tcp.reordered,
            known_tcp.zero_windows,
            known_tcp.reset
        ],
    );
    let troubled = tcp.rows.iter().filter(|row| row.both().retransmitted > 0);
    assert_eq!(troubled.count() as u64, known_tcp.retransmissions);
}
