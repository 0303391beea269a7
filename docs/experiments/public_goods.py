"""Efforts by backward induction and by learning, with synergy and penalty on and off (MAC-SPGG).

    python docs/experiments/public_goods.py tables     # three agents, efforts 0, 1/2 and 1, cost 0.9
    python docs/experiments/public_goods.py writers    # networks for three frozen writers: the bundled model, on sums

The tables take seconds, the networks minutes.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from posttrain.components.diagnostics import Subject
from posttrain.components.diagnostics._goods import Payoff, equilibrium, learnt
from posttrain.components.diagnostics.public_goods import LEVELS, PublicGoods
from posttrain.components.rewards.match import Match
from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.engines.native import Native
from posttrain.models import Model
from posttrain.policies.loading import load_policy
from posttrain.statistics.intervals import mean


def said(values: Sequence[float]) -> str:
    """A mean with its 95 % interval."""
    found = mean(np.array(values))
    return f"{found.value:.2f} [{found.interval.low:.2f}, {found.interval.high:.2f}]"


def arms(full: Payoff) -> dict[str, Payoff]:
    """Synergy and penalty, on and off."""
    return {
        "both": full,
        "neither": replace(full, synergy=0.0, penalty=0.0),
        "synergy": replace(full, penalty=0.0),
        "penalty": replace(full, synergy=0.0),
    }


def tables(seeds: int) -> None:
    """Three agents that see all efforts before theirs."""
    rows = []
    for name, payoff in arms(Payoff(cost=0.9)).items():
        solved = equilibrium(payoff, LEVELS, 3)
        found = [learnt(payoff, LEVELS, 3, seed=seed) for seed in range(seeds)]
        outcome = ", ".join(f"{effort:g}" for effort in solved.effort)
        rows.append([name, outcome, said([float(own.mean()) for own in found])])
    print(json.dumps({"columns": ["payoff", "equilibrium", "learnt effort"], "table": rows}, indent=1))


def writers(seeds: int, rounds: int) -> None:
    """The share of right sums of three writers, before and after."""
    model = load_policy("policy", Model(source="pebble"), {}, torch.device("cpu"))
    rows = []
    for name, payoff in arms(Payoff()).items():
        found = []
        for seed in range(seeds):
            subjects = [
                Subject(name=f"writer {i}", load=lambda: model, serve=lambda policy, own=i: Native().serve(policy, own))
                for i in range(3)
            ]
            diagnostic = PublicGoods(
                tasks=Arithmetic(size=400), reward=Match(), payoff=payoff, rounds=rounds, seed=seed
            )
            found.append(diagnostic.examine(*subjects).values)
        cells = [said([float(np.mean(own[when]["effort"])) for own in found]) for when in ("before", "after")]
        last = [said([own[when]["effort"][-1] for own in found]) for when in ("before", "after")]
        rows.append([name, *cells, *last])
    columns = ["payoff", "mean effort before", "after", "last writer before", "after"]
    print(json.dumps({"columns": columns, "table": rows}, indent=1))


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["tables", "writers"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=40)
    given = parser.parse_args()
    if given.what == "tables":
        tables(given.seeds)
    else:
        writers(given.seeds, given.rounds)


if __name__ == "__main__":
    main()
