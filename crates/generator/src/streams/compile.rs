//! A stream as a template and a list of operations on it.
//!
//! Each operation computes a column of values for a batch of frames, writes them into their containers, and adds them to the sums of
//! the checksums that cover them. What does not vary is in the template, and in the first value of the sums: so a checksum costs a
//! fold, whatever the length of the frame (RFC 1071, RFC 1624).

use super::sizes::Draw as Lengths;
use super::stack::{Layer, Place, Stack};
use super::values::{Order, Set, Values};
use super::{Payload, Stream};
use crate::random::hash;

/// Domain of the seed for the factors of the fields.
const FIELDS: u64 = 49;

/// Computes a value.
#[derive(Clone, Debug)]
pub(crate) enum Draw {
    /// `first + count mod span`.
    Count { first: u32, span: u64 },
    /// `first + random * span`.
    Random { first: u32, span: u64, factor: u64 },
    /// Random bits under a mask.
    Masked { value: u32, free: u32, factor: u64 },
    /// Element of a list, counted or drawn.
    List {
        values: Box<[u32]>,
        factor: Option<u64>,
    },
    /// Length of the frame less this.
    Length(u32),
    /// High or low half of the packet's number.
    Number { high: bool },
}

/// A value of each frame.
#[derive(Clone, Debug)]
pub(crate) struct Op {
    pub(crate) draw: Draw,
    /// Whether it changes with each packet though the stream has flows.
    pub(crate) each: bool,
    /// First byte and bytes (1, 2 or 4) of the container; `None` if the value is part of sums only.
    pub(crate) store: Option<(usize, usize)>,
    pub(crate) shift: u32,
    /// Bits of the container that are the value's.
    mask: u32,
    /// The other bits of the container.
    pub(crate) rest: u32,
    /// Sums that have the container, and the bits by which it is shifted there.
    pub(crate) sums: Vec<(usize, u32)>,
}

/// A checksum of the frame.
#[derive(Clone, Debug)]
pub(crate) struct Checksum {
    pub(crate) at: usize,
    /// Sum of what does not vary.
    pub(crate) base: u64,
    /// Whether it has the payload.
    pub(crate) with_payload: bool,
    /// Whether 0 is sent as all ones (RFC 768, RFC 8200 section 8.1).
    pub(crate) never_zero: bool,
    /// Bytes that it sums up.
    ranges: Vec<(usize, usize)>,
    /// The byte with the protocol, which the pseudo header has as a word, and the first byte of the transport, whose length it has.
    pseudo: Option<(usize, usize)>,
}

/// A stream that is ready to be made.
#[derive(Clone, Debug)]
pub(crate) struct Compiled {
    /// The longest frame.
    pub(crate) template: Vec<u8>,
    pub(crate) ops: Vec<Op>,
    pub(crate) sums: Vec<Checksum>,
    pub(crate) lengths: Lengths,
    /// First byte of the payload.
    pub(crate) payload_at: usize,
    /// Sum of the first bytes of the payload, by their number; empty if it is all zeros, or as long in all frames.
    pub(crate) payload_sums: Vec<u32>,
}

impl Compiled {
    /// Prepares the stream of this index and key. **Errors**: what is wrong, and what would be right.
    pub(crate) fn new(stream: &Stream, index: usize, key: u64) -> Result<Self, String> {
        let stack = &stream.stack;
        let headers = stack.len();
        let least = headers + stream.payload.least();
        let lengths = Lengths::new(&stream.sizes, least.max(super::SIZE_MIN));
        let longest = lengths.longest();
        let mut template = stack.headers();
        if let Payload::Fixed(bytes) = &stream.payload {
            template.extend(&bytes[..bytes.len().min(longest - headers)]);
        }
        template.resize(longest, 0);
        if stream.payload.is_stamped() {
            template[headers..headers + 4].copy_from_slice(&super::MAGIC);
            template[headers + 4..headers + 8].copy_from_slice(&(index as u32).to_be_bytes());
        }
        if let Payload::Trip(run) = stream.payload {
            let at = headers + super::STAMP;
            template[at..at + 8].copy_from_slice(&run.to_be_bytes());
        }
        let mut made = Self {
            sums: match (stream.has_sums, &stream.payload) {
                (false, _) => Vec::new(),
                (true, Payload::None) => checksums(stack, headers),
                (true, _) => checksums(stack, longest),
            },
            template,
            ops: Vec::new(),
            lengths,
            payload_at: headers,
            payload_sums: Vec::new(),
        };
        made.lengths_of(stack, stream);
        made.fields(stack, stream, key)?;
        if stream.payload.is_stamped() {
            for (at, draw) in [
                (headers + 8, Draw::Number { high: true }),
                (headers + 12, Draw::Number { high: false }),
            ] {
                made.push(draw, true, Some((at, 4)), (0, u32::MAX));
            }
        }
        made.settle(stream);
        Ok(made)
    }

