//! Tests of maps and programs, by the kernel's own verifier and by runs.

use super::Register::*;
use super::*;
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::Ordering;
use weir_testkit::skipped;

/// Creates a map, or prints the reason why it cannot be created.
fn array(test: &str, entries: u32, bytes: u32) -> Option<Map> {
    match Map::array(entries, bytes) {
        Ok(map) => Some(map),
        Err(error) => {
            skipped(test, error);
            None
        }
    }
}

/// Loads a socket filter and runs it on these packets; returns the number of bytes that it passes of each.
fn filtered(assembler: &Assembler<'_>, packets: &[&[u8]]) -> Vec<usize> {
    let program = Program::load(Kind::SocketFilter, assembler, false).unwrap();
    let (near, far) = UnixDatagram::pair().unwrap();
    near.set_nonblocking(true).unwrap();
    let fd = program.as_fd().as_raw_fd();
    // SAFETY: the value is a live local with the length given.
    let attached = unsafe {
        let value = std::ptr::from_ref(&fd).cast();
        libc::setsockopt(
            near.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_BPF,
            value,
            4,
        )
    };
    assert_eq!(attached, 0, "{}", io::Error::last_os_error());
    let mut buffer = [0; 256];
    let see = |packet: &&[u8]| {
        far.send(packet).unwrap();
        near.recv(&mut buffer).unwrap_or(0)
    };
    packets.iter().map(see).collect()
}

#[test]
fn a_map_is_the_same_from_all_sides() {
    let Some(map) = array("a_map_is_the_same_from_all_sides", 3, 20) else {
        return;
    };
    let values = map.memory().unwrap();
    for index in 0..3 {
        assert_eq!(values.word(index, 16).load(Ordering::Relaxed), 0);
        values
            .word(index, 16)
            .store(u64::from(index) + 7, Ordering::Relaxed);
    }
    let mut value = [0; 24];
    map.read(2, &mut value).unwrap();
    assert_eq!(value[16..], 9u64.to_ne_bytes());
    value[8] = 0x55;
    map.write(1, &value).unwrap();
    assert_eq!(
        values.word(1, 8).load(Ordering::Relaxed),
        u64::from_ne_bytes([0x55, 0, 0, 0, 0, 0, 0, 0])
    );
    assert_eq!(values.word(1, 16).load(Ordering::Relaxed), 9);
    assert_eq!(
        map.read(3, &mut value).unwrap_err().raw_os_error(),
        Some(libc::ENOENT)
    );
    assert_eq!(
        map.write(3, &value).unwrap_err().raw_os_error(),
        Some(libc::E2BIG)
    );
    assert_eq!(
        Map::array(0, 8).unwrap_err().raw_os_error(),
        Some(libc::EINVAL)
    );
}

#[test]
fn a_filter_reads_packets_and_counts_in_two_kinds_of_maps() {
    let Some(map) = array(
        "a_filter_reads_packets_and_counts_in_two_kinds_of_maps",
        1,
        16,
    ) else {
        return;
    };
    let each = Map::per_processor(2, 8).unwrap();
    let mut a = Assembler::new();
    let (reject, none) = (a.label(), a.label());
    a.set(R6, R1);
    // The first word counts all packets; the second word counts packets of at least 3 bytes whose bytes 1 and 2 are 0x1234.
    a.map_value(R7, &map, 0);
    a.set(R1, 1);
    a.atomic_add(Size::Eight, R7, 0, R1);
    a.store(Size::Four, R10, -4, 1);
    a.map(R1, &each);
    a.set(R2, R10);
    a.alu(Op::Add, R2, -4);
    a.call(Helper::MAP_LOOKUP);
    a.jump(If::Equal, R0, 0, none);
    a.load(Size::Eight, R1, R0, 0);
    a.alu(Op::Add, R1, 10);
    a.store(Size::Eight, R0, 0, R1);
    a.place(none);
    a.load_absolute(Size::Two, 1);
    a.jump32(If::NotEqual, R0, 0x1234, reject);
    a.set(R1, 1);
    a.atomic_fetch_add(Size::Eight, R7, 8, R1);
    a.alu(Op::Add, R1, 1);
    a.set(R0, R1);
    a.exit();
    a.place(reject);
    a.result(0);
    let yes = [9, 0x12, 0x34, 1, 1];
    let seen = filtered(&a, &[&yes, &[0x12, 0x34, 0x12], &yes, &[1], &yes]);
    // The filter's result, the number of bytes to pass, is the number of packets that matched so far.
    assert_eq!(seen, [1, 0, 2, 0, 3]);
    let values = map.memory().unwrap();
    assert_eq!(
        [0, 8].map(|at| values.word(0, at).load(Ordering::Relaxed)),
        [5, 3]
    );
    assert_eq!((each.sum(0).unwrap(), each.sum(1).unwrap()), (0, 50));
}

#[test]
fn a_program_that_is_refused_says_why() {
    let Some(map) = array("a_program_that_is_refused_says_why", 1, 8) else {
        return;
    };
    let mut a = Assembler::new();
    a.map_value(R1, &map, 0);
    a.load(Size::Eight, R0, R1, 8);
    a.exit();
    for kind in [Kind::SocketFilter, Kind::Xdp] {
        let error = Program::load(kind, &a, false).unwrap_err();
        let text = error.to_string();
        assert!(
            matches!(error, Error::Refused(_)) && text.contains("off=8") && text.len() < 4096,
            "{text}"
        );
    }
    let mut empty = Assembler::new();
    assert!(matches!(
        Program::load(Kind::Xdp, &empty, false),
        Err(Error::System { .. })
    ));
    empty.result(XDP_PASS);
    assert!(Program::load(Kind::Xdp, &empty, true).is_ok());
}
