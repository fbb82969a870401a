//! Triggers in a TOML file, each with settings of its own.
//!
//! ```toml
//! [trigger.dns]
//! match = "udp port 53 and greater 512"
//! before = "30s"
//! keep = "flow"
//!
//! [trigger.scan]
//! rule = "scan"
//! keep = "host"
//! max_files = 20
//! ```

use crate::numbers::parse_time;
use crate::outcome::io_words;
use crate::toml_file::table;
use anyhow::{anyhow, bail};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use toml::Value;
use weir_engine::name::Name;
use weir_engine::record::trigger::{Condition, Trigger, is_name};
use weir_messages::recording::{
    Options, parse_expression, parse_file_size, parse_interval, parse_keep, parse_rule,
    parse_threshold,
};

/// Largest length of the file, bytes.
const LONGEST: u64 = 1 << 20;

/// Reads the triggers of a file; settings that a trigger leaves out are taken from the command
/// line.
pub(super) fn read(file: &Name, options: &Options) -> anyhow::Result<Vec<Trigger>> {
    if Path::new(file).is_dir() {
        bail!("{file} is a directory: name a TOML file with [trigger.NAME]");
    }
    let mut text = String::new();
    // The length of a pipe or a device is known only at its end.
    let read =
        File::open(file).and_then(|opened| opened.take(LONGEST + 1).read_to_string(&mut text));
    let len = read.map_err(|error| anyhow!("{file}: {}", io_words(&error)))?;
    if len as u64 > LONGEST {
        bail!("{file}: more than {LONGEST} bytes are too many for a list of triggers");
    }
    parse(&text, options).map_err(|error| anyhow!("{file}: {error}"))
}

fn parse(text: &str, options: &Options) -> anyhow::Result<Vec<Trigger>> {
    let table = table(text)?;
    if let Some(other) = table.keys().find(|key| *key != "trigger") {
        bail!("there is no '{other}' in a list of triggers: [trigger.NAME] is");
    }
    let Some(triggers) = table.get("trigger").and_then(Value::as_table) else {
        bail!("it holds no [trigger.NAME]")
    };
    triggers
        .iter()
        .map(|(name, settings)| trigger(name, settings, options))
        .collect()
}

fn trigger(name: &str, settings: &Value, options: &Options) -> anyhow::Result<Trigger> {
    if !is_name(name) {
        bail!(
            "'{name}' is not a name of a trigger: letters, digits, '.', '_' and '-' are, up to 64"
        );
    }
    let Some(settings) = settings.as_table() else {
        bail!("trigger {name}: [trigger.{name}] is a table")
    };
    let mut trigger = options.trigger(name.to_owned(), Condition::Asked);
    let mut conditions = 0;
    for (key, value) in settings {
        let wrong = |why: String| anyhow!("trigger {name}: {key}: {why}");
        let text = || {
            value
                .as_str()
                .ok_or_else(|| wrong("a text in quotes is expected".to_owned()))
        };
        let time = || parse_time(text()?).map_err(wrong);
        let number = || {
            let number = value
                .as_integer()
                .and_then(|number| u64::try_from(number).ok());
            number
                .filter(|&number| number > 0)
                .ok_or_else(|| wrong("a number from 1 is expected".to_owned()))
        };
        let condition = match key.as_str() {
            "match" => Some(Condition::Matches(
                parse_expression(text()?).map_err(wrong)?,
            )),
            "threshold" => Some(Condition::Exceeds(parse_threshold(text()?).map_err(wrong)?)),
            "rule" => Some(parse_rule(text()?).map_err(wrong)?),
            "every" => Some(Condition::Every(parse_interval(text()?).map_err(wrong)?)),
            _ => None,
        };
        if let Some(condition) = condition {
            trigger.condition = condition;
            conditions += 1;
            continue;
        }
        match key.as_str() {
            "before" => trigger.before = time()?,
            "after" => trigger.after = time()?,
            "cooldown" => trigger.cooldown = time()?,
            "keep" => trigger.keep = parse_keep(text()?).map_err(wrong)?,
            "max_size" => trigger.max_bytes = parse_file_size(text()?).map_err(wrong)?,
            "max_files" => trigger.max_files = number()?,
            _ => bail!(
                "trigger {name}: there is no setting '{key}': match, threshold, rule, every, before, after, cooldown, \
                 keep, max_size and max_files are"
            ),
        }
    }
    if conditions > 1 {
        bail!("trigger {name}: match, threshold, rule and every are conditions: name one of them");
    }
    if trigger.before.is_zero() && trigger.after.is_zero() {
        bail!("trigger {name}: before and after are 0, which saves nothing");
    }
    Ok(trigger)
}
