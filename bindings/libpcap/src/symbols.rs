//! The table of libpcap's functions: which are ours, and which are passed on.

/// Calls a macro with all functions of libpcap 1.10. `ours` has a body elsewhere in this crate; `passed` goes to the program's own
/// libpcap. Programs call `often` for each packet: it is ours, and goes on without a look at the table until [`enter`] was called.
/// **Source**: pcap(3PCAP), pcap/pcap.h, pcap/bpf.h, pcap/namedb.h.
macro_rules! symbols {
    ($with:ident) => {
        $with! {
            passed bpf_dump(program: *const Program, option: c_int);
            passed bpf_filter(code: *const Insn, data: *const c_uchar, wire_len: c_uint, captured: c_uint) -> c_uint;
            passed bpf_image(insn: *const Insn, index: c_int) -> *mut c_char;
            passed bpf_validate(code: *const Insn, len: c_int) -> c_int;
            ours pcap_activate(p: *mut Pcap) -> c_int;
            ours pcap_breakloop(p: *mut Pcap);
            passed pcap_bufsize(p: *mut Pcap) -> c_int;
            passed pcap_can_set_rfmon(p: *mut Pcap) -> c_int;
            ours pcap_close(p: *mut Pcap);
            ours pcap_compile(p: *mut Pcap, program: *mut Program, text: *const c_char, optimize: c_int, mask: c_uint) -> c_int;
            passed pcap_compile_nopcap(snaplen: c_int, link: c_int, program: *mut Program, text: *const c_char, optimize: c_int, mask: c_uint) -> c_int;
            passed pcap_create(device: *const c_char, error: *mut c_char) -> *mut Pcap;
            passed pcap_datalink(p: *mut Pcap) -> c_int;
            passed pcap_datalink_ext(p: *mut Pcap) -> c_int;
            passed pcap_datalink_name_to_val(name: *const c_char) -> c_int;
            passed pcap_datalink_val_to_description(link: c_int) -> *const c_char;
            passed pcap_datalink_val_to_description_or_dlt(link: c_int) -> *const c_char;
            passed pcap_datalink_val_to_name(link: c_int) -> *const c_char;
            often pcap_dispatch(p: *mut Pcap, count: c_int, callback: Handler, user: *mut c_uchar) -> c_int;
            ours pcap_dump(user: *mut c_uchar, header: *const Header, data: *const c_uchar);
            ours pcap_dump_close(dumper: *mut Dumper);
            passed pcap_dump_file(dumper: *mut Dumper) -> *mut FILE;
            passed pcap_dump_flush(dumper: *mut Dumper) -> c_int;
            passed pcap_dump_fopen(p: *mut Pcap, file: *mut FILE) -> *mut Dumper;
            passed pcap_dump_ftell(dumper: *mut Dumper) -> c_long;
            passed pcap_dump_ftell64(dumper: *mut Dumper) -> i64;
            ours pcap_dump_open(p: *mut Pcap, name: *const c_char) -> *mut Dumper;
            passed pcap_dump_open_append(p: *mut Pcap, name: *const c_char) -> *mut Dumper;
            passed pcap_ether_aton(text: *const c_char) -> *mut c_uchar;
            passed pcap_ether_hostton(name: *const c_char) -> *mut c_uchar;
            ours pcap_file(p: *mut Pcap) -> *mut FILE;
            often pcap_fileno(p: *mut Pcap) -> c_int;
            passed pcap_findalldevs(devices: *mut *mut Device, error: *mut c_char) -> c_int;
            passed pcap_fopen_offline(file: *mut FILE, error: *mut c_char) -> *mut Pcap;
            passed pcap_fopen_offline_with_tstamp_precision(file: *mut FILE, precision: c_uint, error: *mut c_char) -> *mut Pcap;
            passed pcap_free_datalinks(links: *mut c_int);
            passed pcap_free_tstamp_types(types: *mut c_int);
            passed pcap_freealldevs(devices: *mut Device);
            passed pcap_freecode(program: *mut Program);
            passed pcap_get_required_select_timeout(p: *mut Pcap) -> *const libc::timeval;
            often pcap_get_selectable_fd(p: *mut Pcap) -> c_int;
            passed pcap_get_tstamp_precision(p: *mut Pcap) -> c_int;
            passed pcap_geterr(p: *mut Pcap) -> *mut c_char;
            passed pcap_getnonblock(p: *mut Pcap, error: *mut c_char) -> c_int;
            passed pcap_init(options: c_uint, error: *mut c_char) -> c_int;
            passed pcap_inject(p: *mut Pcap, data: *const c_void, size: usize) -> c_int;
            passed pcap_is_swapped(p: *mut Pcap) -> c_int;
            passed pcap_lib_version() -> *const c_char;
            passed pcap_list_datalinks(p: *mut Pcap, links: *mut *mut c_int) -> c_int;
            passed pcap_list_tstamp_types(p: *mut Pcap, types: *mut *mut c_int) -> c_int;
            passed pcap_lookupdev(error: *mut c_char) -> *mut c_char;
            passed pcap_lookupnet(device: *const c_char, net: *mut c_uint, mask: *mut c_uint, error: *mut c_char) -> c_int;
            ours pcap_loop(p: *mut Pcap, count: c_int, callback: Handler, user: *mut c_uchar) -> c_int;
            passed pcap_major_version(p: *mut Pcap) -> c_int;
            passed pcap_minor_version(p: *mut Pcap) -> c_int;
            passed pcap_nametoaddr(name: *const c_char) -> *mut *mut c_uint;
            passed pcap_nametoaddrinfo(name: *const c_char) -> *mut addrinfo;
            passed pcap_nametoeproto(name: *const c_char) -> c_int;
            passed pcap_nametollc(name: *const c_char) -> c_int;
            passed pcap_nametonetaddr(name: *const c_char) -> c_uint;
            passed pcap_nametoport(name: *const c_char, port: *mut c_int, protocol: *mut c_int) -> c_int;
            passed pcap_nametoportrange(name: *const c_char, from: *mut c_int, to: *mut c_int, protocol: *mut c_int) -> c_int;
            passed pcap_nametoproto(name: *const c_char) -> c_int;
            often pcap_next(p: *mut Pcap, header: *mut Header) -> *const c_uchar;
            passed pcap_next_etherent(file: *mut FILE) -> *mut Addresses;
            often pcap_next_ex(p: *mut Pcap, header: *mut *mut Header, data: *mut *const c_uchar) -> c_int;
            passed pcap_offline_filter(program: *const Program, header: *const Header, data: *const c_uchar) -> c_int;
            passed pcap_open_dead(link: c_int, snaplen: c_int) -> *mut Pcap;
            passed pcap_open_dead_with_tstamp_precision(link: c_int, snaplen: c_int, precision: c_uint) -> *mut Pcap;
            passed pcap_open_live(device: *const c_char, snaplen: c_int, promiscuous: c_int, timeout: c_int, error: *mut c_char) -> *mut Pcap;
            ours pcap_open_offline(name: *const c_char, error: *mut c_char) -> *mut Pcap;
            ours pcap_open_offline_with_tstamp_precision(name: *const c_char, precision: c_uint, error: *mut c_char) -> *mut Pcap;
            passed pcap_perror(p: *mut Pcap, prefix: *const c_char);
            passed pcap_sendpacket(p: *mut Pcap, data: *const c_uchar, size: c_int) -> c_int;
            passed pcap_set_buffer_size(p: *mut Pcap, bytes: c_int) -> c_int;
            passed pcap_set_datalink(p: *mut Pcap, link: c_int) -> c_int;
            ours pcap_set_immediate_mode(p: *mut Pcap, on: c_int) -> c_int;
            passed pcap_set_promisc(p: *mut Pcap, on: c_int) -> c_int;
            passed pcap_set_protocol_linux(p: *mut Pcap, protocol: c_int) -> c_int;
            passed pcap_set_rfmon(p: *mut Pcap, on: c_int) -> c_int;
            passed pcap_set_snaplen(p: *mut Pcap, snaplen: c_int) -> c_int;
            ours pcap_set_timeout(p: *mut Pcap, milliseconds: c_int) -> c_int;
            passed pcap_set_tstamp_precision(p: *mut Pcap, precision: c_int) -> c_int;
            ours pcap_set_tstamp_type(p: *mut Pcap, kind: c_int) -> c_int;
            ours pcap_setdirection(p: *mut Pcap, direction: Direction) -> c_int;
            ours pcap_setfilter(p: *mut Pcap, program: *mut Program) -> c_int;
            ours pcap_setnonblock(p: *mut Pcap, on: c_int, error: *mut c_char) -> c_int;
            passed pcap_snapshot(p: *mut Pcap) -> c_int;
            ours pcap_stats(p: *mut Pcap, stats: *mut Stats) -> c_int;
            passed pcap_statustostr(status: c_int) -> *const c_char;
            passed pcap_strerror(error: c_int) -> *const c_char;
            passed pcap_tstamp_type_name_to_val(name: *const c_char) -> c_int;
            passed pcap_tstamp_type_val_to_description(kind: c_int) -> *const c_char;
            passed pcap_tstamp_type_val_to_name(kind: c_int) -> *const c_char;
        }
    };
}

