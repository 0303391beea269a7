"""Data generation by search: writes a file that can be read back as ``tasks=FILE``.

    rated            a row for each state that was expanded, and for each whole attempt, with its value
    demonstrations   a row for each task that was solved, with its best attempts, to be imitated or begun from

The rows of a task are a function of (models, seed, task key). They are appended to ``FILE.part``, and how far it got is
in ``FILE.progress.json``; a generation that was killed goes on from there, and its file is the same byte for byte.
"""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from posttrain.components.search import Found
from posttrain.datasets.layout import NAMES
from posttrain.engines import wait_for
from posttrain.errors import UserError
from posttrain.types import Task, Trajectory

Kind = Literal["rated", "demonstrations"]
Find = Callable[[Task], Awaitable[tuple[Found, Sequence[Trajectory]]]]
"""Searches at a task; gives what was found, and the attempts as the reward judged them."""

RESERVED = {name.lower() for names in NAMES.values() for name in names} | {"task", "complete", "visits"}
"""Columns that mean something when the file is read; fields of the task with such names are left out."""


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Which rows are made of what was found."""

    kind: Kind = "rated"
    at_least: float = 1.0
    """Smallest reward of a demonstration."""
    most: int = 1
    """Demonstrations of one task, all different, the best first."""

    def of(self, task: Task, found: Found, judged: Sequence[Trajectory]) -> list[dict[str, Any]]:
        """The rows of one task."""
        about = {k: v for k, v in task.fields.items() if k.lower() not in RESERVED}
        about |= {"prompt": task.prompt, "answer": task.answer, "domain": task.domain or None}
        about = {name: value for name, value in about.items() if value is not None}
        return self._rated(task, about, found, judged) if self.kind == "rated" else self._shown(task, about, judged)

    def _rated(
        self, task: Task, about: Mapping[str, Any], found: Found, judged: Sequence[Trajectory]
    ) -> list[dict[str, Any]]:
        """States, then whole attempts whose judgement did not fail."""
        states = [(s.text, s.value, False, s.visits) for s in found.states]
        sound = [t for t in judged if t.score is not None and t.score.status != "error"]
        whole = [(t.completion, t.score.value, t.stop_reason == "stop", 1) for t in sound if t.score is not None]
        names = ("completion", "rating", "complete", "visits")
        return [
            {"id": f"{task.key}/{i}", "task": task.key, **about, **dict(zip(names, row, strict=True))}
            for i, row in enumerate((*states, *whole))
        ]

    def _shown(self, task: Task, about: Mapping[str, Any], judged: Sequence[Trajectory]) -> list[dict[str, Any]]:
        """One row, or none where nothing is good enough."""
        values = [(t.score.value, t) for t in judged if t.score is not None and t.score.status != "error"]
        good = sorted((item for item in values if item[0] >= self.at_least), key=lambda item: -item[0])
        ended = [t.completion for _, t in good if t.stop_reason == "stop"]
        best = list(dict.fromkeys(ended))[: self.most]
        return [{"id": task.key, **about, "demonstrations": best}] if best else []


def generate(
    tasks: Sequence[Task],
    find: Find,
    rows: Rows,
    out: Path,
    *,
    settings: Mapping[str, Any],
    at_once: int = 16,
    progress: Callable[[Mapping[str, int]], None] = lambda done: None,
) -> dict[str, int]:
    """Search at every task and write the file; returns how many tasks, attempts and rows there were.

    `settings` is all that the rows depend on, as JSON: a generation is only continued by one that has the same.
    """
    journal = Journal(out, json.loads(json.dumps(settings)))
    done = journal.open()
    while done["tasks"] < len(tasks):
        chunk = tasks[done["tasks"] : done["tasks"] + at_once]
        results = wait_for(_together(chunk, find))
        made = [
            row for task, (found, judged) in zip(chunk, results, strict=True) for row in rows.of(task, found, judged)
        ]
        done = {
            "tasks": done["tasks"] + len(chunk),
            "attempts": done["attempts"] + sum(len(judged) for _, judged in results),
            "rows": done["rows"] + len(made),
        }
        journal.append(made, done)
        progress(done)
    journal.finish()
    return done


async def _together(tasks: Sequence[Task], find: Find) -> list[tuple[Found, Sequence[Trajectory]]]:
    return list(await asyncio.gather(*map(find, tasks)))


class Journal:
    """A file that is being made, and how far it is."""

    def __init__(self, out: Path, settings: Any) -> None:
        """`out` is where the file will be when it is complete."""
        self._out, self._settings = out, settings
        self._part, self._progress = (out.with_name(out.name + end) for end in (".part", ".progress.json"))

    def open(self) -> dict[str, int]:
        """What is done already. Raises `UserError` for a file that is there, or was begun with other settings."""
        if self._out.exists():
            raise UserError(f"{self._out} exists already; name another file with --out, or move it away")
        if not self._progress.exists():
            self._part.write_bytes(b"")
            return {"tasks": 0, "attempts": 0, "rows": 0}
        saved = json.loads(self._progress.read_text(encoding="utf-8"))
        if saved["settings"] != self._settings:
            raise UserError(
                f"{self._part} was begun with other settings, so it cannot be continued; give the same model and "
                f"settings as then, name another file with --out, or remove it and {self._progress.name}"
            )
        os.truncate(self._part, saved["bytes"])  # what was written after the last mark is made again
        return {name: saved["done"][name] for name in ("tasks", "attempts", "rows")}

    def append(self, rows: Sequence[Mapping[str, Any]], done: Mapping[str, int]) -> None:
        """Add rows, safely on disk before it is said that they are done."""
        with self._part.open("ab") as file:
            for row in rows:
                file.write(json.dumps(row, ensure_ascii=False).encode(errors="replace") + b"\n")
            file.flush()
            os.fsync(file.fileno())
            size = file.tell()
        temporary = self._progress.with_name(f".{self._progress.name}.tmp")
        temporary.write_text(json.dumps({"settings": self._settings, "done": dict(done), "bytes": size}))
        temporary.replace(self._progress)

    def finish(self) -> None:
        """Give the file its name."""
        self._part.replace(self._out)
        self._progress.unlink(missing_ok=True)
