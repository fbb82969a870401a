//! Tests of a program without a handler of SIGBUS: files are read, and never mapped.

use std::io::ErrorKind;
use weir_io::input::PlainFile;
use weir_io::sys::are_mappings_guarded;
use weir_testkit::nameless;

#[test]
fn without_a_handler_of_sigbus_files_are_read() {
    let file = PlainFile::new(nameless(&[7; 5000])).unwrap();
    assert!(!are_mappings_guarded() && !file.prefers_mapping());
    assert_eq!(
        file.map(0, 5000).unwrap_err().kind(),
        ErrorKind::Unsupported
    );
    assert_eq!(file.read(0, 5000, Vec::new()).unwrap().bytes(), [7; 5000]);
}
