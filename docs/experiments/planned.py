"""Planned and measured: seconds of a step and memory of each process, by numbers of samplers and learners.

    python docs/experiments/planned.py --out measured.jsonl --write
    python docs/experiments/planned.py --again --write

For each size, number format and lengths a profile is measured (`posttrain.runs.forecasting`), the placements are
planned from it, and then run. Seconds are medians of the steps after the first. Memory is the peak of resident memory:
of the run's own process, of a sampler, of a learner besides. Models are drawn at random and write to the end of their
bound, which is equal for all (fixed), or end at one of a sixth of all tokens, chosen at random (ragged). The reward is
the share of even bytes.

``--only`` takes some configurations by number. What is in the file of ``--out`` is not measured again, so that it may
be done in parts. ``--write`` writes the table with all that was measured; ``--again`` plans from that, without a run.
"""

import argparse
import json
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from posttrain.cluster.ray import Ray
from posttrain.policies.folder import new_folder
from posttrain.recipes.files import find_recipe
from posttrain.recipes.tree import Recipe
from posttrain.runs.forecasting import Profile, Seen, forecast, profile, seen
from posttrain.types import Task

SIZES: dict[str, dict[str, Any]] = {
    "0.8M": {"layers": 4, "width": 128, "heads": 4, "kv_heads": 2},
    "3.2M": {"layers": 4, "width": 256, "heads": 4, "kv_heads": 2},
    "135M": {"layers": 10, "width": 1024, "heads": 16, "kv_heads": 16},
}
ALONE, ONE, TWO, THREE, FOUR = (0, 1), (1, 1), (1, 2), (2, 1), (2, 2)
"""Samplers and learners."""
PLACED: list[tuple[str, str, str, tuple[int, int], int]] = [
    ("0.8M", "float32", "fixed", ALONE, 0),
    ("0.8M", "float32", "fixed", ONE, 0),
    ("0.8M", "float32", "fixed", ONE, 1),
    ("0.8M", "float32", "fixed", FOUR, 0),
    ("0.8M", "bfloat16", "ragged", ALONE, 0),
    ("0.8M", "bfloat16", "ragged", THREE, 0),
    ("3.2M", "float32", "ragged", ONE, 0),
    ("3.2M", "float32", "ragged", THREE, 0),
    ("3.2M", "float32", "ragged", FOUR, 1),
    ("3.2M", "bfloat16", "fixed", ALONE, 0),
    ("3.2M", "bfloat16", "fixed", ONE, 1),
    ("135M", "float32", "fixed", ALONE, 0),
    ("135M", "float32", "fixed", ONE, 0),
    ("135M", "float32", "fixed", ONE, 1),
    ("135M", "bfloat16", "ragged", ONE, 0),
    ("135M", "bfloat16", "ragged", FOUR, 0),
]
SMALL_STEPS, LARGE_STEPS = 12, 4
"""Of which the first is not counted. Those of small models take less time than a start."""
WRITTEN = Path(__file__).parents[1] / "measured" / "cluster" / "planned.json"
CAPTION = "Plans and runs on this machine; lag 0 alternates."
COLUMNS = ["weights", "dtype", "lengths", "samplers", "learners", "lag", "step, s", "run, s", "off, %"]
COLUMNS += [f"{kind}, {what}" for kind in ("own", "sampler", "learner") for what in ("MB", "run, MB", "off, %")]


def even(completion: str, task: Task) -> float:
    """The share of even bytes, which no two completions have alike."""
    given = completion.encode()
    return sum(byte % 2 == 0 for byte in given) / max(len(given), 1)


def recipe_of(size: str, dtype: str, lengths: str, folder: Path) -> Recipe:
    """GRPO with a model of random weights: 8 prompts of 8 completions, or fewer for the largest."""
    large = size == "135M"
    model = folder / size
    if not model.exists():
        new_folder(model, **SIZES[size])
    changes = ["threads=1", f"model={model}", f"models.policy.dtype={dtype}", f"reward={__file__}:even"]
    changes += [f"prompts={2 if large else 8}", f"rollout.n={4 if large else 8}", "evaluation.holdout=2"]
    changes += [f"learner.micro_batch_tokens={64 if large else 512}"]
    recipe = find_recipe("grpo", changes)
    stage: Any = recipe.stages["rl"]
    ends = tuple(range(0, 256, 6)) if lengths == "ragged" else ()
    sampling = replace(stage.rollout.sampling, max_tokens=16 if large else 32, stop_token_ids=ends)
    return replace(recipe, stages={"rl": replace(stage, rollout=replace(stage.rollout, sampling=sampling))})


