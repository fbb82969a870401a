//! Rulesets of nftables as rule lists: from the text of `nft -j list ruleset` to the rules that decide the same about forwarded packets.
//!
//! Translated are base chains of type filter at the hook forward, of the families ip, ip6 and inet.
//! Each rule becomes the sets of values that its matches leave for each field, and these become
//! lines. Chains that are jumped to are put in place of the jump, with its conditions, and where a
//! chain is left under conditions the rules after are for all other packets. A packet that one base
//! chain accepts goes on to the next, whose rules replace the verdict. A logged packet is counted.
//! Parts without an equivalent are refused by name, as a whole, and the translation continues after
//! them.
//!
//! A packet gets the same verdict from both, with these exceptions:
//!
//! - **Absent fields**: where a later fragment or a cut header lacks a field that a rule names, weir's `drop` applies and `pass` does not. Linux
//!   passes over the rule, or reads the payload of a later fragment as ports.
//! - **Authentication headers**: weir's rules match the protocol after them, nftables' rules match
//!   number 51. Where rules could pass such a packet wrongly it is dropped in front of them, and so
//!   is an IPv6 packet with more than two extension headers, in which one may hide. - **States**
//!   are the states of [`Connections`](crate::Connections), with the differences listed there.
//!   Where nftables drops `new` packets, weir also drops `invalid` packets, since no segment in the
//!   middle opens a connection.
//! - **Types of ICMP** for IPv6 are read after up to two extension headers. After more, `drop`
//!   applies and `pass` does not.
//! - **Extension headers** that are cut count as there. Rules that deny name them, and none that passes.
//! - **Hours** are taken as UTC, in which the kernel compares them. nft prints hours of its time
//!   zone.
//! - **Neighbor discovery** passes: a router forwards none of it, so that no chain at the hook forward sees it.
//!
//! Some rulesets are in force otherwise than nft 1.0.6 lists them, and are translated as listed: `ip6 nexthdr tcp tcp dport 80` without its
//! first match, rules that reject without `meta nfproto` or `meta protocol`, and `tcp sport != 1 tcp dport != 2` in place of one comparison
//! of both ports, which nft makes of it.
//!
//! **Absent**: changes of packets, state in rules but rates, days, everything at other hooks.

mod conditions;
mod expressions;
mod interfaces;
mod ranges;
mod verdicts;
mod words;

use crate::rules::{Answer, MOST_RULES};
use conditions::{Action, Conditions, Field, TCP, address_text};
use core::fmt::{self, Display, Formatter};
use expressions::{Names, Set, called};
use ranges::Ranges;
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use verdicts::{answer_fault, rate, rejected, without};

/// A rule list that means the same as a ruleset, except for refused parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Translation {
    /// Text of the rule list. In place of a refused rule there is a comment.
    pub text: String,
    /// Parts of the ruleset that the text does not hold.
    pub refused: Vec<Refused>,
}

/// A part of a ruleset that is not translated.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Refused {
    /// Family and name of the table.
    pub table: String,
    /// Name of the chain; nothing for the whole table.
    pub chain: String,
    /// Handle of the rule; `None` for the chain itself.
    pub rule: Option<u64>,
    /// The statement or expression, and the reason.
    pub what: String,
}

impl Display for Refused {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self {
            table,
            chain,
            rule,
            what,
        } = self;
        let chain = if chain.is_empty() {
            String::new()
        } else {
            format!(", chain {}", plain(chain))
        };
        let rule = rule.map_or_else(String::new, |rule| format!(", rule {rule}"));
        write!(f, "table {}{chain}{rule}: {}", plain(table), plain(what))
    }
}

/// A text that is not a ruleset with forwarding.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NftError {
    /// The text is not JSON.
    #[error("no JSON as nft -j list ruleset prints it: {0}")]
    Json(#[from] serde_json::Error),
    /// The object has no list of the ruleset.
    #[error("no ruleset: nft -j list ruleset prints an object with the list \"nftables\"")]
    NoRuleset,
    /// No chain judges forwarded packets.
    #[error(
        "no chain of type filter at the hook forward, so the ruleset says nothing about packets that are forwarded"
    )]
    NoForwardChain,
    /// Chains that are put in place of jumps become too many lines.
    #[error("more than {MOST_RULES} rules, with each chain as often as there are ways to it")]
    TooManyRules,
}

