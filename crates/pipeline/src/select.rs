//! Selection of packets by one expression, and by further expressions that split the packets kept.
//!
//! libpcap compiles an expression for one link type, and may refuse it there: `tcp` means nothing to USB. Packets of such a
//! link type do not match, and are counted as [`Misfit`]s. If no link type takes an expression, it is refused at once. If none of
//! a source's link types takes it, the expression is refused when all of them are known: see [`Select::refusal`].

mod span;
mod tunnels;
mod unmatched;

use crate::bits::Bits;
use crate::{PlanError, Slow, With, threads};
use span::Limits;
pub use span::{Span, seconds};
use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tunnels::{Inside, Verdicts};
use unmatched::Search;
pub use unmatched::Unmatched;
use weir_filter::{Error, Filter, Names, Program, libpcap};
use weir_packet::flow::{Keep, Tunnels};
use weir_packet::list::List;
use weir_packet::savefile::{Direction, Format, Layout};
use weir_packet::{Frame, LinkType};

/// Number of link types of one run that get native code: its compilation takes a millisecond, and a file can name thousands of
/// link types.
const MOST_NATIVE: usize = 64;

/// Settings of a selection.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// The tcpdump expression that packets must match; empty matches all.
    pub expression: String,
    /// Whether the expression is also judged after VLAN tags; see [`weir_filter::for_link`].
    pub behind_tags: bool,
    /// Whether the packets that do not match are kept instead.
    pub invert: bool,
    /// Tunnels into which is looked, if the innermost packets of frames are judged: those inside tags, labels, PPPoE and tunnels, and
    /// without extension headers. `None` if frames are judged as they are.
    pub inner: Option<Tunnels>,
    /// Times of the packets kept. A run with times judges before the [proof](crate::stages).
    pub span: Span,
    /// Expressions over the packets kept, each with its own output.
    pub splits: Vec<String>,
    /// Meaning of the names in the expressions.
    pub names: Names,
    /// Whether results are given before a source ends. If so, the first layout decides whether the expression fits the source.
    pub at_once: bool,
    /// Whether native code is never made (for comparisons).
    pub interpret: bool,
    /// Stop flag: once set, no further expression is compiled, and a compilation under way is abandoned.
    pub stop: Arc<AtomicBool>,
    /// Told when an expression takes longer than a second to compile.
    pub slow: Slow,
}

/// Link types with keywords of their own in the language of libpcap: an expression refused for all of them is wrong as such. The
/// first one takes nearly all expressions that any link type takes.
const KNOWN: [u16; 14] = [
    1, 101, 113, 105, 127, 117, 9, 107, 123, 139, 140, 201, 276, 0,
];

/// Checks that an expression makes sense for some link type, before the packets' link types are
/// known.
///
/// **Errors**: that of the first link type, if every one refuses it; the expression is wrong as such then. **Cost**: that of a
/// compilation for each link type that refuses it; it may take minutes, as [`compile`] says.
pub fn check(expression: &str, names: &Names) -> Result<(), Error> {
    // Each try may ask a resolver.
    let known = if names.resolve {
        &KNOWN[..1]
    } else {
        &KNOWN[..]
    };
    let mut refused = known
        .iter()
        .map(|&link| libpcap::compile_with(expression, LinkType(link), names).err());
    match refused.next() {
        Some(Some(why)) if refused.all(|other| other.is_some()) => Err(why),
        _ => Ok(()),
    }
}

/// The filter of a run and its splits, one of the [revocable stages](crate::stages).
#[derive(Debug)]
pub struct Select {
    selection: Selection,
    limits: Limits,
    /// Headers at which each expression looks itself: first the main expression, then the splits.
    keeps: Vec<Keep>,
    search: Search,
    /// Filters made so far: one set for each link type and direction, for any number of interfaces. If no expression asks for the
    /// direction, both directions share a set.
    made: Mutex<Vec<Made>>,
}

/// Filters for packets of one link type and one direction; the direction may be unknown.
#[derive(Debug)]
struct Made {
    link: LinkType,
    direction: Option<Direction>,
    filters: Arc<Filters>,
}

/// Result of a compilation for a link type, or the reason for which the expression makes no sense for it.
type Sense<T> = Result<T, PlanError>;

/// Programs of the main expression and of the splits for one link type; programs of a live capture are for both directions.
struct Compiled {
    main: Sense<Program>,
    splits: Vec<Sense<Program>>,
}

