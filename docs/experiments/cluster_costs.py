"""What processes of a cluster cost and what sampling ahead does to accuracy, on one machine.

    python docs/experiments/cluster_costs.py --part costs weights gradients --seeds 5 --write
    python docs/experiments/cluster_costs.py --part lag --seeds 5 --steps 40

With ``--out FOLDER`` each run is kept there, and those that are there already are not done again. ``--write`` writes
the tables from which `docs/scale.py` makes a section of docs/scale.md.

Costs: GRPO with a model of 3 million weights, drawn at random, whose reward is the share of even bytes, so that each
step changes the weights. Each seed runs all configurations one after the other, so that the ratio to one process is of
runs that were close in time. A step's seconds are the median of those after the first. Start and end are those of Ray
and all processes; memory is that of Ray's own, with its share of what is shared with others (PSS).

Weights: seconds until two samplers have a new version, against a copy of as many bytes in memory that was used before.

Gradients: 128 MB of gradients of 2 and of 4 processes, exchanged and added in a fixed order, and by reduce-scatter.

Lag: GRPO from the bundled model, in one process (the numbers of a cluster are the same), where step s is sampled with
the weights of step s - 1 - k; accuracy on held-out sums at the end, and the mean reward of the last ten steps.
"""

import argparse
import json
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch

from posttrain.cluster import Cluster
from posttrain.cluster.local import Local
from posttrain.cluster.ray import Ray
from posttrain.engines.native import Native
from posttrain.models import Model
from posttrain.policies.folder import new_folder
from posttrain.policies.loading import load_policy
from posttrain.recipes.files import find_recipe
from posttrain.runs.launch import start
from posttrain.runs.live import LiveView
from posttrain.runs.profiling import measured
from posttrain.runs.store import RunStore
from posttrain.statistics.intervals import mean
from posttrain.types import Task

SHAPE: dict[str, Any] = {"layers": 4, "width": 256, "heads": 4, "kv_heads": 2}
LARGE: dict[str, Any] = {"layers": 10, "width": 1024, "heads": 16, "kv_heads": 16}
"""Of which 500 MB of weights are."""
LAG: tuple[str, ...] = ("schedule=lagged", "schedule.steps=1")
CLUSTERS: dict[str, tuple[Cluster, Sequence[str]]] = {
    "one process": (Local(), ()),
    "1 sampler, 1 learner": (Ray(cpus=0.5), ()),
    "1 sampler, 1 learner, one step ahead": (Ray(cpus=0.5), LAG),
    "2 samplers, 2 learners": (Ray(samplers=2, learners=2, cpus=0.5), ()),
    "2 samplers, 2 sharded learners": (Ray(samplers=2, learners=2, cpus=0.5, sharding="fsdp"), ()),
}
SIZE = ["threads=1", "prompts=8", "rollout.sampling.max_tokens=32", "evaluation.holdout=4", "evaluation.every=0"]
LAGS = {
    "in turn": [],
    "lag 1": ["schedule=lagged", "schedule.steps=1"],
    "lag 2": ["schedule=lagged", "schedule.steps=2"],
    "lag 4": ["schedule=lagged", "schedule.steps=4"],
    "lag 8": ["schedule=lagged", "schedule.steps=8"],
    "lag 8, weights truncated": ["schedule=lagged", "schedule.steps=8", "correction=truncated"],
}
Table = dict[str, Any]


def even(completion: str, task: Task) -> float:
    """The reward of the costs: the share of even bytes, which no two completions have alike."""
    given = completion.encode()
    return sum(byte % 2 == 0 for byte in given) / max(len(given), 1)


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


def opened(cluster: Cluster, recipe: Any) -> tuple[float, float, float]:
    """Seconds until all processes are there, and until they are gone; and the bytes of Ray's own processes."""
    if isinstance(cluster, Local):
        return 0.0, 0.0, 0.0
    began = time.monotonic()
    with cluster.open(recipe.engine, 0) as session:
        there = time.monotonic()
        size = memory_of_ray(session)
        ended = time.monotonic()
    return there - began, time.monotonic() - ended, float(size)


