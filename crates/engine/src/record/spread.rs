//! Keys with too many different peers, ports or contacts, and the ready rule for scans.
//!
//! # The rule for scans
//!
//! A source fires the rule if it has more than [`CONTACTS`] contacts within [`FAST_NS`], and at least [`SHARE`] of them stay unanswered
//! or are refused. A second window of [`SLOW_NS`] finds slow scans. A contact is a destination address with its port and protocol.
//!
//! 1. A packet is a contact of its sender, and an answer to its receiver. So the clients of a server have answered it, even if they began.
//! 2. TCP resets and ICMP errors are refusals of the contact that they answer or quote. An exceeded hop count is an answer. Senders of
//!    either have no contact by them: a host that refuses a flood scans nobody.
//! 3. A TCP acknowledgement shows that its sender was answered. So a server whose clients take another route scans nobody, and a
//!    server that acknowledges a flood with forged sources scans nobody.
//! 4. A contact may still be answered for a pane after its window, which is 1 s, the time after which TCP tries again (RFC 6298).
//! 5. Packets to groups, to all hosts of a link, and from an address and port to itself do not count.
//! 6. As long as no packet of one direction has met a packet of the other, the capture has one direction only. Then the rule cannot
//!    know whether anybody answers, and does not fire.
//!
//! Deliberately not found: scans by TCP segments with an ACK, and scans by ARP, which has no flow key.
//!
//! # Chance
//!
//! While a window has few pairs, all of them are in its sample and the numbers are exact. Else the lower bounds of a number and of
//! the share have to exceed the figures.

use super::condition::{hosts, key_words};
use super::firing::{Hosts, nanoseconds};
use super::panes::{Address, Counted, Moment, Offer, Panes, Shape};
use super::rates::PANES;
use super::trigger::{Figure, Key, Threshold};
use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;
use weir_measure::{By, KeyKind, PairFields, Prefix};
use weir_memory::Request;
use weir_packet::LinkType;
use weir_packet::flow::{FlowKey, Hasher, Parser};
use weir_sketch::{Error, Marks, Spreader, Spreaders};

/// Contacts of a scan: a source with more fires.
const CONTACTS: f64 = 100.0;

/// Least share of the contacts of a scan that stay unanswered or are refused.
const SHARE: f64 = 0.8;

/// Windows of the rule for scans, ns.
const FAST_NS: i64 = 10_000_000_000;
const SLOW_NS: i64 = 300_000_000_000;

/// Offers that are put into a sample together.
const BATCH: usize = 256;

/// Memory of the sample of a pane: for each second of a window, and its limits, bytes.
const BYTES_A_SECOND: i64 = 2 << 20;
const LEAST_BYTES: i64 = 256 << 10;
const MOST_BYTES: i64 = 2 << 20;

/// Key of all packets together: no bits of their destinations. Its peers are sources.
const ALL_PACKETS: KeyKind = KeyKind::Dst(Prefix::of(0));

/// Largest number of keys that one look finds.
const MOST_KEYS: usize = 4096;

/// Contacts that are remembered until an answer shows that the capture has both directions.
const REMEMBERED: usize = 4096;

/// Condition on the numbers of a key.
#[derive(Clone, Copy, Debug)]
enum Rule {
    /// A threshold, and the fields that tell its pairs of key and element.
    Exceeds(Threshold, PairFields),
    Scan,
}

/// A key that meets the condition.
pub(super) struct Offender {
    /// The key; a source, if the rule is for scans.
    pub key: FlowKey,
    /// Addresses of the key.
    pub hosts: Option<Hosts>,
    /// Time of the last packet of the window.
    pub moment: Moment,
    /// Length of the window, ns.
    pub reach_ns: i64,
    /// The key and its numbers, as text.
    pub text: String,
}

/// Content of a packet, as far as it shows whether contacts are answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Content {
    /// Whether the packet is a TCP reset.
    pub is_reset: bool,
    /// Whether the packet is another TCP segment with an acknowledgement.
    pub acknowledges: bool,
    /// Whether the packet is an ICMP error.
    pub is_error: bool,
    /// Key of the packet that an ICMP error quotes, and the marks that the error gives to its contact.
    pub quoted: Option<(FlowKey, Marks)>,
}

