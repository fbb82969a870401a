//! The first rule that matches, without a look at each.
//!
//! Packets of IPv4 with ports, which most are, go down a tree of cuts to the first rule ([`tree`](crate::tree)). All others, and all packets of
//! a list with more than three large address sets, are judged field by field:
//!
//! 1. For source and destination address, protocol and both ports, the value leads to its class, and the class to a row: one bit for
//!    each rule whose condition on that field holds ([`classes`](crate::classes)).
//! 2. The rules that are in all five rows are candidates, in the order of the list ([`rows`](crate::rows)).
//!
//! Either way the rare conditions (flags, types of messages, segment size, fragment, extension
//! headers, VLAN, interfaces, expression, rate, time) are judged for a candidate, and the first
//! candidate that decides ends the search. With a list of thousands of rules, the tree takes about
//! twenty nanoseconds for a packet, and the rows two to five times as long; an address set of a
//! million prefixes costs what a set of ten costs but for cache misses.

use crate::classes::{Ranges, Values};
use crate::fields::{Content, Fields, TcpFlags};
use crate::options::{self, Reading};
use crate::rates::{Place, Rates};
use crate::rows::{MOST_BYTES, Rows, in_all};
use crate::rules::{Action, DAY_S, Rule, RuleList, Vlan};
use crate::tree::{First, Key, TOGETHER, Tree};
use crate::{Counters, DecidedBy, State, Verdict};
use weir_memory::{Work, compiled_for_newer};
use weir_packet::flow::Parser;
use weir_packet::{Frame, Matcher};

/// Surroundings of a packet that rules can name next to its [`Fields`].
#[derive(Clone, Copy)]
pub struct Around<'a> {
    /// The frame.
    pub frame: Frame<'a>,
    /// Whether each condition of [`RuleList::interfaces`] holds, as [`RuleList::holding`] returns; a condition that is missing does not.
    pub interfaces: &'a [bool],
    /// Parser of the frame's link type, for headers that no [`Fields`] hold; without it these are absent.
    pub parser: &'a Option<Parser>,
    /// The expressions of [`RuleList::expressions`], compiled for the frame's link type; `None` if
    /// an expression makes no sense there, which no frame matches.
    pub expressions: &'a [Option<Box<dyn Matcher>>],
    /// Time of the packet, ns since the Unix epoch.
    pub time_ns: u64,
    /// Rates of the rules, and which rules have expired.
    pub conditions: Conditions<'a>,
}

impl<'a> Around<'a> {
    /// The surroundings of a frame for a list whose rules name none of them.
    pub fn of(frame: Frame<'a>) -> Self {
        Self {
            frame,
            interfaces: &[],
            parser: &None,
            expressions: &[],
            time_ns: 0,
            conditions: Conditions::default(),
        }
    }
}

/// State next to the packet that conditions of rules ask for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Conditions<'a> {
    /// Buckets of the list's rates; `None` if no rule names a rate.
    pub rates: Option<&'a Rates>,
    /// Numbers of the rules that have expired, in ascending order.
    pub expired: &'a [u32],
    /// State of the packet in relation to connections; `None` if the captured bytes do not tell it, or if no rule asks for it.
    pub state: Option<State>,
}

/// Start of the search for the rules of a packet.
#[derive(Clone, Copy, Debug, Default)]
pub struct Found {
    /// The first rule by the tree; [`First::BY_ROWS`] if the rows tell it.
    first: First,
    rows: FieldRows,
}

/// Rows of the five fields of a packet.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FieldRows([u32; 5]);

/// A rule list whose tables would take too much memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the ranges of {rules} rules overlap in so many ways that their tables take more than {} MiB: put addresses into sets, or use prefixes",
    MOST_BYTES >> 20
)]
pub struct TooLarge {
    /// Number of rules.
    pub rules: usize,
}

