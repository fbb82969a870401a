//! A full table of objects, in a process of its own.

use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};
use weir::*;
use weir_testkit::Scratch;
use weir_testkit::savefile::Pcap;

#[test]
fn a_batch_for_which_there_was_no_room_comes_with_the_next_call() {
    let scratch = Scratch::new();
    let mut pcap = Pcap::new(1, 65_535);
    (0..100).for_each(|_| pcap.packet(&[0; 60]));
    let name = std::ffi::CString::new(scratch.file("a.pcap", &pcap.bytes)).unwrap();
    let mut source = 0;
    // SAFETY: all pointers lead to variables, or are NULL where that is allowed.
    let wrong = || unsafe {
        let mut error = 0;
        assert_eq!(weir_open(null(), 1, null(), &mut 0, &mut error), WEIR_NULL);
        error
    };
    assert_eq!(
        // SAFETY: all pointers lead to variables.
        unsafe { weir_open(&name.as_ptr(), 1, null(), &mut source, null_mut()) },
        WEIR_OK
    );
    let mut texts = Vec::new();
    loop {
        match wrong() {
            0 => break,
            text => texts.push(text),
        }
    }
    assert!(texts.len() > 60_000);
    let mut batch = MaybeUninit::<weir_batch>::uninit();
    // SAFETY: it leads to memory for a batch.
    let mut next = || unsafe { weir_next(source, 1_000_000_000, batch.as_mut_ptr(), null_mut()) };
    assert_eq!((next(), next()), (WEIR_FULL, WEIR_FULL));
    assert_eq!(weir_text_free(texts.pop().unwrap()), WEIR_OK);
    assert_eq!(next(), WEIR_OK);
    // SAFETY: the batch was written.
    let batch = unsafe { batch.assume_init() };
    assert_eq!((batch.len, weir_release(batch.lease)), (100, WEIR_OK));
    texts
        .into_iter()
        .for_each(|text| assert_eq!(weir_text_free(text), WEIR_OK));
    let mut counts = weir_counts::default();
    // SAFETY: it leads to counts.
    assert_eq!(unsafe { weir_close(source, &mut counts) }, WEIR_OK);
    assert_eq!((counts.received, counts.passed), (100, 100));
}
