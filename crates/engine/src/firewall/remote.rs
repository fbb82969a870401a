//! Requests to a firewall over its control socket.
//!
//! ```text
//! {"request":"change","lines":["ban 192.0.2.7"],"for_s":600}    {"ok":{"change":12}}   lines of a permission table; for_s: bans end
//! {"request":"change","lines":["ban 192.0.2.7"],"by":"mail"}    the same; the list says who asked
//! {"request":"list"}                                            {"ok":{"bans":[{"address":"192.0.2.7","left_s":599.2,"by":"mail","restored":false}]}}
//! {"request":"reload"}                                          {"ok":{"change":13,"rules":42}}
//! {"request":"reload","confirm_s":60}                           the same; the rules before come back in 60 s without a confirmation
//! {"request":"set","what":"rules","value":"drop src 192.0.2.7\n"}   {"ok":{"change":13,"rules":1}}   until the file is read again; "name": their name in messages
//! {"request":"set","what":"output","value":"b.pcapng"}          {"ok":{"change":1}}   the file of a firewall that writes one
//! {"request":"confirm"}                                         {"ok":{}}      of such a reload, or of the start
//! {"request":"stats"}                                           {"ok":{"received":...,"passed":...,"filtered":...,"denied":...,"dropped":{"kernel":0},"rules":[...]}}
//! {"request":"watch","every_s":1}                               {"ok":...} as stats, and again at each interval
//! ```
//!
//! A change that was answered with `ok` is in force on every worker. Its lines are one step, up to 4096 changes of an address. Its bans are on the
//! disk, if they are kept, so that they come back after a restart; else the answer has the reason (`unkept`), as that to `list` has while the
//! file cannot be written.

use super::confirm::{self, Awaited};
use super::controller::{Applied, Ban, ChangeError, Controller, Standing};
use super::{FirewallCounts, RuleSet};
use crate::control::remote::{RULES_MEMBERS, given_rules, refused_file};
use crate::ledger::Ledger;
use crate::name::Name;
use crate::output_changes::OutputSlot;
use crate::sink::{Lost, Sink, StageCounts};
use crate::socket::Reply;
use crate::socket::protocol::{check_members, text_member};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;
use weir_firewall::control::Refusal;
use weir_firewall::kept::Origin;
use weir_firewall::rules::Unit;
use weir_firewall::{Count, Verdict};
use weir_pipeline::threads::spawn;

/// Cause of drops behind the firewall.
const OUTPUT: &str = "output";

/// Bans in an answer, at most: more would be longer than an answer may be.
const MOST_LISTED: usize = 1 << 16;

/// Requests there are.
const REQUESTS: &str = "change, list, reload, set, confirm, stats and watch";

/// Name of a program that does not say its name.
const PROGRAM: &str = "program";

/// Origin of bans of the permission table that a firewall started with.
const OF_TABLE: &str = "table";

/// Function that makes the sink for a file of this name. **Errors**: the reason as one line.
pub type MakeFile = Box<dyn Fn(&Name) -> Result<Box<dyn Sink>, String> + Send + Sync>;

/// Output of a firewall that requests replace by another file.
pub struct Output {
    /// The output.
    pub slot: OutputSlot,
    /// Function that makes its sinks.
    pub make: MakeFile,
}

