"""Diagnostics: measurements of models, their weights or their answers, without training.

Contract: a diagnostic gives the same finding for the same models and settings. It reports how many of its items could
not be measured, and leaves them out of every number.
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
    """A model to measure."""

    name: str
    """Name as given by the user."""
    load: "Callable[[], Policy]"
    """Its weights, adapters merged, in float32, which holds every smaller type exactly."""
    serve: "Callable[[Policy], Server]"
    """Starts a server that samples from the loaded model."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Result of a diagnostic."""

    values: Mapping[str, Any]
    """All numbers as JSON, with null for undefined ones."""
    lines: Sequence[str]
    """Summary in lines of text."""


class Diagnostic(Component):
    """A measurement on one model or several."""

    subjects: ClassVar[tuple[str, ...]]
    """Names of the models in the order in which they are given, such as ``before`` and ``after``."""

    def examine(self, *subjects: Subject) -> Finding:
        """Measure; as many subjects as `subjects` names."""
        raise NotImplementedError