/// A rule list, compiled.
///
/// **Threads**: may be shared; packets change no state in it.
#[derive(Clone, Debug)]
pub struct Classifier {
    list: RuleList,
    src_rows: Rows,
    dst_rows: Rows,
    proto_rows: Rows,
    sport_rows: Rows,
    dport_rows: Rows,
    src4: Ranges<u32>,
    dst4: Ranges<u32>,
    src6: Ranges<u128>,
    dst6: Ranges<u128>,
    proto: Values,
    sport: Values,
    dport: Values,
    /// Rules that judge frames of any content.
    for_all: Vec<u32>,
    /// Actions of the rules without rare conditions; `None` for a rule with one.
    plain: Vec<Option<Action>>,
    /// The rules for packets of IPv4 with ports; `None` if the rows also judge them.
    tree: Option<Tree>,
    /// Whether loads from the tables are worth a prefetch.
    prefetches: bool,
}

/// Bytes of tables that most processors of servers have in the second-level cache of each core.
const CACHED: usize = 1 << 20;

impl Classifier {
    /// Compiles a rule list. **Cost**: for each field, sorting the ends of all ranges, and a row for each class.
    ///
    /// **Errors**: thousands of rules whose ranges of one field overlap in too many ways.
    pub fn new(list: RuleList) -> Result<Self, TooLarge> {
        let rules = &list.rules;
        let new = || Rows::new(rules.len());
        let (mut src_rows, mut dst_rows) = (new(), new());
        let (mut proto_rows, mut sport_rows, mut dport_rows) = (new(), new(), new());
        let src: Vec<_> = rules.iter().map(|rule| rule.src.clone()).collect();
        let dst: Vec<_> = rules.iter().map(|rule| rule.dst.clone()).collect();
        let protocols: Vec<_> = rules.iter().map(|rule| rule.proto.map(ranges_of)).collect();
        let sports: Vec<_> = rules.iter().map(|rule| rule.sport.clone()).collect();
        let dports: Vec<_> = rules.iter().map(|rule| rule.dport.clone()).collect();
        let absent = |rule: usize| rules[rule].action.applies_without_a_field();
        let src4 = Ranges::new(&src, &mut src_rows);
        let src6 = Ranges::new(&src, &mut src_rows);
        let dst4 = Ranges::new(&dst, &mut dst_rows);
        let dst6 = Ranges::new(&dst, &mut dst_rows);
        let proto = Values::new(&protocols, absent, &mut proto_rows);
        let sport = Values::new(&sports, absent, &mut sport_rows);
        let dport = Values::new(&dports, absent, &mut dport_rows);
        for rows in [
            &mut src_rows,
            &mut dst_rows,
            &mut proto_rows,
            &mut sport_rows,
            &mut dport_rows,
        ] {
            if rows.is_full() {
                return Err(TooLarge { rules: rules.len() });
            }
            rows.complete();
        }
        let plain: Vec<_> = rules
            .iter()
            .map(|rule| (!has_rare_conditions(rule)).then_some(rule.action))
            .collect();
        let tree = Tree::new(rules, &plain, list.default);
        let for_all = (0u32..)
            .zip(rules)
            .filter(|(_, rule)| rule.is_for_all_frames())
            .map(|(i, _)| i)
            .collect();
        let mut classifier = Self {
            src_rows,
            dst_rows,
            proto_rows,
            sport_rows,
            dport_rows,
            src4,
            dst4,
            src6,
            dst6,
            proto,
            sport,
            dport,
            for_all,
            plain,
            tree,
            list,
            prefetches: false,
        };
        classifier.prefetches = classifier.bytes() > CACHED;
        Ok(classifier)
    }

    /// Returns the rule list.
    pub fn list(&self) -> &RuleList {
        &self.list
    }

    /// Returns the bytes of all tables.
    pub fn bytes(&self) -> usize {
        let rows = [
            &self.src_rows,
            &self.dst_rows,
            &self.proto_rows,
            &self.sport_rows,
            &self.dport_rows,
        ];
        let values = [&self.proto, &self.sport, &self.dport];
        rows.map(Rows::bytes).iter().sum::<usize>()
            + values.map(Values::bytes).iter().sum::<usize>()
            + self.src4.bytes()
            + self.dst4.bytes()
            + self.src6.bytes()
            + self.dst6.bytes()
            + self.tree.as_ref().map_or(0, Tree::bytes)
    }

    /// The same list, with all packets judged by the rows. For comparisons.
    #[doc(hidden)]
    pub fn without_tree(mut self) -> Self {
        self.tree = None;
        self
    }

