//! Packet rates through AF_XDP on a virtual cable in a private namespace: `cargo test --release -p weir-io --test xdp_rates --
//! --ignored --nocapture`. The counts must agree here too.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use weir_io::live::{Backend, Next, TURN};
use weir_io::sys::inject::{self, Fields, HEADERS, Injector};
use weir_io::sys::packet_socket::index_of;
use weir_io::sys::xdp::{self, Mode, SendSettings, Sender, Settings};
use weir_packet::Frame;
use weir_packet::savefile::walk::{Cursor, Visit, walk};

/// Visitor that reads a byte of each packet.
struct Walked(u64, u64);

impl Visit for Walked {
    fn frames(&mut self, _: usize, _: &[u32], frames: &[Frame<'_>]) -> bool {
        self.0 += frames.len() as u64;
        self.1 += frames
            .iter()
            .map(|frame| u64::from(frame.data[12]))
            .sum::<u64>();
        true
    }
}

fn udp(len: usize) -> Vec<u8> {
    let mut frame = vec![0xff; 12];
    frame.extend([
        8, 0, 0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 1, 0, 0, 10, 2, 3, 4, 0, 1, 0x13,
        0x88,
    ]);
    frame[16..18].copy_from_slice(&((len - 14) as u16).to_be_bytes());
    frame.extend(((len - 34) as u16).to_be_bytes());
    frame.resize(len, 0);
    frame
}

/// Returns a line with the packets per second of `send` into a capture, and the drops in per cent.
fn capture(mode: Mode, send: impl FnOnce() -> u64 + Send) -> String {
    let mut socket = xdp::open(
        "near",
        0,
        &Settings {
            mode: Some(mode),
            ..Settings::default()
        },
    )
    .unwrap();
    let (stop, layout) = (AtomicBool::new(false), socket.layout());
    let mut walked = Walked(0, 0);
    let cpu = || {
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: the pointer is to a live local.
        unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
        time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
    };
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| {
            weir_io::sys::pin(0).unwrap();
            let start = Instant::now();
            let sent = send();
            let time = start.elapsed();
            stop.store(true, Ordering::Relaxed);
            (sent, time)
        });
        weir_io::sys::pin(1).unwrap();
        let (start, mut bursts) = (cpu(), 0);
        loop {
            match socket.next_within(&stop, TURN).unwrap() {
                Next::Records(burst, _) => {
                    let bytes = burst.bytes();
                    walk(
                        &layout,
                        bytes,
                        true,
                        &mut [Cursor::new(0, bytes.len())],
                        &mut walked,
                    );
                    bursts += 1;
                }
                Next::Nothing => {}
                Next::End => break,
            }
        }
        let spent = cpu() - start;
        let (sent, time) = sender.join().unwrap();
        let counts = socket.counts();
        assert_eq!(counts.handed_over, walked.0);
        format!(
            "{:5.2} Mpps sent, {:5.2} handed over, {:4.1} % dropped here, {:4.1} % before, {:4.0} per burst, {:4.0} ns of the reader",
            sent as f64 / time.as_secs_f64() / 1e6,
            walked.0 as f64 / time.as_secs_f64() / 1e6,
            100.0 * counts.dropped as f64 / sent as f64,
            100.0 * (sent - counts.received) as f64 / sent as f64,
            walked.0 as f64 / f64::from(bursts),
            spent / walked.0 as f64,
        )
    })
}

#[test]
#[ignore = "measures, and needs root and two processors"]
fn rates() {
    if !weir_testkit::net::cable("rates", "") {
        return;
    }
    let far = index_of("far").unwrap();
    let inject = |at: &str, len, mode, count| {
        let fields = Fields {
            counter: Some(HEADERS),
            flows: 1000,
            ..Fields::default()
        };
        Injector::open(at, &udp(len), &fields, mode)
            .unwrap()
            .inject(count)
            .unwrap()
    };
    let transmit = |len, count: u64| {
        let (frame, mut sender) = (
            udp(len),
            Sender::open("far", &SendSettings::default()).unwrap(),
        );
        (0..count).for_each(|_| sender.send(&frame).unwrap());
        let sent = sender.finish().unwrap();
        assert_eq!(sent.completed, count);
        sent.sent()
    };
    let plain = |count: u64, send: &dyn Fn() -> u64| {
        let start = Instant::now();
        assert_eq!(send(), count);
        count as f64 / start.elapsed().as_secs_f64() / 1e6
    };
    for len in [64, 1500] {
        for round in 0..3 {
            let million = 1_000_000;
            println!("{len} bytes, round {round}");
            println!(
                "  injected and dropped: {:5.2} Mpps",
                plain(million, &|| inject("far", len, inject::Mode::Drop, million))
            );
            println!(
                "  sent by AF_XDP to nobody: {:5.2} Mpps",
                plain(million, &|| transmit(len, million))
            );
            let through = inject::Mode::Redirect(far);
            println!(
                "  injected, redirected, native:  {}",
                capture(Mode::Native, || inject("far", len, through, 2 * million))
            );
            println!(
                "  injected, passed, generic:     {}",
                capture(Mode::Generic, || inject(
                    "near",
                    len,
                    inject::Mode::Pass,
                    million
                ))
            );
            println!(
                "  sent by AF_XDP, native:        {}",
                capture(Mode::Native, || transmit(len, million))
            );
            println!(
                "  sent by AF_XDP, generic:       {}",
                capture(Mode::Generic, || transmit(len, million))
            );
        }
    }
}
