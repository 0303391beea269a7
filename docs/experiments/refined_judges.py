"""What does each phase of agents find, and what does a policy learn by a judge with and without them?

Greetings have up to eight faults (`tasks/greetings`). First `selections/optimized_rules` by code, ten rounds with and
without a phase or the gate: how many of the four rare faults have a rule, how many of the common ones, and how many
harmless words, over 100 seeds, and what the gate takes away. Then `selections/refined_pairs` by code on 400 greetings
of the data: verdicts that are right, with and without a phase. With ``--runs``, recipes at their defaults: GRPO by the
first rules, by optimised ones with and without a phase, by the reward model of reviewed texts, and by one that learned
from as many labels as the rules saw (80). Reported are good greetings of 100 held out before and after, and the reward
of the last ten steps.

    python docs/experiments/refined_judges.py --seeds 5 --runs
"""

import argparse
import asyncio
import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from posttrain import run
from posttrain.components.selections.optimized_rules import OptimizedRules
from posttrain.components.selections.refined_pairs import RefinedPairs, retrieved
from posttrain.components.tasks.files import Files
from posttrain.components.tasks.greetings import Greetings
from posttrain.datasets.greetings import COMMON, HOPES, RARE, faults_of
from posttrain.datasets.reviews import CodeReviewers
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.methods.reward_models.guided_judge import guided_judge
from posttrain.methods.reward_models.refined_preferences import refined_preferences
from posttrain.recipes.changes import rl_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.greetings import greetings
from posttrain.statistics.intervals import mean

GAMES: dict[str, dict[str, Any]] = {
    "both phases": {},
    "no adversarial phase": {"phases": ("reflection",)},
    "no reflection": {"phases": ("adversarial",)},
    "faulty rewritings 40 %": {"slips": 0.4},
    "faulty rewritings 40 %, no gate": {"slips": 0.4, "held_out": 0},
}
PHASES = ("retrieval", "merits", "flaws", "reflection")
LABELS = 80
GAMES_PLAYED = 100
"""Seeds of the rules, which take .05 s each."""


def game(seed: int, settings: dict[str, Any]) -> list[float]:
    """Shares of rare faults, of common ones and of harmless words that have a rule."""
    tasks = Greetings(size=400, seed=seed).load()
    rules = asyncio.run(OptimizedRules(rounds=10, **settings).measure(tasks, {}))["detecting"]
    return [sum(name in rules for name in names) / len(names) for names in (RARE, COMMON, HOPES)]


def reviewed(seed: int, left_out: str) -> list[float]:
    """Verdicts that are right, and bad texts that are called good, of the texts of the data."""
    tasks = Greetings(size=1500, seed=seed).load()
    pool = [task for task in tasks[400:] if "label" in task.fields]
    selection = RefinedPairs(phases=tuple(phase for phase in PHASES if phase != left_out))  # type: ignore[arg-type]

    async def verdict(task: Any) -> int | None:
        examples = retrieved(task, pool, 64, 16) if left_out != "retrieval" else []
        agents = CodeReviewers(rng=Random(f"{seed}:{task.key}"), slips=selection.slips)
        return await selection._reviewed(agents, task.prompt, task.demonstrations[0], examples)

    found = [asyncio.run(verdict(task)) for task in tasks[:400]]
    gold = [int(not faults_of(str(task.prompt), task.demonstrations[0])) for task in tasks[:400]]
    right = np.mean([a == b for a, b in zip(found, gold, strict=True)])
    missed = np.mean([a for a, b in zip(found, gold, strict=True) if not b])
    return [float(right), float(missed)]


