//! Shows the ten names that DNS clients asked for most often: dns_names SOURCE
//!
//! Reads packets where they lie, on every link type: the library tells where the payload begins. Letters are shown as small ones, bytes
//! that are no letters, digits, - or _ as \DDD.

mod sample;

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt::Write;
use std::process::ExitCode;
use weir_api::{Batch, Column, Options, Source};

/// Longest name that is shown, letters.
const LONGEST: usize = 4 * 255;

/// Number of packets whose fields are asked for at once.
const ROOM: usize = 1024;

/// Adds the names of the questions of a batch: UDP to port 53.
fn count(batch: &Batch, names: &mut HashMap<String, u64>) {
    const UDP: u8 = 17;
    let (mut protocols, mut ports, mut payloads) = ([0u8; ROOM], [0u16; ROOM], [0i32; ROOM]);
    let mut frames = batch.packets().map(|packet| packet.frame.data);
    let mut first = 0;
    while first < batch.len() {
        let mut columns = [
            Column::Protocol(&mut protocols),
            Column::DestinationPort(&mut ports),
            Column::PayloadOffset(&mut payloads),
        ];
        let rows;
        (rows, first) = batch.fill(first, true, &mut columns);
        for (row, frame) in frames.by_ref().take(rows).enumerate() {
            let payload = usize::try_from(payloads[row])
                .ok()
                .and_then(|at| frame.get(at..));
            let is_asked = protocols[row] == UDP && ports[row] == 53;
            if let Some(name) = payload.filter(|_| is_asked).and_then(name_of) {
                *names.entry(name).or_default() += 1;
            }
        }
    }
}

/// The name of the first question; none if there is none or it is cut. Source: RFC 1035, section 4.
fn name_of(dns: &[u8]) -> Option<String> {
    let mut rest = dns.get(12..)?;
    if dns[2] >> 7 == 1 || dns[4..6] == [0, 0] {
        return None;
    }
    let mut name = String::new();
    while let Some((&label, behind)) = rest.split_first() {
        if label == 0 {
            return Some(name).filter(|name| !name.is_empty());
        }
        if label > 63 || behind.len() < usize::from(label) {
            return None;
        }
        if !name.is_empty() {
            name.push('.');
        }
        for letter in behind[..usize::from(label)]
            .iter()
            .map(u8::to_ascii_lowercase)
        {
            match letter {
                b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' => name.push(letter.into()),
                other => drop(write!(name, "\\{other:03}")),
            }
            if name.len() > LONGEST {
                return None;
            }
        }
        rest = &behind[usize::from(label)..];
    }
    None
}

fn main() -> ExitCode {
    sample::run("dns_names SOURCE", 1..=1, |arguments| {
        let source = Source::open(arguments, &Options::default())?;
        let mut names: HashMap<String, u64> = HashMap::new();
        let code = sample::each_batch(&source, |batch| {
            count(&batch, &mut names);
            Ok(())
        })?;
        let mut ranked: Vec<_> = names.iter().collect();
        ranked.sort_by_key(|(name, times)| (Reverse(**times), *name));
        ranked
            .iter()
            .take(10)
            .for_each(|(name, times)| println!("{name} {times}"));
        println!("{} names", names.len());
        Ok(code)
    })
}
