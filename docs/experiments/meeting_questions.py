"""Accuracy on questions about states of the meeting game by category, before and after reinforcement on others.

    python docs/experiments/meeting_questions.py --seeds 5

GRPO of the bundled model on 302 of 500 generated questions; 198 others are answered greedily. Four letters are offered;
several may be right, so that a constant letter is right more often than one time in four.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from posttrain import run
from posttrain.components.tasks.meeting_questions import CATEGORIES, LETTERS, MeetingQuestions
from posttrain.statistics.intervals import mean

CHANGES = [
    "tasks={kind: meeting_questions, size: 500}",
    "reward=match",
    "threads=1",
    "checkpoints.every_steps=0",
    "evaluation={holdout: 198, by: answers}",
    "alarms.entropy_collapse.action=note",
    "prompts=32",
    "rollout.n=8",
    "steps=60",
    "lr=1e-4",
]


def cell(values: Sequence[float]) -> str:
    """A mean with its 95 % interval, in percent."""
    found = mean(np.array(values) * 100)
    return f"{found.value:.0f} [{found.interval.low:.0f}, {found.interval.high:.0f}]"


def constant(category: str) -> float:
    """The share that the best constant letter answers rightly."""
    tasks = [t for t in MeetingQuestions(size=500).load() if t.domain == category]
    return max(float(np.mean([letter in (t.answer or "") for t in tasks])) for letter in LETTERS)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("runs"))
    given = parser.parse_args()
    found: dict[str, list[dict[str, float]]] = {"before": [], "after": []}
    for seed in range(given.seeds):
        done = run("grpo", changes=[*CHANGES, f"seed={seed}"], out=given.out, quiet=True)
        lines = (done.folder / "evals.jsonl").read_text(encoding="utf-8").splitlines()
        own = [json.loads(line)["accuracy_by_domain"] for line in lines]
        found["before"].append(own[0])
        found["after"].append(own[-1])
    table = [
        [name, *(cell([one[name] for one in found[when]]) for when in found), f"{constant(name):.0%}"]
        for name in CATEGORIES
    ]
    print(
        json.dumps({"columns": ["category", "before, %", "after, %", "best constant letter"], "table": table}, indent=1)
    )


if __name__ == "__main__":
    main()
