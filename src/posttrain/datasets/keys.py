"""Keys of tasks, and the identity of their problems.

Both depend on content only, not on the order of rows or on other rows.
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
    """Hash of JSON values: 16 hexadecimal digits (BLAKE2b of their canonical JSON)."""
    canonical = json.dumps(parts, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(canonical.encode("ascii"), digest_size=8).hexdigest()


def keyed(tasks: Iterable[Task], ids: Sequence[str | None] = ()) -> tuple[Task, ...]:
    """The tasks with keys: the given ids if there is one per task and they differ, else a hash of prompt and answer.
    Without a prompt, demonstrations are in its place, or else the fields.

    Tasks of equal hashes are numbered in order: ``1f0c...``, ``1f0c...-2``, ``1f0c...-3``.
    """
    tasks = tuple(tasks)
    if len(ids) == len(tasks) and all(ids) and len(set(ids)) == len(ids):
        return tuple(replace(task, key=key or "") for task, key in zip(tasks, ids, strict=True))
    seen: Counter[str] = Counter()
    named = []
    for task in tasks:
        seen_too = [identity(image) for image in task.images]
        asked = task.prompt or task.demonstrations or dict(task.fields)
        key = digest(asked, task.answer, *([seen_too] if seen_too else []))
        seen[key] += 1
        named.append(replace(task, key=key if seen[key] == 1 else f"{key}-{seen[key]}"))
    return tuple(named)


def problem(task: Task) -> str:
    """The problem of a task, in a form that does not depend on its wrapping.

    Surrounding space is ignored, and so are a system message and the difference between a text and a chat with a single
    message. Plain text without a prompt is its own problem, and so are the fields of a task that has neither. The same
    question about another image is another problem. Of a task that evaluation puts in another form, that form is the
    problem.
    """
    task = task.asked or task
    question = _question(task)
    return json.dumps([question, *map(identity, task.images)]) if task.images else question


def _question(task: Task) -> str:
    """The text of the task's question."""
    if isinstance(task.prompt, str):
        return task.prompt.strip() or json.dumps(task.demonstrations or dict(task.fields), sort_keys=True)
    messages = [message for message in task.prompt if message["role"] != "system"] or list(task.prompt)
    if len(messages) == 1:
        return messages[0]["content"].strip()
    return json.dumps([[message["role"], message["content"].strip()] for message in messages])
