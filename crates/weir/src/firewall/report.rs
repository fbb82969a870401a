//! Answers of `weir firewall`: what each rule did, as a table or in JSON, and the summary.

use crate::numbers::{bytes, duration, grouped, packets, percent};
use crate::outcome::{dropped_words, tell};
use crate::table::{Column, Narrow, grid};
use crate::terminal::{self, output_width, printable};
use serde_json::{Value, json};
use std::time::Duration;
use weir_engine::firewall::Firewall;
use weir_engine::run::Ended;
use weir_firewall::rules::{Rule, RuleList};
use weir_firewall::{Count, Counters, RuleCount, Verdict};

/// Number of rules up to which a table has those that applied to no packet.
const SHORT: usize = 50;

/// Cause of a drop: no output takes packets any more.
const OUTPUT: &str = "output";

/// A finished run.
pub struct Report<'a> {
    pub firewall: &'a Firewall,
    pub ended: &'a Ended,
    /// Whether rules that applied to no packet are listed in any case.
    pub all: bool,
    pub fault: Option<String>,
}

/// A line of the table.
struct Line {
    number: String,
    text: String,
    count: Count,
    absent: u64,
}

impl Report<'_> {
    fn parts(&self) -> (&RuleList, &Counters) {
        (self.firewall.policy().rules.list(), self.firewall.counters())
    }

    /// Returns a table: the rules in their order, and behind them the lines for the rest.
    pub fn table(&self) -> String {
        let (list, counters) = self.parts();
        let shows_unused = self.all || list.rules.len() <= SHORT;
        let is_shown = |count: &RuleCount| shows_unused || count.all.packets > 0;
        let of_rule = |(rule, count): (&Rule, &RuleCount)| Line {
            number: rule.line.to_string(),
            text: match rule.comment.as_str() {
                "" => rule.text.clone(),
                comment => format!("{}  # {comment}", rule.text),
            },
            count: count.all,
            absent: count.absent,
        };
        let rules = list.rules.iter().zip(&counters.rules);
        let of_rules: Vec<Line> = rules.filter(|(_, count)| is_shown(count)).map(of_rule).collect();
        let unused = list.rules.len() - of_rules.len();
        let of_table = |(name, count): (&str, Count)| Line {
            number: "-".to_owned(),
            text: format!("table: {}", name.replace('_', " ")),
            count,
            absent: 0,
        };
        let mut lines: Vec<Line> = self.table_counts().into_iter().map(of_table).collect();
        lines.extend(of_rules);
        let rest = self.rest().into_iter().filter(|(name, _, count)| *name == "default" || count.packets > 0);
        lines.extend(rest.map(|(name, does, count)| Line {
            number: "-".to_owned(),
            text: format!("{name} {does}"),
            count,
            absent: 0,
        }));
        let received = self.ended.ledger.received;
        let cells = |cell: &dyn Fn(&Line) -> String| lines.iter().map(cell).collect::<Vec<_>>().into_iter();
        let mut columns = vec![
            Column::right("line", cells(&|line| line.number.clone())),
            Column::left("rule", cells(&|line| printable(&line.text).into_owned())),
            Column::right("packets", cells(&|line| grouped(line.count.packets))),
            Column {
                narrow: Narrow::Leaves(0),
                ..Column::right("share", cells(&|line| percent(line.count.packets, received)))
            },
            Column { narrow: Narrow::Leaves(1), ..Column::right("bytes", cells(&|line| bytes(line.count.bytes))) },
        ];
        if lines.iter().any(|line| line.absent > 0) {
            let absent = cells(&|line| if line.absent == 0 { String::new() } else { grouped(line.absent) });
            columns.push(Column::right("field absent", absent));
        }
        let mut text = grid(&columns, output_width());
        if unused > 0 {
            text.push_str(&format!("  {} rules applied to no packet (--all lists them)\n", grouped(unused as u64)));
        }
        text
    }

    /// Returns the counts of packets that the permission table denies, if there is one.
    fn table_counts(&self) -> Vec<(&'static str, Count)> {
        let counters = self.firewall.counters();
        let counts = [("persona_non_grata", counters.persona_non_grata), ("not_accepted", counters.not_accepted)];
        self.firewall.policy().permissions.iter().flat_map(|_| counts).collect()
    }

    /// Returns the lines for packets that no rule decides: name, effect, count.
    fn rest(&self) -> [(&'static str, &'static str, Count); 4] {
        let (list, counters) = self.parts();
        [
            ("default", word(list.default), counters.default),
            ("neighbors", "pass", counters.neighbors),
            ("non-ip", word(list.non_ip), counters.non_ip),
            ("malformed", word(list.malformed), counters.malformed),
        ]
    }

    /// Returns one JSON object.
    pub fn json(&self) -> String {
        let (list, counters) = self.parts();
        let ledger = &self.ended.ledger;
        let rules: Vec<Value> = list
            .rules
            .iter()
            .zip(&counters.rules)
            .map(|(rule, count)| {
                json!({
                    "line": rule.line,
                    "rule": rule.text,
                    "comment": rule.comment,
                    "packets": count.all.packets,
                    "bytes": count.all.bytes,
                    "field_absent": count.absent,
                })
            })
            .collect();
        let mut object = json!({
            "received": ledger.received,
            "passed": ledger.passed,
            "filtered": ledger.filtered,
            "denied": ledger.denied,
            "dropped": {},
            "bytes": ledger.bytes,
            "rules": rules,
        });
        if ledger.dropped.output > 0 {
            object["dropped"][OUTPUT] = ledger.dropped.output.into();
        }
        for (name, does, count) in self.rest() {
            object[name.replace('-', "_")] = json!({ "does": does, "packets": count.packets, "bytes": count.bytes });
        }
        for (name, count) in self.table_counts() {
            object[name] = json!({ "does": "drop", "packets": count.packets, "bytes": count.bytes });
        }
        object["fault"] = json!(self.fault);
        format!("{}\n", terminal::json(&object))
    }

    /// Prints the summary on standard error.
    pub fn summary(&self, time: Duration, is_interrupted: bool, is_incomplete: bool) {
        let ledger = &self.ended.ledger;
        let mut line = format!(
            "{} received, {} passed, {} denied ({}), {}, {}",
            grouped(ledger.received),
            grouped(ledger.passed),
            grouped(ledger.denied),
            percent(ledger.denied, ledger.received),
            dropped_words(&[(OUTPUT, ledger.dropped.output)]),
            duration(time),
        );
        if is_interrupted {
            line.push_str(", interrupted");
        }
        if is_incomplete {
            line.push_str(", incomplete: see the fault above");
        }
        line.push('\n');
        tell(&line);
    }
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "pass",
        Verdict::Drop => "drop",
        Verdict::Reject => "reject",
    }
}

/// Lines on packets that rules could not judge in full.
pub fn notes(rules: &str, firewall: &Firewall) -> Vec<String> {
    let list = firewall.policy().rules.list();
    let mut lines = Vec::new();
    for senseless in firewall.senseless() {
        let of = |rule: &&Rule| rule.expression.is_some_and(|number| list.expressions[number] == senseless.expression);
        let link = senseless.link.name().map_or_else(|| senseless.link.0.to_string(), str::to_owned);
        for rule in list.rules.iter().filter(of) {
            lines.push(format!("{rules}: line {} matches no packet of link type {link}: {}", rule.line, senseless.why));
        }
    }
    if firewall.nameless() > 0 {
        lines.push(format!(
            "{} came from interfaces without a name, so that no rule with 'on' matched them: --interface NAME names them",
            packets(firewall.nameless())
        ));
    }
    lines
}
