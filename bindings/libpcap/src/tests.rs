//! Our reading against libpcap's own, call by call, in one process.

use crate::types::*;
use crate::{calls, handles, real};
use core::ffi::{CStr, c_char, c_int, c_uchar};
use core::ptr::{null, null_mut};
use std::ffi::CString;
use std::os::fd::AsRawFd;
use weir_testkit::{Random, captures, nameless};

type Open = unsafe extern "C-unwind" fn(*const c_char, u32, *mut c_char) -> *mut Pcap;
type Read = unsafe extern "C-unwind" fn(*mut Pcap, c_int, Handler, *mut c_uchar) -> c_int;

/// One of the two implementations.
struct Functions {
    open: Open,
    close: unsafe extern "C-unwind" fn(*mut Pcap),
    dispatch: Read,
    run: Read,
    next: unsafe extern "C-unwind" fn(*mut Pcap, *mut Header) -> *const c_uchar,
    next_ex: unsafe extern "C-unwind" fn(*mut Pcap, *mut *mut Header, *mut *const c_uchar) -> c_int,
    set_filter: unsafe extern "C-unwind" fn(*mut Pcap, *mut Program) -> c_int,
    break_loop: unsafe extern "C-unwind" fn(*mut Pcap),
    file: unsafe extern "C-unwind" fn(*mut Pcap) -> *mut libc::FILE,
}

const OURS: Functions = Functions {
    open: calls::pcap_open_offline_with_tstamp_precision,
    close: calls::pcap_close,
    dispatch: calls::pcap_dispatch,
    run: calls::pcap_loop,
    next: calls::pcap_next,
    next_ex: calls::pcap_next_ex,
    set_filter: calls::pcap_setfilter,
    break_loop: calls::pcap_breakloop,
    file: calls::pcap_file,
};

/// Functions of libpcap with the type that the table gives them.
macro_rules! theirs {
    ($($field:ident: $name:ident($($arg:ident: $type:ty),*) $(-> $result:ty)?,)*) => {{
        $(unsafe extern "C-unwind" fn $field($($arg: $type),*) $(-> $result)? {
            // SAFETY: the arguments go on.
            unsafe { real::$name($($arg),*) }
        })*
        Functions { $($field),* }
    }};
}

const THEIRS: Functions = theirs! {
    open: pcap_open_offline_with_tstamp_precision(name: *const c_char, precision: u32, error: *mut c_char) -> *mut Pcap,
    close: pcap_close(p: *mut Pcap),
    dispatch: pcap_dispatch(p: *mut Pcap, count: c_int, callback: Handler, user: *mut c_uchar) -> c_int,
    run: pcap_loop(p: *mut Pcap, count: c_int, callback: Handler, user: *mut c_uchar) -> c_int,
    next: pcap_next(p: *mut Pcap, header: *mut Header) -> *const c_uchar,
    next_ex: pcap_next_ex(p: *mut Pcap, header: *mut *mut Header, data: *mut *const c_uchar) -> c_int,
    set_filter: pcap_setfilter(p: *mut Pcap, program: *mut Program) -> c_int,
    break_loop: pcap_breakloop(p: *mut Pcap),
    file: pcap_file(p: *mut Pcap) -> *mut libc::FILE,
};

/// Packets and results of a program, in order.
#[derive(Default)]
struct Seen {
    events: Vec<String>,
    /// The callback acts at this packet of a call.
    act_at: usize,
    action: u32,
    packets: usize,
}

struct User {
    seen: Seen,
    /// The handle.
    p: *mut Pcap,
    functions: &'static Functions,
    expression: &'static CStr,
}

fn packet(header: &Header, data: *const c_uchar) -> String {
    // SAFETY: libpcap gives as many bytes as the header says.
    let data = unsafe { core::slice::from_raw_parts(data, header.captured as usize) };
    let sum = data
        .iter()
        .fold(0u64, |sum, &byte| sum.wrapping_mul(31) + u64::from(byte));
    let time = header.time;
    format!(
        "{}.{} {} {} {sum:x}",
        time.tv_sec, time.tv_usec, header.captured, header.wire_len
    )
}

unsafe extern "C-unwind" fn take(user: *mut c_uchar, header: *const Header, data: *const c_uchar) {
    // SAFETY: the pointers are those of this call.
    let (user, header) = unsafe { (&mut *user.cast::<User>(), &*header) };
    user.seen.events.push(packet(header, data));
    user.seen.packets += 1;
    if user.seen.packets == user.seen.act_at {
        match user.seen.action {
            // SAFETY: the handle is open.
            0 => unsafe { (user.functions.break_loop)(user.p) },
            1 => user.filter(),
            _ => user.note_position(),
        }
    }
}

