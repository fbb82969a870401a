"""Passes packets by rules, a line each: firewall.py RULES SOURCE SINK

A line has an IPv4 source address and a protocol number; a packet that one of them names is dropped, all others pass.
"""

import ipaddress
import sys

import numpy as np
import weir
from sample import batches, run


def read(path: str) -> np.ndarray:
    """Rules as numbers in ascending order: protocol above the address."""
    with open(path) as file:
        words = [line.split() for line in file if line.strip()]
    return np.array(
        sorted(int(protocol) << 32 | int(ipaddress.IPv4Address(address)) for address, protocol in words), dtype=np.uint64
    )


def main() -> int:
    if len(sys.argv) != 4:
        print("firewall.py RULES SOURCE SINK", file=sys.stderr)
        return 2
    rules = read(sys.argv[1])
    denied = 0
    faults: list[int] = []
    source = weir.open(sys.argv[2], columns=["ip_version", "src4", "protocol"])
    sink = weir.Sink(sys.argv[3])
    for batch in batches(source, faults):
        keys = batch["protocol"].astype(np.uint64) << np.uint64(32) | batch["src4"]
        drops = (batch["ip_version"] == 4) & np.isin(keys, rules)
        denied += int(drops.sum())
        sink.send(batch, ~drops)
    sent = sink.close()
    print(f"{source.close().received} received, {sent.written} passed, {denied} denied")
    return max(faults, default=0)


run(main)
