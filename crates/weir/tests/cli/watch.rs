//! `weir watch` on a pseudo-terminal, read as a terminal reads it: traffic, keys, and the terminal after each end.

use crate::capture::net::Net;
use crate::losses::lacking;
use crate::support::*;
use std::io::{Read, Write};
use std::num::NonZero;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use weir_testkit::wait;

/// Size of the terminal.
const SIZE: (u16, u16) = (24, 80);

/// A shell on a pseudo-terminal that runs `weir watch`, and what the terminal shows.
pub struct Terminal {
    child: Child,
    keys: ChildStdin,
    seen: Arc<Mutex<Seen>>,
}

struct Seen {
    parser: vt100::Parser,
    /// All bytes so far.
    bytes: Vec<u8>,
}

fn parser() -> vt100::Parser {
    let [rows, columns] = [SIZE.0, SIZE.1].map(|size| NonZero::new(size).expect("it is not 0"));
    vt100::Parser::new(rows, columns, 0)
}

impl Terminal {
    /// Runs a line of a shell on a terminal, by a command that may be in a namespace.
    pub fn run(line: &str, command: impl FnOnce(&[&str]) -> Command) -> Self {
        let (rows, columns) = SIZE;
        let line = format!("stty rows {rows} cols {columns}; {line}");
        // Under nohup weir would inherit that SIGHUP is ignored.
        let words = [
            "env",
            "--default-signal=HUP",
            "script",
            "-qefc",
            &line,
            "/dev/null",
        ];
        let mut command = command(&words);
        command
            .env("TERM", "xterm")
            .env("LC_ALL", "C.UTF-8")
            .env("SHELL", "/bin/sh")
            .env_remove("NO_COLOR")
            .env_remove("COLORFGBG")
            .env("XDG_CONFIG_HOME", "/nonexistent")
            .env_remove("COLUMNS")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn().expect("script can be run");
        let mut out = child.stdout.take().expect("it is piped");
        let seen = Arc::new(Mutex::new(Seen {
            parser: parser(),
            bytes: Vec::new(),
        }));
        let shown = Arc::clone(&seen);
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(count @ 1..) = out.read(&mut piece) {
                let mut seen = shown.lock().unwrap_or_else(PoisonError::into_inner);
                seen.parser.process(&piece[..count]);
                seen.bytes.extend_from_slice(&piece[..count]);
            }
        });
        Self {
            keys: child.stdin.take().expect("it is piped"),
            child,
            seen,
        }
    }

    pub fn press(&mut self, keys: &str) {
        self.keys
            .write_all(keys.as_bytes())
            .expect("the terminal is open");
        self.keys.flush().expect("the terminal is open");
    }

    pub fn text(&self) -> String {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.parser.screen().contents()
    }

    fn all(&self) -> Vec<u8> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.bytes.clone()
    }

    #[track_caller]
    pub fn until(&self, words: &str) {
        let shows = wait::within(Duration::from_secs(60), || self.text().contains(words));
        assert!(shows, "no {words:?} in\n{}", self.text());
    }

    /// Whether the screen is the one before, with a cursor.
    fn is_left(&self) -> bool {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let screen = seen.parser.screen();
        !screen.alternate_screen() && !screen.hide_cursor()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A line of a shell: settings of the terminal before and after `weir watch`, its exit code, and its process in a file.
pub fn line(temp: &Temp, arguments: &str) -> String {
    line_of(temp, &format!("watch {arguments}"))
}

/// The same of another command.
fn line_of(temp: &Temp, command: &str) -> String {
    let weir = env!("CARGO_BIN_EXE_weir");
    let [before, after, process] = ["before", "after", "process"].map(|name| temp.at(name));
    format!(
        "trap : INT; stty -a >{before}; sh -c 'echo $$ >{process}; exec {weir} {command}'; echo code=$?; stty -a >{after}; echo over"
    )
}

/// Sends a signal to the process of [`line`].
fn signal(temp: &Temp, name: &str) {
    let process = std::fs::read_to_string(temp.at("process")).expect("the process began");
    tool("kill", [&format!("-{name}"), process.trim()]).ok();
}

/// Whether the process of [`line`] ends soon.
fn has_ended(temp: &Temp) -> bool {
    let process = std::fs::read_to_string(temp.at("process")).expect("the process began");
    let process = format!("/proc/{}/exe", process.trim());
    wait::within(Duration::from_secs(5), || {
        std::fs::read_link(&process).is_err()
    })
}

/// Checks that the terminal is as before.
#[track_caller]
pub fn assert_given_back(temp: &Temp, terminal: &Terminal, how: &str) {
    terminal.until("over");
    assert!(terminal.is_left(), "{how}: the screen stays");
    let [before, after] = ["before", "after"].map(|name| std::fs::read_to_string(temp.at(name)));
    assert_eq!(before.unwrap(), after.unwrap(), "{how}");
}

pub fn can_make_terminals(test: &str) -> bool {
    have(test, &["script", "stty", "sh", "kill"])
}

/// A capture with a name server, and a file name that tries to steer the terminal.
fn hostile(temp: &Temp) -> String {
    let name = "a\u{1b}]0;owned\u{7}\u{9b}31m.pcap";
    temp.file(name, &small_pcap(30));
    temp.at(name)
}

/// The far end counts what leaves, and so does the kernel.
#[test]
fn a_sender_is_shown_and_keys_change_it() {
    let test = "a_sender_is_shown_and_keys_change_it";
    if !can_make_terminals(test) {
        return;
    }
    let Some(net) = Net::new(test) else { return };
    let temp = Temp::new();
    let command = "generate af_packet:near --profile 64 --rate 2kpps --forever --watch";
    let mut terminal = Terminal::run(&line_of(&temp, command), |words| net.command("near", words));
    terminal.until("2 000 packets/s");
    terminal.until("sending");
    terminal.press("rfast\r");
    terminal.until("'fast' is not a rate");
    terminal.press("r3kpps\r");
    terminal.until("3 000 packets/s");
    terminal.press("+");
    terminal.until("3 300 packets/s");
    terminal.press("+++");
    terminal.until("4 390 packets/s");
    terminal.press("?");
    terminal.until("raise or lower the rate");
    terminal.press("?");
    terminal.until("reached");
    terminal.press(" ");
    terminal.until("stopped");
    let sent = || {
        let text = terminal.text();
        let sent = text.lines().find_map(|it| it.strip_prefix(" sent"));
        let number = sent.and_then(|it| it.split("packets").next());
        number.map(|it| it.replace(' ', ""))
    };
    let arrived = || net.received("far", "far").to_string();
    let is_right = || sent() == Some(arrived());
    assert!(
        wait::within(Duration::from_secs(20), is_right),
        "{:?} {}",
        sent(),
        arrived()
    );
    let before = arrived();
    terminal.press("q");
    assert_given_back(&temp, &terminal, "q");
    assert_eq!(arrived(), before, "a stopped sender lets nothing leave");
    let itself = "generate null --profile 64 --rate 1kpps --packets 100 --watch";
    let ended = Terminal::run(&line_of(&temp, itself), |words| net.command("near", words));
    assert_given_back(&temp, &ended, "its end");
    assert!(ended.text().contains("100 thrown away"), "{}", ended.text());
    assert!(!ended.text().contains("interrupted"), "{}", ended.text());
    assert!(terminal.text().contains("code=0"), "{}", terminal.text());
    assert!(
        terminal.text().contains("interrupted"),
        "{}",
        terminal.text()
    );
}

#[test]
fn an_interface_is_shown_and_keys_work() {
    let test = "an_interface_is_shown_and_keys_work";
    if !can_make_terminals(test) {
        return;
    }
    let Some(net) = Net::new(test) else { return };
    let temp = Temp::new();
    let begun = Instant::now();
    let mut terminal = Terminal::run(&line(&temp, "near"), |words| net.command("near", words));
    terminal.until("starting");
    let frames: Vec<Vec<u8>> = (0..400).map(|number| numbered(53, number, 40)).collect();
    let sending = std::thread::scope(|scope| {
        let sender = scope.spawn(|| net.send(&frames, 1));
        terminal.until("kbit/s");
        terminal.press("3");
        terminal.until("[3 services]");
        terminal.until("domain udp/53");
        terminal.press("f");
        terminal.press("udp prt");
        terminal.until("syntax error");
        terminal.press("\u{15}udp port 54\r");
        terminal.until("capture: udp port 54");
        terminal.press("1/10.");
        terminal.until("rows /10.");
        terminal.press("\x1b");
        terminal.press("?");
        terminal.until("choose a row");
        terminal.press("x");
        sender.join().expect("the sender ends")
    });
    assert_eq!(sending, 400);
    terminal.press("q");
    assert_given_back(&temp, &terminal, "q");
    assert!(terminal.text().contains("code=0"), "{}", terminal.text());
    // Two pictures a second at most, of 4 kB at most.
    let pictures = 2.0 * begun.elapsed().as_secs_f64() + 12.0;
    let bytes = terminal.all().len();
    assert!(
        (bytes as f64) < 4096.0 * pictures,
        "{bytes} bytes, {pictures} pictures"
    );
}

#[test]
fn each_end_gives_the_terminal_back() {
    let test = "each_end_gives_the_terminal_back";
    if !can_make_terminals(test) {
        return;
    }
    for how in ["q", "\u{3}", "TERM", "HUP", "INT", "full"] {
        eprintln!("the end by {how:?}");
        let temp = Temp::new();
        temp.file("a.pcap", &small_pcap(30));
        let mut watched = line(&temp, &temp.at("a.pcap"));
        if how == "TERM" {
            watched = watched.replace("exec ", "exec env TERM=linux LC_ALL=C ");
        }
        let mut terminal = Terminal::run(&watched, here);
        terminal.until("all is read");
        assert!(how != "TERM" || terminal.all().is_ascii());
        match how {
            "q" | "\u{3}" => terminal.press(how),
            // Nobody reads the terminal any more, and pictures fill it.
            "full" => {
                let script = terminal.child.id().to_string();
                tool("kill", ["-STOP", &script]).ok();
                wait::within(Duration::from_millis(500), || {
                    signal(&temp, "CONT");
                    false
                });
                signal(&temp, "TERM");
                assert!(has_ended(&temp), "it waits for a terminal without a reader");
                tool("kill", ["-CONT", &script]).ok();
            }
            name => signal(&temp, name),
        }
        assert_given_back(&temp, &terminal, how);
        assert!(
            terminal.text().contains("code=0"),
            "{how}: {}",
            terminal.text()
        );
        assert!(
            terminal.text().contains("30 received"),
            "{how}: {}",
            terminal.text()
        );
    }
}

#[test]
fn a_storm_of_sizes_a_stop_and_a_closed_terminal_do_no_harm() {
    let test = "a_storm_of_sizes_a_stop_and_a_closed_terminal_do_no_harm";
    if !can_make_terminals(test) {
        return;
    }
    let temp = Temp::new();
    temp.file("a.pcap", &small_pcap(30));
    let (go, gone) = (temp.at("go"), temp.at("gone"));
    let sizes =
        "for i in 7 40 12 99 3 56 24 200 1 80; do stty rows $i cols $((201 - i)); done </dev/tty";
    let (rows, columns) = SIZE;
    let storm = format!(
        "(until [ -e {go} ]; do sleep 0.05; done; {sizes}; {sizes}; stty rows {rows} cols {columns} </dev/tty; echo >{gone}) &"
    );
    // Jobs of the shell, so that one can be stopped. It goes on once the settings of the terminal are written down.
    let stopped = temp.at("stopped");
    let watched = line(&temp, &temp.at("a.pcap")).replace(
        "echo code",
        &format!("stty -a >{stopped}; echo has stopped; until [ -e {gone}2 ]; do sleep 0.05; done; fg; echo code"),
    );
    let watched = format!("{storm} set -m; {watched}");
    let terminal = Terminal::run(&watched, here);
    terminal.until("all is read");
    let text = || {
        let text = terminal.text();
        text.lines()
            .map(str::trim_end)
            .collect::<Vec<_>>()
            .join("\n")
    };
    let before = text();
    let is_as_before = |how: &str| {
        let same = wait::within(Duration::from_secs(5), || text() == before);
        assert!(same, "{how}:\n{}\nbefore:\n{before}", terminal.text());
    };
    temp.file("go", b"");
    let is_over = wait::within(Duration::from_secs(5), || Path::new(&gone).exists());
    assert!(is_over, "the storm goes on");
    is_as_before("sizes");
    signal(&temp, "TSTP");
    terminal.until("has stopped");
    assert!(terminal.is_left(), "the stopped screen stays");
    let settings = |name| std::fs::read_to_string(temp.at(name)).expect("stty wrote it");
    assert_eq!(settings("before"), settings("stopped"));
    temp.file("gone2", b"");
    is_as_before("a stop");
    drop(terminal);
    assert!(has_ended(&temp), "it goes on without a terminal");
}

#[test]
fn a_measurement_of_an_interface_shows_a_line_a_second() {
    let test = "a_measurement_of_an_interface_shows_a_line_a_second";
    if !can_make_terminals(test) {
        return;
    }
    let Some(net) = Net::new(test) else { return };
    let weir = env!("CARGO_BIN_EXE_weir");
    let words = format!("trap : INT; {weir} measure near --key dport; echo over");
    let mut terminal = Terminal::run(&words, |words| net.command("near", words));
    terminal.until("AF_PACKET");
    let frames: Vec<Vec<u8>> = (0..400).map(|number| numbered(53, number, 40)).collect();
    assert_eq!(net.send(&frames, 400), 400);
    terminal.until("no loss  100.0 % udp/53");
    terminal.press("\u{3}");
    terminal.until("over");
    let text = terminal.text();
    assert!(text.contains("400 packets"), "{text}");
    assert!(text.contains("400 received"), "{text}");
}

/// A terminal in this namespace.
pub fn here(words: &[&str]) -> Command {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).env("TZ", "UTC");
    command
}

