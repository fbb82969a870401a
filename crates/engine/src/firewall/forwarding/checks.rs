//! Checks of a forwarding: its settings, and rules that can be followed between its interfaces.

use super::{Error, Settings, is_by_flow};
use crate::capture::namespaced::is_namespaced;
use crate::capture::{AF_PACKET, Live, is_interface};
use crate::guard::Guarded;
use crate::name::Name;
use crate::port;
use std::sync::Arc;
use weir_firewall::Verdict;
use weir_firewall::rules::{Action, Rule, RuleList, Side};
use weir_io::sys::packet_socket;

/// Reason for which rejected packets get no answer.
#[derive(Debug)]
pub struct Silence {
    /// Name of the port that would send the answers.
    pub name: Name,
    /// Reason for which it may not.
    pub why: Guarded,
}

/// Reason for which rules are not followed between these interfaces.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RulesRefused {
    /// A rule asks for connections, and packets of a flow go to several workers, one of which may judge an answer before its question.
    #[error("line {line}: the packets of a flow go to several workers")]
    States {
        /// Line of the rule.
        line: usize,
    },
    /// A packet that is rejected gets an answer, and nothing may be sent where it came from.
    #[error("packets that are rejected get an answer; {}: {}", .silence.name, .silence.why)]
    Answers {
        /// Line of the rule; `None` if the lines for the rest reject packets.
        line: Option<usize>,
        /// Reason for which nothing may be sent.
        silence: Arc<Silence>,
    },
}

/// A rule that names an interface at which no packets arrive or leave, so that it matches none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stranger<'a> {
    /// Line of the rule.
    pub line: usize,
    /// Whether the rule names where packets arrive, or else where they leave.
    pub side: Side,
    /// Interfaces as the rule names them.
    pub named: String,
    /// Interfaces at which packets arrive or leave.
    pub places: &'a [String],
}

/// Properties of a forwarding that its rules must fit.
#[derive(Clone, Debug)]
pub struct RulesCheck {
    is_by_flow: bool,
    arrivals: Vec<String>,
    departures: Vec<String>,
    /// Reason for which rejected packets cannot be answered.
    silence: Option<Arc<Silence>>,
}

impl RulesCheck {
    pub(super) fn new(settings: &Settings, pairs: &[(Name, Name)]) -> Self {
        let leaving = |sink| departure(sink).or_else(|| settings.departure.clone());
        let arriving = |source| interface_of(source).to_owned();
        Self {
            is_by_flow: is_by_flow(settings.capture.fanout),
            arrivals: pairs.iter().map(|(source, _)| arriving(source)).collect(),
            departures: pairs.iter().filter_map(|(_, sink)| leaving(sink)).collect(),
            silence: None,
        }
    }

    pub(super) fn with_silent(&self, silent: Vec<Silence>) -> Self {
        Self {
            silence: silent.into_iter().next().map(Arc::new),
            ..self.clone()
        }
    }

    /// Refuses rules that cannot be followed here.
    pub fn check(&self, list: &RuleList) -> Result<(), RulesRefused> {
        match list.rules.iter().find(|rule| rule.states.is_some()) {
            Some(&Rule { line, .. }) if !self.is_by_flow => {
                return Err(RulesRefused::States { line });
            }
            _ => {}
        }
        let Some(silence) = self.silence.clone() else {
            return Ok(());
        };
        let is_reject = |verdict: Verdict| verdict == Verdict::Reject;
        let rejects =
            |rule: &&Rule| matches!(rule.action, Action::Decide(verdict) if is_reject(verdict));
        let line = list.rules.iter().find(rejects).map(|rule| rule.line);
        let rest = [list.default, list.non_ip, list.malformed];
        match line.is_some() || rest.into_iter().any(is_reject) {
            true => Err(RulesRefused::Answers { line, silence }),
            false => Ok(()),
        }
    }

    /// Returns the rules that name interfaces at which no packets arrive or leave.
    pub fn strangers(&self, list: &RuleList) -> Vec<Stranger<'_>> {
        let mut strangers = Vec::new();
        for rule in &list.rules {
            for number in [rule.on, rule.to].into_iter().flatten() {
                let interfaces = &list.interfaces[number];
                let places = match interfaces.side {
                    Side::Arrival => &self.arrivals,
                    Side::Departure => &self.departures,
                };
                if places.is_empty() || places.iter().any(|name| interfaces.holds(name)) {
                    continue;
                }
                strangers.push(Stranger {
                    line: rule.line,
                    side: interfaces.side,
                    named: interfaces.to_string(),
                    places,
                });
            }
        }
        strangers
    }
}

/// Name of the interface where a sink sends; `None` for a file.
pub fn departure(sink: &Name) -> Option<String> {
    port::is_port(sink).then(|| port::interface(sink).unwrap_or(sink.utf8()).to_owned())
}

/// Name of the interface of a source.
pub(super) fn interface_of(name: &Name) -> &str {
    Live::of(name).map_or(name.utf8(), Live::interface)
}

/// Whether a source is captured with AF_PACKET if there are several workers, or if the packets go to a file.
pub fn is_by_af_packet(source: &Name) -> bool {
    let interface = Live::of(source).map(Live::interface);
    source.utf8().starts_with(AF_PACKET) || interface == Some(source.utf8())
}

/// Refuses settings that contradict each other; `sink` is the name of the port.
pub(super) fn check(settings: &Settings, sink: &Name) -> Result<(), Error> {
    let Settings {
        source,
        bidirectional,
        ..
    } = settings;
    let is_port = port::is_port(sink);
    let of_source = Live::of(source).map(Live::interface);
    let of_sink = port::interface(sink);
    if of_source == Some(packet_socket::ANY) {
        return Err(Error::AnyInterface);
    }
    let interfaces = [of_source, of_sink.or(Some(sink.utf8()))];
    if interfaces.into_iter().flatten().any(is_namespaced) {
        return Err(Error::OtherNamespace);
    }
    let index = |name: Option<&str>| name.and_then(packet_socket::index_of);
    let is_same =
        of_sink == of_source || index(of_sink).is_some() && index(of_sink) == index(of_source);
    if is_port && of_sink.is_some() && is_same {
        return Err(Error::SameInterface { sink: sink.clone() });
    }
    if *bidirectional && (!is_port || of_sink.is_none() && !port::is_dpdk(sink)) {
        return Err(Error::OneWay { sink: sink.clone() });
    }
    if *bidirectional && settings.writes {
        return Err(Error::WritesBoth);
    }
    if !is_port && is_interface(sink.utf8()) {
        return Err(Error::FileAndInterface { sink: sink.clone() });
    }
    if departure(sink).is_some() && settings.departure.is_some() {
        return Err(Error::Departure { sink: sink.clone() });
    }
    let is_shared = settings.workers.is_some_and(|workers| workers > 1) && is_by_af_packet(source);
    if !is_by_flow(settings.capture.fanout) && !is_shared {
        return Err(Error::NotShared {
            interface: interface_of(source).to_owned(),
        });
    }
    if settings.fails_open && settings.obeys_packets {
        return Err(Error::OpenWithControl);
    }
    Ok(())
}
