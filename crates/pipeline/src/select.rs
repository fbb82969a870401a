//! Keeps the packets that match: one expression, and further ones that split what it lets through.

mod tunnels;

use crate::{Consumer, PlanError, With, threads};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tunnels::{Inside, Tunnels};
use weir_filter::{Error, Filter, MAX_BATCH};
use weir_packet::savefile::{Direction, Interface, Layout};
use weir_packet::{Frame, LinkType};

/// What to select.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// The tcpdump expression that packets must match; empty matches all.
    pub expression: String,
    /// Keep what does not match instead.
    pub invert: bool,
    /// Judge the innermost packet of tunnels, and not the packet around it.
    pub inner: bool,
    /// Expressions over the packets kept, each with an output of its own.
    pub splits: Vec<String>,
    /// Look host names up.
    pub resolve: bool,
    /// Remember where the kept packets lie, not only how many there are.
    pub remember: bool,
    /// End after this many kept packets.
    pub limit: Option<u64>,
    /// Never make native code (for comparisons).
    pub interpret: bool,
    /// Once this is set, no expression is compiled any more, and a compilation under way is given up.
    pub stop: Arc<AtomicBool>,
}

/// The consumer that selects.
#[derive(Debug)]
pub struct Select {
    selection: Selection,
    taken: AtomicU64,
    /// Filters made so far; one set for each link type, whatever the number of interfaces, or one for each direction where the
    /// expressions ask for it.
    made: Mutex<Vec<Made>>,
}

/// Filters for a link type, and for a direction if they are not the same for both.
#[derive(Debug)]
struct Made {
    link: LinkType,
    direction: Option<Direction>,
    filters: Arc<Filters>,
}

/// The programs for one link type.
#[derive(Debug)]
pub struct Filters {
    main: Filter,
    splits: Vec<Filter>,
}

impl Filters {
    fn make_native(&self) {
        self.main.make_native();
        self.splits.iter().for_each(Filter::make_native);
    }
}

/// The programs for each interface of a layout.
#[derive(Debug)]
pub struct SelectPlan {
    by_interface: Vec<Arc<Filters>>,
    /// All interfaces have one link type: a batch is judged in one call.
    uniform: bool,
    /// Packets are judged by what is inside their tunnels.
    inside: Option<Inside>,
}

/// What was found in a piece of the source.
#[derive(Debug, Default)]
pub struct Selected {
    /// Packets kept.
    pub passed: u64,
    /// Packets rejected.
    pub filtered: u64,
    /// Wire bytes of the packets kept.
    pub bytes: u64,
    /// Record offsets of the packets kept, if they are remembered.
    pub records: Vec<u32>,
    /// The same for each split.
    pub splits: Vec<SplitPart>,
}

/// What one split found in a piece of the source.
#[derive(Debug, Default)]
pub struct SplitPart {
    /// Packets that went to it.
    pub passed: u64,
    /// Their wire bytes.
    pub bytes: u64,
    /// Their record offsets, if they are remembered.
    pub records: Vec<u32>,
}

impl Select {
    /// A consumer for `selection`.
    pub fn new(selection: Selection) -> Self {
        Self { selection, taken: AtomicU64::new(0), made: Mutex::default() }
    }

    /// Compiles the expressions for a layout, as reading a source of it would.
    pub fn check(&self, layout: &Layout) -> Result<(), PlanError> {
        self.plan(layout).map(drop)
    }

    /// Whether the limit is reached.
    pub fn has_enough(&self) -> bool {
        self.selection.limit.is_some_and(|limit| self.taken.load(Ordering::Relaxed) >= limit)
    }

    /// Whether native code judges; false where nothing was compiled yet.
    pub fn is_native(&self) -> bool {
        let made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        !made.is_empty() && made.iter().all(|made| made.filters.main.is_native())
    }

