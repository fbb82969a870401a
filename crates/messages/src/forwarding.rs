//! Messages of a firewall between interfaces.

use crate::captures;
use crate::errors::io_words;
use crate::events::Line;
use crate::guards::guarded;
use crate::numbers::counted;
use crate::ports;
use crate::{Refusal, refusal};
use std::sync::Arc;
use weir_engine::capture::AF_PACKET;
use weir_engine::firewall::RuleSet;
use weir_engine::firewall::confirm::{Awaited, Undone};
use weir_engine::firewall::controller::{ChangeError, Direction, Standing};
use weir_engine::firewall::forwarding::{Error, Occurrence, RulesRefused, Stranger};
use weir_engine::firewall::interface_lock::LockError;
use weir_engine::ledger::Ledger;
use weir_engine::name::Name;
use weir_engine::session::Unopened;
use weir_engine::sink::StageCounts;
use weir_firewall::rules::Side;
use weir_io::sys::bpf;

/// Message on why packets are not forwarded, or no longer; `rules` is what the rules are called.
pub fn refused(error: Error, rules: &str) -> Refusal {
    match error {
        Error::AnyInterface => {
            refusal!("any stands for all interfaces, and packets are forwarded from one")
        }
        Error::OtherNamespace => refusal!(
            "packets are forwarded between interfaces of one network namespace: run weir firewall in it, with ip netns exec or nsenter -n"
        ),
        Error::SameInterface { sink } => {
            refusal!("{sink} is where the packets come from: IN and OUT are two interfaces")
        }
        Error::OneWay { sink } => {
            refusal!("--bidirectional forwards between two interfaces, and {sink} is none")
        }
        Error::WritesBoth => refusal!(
            "-w takes the packets of one direction: leave --bidirectional out, or record with weir record"
        ),
        Error::FileAndInterface { sink } => refusal!(
            "{sink} is an interface, and a file of this name is there: {AF_PACKET}{sink} sends, ./{sink} is the file"
        ),
        Error::Departure { sink } => refusal!(
            "--to names the interface where packets of files would leave, and those that pass leave at {sink}"
        ),
        Error::NotShared { interface } => refusal!(
            "--distribute is about several workers of an AF_PACKET interface: --workers N {AF_PACKET}{interface}"
        ),
        Error::OpenWithControl => refusal!(
            "--fail open passes packets unread, and with them requests to --control-port: leave out one of them"
        ),
        Error::Guarded { name, error } => guarded(&name, &error),
        Error::Locked {
            name,
            error: error @ LockError::Held { .. },
        } => refusal!(
            "{name}: {error}; both would forward, and what either lets pass would pass: end that one, or give it \
             --bidirectional and rules with `on`"
        ),
        Error::Unopened(error) => captures::refusal(error),
        Error::Awaited { interface } => refusal!(
            "{interface} is not there: --wait cannot keep its packets from this host's own stack, or see whether this host \
             needs them; start the firewall when it is there, or with --tap"
        ),
        Error::NotClosed { source_name, error } => {
            let remedy = match error {
                bpf::Error::NotPermitted(_) => "run it as root",
                _ => "it takes Linux 6.6",
            };
            refusal!("{source_name}: {error}: {remedy}; --tap leaves the packets to this host too")
        }
        Error::Queues {
            source_name,
            queues,
        } => refusal!(
            "{source_name} has {queues} queues, and a file takes the packets of one: name it, as in af_xdp:eth0:0"
        ),
        Error::Port { name, error } => ports::refusal(&name, error),
        Error::Rules(error) => rules_refused(&error, rules),
        Error::Thread(error) => refusal!("a thread of a direction: {}", io_words(&error)),
        error => refusal!("{error}"),
    }
}

/// Message on why rules are not followed between these interfaces.
pub fn rules_refused(error: &RulesRefused, rules: &str) -> Refusal {
    match error {
        RulesRefused::States { line } => refusal!(
            "{rules}: line {line}: rules by the state of connections need --distribute flow"
        ),
        RulesRefused::Answers { line, silence } => {
            let why = guarded(&silence.name, &silence.why);
            let line = line.map_or_else(String::new, |line| format!("line {line}: "));
            refusal!("{rules}: {line}packets that are rejected get an answer; {why}")
        }
        error => refusal!("{rules}: {error}"),
    }
}

