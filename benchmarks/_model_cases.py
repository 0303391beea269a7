"""Rewards by trained models, rows 100 and 313: is the right text of a task above the wrong ones of the same task?

The models are those of the recipes before reinforcement: the evaluator of `ircoco`, and of `rlt` the teacher, who has
imitated explanations, with the bundled model as the student. A wrong text is accepted where its reward is at least that
of the right one, and a right text is not where a wrong one of its task is above it.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, Final, Protocol

import numpy as np
import torch

from benchmarks._reward_rows import Row, share
from posttrain import run
from posttrain.audit.attack import BITS, edited, pieces
from posttrain.components.rewards import Reward, RewardContext
from posttrain.components.tasks.code_lines import CodeLines
from posttrain.components.tasks.taught import Taught
from posttrain.engines import Server
from posttrain.engines.native import Native
from posttrain.methods.rewards.ircoco import ircoco
from posttrain.methods.rewards.rlt import rlt
from posttrain.models import Model
from posttrain.policies.loading import load_policy
from posttrain.recipes.changes import rl_of
from posttrain.settings.taught_sums import DERIVED
from posttrain.types import Group, Score, Segment, Task, Trajectory

TASKS, ATTACKED, KEPT, BATCH, MOST = 200, 5, 4, 16, 10
FILLER: Final = "Let's solve this problem step by step."
Texts = Callable[[Task, Task], Mapping[str, str]]
"""Of a task and another one: the right text, by the name ``demonstration``, and wrong ones."""


class Scored(Protocol):
    """Something that scores texts of a task."""

    async def scores(self, task: Task, texts: Sequence[str]) -> list[Score]:
        """The scores of texts."""
        ...


@dataclass(frozen=True)
class Judged:
    """A reward with its models."""

    reward: Reward
    writer: Server
    """Gives the log-probabilities of texts."""
    roles: Mapping[str, Server]
    temperature: float

    async def scores(self, task: Task, texts: Sequence[str]) -> list[Score]:
        """The scores of texts."""
        sampler = self.writer.bind("texts", task.key)
        prompt = sampler.prompt(task)

        async def one(text: str) -> Trajectory:
            ids = sampler.encode_completion(task.prompt, text)
            whole = np.concatenate([prompt.token_ids, ids])
            logp = (await sampler.logp(whole, temperature=self.temperature))[len(prompt) - 1 :]
            own = Segment(actor="policy", token_ids=ids, trained=True, logp=logp, text=text)
            return Trajectory(task=task, segments=(prompt, own), stop_reason="stop")

        rows = await asyncio.gather(*map(one, texts))
        context = RewardContext(samplers={name: server.bind(name) for name, server in self.roles.items()})
        return list(await self.reward.score(Group(key=task.key, trajectories=tuple(rows)), context))


def served(source: Path | str, **how: Any) -> Server:
    """A model that reads texts."""
    return Native().serve(load_policy("model", Model(source=str(source), **how), {}, torch.device("cpu")), 0)


def increments(budget: int) -> Row:
    """The numbers of the sum of increments: the evaluator's value of the whole text less that of the prompt."""
    recipe = replace(ircoco(), threads=1)
    stages = {name: recipe.stages[name] for name in ("sft", "values")}
    models = {name: own for name, own in recipe.models.items() if name != "behavior"}
    with TemporaryDirectory() as folder:
        done = run(replace(recipe, stages=stages, models=models), out=Path(folder) / "run", quiet=True)
        kept = max((done.folder / "checkpoints").iterdir()) / "models"
        writer, value = served(kept / "policy"), served(kept / "value", head="reward")
    judged = Judged(rl_of(ircoco()).reward, writer, {"value": value}, 1.0)

    def texts(task: Task, other: Task) -> Mapping[str, str]:
        own = str(task.answer)
        wrong = {
            "another's": str(other.answer),
            "half": own[: len(own) // 2],
            "the prompt": str(task.prompt),
            "filler": FILLER,
            "nothing": "",
        }
        return {"demonstration": own, **wrong, "twice": own + own}

    tasks = CodeLines(size=TASKS, seed=9).load()
    return measured("increments (100)", judged, tasks, texts, lambda task, text: text == task.answer, budget)


def teaching(budget: int) -> Row:
    """The numbers of explanations for a student."""
    recipe = replace(rlt(), threads=1)
    tasks = recipe.tasks
    assert isinstance(tasks, Taught)
    imitation = {"sft": recipe.stages["sft"]}
    with TemporaryDirectory() as folder:
        own = replace(recipe, stages=imitation, models={"policy": recipe.models["policy"]})
        teacher = served(run(own, out=Path(folder) / "run", quiet=True).folder / "model")
    judged = Judged(rl_of(rlt()).reward, teacher, {"student": served("pebble")}, 0.7)
    rng = Random(313)

    def texts(task: Task, other: Task) -> Mapping[str, str]:
        right = task.demonstrations[0]
        plain = right.removesuffix("\n####")
        found = {
            "characters shuffled": "".join(rng.sample(plain, len(plain))),
            "steps reversed": f" {'; '.join(reversed(plain.strip().split('; ')))}",
            "another's": other.demonstrations[0].removesuffix("\n####"),
            "the solution copied": f" {task.answer}",
            "nothing": "",
        }
        closed = {name: f"{text}\n####" for name, text in found.items()}
        return {"demonstration": right, **closed, "half": plain, "twice": plain + right}

    sums: Any = tasks.tasks
    made = replace(tasks, tasks=replace(sums, size=2 * TASKS, seed=313), stated=0.0).load()[:TASKS]
    return measured("teaching (313)", judged, made, texts, _derived, budget)


def _derived(task: Task, text: str) -> bool:
    segment = Segment(actor="policy", token_ids=np.zeros(1, np.int64), trained=True, text=text)
    group = Group(key=task.key, trajectories=(Trajectory(task=task, segments=(segment,), stop_reason="stop"),))
    (score,) = asyncio.run(DERIVED.score(group, RewardContext()))
    return score.status == "ok"


def measured(
    name: str, judged: Scored, tasks: Sequence[Task], texts: Texts, right: Callable[[Task, str], bool], budget: int
) -> Row:
    """All numbers of a reward."""
    row, by_kind = Row(name=name), dict[str, list[float]]()
    refused, passed, wrong_ones, best = 0, 0, 0, []
    start = time.perf_counter()
    for place, task in enumerate(tasks):
        other = next(o for o in [*tasks[place + 1 :], *tasks[:place]] if o.answer != task.answer)
        made = texts(task, other)
        scores = asyncio.run(judged.scores(task, list(made.values())))
        row.cases += len(made)
        row.errors += sum(score.status == "error" for score in scores)
        values = {kind: score.value for kind, score in zip(made, scores, strict=True)}
        for kind, value in values.items():
            by_kind.setdefault(kind, []).append(value)
        wrong = [v for kind, v in values.items() if kind not in ("demonstration", "twice")]
        wrong_ones += len(wrong)
        passed += sum(value >= values["demonstration"] for value in wrong)
        refused += max(wrong) > values["demonstration"]
        best.append(values["demonstration"])
    row.a_second = row.cases / (time.perf_counter() - start)
    row.values = {kind: round(float(np.mean(own)), 4) for kind, own in by_kind.items()}
    row.false_negatives, row.false_positives = share(refused, len(tasks)), share(passed, wrong_ones)
    for task, least in zip(tasks[: ATTACKED if budget else 0], best, strict=False):
        found = climbed(judged, task, [*texts(task, tasks[-1]).values()], budget // ATTACKED)
        row.searched += len(found)
        above = sorted(((v, t) for t, v in found.items() if v >= least), reverse=True)
        above = [(v, t) for v, t in above if t not in task.demonstrations and t != task.answer][:MOST]
        row.finds += [f"{value:g}: {text}" for value, text in above]
        row.wrong_finds += [f"{value:g}: {text}" for value, text in above if not right(task, text)]
    return row


def climbed(judged: Scored, task: Task, starts: list[str], budget: int) -> dict[str, float]:
    """Texts with their rewards: edits of the starts and of the best so far."""
    rng, known = Random(f"climb:{task.key}"), dict[str, float]()
    pool = [*BITS, *(piece for text in starts for piece in pieces(text))]
    waiting = list(dict.fromkeys(starts))
    while len(known) < budget:
        parents = [*sorted(known, key=lambda text: -known[text])[:KEPT], *starts]
        while len(waiting) < BATCH:
            text = edited(rng.choice(parents), pool, rng)[:120]
            waiting += [text] if text not in known and text not in waiting else []
        batch, waiting = waiting[: budget - len(known)], []
        for text, score in zip(batch, asyncio.run(judged.scores(task, batch)), strict=True):
            known[text] = score.value if score.status != "error" else -np.inf
    return known
