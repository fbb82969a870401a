//! What the tests of the command share: running it, rival tools, captures, directories that vanish, bytes of files.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// How a program ended, and what it said.
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

    /// The number that `--count` printed.
    #[track_caller]
    pub fn count(&self) -> u64 {
        let text = self.text();
        text.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("no count: {self:?}"))
    }

    /// Asserts that all went well.
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

/// Runs `weir` with these arguments and nothing on standard input.
pub fn weir<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Done {
    run(weir_command().args(arguments), &[])
}

/// Runs `weir` with `input` on a pipe as its standard input.
pub fn weir_fed<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>, input: &[u8]) -> Done {
    run(weir_command().args(arguments).stdin(Stdio::piped()), input)
}

/// Runs a rival in UTC.
pub fn tool<S: AsRef<OsStr>>(name: &str, arguments: impl IntoIterator<Item = S>) -> Done {
    run(Command::new(name).args(arguments).env("TZ", "UTC").stdin(Stdio::null()), &[])
}

/// Runs a rival with `input` on its standard input.
pub fn tool_fed<S: AsRef<OsStr>>(name: &str, arguments: impl IntoIterator<Item = S>, input: &[u8]) -> Done {
    run(Command::new(name).args(arguments).env("TZ", "UTC").stdin(Stdio::piped()), input)
}

/// Runs a command to its end and gathers what it says.
pub fn run(command: &mut Command, input: &[u8]) -> Done {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    gather(child.unwrap_or_else(|error| panic!("{command:?}: {error}")), input)
}

/// Feeds a child, if its standard input is a pipe, and waits for it.
pub fn gather(mut child: Child, input: &[u8]) -> Done {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let stdin = child.stdin.take();
    let stderr = child.stderr.take();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // Who has read enough closes the pipe; its exit code then tells.
            stdin.map(|mut stdin| stdin.write_all(input))
        });
        scope.spawn(|| stderr.map(|mut pipe| pipe.read_to_end(&mut err)));
        if let Some(mut pipe) = child.stdout.take() {
            pipe.read_to_end(&mut out).expect("a pipe can be read");
        }
    });
    let code = child.wait().expect("a child can be waited for").code();
    Done { code, out, err: String::from_utf8_lossy(&err).into_owned() }
}

/// Are these programs here? Says which is not, and that `test` is skipped for it.
pub fn have(test: &str, programs: &[&str]) -> bool {
    let found = |name: &&&str| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|directory| directory.join(name).is_file())
    };
    let missing: Vec<_> = programs.iter().filter(|name| !found(name)).collect();
    if !missing.is_empty() {
        eprintln!("{test}: skipped, not installed: {missing:?}");
    }
    missing.is_empty()
}

fn capture_directory() -> PathBuf {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/captures");
    std::env::var_os("WEIR_CAPTURES").map_or_else(|| PathBuf::from(beside), PathBuf::from)
}

/// All captures, or none with a line that says so.
pub fn captures(test: &str) -> Vec<PathBuf> {
    let directory = capture_directory();
    let Ok(entries) = std::fs::read_dir(&directory) else {
        eprintln!("{test}: skipped, no captures in {} (set WEIR_CAPTURES)", directory.display());
        return Vec::new();
    };
    let mut paths: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.retain(|path| path.extension().is_some_and(|ext| ext == "pcap" || ext == "pcapng" || ext == "cap"));
    paths.sort();
    assert!(!paths.is_empty(), "{} holds no captures", directory.display());
    paths
}

/// The capture `name`, or `None` with a line that says so.
pub fn capture(test: &str, name: &str) -> Option<PathBuf> {
    let path = capture_directory().join(name);
    if !path.is_file() {
        eprintln!("{test}: skipped, no capture {name} (set WEIR_CAPTURES)");
        return None;
    }
    Some(path)
}

/// A path as an argument.
pub fn s(path: &Path) -> &str {
    path.to_str().expect("test paths are ASCII")
}

/// A directory that is removed with its contents.
#[derive(Debug)]
pub struct Temp(PathBuf);

impl Temp {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("weir-cli-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).expect("a temporary directory can be made");
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The path of `name` in it, as an argument.
    pub fn at(&self, name: &str) -> String {
        s(&self.0.join(name)).to_owned()
    }

    /// Writes a file and returns its path.
    pub fn file(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.at(name);
        std::fs::write(&path, bytes).expect("a temporary file can be written");
        path
    }

    /// Names of the files in it, sorted.
    pub fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).expect("it is there");
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// One record of a pcap file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Record {
    /// Nanoseconds since 1970.
    pub time_ns: u64,
    pub wire_len: u32,
    pub data: Vec<u8>,
}

/// Link type and records of a little-endian pcap file, which must be whole.
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
        records.push(Record { time_ns, wire_len: word(at + 12), data });
        at += 16 + word(at + 8) as usize;
    }
    // The upper bits are flags and the length of an FCS.
    (word(20) & 0x03ff_ffff, records)
}

/// The records of any capture file, by way of weir's own conversion to pcap.
#[track_caller]
pub fn records(path: &str) -> Vec<Record> {
    let temp = Temp::new();
    let copy = temp.at("copy.pcap");
    weir(["filter", "", path, "-w", &copy]).ok();
    parse_pcap(&std::fs::read(copy).unwrap()).1
}

/// A pcap file header: little-endian, microseconds.
pub fn pcap_header(snaplen: u32, link: u32) -> Vec<u8> {
    [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, snaplen, link].iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// A pcap record at `seconds`.
pub fn pcap_record(seconds: u32, data: &[u8]) -> Vec<u8> {
    let length = data.len() as u32;
    let header = [seconds, 0, length, length];
    header.iter().flat_map(|word| word.to_le_bytes()).chain(data.iter().copied()).collect()
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
    [&kind.to_le_bytes(), &total.to_le_bytes(), body, &total.to_le_bytes()].concat()
}

/// A section header block and an interface block without snap length.
pub fn pcapng_start(link: u16) -> Vec<u8> {
    let mut section = 0x1a2b_3c4du32.to_le_bytes().to_vec();
    section.extend([1, 0, 0, 0]);
    section.extend([0xff; 8]);
    let mut interface = link.to_le_bytes().to_vec();
    interface.extend([0; 6]);
    [block(0x0a0d_0d0a, &section), block(1, &interface)].concat()
}

/// An enhanced packet block of interface 0.
pub fn pcapng_packet(seconds: u32, data: &[u8]) -> Vec<u8> {
    let ticks = u64::from(seconds) * 1_000_000;
    let length = data.len() as u32;
    let fields = [0, (ticks >> 32) as u32, ticks as u32, length, length];
    let mut body: Vec<u8> = fields.iter().flat_map(|word| word.to_le_bytes()).collect();
    body.extend(data);
    body.resize(body.len().next_multiple_of(4), 0);
    block(6, &body)
}
