"""A search for where the calls of a step are executed, against all plans and the symmetric one. Sheet of row 281
(arXiv:2406.14088).

    python docs/experiments/realhf.py --part search [--tables 50]
    python docs/experiments/realhf.py --part large --tables 2
    python docs/experiments/realhf.py --part measured

Search: random tables of 4 calls with 2 to 4 candidates, and of 6 calls with 8; Metropolis with 2,000 proposals against
all plans (of 6 calls the first two tables, one iteration). A plan is five iterations of calls, with transfers
of weights between them, within the memory of a device.

Measured: the plans that are found for PPO's calls on four devices are executed by threads, one a device, which sleep
for the seconds of the profile (in units of 10 ms): generate 4 on all or 7 on half, two scores of 2.8 to 3, train 6 on
all or 4 on half.
"""

import argparse
import json
import threading
import time
from typing import Any

import numpy as np

from posttrain.cluster.planning.calls import Call, Candidate, Plan, cost
from posttrain.cluster.planning.search import Problem, brute_force, metropolis, symmetric
from posttrain.statistics.intervals import mean

UNIT, ITERATIONS, REPEATS = 0.01, 5, 5


def on(devices: str, seconds: float, static: int = 0, active: int = 0) -> Candidate:
    """A candidate; devices are digits, the layout is data parallel."""
    own = frozenset(map(int, devices))
    return Candidate(devices=own, seconds=seconds, layout=(1, len(own), 1), static=static, active=active)


def random_problem(seed: int, calls: int, candidates: int | None, iterations: int) -> Problem:
    """Calls on random meshes of eight devices. The first and the last are of one model, which the last one trains."""
    rng = np.random.default_rng([seed, calls])
    made = []
    for place in range(calls):
        count = candidates or int(rng.integers(2, 5))
        options = [on("01234567", float(rng.integers(4, 20)), int(rng.integers(1, 10)), 1)]
        while len(options) < count:
            devices = "".join(str(d) for d in range(8) if rng.random() < 0.5) or "0"
            options.append(on(devices, float(rng.integers(1, 40)), int(rng.integers(1, 20)), 2))
        after = tuple(f"c{other}" for other in range(place) if rng.random() < 0.5)
        model = "actor" if place in (0, calls - 1) else f"m{place}"
        made.append(Call(name=f"c{place}", model=model, candidates=options, after=after, trains=place == calls - 1))
    sizes = range(1, 9)
    transfers = {("actor", (1, a, 1), (1, b, 1)): float(rng.integers(1, 4)) for a in sizes for b in sizes}
    return Problem(calls=made, transfers=transfers, capacity=60, iterations=iterations)


def searched(tables: int, calls: int, candidates: int | None, iterations: int = ITERATIONS) -> list[str]:
    """Optima that were found, the mean excess, and how much longer the symmetric plan takes."""
    excess, slower = [], []
    for seed in range(tables):
        problem = random_problem(seed, calls, candidates, iterations)
        best = brute_force(problem).seconds
        excess.append(metropolis(problem, seed=seed)[0].seconds / best - 1.0)
        slower.append(symmetric(problem).seconds / best)
    found, ratio = sum(e < 1e-12 for e in excess), mean(np.array(slower))
    return [
        f"{calls} calls, {candidates or '2 to 4'} candidates",
        f"{found} of {tables}",
        f"{100 * max(excess):.2f}",
        f"{ratio.value:.2f} [{ratio.interval.low:.2f}, {ratio.interval.high:.2f}]",
    ]


def ppo() -> list[Call]:
    """PPO's calls on four devices."""
    scores = [on("01", 2.8), on("23", 3.0), on("0123", 2.9)]
    return [
        Call(name="generate", model="actor", candidates=[on("0123", 4.0), on("01", 7.0)]),
        Call(name="reference", model="reference", candidates=scores, after=("generate",)),
        Call(name="reward", model="reward", candidates=scores, after=("generate",)),
        Call(
            name="train",
            model="actor",
            candidates=[on("0123", 6.0), on("01", 4.0)],
            after=("reference", "reward"),
            trains=True,
        ),
    ]


def executed(calls: list[Call], plan: Plan) -> float:
    """Seconds of the profile that five iterations of a plan take, executed by threads."""
    done, changed, busy = set[tuple[int, str]](), threading.Condition(), set[int]()
    trainer = next(call.name for call in calls if call.trains)

    def work(iteration: int, call: Call) -> None:
        own = call.candidates[plan[call.name]]
        waits = {(iteration, name) for name in call.after}
        waits |= {(iteration - 1, trainer if call.model == "actor" else call.name)} if iteration else set()
        with changed:
            changed.wait_for(lambda: waits <= done and not busy & own.devices)
            busy.update(own.devices)
        time.sleep(own.seconds * UNIT)
        with changed:
            busy.difference_update(own.devices)
            done.add((iteration, call.name))
            changed.notify_all()

    threads = [threading.Thread(target=work, args=(i, call)) for i in range(ITERATIONS) for call in calls]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return (time.perf_counter() - began) / UNIT


def measured() -> dict[str, Any]:
    """Three plans for PPO's calls, planned and executed."""
    calls = ppo()
    problem = Problem(calls=calls, iterations=ITERATIONS)
    greedy = {c.name: min(range(len(c.candidates)), key=lambda i, c=c: c.candidates[i].seconds) for c in calls}
    plans = {
        "found by the search": metropolis(problem, seed=0)[0].plan,
        "the fastest of each call": greedy,
        "the same devices for all": symmetric(problem).plan,
    }
    table = []
    for name, plan in plans.items():
        spent = mean(np.array([executed(calls, plan) for _ in range(REPEATS)]))
        planned = cost(calls, plan, iterations=ITERATIONS)
        low, high = spent.interval.low, spent.interval.high
        table.append([name, f"{planned:.1f}", f"{spent.value:.1f} [{low:.1f}, {high:.1f}]"])
    return {"columns": ["plan", "planned", "executed"], "table": table}


def main() -> None:
    """Print the table of a part."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=["search", "large", "measured"], required=True)
    parser.add_argument("--tables", type=int, default=50)
    arguments = parser.parse_args()
    if arguments.part == "measured":
        print(json.dumps(measured(), indent=1))
        return
    large = arguments.part == "large"
    table = [searched(arguments.tables, 6, 8, 1) if large else searched(arguments.tables, 4, None)]
    columns = ["tables", "optima found", "largest excess, %", "symmetric plan, times the best"]
    print(json.dumps({"columns": columns, "table": table}, indent=1))


if __name__ == "__main__":
    main()
