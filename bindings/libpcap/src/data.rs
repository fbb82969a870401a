//! The two variables that libpcap exports.

use crate::types::Entry;
use core::cell::UnsafeCell;
use core::ffi::{CStr, c_int, c_void};
use core::ptr::null;

/// A variable of the program, as C knows it: anybody may write to it, and nobody in this library reads it.
#[repr(transparent)]
pub struct Variable<T>(UnsafeCell<T>);

// SAFETY: this library writes once, in its constructor, before the program runs.
unsafe impl<T> Sync for Variable<T> {}

/// Version of libpcap.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "libpcap's name")]
pub static pcap_version: Variable<[u8; 7]> = Variable(UnsafeCell::new(*b"1.10.3\0"));

const fn entry(name: &'static CStr, number: u16) -> Entry {
    Entry {
        name: name.as_ptr(),
        number,
    }
}

/// Names of Ethernet protocols. libpcap itself reads this variable, and finds ours.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "libpcap's name")]
pub static eproto_db: Variable<[Entry; 13]> = Variable(UnsafeCell::new([
    entry(c"aarp", 0x80f3),
    entry(c"arp", 0x0806),
    entry(c"atalk", 0x809b),
    entry(c"decnet", 0x6003),
    entry(c"ip", 0x0800),
    entry(c"ip6", 0x86dd),
    entry(c"lat", 0x6004),
    entry(c"loopback", 0x9000),
    entry(c"mopdl", 0x6001),
    entry(c"moprc", 0x6002),
    entry(c"rarp", 0x8035),
    entry(c"sca", 0x6007),
    Entry {
        name: null(),
        number: 0,
    },
]));

/// Runs when the library is loaded.
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = construct;

/// Runs when the program ends by `exit`, or by returning from `main`.
#[used]
#[unsafe(link_section = ".fini_array")]
static DESTRUCTOR: extern "C" fn() = destruct;

extern "C" fn destruct() {
    // SAFETY: the program ends. A panic would be a fault of this library.
    let _ = std::panic::catch_unwind(|| unsafe { crate::handles::finish_all() });
}

extern "C" fn construct() {
    copy(c"pcap_version", pcap_version.0.get().cast(), 7);
    copy(
        c"eproto_db",
        eproto_db.0.get().cast(),
        size_of::<[Entry; 13]>(),
    );
}

/// Copies a variable of the program's own libpcap to ours, if it has the same size there.
fn copy(name: &CStr, to: *mut c_void, size: usize) {
    // SAFETY: the name ends with a 0.
    let from = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    if !from.is_null() && size_of_symbol(from) == size {
        // SAFETY: both have this many bytes, and no other code of the program runs yet.
        unsafe { core::ptr::copy(from.cast::<u8>(), to.cast(), size) };
    }
}

/// Size that the symbol table of a library has for the variable at `address`; 0 if unknown.
fn size_of_symbol(address: *const c_void) -> usize {
    /// `RTLD_DL_SYMENT` of dlfcn.h.
    const SYMBOL_ENTRY: c_int = 1;
    unsafe extern "C" {
        fn dladdr1(
            address: *const c_void,
            info: *mut libc::Dl_info,
            extra: *mut *mut c_void,
            flags: c_int,
        ) -> c_int;
    }
    let mut info = core::mem::MaybeUninit::<libc::Dl_info>::uninit();
    let mut symbol = core::ptr::null_mut();
    // SAFETY: the pointers lead to variables; the entry lies in the loaded library.
    unsafe {
        let found = dladdr1(address, info.as_mut_ptr(), &raw mut symbol, SYMBOL_ENTRY);
        if found == 0 || symbol.is_null() {
            return 0;
        }
        (*symbol.cast::<libc::Elf64_Sym>()).st_size as usize
    }
}
