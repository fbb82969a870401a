//! Tables of processes: programs in a namespace send and receive numbers of datagrams that they know.

use crate::capture::net::{Capture, Net};
use crate::support::*;
use serde_json::Value;

/// Answers each datagram at port 5000 of all addresses.
const SERVER: &str = "
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(('0.0.0.0', 5000))
print('bound', file=__import__('sys').stderr, flush=True)
while True:
    _, who = s.recvfrom(2000)
    s.sendto(b'y' * 50, who)
";

/// Takes all at port 9, and asks the server 40 times.
const FAR: &str = "
import socket, sys
sink = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sink.bind(('10.1.1.2', 9))
print('bound', file=sys.stderr, flush=True)
asks = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
while True:
    sink.recvfrom(2000)
    for _ in range(40):
        asks.sendto(b'x' * 100, ('10.1.1.1', 5000))
        asks.recvfrom(2000)
    print('asked', file=sys.stderr, flush=True)
";

/// Sends 30 datagrams, and stays.
const CLIENT: &str = "
import socket, sys, time
open('/proc/self/comm', 'w').write('a \\x1b[31mclient')
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect(('10.1.1.2', 9))
time.sleep(0.6)
for _ in range(30):
    s.send(b'z' * 200)
print('sent', file=sys.stderr, flush=True)
time.sleep(100)
";

#[test]
fn packets_count_for_the_processes_that_send_and_receive_them() {
    let test = "packets_count_for_the_processes_that_send_and_receive_them";
    let Some(net) = Net::new(test) else { return };
    for (end, address) in [("near", "10.1.1.1/24"), ("far", "10.1.1.2/24")] {
        net.inside(end, &["ip", "addr", "add", address, "dev", end])
            .ok();
    }
    let python = |end, script, ready| net.start_at(end, &["python3", "-c", script], ready);
    let server = python("near", SERVER, "bound");
    let far = python("far", FAR, "bound");
    let interface = format!("netns:{}/near", net.name("near"));
    let mut command = weir_command();
    command
        .args([
            "measure",
            &interface,
            "--key",
            "process",
            "--key",
            "container",
            "--key",
            "conversation",
        ])
        .args(["--json", "--workers", "1"])
        .env("STATE_DIRECTORY", net.state());
    let measure = Capture::begin(&mut command, "AF_PACKET");
    let client = python("near", CLIENT, "sent");
    let far = far.until_times("asked", 30);
    let ids = [&server, &client].map(Capture::id);
    // All were sent, and lie in the ring.
    let done = measure.stop().ok();
    drop((server, client, far));
    let answer: Value = serde_json::from_str(done.text().trim()).expect("it is JSON");
    let row = |id: u32| {
        let rows = answer["tops"]["process"].as_array().expect("a table");
        let row = rows.iter().find(|row| row["pid"] == id);
        let row = row.unwrap_or_else(|| panic!("{id} is missing: {answer:#}"));
        let figure = |name: &str| row[name].as_u64().expect("a number");
        let sides = ["tx_packets", "tx_bytes", "rx_packets", "rx_bytes"].map(figure);
        (row["process"].as_str().expect("a name").to_owned(), sides)
    };
    let asked = 30 * 40;
    assert_eq!(
        row(ids[0]),
        (
            "python3".to_owned(),
            [asked, asked * 92, asked, asked * 142]
        )
    );
    assert_eq!(
        row(ids[1]),
        ("a \\x1b[31mclient".to_owned(), [30, 30 * 242, 0, 0])
    );
    // Both are in the control group of the test.
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let mut paths = groups.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    let last = paths.find_map(|path| path.rsplit('/').next().filter(|last| !last.is_empty()));
    let rows = answer["tops"]["container"].as_array().expect("a table");
    let of_group = |row: &&Value| {
        let name = row["container"].as_str().expect("a name");
        name != "-" && last.unwrap_or("/").starts_with(name)
    };
    let row = rows.iter().find(of_group).expect("the group of the test");
    let sides = ["tx_packets", "rx_packets"].map(|side| row[side].as_u64());
    assert_eq!(sides, [Some(asked + 30), Some(asked)], "{row}");
    // Only the resolution of addresses is no process's.
    assert_eq!(answer["processes"]["lost"], 0);
    assert_eq!(answer["missing_by_key"]["process"]["packets"], 0);
}

#[test]
fn what_has_no_sockets_is_refused() {
    let temp = Temp::new();
    let file = temp.file("a.pcap", &small_pcap(3));
    let done = weir(["measure", &file, "--key", "process"]);
    assert_eq!(done.code, Some(2));
    assert!(
        done.err
            .contains("--key process needs the sockets of this host"),
        "{}",
        done.err
    );
}
