//! JSON as lines of text.

use serde_json::Value;
use std::fmt::Write as _;
use weir_packet::text::is_control;

/// Returns a value in one line. Characters that could control a terminal are escaped too, as in `\u0085`.
pub fn line(value: &Value) -> String {
    let text = value.to_string();
    if !text.contains(is_control) {
        return text;
    }
    // Such characters occur in strings only, where the escape has the same meaning.
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        let _ = if is_control(c) { write!(out, "\\u{:04x}", u32::from(c)) } else { out.write_char(c) };
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
        let text = line(&value);
        assert!(!text.contains(is_control));
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
        assert!(line(&json!("\u{85}")) == "\"\\u0085\"" && line(&json!("é")) == "\"é\"");
    }
}
