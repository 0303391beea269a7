"""Names of tasks, and what makes two of them the same problem.

Both are made of content only, so that neither the order of rows nor other rows can change them.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from posttrain.datasets.images import identity
from posttrain.types import Task


def digest(*parts: Any) -> str:
    """16 hexadecimal digits that stand for JSON values (BLAKE2b of their canonical JSON)."""
    canonical = json.dumps(parts, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(canonical.encode("ascii"), digest_size=8).hexdigest()


def keyed(tasks: Iterable[Task], ids: Sequence[str | None] = ()) -> tuple[Task, ...]:
    """The tasks with their keys: the given ids where all are there and differ, else a hash of prompt and answer.

    Tasks that hash alike are numbered in order: ``1f0c...``, ``1f0c...-2``, ``1f0c...-3``.
    """
    tasks = tuple(tasks)
    if len(ids) == len(tasks) and all(ids) and len(set(ids)) == len(ids):
        return tuple(replace(task, key=key or "") for task, key in zip(tasks, ids, strict=True))
    seen: Counter[str] = Counter()
    named = []
    for task in tasks:
        seen_too = [identity(image) for image in task.images]
        key = digest(task.prompt or task.demonstrations, task.answer, *([seen_too] if seen_too else []))
        seen[key] += 1
        named.append(replace(task, key=key if seen[key] == 1 else f"{key}-{seen[key]}"))
    return tuple(named)


def problem(task: Task) -> str:
    """What the task asks, in a form that does not depend on how it is wrapped.

    Space around the text does not count, nor does a system message, nor whether a text is given as it is or as the
    only message of a chat. Plain text without a prompt is known by itself. The same question about another image is
    another problem.
    """
    asked = _asked(task)
    return json.dumps([asked, *map(identity, task.images)]) if task.images else asked


def _asked(task: Task) -> str:
    """The text of what the task asks."""
    if isinstance(task.prompt, str):
        return task.prompt.strip() or json.dumps(task.demonstrations)
    said = [message for message in task.prompt if message["role"] != "system"] or list(task.prompt)
    if len(said) == 1:
        return said[0]["content"].strip()
    return json.dumps([[message["role"], message["content"].strip()] for message in said])
