"""Counts packets by destination port, of TCP and UDP together: count_by_port.py SOURCE [FILTER]"""

import sys

import numpy as np
import weir
from sample import batches, run


def main() -> int:
    if len(sys.argv) < 2:
        print("count_by_port.py SOURCE [FILTER]", file=sys.stderr)
        return 2
    packets = np.zeros(65536, dtype=np.int64)
    faults: list[int] = []
    source = weir.open(sys.argv[1], filter="".join(sys.argv[2:3]), columns=["dst_port"])
    for batch in batches(source, faults):
        packets += np.bincount(batch["dst_port"], minlength=65536)
    counts = source.close()
    # Port 0 stands for packets without a port.
    packets[0] = 0
    for port in np.argsort(-packets, kind="stable")[:10]:
        if packets[port]:
            print(port, packets[port])
    print(f"{counts.received} received, {counts.passed} matched")
    return max(faults, default=0)


run(main)
