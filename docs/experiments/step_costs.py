"""What parts of mixed and private training cost in units of a plain step, and what merges and edits of a model take.

    .venv/bin/python docs/experiments/step_costs.py

On one thread, in seconds of the processor, so that other programs change little. For the bundled model the same records
are learned from in alternation by steps that are compared, and the ratio of the medians is printed: a private step of
adapters against a plain one; a step with demonstrations beside rollouts against one with rollouts alone, next to the
ratio of their tokens; the gradient of a validation set against a step on the same examples. For a model in the shape
of SmolLM2-135M with random weights, seconds and peak memory of `posttrain merge` and `posttrain edit`, loading and
writing included.
"""

import json
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from subprocess import run
from tempfile import TemporaryDirectory

import torch

from posttrain.components.objectives.likelihood import Likelihood
from posttrain.components.reducers.sequences import Sequences
from posttrain.policies.loading import load_policy
from posttrain.recipes.changes import sft_of
from posttrain.recipes.files import find_recipe
from posttrain.runs.speed._models import make_model
from posttrain.runs.speed.sizes import SIZES
from posttrain.stages.sft import demonstration, example_from
from posttrain.training.learner import Learner, Loss
from posttrain.training.packing import Example
from posttrain.training.private import PrivateLearner

ROUNDS = 15
LOSS = Loss(per_token=Likelihood(), reducer=Sequences())


def main() -> None:
    """Measure, and print a line for each."""
    torch.set_num_threads(1)
    private_step()
    mixed_steps()
    with TemporaryDirectory() as folder:
        large_models(Path(folder))


def compared(first: Callable[[], object], second: Callable[[], object]) -> float:
    """The ratio of the median seconds of the processor of the second to those of the first."""
    times: tuple[list[float], list[float]] = [], []
    for number in range(ROUNDS + 1):
        for own, call in zip(times, (first, second), strict=True):
            began = time.process_time()
            call()
            if number:
                own.append(time.process_time() - began)
    return statistics.median(times[1]) / statistics.median(times[0])


def private_step() -> None:
    """A step of `dp_sgd` on 64 records."""
    recipe = find_recipe("dp_sgd", [])
    learning = sft_of(recipe).learner

    def made(*, private: bool) -> Callable[[], object]:
        policy = load_policy("policy", recipe.models["policy"], {}, torch.device("cpu"))
        tasks = recipe.tasks.load()[:64]
        examples = [example_from(demonstration(policy, task, task.demonstrations[0])) for task in tasks]
        learner = (
            PrivateLearner(policy, learning, seed=0, num_steps=111, records=1800, batch=64)
            if private
            else Learner(policy, replace(learning, privacy=None), seed=0, num_steps=111)
        )
        return lambda: learner.step(examples, LOSS, progress=0.0)

    print(json.dumps({"private step / plain step": compared(made(private=False), made(private=True))}), flush=True)


def mixed_steps() -> None:
    """Demonstrations beside as many rollouts, and a gradient of a validation set."""
    recipe = find_recipe("sft", [])
    policy = load_policy("policy", recipe.models["policy"], {}, torch.device("cpu"))
    shown = [example_from(demonstration(policy, t, t.demonstrations[0])) for t in recipe.tasks.load()[:64]]
    learner = Learner(policy, sft_of(recipe).learner, seed=0, num_steps=100)

    def step(examples: list[Example]) -> Callable[[], object]:
        return lambda: learner.step(examples, LOSS, progress=0.0)

    tokens = sum(len(e.token_ids) for e in shown) / sum(len(e.token_ids) for e in shown[:48])
    mixed = compared(step(shown[:48]), step(shown))
    print(json.dumps({"48 rollouts and 16 demonstrations / 48 rollouts": mixed, "tokens": tokens}), flush=True)
    probe = compared(step(shown), lambda: learner.gradient(shown, LOSS, progress=0.0))
    print(json.dumps({"gradient of a validation set / step on as many": probe}), flush=True)


def used() -> float:
    """Seconds of the processor that ended programs took."""
    found = resource.getrusage(resource.RUSAGE_CHILDREN)
    return found.ru_utime + found.ru_stime


def large_models(folder: Path) -> None:
    """Merges and an edit of two models of 135M weights."""
    models = [str(make_model(folder / f"m{seed}", SIZES["135M"], 0.01, seed)) for seed in (0, 1)]
    texts = folder / "texts.jsonl"
    rows = [{"text": f"this is {'bad' if i % 2 else 'good'} {i}", "label": i % 2} for i in range(40)]
    texts.write_text("".join(json.dumps(row) + "\n" for row in rows))
    commands = {
        "soup": ["merge", *models],
        "ties": ["merge", *models, "--method", "ties", "rate=0.8"],
        "dare": ["merge", *models, "--method", "dare"],
        "edit": ["edit", models[0], "--away", str(texts)],
    }
    for name, words in commands.items():
        before = used()
        done = run(
            [sys.executable, "-m", "posttrain", *words, "--out", str(folder / name)],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        seconds, peak = used() - before, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
        found = {"135M": name, "seconds": seconds, "GiB, of the largest so far": peak, "code": done.returncode}
        print(json.dumps(found | ({"error": done.stderr[-300:]} if done.returncode else {})), flush=True)


if __name__ == "__main__":
    sys.exit(main())
