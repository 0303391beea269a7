"""RLT: does the reward order explanations, and do those of a trained teacher teach a fresh student more?

    python docs/experiments/teachers.py --seeds 5

Sheet of row 313 (arXiv:2506.08388), on the setting `taught_sums`. For each seed three teachers: one that has imitated
explanations alone, half of which are the bare solution, one trained by `rlt` from there, and one trained with the part
of the solution alone. The first table has the reward, with the first teacher's log-probabilities, of derivations of 60
other sums, of the same characters in another order, of the same steps in another order, of the bare solution, and of
nothing.

For the second each teacher explains 320 other sums, and a fresh student, the bundled model, imitates its explanations
with the solutions for 20 updates. Reported are both parts of the reward, the share of explanations that begin with the
solution, the share that derive it, and the student's accuracy on 200 held-out sums before and after.
"""

import argparse
import asyncio
import json
import random
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from posttrain.components.rewards import RewardContext
from posttrain.components.rewards.teaching import Teaching
from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.components.tasks.files import Files
from posttrain.components.tasks.taught import Taught
from posttrain.engines import Sampling, Server, wait_for
from posttrain.engines.native import Native
from posttrain.methods.rewards.rlt import rlt
from posttrain.models import Model
from posttrain.policies.loading import load_policy
from posttrain.recipes.changes import rl_of, sft_of
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.launch import start
from posttrain.runs.live import LiveView
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.taught_sums import taught_sums
from posttrain.statistics.intervals import mean
from posttrain.types import Group, Score, Segment, Task, Trajectory

COMMON = ["threads=1", "checkpoints.every_steps=0"]
WARM_UP, TERMS = 20, (3, 3)
HOW = Sampling(temperature=0.7, max_tokens=64)


def teachers(seed: int, folder: str) -> dict[str, Path]:
    """The models of three teachers, after imitation, and of two after RL."""
    base = taught_sums()
    stages = {"sft": sft_of(base)}
    imitated = run(replace(base, stages=stages, models={"policy": base.models["policy"]}), seed, folder)
    found = {"imitated": imitated}
    for name, weights in (("solution alone", (0.0, 0.0)), ("whole reward", Teaching().divergence)):
        recipe = rlt()
        stage = rl_of(recipe)
        assert isinstance(stage.reward, Teaching)
        stage = replace(stage, reward=replace(stage.reward, divergence=weights))
        models = {**recipe.models, "policy": Model(source=str(imitated), trained=True)}
        found[name] = run(replace(recipe, models=models, stages={"rl": stage}), seed, folder)
    return found


def run(recipe: Recipe, seed: int, folder: str, *more: str) -> Path:
    """The model that a run leaves; not evaluated."""
    more = more or ("evaluation.by=none",)
    made, _ = start(override(recipe, [f"seed={seed}", *COMMON, *more]), Path(folder), LiveView(json=True))
    return made / "model"


def served(source: str) -> Server:
    """A model that can be sampled from."""
    return Native().serve(load_policy("policy", Model(source=source), {}, torch.device("cpu")), 0)


def others(count: int, seed: int) -> list[Task]:
    """Sums that no teacher has seen."""
    own = taught_sums().tasks
    assert isinstance(own, Taught)
    known = {task.fields["question"] for task in own.load()}
    made = replace(own, tasks=Arithmetic(size=3 * count, terms=TERMS, seed=100 + seed), stated=0.0).load()
    return [task for task in made if task.fields["question"] not in known][:count]


async def written(server: Server, tasks: list[Task], texts: list[str] | None) -> list[Trajectory]:
    """Sampled explanations, or given ones with the teacher's log-probabilities."""

    async def one(number: int, task: Task) -> Trajectory:
        sampler = server.bind("explain", task.key)
        prompt = sampler.prompt(task)
        if texts is None:
            [made] = await sampler.sample(prompt.token_ids, 1, HOW)
            ids, logp, text = made.token_ids, made.logp, made.text
        else:
            text = texts[number]
            ids = sampler.encode_completion(task.prompt, text)
            whole = np.concatenate([prompt.token_ids, ids])
            logp = (await sampler.logp(whole, temperature=0.7))[len(prompt) - 1 :]
        own = Segment(actor="policy", token_ids=ids, trained=True, logp=logp, text=text)
        return Trajectory(task=task, segments=(prompt, own), stop_reason="stop", sample=0)

    return list(await asyncio.gather(*(one(i, task) for i, task in enumerate(tasks))))