def memory_of_ray(session: Any) -> int:
    """Bytes of the processes of a cluster that are neither samplers nor learners: proportional set size."""
    from posttrain.cluster._processes import marked

    actors = {member.pid for member in session.all}
    size = 0
    for pid, folder in marked().items():
        if folder == str(session.folder) and pid not in actors:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            size += sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))
    return size


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


def costs(seeds: int, steps: int, out: Path | None) -> Table:
    """Seconds of a step, of a change of weights, of a start and an end."""
    rows = Rows(CLUSTERS, out)
    with tempfile.TemporaryDirectory() as folder:
        model = new_folder(Path(folder) / "model", **SHAPE)
        common = [*SIZE, f"model={model}", "learner.micro_batch_tokens=512", f"reward={__file__}:even"]
        for seed in range(seeds):
            for name, (cluster, changes) in CLUSTERS.items():
                if seed in rows.found[name]:
                    continue
                recipe = find_recipe("grpo", [*common, *changes])
                timing = measured(replace(recipe, seed=seed), cluster, steps + 1)[1:]
                step, weights, size = (
                    statistics.median(float(row.get(key, 0.0)) for row in timing)
                    for key in ("seconds_total", "seconds_weights", "weight_bytes")
                )
                rows.add(seed, name, [step, weights, size, *opened(cluster, recipe), os.getloadavg()[0]])
    local = rows.array("one process", seeds)[:, 0]
    table = []
    for name in CLUSTERS:
        step, weights, size, up, down, ray, _ = rows.array(name, seeds).T
        row = [name, said(step, 3), said(step / local, 2)]
        if not size.any():
            table.append([*row, *[""] * 5])
            continue
        sent = [f"{size[0] / 1e6:.1f}", said(1000 * weights, 1)]
        table.append([*row, *sent, said(up, 1), said(down, 1), said(ray / 1e6, 0)])
    return {
        "caption": f"GRPO, 3.2 million weights, {seeds} seeds, {steps} steps of 64 completions of 32 tokens.",
        "columns": [
            "",
            "step, s",
            "times one process",
            "weights sent a step, MB",
            "in ms",
            "start, s",
            "end, s",
            "Ray's own memory, MB",
        ],
        "rows": table,
    }


def weights(seeds: int, steps: int, out: Path | None) -> Table:
    """Seconds until two samplers have a new version, against a copy of as many bytes.

    They take it with their next requests: what an empty request to each takes without a new version is subtracted.
    """
    import ray

    def asked(session: Any, name: str) -> float:
        began, samplers = time.perf_counter(), session.samplers
        due = [member.due.get(name) for member in samplers]
        found = ray.get([member.actor.take.remote(name, own) for member, own in zip(samplers, due, strict=True)])
        for member, own, seconds in zip(samplers, due, found, strict=True):
            session.taken(member, own, seconds)
        return time.perf_counter() - began

    del steps
    table = []
    for shape in (SHAPE, LARGE):
        with tempfile.TemporaryDirectory() as folder:
            source = str(new_folder(Path(folder) / "model", **shape))
            policy = load_policy("policy", Model(source=source, trained=True), {}, torch.device("cpu"))
        with Ray(samplers=2, cpus=0.5, store_mb=1024).open(Native(), 0) as session:
            spent, ratios, size, name = [], [], 0, session.name_of(policy)
            for change in range(seeds + 3):
                policy.version += 1
                before = warm_copy(size) if change > 2 else 1.0
                empty = statistics.median(asked(session, name) for _ in range(9)) if change > 2 else 0.0
                began = time.perf_counter()
                size = session.publish(policy, "sample").bytes
                asked(session, name)
                if change > 2:  # the first makes the copies, the others read memory for the first time
                    spent.append(time.perf_counter() - began - empty)
                    ratios.append(spent[-1] / before)
        print(json.dumps([size, *spent, *ratios]), flush=True)
        table.append([f"{size / 1e6:.1f}", said([1000 * own for own in spent], 1), said(ratios, 1)])
    return {
        "caption": f"A change of weights for two samplers on one machine, {seeds} times: until both have read it, "
        "without what a request takes that brings nothing.",
        "columns": ["weights, MB", "ms", "times a copy of as many bytes"],
        "rows": table,
    }


