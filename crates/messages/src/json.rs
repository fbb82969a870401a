//! JSON as lines of text.

use serde_json::Value;
use std::fmt::Write as _;
use weir_packet::text::is_control;

/// Version of the objects: `docs/reference/formats.md` says what it promises.
pub const VERSION: u64 = 1;

/// Kinds of objects without a version, because an answer has many of them and another object with the version.
const UNVERSIONED: [&str; 2] = ["packet", "saved"];

/// Returns an object in one line, with its type as the first member, so that a reader of many lines can tell answers of one kind
/// from another: a summary from a window, for example. The version is the last member, except in objects of which an answer has many.
/// Characters that could control a terminal are escaped, as in `\u0085`.
///
/// A value that is not an object becomes the member `value` of one.
pub fn line(kind: &'static str, value: &Value) -> String {
    let version = match UNVERSIONED.contains(&kind) {
        true => String::new(),
        false => format!(",\"version\":{VERSION}"),
    };
    typed(kind, &version, value)
}

/// Returns an object as [`line()`] does, without its version: the summary of `weir filter`, whose fields are fixed.
pub fn unversioned(kind: &'static str, value: &Value) -> String {
    typed(kind, "", value)
}

fn typed(kind: &str, version: &str, value: &Value) -> String {
    let text = value.to_string();
    let inner = text
        .strip_prefix('{')
        .and_then(|text| text.strip_suffix('}'));
    let members = match inner {
        Some("") => String::new(),
        Some(members) => format!(",{members}"),
        None => format!(",\"value\":{text}"),
    };
    let text = format!("{{\"type\":\"{kind}\"{members}{version}}}");
    if !text.contains(is_control) {
        return text;
    }
    // Such characters occur in strings only, where the escape has the same meaning.
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        let _ = if is_control(c) {
            write!(out, "\\u{:04x}", u32::from(c))
        } else {
            out.write_char(c)
        };
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn json_means_the_same_and_holds_nothing_that_steers() {
        let all: String = (0..=0xffff).filter_map(char::from_u32).collect();
        let value = json!({ "a\u{9b}": all });
        let text = line("packet", &value);
        assert!(!text.contains(is_control));
        let typed = json!({ "type": "packet", "a\u{9b}": value["a\u{9b}"] });
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), typed);
        for (value, expected) in [
            (
                json!("\u{85}é"),
                r#"{"type":"a","value":"\u0085é","version":1}"#,
            ),
            (json!({}), r#"{"type":"a","version":1}"#),
            (
                json!({ "b": {}, "a": 1 }),
                r#"{"type":"a","b":{},"a":1,"version":1}"#,
            ),
            (json!([]), r#"{"type":"a","value":[],"version":1}"#),
        ] {
            assert_eq!(line("a", &value), expected);
        }
    }
}