/// Answers a request; `output` is the output in a file, if requests replace it.
pub fn request(controller: &Arc<Controller>, output: Option<&Output>, request: &Value) -> Reply {
    let members: Option<&[&str]> = match request["request"].as_str() {
        Some("change") => Some(&["lines", "for_s", "by"]),
        Some("watch") => Some(&["every_s"]),
        Some("reload") => Some(&["confirm_s"]),
        Some("set") => Some(&RULES_MEMBERS),
        Some("list" | "confirm" | "stats") => Some(&[]),
        _ => None,
    };
    if let Some(Err(why)) = members.map(|members| check_members(request, members)) {
        return Reply::Refused(why);
    }
    match request["request"].as_str() {
        Some("change") => change(controller, request),
        Some("list") => {
            let bans = controller.bans();
            let listed = bans
                .iter()
                .take(MOST_LISTED)
                .map(ban_json)
                .collect::<Vec<_>>();
            let mut answer = json!({ "bans": listed });
            if bans.len() > MOST_LISTED {
                answer["more"] = (bans.len() - MOST_LISTED).into();
            }
            unkept_json(&mut answer, controller.unkept());
            Reply::Done(with_confirmation(answer, controller))
        }
        Some("reload") => reload(controller, request),
        Some("set") => set(controller, output, request),
        Some("confirm") => match controller.confirm() {
            Ok(()) => Reply::Done(json!({})),
            Err(why) => Reply::Refused(why.to_string()),
        },
        Some("stats") => Reply::Done(with_confirmation(stats(&controller.standing()), controller)),
        Some("watch") => watch(controller, request),
        Some(other) => Reply::Refused(format!("unknown request '{other}': {REQUESTS} are known")),
        None => Reply::Refused(format!("a request has a member \"request\": {REQUESTS}")),
    }
}

fn ban_json(
    Ban {
        address,
        left,
        by,
        restored,
    }: &Ban,
) -> Value {
    json!({
        "address": address.to_string(),
        "left_s": left.map(|left| left.as_secs_f64()),
        "by": by.as_ref().map_or(OF_TABLE, Origin::name),
        "restored": restored,
    })
}

fn unkept_json(answer: &mut Value, unkept: Option<String>) {
    if let Some(why) = unkept {
        answer["unkept"] = why.into();
    }
}

fn change(controller: &Controller, request: &Value) -> Reply {
    let lines = request["lines"]
        .as_array()
        .into_iter()
        .flatten()
        .map(Value::as_str)
        .collect::<Option<Vec<_>>>();
    let Some(lines) = lines.filter(|lines| !lines.is_empty()) else {
        return Reply::Refused("lines is not a list of lines of a permission table".to_owned());
    };
    let time = match &request["for_s"] {
        Value::Null => None,
        value => match value
            .as_f64()
            .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        {
            Some(time) if !time.is_zero() => Some(time),
            _ => {
                return Reply::Refused(
                    "a ban lasts a number of seconds above 0, or for good without a time"
                        .to_owned(),
                );
            }
        },
    };
    let by = match &request["by"] {
        Value::Null => Origin::new(PROGRAM),
        name => name.as_str().and_then(Origin::new),
    };
    let Some(by) = by else {
        return Reply::Refused(format!(
            "by is not a name of 1 to {} letters, digits, . - and _",
            Origin::LONGEST
        ));
    };
    match controller.apply(lines, time, &by) {
        Ok(Applied { change, unkept }) => {
            let mut answer = json!({ "change": change });
            unkept_json(&mut answer, unkept);
            Reply::Done(answer)
        }
        Err(why) => Reply::Refused(why.to_string()),
    }
}

fn reload(controller: &Controller, request: &Value) -> Reply {
    let time = match &request["confirm_s"] {
        Value::Null => None,
        value => match value
            .as_f64()
            .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        {
            Some(time) if !time.is_zero() && time <= confirm::LONGEST => Some(time),
            _ => {
                return Reply::Refused(
                    "confirm_s is not a number of seconds above 0, up to a day".to_owned(),
                );
            }
        },
    };
    reloaded(controller.reload_for(time))
}

fn reloaded(reloaded: Result<(u64, Arc<RuleSet>), ChangeError>) -> Reply {
    match reloaded {
        Ok((change, rules)) => {
            Reply::Done(json!({ "change": change, "rules": rules.list().rules.len() }))
        }
        Err(why) => Reply::Refused(why.to_string()),
    }
}

fn set(controller: &Controller, output: Option<&Output>, request: &Value) -> Reply {
    let done = match text_member(request, "what") {
        Ok(Some("rules")) => {
            given_rules(request).map(|given| reloaded(controller.set_rules(&given)))
        }
        Ok(Some("output")) => set_output(controller, output, request),
        Ok(what) => Err(format!(
            "'{}' cannot be set: rules and output can",
            what.unwrap_or_default()
        )),
        Err(why) => Err(why),
    };
    done.unwrap_or_else(Reply::Refused)
}

