//! A naive twin of the streams: it draws each value by the written formulas, one by one, and builds each frame from nothing, header by
//! header. Lengths and checksums are computed from the bytes.

use weir_generator::streams::{
    Frames, Kind, Layer, Order, Payload, Profile, SIZE_MIN, Set, Sizes, Stream, Traffic, Values,
    read_stamp,
};

/// Compares the first frames of the profile of a text, if it is right, with those of the twin.
pub fn compare_text(text: &str, packets: u64) {
    let Ok(mut profile) = Profile::read(text) else {
        return;
    };
    if profile.streams().iter().any(|stream| stream.zipf > 0.0) {
        // Only some of these tell the flow: see `flow_of`.
        return;
    }
    if matches!(profile.traffic, Traffic::Streams(_)) {
        profile.packets = Some(packets);
        compare(&profile, packets);
    }
}

/// Compares the first frames with those of the twin.
pub fn compare(profile: &Profile, packets: u64) {
    let mut frames = Frames::new(profile).expect("a profile was checked when it was read");
    let order = pattern(profile);
    let mut before = vec![0; profile.streams().len()];
    for n in 0..packets {
        let made = frames.next().expect("there are so many packets");
        let index = order[(n % order.len() as u64) as usize];
        assert_eq!(made.stream, index, "packet {n}");
        let (stream, number) = (&profile.streams()[index], before[index]);
        before[index] += 1;
        let wanted = frame(
            profile.seed,
            index,
            stream,
            number,
            made.frame,
            made.time_ns,
        );
        assert_eq!(
            made.frame, wanted,
            "packet {n}, {number} of stream {}",
            stream.name
        );
    }
}

