//! Answers of `weir firewall`: what each rule did, as a table or in JSON, and the summary.

use crate::numbers::{asked_time, bytes, counted, grouped, packets, percent};
use crate::outcome::{dropped_words, tell};
use crate::summary::{Ending, Summary};
use crate::table::{Column, Narrow, grid, shortened};
use crate::terminal::{self, output_width, printable};
use serde_json::{Value, json};
use std::time::Duration;
use weir_engine::firewall::reject::AnswerCounts;
use weir_engine::firewall::{FirewallCounts, remote};
use weir_engine::ledger::Ledger;
use weir_engine::sink::StageCounts;
use weir_firewall::rules::{Rule, RuleList};
use weir_firewall::{Count, Counters, RuleCount};

/// Number of rules up to which a table has rules that applied to no packet.
const SHORT: usize = 50;

/// Cause of a drop: no output takes packets any more.
const OUTPUT: &str = "output";
use weir_messages::measured::lacks;

/// A finished run.
pub struct Report {
    /// Counts of all directions.
    pub counts: FirewallCounts,
    /// Sum over all directions.
    pub ledger: Ledger,
    /// Names and ledgers of the directions between ports.
    pub directions: Vec<(String, String, Ledger)>,
    /// Answers to rejected packets; `None` for files.
    pub answers: Option<AnswerCounts>,
    /// Part of the system that drops packets for lack of room; `None` for files.
    pub place: Option<&'static str>,
    /// Whether rules that applied to no packet are listed in any case.
    pub all: bool,
    pub fault: Option<String>,
    /// Parts of the choice of the packets, as the sources tell them.
    pub holds_only: Vec<String>,
    pub ending: Ending,
}

/// A line of the table.
struct Line {
    number: String,
    text: String,
    count: Count,
    absent: u64,
}

impl Report {
    fn parts(&self) -> (&RuleList, &Counters) {
        (self.counts.rules.list(), &self.counts.counters)
    }

    /// Returns a table: the rules in their order, and after them the lines for the rest.
    pub fn table(&self) -> String {
        let (list, counters) = self.parts();
        let shows_unused = self.all || list.rules.len() <= SHORT;
        let is_shown = |count: &RuleCount| shows_unused || count.all.packets > 0;
        let of_rule = |(rule, count): (&Rule, &RuleCount)| Line {
            number: rule.line.to_string(),
            text: match rule.comment.as_str() {
                "" => shortened(&rule.text),
                comment => format!("{}  # {}", shortened(&rule.text), shortened(comment)),
            },
            count: count.all,
            absent: count.absent,
        };
        let rules = list.rules.iter().zip(&counters.rules);
        let of_rules: Vec<Line> = rules
            .filter(|(_, count)| is_shown(count))
            .map(of_rule)
            .collect();
        let unused = list.rules.len() - of_rules.len();
        let of_rest = |name: &str, does: &str, count: Count| Line {
            number: "-".to_owned(),
            text: if does.is_empty() {
                table_words(name)
            } else {
                format!("{name} {does}")
            },
            count,
            absent: 0,
        };
        let (table, rest): (Vec<_>, Vec<_>) = remote::rest(&self.counts)
            .into_iter()
            .partition(|rest| of_table(rest.0));
        let table = table
            .into_iter()
            .map(|(name, _, count)| of_rest(&format!("table: {}", table_words(name)), "", count));
        let mut lines: Vec<Line> = table.collect();
        lines.extend(of_rules);
        let earlier = counters.earlier;
        lines.extend(
            (earlier.packets > 0)
                .then(|| of_rest("rules that are no longer in the list", "", earlier)),
        );
        let rest = rest
            .into_iter()
            .filter(|(name, _, count)| *name == "default" || count.packets > 0);
        lines.extend(rest.map(|(name, does, count)| of_rest(name, does, count)));
        let received = self.ledger.received;
        let cells =
            |cell: &dyn Fn(&Line) -> String| lines.iter().map(cell).collect::<Vec<_>>().into_iter();
        let mut columns = vec![
            Column::right("line", cells(&|line| line.number.clone())),
            Column::left("rule", cells(&|line| printable(&line.text).into_owned())),
            Column::right("packets", cells(&|line| grouped(line.count.packets))),
            Column {
                narrow: Narrow::Leaves(0),
                ..Column::right(
                    "share",
                    cells(&|line| percent(line.count.packets, received)),
                )
            },
            Column {
                narrow: Narrow::Leaves(1),
                ..Column::right("bytes", cells(&|line| bytes(line.count.bytes)))
            },
        ];
        if lines.iter().any(|line| line.absent > 0) {
            let absent = cells(&|line| {
                if line.absent == 0 {
                    String::new()
                } else {
                    grouped(line.absent)
                }
            });
            columns.push(Column::right("field absent", absent));
        }
        let mut text = grid(&columns, output_width());
        if unused > 0 {
            text.push_str(&format!(
                "  {} rules applied to no packet (--all lists them)\n",
                grouped(unused as u64)
            ));
        }
        text
    }

