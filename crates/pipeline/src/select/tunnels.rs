//! Judging packets by what is inside their tunnels.

use super::{Filters, MAX_BATCH};
use core::slice::from_ref;
use std::sync::Arc;
use weir_filter::Filter;
use weir_packet::flow::Parser;
use weir_packet::savefile::{Direction, Interface, Layout};
use weir_packet::{Frame, LinkType};

/// What is needed to judge the innermost packets of tunnels, for each interface.
#[derive(Debug)]
pub(super) struct Inside(Vec<Judges>);

#[derive(Debug)]
struct Judges {
    /// `None` where no tunnel is looked for.
    parser: Option<Parser>,
    /// The programs for tunnels that carry Ethernet, and for those that carry IP; `None` if the expression makes no sense there.
    ethernet: Option<Arc<Filters>>,
    raw: Option<Arc<Filters>>,
}

/// The innermost packets of a batch.
pub(super) struct Tunnels<'a> {
    /// For each its number in the batch, its programs, and its bytes; as many as `len`.
    found: [(usize, Option<&'a Filters>, Frame<'a>); MAX_BATCH],
    len: usize,
}

impl Inside {
    pub fn new(layout: &Layout, filters: impl Fn(LinkType, Option<Direction>) -> Option<Arc<Filters>>) -> Self {
        let judges = |(place, interface): (usize, &Interface)| {
            let [ethernet, raw] =
                [LinkType::ETHERNET, LinkType::RAW].map(|link| filters(link, layout.direction(place)));
            Judges { parser: Parser::new(interface.link, true), ethernet, raw }
        };
        Self(layout.interfaces.iter().enumerate().map(judges).collect())
    }

    /// The programs that judge what is inside tunnels.
    pub fn filters(&self) -> impl Iterator<Item = &Arc<Filters>> {
        self.0.iter().flat_map(|judges| judges.ethernet.iter().chain(&judges.raw))
    }

    /// The innermost packets of those frames that are tunnels.
    pub fn tunnels<'a>(&'a self, frames: &[Frame<'a>]) -> Tunnels<'a> {
        const NOTHING: Frame<'static> = Frame { data: &[], wire_len: 0, interface: 0 };
        let mut tunnels = Tunnels { found: [(0, None, NOTHING); MAX_BATCH], len: 0 };
        for (i, frame) in frames.iter().enumerate() {
            let Judges { parser, ethernet, raw } = &self.0[frame.interface as usize];
            let innermost = parser.as_ref().and_then(|parser| parser.innermost(frame.data));
            let Some((link, data)) = innermost else { continue };
            let filters = if link == LinkType::ETHERNET { ethernet } else { raw };
            tunnels.found[tunnels.len] = (i, filters.as_deref(), inner_frame(frame, data));
            tunnels.len += 1;
        }
        tunnels
    }
}

/// The frame of `data`, a part of the bytes of `outer`.
fn inner_frame<'a>(outer: &Frame<'a>, data: &'a [u8]) -> Frame<'a> {
    let before = data.as_ptr() as usize - outer.data.as_ptr() as usize;
    // What the capture cut off belongs to the inner packet, unless that ends before.
    let whole = before + data.len() < outer.data.len();
    let wire_len = if whole { data.len() as u32 } else { outer.wire_len.saturating_sub(before as u32) };
    Frame { data, wire_len, interface: outer.interface }
}

impl Tunnels<'_> {
    /// `verdicts` over the frames as they are, corrected by those of `program` over what is inside the tunnels among them.
    #[inline]
    pub fn correct(&self, verdicts: u64, program: impl Fn(&Filters) -> &Filter) -> u64 {
        self.found[..self.len].iter().fold(verdicts, |verdicts, (i, filters, frame)| {
            let matches = filters.is_some_and(|filters| program(filters).matches(from_ref(frame)) != 0);
            verdicts & !(1 << i) | u64::from(matches) << i
        })
    }
}
