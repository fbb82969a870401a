//! Any bytes as names and messages on the screen: a strict reader of what is sent, and a terminal.
#![no_main]
#[path = "../../crates/screen/tests/bodies/names.rs"]
mod body;
#[path = "../../crates/screen/tests/planted/mod.rs"]
mod planted;
thread_local! {
    static VIEW: weir_view::View = planted::view(3, |_, traffic| traffic.usual());
}
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    VIEW.with(|view| body::names(view, data));
});
