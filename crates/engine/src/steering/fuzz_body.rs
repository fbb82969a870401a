//! Any requests to a sender: each is refused, or does what a list of the known requests says.

use super::{Order, Progress, Remote, Steering};
use crate::name::Name;
use crate::replay::Rate;
use crate::socket::Reply;
use serde_json::Value;
use std::sync::{Arc, Mutex};

/// Rates that the reader of this body knows.
fn rate(text: &str) -> Result<Rate, String> {
    match text.parse() {
        Ok(per_s) if per_s > 0.0 => Ok(Rate::Packets(per_s)),
        _ => Err(format!("'{text}' is not a rate")),
    }
}

/// The order of a request to a replay, by a list; `Some(None)` gives no order.
fn expected(request: &Value) -> Option<Option<&'static str>> {
    let members = request.as_object()?;
    let has_only = |names: &[&str]| members.keys().all(|name| names.contains(&name.as_str()));
    let kind = request["request"].as_str()?;
    let port = members.get("port").filter(|port| !port.is_null());
    if let ("stop" | "start", Some(port)) = (kind, port) {
        let is_port = matches!(port.as_str()?, "af_packet:a" | "a" | "1" | "null" | "2");
        return (is_port && has_only(&["request", "port"])).then_some(Some("port"));
    }
    match kind {
        "stop" if has_only(&["request", "port"]) => Some(Some("stop")),
        "start" if has_only(&["request", "port"]) => Some(Some("start")),
        "status" | "hold" if has_only(&["request"]) => Some(None),
        "set" if has_only(&["request", "what", "value", "port"]) && port.is_none() => {
            let value = &request["value"];
            let is_right = match request["what"].as_str()? {
                "rate" => value.as_str().is_some_and(|text| rate(text).is_ok()),
                "speed" => value.as_f64().is_some_and(|speed| speed > 0.0),
                _ => false,
            };
            is_right.then_some(Some("rate"))
        }
        _ => None,
    }
}

/// Takes lines of JSON as requests to a replay.
pub fn requests(bytes: &[u8]) {
    let remote = Remote {
        steering: Arc::<Steering>::default(),
        stop: Arc::default(),
        rate: Box::new(rate),
        traffic: None,
        making: Mutex::default(),
        pairs: None,
        streams: Vec::new(),
        ports: ["af_packet:a", "null"].map(Name::from).to_vec(),
    };
    let mut changes = 0;
    for line in bytes.split(|byte| *byte == b'\n') {
        let Ok(request) = serde_json::from_slice::<Value>(line) else {
            continue;
        };
        if !request.is_object() {
            continue;
        }
        let reply = remote.answer(&request);
        let wanted = expected(&request);
        assert_eq!(
            matches!(reply, Reply::Refused(_)),
            wanted.is_none(),
            "{request}: {reply:?}"
        );
        let orders = remote.steering.take(Progress::default());
        let given: Vec<&str> = orders
            .iter()
            .map(|order| match order {
                Order::Stop => "stop",
                Order::Start => "start",
                Order::Port { .. } => "port",
                Order::Rate(_) => "rate",
                Order::Traffic(_) => "traffic",
            })
            .collect();
        let wanted: Vec<&str> = wanted.flatten().into_iter().collect();
        assert_eq!(given, wanted, "{request}");
        if let Reply::Done(answer) = &reply
            && let Some(change) = answer["change"].as_u64()
        {
            changes += 1;
            assert_eq!(change, changes, "{request}");
        }
    }
}