/// Line on a rule that matches no packet, because none arrives or leaves at the interfaces that it names.
pub fn stranger_line(stranger: &Stranger<'_>, rules: &str) -> String {
    let Stranger {
        line,
        side,
        named,
        places,
    } = stranger;
    let verb = match side {
        Side::Arrival => "arrive",
        Side::Departure => "leave",
    };
    format!(
        "{rules}: line {line} matches nothing: packets {verb} at {}, not at {named}",
        places.join(" and ")
    )
}

/// Line on an interface that AF_PACKET captures because AF_XDP cannot.
pub fn without_xdp_line(error: Unopened) -> String {
    format!(
        "{}; AF_PACKET instead, which hands packets over within a millisecond",
        captures::refusal(error)
    )
}

/// Line on an interface that is closed to this host.
pub fn closed_line(interface: &str) -> String {
    format!(
        "{interface}: what arrives is kept from this host's own stack; --tap leaves it to that too"
    )
}

/// Line on a file that takes the packets that pass. `copied` tells whether this host also gets them.
pub fn file_line(file: &Name, copied: bool) -> String {
    let words = match copied {
        true => "this host gets them too",
        false => "this host gets none of them",
    };
    format!(
        "{file}: packets that pass are written to this file, as there is no interface of this name; {words}"
    )
}

/// Line on an occurrence during the forwarding; `rules` is the file of the rules.
pub fn occurrence_line(occurrence: &Occurrence, rules: Option<&Name>) -> Line {
    match occurrence {
        Occurrence::Confirmed(Awaited::Start) => {
            Line::Plain("confirmed: forwarding goes on".to_owned())
        }
        Occurrence::Confirmed(Awaited::Rules) => {
            Line::Plain("confirmed: the rules stay".to_owned())
        }
        Occurrence::Undone(Undone::Start) => Line::Remark(
            "nobody confirmed the start: forwarding ends, and packets are this host's again"
                .to_owned(),
        ),
        Occurrence::Undone(Undone::Rules(change, rules)) => Line::Remark(format!(
            "nobody confirmed the rules: those from before are in force, {} (change {change}), until the file changes",
            counted(rules.list().rules.len() as u64, "rule")
        )),
        Occurrence::NotUndone(error) => {
            Line::Remark(format!("rules that nobody confirmed: {error}"))
        }
        Occurrence::Emptied => Line::Remark(format!(
            "{} is empty; the rules stay as they are",
            file_words(rules)
        )),
        Occurrence::Reloaded(reloaded) => Line::Remark(reloaded_line(reloaded, rules)),
        Occurrence::Set(change, rules) => Line::Remark(format!(
            "rules of a request: from now on {} (change {change})",
            counted(rules.list().rules.len() as u64, "rule")
        )),
        other => Line::Remark(format!("{other:?}")),
    }
}

/// Line on a file of rules that was read again.
pub fn reloaded_line(
    reloaded: &Result<(u64, Arc<RuleSet>), ChangeError>,
    rules: Option<&Name>,
) -> String {
    let file = file_words(rules);
    match reloaded {
        Ok((change, new)) => format!(
            "{file}: from now on {} (change {change})",
            counted(new.list().rules.len() as u64, "rule")
        ),
        // The words name the file already.
        Err(error @ ChangeError::Rules(_)) => error.to_string(),
        Err(error) => format!("{file}: {error}"),
    }
}

fn file_words(rules: Option<&Name>) -> String {
    rules.map_or_else(|| "the rules".to_owned(), Name::to_string)
}

/// Lines on the state of each direction.
pub fn standing_lines(standing: &Standing) -> Vec<String> {
    let line = |(direction, snapshot): &(Direction, weir_engine::control::Snapshot)| {
        let Ledger {
            received,
            passed,
            filtered,
            denied,
            ref main,
            ..
        } = snapshot.ledger;
        let Direction { source, sink, .. } = direction;
        let controls = match filtered {
            0 => String::new(),
            _ => format!(", {filtered} control packets"),
        };
        let lost = match main.as_ref().map_or(0, StageCounts::lost) {
            0 => String::new(),
            lost => format!(", {lost} lost at the output"),
        };
        format!(
            "{source} to {sink}: {received} delivered, {passed} passed, {denied} denied{controls}{lost}"
        )
    };
    standing.directions.iter().map(line).collect()
}
