//! The rule by which a request of a controller is accepted, told once more: with SHA-256 and HMAC written out, and a map of sequence numbers.
//!
//! Nothing here comes from the crate under test but the changes of the lines, which other tests judge.

use std::collections::BTreeMap;
use std::time::Duration;
use weir_firewall::control::{Keys, Refusal, Request, Sequences, seal};
use weir_firewall::permissions::AddressChange;
use weir_testkit::Input;

const WINDOW: i128 = 30_000_000_000;

/// Constants of SHA-256, the first bits of the roots of primes: FIPS 180-4, sections 4.2.2 and 5.3.3.
pub struct Constants {
    state: Vec<u32>,
    k: Vec<u32>,
}

/// Finds the constants.
pub fn constants() -> Constants {
    let primes: Vec<u64> = (2..312u64)
        .filter(|n| (2..*n).all(|d| n % d != 0))
        .take(64)
        .collect();
    // Largest number whose power is at most the prime, times 2^32 to that power: the bits behind the point are kept.
    let root = |prime: u64, power: u32| -> u32 {
        let target = u128::from(prime) << (32 * power);
        let (mut low, mut high) = (0u128, 1u128 << 37);
        while high - low > 1 {
            let middle = (low + high) / 2;
            let too_large = middle.checked_pow(power).is_none_or(|value| value > target);
            *(if too_large { &mut high } else { &mut low }) = middle;
        }
        low as u32
    };
    let state = primes[..8].iter().map(|&prime| root(prime, 2)).collect();
    Constants {
        state,
        k: primes.iter().map(|&prime| root(prime, 3)).collect(),
    }
}

/// SHA-256, word by word: FIPS 180-4, sections 5 and 6.
pub fn sha256(Constants { state, k }: &Constants, message: &[u8]) -> [u8; 32] {
    let mut state = state.clone();
    let mut padded = message.to_vec();
    padded.push(0x80);
    while padded.len() % 64 != 56 {
        padded.push(0);
    }
    padded.extend((message.len() as u64 * 8).to_be_bytes());
    for block in padded.chunks(64) {
        let mut w: Vec<u32> = block
            .chunks(4)
            .map(|word| u32::from_be_bytes(word.try_into().unwrap()))
            .collect();
        for t in 16..64 {
            let (a, b) = (w[t - 15], w[t - 2]);
            let small0 = a.rotate_right(7) ^ a.rotate_right(18) ^ (a >> 3);
            let small1 = b.rotate_right(17) ^ b.rotate_right(19) ^ (b >> 10);
            w.push(
                small1
                    .wrapping_add(w[t - 7])
                    .wrapping_add(small0)
                    .wrapping_add(w[t - 16]),
            );
        }
        let mut v = state.clone();
        for t in 0..64 {
            let (a, e) = (v[0], v[4]);
            let large1 = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
            let choice = (e & v[5]) ^ (!e & v[6]);
            let first = v[7]
                .wrapping_add(large1)
                .wrapping_add(choice)
                .wrapping_add(k[t])
                .wrapping_add(w[t]);
            let large0 = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
            let majority = (a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]);
            v.rotate_right(1);
            v[4] = v[4].wrapping_add(first);
            v[0] = first.wrapping_add(large0).wrapping_add(majority);
        }
        state
            .iter_mut()
            .zip(v)
            .for_each(|(sum, word)| *sum = sum.wrapping_add(word));
    }
    state
        .iter()
        .flat_map(|word| word.to_be_bytes())
        .collect::<Vec<u8>>()
        .try_into()
        .unwrap()
}

/// HMAC: RFC 2104, section 2.
pub fn hmac(of: &Constants, key: &[u8], text: &[u8]) -> [u8; 32] {
    let mut block = if key.len() > 64 {
        sha256(of, key).to_vec()
    } else {
        key.to_vec()
    };
    block.resize(64, 0);
    let pad = |byte: u8| block.iter().map(|key| key ^ byte).collect::<Vec<u8>>();
    sha256(
        of,
        &[pad(0x5c), sha256(of, &[&pad(0x36), text].concat()).to_vec()].concat(),
    )
}

