"""Diagnostics: measurements of models, their weights or their answers, or of parts of recipes, without training.

Contract: a diagnostic gives the same finding for the same models and settings. It reports how many of its items could
not be measured, and leaves them out of every number.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from posttrain.component import Component
from posttrain.engines import Server
from posttrain.errors import UserError

if TYPE_CHECKING:
    from posttrain.policies import Policy

C = TypeVar("C", bound=Component)


def _no_part(contract: type[C]) -> C:
    raise UserError(f"a {contract.__name__.lower()} is asked for, and this is the name of a model")


def _no_run() -> "Record":
    raise UserError("a run is asked for, and this is a model")


@dataclass(frozen=True, kw_only=True)
class Record:
    """What a run that was rewarded by a reward model recorded."""

    policy: "Subject"
    """The reference, else the policy that the run began with, or that of the first checkpoint where it is gone."""
    reward_model: "Subject"
    steps: Callable[[int], Sequence[tuple[int, Sequence[Mapping[str, Any]]]]]
    """At most this many steps, evenly from the first to the last, with the rows of their rollouts."""
    alarms: Sequence[tuple[int, str]]
    """Step and message of each."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A model, or a part of a recipe, to measure."""

    name: str
    """Name as given by the user."""
    load: "Callable[[], Policy]"
    """Its weights, adapters merged, in float32, which holds every smaller type exactly."""
    serve: "Callable[[Policy], Server]"
    """Starts a server that samples from the loaded model."""
    component: "Callable[[type[C]], C]" = _no_part
    """The part of a family that the name stands for, in place of a model: a kind, settings as YAML, or the name of a
    recipe that has one."""
    record: "Callable[[], Record]" = _no_run
    """The record of the run that the name stands for."""


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A line with an interval at each point."""

    title: str
    caption: str
    """What both axes are, in a sentence."""
    points: Sequence[tuple[float, float, float, float]]
    """(place, value, lower end, upper end), by place."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Result of a diagnostic."""

    values: Mapping[str, Any]
    """All numbers as JSON, with null for undefined ones."""
    lines: Sequence[str]
    """Summary in lines of text."""
    pictures: Sequence[Picture] = ()
    """For its page."""


class Diagnostic(Component):
    """A measurement on one model or several."""

    subjects: ClassVar[tuple[str, ...]]
    """Names of the models in the order in which they are given, such as ``before`` and ``after``; a last ``...`` takes
    any number of the one before it."""

    def examine(self, *subjects: Subject) -> Finding:
        """Measure; as many subjects as `subjects` names."""
        raise NotImplementedError
