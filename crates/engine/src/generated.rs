//! Packets that are generated as a source: `generate:PROFILE`, read as a capture file is.
//!
//! `generate:mwn`, `generate:./my.toml`, `generate:mwn,packets=1000,seed=7,ipv4.dst=198.18.0.0/24`.

use crate::name::Name;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use weir_generator::Packets;
use weir_generator::streams::{Profile, SIZE_MAX};
use weir_io::stream::Stream;
use weir_io::{Input, Kind};

/// Begin of the names of these sources.
pub const GENERATE: &str = "generate:";

/// Longest text of a profile, bytes.
const TEXT_MAX: u64 = 1 << 20;

/// Bytes that are made at once.
const PIECE: usize = 256 << 10;

/// Returns the profile of a name `generate:PROFILE`, with its options. `./generate:x` is a file.
pub fn wanted(name: &Name) -> Option<&str> {
    name.utf8().strip_prefix(GENERATE)
}

/// Returns the file of a profile, if it is one.
pub fn file(name: &Name) -> Option<&Path> {
    let profile = wanted(name)?.split(',').next()?;
    Profile::text(profile).is_none().then(|| Path::new(profile))
}

/// Reads a profile that is built in, or the file of this name.
///
/// **Errors**: one line: what is wrong, and what would be right.
pub fn profile(name: &str) -> Result<Profile, String> {
    if let Some(profile) = Profile::built_in(name) {
        return Ok(profile);
    }
    let names = || Profile::names().collect::<Vec<_>>().join(" ");
    let mut text = String::new();
    let read = File::open(Path::new(name))
        .and_then(|file| file.take(TEXT_MAX + 1).read_to_string(&mut text));
    match read {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(format!(
            "{name:?} is no profile, and no file: those built in are {}",
            names()
        )),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Err(format!("{name}: no text")),
        Err(error) => Err(format!("{name}: {error}")),
        Ok(_) if text.len() as u64 > TEXT_MAX => {
            Err(format!("{name}: longer than 1 MiB, which no profile is"))
        }
        Ok(_) => Profile::read(&text).map_err(|why| format!("{name}: {why}")),
    }
}

/// Reads the profile of a source, with its options. **Errors**: as for [`profile`].
pub fn of_source(text: &str) -> Result<Profile, String> {
    let (name, options) = parts(text);
    let mut made = profile(name)?;
    for option in options {
        let Some((key, value)) = option.split_once('=') else {
            return Err(format!(
                "{option}: want KEY=VALUE, as in {name},packets=1000"
            ));
        };
        set(&mut made, key, value)?;
    }
    Ok(made)
}

/// The name of a profile and its options. A comma within a value, as in a list, does not begin another option.
fn parts(text: &str) -> (&str, Vec<String>) {
    let mut pieces = text.split(',');
    let name = pieces.next().unwrap_or("");
    let mut options: Vec<String> = Vec::new();
    for piece in pieces {
        match options.last_mut() {
            Some(last) if !piece.contains('=') => {
                last.push(',');
                last.push_str(piece);
            }
            _ => options.push(piece.to_owned()),
        }
    }
    (name, options)
}

/// Sets an option of a profile, or a field of its streams. **Errors**: what is wrong, and what would be right.
pub fn set(profile: &mut Profile, key: &str, value: &str) -> Result<(), String> {
    let number = |most: u64| {
        let number = value
            .parse()
            .ok()
            .filter(|number| (1..=most).contains(number));
        number.ok_or_else(|| format!("{key}={value}: want a number from 1 to {most}"))
    };
    match key {
        "packets" => profile.packets = Some(number(i64::MAX as u64)?),
        "seed" => {
            profile.seed = value
                .parse()
                .map_err(|_| format!("{key}={value}: want a number"))?
        }
        "rate" => profile.rate = Some(value.parse()?),
        "gaps" => profile.gaps = value.parse()?,
        _ if key.contains('.') => return profile.set_field(key, value),
        _ => {
            return Err(format!(
                "{key}: want one of packets seed rate gaps, or a field as ipv4.dst"
            ));
        }
    }
    Ok(())
}

/// Opens the packets of a profile as a capture. **Errors**: as for [`of_source`].
pub(crate) fn open(name: &Name, text: &str, stop: &Arc<AtomicBool>) -> io::Result<Input> {
    let wrong = |why: String| io::Error::new(io::ErrorKind::InvalidInput, why);
    let mut profile = of_source(text).map_err(wrong)?;
    profile.packets.get_or_insert(1_000_000);
    let mut bytes = Vec::with_capacity(PIECE + SIZE_MAX + 16);
    // pcap, ns, Ethernet: draft-ietf-opsawg-pcap section 4.
    for word in [0xa1b2_3c4d, 2 | 4 << 16, 0, 0, 65_535, 1_u32] {
        bytes.extend(word.to_le_bytes());
    }
    let reader = Capture {
        packets: Packets::new(&profile).map_err(wrong)?,
        bytes,
        read: 0,
    };
    Ok(Input {
        name: name.text(),
        kind: Kind::Stream(Stream::direct(reader, Arc::clone(stop))),
    })
}

/// Packets as the bytes of a capture file.
struct Capture {
    packets: Packets,
    bytes: Vec<u8>,
    /// Number of these bytes that were read.
    read: usize,
}

impl Read for Capture {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.read == self.bytes.len() {
            self.bytes.clear();
            self.read = 0;
            while self.bytes.len() < PIECE
                && let Some(made) = self.packets.next()
            {
                let time = made.time_ns.max(0);
                let len = made.frame.len() as u32;
                for word in [
                    (time / 1_000_000_000) as u32,
                    (time % 1_000_000_000) as u32,
                    len,
                    len,
                ] {
                    self.bytes.extend(word.to_le_bytes());
                }
                self.bytes.extend_from_slice(made.frame);
            }
        }
        let count = buffer.len().min(self.bytes.len() - self.read);
        buffer[..count].copy_from_slice(&self.bytes[self.read..self.read + count]);
        self.read += count;
        Ok(count)
    }
}
