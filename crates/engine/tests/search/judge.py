"""Makes table.csv: the answers of MLRsearch 1.2.1 (PyPI) about simulated devices. Run it with that package on the path:

    python3 judge.py 1000 >table.csv

A device forwards at most its capacity: exactly, or with a noise of 1 % up and down (uniform) from trial to trial. The noise of `noisy` is drawn for
each trial of a run, so that another order of trials has another noise; `again` is the same with other draws, and tells how far the judge agrees
with itself. The noise of `by-load` is drawn for each trial at a load, so that the order does not matter. A line names device and goal; after it, each
seed from 0 on has a row: relevant lower bound, conditional throughput, number of trials, seconds of trials.
"""

import collections
import multiprocessing
import sys

from MLRsearch import AbstractMeasurer, Config, MeasurementResult, MultipleLossRatioSearch, SearchGoal

MASK = (1 << 64) - 1

# First draw of the device `again`.
AGAIN = 1 << 32


def draw(seed, number):
    """A number from 0 to 1: splitmix64 of seed and number."""
    x = (seed * 0x9E3779B97F4A7C15 + number * 0xD1342543DE82EF95 + 1) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return ((x ^ (x >> 31)) >> 11) / (1 << 53)


class Device(AbstractMeasurer):
    def __init__(self, seed, kind):
        self.seed, self.kind, self.trials, self.seconds = seed, kind, 0, 0.0
        self.at = collections.Counter()
        self.capacity = 1e4 * 1000 ** draw(seed, 0)

    def measure(self, intended_duration, intended_load):
        self.trials += 1
        self.seconds += intended_duration
        self.at[intended_load] += 1
        number = {"noisy": self.trials, "again": AGAIN + self.trials, "by-load": self.at[intended_load], "exact": None}[self.kind]
        noise = 0 if number is None else 0.01 * (2 * draw(self.seed, number) - 1)
        capacity = self.capacity * (1 + noise)
        sent = int(intended_duration * intended_load)
        return MeasurementResult(
            intended_duration=intended_duration,
            intended_load=intended_load,
            offered_count=sent,
            forwarding_count=min(sent, int(intended_duration * capacity)),
        )


USUAL = dict(initial_trial_duration=1.0, final_trial_duration=1.0, duration_sum=21.0, exceed_ratio=0.5)
GOALS = {
    "throughput": SearchGoal(
        loss_ratio=0.0, exceed_ratio=0.0, relative_width=0.005, initial_trial_duration=1.0,
        final_trial_duration=60.0, duration_sum=60.0, fail_fast=False,
    ),
    "no-drop": SearchGoal(loss_ratio=0.0, relative_width=0.005, fail_fast=False, **USUAL),
    "partial-drop": SearchGoal(loss_ratio=0.005, relative_width=0.005, fail_fast=False, **USUAL),
}
RUNS = [("exact", "throughput")]
RUNS += [(device, goal) for device in ["exact", "by-load", "noisy", "again"] for goal in ["no-drop", "partial-drop"]]


def row(run):
    (name, goal_name), seed = run
    device, goal = Device(seed, name), GOALS[goal_name]
    config = Config(goals=[goal], min_load=1e3, max_load=2e7, search_duration_max=1e6, warmup_duration=None)
    result = MultipleLossRatioSearch(config=config).search(measurer=device, debug=lambda _: None)[goal]
    lower = float(result.relevant_lower_bound)
    through = float(result.conditional_throughput)
    begin = f"{name} {goal_name}\n" if seed == 0 else ""
    return f"{begin}{lower:.2f},{through:.2f},{device.trials},{device.seconds:.0f}"


if __name__ == "__main__":
    count = int(sys.argv[1])
    with multiprocessing.Pool(2) as pool:
        for line in pool.imap(row, [(run, seed) for run in RUNS for seed in range(count)], 50):
            print(line)
