"""Prints the largest sources and ports of each second, and of all, as lines of JSON: top_talkers.py SOURCE [FILTER]"""

import json
import sys

import weir
from sample import run


def main() -> int:
    if len(sys.argv) < 2:
        print("top_talkers.py SOURCE [FILTER]", file=sys.stderr)
        return 2
    # What was good before a failure is in the answers.
    for answer in weir.windows(sys.argv[1], filter="".join(sys.argv[2:3]), window=1, key=["src", "dport"]):
        print(json.dumps(answer.json, separators=(",", ":")))
    return 0


run(main)
