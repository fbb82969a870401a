//! 802.11 and the radio headers in front of it.

use super::NoKey;
use super::link::{Layer, byte, head};
use crate::LinkType;

/// Returns the layer after the header of `layer` (802.11 or one of its radio headers), and the
/// length of that header.
pub(super) fn behind(layer: Layer, data: &[u8]) -> Result<(Layer, usize), NoKey> {
    match layer {
        Layer::Wlan { padded } => mac(data, padded),
        Layer::Radiotap => radiotap(data),
        Layer::Prism => match head(data)? {
            // A Prism header has 144 bytes. If the first four are those of an AVS header, an AVS header is in its place.
            [0x80, 0x21, 0x10..=0x1f, _] => avs(data),
            _ => Ok((Layer::Wlan { padded: false }, 144)),
        },
        Layer::Avs => avs(data),
        _ => ppi(data),
    }
}

/// Reads an 802.11 MAC header (IEEE 802.11-2020, sections 9.2 and 9.3.2). LLC follows in a data frame that is neither empty,
/// encrypted nor a later fragment. Of an aggregate, only the first frame is read.
fn mac(data: &[u8], padded: bool) -> Result<(Layer, usize), NoKey> {
    const DATA: u8 = 0x08;
    const NO_DATA: u8 = 0x40;
    const QOS: u8 = 0x80;
    const BOTH_WAYS: u8 = 0x03;
    const PROTECTED: u8 = 0x40;
    const ORDER: u8 = 0x80;
    const AGGREGATE: u8 = 0x80;
    let [kind, flags] = head(data)?;
    if kind & 0x0f != DATA || kind & NO_DATA != 0 || flags & PROTECTED != 0 {
        return Err(NoKey::NotIp);
    }
    if byte(data, 22)? & 0x0f != 0 {
        return Err(NoKey::NotIp);
    }
    // With both directions set, the header has a fourth address.
    let mut header = if flags & BOTH_WAYS == BOTH_WAYS {
        30
    } else {
        24
    };
    let mut inside = 0;
    if kind & QOS != 0 {
        // The header of a frame in an aggregate: two addresses and a length.
        inside = if byte(data, header)? & AGGREGATE == 0 {
            0
        } else {
            14
        };
        header += if flags & ORDER == 0 { 2 } else { 6 };
    }
    if padded {
        header = header.next_multiple_of(4);
    }
    Ok((Layer::Llc, header + inside))
}

/// Reads a radiotap header (<https://www.radiotap.org>), all little-endian. Of its fields only the flags matter: one flag
/// says that the header of 802.11 is padded.
fn radiotap(data: &[u8]) -> Result<(Layer, usize), NoKey> {
    const TIMER: u32 = 1;
    const FLAGS: u32 = 2;
    const MORE: u32 = 0x8000_0000;
    const PADDED: u8 = 0x20;
    let [version, _, lo, hi, a, b, c, d] = head(data)?;
    let length = usize::from(u16::from_le_bytes([lo, hi]));
    if version != 0 || length < 8 {
        return Err(NoKey::Malformed);
    }
    let header = data.get(..length).ok_or(NoKey::Truncated)?;
    let present = u32::from_le_bytes([a, b, c, d]);
    // The fields begin after the presence words.
    let mut at = 4;
    while header
        .get(at..at + 4)
        .is_some_and(|word| u32::from(word[3]) << 24 & MORE != 0)
    {
        at += 4;
    }
    at += 4;
    if present & TIMER != 0 {
        at = at.next_multiple_of(8) + 8;
    }
    let padded = present & FLAGS != 0 && header.get(at).is_some_and(|flags| flags & PADDED != 0);
    Ok((Layer::Wlan { padded }, length))
}

/// Reads the AVS header of the linux-wlan project: a magic number and its length.
fn avs(data: &[u8]) -> Result<(Layer, usize), NoKey> {
    let [_, _, _, _, a, b, c, d] = head(data)?;
    match usize::try_from(u32::from_be_bytes([a, b, c, d])) {
        Ok(length @ 8..) => Ok((Layer::Wlan { padded: false }, length)),
        _ => Err(NoKey::Malformed),
    }
}

/// Reads a PPI header (specification of CACE, version 0): flags, length, link type, all little-endian.
fn ppi(data: &[u8]) -> Result<(Layer, usize), NoKey> {
    let [version, _, lo, hi, a, b, c, d] = head(data)?;
    let length = usize::from(u16::from_le_bytes([lo, hi]));
    if version != 0 || length < 8 {
        return Err(NoKey::Malformed);
    }
    let link = u16::try_from(u32::from_le_bytes([a, b, c, d]))
        .ok()
        .and_then(|link| Layer::of(LinkType(link)));
    Ok((link.ok_or(NoKey::NotIp)?, length))
}
