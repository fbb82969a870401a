//! Batches: packets in place, verdicts on them, and their fields as columns.

use crate::call::{
    Failure, OBJECTS, Object, WEIR_CLOSED, WEIR_NULL, WEIR_OK, WEIR_REFUSED, call_with_error,
    check, get, kind, short_call, store, weir_status,
};
use crate::text::weir_text;
use core::ffi::c_void;
use core::mem::{align_of, offset_of, size_of};
use weir_api::{Batch, Column, Descriptor};

/// Descriptor of a packet, in native byte order.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct weir_descriptor {
    /// Offset of the frame's first byte in the region of its batch, bytes.
    pub offset: u64,
    /// Time of capture, ns since 1970; INT64_MIN if there is no timestamp.
    pub time_ns: i64,
    /// Captured length, bytes from `offset` on.
    pub captured: u32,
    /// Length on the wire without FCS and preamble, bytes. It may exceed `captured`, and in odd files be less.
    pub wire_len: u32,
    /// Index of the interface in its source: see weir_interface_of.
    pub interface: u32,
    /// 1 if there is no timestamp, else 0. Other bits may get a meaning: ignore them.
    pub flags: u32,
}

const _: () = {
    assert!(
        size_of::<weir_descriptor>() == size_of::<Descriptor>()
            && align_of::<weir_descriptor>() == align_of::<Descriptor>()
    );
    assert!(offset_of!(weir_descriptor, offset) == offset_of!(Descriptor, offset));
    assert!(offset_of!(weir_descriptor, time_ns) == offset_of!(Descriptor, time_ns));
    assert!(offset_of!(weir_descriptor, captured) == offset_of!(Descriptor, captured));
    assert!(offset_of!(weir_descriptor, wire_len) == offset_of!(Descriptor, wire_len));
    assert!(offset_of!(weir_descriptor, interface) == offset_of!(Descriptor, interface));
    assert!(offset_of!(weir_descriptor, flags) == offset_of!(Descriptor, flags));
};

/// A batch that is held. Give it back with weir_release.
pub type weir_lease = u64;

/// Packets that weir_next gives, where they lie. All pointers hold until weir_release of `lease`.
///
/// Only the bytes that descriptors name may be read: between the packets of a capture, the kernel may write.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct weir_batch {
    /// Handle of the batch, for weir_release and all other functions on batches.
    pub lease: weir_lease,
    /// Memory to which offsets of descriptors are relative; NULL if no packet has bytes.
    pub region: *const u8,
    /// Size of the region, bytes.
    pub region_len: u64,
    /// Descriptors of `len` packets, in the order of the source.
    pub packets: *const weir_descriptor,
    /// Verdicts of the filter, a bit for each packet: packet i passed if bit i % 64 of word i / 64 is 1.
    pub verdicts: *const u64,
    /// Number of packets, with any verdict.
    pub len: u32,
    /// Number of packets that passed the filter.
    pub passed: u32,
    /// Number of the filter that judged them: 0, and 1 more with each weir_set_filter.
    pub filter: u64,
    /// Link type of all packets, a number of the LINKTYPE registry of tcpdump.org, such as 1 for Ethernet; WEIR_MIXED if interfaces
    /// of the source have several.
    pub link_type: u32,
    /// 0.
    pub reserved: u32,
}

/// Interfaces of the source have several link types: weir_interface_of returns the link type of
/// each packet.
pub const WEIR_MIXED: u32 = 65_536;

/// A batch that the caller holds.
#[derive(Debug)]
pub(crate) struct Lease {
    pub batch: Batch,
}

/// Describes a batch for the caller. The pointers hold until the batch is dropped, wherever it is moved.
pub(crate) fn describe(batch: &Batch) -> weir_batch {
    let summary = batch.summary();
    let [region, region_len] = summary.region;
    weir_batch {
        lease: 0,
        region: core::ptr::with_exposed_provenance(region),
        region_len: region_len as u64,
        packets: core::ptr::with_exposed_provenance(summary.descriptors),
        verdicts: core::ptr::with_exposed_provenance(summary.verdicts),
        len: summary.len,
        passed: summary.passed,
        filter: summary.change,
        link_type: summary.link.map_or(WEIR_MIXED, |link| u32::from(link.0)),
        reserved: 0,
    }
}

fn none() -> Failure {
    Failure::new(
        WEIR_CLOSED,
        "the handle is none of a batch, or the batch was released",
    )
}

