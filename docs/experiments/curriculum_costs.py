"""What the choice of tasks costs: milliseconds among 200,000 tasks, and the share of a step of the bundled model.

    python docs/experiments/curriculum_costs.py

In seconds of the processor on one thread, so that other programs change little. For each curriculum that needs no
further model: the median of `select` over twelve steps of 16 tasks, the first one apart, since it makes the state; and
the share of `select` and `observe` in a run of GRPO on sums, four steps of 16 tasks with 8 rollouts. What `look`
samples is not in it: these are rollouts, and count as such.
"""

import json
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from posttrain.components.curricula import Curriculum
from posttrain.recipes.changes import rl_of
from posttrain.recipes.files import find_recipe
from posttrain.runs.launch import start
from posttrain.runs.live import LiveView
from posttrain.types import Task

KINDS = ("uniform", "in_order", "coverage", "prioritized", "bandit", "ucb", "thompson", "variance", "resorted")
TASKS, STEPS, COUNT = 200_000, 12, 16
CHANGES = ("threads=1", "checkpoints.every_steps=0", "evaluation.by=none", "rl.steps=4")


def curriculum(kind: str) -> tuple[Any, Curriculum]:
    """GRPO with a curriculum."""
    recipe = find_recipe("grpo", [*CHANGES, f"rl.curriculum={kind}"])
    return recipe, rl_of(recipe).curriculum


def large(own: Curriculum) -> tuple[float, float]:
    """Milliseconds of the first `select`, and the median of the others."""
    pool = [Task(key=str(i), prompt=str(i), answer="1", domain=f"domain {i % 6}") for i in range(TASKS)]
    state, taken = own.start(), []
    for step in range(STEPS + 1):
        began = time.process_time()
        state, _ = own.select(state, pool, COUNT, seed=0, step=step)
        taken.append(1e3 * (time.process_time() - began))
    return taken[0], statistics.median(taken[1:])


@contextmanager
def counted(kind: type[Curriculum]) -> Iterator[list[float]]:
    """Inside, the list has the seconds of every `select` and `observe` of the kind."""
    own: list[float] = []
    before = {name: getattr(kind, name) for name in ("select", "observe")}

    def timed(method: Any) -> Any:
        def call(*args: Any, **named: Any) -> Any:
            began = time.process_time()
            try:
                return method(*args, **named)
            finally:
                own.append(time.process_time() - began)

        return call

    for name, method in before.items():
        setattr(kind, name, timed(method))
    try:
        yield own
    finally:
        for name, method in before.items():
            setattr(kind, name, method)


def share(kind: str) -> float:
    """Percent of the seconds of a run's steps that the curriculum takes."""
    recipe, own = curriculum(kind)
    with TemporaryDirectory() as folder, counted(type(own)) as taken:
        began = time.process_time()
        start(recipe, Path(folder), LiveView(json=True))
        whole = time.process_time() - began
    return 100.0 * sum(taken) / whole


def main() -> None:
    """Print a row for each curriculum."""
    table = []
    for kind in KINDS:
        first, later = large(curriculum(kind)[1])
        table.append([kind, f"{first:.1f}", f"{later:.2f}", f"{share(kind):.3f}"])
        print("  ".join(table[-1]), flush=True)
    columns = ["curriculum", "first choice, ms", "later ones, ms", "% of a run of four steps"]
    print(json.dumps({"columns": columns, "table": table}))


if __name__ == "__main__":
    main()
