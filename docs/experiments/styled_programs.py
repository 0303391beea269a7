"""Ratings and correctness after imitation, DPO, and both. Sheet of row 296 (arXiv:2403.09032).

    .venv/bin/python docs/experiments/styled_programs.py --seeds 5

For each seed the bundled model learns small Bash programs in several forms (the warm-up of the setting
`styled_programs`). From there: imitation of plain programs; DPO on pairs of its own answers under principles, rated by
code; or imitation, then DPO. On 100 instructions that nothing was trained on, each greedy answer is rated by all five
preferences and run. Prints a line of JSON for each seed and arm, then the table: the mean rating (1 to 5), the share of
programs that pass their tests, and the rating of each preference.
"""

import argparse
import asyncio
import json
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from posttrain.components.rewards.io_tests import IOTests
from posttrain.components.rewards.program_form import rating
from posttrain.components.selections._sampling import sample_all
from posttrain.components.tasks.styled_programs import StyledPrograms
from posttrain.datasets.coding_preferences import RUBRICS
from posttrain.engines import Sampling
from posttrain.engines.native import Native
from posttrain.methods.preference.code_ultra_feedback import code_ultra_feedback
from posttrain.models import Model
from posttrain.policies.loading import load_policy
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.launch import start
from posttrain.runs.live import LiveView
from posttrain.statistics.intervals import mean
from posttrain.types import Task

COMMON = ["threads=1", "evaluation.by=none", "checkpoints.every_steps=0"]
ARMS = {"warm-up": ("lesson",), "SFT": ("sft",), "DPO": ("dpo",), "SFT, DPO": ("sft", "dpo")}


def main() -> None:
    """Run every seed and print the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--arms", nargs="+", choices=list(ARMS), default=list(ARMS), help="the warm-up first")
    given = parser.parse_args()
    found: dict[str, list[dict[str, float]]] = {}
    recipe = code_ultra_feedback()
    lesson: Any = recipe.stages["lesson"]
    known = {asked(task) for task in (*recipe.tasks.load(), *lesson.tasks.load())}
    test = [task for task in StyledPrograms(size=1000, seed=2).load() if asked(task) not in known][:100]
    with TemporaryDirectory() as folder:
        for seed in range(given.first, given.first + given.seeds):
            base = ""
            for arm in given.arms:
                names = ARMS[arm]
                own = replace(recipe, stages={name: recipe.stages[name] for name in names})
                if base:
                    own = replace(own, models={**own.models, "policy": Model(source=base, trained=True)})
                model = started(own, seed, f"{len(names)}{names[0]}-{seed}", folder)
                base = base or str(model)
                row = measured(model, test)
                found.setdefault(arm, []).append(row)
                print(json.dumps({"seed": seed, "arm": arm, **row}), flush=True)
    columns = list(found["warm-up"][0])
    table = [[arm, *(shown([row[name] for row in rows]) for name in columns)] for arm, rows in found.items()]
    print(json.dumps({"columns": ["", *columns], "table": table}, indent=1))


def asked(task: Task) -> str:
    """The expression of an instruction."""
    return str(task.prompt).rpartition("Bash: ")[2].strip()


def started(recipe: Recipe, seed: int, name: str, folder: str) -> Path:
    """The model that a run leaves."""
    own = replace(override(recipe, [f"seed={seed}", *COMMON]), name=name)
    if "dpo" not in own.stages:
        own = replace(own, models={"policy": own.models["policy"]})
    made, _ = start(own, Path(folder), LiveView(json=True))
    return made / "model"


def measured(model: Path, test: list[Task]) -> dict[str, float]:
    """Ratings and correctness of greedy answers."""
    policy = load_policy("policy", Model(source=str(model)), {}, torch.device("cpu"))
    return asyncio.run(answered(Native().serve(policy, 0).bind("test"), test))


async def answered(server: Any, test: list[Task]) -> dict[str, float]:
    """The answers of a server, rated and run."""
    reward = IOTests(language="bash")
    reward.prepare()
    sampling = Sampling(temperature=0.0, max_tokens=64)
    groups = await sample_all(test, {"policy": server}, reward, role="policy", n=1, sampling=sampling, kind="test")
    rollouts = [t for group in groups for t in group]
    by_name = {
        name: sum(rating(t.completion, name, asked(t.task)) for t in rollouts) / len(rollouts) for name in RUBRICS
    }
    passed = [t.solved for t in rollouts]
    return {"rating": sum(by_name.values()) / len(by_name), "passed": sum(passed) / len(passed), **by_name}


def shown(values: list[float]) -> str:
    """Mean and interval."""
    found = mean(values)
    return f"{found.value:.3f} [{found.interval.low:.3f}, {found.interval.high:.3f}]"


if __name__ == "__main__":
    main()
