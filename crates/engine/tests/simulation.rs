//! Runs of the engine in one thread and on clocks of their own, drawn from a seed, against a naive twin.
//!
//! `SEED=N cargo test -p weir-engine --test simulation` plays one seed, and `SEEDS=N` that many.

mod acted;
#[path = "../../pipeline/tests/simulated/mod.rs"]
#[allow(dead_code, reason = "the tests of the pipeline use the rest")]
mod simulated;

use acted::Case;
use acted::tally::Tally;
use acted::traffic::EXPRESSIONS;
use acted::twin::Twin;
use simulated::{Packet, each_seed};
use std::cell::RefCell;
use weir_filter::libpcap;
use weir_packet::LinkType;
use weir_testkit::Scratch;

/// Number of seeds that are played, unless the environment says another.
const SEEDS: u64 = 5_000;

/// Tells what a failing case was.
struct OnFailure<'a>(&'a Case);

impl Drop for OnFailure<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.0);
        }
    }
}

#[test]
fn runs_are_those_of_a_naive_twin_and_all_pairs_of_features_and_faults_occur() {
    let scratch = Scratch::new();
    let tally = RefCell::new(Tally::default());
    let seeds = std::env::var("SEEDS").map_or(SEEDS, |seeds| seeds.parse().expect("a number"));
    each_seed(seeds, |seed| {
        let case = Case::draw(seed);
        let _on_failure = OnFailure(&case);
        let outcome = case.play(&scratch);
        tally.borrow_mut().add(&case, &outcome);
        if outcome.refused.is_none() {
            Twin::new(&case, &outcome).check();
        }
    });
    println!("{}", tally.borrow());
    if seeds >= SEEDS && std::env::var("SEED").is_err() {
        tally.borrow().check();
    }
}

#[test]
fn a_seed_gives_the_same_run_again() {
    let scratch = Scratch::new();
    each_seed(200, |seed| {
        let play = || {
            let outcome = Case::draw(seed).play(&scratch);
            let logs = outcome.logs.iter().flatten();
            let logs: Vec<_> = logs
                .map(|log| log.lock().unwrap().packets.clone())
                .collect();
            let ended = outcome.ended.map(|ended| ended.ledger);
            (logs, ended, outcome.windows, outcome.pulled)
        };
        assert_eq!(play(), play());
    });
}

#[test]
fn the_twins_of_expressions_judge_like_libpcap() {
    for (expression, twin) in EXPRESSIONS {
        let program = libpcap::compile_unoptimised(expression, LinkType::ETHERNET);
        let program = program.expect("it makes sense");
        for number in 0..3000u32 {
            let packet = Packet {
                number,
                flow: 1 + (number / 4 % 8) as u16,
                kept: [14, 20, 23, 24, 30, 33, 34, 35, 36, 38, 60, 300][number as usize % 12],
                bytes: 60 + number * 7 % 900,
                stamp: None,
            };
            let matches = libpcap::bpf_filter(&program, &packet.frame(), packet.bytes) != 0;
            assert_eq!(matches, twin(&packet), "{expression}, {packet:?}");
        }
    }
}
