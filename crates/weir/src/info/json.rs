//! The object of a capture file: all that the text says, for programs.

use super::{Found, byte_order, format_name, link_name, links};
use serde_json::{Map, Value, json};
use weir_engine::provenance::holds_only;
use weir_messages::measured::{loss_unknown_value, size_label};
use weir_packet::savefile::Interface;
use weir_packet::savefile::described::InterfaceOption;
use weir_packet::time::{Digits, Shape, Stamp};
use weir_pipeline::survey::Surveyed;

fn stamp(ns: i64) -> String {
    let mut text = String::new();
    Stamp(ns).write(&mut text, Shape::Rfc3339, Digits::Nano, 0);
    text
}

/// The object of a file.
pub(super) fn object(found: &Found) -> Value {
    let Found {
        name,
        layout,
        whole,
        faults,
        ..
    } = found;
    let interfaces = layout
        .iter()
        .flat_map(|layout| layout.interfaces.iter())
        .enumerate();
    let interfaces: Vec<Value> = interfaces
        .map(|(i, one)| interface(found, i, one))
        .collect();
    let notes: Vec<Value> = layout
        .iter()
        .flat_map(|layout| layout.notes.iter())
        .map(|(k, v)| json!({ *k: v }))
        .collect();
    let (lost_between, lost_before) = found.lost;
    let mut object = json!({
        "file": name,
        "file_bytes": found.file_bytes,
        "format": layout.as_ref().map(format_name),
        "byte_order": layout.as_ref().map(byte_order),
        "sections": layout.as_ref().map(|layout| layout.sections),
        "linktypes": layout.as_ref().map_or(Vec::new(), |layout| links(layout).into_iter().map(link_name).collect()),
        "start": whole.times.map(|(first, _)| stamp(first)),
        "end": whole.times.map(|(_, last)| stamp(last)),
        "lost_before": lost_before,
        "lost_between": lost_between,
        "loss_unknown": loss_unknown_value(&found.loss_unknown),
        "holds_only": layout.as_ref().map_or(Vec::new(), |layout| holds_only(layout, whole.cut > 0)),
        "interfaces": interfaces,
        "notes": notes,
        "remarks": found.remarks,
        "texts_left_out": layout.as_ref().map_or(0, |layout| layout.texts_left_out),
        "faults": faults,
    });
    if let Value::Object(members) = &mut object {
        members.extend(packets(whole));
    }
    if !found.counts_losses {
        object["loss_not_recorded"] = true.into();
    }
    if let Some(read) = found.interrupted {
        object["interrupted"] = true.into();
        object["read_bytes"] = read.into();
    }
    object
}

/// Members on the packets of a file.
fn packets(whole: &Surveyed) -> Map<String, Value> {
    let classes = whole
        .classes
        .iter()
        .enumerate()
        .filter(|(_, count)| **count > 0);
    let classes: Map<String, Value> = classes
        .map(|(class, count)| (size_label(class), (*count).into()))
        .collect();
    let members = json!({
        "packets": whole.packets,
        "bytes": whole.bytes,
        "captured_bytes": whole.captured_bytes,
        "cut": whole.cut,
        "beyond_snaplen": whole.beyond_snaplen,
        "longer": whole.longer,
        "times_beyond": whole.clamped,
        "untimed": whole.untimed,
        "backwards": whole.backwards,
        "smallest": whole.sizes.map(|(smallest, _)| smallest),
        "largest": whole.sizes.map(|(_, largest)| largest),
        "sizes": classes,
    });
    match members {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}

fn interface(found: &Found, i: usize, interface: &Interface) -> Value {
    let options = &interface.options;
    let text = |wanted: &str| {
        let named = options
            .iter()
            .filter_map(InterfaceOption::text)
            .find(|(name, _)| *name == wanted);
        named.map(|(_, text)| text)
    };
    json!({
        "linktype": link_name(interface.link),
        "snaplen": interface.snaplen,
        "resolution": interface.resolution.to_string(),
        "name": interface.name,
        "description": interface.description,
        "comments": interface.comments,
        "filter": interface.filter,
        "os": text("os"),
        "hardware": text("hardware"),
        "bits_per_second": options.iter().find_map(InterfaceOption::speed),
        "filter_program_bytes": options.iter().find_map(InterfaceOption::program),
        "packets": found.packets(i),
        "dropped": found.dropped(i),
    })
}
