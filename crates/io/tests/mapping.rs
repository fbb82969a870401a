//! Tests of mappings: of files that stay or shrink, and of many mappings at once.

use weir_io::input::PlainFile;
use weir_io::sys::{HUGE, Mapping, guard_mappings};
use weir_testkit::nameless;

#[test]
fn as_many_mappings_as_a_large_machine_has_use_for() {
    guard_mappings();
    let file = nameless(&[7; 5000]);
    // Two mappings for each of 500 workers, and some for a few readers.
    let all: Vec<Mapping> = (0..1100)
        .map(|_| Mapping::new(&file, 0, 5000).expect("there is room for it"))
        .collect();
    assert!(all.iter().all(|mapping| mapping.bytes()[4999] == 7));
    file.set_len(0).unwrap();
    assert!(
        all.iter()
            .all(|mapping| mapping.bytes()[4097] == 0 && mapping.fault() == Some(4096))
    );
    drop(all);
    file.set_len(10).unwrap();
    assert_eq!(
        Mapping::new(&file, 0, 10).unwrap().fault(),
        None,
        "a slot that was given back is clean"
    );
}

#[test]
fn threads_that_map_and_lose_their_files_at_once() {
    guard_mappings();
    std::thread::scope(|scope| {
        for seed in 0..8usize {
            scope.spawn(move || {
                let bytes: Vec<u8> = (0..HUGE + 9000).map(|i| (i + seed) as u8).collect();
                let file = nameless(&bytes);
                for round in 0..40 {
                    file.set_len(0).unwrap();
                    std::os::unix::fs::FileExt::write_all_at(&file, &bytes, 0).unwrap();
                    let mapping = Mapping::new(&file, 0, bytes.len()).unwrap();
                    let cut = (round * 54_321 + seed * 7_777) % bytes.len();
                    file.set_len(cut as u64).unwrap();
                    let page = cut.next_multiple_of(4096);
                    assert!(mapping.bytes()[..cut] == bytes[..cut]);
                    assert_eq!(mapping.fault(), None);
                    assert!(mapping.bytes()[cut..].iter().all(|&byte| byte == 0));
                    assert_eq!(mapping.fault(), (page < bytes.len()).then_some(page));
                }
            });
        }
    });
}

#[test]
fn pieces_of_a_file_say_where_it_ends() {
    guard_mappings();
    let bytes: Vec<u8> = (0..100_000).map(|i| (i / 3) as u8).collect();
    let file = PlainFile::new(nameless(&bytes)).unwrap();
    assert_eq!(file.len, 100_000);
    for (offset, len, held) in [
        (0u64, 100_000usize, 100_000usize),
        (0, 99_999, 99_999),
        (4096, 1 << 20, 95_904),
        (98_304, 5, 5),
        (102_400, 10, 0),
    ] {
        let mapped = file.map(offset, len).unwrap();
        let read = file.read(offset, len, vec![9; 3]).unwrap();
        for view in [mapped, read] {
            assert_eq!(
                (view.offset, view.bytes().len(), view.fault()),
                (offset, held, None),
                "{view:?}"
            );
            assert_eq!(view.eof, offset + held as u64 >= 100_000, "{offset}, {len}");
            assert!(view.bytes() == &bytes[(offset as usize).min(100_000)..][..held]);
        }
    }
    // The file is cut after opening: a read returns fewer bytes, and reports the end of the file.
    let file = PlainFile::new(nameless(&bytes)).unwrap();
    let cut = nameless(&bytes);
    let shrinking = PlainFile::new(cut.try_clone().unwrap()).unwrap();
    cut.set_len(10).unwrap();
    let view = shrinking.read(0, 50, Vec::new()).unwrap();
    assert_eq!(
        (
            view.bytes().len(),
            view.eof,
            shrinking.current_len().unwrap()
        ),
        (10, true, 10)
    );
    assert!(
        file.prefers_mapping(),
        "a small file is mapped whatever its folios"
    );
    assert!(
        !PlainFile::new(nameless(b"")).unwrap().prefers_mapping(),
        "nothing cannot be mapped"
    );
}