impl Compiled {
    /// Whether received packets and sent packets are judged by different programs.
    fn asks_direction(&self) -> bool {
        let programs = std::iter::once(&self.main).chain(&self.splits).flatten();
        programs.into_iter().any(|program| {
            program.of_direction(Direction::In) != program.of_direction(Direction::Out)
        })
    }

    /// Returns the filters for packets of one direction, or of any.
    fn filters(&self, link: LinkType, direction: Option<Direction>) -> Arc<Filters> {
        let filter = |program: &Sense<Program>| {
            let program = program.clone()?;
            Ok(Filter::from_program(match direction {
                Some(direction) => program.of_direction(direction),
                None => program,
            }))
        };
        let (main, splits) = (filter(&self.main), self.splits.iter().map(filter).collect());
        Arc::new(Filters {
            link,
            main,
            splits,
            misfits: AtomicU64::new(0),
            settled: AtomicBool::new(false),
        })
    }
}

/// The filters for one link type.
#[derive(Debug)]
pub struct Filters {
    link: LinkType,
    main: Sense<Filter>,
    splits: Vec<Sense<Filter>>,
    /// Number of packets that [`Select::kept`] rejected because the main expression makes no sense for them.
    misfits: AtomicU64,
    /// Whether native code is made or in the making.
    settled: AtomicBool,
}

impl Filters {
    fn all(&self) -> impl Iterator<Item = &Sense<Filter>> {
        std::iter::once(&self.main).chain(&self.splits)
    }

    fn make_native(&self) {
        self.all().flatten().for_each(Filter::make_native);
    }

    /// Returns the filter of the main expression, or of a split.
    fn filter(&self, split: Option<usize>) -> &Sense<Filter> {
        split.map_or(&self.main, |split| &self.splits[split])
    }

    /// Whether the main expression makes sense and is interpreted.
    fn is_interpreted(&self) -> bool {
        self.main.as_ref().is_ok_and(|filter| !filter.is_native())
    }
}

/// Returns the mask of matching frames: bit i for frame i. If the expression makes no sense, no frame matches.
#[inline]
fn matches(filter: &Sense<Filter>, frames: &[Frame<'_>]) -> u64 {
    filter.as_ref().map_or(0, |filter| filter.matches(frames))
}

/// Returns the mask of frames that match the main expression, or that of a split. `inside` has the verdicts on innermost packets.
#[inline]
fn matched(
    filters: &Filters,
    frames: &[Frame<'_>],
    inside: Option<&Verdicts>,
    split: Option<usize>,
) -> u64 {
    let verdicts = matches(filters.filter(split), frames);
    inside.map_or(verdicts, |inside| inside.correct(verdicts))
}

/// Notes the frames of `mask` for which the main expression, or that of a split, makes no sense.
#[inline]
fn note_misfits(
    part: &mut Selected,
    filters: &Filters,
    inside: Option<&Verdicts>,
    split: Option<usize>,
    mask: u64,
) {
    let outside = mask & !inside.map_or(0, |inside| inside.mask);
    if filters.filter(split).is_err() && outside != 0 {
        let packets = outside.count_ones().into();
        Misfit::add(
            &mut part.misfits,
            Misfit {
                link: filters.link,
                split,
                packets,
            },
        );
    }
    if let Some(inside) = inside {
        inside
            .misfits(mask, filters.link, split)
            .for_each(|misfit| Misfit::add(&mut part.misfits, misfit));
    }
}

/// Programs for the interfaces of a layout.
#[derive(Clone, Debug)]
struct Programs {
    by_interface: List<Arc<Filters>>,
    /// Whether all interfaces have one link type, so that a batch is judged in one call.
    uniform: bool,
    /// For the main expression and each split: whether it makes sense for one of the interfaces, or inside its tunnels.
    sense: Vec<bool>,
}

impl Default for Programs {
    fn default() -> Self {
        Self {
            by_interface: List::default(),
            uniform: true,
            sense: Vec::new(),
        }
    }
}

impl Programs {
    /// Adds the filters of the next interface.
    fn push(&mut self, filters: Arc<Filters>) {
        self.uniform &= self
            .by_interface
            .first()
            .is_none_or(|first| Arc::ptr_eq(first, &filters));
        self.note_sense(&filters);
        self.by_interface.push(filters);
    }

    fn note_sense(&mut self, filters: &Filters) {
        self.sense.resize(1 + filters.splits.len(), false);
        self.sense
            .iter_mut()
            .zip(filters.all())
            .for_each(|(sense, program)| *sense |= program.is_ok());
    }

    /// Returns the refusal of the main expression, or of a split, if it makes sense for none of these interfaces.
    fn refused(&self, split: Option<usize>) -> Option<PlanError> {
        let first = self.by_interface.first()?.filter(split).as_ref().err()?;
        let makes_sense = self.sense[split.map_or(0, |split| 1 + split)];
        (!makes_sense).then(|| first.clone())
    }
}

/// Packets of a link type that do not match because an expression makes no sense for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// The link type.
    pub link: LinkType,
    /// Number of the split; `None` for the main expression.
    pub split: Option<usize>,
    /// Number of packets.
    pub packets: u64,
}

impl Misfit {
    /// Adds `more` to the entry of the same link type and split in `sums`.
    pub fn add(sums: &mut Vec<Self>, more: Self) {
        match sums
            .iter_mut()
            .find(|sum| (sum.link, sum.split) == (more.link, more.split))
        {
            Some(sum) => sum.packets += more.packets,
            None => sums.push(more),
        }
    }
}

/// Plan of a selection: the programs for each interface of a layout.
#[derive(Debug)]
pub struct SelectPlan {
    here: Programs,
    /// Whether the main expression makes sense for one of the interfaces.
    fits: bool,
    big_endian: bool,
    /// Programs made so far for sections in the other byte order.
    other: Programs,
    /// Judges of the innermost packets, if these are judged.
    inside: Option<Inside>,
}

impl SelectPlan {
    /// Whether packets of this layout can match.
    pub fn fits(&self) -> bool {
        self.fits
    }
}

/// Sums over the verdicts on a piece of the source. A stage that clears a bit of a
/// [mask](crate::stages::Columns) also corrects them.
#[derive(Clone, Debug, Default)]
pub struct Selected {
    /// Number of packets that pass.
    pub passed: u64,
    /// Number of packets that the filter rejected.
    pub filtered: u64,
    /// Number of packets that a firewall denied.
    pub denied: u64,
    /// Number of control packets that a firewall obeyed.
    pub controls: u64,
    /// Number of duplicates that were left out.
    pub duplicates: u64,
    /// Wire bytes of the packets that pass.
    pub bytes: u64,
    /// Sums of each split.
    pub splits: Vec<SplitSums>,
    /// Packets for which an expression makes no sense.
    pub misfits: Vec<Misfit>,
    /// Search for packets that would match without the headers around them.
    pub unmatched: Unmatched,
}

/// Sums over the packets of one split in a piece of the source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SplitSums {
    /// Number of packets of the split.
    pub passed: u64,
    /// Wire bytes of these packets.
    pub bytes: u64,
}

