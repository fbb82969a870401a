//! The sender: a separate process that makes the kernel inject copies of frames, as if an interface had received them, and
//! counts them.

use anyhow::{Context, anyhow, bail, ensure};
use nix::unistd::gettid;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use weir_generator::{FRAME_MAX, Generator, Profile, Sizes};
use weir_io::sys::inject::{Fields, HEADERS, Injector, Mode};
use weir_io::sys::packet_socket::index_of;

/// First argument that makes this program the sender.
pub const WORD: &str = "inject";

/// Flows of each frame length. Their numbers of packets differ by at most one.
pub const FLOWS: u32 = 20_000;

/// Number of lengths that stand for the MWN sizes: the means of equal parts of the distribution.
const LENGTHS: usize = 16;

/// Period of the brake that paces the injection.
const TURN: Duration = Duration::from_millis(2);

/// Result of a sending order.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// Frames, counted by the program in the kernel.
    pub frames: u64,
    /// Bytes of the frames.
    pub bytes: u64,
    /// Duration, s.
    pub seconds: f64,
}

impl Sent {
    /// Rate in frames per second.
    pub fn rate(&self) -> f64 {
        self.frames as f64 / self.seconds
    }
}

/// A process of this program that waits for orders, one a line, and answers each with a line. It ends when its orders end.
#[derive(Debug)]
pub struct Helper {
    child: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Helper {
    /// Starts the process, and returns once it is ready.
    pub fn start(mut command: Command) -> anyhow::Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let answers = BufReader::new(child.stdout.take().context("it is a pipe")?);
        let orders = child.stdin.take();
        let mut helper = Self {
            child,
            orders,
            answers,
        };
        ensure!(helper.answer()? == "ready", "the sender does not start");
        Ok(helper)
    }

    fn answer(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }

    /// Gives an order, and returns the answer.
    pub fn ask(&mut self, order: &str) -> anyhow::Result<String> {
        let orders = self.orders.as_mut().context("it runs")?;
        writeln!(orders, "{order}")?;
        orders.flush()?;
        self.answer()
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.orders = None;
        let _ = self.child.wait();
    }
}

/// A sender process that waits for orders.
#[derive(Debug)]
pub struct Sender {
    helper: Helper,
    /// Highest rate without a pause, frames per second; 0 if not known yet.
    ceiling: f64,
}

impl Sender {
    /// Command line of the sender: frames of `sizes` (a number or `mwn`), as if received on `interface`. With `redirect`,
    /// the interface sends them on. They then reach the other end before the kernel makes socket buffers of them.
    pub fn words(interface: &str, sizes: &str, redirect: bool) -> anyhow::Result<Vec<String>> {
        let us = std::env::current_exe()?
            .to_str()
            .context("a plain path")?
            .to_owned();
        let mode = if redirect { "redirect" } else { "pass" };
        Ok([us.as_str(), WORD, interface, sizes, mode]
            .map(str::to_owned)
            .to_vec())
    }

    /// Starts the process, and returns once it can send.
    pub fn start(command: Command) -> anyhow::Result<Self> {
        Ok(Self {
            helper: Helper::start(command)?,
            ceiling: 0.0,
        })
    }

    /// Whether a rate is at the sender's limit.
    pub fn is_full(&self, rate: f64) -> bool {
        rate == 0.0 || rate >= self.ceiling
    }

    /// Sends `count` frames at about `rate` per second, or unpaced if `rate` is 0. The true rate is in the result, because
    /// the share of the time that `rate` takes is computed from the highest rate of an earlier order.
    pub fn send(&mut self, rate: f64, count: u64) -> anyhow::Result<Sent> {
        let duty = if rate > 0.0 && self.ceiling > 0.0 {
            (rate / self.ceiling).min(1.0)
        } else {
            1.0
        };
        let answer = self.helper.ask(&format!("{duty} {count}"))?;
        let words: Vec<&str> = answer.split(' ').collect();
        let [frames, bytes, seconds] = words[..] else {
            bail!("the sender said '{answer}'")
        };
        let sent = Sent {
            frames: frames.parse()?,
            bytes: bytes.parse()?,
            seconds: seconds.parse()?,
        };
        self.ceiling = sent.rate() / duty;
        Ok(sent)
    }
}

/// The process that [`Sender::words`] starts.
pub fn serve(arguments: &[String]) -> anyhow::Result<()> {
    let [interface, sizes, mode] = arguments else {
        bail!("{WORD} INTERFACE SIZES MODE")
    };
    let mode = match mode.as_str() {
        "pass" => Mode::Pass,
        _ => Mode::Redirect(index_of(interface).context("no such interface")?),
    };
    let lengths = if sizes == "mwn" {
        mwn()?
    } else {
        vec![sizes.parse()?]
    };
    let fields = Fields {
        flows: FLOWS,
        ..Fields::default()
    };
    let open = |len: usize| {
        Ok((
            len as u64,
            Injector::open(interface, &udp(len), &fields, mode)?,
        ))
    };
    let mut injectors = lengths
        .into_iter()
        .map(open)
        .collect::<anyhow::Result<Vec<_>>>()?;
    let brake = Arc::new(Brake::default());
    brake.start()?;
    println!("ready");
    for order in std::io::stdin().lines() {
        let order = order?;
        let (duty, count) = order.split_once(' ').context("DUTY COUNT")?;
        brake.set(duty.parse()?);
        let sent = send(&mut injectors, count.parse()?)?;
        brake.set(1.0);
        println!("{} {} {:.9}", sent.frames, sent.bytes, sent.seconds);
    }
    Ok(())
}