    /// Returns one JSON object.
    pub fn json(&self) -> String {
        let ledger = &self.ledger;
        let mut object = Value::Object(remote::account(ledger, self.place));
        object["bytes"] = ledger.bytes.into();
        if !self.directions.is_empty() {
            let direction = |(from, to, ledger): &(String, String, Ledger)| {
                let mut object = Value::Object(remote::account(ledger, self.place));
                (object["from"], object["to"]) = (from.as_str().into(), to.as_str().into());
                object
            };
            object["directions"] = self
                .directions
                .iter()
                .map(direction)
                .collect::<Vec<_>>()
                .into();
        }
        if let Some(AnswerCounts {
            sent,
            unanswerable,
            limited,
        }) = self.answers
        {
            object["answers"] =
                json!({ "sent": sent, "unanswerable": unanswerable, "limited": limited });
        }
        for (name, value) in remote::counts_json(&self.counts) {
            object[name] = value;
        }
        if self.counts.counters.earlier.packets > 0 {
            object["earlier_rules"] = self.counts.counters.earlier.packets.into();
        }
        for (name, value) in lacks(ledger, &self.holds_only) {
            object[name] = value;
        }
        object["fault"] = json!(self.fault);
        if self.ending.is_interrupted() {
            object["interrupted"] = true.into();
        }
        format!("{}\n", terminal::json("summary", &object))
    }

    /// Prints the summary on standard error.
    pub fn summary(&self, time: Duration, is_incomplete: bool) {
        let ledger = &self.ledger;
        let mut after = if self.counts.has_control {
            control_words(&self.counts)
        } else {
            String::new()
        };
        if let Some(AnswerCounts {
            sent: sent @ 1.., ..
        }) = self.answers
        {
            after.push_str(&format!(", {} answered", packets(sent)));
        }
        let summary = Summary {
            received: ledger.received,
            fates: vec![
                format!("{} passed", grouped(ledger.passed)),
                format!(
                    "{} denied ({})",
                    grouped(ledger.denied),
                    percent(ledger.denied, ledger.received)
                ),
                dropped_words(&drops(ledger, self.place)),
                lost_words(ledger.main.as_ref(), "the output"),
                lost_words(ledger.others.as_ref(), "-w"),
            ],
            time,
            after,
            ending: self.ending,
            is_incomplete,
            ..Summary::default()
        };
        tell(&summary.line());
    }
}

/// Counts of the packets to the control port, in words.
fn control_words(counts: &FirewallCounts) -> String {
    let mut controls = remote::controls(counts).map(|(name, count)| (name, count.packets));
    let (_, accepted) = controls.next().unwrap_or_default();
    let mut line = format!(", {} obeyed", counted(accepted, "control packet"));
    let refused: Vec<String> = controls
        .filter(|(_, packets)| *packets > 0)
        .map(|(name, packets)| format!("{} {name}", grouped(packets)))
        .collect();
    if !refused.is_empty() {
        line.push_str(&format!(" (refused: {})", refused.join(", ")));
    }
    line
}

