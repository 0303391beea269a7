"""The branches of the survey of optimization of agents on one environment, with as many episodes each.

    python docs/experiments/agent_branches.py --seeds 5                        # --arms raft gigpo: these alone

A ball is in one of six boxes; half of the prompts state which. An episode has two turns. All arms of a seed start from
one imitation, which is right half of the time where the box is stated and avoids the boxes that notes name, and have
2,048 episodes of 16 steps of 16 tasks, or 24 answers of an expert to prompts that state the box. Then 200 other tasks
of each kind are answered at temperature 1: in one episode, in three independent ones, and in three with notes on those
that failed. "Episodes to 80 %" is what the arm had sampled when 80 % of the episodes with a stated box of three steps
succeeded. Notes change no weight, by digest. ``episodes`` has the first episodes; regret is what success misses of the
best play, which is 1 where the box is stated and 1/3 in two turns where it is hidden.
"""

import argparse
import asyncio
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import torch
from episodes import episode_row
from numpy.typing import NDArray

from posttrain import run
from posttrain.components.diagnostics._digest import digest_of
from posttrain.components.environments import Episode
from posttrain.components.filters.best_and_worst import BestAndWorst
from posttrain.components.objectives.pairwise import Pairwise
from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.preferences.dpo import DPO
from posttrain.components.reducers.sequences import Sequences
from posttrain.components.rollouts import Row
from posttrain.components.rollouts.reflected import Notes, Reflected
from posttrain.components.rollouts.turns import Turns
from posttrain.components.tasks.files import Files
from posttrain.components.tasks.guessing import Guessing
from posttrain.engines import Server
from posttrain.engines.native import Native
from posttrain.methods.credit.gigpo import gigpo
from posttrain.methods.reward_models._from_data import rewarded_by
from posttrain.methods.sampling.raft import raft
from posttrain.models import Model
from posttrain.policies.loading import load_policy
from posttrain.recipes.changes import every_group, rl_of, sft_of, with_stage, with_stages_after
from posttrain.recipes.tree import Recipe
from posttrain.settings.noted_guesses import noted_guesses
from posttrain.stages.outcome_model import OutcomeModelTraining
from posttrain.statistics.intervals import mean
from posttrain.training.settings import Learning
from posttrain.types import Task

ALWAYS = ["threads=1", "checkpoints.every_steps=0", "evaluation.holdout=20", "alarms.entropy_collapse.action=note"]
SHOWN, PER_STEP, NOTE = 24, 128, "Not {turns}.\n"


def warm() -> Recipe:
    """The imitation of random answers alone."""
    recipe = noted_guesses()
    return replace(recipe, stages={"sft": recipe.stages["sft"]})


def after(recipe: Recipe, source: str) -> Recipe:
    """The recipe without its warm-up, from a model."""
    stages = {name: stage for name, stage in recipe.stages.items() if name != "sft"}
    return replace(recipe, stages=stages, models={**recipe.models, "policy": Model(source=source, trained=True)})


def imitating(recipe: Recipe, folder: Path) -> Recipe:
    """With a stage of imitation of an expert after the warm-up."""
    rows = [
        {"prompt": task.prompt, "answer": task.answer, "completion": f" {task.answer}"}
        for task in Guessing(size=SHOWN, seed=5, hidden=0.0).load()
    ]
    path = folder / "expert.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    first = sft_of(recipe)
    stage = replace(first, tasks=Files(path=str(path)), epochs=10.0, learner=Learning(optimizer=AdamW(lr=1e-3)))
    return with_stages_after(recipe, {"expert": stage}, first)


def preferring(recipe: Recipe) -> Recipe:
    """DPO on the best and the worst episode of each task."""
    stage = rl_of(recipe)
    filters = {**every_group(stage), "best_and_worst": BestAndWorst()}
    loss = Pairwise(loss=DPO(reference="old"))
    return with_stage(recipe, replace(stage, filters=filters, objective=loss, reducer=Sequences()))


def inferring(recipe: Recipe) -> Recipe:
    """GRPO by a model of outcomes, which learns from half of the episodes."""
    stage = replace(rl_of(recipe), steps=8)
    learning = OutcomeModelTraining(
        rollout=stage.rollout,
        reward=stage.reward,
        reducer=Sequences(),
        role="reward",
        steps=8,
        learner=Learning(optimizer=AdamW(lr=1e-3)),
    )
    return rewarded_by(with_stage(recipe, stage), learning, name="inferred")


def arms(folder: Path) -> dict[str, Recipe]:
    """A recipe for each branch with training."""
    world = noted_guesses()
    return {
        "expert episodes, SFT": imitating(warm(), folder),
        "own successful episodes, SFT (raft)": raft(world),
        "preferences on episodes (DPO)": preferring(world),
        "RL, reward of the environment (gigpo)": gigpo(world),
        "RL, learned reward": inferring(world),
        "hybrid: expert SFT, then RL": imitating(gigpo(world), folder),
    }


