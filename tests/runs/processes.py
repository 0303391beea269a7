"""Runs in processes of their own, and what may not depend on how often they were stopped."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

from tests.warm import BEFORE, Warm

GO = "go"
"""The file that a held process waits for."""
_HELD = """
import time
from pathlib import Path
from posttrain.runs.store import RunStore

log_metrics = RunStore.log_metrics

def log_and_wait(store, step, *arguments):
    log_metrics(store, step, *arguments)
    while step == {step} and not Path("{go}").exists():
        time.sleep(0.01)

RunStore.log_metrics = log_and_wait
"""


def command(
    folder: Path, *arguments: str, held_at: int | None = None, warm: Warm | None = None
) -> subprocess.Popen[str]:
    """The posttrain command in a process of its own: a new interpreter, or forked from a `warm` one.

    With `held_at` it waits at the end of that step, its metrics written, until the file `GO` is in `folder`; so what is
    done to it there does not come too late, however slow the machine.
    """
    hold = "" if held_at is None else _HELD.format(step=held_at, go=GO)
    fresh = [sys.executable, "-c", f"{hold}\nimport sys; from posttrain.cli import main; sys.exit(main())"]
    return subprocess.Popen(
        [*([str(warm.program)] if warm else fresh), *arguments],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "CI": "true", **({BEFORE: hold} if warm else {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> str:
    """Wait until a process has ended well; what it printed."""
    output = wait(process)
    assert process.returncode == 0, output
    return output


def wait(process: subprocess.Popen[str]) -> str:
    """Wait until a process has ended; what it printed. How long that may take is the limit of the test."""
    try:
        return process.communicate()[0]
    except BaseException:
        process.kill()
        raise


def steps_done(run: Path) -> int:
    """Steps in the record of a run."""
    metrics = run / "metrics.jsonl"
    return metrics.read_bytes().count(b"\n") if metrics.exists() else 0


def opened(run: Path) -> int:
    """How often the run has been started or continued."""
    return sum(kind in ("started", "opened") for kind, _ in history(run))


def history(run: Path) -> list[tuple[str, str]]:
    """Kind and message of everything that happened to the processes of a run."""
    path = run / "history.jsonl"
    entries = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [(entry["kind"], entry["message"]) for entry in entries]


def contents(run: Path) -> dict[str, str]:
    """Digest of every file that must not depend on interruptions."""
    kept = ["metrics.jsonl", "events.jsonl", "evals.jsonl", "recipe.yaml"]
    files = [run / name for name in kept] + sorted(
        p for part in ("rollouts", "evals", "model") for p in (run / part).rglob("*")
    )
    return {str(p.relative_to(run)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files if p.is_file()}