impl User {
    fn filter(&mut self) {
        let mut program = Program {
            len: 0,
            insns: null_mut(),
        };
        // SAFETY: the handle is open, and the pointers lead to variables.
        let result = unsafe {
            if real::pcap_compile(self.p, &mut program, self.expression.as_ptr(), 1, 0) != 0 {
                return;
            }
            let result = (self.functions.set_filter)(self.p, &mut program);
            real::pcap_freecode(&mut program);
            result
        };
        self.seen.events.push(format!("filter {result}"));
    }

    fn note_position(&mut self) {
        // SAFETY: the handle is open.
        let at = unsafe { libc::ftello((self.functions.file)(self.p)) };
        self.seen.events.push(format!("at {at}"));
    }

    /// Makes one call, and notes its result and text.
    fn call(&mut self, random: &mut Random) {
        self.seen.packets = 0;
        self.seen.act_at = random.below(40);
        self.seen.action = random.below(12) as u32;
        let count = [-1, 0, 1, 2, 7, 31, 32, 33, 100][random.below(9)];
        let kind = random.below(12);
        let (p, functions) = (self.p, self.functions);
        let user = (&raw mut *self).cast();
        // SAFETY: the handle is open, and the pointers lead to variables.
        let result = unsafe {
            match kind {
                0 | 1 => (functions.dispatch)(p, count, take, user),
                2 => (functions.run)(p, count, take, user),
                3 | 4 => {
                    let mut header = core::mem::zeroed();
                    let data = (functions.next)(p, &mut header);
                    if !data.is_null() {
                        self.seen.events.push(packet(&header, data));
                    }
                    0
                }
                5 => {
                    (functions.break_loop)(p);
                    0
                }
                6 => {
                    self.filter();
                    0
                }
                _ => {
                    let (mut header, mut data) = (null_mut(), null());
                    let result = (functions.next_ex)(p, &mut header, &mut data);
                    if result == 1 {
                        self.seen.events.push(packet(&*header, data));
                    }
                    result
                }
            }
        };
        // SAFETY: the text ends with a 0.
        let text = unsafe { CStr::from_ptr(real::pcap_geterr(p)) };
        self.seen
            .events
            .push(format!("{kind} {count} -> {result} {text:?}"));
    }
}

/// Events of a program that makes random calls, and whether this library read the file.
fn seen(name: &CStr, seed: u64, functions: &'static Functions) -> (Vec<String>, bool) {
    let mut random = Random(seed);
    let expressions = [
        c"tcp",
        c"udp port 53",
        c"ip and greater 100",
        c"",
        c"not ip",
    ];
    let mut error = [0 as c_char; 256];
    let precision = random.below(2) as u32;
    // SAFETY: the pointers lead to variables.
    let p = unsafe { (functions.open)(name.as_ptr(), precision, error.as_mut_ptr()) };
    if p.is_null() {
        // SAFETY: libpcap has put a text there.
        let text = unsafe { CStr::from_ptr(error.as_ptr()) };
        return (vec![format!("{text:?}")], false);
    }
    let is_ours = !handles::find(p).is_null();
    let mut user = User {
        seen: Seen::default(),
        p,
        functions,
        expression: expressions[random.below(5)],
    };
    for _ in 0..60 {
        user.call(&mut random);
    }
    // SAFETY: the handle is open.
    unsafe { (functions.close)(p) };
    (user.seen.events, is_ours)
}

/// Compares what a program sees of the bytes of a file; returns whether this library read it.
fn compare(bytes: &[u8], seed: u64) -> bool {
    let file = nameless(bytes);
    let name = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
    let (theirs, _) = seen(&name, seed, &THEIRS);
    let (ours, is_ours) = seen(&name, seed, &OURS);
    if let Some(at) = theirs.iter().zip(&ours).position(|(a, b)| a != b) {
        let before = at.saturating_sub(6);
        panic!(
            "seed {seed}: {:#?} but {:#?}",
            &theirs[before..=at],
            ours[at]
        );
    }
    assert_eq!(theirs.len(), ours.len(), "seed {seed}");
    is_ours
}

/// The same with damage: bytes that are changed, or cut off.
fn compare_damaged(bytes: &[u8], seed: u64) {
    let mut random = Random(seed);
    let mut bytes = bytes.to_vec();
    if random.below(3) == 0 {
        bytes.truncate(random.below(bytes.len()));
    }
    for _ in 0..random.below(4) {
        if !bytes.is_empty() {
            let at = random.below(bytes.len());
            bytes[at] = random.below(256) as u8;
        }
    }
    compare(&bytes, seed);
}

#[test]
fn calls_see_what_libpcap_shows() {
    let captures = captures("calls_see_what_libpcap_shows");
    let mut ours = 0;
    for path in &captures {
        let bytes = std::fs::read(path).unwrap();
        let bytes = &bytes[..bytes.len().min(200_000)];
        ours += u32::from(compare(bytes, 1));
        for seed in 2..12 {
            compare(bytes, seed);
            compare_damaged(bytes, seed);
        }
    }
    assert!(
        captures.is_empty() || ours > captures.len() as u32 / 2,
        "{ours} are read here"
    );
}
