//! Scans: a compiled filter over what a ring holds.

use super::{Cursor, From, History, Piece};
use std::ops::RangeInclusive;
use std::sync::Arc;
use weir_filter::{Error, Filter, InnerFilter, Names};
use weir_memory::prefetch;
use weir_packet::flow::Tunnels;
use weir_packet::savefile::{Interface, Record};
use weir_packet::{Frame, LinkType, Matcher};

/// Number of packets judged at once.
const BATCH: usize = 32;

/// Number of packets whose first line is fetched before it is needed.
const AHEAD: usize = 16;

/// An expression, compiled for each interface.
#[derive(Debug)]
pub struct Filters {
    expression: String,
    /// Meaning of the names in the expression.
    names: Names,
    judging: Judging,
    /// Filter of each interface; `None` if the expression makes no sense for its link type.
    by_interface: Vec<Option<Judge>>,
    /// Whether all interfaces have the same filter.
    same: bool,
}

/// Packet of a frame that an expression judges.
#[derive(Clone, Copy, Debug)]
enum Judging {
    /// The frame.
    Frame,
    /// The frame, after VLAN tags too.
    BehindTags,
    /// The innermost packet.
    Inside(Tunnels),
}

/// A filter of frames or of innermost packets.
#[derive(Clone, Debug)]
enum Judge {
    Frame(Arc<Filter>),
    Inside(Arc<InnerFilter>),
}

impl Judge {
    fn compile(
        expression: &str,
        link: LinkType,
        names: &Names,
        judging: Judging,
    ) -> Result<Self, Error> {
        let behind_tags = match judging {
            Judging::Frame => false,
            Judging::BehindTags => true,
            Judging::Inside(tunnels) => {
                let filter = InnerFilter::compile(expression, link, names, tunnels)?;
                return Ok(Self::Inside(Arc::new(filter)));
            }
        };
        let text = weir_filter::for_link(expression, link, behind_tags);
        let filter = Filter::compile_with(&text, link, names)?;
        filter.make_native();
        Ok(Self::Frame(Arc::new(filter)))
    }

    fn matches(&self, frame: &Frame<'_>) -> bool {
        match self {
            Self::Frame(filter) => Matcher::matches(&**filter, frame),
            Self::Inside(filter) => filter.matches(frame),
        }
    }
}

impl Filters {
    /// Compiles an expression for packets of these interfaces. No packet matches of an interface for whose link type the expression
    /// makes no sense. `names` says what the names in the expression mean.
    ///
    /// **Errors**: the expression makes sense for none of them. **Cost**: milliseconds for each link type.
    pub fn compile(
        expression: &str,
        interfaces: &[Interface],
        names: &Names,
    ) -> Result<Self, Error> {
        Self::of(expression, interfaces, names, Judging::Frame)
    }

    /// As [`Self::compile`], for packets after VLAN tags too; see [`weir_filter::for_link`].
    pub fn compile_behind_tags(
        expression: &str,
        interfaces: &[Interface],
        names: &Names,
    ) -> Result<Self, Error> {
        Self::of(expression, interfaces, names, Judging::BehindTags)
    }

    /// As [`Self::compile`], for the innermost packets of frames; see [`InnerFilter`].
    pub fn compile_inside(
        expression: &str,
        interfaces: &[Interface],
        names: &Names,
        tunnels: Tunnels,
    ) -> Result<Self, Error> {
        Self::of(expression, interfaces, names, Judging::Inside(tunnels))
    }

    fn of(
        expression: &str,
        interfaces: &[Interface],
        names: &Names,
        judging: Judging,
    ) -> Result<Self, Error> {
        let mut links: Vec<(LinkType, Option<Judge>)> = Vec::new();
        let mut refused = None;
        for interface in interfaces {
            if links.iter().any(|(link, _)| *link == interface.link) {
                continue;
            }
            let filter = match Judge::compile(expression, interface.link, names, judging) {
                Ok(filter) => Some(filter),
                Err(error) => {
                    refused = Some(error);
                    None
                }
            };
            links.push((interface.link, filter));
        }
        if let (Some(error), true) = (refused, links.iter().all(|(_, filter)| filter.is_none())) {
            return Err(error);
        }
        let of = |link: LinkType| {
            links
                .iter()
                .find(|known| known.0 == link)
                .and_then(|known| known.1.clone())
        };
        let by_interface = interfaces
            .iter()
            .map(|interface| of(interface.link))
            .collect();
        Ok(Self {
            expression: expression.to_owned(),
            names: names.clone(),
            judging,
            by_interface,
            same: links.len() == 1,
        })
    }