impl Selected {
    /// Subtracts packets that are in no count any more, but for their misfits. Sums never go below 0: another process may have changed
    /// the lengths in a mapped file since they were added up.
    pub fn lessen(&mut self, less: &Self) {
        let sub = |sum: &mut u64, less: u64| *sum = sum.saturating_sub(less);
        sub(&mut self.passed, less.passed);
        sub(&mut self.filtered, less.filtered);
        sub(&mut self.denied, less.denied);
        sub(&mut self.controls, less.controls);
        sub(&mut self.duplicates, less.duplicates);
        sub(&mut self.bytes, less.bytes);
        for (split, less) in self.splits.iter_mut().zip(&less.splits) {
            sub(&mut split.passed, less.passed);
            sub(&mut split.bytes, less.bytes);
        }
    }

    /// Appends the result for the next piece.
    pub fn append(&mut self, next: Self) {
        self.passed += next.passed;
        self.filtered += next.filtered;
        self.denied += next.denied;
        self.controls += next.controls;
        self.duplicates += next.duplicates;
        self.bytes += next.bytes;
        self.splits.resize(
            self.splits.len().max(next.splits.len()),
            SplitSums::default(),
        );
        for (split, more) in self.splits.iter_mut().zip(next.splits) {
            split.passed += more.passed;
            split.bytes += more.bytes;
        }
        next.misfits
            .into_iter()
            .for_each(|misfit| Misfit::add(&mut self.misfits, misfit));
        self.unmatched.append(next.unmatched);
    }
}

impl Select {
    /// Makes the filter for `selection`. Nothing is compiled yet.
    pub fn new(selection: Selection) -> Self {
        let expressions = std::iter::once(&selection.expression).chain(&selection.splits);
        let keeps = expressions
            .map(|expression| weir_filter::keep(expression))
            .collect();
        let has_expression = !selection.expression.trim().is_empty();
        let looks = has_expression
            && !selection.invert
            && !selection.behind_tags
            && selection.inner.is_none();
        Self {
            limits: Limits::new(&selection.span),
            selection,
            keeps,
            search: Search::new(looks),
            made: Mutex::default(),
        }
    }

