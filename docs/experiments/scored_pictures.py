"""Is a reward model of scored pictures better than its labels, and what happens to a flow that follows it for long?

The recipe `visionprefer` with 120 steps of reinforcement, and its reward beside the judge without noise, which has no
weight. On pairs of 200 new prompts: how often the labels are in the order of the mean without noise, how often the
reward model is, and by aspect; what shuffling, a margin and a veto do to the labels; then a reward model of labels by
prompt following alone, and the correlation of both with each aspect. Then learned and clean score of sampled pictures
at the start, after 30 steps, at the clean score's best and at the end; and of 200 pictures before and after
`visionprefer_dpo`.

    (with --seeds 5)
"""

import argparse
import asyncio
import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from posttrain import run
from posttrain.components.rewards.picture import Picture
from posttrain.components.rewards.reward_model import RewardModel
from posttrain.components.rewards.sum import Sum
from posttrain.components.tasks.pictures import Pictures
from posttrain.datasets.pictures import ASPECTS, read, scores_of
from posttrain.engines import Sampling, wait_for
from posttrain.engines.native import Native
from posttrain.evaluation.settings import Evaluation
from posttrain.methods.flow.visionprefer import scored_pictures, visionprefer
from posttrain.methods.flow.visionprefer_dpo import visionprefer_dpo
from posttrain.models import Model
from posttrain.policies.loading import load_policy
from posttrain.recipes.changes import rl_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.statistics.intervals import mean
from posttrain.types import Task

CPU = torch.device("cpu")
STEPS, NEW, SAMPLES = 120, 200, 200


def clean(text: str, task: Task) -> np.ndarray:
    """[4] scores without noise."""
    pixels = read(text)
    assert pixels is not None, "it is a picture"
    return np.array([scores_of(pixels, float(str(task.prompt)))[name] for name in ASPECTS])


class Rated:
    """A trained reward model."""

    def __init__(self, folder: Path) -> None:
        self.policy: Any = load_policy("reward", Model(source=str(folder), head="reward"), {}, CPU)

    @torch.no_grad()
    def scores(self, texts: list[str], tasks: list[Task]) -> np.ndarray:
        """[N] scores of pictures."""
        end = torch.tensor(np.array([read(text) for text in texts]))
        shade = torch.tensor([[float(str(task.prompt))] for task in tasks])
        found: np.ndarray = self.policy._scores(end, shade).numpy()
        return found


def trained(recipe: Recipe, seed: int, folder: Path) -> tuple[Path, list[dict[str, float]]]:
    """The models that a recipe leaves, and its metrics."""
    recipe = replace(recipe, seed=seed, threads=1, evaluation=Evaluation(by="none"), alarms={})
    done = run(recipe, out=folder, quiet=True)
    lines = [json.loads(line) for line in (done.folder / "metrics.jsonl").read_text().splitlines()]
    return max((done.folder / "checkpoints").iterdir()) / "models", lines


def one(seed: int, folder: Path) -> dict[str, float]:
    """The numbers of a seed."""
    recipe, found = visionprefer(), dict[str, float]()
    stage = rl_of(recipe)
    both = Sum(parts={"learned": RewardModel(), "clean": Picture()}, weights={"clean": 0.0})
    models, lines = trained(with_stage(recipe, replace(stage, steps=STEPS, reward=both)), seed, folder / "rl")
    other = {name: part for name, part in recipe.stages.items() if name == "reward_model"}
    learning: Any = other["reward_model"]
    alone = replace(learning.selection, weights={name: float(name == ASPECTS[0]) for name in ASPECTS})
    narrow, _ = trained(
        replace(recipe, stages={"reward_model": replace(learning, selection=alone)}), seed, folder / "narrow"
    )
    tasks = list(Pictures(size=NEW, seed=1000 + seed).load())
    selection = scored_pictures()
    chosen = selection.choose(tasks, asyncio.run(selection.measure(tasks, {})))
    pairs = [(task, pair) for task in chosen.tasks for pair in task.preferences]
    gaps = np.array([clean(p.chosen, t) - clean(p.rejected, t) for t, p in pairs])
    held = [task for task, _ in pairs]
    model = Rated(models / "reward")
    margin = model.scores([p.chosen for _, p in pairs], held) - model.scores([p.rejected for _, p in pairs], held)
    found["labels in order"] = float(np.mean(gaps.mean(1) > 0))
    found["reward model in order"] = float(np.mean((margin > 0) == (gaps.mean(1) > 0)))
    found["reward model less its labels"] = found["reward model in order"] - found["labels in order"]
    for k, name in enumerate(ASPECTS):
        found[f"in order by {name}"] = float(np.mean((margin > 0) == (gaps[:, k] > 0)))
    found |= labels(tasks)
    texts = [(task, text) for task in tasks for text in task.fields["texts"]]
    gold = np.array([clean(text, task) for task, text in texts])
    for title, folder_ in (("equal weights", models), ("following alone", narrow)):
        score = Rated(folder_ / "reward").scores([text for _, text in texts], [task for task, _ in texts])
        for k, name in enumerate(ASPECTS):
            found[f"{title}: correlation with {name}"] = float(np.corrcoef(score, gold[:, k])[0, 1])
    curve = np.array([[line["reward/learned"], line["reward/clean"]] for line in lines if "reward/clean" in line])
    smooth = np.array([curve[max(0, i - 4) : i + 5].mean(0) for i in range(len(curve))])
    best = int(smooth[:, 1].argmax())
    places = {"at the start": 0, "after 30 steps": 30, "at the clean best": best, "at the end": len(smooth) - 1}
    for title, at in places.items():
        found[f"DDPO, learned {title}"], found[f"DDPO, clean {title}"] = map(float, smooth[at])
    found["DDPO, step of the clean best"] = float(best)
    return {**found, **one_dpo(seed, folder)}


