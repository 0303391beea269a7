"""A table of samples between a thread that samples and one that learns: what a delay buys. Sheet of row 131.

Sampling takes 4 ms, learning 3 ms and bringing weights over 1 ms, of which 0.2 ms to load them; the threads sleep that
long. 200 steps of one sample each, through the table of `posttrain.stages.rl.table`. With a delay of k steps, step s is
sampled with the weights of step s - 1 - k; weights come over beside the sampling of other steps.

    python docs/experiments/asyncflow.py [--seeds 5]
"""

import argparse
import json
import threading
import time

import numpy as np

from posttrain.cluster.planning.streams import Machines, lagged
from posttrain.stages.rl.table import Table
from posttrain.statistics.intervals import mean

SAMPLE, LEARN, SEND, LOAD, STEPS = 4.0, 3.0, 0.8, 0.2, 200
DELAYS = (0, 1, 3)


def run(delay: int) -> tuple[float, int]:
    """Milliseconds a step, and the most steps between the weights that sampled and those that learned."""
    table, changed = Table(), threading.Condition()
    there = {-1: 0.0}
    ages: list[int] = []

    def sample() -> None:
        for step in range(STEPS):
            wanted = max(step - 1 - delay, -1)
            with changed:
                changed.wait_for(lambda wanted=wanted: wanted in there)
            if wanted >= 0:
                time.sleep(LOAD / 1000)
            time.sleep(SAMPLE / 1000)
            with changed:
                table.put(table.add(version=wanted), response=step)
                changed.notify_all()

    def send(step: int) -> None:
        time.sleep(SEND / 1000)
        with changed:
            there[step] = 0.0
            changed.notify_all()

    def learn() -> None:
        for step in range(STEPS):
            with changed:
                changed.wait_for(lambda: bool(table.ready("learn", ("response",))))
                [row] = table.take("learn", ("response",), 1)
                ages.append(step - 1 - table.get(row, "version") if step else 0)
            time.sleep(LEARN / 1000)
            threading.Thread(target=send, args=(step,)).start()

    began = time.perf_counter()
    threads = [threading.Thread(target=sample), threading.Thread(target=learn)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return 1000 * (time.perf_counter() - began) / STEPS, max(ages)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    found = {delay: [run(delay) for _ in range(parser.parse_args().seeds)] for delay in DELAYS}
    table = []
    for delay in DELAYS:
        spent = mean(np.array([milliseconds for milliseconds, _ in found[delay]]))
        ratio = mean(np.array([a / b for (a, _), (b, _) in zip(found[0], found[delay], strict=True)]))
        machines = Machines(places=1, train=LEARN, sync=SEND, load=LOAD)
        exact = lagged([[SAMPLE]] * STEPS, machines, delay)[-1] / STEPS
        table.append(
            [
                f"delay {delay}",
                f"{spent.value:.2f} [{spent.interval.low:.2f}, {spent.interval.high:.2f}]",
                f"{exact:.2f}",
                f"{ratio.value:.2f} [{ratio.interval.low:.2f}, {ratio.interval.high:.2f}]",
                str(max(age for _, age in found[delay])),
            ]
        )
    columns = ["weights", "ms a step", "simulated", "times faster", "most steps between"]
    print(json.dumps({"columns": columns, "table": table}, indent=1))


if __name__ == "__main__":
    main()
