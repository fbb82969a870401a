//! The program's own libpcap, to which everything goes that is not ours.

use crate::symbols::symbols;
use crate::types::*;
use core::ffi::{CStr, c_char, c_int, c_long, c_uchar, c_uint, c_void};
use core::ptr::{null, null_mut};
use core::sync::atomic::{AtomicPtr, Ordering};
use libc::{FILE, addrinfo};

/// Address of a function of the program's libpcap; null if no library has it. A line on standard error then names it.
#[cold]
fn look_up(name: &CStr) -> *mut c_void {
    let address = find(name);
    if address.is_null() {
        complain(name);
    }
    address
}

/// Address of a symbol in the next library in the loader's order. If there is none: in a libpcap that is loaded for a part of the
/// program only, as extension modules of Python are. Else in the system's libpcap.
pub fn find(name: &CStr) -> *mut c_void {
    // SAFETY: the name ends with a 0. What comes next in the loader's order is never this library.
    let next = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    if !next.is_null() {
        return next;
    }
    let library = library();
    if library.is_null() {
        return null_mut();
    }
    // SAFETY: the library was opened and is never closed.
    unsafe { libc::dlsym(library, name.as_ptr()) }
}

/// Whether the process has never had a second thread, as glibc 2.32 and later know. **Source**: sys/single_threaded.h.
#[inline]
pub fn has_one_thread() -> bool {
    /// Stands for glibc's variable where there is none.
    static UNKNOWN: u8 = 0;
    static FLAG: AtomicPtr<u8> = AtomicPtr::new(null_mut());
    let mut flag = FLAG.load(Ordering::Relaxed);
    if flag.is_null() {
        flag = find(c"__libc_single_threaded").cast();
        if flag.is_null() {
            flag = (&raw const UNKNOWN).cast_mut();
        }
        FLAG.store(flag, Ordering::Relaxed);
    }
    // SAFETY: the address is that of a variable of glibc or of this function. Only this thread could start another.
    unsafe { *flag != 0 }
}

/// Directories of libpcap, if this library has its name.
const DIRECTORIES: [&str; 7] = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/lib64",
    "/lib",
    "/usr/local/lib",
];

/// Names of libpcap, in Debian and elsewhere.
const NAMES: [&str; 2] = ["libpcap.so.0.8", "libpcap.so.1"];

/// A libpcap that is not in the loader's order; null if there is none.
fn library() -> *mut c_void {
    static LIBRARY: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
    let known = LIBRARY.load(Ordering::Acquire);
    if !known.is_null() {
        return known;
    }
    let mut found: *mut c_void = null_mut();
    // SAFETY: the function gets a pointer to `found`, which lives through the call.
    unsafe { libc::dl_iterate_phdr(Some(open_libpcap), (&raw mut found).cast()) };
    // This library may itself be the libpcap of the program: then only a path leads to the other one.
    let paths = DIRECTORIES
        .iter()
        .flat_map(|directory| NAMES.map(|name| format!("{directory}/{name}\0")));
    for path in paths.chain(NAMES.map(|name| format!("{name}\0"))) {
        if found.is_null() {
            found = open(&path);
        }
    }
    LIBRARY.store(found, Ordering::Release);
    found
}

/// Opens a library by a text that ends with a 0; null if it is this one.
fn open(path: &str) -> *mut c_void {
    // SAFETY: the path ends with a 0. libpcap has no constructors.
    unsafe {
        let library = libc::dlopen(path.as_ptr().cast(), libc::RTLD_LAZY);
        if library.is_null() {
            return null_mut();
        }
        let close = libc::dlsym(library, c"pcap_close".as_ptr());
        if close.is_null() || is_ours(close) {
            libc::dlclose(library);
            return null_mut();
        }
        library
    }
}

