//! Eight boxes of five fields, compared with a point at once.

/// Boxes in a group.
pub const LANES: usize = 8;

/// Added to unsigned numbers that are compared as signed ones: SSE2 compares no others.
const BIAS: u32 = 1 << 31;

/// Eight boxes: ranges of two fields of 32 bits and of three fields of 16 bits.
///
/// **Layout**: field by field the first values and their distances to the last values, 224 bytes.
/// Of long fields the first value is stored plus 2^31 and the distance less 2^31.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Boxes {
    long: [Long; 2],
    short: [Short; 3],
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Long {
    first: [u32; LANES],
    span: [i32; LANES],
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Short {
    first: [u16; LANES],
    span: [u16; LANES],
}

/// A value of each field.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// Fields of 32 bits.
    pub long: [u32; 2],
    /// Fields of 16 bits.
    pub short: [u16; 3],
}

impl Boxes {
    /// Eight boxes of one point: the lowest of the long fields, and the highest of the short ones.
    pub const fn new() -> Self {
        let long = Long {
            first: [BIAS; LANES],
            span: [i32::MIN; LANES],
        };
        let short = Short {
            first: [u16::MAX; LANES],
            span: [0; LANES],
        };
        Self {
            long: [long; 2],
            short: [short; 3],
        }
    }

    /// Sets a box to these ranges, both ends inclusive. **Panics**: there are no more than eight boxes.
    pub fn set(&mut self, lane: usize, long: [(u32, u32); 2], short: [(u16, u16); 3]) {
        for (field, (first, last)) in self.long.iter_mut().zip(long) {
            field.first[lane] = first.wrapping_add(BIAS);
            field.span[lane] = (last.wrapping_sub(first) ^ BIAS).cast_signed();
        }
        for (field, (first, last)) in self.short.iter_mut().zip(short) {
            field.first[lane] = first;
            field.span[lane] = last.wrapping_sub(first);
        }
    }

    /// Mask with bit i set if box i holds the point.
    ///
    /// **Cost**: some thirty instructions without a branch.
    #[inline(always)]
    pub fn holding(&self, point: Point) -> u8 {
        #[cfg(target_arch = "x86_64")]
        {
            // SAFETY: SSE2 is part of x86-64.
            unsafe { self.by_sse2(point) }
        }
        #[cfg(not(target_arch = "x86_64"))]
        self.one_by_one(point)
    }

    /// Sets `masks[i]` to the mask of the i-th pair of boxes and point, as long as there are both.
    ///
    /// **Cost**: for each pair as of [`Self::holding`], or half of it on a processor with AVX-512
    /// (BW, VL).
    #[inline]
    pub fn holding_each<'a>(pairs: impl Iterator<Item = (&'a Self, Point)>, masks: &mut [u8]) {
        let pairs = masks.iter_mut().zip(pairs);
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx512bw")
            && std::arch::is_x86_feature_detected!("avx512vl")
        {
            // SAFETY: the processor has what the function needs.
            return unsafe { each_by_avx512(pairs) };
        }
        pairs.for_each(|(mask, (boxes, point))| *mask = boxes.holding(point));
    }

    #[cfg(target_arch = "x86_64")]
    #[inline]
    #[target_feature(enable = "avx512bw,avx512vl")]
    fn by_avx512(&self, Point { long, short }: Point) -> u8 {
        use core::arch::x86_64::{
            _mm_loadu_si128, _mm_mask_cmple_epu16_mask, _mm_set1_epi16, _mm_sub_epi16,
            _mm256_cmple_epi32_mask, _mm256_loadu_si256, _mm256_mask_cmple_epi32_mask,
            _mm256_set1_epi32, _mm256_sub_epi32,
        };
        let [a, b] = [0, 1].map(|i| {
            let Long { first, span } = &self.long[i];
            // SAFETY: both arrays have 32 bytes, and the loads need no alignment.
            let (first, span) = unsafe {
                (
                    _mm256_loadu_si256(first.as_ptr().cast()),
                    _mm256_loadu_si256(span.as_ptr().cast()),
                )
            };
            (
                _mm256_sub_epi32(_mm256_set1_epi32(long[i].cast_signed()), first),
                span,
            )
        });
        let mut held = _mm256_mask_cmple_epi32_mask(_mm256_cmple_epi32_mask(a.0, a.1), b.0, b.1);
        for (Short { first, span }, value) in self.short.iter().zip(short) {
            // SAFETY: both arrays have 16 bytes, and the loads need no alignment.
            let (first, span) = unsafe {
                (
                    _mm_loadu_si128(first.as_ptr().cast()),
                    _mm_loadu_si128(span.as_ptr().cast()),
                )
            };
            held = _mm_mask_cmple_epu16_mask(
                held,
                _mm_sub_epi16(_mm_set1_epi16(value.cast_signed()), first),
                span,
            );
        }
        held
    }

    #[cfg(target_arch = "x86_64")]
    #[inline]
    #[target_feature(enable = "sse2")]
    fn by_sse2(&self, Point { long, short }: Point) -> u8 {
        use core::arch::x86_64::{
            __m128i, _mm_andnot_si128, _mm_cmpeq_epi16, _mm_cmpgt_epi32, _mm_loadu_si128,
            _mm_movemask_epi8, _mm_or_si128, _mm_packs_epi16, _mm_packs_epi32, _mm_set1_epi16,
            _mm_set1_epi32, _mm_setzero_si128, _mm_sub_epi16, _mm_sub_epi32, _mm_subs_epu16,
        };
        let load = |from: *const __m128i| {
            // SAFETY: callers below point at 16 bytes of an array of this group, and the load needs no alignment.
            unsafe { _mm_loadu_si128(from) }
        };
        // Not zero where the value lies outside.
        let outside_long = |field: &Long, value: u32| {
            let value = _mm_set1_epi32(value.cast_signed());
            let half = |at: usize| {
                let (first, span) = (
                    field.first[at..].as_ptr().cast(),
                    field.span[at..].as_ptr().cast(),
                );
                _mm_cmpgt_epi32(_mm_sub_epi32(value, load(first)), load(span))
            };
            _mm_packs_epi32(half(0), half(LANES / 2))
        };
        let outside_short = |field: &Short, value: u16| {
            let distance = _mm_sub_epi16(
                _mm_set1_epi16(value.cast_signed()),
                load(field.first.as_ptr().cast()),
            );
            _mm_subs_epu16(distance, load(field.span.as_ptr().cast()))
        };
        let by_long = _mm_or_si128(
            outside_long(&self.long[0], long[0]),
            outside_long(&self.long[1], long[1]),
        );
        let [a, b, c] = [0, 1, 2].map(|i| outside_short(&self.short[i], short[i]));
        let within = _mm_cmpeq_epi16(_mm_or_si128(_mm_or_si128(a, b), c), _mm_setzero_si128());
        let held = _mm_andnot_si128(by_long, within);
        _mm_movemask_epi8(_mm_packs_epi16(held, _mm_setzero_si128())) as u8
    }

    /// The same mask on every machine: the portable twin of [`Self::holding`].
    #[cfg(any(test, not(target_arch = "x86_64")))]
    fn one_by_one(&self, Point { long, short }: Point) -> u8 {
        let holds = |lane: usize| {
            let by_long = self.long.iter().zip(long).all(|(field, value)| {
                value.wrapping_sub(field.first[lane]).cast_signed() <= field.span[lane]
            });
            let mut by_short = self.short.iter().zip(short);
            by_long
                && by_short
                    .all(|(field, value)| value.wrapping_sub(field.first[lane]) <= field.span[lane])
        };
        (0..LANES).map(|lane| u8::from(holds(lane)) << lane).sum()
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512bw,avx512vl")]
fn each_by_avx512<'a, 'b>(pairs: impl Iterator<Item = (&'b mut u8, (&'a Boxes, Point))>) {
    for (mask, (boxes, point)) in pairs {
        *mask = boxes.by_avx512(point);
    }
}

