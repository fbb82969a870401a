//! What the tests of measurements and of recordings share.

use std::ffi::{CStr, CString, c_char};
use std::mem::MaybeUninit;
use std::path::PathBuf;
use std::process::Command;
use std::ptr::{null, null_mut};
use std::time::Duration;
use weir::*;
use weir_testkit::{skipped, wait};

pub const SECOND: u64 = 1_000_000_000;

/// The text of a handle, which is freed.
pub fn line(text: weir_text) -> String {
    let mut bytes = null::<c_char>();
    // SAFETY: the pointer leads to a variable, and the text ends with a 0.
    let line = unsafe {
        assert_eq!(weir_text_read(text, &mut bytes, null_mut()), WEIR_OK);
        CStr::from_ptr(bytes).to_str().unwrap().to_owned()
    };
    assert_eq!(weir_text_free(text), WEIR_OK);
    line
}

pub fn options() -> weir_options {
    // SAFETY: zeros are valid options.
    let zeros: weir_options = unsafe { MaybeUninit::zeroed().assume_init() };
    weir_options {
        size: size_of::<weir_options>() as u32,
        ..zeros
    }
}

/// The command, if it lies beside the tests.
pub fn command(test: &str) -> Option<PathBuf> {
    let command = std::env::current_exe()
        .unwrap()
        .parent()
        .unwrap()
        .join("../weir");
    if !command.exists() {
        skipped(test, "there is no weir command beside the tests");
        return None;
    }
    Some(command)
}

/// Sends the packets of a file into the far end of the cable, in portions for which the ring has room.
pub fn send(file: &str) {
    let (file, mut source, mut port) = (CString::new(file).unwrap(), 0, 0);
    let mut batch = MaybeUninit::<weir_batch>::uninit();
    // SAFETY: all pointers lead to variables; the masks have a bit for each packet.
    unsafe {
        assert_eq!(
            weir_open(&file.as_ptr(), 1, null(), &mut source, null_mut()),
            WEIR_OK
        );
        assert_eq!(
            weir_sink_open(c"af_packet:far".as_ptr(), &mut port, null_mut()),
            WEIR_OK
        );
        while weir_next(source, SECOND, batch.as_mut_ptr(), null_mut()) == WEIR_OK {
            let batch = batch.assume_init();
            let words = (batch.len as usize).div_ceil(64);
            for word in 0..words {
                let mut mask = vec![0; words];
                let left = batch.len as usize - word * 64;
                mask[word] = if left < 64 { (1 << left) - 1 } else { u64::MAX };
                assert_eq!(
                    weir_send(port, batch.lease, mask.as_ptr(), null_mut()),
                    WEIR_OK
                );
                std::thread::sleep(Duration::from_millis(5));
            }
            assert_eq!(weir_release(batch.lease), WEIR_OK);
        }
        assert_eq!(weir_sink_close(port, null_mut(), null_mut()), WEIR_OK);
        assert_eq!(weir_close(source, null_mut()), WEIR_OK);
    }
}

/// Number of descriptors of this process.
pub fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Threads of this process by their names, without those of the tests.
fn threads() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names =
        tasks.filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).ok());
    names
        .map(|name| name.trim().to_owned())
        .filter(|name| is_ours(name))
        .collect()
}

/// Whether a thread of this name is one of the library's.
pub fn is_ours(name: &str) -> bool {
    let ours = ["run ", "worker ", "reader ", "compiler", "weir-", "control"];
    ours.iter().any(|our| name.starts_with(our))
}

/// Waits until no thread of the library is left, and as many descriptors as before.
pub fn wait_for_the_end(before: usize) {
    wait::until_ok(|| match (threads(), descriptors()) {
        (threads, now) if threads.is_empty() && now == before => Ok(()),
        (threads, now) => Err(format!("{threads:?}, {now} descriptors, {before} before")),
    });
}

/// Runs an ignored test in a process of its own.
pub fn run_alone(test: &str) {
    let tests = std::env::current_exe().unwrap();
    let done = Command::new(tests)
        .args([test, "--exact", "--ignored"])
        .output()
        .unwrap();
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stdout)
    );
}