    /// Number of interfaces for which the expression is compiled.
    pub fn interfaces(&self) -> usize {
        self.by_interface.len()
    }

    /// Mask of the matching frames: bit i is set if frame i matches. **Shape**: at most 64 frames.
    #[inline]
    pub fn matches(&self, frames: &[Frame<'_>]) -> u64 {
        if self.same
            && let Some(Some(Judge::Frame(filter))) = self.by_interface.first()
        {
            return filter.matches(frames);
        }
        self.matches_each(frames)
    }

    fn matches_each(&self, frames: &[Frame<'_>]) -> u64 {
        frames.iter().enumerate().fold(0, |mask, (index, frame)| {
            let filter = self
                .by_interface
                .get(frame.interface as usize)
                .and_then(Option::as_ref);
            mask | u64::from(filter.is_some_and(|filter| filter.matches(frame))) << index
        })
    }

    /// Appends the indices of the matching packets of a piece to `found`. **Cost**: one cache line of most packets.
    pub fn find(&self, piece: &Piece, found: &mut Vec<u32>) {
        let (bytes, offsets) = piece.bytes();
        let mut frames = [Frame {
            data: &[],
            wire_len: 0,
            interface: 0,
        }; BATCH];
        for index in 0..AHEAD.min(piece.len()) {
            prefetch(bytes, piece.offset(offsets, index));
        }
        for begin in (0..piece.len()).step_by(BATCH) {
            let count = BATCH.min(piece.len() - begin);
            for (place, index) in frames[..count].iter_mut().zip(begin..) {
                if index + AHEAD < piece.len() {
                    prefetch(bytes, piece.offset(offsets, index + AHEAD));
                }
                let at = piece.offset(offsets, index);
                *place = crate::record::frame(&bytes[at..]).expect("whole records are published");
            }
            let mut mask = self.matches(&frames[..count]);
            while mask != 0 {
                found.push(begin as u32 + mask.trailing_zeros());
                mask &= mask - 1;
            }
        }
    }
}

/// Matching packets of a piece.
#[derive(Debug)]
pub struct Matches {
    /// The piece that holds them.
    pub piece: Piece,
    /// Indices of the matching packets, ascending.
    pub found: Vec<u32>,
}

impl Matches {
    /// The matching packets, oldest first.
    pub fn records(&self) -> impl Iterator<Item = Record<'_>> {
        self.found
            .iter()
            .map(|&index| self.piece.record(index as usize))
    }
}

/// A scan of one ring: matching packets that the ring has when the scan begins, or also later
/// packets.
#[derive(Debug)]
pub struct Scan {
    cursor: Cursor,
    filters: Option<Arc<Filters>>,
    /// Number of interfaces for which the filters were last compiled.
    interfaces: usize,
    /// Number of the first packet that is not part of the scan.
    until: u64,
    /// Packets that are gone and not part of the scan.
    behind: u64,
    /// Packets of the scan that are gone, and after which the cursor finds none.
    rest: u64,
    times_ns: RangeInclusive<i64>,
    spare: Vec<u32>,
}

impl Scan {
    /// A scan from packet `from` on, of packets within `times_ns` (ns since 1970) that match; without filters all match. A packet
    /// without a time is within any times; without `from`, unless all others of its chunk are earlier.
    pub fn new(
        history: &History,
        from: Option<u64>,
        filters: Option<Arc<Filters>>,
        times_ns: RangeInclusive<i64>,
    ) -> Self {
        let until = history.next();
        let from = from.map_or(From::Time(*times_ns.start()), From::Number);
        let interfaces = filters.as_ref().map_or(0, |filters| filters.interfaces());
        Self {
            cursor: history.cursor(from),
            filters,
            interfaces,
            until,
            behind: 0,
            rest: 0,
            times_ns,
            spare: Vec::new(),
        }
    }

    /// A scan that includes later packets: [`Self::next`] may find none now, and some later.
    pub fn following(self) -> Self {
        Self {
            until: u64::MAX,
            ..self
        }
    }