    /// Returns the headers at which the main expression or a split's expression looks itself.
    fn keep(&self, split: Option<usize>) -> Keep {
        self.keeps[split.map_or(0, |split| split + 1)]
    }

    /// Returns the same filter with another expression, to [take its place](crate::stages::Stages::replace). The new one is
    /// compiled, with native code, for all link types and directions of this one. **Cost**: milliseconds, in the caller's thread.
    ///
    /// **Errors**: the expression is wrong, or makes sense for none of these link types.
    pub fn with_expression(&self, expression: &str) -> Result<Self, PlanError> {
        self.with(expression, self.selection.names.clone())
    }

    /// As [`Self::with_expression`], also with other sets of addresses, which the splits also use.
    ///
    /// **Errors**: as of [`Self::with_expression`].
    pub fn with(&self, expression: &str, names: Names) -> Result<Self, PlanError> {
        let selection = Selection {
            expression: expression.to_owned(),
            names,
            ..self.selection.clone()
        };
        let new = Self::new(selection);
        new.limits.follow(&self.limits);
        let known: Vec<_> = {
            let made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
            made.iter()
                .map(|made| (made.link, made.direction))
                .collect()
        };
        if known.is_empty() {
            // Finds wrong words only: the link types of the packets are not known yet.
            let _ = new.compile(expression, LinkType::ETHERNET, false)?;
        }
        let made = known
            .iter()
            .map(|&(link, direction)| new.filters(link, direction));
        let made = made.collect::<Result<Vec<_>, _>>()?;
        if let (Some(Err(refused)), false) = (
            made.first().map(|filters| &filters.main),
            made.iter().any(|filters| filters.main.is_ok()),
        ) {
            return Err(refused.clone());
        }
        new.warm_up(false);
        Ok(new)
    }

    /// Whether a kernel program for the expression alone rejects no packet that this filter keeps.
    pub fn suits_a_filter_before(&self) -> bool {
        !self.selection.invert && self.selection.inner.is_none()
    }

    /// Returns the meaning of the names in the expressions.
    pub fn names(&self) -> &Names {
        &self.selection.names
    }

    /// Returns the times of the packets kept.
    pub fn span(&self) -> &Span {
        &self.selection.span
    }

    /// Keeps packets from this time on, ns since 1970. Called before the first packet is judged.
    pub fn begin_at(&self, from_ns: i64) {
        self.limits.begin_at(from_ns);
    }

    /// Returns the mask of frames whose times are in the span; all bits are 1 if there is none. **Cost**: none without a
    /// span.
    #[inline]
    pub(crate) fn in_span<P>(&self, with: &With<'_, P>) -> u64 {
        if self.limits.are_all() {
            return u64::MAX;
        }
        let (range, mut mask) = (self.limits.range(), 0);
        with.layout.records(with.bytes, with.records, |i, record| {
            let time = record.and_then(|record| record.time_ns);
            mask |= u64::from(time.is_some_and(|time| range.contains(&time))) << i;
        });
        mask
    }

    /// Returns the expression that packets must match.
    pub fn expression(&self) -> &str {
        &self.selection.expression
    }

    /// Compiles the expressions for a layout, like a reader of a source with this layout.
    pub fn check(&self, layout: &Layout) -> Result<(), PlanError> {
        self.plan(layout, None).map(drop)
    }

    /// Returns the refusal of the main expression, if it makes no sense for any link type of a source. `layout` is that of the
    /// source's end.
    pub fn refusal(&self, layout: &Layout) -> Option<PlanError> {
        self.programs(layout, Programs::default())
            .ok()?
            .refused(None)
    }

    /// Returns the reason for which the main expression, or that of a split, makes no sense for a planned link type.
    pub fn misfit(&self, link: LinkType, split: Option<usize>) -> Option<PlanError> {
        let made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let mut made = made.iter().filter(|made| made.link == link);
        made.find_map(|made| made.filters.filter(split).as_ref().err().cloned())
    }

    /// Takes the counts of packets that [`Self::kept`] rejected because the expression makes no sense for them.
    pub fn take_misfits(&self) -> Vec<Misfit> {
        let made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = made
            .iter()
            .map(|made| (made.link, made.filters.misfits.swap(0, Ordering::Relaxed)));
        taken
            .filter(|(_, packets)| *packets > 0)
            .map(|(link, packets)| Misfit {
                link,
                split: None,
                packets,
            })
            .collect()
    }

