"""End-to-end GRPO for the benchmark: sampling, rewards, learning and recording."""

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from posttrain.recipes.files import find_recipe
from posttrain.recipes.tree import Recipe
from posttrain.runs.launch import start
from posttrain.runs.live import LiveView
from posttrain.runs.speed.children import Enough, Steps
from posttrain.runs.speed.workloads import GROUP, Workload, learning_rate, text_of

MOST_STEPS = 1000


def recipe_for(model: Path, dtype: str, *, slots: int = 256, changes: tuple[str, ...] = ()) -> Recipe:
    """GRPO as it is published, with the model to measure."""
    own = (f"model={model}", f"models.policy.dtype={dtype}", f"engine.slots={slots}")
    return find_recipe("grpo", [*own, *changes])


def grpo(folder: Path, model: Path, dtype: str, workload: Workload, threads: int, device: str) -> Recipe:
    """The recipe of a run in `folder`: the workload's prompts again and again, rewarded by the share of digits."""
    rows = [{"prompt": text_of(prompt), "answer": ""} for prompt in workload.prompts]
    held_out = [{"prompt": "held out", "answer": ""}]
    for name, tasks in (("tasks", rows), ("held_out", held_out)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in tasks))
    reward = "{kind: function, path: 'posttrain.runs.speed.workloads:share_of_digits', time_limit: null}"
    changes = (
        f"tasks={folder / 'tasks.jsonl'}",
        f"evaluation.tasks={folder / 'held_out.jsonl'}",
        f"reward={reward}",
        f"rl.prompts={len(workload.prompts)}",
        f"rollout.n={GROUP}",
        f"rollout.sampling.max_tokens={workload.limit}",
        f"rl.steps={MOST_STEPS}",
        f"lr={learning_rate(workload.name, model)}",
        f"threads={threads}",
        f"device={device}",
        "checkpoints.every_steps=0",
        "checkpoints.every_seconds=1e9",
    )
    return recipe_for(model, dtype, changes=changes)


class Turns(LiveView):
    """The view of a run that waits for its turn before every step."""

    def __init__(self, steps: Steps) -> None:
        super().__init__(lines=True)
        self._steps = steps
        self._begun = False

    def start(self, recipe_name: str, total_steps: int, stages: Mapping[str, int]) -> None:
        """Show nothing."""

    def evaluation(self, name: str, summary: Mapping[str, Any]) -> None:
        """The held-out task is answered before the first step: everything is ready by then."""
        if not self._begun:
            self._begun = True
            self._steps.ready()

    def event(self, kind: str, message: str) -> None:
        """Show nothing."""

    def announce(self, text: str) -> None:
        """Show nothing."""

    def step(self, metrics: Mapping[str, Any], timing: Mapping[str, Any]) -> None:
        """Answers with the result of a step."""
        self._steps.done(
            tokens=metrics["sampled_tokens"],
            reward=metrics["reward"],
            loss=metrics["loss"],
            gradient_norm=metrics["gradient_norm"],
            sampling_seconds=timing["seconds_sample"],
            learning_seconds=timing["seconds_learn"] + timing.get("seconds_signals", 0.0),
        )


def run_in_turns(recipe: Recipe, folder: Path, steps: Steps) -> None:
    """Runs it, one step per turn, until there are no more turns."""
    with contextlib.suppress(Enough):
        start(recipe, folder / "runs", Turns(steps))
