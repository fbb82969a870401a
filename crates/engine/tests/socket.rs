//! Control sockets, with clients and servers made by hand from the standard library's sockets at the other end.

use serde_json::{Value, json};
use std::fs;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use weir_engine::socket::{Client, Error, LONGEST_REQUEST, Reply, Server, Settings};
use weir_testkit::{Random, Scratch, wait};

/// Answers `echo` with its value, `refuse` with its text, `stream` with so many bytes, `panic` with a panic.
fn echo(request: Value) -> Reply {
    if let Some(value) = request.get("echo") {
        return Reply::Done(value.clone());
    }
    if let Some(text) = request.get("refuse").and_then(Value::as_str) {
        return Reply::Refused(text.to_owned());
    }
    if let Some(len) = request.get("stream").and_then(Value::as_u64) {
        let bytes = Random(len).bytes(len as usize);
        return Reply::Stream {
            first: json!({ "bytes": len }),
            write: Box::new(move |to| to.write_all(&bytes)),
        };
    }
    panic!("a handler may be wrong");
}

struct Setup {
    scratch: Scratch,
    server: Option<Server>,
}

impl Setup {
    fn new(settings: Settings, handler: impl Fn(Value) -> Reply + Send + Sync + 'static) -> Self {
        let scratch = Scratch::new();
        let server = Some(Server::bind(scratch.path().join("control"), settings, handler).unwrap());
        Self { scratch, server }
    }

    fn path(&self) -> PathBuf {
        self.scratch.path().join("control")
    }

    fn client(&self) -> Client {
        Client::connect(self.path()).unwrap()
    }

    fn raw(&self) -> Raw {
        Raw::new(UnixStream::connect(self.path()).unwrap())
    }
}

/// A client of lines, made by hand.
struct Raw(BufReader<UnixStream>);

impl Raw {
    fn new(stream: UnixStream) -> Self {
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        Self(BufReader::new(stream))
    }

    fn send(&self, bytes: &[u8]) {
        self.0.get_ref().write_all(bytes).unwrap();
    }

    /// The next line with its end; empty at the end of the connection.
    fn line(&mut self) -> String {
        let mut line = String::new();
        match self.0.read_line(&mut line) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
            result => drop(result.unwrap()),
        }
        line
    }

    fn ask(&mut self, request: &str) -> String {
        self.send(request.as_bytes());
        self.line()
    }
}

#[test]
fn requests_and_answers_are_lines_of_json() {
    let setup = Setup::new(Settings::default(), echo);
    let mut raw = setup.raw();
    assert_eq!(
        raw.ask("{\"echo\":{\"b\":1,\"a\":[\"x\\ny\"]}}\n"),
        "{\"ok\":{\"b\":1,\"a\":[\"x\\ny\"]}}\n"
    );
    assert_eq!(
        raw.ask(" { \"refuse\" : \"no room\" } \r\n"),
        "{\"error\":\"no room\"}\n"
    );
    assert_eq!(raw.ask("{\"echo\":null}\n"), "{\"ok\":null}\n");
    raw.send(b"{\"stream\":3}\n");
    raw.0.get_ref().shutdown(Shutdown::Write).unwrap();
    assert_eq!(raw.line(), "{\"ok\":{\"bytes\":3}}\n");
    let mut rest = Vec::new();
    raw.0.read_to_end(&mut rest).unwrap();
    assert_eq!(
        rest,
        [&b"\x03\0\0\0"[..], &Random(3).bytes(3), b"\0\0\0\0"].concat()
    );
}