    /// The frames, at most 64 of any link types, that are kept: bit i for frame i.
    #[inline]
    pub fn kept(&self, plan: &SelectPlan, frames: &[Frame<'_>]) -> u64 {
        let filters = |frame: &Frame<'_>| &plan.by_interface[frame.interface as usize];
        match frames.first() {
            Some(first) if plan.uniform => self.verdicts(filters(first), frames, plan.tunnels(frames).as_ref()),
            _ => {
                let one = |(i, frame)| {
                    let frame = core::slice::from_ref(frame);
                    self.verdicts(filters(&frame[0]), frame, plan.tunnels(frame).as_ref()) << i
                };
                frames.iter().enumerate().map(one).sum()
            }
        }
    }

    fn filters(&self, link: LinkType, direction: Option<Direction>) -> Result<Arc<Filters>, PlanError> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |made: &&Made| made.link == link && (made.direction.is_none() || made.direction == direction);
        if let Some(made) = made.iter().find(fits) {
            return Ok(Arc::clone(&made.filters));
        }
        let (direction, filters) = match (self.compile(link, None), direction) {
            (Err(PlanError::Refused(_)), Some(direction)) => (Some(direction), self.compile(link, Some(direction))?),
            (filters, _) => (None, filters?),
        };
        let filters = Arc::new(filters);
        made.push(Made { link, direction, filters: Arc::clone(&filters) });
        Ok(filters)
    }

    fn compile(&self, link: LinkType, direction: Option<Direction>) -> Result<Filters, PlanError> {
        let Selection { expression, splits, resolve, stop, .. } = &self.selection;
        let resolve = *resolve;
        let compile = |expression: &String| {
            compile(expression, stop, move |expression| match direction {
                Some(direction) => Filter::compile_live(expression, link, direction, resolve),
                None => Filter::compile(expression, link, resolve),
            })
        };
        Ok(Filters { main: compile(expression)?, splits: splits.iter().map(compile).collect::<Result<_, _>>()? })
    }

