//! Planted traffic, counted as a measurement counts it.
#![allow(dead_code, reason = "each test program uses other parts of the module")]

use std::net::Ipv4Addr;
use std::sync::Arc;
use weir_measure::health::{self, tcp};
use weir_measure::{Aggregate, Arrivals, By, Config, Counts, Kind, Observation, Spares, Window};
use weir_packet::flow::FlowKey;
use weir_screen::Tab;
use weir_view::{Settings, View};

pub const SECOND: i64 = 1_000_000_000;
/// 2023-11-14 22:13:20 UTC.
pub const BEGIN: i64 = 1_700_000_000 * SECOND;

/// Packets of a second.
#[derive(Default)]
pub struct Traffic {
    packets: Vec<(FlowKey, u32)>,
    rx: Counts,
    tx: Counts,
}

/// Host 10.0.0.0 plus a number.
fn host(number: u32) -> [u8; 4] {
    Ipv4Addr::from(0x0a00_0000 + number).octets()
}

fn key(proto: u8, from: (u32, u16), to: (u32, u16)) -> FlowKey {
    let mut key = FlowKey {
        family: 4,
        proto,
        sport: from.1,
        dport: to.1,
        flags: FlowKey::HAS_PORTS,
        ..FlowKey::NONE
    };
    key.src[..4].copy_from_slice(&host(from.0));
    key.dst[..4].copy_from_slice(&host(to.0));
    key
}

impl Traffic {
    /// Host 1 is this one.
    fn add(&mut self, key: FlowKey, from: u32, bytes: u32) {
        self.packets.push((key, bytes));
        let side = if from == 1 {
            &mut self.tx
        } else {
            &mut self.rx
        };
        side.packets += 1;
        side.bytes += u64::from(bytes);
    }

    pub fn udp(&mut self, from: (u32, u16), to: (u32, u16), bytes: u32) {
        self.add(key(17, from, to), from.0, bytes);
    }

    pub fn tcp(&mut self, from: (u32, u16), to: (u32, u16), bytes: u32) {
        self.add(key(6, from, to), from.0, bytes);
    }

    /// Downloads, names and a scan.
    pub fn usual(&mut self) {
        for _ in 0..200 {
            self.tcp((2, 443), (1, 40_000), 1514);
        }
        for _ in 0..100 {
            self.tcp((1, 40_000), (2, 443), 66);
            self.tcp((1, 50_000), (7, 443), 1200);
        }
        for client in 3..12 {
            self.udp((client, 5353), (1, 53), 80 + client);
            self.udp((1, 53), (client, 5353), 200 + client);
        }
        for port in 1..200 {
            self.tcp((13, 44_444), (1, port), 60);
        }
    }
}

/// Report of a conversation with losses.
fn report() -> health::Report {
    let figures = |packets, retransmitted| tcp::Figures {
        packets,
        retransmitted,
        ..tcp::Figures::default()
    };
    health::Report {
        most: 10,
        tcp: Some(tcp::Report {
            rows: vec![tcp::Row {
                key: key(6, (2, 443), (1, 40_000)),
                first_ns: BEGIN,
                latest_ns: BEGIN + SECOND,
                begun: true,
                handshake_ns: Some(12_300_000),
                directions: [figures(200, 7), figures(100, 0)],
            }],
            ..tcp::Report::default()
        }),
        dns: Some(health::dns::Report::default()),
        ..health::Report::default()
    }
}

/// A view that gets planted traffic, second by second.
pub struct Planted {
    aggregate: Aggregate,
    hasher: weir_packet::flow::Hasher,
    spares: Arc<Spares>,
    health: health::Report,
    pub view: View,
    seconds: i64,
}

impl Planted {
    pub fn new() -> Self {
        let config = Arc::new(Config {
            keys: Tab::kinds().collect(),
            by: By::Bytes,
            watch: true,
            memory: 1 << 18,
            ..Config::default()
        });
        let spares = Arc::<Spares>::default();
        Self {
            hasher: config.hasher(),
            aggregate: Aggregate::new(config, Arc::clone(&spares)).expect("memory"),
            spares,
            health: report(),
            view: View::new(Settings::default()),
            seconds: 0,
        }
    }

    /// Adds the next second.
    pub fn add(&mut self, traffic: &Traffic) {
        let second = self.seconds;
        self.seconds += 1;
        let span = (BEGIN + second * SECOND, BEGIN + (second + 1) * SECOND);
        let observed = traffic.packets.iter().map(|(flow, bytes)| {
            let mut packet = Observation::mark(self.hasher.plain(flow));
            packet.arrived(Kind::Flow, *bytes, span.0);
            packet.flow = *flow;
            packet
        });
        let observed: Vec<Observation> = observed.collect();
        self.aggregate.take(&observed, &[]).expect("memory");
        let state = self.aggregate.close(i64::MAX).pop().map(|(_, state)| state);
        self.view.add(&Window {
            span: Some(span),
            covered: Some(span),
            revision: 0,
            left_out: 0,
            arrivals: Arrivals {
                received: observed.len() as u64,
                rx: traffic.rx,
                tx: traffic.tx,
                ..Arrivals::default()
            },
            state: state.as_ref(),
            change: None,
            before: None,
            health: Some(&self.health),
            names: None,
        });
        state.into_iter().for_each(|state| self.spares.keep(state));
    }
}

/// A view of so many seconds with planted traffic.
pub fn view(seconds: i64, plant: impl Fn(i64, &mut Traffic)) -> View {
    let mut planted = Planted::new();
    for second in 0..seconds {
        let mut traffic = Traffic::default();
        plant(second, &mut traffic);
        planted.add(&traffic);
    }
    planted.view
}
