//! Any texts of kept bans: those are read that a naive twin reads, and what was written comes back.
#![no_main]

#[allow(dead_code)]
#[path = "../../crates/firewall/tests/bodies/control.rs"]
mod control;
#[path = "../../crates/firewall/tests/bodies/kept.rs"]
mod kept;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    kept::judge(data);
});