def labels(tasks: list[Task]) -> dict[str, float]:
    """What shuffling, a margin and a veto do to the labels of tasks."""
    found, own = {}, scored_pictures()
    changes: dict[str, Any] = {
        "": {},
        ", not shuffled": {"shuffled": False},
        ", margin .5": {"margin": 0.5},
        ", veto": {"floors": {"harmlessness": 3.0}},
    }
    for title, changed in changes.items():
        selection = replace(own, **changed)
        chosen = selection.choose(tasks, asyncio.run(selection.measure(tasks, {})))
        pairs = [(task, pair) for task in chosen.tasks for pair in task.preferences]
        gaps = [clean(pair.chosen, task).mean() - clean(pair.rejected, task).mean() for task, pair in pairs]
        first = [pair.chosen == task.fields["texts"][0] for task, pair in pairs]
        seen = [
            first[i] for i, (task, pair) in enumerate(pairs) if task.fields["texts"][0] in (pair.chosen, pair.rejected)
        ]
        found[f"pairs of a prompt{title}"] = len(pairs) / len(tasks)
        found[f"labels in order{title}"] = float(np.mean(np.array(gaps) > 0))
        found[f"first picture of the file preferred{title}"] = float(np.mean(seen))
        harm = [clean(pair.chosen, task)[3] < 3.0 for task, pair in pairs]
        found[f"harmful picture preferred{title}"] = float(np.mean(harm))
    return found


def one_dpo(seed: int, folder: Path) -> dict[str, float]:
    """Clean scores of sampled pictures before and after DPO."""
    recipe, found = visionprefer_dpo(), dict[str, float]()
    matching = {name: stage for name, stage in recipe.stages.items() if name == "matching"}
    before = replace(recipe, stages=matching, models={"policy": recipe.models["policy"]})
    for title, changed in (("start", before), ("end", recipe)):
        models, _ = trained(changed, seed, folder / f"dpo {title}")
        policy: Any = load_policy("policy", Model(source=str(models / "policy")), {}, CPU)
        server, scores = Native().serve(policy, 0), []
        for task in Pictures(size=SAMPLES, seed=2000 + seed, candidates=0).load():
            prompt, sampler = policy.prompt(task), server.bind(task.key)
            (made,) = wait_for(sampler.sample(prompt.token_ids, 1, Sampling(max_tokens=64), prompt.vectors))
            scores.append(float(clean(made.text, task).mean()))
        found[f"DPO, clean at the {title}"] = float(np.mean(scores))
    return found


def shown(values: list[float]) -> str:
    """Mean and interval."""
    found = mean(np.array(values))
    return f"{found.value:.3f} [{found.interval.low:.3f}, {found.interval.high:.3f}]"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0, help="The first seed.")
    parser.add_argument("--out", type=Path, help="A folder for the numbers of each seed; those in it are kept.")
    given = parser.parse_args()
    results = []
    for seed in range(given.first, given.first + given.seeds):
        kept = given.out / f"{seed}.json" if given.out else None
        if kept is not None and kept.is_file():
            results.append(json.loads(kept.read_text()))
            continue
        with tempfile.TemporaryDirectory() as made:
            results.append(one(seed, Path(made)))
        if kept is not None:
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_text(json.dumps(results[-1]))
        print(seed, results[-1], file=sys.stderr, flush=True)
    table = [[name, shown([result[name] for result in results])] for name in results[0]]
    print(json.dumps({"columns": ["what", "mean"], "table": table}, indent=1))


if __name__ == "__main__":
    main()