#[test]
fn clients_send_and_understand_the_same_lines() {
    let scratch = Scratch::new();
    let path = scratch.path().join("control");
    let listener = UnixListener::bind(&path).unwrap();
    let server = std::thread::spawn(move || {
        let mut got = Vec::new();
        for answer in [
            &b"{\"ok\":{\"a\":1}}\n"[..],
            b"{\"error\":\"no room\"}\n",
            b"{\"ok\":null}\n\x03\0\0\0abc\x01\0\0\0d\0\0\0\0",
            b"{\"ok\":1}\n\x03\0\0\0ab",
            b"{\"ok\":1}\n\x02\0\0\0ab\x04\0\0\x80gone",
            b"{\"ok\":0}\n{\"ok\":1}\n{\"ok\":2}\n",
            b"nonsense\n",
            b"",
        ] {
            let mut raw = Raw::new(listener.accept().unwrap().0);
            got.push(raw.line());
            raw.send(answer);
        }
        got
    });
    let client = || Client::connect(&path).unwrap();
    let request = json!({ "do": { "it": [1, "2"] } });
    assert_eq!(client().ask(&request).unwrap(), json!({ "a": 1 }));
    assert!(matches!(client().ask(&request), Err(Error::Refused(text)) if text == "no room"));
    let read = |client: Client| {
        let (value, mut bytes) = client.stream(&request).unwrap();
        let mut all = Vec::new();
        let result = bytes.read_to_end(&mut all);
        (
            value,
            all,
            result.err().map(|error| (error.kind(), error.to_string())),
        )
    };
    assert_eq!(read(client()), (json!(null), b"abcd".to_vec(), None));
    let cut = "the other process ended in the middle of its answer".to_owned();
    assert_eq!(
        read(client()),
        (
            json!(1),
            b"ab".to_vec(),
            Some((io::ErrorKind::UnexpectedEof, cut))
        )
    );
    let gone = Some((io::ErrorKind::Other, "gone".to_owned()));
    assert_eq!(read(client()), (json!(1), b"ab".to_vec(), gone));
    let (first, lines) = client().subscribe(&request).unwrap();
    assert_eq!(
        (first, lines.map(Result::unwrap).collect::<Vec<_>>()),
        (json!(0), vec![json!(1), json!(2)])
    );
    assert!(matches!(
        client().ask(&request),
        Err(Error::Malformed { .. })
    ));
    let closed = client().ask(&request).unwrap_err().to_string();
    assert!(
        closed.ends_with("the other process closed the connection without an answer"),
        "{closed}"
    );
    let got = server.join().unwrap();
    assert!(
        got.iter()
            .all(|line| line == "{\"do\":{\"it\":[1,\"2\"]},\"version\":1}\n"),
        "{got:?}"
    );
}

#[test]
fn answers_come_in_the_order_of_requests_for_many_clients_at_once() {
    let setup = Setup::new(Settings::default(), echo);
    std::thread::scope(|scope| {
        for client in 0..32 {
            let mut raw = setup.raw();
            scope.spawn(move || {
                let to = raw.0.get_ref().try_clone().unwrap();
                let requests: String = (0..500)
                    .map(|i| format!("{{\"echo\":[{client},{i}]}}\n"))
                    .collect();
                // The pieces end anywhere.
                let sending = std::thread::spawn(move || {
                    requests
                        .as_bytes()
                        .chunks(97 + client)
                        .for_each(|piece| (&to).write_all(piece).unwrap());
                });
                for i in 0..500 {
                    assert_eq!(raw.line(), format!("{{\"ok\":[{client},{i}]}}\n"));
                }
                sending.join().unwrap();
            });
        }
    });
}