def labelled_pairs(seed: int, path: Path) -> Files:
    """Pairs of good and bad texts for the same name at the same occasion, of `LABELS` labelled texts."""
    tasks = [task for task in Greetings(size=400, seed=100 + seed).load() if "label" in task.fields][:LABELS]
    groups: dict[str, tuple[list[Any], list[Any]]] = {}
    for task in tasks:
        groups.setdefault(str(task.prompt).split("(")[0], ([], []))[task.fields["label"]].append(task)
    rows = [
        {"prompt": one.prompt, "chosen": one.demonstrations[0], "rejected": other.demonstrations[0]}
        for bad, good in groups.values()
        for one in good
        for other in bad
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return Files(path=str(path))


def arms(seed: int, folder: Path) -> dict[str, Recipe]:
    """The recipes."""
    guided, refined = guided_judge(), refined_preferences()

    def rules(phases: Any) -> Recipe:
        stage = rl_of(guided)
        return with_stage(guided, replace(stage, selection=replace(stage.selection, phases=phases)))  # type: ignore[type-var]

    learning: Any = refined.stages["reward_model"]
    few = replace(learning, selection=None, tasks=labelled_pairs(seed, folder / "pairs.jsonl"), epochs=40.0)
    return {
        "first rules": grpo(greetings()),
        "optimised rules": guided,
        "optimised rules, no adversarial phase": rules(("reflection",)),
        "reward model of reviewed texts": refined,
        f"reward model of {LABELS} labels": replace(refined, stages={**refined.stages, "reward_model": few}),
    }


def trained(recipe: Recipe, seed: int, folder: Path) -> list[float]:
    """Good greetings before and after, and the reward at the end."""
    done = run(replace(recipe, seed=seed, threads=1), out=folder, quiet=True)
    summary = json.loads((done.folder / "summary.json").read_text())
    lines = [json.loads(line) for line in (done.folder / "metrics.jsonl").read_text().splitlines()]
    rewards = [line["reward"] for line in lines if "reward" in line][-10:]
    return [100 * summary["accuracy_before"], 100 * summary["accuracy_after"], float(np.mean(rewards))]


def shown(values: list[float], digits: int = 2) -> str:
    """Mean and interval."""
    found = mean(np.array(values))
    return f"{found.value:.{digits}f} [{found.interval.low:.{digits}f}, {found.interval.high:.{digits}f}]"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0, help="The first seed.")
    parser.add_argument("--runs", action="store_true", help="Train policies, too.")
    parser.add_argument("--out", type=Path, help="A folder for the numbers of each run; those in it are kept.")
    parser.add_argument("--only", default="", help="Recipes whose name has this text.")
    given = parser.parse_args()
    seeds = range(given.first, given.first + given.seeds)
    table, games = [], dict[str, list[list[float]]]()
    for name, settings in GAMES.items():
        games[name] = [game(seed, settings) for seed in range(GAMES_PLAYED)]
        table.append([f"rules, {name}", *(shown([row[i] for row in games[name]]) for i in range(3))])
    pairs = list(zip(*(games[f"faulty rewritings 40 %{end}"] for end in (", no gate", "")), strict=True))
    table.append(["the gate takes away", *(shown([one[i] - other[i] for one, other in pairs]) for i in range(3))])
    for name in ("nothing", *PHASES):
        rows = [reviewed(seed, name) for seed in seeds]
        table.append([f"reviews without {name}", *(shown([row[i] for row in rows]) for i in range(2)), ""])
    results: dict[str, list[list[float]]] = {}
    for seed in seeds if given.runs else ():
        with tempfile.TemporaryDirectory() as made:
            for name, recipe in arms(seed, Path(made)).items():
                if given.only not in name:
                    continue
                kept = given.out / f"{seed} {name}.json" if given.out else None
                if kept is not None and kept.is_file():
                    found = json.loads(kept.read_text())
                else:
                    found = trained(recipe, seed, Path(made) / name.replace(" ", "_").replace(",", ""))
                if kept is not None:
                    kept.parent.mkdir(parents=True, exist_ok=True)
                    kept.write_text(json.dumps(found))
                results.setdefault(name, []).append(found)
                print(seed, name, found, file=sys.stderr, flush=True)
    for name, rows in results.items():
        columns = [[row[i] for row in rows] for i in range(3)]
        table.append([f"GRPO, {name}", shown(columns[0], 1), shown(columns[1], 1), shown(columns[2])])
    columns_shown = [
        "what",
        "rare faults with a rule; right verdicts; good before, %",
        "common faults with a rule; bad called good; good after, %",
        "harmless words with a rule; reward at the end",
    ]
    print(json.dumps({"columns": columns_shown, "table": table}, indent=1))


if __name__ == "__main__":
    main()
