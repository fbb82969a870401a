//! Names of files, interfaces and ports, as typed by the user.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use weir_packet::text::from_bytes;
use weir_packet::text::printable;

/// A name as typed by the user: any bytes but 0. The printed form is harmless on a terminal (see [`printable`]), and shows bytes
/// that are not UTF-8 as `\xff`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name(OsString);

impl Name {
    /// Returns the name if it is UTF-8, else an empty text. Names of interfaces and ports, and `-`, are UTF-8.
    pub fn utf8(&self) -> &str {
        self.0.to_str().unwrap_or("")
    }

    /// Whether this is standard input or standard output.
    pub fn is_dash(&self) -> bool {
        self.0 == "-"
    }

    /// Returns the name of a source in messages. The text is not escaped: see [`printable`].
    pub fn as_source(&self) -> String {
        if self.is_dash() {
            "standard input".to_owned()
        } else {
            self.text()
        }
    }

    /// Returns the name of an output in messages. The text is not escaped: see [`printable`].
    pub fn as_output(&self) -> String {
        if self.is_dash() {
            "standard output".to_owned()
        } else {
            self.text()
        }
    }

    /// Returns the name unescaped, for JSON and for lines that are escaped later. Bytes that are not UTF-8 become `\xff`.
    pub fn text(&self) -> String {
        from_bytes(self.0.as_bytes())
    }
}

/// Separator between the name of an interface and the number of its queue. No interface has a blank in its name.
const QUEUE: &str = ", queue ";

/// Returns the name of the capture of a queue.
pub fn queue_name(interface: &str, queue: usize) -> String {
    format!("{interface}{QUEUE}{queue}")
}

/// Returns the interface of a capture with this name; the captures of its queues and workers share it.
pub fn interface_of(input: &str) -> &str {
    input.split(QUEUE).next().unwrap_or(input)
}

impl From<OsString> for Name {
    fn from(name: OsString) -> Self {
        Self(name)
    }
}

impl From<String> for Name {
    fn from(name: String) -> Self {
        Self(name.into())
    }
}

impl<T: AsRef<OsStr> + ?Sized> From<&T> for Name {
    fn from(name: &T) -> Self {
        Self(name.as_ref().to_owned())
    }
}

impl AsRef<OsStr> for Name {
    fn as_ref(&self) -> &OsStr {
        &self.0
    }
}

impl AsRef<Path> for Name {
    fn as_ref(&self) -> &Path {
        Path::new(&self.0)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&printable(&self.text()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStringExt;

    #[test]
    fn any_bytes_are_shown_and_json_has_the_very_name() {
        let name = Name::from(OsString::from_vec(b"a\n\x1b\xff\xc3\xa9\xc3".to_vec()));
        assert_eq!(name.to_string(), "a\\n\\x1b\\xffé\\xc3");
        assert_eq!(name.text(), "a\n\u{1b}\\xffé\\xc3");
        assert_eq!((name.utf8(), name.is_dash()), ("", false));
        let plain = Name::from("a b.pcap");
        assert_eq!(
            (plain.to_string().as_str(), plain.utf8()),
            ("a b.pcap", "a b.pcap")
        );
        assert!(Name::from("-").is_dash());
    }
}