/// Does what a hostile client may do, and returns the client, which may stay.
fn misbehave(setup: &Setup, how: usize, random: &mut Random) -> Raw {
    let mut raw = setup.raw();
    let request = b"{\"echo\":\"0123456789\"}\n";
    match how {
        // Half a line, and nothing more.
        0 => raw.send(&request[..random.below(request.len())]),
        // Half a line, and the end.
        1 => {
            raw.send(&request[..1 + random.below(request.len() - 2)]);
            raw.0.get_ref().shutdown(Shutdown::Write).unwrap();
            assert_eq!(
                raw.line(),
                "{\"error\":\"the last line has no line end, and is not a request\"}\n"
            );
            assert_eq!(raw.line(), "");
        }
        // A line without an end.
        2 => {
            let _ = raw.0.get_ref().write_all(&vec![b'x'; LONGEST_REQUEST + 1]);
            assert_eq!(
                raw.line(),
                format!("{{\"error\":\"a request has at most {LONGEST_REQUEST} bytes\"}}\n")
            );
            assert_eq!(raw.line(), "");
        }
        // Lines that are no requests are answered, and the connection goes on.
        3 => {
            for garbage in [
                &b"\n"[..],
                b"\0\xff\xfe\n",
                b"[]\n",
                b"{\"echo\":\n",
                b"{}{}\n",
            ] {
                raw.send(garbage);
                assert!(
                    raw.line()
                        .starts_with("{\"error\":\"a request is a JSON object on one line")
                );
            }
            assert!(
                raw.ask("{\"panic\":1}\n")
                    .starts_with("{\"error\":\"the request ended with a panic")
            );
            assert_eq!(raw.ask("{\"echo\":1}\n"), "{\"ok\":1}\n");
        }
        // Requests whose answers are never read.
        4 => {
            raw.0
                .get_ref()
                .set_write_timeout(Some(Duration::from_millis(20)))
                .unwrap();
            while raw.0.get_ref().write_all(&request.repeat(1000)).is_ok() {}
        }
        // Requests, and gone before the answers.
        5 => {
            let requests = request.repeat(50);
            let _ = raw
                .0
                .get_ref()
                .write_all(&requests[..random.below(requests.len())]);
            return setup.raw();
        }
        // A stream that is not read.
        6 => raw.send(b"{\"stream\":5000000}\n"),
        // A stream that is left in the middle.
        _ => {
            raw.send(b"{\"stream\":5000000}\n");
            raw.0
                .read_exact(&mut vec![0; 1 + random.below(100_000)])
                .unwrap();
            return setup.raw();
        }
    }
    raw
}

#[test]
fn clients_that_misbehave_harm_no_other_client() {
    let settings = Settings {
        patience: Duration::from_millis(200),
        stream_patience: Duration::from_millis(200),
        ..Settings::default()
    };
    let setup = Setup::new(settings, echo);
    let mut good = setup.raw();
    let mut random = Random(7);
    let mut kept = Vec::new();
    for turn in 0..48 {
        kept.push(misbehave(&setup, turn % 8, &mut random));
        assert_eq!(
            good.ask(&format!("{{\"echo\":{turn}}}\n")),
            format!("{{\"ok\":{turn}}}\n")
        );
    }
    let mut stream = loop {
        // Streams that nobody reads end after a while, and then there is room.
        match setup.client().stream(&json!({ "stream": 100_000 })) {
            Ok((_, stream)) => break stream,
            Err(Error::Refused(why)) => {
                assert_eq!(why, "8 streams are open, and no more are: try again later")
            }
            Err(error) => panic!("{error}"),
        }
    };
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    assert!(bytes == Random(100_000).bytes(100_000));
    // After the end of a stream, its connection takes the next request.
    let mut client = stream.into_inner().into_client();
    let answer = client.ask(&json!({ "echo": 1 })).unwrap();
    assert_eq!(answer, json!(1));
}

#[test]
fn no_more_connections_are_taken_than_allowed_and_the_longest_waiting_one_makes_room() {
    let (enter, entered) = channel();
    let (release, gate) = channel::<()>();
    let (enter, gate) = (Mutex::new(enter), Mutex::new(gate));
    let settings = Settings {
        connections: 4,
        idle: Duration::from_millis(100),
        ..Settings::default()
    };
    let setup = Setup::new(settings, move |request| {
        if request.get("wait").is_some() {
            enter.lock().unwrap().send(()).unwrap();
            let _ = gate.lock().unwrap().recv();
        }
        Reply::Done(request)
    });
    // Connections that work are not ended.
    let mut working: Vec<Raw> = (0..4).map(|_| setup.raw()).collect();
    for raw in &working {
        raw.send(b"{\"wait\":1}\n");
    }
    entered.iter().take(working.len()).for_each(drop);
    let refused =
        "{\"error\":\"4 connections are open, and no more are taken: try again later\"}\n";
    let mut waiting = setup.raw();
    assert_eq!(waiting.line(), refused);
    assert_eq!(waiting.line(), "");
    drop(release);
    for raw in &mut working {
        assert_eq!(raw.line(), "{\"ok\":{\"wait\":1}}\n");
    }
    // All four wait now. The first in this order has waited longest.
    for raw in &mut working[1..] {
        assert_eq!(raw.ask("{}\n"), "{\"ok\":{}}\n");
    }
    let mut next = loop {
        let mut raw = setup.raw();
        // A refused connection may be closed by now.
        let _ = raw.0.get_ref().write_all(b"{}\n");
        match raw.line() {
            line if line == refused => {}
            line => {
                assert_eq!(line, "{\"ok\":{}}\n");
                break raw;
            }
        }
    };
    assert_eq!(working[0].line(), "");
    for raw in working[1..].iter_mut().chain([&mut next]) {
        assert_eq!(raw.ask("{}\n"), "{\"ok\":{}}\n");
    }
}

