//! Runs over packets that are made here.

#![allow(dead_code, reason = "each test file uses its part")]

use std::process::Command;
use std::time::Duration;
use weir_engine::batches::Batches;
use weir_engine::handle::{Handle, Order, Sources};
use weir_engine::name::Name;
use weir_engine::run::{Ended, Run, Setup};
use weir_pipeline::select::Selection;
use weir_testkit::savefile::Pcap;

/// Longer than anything here takes, on a machine that is busy with other things.
pub const LONG: Duration = Duration::from_secs(60);

pub const PACKETS: u32 = 60_000;

/// A datagram to port 53 or, of odd number, to port 80, with its number at the end.
pub fn frame(number: u32) -> Vec<u8> {
    let mut frame = vec![0; 300];
    frame[12..15].copy_from_slice(&[8, 0, 0x45]);
    frame[23] = 17;
    frame[36..38].copy_from_slice(&[53u16, 80][number as usize % 2].to_be_bytes());
    frame[296..].copy_from_slice(&number.to_be_bytes());
    frame
}

pub fn pcap(numbers: std::ops::Range<u32>) -> Vec<u8> {
    let mut pcap = Pcap::new(1, 65535);
    numbers.for_each(|number| pcap.packet(&frame(number)));
    pcap.bytes
}

pub fn setup(expression: &str, pull: Option<usize>) -> Setup {
    Setup {
        selection: Selection { expression: expression.to_owned(), ..Selection::default() },
        workers: 1,
        pull,
        ..Setup::default()
    }
}

pub fn files(names: &[&str], order: Order) -> Sources {
    let names = names.iter().map(|name| Name::from((*name).to_owned())).collect();
    Sources::Files { names, order, zstd_window: 1 << 27, follow: None }
}

/// A run over these files of which batches are pulled.
pub fn pulled(names: &[&str], order: Order, expression: &str, most: usize) -> (Handle<()>, Batches) {
    let mut run = Run::new(setup(expression, Some(most)));
    let batches = run.batches().unwrap().unwrap();
    (Handle::start(run, files(names, order), 1, |_| None).unwrap(), batches)
}

pub fn end<E: Send + 'static>(handle: &mut Handle<E>) -> Ended {
    let (ended, _) = handle.join(LONG).unwrap().unwrap();
    assert_eq!((ended.imbalance.as_ref(), ended.ledger.check()), (None, Ok(())));
    ended
}

/// Time in ns, length on the wire, and captured bytes of a packet.
pub type Packet = (i64, u32, Vec<u8>);

/// The packets that tcpdump keeps of a capture, all of them if `expression` is empty; `None` if it refuses the capture or the expression.
pub fn tcpdump(path: &str, expression: &str) -> Option<Vec<Packet>> {
    let words = ["--nano", "-r", path, "-w", "-"];
    let done = Command::new("tcpdump").args(words).args((!expression.is_empty()).then_some(expression)).output();
    let done = done.expect("tcpdump was found");
    done.status.success().then(|| read(&done.stdout))
}

/// The packets of a little-endian pcap file.
pub fn read(mut pcap: &[u8]) -> Vec<Packet> {
    let word = |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let unit = match word(pcap, 0) {
        0xa1b2_3c4d => 1,
        0xa1b2_c3d4 => 1000,
        magic => panic!("{magic:x}"),
    };
    pcap = &pcap[24..];
    let mut packets = Vec::new();
    while !pcap.is_empty() {
        let (head, rest) = pcap.split_at(16);
        let (data, rest) = rest.split_at(word(head, 8) as usize);
        let time_ns = i64::from(word(head, 0)) * 1_000_000_000 + i64::from(word(head, 4)) * unit;
        packets.push((time_ns, word(head, 12), data.to_vec()));
        pcap = rest;
    }
    packets
}
