//! Settings of captures: variables of the environment.
//!
//! A wrong value is one line on standard error, and the usual value is taken.

use std::ffi::OsString;
use std::fmt::Display;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::str::FromStr;
use weir_memory::Policy;

/// How weir captures: `af_packet` or `af_xdp`.
pub const BACKEND: &str = "WEIR_BACKEND";
/// Size of weir's ring.
pub const RING: &str = "WEIR_RING";
/// Kind of pages of AF_XDP's memory.
pub const PAGES: &str = "WEIR_PAGES";
/// Number of the group of programs that share the packets of an interface.
pub const FANOUT: &str = "WEIR_FANOUT";
/// Directory for a record of the packets.
pub const RECORD: &str = "WEIR_RECORD";
/// File for the counts.
pub const STATS: &str = "WEIR_STATS";
/// `1`: `pcap_compile` makes right programs where libpcap's optimizer makes wrong ones.
pub const EXACT: &str = "WEIR_EXACT";
/// Interfaces whose packets may be taken away although this host needs them, separated by commas.
pub const YES_TAKE: &str = "WEIR_YES_TAKE";

/// Variables of which each makes weir capture.
const ASKING: [&str; 6] = [BACKEND, RING, PAGES, FANOUT, RECORD, STATS];

/// Size of the ring, bytes, if none is set.
const USUAL_RING: usize = 32 << 20;

/// Method of capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// A ring of AF_PACKET.
    #[default]
    AfPacket,
    /// Sockets of AF_XDP, one for each queue.
    AfXdp,
}

impl Backend {
    /// Name of the method, as typed.
    pub fn name(self) -> &'static str {
        match self {
            Self::AfPacket => "af_packet",
            Self::AfXdp => "af_xdp",
        }
    }
}

/// Settings of a capture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Method of capture.
    pub backend: Backend,
    /// Size of the ring, bytes; of AF_XDP for each queue.
    pub ring: usize,
    /// Wanted kind of pages.
    pub pages: Option<Policy>,
    /// Number of a fanout group.
    pub fanout: Option<u16>,
    /// Directory for a record.
    pub record: Option<PathBuf>,
    /// File for the counts.
    pub stats: Option<PathBuf>,
    /// Interfaces whose packets may be taken away from this host.
    pub yes_take: Vec<String>,
}

/// Prints a line on standard error.
pub fn say(line: &str) {
    let line = format!("weir: {line}\n");
    // SAFETY: the bytes live through the call.
    unsafe { libc::write(2, line.as_ptr().cast(), line.len()) };
}

/// Settings of programs with more rights than their callers: `NAME=VALUE` lines. Root alone may write to the file.
pub const FILE: &str = "/etc/weir/libpcap.conf";

/// A variable that is set and not empty. The environment of a program with more rights than its caller does not count (AT_SECURE);
/// the program has the settings of [`FILE`].
pub fn variable(name: &str) -> Option<OsString> {
    let value = match is_secure() {
        true => line_of(&administrators()?, name).map(OsString::from),
        false => std::env::var_os(name),
    };
    value.filter(|value| !value.is_empty())
}

/// Whether the process has more rights than its caller. **Source**: getauxval(3).
fn is_secure() -> bool {
    // SAFETY: the call has no pointers.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Text of the file with settings; `None` if another user than root could have written it.
fn administrators() -> Option<String> {
    /// Largest file, bytes.
    const MOST: u64 = 64 << 10;
    let file = File::options()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(FILE)
        .ok()?;
    let about = file.metadata().ok()?;
    let is_roots = about.is_file() && about.uid() == 0 && about.mode() & 0o022 == 0;
    if !is_roots {
        say(&format!(
            "{FILE}: only a file of root that nobody else may write to is read"
        ));
        return None;
    }
    let mut text = String::new();
    file.take(MOST).read_to_string(&mut text).ok()?;
    Some(text)
}

/// Value of a name in lines of `NAME=VALUE`, the last if there are several.
fn line_of<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let value = |line: &'a str| {
        let (key, value) = line.split_once('=')?;
        (key.trim() == name).then(|| value.trim())
    };
    text.lines().filter_map(value).next_back()
}