/// Does work on a batch.
pub(crate) fn with<T>(
    lease: weir_lease,
    work: impl FnOnce(&Lease) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let object = get(lease, kind::LEASE)?;
    match &*object {
        Object::Lease(lease) => work(lease),
        _ => Err(none()),
    }
}

/// Gives a batch back to its source, in any order and from any thread. Its memory must not be read from then on.
///
/// **Cost**: some atomic operations. WEIR_CLOSED if it was released before.
#[unsafe(no_mangle)]
pub extern "C" fn weir_release(lease: weir_lease) -> weir_status {
    short_call(|| {
        drop(OBJECTS.remove(lease, kind::LEASE, |_| true)?);
        Ok(WEIR_OK)
    })
}

/// Gives the verdicts of split number `split`, counted from 0 on in the order of weir_options.splits: bit i is 1 if packet i
/// passed the filter and matches the split. The words hold until weir_release.
///
/// # Safety
/// `verdicts` leads to memory for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_split(
    lease: weir_lease,
    split: u32,
    verdicts: *mut *const u64,
) -> weir_status {
    short_call(|| {
        if verdicts.is_null() {
            return Err(WEIR_NULL);
        }
        let object = OBJECTS.get_alone(lease, kind::LEASE)?;
        let Object::Lease(lease) = &*object else {
            return Err(WEIR_CLOSED);
        };
        let Some(bits) = lease.batch.split_verdicts().get(split as usize) else {
            return Ok(WEIR_REFUSED);
        };
        // SAFETY: it is not NULL, and the caller promises memory for a pointer.
        unsafe { verdicts.write(bits.words().as_ptr()) };
        Ok(WEIR_OK)
    })
}

/// Time of capture, ns since 1970 (int64_t); INT64_MIN without a timestamp.
pub const WEIR_TIME: u32 = 0;
/// Length on the wire, bytes (uint32_t).
pub const WEIR_WIRE_LEN: u32 = 1;
/// Captured length, bytes (uint32_t).
pub const WEIR_CAPTURED: u32 = 2;
/// Index of the interface in its source (uint32_t).
pub const WEIR_INTERFACE: u32 = 3;
/// 4 or 6, and 0 for frames without IP (uint8_t).
pub const WEIR_IP_VERSION: u32 = 4;
/// Source address of IPv4 as a number, 10.0.0.1 being 0x0a000001; else 0 (uint32_t).
pub const WEIR_SRC4: u32 = 5;
/// Destination address of IPv4 as a number; else 0 (uint32_t).
pub const WEIR_DST4: u32 = 6;
/// Source address, 16 bytes in network order; of IPv4 as ::ffff:a.b.c.d; zeros without IP (uint8_t[16]).
pub const WEIR_SRC: u32 = 7;
/// Destination address, 16 bytes (uint8_t[16]).
pub const WEIR_DST: u32 = 8;
/// IP protocol number of the transport; 255 if it is unknown (uint8_t).
pub const WEIR_PROTOCOL: u32 = 9;
/// Source port; 0 without one (uint16_t).
pub const WEIR_SRC_PORT: u32 = 10;
/// Destination port; 0 without one (uint16_t).
pub const WEIR_DST_PORT: u32 = 11;
/// TCP flags, FIN being the lowest bit; 0 without TCP (uint8_t).
pub const WEIR_TCP_FLAGS: u32 = 12;
/// Identifier of the outermost VLAN tag; 65535 without one (uint16_t).
pub const WEIR_VLAN: u32 = 13;
/// Offset of the IP header in the frame, bytes; -1 for frames without IP (int32_t).
pub const WEIR_NETWORK_OFFSET: u32 = 14;
/// Offset of the transport header in the frame, after IPv6 extension headers, bytes; -1 if no byte
/// of it was captured, and in fragments other than the first (int32_t).
pub const WEIR_TRANSPORT_OFFSET: u32 = 15;
/// Offset of the payload of TCP, UDP, UDP-Lite, SCTP (the first chunk) or DCCP in the frame, bytes;
/// -1 if no byte of one was captured, and for other protocols. Padding after the IP packet is not a
/// payload (int32_t).
pub const WEIR_PAYLOAD_OFFSET: u32 = 16;

/// An array of the caller for one field of packets.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct weir_column {
    /// WEIR_TIME to WEIR_PAYLOAD_OFFSET.
    pub field: u32,
    /// Number of elements for which there is room.
    pub capacity: u32,
    /// First element, aligned for its type.
    pub values: *mut c_void,
}