fn splitmix(state: u64, index: u64) -> u64 {
    let mut z = state.wrapping_add(index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn hash(seed: u64, domain: u64, index: u64) -> u64 {
    splitmix(splitmix(seed, domain), index)
}

fn mix(x: u64) -> u64 {
    let x = x.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x ^ x >> 32
}

/// xoshiro256**, for the order of the streams.
fn pattern(profile: &Profile) -> Vec<usize> {
    let mut s: [u64; 4] = std::array::from_fn(|i| hash(profile.seed, 51, i as u64));
    let mut next = || {
        let result = s[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    };
    let mut order = Vec::new();
    for (i, stream) in profile.streams().iter().enumerate() {
        order.extend(vec![i; stream.weight as usize]);
    }
    for i in (1..order.len()).rev() {
        order.swap(i, ((u128::from(next()) * (i as u128 + 1)) >> 64) as usize);
    }
    order
}

/// Values of a packet: its number or that of its flow, and the word from which they are drawn.
struct Draws {
    own: (u64, u64),
    flow: (u64, u64),
}

impl Draws {
    fn of(stream: &Stream, key: u64, number: u64, seen_flow: Option<u64>) -> Self {
        let word = mix(number.wrapping_add(key));
        let flow = match stream.flows {
            None => {
                return Self {
                    own: (number, word),
                    flow: (number, word),
                };
            }
            Some(flows) if stream.zipf == 0.0 => {
                ((word.wrapping_mul(0xd6e8_feb8_6659_fd93) >> 32) * flows) >> 32
            }
            // The law has a test of its own; here the flow is taken as it is.
            Some(_) => seen_flow.expect("the caller reads the flow from the frame"),
        };
        let flow_word = mix(flow.wrapping_add(key ^ 0xa076_1d64_78bd_642f));
        Self {
            own: (number, word),
            flow: (flow, flow_word),
        }
    }

    /// The value of the field of index `i`.
    fn value(&self, values: &Values, key: u64, i: usize) -> u128 {
        let (number, word) = if values.each { self.own } else { self.flow };
        let salt = hash(key, 49, i as u64);
        let random = |part: u64| u128::from(word.wrapping_mul(hash(salt, 49, part) | 1) >> 32);
        let at = |count: u128| match values.order {
            Order::Random => (random(0) * count) >> 32,
            Order::Count => u128::from(number) % count,
        };
        match &values.set {
            Set::Constant(value) => *value,
            Set::Range(first, last) => first + at(last - first + 1),
            Set::Masked(value, free) => {
                let bits = (0..4).map(|part| random(part) << (32 * part)).sum::<u128>();
                value | bits & free
            }
            Set::List(list) => list[at(list.len() as u128) as usize],
        }
    }
}

/// Builds a frame. What only tables of the generator know (the length from a distribution, random bytes) is taken from the frame that was
/// made, and checked against what is possible.
fn frame(
    seed: u64,
    index: usize,
    stream: &Stream,
    number: u64,
    seen: &[u8],
    time_ns: i64,
) -> Vec<u8> {
    let key = hash(seed, 48, index as u64);
    let headers = stream.stack.len();
    let stamp = match stream.payload {
        Payload::Stamp => 24,
        Payload::Trip(_) => 48,
        _ => 0,
    };
    let least = (headers + stamp).max(SIZE_MIN);
    let len = match &stream.sizes {
        Sizes::Uniform(first, last) if first == last => usize::from(*first).max(least),
        sizes => {
            let is_possible = |len: usize| match sizes {
                Sizes::Mwn => len <= 1514,
                Sizes::Uniform(first, last) => {
                    (usize::from(*first)..=usize::from(*last)).contains(&len)
                }
                Sizes::List(rows) => rows.iter().any(|row| usize::from(row.0) == len),
            };
            assert!(
                seen.len() >= least && (is_possible(seen.len()) || seen.len() == least),
                "{} bytes",
                seen.len()
            );
            seen.len()
        }
    };
    let flow = stream
        .flows
        .filter(|_| stream.zipf > 0.0)
        .map(|_| flow_of(stream, seen));
    let draws = Draws::of(stream, key, number, flow);
    let mut bytes = vec![0; len];
    headers_of(stream, &mut bytes);
    match &stream.payload {
        Payload::Fixed(contents) => {
            let end = len.min(headers + contents.len());
            bytes[headers..end].copy_from_slice(&contents[..end - headers]);
        }
        Payload::Random => bytes[headers..].copy_from_slice(&seen[headers..]),
        Payload::Stamp | Payload::Trip(_) => {
            bytes[headers..headers + 4].copy_from_slice(b"weir");
            bytes[headers + 4..headers + 8].copy_from_slice(&(index as u32).to_be_bytes());
            bytes[headers + 8..headers + 16].copy_from_slice(&number.to_be_bytes());
            bytes[headers + 16..headers + 24].copy_from_slice(&time_ns.to_be_bytes());
            assert_eq!(
                read_stamp(&seen[headers..]),
                Some((index as u32, number, time_ns))
            );
            if let Payload::Trip(run) = stream.payload {
                bytes[headers + 24..headers + 32].copy_from_slice(&run.to_be_bytes());
            }
        }
        Payload::None => {}
    }
    for (i, (name, values)) in stream.fields.iter().enumerate() {
        let place = stream.stack.field(name).expect("fields were checked");
        set_bits(
            &mut bytes,
            place.at,
            place.width,
            place.shift,
            place.kind.bits(),
            draws.value(values, key, i),
        );
    }
    finish(stream, &mut bytes);
    bytes
}

/// Flow of a frame whose profile counts one of its fields by flow, from zero on.
fn flow_of(stream: &Stream, seen: &[u8]) -> u64 {
    let counted = |row: &&(String, Values)| {
        row.1.order == Order::Count && matches!(row.1.set, Set::Range(_, _)) && !row.1.each
    };
    let (name, values) = stream
        .fields
        .iter()
        .find(counted)
        .expect("a field counts the flows");
    let place = stream.stack.field(name).expect("fields were checked");
    assert!(matches!(place.kind, Kind::Ipv4) && place.width == 4);
    let Set::Range(first, _) = values.set else {
        unreachable!()
    };
    let seen = u32::from_be_bytes(seen[place.at..place.at + 4].try_into().unwrap());
    (u128::from(seen) - first) as u64
}

fn set_bits(bytes: &mut [u8], at: usize, width: usize, shift: u32, bits: u32, value: u128) {
    for bit in 0..bits {
        let position = (width * 8) as u32 - 1 - (bit + shift);
        let byte = &mut bytes[at + position as usize / 8];
        let mask = 0x80 >> (position % 8);
        *byte = if value >> bit & 1 == 1 {
            *byte | mask
        } else {
            *byte & !mask
        };
    }
}

/// Headers with the usual values, written out.
fn headers_of(stream: &Stream, bytes: &mut [u8]) {
    let layers = stream.stack.layers();
    for (i, &(layer, at)) in layers.iter().enumerate() {
        let next = layers.get(i + 1).map(|row| row.0);
        let after = layers.get(i + 2).map(|row| row.0);
        let ethertype: &[u8] = match next {
            Some(Layer::Vlan) if after == Some(Layer::Vlan) => &[0x88, 0xa8],
            Some(Layer::Vlan) => &[0x81, 0],
            Some(Layer::Ipv4) => &[8, 0],
            Some(Layer::Ipv6) => &[0x86, 0xdd],
            _ => &[8, 6],
        };
        let protocol = match next {
            Some(Layer::Tcp) => 6,
            Some(Layer::Udp) => 17,
            Some(Layer::Icmp) => 1,
            _ => 58,
        };
        let mut put = |offset: usize, what: &[u8]| {
            bytes[at + offset..at + offset + what.len()].copy_from_slice(what)
        };
        match layer {
            Layer::Eth => {
                put(
                    0,
                    if next == Some(Layer::Arp) {
                        &[255; 6]
                    } else {
                        &[2, 0, 0, 0, 0, 2]
                    },
                );
                put(6, &[2, 0, 0, 0, 0, 1]);
                put(12, ethertype);
            }
            Layer::Vlan => {
                put(0, &[0, 1]);
                put(2, ethertype);
            }
            Layer::Ipv4 => {
                put(0, &[0x45]);
                put(6, &[0x40, 0, 64, protocol]);
                put(12, &[10, 0, 0, 1, 198, 18, 0, 1]);
            }
            Layer::Ipv6 => {
                put(0, &[0x60]);
                put(6, &[protocol, 64]);
                put(8, &[0x20, 1, 0xd, 0xb8]);
                put(23, &[1]);
                put(24, &[0x20, 1, 0, 2]);
                put(39, &[1]);
            }
            Layer::Udp if next == Some(Layer::Vxlan) => put(0, &[0xc0, 0, 0x12, 0xb5]),
            Layer::Udp => put(0, &[4, 0, 0, 9]),
            Layer::Tcp => put(
                0,
                &[4, 0, 0, 80, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 0xff, 0xff],
            ),
            Layer::Icmp => put(0, &[8, 0, 0, 0, 0, 1, 0, 1]),
            Layer::Icmp6 => put(0, &[128, 0, 0, 0, 0, 1, 0, 1]),
            Layer::Arp => {
                put(0, &[0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 10, 0, 0, 1]);
                put(24, &[10, 255, 255, 254]);
            }
            Layer::Vxlan => put(0, &[8, 0, 0, 0, 0, 0, 1, 0]),
        }
    }
}

/// Writes lengths, and then checksums over all the bytes, from the inside out.
fn finish(stream: &Stream, bytes: &mut [u8]) {
    let layers = stream.stack.layers();
    let end = if stream.payload == Payload::None {
        stream.stack.len()
    } else {
        bytes.len()
    };
    for &(layer, at) in layers {
        let (field, length) = match layer {
            Layer::Ipv4 => (at + 2, end - at),
            Layer::Ipv6 => (at + 4, end - at - 40),
            Layer::Udp => (at + 4, end - at),
            _ => continue,
        };
        bytes[field..field + 2].copy_from_slice(&(length as u16).to_be_bytes());
    }
    if !stream.has_sums {
        return;
    }
    for (i, &(layer, at)) in layers.iter().enumerate().rev() {
        let is_outer = layers.get(i + 1).is_some_and(|next| next.0 == Layer::Vxlan);
        let field = match layer {
            Layer::Ipv4 => at + 10,
            Layer::Udp if !is_outer => at + 6,
            Layer::Tcp => at + 16,
            Layer::Icmp | Layer::Icmp6 => at + 2,
            _ => continue,
        };
        let mut summed = Vec::new();
        if matches!(layer, Layer::Udp | Layer::Tcp | Layer::Icmp6) {
            let (network, ip) = layers[i - 1];
            let length = ((end - at) as u32).to_be_bytes();
            let (addresses, protocol) = match network {
                Layer::Ipv4 => (ip + 12..ip + 20, bytes[ip + 9]),
                _ => (ip + 8..ip + 40, bytes[ip + 6]),
            };
            summed.extend(&bytes[addresses]);
            summed.extend(length);
            summed.extend([0, 0, 0, protocol]);
        }
        summed.extend(match layer {
            Layer::Ipv4 => &bytes[at..at + 20],
            _ => &bytes[at..end],
        });
        let mut sum: u32 = summed
            .chunks(2)
            .map(|word| u32::from(word[0]) << 8 | word.get(1).map_or(0, |&low| u32::from(low)))
            .sum();
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        let mut checksum = !(sum as u16);
        if layer == Layer::Udp && checksum == 0 {
            checksum = 0xffff;
        }
        bytes[field..field + 2].copy_from_slice(&checksum.to_be_bytes());
    }
}
