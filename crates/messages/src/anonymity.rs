//! Keys of other addresses, and the payload that is kept with them.

use crate::errors::io_words;
use crate::{Refusal, refuse};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use weir_packet::anonymize::{Anonymizer, KEY};

/// Permission bits of the group and of others.
const OF_OTHERS: u32 = 0o077;

/// Reads the key of other addresses: a file of 32 bytes that its owner alone may read. `payload` bytes of payload are kept of
/// each packet.
pub fn read_key(file: &Path, payload: usize) -> Result<Anonymizer, Refusal> {
    let name = file.display();
    let mut bytes = Vec::new();
    let opened = File::open(file).and_then(|opened| {
        let about = opened.metadata()?;
        opened.take(KEY as u64 + 1).read_to_end(&mut bytes)?;
        Ok(about)
    });
    let about = match opened {
        Ok(about) => about,
        Err(error) => refuse!(
            "{name}: the key cannot be read: {}: (umask 077; head -c {KEY} /dev/urandom >{name}) makes one",
            io_words(&error)
        ),
    };
    let mode = about.permissions().mode();
    if about.is_file() && mode & OF_OTHERS != 0 {
        refuse!(
            "{name}: others than its owner may read the key (mode {:o}), and could find the addresses with it: chmod 600 {name}",
            mode & 0o777
        );
    }
    let Ok(key) = <[u8; KEY]>::try_from(&bytes[..]) else {
        let have = match bytes.len() {
            0..=KEY => format!("{} bytes", bytes.len()),
            _ => "more".to_owned(),
        };
        refuse!(
            "{name}: a key has {KEY} bytes, and this file has {have}: (umask 077; head -c {KEY} /dev/urandom >{name}) makes one"
        );
    };
    Ok(Anonymizer::new(&key, payload))
}

/// Parses the number of bytes of payload to keep of each packet: `none`, `all` or a number.
pub fn parse_payload(text: &str) -> Result<usize, String> {
    match text {
        "none" => Ok(0),
        "all" => Ok(usize::MAX),
        number => number
            .parse::<u32>()
            .map(|number| number as usize)
            .map_err(|_| format!("'{text}' is none of none, all and a number of bytes")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{Permissions, set_permissions};
    use weir_testkit::Scratch;

    #[test]
    fn keys_have_32_bytes_and_one_reader() {
        let scratch = Scratch::new();
        let key = |name: &str, len: usize, mode: u32| {
            let path = scratch.file(name, &vec![7; len]);
            set_permissions(&path, Permissions::from_mode(mode)).expect("it is ours");
            read_key(path.as_ref(), 0).err().map(|why| why.0)
        };
        assert_eq!(key("good", 32, 0o600), None);
        assert_eq!(key("read-only", 32, 0o400), None);
        for (name, len, mode, words) in [
            (
                "short",
                31,
                0o600,
                "a key has 32 bytes, and this file has 31 bytes",
            ),
            ("long", 33, 0o600, "and this file has more"),
            (
                "group",
                32,
                0o640,
                "others than its owner may read the key (mode 640)",
            ),
            ("all", 32, 0o604, "chmod 600"),
        ] {
            let why = key(name, len, mode).expect("it is refused");
            assert!(why.contains(words), "{why}");
        }
        let absent = read_key("/nonexistent/key".as_ref(), 0).expect_err("it is absent");
        assert!(absent.0.contains("the key cannot be read"), "{absent}");
    }

    #[test]
    fn payload_is_none_all_or_a_number() {
        let parsed =
            ["none", "all", "64", "-1", "some", "5000000000"].map(|text| parse_payload(text).ok());
        assert_eq!(
            parsed,
            [Some(0), Some(usize::MAX), Some(64), None, None, None]
        );
    }
}
