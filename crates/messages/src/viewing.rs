//! Questions of viewers to a run, and its answers: messages of a view socket.
//!
//! ```text
//! {"request":"look","step_s":1,"at_ns":null,"rows":200,"points":62,"history":10,"addresses":["10.0.0.1"]}
//! {"ok":{"facts":{...},"snapshot":"01...","names":{"10.0.0.1":"a.example"}}}
//! ```
//!
//! The request `view` takes the same members, without addresses, and its answer is the object of [`view::json`](crate::view::json). The
//! snapshot of `look` is in weir's own form, [`Snapshot::to_bytes`] in hexadecimal: it is for a viewer of the same version.

use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::net::IpAddr;
use weir_engine::socket::protocol::check_members;
use weir_view::{Ask, Snapshot, Span};

/// Most rows, points, steps of a row's history and addresses that a question asks for.
pub const MOST: [usize; 4] = [200, 1440, 20, 500];

/// Longest text of an answer that is read, bytes.
const LONGEST: usize = 1 << 14;

/// A question of a viewer.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// The step that is wanted. It asks for no changes.
    pub ask: Ask,
    /// Addresses whose names are wanted.
    pub addresses: Vec<IpAddr>,
    /// Whether the answer is for programs: the snapshot alone, as a JSON object.
    pub is_plain: bool,
}

/// Parts of the screen that a run does not measure. Kinds of key that it does not count have no table in the snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lacks {
    /// Findings.
    pub findings: bool,
    /// Health of TCP conversations.
    pub tcp: bool,
    /// Health of DNS.
    pub dns: bool,
}

/// Facts about a run and its sources so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts {
    /// Names of the sources.
    pub sources: String,
    /// Expression that packets must match; empty: all.
    pub filter: String,
    /// Speed of the link in each direction, bit/s, if known.
    pub link_bits_per_s: Option<f64>,
    /// Whether the sources are captured now.
    pub is_live: bool,
    /// The part of the system that drops packets for lack of room.
    pub place: String,
    /// Names of sources without a carrier.
    pub down: Vec<String>,
    /// Time since the run began, s.
    pub up_s: u64,
    /// Parts of the screen that the run does not measure.
    pub lacks: Lacks,
    /// Number of windows.
    pub windows: u64,
    /// Time since the latest window with packets, or since the begin, ms.
    pub quiet_ms: u64,
    /// Packets that were dropped for lack of room.
    pub dropped: u64,
    /// Packets later than their window waited.
    pub late: u64,
    /// Packets that were lost before the files of the sources were written, as far as these tell.
    pub lost_before: u64,
    /// Whether a source does not tell for some time what was lost.
    pub is_loss_unknown: bool,
    /// Sources that were read to their end and have no counter of lost packets.
    pub without_counter: u64,
    /// Choice of packets that a source holds, in words; `None`: all.
    pub holds_only: Option<String>,
    /// Whether packets are known to come in or to go out.
    pub has_sides: bool,
    /// Why a source ended early.
    pub fault: Option<String>,
    /// Whether the sources, or the part that is read, were read to their end.
    pub is_over: bool,
    /// Times that were read; `None`: all.
    pub part: Option<(i64, i64)>,
    /// Number of parts that were begun.
    pub parts: u64,
    /// Times of the first and the last packet of all parts, and of a record.
    pub covered: Option<(i64, i64)>,
}

/// An answer to a viewer.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// Facts about the run.
    pub facts: Facts,
    /// The step; `None` if there is none.
    pub snapshot: Option<Snapshot>,
    /// Known names of the addresses.
    pub names: HashMap<IpAddr, String>,
}

impl Question {
    /// Returns the request.
    pub fn to_json(&self) -> Value {
        let Ask {
            span,
            at,
            rows,
            changes: _,
            points,
            history,
        } = self.ask;
        let mut request = json!({
            "request": if self.is_plain { "view" } else { "look" },
            "step_s": span.seconds(),
            "at_ns": at,
            "rows": rows,
            "points": points,
            "history": history,
        });
        if !self.is_plain {
            let addresses = self.addresses.iter().map(ToString::to_string);
            request["addresses"] = addresses.collect::<Vec<_>>().into();
        }
        request
    }