    /// Whether native code judges all packets; false before the first compilation.
    pub fn is_native(&self) -> bool {
        let made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        !made.is_empty() && !made.iter().any(|made| made.filters.is_interpreted())
    }

    /// Returns the mask of frames that are kept: bit i for frame i. Takes at most 64 frames, of any link types.
    #[inline]
    pub fn kept(&self, plan: &SelectPlan, frames: &[Frame<'_>]) -> u64 {
        let filters = |frame: &Frame<'_>| &plan.here.by_interface[frame.interface as usize];
        match frames.first() {
            Some(first) if plan.here.uniform => self.counted_verdicts(plan, filters(first), frames),
            _ => {
                let one = |(i, frame)| {
                    self.counted_verdicts(plan, filters(frame), core::slice::from_ref(frame)) << i
                };
                frames.iter().enumerate().map(one).sum()
            }
        }
    }

    /// Compiles the expressions for packets of Ethernet, before a file says its link types. **Errors**: one is wrong for every link type.
    pub fn compile_early(&self) -> Result<(), PlanError> {
        self.filters(LinkType::ETHERNET, None).map(|_| ())
    }

    /// Returns the filters for packets of a link type, made at the first request.
    fn filters(
        &self,
        link: LinkType,
        direction: Option<Direction>,
    ) -> Result<Arc<Filters>, PlanError> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(made) = made
            .iter()
            .find(|made| (made.link, made.direction) == (link, direction))
        {
            return Ok(Arc::clone(&made.filters));
        }
        let compiled = self.compile_all(link, direction.is_some())?;
        let filters = compiled.filters(link, direction);
        made.push(Made {
            link,
            direction,
            filters: Arc::clone(&filters),
        });
        if let Some(other) = direction.map(Direction::opposite) {
            let filters = if compiled.asks_direction() {
                compiled.filters(link, Some(other))
            } else {
                Arc::clone(&filters)
            };
            made.push(Made {
                link,
                direction: Some(other),
                filters,
            });
        }
        Ok(filters)
    }

    fn compile_all(&self, link: LinkType, live: bool) -> Result<Compiled, PlanError> {
        let Selection {
            expression, splits, ..
        } = &self.selection;
        let compile = |expression: &str| self.compile(expression, link, live);
        let main = compile(&weir_filter::for_link(
            expression,
            link,
            self.selection.behind_tags,
        ))?;
        let splits = splits
            .iter()
            .map(|split| compile(split))
            .collect::<Result<_, _>>()?;
        Ok(Compiled { main, splits })
    }

    /// Compiles an expression for one link type. **Errors**: the expression is wrong for every link type.
    fn compile(
        &self,
        expression: &str,
        link: LinkType,
        live: bool,
    ) -> Result<Sense<Program>, PlanError> {
        let Selection {
            names, stop, slow, ..
        } = &self.selection;
        let for_source = if live {
            libpcap::compile_live
        } else {
            libpcap::compile_with
        };
        let own = names.clone();
        let made = compile(expression, stop, slow, move |expression| {
            for_source(expression, link, &own)
        });
        let refused = match made {
            Err(refused @ PlanError::Refused(_)) => refused,
            made => return made.map(Ok),
        };
        // Each try may ask a resolver.
        let known = if names.resolve {
            &KNOWN[..1]
        } else {
            &KNOWN[..]
        };
        let takes = |&link: &u16| {
            let own = names.clone();
            let make =
                move |expression: &str| libpcap::compile_with(expression, LinkType(link), &own);
            compile(expression, stop, slow, make).is_ok()
        };
        if known.iter().any(takes) {
            Ok(Err(refused))
        } else {
            Err(refused)
        }
    }

    /// Returns the programs for a layout; `known` has the programs of its first interfaces.
    fn programs(&self, layout: &Layout, known: Programs) -> Result<Programs, PlanError> {
        // BSD loopback frames begin with an address family in the byte order of the capturing machine. libpcap knows this order for
        // files, but not for programs compiled without a file. In a big-endian file, these frames have the form of LOOP frames.
        let link = |link| {
            if link == LinkType::NULL && layout.big_endian {
                LinkType::LOOP
            } else {
                link
            }
        };
        let inside = if self.selection.inner.is_some() {
            &tunnels::LINKS[..]
        } else {
            &[]
        };
        let mut programs = known;
        for interface in layout.interfaces.iter_from(programs.by_interface.len()) {
            let direction = layout.direction(programs.by_interface.len());
            programs.push(self.filters(link(interface.link), direction)?);
            for &link in inside {
                let filters = self.filters(link, direction)?;
                programs.note_sense(&filters);
            }
        }
        Ok(programs)
    }