/// Replaces the file of the output.
fn set_output(
    controller: &Controller,
    output: Option<&Output>,
    request: &Value,
) -> Result<Reply, String> {
    check_members(request, &["what", "value"])?;
    let name = text_member(request, "value")?.ok_or("an output is the name of a file")?;
    let Output { slot, make } = output.ok_or(
        "no file of this firewall can be replaced: start it with a file and with --control PATH",
    )?;
    let name = Name::from(name);
    let sink = make(&name)?;
    let change = controller
        .set_output(*slot, &name.as_output(), sink)
        .map_err(|error| refused_file(&error))?;
    Ok(Reply::Done(json!({ "change": change })))
}

/// Adds what waits for a confirmation, and the time that is left.
fn with_confirmation(mut answer: Value, controller: &Controller) -> Value {
    if let Some((what, time)) = controller.awaited() {
        answer["unconfirmed"] = if what == Awaited::Start {
            "start"
        } else {
            "rules"
        }
        .into();
        answer["unconfirmed_s"] = time.as_secs_f64().into();
    }
    answer
}

fn watch(controller: &Arc<Controller>, request: &Value) -> Reply {
    const SHORTEST: f64 = 0.1;
    let every = match &request["every_s"] {
        Value::Null => Some(1.0),
        value => value
            .as_f64()
            .filter(|every| (SHORTEST..=86400.0).contains(every)),
    };
    let Some(every) = every else {
        return Reply::Refused("every_s is not a number of seconds from 0.1 on".to_owned());
    };
    // A client that reads slowly gets fewer lines.
    let (send, lines) = sync_channel(1);
    let first = stats(&controller.standing());
    let controller = Arc::clone(controller);
    let work = move || {
        loop {
            std::thread::sleep(Duration::from_secs_f64(every));
            let standing = controller.standing();
            if standing.directions.is_empty() || send.send(stats(&standing)).is_err() {
                return;
            }
        }
    };
    match spawn("firewall watch", 0, work) {
        Ok(_) => Reply::Subscribed { first, lines },
        Err(error) => Reply::Refused(error.to_string()),
    }
}

/// Returns the account of a run as an object; `place` is the part of the system that drops packets for want of room.
pub fn account(ledger: &Ledger, place: Option<&str>) -> Map<String, Value> {
    let source = place.map(|place| (place, ledger.dropped.source));
    let output = Some((OUTPUT, ledger.dropped.output)).filter(|(_, count)| *count > 0);
    let dropped: BTreeMap<&str, u64> = source.into_iter().chain(output).collect();
    let mut object = Map::new();
    let terms = [
        ("received", json!(ledger.received)),
        ("passed", json!(ledger.passed)),
        ("filtered", json!(ledger.filtered)),
        ("denied", json!(ledger.denied)),
        ("dropped", json!(dropped)),
    ];
    object.extend(terms.map(|(name, value)| (name.to_owned(), value)));
    object.extend(fates(ledger));
    object
}

/// Returns what became of the packets that outputs were handed: `taken` and `lost` of the main output, and the same of all others
/// as `files`.
pub fn fates(ledger: &Ledger) -> Map<String, Value> {
    let mut object = Map::new();
    let fates = |counts: &StageCounts| {
        let each = |lost: &Lost| (lost.why.name().to_owned(), lost.packets.into());
        let lost: Map<String, Value> = counts.lost.iter().map(each).collect();
        [("taken", counts.taken.into()), ("lost", lost.into())]
            .map(|(name, value): (_, Value)| (name.to_owned(), value))
    };
    if let Some(main) = &ledger.main {
        object.extend(fates(main));
    }
    if let Some(others) = &ledger.others {
        let others = Map::from_iter(fates(others));
        object.insert("files".to_owned(), others.into());
    }
    object
}

