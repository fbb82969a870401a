//! `weir firewall ctl`: requests to a firewall that runs.

use super::{control_packets, control_socket, report};
use crate::cli::firewall::{CtlArgs, CtlCommand};
use crate::numbers::{asked_time, bit_rate, counted, grouped, percent, rate};
use crate::outcome::{Outcome, answer, print, say};
use crate::table::{Column, grid, shortened};
use crate::terminal::{self, output_width, printable};
use anyhow::bail;
use serde_json::{Value, json};
use std::io;
use std::time::Duration;
use weir_engine::socket::Error;
use weir_firewall::permissions::PermissionTable;

/// Runs the command.
pub fn run(arguments: &CtlArgs) -> anyhow::Result<Outcome> {
    if let Some(to) = &arguments.udp {
        let Some((lines, time)) = change(&arguments.command) else {
            bail!("--udp sends block, accept and refuse: nothing would come back of the others");
        };
        return control_packets::send(arguments, to, &lines, time);
    }
    // A wrong address is told whether or not a firewall runs.
    if let Some((lines, _)) = change(&arguments.command) {
        let table = PermissionTable::parse(&lines.join("\n"), lines.len().max(1) << 16, 0);
        if let Err(error) = table {
            say(without_line(&error.to_string()));
            return Ok(Outcome::Failed);
        }
    }
    let request = request(&arguments.command);
    let mut client = control_socket::connect(arguments.control.as_ref())?;
    if let CtlCommand::Watch { .. } = &arguments.command {
        let (first, lines) = client.subscribe(&request)?;
        return watch(first, lines, arguments.json);
    }
    let value = match client.ask(&request) {
        Ok(value) => value,
        Err(Error::Refused(why)) => {
            say(&why);
            return Ok(Outcome::Failed);
        }
        Err(error) => return Err(error.into()),
    };
    if let Some(why) = value["unkept"].as_str() {
        say(&format!(
            "the latest bans are in force, but are not kept over a restart: {why}"
        ));
    }
    let is_unkept = change(&arguments.command).is_some() && value["unkept"].is_string();
    if arguments.json {
        let kind = match &arguments.command {
            CtlCommand::List => "bans",
            CtlCommand::Stats => "counts",
            _ => "change",
        };
        return Ok(failed_if(
            is_unkept,
            answer(&format!("{}\n", terminal::json(kind, &value))),
        ));
    }
    Ok(match &arguments.command {
        CtlCommand::Block { .. } | CtlCommand::Accept { .. } => failed_if(is_unkept, Outcome::Done),
        CtlCommand::List => answer(&format!("{}{}", bans(&value), awaited(&value))),
        CtlCommand::Stats => answer(&format!("{}{}", stats(&value), awaited(&value))),
        CtlCommand::Reload { confirm } => {
            let awaited = confirm.map_or_else(String::new, |time| {
                format!(
                    " for {}: weir firewall ctl confirm keeps them",
                    asked_time(time)
                )
            });
            answer(&format!(
                "{} in force{awaited}\n",
                counted(number(&value["rules"]), "rule")
            ))
        }
        CtlCommand::Confirm => answer("confirmed\n"),
        _ => Outcome::Done,
    })
}

/// A message about a line of a table, which nobody wrote, without its number.
fn without_line(text: &str) -> &str {
    match text
        .strip_prefix("line ")
        .and_then(|rest| rest.split_once(": "))
    {
        Some((_, words)) => words,
        None => text,
    }
}

fn failed_if(failed: bool, outcome: Outcome) -> Outcome {
    if failed { Outcome::Failed } else { outcome }
}

/// Returns the lines of a permission table that a command stands for, and the time until its bans
/// end; `None` for a command without changes.
fn change(command: &CtlCommand) -> Option<(Vec<String>, Option<Duration>)> {
    let lines = |line: &dyn Fn(&String) -> String, addresses: &[String]| {
        addresses.iter().map(line).collect()
    };
    match command {
        CtlCommand::Block { addresses, time } => {
            Some((lines(&|address| format!("ban {address}"), addresses), *time))
        }
        CtlCommand::Accept {
            addresses,
            from: None,
        } => Some((
            lines(&|address| format!("unban {address}"), addresses),
            None,
        )),
        CtlCommand::Accept {
            addresses,
            from: Some(from),
        } => Some((
            lines(
                &|address| format!("accept {address} from {from}"),
                addresses,
            ),
            None,
        )),
        CtlCommand::Refuse { addresses, from } => Some((
            lines(
                &|address| format!("refuse {address} from {from}"),
                addresses,
            ),
            None,
        )),
        CtlCommand::List
        | CtlCommand::Stats
        | CtlCommand::Watch { .. }
        | CtlCommand::Reload { .. }
        | CtlCommand::Confirm => None,
    }
}

fn request(command: &CtlCommand) -> Value {
    if let Some((lines, time)) = change(command) {
        return json!({ "request": "change", "lines": lines, "for_s": time.map(|time| time.as_secs_f64()), "by": "ctl" });
    }
    match command {
        CtlCommand::List => json!({ "request": "list" }),
        CtlCommand::Watch { every } => {
            json!({ "request": "watch", "every_s": every.as_secs_f64() })
        }
        CtlCommand::Reload { confirm } => {
            json!({ "request": "reload", "confirm_s": confirm.map(|time| time.as_secs_f64()) })
        }
        CtlCommand::Confirm => json!({ "request": "confirm" }),
        _ => json!({ "request": "stats" }),
    }
}