/// Translates the text of `nft -j list ruleset`.
///
/// **Cost**: linear in the resulting lines. **Errors**: no such text. Parts that cannot be
/// translated are not an error, but are refused.
pub fn translate(json: &str) -> Result<Translation, NftError> {
    let json: Value = serde_json::from_str(json)?;
    let objects = json
        .get("nftables")
        .and_then(Value::as_array)
        .ok_or(NftError::NoRuleset)?;
    let mut translator = Translator::default();
    objects.iter().for_each(|object| translator.take(object));
    translator.name_sets();
    translator.base_chains()?;
    Ok(translator.finish())
}

/// Largest size of the text, bytes. A rules file may be as large.
const MOST_BYTES: usize = 256 << 20;

/// Depth to which Linux lets chains jump: `NFT_JUMP_STACK_SIZE` in include/net/netfilter/nf_tables.h.
const DEEPEST: usize = 16;

/// Addresses in a line of a set.
const IN_LINE: usize = 8;

type Key<'a> = (&'a str, &'a str, &'a str);

/// Fate of a packet at the end of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    /// The policy of the base chain decides.
    Policy,
    /// The rules after the jump are asked.
    Caller,
}

/// Fate of the packets that a rule has looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Then {
    /// The next rule is asked about some.
    Next,
    /// All are decided.
    Decided,
    /// All leave the chain.
    Left,
    /// Some leave the chain, and the next rule judges packets that meet one of these conditions.
    Rest(Vec<Conditions>),
}

/// A base chain, and where the packets go that it accepts.
#[derive(Clone, Copy, Debug)]
struct Base<'a> {
    key: Key<'a>,
    policy: Action,
    /// Place of the next base chain in [`Translator::bases`].
    next: Option<usize>,
}

/// Rule that is being translated.
struct Place<'a> {
    key: Key<'a>,
    /// Place of its base chain in [`Translator::bases`].
    base: usize,
    handle: u64,
    comment: String,
    rate: String,
    /// Whether all packets that reach the rule meet its conditions.
    is_for_all: bool,
    is_last: bool,
    after: After,
    depth: usize,
}

/// Reason for which a rule is not translated, or nothing is.
enum Fault {
    Refused(String),
    TooMany,
}

impl From<String> for Fault {
    fn from(why: String) -> Self {
        Self::Refused(why)
    }
}

#[derive(Default)]
struct Translator<'a> {
    chains: Vec<(Key<'a>, &'a Value)>,
    known_chains: HashSet<Key<'a>>,
    rules: HashMap<Key<'a>, Vec<&'a Value>>,
    verdict_maps: HashMap<Key<'a>, &'a Value>,
    names: Names<'a>,
    /// Sets that lines name, and their addresses.
    set_lines: Vec<(String, Vec<String>)>,
    lines: Vec<String>,
    bytes: usize,
    /// Rules that were checked, each as often as there are ways to it.
    visits: usize,
    /// Base chains of a family of addresses, in the order in which packets pass through them.
    bases: Vec<Base<'a>>,
    default: Option<Action>,
    is_open_to_authentication: bool,
    /// Rules with a rate that lines stand for.
    rated: HashSet<(Key<'a>, u64)>,
    refused: Vec<Refused>,
    known: HashSet<Refused>,
}

