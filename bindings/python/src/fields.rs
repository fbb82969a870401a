//! Fields of packets, and the memory of their columns.

use crate::error::Refused;
use pyo3::prelude::*;
use std::sync::{Arc, Mutex, PoisonError};
use weir_api::Column;
use zerocopy::{FromBytes, IntoBytes};

/// A field of packets. The text of `python/weir/__init__.py` says what each holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Field {
    Time,
    WireLen,
    Captured,
    Interface,
    IpVersion,
    Src4,
    Dst4,
    Src,
    Dst,
    Protocol,
    SrcPort,
    DstPort,
    TcpFlags,
    Vlan,
    NetworkOffset,
    TransportOffset,
    PayloadOffset,
}

impl Field {
    /// All fields, in the order of the constants of the C library.
    pub const ALL: [Self; 17] = [
        Self::Time,
        Self::WireLen,
        Self::Captured,
        Self::Interface,
        Self::IpVersion,
        Self::Src4,
        Self::Dst4,
        Self::Src,
        Self::Dst,
        Self::Protocol,
        Self::SrcPort,
        Self::DstPort,
        Self::TcpFlags,
        Self::Vlan,
        Self::NetworkOffset,
        Self::TransportOffset,
        Self::PayloadOffset,
    ];

    /// Fields that a source has without a choice.
    pub const DEFAULT: [Self; 7] = [
        Self::Time,
        Self::Src,
        Self::Dst,
        Self::Protocol,
        Self::SrcPort,
        Self::DstPort,
        Self::WireLen,
    ];

    /// Returns the name of the column.
    pub fn name(self) -> &'static str {
        match self {
            Self::Time => "time",
            Self::WireLen => "wire_len",
            Self::Captured => "captured",
            Self::Interface => "interface",
            Self::IpVersion => "ip_version",
            Self::Src4 => "src4",
            Self::Dst4 => "dst4",
            Self::Src => "src",
            Self::Dst => "dst",
            Self::Protocol => "protocol",
            Self::SrcPort => "src_port",
            Self::DstPort => "dst_port",
            Self::TcpFlags => "tcp_flags",
            Self::Vlan => "vlan",
            Self::NetworkOffset => "network_offset",
            Self::TransportOffset => "transport_offset",
            Self::PayloadOffset => "payload_offset",
        }
    }

    /// Returns the field of a name.
    pub fn named(name: &str) -> PyResult<Self> {
        Self::ALL
            .into_iter()
            .find(|field| field.name() == name)
            .ok_or_else(|| {
                let names = Self::ALL.map(Self::name).join(", ");
                Refused::new_err(format!(
                    "there is no column '{name}': the columns are {names}"
                ))
            })
    }

    /// Returns the fields of names, each once.
    pub fn all_named(names: &[String]) -> PyResult<Vec<Self>> {
        let mut fields = Vec::with_capacity(names.len());
        for name in names {
            let field = Self::named(name)?;
            if fields.contains(&field) {
                return Err(Refused::new_err(format!("column '{name}' is named twice")));
            }
            fields.push(field);
        }
        Ok(fields)
    }

    /// Returns the size of an element, bytes.
    pub fn size(self) -> usize {
        match self {
            Self::Time => 8,
            Self::WireLen | Self::Captured | Self::Interface | Self::Src4 | Self::Dst4 => 4,
            Self::NetworkOffset | Self::TransportOffset | Self::PayloadOffset => 4,
            Self::Src | Self::Dst => 16,
            Self::SrcPort | Self::DstPort | Self::Vlan => 2,
            Self::IpVersion | Self::Protocol | Self::TcpFlags => 1,
        }
    }

    /// Whether the field tells a number of IPv4 or an address, which a frame without IP has not.
    pub fn is_address(self) -> bool {
        matches!(self, Self::Src4 | Self::Dst4 | Self::Src | Self::Dst)
    }

    /// Whether the field is an offset of a header, which is -1 if there is none.
    pub fn is_offset(self) -> bool {
        matches!(
            self,
            Self::NetworkOffset | Self::TransportOffset | Self::PayloadOffset
        )
    }

    /// The column of the library over the memory of some elements.
    pub fn column(self, bytes: &mut [u8]) -> Column<'_> {
        fn of<T: FromBytes + IntoBytes>(bytes: &mut [u8]) -> &mut [T] {
            <[T]>::mut_from_bytes(bytes)
                .expect("memory of columns is aligned for all numbers, and holds whole elements")
        }
        match self {
            Self::Time => Column::Time(of(bytes)),
            Self::WireLen => Column::WireLength(of(bytes)),
            Self::Captured => Column::Captured(of(bytes)),
            Self::Interface => Column::Interface(of(bytes)),
            Self::IpVersion => Column::IpVersion(of(bytes)),
            Self::Src4 => Column::Source4(of(bytes)),
            Self::Dst4 => Column::Destination4(of(bytes)),
            Self::Src => Column::Source(of(bytes)),
            Self::Dst => Column::Destination(of(bytes)),
            Self::Protocol => Column::Protocol(of(bytes)),
            Self::SrcPort => Column::SourcePort(of(bytes)),
            Self::DstPort => Column::DestinationPort(of(bytes)),
            Self::TcpFlags => Column::TcpFlags(of(bytes)),
            Self::Vlan => Column::Vlan(of(bytes)),
            Self::NetworkOffset => Column::NetworkOffset(of(bytes)),
            Self::TransportOffset => Column::TransportOffset(of(bytes)),
            Self::PayloadOffset => Column::PayloadOffset(of(bytes)),
        }
    }
}

/// Memory of columns that are gone, for the next ones: new pages cost more than the columns themselves.
#[derive(Debug, Default)]
pub struct Pool(Mutex<Vec<Vec<u64>>>);

/// Most pieces that a pool keeps.
const KEPT: usize = 64;

impl Pool {
    /// Takes memory of `bytes` bytes, of any content.
    pub fn take(self: &Arc<Self>, bytes: usize) -> Memory {
        let words = bytes.div_ceil(8);
        let mut pieces = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fitting = pieces
            .iter()
            .position(|piece| piece.capacity() >= words && piece.capacity() <= 2 * words + 64);
        let mut piece = fitting.map_or_else(Vec::new, |at| pieces.swap_remove(at));
        drop(pieces);
        piece.resize(words, 0);
        Memory {
            piece,
            bytes,
            pool: Arc::clone(self),
        }
    }
}

/// Memory of a column, aligned for all numbers.
#[derive(Debug)]
pub struct Memory {
    piece: Vec<u64>,
    bytes: usize,
    pool: Arc<Pool>,
}

impl Memory {
    pub fn bytes(&self) -> &[u8] {
        &self.piece.as_bytes()[..self.bytes]
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.piece.as_mut_bytes()[..self.bytes]
    }

    /// The memory as numbers.
    pub fn as_slice<T: FromBytes + zerocopy::Immutable>(&self) -> &[T] {
        <[T]>::ref_from_bytes(self.bytes())
            .expect("memory of columns is aligned for all numbers, and holds whole elements")
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let mut pieces = self.pool.0.lock().unwrap_or_else(PoisonError::into_inner);
        if pieces.len() < KEPT {
            pieces.push(std::mem::take(&mut self.piece));
        }
    }
}