#[test]
fn a_slow_reader_gets_all_bytes_of_a_stream() {
    let setup = Setup::new(Settings::default(), echo);
    let (first, mut stream) = setup
        .client()
        .stream(&json!({ "stream": 3_000_000 }))
        .unwrap();
    assert_eq!(first, json!({ "bytes": 3_000_000 }));
    let (mut all, mut piece, mut random) = (Vec::new(), vec![0; 200_000], Random(3));
    loop {
        let len = 1 + random.below(piece.len());
        // The server has written what there is room for, and waits for more. Its thread ends with the last bytes.
        if all.len() < 2_000_000 {
            wait::until_asleep(std::process::id(), |name| name.starts_with("control conn"));
        }
        match read(&mut stream, &mut piece[..len]).unwrap() {
            0 => break,
            read => all.extend_from_slice(&piece[..read]),
        }
    }
    assert!(all == Random(3_000_000).bytes(3_000_000));
    assert_eq!(stream.read(&mut piece).unwrap(), 0);
}

/// A server whose streams are fed by the test, and report how they ended.
fn fed() -> (Setup, Sender<Vec<u8>>, Receiver<io::Result<()>>) {
    let (feed, food) = channel::<Vec<u8>>();
    let (say, said) = channel();
    let (food, say) = (Arc::new(Mutex::new(food)), Mutex::new(say));
    let setup = Setup::new(
        Settings {
            streams: 1,
            ..Settings::default()
        },
        move |_| {
            let (food, say) = (Arc::clone(&food), say.lock().unwrap().clone());
            let write = move |to: &mut dyn Write| {
                let result = (|| {
                    while let Ok(bytes) = food.lock().unwrap().recv() {
                        match &bytes[..] {
                            b"fail" => return Err(io::Error::other("the ring is gone")),
                            b"panic" => panic!("a stream may be wrong"),
                            bytes => to.write_all(bytes)?,
                        }
                        to.flush()?;
                    }
                    Ok(())
                })();
                say.send(
                    result
                        .as_ref()
                        .copied()
                        .map_err(|error| io::Error::from(error.kind())),
                )
                .unwrap();
                result
            };
            Reply::Stream {
                first: json!({}),
                write: Box::new(write),
            }
        },
    );
    (setup, feed, said)
}

#[test]
fn bytes_of_a_stream_arrive_as_they_are_flushed_and_its_failure_is_told() {
    let (setup, feed, _said) = fed();
    for (last, expected) in [
        ("fail", "the ring is gone"),
        (
            "panic",
            "the stream ended with a panic: this is a mistake in weir",
        ),
    ] {
        let (_, mut stream) = loop {
            match setup.client().stream(&json!({})) {
                Ok(stream) => break stream,
                Err(Error::Refused(why)) => {
                    assert_eq!(why, "1 streams are open, and no more are: try again later")
                }
                Err(error) => panic!("{error}"),
            }
        };
        let mut piece = [0; 10];
        for word in ["one", "two"] {
            feed.send(word.into()).unwrap();
            assert_eq!(read(&mut stream, &mut piece).unwrap(), 3);
            assert_eq!(&piece[..3], word.as_bytes());
        }
        assert!(matches!(
            setup.client().stream(&json!({})),
            Err(Error::Refused(_))
        ));
        feed.send(last.into()).unwrap();
        assert_eq!(
            read(&mut stream, &mut piece).unwrap_err().to_string(),
            expected
        );
    }
}

#[test]
fn a_flush_without_bytes_finds_out_that_the_client_has_gone() {
    let (setup, feed, said) = fed();
    let (_, stream) = setup.client().stream(&json!({})).unwrap();
    drop(stream);
    let error = loop {
        // The end of the client reaches the server at some time after the drop.
        feed.send(Vec::new()).unwrap();
        if let Ok(result) = said.recv_timeout(Duration::from_millis(10)) {
            break result.unwrap_err();
        }
    };
    assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
}