/// A text without line ends, for a comment or a message.
fn plain(text: &str) -> String {
    text.chars()
        .map(|letter| if letter.is_control() { ' ' } else { letter })
        .collect()
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// Whether a table may have the flag `dormant`. nft 1.0.6 prints another word for it.
fn may_be_dormant(table: &Value) -> bool {
    let flags = &table["flags"];
    let words = flags.as_array().into_iter().flatten().chain([flags]);
    words
        .filter_map(Value::as_str)
        .any(|flag| !matches!(flag, "owner" | "persist"))
}

fn kind_of(statement: &Value) -> Option<(&str, &Value)> {
    statement
        .as_object()?
        .iter()
        .next()
        .map(|(kind, value)| (kind.as_str(), value))
}

impl<'a> Translator<'a> {
    /// Takes an object of the ruleset to its list.
    fn take(&mut self, object: &'a Value) {
        let Some((kind, value)) = kind_of(object) else {
            return;
        };
        let key = |name| {
            (
                text(value, "family"),
                text(value, "table"),
                text(value, name),
            )
        };
        match kind {
            "chain" => {
                self.known_chains.insert(key("name"));
                self.chains.push((key("name"), value));
            }
            "rule" => self.rules.entry(key("chain")).or_default().push(value),
            "set" => drop(self.names.sets.insert(key("name"), Set::new(value, None))),
            "map" => drop(self.verdict_maps.insert(key("name"), value)),
            "table" if may_be_dormant(value) => {
                let table = table((text(value, "family"), text(value, "name"), ""));
                let what =
                    "its flags may say that it is dormant and judges nothing: leave it out, or wake it".to_owned();
                self.refuse(Refused {
                    table,
                    chain: String::new(),
                    rule: None,
                    what,
                });
            }
            _ => {}
        }
    }

    /// Gives sets names in the rule list: their own, after the table's name if two tables have a
    /// set of this name.
    fn name_sets(&mut self) {
        let mut keys: Vec<Key<'a>> = self.names.sets.keys().copied().collect();
        keys.sort_unstable();
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
        let (mut given, mut count) = (HashSet::new(), HashMap::new());
        keys.iter()
            .for_each(|(_, _, name)| *count.entry(*name).or_insert(0) += 1);
        for key @ (family, table, name) in &keys {
            let called = if count[name] > 1 {
                format!("{family}.{table}.{name}")
            } else {
                (*name).to_owned()
            };
            let is_word =
                called.bytes().all(is_plain) && !name.is_empty() && given.insert(called.clone());
            if let Some(set) = self.names.sets.get_mut(key).filter(|_| is_word) {
                set.name = Some(called);
            }
        }
    }

    fn base_chains(&mut self) -> Result<(), NftError> {
        let mut found: Vec<(i64, Key<'a>, &'a Value, &'static [u8])> = Vec::new();
        for (key @ (family, _, _), chain) in self.chains.clone() {
            let (kind, hook) = (text(chain, "type"), text(chain, "hook"));
            let seen: &'static [u8] = match family {
                "ip" => &[4],
                "ip6" => &[6],
                "inet" => &[4, 6],
                _ => &[],
            };
            let is_empty =
                self.rules.get(&key).is_none_or(Vec::is_empty) && text(chain, "policy") != "drop";
            match (kind, hook) {
                (_, "") => {}
                ("filter", "forward") if !seen.is_empty() => {
                    let priority = chain.get("prio").and_then(Value::as_i64).unwrap_or(0);
                    found.push((priority, key, chain, seen));
                }
                _ if is_empty => {}
                ("filter", "input" | "output") if !seen.is_empty() || family == "arp" => {
                    let (table, chain) = (table(key), plain(key.2));
                    self.lines.push(format!(
                        "# table {}, chain {chain} (hook {hook}) is for the host's own packets: left out",
                        plain(&table)
                    ));
                }
                _ => {
                    let what = format!(
                        "type {kind}, hook {hook}: of family {family} this chain is not translated"
                    );
                    self.refuse(Refused {
                        table: table(key),
                        chain: key.2.to_owned(),
                        rule: None,
                        what,
                    });
                }
            }
        }
        if found.is_empty() && self.refused.is_empty() {
            return Err(NftError::NoForwardChain);
        }
        // Whether all chains accept a packet does not depend on their order, but for rates.
        found.sort_by_key(|(priority, ..)| *priority);
        let is_one_list = found.iter().all(|(.., seen)| seen.len() == 2);
        let families: &[&[u8]] = if is_one_list {
            &[&[4, 6]]
        } else {
            &[&[4], &[6]]
        };
        for seen in families {
            let chains = found
                .iter()
                .filter(|(.., chain_seen)| chain_seen.contains(&seen[0]));
            let chains: Vec<(Key<'a>, &'a Value)> =
                chains.map(|(_, key, chain, _)| (*key, *chain)).collect();
            self.bases_of(&chains, seen)
                .map_err(|TooMany| NftError::TooManyRules)?;
        }
        Ok(())
    }

    /// Translates the base chains through which the packets of these families go.
    fn bases_of(&mut self, chains: &[(Key<'a>, &'a Value)], seen: &[u8]) -> Result<(), TooMany> {
        let base = |(place, (key, chain)): (usize, &(Key<'a>, &'a Value))| Base {
            key: *key,
            policy: if text(chain, "policy") == "drop" {
                Action::Drop
            } else {
                Action::Pass
            },
            next: (place + 1 < chains.len()).then_some(place + 1),
        };
        self.bases = chains.iter().enumerate().map(base).collect();
        let mut conditions = Conditions::default();
        if let [family] = seen {
            conditions.restrict(Field::Family, &Ranges::of((*family).into()));
        }
        let mut policy = None;
        for place in 0..self.bases.len() {
            let Base {
                key,
                policy: of_chain,
                ..
            } = self.bases[place];
            self.lines.push(format!(
                "# table {}, chain {}",
                plain(&table(key)),
                plain(key.2)
            ));
            let is_decided =
                self.chain(key, vec![conditions.clone()], (After::Policy, place), 0)?;
            policy = Some(of_chain);
            // The chains after are for what this one accepts.
            if is_decided || of_chain == Action::Drop {
                break;
            }
        }
        match (seen, policy) {
            ([_, _], policy) => self.default = policy,
            // The other family passes, unless it has a chain of its own.
            ([family], Some(Action::Drop)) => {
                let all = if *family == 4 { "0.0.0.0/0" } else { "::/0" };
                self.lines
                    .push(format!("drop src {all} # policy of the chain"));
            }
            // What this family passes must not come to the rules of the other.
            _ => {}
        }
        Ok(())
    }

    /// Names what is refused, once.
    fn refuse(&mut self, refused: Refused) {
        let line = format!("# not translated: {refused}");
        self.bytes += line.len();
        self.lines.push(line);
        if self.known.insert(refused.clone()) {
            self.refused.push(refused);
        }
    }

    /// Translates the rules of a chain for packets that meet one of several conditions. Returns whether they decide about all of them.
    fn chain(
        &mut self,
        key: Key<'a>,
        mut entries: Vec<Conditions>,
        (after, base): (After, usize),
        depth: usize,
    ) -> Result<bool, TooMany> {
        let count = self.rules.get(&key).map_or(0, Vec::len);
        let mut do_some_leave = false;
        for number in 0..count {
            let rule = self.rules[&key][number];
            let mut next = Vec::new();
            for entry in entries {
                self.visits += 1;
                if self.visits > MOST_RULES {
                    return Err(TooMany);
                }
                let place = Place {
                    key,
                    base,
                    handle: rule.get("handle").and_then(Value::as_u64).unwrap_or(0),
                    comment: text(rule, "comment").to_owned(),
                    rate: String::new(),
                    is_for_all: true,
                    is_last: number + 1 == count,
                    after,
                    depth,
                };
                match self.rule(rule, &entry, place)? {
                    Then::Next => next.push(entry),
                    Then::Decided => {}
                    Then::Left => do_some_leave = true,
                    Then::Rest(rest) => {
                        do_some_leave = true;
                        next.extend(rest);
                    }
                }
            }
            entries = next;
            if entries.is_empty() {
                return Ok(!do_some_leave);
            }
        }
        Ok(false)
    }

    fn rule(
        &mut self,
        rule: &'a Value,
        entry: &Conditions,
        mut place: Place<'a>,
    ) -> Result<Then, TooMany> {
        let mut parts = vec![entry.clone()];
        let (mut verdicts, mut faults) = (Vec::new(), Vec::new());
        self.names.table = (place.key.0, place.key.1);
        self.names.is_family_known = false;
        let statements = rule
            .get("expr")
            .and_then(Value::as_array)
            .map(Vec::as_slice)
            .unwrap_or_default();
        for statement in statements {
            let taken = match kind_of(statement) {
                _ if !verdicts.is_empty() => Err("a statement behind a verdict".to_owned()),
                Some(("match", _)) if !place.rate.is_empty() => Err(
                    "limit: it counts packets for which the matches behind it do not hold"
                        .to_owned(),
                ),
                Some(("match", value)) => {
                    let [left, right] =
                        ["left", "right"].map(|side| value.get(side).unwrap_or(&Value::Null));
                    let all = parts
                        .iter()
                        .map(|part| self.names.parts(part, left, text(value, "op"), right));
                    let all: Result<Vec<_>, String> = all.collect();
                    self.names.is_family_known |= Names::says_family(left);
                    all.map(|all| parts = all.concat())
                }
                Some(("counter", _)) => Ok(()),
                Some(("log", value)) => {
                    place.comment = format!("{} log {}", place.comment, text(value, "prefix"))
                        .trim()
                        .to_owned();
                    Ok(())
                }
                Some(("limit", _)) if !place.rate.is_empty() => {
                    Err("limit: a second one".to_owned())
                }
                Some(("limit", limit)) => rate(limit).map(|words| place.rate = words),
                Some(("vmap", value)) => {
                    let arms: Result<Vec<_>, String> =
                        parts.iter().map(|part| self.arms(value, part)).collect();
                    arms.map(|arms| verdicts = arms.concat())
                }
                Some((
                    "accept" | "drop" | "reject" | "continue" | "return" | "jump" | "goto",
                    _,
                )) => {
                    verdicts = parts.iter().map(|part| (part.clone(), statement)).collect();
                    Ok(())
                }
                Some((kind, _)) => Err(format!("{kind}: weir has no such statement")),
                None => Err("a statement of another form".to_owned()),
            };
            faults.extend(taken.err());
            if parts.len() > MOST_RULES {
                return Err(TooMany);
            }
        }
        if verdicts.is_empty() {
            verdicts = parts.into_iter().map(|part| (part, &Value::Null)).collect();
        }
        let mark = self.lines.len();
        let mut then = Then::Next;
        let is_whole = faults.is_empty();
        for (conditions, verdict) in &verdicts {
            if conditions.is_empty() {
                continue;
            }
            if verdicts.len() > 1 && !place.rate.is_empty() {
                faults.push("limit: one rate for several verdicts".to_owned());
                break;
            }
            place.is_for_all = conditions == entry && place.rate.is_empty();
            match self.decide(conditions, verdict, &place) {
                Ok(Then::Rest(_)) => {
                    match without(then, entry, conditions) {
                        Some(next) => then = next,
                        None => {
                            let kind = kind_of(verdict).map_or("return", |(kind, _)| kind);
                            faults.push(format!("{kind}: the rules behind it are for packets that weir has no words for"));
                            then = Then::Next;
                        }
                    }
                }
                Ok(Then::Next) => {}
                // Some have left, and all others are decided.
                Ok(Then::Decided) if matches!(then, Then::Left | Then::Rest(_)) => {
                    then = Then::Rest(Vec::new())
                }
                Ok(next) => then = next,
                Err(Fault::TooMany) => return Err(TooMany),
                Err(Fault::Refused(why)) if is_whole => faults.push(why),
                // The reason may lie in a match that is missing; what is after a jump was named.
                Err(Fault::Refused(_)) => faults.extend(kind_of(verdict).and_then(answer_fault)),
            }
        }
        if self.bytes > MOST_BYTES || self.lines.len() > 2 * MOST_RULES {
            return Err(TooMany);
        }
        if faults.is_empty() {
            if self.lines.len() == mark
                && verdicts.iter().all(|(conditions, _)| conditions.is_empty())
            {
                self.lines.push(format!(
                    "# no packet matches: table {}, {}",
                    plain(&table(place.key)),
                    of_rule(&place)
                ));
            }
            return Ok(then);
        }
        self.lines.truncate(mark);
        for what in faults {
            let (table, chain) = (table(place.key), place.key.2.to_owned());
            self.refuse(Refused {
                table,
                chain,
                rule: Some(place.handle),
                what,
            });
        }
        Ok(Then::Next)
    }

    /// Verdicts of a map, each with its conditions.
    fn arms(
        &mut self,
        value: &'a Value,
        conditions: &Conditions,
    ) -> Result<Vec<(Conditions, &'a Value)>, String> {
        let null = &Value::Null;
        let (key, data) = (
            value.get("key").unwrap_or(null),
            value.get("data").unwrap_or(null),
        );
        let elements = match data.as_str().and_then(|name| name.strip_prefix('@')) {
            Some(name) => {
                let (family, table) = self.names.table;
                let map = self.verdict_maps.get(&(family, table, name));
                map.map(|map| map.get("elem").unwrap_or(null))
            }
            None => data.get("set"),
        };
        let elements = elements.ok_or_else(|| format!("vmap: no map {}", called(data)))?;
        let pair = |element: &'a Value| match element.as_array().map(Vec::as_slice) {
            Some([value, verdict]) => Ok((value, verdict)),
            _ => Err("vmap: an element of another form".to_owned()),
        };
        let elements = elements.as_array().map(Vec::as_slice).unwrap_or_default();
        let mut arm = |element| {
            let (value, verdict) = pair(element)?;
            let mut conditions = conditions.clone();
            self.names
                .restrict(&mut conditions, key, "==", value)
                .map_err(|why| format!("vmap of {why}"))?;
            Ok((conditions, verdict))
        };
        elements.iter().map(&mut arm).collect()
    }

    /// Translates a verdict on packets that meet conditions. Where these packets leave the chain, and others stay, the rest is that without them.
    fn decide(
        &mut self,
        conditions: &Conditions,
        verdict: &'a Value,
        place: &Place<'a>,
    ) -> Result<Then, Fault> {
        let &Place {
            is_for_all,
            is_last,
            after,
            base,
            ..
        } = place;
        let (kind, value) = kind_of(verdict).unwrap_or(("continue", verdict));
        let decided = if is_for_all {
            Then::Decided
        } else {
            Then::Next
        };
        let leave = || {
            if is_for_all {
                Ok(Then::Left)
            } else if is_last {
                Ok(Then::Next)
            } else if place.rate.is_empty() {
                Ok(Then::Rest(Vec::new()))
            } else {
                Err(format!("limit: one rate for the rules that a {kind} skips"))
            }
        };
        match kind {
            "continue" => self
                .emit(conditions, Action::Count, place)
                .map(|()| Then::Next),
            "accept" => self.accept(conditions, place).map(|()| decided),
            "drop" => self.emit(conditions, Action::Drop, place).map(|()| decided),
            "reject" => {
                let (rejected, answer) = rejected(conditions, value)?;
                self.emit(&rejected, Action::Reject(answer), place)?;
                Ok(if rejected == *conditions {
                    decided
                } else {
                    Then::Next
                })
            }
            "return" => match after {
                After::Policy => self.by_policy(conditions, place).map(|()| decided),
                After::Caller => Ok(leave()?),
            },
            "jump" | "goto" => {
                if !place.rate.is_empty() {
                    return Err(format!("limit: one rate for the rules behind a {kind}").into());
                }
                let target = self.target(place, value)?;
                let then = if is_last || kind == "goto" {
                    after
                } else {
                    After::Caller
                };
                let is_decided = self
                    .chain(
                        target,
                        vec![conditions.clone()],
                        (then, base),
                        place.depth + 1,
                    )
                    .map_err(|TooMany| Fault::TooMany)?;
                self.names.table = (place.key.0, place.key.1);
                match (kind, after) {
                    _ if is_decided => Ok(decided),
                    ("jump", _) => Ok(Then::Next),
                    (_, After::Policy) => self.by_policy(conditions, place).map(|()| decided),
                    _ => Ok(leave()?),
                }
            }
            kind => Err(format!("{kind}: weir has no such verdict").into()),
        }
    }

    /// Translates that the base chain accepts packets: the next chain judges them, and without one
    /// they pass.
    fn accept(&mut self, conditions: &Conditions, place: &Place<'a>) -> Result<(), Fault> {
        let Some(next) = self.bases[place.base].next else {
            return self.emit(conditions, Action::Pass, place);
        };
        if !place.rate.is_empty() {
            return Err(
                "limit: one rate for the rules of the next chain at the hook"
                    .to_owned()
                    .into(),
            );
        }
        let key = self.bases[next].key;
        let is_decided = self
            .chain(key, vec![conditions.clone()], (After::Policy, next), 0)
            .map_err(|TooMany| Fault::TooMany)?;
        self.names.table = (place.key.0, place.key.1);
        let place = Place {
            base: next,
            comment: String::new(),
            rate: String::new(),
            ..*place
        };
        if is_decided {
            Ok(())
        } else {
            self.by_policy(conditions, &place)
        }
    }

    /// Translates that the policy of the base chain decides.
    fn by_policy(&mut self, conditions: &Conditions, place: &Place<'a>) -> Result<(), Fault> {
        match self.bases[place.base].policy {
            Action::Pass => self.accept(conditions, place),
            policy => self.emit(conditions, policy, place),
        }
    }

    /// Finds the chain of a jump.
    fn target(&self, place: &Place<'a>, value: &'a Value) -> Result<Key<'a>, Fault> {
        let (family, table, _) = place.key;
        let key = (family, table, text(value, "target"));
        match self.known_chains.contains(&key) {
            false => Err(format!("jump: there is no chain {}", key.2).into()),
            true if place.depth == DEEPEST => {
                Err(format!("jump: chains are {DEEPEST} deep already").into())
            }
            true => Ok(key),
        }
    }

    /// Writes the lines for a verdict.
    fn emit(
        &mut self,
        conditions: &Conditions,
        action: Action,
        place: &Place<'a>,
    ) -> Result<(), Fault> {
        if conditions.is_empty() {
            return Ok(());
        }
        let lines = conditions.lines(action, &place.rate)?;
        if !place.rate.is_empty() && !self.rated.insert((place.key, place.handle)) {
            return Err("limit: one rate for a rule to which several ways lead"
                .to_owned()
                .into());
        }
        self.is_open_to_authentication |= conditions.is_open_to_authentication(action);
        let family = if conditions.may_be(Field::Family, 4) {
            4
        } else {
            6
        };
        for (name, field) in conditions.sets() {
            if self.set_lines.iter().all(|(known, _)| known != name) {
                let addresses = conditions.get(field).into_iter().flat_map(Ranges::iter);
                self.set_lines.push((
                    name.clone(),
                    addresses.map(|range| address_text(family, range)).collect(),
                ));
            }
        }
        for mut line in lines {
            if !place.comment.is_empty() {
                line += &format!(" # {}", plain(&place.comment));
            }
            self.bytes += line.len();
            self.lines.push(line);
        }
        Ok(())
    }

    fn finish(self) -> Translation {
        let mut text = HEAD.to_owned();
        self.names
            .notes
            .iter()
            .for_each(|note| text += &format!("{note}\n"));
        let default = if self.default == Some(Action::Drop) {
            "drop"
        } else {
            "pass"
        };
        text += &format!("neighbors pass\ndefault {default}\n");
        for (name, addresses) in &self.set_lines {
            for some in addresses.chunks(IN_LINE) {
                text += &format!("set {name} {}\n", some.join(" "));
            }
        }
        if self.is_open_to_authentication {
            text += AUTHENTICATION;
        }
        for line in &self.lines {
            text += line;
            text.push('\n');
        }
        Translation {
            text,
            refused: self.refused,
        }
    }
}

const HEAD: &str = "\
# Translated from nftables: what its chains at the hook forward decide.
# Where a packet lacks a field that a rule names (later fragments, cut headers), drop applies and pass does not; nftables may pass it.
# Neighbor discovery passes, since no router forwards it and so no chain at that hook sees it.
";

/// Drops packets whose authentication header weir looks after.
const AUTHENTICATION: &str = "\
# weir looks behind an authentication header, and nftables takes it for the transport.
drop extension ah
";

/// More rules than a list may have.
struct TooMany;

fn table((family, table, _): Key<'_>) -> String {
    format!("{family} {table}")
}

fn of_rule(place: &Place<'_>) -> String {
    format!("chain {}, rule {}", plain(place.key.2), place.handle)
}
