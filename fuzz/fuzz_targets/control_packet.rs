//! Any requests of controllers, in packets: those are accepted that the rule accepts, told once more with its own HMAC.
#![no_main]

#[path = "../../crates/firewall/tests/bodies/control.rs"]
mod control;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    control::judge(data);
});