/// Signals that nothing handles still end the process as they do, but give the terminal back before.
#[test]
fn deadly_signals_give_the_terminal_back() {
    let test = "deadly_signals_give_the_terminal_back";
    if !can_make_terminals(test) {
        return;
    }
    for (how, code) in [("QUIT", 131), ("USR2", 140)] {
        let temp = Temp::new();
        temp.file("a.pcap", &small_pcap(3));
        let watched = format!("ulimit -c 0; {}", line(&temp, &temp.at("a.pcap")));
        let terminal = Terminal::run(&watched, here);
        terminal.until("all is read");
        signal(&temp, how);
        assert_given_back(&temp, &terminal, how);
        let text = terminal.text();
        assert!(text.contains(&format!("code={code}")), "{how}: {text}");
    }
}

/// Packets of some seconds: as many as the second has a number, counted from 1; and the same half an hour later.
fn two_times() -> Vec<u8> {
    let mut file = pcap_header(65535, 1);
    for begin in [1_700_000_000, 1_700_001_800] {
        for second in 0..5 {
            (0..=second).for_each(|_| file.extend(pcap_record(begin + second, &udp(53, 40))));
        }
        // Of the last second, a moment is known.
        file.extend(pcap_record(begin + 5, &udp(53, 40)));
    }
    file
}

