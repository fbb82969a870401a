//! Description of this machine for readers of a result.

use std::fs;
use std::process::Command;

fn first_line(path: &str) -> Option<String> {
    Some(
        fs::read_to_string(path)
            .ok()?
            .lines()
            .next()?
            .trim()
            .to_owned(),
    )
}

fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    Some(text.lines().next()?.trim().to_owned())
}

fn cpu_model() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let model = field("model name").unwrap_or_else(|| "unknown processor".to_owned());
    match (field("cpu family"), field("model\t")) {
        (Some(family), Some(number)) => format!("{model} (family {family}, model {number})"),
        _ => model,
    }
}

/// Name of a result folder: `DATE-CPU`.
pub fn result_name() -> String {
    let date = output("date", &["+%Y-%m-%d"]).unwrap_or_else(|| "undated".to_owned());
    let cpu: String = cpu_model()
        .to_lowercase()
        .chars()
        .map(|c| if c.is_alphanumeric() { c } else { '-' })
        .collect();
    let words: Vec<&str> = cpu.split('-').filter(|word| !word.is_empty()).collect();
    format!("{date}-{}", words.join("-"))
}

/// Facts about the machine, a line each.
pub fn description() -> Vec<String> {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let memory = first_line("/proc/meminfo").unwrap_or_default();
    let governor = first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
    let unknown = || "unknown".to_owned();
    vec![
        format!("processor: {}, {cores} cores", cpu_model()),
        format!("memory: {}", memory.trim_start_matches("MemTotal:").trim()),
        format!(
            "kernel: {}",
            output("uname", &["-sr"]).unwrap_or_else(unknown)
        ),
        format!(
            "governor: {}",
            governor.unwrap_or_else(|| "not visible (a virtual machine)".to_owned())
        ),
        format!(
            "load when the run began: {}",
            first_line("/proc/loadavg").unwrap_or_else(unknown)
        ),
        format!(
            "compiler: {}",
            output("rustc", &["--version"]).unwrap_or_else(unknown)
        ),
        format!(
            "tcpdump: {}",
            output("tcpdump", &["--version"]).unwrap_or_else(|| "not here".to_owned())
        ),
        format!(
            "commit: {}",
            output("git", &["rev-parse", "--short", "HEAD"]).unwrap_or_else(unknown)
        ),
    ]
}

/// Versions of libraries built into this program, for a line of the head.
pub fn versions(names: &[&str]) -> String {
    const LOCK: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.lock"));
    let version = |name: &&str| {
        let entry = LOCK
            .rsplit("[[package]]")
            .find(|entry| entry.contains(&format!("\nname = \"{name}\"\n")));
        let version = entry.and_then(|entry| entry.split("version = \"").nth(1)?.split('"').next());
        format!("{name} {}", version.unwrap_or("unknown"))
    };
    names.iter().map(version).collect::<Vec<_>>().join(", ")
}
