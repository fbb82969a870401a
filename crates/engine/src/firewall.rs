//! The firewall of a run: a committed stage behind the filter, which judges each packet once, in the order of its source.

use std::sync::Arc;
use weir_filter::Filter;
use weir_firewall::{Around, Content, Counters, Fields, Policy, Verdict};
use weir_packet::flow::Parser;
use weir_packet::savefile::{Interface, Record};
use weir_packet::{LinkType, Matcher};
use weir_pipeline::Delivery;
use weir_pipeline::reader::Current;
use weir_pipeline::select::{Selected, SplitPart};
use weir_pipeline::stages::{Bits, Columns, Stages, StagesPlan};

/// Expression of a rule that makes no sense for a link type: no packet of that type matches it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Senseless {
    /// The expression.
    pub expression: String,
    /// The link type.
    pub link: LinkType,
    /// Reason, by libpcap.
    pub why: String,
}

/// A policy at work, with its counts.
#[derive(Debug)]
pub struct Firewall {
    policy: Arc<Policy>,
    /// Whether the innermost packet of a tunnel is judged, not the packet around it.
    inner: bool,
    /// Name of an interface for which its source has none.
    unnamed: Option<String>,
    counters: Counters,
    /// Link types of the packets so far.
    links: Vec<Link>,
    /// Interfaces of the current layout, filled when their first packets come.
    places: Vec<Option<Place>>,
    current: Option<Arc<Current<StagesPlan>>>,
    senseless: Vec<Senseless>,
    /// Packets of interfaces without a name, if rules name interfaces.
    nameless: u64,
}

/// Parser and compiled expressions for a link type.
#[derive(Debug)]
struct Link {
    link: LinkType,
    /// `None` if weir reads no headers of this link type.
    parser: Option<Parser>,
    expressions: Vec<Option<Box<dyn Matcher>>>,
}

/// Interface of a layout.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// Number of its link type in `links`.
    link: usize,
    /// Number of its name among those that rules name.
    interface: Option<usize>,
    /// Whether rules name interfaces, and this one has no name.
    is_nameless: bool,
}

impl Firewall {
    /// Puts a policy to work. If `inner`, the innermost packet of each tunnel is judged. An interface without a name in its
    /// source has the name `unnamed`.
    ///
    /// **Errors**: an expression that is wrong for any link type, with its reason.
    pub fn new(policy: Arc<Policy>, inner: bool, unnamed: Option<String>) -> Result<Self, Senseless> {
        let list = policy.rules.list();
        let counters = Counters::new(list.rules.len());
        let mut firewall = Self {
            inner,
            unnamed,
            counters,
            links: Vec::new(),
            places: Vec::new(),
            current: None,
            senseless: Vec::new(),
            nameless: 0,
            policy,
        };
        // Finds wrong words; the link types of the packets are not known yet.
        firewall.link(LinkType::ETHERNET);
        match firewall.senseless.pop() {
            Some(senseless) => Err(senseless),
            None => Ok(firewall),
        }
    }

    /// Returns the policy.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Returns the counts so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns the expressions that made no sense for a link type of the packets.
    pub fn senseless(&self) -> &[Senseless] {
        &self.senseless
    }

    /// Returns the number of packets from interfaces without a name, if rules name interfaces.
    pub fn nameless(&self) -> u64 {
        self.nameless
    }

    /// Judges the packets of a batch that the filter passed, and takes those that are denied out of it. Returns their number.
    ///
    /// The batch must not lie in a mapped file, which others may change.
    pub(crate) fn judge(&mut self, delivery: &mut Delivery<Stages>) -> u64 {
        let is_same = self.current.as_ref().is_some_and(|current| Arc::ptr_eq(current, &delivery.current));
        if !is_same {
            self.current = Some(Arc::clone(&delivery.current));
            self.places.clear();
        }
        let current = Arc::clone(&delivery.current);
        let Columns { records: all, kept, selected, .. } = &mut delivery.part;
        let mut passed = Passed::default();
        let mut denied = 0;
        current.layout.records(delivery.view.content(), &selected.records, |i, record| {
            // Each record was found before. One that is not found again is missing in the account, which says so.
            let Some(record) = record else { return };
            let interface = || &current.layout.interfaces[record.frame.interface as usize];
            match self.packet(&record, interface) {
                Verdict::Pass => passed.add(selected.records[i], record.frame.wire_len),
                Verdict::Drop | Verdict::Reject => denied += 1,
            }
        });
        passed.replace(selected);
        if !kept.is_empty() {
            *kept = Bits::marking(all, &selected.records);
        }
        denied
    }

