//! Wrong command lines: each is answered by one line that names a remedy, with the right exit code, and with nothing on standard
//! output.

use crate::support::{Temp, run, small_pcap};
use std::process::{Command, Stdio};

/// A command line without `weir`, its exit code, and words of the one line on standard error.
type Case = (&'static str, i32, &'static str);

/// Command lines of newcomers, as they were tried.
const TRIED: &[Case] = &[
    ("measur demo.pcap", 2, "did you mean weir measure?"),
    (
        "demo.pcap",
        2,
        "demo.pcap is a file: weir measure demo.pcap",
    ),
    (
        "talkers demo.pcap",
        2,
        "unknown command 'talkers': weir measure",
    ),
    (
        "measure",
        2,
        "weir measure trace.pcap, or sudo weir measure eth0",
    ),
    (
        "measure nosuch.pcap",
        1,
        "nosuch.pcap: no such file: ls . shows what is there",
    ),
    (
        "measure notes.txt",
        1,
        "notes.txt: not a pcap or pcapng file (it begins with \"hell\"): file notes.txt says what it is",
    ),
    ("measure empty.pcap", 1, "empty.pcap: the file is empty"),
    (
        "measure dir",
        1,
        "is a directory: name the capture files in it, for instance dir/*.pcap",
    ),
    (
        "measure demo.pcap 'tcp port 443'",
        2,
        "weir measure demo.pcap --filter 'tcp port 443'",
    ),
    (
        "filter udp port 53 demo.pcap",
        2,
        "one argument, in quotes: weir filter 'udp port 53' demo.pcap",
    ),
    (
        "filter '' demo.pcap -w nosuch/out.pcap",
        1,
        "its directory does not exist: mkdir -p nosuch",
    ),
    ("filter udp LO", 1, "(did you mean lo?)"),
    ("record nosuch.pcap out", 1, "nosuch.pcap: no such file: ls"),
    (
        "firewall check rules.txt demo.pcpa",
        1,
        "(did you mean demo.pcap?)",
    ),
    (
        "measure demo.pcap --key scr",
        2,
        "unknown key 'scr' (did you mean src?): 5tuple",
    ),
    (
        "measure demo.pcap --by size",
        2,
        "unknown value 'size' for --by: packets, bytes, rate, peers, ports, contacts",
    ),
    (
        "measure demo.pcap --topp 3",
        2,
        "unknown option --topp: did you mean --top?",
    ),
    (
        "measure demo.pcap --top ten",
        2,
        "--top: 'ten' is not a number: write --top 10",
    ),
    (
        "measure demo.pcap --window 1ns",
        2,
        "'1ns' is not a time: write 500ms, 10s or 5m (units: us",
    ),
    (
        "measure demo.pcap --memory 4MB",
        2,
        "'4MB' is not a size (did you mean 4M?)",
    ),
    (
        "measure demo.pcap --memory 10",
        2,
        "--memory 10 bytes is too small for a table: use --memory 16k",
    ),
    (
        "measure demo.pcap --filter 'tcp port'",
        2,
        "it ends too early: a number or a name follows \"port\"",
    ),
    (
        "measure demo.pcap --count",
        2,
        "weir filter '' FILE --count",
    ),
    (
        "measure -i lo",
        2,
        "takes interfaces without a flag: sudo weir measure lo",
    ),
    (
        "measure lo demo.pcap",
        2,
        "lo is an interface and demo.pcap a file: read them in two runs",
    ),
    (
        "filter demo.pcap",
        2,
        "demo.pcap is a file where the expression should be: weir filter '' demo.pcap",
    ),
    (
        "filter demo.pcap 'udp port 53'",
        2,
        "is a file where the expression should be",
    ),
    (
        "filter 'udp prot 53' demo.pcap",
        2,
        "\"prot\" is not a keyword",
    ),
    (
        "filter 'ip.addr == 10.0.0.1' demo.pcap",
        2,
        "a field of Wireshark; in tcpdump's language: host 10.0.0.1",
    ),
    ("filter 'host example.com' demo.pcap", 2, "--resolve"),
    (
        "filter '' demo.pcap -w out.txt.gz",
        2,
        "captures are written uncompressed",
    ),
    (
        "filter '' demo.pcap -w demo.pcap",
        2,
        "is both source and output",
    ),
    (
        "filter '' demo.pcap -c 0",
        2,
        "-c 0 is too small: use at least 1, or leave it out",
    ),
    (
        "filter '' demo.pcap --output x.pcap",
        2,
        "did you mean -w x.pcap?",
    ),
    ("measure demo.pcap -A", 2, "weir filter -A prints ASCII"),
    ("filter udp af_paket:lo", 2, "(did you mean af_packet:lo?)"),
    (
        "record lo",
        2,
        "name a source and a directory: weir record eth0 /var/cap",
    ),
    (
        "record demo.pcap out --trigger 'udp port 53'",
        2,
        "dns='udp port 53'",
    ),
    (
        "query cap udp port 53",
        2,
        "an expression is one argument, in quotes: 'udp port 53'",
    ),
    (
        "firewall check demo.pcap rules.txt",
        2,
        "demo.pcap is a capture where the rules should be",
    ),
    (
        "firewall chek rules.txt demo.pcap",
        2,
        "did you mean weir firewall check?",
    ),
    (
        "firewall ctl unblock 192.0.2.7",
        2,
        "use weir firewall ctl accept 192.0.2.7",
    ),
    ("firewall ctl block 300.1.2.3", 1, "300.1.2.3"),
    (
        "firewall check tpc.txt demo.pcap",
        2,
        "unknown condition \"tpc\" (did you mean tcp?)",
    ),
    ("firewall check port.txt demo.pcap", 2, "sport or dport"),
    (
        "firewall check allow.txt demo.pcap",
        2,
        "(did you mean pass?)",
    ),
];

