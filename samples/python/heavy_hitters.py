"""Shows the ten IPv4 sources with the most bytes: heavy_hitters.py SOURCE [FILTER]"""

import ipaddress
import sys
from collections import Counter

import numpy as np
import weir
from sample import batches, run


def main() -> int:
    if len(sys.argv) < 2:
        print("heavy_hitters.py SOURCE [FILTER]", file=sys.stderr)
        return 2
    packets: Counter[int] = Counter()
    octets: Counter[int] = Counter()
    faults: list[int] = []
    columns = ["ip_version", "src4", "wire_len"]
    for batch in batches(weir.open(sys.argv[1], filter="".join(sys.argv[2:3]), columns=columns), faults):
        is_v4 = batch["ip_version"] == 4
        sources, places, times = np.unique(batch["src4"][is_v4], return_inverse=True, return_counts=True)
        sums = np.bincount(places, weights=batch["wire_len"][is_v4], minlength=len(sources))
        # Sums of lengths of one batch are exact as float64.
        packets.update(dict(zip(sources.tolist(), times.tolist())))
        octets.update(dict(zip(sources.tolist(), map(int, sums))))
    for address, size in sorted(octets.items(), key=lambda item: (-item[1], item[0]))[:10]:
        print(f"{ipaddress.IPv4Address(address)} {packets[address]} packets {size} bytes")
    print(f"{len(octets)} sources")
    return max(faults, default=0)


run(main)