/// Bytes of a request by the table of the layout.
pub fn bytes(
    of: &Constants,
    key: &[u8],
    (id, sequence, time, lasts): (u16, u64, u64, u64),
    lines: &[u8],
) -> Vec<u8> {
    let numbers = [sequence, time, lasts].map(u64::to_be_bytes).concat();
    let signed = [b"WEIR\x01\x00", &id.to_be_bytes()[..], &numbers, lines].concat();
    let mac = hmac(of, key, &signed);
    [signed, mac.to_vec()].concat()
}

/// Texts of lines with the number of their changes; `None` for texts that no request may have.
fn lines(choices: &mut Input<'_>) -> (Vec<u8>, Option<usize>) {
    const TEXTS: [(&str, Option<usize>); 16] = [
        ("ban 192.0.2.7", Some(1)),
        ("ban 192.0.2.7\nunban 2001:db8::7\n", Some(2)),
        ("accept 10.0.0.5 from 10.1.0.0/16,10.3.0.0/16", Some(2)),
        ("refuse 10.0.0.5 from any\nban 10.0.0.0/24", Some(257)),
        ("ban 10.0.0.0/22", Some(1024)),
        ("ban 10.0.0.0/22\nban 10.1.0.0", None),
        ("ban ::/0", None),
        ("default refuse", None),
        ("ban 192.0.2.7\n\nban 192.0.2.8", None),
        ("ban", None),
        ("ban 300.0.0.1", None),
        ("refuse 10.0.0.5 from 2001:db8::1", None),
        ("ban 192.0.2.7 # text", None),
        ("", None),
        ("\n", None),
        ("ban 192.0.2.\u{0667}", None),
    ];
    match choices.below(20) {
        place @ 0..16 => (TEXTS[place].0.as_bytes().to_vec(), TEXTS[place].1),
        16 => (b"ban 192.0.2.7\xff".to_vec(), None),
        // The longest that fits, and a byte more.
        17 => (
            b"ban 192.0.2.17\n"
                .repeat(77)
                .iter()
                .copied()
                .chain(*b"ban 192.0.2.7")
                .collect(),
            Some(78),
        ),
        18 => (
            b"ban 192.0.2.17\n"
                .repeat(77)
                .iter()
                .copied()
                .chain(*b"ban 192.0.2.17")
                .collect(),
            None,
        ),
        _ => (
            [&b"ban 192.0.2."[..], &[choices.byte() | 0x80]].concat(),
            None,
        ),
    }
}

/// What a case came upon: accepted requests, and the refused ones by reason.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub accepted: u64,
    pub refused: BTreeMap<String, u64>,
}