#[test]
fn a_record_and_a_file_are_walked_in_time() {
    let test = "a_record_and_a_file_are_walked_in_time";
    if !can_make_terminals(test) {
        return;
    }
    let temp = Temp::new();
    temp.file("a.pcap", &two_times());
    weir([
        "record",
        &temp.at("a.pcap"),
        &temp.at("kept"),
        "--ram",
        "32M",
        "--disk",
        "8M",
    ])
    .ok();
    for source in ["kept", "a.pcap"] {
        let watched = line(
            &temp,
            &format!("{} --at 2023-11-14T22:13:23Z --utc", temp.at(source)),
        );
        let mut terminal = Terminal::run(&watched, here);
        let steps = [
            ("", "at 22:13:23", "4 pps"),
            (">", "at 22:13:24", "5 pps"),
            (">", "at 22:13:25", "  -   "),
            // Over half an hour without packets.
            (">", "at 22:43:20", "1 pps"),
            (">", "at 22:43:21", "2 pps"),
            ("<", "at 22:43:20", "1 pps"),
            ("<", "at 22:13:25", "  -   "),
            ("<", "at 22:13:24", "5 pps"),
            (".", "last 1 s", "22:43:26"),
            ("<", "at 22:43:24", "5 pps"),
            ("fport 54\r", "capture: port 54", "no packets"),
            ("f\u{15}port 53\r", "capture: port 53", "5 pps"),
        ];
        for (keys, time, rate) in steps {
            terminal.press(keys);
            let shows = |words: &str| terminal.text().contains(words);
            let both = wait::within(Duration::from_secs(8), || shows(time) && shows(rate));
            assert!(
                both,
                "{source}: no {time}, {rate} after {keys:?}:\n{}",
                terminal.text()
            );
        }
        terminal.press("q");
        assert_given_back(&temp, &terminal, source);
    }
}

