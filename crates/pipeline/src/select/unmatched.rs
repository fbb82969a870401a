//! Search for the reason why an expression matched nothing: the packets may be after tags, labels, PPPoE or extension headers, or
//! in tunnels, where a tcpdump expression does not look.
//!
//! Until a packet matches, some packets are also judged without the headers around them. So a run whose packets match pays one load
//! for each batch, and no packet is read a second time.

use super::{Filters, Select};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use weir_filter::{Filter, libpcap};
use weir_packet::flow::{Around, InnerLink, Parser, Tunnels};
use weir_packet::{Frame, LinkType};

/// Number of first batches that the search judges.
const ALL: u64 = 128;

/// The search judges one in this many later batches.
const EACH: u64 = 16;

/// Search for packets that would match without the headers around them.
#[derive(Debug)]
pub(super) struct Search {
    /// Whether there is nothing to find, or a packet has matched.
    is_over: AtomicBool,
    /// Number of batches that were judged after the proof, and matched nothing.
    batches: AtomicU64,
    /// Headers around the first packet found among them.
    found: Mutex<Option<Around>>,
    /// Programs for packets inside, with an Ethernet header and without a link header.
    inside: [OnceLock<Option<Filter>>; 2],
}

impl Search {
    /// Makes a search, which is over unless `looks`.
    pub fn new(looks: bool) -> Self {
        Self {
            is_over: AtomicBool::new(!looks),
            batches: AtomicU64::new(0),
            found: Mutex::default(),
            inside: Default::default(),
        }
    }

    /// Whether the search judges more packets. **Cost**: a load.
    #[inline(always)]
    pub fn goes_on(&self) -> bool {
        !self.is_over.load(Ordering::Relaxed)
    }

    fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// Search in a piece of the source, by packets whose places are not proven.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unmatched {
    /// Headers around the first packet found.
    pub found: Option<Around>,
    batches: u64,
}

impl Unmatched {
    /// Appends the result for the next piece.
    pub fn append(&mut self, next: Self) {
        self.found = self.found.or(next.found);
    }
}

impl Select {
    /// Notes the verdicts on a batch of one link type in a search that goes on. Frames that are not in `in_span` are passed over.
    #[cold]
    #[inline(never)]
    pub(super) fn search(
        &self,
        own: &Filters,
        (frames, in_span): (&[Frame<'_>], u64),
        mask: u64,
        unmatched: &mut Unmatched,
    ) {
        if mask != 0 {
            return self.search.end();
        }
        unmatched.batches += 1;
        if unmatched.found.is_none()
            && (unmatched.batches <= ALL || unmatched.batches.is_multiple_of(EACH))
        {
            unmatched.found = self.look(own, (frames, in_span));
        }
    }

    /// As [`Self::search`], for packets that are judged after the proof.
    #[cold]
    #[inline(never)]
    pub(super) fn search_proven(&self, own: &Filters, frames: &[Frame<'_>], mask: u64) {
        let search = &self.search;
        let mut unmatched = Unmatched {
            found: None,
            batches: search.batches.fetch_add(1, Ordering::Relaxed),
        };
        self.search(own, (frames, u64::MAX), mask, &mut unmatched);
        if let Some(around) = unmatched.found {
            let mut found = search.found.lock().unwrap_or_else(PoisonError::into_inner);
            found.get_or_insert(around);
        }
    }

    /// Returns the headers around the first of these frames that would match without them.
    fn look(&self, own: &Filters, (frames, in_span): (&[Frame<'_>], u64)) -> Option<Around> {
        let parser = Parser::inside(own.link, Some(Tunnels::default()))?;
        let in_span = |(i, frame)| (in_span >> i & 1 != 0).then_some(frame);
        frames
            .iter()
            .enumerate()
            .filter_map(in_span)
            .find_map(|frame: &Frame<'_>| {
                let packet = parser.reframed(frame.data, self.keep(None))?;
                let filter = match packet.link {
                    InnerLink::Own => own.main.as_ref().ok()?,
                    InnerLink::Ethernet => self.inside(0)?,
                    InnerLink::Raw => self.inside(1)?,
                };
                filter
                    .matches_inside(&packet, frame)
                    .then_some(packet.around)
            })
    }

    /// Returns the program for packets inside, made at the first request.
    fn inside(&self, which: usize) -> Option<&Filter> {
        let link = [LinkType::ETHERNET, LinkType::RAW][which];
        let make = || {
            let program = libpcap::compile_with(self.expression(), link, self.names()).ok()?;
            Some(Filter::from_program(program))
        };
        self.search.inside[which].get_or_init(make).as_ref()
    }

    /// Returns the headers around a packet that would have matched without them, if no packet has matched. `found` is the result of
    /// the pieces that were judged before the proof.
    pub fn unmatched(&self, found: Option<Around>) -> Option<Around> {
        if !self.search.goes_on() {
            return None;
        }
        let own = self
            .search
            .found
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        found.or(*own)
    }
}