    /// Adds a value that varies.
    fn push(
        &mut self,
        draw: Draw,
        each: bool,
        store: Option<(usize, usize)>,
        (shift, mask): (u32, u32),
    ) {
        self.ops.push(Op {
            draw,
            each,
            store,
            shift,
            mask,
            rest: 0,
            sums: Vec::new(),
        });
    }

    /// Writes the length fields, or lets them vary.
    fn lengths_of(&mut self, stack: &Stack, stream: &Stream) {
        let fixed = match (&stream.payload, &self.lengths) {
            // The rest of the frame is padding.
            (Payload::None, _) => Some(stack.len()),
            (_, Lengths::Fixed(len)) => Some(*len),
            _ => None,
        };
        for &(layer, at) in stack.layers() {
            let (field, less) = match layer {
                Layer::Ipv4 => (at + 2, at),
                Layer::Ipv6 => (at + 4, at + 40),
                Layer::Udp => (at + 4, at),
                _ => continue,
            };
            match fixed {
                Some(len) => {
                    let length = (len - less) as u16;
                    self.template[field..field + 2].copy_from_slice(&length.to_be_bytes());
                }
                None => self.push(
                    Draw::Length(less as u32),
                    true,
                    Some((field, 2)),
                    (0, 0xffff),
                ),
            }
        }
        // The pseudo header has the length of the transport (RFC 9293 section 3.1, RFC 8200 section 8.1).
        for i in 0..self.sums.len() {
            let Some((_, transport)) = self.sums[i].pseudo else {
                continue;
            };
            match fixed {
                Some(len) => self.sums[i].base += (len - transport) as u64,
                None => {
                    self.push(Draw::Length(transport as u32), true, None, (0, u32::MAX));
                    let op = self.ops.last_mut().expect("pushed just now");
                    op.sums.push((i, 0));
                }
            }
        }
    }

    /// Writes the fields that are constant, and lets the others vary.
    fn fields(&mut self, stack: &Stack, stream: &Stream, key: u64) -> Result<(), String> {
        let mut placed = Vec::new();
        for (name, values) in &stream.fields {
            let place = stack.field(name).map_err(|why| format!("{name}: {why}"))?;
            self.check(&place, stack, stream)
                .map_err(|why| format!("{name}: {why}"))?;
            placed.push((name, place, values));
        }
        for (_, place, values) in &placed {
            if let Set::Constant(value) = values.set {
                self.write(place, value);
            }
        }
        let mut taken: Vec<(usize, usize, &String)> = Vec::new();
        for (i, (name, place, values)) in placed.into_iter().enumerate() {
            if let Set::Constant(_) = values.set {
                continue;
            }
            let (from, to) = (place.at, place.at + place.width);
            if let Some(other) = taken.iter().find(|other| from < other.1 && other.0 < to) {
                return Err(format!(
                    "{name} and {} share a byte, and one of them can vary: make the other constant",
                    other.2
                ));
            }
            taken.push((from, to, name));
            self.vary(&place, values, hash(key, FIELDS, i as u64));
        }
        Ok(())
    }