/// Whether weir captures.
pub fn is_capture_set() -> bool {
    ASKING.iter().any(|name| variable(name).is_some())
}

/// Whether programs of `pcap_compile` are to be right.
pub fn is_exact() -> bool {
    let is_one = |text: &str| match text {
        "1" => Ok(true),
        "0" => Ok(false),
        _ => Err("0 or 1".to_owned()),
    };
    value(EXACT, "0", is_one).unwrap_or(false)
}

/// The settings; `None` if libpcap captures.
pub fn read() -> Option<Settings> {
    if !is_capture_set() {
        return None;
    }
    Some(Settings {
        backend: value(BACKEND, "af_packet", backend).unwrap_or_default(),
        ring: value(RING, "32M", ring).unwrap_or(USUAL_RING),
        pages: value(PAGES, "auto", |text| {
            Policy::from_str(text).map_err(|_| {
                let names: Vec<_> = Policy::ALL.iter().map(|(_, name)| *name).collect();
                format!("one of {}", names.join(", "))
            })
        }),
        fanout: value(FANOUT, "no group", |text| {
            let number = text.parse().ok().filter(|number| *number > 0);
            number.ok_or_else(|| "the number of a group, from 1 to 65535".to_owned())
        }),
        record: variable(RECORD).map(PathBuf::from),
        stats: variable(STATS).map(PathBuf::from),
        yes_take: variable(YES_TAKE)
            .map(|names| {
                names
                    .to_string_lossy()
                    .split(',')
                    .map(str::to_owned)
                    .collect()
            })
            .unwrap_or_default(),
    })
}

/// Value of a variable; `None` if it is not set or wrong.
fn value<T>(name: &str, usual: &str, parse: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
    let text = variable(name)?;
    let wrong = |wanted: &dyn Display| {
        say(&format!(
            "{name}={} is not {wanted}: {usual} is taken",
            text.display()
        ));
    };
    let parsed = text.to_str().map(parse);
    match parsed {
        Some(Ok(value)) => Some(value),
        Some(Err(wanted)) => {
            wrong(&wanted);
            None
        }
        None => {
            wrong(&"text");
            None
        }
    }
}

fn backend(text: &str) -> Result<Backend, String> {
    match text {
        "af_packet" => Ok(Backend::AfPacket),
        "af_xdp" => Ok(Backend::AfXdp),
        "dpdk" => Err("possible in a program of libpcap, only in weir itself".to_owned()),
        _ => Err("af_packet or af_xdp".to_owned()),
    }
}

/// Bytes of a size such as `256M`; from 1 MiB to 1 GiB.
fn ring(text: &str) -> Result<usize, String> {
    let digits = text.trim_end_matches(['K', 'M', 'G']);
    let unit = match &text[digits.len()..] {
        "" => Some(1),
        "K" => Some(1 << 10),
        "M" => Some(1 << 20),
        "G" => Some(1 << 30),
        _ => None,
    };
    let count = digits.parse::<usize>().ok();
    unit.zip(count)
        .and_then(|(unit, count)| count.checked_mul(unit))
        .filter(|bytes| (1 << 20..=1 << 30).contains(bytes))
        .ok_or_else(|| "a size from 1M to 1G, such as 256M".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_name_settings() {
        let text = "# WEIR_RING=1M\n\nWEIR_RING = 8M\nWEIR_RINGS=2M\nWEIR_STATS=\nno line\n WEIR_RING=64M \n";
        assert_eq!(line_of(text, "WEIR_RING"), Some("64M"));
        assert_eq!(line_of(text, "WEIR_STATS"), Some(""));
        assert_eq!(line_of(text, "WEIR_EXACT"), None);
    }

    #[test]
    fn sizes_have_units_and_bounds() {
        let sizes = [
            ("1M", Some(1 << 20)),
            ("1024K", Some(1 << 20)),
            ("1048576", Some(1 << 20)),
            ("1G", Some(1 << 30)),
            ("1048575", None),
            ("2G", None),
            ("99999999999999999999M", None),
            ("18446744073709551615G", None),
            ("M", None),
            ("1MM", None),
            ("-1M", None),
            ("1m", None),
        ];
        for (text, bytes) in sizes {
            assert_eq!(ring(text).ok(), bytes, "{text}");
        }
    }
}