#[test]
fn subscriptions_push_lines_until_the_client_goes() {
    let senders = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&senders);
    let setup = Setup::new(Settings::default(), move |_| {
        let (send, lines) = sync_channel(4);
        kept.lock().unwrap().push(send);
        Reply::Subscribed {
            first: json!("begun"),
            lines,
        }
    });
    let (first, mut lines) = setup.client().subscribe(&json!({ "watch": true })).unwrap();
    assert_eq!(first, json!("begun"));
    let sender = senders.lock().unwrap()[0].clone();
    for i in 0..100 {
        sender.send(json!({ "number": i })).unwrap();
        assert_eq!(lines.next().unwrap().unwrap(), json!({ "number": i }));
    }
    // A client that sends no more, as one behind a pipe, is still there.
    let mut half = setup.raw();
    half.send(b"{}\n");
    half.0.get_ref().shutdown(Shutdown::Write).unwrap();
    assert_eq!(half.line(), "{\"ok\":\"begun\"}\n");
    let other = senders.lock().unwrap()[1].clone();
    half.0.get_ref().set_nonblocking(true).unwrap();
    wait::throughout(Duration::from_millis(250), "the connection stays", || {
        let seen = half.0.fill_buf().map_err(|error| error.kind());
        seen == Err(ErrorKind::WouldBlock)
    });
    half.0.get_ref().set_nonblocking(false).unwrap();
    other.send(json!(1)).unwrap();
    assert_eq!(half.line(), "{\"ok\":1}\n");
    // The end of the last sender ends the connection.
    senders.lock().unwrap().truncate(1);
    drop(other);
    assert_eq!(half.line(), "");
    drop(lines);
    while sender.try_send(json!(0)) != Err(std::sync::mpsc::TrySendError::Disconnected(json!(0))) {
        std::thread::yield_now();
    }
}

#[test]
fn the_socket_is_private_and_nothing_else_is_left_in_its_directory() {
    let setup = Setup::new(Settings::default(), echo);
    let about = fs::symlink_metadata(setup.path()).unwrap();
    assert!(about.file_type().is_socket());
    assert_eq!(about.permissions().mode() & 0o7777, 0o600);
    assert_eq!(setup.scratch.names(), ["control"]);
}

#[test]
fn a_dead_socket_is_replaced_and_a_live_one_or_a_file_is_not() {
    let mut setup = Setup::new(Settings::default(), echo);
    let again = || Server::bind(setup.path(), Settings::default(), echo);
    assert!(matches!(again(), Err(Error::InUse { path }) if path == setup.path()));
    assert_eq!(setup.client().ask(&json!({ "echo": 1 })).unwrap(), json!(1));
    setup.server = None;
    assert_eq!(setup.scratch.names(), [""; 0]);
    assert!(matches!(
        Client::connect(setup.path()),
        Err(Error::NotListening { .. })
    ));

    drop(UnixListener::bind(setup.path()).unwrap());
    assert_eq!(setup.scratch.names(), ["control"]);
    assert!(matches!(
        Client::connect(setup.path()),
        Err(Error::NotListening { .. })
    ));
    // Of many processes that find the dead socket, one replaces it.
    let servers: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| Server::bind(setup.path(), Settings::default(), echo)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    assert_eq!(servers.iter().filter(|server| server.is_ok()).count(), 1);
    assert!(
        servers
            .iter()
            .flat_map(|server| server.as_ref().err())
            .all(|error| matches!(error, Error::InUse { .. }))
    );
    assert_eq!(setup.client().ask(&json!({ "echo": 2 })).unwrap(), json!(2));
    drop(servers);

    fs::write(setup.path(), "precious").unwrap();
    assert!(matches!(
        Server::bind(setup.path(), Settings::default(), echo),
        Err(Error::NoSocket { .. })
    ));
    assert_eq!(fs::read(setup.path()).unwrap(), b"precious");
    let missing = setup.scratch.path().join("missing/control");
    assert!(matches!(
        Server::bind(&missing, Settings::default(), echo),
        Err(Error::Io { .. })
    ));
}

