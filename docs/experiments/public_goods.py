"""Efforts by backward induction and by learning, with synergy and penalty on and off (MAC-SPGG).

    python docs/experiments/public_goods.py tables     # three agents, efforts 0, 1/2 and 1, cost 0.9
    python docs/experiments/public_goods.py writers    # networks for three frozen writers: effort is length

The tables take seconds, the networks minutes. ``episodes`` of the tables has the rollouts in the last tenth of
training: success is that the benchmark is reached, an agent acts in one turn, and regret is what an agent gets by
backward induction, less what it gets; it is below 0 where the agents do better than that.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from episodes import episode_row

from posttrain.components.diagnostics import Subject
from posttrain.components.diagnostics._goods import Payoff, Reals, equilibrium, learnt
from posttrain.components.diagnostics.public_goods import LEVELS, PublicGoods
from posttrain.components.rewards import Reward, RewardContext
from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.engines.native import Native
from posttrain.models import Model
from posttrain.policies.folder import new_folder
from posttrain.policies.loading import load_policy
from posttrain.statistics.intervals import mean
from posttrain.types import Group, Score

LONGEST = 16


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


def episode(payoff: Payoff, effort_BN: Reals, best: float) -> dict[str, float]:
    """Means of episodes, where an agent gets `best` by backward induction."""
    got = float(np.mean([payoff.of(own) for own in effort_BN]))
    reached = float(np.mean(effort_BN.mean(1) >= payoff.benchmark))
    return {"success": reached, "turns": float(effort_BN.shape[1]), "regret": best - got}


def tables(seeds: int) -> None:
    """Three agents that see all efforts before theirs."""
    rows, episodes = [], []
    for name, payoff in arms(Payoff(cost=0.9)).items():
        solved = equilibrium(payoff, LEVELS, 3)
        found = [learnt(payoff, LEVELS, 3, seed=seed) for seed in range(seeds)]
        outcome = ", ".join(f"{effort:g}" for effort in solved.effort)
        rows.append([name, outcome, said([float(own.mean()) for own in found])])
        best = float(np.mean(solved.payoff))
        episodes.append(episode_row(name, [episode(payoff, own, best) for own in found]))
    columns = ["payoff", "equilibrium", "learnt effort"]
    print(json.dumps({"columns": columns, "table": rows, "episodes": episodes}, indent=1))


class Tokens(Reward):
    """The number of tokens of a text, of 16."""

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Count."""
        return [Score(value=min(len(own.segments[-1].token_ids) / LONGEST, 1.0), status="ok") for own in group]


def writers(seeds: int, rounds: int) -> None:
    """Efforts of three writers, before and after."""
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = new_folder(Path(name) / "tiny", layers=1, width=16, heads=2, kv_heads=1, context=256)
        model = load_policy("policy", Model(source=str(folder)), {}, torch.device("cpu"))
        subjects = [
            Subject(name=f"writer {i}", load=lambda: model, serve=lambda policy, own=i: Native().serve(policy, own))  # type: ignore[misc]
            for i in range(3)
        ]
        for arm, payoff in arms(Payoff()).items():
            found = []
            for seed in range(seeds):
                diagnostic = PublicGoods(
                    tasks=Arithmetic(size=100),
                    reward=Tokens(),
                    payoff=payoff,
                    rounds=rounds,
                    tokens=(1, LONGEST),
                    seed=seed,
                )
                found.append(diagnostic.examine(*subjects).values)
                print(arm, seed, json.dumps(found[-1]), file=sys.stderr, flush=True)
            efforts = [
                said([own[when]["effort"][i] for own in found]) for i in range(3) for when in ("before", "after")
            ]
            reached = [said([own[when]["reached"] for own in found]) for when in ("before", "after")]
            payoffs = [said([float(np.mean(own[when]["payoff"])) for own in found]) for when in ("before", "after")]
            rows.append([arm, *efforts, *reached, *payoffs])
    names = ("effort of writer 1", "of writer 2", "of writer 3", "benchmark reached", "mean payoff")
    columns = ["payoff", *(f"{own}, {when}" for own in names for when in ("before", "after"))]
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
