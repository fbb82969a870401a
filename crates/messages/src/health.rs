//! The health of the traffic as JSON objects.

use crate::measured::{address, stamp};
use serde_json::{Map, Value, json};
use weir_measure::KeyKind;
use weir_measure::health::{Report, dns, path, tcp};

/// Returns the member `health` of an answer: an object for each part.
pub fn json(report: &Report) -> Value {
    let mut object = Map::new();
    if let Some(report) = &report.tcp {
        object.insert("tcp".to_owned(), tcp_json(report));
    }
    if let Some(report) = &report.dns {
        object.insert("dns".to_owned(), dns_json(report));
    }
    if let Some(report) = &report.path {
        object.insert("mtu".to_owned(), path_json(report));
    }
    object.into()
}

fn tcp_json(report: &tcp::Report) -> Value {
    let tcp::Numbers {
        conversations,
        midway,
        evicted,
        evicted_retransmitted,
        unjudged,
    } = report.numbers;
    let mut object = Map::new();
    let mut put = |name: &str, value: Value| drop(object.insert(name.to_owned(), value));
    put("conversations", conversations.into());
    put("midway", midway.into());
    put("capacity", report.capacity.into());
    put("evicted", evicted.into());
    put("evicted_retransmitted", evicted_retransmitted.into());
    put("unjudged", unjudged.into());
    object.extend(figures(&report.sum));
    let rows = report.rows.iter().map(row_json).collect();
    object.insert("top".to_owned(), rows);
    object.into()
}

fn row_json(row: &tcp::Row) -> Value {
    let [sent, received] = &row.directions;
    let key = &row.key;
    json!({
        "src": address(KeyKind::Conversation, key, true),
        "sport": key.sport,
        "dst": address(KeyKind::Conversation, key, false),
        "dport": key.dport,
        "start": stamp(row.first_ns),
        "end": stamp(row.latest_ns),
        "begun": row.begun,
        "handshake_s": row.handshake_ns.map(seconds),
        "sent": figures(sent),
        "received": figures(received),
    })
}

fn figures(figures: &tcp::Figures) -> Map<String, Value> {
    let &tcp::Figures {
        packets,
        bytes,
        retransmitted,
        retransmitted_bytes,
        fast,
        spurious,
        repeated,
        out_of_order,
        duplicate_acks,
        zero_windows,
        resets,
        gaps,
        untimed,
        rtt,
    } = figures;
    let range = rtt.range_ns();
    let rtt = json!({
        "count": rtt.count,
        "min_s": range.map(|(min, _)| seconds(min)),
        "mean_s": rtt.mean_ns().map(seconds),
        "max_s": range.map(|(_, max)| seconds(max)),
    });
    let counts = [
        ("packets", packets),
        ("payload", bytes),
        ("retransmitted", retransmitted),
        ("retransmitted_bytes", retransmitted_bytes),
        ("fast", fast),
        ("spurious", spurious),
        ("repeated", repeated),
        ("out_of_order", out_of_order),
        ("duplicate_acks", duplicate_acks),
        ("zero_windows", zero_windows),
        ("resets", resets),
        ("gaps", gaps),
        ("untimed", untimed),
    ];
    let counts = counts
        .into_iter()
        .map(|(name, count)| (name.to_owned(), count.into()));
    counts.chain([("rtt".to_owned(), rtt)]).collect()
}

fn dns_json(report: &dns::Report) -> Value {
    let names = |rows: &[dns::NameRow]| -> Value {
        let row = |row: &dns::NameRow| {
            let mut object = dns_figures(&row.figures);
            object.insert("name".to_owned(), row.name.to_string().into());
            Value::Object(object)
        };
        rows.iter().map(row).collect()
    };
    let server = |row: &dns::ServerRow| {
        let mut object = dns_figures(&row.figures);
        object.insert("server".to_owned(), row.server.to_string().into());
        Value::Object(object)
    };
    let mut object = dns_figures(&report.sum);
    let mut put = |name: &str, value: Value| drop(object.insert(name.to_owned(), value));
    put("unasked", report.sum.unasked.into());
    put("unread", report.unread.into());
    put("capacity", report.capacity.into());
    put("evicted_queries", report.evicted_queries.into());
    put("evicted_names", report.evicted_names.into());
    put("evicted_servers", report.evicted_servers.into());
    put("servers", report.servers.iter().map(server).collect());
    put("slow", names(&report.slow));
    put("failing", names(&report.failing));
    put("unanswered_names", names(&report.unanswered));
    object.into()
}

fn dns_figures(figures: &dns::Figures) -> Map<String, Value> {
    let times = &figures.times;
    let times = json!({
        "count": times.count,
        "median_s": times.median_ns().map(seconds),
        "mean_s": times.mean_ns().map(seconds),
        "max_s": (times.count > 0).then(|| seconds(times.max_ns)),
    });
    let codes = figures
        .codes
        .iter()
        .enumerate()
        .filter(|(_, answers)| **answers > 0);
    let codes: Map<_, _> = codes
        .map(|(code, answers)| (code_name(code), (*answers).into()))
        .collect();
    let members = [
        ("queries", figures.queries.into()),
        ("retransmitted", figures.retransmitted.into()),
        ("repeated", figures.repeated.into()),
        ("unanswered", figures.unanswered.into()),
        ("codes", codes.into()),
        ("times", times),
    ];
    members
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

/// Name of a response code, or its number (RFC 1035, section 4.1.1; RFC 2136, section 2.2).
pub fn code_name(code: usize) -> String {
    const NAMES: [&str; 11] = [
        "NOERROR", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED", "YXDOMAIN", "YXRRSET",
        "NXRRSET", "NOTAUTH", "NOTZONE",
    ];
    NAMES
        .get(code)
        .map_or_else(|| code.to_string(), |name| (*name).to_owned())
}

fn path_json(report: &path::Report) -> Value {
    let fragments = |row: &path::Fragments| {
        json!({
            "src": row.source.to_string(),
            "dst": row.destination.to_string(),
            "proto": crate::measured::proto_name(row.proto),
            "fragments": row.fragments,
            "packets": row.packets,
            "bytes": row.bytes,
        })
    };
    let too_big = |row: &path::TooBig| {
        json!({
            "router": row.router.to_string(),
            "dst": row.destination.map(|address| address.to_string()),
            "mtu": row.mtu,
            "messages": row.messages,
        })
    };
    json!({
        "fragments": report.all_fragments,
        "fragmented": report.fragments.iter().map(fragments).collect::<Value>(),
        "messages": report.all_too_big,
        "too_big": report.too_big.iter().map(too_big).collect::<Value>(),
    })
}

/// A time in seconds. A 64-bit float holds each ns of a time below 104 days.
fn seconds(ns: i64) -> f64 {
    ns as f64 / 1e9
}