#[test]
fn a_path_may_be_longer_than_the_address_of_a_socket() {
    let scratch = Scratch::new();
    let directory = scratch.path().join("d".repeat(120));
    fs::create_dir(&directory).unwrap();
    let path = directory.join("control");
    let server = Server::bind(&path, Settings::default(), echo).unwrap();
    assert_eq!(
        Client::connect(&path)
            .unwrap()
            .ask(&json!({ "echo": 1 }))
            .unwrap(),
        json!(1)
    );
    assert!(matches!(
        Server::bind(&path, Settings::default(), echo),
        Err(Error::InUse { .. })
    ));
    drop(server);
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
}

#[test]
fn a_stop_lets_requests_end_and_ends_all_else() {
    let (enter, entered) = channel();
    let (release, gate) = channel::<()>();
    let (enter, gate) = (Mutex::new(enter), Mutex::new(gate));
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let mut setup = Setup::new(Settings::default(), move |request| {
        counted.fetch_add(1, Ordering::Relaxed);
        enter.lock().unwrap().send(()).unwrap();
        gate.lock().unwrap().recv().unwrap();
        Reply::Done(request)
    });
    let (mut working, mut idle) = (setup.raw(), setup.raw());
    working.send(b"{\"a\":1}\n{\"b\":2}\n");
    entered.recv().unwrap();
    let path = setup.path();
    std::thread::scope(|scope| {
        let stopping = scope.spawn(|| drop(setup.server.take()));
        assert_eq!(idle.line(), "");
        assert!(!exists(&path));
        release.send(()).unwrap();
        assert_eq!(working.line(), "{\"ok\":{\"a\":1}}\n");
        assert_eq!(working.line(), "");
        stopping.join().unwrap();
    });
    assert_eq!(calls.load(Ordering::Relaxed), 1);
}

#[test]
fn a_stop_leaves_the_socket_of_another_process() {
    let mut setup = Setup::new(Settings::default(), echo);
    fs::remove_file(setup.path()).unwrap();
    let _other = UnixListener::bind(setup.path()).unwrap();
    setup.server = None;
    assert!(exists(&setup.path()));
}

/// Reads; a read that found nothing for a while is repeated.
fn read(stream: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match stream.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

fn exists(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

#[test]
fn requests_have_a_version_and_sockets_tell_theirs() {
    let setup = Setup::new(Settings::default(), |request: Value| Reply::Done(request));
    let mut raw = setup.raw();
    for (request, answer) in [
        // Requests of 0.1, which have no version, and those of version 1.
        (r#"{"a":1}"#, r#"{"ok":{"a":1}}"#),
        (r#"{"version":1,"a":1}"#, r#"{"ok":{"a":1}}"#),
        (
            r#"{"a":1,"version":2}"#,
            r#"{"error":"requests of version 2 are not known: this program takes version 1"}"#,
        ),
        (
            r#"{"version":"1"}"#,
            r#"{"error":"requests of version \"1\" are not known: this program takes version 1"}"#,
        ),
    ] {
        assert_eq!(raw.ask(&format!("{request}\n")), format!("{answer}\n"));
    }
    let version: Value = serde_json::from_str(&raw.ask("{\"request\":\"version\"}\n")).unwrap();
    let weir = env!("CARGO_PKG_VERSION");
    assert_eq!(version, json!({ "ok": { "version": 1, "weir": weir } }));
    // A client says its version, which the handler does not see.
    assert_eq!(
        setup.client().ask(&json!({ "a": 1 })).unwrap(),
        json!({ "a": 1 })
    );
    let listener = UnixListener::bind(setup.scratch.path().join("other")).unwrap();
    let server = std::thread::spawn(move || {
        let mut lines = BufReader::new(listener.accept().unwrap().0);
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        lines.get_ref().write_all(b"{\"ok\":null}\n").unwrap();
        line
    });
    let mut client = Client::connect(setup.scratch.path().join("other")).unwrap();
    client.ask(&json!({ "a": 1 })).unwrap();
    let sent: Value = serde_json::from_str(&server.join().unwrap()).unwrap();
    assert_eq!(sent, json!({ "a": 1, "version": 1 }));
}
