//! The header for C programs is the one that this crate gives.

use std::path::Path;

#[test]
fn the_header_is_made_from_this_crate() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).unwrap();
    let mut made = Vec::new();
    cbindgen::generate_with_config(root, config)
        .unwrap()
        .write(&mut made);
    let made = without_safety(&String::from_utf8(made).unwrap());
    let path = root.join("include/weir.h");
    if std::env::var_os("WEIR_WRITE").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    let known = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        known == made,
        "include/weir.h is another: WEIR_WRITE=1 cargo test -p weir-ffi --test header writes it"
    );
}

/// The heading of what a caller promises reads as C programmers know it.
fn without_safety(header: &str) -> String {
    header.replace("// # Safety\n", "// The caller promises:\n")
}
