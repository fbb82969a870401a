"""Traffic whose every frame is known: what an operator asks about, made by hand, for scripts/questions.

`frames` gives the frames of a few seconds of a network, in order, each with its time and a description. The truth about
questions is counted from these descriptions and never by weir. As a program, `traffic.py INTERFACE SECONDS` sends them
on time and prints, as JSON, when sending began and the number that the kernel took.
"""

import json
import random
import socket
import struct
import sys
import time
from ipaddress import ip_address
from typing import NamedTuple

# Stations, by address. Each has a MAC of its own; the router passes none of them on.
CLIENT, SERVER, ROUTER = "10.7.0.10", "10.7.0.20", "10.7.0.1"
DNS, SLOW_DNS = "10.7.0.53", "10.7.0.54"
SCANNER, VICTIM, BURSTER, LATE = "10.7.0.66", "10.8.0.30", "10.7.0.80", "10.7.0.99"
CLIENT6, SERVER6 = "fd77::10", "fd77::20"
STORM_MAC = bytes.fromhex("02a7a7a7a7a7")
BROADCAST_MAC = b"\xff" * 6
SITE = "www.example.net"


class Frame(NamedTuple):
    """A frame: when it is sent, its bytes, and what it is."""

    at: float
    data: bytes
    about: dict


def mac(address):
    return b"\x02\x07" + ip_address(address).packed[-4:]


def total(data):
    """The checksum of RFC 1071."""
    data += b"\0" * (len(data) % 2)
    value = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while value >> 16:
        value = (value & 0xFFFF) + (value >> 16)
    return ~value & 0xFFFF


def ethernet(source, destination, kind, payload, tags=()):
    head = destination + source
    for tag in tags:
        head += struct.pack("!HH", 0x8100, tag)
    return head + struct.pack("!H", kind) + payload


def ip(source, destination, proto, payload, fragment=0, number=0):
    if ":" in source:
        head = struct.pack("!IHBB", 6 << 28, len(payload), proto, 64)
        return 0x86DD, head + ip_address(source).packed + ip_address(destination).packed + payload
    head = struct.pack("!BBHHHBB", 0x45, 0, 20 + len(payload), number, fragment, 64, proto)
    ends = ip_address(source).packed + ip_address(destination).packed
    return 0x0800, head + struct.pack("!H", total(head + b"\0\0" + ends)) + ends + payload


def with_checksum(source, destination, proto, segment, place):
    ends = ip_address(source).packed + ip_address(destination).packed
    value = total(ends + struct.pack("!II", len(segment), proto) + segment)
    value = value or 0xFFFF if proto == 17 else value
    return segment[:place] + struct.pack("!H", value) + segment[place + 2 :]


def tcp_frame(source, sport, destination, dport, seq, ack, flags, payload=b"", tags=()):
    segment = struct.pack("!HHIIBBHHH", sport, dport, seq % 2**32, ack % 2**32, 5 << 4, flags, 64000, 0, 0) + payload
    segment = with_checksum(source, destination, 6, segment, 16)
    kind, packet = ip(source, destination, 6, segment)
    return ethernet(mac(source), mac(destination), kind, packet, tags)


def udp_frame(source, sport, destination, dport, payload, tags=(), to=None):
    segment = struct.pack("!HHHH", sport, dport, 8 + len(payload), 0) + payload
    kind, packet = ip(source, destination, 17, with_checksum(source, destination, 17, segment, 6))
    return ethernet(mac(source), to or mac(destination), kind, packet, tags)


def name_of(text):
    return b"".join(bytes([len(part)]) + part.encode() for part in text.split(".")) + b"\0"


def dns(number, name, code=None, address=None):
    """A query for an address, or with `code` the answer to it."""
    flags = 0x0100 if code is None else 0x8180 | code
    answers = b"" if address is None else struct.pack("!HHHIH", 0xC00C, 1, 1, 60, 4) + ip_address(address).packed
    return struct.pack("!6H", number, flags, 1, bool(answers), 0, 0) + name_of(name) + struct.pack("!HH", 1, 1) + answers


def client_hello(name):
    """A TLS record with the greeting of a client, which names the server it wants (RFC 8446, RFC 6066)."""
    host = name.encode()
    sni = struct.pack("!HHHBH", 0, len(host) + 5, len(host) + 3, 0, len(host)) + host
    body = b"\x03\x03" + bytes(32) + b"\0" + struct.pack("!HH", 2, 0x1301) + b"\x01\0" + struct.pack("!H", len(sni)) + sni
    message = b"\x01" + struct.pack("!I", len(body))[1:] + body
    return b"\x16\x03\x01" + struct.pack("!H", len(message)) + message