impl Content {
    /// Content of a packet with this key. **Cost**: a few loads for most frames, a walk over the headers for others.
    pub fn of(key: &FlowKey, parser: &Parser, data: &[u8]) -> Self {
        /// Protocol numbers, and TCP flags: RFC 9293, section 3.1.
        const ICMP: u8 = 1;
        const TCP: u8 = 6;
        const ICMP6: u8 = 58;
        const RST: u8 = 1 << 2;
        const ACK: u8 = 1 << 4;
        let transport = || {
            parser
                .headers(data)
                .map_or(&[][..], |headers| headers.transport)
        };
        match key.proto {
            TCP => {
                let plain = parser.plain_v4(data).map(|plain| plain.flags);
                let plain = plain.or_else(|| parser.plain_v6(data).map(|plain| plain.flags));
                let flags = plain.unwrap_or_else(|| transport().get(13).copied().unwrap_or(0));
                let is_reset = flags & RST != 0;
                Self {
                    is_reset,
                    acknowledges: flags & ACK != 0 && !is_reset,
                    ..Self::default()
                }
            }
            ICMP => Self::of_icmp(false, transport()),
            ICMP6 => Self::of_icmp(true, transport()),
            _ => Self::default(),
        }
    }

    /// Content of an ICMP message. Errors quote the packet that caused them, from its IP header on.
    ///
    /// A message that the target or its port is unreachable is a refusal. A hop count that ran out is an answer: the sender asked for
    /// the hop, as traceroute does, or the packet went in a circle. Messages about the path say nothing of the target.
    #[cold]
    fn of_icmp(is_v6: bool, message: &[u8]) -> Self {
        /// Bytes before the quoted packet.
        const HEADER: usize = 8;
        let [kind, code, ..] = *message else {
            return Self::default();
        };
        // Errors: RFC 792, types 3, 4, 5, 11 and 12; RFC 4443, section 2.1. Type 3 with code 4 is about the path: RFC 1191.
        let (is_error, marks) = match (is_v6, kind, code) {
            (false, 3, 4) | (false, 4 | 5, _) => (true, None),
            (false, 3 | 12, _) | (true, 1 | 4, _) => (true, Some(Marks::REFUSAL)),
            (false, 11, _) | (true, 3, _) => (true, Some(Marks::ANSWER)),
            (true, kind, _) => (kind < 128, None),
            _ => (false, None),
        };
        let inside = || {
            let parser = Parser::new(LinkType::RAW, false)?;
            parser.key(message.get(HEADER..)?).ok()
        };
        Self {
            is_error,
            quoted: marks.and_then(|marks| Some((inside()?, marks))),
            ..Self::default()
        }
    }
}

/// Check of contacts in windows that slide.
///
/// **Memory**: a sample for each pane, and one for the window: 22 MiB for a threshold over a second and more, 46 MiB for the rule for
/// scans. **Cost**: a hash and an update of a sample for each offer; merges of all panes when a pane ends. A packet allocates nothing.
pub(super) struct Spread<K = Address> {
    rule: Rule,
    hasher: Hasher,
    batch: Vec<Offer<K>>,
    fast: Panes<K>,
    slow: Option<Panes<K>>,
    window: Spreaders<K>,
    /// Last packet so far.
    latest: Moment,
    /// Hashes of contacts, each at a place of its own.
    contacts: Box<[u64]>,
    /// Whether a packet met one of the opposite direction.
    hears: bool,
    /// Whether the sample of a window was too full for its numbers.
    is_saturated: bool,
}

/// Check of the numbers of keys, whatever their keys are.
pub(super) trait Spreading: Send {
    /// Whether the contents of packets matter.
    fn reads_contents(&self) -> bool;

    /// Memory, bytes.
    fn memory_bytes(&self) -> u64;

    /// Reason for which the check may miss keys; `None` if there is none.
    fn doubt(&self) -> Option<&'static str>;

    /// Counts a packet. Calls `found` for keys that met the condition up to the packet before.
    fn count(
        &mut self,
        flow: &FlowKey,
        content: Content,
        moment: Moment,
        found: &mut dyn FnMut(Offender),
    );

    /// Ends the panes before `time`, by the clock. Before the first packet, the clock of the packets is unknown.
    fn pass(&mut self, time: i64, found: &mut dyn FnMut(Offender));

    /// Looks at all packets so far, because no other one comes.
    fn finish(&mut self, found: &mut dyn FnMut(Offender));
}

/// A check of the rule for scans.
pub(super) fn scan() -> Result<Box<dyn Spreading>, Error> {
    Ok(Box::new(Spread::<Address>::scan()?))
}

