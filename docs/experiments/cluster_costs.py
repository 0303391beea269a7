"""What processes of a cluster cost and what sampling ahead does to accuracy, on one machine.

    python docs/experiments/cluster_costs.py --part costs --seeds 5
    python docs/experiments/cluster_costs.py --part lag --seeds 5 --steps 40

With ``--out FILE`` each run is kept there, and those that are there already are not done again.

Costs: GRPO with a model of 3 million weights, drawn at random; each seed runs all configurations one after the other,
so that the ratio to one process is of runs that were close in time. A step's seconds are the median of those after the
first. A change of weights is compared with a copy of as many bytes in memory that was used before. Start and end are
those of Ray and all processes.

Lag: GRPO from the bundled model, in one process (the numbers of a cluster are the same), where step s is sampled with
the weights of step s - 1 - k; accuracy on held-out sums at the end, and the mean reward of the last ten steps.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from posttrain.cluster import Cluster
from posttrain.cluster.local import Local
from posttrain.cluster.ray import Ray
from posttrain.policies.folder import new_folder
from posttrain.recipes.files import find_recipe
from posttrain.runs.launch import start
from posttrain.runs.live import LiveView
from posttrain.runs.profiling import measured
from posttrain.runs.store import RunStore
from posttrain.statistics.intervals import mean

SHAPE: dict[str, Any] = {"layers": 4, "width": 256, "heads": 4, "kv_heads": 2}
CLUSTERS: dict[str, Cluster] = {
    "one process": Local(),
    "1 sampler, 1 learner": Ray(cpus=0.5),
    "2 samplers, 2 learners": Ray(samplers=2, learners=2, cpus=0.5),
    "2 samplers, 2 sharded learners": Ray(samplers=2, learners=2, cpus=0.5, sharding="fsdp"),
}
SIZE = ["threads=1", "prompts=8", "rollout.sampling.max_tokens=32", "evaluation.holdout=4"]
LAGS = {
    "in turn": [],
    "lag 1": ["schedule=lagged", "schedule.steps=1"],
    "lag 2": ["schedule=lagged", "schedule.steps=2"],
    "lag 4": ["schedule=lagged", "schedule.steps=4"],
    "lag 8": ["schedule=lagged", "schedule.steps=8"],
    "lag 8, weights truncated": ["schedule=lagged", "schedule.steps=8", "correction=truncated"],
}


def said(values: Sequence[float], digits: int) -> str:
    """The mean over seeds with its interval."""
    found = mean(np.array(values))
    if len(values) < 2:
        return f"{found.value:.{digits}f}"
    return f"{found.value:.{digits}f} [{found.interval.low:.{digits}f}, {found.interval.high:.{digits}f}]"


def warm_copy(size: int) -> float:
    """Seconds to copy as many bytes into memory that was used before."""
    source, into = np.ones(size, np.uint8), np.zeros(size, np.uint8)
    spent = []
    for _ in range(9):
        began = time.perf_counter()
        into[:] = source
        spent.append(time.perf_counter() - began)
    return statistics.median(spent)


def opened(cluster: Cluster, recipe: Any) -> tuple[float, float]:
    """Seconds until all processes are there, and until they are gone."""
    began = time.monotonic()
    with cluster.open(recipe.engine, 0):
        there = time.monotonic()
    return there - began, time.monotonic() - there


class Rows:
    """Numbers of each run, by configuration and seed."""

    def __init__(self, names: Iterable[str], out: Path | None) -> None:
        self.found: dict[str, dict[int, list[float]]] = {name: {} for name in names}
        self._out = out
        if out is not None and out.is_file():
            for line in out.read_text(encoding="utf-8").splitlines():
                seed, name, *numbers = json.loads(line)
                self.found[name][seed] = numbers

    def add(self, seed: int, name: str, numbers: list[float]) -> None:
        """Keep a run, and show it."""
        self.found[name][seed] = numbers
        line = json.dumps([seed, name, *numbers])
        print(line, flush=True)
        if self._out is not None:
            with self._out.open("a", encoding="utf-8") as file:
                file.write(f"{line}\n")

    def array(self, name: str, seeds: int) -> Any:
        """[S, N] numbers of the runs of a configuration."""
        return np.array([self.found[name][seed] for seed in range(seeds)])


def costs(seeds: int, steps: int, out: Path | None) -> tuple[list[str], list[list[str]]]:
    """Seconds of a step, of a change of weights, of a start and an end."""
    rows = Rows(CLUSTERS, out)
    with tempfile.TemporaryDirectory() as folder:
        model = new_folder(Path(folder) / "model", **SHAPE)
        recipe = find_recipe("grpo", [*SIZE, f"model={model}", "learner.micro_batch_tokens=512"])
        for seed in range(seeds):
            for name, cluster in CLUSTERS.items():
                if seed in rows.found[name]:
                    continue
                timing = measured(replace(recipe, seed=seed), cluster, steps + 1)[1:]
                step, weights = (
                    statistics.median(float(row.get(key, 0.0)) for row in timing)
                    for key in ("seconds_total", "seconds_weights")
                )
                size = max(float(row.get("weight_bytes", 0.0)) for row in timing)
                up, down = (0.0, 0.0) if isinstance(cluster, Local) else opened(cluster, recipe)
                rows.add(seed, name, [step, weights, size, up, down, os.getloadavg()[0]])
    local = rows.array("one process", seeds)[:, 0]
    table = []
    for name in CLUSTERS:
        step, weights, size, up, down, _ = rows.array(name, seeds).T
        row = [name, said(step, 3), said(step / local, 2)]
        if not size.any():
            table.append([*row, *[""] * 4])
            continue
        copy = warm_copy(int(size[0]))
        table.append([*row, f"{size[0] / 1e6:.1f}", said(weights / copy, 1), said(up, 1), said(down, 1)])
    columns = ["", "step, s", "times one process", "weights sent, MB", "times a copy", "start, s", "end, s"]
    return columns, table


def lag(seeds: int, steps: int, out: Path | None) -> tuple[list[str], list[list[str]]]:
    """Accuracy and reward by lag."""
    rows = Rows(LAGS, out)
    common = [f"steps={steps}", "threads=1", "prompts=8", "evaluation.holdout=200", "evaluation.every=0"]
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(seeds):
            for name, changes in LAGS.items():
                if seed in rows.found[name]:
                    continue
                recipe = find_recipe("grpo", [*common, f"seed={seed}", *changes])
                run, summary = start(recipe, Path(folder), LiveView(json=True))
                with RunStore.open(run) as store:
                    rewards = [float(row["reward"]) for row in store.metrics() if "reward" in row][-10:]
                rows.add(seed, name, [100 * float(summary["accuracy_after"]), statistics.mean(rewards)])
    base = rows.array("in turn", seeds)[:, 0]
    table = []
    for name in LAGS:
        right, reward = rows.array(name, seeds).T
        table.append([name, said(right, 1), "" if name == "in turn" else said(right - base, 1), said(reward, 3)])
    return ["weights", "held-out accuracy, %", "against in turn", "reward, last 10 steps"], table


def main() -> None:
    """Print one part."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=["costs", "lag"], required=True)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    part, steps = (costs, 5) if given.part == "costs" else (lag, 60)
    made = part(given.seeds, given.steps or steps, given.out)
    print(json.dumps({"columns": made[0], "table": made[1]}, indent=1))


if __name__ == "__main__":
    main()
