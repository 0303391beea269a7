"""Comparisons of recipes: the same seeds for each, one process a run, paired statistics.

    OUT/0-grpo/seed_3/grpo-1/       a run like any other
    OUT/comparison.json             what came of it

The runs of a seed follow one another (A, B, A, B, ...), so that whatever changes on the machine in an hour falls on
both. What is there already is not run again: a comparison that was stopped goes on where it was, and one that is
asked for with more seeds adds to what it has.
"""

import hashlib
import json
import math
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from posttrain.component import nearest
from posttrain.errors import Interrupted, RunFailed, UserError
from posttrain.recipes.files import find_recipe
from posttrain.recipes.overrides import to_tree
from posttrain.recipes.tree import Recipe
from posttrain.runs.files import write_file
from posttrain.runs.journal import plain
from posttrain.runs.measures import by_step, measure
from posttrain.runs.store import RunStore
from posttrain.statistics.intervals import mean
from posttrain.statistics.repeated import repeated_difference

Tell = Callable[[str], None]
COST = ("sampled_tokens", "trained_tokens", "seconds")
"""Measured beside what was asked for: a gain that costs twice as much is another matter."""
PROGRESS = ("reward", "loss")
"""Metrics whose values of every step are kept, the first of them that the runs have, with those that are measured."""


@dataclass(frozen=True, kw_only=True)
class Contender:
    """One of the methods that are compared."""

    label: str
    """As the user wrote it."""
    recipe: Recipe
    folder: Path
    """Where its runs go."""

    def seeded(self, seed: int) -> Recipe:
        """The recipe of its run with a seed."""
        return replace(self.recipe, seed=seed)


@dataclass(frozen=True, kw_only=True)
class Job:
    """A run that is wanted."""

    contender: Contender
    seed: int

    @property
    def root(self) -> Path:
        """The folder that holds the run's folder."""
        return self.contender.folder / f"seed_{self.seed}"

    def find(self) -> Path | None:
        """The run's folder, if it was begun. Raises `UserError` if it is of another recipe."""
        begun = sorted(path.parent for path in self.root.glob("*/recipe.yaml"))
        if not begun:
            return None
        if to_tree(find_recipe(str(begun[-1]))) != to_tree(self.contender.seeded(self.seed)):
            raise UserError(
                f"{begun[-1]} is a run of another recipe than '{self.contender.label}' is now; compare into another "
                "folder with --out, or remove that one"
            )
        return begun[-1]

    @property
    def done(self) -> Path | None:
        """The finished run, if it is finished."""
        found = self.find()
        return found if found is not None and (found / "summary.json").is_file() else None


def contenders_of(specs: Sequence[str], changes: Sequence[str], out: Path, threads: int) -> list[Contender]:
    """Resolve ``recipe path=value ...`` of each, with the changes that are common to all.

    Recipes that do not say how many threads they take get `threads`, since that decides the last bits of a result.
    """
    found = []
    for place, spec in enumerate(specs):
        name, *own = shlex.split(spec)
        if any(change.partition("=")[0] == "seed" for change in (*own, *changes)):
            raise UserError(f"'{spec}': the seeds are those of --seeds; leave seed=... out")
        recipe = find_recipe(name, (*changes, *own))
        recipe = replace(recipe, threads=recipe.threads or threads)
        slug = re.sub(r"[^\w.+=-]+", "-", spec).strip("-.")[:60]
        found.append(Contender(label=spec, recipe=recipe, folder=out / f"{place}-{slug}"))
    if len({json.dumps(to_tree(c.recipe), sort_keys=True) for c in found}) < len(found):
        raise UserError("two of the recipes are the same, so there is nothing to compare; see posttrain diff")
    return found


def default_folder(specs: Sequence[str], changes: Sequence[str]) -> Path:
    """A folder that the same comparison finds again, and another one does not."""
    said = "-vs-".join(spec.split()[0].rpartition("/")[2] for spec in specs)
    digest = hashlib.sha256(json.dumps([*specs, "", *changes]).encode()).hexdigest()[:8]
    return Path("comparisons") / f"{re.sub(r'[^A-Za-z0-9_.+-]+', '-', said)}-{digest}"


