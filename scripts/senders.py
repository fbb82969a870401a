"""Senders of packets under test: a network of their own, frames, captures by tcpdump, processor time, and plots.

Used by scripts/senders-against-rivals and scripts/senders-bars.
"""

import math
import os
import pathlib
import platform
import re
import shutil
import signal
import struct
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
LENGTH = 60
# Captured bytes of a packet: more than a frame of that length.
SNAP = 96
# Bins of errors: so many to a power of ten, from 10 ns on.
BINS, LEAST, DECADES = 6, 10, 6
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555"]


def alone(tools, *cables):
    """Enters namespaces of networks and processes with cables, each a pair of names. The kernel ends and removes all of it with the script."""
    if "WEIR_IN_NAMESPACE" not in os.environ:
        if os.geteuid() != 0:
            sys.exit("a network of its own needs root")
        if lacking := [tool for tool in tools if not shutil.which(tool)]:
            sys.exit(f"not installed: {', '.join(lacking)}")
        os.environ["WEIR_IN_NAMESPACE"] = "1"
        os.execvp("unshare", ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable, *sys.argv])
    # The first process of a namespace gets no signal for which it has no handler.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))
    script = "for f in /proc/sys/net/ipv6/conf/*/disable_ipv6; do echo 1 >$f; done; ip link set lo up\n"
    for one, other in cables:
        script += f"ip link add {one} type veth peer name {other}; ip link set {one} up; ip link set {other} up\n"
    subprocess.run(["sh", "-ec", script], check=True)


def real_time(on=True):
    """Gives this process and its children real-time priority, or takes it away."""
    os.sched_setscheduler(0, os.SCHED_FIFO if on else os.SCHED_OTHER, os.sched_param(1 if on else 0))


def frame(number, length=LENGTH):
    """UDP in IPv4 to an address that no host of the namespace has, with right checksums of IPv4, and none of UDP."""
    header = struct.pack("!BBHHHBBH4s4s", 0x45, 0, length - 14, number & 0xFFFF, 0x4000, 64, 17, 0, bytes([198, 18, 0, 1]), bytes([198, 18, 1, 1]))
    total = sum(struct.unpack("!10H", header))
    total = (total & 0xFFFF) + (total >> 16)
    total = ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF
    header = header[:10] + struct.pack("!H", total) + header[12:]
    data = bytes([2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 8, 8, 0]) + header + struct.pack("!HHHH", 1024 + number % 1000, 9, length - 34, 0)
    return data.ljust(length, b"\0")


