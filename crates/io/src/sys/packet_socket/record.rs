//! Finishing of the records of a block before they are handed on: facts that the kernel stores next
//! to a frame go back into it.
//!
//! ```text
//! struct sockaddr_ll of linux/if_packet.h, behind the 48 bytes of a record's header
//! 48 family (u16)  50 protocol (big-endian u16)  52 interface  56 ARPHRD_ (u16)  58 direction (u8)  59 address length (u8)  60 address
//!
//! LINUX_SLL2 (https://www.tcpdump.org/linktypes/LINKTYPE_LINUX_SLL2.html), all big-endian
//!  0 protocol (u16)  2 zero (u16)  4 interface (u32)  8 ARPHRD_ (u16)  10 direction (u8)  11 address length (u8)  12 address
//! ```

use crate::live::Marks;

// `struct tpacket3_hdr`.
pub(super) const NEXT: usize = 0;
pub(super) const CAPTURED: usize = 12;
pub(super) const WIRE: usize = 16;
pub(super) const FLAGS: usize = 20;
pub(super) const FRAME: usize = 24;
const NETWORK: usize = 26;
const TAG: usize = 32;
const TAG_PROTOCOL: usize = 36;
const ADDRESS: usize = 48;
/// Bytes of the record header and of the `sockaddr_ll` after it; the bytes between them and the frame are unused.
pub(super) const RECORD_HEADER: usize = ADDRESS + 20;

/// Bytes of a VLAN tag; [`ADDRESSES`] are the bytes of the addresses before it.
const VLAN: usize = 4;
pub(super) const ADDRESSES: usize = 12;
const ETHERTYPE_VLAN: u16 = 0x8100;

/// Least number in the type field that is an Ethernet type and not a length.
const LEAST_TYPE: u16 = 0x600;

/// Bytes of a LINUX_SLL2 header.
pub(super) const COOKED: usize = 20;

/// Room in front of each frame for the bytes that are put back.
pub(super) const RESERVE: usize = COOKED + VLAN;

/// `TP_STATUS_GSO_TCP` of linux/if_packet.h, since Linux 6.5.
const TP_STATUS_GSO_TCP: u32 = 1 << 8;

/// Settings of the finishing of records.
#[derive(Clone, Copy, Debug)]
pub(super) struct Finish {
    /// Whether a LINUX_SLL2 header replaces the link header, of any kind.
    pub cooked: bool,
    /// Bytes of a packet that are kept (snap length).
    pub snaplen: u32,
    /// Bytes of a packet that the kernel copies into the ring.
    pub copied: u32,
    /// Length of the longest frame that fits the medium, tags included; the largest number if it is not known.
    pub largest: u32,
}

impl Finish {
    /// Puts VLAN tags back to their place on the wire, and counts packets that differ from the
    /// packets on the wire. (The kernel removes the outermost tag and stores it next to the frame.)
    ///
    /// The function ends with the last of `packets`, at a record that leads out of `records`, or after `enough` bytes. Returns
    /// the numbers of bytes and packets finished.
    ///
    /// **Cost**: one read of each record's header, which the reader needs next anyway; for a tagged or cooked packet, a move of
    /// some 20 bytes.
    pub(super) fn records(
        &self,
        records: &mut [u8],
        packets: u32,
        enough: usize,
        marks: &mut Marks,
    ) -> (usize, u32) {
        /// Distance of the prefetch in records, if all are as long as this one. Prefetching pays because the kernel wrote the
        /// records on another processor.
        const AHEAD: usize = 8;
        let (mut at, mut done) = (0, 0);
        while done < packets && at < enough {
            let rest = &mut records[at..];
            if rest.len() < RECORD_HEADER {
                return (records.len(), done);
            }
            self.record(rest, marks);
            done += 1;
            let next = word(rest, NEXT) as usize;
            if next == 0 || next > rest.len() {
                return (records.len(), done);
            }
            weir_memory::prefetch(rest, next * AHEAD);
            weir_memory::prefetch(rest, next * AHEAD + LINE);
            at += next;
        }
        (at, done)
    }

    fn record(&self, record: &mut [u8], marks: &mut Marks) {
        let flags = word(record, FLAGS);
        if flags & libc::TP_STATUS_CSUMNOTREADY != 0 {
            marks.unfinished_checksums += 1;
        }
        if flags & TP_STATUS_GSO_TCP != 0 || word(record, WIRE) > self.largest {
            marks.large += 1;
        }
        if word(record, CAPTURED) < word(record, WIRE).min(self.copied) {
            marks.cut += 1;
        }
        if self.cooked {
            cook(record);
        } else if flags & libc::TP_STATUS_VLAN_VALID != 0 {
            put_tag_back(record);
        }
        if word(record, CAPTURED) > self.snaplen {
            // The bytes that were put back count towards the snap length.
            set_word(record, CAPTURED, self.snaplen);
        }
    }
}