    /// Finds for several packets what [`Self::judge_found`] needs.
    ///
    /// **Cost**: a few loads for each field, or for each level of the tree. Packets wait for memory together.
    pub fn look_up(&self, fields: &[Fields], found: &mut [Found]) {
        match &self.tree {
            Some(tree) => compiled_for_newer(LookUp {
                classifier: self,
                tree,
                fields,
                found,
            }),
            None => self.look_up_rows(fields, found),
        }
    }

    /// The same by the rows. Loads from tables beyond the second-level cache wait for memory together.
    fn look_up_rows(&self, fields: &[Fields], found: &mut [Found]) {
        if self.prefetches {
            for fields in fields {
                let [src, dst] = fields.v4();
                match fields.is_v6() {
                    true => (
                        self.src6.prefetch_section(fields.src()),
                        self.dst6.prefetch_section(fields.dst()),
                    ),
                    false => (
                        self.src4.prefetch_section(src),
                        self.dst4.prefetch_section(dst),
                    ),
                };
            }
            for fields in fields {
                let [src, dst] = fields.v4();
                match fields.is_v6() {
                    true => (
                        self.src6.prefetch_ranges(fields.src()),
                        self.dst6.prefetch_ranges(fields.dst()),
                    ),
                    false => (
                        self.src4.prefetch_ranges(src),
                        self.dst4.prefetch_ranges(dst),
                    ),
                };
            }
        }
        for (fields, found) in fields.iter().zip(found) {
            let rows = self.rows(fields);
            if self.prefetches {
                self.src_rows.prefetch(rows.0[0]);
                self.dst_rows.prefetch(rows.0[1]);
            }
            *found = Found {
                first: First::BY_ROWS,
                rows,
            };
        }
    }

    fn find(&self, fields: &Fields) -> Found {
        let tree = self.tree.as_ref().filter(|_| fields.has_key());
        let first = tree.map(|tree| tree.first(Key(&tree.key(fields))));
        match first {
            Some(first) if !first.is_by_rows() => Found {
                first,
                rows: FieldRows::default(),
            },
            _ => self.by_rows(fields),
        }
    }

    #[cold]
    fn by_rows(&self, fields: &Fields) -> Found {
        Found {
            first: First::BY_ROWS,
            rows: self.rows(fields),
        }
    }

    #[inline]
    pub(crate) fn rows(&self, fields: &Fields) -> FieldRows {
        let (src, dst) = if fields.is_v6() {
            (self.src6.row(fields.src()), self.dst6.row(fields.dst()))
        } else {
            let [src, dst] = fields.v4();
            (self.src4.row(src), self.dst4.row(dst))
        };
        let [sport, dport] = fields.port_numbers();
        let proto = self.proto.row(fields.proto_number());
        FieldRows([
            src,
            dst,
            proto,
            self.sport.row(sport),
            self.dport.row(dport),
        ])
    }

    /// Judges a frame, and counts it.
    ///
    /// **Cost**: [`Self::look_up`], and the rare conditions of the candidates. No allocation.
    pub fn judge(
        &self,
        fields: &Fields,
        around: &Around<'_>,
        counters: &mut Counters,
    ) -> (Verdict, DecidedBy) {
        self.judge_found(self.find(fields), fields, around, counters)
    }

    /// Judges a frame that was [looked up](Self::look_up), and counts it.
    #[inline]
    pub fn judge_found(
        &self,
        found: Found,
        fields: &Fields,
        around: &Around<'_>,
        counters: &mut Counters,
    ) -> (Verdict, DecidedBy) {
        // Most packets reach a rule without rare conditions first, or to none.
        if let Some(verdict) = found.first.entry.end() {
            let rule = found.first.entry.rule();
            counters.end(rule, verdict, around.frame.wire_len);
            return (verdict, rule.map_or(DecidedBy::Default, DecidedBy::Rule));
        }
        self.judge_candidates(found, fields, around, counters)
    }

