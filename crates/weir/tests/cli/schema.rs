//! JSON answers held against the schema of the documentation: a field that docs/reference/json.schema.json does not list is a failure.
//!
//! The part of JSON Schema that the file uses is read here: `type`, `const`, `enum`, `minimum`, `properties`, `required`,
//! `additionalProperties`, `items`, `anyOf` and `$ref`.

use serde_json::Value;
use std::sync::OnceLock;

/// Answers of a text that are looked at, from its begin; and its last one.
const MOST: usize = 100;

fn schema() -> &'static Value {
    static SCHEMA: OnceLock<Value> = OnceLock::new();
    SCHEMA.get_or_init(|| {
        let text = include_str!("../../../../docs/reference/json.schema.json");
        serde_json::from_str(text).expect("the schema is JSON")
    })
}

/// Holds the objects of a text, a line each, against the schema. Lines that are no objects with a type are left alone.
#[track_caller]
pub fn check(text: &str) {
    let typed = |line: &&str| line.starts_with("{\"type\":\"") && line.ends_with('}');
    let lines = text.lines().filter(typed);
    let last = text.lines().last().filter(typed);
    for line in lines.take(MOST).chain(last) {
        if let Ok(value) = serde_json::from_str::<Value>(line)
            && let Err(why) = fits(&value, schema(), "")
        {
            panic!("not as docs/reference/json.schema.json says: {why}\n{line}");
        }
    }
}

/// Whether a value is as a schema says; if not, where and why. `place` is the way to the value.
fn fits(value: &Value, schema: &Value, place: &str) -> Result<(), String> {
    if let Some(name) = schema["$ref"].as_str() {
        let definition = &self::schema()["$defs"][name.trim_start_matches("#/$defs/")];
        assert!(definition.is_object(), "the schema has no {name}");
        return fits(value, definition, place);
    }
    if let Some(any) = schema["anyOf"].as_array() {
        return fits_any(value, any, place);
    }
    if let Some(wanted) = schema.get("const").filter(|wanted| *wanted != value) {
        return Err(format!("{place} is {value}, not {wanted}"));
    }
    if let Some(names) = schema["enum"].as_array()
        && !names.contains(value)
    {
        return Err(format!("{place} is {value}, not one of {names:?}"));
    }
    if !has_type(value, &schema["type"]) {
        return Err(format!(
            "{place} is {value}, not of type {}",
            schema["type"]
        ));
    }
    if let (Some(least), Some(number)) = (schema["minimum"].as_f64(), value.as_f64())
        && number < least
    {
        return Err(format!("{place} is {number}, less than {least}"));
    }
    if let Some(items) = value.as_array() {
        let mut each = items.iter().enumerate();
        return each.try_for_each(|(number, item)| {
            fits(item, &schema["items"], &format!("{place}[{number}]"))
        });
    }
    match value.is_object() && schema["type"] != Value::Null {
        true => fits_members(value, schema, place),
        false => Ok(()),
    }
}

/// Whether a value is as one of several schemas says. The reason against the one with the most in common is told.
fn fits_any(value: &Value, any: &[Value], place: &str) -> Result<(), String> {
    let reasons = any.iter().map(|one| fits(value, one, place).err());
    let reasons: Option<Vec<String>> = reasons.collect();
    // Reasons about the type of the object say nothing about its fields.
    let told = |reasons: Vec<String>| {
        let of_fields = |reason: &&String| !reason.starts_with(".type ");
        let chosen: Vec<_> = reasons.iter().filter(of_fields).cloned().collect();
        match chosen.is_empty() {
            true => reasons.join("; or "),
            false => chosen.join("; or "),
        }
    };
    reasons.map_or(Ok(()), |reasons| Err(told(reasons)))
}

fn has_type(value: &Value, wanted: &Value) -> bool {
    let is = |name: &str| match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("the schema has the type {other}"),
    };
    match wanted {
        Value::String(name) => is(name),
        Value::Array(names) => names.iter().filter_map(Value::as_str).any(is),
        _ => true,
    }
}

fn fits_members(value: &Value, schema: &Value, place: &str) -> Result<(), String> {
    let members = value.as_object().expect("the caller has looked");
    // The type is looked at first: it says which object was meant.
    let known = &schema["properties"];
    if let Some(kind) = members.get("type")
        && known["type"].is_object()
    {
        fits(kind, &known["type"], &format!("{place}.type"))?;
    }
    for name in schema["required"].as_array().into_iter().flatten() {
        let name = name.as_str().expect("names are texts");
        if !members.contains_key(name) {
            return Err(format!("{place}.{name} is missing"));
        }
    }
    for (name, member) in members {
        let place = format!("{place}.{name}");
        match (&known[name.as_str()], &schema["additionalProperties"]) {
            (Value::Null, Value::Bool(false)) => return Err(format!("{place} is not listed")),
            (Value::Null, others) if others.is_object() => fits(member, others, &place)?,
            (Value::Null, _) => {}
            (one, _) => fits(member, one, &place)?,
        }
    }
    Ok(())
}

#[test]
fn the_schema_refuses_what_it_does_not_list() {
    let good = r#"{"type":"sent","version":1,"sent":1,"sequence":2}"#;
    check(good);
    for (bad, why) in [
        (
            r#"{"type":"sent","version":1,"sent":1}"#,
            ".sequence is missing",
        ),
        (
            r#"{"type":"sent","sent":1,"sequence":2}"#,
            ".version is missing",
        ),
        (
            r#"{"type":"sent","version":2,"sent":1,"sequence":2}"#,
            ".version is 2",
        ),
        (
            r#"{"type":"sent","version":1,"sent":-1,"sequence":2}"#,
            "less than 0",
        ),
        (
            r#"{"type":"sent","version":1,"sent":"1","sequence":2}"#,
            "not of type",
        ),
        (
            r#"{"type":"sent","version":1,"sent":1,"sequence":2,"x":3}"#,
            ".x is not listed",
        ),
        (
            r#"{"type":"gift","version":1,"sent":1,"sequence":2}"#,
            ".type is",
        ),
        (
            r#"{"type":"bans","version":1,"bans":[{"address":"192.0.2.1","left_s":null,"by":"ctl"}]}"#,
            ".bans[0].restored is missing",
        ),
    ] {
        let value: Value = serde_json::from_str(bad).unwrap();
        let found = fits(&value, schema(), "").unwrap_err();
        assert!(found.contains(why), "{bad}: {found}");
    }
}
