//! Programs that read in random ways: each sent packet is delivered once, or counted as dropped.
//!
//! `WEIR_LIVE_SCENARIOS` is the number of scenarios; a failure prints the seed of its scenario, which `WEIR_SEED` repeats alone.

use super::{Child, ChildStdout, Command, Sender, Stdio, frame, net, numbers, preloaded, wait};
use std::io::{BufRead, BufReader, Read};
use weir_testkit::{Random, Scratch};

/// Scenarios of an ordinary run: two seconds.
const SCENARIOS: u64 = 20;

/// Frames of a scenario with as many bits as its program has for them.
const MOST: usize = 1 << 16;

/// A program's words, its variables, and the traffic.
#[derive(Debug)]
struct Scenario {
    words: Vec<String>,
    /// Variables of the library; without it for `None`.
    variables: Option<Vec<(&'static str, String)>>,
    programs: usize,
    handles: usize,
    /// Whether a filter for port 7 is set, first or later.
    is_filtered: bool,
    is_early: bool,
    is_xdp: bool,
    goes_down: bool,
    bursts: usize,
    len: usize,
}

impl Scenario {
    fn new(random: &mut Random, stats: &str) -> Self {
        let mut words = Vec::new();
        let mut set = |name: &str, value: usize| words.push(format!("{name}={value}"));
        let kind = random.below(10);
        let is_xdp = kind < 2;
        let is_grouped = kind == 2;
        let is_plain = kind == 3;
        let ring = ["1M", "2M", "8M"][random.below(3)].to_owned();
        let mut variables = vec![("WEIR_STATS", stats.to_owned()), ("WEIR_RING", ring)];
        match kind {
            0 | 1 => variables.push(("WEIR_BACKEND", "af_xdp".to_owned())),
            2 => variables.push(("WEIR_FANOUT", (1 + random.below(9)).to_string())),
            // Preloaded, and nothing asked for.
            4 => variables.clear(),
            _ => {}
        }
        let is_libpcap = is_plain || variables.is_empty();
        let ways = ["dispatch", "select", "loop", "next_ex", "next"];
        // A break of libpcap's next and next_ex takes a packet with it, and its loop ignores breaks while nothing comes to a handle that
        // does not block.
        let way = random.below(if is_libpcap { 2 } else { 5 });
        let batch = [0, 1, 7, 100][random.below(4)];
        set("snaplen", [60, 200, 2000, 262_144][random.below(4)]);
        // Without a time-out libpcap keeps packets until a block is full.
        let timeouts = [1, 10, 20, usize::from(is_libpcap)];
        set("timeout", timeouts[random.below(4)]);
        set("immediate", random.below(4) / 3);
        set("by_libpcap", is_libpcap.into());
        set("batch", batch);
        let mut handles = 1;
        let (mut is_filtered, mut is_early) = (false, false);
        match random.below(8) {
            0 if !is_xdp && !is_grouped => {
                handles = 2;
                set("handles", 2);
                set("threads", random.below(2));
            }
            1 => set("threads", 1),
            2 => set("fork_at", random.below(60)),
            // libpcap lets packets of the old filter through.
            3 | 4 if !is_libpcap => {
                is_filtered = true;
                set("filter_at", random.below(200));
                set("inbound", random.below(2));
            }
            5 => {
                is_filtered = true;
                is_early = true;
                set("early", 1);
            }
            _ => {}
        }
        match random.below(6) {
            0 => {
                set("pause_at", 1 + random.below(100));
                set("pause_us", 1000 + random.below(30_000));
            }
            1 => {
                set("break_us", 200 + random.below(3000));
                let is_forking = words.iter().any(|word| word.starts_with("fork"));
                words.push(format!(
                    "by_signal={}",
                    usize::from(!is_forking && random.below(2) == 0)
                ));
            }
            2 => set("nonblock", 1),
            3 if way != 1 => set("stats_at", 1 + random.below(50)),
            _ => {}
        }
        words.push(format!("way={}", ways[way]));
        Self {
            words,
            variables: (!is_plain).then_some(variables),
            programs: 1 + usize::from(is_grouped),
            handles,
            is_filtered,
            is_early,
            is_xdp,
            // AF_XDP's sockets end with the interface.
            goes_down: !is_xdp && random.below(12) == 0,
            bursts: [0, 1, 5, 20, 60][random.below(5)],
            len: [20, 100, 700, 1400][random.below(4)],
        }
    }

