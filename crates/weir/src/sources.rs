//! Names of sources: their checks, and messages about them.

use crate::capture::{AF_PACKET, is_file_and_interface};
use crate::outcome::say;
use crate::walls;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use weir_engine::name::Name;
use weir_engine::session::Follow;
use weir_io::follow::{Change, Followed};
use weir_io::sys::Access;
use weir_io::sys::packet_socket::ANY;
pub use weir_messages::absent::{Takes, absent, absent_line};
use weir_messages::sources;
pub use weir_messages::sources::{check, check_cpus, check_names, check_schemes, check_sort};

/// Message on a file that cannot be opened.
pub fn failed_line(name: &Name, error: &io::Error) -> String {
    sources::failed_line(name, error, walls::advice(Path::new(name), Access::Read))
}

/// Whether a file begins as a capture does, plain or compressed.
pub fn is_capture(name: &Name) -> bool {
    let mut bytes = [0; 4];
    let read = std::fs::File::open(name).and_then(|mut file| file.read_exact(&mut bytes));
    let magic = u32::from_be_bytes(bytes);
    // pcap (microseconds and nanoseconds, both byte orders), pcapng, zstd, lz4; gzip has two bytes.
    let known = [
        0xa1b2_c3d4,
        0xd4c3_b2a1,
        0xa1b2_3c4d,
        0x4d3c_b2a1,
        0x0a0d_0d0a,
        0x28b5_2ffd,
        0x0422_4d18,
    ];
    read.is_ok() && (known.contains(&magic) || magic >> 16 == 0x1f8b)
}

/// Function that follows the files of a name: see [`followed`].
pub fn follow(stop: &Arc<AtomicBool>) -> Follow {
    let stop = Arc::clone(stop);
    Box::new(move |name| followed(name, &stop))
}

/// Follows the files of a name, and reports on standard error when the file is truncated, replaced or removed.
fn followed(name: &Name, stop: &Arc<AtomicBool>) -> Followed {
    let called = name.as_source();
    let tell = move |change| {
        let words = match change {
            Change::Truncated => "the file was truncated; what is in it now is read from its start",
            Change::Replaced => {
                "another file has the name now, and is read from its start; the old one was read to its end"
            }
            Change::Removed => "the file was removed; waiting for another one of its name",
            Change::Appeared => "a file of the name is there again, and is read from its start",
        };
        say(&format!("{called}: {words}"));
    };
    Followed::new(name, Arc::new(tell), stop)
}

/// Reports that the file is read, if a file and an interface have the same name.
pub fn say_namesakes(sources: &[Name]) {
    for (i, name) in sources.iter().enumerate() {
        if is_file_and_interface(name) && !sources[..i].contains(name) {
            let other = if name.utf8() == ANY {
                "all interfaces"
            } else {
                "the interface"
            };
            say(&format!(
                "{name}: the file ./{name} is read; to capture from {other}, name {AF_PACKET}{name}"
            ));
        }
    }
}
