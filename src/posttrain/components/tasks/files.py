"""Tasks from data that the user has: a file, a folder, or a Hugging Face data set, its columns found by their names.

What is read, and what each column is taken for, is told by `Files.describe` and in docs/data.md.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import Literal

from pydantic import Field, PositiveInt

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.datasets.build import build, own_key
from posttrain.datasets.describe import describe
from posttrain.datasets.keys import keyed
from posttrain.datasets.layout import Layout, Role, detect
from posttrain.datasets.messages import to_chat
from posttrain.datasets.rows import Row
from posttrain.datasets.sources import files_of, open_source
from posttrain.errors import UserError
from posttrain.types import Task


@frozen
class Files(Tasks):
    """One task a row."""

    path: str = Field(min_length=1)
    """A file (.jsonl, .json, .csv, .tsv, .parquet), a folder of such files or one saved by `datasets`, or the name of
    a data set of the Hugging Face hub (``owner/name``)."""
    subset: str | None = None
    """Configuration of a data set of the hub, ``main`` of ``openai/gsm8k`` for example."""
    split: str | None = None
    """Split of a folder or data set; when left out, the only one, or else ``train``."""
    limit: PositiveInt | None = None
    """Number of rows taken from the start; None takes all."""
    columns: Mapping[Role, str | None] = field(default_factory=dict)
    """What a column is, where its name does not tell: ``{prompt: my_question, answer: my_gold}``. A dot reaches into
    a column (``extra.gold``); null takes nothing for that role."""
    as_chat: bool = False
    """Make each text prompt the one message of a user, for models with a chat template."""
    system: str | None = None
    """System message before it; needs `as_chat`."""
    special_tokens: Literal["text", "allow"] = "text"
    """What the texts of the model's special tokens mean in rows: ``text`` as any other, so that a row can neither end
    a turn nor speak for another role; ``allow`` takes them as tokens, in all data of the run, for data made with them
    on purpose. What environments and tools say is text in either case."""

    def load(self) -> Sequence[Task]:
        """Every row as a task, in the order of the file."""
        return self._found.tasks

    def describe(self) -> str:
        """What was read, and what each column was taken for."""
        found = self._found
        return describe(f"{self.path} ({found.form})", found.tasks, found.layout, found.keys_from)

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
        """As its setting says."""
        return self.special_tokens == "allow"

    @cached_property
    def _found(self) -> "_Found":
        """Everything that was read. Kept, so that the data is read once."""
        if self.system is not None and not self.as_chat:
            raise UserError("tasks.system opens a chat, but as_chat is not set; set as_chat: true, or leave system out")
        source = open_source(self.path, self.subset, self.split)
        rows = list(islice(source.rows, self.limit))
        if not rows:
            raise UserError(f"{self.path} is empty: it holds no rows")
        layout = detect(rows, self.columns, self.path)
        keys_from, ids = self._ids(rows, layout)
        tasks = keyed((build(row, layout) for row in rows), ids)
        tasks = tuple(self._in_chat(task, row) for task, row in zip(tasks, rows, strict=True))
        form = source.form if self.limit is None else f"{source.form}, limit {self.limit} rows"
        return _Found(form=form, layout=layout, keys_from=keys_from, tasks=tasks)

    def _in_chat(self, task: Task, row: Row) -> Task:
        if not self.as_chat:
            return task
        if not task.prompt:
            raise UserError(f"{row.place}: as_chat is set, but this is plain text without a prompt; leave as_chat out")
        if not isinstance(task.prompt, str) and self.system is not None:
            raise UserError(f"{row.place}: the prompt is a chat already, so 'system' cannot be set; leave it out")
        return replace(task, prompt=to_chat(task.prompt, self.system))

    def _ids(self, rows: Sequence[Row], layout: Layout) -> tuple[str | None, Sequence[str]]:
        """The column that names every row differently, and those names; nothing where there is none."""
        for column in layout.keys:
            ids = [own_key(row, column) for row in rows]
            named = [key for key in ids if key is not None]
            if len(set(named)) == len(rows):
                return column, named
            if self.columns.get("key") is not None:
                place = next(row.place for row, key in zip(rows, ids, strict=True) if key is None or ids.count(key) > 1)
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