/// More of them.
const MORE: &[Case] = &[
    ("--foo", 2, "unknown option --foo: weir -h lists"),
    (
        "merge a.pcap b.pcap",
        2,
        "weir filter '' a.pcap b.pcap --merge -w out.pcapng",
    ),
    (
        "convert a.pcap b.pcapng",
        2,
        "weir filter '' in.pcapng -w out.pcap",
    ),
    ("replay demo.pcap", 2, "weir replay trace.pcap --to eth1"),
    ("lo", 2, "lo is an interface: sudo weir measure lo"),
    ("rules", 2, "weir help rules"),
    ("xyzzy", 2, "commands are measure, watch, filter"),
    (
        "help nonsense",
        2,
        "topics are rules, expressions, keys, columns, triggers",
    ),
    ("filter", 2, "weir filter 'udp port 53' trace.pcap"),
    (
        "filter udp",
        2,
        "name a source after the expression: weir filter 'udp' trace.pcap",
    ),
    (
        "filter lo",
        2,
        "lo is an interface where the expression should be",
    ),
    (
        "filter udp demo.pcap --count -w x.pcap",
        2,
        "--count and --write exclude each other",
    ),
    (
        "filter udp demo.pcap --json -w -",
        2,
        "write them to a file, as in -w out.pcapng",
    ),
    (
        "filter udp demo.pcap --split x",
        2,
        "'x' is not NAME=EXPR, for instance dns='udp port 53'",
    ),
    ("filter udp demo.pcap -C 0", 2, "-C: a size of 0"),
    (
        "filter udp demo.pcap -G 0 -w x",
        2,
        "-G 0 is too small: use at least 1",
    ),
    ("filter udp demo.pcap -C 10M", 2, "-C needs"),
    (
        "filter udp demo.pcap -Y tcp",
        2,
        "the expression comes first",
    ),
    (
        "filter udp demo.pcap -B 4096",
        2,
        "--ring 64M sets the buffer",
    ),
    (
        "filter udp demo.pcap --workers 0",
        2,
        "--workers 0 is out of range: use 1 to 256",
    ),
    ("filter udp demo.pcap --workers 2000", 2, "use 1 to 256"),
    (
        "filter udp demo.pcap --duration",
        2,
        "--duration needs a value: --duration T",
    ),
    ("filter udp demo.pcap --mrege", 2, "did you mean --merge?"),
    (
        "filter udp demo.pcap --direction sideways",
        2,
        "unknown value 'sideways' for --direction: in, out, inout",
    ),
    (
        "filter udp ''",
        2,
        "the name of a source is empty: name a capture file",
    ),
    (
        "filter 'tcp port 80 accept' demo.pcap",
        2,
        "\"accept\" is not a keyword",
    ),
    (
        "filter 'tcp.port == 80' demo.pcap",
        2,
        "a field of Wireshark",
    ),
    ("filter 'src' demo.pcap", 2, "it ends too early"),
    (
        "measure -r demo.pcap",
        2,
        "takes files without a flag: weir measure demo.pcap",
    ),
    (
        "measure -n demo.pcap",
        2,
        "addresses are never looked up, leave it out",
    ),
    ("measure -v demo.pcap", 2, "weir measure has no -v"),
    ("measure --sort", 2, "name a capture file or an interface"),
    (
        "measure demo.pcap --top all",
        2,
        "'all' is not a number: write --top 10",
    ),
    (
        "measure demo.pcap --top 1 --top 2",
        2,
        "--top is given twice: give it once",
    ),
    (
        "measure demo.pcap --rules 'drop udp'",
        2,
        "echo 'drop udp' >rules.txt, and --rules rules.txt",
    ),
    ("measure demo.pcap --late 1s", 2, "--late needs --window T"),
    (
        "measure demo.pcap --key src --late 1s",
        2,
        "--late needs --window T",
    ),
    (
        "measure demo.pcap --changers 3 --by bytes --json",
        2,
        "--changers needs --window T",
    ),
    (
        "measure demo.pcap --sketch hevy",
        2,
        "(did you mean heavy?)",
    ),
    (
        "measure demo.pcap --merge --no-merge",
        2,
        "--merge and --no-merge exclude each other",
    ),
    ("measure demo.pcap --limit 3", 2, "--top N in weir measure"),
    ("measure demo.pcap --csv", 2, "--json prints JSON"),
    (
        "measure demo.pcap --invert",
        2,
        "weir filter, weir query has it",
    ),
    (
        "measure demo.pcap --zstd-window 1",
        2,
        "'1' is not a size of a zstd window: use 1k to 2G",
    ),
    ("record", 2, "weir record eth0 /var/cap"),
    ("record demo.pcap out --disk 1k", 2, "8M is the least"),
    (
        "record demo.pcap out --fire a --status",
        2,
        "exclude each other",
    ),
    (
        "record --status cap",
        2,
        "no recorder runs on this directory: sudo weir record eth0 cap",
    ),
    (
        "record --fire all cap",
        2,
        "no recorder runs on this directory",
    ),
    ("query", 2, "weir query /var/cap 'udp port 53' --last 5m"),
    (
        "query udp cap",
        2,
        "cap is a directory where the expression should be: weir query cap 'udp'",
    ),
    ("query nosuch", 1, "nosuch: no such directory"),
    ("query cap --last 5x", 2, "--last: '5x' is not a time"),
    (
        "query cap --around 5 --last 5m",
        2,
        "--around and --last exclude each other",
    ),
    ("query cap --from yesterday", 2, "--from"),
    ("firewall", 2, "name IN, OUT and the rules"),
    (
        "firewall demo.pcap out.pcap",
        2,
        "name the rules: --rules rules.txt",
    ),
    (
        "firewall rules.txt demo.pcap out.pcap",
        2,
        "weir firewall eth0 eth1 --rules rules.txt",
    ),
    (
        "firewall check",
        2,
        "weir firewall check rules.txt trace.pcap",
    ),
    (
        "firewall check rules.txt",
        2,
        "name a capture after the rules",
    ),
    (
        "firewall check nosuch.txt demo.pcap",
        2,
        "nosuch.txt: no such file",
    ),
    (
        "firewall check accept.txt demo.pcap",
        2,
        "(did you mean pass?)",
    ),
    (
        "firewall translate",
        2,
        "nft -j list ruleset | weir firewall translate -",
    ),
    (
        "firewall ctl blok 192.0.2.7",
        2,
        "use weir firewall ctl block 192.0.2.7",
    ),
    (
        "firewall ctl ban 192.0.2.7",
        2,
        "use weir firewall ctl block 192.0.2.7",
    ),
    (
        "firewall ctl block",
        2,
        "name an address: weir firewall ctl block 192.0.2.7",
    ),
    (
        "firewall ctl --control nosuch list",
        2,
        "nosuch: no weir firewall runs there",
    ),
    (
        "generate",
        2,
        "name a file or a port: weir generate demo.pcap",
    ),
    (
        "generate lo",
        2,
        "lo is an interface: af_packet:lo sends there, ./lo is a file",
    ),
    (
        "filter udp demo.pcap -w lo",
        2,
        "lo is an interface: af_packet:lo sends there",
    ),
    ("generate a.pcap b.pcap", 2, "one file or port at a time"),
    ("generate af_paket:lo", 2, "(did you mean af_packet:lo?)"),
    (
        "generate a.pcap --zipf x",
        2,
        "'x' is not a number: write --zipf 1.1",
    ),
    (
        "generate a.pcap --rate fast",
        2,
        "write original, max, 100kpps, 2Gbit/s or 50% (of the link)",
    ),
    (
        "generate a.pcap --duration 1s --forever",
        2,
        "exclude each other",
    ),
    ("info", 2, "weir info trace.pcap"),
    ("info -i lo", 2, "weir filter -D"),
    ("doctor now", 2, "weir doctor -h shows the usage"),
];