def write_capture(path, times_us):
    """A capture of frames at these times; the IP identification of a frame is its number modulo 65 536."""
    frames = []
    with path.open("wb") as out:
        out.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
        for number, us in enumerate(times_us):
            if number < 65_536:
                frames.append(frame(number))
            out.write(struct.pack("<IIII", 1 + us // 1_000_000, us % 1_000_000, LENGTH, LENGTH) + frames[number & 0xFFFF])


def write_config(path, length=LENGTH):
    """A frame for trafgen. It computes nothing for a frame of constants: its best mode."""
    path.write_text("{ " + ", ".join(str(byte) for byte in frame(0, length)) + " }\n")


def program(path):
    """The path of a weir."""
    if not pathlib.Path(path).exists():
        sys.exit(f"no {path}: cargo build --release, or --weir FILE")
    return str(pathlib.Path(path).resolve())


def received(interface="near"):
    """Packets that an interface has received, by the counter of its driver."""
    line = next(line for line in pathlib.Path("/proc/net/dev").read_text().splitlines() if line.strip().startswith(f"{interface}:"))
    return int(line.split(":")[1].split()[1])


def run(command):
    """Runs a sender; returns its processor time and its time, s, and its output."""
    begun = time.monotonic()
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    said = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = status
    if status != 0:
        sys.exit(f"{' '.join(command)}: {said.decode(errors='replace')}")
    return usage.ru_utime + usage.ru_stime, time.monotonic() - begun, said.decode(errors="replace")


class Arrivals:
    """Packets that tcpdump sees at an interface, with the kernel's timestamps."""

    def __init__(self, place, interface, *more):
        self.output = place / f"{interface}.pcap"
        words = ["tcpdump", "-Z", "root", "-n", "-i", interface, "-w", str(self.output), "-s", str(SNAP), "-B", "262144"]
        words += ["--time-stamp-precision=nano", *more, "udp"]
        self.reader = subprocess.Popen(words, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
        self.said, self.dropped = b"", 0
        while b"listening on" not in self.said:
            line = self.reader.stderr.readline()
            if not line:
                sys.exit(f"tcpdump at {interface}: {self.said.decode(errors='replace')}")
            self.said += line

    def end(self):
        """Packets as (ns, bytes), when tcpdump has written all of them."""
        size = -1
        while size != (size := self.output.stat().st_size):
            time.sleep(1.2)
        self.reader.send_signal(2)
        self.said += self.reader.stderr.read()
        self.reader.wait()
        self.dropped = int(re.search(rb"(\d+) packets? dropped by kernel", self.said)[1])
        data = self.output.read_bytes()
        self.output.unlink()
        return self.packets(data)

    @staticmethod
    def packets(data):
        at = 24
        while at < len(data):
            seconds, ns, length = struct.unpack_from("<III", data, at)
            yield seconds * 1_000_000_000 + ns, data[at + 16 : at + 16 + length]
            at += 16 + length


def quantile(ordered, part):
    return ordered[min(int(len(ordered) * part), len(ordered) - 1)]


def histogram(errors):
    """Shares of the errors in each bin; the first has all that are less, the last all that are more."""
    counts = [0] * (BINS * DECADES + 1)
    for error in errors:
        place = int(math.log10(max(error, LEAST) / LEAST) * BINS)
        counts[min(place, len(counts) - 1)] += 1
    return [count / len(errors) for count in counts]


# Places of the powers of ten on the axis of a histogram.
DECADE_TICKS = [(place / DECADES, text) for place, text in enumerate(["10 ns", "100 ns", "1 us", "10 us", "100 us", "1 ms", "10 ms"])]


def histogram_panel(title, lines):
    most = max(0.05, max(max(line) for line in lines))
    return title, lines, 0, most, lambda value: f"{value * 100:.0f} %"


def svg(title, names, panels, ticks):
    """Panels of lines, a line for each name; a panel has a title, its lines (None: a gap), least and largest value, and the text of a value."""
    width, height, left, top, columns = 860, 250, 62, 96, 2
    each = (width - left - 20) / columns
    rows = math.ceil(len(panels) / columns)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{top + rows * height}" font-family="sans-serif" font-size="11">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="20" y="24" font-size="15">{title}</text>',
    ]
    for place, name in enumerate(names):
        x, y = left + place % 3 * 262, 46 + place // 3 * 18
        out.append(f'<line x1="{x}" y1="{y - 4}" x2="{x + 20}" y2="{y - 4}" stroke="{COLOURS[place]}" stroke-width="2"/><text x="{x + 26}" y="{y}">{name}</text>')
    for number, (title, lines, least, most, label) in enumerate(panels):
        x0, y0 = left + number % columns * each, top + number // columns * height
        wide, high = each - 60, height - 70
        out.append(f'<text x="{x0}" y="{y0 + 4}" font-size="12">{title}</text>')
        for tick in range(5):
            y = y0 + 12 + high * (1 - tick / 4)
            text = label(least + (most - least) * tick / 4)
            out.append(f'<line x1="{x0}" y1="{y:.1f}" x2="{x0 + wide}" y2="{y:.1f}" stroke="#dddddd"/><text x="{x0 - 6}" y="{y + 4:.1f}" text-anchor="end">{text}</text>')
        for place, text in ticks:
            x = x0 + wide * place
            out.append(f'<line x1="{x:.1f}" y1="{y0 + 12}" x2="{x:.1f}" y2="{y0 + 12 + high}" stroke="#eeeeee"/><text x="{x:.1f}" y="{y0 + 28 + high}" text-anchor="middle">{text}</text>')
        for colour, line in zip(COLOURS, lines):
            scaled = [(place, (value - least) / (most - least)) for place, value in enumerate(line) if value is not None]
            points = " ".join(f"{x0 + wide * place / max(len(line) - 1, 1):.1f},{y0 + 12 + high * (1 - value):.1f}" for place, value in scaled)
            out.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.6"/>')
    return "\n".join([*out, "</svg>", ""])


def first(command):
    done = subprocess.run(command, capture_output=True, text=True)
    return (done.stdout + done.stderr).splitlines()[0]


def commit():
    return first(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"])


def machine():
    text = pathlib.Path("/proc/cpuinfo").read_text()
    one = lambda name: re.search(rf"^{name}\s*: (.*)$", text, re.M)[1]
    return f"{one('model name')} (family {one('cpu family')}, model {one('model')}), {os.cpu_count()} cores, kernel {platform.release()}"


def time_words(ns):
    if abs(ns) >= 1e9:
        return f"{ns / 1e9:.2f} s"
    return f"{ns:.0f} ns" if abs(ns) < 1000 else f"{ns / 1000:.2f} us" if abs(ns) < 1e6 else f"{ns / 1e6:.1f} ms"
