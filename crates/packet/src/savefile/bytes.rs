//! Integers in big-endian or little-endian byte order.

/// The four bytes at `pos`; the caller has checked that they are there.
#[inline(always)]
pub fn u32_at<const BE: bool>(buf: &[u8], pos: usize) -> u32 {
    let bytes: [u8; 4] = buf[pos..pos + 4]
        .try_into()
        .expect("a slice of four has four bytes");
    if BE {
        u32::from_be_bytes(bytes)
    } else {
        u32::from_le_bytes(bytes)
    }
}

/// The two bytes at `pos`; the caller has checked that they are there.
#[inline(always)]
pub fn u16_at<const BE: bool>(buf: &[u8], pos: usize) -> u16 {
    let bytes: [u8; 2] = buf[pos..pos + 2]
        .try_into()
        .expect("a slice of two has two bytes");
    if BE {
        u16::from_be_bytes(bytes)
    } else {
        u16::from_le_bytes(bytes)
    }
}
