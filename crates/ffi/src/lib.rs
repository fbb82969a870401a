//! weir for C, and for languages that call C.
//!
//! `include/weir.h` is generated from this crate and says what each function does. The rules that hold for all of them:
//!
//! - Objects have handles: numbers that are checked at each call. A closed handle is refused, and never dereferenced.
//! - A function returns a status and gives its results by pointers. Nothing unwinds into the caller.
//! - The library prints nothing, installs no signal handler, restricts nothing, and changes no state of the process, but for the thread that
//!   calls weir_pin_thread.
//! - Every function may be called from any thread.
#![deny(unsafe_code)]
#![allow(
    non_camel_case_types,
    reason = "types have the names that C programs see"
)]

#[allow(unsafe_code, reason = "pointers of the caller, and rows of reports")]
mod answer;
#[allow(unsafe_code, reason = "pointers of the caller")]
mod batch;
#[allow(unsafe_code, reason = "pointers of the caller")]
mod call;
#[allow(unsafe_code, reason = "objects that a state says are open")]
mod handles;
#[allow(unsafe_code, reason = "pointers of the caller")]
mod measure;
#[allow(unsafe_code, reason = "pointers of the caller")]
mod record;
#[allow(unsafe_code, reason = "pointers of the caller")]
mod sink;
#[allow(unsafe_code, reason = "pointers of the caller")]
mod source;
#[allow(unsafe_code, reason = "pointers of the caller")]
mod text;
#[allow(unsafe_code, reason = "pointers of the caller, and system calls")]
mod thread;

pub use answer::{
    WEIR_DNS_FAILING, WEIR_DNS_SERVERS, WEIR_DNS_SLOW, WEIR_DNS_UNANSWERED,
    weir_answer_conversation, weir_answer_dns, weir_answer_dns_row, weir_answer_finding,
    weir_answer_tcp, weir_dns, weir_dns_figures, weir_finding, weir_tcp, weir_tcp_conversation,
    weir_tcp_figures,
};
pub use batch::{
    WEIR_CAPTURED, WEIR_DST, WEIR_DST_PORT, WEIR_DST4, WEIR_INTERFACE, WEIR_IP_VERSION, WEIR_MIXED,
    WEIR_NETWORK_OFFSET, WEIR_PAYLOAD_OFFSET, WEIR_PROTOCOL, WEIR_SRC, WEIR_SRC_PORT, WEIR_SRC4,
    WEIR_TCP_FLAGS, WEIR_TIME, WEIR_TRANSPORT_OFFSET, WEIR_VLAN, WEIR_WIRE_LEN,
};
pub use batch::{
    weir_batch, weir_column, weir_descriptor, weir_fill, weir_lease, weir_release, weir_split,
};
pub use call::{
    WEIR_BUG, WEIR_BUSY, WEIR_CLOSED, WEIR_END, WEIR_FAILED, WEIR_FORKED, WEIR_FULL, WEIR_NOTHING,
    WEIR_NULL, WEIR_OK, WEIR_REFUSED, WEIR_SIZE, weir_status,
};
pub use measure::{
    WEIR_ASYNC, WEIR_AUTO, WEIR_BY_BYTES, WEIR_BY_CONTACTS, WEIR_BY_PEERS, WEIR_BY_PORTS, WEIR_CMS,
    WEIR_CMS_CONSERVATIVE, WEIR_EXACT, WEIR_FINDINGS, WEIR_HEALTH_DNS, WEIR_HEALTH_MTU,
    WEIR_HEALTH_TCP, WEIR_HEAVY, WEIR_NO_MERGE, WEIR_RSS, WEIR_SEED, WEIR_SHARED, WEIR_SYNC,
};
pub use measure::{
    weir_measure, weir_measure_close, weir_measure_next, weir_measure_open, weir_measure_options,
    weir_measure_remarks, weir_measure_stop,
};
pub use record::{
    weir_record, weir_record_close, weir_record_next, weir_record_open, weir_record_options,
    weir_record_remarks, weir_record_status, weir_record_stop, weir_record_trigger,
};
pub use sink::{
    weir_send, weir_sink, weir_sink_close, weir_sink_counts, weir_sink_open, weir_sink_open_with,
    weir_sink_options,
};
pub use source::{
    WEIR_BUSY_POLL, WEIR_IN, WEIR_INNER, WEIR_INVERT, WEIR_MERGE, WEIR_NO_KERNEL_FILTER,
    WEIR_NO_PROMISCUOUS, WEIR_OUT, WEIR_RESOLVE, WEIR_SORT, WEIR_WAIT,
};
pub use source::{
    weir_close, weir_counts, weir_counts_of, weir_interface, weir_interface_of, weir_next,
    weir_open, weir_options, weir_poll_fd, weir_remarks, weir_set_filter, weir_set_rules,
    weir_source, weir_stop,
};
pub use text::{weir_text, weir_text_free, weir_text_read};
pub use thread::{weir_cpus, weir_node_of, weir_pin_thread};

/// Version of the functions and structures: it grows with each change that breaks programs built earlier.
pub const WEIR_ABI: u32 = 1;

/// Returns the version of the functions and structures of this library: `WEIR_ABI` of the header that it was built with.
#[allow(unsafe_code, reason = "a name for C")]
#[unsafe(no_mangle)]
pub extern "C" fn weir_abi() -> u32 {
    WEIR_ABI
}

/// Returns the version of weir, such as "0.1.0"; never NULL.
#[allow(unsafe_code, reason = "a name for C")]
#[unsafe(no_mangle)]
pub extern "C" fn weir_version() -> *const core::ffi::c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}
