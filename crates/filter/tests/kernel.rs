//! Programs for the kernel's filter, run by the kernel: it passes each packet that matches.

use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;

use weir_filter::{Program, libpcap};
use weir_packet::LinkType;
use weir_testkit::Random;

/// Verdicts of the kernel, which filters what a socket receives, of any family.
fn by_kernel(program: &Program, packets: &[Vec<u8>]) -> Vec<bool> {
    let (sender, receiver) = UnixDatagram::pair().unwrap();
    receiver.set_nonblocking(true).unwrap();
    let mut insns: Vec<libc::sock_filter> = program
        .insns()
        .iter()
        .map(|insn| libc::sock_filter {
            code: insn.code,
            jt: insn.jt,
            jf: insn.jf,
            k: insn.k,
        })
        .collect();
    let all = libc::sock_fprog {
        len: insns.len() as u16,
        filter: insns.as_mut_ptr(),
    };
    let size = size_of::<libc::sock_fprog>() as libc::socklen_t;
    // SAFETY: the option is a `sock_fprog`, whose instructions live as long as the call.
    let done = unsafe {
        libc::setsockopt(
            receiver.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const all).cast(),
            size,
        )
    };
    assert_eq!(
        done,
        0,
        "{}: {:x?}",
        std::io::Error::last_os_error(),
        program.insns()
    );
    let passes = |packet: &Vec<u8>| {
        assert_eq!(sender.send(packet).unwrap(), packet.len());
        receiver.recv(&mut [0; 100]).is_ok()
    };
    packets.iter().map(passes).collect()
}

/// Frames whose first bytes are small numbers and counts of shifts.
fn packets() -> Vec<Vec<u8>> {
    let mut random = Random(3);
    let frame = |_| {
        let mut frame = vec![0u8; 60];
        frame[..12].fill_with(|| [0, 1, 2, 7, 31, 32, 33, 64, 255][random.below(9)]);
        frame[12..14].copy_from_slice([[8, 0], [8, 6]][random.below(2)].as_slice());
        frame[14] = 0x45;
        frame[22] = [1, 32, 64, 255][random.below(4)];
        frame[23] = [6, 17, 32][random.below(3)];
        frame[37] = [53, 80][random.below(2)];
        frame
    };
    (0..600).map(frame).collect()
}

#[test]
fn the_kernel_passes_what_matches_though_it_masks_the_counts_of_shifts() {
    let packets = packets();
    let mut lost = 0;
    for (expression, shifts) in [
        ("ether[0] << ether[1] = 0", true),
        ("ether[0] >> ether[1] = 0", true),
        ("not ether[0] << ether[1] != 0", true),
        ("ip and ip[8] << ip[9] = 0", true),
        (
            "udp dst port 53 or (arp and ether[2:4] >> ether[3] = 0)",
            true,
        ),
        ("ether[0] = 1 and 1 << ether[1] = 0", true),
        ("1 << (ether[1] + 31) = 0", true),
        ("ether[0] << 3 = 8", false),
        ("udp port 53 or arp", false),
        ("ether[0] / ether[1] = 1 or ether[0] % ether[2] = 1", false),
    ] {
        let oracle = libpcap::compile_unoptimised(expression, LinkType::ETHERNET).unwrap();
        let program = libpcap::compile(expression, LinkType::ETHERNET, false).unwrap();
        let matches: Vec<_> = packets
            .iter()
            .map(|packet| libpcap::bpf_filter(&oracle, packet, 60) != 0)
            .collect();
        assert!(
            matches.contains(&true) && matches.contains(&false),
            "{expression}"
        );
        let passed = by_kernel(&program.for_kernel(), &packets);
        for ((packet, matches), passed) in packets.iter().zip(&matches).zip(&passed) {
            assert!(
                *passed || !matches,
                "{expression}: the kernel loses {packet:02x?}"
            );
        }
        if !shifts {
            assert_eq!(passed, matches, "{expression}");
        }
        // The program itself is not for the kernel.
        let by_itself = by_kernel(&program, &packets);
        lost += matches
            .iter()
            .zip(&by_itself)
            .filter(|(matches, passed)| **matches && !**passed)
            .count();
    }
    assert!(lost > 0, "this kernel shifts as libpcap does");
}

#[test]
fn what_stands_in_front_of_such_a_shift_is_judged_by_the_kernel() {
    let packets = packets();
    let program = libpcap::compile(
        "udp dst port 53 and ether[0] << ether[1] = 0",
        LinkType::ETHERNET,
        false,
    )
    .unwrap();
    let before = libpcap::compile_unoptimised("udp dst port 53", LinkType::ETHERNET).unwrap();
    let wanted: Vec<_> = packets
        .iter()
        .map(|packet| libpcap::bpf_filter(&before, packet, 60) != 0)
        .collect();
    assert_eq!(by_kernel(&program.for_kernel(), &packets), wanted);
}

#[test]
fn programs_for_one_direction_have_no_test_of_it() {
    let names = weir_filter::Names::NONE;
    let program = libpcap::compile_live(
        "(inbound and udp) or (outbound and tcp)",
        LinkType::ETHERNET,
        &names,
    )
    .unwrap();
    for (direction, expression) in [
        (weir_packet::savefile::Direction::In, "udp"),
        (weir_packet::savefile::Direction::Out, "tcp"),
    ] {
        let one = program.of_direction(direction);
        let alone = libpcap::compile(expression, LinkType::ETHERNET, false).unwrap();
        assert!(
            one.insns().len() <= alone.insns().len(),
            "{direction:?}: {:x?}",
            one.insns()
        );
        for packet in packets() {
            let [one, alone] =
                [&one, &alone].map(|program| libpcap::bpf_filter(program, &packet, 60) != 0);
            assert_eq!(one, alone, "{direction:?}: {packet:02x?}");
        }
    }
}