    fn judge_candidates(
        &self,
        found: Found,
        fields: &Fields,
        around: &Around<'_>,
        counters: &mut Counters,
    ) -> (Verdict, DecidedBy) {
        let wire_len = around.frame.wire_len;
        let mut decided = None;
        // Most packets have all fields, and most rules name nothing else.
        let is_whole = fields.proto().is_some() && !fields.lacks_ports();
        let mut ask = |number: u32| {
            let action = match self.plain[number as usize] {
                Some(action) if is_whole => {
                    counters.apply(number, wire_len, false);
                    action
                }
                _ => {
                    let rule = &self.list.rules[number as usize];
                    let Some(is_absent) = rare_conditions(rule, fields, around) else {
                        return true;
                    };
                    if !time_conditions(number, rule, fields, around, counters) {
                        return true;
                    }
                    counters.apply(number, wire_len, is_absent);
                    rule.action
                }
            };
            match action {
                Action::Count => true,
                Action::Decide(verdict) => {
                    decided = Some((verdict, DecidedBy::Rule(number)));
                    false
                }
            }
        };
        let rest = match fields.content() {
            Content::Neighbors if !self.list.neighbors_by_rules => {
                (Verdict::Pass, DecidedBy::Neighbors)
            }
            Content::Ip | Content::Neighbors => {
                match found.first.is_by_rows() {
                    true => self.candidates(found.rows, &mut ask),
                    false => self.behind(found.first, fields, &mut ask),
                }
                (self.list.default, DecidedBy::Default)
            }
            Content::NonIp => {
                let _ = self.for_all.iter().all(|&rule| ask(rule));
                (self.list.non_ip, DecidedBy::NonIp)
            }
            Content::Malformed => {
                let _ = self.for_all.iter().all(|&rule| ask(rule));
                (self.list.malformed, DecidedBy::Malformed)
            }
        };
        let (verdict, by) = decided.unwrap_or(rest);
        counters.decide(verdict, by, wire_len);
        (verdict, by)
    }

    /// Hands the rules whose conditions on addresses, protocol and ports hold to `each`, in order, until it returns `false`.
    #[inline]
    pub(crate) fn candidates(
        &self,
        FieldRows([src, dst, proto, sport, dport]): FieldRows,
        each: impl FnMut(u32) -> bool,
    ) {
        let rows = [
            (&self.src_rows, src),
            (&self.dst_rows, dst),
            (&self.proto_rows, proto),
            (&self.sport_rows, sport),
            (&self.dport_rows, dport),
        ];
        in_all(rows, each);
    }

    /// The same for a packet that the tree leads to its first rule.
    fn behind(&self, mut first: First, fields: &Fields, mut each: impl FnMut(u32) -> bool) {
        let Some(tree) = &self.tree else { return };
        let key = tree.key(fields);
        while let Some(rule) = first.entry.rule()
            && each(rule)
        {
            first = tree.next(Key(&key), first);
        }
    }
}

/// Search for the first rules of packets by the tree.
struct LookUp<'a> {
    classifier: &'a Classifier,
    tree: &'a Tree,
    fields: &'a [Fields],
    found: &'a mut [Found],
}

impl Work for LookUp<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self {
            classifier,
            tree,
            fields,
            found,
        } = self;
        for (fields, found) in fields.chunks(TOGETHER).zip(found.chunks_mut(TOGETHER)) {
            tree.first_of_each(fields, |i, first| {
                found[i].first = first;
                if !fields[i].has_key() || first.is_by_rows() {
                    found[i] = classifier.by_rows(&fields[i]);
                }
            });
        }
    }
}

/// Whether a rule has a condition that has no row.
fn has_rare_conditions(rule: &Rule) -> bool {
    let of_packets = rule.flags.is_some()
        || rule.types.is_some()
        || rule.mss.is_some()
        || rule.fragment
        || rule.extensions.is_some()
        || rule.routing.is_some()
        || rule.vlan.is_some();
    of_packets
        || rule.on.is_some()
        || rule.to.is_some()
        || rule.hours.is_some()
        || rule.expression.is_some()
        || rule.rate.is_some()
        || rule.states.is_some()
        || rule.lasts.is_some()
}

