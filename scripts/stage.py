"""A stage on which the commands of the documentation run: scratch folders, sample files and a network of their own.

Used by scripts/docs and scripts/pictures. As root the stage is a network namespace with the cables eth0 and eth1, and
a mount namespace in which /var and /run are empty. Without root there is no network, and commands with sudo are left out.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WEIR = Path(os.environ.get("WEIR", ROOT / os.environ.get("CARGO_TARGET_DIR", "target") / "debug/weir")).resolve()
INSIDE = "WEIR_STAGE"
# Processes too: a command that sends signals to all of weir reaches none of others.
UNSHARE = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]

# The cables of the stage. Messages of IPv6 would appear in counts.
CABLES = """
ip link set lo up
ip link add eth0 type veth peer name net0
ip link add eth1 type veth peer name net1
ip addr add 10.0.0.3/8 dev net1
for i in eth0 eth1 net0 net1; do
    if [ -e /proc/sys/net/ipv6 ]; then echo 1 >/proc/sys/net/ipv6/conf/$i/disable_ipv6; fi
    ip link set $i up
done
"""

# Seconds after which a command is ended, and after which a command of an interface gets Ctrl-C.
LIMIT_S = 60
LOOK_S = 2.0

# A program that is shown in a pipe, but needs a screen.
SCREEN = ("wireshark",)


def enter():
    """Runs this program again in namespaces of its own, if it may have some; returns whether there is a network."""
    if os.environ.get(INSIDE) == "network":
        made = subprocess.run(["bash", "-ec", CABLES], capture_output=True, text=True)
        if made.returncode != 0:
            print(f"the stage: skipped, there is no network of its own: {made.stderr.strip()}")
        return made.returncode == 0
    can = os.geteuid() == 0 and subprocess.run([*UNSHARE, "true"], capture_output=True).returncode == 0
    if not can:
        return False
    os.execvpe("unshare", [*UNSHARE, sys.executable, *sys.argv], {**os.environ, INSIDE: "network"})


class Stage:
    """A scratch folder with the sample files that pages name, and the commands that run in it."""

    def __init__(self, network, traffic):
        self.network = network
        self.folder = Path(tempfile.mkdtemp(prefix="weir-docs-"))
        self.work = self.folder / "work"
        tools = self.folder / "bin"
        self.work.mkdir()
        tools.mkdir()
        (tools / "weir").symlink_to(WEIR)
        (tools / "traffic").symlink_to(WEIR)
        for name, text in [("sudo", 'exec "$@"'), *((name, "exec cat >/dev/null") for name in SCREEN)]:
            (tools / name).write_text(f"#!/bin/sh\n{text}\n")
            (tools / name).chmod(0o755)
        keep = ("HOME", "LANG", "CARGO_HOME", "RUSTUP_HOME")
        self.environment = {name: os.environ[name] for name in keep if name in os.environ}
        self.environment |= {"PATH": f"{tools}:{os.environ['PATH']}", "COLUMNS": "80", "TZ": "UTC", "LC_ALL": "C.UTF-8"}
        self.background = []
        if network:
            # Over what pages before have left there.
            subprocess.run("mount -t tmpfs none /var && mount -t tmpfs none /run", shell=True, check=True)
            Path("/var/tmp").mkdir()
        (self.work / "scripts").symlink_to(ROOT / "scripts")
        self.samples()
        if traffic and network:
            self.start("traffic generate af_packet:net0 --rate 400 --sizes 200 --flows 500 --forever", wait=False)

    def samples(self):
        """Files that pages name without making them."""
        self.run("weir generate trace.pcap --packets 5000 --flows 500")
        for name in ("a.pcap", "b.pcap", "my.pcap"):
            shutil.copy(self.work / "trace.pcap", self.work / name)
        (self.work / "rules.txt").write_text("default pass\ndrop udp dport 53\n")
        (self.work / "banned.txt").write_text("198.51.100.0/24\n2001:db8:bad::/48\n10.0.0.0/12\n")
        rule = '{"rule":{"family":"ip","table":"t","chain":"c","handle":2,"expr":[{"drop":null}]}}'
        chain = '"handle":1,"type":"filter","hook":"forward","prio":0,"policy":"accept"'
        chain = '{"chain":{"family":"ip","table":"t","name":"c",%s}}' % chain
        table = '{"table":{"family":"ip","name":"t","handle":1}}'
        (self.work / "ruleset.json").write_text('{"nftables":[%s,%s,%s]}' % (table, chain, rule))
        (self.work / "lan.txt").write_text("198.18.0.0/15\n")

    def run(self, command):
        """Exit code and what it printed. An endless command over an interface gets Ctrl-C after a while."""
        child = subprocess.Popen(
            ["bash", "-o", "pipefail", "-c", command],
            cwd=self.work,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        endless = is_live(command) and not re.search(r"--duration|--packets| -c \d|--status|--fire| ctl | -D\b", command)
        endless |= "--follow" in command
        try:
            out, _ = child.communicate(timeout=LOOK_S if endless else LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGINT if endless else signal.SIGKILL)
            out, _ = child.communicate(timeout=LIMIT_S)
            if not endless:
                out += b"\n(the command was ended after %d s)\n" % LIMIT_S
        return child.returncode, out.decode(errors="backslashreplace")

    def start(self, command, wait=True):
        """Starts a command that goes on. `wait`: until it has printed something."""
        log = self.folder / f"log{len(self.background)}"
        with log.open("wb") as file:
            child = subprocess.Popen(
                ["bash", "-c", "exec " + command],
                cwd=self.work,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.background.append(child)
        until = time.monotonic() + 10
        while wait and not self.is_ready(command, log) and child.poll() is None and time.monotonic() < until:
            time.sleep(0.02)
        return log

    def is_ready(self, command, log):
        """Whether a command that goes on has begun: its control socket is there, or it has printed something."""
        recorded = re.search(r"weir record \S+ (\S+)", command)
        if recorded:
            return (self.work / recorded.group(1) / "control").exists()
        text = log.read_text(errors="replace")
        return "control socket" in text if "weir firewall" in command else bool(text)

    def end(self):
        for child in reversed(self.background):
            if child.poll() is None:
                child.send_signal(signal.SIGINT)
            try:
                child.wait(timeout=20)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def is_live(command):
    """Whether a command needs a network, or rights of its own."""
    return "sudo " in command or re.search(r"\bweir .*\b(?:eth\d|any)\b", command) is not None


def lacking(command):
    """Programs of a command that this machine lacks."""
    names = re.findall(r"(?:^|[|;&]\s*|\bsudo )([a-z][a-z0-9_-]*)", command)
    return [name for name in names if name in ("jq", "tshark", "tcpdump", "nft", "duckdb", "zstd", "dumpcap", "capinfos", "openssl", "ping", "ip") and not shutil.which(name)]
