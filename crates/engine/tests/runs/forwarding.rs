//! A firewall between two interfaces, driven by a program and not by the command. What arrives behind it is told by the numbers in the packets.

use crate::running::{Collect, Got, LONG, end};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;
use weir_engine::capture::{self, CaptureRequest, FanoutBy};
use weir_engine::event::Event;
use weir_engine::firewall::changes::NewRules;
use weir_engine::firewall::controller::{ChangeError, Controller};
use weir_engine::firewall::forwarding::{Error, Forwarding, Notice, RulesRefused, Settings, Work};
use weir_engine::firewall::interface_lock::LockError;
use weir_engine::firewall::{Policy, RuleSet, RuleSettings, SharedPolicy};
use weir_engine::handle::Handle;
use weir_engine::name::Name;
use weir_engine::port::Port;
use weir_engine::run::{Run, Setup};
use weir_engine::session::{End, Session};
use weir_engine::sink::Wanted;
use weir_firewall::Classifier;
use weir_firewall::rules::{RuleList, Side};
use weir_testkit::{net, wait};

/// Packets of a part of the traffic: there is room for them on a cable.
const PART: u32 = 250;

/// Returns a whole datagram to port 53 (even numbers) or 80 (odd ones), with its number at the end.
fn frame(number: u32) -> Vec<u8> {
    let mut frame = vec![0; 60];
    frame[..6].fill(0xff);
    frame[12..18].copy_from_slice(&[8, 0, 0x45, 0, 0, 46]);
    frame[22..24].copy_from_slice(&[64, 17]);
    frame[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 1, 0, 1]);
    frame[36..38].copy_from_slice(&[53u16, 80][number as usize % 2].to_be_bytes());
    frame[38..40].copy_from_slice(&26u16.to_be_bytes());
    frame[56..].copy_from_slice(&number.to_be_bytes());
    frame
}

fn numbers(got: &Got) -> Vec<u32> {
    let number = |data: &[u8]| u32::from_be_bytes(data[56..60].try_into().unwrap());
    let got = got.lock().unwrap();
    got.iter().map(|(packet, _)| number(&packet.2)).collect()
}

fn list(text: &str) -> Result<RuleList, String> {
    RuleList::parse(text, &mut |_| panic!("no file is named")).map_err(|error| error.to_string())
}

fn policy(text: &str) -> Arc<SharedPolicy> {
    let settings = RuleSettings {
        inner: None,
        seed: 1,
        connections: 16,
    };
    let rules = RuleSet::new(Classifier::new(list(text).unwrap()).unwrap(), settings).unwrap();
    SharedPolicy::new(Policy::new(None, Arc::new(rules)), 64)
}

fn settings(source: &str, sink: &str) -> Settings {
    Settings {
        source: Name::from(source),
        sink: Name::from(sink),
        bidirectional: false,
        tap: false,
        fails_open: false,
        capture: capture::Settings::default(),
        workers: None,
        departure: None,
        writes: false,
        obeys_packets: false,
        yes_take: Vec::new(),
        yes_send: Vec::new(),
    }
}

fn work(policy: &Arc<SharedPolicy>) -> Work {
    Work {
        policy: Arc::clone(policy),
        ends: Arc::default(),
        control: None,
        file: None,
        written: None,
        measure: None,
    }
}

/// Makes two cables, from `far` to `near` and from `out` to `beyond`.
fn cables(test: &str) -> bool {
    let is_made = net::cable(test, "");
    if is_made {
        net::ip("link add out type veth peer name beyond");
        net::ip("link set out up");
        net::ip("link set beyond up");
    }
    is_made
}

/// Sends three parts of the traffic. Between them the rules become others, and then wrong ones are refused.
fn send(controller: &Controller, text: &Mutex<String>, got: &Got) {
    let mut port = Port::open(&Name::from("af_packet:far"), &[]).unwrap();
    for part in 0..3 {
        for number in part * PART..(part + 1) * PART {
            port.take(&frame(number), false).unwrap();
        }
        port.flush().unwrap();
        // Half of them passes.
        wait::until("packets behind the firewall", || {
            numbers(got).len() >= ((part + 1) * PART / 2) as usize
        });
        if part == 0 {
            *text.lock().unwrap() = "drop udp dport 80\n".to_owned();
            let (change, rules) = controller.reload().unwrap();
            assert_eq!((change, rules.list().rules.len()), (1, 1));
        } else {
            *text.lock().unwrap() = "pass\ndrop udp prot 53\n".to_owned();
            match controller.reload() {
                Err(ChangeError::Rules(why)) => assert!(why.contains("line 2"), "{why}"),
                other => panic!("{other:?}"),
            }
        }
    }
}

