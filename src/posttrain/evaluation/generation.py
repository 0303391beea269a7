"""Data generation by search: writes a file that can be read back as ``tasks=FILE``.

    rated            one row per expanded state and per complete rollout, with its value
    demonstrations   one row per solved task, with its best completions, for imitation or as prefixes
    pairs, shortest  rows with a chosen and a rejected rollout, and where they are from (`posttrain.datasets.checked`)
    best_of, modes   one row per task with the rollout to imitate, where it is from, and its mode

With a rule of `posttrain.components.pairings`, `pairs` are those that the rule makes, with their fields as columns.
Tasks without a row are counted by their reason.

The rows of a task are a function of (models, seed, task key). They are appended to ``FILE.part``, and the progress is
in ``FILE.progress.json``. A generation that was killed continues from there, and its file is the same byte for byte.
"""

import asyncio
import json
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import NonNegativeInt, TypeAdapter
from typing_extensions import TypedDict

from posttrain.components.annotators import Annotator
from posttrain.components.pairings import Paired
from posttrain.components.search import Found
from posttrain.datasets.annotating import relabelled
from posttrain.datasets.checked import Use, checked_of, make, reason_of
from posttrain.datasets.layout import NAMES
from posttrain.engines import wait_for
from posttrain.errors import UserError
from posttrain.errors.foreign import guard, read_json
from posttrain.types import Preference, Task, Trajectory

Kind = Literal["rated", "demonstrations", "pairs", "shortest", "best_of", "modes"]
Find = Callable[[Task], Awaitable[tuple[Found, Sequence[Trajectory]]]]
"""Searches on a task; returns the result of the search, and its rollouts with the reward's scores."""

Pair = Callable[[Task, Sequence[Trajectory]], Awaitable[Paired]]
"""Makes pairs of a task's scored rollouts."""

COUNTS = ("tasks", "rollouts", "rows")
"""What is counted while a file is generated, besides the tasks without a row, by reason."""


class Progress(TypedDict):
    """The file of the progress."""

    settings: dict[str, Any]
    done: dict[str, NonNegativeInt]
    bytes: NonNegativeInt


