"""Order of subtasks by Q-learning, by returns and at random, where a field can be read once another one is known.

    python docs/experiments/subtask_orders.py --seeds 5

A line holds three or five fields and a key word, one of three (or five) with an order each, in a cycle. A worker by
rules reads a field rightly in 90 % of the cases if the field before it in that order was read, whatever its answer,
and never rightly otherwise; the first one needs none. It stands for a frozen model and does not change. The actor is
that of the diagnostic `subtask_order`. Measured on 200 new lines: the share with all fields right.
"""

import argparse
import json
import sys
import zlib
from collections.abc import Sequence

import numpy as np
import torch

from posttrain.components.diagnostics._orders import Actor, Cached, Instance, OrderLearning, Request, learn
from posttrain.components.diagnostics.subtask_order import compared
from posttrain.statistics.intervals import mean

NAMES = ("sender", "date", "place", "sum", "ship")


def order_of(key: int, count: int) -> list[str]:
    """The order in which fields can be read."""
    return [NAMES[(key + i) % count] for i in range(count)]


def instances(count: int, size: int, seed: int) -> list[Instance]:
    """Lines with a key word and the values of all fields."""
    rng, found = np.random.default_rng([seed, count]), []
    for _ in range(size):
        key = int(rng.integers(count))
        gold = {name: str(rng.integers(20)) for name in NAMES[:count]}
        found.append(Instance(text=f"key{key} {' '.join(gold.values())}", gold=gold))
    return found


def worker(requests: Sequence[Request]) -> list[str]:
    """Reads fields by the rule."""
    answers = []
    for request in requests:
        gold = request.instance.gold
        order = order_of(int(request.instance.text[3]), len(gold))
        place = order.index(request.subtask)
        known = place == 0 or order[place - 1] in dict(request.found)
        slip = zlib.crc32(f"{request.instance.text} {request.subtask}".encode()) % 10 == 0
        answers.append(gold[request.subtask] if known and not slip else "?")
    return answers


ARMS = {
    "double DQN": OrderLearning(),
    "returns": OrderLearning(targets="returns"),
}


def measured(count: int, learning: OrderLearning, episodes: Sequence[int], seed: int) -> list[dict[str, float]]:
    """What is right after numbers of episodes."""
    torch.manual_seed(0)
    actor, cached, found, done = Actor(learning, seed), Cached(worker), [], 0
    own, tests = instances(count, 200, seed), instances(count, 200, 1000 + seed)
    for until in episodes:
        share = until / episodes[-1]
        first = 1.0 - 0.95 * done / episodes[-1]
        actor.settings = OrderLearning(targets=learning.targets, explore=(first, 1.0 - 0.95 * share))
        learn(actor, own, cached, until - done, final=False)
        done = until
        late = 1 - cached.calls / cached.asked
        found.append({**compared(actor, tests, Cached(worker)), "cache": late})
    return found


def cell(values: Sequence[float]) -> str:
    """A mean with its 95 % interval."""
    found = mean(np.array(values))
    return f"{found.value:.2f} [{found.interval.low:.2f}, {found.interval.high:.2f}]"


def main() -> None:
    """Print the table."""
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--fields", type=int, default=None)
    parser.add_argument("--arm", choices=sorted(ARMS), default=None)
    given = parser.parse_args()
    episodes, table = (100, 200, 400), list[list[str]]()
    for count in (3, 5):
        if given.fields not in (None, count):
            continue
        for name, learning in ARMS.items():
            if given.arm not in (None, name):
                continue
            found = [measured(count, learning, episodes, seed) for seed in range(given.seeds)]
            print(name, [round(float(np.mean([f[i]["learned"] for f in found])), 3) for i in range(3)], file=sys.stderr)
            last = [own[-1] for own in found]
            if not table or table[-1][0] != f"{count} fields":
                for arm in ("random", "best_fixed", "best_of_each"):
                    table.append(
                        [f"{count} fields", arm.replace("_", " "), *[cell([one[arm] for one in last])] * 3, ""]
                    )
            cells = [cell([own[i]["learned"] for own in found]) for i in range(3)]
            table.append([f"{count} fields", name, *cells, cell([one["cache"] for one in last])])
    columns = ["lines", "order", *(f"after {n} episodes" for n in episodes), "from the cache"]
    print(json.dumps({"columns": columns, "table": table}, indent=1))


if __name__ == "__main__":
    main()
