//! Forwarders under test: weir's process, and the kernel with nftables, by routing or as a bridge. Each has one core.

use super::rules::List;
use super::{FORWARDER, OTHERS, Ways};
use crate::capture::net::tool;
use crate::rivals::path;
use anyhow::{Context, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Stdio};
use std::time::Duration;

/// Kind of a forwarder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `weir firewall` over AF_XDP.
    Xdp,
    /// `weir firewall` over AF_PACKET.
    Packet,
    /// nftables, the kernel routes.
    Routing,
    /// nftables, the kernel is a bridge.
    Bridge,
}

impl Kind {
    /// Name for the tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Xdp => "weir, AF_XDP",
            Self::Packet => "weir, AF_PACKET",
            Self::Routing => "nftables, routing",
            Self::Bridge => "nftables, bridge",
        }
    }

    /// Whether the forwarder is weir.
    pub fn is_weir(self) -> bool {
        matches!(self, Self::Xdp | Self::Packet)
    }
}

/// Account of a forwarder since its start: what it took, passed, denied and dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    pub passed: u64,
    pub denied: u64,
    /// Frames that came too fast for its ring.
    pub dropped: u64,
    /// Frames for which the queue of the first cable had no room, counted by the cable.
    pub before: u64,
    /// Frames for which the second cable had no room, counted by the cable.
    pub behind: u64,
}

impl Account {
    /// Returns what came since `before`.
    pub fn since(self, before: Self) -> Self {
        Self {
            passed: self.passed - before.passed,
            denied: self.denied - before.denied,
            dropped: self.dropped - before.dropped,
            before: self.before - before.before,
            behind: self.behind - before.behind,
        }
    }
}

/// A forwarder at work. Dropping it ends it.
#[derive(Debug)]
pub struct Forwarder<'a> {
    ways: &'a Ways,
    pub kind: Kind,
    weir: Option<Weir>,
}

/// weir's process.
#[derive(Debug)]
struct Weir {
    child: Child,
    err: BufReader<ChildStderr>,
    control: Control,
}

/// A connection to the control socket.
#[derive(Debug)]
pub struct Control {
    stream: BufReader<UnixStream>,
}

impl Control {
    /// Connects to the socket at a path.
    pub fn connect(at: &Path) -> anyhow::Result<Self> {
        Ok(Self {
            stream: BufReader::new(
                UnixStream::connect(at).with_context(|| at.display().to_string())?,
            ),
        })
    }

    /// Sends a request, and returns its answer as it came.
    pub fn line(&mut self, request: &str) -> anyhow::Result<String> {
        self.stream.get_mut().write_all(request.as_bytes())?;
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        Ok(line)
    }

    /// Sends a request that must be granted.
    pub fn ask(&mut self, request: &Value) -> anyhow::Result<Value> {
        let answer: Value = serde_json::from_str(&self.line(&format!("{request}\n"))?)?;
        ensure!(!answer["ok"].is_null(), "{request}: {answer}");
        Ok(answer["ok"].clone())
    }
}

impl<'a> Forwarder<'a> {
    /// Starts weir or gives nftables its rules; `count` is the number of rules.
    pub fn start(ways: &'a Ways, kind: Kind, list: List, count: u32) -> anyhow::Result<Self> {
        let text = match kind {
            Kind::Xdp | Kind::Packet => list.weir(count),
            Kind::Routing => list.nft(count, "ip"),
            Kind::Bridge => list.nft(count, "bridge"),
        };
        fs::write(ways.rules(), text)?;
        let mut forwarder = Self {
            ways,
            kind,
            weir: None,
        };
        match kind {
            Kind::Xdp | Kind::Packet => forwarder.weir = Some(Weir::start(ways, kind)?),
            Kind::Routing => {
                let line = format!(
                    "ip addr add 10.1.255.254/16 dev {near} && ip addr add 10.2.255.254/16 dev out && \
                     ip neigh replace 10.2.3.4 lladdr 02:00:00:00:be:04 dev out nud permanent && \
                     echo 0 >/proc/sys/net/ipv4/conf/all/rp_filter && echo 0 >/proc/sys/net/ipv4/conf/{near}/rp_filter && \
                     echo 1 >/proc/sys/net/ipv4/ip_forward && nft -f {rules}",
                    near = ways.near,
                    rules = path(&ways.rules()),
                );
                ways.net.shell("near", &line)?;
            }
            Kind::Bridge => {
                // Frames of a bridge go through the chains of IP too unless these are off.
                let line = format!(
                    "ip link add bridge type bridge mcast_snooping 0 && \
                     for f in /proc/sys/net/bridge/bridge-nf-call-*tables; do [ ! -e $f ] || echo 0 >$f; done && \
                     ip link set {near} master bridge && ip link set out master bridge && ip link set bridge up && \
                     bridge fdb replace 02:00:00:00:be:01 dev out master static && nft -f {rules}",
                    near = ways.near,
                    rules = path(&ways.rules()),
                );
                ways.net.shell("near", &line)?;
            }
        }
        ways.pin()?;
        Ok(forwarder)
    }

