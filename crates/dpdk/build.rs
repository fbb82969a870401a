//! Finds libdpdk and compiles the shim, if the feature `link` is enabled.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "link")]
    link();
}

#[cfg(feature = "link")]
fn link() {
    const OLDEST: &str = "22.11";
    println!("cargo::rerun-if-changed=src/shim.c");
    println!("cargo::rerun-if-changed=src/bench.c");
    println!("cargo::rerun-if-changed=src/classify.c");
    let library = pkg_config::Config::new()
        .atleast_version(OLDEST)
        .probe("libdpdk");
    let library = match library {
        Ok(library) => library,
        Err(error) => {
            let why = error.to_string();
            let why = why
                .lines()
                .find(|line| !line.trim().is_empty())
                .unwrap_or_default();
            println!(
                "cargo::error=the feature `dpdk` needs libdpdk {OLDEST} or later with its headers (Debian: libdpdk-dev): {why}"
            );
            return;
        }
    };
    println!("cargo::rustc-env=WEIR_DPDK_VERSION={}", library.version);
    let mut build = cc::Build::new();
    build
        .file("src/shim.c")
        .includes(&library.include_paths)
        .flag_if_supported("-Wno-deprecated-declarations");
    if cfg!(feature = "bench") {
        build.file("src/bench.c").file("src/classify.c");
    }
    // DPDK's own flags name this processor: its inline functions use instructions of that generation.
    if std::env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|arch| arch == "x86_64") {
        build.flag("-march=corei7");
    }
    // Optimised in every profile, because the loops over packets are inline functions of DPDK.
    build
        .opt_level(3)
        .flag("-Werror=implicit-function-declaration")
        .warnings(true)
        .compile("weir_dpdk_shim");
    // The libraries follow the shim, which needs them.
    for name in &library.libs {
        println!("cargo::rustc-link-lib={name}");
    }
}
