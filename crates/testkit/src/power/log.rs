//! The disk after the file: its contents, its log, and the images that a power cut may leave.

use crate::Random;
use std::collections::BTreeMap;

const PAGE: usize = 4096;

/// Unit that a disk writes as a whole, bytes.
pub(super) const SECTOR: usize = 512;

/// Contents of a disk: its pages that were ever written with anything but zeros.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Pages(BTreeMap<u64, Box<[u8]>>);

impl Pages {
    pub(super) fn read(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        let mut done = 0;
        while done < len {
            let at = offset + done as u64;
            let within = at as usize % PAGE;
            let part = (PAGE - within).min(len - done);
            if let Some(page) = self.0.get(&(at / PAGE as u64)) {
                bytes[done..done + part].copy_from_slice(&page[within..within + part]);
            }
            done += part;
        }
        bytes
    }

    fn write(&mut self, mut offset: u64, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let within = offset as usize % PAGE;
            let (part, rest) = bytes.split_at((PAGE - within).min(bytes.len()));
            let number = offset / PAGE as u64;
            if part.iter().any(|&byte| byte != 0) || self.0.contains_key(&number) {
                let page = self.0.entry(number).or_insert_with(|| vec![0; PAGE].into());
                page[within..within + part.len()].copy_from_slice(part);
            }
            offset += part.len() as u64;
            bytes = rest;
        }
    }
}

/// An entry of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Write { offset: u64, bytes: Box<[u8]> },
    Flush,
}

/// A disk with a volatile cache.
#[derive(Debug)]
pub(super) struct Disk {
    bytes: u64,
    /// Contents when the log began.
    base: Pages,
    /// Contents that reads see.
    now: Pages,
    log: Vec<Event>,
    /// Bytes of all writes of the log.
    logged: u64,
}

impl Disk {
    pub(super) fn new(bytes: u64, base: Pages) -> Self {
        Self {
            bytes,
            now: base.clone(),
            base,
            log: Vec::new(),
            logged: 0,
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    #[cfg(test)]
    pub(super) fn base(&self) -> &Pages {
        &self.base
    }

    pub(super) fn log(&self) -> &[Event] {
        &self.log
    }

    /// Forgets the log: what is on the disk now was always there.
    pub(super) fn begin(&mut self) {
        *self = Self::new(self.bytes, std::mem::take(&mut self.now));
    }

    pub(super) fn read(&self, offset: u64, len: usize) -> Vec<u8> {
        self.now
            .read(offset, len.min(self.bytes.saturating_sub(offset) as usize))
    }

    /// **Errors**: an error number. The log holds twice the bytes of the disk.
    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), i32> {
        self.logged += bytes.len() as u64;
        if offset
            .checked_add(bytes.len() as u64)
            .is_none_or(|end| end > self.bytes)
            || self.logged > 2 * self.bytes
        {
            return Err(libc::ENOSPC);
        }
        self.now.write(offset, bytes);
        self.log.push(Event::Write {
            offset,
            bytes: bytes.into(),
        });
        Ok(())
    }

    pub(super) fn flush(&mut self) {
        self.log.push(Event::Flush);
    }

    /// Contents that the disk may have when the power fails after the first `position` entries of
    /// the log.
    pub(super) fn cut(&self, seed: u64, position: usize) -> Pages {
        let log = &self.log[..position.min(self.log.len())];
        let flushed = log
            .iter()
            .rposition(|event| *event == Event::Flush)
            .unwrap_or(0);
        left(self.base.clone(), log, flushed, seed)
    }
}

/// Contents after the entries of `log`, of which those in front of entry `flushed` are durable.
///
/// Of each later write the disk may have kept nothing, everything, or some sectors, and it may have written them in any order.
/// How many writes are kept depends on the seed too, so that "none" and "all" occur.
pub(super) fn left(mut pages: Pages, log: &[Event], flushed: usize, seed: u64) -> Pages {
    let mut random = Random(seed);
    let (durable, cached) = log.split_at(flushed);
    let writes = |events: &[Event]| -> Vec<usize> {
        let is_write = |event: &Event| matches!(event, Event::Write { .. });
        events
            .iter()
            .enumerate()
            .filter(|(_, event)| is_write(event))
            .map(|(at, _)| at)
            .collect()
    };
    for event in durable {
        if let Event::Write { offset, bytes } = event {
            pages.write(*offset, bytes);
        }
    }
    let mut order = writes(cached);
    for at in (1..order.len()).rev() {
        order.swap(at, random.below(at + 1));
    }
    let kept_of_8 = [0, 2, 4, 6, 8][random.below(5)];
    for at in order {
        let Event::Write { offset, bytes } = &cached[at] else {
            continue;
        };
        let torn = random.below(4) == 0;
        let whole = random.below(8) < kept_of_8;
        for (number, sector) in bytes.chunks(SECTOR).enumerate() {
            if if torn {
                random.below(8) < kept_of_8
            } else {
                whole
            } {
                pages.write(offset + (number * SECTOR) as u64, sector);
            }
        }
    }
    pages
}