    /// Returns the totals so far.
    pub fn account(&mut self) -> anyhow::Result<Account> {
        let [before, behind] = self.ways.refused()?;
        if let Some(weir) = &mut self.weir {
            let stats = weir.control.ask(&json!({ "request": "stats" }))?;
            let count = |name: &str| {
                stats[name]
                    .as_u64()
                    .with_context(|| format!("no {name} in {stats}"))
            };
            // Dropped packets are reported by their place: in the kernel, at the output.
            let places = stats["dropped"]
                .as_object()
                .with_context(|| format!("no dropped in {stats}"))?;
            let dropped = places.values().filter_map(Value::as_u64).sum();
            return Ok(Account {
                passed: count("passed")?,
                denied: count("denied")?,
                dropped,
                before,
                behind,
            });
        }
        let listed: Value =
            serde_json::from_str(&self.ways.net.shell("near", "nft -j list counters")?)?;
        let counter = |name: &str| {
            let all = listed["nftables"].as_array().into_iter().flatten();
            let mut named = all.filter(|one| one["counter"]["name"] == name);
            named
                .find_map(|one| one["counter"]["packets"].as_u64())
                .with_context(|| format!("nft counts no {name}"))
        };
        Ok(Account {
            passed: counter("passed")?,
            denied: counter("denied")?,
            dropped: 0,
            before,
            behind,
        })
    }

    /// The connection to weir's control socket.
    pub fn control(&mut self) -> anyhow::Result<&mut Control> {
        Ok(&mut self.weir.as_mut().context("weir")?.control)
    }

    /// Gives the forwarder's threads real-time priority or takes it back. With it no other program of the machine takes their core, and the
    /// kernel's thread goes before weir's worker, as an interrupt does. Without it they share the core alike, which an overload needs: the
    /// worker would never run.
    pub fn hurry(&self, is_urgent: bool) -> anyhow::Result<()> {
        let set = |thread: u32, priority: &str| {
            let (policy, priority) = if is_urgent {
                ("--fifo", priority)
            } else {
                ("--other", "0")
            };
            tool("chrt", &[policy, "--pid", priority, &thread.to_string()])
        };
        set(self.ways.napi()?, "2")?;
        self.workers()
            .iter()
            .try_for_each(|&worker| set(worker, "1"))
    }

    fn workers(&self) -> Vec<u32> {
        self.weir
            .as_ref()
            .and_then(|weir| weir.workers().ok())
            .unwrap_or_default()
    }

    /// Ends the forwarder. **Errors**: weir's error.
    pub fn end(mut self) -> anyhow::Result<()> {
        match self.weir.take() {
            Some(weir) => weir.end(),
            None => Ok(()),
        }
    }

    /// Times that the threads of the forwarder's core have run, s: the kernel's at the first cable, and weir's worker.
    pub fn run_s(&self) -> [f64; 2] {
        let worker = self.workers().first().copied();
        [self.ways.napi().ok(), worker].map(|thread| thread.map_or(0.0, run_s))
    }
}

