//! Bounds of rows, and what a table has no room for.

use super::*;

#[test]
fn the_truth_lies_within_every_bound() {
    let temp = Temp::new();
    let profile = Profile {
        seed: 3,
        packets: 30_000,
        flows: 6000,
        zipf: 0.9,
        ..Profile::default()
    };
    let (file, seen, generator) = generated(&temp, "g.pcap", &profile);
    let tables = ["5tuple", "dst"].map(|key| (key, counted(key, &seen)));
    let mut loose = 0;
    for sketch in ["heavy", "cms", "cms-conservative", "exact", "sht", "mv"] {
        for by in ["packets", "bytes"] {
            // Little memory, so that the bounds are not exact.
            let memory = if sketch == "exact" { "4M" } else { "24k" };
            let arguments = [
                &file, "--sketch", sketch, "--by", by, "--memory", memory, "--top", "1000000",
            ];
            let more = [
                "--key",
                "5tuple",
                "--key",
                "dst",
                "--seed",
                "5",
                "--workers",
                "2",
            ];
            let object = measure_one(&[&arguments[..], &more].concat());
            for (key, truth) in &tables {
                let top = object["tops"][*key].as_array().unwrap();
                assert!(top.len() >= 100, "{sketch} {key}: {} rows", top.len());
                for row in top {
                    let &(packets, bytes) = truth
                        .get(&row_key(key, row))
                        .unwrap_or_else(|| panic!("nobody: {row}"));
                    let (true_figure, other, true_other) = if by == "packets" {
                        (packets, "bytes", bytes)
                    } else {
                        (bytes, "packets", packets)
                    };
                    let n = |value: &Value| value.as_u64().unwrap();
                    let (lower, upper) = (n(&row["bound"]["lower"]), n(&row["bound"]["upper"]));
                    let context =
                        format!("{sketch} {key} by {by}: {packets} packets, {bytes} bytes; {row}");
                    assert!((lower..=upper).contains(&true_figure), "{context}");
                    assert!((lower..=upper).contains(&n(&row[by])), "{context}");
                    let companion = &row[&format!("{other}_bound")];
                    assert!(
                        (n(&companion["lower"])..=n(&companion["upper"])).contains(&true_other),
                        "{context}"
                    );
                    assert_eq!(row[other], companion["lower"], "{context}");
                    loose += u64::from(lower < upper);
                }
            }
            // The largest flow is far ahead of the rest, so that all sketches must list it, unless a newer key may have taken
            // its slot.
            if by == "packets" && sketch != "sht" {
                let flow = &generator.top(1)[0];
                assert_eq!(object["top"][0]["src"], flow.source.to_string(), "{sketch}");
            }
        }
    }
    assert!(
        loose > 1000,
        "bounds that say something were judged: {loose}"
    );
}

/// Ten rows of many keys that are nearly alike: the rows are true, but the list cannot be known to have the right keys.
#[test]
fn a_list_says_how_large_a_key_outside_may_be() {
    let temp = Temp::new();
    let profile = Profile {
        seed: 1,
        packets: 60_000,
        flows: 5200,
        zipf: 0.01,
        sizes: Sizes::Fixed(60),
        ..Profile::default()
    };
    let (file, seen, _) = generated(&temp, "g.pcap", &profile);
    let mut wrong = 0;
    for seed in ["1", "2", "3"] {
        for by in ["packets", "bytes"] {
            let fixed = [
                &file,
                "--seed",
                seed,
                "--workers",
                "1",
                "--memory",
                "400k",
                "--by",
                by,
            ];
            let keys = ["5tuple", "src/24"];
            let object = measure_one(&[&fixed[..], &["--key", keys[0], "--key", keys[1]]].concat());
            assert_eq!(
                object["missing"], object["missing_by_key"]["5tuple"],
                "the first key's"
            );
            for key in keys {
                let mut truth = counted(key, &seen);
                let figure = |counts: (u64, u64)| if by == "packets" { counts.0 } else { counts.1 };
                let listed = rows(key, &object["tops"][key]);
                let least = listed.keys().map(|key| figure(truth[key])).min().unwrap();
                let named: (u64, u64) = listed
                    .values()
                    .fold((0, 0), |sum, row| (sum.0 + row.0, sum.1 + row.1));
                let all = truth
                    .values()
                    .fold((0, 0), |sum, row| (sum.0 + row.0, sum.1 + row.1));
                truth.retain(|key, _| !listed.contains_key(key));
                let largest = truth.values().map(|counts| figure(*counts)).max().unwrap();
                let missing = &object["missing_by_key"][key];
                assert_eq!(missing["kind"], "deterministic");
                assert!(
                    largest <= missing["at_most"].as_u64().unwrap(),
                    "{key} by {by}: {largest}, {missing}"
                );
                assert_eq!(
                    (&missing["packets"], &missing["bytes"]),
                    (&json!(all.0 - named.0), &json!(all.1 - named.1))
                );
                wrong += u64::from(largest > least);
            }
            let text = weir(["measure"].iter().chain(&fixed)).ok().text();
            let at_most = grouped(object["missing"]["at_most"].as_u64().unwrap());
            let line = text
                .lines()
                .find(|line| line.starts_with("  outside: "))
                .expect("a line below the table");
            assert!(
                line.ends_with(&format!(
                    "; a key of up to {at_most} {by} may be missing here"
                )),
                "{line}"
            );
        }
    }
    assert!(
        wrong > 0,
        "some list lacks a larger key, so that the line is needed"
    );
}

