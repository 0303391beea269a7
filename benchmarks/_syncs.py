"""How often a run syncs files, and how long that takes: quickstart, in a process that notes each sync and step.

python -m benchmarks._syncs FILE run quickstart ...     the command, with its notes in FILE
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[1]
QUICKSTART = ("run", "quickstart", "rl.steps=20", "evaluation.every=0", "checkpoints.every_steps=10", "threads=1")
COLUMNS = (
    *("code", "syncs a step", "ms in them", "ms to record a step", "ms a step", "share of recording"),
    *("syncs a checkpoint", "ms a checkpoint"),
)


@dataclass
class Step:
    """Seconds of a step, of recording it, and of the syncs in that."""

    seconds: float
    recording: float
    syncs: list[float] = field(default_factory=list)


@dataclass
class Noted:
    """The steps of runs, and of their checkpoints seconds and number of syncs."""

    steps: list[Step] = field(default_factory=list)
    checkpoints: list[tuple[float, int]] = field(default_factory=list)


def note() -> int:
    """Run the command in the arguments, with notes in the file that is the first; its exit code."""
    from posttrain.cli import main
    from posttrain.runs import checkpoints
    from posttrain.runs.run import StageRun

    file, *command = sys.argv[1:]
    log = Path(file).open("w", buffering=1)  # noqa: SIM115  until the process ends
    fsync, save, finish = os.fsync, checkpoints.save, StageRun.finish_step

    def timed(kind: str, call: Any) -> Any:
        def wrapped(*arguments: Any, **settings: Any) -> Any:
            began = time.perf_counter()
            result = call(*arguments, **settings)
            print(json.dumps([kind, began, time.perf_counter()]), file=log)
            return result

        return wrapped

    os.fsync = timed("sync", fsync)
    vars(checkpoints)["save"] = timed("checkpoint", save)
    StageRun.finish_step = timed("record", finish)  # type: ignore[method-assign]
    return main(command)


def read_notes(lines: Sequence[str]) -> Noted:
    """What was noted of a run, from its second step on. A checkpoint is in no step's seconds."""
    entries = [json.loads(line) for line in lines]
    of = {kind: [(b, e) for k, b, e in entries if k == kind] for kind in ("sync", "checkpoint", "record")}
    noted = Noted()
    for began, ended in of["checkpoint"]:
        noted.checkpoints.append((ended - began, sum(began <= b <= ended for b, _ in of["sync"])))
    for (_, before), (began, ended) in zip(of["record"], of["record"][1:], strict=False):
        saving = sum(e - b for b, e in of["checkpoint"] if began <= b <= ended)
        syncs = [
            e - b
            for b, e in of["sync"]
            if before <= b <= ended and not any(first <= b <= last for first, last in of["checkpoint"])
        ]
        noted.steps.append(Step(ended - before - saving, ended - began - saving, syncs))
    return noted


def table_of_syncs(trees: Mapping[str, Path], rounds: int, folder: Path) -> tuple[Sequence[str], Sequence[Any]]:
    """Columns and rows, one for each tree, of some runs of each, alternating."""
    noted = {name: Noted() for name in trees}
    for number in range(rounds):
        for place, (name, tree) in enumerate(trees.items()):
            found = read_notes(_run(tree, folder / f"{number}-{place}"))
            noted[name].steps += found.steps
            noted[name].checkpoints += found.checkpoints
            print(f"round {number + 1} of {rounds}: {name}", file=sys.stderr)
    return COLUMNS, [[name, *_row(found)] for name, found in noted.items()]


def _run(tree: Path, folder: Path) -> list[str]:
    """The notes of a run of quickstart by the code of a tree."""
    folder.mkdir()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tree / "src"), str(HERE)]), "CI": "true"}
    command = [sys.executable, "-m", "benchmarks._syncs", "notes", *QUICKSTART]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return (folder / "notes").read_text().splitlines()


def _row(noted: Noted) -> Iterator[Any]:
    """Medians over the steps, and over the checkpoints."""
    recording = statistics.median(step.recording for step in noted.steps)
    seconds = statistics.median(step.seconds for step in noted.steps)
    yield statistics.median(len(step.syncs) for step in noted.steps)
    yield round(1000 * statistics.median(sum(step.syncs) for step in noted.steps), 2)
    yield round(1000 * recording, 2)
    yield round(1000 * seconds, 1)
    yield f"{recording / seconds:.1%}"
    yield statistics.median(number for _, number in noted.checkpoints)
    yield round(1000 * statistics.median(seconds for seconds, _ in noted.checkpoints), 1)


if __name__ == "__main__":
    sys.exit(note())