impl Drop for Forwarder<'_> {
    fn drop(&mut self) {
        let line = match self.kind {
            Kind::Xdp | Kind::Packet => return,
            Kind::Routing => {
                format!(
                    "nft flush ruleset; ip addr flush dev {}; ip addr flush dev out",
                    self.ways.near
                )
            }
            Kind::Bridge => "nft flush ruleset; ip link del bridge".to_owned(),
        };
        let _ = self.ways.net.shell("near", &line);
    }
}

impl Weir {
    fn start(ways: &Ways, kind: Kind) -> anyhow::Result<Self> {
        let backend = if kind == Kind::Xdp {
            "af_xdp"
        } else {
            "af_packet"
        };
        let ends = [ways.near.as_str(), "out"].map(|name| format!("{backend}:{name}"));
        let (rules, socket) = (ways.rules(), ways.socket());
        let state = socket.with_extension("bans");
        let words = [
            path(&ways.weir),
            "firewall",
            &ends[0],
            &ends[1],
            "--rules",
            path(&rules),
        ];
        let words = [
            &words[..],
            &["--control", path(&socket), "--state", path(&state)],
        ]
        .concat();
        let words: Vec<String> = words.into_iter().map(str::to_owned).collect();
        // AF_XDP lets go of a queue some time after its process has ended.
        for attempt in 0.. {
            let mut command = ways.net.command("near", OTHERS, None, &words);
            let child = command
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()?;
            match Self::ready(child, &socket) {
                Ok(weir) => {
                    weir.pin()?;
                    return Ok(weir);
                }
                Err(error) if attempt == 20 => return Err(error),
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
            }
        }
        unreachable!("the attempts are counted")
    }

    fn ready(mut child: Child, socket: &Path) -> anyhow::Result<Self> {
        let mut err = BufReader::new(child.stderr.take().context("it is a pipe")?);
        let mut said = String::new();
        while !said.contains("control socket") {
            if err.read_line(&mut said)? == 0 {
                child.wait()?;
                bail!("weir ended: {said}");
            }
        }
        Ok(Self {
            control: Control::connect(socket)?,
            child,
            err,
        })
    }

    /// Numbers of the threads that forward.
    fn workers(&self) -> anyhow::Result<Vec<u32>> {
        let mut found = Vec::new();
        for task in fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let task = task?.path();
            let name = fs::read_to_string(task.join("comm")).unwrap_or_default();
            if name.starts_with(WORKER) {
                found.extend(
                    task.file_name()
                        .and_then(|name| name.to_str()?.parse::<u32>().ok()),
                );
            }
        }
        Ok(found)
    }

    /// Gives the worker the forwarder's core once it has begun; all other threads stay on the other one.
    fn pin(&self) -> anyhow::Result<()> {
        const PAUSE: Duration = Duration::from_millis(10);
        for _ in 0..200 {
            // A thread that the worker has just started has its name too for a moment, and may have ended.
            let found = self.workers().unwrap_or_default();
            if found
                .into_iter()
                .filter(|&worker| pin(worker, FORWARDER).is_ok())
                .count()
                > 0
            {
                return Ok(());
            }
            std::thread::sleep(PAUSE);
        }
        bail!("no thread of weir has the name of a worker")
    }

    fn end(mut self) -> anyhow::Result<()> {
        kill(Pid::from_raw(self.child.id() as i32), Signal::SIGINT)?;
        let mut said = String::new();
        self.err.read_to_string(&mut said)?;
        let status = self.child.wait()?;
        ensure!(status.success(), "weir failed: {said}");
        Ok(())
    }
}

impl Drop for Weir {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// The names of weir's threads that forward begin so.
const WORKER: &str = "direction";

/// Gives a thread a core.
pub fn pin(thread: u32, cpu: usize) -> anyhow::Result<()> {
    tool("taskset", &["-pc", &cpu.to_string(), &thread.to_string()])
}

/// Time that a thread has run, s.
fn run_s(thread: u32) -> f64 {
    let text = fs::read_to_string(format!("/proc/{thread}/schedstat")).unwrap_or_default();
    text.split(' ')
        .next()
        .and_then(|ns| ns.parse::<f64>().ok())
        .unwrap_or(0.0)
        / 1e9
}

/// Folder of rules and socket.
pub fn scratch() -> PathBuf {
    std::env::temp_dir().join(format!("weir-bench-forward-{}", std::process::id()))
}
