"""Selections: which tasks a stage trains on, by measurements of models when the stage begins.

Contract: the measurements are JSON, and the selection is a function of them alone, so that a resumed run, whose models
have changed, continues with the same tasks. A task is returned unchanged, with fewer of its pairs, or with texts that
models wrote in place of its own; then its field ``origin`` has where they are from. Tasks keep their order, unless the
selection is one of an order.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from posttrain.component import Component
from posttrain.engines import Sampler
from posttrain.types import Task


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """Result of a selection."""

    tasks: Sequence[Task]
    """The selected tasks; without any, the stage is skipped."""
    summary: str
    """A sentence for the record: numbers before and after, and the bound."""


class Selection(Component):
    """Selects tasks by measurements of models."""

    @property
    def roles(self) -> frozenset[str]:
        """Roles whose models it uses; the recipe must have them when the stage begins."""
        return frozenset()

    @property
    def writes(self) -> frozenset[str]:
        """What models write for every task, which the data then need not have: ``demonstrations``, ``preferences``,
        ``rated completions``.
        """
        return frozenset()

    @property
    def gives(self) -> frozenset[str]:
        """Names of the numbers that the pairs which models write have, for losses that read them."""
        return frozenset()

    @property
    def orders(self) -> bool:
        """Whether it sorts the tasks."""
        return False

    async def measure(self, tasks: Sequence[Task], samplers: Mapping[str, Sampler]) -> Any:
        """The measurements of the tasks, in their order; JSON."""
        raise NotImplementedError

    def choose(self, tasks: Sequence[Task], measured: Any) -> Chosen:
        """The tasks to train on, by the measurements."""
        raise NotImplementedError