/// The array of a column.
///
/// # Safety
/// `values` leads to `capacity` elements of the field's type, which nobody else uses in the
/// meantime.
unsafe fn column<'a>(column: &weir_column) -> Result<Column<'a>, Failure> {
    /// # Safety
    /// As for [`column`].
    unsafe fn slice<'a, T>(column: &weir_column) -> Result<&'a mut [T], Failure> {
        check(column.values, "the memory of a column")?;
        if !column.values.cast::<T>().is_aligned() {
            return Err(Failure::refused(format!(
                "column {}: its memory is not aligned for its type",
                column.field
            )));
        }
        // SAFETY: the caller promises that many elements, in its own use; it is aligned and not NULL.
        Ok(unsafe {
            core::slice::from_raw_parts_mut(column.values.cast(), column.capacity as usize)
        })
    }
    // SAFETY: forwarded to the caller.
    unsafe {
        Ok(match column.field {
            WEIR_TIME => Column::Time(slice(column)?),
            WEIR_WIRE_LEN => Column::WireLength(slice(column)?),
            WEIR_CAPTURED => Column::Captured(slice(column)?),
            WEIR_INTERFACE => Column::Interface(slice(column)?),
            WEIR_IP_VERSION => Column::IpVersion(slice(column)?),
            WEIR_SRC4 => Column::Source4(slice(column)?),
            WEIR_DST4 => Column::Destination4(slice(column)?),
            WEIR_SRC => Column::Source(slice(column)?),
            WEIR_DST => Column::Destination(slice(column)?),
            WEIR_PROTOCOL => Column::Protocol(slice(column)?),
            WEIR_SRC_PORT => Column::SourcePort(slice(column)?),
            WEIR_DST_PORT => Column::DestinationPort(slice(column)?),
            WEIR_TCP_FLAGS => Column::TcpFlags(slice(column)?),
            WEIR_VLAN => Column::Vlan(slice(column)?),
            WEIR_NETWORK_OFFSET => Column::NetworkOffset(slice(column)?),
            WEIR_TRANSPORT_OFFSET => Column::TransportOffset(slice(column)?),
            WEIR_PAYLOAD_OFFSET => Column::PayloadOffset(slice(column)?),
            other => {
                return Err(Failure::refused(format!(
                    "there is no field of number {other}"
                )));
            }
        })
    }
}

/// Fills columns with fields of packets: of the packets from number `first` on, or if `passed` is not 0, of those among them that
/// passed the filter. As many packets are written as the smallest column has room for.
///
/// `written` gets the number of packets written, `next` the number of the packet after the last
/// written one: `first` of the next call, or the length of the batch. Fields are read from the
/// outermost IP packet. **Cost**: each frame is read once for all columns of fields, and once for
/// all of offsets.
///
/// # Safety
/// `columns` leads to `count` columns, each with memory for its capacity; `written` and `next` lead to memory for a number;
/// `error` is NULL or leads to memory for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_fill(
    lease: weir_lease,
    first: u32,
    passed: i32,
    columns: *const weir_column,
    count: usize,
    written: *mut u32,
    next: *mut u32,
    error: *mut weir_text,
) -> weir_status {
    let work = || {
        check(columns, "columns")?;
        // SAFETY: the caller promises `count` columns.
        let columns = unsafe { core::slice::from_raw_parts(columns, count) };
        // SAFETY: the caller promises memory for each.
        let columns = columns
            .iter()
            .map(|of| unsafe { column(of) })
            .collect::<Result<Vec<_>, _>>();
        let mut columns = columns?;
        if columns.is_empty() || columns.iter().any(Column::is_empty) {
            return Err(Failure::refused(
                "there is no column with room for a packet",
            ));
        }
        let (packets, behind) = with(lease, |lease| {
            if first as usize > lease.batch.len() {
                let words = format!(
                    "there is no packet {first} in a batch of {}",
                    lease.batch.len()
                );
                return Err(Failure::refused(words));
            }
            Ok(lease.batch.fill(first as usize, passed != 0, &mut columns))
        })?;
        // SAFETY: the caller promises memory for both.
        unsafe {
            store(written, packets as u32, "written")?;
            store(next, behind as u32, "next")?;
        }
        Ok(WEIR_OK)
    };
    // SAFETY: forwarded to the caller.
    unsafe { call_with_error(error, work) }
}