/// Returns the state as one object.
pub fn stats(standing: &Standing) -> Value {
    let mut sum = Ledger::default();
    let mut directions = Vec::new();
    for (direction, snapshot) in &standing.directions {
        // What the ring lost counts as received too.
        let counts = snapshot.captures.iter();
        let lost: u64 = counts.map(|(_, counts)| counts.dropped).sum();
        let mut ledger = snapshot.ledger.clone();
        ledger.received += lost;
        ledger.dropped.source += lost;
        let mut object = account(&ledger, Some(direction.place));
        object.insert("from".to_owned(), direction.source.as_str().into());
        object.insert("to".to_owned(), direction.sink.as_str().into());
        directions.push(object);
        sum = sum.with(&ledger);
    }
    let place = standing
        .directions
        .first()
        .map(|(direction, _)| direction.place);
    let mut object = account(&sum, place);
    object.insert("seconds".to_owned(), standing.time.as_secs_f64().into());
    object.insert("directions".to_owned(), directions.into());
    if let Some(counts) = &standing.counts {
        object.insert("bytes".to_owned(), counts.counters.passed.bytes.into());
        object.extend(counts_json(counts));
    }
    Value::Object(object)
}

/// Returns the counts of the rules, and of the lines for the rest.
pub fn counts_json(counts: &FirewallCounts) -> Map<String, Value> {
    let (list, counters) = (counts.rules.list(), &counts.counters);
    let rules = list.rules.iter().zip(&counters.rules).map(|(rule, count)| {
        let mut object = json!({
            "line": rule.line,
            "rule": rule.text,
            "comment": rule.comment,
            "packets": count.all.packets,
            "bytes": count.all.bytes,
            "field_absent": count.absent,
        });
        if rule.rate.is_some_and(|rate| rate.is_per_source) {
            object["no_room_for_source"] = count.no_room.into();
        }
        if rule.rate.is_some_and(|rate| rate.unit == Unit::Bytes) {
            object["longer_than_burst"] = count.too_long.into();
        }
        object
    });
    let mut object = Map::new();
    object.insert("rules".to_owned(), rules.collect::<Vec<_>>().into());
    if counters.unjudged.packets > 0 {
        object.insert("unjudged".to_owned(), counters.unjudged.packets.into());
    }
    if let Some(connections) = counts.rules.connections() {
        let of_table = json!({ "recorded": connections.count(counts.time_ns), "without_room": counters.unrecorded });
        object.insert("connections".to_owned(), of_table);
    }
    for (name, does, count) in rest(counts) {
        let count = json!({ "does": does, "packets": count.packets, "bytes": count.bytes });
        object.insert(name.replace('-', "_"), count);
    }
    if counts.has_control {
        let of = |(name, count): (&str, Count)| {
            (
                name.replace(' ', "_"),
                json!({ "packets": count.packets, "bytes": count.bytes }),
            )
        };
        object.insert(
            "control".to_owned(),
            Value::Object(controls(counts).map(of).collect()),
        );
    }
    object
}

/// Returns the counts of packets to the control port: what came of them, count. Only those that were accepted were not denied.
pub fn controls(counts: &FirewallCounts) -> impl Iterator<Item = (&'static str, Count)> {
    let control = counts.counters.control;
    let refused = Refusal::ALL.into_iter().zip(control.refused);
    std::iter::once(("accepted", control.accepted))
        .chain(refused.map(|(why, count)| (why.name(), count)))
}

/// Returns the counts of packets that no rule decides about: name, effect, count.
pub fn rest(counts: &FirewallCounts) -> Vec<(&'static str, &'static str, Count)> {
    let (list, counters) = (counts.rules.list(), &counts.counters);
    let mut rest = vec![
        ("default", word(list.default), counters.default),
        ("neighbors", "pass", counters.neighbors),
        ("non-ip", word(list.non_ip), counters.non_ip),
        ("malformed", word(list.malformed), counters.malformed),
    ];
    if counts.has_table {
        rest.push(("persona_non_grata", "drop", counters.persona_non_grata));
        rest.push(("not_accepted", "drop", counters.not_accepted));
    }
    rest
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "pass",
        Verdict::Drop => "drop",
        Verdict::Reject => "reject",
    }
}
