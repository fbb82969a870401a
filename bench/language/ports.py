"""Packets by destination port, with one of several libraries: ports.py LIBRARY FILE TURNS PACKETS

Reads the first packets of the file. Prints a line for each turn: nanoseconds of the process' processor time, packets, checksum.
"""

import sys
import time
from collections import Counter

LIBRARY, FILE, TURNS, PACKETS = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])


def with_weir():
    import numpy as np
    import weir

    counts = np.zeros(65536, dtype=np.int64)
    source = weir.open(FILE, columns=["dst_port"], limit=PACKETS)
    for batch in source:
        counts += np.bincount(batch["dst_port"], minlength=65536)
    ports = np.flatnonzero(counts)
    return source.close().received, zip(ports.tolist(), counts[ports].tolist())


def with_weir_frames():
    """Packet by packet, as the other libraries do it: frames are looked at in Python."""
    import weir

    counts, seen = Counter(), 0
    for batch in weir.open(FILE, limit=PACKETS):
        for row in range(len(batch)):
            frame = batch.frame(row)
            if frame[12] == 8 and frame[13] == 0 and frame[23] in (6, 17):
                at = 14 + (frame[14] & 15) * 4
                counts[frame[at + 2] << 8 | frame[at + 3]] += 1
        seen += len(batch)
    return seen, counts.items()


def with_dpkt():
    import dpkt

    counts, seen = Counter(), 0
    with open(FILE, "rb") as file:
        for _, data in dpkt.pcap.Reader(file):
            packet = dpkt.ethernet.Ethernet(data).data
            if isinstance(packet, dpkt.ip.IP) and isinstance(packet.data, (dpkt.tcp.TCP, dpkt.udp.UDP)):
                counts[packet.data.dport] += 1
            seen += 1
            if seen == PACKETS:
                break
    return seen, counts.items()


def with_scapy():
    from scapy.layers.inet import TCP, UDP
    from scapy.utils import PcapReader

    counts, seen = Counter(), 0
    with PcapReader(FILE) as packets:
        for packet in packets:
            layer = packet.getlayer(TCP) or packet.getlayer(UDP)
            if layer is not None:
                counts[layer.dport] += 1
            seen += 1
            if seen == PACKETS:
                break
    return seen, counts.items()


WAYS = {"weir": with_weir, "weir-frames": with_weir_frames, "dpkt": with_dpkt, "scapy": with_scapy}
# Imports are no part of a turn.
WAYS[LIBRARY]()
for _ in range(TURNS):
    begun = time.process_time_ns()
    seen, counts = WAYS[LIBRARY]()
    ns = time.process_time_ns() - begun
    print(ns, seen, sum(packets * (port + 1) for port, packets in counts if port > 0))