/// Whether an address lies in this library.
fn is_ours(address: *const c_void) -> bool {
    let base = |address: *const c_void| {
        let mut info = core::mem::MaybeUninit::<libc::Dl_info>::zeroed();
        // SAFETY: the loader fills a variable, for which all zeros are valid.
        unsafe {
            libc::dladdr(address, info.as_mut_ptr());
            info.assume_init().dli_fbase
        }
    };
    base(address) == base((is_ours as fn(*const c_void) -> bool) as *const c_void)
}

/// Opens a loaded library named libpcap that is not this one, and stops the search.
///
/// # Safety
/// `info` describes a loaded object, and `found` leads to a pointer.
unsafe extern "C" fn open_libpcap(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    found: *mut c_void,
) -> c_int {
    // SAFETY: the loader's description, which names its object.
    let path = unsafe { (*info).dlpi_name };
    if path.is_null() {
        return 0;
    }
    // SAFETY: the loader's names end with a 0.
    let text = unsafe { CStr::from_ptr(path) };
    let name = text.to_bytes().rsplit(|byte| *byte == b'/').next();
    if !name.unwrap_or_default().starts_with(b"libpcap") {
        return 0;
    }
    let library = text
        .to_str()
        .map_or(null_mut(), |text| open(&format!("{text}\0")));
    // SAFETY: `found` leads to the caller's pointer.
    unsafe { *found.cast::<*mut c_void>() = library };
    c_int::from(!library.is_null())
}

/// Prints on standard error that no library has a function. **Cost**: no allocation.
fn complain(name: &CStr) {
    let parts = [
        b"weir: the libpcap of this program has no ".as_slice(),
        name.to_bytes(),
        b"; the call fails. Install libpcap 1.10 or later.\n",
    ];
    for part in parts {
        // SAFETY: the bytes live through the call.
        unsafe { libc::write(2, part.as_ptr().cast(), part.len()) };
    }
}

/// Result of a function that no library has: libpcap's for a failure.
trait Refused {
    const REFUSED: Self;
}

impl Refused for () {
    const REFUSED: Self = ();
}

impl Refused for c_int {
    const REFUSED: Self = -1;
}

impl Refused for c_uint {
    const REFUSED: Self = 0;
}

impl Refused for i64 {
    const REFUSED: Self = -1;
}

impl<T> Refused for *mut T {
    const REFUSED: Self = null_mut();
}

impl<T> Refused for *const T {
    const REFUSED: Self = null();
}

/// Makes a caller of the program's libpcap for each function. **Cost**: a jump, after a look-up at the first call.
macro_rules! callers {
    ($($how:ident $name:ident($($arg:ident: $type:ty),*) $(-> $result:ty)?;)*) => {
        $(
            /// The function of the program's own libpcap.
            ///
            /// # Safety
            /// As libpcap documents it.
            #[allow(dead_code, reason = "some functions are replaced as a whole")]
            #[inline]
            pub unsafe fn $name($($arg: $type),*) $(-> $result)? {
                type Function = unsafe extern "C-unwind" fn($($type),*) $(-> $result)?;
                // One address for all threads: what each finds is the same.
                static ADDRESS: AtomicPtr<c_void> = AtomicPtr::new(first as *mut c_void);
                /// Looks the function up, and calls it.
                unsafe extern "C-unwind" fn first($($arg: $type),*) $(-> $result)? {
                    let Ok(name) = CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) else {
                        return Refused::REFUSED;
                    };
                    let address = look_up(name);
                    if address.is_null() {
                        return Refused::REFUSED;
                    }
                    ADDRESS.store(address, Ordering::Release);
                    // SAFETY: as below.
                    unsafe { core::mem::transmute::<*mut c_void, Function>(address)($($arg),*) }
                }
                let address = ADDRESS.load(Ordering::Acquire);
                // SAFETY: the address is that of `first`, or of the function with this name, whose type pcap/pcap.h gives. The caller
                // keeps to its documentation.
                unsafe { core::mem::transmute::<*mut c_void, Function>(address)($($arg),*) }
            }
        )*
    };
}

symbols!(callers);
