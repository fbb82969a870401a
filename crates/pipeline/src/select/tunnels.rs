//! Verdicts on packets by the contents of their tunnels.

use super::{Filters, MAX_BATCH, Misfit, matches};
use crate::PlanError;
use core::slice::from_ref;
use std::sync::Arc;
use weir_packet::flow::Parser;
use weir_packet::list::List;
use weir_packet::savefile::{Direction, Layout};
use weir_packet::{Frame, LinkType};

/// Link types of packets inside tunnels.
pub(super) const LINKS: [LinkType; 2] = [LinkType::ETHERNET, LinkType::RAW];

/// Parsers and programs to judge the innermost packets of tunnels, for each interface.
#[derive(Debug)]
pub(super) struct Inside(List<Judges>);

#[derive(Clone, Debug)]
struct Judges {
    /// Parser that finds tunnels; `None` if the link type can have none.
    parser: Option<Parser>,
    /// Programs for tunnels that carry Ethernet. `raw` has those for tunnels that carry IP.
    ethernet: Arc<Filters>,
    raw: Arc<Filters>,
}

/// The innermost packets of a batch.
pub(super) struct Tunnels<'a> {
    /// Tunneled packets of the batch: number in the batch, programs, and inner frame.
    found: [Option<(usize, &'a Filters, Frame<'a>)>; MAX_BATCH],
    len: usize,
}

impl Inside {
    /// Makes the judges for the tunnels of a layout; `known` has the judges of its first
    /// interfaces. `filters` returns the programs.
    pub fn new(
        layout: &Layout,
        known: Option<&Self>,
        filters: impl Fn(LinkType, Option<Direction>) -> Result<Arc<Filters>, PlanError>,
    ) -> Result<Self, PlanError> {
        let mut judges = known.map_or_else(List::default, |known| known.0.clone());
        for interface in layout.interfaces.iter_from(judges.len()) {
            let direction = layout.direction(judges.len());
            let [ethernet, raw] = LINKS.map(|link| filters(link, direction));
            judges.push(Judges {
                parser: Parser::new(interface.link, true),
                ethernet: ethernet?,
                raw: raw?,
            });
        }
        Ok(Self(judges))
    }

    /// Returns the innermost packets of the tunnels among the frames.
    pub fn tunnels<'a>(&'a self, frames: &[Frame<'a>]) -> Tunnels<'a> {
        let mut tunnels = Tunnels {
            found: [None; MAX_BATCH],
            len: 0,
        };
        for (i, frame) in frames.iter().enumerate() {
            let Judges {
                parser,
                ethernet,
                raw,
            } = &self.0[frame.interface as usize];
            let innermost = parser
                .as_ref()
                .and_then(|parser| parser.innermost(frame.data));
            let Some((link, data)) = innermost else {
                continue;
            };
            let filters = if link == LinkType::ETHERNET {
                ethernet
            } else {
                raw
            };
            tunnels.found[tunnels.len] = Some((i, filters, inner_frame(frame, data)));
            tunnels.len += 1;
        }
        tunnels
    }
}

/// Returns the frame of `data`, a part of the bytes of `outer`.
fn inner_frame<'a>(outer: &Frame<'a>, data: &'a [u8]) -> Frame<'a> {
    let before = data.as_ptr() as usize - outer.data.as_ptr() as usize;
    // Bytes cut off by the capture belong to the inner packet, unless it ends before them.
    let whole = before + data.len() < outer.data.len();
    let wire_len = if whole {
        data.len() as u32
    } else {
        outer.wire_len.saturating_sub(before as u32)
    };
    Frame {
        data,
        wire_len,
        interface: outer.interface,
    }
}

impl<'a> Tunnels<'a> {
    fn found(&self) -> impl Iterator<Item = &(usize, &'a Filters, Frame<'a>)> {
        self.found[..self.len].iter().flatten()
    }

    /// Returns the mask of frames that are tunnels: bit i for frame i.
    pub fn mask(&self) -> u64 {
        self.found().fold(0, |mask, (i, ..)| mask | 1 << i)
    }

    /// Corrects `verdicts` over the outer frames. For a tunnel, the verdict on the inner packet replaces that on the outer frame,
    /// by the main expression or by a split.
    #[inline]
    pub fn correct(&self, verdicts: u64, split: Option<usize>) -> u64 {
        self.found()
            .fold(verdicts, |verdicts, (i, filters, frame)| {
                verdicts & !(1 << i) | matches(filters.filter(split), from_ref(frame)) << i
            })
    }

    /// Returns the tunneled packets of `mask` for whose link type the expression makes no sense.
    pub fn misfits(&self, mask: u64, split: Option<usize>) -> impl Iterator<Item = Misfit> {
        let refused = self
            .found()
            .filter(move |(i, filters, _)| mask >> i & 1 == 1 && filters.filter(split).is_err());
        refused.map(move |(_, filters, _)| Misfit {
            link: filters.link,
            split,
            packets: 1,
        })
    }
}
