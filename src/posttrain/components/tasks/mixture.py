"""A mixture of several sources of tasks in fixed shares, which hold throughout.

The k-th task of a source has the place (k + 1/2) / share, and all tasks are sorted by place: nothing is random.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import Literal

from pydantic import PositiveFloat, PositiveInt

from posttrain.component import frozen, nearest
from posttrain.components.tasks import Tasks
from posttrain.errors import UserError
from posttrain.types import Task


@frozen
class Mixture(Tasks):
    """Interleaved sources. Keys become ``source/key``; the default domain of a task is the name of its source."""

    sources: Mapping[str, Tasks]
    """The sources by name."""
    shares: Mapping[str, PositiveFloat] = field(default_factory=dict)
    """Share of each source, in any unit. The mixture ends with the first source that is exhausted, so that the shares
    hold. Without shares, all tasks are used, in proportion to the sizes of the sources."""
    domains: Literal["own", "source"] = "own"
    """Domain of a task: its own, and the name of its source where it has none; or always the name of its source."""
    most: PositiveInt | None = None
    """Most tasks of a source, the first ones; None takes all."""

    def load(self) -> Sequence[Task]:
        """The tasks of all sources, in the order of the mixture."""
        loaded = {name: tasks[: self.most] for name, tasks in self._loaded.items()}
        shares = self.shares or {name: float(len(tasks)) for name, tasks in loaded.items()}
        end = min(len(tasks) / shares[name] for name, tasks in loaded.items())
        placed = sorted(
            (place, name, index)
            for name, tasks in loaded.items()
            for index in range(len(tasks))
            if (place := (index + 0.5) / shares[name]) < end
        )
        return tuple(self._renamed(loaded[name][index], name) for _, name, index in placed)

    def describe(self) -> str:
        """Number of tasks of each source, and the description of each source."""
        taken = [task.key.split("/", 1)[0] for task in self.load()]
        lines = [f"mixture: {len(taken):,} tasks"]
        for name, source in self.sources.items():
            lines.append(f"{name}: {taken.count(name):,} of {len(self._loaded[name]):,} tasks, of which:")
            lines += [f"  {line}" for line in source.describe().splitlines()]
        return "\n".join(lines)

    def place(self, key: str) -> str:
        """The place in the task's source."""
        name, _, inner = key.partition("/")
        return self.sources[name].place(inner) if name in self.sources else ""

    @cached_property
    def _loaded(self) -> Mapping[str, Sequence[Task]]:
        """The tasks of every source, cached so that each is read once."""
        for name in self.shares:
            if name not in self.sources:
                raise UserError(f"tasks.shares names '{name}', which is no source; {nearest(name, self.sources)}")
        loaded = {}
        for name, source in self.sources.items():
            if "/" in name or not name:
                raise UserError(f"tasks.sources.{name}: a source's name begins its keys and cannot hold a '/'")
            if self.shares and name not in self.shares:
                raise UserError(f"tasks.shares has no share for '{name}'; give one to every source, or to none")
            loaded[name] = source.load()
            if not loaded[name]:
                raise UserError(f"tasks.sources.{name} holds no tasks")
        if not loaded:
            raise UserError("tasks.sources is empty; name at least one source")
        return loaded

    def _renamed(self, task: Task, source: str) -> Task:
        own = task.domain if self.domains == "own" else ""
        return replace(task, key=f"{source}/{task.key}", domain=own or source)
