//! Shared parts of the tests of the line printer: tcpdump as the oracle, the captures, and a seeded generator.
#![allow(dead_code, unused_imports, reason = "each test file uses its part")]

pub mod build;
pub mod compare;

use std::io::{Read, Write};
use std::process::{Command, Stdio};

use weir_packet::line::{Conversations, Style, write_line};
use weir_packet::{Frame, LinkType};
pub use weir_testkit::{Random, captures};
use weir_testkit::{have, savefile::Pcap};

/// A packet of a capture, owned.
#[derive(Clone, Debug)]
pub struct Packet {
    pub data: Vec<u8>,
    pub wire_len: u32,
}

impl Packet {
    pub fn whole(data: Vec<u8>) -> Self {
        let wire_len = data.len() as u32;
        Self { data, wire_len }
    }

    /// The printer's text, of the first packet of a file.
    pub fn line(&self, link: LinkType, style: &Style) -> String {
        self.line_after(link, style, &mut Conversations::new())
    }

    fn line_after(
        &self,
        link: LinkType,
        style: &Style,
        conversations: &mut Conversations,
    ) -> String {
        let mut out = String::new();
        let frame = Frame {
            data: &self.data,
            wire_len: self.wire_len,
            interface: 0,
        };
        write_line(&mut out, link, &frame, style, conversations);
        out
    }
}

/// The printer's texts of the packets of a file.
pub fn lines(link: LinkType, packets: &[Packet], style: &Style) -> Vec<String> {
    let mut conversations = Conversations::new();
    let each = packets.iter();
    each.map(|packet| packet.line_after(link, style, &mut conversations))
        .collect()
}

/// Whether tcpdump is installed; if not, prints that the test is skipped.
pub fn have_tcpdump(test: &str) -> bool {
    have(test, &["tcpdump"])
}

/// tcpdump's standard output for these arguments and this standard input.
pub fn tcpdump(args: &[&str], input: &[u8]) -> Vec<u8> {
    let mut child = Command::new("tcpdump")
        .args(args)
        .env("TZ", "UTC")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("tcpdump was found before");
    let mut stdin = child.stdin.take().expect("stdin is piped");
    let mut stdout = child.stdout.take().expect("stdout is piped");
    let mut output = Vec::new();
    std::thread::scope(|scope| {
        // If tcpdump refuses a file, it closes the pipe early; its output then gives the reason.
        scope.spawn(move || drop(stdin.write_all(input)));
        stdout
            .read_to_end(&mut output)
            .expect("reading tcpdump's output");
    });
    child.wait().expect("waiting for tcpdump");
    output
}

/// The packets of any file that tcpdump can read, through its own conversion to pcap in this machine's byte order.
pub fn load(path: &std::path::Path) -> Option<(LinkType, Vec<Packet>)> {
    let bytes = std::fs::read(path).expect("a capture that is listed can be read");
    parse_pcap(&tcpdump(&["-r", "-", "-w", "-"], &bytes))
}

fn parse_pcap(bytes: &[u8]) -> Option<(LinkType, Vec<Packet>)> {
    let word = |at: usize| Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
    let link = LinkType(word(20)? as u16);
    let (mut packets, mut at) = (Vec::new(), 24);
    while let (Some(captured), Some(wire_len)) = (word(at + 8), word(at + 12)) {
        let data = bytes.get(at + 16..at + 16 + captured as usize)?.to_vec();
        at += 16 + data.len();
        packets.push(Packet { data, wire_len });
    }
    Some((link, packets))
}

/// A pcap file of these packets, for tcpdump's standard input.
pub fn pcap(link: LinkType, packets: &[Packet]) -> Vec<u8> {
    let mut file = Pcap::new(link.0.into(), 262_144);
    for packet in packets {
        file.header(0, 0, packet.data.len() as u32, packet.wire_len);
        file.bytes.extend(&packet.data);
    }
    file.bytes
}

/// tcpdump's text of each packet, without its number; the lines of one packet stay together.
pub fn texts(flags: &[&str], link: LinkType, packets: &[Packet]) -> Vec<String> {
    let args = [&["-n", "-t", "--number", "-r", "-"], flags].concat();
    let output = tcpdump(&args, &pcap(link, packets));
    let output: String = output.iter().map(|byte| char::from(*byte)).collect();
    let mut texts: Vec<String> = Vec::new();
    for line in output.strip_suffix('\n').unwrap_or(&output).split('\n') {
        let number = format!("{:5}  ", texts.len() + 1);
        match (line.strip_prefix(&number), texts.last_mut()) {
            (Some(rest), _) => texts.push(rest.to_owned()),
            (None, Some(last)) => {
                last.push('\n');
                last.push_str(line);
            }
            (None, None) => assert!(
                packets.is_empty(),
                "tcpdump's first line has no number: {line}"
            ),
        }
    }
    assert_eq!(texts.len(), packets.len(), "tcpdump printed every packet");
    texts
}