/// Fields of tshark for each packet of a file that passes a display filter.
fn tshark(file: &str, filter: &str) -> Vec<String> {
    let fields = "frame.time_epoch frame.len ip.src ip.dst udp.srcport udp.dstport ip.id";
    let mut words = vec!["-r", file, "-Y", filter, "-T", "fields"];
    fields
        .split(' ')
        .for_each(|field| words.extend(["-e", field]));
    let text = tool("tshark", words).text();
    text.lines().map(str::to_owned).collect()
}

/// The one file of a directory with an extension, for its owner only.
#[track_caller]
fn only_file(directory: &str, extension: &str) -> String {
    use std::os::unix::fs::PermissionsExt;
    let entries = std::fs::read_dir(directory).expect("the directory is there");
    let paths = entries.map(|entry| entry.expect("it is read").path());
    let mut files = paths.filter(|path| path.extension().is_some_and(|it| it == extension));
    let path = files.next().expect("a file was written");
    assert!(files.next().is_none(), "several files");
    let mode = path.metadata().expect("it is there").permissions().mode();
    assert_eq!(mode & 0o7777, 0o600, "{}", path.display());
    path.to_str().expect("its name is UTF-8").to_owned()
}

#[test]
fn packets_of_a_row_and_bundles_are_written() {
    let test = "packets_of_a_row_and_bundles_are_written";
    if !can_make_terminals(test) || !have(test, &["tshark"]) {
        return;
    }
    let temp = Temp::new();
    temp.file("a.pcap", &two_times());
    let words = [&temp.at("a.pcap"), &temp.at("kept")];
    weir(["record", words[0], words[1], "--ram", "32M", "--disk", "8M"]).ok();
    let second =
        "udp.port == 53 and frame.time_epoch >= 1700000003 and frame.time_epoch < 1700000004";
    for source in ["kept", "a.pcap"] {
        let saved = temp.at(&format!("saved-{source}"));
        std::fs::create_dir(&saved).expect("it can be made");
        let options = "--at 2023-11-14T22:13:23Z --utc --save-dir";
        let watched = line(&temp, &format!("{} {options} {saved}", temp.at(source)));
        let mut terminal = Terminal::run(&watched, here);
        let steps = [
            ("", "at 22:13:23"),
            ("3w", "all packets"),
            ("\x1b", "nothing is written"),
            ("\x1b[B", "> domain udp/53"),
            ("w", "22:13:23 to 22:13:24"),
            ("t", "t this step only"),
            ("t", "udp and port 53"),
            ("\r", "4 packets"),
            ("w", "-2.pcapng"),
            ("\x1bB", "(headers)"),
            ("\r", "4 packets"),
        ];
        for (keys, words) in steps {
            terminal.press(keys);
            terminal.until(words);
        }
        wait::within(Duration::from_secs(5), || {
            Path::new(&saved)
                .read_dir()
                .is_ok_and(|files| files.count() == 4)
        });
        terminal.press("q");
        assert_given_back(&temp, &terminal, source);
        let bundle = [only_file(&saved, "txt"), only_file(&saved, "json")];
        let [text, json] = bundle.map(|path| std::fs::read_to_string(path).expect("it is there"));
        assert!(
            text.contains("[3 services]") && text.contains("at 22:13:23"),
            "{text}"
        );
        let rows: serde_json::Value = serde_json::from_str(&json).expect("it is JSON");
        assert_eq!(rows["type"], "view");
        assert_eq!(rows["received"], 4, "{json}");
        let headers = format!("{saved}/incident-20231114T221323.pcapng");
        assert_eq!(
            tshark(&headers, "frame.cap_len == 42"),
            tshark(&temp.at("a.pcap"), second)
        );
        std::fs::remove_file(headers).expect("it is there");
        let packets = tshark(&only_file(&saved, "pcapng"), "frame.cap_len == frame.len");
        assert_eq!(packets, tshark(&temp.at("a.pcap"), second), "{source}");
    }
}

