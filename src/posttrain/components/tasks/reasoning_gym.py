"""Tasks of reasoning-gym, a library of generated puzzles with verifiers, by the names of its data sets.

Source: Stojanovski et al. 2025, arXiv:2505.24760; needs ``pip install 'posttrain[reasoning-gym]'``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field, fields, replace
from functools import cached_property
from itertools import zip_longest
from typing import Any

from pydantic import NonNegativeInt, PositiveInt

from posttrain.component import frozen, nearest
from posttrain.components.tasks import Tasks
from posttrain.datasets.describe import describe
from posttrain.datasets.draw_entries import draw
from posttrain.datasets.extras import extra
from posttrain.datasets.keys import keyed
from posttrain.datasets.messages import to_chat
from posttrain.datasets.values import as_text
from posttrain.errors import UserError
from posttrain.types import Task


@frozen
class ReasoningGym(Tasks):
    """Entries of one data set, or of several interleaved.

    Fields are ``entry``, the library's entry, and ``dataset``, the name of its data set, for its verifier. A larger
    `size` begins with the same tasks, except for ``acre``, which the library draws as a whole.
    """

    name: str | tuple[str, ...]
    """Data set, ``leg_counting`` for example, or several, which are mixed in equal parts."""
    size: PositiveInt = 1000
    """Number of tasks."""
    seed: NonNegativeInt = 0
    """Seed of the library. It draws entry i with seed + i, so seeds that differ by less than `size` share tasks;
    held-out tasks are distinguished by their prompts, not by seed."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Difficulty, by the data set's own names (``{max_animals: 5}``); for several data sets, by data set."""
    as_chat: bool = False
    """Whether each question becomes a user message, for models with a chat template."""
    system: str | None = None
    """System message of the chat; needs `as_chat`."""

    def load(self) -> Sequence[Task]:
        """The tasks; with k data sets, task i is entry i // k of data set i modulo k."""
        return self._tasks

    def describe(self) -> str:
        """Data sets, number and an example."""
        return describe(f"reasoning-gym ({', '.join(self._names())}; seed {self.seed})", self.load())

    @cached_property
    def _tasks(self) -> tuple[Task, ...]:
        """The tasks, cached so that entries are drawn once."""
        if self.system is not None and not self.as_chat:
            raise UserError("tasks.system opens a chat, but as_chat is not set; set as_chat: true, or leave system out")
        names = self._names()
        sizes = [len(range(turn, self.size, len(names))) for turn in range(len(names))]
        wanted = [(name, size, self._settings_of(name)) for name, size in zip(names, sizes, strict=True) if size]
        drawn = draw(wanted, self.seed)
        turns = zip_longest(*([_task(name, e) for e in es] for (name, _, _), es in zip(wanted, drawn, strict=True)))
        tasks = keyed(task for turn in turns for task in turn if task is not None)
        return tuple(replace(t, prompt=to_chat(t.prompt, self.system)) for t in tasks) if self.as_chat else tasks

    def _names(self) -> tuple[str, ...]:
        """The names of the data sets. Raises `UserError` for unknown and repeated ones."""
        names = (self.name,) if isinstance(self.name, str) else self.name
        known = extra("reasoning_gym", "reasoning-gym").factory.DATASETS
        for name in names:
            if name not in known:
                raise UserError(f"reasoning-gym has no data set '{name}'; {nearest(name, known)}")
        if len(set(names)) < len(names) or not names:
            raise UserError(f"tasks.name is {list(names)}; name at least one data set, and each once")
        for name in () if isinstance(self.name, str) else self.settings:
            if name not in names:
                raise UserError(
                    f"tasks.settings has '{name}'; with several data sets, settings are given by data set "
                    f"({{{names[0]}: {{...}}}}); {nearest(name, names)}"
                )
        return names

    def _settings_of(self, name: str) -> Mapping[str, Any]:
        """The settings of one data set. Raises `UserError` for unknown ones."""
        settings = self.settings if isinstance(self.name, str) else self.settings.get(name, {})
        if not isinstance(settings, Mapping):
            raise UserError(f"tasks.settings.{name} is {settings!r}; it must be a mapping of settings")
        config = extra("reasoning_gym", "reasoning-gym").factory.DATASETS[name][1]
        known = {f.name for f in fields(config)} - {"size", "seed"}
        for setting in settings:
            if setting not in known:
                raise UserError(
                    f"reasoning-gym data set '{name}' has no setting '{setting}'; {nearest(setting, known)} "
                    "(size and seed are fields of the tasks)"
                )
        return settings


def _task(name: str, entry: Mapping[str, Any]) -> Task:
    answer = entry["answer"]
    return Task(
        key="",
        prompt=entry["question"],
        answer=None if answer is None else as_text(answer),
        domain=name,
        fields={"dataset": name, "entry": entry},
    )
