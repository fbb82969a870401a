//! Segments that wait for their acknowledgement, of all conversations in one pool.
//!
//! Each direction of a conversation has a list, in the order of the sequence number after the segment. A new segment nearly always
//! belongs at the end, and an acknowledgement takes segments from the front, so both take a few steps. A segment that is sent again has
//! the end of the first segment, whose time counts, so only the first segment is noted.

use super::rules::is_after;

/// No segment.
const NONE: u32 = u32::MAX;

/// Most steps of the search for the place of a segment. A segment that is late by more segments gets no place.
const MOST_STEPS: usize = 1024;

/// A segment that was sent and not acknowledged.
#[derive(Clone, Copy, Debug)]
struct Segment {
    /// Time of the segment, ns.
    time_ns: i64,
    /// Sequence number after the segment.
    end: u32,
    before: u32,
    /// The next segment of the list, or of the free ones.
    after: u32,
}

/// List of the outstanding segments of one direction.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    first: u32,
    last: u32,
    len: u32,
}

impl List {
    /// No segment.
    pub const EMPTY: Self = Self {
        first: NONE,
        last: NONE,
        len: 0,
    };
}

/// Room for the outstanding segments of all conversations.
#[derive(Debug)]
pub(super) struct Pool {
    segments: Vec<Segment>,
    /// First of the free segments that were in use.
    free: u32,
    /// Most segments in all, and of one direction.
    most: usize,
    most_of_one: u32,
}

impl Pool {
    /// Bytes of a segment.
    pub const SEGMENT: usize = size_of::<Segment>();

    /// Makes room for `most` segments. The memory is used as it is needed, up to that.
    pub fn new(most: usize) -> Self {
        let most = most.min(NONE as usize - 1);
        Self {
            segments: Vec::with_capacity(most),
            free: NONE,
            most,
            most_of_one: u32::try_from(most / 8).unwrap_or(NONE),
        }
    }

    /// Notes a segment that ends at sequence number `end`. Returns whether its acknowledgement can be timed; if not, there is no
    /// room.
    pub fn push(&mut self, list: &mut List, end: u32, time_ns: i64) -> bool {
        let mut before = list.last;
        for step in 0.. {
            let Some(at) = self.segments.get(before as usize) else {
                break;
            };
            if at.end == end {
                return true;
            }
            if is_after(end, at.end) {
                break;
            }
            // A segment in front of all, or the oldest one again.
            let first = self.segments[list.first as usize].end;
            if !is_after(end, first) {
                if end == first {
                    return true;
                }
                before = NONE;
                break;
            }
            if step == MOST_STEPS {
                return false;
            }
            before = at.before;
        }
        if list.len >= self.most_of_one {
            return false;
        }
        let Some(new) = self.take() else { return false };
        let after = match self.segments.get_mut(before as usize) {
            Some(at) => std::mem::replace(&mut at.after, new),
            None => std::mem::replace(&mut list.first, new),
        };
        match self.segments.get_mut(after as usize) {
            Some(at) => at.before = new,
            None => list.last = new,
        }
        self.segments[new as usize] = Segment {
            time_ns,
            end,
            before,
            after,
        };
        list.len += 1;
        true
    }

    /// Removes the segments that `ack` acknowledges. Returns the time of the oldest segment that ends there, ns, if there is such a segment.
    pub fn acknowledge(&mut self, list: &mut List, ack: u32) -> Option<i64> {
        let mut time_ns = None;
        while let Some(&Segment {
            time_ns: time,
            end,
            after,
            ..
        }) = self.segments.get(list.first as usize)
            && !is_after(end, ack)
        {
            if end == ack {
                time_ns = Some(time);
            }
            self.segments[list.first as usize].after = self.free;
            self.free = list.first;
            list.first = after;
            list.len -= 1;
        }
        match self.segments.get_mut(list.first as usize) {
            Some(first) => first.before = NONE,
            None => list.last = NONE,
        }
        time_ns
    }

    /// Removes all segments of a list. **Cost**: constant.
    pub fn clear(&mut self, list: &mut List) {
        if let Some(last) = self.segments.get_mut(list.last as usize) {
            last.after = self.free;
            self.free = list.first;
        }
        *list = List::EMPTY;
    }

    /// Takes a free segment.
    fn take(&mut self) -> Option<u32> {
        if let Some(segment) = self.segments.get(self.free as usize) {
            return Some(std::mem::replace(&mut self.free, segment.after));
        }
        let new = self.segments.len();
        if new == self.most {
            return None;
        }
        // Within the capacity: no allocation.
        self.segments.push(Segment {
            time_ns: 0,
            end: 0,
            before: NONE,
            after: NONE,
        });
        Some(new as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_testkit::Random;

    /// The rule itself: of all segments that end where an acknowledgement says, the oldest counts; all that it covers are done.
    #[derive(Default)]
    struct Naive(Vec<(u32, i64)>);

    impl Naive {
        fn acknowledge(&mut self, ack: u32) -> Option<i64> {
            let time = self
                .0
                .iter()
                .find(|(end, _)| *end == ack)
                .map(|(_, time)| *time);
            self.0.retain(|(end, _)| is_after(*end, ack));
            time
        }
    }

    #[test]
    fn acknowledgements_find_the_segments_that_a_search_through_all_finds() {
        let mut random = Random(7);
        let mut pool = Pool::new(4096);
        for round in 0..200 {
            let (mut list, mut naive) = (List::EMPTY, Naive::default());
            let mut next = random.next() as u32;
            let mut acknowledged = next;
            for time in 0..300 {
                match random.next() % 8 {
                    0..4 => {
                        let end = next.wrapping_add(1 + random.next() as u32 % 3);
                        next = end;
                        assert!(pool.push(&mut list, end, time));
                        naive.0.push((end, time));
                    }
                    // Again, or late, or what was acknowledged.
                    4..6 => {
                        let end = next.wrapping_sub(random.next() as u32 % 40);
                        assert!(pool.push(&mut list, end, time));
                        naive.0.push((end, time));
                    }
                    _ => {
                        let open = next.wrapping_sub(acknowledged);
                        acknowledged = acknowledged.wrapping_add(random.next() as u32 % (open + 1));
                        assert_eq!(
                            pool.acknowledge(&mut list, acknowledged),
                            naive.acknowledge(acknowledged),
                            "round {round}"
                        );
                    }
                }
            }
            pool.clear(&mut list);
        }
        assert!(
            pool.segments.len() < 1000,
            "cleared segments are used again"
        );
    }

    #[test]
    fn a_full_pool_takes_no_segment_until_one_is_acknowledged() {
        let mut pool = Pool::new(16);
        let mut lists = [List::EMPTY; 9];
        for (i, list) in lists.iter_mut().enumerate() {
            // Two for each, and then none is left.
            assert_eq!(pool.push(list, 1, 0), i < 8);
            assert_eq!(pool.push(list, 2, 0), i < 8);
            assert!(!pool.push(list, 3, 0));
        }
        assert_eq!(pool.acknowledge(&mut lists[0], 1), Some(0));
        assert!(pool.push(&mut lists[8], 1, 5));
        assert_eq!(pool.acknowledge(&mut lists[8], 1), Some(5));
    }
}