#[test]
fn a_full_disk_is_a_line_and_packets_stay_whole() {
    let test = "a_full_disk_is_a_line_and_packets_stay_whole";
    if !can_make_terminals(test) || !have(test, &["unshare", "mount", "tshark"]) {
        return;
    }
    let temp = Temp::new();
    let mut file = pcap_header(65535, 1);
    (0..2000).for_each(|_| file.extend(pcap_record(1_700_000_000, &udp(53, 1000))));
    temp.file("a.pcap", &file);
    let disk = temp.at("disk");
    std::fs::create_dir(&disk).expect("it can be made");
    let mount = format!("mount -t tmpfs -o size=1m none {disk} || exit 77");
    let copy = format!(
        "cp {disk}/all-20231114T221320.pcapng {}; ls {disk}",
        temp.at("out.pcapng")
    );
    let watched = line(
        &temp,
        &format!("{} --utc --save-dir {disk}", temp.at("a.pcap")),
    );
    let words = format!("{mount}; {watched}; {copy}");
    let unshared = |words: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["-rm"]).args(words).env("TZ", "UTC");
        command
    };
    let mut terminal = Terminal::run(&words, unshared);
    terminal.until("all is read");
    terminal.press("w");
    terminal.until("Enter");
    terminal.press("\r");
    terminal.until("of the disk are free");
    terminal.press("q");
    terminal.until("all-20231114T221320.pcapng");
    let written = wait::within(Duration::from_secs(5), || {
        Path::new(&temp.at("out.pcapng")).exists()
    });
    assert!(written, "{}", terminal.text());
    let packets = tshark(&temp.at("out.pcapng"), "udp.port == 53");
    assert!((500..1000).contains(&packets.len()), "{}", packets.len());
    // Where not even a header has room, no file stays.
    let fills = format!("{mount}; head -c 1m /dev/zero >{disk}/all.0");
    let words = format!("{fills}; {watched}; echo files: $(ls {disk})");
    let mut terminal = Terminal::run(&words, unshared);
    terminal.until("all is read");
    terminal.press("w");
    terminal.until("Enter");
    terminal.press("\r");
    terminal.until("0 packets written");
    terminal.press("q");
    terminal.until("files: all.0");
    assert!(
        !terminal.text().contains("files: all.0 "),
        "{}",
        terminal.text()
    );
}