    /// The next piece, and what matches in it; `None` at the end. `now` as for [`Cursor::next`].
    pub fn next(&mut self, now: u64) -> Option<Matches> {
        if self
            .cursor
            .number()
            .is_some_and(|number| number >= self.until)
        {
            return None;
        }
        let starved = self.cursor.starved();
        let piece = self.cursor.next(now);
        let is_over = piece.is_none() && self.cursor.starved() == starved && self.until != u64::MAX;
        self.rest = self
            .cursor
            .number()
            .filter(|_| is_over)
            .map_or(0, |number| self.until.saturating_sub(number));
        let reached = piece
            .as_ref()
            .map(|piece| piece.number(0))
            .or(self.cursor.number());
        self.behind = reached.unwrap_or(0).saturating_sub(self.until);
        let mut piece = piece.filter(|piece| piece.number(0) < self.until)?;
        piece.truncate((self.until - piece.number(0)) as usize);
        self.refresh();
        let mut found = std::mem::take(&mut self.spare);
        found.clear();
        match &self.filters {
            Some(filters) => filters.find(&piece, &mut found),
            None => found.extend(0..piece.len() as u32),
        }
        let times_ns = &self.times_ns;
        if *times_ns != (i64::MIN..=i64::MAX) {
            let is_within = |index: &u32| {
                piece
                    .record(*index as usize)
                    .time_ns
                    .is_none_or(|time| times_ns.contains(&time))
            };
            found.retain(is_within);
        }
        Some(Matches { piece, found })
    }

    /// Compiles the filters for interfaces that were announced in the meantime, before their
    /// packets.
    fn refresh(&mut self) {
        let Some(filters) = &mut self.filters else {
            return;
        };
        if self.cursor.history.interface_count() > self.interfaces {
            let interfaces = self.cursor.history.interfaces();
            self.interfaces = interfaces.len();
            // Packets of an interface for which the expression makes no sense do not match.
            if let Ok(more) = Filters::of(
                &filters.expression,
                &interfaces,
                &filters.names,
                filters.judging,
            ) {
                *filters = Arc::new(more);
            }
        }
    }

    /// Gives back the pin until the next look, as [`Cursor::rest`].
    pub fn rest(&mut self) {
        self.cursor.rest();
    }

    /// Takes back a piece that is done, so that [`Self::next`] allocates nothing.
    pub fn reuse(&mut self, matches: Matches) {
        self.spare = matches.found;
    }

    /// Number of packets that were gone before the scan came to them.
    pub fn missed(&self) -> u64 {
        self.cursor.missed().saturating_sub(self.behind) + self.rest
    }

    /// Number of looks that failed, as for [`Cursor::starved`].
    pub fn starved(&self) -> u64 {
        self.cursor.starved()
    }
}

/// Scans of several rings, merged in time order.
#[derive(Debug)]
pub struct Merged {
    scans: Vec<Part>,
}

#[derive(Debug)]
struct Part {
    scan: Scan,
    matches: Option<Matches>,
    /// Number of packets of `matches` that are taken.
    taken: usize,
    /// Time of the next packet, or of the one before it if it has none.
    time_ns: i64,
}

impl Part {
    /// Moves on to a packet; `false` at the end.
    fn settle(&mut self, now: u64) -> bool {
        loop {
            if let Some(matches) = &self.matches {
                if let Some(&index) = matches.found.get(self.taken) {
                    self.time_ns = matches
                        .piece
                        .record(index as usize)
                        .time_ns
                        .unwrap_or(self.time_ns);
                    return true;
                }
                if let Some(done) = self.matches.take() {
                    self.scan.reuse(done);
                }
            }
            self.taken = 0;
            self.matches = self.scan.next(now);
            if self.matches.is_none() {
                return false;
            }
        }
    }
}

impl Merged {
    /// Merges scans. Packets of equal times are in the order of the scans; each ring's packets keep
    /// their order.
    pub fn new(scans: impl IntoIterator<Item = Scan>) -> Self {
        let part = |scan| Part {
            scan,
            matches: None,
            taken: 0,
            time_ns: i64::MIN,
        };
        Self {
            scans: scans.into_iter().map(part).collect(),
        }
    }

    /// Hands the next packet to `each`, with the index of its scan and its number; `None` at the end. `now` as for [`Cursor::next`].
    ///
    /// **Cost**: a look at each scan's next packet.
    pub fn next<T>(
        &mut self,
        now: u64,
        each: impl FnOnce(usize, u64, &Record<'_>) -> T,
    ) -> Option<T> {
        let mut first: Option<(i64, usize)> = None;
        for (index, part) in self.scans.iter_mut().enumerate() {
            if part.settle(now) && first.is_none_or(|(time_ns, _)| part.time_ns < time_ns) {
                first = Some((part.time_ns, index));
            }
        }
        let (_, index) = first?;
        let part = &mut self.scans[index];
        let matches = part.matches.as_ref()?;
        let place = matches.found[part.taken] as usize;
        part.taken += 1;
        Some(each(
            index,
            matches.piece.number(place),
            &matches.piece.record(place),
        ))
    }

    /// Number of packets that were gone before the scans came to them.
    pub fn missed(&self) -> u64 {
        self.scans.iter().map(|part| part.scan.missed()).sum()
    }
}