/// Bytes of a cache line.
const LINE: usize = 64;

/// Returns the tag that the kernel removed, as it was on the wire.
fn tag_of(record: &[u8]) -> Option<[u8; VLAN]> {
    let flags = word(record, FLAGS);
    if flags & libc::TP_STATUS_VLAN_VALID == 0 {
        return None;
    }
    let known = flags & libc::TP_STATUS_VLAN_TPID_VALID != 0;
    let protocol = if known {
        half(record, TAG_PROTOCOL)
    } else {
        ETHERTYPE_VLAN
    };
    let [a, b] = protocol.to_be_bytes();
    let [c, d] = (word(record, TAG) as u16).to_be_bytes();
    Some([a, b, c, d])
}

fn put_tag_back(record: &mut [u8]) {
    let frame = usize::from(half(record, FRAME));
    // A frame too short for addresses has no tag.
    if word(record, CAPTURED) < ADDRESSES as u32 || !shift(record, VLAN as isize) {
        return;
    }
    let tag = tag_of(record).expect("the caller saw its flag");
    let begin = frame - VLAN;
    record.copy_within(frame..frame + ADDRESSES, begin);
    record[begin + ADDRESSES..frame + ADDRESSES].copy_from_slice(&tag);
    let flags = word(record, FLAGS);
    set_word(record, FLAGS, flags & !libc::TP_STATUS_VLAN_VALID);
}

/// Replaces the link header by a LINUX_SLL2 header. VLAN tags follow it as they follow the addresses of Ethernet. (libpcap 1.10
/// omits the outermost tag.)
///
/// The kernel could remove the link header itself (SOCK_DGRAM), but would remove tags, or the type that announces them, with
/// it. The replacement is therefore done here.
fn cook(record: &mut [u8]) {
    let frame = usize::from(half(record, FRAME));
    let captured = word(record, CAPTURED) as usize;
    if frame < RECORD_HEADER || frame + captured > record.len() {
        return;
    }
    let mut header = [0; COOKED + VLAN];
    header[..2].copy_from_slice(&record[ADDRESS + 2..ADDRESS + 4]);
    header[4..8].copy_from_slice(&word(record, ADDRESS + 4).to_be_bytes());
    header[8..10].copy_from_slice(&half(record, ADDRESS + 8).to_be_bytes());
    header[10..12].copy_from_slice(&record[ADDRESS + 10..ADDRESS + 12]);
    // The kernel does not clear the bytes after a short address.
    let address = usize::from(header[11]).min(8);
    header[12..12 + address].copy_from_slice(&record[ADDRESS + 12..ADDRESS + 12 + address]);
    let link = match (
        half(record, ADDRESS + 8),
        record[frame..frame + captured].first_chunk(),
    ) {
        (
            libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK,
            Some([_, _, _, _, _, _, _, _, _, _, _, _, a, b]),
        ) => {
            // Frames of IEEE 802.3 have a length in the place of the type; the kernel then reports the protocol.
            if u16::from_be_bytes([*a, *b]) >= LEAST_TYPE {
                header[..2].copy_from_slice(&[*a, *b]);
            }
            ADDRESSES + 2
        }
        _ => usize::from(half(record, NETWORK))
            .saturating_sub(frame)
            .min(captured),
    };
    let mut len = COOKED;
    if let Some(tag) = tag_of(record) {
        header.copy_within(..2, COOKED + 2);
        header[..2].copy_from_slice(&tag[..2]);
        header[COOKED..COOKED + 2].copy_from_slice(&tag[2..]);
        len += VLAN;
    }
    if shift(record, len as isize - link as isize) {
        let begin = usize::from(half(record, FRAME));
        record[begin..begin + len].copy_from_slice(&header[..len]);
    }
}

/// Moves the start of the frame `by` bytes to the front; `false` if there is no room or the lengths of the record are invalid.
fn shift(record: &mut [u8], by: isize) -> bool {
    let frame = usize::from(half(record, FRAME));
    let end = frame + word(record, CAPTURED) as usize;
    let Some(begin) = frame.checked_add_signed(-by) else {
        return false;
    };
    if begin < RECORD_HEADER || begin > end || end > record.len() {
        return false;
    }
    let wire = word(record, WIRE).wrapping_add_signed(by as i32);
    record[FRAME..FRAME + 2].copy_from_slice(&(begin as u16).to_ne_bytes());
    set_word(record, CAPTURED, (end - begin) as u32);
    set_word(record, WIRE, wire);
    true
}

pub(super) fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(
        bytes[at..at + 4]
            .try_into()
            .expect("a slice of four has four bytes"),
    )
}

fn set_word(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_ne_bytes());
}

pub(super) fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes(
        bytes[at..at + 2]
            .try_into()
            .expect("a slice of two has two bytes"),
    )
}