async def judged(rows: list[Trajectory], student: Server) -> list[Score]:
    """The reward of each."""
    stage = rl_of(taught_sums())
    context = RewardContext(samplers={"student": student.bind("student")})
    return list(await stage.reward.score(Group(trajectories=tuple(rows), key="all"), context))


def means(scores: list[Score]) -> list[float]:
    """The reward and its parts."""
    parts = [[s.parts[name].value for s in scores] for name in ("solution", "divergence")]
    return [float(np.mean([s.value for s in scores])), *(float(np.mean(own)) for own in parts)]


async def ordered(teacher: Server, student: Server, seed: int) -> dict[str, list[float]]:
    """The reward of derivations, of their characters and of their steps in another order, of solutions, of nothing."""
    tasks = others(60, seed)
    right = [task.demonstrations[0].removesuffix("\n####") for task in tasks]
    rng = random.Random(seed)
    kinds = {
        "derivation": right,
        "characters shuffled": ["".join(rng.sample(t, len(t))) for t in right],
        "steps reversed": [f" {'; '.join(reversed(t.strip().split('; ')))}" for t in right],
        "the solution alone": [f" {task.answer}" for task in tasks],
        "empty": [""] * 60,
    }
    found = {}
    for name, texts in kinds.items():
        rows = await written(teacher, tasks, [f"{text}\n####" for text in texts])
        found[name] = means(await judged(rows, student))
    return found


async def explained(teacher: Server, student: Server, seed: int, path: Path) -> list[float]:
    """Write what a student imitates to a file; the reward's parts, and the shares of bare and of derived solutions."""
    rows = await written(teacher, others(320, seed), None)
    texts = [t.completion.partition("\n####")[0] for t in rows]
    first = [text.lstrip().startswith(str(t.task.answer)) for text, t in zip(texts, rows, strict=True)]
    last = [text.endswith(f"={t.task.answer}") for text, t in zip(texts, rows, strict=True)]
    lines = [
        {"prompt": t.task.fields["question"], "completion": f"{text}\n#### {t.task.answer}", "answer": t.task.answer}
        for text, t in zip(texts, rows, strict=True)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return [*means(await judged(rows, student)), float(np.mean(first)), float(np.mean(last))]


def learned(path: Path, seed: int, folder: str) -> tuple[float, float]:
    """The accuracy of a fresh student before and after it has imitated explanations."""
    base, warm_up = arithmetic(), sft_of(taught_sums())
    stage = replace(warm_up, tasks=Files(path=str(path)), max_steps=WARM_UP)
    recipe = replace(base, stages={"sft": stage}, tasks=Arithmetic(size=1000, terms=TERMS, seed=7))
    model = run(recipe, seed, folder, "evaluation.verifier=match", "evaluation.holdout=200")
    summary = json.loads((model.parent / "summary.json").read_text())
    return float(summary["accuracy_before"]), float(summary["accuracy_after"])


def said(values: list[float]) -> str:
    """A mean with its 95 % interval."""
    own = mean(values)
    return f"{own.value:.3f} [{own.interval.low:.3f}, {own.interval.high:.3f}]"


def main() -> None:
    """Print the numbers of each seed, then both tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0)
    given = parser.parse_args()
    seeds = range(given.first, given.first + given.seeds)
    order: dict[str, list[list[float]]] = {}
    imitated_by: dict[str, list[list[float]]] = {}
    for seed in seeds:
        with TemporaryDirectory() as folder:
            student = served("pebble")
            for name, model in teachers(seed, folder).items():
                teacher = served(str(model))
                if name == "imitated":
                    for kind, own in wait_for(ordered(teacher, student, seed)).items():
                        order.setdefault(kind, []).append(own)
                path = Path(folder) / "explained.jsonl"
                row = wait_for(explained(teacher, student, seed, path))
                imitated_by.setdefault(name, []).append([*row, *learned(path, seed, folder)])
                print(json.dumps({"seed": seed, "teacher": name, "row": imitated_by[name][-1]}), flush=True)
        print(json.dumps({"seed": seed, "order": {kind: own[-1] for kind, own in order.items()}}), flush=True)
    columns = ["", "reward", "part of the solution", "part of the divergence"]
    for table in (order, imitated_by):
        rows = [[name, *(said(list(own)) for own in zip(*of, strict=True))] for name, of in table.items()]
        print(json.dumps({"columns": columns, "table": rows}))
        columns = [*columns, "solution first", "derived", "student before", "student after"]


if __name__ == "__main__":
    main()