#[test]
fn packets_of_an_interface_come_from_its_record() {
    let test = "packets_of_an_interface_come_from_its_record";
    if !can_make_terminals(test) || !have(test, &["tshark"]) {
        return;
    }
    let Some(net) = Net::new(test) else { return };
    let temp = Temp::new();
    // On disk, and in the memory of the recorder alone.
    for (name, disk) in [("disk", &["--disk", "64M"][..]), ("memory", &[])] {
        let (kept, saved) = (temp.at(name), temp.at(&format!("saved-{name}")));
        std::fs::create_dir(&saved).expect("it can be made");
        let record = [&["record", "near", &kept, "--ram", "32M"], disk].concat();
        let recorder = net.capture(&record);
        let watched = line(&temp, &format!("near --history {kept} --save-dir {saved}"));
        let mut terminal = Terminal::run(&watched, |words| net.command("near", words));
        terminal.until("starting");
        let frames: Vec<Vec<u8>> = (0..300).map(|number| numbered(53, number, 40)).collect();
        assert_eq!(net.send(&frames, 300), 300);
        terminal.press("3");
        terminal.until("domain udp/53");
        terminal.press("\x1b[B");
        terminal.until("> domain udp/53");
        // The one connection to the recorder serves both.
        for _ in 0..2 {
            terminal.press("w");
            terminal.until("udp and port 53");
            terminal.press("\r");
            terminal.until("300 packets");
        }
        terminal.press("q");
        assert_given_back(&temp, &terminal, "q");
        recorder.stop();
        assert_eq!(
            Path::new(&saved).read_dir().expect("it is there").count(),
            2
        );
        for file in std::fs::read_dir(&saved).expect("it is there") {
            let file = file.expect("it can be read").path();
            let file = file.to_str().expect("its name is plain");
            weir(["filter", "", file, "-w", &temp.at("out.pcap")]).ok();
            let numbers: Vec<u32> = records(&temp.at("out.pcap")).iter().map(number).collect();
            assert_eq!(numbers, (0..300).collect::<Vec<_>>(), "{file}");
            assert_eq!(tshark(file, "udp.dstport == 53").len(), 300);
        }
    }
}