    /// Reads a request; [`Ask::default`] has the members that it leaves out. **Errors**: the reason of a refusal.
    pub fn of_json(request: &Value) -> Result<Self, String> {
        let is_plain = match request["request"].as_str() {
            Some("look") => false,
            Some("view") => true,
            Some(other) => {
                return Err(format!(
                    "the request {other} is not for a view socket, which shows figures alone: it takes view, look and version; \
                     changes and packets need the control socket of the run (--control)"
                ));
            }
            None => {
                return Err("\"request\" names what is wanted: view, look or version".to_owned());
            }
        };
        let members = ["step_s", "at_ns", "rows", "points", "history", "addresses"];
        let known = if is_plain { &members[..5] } else { &members };
        check_members(request, known)?;
        let usual = Ask::default();
        let [rows, points, history] = [
            ("rows", usual.rows, MOST[0]),
            ("points", usual.points, MOST[1]),
            ("history", usual.history, MOST[2]),
        ]
        .map(|(member, usual, most)| number(request, member, usual, most));
        Ok(Self {
            ask: Ask {
                span: span(&request["step_s"])?,
                at: time(&request["at_ns"], "at_ns")?,
                rows: rows?,
                changes: 0,
                points: points?,
                history: history?,
            },
            addresses: addresses(&request["addresses"])?,
            is_plain,
        })
    }
}

fn span(value: &Value) -> Result<Span, String> {
    let Some(seconds) = value.as_i64() else {
        return match value {
            Value::Null => Ok(Span::Second),
            other => Err(format!("\"step_s\" is 1, 10 or 60, and not {other}")),
        };
    };
    let found = Span::ALL.into_iter().find(|span| span.seconds() == seconds);
    found.ok_or_else(|| format!("\"step_s\" is 1, 10 or 60, and not {seconds}"))
}

fn time(value: &Value, member: &str) -> Result<Option<i64>, String> {
    match value {
        Value::Null => Ok(None),
        other => match other.as_i64() {
            Some(ns) => Ok(Some(ns)),
            None => Err(format!(
                "\"{member}\" is a whole number of ns, and not {other}"
            )),
        },
    }
}

fn number(request: &Value, member: &str, usual: usize, most: usize) -> Result<usize, String> {
    let value = &request[member];
    if value.is_null() {
        return Ok(usual);
    }
    let given = value
        .as_u64()
        .and_then(|number| usize::try_from(number).ok());
    let given = given.filter(|number| *number <= most);
    given.ok_or_else(|| format!("\"{member}\" is a number up to {most}, and not {value}"))
}

fn addresses(value: &Value) -> Result<Vec<IpAddr>, String> {
    let Value::Array(all) = value else {
        return match value {
            Value::Null => Ok(Vec::new()),
            _ => Err("\"addresses\" is a list".to_owned()),
        };
    };
    if all.len() > MOST[3] {
        return Err(format!("\"addresses\" has at most {}", MOST[3]));
    }
    let one = |value: &Value| {
        let address = value.as_str().and_then(|text| text.parse().ok());
        address.ok_or_else(|| format!("\"addresses\": {value} is none"))
    };
    all.iter().map(one).collect()
}

/// Returns the value of a snapshot in an answer, which several answers may share.
pub fn snapshot_json(snapshot: Option<&Snapshot>) -> Value {
    let text = |snapshot: &Snapshot| hexadecimal(&snapshot.to_bytes());
    snapshot.map(text).into()
}

/// Returns the value of an answer with the [value of a snapshot](snapshot_json).
pub fn answer_json(facts: &Facts, snapshot: Value, names: &HashMap<IpAddr, String>) -> Value {
    let names = names.iter();
    let names = names.map(|(address, name)| (address.to_string(), name.as_str().into()));
    json!({
        "facts": facts.to_json(),
        "snapshot": snapshot,
        "names": Value::Object(names.collect()),
    })
}

impl Answer {
    /// Returns the value of the answer.
    pub fn to_json(&self) -> Value {
        answer_json(
            &self.facts,
            snapshot_json(self.snapshot.as_ref()),
            &self.names,
        )
    }

    /// Reads the value of an answer. **Errors**: it is none, or of another version of weir.
    pub fn of_json(value: &Value) -> Result<Self, String> {
        let wrong = |what: &str| format!("the answer has no {what} of this version of weir");
        let facts = Facts::of_json(&value["facts"]).ok_or_else(|| wrong("facts"))?;
        let snapshot = match &value["snapshot"] {
            Value::Null => None,
            value => {
                let bytes = value.as_str().and_then(bytes_of);
                let snapshot = bytes.and_then(|bytes| Snapshot::of_bytes(&bytes));
                Some(snapshot.ok_or_else(|| wrong("snapshot"))?)
            }
        };
        let names = value["names"].as_object().ok_or_else(|| wrong("names"))?;
        let names = names.iter().take(MOST[3]).filter_map(|(address, name)| {
            let name = name.as_str().filter(|name| name.len() <= LONGEST)?;
            Some((address.parse().ok()?, name.to_owned()))
        });
        Ok(Self {
            facts,
            snapshot,
            names: names.collect(),
        })
    }
}