/// A check of a threshold of elements by `figure`.
pub(super) fn threshold(threshold: Threshold, figure: By) -> Result<Box<dyn Spreading>, Error> {
    Ok(match threshold.key {
        Key::Total | Key::Of(KeyKind::Src(_) | KeyKind::Dst(_)) => {
            Box::new(Spread::<Address>::threshold(threshold, figure)?)
        }
        Key::Of(_) => Box::new(Spread::<FlowKey>::threshold(threshold, figure)?),
    })
}

impl<K: Counted> Spreading for Spread<K> {
    fn reads_contents(&self) -> bool {
        matches!(self.rule, Rule::Scan)
    }

    fn memory_bytes(&self) -> u64 {
        let slow = self.slow.as_ref().map_or(0, Panes::memory_bytes);
        self.fast.memory_bytes() + slow + self.window.memory_bytes() as u64
    }

    fn doubt(&self) -> Option<&'static str> {
        if matches!(self.rule, Rule::Scan) && !self.hears && self.latest != Moment::default() {
            return Some(
                "no contact was answered: the capture may have one direction only, so that a scan cannot be told",
            );
        }
        self.is_saturated.then_some(
            "the sample of its contacts was saturated: a key may have had more than was found",
        )
    }

    fn count(
        &mut self,
        flow: &FlowKey,
        content: Content,
        moment: Moment,
        found: &mut dyn FnMut(Offender),
    ) {
        self.advance(moment.arrived, found);
        self.latest = Moment {
            arrived: moment.arrived.max(self.latest.arrived),
            ..moment
        };
        match self.rule {
            Rule::Exceeds(threshold, pairs) => self.offer_element(flow, &threshold, &pairs),
            Rule::Scan => self.offer_contact(flow, content),
        }
        if self.batch.len() >= BATCH {
            self.flush();
        }
    }

    fn pass(&mut self, time: i64, found: &mut dyn FnMut(Offender)) {
        if self.latest != Moment::default() {
            self.advance(time, found);
        }
    }

    fn finish(&mut self, found: &mut dyn FnMut(Offender)) {
        self.flush();
        let (mut look, fast, slow) = self.look(found);
        for skipped in (0..=fast.grace()).rev() {
            look.at(fast, skipped);
        }
        if let Some(slow) = slow {
            slow.take(fast);
            look.at(slow, 0);
        }
    }
}

impl<K: Counted> Spread<K> {
    fn threshold(threshold: Threshold, figure: By) -> Result<Self, Error> {
        let shape = shape(nanoseconds(threshold.window), 0);
        let kind = match threshold.key {
            Key::Of(kind) => kind,
            Key::Total => ALL_PACKETS,
        };
        let rule = Rule::Exceeds(threshold, PairFields::of(kind, figure));
        Self::new(rule, shape, None)
    }

    fn scan() -> Result<Self, Error> {
        Self::new(Rule::Scan, shape(FAST_NS, 1), Some(shape(SLOW_NS, 1)))
    }

    fn new(rule: Rule, fast: Shape, slow: Option<Shape>) -> Result<Self, Error> {
        let seed = RandomState::new().hash_one(0);
        let remembered = match rule {
            Rule::Scan => REMEMBERED,
            Rule::Exceeds(..) => 0,
        };
        Ok(Self {
            rule,
            hasher: Hasher::new(seed),
            batch: Vec::with_capacity(BATCH + 2),
            fast: Panes::new(fast, seed)?,
            slow: slow.map(|slow| Panes::new(slow, seed)).transpose()?,
            window: Spreaders::new(fast.bytes, seed, &Request::default())?,
            latest: Moment::default(),
            contacts: vec![0; remembered].into(),
            hears: false,
            is_saturated: false,
        })
    }

    /// Ends the panes before `time`, by arrivals.
    fn advance(&mut self, time: i64, found: &mut dyn FnMut(Offender)) {
        if self.fast.is_over(time) {
            self.flush();
            let Self { fast, slow, .. } = self;
            if let Some(slow) = slow {
                slow.take(fast);
            }
        } else if self.latest != Moment::default() {
            return;
        }
        let (mut look, fast, slow) = self.look(found);
        fast.advance(time, |panes| look.at(panes, panes.grace()));
        if let Some(slow) = slow {
            slow.advance(time, |panes| look.at(panes, panes.grace()));
        }
    }