/// Functions that hear no event, for this number of directions.
fn deaf(ways: usize) -> impl Iterator<Item = Box<dyn FnMut(Event<'_>) + Send>> {
    (0..ways).map(|_| -> Box<dyn FnMut(Event<'_>) + Send> { Box::new(|_| {}) })
}

/// Forwards from `source` to `out` until all is sent. Returns the numbers of the packets that arrived, and those passed and denied by
/// the firewall's account.
fn forwarded(source: &str, test: &str) -> Option<(Vec<u32>, u64, u64)> {
    let stop = Arc::<AtomicBool>::default();
    let (behind, got) = Collect::target(Wanted::Matching);
    let setup = Setup {
        main: behind,
        ..Setup::default()
    };
    let request = CaptureRequest {
        settings: capture::Settings {
            direction: capture::Direction::In,
            ..capture::Settings::default()
        },
        ..CaptureRequest::default()
    };
    let beyond = Name::from("af_packet:beyond");
    let opened = capture::open(&beyond, &request, &setup.stop, &mut |_| {});
    let Ok(opened) = opened.map_err(|error| weir_testkit::skipped(test, error)) else {
        return None;
    };
    let mut behind = Handle::start(Run::new(setup), Session::from(opened.inputs), |_| {}).unwrap();

    let mut forwarding = Forwarding::new(settings(source, "out")).unwrap();
    forwarding.claim().unwrap();
    let needs = forwarding.needs();
    assert!(needs.sources.needs().sockets && needs.sources.needs().files.is_empty());
    assert_eq!(needs.sinks, [&Name::from("af_packet:out")]);
    let mut other = Forwarding::new(settings("af_packet:out", "beyond")).unwrap();
    assert!(matches!(
        other.claim(),
        Err(Error::Locked {
            error: LockError::Held { .. },
            ..
        })
    ));
    let policy = policy("drop udp dport 53\n");
    let mut closed = None;
    let opened = forwarding.open(work(&policy), &stop, &mut |notice| {
        if let Notice::Opened { session, .. } = &notice {
            closed = Some(session.captures()[0].source.clone());
        }
    });
    assert!(opened.unwrap());
    assert!(closed.is_some_and(|source| source.utf8().ends_with("near")));
    assert!(forwarding.begin(&mut |_, _| {}).unwrap());
    let text = Arc::new(Mutex::new(String::new()));
    let read = Arc::clone(&text);
    let controller = forwarding.control(Box::new(move |_| {
        let list = list(&read.lock().unwrap())?;
        let classifier = Classifier::new(list).map_err(|error| error.to_string())?;
        let called = "the rules".to_owned();
        Ok(NewRules { classifier, called })
    }));
    let controller = controller.unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            send(&controller, &text, &got);
            stop.store(true, Ordering::Relaxed);
        });
        let ways = forwarding.ways().len();
        let by = forwarding.forward(deaf(ways), &mut || {}).unwrap();
        assert_eq!(by, End::Signal);
    });
    let (mut passed, mut denied) = (0, 0);
    for way in forwarding.end() {
        let (ended, _) = way.finish(&mut |_| {});
        assert_eq!(ended.ledger.check(), Ok(()));
        passed += ended.ledger.passed;
        denied += ended.ledger.denied;
    }
    behind.control().stop();
    end(&mut behind);
    Some((numbers(&got), passed, denied))
}

#[test]
fn packets_are_forwarded_by_the_rules_of_their_time() {
    let test = "packets_are_forwarded_by_the_rules_of_their_time";
    if !cables(test) {
        return;
    }
    let first = (0..PART).filter(|number| number % 2 == 1);
    let others = (PART..3 * PART).filter(|number| number % 2 == 0);
    let expected: Vec<u32> = first.chain(others).collect();
    // The first of them by AF_XDP, where the kernel has it.
    for source in ["near", "af_packet:near"] {
        let Some((arrived, passed, denied)) = forwarded(source, test) else {
            return;
        };
        assert_eq!(arrived, expected, "{source}");
        let half = u64::from(3 * PART / 2);
        assert_eq!((passed, denied), (half, half), "{source}");
    }
}