def conversation(begin, until, client, server, ports, service, sizes, name=None):
    """A TCP conversation: handshake, then requests and answers every 10 ms, each acknowledged, and its end."""
    sport, dport = ports
    SYN, ACK, PSH, FIN = 2, 16, 8, 1
    up, down = 1000, 9000
    out = []

    def one(at, is_up, flags, payload=b""):
        nonlocal up, down
        ends = (client, sport, server, dport) if is_up else (server, dport, client, sport)
        seq, ack = (up, down) if is_up else (down, up)
        data = tcp_frame(*ends, seq, ack if flags & ACK else 0, flags, payload)
        about = {"src": ends[0], "sport": ends[1], "dst": ends[2], "dport": ends[3], "proto": "tcp", "of": service}
        out.append(Frame(at, data, about))
        moved = len(payload) + bool(flags & (SYN | FIN))
        up, down = (up + moved, down) if is_up else (up, down + moved)

    one(begin, True, SYN)
    one(begin + 0.0005, False, SYN | ACK)
    one(begin + 0.001, True, ACK)
    if name:
        one(begin + 0.0015, True, PSH | ACK, client_hello(name))
        one(begin + 0.002, False, ACK)
    at = begin + 0.01
    request, answers = sizes
    while at < until - 0.02:
        one(at, True, PSH | ACK, bytes(request))
        for number, size in enumerate(answers):
            one(at + 0.001 + number * 0.0001, False, PSH | ACK, bytes(size))
        one(at + 0.003, True, ACK)
        at += 0.01
    one(until - 0.01, True, FIN | ACK)
    one(until - 0.009, False, FIN | ACK)
    one(until - 0.008, True, ACK)
    return out


def datagram(at, source, sport, destination, dport, payload, of, tags=(), to=None):
    about = {"src": source, "sport": sport, "dst": destination, "dport": dport, "proto": "udp", "of": of}
    if tags:
        about["vlan"] = tags[0]
    return Frame(at, udp_frame(source, sport, destination, dport, payload, tags, to), about)


def lookups(length):
    """40 queries to one server, of which 6 fail and 4 have no answer; 8 to a slow one."""
    out = []
    for number in range(40):
        at = 0.1 + number * (length - 0.5) / 40
        name = f"host{number}.example.net"
        out.append(datagram(at, CLIENT, 20000 + number, DNS, 53, dns(number, name), "dns"))
        if number % 10 == 9:
            continue
        code, address = (3, None) if number % 6 == 5 else (0, f"10.9.8.{number}")
        out.append(datagram(at + 0.005, DNS, 53, CLIENT, 20000 + number, dns(number, name, code, address), "dns"))
    for number in range(8):
        at, name = 0.1 + number * 0.1, f"slow{number}.example.net"
        out.append(datagram(at, CLIENT, 21000 + number, SLOW_DNS, 53, dns(number, name), "dns"))
        answer = dns(number, name, 0, "10.9.9.9")
        out.append(datagram(at + 0.8, SLOW_DNS, 53, CLIENT, 21000 + number, answer, "dns"))
    return out


def scan(length):
    """250 ports of the server, 200 of which refuse."""
    out = []
    for number in range(250):
        at, port = 0.2 + number * (length - 0.5) / 250, 1000 + number
        about = {"src": SCANNER, "sport": 55555, "dst": SERVER, "dport": port, "proto": "tcp", "of": "scan"}
        out.append(Frame(at, tcp_frame(SCANNER, 55555, SERVER, port, 77, 0, 2), about))
        if number < 200:
            about = {"src": SERVER, "sport": port, "dst": SCANNER, "dport": 55555, "proto": "tcp", "of": "scan"}
            out.append(Frame(at + 0.001, tcp_frame(SERVER, port, SCANNER, 55555, 0, 78, 20), about))
    return out


