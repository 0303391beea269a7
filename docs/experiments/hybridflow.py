"""One call of a group of processes, and what moves between two layouts. Sheet of row 264 (arXiv:2409.19256).

    python docs/experiments/hybridflow.py --part dispatch [--seeds 5]
    python docs/experiments/hybridflow.py --part shards

Dispatch: 7 sequences of 6 to 12 tokens are scored by a model of random weights in one process, and dealt to 2, 3 and 4
processes (here threads, each with a model of its own) with both paddings; results compared by their bytes and order.

Shards: a model cut p x t ways over d replicas for training and pg x tg ways for generation. What a rank receives by the
rule is counted cell by cell; beside it the formula, gathering the model within a replica, and everywhere.
"""

import argparse
import json
import tempfile
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import torch

from posttrain.cluster.dispatch import Group
from posttrain.cluster.planning.shards import Cuts
from posttrain.models import Model
from posttrain.policies.folder import new_folder
from posttrain.policies.loading import load_policy
from posttrain.signals import LOGP
from posttrain.training.learner import evaluate_examples
from posttrain.training.packing import Example

LAYOUTS = ((1, 4, 1, 1, 2), (1, 8, 2, 1, 2), (2, 4, 2, 1, 2), (4, 4, 2, 1, 4), (4, 8, 4, 2, 2))


class Worker:
    """A process of the group: a thread."""

    def __init__(self, score: Callable[[list[Example]], list[bytes]]) -> None:
        self._score, self._pool = score, ThreadPoolExecutor(1)

    def call(self, method: str, argument: Any) -> "Future[list[bytes]]":
        """Begin."""
        return self._pool.submit(self._score, argument)


def scorer(folder: Path) -> Callable[[list[Example]], list[bytes]]:
    """The log-probabilities of sequences, as bytes."""
    policy = load_policy("reference", Model(source=str(folder)), {}, torch.device("cpu"))

    def score(examples: list[Example]) -> list[bytes]:
        needs = frozenset({LOGP})
        return [evaluate_examples(policy, [e], needs, max_tokens=64)[0][LOGP].tobytes() for e in examples]

    return score


def dispatched(seeds: int) -> dict[str, Any]:
    """Sequences whose bytes are those of one process, in order."""
    table = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = new_folder(Path(temporary) / "tiny", layers=2, width=16, heads=2, kv_heads=1, context=64)
        for count in (2, 3, 4):
            members = [Worker(scorer(folder)) for _ in range(count)]
            group = Group(members=members, wait=lambda parts: [part.result() for part in parts])
            for padding in ("last", "cycle"):
                equal = 0
                for seed in range(seeds):
                    examples = sequences(seed)
                    found = group.call("score", examples, "split", padding)
                    equal += sum(a == b for a, b in zip(found, scorer(folder)(examples), strict=True))
                table.append([f"{count} processes, {padding}", f"{equal} of {7 * seeds}"])
    return {"columns": ["dealt to", "equal to the bit, in order"], "table": table}


def sequences(seed: int) -> list[Example]:
    """Seven sequences of 6 to 12 tokens."""
    rng = np.random.default_rng(seed)
    return [
        Example(
            token_ids=rng.integers(0, 256, 6 + i),
            positions=np.arange(2, 6 + i),
            columns={},
            turn_T=np.zeros(4 + i, int),
        )
        for i in range(7)
    ]


def sharded() -> dict[str, Any]:
    """Shares of the model."""
    table = []
    for p, t, d, pg, tg in LAYOUTS:
        cuts = Cuts(pipeline=p, tensor=t, data=d, generation_pipeline=pg, generation_tensor=tg)
        counted = {Fraction(len(cuts.senders(rank)), p * t) for rank in cuts.ranks}
        twice = sum(len(cuts.consecutive(rank)) for rank in cuts.ranks)
        table.append(
            [
                f"{p} x {t} x {d} to {pg} x {tg}",
                str(cuts.replicas),
                ", ".join(map(str, sorted(counted))),
                str(cuts.received),
                str(cuts.received_in_replica),
                str(cuts.received_everywhere),
                f"{twice} of {p * t}",
            ]
        )
    columns = [
        "layout",
        "replicas that generate",
        "counted",
        "formula",
        "gathered in a replica",
        "gathered everywhere",
        "ranks that hold a part twice, generation groups of consecutive ranks",
    ]
    return {"columns": columns, "table": table}


def main() -> None:
    """Print the table of a part."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=["dispatch", "shards"], required=True)
    parser.add_argument("--seeds", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    found = dispatched(arguments.seeds) if arguments.part == "dispatch" else sharded()
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