BYTES = 128_000_000
"""Of gradients, in the table of exchanges."""


def exchanged(rank: int, size: int, place: str, repeats: int, into: Any) -> None:
    """One process of a group: seconds of each exchange, both ways by turns."""
    from torch import distributed

    from posttrain.cluster._gang import join
    from posttrain.cluster._sums import Sums

    torch.set_num_threads(1)
    group, given = join(place, rank, size, 60.0), torch.full((BYTES // 4,), float(rank + 1))
    spent = []
    for _ in range(repeats + 1):
        sums = Sums(group, rank, size, {"w": given}, {"w": torch.float32})
        group.barrier().wait(timedelta(seconds=60))
        began = time.perf_counter()
        sums.round({"w": given}, [True] * size)
        own = time.perf_counter() - began
        options, piece = distributed.ReduceScatterOptions(), torch.empty(BYTES // 4 // size)
        group.barrier().wait(timedelta(seconds=60))
        began = time.perf_counter()
        group._reduce_scatter_base(piece, given.clone(), options).wait()
        spent.append([own, time.perf_counter() - began])
        total = size * (size + 1) / 2
        assert float(piece[0]) == float(sums._sums[0][0]) == total, "both ways add up to the same"
    into.put(spent[1:])


def gradients(seeds: int, steps: int, out: Path | None) -> Table:
    """Seconds of an exchange of gradients, in a fixed order of sums and by reduce-scatter."""
    del steps, out
    context, table = multiprocessing.get_context("spawn"), []
    for size in (2, 4):
        with tempfile.TemporaryDirectory() as folder:
            found: Any = context.Queue()
            given = [(rank, size, f"{folder}/place", seeds, found) for rank in range(size)]
            processes = [context.Process(target=exchanged, args=own) for own in given]
            for process in processes:
                process.start()
            slowest = np.max([found.get(timeout=240) for _ in processes], axis=0)  # [repeats, 2]
            for process in processes:
                process.join()
        print(json.dumps([size, slowest.tolist()]), flush=True)
        ours, theirs = slowest.T
        table.append([str(size), said(ours, 2), said(theirs, 2), said(ours / theirs, 2)])
    return {
        "caption": f"{BYTES // 1_000_000} MB of gradients in each of several processes, {seeds} times.",
        "columns": ["processes", "added in a fixed order, s", "reduce-scatter, s", "times reduce-scatter"],
        "rows": table,
    }


def lag(seeds: int, steps: int, out: Path | None) -> Table:
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
    return {"columns": ["weights", "held-out accuracy, %", "against in turn", "reward, last 10 steps"], "rows": table}


PARTS = {"costs": (costs, 5), "weights": (weights, 0), "gradients": (gradients, 0), "lag": (lag, 60)}
"""With the steps that they take by default."""


def main() -> None:
    """Print some parts, and write them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=list(PARTS), nargs="+", required=True)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--write", action="store_true", help="Write docs/measured/cluster/costs.json.")
    given = parser.parse_args()
    tables = []
    for part in given.part:
        made, steps = PARTS[part]
        out = None if given.out is None else given.out / f"{part}.jsonl"
        tables.append(made(given.seeds, given.steps or steps, out))
    command = f"python docs/experiments/cluster_costs.py --part {' '.join(given.part)} --seeds {given.seeds}"
    found: Mapping[str, Any] = {"title": "What it costs", "command": f"{command} --write", "tables": tables}
    print(json.dumps(found, indent=1))
    if given.write:
        to = Path(__file__).parents[1] / "measured" / "cluster"
        to.mkdir(exist_ok=True)
        (to / "costs.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