/// Attacks on the words: names that are nearly right, words in the wrong place, values without sense.
const OWN: &[Case] = &[
    (
        "measure nosuch/trace.pcap",
        1,
        "no such file, and no directory nosuch",
    ),
    ("measure demo", 1, "(did you mean demo.pcap?)"),
    ("measure Demo.pcap", 1, "(did you mean demo.pcap?)"),
    ("measure demo.pcap.gz", 1, "(did you mean demo.pcap?)"),
    (
        "measure '*.pcapng'",
        1,
        "no such file: ls . shows what is there",
    ),
    (
        "measure demo.pcap udp",
        2,
        "weir measure demo.pcap --filter 'udp'",
    ),
    (
        "measure 'port 53'",
        2,
        "weir measure trace.pcap --filter 'port 53'",
    ),
    (
        "measure demo.pcap host 10.0.0.1",
        2,
        "weir measure demo.pcap --filter 'host 10.0.0.1'",
    ),
    (
        "measure demo.pcap --filter udp port 53",
        2,
        "weir measure demo.pcap --filter 'udp port 53'",
    ),
    (
        "measure demo.pcap --filter",
        2,
        "--filter needs a value: --filter EXPR",
    ),
    (
        "measure demo.pcap --filter 'host 10.0.0.256'",
        2,
        "four numbers up to 255, as in 10.0.0.1",
    ),
    (
        "measure demo.pcap --filter 'src net 10.1.2.3/8'",
        2,
        "as in net 10.0.0.0/8",
    ),
    (
        "measure demo.pcap --key src,host",
        2,
        "the key host cannot be combined with others: src, dst, sport",
    ),
    ("measure demo.pcap --key port", 2, "(did you mean sport?)"),
    (
        "measure demo.pcap --by packet",
        2,
        "(did you mean packets?)",
    ),
    (
        "measure demo.pcap --top -1",
        2,
        "--top: '-1' is too small: use --top 1 or more",
    ),
    (
        "measure demo.pcap --window 1 s",
        2,
        "a time or a size is one word, as in --window 10s",
    ),
    ("measure demo.pcap --window 0s", 2, "write --window 1s"),
    (
        "measure demo.pcap --memory 64 M",
        2,
        "is one word, as in --window 10s or --memory 64M",
    ),
    (
        "measure demo.pcap --memory lots",
        2,
        "write 500, 64k, 10M or 1G",
    ),
    (
        "measure demo.pcap --workers two",
        2,
        "'two' is not a number: write --workers 10",
    ),
    ("measure demo.pcap --cpus x", 2, "write 0,2-3"),
    (
        "measure demo.pcap --interval 5s",
        2,
        "did you mean --window 5s?",
    ),
    (
        "measure demo.pcap -o out.json",
        2,
        "did you mean -w out.json?",
    ),
    (
        "measure demo.pcap -c 10",
        2,
        "weir filter, weir query, weir replay has it",
    ),
    (
        "measure demo.pcap -w dir",
        1,
        "it is a directory: name a file, as in dir/out.pcapng",
    ),
    (
        "measure demo.pcap -w -",
        2,
        "give -w and --split names of files",
    ),
    (
        "measure af_packet:",
        2,
        "names no interface: weir filter -D lists",
    ),
    (
        "measure nosuchif",
        1,
        "no network interface of this name: weir filter -D lists them",
    ),
    (
        "filter host 10.1.2.3 demo.pcap",
        2,
        "weir filter 'host 10.1.2.3' demo.pcap",
    ),
    (
        "filter udp 'port 53' demo.pcap",
        2,
        "weir filter 'udp port 53' demo.pcap",
    ),
    (
        "filter udp demo.pcap nosuch.pcap",
        1,
        "nosuch.pcap: no such file: ls",
    ),
    (
        "filter udp demo.pcap -w ''",
        2,
        "write -w FILE, or -w - for standard output",
    ),
    (
        "filter udp demo.pcap -s -1",
        2,
        "-s -1 is too small: use at least 0",
    ),
    (
        "filter udp demo.pcap --split a/b/c=udp",
        1,
        "its directory does not exist: mkdir -p a/b",
    ),
    (
        "filter udp demo.pcap --set bad=nosuch.txt",
        2,
        "write src @bad, host @bad or net @bad",
    ),
    (
        "filter 'src @bad' demo.pcap",
        2,
        "--set NAME=FILE defines one",
    ),
    (
        "filter 'ether host 10.0.0.1' demo.pcap",
        2,
        "and host 10.0.0.1 is for IP",
    ),
    (
        "filter http demo.pcap",
        2,
        "in tcpdump's language: tcp port 80",
    ),
    (
        "filter 'dns or ntp' demo.pcap",
        2,
        "in tcpdump's language: port 53",
    ),
    ("filter udp demo.pcap -tttttt", 2, "-tttt date and time"),
    (
        "filter udp demo.pcap -C 10X -w a",
        2,
        "'10X' is not a size: write 500, 64k, 10M or 1G",
    ),
    (
        "filter udp demo.pcap --duration 10x",
        2,
        "write 500ms, 10s or 5m",
    ),
    ("filter udp -i", 2, "-i needs a value: -i INTERFACE"),
    (
        "filter udp demo.pcap -W 5",
        2,
        "-W needs --write SINK: add it, or leave -W out",
    ),
    (
        "record lo notes.txt",
        2,
        "notes.txt is not a directory: weir record SOURCE... DIR",
    ),
    ("record demo.pcap out --ram 1", 2, "at least 2M are needed"),
    (
        "record demo.pcap 'udp port 53' out",
        2,
        "weir record demo.pcap out --filter 'udp port 53'",
    ),
    (
        "record demo.pcap out --trigger rst=",
        2,
        "write NAME='udp port 53'",
    ),
    (
        "record demo.pcap out --every 0s",
        2,
        "is not an interval: write 10m or 1h",
    ),
    (
        "record demo.pcap nosuch/out",
        1,
        "its directory does not exist: mkdir -p nosuch",
    ),
    ("record --status", 2, "weir record --status /var/cap"),
    (
        "query demo.pcap",
        2,
        "demo.pcap is not a directory: weir query DIR [EXPR]",
    ),
    ("query cap -w nosuch/x.pcap", 1, "mkdir -p nosuch"),
    (
        "query cap -i lo",
        2,
        "weir query reads a record: sudo weir record eth0 /var/cap",
    ),
    (
        "query cap --from 25:00",
        2,
        "is not a time: write 2026-11-23T05:30:00Z",
    ),
    (
        "query cap --from now --to -5m",
        2,
        "no packet can lie between them",
    ),
    ("info nosuch.pcap", 1, "nosuch.pcap: no such file: ls"),
    ("info notes.txt", 1, "file notes.txt says what it is"),
    ("info dir", 1, "for instance dir/*.pcap"),
    (
        "firewall check rules.txt notes.txt",
        1,
        "file notes.txt says what it is",
    ),
    (
        "firewall nosuch.pcap out.pcap --rules rules.txt",
        2,
        "nosuch.pcap: no such file: ls",
    ),
    (
        "firewall ctl block 10.0.0.0/33",
        1,
        "a prefix of IPv4 has 0 to 32 bits",
    ),
    ("generate nosuch/a.pcap", 1, "mkdir -p nosuch"),
    ("generate a.pcap.gz", 2, "-w - | zstd"),
    (
        "ctl set filter udp",
        2,
        "weir ctl --control PATH set filter udp",
    ),
    (
        "ctl demo.pcap set filter udp",
        2,
        "the socket of a run goes after --control: weir ctl --control demo.pcap COMMAND",
    ),
    (
        "firewall ctl demo.pcap list",
        2,
        "the socket of a run goes after --control: weir firewall ctl --control demo.pcap COMMAND",
    ),
    (
        "ctl --control nosuch set filtre udp",
        2,
        "did you mean weir ctl set filter?",
    ),
    (
        "ctl --control nosuch set key",
        2,
        "name one or several keys: weir ctl --control PATH set key src dport",
    ),
    (
        "ctl --control nosuch set filter",
        2,
        "name an expression: weir ctl --control PATH set filter 'udp port 53'",
    ),
    ("help measur", 2, "(did you mean measure?)"),
];

