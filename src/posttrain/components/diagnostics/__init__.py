"""What can be found out about models by looking at them, their weights or their answers; nothing is trained.

Contract: a diagnostic gives the same finding for the same models and settings. It says how many of the things that it
was to look at could not be looked at, and leaves them out of every number instead of counting them as something.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from posttrain.component import Component
from posttrain.engines import Server

if TYPE_CHECKING:
    from posttrain.policies import Policy


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A model to look at."""

    name: str
    """As the user wrote it."""
    load: "Callable[[], Policy]"
    """Its weights, adapters merged, in float32, which holds every smaller type exactly."""
    serve: "Callable[[Policy], Server]"
    """Makes what `load` gave write."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What was found."""

    values: Mapping[str, Any]
    """Everything, for programs: JSON, with null for what is not defined."""
    lines: Sequence[str]
    """The gist, for people."""


class Diagnostic(Component):
    """A measurement on one model or several."""

    subjects: ClassVar[tuple[str, ...]]
    """What the models are to each other, in the order in which they are given: ``before`` and ``after``, say."""

    def examine(self, *subjects: Subject) -> Finding:
        """Measure; as many subjects as `subjects` names."""
        raise NotImplementedError