    /// A look at the windows, with the panes of the short one and, for scans, of the long one.
    fn look<'a>(
        &'a mut self,
        found: &'a mut dyn FnMut(Offender),
    ) -> (Look<'a, K>, &'a mut Panes<K>, Option<&'a mut Panes<K>>) {
        let look = Look {
            rule: self.rule,
            hears: self.hears,
            moment: self.latest,
            window: &mut self.window,
            is_saturated: &mut self.is_saturated,
            found,
        };
        (look, &mut self.fast, self.slow.as_mut())
    }

    fn flush(&mut self) {
        self.fast.update(&self.batch);
        self.batch.clear();
    }

    /// Offers a packet as an element of the key of a threshold.
    fn offer_element(&mut self, flow: &FlowKey, threshold: &Threshold, pairs: &PairFields) {
        let figure = threshold.figure;
        if figure != Figure::Peers {
            // Later fragments do not tell their ports, and packets without ports are contacts only.
            let has_ports = flow.flags & FlowKey::HAS_PORTS != 0;
            let is_later = flow.flags & FlowKey::LATER_FRAGMENT != 0;
            if is_later || figure == Figure::Ports && !has_ports {
                return;
            }
        }
        self.batch.push(Offer {
            hash: self.hasher.plain(&pairs.project(flow)),
            key: match threshold.key {
                Key::Total => K::ALL,
                Key::Of(kind) => K::of(kind, flow),
            },
            marks: Marks::CONTACT,
        });
    }

    /// Offers a packet as a contact of its source, and as an answer to its destination.
    fn offer_contact(&mut self, flow: &FlowKey, content: Content) {
        if let Some((quoted, marks)) = content.quoted {
            self.offer_quoted(flow, &quoted, marks);
        }
        if content.is_error || !is_contact(flow) {
            return;
        }
        let hash = self.hasher.plain(&contact(&flow.turned()));
        self.hears |= self.contacts[hash as usize % REMEMBERED] == hash;
        self.batch.push(Offer {
            hash,
            key: K::host(flow.family, &flow.dst),
            marks: match content.is_reset {
                true => Marks::REFUSAL,
                false => Marks::ANSWER,
            },
        });
        if content.is_reset {
            return;
        }
        let hash = self.hasher.plain(&contact(flow));
        self.contacts[hash as usize % REMEMBERED] = hash;
        self.batch.push(Offer {
            hash,
            key: K::host(flow.family, &flow.src),
            marks: match content.acknowledges {
                true => Marks::CONTACT | Marks::ANSWER,
                false => Marks::CONTACT,
            },
        });
    }

    /// Offers an ICMP error as an answer to the contact that it quotes. An error goes to the sender of the quoted packet.
    fn offer_quoted(&mut self, flow: &FlowKey, quoted: &FlowKey, marks: Marks) {
        if (flow.family, flow.dst) != (quoted.family, quoted.src) || !is_contact(quoted) {
            return;
        }
        let hash = self.hasher.plain(&contact(quoted));
        // Routers of the own side send errors too, and their packets do not show the other direction.
        self.hears |= flow.src == quoted.dst && self.contacts[hash as usize % REMEMBERED] == hash;
        self.batch.push(Offer {
            hash,
            key: K::host(quoted.family, &quoted.src),
            marks,
        });
    }
}

/// The fields of a packet that tell a contact of its source from others.
fn contact(flow: &FlowKey) -> FlowKey {
    FlowKey {
        sport: 0,
        flags: 0,
        ..*flow
    }
}

/// Whether a packet can be a contact, or an answer to one.
///
/// Nobody answers for a group or for all hosts of a link. A packet from an address and port to itself would answer itself. Later
/// fragments do not tell their ports.
fn is_contact(flow: &FlowKey) -> bool {
    // RFC 1112, section 4; RFC 919, section 7; RFC 4291, section 2.7.
    let is_many = match flow.family {
        4 => flow.dst[0] >> 4 == 0xe || flow.dst[..4] == [0xff; 4],
        _ => flow.dst[0] == 0xff,
    };
    let is_itself = flow.src == flow.dst && flow.sport == flow.dport;
    flow.flags & FlowKey::LATER_FRAGMENT == 0 && !is_many && !is_itself
}

/// Panes of a window of this length.
fn shape(window_ns: i64, grace: usize) -> Shape {
    let wanted = window_ns.saturating_mul(BYTES_A_SECOND / 1000) / 1_000_000;
    Shape {
        window_ns,
        panes: PANES,
        grace,
        bytes: wanted.clamp(LEAST_BYTES, MOST_BYTES) as usize,
    }
}