/// Members of the facts, each with its type.
macro_rules! members {
    ($($name:ident: $kind:ident),* $(,)?) => {
        impl Facts {
            fn to_json(&self) -> Value {
                let Self { $($name),* } = self;
                let mut object = Map::new();
                $(object.insert(stringify!($name).to_owned(), $kind::write($name));)*
                object.into()
            }

            fn of_json(value: &Value) -> Option<Self> {
                Some(Self { $($name: $kind::read(&value[stringify!($name)])?),* })
            }
        }
    };
}

members! {
    sources: text, filter: text, link_bits_per_s: rate, is_live: flag, place: text, down: texts, up_s: count,
    lacks: parts_of, windows: count, quiet_ms: count, dropped: count, late: count, lost_before: count, is_loss_unknown: flag,
    without_counter: count,
    holds_only: perhaps, has_sides: flag, fault: perhaps, is_over: flag, part: times, parts: count, covered: times,
}

mod text {
    use super::*;

    pub fn write(text: &str) -> Value {
        text.into()
    }

    pub fn read(value: &Value) -> Option<String> {
        let text = value.as_str().filter(|text| text.len() <= LONGEST)?;
        Some(text.to_owned())
    }
}

mod perhaps {
    use super::*;

    pub fn write(text: &Option<String>) -> Value {
        text.as_deref().into()
    }

    pub fn read(value: &Value) -> Option<Option<String>> {
        match value {
            Value::Null => Some(None),
            value => text::read(value).map(Some),
        }
    }
}

mod texts {
    use super::*;

    pub fn write(texts: &[String]) -> Value {
        texts.into()
    }

    pub fn read(value: &Value) -> Option<Vec<String>> {
        let all = value.as_array().filter(|all| all.len() <= MOST[3])?;
        all.iter().map(text::read).collect()
    }
}

mod flag {
    use super::*;

    pub fn write(flag: &bool) -> Value {
        (*flag).into()
    }

    pub fn read(value: &Value) -> Option<bool> {
        value.as_bool()
    }
}

mod parts_of {
    use super::*;

    pub fn write(lacks: &Lacks) -> Value {
        let Lacks { findings, tcp, dns } = lacks;
        json!({ "findings": findings, "tcp": tcp, "dns": dns })
    }

    pub fn read(value: &Value) -> Option<Lacks> {
        let flag = |name: &str| value[name].as_bool();
        Some(Lacks {
            findings: flag("findings")?,
            tcp: flag("tcp")?,
            dns: flag("dns")?,
        })
    }
}

mod count {
    use super::*;

    pub fn write(count: &u64) -> Value {
        (*count).into()
    }

    pub fn read(value: &Value) -> Option<u64> {
        value.as_u64()
    }
}

mod rate {
    use super::*;

    pub fn write(rate: &Option<f64>) -> Value {
        (*rate).into()
    }

    pub fn read(value: &Value) -> Option<Option<f64>> {
        match value {
            Value::Null => Some(None),
            value => value.as_f64().map(Some),
        }
    }
}

mod times {
    use super::*;

    pub fn write(times: &Option<(i64, i64)>) -> Value {
        times.map(|(from, to)| json!([from, to])).into()
    }

