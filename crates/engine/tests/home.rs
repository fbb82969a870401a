//! A record directory that is made anew, in a process without walls: packets go on in it, and so do requests.

use serde_json::json;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use std::{fs, io};
use weir_engine::record::disk::{self, DiskEvent};
use weir_engine::record::trigger::{Condition, Trigger};
use weir_engine::record::{Handle, RecordSink, Recording, Settings, Status};
use weir_engine::sink::Sink;
use weir_engine::socket::Client;
use weir_packet::savefile::{Interface, Layout, Record, Resolution};
use weir_packet::{Frame, LinkType};
use weir_store::disk::{FreeBytes, Reader, Retention, Selection};
use weir_store::ring;
use weir_testkit::{Scratch, wait};

/// A recording on disk that is fed by the test.
struct Fed {
    sink: RecordSink,
    handle: Handle,
    layout: Layout,
}

impl Fed {
    fn send(&mut self, packets: u64) {
        for _ in 0..packets {
            let data = [7; 600];
            let frame = Frame {
                data: &data,
                wire_len: 600,
                interface: 0,
            };
            self.sink
                .packet(
                    &self.layout,
                    &Record {
                        time_ns: Some(1),
                        frame,
                        options: Default::default(),
                    },
                )
                .unwrap();
        }
        self.sink.flush().unwrap();
    }

    /// Waits until the state of the disk is as wanted.
    #[track_caller]
    fn until(&self, wanted: impl Fn(&disk::Status) -> bool) -> Status {
        wait::until_ok(|| {
            let status = self.handle.status();
            match wanted(status.disk.as_ref().unwrap()) {
                true => Ok(status),
                false => Err(format!("{status:?}")),
            }
        })
    }
}

fn settings(directory: &Path, on_disk: disk::OnDisk) -> Settings {
    let trigger = Trigger {
        condition: Condition::Asked,
        after: Duration::ZERO,
        ..Trigger::default()
    };
    Settings {
        directory: directory.to_owned(),
        ring: ring::Settings {
            bytes: 2 << 20,
            ..ring::Settings::default()
        },
        age: None,
        cutoff: None,
        chosen: Default::default(),
        disk: Some(disk::Settings {
            sync: Duration::from_millis(20),
            segment_bytes: 1 << 20,
            segment_time: None,
            compress: None,
            retention: Retention {
                bytes: Some(64 << 20),
                ..Retention::default()
            },
        }),
        on_disk,
        triggers: vec![trigger],
        waits: true,
        names: weir_filter::Names::NONE,
        inner: None,
        mode: 0o600,
        reserve: 0,
        rewrite: Default::default(),
        on_saved: Box::new(|_| {}),
    }
}

/// Number of packets in a record directory.
fn packets_in(directory: &Path) -> u64 {
    let mut reader = Reader::open(directory, Selection::default(), None).unwrap();
    while reader.next_bytes().unwrap().is_some() {}
    reader.counts().passed
}

/// Removes a directory in which a recorder may make a file meanwhile.
fn remove(directory: &Path) {
    wait::until("a removed directory", || {
        let removed = fs::remove_dir_all(directory);
        let is_refilled = |error: &io::Error| error.kind() == io::ErrorKind::DirectoryNotEmpty;
        assert!(
            removed.as_ref().err().is_none_or(is_refilled),
            "{removed:?}"
        );
        removed.is_ok()
    });
}

#[test]
fn packets_and_requests_go_on_in_a_directory_that_is_made_anew() {
    let scratch = Scratch::new();
    let (directory, moved) = (scratch.path().join("record"), scratch.path().join("moved"));
    fs::create_dir(&directory).unwrap();
    let told = Arc::new(Mutex::new(Vec::new()));
    let telling = Arc::clone(&told);
    let on_disk = Box::new(move |event: DiskEvent<'_>| {
        let line = match &event {
            DiskEvent::Moved(left) => {
                format!("moved {} {} {}", left.packets, left.gone, left.is_removed)
            }
            DiskEvent::Left(left) => {
                format!("left {} {} {}", left.packets, left.gone, left.is_removed)
            }
            DiskEvent::Entered(_) => "entered".to_owned(),
            other => format!("{other:?}"),
        };
        telling.lock().unwrap().push(line);
    });
    let (mut recording, sink) = Recording::new(settings(&directory, on_disk)).unwrap();
    recording
        .open_disk(FreeBytes(Arc::new(|_: &Path| Ok(1 << 40))))
        .unwrap();
    recording.listen().unwrap();
    let handle = recording.handle().clone();
    let recorder = recording.start().unwrap();
    let layout = Layout::spool(vec![Interface::plain(
        LinkType::ETHERNET,
        65_535,
        Resolution::NANOSECOND,
    )]);
    let mut fed = Fed {
        sink,
        handle,
        layout,
    };
    fed.send(100);
    fed.until(|disk| disk.durable.packets == 100);

    // Renamed: its packets stay in it, and the next ones go to the other directory.
    fs::rename(&directory, &moved).unwrap();
    fs::create_dir(&directory).unwrap();
    fed.until(|disk| disk.elsewhere == 100);
    fed.send(50);
    fed.until(|disk| disk.durable.packets == 50);
    assert_eq!((packets_in(&moved), packets_in(&directory)), (100, 50));
    let mut client = Client::connect(directory.join("control")).unwrap();
    assert_eq!(
        client.ask(&json!({ "request": "status" })).unwrap()["disk"]["elsewhere"],
        100
    );

    // Removed, and there again later: what memory still holds of it is written once more.
    remove(&directory);
    fed.until(|disk| disk.durable.packets == 0);
    fed.send(10);
    fs::create_dir(&directory).unwrap();
    fed.until(|disk| disk.durable.packets == 60);
    assert_eq!(packets_in(&directory), 60);

    // Removed with more than memory holds: the rest is gone, and told.
    fed.send(10_000);
    fed.until(|disk| disk.durable.packets == 10_060);
    remove(&directory);
    fs::create_dir(&directory).unwrap();
    let gone = fed.until(|disk| disk.gone > 0).disk.unwrap().gone;
    fed.sink.finish(None, false).unwrap();
    let (status, is_whole) = recorder.finish();
    let disk = status.disk.unwrap();
    assert!(is_whole, "{disk:?}");
    // The oldest packets of memory may leave it before they are written again.
    assert_eq!(gone + disk.missed + disk.durable.packets, 10_060);
    assert_eq!(packets_in(&directory), disk.durable.packets);
    let told = told.lock().unwrap();
    let line = format!("moved 10060 {gone} true");
    assert_eq!(
        told[..],
        ["moved 100 0 false", "left 50 0 true", "entered", &line],
        "{told:?}"
    );
}
