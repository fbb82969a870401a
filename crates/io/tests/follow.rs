//! Tests of followed files: the changes reported for a name, and the bytes read next.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use weir_io::follow::{Change, Followed};
use weir_io::input::Opening;
use weir_io::stream::Stream;
use weir_io::{Input, Kind};
use weir_testkit::Scratch;

/// Longest wait, so that a test cannot hang.
const LONG: Duration = Duration::from_secs(60);

/// Returns the next bytes of a source; none at its end.
fn next_bytes(stream: &mut Stream) -> Vec<u8> {
    stream
        .next(&[], None)
        .expect("it can be read")
        .bytes()
        .to_vec()
}

fn stream(input: Input) -> Stream {
    let Kind::Stream(stream) = input.kind else {
        panic!("a followed file is a stream")
    };
    stream
}

/// Follows `file` in a thread of its own; returns the reported changes, and the bytes of a first source, which then ends, and
/// of a second source.
///
/// `at_end` runs at the end of the first source, before the search for the second.
fn follow(
    file: &Path,
    at_end: impl Fn() + Send + Sync + 'static,
) -> (Receiver<Change>, Receiver<Vec<u8>>) {
    let ((say, told), (give, given)) = (channel(), channel());
    let tell = move |change| {
        if matches!(change, Change::Truncated | Change::Replaced) {
            at_end();
        }
        let _ = say.send(change);
    };
    let (stop, name) = (Arc::new(AtomicBool::new(false)), file.to_owned());
    std::thread::spawn(move || {
        let followed = Followed::new(&name, Arc::new(tell), &stop);
        let opening = Opening {
            follow: Some(&followed),
            ..Opening::default()
        };
        let mut first = stream(Input::open(&name, &opening, &stop).expect("it is there"));
        give.send(next_bytes(&mut first))
            .expect("the test waits for it");
        assert!(next_bytes(&mut first).is_empty());
        let next = followed
            .next(&opening)
            .expect("the name is followed on")
            .expect("it can be opened");
        give.send(next_bytes(&mut stream(next)))
            .expect("the test waits for it");
    });
    (told, given)
}

/// A name that loses its file between the end of one file and the opening of the next.
#[test]
fn a_name_that_loses_its_file_between_two_files_is_told() {
    let folder = Scratch::new();
    for (way, change) in [
        ("truncated", Change::Truncated),
        ("replaced", Change::Replaced),
    ] {
        let file = PathBuf::from(folder.file(way, b"first"));
        let old = file.clone();
        let (told, given) = follow(&file, move || {
            std::fs::remove_file(&old).expect("it is there")
        });
        let bytes = || given.recv_timeout(LONG).expect("it is read");
        assert_eq!(bytes(), b"first", "{way}");
        match change {
            Change::Truncated => drop(folder.file(way, b"")),
            _ => std::fs::rename(folder.file("other", b"gone at once"), &file)
                .expect("both are there"),
        }
        let next = || told.recv_timeout(LONG).expect("it is told");
        assert_eq!([next(), next()], [change, Change::Removed], "{way}");
        folder.file(way, b"second");
        assert_eq!(next(), Change::Appeared, "{way}");
        assert_eq!(bytes(), b"second", "{way}");
    }
}
