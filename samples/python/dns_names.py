"""Shows the ten names that DNS clients asked for most often: dns_names.py SOURCE

Reads packets where they lie, on every link type: the library tells where the payload begins. Letters are shown as small ones, bytes that
are no letters, digits, - or _ as \\DDD.
"""

import sys
from collections import Counter

import numpy as np
import weir
from sample import batches, run

PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789-_")
UDP = 17


def name_of(frame: memoryview, at: int) -> str | None:
    """The name of the first question of a payload; None if there is none or it is cut. Source: RFC 1035, section 4."""
    if len(frame) < at + 13 or frame[at + 2] >> 7 or frame[at + 4 : at + 6] == b"\0\0":
        return None
    labels = []
    length = 0
    at += 12
    while at < len(frame) and frame[at]:
        label = bytes(frame[at + 1 : at + 1 + frame[at]])
        if frame[at] > 63 or len(label) < frame[at]:
            return None
        labels.append("".join(chr(c) if c in PLAIN else f"\\{c:03}" for c in label.lower()))
        length += len(labels[-1]) + (len(labels) > 1)
        if length > 4 * 255:
            return None
        at += 1 + len(label)
    return ".".join(labels) if labels and at < len(frame) else None


def main() -> int:
    if len(sys.argv) != 2:
        print("dns_names.py SOURCE", file=sys.stderr)
        return 2
    names: Counter[str] = Counter()
    faults: list[int] = []
    for batch in batches(weir.open(sys.argv[1], columns=["protocol", "dst_port", "payload_offset"]), faults):
        payload = batch["payload_offset"]
        asked = np.flatnonzero((batch["protocol"] == UDP) & (batch["dst_port"] == 53) & (payload >= 0))
        names.update(filter(None, (name_of(batch.frame(row), payload[row]) for row in asked)))
    for name, times in sorted(names.items(), key=lambda item: (-item[1], item[0]))[:10]:
        print(name, times)
    print(f"{len(names)} names")
    return max(faults, default=0)


run(main)