#[test]
fn wrong_lines_are_answered_by_one_line_that_names_the_remedy() {
    let temp = Temp::new();
    temp.file("demo.pcap", &small_pcap(3));
    temp.file("notes.txt", b"hello\n");
    temp.file("empty.pcap", b"");
    temp.file("rules.txt", b"drop udp\n");
    temp.file("tpc.txt", b"drop tpc\n");
    temp.file("port.txt", b"drop tcp port 80\n");
    temp.file("allow.txt", b"allow tcp\n");
    temp.file("accept.txt", b"accept tcp\n");
    let shell = |line: &str| {
        let script = format!("exec '{}' {line}", env!("CARGO_BIN_EXE_weir"));
        let mut command = Command::new("sh");
        command.args(["-c", &script]).current_dir(temp.path());
        run(command.stdin(Stdio::null()), &[])
    };
    assert_eq!(
        shell("record demo.pcap cap --disk 16M --ram 16M").code,
        Some(0)
    );
    std::fs::create_dir(temp.path().join("dir")).expect("it is new");
    let mut wrong = Vec::new();
    for &(line, code, words) in TRIED.iter().chain(MORE).chain(OWN) {
        let done = shell(line);
        let is_right = done.code == Some(code)
            && done.out.is_empty()
            && done.err.lines().count() == 1
            && done.err.starts_with("weir: ")
            && done.err.contains(words);
        if !is_right {
            wrong.push(format!(
                "weir {line}\n  {:?}: {}  wanted {code}: {words}",
                done.code, done.err
            ));
        }
    }
    assert!(TRIED.len() + MORE.len() >= 110 && OWN.len() >= 60);
    assert!(
        wrong.is_empty(),
        "{} of them:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    let made = temp.names();
    assert!(!made.iter().any(|name| name.starts_with("out")), "{made:?}");
}