async def answered(
    server: Server, tasks: Sequence[Task], kept: int, tries: int = 3
) -> tuple[NDArray[np.bool_], dict[str, float]]:
    """[N, tries] whether a task is solved after 1, 2, ... episodes; and means of the last ones."""
    world = rl_of(noted_guesses()).rollout
    assert isinstance(world, Turns)
    rollout = Reflected(
        environment=world.environment,
        n=1,
        tries=tries,
        max_turns=world.max_turns,
        notes=Notes(kept=kept, note=NOTE),
        sampling=world.sampling,
    )
    found = await asyncio.gather(*(rollout.collect(task, {"policy": server.bind(kept, task.key)}) for task in tasks))
    rows, turns, tokens = [], [], []
    for [group] in found:
        [last] = group.trajectories
        episode, place = last.fact(Episode), last.fact(Row)
        assert episode is not None and episode.verdict is not None and place is not None
        rows.append([episode.verdict.solved and place.row <= i for i in range(tries)])
        turns.append(episode.turns)
        tokens.append(last.num_trained)
    return np.array(rows), {"turns": float(np.mean(turns)), "tokens": float(np.mean(tokens))}


def first_episodes(server: Server, tasks: Sequence[Task], best: float) -> dict[str, float]:
    """Means of episodes in which the best play has this success."""
    solved, means = asyncio.run(answered(server, tasks, 0, tries=1))
    return {**means, "success": float(solved.mean()), "regret": best - float(solved.mean())}


def reached(folder: Path) -> float:
    """Episodes until 80 % of those of three steps with a stated box succeed; NaN if they never do."""
    sampled, shares = 0, list[float]()
    for path in sorted((folder / "rollouts").glob("*.parquet")):
        rows = pq.read_table(path, columns=["stage", "domain", "score_status"]).to_pylist()
        own = [row["score_status"] == "ok" for row in rows if row["stage"] == "rl" and row["domain"] == "told"]
        if own:
            sampled += PER_STEP
            shares.append(float(np.mean(own)))
            if len(shares) >= 3 and np.mean(shares[-3:]) >= 0.8:
                return float(sampled)
    return math.nan


Measured = tuple[dict[str, float], dict[str, dict[str, float]]]
"""The shares of an arm, and the means of its first episodes by kind of box."""


def measured(done: Path, seed: int) -> Measured:
    """Shares of solved tasks, and first episodes."""
    policy = load_policy("policy", Model(source=str(done / "model")), {}, torch.device("cpu"))
    before = digest_of(policy)
    server = Native().serve(policy, seed)
    told, hidden = (list(Guessing(size=200, seed=9, hidden=share).load()) for share in (0.0, 1.0))
    named, plain, noted = (asyncio.run(answered(server, *own))[0] for own in ((told, 0), (hidden, 0), (hidden, 3)))
    first = {"stated": first_episodes(server, told, 1.0), "hidden": first_episodes(server, hidden, 1 / 3)}
    assert digest_of(policy) == before, "notes change no weight"
    shares = {
        "stated box, one episode": named[:, 0].mean(),
        "hidden box, one episode": plain[:, 0].mean(),
        "hidden, three episodes": plain[:, 2].mean(),
        "hidden, three with notes": noted[:, 2].mean(),
        "episodes to 80 %": reached(done),
    }
    assert shares["stated box, one episode"] == first["stated"]["success"]
    return shares, first


def cell(name: str, values: Sequence[float]) -> str:
    """A mean with its 95 % interval."""
    if name.startswith("episodes"):
        own = [value for value in values if not math.isnan(value)]
        return f"{np.mean(own):.0f} ({len(own)} of {len(values)} seeds)" if own else "never"
    found = mean(np.array(values))
    return f"{found.value:.2f} [{found.interval.low:.2f}, {found.interval.high:.2f}]"


def main() -> None:
    """Print the table."""
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--arms", nargs="*", help="words in the names of branches; all without it")
    parser.add_argument("--out", type=Path, default=Path("runs"))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    found: dict[str, list[dict[str, float]]] = {}
    episodes: dict[str, list[dict[str, float]]] = {}

    def trained(recipe: Recipe, seed: int) -> Path:
        return run(recipe, changes=[*ALWAYS, f"seed={seed}"], out=given.out, quiet=True).folder

    for seed in range(given.seeds):
        first = trained(warm(), seed)
        own = {"none: notes alone (experience)": measured(first, seed)}
        for name, recipe in arms(given.out).items():
            if given.arms is not None and not any(word in name for word in given.arms):
                continue
            own[name] = measured(trained(after(recipe, str(first / "model")), seed), seed)
        for name, (values, first_of) in own.items():
            found.setdefault(name, []).append(values)
            for kind, means in first_of.items():
                episodes.setdefault(f"{name}; {kind} box", []).append(means)
            print(
                seed, name, {key: round(float(value), 2) for key, value in values.items()}, file=sys.stderr, flush=True
            )
    columns = ["training", *next(iter(found.values()))[0]]
    table = [[name, *(cell(key, [one[key] for one in rows]) for key in columns[1:])] for name, rows in found.items()]
    held_out = [episode_row(name, own) for name, own in episodes.items()]
    print(json.dumps({"columns": columns, "table": table, "episodes": held_out}, indent=1))


if __name__ == "__main__":
    main()
