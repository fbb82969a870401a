//! Helpers of the command's tests: running weir and rival tools, captures, temporary directories, bytes of files.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
pub use weir_testkit::{
    Scratch as Temp, capture, captures, captures_for_libpcap, have, skipped, wait,
};

/// Exit code and output of a program.
#[derive(Clone, Debug)]
pub struct Done {
    /// Exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    pub out: Vec<u8>,
    pub err: String,
}

impl Done {
    /// Standard output as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.out).into_owned()
    }

    /// Number printed by `--count`.
    #[track_caller]
    pub fn count(&self) -> u64 {
        let text = self.text();
        text.split_whitespace()
            .next()
            .and_then(|n| n.parse().ok())
            .unwrap_or_else(|| panic!("no count: {self:?}"))
    }

    /// Asserts that the exit code is 0.
    #[track_caller]
    pub fn ok(self) -> Self {
        assert_eq!(self.code, Some(0), "{}", self.err);
        self
    }
}

/// The command under test, in UTC.
pub fn weir_command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.env("TZ", "UTC").stdin(Stdio::null());
    command
}

/// Runs `weir` with these arguments and an empty standard input.
pub fn weir<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Done {
    run(weir_command().args(arguments), &[])
}

/// Runs `weir` with `input` on a pipe as its standard input.
pub fn weir_fed<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>, input: &[u8]) -> Done {
    run(weir_command().args(arguments).stdin(Stdio::piped()), input)
}

/// Runs a rival in UTC.
pub fn tool<S: AsRef<OsStr>>(name: &str, arguments: impl IntoIterator<Item = S>) -> Done {
    run(
        Command::new(name)
            .args(arguments)
            .env("TZ", "UTC")
            .stdin(Stdio::null()),
        &[],
    )
}

/// Runs a rival with `input` on its standard input.
pub fn tool_fed<S: AsRef<OsStr>>(
    name: &str,
    arguments: impl IntoIterator<Item = S>,
    input: &[u8],
) -> Done {
    run(
        Command::new(name)
            .args(arguments)
            .env("TZ", "UTC")
            .stdin(Stdio::piped()),
        input,
    )
}

/// Runs a command to its end, and collects its output.
pub fn run(command: &mut Command, input: &[u8]) -> Done {
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    gather(
        child.unwrap_or_else(|error| panic!("{command:?}: {error}")),
        input,
    )
}

/// Writes `input` to a child, if its standard input is a pipe, and waits for its end. Objects that it prints must be as the schema of
/// the documentation says.
pub fn gather(mut child: Child, input: &[u8]) -> Done {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let stdin = child.stdin.take();
    let stderr = child.stderr.take();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // A child may close the pipe early; its exit code then tells the outcome.
            stdin.map(|mut stdin| stdin.write_all(input))
        });
        scope.spawn(|| stderr.map(|mut pipe| pipe.read_to_end(&mut err)));
        if let Some(mut pipe) = child.stdout.take() {
            pipe.read_to_end(&mut out).expect("a pipe can be read");
        }
    });
    let code = child.wait().expect("a child can be waited for").code();
    if out.starts_with(b"{\"type\"") {
        crate::schema::check(&String::from_utf8_lossy(&out));
    }
    Done {
        code,
        out,
        err: String::from_utf8_lossy(&err).into_owned(),
    }
}

/// A path as an argument.
pub fn s(path: &Path) -> &str {
    path.to_str().expect("test paths are ASCII")
}

/// One record of a pcap file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Record {
    /// Nanoseconds since 1970.
    pub time_ns: u64,
    pub wire_len: u32,
    pub data: Vec<u8>,
}

/// Link type and records of a little-endian pcap file, which must be complete.
#[track_caller]
pub fn parse_pcap(bytes: &[u8]) -> (u32, Vec<Record>) {
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    let unit = match word(0) {
        0xa1b2_c3d4 => 1000,
        0xa1b2_3c4d => 1,
        magic => panic!("magic {magic:08x}"),
    };
    let (mut records, mut at) = (Vec::new(), 24);
    while at < bytes.len() {
        let time_ns = u64::from(word(at)) * 1_000_000_000 + u64::from(word(at + 4)) * unit;
        let data = bytes[at + 16..at + 16 + word(at + 8) as usize].to_vec();
        records.push(Record {
            time_ns,
            wire_len: word(at + 12),
            data,
        });
        at += 16 + word(at + 8) as usize;
    }
    // The upper bits hold flags and the length of an FCS.
    (word(20) & 0x03ff_ffff, records)
}

