//! Compiled rule lists.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use weir_filter::sets::{is_name, named_in};
use weir_filter::{Filter, InnerFilter, Names};
use weir_firewall::rules::{Rule, RuleList};
use weir_firewall::{Classifier, Connections, Counters, Rates, Rules};
use weir_packet::addresses::Addresses;
use weir_packet::flow::{Parser, Tunnels};
use weir_packet::{LinkType, Matcher};

/// Expression of a rule that makes no sense for a link type: no packet of that type matches it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct Senseless {
    /// Line of the first rule with this expression.
    pub line: usize,
    /// The expression.
    pub expression: String,
    /// The link type.
    pub link: LinkType,
    /// Reason, by libpcap.
    pub why: String,
}

/// Settings of a rule list.
#[derive(Clone, Copy, Debug)]
pub struct RuleSettings {
    /// Tunnels into which is looked, if the innermost packet of a frame is judged, also by expressions.
    pub inner: Option<Tunnels>,
    /// Number that decides where sources of rates and connections lie in memory.
    pub seed: u64,
    /// Connections for which there is room if a rule asks for the states of packets.
    pub connections: usize,
}

/// A compiled rule list, with its expressions compiled for each link type that packets have had.
#[derive(Debug)]
pub struct RuleSet {
    classifier: Classifier,
    links: Mutex<Vec<Arc<Link>>>,
    /// Sets of addresses that expressions name.
    names: Names,
    settings: RuleSettings,
    pub(super) rates: Rates,
    /// Connections, if a rule asks for the states of packets.
    pub(super) connections: Option<Arc<Connections>>,
    /// Numbers of the rules that expired in the list before.
    pub(super) expired: Vec<u32>,
    /// Earlier lists that are still in use, the latest last, and for each of their rules the number of the same rule here. A worker may
    /// take up several lists at once.
    carries: Vec<(Weak<RuleSet>, Vec<Option<u32>>)>,
}

/// The sets of a list that its expressions name, ready for lookups.
fn names_of(list: &RuleList) -> Names {
    let named: HashSet<&str> = list
        .expressions
        .iter()
        .flat_map(|expression| named_in(expression))
        .collect();
    let mut names = Names::default();
    for (name, addresses) in list
        .sets
        .iter()
        .filter(|(name, _)| named.contains(&**name) && is_name(name))
    {
        names
            .sets
            .add(name, Addresses::clone(addresses))
            .expect("names of a list are unlike each other");
    }
    names
}

/// Parser and compiled expressions for a link type.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) link: LinkType,
    /// `None` if weir reads no headers of this link type.
    pub(super) parser: Option<Parser>,
    pub(super) expressions: Vec<Option<Box<dyn Matcher>>>,
    pub(super) senseless: Vec<Senseless>,
}

impl RuleSet {
    /// Compiles the expressions of a list. **Errors**: an expression that is wrong for any link type, with its reason.
    pub fn new(classifier: Classifier, settings: RuleSettings) -> Result<Self, Senseless> {
        let names_states = classifier.list().names_states();
        let connections = || Arc::new(Connections::new(settings.connections, settings.seed));
        let rules = Self {
            links: Mutex::default(),
            names: names_of(classifier.list()),
            rates: Rates::new(classifier.list(), settings.seed),
            connections: names_states.then(connections),
            expired: Vec::new(),
            carries: Vec::new(),
            settings,
            classifier,
        };
        // Finds wrong words; the link types of the packets are not known yet.
        let ethernet = rules.link(LinkType::ETHERNET);
        match ethernet.senseless.first() {
            Some(senseless) => Err(senseless.clone()),
            None => Ok(rules),
        }
    }