#[test]
fn a_full_exact_table_says_whose_packets_are_not_in_it() {
    let temp = Temp::new();
    let (file, seen, _) = generated(
        &temp,
        "g.pcap",
        &Profile {
            zipf: 0.9,
            flows: 6000,
            ..small()
        },
    );
    let truth = ["5tuple", "pair"].map(|key| counted(key, &seen));
    for workers in ["1", "2"] {
        let fixed = [
            &file,
            "--sketch",
            "exact",
            "--memory",
            "64k",
            "--workers",
            workers,
            "--distribute",
            "random",
        ];
        let fixed = [&fixed[..], &["--design", "async", "--top", "100000"]].concat();
        let object = measure_one(&[&fixed[..], &["--key", "5tuple", "--key", "pair"]].concat());
        assert!(object.get("untracked").is_none(), "each table has its own");
        for (key, truth) in ["5tuple", "pair"].iter().zip(&truth) {
            let (listed, missing) = (
                rows(key, &object["tops"][key]),
                &object["missing_by_key"][key],
            );
            let kind = if workers == "1" {
                "exact"
            } else {
                "deterministic"
            };
            for row in object["tops"][key].as_array().unwrap() {
                let n = |end: &str| row["bound"][end].as_u64().unwrap();
                assert!(
                    (n("lower")..=n("upper")).contains(&truth[&row_key(key, row)].0),
                    "{row}"
                );
                assert_eq!(row["bound"]["kind"], kind, "{row}");
            }
            let lost = truth.iter().fold((0, 0), |sum, (key, all)| {
                let known = listed.get(key).copied().unwrap_or_default();
                (sum.0 + all.0 - known.0, sum.1 + all.1 - known.1)
            });
            assert_eq!(
                missing["untracked"],
                json!({ "packets": lost.0, "bytes": lost.1 })
            );
            assert_eq!(missing["packets"], lost.0, "all that was tracked is listed");
        }
        let text = weir(["measure"].iter().chain(&fixed)).ok().text();
        let whose = if workers == "1" {
            "other keys"
        } else {
            "other keys, and of these up to their bounds,"
        };
        let line = format!(") of {whose} are not in it; raise --memory, or use --sketch heavy");
        assert!(
            text.lines()
                .any(|told| told.starts_with("  the table is full: ") && told.ends_with(&line)),
            "{text}"
        );
    }
}

#[test]
fn an_exact_table_of_hosts_counts_them_exactly() {
    let temp = Temp::new();
    let (file, seen, _) = generated(&temp, "g.pcap", &small());
    let object = measure_one(&[&file, "--sketch", "exact", "--key", "dst", "--key", "src"]);
    for (name, key) in [("sources", "src"), ("destinations", "dst")] {
        assert_eq!(
            object[name],
            json!({ "estimate": counted(key, &seen).len(), "bound": { "kind": "exact" } })
        );
    }
    assert_eq!(
        object["flows"]["bound"]["kind"], "probabilistic",
        "no table has flows"
    );
}

#[test]
fn counts_of_distinct_things_are_within_their_bounds() {
    let temp = Temp::new();
    let profile = Profile {
        packets: 60_000,
        flows: 30_000,
        zipf: 0.3,
        ..small()
    };
    let (file, seen, _) = generated(&temp, "g.pcap", &profile);
    let truths = [
        ("flows", "5tuple"),
        ("sources", "src"),
        ("destinations", "dst"),
    ]
    .map(|(name, key)| (name, counted(key, &seen).len() as u64));
    // The bounds hold with a confidence of 95 %, so that one seed of twenty may violate them.
    let mut outside = Vec::new();
    for seed in 1..=20 {
        let object = measure_one(&[&file, "--seed", &seed.to_string()]);
        for (name, truth) in truths {
            let value = object[name]["estimate"].as_u64().unwrap();
            let plus_minus = object[name]["bound"]["plus_minus"].as_u64().unwrap();
            assert!(
                plus_minus * 50 < truth,
                "{name}: a bound of use: {}",
                object[name]
            );
            assert!(
                truth.abs_diff(value) <= 3 * plus_minus,
                "{name}: {truth}, {}",
                object[name]
            );
            outside.extend(
                (truth.abs_diff(value) > plus_minus)
                    .then(|| format!("{name}, seed {seed}: {value}")),
            );
        }
    }
    assert!(outside.len() <= 6, "{truths:?}, and {outside:?}");
}