    fn packet<'a>(&mut self, record: &Record<'_>, interface: impl Fn() -> &'a Interface) -> Verdict {
        let number = record.frame.interface as usize;
        let place = match self.places.get(number) {
            Some(Some(place)) => *place,
            _ => self.place(number, interface()),
        };
        self.nameless += u64::from(place.is_nameless);
        let Link { parser, expressions, .. } = &self.links[place.link];
        let fields = match parser {
            Some(parser) => Fields::of(parser, record.frame.data),
            // What such a frame carries is unknown, so it does not pass as one without IP.
            None => Fields::without_ip(Content::Malformed),
        };
        let around = Around { frame: record.frame, interface: place.interface, expressions };
        self.policy.judge(&fields, &around, &mut self.counters).0
    }

    #[cold]
    fn place(&mut self, number: usize, interface: &Interface) -> Place {
        let names = &self.policy.rules.list().interfaces;
        let name = interface.name.as_ref().or(self.unnamed.as_ref());
        let found = name.and_then(|name| names.iter().position(|known| known == name));
        let is_nameless = name.is_none() && !names.is_empty();
        let place = Place { link: self.link(interface.link), interface: found, is_nameless };
        self.places.resize(self.places.len().max(number + 1), None);
        self.places[number] = Some(place);
        place
    }

    /// Returns the number of a link type, for which the expressions are compiled when it comes first.
    fn link(&mut self, link: LinkType) -> usize {
        if let Some(known) = self.links.iter().position(|known| known.link == link) {
            return known;
        }
        let mut expressions: Vec<Option<Box<dyn Matcher>>> = Vec::new();
        for expression in &self.policy.rules.list().expressions {
            expressions.push(match Filter::compile(expression, link, false) {
                Ok(filter) => {
                    filter.make_native();
                    Some(Box::new(filter))
                }
                Err(why) => {
                    self.senseless.push(Senseless { expression: expression.clone(), link, why: why.to_string() });
                    None
                }
            });
        }
        self.links.push(Link { link, parser: Parser::new(link, self.inner), expressions });
        self.links.len() - 1
    }
}

/// Packets of a batch that passed.
#[derive(Default)]
struct Passed {
    records: Vec<u32>,
    lengths: Vec<u32>,
    bytes: u64,
}

impl Passed {
    fn add(&mut self, record: u32, wire_len: u32) {
        self.records.push(record);
        self.lengths.push(wire_len);
        self.bytes += u64::from(wire_len);
    }

    /// Puts these packets in the place of those that the filter passed; each split keeps those of them that it had.
    fn replace(self, selected: &mut Selected) {
        let Selected { records, splits, .. } = selected;
        for split in splits {
            // All lists are in the order of the source, though offsets need not ascend.
            let (mut kept, mut of_split) = (SplitPart::default(), split.records.iter().peekable());
            let mut passed = self.records.iter().zip(&self.lengths).peekable();
            for record in records.iter() {
                let is_of_split = of_split.next_if_eq(&record).is_some();
                let length = passed.next_if(|(passed, _)| *passed == record).map(|(_, length)| *length);
                if let Some(length) = length.filter(|_| is_of_split) {
                    kept.passed += 1;
                    kept.bytes += u64::from(length);
                    kept.records.push(*record);
                }
            }
            *split = kept;
        }
        selected.passed = self.records.len() as u64;
        selected.bytes = self.bytes;
        selected.records = self.records;
    }
}
