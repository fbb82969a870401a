//! Verdicts on the innermost packets of frames.

use super::{Filters, Misfit};
use crate::PlanError;
use std::sync::Arc;
use weir_packet::flow::{InnerLink, Keep, Parser, Tunnels};
use weir_packet::list::List;
use weir_packet::savefile::{Direction, Layout};
use weir_packet::{Frame, LinkType};

/// Link types of innermost packets, in addition to the link type of the frame.
pub(super) const LINKS: [LinkType; 2] = [LinkType::ETHERNET, LinkType::RAW];

/// Parsers and programs to judge the innermost packets of frames, for each interface.
#[derive(Debug)]
pub(super) struct Inside(List<Judges>);

#[derive(Clone, Debug)]
struct Judges {
    /// Parser that finds the packets; `None` if the link type can have none.
    parser: Option<Parser>,
    /// Programs for packets inside that begin with an Ethernet header. `raw` has those for packets that begin with an IP header.
    ethernet: Arc<Filters>,
    raw: Arc<Filters>,
}

/// Verdicts on the frames of a batch that have an innermost packet other than themselves. Bit i of a mask belongs to frame i.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Verdicts {
    /// Mask of these frames.
    pub mask: u64,
    /// Mask of the frames whose innermost packets match.
    matching: u64,
    /// Masks of the frames for which the expression makes no sense, by the link type of the innermost packet.
    senseless: [u64; 3],
}

impl Inside {
    /// Makes the judges for a layout; `known` has the judges of its first interfaces. `filters` returns the programs.
    pub fn new(
        layout: &Layout,
        tunnels: Tunnels,
        known: Option<&Self>,
        filters: impl Fn(LinkType, Option<Direction>) -> Result<Arc<Filters>, PlanError>,
    ) -> Result<Self, PlanError> {
        let mut judges = known.map_or_else(List::default, |known| known.0.clone());
        for interface in layout.interfaces.iter_from(judges.len()) {
            let direction = layout.direction(judges.len());
            let [ethernet, raw] = LINKS.map(|link| filters(link, direction));
            judges.push(Judges {
                parser: Parser::inside(interface.link, Some(tunnels)),
                ethernet: ethernet?,
                raw: raw?,
            });
        }
        Ok(Self(judges))
    }

    /// Judges the innermost packets of frames, by the main expression or by a split, whose programs for the frames themselves are
    /// `own`. The expression looks itself at the headers that `keep` names.
    pub fn judge(
        &self,
        own: &Filters,
        frames: &[Frame<'_>],
        split: Option<usize>,
        keep: Keep,
    ) -> Verdicts {
        let mut verdicts = Verdicts::default();
        for (i, frame) in frames.iter().enumerate() {
            let Judges {
                parser,
                ethernet,
                raw,
            } = &self.0[frame.interface as usize];
            let Some(packet) = parser
                .as_ref()
                .and_then(|parser| parser.reframed(frame.data, keep))
            else {
                continue;
            };
            let filters = match packet.link {
                InnerLink::Own => own,
                InnerLink::Ethernet => ethernet,
                InnerLink::Raw => raw,
            };
            verdicts.mask |= 1 << i;
            match filters.filter(split) {
                Ok(filter) => {
                    verdicts.matching |= u64::from(filter.matches_inside(&packet, frame)) << i;
                }
                Err(_) => verdicts.senseless[packet.link as usize] |= 1 << i,
            }
        }
        verdicts
    }
}

impl Verdicts {
    /// Corrects `verdicts` over the frames themselves: the verdict on an innermost packet replaces that on its frame.
    #[inline]
    pub fn correct(&self, verdicts: u64) -> u64 {
        verdicts & !self.mask | self.matching
    }

    /// Returns the innermost packets of `mask` for whose link types the expression makes no sense. `own` is the link type of the
    /// frames.
    pub fn misfits(
        &self,
        mask: u64,
        own: LinkType,
        split: Option<usize>,
    ) -> impl Iterator<Item = Misfit> {
        let links = [InnerLink::Own, InnerLink::Ethernet, InnerLink::Raw];
        let senseless = self.senseless;
        links.into_iter().filter_map(move |link| {
            let packets = u64::from((senseless[link as usize] & mask).count_ones());
            (packets > 0).then_some(Misfit {
                link: link.of(own),
                split,
                packets,
            })
        })
    }
}
