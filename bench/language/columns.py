"""The rules of `weir-bench python` in NumPy, over columns of 65 536 packets: columns.py CASE FILE TURNS

Prints a line for each turn, in which the whole file is read: nanoseconds of this thread's processor time, packets, checksum.
"""

import sys
import time

import numpy as np
import weir

UDP = 17
CASE, FILE, TURNS = sys.argv[1:4]
SET = np.unique(np.array([0x0A000000 | (i * 2654435761 & 0xFFFFFFFF) >> 20 for i in range(1000)], dtype=np.uint32))
MASK, NET = np.uint32(0xFFFFF800), np.uint32(0x0A000000)


def in_prefix(sources):
    return sources & MASK == NET


def in_set(sources):
    return SET[np.searchsorted(SET[:-1], sources)] == sources


def judge(batch):
    if CASE == "fill":
        return len(batch["src4"])
    passes = (batch["ip_version"] == 4) & (batch["protocol"] == UDP)
    passes &= in_set(batch["src4"]) if CASE == "set" else in_prefix(batch["src4"])
    # Lengths of one batch add up to less than 2^32.
    return int(np.dot(batch["wire_len"], passes)) + (int(np.count_nonzero(passes)) << 32)


for _ in range(int(TURNS)):
    total = seen = 0
    source = weir.open(FILE, columns=["ip_version", "protocol", "src4", "wire_len"], workers=1)
    begun = time.thread_time_ns()
    for batch in source:
        total += judge(batch)
        seen += len(batch)
    print(time.thread_time_ns() - begun, seen, total)