/// Any choices: requests of several controllers, some of them damaged. The crate accepts what the rule accepts, for the same reasons.
pub fn judge(data: &[u8]) -> Seen {
    let (mut choices, of) = (Input(data), constants());
    let ids = [7, 0, u16::MAX];
    let secrets: Vec<Vec<u8>> = ids
        .iter()
        .map(|_| vec![choices.byte(); 16 + choices.below(80)])
        .collect();
    let line = |(id, secret): (&u16, &Vec<u8>)| {
        let hex: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{id} {hex}\n")
    };
    let keys = Keys::parse(&ids.iter().zip(&secrets).map(line).collect::<String>()).unwrap();
    let mut last: BTreeMap<u16, u64> = ids.iter().map(|&id| (id, 0)).collect();
    let sequences = Sequences::new(keys.iter().map(|_| 0));
    let (mut now, mut seen) = (1_700_000_000_000_000_000u64, Seen::default());
    for _ in 0..12 {
        now += choices.below(3) as u64 * 10_000_000_000;
        let who = choices.below(4);
        let id = *ids.get(who).unwrap_or(&8);
        let secret = &secrets[if choices.below(8) == 0 {
            choices.below(3)
        } else {
            who % 3
        }];
        let before = last.get(&id).copied().unwrap_or(0);
        let sequence = match choices.below(8) {
            0 => before,
            1 => before.saturating_sub(1),
            2 if before < 1000 => u64::MAX - choices.below(3) as u64,
            3 => choices.below(4) as u64,
            _ => before.saturating_add(1 + choices.below(5) as u64),
        };
        let skew = match choices.below(8) {
            0 => WINDOW,
            1 => -WINDOW,
            2 => WINDOW + 1,
            3 => -WINDOW - 1,
            _ => i128::from(choices.byte()) * 100_000_000 - 12_000_000_000,
        };
        let time = (i128::from(now) + skew) as u64;
        const YEARS: u64 = 100 * 365 * 24 * 3600 * 1_000_000_000;
        let lasts = [0, 0, 1, 600_000_000_000, YEARS, YEARS + 1][choices.below(6)];
        let (text, count) = lines(&mut choices);
        let mut packet = bytes(&of, secret, (id, sequence, time, lasts), &text);
        let damage = choices.below(8);
        let is_short = text.is_empty();
        match damage {
            0 => {
                let place = choices.number(2) % packet.len();
                packet[place] ^= 1 << choices.below(8);
            }
            1 => packet.truncate(packet.len() - 1 - choices.number(2) % packet.len()),
            2 => packet.push(choices.byte()),
            _ if damage == 3 && !is_short => packet = choices.0.iter().copied().take(200).collect(),
            _ => {}
        }
        let expected = naive(&of, &packet, now, (&ids, &secrets), &last, count);
        let opened = Request::open(&packet, now, &keys, &sequences);
        assert_eq!(
            opened.as_ref().map(|_| ()).map_err(|why| *why),
            expected,
            "{packet:02x?} at {now}"
        );
        match opened {
            Ok(request) => {
                assert_eq!(
                    (request.sequence, Some(request.changes.len())),
                    (sequence, count)
                );
                assert_eq!(
                    request.lasts,
                    (lasts > 0).then(|| Duration::from_nanos(lasts))
                );
                let text = std::str::from_utf8(&text).unwrap();
                let changes: Vec<AddressChange> = text
                    .lines()
                    .flat_map(|line| AddressChange::parse(line).unwrap())
                    .collect();
                assert_eq!(request.changes, changes);
                let (place, key) = keys.find(id).unwrap();
                assert_eq!(request.key, place);
                assert_eq!(
                    seal(key, sequence, time, request.lasts, text).unwrap(),
                    packet
                );
                if choices.below(4) > 0 {
                    assert!(sequences.raise(place, sequence) && !sequences.raise(place, sequence));
                    last.insert(id, sequence);
                }
                seen.accepted += 1;
            }
            Err(why) => *seen.refused.entry(why.name().to_owned()).or_default() += 1,
        }
    }
    seen
}

/// The rule, check by check; `count` is the number of changes of the lines, as long as these bytes are whole.
fn naive(
    of: &Constants,
    packet: &[u8],
    now: u64,
    (ids, secrets): (&[u16], &[Vec<u8>]),
    last: &BTreeMap<u16, u64>,
    count: Option<usize>,
) -> Result<(), Refusal> {
    if packet.len() < 65
        || packet.len() > 1232
        || &packet[..4] != b"WEIR"
        || packet[4] != 1
        || packet[5] != 0
    {
        return Err(Refusal::Malformed);
    }
    let number = |at: usize| {
        packet[at..at + 8]
            .iter()
            .fold(0u64, |number, &byte| number << 8 | u64::from(byte))
    };
    if number(24) > 100 * 365 * 24 * 3600 * 1_000_000_000 {
        return Err(Refusal::Malformed);
    }
    let id = u16::from(packet[6]) * 256 + u16::from(packet[7]);
    let Some(place) = ids.iter().position(|known| *known == id) else {
        return Err(Refusal::UnknownKey);
    };
    if (i128::from(number(16)) - i128::from(now)).abs() > WINDOW {
        return Err(Refusal::OutsideWindow);
    }
    if number(8) <= last[&id] {
        return Err(Refusal::Replayed);
    }
    let end = packet.len() - 32;
    if hmac(of, &secrets[place], &packet[..end]) != packet[end..] {
        return Err(Refusal::NotAuthentic);
    }
    count.map(|_| ()).ok_or(Refusal::Malformed)
}