def placed(recipe: Recipe, samplers: int, learners: int, lag: int) -> Recipe:
    """The recipe on its samplers and learners."""
    if lag:
        from posttrain.components.timetables.lagged import Lagged

        recipe = replace(recipe, schedule=Lagged(steps=lag))
    if not samplers:
        return recipe
    return replace(recipe, cluster=Ray(samplers=samplers, learners=learners, cpus=0.25, store_mb=1024))


def off(planned: float, run: float) -> str:
    """By how much a plan is too high, in per cent."""
    return f"{100 * (planned / run - 1):+.0f}"


def memory(planned: int, run: int) -> list[str]:
    """Cells of the memory of a kind of process."""
    return [f"{planned / 1e6:.0f}", f"{run / 1e6:.0f}", off(planned, run)]


@dataclass
class Measured:
    """Profiles and runs, kept in a file as they come."""

    out: Path | None = None
    profiles: dict[str, Profile] = field(default_factory=dict)
    """By size, number format and lengths."""
    runs: dict[int, Seen] = field(default_factory=dict)
    """By the number of the configuration."""

    def read(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Take what was measured before."""
        for line in lines:
            if "profile" in line:
                parts: dict[str, Any] = {name: Seen(**line[name]) for name in ("alone", "half", "busy", "shared")}
                self.profiles[line["profile"]] = Profile(**parts, **line["numbers"])
            else:
                self.runs[line["run"]] = Seen(**line["seen"])

    def lines(self) -> list[dict[str, Any]]:
        """What `read` takes."""
        profiles = [_line(name, found) for name, found in self.profiles.items()]
        return [*profiles, *({"run": number, "seen": asdict(found)} for number, found in sorted(self.runs.items()))]

    def _keep(self, line: Mapping[str, Any]) -> None:
        print(json.dumps({**line, "load": os.getloadavg()[0]}), flush=True)
        if self.out is not None:
            with self.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")

    def measure(self, numbers: Sequence[int], folder: Path) -> None:
        """Measure those configurations that are not there."""
        for number in numbers:
            size, dtype, lengths, (samplers, learners), lag = PLACED[number]
            recipe, name = recipe_of(size, dtype, lengths, folder), " ".join(PLACED[number][:3])
            steps = LARGE_STEPS if size == "135M" else SMALL_STEPS
            if name not in self.profiles:
                self.profiles[name] = profile(replace(recipe, cluster=Ray(store_mb=1024)), steps)
                self._keep(_line(name, self.profiles[name]))
            if number not in self.runs:
                with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
                    self.runs[number] = pool.submit(seen, placed(recipe, samplers, learners, lag), steps).result()
                self._keep({"run": number, "seen": asdict(self.runs[number])})


def _line(name: str, found: Profile) -> dict[str, Any]:
    """A profile as JSON."""
    content = asdict(found)
    parts = {part: content.pop(part) for part in ("alone", "half", "busy", "shared")}
    return {"profile": name, **parts, "numbers": content}


def rows(of: Measured) -> list[list[str]]:
    """The table of the runs that were measured."""
    table = []
    for number, run in sorted(of.runs.items()):
        size, dtype, lengths, (samplers, learners), lag = PLACED[number]
        plan = forecast(of.profiles[" ".join(PLACED[number][:3])], samplers, learners, lag)
        row = [size, dtype, lengths, str(samplers), str(learners), str(lag)]
        row += [f"{plan.seconds:.3f}", f"{run.total:.3f}", off(plan.seconds, run.total)]
        for kind in ("own", "sampler", "learner"):
            row += memory(plan.memory[kind], run.peaks[kind]) if kind in plan.memory else [""] * 3
        table.append(row)
    return table


def main() -> None:
    """Print the table, and write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", type=int, nargs="*", default=range(len(PLACED)), help="Numbers of configurations.")
    parser.add_argument("--out", type=Path, help="Keep what is measured, and go on with what is there.")
    parser.add_argument("--again", action="store_true", help=f"Plan again from {WRITTEN.name}.")
    parser.add_argument("--write", action="store_true", help=f"Write docs/measured/cluster/{WRITTEN.name}.")
    given = parser.parse_args()
    measured = Measured(given.out)
    if given.again:
        measured.read(json.loads(WRITTEN.read_text(encoding="utf-8"))["measured"])
    else:
        if given.out is not None and given.out.is_file():
            measured.read(json.loads(line) for line in given.out.read_text(encoding="utf-8").splitlines())
        with tempfile.TemporaryDirectory() as folder:
            measured.measure(given.only, Path(folder))
    found = {
        "title": "Plans against runs",
        "command": "python docs/experiments/planned.py --out measured.jsonl --write",
        "tables": [{"caption": CAPTION, "columns": COLUMNS, "rows": rows(measured)}],
        "measured": measured.lines(),
    }
    print(json.dumps(found["tables"], indent=1))
    if given.write:
        WRITTEN.parent.mkdir(exist_ok=True)
        WRITTEN.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
