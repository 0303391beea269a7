"""Comparisons of recipes: the same seeds for each, one process per run, paired statistics.

    OUT/0-grpo/seed_3/grpo-1/       a run like any other
    OUT/comparison.json             the result
    OUT/comparison.html             the same as a picture

The runs of a seed follow one another (A, B, A, B, ...), so that changes of the machine over time affect both. Finished
runs are not repeated: a comparison that was stopped continues where it was, and one with more seeds runs only the new
ones.
"""

import hashlib
import json
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

from posttrain.errors import Interrupted, UserError
from posttrain.recipes.files import find_recipe
from posttrain.recipes.overrides import to_tree
from posttrain.recipes.tree import Recipe
from posttrain.runs.compared import criterion, result_of
from posttrain.runs.comparison_page import page
from posttrain.runs.files import write_file
from posttrain.runs.fitting import fit_to_models
from posttrain.runs.journal import plain
from posttrain.runs.measures import check_name, in_every_summary
from posttrain.runs.pilot import announce, observed_stds
from posttrain.runs.rehearsal import check_measures

Report = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Contender:
    """One of the methods that are compared."""

    label: str
    """As the user wrote it."""
    recipe: Recipe
    folder: Path
    """Folder of its runs."""

    def seeded(self, seed: int) -> Recipe:
        """The recipe of its run with a seed."""
        return replace(self.recipe, seed=seed)


@dataclass(frozen=True, kw_only=True)
class Job:
    """A run of the comparison: a contender and a seed."""

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
        planned = fit_to_models(self.contender.seeded(self.seed)).recipe  # a run keeps numbers in place of auto
        if to_tree(find_recipe(str(begun[-1]))) != to_tree(planned):
            raise UserError(
                f"{begun[-1]} is a run of another recipe than '{self.contender.label}' is now; compare into another "
                "folder with --out, or remove that one"
            )
        return begun[-1]

    @property
    def done(self) -> Path | None:
        """The run's folder, if the run is finished."""
        found = self.find()
        return found if found is not None and (found / "summary.json").is_file() else None


def compare(
    specs: Sequence[str],
    changes: Sequence[str],
    *,
    seeds: int,
    measures: Sequence[str],
    out: Path | None,
    jobs: int,
    budget: int | None,
    report: Report,
) -> dict[str, Any]:
    """Run what is missing, and compare. Writes ``comparison.json`` and returns what is in it, and the folder.

    Names of measures are checked before any run. With a `budget`, every run ends with the step that reaches that many
    sampled tokens.
    """
    for name in measures:
        check_name(name)
    changes = [*changes, *([f"budget={budget}"] if budget else [])]
    folder = out or default_folder(specs, changes)
    contenders = contenders_of(specs, changes, folder, max(1, (os.cpu_count() or 1) // jobs))
    wanted = range(seeds)
    begun = {c.label: [path for seed in wanted if (path := Job(contender=c, seed=seed).done)] for c in contenders}
    unknown = [name for name in measures if not in_every_summary(name)]
    check_measures({c.label: (c.recipe, begun[c.label]) for c in contenders}, unknown, report)
    if seeds > 1:
        report(criterion(seeds))
    announce(observed_stds(folder), measures, seeds, len(specs) - 1, report)
    failures = run_all(contenders, wanted, jobs, report)
    runs = {c.label: {seed: path for seed in wanted if (path := Job(contender=c, seed=seed).done)} for c in contenders}
    result = result_of(runs, measures, failures)
    result["notes"] += _short_of(budget, result) if budget else []
    folder.mkdir(parents=True, exist_ok=True)
    result["folder"] = str(folder)
    write(result, folder)
    return result


def _short_of(budget: int, result: Mapping[str, Any]) -> list[str]:
    """A note for each contender with runs that ended before they had sampled the budget."""
    notes = []
    for row in result["contenders"]:
        spent = row["sampled_tokens"]["values"] if row["sampled_tokens"] else []
        if short := [tokens for tokens in spent if tokens < budget]:
            notes.append(
                f"{row['contender']}: {len(short)} of {len(spent)} runs ended after {min(short):,.0f} of {budget:,} "
                "sampled tokens, as their steps were over; more steps=... give all runs the same budget"
            )
    return notes


def contenders_of(specs: Sequence[str], changes: Sequence[str], out: Path, threads: int) -> list[Contender]:
    """Resolve ``recipe path=value ...`` of each contender, with the common changes.

    Recipes without a number of threads get `threads`, since the number decides the last bits of a result.
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
    """The folder of a comparison, by its recipes and changes."""
    names = "-vs-".join(spec.split()[0].rpartition("/")[2] for spec in specs)
    digest = hashlib.sha256(json.dumps([*specs, "", *changes]).encode()).hexdigest()[:8]
    return Path("comparisons") / f"{re.sub(r'[^A-Za-z0-9_.+-]+', '-', names)}-{digest}"


def run_all(contenders: Sequence[Contender], seeds: Sequence[int], jobs: int, report: Report) -> dict[str, str]:
    """Run what is not finished yet, `jobs` processes at a time. Returns the errors of failed runs, by folder.

    Raises `Interrupted` on Ctrl-C, after the runs in progress have saved.
    """
    wanted = [Job(contender=c, seed=seed) for seed in seeds for c in contenders]
    left = [job for job in wanted if job.done is None]
    if len(left) < len(wanted):
        report(f"{len(wanted) - len(left)} of {len(wanted)} runs are there already")
    failures: dict[str, str] = {}
    began, finished = time.monotonic(), 0
    with _processes(jobs) as (pool, running):
        futures = {pool.submit(_execute, job, running): job for job in left}
        for future in as_completed(futures):
            job, problem = futures[future], future.result()
            finished += 1
            if problem:
                failures[str(job.root)] = problem
            rest = (time.monotonic() - began) / finished * (len(left) - finished)
            state = f"failed: {problem.splitlines()[0]}" if problem else "done"
            ahead = f", about {max(round(rest / 60), 1)} min left" if finished < len(left) else ""
            report(f"{job.contender.label}, seed {job.seed}: {state} ({finished} of {len(left)} runs{ahead})")
    return failures


@contextmanager
def _processes(jobs: int) -> Iterator[tuple[ThreadPoolExecutor, set["subprocess.Popen[str]"]]]:
    """Threads that wait for runs. On Ctrl-C no new run is begun, and those in progress save and stop."""
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
    """Start or continue one run in a separate process; returns the error if it failed, else an empty text."""
    begun = job.find()
    job.root.mkdir(parents=True, exist_ok=True)
    plan = job.root / "recipe.json"
    write_file(plan, json.dumps(to_tree(job.contender.seeded(job.seed))))
    arguments = [str(begun)] if begun else [str(plan), str(job.root)]
    threads = str(job.contender.recipe.threads)
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "posttrain.runs.one_run", *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": threads, "CI": "true"},
        start_new_session=True,  # Ctrl-C stops the comparison, which then signals the runs to save
    )
    running.add(process)
    try:
        _, output = process.communicate()
    finally:
        running.discard(process)
    if process.returncode == 0:
        return ""
    lines = [line for line in output.splitlines() if line.strip()]
    return f"exit code {process.returncode}: {lines[-1] if lines else 'without a message'}"


def write(comparison: Mapping[str, Any], out: Path) -> Path:
    """Write ``comparison.html`` and ``comparison.json``; returns the path of the latter."""
    write_file(out / "comparison.html", page(comparison))
    path = out / "comparison.json"
    write_file(path, json.dumps(plain(comparison), indent=1) + "\n")
    return path
