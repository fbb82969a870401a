//! Requests that change a run over its control socket.
//!
//! ```text
//! {"request":"set","what":"filter","value":"udp port 53"}       {"ok":{"change":3}}
//! {"request":"set","what":"key","value":["src","dport"]}        the same; kinds of key, one or several
//! {"request":"set","what":"sketch","value":"exact"}
//! {"request":"set","what":"memory","value":8388608}             bytes of each table
//! {"request":"set","what":"rules","value":"drop src 192.0.2.7\n"}        rules of --rules; "name": their name in messages
//! {"request":"set","what":"output","value":"b.pcapng"}          the main output
//! {"request":"set","what":"output","value":"b.pcapng","of":"web"}   the output of a split
//! {"request":"rotate"}                                          the next file of the main output
//! {"request":"rotate","of":"web"}                               of a split
//! ```
//!
//! What was answered with `ok` is in place: packets that are received later are judged, counted or written accordingly. The
//! events of the run tell each change too.

use super::{ChangeError, Control};
use crate::firewall::changes::{GivenRules, NewRules};
use crate::name::Name;
use crate::output_changes::OutputSlot;
use crate::sink::{End, Sink, SinkFault};
use crate::socket::Reply;
use crate::socket::protocol::{check_members, text_member};
use serde_json::{Value, json};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use weir_io::output::OutputError;
use weir_measure::{KeyKind, Setting, Sketch};

/// Longest wait for batches from before a change.
const PATIENCE: Duration = Duration::from_secs(10);

/// Settings that requests change.
const SETTINGS: &str = "filter, key, sketch, memory, rules and output";

/// Function that makes the sink of an output for another name. **Errors**: the reason as one line.
pub type MakeSink = Box<dyn Fn(OutputSlot, &Name) -> Result<Box<dyn Sink>, String> + Send + Sync>;

/// Function that reads rules of a request. **Errors**: the reason as one line.
pub type MakeRules = Box<dyn Fn(&GivenRules<'_>) -> Result<NewRules, String> + Send + Sync>;

/// The parts of a run that requests change.
pub struct Remote {
    /// Control of the run.
    pub control: Arc<Control>,
    /// Names of the splits, in their order.
    pub splits: Vec<String>,
    /// Function that makes sinks; `None` if no output can be replaced.
    pub sinks: Option<MakeSink>,
    /// Function that reads rules; `None` if no rules judge the packets.
    pub rules: Option<MakeRules>,
}

impl Remote {
    /// Answers a request.
    pub fn answer(&self, request: &Value) -> Reply {
        match request["request"].as_str() {
            Some("set") => match self.set(request) {
                Ok(change) => Reply::Done(json!({ "change": change })),
                Err(why) => Reply::Refused(why),
            },
            Some("rotate") => match self.rotate(request) {
                Ok(change) => Reply::Done(json!({ "change": change })),
                Err(why) => Reply::Refused(why),
            },
            Some(other) => Reply::Refused(format!(
                "unknown request '{other}': set and rotate are known"
            )),
            None => Reply::Refused("a request has a member \"request\": set or rotate".to_owned()),
        }
    }

    /// Begins the next file of an output, and returns the number of the change.
    fn rotate(&self, request: &Value) -> Result<u64, String> {
        check_members(request, &["of"])?;
        let slot = self.slot(request)?;
        let begun = self.control.next_file(slot, PATIENCE);
        begun.map_err(|error| error.to_string())
    }

    /// The output that a request is about.
    fn slot(&self, request: &Value) -> Result<OutputSlot, String> {
        let Some(split) = text_member(request, "of")? else {
            return Ok(OutputSlot::Main);
        };
        let number = self.splits.iter().position(|name| name == split);
        Ok(OutputSlot::Split(
            number.ok_or_else(|| format!("unknown split '{split}'"))?,
        ))
    }

    /// Changes the run, and returns the number of the change.
    fn set(&self, request: &Value) -> Result<u64, String> {
        let value = &request["value"];
        let what = text_member(request, "what")?.unwrap_or_default();
        let members: &[&str] = match what {
            "output" => &["what", "value", "of"],
            "rules" => &RULES_MEMBERS,
            _ => &["what", "value"],
        };
        check_members(request, members)?;
        let setting = match what {
            "filter" => {
                let expression = text_member(request, "value")?.ok_or("a filter is a string")?;
                return (self.control.set_filter(expression, PATIENCE))
                    .map_err(|error| error.to_string());
            }
            "output" => return self.set_output(request),
            "rules" => return self.set_rules(request),
            "key" => Setting::Keys(keys(value)?),
            "sketch" => Setting::Sketch(sketch(value)?),
            "memory" => Setting::Memory(memory(value)?),
            other => return Err(format!("'{other}' cannot be set: {SETTINGS} can")),
        };
        (self.control.set_counting(setting, PATIENCE)).map_err(|error| error.to_string())
    }

    fn set_rules(&self, request: &Value) -> Result<u64, String> {
        let read = self
            .rules
            .as_ref()
            .ok_or("no rules judge the packets of this run: start it with --rules FILE")?;
        let kept = |why| ChangeError::Rules(why).to_string();
        let rules = read(&given_rules(request)?).map_err(kept)?;
        (self.control.set_rules(rules, PATIENCE)).map_err(|error| error.to_string())
    }

    fn set_output(&self, request: &Value) -> Result<u64, String> {
        let name =
            Name::from(text_member(request, "value")?.ok_or("an output is the name of a file")?);
        let make = self
            .sinks
            .as_ref()
            .ok_or("the outputs of this run cannot be replaced")?;
        let slot = self.slot(request)?;
        let sink = make(slot, &name)?;
        let changed = self
            .control
            .set_output(slot, &name.as_output(), sink, PATIENCE);
        changed.map_err(|error| refused_file(&error))
    }
}

/// Says why an output was not replaced, and where a run that is closed in may make files.
pub(crate) fn refused_file(error: &ChangeError) -> String {
    match error {
        ChangeError::Output(End::Failed(SinkFault::File {
            error: OutputError::Create { error: why, .. },
            ..
        })) if why.kind() == io::ErrorKind::PermissionDenied => format!(
            "{error}: new files may lie in the directories of the socket and of the outputs at the start"
        ),
        _ => error.to_string(),
    }
}

/// Members of a request for other rules.
pub(crate) const RULES_MEMBERS: [&str; 3] = ["what", "value", "name"];

/// Returns the rules of a request. **Errors**: the reason of a refusal.
pub(crate) fn given_rules(request: &Value) -> Result<GivenRules<'_>, String> {
    Ok(GivenRules {
        text: text_member(request, "value")?.ok_or("rules are the text of a list")?,
        called: text_member(request, "name")?.unwrap_or("the rules"),
    })
}

