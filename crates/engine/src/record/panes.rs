//! Samples of contacts in windows that slide: keys with many different peers, ports or contacts.
//!
//! ```text
//! time     |----|----|----|----|----|----|      panes, each with a sample of its pairs (key, element)
//! window        [                        ]      the samples of the last panes merged, whenever a pane ends
//! ```
//!
//! Samples of equal size and seed merge into the sample of all their packets, so that a pair counts once however many panes hold
//! it. A burst that fits into one pane less than a window has lies within one window, wherever it begins.
//!
//! Packets are put into the sample of their pane a batch at a time. Numbers are compared with the condition when a pane has ended, and at
//! the end of all packets. A scan is therefore noticed a tenth of a window later, at most.

use core::hash::Hash;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::collections::HashSet;
use weir_measure::KeyKind;
use weir_memory::Request;
use weir_packet::flow::FlowKey;
use weir_sketch::{Contact, Error, Marks, Spreaders};

/// All samples of a window have one size and one seed.
const ALIKE: &str = "the samples are alike";

/// Source or destination address, or their prefix, as one of IPv6: an address of IPv4 is mapped (RFC 4291, section 2.5.5.2).
pub(super) type Address = [u8; 16];

/// Key of a sample.
pub(super) trait Counted: weir_sketch::Key + Hash {
    /// All packets together.
    const ALL: Self;

    /// An address of `family`.
    fn host(family: u8, address: &[u8; 16]) -> Self;

    /// The key of a packet.
    fn of(kind: KeyKind, flow: &FlowKey) -> Self;

    /// The flow key of a key of this kind.
    fn flow(&self, kind: KeyKind) -> FlowKey;
}

/// A source or a destination: a sample of its pairs has room for twice as many as one of other keys.
impl Counted for Address {
    const ALL: Self = [0; 16];

    fn host(family: u8, address: &[u8; 16]) -> Self {
        mapped(family, address)
    }

    fn of(kind: KeyKind, flow: &FlowKey) -> Self {
        let key = kind.project(flow);
        match kind {
            KeyKind::Dst(_) => mapped(flow.family, &key.dst),
            _ => mapped(flow.family, &key.src),
        }
    }

    fn flow(&self, kind: KeyKind) -> FlowKey {
        let (family, address) = match address(self) {
            IpAddr::V4(address) => {
                let mut bytes = [0; 16];
                bytes[..4].copy_from_slice(&address.octets());
                (4, bytes)
            }
            IpAddr::V6(address) => (6, address.octets()),
        };
        let mut key = FlowKey {
            family,
            ..FlowKey::NONE
        };
        match kind {
            KeyKind::Dst(_) => key.dst = address,
            _ => key.src = address,
        }
        key
    }
}

impl Counted for FlowKey {
    const ALL: Self = Self::NONE;

    fn host(family: u8, address: &[u8; 16]) -> Self {
        Self {
            src: *address,
            family,
            ..Self::NONE
        }
    }

    fn of(kind: KeyKind, flow: &FlowKey) -> Self {
        kind.project(flow)
    }

    fn flow(&self, _: KeyKind) -> FlowKey {
        *self
    }
}

/// Address of a key that holds one, as an element of a sample.
fn mapped(family: u8, address: &[u8; 16]) -> Address {
    match family {
        4 => Ipv4Addr::from([address[0], address[1], address[2], address[3]])
            .to_ipv6_mapped()
            .octets(),
        _ => *address,
    }
}

/// The address of a key of a sample.
fn address(key: &Address) -> IpAddr {
    Ipv6Addr::from(*key).to_canonical()
}

/// A packet as a contact of a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offer<K> {
    /// Hash of the pair of key and element.
    pub hash: u64,
    pub key: K,
    pub marks: Marks,
}

impl<K: Counted> Contact<K> for Offer<K> {
    fn pair(&self) -> u64 {
        self.hash
    }

    fn key(&self) -> K {
        self.key
    }

    fn marks(&self) -> Marks {
        self.marks
    }
}

/// Time of a packet, ns: by its arrival and by its timestamp.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Moment {
    pub arrived: i64,
    pub time_ns: i64,
}

/// The sample of a pane.
struct Pane<K> {
    sample: Spreaders<K>,
    /// Packets offered to the sample, an upper bound of its pairs.
    offers: u64,
}

/// Length and size of the panes of a window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Length of a window, ns.
    pub window_ns: i64,
    /// Panes of a window.
    pub panes: usize,
    /// Panes after a window in which its contacts may still be answered.
    pub grace: usize,
    /// Memory of the sample of a pane, bytes.
    pub bytes: usize,
}

