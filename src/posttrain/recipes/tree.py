"""A recipe: one frozen tree with everything that defines a run. Recipes are changed only with `dataclasses.replace`,
which validates again; `posttrain.recipes.overrides` addresses the same tree by dotted paths.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    StringConstraints,
)
from pydantic_core import PydanticCustomError

from posttrain.cluster import Cluster
from posttrain.cluster.local import Local
from posttrain.component import frozen
from posttrain.components.alarms import Alarm
from posttrain.components.alarms.collapse import Collapse
from posttrain.components.alarms.divergence import Divergence
from posttrain.components.alarms.duplicates import Duplicates
from posttrain.components.alarms.entropy_collapse import EntropyCollapse
from posttrain.components.alarms.grader_errors import GraderErrors
from posttrain.components.alarms.gradient_spike import GradientSpike
from posttrain.components.alarms.held_out_falls import HeldOutFalls
from posttrain.components.alarms.length import Length
from posttrain.components.alarms.not_finite import NotFinite
from posttrain.components.alarms.repeated_text import RepeatedText
from posttrain.components.alarms.reward_collapse import RewardCollapse
from posttrain.components.alarms.sampler_gap import SamplerGap
from posttrain.components.alarms.still_category import StillCategory
from posttrain.components.alarms.truncation import Truncation
from posttrain.components.alarms.zero_variance import ZeroVariance
from posttrain.components.tasks import Tasks
from posttrain.components.timetables import Timetable
from posttrain.components.timetables.in_turn import InTurn
from posttrain.components.trackers import Tracker
from posttrain.engines import Engine
from posttrain.engines.native import Native
from posttrain.evaluation.settings import Evaluation
from posttrain.models import Model
from posttrain.stages import Stage

ALARMS: Mapping[str, Alarm] = {
    alarm.kind: alarm
    for alarm in (
        NotFinite(),
        Collapse(),
        EntropyCollapse(),
        RewardCollapse(),
        HeldOutFalls(),
        Length(),
        Truncation(),
        ZeroVariance(),
        Duplicates(),
        RepeatedText(),
        GraderErrors(),
        Divergence(),
        GradientSpike(),
        SamplerGap(),
        StillCategory(),
    )
}


def _check_name(name: str) -> str:
    """Refuse what cannot name a folder."""
    try:
        size = len(name.encode())
    except UnicodeEncodeError as error:
        raise PydanticCustomError("name", "is not text: it has a lone surrogate") from error
    if not 0 < size <= 200:
        raise PydanticCustomError("name", "has {size} bytes; a name has 1 to 200", {"size": size})
    return name


def _list(trackers: Any) -> Any:
    """A single tracker as a list of it."""
    return [trackers] if isinstance(trackers, str | Mapping | Tracker) else trackers


def _check_trackers(trackers: tuple[Tracker, ...]) -> tuple[Tracker, ...]:
    """Refuse two of a kind, which would share what is kept for a resume."""
    kinds = [tracker.kind for tracker in trackers]
    twice = next((kind for kind in kinds if kinds.count(kind) > 1), None)
    if twice is not None:
        raise PydanticCustomError("trackers", "'{kind}' is there twice; a run has one of a kind", {"kind": twice})
    return trackers


@frozen
class Checkpoints:
    """When a run saves checkpoints, from which it resumes bit-identically."""

    every_steps: NonNegativeInt = 50
    """Steps between checkpoints; 0 for none by steps."""
    every_seconds: PositiveFloat = 300.0
    """Longest time between checkpoints."""
    keep: PositiveInt = 2
    """Number of newest checkpoints to keep."""


@frozen
class Recipe:
    """Everything that defines a run, except its folder."""

    name: Annotated[str, AfterValidator(_check_name)]
    """Names the run's folder; at most 200 bytes in UTF-8."""
    models: Mapping[str, Model]
    """By role: ``policy``, ``reference``, ``critic``, ``teacher``, ``judge``, ..."""
    tasks: Tasks
    """The tasks, shared by all stages without tasks of their own."""
    stages: Mapping[str, Stage]
    """By name, in order."""
    engine: Engine = Native(slots=256)
    """What samples."""
    schedule: Timetable = InTurn()
    """Which weights the rollouts of a step are sampled with."""
    cluster: Cluster = Local()
    """Where the processes are that sample and learn; it changes no number."""
    evaluation: Evaluation = Evaluation()
    checkpoints: Checkpoints = Checkpoints()
    alarms: Mapping[str, Alarm] = field(default_factory=lambda: dict(ALARMS))
    """Alarms that watch the run, by name; all by default. Each has its `action`."""
    trackers: Annotated[tuple[Tracker, ...], BeforeValidator(_list), AfterValidator(_check_trackers)] = ()
    """Where numbers and samples go besides the run's own record: ``[tensorboard]``, for example."""
    seed: NonNegativeInt = 0
    """Seed of every random draw of the run."""
    budget: PositiveInt | None = None
    """Sampled tokens of the run: a stage that samples ends with the step that reaches them. Schedules follow the steps
    nevertheless. None has no limit."""
    push: Annotated[str, StringConstraints(pattern=r"^\w[\w.-]*/\w[\w.-]*$")] | None = None
    """Repository of the Hugging Face hub, ``owner/name``, to which the final model is pushed; a new one is private."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    threads: PositiveInt | None = None
    """CPU threads; None takes all cores. A resumed run must use as many as the run that it continues."""
