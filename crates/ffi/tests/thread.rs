//! Places of threads and memory, against what `/proc` tells of this process.

use std::ffi::CString;
use std::ptr::{null, null_mut};
use weir::*;
use weir_testkit::{Scratch, savefile::Pcap};

/// The field of this thread's status.
fn status(field: &str) -> String {
    let text = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(field))
        .unwrap();
    line.trim_start_matches(':').trim().to_owned()
}

/// Numbers of a list like `0-2,5`.
fn numbers(list: &str) -> Vec<u32> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        first.parse::<u32>().unwrap()..=last.parse().unwrap()
    };
    list.split(',').flat_map(range).collect()
}

fn cpus() -> Vec<u32> {
    let (mut cpus, mut count) = ([0; 1024], 0);
    assert_eq!(
        // SAFETY: both lead to variables.
        unsafe { weir_cpus(cpus.as_mut_ptr(), 1024, &mut count) },
        WEIR_OK
    );
    cpus[..count as usize].to_vec()
}

#[test]
fn a_thread_is_pinned_by_itself_and_alone() {
    let all = numbers(&status("Cpus_allowed_list"));
    assert_eq!(cpus(), all);
    for &cpu in &all {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert_eq!(weir_pin_thread(cpu), WEIR_OK);
                assert_eq!(
                    (status("Cpus_allowed_list"), cpus()),
                    (cpu.to_string(), vec![cpu])
                );
            });
        });
    }
    assert_eq!(cpus(), all, "other threads stay where they were");
    for none in [all[all.len() - 1] + 1000, u32::MAX] {
        assert_eq!(weir_pin_thread(none), WEIR_REFUSED);
    }
    let mut count = 0;
    // SAFETY: NULL is allowed with room for none; the rest leads to a variable or is refused.
    unsafe {
        assert_eq!(
            (weir_cpus(null_mut(), 0, &mut count), count as usize),
            (WEIR_OK, all.len())
        );
        assert_eq!(weir_cpus(null_mut(), 1, &mut count), WEIR_NULL);
        assert_eq!(weir_cpus(null_mut(), 0, null_mut()), WEIR_NULL);
    }
}

/// Nodes of the mapping that holds an address, as `/proc/self/numa_maps` tells them; `None` if the kernel has no such file.
fn nodes(address: usize) -> Option<Vec<u32>> {
    let text = std::fs::read_to_string("/proc/self/numa_maps").ok()?;
    let start = |line: &str| usize::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap();
    let line = text
        .lines()
        .take_while(|line| start(line) <= address)
        .last()?;
    let node = |word: &str| word.strip_prefix('N')?.split_once('=')?.0.parse().ok();
    Some(line.split(' ').filter_map(node).collect())
}

#[test]
fn the_node_of_a_batch_is_one_of_its_mapping() {
    let scratch = Scratch::new();
    let mut pcap = Pcap::new(1, 65_535);
    for _ in 0..1000 {
        pcap.packet(&[0; 64]);
    }
    let name = CString::new(scratch.file("a.pcap", &pcap.bytes)).unwrap();
    let (mut source, mut batch, mut node) = (0, std::mem::MaybeUninit::uninit(), 77);
    // SAFETY: all pointers lead to variables, and the batch is read behind weir_next only.
    unsafe {
        assert_eq!(
            weir_open(&name.as_ptr(), 1, null(), &mut source, null_mut()),
            WEIR_OK
        );
        assert_eq!(
            weir_next(source, u64::MAX, batch.as_mut_ptr(), null_mut()),
            WEIR_OK
        );
        let batch: weir_batch = batch.assume_init();
        assert_eq!(weir_node_of(batch.lease, null_mut()), WEIR_NULL);
        assert_eq!(weir_node_of(batch.lease, &mut node), WEIR_OK);
        match nodes(batch.region as usize + (*batch.packets).offset as usize) {
            Some(known) => assert!(known.contains(&node), "{node} of {known:?}"),
            None => assert_eq!(node, 0),
        }
        assert_eq!(weir_release(batch.lease), WEIR_OK);
        assert_eq!(weir_node_of(batch.lease, &mut node), WEIR_CLOSED);
        assert_eq!(weir_close(source, null_mut()), WEIR_OK);
    }
}