def run_all(contenders: Sequence[Contender], seeds: Sequence[int], jobs: int, tell: Tell) -> dict[str, str]:
    """Run what is not there yet, `jobs` processes at a time. Returns why runs failed, by folder.

    Raises `Interrupted` on Ctrl-C, after the runs in progress have saved.
    """
    wanted = [Job(contender=c, seed=seed) for seed in seeds for c in contenders]
    left = [job for job in wanted if job.done is None]
    if len(left) < len(wanted):
        tell(f"{len(wanted) - len(left)} of {len(wanted)} runs are there already")
    failures: dict[str, str] = {}
    began, finished = time.monotonic(), 0
    with _processes(jobs) as (pool, running):
        futures = {pool.submit(_execute, job, running): job for job in left}
        for future in as_completed(futures):
            job, problem = futures[future], future.result()
            finished += 1
            if problem:
                failures[str(job.root)] = problem
            each = (time.monotonic() - began) / finished
            state = f"failed: {problem.splitlines()[0]}" if problem else "done"
            tell(
                f"{job.contender.label}, seed {job.seed}: {state} ({finished} of {len(left)} runs, "
                f"about {each * (len(left) - finished) / 60:.0f} min left)"
            )
    return failures


@contextmanager
def _processes(jobs: int) -> Iterator[tuple[ThreadPoolExecutor, set["subprocess.Popen[str]"]]]:
    """Threads that wait for runs; on Ctrl-C no new run is begun and those in progress are asked to save and stop."""
    running: set[subprocess.Popen[str]] = set()
    pool = ThreadPoolExecutor(max_workers=jobs)
    try:
        yield pool, running
    except KeyboardInterrupt:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in list(running):
            process.terminate()
        for process in list(running):
            process.wait()
        raise Interrupted("the comparison was interrupted; the same command goes on where it stopped") from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _execute(job: Job, running: set["subprocess.Popen[str]"]) -> str:
    """Start or continue one run in a process of its own; returns why it failed, or nothing."""
    begun = job.find()
    job.root.mkdir(parents=True, exist_ok=True)
    plan = job.root / "recipe.json"
    write_file(plan, json.dumps(to_tree(job.contender.seeded(job.seed))))
    asked = [str(begun)] if begun else [str(plan), str(job.root)]
    threads = str(job.contender.recipe.threads)
    process = subprocess.Popen(
        [sys.executable, "-m", "posttrain.runs.one_run", *asked],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": threads, "CI": "true"},
        start_new_session=True,  # Ctrl-C comes to the comparison, which then asks the runs to save
    )
    running.add(process)
    try:
        _, said = process.communicate()
    finally:
        running.discard(process)
    if process.returncode == 0:
        return ""
    lines = [line for line in said.splitlines() if line.strip()]
    return f"exit code {process.returncode}: {lines[-1] if lines else 'nothing was said'}"


def compare(
    contenders: Sequence[Contender], seeds: Sequence[int], measures: Sequence[str], failures: Mapping[str, str]
) -> dict[str, Any]:
    """The measures of every finished run, and the difference of each contender from the first.

    A seed counts in a difference where both runs are finished; what is missing is listed under ``failures``.
    """
    runs = {c.label: {seed: Job(contender=c, seed=seed).done for seed in seeds} for c in contenders}
    measured = {
        label: {seed: _measured(folder, measures) for seed, folder in found.items() if folder is not None}
        for label, found in runs.items()
    }
    base = contenders[0].label
    rows = []
    for contender in contenders:
        own = measured[contender.label]
        row: dict[str, Any] = {"contender": contender.label, "seeds": sorted(own)}
        for name in (*measures, *COST):
            values = [own[seed][name] for seed in sorted(own)]
            row[name] = _spread(values) if values else None
            shared = sorted(own.keys() & measured[base].keys())
            if contender.label != base and name in measures and shared:
                row[name]["difference"] = _difference(
                    [measured[base][s][name] for s in shared], [own[s][name] for s in shared]
                )
        row["curves"] = curves([folder for folder in runs[contender.label].values() if folder is not None], measures)
        rows.append(row)
    return {"base": base, "measures": list(measures), "contenders": rows, "failures": dict(failures)}


