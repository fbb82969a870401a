//! Passes packets by rules, a line each: firewall RULES SOURCE SINK
//!
//! A line has an IPv4 source address and a protocol number; a packet that one of them names is dropped, all others pass.

mod sample;

use std::collections::HashSet;
use std::net::Ipv4Addr;
use std::process::ExitCode;
use weir_api::{Column, Error, Options, Sink, Source};

const ROOM: usize = 4096;

/// Addresses, each with a protocol.
fn read(path: &str) -> Result<HashSet<(u32, u8)>, Error> {
    let wrong =
        |line: &str| Error::Refused(format!("{path}: {line}: it is not an address and protocol"));
    let text = std::fs::read_to_string(path)
        .map_err(|error| Error::Refused(format!("{path}: {error}")))?;
    let rule = |line: &str| {
        let (address, protocol) = line.split_once(' ')?;
        Some((
            address.parse::<Ipv4Addr>().ok()?.into(),
            protocol.trim().parse().ok()?,
        ))
    };
    text.lines()
        .filter(|line| !line.trim().is_empty())
        .map(|line| rule(line).ok_or_else(|| wrong(line)))
        .collect()
}

fn main() -> ExitCode {
    sample::run("firewall RULES SOURCE SINK", 3..=3, |arguments| {
        let rules = read(&arguments[0])?;
        let source = Source::open(&arguments[1..2], &Options::default())?;
        let mut sink = Sink::open(&arguments[2])?;
        let (mut versions, mut sources, mut protocols) = ([0u8; ROOM], [0u32; ROOM], [0u8; ROOM]);
        let mut denied = 0u64;
        let code = sample::each_batch(&source, |batch| {
            let mut mask = vec![0u64; batch.len().div_ceil(64)];
            let mut first = 0;
            while first < batch.len() {
                let mut columns = [
                    Column::IpVersion(&mut versions),
                    Column::Source4(&mut sources),
                    Column::Protocol(&mut protocols),
                ];
                let (written, behind) = batch.fill(first, false, &mut columns);
                for i in 0..written {
                    let drops = versions[i] == 4 && rules.contains(&(sources[i], protocols[i]));
                    denied += u64::from(drops);
                    mask[(first + i) / 64] |= u64::from(!drops) << ((first + i) % 64);
                }
                first = behind;
            }
            sink.send(&batch, Some(&mask))
        })?;
        let (sent, closed) = sink.close();
        closed?;
        println!(
            "{} received, {} passed, {denied} denied",
            source.close().received,
            sent.written
        );
        Ok(code)
    })
}