    /// The frames, of one link type, that are kept: bit i for frame i.
    #[inline]
    fn verdicts(&self, filters: &Filters, frames: &[Frame<'_>], tunnels: Option<&Tunnels<'_>>) -> u64 {
        let matched = matched(filters, frames, tunnels, |filters| &filters.main);
        if self.selection.invert { !matched & ones(frames.len()) } else { matched }
    }

    /// Cuts `mask` behind the last packet the limit allows; returns how many frames that takes.
    fn within_limit(&self, limit: u64, mask: &mut u64, frames: usize) -> usize {
        let taken = self.taken.load(Ordering::Relaxed);
        let mut room = limit.saturating_sub(taken);
        let mut used = 0;
        for i in 0..frames {
            if room == 0 {
                break;
            }
            used = i + 1;
            room -= *mask >> i & 1;
        }
        *mask &= ones(used);
        self.taken.store(limit - room, Ordering::Relaxed);
        used
    }
}

/// The frames that one of the programs matches.
#[inline]
fn matched(
    filters: &Filters,
    frames: &[Frame<'_>],
    tunnels: Option<&Tunnels<'_>>,
    program: impl Fn(&Filters) -> &Filter,
) -> u64 {
    let verdicts = program(filters).matches(frames);
    tunnels.map_or(verdicts, |tunnels| tunnels.correct(verdicts, program))
}

impl SelectPlan {
    /// The innermost packets of tunnels among these frames, if these are what is judged.
    #[inline]
    fn tunnels<'a>(&'a self, frames: &[Frame<'a>]) -> Option<Tunnels<'a>> {
        self.inside.as_ref().map(|inside| inside.tunnels(frames))
    }
}

/// What `make` makes of `expression`. Some take libpcap minutes: once `stop` is set, it is left to itself.
///
/// **Errors**: libpcap refuses it; `stop` was set first.
pub fn compile<T: Send + 'static>(
    expression: &str,
    stop: &AtomicBool,
    make: impl Fn(&str) -> Result<T, Error> + Clone + Send + 'static,
) -> Result<T, PlanError> {
    let text = expression.to_owned();
    match threads::unless_stopped(stop, move || make(&text)) {
        Some(made) => made.map_err(|error| PlanError::Refused(format!("expression '{expression}': {error}"))),
        None => Err(PlanError::Stopped),
    }
}

fn ones(n: usize) -> u64 {
    if n >= 64 { u64::MAX } else { (1 << n) - 1 }
}

/// Calls `each` with the index of each set bit.
#[inline]
fn for_bits(mut mask: u64, mut each: impl FnMut(usize)) {
    while mask != 0 {
        each(mask.trailing_zeros() as usize);
        mask &= mask - 1;
    }
}

/// Wire bytes of the frames in `mask`.
#[inline]
fn wire_bytes(mask: u64, frames: &[Frame<'_>]) -> u64 {
    // Without branches: which packets match is what a processor cannot learn.
    frames.iter().enumerate().map(|(i, frame)| u64::from(frame.wire_len) & (mask >> i & 1).wrapping_neg()).sum()
}

impl Consumer for Select {
    type Plan = SelectPlan;
    type Part = Selected;

    fn plan(&self, layout: &Layout) -> Result<SelectPlan, PlanError> {
        // BSD loopback frames begin with an address family in the byte order of the machine that captured them, which libpcap
        // knows of files but not of programs made without one. In a big-endian file they are what LOOP frames always are.
        let link = |link| if link == LinkType::NULL && layout.big_endian { LinkType::LOOP } else { link };
        let filters =
            |(place, interface): (usize, &Interface)| self.filters(link(interface.link), layout.direction(place));
        let by_interface: Vec<_> = layout.interfaces.iter().enumerate().map(filters).collect::<Result<_, _>>()?;
        let uniform = by_interface.windows(2).all(|two| Arc::ptr_eq(&two[0], &two[1]));
        let inside =
            self.selection.inner.then(|| Inside::new(layout, |link, direction| self.filters(link, direction).ok()));
        Ok(SelectPlan { by_interface, uniform, inside })
    }

    fn settle_in(&self, plan: &SelectPlan, aside: bool) {
        if self.selection.interpret {
            return;
        }
        let inside = plan.inside.iter().flat_map(Inside::filters);
        for filters in plan.by_interface.iter().chain(inside).filter(|filters| !filters.main.is_native()) {
            if aside {
                // Until it is done, the interpreter judges.
                let filters = Arc::clone(filters);
                // Without the thread the interpreter goes on.
                let _ = threads::spawn("compiler", 0, move || filters.make_native());
            } else {
                let filters = Arc::clone(filters);
                // Told to stop, the interpreter goes on for the little that is left.
                let _ = threads::unless_stopped(&self.selection.stop, move || filters.make_native());
            }
        }
    }

    #[inline]
    fn frames(&self, with: &With<'_, SelectPlan>, frames: &[Frame<'_>], part: &mut Selected) -> usize {
        let plan = with.plan;
        let mut at = 0;
        while at < frames.len() {
            let filters = &plan.by_interface[frames[at].interface as usize];
            let run = if plan.uniform {
                frames.len()
            } else {
                let same = |frame: &&Frame<'_>| Arc::ptr_eq(&plan.by_interface[frame.interface as usize], filters);
                frames[at..].iter().take_while(same).count()
            };
            let records = &with.records[at..at + run];
            let used = self.run_of_one_link(plan, filters, records, &frames[at..at + run], part);
            at += used;
            if used < run {
                break;
            }
        }
        at
    }

    fn append(&self, part: &mut Selected, next: Selected) {
        part.passed += next.passed;
        part.filtered += next.filtered;
        part.bytes += next.bytes;
        part.records.extend_from_slice(&next.records);
        part.splits.resize_with(self.selection.splits.len(), SplitPart::default);
        for (split, more) in part.splits.iter_mut().zip(next.splits) {
            split.passed += more.passed;
            split.bytes += more.bytes;
            split.records.extend_from_slice(&more.records);
        }
    }

    fn in_order(&self) -> bool {
        self.selection.limit.is_some()
    }
}

impl Select {
    #[inline]
    fn run_of_one_link(
        &self,
        plan: &SelectPlan,
        filters: &Filters,
        records: &[u32],
        frames: &[Frame<'_>],
        part: &mut Selected,
    ) -> usize {
        let tunnels = plan.tunnels(frames);
        let mut mask = self.verdicts(filters, frames, tunnels.as_ref());
        let mut frames = frames;
        if let Some(limit) = self.selection.limit {
            let used = self.within_limit(limit, &mut mask, frames.len());
            frames = &frames[..used];
        }
        part.passed += u64::from(mask.count_ones());
        part.filtered += u64::from((!mask & ones(frames.len())).count_ones());
        part.bytes += wire_bytes(mask, frames);
        if !self.selection.remember && filters.splits.is_empty() {
            return frames.len();
        }
        if self.selection.remember {
            for_bits(mask, |i| part.records.push(records[i]));
        }
        part.splits.resize_with(filters.splits.len(), SplitPart::default);
        for (i, split) in part.splits.iter_mut().enumerate() {
            let mask = matched(filters, frames, tunnels.as_ref(), |filters| &filters.splits[i]) & mask;
            split.passed += u64::from(mask.count_ones());
            split.bytes += wire_bytes(mask, frames);
            if self.selection.remember {
                for_bits(mask, |i| split.records.push(records[i]));
            }
        }
        frames.len()
    }
}