def link_layer(length):
    """An ARP storm, two VLANs and pings to everybody."""
    out = []
    for number in range(150):
        packet = struct.pack("!HHBBH", 1, 0x0800, 6, 4, 1) + STORM_MAC + bytes([10, 7, 0, 200]) + bytes(6) + bytes([10, 7, 1, number])
        data = ethernet(STORM_MAC, BROADCAST_MAC, 0x0806, packet.ljust(46, b"\0"))
        out.append(Frame(0.3 + number * (length - 0.6) / 150, data, {"of": "storm", "mac": STORM_MAC.hex(":"), "broadcast": True}))
    for number in range(180):
        vlan = 42 if number % 3 == 0 else 7
        at = 0.2 + number * (length - 0.5) / 180
        out.append(datagram(at, "10.7.7.1", 5000, "10.7.7.2", 5001, bytes(100), "vlan", (vlan,)))
    for number in range(30):
        message = struct.pack("!BBHHH", 8, 0, 0, 1, number) + bytes(40)
        message = message[:2] + struct.pack("!H", total(message)) + message[4:]
        kind, packet = ip("10.7.0.70", "10.7.255.255", 1, message)
        about = {"src": "10.7.0.70", "dst": "10.7.255.255", "proto": "icmp", "of": "pings", "broadcast": True}
        out.append(Frame(0.2 + number * 0.05, ethernet(mac("10.7.0.70"), BROADCAST_MAC, kind, packet), about))
    return out


def too_big():
    """20 datagrams in three fragments each, and 5 messages of the router that a packet was too big."""
    out = []
    for number in range(20):
        segment = struct.pack("!HHHH", 4000, 4001, 8 + 3600, 0) + bytes(3600)
        for place in range(3):
            part = segment[place * 1480 : (place + 1) * 1480]
            fragment = place * 185 | (0x2000 if place < 2 else 0)
            kind, packet = ip(CLIENT, "10.7.0.40", 17, part, fragment, 100 + number)
            about = {"src": CLIENT, "dst": "10.7.0.40", "proto": "udp", "of": "fragments"}
            data = ethernet(mac(CLIENT), mac("10.7.0.40"), kind, packet)
            out.append(Frame(0.5 + number * 0.05 + place * 0.0001, data, about))
    for number in range(5):
        _, packet = ip("10.7.0.41", "10.9.0.41", 6, struct.pack("!HHI", 1234, 443, 5))
        message = struct.pack("!BBHHH", 3, 4, 0, 0, 1400) + packet
        message = message[:2] + struct.pack("!H", total(message)) + message[4:]
        kind, packet = ip(ROUTER, "10.7.0.41", 1, message)
        about = {"src": ROUTER, "dst": "10.7.0.41", "proto": "icmp", "of": "too big"}
        out.append(Frame(0.6 + number * 0.1, ethernet(mac(ROUTER), mac("10.7.0.41"), kind, packet), about))
    return out


def frames(length=4.0, seed=1):
    """The frames of `length` seconds, by time: the same for the same seed."""
    draw = random.Random(seed)
    out = conversation(0.05, length - 0.05, CLIENT, SERVER, (40000, 443), "https", (200, [1400] * 4), SITE)
    out += conversation(0.1, length - 0.05, CLIENT6, SERVER6, (40001, 22), "ssh", (300, [500]))
    for number in range(20):
        begin = 0.1 + number * 0.1
        out += conversation(begin, begin + 0.3, "10.7.0.11", SERVER, (41000 + number, 80), "http", (150, [900]))
    # Random senders of small datagrams to one host.
    for number in range(int(3000 * (length - 0.5))):
        source = f"172.{draw.randrange(16, 32)}.{draw.randrange(256)}.{draw.randrange(256)}"
        out.append(datagram(0.2 + number / 3000, source, draw.randrange(1024, 65536), VICTIM, 9999, bytes(26), "flood"))
    # Each second 200 packets in half a millisecond.
    for second in range(int(length)):
        for number in range(200):
            at = second + 0.5 + number * 0.0000025
            out.append(datagram(at, BURSTER, 6000, "10.7.0.81", 6001, bytes(1200), "bursts"))
    # A host that was not there before.
    for number in range(100):
        out.append(datagram(length - 1.5 + number * 0.01, LATE, 7000, SERVER, 7001, bytes(300), "late"))
    out += lookups(length) + scan(length) + link_layer(length) + too_big()
    return sorted(out, key=lambda frame: frame.at)


def send(interface, length):
    out = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    out.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16 << 20)
    out.bind((interface, 0))
    todo = frames(length)
    begin, sent = time.time() + 0.05, 0
    for frame in todo:
        wait = begin + frame.at - time.time()
        if wait > 0.0005:
            time.sleep(wait)
        sent += out.send(frame.data) == len(frame.data)
    print(json.dumps({"begin": begin, "end": time.time(), "sent": sent, "of": len(todo)}))


if __name__ == "__main__":
    send(sys.argv[1], float(sys.argv[2]))
