"""Writes the packets around each that matches: capture_on_trigger.py SOURCE TRIGGER OUT

Of each packet that matches the expression TRIGGER, the 100 before it and the 100 behind it are written too. Batches are held until no
later packet can ask for theirs.
"""

import sys
from collections import deque

import numpy as np
import weir
from sample import batches, run

AROUND = 100


class Held:
    """A batch with the number of its first packet."""

    def __init__(self, batch: weir.Batch, first: int) -> None:
        self.batch, self.first, self.end = batch, first, first + len(batch)
        self.chosen = np.zeros(len(batch), dtype=bool)

    def choose(self, begin: int, end: int) -> None:
        """Chooses packets from number `begin` up to and without `end`, as far as they are here."""
        self.chosen[max(begin - self.first, 0) : max(end - self.first, 0)] = True


def main() -> int:
    if len(sys.argv) != 4:
        print("capture_on_trigger.py SOURCE TRIGGER OUT", file=sys.stderr)
        return 2
    held: deque[Held] = deque()
    received = triggers = 0
    # Packets before this one are chosen as they come.
    until = 0
    faults: list[int] = []
    source = weir.open(sys.argv[1], marks={"trigger": sys.argv[2]})
    sink = weir.Sink(sys.argv[3])

    def write_before(number: int) -> None:
        while held and held[0].end <= number:
            first = held.popleft()
            sink.send(first.batch, first.chosen)
            first.batch.release()

    for batch in batches(source, faults):
        held.append(Held(batch, received))
        held[-1].choose(0, until)
        for at in (received + np.flatnonzero(batch["trigger"])).tolist():
            triggers += 1
            until = at + AROUND + 1
            for one in held:
                one.choose(at - AROUND, until)
        received += len(batch)
        write_before(received - AROUND)
    write_before(received)
    print(f"{received} received, {triggers} triggers, {sink.close().written} written")
    return max(faults, default=0)


run(main)
