"""Negatives of bands or of all ranks alike, with a model that is a table of words and codes. Sheet of row 51 (DDRO).

    python docs/experiments/retrieval_tables.py --seeds 5

The corpus, queries and identifiers are those of the setting `retrieval`, another corpus for each seed. The probability
of part k of an identifier is a softmax over all clusters, of the words of the query and the part before, so that log
pi(d|q) is a sum over four parts, and all documents can be ranked exactly. Imitation after documents, words of documents
and 200 queries; then DPO, beta 0.4, of 600 queries: each query's relevant identifier against six others.

    alike          drawn from all ranks of BM25
    three bands    two each from the ranks to 6, to 32 and to 64
    first ranks    all six from the ranks to 6

On 500 new queries: MRR@10 and recall by the sums of log-probabilities, log pi of the relevant identifier, the share of
pairs whose relevant identifier lost probability, and how often another identifier comes first where probabilities are
renormalized over the parts that may follow (the trie).
"""

import argparse
import asyncio
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from posttrain.components.pairings import Rollouts
from posttrain.components.pairings.bands import Bands
from posttrain.components.tasks.retrieval import CLUSTERS, PARTS, WORDS, Retrieval
from posttrain.statistics.intervals import mean
from posttrain.types import Task

ARMS = {
    "alike": Bands(ends=(64,), counts=(6,)),
    "three bands": Bands(ends=(6, 32, 64), counts=(2, 2, 2)),
    "first ranks": Bands(ends=(7,), counts=(6,)),
}
BETA, RATE = 0.4, 0.02


class Draws:
    """Uniform draws, in the place of a sampler."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng([seed, 51])

    def uniform(self) -> float:
        """In [0, 1)."""
        return float(self.rng.random())


class World:
    """Documents, and their identifiers as codes."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        documents = Retrieval(size=64, form="document", corpus=seed).load()
        names = sorted({str(task.answer) for task in documents})
        self.place = {name: i for i, name in enumerate(names)}
        self.code_DK = torch.tensor([[int(part[-1]) for part in name[1:-1].split("><")] for name in names])
        self.allowed_KDC = torch.zeros(PARTS, len(names), CLUSTERS, dtype=torch.bool)
        for k in range(PARTS):
            same_DD = (self.code_DK[:, None, :k] == self.code_DK[None, :, :k]).all(-1)
            for d in range(len(names)):
                self.allowed_KDC[k, d, self.code_DK[same_DD[d], k]] = True

    def tasks(self, size: int, form: Any, seed: int) -> Sequence[Task]:
        """Texts of this corpus."""
        return Retrieval(size=size, form=form, seed=seed, corpus=self.seed).load()

    def read(self, tasks: Sequence[Task]) -> tuple[Tensor, Tensor]:
        """[Q, W] shares of words of each text, and [Q] places of the relevant identifiers."""
        word = {name: i for i, name in enumerate(WORDS)}
        x_QW = torch.zeros(len(tasks), len(WORDS))
        for row, task in zip(x_QW, tasks, strict=True):
            for name in str(task.prompt)[2:-1].split():
                row[word[name]] += 1.0
        return x_QW / x_QW.sum(1, keepdim=True).sqrt(), torch.tensor([self.place[str(t.answer)] for t in tasks])