#[test]
fn settings_and_rules_that_cannot_be_are_refused_before_anything_is_opened() {
    let test = "settings_and_rules_that_cannot_be_are_refused_before_anything_is_opened";
    if !cables(test) {
        return;
    }
    let refused = |settings: Settings| Forwarding::new(settings).err().expect("it is refused");
    let error = refused(settings("near", "af_packet:near"));
    assert!(matches!(error, Error::SameInterface { .. }), "{error}");
    let error = refused(settings("any", "out"));
    assert!(matches!(error, Error::AnyInterface), "{error}");
    let error = refused(Settings {
        bidirectional: true,
        ..settings("near", "out.pcap")
    });
    assert!(matches!(error, Error::OneWay { .. }), "{error}");
    let random = capture::Settings {
        fanout: FanoutBy::Random,
        ..capture::Settings::default()
    };
    let error = refused(Settings {
        capture: random,
        ..settings("near", "out")
    });
    assert!(matches!(error, Error::NotShared { .. }), "{error}");
    let shared = Settings {
        capture: random,
        workers: Some(2),
        ..settings("near", "out")
    };
    let forwarding = Forwarding::new(shared).unwrap();
    let check = forwarding.rules_check();
    let rules = list("pass on near\npass on eth9\npass state established\n").unwrap();
    let refused = check.check(&rules);
    assert!(matches!(refused, Err(RulesRefused::States { line: 3 })));
    let strangers = check.strangers(&rules);
    assert_eq!(
        (strangers.len(), strangers[0].line, strangers[0].side),
        (1, 2, Side::Arrival)
    );
    assert_eq!(
        (&*strangers[0].named, strangers[0].places),
        ("eth9", &["near".to_owned()][..])
    );
}

/// Runs `work` in a thread with a network of its own, to which it moves an interface that gets this address.
fn at_end<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    (interface, address): (&'static str, &'static str),
    work: impl FnOnce() -> T + Send + 'scope,
) -> ScopedJoinHandle<'scope, T> {
    let (tells, thread) = channel();
    let (moves, moved) = channel();
    let (ends, ready) = channel();
    let end = scope.spawn(move || {
        assert!(net::alone(interface), "the test has made such a network");
        tells.send(wait::thread_id()).unwrap();
        moved.recv().unwrap();
        net::ip(&format!("addr add {address}/24 dev {interface}"));
        net::ip(&format!("link set {interface} up"));
        ends.send(()).unwrap();
        work()
    });
    let thread = thread.recv().unwrap();
    net::ip(&format!("link set {interface} netns {thread}"));
    moves.send(()).unwrap();
    ready.recv().unwrap();
    end
}

fn serve(data: &[u8]) -> io::Result<()> {
    let listener = TcpListener::bind("10.9.0.2:7000")?;
    listener.set_nonblocking(true)?;
    let (mut stream, _) = wait::until_ok(|| listener.accept());
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(LONG))?;
    stream.write_all(data)
}

fn fetch() -> io::Result<Vec<u8>> {
    const PATIENCE: Duration = Duration::from_secs(10);
    let mut stream = TcpStream::connect_timeout(&([10, 9, 0, 2], 7000).into(), PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut got = Vec::new();
    stream.read_to_end(&mut got).map(|_| got)
}

/// In this network /sys shows the interfaces of another one, so that the kernel has to be asked for the MTU. Senders leave checksums, and
/// cutting of long segments, to their interfaces: without an MTU nothing finishes their frames, and the receiver drops them.
fn connections_cross_where_sys_shows_another_network(test: &str, source: &str, sink: &str) {
    if !cables(test) {
        return;
    }
    assert!(!Path::new("/sys/class/net/near").exists());
    let data = weir_testkit::Random(1).bytes(6 << 20);
    let stop = Arc::<AtomicBool>::default();
    std::thread::scope(|scope| {
        let server = at_end(scope, ("beyond", "10.9.0.2"), || serve(&data));
        let (begins, begun) = channel();
        let stops = Arc::clone(&stop);
        let client = at_end(scope, ("far", "10.9.0.1"), move || {
            begun.recv().unwrap();
            let got = fetch();
            stops.store(true, Ordering::Relaxed);
            got
        });
        let both = Settings {
            bidirectional: true,
            ..settings(source, sink)
        };
        let mut forwarding = Forwarding::new(both).unwrap();
        forwarding.claim().unwrap();
        let opened = forwarding.open(work(&policy("drop udp\n")), &stop, &mut |_| {});
        assert!(opened.unwrap() && forwarding.begin(&mut |_, _| {}).unwrap());
        begins.send(()).unwrap();
        let ways = forwarding.ways().len();
        forwarding.forward(deaf(ways), &mut || {}).unwrap();
        assert!(client.join().unwrap().unwrap() == data, "other bytes");
        server.join().unwrap().unwrap();
        for way in forwarding.end() {
            let (ended, _) = way.finish(&mut |_| {});
            assert_eq!(ended.ledger.check(), Ok(()));
        }
    });
}

#[test]
fn connections_cross_by_af_packet_where_sys_shows_another_network() {
    connections_cross_where_sys_shows_another_network(
        "connections_cross_by_af_packet_where_sys_shows_another_network",
        "af_packet:near",
        "af_packet:out",
    );
}

#[test]
fn connections_cross_by_af_xdp_where_sys_shows_another_network() {
    connections_cross_where_sys_shows_another_network(
        "connections_cross_by_af_xdp_where_sys_shows_another_network",
        "near",
        "out",
    );
}