/// Losses before the file was written are told by the screen too.
#[test]
fn what_a_file_or_a_record_lacks_is_told() {
    let test = "what_a_file_or_a_record_lacks_is_told";
    if !can_make_terminals(test) {
        return;
    }
    let temp = Temp::new();
    let (file, record) = (temp.file("a.pcapng", &lacking()), temp.at("record"));
    weir(["record", &file, &record, "--disk", "8M", "--ram", "8M"]).ok();
    for source in [&file, &record] {
        let mut terminal = Terminal::run(&line(&temp, source), here);
        terminal.until("lost 37: before");
        terminal.press("q");
        terminal.until("over");
    }
    std::fs::create_dir(temp.at("empty")).expect("it can be made");
    let refused = Terminal::run(&line(&temp, &temp.at("empty")), here);
    refused.until("is not a record directory");
    refused.until("code=2");
}

/// A frame in which a DNS server tells its own name.
fn named() -> Vec<u8> {
    let dns = [
        &[0, 1, 0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0][..],
        b"\x01a\x07example\0\0\x01\0\x01",
        &[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 10, 0, 0, 9],
    ]
    .concat();
    let udp = 8 + dns.len() as u8;
    [
        &[2; 12][..],
        &[8, 0, 0x45, 0, 0, 20 + udp, 0, 0, 0, 0, 64, 17, 0, 0],
        &[10, 0, 0, 9, 10, 0, 0, 1, 0, 53, 0x90, 0, 0, udp, 0, 0],
        &dns,
    ]
    .concat()
}

/// A source on standard input leaves the keys to the terminal, and is read once: its names are those of the first reading.
#[test]
fn a_pipe_is_watched_with_names() {
    let test = "a_pipe_is_watched_with_names";
    if !can_make_terminals(test) {
        return;
    }
    let temp = Temp::new();
    let mut pcap = pcap_header(65535, 1);
    pcap.extend(pcap_record(1_700_000_000, &named()));
    let file = temp.file("a.pcap", &pcap);
    let mut terminal = Terminal::run(&line(&temp, &format!("- <{file}")), here);
    terminal.until("10.0.0.9 a.example");
    terminal.press("q");
    terminal.until("over");
    assert_given_back(&temp, &terminal, "after a pipe");
    // Nobody writes to the file.
    let mut waits = Terminal::run(&line(&temp, &format!("{file} --follow")), here);
    waits.until("waiting: no new second of packets for ");
    waits.press("q");
    assert_given_back(&temp, &waits, "after a file that may grow");
}

#[test]
fn a_name_does_not_steer_the_terminal() {
    let test = "a_name_does_not_steer_the_terminal";
    if !can_make_terminals(test) {
        return;
    }
    let temp = Temp::new();
    let name = hostile(&temp);
    let watched = line(&temp, &format!("\"{name}\""));
    let mut terminal = Terminal::run(&watched, here);
    terminal.until("all is read");
    terminal.press("q");
    terminal.until("over");
    let bytes = terminal.all();
    let holds = |bytes: &[u8], what: &[u8]| bytes.windows(what.len()).any(|part| part == what);
    assert!(!holds(&bytes, b"\x1b]0"), "a title was set");
    assert!(!holds(&bytes, "\u{9b}".as_bytes()), "a control character");
}

#[test]
fn without_a_terminal_nothing_is_drawn() {
    let temp = Temp::new();
    temp.file("a.pcap", &small_pcap(3));
    let done = weir(["watch", &temp.at("a.pcap")]);
    assert_eq!(done.code, Some(2));
    assert_eq!(
        done.err,
        "weir: weir watch draws on a terminal, and this is none: weir measure prints the same figures as lines, weir measure \
         --json for programs\n"
    );
    assert!(done.out.is_empty());
    let test = "without_a_terminal_nothing_is_drawn";
    if !can_make_terminals(test) {
        return;
    }
    let dumb = format!(
        "TERM=dumb {} top {}; echo code=$?",
        env!("CARGO_BIN_EXE_weir"),
        temp.at("a.pcap")
    );
    let terminal = Terminal::run(&dumb, here);
    terminal.until("code=2");
    assert!(terminal.text().contains("TERM=dumb"), "{}", terminal.text());
}
