"""Captures that scripts/same-answers makes of another one: formats, byte orders, link types, compression, damage."""

import gzip
import random
import struct


class Capture:
    """The packets of a little-endian pcap file of Ethernet with microseconds: what `weir generate` writes."""

    def __init__(self, data):
        self.packets = []
        at = 24
        while at < len(data):
            seconds, micros, kept, length = struct.unpack_from("<4I", data, at)
            self.packets.append((seconds * 1_000_000 + micros, length, data[at + 16 : at + 16 + kept]))
            at += 16 + kept

    def pcap(self, order="<", magic=0xA1B2C3D4, link=1, units=1, change=lambda frame: frame, packets=None):
        out = struct.pack(order + "IHHiIII", magic, 2, 4, 0, 0, 65535, link)
        for time_us, length, frame in packets or self.packets:
            data = change(frame)
            length += len(data) - len(frame)
            seconds, micros = divmod(time_us, 1_000_000)
            out += struct.pack(order + "4I", seconds, micros * units, len(data), length) + data
        return out

    def pcapng(self):
        """A file of three link types and resolutions, comments, drop counts, statistics, and a second section."""
        out = section(option(1, b"a comment of the section"))
        out += interface(1, option(2, b"eth0") + option(9, b"\x06"))
        out += interface(101, option(2, b"tun0") + option(9, b"\x09") + option(1, b"a comment of tun0"))
        out += interface(113, option(2, b"any") + option(3, b"cooked"), snaplen=96)
        changes = [lambda frame: frame, without_link, cooked]
        for number, (time_us, length, frame) in enumerate(self.packets):
            which = number % 3
            data = changes[which](frame)[: 96 if which == 2 else None]
            options = option(4, struct.pack("<Q", number)) if number % 20 == 7 else b""
            out += enhanced(which, time_us * (1000 if which == 1 else 1), length, data, options)
            if number == len(self.packets) // 2:
                received, dropped = option(4, struct.pack("<Q", 99)), option(5, struct.pack("<Q", 3))
                out += block(5, struct.pack("<3I", 0, 0, 0) + received + dropped)
                out += block(0xBAD, b"unknown block")
        out += section(b"") + interface(1, b"") + block(3, struct.pack("<I", 60) + padded(self.packets[0][2][:60]))
        return out


def padded(data):
    return data + bytes(-len(data) % 4)


def option(code, value):
    return struct.pack("<HH", code, len(value)) + padded(value)


def block(kind, body):
    length = struct.pack("<I", len(padded(body)) + 12)
    return struct.pack("<I", kind) + length + padded(body) + length


def section(options):
    return block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1) + options)


def interface(link, options, snaplen=0):
    return block(1, struct.pack("<HHI", link, 0, snaplen) + options)


def enhanced(which, time, length, data, options):
    fields = struct.pack("<5I", which, time >> 32, time & 0xFFFFFFFF, len(data), max(length, len(data)))
    return block(6, fields + padded(data) + options)


def without_link(frame):
    return frame[14:]


def cooked(frame):
    """A frame with the header of LINKTYPE_LINUX_SLL."""
    return struct.pack(">HHH8s", 0, 1, 6, frame[6:12] + b"\0\0") + frame[12:]


def loopback(frame):
    """A frame with the header of LINKTYPE_NULL, for IPv4."""
    return struct.pack("<I", 2) + frame[14:]


def derived(folder):
    """Files made of small.pcap, by name: other formats, byte orders, link types and compressions."""
    small = Capture((folder / "small.pcap").read_bytes())
    last = len(small.packets) - 1
    backwards = small.packets[:20] + small.packets[:19:-1]
    late = [(time + 3_600_000_000 * (at == 5), *rest) for at, (time, *rest) in enumerate(small.packets)]
    gap = [(time + 10_000_000 * (at == last), *rest) for at, (time, *rest) in enumerate(small.packets)]
    files = {
        "nanoseconds.pcap": small.pcap(magic=0xA1B23C4D, units=1000),
        "big-endian.pcap": small.pcap(order=">"),
        "raw.pcap": small.pcap(link=101, change=without_link),
        "cooked.pcap": small.pcap(link=113, change=cooked),
        "loopback.pcap": small.pcap(link=0, change=loopback),
        "unknown-link.pcap": small.pcap(link=147),
        "cut-frames.pcap": small.pcap(change=lambda frame: frame[:40]),
        "backwards.pcap": small.pcap(packets=backwards),
        "jump.pcap": small.pcap(packets=late),
        "gap.pcap": small.pcap(packets=gap),
        "several.pcapng": small.pcapng(),
        "header-only.pcap": small.pcap()[:24],
        "nothing.pcap": b"",
        "no-capture.pcap": b"This is a text, and no capture.\n" * 9,
    }
    plain = (folder / "small.pcap").read_bytes()
    files["small.pcap.gz"] = gzip.compress(plain, mtime=0)
    files["two-members.pcap.gz"] = gzip.compress(plain[:700], mtime=0) + gzip.compress(plain[700:], mtime=0)
    return files


def damaged(files, cuts=7, flips=9):
    """Each of the files cut at several places, and with one changed byte at others."""
    out = {}
    for name, data in files.items():
        chance = random.Random(name)
        for number in range(cuts):
            at = len(data) * number // cuts + chance.randrange(len(data) // cuts)
            out[f"cut-at-{at}-{name}"] = data[:at]
        for number in range(flips):
            # Most headers are at the start: half of the changes are there.
            at = chance.randrange(len(data) if number % 2 else min(200, len(data)))
            byte = data[at] ^ 1 << chance.randrange(8)
            out[f"changed-at-{at}-{name}"] = data[:at] + bytes([byte]) + data[at + 1 :]
    return out
