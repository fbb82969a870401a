//! Any text as a ruleset of nftables: it is translated or refused, and the translation is a rule list.
#![no_main]

#[path = "../../crates/firewall/tests/bodies/nft.rs"]
mod nft;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    nft::judge(data);
});