    /// Returns the result of [`Self::verdicts`], and counts packets for which the expression makes no sense.
    #[inline]
    fn counted_verdicts(&self, plan: &SelectPlan, filters: &Filters, frames: &[Frame<'_>]) -> u64 {
        let inside = self.inside_of(plan, filters, frames, None);
        if filters.main.is_err() || inside.is_some() {
            self.count_misfits(filters, inside.as_ref(), frames.len());
        }
        let mask = self.verdicts(filters, frames, inside.as_ref());
        if self.search.goes_on() {
            self.search_proven(filters, frames, mask);
        }
        mask
    }

    /// Counts packets for which the main expression makes no sense.
    #[cold]
    fn count_misfits(&self, filters: &Filters, inside: Option<&Verdicts>, count: usize) {
        let mut part = Selected::default();
        note_misfits(&mut part, filters, inside, None, ones(count));
        for Misfit { link, packets, .. } in part.misfits {
            let made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(made) = made.iter().find(|made| made.link == link) {
                made.filters.misfits.fetch_add(packets, Ordering::Relaxed);
            }
        }
    }

    /// Returns the verdicts on innermost packets, if these are judged.
    #[inline]
    fn inside_of(
        &self,
        plan: &SelectPlan,
        filters: &Filters,
        frames: &[Frame<'_>],
        split: Option<usize>,
    ) -> Option<Verdicts> {
        let inside = plan.inside.as_ref()?;
        Some(inside.judge(filters, frames, split, self.keep(split)))
    }

    /// Returns the mask of frames, all of one link type, that are kept: bit i for frame i.
    #[inline]
    fn verdicts(&self, filters: &Filters, frames: &[Frame<'_>], inside: Option<&Verdicts>) -> u64 {
        let matched = matched(filters, frames, inside, None);
        if self.selection.invert {
            !matched & ones(frames.len())
        } else {
            matched
        }
    }
}

/// Calls `make` with `expression` and returns its result. libpcap may take minutes for an
/// expression: after a second `slow` is called, and if `stop` is set in the meantime, the
/// compilation is left behind.
///
/// **Errors**: libpcap refuses the expression; `stop` was set first.
pub fn compile<T: Send + 'static>(
    expression: &str,
    stop: &AtomicBool,
    slow: &Slow,
    make: impl Fn(&str) -> Result<T, Error> + Clone + Send + 'static,
) -> Result<T, PlanError> {
    let text = expression.to_owned();
    match threads::unless_stopped(stop, slow, move || make(&text)) {
        Some(made) => made.map_err(|error| {
            PlanError::Refused(format!("expression '{}': {error}", shortened(expression)))
        }),
        None => Err(PlanError::Stopped),
    }
}

/// Returns the start of a long expression, enough to recognize it.
pub fn shortened(expression: &str) -> Cow<'_, str> {
    /// Number of characters shown in full. Of a longer text, `START` characters are shown.
    const WHOLE: usize = 400;
    const START: usize = 80;
    match (
        expression.char_indices().nth(WHOLE),
        expression.char_indices().nth(START),
    ) {
        (Some(_), Some((end, _))) => {
            format!("{}... ({} bytes)", &expression[..end], expression.len()).into()
        }
        _ => expression.into(),
    }
}

fn ones(n: usize) -> u64 {
    if n >= 64 { u64::MAX } else { (1 << n) - 1 }
}

/// Wire bytes of the frames in `mask`.
#[inline]
fn wire_bytes(mask: u64, frames: &[Frame<'_>]) -> u64 {
    // Without branches, because a processor cannot predict the packets that match.
    frames
        .iter()
        .enumerate()
        .map(|(i, frame)| u64::from(frame.wire_len) & (mask >> i & 1).wrapping_neg())
        .sum()
}

impl Select {
    /// Makes the plan for a layout; `before` is the plan of the layout from which it grew. See
    /// [`Consumer::plan`](crate::Consumer::plan).
    pub fn plan(
        &self,
        layout: &Layout,
        before: Option<&SelectPlan>,
    ) -> Result<SelectPlan, PlanError> {
        match self.try_plan(layout, before)? {
            (_, Some(refused)) => Err(refused),
            (plan, None) => Ok(plan),
        }
    }

    /// Makes the plan for a layout whose packets were judged by another expression before. If this expression makes no sense for
    /// a packet, the packet does not match, and the source goes on.
    pub(crate) fn plan_after_change(
        &self,
        layout: &Layout,
        before: Option<&SelectPlan>,
    ) -> Result<SelectPlan, PlanError> {
        Ok(self.try_plan(layout, before)?.0)
    }

    /// Makes the plan for a layout. Also returns the refusal of an expression, if there is one.
    fn try_plan(
        &self,
        layout: &Layout,
        before: Option<&SelectPlan>,
    ) -> Result<(SelectPlan, Option<PlanError>), PlanError> {
        let big_endian = layout.big_endian;
        let (known, other) = match before {
            None => (Programs::default(), Programs::default()),
            Some(before) if before.big_endian == big_endian => {
                (before.here.clone(), before.other.clone())
            }
            Some(before) => (before.other.clone(), before.here.clone()),
        };
        let here = self.programs(layout, known)?;
        let known = before.and_then(|before| before.inside.as_ref());
        let inside = |tunnels| {
            Inside::new(layout, tunnels, known, |link, direction| {
                self.filters(link, direction)
            })
        };
        let inside = self.selection.inner.map(inside).transpose()?;
        let main = here.refused(None);
        let fits = main.is_none();
        // Interfaces described later may change the decision, but results given before the end cannot wait for them.
        let waits = matches!(layout.format, Format::Pcapng | Format::Spool)
            && !self.selection.at_once
            && !self.selection.invert;
        let splits =
            || (0..self.selection.splits.len()).find_map(|split| here.refused(Some(split)));
        let refused = main.filter(|_| !waits).or_else(splits);
        Ok((
            SelectPlan {
                here,
                fits,
                big_endian,
                other,
                inside,
            },
            refused,
        ))
    }

    /// Makes native code; see [`Consumer::warm_up`](crate::Consumer::warm_up).
    pub(crate) fn warm_up(&self, aside: bool) {
        if self.selection.interpret {
            return;
        }
        let new: Vec<_> = {
            let made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
            let first = made.iter().take(MOST_NATIVE);
            first
                .filter(|made| !made.filters.settled.swap(true, Ordering::Relaxed))
                .map(|made| Arc::clone(&made.filters))
                .collect()
        };
        if new.is_empty() {
            return;
        }
        // The run does not wait long for code: in the meantime, and to the end of a short run, the
        // interpreter judges.
        let takes_long = new
            .iter()
            .flat_map(|filters| filters.all())
            .flatten()
            .any(Filter::is_long);
        let make = move || new.iter().for_each(|filters| filters.make_native());
        if aside || takes_long {
            // The interpreter judges until the code is ready, or always if no thread can be started.
            let _ = threads::spawn("compiler", 0, make);
        } else {
            // If the run is stopped, the interpreter judges the few packets left.
            let _ = threads::unless_stopped(&self.selection.stop, &self.selection.slow, make);
        }
    }

    /// Starts to fetch the memory that the main expression needs for frames that are judged soon. **Cost**: none without large sets.
    #[inline]
    pub(crate) fn fetch(&self, plan: &SelectPlan, frames: &[Frame<'_>]) {
        let programs = &plan.here;
        if let (true, Some(filters)) = (programs.uniform, programs.by_interface.first())
            && let Ok(filter) = &filters.main
        {
            filter.fetch(frames);
        }
    }

    /// Judges up to 64 frames, of which `in_span` [can pass](Self::in_span). Returns the mask of those kept: bit i for frame i. The
    /// verdicts of each split are appended to `masks`.
    #[inline]
    pub(crate) fn judge(
        &self,
        plan: &SelectPlan,
        (frames, in_span): (&[Frame<'_>], u64),
        part: &mut Selected,
        mut masks: Option<&mut Vec<Bits>>,
    ) -> u64 {
        let (mut at, mut kept) = (0, 0);
        while at < frames.len() {
            let filters = &plan.here.by_interface[frames[at].interface as usize];
            let run = if plan.here.uniform {
                frames.len()
            } else {
                let same = |frame: &&Frame<'_>| {
                    Arc::ptr_eq(&plan.here.by_interface[frame.interface as usize], filters)
                };
                frames[at..].iter().take_while(same).count()
            };
            let mask = self.run_of_one_link(
                plan,
                filters,
                (&frames[at..at + run], in_span >> at),
                part,
                masks.as_deref_mut(),
            );
            kept |= mask << at;
            at += run;
        }
        kept
    }

    /// Whether there is no expression and no span: every packet passes.
    pub fn keeps_all(&self) -> bool {
        self.selection.expression.trim().is_empty()
            && !self.selection.invert
            && self.limits.are_all()
    }
}

impl Select {
    #[inline]
    fn run_of_one_link(
        &self,
        plan: &SelectPlan,
        filters: &Filters,
        (frames, in_span): (&[Frame<'_>], u64),
        part: &mut Selected,
        mut masks: Option<&mut Vec<Bits>>,
    ) -> u64 {
        let inside = self.inside_of(plan, filters, frames, None);
        let mask = self.verdicts(filters, frames, inside.as_ref()) & in_span;
        part.passed += u64::from(mask.count_ones());
        part.filtered += u64::from((!mask & ones(frames.len())).count_ones());
        part.bytes += wire_bytes(mask, frames);
        note_misfits(part, filters, inside.as_ref(), None, ones(frames.len()));
        if self.search.goes_on() {
            self.search(filters, (frames, in_span), mask, &mut part.unmatched);
        }
        if filters.splits.is_empty() {
            return mask;
        }
        part.splits
            .resize(filters.splits.len(), SplitSums::default());
        if let Some(masks) = &mut masks {
            masks.resize_with(filters.splits.len(), Bits::default);
        }
        for i in 0..filters.splits.len() {
            let inside = self.inside_of(plan, filters, frames, Some(i));
            note_misfits(part, filters, inside.as_ref(), Some(i), mask);
            let mask = matched(filters, frames, inside.as_ref(), Some(i)) & mask;
            let split = &mut part.splits[i];
            split.passed += u64::from(mask.count_ones());
            split.bytes += wire_bytes(mask, frames);
            if let Some(masks) = &mut masks {
                masks[i].push(mask, frames.len());
            }
        }
        mask
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_packet::savefile::{Interface, Resolution};

    fn ring(link: LinkType) -> Layout {
        Layout::ring(Interface::plain(link, 0, Resolution::NANOSECOND))
    }

    /// Returns the verdicts on a received packet (bit 0) and on the same packet sent (bit 1).
    fn verdicts(select: &Select, link: LinkType) -> u64 {
        let plan = select
            .plan(&ring(link), None)
            .expect("the expression makes sense");
        let frame = |interface| Frame {
            data: &[0; 60],
            wire_len: 60,
            interface,
        };
        select.kept(&plan, &[frame(0), frame(1)])
    }

    #[test]
    fn each_direction_of_a_live_capture_has_its_own_answer() {
        for inner in [false, true] {
            for (expression, expected) in [
                ("inbound", 0b01),
                ("not inbound", 0b10),
                ("outbound or less 60", 0b11),
                ("greater 60", 0b11),
            ] {
                let select = Select::new(Selection {
                    expression: expression.into(),
                    inner: inner.then(Tunnels::default),
                    ..Selection::default()
                });
                assert_eq!(
                    verdicts(&select, LinkType::ETHERNET),
                    expected,
                    "{expression} {inner}"
                );
                assert_eq!(
                    verdicts(&select, LinkType::RAW),
                    expected,
                    "{expression} {inner}"
                );
            }
        }
    }

    /// For tunnels of a capture on all interfaces, the direction is unknown; on a single interface, it is known.
    #[test]
    fn a_layout_that_tells_no_direction_takes_none_from_others() {
        let select = Select::new(Selection {
            expression: "inbound".into(),
            inner: Some(Tunnels::default()),
            ..Selection::default()
        });
        select
            .check(&ring(LinkType::LINUX_SLL2))
            .expect("the link header tells the direction");
        assert_eq!(verdicts(&select, LinkType::ETHERNET), 0b01);
    }

    #[test]
    fn directions_share_filters_unless_an_expression_asks_for_them() {
        for (expression, split, sets) in [
            ("udp", "tcp", 1),
            ("outbound", "tcp", 2),
            ("udp", "inbound", 2),
        ] {
            let splits = vec![split.to_owned()];
            let select = Select::new(Selection {
                expression: expression.into(),
                splits,
                ..Selection::default()
            });
            let [received, sent] = [Direction::In, Direction::Out].map(|direction| {
                select
                    .filters(LinkType::ETHERNET, Some(direction))
                    .expect("known words")
            });
            assert_eq!(
                if Arc::ptr_eq(&received, &sent) { 1 } else { 2 },
                sets,
                "{expression}, {split}"
            );
        }
    }
}