impl Default for Boxes {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_hold_the_points_between_their_ends() {
        let mut state = 1u64;
        let mut any = |below: usize| {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (state >> 33) as usize % below
        };
        let edges = [
            0,
            1,
            0x7fff,
            0x8000,
            0x7fff_ffff,
            0x8000_0000,
            0x8000_0001,
            u32::MAX - 1,
            u32::MAX,
        ];
        let ends = |a: u32, b: u32| (a.min(b), a.max(b));
        let mut held = 0;
        for _ in 0..if cfg!(miri) { 20 } else { 5000 } {
            let mut boxes = Boxes::new();
            let mut ranges = [([(0, 0); 2], [(u16::MAX, u16::MAX); 3]); LANES];
            for (lane, one) in ranges.iter_mut().enumerate().skip(any(2)) {
                // Wide ranges, so that points are held now and then.
                let mut range = || {
                    if any(2) == 0 {
                        (0, u32::MAX)
                    } else {
                        ends(edges[any(9)], edges[any(9)])
                    }
                };
                let long = [range(), range()];
                let short = [range(), range(), range()]
                    .map(|(first, last)| ends(first & 0xffff, last & 0xffff));
                *one = (long, short.map(|(first, last)| (first as u16, last as u16)));
                boxes.set(lane, one.0, one.1);
            }
            let long = [edges[any(9)], edges[any(9)]];
            let short = [0; 3].map(|_: u16| edges[any(9)] as u16);
            let naive = ranges.iter().enumerate().map(|(lane, (longs, shorts))| {
                let by_long = longs
                    .iter()
                    .zip(long)
                    .all(|(range, value)| range.0 <= value && value <= range.1);
                let by_short = shorts
                    .iter()
                    .zip(short)
                    .all(|(range, value)| range.0 <= value && value <= range.1);
                u8::from(by_long && by_short) << lane
            });
            let wanted: u8 = naive.sum();
            let point = Point { long, short };
            held += wanted.count_ones();
            let mut masks = [0xee; 3];
            Boxes::holding_each(
                [(&boxes, point), (&Boxes::new(), point)].into_iter(),
                &mut masks,
            );
            let found = [boxes.one_by_one(point), boxes.holding(point), masks[0]];
            assert_eq!(found, [wanted; 3], "{boxes:?} {point:?}");
            assert_eq!(masks[2], 0xee, "no third pair");
        }
        assert!(cfg!(miri) || held > 1000, "{held}");
    }
}