    /// Compiles another list to be put in the place of this one, for all link types that packets have had. Rules of the same text keep
    /// their counts, their rates and their times, and connections stay open; `expired` are the rules that have expired here. **Errors**: as for [`Self::new`].
    pub fn successor(
        self: &Arc<Self>,
        classifier: Classifier,
        expired: &[u32],
    ) -> Result<Self, Senseless> {
        let mut rules = Self::new(classifier, self.settings)?;
        let links: Vec<LinkType> = self.links().iter().map(|known| known.link).collect();
        links.into_iter().for_each(|link| drop(rules.link(link)));
        let mut places: HashMap<&str, VecDeque<u32>> = HashMap::new();
        for (number, rule) in rules.classifier.list().rules.iter().enumerate() {
            places
                .entry(&rule.text)
                .or_default()
                .push_back(number as u32);
        }
        let place = |rule: &Rule| places.get_mut(&*rule.text)?.pop_front();
        let carried: Vec<Option<u32>> = self.classifier.list().rules.iter().map(place).collect();
        rules.rates.carry(&self.rates, &carried);
        if let (Some(connections), Some(known)) = (&mut rules.connections, &self.connections) {
            *connections = Arc::clone(known);
        }
        rules.expired = expired
            .iter()
            .filter_map(|&rule| carried[rule as usize])
            .collect();
        rules.expired.sort_unstable();
        let in_use = self
            .carries
            .iter()
            .filter(|(list, _)| list.strong_count() > 0);
        let further = |place: &Option<u32>| carried[(*place)? as usize];
        let earlier = in_use.map(|(list, places)| {
            let places = places.iter().map(further).collect();
            (Weak::clone(list), places)
        });
        rules.carries = earlier.collect();
        rules.carries.push((Arc::downgrade(self), carried));
        Ok(rules)
    }

    /// Returns the number that each rule of the list before has here, if this list took its place.
    pub fn carried(&self) -> Option<&[Option<u32>]> {
        self.carries.last().map(|(_, carried)| &**carried)
    }

    /// Returns the number that each rule of an earlier list has here; nothing for an unknown list.
    pub(super) fn places_of(&self, before: &Arc<Self>) -> &[Option<u32>] {
        let is_it = |(list, _): &&(Weak<Self>, _)| list.as_ptr() == Arc::as_ptr(before);
        let found = self.carries.iter().find(is_it);
        found.map_or(&[], |(_, places)| places)
    }

    /// Returns the rule list.
    pub fn list(&self) -> &RuleList {
        self.classifier.list()
    }

    /// Returns the connections, if a rule asks for the states of packets.
    pub fn connections(&self) -> Option<&Connections> {
        self.connections.as_deref()
    }

    /// Returns the expressions that made no sense for a link type of the packets.
    pub fn senseless(&self) -> Vec<Senseless> {
        self.links()
            .iter()
            .flat_map(|link| link.senseless.clone())
            .collect()
    }

    fn links(&self) -> MutexGuard<'_, Vec<Arc<Link>>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn compile(
        &self,
        expression: &str,
        link: LinkType,
    ) -> Result<Box<dyn Matcher>, weir_filter::Error> {
        if let Some(tunnels) = self.settings.inner {
            let filter = InnerFilter::compile(expression, link, &self.names, tunnels)?;
            return Ok(Box::new(filter));
        }
        let filter = Filter::compile_with(expression, link, &self.names)?;
        filter.make_native();
        Ok(Box::new(filter))
    }

    /// Returns the compiled expressions of a link type. The first call compiles them.
    pub(super) fn link(&self, link: LinkType) -> Arc<Link> {
        let mut links = self.links();
        if let Some(known) = links.iter().find(|known| known.link == link) {
            return Arc::clone(known);
        }
        let (mut expressions, mut senseless): (Vec<Option<Box<dyn Matcher>>>, _) =
            (Vec::new(), Vec::new());
        for (number, expression) in self.list().expressions.iter().enumerate() {
            expressions.push(match self.compile(expression, link) {
                Ok(filter) => Some(filter),
                Err(why) => {
                    let has_it = |rule: &&Rule| rule.expression == Some(number);
                    senseless.push(Senseless {
                        line: self
                            .list()
                            .rules
                            .iter()
                            .find(has_it)
                            .map_or(0, |rule| rule.line),
                        expression: expression.clone(),
                        link,
                        why: why.to_string(),
                    });
                    None
                }
            });
        }
        let new = Arc::new(Link {
            link,
            parser: Parser::inside(link, self.settings.inner),
            expressions,
            senseless,
        });
        links.push(Arc::clone(&new));
        new
    }

    /// Puts the counts of another list in the places of the same rules here.
    pub(super) fn carry(&self, before: &Arc<Self>, counters: &mut Counters) {
        counters.carry(self.places_of(before), self.list().rules.len());
    }
}

impl Rules for RuleSet {
    fn classifier(&self) -> &Classifier {
        &self.classifier
    }

    fn expired(&self) -> &[u32] {
        &self.expired
    }
}
