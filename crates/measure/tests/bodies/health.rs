//! Body, with its oracle, that the fuzz target and the tests share.
#![allow(dead_code, reason = "each test and fuzz target uses its part")]

use weir_measure::health::{Config, Health, Parts, Report, tcp};
use weir_packet::flow::Parser;
use weir_packet::transport::Transport;
use weir_packet::{Frame, LinkType};

/// Bytes of a step: see [`Step::of`].
const STEP: usize = 8;

/// A segment, or any bytes as a frame.
struct Step {
    frame: Vec<u8>,
    /// Whether a window ends in front of it.
    ends_window: bool,
    passed_ns: i64,
}

impl Step {
    fn of(bytes: [u8; STEP], next: &mut [[u32; 2]; 4]) -> Self {
        let [who, flags, back, ack, len, window, time, kind] = bytes;
        let (conversation, from) = (usize::from(who & 3), usize::from(who >> 2 & 1));
        let ends = &mut next[conversation];
        // Mostly in order; some again, and some after a gap.
        let seq = match back {
            0..160 => ends[from],
            160..220 => ends[from].wrapping_sub(u32::from(back - 160)),
            _ => ends[from].wrapping_add(u32::from(back - 219)),
        };
        let len = if len < 100 { 0 } else { u32::from(len - 99) };
        let end = seq
            .wrapping_add(len)
            .wrapping_add(u32::from(flags & 3 != 0));
        if (end.wrapping_sub(ends[from]) as i32) > 0 {
            ends[from] = end;
        }
        let ack = ends[1 - from].wrapping_sub(u32::from(ack) / 8);
        let mut frame = vec![0; 54];
        frame[12] = 8;
        frame[14] = 0x45;
        frame[16..18].copy_from_slice(&(40 + len as u16).to_be_bytes());
        frame[23] = 6;
        frame[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        frame[26 + 3 + 4 * from] = 1;
        frame[26 + 3 + 4 * (1 - from)] = 2;
        let ports = [1000 + conversation as u16, 80];
        frame[34..36].copy_from_slice(&ports[from].to_be_bytes());
        frame[36..38].copy_from_slice(&ports[1 - from].to_be_bytes());
        if from == 1 {
            frame[26..34].copy_from_slice(&[10, 0, 0, 2, 10, 0, 0, 1]);
        }
        frame[38..42].copy_from_slice(&seq.to_be_bytes());
        frame[42..46].copy_from_slice(&ack.to_be_bytes());
        frame[46] = 0x50;
        frame[47] = flags & 0x17;
        frame[49] = window;
        frame.resize(54 + len as usize, 0);
        if kind == 255 {
            // A fragment, or a frame that is cut anywhere.
            frame[20] = time & 0x20;
            frame.truncate(usize::from(window));
        }
        Self {
            frame,
            ends_window: kind & 0xf == 0xe,
            passed_ns: i64::from(time) * 40_000,
        }
    }
}

/// Naive twin of the times: all segments of a direction in the order of their arrival.
#[derive(Default)]
struct Naive {
    /// Outstanding segments of each conversation and direction: number after the segment, and time.
    segments: [[Vec<(u32, i64)>; 2]; 4],
    count: u64,
    sum_ns: i64,
    packets: u64,
}

fn is_after(a: u32, b: u32) -> bool {
    (b.wrapping_sub(a) as i32) < 0
}

impl Naive {
    /// Takes a frame that is whole.
    fn take(&mut self, frame: &[u8], time_ns: i64) {
        let number =
            |at: usize| u32::from_be_bytes(frame[at..at + 4].try_into().expect("four bytes"));
        let ports = [number(34) >> 16, number(34) & 0xffff];
        let from = usize::from(ports[0] == 80);
        let conversation = &mut self.segments[(ports[from] - 1000) as usize];
        let (len, flags) = (frame.len() as u32 - 54, frame[47]);
        let end = number(38)
            .wrapping_add(len)
            .wrapping_add(u32::from(flags & 3 != 0));
        self.packets += 1;
        if len > 0 || flags & 3 != 0 {
            conversation[from].push((end, time_ns));
        }
        let ack = number(42);
        let others = &mut conversation[1 - from];
        if let Some((_, sent)) = others.iter().find(|(end, _)| *end == ack)
            && *sent != time_ns
        {
            self.count += 1;
            self.sum_ns += time_ns - *sent;
        }
        others.retain(|(end, _)| is_after(*end, ack));
    }
}

fn new(windows: bool) -> Health {
    Health::new(&Config {
        names: None,
        parts: Parts {
            tcp: true,
            dns: true,
            path: true,
        },
        memory: 1 << 20,
        rows: 100,
        windows,
        seed: 3,
    })
}

fn figures(report: &Report) -> &tcp::Figures {
    &report.tcp.as_ref().expect("TCP was asked for").sum
}

/// Takes steps of eight bytes each, and the bytes themselves as frames. Windows must add up to the whole, rows to their sum, and the times
/// must be the times of the naive twin.
pub fn health(data: &[u8]) {
    let parser = Parser::new(LinkType::ETHERNET, false).expect("Ethernet has keys");
    let (mut whole, mut parts) = (new(false), new(true));
    let (mut naive, mut sum) = (Naive::default(), tcp::Figures::default());
    let mut next = [
        [1000, 5000],
        [u32::MAX - 50, 7],
        [1 << 31, (1 << 31) - 20],
        [1, 1 << 30],
    ];
    // Ports reused begin another conversation, which the twin does not know.
    let is_syn = |frame: &[u8]| frame.get(47).is_some_and(|flags| flags & 0x12 == 2);
    let mut time_ns = 1_700_000_000_000_000_000;
    for bytes in data.as_chunks::<STEP>().0.iter().take(150) {
        let step = Step::of(*bytes, &mut next);
        if is_syn(&step.frame) {
            continue;
        }
        if step.ends_window {
            sum += *figures(&parts.end_window());
        }
        time_ns += step.passed_ns;
        let frame = Frame {
            data: &step.frame,
            wire_len: step.frame.len() as u32,
            interface: 0,
        };
        let Ok(transport) = Transport::of(&parser, &frame) else {
            continue;
        };
        if bytes[7] != 255 {
            naive.take(&step.frame, time_ns);
        }
        for health in [&mut whole, &mut parts] {
            let hash = health.prefetch(&transport.key);
            // Cut segments would change the state, which the twin does not know.
            if bytes[7] != 255 {
                health.take(&transport, hash, time_ns);
            }
        }
    }
    sum += *figures(&parts.end_window());
    let (whole, parts) = (whole.total(), parts.total());
    assert_eq!(&sum, figures(&whole), "windows add up");
    assert_eq!(figures(&parts), figures(&whole));
    let rows = &whole.tcp.as_ref().expect("TCP was asked for").rows;
    assert_eq!(Some(rows), parts.tcp.as_ref().map(|tcp| &tcp.rows));
    let mut of_rows = tcp::Figures::default();
    rows.iter().for_each(|row| of_rows += row.both());
    assert_eq!(&of_rows, figures(&whole), "rows add up");
    let rtt = figures(&whole).rtt;
    assert_eq!(
        (of_rows.packets, rtt.count, rtt.sum_ns),
        (naive.packets, naive.count, naive.sum_ns)
    );
    any_bytes(data);
}

/// Takes the bytes as frames: of UDP with a DNS message, and of any link type.
fn any_bytes(data: &[u8]) {
    let mut health = new(false);
    let mut dns = vec![0; 42];
    dns[12] = 8;
    dns[14] = 0x45;
    dns[23] = 17;
    dns[37] = 53;
    dns.extend_from_slice(data);
    for (data, link) in [
        (&dns[..], 1),
        (data, 1),
        (data, 101),
        (data, 113),
        (data, 9),
    ] {
        let Some(parser) = Parser::new(LinkType(link), true) else {
            continue;
        };
        let frame = Frame {
            data,
            wire_len: data.len() as u32,
            interface: 0,
        };
        if let Ok(transport) = Transport::of(&parser, &frame) {
            assert!(transport.len <= transport.packet_len.max(transport.captured.len() as u32));
            let hash = health.prefetch(&transport.key);
            health.take(&transport, hash, 1);
        }
    }
    let dns = health.total().dns.expect("DNS was asked for");
    assert!(dns.slow.is_empty(), "no answer was seen");
}