def curves(folders: Sequence[Path], measures: Sequence[str]) -> dict[str, Any]:
    """By metric: the mean over runs and its interval (None for one run) at every step that all of them have."""
    stores = [RunStore.open(folder, reading=True) for folder in folders]
    found = {name: [by_step(store, name) for store in stores] for name in (*PROGRESS, *measures)}
    for store in stores:
        store.close()
    there = {name: runs for name, runs in found.items() if runs and all(runs)}
    progress = next((name for name in PROGRESS if name in there), None)
    drawn: dict[str, Any] = {}
    for name, runs in there.items():
        path = name.partition(":")[0]
        if (name in PROGRESS and name != progress) or path in drawn:
            continue
        steps = sorted(set.intersection(*map(set, runs)))
        means = [mean([run[step] for run in runs]) for step in steps]
        drawn[path] = {
            "steps": steps,
            "mean": [round(m.value, 6) for m in means],
            "interval": [_rounded(m.interval) for m in means],
        }
    return drawn


def _rounded(interval: Sequence[float]) -> list[float] | None:
    """An interval as it is kept."""
    found = _finite(interval)
    return [round(edge, 6) for edge in found] if found else None


def write(comparison: Mapping[str, Any], out: Path) -> Path:
    """Keep what came of it."""
    path = out / "comparison.json"
    write_file(path, json.dumps(plain(comparison), indent=1) + "\n")
    return path


def sentence(row: Mapping[str, Any], name: str, base: str) -> str:
    """What a difference says, claiming no more than its interval allows."""
    found = row[name].get("difference") if row[name] else None
    if found is None:
        return f"{row['contender']} has no seed in common with {base}."
    low, high = found["interval"] or (-math.inf, math.inf)
    said = f"{found['value']:+.4g}" + (f" [{low:+.4g}, {high:+.4g}]" if found["interval"] else "")
    seeds = f"{found['seeds']} seed{'s' if found['seeds'] > 1 else ''}"
    counts = f"higher in {found['higher']} of {seeds}, sign-flip p = {found['p_value']:.2g}"
    if low > 0 or high < 0:
        return f"{row['contender']}: {name} is {'higher' if low > 0 else 'lower'} than {base}'s by {said} ({counts})."
    if found["detectable"] is None:
        return f"{row['contender']}: {name} differs by {said} from {base}'s; one seed cannot say how sure that is."
    return (
        f"{row['contender']}: no difference in {name} from {base} that {seeds} can show: {said} ({counts}); one of "
        f"{found['detectable']:.2g} would have been found 4 times in 5."
    )


def _measured(folder: Path, measures: Sequence[str]) -> dict[str, float]:
    """Every measure of one run."""
    store = RunStore.open(folder, reading=True)
    found = {name: measure(store, name) for name in measures}
    summary = store.summary()
    store.close()
    wrong = [name for name, value in found.items() if not math.isfinite(value)]
    if wrong:
        raise RunFailed(f"{folder}: {wrong[0]} is not a finite number; {nearest(wrong[0], summary)}")
    return found | {name: float(summary[name]) for name in COST}


def _spread(values: Sequence[float]) -> dict[str, Any]:
    """Mean over seeds with its interval, and every value."""
    found = mean(values)
    return {"mean": found.value, "interval": _finite(found.interval), "values": list(values)}


def _difference(base: Sequence[float], other: Sequence[float]) -> dict[str, Any]:
    found = repeated_difference(base, other)
    return {
        "value": found.value,
        "interval": _finite(found.interval),
        "seeds": found.seeds,
        "higher": found.higher,
        "lower": found.lower,
        "p_value": found.p_value,
        "detectable": found.detectable if math.isfinite(found.detectable) else None,
    }


def _finite(interval: Sequence[float]) -> list[float] | None:
    return list(interval) if all(map(math.isfinite, interval)) else None
