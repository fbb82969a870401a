//! A slice of zeroed values in a region of its own.

use crate::error::Error;
use crate::obtained::Obtained;
use crate::policy::Request;
use crate::region::Region;
use std::fmt;
use std::marker::PhantomData;
use std::mem::needs_drop;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;
use zerocopy::FromZeros;

/// A slice of zeroed `T` in a region of its own, for plain values and atomics.
///
/// **Layout**: `len` values back to back, the first at a multiple of `align_of::<T>()`, of 64 and
/// of the request's `align`. **Threads**: as for a `Box<[T]>`. A type that has to be dropped does
/// not compile:
///
/// ```compile_fail
/// # use weir_memory::{Request, Table};
/// #[derive(zerocopy::FromZeros)]
/// struct Handle(u8);
/// # impl Drop for Handle { fn drop(&mut self) {} }
/// let table = Table::<Handle>::zeroed(1, &Request::default());
/// ```
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use weir_memory::{Policy, Request, Table};
///
/// let counters = Table::<AtomicU64>::zeroed(1 << 16, &Request { pages: Policy::Virtual, ..Request::default() })?;
/// counters[7].fetch_add(1, Ordering::Relaxed);
/// assert_eq!(counters.obtained().page_bytes, 4096);
/// # Ok::<(), weir_memory::Error>(())
/// ```
pub struct Table<T> {
    /// The first value, in `region`.
    values: NonNull<T>,
    len: usize,
    region: Region,
    /// The table owns its values, and may be sent and shared as they may.
    _owned: PhantomData<T>,
}

// SAFETY: the table owns its values, as a boxed slice does.
unsafe impl<T: Send> Send for Table<T> {}
// SAFETY: a shared table only gives `&[T]`.
unsafe impl<T: Sync> Sync for Table<T> {}

impl<T: FromZeros> Table<T> {
    /// `len` zeroed values.
    ///
    /// **Errors**: as of [`Region::zeroed`].
    pub fn zeroed(len: usize, request: &Request) -> Result<Self, Error> {
        const {
            assert!(
                !needs_drop::<T>(),
                "a table holds plain values: nothing is dropped one by one"
            )
        };
        const { assert!(align_of::<T>() <= crate::HUGE) };
        let size = size_of::<T>();
        let bytes = len.checked_mul(size).ok_or(Error::TooLarge { len, size })?;
        let region = Region::zeroed(
            bytes,
            &Request {
                align: request.align.max(align_of::<T>()),
                ..*request
            },
        )?;
        Ok(Self {
            values: region.base().cast(),
            len,
            region,
            _owned: PhantomData,
        })
    }
}

impl<T> Table<T> {
    /// The memory that the table really has, read back now: see [`Region::obtained`].
    pub fn obtained(&self) -> Obtained {
        self.region.obtained()
    }
}

impl<T> Deref for Table<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: the region holds `len` values from `values` on, aligned (requested above), valid because `T: FromZeros` and
        // the region was zeroed, and it lives as long as `self`. Its bytes are only accessed through this table.
        unsafe { slice::from_raw_parts(self.values.as_ptr(), self.len) }
    }
}

impl<T> DerefMut for Table<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and `&mut self` excludes all other access.
        unsafe { slice::from_raw_parts_mut(self.values.as_ptr(), self.len) }
    }
}

impl<T> fmt::Debug for Table<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Table({} values, {} bytes)", self.len, self.region.len())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::Policy;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// Policies and lengths of small and large tables; miri has no pages of its own.
    fn kinds() -> Vec<(Policy, usize)> {
        if cfg!(miri) {
            return vec![(Policy::Auto, 10), (Policy::Auto, 2000)];
        }
        vec![
            (Policy::Auto, 1000),
            (Policy::Virtual, 1000),
            (Policy::Auto, 1 << 19),
        ]
    }

    #[test]
    fn atomics_are_shared_by_threads() {
        for (pages, len) in kinds() {
            let table = Table::<AtomicU64>::zeroed(
                len,
                &Request {
                    pages,
                    ..Request::default()
                },
            )
            .unwrap();
            std::thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| {
                        table
                            .iter()
                            .for_each(|value| _ = value.fetch_add(3, Ordering::Relaxed))
                    });
                }
            });
            assert!(table.iter().all(|value| value.load(Ordering::Relaxed) == 9));
        }
    }

    #[test]
    fn what_is_written_stays() {
        for (pages, len) in kinds() {
            let mut table = Table::<[u32; 3]>::zeroed(
                len,
                &Request {
                    pages,
                    ..Request::default()
                },
            )
            .unwrap();
            assert!(table.iter().all(|value| *value == [0; 3]));
            for (place, value) in table.iter_mut().enumerate() {
                *value = [place as u32, 1, 2];
            }
            let table = std::thread::spawn(move || table).join().unwrap();
            assert!(
                table
                    .iter()
                    .enumerate()
                    .all(|(place, value)| *value == [place as u32, 1, 2])
            );
            assert_eq!(
                format!("{table:?}"),
                format!("Table({len} values, {} bytes)", len * 12)
            );
        }
        assert!(
            Table::<u64>::zeroed(0, &Request::default())
                .unwrap()
                .is_empty()
        );
    }

    /// The element types of sketches and flow tables have the alignment that they require.
    #[test]
    fn values_are_aligned() {
        #[derive(FromZeros)]
        #[repr(align(4096))]
        struct Page([u8; 4096]);
        let mut table = Table::<Page>::zeroed(3, &Request::default()).unwrap();
        assert_eq!(table.as_ptr().addr() % 4096, 0);
        assert_eq!(table[2].0[4095], 0);
        table[1].0[7] = 1;
        assert_eq!(
            Table::<u8>::zeroed(1, &Request::default())
                .unwrap()
                .as_ptr()
                .addr()
                % 64,
            0
        );
    }
}