_PROGRESS = TypeAdapter(Progress)
RESERVED = {name.lower() for names in NAMES.values() for name in names} | {
    "task",
    "complete",
    "visits",
    "origin",
    "mode",
    "margin",
    "rule",
    "cut",
    "strength",
    "annotator",
    "aspects",
    "first",
    "gold_gap",
}
"""Column names with a meaning when the file is read. Fields of a task with such names are not written."""


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Which rows are written."""

    kind: Kind = "rated"
    at_least: float = 1.0
    """Smallest reward of a demonstration."""
    most: int = 1
    """Largest number of demonstrations or pairs per task, all different, the best first."""
    writer: str = "policy"
    """Name of the model that writes, for the origin of what is made of checked rollouts."""
    annotators: Sequence[Annotator] = ()
    """Who states each pair again; none has the pairs as they are."""

    def made(self, task: Task, paired: Paired) -> list[dict[str, Any]]:
        """The rows of the pairs that a rule made of a task."""
        about = self._about(task)
        return [
            {
                "id": task.key if len(paired.pairs) == 1 and len(self.annotators) < 2 else f"{task.key}/{i}",
                **about,
                "chosen": pair.chosen,
                "rejected": pair.rejected,
                **pair.about(),
            }
            for i, pair in enumerate(self._annotated(task, paired.pairs))
        ]

    def _annotated(self, task: Task, pairs: Sequence[Preference]) -> Sequence[Preference]:
        """The pairs as annotators state them."""
        if not self.annotators:
            return pairs
        return [
            one
            for i, pair in enumerate(pairs)
            for one in relabelled(pair, self.annotators, f"generate:{task.key}:{i}", task=task)
        ]

    def _about(self, task: Task) -> dict[str, Any]:
        """The columns of a task."""
        about = {k: v for k, v in task.fields.items() if k.lower() not in RESERVED}
        about |= {"prompt": task.prompt, "answer": task.answer, "domain": task.domain or None}
        return {name: value for name, value in about.items() if value is not None}

    def of(self, task: Task, found: Found, scored: Sequence[Trajectory]) -> list[dict[str, Any]]:
        """The rows of one task."""
        about = self._about(task)
        if self.kind == "rated":
            return self._rated(task, about, found, scored)
        if self.kind == "demonstrations":
            return self._demonstrations(task, about, scored)
        return self._checked(task, about, scored, self.kind)

    def reason(self, scored: Sequence[Trajectory]) -> str:
        """Why the rollouts of a task give no row."""
        if self.kind == "rated" or self.kind == "demonstrations":
            return f"no rollout that ended has a reward of at least {self.at_least:g}"
        return reason_of(checked_of(scored, self.writer), self.kind)

    def _checked(
        self, task: Task, about: Mapping[str, Any], scored: Sequence[Trajectory], use: Use
    ) -> list[dict[str, Any]]:
        """What checked rollouts are made into; no row where they give nothing."""
        made = make(checked_of(scored, self.writer), use, most=self.most)
        if made is None:
            return []
        if made.preferences and self.annotators:
            origins = (list(made.origin[2 * i : 2 * i + 2]) for i in range(len(made.preferences)))
            pairs = zip(made.preferences, origins, strict=True)
            return self.made(task, Paired(pairs=tuple(replace(p, fields={**p.fields, "origin": o}) for p, o in pairs)))
        if made.preferences:
            return [
                {
                    "id": task.key if len(made.preferences) == 1 else f"{task.key}/{i}",
                    **about,
                    "chosen": pair.chosen,
                    "rejected": pair.rejected,
                    "origin": list(made.origin[2 * i : 2 * i + 2]),
                }
                for i, pair in enumerate(made.preferences)
            ]
        mode = {} if made.mode is None else {"mode": made.mode}
        texts = {"demonstrations": list(made.demonstrations), **mode, "origin": list(made.origin)}
        return [{"id": task.key, **about, **texts}]

    def _rated(
        self, task: Task, about: Mapping[str, Any], found: Found, scored: Sequence[Trajectory]
    ) -> list[dict[str, Any]]:
        """States, then complete rollouts that could be scored."""
        states = [(s.text, s.value, False, s.visits) for s in found.states]
        valid = [t for t in scored if t.score is not None and t.score.status != "error"]
        whole = [(t.completion, t.score.value, t.stop_reason == "stop", 1) for t in valid if t.score is not None]
        names = ("completion", "rating", "complete", "visits")
        return [
            {"id": f"{task.key}/{i}", "task": task.key, **about, **dict(zip(names, row, strict=True))}
            for i, row in enumerate((*states, *whole))
        ]

    def _demonstrations(
        self, task: Task, about: Mapping[str, Any], scored: Sequence[Trajectory]
    ) -> list[dict[str, Any]]:
        """One row, or none if no reward is at least `at_least`."""
        values = [(t.score.value, t) for t in scored if t.score is not None and t.score.status != "error"]
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
    pair: Pair | None = None,
    at_once: int = 16,
    progress: Callable[[Mapping[str, int]], None] = lambda done: None,
) -> dict[str, int]:
    """Search on every task and write the file; returns the numbers of tasks, rollouts and rows.

    With these are the numbers of tasks without a row, by their reason. `settings` is all that the rows depend on, as
    JSON. A generation is continued only with the same settings. `pair` makes the rows in place of the kind of `rows`.
    """
    journal = Journal(out, json.loads(json.dumps(settings)))
    done = journal.open()
    while done["tasks"] < len(tasks):
        chunk = tasks[done["tasks"] : done["tasks"] + at_once]
        results = wait_for(_together(chunk, find))
        paired: Sequence[Paired] = ()
        if pair is None:
            parts = [rows.of(task, *result) for task, result in zip(chunk, results, strict=True)]
            without = [rows.reason(scored) for part, (_, scored) in zip(parts, results, strict=True) if not part]
        else:
            paired = wait_for(_paired(chunk, results, pair))
            parts = [rows.made(task, result) for task, result in zip(chunk, paired, strict=True)]
            without = [result.reason for result in paired if not result.pairs]
        made = [row for part in parts for row in part]
        more = sum(len(scored) for _, scored in results) + sum(result.rollouts for result in paired)
        sizes = (len(chunk), more, len(made))
        done = {
            **done,
            **{name: done[name] + size for name, size in zip(COUNTS, sizes, strict=True)},
            **{reason: done.get(reason, 0) + count for reason, count in sorted(Counter(without).items())},
        }
        journal.append(made, done)
        progress(done)
    journal.finish()
    return done


async def _together(tasks: Sequence[Task], find: Find) -> list[tuple[Found, Sequence[Trajectory]]]:
    return list(await asyncio.gather(*map(find, tasks)))


async def _paired(
    tasks: Sequence[Task], results: Sequence[tuple[Found, Sequence[Trajectory]]], pair: Pair
) -> list[Paired]:
    pairs = (pair(task, scored) for task, (_, scored) in zip(tasks, results, strict=True))
    return list(await asyncio.gather(*pairs))


class Journal:
    """A file that is being written, and its progress."""

    def __init__(self, out: Path, settings: Any) -> None:
        """`out` is the path of the complete file."""
        self._out, self._settings = out, settings
        self._part, self._progress = (out.with_name(out.name + end) for end in (".part", ".progress.json"))

    def open(self) -> dict[str, int]:
        """The counts so far. Raises `UserError` if the file exists, or was begun with other settings."""
        if self._out.exists():
            raise UserError(f"{self._out} exists already; name another file with --out, or move it away")
        if not self._progress.exists():
            self._part.write_bytes(b"")
            return dict.fromkeys(COUNTS, 0)
        with guard(f"'{self._progress}' is not the progress of posttrain generate"):
            saved = _PROGRESS.validate_python(read_json(self._progress))
        if saved["settings"] != self._settings or not set(COUNTS) <= set(saved["done"]):
            raise UserError(
                f"{self._part} was begun with other settings, so it cannot be continued; give the same model and "
                f"settings as then, name another file with --out, or remove it and {self._progress.name}"
            )
        os.truncate(self._part, saved["bytes"])  # rows after the last recorded progress are generated again
        done: dict[str, int] = saved["done"]
        return done

    def append(self, rows: Sequence[Mapping[str, Any]], done: Mapping[str, int]) -> None:
        """Append rows. They are on disk before the progress is."""
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
        """Rename the complete file, and remove the progress."""
        self._part.replace(self._out)
        self._progress.unlink(missing_ok=True)