pub(crate) use symbols;

/// Makes an entry of this library of each function that is passed on.
macro_rules! entries {
    ($($how:ident $name:ident($($arg:ident: $type:ty),*) $(-> $result:ty)?;)*) => {
        $(entries! { @$how $name($($arg: $type),*) $(-> $result)? })*
        /// Where functions that are called for each packet go.
        #[allow(non_upper_case_globals, reason = "libpcap's names")]
        mod goal {
            use super::*;
            $(entries! { @goal $how $name($($arg: $type),*) $(-> $result)? })*
        }
        /// Sends the calls for packets to our functions from now on: this library reads a handle.
        pub fn enter() {
            $(entries! { @enter $how $name })*
        }
        /// Names of all functions, and whether each is ours.
        pub const TABLE: &[(&str, bool)] = &[$((stringify!($name), entries!(@is $how))),*];
    };
    (@passed $name:ident($($arg:ident: $type:ty),*) $(-> $result:ty)?) => {
        /// Passed on to the program's own libpcap.
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name($($arg: $type),*) $(-> $result)? {
            // SAFETY: the caller keeps to libpcap's documentation of this function, and the arguments go on as they came.
            unsafe { real::$name($($arg),*) }
        }
    };
    (@ours $($rest:tt)*) => {};
    (@often $name:ident($($arg:ident: $type:ty),*) -> $result:ty) => {
        /// Passed on to the program's own libpcap, or to our function. **Cost**: a jump.
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name($($arg: $type),*) -> $result {
            let goal = goal::$name.load(Ordering::Acquire);
            // SAFETY: all goals have this type, and the arguments go on as they came.
            unsafe { core::mem::transmute::<*mut c_void, unsafe extern "C-unwind" fn($($type),*) -> $result>(goal)($($arg),*) }
        }
    };
    (@goal often $name:ident($($arg:ident: $type:ty),*) -> $result:ty) => {
        pub(super) static $name: AtomicPtr<c_void> = AtomicPtr::new({
            /// Finds libpcap's function, which is the goal from now on unless `enter` was called.
            unsafe extern "C-unwind" fn first($($arg: $type),*) -> $result {
                let found = real::find(entries!(@text $name));
                if !found.is_null() {
                    let _ = $name.compare_exchange(first as *mut c_void, found, Ordering::AcqRel, Ordering::Relaxed);
                }
                // SAFETY: the arguments go on as they came.
                unsafe { real::$name($($arg),*) }
            }
            first as *mut c_void
        });
    };
    (@goal $($rest:tt)*) => {};
    (@enter often $name:ident) => { goal::$name.store(ours::$name as *mut c_void, Ordering::Release); };
    (@enter $how:ident $name:ident) => {};
    (@text $name:ident) => {
        match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
            Ok(name) => name,
            Err(_) => c"",
        }
    };
    (@is passed) => { false };
    (@is $how:ident) => { true };
}

use crate::real;
use crate::types::*;
use core::ffi::{CStr, c_char, c_int, c_long, c_uchar, c_uint, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};
use libc::{FILE, addrinfo};

/// Our functions that are called for each packet.
mod ours {
    pub use crate::activate::{pcap_fileno, pcap_get_selectable_fd};
    pub use crate::calls::{pcap_dispatch, pcap_next, pcap_next_ex};
}

symbols!(entries);