/// A line on what waits for a confirmation, if there is something.
fn awaited(value: &Value) -> String {
    let line = |seconds: f64| {
        let time = Duration::from_secs(seconds.ceil() as u64);
        report::awaited_line(value["unconfirmed"] == "start", time) + "\n"
    };
    value["unconfirmed_s"]
        .as_f64()
        .map_or_else(String::new, line)
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn array(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn bans(value: &Value) -> String {
    let bans: Vec<&Value> = array(&value["bans"]).collect();
    if bans.is_empty() {
        return "no address is banned\n".to_owned();
    }
    let left = |ban: &&Value| match ban["left_s"].as_f64() {
        Some(seconds) => asked_time(Duration::from_secs(seconds.ceil() as u64)),
        None => "until it is accepted".to_owned(),
    };
    let by = |ban: &&Value| {
        let restored = if ban["restored"] == true {
            ", restored"
        } else {
            ""
        };
        format!("{}{restored}", printable(text(&ban["by"])))
    };
    let columns = [
        Column::left(
            "banned",
            bans.iter().map(|ban| text(&ban["address"]).to_owned()),
        ),
        Column::left("time left", bans.iter().map(left)),
        Column::left("by", bans.iter().map(by)),
    ];
    let more = match number(&value["more"]) {
        0 => String::new(),
        more => format!("and {} more\n", grouped(more)),
    };
    grid(&columns, output_width()) + &more
}

/// State as a table: the rules that applied to packets, and the totals.
fn stats(value: &Value) -> String {
    let received = number(&value["received"]);
    let mut lines: Vec<(String, u64)> = Vec::new();
    for name in ["persona_non_grata", "not_accepted"] {
        lines.push((
            format!("table: {}", report::table_words(name)),
            number(&value[name]["packets"]),
        ));
    }
    lines.extend(
        array(&value["rules"])
            .map(|rule| (shortened(text(&rule["rule"])), number(&rule["packets"]))),
    );
    for name in ["default", "neighbors", "non_ip", "malformed"] {
        let entry = &value[name];
        let line = format!("{} {}", name.replace('_', "-"), text(&entry["does"]));
        lines.push((line, number(&entry["packets"])));
    }
    let control = value["control"].as_object().into_iter().flatten();
    lines.extend(control.map(|(name, count)| {
        (
            format!("control: {}", name.replace('_', " ")),
            number(&count["packets"]),
        )
    }));
    lines.retain(|(_, packets)| *packets > 0);
    let columns = [
        Column::left(
            "rule",
            lines.iter().map(|(text, _)| printable(text).into_owned()),
        ),
        Column::right(
            "packets",
            lines.iter().map(|(_, packets)| grouped(*packets)),
        ),
        Column::right(
            "share",
            lines.iter().map(|(_, packets)| percent(*packets, received)),
        ),
    ];
    format!("{}{}\n", grid(&columns, output_width()), account(value))
}

fn account(value: &Value) -> String {
    let controls = match number(&value["filtered"]) {
        0 => String::new(),
        controls => format!(" {} obeyed,", counted(controls, "control packet")),
    };
    let lost = match sum(&value["lost"]) {
        0 => String::new(),
        lost => format!(", {} lost at the output", grouped(lost)),
    };
    format!(
        "{} received, {} passed, {} denied ({}),{controls} {} dropped{lost}",
        grouped(number(&value["received"])),
        grouped(number(&value["passed"])),
        grouped(number(&value["denied"])),
        percent(number(&value["denied"]), number(&value["received"])),
        grouped(sum(&value["dropped"])),
    )
}

/// Sum of the counts of an object.
fn sum(value: &Value) -> u64 {
    value
        .as_object()
        .into_iter()
        .flatten()
        .map(|(_, count)| number(count))
        .sum()
}

/// Prints a line for each interval.
fn watch(
    first: Value,
    lines: impl Iterator<Item = Result<Value, Error>>,
    json: bool,
) -> anyhow::Result<Outcome> {
    let mut before = first;
    if json && print(&format!("{}\n", terminal::json("counts", &before))).is_err() {
        return Ok(Outcome::Done);
    }
    for line in lines {
        let now = line?;
        let time = (now["seconds"].as_f64().unwrap_or(0.0)
            - before["seconds"].as_f64().unwrap_or(0.0))
        .max(1e-3);
        let count = |value: &Value, name: &str| number(&value[name]) + sum(&value[name]);
        let since =
            |name: &str| count(&now, name).saturating_sub(count(&before, name)) as f64 / time;
        let out = match json {
            true => format!("{}\n", terminal::json("counts", &now)),
            false => format!(
                "{} received, {} passed ({}), {} denied, {} dropped\n",
                rate(since("received")),
                rate(since("passed")),
                bit_rate(since("bytes") * 8.0),
                rate(since("denied")),
                rate(since("dropped")),
            ),
        };
        match print(&out) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(Outcome::Done),
            printed => printed?,
        }
        before = now;
    }
    say("the firewall has ended");
    Ok(Outcome::Done)
}
