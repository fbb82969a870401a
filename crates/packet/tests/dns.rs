//! The DNS reader against a naive one over random bytes and the messages of the captures, and against tshark.

#[path = "bodies/dns.rs"]
mod body;
mod flow_support;
mod line_support;

use flow_support::packets;
use line_support::{Random, captures};
use std::process::Command;
use weir_packet::LinkType;
use weir_packet::dns::{Entries, Header, Malformed, NAME_MAX, Name, kinds};
use weir_packet::flow::Parser;

#[test]
fn a_query_and_its_answer() {
    let message = b"\x12\x34\x81\x83\0\x01\0\x01\0\0\0\x01\x03www\x07Example\x02i.\0\0\x1c\0\x01\
        \xc0\x0c\0\x05\0\x01\0\0\x02\x58\0\x04\x01\xff\xc0\x10\0\0\x29\x04\xd0\0\0\0\0\0\0";
    assert_eq!(body::dns(message), 3);
    let header = Header::read(message).expect("it is long enough");
    assert!(header.is_response() && !header.is_truncated());
    assert_eq!((header.id, header.opcode(), header.rcode()), (0x1234, 0, 3));
    let mut entries = Entries::new(message, header);
    let question = entries.question().expect("one").expect("it is well-formed");
    assert_eq!(question.name.to_string(), r"www.Example.i\.");
    assert_eq!((question.kind, question.class), (kinds::AAAA, 1));
    let answer = entries.record().expect("one").expect("it is well-formed");
    assert_eq!(answer.name, question.name);
    assert_eq!(
        (answer.section, answer.kind, answer.ttl),
        (1, kinds::CNAME, 600)
    );
    let (target, end) = Name::read(message, answer.data_at).expect("it is well-formed");
    assert_eq!(
        (target.to_string().as_str(), end),
        (r"\255.Example.i\.", answer.data_at + 4)
    );
    let last = entries.record().expect("one").expect("it is well-formed");
    assert_eq!((last.section, last.kind, last.class), (3, kinds::OPT, 1232));
    assert_eq!(last.name.to_string(), ".");
    assert!(entries.record().is_none());
}

#[test]
fn names_that_no_message_may_have() {
    let read = |message: &[u8], at| Name::read(message, at).map(|(name, _)| name.to_string());
    assert_eq!(read(b"\xc0\0", 0), Err(Malformed::Pointer));
    assert_eq!(read(b"\x01a\xc0\0", 2), Err(Malformed::Pointer), "a circle");
    assert_eq!(read(b"\0\xc0\x02", 1), Err(Malformed::Pointer), "forwards");
    assert_eq!(read(b"\0\xc0\0", 1), Ok(".".to_owned()));
    assert_eq!(read(b"\x02a", 0), Err(Malformed::Truncated));
    assert_eq!(read(b"\x41a\0", 0), Err(Malformed::Label));
    assert_eq!(read(b"", 0), Err(Malformed::Truncated));
    let longest = [&b"\x01a".repeat(NAME_MAX / 2)[..], b"\0"].concat();
    assert_eq!(read(&longest, 0).map(|text| text.len()), Ok(NAME_MAX - 2));
    let longer = [b"\x02aa", &longest[2..]].concat();
    assert_eq!(read(&longer, 0), Err(Malformed::TooLong));
    // Each pointer leads to the one before it, and the first to the root.
    let chain: Vec<u8> = std::iter::once(0)
        .chain((0..128u16).flat_map(|n| (0xc000 | (2 * n).saturating_sub(1)).to_be_bytes()))
        .collect();
    let place = |pointers: usize| 2 * pointers - 1;
    assert_eq!(read(&chain, place(127)), Ok(".".to_owned()));
    assert_eq!(read(&chain, place(128)), Err(Malformed::Pointer));
    assert!(body::name(&chain, place(127)) && !body::name(&chain, place(128)));
}

#[test]
fn names_of_texts() {
    let name = |text: &str| Name::of_text(text.as_bytes()).map(|name| name.to_string());
    for text in ["www.example.com", "a", "x.", "\u{1b}[31m.b"] {
        let shown = text.trim_end_matches('.').replace('\u{1b}', "\\027");
        assert_eq!(name(text), Ok(shown));
    }
    let label = "a".repeat(63);
    assert_eq!(name(&label), Ok(label.clone()));
    for text in ["", ".", "a..b", ".a", &format!("{label}a")] {
        assert_eq!(name(text), Err(Malformed::Label), "{text}");
    }
    let long = [&label[..]; 4].join(".");
    assert_eq!(name(&long[..253]), Ok(long[..253].to_owned()));
    assert_eq!(name(&long), Err(Malformed::TooLong));
}

