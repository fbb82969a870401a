//! Record directories: their files, directories made by hand, and recorders that run.

use crate::support::*;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Child;
use std::sync::Arc;
use weir_engine::socket::Client;
use weir_packet::savefile::{Interface, Record as Packet, Resolution};
use weir_packet::{Frame, LinkType};
use weir_store::disk::{Now, Recorder, Settings, System};

/// Capture files of a directory with such a name, in the order of their names.
fn files(directory: &str, is_wanted: impl Fn(&str) -> bool) -> Vec<String> {
    let names = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let wanted = names.filter(|name| name.ends_with(".pcapng") && is_wanted(name));
    let mut files: Vec<_> = wanted.map(|name| format!("{directory}/{name}")).collect();
    files.sort();
    files
}

/// Saved files of a trigger, in the order of their times.
pub fn saved(directory: &str, trigger: &str) -> Vec<String> {
    files(directory, |name| {
        name.starts_with(&format!("trigger-{trigger}-"))
    })
}

/// Segments of a record directory, in the order of their names.
pub fn segments(directory: &str) -> Vec<String> {
    files(directory, |name| !name.starts_with("trigger-"))
}

/// The segments of a record as one file, by mergecap.
pub fn joined(temp: &Temp, directory: &str) -> String {
    let file = temp.at("joined.pcapng");
    let arguments = ["-a", "-w", &file].map(str::to_owned);
    tool("mergecap", arguments.into_iter().chain(segments(directory))).ok();
    file
}

/// Begins a record with small segments and blocks.
pub fn recorder(directory: &str) -> (Recorder, u64) {
    let settings = Settings {
        block_bytes: 8 << 10,
        buffer_bytes: 128 << 10,
        segment_bytes: 1 << 20,
        ..Settings::default()
    };
    let opened = Recorder::open(
        Arc::new(System::default()),
        Path::new(directory),
        settings,
        Now::default(),
    );
    let (mut recorder, opened) = opened.unwrap();
    recorder.interface(&Interface::plain(
        LinkType::ETHERNET,
        0,
        Resolution::NANOSECOND,
    ));
    (recorder, opened.generation)
}

/// Adds a packet to a record.
pub fn put(recorder: &mut Recorder, number: u64, packet: &Record) {
    let frame = Frame {
        data: &packet.data,
        wire_len: packet.wire_len,
        interface: 0,
    };
    recorder
        .packet(
            0,
            number,
            &Packet {
                time_ns: Some(packet.time_ns as i64),
                frame,
                options: Default::default(),
            },
        )
        .unwrap();
}

/// A record of these packets.
pub fn record(directory: &str, packets: &[Record]) {
    let (mut recorder, _) = recorder(directory);
    packets
        .iter()
        .zip(0..)
        .for_each(|(packet, number)| put(&mut recorder, number, packet));
    recorder.close().unwrap();
}

/// Traffic of Internet-like sizes over three seconds, and its largest flow as `weir query --flow` wants it, with its packets.
pub fn traffic(temp: &Temp) -> (Vec<Record>, String, u64) {
    let file = temp.at("all.pcap");
    let options = [
        "--packets",
        "30000",
        "--flows",
        "500",
        "--rate",
        "10000",
        "--seed",
        "7",
        "--talkers",
        "1",
    ];
    let talker = weir([&["generate", &file], &options[..]].concat())
        .ok()
        .text();
    let [packets, _, protocol, source, from, destination, to] =
        talker.split_whitespace().collect::<Vec<_>>()[..]
    else {
        panic!("{talker}")
    };
    let flow = format!("{source}:{from} {destination}:{to} {protocol}");
    (
        parse_pcap(&std::fs::read(file).unwrap()).1,
        flow,
        packets.parse().unwrap(),
    )
}

/// Starts a recorder of what comes on its standard input.
pub fn start_recorder(directory: &str, options: &[&str]) -> Child {
    crate::live::start(&[&["record", "-", directory], options].concat())
}

/// Connects to the recorder of a directory, once it listens.
pub fn connected(directory: &str) -> Client {
    let socket = Path::new(directory).join("control");
    wait::until_ok(|| Client::connect(&socket).map_err(|error| format!("{error:?}")))
}

/// Waits until this many packets of a recorder are durable.
#[track_caller]
pub fn until_durable(client: &mut Client, packets: u64) {
    wait::until(format_args!("{packets} durable packets"), || {
        status(client)["disk"]["durable"]["number"] == packets
    });
}

/// State of a recorder.
pub fn status(client: &mut Client) -> Value {
    client.ask(&json!({ "request": "status" })).unwrap()
}