class Table(torch.nn.Module):
    """Log-probabilities of all identifiers."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.words = torch.nn.Parameter(torch.zeros(len(WORDS), PARTS, CLUSTERS))
        self.before = torch.nn.Parameter(torch.zeros(PARTS, CLUSTERS + 1, CLUSTERS))

    def forward(self, x_QW: Tensor) -> Tensor:
        """[Q, D] sums of log-probabilities over all clusters."""
        logit_QKPC = torch.einsum("qw,wkc->qkc", x_QW, self.words)[:, :, None] + self.before
        logp_QKPC = logit_QKPC.log_softmax(-1)
        code_DK = self.world.code_DK
        return torch.stack([logp_QKPC[:, k, _previous(code_DK, k), code_DK[:, k]] for k in range(PARTS)]).sum(0)

    def renormalized(self, x_QW: Tensor) -> Tensor:
        """[Q, D] the same over the clusters that may follow."""
        own_QKC, code_DK = torch.einsum("qw,wkc->qkc", x_QW, self.words), self.world.code_DK
        total_QD = torch.zeros(len(x_QW), len(code_DK))
        for k in range(PARTS):
            logit_QDC = own_QKC[:, k, None] + self.before[k][_previous(code_DK, k)][None]
            found_QDC = logit_QDC.masked_fill(~self.world.allowed_KDC[k][None], -torch.inf).log_softmax(-1)
            total_QD += found_QDC.gather(-1, code_DK[None, :, k, None].expand(len(x_QW), -1, 1))[..., 0]
        return total_QD


def _previous(code_DK: Tensor, k: int) -> Tensor:
    return code_DK[:, k - 1] if k else torch.full((len(code_DK),), CLUSTERS)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0)
    given = parser.parse_args()
    found: dict[str, list[dict[str, float]]] = {}
    for seed in range(given.first, given.first + given.seeds):
        for arm, row in one_seed(seed).items():
            found.setdefault(arm, []).append(row)
            print(json.dumps({"seed": seed, "arm": arm, **row}), flush=True)
    columns = list(found["imitation"][0])
    table = [[arm, *(shown([row[name] for row in rows]) for name in columns)] for arm, rows in found.items()]
    print(json.dumps({"columns": ["", *columns], "table": table}, indent=1))


def one_seed(seed: int) -> dict[str, dict[str, float]]:
    """The numbers of every arm."""
    world = World(seed)
    model, queries = Table(world), world.tasks(600, "query", 0)
    stages = ((world.tasks(64, "document", 0), 30), (world.tasks(1000, "pseudo", 0), 60), (queries[:200], 15))
    for tasks, steps in stages:
        x_QW, right_Q = world.read(tasks)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        for _ in range(steps):
            loss = -model(x_QW).gather(1, right_Q[:, None]).mean()
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    test = world.read(world.tasks(500, "query", 1))
    rows = {"imitation": measured(model, test)}
    for arm, rule in ARMS.items():
        own = Table(world)
        own.load_state_dict(model.state_dict())
        lost = learn(own, world, queries, rule, seed)
        rows[arm] = {**measured(own, test), "lost": lost}
    rows["imitation"]["lost"] = 0.0
    return rows


def learn(model: Table, world: World, queries: Sequence[Task], rule: Bands, seed: int) -> float:
    """Sixty steps of DPO on the pairs of a rule; the share of pairs whose relevant identifier lost probability."""
    draws: Any = Draws(seed)
    pairs = []
    for row, task in enumerate(queries):
        found = asyncio.run(rule.pair(Rollouts(task=task, trajectories=(), sampler=draws, scorer=None)))  # type: ignore[arg-type]
        pairs += [(row, world.place[pair.chosen], world.place[pair.rejected]) for pair in found.pairs]
    query_P, first_P, second_P = torch.tensor(pairs).T
    x_QW, _ = world.read(queries)
    reference_QD = model(x_QW).detach()
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    for _ in range(60):
        change_QD = model(x_QW) - reference_QD
        margin_P = change_QD[query_P, first_P] - change_QD[query_P, second_P]
        loss = -torch.nn.functional.logsigmoid(BETA * margin_P).mean()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return float(((model(x_QW) - reference_QD)[query_P, first_P] < 0.0).float().mean())


def measured(model: Table, test: tuple[Tensor, Tensor]) -> dict[str, float]:
    """Ranks of the relevant identifiers of new queries."""
    x_QW, right_Q = test
    with torch.no_grad():
        logp_QD, within_QD = model(x_QW), model.renormalized(x_QW)
    own_Q = logp_QD.gather(1, right_Q[:, None])
    rank_Q = 1.0 + (logp_QD > own_Q).sum(1)
    return {
        "mrr@10": float(torch.where(rank_Q <= 10, 1.0 / rank_Q, 0.0).mean()),
        **{f"recall@{k}": float((rank_Q <= k).float().mean()) for k in (1, 10, 20)},
        "logp": float(own_Q.mean()),
        "other first": float((logp_QD.argmax(1) != within_QD.argmax(1)).float().mean()),
    }


def shown(values: list[float]) -> str:
    """Mean and interval."""
    found = mean(values)
    return f"{found.value:.3f} [{found.interval.low:.3f}, {found.interval.high:.3f}]"


if __name__ == "__main__":
    main()