    pub fn read(value: &Value) -> Option<Option<(i64, i64)>> {
        match value.as_array().map(Vec::as_slice) {
            None => value.is_null().then_some(None),
            Some([from, to]) => Some(Some((from.as_i64()?, to.as_i64()?))),
            Some(_) => None,
        }
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits
        .map(|digit| char::from(DIGITS[usize::from(digit)]))
        .collect()
}

fn bytes_of(text: &str) -> Option<Vec<u8>> {
    let digit = |digit: u8| char::from(digit).to_digit(16);
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let byte = |[high, low]: &[u8; 2]| Some((digit(*high)? << 4 | digit(*low)?) as u8);
    match rest {
        [] => pairs.iter().map(byte).collect(),
        _ => None,
    }
}

/// Body, with its oracle, that the fuzz target and the tests share.
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz_body {
    use super::*;

    /// Reads any JSON as a question and as an answer. Messages that are read return from their own form as they were; a question has
    /// known members only, and asks for no more than there is.
    pub fn message(data: &[u8]) {
        let Ok(value) = serde_json::from_slice::<Value>(data) else {
            return;
        };
        if let Ok(question) = Question::of_json(&value) {
            assert_eq!(Question::of_json(&question.to_json()), Ok(question.clone()));
            let object = value.as_object().expect("a request has a name");
            let members = "request step_s at_ns rows points history addresses";
            assert!(
                object
                    .keys()
                    .all(|name| members.split(' ').any(|it| it == name))
            );
            let Ask {
                rows,
                points,
                history,
                ..
            } = question.ask;
            let asked = [rows, points, history, question.addresses.len()];
            assert!(asked.iter().zip(MOST).all(|(asked, most)| *asked <= most));
        }
        if let Ok(answer) = Answer::of_json(&value) {
            let again = Answer::of_json(&answer.to_json()).expect("it was written");
            assert_eq!(format!("{:?}", again.facts), format!("{:?}", answer.facts));
            assert_eq!(again.names, answer.names);
            let bytes = |answer: &Answer| answer.snapshot.as_ref().map(Snapshot::to_bytes);
            assert_eq!(bytes(&again), bytes(&answer));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_testkit::Random;

    fn question() -> Question {
        Question {
            ask: Ask {
                span: Span::Minute,
                at: Some(-7),
                rows: 200,
                changes: 0,
                points: 1440,
                history: 10,
            },
            addresses: vec!["10.0.0.1".parse().unwrap(), "fe80::1".parse().unwrap()],
            is_plain: false,
        }
    }

    fn answer() -> Answer {
        Answer {
            facts: Facts {
                sources: "eth0 \u{1b}[31m".to_owned(),
                filter: "udp".to_owned(),
                link_bits_per_s: Some(1e9),
                is_live: true,
                place: "kernel".to_owned(),
                down: vec!["eth1".to_owned()],
                up_s: 1,
                lacks: Lacks {
                    dns: true,
                    ..Lacks::default()
                },
                windows: u64::MAX,
                holds_only: Some("a part".to_owned()),
                part: Some((1, i64::MAX)),
                ..Facts::default()
            },
            snapshot: None,
            names: [("10.0.0.1".parse().unwrap(), "a.example".to_owned())].into(),
        }
    }

    #[test]
    fn messages_are_as_the_documentation_has_them() {
        let text = r#"{"request":"look","step_s":60,"at_ns":-7,"rows":200,"points":1440,"history":10,"addresses":["10.0.0.1","fe80::1"]}"#;
        assert_eq!(question().to_json().to_string(), text);
        let read = |text: &str| Question::of_json(&serde_json::from_str(text).unwrap());
        assert_eq!(read(text), Ok(question()));
        let plain = read(r#"{"request":"view"}"#).unwrap();
        assert_eq!((plain.ask.span, plain.is_plain), (Span::Second, true));
        assert_eq!(Answer::of_json(&answer().to_json()), Ok(answer()));
        for (text, why) in [
            (
                r#"{"request":"set","what":"filter"}"#,
                "the request set is not for a view socket",
            ),
            (
                r#"{"request":"packets"}"#,
                "the request packets is not for a view socket",
            ),
            (r#"{}"#, "\"request\" names"),
            (
                r#"{"request":"view","addresses":[]}"#,
                "the request view has no member \"addresses\"",
            ),
            (
                r#"{"request":"look","rows":201}"#,
                "\"rows\" is a number up to 200, and not 201",
            ),
            (
                r#"{"request":"look","rows":-1}"#,
                "\"rows\" is a number up to 200",
            ),
            (
                r#"{"request":"look","step_s":2}"#,
                "\"step_s\" is 1, 10 or 60, and not 2",
            ),
            (
                r#"{"request":"look","at_ns":1.5}"#,
                "\"at_ns\" is a whole number of ns",
            ),
            (
                r#"{"request":"look","addresses":["x"]}"#,
                "\"addresses\": \"x\" is none",
            ),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.starts_with(why), "{error}");
        }
        for wrong in [json!({}), json!({ "facts": {}, "names": {} }), json!(7)] {
            let error = Answer::of_json(&wrong).unwrap_err();
            assert_eq!(error, "the answer has no facts of this version of weir");
        }
        let mut other = answer().to_json();
        other["snapshot"] = "02".into();
        let error = Answer::of_json(&other).unwrap_err();
        assert_eq!(error, "the answer has no snapshot of this version of weir");
    }

    /// Runs the body of the fuzz target over damaged messages.
    #[test]
    fn the_fuzz_body_holds_for_any_bytes() {
        let good = [question().to_json(), answer().to_json()].map(|value| value.to_string());
        let mut random = Random(36);
        for turn in 0..2000 {
            let mut bytes = good[turn % 2].clone().into_bytes();
            for _ in 0..=random.below(2) {
                let at = random.below(bytes.len());
                bytes[at] = b"0123456789-.\"{}[],:ntf"[random.below(22)];
            }
            fuzz_body::message(&bytes);
        }
    }
}