/// Panes of a window, of which the newest is open.
pub(super) struct Panes<K> {
    shape: Shape,
    pane_ns: i64,
    panes: Vec<Pane<K>>,
    /// Number of the open pane; `None` before the first packet.
    open: Option<i64>,
}

impl<K: Counted> Panes<K> {
    pub fn new(shape: Shape, seed: u64) -> Result<Self, Error> {
        let pane = |_| {
            Ok(Pane {
                sample: Spreaders::new(shape.bytes, seed, &Request::default())?,
                offers: 0,
            })
        };
        let panes = (0..shape.panes + shape.grace).map(pane);
        Ok(Self {
            pane_ns: (shape.window_ns / shape.panes as i64).max(1),
            panes: panes.collect::<Result<_, Error>>()?,
            open: None,
            shape,
        })
    }

    fn len(&self) -> i64 {
        self.panes.len() as i64
    }

    fn at(&self, number: i64) -> usize {
        number.rem_euclid(self.len()) as usize
    }

    /// Makes the pane of `time` the open one. Calls `ended` while a pane that has ended is still the open one, as long as a window may
    /// hold more than at the call before.
    pub fn advance(&mut self, time: i64, mut ended: impl FnMut(&Self)) {
        let number = time.div_euclid(self.pane_ns);
        let open = *self.open.get_or_insert(number);
        if number <= open {
            return;
        }
        for step in 0..(number - open).min(self.len()) {
            if step <= self.shape.grace as i64 {
                ended(self);
            }
            self.begin(open + step + 1);
        }
        self.open = Some(number);
    }

    fn begin(&mut self, number: i64) {
        let at = self.at(number);
        let pane = &mut self.panes[at];
        if pane.offers > 0 {
            pane.sample.clear();
            pane.offers = 0;
        }
        self.open = Some(number);
    }

    fn open(&mut self) -> Option<&mut Pane<K>> {
        let at = self.at(self.open?);
        self.panes.get_mut(at)
    }

    /// The pane so many panes before the open one.
    fn ago(&self, ago: usize) -> Option<&Pane<K>> {
        self.panes.get(self.at(self.open? - ago as i64))
    }

    /// Length of a window, ns.
    pub fn window_ns(&self) -> i64 {
        self.shape.window_ns
    }

    /// Panes between the end of a window and the look at its numbers.
    pub fn grace(&self) -> usize {
        self.shape.grace
    }

    /// Whether `time` lies after the open pane.
    pub fn is_over(&self, time: i64) -> bool {
        self.open
            .is_some_and(|open| time.div_euclid(self.pane_ns) > open)
    }

    /// Puts packets into the open pane.
    pub fn update(&mut self, offers: &[Offer<K>]) {
        if let Some(pane) = self.open() {
            pane.sample.update(offers);
            pane.offers += offers.len() as u64;
        }
    }

    /// Puts the packets of the open pane of `other` into the open pane.
    pub fn take(&mut self, other: &Self) {
        if let (Some(pane), Some(other)) = (self.open(), other.ago(0))
            && other.offers > 0
        {
            pane.sample.merge(&other.sample).expect(ALIKE);
            pane.offers += other.offers;
        }
    }

    /// Packets offered in the window that ends `skipped` panes before the end of the open one.
    pub fn offers(&self, skipped: usize) -> u64 {
        self.window(skipped).map(|pane| pane.offers).sum()
    }

    fn window(&self, skipped: usize) -> impl Iterator<Item = &Pane<K>> {
        let panes = skipped..skipped + self.shape.panes;
        panes.filter_map(|ago| self.ago(ago))
    }

    /// Merges the samples of that window into `window`. The panes after it give marks only: an answer counts, and another contact does
    /// not.
    pub fn merge(&self, skipped: usize, window: &mut Spreaders<K>) {
        window.clear();
        for pane in self.window(skipped).filter(|pane| pane.offers > 0) {
            window.merge(&pane.sample).expect(ALIKE);
        }
        for pane in (0..skipped).filter_map(|ago| self.ago(ago)) {
            window.merge_marks(&pane.sample).expect(ALIKE);
        }
    }

    /// The keys with a contact in the newest pane of that window, of these keys.
    ///
    /// **Cost**: reads the sample of the pane once, with a search in a hash table for each of its pairs.
    pub fn recent(&self, skipped: usize, keys: &HashSet<K>) -> HashSet<K> {
        let pane = self.ago(skipped).filter(|_| !keys.is_empty());
        let sent = pane.into_iter().flat_map(|pane| pane.sample.sent_keys());
        sent.filter(|key| keys.contains(*key)).copied().collect()
    }

    /// Memory of the samples, bytes.
    pub fn memory_bytes(&self) -> u64 {
        let each = self
            .panes
            .iter()
            .map(|pane| pane.sample.memory_bytes() as u64);
        each.sum()
    }
}