/// A look at the numbers of windows.
struct Look<'a, K> {
    rule: Rule,
    hears: bool,
    moment: Moment,
    window: &'a mut Spreaders<K>,
    is_saturated: &'a mut bool,
    found: &'a mut dyn FnMut(Offender),
}

impl<K: Counted> Look<'_, K> {
    /// Finds the keys that meet the condition in the window that ends `skipped` panes before the end of the open one.
    fn at(&mut self, panes: &Panes<K>, skipped: usize) {
        let above = match self.rule {
            Rule::Exceeds(threshold, _) => threshold.above,
            Rule::Scan if !self.hears => return,
            Rule::Scan => CONTACTS,
        };
        // No key has more elements than the window has packets.
        if panes.offers(skipped) as f64 <= above {
            return;
        }
        panes.merge(skipped, self.window);
        *self.is_saturated |= self.window.is_saturated();
        let most = (self.window.capacity() / (above as usize + 1)).clamp(1, MOST_KEYS);
        let (ranking, _) = self.window.ranking(most);
        let share = self.window.share();
        let meets = |one: &&Spreader<K>| {
            let is_scan = || is_scan(one, share);
            one.lower as f64 > above && (!matches!(self.rule, Rule::Scan) || is_scan())
        };
        let all: Vec<_> = ranking.iter().filter(meets).collect();
        // A key that sends no more stays in the window for a while, and is no new event.
        let recent = panes.recent(
            skipped,
            &all.iter().map(|one| one.key).collect::<HashSet<_>>(),
        );
        for one in all {
            if !recent.contains(&one.key) {
                continue;
            }
            let reach_ns = panes.window_ns();
            let (key, hosts, name) = self.told(&one.key);
            (self.found)(Offender {
                key,
                hosts,
                moment: self.moment,
                reach_ns,
                text: format!("{name}: {}", words(self.rule, one, reach_ns)),
            });
        }
    }

    /// Flow key, addresses and name of a key of the sample.
    fn told(&self, key: &K) -> (FlowKey, Option<Hosts>, String) {
        let counted = match self.rule {
            Rule::Scan => Key::Of(KeyKind::SRC),
            Rule::Exceeds(threshold, _) => threshold.key,
        };
        let flow = match counted {
            Key::Total => FlowKey::NONE,
            Key::Of(kind) => key.flow(kind),
        };
        (flow, hosts(counted, &flow), key_words(counted, &flow))
    }
}

/// Number of elements of a key, as text.
fn words<K>(rule: Rule, one: &Spreader<K>, window_ns: i64) -> String {
    let about = if one.lower == one.upper { "" } else { "about " };
    let window = Duration::from_nanos(window_ns.unsigned_abs());
    match rule {
        Rule::Exceeds(Threshold { figure, above, .. }, _) => {
            let what = match figure {
                Figure::Ports => "ports",
                Figure::Contacts => "contacts",
                _ => "peers",
            };
            format!(
                "{about}{} {what} in {window:?}, more than {above}",
                one.estimate
            )
        }
        Rule::Scan => {
            let (unanswered, refused) = (silent(one), one.refused.unwrap_or(0));
            format!(
                "{about}{} contacts in {window:?}, {unanswered} unanswered, {refused} refused",
                one.estimate
            )
        }
    }
}

/// Estimated contacts without an answer. A window without any answer has no number of them.
fn silent<K>(one: &Spreader<K>) -> u64 {
    one.unanswered.unwrap_or(one.estimate)
}

/// Whether the contacts of a source make a scan, if `share` of all pairs is in the sample.
///
/// The share of the failing contacts is two standard deviations of a sample without replacement above the figure: the bound of
/// Wilson, "Probable inference, the law of succession, and statistical inference" (1927), with the variance of the pairs that are not in
/// the sample. If all are, it is the share itself.
fn is_scan<K>(one: &Spreader<K>, share: f64) -> bool {
    let contacts = one.estimate.max(1) as f64;
    let failing = (silent(one) + one.refused.unwrap_or(0)) as f64;
    let ratio = (failing / contacts).min(1.0);
    let square = 4.0 * (1.0 - share).max(0.0) / (contacts * share).max(1.0);
    let width = (square * (ratio * (1.0 - ratio) + square / 4.0)).sqrt();
    (ratio + square / 2.0 - width) / (1.0 + square) >= SHARE
}

#[cfg(test)]
mod tests;
