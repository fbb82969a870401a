//! A snapshot of the recent past as a JSON object, the same in every front end.

use crate::health;
use crate::measured::{
    bound_json, change_json, counts_json, dropped, key_json, keyless_json, kind_name, stamp,
};
use serde_json::{Map, Value, json};
use std::time::Duration;
use weir_measure::{Bound, BoundKind, Counts, KeyKind, Weigh, bits_per_second, per_second};
use weir_view::{Finding, Point, Rest, Row, Snapshot, Table, Totals};

/// Returns the object of a snapshot, of type `view`. `place` is where interfaces drop packets for lack of room, if there are any.
pub fn json(snapshot: &Snapshot, place: Option<&str>) -> Value {
    let Snapshot {
        span,
        from_ns,
        to_ns,
        is_last,
        neighbours: _,
        restarts,
        windows,
        untimed,
        totals,
        tables,
        points,
        health: report,
        findings,
    } = snapshot;
    let arrivals = &totals.arrivals;
    let mut object = Map::new();
    let mut put = |name: &str, value: Value| drop(object.insert(name.to_owned(), value));
    put("step_s", span.seconds().into());
    put("start", stamp(*from_ns).into());
    put("end", stamp(*to_ns).into());
    put("covered_s", seconds(totals.covered_ns));
    put("is_last", (*is_last).into());
    put("restarts", (*restarts).into());
    put("windows", (*windows).into());
    put("untimed", counts_json(untimed));
    put("received", arrivals.received.into());
    put("passed", totals.measured.packets.into());
    put("filtered", arrivals.filtered.into());
    put("denied", arrivals.denied.into());
    put("dropped", dropped(arrivals, place));
    put("bytes", totals.measured.bytes.into());
    let (packets, bytes) = (totals.measured.packets, totals.measured.bytes);
    put(
        "packets_per_s",
        per_second(packets, totals.covered_ns).into(),
    );
    put(
        "bits_per_s",
        bits_per_second(bytes, totals.covered_ns).into(),
    );
    put("rx", side(&arrivals.rx, totals.covered_ns));
    put("tx", side(&arrivals.tx, totals.covered_ns));
    put("local", side(&arrivals.local, totals.covered_ns));
    put("broadcast", arrivals.broadcast.into());
    put("multicast", arrivals.multicast.into());
    put("keyless", keyless_json(&totals.keyless));
    put("left_out", totals.left_out.into());
    let by_kind = tables.iter().map(|one| (one.kind.to_string(), table(one)));
    put("tables", Value::Object(by_kind.collect()));
    put(
        "points",
        points.iter().map(|one| point(one, place)).collect(),
    );
    if let Some(report) = report {
        put("health", health::json(report));
    }
    put("findings", findings.iter().map(finding).collect());
    object.into()
}

/// Returns the object of a finding, of type `finding`. A finding has an object when it begins, and another when it has ended.
pub fn finding(finding: &Finding) -> Value {
    json!({
        "number": finding.number,
        "kind": finding.kind.name(),
        "state": finding.state.name(),
        "host": finding.host.map(|host| host.to_string()),
        "begin": stamp(finding.begin_ns),
        "last": stamp(finding.last_ns),
        "figure": finding.figure,
        "most": finding.most,
        "unit": finding.kind.unit(),
        "row": finding.row,
    })
}

fn seconds(ns: u64) -> Value {
    json!(Duration::from_nanos(ns).as_secs_f64())
}

fn side(counts: &Counts, ns: u64) -> Value {
    let mut object = counts_json(counts);
    object["bits_per_s"] = bits_per_second(counts.bytes, ns).into();
    object
}

fn table(table: &Table) -> Value {
    let changes = table.changes.as_ref();
    let change = |change| change_json(table.kind, change, None);
    let changes = changes.map(|changes| changes.iter().map(change).collect::<Value>());
    json!({
        "by": match table.by {
            Weigh::Packets => "packets",
            Weigh::Bytes => "bytes",
        },
        "covered_s": seconds(table.covered_ns),
        "rows": table.rows.iter().map(|one| row(table, one)).collect::<Value>(),
        "rest": rest(&table.rest),
        "whole": counts_json(&table.whole),
        "changes": changes,
        "forgotten": table.forgotten,
    })
}

fn rest(rest: &Rest) -> Value {
    let mut object = counts_json(&rest.counts);
    object["at_most"] = (rest.kind != BoundKind::None)
        .then_some(rest.at_most)
        .into();
    object["kind"] = kind_name(rest.kind).into();
    object
}

fn row(table: &Table, row: &Row) -> Value {
    let (listed, ns) = (&row.listed, table.covered_ns);
    let mut object = key(table.kind, row);
    let mut put = |name: &str, value: Value| drop(object.insert(name.to_owned(), value));
    put("packets", listed.counts.packets.into());
    put("bytes", listed.counts.bytes.into());
    put(
        "packets_per_s",
        per_second(listed.counts.packets, ns).into(),
    );
    put(
        "bits_per_s",
        bits_per_second(listed.counts.bytes, ns).into(),
    );
    if let Some(sides) = &listed.sides {
        put("tx", side(&sides.tx, ns));
        put("rx", side(&sides.rx, ns));
    }
    put("bound", bound_json(&listed.bound));
    let companion = match table.by {
        Weigh::Packets => "bytes_bound",
        Weigh::Bytes => "packets_bound",
    };
    put(companion, bound(&listed.companion));
    let seen = row.seen.as_ref();
    put("first", seen.map(|seen| stamp(seen.first_ns)).into());
    put("last", seen.map(|seen| stamp(seen.last_ns)).into());
    let peak = json!({
        "bits_per_s": listed.peak_bits_per_s,
        "ever_bits_per_s": seen.map(|seen| seen.peak_bits_per_s),
        "ever_at": seen.map(|seen| stamp(seen.peak_ns)),
    });
    put("peak", peak);
    if !row.history.is_empty() {
        let counts = row
            .history
            .iter()
            .map(|counts| counts.as_ref().map(counts_json));
        put("history", counts.collect::<Vec<_>>().into());
    }
    object.into()
}

/// Key of a row. A view keeps the hosts of a table of names apart, and so does not need their names.
fn key(kind: KeyKind, row: &Row) -> Map<String, Value> {
    key_json(kind, &row.listed.key, None)
}

/// A bound, whose upper end may be unknown.
fn bound(bound: &Bound) -> Value {
    let mut object = bound_json(bound);
    if bound.kind == BoundKind::None && bound.upper == u64::MAX {
        object["upper"] = Value::Null;
    }
    object
}

fn point(point: &Point, place: Option<&str>) -> Value {
    let Totals {
        arrivals,
        measured,
        covered_ns,
        ..
    } = &point.totals;
    json!({
        "start": stamp(point.from_ns),
        "end": stamp(point.to_ns),
        "covered_s": seconds(*covered_ns),
        "packets": measured.packets,
        "bytes": measured.bytes,
        "bits_per_s": bits_per_second(measured.bytes, *covered_ns),
        "rx": side(&arrivals.rx, *covered_ns),
        "tx": side(&arrivals.tx, *covered_ns),
        "local": side(&arrivals.local, *covered_ns),
        "dropped": dropped(arrivals, place),
    })
}