/// Judges the conditions on the rule's time and rate. A packet for which all other conditions hold is charged to the rate.
fn time_conditions(
    number: u32,
    rule: &Rule,
    fields: &Fields,
    around: &Around<'_>,
    counters: &mut Counters,
) -> bool {
    let Conditions { rates, expired, .. } = around.conditions;
    if let Some(hours) = &rule.hours {
        let second = (around.time_ns / 1_000_000_000 % u64::from(DAY_S)) as u32;
        if !hours
            .iter()
            .any(|(first, last)| (*first..=*last).contains(&second))
        {
            return false;
        }
    }
    if rule.lasts.is_some() && expired.binary_search(&number).is_ok() {
        return false;
    }
    let (Some(rate), Some(rates)) = (rule.rate, rates) else {
        return true;
    };
    let is_ip = matches!(fields.content(), Content::Ip | Content::Neighbors);
    let source = is_ip.then_some((fields.is_v6(), fields.src()));
    let place = rates.charge(number, around.time_ns, around.frame.wire_len, source);
    match place {
        Place::NoRoom => counters.rules[number as usize].no_room += 1,
        Place::TooLong => counters.rules[number as usize].too_long += 1,
        Place::Within | Place::Beyond => {}
    }
    (place != Place::Within) == rate.is_beyond
}

/// Judges the conditions that have no row. Returns whether the packet lacks a field of the rule; `None` if a condition does not hold.
fn rare_conditions(rule: &Rule, fields: &Fields, around: &Around<'_>) -> Option<bool> {
    let names_ports = rule.sport.is_some() || rule.dport.is_some();
    let mut is_absent =
        rule.proto.is_some() && fields.proto().is_none() || names_ports && fields.lacks_ports();
    if let Some((set, mask)) = rule.flags {
        match fields.flags() {
            TcpFlags::Known(flags) if flags & mask == set => {}
            TcpFlags::Absent if rule.action.applies_without_a_field() => is_absent = true,
            _ => return None,
        }
    }
    if let Some(states) = rule.states {
        match around.conditions.state {
            Some(state) if states.has(state) => {}
            None if rule.action.applies_without_a_field() => is_absent = true,
            _ => return None,
        }
    }
    if let Some(types) = &rule.types {
        // The protocol was compared before, as far as it is there.
        match fields.message_is_among(types) {
            Some(true) => {}
            None if rule.action.applies_without_a_field() => is_absent = true,
            _ => return None,
        }
    }
    if let Some(kinds) = rule.extensions {
        match fields.has_extension(kinds) {
            Some(true) => {}
            None if rule.action.applies_without_a_field() => is_absent = true,
            _ => return None,
        }
    }
    for (ranges, reading) in [
        (&rule.mss, options::segment_size as fn(_, _) -> _),
        (&rule.routing, options::routing_type),
    ] {
        let Some(ranges) = ranges else { continue };
        match around
            .parser
            .as_ref()
            .map_or(Reading::Absent, |parser| reading(parser, around.frame.data))
        {
            Reading::Known(number) if is_among(number, ranges) => {}
            Reading::Absent if rule.action.applies_without_a_field() => is_absent = true,
            _ => return None,
        }
    }
    let has_tag = match (&rule.vlan, fields.vlan()) {
        (None, _) | (Some(Vlan::None), None) => true,
        (Some(Vlan::Identifiers(ranges)), Some(id)) => is_among(id, ranges),
        _ => false,
    };
    let holds = has_tag
        && (!rule.fragment || fields.is_later_fragment())
        && [rule.on, rule.to]
            .into_iter()
            .flatten()
            .all(|number| around.interfaces.get(number) == Some(&true))
        && rule.expression.is_none_or(|number| {
            around
                .expressions
                .get(number)
                .and_then(Option::as_ref)
                .is_some_and(|matcher| matcher.matches(&around.frame))
        });
    holds.then_some(is_absent)
}

/// Whether a number is in one of several ranges, both ends of which are inclusive.
pub(crate) fn is_among(number: u16, ranges: &[(u16, u16)]) -> bool {
    ranges
        .iter()
        .any(|(first, last)| (*first..=*last).contains(&number))
}

/// The members of a set of protocols, as ranges.
pub(crate) fn ranges_of(set: [u64; 4]) -> Vec<(u16, u16)> {
    (0..256u16)
        .filter(|&number| set[usize::from(number / 64)] >> (number % 64) & 1 == 1)
        .map(|number| (number, number))
        .collect()
}
