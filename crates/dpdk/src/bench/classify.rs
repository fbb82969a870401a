//! DPDK's classifiers as rivals: `rte_acl` for rule lists, `rte_lpm` for prefixes.

use crate::eal::{Eal, said};
use crate::error::Error;
use std::ffi::{CString, c_char, c_int};

/// Frames or keys that one call of DPDK classifies at most.
pub const MOST: usize = 256;

/// Memory of the tables, bytes.
const MEMORY: usize = 900 << 20;

/// A rule of [`Acl`]; the ends of ranges are inclusive.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct AclRule {
    /// Source and destination prefix, host order.
    pub src: u32,
    /// Destination prefix, host order.
    pub dst: u32,
    /// Length of the source prefix, bits.
    pub src_bits: u8,
    /// Length of the destination prefix, bits.
    pub dst_bits: u8,
    /// IP protocol number.
    pub proto: u8,
    /// No meaning.
    pub unused: u8,
    /// First and last source port.
    pub sport: [u16; 2],
    /// First and last destination port.
    pub dport: [u16; 2],
}

/// Fields of a packet as `rte_acl` reads them.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// IP protocol number.
    pub proto: u8,
    /// No meaning.
    pub unused: [u8; 3],
    /// Source address, network order.
    pub src: [u8; 4],
    /// Destination address, network order.
    pub dst: [u8; 4],
    /// Source and destination port, network order.
    pub ports: [u8; 4],
}

/// Packets, and bytes of them.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Number of packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
}

/// `struct rte_acl_ctx` and `struct rte_lpm`, which only C accesses.
#[repr(C)]
struct Opaque {
    _opaque: [u8; 0],
}

unsafe extern "C" {
    fn weir_acl_new(
        name: *const c_char,
        rules: *const AclRule,
        count: u32,
        in_frame: c_int,
        most: usize,
    ) -> *mut Opaque;
    fn weir_acl_free(context: *mut Opaque);
    fn weir_acl_keys(
        context: *const Opaque,
        keys: *const Key,
        count: u64,
        batch: u32,
        results: *mut u32,
    );
    fn weir_acl_frames(
        context: *const Opaque,
        frames: *const u8,
        len: u32,
        count: u64,
        batch: u32,
        passes: *const u8,
        counts: *mut Count,
        all: *mut Count,
    ) -> u64;
    fn weir_lpm_new(prefixes: *const u32, bits: *const u8, count: u32, groups: u32) -> *mut Opaque;
    fn weir_lpm_free(table: *mut Opaque);
    fn weir_lpm_addresses(
        table: *const Opaque,
        addresses: *const u32,
        count: u64,
        batch: u32,
    ) -> u64;
    fn weir_lpm_frames(
        table: *const Opaque,
        frames: *const u8,
        len: u32,
        count: u64,
        batch: u32,
        all: *mut Count,
    ) -> u64;
}

/// Starts DPDK.
fn start() -> Result<(), Error> {
    Eal::get(MEMORY, None).map(drop)
}

/// Batches of at least one packet, and of no more than C has room for.
fn checked(batch: usize) -> u32 {
    assert!(
        (1..=MOST).contains(&batch),
        "a batch has 1 to {MOST} packets"
    );
    batch as u32
}

/// A context of `rte_acl`, with the algorithm that it chooses among those of this processor.
#[derive(Debug)]
pub struct Acl {
    context: *mut Opaque,
    rules: usize,
    in_frame: bool,
}

impl Acl {
    /// Builds a context that reads keys, or frames if `in_frame`. `most_bytes` limits its memory; 0: it does as it likes.
    ///
    /// **Errors**: DPDK does not start, or has no memory.
    pub fn new(rules: &[AclRule], in_frame: bool, most_bytes: usize) -> Result<Self, Error> {
        start()?;
        let name =
            CString::new(format!("weir-{in_frame}")).expect("the text above has no NUL in it");
        let flag = c_int::from(in_frame);
        // SAFETY: as many rules as stated; the name and the rules are copied.
        let context = unsafe {
            weir_acl_new(
                name.as_ptr(),
                rules.as_ptr(),
                rules.len() as u32,
                flag,
                most_bytes,
            )
        };
        if context.is_null() {
            return Err(Error::Start { said: said(0) });
        }
        Ok(Self {
            context,
            rules: rules.len(),
            in_frame,
        })
    }

