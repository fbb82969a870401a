//! The JSON form of a view is as the documentation says.

use crate::schema;
use serde_json::{Value, json};
use std::sync::Arc;
use weir_measure::{
    Aggregate, Arrivals, Config, Counts, KeyKind, Kind, Observation, Spares, Window,
};
use weir_packet::flow::FlowKey;
use weir_view::{Ask, Settings, View};

#[test]
fn a_view_has_the_fields_of_the_schema_and_figures_that_add_up() {
    const SECOND: i64 = 1_000_000_000;
    let config = Arc::new(Config {
        keys: vec![KeyKind::HOST, KeyKind::FiveTuple],
        ..Config::default()
    });
    let mut view = View::new(Settings::default());
    let mut aggregate = Aggregate::new(Arc::clone(&config), Arc::<Spares>::default()).unwrap();
    for (second, bytes) in [(0, 100), (1, 900)] {
        let (from, to) = (second * SECOND, (second + 1) * SECOND);
        let packets: Vec<Observation> = (0..40)
            .map(|port| {
                let mut flow = FlowKey {
                    family: 4,
                    proto: 17,
                    sport: port,
                    flags: FlowKey::HAS_PORTS,
                    ..FlowKey::NONE
                };
                (flow.src[0], flow.dst[0]) = (10, 11);
                let mut packet = Observation::mark(config.hasher().plain(&flow));
                packet.arrived(Kind::Flow, bytes, from);
                packet.flow = flow;
                packet
            })
            .collect();
        aggregate.take(&packets, &[]).unwrap();
        let state = aggregate.close(i64::MAX).pop().unwrap().1;
        view.add(&Window {
            span: Some((from, to)),
            covered: Some((from, to)),
            revision: 0,
            left_out: 0,
            arrivals: Arrivals {
                received: 40,
                rx: Counts {
                    packets: 40,
                    bytes: 40 * u64::from(bytes),
                },
                ..Arrivals::default()
            },
            state: Some(&state),
            change: None,
            before: None,
            health: None,
            names: None,
        });
    }
    let ask = Ask {
        rows: 3,
        history: 5,
        ..Ask::default()
    };
    let snapshot = view.snapshot(&ask).unwrap();
    let object = weir_messages::view::json(&snapshot, Some("kernel"));
    let line = weir_messages::json::line("view", &object);
    assert!(line.starts_with("{\"type\":\"view\",\"step_s\":1,"));
    schema::check(&line);
    assert_eq!(object["rx"]["bits_per_s"], json!(288_000.0));
    assert_eq!(object["points"].as_array().map(Vec::len), Some(2));
    let host = &object["tables"]["host"];
    assert_eq!(host["rows"][0]["host"], "10.0.0.0");
    assert_eq!(host["rows"][0]["tx"]["bits_per_s"], json!(288_000.0));
    assert_eq!(host["rows"][0]["history"][0]["bytes"], 4000);
    assert_eq!(host["rows"][0]["first"], "1970-01-01T00:00:00.000000000Z");
    assert_eq!(host["whole"], json!({ "packets": 80, "bytes": 72_000 }));
    let flows = &object["tables"]["5tuple"];
    let bytes = |value: &Value| value["bytes"].as_u64().unwrap();
    let rows: u64 = flows["rows"].as_array().unwrap().iter().map(bytes).sum();
    assert_eq!(rows + bytes(&flows["rest"]), bytes(&flows["whole"]));
}
