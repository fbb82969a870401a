//! The layout of descriptors, as a C compiler computes it.

use std::mem::{align_of, offset_of, size_of};
use std::process::Command;
use weir_packet::descriptor::Descriptor;
use weir_testkit::{Scratch, have};

/// Prints the layout of the documented struct, and the fields of a struct read from standard input.
const PROGRAM: &str = r#"
#include <inttypes.h>
#include <stdalign.h>
#include <stddef.h>
#include <stdio.h>

struct weir_descriptor {
    uint64_t offset;
    int64_t time_ns;
    uint32_t captured, wire_len, interface, flags;
};

#define AT(field) offsetof(struct weir_descriptor, field)

int main(void) {
    struct weir_descriptor d;
    if (fread(&d, sizeof d, 1, stdin) != 1) return 1;
    printf("%zu %zu\n", sizeof d, alignof(struct weir_descriptor));
    printf("%zu %zu %zu %zu %zu %zu\n", AT(offset), AT(time_ns), AT(captured), AT(wire_len), AT(interface), AT(flags));
    printf("%" PRIu64 " %" PRId64 " %" PRIu32, d.offset, d.time_ns, d.captured);
    printf(" %" PRIu32 " %" PRIu32 " %" PRIu32 "\n", d.wire_len, d.interface, d.flags);
    return 0;
}
"#;

#[test]
fn c_reads_a_descriptor_by_the_struct_of_the_documentation() {
    if !have(
        "c_reads_a_descriptor_by_the_struct_of_the_documentation",
        &["cc"],
    ) {
        return;
    }
    let scratch = Scratch::new();
    let (source, program) = (
        scratch.file("descriptor.c", PROGRAM.as_bytes()),
        scratch.at("descriptor"),
    );
    let made = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Werror", "-o", &program, &source])
        .output()
        .unwrap();
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    // Each byte is made by hand: a field read at another offset or width would give another number.
    let offset = 0x0102_0304_0506_0708u64;
    let words = [offset.to_ne_bytes(), (-5i64).to_ne_bytes()].concat();
    let halves = [60u32, 1500, 7, Descriptor::NO_TIME]
        .map(u32::to_ne_bytes)
        .concat();
    let bytes = scratch.file("bytes", &[words, halves].concat());
    let done = Command::new(program)
        .stdin(std::fs::File::open(bytes).unwrap())
        .output()
        .unwrap();
    let expected = format!(
        "{} {}\n{} {} {} {} {} {}\n{offset} -5 60 1500 7 1\n",
        size_of::<Descriptor>(),
        align_of::<Descriptor>(),
        offset_of!(Descriptor, offset),
        offset_of!(Descriptor, time_ns),
        offset_of!(Descriptor, captured),
        offset_of!(Descriptor, wire_len),
        offset_of!(Descriptor, interface),
        offset_of!(Descriptor, flags),
    );
    assert!(done.status.success());
    assert_eq!(String::from_utf8_lossy(&done.stdout), expected);
}
