"""A recipe: one frozen tree that says all of a run. Recipes are changed only with `dataclasses.replace`, which
validates again; `posttrain.recipes.overrides` spells the same tree with dotted paths.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from pydantic import NonNegativeInt, PositiveFloat, PositiveInt

from posttrain.component import frozen
from posttrain.components.alarms import Alarm
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
from posttrain.components.alarms.truncation import Truncation
from posttrain.components.alarms.zero_variance import ZeroVariance
from posttrain.components.tasks import Tasks
from posttrain.engines import Engine
from posttrain.engines.native import Native
from posttrain.evaluation.settings import Evaluation
from posttrain.models import Model
from posttrain.stages import Stage

ALARMS: Mapping[str, Alarm] = {
    alarm.kind: alarm
    for alarm in (
        NotFinite(),
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
    )
}


@frozen
class Checkpoints:
    """When a run saves what it needs to go on bit for bit."""

    every_steps: NonNegativeInt = 50
    """Steps between checkpoints; 0 for none by step."""
    every_seconds: PositiveFloat = 300.0
    """Longest time without one."""
    keep: PositiveInt = 2
    """Number of newest checkpoints that are kept."""


@frozen
class Recipe:
    """Everything that defines a run, except where it is written."""

    name: str
    """Names the run's folder."""
    models: Mapping[str, Model]
    """By role: ``policy``, ``reference``, ``critic``, ``teacher``, ``judge``, ..."""
    tasks: Tasks
    """The problems, shared by all stages that do not bring their own."""
    stages: Mapping[str, Stage]
    """By name, in order."""
    engine: Engine = Native(slots=256)
    """What samples."""
    evaluation: Evaluation = Evaluation()
    checkpoints: Checkpoints = Checkpoints()
    alarms: Mapping[str, Alarm] = field(default_factory=lambda: dict(ALARMS))
    """What watches the run, by name; all that there are, unless said otherwise. Each has its `action`."""
    seed: NonNegativeInt = 0
    """Decides every draw of the run."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    threads: PositiveInt | None = None
    """CPU threads; None takes all cores. A resumed run must use as many as the one it continues."""