/// Records of any capture file, converted to pcap by weir itself.
#[track_caller]
pub fn records(path: &str) -> Vec<Record> {
    let temp = Temp::new();
    let copy = temp.at("copy.pcap");
    weir(["filter", "", path, "-w", &copy]).ok();
    parse_pcap(&std::fs::read(copy).unwrap()).1
}

/// A pcap file header: little-endian, microseconds.
pub fn pcap_header(snaplen: u32, link: u32) -> Vec<u8> {
    [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, snaplen, link]
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect()
}

/// A pcap record at `seconds`.
pub fn pcap_record(seconds: u32, data: &[u8]) -> Vec<u8> {
    let length = data.len() as u32;
    let header = [seconds, 0, length, length];
    header
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .chain(data.iter().copied())
        .collect()
}

/// An Ethernet frame with a UDP datagram to `port`, `extra` bytes of payload.
pub fn udp(port: u16, extra: usize) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    let total = (28 + extra) as u16;
    frame.extend([0x45, 0]);
    frame.extend(total.to_be_bytes());
    frame.extend([0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend(4000u16.to_be_bytes());
    frame.extend(port.to_be_bytes());
    frame.extend((8 + extra as u16).to_be_bytes());
    frame.extend([0, 0]);
    frame.extend((0..extra).map(|i| i as u8));
    frame
}

/// A datagram as of [`udp`] whose payload begins with `number`.
pub fn numbered(port: u16, number: u32, extra: usize) -> Vec<u8> {
    let mut frame = udp(port, extra.max(4));
    frame[42..46].copy_from_slice(&number.to_be_bytes());
    frame
}

/// Number of such a datagram.
pub fn number(record: &Record) -> u32 {
    u32::from_be_bytes(record.data[42..46].try_into().expect("four bytes"))
}

/// A pcap file of `count` datagrams a second apart, to ports 1, 2, 3, ...
pub fn small_pcap(count: u16) -> Vec<u8> {
    let mut bytes = pcap_header(65_535, 1);
    for i in 0..count {
        bytes.extend(pcap_record(1_700_000_000 + u32::from(i), &udp(i + 1, 20)));
    }
    bytes
}

/// A pcapng block, little-endian.
pub fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let total = body.len() as u32 + 12;
    [
        &kind.to_le_bytes(),
        &total.to_le_bytes(),
        body,
        &total.to_le_bytes(),
    ]
    .concat()
}

/// A section header block, and an interface description block without snap length.
pub fn pcapng_start(link: u16) -> Vec<u8> {
    let mut section = 0x1a2b_3c4du32.to_le_bytes().to_vec();
    section.extend([1, 0, 0, 0]);
    section.extend([0xff; 8]);
    let mut interface = link.to_le_bytes().to_vec();
    interface.extend([0; 6]);
    [block(0x0a0d_0d0a, &section), block(1, &interface)].concat()
}

/// An enhanced packet block of interface 0, at a second of its clock of microseconds.
pub fn pcapng_packet(seconds: u32, data: &[u8]) -> Vec<u8> {
    pcapng_packet_at(u64::from(seconds) * 1_000_000, data.len() as u32, data)
}

/// An enhanced packet block of interface 0, at `ticks` of its clock.
pub fn pcapng_packet_at(ticks: u64, wire_len: u32, data: &[u8]) -> Vec<u8> {
    let fields = [
        0,
        (ticks >> 32) as u32,
        ticks as u32,
        data.len() as u32,
        wire_len,
    ];
    let mut body: Vec<u8> = fields.iter().flat_map(|word| word.to_le_bytes()).collect();
    body.extend(data);
    body.resize(body.len().next_multiple_of(4), 0);
    block(6, &body)
}

/// Whether SIGHUP is ignored, as under nohup. weir inherits that.
pub fn hangups_are_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let ignored = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .expect("proc(5) has it");
    u64::from_str_radix(ignored.trim(), 16).unwrap() & 1 == 1
}
