//! Files in the MaxMind DB format, written by its description. **Source**: MaxMind DB File Format Specification 2.0.

use std::net::IpAddr;

/// A value of a record.
#[derive(Clone, Debug)]
pub enum Value {
    /// UTF-8.
    Text(String),
    /// An unsigned number, in 16 bits if it fits, else in 32.
    Number(u32),
    /// Names and values.
    Map(Vec<(&'static str, Value)>),
}

/// A tree of networks with records.
#[derive(Debug)]
pub struct Mmdb {
    version: u8,
    record_bits: usize,
    nodes: Vec<[Child; 2]>,
    /// Encoded records, each once.
    data: Vec<u8>,
    records: Vec<(Vec<u8>, usize)>,
    /// Whether the file describes itself.
    is_described: bool,
}

#[derive(Clone, Copy, Debug)]
enum Child {
    None,
    Node(usize),
    /// Place in the data.
    Data(usize),
}

impl Mmdb {
    /// Begins a file of IP `version` 4 or 6, whose nodes have two records of 24, 28 or 32 bits.
    pub fn new(version: u8, record_bits: usize) -> Self {
        Self {
            version,
            record_bits,
            nodes: vec![[Child::None; 2]],
            data: Vec::new(),
            records: Vec::new(),
            is_described: true,
        }
    }

    /// Leaves out the description, as some writers do.
    pub fn without_description(mut self) -> Self {
        self.is_described = false;
        self
    }

    /// Gives a network a record, inside of earlier ones or around nothing.
    pub fn add(&mut self, address: IpAddr, bits: u8, value: &Value) {
        let mut encoded = Vec::new();
        encode(&mut encoded, value);
        let known = self.records.iter().find(|(record, _)| *record == encoded);
        let place = known.map_or(self.data.len(), |(_, place)| *place);
        if place == self.data.len() {
            self.data.extend_from_slice(&encoded);
            self.records.push((encoded, place));
        }
        // In a tree of IPv6, IPv4 is below ::/96.
        let (path, length) = match (address, self.version) {
            (IpAddr::V4(address), 4) => (u128::from(u32::from(address)) << 96, bits),
            (IpAddr::V4(address), _) => (u128::from(u32::from(address)), bits + 96),
            (IpAddr::V6(address), _) => (u128::from(address), bits),
        };
        let mut node = 0;
        for depth in 0..length {
            let side = (path >> (127 - depth) & 1) as usize;
            if depth + 1 == length {
                self.nodes[node][side] = Child::Data(place);
                break;
            }
            node = match self.nodes[node][side] {
                Child::Node(next) => next,
                // The network around this one is divided.
                above => {
                    self.nodes.push([above; 2]);
                    let next = self.nodes.len() - 1;
                    self.nodes[node][side] = Child::Node(next);
                    next
                }
            };
        }
    }

    /// The bytes of the file.
    pub fn bytes(&self) -> Vec<u8> {
        let count = self.nodes.len();
        let number = |child: Child| match child {
            Child::None => count as u64,
            Child::Node(node) => node as u64,
            Child::Data(place) => (count + 16 + place) as u64,
        };
        let mut out = Vec::new();
        for node in &self.nodes {
            let [left, right] = node.map(|child| number(child).to_be_bytes());
            match self.record_bits {
                24 => out.extend([&left[5..], &right[5..]].concat()),
                28 => {
                    let middle = left[4] << 4 | right[4] & 15;
                    out.extend([&left[5..], &[middle][..], &right[5..]].concat());
                }
                _ => out.extend([&left[4..], &right[4..]].concat()),
            }
        }
        out.extend([0; 16]);
        out.extend(&self.data);
        out.extend(b"\xab\xcd\xefMaxMind.com");
        control(&mut out, 7, 9);
        let mut put = |name: &str, kind: u8, bytes: &[u8]| {
            text(&mut out, name);
            control(&mut out, kind, bytes.len());
            out.extend(bytes);
        };
        put("node_count", 6, &(count as u32).to_be_bytes());
        put("record_size", 5, &(self.record_bits as u16).to_be_bytes());
        put("ip_version", 5, &[0, self.version]);
        put("database_type", 2, b"Test");
        put("binary_format_major_version", 5, &[0, 2]);
        put("binary_format_minor_version", 5, &[0, 0]);
        put("build_epoch", 9, &1_700_000_000u64.to_be_bytes());
        put("languages", 11, &[]);
        text(&mut out, "description");
        let words = ("en", Value::Text("a test".to_owned()));
        let words = self.is_described.then_some(words);
        encode(&mut out, &Value::Map(words.into_iter().collect()));
        out
    }
}

/// The control bytes of a value: its type and its size, or number of members.
fn control(out: &mut Vec<u8>, kind: u8, size: usize) {
    let (small, rest): (u8, Vec<u8>) = match size {
        0..29 => (size as u8, Vec::new()),
        29..285 => (29, vec![(size - 29) as u8]),
        _ => (30, ((size - 285) as u16).to_be_bytes().to_vec()),
    };
    match kind {
        0..8 => out.push(kind << 5 | small),
        // Further types have a byte of their own.
        _ => out.extend([small, kind - 7]),
    }
    out.extend(rest);
}

fn text(out: &mut Vec<u8>, text: &str) {
    control(out, 2, text.len());
    out.extend(text.as_bytes());
}

fn encode(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Text(words) => text(out, words),
        Value::Number(number) => match u16::try_from(*number) {
            Ok(number) => {
                control(out, 5, 2);
                out.extend(number.to_be_bytes());
            }
            Err(_) => {
                control(out, 6, 4);
                out.extend(number.to_be_bytes());
            }
        },
        Value::Map(members) => {
            control(out, 7, members.len());
            for (name, member) in members {
                text(out, name);
                encode(out, member);
            }
        }
    }
}

/// A record of an autonomous system, as GeoLite2-ASN has it.
pub fn system(number: u32, name: &str) -> Value {
    Value::Map(vec![
        ("autonomous_system_number", Value::Number(number)),
        (
            "autonomous_system_organization",
            Value::Text(name.to_owned()),
        ),
    ])
}

/// A record of a country, as GeoLite2-Country has it.
pub fn country(code: &str) -> Value {
    let inner = Value::Map(vec![
        ("geoname_id", Value::Number(1)),
        ("iso_code", Value::Text(code.to_owned())),
    ]);
    Value::Map(vec![("country", inner)])
}

/// A record of a system and a country, as the files of IPinfo have it: flat, and all values are texts.
pub fn flat(number: u32, name: &str, code: &str) -> Value {
    let text = |text: &str| Value::Text(text.to_owned());
    Value::Map(vec![
        ("asn", text(&format!("AS{number}"))),
        ("as_name", text(name)),
        ("country_code", text(code)),
        ("country", text("A country")),
    ])
}
