"""Optima in small: how long two agents talk, by the weight of the length, without the gate for mute ones, and by DPO.

    python docs/experiments/conversations.py --seeds 5

All arms of a seed begin with one warm-up (`settings/halves`) and sample about as many conversations. The first four
are four rounds of iSFT without the term of the language: lambda of the length 0, -.3 and -.6, and -.6 without the
gate for mute conversations. The next has the term of the language. Then four rounds of DPO: on turns of a tree
(iDPO), and on the best and the worst whole conversation of a task, with as many conversations. Then 200 other
questions are talked about at temperature 1: how many are right, tokens of a conversation, how many are mute, turns,
and the mean NLL of the worst turn under the model after the warm-up. ``episodes`` has the same conversations; regret is
what the answers miss of 1.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from episodes import episode_row

from posttrain import run
from posttrain.components.filters.best_and_worst import BestAndWorst
from posttrain.components.rewards import RewardContext, scored
from posttrain.components.rewards.conversation import Conversation
from posttrain.components.rollouts import Exchange
from posttrain.components.rollouts.dialogue import Dialogue
from posttrain.components.tasks.halves import Halves
from posttrain.engines.native import Native
from posttrain.methods.multi_agent.optima_idpo import searching
from posttrain.methods.multi_agent.optima_isft import optima_isft
from posttrain.models import Model
from posttrain.policies.loading import load_policy
from posttrain.recipes.changes import rl_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.halves import MUTE, halves
from posttrain.stages.rl import RL
from posttrain.statistics.intervals import mean

ALWAYS = ["threads=1", "checkpoints.every_steps=0", "evaluation.holdout=4"]
QUESTIONS = Halves(size=200, seed=9)
ROUNDS = 4


def warm() -> Recipe:
    """The imitation of wordy conversations."""
    recipe = halves()
    return replace(recipe, stages={"sft": recipe.stages["sft"]})


def isft(stage: RL, **reward: float) -> RL:
    """Rounds of iSFT with another reward."""
    assert isinstance(stage.reward, Conversation)
    return replace(stage, reward=replace(stage.reward, **{"language": 0.0, **reward}))


def idpo(stage: RL) -> RL:
    """Rounds of DPO on turns of a tree: 8 + 24 conversations for each of 10 tasks."""
    return replace(searching(isft(stage)), prompts=10)


def whole(stage: RL) -> RL:
    """Rounds of DPO on the best and the worst conversation of a task: 10 for each of 32 tasks."""
    found = searching(isft(stage))
    return replace(found, rollout=stage.rollout, filters={"best_and_worst": BestAndWorst()})


ARMS = {
    "length 0": lambda stage: isft(stage, tokens=0.0),
    "length -.3": lambda stage: isft(stage, tokens=-0.3),
    "length -.6": lambda stage: isft(stage),
    "length -.6, no gate": lambda stage: isft(stage, mute=0),
    "length -.6, language 1": lambda stage: isft(stage, language=1.0),
    "turns of a tree (iDPO)": idpo,
    "whole conversations": whole,
}


def arm(source: Path, name: str) -> Recipe:
    """What follows the warm-up."""
    recipe = optima_isft(halves())
    stage = replace(ARMS[name](rl_of(recipe)), steps=ROUNDS)
    models = {**recipe.models, "policy": Model(source=str(source), trained=True)}
    return replace(recipe, models=models, stages={"rl": stage})


async def measured(source: Path, base: Path) -> dict[str, float]:
    """Conversations of a model about other questions."""
    cpu = torch.device("cpu")
    server = Native().serve(load_policy("policy", Model(source=str(source)), {}, cpu), 0)
    reader = Native().serve(load_policy("base", Model(source=str(base)), {}, cpu), 0)
    stage = rl_of(halves())
    assert isinstance(stage.rollout, Dialogue) and isinstance(stage.reward, Conversation)
    talk = replace(stage.rollout, n=1, rollouts="first")
    tasks = list(QUESTIONS.load())
    groups = await asyncio.gather(*(talk.collect(t, {"policy": server.bind("asked", t.key)}) for t in tasks))
    context = RewardContext(samplers={"base": reader.bind("read")})
    done = [t for [group] in groups for t in await scored(group, stage.reward, context)]
    facts = [fact for t in done if (fact := t.fact(Exchange)) is not None]
    own = replace(stage.reward, language=1.0)
    nll = [(await own._worst([fact], groups[0][0], context))[fact.turns] for fact in facts]
    return {
        "right": float(np.mean([t.solved for t in done])),
        "tokens": float(np.mean([fact.tokens for fact in facts])),
        "mute": float(np.mean([fact.tokens <= MUTE for fact in facts])),
        "turns": float(np.mean([len(fact.turns) for fact in facts])),
        "NLL": float(np.mean(nll)),
    }


def cell(values: Sequence[float]) -> str:
    """A mean with its 95 % interval."""
    found, digits = mean(np.array(values)), 1 if max(values) > 10 else 2
    return f"{found.value:.{digits}f} [{found.interval.low:.{digits}f}, {found.interval.high:.{digits}f}]"


def one_seed(seed: int, out: Path) -> dict[str, dict[str, float]]:
    """All arms of a seed."""

    def trained(recipe: Recipe) -> Path:
        done: Any = run(recipe, changes=[*ALWAYS, f"seed={seed}"], out=out, quiet=True)
        return Path(done.folder) / "model"

    source = trained(warm())
    rows = {"warm-up": asyncio.run(measured(source, source))}
    for name in ARMS:
        rows[name] = asyncio.run(measured(trained(arm(source, name)), source))
        print(seed, name, {key: round(value, 3) for key, value in rows[name].items()}, file=sys.stderr, flush=True)
    return rows


def table(found: Sequence[dict[str, dict[str, float]]]) -> dict[str, Any]:
    """The rows of all seeds as a table."""
    columns = list(found[0]["warm-up"])
    rows = [[name, *(cell([seed[name][key] for seed in found]) for key in columns)] for name in found[0]]
    episodes = [
        episode_row(name, [{**s[name], "success": s[name]["right"], "regret": 1 - s[name]["right"]} for s in found])
        for name in found[0]
    ]
    return {"columns": ["arm", *columns], "table": rows, "episodes": episodes}


def main() -> None:
    """Print the table."""
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("runs"))
    given = parser.parse_args()
    print(json.dumps(table([one_seed(seed, given.out) for seed in range(given.seeds)]), indent=1))


if __name__ == "__main__":
    main()
