use super::*;
use std::fs;
use weir_testkit::{Random, Scratch};

fn opened(scratch: &Scratch, bytes: &[u8]) -> Compressed {
    let path = scratch.file("segment.zst", bytes);
    Compressed::open(File::open(path).unwrap()).unwrap()
}

fn all(compressed: &mut Compressed) -> Vec<u8> {
    let mut bytes = vec![1; compressed.len() as usize];
    compressed.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

/// Bytes with blocks that end at these places, and their compressed file.
fn sample(scratch: &Scratch, blocks: &[u64], len: u64) -> (Vec<u8>, Vec<u8>) {
    let mut random = Random(60);
    let bytes: Vec<u8> = (0..len)
        .map(|at| if at % 3 == 0 { random.next() as u8 } else { 7 })
        .collect();
    let plain = File::open(scratch.file("plain", &bytes)).unwrap();
    let path = scratch.at("out");
    let mut out: Box<dyn DiskFile> = Box::new(File::create(&path).unwrap());
    let ends = blocks.iter().copied();
    let size = compress(
        &plain,
        len,
        ends,
        3,
        out.as_mut(),
        len,
        &AtomicBool::new(false),
    )
    .unwrap()
    .unwrap();
    let compressed = fs::read(path).unwrap();
    assert_eq!(size, compressed.len() as u64);
    (bytes, compressed)
}

const M: u64 = 1 << 20;

#[test]
fn frames_end_with_blocks_and_are_listed_in_a_seek_table() {
    let scratch = Scratch::new();
    // Blocks that fill a frame, one that is longer, and bytes of no block that are longer than the longest frame.
    let blocks = [M / 2, M - 4, M + 8, M + 12, 3 * M, 3 * M + 100];
    let len = 8 * M + 5;
    let (bytes, compressed) = sample(&scratch, &blocks, len);
    let ends = [M - 4, M + 12, 3 * M, 3 * M + 100, 7 * M + 100, len];
    // The documentation of the format, by hand.
    let mut table = vec![0x5e, 0x2a, 0x4d, 0x18, 8 * 6 + 9, 0, 0, 0];
    let (mut at, mut start) = (0, 0);
    for end in ends {
        let size = find_frame_compressed_size(&compressed[at..]).unwrap();
        assert_eq!(compressed[at..at + 4], [0x28, 0xb5, 0x2f, 0xfd]);
        assert_eq!(
            compressed[at + 4] & 0b100,
            0b100,
            "the frame has a checksum"
        );
        assert_eq!(
            bulk::decompress(&compressed[at..at + size], 4 << 20).unwrap(),
            bytes[start..end as usize]
        );
        table.extend((size as u32).to_le_bytes());
        table.extend((end as u32 - start as u32).to_le_bytes());
        (at, start) = (at + size, end as usize);
    }
    table.extend([6, 0, 0, 0, 0, 0xb1, 0xea, 0x92, 0x8f]);
    let crc = crc32fast::hash(&table).to_le_bytes();
    assert_eq!(
        compressed[at..],
        [&[0x50, 0x2a, 0x4d, 0x18, 4, 0, 0, 0], &crc[..], &table].concat()
    );
    let mut file = opened(&scratch, &compressed);
    assert_eq!((file.len(), file.torn()), (len, None));
    let mut random = Random(3);
    for _ in 0..200 {
        let offset = random.below(len as usize);
        let mut some = vec![0; random.below(100_000).min(bytes.len() - offset)];
        file.read_exact_at(&mut some, offset as u64).unwrap();
        assert!(some == bytes[offset..offset + some.len()]);
    }
    assert!(
        file.read_exact_at(&mut [0; 6], len - 5).is_err()
            && file.read_exact_at(&mut [0], u64::MAX).is_err()
    );
}

#[test]
fn a_read_decompresses_the_frames_that_it_needs() {
    let scratch = Scratch::new();
    let (_, compressed) = sample(&scratch, &[M, 2 * M, 3 * M], 4 * M);
    let mut file = opened(&scratch, &compressed);
    for (offset, frames) in [(M, 1), (M + 99, 1), (2 * M - 9, 2), (2 * M + 9, 2)] {
        file.read_exact_at(&mut [0; 10], offset).unwrap();
        assert_eq!(file.decompressed, frames * M, "{offset}");
    }
}

#[test]
fn a_damaged_frame_reads_as_zeros() {
    let scratch = Scratch::new();
    let (bytes, compressed) = sample(&scratch, &[M, 2 * M, 3 * M], 4 * M);
    let sizes = (0..3).scan(0, |at, _| {
        *at += find_frame_compressed_size(&compressed[*at..]).unwrap();
        Some(*at)
    });
    let ends: Vec<_> = sizes.collect();
    let mut random = Random(4);
    for _ in 0..20 {
        let mut damaged = compressed.clone();
        damaged[ends[0] + random.below(ends[1] - ends[0])] ^= 1 << random.below(8);
        let mut expected = bytes.clone();
        let found = all(&mut opened(&scratch, &damaged));
        // A change in a header can leave the frame as it was, since some of its bits are unused.
        if found != bytes {
            expected[M as usize..2 * M as usize].fill(0);
            assert!(found == expected);
        }
    }
}

#[test]
fn without_a_seek_table_the_frames_are_walked() {
    let scratch = Scratch::new();
    let (bytes, compressed) = sample(&scratch, &[M, 2 * M, 3 * M], 4 * M);
    let table = compressed.len() - (CHECK_LEN + HEAD + 4 * ENTRY + FOOTER);
    for cut in [1, 5, 9, 20, 40, 44, 57] {
        let mut file = opened(&scratch, &compressed[..compressed.len() - cut]);
        assert_eq!((file.len(), file.torn()), (4 * M, None), "{cut}");
        assert!(all(&mut file) == bytes);
    }
    for damaged in table..compressed.len() {
        let mut copy = compressed.clone();
        copy[damaged] ^= 0x10;
        assert!(
            all(&mut opened(&scratch, &copy))[..bytes.len()] == bytes,
            "{damaged}"
        );
    }
    let mut file = opened(&scratch, &compressed[..table]);
    assert_eq!((file.len(), file.torn()), (4 * M, Some(4 * M)));
    assert!(all(&mut file) == bytes);
    // The last frame is torn: its bytes read as so many zeros.
    let mut file = opened(&scratch, &compressed[..table - 100]);
    assert_eq!(file.torn(), Some(3 * M));
    let found = all(&mut file);
    assert!(
        found[..3 * M as usize] == bytes[..3 * M as usize]
            && found[3 * M as usize..].iter().all(|&byte| byte == 0)
    );
    for len in 0..60 {
        all(&mut opened(&scratch, &compressed[..len]));
        all(&mut opened(&scratch, &compressed[compressed.len() - len..]));
    }
    let mut random = Random(9);
    for _ in 0..300 {
        let len = random.below(400);
        all(&mut opened(&scratch, &random.bytes(len)));
    }
}

#[test]
fn a_segment_that_hardly_shrinks_is_given_up() {
    let scratch = Scratch::new();
    let bytes = Random(1).bytes(3 * M as usize);
    let plain = File::open(scratch.file("plain", &bytes)).unwrap();
    for (most, stop) in [(3 * M, false), (u64::MAX, true)] {
        let mut out: Box<dyn DiskFile> = Box::new(File::create(scratch.at("out")).unwrap());
        let blocks = [M, 2 * M].into_iter();
        let done = compress(
            &plain,
            3 * M,
            blocks,
            1,
            out.as_mut(),
            most,
            &AtomicBool::new(stop),
        );
        assert_eq!(done.unwrap(), None);
    }
}