fn keys(value: &Value) -> Result<Vec<KeyKind>, String> {
    let one = |value: &Value| {
        let name = value
            .as_str()
            .ok_or_else(|| format!("{value} is not the name of a key"))?;
        name.parse()
            .map_err(|error: weir_measure::NoSuchKey| error.to_string())
    };
    match value {
        Value::Array(keys) if !keys.is_empty() => keys.iter().map(one).collect(),
        value => one(value).map(|key| vec![key]),
    }
}

fn sketch(value: &Value) -> Result<Sketch, String> {
    let known = Sketch::NAMES.iter().find(|(name, _)| value == name);
    known.map(|(_, sketch)| *sketch).ok_or_else(|| {
        let names = Sketch::NAMES.map(|(name, _)| name);
        format!("{value} is not a sketch: {} are", names.join(", "))
    })
}

fn memory(value: &Value) -> Result<usize, String> {
    let bytes = value.as_u64().and_then(|bytes| usize::try_from(bytes).ok());
    bytes.ok_or_else(|| format!("{value} is not a number of bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_of_their_settings() {
        let (src, sport) = (KeyKind::SRC, KeyKind::Sport);
        assert_eq!(keys(&json!("src")), Ok(vec![src]));
        assert_eq!(keys(&json!(["src", "sport"])), Ok(vec![src, sport]));
        for wrong in [
            json!([]),
            json!(["ip"]),
            json!(7),
            json!(null),
            json!([["src"]]),
        ] {
            assert!(keys(&wrong).is_err(), "{wrong}");
        }
        let conservative = Sketch::Cms { conservative: true };
        assert_eq!(sketch(&json!("cms-conservative")), Ok(conservative));
        let why = sketch(&json!("Heavy")).unwrap_err();
        assert_eq!(
            why,
            "\"Heavy\" is not a sketch: heavy, exact, cms, cms-conservative, sht, mv, rs, rs-set are"
        );
        assert_eq!(memory(&json!(8192)), Ok(8192));
        for wrong in [json!(-1), json!(1.5), json!("8k"), json!(null)] {
            assert!(memory(&wrong).is_err(), "{wrong}");
        }
    }
}