    /// Writes the number of the first rule that matches, from 1 on, or 0, for each key.
    ///
    /// **Panics**: the context reads frames, or there are not as many results as keys.
    pub fn keys(&self, keys: &[Key], batch: usize, results: &mut [u32]) {
        assert!(
            !self.in_frame && keys.len() == results.len(),
            "a context of keys, and a result for each"
        );
        // SAFETY: the context reads the bytes of a key and no others; there is room for as many results as keys.
        unsafe {
            weir_acl_keys(
                self.context,
                keys.as_ptr(),
                keys.len() as u64,
                checked(batch),
                results.as_mut_ptr(),
            )
        }
    }

    /// Judges frames of `len` bytes, one after another, and counts them: by rule, after the
    /// default; and what was dropped, and what passed. `passes` says for the default and each rule
    /// whether packets pass. Returns the number of frames that are not plain IPv4.
    ///
    /// **Panics**: the context reads keys, a frame is shorter than 48 bytes, or there are too few counts.
    pub fn frames(
        &self,
        (frames, len): (&[u8], usize),
        batch: usize,
        passes: &[bool],
        counts: &mut [Count],
        all: &mut [Count; 2],
    ) -> u64 {
        assert!(
            self.in_frame && len >= 48,
            "a context of frames, and frames as long as their headers"
        );
        assert!(
            passes.len() == self.rules + 1 && counts.len() == self.rules + 1,
            "one of each rule, and the default"
        );
        let count = (frames.len() / len) as u64;
        let (frames, len, batch) = (frames.as_ptr(), len as u32, checked(batch));
        let (passes, counts) = (passes.as_ptr().cast(), counts.as_mut_ptr());
        // SAFETY: the frames lie in the slice, and the context reads their first 38 bytes; its results are at most the number of rules;
        // a bool is a byte of 0 or 1.
        unsafe {
            weir_acl_frames(
                self.context,
                frames,
                len,
                count,
                batch,
                passes,
                counts,
                all.as_mut_ptr(),
            )
        }
    }
}

impl Drop for Acl {
    fn drop(&mut self) {
        // SAFETY: made by `new`, and freed once.
        unsafe { weir_acl_free(self.context) };
    }
}

/// A table of `rte_lpm`.
#[derive(Debug)]
pub struct Lpm(*mut Opaque);

impl Lpm {
    /// Builds a table of prefixes, host order, with their lengths. `groups`: room for networks of 24 bits with longer prefixes.
    ///
    /// **Errors**: DPDK does not start, or has no memory. **Cost**: grows with the square of the number of prefixes of one length.
    pub fn new(prefixes: &[u32], bits: &[u8], groups: usize) -> Result<Self, Error> {
        start()?;
        assert_eq!(prefixes.len(), bits.len(), "each prefix has a length");
        // SAFETY: as many prefixes and lengths as stated, which are copied.
        let table = unsafe {
            weir_lpm_new(
                prefixes.as_ptr(),
                bits.as_ptr(),
                prefixes.len() as u32,
                groups as u32,
            )
        };
        if table.is_null() {
            Err(Error::Start { said: said(0) })
        } else {
            Ok(Self(table))
        }
    }

    /// Returns how many of the addresses, host order, have a prefix.
    pub fn addresses(&self, addresses: &[u32], batch: usize) -> u64 {
        // SAFETY: as many addresses as stated.
        unsafe {
            weir_lpm_addresses(
                self.0,
                addresses.as_ptr(),
                addresses.len() as u64,
                checked(batch),
            )
        }
    }

    /// Drops frames of TCP whose source has a prefix. Counts what was dropped, and what passed;
    /// returns the number of frames that are not a plain IPv4. **Panics**: a frame is shorter than
    /// 48 bytes.
    pub fn frames(&self, (frames, len): (&[u8], usize), batch: usize, all: &mut [Count; 2]) -> u64 {
        assert!(len >= 48, "frames are as long as their headers");
        let count = (frames.len() / len) as u64;
        // SAFETY: the frames lie in the slice, and their first 48 bytes are read.
        unsafe {
            weir_lpm_frames(
                self.0,
                frames.as_ptr(),
                len as u32,
                count,
                checked(batch),
                all.as_mut_ptr(),
            )
        }
    }
}

impl Drop for Lpm {
    fn drop(&mut self) {
        // SAFETY: made by `new`, and freed once.
        unsafe { weir_lpm_free(self.0) };
    }
}
