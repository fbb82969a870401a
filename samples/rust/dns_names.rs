//! Shows the ten names that DNS clients asked for most often: dns_names SOURCE
//!
//! Reads packets where they lie. Letters are shown as small ones, bytes that are no letters, digits, - or _ as \DDD.

mod sample;

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt::Write;
use std::process::ExitCode;
use weir_api::{Options, Source};

/// Longest name that is shown, letters.
const LONGEST: usize = 4 * 255;

/// Payload of a first fragment of UDP to port 53, behind Ethernet with VLAN tags.
fn question(frame: &[u8]) -> Option<&[u8]> {
    let mut rest = frame.get(12..)?;
    while let [0x81, 0, _, _, behind @ ..] | [0x88, 0xa8, _, _, behind @ ..] = rest {
        rest = behind;
    }
    let udp = match rest {
        [8, 0, ip @ ..] if *ip.get(9)? == 17 && (ip[6] & 0x1f | ip[7]) == 0 => ip.get(usize::from(ip[0] & 15) * 4..)?,
        [0x86, 0xdd, ip @ ..] if *ip.get(6)? == 17 => ip.get(40..)?,
        _ => return None,
    };
    if udp.get(2..4)? == [0, 53] { udp.get(8..) } else { None }
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
        for letter in behind[..usize::from(label)].iter().map(u8::to_ascii_lowercase) {
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
    const ETHERNET: u16 = 1;
    sample::run("dns_names SOURCE", 1..=1, |arguments| {
        let source = Source::open(arguments, &Options::default())?;
        let mut names: HashMap<String, u64> = HashMap::new();
        let code = sample::each_batch(&source, |batch| {
            if batch.layout().interfaces.iter().all(|interface| interface.link.0 == ETHERNET) {
                for name in batch.packets().filter_map(|packet| name_of(question(packet.frame.data)?)) {
                    *names.entry(name).or_default() += 1;
                }
            }
            Ok(())
        })?;
        let mut ranked: Vec<_> = names.iter().collect();
        ranked.sort_by_key(|(name, times)| (Reverse(**times), *name));
        ranked.iter().take(10).for_each(|(name, times)| println!("{name} {times}"));
        println!("{} names", names.len());
        Ok(code)
    })
}