/// Packets that an output lost: `20 lost at the output: down`. Empty if there are none.
fn lost_words(counts: Option<&StageCounts>, output: &str) -> String {
    let Some(counts) = counts.filter(|counts| counts.lost() > 0) else {
        return String::new();
    };
    let why: Vec<&str> = counts.lost.iter().map(|lost| lost.why.name()).collect();
    let lost = grouped(counts.lost());
    format!("{lost} lost at {output}: {}", why.join(", "))
}

/// Places of drops, and their counts.
fn drops(ledger: &Ledger, place: Option<&'static str>) -> Vec<(&'static str, u64)> {
    place
        .map(|place| (place, ledger.dropped.source))
        .into_iter()
        .chain([(OUTPUT, ledger.dropped.output)])
        .collect()
}

/// The name of a count of the table for people.
pub fn table_words(name: &str) -> String {
    match name {
        "persona_non_grata" => "blocked source".to_owned(),
        name => name.replace('_', " "),
    }
}

/// Whether a line of [`remote::rest`] is about the permission table.
fn of_table(name: &str) -> bool {
    matches!(name, "persona_non_grata" | "not_accepted")
}

/// A number of packets that are something.
fn are(count: u64) -> String {
    format!(
        "{} {}",
        packets(count),
        if count == 1 { "is" } else { "are" }
    )
}

/// Line on a start, or rules, that wait for a confirmation.
pub fn awaited_line(is_start: bool, time: Duration) -> String {
    let what = if is_start {
        "forwarding ends"
    } else {
        "the rules from before come back"
    };
    format!(
        "{what} in {}, unless weir firewall ctl confirm comes",
        asked_time(time)
    )
}

/// Way to name the interfaces of files for `weir firewall`.
pub const NAMES_THEM: &str = "--interface NAME names them";

/// Lines on packets that rules could not judge in full. `naming` says how interfaces get names.
pub fn notes(
    called: &str,
    counts: &FirewallCounts,
    (nameless, aimless): (u64, u64),
    naming: &str,
) -> Vec<String> {
    let FirewallCounts {
        rules, counters, ..
    } = counts;
    let list = rules.list();
    let mut lines = Vec::new();
    for senseless in rules.senseless() {
        let of = |rule: &&Rule| {
            rule.expression
                .is_some_and(|number| list.expressions[number] == senseless.expression)
        };
        let link = senseless
            .link
            .name()
            .map_or_else(|| senseless.link.0.to_string(), str::to_owned);
        for rule in list.rules.iter().filter(of) {
            lines.push(format!(
                "{called}: line {} matches no packet of link type {link}: {}",
                rule.line, senseless.why
            ));
        }
    }
    for (rule, count) in list
        .rules
        .iter()
        .zip(&counters.rules)
        .filter(|(_, count)| count.no_room > 0)
    {
        lines.push(format!(
            "{called}: line {}: the rates of more sources than there is room for: {} were taken as beyond the rate",
            rule.line,
            packets(count.no_room),
        ));
    }
    for (rule, count) in list
        .rules
        .iter()
        .zip(&counters.rules)
        .filter(|(_, count)| count.too_long > 0)
    {
        let burst = rule.rate.map_or(0, |rate| rate.burst);
        lines.push(format!(
            "{called}: line {}: {} longer than the {} bytes that may come at once, and so beyond the rate after every pause: burst makes room",
            rule.line,
            are(count.too_long),
            grouped(burst),
        ));
    }
    if counters.unjudged.packets > 0 {
        lines.push(format!(
            "{} passed unjudged in an overload (--fail open)",
            packets(counters.unjudged.packets)
        ));
    }
    if counters.unrecorded > 0 {
        lines.push(format!(
            "{} opened connections for which there was no room, so that their answers are invalid: --connections makes room",
            packets(counters.unrecorded),
        ));
    }
    if nameless > 0 {
        lines.push(format!(
            "{} came from interfaces without a name, so that no rule with 'on' matched them: {naming}",
            packets(nameless)
        ));
    }
    if aimless > 0 {
        lines.push(format!(
            "{} would leave at an interface without a name, so that no rule with 'to' matched them: --to NAME names it",
            packets(aimless)
        ));
    }
    lines
}
