//! Every scenario still works at its smoke size: rivals run, answers agree, tables come out.

use std::path::Path;
use std::process::Command;

fn here(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}

#[test]
fn the_filter_scenario_runs_and_its_answers_agree() {
    let bench = Path::new(env!("CARGO_BIN_EXE_weir-bench"));
    let weir = bench.with_file_name("weir");
    if !weir.exists() {
        eprintln!("skipped: no weir binary beside weir-bench (run `cargo test --workspace`)");
        return;
    }
    if !here("tcpdump") {
        eprintln!("skipped: no tcpdump");
        return;
    }
    let data = std::env::temp_dir().join(format!("weir-bench-smoke-{}", std::process::id()));
    let output = Command::new(bench)
        .args(["filter", "--size", "smoke", "--rounds", "1", "--data"])
        .arg(&data)
        .output()
        .expect("weir-bench starts");
    std::fs::remove_dir_all(&data).expect("weir-bench made its folder");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(!text.contains("WRONG"), "{text}");
    for part in
        ["Filter and count: 60-byte frames", "Compressed files", "Start-up", "Peak memory", "Filter alone", "Bars"]
    {
        assert!(text.contains(part), "the part '{part}' is missing:\n{text}");
    }
}