#[test]
fn any_bytes() {
    const LIKELY: [u8; 16] = [
        0, 1, 2, 3, 12, 13, 14, 16, 20, 63, 64, 0x80, 0xc0, 0xc1, b'a', 255,
    ];
    let mut random = Random(0x5eed);
    let mut entries = 0;
    for round in 0..40_000 {
        let mut message = random.bytes(round % 90);
        message
            .iter_mut()
            .filter(|_| random.below(8) > 0)
            .for_each(|byte| {
                *byte = LIKELY[usize::from(*byte) % LIKELY.len()];
            });
        entries += body::dns(&message);
    }
    assert!(entries > 3000, "only {entries} entries could be read");
}

/// Payload of a frame if it is UDP from or to port 53.
fn message(link: LinkType, frame: &[u8]) -> Option<&[u8]> {
    let parser = Parser::new(link, false)?;
    let key = parser.key(frame).ok()?;
    let (source, destination) = key.ports()?;
    let place = usize::try_from(parser.offsets(frame).payload).ok()?;
    (key.proto == 17 && (source == 53 || destination == 53)).then(|| &frame[place..])
}

#[test]
fn messages_of_the_captures() {
    let mut random = Random(7);
    let (mut messages, mut entries) = (0, 0);
    for (link, frames) in packets("messages_of_the_captures") {
        for message in frames.iter().filter_map(|frame| message(link, frame)) {
            messages += 1;
            entries += body::dns(message);
            let mut damaged = message.to_vec();
            for _ in 0..4 {
                let at = random.below(damaged.len());
                if let Some(byte) = damaged.get_mut(at) {
                    *byte = random.next() as u8;
                }
                body::dns(&damaged);
            }
        }
    }
    println!("{messages} messages, {entries} entries");
    assert!(messages == 0 || entries > messages);
}

/// Identification, question and response code of each message, as tshark reads them and as they are read here.
#[test]
fn questions_as_tshark_reads_them() {
    let test = "questions_as_tshark_reads_them";
    let wanted = "pcapplusplus__example.pcap";
    let Some(path) = captures(test)
        .into_iter()
        .find(|path| path.ends_with(wanted))
    else {
        return;
    };
    if !weir_testkit::have(test, &["tshark"]) {
        return;
    }
    let fields = [
        "dns.id",
        "dns.qry.name",
        "dns.qry.type",
        "dns.flags.rcode",
        "dns.a",
    ];
    let mut command = Command::new("tshark");
    command
        .args(["-n", "-Y", "udp.port == 53 && dns", "-T", "fields", "-r"])
        .arg(&path);
    fields
        .iter()
        .for_each(|field| _ = command.args(["-e", field]));
    let output = command.output().expect("tshark was found before").stdout;
    let theirs = String::from_utf8(output).expect("tshark prints UTF-8");
    let file = std::fs::read(&path).expect("a listed capture can be read");
    let mut ours = String::new();
    for (link, frame) in flow_support::of_file(&file) {
        if let Some(message) = message(link, &frame) {
            ours += &as_tshark(message);
        }
    }
    assert_eq!(ours, theirs);
    assert!(ours.lines().count() > 80);
}

fn as_tshark(message: &[u8]) -> String {
    let header = Header::read(message).expect("the capture has whole messages");
    let mut entries = Entries::new(message, header);
    let question = entries.question().expect("one").expect("it is well-formed");
    let mut addresses = Vec::new();
    while let Some(record) = entries.record() {
        let record = record.expect("it is well-formed");
        if let (kinds::A, [a, b, c, d]) = (record.kind, record.data) {
            addresses.push(format!("{a}.{b}.{c}.{d}"));
        }
    }
    let rcode = if header.is_response() {
        header.rcode().to_string()
    } else {
        String::new()
    };
    let (id, name, kind) = (header.id, question.name, question.kind);
    format!(
        "0x{id:04x}\t{name}\t{kind}\t{rcode}\t{}\n",
        addresses.join(",")
    )
}
