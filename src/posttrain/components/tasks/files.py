"""Tasks from the user's data: a file, a folder, or a Hugging Face data set, with columns detected by name.

`Files.describe` prints what was read, and the role of each column. The rules are in docs/data.md.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import Literal

from pydantic import Field, PositiveInt

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.datasets.build import build, own_key
from posttrain.datasets.composed import composed
from posttrain.datasets.describe import describe
from posttrain.datasets.keys import keyed
from posttrain.datasets.layout import Layout, Role, detect
from posttrain.datasets.messages import to_chat
from posttrain.datasets.rows import Row
from posttrain.datasets.sources import Source, files_of, open_source
from posttrain.datasets.values import memory
from posttrain.errors import UserError
from posttrain.types import Task

MOST_ROWS = 1_000_000
"""Rows that are taken without being asked for by `Files.limit`."""
MOST_MEMORY = 768 << 20
"""The same for the bytes that all rows take in memory."""


@frozen
class Files(Tasks):
    """One task per row."""

    path: str = Field(min_length=1)
    """A file (.jsonl, .json, .csv, .tsv, .parquet), a folder of such files or one saved by `datasets`, or the name of
    a data set of the Hugging Face hub (``owner/name``)."""
    subset: str | None = None
    """Configuration of a data set of the hub, ``main`` of ``openai/gsm8k`` for example."""
    split: str | None = None
    """Split of a folder or data set; when left out, the only one, or else ``train``."""
    limit: PositiveInt | None = None
    """Number of rows, from the start; None takes all."""
    columns: Mapping[Role, str | None] = field(default_factory=dict)
    """Columns by role, where detection by name fails: ``{prompt: my_question, answer: my_gold}``. A dot selects a
    nested field (``extra.gold``); null disables a role."""
    as_chat: bool = False
    """Whether each text prompt becomes a user message, for models with a chat template."""
    system: str | None = None
    """System message of the chat; needs `as_chat`."""
    special_tokens: Literal["text", "allow"] = "text"
    """How texts of the model's special tokens in rows are tokenized. ``text``: as ordinary text, so that a row can
    neither end a turn nor write for another role. ``allow``: as special tokens, in all data of the run. Text of
    environments and tools is ordinary text in either case."""

    def load(self) -> Sequence[Task]:
        """Every row as a task, in the order of the file."""
        return self._found.tasks

    def describe(self) -> str:
        """What was read, and the role of each column."""
        found = self._found
        return describe(f"{self.path} ({found.form})", found.tasks, found.layout, found.keys_from, found.places)

    def place(self, key: str) -> str:
        """File and line."""
        return self._found.places.get(key, "")

    @property
    def fingerprint(self) -> Mapping[str, str]:
        """SHA-256 of the file, or of each file of the folder; nothing for a data set of the hub."""
        found = {}
        for path in files_of(self.path):
            with path.open("rb") as file:
                found[str(path)] = hashlib.file_digest(file, "sha256").hexdigest()
        return found

    @property
    def allows_special_tokens(self) -> bool:
        """True for `special_tokens` ``allow``."""
        return self.special_tokens == "allow"

    @cached_property
    def _found(self) -> "_Found":
        """Everything that was read, cached so that the data is read once."""
        if self.system is not None and not self.as_chat:
            raise UserError("tasks.system opens a chat, but as_chat is not set; set as_chat: true, or leave system out")
        source = open_source(self.path, self.subset, self.split)
        rows = self._taken(source)
        if not rows:
            raise UserError(f"{self.path} is empty: it holds no rows")
        rows = list(composed(rows, self.columns))
        layout = detect(rows, self.columns, self.path)
        keys_from, ids = self._ids(rows, layout)
        tasks = keyed((build(row, layout) for row in rows), ids)
        tasks = tuple(self._in_chat(task, row) for task, row in zip(tasks, rows, strict=True))
        form = source.form if self.limit is None else f"{source.form}, limit {self.limit} rows"
        places = {task.key: row.place for task, row in zip(tasks, rows, strict=True)}
        return _Found(form=form, layout=layout, keys_from=keys_from, tasks=tasks, places=places)

    def _taken(self, source: Source) -> list[Row]:
        """The first rows up to the limit. Raises `UserError` for more than memory should hold where none is set."""
        taken: list[Row] = []
        if self.limit is None and source.count(MOST_ROWS) > MOST_ROWS:
            raise self._too_many()
        size = 0
        for row in islice(source.rows, self.limit):
            taken.append(row)
            if self.limit is None:
                size += memory(row.values)
                if len(taken) > MOST_ROWS or size > MOST_MEMORY:
                    raise self._too_many()
        return taken

    def _too_many(self) -> UserError:
        return UserError(
            f"{self.path} has more than {MOST_ROWS:,} rows or {MOST_MEMORY >> 20:,} MiB of values, all of which would "
            "be held in memory; set the number of rows to take: tasks.limit=N"
        )

    def _in_chat(self, task: Task, row: Row) -> Task:
        if not self.as_chat:
            return task
        if not task.prompt:
            raise UserError(f"{row.place}: as_chat is set, but this is plain text without a prompt; leave as_chat out")
        if not isinstance(task.prompt, str) and self.system is not None:
            raise UserError(f"{row.place}: the prompt is a chat already, so 'system' cannot be set; leave it out")
        return replace(task, prompt=to_chat(task.prompt, self.system))

    def _ids(self, rows: Sequence[Row], layout: Layout) -> tuple[str | None, Sequence[str]]:
        """The first column with a distinct key in every row, and the keys; None and no keys without one."""
        for column in layout.keys:
            ids = [own_key(row, column) for row in rows]
            named = [key for key in ids if key is not None]
            if len(set(named)) == len(rows):
                return column, named
            if self.columns.get("key") is not None:
                times = Counter(ids)
                place = next(row.place for row, key in zip(rows, ids, strict=True) if key is None or times[key] > 1)
                raise UserError(
                    f"{place}: columns.key names '{column}', whose value here is missing, is no name, or "
                    "is also another row's"
                )
        return None, ()


@dataclass(frozen=True, kw_only=True)
class _Found:
    form: str
    layout: Layout
    keys_from: str | None
    tasks: tuple[Task, ...]
    places: Mapping[str, str]