    fn start(&self, program: &str) -> (Child, BufReader<ChildStdout>) {
        let mut command = match &self.variables {
            Some(_) => preloaded(program),
            None => Command::new(program),
        };
        let variables = self.variables.iter().flatten();
        let child = command
            .args(&self.words)
            .arg("near")
            .envs(variables.map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut child = child.unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        (child, output)
    }
}

/// Packets that the interface has received, as the kernel counts them.
fn arrived() -> u64 {
    let table = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    let mut lines = table.lines().map(str::trim);
    let line = lines.find_map(|line| line.strip_prefix("near:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// A sender of numbered frames, every second of them to port 7.
struct Traffic {
    sender: Sender,
    frames: [Vec<u8>; 2],
    number: usize,
    /// Frames to port 7 and to port 8 that arrived.
    arrived: [u64; 2],
}

impl Traffic {
    fn new(len: usize) -> Self {
        let frames = [7, 8].map(|port| {
            let mut frame = frame(port, len);
            frame[46..].fill(9);
            frame
        });
        Self {
            sender: Sender::open("far", false).unwrap().outlasting_down(),
            frames,
            number: 0,
            arrived: [0; 2],
        }
    }

    /// Sends so many frames, which belong to several flows, and returns how many have arrived.
    fn send(&mut self, count: usize) -> u64 {
        let first = self.number;
        self.number += count;
        assert!(self.number <= MOST);
        let frames: Vec<_> = (first..self.number)
            .map(|number| {
                let mut frame = self.frames[number % 2].clone();
                frame[35] = (number / 2 % 32) as u8;
                // A sum of 0: there is none.
                frame[40..42].fill(0);
                frame[42..46].copy_from_slice(&(number as u32).to_be_bytes());
                frame
            })
            .collect();
        let before = arrived();
        let frames: Vec<_> = frames.iter().map(Vec::as_slice).collect();
        self.sender.send(&frames).unwrap();
        wait::until_handed_on();
        let all = arrived() - before;
        // Of a part nobody knows which.
        assert!(
            all == 0 || all == count as u64,
            "{all} of {count} have arrived"
        );
        if all > 0 {
            (first..self.number).for_each(|number| self.arrived[number % 2] += 1);
        }
        all
    }
}

fn scenario(seed: u64, program: &str, stats: &str) {
    let mut random = Random(seed);
    let scenario = Scenario::new(&mut random, stats);
    let _ = std::fs::remove_file(stats);
    eprintln!("WEIR_SEED={seed}: {scenario:?}");
    let mut running: Vec<_> = (0..scenario.programs)
        .map(|_| scenario.start(program))
        .collect();
    let mut traffic = Traffic::new(scenario.len);
    for burst in 0..scenario.bursts {
        if scenario.goes_down && burst == scenario.bursts / 2 {
            net::ip("link set near down");
            assert_eq!(traffic.send(10), 0);
            net::ip("link set near up");
            wait::until("the interface is up again", || traffic.send(1) == 1);
        }
        traffic.send(1 + random.below(100));
    }
    let mut sums = [0; 5];
    for (child, _) in &running {
        net::run("kill", &format!("-USR1 {}", child.id()));
    }
    for (child, output) in &mut running {
        let (mut text, mut errors) = (String::new(), String::new());
        output.read_to_string(&mut text).unwrap();
        child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut errors)
            .unwrap();
        let status = child.wait().unwrap();
        // valgrind says so of commands of the kernel that it does not know.
        let is_silent = errors
            .lines()
            .all(|line| line.starts_with("--") || line.is_empty());
        assert!(status.success() && is_silent, "{status}: {text}{errors}");
        assert_eq!(text.lines().count(), scenario.handles, "{text}");
        for line in text.lines() {
            eprintln!("{line}");
            let [
                delivered,
                to_seven,
                7,
                late,
                twice,
                wrong,
                received,
                dropped,
                _,
                errors,
            ] = numbers(line)[..]
            else {
                panic!("{text}");
            };
            assert_eq!((late, twice, wrong), (0, 0, 0), "{line}");
            assert!(errors == 0 || scenario.goes_down, "{line}");
            if scenario.programs == 1 {
                scenario.check(&traffic, [delivered, to_seven, received, dropped]);
            }
            for (sum, count) in sums
                .iter_mut()
                .zip([delivered, to_seven, received, dropped])
            {
                *sum += count;
            }
        }
    }
    if scenario.programs > 1 {
        scenario.check(&traffic, [sums[0], sums[1], sums[2], sums[3]]);
    }
    if scenario
        .variables
        .as_ref()
        .is_some_and(|variables| !variables.is_empty())
    {
        let text = std::fs::read_to_string(stats).unwrap();
        let last = text.lines().filter(|line| line.contains("\"end\":true"));
        let delivered = last.map(|line| {
            let counts = line.split("\"delivered\":").nth(1).unwrap();
            counts.split(',').next().unwrap().parse::<u64>().unwrap()
        });
        assert_eq!(delivered.sum::<u64>(), sums[0], "{text}");
    }
}

impl Scenario {
    /// Compares what a handle, or a group, has seen with what has arrived.
    fn check(&self, traffic: &Traffic, [delivered, to_seven, received, dropped]: [u64; 4]) {
        let [seven, eight] = traffic.arrived;
        if !self.is_filtered || self.is_early {
            let sent = if self.is_early { seven } else { seven + eight };
            assert_eq!(received, delivered + dropped);
            // AF_XDP drops before a filter sees the packet.
            let unjudged = if self.is_xdp { dropped } else { 0 };
            assert!((sent..=sent + unjudged).contains(&received));
        } else {
            // Packets of the other port are delivered until the filter is set; the kernel counts some that the ring held then.
            assert!(delivered + dropped <= received && received <= seven + eight);
            assert!(to_seven + dropped >= seven && to_seven <= seven);
            if self.is_xdp {
                assert_eq!(delivered + dropped, received);
            }
        }
        assert!(dropped > 0 || to_seven == seven);
    }
}

/// libpcap ends the capture there ("corrupted frame on kernel ring").
#[test]
fn a_program_that_writes_behind_packets_has_its_losses_counted() {
    let test = "a_program_that_writes_behind_packets_has_its_losses_counted";
    let scratch = Scratch::new();
    let source = "live/scenario.c";
    let Some(program) = super::compiled(test, &scratch, source).filter(|_| net::cable(test, ""))
    else {
        return;
    };
    let mut child = preloaded(&program)
        .args(["scribbles=1", "near"])
        .env("WEIR_RING", "4M")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut text = String::new();
    output.read_line(&mut text).unwrap();
    let mut sent = 0;
    for len in 20..40 {
        sent += Traffic::new(len).send(100);
    }
    net::run("kill", &format!("-USR1 {}", child.id()));
    output.read_line(&mut text).unwrap();
    let done = child.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{errors}");
    let [delivered, .., received, dropped, _, 0] = numbers(&text)[..] else {
        panic!("{text}");
    };
    assert_eq!((received, delivered + dropped), (sent, sent), "{text}");
    assert!(dropped > 0 && errors.lines().count() == 1, "{text}{errors}");
}

#[test]
fn what_is_sent_is_delivered_once_or_dropped() {
    let test = "what_is_sent_is_delivered_once_or_dropped";
    let scratch = Scratch::new();
    let source = "live/scenario.c";
    let Some(program) = super::compiled(test, &scratch, source).filter(|_| net::cable(test, ""))
    else {
        return;
    };
    let stats = scratch.at("stats.json");
    let number = |name| {
        std::env::var(name)
            .ok()
            .and_then(|text| text.parse::<u64>().ok())
    };
    let seeds = match number("WEIR_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("WEIR_LIVE_SCENARIOS").unwrap_or(SCENARIOS),
    };
    for seed in seeds {
        scenario(seed, &program, &stats);
    }
}
