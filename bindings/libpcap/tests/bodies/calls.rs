//! Any calls of a program on any savefile.
//!
//! ```text
//! input    options  number of calls  call * number  bytes of the file
//! options  bit 0: nanoseconds   1..7: expression of the filter
//! call     kind, number of packets, and at which packet the callback does what
//! ```
//! **Oracle**: the program's own libpcap, in the same process: packets, results, texts of errors, positions of the file and written files
//! are equal.

use super::lib::types::*;
use super::lib::{calls, handles, outputs, real};
use core::ffi::{CStr, c_char, c_int, c_uchar};
use core::ptr::{null, null_mut};
use std::ffi::CString;
use std::fs::File;
use std::io::Read as _;
use std::os::fd::AsRawFd;
use weir_testkit::{Input, nameless};

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
    dump: Handler,
    dump_open: unsafe extern "C-unwind" fn(*mut Pcap, *const c_char) -> *mut Dumper,
    dump_close: unsafe extern "C-unwind" fn(*mut Dumper),
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
    dump: calls::dump_unlocked,
    dump_open: outputs::pcap_dump_open,
    dump_close: outputs::pcap_dump_close,
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
    dump: pcap_dump(user: *mut c_uchar, header: *const Header, data: *const c_uchar),
    dump_open: pcap_dump_open(p: *mut Pcap, name: *const c_char) -> *mut Dumper,
    dump_close: pcap_dump_close(dumper: *mut Dumper),
};

/// Packets and results of a program, in order.
#[derive(Default)]
struct Seen {
    events: Vec<String>,
    /// The callback acts at this packet of a call.
    act_at: usize,
    action: u8,
    packets: usize,
}

struct User {
    seen: Seen,
    /// The handle.
    p: *mut Pcap,
    functions: &'static Functions,
    expression: &'static CStr,
    /// An output of packets, and its bytes.
    output: Option<(*mut Dumper, File)>,
}

fn sum(data: &[u8]) -> u64 {
    data.iter()
        .fold(0, |sum, &byte| sum.wrapping_mul(31) + u64::from(byte))
}

unsafe extern "C-unwind" fn take(user: *mut c_uchar, header: *const Header, data: *const c_uchar) {
    // SAFETY: the pointers are those of this call.
    let (user, header) = unsafe { (&mut *user.cast::<User>(), &*header) };
    user.packet(header, data);
    user.seen.packets += 1;
    if user.seen.packets == user.seen.act_at {
        match user.seen.action {
            // SAFETY: the handle is open.
            0 => unsafe { (user.functions.break_loop)(user.p) },
            1 => user.filter(),
            2 => user.note_position(),
            _ => {}
        }
    }
}

impl User {
    fn packet(&mut self, header: &Header, data: *const c_uchar) {
        if let Some((dumper, _)) = &self.output {
            // SAFETY: the dumper is open, and header and data are a packet.
            unsafe { (self.functions.dump)(dumper.cast(), header, data) };
        }
        // SAFETY: libpcap gives as many bytes as the header says.
        let data = unsafe { core::slice::from_raw_parts(data, header.captured as usize) };
        let (time, sum) = (header.time, sum(data));
        self.seen.events.push(format!(
            "{}.{} {} {} {sum:x}",
            time.tv_sec, time.tv_usec, header.captured, header.wire_len
        ));
    }

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

    /// Moves the file, as programs do that look for a packet.
    fn seek(&mut self, by: u8) {
        // SAFETY: the handle is open.
        let result =
            unsafe { libc::fseeko((self.functions.file)(self.p), by.into(), libc::SEEK_CUR) };
        self.seen.events.push(format!("seek {result}"));
    }

    /// Opens the output; notes its position if it is open.
    fn dump(&mut self) {
        let Some((dumper, _)) = self.output else {
            let file = nameless(b"");
            // SAFETY: the handle is open, and the name ends with a 0.
            let dumper = unsafe { (self.functions.dump_open)(self.p, name_of(&file).as_ptr()) };
            if !dumper.is_null() {
                self.output = Some((dumper, file));
            } else {
                // The text of the error has the name of the file, which differs.
                // SAFETY: the handle is open.
                unsafe { real::pcap_geterr(self.p).write(0) };
            }
            return;
        };
        // SAFETY: the dumper is open.
        let (at, result) = unsafe {
            (
                real::pcap_dump_ftell64(dumper),
                real::pcap_dump_flush(dumper),
            )
        };
        self.seen.events.push(format!("dumped {at} {result}"));
    }

    /// Closes the output and the handle.
    fn close(mut self) -> Vec<String> {
        // SAFETY: both are open.
        unsafe {
            if let Some((dumper, mut file)) = self.output.take() {
                (self.functions.dump_close)(dumper);
                let mut bytes = Vec::new();
                file.read_to_end(&mut bytes).expect("it is a file");
                let (len, sum) = (bytes.len(), sum(&bytes));
                self.seen.events.push(format!("{len} dumped, {sum:x}"));
            }
            (self.functions.close)(self.p);
        }
        self.seen.events
    }

    /// Makes one call, and notes its result and text.
    fn call(&mut self, input: &mut Input<'_>) {
        let kind = input.below(14);
        let number = input.byte();
        let act = input.byte();
        self.seen.packets = 0;
        (self.seen.act_at, self.seen.action) = (usize::from(act / 6), act % 6);
        let count = [-1, 0, 1, 2, 7, 31, 32, 33, 100][usize::from(number) % 9];
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
                        self.packet(&header, data);
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
                7 => {
                    self.dump();
                    0
                }
                8 if number.is_multiple_of(8) => {
                    self.seek(number / 8);
                    0
                }
                _ => {
                    let (mut header, mut data) = (null_mut(), null());
                    let result = (functions.next_ex)(p, &mut header, &mut data);
                    if result == 1 {
                        self.packet(&*header, data);
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

/// Name by which a file without a name can be opened.
fn name_of(file: &File) -> CString {
    CString::new(format!("/proc/self/fd/{}", file.as_raw_fd())).expect("a number has no 0")
}

/// Events of the program, and whether this library read the file.
fn seen(
    name: &CStr,
    options: u8,
    calls: &[u8],
    functions: &'static Functions,
) -> (Vec<String>, bool) {
    let expressions = [
        c"tcp",
        c"udp port 53",
        c"ip and greater 100",
        c"",
        c"not ip",
    ];
    let mut error = [0 as c_char; 256];
    // SAFETY: the pointers lead to variables.
    let p = unsafe { (functions.open)(name.as_ptr(), (options & 1).into(), error.as_mut_ptr()) };
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
        expression: expressions[usize::from(options / 2) % expressions.len()],
        output: None,
    };
    let mut input = Input(calls);
    while !input.0.is_empty() {
        user.call(&mut input);
    }
    (user.close(), is_ours)
}

/// Compares what a program sees of a file with and without this library; returns whether this library read the file.
pub fn calls(data: &[u8]) -> bool {
    let mut input = Input(data);
    let (options, count) = (input.byte(), input.below(64) * 3);
    let (calls, bytes) = input.0.split_at(count.min(input.0.len()));
    let file = nameless(bytes);
    let (theirs, _) = seen(&name_of(&file), options, calls, &THEIRS);
    let (ours, is_ours) = seen(&name_of(&file), options, calls, &OURS);
    if let Some(at) = theirs.iter().zip(&ours).position(|(a, b)| a != b) {
        let before = at.saturating_sub(6);
        panic!("{:#?} but {:#?}", &theirs[before..=at], ours[at]);
    }
    assert_eq!(theirs.len(), ours.len());
    is_ours
}