    /// Whether a field may be set here.
    fn check(&self, place: &Place, stack: &Stack, stream: &Stream) -> Result<(), String> {
        let end = place.at + place.width;
        let shortest = self.lengths.shortest();
        if end > shortest {
            return Err(format!(
                "the shortest frame has {shortest} bytes, and this field ends at byte {end}"
            ));
        }
        if end > stack.len() && !matches!(stream.payload, Payload::Fixed(_) | Payload::None) {
            return Err("the payload of this stream has contents of its own".to_owned());
        }
        let overlaps = |at: usize, len: usize| place.at < at + len && at < end;
        if self.sums.iter().any(|sum| overlaps(sum.at, 2)) {
            return Err("a checksum is there: checksums = \"none\" leaves it to you".to_owned());
        }
        let lengths = stack
            .layers()
            .iter()
            .filter_map(|&(layer, at)| match layer {
                Layer::Ipv4 => Some(at + 2),
                Layer::Ipv6 | Layer::Udp => Some(at + 4),
                _ => None,
            });
        for at in lengths {
            if overlaps(at, 2) {
                return Err("a length is there, which follows from the size".to_owned());
            }
        }
        let reaches =
            |from: usize, to: usize| overlaps(from, to - from) && !(from <= place.at && end <= to);
        let in_part = |sum: &Checksum| {
            let mut ranges = sum.ranges.iter();
            ranges.any(|&(from, to)| reaches(from, to))
                || sum
                    .pseudo
                    .is_some_and(|(protocol, _)| overlaps(protocol, 1) && place.width > 1)
        };
        if self.sums.iter().any(in_part) {
            return Err("these bytes are partly in a checksum: set them one by one".to_owned());
        }
        Ok(())
    }

    /// Writes a value into its bits of the template.
    fn write(&mut self, place: &Place, value: u128) {
        let bits = super::values::ones(place.kind.bits());
        let bytes = &mut self.template[place.at..place.at + place.width];
        let old = bytes
            .iter()
            .fold(0, |old, &byte| old << 8 | u128::from(byte));
        let new = old & !(bits << place.shift) | (value & bits) << place.shift;
        for (i, byte) in bytes.iter_mut().rev().enumerate() {
            *byte = (new >> (8 * i)) as u8;
        }
    }

    /// Lets a field vary: containers of more than four bytes in parts.
    fn vary(&mut self, place: &Place, values: &Values, salt: u64) {
        let mut end = place.at + place.width;
        let mut part = 0;
        while end > place.at {
            let width = match end - place.at {
                width @ (1 | 2 | 4) => width,
                _ => 4,
            };
            let low = |value: u128| (value >> (32 * part)) as u32;
            // Parts of a list belong together, others are drawn apart.
            let factor = |part: u64| hash(salt, FIELDS, part) | 1;
            let is_random = values.order == Order::Random;
            let draw = match &values.set {
                Set::Constant(_) => unreachable!("constants are in the template"),
                &Set::Range(first, last) => {
                    let (first, span) =
                        (low(first), u64::from(low(last)) + 1 - u64::from(low(first)));
                    match is_random {
                        _ if part > 0 => Draw::Count { first, span: 1 },
                        true => Draw::Random {
                            first,
                            span,
                            factor: factor(0),
                        },
                        false => Draw::Count { first, span },
                    }
                }
                &Set::Masked(value, free) => Draw::Masked {
                    value: low(value),
                    free: low(free),
                    factor: factor(part),
                },
                Set::List(list) => Draw::List {
                    values: list.iter().map(|&value| low(value)).collect(),
                    factor: is_random.then(|| factor(0)),
                },
            };
            match draw.constant() {
                // The other parts of a range, or of an address under a mask.
                Some(value) if place.width > 4 => {
                    let kind = super::values::Kind::Number(8 * width as u32);
                    let part = Place {
                        at: end - width,
                        width,
                        shift: 0,
                        kind,
                    };
                    self.write(&part, value.into());
                }
                _ => {
                    let bits = place.kind.bits().min(8 * width as u32);
                    let mask = (super::values::ones(bits) << place.shift) as u32;
                    self.push(
                        draw,
                        values.each,
                        Some((end - width, width)),
                        (place.shift, mask),
                    );
                }
            }
            end -= width;
            part += 1;
        }
    }

