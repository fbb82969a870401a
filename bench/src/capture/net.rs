//! Two network namespaces with a cable between them, and a cgroup that limits processes to a share of a core.

use crate::rivals::path;
use anyhow::{Context, bail, ensure};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::Command;

/// Namespaces `far` and `near`, joined by interfaces of these names. Dropping removes them with everything in them.
#[derive(Debug)]
pub struct Net {
    tag: String,
}

impl Net {
    /// Makes the namespaces and the cable. **Errors**: the missing right or tool.
    pub fn new() -> anyhow::Result<Self> {
        ensure!(
            fs::metadata("/proc/self")?.uid() == 0,
            "network namespaces need root"
        );
        let net = Self { tag: tag() };
        for end in ["far", "near"] {
            tool("ip", &["netns", "add", &net.name(end)])?;
            // Packets of the kernel's own (IPv6) would be counted too.
            let quiet = "for f in /proc/sys/net/ipv6/conf/*/disable_ipv6; do echo 1 >$f; done";
            tool("ip", &["netns", "exec", &net.name(end), "sh", "-c", quiet])?;
        }
        net.cable("far", "near")?;
        Ok(net)
    }

    /// Joins the namespaces by one more cable, whose ends have these names.
    pub fn cable(&self, far: &str, near: &str) -> anyhow::Result<()> {
        let [outside, inside] = ["far", "near"].map(|end| self.name(end));
        tool(
            "ip",
            &[
                "link", "add", far, "netns", &outside, "type", "veth", "peer", "name", near,
                "netns", &inside,
            ],
        )?;
        tool("ip", &["-n", &outside, "link", "set", far, "up"])?;
        tool("ip", &["-n", &inside, "link", "set", near, "up"])
    }

    /// Runs a line of the shell in the namespace `end`, and returns its output.
    pub fn shell(&self, end: &str, line: &str) -> anyhow::Result<String> {
        tool_output("ip", &["netns", "exec", &self.name(end), "sh", "-c", line])
    }

    fn name(&self, end: &str) -> String {
        format!("{}-{end}", self.tag)
    }

    /// A command in the namespace `end`, on processor `cpu`, in a group if one is given. The command is one process from
    /// its start.
    pub fn command(
        &self,
        end: &str,
        cpu: usize,
        group: Option<&Group>,
        words: &[String],
    ) -> Command {
        // The namespace has its own /sys, so that the group is entered before.
        let enter = group.map_or(String::new(), |group| {
            format!("echo $$ >{} && ", path(&group.0.join("cgroup.procs")))
        });
        let script = format!(
            "{enter}exec ip netns exec {} taskset -c {cpu} \"$@\"",
            self.name(end)
        );
        let mut command = Command::new("sh");
        command.args(["-c", &script, "sh"]).args(words);
        command
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for end in ["far", "near"] {
            let _ = tool("ip", &["netns", "del", &self.name(end)]);
        }
    }
}

/// A cgroup whose processes get a share of a core. Dropping removes the group, once its processes have ended.
#[derive(Debug)]
pub struct Group(PathBuf);

impl Group {
    /// A group that runs for `percent` of each period; the period is in us.
    pub fn new((percent, period_us): (u32, u64)) -> anyhow::Result<Self> {
        let quota = u64::from(percent) * period_us / 100;
        let mounts = fs::read_to_string("/proc/mounts")?;
        for line in mounts.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let [_, mounted, kind, options, ..] = words[..] else {
                continue;
            };
            let group = PathBuf::from(mounted).join(tag());
            let limits = match kind {
                "cgroup" if options.split(',').any(|option| option == "cpu") => {
                    vec![
                        ("cpu.cfs_period_us", period_us.to_string()),
                        ("cpu.cfs_quota_us", quota.to_string()),
                    ]
                }
                "cgroup2" => {
                    let _ = fs::write(
                        PathBuf::from(mounted).join("cgroup.subtree_control"),
                        "+cpu",
                    );
                    vec![("cpu.max", format!("{quota} {period_us}"))]
                }
                _ => continue,
            };
            if fs::create_dir(&group).is_err() {
                continue;
            }
            let group = Self(group);
            if limits
                .iter()
                .all(|(file, value)| fs::write(group.0.join(file), value).is_ok())
            {
                return Ok(group);
            }
        }
        bail!("no cgroup can limit processor time here")
    }

    /// Moves a process into the group, with all its threads.
    pub fn enter(&self, process: u32) -> anyhow::Result<()> {
        let file = self.0.join("cgroup.procs");
        fs::write(&file, process.to_string()).with_context(|| path(&file).to_owned())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

fn tag() -> String {
    format!("weir-bench-{}", std::process::id())
}

/// Runs a program that must succeed.
pub fn tool(program: &str, words: &[&str]) -> anyhow::Result<()> {
    tool_output(program, words).map(drop)
}

fn tool_output(program: &str, words: &[&str]) -> anyhow::Result<String> {
    let output = Command::new(program)
        .args(words)
        .output()
        .with_context(|| program.to_owned())?;
    let told = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{program} {}: {}",
        words.join(" "),
        told.trim()
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