/// Injects with one thread per length, so that the lengths are mixed.
fn send(injectors: &mut [(u64, Injector)], count: u64) -> anyhow::Result<Sent> {
    let (begun, parts) = (Instant::now(), injectors.len() as u64);
    let (mut frames, mut bytes) = (0, 0);
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for (i, (len, injector)) in injectors.iter_mut().enumerate() {
            let part = count / parts + u64::from((i as u64) < count % parts);
            threads.push((*len, scope.spawn(move || injector.inject(part))));
        }
        for (len, thread) in threads {
            let part = thread
                .join()
                .map_err(|_| anyhow!("a sending thread died"))??;
            frames += part;
            bytes += part * len;
        }
        anyhow::Ok(())
    })?;
    Ok(Sent {
        frames,
        bytes,
        seconds: begun.elapsed().as_secs_f64(),
    })
}

/// Takes the processor away from the injection for a part of each [`TURN`]. Pauses between
/// injections are not a replacement: each injection ends with some milliseconds of waiting in the
/// kernel. Small injections would be slow, and large ones bursts.
#[derive(Debug, Default)]
struct Brake {
    /// Part of each turn in which the brake holds the processor, ns.
    hold_ns: AtomicU64,
}

impl Brake {
    /// Starts a thread with priority over all others on its processor.
    fn start(self: &Arc<Self>) -> anyhow::Result<()> {
        let (say, hear) = channel();
        let brake = Arc::clone(self);
        std::thread::spawn(move || {
            let thread = gettid().to_string();
            let done = Command::new("chrt")
                .args(["--fifo", "--pid", "1", &thread])
                .output();
            let real_time = done.is_ok_and(|output| output.status.success());
            if say.send(real_time).is_err() || !real_time {
                return;
            }
            let mut turn = Instant::now();
            loop {
                turn = (turn + TURN).max(Instant::now());
                let until =
                    turn - TURN + Duration::from_nanos(brake.hold_ns.load(Ordering::Relaxed));
                while Instant::now() < until {
                    std::hint::spin_loop();
                }
                std::thread::sleep(turn.saturating_duration_since(Instant::now()));
            }
        });
        ensure!(hear.recv()?, "chrt cannot give real-time priority");
        Ok(())
    }

    /// Lets the injection run for `duty` of the time.
    fn set(&self, duty: f64) {
        // The kernel reserves 5 % for other threads anyway.
        let hold = (1.0 - duty).clamp(0.0, 0.94) * TURN.as_nanos() as f64;
        self.hold_ns.store(hold as u64, Ordering::Relaxed);
    }
}

/// Lengths that stand for the MWN sizes, small and large in turn.
fn mwn() -> anyhow::Result<Vec<usize>> {
    let drawn = 1 << 16;
    let profile = Profile {
        packets: drawn,
        sizes: Sizes::Mwn,
        ..Profile::default()
    };
    let (mut generator, mut frame) = (Generator::new(&profile)?, [0; FRAME_MAX]);
    let mut lengths: Vec<usize> =
        std::iter::from_fn(|| Some(generator.next(&mut frame)?.len)).collect();
    lengths.sort_unstable();
    let means: Vec<usize> = lengths
        .chunks(lengths.len() / LENGTHS)
        .map(|part| part.iter().sum::<usize>() / part.len())
        .collect();
    // 7 and 16 have no common divisor, so that each length occurs once.
    Ok((0..LENGTHS)
        .map(|i| means[i * 7 % LENGTHS].max(HEADERS))
        .collect())
}

/// A frame with UDP in IPv4, from 10.1.x.y to 10.2.3.4. No interface has that address, so that the stack drops the packet
/// early.
pub fn udp(len: usize) -> Vec<u8> {
    let [ip, datagram] = [len - 14, len - 34].map(|len| (len as u16).to_be_bytes());
    let mut frame = vec![
        2, 0, 0, 0, 0xbe, 1, 2, 0, 0, 0, 0xbe, 2, 8, 0, 0x45, 0, ip[0], ip[1],
    ];
    frame.extend([
        0,
        0,
        0x40,
        0,
        64,
        17,
        0,
        0,
        10,
        1,
        0,
        0,
        10,
        2,
        3,
        4,
        0,
        0,
        0x13,
        0x88,
        datagram[0],
        datagram[1],
        0,
        0,
    ]);
    frame.resize(len, 0x5a);
    frame
}
