//! Filters for the innermost packets of frames.

use crate::{Error, Filter, Names, keep};
use weir_packet::flow::{InnerLink, Keep, Parser, Tunnels};
use weir_packet::{Frame, LinkType, Matcher};

/// A filter that judges the innermost packet of each frame: inside tags, labels, PPPoE and tunnels, and without extension headers. A
/// frame that has no other packet inside is judged itself.
#[derive(Debug)]
pub struct InnerFilter {
    /// Finder of the packets; `None` if the link type has none.
    parser: Option<Parser>,
    /// Headers at which the expression looks itself.
    keep: Keep,
    /// Filters for packets with the link header of the frame, with an Ethernet header, and without one; `None` if the expression makes
    /// no sense there, and no packet matches.
    filters: [Option<Filter>; 3],
}

impl InnerFilter {
    /// Compiles an expression for frames of `link` and the packets inside, with native code.
    ///
    /// **Errors**: the expression makes sense for none of them; the reason is that for `link`.
    pub fn compile(
        expression: &str,
        link: LinkType,
        names: &Names,
        tunnels: Tunnels,
    ) -> Result<Self, Error> {
        let links = [InnerLink::Own, InnerLink::Ethernet, InnerLink::Raw];
        let [own, ethernet, raw] =
            links.map(|inner| Filter::compile_with(expression, inner.of(link), names));
        let filters = match own {
            Err(why) if ethernet.is_err() && raw.is_err() => return Err(why),
            own => [own.ok(), ethernet.ok(), raw.ok()],
        };
        filters.iter().flatten().for_each(Filter::make_native);
        Ok(Self {
            parser: Parser::inside(link, Some(tunnels)),
            keep: keep(expression),
            filters,
        })
    }
}

impl Matcher for InnerFilter {
    fn matches(&self, frame: &Frame<'_>) -> bool {
        let inside = self
            .parser
            .as_ref()
            .and_then(|parser| parser.reframed(frame.data, self.keep));
        match inside {
            Some(packet) => self.filters[packet.link as usize]
                .as_ref()
                .is_some_and(|filter| filter.matches_inside(&packet, frame)),
            None => self.filters[0]
                .as_ref()
                .is_some_and(|filter| Matcher::matches(filter, frame)),
        }
    }
}