    /// Takes what varies out of the template, and sums up the rest.
    fn settle(&mut self, stream: &Stream) {
        for op in &mut self.ops {
            let Some((at, width)) = op.store else {
                continue;
            };
            let bytes = &mut self.template[at..at + width];
            op.rest = bytes
                .iter()
                .fold(0, |rest, &byte| rest << 8 | u32::from(byte))
                & !op.mask;
            bytes.fill(0);
        }
        let varies = !matches!(self.lengths, Lengths::Fixed(_));
        let payload = &self.template[self.payload_at..];
        if varies && stream.payload != Payload::None && payload.iter().any(|&byte| byte != 0) {
            self.payload_sums = (0..=payload.len())
                .scan(0, |sum, len| {
                    // An odd byte is padded with 0; the next one takes the place of the padding.
                    *sum += match len {
                        0 => 0,
                        len => u32::from(payload[len - 1]) << (8 * (len & 1)),
                    };
                    Some(*sum)
                })
                .collect();
        }
        for (i, sum) in self.sums.iter_mut().enumerate() {
            for &(from, to) in &sum.ranges {
                let to = if varies { to.min(self.payload_at) } else { to };
                sum.base += sum_of(&self.template[from..to]);
            }
            sum.base += sum
                .pseudo
                .map_or(0, |(protocol, _)| u64::from(self.template[protocol]));
            for op in &mut self.ops {
                let Some((at, width)) = op.store else {
                    continue;
                };
                let covers = |&(from, to): &(usize, usize)| from <= at && at + width <= to;
                if sum.pseudo.is_some_and(|(protocol, _)| protocol == at) {
                    op.sums.push((i, 0));
                } else if sum.ranges.iter().any(covers) {
                    op.sums.push((i, 8 * ((at + width) as u32 & 1)));
                }
            }
        }
    }
}

/// The checksums of the layers; what they sum up ends at `end`.
fn checksums(stack: &Stack, end: usize) -> Vec<Checksum> {
    let mut sums = Vec::new();
    let mut network = None;
    for (i, &(layer, at)) in stack.layers().iter().enumerate() {
        let is_outer = stack
            .layers()
            .get(i + 1)
            .is_some_and(|next| next.0 == Layer::Vxlan);
        let place = match layer {
            Layer::Ipv4 | Layer::Ipv6 => {
                network = Some((layer, at));
                at + 10
            }
            Layer::Udp if !is_outer => at + 6,
            Layer::Tcp => at + 16,
            Layer::Icmp | Layer::Icmp6 => at + 2,
            _ => continue,
        };
        let mut sum = Checksum {
            at: place,
            base: 0,
            with_payload: true,
            never_zero: layer == Layer::Udp,
            ranges: vec![(at, end)],
            pseudo: None,
        };
        match (layer, network) {
            (Layer::Ipv6, _) => continue,
            (Layer::Ipv4, _) => {
                sum.with_payload = false;
                sum.ranges = vec![(at, at + 20)];
            }
            (Layer::Icmp, _) => {}
            (_, Some((Layer::Ipv4, ip))) => {
                sum.ranges.push((ip + 12, ip + 20));
                sum.pseudo = Some((ip + 9, at));
            }
            (_, Some((_, ip))) => {
                sum.ranges.push((ip + 8, ip + 40));
                sum.pseudo = Some((ip + 6, at));
            }
            (_, None) => {}
        }
        sums.push(sum);
    }
    sums
}

/// Sum of the 16-bit words of bytes that begin at an even place, an odd byte padded with 0.
fn sum_of(bytes: &[u8]) -> u64 {
    let words = bytes.chunks(2);
    words
        .map(|word| u64::from(word[0]) << 8 | u64::from(*word.get(1).unwrap_or(&0)))
        .sum()
}

impl Draw {
    /// The value, if it is the same for all frames.
    fn constant(&self) -> Option<u32> {
        match *self {
            Draw::Count { first, span: 1 } | Draw::Random { first, span: 1, .. } => Some(first),
            Draw::Masked { value, free: 0, .. } => Some(value),
            _ => None,
        }
    }
}
